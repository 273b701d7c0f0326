"""Intervals on real tables against maximum likelihood on the same rows, with ranges 1, 10 and 50 times too wide.

Share of the maximum-likelihood estimates inside 95 % intervals; no upper bound, since both fits share the rows. Median
std over that of maximum likelihood. `--fits R` takes R fits a cell, each with fresh noise.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
from scipy.special import expit

import dpvb
from dpvb.data.tables.columns import Binary
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table

EPSILONS, FACTORS, DELTA = (1.0, 2.0, 4.0), (1.0, 10.0, 50.0), 1e-5
ADULT = ["age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation", "relationship", "race"]
ADULT += ["sex", "gain", "loss", "hours", "country", "income"]


def read(folder: Path, name: str) -> tuple[dict, list[Numeric], list[str], str]:
    """Columns, numeric ones with their ranges, binary ones, and the response's kind."""
    if name == "stroke":
        rows = list(csv.DictReader((folder / "stroke" / "healthcare-dataset-stroke-data.csv").open()))
        rows = [row for row in rows if row["bmi"] != "N/A"]
        data = {key: np.array([float(row[key]) for row in rows]) for key in ("age", "avg_glucose_level", "bmi")}
        data |= {key: np.array([int(row[key]) for row in rows]) for key in ("hypertension", "heart_disease")}
        is_one = {"gender": "Male", "ever_married": "Yes", "Residence_type": "Urban", "smoking_status": "smokes"}
        data |= {key: np.array([row[key] == one for row in rows]) + 0 for key, one in is_one.items()}
        data["y"] = np.array([int(row["stroke"]) for row in rows])
        ranges = [Numeric("age", 0, 100), Numeric("avg_glucose_level", 50, 300), Numeric("bmi", 10, 70)]
        return data, ranges, ["hypertension", "heart_disease", *is_one], "logistic"
    if name == "adult":
        lines = (folder / "adult" / "adult.data").read_text().splitlines()
        rows = [[*map(str.strip, line.split(","))] for line in lines if line.strip()]
        column = {key: [row[place] for row in rows] for place, key in enumerate(ADULT)}
        data = {key: np.array([float(v) for v in column[key]]) for key in ("age", "education_num", "hours", "loss")}
        is_one = {
            "sex": "Male",
            "race": "White",
            "marital": "Married-civ-spouse",
            "workclass": "Private",
            "country": "United-States",
            "occupation": "Exec-managerial",
            "relationship": "Own-child",
        }
        data |= {key: np.array([v == one for v in column[key]]) + 0 for key, one in is_one.items()}
        data["y"] = np.array([v == ">50K" for v in column["income"]]) + 0
        ranges = [Numeric("age", 0, 100), Numeric("education_num", 0, 16), Numeric("hours", 0, 100)]
        return data, [*ranges, Numeric("loss", 0, 4_500)], [*is_one], "logistic"
    rows = list(csv.DictReader((folder / "counts" / "NMES1988.csv").open()))
    data = {key: np.array([float(row[key]) for row in rows]) for key in ("chronic", "age", "school", "hospital")}
    is_one = {"gender": "male", "married": "yes", "insurance": "yes", "medicaid": "yes", "afam": "yes"}
    data |= {key: np.array([row[key] == one for row in rows]) + 0 for key, one in is_one.items()}
    data["y"] = np.minimum(np.array([int(row["visits"]) for row in rows]), 20)
    ranges = [Numeric("chronic", 0, 8), Numeric("age", 6, 11), Numeric("school", 0, 18), Numeric("hospital", 0, 8)]
    return data, ranges, [*is_one], "negative_binomial"


def likeliest(x_nd: np.ndarray, y_n: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood with stds, by Newton's method."""
    x_nd, mean_d = np.hstack([np.ones((len(x_nd), 1)), x_nd]), np.zeros(x_nd.shape[1] + 1)
    b_n = np.ones(len(y_n)) if kind == "logistic" else y_n + 1.2
    for _ in range(50):
        p_n = expit(x_nd @ mean_d)
        hessian_dd = (x_nd.T * (b_n * p_n * (1 - p_n))) @ x_nd
        mean_d = mean_d + np.linalg.solve(hessian_dd, x_nd.T @ (y_n - b_n * p_n))
    return mean_d[1:], np.sqrt(np.diag(np.linalg.inv(hessian_dd)))[1:]


def widened(column: Numeric, factor: float) -> Numeric:
    """A range so many times as wide, of which the true one is somewhere inside."""
    width = column.high - column.low
    before = 0.37 * (factor - 1) * width
    return Numeric(column.name, column.low - before, column.low - before + factor * width)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=10)
    fits = parser.parse_args().fits
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds stroke/, adult/ and counts/")
    print("## Intervals on real tables against maximum likelihood\n")
    print(" ".join((__doc__ or "").split("\n")[2:4]))
    print(f"δ = {DELTA:g}, {fits} fits a cell; asked: at least .92 inside. NMES1988: dispersion 1.2, counts to 20.\n")
    heads = [f"{what} {factor:g}x" for what in ("inside", "std") for factor in FACTORS]
    print("| table | ε | " + " | ".join(heads) + " |")
    print("|" + "---|" * (2 + len(heads)))
    for name in ("stroke", "adult", "NMES1988"):
        data, ranges, binary, kind = read(Path(os.environ["DPVB_DATA"]), name)
        rows_nd = np.stack([data[c.name] for c in ranges] + [data[b] for b in binary], axis=1).astype(float)
        best_d, std_d = likeliest(rows_nd, data["y"], kind)
        for epsilon in EPSILONS:
            inside, ratio = [], []
            for factor in FACTORS:
                columns = [widened(column, factor) for column in ranges]
                target = Target("y") if kind == "logistic" else Target("y", kind, max_count=20)
                schema = Schema((*columns, *map(Binary, binary)), target=target)
                options = {"epsilon": epsilon, "delta": DELTA, "n_units": len(rows_nd)}
                hits, stds = [], []
                for _ in range(fits):
                    if kind == "logistic":
                        model = dpvb.LogisticRegression(**options)
                    else:
                        model = dpvb.NegativeBinomialRegression(**options, dispersion=1.2, max_count=20)
                    model.fit(Table(data, schema))
                    low_d, high_d = (np.ravel(end) for end in model.credible_interval())
                    hits.append((low_d <= best_d) & (best_d <= high_d))
                    stds.append(np.ravel(model.coef_std_) / std_d)
                inside.append(f"{np.mean(hits):.2f}")
                ratio.append(f"{np.median(stds):.2g}")
            print(f"| {name} | {epsilon:g} | {' | '.join([*inside, *ratio])} |", flush=True)


if __name__ == "__main__":
    main()
