"""The loops of ``dpvb.kernels.lda``, compiled on first use.

Every function works on a range of documents, or of words, and holds no lock, so that the caller spreads ranges over
threads. No result of a document depends on the range it came in.

``nnan`` and ``ninf`` are left out of the fast-math flags: a NaN must reach the clip, which turns it into zero.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

FLAGS = {"contract", "reassoc", "nsz", "arcp"}
NO_MASS = 1e-200  # below this probability a word has no topic: it adds nothing
SMALL32 = np.float32(1e-30)
ROUNDING = 2.0**-52


def _compile(function: Callable[..., Any]) -> Any:
    """Compile with the on-disk cache, or without where no cache directory can be written."""
    options = {"nogil": True, "fastmath": FLAGS, "error_model": "numpy", "boundscheck": False}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


@_compile
def exp_digamma(x_k, out_k):
    """exp(ψ(x)) for x > 0 by ψ(x) = ψ(x + 6) - Σ 1/(x + i) and the series of exp(ψ(z + 1/2)) in 1/z."""
    for k in range(x_k.size):
        x = x_k[k]
        u = x * (x + 5.0)
        shift = (2.0 * x + 5.0) * ((3.0 * u + 20.0) * u + 24.0) / (u * (u + 4.0) * (u + 6.0))
        z = 1.0 / (x + 5.5)
        w = z * z
        series = 1.0 / z + z * (
            1 / 24 + w * (-37 / 5760 + w * (10313 / 2903040 + w * (-5509121 / 1393459200)))
        )
        # exp(-shift) by (1 - ...)^1024: no table and no bit trick, so the loop stays in vector registers
        t = -(700.0 if shift > 700.0 else shift) / 1024.0
        e = 1.0 + t * (
            1.0 + t / 2 * (1.0 + t / 3 * (1.0 + t / 4 * (1.0 + t / 5 * (1.0 + t / 6 * (1.0 + t / 7)))))
        )
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        out_k[k] = series * e


@_compile
def _iterate(block_kj, counts_j, alpha_k, gamma_k, theta_k, weight_k, p_j, tol, max_iter, fixed_work):
    """Run the fixed point on one document's block of word probabilities; return the iterations used."""
    num_topics, num_words = block_kj.shape
    zero = counts_j[0] * 0
    for iteration in range(max_iter):
        exp_digamma(gamma_k, theta_k)
        top = 0.0
        for k in range(num_topics):
            top = max(top, theta_k[k])
        for k in range(num_topics):
            weight_k[k] = theta_k[k] / top
        p_j[:] = zero
        for k in range(num_topics):
            w = weight_k[k]
            for j in range(num_words):
                p_j[j] += w * block_kj[k, j]
        for j in range(num_words):
            p = p_j[j]
            p_j[j] = counts_j[j] / (SMALL32 if p < SMALL32 else p)
        change = 0.0
        for k in range(num_topics):
            g = zero
            for j in range(num_words):
                g += block_kj[k, j] * p_j[j]
            new = alpha_k[k] + np.float64(weight_k[k]) * np.float64(g)
            change += abs(new - gamma_k[k])
            gamma_k[k] = new
        if not fixed_work and change < tol * num_topics:
            return iteration + 1
    return max_iter


@_compile
def local_range(
    first,
    last,
    indptr,
    indices,
    counts,
    b_vk,
    alpha_k,
    tol,
    max_iter,
    fixed_work,
    theta_nk,
    ratio_j,
    norm_n,
    gamma_nk,
):
    """Fixed point, probability ratios and norm bound of the documents first..last-1, written in place."""
    num_terms, num_topics = b_vk.shape
    longest = 1
    for n in range(first, last):
        longest = max(longest, indptr[n + 1] - indptr[n])
    block32 = np.empty(num_topics * longest, np.float32)
    counts32 = np.empty(longest, np.float32)
    p32 = np.empty(longest, np.float32)
    weight32 = np.empty(num_topics, np.float32)
    block64 = np.empty(1, np.float64)
    counts64 = np.empty(longest, np.float64)
    p64 = np.empty(longest, np.float64)
    weight64 = np.empty(num_topics, np.float64)
    for n in range(first, last):
        begin, end = indptr[n], indptr[n + 1]
        num_words = end - begin
        gamma_k = gamma_nk[n]
        theta_k = theta_nk[n]
        gamma_k[:] = 1.0
        length = 0.0
        sound = True
        before = -1
        for i in range(begin, end):
            sound = sound and before < indices[i] and indices[i] < num_terms
            before = indices[i]
            length += counts[i]
        if not sound or length == 0.0:
            theta_k[:] = 0.0
            gamma_k[:] = alpha_k
            ratio_j[begin:end] = 0.0
            norm_n[n] = 0.0
            continue
        kj = block32[: num_topics * num_words].reshape(num_topics, num_words)
        for j in range(num_words):
            counts32[j] = counts[begin + j]
            for k in range(num_topics):
                kj[k, j] = b_vk[indices[begin + j], k]
        resolution = 1e-6 * length / num_topics  # what float32 sums can tell apart, with a margin
        used = _iterate(
            kj, counts32[:num_words], alpha_k, gamma_k, theta_k, weight32, p32[:num_words],
            max(tol, resolution), max_iter, fixed_work,
        )  # fmt: skip
        if tol < resolution and used < max_iter:
            if block64.size < num_topics * num_words:
                block64 = np.empty(num_topics * num_words, np.float64)
            kj64 = block64[: num_topics * num_words].reshape(num_topics, num_words)
            for j in range(num_words):
                counts64[j] = counts[begin + j]
                for k in range(num_topics):
                    kj64[k, j] = b_vk[indices[begin + j], k]
            _iterate(
                kj64, counts64[:num_words], alpha_k, gamma_k, theta_k, weight64, p64[:num_words],
                tol, max_iter - used, fixed_work,
            )  # fmt: skip
        exp_digamma(gamma_k, theta_k)
        square = 0.0
        for i in range(begin, end):
            v = indices[i]
            p = 0.0
            p2 = 0.0
            for k in range(num_topics):
                a = theta_k[k] * b_vk[v, k]
                p += a
                p2 += a * a
            if p < NO_MASS:
                ratio_j[i] = 0.0
                continue
            ratio_j[i] = counts[i] / p
            if p < 1e-100:  # the squares may have underflowed
                p2 = 0.0
                for k in range(num_topics):
                    a = theta_k[k] * b_vk[v, k] / p
                    p2 += a * a
                p = 1.0
            share = counts[i] / length
            square += share * share * p2 / (p * p)
        norm_n[n] = length * np.sqrt(square) * (1.0 + (num_topics + num_words + 16) * ROUNDING)


@_compile
def accumulate_range(
    first, last, first_word, last_word, indptr, indices, ratio_j, theta_nk, weight_n, b_vk, grid, out_vk
):
    """Add the documents' truncated integers for the words first_word..last_word-1 only."""
    num_topics = b_vk.shape[1]
    for n in range(first, last):
        weight = weight_n[n]
        if weight == 0.0:
            continue
        for i in range(indptr[n], indptr[n + 1]):
            v = indices[i]
            if v < first_word or v >= last_word:
                continue
            scale = weight * ratio_j[i] / grid
            for k in range(num_topics):
                out_vk[v, k] += np.int64(theta_nk[n, k] * b_vk[v, k] * scale)
