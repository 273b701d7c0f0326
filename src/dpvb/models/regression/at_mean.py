"""The curvature at the mean, read from noise for intervals: diagonal first, then the rest, then what may be wrong.

A direction that an earlier release could not see may have a curvature far below its guess: that is part of the prior
here, since an interval from a curvature that is too large would be too narrow. What is discarded as noise of the other
entries is an error of the curvature, whose size is estimated too. Everything here is post-processing of released
numbers and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature import TINY, edge


def read_at_mean(noisy_ee: Floats, guess_e: Floats, hidden_e: Floats, sd: float) -> tuple[Floats, Floats]:
    """Read a curvature for intervals: the matrix, and the mean square error of each entry of it.

    Args:
        noisy_ee: noisy curvature, (e, e).
        guess_e: guess of its diagonal.
        hidden_e: probability that the guess is far off, for each entry.
        sd: noise std of a diagonal entry.
    """
    d, read_e = len(guess_e), _diagonal(np.diag(noisy_ee), guess_e, hidden_e, sd)
    rest_ee = noisy_ee - np.diag(np.diag(noisy_ee))
    value_e, vector_ee = np.linalg.eigh(rest_ee)
    kept_e = np.sign(value_e) * np.sqrt(np.maximum(value_e**2 - edge(d, sd) ** 2, 0.0))
    value_e, vector_de = np.linalg.eigh(np.diag(read_e) + (vector_ee * kept_e) @ vector_ee.T)
    found_ee = (vector_de * np.maximum(value_e, tuned.TABLE_FLOOR * read_e.min())) @ vector_de.T
    if sd == 0:
        return found_ee, np.zeros((d, d))
    away_ee = noisy_ee - found_ee
    unexplained = float(np.sum(away_ee**2) - np.sum(np.diag(away_ee) ** 2)) - d * (d - 1) * sd**2 / 2
    seen = (max(unexplained, 0.0) + (1 + np.count_nonzero(kept_e)) * d * sd**2) / d**2
    possible_ee = tuned.TABLE_CORRELATION**2 * np.outer(read_e, read_e)
    return found_ee, np.minimum(seen, 1.0 / (2.0 / sd**2 + 1.0 / possible_ee))


def read_long(noisy_e: Floats, sd: float, curvature_e: Floats) -> tuple[Floats, Floats]:
    """Read what long rows add to the slope of a score: factors of its variance, and mean square errors of the slope.

    Args:
        noisy_e: noisy additions to a diagonal, of noise std sd.
        sd: that std.
        curvature_e: the diagonal without them.
    """
    part_e, std_e = noisy_e / curvature_e, sd / curvature_e
    if sd == 0:
        return 1.0 + part_e, np.zeros_like(part_e)
    typical = max(float(noisy_e.sum()), math.sqrt(len(noisy_e)) * sd) / float(curvature_e.sum())
    # Parts are exponential before they are seen, and normal but positive afterwards: few directions hold long rows.
    middle_e = np.maximum(part_e / std_e - std_e / typical, -30.0)
    pushed_e = np.exp(-0.5 * middle_e**2 - log_ndtr(middle_e)) / math.sqrt(2 * math.pi)
    return 1.0 + std_e * (middle_e + pushed_e), (sd**2) * (1.0 - pushed_e * (pushed_e + middle_e))


def _diagonal(noisy_e: Floats, guess_e: Floats, hidden_e: Floats, sd: float) -> Floats:
    """Geometric posterior means of positive numbers, (e,), read with noise of std sd beside a guess that may be off.

    The log of number over guess is normal, or uniform where the guess was hidden by noise.
    """
    if sd == 0:
        return np.maximum(noisy_e, TINY)
    near_e = np.log(np.maximum(noisy_e, sd) / guess_e)
    reach_e = np.minimum(8.0 * sd / np.maximum(noisy_e, sd), 1.0)
    wide_t = np.linspace(tuned.GUESS_LOW, -tuned.GUESS_LOW, 241)
    t_et = np.sort(
        np.hstack([np.tile(wide_t, (len(guess_e), 1)), near_e[:, None] + np.outer(reach_e, np.linspace(-1, 1, 81))])
    )
    normal_et = np.exp(-0.5 * (t_et / tuned.GUESS_STD) ** 2) / (tuned.GUESS_STD * math.sqrt(2 * math.pi))
    uniform_et = ((t_et >= tuned.GUESS_LOW) & (t_et <= tuned.GUESS_HIGH)) / (tuned.GUESS_HIGH - tuned.GUESS_LOW)
    prior_et = (1 - hidden_e[:, None]) * normal_et + hidden_e[:, None] * uniform_et
    log_fit_et = -0.5 * ((noisy_e[:, None] - guess_e[:, None] * np.exp(t_et)) / sd) ** 2
    log_weight_et = log_fit_et + np.log(np.maximum(prior_et, 1e-300))
    weight_et = np.exp(log_weight_et - log_weight_et.max(axis=1, keepdims=True)) * np.gradient(t_et, axis=1)
    return np.asarray(guess_e * np.exp((weight_et * t_et).sum(axis=1) / weight_et.sum(axis=1)))
