"""What each tuned constant of a family of models buys: `python -m benchmarks ablate FAMILY`.

Each constant of the family's table `tuned` is halved, doubled and set to the value at which its mechanism does nothing;
each named branch is switched off. Every variant is fitted to the same designs with the same noise, and compared with
the default: the change of the log-likelihood of held-out rows, of the coverage of 95 % intervals, of the standard
deviation of z, and of the log width of intervals, each with its standard error over designs and seeds.

    python -m benchmarks.ablate regression [--short] [--rows N] [--seeds N] [--only NAME ...]
    python -m benchmarks.ablate regression --against COMMIT      before and after a change, default values only

A row of the first table is one variant; `cells` are pairs of a design and an ε. Sums are made in float64, and the noise
of a block is drawn by seed, step and name. Noise of a score is drawn in the coordinates of the columns and turned into
those of the score, so that a small change of the basis changes the noise as little. Constants that no design reaches,
and those that are read at import, are listed. Real tables need DPVB_DATA.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from scipy.stats import norm

import dpvb
from benchmarks.peers.protocol import LEAST, load, split
from dpvb.core.model import updated
from dpvb.core.plan import Plan, calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.likelihood import Likelihood, predictive
from dpvb.models.regression.linear import Linear
from dpvb.models.regression.scaling import Declared
from dpvb.rows import DesignRows, SparseDesignRows

ROOT = Path(__file__).parents[1]
EPSILONS, DELTA, NORMAL_95 = (0.3, 1.0, 4.0), 1e-5, 1.959964
#: A change of the held-out log-likelihood per row, in nats, and of coverage, that a row of the table reports as harm.
HARM, HARM_COVERAGE = 1e-3, 0.01


@dataclass(frozen=True)
class Case:
    """A design: a model with rows to fit and rows to predict.

    Attributes:
        model: with its defaults.
        rows: of the fit.
        test_x, test_y: held-out rows; probabilities in place of labels where the truth is known.
        test_offset: what is added to ψ of held-out rows.
        truth_d: weights that made the responses; None: unknown.
    """

    model: Any
    rows: Any
    test_x: np.ndarray
    test_y: np.ndarray
    test_offset: np.ndarray | float = 0.0
    truth_d: np.ndarray | None = None


@dataclass
class Noisy:
    """Stands in for the estimate: sums in float64 with normal noise, since the wall's grid is far below the noise."""

    phase: Any = "first"
    total: dict[str, np.ndarray] = field(default_factory=dict)
    std: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.total)

    def noisy(self, name: str) -> np.ndarray:
        return self.total[name].copy()

    def noise_std(self, name: str) -> float:
        return self.std[name]


def summed(form: Any, width: tuple[int, ...]) -> np.ndarray:
    """Σ over rows of what a form holds."""
    match type(form).__name__:
        case "Rows":
            return np.asarray(form.values).sum(axis=0)
        case "ScaledRows":
            return form.rows.x_nd.T @ form.scale_n
        case "SparseRows":
            return np.bincount(form.indices, form.values, width[0])
        case "Gram":
            return (form.x_nd.T * form.scale_n) @ form.x_nd
        case "Kron":
            return form.left.T @ form.right
    raise TypeError(type(form))


@cache
def standard_noise(seed: int, step: int, name: str, shape: tuple[int, ...], symmetric: bool) -> np.ndarray:
    """Normal noise of std 1 on the coordinates of a block; off the diagonal of a symmetric one √½."""
    rng = np.random.default_rng([seed, step, zlib.crc32(name.encode())])
    noise = rng.standard_normal(shape)
    if not symmetric:
        return noise
    upper = np.triu(noise, 1) * math.sqrt(0.5)
    return upper + upper.T + np.diag(np.diag(noise))


@cache
def total_precision(epsilon: float) -> float:
    """Σ 1/σ² of a plan of full batches at this ε: the cost of Gaussian releases depends on it alone."""
    model = FirstOrder(2, intercept=0.5)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget, unit="row")
    plan = calibrated(plan, epsilon=epsilon, delta=DELTA)
    return math.fsum(release.mechanism.noise_multiplier**-2 for release in plan)


def plan_of(model: Any, epsilon: float) -> Plan:
    """The plan of a model at ε."""
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget, unit="row")
    if math.isinf(epsilon):
        return plan.scaled(0.0)
    mine = math.fsum(release.mechanism.noise_multiplier**-2 for release in plan)
    return plan.scaled(math.sqrt(mine / total_precision(epsilon)))


def fitted(model: Any, rows: Any, epsilon: float, seed: int) -> Any:
    """The state after a fit."""
    q, s = model.init(np.random.default_rng(0)), Noisy()
    for step, release in enumerate(plan_of(model, epsilon)):
        forms = model.e_step(q, rows, release.asked)
        for name, block in release.asked.items():
            s.std[name], s.phase = release.noise_std(name), block.phase
            noise = standard_noise(seed, step, name, block.shape, block.symmetric)
            basis_de = getattr(getattr(q, "moments", None), "basis_de", None)
            if basis_de is not None and name in ("score", "curvature_at_mean"):
                noise = basis_de.T @ noise if noise.ndim == 1 else basis_de.T @ noise @ basis_de
            s.total[name] = summed(forms[name], block.shape) + s.std[name] * noise
        q = updated(model, s, q)  # type: ignore[type-var]
    return q


