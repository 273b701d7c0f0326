"""`dpvb.FixedCurvature` by itself: fits of simulated rows with fixed noise, without the privacy boundary."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from dpvb.models.regression.descent import FixedCurvature, expected_variance


def fitted(rng: np.random.Generator, x_nd: np.ndarray, truth_d: np.ndarray, noise: float) -> FixedCurvature:
    """A logistic regression, whose releases have noise as one of a plan with ε of about 120 / noise."""
    y_n, d, steps = rng.random(len(x_nd)) < expit(x_nd @ truth_d), len(truth_d), 16
    known = FixedCurvature.start(np.zeros(d), alpha=0.1, n_steps=steps)

    def score_nd() -> np.ndarray:
        return np.asarray((y_n - expit(x_nd @ known.point_d))[:, None] * x_nd)

    def curved(std: float) -> FixedCurvature:
        noise_dd = std * rng.standard_normal((d, d))
        return known.with_curvature(score_nd().T @ score_nd() + (noise_dd + noise_dd.T) / 2, std)

    known = curved(0.35 * noise)
    for t in range(1, steps + 1):
        std = noise / 2 * math.sqrt(steps / t)
        known = known.with_score(score_nd().sum(axis=0) + std * rng.standard_normal(d), std)
    return curved(0.5 * noise)


def test_intervals_include_the_noise_of_the_curvature() -> None:
    """Fixed seeds; the constant nearly explains the columns: noise hides most eigenvalues of the curvature."""
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x_nd = np.hstack([np.ones((4_400, 1)), rng.uniform(0.6, 1, (4_400, 4))]) / math.sqrt(5)
        truth_d = math.sqrt(5) * np.array([-0.4, 1.0, -1.0, 0.5, 0.0])
        mean_d, covariance_dd = fitted(rng, x_nd, truth_d, 120.0).posterior()
        errors.append((mean_d - truth_d) / np.sqrt(np.diag(covariance_dd)))
    assert np.mean(np.abs(errors) < 1.96) >= 0.92
    assert np.abs(errors).max() < 4.0


def test_an_expected_variance_is_between_that_of_the_eigenvalue_and_of_the_prior() -> None:
    eigenvalue_e = np.array([1e-9, 1.0, 30.0, 1e3, 1e6])
    plain_e = 1 / (0.1 + eigenvalue_e**2 / (eigenvalue_e + 50.0))
    for std in (1e-6, 1.0, 30.0, 1e3):
        variance_e = expected_variance(eigenvalue_e, std, 50.0, 0.1)
        assert (variance_e <= 10.0).all(), std
        assert (variance_e >= 0.999 * np.minimum(plain_e, 9.0))[eigenvalue_e > std].all(), std
    np.testing.assert_allclose(expected_variance(eigenvalue_e[1:], 1e-6, 50.0, 0.1), plain_e[1:], rtol=1e-3)
