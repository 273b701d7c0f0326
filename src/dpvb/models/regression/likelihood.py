"""The likelihoods of regressions, and what a row of each may add, whatever a query says.

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
ψ and r > 0 the residual lies in [-M/(1 + M/r), M] and the curvature in [0, M/(1 + M/r)], as both are monotone in μ.

The Pólya-Gamma forms (Polson, Scott & Windle 2013) are p(y | ψ) ∝ exp(ψ)^a / (1 + exp ψ)^b with the log odds ψ; of the
negative binomial a = y, b = y + r and ψ = log(μ/r), and kappa is a - b/2. The Poisson distribution has no such form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, gammaln

from dpvb.data.tables.response import LOGISTIC, Kind, Response
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_number
from dpvb.models.expfam import polya_gamma_expectedstats


@dataclass(frozen=True)
class Likelihood:
    """The distribution of a response; every field is public.

    Attributes:
        kind: "logistic", "binomial", "negative_binomial" or "poisson".
        max_trials: bound on a row's trials (binomial).
        dispersion: r of the negative binomial, whose variance is mean + mean²/r; None: it is learned.
        max_count: bound on a row's count; larger ones are clipped to it.
        max_exposure, max_offset, max_weight: bounds of what stands beside the response, as in `Response`.

    Raises:
        ParameterError: for a field outside its range.
    """

    kind: Kind = "logistic"
    max_trials: float = 1.0
    dispersion: float | None = 1.0
    max_count: float = 1.0
    max_exposure: float | None = None
    max_offset: float | None = None
    max_weight: float | None = None

    def __post_init__(self) -> None:
        Response(**{name: getattr(self, name) for name in LOGISTIC.caps})  # checks the fields that both have
        if self.dispersion is not None:
            check_number("dispersion", self.dispersion, low=1e-6, high=1e9)

    @classmethod
    def of(cls, response: Response, dispersion: float | None = 1.0) -> Likelihood:
        """The likelihood of what a response may be."""
        bounds: dict[str, Any] = response.beside
        return cls(response.kind, float(response.max_trials), dispersion, float(response.max_count), **bounds)

    @property
    def max_b(self) -> float:
        """Bound on b_n; infinite for the Poisson distribution, which has none."""
        return self.max_count + self.r if self.is_count else self.max_size

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
    def most(self) -> float:
        """The largest response of a row, over its size."""
        return self.max_y / self.max_size

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

    def expected(self, psi_n: Floats) -> Floats:
        """Mean of the response of every row, over its size."""
        if not self.is_count:
            return np.asarray(expit(psi_n))
        return np.minimum(np.exp(np.minimum(psi_n, math.log(self.max_count))), self.max_count)

    def information(self, mean_n: Floats) -> Floats:
        """Curvature in expectation of counts of these means, all in [0, max_count]."""
        return np.asarray(mean_n / self._excess(mean_n))

    def residual(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """Derivative of log p(y | ψ) of every row."""
        mean_n = self.expected(psi_n)
        if self.is_count:
            return np.asarray((y_n - mean_n) / self._excess(mean_n))
        return y_n - self.size(y_n, trials_n) * mean_n

    def curvature(self, psi_n: Floats, size_n: Floats) -> Floats:
        """Minus the second derivative in expectation, over `steepest`: from 0 to a row's size."""
        if self.is_count:
            return size_n * self.information(self.expected(psi_n)) / self.steepest
        return 4.0 * size_n * expit(psi_n) * expit(-psi_n)

    def majoriser(self, psi_n: Floats, y_n: Floats, size_n: Floats) -> Floats:
        """What the curvature does not exceed between ψ and the mode of each row, over `steepest`; at most its size."""
        if self.is_count:
            return size_n * self.information(np.maximum(self.expected(psi_n), y_n)) / self.steepest
        return 4.0 * polya_gamma_expectedstats(size_n, psi_n)

    def _excess(self, mean_n: Floats) -> Floats:
        """1 + μ/r: the variance of a count over its mean."""
        return 1.0 + mean_n / self.r

    def log_probability(self, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
        """Logarithm of p(y | ψ) of each row."""
        if self.is_count:
            mean_n, r = np.maximum(self.expected(psi_n), 1e-300), self.r
            if self.kind == "poisson":
                return np.asarray(y_n * np.log(mean_n) - mean_n - gammaln(y_n + 1))
            rest_n = gammaln(y_n + r) - gammaln(y_n + 1) - gammaln(r)
            return np.asarray(y_n * np.log(mean_n / (mean_n + r)) - r * np.log1p(mean_n / r) + rest_n)
        size_n = self.size(y_n, trials_n)
        rest_n = gammaln(size_n + 1) - gammaln(y_n + 1) - gammaln(size_n - y_n + 1)
        return np.asarray(y_n * psi_n - size_n * np.logaddexp(0.0, psi_n) + rest_n)
