"""Exponential families: natural parameter → expected statistics, and → log normaliser.

A family has one of these functions or both; the first is the gradient of the second.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, kve

from dpvb.guards.arrays import Floats


def dirichlet_expectedstats(concentration: Floats, axis: int = -1) -> Floats:
    """E[log θ] under Dirichlet(concentration), normalised along `axis`: ψ(c_k) - ψ(Σ c)."""
    total = concentration.sum(axis=axis, keepdims=True)
    return np.asarray(digamma(concentration) - digamma(total))


def dirichlet_logz(concentration: Floats, axis: int = -1) -> Floats:
    """Log normaliser of Dirichlet(concentration) along `axis`: Σ log Γ(c_k) - log Γ(Σ c)."""
    return np.asarray(gammaln(concentration).sum(axis=axis) - gammaln(concentration.sum(axis=axis)))


def polya_gamma_expectedstats(shape: Floats, c: Floats) -> Floats:
    """E[ξ] under PG(shape, c): shape · tanh(c/2) / (2c), shape / 4 at c = 0 (Polson, Scott & Windle 2013)."""
    c = np.maximum(np.abs(c), 1e-6)
    return np.asarray(shape * np.tanh(c / 2) / (2 * c))


def gig_expectedstats(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """E[x] and E[1/x] under GIG(0, a, b), density ∝ exp(-(a x + b/x)/2) / x, for positive a and b (Jørgensen 1982)."""
    root = np.sqrt(a * b)
    ratio = kve(1, root) / kve(0, root)
    return np.asarray(np.sqrt(b / a) * ratio), np.asarray(np.sqrt(a / b) * ratio)


def gig_logz(a: Floats, b: Floats) -> Floats:
    """Log normaliser of GIG(0, a, b): log 2K₀(√(ab))."""
    root = np.sqrt(a * b)
    return np.asarray(np.log(2 * kve(0, root)) - root)
