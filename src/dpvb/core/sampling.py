"""Samplers: how a batch is drawn, and the inclusion probability that the accountant is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.accounting.events import Sampler as SamplerName
from dpvb.guards.arrays import Bools
from dpvb.guards.errors import check_integer, check_number

#: Returns the next `count` uniform 64-bit words of a cryptographic stream.
Bits = Callable[[int], NDArray[np.uint64]]
#: Says, chunk after chunk, which of the next `m` units are in the batch.
Draw = Callable[[int], Bools]


class Sampler(Protocol):
    """Draws batches of units and names the event that the accountant is to compose."""

    @property
    def name(self) -> SamplerName:
        """Name of the sampler in the accountant's words."""

    @property
    def sampling_prob(self) -> float:
        """Public inclusion probability q; T/q estimates the full-data sum."""

    def draw(self, bits: Bits, count: Callable[[], int]) -> Draw:
        """Start a fresh batch; `count` tells the (private) number of units to samplers that need it."""


@dataclass(frozen=True)
class FullBatch:
    """Every unit, at every step."""

    name: ClassVar[SamplerName] = "full_batch"
    sampling_prob: ClassVar[float] = 1.0

    def draw(self, bits: Bits, count: Callable[[], int]) -> Draw:
        """Take all units."""
        return lambda m: np.ones(m, dtype=np.bool_)


@dataclass(frozen=True)
class Poisson:
    """Every unit independently with probability q; the default for batches.

    Raises:
        ParameterError: unless 0 < sampling_prob ≤ 1.
    """

    sampling_prob: float
    name: ClassVar[SamplerName] = "poisson"

    def __post_init__(self) -> None:
        check_number("sampling_prob", self.sampling_prob, low=0, high=1, closed="right")

    def draw(self, bits: Bits, count: Callable[[], int]) -> Draw:
        """Compare 64-bit words with ⌊q·2⁶⁴⌋, so that the true rate is never above the accounted q."""
        if self.sampling_prob == 1.0:
            return lambda m: np.ones(m, dtype=np.bool_)
        threshold = np.uint64(math.floor(math.ldexp(self.sampling_prob, 64)))
        return lambda m: bits(m) < threshold


@dataclass(frozen=True)
class FixedSize:
    """A fresh set of S units at each step, uniform without replacement.

    Attributes:
        batch_size: S, public.
        n_units: the public number of units N₀. Under add/remove the true number is private; where it
            falls below N₀ the missing places are empty, so that no unit is ever drawn with a probability above S/N₀.

    Raises:
        ParameterError: unless 1 ≤ batch_size ≤ n_units.
    """

    batch_size: int
    n_units: int
    name: ClassVar[SamplerName] = "fixed_size"

    def __post_init__(self) -> None:
        check_integer("n_units", self.n_units, low=1)
        check_integer("batch_size", self.batch_size, low=1, high=self.n_units)

    @property
    def sampling_prob(self) -> float:
        """S/N₀."""
        return self.batch_size / self.n_units

    def draw(self, bits: Bits, count: Callable[[], int]) -> Draw:
        """Choose the S places with the smallest 64-bit keys, drawn again while two keys are equal."""
        places = max(self.n_units, count())
        keys = bits(places)
        while len(np.unique(keys)) < places:
            keys = bits(places)
        chosen = np.zeros(places, dtype=np.bool_)
        chosen[np.argpartition(keys, self.batch_size - 1)[: self.batch_size]] = True
        return drawn(chosen)


def drawn(chosen: Bools) -> Draw:
    """A draw that was made before, and is taken unit by unit."""
    position = 0

    def take(m: int) -> Bools:
        nonlocal position
        position += m
        return chosen[position - m : position]

    return take
