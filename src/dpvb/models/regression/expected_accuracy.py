"""Expected accuracy of the weights of a first-order regression, from only public numbers; unit: a row.

In coordinates x̃ = x̂ / s each score has noise of one variance, v for the average of all. A weight of x̃ is then known
to

    1/I + v/I²,   I = n k m/s²,   m the mean of x̂², k the curvature of a row,

in which columns are taken for independent. A numeric column has one spread in x̂, whatever its range: see `scaling`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.clipped_counts import ClippedCounts
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.moments import edge
from dpvb.models.regression.scaling import Declared

# kept: benchmark `forecasts` chose these: a bound on counts over their mean, which few rows exceed; the curvature of a
# row of log odds; noise of scores of counts and of numbers over that of the plan, with what clips and curvatures lose;
# and how far a spread must stand out of its noise, over what makes it certain.
_OVER, _CURVATURE, _COUNTS, _NUMBERS, _SEEN = 8.0, 0.18, 1.5, 5.0, 1.4


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a plan's noise: of the averaged score, of Σ x̂ x̂ᵀ, and of the curvature at the end."""

    score: float
    moments: float
    last: float


@dataclass(frozen=True)
class ScoreFacts:
    """Expected distribution of the scores of a model.

    Attributes:
        curvature: k, of a typical row.
        size: of a typical row, in which second moments count it.
        power, shrink: of the scales, as in `tuned`.
        steep: what the last curvature is multiplied by.
        loss: noise of a score over that of the plan; residuals of numbers are divided by their clip, in their std.
        assumed: what is assumed of the responses, by name.
    """

    curvature: float
    size: float = 1.0
    power: float = tuned.SCALE_POWER
    shrink: float = tuned.SCALE_SHRINK
    steep: float = 1.0
    loss: float = 1.0
    assumed: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, likelihood: Likelihood, *, clips: bool = True) -> ScoreFacts:
        """Those of labels or counts; a typical count is an eighth of the largest, and half of the trials are made.

        A dispersion that is learned is taken to be 1. It may change the standard deviations by a factor of three.

        Args:
            likelihood: that of the model.
            clips: whether the model clips counts where it chooses to: at half of the largest.
        """
        if likelihood.is_count:
            counts, mean = likelihood.at(1.0), likelihood.max_count / _OVER
            assumed = (("assumed mean of the counts", mean), ("assumed dispersion", counts.r))
            listed = assumed if likelihood.learns_dispersion else assumed[:1]
            if not clips:
                typical = float(counts.information(np.array(mean)))
                return cls(typical, steep=2.0 * counts.steepest, loss=_COUNTS, assumed=listed)
            scores = ClippedCounts(counts.r, max(likelihood.max_count / 2, 1.0), mean)
            usual = scores.usual(math.log(mean))
            return cls(usual, steep=2.0 * scores.steepest, loss=_COUNTS * scores.unit, assumed=listed)
        size = max(likelihood.max_size / 2, 1.0)
        return cls(_CURVATURE * size, size)


#: Scores of numbers, in standard deviations of their errors.
LINEAR = ScoreFacts(1.0, loss=_NUMBERS)


def stds(columns: Declared, constant: float, seen_2d: Floats, n: float, noise: Noise, scores: ScoreFacts) -> Floats:
    """Posterior standard deviation of each column's effect, (d,).

    A number's effect is that of one standard deviation of it, an indicator's that of being there.

    Args:
        columns, constant: as the model has them, the constant's column first where there is one.
        seen_2d: of each column that is not a number the expected share of rows in which it is there, and the part of it
            that its mean leaves, (2, d).
        n: number of rows.
        noise: of the plan.
        scores: the model's.
    """
    share_d, left_d = seen_2d
    of_score = noise.score * scores.loss
    numeric_d = columns.high_d > columns.low_d
    size_d = np.where(numeric_d, columns.size(constant), columns.unit_d)
    first = int(constant > 0)
    size_d[:first] = constant
    moment_d = np.where(numeric_d, size_d**2, size_d**2 * share_d)
    full_d = n * moment_d
    square_d = full_d**scores.power
    square_d *= float(np.sum(full_d / square_d)) / float(np.sum(full_d)) / scores.shrink**2
    hidden_d = edge(len(size_d), noise.last * scores.steep) * square_d
    information_d = scores.curvature * full_d * np.where(numeric_d, 1.0, left_d)
    variance_d = (1.0 / information_d + of_score**2 * square_d / information_d**2) * size_d**2
    # Noise of the last curvature turns directions into each other, and hides what is below its edge.
    variance_d *= (1.0 + hidden_d / information_d) ** 2
    # A number whose spread is lost in noise has no information.
    variance_d[numeric_d & (scores.size * full_d < _SEEN * tuned.SEEN_STD * noise.moments)] = math.inf
    prior_d = np.where(numeric_d, tuned.TABLE_TAU, tuned.UNIT_EFFECT * tuned.TABLE_TAU)
    prior_d[:first] = tuned.INTERCEPT_STD
    return np.asarray(np.sqrt(1.0 / (1.0 / variance_d + prior_d**-2.0)))
