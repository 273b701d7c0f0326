"""The isolation of records: what a source makes of its records, unit by unit.

A reader maps records to units one by one: collections that differ in one record, whose fields hold anything, give units
that differ in that one, and nothing else differs. `check_reader` holds a reader of yours against it:

    checks = check_reader("letters", write_letters, MyLetters, letters, other=one_more_letter)
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpvb.audit.captured_output import heard
from dpvb.results.audit_report import Check


def units_of(source: Any) -> Counter[bytes]:
    """Every privacy unit of a source as bytes, and how often it occurs.

    Args:
        source: what has `chunks()`, whose chunks have `num_units` and `select(mask).rows`: documents or rows.
    """
    units: Counter[bytes] = Counter()
    for chunk in source.chunks():
        for place in range(chunk.num_units):
            alone = np.zeros(chunk.num_units, dtype=np.bool_)
            alone[place] = True
            units[as_bytes(chunk.select(alone).rows)] += 1
    return units


def as_bytes(rows: Any) -> bytes:
    """Types, shapes and bits of everything that some rows are made of; a zero has no sign, as sums know none.

    Raises:
        TypeError: rows that are not arrays, dataclasses, tuples or plain numbers.
    """
    if isinstance(rows, np.ndarray):
        values = rows + 0.0 if rows.dtype.kind == "f" else rows
        return f"{rows.dtype.str}{rows.shape}".encode() + values.astype(rows.dtype, copy=False).tobytes()
    if is_dataclass(rows):
        return b"".join(as_bytes(getattr(rows, field.name)) for field in fields(rows))
    if isinstance(rows, tuple):
        return b"".join(map(as_bytes, rows))
    if rows is None or isinstance(rows, (bool, int, float, np.number)):
        return repr(rows).encode()
    raise TypeError(f"rows must be made of arrays, got {type(rows).__name__}.")


Record = TypeVar("Record")


def check_reader(
    name: str,
    write: Callable[[Sequence[Record], Path], object],
    read: Callable[[Any], Any],
    records: Sequence[Record],
    other: Record,
) -> Iterator[Check]:
    """The isolation of records on one reader: collections that differ in one record give units that differ in that one.

    Args:
        name: of the reader, in words.
        write: a correct writer: writes records into an empty folder and returns what `read` opens, a path say.
        read: opens it as a source of private data, which has `chunks()`.
        records: synthetic records, the more hostile the better; each is left out once, and replaced once by `other`.
        other: one more record.
    """
    faults, whole, compared = list[str](), _read(write, read, records), 0
    for n in range(len(records)):
        for instead in ([], [other]):
            neighbour = _read(write, read, [*records[:n], *instead, *records[n + 1 :]])
            faults += _differences(whole, neighbour)
            compared += whole.units != neighbour.units
    measured = f"{2 * len(records)} neighbours: units differ in one record's, and nothing else differs"
    yield Check.of(name, "isolation of records", faults, measured, "one unit", compared)


def differences(
    write: Callable[[Sequence[Record], Path], object],
    read: Callable[[Any], Any],
    records: Sequence[Record],
    neighbour: Sequence[Record],
) -> list[str]:
    """Return violations of record isolation for two collections that differ in one record; see `check_reader`."""
    return [*_differences(_read(write, read, records), _read(write, read, neighbour))]


@dataclass(frozen=True)
class _Seen:
    """Return what a reader shows.

    Attributes:
        units: Privacy units as bytes.
        observable: Type, repr, width and messages, which must be equal for neighbours.
    """

    units: Counter[bytes]
    observable: tuple[object, ...]


def _read(write: Callable[[Sequence[Any], Path], object], read: Callable[[Any], Any], records: Sequence[Any]) -> _Seen:
    with tempfile.TemporaryDirectory() as folder:
        written = write(records, Path(folder))
        with heard() as said:
            try:
                source = read(written)
                units = units_of(source)
                observable: tuple[object, ...] = type(source), repr(source), getattr(source, "width", None)
            except Exception as error:  # Whatever it is, it must not depend on the records.
                units, observable = Counter[bytes](), (type(error), str(error).replace(folder, ""))
        return _Seen(units, (*observable, *said))


def _differences(one: _Seen, other: _Seen) -> Iterator[str]:
    if one.observable != other.observable:
        yield "a record shows in the type, the words or the width of what is read, or in what is said or raised"
    more, less = (one.units - other.units).total(), (other.units - one.units).total()
    if max(more, less) > 1:
        yield f"a record changes {max(more, less)} units"
