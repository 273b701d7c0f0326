"""Regression with binomial likelihoods: curvature once, then first order; unit: a row.

    m ~ N(m_0, I/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   α estimated

Σ b x xᵀ, released once, gives the majoriser of Pólya-Gamma augmentation (Polson, Scott & Windle 2013) and coordinates
x̃ = Uᵀx / s in which every step releases a score of d numbers. The averaged scores give a Newton step at the end.

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

import numpy as np
from scipy.special import expit

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows, ScaledRows, turned
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Symmetric
from dpvb.kernels.linear import row_sums
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.models.regression import descent, ridge, saturation, tuned
from dpvb.models.regression.batch import RegressionBatch
from dpvb.models.regression.curvature import RowMoments, Tracked, log_odds, read, read_moments
from dpvb.models.regression.likelihood import Likelihood, Weights, check_fields


@dataclass(frozen=True)
class Iterate:
    """State of the fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        drift_e: direction in which the prior mean start_e is uncertain; last_e: point_e before momentum was added.
        curvature_ee: Σ w² b p(1-p) x̃ x̃ᵀ; excess: minus the derivative of the averaged score, over that.
    """

    moments: RowMoments
    start_e: Floats
    drift_e: Floats
    point_e: Floats
    last_e: Floats
    mean: descent.Average
    curvature_ee: Symmetric
    guard: ridge.StepGuard = field(default_factory=ridge.StepGuard)
    ratios: Tracked = field(default_factory=lambda: Tracked(np.ones(2)))
    step: int = 0
    excess: Positive = 1.0


@dataclass(frozen=True)
class FirstOrder:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        num_steps: T, number of scores.
        alpha: precision of the prior; None: estimated from the releases.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    num_steps: int = 16
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Responses and curvature first; a score with two scalars at each step; the curvature at the mean last."""
        d, b, wide = self.n_features, self.likelihood.max_b, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT)
        return {
            "count": Block((1,), self.likelihood.max_y, "nonnegative", "first", weight=math.sqrt(tuned.COUNT_BUDGET)),
            "curvature": Block((wide, wide), b, "gram", "first", weight=math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "excess": Block((1,), b / 4, "nonnegative", "last", weight=tuned.EXCESS_WEIGHT),
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        return Schedule(noise, {"first": tuned.COUNT_BUDGET + tuned.CURVATURE_BUDGET, "last": tuned.LAST_BUDGET})

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        return self._at_prior(RowMoments(np.eye(self.n_features), one, one, one, zero, 1.0, 1.0), zero, zero)

    def _at_prior(self, moments: RowMoments, start_e: Floats, drift_e: Floats) -> Iterate:
        nothing = descent.Average(start_e, np.zeros(self.n_features))
        return Iterate(moments, start_e, drift_e, start_e, start_e, nothing, 1e-9 * np.eye(self.n_features))

    def e_step(self, q: Iterate, batch: RegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        b_n = self.likelihood.b(batch.y_n, batch.trials_n)
        if "curvature" in blocks:
            x_nd = batch.x_nd
            if self.intercept == 0:
                rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
                x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
            return {"count": Rows(batch.y_n[:, None]), "curvature": Gram(x_nd, b_n)}
        last = "curvature_at_mean" in blocks
        rows = batch.derived(turned, q.moments.basis_de / q.moments.scale_e)
        x_ne, length_n = rows.x_nd, rows.length_n
        psi_n = row_sums(x_ne, q.moments.scale_e * (q.mean.point_d if last else q.point_e))
        weight_n = 1.0 / np.maximum(length_n, 1.0)
        variance_n = b_n * expit(psi_n) * expit(-psi_n)
        if last:
            excess_n = variance_n * np.clip(length_n - 1.0, 0.0, 1.0)
            return {"curvature_at_mean": Gram(x_ne, variance_n * weight_n**2), "excess": Rows(excess_n[:, None])}
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = 4.0 * (weight_n * length_n) ** 2
        return {
            "score": ScaledRows(rows, weight_n * residual_n),
            "xi": Rows((polya_gamma_expectedstats(b_n, psi_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
        }

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """Coordinates after the first release, one majorised step after each score, the curvature after the last."""
        if "score" not in s.names:
            return self._started(s)
        return self._finished(s, q) if "curvature_at_mean" in s.names else self._stepped(s, q)

    def _started(self, s: Estimate) -> Iterate:
        """Coordinates, majoriser and prior mean from the first release."""
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        moments = read_moments(s.read("curvature"), s.noise_std("curvature"), column, inner=inner)
        base, spread = log_odds(float(s.read("count")[0]), s.noise_std("count"), moments.number)
        return self._at_prior(moments, base * moments.constant_e, spread * moments.constant_e)

    def _stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """Majorise-minimise with momentum; the ridge is widened by the noise that the average still has."""
        moments, scale_e, sd = q.moments, q.moments.scale_e, s.noise_std("score")
        score_e, step, total = scale_e * s.read("score"), q.step + 1, moments.total
        ratios = q.ratios.seen(np.append(s.read("variance"), s.read("xi")) / total, (s.noise_std("xi") / total) ** 2)
        ratio, ratio_xi = 0.25 * np.clip(ratios.value, (tuned.LEAST_VARIANCE_RATIO, tuned.LEAST_XI_RATIO), 1.0)
        fresh = sd == 0 or q.step < tuned.AVERAGE_START * self.num_steps
        mean = (descent.Average(q.start_e, score_e) if fresh else q.mean).joined(q.point_e, score_e, sd**2)
        information_e, noise_e = ratio * moments.eigenvalue_e, mean.noise * scale_e**2
        upper_e = ratio * moments.eigenvalue_upper_e
        newton_e = mean.point_d - q.start_e + mean.score_d / upper_e
        alpha = self.alpha or ridge.best_precision(newton_e, (information_e + noise_e) / upper_e**2, q.drift_e)
        ridge_e = (1.0 + noise_e / information_e) / (1.0 / alpha + q.drift_e**2)
        gradient_e = score_e - ridge_e * (q.point_e - q.start_e)
        guard = q.guard.after(max(float(np.mean((gradient_e / scale_e) ** 2)), sd**2))
        last_e = q.point_e + gradient_e / (guard.safety * ratio_xi * moments.eigenvalue_upper_e + ridge_e)
        # A majoriser that was doubled just now begins without momentum.
        momentum = min(step / (step + 3), tuned.LARGEST_MOMENTUM) if guard.safety == q.guard.safety else 0.0
        point_e = last_e + momentum * (last_e - q.last_e)
        guess_ee = np.diag(moments.weighted(float(ratios.value[0])))
        return Iterate(moments, q.start_e, q.drift_e, point_e, last_e, mean, guess_ee, guard, ratios, step)

    def _finished(self, s: Estimate, q: Iterate) -> Iterate:
        """The curvature at the mean, in coordinates x̃, read beside its guess from the steps."""
        sd, guess_ee = s.noise_std("curvature_at_mean"), q.curvature_ee
        floor = min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd)
        curvature_ee = read(s.read("curvature_at_mean"), guess_ee, sd, floor)
        # Long rows have weight w in the score's derivative and w² in its variance, which is what was released.
        excess = 1.0 + float(np.clip(s.read("excess")[0] / np.trace(curvature_ee), 0.0, 1.0))
        return replace(q, curvature_ee=curvature_ee, excess=excess)

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights, in the coordinates of x: a Newton step from the averages, moved for saturation."""
        moments, scale_e = q.moments, q.moments.scale_e
        offset_e, prior = scale_e * (q.mean.point_d - q.start_e), ridge.Prior(scale_e, q.drift_e, self.alpha)
        score = ridge.NoisyScore(q.mean.score_d / scale_e, offset_e, q.curvature_ee, q.excess, q.mean.noise)
        mean_e, aware_ee = ridge.posterior(score, prior)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        change = q.excess * float(scale_e * moments.constant_e @ q.curvature_ee @ (mean_e - offset_e)) / moments.number
        m_e, x_de = q.start_e + mean_e / scale_e, moments.basis_de / scale_e
        m_e += saturation.shift(moments, q.mean.point_d, m_e, change) * moments.constant_e
        return Weights(moments.basis_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
