"""Regression: curvature once, then first order; unit: a row.

    m ~ N(m_0, C_τ),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   τ estimated

Σ b x xᵀ, b a row's size (its trials, or 1), is released once; see `curvature_then_scores`. It gives coordinates x̃ =
Uᵀx / s, in which every step releases a score of d numbers, and a majoriser: for log odds that of Pólya-Gamma
augmentation (Polson, Scott & Windle 2013), for counts the curvature up to the mode. Below, ⟨ξ⟩ and b p(1-p) stand for
both, over ¼; counts have h(max(μ, y)) and h(μ) = μ/(1 + μ/r), over `steepest`. The averaged scores give a Newton step
at the end.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, λ⁺, s          moments.basis_de, eigenvalue_e, eigenvalue_upper_e, scale_e: read from Σ b x xᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e: prior mean, the base rate along the constant direction
k                    usual: ¼ for log odds; for counts the curvature at the base rate
k c^ξ λ⁺             ratio_xi · eigenvalue_upper_e, the step's majoriser, estimates Σ ⟨ξ⟩ x xᵀ
k c λ                information_e estimates Σ b p(1-p) x xᵀ; c is read from block "variance", c^ξ from "xi"
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
v = 1/Σμ_t²          mean.noise: variance of the averaged score, equal in all coordinates x̃
===================  =============================================================================

*The dispersion* r of negative binomial counts is learned beside their weights as one more coordinate:

    y ~ NB(mean μ, variance μ + μ²/r),   a = log r ~ N(0, s²)
    U_n(a) = r (digamma(y + r) - digamma(r) - log(1 + μ/r)) + r (μ - y)/(r + μ),      I(a, μ) = E U_n²

U and I are score and information of a. In expectation neither depends on the weights' errors to first order (Lawless
1987), so a has a posterior of its own. A row's U is clipped to ±SCORE_BOUND, which ordinary rows stay within: it is
below 1 near y = μ, and far from there about -½z², z the distance in standard deviations. Each step releases Σ U beside
the score of the weights, and the last release once more at the mean of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import digamma

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, MeasuredRows, Rows, ScaledRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores, Readings, ScoreState
from dpvb.models.regression.descent import Ascent, Average, Steepness, StepGuard
from dpvb.models.regression.likelihood import Likelihood, log_odds, log_rate
from dpvb.models.regression.moments import RowMoments, Tracked, read_long, tilted
from dpvb.models.regression.scaling import Scaling
from dpvb.rows import DesignRows

# Limits of log r, which a likelihood can have.
_LEAST, _MOST = math.log(1e-4), math.log(1e6)
# Nodes of a normal ψ over rows, and their weights.
_NODE_K, _WEIGHT_K = np.polynomial.hermite_e.hermegauss(7)
# Shares of the distribution of y, whose quantiles stand for it.
_SHARE_Y = (np.arange(200) + 0.5) / 200


def dispersion_score(y_n: Floats, mean_n: Floats, r: float) -> Floats:
    """U of every row, clipped to ±SCORE_BOUND."""
    gain_n = digamma(y_n + r) - digamma(r) - np.log1p(mean_n / r) + (mean_n - y_n) / (r + mean_n)
    return np.clip(r * gain_n, -tuned.SCORE_BOUND, tuned.SCORE_BOUND)


def dispersion_information(r: float, log_mean: float, variance: float) -> float:
    """Mean of I over rows whose ψ is normal, by quantiles of the distribution; public."""
    mean_k = np.exp(np.clip(log_mean + math.sqrt(variance) * _NODE_K, -20.0, 20.0))
    from scipy.stats import nbinom  # Here, as it takes long to import.

    y_ky = np.asarray(nbinom.ppf(_SHARE_Y, r, (r / (r + mean_k))[:, None]))
    square_k = (dispersion_score(y_ky, mean_k[:, None], r) ** 2).mean(axis=1)
    return float(_WEIGHT_K @ square_k / _WEIGHT_K.sum())


def _one() -> Average:
    return Average(np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class Dispersion:
    """The posterior of a = log r, and what it is made of; public.

    Attributes:
        log_r, variance: mean and variance of a.
        seen: averages of the points a and of the scores Σ U at them.
    """

    log_r: float = 0.0
    variance: Positive = tuned.DISPERSION_STD**2
    seen: Average = field(default_factory=_one)

    @property
    def r(self) -> float:
        """R at the posterior mean of its logarithm."""
        return math.exp(min(max(self.log_r, _LEAST), _MOST))

    def without(self, added: float, error: float) -> Dispersion:
        """The posterior without what errors of ψ added to 1/r: about their mean square, as they spread the means so.

        Args:
            added: posterior mean of the mean square over rows.
            error: its posterior variance.
        """
        seen = math.exp(-self.log_r)
        inverse = max(seen - added, tuned.LEAST_PART * seen)
        variance, prior = self.variance * (seen / inverse) ** 2 + error / inverse**2, tuned.DISPERSION_STD**2
        share = prior / (prior + variance)
        return Dispersion(-share * math.log(inverse), share * variance, self.seen)

    def after(
        self, total: float, noise: Nonnegative, number: float, psi: tuple[float, float], *, fresh: bool
    ) -> Dispersion:
        """The posterior after one more Σ U.

        Args:
            total: noisy Σ U at this a.
            noise: variance of its noise.
            number: number of rows.
            psi: mean and variance of ψ over rows.
            fresh: whether earlier scores count no more.
        """
        point, new = np.array([math.log(self.r)]), np.array([total])
        seen = (_one() if fresh else self.seen).joined(point, new, noise)
        expected = np.array([[max(number * dispersion_information(self.r, *psi), 1e-9)]])
        prior = ridge.WeightPrior(np.zeros((1, 1)), np.array([[tuned.DISPERSION_STD**2]]), (1.0,))
        mean, variance = ridge.posterior(
            ridge.NoisyScore(seen.score_d, seen.point_d, expected, np.ones(1), seen.noise), prior
        )
        # Far from the mode a line is a poor guide.
        way = min(max(float(mean[0]) - math.log(self.r), -tuned.DISPERSION_STEP), tuned.DISPERSION_STEP)
        return Dispersion(math.log(self.r) + way, float(variance[0, 0]), seen)


@dataclass(frozen=True)
class FirstOrderState(ScoreState):
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        last_e: point_e before momentum was added.
        steepness, guard: guards against steps that are too long.
        ratios: of the curvature and the majoriser over `usual`, as scores show them.
        dispersion: of counts whose dispersion is learned.
        usual: curvature of a row of size 1, which `ratios` are factors of; most: the largest of these factors.
        offset: what an average row adds to ψ of its own.
    """

    last_e: Floats
    steepness: Steepness
    _: KW_ONLY
    guard: StepGuard = field(default_factory=StepGuard)
    ratios: Tracked = field(default_factory=lambda: Tracked(np.ones(2)))
    dispersion: Dispersion = field(default_factory=Dispersion)
    usual: Positive = 0.25
    most: Positive = 1.0
    offset: float = 0.0

    def far(self, ratio: float) -> bool:
        """Whether the point is far from the mean one where paths may swing: scores so far apart are not linear."""
        information_e = ratio * self.moments.eigenvalue_e
        seen_e = information_e**2 / (information_e + self.mean.noise * self.moments.scale_e**2)
        away_e = np.where(self.steepness.factor_e > 1, self.point_e - self.mean.point_d, 0.0)
        return bool(np.max(seen_e * away_e**2) > tuned.FAR_STD**2)

    def within_reach(self, point_e: Floats) -> Floats:
        """A point, or one on the way to it: a noisy reading of the curvature must not send every mean to its bound."""
        step_e = point_e - self.point_e
        length = math.sqrt(float(self.moments.eigenvalue_e @ step_e**2) / self.moments.number)
        return self.point_e + step_e * min(1.0, tuned.COUNT_REACH / max(length, 1e-300))


