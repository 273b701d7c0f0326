"""What a linear step overlooks: log odds that spread out saturate, which moves the mean probability towards one half.

Over rows, the log odds xᵀm at weights m have a mean μ and a variance v, both read from the second moments. Were they
normal, the mean probability would be σ(κμ) with κ = (1 + πv/8)^-½ (MacKay 1992). A Newton step from weights with little
spread to weights with much keeps μ, although κ falls: where most responses are zeros, too many are then predicted.
Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit

from dpvb.arrays import Floats
from dpvb.models.regression.curvature import Moments


def shift(moments: Moments, before_e: Floats, after_e: Floats, expected: float) -> float:
    """Return what a step's mean log odds must be moved by, so that spread alone does not move the mean probability.

    It goes no further than the linear model's own expectation asks: one that has seen the saturation needs no help.

    Args:
        moments: of the rows.
        before_e, after_e: weights before and after the step, in the eigenbasis.
        expected: change of the mean probability by the step in the linear model.
    """
    (mean, variance), (mean_after, variance_after) = _log_odds(moments, before_e), _log_odds(moments, after_e)
    flatter = _slope(variance_after) / _slope(min(variance, variance_after))
    by_spread = mean_after / flatter - mean_after
    target = float(np.clip(expit(_slope(variance) * mean) + expected, 1e-9, 1.0 - 1e-9))
    by_expectation = float(logit(target)) / _slope(variance_after) - mean_after
    if by_spread * by_expectation <= 0.0:
        return 0.0
    return math.copysign(min(abs(by_spread), abs(by_expectation)), by_spread)


def _log_odds(moments: Moments, weights_e: Floats) -> tuple[float, float]:
    """Mean and variance of the log odds over rows."""
    mean = float((moments.second_e * moments.constant_e) @ weights_e) / moments.number
    return mean, max(float(moments.second_e @ weights_e**2) / moments.number - mean**2, 0.0)


def _slope(variance: float) -> float:
    return 1.0 / math.sqrt(1.0 + math.pi / 8.0 * variance)
