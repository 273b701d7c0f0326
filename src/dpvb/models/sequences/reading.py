"""Windows as they are read from noise: each toward what its own margins say.

A prior mean is held above a tenth of the noise: there nothing was measured, and a mean near 0 would be believed. The
constants are those of `python -m benchmarks sequences`.
"""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models import empirical_bayes

# Least prior mean, over the noise std.
_LEAST = 0.1


def totals(x_v: Floats, sd: float) -> Floats:
    """Positive numbers (V,) from noisy nonnegative ones of noise std sd."""
    share_v = empirical_bayes.background(x_v, sd)
    return np.asarray(share_v * max(float(x_v.sum()), sd * math.sqrt(len(x_v)), 1e-200))


def pairs(x_vv: Floats, sd: float) -> Floats:
    """Weights of pairs (V, V): each toward the total of its row times the share of its second symbol."""
    noise = sd * math.sqrt(len(x_vv))
    row_v, share_v = (totals(x_vv.sum(axis=axis), noise) for axis in (1, 0))
    return toward(np.outer(row_v, share_v / share_v.sum()), x_vv, sd)


def windows(x_vvv: Floats, sd: float) -> tuple[Floats, Floats]:
    """Weights of pairs, and of windows of three, (V, V, V), toward the chain of their own margins.

    The prior mean of (a, b, c) is P(a, b) P(b, c) / P(b). The margin of the pairs is the mean of that of the first two
    symbols and that of the last two; each is a sum, whose noise is √V times as large.
    """
    pairs_vv = pairs((x_vvv.sum(axis=2) + x_vvv.sum(axis=0)) / 2, sd * math.sqrt(len(x_vvv) / 2))
    share_vv = pairs_vv / np.maximum(pairs_vv.sum(axis=1, keepdims=True), 1e-200)
    return pairs_vv, toward(pairs_vv[:, :, None] * share_vv, x_vvv, sd)


def toward(mean: Floats, x: Floats, sd: float) -> Floats:
    """Posterior means of numbers with these prior means, rows alike; without noise the numbers themselves."""
    if sd <= 0.0:
        return np.maximum(x, 0.0)
    rows = x.reshape(-1, x.shape[-1])
    mean_vk = np.maximum(mean, _LEAST * sd).reshape(rows.shape)
    return empirical_bayes.around(rows, np.full(len(rows), sd), mean_vk, free=True).reshape(x.shape)
