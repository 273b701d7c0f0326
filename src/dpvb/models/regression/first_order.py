"""Regression with binomial likelihoods: curvature once, then first order; unit: a row.

    m ~ N(m_0, I/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `binomial`,   α estimated

Σ b x xᵀ is released once: public coordinates x̃ = Uᵀx / s in which every step releases a score of d numbers, and the
majoriser of Pólya-Gamma augmentation (Polson, Scott & Windle 2013). A Newton step from the averaged scores ends it.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, λ⁺, s          moments.basis_de, second_e, majorised_e, scale_e: read from Σ b x xᵀ; x̃ = Uᵀx / s
w                    weight_n = min(1, 1/‖x̃‖): bounds the score and leaves its equation unbiased
m_0                  start_e: prior mean, the base rate along the constant direction
¼ c^ξ λ⁺; ℓ = ¼ c λ  share_xi · majorised_e: Σ ⟨ξ⟩ x xᵀ; information_e: Σ b p(1-p) x xᵀ (c from "variance")
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: points and scores there, averaged
v_z = 1/Σμ_t²        mean.noise: variance of the averaged score, equal in all coordinates x̃
===================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from dpvb.arrays import Floats
from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows, ScaledRows, turned
from dpvb.errors import check_integer, check_number
from dpvb.guards.domains import Positive, Symmetric
from dpvb.kernels.linear import row_sums
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.models.regression import descent, ridge, saturation
from dpvb.models.regression.curvature import Moments, Tracked, log_odds, read, read_moments
from dpvb.models.regression.likelihood import Design, Likelihood, Weights

# Shares of the budget Σμ²: count, curvature, curvature at the mean; weights of scalars beside score and curvature.
_COUNT, _CURVATURE, _LAST, _SCALAR, _EXCESS = 0.03, 0.15, 0.05, 0.1, 0.3
# Constant beside rows without an intercept; part of the steps before averages start; largest momentum.
_CONSTANT, _START, _MOMENTUM = 0.4, 0.2, 0.85


@dataclass(frozen=True)
class Path:
    """Where the fit stands; all public. Vectors (e,) are in the eigenbasis of `moments`."""

    moments: Moments
    start_e: Floats
    drift_e: Floats
    point_e: Floats
    last_e: Floats
    mean: descent.Average
    curvature_ee: Symmetric
    pace: ridge.Pace = field(default_factory=ridge.Pace)
    shares: Tracked = field(default_factory=lambda: Tracked(np.ones(2)))
    step: int = 0
    excess: Positive = 1.0


@dataclass(frozen=True)
class FirstOrder:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: see `binomial`.
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
        check_integer("n_features", self.n_features, low=1)
        check_integer("num_steps", self.num_steps, low=1, high=10**7)
        check_number("intercept", self.intercept, low=0, high=1, closed="left")
        check_number("alpha", 1.0 if self.alpha is None else self.alpha, low=1e-6, high=1e6)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Responses and curvature first; a score with two scalars at each step; the curvature at the mean last."""
        d, b, wide = self.n_features, self.likelihood.max_b, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=_SCALAR)
        return {
            "count": Block((1,), self.likelihood.max_y, "nonnegative", "first", weight=math.sqrt(_COUNT)),
            "curvature": Block((wide, wide), b, "gram", "first", weight=math.sqrt(_CURVATURE)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "excess": Block((1,), b / 4, "nonnegative", "last", weight=_EXCESS),
        }

    @property
    def shares(self) -> Mapping[str, float]:
        """Shares of the budget that the first and the last release take."""
        return {"first": _COUNT + _CURVATURE, "last": _LAST}

    @property
    def schedule(self) -> list[float]:
        """Relative noise multipliers of the steps: later scores are released more precisely, μ_t² ∝ t."""
        return [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]

    def init(self, rng: np.random.Generator) -> Path:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        return self._at_prior(Moments(np.eye(self.n_features), one, one, one, zero, 1.0, 1.0), zero, zero)

    def _at_prior(self, moments: Moments, start_e: Floats, drift_e: Floats) -> Path:
        nothing = descent.Average(start_e, np.zeros(self.n_features))
        return Path(moments, start_e, drift_e, start_e, start_e, nothing, 1e-9 * np.eye(self.n_features))

    def e_step(self, q: Path, batch: Design, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        b_n = self.likelihood.b(batch.y_n, batch.trials_n)
        if "curvature" in blocks:
            x_nd = batch.x_nd
            if self.intercept == 0:
                x_nd = np.hstack([np.full((len(x_nd), 1), _CONSTANT), math.sqrt(1 - _CONSTANT**2) * x_nd])
            return {"count": Rows(batch.y_n[:, None]), "curvature": Gram(x_nd, b_n)}
        last = "curvature_at_mean" in blocks
        x_ne, length_n = batch.derived(turned, q.moments.basis_de / q.moments.scale_e)
        psi_n = row_sums(x_ne, q.moments.scale_e * (q.mean.point_d if last else q.point_e))
        weight_n = 1.0 / np.maximum(length_n, 1.0)
        variance_n = b_n * expit(psi_n) * expit(-psi_n)
        if last:
            excess_n = variance_n * np.clip(length_n - 1.0, 0.0, 1.0)
            return {"curvature_at_mean": Gram(x_ne, variance_n * weight_n**2), "excess": Rows(excess_n[:, None])}
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = 4.0 * (weight_n * length_n) ** 2
        return {
            "score": ScaledRows(x_ne, length_n, weight_n * residual_n),
            "xi": Rows((polya_gamma_expectedstats(b_n, psi_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
        }

    def m_step(self, s: Estimate, q: Path) -> Path:
        """Coordinates after the first release, one majorised step after each score, the curvature after the last."""
        later = self._finished if "curvature_at_mean" in s.names else self._stepped
        return later(s, q) if "score" in s.names else self._started(s)

    def _started(self, s: Estimate) -> Path:
        """Coordinates, majoriser and prior mean from the first release."""
        column, inner = (self.intercept, False) if self.intercept > 0 else (_CONSTANT, True)
        moments = read_moments(s.read("curvature"), s.noise_std("curvature"), column, inner=inner)
        base, spread = log_odds(float(s.read("count")[0]), s.noise_std("count"), moments.number)
        return self._at_prior(moments, base * moments.constant_e, spread * moments.constant_e)

    def _stepped(self, s: Estimate, q: Path) -> Path:
        """Majorise-minimise with momentum; the ridge is widened by the noise that the average still has."""
        t, second_e, scale_e, sd = q.step + 1, q.moments.second_e, q.moments.scale_e, s.noise_std("score")
        score_e, trace = scale_e * s.read("score"), float(np.sum(second_e))
        shares = q.shares.seen(np.append(s.read("variance"), s.read("xi")) / trace, (s.noise_std("xi") / trace) ** 2)
        share, share_xi = 0.25 * np.clip(shares.value, (0.03, 0.1), 1.0)
        information_e = share * second_e
        before = q.mean if sd > 0 and q.step >= _START * self.num_steps else descent.Average(q.start_e, score_e)
        mean = before.joined(q.point_e, score_e, sd**2)
        noise_e, alpha = mean.noise * scale_e**2, self.alpha
        if alpha is None:
            steep_e = share * q.moments.majorised_e
            newton_e = mean.point_d - q.start_e + mean.score_d / steep_e
            alpha = ridge.best_precision(newton_e, (information_e + noise_e) / steep_e**2, q.drift_e)
        ridge_e = (1.0 + noise_e / information_e) / (1.0 / alpha + q.drift_e**2)
        slope_e = score_e - ridge_e * (q.point_e - q.start_e)
        pace = q.pace.after(max(float(np.mean((slope_e / scale_e) ** 2)), sd**2))
        m_e = q.point_e + slope_e / (pace.caution * share_xi * q.moments.majorised_e + ridge_e)
        point_e = m_e + (pace.caution == q.pace.caution) * min(t / (t + 3), _MOMENTUM) * (m_e - q.last_e)
        guess_e = second_e / scale_e**2 * np.clip(0.25 * shares.value[0] * trace / q.moments.trace, 0.0075, 0.25)
        return Path(q.moments, q.start_e, q.drift_e, point_e, m_e, mean, np.diag(guess_e), pace, shares, step=t)

    def _finished(self, s: Estimate, q: Path) -> Path:
        """The curvature at the mean, in coordinates x̃, beside its guess from the steps."""
        sd, guess_ee = s.noise_std("curvature_at_mean"), q.curvature_ee
        curvature_ee = read(s.read("curvature_at_mean"), guess_ee, sd, min(0.2 * np.diag(guess_ee).min(), sd))
        # Long rows have weight w in the score's derivative and w² in its variance, which was released.
        excess = 1.0 + float(np.clip(s.read("excess")[0] / np.trace(curvature_ee), 0.0, 1.0))
        return replace(q, curvature_ee=curvature_ee, excess=excess)

    def weights(self, q: Path) -> Weights:
        """Posterior of the weights, in the coordinates of x: a Newton step from the averages, moved for saturation."""
        moments, scale_e, away_e = q.moments, q.moments.scale_e, q.moments.scale_e * (q.mean.point_d - q.start_e)
        where = (q.mean.score_d / scale_e, away_e, scale_e, q.drift_e, self.alpha)
        mean_e, aware_ee = ridge.posterior(q.curvature_ee, q.excess, q.mean.noise, *where)
        _, naive_ee = ridge.posterior(q.curvature_ee, q.excess, 0.0, *where)
        change = q.excess * float(scale_e * moments.constant_e @ q.curvature_ee @ (mean_e - away_e)) / moments.number
        m_e, x_de = q.start_e + mean_e / scale_e, moments.basis_de / scale_e
        m_e += saturation.shift(moments, q.mean.point_d, m_e, change) * moments.constant_e
        return Weights(moments.basis_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
