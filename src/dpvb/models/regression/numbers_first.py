"""Sparse rows in units of spreads: numeric columns, which a centre fills, stand before the sparse ones.

A row x̂ holds the constant where there is one, then an entry for each numeric column, then the entries of the other
columns in their order. Each row is made from itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.models.regression.batch import SparseRegressionBatch
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.scaling import Scaling


@dataclass(frozen=True)
class NumbersFirst:
    """Rows x̂ as compressed sparse rows; see `SparseRegressionBatch`."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Floats
    y_n: Floats
    trials_n: Floats
    offset_n: Floats | None = None
    weight_n: Floats | None = None


def order(declared: Declared, constant: float) -> NDArray[np.intp]:
    """The columns of x in the order of x̂, (d,)."""
    chosen = np.zeros(len(declared.unit_d), dtype=np.intp)
    chosen[declared.numeric_j] = 1
    chosen[: int(constant > 0)] = 2
    return np.argsort(-chosen, kind="stable")


def dense(declared: Declared, batch: SparseRegressionBatch) -> Floats:
    """The columns of rows x that are read for the numeric ones, (n, r)."""
    place_d = np.full(len(declared.unit_d), -1)
    place_d[declared.read_r] = np.arange(len(declared.read_r))
    row = np.repeat(np.arange(len(batch.y_n)), np.diff(batch.indptr))
    place = place_d[batch.indices]
    x_nr = np.zeros((len(batch.y_n), len(declared.read_r)))
    x_nr[row[place >= 0], place[place >= 0]] = batch.values[place >= 0]
    return x_nr


def numbers_first(
    scaling: Scaling, declared: Declared, batch: SparseRegressionBatch, constant: float
) -> SparseRegressionBatch:
    """Rows x̂ of rows x; the same rows if no column is numeric."""
    numeric_j = declared.numeric_j
    if not len(numeric_j):
        return batch
    n, wide = len(batch.y_n), len(numeric_j)
    place_d = np.argsort(order(declared, constant))
    row, place = np.repeat(np.arange(n), np.diff(batch.indptr)), place_d[batch.indices].astype(np.int32)
    first, others = place < (constant > 0), place >= wide + (constant > 0)
    num_first, num_others = (np.bincount(row[which], minlength=n) for which in (first, others))
    indptr = np.append(0, np.cumsum(num_first + wide + num_others)).astype(np.int64)
    indices, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1])
    start = indptr[:-1] + num_first
    indices[indptr[row[first]]], values[indptr[row[first]]] = place[first], batch.values[first]
    at_nj = start[:, None] + np.arange(wide)
    indices[at_nj] = np.arange(wide) + int(constant > 0)
    slanted_nr = declared.slants(scaling.mean_d).off(dense(declared, batch), declared.read_r)
    own_nj = slanted_nr[:, np.isin(declared.read_r, numeric_j)]
    values[at_nj] = (own_nj - scaling.centre_d[numeric_j]) * scaling.factor_d[numeric_j]
    # The other entries of a row follow each other in their order.
    before = np.append(0, np.cumsum(num_others))[:-1]
    at = (start + wide - before)[row[others]] + np.arange(int(others.sum()))
    indices[at], values[at] = place[others], batch.values[others]
    return NumbersFirst(indptr, indices, values, batch.y_n, batch.trials_n, batch.offset_n, batch.weight_n)
