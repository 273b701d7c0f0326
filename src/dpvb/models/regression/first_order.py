"""Regression: curvature once, then first order; unit: a row.

    m ~ N(m_0, Γ_τ),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   τ estimated

Σ b x xᵀ, b a row's size (its trials, or 1), is released once; see `curvature_then_scores`. It gives coordinates x̃ =
Uᵀx / s, in which every step releases a score of d numbers, and an upper bound on the curvature. The averaged scores
give a Newton step at the end. The equations are in docs/theory/regressions.md; below, h is the curvature of a row in
ψ in expectation: b π(1-π), or that of a clipped count.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, λ⁺, s          moments.basis_de, eigenvalue_e, eigenvalue_upper_e, scale_e: read from Σ b x xᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e: prior mean, the base rate along the constant direction
k                    usual: ¼ for log odds; for counts the curvature at the base rate
k c λ                information_e estimates Σ h x xᵀ; c is ratio, released in block "variance"
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
v = 1/Σ 1/η_t²       mean.noise: variance of the averaged score, equal in all coordinates x̃
===================  =============================================================================

*The dispersion* r of negative binomial counts is learned together with their weights as one more coordinate:

    y ~ NB(mean μ, variance μ + μ²/r),   a = log r ~ N(0, 1.5²)
    U_n(a) = r (digamma(y + r) - digamma(r) - log(1 + μ/r)) + r (μ - y)/(r + μ),      i(a, μ) = E U_n²

U and i are score and information of a. In expectation neither depends on the weights' errors to first order (Lawless
1987), so a has a posterior of its own. A row's U is clipped to ±SCORE_BOUND, which ordinary rows stay within: it is
below 1 near y = μ, and far from there about -½z², z the distance in standard deviations. Each step releases Σ U with
the score of the weights, and the last release once more at the mean of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import digamma

from dpvb.core.blocks import Block, Contribution, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, MeasuredRows, Rows, ScaledRows
from dpvb.core.model import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positive
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.clipped_counts import ClippedCounts, CountHistogram, lower_ends, one_hot
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores, Readings, ScoreState
from dpvb.models.regression.descent import Average, farthest, steady_variance
from dpvb.models.regression.likelihood import LEAST_RATE, Likelihood, log_odds
from dpvb.models.regression.moments import RowMoments, Tracked, edge
from dpvb.models.regression.persons import averaged, filled
from dpvb.models.regression.ridge import WeightPosterior
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
    """Mean of i over rows whose ψ is normal, by quantiles of the distribution; public."""
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
        prior = ridge.WeightPrior(np.zeros((1, 0)), np.array([[tuned.DISPERSION_STD]]), (1.0,))
        mean, variance = ridge.posterior(ridge.NoisyScore(seen.score_d, seen.point_d, expected, 1.0, seen.noise), prior)
        # Far from the mode a line is a poor guide.
        way = min(max(float(mean[0]) - math.log(self.r), -tuned.REACH), tuned.REACH)
        return Dispersion(math.log(self.r) + way, float(variance[0, 0]), seen)


@dataclass(frozen=True)
class FirstOrderState(ScoreState):
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        last_e: point_e before momentum was added.
        mode_e: posterior mean by the averages.
        shaken_e: mean square of point_e - mode_e by noise if the path has settled; noise_e: its mean over the scores.
        ratio: c, the average curvature of a row over k, as released with the scores.
        dispersion: of counts whose dispersion is learned.
        usual: k, curvature of a row of size 1 at the start; most: the largest curvature over k.
        offset: what an average row adds to ψ of its own.
        clip, typical: of counts, K and the mean at which κ is the largest residual.
        scatter: mean square, over rows and averaged scores, of the way in ψ from a score's point to their mean point.
    """

    last_e: Floats
    mode_e: Floats
    shaken_e: Nonnegatives
    noise_e: Nonnegatives
    _: KW_ONLY
    ratio: Tracked = field(default_factory=Tracked)
    dispersion: Dispersion = field(default_factory=Dispersion)
    usual: Positive = 0.25
    most: Positive = 1.0
    offset: float = 0.0
    clip: Positive = 1.0
    typical: Nonnegative = 0.0
    scatter: Nonnegative = 0.0


