"""Coverage of 95 % intervals where rows have an exposure or an offset, on made-up tables of 20,000 rows.

Five normal columns with correlation 0.35, cut at three standard deviations, in ranges twice as wide; true effects are
N(0, 0.2²) a standard deviation. Exposures are 5 to 365 days, a quarter of them a whole year; offsets N(0, 1).
"""

import argparse
import math
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from scipy.special import expit

import dpvb

ROWS, COLUMNS, DELTA, NORMAL_95, FIRST_SEED = 20_000, 5, 1e-5, 1.959964, 19_000
EPSILONS = (0.3, 1.0, math.inf)
MAX_COUNT, RATE, DISPERSION = 30, 1.0 / 365, 1.5
KINDS = {
    "Poisson, a year each": {},
    "Poisson, days up to 365": {"max_exposure": 365},
    "Poisson, days up to 3,650": {"max_exposure": 3650},
    "dispersion 1.5, learned, days up to 365": {"max_exposure": 365},
    "logistic, offset within 4": {"max_offset": 4},
}


def measured(kind: str, epsilon: float, seed: int) -> tuple[list[float], list[float], float]:
    """Distance from the truth in stds, and std, of slopes and intercept; the same distance of a log dispersion."""
    rng = np.random.default_rng([seed, ROWS])
    z_nd = math.sqrt(0.65) * rng.standard_normal((ROWS, COLUMNS)) + math.sqrt(0.35) * rng.standard_normal((ROWS, 1))
    z_nd = np.clip(z_nd, -3, 3)
    truth = 0.2 * rng.standard_normal(COLUMNS + 1)
    given = {"epsilon": epsilon, "delta": DELTA, "low": -6.0, "high": 6.0, **KINDS[kind]}
    if kind.startswith("logistic"):
        offset, truth[0] = rng.standard_normal(ROWS), -1.0
        y = rng.random(ROWS) < expit(truth[0] + z_nd @ truth[1:] + offset)
        model, beside = dpvb.LogisticRegression(**given), {"offset": offset}
    else:
        days, truth[0] = np.minimum(rng.uniform(5, 485, ROWS), 365), math.log(RATE)
        beside = {"exposure": days}
        if not KINDS[kind]:
            days, truth[0], beside = np.ones(ROWS), math.log(365 * RATE), {}
        mean = days * np.exp(truth[0] + z_nd @ truth[1:])
        if kind.startswith("Poisson"):
            model = dpvb.PoissonRegression(**given, max_count=MAX_COUNT)
        else:
            model = dpvb.NegativeBinomialRegression(**given, max_count=MAX_COUNT)
            mean = mean * rng.gamma(DISPERSION, 1 / DISPERSION, ROWS)
        y = rng.poisson(mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(z_nd, y, **beside)
    rows = list(model.coefficients())
    z, dispersion = [(row.mean - true) / row.std for row, true in zip(rows, truth, strict=True)], math.nan
    if kind.startswith("dispersion"):
        low, high = map(math.log, model.dispersion_interval())
        dispersion = (low + high - 2 * math.log(DISPERSION)) / (high - low) * NORMAL_95
    return z, [row.std for row in rows], dispersion


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + chosen.tables)
    print("## Intervals where rows have an exposure or an offset\n")
    print(" ".join((__doc__ or "").split("\n")[2:4]))
    print(
        f"Counts up to {MAX_COUNT}, about one a year. Nominal 95 %, δ = {DELTA:g}, {chosen.tables} tables a line, seeds"
    )
    print(f"from {FIRST_SEED:,} on. In brackets the median std over that without noise.\n")
    print("| responses | ε | slopes | intercept | log(dispersion) | |z| above 4 |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(chosen.workers) as pool:
        for kind in KINDS:
            exact = np.zeros(0)
            for epsilon in sorted(EPSILONS, reverse=True):
                found = list(pool.map(partial(measured, kind, epsilon), seeds))
                z_sr, std_r = np.array([z for z, *_ in found]), np.median([std for _, std, _ in found], axis=0)
                exact = std_r if math.isinf(epsilon) else exact
                inside_r, ratio_r = np.mean(np.abs(z_sr) < NORMAL_95, axis=0), std_r / exact
                slopes = f"{inside_r[1:].mean():.3f} ({np.median(ratio_r[1:]):.2g})"
                last = [dispersion for *_, dispersion in found]
                own = f"{np.mean(np.abs(last) < NORMAL_95):.3f}" if math.isfinite(last[0]) else ""
                lies = f"{np.mean(np.abs(z_sr) > 4):.1%}"
                row = f"| {kind} | {epsilon:g} | {slopes} | {inside_r[0]:.3f} ({ratio_r[0]:.2g}) | {own} | {lies} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
