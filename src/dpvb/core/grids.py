"""The public grids of integer sums, of one wall or of several parties: fine against the noise, with room for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpvb.core.blocks import Grid
from dpvb.core.plan import Release
from dpvb.guards.errors import ParameterError, check_integer, check_number

# The integer sum has room for this many units, or for four times the public number of examples, at least 2¹⁶; that of
# several parties for all of theirs, or for the second number.
_CAPACITY, _PARTIES_CAPACITY = 2**26, 2**30
_LEAST_CAPACITY = 2**16
# Noise std in grid steps, at most: rounding the noise is then never seen, and its draws stay fast.
_NOISE_STEPS = 2.0**34
# With more room than this a bound would have fewer than 2¹⁶ steps.
_LARGEST_CAPACITY = 2**46
# A share of the noise has at least this std in grid steps: see federated.trust for what that is good for.
_LEAST_SHARE = 2.0**20
# A party that adds all of the noise in integers adds a little more of it.
_LARGEST_SHARE = 1.01


@final
@dataclass(frozen=True)
class Party:
    """The place of a wall among several whose sums are added; public.

    Attributes:
        num_parties: their number: the common grid has room for all.
        noise_share: the noise std that each adds, as a share of the release's; 0: who gathers the sums adds the noise,
            and may see them without.
    """

    num_parties: int
    noise_share: float = 1.0

    def __post_init__(self) -> None:
        check_integer("num_parties", self.num_parties, low=1, high=2**20)
        check_number("noise_share", self.noise_share, low=0, high=_LARGEST_SHARE)

    @property
    def gathers_noise(self) -> bool:
        """Whether the parties send sums without noise."""
        return self.noise_share == 0


def grids_of(release: Release, n_units: int | None, party: Party | None = None) -> dict[str, Grid]:
    """The public grid of each block: fine against the noise, with room for the sum."""
    parties, share = (1, 1.0) if party is None else (party.num_parties, party.noise_share or 1.0)
    capacity = parties * (_CAPACITY if n_units is None else max(_LEAST_CAPACITY, 4 * n_units))
    if n_units is None:
        capacity = min(capacity, _PARTIES_CAPACITY)
    if capacity > _LARGEST_CAPACITY:
        raise ParameterError(
            f"n_units must be at most {_LARGEST_CAPACITY // 4 // parties}, got {n_units}: the 64-bit sums "
            "have no room for more units. Split the data, or lower n_units to a bound that holds."
        )
    grids = {}
    for name, block in release.blocks.items():
        bound = block.bound / release.weights[name] if release.clipping == "joint" else block.bound
        std = release.noise_std(name)
        finest = max(std * share / _NOISE_STEPS, bound * capacity / 2.0**62)
        step = 2.0 ** math.ceil(math.log2(finest))
        if party is not None and 0 < party.noise_share * std < _LEAST_SHARE * step:
            raise ParameterError(
                f"noise_multiplier = {release.mechanism.noise_multiplier:g} shared by {parties} parties is too little "
                "to be added in integers: take a smaller epsilon, fewer parties, or a public n_units."
            )
        grids[name] = Grid(step, bound)
    return grids
