"""Regression with binomial likelihoods: curvature once, then first order; unit: a row.

    m ~ N(m_0, C_τ),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   τ estimated

Numeric columns are brought to units of their own spread first (`scaling`). Σ b x xᵀ, released once, gives the majoriser
of Pólya-Gamma augmentation (Polson, Scott & Windle 2013) and coordinates x̃ = Uᵀx / s in which every step releases a
score of d numbers. The averaged scores give a Newton step at the end: see `iterate`.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, λ⁺, s          moments.basis_de, eigenvalue_e, eigenvalue_upper_e, scale_e: read from Σ b x xᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e: prior mean, the base rate along the constant direction
¼ c^ξ λ⁺             ratio_xi · eigenvalue_upper_e, the step's majoriser, estimates Σ ⟨ξ⟩ x xᵀ
¼ c λ                information_e estimates Σ b p(1-p) x xᵀ; c is read from block "variance", c^ξ from "xi"
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
v = 1/Σμ_t²          mean.noise: variance of the averaged score, equal in all coordinates x̃
===================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.special import expit

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, MeasuredRows, Rows, ScaledRows, turned
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.kernels.linear import row_sums
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.models.regression import descent, ridge, tuned
from dpvb.models.regression.batch import RegressionBatch
from dpvb.models.regression.curvature import RowMoments, log_odds, read_moments
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.iterate import Iterate
from dpvb.models.regression.likelihood import Likelihood, Weights, check_fields
from dpvb.models.regression.scaling import Scaling


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

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    num_steps: int = 16
    alpha: float | None = None
    declared: Declared | None = None

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha, self.declared)

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; responses and curvature; scores, each with two scalars; the last."""
        d, b, wide = self.n_features, self.likelihood.max_b, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT)
        early = self._columns.blocks
        then: Literal["first", "third"] = "third" if early else "first"
        return {
            **early,
            "count": Block((1,), self.likelihood.max_y, "nonnegative", then, weight=math.sqrt(tuned.COUNT_BUDGET)),
            "curvature": Block((wide, wide), b, "gram", then, weight=math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "long": Block((d,), tuned.LONGEST * b / 4, "nonnegative", "last", weight=tuned.LONG_WEIGHT),
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        early = self._columns.budget(tuned.COUNT_BUDGET + tuned.CURVATURE_BUDGET)
        return Schedule(noise, {**early, "last": tuned.LAST_BUDGET})

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        constant = np.eye(1, len(one))[0] / self.intercept if self.intercept > 0 else zero
        moments = RowMoments(np.eye(self.n_features), one, one, one, constant, 1.0, 1.0)
        return Iterate.start(Scaling.start(self._columns), moments, zero, zero)

    def e_step(self, q: Iterate, batch: RegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        b_n, scaling, columns = self.likelihood.b(batch.y_n, batch.trials_n), q.scaling, self._columns
        if blocks.keys() <= {"means", "spread"}:
            return columns.contributions(batch.x_nd[:, columns.numeric_j], batch.y_n, scaling.mean_d, blocks)
        if "curvature" in blocks:
            x_nd = scaling.rows(batch.x_nd) / scaling.room
            weight_n = 1.0 / np.maximum(upper_norms(x_nd), 1.0) ** 2
            if self.intercept == 0:
                rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
                x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
            return {"count": Rows((weight_n * batch.y_n)[:, None]), "curvature": Gram(x_nd, weight_n * b_n)}
        last = "curvature_at_mean" in blocks
        matrix = np.vstack([scaling.centre_d, scaling.factor_d, q.moments.basis_de / q.moments.scale_e])
        x_ne, length_n = (rows := batch.derived(_turned, matrix)).x_nd, rows.length_n
        psi_n = row_sums(x_ne, q.moments.scale_e * (q.middle_e if last else q.point_e))
        weight_n = 1.0 / np.maximum(length_n, 1.0)
        variance_n = b_n * expit(psi_n) * expit(-psi_n)
        if last:
            long_n = variance_n * weight_n**2 * np.clip(length_n - 1.0, 0.0, tuned.LONGEST)
            return {"curvature_at_mean": Gram(x_ne, variance_n * weight_n**2), "long": Rows(long_n[:, None] * x_ne**2)}
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = 4.0 * (weight_n * length_n) ** 2
        return {
            "score": ScaledRows(rows, weight_n * residual_n),
            "xi": Rows((polya_gamma_expectedstats(b_n, psi_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
        }

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """The map to x̂; coordinates; one majorised step after each score; the curvature after the last."""
        if "curvature_at_mean" in s.names:
            sd, long_sd, first_sd = (s.noise_std(name) for name in ("curvature_at_mean", "long", "curvature"))
            return q.finished(s.read("curvature_at_mean"), s.read("long"), sd, long_sd, first_sd, self.intercept)
        if "curvature" in s.names:
            return self._stepped(s, q) if "score" in s.names else self._started(s, q)
        return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))

    def _started(self, s: Estimate, q: Iterate) -> Iterate:
        """Coordinates, majoriser and prior mean from the release of the curvature."""
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        sd, room, scaling = s.noise_std("curvature"), q.scaling.room, q.scaling
        noisy_dd = room**2 * s.read("curvature")
        if self.intercept > 0:
            scaling, noisy_dd = scaling.recentred(self._columns, noisy_dd, sd, self.intercept)
        moments = read_moments(noisy_dd, sd, column, inner=inner)
        if len(self._columns.numeric_j):
            moments = moments.roomier(moments.affordable(self._score_noise(sd)) if sd > 0 else room)
        base, spread = log_odds(float(s.read("count")[0]), s.noise_std("count"), moments.number)
        if self.intercept > 0 and sd > 0:
            scaling = scaling.certain(self._columns, noisy_dd, moments.matrix_dd, sd, self.intercept)
        return Iterate.start(scaling, moments, base * moments.constant_e, spread * moments.constant_e)

    def _score_noise(self, sd: float) -> float:
        """Noise variance of the averaged score, from the noise std of the curvature: both are of one budget."""
        steps = (1.0 - math.fsum(self.schedule.budget.values())) / (1.0 + 2.0 * tuned.SCALAR_WEIGHT**2)
        return (sd * self.likelihood.max_residual / self.likelihood.max_b) ** 2 * tuned.CURVATURE_BUDGET / steps

    def _stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """Majorise-minimise with momentum; what the averages do not see through their noise moves less."""
        moments, scale_e, sd, late = q.moments, q.moments.scale_e, s.noise_std("score"), q.step / self.num_steps
        score_e, step, total = scale_e * s.read("score"), q.step + 1, moments.total
        ratios = q.ratios.seen(np.append(s.read("variance"), s.read("xi")) / total, (s.noise_std("xi") / total) ** 2)
        ratio, ratio_xi = 0.25 * np.clip(ratios.value, (tuned.LEAST_VARIANCE_RATIO, tuned.LEAST_XI_RATIO), 1.0)
        fresh = sd == 0 or late < tuned.AVERAGE_START or (late < tuned.AVERAGE_ANEW and q.far(ratio))
        mean = (descent.Average(q.start_e, score_e) if fresh else q.mean).joined(q.point_e, score_e, sd**2)
        information_e, noise_e = ratio * moments.eigenvalue_e, mean.noise * scale_e**2
        upper_e, gain_e = ratio * moments.eigenvalue_upper_e, information_e / (information_e + noise_e)
        newton_e = mean.point_d - q.start_e + mean.score_d / upper_e
        prior = q.prior(q.scaling.width_d, ridge.TAUS, self.intercept, self.alpha)
        tau = ridge.best_scale(newton_e, (information_e + noise_e) / upper_e**2, prior)
        precision_ee, _ = ridge.inverse(prior.covariance(tau))
        gradient_e = gain_e * score_e - precision_ee @ (q.point_e - q.start_e)
        guard = q.guard.after(max(float(np.mean((gradient_e / gain_e / scale_e) ** 2)), sd**2))
        bound_e, fresh_e = guard.safety * ratio_xi * moments.eigenvalue_upper_e, (sd * scale_e) ** 2
        steepness = q.steepness.seen(q.point_e, score_e, fresh_e, bound_e * q.steepness.factor_e)
        precision_ee.flat[:: len(gain_e) + 1] += gain_e * bound_e * steepness.factor_e
        last_e = q.point_e + np.linalg.solve(precision_ee, gradient_e)
        # A majoriser that has grown just now begins without momentum.
        grown = guard.safety > q.guard.safety or (steepness.factor_e > q.steepness.factor_e).any()
        point_e = last_e + (0.0 if grown else min(step / (step + 3), tuned.LARGEST_MOMENTUM)) * (last_e - q.last_e)
        guess_ee = np.diag(moments.weighted(float(ratios.value[0])))
        path = replace(q, mean=mean, guard=guard, ratios=ratios, step=step, steepness=steepness)
        return replace(path, point_e=point_e, last_e=last_e, curvature_ee=guess_ee, table_ee=guess_ee)

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return q.predictions(self.intercept, self.alpha)

    def table(self, q: Iterate) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return q.table(self.intercept, self.alpha)


def _turned(x_nd: Floats, matrix_de: Floats) -> MeasuredRows:
    """Rows x̂ in the coordinates of the score, measured; the map to x̂ is the matrix's first rows."""
    return turned((x_nd - matrix_de[0]) * matrix_de[1], matrix_de[2:])
