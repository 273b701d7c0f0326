"""Intervals on the columns of real tables, with outcomes simulated from a fit to these columns.

Needs DPVB_DATA, the folder that holds adult/ and diabetes130/. `--tables R` simulates R tables a cell.

    python -m benchmarks.coverage_skewed
"""

import argparse
import csv
import gzip
import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import dpvb
from benchmarks.coverage_real import ADULT, read, widened
from dpvb.data.tables.columns import Binary
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table

EPSILONS, DELTA, ROWS = (0.5, 1.0, 4.0), 1e-5, 30_000
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
        "numeric / binary columns. adult: 4 numeric and 7 binary columns; with all levels of at least 100 rows; "
        "diabetes: 8 and 5.\n"
    )
    print("| table | ranges | ε | coverage | sd(z) numeric | sd(z) binary | largest abs(z) | mean std over rmse |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("adult", "adult, levels", "diabetes"):
        data, ranges, binary = columns_of(name)
        rows_nd = np.stack([data[c.name] for c in ranges] + [data[b] for b in binary], axis=1).astype(float)
        size_d = np.append([c.high - c.low for c in ranges], np.ones(len(binary)))
        own = LogisticRegression(C=1e3, max_iter=2_000).fit(rows_nd / size_d, data["y"])
        true_d = own.coef_[0] / size_d
        ahead_n = own.intercept_[0] + rows_nd @ true_d
        for factor in (1.0, 5.0):
            schema = Schema((*(widened(c, factor) for c in ranges), *map(Binary, binary)), target=Target("y"))
            for epsilon in EPSILONS:
                errors, stds = [], []
                for seed in range(tables):
                    rng = np.random.default_rng([seed, int(10 * epsilon)])
                    some = rng.integers(0, len(rows_nd), ROWS)
                    drawn = {key: value[some] for key, value in data.items()}
                    drawn["y"] = (rng.random(ROWS) < expit(ahead_n[some])) + 0
                    model = dpvb.LogisticRegression(epsilon=epsilon, delta=DELTA, n_units=ROWS)
                    model.fit(Table(drawn, schema))
                    errors.append(np.ravel(model.coef_) - true_d)
                    stds.append(np.ravel(model.coef_std_))
                error_rd, std_rd = np.array(errors), np.array(stds)
                z_rd = error_rd / std_rd
                number = len(ranges)
                halves = [np.sqrt(np.mean(z**2)) for z in (z_rd[:, :number], z_rd[:, number:])]
                ratio = np.mean(std_rd.mean(axis=0) / np.sqrt(np.mean(error_rd**2, axis=0)))
                print(f"| {name} | {factor:g}x | {epsilon:g} | {np.mean(np.abs(z_rd) < 1.96):.3f} | {halves[0]:.2f} | "
                      f"{halves[1]:.2f} | {np.abs(z_rd).max():.1f} | {ratio:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
