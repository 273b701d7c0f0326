"""The base rate, where a regression starts: from noisy sums of responses and rows; it costs no privacy."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logit

from dpvb.models.regression import tuned


def log_odds(count: float, sd: float, number: float) -> tuple[float, float]:
    """Log odds of a noisy count (of noise std sd) among `number` trials, and the standard deviation of its noise."""
    trials = max(number, 0.0) + 2.0
    error = sd / trials
    low = min(max(tuned.BASE_RATE_STD * error, tuned.LEAST_BASE_RATE), 0.5)
    base = float(np.clip((count + 1.0) / trials, low, 1.0 - low))
    return float(logit(base)), error / (base * (1.0 - base))


def log_rate(count: float, sd: float, number: float) -> tuple[float, float]:
    """Log of a noisy count (of noise std sd) over the number of rows, and the standard deviation of its noise."""
    rows = max(number, 0.0) + 1.0
    error = sd / rows
    rate = max((count + 1.0) / rows, tuned.BASE_RATE_STD * error, tuned.LEAST_BASE_RATE)
    return math.log(rate), error / rate
