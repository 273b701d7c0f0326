"""A nonnegative matrix, denoised: posterior means under a prior estimated from the noisy numbers themselves.

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
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.optimize import brentq, nnls
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
# Shapes of the gamma distributions of mean one, on the grid, and of those that are narrower than its cells, which are
# normals N(1, 1/a); infinity is the point 1.
_SHAPES, _NARROW = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (30.0, 100.0, 300.0, 1000.0, 3000.0, math.inf)
# Bins of m/sd with weights of their own, which are held to the common ones as by so many entries more.
_EDGES, _HELD = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0), 300.0
# Rounds of EM for free weights: of the matrix, and of the word totals. Few rounds keep the weights smooth.
_ROUNDS, _TOTAL_ROUNDS = 20, 100
# Newton steps at most for the most likely weights, decrease of -log likelihood per entry at which they end, and share
# of the largest curvature that is added to all: members of the family are nearly alike where little was measured.
_NEWTON_STEPS, _NEWTON_END, _NEWTON_RIDGE = 100, 1e-13, 1e-10  # convention: a limit and tolerances
_LEAST_LIKELIHOOD = 1e-60  # convention: least likelihood of a member, over that of the best one
# Share of the decrease that the slope predicts which a Newton step must reach (Armijo).
_LEAST_DECREASE = 0.01  # convention: any small share leads to the same minimum of a convex loss
# Least weight of a member: an entry far from all others has a posterior mean, too.
_LEAST_WEIGHT = 1e-12
# Least background, as a fraction of the mean: of a word total as read, and of the mean itself over sd.
_LEAST_BACKGROUND, _LEAST_MEAN = 1e-4, 1e-3
# Least column total, as a fraction of the mean one; least row sum, over sd·√K.
_LEAST_COLUMN, _LEAST_ROW = 0.05, 0.1
# An entry is read as no less than its measurement minus so many sd.
_FARTHEST = 6.0
# Entries to which weights are fitted, entries that a thread reads at a time, and that are sought through at a time.
_FITTED_ENTRIES, _BLOCK, _SOUGHT = 20_000, 16_384, 2**20
# Least log of a likelihood, over the largest of an entry.
_LEAST_LOG = -700.0  # derived: the least whole hundred whose exponential float64 holds in full
# Beyond so many deviations float32 could overflow, and the measurement stands for itself.
_HUGE = 1e8


def background(total_v: Floats, sd: float | Floats) -> Floats:
    """Word probabilities (V,), positive, from noisy nonnegative word totals (V,) of noise std sd, of all or of each."""
    sd_v = np.broadcast_to(sd, total_v.shape)
    mean = max(float(total_v.mean()), _LEAST_MEAN * float(sd_v.mean()), 1e-300)
    smooth_v = np.maximum(total_v, 0.0)
    if sd_v.all():
        smooth_v = _shrunk(total_v, np.full_like(total_v, mean), sd_v, _TOTALS)
    smooth_v = np.maximum(smooth_v, _LEAST_BACKGROUND * mean)
    return np.asarray(smooth_v / smooth_v.sum())


def estimated_prior(x_vk: Floats, sd_v: Floats, *, free: bool = False) -> Floats:
    """Posterior mean around means of rank one, by the sums of rows and columns; see `around`."""
    return around(x_vk, sd_v, _prior_factors(x_vk, sd_v), free=free)


def around(x_vk: Floats, sd_v: Floats, mean_vk: Floats | tuple[Floats, Floats], *, free: bool = False) -> Floats:
    """Posterior mean under a prior of the ratios s_vk/m_vk that is estimated from the noisy numbers.

    The ratios have a mixture of distributions of mean one: the point 1, normals, and gamma distributions. Its weights
    maximise the marginal likelihood. If the measurements agree with the prior means, the prior means are the result.
    An entry that nothing was measured of is read as m_vk.

    A gamma distribution is one on atoms r_i, each of them N(m r_i, τ²) with τ = _WIDTH · m r_i. Given the atom, the
    posterior mean is m r_i + τ²/(τ² + sd²)·(x - m r_i) (g-modelling: Efron 2016). Where much was measured, weights of
    the atoms themselves, which are `free`, fit better; where nothing was, all fit alike, and their mean says nothing.

    Args:
        x_vk: measurements, (V, K).
        sd_v: noise std of the rows. Without noise, negative measurements become 0 and the others are returned.
        mean_vk: prior means, positive, (V, K), or their factors, (V,) and (K,).
        free: whether every atom has a weight of its own.
    """
    if not sd_v.any():
        return np.maximum(x_vk, 0.0)
    return _shrunk(x_vk, mean_vk, np.broadcast_to(sd_v[:, None], x_vk.shape), _FREE if free else _mean_one())


def evidence(x_v: Floats, sd_v: Floats, mean_v: Floats) -> float:
    """Log marginal likelihood of measurements around prior means, at the weights that maximise it; see `around`.

    Args:
        x_v: measurements, (V,).
        sd_v: their noise std, (V,), positive.
        mean_v: prior means, (V,), positive.
    """
    family = _mean_one()
    u_n, w_n = np.clip(x_v / sd_v, -_HUGE, _HUGE), np.clip(mean_v / sd_v, 0.0, _HUGE)
    center_ng = w_n[:, None] * family.ratios_g
    square_ng = 1.0 + (center_ng * family.width_g) ** 2
    log_ng = -0.5 * ((u_n[:, None] - center_ng) ** 2 / square_ng + np.log(square_ng))
    most_n = log_ng.max(axis=1)
    likelihood_nc = np.exp(np.maximum(log_ng - most_n[:, None], _LEAST_LOG)) @ family.members_cg.T
    weights_c = _most_likely(likelihood_nc, np.ones(len(u_n)))
    constant_n = np.log(sd_v) + 0.5 * math.log(2.0 * math.pi)
    return float((most_n + np.log(likelihood_nc @ weights_c) - constant_n).sum())


def _prior_factors(x_vk: Floats, sd_v: Floats) -> tuple[Floats, Floats]:
    """Positive factors of the prior means, (V,) and (K,)."""
    num_topics = x_vk.shape[1]
    row_v = np.maximum(x_vk.sum(axis=1), _LEAST_ROW * sd_v * np.sqrt(num_topics))
    background_v = np.maximum(row_v, 1e-12 * max(row_v.sum(), 1e-280))
    noise = float(np.linalg.norm(sd_v)) * np.sqrt(num_topics)
    total = max(float(x_vk.sum()), noise, 1e-250)
    column_k = np.maximum(x_vk.sum(axis=0), _LEAST_COLUMN * total / num_topics)
    return background_v / background_v.sum(), column_k * (total / column_k.sum())


@dataclass(frozen=True)
class _Family:
    """Priors of the ratio s/m: mixtures of distributions on a grid of normal atoms.

    Attributes:
        ratios_g: means of the atoms.
        width_g: their standard deviations, relative to the means.
        members_cg: the distributions, whose rows sum to 1.
        rounds: of EM for their weights; 0: the weights maximise the marginal likelihood.
    """

    ratios_g: Floats
    width_g: Floats
    members_cg: Floats
    rounds: int

    @classmethod
    def free(cls, ratios_g: Floats, rounds: int) -> _Family:
        """Every atom by itself."""
        return cls(ratios_g, np.full(len(ratios_g), _WIDTH), np.eye(len(ratios_g)), rounds)


_FREE = _Family.free(_RATIOS, _ROUNDS)
_TOTALS = _Family.free(_TOTAL_RATIOS, _TOTAL_ROUNDS)


@cache
def _mean_one() -> _Family:
    """Gamma distributions of the cells around the atoms, each with the scale that makes its mean 1; normals around 1.

    The family is that of adaptive shrinkage (Stephens 2017), with ratios in place of effects.
    """
    edges = np.concatenate([[0.0], np.sqrt(_RATIOS[1:-1] * _RATIOS[2:]), [np.inf]])
    edges = np.insert(edges, 1, _RATIOS[1] ** 2 / edges[1])

    def member(shape: float, log_scale: float) -> Floats:
        return np.asarray(np.diff(gammainc(shape, edges / np.exp(log_scale))))

    scales = [brentq(lambda t, a=a: member(a, t) @ _RATIOS - 1.0, -20.0, 20.0, xtol=1e-12) for a in _SHAPES]
    wide_cg = np.array(list(map(member, _SHAPES, scales)))
    members_cg = block_diag(wide_cg, np.eye(len(_NARROW)))
    ratios_g = np.concatenate([_RATIOS, np.ones(len(_NARROW))])
    width_g = np.concatenate([np.full(len(_RATIOS), _WIDTH), np.array(_NARROW) ** -0.5])
    return _Family(ratios_g, width_g, members_cg, 0)


def _shrunk(
    x: Floats,
    m: Floats | tuple[Floats, Floats],
    sd: Floats,
    family: _Family,
    precision: type[np.floating[Any]] = np.float32,
) -> Floats:
    """Posterior mean of every entry, nonnegative, under weights of the family that fit the entries of like m/sd.

    Entries are handled in blocks. In addition to x and the result, one byte of each is held.
    """
    ratios_g, width_g = family.ratios_g.astype(precision), family.width_g.astype(precision)
    seen_n, mean_n, bin_n = x.reshape(-1), np.empty(x.size), np.empty(x.size, np.int8)

    def entries(some: Ints) -> tuple[Floats, Floats, Floats]:
        """Measurements and prior means in deviations, and deviations, of some entries."""
        place = np.unravel_index(some, x.shape)
        sd_n = sd[place]
        m_n = m[0][place[0]] * m[1][place[1]] if isinstance(m, tuple) else m[place]
        u_n, w_n = (np.clip(values / sd_n, -_HUGE, _HUGE).astype(precision) for values in (seen_n[some], m_n))
        return u_n, w_n, sd_n

    def block(start: int) -> Ints:
        return np.arange(start, min(start + _BLOCK, x.size))

    def sort(start: int) -> None:
        bin_n[start : start + _BLOCK] = np.searchsorted(np.array(_EDGES, precision), entries(block(start))[1])

    def likelihoods(some: Ints) -> Floats:
        out_ng = np.empty((some.size, len(ratios_g)), precision)
        mixtures.likelihoods(*entries(some)[:2], ratios_g, width_g, out_ng)
        return np.asarray(out_ng @ family.members_cg.T)

    spread(sort, range(0, x.size, _BLOCK), num_threads(None))
    weights_bg = _weights(likelihoods, bin_n, family, x.size // len(x)) @ family.members_cg
    weights_bg = weights_bg.astype(precision)

    def read(start: int) -> None:
        some = block(start)
        (u_n, w_n, sd_n), scratch, out_n = entries(some), np.empty_like(ratios_g), np.empty(some.size, precision)
        mixtures.posterior_means(u_n, w_n, bin_n[some].astype(np.int64), weights_bg, ratios_g, width_g, scratch, out_n)
        # A well measured entry beyond the last atom stays near its measurement.
        mean_n[some] = np.maximum(out_n * sd_n, np.maximum(seen_n[some] - _FARTHEST * sd_n, 0.0))

    spread(read, range(0, x.size, _BLOCK), num_threads(None))
    return mean_n.reshape(x.shape)


def _weights(
    likelihoods: Callable[[Ints], Floats], bin_n: NDArray[np.integer[Any]], family: _Family, columns: int = 1
) -> Floats:
    """Weights of a family's members in every bin of m/sd: first of all entries, then of its own."""
    number = len(family.members_cg)
    common_c = _fitted(
        likelihoods(_some(bin_n, None, bin_n.size, columns)), np.full(number, 1.0 / number), 0.0, family.rounds
    )
    size_b = [int(np.count_nonzero(bin_n == b)) for b in range(len(_EDGES) + 1)]
    if bin_n.size in size_b:
        return np.tile(common_c, (len(size_b), 1))
    own = (likelihoods(_some(bin_n, b, size, columns)) for b, size in enumerate(size_b))
    return np.array([_fitted(likelihood_nc, common_c, _HELD, family.rounds) for likelihood_nc in own])


