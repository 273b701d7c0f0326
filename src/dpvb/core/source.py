"""What the wall asks of private data: to be read chunk by chunk, and to keep a unit in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from dpvb.guards.arrays import Batch_co, Bools, Ints


class Chunk(Protocol[Batch_co]):
    """Some consecutive units of the private data."""

    @property
    def rows(self) -> Batch_co:
        """What the model reads."""

    @property
    def num_units(self) -> int:
        """Number of units in this chunk."""

    @property
    def unit_of_row(self) -> Ints | None:
        """Local unit of each row, or None where every row is a unit."""

    def select(self, units: Bools) -> Chunk[Batch_co]:
        """The chunk with the chosen units only."""


class Source(Protocol[Batch_co]):
    """Private data, read chunk by chunk; a unit is never split over chunks."""

    def chunks(self) -> Iterator[Chunk[Batch_co]]:
        """All units, in a fixed order."""

    def count(self) -> int:
        """Number of units; private under add/remove."""


@runtime_checkable
class CutRows(Protocol):
    """Rows whose reader says of each whether it stands as it was given: the wall counts units with others."""

    @property
    def cut_n(self) -> Bools | None:
        """Rows that were cut to a range or a norm, or filled in, shape (n,); None: not known."""