def variance_of(x: Any, covariance: np.ndarray) -> np.ndarray:
    """xᵀ C x of every row, from a matrix or a diagonal."""
    if covariance.ndim == 1:
        return np.asarray((x.multiply(x) if sparse.issparse(x) else x * x) @ covariance)
    return np.maximum(np.einsum("nd,nd->n", x @ covariance, x), 0.0)


def scores(case: Case, epsilon: float, seed: int) -> dict[str, Any]:
    """One fit: log-likelihood of a held-out row, z and log widths where the truth is known, processor seconds."""
    begun = time.process_time()
    q = fitted(case.model, case.rows, epsilon, seed)
    weights, table = case.model.weights(q), case.model.table(q)
    seconds = time.process_time() - begun
    mean_n, variance_n = case.test_x @ weights.mean_d + case.test_offset, variance_of(case.test_x, weights.covariance)
    if isinstance(case.model, Linear):
        scale_n = np.sqrt(case.model.scale(q)[0] + variance_n)
        fit_n = norm.logpdf(case.test_y, mean_n, scale_n)
    elif case.model.likelihood.is_count:
        likelihood = case.model.likelihood.at(q.dispersion.r)
        fit_n = likelihood.log_probability(mean_n, case.test_y, np.ones(len(mean_n)))
    else:
        p_n = np.clip(predictive(mean_n, variance_n), LEAST, 1 - LEAST)
        fit_n = case.test_y * np.log(p_n) + (1 - case.test_y) * np.log1p(-p_n)
    told: dict[str, Any] = {"fit": float(np.mean(fit_n)), "seconds": seconds}
    if case.truth_d is not None:
        variance_d = table.covariance if table.covariance.ndim == 1 else np.diag(table.covariance)
        z_d = (table.mean_d - case.truth_d) / np.sqrt(variance_d)
        if table.covariance.ndim == 1:
            z_d = z_d[1:]  # A diagonal is one of weights about centres: the intercept's is another.
        told["covered"] = float(np.mean(np.abs(z_d) < NORMAL_95))
        told["z"] = float(np.sqrt(np.mean(np.clip(z_d, -6, 6) ** 2)))
        told["width"] = float(np.mean(0.5 * np.log(variance_d)))
    return told


# --- designs ----------------------------------------------------------------------------------------------------------

#: Numbers come first among the columns of a real table; others are indicators of 0.7.
NUMBERS = {"adult": 5, "stroke": 3, "diab30": 0, "icd": 8}


def clipped(x: np.ndarray, constant: float) -> np.ndarray:
    """Rows with the constant in column 0 and the others within the norm that this leaves."""
    x[:, 0] = constant
    length_n = np.linalg.norm(x[:, 1:], axis=1)
    x[:, 1:] *= np.minimum(1.0, math.sqrt(1 - constant**2) / np.maximum(length_n, 1e-9))[:, None]
    return x


def declared_of(width: int, constant: float, numbers: int) -> Declared:
    """Numbers of the range [0, constant], then indicators."""
    number_d = np.arange(width - 1) < numbers
    high_d = np.where(number_d, min(constant, math.sqrt(1 - constant**2)), 0.0)
    unit_d = np.where(number_d, constant, 0.7 * constant)
    return Declared(np.zeros(width), np.append(0.0, high_d), np.append(1.0, unit_d))


@cache
def read_table(name: str) -> tuple[sparse.csr_matrix, np.ndarray, float]:
    x, y = load(name)
    return x, y.astype(np.float64), float(x[:, 0].max())


