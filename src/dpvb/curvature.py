"""Reading a positive semidefinite matrix from noise: keep what stands out of the noise, model the rest.

Input is a symmetric matrix with independent normal noise of std sd on its svec coordinates. Its noise alone has
eigenvalues up to √(2d)·sd (Wigner), which buries the small eigenvalues of a matrix of second moments. A structured
guess of the matrix moves the question to the residual: only its eigenpairs beyond the noise edge are kept. Everything
here is post-processing and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np

from dpvb.blocks import Floats

# Largest share of a column's second moment that its mean may explain.
_MEAN_SHARE = 0.9
_CONSTANT_SHARE = 0.999


def noise_edge(d: int, sd: float) -> float:
    """Largest eigenvalue, to leading order, of symmetric (d, d) noise of std sd on its svec coordinates."""
    return math.sqrt(2 * d) * sd


def independent(noisy_dd: Floats, sd: float, constant: float) -> tuple[Floats, Floats, float]:
    """Model a matrix of second moments, Σ x xᵀ, by means and variances alone: (matrix, sums of x, number of rows).

    Args:
        noisy_dd: noisy second moments of rows whose column 0 is the constant, (d, d); public.
        sd: noise std of a diagonal entry.
        constant: value of column 0, above 0.
    """
    tiny = max(sd, 1e-12)
    number = max(float(noisy_dd[0, 0]) / constant**2, tiny)
    second_d = np.maximum(np.diag(noisy_dd), tiny)
    share_d = np.full(len(second_d), _MEAN_SHARE)
    share_d[0] = _CONSTANT_SHARE
    sum_d = np.maximum(noisy_dd[:, 0], 0.0) / constant if sd > 0 else noisy_dd[:, 0] / constant
    limit_d = np.sqrt(share_d * second_d * number)
    sum_d = np.clip(sum_d, -limit_d, limit_d)
    sum_d[0] = limit_d[0]
    return np.diag(second_d - sum_d**2 / number) + np.outer(sum_d, sum_d) / number, sum_d, number


def keep_beyond(noisy_dd: Floats, guess_dd: Floats, edge: float) -> Floats:
    """The guess plus those eigenpairs of its residual that exceed the noise edge."""
    eigenvalue_e, vector_de = np.linalg.eigh(noisy_dd - guess_dd)
    kept_e = np.where(np.abs(eigenvalue_e) > edge, eigenvalue_e, 0.0)
    return np.asarray(guess_dd + (vector_de * kept_e) @ vector_de.T)
