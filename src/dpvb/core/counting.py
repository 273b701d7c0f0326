"""Noisy numbers of included and of clipped units, which every release of a fit contains.

A row with an unknown label, an empty document or an invalid field adds nothing, or less than it could. A reader must
not report such rows, since their content is private. Instead, the wall releases how many units are included and
clipped, with noise, so that users notice an empty fit. Both numbers together use 1 % of the budget of each release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dpvb.core.blocks import Block
from dpvb.guards.errors import ParameterError, check_number

#: Names of the blocks: units with a contribution; units of these that were clipped or not read in full.
INCLUDED, CLIPPED = "included", "clipped"
#: Share of a release's budget Σ w² of each. The number of included units is used more, so it gets three quarters.
SHARES: Mapping[str, float] = MappingProxyType({INCLUDED: 0.0075, CLIPPED: 0.0025})
#: Both as blocks: one number of bound 1 each.
COUNTS: Mapping[str, Block] = MappingProxyType(dict.fromkeys(SHARES, Block((1,), 1.0, "nonnegative")))
#: A unit counts as clipped if its norm exceeds the bound by more than this share, which is far above rounding errors.
TOLERANCE = 2.0**-10
# Fewer units than this cannot fit a model: a convention.
_ENOUGH = 50
# Half the width of a 95 % interval in standard deviations.
_Z = 1.96


def with_counts(blocks: Mapping[str, Block]) -> dict[str, Block]:
    """Return the blocks of a release together with both counts, which use 1 % of its budget.

    Args:
        blocks: Blocks of one release by name.

    Raises:
        ParameterError: If a block has the name of a count.
    """
    if taken := sorted(COUNTS.keys() & blocks.keys()):
        raise ParameterError(f"blocks must not be named {taken}: these names are reserved for the numbers of units.")
    square = math.fsum(block.weight**2 for block in blocks.values()) / (1.0 - math.fsum(SHARES.values()))
    phase = next(block.phase for block in blocks.values())
    counts = {
        name: replace(COUNTS[name], phase=phase, weight=max(math.sqrt(share * square), 1e-9))
        for name, share in SHARES.items()
    }
    return {**blocks, **counts}


@dataclass(frozen=True)
class Counts:
    """Noisy numbers of included and of clipped units; public.

    Attributes:
        included: Number of units with a contribution, as released; noise can make it negative.
        included_std: Standard deviation of `included`, due to noise and sampling of batches.
        clipped: Number of these units that were clipped to a bound or a range, or not read in full; the mean over
            releases, whose bounds differ.
        clipped_std: Standard deviation of `clipped`.

    Raises:
        ParameterError: If a number is not finite, or a standard deviation is negative.
    """

    included: float
    included_std: float
    clipped: float
    clipped_std: float

    def __post_init__(self) -> None:
        for name in (INCLUDED, CLIPPED):
            check_number(name, getattr(self, name))
            check_number(f"{name}_std", getattr(self, f"{name}_std"), low=0)

    @property
    def share_clipped(self) -> float:
        """Share of the units that were clipped; 0 if it is not distinguishable from 0, by three standard deviations."""
        if self.clipped <= 3 * self.clipped_std:
            return 0.0
        return min(float(self.clipped) / max(float(self.included), 1.0), 1.0)

    @property
    def at_least(self) -> float:
        """Lower limit of the 95 % interval of the number of included units, at least 0."""
        return max(self.included - _Z * self.included_std, 0.0)

    @property
    def are_few(self) -> bool:
        """Whether the number of included units is indistinguishable from 0, or below 50, at 95 % confidence."""
        return self.included < _Z * self.included_std or self.included + _Z * self.included_std < _ENOUGH

    def say(self, unit: str) -> str:
        """Return both numbers in words, with 95 % intervals.

        Args:
            unit: Protected unit, in the singular.
        """
        included, clipped = _interval(self.included, self.included_std), _interval(self.clipped, self.clipped_std)
        return f"{unit}s included: {included} (95 % interval), of which clipped: {clipped}"


def _interval(mean: float, std: float) -> str:
    return f"{max(mean, 0.0):,.0f} ± {_Z * std:,.0f}"
