"""Whose rows are whose: rows brought together by person, within one file and over several.

The invariant: within one owner all rows of a person are one unit, whatever names, files, formats, chunks and processes
they came through, and all of them count within the bound of one unit. A row whose person is not known adds nothing. Ids
are compared in one spelling (`spelling.identity`). Rows of several files are brought together in `partitions`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dpvb.data.readable import BOM, check_readable, lines, open_binary
from dpvb.data.slabs import Integers
from dpvb.data.spelling import Cells, cells_of, each, identity
from dpvb.guards.errors import DataFormatError


class Together(NamedTuple):
    """Rows that are in the order of their persons already; private.

    Attributes:
        unit_of_row: number of the person of each row, nondecreasing from 0.
        first: first row of each person, and the number of rows.
    """

    unit_of_row: Integers
    first: Integers


def by_person(group: Iterable[object], num_rows: int) -> tuple[Integers, Integers, Integers]:
    """Bring each person's rows together: (row numbers in the new order, person of each of them, first row of each).

    The sort is stable and persons come in order of appearance. Rows without a person (see `spelling.identity`) are left
    out. The last array ends with the number of rows that are left.

    Args:
        group: the person of each row, (rows,), or the several parts of each one's id, (rows, parts), as objects;
            private.
        num_rows: number of rows.

    Raises:
        DataFormatError: a group that is not one-dimensional or not as long as the data.
    """
    person_of_row = numbered(check_group(group, num_rows))
    order = np.argsort(person_of_row, kind="stable")
    order = order[np.count_nonzero(person_of_row < 0) :]
    unit_of_row = person_of_row[order]
    first = np.append(np.flatnonzero(np.diff(unit_of_row, prepend=-1)), len(order))
    return order, unit_of_row, first


def check_group(group: Iterable[object], num_rows: int) -> Cells:
    """Return the cells of a group that names the person of each row.

    Raises:
        DataFormatError: a group that is not one-dimensional or not as long as the data.
    """
    group = tuples(group)
    # Sets have no order, and a sparse array has no length.
    odd = isinstance(group, (str, bytes, set, frozenset)) or sparse.issparse(group)
    if odd or not isinstance(group, Iterable) or getattr(group, "ndim", 1) != 1:
        raise DataFormatError("group must be a one-dimensional sequence: the person of each row.")
    cells = group if isinstance(group, np.ndarray) else cells_of(group)
    if len(cells) != num_rows:
        raise DataFormatError("group must hold one id for each row of the data; the two differ in length.")
    return cells


def numbered(cells: Cells) -> Integers:
    """A number for each id in order of appearance, equal where they are; -1 where a cell has no id."""
    numbers: dict[str, int] = {}

    def person(cell: object) -> int:
        name = identity(cell)
        return -1 if name is None else numbers.setdefault(name, len(numbers))

    return each(cells, person)


def tuples(group: Any) -> Any:
    """A 2-D array as its rows, which are tuples: NumPy keeps them as such where one has another length.

    The type of an array is private: a single cell may change it. So all types are treated alike.
    """
    if not isinstance(group, np.ndarray) or isinstance(group, np.ma.MaskedArray) or group.ndim != 2:
        return group
    return [*zip(*(cells_of(column) for column in np.asarray(group).T), strict=True)] or [()] * len(group)


def newcomers(group: Iterable[object], exclude_groups: Iterable[object]) -> list[object]:
    """Return the person of each row, or None for an excluded person; both are private.

    Raises:
        DataFormatError: for a text, or a value that is not a sequence.
    """
    cells, excluded = ids_of("group", group), {identity(cell) for cell in ids_of("exclude_groups", exclude_groups)}
    return [None if identity(cell) in excluded else cell for cell in cells]


def read_ids(path: Path) -> list[bytes]:
    """Return the person IDs in a file, one per line, in UTF-8; private. Lines without an id are ignored.

    Raises:
        DataFormatError: for a file that cannot be read.
    """
    check_readable(path, any_start=True)
    with open_binary(path) as file:
        return [line.removeprefix(BOM) for line in lines(file)]


def ids_of(name: str, persons: Any) -> Iterable[object]:
    """Return the ids of persons; private.

    Args:
        name: of the parameter that holds them.
        persons: a sequence of ids.

    Raises:
        DataFormatError: for a text, or a value that is not a sequence.
    """
    if isinstance(persons, (str, bytes)) or not isinstance(persons, Iterable):
        raise DataFormatError(f"{name} must be a sequence of persons' ids.")
    return cells_of(tuples(persons))


def digest_of(cell: object, key: bytes) -> bytes | None:
    """Digest of a person's id; None where the cell has no id."""
    name = identity(cell)
    if name is None:
        return None
    return hashlib.blake2b(name.encode("utf-8", "backslashreplace"), key=key, digest_size=16).digest()
