"""Matrices of second moments, read from noise: what stands out of the noise is kept, the rest is modelled.

Input is a symmetric matrix with independent normal noise of std sd on its svec coordinates. That noise alone has
eigenvalues up to √(2d)·sd, the noise edge (Wigner 1958), which bury the small eigenvalues of a matrix of second
moments. So a structured guess is subtracted first, and of the residual only the eigenpairs beyond the noise edge are
kept. Everything here is post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive, Positives
from dpvb.models.regression import tuned

#: Reads a noisy matrix beside a guess of it, at a noise std of a diagonal entry.
Reading: TypeAlias = Callable[[Floats, Floats, float], Floats]
#: Floor that keeps eigenvalues positive where there are no rows at all.
TINY = 1e-9


@dataclass(frozen=True)
class RowMoments:
    """Rows as seen from Σ x xᵀ alone; public; vectors (e,) are in the eigenbasis.

    Attributes:
        basis_de, eigenvalue_e: eigenpairs of Σ x xᵀ.
        eigenvalue_upper_e: upper bounds on the eigenvalues, by what noise may hide of them.
        scale_e: scales s of the coordinates Uᵀx / s in which a score is released; 1 without noise.
        constant_e: weights with xᵀ weights ≈ 1 for every row; zero if no weights do that.
        trace: Σ ‖Uᵀx / s‖², from the raw noisy matrix, so that floors on small eigenvalues do not bias it.
        number: number of rows.
        room: factor that scale_e holds besides, so that fewer rows are too long.
    """

    basis_de: Floats
    eigenvalue_e: Positives
    eigenvalue_upper_e: Positives
    scale_e: Positives
    constant_e: Floats
    trace: Positive
    number: Positive
    room: Positive = 1.0

    @property
    def total(self) -> float:
        """Sum of the eigenvalues, for rows that were divided by `room`."""
        return float(np.sum(self.eigenvalue_e)) / self.room**2

    @property
    def measured(self) -> float:
        """Sum of the squared norms of rows in the coordinates x̃, of which each counts as 1 at most."""
        return min(self.trace, self.number)

    @property
    def matrix_dd(self) -> Floats:
        """Σ x xᵀ, as it was read."""
        return np.asarray((self.basis_de * self.eigenvalue_e) @ self.basis_de.T)

    @property
    def mean_e(self) -> Floats:
        """Mean of the rows; zero if no weights add a constant."""
        return self.eigenvalue_e * self.constant_e / self.number

    def log_odds(self, weight_e: Floats) -> tuple[float, float]:
        """Mean and variance of ψ over rows."""
        mean = float((self.eigenvalue_e * self.constant_e) @ weight_e) / self.number
        return mean, max(float(self.eigenvalue_e @ weight_e**2) / self.number - mean**2, 0.0)

    def roomier(self, factor: float) -> RowMoments:
        """The same rows in coordinates that were divided by a factor."""
        trace, room = self.trace / factor**2, self.room * factor
        return replace(self, scale_e=self.scale_e * factor, trace=trace, room=room)

    def affordable(self, noise: float) -> float:
        """Room for longer rows where noise of this variance in the score is far below its variance between samples."""
        seen = float(np.quantile(self.eigenvalue_e / self.scale_e**2, tuned.ROOM_QUANTILE))
        return math.sqrt(float(np.clip(tuned.ROOM_NOISE * seen / noise, 1.0, tuned.LARGEST_ROOM**2)))

    def shrinking(self, part_d: Floats, constant: float) -> Floats:
        """The matrix, (e, e), that takes x̃ of a row to that of the row whose columns are shrunk about their means.

        Args:
            part_d: parts in (0, 1], 1 for the constant column 0.
            constant: value of that column.
        """
        shrink_dd, basis_de = np.diag(part_d), self.basis_de
        shrink_dd[1:, 0] = (1.0 - part_d[1:]) * (basis_de @ self.mean_e)[1:] / constant
        return np.asarray((basis_de.T @ shrink_dd @ basis_de) * self.scale_e / self.scale_e[:, None])

    def weighted(self, ratio: float, usual: float, most: float, total: float) -> Floats:
        """Diagonal of ν Σ x̃ x̃ᵀ, (e,), in coordinates x̃ = Uᵀx / s, of trace usual·ratio·total; ν ≤ usual·most."""
        ratio = usual * np.clip(ratio * total / self.trace, tuned.LEAST_VARIANCE_RATIO, most)
        return np.asarray(self.eigenvalue_e / self.scale_e**2 * ratio)


@dataclass(frozen=True)
class Tracked:
    """Ratios that change slowly and are read through noise at every step: the filter of a random walk (Kalman 1960).

    Attributes:
        value: estimates of the numbers.
        variance: variance of the error of each estimate.
    """

    value: Floats
    variance: Nonnegative = UNSEEN

    def seen(self, reading: Floats, noise: float) -> Tracked:
        """Estimates after one more reading, of this noise variance."""
        before = self.variance + tuned.RATIO_DRIFT**2
        gain = before / (before + noise)
        return Tracked(self.value + gain * (reading - self.value), gain * noise)


def read_moments(
    noisy_dd: Floats, sd: float, constant: float, *, inner: bool, reading: Reading | None = None, room: float = 1.0
) -> RowMoments:
    """Read the second moments of rows whose column 0 is a constant.

    Args:
        noisy_dd: noisy Σ x xᵀ, (d, d); public.
        sd: noise std of a diagonal entry.
        constant: value of column 0, in (0, 1).
        inner: whether column 0 was added for this reading alone; the other columns had then been multiplied by
            √(1 - constant²), and the moments are those of the other columns before that.
        reading: of the matrix beside a guess; None: `denoised`.
        room: what the rows had been divided by, when they were rounded to integers.
    """
    guess_dd, sum_d, number = _independent(noisy_dd, sd, constant)
    read_dd = (reading or denoised)(noisy_dd, guess_dd, sd)
    # Noise can make an eigenvalue look smaller by up to the noise edge.
    hidden = tuned.HIDDEN_EDGE * edge(len(read_dd), sd)
    if inner:
        room = 1.0 - constant**2
        read_dd, noisy_dd = read_dd[1:, 1:] / room, noisy_dd[1:, 1:] / room
        sum_d, hidden = sum_d[1:] / math.sqrt(room), hidden / room
    typical = float(np.median(np.diag(guess_dd)))
    floor = min(tuned.FLOOR_OF_MEDIAN * typical, sd) + tuned.FLOOR_OF_STD * sd + TINY
    # A path takes long steps along what looks flat: without noise that may be rounding alone.
    floor += tuned.INTEGER_FLOOR * room**2 * number if sd == 0 else 0.0
    value_e, basis_de = np.linalg.eigh(read_dd)
    eigenvalue_e = np.maximum(value_e, floor)
    scale_e = np.ones_like(eigenvalue_e)
    if sd > 0:
        scale_e = eigenvalue_e ** (tuned.SCALE_POWER / 2)
        length2 = float(np.sum(eigenvalue_e / scale_e**2)) / float(np.sum(eigenvalue_e))
        scale_e *= math.sqrt(length2) / tuned.SCALE_SHRINK
    raw_e = np.einsum("de,dc,ce->e", basis_de, noisy_dd, basis_de, optimize=True)
    trace = max(float(np.sum(raw_e / scale_e**2)), tuned.LEAST_TRACE * float(np.sum(eigenvalue_e / scale_e**2)))
    if not inner:
        constant_e = basis_de[0] / constant
    else:
        sum_e = basis_de.T @ sum_d
        constant_e = sum_e / eigenvalue_e
        constant_e *= float(constant_e @ sum_e) > tuned.CONSTANT_FOUND * number
    return RowMoments(basis_de, eigenvalue_e, eigenvalue_e + hidden, scale_e, constant_e, trace, number)


def read(noisy_dd: Floats, guess_dd: Floats, sd: float, floor: float) -> Floats:
    """Read a positive semidefinite matrix, given a guess of it; its eigenvalues are at least `floor`."""
    value_e, vector_de = np.linalg.eigh(denoised(noisy_dd, guess_dd, sd))
    return np.asarray((vector_de * np.maximum(value_e, floor + TINY)) @ vector_de.T)


def edge(d: int, sd: float) -> float:
    """Largest eigenvalue, to leading order, of symmetric (d, d) noise of std sd on its svec coordinates."""
    return math.sqrt(2 * d) * sd


def denoised(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """The guess plus the residual, its eigenvalues shrunk: λ → sign(λ)·√(λ² - edge²) (Gavish & Donoho 2017)."""
    value_e, vector_de = np.linalg.eigh(noisy_dd - guess_dd)
    shrunk_e = np.sign(value_e) * np.sqrt(np.maximum(value_e**2 - edge(len(value_e), sd) ** 2, 0.0))
    return np.asarray(guess_dd + (vector_de * shrunk_e) @ vector_de.T)


def _independent(noisy_dd: Floats, sd: float, constant: float) -> tuple[Floats, Floats, float]:
    """Second moments of independent columns with the means and variances that were read; column sums; row number."""
    number = max(float(noisy_dd[0, 0]) / constant**2, sd, TINY)
    second_d = np.maximum(np.diag(noisy_dd), sd + TINY)
    explained_d = np.full(len(second_d), tuned.MEAN_EXPLAINS)
    explained_d[0] = tuned.CONSTANT_EXPLAINS
    limit_d = np.sqrt(explained_d * second_d * number)
    sum_d = np.clip(noisy_dd[:, 0] / constant, -limit_d, limit_d)
    sum_d[0] = limit_d[0]
    return np.diag(second_d - sum_d**2 / number) + np.outer(sum_d, sum_d) / number, sum_d, number
