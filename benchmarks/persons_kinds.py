"""What `group=` does to every kind of model but regressions of labels and counts: bias and coverage; simulated persons.

All rows, and all sequences, of a person have the distribution of the model, whatever their correlation is, so the truth
is known: normal numbers behind them are (sd a + e) / √(1 + sd²), a of the person, e of the row.

    python -m benchmarks.persons_kinds            (or names of kinds)
"""

import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

import dpvb
from dpvb.data import Binary, Numeric, Schema, Target

PERSONS, MOST, SDS, TABLES, FIRST_SEED = 2_000, 9, (0.0, 1.0, 2.0), 10, 70_000
LONGEST = 10
GIVEN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
STEP = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.25, 0.7]])
SHOWN = np.array([[0.7, 0.15, 0.1, 0.05], [0.05, 0.8, 0.1, 0.05], [0.05, 0.05, 0.1, 0.8]])


class Found(NamedTuple):
    """Estimates, ends of their 95 % intervals, and the truth."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray


class People:
    """Persons with 1 to 9 rows each, and numbers that are correlated within a person."""

    def __init__(self, seed: int, sd: float) -> None:
        self.rng, self.sd = np.random.default_rng([seed, int(sd)]), sd
        self.person_n = np.repeat(np.arange(PERSONS), self.rng.integers(1, MOST + 1, PERSONS))

    def normal(self, *shape: int) -> np.ndarray:
        """Standard normal numbers of each row."""
        shared = self.rng.standard_normal((PERSONS, *shape))[self.person_n]
        own = self.rng.standard_normal((len(self.person_n), *shape))
        return (self.sd * shared + own) / math.sqrt(1 + self.sd**2)

    def chain(self, law_kk: np.ndarray) -> np.ndarray:
        """States of a chain that begins with any state, (n, LONGEST)."""
        u_nt, k = ndtr(self.normal(LONGEST)), len(law_kk)
        state_nt = np.empty(u_nt.shape, np.int64)
        state_nt[:, 0] = np.minimum(u_nt[:, 0] * k, k - 1)
        upto_kk = np.cumsum(law_kk, axis=1)
        for t in range(1, LONGEST):
            state_nt[:, t] = np.minimum((u_nt[:, t, None] >= upto_kk[state_nt[:, t - 1]]).sum(axis=1), k - 1)
        return state_nt

    def shown(self, state_nt: np.ndarray, law_kv: np.ndarray) -> np.ndarray:
        """What states show."""
        u_nt = ndtr(self.normal(state_nt.shape[1]))
        return np.minimum((u_nt[..., None] >= np.cumsum(law_kv, axis=1)[state_nt]).sum(axis=-1), law_kv.shape[1] - 1)


def of_normal(mean: Any, std: Any, truth: Any) -> Found:
    """Intervals of a mean and a standard deviation."""
    mean, std, truth = (np.ravel(np.asarray(one, dtype=np.float64)) for one in (mean, std, truth))
    return Found(mean, mean - 1.96 * std, mean + 1.96 * std, truth)


def of_lines(lines: list[Any], truth: list[float]) -> Found:
    """Intervals of lines of a table."""
    parts = (np.array([getattr(line, what) for line in lines]) for what in ("mean", "low", "high"))
    return Found(*parts, np.array(truth))


def linear(people: People) -> Found:
    """Slopes of two columns of the person, and of two of the row."""
    number = len(people.person_n)
    own, row = people.rng.standard_normal((PERSONS, 2))[people.person_n], people.rng.standard_normal((number, 2))
    x_nd, slope_d = np.clip(0.3 * np.hstack([own, row]), -1, 1), np.array([0.5, -0.3, 0.4, -0.2])
    y_n = x_nd @ slope_d + 0.2 * people.normal()
    model = dpvb.LinearRegression(low=-1, high=1, y_range=(-2, 2), **GIVEN)
    model.fit(x_nd, y_n, group=people.person_n)
    return of_normal(model.coef_, model.coef_std_, slope_d)


def mixed(people: People, distance: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows of two classes: a number with these means, and a flag."""
    one_n = (ndtr(people.normal()) < 0.4).astype(int)
    x_n = np.where(one_n, distance, -distance) + 0.6 * people.normal()
    flag_n = (ndtr(people.normal()) < np.where(one_n, 0.7, 0.3)).astype(int)
    return {"x": x_n, "flag": flag_n, "who": people.person_n}, one_n


def of_classes(model: Any, distance: float, places: dict[Any, int]) -> Found:
    """Shares, means and probabilities of the flag of two classes."""
    lines, truth = [], []
    known = {"share": (0.6, 0.4), "x": (-distance, distance), "flag=1": (0.3, 0.7)}
    for line in model.component_table():
        if line.name in known and line.part in places:
            lines.append(line)
            truth.append(known[line.name][places[line.part]])
    return of_lines(lines, truth)


def naive_bayes(people: People) -> Found:
    """Shares of two classes, their means and probabilities."""
    data, one_n = mixed(people, 0.5)
    schema = Schema((Numeric("x", -4, 4), Binary("flag")), target=Target("y"), group="who")
    model = dpvb.NaiveBayes(**GIVEN).fit(dpvb.Table(data | {"y": one_n}, schema))
    return of_classes(model, 0.5, {"0": 0, "1": 1})


def mixture(people: People) -> Found:
    """The same of two groups that are not known, but far apart."""
    data, _ = mixed(people, 1.5)
    schema = Schema((Numeric("x", -4, 4), Binary("flag")), group="who")
    model = dpvb.Mixture(2, random_state=0, **GIVEN).fit(dpvb.Table(data, schema))
    mean_of = {line.part: line.mean for line in model.component_table() if line.name == "x"}
    parts = sorted(mean_of, key=mean_of.__getitem__)
    return of_classes(model, 1.5, {parts[0]: 0, parts[-1]: 1})


