"""Normal posteriors of weights m under a prior of unknown width: N(m_0, τ²·slopes + fixed), τ on a grid.

Input is a noisy score at a point, with its derivative. τ has a weak log-normal prior. Vectors (e,) are in an eigenbasis
of the rows. With the covariance of the prior as L Lᵀ, L = [τA, B], and a likelihood of precision P and pull h,

    covariance = L M⁻¹ Lᵀ,   mean = covariance h,   log evidence = ½ hᵀ mean - ½ log|M|,   M = I + LᵀPL,

so that no prior is inverted, and [A, B]ᵀ P [A, B] serves all τ.

An earlier release of other people, or a public study, adds a normal likelihood of the weights,

    log p(data | m) = -½ mᵀ P m + hᵀ m + constant.

Precisions P and pulls h of disjoint people add up. Everything here is public, and post-processing costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives
from dpvb.models.regression import tuned

# convention: a τ of less weight changes no digit of the covariance.
_LEAST_WEIGHT = 1e-20


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
        parts = [self.precision, other.precision]
        if parts[0].ndim != parts[1].ndim:
            parts = [np.diag(part) if part.ndim == 1 else part for part in parts]
        return NormalLikelihood(parts[0] + parts[1], self.pull_d + other.pull_d)

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
        variance: variance of the score between samples in the model, (e, e), or its diagonal, (e,).
        steep: factor of that variance in minus the derivative of the score.
        noise: variance of the privacy noise in each coordinate of the score, a number or (e,); or its covariance.
        beside: normal likelihoods of z from other people.
        robust_ee: variance of the score between samples as it was released; None: that of the model.
    """

    score_e: Floats
    offset_e: Floats
    variance: Floats
    steep: float
    noise: float | Floats
    beside: Sequence[NormalLikelihood] = ()
    robust_ee: Floats | None = None

    def slope(self, way_e: Floats) -> Floats:
        """Minus the derivative of the score, times a vector."""
        return np.asarray(self.steep * (self.variance @ way_e if self.variance.ndim == 2 else self.variance * way_e))

    def information(self) -> NormalLikelihood:
        """Normal likelihood of z by the score and `beside`: its pull is P times the Newton point."""
        steep, newton_e = self.steep, self.score_e + self.slope(self.offset_e)
        if not np.any(self.noise) and self.robust_ee is None:
            of_score = NormalLikelihood(steep**2 * self.variance, steep * newton_e)
        elif self.variance.ndim == 1:
            gain_e = steep * self.variance / (self.variance + self.noise)
            of_score = NormalLikelihood(steep * gain_e * self.variance, gain_e * newton_e)
        else:
            noise_ee = self.noise if np.ndim(self.noise) == 2 else np.diag(self.noise + np.zeros(len(newton_e)))
            root_ee = _root((self.variance if self.robust_ee is None else self.robust_ee) + noise_ee)
            half_ee = steep * solve_triangular(root_ee, self.variance, lower=True)
            half_e = solve_triangular(root_ee, newton_e, lower=True)
            of_score = NormalLikelihood(half_ee.T @ half_ee, half_ee.T @ half_e)
        return reduce(NormalLikelihood.joined, self.beside, of_score)


@dataclass(frozen=True)
class WeightPrior:
    """The prior of the weights m: N(m_0, τ² A Aᵀ + B Bᵀ); public.

    Attributes:
        slopes_ef: A, of the effects of columns at τ = 1.
        fixed_eg: B, of what does not depend on τ: the mean log odds.
        taus: values that τ may have; if there are several, log τ is approximately normal.
    """

    slopes_ef: Floats
    fixed_eg: Floats
    taus: tuple[float, ...]

    @classmethod
    def of(
        cls,
        basis_de: Floats,
        width_d: Floats,
        mean_d: Floats,
        constant_e: Floats,
        sd: float,
        taus: tuple[float, ...],
    ) -> WeightPrior:
        """Return the prior in which columns add log odds of mean 0 over rows, and the mean log odds are apart.

        Args:
            basis_de: orthogonal; the prior is one of weights in this basis.
            width_d: standard deviation of each weight over τ.
            mean_d: mean of the rows.
            constant_e: weights that add 1 to the log odds of every row; 0 if there are none.
            sd: standard deviation of the mean log odds.
            taus: as in the class.
        """
        return cls((basis_de.T - np.outer(constant_e, mean_d)) * width_d, sd * constant_e[:, None], taus)

    @property
    def factor_ef(self) -> Floats:
        """[A, B]."""
        return np.hstack([self.slopes_ef, self.fixed_eg])

    def stretch(self, tau: float) -> Floats:
        """Factors of the columns of [A, B] at τ, (f,)."""
        return np.repeat([tau, 1.0], [self.slopes_ef.shape[1], self.fixed_eg.shape[1]])

    def turned(self, matrix_de: Floats) -> WeightPrior:
        """The prior of the weights matrix (m - m_0); of scales (e,): each weight times its own."""
        parts = (self.slopes_ef, self.fixed_eg)
        slopes, fixed = (matrix_de @ part if matrix_de.ndim == 2 else matrix_de[:, None] * part for part in parts)
        return WeightPrior(slopes, fixed, self.taus)

    def covariance(self, tau: float) -> Floats:
        """The covariance at τ."""
        factor_ef = self.factor_ef * self.stretch(tau)
        return factor_ef @ factor_ef.T


