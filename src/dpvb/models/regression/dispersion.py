"""The dispersion r of negative binomial counts, learned beside their weights as one more coordinate; unit: a row.

    y ~ NB(mean μ, variance μ + μ²/r),   a = log r ~ N(0, s²)

Score and information of a are those of the distribution. In expectation neither depends on the weights' errors to first
order (Lawless 1987), so a has a posterior of its own:

    U_n(a) = r (digamma(y + r) - digamma(r) - log(1 + μ/r)) + r (μ - y)/(r + μ),      I(a, μ) = E U_n²

A row's U is clipped to ±SCORE_BOUND, which ordinary rows stay within: it is below 1 near y = μ, and far from there
about -½z², z the distance in standard deviations.
Each step releases Σ U beside the score of the weights, and the last release once more at the mean of the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import digamma

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.descent import Average

# log r beyond these is one of these: a likelihood takes no other.
_LEAST, _MOST = math.log(1e-4), math.log(1e6)
# Nodes over rows, and of the law of y for each.
_NODE_K, _WEIGHT_K = np.polynomial.hermite_e.hermegauss(7)
_SHARE_Y = (np.arange(200) + 0.5) / 200


def score(y_n: Floats, mean_n: Floats, r: float) -> Floats:
    """U of every row, clipped to ±SCORE_BOUND."""
    gain_n = digamma(y_n + r) - digamma(r) - np.log1p(mean_n / r) + (mean_n - y_n) / (r + mean_n)
    return np.clip(r * gain_n, -tuned.SCORE_BOUND, tuned.SCORE_BOUND)


def information(r: float, log_mean: float, variance: float) -> float:
    """Mean of I over rows whose ψ is normal, by quantiles of the distribution; public."""
    mean_k = np.exp(np.clip(log_mean + math.sqrt(variance) * _NODE_K, -20.0, 20.0))
    from scipy.stats import nbinom  # Here, as it takes long to import.

    y_ky = np.asarray(nbinom.ppf(_SHARE_Y, r, (r / (r + mean_k))[:, None]))
    square_k = (score(y_ky, mean_k[:, None], r) ** 2).mean(axis=1)
    return float(_WEIGHT_K @ square_k / _WEIGHT_K.sum())


def _one() -> Average:
    return Average(np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class Dispersion:
    """The posterior of a = log r, and what it is made of; public.

    Attributes:
        log_r, variance: mean and variance of a.
        seen: averages of the points a and of the scores Σ U at them.
    """

    log_r: float = 0.0
    variance: Positive = tuned.DISPERSION_STD**2
    seen: Average = field(default_factory=_one)

    @property
    def r(self) -> float:
        """R at the posterior mean of its logarithm."""
        return math.exp(min(max(self.log_r, _LEAST), _MOST))

    def without(self, added: float, error: float) -> Dispersion:
        """The posterior without what errors of ψ added to 1/r: about their mean square, as they spread the means so.

        Args:
            added: posterior mean of the mean square over rows.
            error: its posterior variance.
        """
        seen = math.exp(-self.log_r)
        inverse = max(seen - added, tuned.LEAST_PART * seen)
        variance, prior = self.variance * (seen / inverse) ** 2 + error / inverse**2, tuned.DISPERSION_STD**2
        share = prior / (prior + variance)
        return Dispersion(-share * math.log(inverse), share * variance, self.seen)

    def after(
        self, total: float, noise: Nonnegative, number: float, psi: tuple[float, float], *, fresh: bool
    ) -> Dispersion:
        """The posterior after one more Σ U.

        Args:
            total: noisy Σ U at this a.
            noise: variance of its noise.
            number: number of rows.
            psi: mean and variance of ψ over rows.
            fresh: whether earlier scores count no more.
        """
        point, new = np.array([math.log(self.r)]), np.array([total])
        seen = (_one() if fresh else self.seen).joined(point, new, noise)
        expected = np.array([[max(number * information(self.r, *psi), 1e-9)]])
        prior = ridge.WeightPrior(np.zeros((1, 1)), np.array([[tuned.DISPERSION_STD**2]]), (1.0,))
        mean, variance = ridge.posterior(
            ridge.NoisyScore(seen.score_d, seen.point_d, expected, np.ones(1), seen.noise), prior
        )
        # Far from the mode a line is a poor guide.
        way = min(max(float(mean[0]) - math.log(self.r), -tuned.DISPERSION_STEP), tuned.DISPERSION_STEP)
        return Dispersion(math.log(self.r) + way, float(variance[0, 0]), seen)
