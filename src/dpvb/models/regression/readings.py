"""The state of a first-order regression, and its two readings: a posterior for predictions, and one for intervals.

Predictions gain from a width τ of the prior that is estimated. An interval does not: where noise hides scales, the
estimate falls towards 0, and takes the interval with it.

A linear step overlooks *saturation*: the wider log odds spread, the nearer to ½ is their probability. Over rows, the
log odds xᵀm at weights m have a mean μ and a variance v, both read from the second moments. If they are normal, the
mean probability is σ(κμ) with κ = (1 + πv/8)^-½ (MacKay 1992). A Newton step from a small v to a large v keeps μ,
although κ falls: if most responses are zeros, it predicts too many ones. `saturation_shift` corrects the mean log odds
for that.

Everything here is public, and post-processing of released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives, Symmetric
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.descent import Average, Steepness, StepGuard
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.moments import RowMoments, Tracked, read_at_mean, read_long, read_positive, tilted
from dpvb.models.regression.ridge import Known, Weights
from dpvb.models.regression.scaling import Declared, Scaling


def saturation_shift(
    moments: RowMoments, before_e: Floats, after_e: Floats, expected: float, offset: float = 0.0
) -> float:
    """Shift of the mean log odds after a step that keeps their spread alone from moving the mean probability.

    The shift is capped by the change that the linear model itself predicted: if the model already accounts for
    saturation, the shift is zero.

    Args:
        moments: moments of the rows.
        before_e, after_e: weights before and after the step, in the eigenbasis.
        expected: change of the mean probability by the step in the linear model.
        offset: what rows add to their log odds, on average.
    """
    (mean, variance), (mean_after, variance_after) = moments.log_odds(before_e), moments.log_odds(after_e)
    flatter = _slope(variance_after) / _slope(min(variance, variance_after))
    mean, mean_after = mean + offset, mean_after + offset
    by_spread = mean_after / flatter - mean_after
    target = float(np.clip(expit(_slope(variance) * mean) + expected, 1e-9, 1.0 - 1e-9))
    by_expectation = float(logit(target)) / _slope(variance_after) - mean_after
    if by_spread * by_expectation <= 0.0:
        return 0.0
    return math.copysign(min(abs(by_spread), abs(by_expectation)), by_spread)


def _slope(variance: float) -> float:
    """κ."""
    return 1.0 / math.sqrt(1.0 + math.pi / 8.0 * variance)


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
    mean: Average
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
        nothing, little = Average(start_e, np.zeros(len(start_e))), 1e-9 * np.eye(len(start_e))
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
        curvature_ee = read_positive(noisy_ee, guess_ee, sd, min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd))
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


@dataclass(frozen=True)
class Readings:
    """What is read from a state; vectors (e,) are in the eigenbasis of its moments.

    Attributes:
        q: the state.
        declared: what is public about the columns.
        intercept: value of column 0 in every row; 0: there is no such column.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
    """

    q: Iterate
    declared: Declared
    intercept: float
    alpha: float | None

    def prior(
        self, width_d: Floats, taus: tuple[float, ...], intercept_std: float = tuned.INTERCEPT_STD
    ) -> ridge.Prior:
        """The prior of m - m_0 in the eigenbasis.

        Args:
            width_d: standard deviation of each weight of x̂ at τ = 1.
            taus: values of τ.
            intercept_std: standard deviation of the mean of ψ over rows.
        """
        columns = (self.declared, width_d, taus, self.intercept, self.alpha, intercept_std)
        return ridge.of_columns(self.q.scaling, self.q.moments, self.q.drift_e, *columns)

    def beside(self) -> Known | None:
        """What is known beside the rows of m - m_0 in the eigenbasis."""
        return self.q.known[0].turned(self.back_de, self.back_de @ self.q.start_e) if self.q.known else None

    @cached_property
    def back_de(self) -> Floats:
        """The map from weights in the eigenbasis to those of x."""
        return self.q.scaling.back(self.declared, self.intercept) @ self.q.moments.basis_de

    def predictions(self, is_count: bool) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x: τ is estimated and averaged over."""
        prior = self.prior(self.q.scaling.width_d, ridge.TAUS)
        score = self._score(self.q.curvature_ee, self.q.known[:1])
        return self._posterior(score, 0 * self.q.error_ee, 0 * self.q.doubt_e, prior, is_count)

    def table(self, is_count: bool) -> Weights:
        """Posterior of the weights for intervals: τ is fixed, spreads are at their low end, the curvature may err."""
        scaling, back_de = self.q.scaling, self.back_de
        prior = self.prior(scaling.wide_d, (tuned.TABLE_TAU,))
        score = self._score(self.q.table_ee, self.q.known[1:])
        found = self._posterior(score, self.q.error_ee, self.q.doubt_e, prior, is_count)
        prior_dd = back_de @ prior.covariance(prior.taus[0]) @ back_de.T
        return replace(found, prior=prior_dd, unseen_d=scaling.unseen_d, centre_d=scaling.centre_d)

    def _posterior(
        self,
        score: ridge.NoisyScore,
        error_ee: Floats,
        doubt_e: Floats,
        prior: ridge.Prior,
        is_count: bool,
    ) -> Weights:
        """A Newton step from the averages, moved for saturation, in the coordinates of x."""
        moments, scale_e = self.q.moments, self.q.moments.scale_e
        prior = prior.turned(np.diag(scale_e))
        score = ridge.honest(score, prior, error_ee, doubt_e)
        mean_e, aware_ee = ridge.posterior(score, prior)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        change = float(scale_e * moments.constant_e @ score.slope_ee @ (mean_e - score.offset_e)) / moments.number
        m_e = self.q.start_e + mean_e / scale_e
        if not is_count:
            m_e += saturation_shift(moments, self.q.mean.point_d, m_e, change, self.q.offset) * moments.constant_e
        x_de = self.back_de / scale_e
        found = Weights.alone(self.back_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
        data = score.information().turned(np.asarray(np.linalg.inv(x_de)), -scale_e * self.q.start_e)
        return replace(found, data=data)

    def _score(self, curvature_ee: Floats, known: tuple[Known, ...]) -> ridge.NoisyScore:
        """The averaged score, in the coordinates x̃, beside what is known."""
        mean, scale_e, start_e = self.q.mean, self.q.moments.scale_e, self.q.start_e
        known = tuple(one.turned(self.back_de / scale_e, self.back_de @ start_e) for one in known)
        offset_e = scale_e * (mean.point_d - start_e)
        return ridge.NoisyScore(mean.score_d / scale_e, offset_e, curvature_ee, self.q.steep_e, mean.noise, known)

    def learned(self) -> Dispersion:
        """The dispersion, without what the way from the averages to the weights adds to that of its score."""
        scale_e = self.q.moments.scale_e
        prior = self.prior(self.q.scaling.wide_d, (tuned.TABLE_TAU,))
        prior = prior.turned(np.diag(scale_e))
        score = self._score(self.q.table_ee, self.q.known[1:])
        score = ridge.honest(score, prior, self.q.error_ee, self.q.doubt_e)
        mean_e, covariance_ee = ridge.posterior(score, prior)
        share_e, way_e = self.q.moments.eigenvalue_e / scale_e**2 / self.q.moments.number, mean_e - score.offset_e
        spread_ee = share_e[:, None] * covariance_ee
        added = float(share_e @ way_e**2 + np.trace(spread_ee))
        error = float(2.0 * np.sum(spread_ee * spread_ee.T) + 4.0 * (share_e * way_e) @ spread_ee.T @ way_e)
        return self.q.dispersion.without(added, error)
