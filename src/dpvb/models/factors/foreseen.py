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
    of_moments = noise_of_moments(noise, of_lengths, n)
    if math.isinf(of_moments):
        return 1.0
    return min(math.hypot(reading.edge(of_moments, d), 2 * math.sqrt(d / n) / d), 1.0)


def noise_of_moments(noise: float, of_lengths: float, n: float) -> float:
    """Noise std of a second moment over the sum of all variances; infinite where the lengths of rows are not seen.

    Args:
        noise, of_lengths, n: as in `least_share`.
    """
    if noise == 0:
        return 0.0
    if _NEAR * n < tuned.CERTAIN * of_lengths * math.sqrt(tuned.TOGETHER):
        return math.inf
    return _RADIUS * noise / ((1 - tuned.GRAM_CONSTANT**2) * n)


def captured(d: int, k: int, of_moments: float) -> float:
    """What noise leaves of the variance that k directions capture, if these hold half of all variance in equal parts.

    A direction whose variance exceeds that of the others by θ is seen at θ + r²/4θ and turned by an angle of squared
    cosine 1 - r²/4θ², for eigenvalues of noise up to r (Benaych-Georges & Nadakuditi 2011).

    Args:
        d: number of columns, more than k.
        k: number of directions.
        of_moments: noise std of a second moment over the sum of all variances.
    """
    own, other = 0.5 / k, 0.5 / (d - k)
    above, radius = own - other, math.sqrt(2 * d) * of_moments
    if above <= radius / 2 or above + radius**2 / (4 * above) <= reading.edge(of_moments, d):
        return 0.0
    kept = 1 - (radius / (2 * above)) ** 2
    return kept + (1 - kept) * other / own
