"""How often 95 % intervals of chains and hidden Markov models hold the true steps.

20,000 people of 20 symbols each, or of 5 to 20, from known laws; states are matched by what they show.

    python -m benchmarks.sequence_coverage            (or: chains, hidden, stays, numbers, and a number of fits)
"""

import sys
import warnings
from itertools import permutations, product
from typing import Any

import numpy as np

import dpvb
from dpvb.models.sequences import dynamics

PEOPLE, LONGEST, FITS = 20_000, 20, 100
# Numbers take some seconds each.
FITS_OF_NUMBERS = 10
EPSILONS = (0.5, 1.0, 4.0)
STEP_2 = np.array([[0.93, 0.07], [0.12, 0.88]])
SHOWN_2 = np.array([[0.0, 0.05, 0.0, 0.0, 0.95], [0.15, 0.63, 0.14, 0.08, 0.0]])
STEP_3 = np.array([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.05, 0.2, 0.75]])
SHOWN_3 = np.array([[0.6, 0.2, 0.1, 0.05, 0.03, 0.02], [0.05, 0.1, 0.6, 0.15, 0.05, 0.05],
                    [0.02, 0.03, 0.05, 0.1, 0.3, 0.5]])  # fmt: skip
# Each of five states stays with .65, goes on to the next with .2, and shows two of ten symbols most.
STEP_5 = 0.05 + 0.6 * np.eye(5) + 0.15 * np.roll(np.eye(5), 1, axis=1)
# States of two numbers in [-1, 1], of deviation .15.
OF_NUMBERS = {
    2: (np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([[-0.4, -0.3], [0.4, 0.3]])),
    3: (STEP_3, np.array([[-0.5, -0.4], [0.0, 0.5], [0.5, -0.3]])),
}
SHOWN_5 = (0.02 + np.kron(np.eye(5), [[0.48, 0.28]])) / 0.96


