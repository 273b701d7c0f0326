"""Clean rows of word counts: what the wall hands to a model, and how raw numbers become it.

A fault inside somebody's document must not show. So nothing in this module raises, warns or logs because
of a number that it finds in a row; the row, or the entry, contributes zero instead:

=====================================  ============================================
found in a row                         becomes
=====================================  ============================================
a negative, NaN or infinite count,
or what is no number                   the whole row is empty
a word id outside 0..width-1           that entry is dropped
a count below 2^-40 (also zero, -0.0)  that entry is dropped
a count above 2^40                     2^40 (clipping bounds its effect anyway)
the same word twice                    the counts are added
a fractional count                     kept: rescaled and weighted counts are honest
=====================================  ============================================

The two bounds keep every later product and quotient of a count finite in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.data.spelling import as_numbers, real
from dpvb.errors import DataFormatError

MAX_ROWS = 8192
MAX_ENTRIES = 2**20
MAX_COUNT = 2.0**40
MIN_COUNT = 2.0**-40
MAX_WIDTH = 2**31 - 1

_Integers = NDArray[np.int64]


class Slab(NamedTuple):
    """Rows as a reader found them: compressed sparse rows whose ids and values may be anything.

    Only the row boundaries `indptr` are trusted (see `check_slab`).
    """

    indptr: _Integers
    indices: NDArray[Any]
    values: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class CountRows:
    """Documents as compressed sparse rows of counts; private.

    Ids in a row increase strictly and lie in 0..width-1; counts lie in [2^-40, 2^40].

    Attributes:
        indptr: row n holds entries indptr[n] to indptr[n+1], shape (rows + 1,), int64.
        indices: word ids, shape (entries,), int32.
        counts: how often each word occurs, shape (entries,), float64.
        width: number of vocabulary terms; public.
    """

    indptr: _Integers
    indices: NDArray[np.int32]
    counts: NDArray[np.float64]
    width: int

    def __repr__(self) -> str:
        return f"CountRows(width={self.width})"

    @property
    def num_rows(self) -> int:
        """Number of rows; private under add/remove."""
        return len(self.indptr) - 1

    def csr(self) -> sparse.csr_array[Any]:
        """Return the rows as a SciPy array that shares their memory."""
        shape = (self.num_rows, self.width)
        return sparse.csr_array((self.counts, self.indices, self.indptr), shape=shape)

    def span(self, start: int, stop: int) -> CountRows:
        """Return the rows start..stop-1 without copying their entries."""
        first, last = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - first
        return CountRows(indptr, self.indices[first:last], self.counts[first:last], self.width)

    def take(self, rows: _Integers) -> CountRows:
        """Return the rows with these numbers, in this order."""
        lengths = np.diff(self.indptr)[rows]
        indptr = running_total(lengths)
        entries = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return CountRows(indptr, self.indices[entries], self.counts[entries], self.width)


@dataclass(frozen=True, eq=False, repr=False)
class Chunk:
    """Some consecutive privacy units with all their rows; private.

    Attributes:
        rows: the documents.
        unit_of_row: None when each row is its own unit; otherwise the unit (0..num_units-1) of each
            row, shape (rows,), int64, nondecreasing.
        num_units: number of units in the chunk.
    """

    rows: CountRows
    unit_of_row: _Integers | None
    num_units: int

    def __repr__(self) -> str:
        return f"Chunk(width={self.rows.width})"

    def select(self, units: NDArray[np.bool_]) -> Chunk:
        """Return the chosen units alone, renumbered in their order; `units` is a mask, shape (num_units,)."""
        chosen = int(np.count_nonzero(units))
        if chosen == self.num_units:
            return self
        if self.unit_of_row is None:
            return Chunk(self.rows.take(np.flatnonzero(units)), None, chosen)
        kept = np.flatnonzero(units[self.unit_of_row])
        renumbered = np.cumsum(units, dtype=np.int64) - 1
        return Chunk(self.rows.take(kept), renumbered[self.unit_of_row[kept]], chosen)


@runtime_checkable
class Source(Protocol):
    """Private documents that can be read as often as needed, in bounded memory; only the wall reads them."""

    @property
    def width(self) -> int:
        """Number of vocabulary terms; public."""
        ...

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The terms, where they were given; public."""
        ...

    @property
    def unit(self) -> str:
        """What one privacy unit is, "document" or "person"; public."""
        ...

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove. May take one pass over the data."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """Yield all units once, a person's rows never split, in the same order at each call."""
        ...


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
    kept = np.flatnonzero((row >= 0) & (row < num_rows))
    kept = kept[np.argsort(row[kept], kind="stable")]
    lengths = np.bincount(row[kept].astype(np.int64), minlength=num_rows)
    return Slab(running_total(lengths), column[kept], value[kept])


