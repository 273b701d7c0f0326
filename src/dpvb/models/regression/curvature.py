"""Reading matrices of second moments from noise: keep what stands out of it, model the rest.

Input is a symmetric matrix with independent normal noise of std sd on its svec coordinates. That noise alone has
eigenvalues up to √(2d)·sd (Wigner 1958), which buries the small eigenvalues of a matrix of second moments. A structured
guess moves the question to the residual: only its eigenpairs beyond the noise edge are kept. Everything here is
post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from dpvb.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive, Positives

# Largest share of a column's second moment that its mean may explain.
_MEAN_SHARE, _CONSTANT_SHARE = 0.9, 0.999
# Scales s ∝ λ^(γ/2), γ; then divided by κ, so that the score's bound uses the room that typical rows leave.
_POWER, _SHRINK = 0.75, 1.3
# Part of the noise edge that may hide in an eigenvalue.
_HIDDEN = 0.3
# Part of the constant 1 that the columns must explain to be taken for one that contains it.
_EXPLAINED = 0.9
# Standard deviation of a step of tracked numbers.
_DRIFT = 0.05
# Eigenvalues of nothing, relative to nothing: a millionth of a row's bound.
_TINY = 1e-9


@dataclass(frozen=True)
class Moments:
    """What the rows look like from Σ x xᵀ alone; vectors (e,) are in the eigenbasis.

    Attributes:
        basis_de, second_e: eigenpairs.
        majorised_e: eigenvalues with what the noise may hide.
        scale_e: scales in which the rows' noise is shared well; 1 without noise.
        constant_e: weights with xᵀ weights ≈ 1 for every row; zero where there are none.
        trace: Σ ‖Uᵀx / s‖², unbiased: what floors and guesses add to small eigenvalues is not in it.
        number: number of rows.
    """

    basis_de: Floats
    second_e: Positives
    majorised_e: Positives
    scale_e: Positives
    constant_e: Floats
    trace: Positive
    number: Positive


@dataclass(frozen=True)
class Tracked:
    """Numbers that change slowly and are read through noise at every step: a random walk's filter (Kalman 1960).

    Attributes:
        value: where they are thought to be.
        variance: of the error in each.
    """

    value: Floats
    variance: Nonnegative = UNSEEN

    def seen(self, reading: Floats, noise: float) -> Tracked:
        """With one more reading, of this noise variance."""
        before = self.variance + _DRIFT**2
        gain = before / (before + noise)
        return Tracked(self.value + gain * (reading - self.value), gain * noise)


def read_moments(noisy_dd: Floats, sd: float, constant: float, *, inner: bool) -> Moments:
    """Read the second moments of rows whose column 0 is a constant.

    Args:
        noisy_dd: noisy Σ x xᵀ, (d, d); public.
        sd: noise std of a diagonal entry.
        constant: value of column 0, in (0, 1).
        inner: whether column 0 was put there for this reading alone; the other columns had then been multiplied by
            √(1 - constant²), and the moments are theirs.
    """
    guess_dd, sum_d, number = _independent(noisy_dd, sd, constant)
    read_dd = _kept(noisy_dd, guess_dd, sd)
    hidden = _HIDDEN * _edge(len(read_dd), sd)
    if inner:
        room = 1.0 - constant**2
        read_dd, noisy_dd = read_dd[1:, 1:] / room, noisy_dd[1:, 1:] / room
        sum_d, hidden = sum_d[1:] / math.sqrt(room), hidden / room
    floor = min(0.05 * float(np.median(np.diag(guess_dd))), sd) + 0.1 * sd + _TINY
    value_e, basis_de = np.linalg.eigh(read_dd)
    second_e = np.maximum(value_e, floor)
    scale_e = np.ones_like(second_e)
    if sd > 0:
        scale_e = second_e ** (_POWER / 2)
        scale_e *= math.sqrt(float(np.sum(second_e / scale_e**2)) / float(np.sum(second_e))) / _SHRINK
    raw_e = np.einsum("de,dc,ce->e", basis_de, noisy_dd, basis_de, optimize=True)
    trace = max(float(np.sum(raw_e / scale_e**2)), 0.2 * float(np.sum(second_e / scale_e**2)))
    if not inner:
        constant_e = basis_de[0] / constant
    else:
        sum_e = basis_de.T @ sum_d
        constant_e = sum_e / second_e
        constant_e *= float(constant_e @ sum_e) > _EXPLAINED * number
    return Moments(basis_de, second_e, second_e + hidden, scale_e, constant_e, trace, number)


def log_odds(count: float, sd: float, number: float) -> tuple[float, float]:
    """Log odds of a noisy count among so many trials, and their standard deviation from the noise."""
    trials = max(number, 0.0) + 2.0
    error = sd / trials
    low = min(max(0.5 * error, 0.001), 0.5)
    base = float(np.clip((count + 1.0) / trials, low, 1.0 - low))
    return float(logit(base)), error / (base * (1.0 - base))


def read(noisy_dd: Floats, guess_dd: Floats, sd: float, floor: float) -> Floats:
    """Read a positive semidefinite matrix beside a guess; eigenvalues are at least `floor`."""
    value_e, vector_de = np.linalg.eigh(_kept(noisy_dd, guess_dd, sd))
    return np.asarray((vector_de * np.maximum(value_e, floor + _TINY)) @ vector_de.T)


def _edge(d: int, sd: float) -> float:
    """Largest eigenvalue, to leading order, of symmetric (d, d) noise of std sd on its svec coordinates."""
    return math.sqrt(2 * d) * sd


def _kept(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """The guess with the eigenpairs of the residual, shrunk: λ → sign(λ)·√(λ² - edge²) (Gavish & Donoho 2017)."""
    value_e, vector_de = np.linalg.eigh(noisy_dd - guess_dd)
    shrunk_e = np.sign(value_e) * np.sqrt(np.maximum(value_e**2 - _edge(len(value_e), sd) ** 2, 0.0))
    return np.asarray(guess_dd + (vector_de * shrunk_e) @ vector_de.T)


def _independent(noisy_dd: Floats, sd: float, constant: float) -> tuple[Floats, Floats, float]:
    """Second moments as if columns were independent, from means and variances alone; sums of columns; number."""
    number = max(float(noisy_dd[0, 0]) / constant**2, sd, _TINY)
    second_d = np.maximum(np.diag(noisy_dd), sd + _TINY)
    share_d = np.full(len(second_d), _MEAN_SHARE)
    share_d[0] = _CONSTANT_SHARE
    limit_d = np.sqrt(share_d * second_d * number)
    sum_d = np.clip(noisy_dd[:, 0] / constant, -limit_d, limit_d)
    sum_d[0] = limit_d[0]
    return np.diag(second_d - sum_d**2 / number) + np.outer(sum_d, sum_d) / number, sum_d, number
