"""The curvature at the mean, read from noise for intervals: diagonal first, then the rest, then what may be wrong.

A direction that an earlier release could not see may have a curvature far below its guess: that is part of the prior
here, since an interval from a curvature that is too large would be too narrow. What is discarded as noise of the other
entries is an error of the curvature, whose size is estimated too. Everything here is post-processing of released
numbers and costs no privacy.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, log_ndtr

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature import TINY, RowMoments, edge

# Log odds beyond this are taken for this, where a curvature must not vanish.
_STEEPEST = 30.0


def tilted(moments: RowMoments, guess_e: Floats, weights_e: Floats, offset: float = 0.0) -> Floats:
    """A guess of Σ p(1-p) x̃ x̃ᵀ, (e, e), where p varies with the log odds xᵀ weights: exact for normal rows.

    Args:
        moments: moments of the rows.
        guess_e: its diagonal if p(1-p) had nothing to do with x̃.
        weights_e: the weights.
        offset: what rows add to their log odds, on average.
    """
    mean_e = moments.mean_e
    pull_e = moments.eigenvalue_e * weights_e / moments.number - mean_e * float(mean_e @ weights_e)
    node_k, weight_k = np.polynomial.hermite_e.hermegauss(40)
    psi_k = offset + float(mean_e @ weights_e) + math.sqrt(max(float(weights_e @ pull_e), 0.0)) * node_k
    p_k = expit(np.clip(psi_k, -_STEEPEST, _STEEPEST))
    v_k = p_k * (1 - p_k)
    # E v x xᵀ by two integrations by parts (Stein 1981); over E v.
    first, second = (float(weight_k @ part_k) for part_k in (v_k * (1 - 2 * p_k), v_k * (1 - 6 * v_k)))
    first, second = first / float(weight_k @ v_k), second / float(weight_k @ v_k)
    both_ee = np.outer(pull_e, mean_e)
    added_ee = (first * (both_ee + both_ee.T) + second * np.outer(pull_e, pull_e)) * moments.number
    root_e = np.sqrt(guess_e / moments.eigenvalue_e)
    value_e, vector_ee = np.linalg.eigh(np.diag(guess_e) + root_e[:, None] * added_ee * root_e)
    value_e = np.maximum(value_e, tuned.TILT_FLOOR * guess_e.min())
    return np.asarray((vector_ee * (value_e * (guess_e.sum() / value_e.sum()))) @ vector_ee.T)


def read_at_mean(noisy_ee: Floats, guess_ee: Floats, hidden_e: Floats, sd: float) -> tuple[Floats, Floats, Floats]:
    """Read a curvature for intervals: the matrix, mean square errors of what is discarded of it and of its diagonal.

    Args:
        noisy_ee: noisy curvature, (e, e).
        guess_ee: guess of it.
        hidden_e: probability that the guess of a diagonal entry is far off.
        sd: noise std of a diagonal entry.
    """
    d, (read_e, doubt_e) = len(guess_ee), _diagonal(np.diag(noisy_ee), np.diag(guess_ee), hidden_e, sd)
    root_e = np.sqrt(read_e / np.diag(guess_ee))
    guess_ee = root_e[:, None] * guess_ee * root_e
    rest_ee = noisy_ee - guess_ee
    np.fill_diagonal(rest_ee, 0.0)
    value_e, vector_ee = np.linalg.eigh(rest_ee)
    kept_e = np.sign(value_e) * np.sqrt(np.maximum(value_e**2 - edge(d, sd) ** 2, 0.0))
    value_e, vector_de = np.linalg.eigh(guess_ee + (vector_ee * kept_e) @ vector_ee.T)
    found_ee = (vector_de * np.maximum(value_e, tuned.TABLE_FLOOR * read_e.min())) @ vector_de.T
    if sd == 0:
        return found_ee, np.zeros((d, d)), doubt_e
    away_ee = noisy_ee - found_ee
    unexplained = float(np.sum(away_ee**2) - np.sum(np.diag(away_ee) ** 2)) - d * (d - 1) * sd**2 / 2
    seen = (max(unexplained, 0.0) + (1 + np.count_nonzero(kept_e)) * d * sd**2) / d**2
    possible_ee = tuned.TABLE_CORRELATION**2 * np.outer(read_e, read_e)
    return found_ee, np.minimum(seen, 1.0 / (2.0 / sd**2 + 1.0 / possible_ee)), doubt_e


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
    typical = max(float(noisy_e.sum()), tuned.LEAST_LONG * math.sqrt(len(noisy_e)) * sd) / float(curvature_e.sum())
    # Parts are exponential before they are seen, and normal but positive afterwards: few directions hold long rows.
    middle_e = np.maximum(part_e / std_e - std_e / typical, -30.0)
    pushed_e = np.exp(-0.5 * middle_e**2 - log_ndtr(middle_e)) / math.sqrt(2 * math.pi)
    return 1.0 + std_e * (middle_e + pushed_e), (sd**2) * (1.0 - pushed_e * (pushed_e + middle_e))


def _diagonal(noisy_e: Floats, guess_e: Floats, hidden_e: Floats, sd: float) -> tuple[Floats, Floats]:
    """Positive numbers, (e,), read with noise of std sd beside a guess that may be off, and mean square errors.

    Geometric posterior means; the log of number over guess is normal, or uniform where the guess was hidden by noise.
    """
    if sd == 0:
        return np.maximum(noisy_e, TINY), 0 * noisy_e
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
    weight_et /= weight_et.sum(axis=1, keepdims=True)
    read_e = guess_e * np.exp((weight_et * t_et).sum(axis=1))
    return read_e, (weight_et * (guess_e[:, None] * np.exp(t_et) - read_e[:, None]) ** 2).sum(axis=1)
