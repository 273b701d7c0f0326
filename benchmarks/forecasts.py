"""What is forecast from public facts, against fits: every kind, three sizes, three ε; simulated tables, and real ones.

The constants of the forecasts were chosen on the tables "simulated" alone. The real tables need DPVB_DATA, the folder
that holds adult/, counts/, sequences/, newsgroups20/ and mnist/; without it they are left out.

    python -m benchmarks.forecasts [kind ...]
"""

import csv
import gzip
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import dpvb
from benchmarks.factors import captured
from dpvb.data import Categorical, Numeric, Schema, Target
from dpvb.models.factors import denoising
from dpvb.results.expected_accuracy import ExpectedAccuracy

DATA = Path(os.environ.get("DPVB_DATA", Path(__file__).parents[1] / "data"))
# Made up here: constants were chosen on the first of them.
TUNED = ("simulated", "simulated, wide")
DELTA, EPSILONS, CLOSE, SHARE = 1e-6, (0.3, 1.0, 3.0), 1.5, 0.8

ABOUT = """## Forecasts from public facts, against fits

In each cell: what was forecast / what fits found (the median of three, or one), at δ = {delta:g}. A cell is close
within a factor {close:g}; numbers of topics and groups are rounded. What is forecast of regressions is the standard
deviation of a number's coefficient per standard deviation of it, 1 where it is the prior's; of factor models the least
share of the variance that is seen; of mixtures groups; of naive Bayes and chains the standard deviation of a
probability; topics above the noise; of belief networks the noise in a weight; of DPVI a parameter's standard deviation;
of a model of one's own the noise of a mean."""


@dataclass(frozen=True)
class Subject:
    """A kind of model and a table.

    Attributes:
        kind, table: in words.
        make: an estimator of a budget.
        rows: what `fit` takes, of so many rows.
        columns: what `dpvb.plan` takes of the columns.
        found: what a fit says of the first value of its forecast.
        sizes: numbers of rows.
        counted: whether the forecast is a number of things, which is rounded.
        fits: how many fits' median it is compared with.
    """

    kind: str
    table: str
    make: Callable[..., Any]
    rows: Callable[[int], dict[str, Any]]
    columns: dict[str, Any]
    found: Callable[..., float]
    sizes: tuple[int, ...]
    counted: bool = False
    fits: int = 3

    def forecast(self, model: Any, n: int) -> float:
        """The number that is forecast of a fit to n rows."""
        return known(model, n, **self.columns).number


def known(model: Any, n: int, **columns: Any) -> ExpectedAccuracy:
    """The forecast alone, without other budgets."""
    return dpvb.plan(model, n, **columns, epsilons=()).expected_accuracy


def middle(values: Any) -> float:
    return float(np.exp(np.mean(np.log(np.asarray(values, dtype=float)))))


# --- what fits say ----------------------------------------------------------------------------------------------------


def coefficients(spread: dict[str, float]) -> Callable[..., float]:
    """The geometric mean over numbers of the standard deviations of coefficients, per standard deviation of each."""

    def found(model: Any, rows: Any) -> float:
        unit = getattr(model, "sigma_", 1.0)
        by_name = {row.name: row.std for row in model.coefficients()}
        # A prior's standard deviation, 1, is all that it can be.
        return middle([min(by_name[name] * size / unit, 1.0) for name, size in spread.items()])

    return found


def least_share(model: Any, rows: Any) -> float:
    released = model._moments
    d = len(released.mean_d)
    edge = denoising.noise_edge(released.noise, d) / float(np.trace(released.second_dd))
    return min(math.hypot(edge, 2 * math.sqrt(d / released.count) / d), 1.0)


def of_probabilities(model: Any, rows: Any) -> float:
    lines = [line for line in model.component_table() if line.name != "share"]
    return middle([max((line.high - line.low) / 3.92, 1e-4) for line in lines])


def transitions(model: Any, rows: Any) -> float:
    lines = model.transition_intervals()
    return middle([max(line.std, 1e-5) for line in lines])


