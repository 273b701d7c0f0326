"""Rows of a table whose columns are numbers, counts and categories side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class MixedRows:
    """Clean private rows.

    Attributes:
        x_nd: numbers in [-1, 1], (n, d); NaN where they are missing.
        count_np: counts, (n, P).
        code_nj: places of categories, (n, D).
        sound_n: 1, or NaN for a faulty row, (n,).
        cut_n: rows that were clipped to a range, or filled in, (n,).
    """

    x_nd: Floats
    count_np: Floats
    code_nj: Ints
    sound_n: Floats
    cut_n: Bools

    @property
    def parts(self) -> tuple[NDArray[Any], ...]:
        """All arrays, rows first."""
        return self.x_nd, self.count_np, self.code_nj, self.sound_n, self.cut_n

    def take(self, which: Ints | slice) -> MixedRows:
        """Return the rows with these numbers."""
        return MixedRows(*(part[which] for part in self.parts))

    @classmethod
    def joined(cls, pieces: Sequence[MixedRows]) -> MixedRows:
        """Return the rows of all pieces, in order; at least one piece."""
        return cls(*(np.concatenate(parts) for parts in zip(*(piece.parts for piece in pieces), strict=True)))
