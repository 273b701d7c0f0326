"""Samplers: how a batch is drawn, and the inclusion probability that the accountant is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.accounting.events import Sampler as SamplerName
from dpvb.guards.arrays import Bools
from dpvb.guards.errors import check_integer, check_number

#: A stream of uniform 64-bit words, of which any place is reached at once: `words(count, start=0)`.
Words = Callable[..., NDArray[np.uint64]]
#: Says which of the `count` units from unit `start` on are in the batch: `draw(start, count)`.
Draw = Callable[[int, int], Bools]

# Words are counted by their first 12 bits, so that 1/4096 of them are held; a block of them stays in the cache.
_BUCKET_BITS, _BLOCK = 12, 2**16


class Sampler(Protocol):
    """Draws batches of units and names the event that the accountant is to compose."""

    @property
    def name(self) -> SamplerName:
        """Name of the sampler in the accountant's words."""

    @property
    def sampling_prob(self) -> float:
        """Public inclusion probability q; T/q estimates the full-data sum."""

    def draw(self, words: Words, count: Callable[[], int]) -> Draw:
        """Draw a fresh batch; `count` tells the (private) number of units to samplers that need it."""


@dataclass(frozen=True, repr=False)
class Below:
    """The batch of the units whose words are below a limit. It may travel: every process draws the same.

    Attributes:
        words: the stream; word first + n is that of unit n.
        limit: at 2⁶⁴ every unit is drawn, and no word is formed.
        first: place of the word of unit 0.
    """

    words: Words
    limit: int
    first: int = 0

    def __call__(self, start: int, count: int) -> Bools:
        """Return which of the units from `start` on are in the batch, shape (count,); private."""
        if self.limit >= 2**64:
            return np.ones(count, dtype=np.bool_)
        return self.words(count, start=self.first + start) < np.uint64(self.limit)


@dataclass(frozen=True)
class FullBatch:
    """Every unit, at every step."""

    name: ClassVar[SamplerName] = "full_batch"
    sampling_prob: ClassVar[float] = 1.0

    def draw(self, words: Words, count: Callable[[], int]) -> Draw:
        """Take all units."""
        return Below(words, 2**64)


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

    def draw(self, words: Words, count: Callable[[], int]) -> Draw:
        """Compare 64-bit words with ⌊q·2⁶⁴⌋, so that the true rate is never above the accounted q."""
        return Below(words, math.floor(math.ldexp(self.sampling_prob, 64)))


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

    def draw(self, words: Words, count: Callable[[], int]) -> Draw:
        """Choose the S places with the smallest words, with fresh ones while the limit passes between two equal words.

        The batch is uniform among the sets of S places, exactly: docs/proofs.md, "Sampled batches". Words are not held:
        the reader of a unit draws its word again.
        """
        places = max(self.n_units, count())
        first = 0
        while (limit := _limit(words, first, places, self.batch_size)) is None:
            first += places
        return Below(words, limit, first)


@dataclass(frozen=True, repr=False)
class Listed:
    """A batch that is listed unit by unit, because its units have another order than their words.

    Attributes:
        units: which units from unit `first` on are in the batch; private.
        first: number of the first unit of the list.
    """

    units: Bools
    first: int = 0

    def __call__(self, start: int, count: int) -> Bools:
        """Return which of the units from `start` on are in the batch, shape (count,); private."""
        return self.units[start - self.first : start - self.first + count]


def _limit(words: Words, first: int, places: int, size: int) -> int | None:
    """Return a number that exactly `size` of the words from `first` on are below; None if there is none."""
    shift = np.uint64(64 - _BUCKET_BITS)

    def blocks() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        for start in range(0, places, _BLOCK):
            block = words(min(_BLOCK, places - start), start=first + start)
            yield block, (block >> shift).view(np.int64)

    in_bucket = np.zeros(2**_BUCKET_BITS, dtype=np.int64)
    for _, bucket_n in blocks():
        in_bucket += np.bincount(bucket_n, minlength=len(in_bucket))
    up_to = np.cumsum(in_bucket)
    bucket = int(np.searchsorted(up_to, size))  # The first one up to which there are `size` words.
    if up_to[bucket] == size:
        return (bucket + 1) << int(shift)
    last = np.sort(np.concatenate([block[bucket_n == bucket] for block, bucket_n in blocks()]))
    place = size - int(up_to[bucket] - in_bucket[bucket])
    return None if last[place - 1] == last[place] else int(last[place])