@dataclass(frozen=True)
class FirstOrder(CurvatureThenScores):
    """The model; every field is public, and those that are not named here are as in `CurvatureThenScores`.

    Attributes:
        likelihood: distribution of the responses.
    """

    likelihood: Likelihood = field(default_factory=Likelihood)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; responses and curvature; scores, each with two scalars; the last."""
        d, b = self.n_features, self.likelihood.max_size
        scalar = Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT)
        score_of_r = Block((1,), tuned.SCORE_BOUND, average=False, weight=tuned.DISPERSION_WEIGHT)
        learned = {
            "dispersion": score_of_r,
            "dispersion_at_mean": replace(score_of_r, phase="last", weight=tuned.LAST_DISPERSION),
        }
        blocks = {
            **self.columns.blocks,
            "count": self.likelihood.base_block(1, self._phase, math.sqrt(tuned.COUNT_BUDGET)),
            "curvature": self._moments_block(b, math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "long": Block((d,), tuned.LONGEST * b / 4, "nonnegative", "last", weight=tuned.LONG_WEIGHT),
            **(learned if self.likelihood.learns_dispersion else {}),
        }
        return self.likelihood.bounded(blocks)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        early = self.columns.budget(tuned.COUNT_BUDGET + tuned.CURVATURE_BUDGET)
        learned = tuned.DISPERSION_BUDGET if self.likelihood.learns_dispersion else 0.0
        return Schedule(noise, {**early, "last": tuned.LAST_BUDGET + learned})

    def middle(self, q: FirstOrderState) -> Floats:
        """Where the last curvature is taken: of log odds about halfway from the points' mean to the posterior's."""
        return q.mean.point_d if self.likelihood.is_count else 0.5 * (q.mean.point_d + q.last_e)

    def learned(self, q: FirstOrderState) -> Dispersion:
        """Posterior of the logarithm of a dispersion that is learned.

        It is without what the way from the averages to the weights adds to its score.
        """
        score, prior = self._readings(q).score_of_table()
        mean_e, covariance_ee = ridge.posterior(score, prior)
        share_e = q.moments.eigenvalue_e / q.moments.scale_e**2 / q.moments.number
        spread_ee, way_e = share_e[:, None] * covariance_ee, mean_e - score.offset_e
        added = float(share_e @ way_e**2 + np.trace(spread_ee))
        error = float(2.0 * np.sum(spread_ee * spread_ee.T) + 4.0 * (share_e * way_e) @ spread_ee.T @ way_e)
        return q.dispersion.without(added, error)

    def _start(
        self, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats, **more: Any
    ) -> FirstOrderState:
        steepness = Steepness.start(start_e)
        return FirstOrderState.start(scaling, moments, start_e, drift_e, last_e=start_e, steepness=steepness, **more)

    def _readings(self, q: FirstOrderState, **more: Any) -> Readings:
        return super()._readings(q, offset=None if self.likelihood.is_count else q.offset)

    def _sizes(self, batch: DesignRows) -> Floats:
        return self.likelihood.size(batch.y_n, batch.trials_n)

    def _counted(self, batch: DesignRows, weight_n: Floats) -> Contributions:
        return {"count": Rows(weight_n[:, None] * self.likelihood.base_counts(batch, 1))}

    def _at_step(self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        likelihood, b_n, psi_n = self._at(q, batch, rows, q.point_e)
        residual_n = likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = (weight_n * rows.length_n) ** 2
        return {
            "score": ScaledRows(rows, weight_n * residual_n),
            "xi": Rows((likelihood.majoriser(psi_n, batch.y_n, b_n) * trace_n)[:, None]),
            "variance": Rows((likelihood.curvature(psi_n, b_n) * trace_n)[:, None]),
            **self._of_dispersion("dispersion", likelihood, batch, psi_n),
        }

    def _at_end(self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        likelihood, b_n, psi_n = self._at(q, batch, rows, self.middle(q))
        variance_n = 0.25 * likelihood.curvature(psi_n, b_n)
        long_n = variance_n * weight_n**2 * np.clip(rows.length_n - 1.0, 0.0, tuned.LONGEST)
        return {
            "curvature_at_mean": Gram(rows.x_nd, variance_n * weight_n**2),
            "long": Rows(long_n[:, None] * rows.x_nd**2),
            **self._of_dispersion("dispersion_at_mean", likelihood, batch, psi_n),
        }

    def _at(
        self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weights_e: Floats
    ) -> tuple[Likelihood, Floats, Floats]:
        """The likelihood, each row's size, and its ψ at some weights."""
        psi_n = row_sums(rows.x_nd, q.moments.scale_e * weights_e)
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        return self.likelihood.at(q.dispersion.r), self._sizes(batch), psi_n

    def _of_dispersion(self, name: str, likelihood: Likelihood, batch: DesignRows, psi_n: Floats) -> Contributions:
        """What rows add to the score of a dispersion that is learned."""
        if not self.likelihood.learns_dispersion:
            return {}
        return {name: Rows(dispersion_score(batch.y_n, likelihood.expected(psi_n), likelihood.r)[:, None])}

    def _room(self, s: Estimate, q: FirstOrderState, moments: RowMoments) -> float:
        if not len(self.columns.numeric_j):
            return 1.0
        usual = self.likelihood.at(q.dispersion.r).usual(self._base(s, moments)[0])
        return moments.affordable(self._score_noise(s.noise_std("curvature")) * 0.25 / usual)

    def _base(self, s: Estimate, moments: RowMoments) -> tuple[float, float]:
        """Base rate as log odds or log mean, and the standard deviation of its noise."""
        link = log_rate if self.likelihood.is_count else log_odds
        return link(float(s.read("count")[0]), s.noise_std("count"), moments.number)

    def _score_noise(self, sd: float) -> float:
        """Noise variance of the averaged score, from the noise std of the curvature: both are of one budget."""
        steps = (1.0 - math.fsum(self.schedule.budget.values())) / (1.0 + 2.0 * tuned.SCALAR_WEIGHT**2)
        return (sd * self.likelihood.max_residual / self.likelihood.max_size) ** 2 * tuned.CURVATURE_BUDGET / steps

    def _with_curvature(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """Coordinates, majoriser and prior mean from the release of the curvature."""
        scaling, moments = self._coordinates(s, q)
        likelihood, (base, spread) = self.likelihood.at(q.dispersion.r), self._base(s, moments)
        usual, shares = likelihood.usual(base), s.read("count")[1:].tolist()
        offset, error = likelihood.base_shift(shares, s.noise_std("count"), moments.number)
        start_e, drift_e = (part * moments.constant_e for part in (base - offset, math.hypot(spread, error)))
        most = likelihood.steepest / usual
        start = self._start(scaling, moments, start_e, drift_e, usual=usual, most=most, offset=offset)
        if likelihood.is_shifted and likelihood.is_count:
            # Where rows differ from the start, one noisy reading of how steep it is there led paths astray.
            start = replace(start, ratios=Tracked(np.ones(2), tuned.START_RATIO_STD**2))
        readings = self._readings(start)
        if not readings.beside:
            return start
        (earlier,), prior = readings.beside, readings.prior(scaling.width_d, (tuned.TAU_MEDIAN,))
        precision_ee = ridge.inverse(prior.covariance(prior.taus[0]))[0] + earlier.precision
        point_e = start_e + np.linalg.solve(precision_ee, earlier.pull_d)
        return replace(start, point_e=point_e, last_e=point_e)

    def m_step(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """One majorised step with momentum. Directions whose averaged score is mostly noise take shorter steps."""
        moments, scale_e, sd, late = q.moments, q.moments.scale_e, s.noise_std("score"), q.step / self.num_steps
        is_count, score_e = self.likelihood.is_count, scale_e * s.read("score")
        ratios, (ratio, ratio_xi), total = self._ratios(s, q)
        may_swing = not is_count and late < tuned.AVERAGE_ANEW
        fresh = sd == 0 or late < tuned.AVERAGE_START or (may_swing and q.far(ratio))
        mean = (Average(q.start_e, score_e) if fresh else q.mean).joined(q.point_e, score_e, sd**2)
        information_e, noise_e = ratio * moments.eigenvalue_e, mean.noise * scale_e**2
        gain_e = information_e / (information_e + noise_e)
        # The prior, at the τ that fits best where the averages lead without it.
        readings = self._readings(replace(q, mean=mean))
        near = tuned.COUNT_PATH_STD if is_count and sd > 0 else tuned.INTERCEPT_STD
        prior = readings.prior(q.scaling.width_d, ridge.TAUS, near)
        upper_e = ratio * moments.eigenvalue_upper_e
        newton_e = mean.point_d - q.start_e + mean.score_d / upper_e
        prior = replace(prior, taus=(ridge.best_scale(newton_e, (information_e + noise_e) / upper_e**2, prior),))
        precision_ee, _ = ridge.inverse(prior.covariance(prior.taus[0]))
        gradient_e = gain_e * score_e
        for earlier in readings.beside:
            precision_ee, gradient_e = precision_ee + earlier.precision, gradient_e + earlier.pull_d
        gradient_e -= precision_ee @ (q.point_e - q.start_e)
        # The majoriser, which the guards let grow.
        size, bound_e = (
            max(float(np.mean((gradient_e / gain_e / scale_e) ** 2)), sd**2),
            ratio_xi * moments.eigenvalue_upper_e,
        )
        before = Ascent(q.point_e, q.last_e, q.guard, q.steepness, q.step)
        path = before.guarded(score_e, size, (sd * scale_e) ** 2, bound_e)
        if is_count and sd > 0:
            # A mean is no straight line in ψ: the next score is taken where all scores so far lead, which wanders less.
            steep_e = path.guard.safety * path.steepness.factor_e * information_e
            point_e = q.within_reach(readings.led(steep_e, np.ones(len(steep_e)), prior))
            path = replace(path, point_e=point_e, last_e=point_e)
        else:
            path = path.moved(before, gradient_e, gain_e, bound_e, precision_ee)
        moved = replace(q, mean=mean, ratios=ratios, **vars(path))
        guess_ee = np.diag(moments.weighted(float(ratios.value[0]), q.usual, q.most, total))
        moved = self._dispersed(s, moved, "dispersion", q.point_e, fresh=fresh)
        return replace(moved, curvature_ee=guess_ee, table_ee=guess_ee)

    def _ratios(self, s: Estimate, q: FirstOrderState) -> tuple[Tracked, Floats, float]:
        """The tracked ratios; k c and k c^ξ, (2,); and Σ b ‖x̃‖², which the releases are divided by."""
        total = q.moments.measured if self.likelihood.is_count else q.moments.total
        reading = q.most / total * np.append(s.read("variance"), s.read("xi"))
        ratios = q.ratios.seen(reading, (q.most * s.noise_std("xi") / total) ** 2)
        least = tuned.LEAST_VARIANCE_RATIO, tuned.LEAST_XI_RATIO
        return ratios, q.usual * np.clip(ratios.value, least, q.most), total

    def finished(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """With the curvature at the mean, and what long rows add to the slope of the score."""
        steepest = 4.0 * self.likelihood.at(q.dispersion.r).steepest
        q = self._dispersed(s, q, "dispersion_at_mean", self.middle(q), fresh=True)
        guess_ee = q.curvature_ee
        if not self.likelihood.is_count:
            guess_ee = tilted(q.moments, np.diag(guess_ee), self.middle(q), q.offset)
        q = self._read_at_end(s, q, guess_ee, steepest)
        long_e, long_sd = steepest * s.read("long"), steepest * s.noise_std("long")
        steep_e, long_doubt_e = read_long(long_e, long_sd, np.diag(q.curvature_ee))
        # Where scores showed more curvature than the first majoriser, the slope is between what was read and the last.
        upper_e = q.usual * q.ratios.value[1] * q.moments.eigenvalue_upper_e / q.moments.scale_e**2
        upper_e *= q.guard.safety * q.steepness.factor_e / tuned.CURVATURE_MARGIN
        slope_e, steeper_e = steep_e * np.diag(q.table_ee), q.steepness.factor_e > 1.0
        hidden_e = np.where(steeper_e & (upper_e > tuned.HIDDEN_SLOPE * slope_e), upper_e - slope_e, 0.0)
        return replace(q, steep_e=steep_e, doubt_e=q.doubt_e + long_doubt_e + hidden_e**2 / 12.0)

    def _dispersed(
        self, s: Estimate, q: FirstOrderState, block: str, point_e: Floats, *, fresh: bool
    ) -> FirstOrderState:
        """With the dispersion after its score at a point, if it is learned."""
        if not self.likelihood.learns_dispersion:
            return q
        moments, noise = q.moments, s.noise_std(block) ** 2
        psi = moments.log_odds(point_e)
        psi = psi[0] + q.offset, psi[1]
        learned = q.dispersion.after(float(s.read(block)[0]), noise, moments.number, psi, fresh=fresh)
        # Of the shares of the steepest curvature that the next query returns, `most` is what makes factors of `usual`.
        return replace(q, dispersion=learned, most=self.likelihood.at(learned.r).steepest / q.usual)
