"""Coverage and width of 95 % intervals of models with hidden states, and processor time of a fit with its intervals.

Few people and many, small and large budgets, default settings; states are matched by what they show.

    python -m benchmarks.sequence_intervals            (or: symbols, numbers, linear)
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

import dpvb
from benchmarks.linear_dynamical import system
from benchmarks.sequence_coverage import LONGEST, OF_NUMBERS, SHOWN_3, SHOWN_5, STEP_3, STEP_5
from dpvb.models.sequences import dynamics, kalman

EPSILONS = (0.5, 1.0, 4.0)
#: People and fits.
SYMBOLS = {3: ((2_000, 20), (20_000, 20)), 5: ((20_000, 8),)}
NUMBERS = {2: ((2_000, 6), (20_000, 6)), 3: ((20_000, 4),)}
LINEAR = ((1_000, 12), (4_000, 8))
#: Deviation of the numbers that a state shows; points of a sequence of a linear system.
STD, POINTS = 0.15, 50


class Interval(NamedTuple):
    """Ends, and the true value."""

    low: float
    high: float
    truth: float


def of_steps(model: Any, order: list[int], step_kk: np.ndarray) -> Iterator[Interval]:
    """Intervals of the steps between states; `order` has the place of each true state."""
    table = model.transition_intervals()
    for (i, j), truth in np.ndenumerate(step_kk):
        line = table.of(str(order[i]))[str(order[j])]
        yield Interval(line.low, line.high, truth)


def symbols(k: int, people: int, epsilon: float, rng: np.random.Generator, seed: int) -> Iterator[Interval]:
    """A hidden Markov model of symbols: three states show six, and five show ten."""
    step_kk, shown_kv = {3: (STEP_3, SHOWN_3), 5: (STEP_5, SHOWN_5)}[k]
    state_nt = dynamics.drawn(np.full(k, 1 / k), [step_kk], people, LONGEST, rng)
    code_nt = dynamics.shown(state_nt, shown_kv, rng)
    model = dpvb.HiddenMarkovModel(k, symbols=shown_kv.shape[1], epsilon=epsilon, delta=1e-6, random_state=seed)
    shown = model.fit(code_nt).emission_probabilities_
    order = min(permutations(range(k)), key=lambda states: np.abs(shown[[*states]] - shown_kv).sum())
    return of_steps(model, [*order], step_kk)


def numbers(k: int, people: int, epsilon: float, rng: np.random.Generator, seed: int) -> Iterator[Interval]:
    """A hidden Markov model of two numbers."""
    step_kk, mean_kd = OF_NUMBERS[k]
    state_nt = dynamics.drawn(np.full(k, 1 / k), [step_kk], people, LONGEST, rng)
    x_ntd = np.clip(rng.normal(mean_kd[state_nt], STD), -1, 1)
    bounds: dict[str, Any] = {"columns": 2, "low": -1, "high": 1}
    model = dpvb.GaussianHiddenMarkovModel(k, epsilon=epsilon, delta=1e-6, random_state=seed, **bounds).fit(x_ntd)
    order = [int(((model.means_ - mean_d) ** 2).sum(axis=1).argmin()) for mean_d in mean_kd]
    return of_steps(model, order, step_kk)


def linear(k: int, people: int, epsilon: float, rng: np.random.Generator, seed: int) -> Iterator[Interval]:
    """A linear dynamical system: deviations of noise and of states, of four columns, and its two modes."""
    true = system(np.random.default_rng(4))
    x_ntd = kalman.drawn(true, people, POINTS, rng)
    bounds: dict[str, Any] = {"columns": 4, "low": -1, "high": 1}
    model = dpvb.LinearDynamicalSystem(k, epsilon=epsilon, delta=1e-6, random_state=seed, **bounds).fit(x_ntd)
    table = model.intervals()
    truth = {"noise std": np.sqrt(true.noise_d), "states std": np.linalg.norm(true.shown_dk, axis=1)}
    for what, value_d in truth.items():
        lines = [line for line in table if line.name == what]
        yield from (Interval(line.low, line.high, value) for line, value in zip(lines, value_d, strict=True))
    turning = {line.part for line in table if line.name == "period"}
    for line in table:
        if line.name == "each step times":
            yield Interval(line.low, line.high, 0.97 if line.part in turning else 0.9)


def table(title: str, cells: list[tuple[int, int, int]], intervals: Callable[..., Iterator[Interval]]) -> None:
    """A line for each number of states and of people and each epsilon; the people are the same in each run."""
    for k, people, fits in cells:
        for epsilon in EPSILONS:
            rng, spent, every = np.random.default_rng([k, people, int(10 * epsilon)]), 0.0, []
            for seed in range(fits):
                start = time.process_time()
                every += [*intervals(k, people, epsilon, rng, seed)]
                spent += time.process_time() - start
            held = np.mean([one.low <= one.truth <= one.high for one in every])
            width = np.mean([one.high - one.low for one in every])
            print(f"| {title} | {k} | {people:,} | {epsilon:g} | {fits} | {held:.3f} | {width:.4f} | "
                  f"{spent / fits:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print(
        "## Intervals of models with hidden states\n\nShare of 95 % intervals that hold the truth, their mean width, "
        "and the processor seconds of a fit with its intervals (and of drawing the people): steps between states that "
        f"show symbols, or two numbers, sequences of {LONGEST}; deviations and modes of linear dynamical systems of "
        f"four columns, sequences of {POINTS}. Default settings.\n"
    )
    print("| model | states | people | ε | fits | coverage | width | CPU-s |\n|---|---|---|---|---|---|---|---|")
    kinds: dict[str, Any] = {
        "symbols": ([(k, *sizes) for k, every in SYMBOLS.items() for sizes in every], symbols),
        "numbers": ([(k, *sizes) for k, every in NUMBERS.items() for sizes in every], numbers),
        "linear": ([(3, *sizes) for sizes in LINEAR], linear),
    }
    for word in sys.argv[1:] or kinds:
        table(word, *kinds[word])
