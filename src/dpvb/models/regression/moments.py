"""Matrices of second moments, denoised: what stands out of the noise is used, the rest is modelled.

Input is a symmetric matrix with independent normal noise of std sd on its svec coordinates. Only this noise has
eigenvalues up to √(2d)·sd, the noise edge (Wigner 1958), which bury the small eigenvalues of a matrix of second
moments. So a structured guess is subtracted first, and only the eigenpairs of the residual beyond the noise edge are
used.

*Nearly collinear columns*, as a number and its square, differ in directions of small eigenvalues. Beside a guess of
independent columns, such an eigenvalue is a large negative residual, of which shrinkage by the noise edge leaves too
little: the eigenvalue is then estimated many times too large, and the posterior is too certain. A single entry has far
less noise than that edge. `read_collinear` chooses one of three estimators by what the release itself shows.

*The curvature at the mean* is read for intervals (`read_at_mean`): its diagonal first, then the rest, then the errors
of both. A direction that an earlier release could not see may have a curvature far below its guess. The prior includes
this case, since an interval from a curvature that is too large would be too narrow. The discarded noise of the
other entries is an error of the curvature, whose size is estimated, too.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive, Positives
from dpvb.models.regression import tuned

# convention: floor that keeps eigenvalues positive where there are no rows at all.
TINY = 1e-9


@dataclass(frozen=True)
class RowMoments:
    """Rows as estimated only from Σ x xᵀ; public; vectors (e,) are in the eigenbasis.

    Attributes:
        basis_de, eigenvalue_e: eigenpairs of Σ x xᵀ.
        eigenvalue_upper_e: upper bounds on the eigenvalues, by what noise may hide of them.
        scale_e: scales s of the coordinates Uᵀx / s in which a score is released; 1 without noise.
        constant_e: weights with xᵀ weights ≈ 1 for every row; zero if no weights do that.
        number: number of rows.
    """

    basis_de: Floats
    eigenvalue_e: Positives
    eigenvalue_upper_e: Positives
    scale_e: Positives
    constant_e: Floats
    number: Positive

    @property
    def total(self) -> float:
        """Sum of the squared norms of rows in the coordinates x̃, Σ λ / s², where each row counts as 1 at most."""
        return min(float(np.sum(self.eigenvalue_e / self.scale_e**2)), self.number)

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
        return mean, max(self.mean_square(weight_e) - mean**2, 0.0)

    def mean_square(self, weight_e: Floats) -> float:
        """Mean square of ψ over rows."""
        return float(self.eigenvalue_e @ weight_e**2) / self.number

    def divided(self, factor: float) -> RowMoments:
        """The same rows in coordinates divided by a factor."""
        return replace(self, scale_e=self.scale_e * factor)

    def shrinking(self, part_d: Floats, constant: float) -> Floats:
        """The matrix, (e, e), that takes x̃ of a row to that of the row whose columns are shrunk about their means.

        Args:
            part_d: parts in (0, 1], 1 for the constant column 0.
            constant: value of that column.
        """
        shrink_dd, basis_de = np.diag(part_d), self.basis_de
        shrink_dd[1:, 0] = (1.0 - part_d[1:]) * (basis_de @ self.mean_e)[1:] / constant
        return np.asarray((basis_de.T @ shrink_dd @ basis_de) * self.scale_e / self.scale_e[:, None])


@dataclass(frozen=True)
class Tracked:
    """A number that changes slowly and is read through noise at every step: the filter of a random walk (Kalman 1960).

    Attributes:
        value: estimate of the number.
        variance: variance of its error.
    """

    value: Positive = 1.0
    variance: Nonnegative = UNSEEN

    def seen(self, reading: float, noise: float, most: float) -> Tracked:
        """The estimate after one more reading of this noise variance, between `LEAST_RATIO` and `most`."""
        before = self.variance + tuned.RATIO_DRIFT**2
        gain = before / (before + noise)
        value = self.value + gain * (reading - self.value)
        return Tracked(min(max(value, tuned.LEAST_RATIO), most), gain * noise)


def read_moments(noisy_dd: Floats, sd: float, constant: float, *, inner: bool, room: float = 1.0) -> RowMoments:
    """Read the second moments of rows whose column 0 is a constant.

    Args:
        noisy_dd: noisy Σ x xᵀ, (d, d); public.
        sd: noise std of a diagonal entry.
        constant: value of column 0, in (0, 1).
        inner: whether column 0 was added only for this estimate; the other columns had then been multiplied by
            √(1 - constant²), and the moments are those of the other columns before that.
        room: what the rows had been divided by, when they were rounded to integers.
    """
    guess_dd, sum_d, number = _independent(noisy_dd, sd, constant)
    read_dd = read_collinear(noisy_dd, guess_dd, sd)
    # Noise can make an eigenvalue look smaller by up to the noise edge.
    hidden = tuned.HIDDEN_EDGE * edge(len(read_dd), sd)
    if inner:
        room = 1.0 - constant**2
        read_dd, noisy_dd = read_dd[1:, 1:] / room, noisy_dd[1:, 1:] / room
        sum_d, hidden = sum_d[1:] / math.sqrt(room), hidden / room
    # An eigenvalue below one standard deviation of an entry is not distinguished from it.
    floor = sd + TINY
    # A path takes long steps along flat directions: without noise these may be only rounding.
    floor += tuned.INTEGER_FLOOR * room**2 * number if sd == 0 else 0.0
    value_e, basis_de = np.linalg.eigh(read_dd)
    basis_de = with_fixed_signs(basis_de)
    eigenvalue_e = np.maximum(value_e, floor)
    scale_e = np.ones_like(eigenvalue_e)
    if sd > 0:
        scale_e = eigenvalue_e ** (tuned.SCALE_POWER / 2)
        length2 = float(np.sum(eigenvalue_e / scale_e**2)) / float(np.sum(eigenvalue_e))
        scale_e *= math.sqrt(length2) / tuned.SCALE_SHRINK
    if not inner:
        constant_e = basis_de[0] / constant
    else:
        sum_e = basis_de.T @ sum_d
        constant_e = sum_e / eigenvalue_e
        constant_e *= float(constant_e @ sum_e) > 0.5 * number  # The columns explain most of a constant.
    return RowMoments(basis_de, eigenvalue_e, eigenvalue_e + hidden, scale_e, constant_e, number)


def with_fixed_signs(vector_de: Floats) -> Floats:
    """Eigenvectors, each with the sign that makes Σ_d v_d / d positive, d from 1.

    An eigenvector is determined up to its sign, which LAPACK leaves to rounding. Later noise is drawn in these
    coordinates: with another sign, two fits with the same noise source have different noise.
    """
    weight_d = 1.0 / np.arange(1, len(vector_de) + 1)
    return np.asarray(vector_de * np.where(weight_d @ vector_de < 0, -1.0, 1.0))


def read_positive(noisy_dd: Floats, guess_dd: Floats, sd: float, floor: float) -> Floats:
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
    explained_d[0] = 1.0 - 1e-3
    limit_d = np.sqrt(explained_d * second_d * number)
    sum_d = np.clip(noisy_dd[:, 0] / constant, -limit_d, limit_d)
    sum_d[0] = limit_d[0]
    return np.diag(second_d - sum_d**2 / number) + np.outer(sum_d, sum_d) / number, sum_d, number


def read_collinear(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Denoise second moments with the guess of independent columns: by what the release itself shows of them.

    If many directions have less than the guess by more than the edge of the noise, all columns are collinear, and few
    common factors explain them. If few entries do, the error of the guess is corrected only in these. Else
    eigenpairs are shrunk.
    """
    if sd == 0:
        return noisy_dd
    below = np.linalg.eigvalsh(noisy_dd - guess_dd) < -edge(len(noisy_dd), sd)
    if float(np.mean(below)) >= tuned.COLLINEAR_SHARE:
        return _common_factors(noisy_dd, guess_dd, sd)
    away_dd = noisy_dd - guess_dd
    np.fill_diagonal(away_dd, 0.0)
    # Off the diagonal an entry has 1/√2 of the noise of one on it. The largest of m entries of noise is about
    # √(2 log m) standard deviations (the universal threshold of Donoho & Johnstone 1994).
    threshold = math.sqrt(2.0 * math.log(max(len(away_dd) * (len(away_dd) - 1) / 2, 2.0)))
    seen_dd = np.abs(away_dd) > threshold * sd / math.sqrt(2)
    near_dd = guess_dd + seen_dd * away_dd
    if np.count_nonzero(seen_dd) / 2 + _numbers(noisy_dd - near_dd, sd) < _numbers(noisy_dd - guess_dd, sd):
        value_e, vector_de = np.linalg.eigh(denoised(noisy_dd, near_dd, sd))
        return np.asarray((vector_de * np.maximum(value_e, sd)) @ vector_de.T)
    return denoised(noisy_dd, guess_dd, sd)


