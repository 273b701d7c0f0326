"""Variational Bayes of factor models from only second moments: post-processing of what was released.

With Ŝ the second moments about the mean, n rows, q(W, Ψ) and q(h) of the conjugate model are (Bishop 1999, and
Ghahramani & Beal 2000, with a prior of W relative to Ψ, so that no unit of a column matters)

    M = (I + ⟨WᵀΨ⁻¹W⟩)⁻¹,  A = M WᵀΨ⁻¹,   Σ x⟨h⟩ᵀ = n Ŝ Aᵀ,   Σ ⟨h hᵀ⟩ = n M + n A Ŝ Aᵀ = H
    W = Σ x⟨h⟩ᵀ C,  C = (H + diag α)⁻¹,   ⟨WᵀΨ⁻¹W⟩ = WᵀΨ⁻¹W + d C,   Ψ = diag(Ŝ - W Σ⟨h⟩xᵀ/n)
    α_k = d / ⟨WᵀΨ⁻¹W⟩_kk

since row j of W is N(0, ψ_j/α) a priori. C = 0 is the point estimate of expectation maximisation, whose end is found by
eigenvalues directly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from dpvb.guards.arrays import Floats
from dpvb.models.factors import denoising, tuned
from dpvb.models.factors.denoising import Split

# Rounds at most.
_ROUNDS = 200
# Rounds after which the number of factors no longer changes.
_SETTLED = 20
# Relative change of a unique variance that ends the rounds.
_CLOSE = 1e-5
# Largest precision of a factor.
_OFF = 1e12


@dataclass(frozen=True)
class FactorPosterior:
    """Loadings and unique variances; factors are in the order of what they explain of whitened rows.

    Attributes:
        loading_dk: posterior mean of W, with WᵀΨ⁻¹W diagonal; the largest entry of a column is positive.
        unique_d: Ψ.
        strength_k: the diagonal of WᵀΨ⁻¹W.
        error_k: posterior variance of a loading over its ψ; 0 for a point estimate.
    """

    loading_dk: Floats
    unique_d: Floats
    strength_k: Floats
    error_k: Floats

    @property
    def covariance_dd(self) -> Floats:
        """W Wᵀ + Ψ."""
        return self.loading_dk @ self.loading_dk.T + np.diag(self.unique_d)


def factors(read: Split, count: float, number: int | None, prior_d: Floats, *, is_point: bool) -> FactorPosterior:
    """Factor analysis of Ŝ.

    Args:
        read: Ŝ as common and unique variance.
        count: number of rows n.
        number: of factors, at most; None: those that rise above the sampling of n rows.
        prior_d: prior means of unique variances.
        is_point: whether C is 0.
    """
    second_dd, floor_d = read.second_dd, tuned.LEAST * prior_d
    diagonal_d = np.maximum(np.diagonal(second_dd), floor_d)
    unique_d = np.where(read.unique_d > floor_d, read.unique_d, 0.5 * diagonal_d)
    if read.unique_d.any() and number is not None and number < read.rank:
        unique_d = 0.5 * diagonal_d
    for round_ in range(_ROUNDS):
        loading_dk = _leading(second_dd, unique_d, count, number)
        if round_ == (0 if read.unique_d.any() else _SETTLED) and number is None:
            number = loading_dk.shape[1]  # A number that went on changing would keep the rounds from their end.
        before_d, unique_d = unique_d, np.clip(diagonal_d - np.square(loading_dk).sum(axis=1), floor_d, diagonal_d)
        if number is not None and np.abs(np.log(unique_d / before_d)).max() < _CLOSE:
            break
    loading_dk = _leading(second_dd, unique_d, count, number)
    return _finished(second_dd, count, loading_dk, unique_d, floor_d, is_point=is_point, isotropic=False)


def components(
    spectrum_e: Floats, basis_de: Floats, count: float, number: int | None, *, is_point: bool
) -> FactorPosterior:
    """Probabilistic principal components of Ŝ, from its eigenvalues (falling) and eigenvectors.

    Args:
        spectrum_e, basis_de: of Ŝ; positive.
        count: number of rows n.
        number: of components, at most; None: those that rise above the sampling of n rows.
        is_point: whether C is 0.
    """
    d = len(spectrum_e)
    if number is None:
        number = d - 1
        for k in range(d - 1):
            if spectrum_e[k] <= spectrum_e[k:].mean() * (1.0 + math.sqrt((d - k) / max(count, d))) ** 2:
                number = k
                break
    floor = tuned.LEAST * float(spectrum_e.mean())
    unique = max(float(spectrum_e[number:].mean()), floor) if number < d else floor
    loading_dk = basis_de[:, :number] * np.sqrt(np.maximum(spectrum_e[:number] - unique, 0.0))
    second_dd = (basis_de * spectrum_e) @ basis_de.T
    unique_d = np.full(d, unique)
    return _finished(second_dd, count, loading_dk, unique_d, floor, is_point=is_point, isotropic=True)


def _leading(second_dd: Floats, unique_d: Floats, count: float, number: int | None) -> Floats:
    """The most likely loadings at given unique variances: eigenpairs of whitened second moments beyond 1."""
    d, root_d = len(unique_d), np.sqrt(unique_d)
    most = d if number is None else min(number, d)
    if most == 0:
        return np.empty((d, 0))
    whitened_dd = second_dd / np.outer(root_d, root_d)
    eigenvalue_e, vector_de = eigh(whitened_dd, subset_by_index=(d - most, d - 1))
    edge = (1.0 + math.sqrt(d / max(count, d))) ** 2 if number is None else -math.inf
    seen = eigenvalue_e > edge
    scaled_de = vector_de[:, seen] * np.sqrt(np.maximum(eigenvalue_e[seen] - 1.0, 0.0))
    return np.asarray(scaled_de[:, ::-1] * root_d[:, None])


def _finished(
    second_dd: Floats,
    count: float,
    loading_dk: Floats,
    unique_d: Floats,
    floor_d: Floats | float,
    *,
    is_point: bool,
    isotropic: bool,
) -> FactorPosterior:
    """The point estimate as it is, or variational Bayes from there."""
    k = loading_dk.shape[1]
    error_kk: Floats = np.zeros((k, k))
    if k and not is_point:
        rounds = ascent(second_dd, count, loading_dk, unique_d, floor_d, isotropic=isotropic)
        *_, (loading_dk, unique_d, error_kk) = rounds
    return turned(loading_dk, unique_d, error_kk)


def ascent(
    second_dd: Floats, count: float, loading_dk: Floats, unique_d: Floats, floor_d: Floats | float, *, isotropic: bool
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield W, Ψ and C after each round of variational Bayes, none of which lowers `lower_bound`.

    Args:
        second_dd, count: Ŝ and n.
        loading_dk, unique_d: where to start.
        floor_d: least unique variances.
        isotropic: whether all unique variances are one.
    """
    d, k = loading_dk.shape
    error_kk: Floats = np.zeros((k, k))
    precision_k = d / np.maximum((loading_dk**2 / unique_d[:, None]).sum(axis=0), d / _OFF)
    for _ in range(_ROUNDS):
        whitened_dk = loading_dk / unique_d[:, None]
        m_kk = np.linalg.inv(np.eye(k) + loading_dk.T @ whitened_dk + d * error_kk)
        a_kd = m_kk @ whitened_dk.T
        cross_dk = second_dd @ a_kd.T
        error_kk = np.asarray(np.linalg.inv(count * (m_kk + a_kd @ cross_dk) + np.diag(precision_k)), dtype=np.float64)
        loading_dk = count * cross_dk @ error_kk
        left_d = np.diagonal(second_dd) - (loading_dk * cross_dk).sum(axis=1)
        before_d, unique_d = unique_d, np.maximum(np.full(d, left_d.mean()) if isotropic else left_d, floor_d)
        square_k = (loading_dk**2 / unique_d[:, None]).sum(axis=0) + d * np.diagonal(error_kk)
        precision_k = d / np.maximum(square_k, d / _OFF)
        yield loading_dk, unique_d, error_kk
        if np.abs(np.log(unique_d / before_d)).max() < _CLOSE:
            break


