"""Centres of intervals of loadings: what is nearest to released moments, and not what a prior has drawn together."""

import math

import numpy as np
import pytest

import dpvb
from dpvb.models.factors.posterior import nearest_factors

D, K = 10, 3
PSI_D = np.linspace(0.3, 0.8, D)


def loadings() -> np.ndarray:
    """Loadings (d, K) with WᵀΨ⁻¹W diagonal; three factors explain most of the first column."""
    basis_dk = np.linalg.qr(np.random.default_rng(K).normal(size=(D, K)))[0] * np.array([3.0, 2.0, 1.4])
    return basis_dk @ np.linalg.svd(basis_dk.T / np.sqrt(PSI_D), full_matrices=False)[0]


@pytest.mark.parametrize("sd", [1e-9, 0.01])
def test_moments_of_a_factor_model_are_told_apart_exactly(sd: float) -> None:
    loading_dk = loadings()
    found = nearest_factors(loading_dk @ loading_dk.T + np.diag(PSI_D), sd, 20_000.0, K)
    np.testing.assert_allclose(np.abs(found.loading_dk), np.abs(loading_dk), atol=5e-3)
    np.testing.assert_allclose(found.unique_d, PSI_D, atol=5e-3)


def test_what_is_left_of_moments_is_least() -> None:
    """No model that is a little beside it is nearer, in units of errors; unique variances stay within their bounds."""
    rng = np.random.default_rng(0)
    noise_dd = rng.normal(0, 0.05, (D, D))
    second_dd = loadings() @ loadings().T + np.diag(PSI_D) + noise_dd + noise_dd.T
    found = nearest_factors(second_dd, 0.1, 20_000.0, K)
    root_dd = np.sqrt(np.outer(*[np.hypot(found.unique_d, 0.1 * 100.0)] * 2))

    def misfit(loading_dk: np.ndarray, unique_d: np.ndarray) -> float:
        return float(np.square((second_dd - loading_dk @ loading_dk.T - np.diag(unique_d)) / root_dd).sum())

    least = misfit(found.loading_dk, found.unique_d)
    inside_d = found.unique_d > 0.011 * np.diagonal(second_dd)
    assert (found.unique_d >= 0.01 * np.diagonal(second_dd) * (1 - 1e-12)).all()
    for _ in range(100):
        shift_dk, shift_d = 1e-2 * rng.normal(size=(D, K)), 1e-2 * rng.normal(size=D) * inside_d
        assert misfit(found.loading_dk + shift_dk, found.unique_d + shift_d) > least


def test_intervals_of_loadings_are_centred_on_the_truth() -> None:
    """The mean of 12 fits' errors, in standard deviations as they are said: normal, of std 1/√12 at most.

    It is beyond 5/√12 with a probability below 1e-6; the noise has no seed. Posterior means are 2 to 3 away.
    """
    loading_kd = loadings().T
    end_d = 4 * np.sqrt(np.square(loading_kd).sum(axis=0) + PSI_D)
    scores = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x_nd = rng.standard_normal((20_000, K)) @ loading_kd + rng.standard_normal((20_000, D)) * np.sqrt(PSI_D)
        low_kd, high_kd = (
            dpvb.FactorAnalysis(K, low=-end_d, high=end_d, epsilon=0.5, delta=1e-5).fit(x_nd).loadings_interval()
        )
        middle_d = 0.5 * (low_kd + high_kd)[0]
        sign = math.copysign(1.0, float(middle_d @ loading_kd[0]))
        scores.append((sign * middle_d - loading_kd[0]) / (0.5 * (high_kd - low_kd)[0] / 1.96))
    assert abs(np.mean(scores, axis=0)[[3, 7]]).max() < 5 / math.sqrt(12)
