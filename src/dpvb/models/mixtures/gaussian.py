"""Gaussian columns of a mixture, full or diagonal: density, scores in each component's own coordinates, updates.

    z_k = L_k⁻¹(x - m_k), L_k L_kᵀ = V_k;   h_k = ((z_i² - 1)/√2, z_i z_j for pairs i < j)

z and h are orthonormal under N(0, I). Their noisy sums move m_k and V_k; without noise and clipping a
step is one of EM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import tuned

Places = NDArray[np.intp]


@dataclass(frozen=True)
class GaussianShape:
    """Which numbers go together; public.

    Attributes:
        width: d, how many numbers there are.
        full: whether components have covariances.
        gaps: places of the numbers that may be missing, which have only variances.
    """

    width: int
    full: bool
    gaps: tuple[int, ...] = ()

    @cached_property
    def pairs(self) -> tuple[Places, Places]:
        """Places of the entries of h: the diagonal first, then the pairs above it that have a covariance."""
        row, column = np.triu_indices(self.width, 1)
        together = self.full & ~(np.isin(row, self.gaps) | np.isin(column, self.gaps))
        diagonal = np.arange(self.width)
        return np.append(diagonal, row[together]), np.append(diagonal, column[together])

    @property
    def together(self) -> Floats:
        """1 where two numbers have a covariance, (d, d)."""
        together_dd, (row, column) = np.zeros((self.width, self.width)), self.pairs
        together_dd[row, column] = together_dd[column, row] = 1.0
        return together_dd

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Whether each number has only a variance, (d,)."""
        return np.isin(np.arange(self.width), self.gaps) | (not self.full)

    @property
    def size(self) -> int:
        """Number of entries of h."""
        return len(self.pairs[0])

    def second(self, z_nd: Floats) -> Floats:
        """The entries of h at z, (n, size)."""
        row, column = self.pairs
        h_ne = z_nd[:, row] * z_nd[:, column]
        h_ne[:, : self.width] = (h_ne[:, : self.width] - 1) / math.sqrt(2)
        return h_ne

    def matrix(self, h_ke: Floats) -> Floats:
        """Symmetric matrices of z_i z_j, and of z_i² - 1 on the diagonal, from the entries of h, (k, d, d)."""
        row, column = self.pairs
        matrix_kdd = np.zeros((len(h_ke), self.width, self.width))
        matrix_kdd[:, row, column] = matrix_kdd[:, column, row] = h_ke
        matrix_kdd[:, *2 * (np.arange(self.width),)] *= math.sqrt(2)
        return matrix_kdd


def inverse(root_kdd: Floats) -> Floats:
    """Inverses of lower triangular matrices, row by row; where there is none, numbers that are not finite."""
    inverse_kdd = np.zeros_like(root_kdd)
    for i in range(root_kdd.shape[1]):
        below_kj = np.einsum("kj,kje->ke", root_kdd[:, i, :i], inverse_kdd[:, :i, :i])
        inverse_kdd[:, i, :i] = -below_kj / root_kdd[:, i, i, None]
        inverse_kdd[:, i, i] = 1 / root_kdd[:, i, i]
    return inverse_kdd


def log_density(x_nd: Floats, square_kn: Floats, root_kdd: Floats, gaps: tuple[int, ...]) -> Floats:
    """Log-density of every row under every component, (K, n), in nats; a number that is missing has density 1.

    Args:
        x_nd: the rows.
        square_kn: Σ z² of the numbers that are there.
        root_kdd: Cholesky factors.
        gaps: places of the numbers that may be missing.
    """
    each_kd = np.log(np.diagonal(root_kdd, axis1=1, axis2=2)) + 0.5 * math.log(2 * math.pi)
    log_kn: Floats = -0.5 * square_kn
    log_kn -= each_kd.sum(axis=1)[:, None]
    for place in gaps:
        log_kn += np.isnan(x_nd[:, place]) * each_kd[:, place, None]
    return log_kn


def expected_correction(number_k: Floats, width: int) -> Floats:
    """Difference of the mean log-density under the posterior from that at its means, (k,) (Bishop 10.64-65).

    Args:
        number_k: rows of each component.
        width: d.
    """
    from scipy.special import digamma

    freedom_k = number_k + tuned.FREEDOM + width
    wishart_k = digamma((freedom_k[:, None] - np.arange(width)) / 2).sum(axis=1) - width * np.log(freedom_k / 2)
    return np.asarray(0.5 * wishart_k - 0.5 * width / (number_k + tuned.PRIOR_ROWS))


def moved(
    mean_kd: Floats, root_kdd: Floats, shift_kd: Floats, stretch_kdd: Floats, limits: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Means and covariances after a step in own coordinates: m + L·shift, L(I + stretch)Lᵀ.

    Args:
        limits: of the eigenvalues of I + stretch.
    """
    value_kd, vector_kdd = np.linalg.eigh(np.eye(mean_kd.shape[1]) + stretch_kdd)
    bracket_kdd = (vector_kdd * np.clip(value_kd, *limits)[:, None, :]) @ np.swapaxes(vector_kdd, 1, 2)
    covariance_kdd = root_kdd @ bracket_kdd @ np.swapaxes(root_kdd, 1, 2)
    return mean_kd + np.einsum("kij,kj->ki", root_kdd, shift_kd), covariance_kdd


def root(covariance_kdd: Floats) -> Floats:
    """Cholesky factors of covariances whose eigenvalues are brought to the public floor."""
    value_kd, vector_kdd = np.linalg.eigh((covariance_kdd + np.swapaxes(covariance_kdd, 1, 2)) / 2)
    if value_kd.size and value_kd.min() < tuned.LEAST_VARIANCE:
        value_kd = np.maximum(value_kd, tuned.LEAST_VARIANCE)
        covariance_kdd = (vector_kdd * value_kd[:, None, :]) @ np.swapaxes(vector_kdd, 1, 2)
    return np.asarray(np.linalg.cholesky(covariance_kdd), dtype=np.float64)