def lower_bound(second_dd: Floats, count: float, loading_dk: Floats, unique_d: Floats, error_kk: Floats) -> float:
    """Return the variational lower bound on the log evidence of n rows about their mean, at the best q(h) and α.

    The data enter only through Ŝ and n:

        n/2 [log|M| + tr(M W̃ᵀŜW̃) - d log 2π - log|Ψ| - tr(Ψ⁻¹Ŝ)] - KL,   W̃ = Ψ⁻¹W,   M as above
        KL = ½ Σ_k d (log⟨WᵀΨ⁻¹W⟩_kk - log d) - d/2 log|C|,   by α_k = d / ⟨WᵀΨ⁻¹W⟩_kk

    Args:
        second_dd, count: Ŝ and n.
        loading_dk, unique_d, error_kk: W, Ψ and C.
    """
    d, k = loading_dk.shape
    whitened_dk = loading_dk / unique_d[:, None]
    square_kk = loading_dk.T @ whitened_dk + d * error_kk
    m_kk = np.linalg.inv(np.eye(k) + square_kk)
    fit = np.linalg.slogdet(m_kk)[1] + np.vdot(m_kk, whitened_dk.T @ second_dd @ whitened_dk)
    fit -= d * math.log(2 * math.pi) + float((np.log(unique_d) + np.diagonal(second_dd) / unique_d).sum())
    divergence = 0.5 * d * (np.log(np.diagonal(square_kk) / d).sum() - np.linalg.slogdet(error_kk)[1])
    return float(0.5 * count * fit - divergence)


