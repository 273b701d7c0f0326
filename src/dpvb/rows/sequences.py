"""Sequences of symbols, or of points of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dpvb.guards.arrays import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class SequenceRows:
    """Clean private sequences of symbols, a row each.

    Attributes:
        indptr: first symbol of each sequence, and the number of all, (n + 1,).
        code: places of the symbols among the public ones, negative for a gap, (symbols,).
    """

    indptr: Ints
    code: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class NumberRows:
    """Clean private sequences of points of D numbers, a row each.

    Attributes:
        indptr: first point of each sequence, and the number of all, (n + 1,).
        value_td: the numbers, NaN for a missing one, (points, D).
    """

    indptr: Ints
    value_td: Floats
