"""Second moments of columns that may be collinear: few common factors, and what each column has alone.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature import TINY, denoised, edge


def read(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Read noisy second moments beside the guess of independent columns: by what the release itself shows of them.

    If many directions have less than the guess by more than the edge of the noise, columns are collinear, and shrinking
    would leave their small eigenvalues too large: then the diagonal that was released is kept.
    """
    low_e = np.linalg.eigvalsh(noisy_dd - guess_dd) < -edge(len(noisy_dd), sd)
    if sd > 0 and float(np.mean(low_e)) >= tuned.COLLINEAR_SHARE:
        return _common_factors(noisy_dd, guess_dd, sd)
    return denoised(noisy_dd, guess_dd, sd)


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
