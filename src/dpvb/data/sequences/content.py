"""Contents of sequences, and how private sequences of any content are read.

A content says what one sequence in memory holds, and what the cells of a long table are; where sequences begin and end,
and whose they are, is read in the same way for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.arrow import cells as arrow_cells
from dpvb.data.arrow import import_arrow
from dpvb.data.slabs import Integers, Which, places
from dpvb.data.spelling import Cells, Floats, as_numbers, cells_of
from dpvb.data.tables.matrices import column, is_column, plain_row
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.errors import DataFormatError
from dpvb.kernels.spans import running_total
from dpvb.rows import NumberRows, SequenceRows

_WAY_OUT = (
    "Sequences are a list of one list or array for each, a matrix of one row for each, or one array of all {} with "
    "lengths, the number of {} of each sequence; a long table is a dpvb.data.Events."
)


Rows = TypeVar("Rows", SequenceRows, NumberRows)


def taken(rows: Rows, which: Which) -> Rows:
    """Return the sequences with these numbers."""
    indptr, entries = places(rows.indptr, which)
    held = rows.code if isinstance(rows, SequenceRows) else rows.value_td
    return type(rows)(indptr, held[entries])


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
        return self._units.chunks(partial(taken, self._rows))

    def _keep(self, which: Which) -> None:
        self._rows = taken(self._rows, which)


class Content(ABC, Generic[Rows]):
    """Content of sequences; all of it is public."""

    #: The content, in the plural.
    things: ClassVar[str]

    @abstractmethod
    def made(self, indptr: Integers, held: NDArray[Any]) -> Rows:
        """Sequences from their boundaries and what `encoded` gives."""

    @abstractmethod
    def encoded(self, cells: Cells) -> NDArray[Any]:
        """What stands at each place, (places, ..), as a model reads it; cells are those of places after one another."""

    @abstractmethod
    def of_columns(self, cells: Mapping[str, Cells], names: Sequence[str]) -> NDArray[Any]:
        """The same from columns of a long table, those with these names."""

    @property
    @abstractmethod
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what an array may hold at a place."""

    @abstractmethod
    def own(self, one: object) -> Cells:
        """The cells of one sequence in a list; of what is none its class is asked, and nothing else."""

    def rows(self, data: Any, lengths: Any = None) -> Rows:
        """Sequences in memory.

        A value that is not a list or array is an empty sequence, and a cell that is none of the content is a gap.

        Args:
            data: a list, tuple or 1-D array of sequences; a matrix, whose rows are the sequences, of numbers one with a
                last axis of columns; or with lengths all places after one another. Private.
            lengths: the number of places of each sequence; private but for their number and sum.

        Raises:
            DataFormatError: none of these forms, or lengths that are not those of the data.
        """
        if isinstance(data, np.ma.MaskedArray):
            raise DataFormatError("A masked array is not read; fill it with values that count as missing first.")
        data = _apart(data)
        if lengths is not None:
            return self._flat(data, lengths)
        if isinstance(data, np.ndarray) and data.ndim >= 2 and data.shape[2:] in self.axes:
            number, length, *shape = data.shape
            indptr = np.arange(number + 1, dtype=np.int64) * length
            return self.made(indptr, self.encoded(data.reshape(number * length, *shape)))
        is_flat = isinstance(data, np.ndarray) and data.dtype.kind != "O"
        if is_flat or not (isinstance(data, (list, tuple)) or is_column(data)):
            way_out = _WAY_OUT.format(self.things, self.things)
            raise DataFormatError(f"X must hold sequences, got {type(data).__name__}. {way_out}")
        if type(data).__module__.startswith("pyarrow."):
            each_sequence: list[Cells] = [self.own(_of_arrow(one)) for one in data]
        else:
            each_sequence = [self.own(one) for one in (data if isinstance(data, (list, tuple)) else cells_of(data))]
        kinds = {one.dtype if isinstance(one, np.ndarray) else None for one in each_sequence}
        cells: Cells = []
        if None not in kinds and len(kinds) == 1:
            cells = np.concatenate([one for one in each_sequence if isinstance(one, np.ndarray)])
        else:
            cells = [cell for one in each_sequence for cell in (cells_of(one) if isinstance(one, np.ndarray) else one)]
        return self.made(running_total(np.array([*map(len, each_sequence)], dtype=np.int64)), self.encoded(cells))

    def _flat(self, data: Any, lengths: Any) -> Rows:
        held = self.encoded(self.flat(data))
        length_n = as_numbers(column("lengths", lengths, None))
        if length_n.ndim != 1 or not ((length_n >= 0) & (length_n == np.floor(length_n))).all():
            raise DataFormatError("lengths must be whole numbers from 0, one for each sequence.")
        if length_n.sum() != len(held):
            raise DataFormatError(f"lengths must add up to the number of {self.things} in X; the two differ.")
        return self.made(running_total(length_n), held)

    def flat(self, data: Any) -> Cells:
        """The cells of all places after one another.

        Raises:
            DataFormatError: for what holds none.
        """
        if isinstance(data, np.ndarray) and data.shape[1:] == (1,):
            data = data[:, 0]
        return column("X", data, None)

    def sequences(self, data: Any, lengths: Any = None, group: Iterable[object] | None = None) -> Sequences[Rows]:
        """Sequences as private units; see `rows`, and `Sequences` for group.

        Raises:
            DataFormatError: as both.
        """
        return Sequences(self.rows(data, lengths), group)