def _numbers(residual_dd: Floats, sd: float) -> int:
    """How many numbers the eigenpairs of a residual have that stand out of the noise."""
    return len(residual_dd) * int(
        np.count_nonzero(np.abs(np.linalg.eigvalsh(residual_dd)) > edge(len(residual_dd), sd))
    )


def _common_factors(noisy_dd: Floats, guess_dd: Floats, sd: float) -> Floats:
    """Factors and each column's own variance add up to the released diagonal.

    This is minimum residual factor analysis (Harman & Jones 1966), with factors that are shrunk by the edge of noise.
    """
    # The variances of the guess, about the means that it has.
    variance_d = np.maximum(np.diag(noisy_dd) - (guess_dd[0] ** 2) / guess_dd[0, 0], 0.0) + sd + TINY
    means_dd = np.outer(guess_dd[0], guess_dd[0]) / guess_dd[0, 0]
    centred_dd, unique_d = noisy_dd - means_dd, variance_d
    for _ in range(tuned.FACTOR_ROUNDS):
        value_e, vector_de = np.linalg.eigh(centred_dd - np.diag(unique_d))
        shrunk_e = np.sqrt(np.maximum(np.maximum(value_e, 0.0) ** 2 - edge(len(value_e), sd) ** 2, 0.0))
        common_dd = (vector_de * shrunk_e) @ vector_de.T
        unique_d = np.clip(np.diag(centred_dd) - np.diag(common_dd), 1e-3 * variance_d, variance_d)
    return np.asarray(means_dd + common_dd + np.diag(unique_d))


