"""A linear dynamical system, Kalman's passes over whole sequences (1960; Rauch, Tung & Striebel 1965), and its modes.

    z_1 ~ N(m_0, P_0),   z_t+1 = A z_t + N(0, Q),   x_t = C z_t + d + N(0, diag R)

==============  ================================================================================
paper           code
==============  ================================================================================
A, Q            step_kk, step_noise_kk
C, d, R         shown_dk, shown_d, noise_d
m_0, P_0        start_k, start_kk: the first state of a sequence
m, P            pooled_k, pooled_kk: the first state of a window from anywhere
z_t|t, z_t|T    `States.mean_ntk` and `cov_ntkk` of `filtered`, of `smoothed`
==============  ================================================================================

Sequences are rows of an array (n, T, D). Missing numbers are NaN, and so is everything after the end of a shorter
sequence. The result for a sequence depends on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Covariance, Positives

# Points of sequences that are passed over together.
_ENTRIES = 2**18
#: Variances are at least so much of the largest, or of the mean square of a number.
LEAST_VARIANCE: Final = 1e-6


@dataclass(frozen=True)
class LinearSystem:
    """Point estimates of all parameters; public."""

    step_kk: Floats
    step_noise_kk: Covariance
    shown_dk: Floats
    shown_d: Floats
    noise_d: Positives
    start_k: Floats
    start_kk: Covariance
    pooled_k: Floats
    pooled_kk: Covariance

    def in_basis(self, basis_kk: Floats) -> LinearSystem:
        """The same system with states basis · z; the inverse of the basis exists."""
        back_kk = np.linalg.inv(basis_kk)
        return replace(
            self,
            step_kk=basis_kk @ self.step_kk @ back_kk,
            step_noise_kk=basis_kk @ self.step_noise_kk @ basis_kk.T,
            shown_dk=self.shown_dk @ back_kk,
            start_k=basis_kk @ self.start_k,
            start_kk=basis_kk @ self.start_kk @ basis_kk.T,
            pooled_k=basis_kk @ self.pooled_k,
            pooled_kk=basis_kk @ self.pooled_kk @ basis_kk.T,
        )


class States(NamedTuple):
    """Distributions of states.

    Attributes:
        mean_ntk, cov_ntkk: of every position.
        cross_ntkk: covariances of z_t+1 with z_t, (n, T - 1, K, K); of a filter, none.
        log_n: log-likelihood of every sequence, in nats.
    """

    mean_ntk: Floats
    cov_ntkk: Floats
    cross_ntkk: Floats
    log_n: Floats


def filtered(system: LinearSystem, x_ntd: Floats) -> States:
    """Distributions of states given what was seen so far."""
    n, length, _ = x_ntd.shape
    k = len(system.start_k)
    mean_ntk, cov_ntkk = np.empty((n, length, k)), np.empty((n, length, k, k))
    log_n, mean_nk, cov_nkk = np.zeros(n), np.tile(system.start_k, (n, 1)), np.tile(system.start_kk, (n, 1, 1))
    for t in range(length):
        if t > 0:
            mean_nk = _times(system.step_kk, mean_nk)
            cov_nkk = system.step_kk @ cov_nkk @ system.step_kk.T + system.step_noise_kk
        for d in range(len(system.shown_d)):  # One number after another: what is missing is left out.
            mean_nk, cov_nkk, log_d = _seen(system, d, x_ntd[:, t, d], mean_nk, cov_nkk)
            log_n += log_d
        mean_ntk[:, t], cov_ntkk[:, t] = mean_nk, cov_nkk
    return States(mean_ntk, cov_ntkk, np.empty((n, 0, k, k)), log_n)


def smoothed(system: LinearSystem, x_ntd: Floats) -> States:
    """Distributions of states given the whole of each sequence."""
    forward = filtered(system, x_ntd)
    n, length, k = forward.mean_ntk.shape
    mean_ntk, cov_ntkk = forward.mean_ntk.copy(), forward.cov_ntkk.copy()
    cross_ntkk = np.empty((n, max(length - 1, 0), k, k))
    for t in reversed(range(length - 1)):
        ahead_nk = _times(system.step_kk, mean_ntk[:, t])
        both_nkk = system.step_kk @ cov_ntkk[:, t]
        ahead_nkk = both_nkk @ system.step_kk.T + system.step_noise_kk
        gain_nkk = np.swapaxes(np.linalg.solve(ahead_nkk, both_nkk), 1, 2)
        mean_ntk[:, t] += _times(gain_nkk, mean_ntk[:, t + 1] - ahead_nk)
        cov_ntkk[:, t] += gain_nkk @ (cov_ntkk[:, t + 1] - ahead_nkk) @ np.swapaxes(gain_nkk, 1, 2)
        cross_ntkk[:, t] = cov_ntkk[:, t + 1] @ np.swapaxes(gain_nkk, 1, 2)
    return States(mean_ntk, cov_ntkk, cross_ntkk, forward.log_n)


def forecast(system: LinearSystem, mean_nk: Floats, cov_nkk: Floats, steps: int) -> tuple[Floats, Floats]:
    """Means and variances of what is seen next, (n, steps, D), from distributions of the last state."""
    mean_ntd, variance_ntd = [], []
    for _ in range(steps):
        mean_nk = _times(system.step_kk, mean_nk)
        cov_nkk = system.step_kk @ cov_nkk @ system.step_kk.T + system.step_noise_kk
        mean_ntd.append(_times(system.shown_dk, mean_nk) + system.shown_d)
        shown_ndk = system.shown_dk @ cov_nkk
        variance_ntd.append(np.add.reduce(shown_ndk * system.shown_dk, axis=2) + system.noise_d)
    return np.stack(mean_ntd, axis=1), np.stack(variance_ntd, axis=1)


def drawn(system: LinearSystem, number: int, length: int, rng: np.random.Generator) -> Floats:
    """So many sequences, (n, T, D)."""
    k, d = len(system.start_k), len(system.shown_d)
    noises = (system.start_kk, system.step_noise_kk)
    start_kk, step_kk = (vector * np.sqrt(np.maximum(value, 0.0)) for value, vector in map(np.linalg.eigh, noises))
    state_nk = system.start_k + rng.standard_normal((number, k)) @ start_kk.T
    x_ntd = rng.standard_normal((number, length, d)) * np.sqrt(system.noise_d) + system.shown_d
    for t in range(length):
        x_ntd[:, t] += state_nk @ system.shown_dk.T
        state_nk = state_nk @ system.step_kk.T + rng.standard_normal((number, k)) @ step_kk.T
    return x_ntd


def in_order(system: LinearSystem) -> LinearSystem:
    """The same system with states of variance 1 in pooled windows, in the order of what they do to what is seen."""
    root_kk = np.linalg.cholesky(system.pooled_kk)
    turn_kk = np.linalg.svd(system.shown_dk @ root_kk, full_matrices=True)[2]
    shown_dk = system.shown_dk @ root_kk @ turn_kk.T
    most_k = shown_dk[np.abs(shown_dk).argmax(axis=0), np.arange(len(turn_kk))]
    return system.in_basis(np.where(most_k < 0, -1.0, 1.0)[:, None] * turn_kk @ np.linalg.inv(root_kk))


def in_blocks(indptr: Ints, value_td: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Sequences of similar lengths: their places, and their points, (n, T, D), NaN behind the shorter ones."""
    length_n = np.diff(indptr)
    order = np.argsort(length_n, kind="stable")
    start = 0
    while start < len(order):
        least = max(int(length_n[order[start]]), 1)
        alike = int(np.searchsorted(length_n[order], 2 * least, side="right")) - start
        rows = order[start : start + max(1, min(alike, _ENTRIES // (2 * least)))]
        start += len(rows)
        place_nt = np.arange(max(int(length_n[rows].max()), 1))
        inside_nt = place_nt < length_n[rows, None]
        x_ntd = np.full((*inside_nt.shape, value_td.shape[1]), np.nan)
        x_ntd[inside_nt] = value_td[(indptr[rows, None] + place_nt)[inside_nt]]
        yield rows, x_ntd


def _times(matrix: Floats, x_nk: Floats) -> Floats:
    """Multiply each vector by a matrix (one for all, or one each), so that no result depends on the batch."""
    return np.asarray(np.add.reduce(matrix * x_nk[:, None, :], axis=2))


def _seen(system: LinearSystem, d: int, x_n: Floats, mean_nk: Floats, cov_nkk: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the distribution of a state after one number, and its log-density; R is diagonal."""
    shown_k, seen_n = system.shown_dk[d], ~np.isnan(x_n)
    to_nk = np.add.reduce(cov_nkk * shown_k, axis=2)
    variance_n = np.add.reduce(to_nk * shown_k, axis=1) + system.noise_d[d]
    away_n = np.where(seen_n, x_n, 0.0) - np.add.reduce(mean_nk * shown_k, axis=1) - system.shown_d[d]
    gain_nk = np.where(seen_n[:, None], to_nk / variance_n[:, None], 0.0)
    log_n = np.where(seen_n, -0.5 * (np.log(2 * math.pi * variance_n) + away_n**2 / variance_n), 0.0)
    cov_nkk = cov_nkk - gain_nk[:, :, None] * to_nk[:, None, :]
    return mean_nk + gain_nk * away_n[:, None], 0.5 * (cov_nkk + np.swapaxes(cov_nkk, 1, 2)), log_n


def floored(matrix_kk: Floats) -> Floats:
    """The symmetric part with eigenvalues no less than a little of the largest."""
    value_k, vector_kk = np.linalg.eigh((matrix_kk + matrix_kk.T) / 2)
    return np.asarray((vector_kk * np.maximum(value_k, max(LEAST_VARIANCE * value_k[-1], 1e-12))) @ vector_kk.T)


def modes(step_kk: Floats) -> NDArray[Any]:
    """Eigenvalues of A, (K,), the largest first, of each pair that with the positive angle."""
    value_k = np.linalg.eigvals(step_kk).astype(np.complex128)
    return value_k[np.lexsort((-value_k.imag, -np.abs(value_k).round(12)))]


def modes_of_draws(step_skk: Floats, mode_k: NDArray[Any]) -> NDArray[Any]:
    """Eigenvalues of many matrices, (S, K), each with the nearest mode, all of a matrix together."""
    value_sk = np.linalg.eigvals(step_skk).astype(np.complex128)
    for value_k in value_sk:
        value_k[:] = value_k[linear_sum_assignment(np.abs(mode_k[:, None] - value_k))[1]]
    return value_sk
