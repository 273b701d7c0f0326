"""Sequences as a model reads them: of symbols, or of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.slabs import Integers, Which, places
from dpvb.data.units import Chunk, Held, Units


@dataclass(frozen=True, eq=False, repr=False)
class SequenceRows:
    """Clean private sequences, a row each.

    Attributes:
        indptr: first symbol of each sequence, and the number of all, (n + 1,).
        code: places of the symbols among the public ones, -1 for a gap, (symbols,).
    """

    indptr: Integers
    code: NDArray[np.int32]

    def take(self, which: Which) -> SequenceRows:
        """The sequences with these numbers."""
        indptr, entries = places(self.indptr, which)
        return SequenceRows(indptr, self.code[entries])


@dataclass(frozen=True, eq=False, repr=False)
class NumberRows:
    """Clean private sequences of points of D numbers, a row each.

    Attributes:
        indptr: first point of each sequence, and the number of all, (n + 1,).
        value_td: the numbers, NaN for a missing one, (points, D).
    """

    indptr: Integers
    value_td: NDArray[np.float64]

    def take(self, which: Which) -> NumberRows:
        """The sequences with these numbers."""
        indptr, entries = places(self.indptr, which)
        return NumberRows(indptr, self.value_td[entries])


Rows = TypeVar("Rows", SequenceRows, NumberRows)


class Sequences(Held, Generic[Rows]):
    """Sequences held in memory.

    Args:
        rows: private.
        group: the person of each sequence, (n,); private. None: each sequence is a unit.

    Raises:
        DataFormatError: a group of another length.
    """

    row = "sequence"

    def __init__(self, rows: Rows, group: Iterable[object] | None = None) -> None:
        self._rows: Rows = rows
        self._units = Units(rows.indptr, group)

    def __repr__(self) -> str:
        return f"Sequences(unit={self.unit!r})"

    def chunks(self) -> Iterator[Chunk[Rows]]:
        """Yield all units once."""
        return self._units.chunks(self._rows.take)

    def _keep(self, which: Which) -> None:
        self._rows = self._rows.take(which)
