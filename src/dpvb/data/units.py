"""Privacy units of rows that are held in memory, and chunks of them that are read when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.persons import Together, by_person
from dpvb.data.slabs import Integers, Which
from dpvb.kernels.spans import running_total, spans

Rows = TypeVar("Rows")

# Entries of a chunk, 32 MiB in float64; its rows are limited in `spans`.
CHUNK_ENTRIES = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Chunk(Generic[Rows]):
    """Some consecutive privacy units, whose rows are read and cleaned when they are asked for; private.

    Units that are not in a batch are never read.

    Attributes:
        which: numbers of the rows in the data.
        unit_of_row: None when each row is its own unit; otherwise the local unit of each row, nondecreasing.
        num_units: number of units in the chunk.
        read: gives the rows with these numbers.
        place: number of the chunk's first unit.
        kept: where the rows of whole chunks are kept by their places for the next pass; None: they are not.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import Chunk
        >>> x = np.array([[1.0], [2.0], [3.0]])
        >>> chunk = Chunk(slice(0, 3), np.array([0, 0, 1]), 2, x.__getitem__)
        >>> chunk.select(np.array([False, True])).rows.tolist()
        [[3.0]]
    """

    which: Which
    unit_of_row: Integers | None
    num_units: int
    read: Callable[[Which], Rows]
    place: int = 0
    kept: dict[int, Rows] | None = None

    @property
    def rows(self) -> Rows:
        """The rows that the model reads."""
        if self.kept is None:
            return self.read(self.which)
        if self.place not in self.kept:
            self.kept[self.place] = self.read(self.which)
        return self.kept[self.place]

    def select(self, units: NDArray[np.bool_]) -> Chunk[Rows]:
        """Return only the chosen units, renumbered in their order; `units` is a mask, shape (num_units,)."""
        chosen = int(np.count_nonzero(units))
        if chosen == self.num_units:
            return self
        which = np.arange(self.which.start, self.which.stop) if isinstance(self.which, slice) else self.which
        if self.unit_of_row is None:
            return Chunk(which[units], None, chosen, self.read)
        row_chosen = units[self.unit_of_row]
        renumbered = np.cumsum(units, dtype=np.int64) - 1
        return Chunk(which[row_chosen], renumbered[self.unit_of_row[row_chosen]], chosen, self.read)


class Units:
    """Rows as privacy units: each row, or each person with all rows.

    Args:
        entry_start: number of entries before each row, and of all, (rows + 1,); chunks are cut by it.
        group: the person of each row; private. `Together`: the rows are in the order of their persons already. None:
            each row is a unit.

    Raises:
        DataFormatError: a group of another length than the rows.
    """

    def __init__(self, entry_start: Integers, group: Iterable[object] | None) -> None:
        self._entry_start = entry_start
        # Numbers of the rows in the order of their persons (None: they are in it), their persons, first row of each.
        self._persons: tuple[Integers | None, Integers, Integers] | None = None
        self._kept: dict[int, Any] = {}
        if isinstance(group, Together):
            self._persons = None, *group
        elif group is not None:
            order, unit_of_row, first = by_person(group, len(entry_start) - 1)
            self._entry_start = running_total(np.diff(entry_start)[order])
            self._persons = order, unit_of_row, first

    @property
    def grouped(self) -> bool:
        """Whether units are persons; public."""
        return self._persons is not None

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove."""
        return len(self._entry_start if self._persons is None else self._persons[2]) - 1

    def part(self, start: int, stop: int) -> tuple[Which, Units]:
        """Only the units start..stop-1: the numbers of their rows, and units of just those rows, in that order."""
        rows, which, unit_of_row = self._rows(start, stop)
        part = copy(self)
        part._kept = {}
        part._entry_start = self._entry_start[rows.start : rows.stop + 1] - self._entry_start[rows.start]
        if self._persons is not None and unit_of_row is not None:
            part._persons = None, unit_of_row, self._persons[2][start : stop + 1] - rows.start
        return which, part

    def chunks(
        self, read: Callable[[Which], Rows], *, max_entries: int | None = None, keep_entries: int = 0
    ) -> Iterator[Chunk[Rows]]:
        """Yield all units once.

        Args:
            read: gives the rows with some numbers; the same at every pass.
            max_entries: most entries of a chunk of several units; None: CHUNK_ENTRIES.
            keep_entries: rows of the first chunks, up to so many entries, are read in the first pass and kept.
        """
        first = None if self._persons is None else self._persons[2]
        for start, stop in spans(self._entry_start, first, max_entries or CHUNK_ENTRIES):
            rows, which, unit_of_row = self._rows(start, stop)
            reused = self._kept if self._entry_start[rows.stop] <= keep_entries else None
            yield Chunk(which, unit_of_row, stop - start, read, start, reused)

    def _rows(self, start: int, stop: int) -> tuple[slice, Which, Integers | None]:
        """Rows of the units start..stop-1: their range in the order of units, their numbers, and the unit of each."""
        if self._persons is None:
            return slice(start, stop), slice(start, stop), None
        order, unit_of_row, first = self._persons
        rows = slice(int(first[start]), int(first[stop]))
        return rows, rows if order is None else order[rows], unit_of_row[rows] - start


class Held(ABC):
    """Private rows in memory, as units.

    Attributes:
        row: what one row is called; public.
    """

    row: ClassVar[str] = "row"
    _units: Units

    @property
    def unit(self) -> str:
        """The privacy unit; public."""
        return "person" if self._units.grouped else self.row

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove."""
        return self._units.count()

    def parts(self, number: int) -> list[Self]:
        """The same units in order, in at most so many sources of their own."""
        count = self.count()
        number = max(1, min(number, count))
        ends = [count * place // number for place in range(number + 1)]
        return [self._part(start, stop) for start, stop in pairwise(ends)]

    def _part(self, start: int, stop: int) -> Self:
        part = copy(self)
        which, part._units = self._units.part(start, stop)
        part._keep(which)
        return part

    @abstractmethod
    def _keep(self, which: Which) -> None:
        """Keep only the rows with these numbers, in this order."""
