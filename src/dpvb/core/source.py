"""What the wall asks of private data: to be read chunk by chunk, and to keep a unit in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from dpvb.core.blocks import Bools, Ints

Rows = TypeVar("Rows", covariant=True)


class Chunk(Protocol[Rows]):
    """Some consecutive units of the private data."""

    @property
    def rows(self) -> Rows:
        """What the model reads."""

    @property
    def num_units(self) -> int:
        """Number of units in this chunk."""

    @property
    def unit_of_row(self) -> Ints | None:
        """Local unit of each row, or None where every row is a unit."""

    def select(self, units: Bools) -> Chunk[Rows]:
        """The chunk with the chosen units only."""


class Source(Protocol[Rows]):
    """Private data, read chunk by chunk; a unit is never split over chunks."""

    def chunks(self) -> Iterator[Chunk[Rows]]:
        """All units, in a fixed order."""

    def count(self) -> int:
        """Number of units; private under add/remove."""
