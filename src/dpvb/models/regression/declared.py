"""What is public about the columns of a regression: which are numbers, in what range; and what rows say of these.

    u = (x - low) / (high - low) in [0, 1],     means Σ (1, u),     spread Σ √|u - û|

Both sums are released before anything else; `scaling` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.forms import Rows
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.regression import tuned


@dataclass(frozen=True)
class Declared:
    """What is public about the columns of rows of norm 1; vectors (d,), in the units of these rows.

    Attributes:
        low_d, high_d: range of each numeric column; equal ends where a column is not numeric.
        unit_d: the value of a column that is not numeric which counts as one; for an indicator, its value.
        known: whether these units are those of the columns, and no guess.

    Raises:
        ParameterError: for vectors of different lengths, ends out of order, or units that are not positive.
    """

    low_d: Floats
    high_d: Floats
    unit_d: Positives
    known: bool = True

    def __post_init__(self) -> None:
        same = self.low_d.shape == self.high_d.shape == self.unit_d.shape
        if not (same and np.all(self.low_d <= self.high_d) and np.all(self.unit_d > 0)):
            raise ParameterError("declared must hold ranges low ≤ high and positive units, one of each a column.")

    @classmethod
    def plain(cls, width: int) -> Declared:
        """No numeric column, and nothing known of units: 1 is a guess."""
        return cls(np.zeros(width), np.zeros(width), np.ones(width), known=False)

    @property
    def numeric_j(self) -> NDArray[np.intp]:
        """The numeric columns."""
        return np.flatnonzero(self.high_d > self.low_d)

    def places(self, x_nj: Floats) -> Floats:
        """Places u of the numeric columns x_nj, (n, j), each entry by itself."""
        low_j, high_j = self.low_d[self.numeric_j], self.high_d[self.numeric_j]
        return np.clip((x_nj - low_j) / (high_j - low_j), 0.0, 1.0)

    def roots(self, x_nj: Floats, mean_d: Floats) -> Floats:
        """√|u - û| of the numeric columns x_nj, (n, j), whose û in the units of x is mean_d, (d,)."""
        return np.sqrt(np.abs(self.places(x_nj) - self.places(mean_d[self.numeric_j])))

    @property
    def blocks(self) -> dict[str, Block]:
        """The two releases; none without a numeric column."""
        wide = len(self.numeric_j)
        means = Block((1 + wide,), math.sqrt(1 + wide), "nonnegative", "first")
        return {"means": means, "spread": Block((wide,), math.sqrt(wide), "nonnegative", "second")} if wide else {}

    def budget(self, then: float) -> dict[str, float]:
        """Parts of the budget for both and for the release after them, which has the part `then`."""
        if not self.blocks:
            return {"first": then}
        return {"first": tuned.MEANS_BUDGET, "second": tuned.SPREAD_BUDGET, "third": then}

    def contributions(
        self, x_nj: Floats, sound_n: Floats, mean_d: Floats, blocks: Mapping[str, Block]
    ) -> Contributions:
        """What the numeric columns of rows add to the releases; a row whose response is NaN adds nothing."""
        sound_n1 = np.where(np.isnan(sound_n), np.nan, 1.0)[:, None]
        if "means" in blocks:
            return {"means": Rows(np.hstack([sound_n1, self.places(x_nj) * sound_n1]))}
        return {"spread": Rows(self.roots(x_nj, mean_d) * sound_n1)}

    def size(self, constant: float) -> float:
        """κ, which leaves a typical row inside norm 1, the intercept's constant included."""
        room = tuned.NUMERIC_SHARE * (1 - constant**2) / max(len(self.numeric_j), 1)
        return min(tuned.NUMERIC_SIZE * constant, math.sqrt(room)) if constant > 0 else math.sqrt(room)


def check_fields(
    n_features: int, num_steps: int, intercept: float, alpha: float | None, declared: Declared | None
) -> None:
    """Check what the first-order models have in common.

    Raises:
        ParameterError: for a field outside its range.
    """
    check_integer("n_features", n_features, low=1, high=10**7)
    check_integer("num_steps", num_steps, low=1, high=10**7)
    check_number("intercept", intercept, low=0, high=1, closed="left")
    check_number("alpha", 1.0 if alpha is None else alpha, low=1e-6, high=1e6)
    if declared is not None and len(declared.unit_d) != n_features:
        raise ParameterError(f"declared must speak of {n_features} columns, got {len(declared.unit_d)}.")
