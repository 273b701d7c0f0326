"""How many units counted, and how many of them were shortened: two noisy numbers that every release of a fit carries.

A row with an unknown label, an empty document or a field in a foreign spelling adds nothing, or less than it might, and
no reader may say so: what a record holds is private. The wall counts such units instead, one unit by 1 and with noise,
so that an empty fit does not look like a full one. Both counts together take a hundredth of each release's budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dpvb.core.blocks import Block
from dpvb.guards.errors import ParameterError, check_number

#: Units that added anything; units of those that were cut to a bound or a range, or could not be read in full.
COUNTED, SHORTENED = "counted", "shortened"
#: Part of a release's budget Σ w² that each takes.
SHARES: Mapping[str, float] = MappingProxyType({COUNTED: 0.0075, SHORTENED: 0.0025})
#: Each as a block: one number of bound 1.
COUNTS: Mapping[str, Block] = MappingProxyType(dict.fromkeys(SHARES, Block((1,), 1.0, "nonnegative")))
#: A unit is shortened where its norm is over the bound by more than this share, which rounding is not.
TOLERANCE = 2.0**-10
# What is fewer than this teaches a model nothing.
_ENOUGH = 50
# Half the width of a 95 % interval in standard deviations.
_Z = 1.96


def with_counts(blocks: Mapping[str, Block]) -> dict[str, Block]:
    """The blocks of a release and the two counts beside them, which leave the others all but a hundredth of its budget.

    Raises:
        ParameterError: for blocks that have the name of a count.
    """
    if taken := sorted(COUNTS.keys() & blocks.keys()):
        raise ParameterError(f"blocks must not be called {taken}: every release counts its units under these names.")
    square = math.fsum(block.weight**2 for block in blocks.values()) / (1.0 - math.fsum(SHARES.values()))
    phase = next(block.phase for block in blocks.values())
    counts = {
        name: replace(COUNTS[name], phase=phase, weight=max(math.sqrt(share * square), 1e-9))
        for name, share in SHARES.items()
    }
    return {**blocks, **counts}


@dataclass(frozen=True)
class Counts:
    """What the releases of a fit say of its units; public, since the noise is in it.

    Attributes:
        counted: how many units added anything, as released: noise may take it below 0.
        counted_std: its standard deviation, of the noise and of the drawing of batches.
        shortened, shortened_std: the same for the units of these that were cut to a bound or a range, or could not be
            read in full; a mean over the releases, each of which has bounds of its own.

    Raises:
        ParameterError: for a number that is not finite, or a negative standard deviation.
    """

    counted: float
    counted_std: float
    shortened: float
    shortened_std: float

    def __post_init__(self) -> None:
        for name in (COUNTED, SHORTENED):
            check_number(name, getattr(self, name))
            check_number(f"{name}_std", getattr(self, f"{name}_std"), low=0)

    @property
    def at_least(self) -> float:
        """Lower end of the 95 % interval of the number of units that counted, 0 or more."""
        return max(self.counted - _Z * self.counted_std, 0.0)

    @property
    def are_few(self) -> bool:
        """Whether the units that counted cannot be told from none, or are too few to learn from, at 95 % confidence."""
        return self.counted < _Z * self.counted_std or self.counted + _Z * self.counted_std < _ENOUGH

    def say(self, unit: str) -> str:
        """Both numbers in words, with their 95 % intervals."""
        counted = _interval(self.counted, self.counted_std)
        return f"{unit}s that counted: {counted}; of these shortened: {_interval(self.shortened, self.shortened_std)}"


def _interval(mean: float, std: float) -> str:
    return f"{max(mean, 0.0):,.0f} ± {_Z * std:,.0f}"
