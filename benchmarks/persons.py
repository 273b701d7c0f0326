"""Logistic regression of persons with 1 to 10 correlated rows: bias, rmse and coverage; made-up tables."""

import math
import os
import time
from dataclasses import dataclass

import numpy as np

import dpvb

DELTA = 1e-6
NUM_SETS = int(os.environ.get("PERSONS_SETS", "60"))
#: The method was developed on seeds below this one.
FIRST_SEED = 90_000
RANGE = 4.0
BASE = -0.5


@dataclass(frozen=True)
class Cell:
    """One design: persons, features, ε, standard deviation of effects, and rows of each person (0: 1 to 10)."""

    persons: int
    features: int
    epsilon: float
    sd: float
    rows: int = 0


CELLS = (
    Cell(1_000, 5, 1.0, 0.0),
    Cell(1_000, 5, 1.0, 2.0),
    Cell(1_000, 5, 4.0, 1.0),
    Cell(5_000, 5, 0.5, 1.0),
    Cell(5_000, 5, 1.0, 0.0),
    Cell(5_000, 5, 1.0, 1.0),
    Cell(5_000, 5, 1.0, 2.0),
    Cell(5_000, 5, 4.0, 1.0),
    Cell(5_000, 5, math.inf, 2.0),
    Cell(5_000, 20, 1.0, 2.0),
    Cell(20_000, 5, 1.0, 1.0),
    Cell(20_000, 5, 4.0, 2.0),
    Cell(5_000, 5, 4.0, 0.0, rows=10),
)


def bridge(uniform_i: np.ndarray, phi: float) -> np.ndarray:
    """Effects of persons by which log odds ψ/φ + effect have the mean probability σ(ψ) (Wang & Louis 2003)."""
    return np.log(np.sin(phi * np.pi * uniform_i) / np.sin(phi * np.pi * (1.0 - uniform_i))) / phi


def table(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, of which the first half is constant within a person; responses; persons; slopes."""
    rng, n, d = np.random.default_rng(seed), cell.persons, cell.features
    person_n = np.repeat(np.arange(n), cell.rows or rng.integers(1, 11, n))
    own = constant(d)
    x_nd = np.hstack([rng.standard_normal((n, own))[person_n], rng.standard_normal((len(person_n), d - own))])
    x_nd = x_nd.clip(-RANGE, RANGE)
    slope_d = np.where(np.arange(d) % 2, -0.3, 0.5) * math.sqrt(5 / d)
    phi = 1.0 / math.sqrt(1.0 + 3.0 * cell.sd**2 / np.pi**2)
    effect_i = bridge(rng.random(n), phi) if cell.sd > 0 else np.zeros(n)
    chance_n = 1.0 / (1.0 + np.exp(-(BASE + x_nd @ slope_d) / phi - effect_i[person_n]))
    return x_nd, (rng.random(len(person_n)) < chance_n).astype(int), person_n, slope_d


def constant(features: int) -> int:
    """Number of features that are constant within a person."""
    return (features + 1) // 2


def one(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Errors of the slopes, their standard deviations as stated, and the relative error of all slopes together."""
    x_nd, y_n, person_n, slope_d = table(cell, seed)
    model = dpvb.LogisticRegression(epsilon=cell.epsilon, delta=DELTA, low=-RANGE, high=RANGE)
    model.fit(x_nd, y_n, group=person_n)
    error_d = np.ravel(model.coef_) - slope_d
    return error_d, np.ravel(model.coef_std_), float(error_d @ slope_d / (slope_d @ slope_d))


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began = time.perf_counter()
    print("## Coverage of intervals of persons with several rows\n")
    print(
        f"Logistic regression with `group=`, {NUM_SETS} made-up tables a line, 1 to 10 rows a person unless stated, "
        f"delta = {DELTA:g}; nominal 95 %. Effects of persons have the standard deviation sd and leave the marginal "
        "model logistic. Numbers come in pairs: features that are constant within a person / that vary by row. "
        "Standard errors over tables in parentheses.\n"
    )
    print("| persons | features | eps | sd | bias of slopes | rmse | coverage | mean stated std over rmse |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in CELLS:
        found = [one(cell, FIRST_SEED + seed) for seed in range(NUM_SETS)]
        error, std = np.array([e for e, _, _ in found]), np.array([s for _, s, _ in found])
        bias = np.array([b for _, _, b in found])
        halves = slice(constant(cell.features)), slice(constant(cell.features), None)
        rmse = [math.sqrt(float(np.mean(error[:, half] ** 2))) for half in halves]
        inside = [np.mean(np.abs(error / std)[:, half] < 1.96, axis=1) for half in halves]
        coverage = [f"{one.mean():.3f} ({one.std() / math.sqrt(NUM_SETS):.3f})" for one in inside]
        width = [std[:, half].mean() / r for half, r in zip(halves, rmse, strict=True)]
        persons = f"{cell.persons:,}" + (f", {cell.rows} rows each" if cell.rows else "")
        print(
            f"| {persons} | {cell.features} | {cell.epsilon:g} | {cell.sd:g} | "
            f"{100 * bias.mean():+.1f} % ({100 * bias.std() / math.sqrt(NUM_SETS):.1f}) | "
            f"{rmse[0]:.4f} / {rmse[1]:.4f} | {' / '.join(coverage)} | {width[0]:.2f} / {width[1]:.2f} |",
            flush=True,
        )
    print(f"\n{NUM_SETS * len(CELLS)} fits in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
