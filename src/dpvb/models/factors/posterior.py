"""Variational Bayes of factor models from second moments alone: post-processing of what was released.

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
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from dpvb.guards.arrays import Floats
from dpvb.models.factors import reading, tuned
from dpvb.models.factors.reading import Split

# Rounds at most, those until the number of factors is settled, and the relative change of a unique variance that ends
# them; the largest precision of a factor.
_ROUNDS, _SETTLED, _CLOSE, _OFF = 200, 20, 1e-5, 1e12


@dataclass(frozen=True)
class Factors:
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


def factors(read: Split, count: float, number: int | None, prior_d: Floats, *, is_point: bool) -> Factors:
    """Factor analysis of Ŝ.

    Args:
        read: Ŝ as common and unique variance.
        count: number of rows n.
        number: of factors, at most; None: those that rise above the sampling of n rows.
        prior_d: prior means of unique variances.
        is_point: whether C is 0.
    """
    second_dd, floor_d = read.common_dd + np.diag(read.unique_d), tuned.LEAST * prior_d
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


def components(spectrum_e: Floats, basis_de: Floats, count: float, number: int | None, *, is_point: bool) -> Factors:
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
) -> Factors:
    """The point estimate as it is, or variational Bayes from there."""
    d, k = loading_dk.shape
    error_kk = np.zeros((k, k))
    precision_k = d / np.maximum((loading_dk**2 / unique_d[:, None]).sum(axis=0), d / _OFF)
    for _ in range(0 if is_point or k == 0 else _ROUNDS):
        whitened_dk = loading_dk / unique_d[:, None]
        m_kk = np.linalg.inv(np.eye(k) + loading_dk.T @ whitened_dk + d * error_kk)
        a_kd = m_kk @ whitened_dk.T
        cross_dk = second_dd @ a_kd.T
        error_kk[:] = np.linalg.inv(count * (m_kk + a_kd @ cross_dk) + np.diag(precision_k))
        loading_dk = count * cross_dk @ error_kk
        left_d = np.diagonal(second_dd) - (loading_dk * cross_dk).sum(axis=1)
        before_d, unique_d = unique_d, np.maximum(np.full(d, left_d.mean()) if isotropic else left_d, floor_d)
        square_k = (loading_dk**2 / unique_d[:, None]).sum(axis=0) + d * np.diagonal(error_kk)
        precision_k = d / np.maximum(square_k, d / _OFF)
        if np.abs(np.log(unique_d / before_d)).max() < _CLOSE:
            break
    return turned(loading_dk, unique_d, error_kk)


def turned(loading_dk: Floats, unique_d: Floats, error_kk: Floats) -> Factors:
    """The same factors in the rotation that makes WᵀΨ⁻¹W diagonal."""
    root_d = np.sqrt(unique_d)
    basis_dk, size_k, turn_kk = np.linalg.svd(loading_dk / root_d[:, None], full_matrices=False)
    shown_dk = basis_dk * size_k * root_d[:, None]
    places = np.abs(shown_dk).argmax(axis=0) if shown_dk.size else np.empty(0, dtype=np.intp)
    sign_k = np.where(shown_dk[places, np.arange(len(size_k))] < 0, -1.0, 1.0)
    error_k = np.einsum("ki,ij,kj->k", turn_kk, error_kk, turn_kk)
    return Factors(shown_dk * sign_k, unique_d, size_k**2, error_k)


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
        above_e = reading.unbiased(eigenvalue_e - level, sd, d)
        found = (trace - float(above_e.sum())) / d
        variance = (sd**2 + 2 * found**2 / count) / d
        level = float(reading.with_prior(np.array([found]), np.array([variance]), np.array([prior]))[0])
    return level + above_e, basis_de
