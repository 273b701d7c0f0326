"""The Gaussian mechanism exactly: delta at epsilon and back, at any scale (Balle and Wang 2018, Theorem 8)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import erfcx, log_ndtr

from dpvb.guards.arrays import Floats


def log_delta(mu: float, a: float) -> float:
    """Return log delta of two unit Gaussians mu apart at epsilon = a mu + mu^2/2.

    delta = phi(a) (m(a) - m(a + mu)), with m Mills' ratio; the parametrisation by a has no cancellation at large mu,
    and the small-mu branch integrates e^{-at - t^2/2} (1 - e^{-mu t}), whose integrand is positive.
    """
    if a < -1:
        upper = log_ndtr(-a)
        return float(upper + math.log1p(-math.exp(min(a * mu + mu * mu / 2 + log_ndtr(-a - mu) - upper, -1e-300))))
    if mu < 0.1:
        difference = _small_difference(mu, a)
    else:
        difference = math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)) - erfcx((a + mu) / math.sqrt(2)))
    return -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(difference)


def epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which two unit Gaussians mu apart have hockey-stick divergence delta."""
    target = math.log(delta)
    low = -mu / 2
    if log_delta(mu, low) <= target:
        return 0.0
    high = max(low + 1, 1.0)
    while log_delta(mu, high) > target:
        low, high = high, 2 * high
    # Keep the side on which delta is met; the relative slack covers the rounding of log_delta.
    while high - low > 1e-15 * max(1.0, abs(high)):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if log_delta(mu, middle) > target:
            low = middle
        else:
            high = middle
    return max(0.0, mu * (high + mu / 2)) * (1 + 1e-12)


def delta(mu: float, epsilon: float) -> float:
    """Return the hockey-stick divergence at epsilon of two unit Gaussians mu apart."""
    return min(1.0, math.exp(log_delta(mu, epsilon / mu - mu / 2)) * (1 + 1e-10))


def _small_difference(mu: float, a: float) -> float:
    nodes, weights = _unit_nodes()
    reach = 40 / (1 + max(a, 0.0))
    t = reach * nodes
    return reach * float(np.sum(weights * np.exp(-a * t - t * t / 2) * -np.expm1(-mu * t)))


@cache
def _unit_nodes() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(160)
    return (nodes + 1) / 2, weights / 2
