"""E-step of latent Dirichlet allocation over CSR documents, without ever building K x V per document.

=====================  ================================================================
paper                  code
=====================  ================================================================
γ_n                    `gamma_nk`
exp⟨log θ_n⟩           `exp_elog_theta_nk`, `theta_k`: exp ψ(γ_nk), times exp ψ(Σ_k γ_nk)
exp⟨log β⟩             `exp_elog_beta_vk`, `b_vk`: words first
p_v = Σ_k θ_k B_kv     `p_j` at the stored entries j
f(c_v) / p_v           `ratio_j`: what a word spreads over topics, `spread_j`, over p_v; c_v itself by default
s_kv = c_v φ_vk        never kept: θ_k B_kv ratio_j
=====================  ================================================================

`local_step` finds every document's own θ and bounds the norm of its statistic; the clip turns norms into weights;
`accumulate` adds the weighted statistics as integers. Give both the very same topics array: then the bound by
`local_step` holds for what `accumulate` adds. The statistic does not change when a row of the topics array (a
word) or θ_n is multiplied by a positive number: rows scaled to a largest entry of 1 keep float32 in range, and θ_n
is left without its constant factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, Grid, check_shape
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.kernels.threads import num_threads, spread

TIGHT = 1e-4  # below this tolerance: the plain fixed point, in float64
DOCUMENTS_A_TASK = 256
# convention: share of the words up to which a sum over them only is used; at a third both take the same time.
_FEW_WORDS = 0.25


def local_step(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    counts: NDArray[np.floating],
    exp_elog_beta_vk: NDArray[np.floating],
    alpha_k: Floats,
    *,
    spread_j: NDArray[np.floating] | None = None,
    tol: float = 1e-3,
    max_iter: int = 30,
    fixed_iterations: bool = False,
    threads: int | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Run each document's own fixed point γ_k = α_k + Σ_v c_v φ_vk and bound the norm of its statistic.

    `indptr`, `indices`, `counts` are CSR rows, private. A document is taken as empty, silently, if its word
    ids are not strictly increasing and below V, if a count is not in [0, 1e30], or if all are below 1e-100.
    `exp_elog_beta_vk` (V, K), float32 or float64, and `alpha_k` (K,) are public. Every document starts at γ = 1
    and stops by itself when mean |Δγ| < `tol`, at most after `max_iter` evaluations; `fixed_iterations` makes every
    document use exactly `max_iter`. A `tol` below 1e-4 asks for the limit of the plain iteration and gets it in
    float64; otherwise the iteration is accelerated, stops by the same rule, and may settle in another (as a rule
    better) local maximum: 30 accelerated evaluations go about as far as 100 plain ones. A cap matters to learning,
    beyond speed: on topics still near their random start, local steps run to convergence give worse topics than
    capped ones (`benchmarks/e_step_speed.py`). `threads` defaults to Numba's, which `NUMBA_NUM_THREADS` sets.

    Returns `(exp_elog_theta_nk, ratio_j, norm_n, gamma_nk)`, float64 and private: exp ψ(γ_nk) without the factor
    that all topics share, and with it `ratio_j` = spread_j / Σ_k θ_k B_kv at every stored entry, 0 for words without
    probability. `norm_n` is an upper bound of ‖s_n‖_F as `accumulate` computes it, rounding included, and within
    1e-6 of it. NaN topics give NaN norms. A row of the result depends on that document, the topics and alpha only:
    not on the batch, its order or `threads`.

    Raises:
        ParameterError: a public argument has the wrong shape or range.

    Source: Blei, Ng and Jordan 2003, section 5.2; Hoffman, Blei and Bach 2010, algorithm 1. The bound: the n·K
    products are positive, so float64 sums of their squares are short by a factor of at least 1 - (n + K + 8) 2⁻⁵³.
    """
    check_number("tol", tol, low=0.0)
    check_integer("max_iter", max_iter, low=1)
    b_vk, alpha_k = _public_arrays(exp_elog_beta_vk, alpha_k)
    indptr, indices = np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int32)
    count_j: Floats = np.asarray(counts, dtype=np.float64)
    spread_j = count_j if spread_j is None else np.asarray(spread_j, dtype=np.float64)
    accelerate = tol >= TIGHT

    from dpvb.models.topics import kernel_numba

    num_docs, num_topics = indptr.size - 1, alpha_k.size
    theta_nk, gamma_nk = np.empty((num_docs, num_topics)), np.empty((num_docs, num_topics))
    ratio_j, norm_n = np.empty(indices.size), np.empty(num_docs)
    precision = np.empty(0, dtype=b_vk.dtype if accelerate else np.float64)

    def task(first: int) -> None:
        kernel_numba.local_range(
            first,
            min(first + DOCUMENTS_A_TASK, num_docs),
            indptr,
            indices,
            count_j,
            spread_j,
            b_vk,
            alpha_k,
            float(tol),
            int(max_iter),
            bool(fixed_iterations),
            accelerate,
            precision,
            theta_nk,
            ratio_j,
            norm_n,
            gamma_nk,
        )

    spread(task, range(0, num_docs, DOCUMENTS_A_TASK), num_threads(threads))
    return theta_nk, ratio_j, norm_n, gamma_nk


