"""The likelihoods of regressions and the Gaussian posterior of their weights: what all regression models share.

    ψ_n = x_nᵀ m,   residual_n: derivative of log p(y_n | ψ_n) in ψ_n                unit: a row

=================  =================  ============  ==================  ===========================
likelihood         response           ψ             residual            curvature, in expectation
=================  =================  ============  ==================  ===========================
logistic           y in {0, 1}        log odds      y - σ(ψ)            σ(ψ)(1 - σ(ψ))
binomial           y in 0..trials     log odds      y - trials·σ(ψ)     trials·σ(ψ)(1 - σ(ψ))
negative binomial  y in 0..max_count  log mean      (y - μ)/(1 + μ/r)   μ/(1 + μ/r)
Poisson            y in 0..max_count  log mean      y - μ               μ
=================  =================  ============  ==================  ===========================

Counts have μ = min(exp ψ, max_count) and the dispersion r. So both y and μ lie in [0, M], M = max_count, and for every
ψ and r > 0 the residual lies in [-M/(1 + M/r), M] and the curvature in [0, M/(1 + M/r)]: a row has a bound at any
query. (The first falls and the second grows with μ, from y and 0 at μ = 0 to what they are at μ = M.)

The Pólya-Gamma forms are p(y | ψ) ∝ exp(ψ)^a / (1 + exp ψ)^b with the log odds ψ; of the negative binomial a = y,
b = y + r and ψ = log(μ/r). The Poisson distribution has no such form.

==================  =============================================================================
paper               code
==================  =============================================================================
κ_n = a_n - b_n/2   kappa_n
b_n                 b_n: the shape of the Pólya-Gamma variable, at most max_b
⟨ξ_n⟩               expfam.polya_gamma_expectedstats(b_n, c_n), c_n² = ⟨ψ_n²⟩ (Polson, Scott & Windle 2013)
==================  =============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from scipy.special import expit, ndtr

from dpvb.data.tables.response import LOGISTIC, Kind, Response
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.models.regression.declared import Declared

# σ(ψ) ≈ Σ_i p_i Φ(s_i ψ), with an absolute error of at most 2.2e-9 (Monahan & Stefanski 1992).
_MIXTURE_P = np.array([0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818])
_MIXTURE_P = np.append(_MIXTURE_P, [0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354])
_MIXTURE_S = np.array([1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391])
_MIXTURE_S = np.append(_MIXTURE_S, [0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306])


@dataclass(frozen=True)
class Likelihood:
    """The distribution of a response; every field is public.

    Attributes:
        kind: "logistic", "binomial", "negative_binomial" or "poisson".
        max_trials: bound on a row's trials (binomial).
        dispersion: r of the negative binomial, whose variance is mean + mean²/r; None: it is learned.
        max_count: bound on a row's count; larger ones are clipped to it.

    Raises:
        ParameterError: for a field outside its range.
    """

    kind: Kind = "logistic"
    max_trials: float = 1.0
    dispersion: float | None = 1.0
    max_count: float = 1.0

    def __post_init__(self) -> None:
        Response(**{name: getattr(self, name) for name in LOGISTIC.caps})  # checks the fields that both have
        if self.dispersion is not None:
            check_number("dispersion", self.dispersion, low=1e-6, high=1e9)

    @classmethod
    def of(cls, response: Response, dispersion: float | None = 1.0) -> Likelihood:
        """The likelihood of what a response may be."""
        return cls(response.kind, float(response.max_trials), dispersion, float(response.max_count))

    @property
    def max_b(self) -> float:
        """Bound on b_n."""
        return {
            "logistic": 1.0,
            "binomial": self.max_trials,
            "negative_binomial": self.max_count + self.r,
            "poisson": math.inf,
        }[self.kind]

    @property
    def learns_dispersion(self) -> bool:
        """Whether the dispersion is learned beside the weights."""
        return self.kind == "negative_binomial" and self.dispersion is None

    @property
    def r(self) -> float:
        """The dispersion; infinite for the Poisson distribution.

        Raises:
            ParameterError: if it is still to be learned.
        """
        if self.learns_dispersion:
            raise ParameterError("dispersion must be a number here: a likelihood at None has no value.")
        return math.inf if self.kind == "poisson" or self.dispersion is None else self.dispersion

    def at(self, r: float) -> Likelihood:
        """The likelihood at a dispersion that was learned; the same if its own is known."""
        return replace(self, dispersion=r) if self.learns_dispersion else self

    @property
    def is_count(self) -> bool:
        """Whether ψ is a log mean, and not log odds."""
        return self.kind in ("negative_binomial", "poisson")

    @property
    def max_y(self) -> float:
        """Bound on y_n."""
        return self.max_count if self.is_count else self.max_size

    @property
    def max_size(self) -> float:
        """Bound on a row's size."""
        return self.max_trials if self.kind == "binomial" else 1.0

    @property
    def steepest(self) -> float:
        """The largest curvature of a row, over its size."""
        return float(self.information(np.array(self.max_count))) if self.is_count else 0.25

    def usual(self, psi: float) -> float:
        """Curvature of counts of one log mean; of log odds the largest."""
        return self.steepest * float(self.curvature(np.array(psi), np.array(1.0))) if self.is_count else 0.25

    @property
    def max_kappa(self) -> float:
        """Bound on |κ_n|."""
        if self.kind == "negative_binomial":
            return max(abs(self.max_count - self.r), self.r) / 2
        return self.max_b / 2

    @property
    def max_residual(self) -> float:
        """Bound on |residual_n| for every ψ and every dispersion: as the header shows."""
        return self.max_y

    @property
    def scale(self) -> str:
        """What a coefficient adds to, in words."""
        return "log rate" if self.is_count else "log odds"

    def b(self, y_n: Floats, trials_n: Floats) -> Floats:
        """b_n of every row."""
        if self.kind == "negative_binomial":
            return y_n + self.r
        return trials_n if self.kind == "binomial" else np.ones_like(y_n) + 0.0 * y_n

    def kappa(self, y_n: Floats, trials_n: Floats) -> Floats:
        """κ_n of every row."""
        return y_n - 0.5 * self.b(y_n, trials_n)

    def size(self, y_n: Floats, trials_n: Floats) -> Floats:
        """Trials of every row, 1 where there are none; NaN for a faulty row."""
        return trials_n if self.kind == "binomial" else np.ones_like(y_n) + 0.0 * y_n

    def mean(self, psi_n: Floats) -> Floats:
        """Mean of the response of every row, over its size."""
        if not self.is_count:
            return np.asarray(expit(psi_n))
        return np.minimum(np.exp(np.minimum(psi_n, math.log(self.max_count))), self.max_count)

    def information(self, mean_n: Floats) -> Floats:
        """Curvature in expectation of counts of these means, all in [0, max_count]."""
        return np.asarray(mean_n / self._excess(mean_n))

    def residual(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """Derivative of log p(y | ψ) of every row."""
        mean_n = self.mean(psi_n)
        if self.is_count:
            return np.asarray((y_n - mean_n) / self._excess(mean_n))
        return y_n - self.size(y_n, trials_n) * mean_n

    def curvature(self, psi_n: Floats, size_n: Floats) -> Floats:
        """Minus the second derivative in expectation, over `steepest`: from 0 to a row's size."""
        if self.is_count:
            return size_n * self.information(self.mean(psi_n)) / self.steepest
        return 4.0 * size_n * expit(psi_n) * expit(-psi_n)

    def majoriser(self, psi_n: Floats, y_n: Floats, size_n: Floats) -> Floats:
        """What the curvature does not exceed between ψ and the mode of each row, over `steepest`; at most its size."""
        if self.is_count:
            return size_n * self.information(np.maximum(self.mean(psi_n), y_n)) / self.steepest
        return 4.0 * polya_gamma_expectedstats(size_n, psi_n)

    def _excess(self, mean_n: Floats) -> Floats:
        """1 + μ/r: the variance of a count over its mean."""
        return 1.0 + mean_n / self.r

    def log_probability(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """Logarithm of p(y | ψ) of each row."""
        from scipy.special import gammaln

        if self.is_count:
            mean_n, r = np.maximum(self.mean(psi_n), 1e-300), self.r
            if self.kind == "poisson":
                return np.asarray(y_n * np.log(mean_n) - mean_n - gammaln(y_n + 1))
            rest_n = gammaln(y_n + r) - gammaln(y_n + 1) - gammaln(r)
            return np.asarray(y_n * np.log(mean_n / (mean_n + r)) - r * np.log1p(mean_n / r) + rest_n)
        size_n = self.size(y_n, trials_n)
        rest_n = gammaln(size_n + 1) - gammaln(y_n + 1) - gammaln(size_n - y_n + 1)
        return np.asarray(y_n * psi_n - size_n * np.logaddexp(0.0, psi_n) + rest_n)


def check_fields(
    n_features: int, num_steps: int, intercept: float, alpha: float | None, declared: Declared | None = None
) -> None:
    """Check what the first-order models have in common.

    Raises:
        ParameterError: for a field outside its range.
    """
    check_integer("n_features", n_features, low=1, high=10**7)
    check_integer("num_steps", num_steps, low=1, high=10**7)
    check_number("intercept", intercept, low=0, high=1, closed="left")
    check_number("alpha", 1.0 if alpha is None else alpha, low=1e-6, high=1e6)
    if declared is not None and len(declared.unit_d) != n_features:
        raise ParameterError(f"declared must speak of {n_features} columns, got {len(declared.unit_d)}.")


def predictive(mean_n: Floats, variance_n: Floats) -> Floats:
    """E[σ(ψ)] for ψ ~ N(mean, variance), (n,): absolute error below 2.2e-9; relative error below 1 % in the lower tail.

    For each Φ of the mixture the integral is one Φ; far below zero, where σ(ψ) is exp ψ, it is exp(mean + variance/2).
    """
    spread_ni = np.sqrt(1.0 + variance_n[:, None] * _MIXTURE_S**2)
    middle_n = np.clip(ndtr(mean_n[:, None] * _MIXTURE_S / spread_ni) @ _MIXTURE_P, 0.0, 1.0)
    return np.where(mean_n + 1.5 * variance_n < -15, np.exp(np.minimum(mean_n + variance_n / 2, 0.0)), middle_n)


@dataclass(frozen=True)
class Weights:
    """q(m) = N(mean, covariance) over the weights, as read from releases; public.

    Attributes:
        mean_d: posterior means.
        covariance: posterior covariance, (d, d), or its diagonal, (d,), with the privacy noise counted in.
        naive_covariance: the covariance that leaves the privacy noise out; for comparison.
        prior: prior covariance, (d, d), or its diagonal, (d,); domains.UNSEEN where it is not said.
        unseen_d: 1 for a column whose spread was not seen for noise, else 0.
        centre_d: released centres of numeric columns, and 0 for others. A diagonal covariance holds about them: weights
            of x - centre and of the constant are independent, once the slants are off x.
        slant_3k: rows, columns and values of S where a diagonal covariance is one of weights of x - S x, (3, k).
    """

    mean_d: Floats
    covariance: Covariance
    naive_covariance: Covariance
    prior: Covariance
    unseen_d: Nonnegatives
    centre_d: Floats
    slant_3k: Floats = field(default_factory=lambda: np.zeros((3, 0)))

    @property
    def slants(self) -> sparse.csr_array:
        """S, (d, d)."""
        (row, column, value), width = self.slant_3k, len(self.mean_d)
        return sparse.csr_array((value, (row.astype(np.intp), column.astype(np.intp))), shape=(width, width))

    @classmethod
    def alone(cls, mean_d: Floats, covariance: Floats, naive_covariance: Floats) -> Weights:
        """A posterior of which nobody says what the prior decided: as if it were nothing."""
        zero_d = np.zeros(len(mean_d))
        return cls(mean_d, covariance, naive_covariance, np.full(len(mean_d), UNSEEN), zero_d, zero_d)
