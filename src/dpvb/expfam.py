"""Exponential families: natural parameter → expected statistics, and → log normaliser.

Each family is these two functions; the first is the gradient of the second.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln

from dpvb.blocks import Floats


def dirichlet_expectedstats(concentration: Floats, axis: int = -1) -> Floats:
    """E[log θ] under Dirichlet(concentration), normalised along `axis`: ψ(c_k) - ψ(Σ c)."""
    total = concentration.sum(axis=axis, keepdims=True)
    return np.asarray(digamma(concentration) - digamma(total))


def dirichlet_logz(concentration: Floats, axis: int = -1) -> Floats:
    """Log normaliser of Dirichlet(concentration) along `axis`: Σ log Γ(c_k) - log Γ(Σ c)."""
    return np.asarray(gammaln(concentration).sum(axis=axis) - gammaln(concentration.sum(axis=axis)))
