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
from dpvb.models.regression.batch import Responses
from dpvb.models.regression.likelihood import Likelihood


def is_shifted(likelihood: Likelihood) -> bool:
    """Whether rows add something of their own to ψ."""
    return likelihood.max_exposure is not None or likelihood.max_offset is not None


def block(likelihood: Likelihood, width: int, phase: Literal["first", "third"], weight: float) -> Block:
    """The block of `added`: sums of responses, (1,), and of what is no response, (2,), and one of shares."""
    shifted = is_shifted(likelihood)
    bound = likelihood.max_y * (math.sqrt(2) if shifted else 1.0)
    return Block((width + shifted,), bound, "nonnegative", phase, weight=weight)


def added(likelihood: Likelihood, batch: Responses, width: int) -> Floats:
    """What rows add to the block: y, or y and what is left to the most, and where they have one their share of this.

    Both parts have norm max_y at most.
    """
    most_n = likelihood.most * likelihood.size(batch.y_n, batch.trials_n)
    shares_n = [] if batch.offset_n is None else [most_n * _share(likelihood, batch.offset_n)]
    return np.stack([*[batch.y_n, most_n - batch.y_n][:width], *shares_n], axis=1)


def _reach(likelihood: Likelihood) -> float:
    """The most that a row adds to ψ."""
    return (likelihood.max_offset or 0.0) + math.log(likelihood.max_exposure or 1.0)


def _share(likelihood: Likelihood, offset_n: Floats) -> Floats:
    """What rows add to ψ as a part of the most, in [0, 1]: of counts the factor of the mean."""
    if likelihood.is_count:
        return np.asarray(np.exp(np.minimum(offset_n - _reach(likelihood), 0.0)))
    return np.clip(0.5 + 0.5 * offset_n / _reach(likelihood), 0.0, 1.0)


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


def shift(likelihood: Likelihood, total_c: Sequence[float], sd: float, number: float) -> tuple[float, float]:
    """What an average row adds to ψ of its own, and the standard deviation of the noise of that.

    Args:
        likelihood: of the responses.
        total_c: noisy sum of what rows add for their shares, of noise std sd; empty where they have none.
        sd: that std.
        number: number of rows.
    """
    if not len(total_c):
        return 0.0, 0.0
    error = sd / likelihood.most / number
    share = min(max(float(total_c[0]) / likelihood.most / number, tuned.BASE_RATE_STD * error), 1.0)
    if share == 0:
        share = 1.0  # No row says anything.
    reach = _reach(likelihood)
    if likelihood.is_count:
        return reach + math.log(share), error / share
    return reach * (2.0 * share - 1.0), 2.0 * reach * error
