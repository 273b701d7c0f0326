"""The state of a first-order regression; everything here is public."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives, Symmetric
from dpvb.models.regression import descent, tuned
from dpvb.models.regression.at_mean import read_at_mean, read_long, tilted
from dpvb.models.regression.curvature import RowMoments, Tracked, read
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.guard import Steepness, StepGuard
from dpvb.models.regression.known import Known
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.scaling import Scaling


@dataclass(frozen=True)
class Iterate:
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        scaling: the map from rows x to the rows x̂ of all that follows.
        drift_e: direction in which the prior mean start_e is uncertain; last_e: point_e before momentum was added.
        curvature_ee: Σ w² b p(1-p) x̃ x̃ᵀ, read for predictions; steep_e: minus the derivative of the averaged score,
            over that, for each direction.
        table_ee, error_ee: the same curvature, read for intervals, and the mean square errors of its entries.
        doubt_e: mean square errors of the slope in each direction.
        dispersion: of counts whose dispersion is learned.
        known: what is known of the weights of x beside these rows, read for predictions and for intervals.
        usual: curvature of a row of size 1, which `ratios` are factors of; most: the largest of these factors.
        offset: what an average row adds to ψ of its own.
    """

    scaling: Scaling
    moments: RowMoments
    start_e: Floats
    drift_e: Floats
    point_e: Floats
    last_e: Floats
    mean: descent.Average
    curvature_ee: Symmetric
    table_ee: Symmetric
    error_ee: Nonnegatives
    doubt_e: Nonnegatives
    steepness: Steepness
    steep_e: Positives
    guard: StepGuard = field(default_factory=StepGuard)
    ratios: Tracked = field(default_factory=lambda: Tracked(np.ones(2)))
    step: int = 0
    dispersion: Dispersion = field(default_factory=Dispersion)
    known: tuple[Known, ...] = ()
    usual: Positive = 0.25
    most: Positive = 1.0
    offset: float = 0.0

    @classmethod
    def start(cls, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats) -> Iterate:
        """The prior, before any score."""
        steepness = Steepness.start(start_e)
        nothing, little = descent.Average(start_e, np.zeros(len(start_e))), 1e-9 * np.eye(len(start_e))
        start = (scaling, moments, start_e, drift_e, start_e, start_e, nothing)
        return cls(*start, little, little, 0 * little, 0 * start_e, steepness, np.ones(len(start_e)))

    def far(self, ratio: float) -> bool:
        """Whether the point is far from the mean one where paths may swing: scores so far apart are not linear."""
        information_e = ratio * self.moments.eigenvalue_e
        seen_e = information_e**2 / (information_e + self.mean.noise * self.moments.scale_e**2)
        away_e = np.where(self.steepness.factor_e > 1, self.point_e - self.mean.point_d, 0.0)
        return bool(np.max(seen_e * away_e**2) > tuned.FAR_STD**2)

    def middle_e(self, likelihood: Likelihood) -> Floats:
        """Where the last curvature is taken: of log odds about halfway from the points' mean to the posterior's."""
        return self.mean.point_d if likelihood.is_count else 0.5 * (self.mean.point_d + self.last_e)

    def finished(
        self,
        noisy_ee: Floats,
        long_e: Floats,
        stds: tuple[float, float, float],
        likelihood: Likelihood,
        intercept: float,
    ) -> Iterate:
        """With the curvature at the mean, in coordinates x̃, read twice beside its guess from the steps.

        Args:
            noisy_ee: noisy Σ w² b p(1-p) x̃ x̃ᵀ, (e, e).
            long_e: noisy diagonal of the part that long rows have in the score's derivative, but not in its variance:
                their weight is w in the one and w² in the other.
            stds: noise stds of both, on the diagonal, and of the matrix that the guess comes from.
            likelihood: of the responses.
            intercept: value of column 0 in every row; 0: there is no such column.
        """
        sd, long_sd, first_sd = stds
        guess_ee = self.curvature_ee
        if not likelihood.is_count:
            guess_ee = tilted(self.moments, np.diag(guess_ee), self.middle_e(likelihood), self.offset)
        curvature_ee = read(noisy_ee, guess_ee, sd, min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd))
        hidden_e = np.clip(first_sd / self.moments.eigenvalue_e, tuned.LEAST_HIDDEN, tuned.MOST_HIDDEN)
        table_ee, error_ee, doubt_e = read_at_mean(noisy_ee, guess_ee, hidden_e, sd)
        if intercept > 0:
            turn_ee = self.moments.shrinking(self.scaling.part_d, intercept)
            table_ee = turn_ee @ table_ee @ turn_ee.T
        steep_e, long_doubt_e = read_long(long_e, long_sd, np.diag(curvature_ee))
        # Where scores showed more curvature than the first majoriser, the slope is between what was read and the last.
        upper_e = self.usual * self.ratios.value[1] * self.moments.eigenvalue_upper_e / self.moments.scale_e**2
        upper_e *= self.guard.safety * self.steepness.factor_e / tuned.CURVATURE_MARGIN
        slope_e, steeper_e = steep_e * np.diag(table_ee), self.steepness.factor_e > 1.0
        hidden_e = np.where(steeper_e & (upper_e > tuned.HIDDEN_SLOPE * slope_e), upper_e - slope_e, 0.0)
        found = replace(self, curvature_ee=curvature_ee, table_ee=table_ee, steep_e=steep_e)
        return replace(found, error_ee=error_ee, doubt_e=doubt_e + long_doubt_e + hidden_e**2 / 12.0)
