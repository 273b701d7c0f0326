"""Normal posteriors of weights m under a prior of unknown width: N(m_0, τ²·slopes + fixed), τ on a grid.

Input is a noisy score at a point, with its derivative. τ has a weak log-normal prior. Vectors (e,) are in an eigenbasis
of the rows. An earlier release of other people, or a public study, adds a normal likelihood of the weights,

    log p(data | m) = -½ mᵀ P m + hᵀ m + constant.

Precisions P and pulls h of disjoint people add up. Everything here is public, and post-processing costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives
from dpvb.models.regression import tuned


@dataclass(frozen=True)
class NormalLikelihood:
    """A normal likelihood of the weights; public.

    Attributes:
        precision: P, (d, d), or its diagonal, (d,), in coordinates of the reader.
        pull_d: h, (d,).
    """

    precision: Covariance
    pull_d: Floats

    @classmethod
    def nothing(cls, width: int) -> NormalLikelihood:
        """The likelihood of no data, for so many weights."""
        return cls(np.zeros((width, width)), np.zeros(width))

    def joined(self, other: NormalLikelihood) -> NormalLikelihood:
        """The likelihood of the data of both."""
        return NormalLikelihood(self.precision + other.precision, self.pull_d + other.pull_d)

    def turned(self, matrix_de: Floats, origin_d: Floats) -> NormalLikelihood:
        """The likelihood of z, where the weights are matrix z + origin."""
        pull_d = self.pull_d - self.precision @ origin_d
        return NormalLikelihood(matrix_de.T @ self.precision @ matrix_de, matrix_de.T @ pull_d)


@dataclass(frozen=True)
class WeightPosterior:
    """q(m) = N(mean, covariance) over the weights, as estimated from releases; public.

    Attributes:
        mean_d: posterior means.
        covariance: posterior covariance, (d, d), or its diagonal, (d,), with which includes the privacy noise.
        naive_covariance: the covariance without the privacy noise; for comparison.
        prior: prior covariance, (d, d), or its diagonal, (d,), which includes earlier data; domains.UNSEEN where it is
            not stated.
        unknown_scale_d: 1 for a column whose spread was lost in noise, else 0.
        centre_d: released centres of numeric columns, and 0 for others. A diagonal covariance holds about them: weights
            of x - centre and of the constant are independent, once the slants are off x.
        data: normal likelihood of the weights by the data, those of an earlier release included, in the model's unit of
            the response; None: the form of the model has none that a later fit can use.
        slant_3k: rows, columns and values of S where a diagonal covariance is one of weights of x - S x, (3, k).
    """

    mean_d: Floats
    covariance: Covariance
    naive_covariance: Covariance
    prior: Covariance
    unknown_scale_d: Nonnegatives
    centre_d: Floats
    data: NormalLikelihood | None = None
    slant_3k: Floats = field(default_factory=lambda: np.zeros((3, 0)))

    @property
    def slants(self) -> sparse.csr_array:
        """S, (d, d)."""
        (row, column, value), width = self.slant_3k, len(self.mean_d)
        return sparse.csr_array((value, (row.astype(np.intp), column.astype(np.intp))), shape=(width, width))

    def point(self) -> WeightPosterior:
        """Only the weights of highest density, as if they were certain."""
        return replace(self, covariance=0.0 * self.covariance, naive_covariance=0.0 * self.naive_covariance)

    @classmethod
    def alone(cls, mean_d: Floats, covariance: Floats, naive_covariance: Floats) -> WeightPosterior:
        """A posterior whose prior is not stated: its variance counts as infinite."""
        zero_d = np.zeros(len(mean_d))
        return cls(mean_d, covariance, naive_covariance, np.full(len(mean_d), UNSEEN), zero_d, zero_d)


def grid() -> tuple[float, ...]:
    """The grid of τ."""
    return tuple(np.geomspace(tuned.TAU_LOW, tuned.TAU_HIGH, tuned.NUM_TAUS).tolist())


@dataclass(frozen=True)
class NoisyScore:
    """A score G of the log likelihood, in coordinates z = s∘(m - m_0), and its error; public.

    Attributes:
        score_e: G.
        offset_e: the point z at which the score was taken.
        variance_ee: variance of the score between samples.
        steep: factor of that variance in minus the derivative of the score.
        noise: variance of the privacy noise in each coordinate of the score, a number or (e,); or its covariance.
        beside: normal likelihoods of z from other people.
    """

    score_e: Floats
    offset_e: Floats
    variance_ee: Floats
    steep: float
    noise: float | Floats
    beside: Sequence[NormalLikelihood] = ()

    @property
    def slope_ee(self) -> Floats:
        """Minus the derivative of the score."""
        return self.steep * self.variance_ee

    def information(self) -> NormalLikelihood:
        """Normal likelihood of z by the score and `beside`: its pull is P times the Newton point."""
        slope_ee = self.slope_ee
        noise_ee = self.noise if np.ndim(self.noise) == 2 else np.diag(self.noise + np.zeros(len(slope_ee)))
        gain_ee = np.linalg.solve(self.variance_ee + noise_ee, slope_ee).T
        precision_ee = gain_ee @ slope_ee
        newton_e = self.score_e + slope_ee @ self.offset_e
        of_score = NormalLikelihood(0.5 * (precision_ee + precision_ee.T), gain_ee @ newton_e)
        return reduce(NormalLikelihood.joined, self.beside, of_score)


@dataclass(frozen=True)
class WeightPrior:
    """The prior of the weights m: N(m_0, τ²·slopes + fixed), covariances (e, e); public.

    Attributes:
        slopes_ee: covariance of the effects of columns at τ = 1.
        fixed_ee: covariance that does not depend on τ: that of the mean log odds.
        taus: values that τ may have; if there are several, log τ is approximately normal.
    """

    slopes_ee: Floats
    fixed_ee: Floats
    taus: tuple[float, ...]

    @classmethod
    def of(cls, width_d: Floats, mean_d: Floats, constant_d: Floats, sd: float, taus: tuple[float, ...]) -> WeightPrior:
        """Return the prior in which columns add log odds of mean 0 over rows, and the mean log odds are apart.

        Args:
            width_d: standard deviation of each weight over τ.
            mean_d: mean of the rows.
            constant_d: weights that add 1 to the log odds of every row; 0 if there are none.
            sd: standard deviation of the mean log odds.
            taus: as in the class.
        """
        centred_dd = np.eye(len(width_d)) - np.outer(constant_d, mean_d)
        slopes_dd = (centred_dd * width_d**2) @ centred_dd.T
        return cls(slopes_dd, sd**2 * np.outer(constant_d, constant_d), taus)

    def turned(self, matrix_de: Floats) -> WeightPrior:
        """The prior of the weights matrixᵀ(m - m_0)."""
        slopes_ee, fixed_ee = (matrix_de.T @ part @ matrix_de for part in (self.slopes_ee, self.fixed_ee))
        return WeightPrior(slopes_ee, fixed_ee, self.taus)

    def covariance(self, tau: float) -> Floats:
        """The covariance at τ, positive definite in spite of rounding."""
        total_ee = tau**2 * self.slopes_ee + self.fixed_ee
        total_ee.flat[:: len(total_ee) + 1] *= 1.0 + 1e-12
        return total_ee


def best_scale(point_e: Floats, variance_e: Floats, prior: WeightPrior) -> float:
    """τ of highest density, given estimates (e,) of m - m_0 with independent errors of variances (e,)."""
    if len(prior.taus) == 1:
        return prior.taus[0]
    fits = []
    for tau in prior.taus:
        root_ee = np.linalg.cholesky(prior.covariance(tau) + np.diag(variance_e))
        fits.append(
            -np.sum(np.log(np.diag(root_ee))) - 0.5 * np.sum(solve_triangular(root_ee, point_e, lower=True) ** 2)
        )
    return prior.taus[int(np.argmax(np.array(fits) + _log_prior(prior.taus)))]


def inverse(matrix_ee: Floats) -> tuple[Floats, float]:
    """Inverse and log determinant of a positive definite matrix, even if rounding has made it indefinite."""
    try:
        root = cho_factor(matrix_ee, lower=True)
    except np.linalg.LinAlgError:
        value_e, vector_ee = np.linalg.eigh(matrix_ee)
        value_e = np.maximum(value_e, 1e-13 * value_e[-1])
        return (vector_ee / value_e) @ vector_ee.T, float(np.sum(np.log(value_e)))
    return cho_solve(root, np.eye(len(matrix_ee))), 2.0 * float(np.sum(np.log(np.diag(root[0]))))


def posterior(score: NoisyScore, prior: WeightPrior) -> tuple[Floats, Floats]:
    """Mean (e,) and covariance (e, e) of z by a Newton step from a score, averaged over τ if it is unknown."""
    likelihood = score.information()
    fits, means, covariances = [], [], []
    for tau in prior.taus:
        precision_ee, log_variance = inverse(prior.covariance(tau))
        covariance_ee, log_precision = inverse(precision_ee + likelihood.precision)
        means.append(covariance_ee @ likelihood.pull_d)
        covariances.append(covariance_ee)
        fits.append(0.5 * float(likelihood.pull_d @ means[-1]) - 0.5 * (log_variance + log_precision))
    log_weight_a = np.array(fits) + _log_prior(prior.taus)
    weight_a = np.exp(log_weight_a - np.max(log_weight_a))
    weight_a /= weight_a.sum()
    mean_e = np.tensordot(weight_a, means, 1)
    spread_ae = np.array(means) - mean_e
    covariance_ee = np.tensordot(weight_a, covariances, 1) + (spread_ae.T * weight_a) @ spread_ae
    return mean_e, np.asarray(covariance_ee)


def honest(score: NoisyScore, prior: WeightPrior, error_ee: Floats, doubt_e: Floats) -> NoisyScore:
    """The score where the curvature was read with errors of these mean squares, (e, e), and the slope with (e,).

    Error times way from the score's point, to z or to the mean of z, is noise of the score; repetition finds its size.
    """
    added_e = np.zeros(len(error_ee))
    for _ in range(tuned.TABLE_ROUNDS if error_ee.any() else 0):
        mean_e, covariance_ee = posterior(replace(score, noise=score.noise + added_e), prior)
        step_e = (mean_e - score.offset_e) ** 2
        found_e = error_ee @ (step_e + np.diag(covariance_ee)) + doubt_e * step_e
        added_e += tuned.TABLE_DAMPING * (found_e - added_e)
    return replace(score, noise=score.noise + added_e)


def _log_prior(taus: tuple[float, ...]) -> Floats:
    return np.asarray(-0.5 * (np.log(np.array(taus) / tuned.TAU_MEDIAN) / tuned.TAU_SPREAD) ** 2)
