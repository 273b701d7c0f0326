"""The record of a wall: before it reads data, that the release is charged; before it answers, what it releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpvb.core.plan import Release
from dpvb.guards.errors import CheckpointError

#: Sums that leave a wall: noised sums in their units, or a party's integers.
Sums = Mapping[str, NDArray[np.float64] | NDArray[np.int64]]


class Journal(Protocol):
    """Messages of a wall about its run, and its questions; none of them is private."""

    def recorded(self, step: int) -> Sums | None:
        """The sums that this run released at a step before it was interrupted: the wall gives them out again."""

    def begin(self, step: int) -> None:
        """Called before anything is read for a step; raises unless its charge is durable."""

    def record(self, step: int, total: Sums) -> None:
        """Called with noised sums before they are returned; raises unless they are on record."""


@final
class Unrecorded:
    """No journal: the plan's own count, in the memory of this process, is all there is."""

    def recorded(self, step: int) -> None:
        """Nothing."""

    def begin(self, step: int) -> None:
        """Nothing is written."""

    def record(self, step: int, total: Sums) -> None:
        """Nothing is written."""


@final
@dataclass(frozen=True)
class Begun:
    """The journal of a run whose first release another wall has made.

    Attributes:
        journal: of the run.
        total: what was released first, in its units.
    """

    journal: Journal
    total: Sums

    def recorded(self, step: int) -> Sums | None:
        """The first release, which the next wall gives out; of the others what the run has on record."""
        return self.journal.recorded(step) if step else self.total

    def begin(self, step: int) -> None:
        """Charge as the run does."""
        self.journal.begin(step)

    def record(self, step: int, total: Sums) -> None:
        """Put on record where the run does."""
        self.journal.record(step, total)


def recorded(journal: Journal, step: int, release: Release, dtype: type[Any]) -> Mapping[str, NDArray[Any]] | None:
    """Return what a run released at a step before it was interrupted, if it did: the same is given out again.

    A record of another form is refused, since it may come from another party's folder: a statistic of another shape
    would make a q at which one row meets the statistics of another.

    Raises:
        CheckpointError: for such a record.
    """
    noisy = journal.recorded(step)
    form = {name: (block.packed_shape, np.dtype(dtype)) for name, block in release.blocks.items()}
    if noisy is not None and {name: (array.shape, array.dtype) for name, array in noisy.items()} != form:
        raise CheckpointError(
            "The record of this run holds a release of another form than its plan's: it was changed, or is another "
            "run's. Nothing is released; begin a new run."
        )
    return noisy