def read_at_mean(noisy_ee: Floats, guess_ee: Floats, hidden_e: Floats, sd: float) -> tuple[Floats, Floats, Floats]:
    """Read a curvature for intervals: the matrix, mean square errors of what is discarded of it and of its diagonal.

    Args:
        noisy_ee: noisy curvature, (e, e).
        guess_ee: guess of it.
        hidden_e: probability that the guess of a diagonal entry is far off.
        sd: noise std of a diagonal entry.
    """
    d, (read_e, doubt_e) = len(guess_ee), _diagonal(np.diag(noisy_ee), np.diag(guess_ee), hidden_e, sd)
    root_e = np.sqrt(read_e / np.diag(guess_ee))
    guess_ee = root_e[:, None] * guess_ee * root_e
    rest_ee = noisy_ee - guess_ee
    np.fill_diagonal(rest_ee, 0.0)
    value_e, vector_ee = np.linalg.eigh(rest_ee)
    shrunk_e = np.sign(value_e) * np.sqrt(np.maximum(value_e**2 - edge(d, sd) ** 2, 0.0))
    value_e, vector_de = np.linalg.eigh(guess_ee + (vector_ee * shrunk_e) @ vector_ee.T)
    found_ee = (vector_de * np.maximum(value_e, 1e-3 * read_e.min())) @ vector_de.T  # Invertible without the noise.
    if sd == 0:
        return found_ee, np.zeros((d, d)), doubt_e
    away_ee = noisy_ee - found_ee
    unexplained = float(np.sum(away_ee**2) - np.sum(np.diag(away_ee) ** 2)) - d * (d - 1) * sd**2 / 2
    seen = (max(unexplained, 0.0) + (1 + np.count_nonzero(shrunk_e)) * d * sd**2) / d**2
    possible_ee = tuned.TABLE_CORRELATION**2 * np.outer(read_e, read_e)
    return found_ee, np.minimum(seen, 1.0 / (2.0 / sd**2 + 1.0 / possible_ee)), doubt_e


