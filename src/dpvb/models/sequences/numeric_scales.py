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
    def of(cls, gram: Floats, count: float, std: float, constant: float) -> Scales:
        """From noisy second moments of so many points with a constant behind them, within a ball of radius 1."""
        mean_d, std = gram[:-1, -1] / (constant * count), std / count
        mean_std_d = np.full(len(mean_d), std / (math.sqrt(2.0) * constant))
        variance_d = np.diagonal(gram)[:-1] / count - mean_d**2
        return cls(mean_d, variance_d, mean_std_d, np.hypot(std, 2 * np.abs(mean_d) * mean_std_d))

    def over(self, unit: float) -> Scales:
        """The same in units that are so many times as large."""
        return Scales(
            self.mean_d / unit, self.variance_d / unit**2, self.mean_std_d / unit, self.variance_std_d / unit**2
        )

    @classmethod
    def of_cells(cls, counts_dc: Floats, std: float) -> Scales:
        """The scales of columns in units of half the range.

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
        return cls(*np.array(found).T)

    def beside(self, other: Scales) -> tuple[Floats, Floats]:
        """Means and deviations from two readings, of which this one is taken where it has no noise."""

        def share(one_std_d: Floats, other_std_d: Floats) -> Floats:
            return np.asarray(one_std_d**2 / np.maximum(one_std_d**2 + other_std_d**2, 1e-300))

        of_mean_d = share(self.mean_std_d, other.mean_std_d)
        of_variance_d = share(self.variance_std_d, other.variance_std_d)
        mean_d = self.mean_d + of_mean_d * (other.mean_d - self.mean_d)
        variance_d = self.variance_d + of_variance_d * (other.variance_d - self.variance_d)
        # Noise may bring a variance below zero: half of what the other reading has a part in is left.
        variance_d = np.maximum(variance_d, of_variance_d * other.variance_d / 2)
        return mean_d / max(1.0, float(np.linalg.norm(mean_d))), np.clip(np.sqrt(variance_d), 1e-12, 1.0)


def codes(x_td: Floats) -> Ints:
    """Cells of all numbers of points, one column's behind another's, (points · D,); -1 for a missing number."""
    cell_td = np.clip(np.floor((np.nan_to_num(x_td) + 1.0) * (CELLS / 2)), 0, CELLS - 1).astype(np.int32)
    cell_td += np.arange(x_td.shape[1], dtype=np.int32) * CELLS
    return np.where(np.isnan(x_td), np.int32(-1), cell_td).ravel()