def turned(loading_dk: Floats, unique_d: Floats, error_kk: Floats) -> FactorPosterior:
    """The same factors in the rotation that makes WᵀΨ⁻¹W diagonal."""
    root_d = np.sqrt(unique_d)
    basis_dk, size_k, turn_kk = np.linalg.svd(loading_dk / root_d[:, None], full_matrices=False)
    shown_dk = basis_dk * size_k * root_d[:, None]
    places = np.abs(shown_dk).argmax(axis=0) if shown_dk.size else np.empty(0, dtype=np.intp)
    sign_k = np.where(shown_dk[places, np.arange(len(size_k))] < 0, -1.0, 1.0)
    error_k = np.einsum("ki,ij,kj->k", turn_kk, error_kk, turn_kk)
    return FactorPosterior(shown_dk * sign_k, unique_d, size_k**2, error_k)


def spectrum(second_dd: Floats, sd: float, count: float, prior: float) -> tuple[Floats, Floats]:
    """Eigenvalues of Σ, falling and positive, and the eigenvectors of S, in which they are seen.

    Args:
        second_dd, sd: S, and the noise std of its diagonal.
        count: number of rows.
        prior: prior mean of a variance.
    """
    eigenvalue_e, basis_de = np.linalg.eigh(second_dd)
    eigenvalue_e, basis_de, d = eigenvalue_e[::-1], basis_de[:, ::-1], len(eigenvalue_e)
    if sd == 0.0:
        return np.maximum(eigenvalue_e, tuned.LEAST * prior), basis_de
    trace, level, above_e = float(eigenvalue_e.sum()), float(eigenvalue_e.mean()), np.zeros(d)
    for _ in range(tuned.ROUNDS):
        above_e = denoising.unbiased(eigenvalue_e - level, sd, d)
        mean = (trace - float(above_e.sum())) / d
        variance = (sd**2 + 2 * mean**2 / count) / d
        level = float(denoising.with_prior(np.array([mean]), np.array([variance]), np.array([prior]))[0])
    return level + above_e, basis_de


# The factors that are nearest to released second moments, shrunk by no prior: the centres of intervals.
#
# S = W Wᵀ + Ψ + error. An entry's error has about the variance m_i m_j / n, m² = ψ² + n·sd²/2: sampling of what factors
# leave, and noise. The sum of squared errors over their variances is least where W are the first eigenpairs of
# (S - Ψ)_ij / √(m_i m_j); its derivative by ψ_i/m_i is minus what they leave of the diagonal there (Harman & Jones
# 1966). With noise far below sampling this is maximum likelihood. All of it is post-processing and costs no privacy.


def nearest_factors(second_dd: Floats, sd: float, count: float, number: int) -> FactorPosterior:
    """So many factors, as a point estimate.

    Args:
        second_dd: S, about the mean, symmetric.
        sd: noise std of its diagonal, above 0.
        count: number of rows n.
        number: of factors, at least 1 and at most the number of columns.
    """
    diagonal_d = np.diagonal(second_dd)
    most_d = np.maximum(diagonal_d, sd)
    end_d2, unique_d = np.stack([tuned.LEAST_UNIQUE * most_d, most_d], axis=1), 0.5 * most_d
    for _ in range(tuned.METRICS):
        metric_d = np.hypot(unique_d, sd * np.sqrt(0.5 * count))
        whitened_dd = second_dd / np.sqrt(np.outer(metric_d, metric_d))
        bounds = end_d2 / metric_d[:, None]
        minimum = minimize(_misfit_of, unique_d / metric_d, (whitened_dd, number), "L-BFGS-B", jac=True, bounds=bounds)
        unique_d = np.clip(minimum.x * metric_d, *end_d2.T)
    root_dk = _whitened_root(minimum.x, whitened_dd, number)
    return turned(root_dk * np.sqrt(metric_d)[:, None], unique_d, np.zeros((number, number)))


def _whitened_root(unique_d: Floats, whitened_dd: Floats, number: int) -> Floats:
    """The first eigenpairs of whitened S - Ψ, as its root, (d, k)."""
    d = len(unique_d)
    value_k, basis_dk = eigh(whitened_dd - np.diag(unique_d), subset_by_index=(d - number, d - 1))
    return np.asarray(basis_dk * np.sqrt(np.maximum(value_k, 0.0)))


