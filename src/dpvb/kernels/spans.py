"""Rows in consecutive spans of limited size, and the row boundaries by which they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Most rows and entries that are read at a time, where one row does not hold more.
MAX_ROWS = 8192
MAX_ENTRIES = 2**20


def spans(
    indptr: NDArray[np.int64], unit_start: NDArray[np.int64] | None = None, max_entries: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of units that keep MAX_ROWS and MAX_ENTRIES where a single unit allows it.

    `unit_start` holds the first row of each unit and the number of rows; None: each row is a unit. Without units there
    is one range, 0 to 0.
    """
    max_entries = MAX_ENTRIES if max_entries is None else max_entries
    entry_start = indptr if unit_start is None else indptr[unit_start]
    num_units = len(entry_start) - 1
    start = 0
    if not num_units:
        yield 0, 0
    while start < num_units:
        if unit_start is None:
            stop = start + MAX_ROWS
        else:
            stop = int(np.searchsorted(unit_start, unit_start[start] + MAX_ROWS, side="right")) - 1
        by_entries = int(np.searchsorted(entry_start, entry_start[start] + max_entries, side="right")) - 1
        stop = min(max(min(stop, by_entries), start + 1), num_units)
        yield start, stop
        start = stop


def running_total(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return 0, l_0, l_0 + l_1, ...: row boundaries from row lengths."""
    total = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=total[1:])
    return total
