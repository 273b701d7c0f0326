"""Whose rows are whose: the ids of persons as numbers, and rows brought together by person."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from contextlib import suppress
from numbers import Number

import numpy as np
from numpy.typing import NDArray

from dpvb.errors import DataFormatError

_Integers = NDArray[np.int64]


def by_person(group: Iterable[object], num_rows: int) -> tuple[_Integers, _Integers, _Integers]:
    """Bring each person's rows together: (row numbers in the new order, person of each of them, first row of each).

    The sort is stable and persons come in order of appearance. Rows without a usable id (None, NaN, something
    unhashable) form one unit together: whoever they belong to, that person's rows are not split over two units.
    The last array ends with the number of rows.

    Raises:
        DataFormatError: a group that is not one-dimensional or not as long as the data.
    """
    person = _number_persons(group, num_rows)
    order = np.argsort(person, kind="stable")
    unit_of_row = person[order]
    first = np.flatnonzero(np.diff(unit_of_row, prepend=-1, append=-1)) if num_rows else np.zeros(1, dtype=np.int64)
    return order, unit_of_row, first


def _number_persons(group: Iterable[object], num_rows: int) -> _Integers:
    """Return each row's person as a number in order of appearance."""
    if isinstance(group, (str, bytes)) or not isinstance(group, Iterable) or getattr(group, "ndim", 1) != 1:
        raise DataFormatError("group must be a one-dimensional sequence: the person of each row.")
    tolist = getattr(group, "tolist", None)
    ids: list[object] = list(tolist() if tolist is not None else group)
    if len(ids) != num_rows:
        raise DataFormatError("group must hold one id for each row of the data; the two differ in length.")
    numbers: dict[object, int] = {}
    nobody = object()
    return np.array([numbers.setdefault(_key(one, nobody), len(numbers)) for one in ids], dtype=np.int64)


def _key(one: object, nobody: object) -> object:
    try:
        usable = one is not None and isinstance(one, Hashable) and bool(one == one)
        hash(one)
    except Exception:  # pandas' NA, and tuples that hold a list: a missing id must not show
        usable = False
    return one if usable else nobody


def digests(group: Iterable[object], key: bytes) -> set[bytes]:
    """Digest of each person under a key, by which persons of several files are compared; ids missing are one person.

    Equal ids of one column have equal digests, also where one file holds them as whole numbers and another as floats.
    """
    nobody = object()
    return {_digest(_key(one, nobody), nobody, key) for one in group}


def _digest(one: object, nobody: object, key: bytes) -> bytes:
    if isinstance(one, Number) and not isinstance(one, complex):
        with suppress(OverflowError, ValueError):
            one = int(one) if one == int(one) else one  # type: ignore[call-overload]
    text = "" if one is nobody else f"{'bytes' if isinstance(one, bytes) else 'id'} {one!r}"
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), key=key, digest_size=16).digest()
