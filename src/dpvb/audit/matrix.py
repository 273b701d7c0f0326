"""Rows of an array as private data: for models that read arrays, and for what the audit sends through a wall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpvb.data.units import Chunk
from dpvb.guards.arrays import Floats, Ints


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

    def chunks(self) -> Iterator[Chunk[Floats]]:
        """All units, in order; one chunk of no units if there are none."""
        for start in range(0, max(1, self.count()), self.chunk):
            stop = min(start + self.chunk, self.count())
            if self.person is None:
                yield Chunk(slice(start, stop), None, stop - start, self.x.__getitem__)
            else:
                own = np.flatnonzero((self.person >= start) & (self.person < stop))
                yield Chunk(own, self.person[own] - start, stop - start, self.x.__getitem__)
