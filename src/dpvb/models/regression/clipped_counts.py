"""Scores of counts that are clipped at a released point, and corrected by what the model expects of clipped counts.

    y ~ Poisson or NB of mean μ = e^ψ and variance μ + μ²/r,   z = min(y, K),   μ_K = E z

    residual = φ (z - μ_K)/(1 + μ_K/r),   φ = min(1, κ/κ(ψ)),   κ(ψ) = max(μ_K, K - μ_K)/(1 + μ_K/r)

M = max_count is a public guess, often many times the counts that occur, and the noise of a score is proportional to the
largest residual. So counts are clipped at K, chosen by a noisy histogram. In the model the residual has expectation 0
at the true ψ for every K, as μ_K is the expectation of the clipped count (robust quasi-likelihood: Cantoni & Ronchetti
2001). |z - μ_K| ≤ max(μ_K, K - μ_K) for every y, which x and public numbers determine, so that the weight φ bounds a
residual by κ and leaves its expectation 0. κ is κ(ψ) at the base rate. With K = κ = M, and counts far below M, nothing
is clipped.

With F_s(k) = P(Y ≤ k) of a negative binomial of dispersion s and mean μ s/r, the size-biased distributions of Y,

    μ_K = μ F_{r+1}(K-2) + K (1 - F_r(K-1)),   dμ_K/dψ = μ F_{r+1}(K-1),
    E z² = μ² (1 + 1/r) F_{r+2}(K-3) + μ F_{r+1}(K-2) + K² (1 - F_r(K-1)).

These are the letters of docs/theory/regressions.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, pdtr

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive
from dpvb.models.regression import tuned

# convention: relative error of the largest curvature on a grid of means, generously.
_GRID_ERROR = 1e-2
# convention: means over K, the grid.
_GRID = np.geomspace(1e-3, 8.0, 300)
# convention: log mean beyond which no clipped count has information.
_FAR = 40.0
# convention: least expected curvature, where the nodes have none.
_LEAST = 1e-9


def _below(k: Floats | float, mean_n: Floats, r: Floats | float, shift: int) -> Floats:
    """F of dispersion r + shift at k: P(Y ≤ k) of the distribution that is size-biased so many times."""
    place, poisson = np.maximum(k, 0.0), bool(np.all(np.isinf(r)))
    with np.errstate(under="ignore"):
        below_n = pdtr(place, mean_n) if poisson else betainc(r + shift, place + 1.0, r / (r + mean_n))
    return np.where(k < 0, 0.0, below_n)


def clipped(mean_n: Floats, r: Floats | float, clip: Floats | float) -> tuple[Floats, Floats]:
    """Means μ_K of min(y, clip) for counts y of means μ, and dμ_K/dψ, (n,) each."""
    beyond_n = 1.0 - _below(clip - 1.0, mean_n, r, 0)
    expected_n = mean_n * _below(clip - 2.0, mean_n, r, 1) + clip * beyond_n
    return expected_n, mean_n * _below(clip - 1.0, mean_n, r, 1)


def clipped_variance(mean_n: Floats, r: Floats | float, clip: Floats | float) -> Floats:
    """Variances of min(y, clip) for counts y of means μ, (n,)."""
    beyond_n = 1.0 - _below(clip - 1.0, mean_n, r, 0)
    once_n = mean_n * _below(clip - 2.0, mean_n, r, 1)
    twice_n = mean_n**2 * (1.0 + 1.0 / r) * _below(clip - 3.0, mean_n, r, 2)
    return np.maximum(twice_n + once_n + clip**2 * beyond_n - (once_n + clip * beyond_n) ** 2, 0.0)


@dataclass(frozen=True)
class ClippedCounts:
    """The score of counts of a dispersion; every field is public.

    Attributes:
        r: the dispersion; infinite: Poisson.
        clip: K.
        typical: the mean at which κ is κ(ψ); 0: κ is K, and no residual has less weight.
    """

    r: float
    clip: Positive
    typical: Nonnegative = 0.0

    @cached_property
    def unit(self) -> float:
        """The largest residual, κ."""
        expected, _ = clipped(np.array([self.typical]), self.r, self.clip)
        return float((np.maximum(expected, self.clip - expected) / (1.0 + expected / self.r))[0])

    @cached_property
    def steepest(self) -> float:
        """The largest curvature of a row."""
        return float(self._curvature(_GRID * self.clip).max()) * (1.0 + _GRID_ERROR)

    def usual(self, psi: float) -> float:
        """Curvature at a log mean."""
        return float(self._curvature(np.array([math.exp(psi)]))[0])

    def rows(self, psi_n: Floats, y_n: Floats) -> tuple[Floats, Floats]:
        """Return minus the expected derivative of residuals over its largest, and residuals over κ, (n,) each."""
        expected_n, slope_n = clipped(np.exp(np.minimum(psi_n, _FAR)), self.r, self.clip)
        weight_n = self._weight(expected_n)
        share_n = np.minimum(weight_n * slope_n / self.steepest, 1.0)
        return share_n, weight_n * (np.minimum(y_n, self.clip) - expected_n) / self.unit

    def spread(self, psi_k: Floats, share_k: Floats) -> float:
        """Variance of residuals in the model over their curvature, for rows with so many shares of log means."""
        mean_k = np.exp(np.minimum(psi_k, _FAR))
        expected_k, slope_k = clipped(mean_k, self.r, self.clip)
        weight_k = self._weight(expected_k)
        variance = float(share_k @ (weight_k**2 * clipped_variance(mean_k, self.r, self.clip)))
        return variance / max(float(share_k @ (weight_k * slope_k)), _LEAST)

    def _curvature(self, mean_n: Floats) -> Floats:
        expected_n, slope_n = clipped(mean_n, self.r, self.clip)
        return np.asarray(self._weight(expected_n) * slope_n)

    def _weight(self, expected_n: Floats) -> Floats:
        """Weights φ/(1 + μ_K/r) of rows with these expectations of clipped counts."""
        gain_n = 1.0 / (1.0 + expected_n / self.r)
        return np.minimum(gain_n, self.unit / np.maximum(expected_n, self.clip - expected_n))


def lower_ends(max_count: float) -> Floats:
    """The least count of each bin: 0, 1, 2, ..., and from then on each √2 times as large, up to max_count, (k,)."""
    ends = [0.0]
    while (next_one := max(ends[-1] + 1.0, math.floor(math.sqrt(2) * ends[-1]))) <= max_count:
        ends.append(next_one)
    return np.array(ends)


def one_hot(y_n: Floats, lower_k: Floats) -> Floats:
    """Return 1 in the bin of each count, (n, k), and NaN for a count that is NaN."""
    place_n = np.clip(np.searchsorted(lower_k, y_n, side="right") - 1, 0, len(lower_k) - 1)
    bins_nk = np.zeros((len(y_n), len(lower_k)))
    bins_nk[np.arange(len(y_n)), place_n] = np.where(np.isnan(y_n), np.nan, 1.0)
    return bins_nk


# convention: grid of the marginal distribution: log dispersions, and the number of log means.
_LOG_R = np.linspace(-3.0, 6.0, 19)
_NUM_MEANS = 120  # convention: an eighth of a log mean apart for bounds up to 10,000


@dataclass(frozen=True)
class CountHistogram:
    """The distribution of counts over all rows, as a negative binomial: its posterior on a grid; public.

    Attributes:
        mean_g, r_g: the grid.
        share_g: probability of each point.
        number: number of rows, as the histogram counts them: each person once.
        seen_k: counts that stand out of the noise, over the number of rows.
        lower_k: the bins.
    """

    mean_g: Floats
    r_g: Floats
    share_g: Floats
    number: float
    seen_k: Floats
    lower_k: Floats

    @classmethod
    def read(cls, total_k: Floats, sd: float, number: float, lower_k: Floats, least: float) -> CountHistogram:
        """From a noisy histogram, of noise std sd, of so many rows.

        Args:
            total_k, sd, number, lower_k: the histogram.
            least: least mean.
        """
        log_mean = np.linspace(math.log(least), math.log(max(lower_k[-1], 1.0)), _NUM_MEANS)
        mean_g, r_g = (g.ravel() for g in np.meshgrid(np.exp(log_mean), np.exp(_LOG_R)))
        below_gk = _below(lower_k[1:] - 1.0, mean_g[:, None], r_g[:, None], 0)
        share_gk = np.diff(below_gk, axis=1, prepend=0.0, append=1.0)
        variance_gk = sd**2 + number * share_gk + 1.0
        # The number that fits each distribution best: the histogram has each person once, `number` may be of rows.
        number_g = np.sum(total_k * share_gk / variance_gk, axis=1) / np.sum(share_gk**2 / variance_gk, axis=1)
        number_g = np.clip(number_g, 1.0, number + sd)
        away_gk = total_k - number_g[:, None] * share_gk
        log_fit_g = -0.5 * np.sum(away_gk**2 / variance_gk + np.log(variance_gk), axis=1)
        log_fit_g -= 0.5 * (np.log(r_g) / tuned.DISPERSION_STD) ** 2
        share_g = np.exp(log_fit_g - log_fit_g.max())
        share_g /= share_g.sum()
        counted = float(share_g @ number_g)
        seen_k = np.where(total_k > tuned.SEEN_STD * sd, total_k, 0.0) / counted
        return cls(mean_g, r_g, share_g, counted, seen_k, lower_k)

    def log_mean(self) -> tuple[float, float]:
        """Posterior mean and standard deviation of the log mean."""
        return self._moments(np.log(self.mean_g))

    def log_r(self) -> float:
        """Posterior mean of the log dispersion."""
        return self._moments(np.log(self.r_g))[0]

    def excess(self, clip: float) -> float:
        """E(y - K)₊, or what is seen of it if that is more."""
        used = self.share_g > 1e-6
        expected = self.mean_g[used] - clipped(self.mean_g[used], self.r_g[used], clip)[0]
        return max(float(self.share_g[used] @ expected), float(self.seen_k @ np.maximum(self.lower_k - clip, 0.0)))

    def best_clip(self, max_count: float, bias: float, unit: Callable[[float], float]) -> float:
        """K of least (bias E(y - K)₊)² + κ², bias against noise.

        Args:
            max_count: the largest.
            bias: rows over the noise std of an averaged score.
            unit: κ for K.
        """
        clips = np.append(self.lower_k[1:], max_count)
        losses = [(bias * self.excess(clip)) ** 2 + unit(clip) ** 2 for clip in clips]
        return float(clips[int(np.argmin(losses))])

    def _moments(self, value_g: Floats) -> tuple[float, float]:
        mean = float(self.share_g @ value_g)
        return mean, math.sqrt(max(float(self.share_g @ value_g**2) - mean**2, 0.0))