def noise_of_weights(model: Any, rows: Any) -> float:
    again = type(model)(**model.get_params(deep=False)).fit(**rows)
    return float(np.sqrt(np.mean((again.components_ - model.components_) ** 2) / 2))


# --- simulated tables -------------------------------------------------------------------------------------------------


def simulated(kind: str, d: int, levels: int, n: int, **options: Any) -> tuple[dict, Schema, dict[str, float]]:
    """Numbers with a tenth of their range as their spread, and a column of categories."""
    rng = np.random.default_rng([d, n])
    usual_v = 1 / np.arange(1, levels + 1)  # As categories of people are: one is frequent.
    x_nd, code_n = rng.standard_normal((n, d)), rng.choice(levels, size=n, p=usual_v / usual_v.sum())
    psi_n = x_nd @ np.linspace(-0.5, 0.5, d) + 0.3 * (code_n % 3) - 0.5
    columns = {f"x{j}": 50 + 10 * x_nd[:, j] for j in range(d)}
    columns["c"] = np.array([f"c{k}" for k in range(levels)], dtype=object)[code_n]
    target = None
    if kind == "logistic":
        target, columns["y"] = (
            Target("y", "logistic", classes=(0, 1)),
            (rng.random(n) < 1 / (1 + np.exp(-psi_n))).astype(int),
        )
    elif kind == "binomial":
        columns["t"] = rng.integers(1, 9, size=n)
        columns["y"] = rng.binomial(columns["t"], 1 / (1 + np.exp(-psi_n)))
        target = Target("y", "binomial", trials="t", max_trials=8)
    elif kind == "poisson":
        target, columns["y"] = Target("y", "poisson", max_count=20), rng.poisson(np.exp(0.5 * psi_n + 1))
    elif kind == "negative_binomial":
        mean_n = np.exp(0.5 * psi_n + 1)
        target, columns["y"] = Target("y", "negative_binomial", max_count=20), rng.poisson(rng.gamma(1, mean_n))
    elif kind == "numeric":
        target, columns["y"] = Target("y", "numeric", low=-6, high=6), psi_n + rng.standard_normal(n)
    schema = Schema(
        [*(Numeric(f"x{j}", 0, 100) for j in range(d)), Categorical("c", [f"c{k}" for k in range(levels)])],
        target=target,
    )
    return columns, schema, {f"x{j}": 10.0 for j in range(d)}


def of_table(kind: str, table: str, make: Any, read: Any, found: Any, sizes: tuple[int, ...], **more: Any) -> Subject:
    _, schema, spread = read(10)
    measure = found(spread) if found is coefficients else found
    return Subject(
        kind, table, make, lambda n: {"X": dpvb.Table(read(n)[0], schema)}, {"schema": schema}, measure, sizes, **more
    )


def factor_rows(n: int, d: int, k: int) -> dict[str, Any]:
    rng, loading_kd = np.random.default_rng([n, d]), np.random.default_rng(d).standard_normal((k, d))
    return {"X": rng.standard_normal((n, k)) @ loading_kd + rng.standard_normal((n, d))}


def grouped(n: int, d: int, k: int) -> tuple[dict, Schema, dict]:
    rng = np.random.default_rng([n, d])
    group_n = rng.integers(k, size=n)
    x_nd = 10 * np.random.default_rng(d).uniform(-1, 1, (k, d))[group_n] + 1.5 * rng.standard_normal((n, d))
    names = [f"x{j}" for j in range(d)]
    return dict(zip(names, x_nd.T, strict=True)), Schema([Numeric(name, -20, 20) for name in names]), {}


