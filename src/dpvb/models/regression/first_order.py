"""Regression: curvature once, then first order; unit: a row.

    m ~ N(m_0, C_τ),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   τ estimated

Numeric columns are brought to units of their own spread first (`scaling`). Σ b x xᵀ, b a row's size (its trials, or 1),
is released once. It gives coordinates x̃ = Uᵀx / s, in which every step releases a score of d numbers, and a majoriser:
for log odds that of Pólya-Gamma augmentation (Polson, Scott & Windle 2013), for counts the curvature up to the mode.
Below, ⟨ξ⟩ and b p(1-p) stand for both, over ¼; counts have h(max(μ, y)) and h(μ) = μ/(1 + μ/r), over `steepest`. The
averaged scores give a Newton step at the end: see `readings`.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows, ScaledRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import dispersion, ridge, tuned
from dpvb.models.regression.descent import Average
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.likelihood import (
    Likelihood,
    base_block,
    base_counts,
    base_shift,
    bounded,
    is_shifted,
    log_odds,
    log_rate,
    times,
)
from dpvb.models.regression.moments import RowMoments, Tracked, read_moments
from dpvb.models.regression.readings import Iterate, Readings
from dpvb.models.regression.ridge import Known, Weights
from dpvb.models.regression.scaling import Declared, Scaling, check_fields, mapped, measured
from dpvb.rows.regression import DesignRows


@dataclass(frozen=True)
class Path:
    """What a path needs of its model; public, as in `FirstOrder`."""

    likelihood: Likelihood
    intercept: float
    num_steps: int
    alpha: float | None
    columns: Declared
    known: tuple[Known, ...]

    def started(self, s: Estimate, q: Iterate, score_noise: Callable[[float], float]) -> Iterate:
        """Coordinates, majoriser and prior mean from the release of the curvature.

        Args:
            s, q: as in an M-step.
            score_noise: noise variance of the averaged score, from the noise std of the curvature.
        """
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        sd, room, scaling = s.noise_std("curvature"), q.scaling.room, q.scaling
        noisy_dd = room**2 * s.read("curvature")
        if self.intercept > 0:
            scaling, noisy_dd = scaling.recentred(self.columns, noisy_dd, sd, self.intercept)
        moments = read_moments(noisy_dd, sd, column, inner=inner, room=room)
        link = log_rate if self.likelihood.is_count else log_odds
        total_c, sd_c = s.read("count"), s.noise_std("count")
        base, spread = link(float(total_c[0]), sd_c, moments.number)
        likelihood = self.likelihood.at(q.dispersion.r)
        usual = likelihood.usual(base)
        if len(self.columns.numeric_j):
            noise = score_noise(sd) * 0.25 / usual
            moments = moments.roomier(moments.affordable(noise) if sd > 0 else room)
        if self.intercept > 0 and sd > 0:
            scaling = scaling.certain(self.columns, noisy_dd, moments.matrix_dd, sd, self.intercept)
        offset, error = base_shift(likelihood, total_c[1:].tolist(), sd_c, moments.number)
        drift = math.hypot(spread, error)
        start = Iterate.start(scaling, moments, (base - offset) * moments.constant_e, drift * moments.constant_e)
        if is_shifted(likelihood) and likelihood.is_count:
            # Where rows differ from the start, one noisy reading of how steep it is there led paths astray.
            start = replace(start, ratios=Tracked(np.ones(2), tuned.START_RATIO_STD**2))
        start = replace(start, usual=usual, most=likelihood.steepest / usual, offset=offset, known=self.known)
        read = self._readings(start)
        if (known := read.beside()) is None:
            return start
        prior = read.prior(scaling.width_d, (tuned.TAU_MEDIAN,))
        precision_ee = ridge.inverse(prior.covariance(prior.taus[0]))[0] + known.precision
        point_e = start.start_e + np.linalg.solve(precision_ee, known.pull_d)
        return replace(start, point_e=point_e, last_e=point_e)

    def stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """Majorise-minimise with momentum; what the averages do not see through their noise moves less."""
        moments, scale_e, sd, late = q.moments, q.moments.scale_e, s.noise_std("score"), q.step / self.num_steps
        is_count, score_e, step = self.likelihood.is_count, scale_e * s.read("score"), q.step + 1
        total = moments.measured if is_count else moments.total
        reading = q.most / total * np.append(s.read("variance"), s.read("xi"))
        ratios = q.ratios.seen(reading, (q.most * s.noise_std("xi") / total) ** 2)
        least = tuned.LEAST_VARIANCE_RATIO, tuned.LEAST_XI_RATIO
        ratio, ratio_xi = q.usual * np.clip(ratios.value, least, q.most)
        may_swing = not is_count and late < tuned.AVERAGE_ANEW
        fresh = sd == 0 or late < tuned.AVERAGE_START or (may_swing and q.far(ratio))
        mean = (Average(q.start_e, score_e) if fresh else q.mean).joined(q.point_e, score_e, sd**2)
        information_e, noise_e = ratio * moments.eigenvalue_e, mean.noise * scale_e**2
        upper_e, gain_e = ratio * moments.eigenvalue_upper_e, information_e / (information_e + noise_e)
        newton_e = mean.point_d - q.start_e + mean.score_d / upper_e
        near = tuned.COUNT_PATH_STD if is_count and sd > 0 else tuned.INTERCEPT_STD
        prior = self._readings(q).prior(q.scaling.width_d, ridge.TAUS, near)
        tau = ridge.best_scale(newton_e, (information_e + noise_e) / upper_e**2, prior)
        precision_ee, _ = ridge.inverse(prior.covariance(tau))
        gradient_e = gain_e * score_e
        if (known := self._readings(q).beside()) is not None:
            precision_ee, gradient_e = precision_ee + known.precision, gradient_e + known.pull_d
        gradient_e -= precision_ee @ (q.point_e - q.start_e)
        guard = q.guard.after(max(float(np.mean((gradient_e / gain_e / scale_e) ** 2)), sd**2))
        bound_e, fresh_e = guard.safety * ratio_xi * moments.eigenvalue_upper_e, (sd * scale_e) ** 2
        steepness = q.steepness.seen(q.point_e, score_e, fresh_e, bound_e * q.steepness.factor_e)
        precision_ee.flat[:: len(gain_e) + 1] += gain_e * bound_e * steepness.factor_e
        last_e = q.point_e + np.linalg.solve(precision_ee, gradient_e)
        # A majoriser that has grown just now begins without momentum.
        grown = guard.safety > q.guard.safety or (steepness.factor_e > q.steepness.factor_e).any()
        point_e = last_e + (0.0 if grown else min(step / (step + 3), tuned.LARGEST_MOMENTUM)) * (last_e - q.last_e)
        if is_count and sd > 0:
            # A mean is no straight line in ψ: the next score is taken where all scores so far lead, which wanders less.
            found_e = guard.safety * steepness.factor_e * information_e
            way_e, one_e = mean.point_d - q.start_e, np.ones(len(found_e))
            score = ridge.NoisyScore(mean.score_d, way_e, np.diag(found_e), one_e, noise_e, [known] if known else [])
            step_e = q.start_e + ridge.posterior(score, replace(prior, taus=(tau,)))[0] - q.point_e
            # One noisy reading of the curvature must not send the path to where every mean is at its bound.
            length = math.sqrt(float(moments.eigenvalue_e @ step_e**2) / moments.number)
            point_e = last_e = q.point_e + step_e * min(1.0, tuned.COUNT_REACH / max(length, 1e-300))
        guess_ee = np.diag(moments.weighted(float(ratios.value[0]), q.usual, q.most, total))
        q = self.dispersed(s, q, "dispersion", q.point_e, fresh=fresh)
        path = replace(q, mean=mean, guard=guard, ratios=ratios, step=step, steepness=steepness)
        return replace(path, point_e=point_e, last_e=last_e, curvature_ee=guess_ee, table_ee=guess_ee)

    def _readings(self, q: Iterate) -> Readings:
        return Readings(q, self.columns, self.intercept, self.alpha)

    def dispersed(self, s: Estimate, q: Iterate, block: str, point_e: Floats, *, fresh: bool) -> Iterate:
        """With the dispersion after its score at a point, if it is learned."""
        if not self.likelihood.learns_dispersion:
            return q
        moments, noise = q.moments, s.noise_std(block) ** 2
        psi = moments.log_odds(point_e)
        psi = psi[0] + q.offset, psi[1]
        found = q.dispersion.after(float(s.read(block)[0]), noise, moments.number, psi, fresh=fresh)
        # Of the shares of the steepest curvature that the next query returns, `most` is what makes factors of `usual`.
        return replace(q, dispersion=found, most=self.likelihood.at(found.r).steepest / q.usual)


@dataclass(frozen=True)
class FirstOrder:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        num_steps: T, number of scores.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
        declared: what is public about the columns; None: no column is numeric.
        known: what is known of the weights of x beside these rows, read for predictions and for intervals; or nothing.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    num_steps: int = 16
    alpha: float | None = None
    declared: Declared | None = None
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha, self.declared)

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _path(self) -> Path:
        return Path(self.likelihood, self.intercept, self.num_steps, self.alpha, self._columns, self.known)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; responses and curvature; scores, each with two scalars; the last."""
        d, b, wide = self.n_features, self.likelihood.max_size, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT)
        score_of_r = Block((1,), tuned.SCORE_BOUND, average=False, weight=tuned.DISPERSION_WEIGHT)
        learned = {
            "dispersion": score_of_r,
            "dispersion_at_mean": replace(score_of_r, phase="last", weight=tuned.LAST_DISPERSION),
        }
        early = self._columns.blocks
        then: Literal["first", "third"] = "third" if early else "first"
        blocks = {
            **early,
            "count": base_block(self.likelihood, 1, then, math.sqrt(tuned.COUNT_BUDGET)),
            "curvature": Block((wide, wide), b, "gram", then, weight=math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "long": Block((d,), tuned.LONGEST * b / 4, "nonnegative", "last", weight=tuned.LONG_WEIGHT),
            **(learned if self.likelihood.learns_dispersion else {}),
        }
        return bounded(blocks, self.likelihood)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        early = self._columns.budget(tuned.COUNT_BUDGET + tuned.CURVATURE_BUDGET)
        learned = tuned.DISPERSION_BUDGET if self.likelihood.learns_dispersion else 0.0
        return Schedule(noise, {**early, "last": tuned.LAST_BUDGET + learned})

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        constant = np.eye(1, len(one))[0] / self.intercept if self.intercept > 0 else zero
        moments = RowMoments(np.eye(self.n_features), one, one, one, constant, 1.0, 1.0)
        return Iterate.start(Scaling.start(self._columns), moments, zero, zero)

    @times
    def e_step(self, q: Iterate, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        likelihood, scaling, columns = self.likelihood.at(q.dispersion.r), q.scaling, self._columns
        b_n = likelihood.size(batch.y_n, batch.trials_n)
        if blocks.keys() <= {"means", "spread"}:
            return columns.contributions(batch.x_nd[:, columns.read_r], batch.y_n, scaling.mean_d, blocks)
        if "curvature" in blocks:
            x_nd = mapped(batch.x_nd, scaling.forth(columns)) / scaling.room
            weight_n = 1.0 / np.maximum(upper_norms(x_nd), 1.0) ** 2
            if self.intercept == 0:
                rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
                x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
            y_nc = base_counts(likelihood, batch, 1)
            return {"count": Rows(weight_n[:, None] * y_nc), "curvature": Gram(x_nd, weight_n * b_n)}
        last = "curvature_at_mean" in blocks
        matrix = np.vstack([scaling.forth(columns), q.moments.basis_de / q.moments.scale_e])
        x_ne, length_n = (rows := batch.derived(measured, matrix)).x_nd, rows.length_n
        psi_n = row_sums(x_ne, q.moments.scale_e * (q.middle_e(self.likelihood) if last else q.point_e))
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        weight_n = 1.0 / np.maximum(length_n, 1.0)
        variance_n = likelihood.curvature(psi_n, b_n)
        learned = {}
        if self.likelihood.learns_dispersion:
            u_n = dispersion.score(batch.y_n, likelihood.expected(psi_n), likelihood.r)
            learned = {"dispersion_at_mean" if last else "dispersion": Rows(u_n[:, None])}
        if last:
            variance_n *= 0.25
            long_n = variance_n * weight_n**2 * np.clip(length_n - 1.0, 0.0, tuned.LONGEST)
            curvature = Gram(x_ne, variance_n * weight_n**2)
            return {"curvature_at_mean": curvature, "long": Rows(long_n[:, None] * x_ne**2), **learned}
        residual_n = likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = (weight_n * length_n) ** 2
        return {
            "score": ScaledRows(rows, weight_n * residual_n),
            "xi": Rows((likelihood.majoriser(psi_n, batch.y_n, b_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
            **learned,
        }

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """The map to x̂; coordinates; one majorised step after each score; the curvature after the last."""
        if "curvature_at_mean" in s.names:
            steepest = 4.0 * self.likelihood.at(q.dispersion.r).steepest
            q = self._path.dispersed(s, q, "dispersion_at_mean", q.middle_e(self.likelihood), fresh=True)
            names = ("curvature_at_mean", "long")
            (curvature_ee, long_e), stds = zip(*((s.read(name), s.noise_std(name)) for name in names), strict=True)
            stds = (steepest * stds[0], steepest * stds[1], s.noise_std("curvature"))
            return q.finished(steepest * curvature_ee, steepest * long_e, stds, self.likelihood, self.intercept)
        if "curvature" in s.names:
            return self._path.stepped(s, q) if "score" in s.names else self._path.started(s, q, self._score_noise)
        return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))

    def _score_noise(self, sd: float) -> float:
        """Noise variance of the averaged score, from the noise std of the curvature: both are of one budget."""
        steps = (1.0 - math.fsum(self.schedule.budget.values())) / (1.0 + 2.0 * tuned.SCALAR_WEIGHT**2)
        return (sd * self.likelihood.max_residual / self.likelihood.max_size) ** 2 * tuned.CURVATURE_BUDGET / steps

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return self._readings(q).predictions(self.likelihood.is_count)

    def table(self, q: Iterate) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return self._readings(q).table(self.likelihood.is_count)

    def learned(self, q: Iterate) -> Dispersion:
        """Posterior of the logarithm of a dispersion that is learned."""
        return self._readings(q).learned()

    def _readings(self, q: Iterate) -> Readings:
        return Readings(q, self._columns, self.intercept, self.alpha)
