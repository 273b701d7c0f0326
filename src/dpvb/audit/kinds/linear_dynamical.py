"""Linear dynamical systems as the audit wants them: records that are sequences of points, of a length of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data.sequences.content import Sequences
from dpvb.data.sequences.numbers import Numbers
from dpvb.estimators.linear_dynamical import LinearDynamicalSystem
from dpvb.guards.arrays import Floats
from dpvb.rows.sequences import NumberRows

# Columns, and points of the longest sequence.
_WIDTH, _LONGEST = 2, 6
_NUMBERS = Numbers(_WIDTH, -1.0, 1.0)


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """One."""
    return {"": of_points}


def of_points() -> Case:
    """The case of a small system; a hostile record is at the ends of the ranges, or beyond."""
    ends = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [1e300, -1e300], [np.nan, 1.0], [0.0, 0.0]])
    constant = np.tile(ends, _LONGEST)
    turning = np.tile(np.array([1.0, 1.0, -1.0, -1.0]), (1, _LONGEST // 2))
    short = np.full((2, _LONGEST * _WIDTH), 1e3)
    lengths = [*(_LONGEST,) * (len(ends) + 1), 1, 3]
    hostile = np.column_stack([lengths, np.vstack([constant, turning, short])])
    budget: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "low": -1.0, "high": 1.0}
    estimator = LinearDynamicalSystem(2, columns=_WIDTH, window=3, max_length=_LONGEST, **budget)

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _LONGEST + 1, size=(n, 1))
        return np.hstack([length, rng.uniform(-1, 1, size=(n, _LONGEST * _WIDTH))])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        rows = _NUMBERS.rows(_own(matrix))
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    return of_estimator("LinearDynamicalSystem", estimator, sequences, records, hostile, columns, responses=1)


def sequences(matrix: Floats, group: Any = None) -> Sequences[NumberRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    return _NUMBERS.sequences(_own(matrix), group=group)


def _own(matrix: Floats) -> list[Floats]:
    """The points of each record."""
    matrix = np.asarray(matrix, dtype=np.float64)
    most = (matrix.shape[1] - 1) // _WIDTH
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, most).astype(np.int64)
    return [row[1 : 1 + length * _WIDTH].reshape(length, _WIDTH) for row, length in zip(matrix, length_n, strict=True)]