def arranged(person_n: Integers, part_n: Integers, moment_n: Floats) -> tuple[Integers, Integers, Integers]:
    """Events as sequences, those of a person and a part in order of their moments, (n, 3).

    The sequences of a person are in the order in which that person's own events begin them, whatever numbers parts
    have. Events of equal moments stay in the order in which they are given; an event of person -1 is ignored.

    Returns:
        indptr, order, person: boundaries of the sequences; the events in their order; the person of each sequence.
    """
    order = np.lexsort((part_n, person_n))
    order = order[np.count_nonzero(person_n < 0) :]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (np.diff(person_n[order]) != 0) | (np.diff(part_n[order]) != 0)
    # The sort is stable, so that the first event of a sequence is the one that was given first.
    begun_n = order[begins][np.cumsum(begins) - 1]
    again = np.lexsort((*moment_n[order].T[::-1], begun_n, person_n[order]))
    order, begun_n = order[again], begun_n[again]
    first = np.flatnonzero(np.diff(begun_n, prepend=-1))
    return np.append(first, len(order)).astype(np.int64), order, person_n[order[first]]


def _apart(data: Any) -> Any:
    """An array of objects as the lists that it was made of: NumPy's dimensions hang on every sequence, odd ones too."""
    if not isinstance(data, np.ndarray):
        return data
    plain = np.ndarray.view(data, np.ndarray)  # numpy.matrix takes no shape but two dimensions
    return plain.tolist() if plain.dtype.kind == "O" else plain


def _of_arrow(one: Any) -> object:
    """The cells of one sequence in an Arrow column of lists, or its points, lists too."""
    values = getattr(one, "values", None)  # of a struct a method
    if values is None or callable(values):
        return None
    types = import_arrow().types
    nested = types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type)
    return [_of_arrow(point) for point in values] if nested else arrow_cells(values)


def is_of_pandas(one: object) -> bool:
    """Return whether an object is one of pandas' own, only from its class."""
    return type(one).__module__.partition(".")[0] == "pandas"


def plain_cells(one: object) -> Cells:
    """The cells of one sequence of single cells."""
    if is_of_pandas(one) and is_column(one):
        return cells_of(one)
    if issubclass(type(one), np.ndarray):
        plain = np.ndarray.view(one, np.ndarray)  # type: ignore[call-overload]
        one = plain[:, 0] if plain.ndim == 2 and plain.shape[1] == 1 else plain
    row = plain_row(one)
    return [] if row is None else row
