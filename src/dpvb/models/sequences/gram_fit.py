"""A linear dynamical system from windows: EM on one matrix of second moments.

y = (x_1 .. x_W) is a window of W points from anywhere in a sequence, S = Σ (y, 1)(y, 1)ᵀ. Given a system, the expected
states of a window are linear in y; so the whole E-step is a linear function of S, and iterations cost neither privacy
nor data. For sequences of W points S is all that they say of any linear system.

================  ==================================================================================
method, M11       code
================  ==================================================================================
⟨z⟩ = G y + g     `H` = (G, g), (W K, W D + 1)
Σ⟨z zᵀ⟩           H S Hᵀ + n V
Σ (y, 1)⟨z⟩ᵀ      S Hᵀ
================  ==================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import gram_moments
from dpvb.models.sequences.kalman import LinearSystem

# Starts have so much of a state's variance in each step, and so much of a number's mean variance in its noise. EM goes
# so far from each of them, and on from the best.
_STARTS, _FIRST_ROUNDS = ((0.3, 0.05), (1.0, 0.05), (0.05, 0.3)), 100

# Eigenvalues of moments are at least so much of the number of windows.
_LEAST = 1e-9


@dataclass(frozen=True)
class Grams:
    """Second moments of windows and a one behind them, (W D + 1, W D + 1), whose last entry is their number.

    Attributes:
        pooled: of windows from everywhere.
        start: of windows from starts; None: sequences are no longer than a window.
    """

    pooled: Floats
    start: Floats | None = None

    @property
    def number(self) -> float:
        """How many windows there are."""
        return float(self.pooled[-1, -1] + (0.0 if self.start is None else self.start[-1, -1]))


class Fit(NamedTuple):
    """A system, and the log-likelihood of the windows, in nats a window, before its last step."""

    system: LinearSystem
    log: float


def read(gram: Floats, least: float) -> Floats:
    """A noisy matrix of second moments with its eigenvalues brought to a floor."""
    value_e, vector_ee = np.linalg.eigh((gram + gram.T) / 2)
    return np.asarray((vector_ee * np.maximum(value_e, least)) @ vector_ee.T)


def in_units(gram: Floats, std: float, unit_e: Floats, least: float) -> Floats:
    """Released moments, read from noise, in the units of windows with a one behind them.

    Args:
        gram: Σ y yᵀ as it came, of windows with a constant behind them.
        std: noise std of its diagonal.
        unit_e: what one is of every number of y.
        least: eigenvalues are at least so much of the noise.
    """
    number = max(float(gram[-1, -1]), std, 1e-9) * unit_e[-1] ** 2
    found = gram * np.outer(unit_e, unit_e)
    found[-1, -1] = number
    return read(found, max(least * std * float(np.max(unit_e[:-1])) ** 2, _LEAST * number))


def step(grams: Grams, system: LinearSystem) -> Fit:
    """One iteration of EM, and the windows' log-likelihood before it."""
    pooled = gram_moments.moments(grams.pooled, system, system.pooled_k, system.pooled_kk)
    found = [pooled]
    if grams.start is not None:
        found.append(gram_moments.moments(grams.start, system, system.start_k, system.start_kk))
    start, number = found[-1], sum(part.number for part in found)
    state_ee, seen_de, before_kk, after_kk, cross_kk = (
        np.add.reduce([getattr(part, name) for part in found])
        for name in ("state_ee", "seen_de", "before_kk", "after_kk", "cross_kk")
    )
    square_d = np.add.reduce([part.square_d for part in found])
    times = float(state_ee[-1, -1])
    shown_de = np.linalg.solve(state_ee, seen_de.T).T
    step_kk = np.linalg.solve(before_kk, cross_kk.T).T
    least = gram_moments.LEAST_VARIANCE * float(square_d.mean()) / times
    noise_d = np.maximum((square_d - np.sum(shown_de * seen_de, axis=1)) / times, least)
    made = LinearSystem(
        step_kk=step_kk,
        step_noise_kk=gram_moments.floored((after_kk - step_kk @ cross_kk.T) / max(times - number, 1e-300)),
        shown_dk=shown_de[:, :-1],
        shown_d=shown_de[:, -1],
        noise_d=noise_d,
        start_k=start.first_k,
        start_kk=start.first_kk,
        pooled_k=pooled.first_k,
        pooled_kk=pooled.first_kk,
    )
    return Fit(made, sum(part.log for part in found) / grams.number)


def fit(grams: Grams, system: LinearSystem, *, rounds: int) -> Fit:
    """The system after some iterations."""
    found = Fit(system, -math.inf)
    for _ in range(rounds):
        found = step(grams, found.system)
    return found


def best(grams: Grams, n_states: int, width: int, *, rounds: int) -> Fit:
    """The most likely system that is found from several starts."""
    starts = (from_directions(grams, n_states, width, *start) for start in _STARTS)
    found = max((fit(grams, start, rounds=_FIRST_ROUNDS) for start in starts), key=lambda one: one.log)
    return fit(grams, found.system, rounds=rounds)


def from_directions(
    grams: Grams, n_states: int, width: int, step: float = _STARTS[0][0], noise: float = _STARTS[0][1]
) -> LinearSystem:
    """A start from the principal directions of windows, whose scores are the states.

    A window of a system that moves without noise is (C, C A, C A², ..) z_1. So the first points of the directions are
    C, and A is what brings the points of each to those that follow.

    Args:
        grams: read moments, of windows of two points or more.
        n_states: K, at most the numbers of a window.
        width: D.
        step: share of a state's variance that each step adds.
        noise: variance of what is shown beside the states, over the mean variance.
    """
    mean_e = grams.pooled[:-1, -1] / grams.pooled[-1, -1]
    cov_ee = grams.pooled[:-1, :-1] / grams.pooled[-1, -1] - np.outer(mean_e, mean_e)
    value_e, vector_ee = np.linalg.eigh(cov_ee)
    seen_ek = (vector_ee * np.sqrt(np.maximum(value_e, 0.0)))[:, : -n_states - 1 : -1]
    step_kk = np.linalg.lstsq(seen_ek[:-width], seen_ek[width:], rcond=None)[0].T
    step_kk /= max(1.0, float(np.abs(np.linalg.eigvals(step_kk)).max()))
    left_d = np.diagonal(cov_ee - seen_ek @ seen_ek.T).reshape(-1, width).mean(axis=0)
    noise_d = np.maximum(left_d, 0.0) + noise * float(np.trace(cov_ee)) / len(cov_ee)
    zero_k, eye_kk = np.zeros(n_states), np.eye(n_states)
    mean_d = mean_e.reshape(-1, width).mean(axis=0)
    laws = zero_k, eye_kk, zero_k, eye_kk
    return LinearSystem(step_kk, step * eye_kk, seen_ek[:width], mean_d, noise_d, *laws)
