"""Coverage of 95 % intervals of factor models, on simulated normal tables of 10 columns.

At least 1,000 intervals a cell (`--intervals`): those of explained variances from as many tables as hold so many
components, those of loadings and of covariances from a tenth as many tables. Ranges are so many times four standard
deviations to each side. Half lengths are medians: of an interval of a loading, where columns have standard deviations
of about 1, and of an explained variance over itself.
"""

import argparse
import math
import os
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import dpvb

EPSILONS, DELTA = (0.5, 1.0, 4.0), 1e-5
#: Rows, factors, ranges too wide by.
CELLS = tuple((n, k, wide) for n in (5_000, 20_000) for k in (2, 3) for wide in ((1.0,), (1.0, 3.0, 10.0, 50.0)))
PSI = np.linspace(0.3, 0.8, 10)


def simulated(seed: int, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows, and the loadings W as rows, with WΨ⁻¹Wᵀ diagonal."""
    rng = np.random.default_rng([seed, rows, k])
    basis_dk = np.linalg.qr(np.random.default_rng(k).normal(size=(10, k)))[0]
    loading_kd = (basis_dk * np.array([3.0, 2.0, 1.4])[:k]).T
    x_nd = rng.standard_normal((rows, k)) @ loading_kd + rng.standard_normal((rows, 10)) * np.sqrt(PSI)
    turn_kk = np.linalg.svd(loading_kd / np.sqrt(PSI), full_matrices=False)[0]
    return x_nd, turn_kk.T @ loading_kd


def inside(low, true, high) -> float:
    return float(np.mean((low <= true) & (true <= high)))


def covered(rows: int, k: int, wide: tuple[float, ...], epsilon: float, intervals: int) -> list[float]:
    """Coverage of intervals of loadings, their median half length, of covariances; of explained variances, theirs."""
    warnings.simplefilter("ignore")
    found, explained = [], []
    for seed in range(math.ceil(intervals / k)):
        x_nd, loading_kd = simulated(seed, rows, k)
        true_dd = loading_kd.T @ loading_kd + np.diag(PSI)
        end_d = 4 * np.sqrt(np.diagonal(true_dd)) * np.resize(wide, 10)
        given = {"low": -end_d, "high": end_d, "epsilon": epsilon, "delta": DELTA}
        components = dpvb.PCA(k, **given).fit(x_nd)
        value_k = np.linalg.eigvalsh(true_dd / np.outer(components.scale_, components.scale_))[::-1][:k]
        low, high = components.explained_variance_interval()
        explained.append([inside(low, value_k, high), float(np.median((high - low) / value_k)) / 2])
        if seed < math.ceil(intervals / 10):
            factors = dpvb.FactorAnalysis(k, **given).fit(x_nd)
            low, high = factors.loadings_interval()
            sign_k = np.where(((low + high) * loading_kd).sum(axis=1) < 0, -1.0, 1.0)
            parts = [inside(low, loading_kd * sign_k[:, None], high), float(np.median(high - low)) / 2]
            low, high = (end[np.triu_indices(10)] for end in factors.covariance_interval())
            found.append([*parts, inside(low, true_dd[np.triu_indices(10)], high)])
    return [*np.mean(found, axis=0).tolist(), *np.mean(explained, axis=0).tolist()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--intervals", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    print("## Intervals of factor models\n")
    print((__doc__ or "").split("\n\n", 1)[1].strip())
    print(f"\nδ = {DELTA:g}, add or remove one row.\n")
    print("| rows | factors | ranges too wide | ε | loadings | half | covariances | explained variances | half |")
    print("|---|---|---|---|---|---|---|---|---|")
    least = [1.0, 1.0, 1.0]
    with ProcessPoolExecutor(given.processes) as pool:
        cells = {
            (*cell, epsilon): pool.submit(covered, *cell, epsilon, given.intervals)
            for cell in CELLS
            for epsilon in EPSILONS
        }
        for (rows, k, wide, epsilon), cell in cells.items():
            loadings, half, covariances, explained, relative = cell.result()
            shown = f"{rows:,} | {k} | {', '.join(f'{w:g}' for w in wide)} | {epsilon:g} | {loadings:.3f} | {half:.3f}"
            print(f"| {shown} | {covariances:.3f} | {explained:.3f} | {relative:.2f} |", flush=True)
            least = [*map(min, least, (loadings, covariances, explained))]
    said = ("loadings", "covariances", "explained variances")
    print(f"\nAsked: at least .93. Least of {', of '.join(f'{a} {b:.3f}' for a, b in zip(said, least, strict=True))}.")


if __name__ == "__main__":
    main()
