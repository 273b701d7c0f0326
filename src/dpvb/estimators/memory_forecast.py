"""Forecast of the peak memory of a fit, from public facts only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpvb.core.plan import Plan
from dpvb.data.tables.design import KEPT_ENTRIES
from dpvb.data.tables.table import Table
from dpvb.data.units import CHUNK_ENTRIES
from dpvb.estimators.synthetic_rows import LENGTH
from dpvb.models.regression.curvature_then_scores import MATRIX_BYTES, CurvatureThenScores
from dpvb.results.expected_accuracy import MemoryForecast

# Bytes of float64, in which rows and sums are held.
_NUMBER = 8
# Measured as the peak of a fit to 100 rows (Linux, x86-64, CPython 3.11): Python with dpvb and the libraries of a fit;
# and with kernels that numba compiles at their first use.
_LIBRARIES, _COMPILED = 250e6, 350e6
# Arrays as large as a chunk, at least and at most: the rows, in other coordinates, and what each row adds to a sum.
_LEAST_CHUNKS, _MOST_CHUNKS = 1, 4
# Arrays as large as a release: integer sums, noise, their total and its estimate, at least; two states of a model and
# what an E-step derives from one, in addition.
_LEAST_SUMS, _MOST_SUMS = 4, 10


def memory_forecast(model: Any, releases: Plan, n_units: int, entries: float) -> MemoryForecast:
    """Return the smallest and largest expected peak memory of a fit.

    Args:
        model: Model of the task.
        releases: Its releases.
        n_units: Number of units.
        entries: Entries of a unit.
    """
    number = n_units * entries
    held, chunk = _NUMBER * number, _NUMBER * min(number, CHUNK_ENTRIES)
    # Clean rows, and as much that a model derives from them: see `data.tables.design`.
    kept = 2 * _NUMBER * min(number, KEPT_ENTRIES)
    sums = _NUMBER * max(
        sum(math.prod(block.packed_shape) for block in release.blocks.values()) for release in releases
    )
    least, most = _LIBRARIES + _LEAST_SUMS * sums, _COMPILED + _MOST_SUMS * sums
    if isinstance(model, CurvatureThenScores):
        most = max(most, _COMPILED + MATRIX_BYTES * model.n_features**2)
    least, most = least + _LEAST_CHUNKS * chunk, most + _MOST_CHUNKS * chunk
    # At most twice: rows as they were given, and a copy in their declared ranges; or a file, and its columns.
    return MemoryForecast((least + held, most + 2 * held + kept), (least, most))


def entries_of(model: Any, X: Any) -> float:
    """Return the entries of a unit: encoded columns of a row, words of a document, numbers of a sequence.

    Args:
        model: Model of the task.
        X: One synthetic unit.
    """
    if (width := getattr(model, "n_features", None)) is not None:
        return float(width)
    if isinstance(X, Table):
        return float(len(X.schema.read_columns))
    return float(X.size) if isinstance(X, np.ndarray) else float(LENGTH)
