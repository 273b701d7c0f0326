"""Factor analysis by private expectation maximisation: EM without noise, and fits by `dpvb.PrivateModel`."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpvb
from dpvb.papers.private_em import Loadings, PrivateEM


def table(n: int = 4000, d: int = 5) -> np.ndarray:
    """Rows of one factor of ±1, within the unit ball: factors are below the bound of √2."""
    rng = np.random.default_rng(0)
    x_nd = np.outer(rng.choice([-1.0, 1.0], n), np.linspace(0.1, 0.3, d)) + 0.05 * rng.standard_normal((n, d))
    return np.asarray(x_nd / np.maximum(1.0, np.linalg.norm(x_nd, axis=1))[:, None])


@pytest.mark.parametrize("isotropic", [False, True])
def test_rounds_are_those_of_expectation_maximisation(isotropic: bool) -> None:
    """JAIR, Eq. 79 for factor analysis, in a few lines of NumPy (relative 1e-7: `product` rounds to 26 bits)."""
    x_nd = table(300)
    x_nd = x_nd - x_nd.mean(axis=0)
    n, d = x_nd.shape
    loading_dk, unique_d = np.linspace(0.05, 0.2, d)[:, None], np.full(d, 0.02)
    model = PrivateEM(d, 1, isotropic=isotropic)
    q = Loadings.of(np.zeros(d), loading_dk, unique_d, float(n))
    for _ in range(6):
        forms = model.e_step(q, x_nd, {"cross": None, "factors": None, "squares": None})  # type: ignore[dict-item]
        h_nk = forms["cross"].right  # type: ignore[attr-defined]
        sums = {"cross": x_nd.T @ h_nk, "factors": h_nk.T @ h_nk, "squares": (x_nd**2).sum(axis=0)}
        q = model.m_step(SimpleNamespace(noisy=sums.__getitem__, project=sums.__getitem__), q)  # type: ignore[arg-type]

        precision_kk = np.eye(1) + loading_dk.T @ (loading_dk / unique_d[:, None])
        mean_nk = x_nd @ (loading_dk / unique_d[:, None]) @ np.linalg.inv(precision_kk)
        second_kk = n * np.linalg.inv(precision_kk) + mean_nk.T @ mean_nk
        loading_dk = x_nd.T @ mean_nk @ np.linalg.inv(second_kk)
        unique_d = ((x_nd - mean_nk @ loading_dk.T) * x_nd).sum(axis=0) / n
        unique_d = np.full(d, unique_d.mean()) if isotropic else unique_d
        np.testing.assert_allclose(q.loading_dk, loading_dk, rtol=1e-7)
        np.testing.assert_allclose(q.unique_d, unique_d, rtol=1e-7)


@pytest.mark.parametrize("isotropic", [False, True])
def test_without_noise_the_rounds_find_the_covariance_of_the_rows(isotropic: bool, tmp_path: Path) -> None:
    x_nd = table()
    model = PrivateEM(5, 1, n_steps=50, isotropic=isotropic)
    fitted = dpvb.PrivateModel(model, max_row_norm=1.0, epsilon=math.inf, delta=1e-5, random_state=0).fit(x_nd)
    q = fitted.q_
    covariance_dd = q.loading_dk @ q.loading_dk.T + np.diag(q.unique_d)
    assert np.abs(covariance_dd / np.cov(x_nd.T) - 1).max() < 0.15
    np.testing.assert_allclose(q.mean_d, x_nd.mean(axis=0), atol=1e-3)
    assert np.ptp(q.unique_d) == 0 or not isotropic
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "model").q_.loading_dk, q.loading_dk)


def test_with_noise_all_numbers_are_finite() -> None:
    fitted = dpvb.PrivateModel(PrivateEM(5, 2), max_row_norm=1.0, epsilon=0.01, delta=1e-5, random_state=0).fit(
        table(50)
    )
    assert np.isfinite(fitted.q_.loading_dk).all()
    assert (fitted.q_.unique_d > 0).all()
