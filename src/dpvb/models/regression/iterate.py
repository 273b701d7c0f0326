"""The state of a first-order regression, and its two readings: a posterior for predictions, and one for intervals.

Predictions gain from a width τ of the prior that is estimated. An interval does not: where noise hides scales, the
estimate falls towards 0, and takes the interval with it. Everything here is public.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives, Symmetric
from dpvb.models.regression import descent, ridge, saturation, tuned
from dpvb.models.regression.at_mean import read_at_mean, read_long, tilted
from dpvb.models.regression.curvature import RowMoments, Tracked, read
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.guard import Steepness, StepGuard
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.scaling import Scaling
from dpvb.models.regression.weights import Weights


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

    def prior(
        self,
        declared: Declared,
        width_d: Floats,
        taus: tuple[float, ...],
        intercept: float,
        alpha: float | None,
        intercept_std: float = tuned.INTERCEPT_STD,
    ) -> ridge.Prior:
        """The prior of m - m_0 in the eigenbasis.

        Args:
            declared: what is public about the columns.
            width_d: standard deviation of each weight of x̂ at τ = 1.
            taus: values of τ.
            intercept: value of column 0 in every row; 0: there is no such column.
            alpha: precision of the prior N(m_0, I/alpha) of the weights of x instead, if it is not None.
            intercept_std: standard deviation of the mean of ψ over rows.
        """
        basis_de, drift = self.moments.basis_de, np.outer(self.drift_e, self.drift_e)
        if alpha is not None:
            forth_dd = np.linalg.inv(self.scaling.back(declared, intercept)).T @ basis_de
            return ridge.Prior(np.zeros_like(drift), forth_dd.T @ forth_dd / alpha + drift, (1.0,))
        constant_d, mean_d = basis_de @ self.moments.constant_e, basis_de @ self.moments.mean_e
        free_d = np.where(np.arange(len(width_d)) < (intercept > 0), 0.0, width_d)
        prior = ridge.Prior.of(free_d, mean_d, constant_d, intercept_std, taus).turned(basis_de)
        return replace(prior, fixed_ee=prior.fixed_ee + drift)

    def predictions(self, declared: Declared, intercept: float, alpha: float | None, is_count: bool) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x: τ is estimated and averaged over."""
        prior = self.prior(declared, self.scaling.width_d, ridge.TAUS, intercept, alpha)
        back_dd = self.scaling.back(declared, intercept)
        return self._posterior(self.curvature_ee, 0 * self.error_ee, 0 * self.doubt_e, prior, back_dd, is_count)

    def table(self, declared: Declared, intercept: float, alpha: float | None, is_count: bool) -> Weights:
        """Posterior of the weights for intervals: τ is fixed, spreads are at their low end, the curvature may err."""
        scaling, back_dd = self.scaling, self.scaling.back(declared, intercept)
        prior = self.prior(declared, scaling.wide_d, (tuned.TABLE_TAU,), intercept, alpha)
        found = self._posterior(self.table_ee, self.error_ee, self.doubt_e, prior, back_dd, is_count)
        back_de = back_dd @ self.moments.basis_de
        prior_dd = back_de @ prior.covariance(prior.taus[0]) @ back_de.T
        return replace(found, prior=prior_dd, unseen_d=scaling.unseen_d, centre_d=scaling.centre_d)

    def _posterior(
        self,
        curvature_ee: Floats,
        error_ee: Floats,
        doubt_e: Floats,
        prior: ridge.Prior,
        back_dd: Floats,
        is_count: bool,
    ) -> Weights:
        """A Newton step from the averages, moved for saturation, in the coordinates of x."""
        moments, scale_e = self.moments, self.moments.scale_e
        score, prior = self._score(curvature_ee), prior.turned(np.diag(scale_e))
        mean_e, aware_ee = ridge.honest(score, prior, error_ee, doubt_e)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        change = float(scale_e * moments.constant_e @ score.slope_ee @ (mean_e - score.offset_e)) / moments.number
        m_e, back_de = self.start_e + mean_e / scale_e, back_dd @ moments.basis_de
        if not is_count:
            m_e += saturation.shift(moments, self.mean.point_d, m_e, change, self.offset) * moments.constant_e
        x_de = back_de / scale_e
        return Weights.alone(back_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)

    def _score(self, curvature_ee: Floats) -> ridge.NoisyScore:
        """The averaged score, in the coordinates x̃."""
        scale_e = self.moments.scale_e
        offset_e = scale_e * (self.mean.point_d - self.start_e)
        return ridge.NoisyScore(self.mean.score_d / scale_e, offset_e, curvature_ee, self.steep_e, self.mean.noise)

    def learned(self, declared: Declared, intercept: float, alpha: float | None) -> Dispersion:
        """The dispersion, without what the way from the averages to the weights adds to that of its score."""
        scale_e = self.moments.scale_e
        prior = self.prior(declared, self.scaling.wide_d, (tuned.TABLE_TAU,), intercept, alpha)
        score = self._score(self.table_ee)
        mean_e, covariance_ee = ridge.honest(score, prior.turned(np.diag(scale_e)), self.error_ee, self.doubt_e)
        share_e, way_e = self.moments.eigenvalue_e / scale_e**2 / self.moments.number, mean_e - score.offset_e
        spread_ee = share_e[:, None] * covariance_ee
        added = float(share_e @ way_e**2 + np.trace(spread_ee))
        error = float(2.0 * np.sum(spread_ee * spread_ee.T) + 4.0 * (share_e * way_e) @ spread_ee.T @ way_e)
        return self.dispersion.without(added, error)
