"""What an E-step of a factor model gets: clean private rows."""

from __future__ import annotations

from typing import Protocol

from dpvb.guards.arrays import Floats


class RowsBatch(Protocol):
    """Clean private rows; a faulty row is NaN throughout."""

    @property
    def x_nd(self) -> Floats:
        """Features, (n, d), of norm at most 1."""