def classes(n: int, d: int, k: int, levels: int) -> tuple[dict, Schema, dict]:
    rng = np.random.default_rng([n, d])
    y_n = rng.integers(k, size=n)
    law_kv = np.random.default_rng(d).dirichlet(np.full(levels, 2.0), (d, k))
    columns: dict[str, Any] = {}
    for j in range(d):
        place_n = (rng.random(n)[:, None] > np.cumsum(law_kv[j][y_n], axis=1)).sum(axis=1)
        columns[f"c{j}"] = np.array([f"v{v}" for v in range(levels)], dtype=object)[np.minimum(place_n, levels - 1)]
    columns["y"] = np.array([f"y{c}" for c in range(k)], dtype=object)[y_n]
    names = [Categorical(f"c{j}", [f"v{v}" for v in range(levels)]) for j in range(d)]
    return columns, Schema([*names, Categorical("y", [f"y{c}" for c in range(k)])]), {}


def chain(n: int, v: int, longest: int) -> dict[str, Any]:
    rng = np.random.default_rng([n, v])
    usual_v = 1 / np.arange(1, v + 1)  # As symbols of people are: a few are frequent.
    law_vv = np.cumsum(np.random.default_rng(v).dirichlet(v * usual_v / usual_v.sum(), v), axis=1)
    found = [rng.integers(v, size=n)]
    for _ in range(longest - 1):
        found.append(np.minimum((rng.random(n)[:, None] > law_vv[found[-1]]).sum(axis=1), v - 1))
    length_n, whole_nt = rng.geometric(4 / longest, size=n).clip(1, longest), np.stack(found, axis=1)
    return {"X": [row[:length] for row, length in zip(whole_nt, length_n, strict=True)]}


