"""E-step of the sigmoid belief network, and the exact sums of its scores.

=====================  ===========================================================================
paper                  code
=====================  ===========================================================================
w_j                    `w_kj`: hidden units first
⟨z_n⟩                  `pi_nk`
⟨ξ_nj⟩                 `xi_nj` = tanh(g/2) / (2g) at g² = ⟨ψ_nj²⟩
⟨ψ_nj⟩                 `psi_nj`
r_n = y_n - ½ - ξ_n⟨ψ_n⟩  `r_nj`; p_n = π_n - z̄: `p_nk`; a_n = π_n(1 - π_n): `a_nk`
gradient of the bound  never kept: s_kj = r_j p_k - w_kj ξ_j a_k
=====================  ===========================================================================

`local_step` climbs each example's own bound from a common public start; `score_norms` gives the norms of the
gradients, from which the clip forms weights; `add_scores` adds the weighted gradients as integers. The last two
compute every entry by the same operations in the same dtype: the bound of `score_norms` holds for what is added.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from dpvb.guards.arrays import Floats
from dpvb.kernels.threads import num_threads, spread

Real = NDArray[np.floating[Any]]

LANES = 16
EXAMPLES_A_TASK = 64
ROUNDING = 2.0**-52


class Start(NamedTuple):
    """The common start of all examples: π = σ(⟨b⟩), and what follows from it; public."""

    pi_k: Real
    psi_j: Real
    xi_j: Real
    curve_k: Real
    cross_k: Real


def xi_of(second: Floats) -> Floats:
    """⟨ξ⟩ = tanh(g/2) / (2g) of PG(1, g) at g² = ⟨ψ²⟩ (Polson, Scott & Windle 2013); ¼ at zero."""
    g = np.maximum(np.sqrt(second), 1e-6)
    return np.asarray(np.tanh(g / 2) / (2 * g))


def second_moments(w_kj: Floats, c_j: Floats, pi_nk: Floats) -> tuple[Floats, Floats]:
    """⟨ψ⟩ and ⟨ψ²⟩, (n, J), by matrix products: for public rows only, whose last bits may depend on their batch."""
    psi_nj = pi_nk @ w_kj + c_j
    return psi_nj, psi_nj**2 + (pi_nk * (1 - pi_nk)) @ w_kj**2


def example_bound(y_nj: Real, pi_nk: Floats, psi_nj: Floats, second_nj: Floats, b_k: Floats) -> Floats:
    """Lower bound on each example's log-likelihood, (n,), in nats (Jaakkola & Jordan 2000).

    `psi_nj` and `second_nj` are ⟨ψ⟩ and ⟨ψ²⟩ under q, at which the bound is best.
    """
    visible_nj = (y_nj - 0.5) * psi_nj - _log_two_cosh(second_nj)
    entropy_nk = -xlogy(pi_nk, pi_nk) - xlogy(1 - pi_nk, 1 - pi_nk)
    hidden_nk = (pi_nk - 0.5) * b_k - _log_two_cosh(b_k**2) + entropy_nk
    return np.asarray(visible_nj.sum(axis=1) + hidden_nk.sum(axis=1))


def _log_two_cosh(second: Floats) -> Floats:
    """log(2 cosh(g/2)) at g² = second."""
    g = np.sqrt(second)
    return np.asarray(g / 2 + np.log1p(np.exp(-g)))


def local_step(
    y_nj: Real,
    w_kj: Floats,
    c_j: Floats,
    b_k: Floats,
    *,
    sweeps: int = 3,
    dtype: type[np.floating[Any]] = np.float32,
    threads: int | None = None,
) -> tuple[Real, Real, Real]:
    """Coordinate ascent over the hidden units of each example, `sweeps` times from π = σ(⟨b⟩).

    `y_nj` (n, J) holds zeros and ones, private; a row with NaN gives NaN. `w_kj` (K, J), `c_j` (J,) and `b_k`
    (K,) are public. ξ is brought to its optimum before each sweep and after the last one.

    Returns `(pi_nk, xi_nj, psi_nj)` in `dtype`, private. A row of the result depends on that
    row and the public arguments only: not on the batch, its order or `threads`.

    Source: Gan, Henao, Carlson & Carin 2015; Park, Foulds, Chaudhuri & Welling 2020, section 6.
    """
    start = _start(w_kj, c_j, b_k)
    n_units, num_visible = y_nj.shape
    pi_nk = np.empty((n_units, w_kj.shape[0]), dtype)
    xi_nj, psi_nj = np.empty((2, n_units, num_visible), dtype)

    from dpvb.models.belief_network import kernel_numba

    wide_kj, wide_b_k = _padded(w_kj, (2, LANES), dtype), _padded(b_k, (2,), dtype)
    begin = (
        _padded(start.pi_k, (2,), dtype),
        _padded(start.psi_j, (LANES,), dtype),
        _padded(start.xi_j, (LANES,), dtype, fill=0.25),
        _padded(start.curve_k, (2,), dtype),
        _padded(start.cross_k, (2,), dtype),
    )
    rows = np.ascontiguousarray(y_nj, dtype=dtype)

    def task(first: int) -> None:
        last = min(first + EXAMPLES_A_TASK, n_units)
        kernel_numba.local_range(first, last, rows, wide_kj, wide_b_k, sweeps, begin, pi_nk, xi_nj, psi_nj)

    spread(task, range(0, n_units, EXAMPLES_A_TASK), num_threads(threads))
    return pi_nk, xi_nj, psi_nj


def score_norms(
    r_nj: Real,
    xi_nj: Real,
    p_nk: Real,
    a_nk: Real,
    w_kj: Real,
    *,
    threads: int | None = None,
) -> Floats:
    """Upper bounds of ‖s_n‖_F, s_kj = r_j p_k - (w_kj ξ_j) a_k, of the very numbers that `add_scores` sums.

    All arrays have one dtype, float32 or float64, of unit roundoff u. In float64, and never built:

        ‖s‖² = A - 2B + V²,   A = ‖r‖²‖p‖²,   B = Σ_k p_k a_k (r∘ξ)·w_k,   V² = Σ_k a_k² (ξ∘ξ)·(w_k∘w_k)

    Sums of J·K products of at most six factors err by at most (J + K + 16)·2⁻⁵² of the sum of magnitudes, which is at
    most (√A + V)² (Cauchy-Schwarz for B). `add_scores` forms an entry by four operations in the arrays' dtype: it is
    off by u|s_kj| + (1 + u)(u|r_j p_k| + (2u + u²)|w_kj ξ_j a_k|) at most, all of them by 4u(√A + V) in norm. The
    addend covers underflow. A row with NaN or infinity gives inf or NaN.
    """
    from dpvb.models.belief_network import kernel_numba

    parts_n3, wide_kj = np.empty((len(r_nj), 3)), w_kj.astype(np.float64)

    def task(first: int) -> None:
        last = min(first + EXAMPLES_A_TASK, len(r_nj))
        kernel_numba.norm_range(first, last, r_nj, xi_nj, p_nk, a_nk, wide_kj, parts_n3)

    spread(task, range(0, len(r_nj), EXAMPLES_A_TASK), num_threads(threads))
    return norms_of_parts(parts_n3, w_kj)


def norms_of_parts(parts_n3: Floats, w_kj: Real) -> Floats:
    """Return the bounds of `score_norms` from A, B and V² of every example, (n, 3)."""
    num_hidden, width = w_kj.shape
    positive_n = np.sqrt(parts_n3[:, 0]) + np.sqrt(parts_n3[:, 2])
    square_n = parts_n3[:, 0] - 2 * parts_n3[:, 1] + parts_n3[:, 2]
    slack_n = (num_hidden + width + 32) * ROUNDING * positive_n**2
    norm_n = np.sqrt(np.maximum(square_n, 0.0) + slack_n) + 2 * float(np.finfo(w_kj.dtype).eps) * positive_n
    return np.asarray(norm_n + num_hidden * width * float(np.finfo(w_kj.dtype).tiny))


def add_scores(
    r_nj: Real,
    xi_nj: Real,
    p_nk: Real,
    a_nk: Real,
    w_kj: Real,
    weight_n: Floats,
    grid: float,
    out_kj: NDArray[np.int64],
    *,
    threads: int | None = None,
) -> None:
    """Add Σ_n trunc(weight_n s_n / grid), truncated toward zero entry by entry, to `out_kj` (K, J), int64.

    `grid` is a power of two. The weight is rounded to the arrays' dtype and multiplied there: an entry grows by a
    factor of at most (1 + 2⁻²⁴)², less than the clip's margin. An example of weight zero is not read. Integer sums are
    the same bits for any order of examples and any `threads`; each thread owns a range of hidden units.
    """
    scale_n = weight_n.astype(w_kj.dtype) * w_kj.dtype.type(1 / grid)
    used = np.flatnonzero(weight_n)

    from dpvb.models.belief_network import kernel_numba

    edges = np.linspace(0, len(w_kj), num_threads(threads) + 1).astype(np.int64)

    def task(part: int) -> None:
        first, last = edges[part], edges[part + 1]
        kernel_numba.score_range(first, last, r_nj, xi_nj, p_nk, a_nk, w_kj, used, scale_n, EXAMPLES_A_TASK, out_kj)

    spread(task, range(len(edges) - 1), num_threads(threads))


def _start(w_kj: Floats, c_j: Floats, b_k: Floats) -> Start:
    """The common start, by sums along an axis: their order, unlike that of a matrix product, is always the same."""
    pi_k = np.asarray(expit(b_k))
    psi_j = (w_kj * pi_k[:, None]).sum(axis=0) + c_j
    xi_j = xi_of(psi_j**2 + (w_kj**2 * (pi_k * (1 - pi_k))[:, None]).sum(axis=0))
    curve_k = (w_kj**2 * xi_j).sum(axis=1)
    return Start(pi_k, psi_j, xi_j, curve_k, (w_kj * np.roll(w_kj, -1, axis=0) * xi_j).sum(axis=1))


def _padded(array: Real, multiples: tuple[int, ...], dtype: type[np.floating[Any]], fill: float = 0.0) -> Real:
    """The array with every axis filled up to a multiple."""
    lengths = [-(-length // multiple) * multiple for length, multiple in zip(array.shape, multiples, strict=True)]
    wide = np.full(lengths, fill, dtype)
    wide[tuple(map(slice, array.shape))] = array
    return wide
