"""Second moments, denoised: which directions rise above the noise, and what variance is left to each column.

Post-processing of S = Σ + noise, whose entries have std sd on the diagonal and sd/√2 off it. The spectrum of such noise
ends at √(2d)·sd. A direction of Σ with eigenvalue θ beyond that is seen at e = θ + d·sd²/(2θ), and √(e² - 2d·sd²) is
the eigenvalue with the least error along the direction in which it is seen (spiked Wigner matrices).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.factors import tuned

# Atoms of the prior of the variances of columns, as multiples of their mean.
_ATOMS = np.geomspace(1e-4, 50.0, 60)
# Relative width of an atom.
_WIDTH = 0.1


class Split(NamedTuple):
    """Σ as common and unique variance: `common_dd` has the rank `rank`, `unique_d` is the diagonal rest."""

    common_dd: Floats
    unique_d: Floats
    rank: int

    @property
    def second_dd(self) -> Floats:
        """Σ."""
        return self.common_dd + np.diag(self.unique_d)


def variances(found_d: Floats, sd: float) -> Floats:
    """Positive posterior means of variances (d,) from noisy ones of std sd, under a prior that is estimated by EM."""
    mean = max(float(found_d.mean()), tuned.LEAST_MEAN * sd, 1e-12)
    if sd == 0.0:
        return np.asarray(np.maximum(found_d, _ATOMS[0] * mean))
    atom_a = _ATOMS * mean
    spread_a = np.hypot(sd, _WIDTH * atom_a)
    log_da = -0.5 * ((found_d[:, None] - atom_a) / spread_a) ** 2 - np.log(spread_a)
    likelihood_da = np.exp(log_da - log_da.max(axis=1, keepdims=True))
    weight_a = np.full(len(atom_a), 1.0 / len(atom_a))
    for _ in range(tuned.EM_ROUNDS):
        part_da = likelihood_da * weight_a
        part_da /= part_da.sum(axis=1, keepdims=True)
        weight_a = part_da.mean(axis=0)
    return np.asarray(part_da @ atom_a)


def with_prior(found_d: Floats, variance_d: Floats, prior_d: Floats) -> Floats:
    """Found variances, of given sampling and noise variances, under a prior as wide as its mean; never below a floor.

    Where nothing was measured the prior's mean is what is left.
    """
    weight_d = prior_d**2 / (prior_d**2 + variance_d)
    return np.asarray(np.maximum(weight_d * found_d + (1.0 - weight_d) * prior_d, tuned.LEAST * prior_d))


def split(second_dd: Floats, sd: float, count: float, prior_d: Floats) -> Split:
    """Common and unique variance by turns: shrunk eigenpairs of S - Ψ, and what they leave of the diagonal.

    Args:
        second_dd: S, about the mean, symmetric.
        sd: noise std of its diagonal.
        count: number of rows.
        prior_d: prior means of unique variances.
    """
    diagonal_d = np.diagonal(second_dd)
    if sd == 0.0:  # S itself is known: nothing is left to be told apart.
        return Split(second_dd, np.zeros(len(diagonal_d)), len(diagonal_d))
    unique_d = 0.5 * variances(diagonal_d, sd)
    for _ in range(tuned.ROUNDS):
        eigenvalue_e, vector_de = np.linalg.eigh(second_dd - np.diag(unique_d))
        seen = eigenvalue_e > noise_edge(sd, len(diagonal_d))
        root_de = vector_de[:, seen] * shrunk(eigenvalue_e[seen], sd, len(diagonal_d)) ** 0.5
        before_d, left_d = unique_d, diagonal_d - np.square(root_de).sum(axis=1)
        unique_d = variances(left_d, tuned.DOUBT * sd)
        unique_d = with_prior(unique_d, sd**2 + 2 * unique_d**2 / count, prior_d)
        if np.abs(unique_d - before_d).max() <= 1e-6 * unique_d.max():
            break
    return Split(root_de @ root_de.T, unique_d, int(seen.sum()))


def noise_edge(sd: float, d: int) -> float:
    """The eigenvalue that a matrix of only noise exceeds once in a thousand (Tracy & Widom 1996)."""
    return float(math.sqrt(2 * d) * sd * (1.0 + tuned.BEYOND * d ** (-2 / 3)))


def shrunk(eigenvalue_e: Floats, sd: float, d: int) -> Floats:
    """√(e² - 2d·sd²) of eigenvalues, 0 within the noise."""
    return np.sqrt(np.maximum(eigenvalue_e**2 - 2 * d * sd**2, 0.0)) * (eigenvalue_e > 0)


def unbiased(eigenvalue_e: Floats, sd: float, d: int) -> Floats:
    """θ, the eigenvalue of Σ that is seen at e, 0 within the noise."""
    inside = shrunk(eigenvalue_e, sd, d)
    return np.where(eigenvalue_e > noise_edge(sd, d), 0.5 * (eigenvalue_e + inside), 0.0)


# Which directions a factor model will see, from only public numbers; unit: a row.


# Square of the radius over the mean squared length of rows about their mean; benchmark `forecasts` shows what it does.
_RADIUS = 1.3
# Share of rows in neighbouring bins of lengths; benchmark `forecasts` shows what it does.
_NEAR = 0.9


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
    return min(math.hypot(noise_edge(of_moments, d), 2 * math.sqrt(d / n) / d), 1.0)


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
    """Return the share of variance that k directions capture despite noise, if they hold half of it in equal parts.

    A direction whose variance exceeds that of the others by θ is seen at θ + r²/4θ and turned by an angle of squared
    cosine 1 - r²/4θ², for eigenvalues of noise up to r (Benaych-Georges & Nadakuditi 2011).

    Args:
        d: number of columns, more than k.
        k: number of directions.
        of_moments: noise std of a second moment over the sum of all variances.
    """
    share, other = 0.5 / k, 0.5 / (d - k)
    above, radius = share - other, math.sqrt(2 * d) * of_moments
    if above <= radius / 2 or above + radius**2 / (4 * above) <= noise_edge(of_moments, d):
        return 0.0
    cosine2 = 1 - (radius / (2 * above)) ** 2
    return cosine2 + (1 - cosine2) * other / share
