"""Intervals on the columns of real tables, with outcomes simulated from a fit to these columns.

Needs DPVB_DATA, the folder that holds adult/ and diabetes130/. `--tables R` simulates R tables a cell.

    python -m benchmarks.coverage_skewed
"""

import argparse
import csv
import gzip
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import dpvb
from benchmarks.coverage_real import ADULT, read, widened
from dpvb.accounting import epsilon as accounted
from dpvb.accounting import noise_multiplier
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.models.regression import tuned

EPSILONS, DELTA, ROWS = (0.5, 1.0, 4.0), 1e-5, 30_000
CATEGORIES, INDICATORS = "adult, categories", "adult, levels"
#: Levels of Adult with fewer rows are left out, so that maximum likelihood is finite.
LEAST_ROWS = 100
STAYS = {
    "time_in_hospital": 14,
    "num_lab_procedures": 140,
    "num_procedures": 6,
    "num_medications": 90,
    "number_outpatient": 45,
    "number_emergency": 80,
    "number_inpatient": 25,
    "number_diagnoses": 16,
}


def columns_of(name: str) -> tuple[dict[str, np.ndarray], list[Numeric], list[str]]:
    """Columns, numeric ones with their ranges, and binary ones; the outcome is "y"."""
    folder = Path(os.environ["DPVB_DATA"])
    if name.startswith("adult"):
        data, ranges, binary, _ = read(folder, "adult")
        if name == "adult":
            return data, ranges, binary
        rows = [[*map(str.strip, line.split(","))] for line in (folder / "adult" / "adult.data").open() if line.strip()]
        levels = {}
        for key in ("workclass", "marital", "occupation", "relationship", "race", "sex", "country"):
            column = [row[ADULT.index(key)] for row in rows]
            known = [level for level, number in Counter(column).most_common()[1:] if number >= LEAST_ROWS]
            levels |= {f"{key} {level}": np.array([one == level for one in column]) + 0 for level in known}
        data = {c.name: data[c.name] for c in ranges} | {"y": data["y"]} | levels
        return data, ranges, [*levels]
    with gzip.open(folder / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    data = {key: np.array([float(row[key]) for row in rows]) for key in STAYS}
    is_one = {"gender": "Male", "race": "Caucasian", "change": "Ch", "diabetesMed": "Yes", "insulin": "Up"}
    data |= {key: np.array([row[key] == one for row in rows]) + 0 for key, one in is_one.items()}
    data["y"] = np.array([row["readmitted"] != "NO" for row in rows]) + 0
    return data, [Numeric(key, 0, most) for key, most in STAYS.items()], [*is_one]


def simulated(name: str, factor: float) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Return a simulation: errors and stated standard deviations of all coefficients of one fit, of an ε and a seed."""
    data, ranges, binary = columns_of(name)
    rows_nd = np.stack([data[c.name] for c in ranges] + [data[b] for b in binary], axis=1).astype(float)
    size_d = np.append([c.high - c.low for c in ranges], np.ones(len(binary)))
    own = LogisticRegression(C=1e3, max_iter=2_000).fit(rows_nd / size_d, data["y"])
    true_d = own.coef_[0] / size_d
    ahead_n = own.intercept_[0] + rows_nd @ true_d
    columns: list[Binary | Categorical] = [*map(Binary, binary)]
    names = [c.name for c in ranges] + binary
    if name == CATEGORIES:
        # The levels of a column in one column. "others" has the most frequent level and the rare ones: the reference.
        levels: dict[str, list[str]] = {}
        for one in binary:
            levels.setdefault(one.split(" ", 1)[0], []).append(one.split(" ", 1)[1])
        columns = [Categorical(key, ("others", *known)) for key, known in levels.items()]
        for key, known in levels.items():
            is_one = [data[f"{key} {level}"] == 1 for level in known]
            data[key] = np.select(is_one, known, default="others").astype(object)
        names = [c.name for c in ranges] + ["=".join(one.split(" ", 1)) for one in binary]
    schema = Schema((*(widened(c, factor) for c in ranges), *columns), target=Target("y"))

    def fit(epsilon: float, seed: int, released: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([seed, int(10 * epsilon)])
        some = rng.integers(0, len(rows_nd), ROWS)
        drawn = {key: value[some] for key, value in data.items()}
        drawn["y"] = (rng.random(ROWS) < expit(ahead_n[some])) + 0
        model = dpvb.LogisticRegression(epsilon=released or epsilon, delta=DELTA, n_units=ROWS)
        model.fit(Table(drawn, schema))
        table = {row.name: row for row in model.coefficients(coding="reference")}
        error_d = np.array([table[key].mean for key in names]) - true_d
        return error_d, np.array([table[key].std for key in names])

    return fit


def described(fits: Iterable[tuple[np.ndarray, np.ndarray]], number: int) -> str:
    """Cells of a line, given the fits and how many of the columns are numeric."""
    errors, stds = zip(*fits, strict=True)
    error_rd, std_rd = np.array(errors), np.array(stds)
    z_rd = error_rd / std_rd
    halves = [np.sqrt(np.mean(z**2)) for z in (z_rd[:, :number], z_rd[:, number:])]
    ratio = np.mean(std_rd.mean(axis=0) / np.sqrt(np.mean(error_rd**2, axis=0)))
    return (
        f"{np.mean(np.abs(z_rd) < 1.96):.3f} | {halves[0]:.2f} | {halves[1]:.2f} | {np.abs(z_rd).max():.1f} | "
        f"{ratio:.2f}"
    )


def with_precise_curvature(factor: float, epsilon: float) -> float:
    """Divide the noise of both curvatures by a factor, and return the ε at which all other noise remains as it is."""
    budgets = {name: getattr(tuned, name) for name in ("SUM_BUDGET", "CURVATURE_BUDGET", "LAST_BUDGET")}
    grown = 1.0 + (factor**2 - 1.0) * (budgets["CURVATURE_BUDGET"] + budgets["LAST_BUDGET"])
    for name, budget in budgets.items():
        setattr(tuned, name, budget / grown * (1.0 if name == "SUM_BUDGET" else factor**2))
    noise = noise_multiplier(epsilon=epsilon, delta=DELTA, sampling_prob=1.0, n_steps=1)
    return accounted(delta=DELTA, noise_multiplier=noise / math.sqrt(grown), sampling_prob=1.0, n_steps=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=20)
    tables = parser.parse_args().tables
    warnings.filterwarnings("ignore")
    print("## Intervals on the columns of real tables, simulated outcomes\n")
    print(
        f"Logistic regression, {ROWS:,} rows drawn with replacement, outcomes simulated from a fit "
        f"to the real outcome, δ = {DELTA:g}, {tables} tables a line; nominal 95 %. Ranges as in the data's "
        "description, or five times as wide. sd(z): of errors over stated standard deviations, 1 if these are right; "
        "numeric / binary columns. adult: 4 numeric and 7 binary columns; with all levels of at least 100 rows, "
        f"declared as one categorical column each ({CATEGORIES}: differences from the reference) or as a binary "
        f"column for each level but the reference ({INDICATORS}); diabetes: 8 and 5.\n"
    )
    heads = "coverage | sd(z) numeric | sd(z) binary | largest abs(z) | mean std over rmse |"
    print(f"| table | ranges | ε | {heads}\n|---|---|---|---|---|---|---|---|")
    for name in ("adult", CATEGORIES, INDICATORS, "diabetes"):
        for factor in (1.0, 5.0):
            fit, number = simulated(name, factor), 8 if name == "diabetes" else 4
            for epsilon in EPSILONS:
                cells = described((fit(epsilon, seed) for seed in range(tables)), number)
                print(f"| {name} | {factor:g}x | {epsilon:g} | {cells}", "|", flush=True)
    print(
        f"\nThe cause of the misses with a column for each level: noise of the two released curvatures. Here it is "
        f"divided by a factor, and all other noise is unchanged. {tables // 2} tables a line.\n"
    )
    print(f"| table | noise of curvatures | ε | {heads}\n|---|---|---|---|---|---|---|---|")
    usual = {name: getattr(tuned, name) for name in ("SUM_BUDGET", "CURVATURE_BUDGET", "LAST_BUDGET")}
    for name in (INDICATORS, CATEGORIES):
        fit = simulated(name, 1.0)
        for factor in (1.0, 7.0, 22.0):
            for epsilon in EPSILONS[1:]:
                released = with_precise_curvature(factor, epsilon)
                cells = described((fit(epsilon, seed, released) for seed in range(tables // 2)), 4)
                print(f"| {name} | 1/{factor:g} | {epsilon:g} | {cells}", "|", flush=True)
                for key, budget in usual.items():
                    setattr(tuned, key, budget)


if __name__ == "__main__":
    main()
