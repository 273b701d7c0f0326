"""Coverage of 95 % intervals of counts: Poisson, and negative binomial with its dispersion learned; simulated tables.

Three designs: two numbers, an indicator and two regions; low rates with an exposure; and a bound that is far above the
counts. The benchmark also fits NMES1988 if DPVB_DATA is the folder that holds counts/NMES1988.csv.
"""

import math
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import dpvb
from dpvb.data.tables.schema import Binary, Categorical, Numeric, Schema, Target
from dpvb.data.tables.table import Table

EPSILONS, DELTA = (1.0, 4.0), 1e-6
DISPERSIONS = (0.5, 1.2, 5.0, math.inf)
NUM_ROWS, MAX_COUNT = 10_000, 40
NUM_SETS = int(os.environ.get("COVERAGE_SETS", "16"))
#: The constants of the method were chosen on seeds below this one.
FIRST_SEED = 70_000
SLOPES = {"age": 0.01, "income": 0.1, "smokes": 0.4, "region": 0.3}
COLUMNS = (
    Numeric("age", 0, 100),
    Numeric("income", 0, 30),
    Binary("smokes"),
    Categorical("region", ("north", "south"), other=False, missing=False),
)
#: Rows of the two other designs.
MANY_ROWS = 20_000
#: Coefficients of the two other designs.
LOW = {"intercept": -3.87, "smokes": 0.5, "age": 0.02}
FAR = {"intercept": -0.05, "age": 0.01, "income": 0.1, "smokes": 0.4}


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


def one(r: float, epsilon: float, seed: int) -> tuple[list[float], float, float, float]:
    """Z of every coefficient; z and std of the log of the dispersion; std of the coefficient of `smokes`."""
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


def low_rates(seed: int, variance: float, **options: object) -> np.ndarray:
    """Errors and stds of all coefficients, (3, 2): mean count 0.23, exposure 1 to 5, counts up to 20."""
    rng = np.random.default_rng(seed)
    data = {"age": rng.uniform(20, 80, MANY_ROWS), "smokes": (rng.random(MANY_ROWS) < 0.4) * 1}
    data["years"] = rng.uniform(1, 5, MANY_ROWS)
    psi = LOW["intercept"] + LOW["age"] * data["age"] + LOW["smokes"] * data["smokes"]
    spread = rng.gamma(1 / variance, variance, MANY_ROWS) if variance > 0 else 1.0
    data["y"] = rng.poisson(data["years"] * np.exp(psi) * spread)
    target = Target("y", "poisson", max_count=20, exposure="years", max_exposure=5)
    model = dpvb.PoissonRegression(max_count=20, max_exposure=5, delta=DELTA, **options)
    return errors(model.fit(Table(data, Schema((Numeric("age", 0, 100), Binary("smokes")), target=target))), LOW)


def far_bound(seed: int, dispersion: float | None, **options: object) -> tuple[np.ndarray, float]:
    """Errors and stds of all coefficients, (4, 2): mean count about 3, dispersion 1, counts up to 60; and the share of
    the prior variance of the log dispersion that the data removed."""
    rng = np.random.default_rng(seed)
    data = {"age": rng.uniform(20, 80, MANY_ROWS), "income": rng.gamma(4.0, 1.0, MANY_ROWS)}
    data["smokes"] = rng.integers(0, 2, MANY_ROWS)
    psi = FAR["intercept"] + sum(FAR[name] * data[name] for name in ("age", "income", "smokes"))
    mean = np.exp(psi) * (1.0 if dispersion is None else rng.gamma(dispersion, 1 / dispersion, MANY_ROWS))
    data["y"] = rng.poisson(mean)
    kind = "poisson" if dispersion is None else "negative_binomial"
    estimator = dpvb.PoissonRegression if dispersion is None else dpvb.NegativeBinomialRegression
    schema = Schema(COLUMNS[:3], target=Target("y", kind, max_count=60))
    model = estimator(max_count=60, delta=DELTA, **options).fit(Table(data, schema))
    return errors(model, FAR), math.nan if dispersion is None else removed(model)


def errors(model: dpvb.PoissonRegression | dpvb.NegativeBinomialRegression, truth: dict[str, float]) -> np.ndarray:
    rows = {row.name: row for row in model.coefficients()}
    return np.array([(rows[name].mean - true, rows[name].std) for name, true in truth.items()])


def removed(model: dpvb.NegativeBinomialRegression) -> float:
    """Share of the prior variance of the log dispersion, 1.5², that the data removed."""
    low, high = map(math.log, model.dispersion_interval())
    return 1 - ((high - low) / (2 * 1.959964) / 1.5) ** 2


def cells() -> Iterator[tuple[float, float]]:
    for r in DISPERSIONS:
        for epsilon in EPSILONS:
            yield r, epsilon


