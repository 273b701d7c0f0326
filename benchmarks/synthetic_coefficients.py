"""Coefficients of a logistic regression by synthetic tables, combined: how often 95 % intervals cover; Adult."""

import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import statsmodels.api as sm

import dpvb
from benchmarks import coverage_real
from dpvb.data.tables.columns import Binary
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import Table

EPSILONS, DELTA = (1.0, math.inf), 1e-5
COMPONENTS, TABLES, ROWS = 10, 10, 20_000
NUM_SETS = int(os.environ.get("SYNTHETIC_SETS", "5"))


def coefficients(data: dict[str, np.ndarray], names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood estimates and their variances, of the intercept and of the named columns."""
    x_nd = np.column_stack([np.ones(len(data["y"])), *(data[name] for name in names)]).astype(float)
    fit = sm.GLM(data["y"].astype(float), x_nd, family=sm.families.Binomial()).fit()
    return fit.params, fit.bse**2


def main() -> None:
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds adult/")
    began = time.perf_counter()
    data, ranges, binary, _ = coverage_real.read(Path(os.environ["DPVB_DATA"]), "adult")
    schema = Schema((*ranges, *(Binary(name) for name in (*binary, "y"))))
    names = [*(one.name for one in ranges), *binary]
    truth_d, _ = coefficients(data, names)
    number = len(data["y"])
    print("## Coefficients by synthetic tables\n")
    print(
        f"Adult, {number:,} rows, {len(ranges)} numbers and {len(binary) + 1} binary columns. A mixture of "
        f"{COMPONENTS} groups is fitted to a random half, delta = {DELTA:g}, and {TABLES} tables of {ROWS:,} rows are "
        "drawn. `combine_synthetic` combines logistic regressions of income on the other columns. Share of intervals "
        f"that contain the coefficient of all rows, over {NUM_SETS} halves; the largest error over the stated standard "
        "deviation.\n"
    )
    print("| eps | coverage | largest |z| |\n|---|---|---|".replace("|z|", "\\|z\\|"))
    for epsilon in EPSILONS:
        inside, largest = [], 0.0
        for seed in range(NUM_SETS):
            half = np.random.default_rng(seed).permutation(number)[: number // 2]
            rows = Table({name: value[half] for name, value in data.items()}, schema)
            model = dpvb.Mixture(COMPONENTS, epsilon=epsilon, delta=DELTA, random_state=seed).fit(rows)
            drawn = [model.sample(ROWS, 100 * seed + k, parameters="draw") for k in range(TABLES)]
            found = [coefficients(table, names) for table in drawn]
            for place in range(1, len(truth_d)):
                whole = dpvb.combine_synthetic([e[place] for e, _ in found], [v[place] for _, v in found])
                inside.append(whole.low <= truth_d[place] <= whole.high)
                largest = max(largest, abs(whole.mean - truth_d[place]) / whole.std)
        print(f"| {epsilon:g} | {np.mean(inside):.3f} of {len(inside)} | {largest:.1f} |", flush=True)
    print(f"\n{NUM_SETS * len(EPSILONS)} fits in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