@dataclass(frozen=True)
class _AtScales:
    """The posterior at each τ of a prior, and how likely each τ is."""

    likelihood: NormalLikelihood
    prior: WeightPrior

    @cached_property
    def _gram_ff(self) -> Floats:
        """[A, B]ᵀ P [A, B]."""
        factor_ef, precision = self.prior.factor_ef, self.likelihood.precision
        if precision.ndim == 1:
            factor_ef *= np.sqrt(precision)[:, None]
            return factor_ef.T @ factor_ef
        return factor_ef.T @ precision @ factor_ef

    def _root(self, tau: float) -> Floats:
        """Root of M."""
        stretch_f = self.prior.stretch(tau)
        m_ff = self._gram_ff * stretch_f * stretch_f[:, None]
        m_ff.flat[:: len(m_ff) + 1] += 1.0
        return _root(m_ff)

    @cached_property
    def fits(self) -> tuple[Floats, Floats]:
        """Log density of each τ, (a,), up to a constant, and means, (a, e)."""
        factor_ef, fits, means = self.prior.factor_ef, [], []
        pull_f = factor_ef.T @ self.likelihood.pull_d
        for tau in self.prior.taus:
            root_ff, stretch_f = self._root(tau), self.prior.stretch(tau)
            way_f = stretch_f * cho_solve((root_ff, True), stretch_f * pull_f)
            means.append(factor_ef @ way_f)
            fits.append(0.5 * float(pull_f @ way_f) - float(np.sum(np.log(np.abs(np.diag(root_ff))))))
        return np.array(fits) + _log_prior(self.prior.taus), np.array(means)

    @cached_property
    def weight_a(self) -> Floats:
        """Probability of each τ."""
        weight_a = np.exp(self.fits[0] - np.max(self.fits[0]))
        return np.asarray(weight_a / weight_a.sum())

    @property
    def mean_e(self) -> Floats:
        """Mean over all τ."""
        return self.weight_a @ self.fits[1]

    def covariance(self) -> Floats:
        """Covariance over all τ, (e, e)."""
        factor_ef, middle_ff = self.prior.factor_ef, np.zeros_like(self._gram_ff)
        for tau, weight in zip(self.prior.taus, self.weight_a, strict=True):
            if weight > _LEAST_WEIGHT:
                stretch_f = self.prior.stretch(tau)
                low_ff = np.tril(dpotri(self._root(tau), lower=1)[0])
                middle_ff += weight * stretch_f * stretch_f[:, None] * (low_ff + np.tril(low_ff, -1).T)
        spread_ae = self.fits[1] - self.mean_e
        covariance_ee = factor_ef @ middle_ff @ factor_ef.T + (spread_ae.T * self.weight_a) @ spread_ae
        return np.asarray(0.5 * (covariance_ee + covariance_ee.T))


def best_scale(point_e: Floats, variance_e: Floats, prior: WeightPrior) -> float:
    """τ of highest density, given estimates (e,) of m - m_0 with independent errors of variances (e,)."""
    if len(prior.taus) == 1:
        return prior.taus[0]
    likelihood = NormalLikelihood(1.0 / variance_e, point_e / variance_e)
    return prior.taus[int(np.argmax(_AtScales(likelihood, prior).fits[0]))]


def mean_of(likelihood: NormalLikelihood, prior: WeightPrior) -> Floats:
    """Mean (e,) of the weights, averaged over τ if it is unknown."""
    return _AtScales(likelihood, prior).mean_e


def covariance_of(likelihood: NormalLikelihood, prior: WeightPrior) -> Floats:
    """Covariance (e, e) of the weights, averaged over τ if it is unknown."""
    return _AtScales(likelihood, prior).covariance()


def posterior(score: NoisyScore, prior: WeightPrior) -> tuple[Floats, Floats]:
    """Mean (e,) and covariance (e, e) of z by a Newton step from a score, averaged over τ if it is unknown."""
    at_scales = _AtScales(score.information(), prior)
    return at_scales.mean_e, at_scales.covariance()


def _root(matrix_ff: Floats) -> Floats:
    """Lower triangular root of a positive definite matrix, even if rounding has made it indefinite."""
    try:
        return np.asarray(cho_factor(matrix_ff.T, lower=True)[0])
    except np.linalg.LinAlgError:
        value_f, vector_ff = np.linalg.eigh(matrix_ff)
        value_f = np.maximum(value_f, 1e-13 * value_f[-1])
        return np.asarray(np.linalg.qr(np.sqrt(value_f)[:, None] * vector_ff.T, mode="r")).T


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
