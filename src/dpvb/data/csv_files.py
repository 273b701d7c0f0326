"""CSV files: bytes are cut into records by the state of quotes, and each record is read by itself.

A quote opens at the start of a field only; inside quotes two of them stand for one; what follows a closing quote is
text until the next comma or line end. A line feed outside quotes ends a record, a carriage return before it is
dropped; any other is text. A byte order mark is dropped from the header alone, which is public. Where the header's
own line end is a carriage return alone, nothing tells it from the records, so that the file is refused.

========================================  ======================================================================
damage                                    reaches
========================================  ======================================================================
a wrong number of fields                  that record, which is faulty
bytes that are no UTF-8                   their own field
a record of more than 16 MiB              that record, which is faulty; the quotes in it are followed to its end
a quote that is never closed              all records up to that with the next quote, or to the end of the file:
                                          one faulty record. No CSV writer leaves a quote open
a blank line                              nobody: it is skipped; in a file of one column it is an empty field
========================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpvb.data.readable import BOM, MAX_DOCUMENT_BYTES, open_binary, pieces
from dpvb.guards.errors import DataFormatError

#: Fields of a record: bytes, or None throughout where it is faulty.
Record = tuple[object, ...]

CHOOSE = "choose it with text_column= (and group_column=)."
# Fields that are looked at together.
CELLS = 2**16


def check_csv(path: Path, columns: tuple[str, ...], hint: str = CHOOSE) -> None:
    """Check that the header line names the columns; `hint` says how they are chosen.

    Raises:
        DataFormatError: naming the missing column, or a header without a line feed. The line itself is not shown: in a
            file without a header it is somebody's.
    """
    if _is_cut_by_return(path):
        raise DataFormatError(
            f"The first line of {str(path)!r} holds a carriage return outside quotes that no line feed follows; "
            "lines must end in LF or CR LF. Save the file with such line ends, as pandas.DataFrame.to_csv does."
        )
    for column, times in times_in_header(path, columns).items():
        if times != 1:
            raise DataFormatError(
                f"The first line of {str(path)!r} must be a header that names the column {column!r} once; {hint}"
            )


def times_in_header(path: Path, columns: Iterable[str]) -> dict[str, int]:
    """How often the first line of a CSV file names each of some columns."""
    with open_binary(path) as file:
        names, _ = _read_header(file)
    return {column: names.count(_bytes_of(column)) for column in columns}


def csv_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of each CSV record, in the order of `columns`."""
    with open_binary(path) as file:
        header, rest = _read_header(file)
        places = [header.index(_bytes_of(column)) for column in columns]
        yield from _records(file, rest, len(header), places)


def _records(file: BinaryIO, rest: bytes, num_fields: int, places: list[int]) -> Iterator[Record]:
    """Yield the records of `rest` and what follows in the file."""
    nothing = (None,) * len(places)
    state = None  # of a record that is too long to be held; its bytes are dropped
    for piece in _and_end(pieces(file)):
        is_last, text = not piece, rest + piece
        if state is not None:
            end, state = _end_of_record(piece, state)
            if end < 0 and not is_last:
                continue
            text, state = piece[max(end, 0) :], None
            yield nothing
        used = 1
        while used:
            found, used = _cut(text, num_fields, places, is_last=is_last)
            yield from found
            text = text[used:]
        rest = text
        if len(rest) > MAX_DOCUMENT_BYTES:
            rest, state = b"", _end_of_record(rest, 0)[1]


def _and_end(parts: Iterator[bytes]) -> Iterator[bytes]:
    yield from parts
    yield b""


def _cut(text: bytes, num_fields: int, places: list[int], *, is_last: bool) -> tuple[Iterator[Record], int]:
    """The first records that end in a text, and how many bytes they take; 0 if none ends."""
    slot_of = {place: slot for slot, place in enumerate(dict.fromkeys(places))}
    slot_f = np.full(num_fields, -1)
    slot_f[list(slot_of)] = list(slot_of.values())
    found_n, cells, used = _cut_all(text, slot_f, is_last=is_last, skips_blank=num_fields > 1)
    is_sound = found_n == num_fields
    sound = cells[is_sound]
    fields = [_fields(text, *sound[:, slot].T) for slot in slot_of.values()]
    rows = zip(*(fields[slot_of[place]] for place in places), strict=True)
    nothing = (None,) * len(places)
    return (next(rows) if one else nothing for one in is_sound.tolist()), used


def _cut_all(
    text: bytes, slot_f: NDArray[np.int64], *, is_last: bool, skips_blank: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """For each record the number of its fields and the places of those that have a slot; and the bytes of all."""
    from dpvb.data import csv_numba

    # Line ends inside quotes are no records: what one record holds must not decide how much memory is asked for.
    slots = int(slot_f.max()) + 1
    most = min(text.count(b"\n"), CELLS // slots) + 1
    found_n, cells = np.empty(most, dtype=np.int64), np.zeros((most, slots, 3), dtype=np.int64)
    count, used = csv_numba.cut(
        np.frombuffer(text, np.uint8), is_last, skips_blank, MAX_DOCUMENT_BYTES, slot_f, found_n, cells
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


def _end_of_record(text: bytes, state: int) -> tuple[int, int]:
    from dpvb.data import csv_numba

    end, state = csv_numba.end_of_record(np.frombuffer(text, np.uint8), state)
    return end, state


def _read_header(file: BinaryIO) -> tuple[list[bytes], bytes]:
    """The names of the columns, none in an empty header or one beyond 16 MiB; and what was read behind it."""
    header, rest = _header_line(file)
    found_n, cells, _ = _cut_all(header, np.arange(header.count(b",") + 1), is_last=True, skips_blank=True)
    found = cells[0, : max(found_n[0], 0)] if len(found_n) else cells[:0].reshape(0, 3)
    return _fields(header, *found.T), rest


def _header_line(file: BinaryIO) -> tuple[bytes, bytes]:
    """The first line with its end, and what was read behind it."""
    text, end = b"", -1
    for piece in pieces(file):
        text += piece
        end, _ = _end_of_record(text.removeprefix(BOM), 0)
        if end >= 0 or len(text) > MAX_DOCUMENT_BYTES:
            break
    text = text.removeprefix(BOM)
    return (text[:end], text[end:]) if end >= 0 else (text, b"")


def _is_cut_by_return(path: Path) -> bool:
    """Whether the first line end outside quotes is a carriage return alone; what stands behind it decides nothing."""
    with open_binary(path) as file:
        header, _ = _header_line(file)
    end, _ = _end_of_record(header.replace(b"\r", b"\n"), 0)
    return end > 0 and header[end - 1 : end] == b"\r" and header[end : end + 1] != b"\n"


def _bytes_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
