"""Contents of sequences, symbols or points, and how private sequences of any content are read.

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
from dpvb.data.spelling import Categories, Cells, Floats, as_numbers, cells_of, number
from dpvb.data.tables.columns import check_categories
from dpvb.data.tables.matrices import array_of, column, has_columns, is_arrow_table, is_column, plain_row
from dpvb.data.tables.ranged import check_name
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer, check_number
from dpvb.guards.suppress_output import silence
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
            DataFormatError: not a list, array or column, or lengths that are not those of the data.
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
        if isinstance(data, np.ndarray):
            # Its type and its dimensions may hang on one cell: an array of another form is read as the list it is.
            data = data.tolist()
        if not (isinstance(data, (list, tuple)) or is_column(data)):
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


# Most symbols; a model has a number for each pair of them at least, and a file of a few bytes may say any number.
_MOST_SYMBOLS = 10_000


class Symbols(Content[SequenceRows]):
    """A public set of symbols, compared in the spelling of categories.

    Args:
        given: the symbols; a number V for 0 to V - 1; or one text with commas between.

    Raises:
        ParameterError: fewer than two, or more than 10,000, one twice, or what is neither text nor number.
    """

    things: ClassVar[str] = "symbols"

    def __init__(self, symbols: object) -> None:
        if isinstance(symbols, str):
            symbols = [name.strip() for name in symbols.split(",")]
        if isinstance(symbols, (int, np.integer)) and not isinstance(symbols, bool):
            symbols = [*range(check_integer("symbols", symbols, low=2, high=_MOST_SYMBOLS))]
        if isinstance(symbols, (list, tuple)) and len(symbols) > _MOST_SYMBOLS:
            raise ParameterError(
                f"symbols must be at most {_MOST_SYMBOLS}, got {len(symbols)}. Join symbols that are alike."
            )
        self.values = check_categories("symbols", "values", symbols)
        if len(self.values) < 2:
            raise ParameterError(
                f"symbols must be at least two, as a list or one text with commas between, got {symbols!r}."
            )
        self._categories = Categories(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, cells: Cells) -> NDArray[np.int32]:
        """The place of each cell among the symbols; -1, a gap, for what is none of them."""
        return self._categories.places(cells, other=-1, missing=-1).astype(np.int32)

    def made(self, indptr: Integers, held: NDArray[Any]) -> SequenceRows:
        """Sequences of places of symbols."""
        return SequenceRows(indptr, held)

    def encoded(self, cells: Cells) -> NDArray[np.int32]:
        """As `codes`."""
        return self.codes(cells)

    def of_columns(self, cells: Mapping[str, Cells], names: Sequence[str]) -> NDArray[np.int32]:
        """The codes of one column."""
        (name,) = names
        return self.codes(cells[name])

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """One cell."""
        return ((),)

    def own(self, one: object) -> Cells:
        """The cells of a list or a column."""
        return plain_cells(one)


# Most columns; a model of sequences has a number for each pair of them at least.
_MOST_COLUMNS = 1000
# Points that are brought within their bounds at a time.
_SLAB = 2**16


class Points(Content[NumberRows]):
    """Public columns; a point has a number of each.

    A number is missing, NaN, if its cell is not a finite number. A point of another width is missing throughout.

    Args:
        columns: their names, as a list or as one text with commas between; a number D for x0 to x(D-1).
        low, high: public range of each column, numbers or (D,): values outside are brought to its ends.
        max_row_norm: in their place, a public bound on the norm of a point: longer ones are clipped to it, whatever
            of them is missing. With neither numbers are as they come.

    Attributes:
        names: of the columns.
        centre_d, unit_d: a number x is read as (x - centre)/unit: a range is [-1, 1], or a point's norm at most 1.
        reach: the norm that a point can have then; infinity without a bound.

    Raises:
        ParameterError: for columns that are none, or for bounds that are none.
    """

    things: ClassVar[str] = "points"

    def __init__(self, columns: object, low: Any = None, high: Any = None, max_row_norm: float | None = None) -> None:
        self.names = _names(columns)
        d = len(self.names)
        self.centre_d, self.unit_d, self.reach = np.zeros(d), np.ones(d), np.inf
        self._low_d, self._high_d, self._shortens = np.full(d, -np.inf), np.full(d, np.inf), max_row_norm is not None
        if max_row_norm is not None:
            if low is not None or high is not None:
                raise ParameterError("max_row_norm must be None with low and high.")
            norm = check_number("max_row_norm", max_row_norm, low=1e-100, high=1e100)
            self.unit_d, self.reach = np.full(d, norm), 1.0
        elif low is not None or high is not None:
            self._low_d, self._high_d = (_ends(name, end, d) for name, end in (("low", low), ("high", high)))
            if not (self._low_d < self._high_d).all():
                raise ParameterError(f"low must be below high for each column, got {low!r} and {high!r}.")
            self.centre_d = self._low_d / 2 + self._high_d / 2
            self.unit_d, self.reach = self._high_d / 2 - self._low_d / 2, float(np.sqrt(d))

    def __len__(self) -> int:
        return len(self.names)

    def made(self, indptr: Integers, held: NDArray[Any]) -> NumberRows:
        """Sequences of points."""
        return NumberRows(indptr, held)

    def encoded(self, cells: Cells) -> Floats:
        """Numbers within their bounds and in units of these, (points, D), each point by itself."""
        made_td = np.empty((len(cells), len(self)))
        for first in range(0, len(cells), _SLAB):
            made_td[first : first + _SLAB] = self._bounded(self._points(cells[first : first + _SLAB]))
        return made_td

    def _bounded(self, x_td: Floats) -> Floats:
        """Points within their bounds and in units of these."""
        with np.errstate(all="ignore"):
            x_td = np.clip(np.where(np.isfinite(x_td), x_td, np.nan), self._low_d, self._high_d)
            x_td = (x_td - self.centre_d) / self.unit_d
            if not self._shortens:
                return x_td
            most_t = np.nanmax(np.abs(x_td), axis=1, initial=0.0)
            short_td = np.nan_to_num(x_td / np.where(most_t > 0, most_t, 1.0)[:, None])
            # One column after another, so that a point's bits are its own.
            norm_t = most_t * np.sqrt(sum((short_td[:, d] ** 2 for d in range(len(self))), np.zeros(len(x_td))))
            return np.asarray(x_td * np.minimum(1.0, 1.0 / np.where(norm_t > 0, norm_t, 1.0))[:, None])

    def of_columns(self, cells: Mapping[str, Cells], names: Sequence[str]) -> Floats:
        """Points from columns, whatever those are called there."""
        return self.encoded(np.column_stack([as_numbers(cells[name]) for name in names]))

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """A point; with one column also a single number."""
        return ((len(self),), ()) if len(self) == 1 else ((len(self),),)

    def own(self, one: object) -> Cells:
        """The points of an array, a frame or a list, (points, D); none of anything else, or of another width."""
        if is_of_pandas(one):
            one = array_of(one) if has_columns(one) else plain_cells(one)
        elif issubclass(type(one), np.ndarray):
            one = np.ndarray.view(one, np.ndarray)  # type: ignore[call-overload]
        array: Any = one if issubclass(type(one), np.ndarray) else None
        if array is not None and array.ndim > 0 and array.shape[1:] in self.axes:
            return self._points(array)
        row = plain_row(one)
        return self._points([] if row is None else row)

    def flat(self, data: Any) -> Cells:
        """The points of an array, a frame or a list.

        Raises:
            DataFormatError: for what holds none, or an array of another width.
        """
        if has_columns(data) or is_arrow_table(data):
            data = array_of(data)
        if isinstance(data, np.ndarray) and data.ndim == 2:
            if data.shape[1] != len(self):
                raise DataFormatError(f"X must have {len(self)} columns, got {data.shape[1]}.")
            return data
        if isinstance(data, (list, tuple)):
            return [*data]
        return column("X", data, None)

    def _points(self, cells: Cells) -> Floats:
        """Numbers of any size, (points, D)."""
        if isinstance(cells, np.ndarray) and (cells.ndim == 2 or (len(self) == 1 and cells.dtype.kind != "O")):
            return as_numbers(cells).reshape(len(cells), len(self))
        point_td = np.full((len(cells), len(self)), np.nan)
        with silence():
            for t, cell in enumerate(cells):
                row = plain_row(cell)
                if row is not None and len(row) == len(self):
                    point_td[t] = [number(one) for one in row] if not isinstance(row, np.ndarray) else as_numbers(row)
                elif len(self) == 1 and row is None:
                    point_td[t] = number(cell)
        return point_td


def _names(columns: object) -> tuple[str, ...]:
    """Names of public columns."""
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    if isinstance(columns, (int, np.integer)) and not isinstance(columns, bool):
        columns = [f"x{d}" for d in range(check_integer("columns", columns, low=1, high=_MOST_COLUMNS))]
    if not isinstance(columns, (list, tuple)) or not 1 <= len(columns) <= _MOST_COLUMNS:
        raise ParameterError(f"columns must be 1 to {_MOST_COLUMNS} names, or their number, got {columns!r}.")
    for name in columns:
        check_name(name)
    if len(set(columns)) < len(columns):
        raise ParameterError(f"columns must have different names, got {[*columns]}.")
    return tuple(columns)


def _ends(name: str, given: Any, width: int) -> Floats:
    """The lower or upper end of each column's range."""
    try:
        end_d = np.array(np.broadcast_to(np.asarray(given, dtype=np.float64), (width,)))
    except (TypeError, ValueError):
        end_d = np.full(width, np.nan)
    if given is None or not (np.abs(end_d) <= 1e100).all():
        raise ParameterError(f"{name} must be a number or {width} of them, one for each column, got {given!r}.")
    return end_d
