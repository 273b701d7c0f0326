"""The E-step of windows of a linear dynamical system, from their second moments; see `gram_fit`."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences.kalman import LinearSystem

#: Variances are at least so much of the largest, or of the mean square of a number.
LEAST_VARIANCE: Final = 1e-6


class Moments(NamedTuple):
    """What an E-step finds: of first states, of pairs of states, of states with what is seen, and n log p."""

    number: float
    first_k: Floats
    first_kk: Floats
    before_kk: Floats
    after_kk: Floats
    cross_kk: Floats
    state_ee: Floats
    seen_de: Floats
    square_d: Floats
    log: float


def law_of_windows(
    system: LinearSystem, first_k: Floats, first_kk: Floats, length: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Means and covariances of the states of a window, (W K), and of what is seen, (W D)."""
    k = len(first_k)
    mean_e, cov_ee = np.empty(length * k), np.empty((length * k, length * k))
    for t in range(length):
        own = slice(t * k, (t + 1) * k)
        mean_e[own], cov_ee[own, own] = first_k, first_kk
        for s in range(t + 1, length):
            ahead_kk = system.step_kk @ cov_ee[(s - 1) * k : s * k, own]
            cov_ee[s * k : (s + 1) * k, own], cov_ee[own, s * k : (s + 1) * k] = ahead_kk, ahead_kk.T
        first_k, first_kk = (
            system.step_kk @ first_k,
            system.step_kk @ first_kk @ system.step_kk.T + system.step_noise_kk,
        )
    shown = np.kron(np.eye(length), system.shown_dk)
    seen_ff = shown @ cov_ee @ shown.T + np.diag(np.tile(system.noise_d, length))
    return mean_e, cov_ee, shown @ mean_e + np.tile(system.shown_d, length), seen_ff


def moments(gram: Floats, system: LinearSystem, first_k: Floats, first_kk: Floats) -> Moments:
    """The E-step of windows whose first state has this law."""
    d, k = system.shown_dk.shape
    length, number = (len(gram) - 1) // d, float(gram[-1, -1])
    mean_e, cov_ee, seen_f, seen_ff = law_of_windows(system, first_k, first_kk, length)
    shown = np.kron(np.eye(length), system.shown_dk)
    gain_ef = np.linalg.solve(seen_ff, shown @ cov_ee).T
    h = np.column_stack([gain_ef, mean_e - gain_ef @ seen_f])
    both = h @ gram
    z = (both @ h.T + number * (cov_ee - gain_ef @ shown @ cov_ee)).reshape(length, k, length, k)
    at = np.arange(length)
    z_tkk, sum_tk = z[at, :, at], both[:, -1].reshape(length, k)
    seen_dk = both[:, :-1].reshape(length, k, length, d)[at, :, at].sum(axis=0).T
    state_ee = np.block([[z_tkk.sum(axis=0), sum_tk.sum(axis=0)[:, None]], [sum_tk.sum(axis=0), length * number]])
    seen_de = np.column_stack([seen_dk, gram[:-1, -1].reshape(length, d).sum(axis=0)])
    mean_k = sum_tk[0] / number
    centred = np.column_stack([np.eye(len(seen_f)), -seen_f])
    away = np.trace(np.linalg.solve(seen_ff, centred @ gram @ centred.T))
    log = -0.5 * (number * (np.linalg.slogdet(seen_ff)[1] + len(seen_f) * math.log(2 * math.pi)) + away)
    return Moments(
        number=number,
        first_k=mean_k,
        first_kk=floored(z_tkk[0] / number - np.outer(mean_k, mean_k)),
        before_kk=z_tkk[:-1].sum(axis=0),
        after_kk=z_tkk[1:].sum(axis=0),
        cross_kk=z[at[1:], :, at[:-1]].sum(axis=0),
        state_ee=state_ee,
        seen_de=seen_de,
        square_d=np.diagonal(gram)[:-1].reshape(length, d).sum(axis=0),
        log=float(log),
    )


def floored(matrix_kk: Floats) -> Floats:
    """The symmetric part with eigenvalues no less than a little of the largest."""
    value_k, vector_kk = np.linalg.eigh((matrix_kk + matrix_kk.T) / 2)
    return np.asarray((vector_kk * np.maximum(value_k, max(LEAST_VARIANCE * value_k[-1], 1e-12))) @ vector_kk.T)