def shortened(code_nt: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The same people with 5 to 20 symbols each."""
    return [row[:length] for row, length in zip(code_nt, rng.integers(5, LONGEST + 1, PEOPLE), strict=True)]


def held(lines: Any, truth: np.ndarray) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean([line.low <= one <= line.high for line, one in zip(lines, truth.ravel(), strict=True)]))


def chains(fits: int) -> None:
    """Markov chains of order 1 and 2 of three and five symbols."""
    print(
        "## Intervals of steps\n\n"
        f"Share of 95 % intervals that hold the true probability of a chain: {PEOPLE:,} people of {LONGEST} symbols, "
        f"or of 5 to {LONGEST}, {fits} fits. The default clip shortens most of these people; clip_norm=None nobody.\n"
    )
    print("| symbols | order | ε | default clip | 5 to 20 | clip_norm=None | std, default | std, None |")
    print("|---|---|---|---|---|---|---|---|")
    for width, order in ((3, 1), (5, 1), (3, 2)):
        rng = np.random.default_rng(width)
        laws = [rng.dirichlet(np.full(width, 2.0), size=(width,) * own) for own in range(1, order + 1)]
        for epsilon in EPSILONS:
            shares, stds = np.zeros(3), np.zeros(3)
            for _ in range(fits):
                code_nt = dynamics.drawn(np.full(width, 1 / width), laws, PEOPLE, LONGEST, rng)
                given: dict[str, Any] = {"order": order, "epsilon": epsilon, "delta": 1e-6}
                usual = dpvb.MarkovChain(width, **given).fit(code_nt)
                short = dpvb.MarkovChain(width, **given).fit(shortened(code_nt, rng))
                whole = dpvb.MarkovChain(width, clip_norm=None, **given).fit(code_nt)
                tables = [model.transition_intervals() for model in (usual, short, whole)]
                shares += [held(table, laws[-1]) for table in tables]
                stds += [np.mean([line.std for line in table]) for table in tables]
            told = "".join(f" {one / fits:.3f} |" for one in shares)
            print(
                f"| {width} | {order} | {epsilon:g} |{told} {stds[0] / fits:.4f} | {stds[2] / fits:.4f} |", flush=True
            )


def hidden(fits: int) -> None:
    """Hidden Markov models of three states that show six symbols, and of five that show ten."""
    print(
        f"\nShare of 95 % intervals that hold the true step between hidden states: {PEOPLE:,} people of {LONGEST} "
        f"symbols, or of 5 to {LONGEST}, {fits} fits. Three states show six symbols, and five show ten. "
        "The default has clip_norm=2, which shortens all of these people, and power=1; clip_norm=None is with "
        "power=0.5.\n"
    )
    print("| states | ε | default clip | 5 to 20 | clip_norm=None | std, default | std, None |")
    print("|---|---|---|---|---|---|---|")
    for step_kk, shown_kv in ((STEP_3, SHOWN_3), (STEP_5, SHOWN_5)):
        k, v = shown_kv.shape
        rng = np.random.default_rng(k)
        orders = [[*order] for order in permutations(range(k))]
        for epsilon in EPSILONS:
            shares, stds = np.zeros(3), np.zeros(3)
            for seed in range(fits):
                state_nt = dynamics.drawn(np.full(k, 1 / k), [step_kk], PEOPLE, LONGEST, rng)
                code_nt = dynamics.shown(state_nt, shown_kv, rng)
                given: dict[str, Any] = {"symbols": v, "epsilon": epsilon, "delta": 1e-6, "random_state": seed}
                fitted = [
                    dpvb.HiddenMarkovModel(k, **given).fit(code_nt),
                    dpvb.HiddenMarkovModel(k, **given).fit(shortened(code_nt, rng)),
                    dpvb.HiddenMarkovModel(k, clip_norm=None, power=0.5, **given).fit(code_nt),
                ]
                for place, model in enumerate(fitted):
                    shown = model.emission_probabilities_
                    order = min(orders, key=lambda own: np.abs(shown[own] - shown_kv).sum())
                    table = model.transition_intervals()
                    lines = [table.of(str(order[i]))[str(order[j])] for i, j in np.ndindex(k, k)]
                    shares[place] += held(lines, step_kk)
                    stds[place] += np.mean([line.std for line in lines])
            told = "".join(f" {one / fits:.3f} |" for one in shares)
            print(f"| {k} | {epsilon:g} |{told} {stds[0] / fits:.4f} | {stds[2] / fits:.4f} |", flush=True)


def stays(fits: int) -> None:
    """Hidden Markov models of short sequences, one or several of each person."""
    print(
        "\nBias of the probability to stay, root mean squared error and coverage of 95 % intervals of all steps: "
        f"3,000 persons of one sequence, or of 1 to 3, {fits} fits, default settings. Lengths are geometric of mean "
        "8.3, from 2 to 40 symbols. Two states show five symbols, and three show six.\n"
    )
    print("| states | sequences of a person | ε | bias, state by state | RMSE | coverage | mean std |")
    print("|---|---|---|---|---|---|---|")
    for (step_kk, shown_kv), most in product(((STEP_2, SHOWN_2), (STEP_3, SHOWN_3)), (1, 3)):
        for epsilon in (1.0, 4.0):
            k, v = shown_kv.shape
            rng, off, std = np.random.default_rng([k, most, int(epsilon)]), [], []
            orders = [[*order] for order in permutations(range(k))]
            for seed in range(fits):
                person_n = np.repeat(np.arange(3_000), rng.integers(1, most + 1, 3_000))
                number = len(person_n)
                state_nt = dynamics.drawn(np.full(k, 1 / k), [step_kk], number, 40, rng)
                code_nt = dynamics.shown(state_nt, shown_kv, rng)
                people = [row[:long] for row, long in zip(code_nt, np.clip(rng.geometric(0.12, number), 2, 40),
                                                          strict=True)]  # fmt: skip
                model = dpvb.HiddenMarkovModel(k, symbols=v, epsilon=epsilon, delta=1e-6, random_state=seed)
                shown = model.fit(people, group=person_n if most > 1 else None).emission_probabilities_
                order = min(orders, key=lambda own: np.abs(shown[own] - shown_kv).sum())
                table = model.transition_intervals()
                lines = [table.of(str(order[i]))[str(order[j])] for i, j in np.ndindex(k, k)]
                off.append(np.reshape([line.mean for line in lines], (k, k)) - step_kk)
                std.append(np.reshape([line.std for line in lines], (k, k)))
            bias = ", ".join(f"{one:+.4f}" for one in np.mean(off, axis=0).diagonal())
            inside = np.mean(np.abs(off) < 1.96 * np.array(std))
            off_by, number_of = np.sqrt(np.mean(np.square(off))), "1" if most == 1 else f"1 to {most}"
            print(f"| {k} | {number_of} | {epsilon:g} | {bias} | {off_by:.4f} | {inside:.3f} | {np.mean(std):.4f} |",
                  flush=True)  # fmt: skip


def numbers(fits: int, states: tuple[int, ...] = (2, 3), epsilons: tuple[float, ...] = EPSILONS) -> None:
    """Hidden Markov models of two and of three states that show two numbers."""
    print(
        f"\nShare of 95 % intervals that hold the true step between states of two numbers: {PEOPLE:,} people of "
        f"{LONGEST} points, or of 5 to {LONGEST}, {fits} fits, the default clip. Beside it how far the steps of the "
        "fit itself are off on average, and those that the intervals stand around.\n"
    )
    print("| states | ε | held | 5 to 20 | fit off by | intervals off by | std |")
    print("|---|---|---|---|---|---|---|")
    for k in states:
        step_kk, mean_kd = OF_NUMBERS[k]
        for epsilon in epsilons:
            rng = np.random.default_rng([k, int(10 * epsilon)])
            shares, stds, off = np.zeros(2), [], np.zeros(2)
            for seed in range(fits):
                state_nt = dynamics.drawn(np.full(k, 1 / k), [step_kk], PEOPLE, LONGEST, rng)
                x_ntd = np.clip(rng.normal(mean_kd[state_nt], 0.15), -1, 1)
                given: dict[str, Any] = {"columns": 2, "low": -1, "high": 1, "delta": 1e-6, "random_state": seed}
                for place, people in enumerate((x_ntd, shortened(x_ntd, rng))):
                    model = dpvb.GaussianHiddenMarkovModel(k, epsilon=epsilon, **given).fit(people)
                    order = [int(((model.means_ - own) ** 2).sum(axis=1).argmin()) for own in mean_kd]
                    table = model.transition_intervals()
                    lines = [table.of(str(order[i]))[str(order[j])] for i, j in np.ndindex(k, k)]
                    shares[place] += held(lines, step_kk)
                    if place == 0:
                        found = (
                            model.transition_matrix_[np.ix_(order, order)],
                            np.reshape([line.mean for line in lines], (k, k)),
                        )
                        off += [np.abs(one - step_kk).mean() for one in found]
                        stds.append(np.mean([line.std for line in lines]))
            told = "".join(f" {one / fits:.3f} |" for one in shares) + "".join(f" {one / fits:.4f} |" for one in off)
            print(f"| {k} | {epsilon:g} |{told} {np.mean(stds):.4f} |", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    words = [word for word in sys.argv[1:] if not word.isdecimal()] or ["chains", "hidden", "stays", "numbers"]
    number = next((int(word) for word in sys.argv[1:] if word.isdecimal()), None)
    for word in words:
        if word == "numbers":
            numbers(number or FITS_OF_NUMBERS)
        else:
            {"chains": chains, "hidden": hidden, "stays": stays}[word](number or FITS)
