"""The kernel of topics in plain NumPy, float64, one document at a time: what the compiled loops are compared with.

`local_step` and `accumulate` are called as those of `dpvb.models.topics.kernel`; both are one thread whatever is asked.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from dpvb.guards.arrays import Floats
from dpvb.models.topics.kernel import TIGHT
from dpvb.models.topics.kernel_numba import HUGE, KEPT, MOST_MOMENTUM, NO_MASS, ROUNDING, TINY


def local_step(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: Floats,
    b_vk: NDArray[np.floating],
    alpha_k: Floats,
    *,
    spread_j: Floats | None = None,
    tol: float = 1e-3,
    max_iter: int = 30,
    fixed_iterations: bool = False,
    threads: int | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return θ without its constant factor, ratios, norms and γ of every document."""
    accelerate = tol >= TIGHT
    spread_j = counts if spread_j is None else spread_j
    num_docs, num_topics = indptr.size - 1, alpha_k.size
    theta_nk, gamma_nk = np.empty((num_docs, num_topics)), np.tile(alpha_k, (num_docs, 1))
    ratio_j, norm_n = np.zeros(indices.size), np.zeros(num_docs)
    for n in range(num_docs):
        row = slice(int(indptr[n]), int(indptr[n + 1]))
        words, c_j = indices[row], counts[row]
        sound = np.all(np.diff(words, prepend=-1) > 0) and np.all(words < b_vk.shape[0])
        sound = sound and np.all((c_j >= 0) & (c_j <= HUGE)) and np.any(c_j >= TINY)
        sound = sound and np.all((spread_j[row] >= 0) & (spread_j[row] <= HUGE))
        if sound:
            b_jk = b_vk[words].astype(np.float64)
            gamma_nk[n] = _fixed_point(c_j, b_jk, alpha_k, tol, max_iter, fixed_iterations, accelerate)
        theta_nk[n] = np.exp(digamma(gamma_nk[n]))
        if sound:
            largest = spread_j[row].max() or 1.0
            ratio_j[row] = r_j = _ratio(spread_j[row], b_jk @ theta_nk[n])
            s_jk = (theta_nk[n] * b_jk) * (r_j / largest)[:, None]
            norm_n[n] = largest * np.linalg.norm(s_jk) * (1.0 + (num_topics + words.size + 16) * ROUNDING)
    return theta_nk, ratio_j, norm_n, gamma_nk


def _fixed_point(
    c_j: Floats, b_jk: Floats, alpha_k: Floats, tol: float, max_iter: int, fixed_iterations: bool, accelerate: bool
) -> Floats:
    from scipy.special import digamma

    gamma_k = last_k = np.ones(alpha_k.size)
    step = 1.0
    for _ in range(max_iter):
        theta_k = np.exp(digamma(gamma_k) - digamma(gamma_k.max()))
        new_k: Floats = alpha_k + theta_k * (_ratio(c_j, b_jk @ theta_k) @ b_jk)
        residual_k = new_k - gamma_k
        if np.abs(residual_k).mean() < tol and not fixed_iterations:
            break
        if accelerate:
            step = 1.0 if residual_k @ (new_k - last_k) < 0 else step + 1.0
        momentum = min(1.0 - 1.0 / step, MOST_MOMENTUM)
        ahead_k = new_k + momentum * (new_k - last_k)
        gamma_k = np.maximum(ahead_k, alpha_k + KEPT * (new_k - alpha_k))
        last_k = new_k
    return new_k


def _ratio(c_j: Floats, p_j: Floats) -> Floats:
    """Ratios c / p, and 0 where no topic gives the word any probability."""
    return np.divide(c_j, p_j, out=np.zeros_like(c_j), where=~(p_j < NO_MASS))


def accumulate(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratio_j: Floats,
    theta_nk: Floats,
    weight_n: Floats,
    b_vk: NDArray[np.floating],
    grid: float,
    out_vk: NDArray[np.int64],
    *,
    bound: float = math.inf,
    threads: int | None = None,
) -> None:
    """Add Σ_n trunc(weight_n s_n / grid) to `out_vk`, to the bits of the compiled loops."""
    most = min(bound / grid, 2.0**62)
    for n in np.flatnonzero(weight_n):
        row = slice(int(indptr[n]), int(indptr[n + 1]))
        inside = (indices[row] >= 0) & (indices[row] < b_vk.shape[0])
        words, r_j = indices[row][inside], ratio_j[row][inside]
        scale_j = weight_n[n] * r_j / grid
        s_jk = (theta_nk[n] * b_vk[words].astype(np.float64)) * scale_j[:, None]
        np.add.at(out_vk, words, np.where(s_jk > 0, np.minimum(s_jk, most), 0.0).astype(np.int64))
