"""Rows as readers found them: compressed sparse rows of limited size, in which only row boundaries are trusted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import real
from dpvb.guards.errors import DataFormatError
from dpvb.kernels.spans import running_total

#: Most columns.
MAX_WIDTH = 2**31 - 1

Integers = NDArray[np.int64]
#: Row numbers, or a range of rows.
Which: TypeAlias = "Integers | slice"


class Slab(NamedTuple):
    """Rows as a reader found them: compressed sparse rows whose ids and values may be anything.

    Only the row boundaries `indptr` are trusted (see `check_slab`).
    """

    indptr: Integers
    indices: NDArray[Any]
    values: NDArray[Any]


def check_slab(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]) -> Slab:
    """Return the three arrays of a compressed sparse row matrix if they define rows; values of any type are read.

    Raises:
        DataFormatError: row boundaries that decrease or overrun the entries; the message holds no value.
    """
    values = real(values)
    if not (indptr.dtype.kind in "iu" and indices.dtype.kind in "iu"):
        raise DataFormatError("A sparse matrix must have integer indptr and indices arrays.")
    sound = indptr.ndim == indices.ndim == values.ndim == 1 and len(indptr) >= 1 and indptr[0] == 0
    if sound:
        indptr = indptr.astype(np.int64)
        # Compared, not subtracted: a difference may wrap around.
        sound = bool(np.all(indptr[1:] >= indptr[:-1])) and indptr[-1] <= min(len(indices), len(values))
    if not sound:
        raise DataFormatError(
            "The sparse matrix is damaged: its indptr must start at 0, never decrease and end within indices "
            "and data. Build it again, for example from its (row, column, count) triples."
        )
    return Slab(indptr, indices[: indptr[-1]], values[: indptr[-1]])


def slab_of_sparse(matrix: Any) -> Slab:
    """Return the rows of a CSR, CSC or COO matrix; reads its arrays only, since SciPy trusts their ids.

    Raises:
        DataFormatError: another format, or a damaged structure.
    """
    if matrix.format not in ("csr", "csc", "coo"):
        raise DataFormatError(f"A sparse matrix must be CSR, CSC or COO, got {matrix.format.upper()}; use .tocsr().")
    num_rows, width = matrix.shape
    if matrix.format == "coo":
        row, column, values = np.asarray(matrix.row), np.asarray(matrix.col), real(np.asarray(matrix.data))
        if not row.shape == column.shape == values.shape or {row.dtype.kind, column.dtype.kind} - set("iu"):
            raise DataFormatError("The sparse matrix is damaged: row, col and data must pair integers and values.")
        return slab_of_triples(row, column, values, num_rows)
    slab = check_slab(np.asarray(matrix.indptr), np.asarray(matrix.indices), np.asarray(matrix.data))
    major = num_rows if matrix.format == "csr" else width
    if len(slab.indptr) != major + 1:
        raise DataFormatError("The sparse matrix is damaged: its indptr has a wrong length.")
    if matrix.format == "csc":
        column = np.repeat(np.arange(width), np.diff(slab.indptr))
        slab = slab_of_triples(slab.indices, column, slab.values, num_rows)
    return slab


def slab_of_triples(row: NDArray[Any], column: NDArray[Any], value: NDArray[Any], num_rows: int) -> Slab:
    """Return the rows 0..num_rows-1 of (row, column, value) triples in any order; other rows are dropped."""
    entry = np.flatnonzero((row >= 0) & (row < num_rows))
    entry = entry[np.argsort(row[entry], kind="stable")]
    lengths = np.bincount(row[entry].astype(np.int64), minlength=num_rows)
    return Slab(running_total(lengths), column[entry], value[entry])


def stacked(slabs: Iterable[Slab]) -> Slab:
    """Return the rows of all slabs, in order; no slab is held on to."""
    lengths, indices, values = [np.empty(0, np.int64)], np.empty(0, np.int32), np.empty(0)
    for slab in slabs:
        lengths.append(np.diff(slab.indptr))
        indices, values = _grown(indices, slab.indices), _grown(values, slab.values)
    return Slab(running_total(np.concatenate(lengths)), indices, values)


def _grown(held: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    """The entries of both, in the place of the first where its type holds them and the system lets it grow."""
    number = len(held)
    held = held.astype(np.result_type(held, more) if number else more.dtype, copy=False)
    held.resize(number + len(more), refcheck=False)
    held[number:] = more
    return held


def places(indptr: Integers, rows: Which) -> tuple[Integers, Which]:
    """Return the boundaries of the chosen rows among themselves, and where their entries are stored."""
    if isinstance(rows, slice):
        first, stop, _ = rows.indices(len(indptr) - 1)
        return indptr[first : stop + 1] - indptr[first], slice(int(indptr[first]), int(indptr[stop]))
    lengths = np.diff(indptr)[rows]
    new_indptr = running_total(lengths)
    return new_indptr, np.repeat(indptr[rows] - new_indptr[:-1], lengths) + np.arange(new_indptr[-1])
