"""Second moments of columns that may be nearly collinear, as a number and its square are.

What tells such columns apart has a small eigenvalue. Beside a guess of independent columns that is a large negative
residual, of which shrinking by the edge of the noise keeps too little: then the small eigenvalue is read as many times
what it is, and the posterior is sure of what nobody saw. But a single entry has far less noise than that edge. By what
the release itself shows, one of three readings is taken. Everything here is post-processing of released numbers and
costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature import TINY, denoised, edge


def read(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Read noisy second moments beside the guess of independent columns: by what the release itself shows of them.

    If many directions have less than the guess by more than the edge of the noise, all columns are collinear, and few
    common factors explain them. If few entries do, what is left of the guess is corrected in these alone. Else
    eigenpairs are shrunk.
    """
    if sd == 0:
        return noisy_dd
    below = np.linalg.eigvalsh(noisy_dd - guess_dd) < -edge(len(noisy_dd), sd)
    if float(np.mean(below)) >= tuned.COLLINEAR_SHARE:
        return _common_factors(noisy_dd, guess_dd, sd)
    away_dd = noisy_dd - guess_dd
    np.fill_diagonal(away_dd, 0.0)
    # Off the diagonal an entry has 1/√2 of the noise of one on it.
    seen_dd = np.abs(away_dd) > tuned.SEEN_ENTRY * sd / math.sqrt(2)
    near_dd = guess_dd + seen_dd * away_dd
    if np.count_nonzero(seen_dd) / 2 + _numbers(noisy_dd - near_dd, sd) < _numbers(noisy_dd - guess_dd, sd):
        value_e, vector_de = np.linalg.eigh(denoised(noisy_dd, near_dd, sd))
        return np.asarray((vector_de * np.maximum(value_e, tuned.LEAST_MOMENT * sd)) @ vector_de.T)
    return denoised(noisy_dd, guess_dd, sd)


def _numbers(residual_dd: Floats, sd: float) -> int:
    """How many numbers the eigenpairs of a residual have that stand out of the noise."""
    return len(residual_dd) * int(
        np.count_nonzero(np.abs(np.linalg.eigvalsh(residual_dd)) > edge(len(residual_dd), sd))
    )


def _common_factors(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Factors and what each column has alone add up to the released diagonal.

    This is minimum residual factor analysis (Harman & Jones 1966), with factors that are shrunk by the edge of noise.
    """
    # The variances of the guess, about the means that it has.
    own_d = np.maximum(np.diag(noisy_dd) - (guess_dd[0] ** 2) / guess_dd[0, 0], 0.0) + sd + TINY
    means_dd = np.outer(guess_dd[0], guess_dd[0]) / guess_dd[0, 0]
    centred_dd, unique_d = noisy_dd - means_dd, own_d
    for _ in range(tuned.FACTOR_ROUNDS):
        value_e, vector_de = np.linalg.eigh(centred_dd - np.diag(unique_d))
        shrunk_e = np.sqrt(np.maximum(np.maximum(value_e, 0.0) ** 2 - edge(len(value_e), sd) ** 2, 0.0))
        common_dd = (vector_de * shrunk_e) @ vector_de.T
        unique_d = np.clip(np.diag(centred_dd) - np.diag(common_dd), tuned.LEAST_UNIQUE * own_d, own_d)
    return np.asarray(means_dd + common_dd + np.diag(unique_d))
