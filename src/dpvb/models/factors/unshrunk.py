"""The factors that are nearest to released second moments, drawn together by no prior: the centres of intervals.

S = W Wᵀ + Ψ + error. An entry's error has about the variance m_i m_j / n, m² = ψ² + n·sd²/2: sampling of what factors
leave, and noise. The sum of squared errors over their variances is least where W are the first eigenpairs of
(S - Ψ)_ij / √(m_i m_j); its derivative by ψ_i/m_i is minus what they leave of the diagonal there (Harman & Jones 1966).
With noise far below sampling this is maximum likelihood. Everything here is post-processing and costs no privacy.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from dpvb.guards.arrays import Floats
from dpvb.models.factors import tuned
from dpvb.models.factors.posterior import Factors, turned


def nearest(second_dd: Floats, sd: float, count: float, number: int) -> Factors:
    """So many factors, as a point estimate.

    Args:
        second_dd: S, about the mean, symmetric.
        sd: noise std of its diagonal, above 0.
        count: number of rows n.
        number: of factors, at least 1 and at most the number of columns.
    """
    diagonal_d = np.diagonal(second_dd)
    most_d = np.maximum(diagonal_d, sd)
    end_d2, unique_d = np.stack([tuned.LEAST_UNIQUE * most_d, most_d], axis=1), 0.5 * most_d
    for _ in range(tuned.METRICS):
        metric_d = np.hypot(unique_d, sd * np.sqrt(0.5 * count))
        whitened_dd = second_dd / np.sqrt(np.outer(metric_d, metric_d))
        bounds = end_d2 / metric_d[:, None]
        found = minimize(_misfit, unique_d / metric_d, (whitened_dd, number), "L-BFGS-B", jac=True, bounds=bounds)
        unique_d = np.clip(found.x * metric_d, *end_d2.T)
    root_dk = _root(found.x, whitened_dd, number)
    return turned(root_dk * np.sqrt(metric_d)[:, None], unique_d, np.zeros((number, number)))


def _root(unique_d: Floats, whitened_dd: Floats, number: int) -> Floats:
    """The first eigenpairs of whitened S - Ψ, as its root, (d, k)."""
    d = len(unique_d)
    value_k, basis_dk = eigh(whitened_dd - np.diag(unique_d), subset_by_index=(d - number, d - 1))
    return np.asarray(basis_dk * np.sqrt(np.maximum(value_k, 0.0)))


def _misfit(unique_d: Floats, whitened_dd: Floats, number: int) -> tuple[float, Floats]:
    """Half the sum of squares of what factors and unique variances leave, and its derivative, (d,)."""
    root_dk = _root(unique_d, whitened_dd, number)
    left_dd = whitened_dd - np.diag(unique_d) - root_dk @ root_dk.T
    return 0.5 * float(np.square(left_dd).sum()), -np.diagonal(left_dd)
