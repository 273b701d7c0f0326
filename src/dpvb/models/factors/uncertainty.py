"""How far loadings and explained variances may be off: sampling of rows and the noise of the release, to first order.

In coordinates where Ψ = I, second moments are Λ = I + WᵀW in their own eigenbasis u, and what is added to them has

    variance of u_lᵀ E u_k = λ_l λ_k (1 + [l = k]) / n + (sd²/2) (‖a_l‖² ‖a_k‖² + (a_lᵀa_k)²),   a_l = Ψ^(-1/2) u_l,

the first part as of normal rows, the second of symmetric noise with std sd on the diagonal. To first order λ_k moves by
u_kᵀEu_k, and u_k by Σ_l u_l (u_lᵀEu_k) / (λ_k - λ_l) (Anderson 1963). Shortened rows add (0.7 lost)² λ_l λ_k to each
variance, and an error δ_j of ln ψ_j adds -(λ_l + λ_k)/2 Σ_j u_jl u_jk δ_j to u_lᵀEu_k.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.factors import tuned

# Largest factor by which correcting an eigenvalue near the noise makes its error larger.
_STEEPEST = 5.0
# Least squared difference of eigenvalues, relative to both, and least strength of a factor: what is less is none.
_LEAST = 1e-12
# Least eigenvalue, relative to the largest, of what the rest of the space says of unique variances.
_LEAST_FREE = 1e-6


class Errors(NamedTuple):
    """Standard deviations: of loadings (d, k), and of λ_k - 1 relative to Ψ, (k,)."""

    loading_dk: Floats
    strength_k: Floats


def errors(loading_dk: Floats, unique_d: Floats, sd: float, count: float, lost: float, *, isotropic: bool) -> Errors:
    """Standard deviations of loadings with WᵀΨ⁻¹W diagonal, and of its diagonal.

    Args:
        loading_dk, unique_d: W and Ψ, in units in which noise is alike in all entries.
        sd: noise std of a diagonal entry.
        count: number of rows.
        lost: what shortening took of the second moments, relative to what it left.
        isotropic: whether Ψ is one variance, which noise hardly moves.
    """
    d, k = loading_dk.shape
    root_d = np.sqrt(unique_d)
    basis_dd, size_k, _ = np.linalg.svd(loading_dk / root_d[:, None], full_matrices=True)
    value_e = 1.0 + np.append(size_k**2, np.zeros(d - k))
    gram_dd = (basis_dd.T / unique_d) @ basis_dd
    length_e, own = np.diagonal(gram_dd), np.arange(k)
    relative = 1.0 / count + (tuned.LOST_DOUBT * lost) ** 2
    variance_ek = relative * np.outer(value_e, value_e[:k])
    variance_ek += 0.5 * sd**2 * (np.outer(length_e, length_e[:k]) + gram_dd[:, :k] ** 2)
    variance_ek[own, own] += value_e[:k] ** 2 / count
    if not isotropic:
        error_dd = _unique_errors(basis_dd[:, k:], unique_d, sd, relative)
        for place in own:
            part_de = basis_dd * basis_dd[:, [place]]
            turned_e = np.maximum((part_de * (error_dd @ part_de)).sum(axis=0), 0.0)
            turned_e[place] = 0.0
            variance_ek[:, place] += 0.25 * (value_e + value_e[place]) ** 2 * turned_e
    gap_ek = value_e[:k] - value_e[:, None]
    gap_ek[own, own] = np.inf
    turn_ek = variance_ek / np.maximum(gap_ek**2, _LEAST * np.outer(value_e, value_e[:k]))
    turn_jk = np.minimum(np.square(basis_dd) @ turn_ek, 1.0)
    noise_k = d * (sd * length_e[:k]) ** 2
    strength_k = np.maximum(size_k**2, _LEAST)
    slope_k = 1.0 / np.maximum(1.0 - noise_k / (2 * strength_k**2), 1.0 / _STEEPEST)
    along_k = slope_k**2 * variance_ek[own, own]
    square_jk = strength_k * turn_jk + np.square(basis_dd[:, :k]) * np.minimum(along_k / (4 * strength_k), along_k**0.5)
    return Errors(root_d[:, None] * np.sqrt(square_jk), np.sqrt(along_k))


def _unique_errors(rest_dl: Floats, unique_d: Floats, sd: float, relative: float) -> Floats:
    """Covariance of ln Ψ, (d, d), told by the directions that no factor reaches (Lawley & Maxwell 1971)."""
    free_dd = rest_dl @ rest_dl.T
    noisy_dd = free_dd @ (free_dd / unique_d[:, None])
    back_dd = np.linalg.pinv(free_dd**2, rcond=_LEAST_FREE, hermitian=True)
    return np.asarray(back_dd @ (2.0 * relative * free_dd**2 + (sd * noisy_dd) ** 2) @ back_dd)


def moment_errors(covariance_dd: Floats, sd: float, count: float, lost: float) -> Floats:
    """Standard deviations of second moments as they were released, (d, d); arguments are those of `errors`.

    Args:
        covariance_dd: what they are read as.
        sd, count, lost: as there.
    """
    variance_d = np.diagonal(covariance_dd)
    product_dd = np.outer(variance_d, variance_d)
    noise_dd = 0.5 * sd**2 * (1.0 + np.eye(len(variance_d)))
    return np.sqrt((product_dd + covariance_dd**2) / count + noise_dd + (tuned.LOST_DOUBT * lost) ** 2 * product_dd)
