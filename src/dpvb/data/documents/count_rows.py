"""Clean rows of word counts: what the wall hands to a model, and how raw numbers become it.

A fault inside a document must not show. So nothing in this module raises, warns or logs because
of a number that it finds in a row; the row, or the entry, contributes zero instead:

=====================================  ============================================
found in a row                         becomes
=====================================  ============================================
a negative, NaN or infinite count,
or a value that is not a number        the whole row is empty
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
from typing import Protocol, runtime_checkable

import numpy as np

from dpvb.data.slabs import Slab, Which, places, stacked
from dpvb.data.spelling import as_numbers
from dpvb.data.stored import Stored
from dpvb.data.units import Chunk
from dpvb.kernels.spans import running_total, spans
from dpvb.rows import CountRows

MAX_COUNT = 2.0**40
MIN_COUNT = 2.0**-40


@runtime_checkable
class DocumentSource(Protocol):
    """Private documents that can be read as often as needed, in bounded memory; only the wall reads them.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import BagOfWords, DocumentSource
        >>> documents = BagOfWords(np.array([[2, 0, 1], [0, 1, 0]]))
        >>> isinstance(documents, DocumentSource), documents.width, documents.unit
        (True, 3, 'document')
    """

    @property
    def width(self) -> int:
        """Number of vocabulary terms; public."""

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The terms, where they were given; public."""

    @property
    def unit(self) -> str:
        """The privacy unit, "document" or "person"; public."""

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove. May take one pass over the data."""

    def chunks(self) -> Iterator[Chunk[CountRows]]:
        """Yield all units once, a person's rows never split, in the same order at each call."""


def clean_slabs(slabs: Iterable[Slab], width: int) -> Iterator[CountRows]:
    """Yield all rows of the slabs, cleaned, in pieces that keep MAX_ROWS and MAX_ENTRIES."""
    for slab in slabs:
        for start, stop in spans(slab.indptr):
            indptr, entries = places(slab.indptr, slice(start, stop))
            yield clean(Slab(indptr, slab.indices[entries], slab.values[entries]), width)


def clean(slab: Slab, width: int) -> CountRows:
    """Return the rows with every fault turned into zero, as in this module's table."""
    num_rows = len(slab.indptr) - 1
    counts = as_numbers(slab.values)
    row = np.repeat(np.arange(num_rows), np.diff(slab.indptr))
    faulty = np.zeros(num_rows, dtype=np.bool_)
    faulty[row[~((counts >= 0) & (counts < np.inf))]] = True
    in_width = (slab.indices >= 0) & (slab.indices < width)
    counted = in_width & (counts >= MIN_COUNT) & ~faulty[row]
    cell = row[counted] * width + slab.indices[counted].astype(np.int64)
    counts = np.minimum(counts[counted], MAX_COUNT)
    if not np.all(cell[1:] > cell[:-1]):
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        cell = cell[first]
        counts = np.minimum(np.add.reduceat(counts[order], first), MAX_COUNT)
    row, word = np.divmod(cell, width)
    indptr = running_total(np.bincount(row, minlength=num_rows))
    return CountRows(indptr, word.astype(np.int32), counts, width)


def stored(rows: CountRows) -> Stored:
    """Return clean rows as a file can hold them."""
    return Stored({}, Slab(rows.indptr, rows.indices, rows.counts))


def restored(rows: Stored, width: int) -> CountRows:
    """Return the rows that `stored` gave."""
    assert rows.slab is not None
    return CountRows(*rows.slab, width)


def concatenate(pieces: Iterable[CountRows], width: int) -> CountRows:
    """Return the rows of all pieces, in order."""
    return CountRows(*stacked(Slab(piece.indptr, piece.indices, piece.counts) for piece in pieces), width)


def taken(rows: CountRows, which: Which) -> CountRows:
    """Return the rows with these numbers, in this order; the entries of a range of rows are not copied."""
    indptr, entries = places(rows.indptr, which)
    return CountRows(indptr, rows.indices[entries], rows.counts[entries], rows.width)