@dataclass(frozen=True)
class FirstOrder(CurvatureThenScores):
    """The model; every field is public, and those that are not named here are as in `CurvatureThenScores`.

    Attributes:
        likelihood: distribution of the responses.
    """

    likelihood: Likelihood = field(default_factory=Likelihood)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; responses and curvature; scores, each with a scalar; the last."""
        d, b = self.n_features, self.likelihood.max_size
        score_of_r = Block((1,), tuned.SCORE_BOUND, average=False, weight=tuned.SCALAR_WEIGHT)
        learned = {
            "dispersion": score_of_r,
            "dispersion_at_mean": replace(score_of_r, phase="last", weight=1.0),
        }
        blocks = {
            **self.columns.blocks,
            "count": self._count_block,
            "curvature": self._moments_block(b, math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), 1.0 if self.likelihood.is_count else self.likelihood.max_residual, average=False),
            "variance": Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT),
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            **(learned if self.likelihood.learns_dispersion else {}),
        }
        return {**self.likelihood.bounded(blocks), **self._robust_blocks(tuned.LAST_BUDGET)}

    @property
    def _count_block(self) -> Block:
        """The block of the base rate: a histogram of counts, or the sum of responses; and the sum of offsets."""
        if not self.likelihood.is_count:
            return self.likelihood.base_block(1, self._phase, math.sqrt(tuned.SUM_BUDGET))
        shifted = self.likelihood.is_shifted
        shape, bound = (len(self._lower_k) + shifted,), math.sqrt(1.0 + shifted)
        return Block(shape, bound, "nonnegative", self._phase, weight=math.sqrt(tuned.SUM_BUDGET))

    @property
    def _lower_k(self) -> Floats:
        """Lower ends of the bins of counts."""
        return lower_ends(self.likelihood.max_count)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.n_steps / t) for t in range(1, self.n_steps + 1)]
        early = self.columns.budget(tuned.SUM_BUDGET + tuned.CURVATURE_BUDGET)
        last = (1 + self.likelihood.learns_dispersion) * tuned.LAST_BUDGET + self.robust * tuned.ROBUST_BUDGET
        return Schedule(noise, {**early, "last": last})

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

    def convergence_ratio(self, q: FirstOrderState, table: WeightPosterior) -> float:
        """Bias of the weights by a path that is too short, in posterior standard deviations; 0 if it has settled.

        The averaged score is taken for linear. Its second derivative is at most its first one (log odds and log rates
        are self-concordant: Bach 2010), so that a way δ of ψ adds about δ²/2 to ψ: of the mean point to the mean of the
        weights, and of the points to their mean. One direction may have all of it. `descent` has the test.
        """
        share_e, forth_ed = q.moments.eigenvalue_e / q.moments.number, np.linalg.inv(self._readings(q).back_de)
        newton_e, variance_e = (
            forth_ed @ table.mean_d,
            share_e * np.sum((forth_ed @ table.covariance) * forth_ed, axis=1),
        )
        seen, square = (q.scatter + q.moments.mean_square(m_e - q.mean.point_d) for m_e in (q.mode_e, newton_e))
        return 0.5 * square / math.sqrt(float(np.mean(variance_e))) if seen > farthest(share_e * q.noise_e) else 0.0

    def _start(
        self, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats, **more: Any
    ) -> FirstOrderState:
        path = {"last_e": start_e, "mode_e": start_e, "shaken_e": 0 * start_e, "noise_e": 0 * start_e}
        more = {"clip": self.likelihood.max_count, **path, **more}
        return FirstOrderState.start(scaling, moments, start_e, drift_e, **more)

    def _readings(self, q: FirstOrderState, **more: Any) -> Readings:
        return super()._readings(q, offset=None if self.likelihood.is_count else q.offset)

    @property
    def _score_budget(self) -> float:
        """Part of the budget for the scores."""
        return 1.0 - sum(self.schedule.budget.values())

    @property
    def _largest(self) -> float:
        return self.likelihood.max_size

    def _filled(self, sums: Contributions, batch: DesignRows, form: Contribution, bound: float) -> Contributions:
        forms = [(form, bound)]
        if self.likelihood.is_count:
            # A histogram that is clipped would have other shares, and is read with a number of rows of its own.
            of_counts = {name: form for name, form in sums.items() if name == "count"}
            others = {name: form for name, form in sums.items() if name != "count"}
            return {**averaged(of_counts, batch), **filled(others, batch, forms)}
        if batch.offset_n is not None:
            # Offsets are features. A sum of their shares that is clipped would make the base rate too low.
            forms.append((Rows(self._base_counts(batch)[:, -1:]), self.likelihood.max_y))
        return filled(sums, batch, forms)

    def _sizes(self, batch: DesignRows) -> Floats:
        return self.likelihood.size(batch.y_n, batch.trials_n)

    def _counted(self, batch: DesignRows, weight_n: Floats) -> Contributions:
        return {"count": Rows(weight_n[:, None] * self._base_counts(batch))}

    def _base_counts(self, batch: DesignRows) -> Floats:
        """Contributions of rows to the base rate."""
        if not self.likelihood.is_count:
            return self.likelihood.base_counts(batch, 1)
        bins_nk = one_hot(batch.y_n, self._lower_k)
        return bins_nk if batch.offset_n is None else np.column_stack([bins_nk, self.likelihood.share(batch.offset_n)])

    def _at_step(self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        psi_n, share_n, residual_n = self._at(q, batch, rows, q.point_e)
        trace_n = (weight_n * rows.length_n) ** 2
        score, variance = ScaledRows(rows, weight_n * residual_n), Rows((share_n * trace_n)[:, None])
        return {
            **averaged({"score": score, "variance": variance}, batch),
            **self._of_dispersion("dispersion", q, batch, rows, psi_n),
        }

    def _at_end(self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        psi_n, share_n, residual_n = self._at(q, batch, rows, q.mean.point_d)
        robust = self._robust_scores(q, rows, weight_n * residual_n)
        most = self._whole(q)
        weight_n = np.minimum(weight_n, most / np.maximum(rows.length_n, 1.0) ** 2)
        gram = Gram(rows.x_nd, 0.25 / most * share_n * weight_n)
        return {
            **averaged({"curvature_at_mean": gram, **robust}, batch),
            **self._of_dispersion("dispersion_at_mean", q, batch, rows, psi_n),
        }

    def _whole(self, q: FirstOrderState) -> float:
        """Norm of a row up to which its slope is released in full: Λ.

        A larger one has more noise. It is as large as leaves the edge of noise at `LAST_EDGE` of a usual direction.
        """
        if q.mean.noise == 0.0:
            return 1.0
        score, last = (self.blocks[name].bound for name in ("score", "curvature_at_mean"))
        sd = math.sqrt(q.mean.noise * self._score_budget / tuned.LAST_BUDGET) / (self._unit(q) * score)
        noise = edge(self.n_features, 4.0 * self._scores(q).steepest * last * sd)
        room = tuned.LAST_EDGE * float(np.trace(q.curvature_ee)) / self.n_features
        return tuned.LAST_NORM if room >= tuned.LAST_NORM * noise else max(1.0, room / noise)

    def _scores(self, q: FirstOrderState) -> Likelihood | ClippedCounts:
        """How rows are scored: counts are clipped."""
        likelihood = self.likelihood.at(q.dispersion.r)
        return ClippedCounts(likelihood.r, q.clip, q.typical) if likelihood.is_count else likelihood

    def _at(
        self, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, weights_e: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Each row's ψ at some weights, its curvature over the largest of a row of size 1, and its residual."""
        psi_n = row_sums(rows.x_nd, q.moments.scale_e * weights_e)
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        scores = self._scores(q)
        if isinstance(scores, ClippedCounts):
            return psi_n, *scores.rows(psi_n, batch.y_n)
        share_n = scores.curvature(psi_n, self._sizes(batch))
        return psi_n, share_n, scores.residual(psi_n, batch.y_n, batch.trials_n)

    def _of_dispersion(
        self, name: str, q: FirstOrderState, batch: DesignRows, rows: MeasuredRows, psi_n: Floats
    ) -> Contributions:
        """Contribution of rows to the score of a dispersion that is learned."""
        if not self.likelihood.learns_dispersion:
            return {}
        likelihood = self.likelihood.at(q.dispersion.r)
        score = Rows(dispersion_score(batch.y_n, likelihood.expected(psi_n), likelihood.r)[:, None])
        if batch.person_n is None:
            return averaged({name: score}, batch)
        # Its information is read from the number of rows in the second moments: persons have the weight that they had
        # there.
        _, moments = self._moments(rows.x_nd * (q.moments.scale_e / q.scaling.room), batch)
        return self._filled({name: score}, batch, moments, self._largest)

    @property
    def _largest_weight(self) -> float:
        return self.likelihood.max_weight or 1.0

    def _usual_residual(self, q: FirstOrderState) -> float:
        return math.sqrt(q.usual * q.ratio.value) / self._unit(q)

    def _unit(self, q: FirstOrderState) -> float:
        scores = self._scores(q)
        return scores.unit if isinstance(scores, ClippedCounts) else 1.0

    def _histogram(self, s: Estimate, number: float) -> CountHistogram:
        """The distribution of counts."""
        total_k = s.noisy("count")[: len(self._lower_k)]
        return CountHistogram.read(total_k, s.noise_std("count"), number, self._lower_k, LEAST_RATE)

    def _with_curvature(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """Coordinates, majoriser and prior mean from the release of the curvature."""
        scaling, moments = self._coordinates(s, q)
        number, sd, shares = moments.number, s.noise_std("count"), s.noisy("count")[1:].tolist()
        if self.likelihood.is_count:
            read, shares = self._histogram(s, number), shares[len(self._lower_k) - 1 :]
            (base, spread), q, number = read.log_mean(), self._clipped(s, q, read, number), read.number
        else:
            base, spread = log_odds(float(s.noisy("count")[0]), sd, number)
            shares, sd = [one / self.likelihood.most for one in shares], sd / self.likelihood.most
        offset, error = self.likelihood.base_shift(shares, sd, number)
        start_e, drift_e = (part * moments.constant_e for part in (base - offset, math.hypot(spread, error)))
        scores, released = self._scores(q), {"clip": q.clip, "typical": q.typical, "dispersion": q.dispersion}
        usual = scores.usual(base)
        most = scores.steepest / usual
        start = self._start(scaling, moments, start_e, drift_e, usual=usual, most=most, offset=offset, **released)
        if self.likelihood.is_shifted and self.likelihood.is_count:
            # Where rows differ from the start, one noisy reading of how steep it is there led paths astray.
            start = replace(start, ratio=Tracked(1.0, tuned.START_RATIO_STD**2))
        readings = self._readings(start)
        if not readings.beside:
            return start
        (earlier,) = readings.beside
        point_e = start_e + ridge.mean_of(earlier, readings.prior(scaling.width_d, (tuned.TAU_MEDIAN,)))
        return replace(start, point_e=point_e, last_e=point_e, mode_e=point_e)

    def _clipped(self, s: Estimate, q: FirstOrderState, read: CountHistogram, number: float) -> FirstOrderState:
        """With the point at which counts are clipped, and the start of a dispersion."""
        if self.likelihood.learns_dispersion:
            q = replace(q, dispersion=replace(q.dispersion, log_r=read.log_r()))
        sd = math.sqrt(tuned.CURVATURE_BUDGET / self._score_budget) * s.noise_std("curvature")
        most = self.likelihood.max_count
        if sd == 0:
            return replace(q, clip=most)
        r, typical = self.likelihood.at(q.dispersion.r).r, math.exp(read.log_mean()[0])
        clip = read.best_clip(most, number / sd, lambda clip: ClippedCounts(r, clip, typical).unit)
        return replace(q, clip=clip, typical=typical)

    def m_step(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """One step uphill by a score: equations 6 to 12 of docs/theory/regressions.md."""
        moments, scale_e, t = q.moments, q.moments.scale_e, q.step + 1
        # (6) the score and the curvature ratio
        unit = self._unit(q)
        sd = unit * s.noise_std("score")
        score_e, total = unit * scale_e * s.noisy("score"), moments.total / q.most
        ratio = q.ratio.seen(float(s.noisy("variance")[0]) / total, (s.noise_std("variance") / total) ** 2, q.most)
        # (7) the averages of points and scores, weighted by noise and by how far from linear scores are at these points
        away, own = (moments.mean_square(point_e - q.mode_e) for point_e in (q.mean.point_d, q.point_e))
        slope2 = (q.usual * ratio.value / len(scale_e)) ** 2 * moments.number * moments.total
        part = q.mean.share(sd**2, slope2 * (0.5 * (q.scatter + away)) ** 2, slope2 * (0.5 * own) ** 2)
        mean = q.mean.joined(q.point_e, score_e, sd**2, part)
        scatter = (1.0 - part) * (q.scatter + part * moments.mean_square(q.point_e - q.mean.point_d))
        # (8) information of the averaged score, and the variance of its noise
        information_e, noise_e = q.usual * ratio.value * moments.eigenvalue_e, mean.noise * scale_e**2
        # (9) the prior, at the τ of highest density
        readings = self._readings(replace(q, mean=mean))
        if self.likelihood.is_count:
            # (10) of counts: the mean by all scores so far, since one score of counts has far more noise
            last_e = mode_e = readings.mode(information_e, 1.0)
            shaken_e = 2.0**2 * noise_e / information_e**2
            # Without noise half the way: in a direction the curvature may be more than twice the average one.
            step_e = last_e if sd > 0 else 0.5 * (q.point_e + last_e)
        else:
            # (10) of log odds: a majorised Newton step, the score weighted by its share of signal
            gain_e = information_e / (information_e + noise_e)
            bound_e = q.usual * min(1.0, math.exp(tuned.REACH) * ratio.value) * moments.eigenvalue_upper_e
            last_e, mode_e, precision_e = readings.along_path(
                gain_e * score_e, gain_e * bound_e, information_e, noise_e
            )
            step_e = last_e + t / (t + 3) * (last_e - q.last_e)
            slope_e, bound_e = gain_e * information_e + precision_e, gain_e * bound_e + precision_e
            steady_e = steady_variance(slope_e, bound_e, (gain_e * scale_e * sd) ** 2, t / (t + 3))
            shaken_e = (np.sqrt(steady_e) + gain_e * np.sqrt(noise_e) / slope_e) ** 2
        # (11) a limit on the change of ψ
        step_e = step_e - q.point_e
        change = math.sqrt(moments.mean_square(step_e))
        point_e = q.point_e + step_e * min(1.0, tuned.REACH / max(change, 1e-300))
        # (12) the curvature of the averaged score, before its release; a dispersion
        guess_ee = np.diag(information_e / scale_e**2)
        by_noise = {"shaken_e": shaken_e, "noise_e": q.noise_e + part * (q.shaken_e - q.noise_e)}
        path: dict[str, Any] = {"point_e": point_e, "last_e": last_e, "mode_e": mode_e, "step": t, **by_noise}
        moved = replace(q, mean=mean, scatter=scatter, ratio=ratio, **path)
        moved = self._dispersed(s, moved, "dispersion", q.point_e, fresh=part > 0.5)
        return replace(moved, curvature_ee=guess_ee, table_ee=guess_ee)

    def finished(self, s: Estimate, q: FirstOrderState) -> FirstOrderState:
        """With the curvature at the mean."""
        # Rows were asked about at the dispersion before this release.
        scores, spread = self._scores(q), 1.0
        if isinstance(scores, ClippedCounts):
            spread = max(scores.spread(*self._log_means(q)), tuned.LEAST_RATIO)
        last: FirstOrderState = self._read_at_end(s, q, q.curvature_ee, 4.0 * self._whole(q) * scores.steepest, spread)
        curvature_ee, table_ee = spread * last.curvature_ee, spread * last.table_ee
        last = replace(last, curvature_ee=curvature_ee, table_ee=table_ee, steep=1.0 / spread)
        return self._dispersed(s, last, "dispersion_at_mean", q.mean.point_d, fresh=True)

    def _log_means(self, q: FirstOrderState) -> tuple[Floats, Floats]:
        """Log means of rows at the mean of the points, on nodes, and the shares of these."""
        mean, variance = q.moments.log_odds(q.mean.point_d)
        return mean + q.offset + math.sqrt(variance) * _NODE_K, _WEIGHT_K / _WEIGHT_K.sum()

    def _dispersed(
        self, s: Estimate, q: FirstOrderState, block: str, point_e: Floats, *, fresh: bool
    ) -> FirstOrderState:
        """With the dispersion after its score at a point, if it is learned."""
        if not self.likelihood.learns_dispersion:
            return q
        moments, noise = q.moments, s.noise_std(block) ** 2
        psi = moments.log_odds(point_e)
        psi = psi[0] + q.offset, psi[1]
        learned = q.dispersion.after(float(s.noisy(block)[0]), noise, moments.number, psi, fresh=fresh)
        # The next query returns shares of the steepest curvature; `most` makes factors of `usual` of them.
        q = replace(q, dispersion=learned)
        return replace(q, most=self._scores(q).steepest / q.usual)
