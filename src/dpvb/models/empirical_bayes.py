"""A nonnegative matrix, read from noise: posterior means under a prior estimated from the noisy numbers themselves.

Input is a linear, unbiased estimate x = s + N(0, sd²) of nonnegative numbers s. Everything here is post-processing of
x and costs no privacy. Where s = 0, setting negative entries to zero lifts them by 0.4 sd on average; a posterior mean
does so much less. Entry (v, k) has a prior mean m_vk, as a rule of rank one, background_v · column_k: a background that
many entries share is known far better than any entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc

from dpvb.guards.arrays import Floats, Ints
from dpvb.kernels import mixtures
from dpvb.kernels.threads import num_threads, spread

# Tuned by hand; benchmark `wikipedia` (perplexity by ε) shows what they do: run it before and after a change.
# Relative width of an atom of the estimated prior, a normal: a well measured entry is not rounded to the grid, whose
# 28 positive atoms to a factor of 15,000 are 40 % apart.
_WIDTH = 0.2
# Atoms, as multiples of an entry's prior mean: of the matrix, and of the word totals.
_RATIOS = np.concatenate([[0.0], np.geomspace(0.02, 300.0, 28)])
_TOTAL_RATIOS = np.concatenate([[0.0], np.geomspace(0.003, 200.0, 60)])
# Shapes of the gamma distributions of mean one.
_SHAPES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
# Bins of m/sd with weights of their own, which are held to the common ones as by so many entries more.
_EDGES, _HELD = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0), 300.0
# Rounds of EM for the weights: of the matrix, and of the word totals.
_ROUNDS, _TOTAL_ROUNDS = 20, 100
# Least background, as a fraction of the mean: of a word total as read, and of the mean itself over sd.
_LEAST_BACKGROUND, _LEAST_MEAN = 1e-4, 1e-3
# Least column total, as a fraction of the mean one; least row sum, over sd·√K, if there is no background.
_LEAST_COLUMN, _LEAST_ROW = 0.05, 0.1
# An entry is read as no less than its measurement minus so many sd.
_FARTHEST = 6.0
# Entries to which weights are fitted, and entries that a thread reads at a time.
_FITTED_ENTRIES, _BLOCK = 20_000, 16_384
# Beyond so many deviations float32 could overflow, and the measurement stands for itself.
_HUGE = 1e8


def background(total_v: Floats, sd: float) -> Floats:
    """Word probabilities (V,), positive, from noisy nonnegative word totals (V,) of noise std sd."""
    mean = max(float(total_v.mean()), _LEAST_MEAN * sd, 1e-300)
    smooth_v = np.maximum(total_v, 0.0)
    if sd > 0.0:
        smooth_v = _shrunk(total_v, np.full_like(total_v, mean), np.full_like(total_v, sd), _TOTALS)
    smooth_v = np.maximum(smooth_v, _LEAST_BACKGROUND * mean)
    return np.asarray(smooth_v / smooth_v.sum())


def estimated_prior(x_vk: Floats, sd_v: Floats, background_v: Floats | None, *, free: bool = False) -> Floats:
    """Posterior mean under a prior of the ratios s_vk/m_vk that is itself estimated; see `around`."""
    return around(x_vk, sd_v, np.outer(*_prior_factors(x_vk, sd_v, background_v)), free=free)


def around(x_vk: Floats, sd_v: Floats, mean_vk: Floats, *, free: bool = False) -> Floats:
    """Posterior mean under a prior of the ratios s_vk/m_vk that is estimated by EM on the noisy numbers.

    An atom r_i of the ratios is N(m r_i, τ²) with τ = _WIDTH · m r_i. Given the atom, the posterior mean is
    m r_i + τ²/(τ² + sd²)·(x - m r_i) (g-modelling: Efron 2016). Their weights are a mixture of gamma distributions of
    mean one: an entry that nothing was measured of is read as m_vk. Where much was measured, weights that are `free`
    fit better; where nothing was, all fit alike, and their mean says nothing.

    Args:
        x_vk: measurements, (V, K).
        sd_v: noise std of the rows. Without noise, negative measurements become 0 and the others are returned.
        mean_vk: prior means, positive, (V, K).
        free: whether every atom has a weight of its own.
    """
    if not sd_v.any():
        return np.maximum(x_vk, 0.0)
    return _shrunk(x_vk, mean_vk, np.broadcast_to(sd_v[:, None], x_vk.shape), _FREE if free else _mean_one())


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


@dataclass(frozen=True)
class _Family:
    """Priors of the ratio s/m: mixtures of distributions on a grid.

    Attributes:
        ratios_g: the grid.
        members_cg: the distributions, whose rows sum to 1.
        rounds: of EM for their weights.
    """

    ratios_g: Floats
    members_cg: Floats
    rounds: int


_FREE = _Family(_RATIOS, np.eye(len(_RATIOS)), _ROUNDS)
_TOTALS = _Family(_TOTAL_RATIOS, np.eye(len(_TOTAL_RATIOS)), _TOTAL_ROUNDS)


@cache
def _mean_one() -> _Family:
    """Gamma distributions of the cells around the atoms, each with the scale that makes its mean 1."""
    edges = np.concatenate([[0.0], np.sqrt(_RATIOS[1:-1] * _RATIOS[2:]), [np.inf]])
    edges = np.insert(edges, 1, _RATIOS[1] ** 2 / edges[1])

    def member(shape: float, log_scale: float) -> Floats:
        return np.asarray(np.diff(gammainc(shape, edges / np.exp(log_scale))))

    scales = [brentq(lambda t, a=a: member(a, t) @ _RATIOS - 1.0, -20.0, 20.0, xtol=1e-12) for a in _SHAPES]
    return _Family(_RATIOS, np.array(list(map(member, _SHAPES, scales))), _ROUNDS)


def _shrunk(
    x: Floats, m: Floats, sd: Floats, family: _Family, precision: type[np.floating[Any]] = np.float32
) -> Floats:
    """Posterior mean of every entry, nonnegative, under weights of the family that fit the entries of like m/sd."""
    ratios_g, width = family.ratios_g.astype(precision), precision(_WIDTH)
    u_n, w_n = (np.clip(values / sd, -_HUGE, _HUGE).ravel().astype(precision) for values in (x, m))
    bin_n = np.searchsorted(np.array(_EDGES, precision), w_n)

    def likelihoods(entries: Ints) -> Floats:
        stride = max(1, entries.size // _FITTED_ENTRIES)
        while math.gcd(stride, x.size // len(x)) > 1:  # Entries of all columns.
            stride += 1
        some = entries[::stride]
        out_ng = np.empty((some.size, len(ratios_g)), precision)
        mixtures.likelihoods(u_n[some], w_n[some], ratios_g, width, out_ng)
        return np.asarray(out_ng @ family.members_cg.T)

    weights_bg = (_weights(likelihoods, bin_n, family) @ family.members_cg).astype(precision)
    mean_n = np.empty(x.size, precision)

    def read(start: int) -> None:
        part = slice(start, start + _BLOCK)
        scratch = np.empty_like(ratios_g)
        mixtures.posterior_means(u_n[part], w_n[part], bin_n[part], weights_bg, ratios_g, width, scratch, mean_n[part])

    spread(read, range(0, x.size, _BLOCK), num_threads(None))
    # A well measured entry beyond the last atom stays near its measurement.
    return np.asarray(np.maximum(mean_n.reshape(x.shape) * sd, np.maximum(x - _FARTHEST * sd, 0.0)))


def _weights(likelihoods: Callable[[Ints], Floats], bin_n: Ints, family: _Family) -> Floats:
    """Weights of a family's members in every bin of m/sd, by EM: first of all entries, then of its own."""
    number = len(family.members_cg)
    common_c = _fitted(likelihoods(np.arange(bin_n.size)), np.full(number, 1.0 / number), 0.0, family.rounds)
    in_bin = [np.flatnonzero(bin_n == b) for b in range(len(_EDGES) + 1)]
    if any(own.size == bin_n.size for own in in_bin):
        return np.tile(common_c, (len(in_bin), 1))
    return np.array([_fitted(likelihoods(own), common_c, _HELD, family.rounds) for own in in_bin])


def _fitted(likelihood_nc: Floats, start_c: Floats, held: float, rounds: int) -> Floats:
    """Weights by EM from a start, which stands for so many entries more."""
    weights_c = start_c
    for _ in range(rounds):
        # π_c ← mean over entries of the posterior probability of member c
        found_c = weights_c * ((1.0 / (likelihood_nc @ weights_c)) @ likelihood_nc)
        weights_c = np.maximum((found_c + held * start_c) / (len(likelihood_nc) + held), 1e-12)
    return np.asarray(weights_c / weights_c.sum())
