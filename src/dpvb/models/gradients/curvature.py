"""Curvature by regression of noisy gradients on the points where they were taken (Salimans & Knowles 2013).

For θ ~ N(μ, Σ), the coefficient of the regression of ∇ log p(θ) on θ is E[∇² log p] (Stein's identity). A Gaussian
guide needs nothing else for its covariance. For a quadratic log p the coefficient is exact after enough points. The
noise in the gradients has a known size, hence the coefficient has a known error, by which it is shrunk to a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.gradients import tuned

# Ridge, relative to the curvature, that keeps divisors positive.
_TINY = 1e-12


@dataclass(frozen=True)
class Regression:
    """Weighted means and products of points, gradients of the likelihood, and of the prior.

    Attributes:
        point_p, score_p, prior_p: means, (P,).
        spread: covariance of the points: (P, P), or its diagonal (P,).
        with_score, with_prior: covariance of either gradient (first axis) with the points; as `spread`.
        score_variance_p: variance of the score, (P,).
        noise_part: noise variance of the mean score, over that of one score: the sum of the squared weights.
    """

    point_p: Floats
    score_p: Floats
    prior_p: Floats
    spread: Floats
    with_score: Floats
    with_prior: Floats
    score_variance_p: Floats
    noise_part: float = 1.0

    @classmethod
    def start(cls, num_parameters: int, *, full: bool) -> Regression:
        """The start without any point; give the first point weight 1."""
        zero_p, zero = np.zeros(num_parameters), np.zeros((num_parameters,) * (2 if full else 1))
        return cls(zero_p, zero_p, zero_p, zero, zero, zero, zero_p)

    def joined(self, point_p: Floats, score_p: Floats, prior_p: Floats, weight: float) -> Regression:
        """The regression with one more point, of a weight in (0, 1]; the others share the rest."""
        rest, d_p, e_p, f_p = 1.0 - weight, point_p - self.point_p, score_p - self.score_p, prior_p - self.prior_p
        product = np.outer if self.spread.ndim == 2 else np.multiply
        return Regression(
            self.point_p + weight * d_p,
            self.score_p + weight * e_p,
            self.prior_p + weight * f_p,
            rest * (self.spread + weight * product(d_p, d_p)),
            rest * (self.with_score + weight * product(e_p, d_p)),
            rest * (self.with_prior + weight * product(f_p, d_p)),
            rest * (self.score_variance_p + weight * e_p**2),
            rest**2 * self.noise_part + weight**2,
        )

    def curvature(self, guess_p: Floats, doubt_p: Floats, noise: float) -> tuple[Floats, Floats]:
        """Curvature of the log-likelihood, (P, P) or its diagonal (P,), and the error of its diagonal, (P,).

        Args:
            guess_p: guess of the diagonal, positive; off the diagonal the guess is 0.
            doubt_p: standard deviation of that guess; that of an entry off the diagonal is in proportion.
            noise: standard deviation of the noise in a score.
        """
        solve = _full if self.spread.ndim == 2 else _diagonal
        # First with the known noise alone. The residual may be larger, from small batches or if log p is no quadratic:
        # then it is the noise.
        first, _ = solve(self, self.with_score, guess_p, doubt_p, guess_p, np.full(len(guess_p), noise**2))
        return solve(self, self.with_score, guess_p, doubt_p, guess_p, self._residual(first, noise**2))

    def prior_curvature(self, guess_p: Floats) -> Floats:
        """Curvature of the log-prior, in the form of `curvature`; gradients have no noise; guess_p sets the scale."""
        spread_p = self.spread if self.spread.ndim == 1 else np.diagonal(self.spread)
        slope_p = self.with_prior if self.spread.ndim == 1 else np.diagonal(self.with_prior)
        curvature_p = -slope_p / np.where(spread_p > 0, spread_p, 1.0)
        if self.spread.ndim == 1:
            return np.asarray(curvature_p)
        return _full(self, self.with_prior, curvature_p, guess_p, guess_p, np.zeros(len(guess_p)))[0]

    def _residual(self, curvature: Floats, noise: float) -> Floats:
        """Variance of the score about the regression, (P,), at least that of the noise."""
        if curvature.ndim == 2:
            explained_p = ((curvature @ self.spread) * curvature).sum(axis=1) + 2 * (curvature * self.with_score).sum(
                axis=1
            )
        else:
            explained_p = curvature**2 * self.spread + 2 * curvature * self.with_score
        unknowns = 1 + (len(curvature) if curvature.ndim == 2 else 1)
        freedom = 1.0 - unknowns * self.noise_part
        enough = freedom > tuned.LEAST_FREEDOM
        residual_p = (self.score_variance_p + explained_p) / freedom if enough else np.zeros(len(curvature))
        # What is left by rounding counts as none.
        residual_p = np.where(residual_p > 1e-9 * self.score_variance_p, residual_p, 0.0)
        return np.asarray(np.maximum(residual_p, noise))


def _diagonal(
    moments: Regression, product_p: Floats, guess_p: Floats, doubt_p: Floats, scale_p: Floats, noise_p: Floats
) -> tuple[Floats, Floats]:
    """Each parameter is a ridge regression by itself."""
    ridge_p = moments.noise_part * noise_p / doubt_p**2
    total_p = moments.spread + ridge_p + _TINY / scale_p
    return (ridge_p * guess_p + _TINY * guess_p / scale_p - product_p) / total_p, doubt_p * np.sqrt(ridge_p / total_p)


def _full(
    moments: Regression, product_pp: Floats, guess_p: Floats, doubt_p: Floats, scale_p: Floats, noise_p: Floats
) -> tuple[Floats, Floats]:
    """Each row is a ridge regression with a ridge of its own, in coordinates √scale·θ."""
    root_p = np.sqrt(scale_p)
    spread_e, basis_pe = np.linalg.eigh(moments.spread * np.outer(root_p, root_p))
    spread_e = np.maximum(spread_e, 0.0)
    ridge_p = moments.noise_part * noise_p / scale_p * (scale_p / doubt_p) ** 2
    ridge_p = ridge_p + 1e-9 * max(float(spread_e.max()), _TINY)
    right_pp = np.diag(ridge_p * guess_p / scale_p) - product_pp / root_p[:, None] * root_p
    rows_pp = (right_pp @ basis_pe) / (spread_e + ridge_p[:, None]) @ basis_pe.T
    error_p = doubt_p * np.sqrt(((ridge_p[:, None] / (spread_e + ridge_p[:, None])) * basis_pe**2).sum(axis=1))
    return 0.5 * (rows_pp + rows_pp.T) * np.outer(root_p, root_p), error_p
