"""CSV files: bytes are cut into records by the state of quotes, and each record is read by itself.

A quote opens at the start of a field only; inside quotes two of them stand for one; what follows a closing quote is
text until the next separator or line end. A line feed outside quotes ends a record, a carriage return before it is
dropped; any other is text. A byte order mark is dropped only from the header, which is public. Where the header's
own line end is a single carriage return, nothing tells it from the records, so that the file is refused.

The format of a file is public, and declared by its reader (`Dialect`). In every accepted encoding a byte of
ASCII is only that sign, so that records are cut before anything is decoded, and a byte that stands for nothing is a
fault of its own field. In UTF-16 one odd byte would shift all that follows: it is not read.

========================================  ======================================================================
damage                                    reaches
========================================  ======================================================================
a wrong number of fields                  that record, which is faulty
bytes that are none of the encoding's     their own field
a record of more than 16 MiB              that record, which is faulty; the quotes in it are followed to its end
a quote that is never closed              all records up to that with the next quote, or to the end of the file:
                                          one faulty record. No CSV writer leaves a quote open
a blank line                              skipped; in a file of one column it is an empty field
========================================  ======================================================================
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from dpvb.data.readable import BOM, MAX_DOCUMENT_BYTES, open_binary, pieces
from dpvb.data.spelling import UNREADABLE
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice

#: Fields of a record: bytes, or None throughout where it is faulty.
Record = tuple[object, ...]

CHOOSE = "choose it with text_column= (and group_column=)."
# Fields that are looked at together.
CELLS = 2**16

#: Accepted field delimiters.
SEPARATORS: Final = (",", ";", "|", "\t")
DECIMALS: Final = (".", ",")
#: UTF-8, and encodings whose bytes are signs one by one, the first half of them those of ASCII.
ENCODINGS: Final = (
    *("utf-8", "latin-1", "iso-8859-2", "iso-8859-5", "iso-8859-7", "iso-8859-9", "iso-8859-15", "cp850"),
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1257", "mac-roman"),
)
_CODECS: Final = {codecs.lookup(name).name: name for name in ENCODINGS} | {"utf-8-sig": "utf-8"}
_TABS: Final = ("tab", "\\t")
_SWAPPED: Final = str.maketrans(".,", ",.")
_NUMBER: Final = re.compile(r"\s*[+-]?\d*,\d+\s*", re.ASCII)


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; public.

    Attributes:
        separator: what stands between fields: ",", ";", "|" or a tab, also as "tab".
        decimal: the decimal sign of its numbers, "." or ",".
        encoding: one of `ENCODINGS`, by any of its names.

    Raises:
        ParameterError: for any other, or a separator that is the decimal sign.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator in _TABS:
            object.__setattr__(self, "separator", "\t")
        check_choice("separator", self.separator, SEPARATORS, hint="A tab may be written as tab.")
        check_choice("decimal", self.decimal, DECIMALS)
        if self.separator == self.decimal:
            raise ParameterError(
                f"separator must be another sign than decimal, got {self.separator!r} for both: files with decimal "
                "commas have separator=';', or a tab."
            )
        try:
            name = codecs.lookup(self.encoding).name
        except (LookupError, TypeError, ValueError):
            name = ""
        if name not in _CODECS:
            hint = "Save a file in another one, such as UTF-16, as UTF-8."
            check_choice("encoding", self.encoding, ENCODINGS, hint=hint)
        object.__setattr__(self, "encoding", _CODECS[name])

    @property
    def byte(self) -> int:
        """The separator's byte."""
        return ord(self.separator)

    @property
    def gives_bytes(self) -> bool:
        """Whether fields are taken as bytes of UTF-8, whose numbers are written with points."""
        return self.encoding == "utf-8" and self.decimal == "."

    def decoded(self, field: object) -> object:
        """The text of a field's bytes; anything else as it is."""
        if not isinstance(field, bytes):
            return field
        try:
            return field.decode(self.encoding)
        except UnicodeDecodeError:
            return UNREADABLE

    def number(self, field: object) -> object:
        """A field as a number has it whose decimal sign is a point: in "1.500,0" there is none."""
        return field.translate(_SWAPPED) if self.decimal == "," and isinstance(field, str) else field

    def label(self, field: object) -> object:
        """A field as a label has it: one that is a number with a decimal comma is that number."""
        is_number = self.decimal == "," and isinstance(field, str) and _NUMBER.fullmatch(field)
        return str(field).replace(",", ".") if is_number else field