def accumulate(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    ratio_j: Floats,
    exp_elog_theta_nk: Floats,
    weight_n: Floats,
    exp_elog_beta_vk: NDArray[np.floating],
    grid: float,
    out_vk: NDArray[np.int64],
    *,
    bound: float = math.inf,
    threads: int | None = None,
) -> None:
    """Add Σ_n trunc(weight_n s_n / grid), truncated toward zero entry by entry, to `out_vk`.

    Entries are nonnegative and at most `bound`, which weight_n ‖s_n‖ never exceeds; what is negative or no number
    counts as 0, so that no topics whatever make a sum of anything else. `out_vk` is V x K, int64, C order; the other
    arrays are those of `local_step`. Integer sums are the same bits for any order and split of the documents and any
    `threads`; each thread owns a range of words, so none needs a copy of `out_vk`. A document of weight zero is not
    read. The caller gives weight zero where the norm is not finite, and has checked that no sum can reach 2⁶³.

    Raises:
        ParameterError: a public argument has the wrong shape, dtype or range.
    """
    check_number("grid", grid, low=0.0, closed="neither")
    most = min(check_number("bound", bound, low=0.0) / grid, 2.0**62)
    b_vk, _ = _public_arrays(exp_elog_beta_vk, np.ones(exp_elog_beta_vk.shape[-1]))
    if out_vk.shape != b_vk.shape or out_vk.dtype != np.int64 or not out_vk.flags.c_contiguous:
        raise ParameterError(
            f"out_vk must be an int64 array in C order of the topics' shape {b_vk.shape}; it is {out_vk.dtype} of "
            f"shape {out_vk.shape}. Make it with np.zeros(exp_elog_beta_vk.shape, np.int64)."
        )
    indptr, indices = np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int32)

    from dpvb.models.topics import kernel_numba

    parts = min(num_threads(threads), max(len(indptr) - 1, 1))  # To start a thread takes longer than to add a document.
    edges = _word_ranges(indices, b_vk.shape[0], parts)

    def task(part: int) -> None:
        kernel_numba.accumulate_range(
            edges[part],
            edges[part + 1],
            indptr,
            indices,
            ratio_j,
            exp_elog_theta_nk,
            weight_n,
            b_vk,
            float(grid),
            most,
            out_vk,
        )

    spread(task, range(parts), parts)


def _public_arrays(b_vk: NDArray[np.floating], alpha_k: Floats) -> tuple[NDArray[np.floating], Floats]:
    alpha_k = np.ascontiguousarray(alpha_k, dtype=np.float64)
    if b_vk.ndim != 2 or b_vk.dtype not in (np.float32, np.float64) or alpha_k.shape != b_vk.shape[1:]:
        raise ParameterError(
            f"exp_elog_beta_vk must be a V x K array of float32 or float64 and alpha_k of length K; they are "
            f"{b_vk.dtype} of shape {b_vk.shape} and of shape {alpha_k.shape}. Words come first: transpose K x V."
        )
    return np.ascontiguousarray(b_vk), alpha_k


def _word_ranges(indices: NDArray[np.int32], num_terms: int, parts: int) -> NDArray[np.int64]:
    """Cut the vocabulary where the work is equal; the cut changes no result."""
    if parts == 1:
        return np.array([0, num_terms])
    inside = indices[(indices >= 0) & (indices < num_terms)]
    work_v = np.bincount(inside, minlength=num_terms).cumsum()
    cuts = np.searchsorted(work_v, inside.size * np.arange(1, parts) / parts)
    return np.concatenate([[0], cuts, [num_terms]])


# Topic statistics as contributions: factors that are multiplied where they are added.


@dataclass(frozen=True)
class Factored:
    """Topic statistics s_n[v, k] = theta_nk · beta_vk · ratio_j over the words v of document n, never built.

    Attributes:
        indptr, indices: CSR structure of the documents; entry j is word indices[j].
        ratio: weight of entry j, count over mixture probability.
        theta: (n, K) unnormalised topic proportions.
        beta: (V, K) unnormalised word probabilities.
        norm: (n,) proven upper bounds on ‖s_n‖_F of these very numbers.
    """

    indptr: Ints
    indices: NDArray[np.int32]
    ratio: Floats
    theta: NDArray[Any]
    beta: NDArray[Any]
    norm: Floats

    def of_block(self, block: Block, num_rows: int) -> Factored:
        """Itself, of the block's words and topics."""
        check_shape((*self.norm.shape, *self.beta.shape), num_rows, *block.shape)
        return self

    def norms(self) -> Floats:
        """Norms found by the local step."""
        return self.norm

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate each word's K entries and add them, in the kernel, which sets negative ones to 0."""
        accumulate(
            self.indptr,
            self.indices,
            self.ratio,
            self.theta,
            weights,
            self.beta,
            grid.step,
            out,
            bound=grid.bound,
        )

    def nonnegative(self) -> Factored:
        """Itself: the kernel sets negative entries to 0."""
        return self

    def touched(self, weights: Floats) -> tuple[Any, Factored]:
        """The words of the documents with a weight, and the statistics of these words, if they are few."""
        num_terms, used_j = len(self.beta), np.repeat(weights != 0, np.diff(self.indptr))
        used_j &= (self.indices >= 0) & (self.indices < num_terms)
        is_touched_v = np.zeros(num_terms, dtype=np.bool_)
        is_touched_v[self.indices[used_j]] = True
        word_t = np.flatnonzero(is_touched_v)
        if len(word_t) > _FEW_WORDS * num_terms:
            return slice(None), self
        place_v = (np.cumsum(is_touched_v) - 1).astype(np.int32)
        # Entries that are not used have the place of no word.
        place_j = np.full_like(self.indices, -1)
        place_j[used_j] = place_v[self.indices[used_j]]
        return word_t, replace(self, indices=place_j, beta=self.beta[word_t])
