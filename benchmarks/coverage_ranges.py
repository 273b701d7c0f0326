"""Intervals where declared ranges are 1 to 50 times too wide: coverage, widths and predictions on simulated tables.

Of d columns, the constant among them, 60 % are numeric (normal, every third log-normal, correlation 0.35), with ranges
1, 3, 10 and 50 times too wide in equal parts, and the rest indicators with rates 0.5, 0.2, 0.05, 0.01, 0.003. True
effects are N(0, 0.5²) log odds a standard deviation, N(0, 0.7²) an indicator. Every table has its own. Constants of the
package were chosen on other seeds. `--tables R` takes R tables a cell.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit

from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.scaling import Declared

CACHE = Path(__file__).parents[1] / "build" / "coverage_ranges.jsonl"
FACTORS, RATES, DELTA, NORMAL_95 = (1.0, 3.0, 10.0, 50.0), (0.5, 0.2, 0.05, 0.01, 0.003), 1e-5, 1.959964
EPSILONS = (0.1, 0.3, 1.0, 2.0, math.inf)
PLANS: dict = {}
FIRST_SEED = 1_000
#: Rows, columns, covariance, tables at least.
CELLS = (
    (20_000, 20, "full", 40),
    (5_000, 20, "full", 40),
    (20_000, 5, "full", 40),
    (45_000, 20, "full", 16),
    (20_000, 60, "full", 8),
    (45_000, 60, "full", 2),
    (20_000, 20, "diagonal", 6),
)


@dataclass(frozen=True)
class Simulated:
    """A table: features as numbers in [0, 1] and 0.7, labels, R, true weights, and what each column is."""

    u_nd: np.ndarray
    y_n: np.ndarray
    max_row_norm: float
    weights_d: np.ndarray
    spread_d: np.ndarray
    factor_d: np.ndarray


def simulated(seed: int, rows: int, d: int, factors=FACTORS, effect: float = 1.0) -> Simulated:
    """A table of d - 1 features."""
    rng = np.random.default_rng([seed, rows, d])
    numbers = max(round(0.6 * (d - 1)), 1)
    factor_d = np.zeros(d - 1)
    factor_d[:numbers] = np.resize(factors, numbers)
    z_nj = math.sqrt(0.65) * rng.standard_normal((rows, numbers)) + math.sqrt(0.35) * rng.standard_normal((rows, 1))
    u_nd = np.empty((rows, d - 1))
    for j in range(numbers):
        column, low, width = z_nj[:, j], -3.0, 6.0
        if j % 3 == 2:
            column, low, width = np.exp(0.6 * column), 0.0, math.exp(0.6 * 3.0)
        before = rng.random() * (factor_d[j] - 1) * width
        u_nd[:, j] = np.clip((column - low + before) / (factor_d[j] * width), 0.0, 1.0)
    rates = np.resize(RATES, d - 1 - numbers)
    u_nd[:, numbers:] = 0.7 * (rng.random((rows, len(rates))) < rates)
    spread_d = np.append(u_nd[:, :numbers].std(axis=0), np.full(len(rates), 0.7))
    effect_d = effect * np.append(0.5 * rng.standard_normal(numbers), 0.7 * rng.standard_normal(len(rates)))
    weights_d = np.append(0.0, effect_d / spread_d)
    weights_d[0] = rng.normal(-0.7, 0.7) - float(u_nd.mean(axis=0) @ weights_d[1:])
    y_n = (rng.random(rows) < expit(weights_d[0] + u_nd @ weights_d[1:])).astype(float)
    square = 1.0 + numbers / 3 + sum(0.245 for _ in rates) + 2 * math.sqrt(numbers * 4 / 45 + len(rates) * 0.7**4 / 4)
    return Simulated(u_nd, y_n, math.sqrt(square), weights_d, spread_d, factor_d)


def model_of(table: Simulated, covariance: str = "full") -> FirstOrder | FirstOrderDiagonal:
    """The model of a table, as the schema of such a table makes it."""
    d, constant = len(table.weights_d), 1.0 / table.max_row_norm
    high_d, unit_d = np.append(0.0, constant * (table.factor_d > 0)), np.append(1.0, np.full(d - 1, 0.7 * constant))
    declared = Declared(np.zeros(d), high_d, unit_d)
    if covariance == "full":
        return FirstOrder(d, intercept=constant, declared=declared)
    bound_d = np.append(constant, np.where(table.factor_d > 0, constant, 0.7 * constant))
    return FirstOrderDiagonal(d, intercept=constant, max_abs_value=bound_d, declared=declared)


def measured(seed: int, rows: int, d: int, epsilon: float, covariance: str = "full", **options) -> dict:
    """One fit: what its intervals cover, their widths in log odds a spread, and its excess log loss."""
    table = simulated(seed, rows, d, **options)
    model = model_of(table, covariance)
    plan = PLANS.get((d, epsilon, covariance))
    if plan is None:
        plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget, unit="row")
        plan = PLANS[d, epsilon, covariance] = calibrated(plan, epsilon=epsilon, delta=DELTA)
    begun = time.process_time()
    source = Design(
        table.u_nd,
        table.y_n,
        intercept=model.intercept,
        max_row_norm=table.max_row_norm,
        sparse_rows=covariance != "full",
    )
    wall = Wall(source, plan, noise=InsecureNoise(seed), n_units=rows)
    q, _ = loop.fit(model, wall, plan, rho=model.schedule.rho, rng=np.random.default_rng(0))
    made, read = model.table(q), model.weights(q)
    seconds = time.process_time() - begun
    scale_d = np.append(model.intercept, np.full(d - 1, 1 / table.max_row_norm))
    variance_d = np.diag(made.covariance).copy() if made.covariance.ndim == 2 else made.covariance.copy()
    # A diagonal holds about a centre; the intercept is that of x = 0.
    if made.covariance.ndim == 1:
        variance_d[0] += float(made.centre_d**2 @ variance_d) / model.intercept**2
    truth_d, mean_d, std_d = table.weights_d / scale_d, made.mean_d, np.sqrt(variance_d)
    z_d = (mean_d - truth_d) / std_d
    psi_n, best_n = (
        (weights_d[0] * scale_d[0] + table.u_nd @ (weights_d[1:] * scale_d[1:])) for weights_d in (read.mean_d, truth_d)
    )
    p_n = expit(best_n)
    loss_n, least_n = (np.logaddexp(0, psi) - p_n * psi for psi in (psi_n, best_n))
    return {
        "z": z_d.tolist(),
        "std": (std_d * scale_d * np.append(1.0, table.spread_d)).tolist(),
        "factor": [-1.0, *table.factor_d.tolist()],
        "excess": float(np.mean(loss_n - least_n)),
        "seconds": seconds,
    }


def run(cells, tables: int | None, epsilons) -> dict:
    """Fits by cell and ε, made where the cache lacks them."""
    CACHE.parent.mkdir(exist_ok=True)
    lines = CACHE.read_text().splitlines() if CACHE.exists() else []
    found = {tuple(line["cell"]): line for line in map(json.loads, lines)}
    with CACHE.open("a") as file:
        for rows, d, covariance, most in cells:
            for seed in range(FIRST_SEED, FIRST_SEED + (tables or most)):
                for epsilon in epsilons:
                    cell = (rows, d, covariance, epsilon, seed)
                    if cell not in found:
                        found[cell] = {"cell": cell, **measured(seed, rows, d, epsilon, covariance)}
                        file.write(json.dumps(found[cell]) + "\n")
                        file.flush()
    return found


def table(found: dict, rows: int, d: int, covariance: str, epsilons) -> None:
    """One row of Markdown for each ε."""

    def of(epsilon: float) -> tuple[np.ndarray, ...]:
        lines = [line for cell, line in found.items() if cell[:4] == (rows, d, covariance, epsilon)]
        return tuple(np.array([line[name] for line in lines]) for name in ("z", "std", "factor", "excess"))

    exact_std = of(math.inf)[1]
    for epsilon in epsilons:
        z_nd, std_nd, factor_nd, excess_n = of(epsilon)
        if not len(z_nd):
            continue
        slopes, inside = factor_nd >= 0, np.abs(z_nd) < NORMAL_95
        ratio = std_nd / np.median(exact_std[factor_nd[: len(exact_std)] == 1.0]) if len(exact_std) else std_nd
        by = [f"{inside[factor_nd == f].mean():.3f}" if (factor_nd == f).any() else "" for f in (*FACTORS, 0.0, -1.0)]
        wide = [f"{np.median(ratio[factor_nd == f]):.2g}" if (factor_nd == f).any() else "" for f in (1.0, 50.0)]
        cells = [f"{inside[slopes].mean():.3f}", *by, *wide, f"{(np.abs(z_nd[slopes]) > 4).mean():.1%}"]
        head = f"{rows:,} | {d} | {covariance} | {epsilon:g} | {len(z_nd)}"
        print(f"| {head} | {' | '.join(cells)} | {1e4 * excess_n.mean():.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=None)
    parser.add_argument("--cached", action="store_true", help="print what there is")
    chosen = parser.parse_args()
    found = run(() if chosen.cached else CELLS, chosen.tables, EPSILONS)
    print("## Intervals where declared ranges are too wide\n")
    print(" ".join((__doc__ or "").split("\n")[2:6]))
    print(
        f"Nominal 95 %, δ = {DELTA:g}; seeds from {FIRST_SEED:,} on. Coverage of true weights: of all slopes, of those"
    )
    print(
        "whose range is 1, 3, 10 and 50 times too wide, of indicators, of the intercept; median std over that without"
    )
    print("noise at the right range; |z| above 4; excess log loss of predictions, 1e-4 a row.\n")
    heads = ["rows", "d", "covariance", "ε", "tables", "all", "1x", "3x", "10x", "50x", "indicators", "intercept"]
    heads += ["std 1x", "std 50x", "lies", "excess"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for rows, d, covariance, _ in CELLS:
        table(found, rows, d, covariance, EPSILONS)


if __name__ == "__main__":
    main()
