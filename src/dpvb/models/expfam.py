"""Exponential families: natural parameter → expected statistics, and → log normaliser.

Each family is these two functions; the first is the gradient of the second.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, gammaln, kve

from dpvb.arrays import Floats


def dirichlet_expectedstats(concentration: Floats, axis: int = -1) -> Floats:
    """E[log θ] under Dirichlet(concentration), normalised along `axis`: ψ(c_k) - ψ(Σ c)."""
    total = concentration.sum(axis=axis, keepdims=True)
    return np.asarray(digamma(concentration) - digamma(total))


def dirichlet_logz(concentration: Floats, axis: int = -1) -> Floats:
    """Log normaliser of Dirichlet(concentration) along `axis`: Σ log Γ(c_k) - log Γ(Σ c)."""
    return np.asarray(gammaln(concentration).sum(axis=axis) - gammaln(concentration.sum(axis=axis)))


def gamma_expectedstats(shape: Floats | float, rate: Floats | float) -> tuple[Floats, Floats]:
    """(E[log α], E[α]) under Gam(shape, rate)."""
    return np.asarray(digamma(shape) - np.log(rate)), np.asarray(shape / rate)


def gamma_logz(shape: Floats | float, rate: Floats | float) -> Floats:
    """Log normaliser of Gam(shape, rate): log Γ(shape) - shape · log rate."""
    return np.asarray(gammaln(shape) - shape * np.log(rate))


def gaussian_expectedstats(linear_d: Floats, precision_dd: Floats) -> tuple[Floats, Floats]:
    """(E[m], E[m mᵀ]) under the normal density ∝ exp(linearᵀm - ½ mᵀ precision m)."""
    covariance_dd = np.linalg.inv(precision_dd)
    mean_d = covariance_dd @ linear_d
    return mean_d, covariance_dd + np.outer(mean_d, mean_d)


def gaussian_logz(linear_d: Floats, precision_dd: Floats) -> float:
    """Log normaliser of exp(linearᵀm - ½ mᵀ precision m), the constant (d/2)·log 2π included."""
    _, logdet = np.linalg.slogdet(precision_dd)
    square = float(linear_d @ np.linalg.solve(precision_dd, linear_d))
    return 0.5 * (square - float(logdet) + len(linear_d) * math.log(2 * math.pi))


def polya_gamma_expectedstats(shape: Floats, c: Floats) -> Floats:
    """E[ξ] under PG(shape, c): shape · tanh(c/2) / (2c), shape / 4 at c = 0 (Polson, Scott & Windle 2013)."""
    c = np.maximum(np.abs(c), 1e-6)
    return np.asarray(shape * np.tanh(c / 2) / (2 * c))


def polya_gamma_logz(shape: Floats, c: Floats) -> Floats:
    """Log normaliser of PG(shape, c) in the natural parameter -c²/2 of ξ: -shape · log cosh(c/2)."""
    c = np.abs(c)
    return np.asarray(-shape * (c / 2 + np.log1p(np.exp(-c)) - math.log(2.0)))


def gig_expectedstats(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """E[x] and E[1/x] under GIG(0, a, b), density ∝ exp(-(a x + b/x)/2) / x, for positive a and b (Jørgensen 1982)."""
    root = np.sqrt(a * b)
    ratio = kve(1, root) / kve(0, root)
    return np.asarray(np.sqrt(b / a) * ratio), np.asarray(np.sqrt(a / b) * ratio)


def gig_logz(a: Floats, b: Floats) -> Floats:
    """Log normaliser of GIG(0, a, b): log 2K₀(√(ab))."""
    root = np.sqrt(a * b)
    return np.asarray(np.log(2 * kve(0, root)) - root)
