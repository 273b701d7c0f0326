"""Binomial likelihoods and the Gaussian posterior of their weights: what all regression models share.

    ψ_n = x_nᵀ m,   p(y_n | ψ_n) ∝ exp(ψ_n)^a_n / (1 + exp ψ_n)^b_n          unit: a row

==================  =========================  ==================================
likelihood          a                          b
==================  =========================  ==================================
logistic            y in {0, 1}                1
binomial            y in 0..trials             trials
negative binomial   y in 0..max_count          y + dispersion
==================  =========================  ==================================

==================  =============================================================================
paper               code
==================  =============================================================================
κ_n = a_n - b_n/2   kappa_n
b_n                 b_n: the shape of the Pólya-Gamma variable, at most max_b
a_n - b_n σ(ψ_n)    residual_n: derivative of the log likelihood in ψ_n
⟨ξ_n⟩               expfam.polya_gamma_expectedstats(b_n, c_n), c_n² = ⟨ψ_n²⟩ (Polson, Scott & Windle 2013)
==================  =============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr

from dpvb.data.tables.response import LOGISTIC, Kind, Response
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.regression.declared import Declared

# σ(ψ) ≈ Σ_i p_i Φ(s_i ψ), with an absolute error of at most 2.2e-9 (Monahan & Stefanski 1992).
_MIXTURE_P = np.array([0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818])
_MIXTURE_P = np.append(_MIXTURE_P, [0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354])
_MIXTURE_S = np.array([1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391])
_MIXTURE_S = np.append(_MIXTURE_S, [0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306])


@dataclass(frozen=True)
class Likelihood:
    """A binomial likelihood; every field is public.

    Attributes:
        kind: "logistic", "binomial" or "negative_binomial".
        max_trials: bound on a row's trials (binomial).
        dispersion: r of the negative binomial, whose variance is mean + mean²/r.
        max_count: bound on a row's count (negative binomial); larger ones are clipped to it.

    Raises:
        ParameterError: for a field outside its range.
    """

    kind: Kind = "logistic"
    max_trials: float = 1.0
    dispersion: float = 1.0
    max_count: float = 1.0

    def __post_init__(self) -> None:
        Response(**{name: getattr(self, name) for name in LOGISTIC.caps})  # checks the fields that both have
        check_number("dispersion", self.dispersion, low=1e-6, high=1e9)

    @classmethod
    def of(cls, response: Response, dispersion: float = 1.0) -> Likelihood:
        """The likelihood of what a response may be."""
        return cls(response.kind, float(response.max_trials), dispersion, float(response.max_count))

    @property
    def max_b(self) -> float:
        """Bound on b_n."""
        return {
            "logistic": 1.0,
            "binomial": self.max_trials,
            "negative_binomial": self.max_count + self.dispersion,
        }[self.kind]

    @property
    def max_y(self) -> float:
        """Bound on y_n."""
        return self.max_count if self.kind == "negative_binomial" else self.max_b

    @property
    def max_kappa(self) -> float:
        """Bound on |κ_n|."""
        if self.kind == "negative_binomial":
            return max(abs(self.max_count - self.dispersion), self.dispersion) / 2
        return self.max_b / 2

    @property
    def max_residual(self) -> float:
        """Bound on |a_n - b_n σ(ψ)| for every ψ."""
        return max(self.max_count, self.dispersion) if self.kind == "negative_binomial" else self.max_b

    @property
    def scale(self) -> str:
        """What a coefficient adds to, in words."""
        return "log rate" if self.kind == "negative_binomial" else "log odds"

    @property
    def shift(self) -> float:
        """What the intercept of a table has above that of ψ, a known number: of counts it is that of the log mean."""
        return math.log(self.dispersion) if self.kind == "negative_binomial" else 0.0

    def b(self, y_n: Floats, trials_n: Floats) -> Floats:
        """b_n of every row."""
        if self.kind == "negative_binomial":
            return y_n + self.dispersion
        return trials_n if self.kind == "binomial" else np.ones_like(y_n) + 0.0 * y_n

    def kappa(self, y_n: Floats, trials_n: Floats) -> Floats:
        """κ_n of every row."""
        return y_n - 0.5 * self.b(y_n, trials_n)

    def residual(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """a_n - b_n σ(ψ_n) of every row."""
        return y_n - self.b(y_n, trials_n) * expit(psi_n)

    def log_probability(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """Logarithm of p(y | ψ) of each row."""
        from scipy.special import gammaln

        b_n, r = self.b(y_n, trials_n), self.dispersion
        rest_n = {
            "logistic": np.zeros_like(y_n),
            "binomial": gammaln(trials_n + 1) - gammaln(y_n + 1) - gammaln(trials_n - y_n + 1),
            "negative_binomial": gammaln(y_n + r) - gammaln(y_n + 1) - gammaln(r),
        }[self.kind]
        return np.asarray(y_n * psi_n - b_n * np.logaddexp(0.0, psi_n) + rest_n)


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
            of x - centre and of the constant are independent.
    """

    mean_d: Floats
    covariance: Covariance
    naive_covariance: Covariance
    prior: Covariance
    unseen_d: Nonnegatives
    centre_d: Floats

    @classmethod
    def alone(cls, mean_d: Floats, covariance: Floats, naive_covariance: Floats) -> Weights:
        """A posterior of which nobody says what the prior decided: as if it were nothing."""
        zero_d = np.zeros(len(mean_d))
        return cls(mean_d, covariance, naive_covariance, np.full(len(mean_d), UNSEEN), zero_d, zero_d)
