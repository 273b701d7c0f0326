"""A nonnegative matrix, read from noise: posterior means under a prior estimated from the noisy numbers themselves.

Input is a linear, unbiased estimate x = s + N(0, sd²) of nonnegative numbers s. Everything here is post-processing of
x and costs no privacy. Where s = 0, setting negative entries to zero lifts them by 0.4 sd on average; a posterior mean
does so much less. Entry (v, k) has a prior mean m_vk of rank one, background_v · column_k: a background that many
entries share is known far better than any entry.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from dpvb.guards.arrays import Floats, Ints

# Tuned by hand; benchmark `wikipedia` (perplexity by ε) shows what they do: run it before and after a change.
# Relative width of an atom of the estimated prior, a normal: a well measured entry is not rounded to the grid, whose
# 28 positive atoms to a factor of 15,000 are 40 % apart.
_WIDTH = 0.2
# Atoms, as multiples of an entry's prior mean: of the matrix, and of the word totals.
_RATIOS = np.concatenate([[0.0], np.geomspace(0.02, 300.0, 28)])
_TOTAL_RATIOS = np.concatenate([[0.0], np.geomspace(0.003, 200.0, 60)])
# Rounds of EM for the weights of the atoms: of the matrix, and of the word totals.
_ROUNDS, _TOTAL_ROUNDS = 20, 100
# Least background, as a fraction of the mean: of a word total as read, and of the mean itself over sd.
_LEAST_BACKGROUND, _LEAST_MEAN = 1e-4, 1e-3
# Least column total, as a fraction of the mean one; least row sum, over sd·√K, if there is no background.
_LEAST_COLUMN, _LEAST_ROW = 0.05, 0.1
# An entry is read as no less than its measurement minus so many sd.
_FARTHEST = 6.0
# Entries to which weights are fitted, and entries that are read at a time: enough for the weights, and for the cache.
_FITTED_ENTRIES, _BLOCK = 20_000, 16_384


def background(total_v: Floats, sd: float) -> Floats:
    """Word probabilities (V,), positive, from noisy nonnegative word totals (V,) of noise std sd."""
    mean = max(float(total_v.mean()), _LEAST_MEAN * sd, 1e-300)
    if sd == 0.0:
        smooth_v = np.maximum(total_v, 0.0)
    else:
        mean_v, sd_v = np.full_like(total_v, mean), np.full_like(total_v, sd)
        weights = _fit_prior(total_v, mean_v, sd_v, _TOTAL_RATIOS, rounds=_TOTAL_ROUNDS)
        smooth_v = _posterior_mean(total_v, mean_v, sd_v, _TOTAL_RATIOS, weights)
    smooth_v = np.maximum(smooth_v, _LEAST_BACKGROUND * mean)
    return np.asarray(smooth_v / smooth_v.sum())


def project(x_vk: Floats, sd_v: Floats, background_v: Floats | None) -> Floats:
    """The matrix with its negative entries set to zero."""
    return np.maximum(x_vk, 0.0)


def rank_one(x_vk: Floats, sd_v: Floats, background_v: Floats | None) -> Floats:
    """Posterior mean under an exponential prior of mean m_vk: a normal truncated to the positive half-line.

    The posterior of s_vk is N(x - sd²/m, sd²) on s > 0; with t its mean over sd, its mean is sd (t + φ(t)/Φ(t)).
    """
    sd_vk = sd_v[:, None]
    t = (x_vk - sd_vk**2 / np.outer(*_prior_factors(x_vk, sd_v, background_v))) / sd_vk
    near = np.maximum(t, -1e4)
    hazard = np.exp(-0.5 * near**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(near))
    # Far in the tail t + φ(t)/Φ(t) cancels to about -1/t.
    return np.asarray(sd_vk * np.where(t < -1e4, -1.0 / np.minimum(t, -1.0), np.maximum(near + hazard, 0.0)))


def estimated_prior(x_vk: Floats, sd_v: Floats, background_v: Floats | None) -> Floats:
    """Posterior mean under a prior of the ratios s_vk/m_vk that is itself estimated, by EM on the noisy numbers.

    The prior is a mixture of atoms r_i with weights π_i; an atom is N(m r_i, τ²) with τ = _WIDTH · m r_i. Given the
    atom, the posterior mean is m r_i + τ²/(τ² + sd²)·(x - m r_i) (g-modelling: Efron 2016).
    """
    row_v, column_k = _prior_factors(x_vk, sd_v, background_v)
    num_topics = len(column_k)

    def entries(rows: slice | Ints) -> tuple[Floats, Floats, Floats]:
        return x_vk[rows].ravel(), np.outer(row_v[rows], column_k).ravel(), np.repeat(sd_v[rows], num_topics)

    fitted = np.arange(0, x_vk.shape[0], max(1, x_vk.size // _FITTED_ENTRIES))
    weights = _fit_prior(*entries(fitted), _RATIOS, rounds=_ROUNDS)
    result = np.empty_like(x_vk)
    step = max(1, _BLOCK // num_topics)
    for start in range(0, len(x_vk), step):
        rows = slice(start, start + step)
        result[rows] = _posterior_mean(*entries(rows), _RATIOS, weights).reshape(-1, num_topics)
    return result


READS = {"project": project, "rank_one": rank_one, "estimated_prior": estimated_prior}


def _prior_factors(x_vk: Floats, sd_v: Floats, background_v: Floats | None) -> tuple[Floats, Floats]:
    """Positive factors of the prior means, (V,) and (K,); without a background the row sums serve as one."""
    num_topics = x_vk.shape[1]
    if background_v is None:
        row_v = np.maximum(x_vk.sum(axis=1), _LEAST_ROW * sd_v * np.sqrt(num_topics))
        background_v = np.maximum(row_v, 1e-12 * max(row_v.sum(), 1e-280))
    noise = float(np.linalg.norm(sd_v)) * np.sqrt(num_topics)
    total = max(float(x_vk.sum()), noise, 1e-250)
    column_k = np.maximum(x_vk.sum(axis=0), _LEAST_COLUMN * total / num_topics)
    return background_v / background_v.sum(), column_k * (total / column_k.sum())


def _likelihood(x: Floats, m: Floats, sd: Floats, ratios: Floats) -> tuple[Floats, Floats, Floats]:
    """Of each entry under each atom: marginal likelihood (up to a factor an entry), atom, posterior mean minus atom."""
    center = m[:, None] * ratios
    spread = (_WIDTH * center) ** 2
    variance = spread + (sd * sd)[:, None]
    deviation = x[:, None] - center
    log_likelihood = -0.5 * (deviation**2 / variance + np.log(variance))
    log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    return np.exp(log_likelihood), center, spread / variance * deviation


def _fit_prior(x: Floats, m: Floats, sd: Floats, ratios: Floats, *, rounds: int) -> Floats:
    """Weights of the atoms, by EM from equal weights."""
    likelihood, _, _ = _likelihood(x, m, sd, ratios)
    weights = np.full(len(ratios), 1.0 / len(ratios))
    for _ in range(rounds):
        # π_i ← mean over entries of the posterior probability of atom i
        weights = weights * (likelihood / (likelihood @ weights)[:, None]).mean(axis=0)
        weights = np.maximum(weights, 1e-12)
    return np.asarray(weights / weights.sum())


def _posterior_mean(x: Floats, m: Floats, sd: Floats, ratios: Floats, weights: Floats) -> Floats:
    """Posterior mean of every entry, nonnegative."""
    likelihood, center, shift = _likelihood(x, m, sd, ratios)
    likelihood *= weights
    mean = (likelihood * (center + shift)).sum(axis=1) / likelihood.sum(axis=1)
    # A well measured entry beyond the last atom stays near its measurement.
    return np.asarray(np.maximum(mean, np.maximum(x - _FARTHEST * sd, 0.0)))
