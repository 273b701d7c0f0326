"""Long tables of events, a row each, as sequences: who, what, when.

Rows of one person may stand anywhere, in any of several files. The rows of a table that is streamed are brought
together by person in temporary files (see `partitions`).

A row without a person, or without a moment or a part where a column of them is declared, is ignored. One whose symbol
is none of the public ones is a gap: no window crosses it. A cell of numbers that is not finite is missing.

Rows are ordered by moments. A moment is three numbers, compared one after another. They are a function of only the
cell. Cells that state the same moment have the same three numbers, whatever their types:

=====================================  ==================  ============================  ===============================
a cell                                 first               second                        third
=====================================  ==================  ============================  ===============================
a date, with or without a time of day  days since 1970     microseconds since midnight   the rest, in microseconds
a number, or a duration in             the nearest         what it leaves of the         what both leave
nanoseconds                            float64             decimal digits
anything else, and infinity            NaN                 0                             0
=====================================  ==================  ============================  ===============================

A date with a time zone is read in UTC, and one without as it is written. A float states the decimal number that Python
prints for it, so that 0.1 and "0.1" are equal. So does a text with an exponent. A number among dates is read in days.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.csv_files import Dialect
from dpvb.data.partitions import Partitions, Piece, digests, ranks
from dpvb.data.persons import Together, numbered
from dpvb.data.sequences.content import Content, Points, Rows, Sequences, Symbols, arranged
from dpvb.data.shards import Sharded, files_of
from dpvb.data.spelling import Cells, Floats, cells_of, each, number, spelled
from dpvb.data.stored import Stored
from dpvb.data.tables.columns import Categorical
from dpvb.data.tables.ranged import Date, Numeric, check_name
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import persons_of, reader_of
from dpvb.data.times import instant
from dpvb.guards.errors import ParameterError
from dpvb.guards.watched import Watched

Moment: TypeAlias = "tuple[float, float, float]"

_NEVER = (math.nan, 0.0, 0.0)
_DAY = 86400
#: Steps of a second; dates in these units have years of at most 12 digits, as texts of dates do.
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PLAIN = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
# Decimal numbers of so many digits are their float64's: Python prints these digits again.
_DIGITS_OF_FLOAT = 15
# A float64 has at most 309 digits before the point and 1,074 behind it.
_EXACT = Context(prec=1400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
# From here on, whole numbers share a float64.
_FIRST_SHARED = 2.0**53
# Differences of smaller whole numbers fit int64.
_FIRST_LARGE = 2.0**62


def moment(cell: object) -> Moment:
    """The moment that a cell states; NaN first where it states none."""
    nearest = number(cell)
    if math.isnan(nearest):
        return instant(spelled(cell)) or _NEVER
    if math.isinf(nearest):
        return _NEVER
    kind = type(cell)
    is_small = abs(nearest) < _FIRST_SHARED
    is_short = kind is int or (kind in (str, bytes) and len(cell) <= _DIGITS_OF_FLOAT)  # type: ignore[arg-type]
    if issubclass(kind, float) or (is_small and is_short):
        return nearest, 0.0, 0.0
    return nearest, *_rest(spelled(cell) or "", nearest)


def moments(cells: Cells) -> Floats:
    """The moment of each cell, (n, 3)."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
        return _stacked(np.where(np.isfinite(cells), cells, np.nan))
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iu":
        return _whole(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        unit, step = np.datetime_data(cells.dtype)
        if unit in _PER_SECOND and step == 1:
            return _dates(cells, _PER_SECOND[unit])
    return _each(cells)


def _each(cells: Cells) -> Floats:
    each_moment = list[Moment]()

    def place(cell: object) -> int:
        each_moment.append(moment(cell))
        return len(each_moment) - 1

    place_n = each(cells, place)
    return np.array(each_moment, dtype=np.float64).reshape(-1, 3)[place_n]


def _whole(cells: NDArray[Any]) -> Floats:
    """Moments of an array of whole numbers."""
    nearest_n = cells.astype(np.float64)
    rest_n = np.zeros(len(cells))
    shared_n, large_n = (np.abs(nearest_n) >= first for first in (_FIRST_SHARED, _FIRST_LARGE))
    middle_n = shared_n & ~large_n
    rest_n[middle_n] = cells[middle_n].astype(np.int64) - nearest_n[middle_n].astype(np.int64)
    moment_n = _stacked(nearest_n, rest_n)
    moment_n[large_n] = _each(cells[large_n])
    return moment_n


def _dates(cells: NDArray[Any], per_second: int) -> Floats:
    """Moments of dates that are kept in steps of a second."""
    day_n, step_n = np.divmod(cells.astype(np.int64), _DAY * per_second)
    micro_n, rest_n = step_n * (10**6 // per_second) if per_second <= 10**6 else step_n // 1000, np.zeros(len(cells))
    if per_second > 10**6:
        rest_n = step_n % 1000 / 1000
    return np.where(np.isnat(cells)[:, None], _NEVER, _stacked(day_n, micro_n, rest_n))


def _stacked(first_n: NDArray[Any], second_n: Any = 0.0, third_n: Any = 0.0) -> Floats:
    moment_n = np.zeros((len(first_n), 3))
    with np.errstate(all="ignore"):  # a long double beyond float64
        moment_n[:, 0], moment_n[:, 1], moment_n[:, 2] = first_n, second_n, third_n
    return moment_n


def _rest(text: str, nearest: float) -> tuple[float, float]:
    """Remainder of a number in the spelling of ids after its nearest float, and the next after float64 of that."""
    above, _, below = text.partition("/")
    is_short = len(text) <= _DIGITS_OF_FLOAT and not below
    if is_short or _PLAIN.fullmatch(above) is None or not (below or "1").isdecimal():
        return 0.0, 0.0
    with localcontext(_EXACT):
        rest = Decimal(above) / Decimal(below or 1) - Decimal(spelled(nearest) or 0)
        second = float(rest)
        return second, float(rest - Decimal(second))


class _Piece(NamedTuple):
    """Some rows of a long table; None: without a person."""

    persons: list[object]
    parts: list[object]
    time_n: NDArray[np.float64]
    held_n: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """A private long table: in each row a person, a symbol or some numbers, and when it was.

    Names of columns are public, everything else is private.

    Args:
        data: as `dpvb.Table` takes a table: a pandas DataFrame, an Arrow table, a mapping of names to columns, the path
            of a .csv or .parquet file, a list of such paths, or a folder of .parquet files.
        group: column of the person; all rows of a person are one unit.
        symbol: column of the symbols.
        values: in its place, columns of numbers, in the order of the model's; one text with commas between, too.
        time: column by which a person's rows are ordered, numbers or dates (see `moments`); rows of equal
            times stay in order. None: all rows are in order.
        sequence: column that says which of a person's sequences a row belongs to; the sequences are in the order of
            that person's rows. None: each person has one.
        stream: True reads a table in bounded memory, over files of its own; for one larger than memory.
        file_format, separator, decimal, encoding: as `dpvb.Table` has them.

    Raises:
        DataFormatError: none of these forms, or a column that is missing.
        ParameterError: for a parameter outside its range.

    Examples:
        >>> import dpvb
        >>> from dpvb.data import Events
        >>> table = {"person": [1, 1, 2] * 500, "time": [1, 2, 1] * 500, "symbol": ["a", "b", "a"] * 500}
        >>> chain = dpvb.MarkovChain(symbols=["a", "b"], epsilon=1.0, delta=1e-6).fit(Events(table, time="time"))
        >>> chain.privacy_.unit
        'person'
    """

    data: Any
    group: str = "person"
    symbol: str = "symbol"
    values: str | Sequence[str] | None = None
    time: str | None = None
    sequence: str | None = None
    stream: bool = False
    file_format: Literal["csv", "parquet"] | None = None
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    _dialect: Dialect = field(init=False)
    watched: Watched = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.stream, bool):
            raise ParameterError(f"stream must be True or False, got {self.stream!r}.")
        check_name(self.group)
        names = [name for name in (self.group, *self._read, self.time, self.sequence) if name is not None]
        if len(set(names)) < len(names):
            content = "symbol" if self.values is None else "values"
            raise ParameterError(f"group, {content}, time and sequence must be different columns, got {names}.")
        object.__setattr__(self, "watched", Watched.of(files_of(self.data, "data")))
        object.__setattr__(self, "_dialect", Dialect(self.separator, self.decimal, self.encoding))
        self._reader([0, 1])

    def __repr__(self) -> str:
        held = f"symbol={self.symbol!r}" if self.values is None else f"values={[*self._read]}"
        return f"Events(group={self.group!r}, {held}, time={self.time!r})"

    @property
    def _read(self) -> tuple[str, ...]:
        """Columns of the symbols, or of the numbers."""
        return (self.symbol,) if self.values is None else Points(self.values).names

    def sequences(self, content: Content[Rows]) -> Sequences[Rows] | Sharded[Rows]:
        """The persons' sequences of public symbols, or of numbers, held in memory or in files.

        Raises:
            ParameterError: for symbols of a table of numbers, or the other way, or numbers of another width.
        """
        if isinstance(content, Points) != (self.values is not None):
            needed = "name the columns of the numbers" if self.values is None else "be None, as symbols are asked for"
            raise ParameterError(f"values of the events must {needed}, got {self.values!r}.")
        if isinstance(content, Points) and len(self._read) != len(content):
            raise ParameterError(f"values of the events must be {len(content)} columns, got {[*self._read]}.")
        pieces: Iterator[_Piece] = self._pieces(content)
        if self.stream:
            return Sharded(_partitions(pieces, content), unit="person")
        events = _joined([*pieces], content)
        person_n, part_n = (numbered(cells) for cells in (events.persons, events.parts))
        indptr, order, person = arranged(np.where(part_n < 0, -1, person_n), part_n, events.time_n)
        return Sequences(content.made(indptr, events.held_n[order]), person)

    def _reader(self, values: Sequence[Any]) -> Any:
        """Return the reader of the columns, with these public symbols."""
        columns: list[Any] = [Numeric(name, 0, 1) for name in self._read]
        if self.values is None:
            columns = [Categorical(self.symbol, (*values,), other=False, missing=False)]
        columns += [] if self.time is None else [Numeric(self.time, 0, 1)]
        # A part is an id like a person's: as it is written.
        columns += [] if self.sequence is None else [Date(self.sequence, "1970-01-01", "2100-01-01")]
        return reader_of(self.data, Schema((*columns,), group=self.group), self.file_format, self._dialect)

    def _pieces(self, content: Content[Any]) -> Iterator[_Piece]:
        values = content.values if isinstance(content, Symbols) else ()
        reader, schema = self._reader(values), Schema((Numeric(self._read[0], 0, 1),), group=self.group)
        for piece in reader.pieces():
            persons = persons_of(piece, schema)
            parts: list[object] = [0] * len(persons) if self.sequence is None else cells_of(piece.cells[self.sequence])
            time_n = np.zeros((len(persons), 3)) if self.time is None else moments(piece.cells[self.time])
            sound_n = np.isfinite(time_n[:, 0])
            person_n = [one if sound else None for one, sound in zip(persons, sound_n, strict=True)]
            yield _Piece(person_n, parts, time_n, content.of_columns(piece.cells, self._read))


def _partitions(pieces: Iterator[_Piece], content: Content[Any]) -> Partitions:
    """Files of whole persons, by one pass over a long table."""
    key = secrets.token_bytes(32)

    def stored(piece: _Piece) -> Piece:
        part_n = digests(piece.parts, key)
        somebody: list[bool] = np.asarray(part_n.any(axis=1)).tolist()
        persons = [one if has_part else None for one, has_part in zip(piece.persons, somebody, strict=True)]
        return Piece(persons, Stored({"part": part_n, "time": piece.time_n, "held": piece.held_n}))

    like = stored(_joined([], content)).rows
    return Partitions(map(stored, pieces), like, partial(_sequences, content))


def _sequences(content: Content[Rows], rows: Stored, group: Together) -> Sequences[Rows]:
    """The sequences of the persons of a partition."""
    part_n, time_n, held_n = (rows.columns[name] for name in ("part", "time", "held"))
    indptr, order, person = arranged(group.unit_of_row, ranks(part_n), time_n)
    return Sequences(content.made(indptr, held_n[order]), person)


def _joined(pieces: Sequence[_Piece], content: Content[Any]) -> _Piece:
    return _Piece(
        [one for piece in pieces for one in piece.persons],
        [one for piece in pieces for one in piece.parts],
        np.concatenate([np.empty((0, 3)), *(piece.time_n for piece in pieces)]),
        np.concatenate([content.encoded([]), *(piece.held_n for piece in pieces)]),
    )
