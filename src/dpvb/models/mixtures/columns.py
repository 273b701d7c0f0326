"""What a mixture knows of its columns: how many there are of each kind, and how their scores are clipped; public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_choice, check_number
from dpvb.models.mixtures import tuned
from dpvb.models.mixtures.gaussian import Shape
from dpvb.models.mixtures.scores import Clip


@dataclass(frozen=True)
class Columns:
    """The columns.

    Attributes:
        numbers, gaps: number of Gaussian columns, and places of those that may be missing.
        max_counts: the largest of each count.
        sizes: categories of each categorical column.
        covariance: "full" or "diagonal".
        clip_factor: c of `scores`; large: nothing is clipped.

    Raises:
        ParameterError: for a field outside its range.
    """

    numbers: int = 0
    gaps: tuple[int, ...] = ()
    max_counts: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    covariance: str = "full"
    clip_factor: float = tuned.CLIP

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, ("full", "diagonal"))
        check_number("clip", self.clip_factor, low=1e-2, high=1e9)

    @property
    def shape(self) -> Shape:
        """Which numbers go together."""
        return Shape(self.numbers, self.covariance == "full", self.gaps)

    @property
    def clip(self) -> Clip:
        """How scores are clipped."""
        return Clip(self.shape, len(self.max_counts), self.clip_factor)

    @property
    def kind(self) -> int:
        """0: numbers alone, 1: both, 2: categories alone; the constants of `tuned` are in this order."""
        return 0 if not self.sizes else 1 if self.clip.size else 2

    @property
    def weights(self) -> tuple[float, float, float]:
        """How counts, categories and scores share a release."""
        return (tuned.NUMERIC, tuned.MIXED, tuned.CATEGORICAL)[self.kind]

    @property
    def most_p(self) -> Floats:
        """The largest rates."""
        return np.array(self.max_counts)
