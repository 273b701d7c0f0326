"""Scores of private units, for choosing among fitted models: behind the wall, bounded, each from its own unit alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from dpvb.core.contributions import Contributions
from dpvb.core.forms import Rows
from dpvb.core.noise import Words
from dpvb.core.source import Chunk, Source, pieces
from dpvb.guards.arrays import Bools, Floats

Units = TypeVar("Units")
#: Scores of clean rows under a fitted model; NaN where there is nothing to score.
Score = Callable[[Any], Floats]


class Part(Generic[Units]):
    """The units whose coin says that they are scored, or those that are fitted."""

    def __init__(self, source: Source[Units], coins: Words, holdout: float, *, scored: bool) -> None:
        self._source, self._coins, self._scored = source, coins, scored
        self._threshold = np.uint64(math.floor(math.ldexp(holdout, 64)))

    def count(self) -> int:
        """Number of units in this part; private."""
        return int(np.count_nonzero(self._chosen(0, self._source.count())))

    def chunks(self) -> Iterator[Chunk[Any]]:
        """Chunks of this part, in the source's order; scored ones with their persons in sight."""
        start = 0
        for chunk in self._source.chunks():
            chosen = chunk.select(self._chosen(start, chunk.num_units))
            start += chunk.num_units
            yield Whole(chosen) if self._scored else chosen

    def _chosen(self, start: int, number: int) -> Bools:
        return np.asarray((self._coins(number, start) < self._threshold) == self._scored)


@dataclass(frozen=True)
class Whole:
    """A chunk whose rows are itself, so that a person's rows can be averaged; each unit is one row."""

    rows: Chunk[Any]
    unit_of_row: None = None

    @property
    def num_units(self) -> int:
        """Number of units in the chunk."""
        return self.rows.num_units

    def select(self, units: Bools) -> Whole:
        """The chosen units alone."""
        return Whole(self.rows.select(units))


def contributions(score: Score, score_range: tuple[float, float], chunk: Chunk[Any]) -> Contributions:
    """Each unit's score, clipped, about the middle of its range; NaN, which the wall drops, for what has none.

    The middle takes nothing from the comparison, as all candidates are scored on the same units, and halves the norm.
    """
    values = [_values(score, score_range, piece) for piece in pieces(chunk)]
    return {"score": Rows(np.concatenate(values)[:, None])}


def _values(score: Score, score_range: tuple[float, float], chunk: Chunk[Any]) -> Floats:
    """The scores of a chunk's units."""
    low, high = score_range
    value_n = np.clip(score(chunk.rows), low, high) - (low + high) / 2
    if chunk.unit_of_row is not None:
        sound = np.isfinite(value_n)
        unit, units = chunk.unit_of_row[sound], chunk.num_units
        with np.errstate(invalid="ignore"):
            total = np.bincount(unit, weights=value_n[sound], minlength=units)
            value_n = total / np.bincount(unit, minlength=units)
    return np.asarray(value_n)