def chain(people: People, **more: Any) -> Found:
    """Transitions of a chain of three symbols."""
    model = dpvb.MarkovChain(3, max_length=LONGEST, **more, **GIVEN).fit(people.chain(STEP), group=people.person_n)
    return of_lines([*model.transition_intervals()], [*STEP.ravel()])


def pooled_chain(people: People) -> Found:
    """The same with a bound that clips nobody."""
    return chain(people, power=1.0, clip_norm=float(MOST * (LONGEST - 1)))


def hidden_markov(people: People) -> Found:
    """Transitions of three hidden states."""
    code_nt = people.shown(people.chain(STEP), SHOWN)
    model = dpvb.HiddenMarkovModel(3, symbols=4, max_length=LONGEST, random_state=0, **GIVEN)
    model.fit(code_nt, group=people.person_n)
    order = [int(np.abs(model.emission_probabilities_ - shown).sum(axis=1).argmin()) for shown in SHOWN]
    table = model.transition_intervals()
    return of_lines([table.of(str(i))[str(j)] for i in order for j in order], [*STEP.ravel()])


def linear_dynamical(people: People) -> Found:
    """Noise of two columns, and how much of a state is left after a step."""
    push_nt, noise_ntd = people.normal(LONGEST), people.normal(LONGEST, 2)
    state_nt = push_nt.copy()
    for t in range(1, LONGEST):
        state_nt[:, t] = 0.9 * state_nt[:, t - 1] + math.sqrt(1 - 0.81) * push_nt[:, t]
    x_ntd = np.clip(state_nt[..., None] * [0.3, -0.2] + 0.12 * noise_ntd, -1, 1)
    model = dpvb.LinearDynamicalSystem(1, columns=2, low=-1, high=1, max_length=LONGEST, random_state=0, **GIVEN)
    table = model.fit(x_ntd, group=people.person_n).intervals()
    lines = [line for line in table if line.name in ("noise std", "each step times")]
    return of_lines(lines, [0.12 if line.name == "noise std" else 0.9 for line in lines])


def factors(people: People) -> Found:
    """Variances and covariances of five columns with one factor."""
    loading_d, noise_d = np.array([0.8, 0.7, 0.6, -0.5, 0.4]), np.array([0.4, 0.5, 0.6, 0.7, 0.8])
    x_nd = people.normal(1) * loading_d + np.sqrt(noise_d) * people.normal(5)
    model = dpvb.FactorAnalysis(1, low=-4, high=4, **GIVEN).fit(x_nd, group=people.person_n)
    places = np.triu_indices(5)
    low, high = (end[places] for end in model.covariance_interval())
    true_dd = np.outer(loading_d, loading_d) + np.diag(noise_d)
    return Found((low + high) / 2, low, high, true_dd[places])


def dpvi(people: People) -> Found:
    """The means of two normal columns, by a log-density."""
    truth = np.array([0.5, -0.3])

    def log_density(theta: Any, x: Any) -> Any:
        return -0.5 * ((x - theta) ** 2).sum()

    model = dpvb.DPVI(log_density, parameters=2, random_state=0, **GIVEN)
    model.fit(truth + people.normal(2), group=people.person_n)
    return of_normal(model.loc_, model.scale_, truth)


KINDS: dict[str, Callable[[People], Found]] = {
    "linear": linear,
    "naive_bayes": naive_bayes,
    "mixture": mixture,
    "chain": chain,
    "pooled_chain": pooled_chain,
    "hidden_markov": hidden_markov,
    "linear_dynamical": linear_dynamical,
    "factors": factors,
    "dpvi": dpvi,
}


def main() -> None:
    warnings.filterwarnings("ignore")
    began = time.perf_counter()
    print("## Every kind of model of persons with several rows\n")
    print(
        f"{PERSONS:,} persons with 1 to {MOST} rows, or sequences of {LONGEST}, ε = {GIVEN['epsilon']:g}, "
        f"δ = {GIVEN['delta']:g}, {TABLES} tables a cell; nominal 95 %. Rows have the distribution of the model at "
        "every sd; their correlation within a person is sd²/(1 + sd²). Bias: root mean square over the numbers of the "
        "mean error of all tables, over the mean half length of an interval; chance alone gives about 0.16. "
        "pooled_chain: power=1, and a clip_norm that clips nobody. Topics and belief networks print no intervals.\n"
    )
    heads = [f"{what}, sd {sd:g}" for what in ("bias", "coverage") for sd in SDS]
    print(f"| kind | {' | '.join(heads)} |\n|{'---|' * (1 + len(heads))}")
    for kind in sys.argv[1:] or KINDS:
        biases, shares = [], []
        for sd in SDS:
            found = [KINDS[kind](People(FIRST_SEED + table, sd)) for table in range(TABLES)]
            mean, low, high, truth = (np.array([getattr(one, what) for one in found]) for what in Found._fields)
            half = np.maximum((high - low).mean(axis=0) / 2, 1e-12)
            biases.append(math.sqrt(float(np.mean(((mean - truth).mean(axis=0) / half) ** 2))))
            shares.append(float(np.mean((low <= truth) & (truth <= high))))
        cells = [*(f"{one:.2f}" for one in biases), *(f"{one:.3f}" for one in shares)]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    print(f"\n{len(KINDS) * len(SDS) * TABLES} fits in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
