"""What a wall has written down: before it looks, that the release is charged; before it speaks, what it releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

#: What leaves a wall: noised sums in their units, or a party's integers.
Sums = Mapping[str, NDArray[np.float64] | NDArray[np.int64]]


class Journal(Protocol):
    """What a wall tells of its run, and what it asks; nothing private passes."""

    def recorded(self, step: int) -> Sums | None:
        """The sums that this run released at a step before it was interrupted: the wall gives them out again."""

    def begin(self, step: int) -> None:
        """Called before anything is read for a step; raises unless its charge is durable."""

    def record(self, step: int, total: Sums) -> None:
        """Called with noised sums before anybody can read them; raises unless they are on record."""


@final
class Unrecorded:
    """No journal: the plan's own count, in the memory of this process, is all there is."""

    def recorded(self, step: int) -> None:
        """Nothing."""

    def begin(self, step: int) -> None:
        """Nothing is written."""

    def record(self, step: int, total: Sums) -> None:
        """Nothing is written."""