def _some(bin_n: NDArray[np.integer[Any]], b: int | None, size: int, columns: int) -> Ints:
    """Return entries at equal distances, in all columns, of a bin of this size, or of all entries."""
    stride = max(1, size // _FITTED_ENTRIES)
    while math.gcd(stride, columns) > 1:
        stride += 1
    if b is None:
        return np.arange(0, size, stride)
    places, before = [np.empty(0, np.int64)], 0
    for start in range(0, bin_n.size, _SOUGHT):
        in_block = start + np.flatnonzero(bin_n[start : start + _SOUGHT] == b)
        places.append(in_block[-before % stride :: stride])
        before += len(in_block)
    return np.concatenate(places)


def _fitted(likelihood_nc: Floats, start_c: Floats, held: float, rounds: int) -> Floats:
    """Weights from a start, which stands for so many entries more: by rounds of EM, or for 0 the most likely ones."""
    if rounds == 0:
        # An entry that is known to be of member c has the likelihoods of row c of the unit matrix.
        weight_n = np.concatenate([np.ones(len(likelihood_nc)), held * start_c])
        return _most_likely(np.concatenate([likelihood_nc, np.eye(len(start_c))]), weight_n)
    weights_c = start_c
    for _ in range(rounds):
        # π_c ← mean over entries of the posterior probability of member c
        found_c = weights_c * ((1.0 / (likelihood_nc @ weights_c)) @ likelihood_nc)
        weights_c = np.maximum((found_c + held * start_c) / (len(likelihood_nc) + held), _LEAST_WEIGHT)
    return np.asarray(weights_c / weights_c.sum())


def _most_likely(likelihood_nc: Floats, weight_n: Floats) -> Floats:
    """Weights of members, positive, that maximise Σ_n w_n log Σ_c L_nc π_c: a convex problem.

    Sequential quadratic programming: each Newton step is a nonnegative least-squares problem, solved by an active set.
    The sum of the weights is free; with the penalty Σ π it is 1 at the optimum (Kim, Carbonetto, Stephens & Anitescu
    2020, "A fast algorithm for maximum likelihood estimation of mixture proportions using sequential quadratic
    programming").

    Args:
        likelihood_nc: likelihoods of entries under members, (n, C), each row up to a factor.
        weight_n: how often each entry stands there, nonnegative, (n,).
    """
    used = weight_n > 0
    likelihood_nc = np.asarray(likelihood_nc[used], dtype=np.float64)
    # Lower likelihoods tell nothing more, and the squares of their inverses overflow.
    likelihood_nc = np.maximum(likelihood_nc / likelihood_nc.max(axis=1, keepdims=True), _LEAST_LIKELIHOOD)
    share_n = weight_n[used] / weight_n.sum()

    def loss(pi_c: Floats) -> float:
        with np.errstate(divide="ignore"):
            return float(pi_c.sum() - share_n @ np.log(likelihood_nc @ pi_c))

    number = likelihood_nc.shape[1]
    pi_c = np.full(number, 1.0 / number)
    value = loss(pi_c)
    for _ in range(_NEWTON_STEPS):
        scaled_nc = likelihood_nc * (np.sqrt(share_n) / (likelihood_nc @ pi_c))[:, None]
        hessian_cc = scaled_nc.T @ scaled_nc
        slope_c = 1.0 - hessian_cc @ pi_c
        hessian_cc += _NEWTON_RIDGE * hessian_cc.diagonal().max() * np.eye(number)
        root_cc = np.linalg.cholesky(hessian_cc).T
        target_c = solve_triangular(root_cc, hessian_cc @ pi_c - slope_c, trans="T")
        step_c = nnls(root_cc, target_c, maxiter=100 * number)[0] - pi_c
        # Halve the step until the loss falls by a share of what its slope predicts (Armijo).
        length = 1.0
        while (new := loss(pi_c + length * step_c)) > value + _LEAST_DECREASE * length * (
            slope_c @ step_c
        ) and length > 1e-9:
            length /= 2
        if not value - new > _NEWTON_END:
            break
        pi_c, value = pi_c + length * step_c, new
    pi_c = np.maximum(pi_c, _LEAST_WEIGHT)
    return np.asarray(pi_c / pi_c.sum())
