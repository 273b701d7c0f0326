"""Which directions a factor model will see, from public numbers alone; unit: a row."""

from __future__ import annotations

import math

from dpvb.models.factors import reading, tuned

# The radius squared over the mean squared length of rows about their mean, and the share of rows in neighbouring bins:
# benchmark `forecasts` shows what they do.
_RADIUS, _NEAR = 1.3, 0.9


def least_share(d: int, noise: float, of_lengths: float, n: float) -> float:
    """The share of the variance of all columns that a direction needs to be seen above noise and sampling.

    The radius follows the lengths of rows, so that their unit does not matter.

    Args:
        d: number of columns.
        noise: noise std of the second moments as they are released, on the diagonal.
        of_lengths: noise std of a bin of lengths; where rows are lost in it, the radius is the largest possible.
        n: number of rows.
    """
    if noise == 0:
        return 2 * math.sqrt(d / n) / d
    if _NEAR * n < tuned.CERTAIN * of_lengths * math.sqrt(tuned.TOGETHER):
        return 1.0
    of_moments = _RADIUS * noise / ((1 - tuned.GRAM_CONSTANT**2) * n)
    return min(math.hypot(reading.edge(of_moments, d), 2 * math.sqrt(d / n) / d), 1.0)
