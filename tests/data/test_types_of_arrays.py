"""The type of an array is private: a single odd cell makes it another one, and only the shape says what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.core import loop
from dpvb.errors import DataFormatError

N = 8
X = np.linspace(-1, 1, 2 * N).reshape(N, 2)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ROWS: dict[str, Any] = {**BUDGET, "low": -1, "high": 1}

#: A cell that one person's record may hold, by the type that the array then has.
ODD: dict[str, Any] = {
    "float": 1.0,
    "complex": 1j,
    "object": None,
    "text": "x",
    "bytes": b"x",
    "large": 2**70,
    "date": datetime(2020, 1, 1),
    "truth": True,
}


def logistic(y: Any = X[:, 0] > 0, group: Any = None, **own: Any) -> None:
    bounds = {f"max_{name}": 2.0 for name in own if name != "weights"}
    bounds |= {"max_weight": 2.0} if "weights" in own else {}
    dpvb.LogisticRegression(**ROWS, **bounds).fit(X, y, group=group, **own)


#: Calls with a column of one value a row.
CALLS: dict[str, Callable[[Any], object]] = {
    "labels": logistic,
    "numbers": lambda y: dpvb.LinearRegression(**ROWS, y_range=(-1, 1)).fit(X, y),
    "classes": lambda y: dpvb.NaiveBayes(classes=(0, 1), vocabulary=["a"], **BUDGET).fit(["a"] * N, y),
    "persons": lambda group: logistic(group=group),
    "weights": lambda weights: logistic(weights=weights),
    "offset": lambda offset: logistic(offset=offset),
    "exposure": lambda exposure: dpvb.PoissonRegression(**ROWS, max_count=2, max_exposure=2.0).fit(
        X, np.ones(N), exposure=exposure
    ),
    "trials": lambda trials: dpvb.BinomialRegression(**ROWS, max_trials=2).fit(X, np.ones(N), trials),
    "symbols": lambda column: dpvb.MarkovChain(symbols=["x", "y"], **BUDGET).fit(column),
    "points": lambda column: dpvb.LinearDynamicalSystem(1, columns=2, low=-1, high=1, **BUDGET).fit(column),
    "values": lambda values: dpvb.private_range(values, low=-1, high=1, **BUDGET),
}


class Reached(Exception):  # noqa: N818
    """A fit has its rows; what follows is behind the wall."""


def outcome(call: Callable[[Any], object], column: Any) -> object:
    """The error that a call raises before its rows are behind the wall, and its warnings."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            call(column)
            error: object = None
        except Reached:
            error = "reached"
        except DataFormatError as refused:
            error = str(refused)
    return error, sorted({one.category.__name__ for one in heard})


@pytest.mark.guarantees("cells in memory")
@kills("readers", "a column of one value a row that is refused by the type of its array")
@edit("data/tables/matrices.py", "array.shape[1:] == (1,):", 'array.dtype.kind == "O" and array.shape[1:] == (1,):')
@kills("readers", "persons of several parts that are refused by the type of their array")
@edit("data/persons.py", "    if not isinstance(group, np.ndarray) or", '    if getattr(group, "dtype", "O") != "O" or')
@kills("readers", "responses in one column that are refused by the type of their array")
@edit(
    "estimators/regression.py", "y.ndim == 2 and y.shape[1] == 1:", 'y.dtype.kind in "biufOUS" and y.shape[1:] == (1,):'
)
@pytest.mark.parametrize("width", [0, 1, 2])
def test_no_cell_decides_by_its_type_what_is_refused(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of columns, of arrays of one column and of two: the same error or warning, whatever one cell is."""

    def reached(*anything: Any, **named: Any) -> None:
        raise Reached

    monkeypatch.setattr(loop, "fit", reached)
    for name, call in CALLS.items():
        found = {}
        for kind, odd in ODD.items():
            column = np.array([*map(float, X[:-1, 0] > 0), odd])
            shaped = column if width == 0 else np.stack([column] * width, axis=1)
            found[kind] = outcome(call, shaped)
            found[f"{kind} as objects"] = outcome(call, shaped.astype(object))
        assert len({*map(repr, found.values())}) == 1, (name, found)
