"""Categories of a mixture: tables of probabilities, estimated from noisy counts by empirical Bayes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import tuned


def starts(sizes: Sequence[int]) -> list[slice]:
    """The places of each column among all categories."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


def one_hot(code_nj: Ints, sizes: Sequence[int]) -> Floats:
    """1 at the category of each column, (n, V)."""
    one_hot_nv = np.zeros((len(code_nj), sum(sizes)))
    for places, code_n in zip(starts(sizes), code_nj.T, strict=True):
        one_hot_nv[np.arange(len(one_hot_nv)), places.start + code_n] = 1.0
    return one_hot_nv


def log_density(code_nj: Ints, log_kv: Floats, sizes: Sequence[int]) -> Floats:
    """Log-probability of every row under every component, (n, K)."""
    log_vk, log_nk = np.ascontiguousarray(log_kv.T), np.zeros((len(code_nj), len(log_kv)))
    for places, code_n in zip(starts(sizes), code_nj.T, strict=True):
        log_nk += log_vk[places.start + code_n]
    return log_nk


def shares(cell_kv: Floats, number_k: Floats, base_v: Floats, std: Floats | float, sizes: Sequence[int]) -> Floats:
    """How much of each noisy count's way from the marginals is not noise, in [0, 1], (k, V); see `read`."""
    share_kv, square_v = np.ones_like(cell_kv), np.square(np.broadcast_to(std, cell_kv.shape[1:]))
    for places in starts(sizes) if np.any(square_v > 0) else []:
        base_kv = number_k[:, None] * base_v[..., places]
        signal = float(np.sum((cell_kv[:, places] - base_kv) ** 2 - square_v[places]))
        scale = max(signal, 0.0) / max(float(np.sum(base_kv * number_k[:, None])), 1e-300)
        variance_kv = scale * base_kv * number_k[:, None]
        share_kv[:, places] = variance_kv / (variance_kv + square_v[places])
    return share_kv


def read(cell_kv: Floats, number_k: Floats, base_v: Floats, std: float, sizes: Sequence[int]) -> Floats:
    """Expected counts of the posterior, (k, V): noisy ones, shrunk towards the released marginals.

    Args:
        cell_kv: noisy counts of every category in every component.
        number_k: rows of each component.
        base_v: marginals of all rows, which sum to 1 in each column; or (k, V), probabilities of each component.
        std: noise standard deviation of a count.
        sizes: categories of each column.
    """
    return drawn(cell_kv, number_k, base_v, std, sizes) + tuned.MARGINAL_ROWS * base_v


def drawn(cell_kv: Floats, number_k: Floats, base_v: Floats, std: Floats | float, sizes: Sequence[int]) -> Floats:
    """Noisy counts, at least 0, shrunk towards the released marginals by their noise, (k, V).

    Args:
        cell_kv, number_k, base_v, sizes: as in `read`.
        std: noise standard deviation of each count, (V,), or of all.
    """
    base_kv = number_k[:, None] * base_v
    away_kv = shares(cell_kv, number_k, base_v, std, sizes) * (cell_kv - base_kv)
    return np.maximum(base_kv + away_kv, 0.0)


def totals(expected_kv: Floats, sizes: Sequence[int]) -> Floats:
    """In the place of each category the sum over its column, (k, V)."""
    total_kv = np.empty_like(expected_kv)
    for places in starts(sizes):
        total_kv[:, places] = expected_kv[:, places].sum(axis=1, keepdims=True)
    return total_kv


def normalised(expected_kv: Floats, sizes: Sequence[int]) -> Floats:
    """Probabilities in the proportions of positive numbers, column by column."""
    return expected_kv / totals(expected_kv, sizes)


def marginals(cell_v: Floats, std: float, sizes: Sequence[int]) -> Floats:
    """Probabilities of all rows from their noisy counts: uniform where these are lost in the noise."""
    marginal_v = np.empty_like(cell_v)
    for places, size in zip(starts(sizes), sizes, strict=True):
        positive_v = np.maximum(cell_v[places], 0.0) + max(std, 1.0) / math.sqrt(size)
        marginal_v[places] = positive_v / positive_v.sum()
    return marginal_v


def drawn_codes(probability_kv: Floats, k_n: Ints, sizes: Sequence[int], rng: np.random.Generator) -> Ints:
    """Places of categories of rows of these components, (n, D)."""
    code_nj = np.empty((len(k_n), len(sizes)), dtype=np.int64)
    for place, places in enumerate(starts(sizes)):
        ends_kv = np.cumsum(probability_kv[:, places], axis=1)
        code_n = (rng.random(len(k_n))[:, None] >= ends_kv[k_n]).sum(axis=1)
        code_nj[:, place] = np.minimum(code_n, places.stop - places.start - 1)
    return code_nj
