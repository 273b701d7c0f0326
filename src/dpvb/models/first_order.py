"""Regression with binomial likelihoods: curvature once, then first order; unit: a row.

    m ~ N(m_0, I/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `binomial`,   α estimated

The matrix Σ b x xᵀ is released once. It gives public coordinates x̃ = Uᵀx / s in which every step releases a score
of d numbers, and the majoriser of Pólya-Gamma augmentation (Polson, Scott & Windle 2013; Jaakkola & Jordan 2000) for
its steps. Scores are averaged in front of a Newton step with the curvature p(1-p) released at the mean.

==================  =============================================================================
paper               code
==================  =============================================================================
U, λ                basis_de, second_e: eigenpairs of Σ b x xᵀ as read from noise
s                   scale_e: the score is released in coordinates x̃ = Uᵀx / s
w                   weight_n = min(1, 1/‖x̃‖): bounds the score and leaves its equation unbiased
m_0                 start_e: prior mean, the base rate along the constant direction
¼ c^ξ λ             majoriser: Σ ⟨ξ⟩ x xᵀ for a step, c^ξ from the block "xi"
ℓ = ¼ c λ           information: Σ b p(1-p) x xᵀ, c from the block "variance"
u_t, ū, Ḡ           point_e, mean_point_e, mean_score_e (scores at the points, averaged)
v_z = 1/Σμ_t²       noise: variance of the averaged score, equal in all coordinates x̃
==================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit, logit

from dpvb import curvature
from dpvb.blocks import Block, Floats
from dpvb.contributions import Contributions, Gram, Rows
from dpvb.errors import check_integer, check_number
from dpvb.estimate import Estimate
from dpvb.kernels.linear import product
from dpvb.models.binomial import Design, Likelihood, Weights, xi

# Shares of the budget Σμ²: count, curvature, curvature at the mean; the steps take the rest.
_COUNT, _CURVATURE, _LAST = 0.03, 0.15, 0.05
# Weight of each of the two scalars of a step, relative to the score.
_SCALAR = 0.1
# Constant beside the rows where they have no intercept.
_CONSTANT = 0.4
_ALPHAS = np.geomspace(0.1, 300.0, 40)
# Scales s ∝ λ^(γ/2), γ; then divided by κ, so that the score's bound uses the room that typical rows leave.
_POWER, _SHRINK = 0.75, 1.3
# Part of the constant 1 that the columns must explain for the prior mean to start along it.
_EXPLAINED = 0.9


@dataclass(frozen=True)
class Path:
    """Where the fit stands; all public. Vectors (e,) are in the eigenbasis."""

    basis_de: Floats
    second_e: Floats
    majorised_e: Floats
    scale_e: Floats
    start_e: Floats
    point_e: Floats
    last_e: Floats
    mean_point_e: Floats
    mean_score_e: Floats
    noise: float = math.inf
    alpha: float = 1.0
    share: float = 1.0
    step: int = 0
    curvature_ee: Floats | None = None


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
        if self.alpha is not None:
            check_number("alpha", self.alpha, low=1e-6, high=1e6)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Responses and curvature first; a score with two scalars at each step; the curvature at the mean last."""
        d, b, wide = self.n_features, self.likelihood.max_b, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=_SCALAR)
        return {
            "count": Block((1,), self.likelihood.max_y, "nonnegative", "first", weight=math.sqrt(_COUNT)),
            "curvature": Block((wide, wide), b, "psd", "first", weight=math.sqrt(_CURVATURE)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "psd", "last"),
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
        return Path(np.eye(self.n_features), one, one, one, zero, zero, zero, zero, zero)

    def e_step(self, q: Path, batch: Design, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        x_nd, b_n = batch.x_nd, self.likelihood.b(batch.y_n, batch.trials_n)
        if "curvature" in blocks:
            if self.intercept == 0:
                x_nd = np.hstack([np.full((len(x_nd), 1), _CONSTANT), math.sqrt(1 - _CONSTANT**2) * x_nd])
            return {"count": Rows(batch.y_n[:, None]), "curvature": Gram(x_nd, b_n)}
        at_mean = "curvature_at_mean" in blocks
        m_e = q.mean_point_e if at_mean else q.point_e
        x_ne = product(x_nd, q.basis_de / q.scale_e)
        psi_n = product(x_nd, (q.basis_de @ m_e)[:, None])[:, 0]
        square_n = np.add.reduce(np.square(x_ne), axis=1)
        weight_n = 1.0 / np.maximum(np.sqrt(square_n), 1.0)
        variance_n = b_n * expit(psi_n) * expit(-psi_n)
        if at_mean:
            trimmed_n = variance_n / np.maximum(square_n, 1.0)
            return {"curvature_at_mean": Gram(x_ne, trimmed_n)}
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = 4.0 * np.minimum(square_n, 1.0)
        return {
            "score": Rows(x_ne * (weight_n * residual_n)[:, None]),
            "xi": Rows((b_n * xi(psi_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
        }

    def m_step(self, s: Estimate, q: Path) -> Path:
        """Geometry after the first release, one majorised step after each score, the posterior after the last."""
        if "score" not in s.names:
            return self._geometry(s)
        if "curvature_at_mean" in s.names:
            return self._finished(s, q)
        return self._stepped(s, q)

    def _geometry(self, s: Estimate) -> Path:
        """Step 2 to 4: coordinates, majoriser and prior mean from the first release."""
        sd, noisy_dd = s.noise_std("curvature"), s.read("curvature")
        constant = self.intercept or _CONSTANT
        guess_dd, sum_d, number = curvature.independent(noisy_dd, sd, constant)
        edge = curvature.noise_edge(len(noisy_dd), sd)
        read_dd = curvature.keep_beyond(noisy_dd, guess_dd, edge)
        middle = float(np.median(np.diag(guess_dd)))
        if self.intercept == 0:
            inner = 1 - _CONSTANT**2
            read_dd, sum_d, edge = read_dd[1:, 1:] / inner, sum_d[1:] / math.sqrt(inner), edge / inner
        second_e, basis_de = np.linalg.eigh(read_dd)
        second_e = np.maximum(second_e, min(0.05 * middle, sd) + 0.1 * sd + 1e-9 * self.likelihood.max_b)
        scale_e = np.ones_like(second_e)
        if sd > 0:
            scale_e = second_e ** (_POWER / 2)
            scale_e *= math.sqrt(float(np.sum(second_e / scale_e**2)) / float(np.sum(second_e))) / _SHRINK
        base = float(np.clip((s.read("count")[0] + 1) / (max(number, 0.0) + 2), 0.001, 0.999))
        # The direction in which rows are constant: xᵀ direction ≈ 1.
        direction_e = basis_de.T @ sum_d / second_e
        explained = float(direction_e @ (basis_de.T @ sum_d)) / number
        start_e = direction_e * float(logit(base)) if explained > _EXPLAINED else np.zeros_like(second_e)
        if self.intercept > 0:
            start_e = basis_de[0] * float(logit(base)) / self.intercept
        zero = np.zeros_like(start_e)
        return Path(basis_de, second_e, second_e + 0.3 * edge, scale_e, start_e, start_e, start_e, start_e, zero)

    def _stepped(self, s: Estimate, q: Path) -> Path:
        """Step 5: one round."""
        t, trace = q.step + 1, float(np.sum(q.second_e))
        sd, score_e = s.noise_std("score"), q.scale_e * s.read("score")
        share_xi = float(np.clip(s.read("xi")[0] / trace, 0.1, 1.0))
        share = float(np.clip(s.read("variance")[0] / trace, 0.03, 1.0))
        majoriser_e, information_e = 0.25 * share_xi * q.majorised_e, 0.25 * share * q.second_e
        q = self._averaged(q, sd, score_e)
        noise_e = q.noise * q.scale_e**2
        alpha = self._precision(q, information_e, share, noise_e)
        ridge_e = alpha * (1 + noise_e / information_e)
        m_e = q.point_e + (score_e - ridge_e * (q.point_e - q.start_e)) / (majoriser_e + ridge_e)
        point_e = m_e + min(t / (t + 3), 0.85) * (m_e - q.last_e)
        return replace(q, point_e=point_e, last_e=m_e, alpha=alpha, share=share, step=t)

    def _averaged(self, q: Path, sd: float, score_e: Floats) -> Path:
        """Points and scores averaged by inverse variance; without noise the newest stands alone."""
        if sd == 0 or q.step < 0.2 * self.num_steps:
            return replace(q, mean_point_e=q.point_e, mean_score_e=score_e, noise=sd**2)
        noise = 1 / (1 / q.noise + 1 / sd**2)
        part = noise / sd**2
        return replace(
            q,
            mean_point_e=q.mean_point_e + part * (q.point_e - q.mean_point_e),
            mean_score_e=q.mean_score_e + part * (score_e - q.mean_score_e),
            noise=noise,
        )

    def _precision(self, q: Path, information_e: Floats, share: float, noise_e: Floats) -> float:
        """α of largest marginal likelihood for the Newton point, e_i ~ N(0, 1/α + variance of e_i)."""
        if self.alpha is not None:
            return self.alpha
        steep_e = np.maximum(information_e, 0.25 * share * q.majorised_e)
        square_e = (q.mean_point_e - q.start_e + q.mean_score_e / steep_e) ** 2
        variance_ae = 1 / _ALPHAS[:, None] + (information_e + noise_e) / steep_e**2
        fit_a = -0.5 * np.sum(np.log(variance_ae) + square_e / variance_ae, axis=1)
        return float(_ALPHAS[np.argmax(fit_a - 0.5 * (np.log(_ALPHAS / 0.5) / 2) ** 2)])

    def _finished(self, s: Estimate, q: Path) -> Path:
        """Step 6: the curvature at the mean, in coordinates x̃."""
        sd, guess_e = s.noise_std("curvature_at_mean"), 0.25 * q.share * q.second_e / q.scale_e**2
        edge = curvature.noise_edge(len(guess_e), sd)
        read_ee = curvature.keep_beyond(s.read("curvature_at_mean"), np.diag(guess_e), edge)
        value_e, vector_ee = np.linalg.eigh(read_ee)
        value_e = np.maximum(value_e, 0.2 * float(guess_e.min()))
        return replace(q, curvature_ee=(vector_ee * value_e) @ vector_ee.T)

    def weights(self, q: Path) -> Weights:
        """Posterior of the weights, in the coordinates of x."""
        prior_e = q.alpha / q.scale_e**2
        information_ee = np.diag(0.25 * q.share * q.second_e / q.scale_e**2)
        if q.curvature_ee is not None:
            information_ee = q.curvature_ee
        value_e, vector_ee = np.linalg.eigh(information_ee)
        gain_e = value_e / (value_e + (q.noise if math.isfinite(q.noise) else 0.0))
        to_x_de = q.basis_de / q.scale_e
        target_e = q.mean_score_e / q.scale_e + information_ee @ (q.scale_e * (q.mean_point_e - q.start_e))

        def covariance(weight_e: Floats) -> Floats:
            return np.asarray(np.linalg.inv(np.diag(prior_e) + (vector_ee * weight_e) @ vector_ee.T))

        aware_ee = covariance(gain_e * value_e)
        z_e = aware_ee @ (vector_ee @ (gain_e * (vector_ee.T @ target_e)))
        mean_d = q.basis_de @ (q.start_e + z_e / q.scale_e)
        return Weights(mean_d, to_x_de @ aware_ee @ to_x_de.T, to_x_de @ covariance(value_e) @ to_x_de.T)
