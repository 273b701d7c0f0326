"""Long tables of events, a row each, as sequences: who, what, when.

Rows of one person may stand anywhere, in any of several files. A table that is streamed is cut into files of their own
by a digest of the person, under a key that nobody else has; each of them holds whole persons, and is read by itself.
The files are this user's alone, and are removed when the sequences are no longer needed, at the latest at exit. A
process that is killed leaves them where temporary files are.

A row that names nobody, or has no moment or no part where a column of them is declared, is nobody's. One whose symbol
is none of the public ones is a gap: no window crosses it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.data.csv_files import Dialect
from dpvb.data.persons import digest_of, numbered
from dpvb.data.sequences.rows import SequenceRows, Sequences
from dpvb.data.sequences.symbols import Symbols, arranged
from dpvb.data.shards import Shard, Sharded
from dpvb.data.slabs import Integers
from dpvb.data.spelling import Cells, as_numbers, cells_of, each
from dpvb.data.tables.columns import Categorical
from dpvb.data.tables.ranged import Date, Numeric, check_name
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import persons_of, reader_of
from dpvb.guards.errors import DataFormatError, ParameterError, reason_of

# Files into which a streamed table is cut.
_FILES = 64
_DAYS = Date("time", low="1970-01-01", high="2100-01-01", unit="days")
_ROW = np.dtype([("person", "<u8", 2), ("part", "<u8", 2), ("time", "<f8"), ("code", "<i4")])


class _Piece(NamedTuple):
    """Some rows of a long table; None names nobody."""

    persons: list[object]
    parts: list[object]
    time_n: NDArray[np.float64]
    code_n: NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """A private long table: in each row a person, a symbol, and when it was.

    Names of columns are public, everything else is private.

    Args:
        data: as `dpvb.Table` takes a table: a pandas DataFrame, an Arrow table, a mapping of names to columns, the path
            of a .csv or .parquet file, a list of such paths, or a folder of .parquet files.
        person: column of the person; all rows of a person are one unit.
        symbol: column of the symbols.
        time: column by which a person's rows are ordered, numbers or dates; None: they are in order.
        sequence: column that says which of a person's sequences a row belongs to; None: each person has one.
        stream: True reads a table in bounded memory, over files of its own; for one larger than memory.
        file_format, separator, decimal, encoding: as `dpvb.Table` has them.

    Raises:
        DataFormatError: none of these forms, or a column that is missing.
        ParameterError: for a parameter outside its range.
    """

    data: Any
    person: str = "person"
    symbol: str = "symbol"
    time: str | None = None
    sequence: str | None = None
    stream: bool = False
    file_format: Literal["csv", "parquet"] | None = None
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    _dialect: Dialect = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.stream, bool):
            raise ParameterError(f"stream must be True or False, got {self.stream!r}.")
        check_name(self.person)
        names = [name for name in (self.person, self.symbol, self.time, self.sequence) if name is not None]
        if len(set(names)) < len(names):
            raise ParameterError(f"person, symbol, time and sequence must be different columns, got {names}.")
        object.__setattr__(self, "_dialect", Dialect(self.separator, self.decimal, self.encoding))
        self._reader([0, 1])

    def __repr__(self) -> str:
        return f"Events(person={self.person!r}, symbol={self.symbol!r}, time={self.time!r})"

    def sequences(self, symbols: Symbols) -> Sequences | Partitioned:
        """The persons' sequences of public symbols, held in memory or in files."""
        pieces = self._pieces(symbols)
        if self.stream:
            return Partitioned(pieces)
        found = _joined([*pieces])
        person_n, part_n = (numbered(cells) for cells in (found.persons, found.parts))
        rows, person = arranged(np.where(part_n < 0, -1, person_n), part_n, found.time_n, found.code_n)
        return Sequences(rows, person)

    def _reader(self, values: Sequence[Any]) -> Any:
        """What reads the columns, whose public symbols are these."""
        columns: list[Any] = [Categorical(self.symbol, (*values,), unseen=False, missing=False)]
        columns += [] if self.time is None else [Numeric(self.time, 0, 1)]
        # A part is an id like a person's: as it is written.
        columns += [] if self.sequence is None else [Date(self.sequence, "1970-01-01", "2100-01-01")]
        return reader_of(self.data, Schema((*columns,), group=self.person), self.file_format, self._dialect)

    def _pieces(self, symbols: Symbols) -> Iterator[_Piece]:
        reader, schema = self._reader(symbols.values), Schema((Numeric(self.symbol, 0, 1),), group=self.person)
        for piece in reader.pieces():
            persons = persons_of(piece, schema)
            parts: list[object] = [0] * len(persons) if self.sequence is None else cells_of(piece.cells[self.sequence])
            time_n = np.zeros(len(persons)) if self.time is None else _times(piece.cells[self.time])
            sound_n = np.isfinite(time_n)
            own = [one if sound else None for one, sound in zip(persons, sound_n, strict=True)]
            yield _Piece(own, parts, time_n, symbols.codes(piece.cells[self.symbol]))


