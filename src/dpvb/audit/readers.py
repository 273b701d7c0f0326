"""The law of readers: what a source makes of its records, unit by unit."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


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
    """Types, shapes and bits of everything that some rows are made of.

    Raises:
        TypeError: rows that are no array, dataclass, tuple or plain number.
    """
    if isinstance(rows, np.ndarray):
        return f"{rows.dtype.str}{rows.shape}".encode() + rows.tobytes()
    if is_dataclass(rows):
        return b"".join(as_bytes(getattr(rows, field.name)) for field in fields(rows))
    if isinstance(rows, tuple):
        return b"".join(map(as_bytes, rows))
    if rows is None or isinstance(rows, (bool, int, float, np.number)):
        return repr(rows).encode()
    raise TypeError(f"rows must be made of arrays, got {type(rows).__name__}.")
