"""The size of residuals, read from a noisy histogram of |r|: where to clip, and what clipping leaves out.

Residuals lie in bins whose ends grow by √2. Counts that noise could have made are set to 0: chance counts far out would
make the variance, and the place of the clip, too large. Everything here is post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative
from dpvb.models.regression import tuned

#: Upper ends of the bins; the last one holds all that is larger.
EDGES = 2.0 * 2.0 ** (-0.5 * np.arange(tuned.RESIDUAL_BINS - 1, -1, -1))
# Points of a bin that stand for it, evenly spread.
_POINTS = 8
_LOWER = np.append(0.0, EDGES[:-1])
_SIZE = (_LOWER[:, None] + (EDGES - _LOWER)[:, None] * (np.arange(_POINTS) + 0.5) / _POINTS).ravel()


def one_hot(residual_n: Floats) -> Floats:
    """The bin of each |r|, (n, bins); NaN throughout where r is NaN."""
    place_n = np.minimum(np.searchsorted(EDGES, np.abs(residual_n)), len(EDGES) - 1)
    bins_nk = np.zeros((len(residual_n), len(EDGES)))
    bins_nk[np.arange(len(residual_n)), place_n] = np.where(np.isnan(residual_n), np.nan, 1.0)
    return bins_nk


@dataclass(frozen=True)
class Residuals:
    """Histograms of |r| of all steps, averaged; public. Older ones count less: residuals shrink along the path.

    Attributes:
        total_k: the mean histogram, as it was released.
        noise: noise variance of each of its counts.
    """

    total_k: Floats
    noise: Nonnegative = UNSEEN

    @classmethod
    def start(cls) -> Residuals:
        """None yet."""
        return cls(np.zeros(len(EDGES)))

    def joined(self, total_k: Floats, noise: float) -> Residuals:
        """With one more histogram; one without noise replaces all others."""
        part = 1.0 if noise == 0 else 1.0 / (1.0 + noise / (tuned.FORGOTTEN * self.noise))
        return Residuals(self.total_k + part * (total_k - self.total_k), part**2 * noise + (1 - part) ** 2 * self.noise)

    def number(self) -> tuple[float, float]:
        """Number of rows, and its noise variance."""
        return float(self.total_k.sum()), self.noise * len(self.total_k)

    def read(self, number: float, far: float = tuned.FAR_BIN) -> Sizes | None:
        """What is known of |r|; None where noise hides most rows.

        Args:
            number: of rows.
            far: std of noise below which a bin beyond the first empty one counts as empty.
        """
        sd = math.sqrt(self.noise)
        kept_k = np.where(self.total_k >= tuned.SEEN_BIN * sd, self.total_k, 0.0)
        mode = int(np.argmax(kept_k))
        empty = np.flatnonzero(kept_k[mode:] == 0)
        if len(empty):
            beyond = slice(mode + int(empty[0]), None)
            kept_k[beyond] = np.where(kept_k[beyond] >= far * sd, kept_k[beyond], 0.0)
        if kept_k.sum() < tuned.LEAST_SEEN * number or kept_k.sum() <= 0:
            return None
        return Sizes(np.repeat(kept_k / kept_k.sum() / _POINTS, _POINTS))


@dataclass(frozen=True)
class Sizes:
    """A distribution of |r| on points of the bins; public.

    Attributes:
        share_i: probability of each point.
    """

    share_i: Floats

    def within(self, tau: float) -> float:
        """Share of |r| ≤ τ."""
        return float(self.share_i @ (tau >= _SIZE))

    def clipped(self, tau: float, power: int = 2) -> float:
        """E min(|r|, τ)^power."""
        return float(self.share_i @ np.minimum(_SIZE, tau) ** power)

    def typical(self) -> float:
        """The quantile that is one standard deviation of a normal r."""
        return float(np.interp(math.erf(math.sqrt(0.5)), np.cumsum(self.share_i), _SIZE))

    def largest(self) -> float:
        """The end of the last bin that holds any."""
        return float(EDGES[np.flatnonzero(self.share_i)[-1] // _POINTS])

    def best_clip(self, cost: float) -> float:
        """τ of least E(|r| - τ)₊² + τ²·cost: what clipping may bend against the noise that it saves."""
        taus = np.geomspace(min(tuned.LEAST_CLIP * self.typical(), 1.0), EDGES[-1], tuned.NUM_CLIPS)
        beyond = [float(self.share_i @ np.maximum(_SIZE - tau, 0.0) ** 2) + tau**2 * cost for tau in taus]
        return float(taus[int(np.argmin(beyond))])
