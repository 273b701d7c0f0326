"""Second moments of columns that may be nearly one another, such as a number and its square.

Such a pair has one large eigenvalue and a small one, which is what tells the two apart. Beside a guess of independent
columns the small one is a large negative residual, of which shrinking keeps too little: then it would be read as many
times what it is, and a posterior by it would be sure of a contrast that nobody saw. But each entry by itself has far
less noise than the edge of all of them. Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature import denoised


def read(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Read noisy second moments beside a guess: entries that stand out alone as they are, eigenvalues no less than noise.

    The first is the thresholding of a covariance (Bickel & Levina 2008); the rest is shrunk as always.
    """
    away_dd = noisy_dd - guess_dd
    np.fill_diagonal(away_dd, 0.0)
    # Off the diagonal an entry has 1/√2 of the noise of one on it.
    seen_dd = np.abs(away_dd) > tuned.SEEN_ENTRY * sd / math.sqrt(2)
    value_e, vector_de = np.linalg.eigh(denoised(noisy_dd, guess_dd + seen_dd * away_dd, sd))
    return np.asarray((vector_de * np.maximum(value_e, tuned.LEAST_MOMENT * sd)) @ vector_de.T)