def print_low(seeds: range) -> None:
    print("\nLow rates: mean count 0.23, counts up to 20, exposure 1 to 5, 20,000 rows; rates of rows vary with the")
    print("given variance. Numbers are for the intercept / `smokes` / `age`; z is the error over the stated std.\n")
    print("| variance | eps | robust | coverage | mean of z | sd of z | std over that without noise |\n|" + "---|" * 7)
    exact = np.mean([low_rates(seed, 0.0, epsilon=math.inf)[:, 1] for seed in seeds[:3]], axis=0)
    for variance, epsilon, robust in ((0.0, 1.0, True), (0.0, 1.0, False), (0.0, 4.0, True), (1.0, 1.0, True)):
        found = np.array([low_rates(seed, variance, epsilon=epsilon, robust=robust) for seed in seeds])
        z = found[:, :, 0] / found[:, :, 1]
        parts = (np.mean(np.abs(z) < 1.959964, axis=0), z.mean(axis=0), z.std(axis=0), found[:, :, 1].mean(0) / exact)
        cells = [" / ".join(f"{value:.2f}" for value in part) for part in parts]
        print(f"| {variance:g} | {epsilon:g} | {'yes' if robust else 'no'} | {' | '.join(cells)} |", flush=True)


def print_far(seeds: range) -> None:
    print(
        "\nA bound far above the counts: mean count about 3, counts up to 60, 20,000 rows. The std of coefficients is"
    )
    print("over that without noise, worst coefficient; `removed` is the share of the prior variance of the log of the")
    print("dispersion that the data removed, on average.\n")
    print("| counts | eps | coverage | std over that without noise | removed |\n|" + "---|" * 5)
    for name, dispersion in (("Poisson", None), ("dispersion 1", 1.0)):
        exact = np.mean([far_bound(seed, dispersion, epsilon=math.inf)[0][:, 1] for seed in seeds[:3]], axis=0)
        for epsilon in (0.3, 1.0, 4.0):
            found = [far_bound(seed, dispersion, epsilon=epsilon) for seed in seeds]
            pairs, share = np.array([one for one, _ in found]), float(np.mean([share for _, share in found]))
            inside, ratio = np.mean(np.abs(pairs[:, :, 0]) < 1.959964 * pairs[:, :, 1]), pairs[:, :, 1].mean(0) / exact
            shown = "" if dispersion is None else f"{100 * share:.0f} %"
            print(f"| {name} | {epsilon:g} | {inside:.3f} | {ratio.max():.2f} | {shown} |", flush=True)


def print_visits() -> None:
    """NMES1988, if it is there."""
    if not (folder := os.environ.get("DPVB_DATA")):
        return
    frame = pd.read_csv(Path(folder) / "counts" / "NMES1988.csv", index_col=0)
    names = {"chronic": (0, 8), "age": (6.6, 11), "school": (0, 18)}
    columns = [*(Numeric(name, *ends) for name, ends in names.items()), Binary("gender", values=("female", "male"))]
    data = {name: frame[name].to_numpy() for name in (*names, "gender", "visits")}
    print(f"\nNMES1988, visits to a doctor, {len(frame):,} rows, counts up to 60, five fits a line; the std of the")
    print("coefficients of three numbers and an indicator is over that without noise, worst coefficient.\n")
    print("| eps | std over that without noise | dispersion | removed |\n|" + "---|" * 4)
    like, exact = Schema(columns, target=Target("visits", "negative_binomial", max_count=60)), np.ones(4)
    for epsilon in (math.inf, 1.0, 4.0):
        models = [
            dpvb.NegativeBinomialRegression(epsilon=epsilon, delta=DELTA, max_count=60).fit(Table(data, like))
            for _ in range(1 if math.isinf(epsilon) else 5)
        ]
        std = np.mean([[row.std for row in model.coefficients()[1:]] for model in models], axis=0)
        exact = std if math.isinf(epsilon) else exact
        r, share = np.mean([model.dispersion_ for model in models]), np.mean([removed(model) for model in models])
        print(f"| {epsilon:g} | {(std / exact).max():.2f} | {r:.2f} | {100 * share:.0f} % |", flush=True)


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    print("## Coverage of intervals of counts\n")
    print(
        f"{NUM_SETS} simulated tables a line, {NUM_ROWS:,} rows of two numbers, an indicator and two regions, mean "
        f"count about 3, counts up to {MAX_COUNT}, delta = {DELTA:g}; nominal 95 %. The dispersion is learned in the "
        "same plan. Coverage of the coefficients (regions by their contrast), and of the logarithm of the dispersion "
        "with the mean of its std.\n"
    )
    print("| counts | eps | coefficients | std of one | log(dispersion) | its std |\n|---|---|---|---|---|---|")
    seeds = range(FIRST_SEED, FIRST_SEED + NUM_SETS)
    for r, epsilon in cells():
        found = [one(r, epsilon, seed) for seed in seeds]
        inside = np.mean(np.abs([z for one, *_ in found for z in one]) < 1.96)
        name = "Poisson" if math.isinf(r) else f"dispersion {r:g}"
        last = std = ""
        if not math.isinf(r):
            last, std = f"{np.mean(np.abs([f[1] for f in found]) < 1.96):.3f}", f"{np.mean([f[2] for f in found]):.3f}"
        print(f"| {name} | {epsilon:g} | {inside:.3f} | {np.mean([f[3] for f in found]):.3f} | {last} | {std} |")
    print_low(range(FIRST_SEED + 1_000, FIRST_SEED + 1_000 + 2 * NUM_SETS))
    print_far(range(FIRST_SEED + 2_000, FIRST_SEED + 2_000 + NUM_SETS))
    print_visits()
    print(f"\n{time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
