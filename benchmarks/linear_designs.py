"""The six designs of the linear benchmark, by public schemas: real tables with numeric targets, read from DPVB_DATA."""

import csv
import gzip
import os
import sys
from functools import cache
from pathlib import Path

import numpy as np

from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target

DESIGNS = ("adult_hours", "adult_age", "diab_time", "nmes", "nmes_raw", "phoneme")
SPLITS = range(5)

_ADULT = "age workclass fnlwgt education education_num marital occupation relationship race sex gain loss hours country"
_DIAB = ("race", "gender", "age", "admission_type_id", "discharge_disposition_id", "admission_source_id")
_DIAB += ("payer_code", "A1Cresult", "insulin")
_COUNTS = {
    "num_lab_procedures": 132,
    "num_procedures": 6,
    "num_medications": 81,
    "number_outpatient": 42,
    "number_emergency": 76,
    "number_inpatient": 21,
    "number_diagnoses": 16,
}
_NMES = ("health", "adl", "region", "afam", "gender", "married", "employed", "insurance", "medicaid")


def _folder() -> Path:
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds adult/, diabetes130/, counts/ and clusters/")
    return Path(os.environ["DPVB_DATA"])


def _columns(rows: list[dict], names) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows]) for name in names}


def _categorical(data: dict, names) -> list[Categorical]:
    """The published lists of categories, which these files repeat; one more place for a missing one."""
    return [Categorical(name, tuple(sorted({*data[name]} - {"?"})), other=False) for name in names]


def _adult(target: str):
    names, rows = [*_ADULT.split(), "income"], []
    for name in ("adult.data", "adult.test"):
        lines = (_folder() / "adult" / name).read_text().splitlines()
        rows += [[*map(str.strip, line.split(","))] for line in lines if line.count(",") == 14]
    data = {name: np.array([row[place] for row in rows]) for place, name in enumerate(names)}
    data["income"] = np.char.rstrip(data["income"], ".")
    numbers = {name: data[name].astype(float) for name in ("age", "hours", "gain", "loss")}
    data |= numbers | {"age2": numbers["age"] ** 2}
    kinds = ("workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country")
    money = [Numeric("gain", 0, 99_999, transform="log1p"), Numeric("loss", 0, 4_500, transform="log1p")]
    own = [Numeric("age", 17, 90), Numeric("age2", 289, 8_100)] if target == "hours" else [Numeric("hours", 1, 99)]
    columns = [*own, *money, Binary("income", ("<=50K", ">50K")), *_categorical(data, kinds)]
    return data, columns, target, (1, 99) if target == "hours" else (17, 90)


def _diab():
    with gzip.open(_folder() / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    firsts = np.load(_folder() / "diabetes130" / "indicators.npz")["first_encounter"]
    rows = [row for row, first in zip(rows, firsts, strict=True) if first]
    data = _columns(rows, (*_COUNTS, *_DIAB, "time_in_hospital"))
    data |= {name: data[name].astype(float) for name in (*_COUNTS, "time_in_hospital")}
    counts = [
        Numeric(name, 0, high, transform="log1p" if high in (21, 42, 76) else None) for name, high in _COUNTS.items()
    ]
    return data, [*counts, *_categorical(data, _DIAB)], "time_in_hospital", (1, 14)


def _nmes(raw: bool):
    with (_folder() / "counts" / "NMES1988.csv").open() as file:
        rows = list(csv.DictReader(file))
    counts = ("nvisits", "ovisits", "emergency", "hospital")
    data = _columns(rows, ("visits", *counts, "chronic", "age", "school", "income", *_NMES))
    numbers = {name: data[name].astype(float) for name in ("visits", *counts, "chronic", "age", "school", "income")}
    data |= numbers | {"log_visits": np.log1p(numbers["visits"])}
    columns = [Numeric(name, 0, 120, transform="log1p") for name in counts[:3]]
    columns += [
        Numeric("hospital", 0, 8, transform="log1p"),
        Numeric("chronic", 0, 8),
        Numeric("age", 6.6, 11),
        Numeric("school", 0, 18),
    ]
    columns += [Numeric("income", -2, 60, transform="asinh")]
    target = ("visits", (0, 100)) if raw else ("log_visits", (0, float(np.log(101))))
    return data, [*columns, *_categorical(data, _NMES)], *target


def _phoneme():
    x = np.loadtxt(_folder() / "clusters" / "phoneme.csv", delimiter=",")
    data = {f"x{j}": x[:, j] for j in range(5)} | {"class": x[:, 5].astype(int)}
    columns = [Numeric(f"x{j}", -2, 5) for j in (0, 2, 3, 4)]
    return data, [*columns, Binary("class", (0, 1))], "x1", (-2, 5)


@cache
def load(name: str):
    """(columns of data, columns of the schema, name of the target, its range) of a design."""
    made = {
        "adult_hours": lambda: _adult("hours"),
        "adult_age": lambda: _adult("age"),
        "diab_time": _diab,
        "nmes": lambda: _nmes(False),
        "nmes_raw": lambda: _nmes(True),
        "phoneme": _phoneme,
    }
    return made[name]()


def tables(name: str, seed: int) -> tuple[Table, Table]:
    """Training and test rows; a fifth is held out."""
    data, columns, target, (low, high) = load(name)
    schema = Schema(columns, target=Target(target, kind="numeric", low=low, high=high))
    number = len(data[target])
    order = np.random.default_rng(1000 + seed).permutation(number)
    parts = (order[number // 5 :], order[: number // 5])
    train, test = (Table({key: value[part] for key, value in data.items()}, schema) for part in parts)
    return train, test


def matrices(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm 1 at most, the constant first, and responses in [-1, 1]."""
    chunks = [chunk.rows for chunk in table.design().chunks()]
    return np.vstack([rows.x_nd for rows in chunks]), np.concatenate([rows.y_n for rows in chunks])
