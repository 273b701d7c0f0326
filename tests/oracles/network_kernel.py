"""The kernel of belief networks in plain NumPy, one example at a time: what the compiled loops are compared with.

All are called as those of `dpvb.models.belief_network.kernel`; one thread works whatever is asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpvb.guards.arrays import Floats
from dpvb.models.belief_network.kernel import Real, norms_of_parts, xi_of


def local_step(
    y_nj: Real,
    w_kj: Floats,
    c_j: Floats,
    b_k: Floats,
    *,
    sweeps: int = 3,
    dtype: Any = np.float64,
) -> tuple[Real, Real, Real]:
    """Return ⟨z⟩, ⟨ξ⟩ and ⟨ψ⟩ of every example, in float64."""
    pi_nk = np.tile(expit(b_k), (len(y_nj), 1))
    xi_nj, psi_nj = np.empty((2, len(y_nj), w_kj.shape[1]))
    for n, y_j in enumerate(y_nj.astype(np.float64)):
        pi_k = pi_nk[n]
        psi_j = pi_k @ w_kj + c_j
        for sweep in range(sweeps + 1):
            second_j = psi_j**2 + (pi_k * (1 - pi_k)) @ w_kj**2
            xi_j = xi_of(second_j)
            for k in range(len(pi_k) if sweep < sweeps else 0):
                others_j = psi_j - w_kj[k] * pi_k[k]
                logit = b_k[k] + w_kj[k] @ (y_j - 0.5) - 0.5 * (xi_j @ (2 * others_j * w_kj[k] + w_kj[k] ** 2))
                pi_k[k] = expit(logit)
                psi_j = others_j + w_kj[k] * pi_k[k]
        xi_nj[n], psi_nj[n] = xi_j, psi_j
    return pi_nk, xi_nj, psi_nj


def score_norms(r_nj: Real, xi_nj: Real, p_nk: Real, a_nk: Real, w_kj: Real) -> Floats:
    """Return upper bounds of the norms of the numbers that `add_scores` sums."""
    parts_n3 = np.empty((len(r_nj), 3))
    for n in range(len(r_nj)):
        r_j, xi_j, p_k, a_k, wide_kj = (x.astype(np.float64) for x in (r_nj[n], xi_nj[n], p_nk[n], a_nk[n], w_kj))
        cross = float(p_k * a_k @ (wide_kj @ (r_j * xi_j)))
        parts_n3[n] = (r_j @ r_j) * (p_k @ p_k), cross, a_k**2 @ (wide_kj**2 @ xi_j**2)
    return norms_of_parts(parts_n3, w_kj)


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
    """Add Σ_n trunc(weight_n s_n / grid) to `out_kj`, every operation in the order of the compiled loops."""
    scale_n = weight_n.astype(w_kj.dtype) * w_kj.dtype.type(1 / grid)
    for n in np.flatnonzero(weight_n):
        s_kj = p_nk[n][:, None] * r_nj[n] - (w_kj * xi_nj[n]) * a_nk[n][:, None]
        out_kj += np.trunc(s_kj * scale_n[n]).astype(np.int64)
