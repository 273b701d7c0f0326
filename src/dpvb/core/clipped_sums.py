"""The pure half of a release: draw a batch, ask the model about it, clip every unit, and sum in integers.

Nothing here charges, noises or speaks: a sum is a function of the data, the query and public facts, and it stays behind
the wall. A cluster has its processes compute these very sums for the parts that they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, final

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contribution, Contributions, Grid
from dpvb.core.forms import grouped, is_gram, nonnegative
from dpvb.core.plan import Release
from dpvb.core.sampling import Draw
from dpvb.core.source import Chunk
from dpvb.guards.arrays import Batch, Ints

# Norms are clipped to this share of the bound, so that rounding a product cannot reach past the bound itself.
_MARGIN = 1.0 - 2.0**-20

#: What stops a process, and is no failure of a computation.
STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def zeros(release: Release) -> dict[str, Ints]:
    """Integer sums over nothing, one for each block of a release."""
    return {name: np.zeros(block.packed_shape, dtype=np.int64) for name, block in release.blocks.items()}


@final
@dataclass(frozen=True, repr=False)
class Work(Generic[Batch]):
    """What one release does with private data; it may travel to other processes that hold some of them.

    Attributes:
        query: the model's e_step at the current q.
        release: which blocks, by which mechanism.
        grids: the public grid of each block.
        words: uniform words of this step, (count, start); whoever knows them knows who is in the batch.
    """

    query: Callable[[Batch], Contributions]
    release: Release
    grids: Mapping[str, Grid]
    words: Callable[..., NDArray[np.uint64]]

    def draw(self, count: Callable[[], int], start: int = 0) -> Draw:
        """Start the batch at unit number `start`: word n decides on unit n, in whatever process that is."""
        position = start

        def bits(count: int) -> NDArray[np.uint64]:
            nonlocal position
            position += count
            return self.words(count, start=position - count)

        return self.release.mechanism.sampler.draw(bits, count)

    def sums(self, chunks: Iterable[Chunk[Batch]], draw: Draw) -> dict[str, Ints]:
        """Exact integer sums of the clipped contributions of the units that are drawn.

        A function of the arguments alone. Sums of parts add up to the sums of the whole, bit for bit.
        """
        sums, computed, failed = zeros(self.release), False, None
        for chunk in chunks:
            batch = chunk.select(draw(chunk.num_units))
            if not batch.num_units:
                continue
            if self._add(batch, sums):
                computed = True
                continue
            failed = batch
            for n in range(batch.num_units):  # A unit that cannot be computed by itself adds nothing.
                computed |= self._add(batch.select(np.arange(batch.num_units) == n), sums)
        if failed is not None and not computed:
            # What fails for no units as well fails for everybody, whatever the data are.
            self._added(failed.select(np.zeros(failed.num_units, dtype=np.bool_)))
        return sums

    def _add(self, batch: Chunk[Batch], sums: Mapping[str, Ints]) -> bool:
        """Add the units of a batch together, or nothing where that failed; tells which."""
        try:
            added = self._added(batch)
        except BaseException as error:
            if isinstance(error, STOPS):
                raise
            return False
        for name, total in added.items():
            sums[name] += total
        return True

    def _added(self, batch: Chunk[Batch]) -> dict[str, Ints]:
        """Clip every unit and sum, so that what the accountant relies on holds whatever q was.

        A unit whose norm is not a finite number adds nothing at all: NaN passes every comparison, so it is taken out
        before weights are formed. Where a unit's norm is 0 nothing of it is read: no entry can speak for it.
        """
        release, found, num_units = self.release, self.query(batch.rows), batch.num_units
        if batch.unit_of_row is not None:
            found = {name: grouped(rows, batch.unit_of_row, num_units) for name, rows in found.items()}
        own = {name: _in_domain(found[name], block) for name, block in release.blocks.items()}
        norms = {name: contribution.norms() for name, contribution in own.items()}
        if any(norm.shape != (num_units,) for norm in norms.values()):
            raise ValueError("a contribution for every unit, and for nothing else")
        usable = np.logical_and.reduce([np.isfinite(norm) for norm in norms.values()])
        relative = {name: np.where(usable, norms[name], 0.0) / release.blocks[name].bound for name in release.blocks}
        if release.clip == "joint":
            squares = [(release.weights[name] * relative[name]) ** 2 for name in release.blocks]
            relative = dict.fromkeys(relative, np.sqrt(np.sum(squares, axis=0)) * (1.0 + 2.0**-48))
        sums = zeros(release)
        for name, contribution in own.items():
            weights = np.where(usable & (norms[name] > 0), _MARGIN / np.maximum(relative[name], _MARGIN), 0.0)
            contribution.accumulate(weights, self.grids[name], sums[name])
        return sums


class Spread(ABC, Generic[Batch]):
    """Private data of which several processes hold parts; all of them are behind the wall."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk[Batch]]:
        """All units, in a fixed order."""

    @abstractmethod
    def count(self) -> int:
        """Number of units; private under add/remove."""

    @abstractmethod
    def sums(self, work: Work[Batch], step: int) -> Mapping[str, Ints]:
        """What `work.sums` gives for all units; raises if any part is missing."""


def _in_domain(contribution: Contribution, block: Block) -> Contribution:
    """What of a contribution the accountant allows in a block of this domain."""
    if block.domain == "gram" and not is_gram(contribution):
        raise TypeError("a gram block takes Gram contributions alone")
    return nonnegative(contribution) if block.domain == "nonnegative" else contribution
