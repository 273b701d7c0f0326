"""The interface of private data: they are read chunk by chunk, and a unit stays in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np

from dpvb.guards.arrays import Batch_co, Bools, Ints
from dpvb.guards.untrusted import imported, place_of
from dpvb.kernels.spans import MAX_ROWS, running_total, spans

#: Most rows that a model of one's own is handed at once: as many as a chunk of this package's sources has at most. The
#: audit asks such a model about exactly this number of rows.
LARGEST_BATCH: Final = MAX_ROWS


class ChunkOfUnits(Protocol[Batch_co]):
    """Some consecutive units of the private data."""

    @property
    def rows(self) -> Batch_co:
        """The rows that the model reads."""

    @property
    def num_units(self) -> int:
        """Number of units in this chunk."""

    @property
    def unit_of_row(self) -> Ints | None:
        """Local unit of each row, or None where every row is a unit."""

    def select(self, units: Bools) -> ChunkOfUnits[Batch_co]:
        """The chunk with the chosen units only."""


class Source(Protocol[Batch_co]):
    """Private data, read chunk by chunk; a unit is never split over chunks.

    A source whose chunks have the units in another order than the data has `unit_numbers`, a permutation, (units,): the
    place of each unit in the data, by which batches are drawn; private.
    """

    def chunks(self) -> Iterator[ChunkOfUnits[Batch_co]]:
        """All units, in a fixed order; one chunk of no units if there are none."""

    def count(self) -> int:
        """Number of units; private under add/remove."""


@final
@dataclass(frozen=True)
class Nobody:
    """Public data of no units, for whatever is to be tried without any.

    Attributes:
        given: a chunk of no units, about which the model is asked; nothing: the model is not asked at all.
    """

    given: tuple[Any, ...] = ()

    def chunks(self) -> Iterator[Any]:
        """None of any unit."""
        return iter(self.given)

    def count(self) -> int:
        """None."""
        return 0


def chunks_of(source: Any) -> Iterator[ChunkOfUnits[Any]]:
    """Yield the chunks of a source, at least one: if the source yields none, the chunk that its `empty()` returns.

    If it did not, a model that fails on an empty batch would distinguish no units from one unit.
    """
    chunk = None
    for chunk in source.chunks():
        yield chunk
    if chunk is None and hasattr(type(source), "empty"):
        empty = source.empty()
        yield empty.select(np.zeros(empty.num_units, dtype=np.bool_))


def is_shipped(thing: object) -> bool:
    """Return whether a model or a source is of a class of this package; all others are classes of users.

    A class may say that it is of another module, or inherit that name: it is what the module holds that counts.
    """
    kind = type(thing)
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0] and imported(place_of(kind)) is kind


def num_rows(chunk: ChunkOfUnits[Any]) -> int:
    """Number of rows of a chunk."""
    return chunk.num_units if chunk.unit_of_row is None else len(chunk.unit_of_row)


def pieces(chunk: ChunkOfUnits[Any]) -> Iterator[ChunkOfUnits[Any]]:
    """Yield the units of a chunk in order, with at most LARGEST_BATCH rows at once unless a single unit has more."""
    if num_rows(chunk) <= LARGEST_BATCH:
        yield chunk
        return
    rows_of_unit = np.ones(chunk.num_units, np.int64)
    if chunk.unit_of_row is not None:
        rows_of_unit = np.bincount(chunk.unit_of_row, minlength=chunk.num_units)
    first, unit = running_total(rows_of_unit), np.arange(chunk.num_units)
    for start, stop in spans(np.zeros(first[-1] + 1, np.int64), first):  # The number of entries is of no account.
        yield chunk.select((unit >= start) & (unit < stop))


@runtime_checkable
class RowsOfPersons(Protocol):
    """Rows of which what one adds may depend on the other rows of its person, which a model is then told."""

    def of_persons(self, unit_of_row: Ints) -> Any:
        """The same rows with the person of each, a local number, nondecreasing from 0."""


@runtime_checkable
class CutRows(Protocol):
    """Rows whose reader says of each whether it stands as it was given: the wall counts units with others."""

    @property
    def cut_n(self) -> Bools | None:
        """Rows that were cut to a range or a norm, or filled in, shape (n,); None: not known."""