class Partitioned(Sharded[SequenceRows]):
    """Persons' sequences in files of this process: see the head of this file."""

    def __init__(self, pieces: Iterator[_Piece]) -> None:
        """Read a long table once."""
        folder = tempfile.mkdtemp(prefix="dpvb-")  # Nobody else may enter it.
        self._removed = weakref.finalize(self, _remove, folder, os.getpid())
        paths = [Path(folder) / f"{number:02d}" for number in range(_FILES)]
        reason = None
        with ExitStack() as undone:
            undone.callback(self._removed)  # A traceback that somebody keeps would keep the files.
            try:
                _cut(pieces, paths)
                undone.pop_all()
            except OSError as error:
                reason = reason_of(error)
        if reason is not None:
            raise DataFormatError(f"stream needs room for the rows among temporary files in {folder!r}: {reason}.")
        super().__init__([Shard(path, partial(_read, path)) for path in paths], unit="person")


def _remove(folder: str, process: int) -> None:
    """Remove the files of this process; one that was forked from it leaves them."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _cut(pieces: Iterator[_Piece], paths: Sequence[Path]) -> None:
    """Write each row to the file that a digest of its person names."""
    key = secrets.token_bytes(32)
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"))
            for path in paths
        ]
        for piece in pieces:
            person_n, part_n = (_digests(cells, key) for cells in (piece.persons, piece.parts))
            row_n = np.empty(len(person_n), dtype=_ROW)
            row_n["person"], row_n["part"], row_n["time"], row_n["code"] = person_n, part_n, piece.time_n, piece.code_n
            somebody = (person_n != 0).any(axis=1) & (part_n != 0).any(axis=1)
            place_n = np.where(somebody, person_n[:, 0] % len(paths), len(paths))
            for place, file in enumerate(files):
                file.write(row_n[place_n == place].tobytes())


def _read(path: Path) -> Sequences:
    """The persons of one file."""
    row_n = np.fromfile(path, dtype=_ROW)
    person_n, part_n = (_ranks(row_n[name]) for name in ("person", "part"))
    return Sequences(*arranged(person_n, part_n, row_n["time"], row_n["code"]))


def _ranks(digest_n: NDArray[np.uint64]) -> Integers:
    """Numbers for digests, equal where they are."""
    whole_n = np.ascontiguousarray(digest_n).view([("high", "<u8"), ("low", "<u8")])[:, 0]
    return np.unique(whole_n, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _digests(cells: Sequence[object], key: bytes) -> NDArray[np.uint64]:
    """Digest of each id, (n, 2); zeros where it names nobody."""
    known = [bytes(16)]

    def place(cell: object) -> int:
        found = digest_of(cell, key)
        if found is not None:
            known.append(found)
        return 0 if found is None else len(known) - 1

    place_n = each(cells, place)
    return np.frombuffer(b"".join(known), "<u8").reshape(-1, 2)[place_n]


def _times(cells: Cells) -> NDArray[np.float64]:
    """Numbers as they are, and dates in days; NaN for what is neither."""
    number_n = as_numbers(cells)
    lacks = np.flatnonzero(np.isnan(number_n))
    number_n[lacks] = _DAYS.numbers(
        cells[lacks] if isinstance(cells, np.ndarray) else [cells[n] for n in lacks.tolist()]
    )
    return number_n


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    return _Piece(
        [one for piece in pieces for one in piece.persons],
        [one for piece in pieces for one in piece.parts],
        np.concatenate([np.empty(0), *(piece.time_n for piece in pieces)]),
        np.concatenate([np.empty(0, np.int32), *(piece.code_n for piece in pieces)]),
    )
