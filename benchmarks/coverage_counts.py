"""Coverage of 95 % intervals of counts: Poisson, and negative binomial with its dispersion learned; made-up tables."""

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import dpvb
from dpvb.data.tables.schema import Binary, Categorical, Numeric, Schema, Target
from dpvb.data.tables.table import Table

EPSILONS, DELTA = (1.0, 2.0, 4.0), 1e-6
DISPERSIONS = (0.5, 1.2, 5.0, math.inf)
NUM_ROWS, MAX_COUNT = 10_000, 40
NUM_SETS = int(os.environ.get("COVERAGE_SETS", "40"))
#: The constants of the method were chosen on seeds below this one.
FIRST_SEED = 50_000
SLOPES = {"age": 0.01, "income": 0.1, "smokes": 0.4, "region": 0.3}
COLUMNS = (
    Numeric("age", 0, 100),
    Numeric("income", 0, 30),
    Binary("smokes"),
    Categorical("region", ("north", "south"), other=False, missing=False),
)


def table(seed: int, r: float) -> dict[str, np.ndarray]:
    """Counts of mean about 3; an infinite r is a Poisson distribution."""
    rng = np.random.default_rng(seed)
    data = {
        "age": rng.uniform(20, 80, NUM_ROWS),
        "income": rng.gamma(4.0, 1.0, NUM_ROWS),
        "smokes": rng.integers(0, 2, NUM_ROWS),
        "region": np.where(rng.random(NUM_ROWS) < 0.5, "south", "north"),
    }
    psi = 0.4 + SLOPES["age"] * (data["age"] - 50) + SLOPES["income"] * (data["income"] - 4)
    psi += SLOPES["smokes"] * data["smokes"] + SLOPES["region"] * (data["region"] == "south")
    mean = np.exp(psi) * (1.0 if math.isinf(r) else rng.gamma(r, 1 / r, NUM_ROWS))
    return {**data, "y": rng.poisson(mean)}


def one(given: tuple[float, float, int]) -> tuple[list[float], float, float, float]:
    """Z of every coefficient; z and std of the log of the dispersion; mean std of the coefficients over noise-free."""
    r, epsilon, seed = given
    kind = "poisson" if math.isinf(r) else "negative_binomial"
    estimator = dpvb.PoissonRegression if math.isinf(r) else dpvb.NegativeBinomialRegression
    like = Schema(COLUMNS, target=Target("y", kind, max_count=MAX_COUNT))
    model = estimator(epsilon=epsilon, delta=DELTA, max_count=MAX_COUNT).fit(Table(table(seed, r), like))
    rows = {row.name: row for row in model.coefficients(coding="none")}
    found = [(rows[name].mean - SLOPES[name]) / rows[name].std for name in ("age", "income", "smokes")]
    south, north = (rows[f"region={place}"].mean for place in ("south", "north"))
    draws, _ = model.sample_posterior(4000, rng=0)
    contrast = np.ravel(draws[:, model.feature_names_.index("region=south")]) - np.ravel(
        draws[:, model.feature_names_.index("region=north")]
    )
    found.append((south - north - SLOPES["region"]) / contrast.std())
    z = std = math.nan
    if not math.isinf(r):
        low, high = map(math.log, model.dispersion_interval())
        std = (high - low) / (2 * 1.959964)
        z = ((low + high) / 2 - math.log(r)) / std
    return found, z, std, rows["smokes"].std


def cells() -> Iterator[tuple[float, float]]:
    for r in DISPERSIONS:
        for epsilon in EPSILONS:
            yield r, epsilon


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began = time.perf_counter()
    print("## Coverage of intervals of counts\n")
    print(
        f"{NUM_SETS} made-up tables a line, {NUM_ROWS:,} rows of two numbers, an indicator and two regions, mean count "
        f"about 3, counts up to {MAX_COUNT}, delta = {DELTA:g}; nominal 95 %. The dispersion is learned in the same "
        "plan. Coverage of the coefficients (regions by their contrast), and of the logarithm of the dispersion with "
        "the mean of its std.\n"
    )
    print("| counts | eps | coefficients | std of one | log(dispersion) | its std |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(2) as pool:
        for r, epsilon in cells():
            found = list(pool.map(one, [(r, epsilon, FIRST_SEED + seed) for seed in range(NUM_SETS)]))
            inside = np.mean(np.abs([z for one, *_ in found for z in one]) < 1.96)
            name = "Poisson" if math.isinf(r) else f"dispersion {r:g}"
            last, std = ("", "") if math.isinf(r) else (f"{np.mean(np.abs([f[1] for f in found]) < 1.96):.3f}", "")
            std = std if math.isinf(r) else f"{np.mean([f[2] for f in found]):.3f}"
            print(
                f"| {name} | {epsilon:g} | {inside:.3f} | {np.mean([f[3] for f in found]):.3f} | {last} | {std} |",
                flush=True,
            )
    print(f"\n{len(found) * len(list(cells()))} fits in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
