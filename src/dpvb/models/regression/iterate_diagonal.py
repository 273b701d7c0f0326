"""The state of a diagonal first-order regression, and its two readings: for predictions, and for intervals.

===============  =============================================================================
paper            code
===============  =============================================================================
A = k c D        information_d: Σ w b p(1-p) x_j², c from the block "variance"
B + v            variance_d of the averaged score: B = Σ w² b p(1-p) x_j², v = mean.noise · s²
===============  =============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Positives
from dpvb.models.regression import columns, tuned
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.descent import Average, Descent, DiagonalAndConstant
from dpvb.models.regression.scaling import Scaling
from dpvb.models.regression.weights import Weights


@dataclass(frozen=True)
class Iterate:
    """State of a fit; all public; vectors (d,) over the columns of x̂, numeric ones first.

    Attributes:
        scaling: the map from rows x to rows x̂, over the columns of x.
        width_d: standard deviation of the prior of each weight at α = 1.
        ratios: (2, 1), the information A and the variance B over `usual`·D.
        usual: curvature of a row of size 1; most: the largest of the ratios.
    """

    scaling: Scaling
    columns: columns.Columns
    scale_d: Positives
    start_d: Floats
    descent: Descent
    mean: Average
    width_d: Positives
    ratios: Positives = field(default_factory=lambda: np.full((2, 1), tuned.FIRST_RATIO))
    alpha: Positive = 1.0
    step: int = 0
    usual: Positive = 0.25
    most: Positive = 1.0

    def _information(self, intercept: float) -> tuple[Floats, Floats, Floats]:
        """Precision of the prior; information of the weighted score; variance of the score by data and noise."""
        precision_d = self.alpha / self.width_d**2
        precision_d[: int(intercept > 0)] = tuned.INTERCEPT_PRECISION
        information_d, sampling_d = self.usual * self.ratios * self.columns.second_d
        return precision_d, information_d, sampling_d + self.mean.noise * self.scale_d**2

    def precision(self, intercept: float) -> float:
        """Posterior mean of α, given the weights of the columns that stand out of the noise."""
        precision_d, information_d, variance_d = self._information(intercept)
        square_d = (self._mean(intercept) - self.start_d) ** 2 + 1 / (precision_d + information_d**2 / variance_d)
        seen_d = (square_d / self.width_d**2)[self.columns.seen_d]
        rate = tuned.ALPHA_SHAPE * tuned.DIAGONAL_TAU**2 + 0.5 * float(seen_d.sum())
        return (tuned.ALPHA_SHAPE + 0.5 * len(seen_d)) / rate

    def majoriser(self, intercept: float) -> DiagonalAndConstant:
        """Majoriser of the curvature; its ridge is the prior's precision, and larger if there is noise in the score."""
        precision_d, information_d, variance_d = self._information(intercept)
        ridge_d, found = precision_d * variance_d / information_d, self.columns
        steep = self.usual * max(1.0, float(self.ratios[0, 0]))
        return DiagonalAndConstant(steep * found.steep_d, ridge_d, found.sum_d, steep / found.number)

    def _mean(self, intercept: float) -> Floats:
        """One more step, from the averages, (d,)."""
        majoriser = self.majoriser(intercept)
        gradient_d = self.mean.score_d - majoriser.ridge_d * (self.mean.point_d - self.start_d)
        return self.mean.point_d + majoriser.solve(gradient_d, self.descent.safety)

    def predictions(self, declared: Declared, intercept: float, order: NDArray[np.intp]) -> Weights:
        """Posterior of the weights of x; `order` has the columns of x in the order of x̂."""
        precision_d, information_d, variance_d = self._information(intercept)
        data_d = np.maximum(variance_d - self.mean.noise * self.scale_d**2, tuned.ROUNDING * variance_d)
        aware_d, naive_d = (1 / (precision_d + information_d**2 / v_d) for v_d in (variance_d, data_d))
        scaling, place_d = self.scaling, np.argsort(order)
        mean_d = scaling.factor_d * self._mean(intercept)[place_d]
        if intercept > 0:
            mean_d[0] -= float(mean_d @ scaling.centre_d) / intercept
        slants = declared.slants(scaling.mean_d)
        np.subtract.at(mean_d, slants.factor_k, slants.share_k * mean_d[slants.product_k])
        parts = [scaling.factor_d**2 * v_d[place_d] for v_d in (aware_d, naive_d, 1 / precision_d)]
        found = Weights.alone(mean_d, *parts[:2])
        return replace(found, prior=parts[2], centre_d=scaling.centre_d, slant_3k=np.array(slants, dtype=np.float64))

    def table(self, declared: Declared, intercept: float, alpha: float | None, order: NDArray[np.intp]) -> Weights:
        """The same at a fixed width of the prior, with spreads at their low end."""
        scaling, found = self.scaling, self.columns
        # A centre that is off adds to the second moment, and nothing to what the data say of the weight.
        spread_d = found.second_d - found.number * (tuned.CENTRE_STD * scaling.doubt_d[order]) ** 2
        least_d = found.second_d * (scaling.width_d / scaling.wide_d)[order] ** 2
        second_d = np.where(scaling.doubt_d[order] > 0, np.maximum(spread_d, least_d), found.second_d)
        read = replace(self, columns=replace(found, second_d=second_d))
        if alpha is None:
            read = replace(read, width_d=scaling.wide_d[order], alpha=tuned.TABLE_TAU**-2)
        return replace(read.predictions(declared, intercept, order), unseen_d=scaling.unseen_d)
