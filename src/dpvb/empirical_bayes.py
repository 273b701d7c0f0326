"""Reading a nonnegative matrix from noise: posterior means under a prior estimated from the noisy matrix itself.

Input is a linear, unbiased estimate X = S + N(0, sd²) of a nonnegative V × K matrix S. Everything here is
post-processing of X and costs no privacy. Setting negative entries to zero lifts all entries by 0.4 sd on
average; a posterior mean does not. The prior mean of entry (v, k) is rank one, m_vk = row_v·column_k / total:
a row sum over K entries has √K/K of an entry's relative noise, so the background comes for free.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from dpvb.blocks import Floats


def rank_one_mean(x_vk: Floats, sd: float) -> Floats:
    """Positive rank-one background m_vk of the noisy matrix."""
    num_terms, num_topics = x_vk.shape
    column_k = np.maximum(x_vk.sum(axis=0), sd * np.sqrt(num_terms))
    row_v = np.maximum(x_vk.sum(axis=1), 0.1 * sd * np.sqrt(num_topics))
    return np.outer(row_v / row_v.sum(), column_k)


def rank_one(x_vk: Floats, sd: float) -> Floats:
    """Posterior mean under an exponential prior of rank-one mean: a normal truncated to the positive half-line.

    The posterior of S_vk is N(μ, sd²) on S > 0 with μ = x - sd²/m; its mean is μ + sd·φ(t)/Φ(t), t = μ/sd.
    """
    t = (x_vk - sd**2 / rank_one_mean(x_vk, sd)) / sd
    hazard = np.exp(-0.5 * t**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(t))
    return np.maximum(sd * (t + hazard), 0.0)
