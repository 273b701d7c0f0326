"""E-step of latent Dirichlet allocation: documents in, clipped-sum ingredients out (METHOD: topic models).

=====================  =====================================================================
paper                  code
=====================  =====================================================================
γ_n                    ``gamma_nk``
exp⟨log θ_n⟩           ``theta_nk`` (``exp_elog_theta_nk``)
exp⟨log β⟩             ``b_vk`` (``exp_elog_beta_vk``), words first
p_v = Σ_k θ_k B_kv     never kept; ``ratio_j`` = c_v / p_v for every stored entry j
s_kv = c_v φ_vk        never kept; θ_k B_kv c_v / p_v
=====================  =====================================================================

Every row of ``exp_elog_beta_vk`` may be scaled by a positive factor of its own: the statistic does not change.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpvb.errors import check_choice

Float = NDArray[np.float64]
Engine = Literal["numba", "numpy"]
_DOCUMENTS_A_TASK = 256


def local_step(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.floating],
    exp_elog_beta_vk: NDArray[np.floating],
    alpha_k: Float,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    fixed_work: bool = False,
    engine: Engine = "numba",
    threads: int | None = None,
) -> tuple[Float, Float, Float, Float]:
    """Run each document's own fixed point and bound the norm of its statistic.

    ``indptr``, ``indices``, ``counts`` are CSR rows with strictly increasing word ids in each row and counts >= 0; a row
    that breaks the first or leaves the vocabulary is taken as empty. ``exp_elog_beta_vk`` is V x K, ``alpha_k`` (K,).
    A document starts at γ = 1 and stops by itself when mean |Δγ| < ``tol``, at most after ``max_iter`` rounds;
    ``fixed_work`` makes every document run exactly ``max_iter``.

    Returns ``(exp_elog_theta_nk, ratio_j, norm_n, gamma_nk)``, all float64 and all private. ``ratio_j`` is
    c_v / Σ_k θ_k B_kv of every stored entry, so that s_kv = θ_k B_kv ratio_j. ``norm_n`` bounds ‖s_n‖_F, rounding
    included. A document that is empty has norm 0. No result depends on the batch, its order or ``threads``.

    Source: Blei, Ng and Jordan 2003; Hoffman, Blei and Bach 2010, algorithm 1.
    """
    check_choice("engine", engine, ("numba", "numpy"))
    num_docs, num_topics = indptr.size - 1, alpha_k.size
    if engine == "numpy":
        return _local_numpy(indptr, indices, counts, exp_elog_beta_vk, alpha_k, tol, max_iter, fixed_work)
    from dpvb.kernels import lda_numba

    theta_nk = np.empty((num_docs, num_topics))
    gamma_nk = np.empty((num_docs, num_topics))
    ratio_j = np.empty(indices.size)
    norm_n = np.empty(num_docs)
    b_vk = np.ascontiguousarray(exp_elog_beta_vk)
    alpha_k = np.ascontiguousarray(alpha_k, dtype=np.float64)

    def task(first: int) -> None:
        last = min(first + _DOCUMENTS_A_TASK, num_docs)
        lda_numba.local_range(
            first, last, indptr, indices, counts, b_vk, alpha_k, float(tol), int(max_iter), bool(fixed_work),
            theta_nk, ratio_j, norm_n, gamma_nk,
        )  # fmt: skip

    _spread(task, range(0, num_docs, _DOCUMENTS_A_TASK), threads)
    return theta_nk, ratio_j, norm_n, gamma_nk


def accumulate(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratio_j: Float,
    exp_elog_theta_nk: Float,
    weight_n: Float,
    exp_elog_beta_vk: NDArray[np.floating],
    grid: float,
    out_vk: NDArray[np.int64],
    *,
    engine: Engine = "numba",
    threads: int | None = None,
) -> None:
    """Add each document's weighted statistic, truncated toward zero onto multiples of ``grid``, to ``out_vk``.

    ``out_vk`` (V x K, int64, C order) receives Σ_n trunc(weight_n s_n / grid). Integers make the sum the same bits for
    any order, split and ``threads``. A document of weight zero is not read; a document whose norm is not finite must
    have weight zero. The caller checks beforehand that no sum can pass 2⁶³.
    """
    check_choice("engine", engine, ("numba", "numpy"))
    if engine == "numpy":
        _accumulate_numpy(
            indptr, indices, ratio_j, exp_elog_theta_nk, weight_n, exp_elog_beta_vk, grid, out_vk
        )
        return
    from dpvb.kernels import lda_numba

    num_docs, num_terms = indptr.size - 1, out_vk.shape[0]
    b_vk = np.ascontiguousarray(exp_elog_beta_vk)
    count = _threads(threads)
    if count == 1:
        edges = np.array([0, num_terms])
    else:  # word ranges of equal work, so that threads never write the same row
        used_v = np.bincount(indices, minlength=num_terms)[:num_terms].cumsum()
        edges = np.concatenate(
            [[0], np.searchsorted(used_v, used_v[-1] * np.arange(1, count) / count), [num_terms]]
        )

    def task(part: int) -> None:
        lda_numba.accumulate_range(
            0, num_docs, int(edges[part]), int(edges[part + 1]), indptr, indices, ratio_j, exp_elog_theta_nk, weight_n,
            b_vk, float(grid), out_vk,
        )  # fmt: skip

    _spread(task, range(edges.size - 1), threads)


def _threads(threads: int | None) -> int:
    if threads is not None:
        return max(1, threads)
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


def _spread(task: Callable[[int], None], parts: range, threads: int | None) -> None:
    count = min(_threads(threads), len(parts))
    if count <= 1:
        for part in parts:
            task(part)
        return
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(task, parts):
            pass


def _local_numpy(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.floating],
    exp_elog_beta_vk: NDArray[np.floating],
    alpha_k: Float,
    tol: float,
    max_iter: int,
    fixed_work: bool,
) -> tuple[Float, Float, Float, Float]:
    """Plain float64 form of ``local_step``."""
    from scipy.special import digamma

    num_docs, num_topics = indptr.size - 1, alpha_k.size
    theta_nk = np.zeros((num_docs, num_topics))
    gamma_nk = np.tile(np.asarray(alpha_k, dtype=np.float64), (num_docs, 1))
    ratio_j = np.zeros(indices.size)
    norm_n = np.zeros(num_docs)
    for n in range(num_docs):
        row = slice(int(indptr[n]), int(indptr[n + 1]))
        words, c_j = indices[row], np.asarray(counts[row], dtype=np.float64)
        sound = np.all(np.diff(words) > 0) and np.all((words >= 0) & (words < exp_elog_beta_vk.shape[0]))
        length = c_j.sum()
        if not sound or length == 0:
            continue
        b_jk = exp_elog_beta_vk[words].astype(np.float64)
        gamma_k = np.ones(num_topics)
        theta_k = np.exp(digamma(gamma_k))
        for _ in range(max_iter):
            new_k = alpha_k + theta_k * (_ratio(c_j, b_jk @ theta_k) @ b_jk)
            change = np.abs(new_k - gamma_k).mean()
            gamma_k = new_k
            theta_k = np.exp(digamma(gamma_k))
            if not fixed_work and change < tol:
                break
        r_j = _ratio(c_j, b_jk @ theta_k)
        gamma_nk[n], theta_nk[n], ratio_j[row] = gamma_k, theta_k, r_j
        slack = 1.0 + (num_topics + words.size + 16) * 2.0**-52
        norm_n[n] = length * np.linalg.norm((b_jk * theta_k) * (r_j / length)[:, None]) * slack
    return theta_nk, ratio_j, norm_n, gamma_nk


def _ratio(c_j: Float, p_j: Float) -> Float:
    """c / p, and 0 where no topic gives the word any probability."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where(p_j < 1e-200, 0.0, c_j / p_j)


def _accumulate_numpy(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratio_j: Float,
    exp_elog_theta_nk: Float,
    weight_n: Float,
    exp_elog_beta_vk: NDArray[np.floating],
    grid: float,
    out_vk: NDArray[np.int64],
) -> None:
    """Plain form of ``accumulate``."""
    for n in np.flatnonzero(weight_n):
        row = slice(int(indptr[n]), int(indptr[n + 1]))
        scale_j = weight_n[n] * ratio_j[row] / grid
        words = indices[row]
        s_jk = (exp_elog_theta_nk[n] * exp_elog_beta_vk[words].astype(np.float64)) * scale_j[:, None]
        np.add.at(out_vk, words, np.trunc(s_jk).astype(np.int64))