def hidden(n: int, v: int, k: int, longest: int) -> dict[str, Any]:
    rng = np.random.default_rng([n, v])
    state_n, shown = rng.integers(k, size=n), []
    for _ in range(longest):
        home_n = state_n * (v // k) + rng.integers(v // k, size=n)
        shown.append(np.where(rng.random(n) < 0.85, home_n, rng.integers(v, size=n)))
        state_n = np.where(rng.random(n) < 0.7, state_n, rng.integers(k, size=n))
    length_n, whole_nt = 1 + rng.poisson(0.4 * longest, size=n).clip(2, longest - 1), np.stack(shown, axis=1)
    return {"X": [row[:length] for row, length in zip(whole_nt, length_n, strict=True)]}


def documents(n: int, topics: int, terms: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng([n, topics])
    public = np.random.default_rng(topics)
    background, own = public.dirichlet(np.full(terms, 0.5)), public.dirichlet(np.full(terms, 0.07), topics)
    share_nk = rng.dirichlet(np.full(topics, 0.1), n)
    return {
        "X": sparse.csr_array(np.array([rng.multinomial(length, 0.5 * background + 0.5 * s @ own) for s in share_nk]))
    }


def images(n: int, side: int) -> dict[str, Any]:
    rng = np.random.default_rng([n, side])
    bars_nk = rng.random((n, 2 * side)) < 0.2
    lit_nss = bars_nk[:, :side, None] | bars_nk[:, None, side:]
    return {"X": (lit_nss ^ (rng.random(lit_nss.shape) < 0.05)).reshape(n, -1).astype(float)}


def density(theta: Any, x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    psi = theta[0] + jnp.dot(theta[1:], x)
    return y * psi - jnp.logaddexp(0.0, psi)


def labelled(n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng([n, d])
    x_nd = rng.standard_normal((n, d)) / math.sqrt(d) * 1.5
    return {"X": x_nd, "y": (rng.random(n) < 1 / (1 + np.exp(-x_nd @ np.linspace(-1, 1, d)))).astype(float)}


@dataclass(frozen=True)
class Mean(dpvb.Model):
    """Of rows."""

    d: int

    @property
    def blocks(self) -> Any:
        return {"sum": dpvb.Block((self.d,), 1.0, phase="first")}

    @property
    def schedule(self) -> Any:
        return dpvb.Schedule(())

    def init(self, rng: Any) -> np.ndarray:
        return np.zeros(self.d)

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"sum": dpvb.Rows(batch)}

    def started(self, s: Any, q: Any) -> np.ndarray:
        return np.asarray(s.noisy("sum"))


def of_mean(model: Any, rows: Any) -> float:
    again = [model, *(type(model)(**model.get_params(deep=False)).fit(**rows) for _ in range(15))]
    error_nd = np.stack([one.q_ for one in again]) - rows["X"].sum(axis=0)
    return float(np.sqrt((error_nd**2).sum(axis=1).mean())) / len(rows["X"])


def unit_rows(n: int, d: int) -> dict[str, Any]:
    x_nd = np.random.default_rng([n, d]).standard_normal((n, d))
    return {"X": x_nd / np.linalg.norm(x_nd, axis=1, keepdims=True)}


# --- real tables ------------------------------------------------------------------------------------------------------


@cache
def _adult() -> dict[str, np.ndarray]:
    names = (
        "age workclass fnlwgt education number marital occupation relationship race sex gain loss hours country income"
    )
    with open(DATA / "adult" / "adult.data", encoding="ascii") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if len(row) == 15]
    order = np.random.default_rng(0).permutation(len(rows))
    cells = np.array(rows, dtype=object)[order]
    return dict(zip(names.split(), cells.T, strict=True))


def adult(target: str | None, n: int) -> tuple[dict, Schema, dict[str, float]]:
    raw, columns = _adult(), {}
    for name in ("age", "number", "hours"):
        columns[name] = raw[name].astype(float)[:n]
    for name in ("workclass", "marital", "race", "sex"):
        columns[name] = raw[name][:n]
    ranges = {"age": (17, 90), "number": (1, 16), "hours": (1, 99)}
    levels = {name: sorted({str(value) for value in raw[name]}) for name in ("workclass", "marital", "race", "sex")}
    specs: list[Any] = [Numeric(name, *ends) for name, ends in ranges.items() if name != target]
    specs += [Categorical(name, own) for name, own in levels.items()] if target != "numbers" else []
    found = None
    if target in ("income", "class"):
        columns["income"] = raw["income"][:n]
        found = Target("income", "logistic", classes=("<=50K", ">50K")) if target == "income" else None
        specs += [Categorical("income", ["<=50K", ">50K"])] if target == "class" else []
    if target == "hours":
        found = Target("hours", "numeric", low=1, high=99)
    schema = Schema(specs, target=found)
    spread = {name: float(raw[name].astype(float).std()) for name in ranges if name != target}
    return {name: columns[name] for name in schema.read_columns}, schema, spread


@cache
def _visits() -> dict[str, np.ndarray]:
    with open(DATA / "counts" / "NMES1988.csv", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(0).permutation(len(rows))
    return {name: np.array([rows[i][name] for i in order], dtype=object) for name in rows[0]}


def visits(kind: str, n: int) -> tuple[dict, Schema, dict[str, float]]:
    raw, ranges = _visits(), {"chronic": (0, 8), "age": (6.6, 10.9), "school": (0, 18)}
    columns = {name: raw[name].astype(float)[:n] for name in ranges} | {
        "health": raw["health"][:n],
        "insurance": raw["insurance"][:n],
    }
    columns["visits"] = raw["visits"].astype(float)[:n]
    levels = [Categorical(name, sorted(set(raw[name]))) for name in ("health", "insurance")]
    schema = Schema(
        [*(Numeric(name, *ends) for name, ends in ranges.items()), *levels], target=Target("visits", kind, max_count=40)
    )
    return columns, schema, {name: float(raw[name].astype(float).std()) for name in ranges}


@cache
def _pages() -> list[np.ndarray]:
    found = np.load(DATA / "sequences" / "msnbc" / "pages.npz")
    ends = np.cumsum(found["lengths"].astype(np.int64))
    users = np.split(found["symbols"], ends[:-1])
    return [users[i] for i in np.random.default_rng(0).permutation(len(users))[:40_000]]


@cache
def _news() -> sparse.csr_array:
    counts = sparse.load_npz(DATA / "newsgroups20" / "bow.npz").tocsr()
    order = np.random.default_rng(0).permutation(counts.shape[0])
    often = np.argsort(-np.asarray(counts.sum(axis=0)).ravel())[100:2100]
    return sparse.csr_array(counts[order][:, often])


@cache
def _digits() -> np.ndarray:
    with gzip.open(DATA / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 28, 28)
    return (pixels[:, ::2, ::2] > 127).reshape(len(pixels), -1).astype(float)


def subjects() -> Iterator[Subject]:
    """All of them, the real ones where there are data."""
    three, small, few = (2_000, 8_000, 32_000), (1_000, 4_000, 16_000), (500, 2_000, 8_000)
    regressions: dict[str, tuple[str, Callable[..., Any]]] = {
        "logistic": ("logistic", dpvb.LogisticRegression),
        "binomial": ("binomial", lambda **options: dpvb.BinomialRegression(max_trials=8, **options)),
        "Poisson": ("poisson", lambda **options: dpvb.PoissonRegression(max_count=20, **options)),
        "negative binomial": (
            "negative_binomial",
            lambda **options: dpvb.NegativeBinomialRegression(max_count=20, **options),
        ),
        "linear": ("numeric", dpvb.LinearRegression),
    }
    for kind, (response, make) in regressions.items():
        for table, d, levels in (("simulated", 3, 4), ("simulated, wide", 10, 6)):
            yield of_table(
                kind, table, make, lambda n, r=response, d=d, v=levels: simulated(r, d, v, n), coefficients, three
            )
    for kind, make in (("FactorAnalysis", dpvb.FactorAnalysis), ("PCA", dpvb.PCA)):
        for table, d, k in (("simulated", 10, 2), ("simulated, wide", 40, 3)):
            own = {"low": -8.0, "high": 8.0}
            yield Subject(
                kind,
                table,
                lambda m=make, own=own, **o: m(**own, **o),
                lambda n, d=d, k=k: factor_rows(n, d, k),
                {"width": d},
                least_share,
                small,
            )
    for table, d, k in (("simulated", 2, 4), ("simulated, wide", 5, 8)):
        yield of_table(
            "mixture",
            table,
            lambda **o: dpvb.Mixture(20, **o),
            lambda n, d=d, k=k: grouped(n, d, k),
            lambda m, rows: float(len(m.weights_)),
            few,
            counted=True,
            fits=1,
        )
    for table, d, k, v in (("simulated", 4, 3, 5), ("simulated, wide", 12, 2, 10)):
        yield of_table(
            "naive Bayes",
            table,
            lambda **o: dpvb.NaiveBayes(response="y", **o),
            lambda n, d=d, k=k, v=v: classes(n, d, k, v),
            of_probabilities,
            small,
        )
    for table, v, longest in (("simulated", 6, 20), ("simulated, wide", 15, 12)):
        yield Subject(
            "Markov chain",
            table,
            lambda v=v, t=longest, **o: dpvb.MarkovChain(symbols=v, max_length=t, **o),
            lambda n, v=v, t=longest: chain(n, v, t),
            {},
            transitions,
            small,
        )
    for table, v, k in (("simulated", 6, 2), ("simulated, wide", 12, 3)):
        yield Subject(
            "hidden Markov",
            table,
            lambda v=v, k=k, **o: dpvb.HiddenMarkovModel(
                symbols=v, n_states=k, clip_norm=None, max_length=10, random_state=0, **o
            ),
            lambda n, v=v, k=k: hidden(n, v, k, 10),
            {},
            transitions,
            small,
        )
    for table, k, v in (("simulated", 5, 300), ("simulated, wide", 10, 600)):
        yield Subject(
            "LDA",
            table,
            lambda k=k, **o: dpvb.LDA(k, public_vocabulary=True, random_state=0, **o),
            lambda n, k=k, v=v: documents(n, k, v, 60),
            {"width": v},
            lambda m, rows: float(m.topics_above_noise_),
            small,
            counted=True,
            fits=1,
        )
    for table, side, k in (("simulated", 5, 10), ("simulated, wide", 8, 16)):
        yield Subject(
            "belief network",
            table,
            lambda k=k, **o: dpvb.SigmoidBeliefNetwork(k, random_state=0, **o),
            lambda n, s=side: images(n, s),
            {"width": side**2},
            noise_of_weights,
            small,
        )
    for table, d in (("simulated", 4), ("simulated, wide", 12)):
        yield Subject(
            "DPVI",
            table,
            lambda d=d, **o: dpvb.DPVI(density, parameters=d + 1, random_state=0, **o),
            lambda n, d=d: labelled(n, d),
            {"width": d, "responses": 0},
            lambda m, rows: middle(m.scale_),
            small,
        )
    for table, d in (("simulated", 3), ("simulated, wide", 30)):
        yield Subject(
            "PrivateModel",
            table,
            lambda d=d, **o: dpvb.PrivateModel(Mean(d), max_row_norm=1.0, **o),
            lambda n, d=d: unit_rows(n, d),
            {"width": d},
            of_mean,
            small,
        )
    if (DATA / "adult").is_dir():
        yield of_table("logistic", "adult", dpvb.LogisticRegression, lambda n: adult("income", n), coefficients, three)
        yield of_table("linear", "adult", dpvb.LinearRegression, lambda n: adult("hours", n), coefficients, three)
        yield of_table(
            "naive Bayes",
            "adult",
            lambda **o: dpvb.NaiveBayes(response="income", bins=16, **o),
            lambda n: adult("class", n),
            of_probabilities,
            three,
        )
        yield of_table(
            "mixture",
            "adult",
            lambda **o: dpvb.Mixture(20, **o),
            lambda n: adult("numbers", n),
            lambda m, rows: float(len(m.weights_)),
            few,
            counted=True,
            fits=1,
        )
        for kind, make in (("FactorAnalysis", dpvb.FactorAnalysis), ("PCA", dpvb.PCA)):
            yield of_table(kind, "adult", make, lambda n: adult(None, n), least_share, three)
    if (DATA / "counts").is_dir():
        for kind, response, make in (
            ("Poisson", "poisson", dpvb.PoissonRegression),
            ("negative binomial", "negative_binomial", dpvb.NegativeBinomialRegression),
        ):
            yield of_table(
                kind,
                "NMES1988",
                lambda m=make, **o: m(max_count=40, **o),
                lambda n, r=response: visits(r, n),
                coefficients,
                (1_000, 2_000, 4_400),
            )
    if (DATA / "sequences").is_dir():
        yield Subject(
            "Markov chain",
            "msnbc",
            lambda **o: dpvb.MarkovChain(symbols=17, **o),
            lambda n: {"X": _pages()[:n]},
            {},
            transitions,
            (2_500, 10_000, 40_000),
        )
        yield Subject(
            "hidden Markov",
            "msnbc",
            lambda **o: dpvb.HiddenMarkovModel(symbols=17, n_states=3, random_state=0, **o),
            lambda n: {"X": _pages()[:n]},
            {},
            transitions,
            (2_500, 10_000, 40_000),
        )
    if (DATA / "newsgroups20").is_dir():
        yield Subject(
            "LDA",
            "newsgroups20",
            lambda **o: dpvb.LDA(8, public_vocabulary=True, random_state=0, **o),
            lambda n: {"X": _news()[:n]},
            {"width": 2_000},
            lambda m, rows: float(m.topics_above_noise_),
            (1_500, 4_000, 10_000),
            counted=True,
            fits=1,
        )
    if (DATA / "mnist").is_dir():
        yield Subject(
            "belief network",
            "mnist",
            lambda **o: dpvb.SigmoidBeliefNetwork(20, random_state=0, **o),
            lambda n: {"X": _digits()[:n]},
            {"width": 196},
            noise_of_weights,
            (2_500, 10_000, 40_000),
            fits=1,
        )


CAPTURED = """### Variance captured

PCA: the variance of other rows along its components, over that along those of a fit to the same rows without privacy;
what was forecast / found, the mean of three fits. The forecast knows no spectrum: half of the variance is supposed to
be in the components, in equal parts. The last columns say how much is, and what part the least of them holds."""


def kept(rows_of: Callable[[int], np.ndarray], k: int, low: float, high: float, n: int) -> tuple[list[str], np.ndarray]:
    """Cells of a line, and the spectrum as shares, (d,)."""
    both = rows_of(2 * n)
    train, test = both[:n], both[n:]
    cells = []
    for epsilon in EPSILONS:
        how: dict[str, Any] = {"low": low, "high": high, "epsilon": epsilon, "delta": DELTA}
        [(_, forecast)] = known(dpvb.PCA(k, **how), n, width=train.shape[1]).details
        found = []
        for _ in range(3):
            basis_kd = dpvb.PCA(k, **how).fit(train).components_
            found.append(captured(np.linalg.qr(basis_kd.T)[0], train, test, k) if len(basis_kd) else 0.0)
        cells.append(f"{forecast:.3f} / {np.mean(found):.3f}")
    value_d = np.linalg.eigvalsh(np.cov(train.T))[::-1]
    return cells, value_d / value_d.sum()


def captured_variance() -> None:
    """The table of captured variance."""
    tables: list[tuple[str, int, float, float, Callable[[int], np.ndarray], tuple[int, ...]]] = [
        ("simulated", 2, -8.0, 8.0, lambda n: factor_rows(n, 10, 2)["X"], (1_000, 4_000, 16_000)),
        ("simulated, wide", 3, -8.0, 8.0, lambda n: factor_rows(n, 40, 3)["X"], (1_000, 4_000, 16_000)),
    ]
    if (DATA / "mnist").is_dir():
        tables.append(("mnist", 10, 0.0, 1.0, lambda n: _digits()[:n], (2_500, 10_000, 30_000)))
    print(f"\n{CAPTURED}\n")
    print("| table | components | rows | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " | held | least |")
    print("|---|---|---|" + "---|" * (len(EPSILONS) + 2))
    for name, k, low, high, rows_of, sizes in tables:
        for n in sizes:
            cells, share_d = kept(rows_of, k, low, high, n)
            print(
                f"| {name} | {k} | {n:,} | {' | '.join(cells)} | {share_d[:k].sum():.2f} | {share_d[k - 1]:.3f} |",
                flush=True,
            )


HIDDEN = """### Where noise is said to hide no result any more

Fits to as many simulated rows as a forecast calls just enough, from {least} to {most:,}: their score of other rows, in
nats per row, less that of a guess without data (uniform; of regressions all weights 0). In each cell: rows, and the
least gain of three fits."""
# Fewer rows, or more, are not fitted. A score's range begins at that of a guess, or at so many times that.
LEAST, MOST, BEGINS = 30, 40_000, {"LDA": 1.5, "naive Bayes": 4.0, "logistic": 4.0, "binomial": 4.0}


def gain(subject: Subject, epsilon: float, n: int) -> float:
    """The score of rows that were not fitted, less that of a guess without data, in nats per row."""
    model = subject.make(epsilon=epsilon, delta=DELTA).fit(**subject.rows(n))
    task = model._task(**subject.rows(n + 1))
    guess = model._quality_range(task.model)[0] / BEGINS.get(subject.kind, 1.0)
    return float(np.nanmean(np.concatenate([model._quality(chunk.rows) for chunk in task.source.chunks()]))) - guess


def gains_at_enough() -> None:
    """The table of gains where noise is said to hide nothing any more."""
    print(f"\n{HIDDEN.format(least=LEAST, most=MOST)}\n")
    print("| kind | table | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " |")
    print("|---|---|" + "---|" * len(EPSILONS), flush=True)
    gains: list[float] = []
    for subject in subjects():
        if subject.table not in TUNED or subject.kind in NOT_SCORED:
            continue
        cells = []
        for epsilon in EPSILONS:
            model = subject.make(epsilon=epsilon, delta=DELTA)
            needed = dpvb.plan(model, 1, **subject.columns, epsilons=()).needed_units
            n = max(math.ceil(min(needed, 2 * MOST)), LEAST)
            own = [gain(subject, epsilon, n) for _ in range(3)] if n <= MOST else []
            gains += own
            cells.append(f"{n:,}: {min(own):.2f}" if own else "-")
        print(f"| {subject.kind} | {subject.table} | {' | '.join(cells)} |", flush=True)
    print(f"\nWorse than the guess: {sum(one < 0 for one in gains)} of {len(gains)} fits.")


# Their rows have no scores, or scores whose range begins elsewhere.
NOT_SCORED = ("DPVI", "PrivateModel", "Poisson", "negative binomial", "linear", "PCA")


def measured(subject: Subject) -> Iterator[tuple[int, float, float, float, bool]]:
    """Size, ε, what was forecast, what was found, and whether these are close."""
    for n in subject.sizes:
        rows = subject.rows(n)
        for epsilon in EPSILONS:
            model = subject.make(epsilon=epsilon, delta=DELTA)
            forecast = subject.forecast(model, n)
            found = float(
                np.median(
                    [
                        subject.found(subject.make(epsilon=epsilon, delta=DELTA).fit(**rows), rows)
                        for _ in range(subject.fits)
                    ]
                )
            )
            if subject.counted:
                forecast, found = round(forecast), round(found)
            close = forecast == found or (min(forecast, found) > 0 and max(forecast / found, found / forecast) <= CLOSE)
            yield n, epsilon, forecast, found, close


def main() -> None:
    warnings.simplefilter("ignore")
    chosen, start = sys.argv[1:], time.process_time()
    print(f"{ABOUT.format(delta=DELTA, close=CLOSE)}\n")
    print("| kind | table | rows | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | close |")
    print("|---|---|---|" + "---|" * (len(EPSILONS) + 1), flush=True)
    hits: dict[bool, list[bool]] = {True: [], False: []}
    real: dict[tuple[str, str], tuple[float, float, list[bool]]] = {}
    for subject in subjects():
        if chosen and subject.kind not in chosen:
            continue
        cells = list(measured(subject))
        ratio = [found / forecast for _, _, forecast, found, _ in cells if min(forecast, found) > 0]
        if ratio and subject.table not in TUNED:
            real[subject.kind, subject.table] = min(ratio), max(ratio), [cell[-1] for cell in cells]
        hits[subject.table == "simulated"] += [cell[-1] for cell in cells]
        for n in subject.sizes:
            own = [cell for cell in cells if cell[0] == n]
            shown = [f"{forecast:.2g} / {found:.2g}" for _, _, forecast, found, _ in own]
            close = sum(cell[-1] for cell in own)
            print(
                f"| {subject.kind} | {subject.table} | {n:,} | {' | '.join(shown)} | {close} of {len(own)} |",
                flush=True,
            )
    for tuned, own in hits.items():
        if own:
            where = "Tables on which the constants were chosen" if tuned else "Other tables"
            print(f"\n{where}: {sum(own)} of {len(own)} cells within a factor {CLOSE:g} ({sum(own) / len(own):.0%}).")
    reached = bool(hits[False]) and sum(hits[False]) >= SHARE * len(hits[False])
    print(
        f"\nWithin a factor {CLOSE:g} in {SHARE:.0%} of cells, on other tables: {'reached' if reached else 'missed'}."
    )
    if real:
        all_real = [close for *_, own in real.values() for close in own]
        print(f"\nReal tables alone: {sum(all_real)} of {len(all_real)} cells. What fits found, over the forecast:\n")
        print("| kind | table | least | most | close |\n|---|---|---|---|---|")
        for (kind, table), (least, most, own) in real.items():
            print(f"| {kind} | {table} | {least:.2f} | {most:.2f} | {sum(own)} of {len(own)} |")
    if not chosen or "PCA" in chosen:
        captured_variance()
    if not chosen or "gains" in chosen:
        gains_at_enough()
    print(f"\n{time.process_time() - start:.0f} CPU-seconds.")


if __name__ == "__main__":
    main()