def clean_slabs(slabs: Iterable[Slab], width: int) -> Iterator[CountRows]:
    """Yield all rows of the slabs, cleaned, in pieces that keep MAX_ROWS and MAX_ENTRIES."""
    for slab in slabs:
        for start, stop in spans(slab.indptr):
            first, last = slab.indptr[start], slab.indptr[stop]
            indptr = slab.indptr[start : stop + 1] - first
            yield clean(Slab(indptr, slab.indices[first:last], slab.values[first:last]), width)


def clean(slab: Slab, width: int) -> CountRows:
    """Return the rows with every fault turned into zero, as this module's table says."""
    num_rows = len(slab.indptr) - 1
    counts = as_numbers(slab.values)
    row = np.repeat(np.arange(num_rows), np.diff(slab.indptr))
    faulty = np.zeros(num_rows, dtype=np.bool_)
    faulty[row[~((counts >= 0) & (counts < np.inf))]] = True
    known = (slab.indices >= 0) & (slab.indices < width)
    kept = known & (counts >= MIN_COUNT) & ~faulty[row]
    cell = row[kept] * width + slab.indices[kept].astype(np.int64)
    counts = np.minimum(counts[kept], MAX_COUNT)
    if not np.all(cell[1:] > cell[:-1]):
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        cell = cell[first]
        counts = np.minimum(np.add.reduceat(counts[order], first), MAX_COUNT)
    row, word = np.divmod(cell, width)
    indptr = running_total(np.bincount(row, minlength=num_rows))
    return CountRows(indptr, word.astype(np.int32), counts, width)


def concatenate(pieces: Iterable[CountRows], width: int) -> CountRows:
    """Return the rows of all pieces, in order."""
    held = list(pieces)
    lengths = [np.diff(piece.indptr) for piece in held]
    return CountRows(
        running_total(np.concatenate([np.empty(0, np.int64), *lengths])),
        np.concatenate([np.empty(0, np.int32), *(piece.indices for piece in held)]),
        np.concatenate([np.empty(0, np.float64), *(piece.counts for piece in held)]),
        width,
    )


def spans(
    indptr: _Integers, unit_start: _Integers | None = None, max_entries: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of units that keep MAX_ROWS and MAX_ENTRIES where a single unit allows it.

    `unit_start` holds the first row of each unit and the number of rows; None: each row is a unit.
    """
    max_entries = MAX_ENTRIES if max_entries is None else max_entries
    entry_start = indptr if unit_start is None else indptr[unit_start]
    num_units = len(entry_start) - 1
    start = 0
    while start < num_units:
        if unit_start is None:
            stop = start + MAX_ROWS
        else:
            stop = int(np.searchsorted(unit_start, unit_start[start] + MAX_ROWS, side="right")) - 1
        by_entries = int(np.searchsorted(entry_start, entry_start[start] + max_entries, side="right")) - 1
        stop = min(max(min(stop, by_entries), start + 1), num_units)
        yield start, stop
        start = stop


def running_total(lengths: NDArray[Any]) -> _Integers:
    """Return 0, l_0, l_0 + l_1, ...: row boundaries from row lengths."""
    total = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=total[1:])
    return total
