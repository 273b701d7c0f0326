"""Normal posteriors of weights under a prior of unknown precision: N(m_0, I/α + drift driftᵀ), α on a grid.

Input is a noisy score at a point, with its derivative. α has a weak log-normal prior. Everything here is
post-processing and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpvb.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive

_ALPHAS = np.geomspace(0.1, 300.0, 12)
# Median of α, and standard deviation of log α.
_MEDIAN, _SPREAD = 0.5, 1.0
# Growth of the mean squared slope after which the majoriser is doubled.
_GROWN = 4.0


@dataclass(frozen=True)
class Pace:
    """Notices slopes that grow: they betray a majoriser below the true curvature, which is then doubled.

    Attributes:
        caution: what the majoriser is multiplied by.
        least: smallest mean squared slope, doubled with it.
    """

    caution: Positive = 1.0
    least: Nonnegative = UNSEEN

    def after(self, size: float) -> Pace:
        """The pace after a mean squared slope of this size."""
        if size > _GROWN * self.least:
            return Pace(2.0 * self.caution, 2.0 * self.least)
        return Pace(self.caution, min(self.least, size))


def best_precision(point_e: Floats, variance_e: Floats, drift_e: Floats) -> float:
    """α of highest density, given independent estimates of m - m_0 with their variances, (e,)."""
    variance_ae = 1.0 / _ALPHAS[:, None] + drift_e**2 + variance_e
    fit_a = -0.5 * np.sum(np.log(variance_ae) + point_e**2 / variance_ae, axis=1)
    return float(_ALPHAS[np.argmax(fit_a + _log_prior(_ALPHAS))])


def posterior(
    variance_ee: Floats,
    excess: float,
    noise: float,
    score_e: Floats,
    away_e: Floats,
    scale_e: Floats,
    drift_e: Floats,
    alpha: float | None,
) -> tuple[Floats, Floats]:
    """Mean and covariance of z = s∘(m - m_0) by a Newton step, averaged over α where it is not given.

    Args:
        variance_ee: variance of the score between samples.
        excess: minus the score's derivative over that variance.
        noise: noise variance of the score, the same in every coordinate of z.
        score_e, away_e: score, and the point z where it was taken.
        scale_e: s.
        drift_e: direction in which the prior mean itself is uncertain, in the coordinates of m.
        alpha: prior precision of m, or None.
    """
    value_e, vector_ee = np.linalg.eigh(variance_ee)
    gain_e = excess * value_e / (value_e + noise)
    precision_ee = (vector_ee * (gain_e * excess * value_e)) @ vector_ee.T
    linear_e = vector_ee @ (gain_e * (vector_ee.T @ (score_e + excess * (variance_ee @ away_e))))
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    drift_e = scale_e * drift_e
    fits, means, covariances = [], [], []
    for alpha in alphas:
        prior_e = alpha / scale_e**2
        pull_e = prior_e * drift_e
        stiff = 1.0 + float(drift_e @ pull_e)
        root = cho_factor(np.diag(prior_e) - np.outer(pull_e, pull_e) / stiff + precision_ee, lower=True)
        means.append(cho_solve(root, linear_e))
        covariances.append(cho_solve(root, np.eye(len(linear_e))))
        log_determinant = np.sum(np.log(prior_e)) - np.log(stiff) - 2.0 * np.sum(np.log(np.diag(root[0])))
        fits.append(0.5 * (log_determinant + linear_e @ means[-1]))
    weight_a = np.exp(np.array(fits) + _log_prior(alphas) - np.max(fits + _log_prior(alphas)))
    weight_a /= weight_a.sum()
    mean_e = np.tensordot(weight_a, means, 1)
    spread_ae = np.array(means) - mean_e
    covariance_ee = np.tensordot(weight_a, covariances, 1) + (spread_ae.T * weight_a) @ spread_ae
    return mean_e, np.asarray(covariance_ee)


def _log_prior(alpha_a: Floats) -> Floats:
    return np.asarray(-0.5 * (np.log(alpha_a / _MEDIAN) / _SPREAD) ** 2)
