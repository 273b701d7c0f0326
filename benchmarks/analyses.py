"""Three analyses of real tables, beside what statsmodels says of the same rows in the same units and reference levels.

Each cell is a coefficient with its 95 % interval, of the first fit. The last lines are shares of statsmodels' estimates
inside, over all coefficients of `--fits R` fits with fresh noise: of the real responses, and of responses drawn from
statsmodels' model on the same rows. Where the second share alone is high, the model is only nearly true of the table,
and a fit at a small ε speaks of its middle rows.
"""

import argparse
import csv
import gzip
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import statsmodels.api as sm

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target
from dpvb.results.coefficients import CoefficientTable

EPSILONS, DELTA, MAX_COUNT, DISPERSION, MAX_TRIALS = (1.0, 4.0), 1e-6, 20, 1.2, 5
ADULT = ["age", "workclass", "fnlwgt", "education", "education_num", "marital", "occupation", "relationship", "race"]
ADULT += ["sex", "gain", "loss", "hours", "country", "income"]
MARITAL = {"Never-married": "never", "Married-civ-spouse": "married", "Married-AF-spouse": "married"}
CLASSES = {"Private": "private", "Self-emp-inc": "self", "Self-emp-not-inc": "self", "?": "unknown"}
RACES = {"Caucasian": "Caucasian", "AfricanAmerican": "African American"}


def named(rows: list[dict[str, str]], **how: Callable[[dict[str, str]], Any]) -> dict[str, np.ndarray]:
    """Columns that are made of each row."""
    return {name: np.array([make(row) for row in rows]) for name, make in how.items()}


def income(folder: Path) -> tuple[str, dict[str, np.ndarray], Schema, Any, Any]:
    """Adults with an income above 50,000 dollars."""
    lines = (folder / "adult" / "adult.data").read_text().splitlines()
    rows = [dict(zip(ADULT, map(str.strip, line.split(",")), strict=True)) for line in lines if line.strip()]
    data = named(
        rows,
        age=lambda row: float(row["age"]),
        school=lambda row: float(row["education_num"]),
        hours=lambda row: float(row["hours"]),
        sex=lambda row: row["sex"],
        marital=lambda row: MARITAL.get(row["marital"], "before"),
        work=lambda row: CLASSES.get(row["workclass"], "state"),
        rich=lambda row: int(row["income"] == ">50K"),
    )
    schema = Schema(
        (
            Numeric("age", 0, 100),
            Numeric("school", 0, 16),
            Numeric("hours", 0, 100),
            Binary("sex", ("Female", "Male")),
            Categorical("marital", ("never", "married", "before"), other=False, missing=False),
            Categorical("work", ("private", "self", "state", "unknown"), other=False, missing=False),
        ),
        target=Target("rich"),
    )
    return "income above 50,000 dollars, 32,561 adults: logistic", data, schema, dpvb.LogisticRegression, {}


def visits(folder: Path) -> tuple[str, dict[str, np.ndarray], Schema, Any, Any]:
    """Visits to a doctor."""
    rows = list(csv.DictReader((folder / "counts" / "NMES1988.csv").open()))
    data = named(
        rows,
        age=lambda row: 10 * float(row["age"]),
        chronic=lambda row: float(row["chronic"]),
        school=lambda row: float(row["school"]),
        gender=lambda row: row["gender"],
        health=lambda row: row["health"],
        insurance=lambda row: row["insurance"],
        visits=lambda row: min(int(row["visits"]), MAX_COUNT),
    )
    schema = Schema(
        (
            Numeric("age", 60, 110),
            Numeric("chronic", 0, 8),
            Numeric("school", 0, 18),
            Binary("gender", ("female", "male")),
            Categorical("health", ("average", "poor", "excellent"), other=False, missing=False),
            Binary("insurance", ("no", "yes")),
        ),
        target=Target("visits", "negative_binomial", max_count=MAX_COUNT),
    )
    title = f"visits to a doctor, counted to {MAX_COUNT}, 4,406 elderly: negative binomial of dispersion {DISPERSION}"
    return title, data, schema, dpvb.NegativeBinomialRegression, {"max_count": MAX_COUNT, "dispersion": DISPERSION}


