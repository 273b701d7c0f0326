"""Factor analysis by private expectation maximisation: EM without noise, and fits by `dpvb.Private`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import dpvb
from dpvb.papers.private_em import PrivateEM


def table(n: int = 4000, d: int = 5) -> np.ndarray:
    """Rows of one factor, within the unit ball."""
    rng = np.random.default_rng(0)
    x_nd = np.outer(rng.standard_normal(n), np.linspace(0.1, 0.3, d)) + 0.05 * rng.standard_normal((n, d))
    return np.asarray(x_nd / np.maximum(1.0, np.linalg.norm(x_nd, axis=1))[:, None])


@pytest.mark.parametrize("isotropic", [False, True])
def test_without_noise_the_rounds_find_the_covariance_of_the_rows(isotropic: bool, tmp_path: Path) -> None:
    x_nd = table()
    model = PrivateEM(5, 1, num_steps=300, isotropic=isotropic)
    fitted = dpvb.Private(model, row_norm=1.0, epsilon=math.inf, delta=1e-5, random_state=0).fit(x_nd)
    q = fitted.q_
    covariance_dd = q.loading_dk @ q.loading_dk.T + np.diag(q.unique_d)
    # Factors are clipped to a length of √(2K), which 16 % of normal ones exceed.
    assert np.abs(covariance_dd / np.cov(x_nd.T) - 1).max() < 0.5
    np.testing.assert_allclose(q.mean_d, x_nd.mean(axis=0), atol=1e-3)
    assert np.ptp(q.unique_d) == 0 or not isotropic
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "model").q_.loading_dk, q.loading_dk)


def test_with_noise_all_numbers_are_finite() -> None:
    fitted = dpvb.Private(PrivateEM(5, 2), row_norm=1.0, epsilon=0.01, delta=1e-5, random_state=0).fit(table(50))
    assert np.isfinite(fitted.q_.loading_dk).all()
    assert (fitted.q_.unique_d > 0).all()
