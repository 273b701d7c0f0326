"""What is public about the columns of a regression: which are numbers, in what range; and what rows say of these.

    u = (x - low) / (high - low) in [0, 1],     means Σ (1, u),     spread Σ √|u - û|

A column that is the product uv of two others is read about their means, as (u - û)(v - v̂), which is within ±1, too: its
spread, and what is said of its weight, then depend on no range.
Both sums are released before anything else; `scaling` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.forms import Rows
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.regression import tuned
from dpvb.models.regression.slants import NO_PRODUCTS, Slants


@dataclass(frozen=True)
class Declared:
    """What is public about the columns of rows of norm 1; vectors (d,), in the units of these rows.

    Attributes:
        low_d, high_d: range of each numeric column; equal ends where a column is not numeric.
        unit_d: the value of a column that is not numeric which counts as one; for an indicator, its value.
        known: whether these units are those of the columns, and no guess.
        products_p3: numeric columns that are products of two others in places u, and these two, (p, 3); rows then have
            a constant in column 0.

    Raises:
        ParameterError: for vectors of different lengths, ends out of order, units that are not positive, or products of
            what is no column.
    """

    low_d: Floats
    high_d: Floats
    unit_d: Positives
    known: bool = True
    products_p3: NDArray[np.intp] = field(default_factory=lambda: NO_PRODUCTS)

    def __post_init__(self) -> None:
        same = self.low_d.shape == self.high_d.shape == self.unit_d.shape
        if not (same and np.all(self.low_d <= self.high_d) and np.all(self.unit_d > 0)):
            raise ParameterError("declared must hold ranges low ≤ high and positive units, one of each a column.")
        places = self.products_p3.ravel()
        inside = self.products_p3.shape[1:] == (3,) and np.all((places > 0) & (places < len(self.unit_d)))
        if not inside or self.low_d[places].any() or (self.high_d > self.unit_d)[places].any():
            raise ParameterError(
                "products must hold the places of columns and their two factors, (p, 3), from 1 on; all of these are "
                "indicators or numbers from 0 to their unit."
            )

    @classmethod
    def plain(cls, width: int) -> Declared:
        """No numeric column, and nothing known of units: 1 is a guess."""
        return cls(np.zeros(width), np.zeros(width), np.ones(width), known=False)

    @property
    def numeric_j(self) -> NDArray[np.intp]:
        """The numeric columns."""
        return np.flatnonzero(self.high_d > self.low_d)

    @property
    def read_r(self) -> NDArray[np.intp]:
        """The columns that are read for the numeric ones: these, and the factors of products."""
        return np.unique(np.append(self.numeric_j, self.products_p3))

    @property
    def _numeric_r(self) -> NDArray[np.intp]:
        """The places of the numeric columns among those that are read."""
        return np.searchsorted(self.read_r, self.numeric_j)

    @property
    def reach_d(self) -> Floats:
        """Length of the range of each column, of one that is not numeric its unit, (d,)."""
        return np.where(self.high_d > self.low_d, self.high_d - self.low_d, self.unit_d)

    def places(self, x_nr: Floats) -> Floats:
        """Places u of the columns that are read, (n, r), each entry by itself."""
        return np.clip((x_nr - self.low_d[self.read_r]) / self.reach_d[self.read_r], 0.0, 1.0)

    def slants(self, mean_d: Floats) -> Slants:
        """What is taken off each product so that it is one about the means of its factors, but for a constant.

        (u - û)(v - v̂) = uv - v̂u - ûv + ûv̂.

        Args:
            mean_d: û of the columns that are read in the units of x, 0 for others, (d,).
        """
        product_p, first_p, second_p = self.products_p3.T
        share_d, size_p = mean_d / self.unit_d, self.unit_d[product_p]
        shares = (share_d[second_p] * size_p / self.unit_d[first_p], share_d[first_p] * size_p / self.unit_d[second_p])
        return Slants(np.tile(product_p, 2), np.append(first_p, second_p), np.concatenate(shares))

    def offsets(self, mean_d: Floats) -> Floats:
        """What is taken off numeric columns after `slants`, in the units of x, (d,): û, or what leaves a product."""
        product_p, first_p, second_p = self.products_p3.T
        offset_d, share_d = np.where(self.high_d > self.low_d, mean_d, 0.0), mean_d / self.unit_d
        offset_d[product_p] = -self.unit_d[product_p] * share_d[first_p] * share_d[second_p]
        return offset_d

    def roots(self, x_nr: Floats, mean_d: Floats) -> Floats:
        """√|u - û| of the numeric columns, (n, j), of a product √|(u - û)(v - v̂)|.

        Args:
            x_nr: the columns that are read for them, (n, r).
            mean_d: û in the units of x.
        """
        numeric_j, low_r = self.numeric_j, self.low_d[self.read_r]
        inside_nr = np.clip(x_nr, low_r, low_r + self.reach_d[self.read_r])
        away_nj = self.slants(mean_d).off(inside_nr, self.read_r)[:, self._numeric_r] - self.offsets(mean_d)[numeric_j]
        return np.sqrt(np.minimum(np.abs(away_nj) / self.reach_d[numeric_j], 1.0))

    @property
    def blocks(self) -> dict[str, Block]:
        """The two releases; none without a numeric column."""
        wide, read = len(self.numeric_j), len(self.read_r)
        means = Block((1 + read,), math.sqrt(1 + read), "nonnegative", "first")
        return {"means": means, "spread": Block((wide,), math.sqrt(wide), "nonnegative", "second")} if wide else {}

    def budget(self, then: float) -> dict[str, float]:
        """Parts of the budget for both and for the release after them, which has the part `then`."""
        if not self.blocks:
            return {"first": then}
        return {"first": tuned.MEANS_BUDGET, "second": tuned.SPREAD_BUDGET, "third": then}

    def contributions(
        self, x_nr: Floats, sound_n: Floats, mean_d: Floats, blocks: Mapping[str, Block]
    ) -> Contributions:
        """What rows add to the releases by the columns that are read; a row whose response is NaN adds nothing."""
        sound_n1 = np.where(np.isnan(sound_n), np.nan, 1.0)[:, None]
        if "means" in blocks:
            return {"means": Rows(np.hstack([sound_n1, self.places(x_nr) * sound_n1]))}
        return {"spread": Rows(self.roots(x_nr, mean_d) * sound_n1)}

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