#: As RFC 4180 has it.
USUAL: Final = Dialect()


def check_csv(path: Path, columns: tuple[str, ...], hint: str = CHOOSE, dialect: Dialect = USUAL) -> None:
    """Check that the header line names the columns; `hint` says how they are chosen.

    Raises:
        DataFormatError: naming the missing column, with the separator or the encoding that the header shows, or a
            header without a line feed. The line itself is not shown: in a file without a header it is private.
    """
    if _is_cut_by_return(path, dialect):
        raise DataFormatError(
            f"The first line of {str(path)!r} holds a carriage return outside quotes that no line feed follows; "
            "lines must end in LF or CR LF. Save the file with such line ends, as pandas.DataFrame.to_csv does."
        )
    for column, times in times_in_header(path, columns, dialect).items():
        if times != 1:
            shown = shown_by_header(path, dialect, numbers=hint != CHOOSE)
            raise DataFormatError(
                f"The first line of {str(path)!r} must be a header that names the column {column!r} once; {shown}{hint}"
            )


def header_of(path: Path, dialect: Dialect = USUAL) -> list[object]:
    """The fields of the first line of a CSV file as texts, `UNREADABLE` where they are none."""
    with open_binary(path) as file:
        return [dialect.decoded(name) for name in _read_header(file, dialect)[0]]


def times_in_header(path: Path, columns: Iterable[str], dialect: Dialect = USUAL) -> dict[str, int]:
    """How often the first line of a CSV file names each of some columns."""
    names = header_of(path, dialect)
    return {column: names.count(column) for column in columns}


def csv_records(path: Path, columns: tuple[str, ...], dialect: Dialect = USUAL) -> Iterator[Record]:
    """Yield fields of each CSV record, in the order of `columns`: bytes of UTF-8, or texts where they are none."""
    names = header_of(path, dialect)
    with open_binary(path) as file:
        header, rest = _read_header(file, dialect)
        records = _records(file, rest, len(header), [names.index(column) for column in columns], dialect)
        yield from records if dialect.gives_bytes else decoded(records, dialect)


def decoded(records: Iterable[Record], dialect: Dialect) -> Iterator[Record]:
    """The same records as texts."""
    return (tuple(map(dialect.decoded, record)) for record in records)


def shown_by_header(path: Path, dialect: Dialect, *, numbers: bool = True) -> str:
    """Return where the header line contradicts the declared format of the file, of `numbers` or texts."""
    with open_binary(path) as file:
        line, _ = _header_line(file, dialect)
    others = [sign for sign in SEPARATORS if sign.encode() in line and sign != dialect.separator]
    if b"\0" in line:
        return "it holds zero bytes, as UTF-16 does: save the file as UTF-8; "
    if dialect.encoding == "utf-8" and dialect.decoded(line) == UNREADABLE:
        return "the header is not valid UTF-8: declare encoding='cp1252', 'latin-1' or another; "
    if len(header_of(path, dialect)) == 1 and others:
        # Where a comma parts no fields, it may be the decimal sign.
        comma = ", and decimal=',' if its numbers have decimal commas" if numbers and others[0] == ";" else ""
        return f"the header has one field with {others[0]!r} in it: separator={others[0]!r}{comma}; "
    return ""


def _records(file: BinaryIO, rest: bytes, num_fields: int, places: list[int], dialect: Dialect) -> Iterator[Record]:
    """Yield the records of `rest` and what follows in the file."""
    nothing = (None,) * len(places)
    state = None  # of a record that is too long to be held; its bytes are dropped
    for piece in _and_end(pieces(file)):
        is_last, text = not piece, rest + piece
        if state is not None:
            end, state = _end_of_record(piece, state, dialect)
            if end < 0 and not is_last:
                continue
            text, state = piece[max(end, 0) :], None
            yield nothing
        used = 1
        while used:
            records, used = _cut(text, num_fields, places, dialect, is_last=is_last)
            yield from records
            text = text[used:]
        rest = text
        if len(rest) > MAX_DOCUMENT_BYTES:
            rest, state = b"", _end_of_record(rest, 0, dialect)[1]


