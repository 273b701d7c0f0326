"""The pure half of a release: draw a batch, ask the model about it, clip every unit, and sum in integers.

Nothing here charges, noises or speaks: a sum is a function of the data, the query and public facts, and it stays behind
the wall. A cluster has its processes compute these very sums for the parts that they hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, final

import numpy as np

from dpvb.core.blocks import Block, Contribution, Contributions, Grid
from dpvb.core.counting import CLIPPED, INCLUDED, TOLERANCE
from dpvb.core.forms import grouped, is_gram, nonnegative, touched
from dpvb.core.plan import Release
from dpvb.core.sampling import Draw, Listed, Words
from dpvb.core.source import LARGEST_BATCH, ChunkOfUnits, CutRows, RowsOfPersons, is_shipped, num_rows, pieces
from dpvb.guards.arrays import Batch, Bools, Floats, Ints

# Norms are clipped to this share of the bound, so that rounding a product cannot reach past the bound itself.
_MARGIN = 1.0 - 2.0**-20
# Norms of units that add nothing contain at most this much, as room for products that underflow.
_NOTHING = 2.0**-500

#: These stop a process, and are not failures of a computation.
STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)
# A shortage of memory is not a failure of a unit either: no unit may be left out because a machine is small.
_ENDS = (*STOPS, MemoryError)


def zeros(release: Release) -> dict[str, Ints]:
    """Integer sums over nothing, one for each block of a release."""
    return {name: np.zeros(block.packed_shape, dtype=np.int64) for name, block in release.blocks.items()}


@final
@dataclass(frozen=True, repr=False)
class Work(Generic[Batch]):
    """The work of one release on private data; it may be sent to other processes that hold some of them.

    Attributes:
        query: the model's e_step at the current q.
        release: which blocks, by which mechanism.
        grids: the public grid of each block.
        words: uniform words of this step; they determine who is in the batch.
    """

    query: Callable[[Batch], Contributions]
    release: Release
    grids: Mapping[str, Grid]
    words: Words

    @property
    def _model(self) -> object:
        """The model of which the query is a method; None: the query is not recognised as one."""
        return getattr(getattr(self.query, "func", self.query), "__self__", None)

    def lengths(self, rows: Any) -> Floats:
        """Norms of the contributions of rows by themselves, (blocks, rows), relative to the bounds."""
        answer, asked = self.query(rows), self.release.asked.items()
        return np.array([answer[name].of_block(block, len(rows)).norms() / block.bound for name, block in asked])

    def draw(self, source: Any, count: Callable[[], int]) -> Draw:
        """Draw the batch of a source: unit n of the data is drawn by word n, wherever the source has it."""
        draw = self.release.mechanism.sampler.draw(self.words, count)
        numbers = getattr(source, "unit_numbers", None)
        return draw if numbers is None else Listed(draw(0, len(numbers))[numbers])

    def sums(self, chunks: Iterable[ChunkOfUnits[Batch]], draw: Draw, start: int = 0) -> dict[str, Ints]:
        """Exact integer sums of the clipped contributions of the units that are drawn.

        The result depends only on the arguments. Sums of parts add up to the sums of the whole, bit for bit.

        Args:
            chunks: at least one (see `source.chunks_of`): the first one is asked about none of its units, too.
            draw: says who is in the batch.
            start: number of the first unit of the chunks.
        """
        sums, asked = zeros(self.release), False
        for chunk in chunks:
            # A failure for no units is a failure for all data; otherwise no failure shows.
            if not asked:
                self._added(chunk.select(np.zeros(chunk.num_units, dtype=np.bool_)))
                asked = True
            units, start = draw(start, chunk.num_units), start + chunk.num_units
            for batch in pieces(chunk.select(units)):
                if batch.num_units and not self._add(batch, sums):
                    for n in range(batch.num_units):  # A unit that cannot be computed by itself adds nothing.
                        self._add(batch.select(np.arange(batch.num_units) == n), sums)
        return sums

    def _add(self, batch: ChunkOfUnits[Batch], sums: Mapping[str, Ints]) -> bool:
        """Add the units of a batch together, or nothing where that failed; tells which."""
        try:
            added = self._added(batch)
        except BaseException as error:
            if isinstance(error, _ENDS):
                raise
            return False
        for name, (rows, total) in added.items():
            sums[name][rows] += total
        return True

    def _added(self, batch: ChunkOfUnits[Batch]) -> dict[str, tuple[Any, Ints]]:
        """Clip every unit and sum, so that what the accountant relies on holds whatever q was.

        Returns, of each block, the rows to which a sum belongs, all or some different ones, and the sum.

        A unit whose norm is not a finite number adds nothing at all: NaN passes every comparison, so it is taken out
        before weights are formed. Where a unit's norm is 0 nothing of it is read: no entry can speak for it.
        """
        length = num_rows(batch)
        if length > LARGEST_BATCH and not is_shipped(self._model):  # Only one unit; whether it is depends only on it.
            raise ValueError(f"a model of one's own is asked about at most {LARGEST_BATCH} rows at once")
        release, rows, num_units = self.release, batch.rows, batch.num_units
        if batch.unit_of_row is not None and isinstance(rows, RowsOfPersons):
            rows = rows.of_persons(batch.unit_of_row)
        answer = self.query(rows if is_shipped(self._model) else _lent(rows))
        rows_of_block = {name: answer[name].of_block(block, length) for name, block in release.asked.items()}
        if batch.unit_of_row is not None:
            rows_of_block = {name: grouped(rows, batch.unit_of_row, num_units) for name, rows in rows_of_block.items()}
        contributions = {name: _in_domain(rows_of_block[name], block) for name, block in release.asked.items()}
        norms = {name: contribution.norms() for name, contribution in contributions.items()}
        if any(norm.shape != (num_units,) for norm in norms.values()):
            raise ValueError("a contribution for every unit, and for nothing else")
        usable = np.logical_and.reduce([np.isfinite(norm) for norm in norms.values()])
        relative = {name: np.where(usable, norms[name], 0.0) / release.blocks[name].bound for name in contributions}
        if release.clipping == "joint":
            squares = [(release.weights[name] * relative[name]) ** 2 for name in contributions]
            share = 1.0 - math.fsum(release.weights[name] ** 2 for name in release.blocks.keys() - contributions.keys())
            relative = dict.fromkeys(contributions, np.sqrt(np.sum(squares, axis=0) / share) * (1.0 + 2.0**-48))
        sums: dict[str, tuple[Any, Ints]] = {}
        for name, contribution in contributions.items():
            weights = np.where(usable & (norms[name] > 0), _MARGIN / np.maximum(relative[name], _MARGIN), 0.0)
            rows_of_sum, part = touched(contribution, weights)
            shape = release.blocks[name].packed_shape
            total = np.zeros(shape if part is contribution else (len(rows_of_sum), *shape[1:]), dtype=np.int64)
            part.accumulate(weights, self.grids[name], total)
            sums[name] = rows_of_sum, total
        counted = usable & np.logical_or.reduce([norm > _NOTHING for norm in norms.values()])
        shortened = np.logical_or.reduce([*(length > 1.0 + TOLERANCE for length in relative.values())])
        shortened |= _cut(rows, batch.unit_of_row, num_units)
        for name, units in ((INCLUDED, counted), (CLIPPED, counted & shortened)):
            if name in release.blocks:
                number = np.count_nonzero(units) * int(1.0 / self.grids[name].step)
                sums[name] = slice(None), np.full(release.blocks[name].packed_shape, number, dtype=np.int64)
        return sums


class Spread(ABC, Generic[Batch]):
    """Private data of which several processes hold parts; all of them are behind the wall."""

    @abstractmethod
    def chunks(self) -> Iterator[ChunkOfUnits[Batch]]:
        """All units, in a fixed order."""

    @abstractmethod
    def count(self) -> int:
        """Number of units; private under add/remove."""

    @abstractmethod
    def sums(self, work: Work[Batch], step: int) -> Mapping[str, Ints]:
        """Return the result of `work.sums` for all units; raises if any part is missing."""


def _lent(rows: Any) -> Any:
    """Return rows for a model of one's own: what it writes into them reaches no other unit and no later release.

    Chunks may be views of data that are held in memory.
    """
    if not isinstance(rows, np.ndarray):
        return deepcopy(rows)
    view = rows.view()
    view.flags.writeable = False
    return view


def _cut(rows: object, unit_of_row: Ints | None, num_units: int) -> Bools:
    """Units of which reading cut a row to its range, where the rows say so."""
    units = np.zeros(num_units, dtype=np.bool_)
    if isinstance(rows, CutRows) and rows.cut_n is not None:
        units[np.flatnonzero(rows.cut_n) if unit_of_row is None else unit_of_row[rows.cut_n]] = True
    return units


def _in_domain(contribution: Contribution, block: Block) -> Contribution:
    """Return the forms of a contribution that the accountant allows in a block of this domain."""
    if block.domain == "gram" and not is_gram(contribution):
        raise TypeError("a gram block accepts only Gram contributions")
    return nonnegative(contribution) if block.domain == "nonnegative" else contribution