def _misfit_of(unique_d: Floats, whitened_dd: Floats, number: int) -> tuple[float, Floats]:
    """Half the sum of squares of what factors and unique variances leave, and its derivative, (d,)."""
    root_dk = _whitened_root(unique_d, whitened_dd, number)
    left_dd = whitened_dd - np.diag(unique_d) - root_dk @ root_dk.T
    return 0.5 * float(np.square(left_dd).sum()), -np.diagonal(left_dd)


# How far loadings and explained variances may be off: sampling of rows and the noise of the release, to first order.
#
# In coordinates where Ψ = I, second moments are Λ = I + WᵀW in their own eigenbasis u, and what is added to them has
#
#     variance of u_lᵀ E u_k = λ_l λ_k (1 + [l = k]) / n + (sd²/2) (‖a_l‖² ‖a_k‖² + (a_lᵀa_k)²),   a_l = Ψ^(-1/2) u_l,
#
# the first part as of normal rows, the second of symmetric noise with std sd on the diagonal. To first order λ_k moves
# by u_kᵀEu_k, and u_k by Σ_l u_l (u_lᵀEu_k) / (λ_k - λ_l) (Anderson 1963). Clipped rows add (0.7 lost)² λ_l λ_k to
# each variance, and an error δ_j of ln ψ_j adds -(λ_l + λ_k)/2 Σ_j u_jl u_jk δ_j to u_lᵀEu_k.


# Largest factor by which correcting an eigenvalue near the noise makes its error larger.
_STEEPEST = 5.0
# Least squared difference of eigenvalues, relative to both, and least strength of a factor: what is less is none.
_LEAST_GAP = 1e-12
# Least eigenvalue, relative to the largest, of what the rest of the space says of unique variances.
_LEAST_FREE = 1e-6


class FactorErrors(NamedTuple):
    """Standard deviations: of loadings (d, k), and of λ_k - 1 relative to Ψ, (k,)."""

    loading_dk: Floats
    strength_k: Floats


def factor_errors(
    loading_dk: Floats, unique_d: Floats, sd: float, count: float, lost: float, *, isotropic: bool
) -> FactorErrors:
    """Standard deviations of loadings with WᵀΨ⁻¹W diagonal, and of its diagonal.

    Args:
        loading_dk, unique_d: W and Ψ, in units in which noise is alike in all entries.
        sd: noise std of a diagonal entry.
        count: number of rows.
        lost: loss of the second moments due to clipping, relative to the rest.
        isotropic: whether Ψ is one variance, which noise hardly moves.
    """
    d, k = loading_dk.shape
    root_d = np.sqrt(unique_d)
    basis_dd, size_k, _ = np.linalg.svd(loading_dk / root_d[:, None], full_matrices=True)
    value_e = 1.0 + np.append(size_k**2, np.zeros(d - k))
    gram_dd = (basis_dd.T / unique_d) @ basis_dd
    length_e, factors = np.diagonal(gram_dd), np.arange(k)
    relative = 1.0 / count + (tuned.LOST_DOUBT * lost) ** 2
    variance_ek = relative * np.outer(value_e, value_e[:k])
    variance_ek += 0.5 * sd**2 * (np.outer(length_e, length_e[:k]) + gram_dd[:, :k] ** 2)
    variance_ek[factors, factors] += value_e[:k] ** 2 / count
    if not isotropic:
        error_dd = _unique_errors(basis_dd[:, k:], unique_d, sd, relative)
        for place in factors:
            part_de = basis_dd * basis_dd[:, [place]]
            turned_e = np.maximum((part_de * (error_dd @ part_de)).sum(axis=0), 0.0)
            turned_e[place] = 0.0
            variance_ek[:, place] += 0.25 * (value_e + value_e[place]) ** 2 * turned_e
    gap_ek = value_e[:k] - value_e[:, None]
    gap_ek[factors, factors] = np.inf
    turn_ek = variance_ek / np.maximum(gap_ek**2, _LEAST_GAP * np.outer(value_e, value_e[:k]))
    turn_jk = np.minimum(np.square(basis_dd) @ turn_ek, 1.0)
    noise_k = d * (sd * length_e[:k]) ** 2
    strength_k = np.maximum(size_k**2, _LEAST_GAP)
    slope_k = 1.0 / np.maximum(1.0 - noise_k / (2 * strength_k**2), 1.0 / _STEEPEST)
    along_k = slope_k**2 * variance_ek[factors, factors]
    square_jk = strength_k * turn_jk + np.square(basis_dd[:, :k]) * np.minimum(along_k / (4 * strength_k), along_k**0.5)
    return FactorErrors(root_d[:, None] * np.sqrt(square_jk), np.sqrt(along_k))


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
