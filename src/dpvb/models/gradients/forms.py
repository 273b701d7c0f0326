"""Precisions of a guide: matrices (P, P) of a full-rank one, diagonals (P,) of a mean field."""

from __future__ import annotations

import numpy as np

from dpvb.core.blocks import positive_semidefinite
from dpvb.guards.arrays import Floats


def plus(matrix: Floats, diagonal_p: Floats) -> Floats:
    """A matrix of either form plus a diagonal."""
    return np.asarray(matrix + (np.diag(diagonal_p) if matrix.ndim == 2 else diagonal_p))


def times(matrix: Floats, vector_p: Floats) -> Floats:
    """A matrix of either form times a vector."""
    return np.asarray(matrix @ vector_p if matrix.ndim == 2 else matrix * vector_p)


def bounded(matrix: Floats, least: float = 0.0) -> Floats:
    """The nearest matrix of the same form whose eigenvalues are at least `least`."""
    if matrix.ndim == 1:
        return np.maximum(matrix, least)
    floor = least * np.eye(len(matrix))
    return np.asarray(positive_semidefinite(0.5 * (matrix + matrix.T) - floor) + floor)


def inverse(matrix: Floats) -> Floats:
    """Inverse of a positive matrix of either form."""
    return np.asarray(np.linalg.inv(matrix) if matrix.ndim == 2 else 1.0 / matrix)


def spread(precision: Floats, draw_p: Floats) -> Floats:
    """A draw from N(0, I) turned into one from N(0, precision⁻¹)."""
    if precision.ndim == 1:
        return np.asarray(draw_p / np.sqrt(precision))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(precision).T, draw_p))


def information_through_noise(curvature: Floats, noise: float, least: float) -> Floats:
    """Precision K(K + v)⁻¹K that gradients of a nonnegative curvature K give of θ, with noise of variance v in them."""
    if curvature.ndim == 1:
        return np.asarray(curvature**2 / np.maximum(curvature + noise, least))
    shifted = curvature + (noise + least) * np.eye(len(curvature))
    return np.asarray(curvature @ np.linalg.solve(shifted, curvature))
