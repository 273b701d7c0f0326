"""Exponential families: the expected statistics are the gradient of the log normaliser."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp

from dpvb.models.expfam import (
    dirichlet_expectedstats,
    dirichlet_logz,
    gig_expectedstats,
    gig_logz,
    polya_gamma_expectedstats,
)

positive = arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=st.floats(0.05, 50.0))


@given(positive, st.sampled_from([0, 1, -1]))
def test_the_gradient_identity(concentration: np.ndarray, axis: int) -> None:
    """Central differences of log Z; step 1e-5, so an error of about 1e-8 relative to the second derivatives."""
    expected = dirichlet_expectedstats(concentration, axis)
    h = 1e-5
    for place in np.ndindex(*concentration.shape):
        up, down = concentration.copy(), concentration.copy()
        up[place] += h
        down[place] -= h
        slope = (dirichlet_logz(up, axis) - dirichlet_logz(down, axis)).sum() / (2 * h)
        assert slope == pytest.approx(expected[place], rel=1e-6, abs=1e-6)


def test_against_high_precision() -> None:
    for c in ([0.02, 0.3, 5.0], [1e-3, 1e3], [100.0] * 5):
        total = mpmath.fsum(c)
        stats = [float(mpmath.digamma(x) - mpmath.digamma(total)) for x in c]
        logz = float(mpmath.fsum(mpmath.loggamma(x) for x in c) - mpmath.loggamma(total))
        np.testing.assert_allclose(dirichlet_expectedstats(np.array(c)), stats, rtol=1e-12, atol=1e-15)
        assert float(dirichlet_logz(np.array(c))) == pytest.approx(logz, rel=1e-12)


def test_against_the_integral_over_the_simplex() -> None:
    """K = 2: log Z is the log of the Beta integral, and E[log θ] its average."""
    a, b = 2.5, 0.7
    density = [lambda x: x ** (a - 1) * (1 - x) ** (b - 1), lambda x: mpmath.log(x) * x ** (a - 1) * (1 - x) ** (b - 1)]
    z, first = (mpmath.quad(f, [0, 0.5, 1]) for f in density)
    c = np.array([a, b])
    assert float(dirichlet_logz(c)) == pytest.approx(float(mpmath.log(z)), rel=1e-6)
    assert dirichlet_expectedstats(c)[0] == pytest.approx(float(first / z), rel=1e-6)


@given(positive)
def test_expected_log_proportions_lie_below_the_simplex(concentration: np.ndarray) -> None:
    """Jensen: Σ exp E[log θ] ≤ 1, with equality as the concentration grows."""
    assert (logsumexp(dirichlet_expectedstats(concentration), axis=-1) <= 1e-12).all()
    sharp = logsumexp(dirichlet_expectedstats(concentration * 1e9), axis=-1)
    np.testing.assert_allclose(sharp, 0.0, atol=1e-6)


def test_one_category_is_certain() -> None:
    assert dirichlet_expectedstats(np.array([0.3]))[0] == 0.0
    assert float(dirichlet_logz(np.array([0.3]))) == pytest.approx(0.0, abs=1e-15)
    assert math.isfinite(float(dirichlet_logz(np.full(10_000, 0.02))))


def test_generalised_inverse_gaussian_against_its_integral() -> None:
    """log Z, E[x] and E[1/x] of exp(-(a x + b/x)/2) / x by the trapezoidal rule over log x, which decays doubly."""
    u = np.linspace(-60.0, 60.0, 240_001)
    for a, b in ((2.0, 1.0), (0.03, 7.0), (5.0, 1e-6), (40.0, 30.0)):
        log_density = -0.5 * (a * np.exp(u) + b * np.exp(-u))
        z, first, inverse = (np.exp(log_density + power * u).sum() * (u[1] - u[0]) for power in (0, 1, -1))
        found = gig_expectedstats(np.array(a), np.array(b))
        assert float(gig_logz(np.array(a), np.array(b))) == pytest.approx(math.log(z), rel=1e-9)
        assert [float(part) for part in found] == pytest.approx([first / z, inverse / z], rel=1e-9)


def test_polya_gamma_mean_is_that_of_its_series() -> None:
    """E[ξ] is the mean of (2π²)⁻¹ Σ_k g_k / ((k - ½)² + c²/4π²), g_k ~ Gam(b, 1)."""
    k = np.arange(1, 2_000_001)
    for b, c in ((1.0, 0.3), (1.0, 0.0), (4.5, 2.0), (20.0, 9.0)):
        mean = float(polya_gamma_expectedstats(np.array(b), np.array(c)))
        series = b / (2 * math.pi**2) * np.sum(1 / ((k - 0.5) ** 2 + c**2 / (4 * math.pi**2)))
        assert mean == pytest.approx(series, rel=1e-6)
