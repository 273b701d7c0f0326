"""Normal posteriors of weights m under a prior of unknown precision: N(m_0, I/α + drift driftᵀ), α on a grid.

Input is a noisy score at a point, with its derivative. α has a weak log-normal prior. Vectors (e,) are in an eigenbasis
of the rows. Everything here is post-processing and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive
from dpvb.models.regression import tuned

_ALPHAS = np.geomspace(tuned.ALPHA_LOW, tuned.ALPHA_HIGH, tuned.NUM_ALPHAS)


@dataclass(frozen=True)
class StepGuard:
    """A guard against steps that are too long: growing gradients betray a majoriser below the curvature.

    Attributes:
        safety: factor of the majoriser; it is doubled when gradients grow.
        least: smallest mean squared gradient so far; it is doubled with the safety factor.
    """

    safety: Positive = 1.0
    least: Nonnegative = UNSEEN

    def after(self, size: float) -> StepGuard:
        """The guard after a step from a mean squared gradient of this size."""
        if size > tuned.GRADIENT_GROWTH * self.least:
            return StepGuard(2.0 * self.safety, 2.0 * self.least)
        return StepGuard(self.safety, min(self.least, size))


@dataclass(frozen=True)
class NoisyScore:
    """A score G of the log likelihood, in coordinates z = s∘(m - m_0), with all that is known of its error; public.

    Attributes:
        score_e: G.
        offset_e: the point z at which the score was taken.
        variance_ee: variance of the score between samples.
        excess: minus the derivative of the score, divided by that variance.
        noise: variance of the privacy noise in each coordinate of the score.
    """

    score_e: Floats
    offset_e: Floats
    variance_ee: Floats
    excess: float
    noise: float

    def information(self) -> tuple[Floats, Floats]:
        """Precision P of z that the score gives, (e, e), and P times the Newton point from it, (e,)."""
        value_e, vector_ee = np.linalg.eigh(self.variance_ee)
        gain_e = self.excess * value_e / (value_e + self.noise)
        precision_ee = (vector_ee * (gain_e * self.excess * value_e)) @ vector_ee.T
        newton_e = self.score_e + self.excess * (self.variance_ee @ self.offset_e)
        return precision_ee, vector_ee @ (gain_e * (vector_ee.T @ newton_e))


@dataclass(frozen=True)
class Prior:
    """The prior of the weights m: N(m_0, I/α + drift driftᵀ); public.

    Attributes:
        scale_e: s, which takes m - m_0 to z.
        drift_e: direction in which m_0 itself is uncertain.
        alpha: α; None: unknown.
    """

    scale_e: Floats
    drift_e: Floats
    alpha: float | None


def best_precision(point_e: Floats, variance_e: Floats, drift_e: Floats) -> float:
    """α of highest density, given independent estimates (e,) of m - m_0 and their variances (e,)."""
    variance_ae = 1.0 / _ALPHAS[:, None] + drift_e**2 + variance_e
    fit_a = -0.5 * np.sum(np.log(variance_ae) + point_e**2 / variance_ae, axis=1)
    return float(_ALPHAS[np.argmax(fit_a + _log_prior(_ALPHAS))])


def posterior(score: NoisyScore, prior: Prior) -> tuple[Floats, Floats]:
    """Mean (e,) and covariance (e, e) of z by a Newton step from a score, averaged over α if it is unknown."""
    information_ee, linear_e = score.information()
    alphas = _ALPHAS if prior.alpha is None else np.array([prior.alpha])
    drift_e = prior.scale_e * prior.drift_e
    fits, means, covariances = [], [], []
    for alpha in alphas:
        prior_e = alpha / prior.scale_e**2
        pull_e = prior_e * drift_e
        stiff = 1.0 + float(drift_e @ pull_e)
        root = cho_factor(np.diag(prior_e) - np.outer(pull_e, pull_e) / stiff + information_ee, lower=True)
        means.append(cho_solve(root, linear_e))
        covariances.append(cho_solve(root, np.eye(len(linear_e))))
        log_determinant = np.sum(np.log(prior_e)) - np.log(stiff) - 2.0 * np.sum(np.log(np.diag(root[0])))
        fits.append(0.5 * (log_determinant + linear_e @ means[-1]))
    log_weight_a = np.array(fits) + _log_prior(alphas)
    weight_a = np.exp(log_weight_a - np.max(log_weight_a))
    weight_a /= weight_a.sum()
    mean_e = np.tensordot(weight_a, means, 1)
    spread_ae = np.array(means) - mean_e
    covariance_ee = np.tensordot(weight_a, covariances, 1) + (spread_ae.T * weight_a) @ spread_ae
    return mean_e, np.asarray(covariance_ee)


def _log_prior(alpha_a: Floats) -> Floats:
    return np.asarray(-0.5 * (np.log(alpha_a / tuned.ALPHA_MEDIAN) / tuned.ALPHA_SPREAD) ** 2)