def read_robust(noisy_ee: Floats, model_ee: Floats, sd: float) -> Floats:
    """Estimate the variance of scores between units, given that of the model, (e, e).

    In coordinates in which the model's variance is I, that of the scores is r (I + A), A of trace 0. log r is N(-½, 1)
    and so r has mean 1; the root mean square t of the entries of A is exponential of mean 1. The posterior means of r
    and A are taken, which without noise are what was released, and under much noise the model's variance.

    Args:
        noisy_ee: the noisy variance.
        model_ee: the model's, positive definite.
        sd: noise std of a diagonal entry.
    """
    d, root_ee = len(model_ee), np.linalg.cholesky(model_ee)
    back_ee = np.linalg.inv(root_ee)
    seen_ee = back_ee @ noisy_ee @ back_ee.T
    mean = float(np.trace(seen_ee)) / d
    away_ee = seen_ee - mean * np.eye(d)
    if sd > 0:
        precision_ee = back_ee.T @ back_ee
        square = float(np.sum(precision_ee**2))
        mean_sd = sd * math.sqrt(square) / d  # Noise of the trace over d.
        log_t = np.linspace(-4.5, 3.5, 401)
        log_weight_t = -0.5 * (log_t + 0.5) ** 2 - 0.5 * ((mean - np.exp(log_t)) / mean_sd) ** 2
        weight_t = np.exp(log_weight_t - log_weight_t.max())
        mean = float(np.exp(log_t) @ weight_t) / float(weight_t.sum())
    if sd > 0 and d > 1:  # For one coordinate, A is 0.
        # Mean square noise of the d (d + 1) / 2 - 1 other coordinates.
        rest = d * (d + 1) / 2 - 1
        away_sd = sd * math.sqrt((0.5 * (float(np.trace(precision_ee)) ** 2 + square) - square / d) / rest)
        size_t = np.linspace(0.0, 10.0, 2001)
        variance_t = (mean * size_t) ** 2 + away_sd**2
        log_weight_t = -size_t - 0.5 * rest * np.log(variance_t)
        log_weight_t -= 0.5 * float(np.sum(away_ee**2)) / variance_t
        weight_t = np.exp(log_weight_t - log_weight_t.max())
        away_ee *= float((weight_t / weight_t.sum()) @ (1.0 - away_sd**2 / variance_t))
    mean = max(mean, TINY)
    value_e, vector_ee = np.linalg.eigh(mean * np.eye(d) + away_ee)
    half_ee = root_ee @ (vector_ee * np.sqrt(np.maximum(value_e, tuned.LAST_FLOOR * mean)))
    return np.asarray(half_ee @ half_ee.T)


def _diagonal(noisy_e: Floats, guess_e: Floats, hidden_e: Floats, sd: float) -> tuple[Floats, Floats]:
    """Denoise positive numbers, (e,), of noise std sd, with a guess; return them with mean square errors.

    Geometric posterior means; the log of number over guess is normal, or uniform where the guess was hidden by noise.
    """
    if sd == 0:
        return np.maximum(noisy_e, TINY), 0 * noisy_e
    near_e = np.log(np.maximum(noisy_e, sd) / guess_e)
    reach_e = np.minimum(8.0 * sd / np.maximum(noisy_e, sd), 1.0)
    wide_t = np.linspace(tuned.GUESS_LOW, -tuned.GUESS_LOW, 241)
    t_et = np.sort(
        np.hstack([np.tile(wide_t, (len(guess_e), 1)), near_e[:, None] + np.outer(reach_e, np.linspace(-1, 1, 81))])
    )
    normal_et = np.exp(-0.5 * (t_et / tuned.GUESS_STD) ** 2) / (tuned.GUESS_STD * math.sqrt(2 * math.pi))
    uniform_et = ((t_et >= tuned.GUESS_LOW) & (t_et <= tuned.GUESS_STD)) / (tuned.GUESS_STD - tuned.GUESS_LOW)
    prior_et = (1 - hidden_e[:, None]) * normal_et + hidden_e[:, None] * uniform_et
    log_fit_et = -0.5 * ((noisy_e[:, None] - guess_e[:, None] * np.exp(t_et)) / sd) ** 2
    log_weight_et = log_fit_et + np.log(np.maximum(prior_et, 1e-300))
    weight_et = np.exp(log_weight_et - log_weight_et.max(axis=1, keepdims=True)) * np.gradient(t_et, axis=1)
    weight_et /= weight_et.sum(axis=1, keepdims=True)
    read_e = guess_e * np.exp((weight_et * t_et).sum(axis=1))
    return read_e, (weight_et * (guess_e[:, None] * np.exp(t_et) - read_e[:, None]) ** 2).sum(axis=1)
