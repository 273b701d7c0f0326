"""Privacy units of rows that are held in memory, and chunks of them that are read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.documents.count_rows import running_total, spans
from dpvb.data.persons import by_person

Integers = NDArray[np.int64]
#: Row numbers, or a range of rows.
Which: TypeAlias = "Integers | slice"
Rows = TypeVar("Rows")

# Entries of a chunk, 32 MiB in float64; its rows are limited in `spans`.
CHUNK_ENTRIES = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class LazyChunk(Generic[Rows]):
    """Some consecutive privacy units, whose rows are read and cleaned when they are asked for.

    So units that a batch leaves out cost nothing.

    Attributes:
        which: numbers of the rows in the data.
        unit_of_row: None when each row is its own unit; otherwise the local unit of each row, nondecreasing.
        num_units: number of units in the chunk.
        read: gives the rows with these numbers.
        place: number of the chunk's first unit.
        kept: where the rows of whole chunks are kept by their places for the next pass; None: they are not.
    """

    which: Which
    unit_of_row: Integers | None
    num_units: int
    read: Callable[[Which], Rows]
    place: int = 0
    kept: dict[int, Rows] | None = None

    @property
    def rows(self) -> Rows:
        """What the model reads."""
        if self.kept is None:
            return self.read(self.which)
        if self.place not in self.kept:
            self.kept[self.place] = self.read(self.which)
        return self.kept[self.place]

    def select(self, units: NDArray[np.bool_]) -> LazyChunk[Rows]:
        """Return the chosen units alone, renumbered in their order; `units` is a mask, shape (num_units,)."""
        chosen = int(np.count_nonzero(units))
        if chosen == self.num_units:
            return self
        which = np.arange(self.which.start, self.which.stop) if isinstance(self.which, slice) else self.which
        if self.unit_of_row is None:
            return LazyChunk(which[units], None, chosen, self.read)
        kept = units[self.unit_of_row]
        renumbered = np.cumsum(units, dtype=np.int64) - 1
        return LazyChunk(which[kept], renumbered[self.unit_of_row[kept]], chosen, self.read)


class Units:
    """Rows as privacy units: each row, or each person with all rows.

    Args:
        entry_start: number of entries before each row, and of all, (rows + 1,); chunks are cut by it.
        group: the person of each row; private. None: each row is a unit.

    Raises:
        DataFormatError: a group of another length than the rows.
    """

    def __init__(self, entry_start: Integers, group: Iterable[object] | None) -> None:
        self._entry_start = entry_start
        self._persons = None
        self._kept: dict[int, Any] = {}
        if group is not None:
            order, unit_of_row, unit_start = by_person(group, len(entry_start) - 1)
            self._entry_start = running_total(np.diff(entry_start)[order])
            self._persons = order, unit_of_row, unit_start

    @property
    def unit(self) -> Literal["row", "person"]:
        """What one privacy unit is; public."""
        return "row" if self._persons is None else "person"

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove."""
        return len(self._entry_start) - 1 if self._persons is None else max(len(self._persons[2]) - 1, 0)

    def part(self, start: int, stop: int) -> tuple[Which, Units]:
        """The units start..stop-1 alone: the numbers of their rows, and units of just those rows, in that order."""
        part = Units.__new__(Units)
        part._persons, part._kept = None, {}
        if self._persons is None:
            part._entry_start = self._entry_start[start : stop + 1] - self._entry_start[start]
            return slice(start, stop), part
        order, unit_of_row, first = self._persons
        rows = slice(int(first[start]), int(first[stop]))
        part._entry_start = self._entry_start[rows.start : rows.stop + 1] - self._entry_start[rows.start]
        number = np.arange(rows.stop - rows.start, dtype=np.int64)
        part._persons = number, unit_of_row[rows] - start, first[start : stop + 1] - first[start]
        return order[rows], part

    def chunks(self, read: Callable[[Which], Rows], keep_entries: int = 0) -> Iterator[LazyChunk[Rows]]:
        """Yield all units once.

        Args:
            read: gives the rows with some numbers; the same at every pass.
            keep_entries: rows of the first chunks, up to so many entries, are read in the first pass and kept.
        """
        unit_start = None if self._persons is None else self._persons[2]
        for start, stop in spans(self._entry_start, unit_start, CHUNK_ENTRIES):
            rows = slice(start, stop)
            which: Which = rows
            unit_of_row = None
            if self._persons is not None:
                order, unit, first = self._persons
                rows = slice(int(first[start]), int(first[stop]))
                which, unit_of_row = order[rows], unit[rows] - start
            kept = self._kept if self._entry_start[rows.stop] <= keep_entries else None
            yield LazyChunk(which, unit_of_row, stop - start, read, start, kept)


def cuts(count: int, number: int) -> list[tuple[int, int]]:
    """Cut so many units into at most `number` consecutive ranges of about one length; at least one."""
    number = max(1, min(number, count))
    ends = [count * place // number for place in range(number + 1)]
    return list(pairwise(ends))
