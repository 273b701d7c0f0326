"""Names that are not listed in advance, released if their noisy totals are above a threshold.

A unit gives each of its t names the weight 1/√t, so that its weights have norm 1. If it has more than `most_names`,
so many are drawn at random by the unit's own private words. The totals of names that occur get Gaussian noise,
and leave only where the noisy total is above

    threshold = max over t of 1/√t + σ Φ⁻¹((1 - δ)^(1/t)).

For names that others have too this is the Gaussian mechanism. Names of only one unit pass with probability δ at
most, `added_delta`. docs/proofs.md, "A private vocabulary", has the proof, for the rounded noise too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpvb.accounting.events import Event
from dpvb.core.blocks import Block, Grid
from dpvb.core.noise import NoiseSource, Words
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.source import ChunkOfUnits
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import CheckpointError, PrivacyError, check_integer, check_number

#: The block that is released.
WORDS = "words"


class NamedRows(Protocol):
    """Rows of names: row n has those with the numbers indices[indptr[n]:indptr[n + 1]]."""

    @property
    def indptr(self) -> Ints:
        """Where each row begins, and the last one ends."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Numbers of names."""


class NamedSource(Protocol):
    """Private data whose rows have names."""

    @property
    def names(self) -> Sequence[str]:
        """Every name that any row has; private."""

    def chunks(self) -> Iterator[ChunkOfUnits[NamedRows]]:
        """All units, in a fixed order."""


@final
@dataclass(frozen=True)
class Threshold(Mechanism):
    """Gaussian noise on the weights of all units' names, of which those above a threshold leave.

    Attributes:
        most_names: how many names a unit gives at most.
        added_delta: probability of releasing a name that only one unit has.
    """

    most_names: int = 100
    added_delta: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("most_names", self.most_names, low=1, high=10**6)
        check_number("added_delta", self.added_delta, low=0, high=1, closed="neither")

    def event(self, ratio: float) -> Event:
        """A Gaussian release that adds to delta."""
        return replace(super().event(ratio), added_delta=self.added_delta)

    @property
    def threshold(self) -> float:
        """The total above which a name leaves."""
        from scipy.special import ndtri

        t = np.arange(1.0, self.most_names + 1)
        deviations = -ndtri(-np.expm1(np.log1p(-self.added_delta) / t))
        return float(np.max(1.0 / np.sqrt(t) + self.noise_multiplier * deviations))

    def least(self, grid: Grid) -> int:
        """The largest total, in steps of the grid, that does not leave."""
        return math.ceil(self.threshold / grid.step)


def release_of(noise_multiplier: float, *, added_delta: float, most_names: int = 100) -> Release:
    """A release of names; the block's length is that of what one unit gives, as no more is known."""
    mechanism = Threshold(FullBatch(), noise_multiplier, most_names, added_delta)
    return Release({WORDS: Block((most_names,), 1.0, "nonnegative", "first")}, mechanism)


def check(release: Release, plan: Plan, alone: bool) -> None:
    """Raise PrivacyError unless the proof covers a release of a plan, by a wall that is `alone`, no party's."""
    if not alone:
        raise PrivacyError("This wall is one of several parties, which must agree on names beforehand.")
    rule = release.mechanism
    if not isinstance(rule, Threshold):
        raise PrivacyError("Names are released only by a release with a threshold. Use release.")
    covered = release_of(rule.noise_multiplier, added_delta=rule.added_delta, most_names=rule.most_names)
    if release != covered or plan.neighboring_relation != "add_or_remove_one":
        raise PrivacyError(
            "names leave of all units, with nothing else and noise as `release_of` lays it, and neighbours are "
            "'add_or_remove_one': only these have a proof. Nothing was read."
        )


@final
@dataclass(frozen=True)
class Found:
    """Names that were released, in the order of the alphabet, and their noisy totals; public."""

    names: tuple[str, ...]
    total: Floats

    @staticmethod
    def of(made: Mapping[str, NDArray[Any]], grid: Grid) -> Found:
        """Return the result of `found`, made here or in a run that was interrupted.

        Raises:
            CheckpointError: for a record of another form.
        """
        try:
            names = json.loads(made["names"].astype(np.uint8).tobytes())
            total = made[WORDS]
            if total.shape == (len(names),) and total.dtype == np.int64 and all(type(name) is str for name in names):
                return Found(tuple(names), grid.units(total))
        except (KeyError, ValueError, TypeError, RecursionError):
            pass
        raise CheckpointError(
            "The record of this run holds names of another form than its plan's: it was changed, or is another run's. "
            "Nothing is released; begin a new run."
        )


def found(
    source: NamedSource, release: Release, grid: Grid, noise: NoiseSource, *, step: int, plan: Plan
) -> dict[str, Ints]:
    """Names above the threshold, as the bytes of a JSON list, and their noisy totals in steps of the grid.

    Args:
        source: private data.
        release: with a `Threshold`.
        grid: of the block.
        noise: of the wall.
        step, plan: where the release stands.
    """
    mechanism = release.mechanism
    assert isinstance(mechanism, Threshold)
    names = source.names
    total = totals(source, len(names), mechanism.most_names, grid, noise.words(step=step, purpose="names"))
    # A name that does not occur gets no noise. Names are sorted: the order of the data would show who came first.
    there = np.array(sorted(np.flatnonzero(total).tolist(), key=names.__getitem__), dtype=np.int64)
    std = release.noise_std(WORDS) / grid.step
    noisy = total[there] + noise.gaussian(std, total[there], step=step, block=WORDS, plan_digest=plan.digest)
    leave = noisy > mechanism.least(grid)
    spelled = json.dumps([names[number] for number in there[leave].tolist()]).encode()
    return {"names": np.frombuffer(spelled, dtype=np.uint8).astype(np.int64), WORDS: noisy[leave]}


def totals(source: NamedSource, num_names: int, most: int, grid: Grid, words: Words) -> Ints:
    """Exact total weights of names, in steps of the grid, (num_names,).

    Args:
        source: private data.
        num_names: how many names there are.
        most: how many a unit gives.
        grid: of the sums.
        words: uniform words, each of which decides on one name of one unit.
    """
    total, used = np.zeros(num_names, dtype=np.int64), 0
    # Whole numbers whose squares add up to 1/step² at most, whatever t is.
    one = int(1.0 / grid.step)
    weight_t = np.array([0, *(math.isqrt(one * one // t) for t in range(1, most + 1))], dtype=np.int64)
    for chunk in source.chunks():
        rows = chunk.rows
        unit = np.repeat(np.arange(len(rows.indptr) - 1, dtype=np.int64), np.diff(rows.indptr))
        unit = unit if chunk.unit_of_row is None else chunk.unit_of_row[unit]
        # A person's names count once, in however many rows they are.
        unit, name = np.divmod(np.unique(unit * num_names + rows.indices), num_names)
        number_n = np.bincount(unit, minlength=chunk.num_units)
        order = np.lexsort((words(len(unit), used), unit))
        used += len(unit)
        first_n = np.cumsum(number_n) - number_n
        counted = order[np.arange(len(unit)) - first_n[unit] < most]
        np.add.at(total, name[counted], weight_t[np.minimum(number_n, most)][unit[counted]])
    return total
