"""Mean and deviation of each column, read from noisy moments and from noisy counts of cells.

Moments are exact where noise is small. Where a public range is much too wide they drown: noise is that of the range.
Counts of cells of the range do not, as a person adds one to the cell where the points are, wherever that is. A normal
law is laid over the counts h of a column:

    log p(h | m, s) = -|h - n φ(m, s)|² / 2σ² + const,   log s ~ N(log s_0, τ²),   m even over the range

with φ the shares of the cells. Both readings are brought together by their variances.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtr

from dpvb.guards.arrays import Floats, Ints

#: Cells of a column, of one width, from -1 to 1.
CELLS: Final = 128
# Deviations that are tried, in units of half the range, and the law of their logarithm.
_TRIED = np.geomspace(1 / 400, 1.0, 40)
_USUAL, _WIDE = 0.2, 1.0
# What no column follows a normal law better than, as a part of its deviation.
_SHAPE = 0.25


class Scales(NamedTuple):
    """Means and variances of the columns, and the noise std of both, each (D,)."""

    mean_d: Floats
    variance_d: Floats
    mean_std_d: Floats
    variance_std_d: Floats

    @classmethod
    def of(cls, mean_d: Floats, square_d: Floats, std: float, constant: float) -> Scales:
        """From mean numbers and mean squares, whose sums have noise, the numbers' over a constant."""
        one_d, mean_std = np.ones(len(mean_d)), std / (math.sqrt(2.0) * constant)
        variance_std_d = np.hypot(std, 2 * np.abs(mean_d) * mean_std)
        return cls(mean_d, square_d - mean_d**2, mean_std * one_d, variance_std_d)

    def over(self, unit: float) -> Scales:
        """The same in units that are so many times as large."""
        return Scales(
            self.mean_d / unit, self.variance_d / unit**2, self.mean_std_d / unit, self.variance_std_d / unit**2
        )


def codes(x_td: Floats) -> Ints:
    """Cells of all numbers of points, one column's behind another's, (points · D,); -1 for a missing number."""
    cell_td = np.clip(np.floor((np.nan_to_num(x_td) + 1.0) * (CELLS / 2)), 0, CELLS - 1).astype(np.int32)
    cell_td += np.arange(x_td.shape[1], dtype=np.int32) * CELLS
    return np.where(np.isnan(x_td), np.int32(-1), cell_td).ravel()


def from_cells(counts_dc: Floats, std: float) -> Scales:
    """The scales of the columns in units of half the range.

    Args:
        counts_dc: people in each cell, (D, cells), with noise.
        std: of the noise.
    """
    ends_c = np.linspace(-1.0, 1.0, CELLS + 1)
    mean_m, log_s = np.linspace(-1.0, 1.0, 2 * CELLS + 1), np.log(_TRIED)
    upto_smc = ndtr((ends_c - mean_m[:, None]) / _TRIED[:, None, None])
    upto_smc[..., 0], upto_smc[..., -1] = 0.0, 1.0  # what is beyond the range counts in its end cells
    share_smc = np.diff(upto_smc, axis=2)
    square_sm = np.sum(share_smc**2, axis=2)
    found = []
    for counts_c in counts_dc:
        number = max(float(counts_c.sum()), math.sqrt(CELLS) * std, 1e-9)
        log_sm = (number * (share_smc @ counts_c) - 0.5 * number**2 * square_sm) / max(std, 1e-3 * number) ** 2
        log_sm -= 0.5 * (np.log(_TRIED / _USUAL) / _WIDE)[:, None] ** 2
        share_sm = np.exp(log_sm - log_sm.max())
        share_sm /= share_sm.sum()
        share_s, share_m = share_sm.sum(axis=1), share_sm.sum(axis=0)
        mean, level = float(share_m @ mean_m), float(share_s @ log_s)
        spread = math.sqrt(float(share_s @ (log_s - level) ** 2))
        s = math.exp(level)
        mean_std = math.hypot(math.sqrt(float(share_m @ (mean_m - mean) ** 2)), _SHAPE * s)
        found.append((mean, s * s, mean_std, 2 * s * s * math.hypot(spread, _SHAPE)))
    return Scales(*np.array(found).T)


def together(first: Scales, second: Scales) -> tuple[Floats, Floats]:
    """Means and variances from two readings, the first of which is taken where it has no noise."""

    def share(one_std_d: Floats, other_std_d: Floats) -> Floats:
        return np.asarray(one_std_d**2 / np.maximum(one_std_d**2 + other_std_d**2, 1e-300))

    of_mean_d = share(first.mean_std_d, second.mean_std_d)
    of_variance_d = share(first.variance_std_d, second.variance_std_d)
    mean_d = first.mean_d + of_mean_d * (second.mean_d - first.mean_d)
    variance_d = first.variance_d + of_variance_d * (second.variance_d - first.variance_d)
    # Noise may bring a variance below zero: half of what the second reading has a part in is left.
    return mean_d, np.maximum(variance_d, of_variance_d * second.variance_d / 2)
