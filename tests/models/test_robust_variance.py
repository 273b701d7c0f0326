"""Robust variances without privacy noise against statsmodels' sandwich estimators, and how they are read with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import dpvb
from dpvb.core.noise import InsecureNoise
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError
from dpvb.models.regression.moments import read_robust

RNG = np.random.default_rng(41)
N = 4_000
X = RNG.uniform(-1, 1, (N, 3))
PERSON = np.repeat(np.arange(N // 4), 4)
EFFECT = RNG.standard_normal(N // 4)[PERSON]
GIVEN: dict[str, Any] = {"epsilon": np.inf, "delta": 1e-6, "low": -1, "high": 1}


def sandwich(family: Any, y_n: Floats, by_person: bool) -> Floats:
    """Standard deviations of slopes by statsmodels; all persons have four rows, and so the same weight."""
    model = sm.GLM(y_n, sm.add_constant(X), family=family)
    options = {"groups": PERSON, "use_correction": False} if by_person else {}
    return np.asarray(model.fit(cov_type="cluster" if by_person else "HC0", cov_kwds=options).bse[1:])


def test_labels_of_persons() -> None:
    y_n = (RNG.random(N) < expit(X[:, 0] + 2 * EFFECT)).astype(float)
    model = dpvb.LogisticRegression(**GIVEN).fit(X, y_n, group=PERSON)
    np.testing.assert_allclose(np.ravel(model.coef_std_), sandwich(sm.families.Binomial(), y_n, True), rtol=0.03)
    assert np.all(model.coef_std_ < dpvb.LogisticRegression(robust=False, **GIVEN).fit(X, y_n, group=PERSON).coef_std_)


def test_counts_with_too_much_variance() -> None:
    y_n = np.minimum(RNG.poisson(np.exp(0.5 * X[:, 0]) * RNG.gamma(2, 0.5, N)), 20).astype(float)
    model = dpvb.PoissonRegression(max_count=20, **GIVEN).fit(X, y_n)
    np.testing.assert_allclose(model.coef_std_, sandwich(sm.families.Poisson(), y_n, False), rtol=0.03)


def test_numbers_whose_errors_grow_with_a_column() -> None:
    y_n = X[:, 0] + 0.2 * np.sqrt(0.1 + 4 * X[:, 0] ** 2) * RNG.standard_normal(N)
    model = dpvb.LinearRegression(y_range=(-4, 4), **GIVEN).fit(X, y_n)
    expected_d = sandwich(sm.families.Gaussian(), y_n, False)
    np.testing.assert_allclose(model.coef_std_, expected_d, rtol=0.03)
    plain = dpvb.LinearRegression(y_range=(-4, 4), robust=False, **GIVEN).fit(X, y_n)
    assert plain.coef_std_[0] < 0.8 * expected_d[0]


def test_where_the_model_holds_both_variances_agree() -> None:
    y_n = (RNG.random(N) < expit(X[:, 0])).astype(float)
    plain, robust = (dpvb.LogisticRegression(robust=robust, **GIVEN).fit(X, y_n) for robust in (False, True))
    np.testing.assert_allclose(plain.coef_std_, robust.coef_std_, rtol=0.05)


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4))
def test_without_noise_a_variance_is_what_was_released_and_under_much_noise_the_models(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    model_ee, half_ee = (a_ee @ a_ee.T + np.eye(d) for a_ee in rng.standard_normal((2, d, d)))
    near_ee = model_ee + 0.02 * half_ee
    np.testing.assert_allclose(read_robust(near_ee, model_ee, 0.0), near_ee, rtol=1e-9)
    noise_ee = rng.standard_normal((d, d))
    noise_ee = 1e6 * (noise_ee + noise_ee.T) / 2
    read_ee = read_robust(near_ee + noise_ee, model_ee, 1e6)
    np.testing.assert_allclose(read_ee, model_ee, rtol=1e-2)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, np.inf])
@pytest.mark.parametrize("kind", [dpvb.LinearRegression, dpvb.PoissonRegression, dpvb.LogisticRegression])
def test_a_single_coefficient_has_a_variance(kind: Any, epsilon: float) -> None:
    own = {dpvb.LinearRegression: {"y_range": (-4, 4)}, dpvb.PoissonRegression: {"max_count": 5}}.get(kind, {})
    model = kind(fit_intercept=False, robust=True, **{**GIVEN, "epsilon": epsilon}, **own)
    model.fit(X[:, :1], (X[:, 0] > 0).astype(float))
    assert 0 < np.ravel(model.coef_std_)[0] < np.inf


def test_intervals_of_correlated_rows_cover_at_their_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight tables of 2,000 persons of five rows each, of the same effect, at ε = 2.

    If intervals of 95 % miss with probability 0.08, more than 12 of 32 do with probability 2e-6 at most. Without the
    released variance, they would be longer by more than a fifth. The seeds are fixed.
    """
    missed, wide = 0, []
    for seed in range(8):
        rng, noise = np.random.default_rng(seed), InsecureNoise(seed)
        monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda noise=noise: noise)
        person_n, slope_d = np.repeat(np.arange(2_000), 5), np.array([0.8, -0.8, 0.8, -0.8])
        x_nd = rng.uniform(-1, 1, (10_000, 4))
        x_nd[:, :2] = x_nd[::5, :2][person_n]
        y_n = (rng.random(10_000) < expit(x_nd @ slope_d)).astype(float)
        fits = [
            dpvb.LogisticRegression(epsilon=2.0, delta=1e-6, low=-1, high=1, robust=robust).fit(
                x_nd, y_n, group=person_n
            )
            for robust in (None, False)
        ]
        missed += int((np.abs(np.ravel(fits[0].coef_) - slope_d) > 1.96 * np.ravel(fits[0].coef_std_)).sum())
        wide.append(float((fits[1].coef_std_ / fits[0].coef_std_).mean()))
    assert missed <= 12
    assert np.mean(wide) > 1.2


def test_robust_is_checked_before_the_charge() -> None:
    with pytest.raises(ParameterError, match="robust must be True, False or None, got 'yes'"):
        dpvb.LogisticRegression(robust="yes", **GIVEN).fit(X, np.zeros(N))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="robust must be False or None, unless covariance='full', got True"):
        dpvb.LogisticRegression(robust=True, covariance="diagonal", **GIVEN).fit(X, np.zeros(N))