def _and_end(parts: Iterator[bytes]) -> Iterator[bytes]:
    yield from parts
    yield b""


def _cut(
    text: bytes, num_fields: int, places: list[int], dialect: Dialect, *, is_last: bool
) -> tuple[Iterator[Record], int]:
    """The first records that end in a text, and how many bytes they take; 0 if none ends."""
    slot_of = {place: slot for slot, place in enumerate(dict.fromkeys(places))}
    slot_f = np.full(num_fields, -1)
    slot_f[list(slot_of)] = list(slot_of.values())
    found_n, cells, used = _cut_all(text, slot_f, dialect, is_last=is_last, skips_blank=num_fields > 1)
    is_sound = found_n == num_fields
    sound = cells[is_sound]
    fields = [_fields(text, *sound[:, slot].T) for slot in slot_of.values()]
    rows = zip(*(fields[slot_of[place]] for place in places), strict=True)
    nothing = (None,) * len(places)
    return (next(rows) if one else nothing for one in is_sound.tolist()), used


def _cut_all(
    text: bytes, slot_f: NDArray[np.int64], dialect: Dialect, *, is_last: bool, skips_blank: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """For each record the number of its fields and the places of those that have a slot; and the bytes of all."""
    from dpvb.data import parsing_numba

    # Line ends inside quotes do not end records: the content of one record must not decide how much memory is asked
    # for.
    slots = int(slot_f.max()) + 1
    most = min(text.count(b"\n"), CELLS // slots) + 1
    found_n, cells = np.empty(most, dtype=np.int64), np.zeros((most, slots, 3), dtype=np.int64)
    count, used = parsing_numba.cut(
        np.frombuffer(text, np.uint8), dialect.byte, is_last, skips_blank, MAX_DOCUMENT_BYTES, slot_f, found_n, cells
    )
    return found_n[:count], cells[:count], used


def _fields(
    text: bytes, start_n: NDArray[np.int64], closing_n: NDArray[np.int64], stop_n: NDArray[np.int64]
) -> list[bytes]:
    """The fields between these places; one with a closing quote is unquoted."""
    fields = [text[start:stop] for start, stop in zip(start_n.tolist(), stop_n.tolist(), strict=True)]
    quoted = np.flatnonzero(closing_n >= 0)
    places = (part.tolist() for part in (quoted, start_n[quoted], closing_n[quoted], stop_n[quoted]))
    for n, start, closing, stop in zip(*places, strict=True):
        fields[n] = text[start + 1 : closing].replace(b'""', b'"') + text[closing + 1 : stop]
    return fields


def _end_of_record(text: bytes, state: int, dialect: Dialect) -> tuple[int, int]:
    from dpvb.data import parsing_numba

    end, state = parsing_numba.end_of_record(np.frombuffer(text, np.uint8), state, dialect.byte)
    return end, state


def _read_header(file: BinaryIO, dialect: Dialect) -> tuple[list[bytes], bytes]:
    """The names of the columns, none in an empty header or one beyond 16 MiB; and what was read behind it."""
    header, rest = _header_line(file, dialect)
    slot_f = np.arange(header.count(dialect.separator.encode()) + 1)
    found_n, cells, _ = _cut_all(header, slot_f, dialect, is_last=True, skips_blank=True)
    fields = cells[0, : max(found_n[0], 0)] if len(found_n) else cells[:0].reshape(0, 3)
    return _fields(header, *fields.T), rest


def _header_line(file: BinaryIO, dialect: Dialect) -> tuple[bytes, bytes]:
    """The first line with its end, and what was read behind it."""
    text, end = b"", -1
    for piece in pieces(file):
        text += piece
        end, _ = _end_of_record(text.removeprefix(BOM), 0, dialect)
        if end >= 0 or len(text) > MAX_DOCUMENT_BYTES:
            break
    text = text.removeprefix(BOM)
    return (text[:end], text[end:]) if end >= 0 else (text, b"")


def _is_cut_by_return(path: Path, dialect: Dialect) -> bool:
    """Return whether the first line end outside quotes is a single carriage return; later bytes decide nothing."""
    with open_binary(path) as file:
        header, _ = _header_line(file, dialect)
    end, _ = _end_of_record(header.replace(b"\r", b"\n"), 0, dialect)
    return end > 0 and header[end - 1 : end] == b"\r" and header[end : end + 1] != b"\n"