def parts(name: str, seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Training and held-out rows of a real table."""
    x, y, constant = read_table(name)
    train, test = split(len(y), seed % 5)
    train, test = train[:rows], test[: max(rows, 4_000)]
    return (*(clipped(x[part].toarray(), constant) for part in (train, test)), y[train], y[test], constant)


def dense(x: np.ndarray, y: np.ndarray, **more: Any) -> DesignRows:
    return DesignRows(x, y, np.ones(len(y)), **more)


def compressed(x: Any, y: np.ndarray) -> SparseDesignRows:
    x = sparse.csr_array(x)
    x.sort_indices()
    return SparseDesignRows(x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data, y, np.ones(len(y)))


def real(name: str) -> Callable[[int, int], Case]:
    """A real table and its labels."""

    def case(seed: int, rows: int) -> Case:
        x, test_x, y, test_y, constant = parts(name, seed, rows)
        declared = declared_of(x.shape[1], constant, NUMBERS[name])
        model = FirstOrder(x.shape[1], intercept=constant, declared=declared)
        return Case(model, dense(x, y), test_x, test_y)

    return case


def labelled(
    x: np.ndarray,
    rows: int,
    truth_d: np.ndarray,
    base: float,
    rng: np.random.Generator,
    *,
    intercept: float,
    declared: Declared | None,
) -> Case:
    """Rows x with labels from known weights, of which the constant's are chosen for a mean log odds of `base`."""
    truth_d = truth_d.copy()
    if intercept > 0:
        truth_d[0] += (base - float((x @ truth_d).mean())) / intercept
    p_n = expit(x @ truth_d)
    y_n = (rng.random(len(x)) < p_n).astype(np.float64)
    model = FirstOrder(x.shape[1], intercept=intercept, declared=declared)
    return Case(model, dense(x[:rows], y_n[:rows]), x[rows:], p_n[rows:], truth_d=truth_d)


def effects(x: np.ndarray, numbers: int, unit: float, rng: np.random.Generator) -> np.ndarray:
    """Weights: N(0, 0.5²) log odds a standard deviation of a number, N(0, 0.7²) an indicator; column 0 has none."""
    truth_d = np.zeros(x.shape[1])
    spread_d = np.maximum(x[:, 1 : numbers + 1].std(axis=0), 1e-9)
    truth_d[1 : numbers + 1] = 0.5 * rng.standard_normal(numbers) / spread_d
    truth_d[numbers + 1 :] = 0.7 * rng.standard_normal(x.shape[1] - 1 - numbers) / unit
    return truth_d


def simulated(name: str, base: float = -1.5, most: int = 10**9) -> Callable[[int, int], Case]:
    """The columns of a real table, rare levels among them, with labels from known weights."""

    def case(seed: int, rows: int) -> Case:
        rng = np.random.default_rng([1, seed, zlib.crc32(name.encode())])
        rows = min(rows, most)
        x, test_x, _, _, constant = parts(name, seed, rows)
        if name == "adult":
            share_d = (x != 0).mean(axis=0)
            chosen = (share_d > 0.03) & ((share_d < 0.97) | (np.arange(len(share_d)) <= NUMBERS[name]))
            x, test_x = x[:, chosen], test_x[:, chosen]
        whole = np.vstack([x, test_x])
        truth_d = effects(whole, NUMBERS[name], 0.7 * constant, rng)
        declared = declared_of(x.shape[1], constant, NUMBERS[name])
        return labelled(whole, len(x), truth_d, base, rng, intercept=constant, declared=declared)

    return case


def declared_too_wide(seed: int, rows: int, columns: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Table of `benchmarks.coverage_ranges`, its rows and 2,000 more, true weights, and the probability of each row."""
    from benchmarks.coverage_ranges import simulated

    table = simulated(seed, rows + 2_000, columns)
    constant = 1.0 / table.max_row_norm
    x = clipped(np.hstack([np.zeros((len(table.u_nd), 1)), table.u_nd * constant]), constant)
    return table, x, table.weights_d / constant, expit(x @ table.weights_d / constant)


def wide_ranges(seed: int, rows: int) -> Case:
    """Ranges 1 to 50 times too wide, and indicators down to a share of 0.003."""
    from benchmarks.coverage_ranges import model_of

    table, x, truth_d, p_n = declared_too_wide(100 + seed, rows, 20)
    return Case(model_of(table), dense(x[:rows], table.y_n[:rows]), x[rows:], p_n[rows:], truth_d=truth_d)


def long_rows(seed: int, rows: int) -> Case:
    """Normal columns of unknown units, and 2 % of rows 8 times as long."""
    rng = np.random.default_rng([2, seed])
    x = 0.05 * rng.standard_normal((rows + 2_000, 16))
    x[rng.random(len(x)) < 0.02] *= 8.0
    x = clipped(x, 0.4)
    truth_d = np.append(0.0, 4.0 * rng.standard_normal(15))
    return labelled(x, rows, truth_d, -1.0, rng, intercept=0.4, declared=None)


def no_intercept(seed: int, rows: int) -> Case:
    """The columns of the stroke table without the constant."""
    rng = np.random.default_rng([3, seed])
    x, test_x, _, _, constant = parts("stroke", seed, rows)
    declared = declared_of(x.shape[1], constant, 3)
    whole = np.vstack([x, test_x])
    truth_d = effects(whole, 3, 0.7 * constant, rng)[1:]
    truth_d[3:] -= 1.0 / (0.7 * constant * 6)
    bare = Declared(declared.low_d[1:], declared.high_d[1:], declared.unit_d[1:])
    return labelled(whole[:, 1:], len(x), truth_d, 0.0, rng, intercept=0.0, declared=bare)


def heavy_tails(seed: int, rows: int) -> Case:
    """Eight numbers, log-normal in ranges 40 standard deviations wide, two nearly collinear, one the square of one."""
    rng = np.random.default_rng([4, seed])
    normal = rng.standard_normal((rows + 2_000, 8))
    z = np.exp(1.5 * normal) - 1.0
    z[:, 1] = z[:, 0] + 0.05 * z[:, 1]
    z[:, 3], z[:, 4] = normal[:, 3], normal[:, 3] ** 2
    u, constant = np.clip(z / z.std(axis=0) / 40, 0.0, 1.0), 1.0 / 3.0
    u[:, 3] = np.clip(0.5 + normal[:, 3] / 40, 0.0, 1.0)
    x = np.hstack([np.full((len(u), 1), constant), u * constant])
    truth_d = np.append(0.0, rng.standard_normal(8) / x[:, 1:].std(axis=0))
    declared = Declared(np.zeros(9), np.append(0.0, np.full(8, constant)), np.append(1.0, np.full(8, constant)))
    return labelled(x, rows, truth_d, -0.5, rng, intercept=constant, declared=declared)


def products(seed: int, rows: int) -> Case:
    """Three numbers, two indicators and four products of these; effects are those about the factors' means."""
    rng = np.random.default_rng([5, seed])
    number = rows + 2_000
    numbers = np.clip((rng.standard_normal((number, 3)) / 6 + 0.5 + (0, 1, 3)) / (1, 4, 10), 0.0, 1.0)
    factors = np.hstack([numbers, (rng.random((number, 2)) < (0.4, 0.03)).astype(float)])
    first, second, constant = np.array([0, 0, 1, 0]), np.array([1, 2, 3, 4]), 0.35
    size_f, mean_f = np.array([1.0, 1.0, 1.0, 0.7, 0.7]), factors.mean(axis=0)
    u = np.hstack([factors * size_f, factors[:, first] * factors[:, second]])
    x = clipped(np.hstack([np.zeros((number, 1)), u * constant]), constant)
    about = (factors[:, first] - mean_f[first]) * (factors[:, second] - mean_f[second])
    product_p = 0.4 * rng.standard_normal(4) / about.std(axis=0)
    effect_f = np.append(0.5 * rng.standard_normal(3) / numbers.std(axis=0), 0.7 * rng.standard_normal(2))
    np.subtract.at(effect_f, first, product_p * mean_f[second])
    np.subtract.at(effect_f, second, product_p * mean_f[first])
    truth_d = np.append(0.0, np.append(effect_f / size_f, product_p) / constant)
    is_number_d = np.append(size_f == 1.0, np.ones(4, dtype=bool))
    unit_d = constant * np.where(is_number_d, 1.0, 0.7)
    places = np.stack([np.arange(6, 10), first + 1, second + 1], axis=1)
    declared = Declared(
        np.zeros(10), np.append(0.0, constant * is_number_d), np.append(1.0, unit_d), products_p3=places
    )
    return labelled(x, rows, truth_d, -0.8, rng, intercept=constant, declared=declared)


def counts(kind: Any) -> Callable[[int, int], Case]:
    """Visits to physicians by columns of NMES1988: negative binomial with exposures, or Poisson."""

    def case(seed: int, rows: int) -> Case:
        import pandas as pd

        rng = np.random.default_rng([6, seed])
        table = pd.read_csv(Path(os.environ["DPVB_DATA"]) / "counts" / "NMES1988.csv", index_col=0)
        ranges = {"chronic": (0, 8), "age": (6, 11), "school": (0, 18), "hospital": (0, 8)}
        levels = {"gender": "male", "married": "yes", "insurance": "yes", "medicaid": "yes", "afam": "yes"}
        u = [np.clip((table[name].to_numpy(float) - low) / (high - low), 0, 1) for name, (low, high) in ranges.items()]
        u += [0.7 * (table[name] == level).to_numpy(float) for name, level in levels.items()]
        constant = 0.45
        x = np.stack([np.zeros(len(table)), *u], axis=1)[rng.permutation(len(table))] * constant
        x, rows = clipped(x, constant), min(rows, len(table) - 1_000)
        shifted = kind != "poisson"
        truth_d = np.append(0.0, 0.2 * rng.standard_normal(4) / x[:, 1:5].std(axis=0))
        truth_d = np.append(truth_d, 0.3 * rng.standard_normal(5) / (0.7 * constant))
        truth_d[0] = (math.log(2.0) - float((x @ truth_d).mean())) / constant
        offset_n = np.log(rng.uniform(0.2, 2.0, len(x))) if shifted else np.zeros(len(x))
        mean_n = np.exp(x @ truth_d + offset_n) * (rng.gamma(1.2, 1 / 1.2, len(x)) if shifted else 1.0)
        y_n = np.minimum(rng.poisson(mean_n), 40).astype(float)
        likelihood = Likelihood(
            kind, dispersion=None if shifted else 1.0, max_count=40, max_exposure=2.0 if shifted else None
        )
        model = FirstOrder(10, likelihood=likelihood, intercept=constant, declared=declared_of(10, constant, 4))
        more = {"offset_n": offset_n[:rows]} if shifted else {}
        return Case(model, dense(x[:rows], y_n[:rows], **more), x[rows:], y_n[rows:], offset_n[rows:], truth_d)

    return case


def linear(name: str) -> Callable[[int, int], Case]:
    """A real design with a numeric response."""

    def case(seed: int, rows: int) -> Case:
        from benchmarks.linear_designs import matrices, tables

        train, test = tables(name, seed % 5)
        (x, y), (test_x, test_y) = matrices(train), matrices(test)
        model = dpvb.LinearRegression(epsilon=1.0, delta=DELTA)._task(train).model
        return Case(model, dense(x[:rows], y[:rows]), test_x, test_y)

    return case


def linear_simulated(kind: str) -> Callable[[int, int], Case]:
    """Numbers in ranges of 6 standard deviations: with 2 % outliers, or collinear with their squares."""

    def case(seed: int, rows: int) -> Case:
        rng = np.random.default_rng([7, seed, zlib.crc32(kind.encode())])
        numbers = 12
        z = rng.standard_normal((rows + 2_000, numbers))
        if kind == "collinear":
            z[:, 6:] = np.sign(z[:, :6]) * z[:, :6] ** 2 / 3 + 0.1 * z[:, 6:]
        constant = 1.0 / math.sqrt(1.0 + numbers / 2)
        x = clipped(np.hstack([np.zeros((len(z), 1)), constant * np.clip(0.5 + z / 6, 0.0, 1.0)]), constant)
        truth_d = np.append(0.0, 0.05 * rng.standard_normal(numbers) / x[:, 1:].std(axis=0))
        truth_d[0] = -float((x @ truth_d).mean()) / constant
        error_n = 0.1 * rng.standard_normal(len(x))
        if kind == "outliers":
            far = rng.random(len(x)) < 0.02
            error_n[far] *= 6.0
        y_n = np.clip(x @ truth_d + error_n, -1.0, 1.0)
        model = Linear(numbers + 1, intercept=constant, declared=declared_of(numbers + 1, constant, numbers))
        return Case(model, dense(x[:rows], y_n[:rows]), x[rows:], y_n[rows:], truth_d=truth_d)

    return case


def diagonal(name: str) -> Callable[[int, int], Case]:
    """A real table as sparse rows."""

    def case(seed: int, rows: int) -> Case:
        x, y, constant = read_table(name)
        train, test = split(len(y), seed % 5)
        train, test, width = train[:rows], test[:4_000], x.shape[1]
        declared = declared_of(width, constant, NUMBERS[name])
        bound_d = np.where(declared.high_d > 0, constant, 0.7 * constant)
        bound_d[0] = constant
        model = FirstOrderDiagonal(width, intercept=constant, max_abs_value=np.minimum(bound_d, 1.0), declared=declared)
        dense_x, dense_test = clipped(x[train].toarray(), constant), clipped(x[test].toarray(), constant)
        return Case(model, compressed(dense_x, y[train]), dense_test, y[test])

    return case


def diagonal_simulated(seed: int, rows: int) -> Case:
    """Ranges 1 to 50 times too wide among 40 columns, as sparse rows."""
    from benchmarks.coverage_ranges import model_of

    table, x, truth_d, p_n = declared_too_wide(300 + seed, rows, 40)
    model = model_of(table, "diagonal")
    return Case(model, compressed(x[:rows], table.y_n[:rows]), x[rows:], p_n[rows:], truth_d=truth_d)


# --- constants and branches -----------------------------------------------------------------------------------------

Patch = Callable[[ModuleType], Mapping[str, Any]]


@dataclass(frozen=True)
class Family:
    """What an ablation of a family of models needs.

    Attributes:
        package: the folder that holds `tuned`.
        designs: makers of designs by name, each from a seed and a number of rows.
        neutral: the value at which a constant's mechanism does nothing.
        whole: constants that are whole numbers or shares, and their half and double.
        branches: name → (module, attribute, what stands in its place).
        heavy: designs that are fitted with fewer seeds.
    """

    package: str
    designs: Mapping[str, Callable[[int, int], Case]]
    neutral: Mapping[str, float]
    whole: Mapping[str, tuple[float, float]]
    branches: Mapping[str, tuple[str, str, Callable[..., Any]]]
    heavy: frozenset[str] = frozenset()


REGRESSION = Family(
    "dpvb.models.regression",
    {
        "stroke": real("stroke"),
        "adult": real("adult"),
        "diabetes": real("diab30"),
        "stroke, simulated": simulated("stroke"),
        "adult, simulated": simulated("adult"),
        "500 rows": simulated("stroke", most=500),
        "rare outcome": simulated("stroke", base=-6.0),
        "wide ranges": wide_ranges,
        "long rows": long_rows,
        "no intercept": no_intercept,
        "heavy tails": heavy_tails,
        "products": products,
        "counts": counts("negative_binomial"),
        "Poisson": counts("poisson"),
        "linear, phoneme": linear("phoneme"),
        "linear, nmes": linear("nmes"),
        "linear, outliers": linear_simulated("outliers"),
        "linear, collinear": linear_simulated("collinear"),
        "diagonal, stroke": diagonal("stroke"),
        "diagonal, adult": diagonal("adult"),
        "diagonal, wide ranges": diagonal_simulated,
    },
    {
        "AVERAGE_START": 0.0,
        "BASE_RATE_STD": 0.0,
        "CENTRE_STD": 0.0,
        "CLIP_FALL": 1e9,
        "COLLINEAR_SHARE": 1.1,
        "DISPERSION_STD": 30.0,
        "FIRST_SAFETY": 1.0,
        "HIDDEN_EDGE": 0.0,
        "INTERCEPT_STD": 30.0,
        "LAST_FLOOR": 0.0,
        "LEAST_CLIP": 1e-9,
        "LEAST_PART": 1e-9,
        "LEAST_RATIO": 1e-9,
        "LOW_STD": 0.0,
        "MEAN_EXPLAINS": 1.0 - 1e-9,
        "MOMENTUM": 0.0,
        "PRODUCT_DOUBT": 1e3,
        "REACH": 100.0,
        "SCALE_POWER": 0.0,
        "DIAGONAL_SCALE_POWER": 0.0,
        "SCALE_SHRINK": 1.0,
        "DIAGONAL_SCALE_SHRINK": 1.0,
        "SPREAD_ERRORS": 0.0,
        "START_RATIO_STD": 1e3,
        "TABLE_CORRELATION": 1e-6,
        "TABLE_ROUNDS": 0,
        "TAU_SPREAD": 100.0,
        "UNIT_EFFECT": 1.0,
        "UNKNOWN_UNIT": 1.0,
        "UNSEEN_SPREAD": 1.0,
    },
    {
        "COLLINEAR_SHARE": (0.1, 0.4),
        "FACTOR_ROUNDS": (30, 120),
        "MEAN_EXPLAINS": (0.8, 0.95),
        "MOMENTUM": (0.45, 0.95),
        "NUM_CLIPS": (8, 32),
        "NUM_TAUS": (6, 21),
        "SCALE_POWER": (0.375, 1.0),
        "TABLE_DAMPING": (0.25, 1.0),
        "TABLE_ROUNDS": (4, 16),
    },
    {
        "the correction for saturation": ("curvature_then_scores", "saturation_shift", lambda *_: 0.0),
        "shrinkage of second moments, the release alone": (
            "moments",
            "read_collinear",
            lambda noisy_dd, guess_dd, sd: noisy_dd,
        ),
        "shrinkage of second moments, the guess alone": (
            "moments",
            "read_collinear",
            lambda noisy_dd, guess_dd, sd: guess_dd,
        ),
        "an estimated τ along the path": ("ridge", "best_scale", lambda point_e, variance_e, prior: 0.35),
        "centres corrected by second moments": (
            "scaling",
            "Scaling.recentred",
            lambda self, declared, noisy_dd, sd, constant: (self, noisy_dd),
        ),
        "spreads corrected by second moments": ("scaling", "Scaling.certain", lambda self, *_: self),
    },
    frozenset({"adult", "diabetes", "adult, simulated", "diagonal, adult"}),
)
FAMILIES = {"regression": REGRESSION}


class Values:
    """A table of constants of which some are replaced; notes the names that are read."""

    def __init__(self, table: ModuleType, replaced: Mapping[str, float]) -> None:
        self._table, self._replaced, self.read = table, replaced, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return self._replaced.get(name, getattr(self._table, name))


@contextmanager
def constants(family: Family, replaced: Mapping[str, float]) -> Iterator[Values]:
    """The family with other constants."""
    table = importlib.import_module(f"{family.package}.tuned")
    values = Values(table, replaced)
    readers = [module for name, module in list(sys.modules.items()) if name.startswith(family.package)]
    readers = [module for module in readers if getattr(module, "tuned", None) is table and module is not None]
    readers = [module for module in readers if module.__name__ != family.package]
    try:
        for module in readers:
            module.tuned = values  # type: ignore[attr-defined]
        yield values
    finally:
        for module in readers:
            module.tuned = table  # type: ignore[attr-defined]


@contextmanager
def branch_off(family: Family, name: str) -> Iterator[None]:
    """The family with a branch replaced."""
    module_name, attribute, instead = family.branches[name]
    holder: Any = importlib.import_module(f"{family.package}.{module_name}")
    *path, last = attribute.split(".")
    for part in path:
        holder = getattr(holder, part)
    before = holder.__dict__[last]
    setattr(holder, last, instead)
    try:
        yield
    finally:
        setattr(holder, last, before)


def table_of(family: Family) -> dict[str, float]:
    """The numeric constants of a family."""
    table = importlib.import_module(f"{family.package}.tuned")
    return {
        name: value
        for name, value in vars(table).items()
        if name.isupper() and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


# --- comparison -------------------------------------------------------------------------------------------------------

Key = tuple[str, float, int]
METRICS = ("fit", "covered", "z", "width")


class Runner:
    """Fits of a family, each made once.

    Attributes:
        family: the family.
        designs: names of the designs.
        rows, seeds: rows and seeds of a design; heavy ones have half of the seeds.
    """

    def __init__(self, family: Family, designs: list[str], rows: int, seeds: int, first: int = 0) -> None:
        self.family, self.designs, self.rows = family, designs, rows
        self.keys = [
            (design, epsilon, seed)
            for design in designs
            for epsilon in EPSILONS
            for seed in range(first, first + (max(seeds // 2, min(seeds, 2)) if design in family.heavy else seeds))
        ]
        self.case = cache(lambda design, seed: family.designs[design](seed, rows))

    def one(self, key: Key) -> dict[str, Any]:
        """The scores of one fit; none where it fails."""
        design, epsilon, seed = key
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return scores(self.case(design, seed), epsilon, seed)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            return {"failed": repr(error)[:80]}

    def fits(self, keys: list[Key]) -> dict[Key, dict[str, Any]]:
        return {key: self.one(key) for key in keys}


@dataclass(frozen=True)
class Change:
    """Paired changes by cell, (mean, standard error) each.

    Attributes:
        cells: (design, ε) → metric → mean and standard error over seeds.
        failed: number of fits that failed.
    """

    cells: dict[tuple[str, float], dict[str, tuple[float, float]]]
    failed: int = 0

    @classmethod
    def of(cls, before: Mapping[Key, dict[str, Any]], after: Mapping[Key, dict[str, Any]]) -> Change:
        """Changes where both fits were made."""
        apart: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        failed = 0
        for key in before.keys() & after.keys():
            failed += "failed" in after[key] or not math.isfinite(after[key]["fit"])
            for metric in METRICS:
                if metric in before[key] and metric in after[key] and math.isfinite(after[key][metric]):
                    apart[key[:2]][metric].append(after[key][metric] - before[key][metric])
        cells = {
            cell: {
                name: (float(np.mean(d)), float(np.std(d, ddof=len(d) > 1)) / math.sqrt(len(d)))
                for name, d in m.items()
            }
            for cell, m in apart.items()
        }
        return cls(cells, failed)

    def mean(self, metric: str) -> tuple[float, float, int]:
        """Mean over cells, its standard error, and the number of cells."""
        found = [cell[metric] for cell in self.cells.values() if metric in cell]
        if not found:
            return math.nan, math.nan, 0
        error = math.sqrt(sum(error**2 for _, error in found)) / len(found)
        return float(np.mean([change for change, _ in found])), error, len(found)

    def worst(self, metric: str, least: float) -> str:
        """The cells that lost more than `least`, at more than 2 standard errors."""
        lost = [
            (cell[metric][0], f"{design} {epsilon:g}")
            for (design, epsilon), cell in self.cells.items()
            if metric in cell and cell[metric][0] < -least and cell[metric][0] < -2 * cell[metric][1]
        ]
        scale = 1e3 if metric == "fit" else 100
        return "; ".join(f"{name}: {scale * change:+.1f}" for change, name in sorted(lost)[:3])


def shown(change: tuple[float, float, int], scale: float, digits: int = 2) -> str:
    mean, error, number = change
    return f"{scale * mean:+.{digits}f} ± {scale * error:.{digits}f}" if number else "-"


def row(name: str, change: Change, all_cells: int) -> str:
    fit, covered = change.mean("fit"), change.mean("covered")
    harm = "; ".join(text for text in (change.worst("fit", HARM), change.worst("covered", HARM_COVERAGE)) if text)
    failed = f"; {change.failed} fits failed" if change.failed else ""
    return (
        f"| {name} | {len(change.cells)} | {shown(fit, 1e3)} | {shown(covered, 100, 1)} | {shown(change.mean('z'), 1)} "
        f"| {shown(change.mean('width'), 1)} | {(harm + failed).strip('; ') or '-'} |"
    )


HEAD = (
    "| variant | cells | log-likelihood, 1e-3 nats | coverage, points | sd of z | log width | harm |\n"
    "|---|---|---|---|---|---|---|"
)


def ablated(runner: Runner, only: list[str], limit: float) -> None:
    """Print the table of a family's constants and branches."""
    family, begun = runner.family, time.process_time()
    values, reached, default = table_of(family), defaultdict(list), {}
    for design in runner.designs:
        with constants(family, {}) as seen:
            keys = [key for key in runner.keys if key[0] == design]
            default |= runner.fits(keys)
        for name in seen.read:
            reached[name].append(design)
    spent = time.process_time() - begun
    print(f"Default: {len(default)} fits in {spent:.0f} s; {len(values)} constants.\n")
    levels = Change.of({key: dict.fromkeys(METRICS, 0.0) for key in default}, default)
    print("| design | ε | log-likelihood | coverage, % | sd of z |\n|---|---|---|---|---|")
    for (design, epsilon), cell in sorted(levels.cells.items()):
        more = f"{100 * cell['covered'][0]:.1f} | {cell['z'][0]:.2f}" if "covered" in cell else "- | -"
        print(f"| {design} | {epsilon:g} | {cell['fit'][0]:.4f} | {more} |")
    print(f"\n{HEAD}")
    same, left = [], []

    def compare(title: str, designs: list[str], context: Callable[[], Any]) -> None:
        if time.process_time() - begun > 60 * limit:
            left.append(title)
            return
        keys = [key for key in runner.keys if key[0] in designs]
        lowest = [key for key in keys if key[2] == min(key[2] for key in keys)]
        with context():
            first = runner.fits(lowest)
            changed = {key[0] for key in lowest if first[key] | {"seconds": 0} != default[key] | {"seconds": 0}}
            found = first | runner.fits([key for key in keys if key[0] in changed and key not in first])
        if not changed:
            same.append(title)
            return
        found = {key: value for key, value in found.items() if key[0] in changed}
        print(row(title, Change.of(default, found), len(levels.cells)), flush=True)

    for name, value in values.items():
        if only and name not in only:
            continue
        half, double = family.whole.get(name, (0.5 * value, 2.0 * value))
        variants = {"half": half, "double": double}
        if name in family.neutral:
            variants["neutral"] = family.neutral[name]
        for kind, other in variants.items():
            compare(
                f"{name} {value:g} → {other:g} ({kind})",
                reached[name],
                lambda n=name, o=other: constants(family, {n: o}),
            )
    for name in family.branches:
        if not only or name in only:
            compare(f"without: {name}", runner.designs, lambda n=name: branch_off(family, n))
    print(f"\nThe same scores on the first seed of every design: {', '.join(same) or 'none'}.")
    never = [name for name in values if not reached[name]]
    print(f"Read by no design, or at import: {', '.join(never) or 'none'}.")
    if left:
        print(f"Not reached within {limit:g} minutes: {', '.join(left)}.")
    print(f"Processor time: {(time.process_time() - begun) / 60:.1f} minutes.")


# --- before and after -------------------------------------------------------------------------------------------------


def saved(runner: Runner, path: Path) -> None:
    """Write the default's fits, those of designs that fail to be made left out."""
    found = runner.fits(runner.keys)
    path.write_text(json.dumps([[*key, value] for key, value in found.items()]))


def read_fits(path: Path) -> dict[Key, dict[str, Any]]:
    return {(design, epsilon, seed): value for design, epsilon, seed, value in json.loads(path.read_text())}


def compared(before: dict[Key, dict[str, Any]], after: dict[Key, dict[str, Any]]) -> None:
    """Print the change of every cell, and their means."""
    change = Change.of(before, after)
    print("| design | ε | fits | log-likelihood, 1e-3 nats | coverage, points | sd of z | log width |")
    print("|---|---|---|---|---|---|---|")
    for (design, epsilon), cell in sorted(change.cells.items()):
        number = sum(key[:2] == (design, epsilon) for key in after)
        texts = [
            shown((*cell[name], 1), scale, digits) if name in cell else "-"
            for name, scale, digits in (("fit", 1e3, 2), ("covered", 100, 1), ("z", 1, 2), ("width", 1, 2))
        ]
        print(f"| {design} | {epsilon:g} | {number} | {' | '.join(texts)} |")
    print(f"\n{HEAD}")
    print(row("all cells", change, len(change.cells)))
    for epsilon in EPSILONS:
        part = replace(change, cells={cell: value for cell, value in change.cells.items() if cell[1] == epsilon})
        print(row(f"ε = {epsilon:g}", part, len(part.cells)))
    both = before.keys() & after.keys()
    seconds = [sum(fits[key].get("seconds", 0.0) for key in both) for fits in (before, after)]
    print(f"\nProcessor seconds of {len(both)} fits: {seconds[0]:.0f} before, {seconds[1]:.0f} after.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--short", action="store_true", help="1,000 rows and two seeds a design")
    parser.add_argument("--rows", type=int, default=2_500, help="rows of a design (default 2,500)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of a design (default 3)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--designs", nargs="*", default=[], help="names of designs (default: all)")
    parser.add_argument("--only", nargs="*", default=[], help="names of constants and branches (default: all)")
    parser.add_argument("--minutes", type=float, default=40.0, help="limit of processor time (default 40)")
    parser.add_argument("--against", help="a commit, or a folder that holds the package before a change")
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    family = FAMILIES[chosen.family]
    rows, seeds = (1_000, 2) if chosen.short else (chosen.rows, chosen.seeds)
    runner = Runner(family, chosen.designs or list(family.designs), rows, seeds, chosen.first)
    if chosen.save:
        saved(runner, chosen.save)
        return
    if chosen.against:
        from benchmarks.same_bits import folder

        before = ROOT / "build" / "ablate_before.json"
        before.parent.mkdir(exist_ok=True)
        with folder(chosen.against) as place, ExitStack():
            command = [sys.executable, "-m", "benchmarks.ablate", chosen.family, "--save", str(before)]
            command += ["--rows", str(rows), "--seeds", str(seeds), "--first", str(chosen.first)]
            command += ["--designs", *runner.designs]
            subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": place}, check=True)
        print(f"## Regressions before and after: {chosen.against}, and the working copy\n")
        compared(read_fits(before), runner.fits(runner.keys))
        return
    print(f"## What each constant buys: {chosen.family}\n")
    print(
        f"{rows:,} rows and {seeds} seeds a design ({max(seeds // 2, min(seeds, 2))} of the large ones); "
        f"ε = 0.3, 1, 4; δ = {DELTA:g}. Changes from the default by the same noise: mean ± standard error.\n"
    )
    ablated(runner, chosen.only, chosen.minutes)


if __name__ == "__main__":
    main()