def readmissions(folder: Path) -> tuple[str, dict[str, np.ndarray], Schema, Any, Any]:
    """Stays in hospital of a patient that were followed by another one within 30 days, out of all of them."""
    stays: dict[str, list[dict[str, str]]] = {}
    with gzip.open(folder / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        for row in sorted(csv.DictReader(file), key=lambda row: int(row["encounter_id"])):
            stays.setdefault(row["patient_nbr"], []).append(row)
    people = [own[:MAX_TRIALS] for own in stays.values() if own[0]["gender"] in ("Female", "Male")]
    data = named(
        [own[0] for own in people],
        age=lambda row: 5.0 + int(row["age"][1:].split("-")[0]),
        days=lambda row: float(row["time_in_hospital"]),
        gender=lambda row: row["gender"],
        race=lambda row: RACES.get(row["race"], "other"),
        insulin=lambda row: "no" if row["insulin"] == "No" else "yes",
    )
    data["again"] = np.array([sum(row["readmitted"] == "<30" for row in own) for own in people])
    data["stays"] = np.array([len(own) for own in people])
    schema = Schema(
        (
            Numeric("age", 0, 100),
            Numeric("days", 0, 14),
            Binary("gender", ("Female", "Male")),
            Categorical("race", ("Caucasian", "African American", "other"), other=False, missing=False),
            Binary("insulin", ("no", "yes")),
        ),
        target=Target("again", "binomial", max_trials=MAX_TRIALS, trials="stays"),
    )
    title = f"stays readmitted within 30 days out of at most {MAX_TRIALS}, {len(people):,} patients: binomial"
    return title, data, schema, dpvb.BinomialRegression, {"max_trials": MAX_TRIALS}


def design(data: dict[str, np.ndarray], schema: Schema, names: Sequence[str]) -> np.ndarray:
    """What statsmodels multiplies the rows of a table of these names with."""
    column = {"intercept": np.ones(len(data[schema.columns[0].name]))}
    for one in schema.columns:
        if one.kind == "numeric":
            column[one.name] = data[one.name]
        elif one.kind == "binary":
            column[one.name] = data[one.name] == one.values[1]
        else:
            column |= {f"{one.name}={level}": data[one.name] == level for level in one.categories}
    return np.stack([column[name] for name in names], axis=1).astype(float)


def likeliest(x_nd: np.ndarray, data: dict[str, np.ndarray], target: Target) -> Any:
    """What statsmodels fits."""
    family, y_n = sm.families.Binomial(), data[target.name].astype(float)
    if target.kind == "negative_binomial":
        family = sm.families.NegativeBinomial(alpha=1 / DISPERSION)
    if target.kind == "binomial":
        y_n = np.stack([y_n, data[target.trials] - y_n], axis=1)
    return sm.GLM(y_n, x_nd, family=family).fit()


def drawn(
    rng: np.random.Generator, mean_n: np.ndarray, data: dict[str, np.ndarray], target: Target
) -> dict[str, np.ndarray]:
    """The same rows with responses of these means."""
    if target.kind == "negative_binomial":
        y_n = np.minimum(rng.negative_binomial(DISPERSION, DISPERSION / (DISPERSION + mean_n)), MAX_COUNT)
    else:
        y_n = rng.binomial(data[target.trials] if target.kind == "binomial" else 1, mean_n)
    return {**data, target.name: y_n}


def inside(table: CoefficientTable, best_r: np.ndarray) -> list[bool]:
    return [row.low <= best <= row.high for row, best in zip(table, best_r, strict=True)]


def cell(mean: float, low: float, high: float) -> str:
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=20)
    fits = parser.parse_args().fits
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds adult/, counts/ and diabetes130/")
    folder = Path(os.environ["DPVB_DATA"])
    print("## Three analyses beside statsmodels\n")
    print(" ".join((__doc__ or "").split("\n")[2:6]).replace("`--fits R`", str(fits)))
    for analysis in (income, visits, readmissions):
        title, data, schema, kind, options = analysis(folder)
        print(f"\n{title[0].upper()}{title[1:]}, δ = {DELTA:g}.\n")
        print("| coefficient | statsmodels | " + " | ".join(f"dpvb, ε = {epsilon:g}" for epsilon in EPSILONS) + " |")
        print("|" + "---|" * (2 + len(EPSILONS)))
        models = [kind(epsilon=epsilon, delta=DELTA, **options) for epsilon in EPSILONS]
        cells = [[model.fit(Table(data, schema)).coefficients() for _ in range(fits)] for model in models]
        names = cells[0][0].names
        x_nd = design(data, schema, names)
        best = likeliest(x_nd, data, schema.target)
        for place, (name, mean, ends) in enumerate(zip(names, best.params, best.conf_int(), strict=True)):
            rows = [tables[0][place] for tables in cells]
            shown = [cell(mean, *ends), *(cell(row.mean, row.low, row.high) for row in rows)]
            print(f"| {name} | {' | '.join(shown)} |")
        shares = [np.mean([inside(table, best.params) for table in tables]) for tables in cells]
        print(f"| inside, real responses | | {' | '.join(f'{share:.3f}' for share in shares)} |", flush=True)
        rng, shares = np.random.default_rng(0), []
        for model in models:
            hits = []
            for _ in range(fits):
                made = drawn(rng, best.fittedvalues, data, schema.target)
                found = likeliest(x_nd, made, schema.target).params
                hits.append(inside(model.fit(Table(made, schema)).coefficients(), found))
            shares.append(np.mean(hits))
        print(f"| inside, drawn responses | | {' | '.join(f'{share:.3f}' for share in shares)} |", flush=True)


if __name__ == "__main__":
    main()
