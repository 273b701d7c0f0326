"""The base rate, where a regression starts: from noisy sums of responses, of rows, and of what rows add to ψ.

What is made of these sums costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import logit

from dpvb.core.blocks import Block
from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.likelihood import Likelihood


def block(likelihood: Likelihood, width: int, phase: Literal["first", "third"], weight: float) -> Block:
    """The block of so many sums, and of one more where rows add something to ψ: both parts have norm max_y at most."""
    bound = likelihood.max_y * (math.sqrt(2) if likelihood.is_shifted else 1.0)
    return Block((width + likelihood.is_shifted,), bound, "nonnegative", phase, weight=weight)


def added(likelihood: Likelihood, columns_n: Sequence[Floats], b_n: Floats, offset_n: Floats | None) -> Floats:
    """What rows add to the block, (n, width): columns whose norm is at most max_y, and shares of the largest offset."""
    shares_n = [] if offset_n is None else [likelihood.most * b_n * likelihood.share(offset_n)]
    return np.stack([*columns_n, *shares_n], axis=1)


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


def shift(likelihood: Likelihood, total: float, sd: float, number: float) -> tuple[float, float]:
    """What an average row adds to ψ of its own, and the standard deviation of the noise of that.

    Args:
        likelihood: of the responses.
        total: noisy sum of shares, of noise std sd.
        sd: that std.
        number: number of rows.
    """
    error = sd / number
    share = min(max(total / number, tuned.BASE_RATE_STD * error), 1.0)
    if share == 0:
        return likelihood.shift(1.0), 0.0  # No row says anything.
    return likelihood.shift(share), error / share if likelihood.is_count else 2.0 * likelihood.reach * error
