"""Rows of an array as private data: for models that read arrays, and for what the audit sends through a wall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpvb.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class MatrixChunk:
    """Some consecutive units; see `source.Chunk`."""

    rows: Floats
    unit_of_row: Ints | None
    num_units: int

    def select(self, units: Bools) -> MatrixChunk:
        """The chunk with the chosen units only."""
        if self.unit_of_row is None:
            return MatrixChunk(self.rows[units], None, int(units.sum()))
        kept = units[self.unit_of_row]
        renumbered = np.cumsum(units) - 1
        return MatrixChunk(self.rows[kept], renumbered[self.unit_of_row[kept]], int(units.sum()))


@dataclass(frozen=True)
class Matrix:
    """A private matrix of one record a row.

    Attributes:
        x: (rows, columns).
        person: (rows,), persons numbered 0, 1, ... in any order; None: each row is a unit.
        chunk: number of units that are read at a time.
    """

    x: Floats
    person: Ints | None = None
    chunk: int = 7

    def count(self) -> int:
        """Number of units."""
        return len(self.x) if self.person is None else int(self.person.max(initial=-1)) + 1

    def chunks(self) -> Iterator[MatrixChunk]:
        """All units, in order."""
        for start in range(0, self.count(), self.chunk):
            stop = min(start + self.chunk, self.count())
            if self.person is None:
                yield MatrixChunk(self.x[start:stop], None, stop - start)
            else:
                own = (self.person >= start) & (self.person < stop)
                yield MatrixChunk(self.x[own], self.person[own] - start, stop - start)
