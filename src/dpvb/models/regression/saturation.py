"""Saturation of log odds, which a linear step overlooks: the wider they spread, the nearer to ½ is their probability.

Over rows, the log odds xᵀm at weights m have a mean μ and a variance v, both read from the second moments. If they are
normal, the mean probability is σ(κμ) with κ = (1 + πv/8)^-½ (MacKay 1992). A Newton step from a small v to a large v
keeps μ, although κ falls: if most responses are zeros, it predicts too many ones. Everything here is post-processing
of released numbers and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from dpvb.guards.arrays import Floats
from dpvb.models.regression.curvature import RowMoments


def shift(moments: RowMoments, before_e: Floats, after_e: Floats, expected: float, offset: float = 0.0) -> float:
    """Shift of the mean log odds after a step that keeps their spread alone from moving the mean probability.

    The shift is capped by the change that the linear model itself predicted: if the model already accounts for
    saturation, the shift is zero.

    Args:
        moments: moments of the rows.
        before_e, after_e: weights before and after the step, in the eigenbasis.
        expected: change of the mean probability by the step in the linear model.
        offset: what rows add to their log odds, on average.
    """
    (mean, variance), (mean_after, variance_after) = moments.log_odds(before_e), moments.log_odds(after_e)
    flatter = _slope(variance_after) / _slope(min(variance, variance_after))
    mean, mean_after = mean + offset, mean_after + offset
    by_spread = mean_after / flatter - mean_after
    target = float(np.clip(expit(_slope(variance) * mean) + expected, 1e-9, 1.0 - 1e-9))
    by_expectation = float(logit(target)) / _slope(variance_after) - mean_after
    if by_spread * by_expectation <= 0.0:
        return 0.0
    return math.copysign(min(abs(by_spread), abs(by_expectation)), by_spread)


def _slope(variance: float) -> float:
    """κ."""
    return 1.0 / math.sqrt(1.0 + math.pi / 8.0 * variance)
