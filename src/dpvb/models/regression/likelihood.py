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

A row of weight w adds w times what it would add with weight 1, and so do its bounds: a row of weight 2 is the row
twice, a row of weight 0 is none, and the likelihood of a row is raised to its weight.

A regression starts at its base rate, from noisy sums of responses, of rows, and of what rows add to ψ. Predictions
average the likelihood over a normal ψ,

    P(Y ≤ k) = ∫ F(k | ψ) N(ψ | mean, variance) dψ,

F being the distribution function. The ends of an interval are the least k at which P(Y ≤ k) is tail, or 1 - tail, and
more, by quadrature. Calculations from sums, or from a posterior, cost no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from scipy.special import betainc, expit, gammaln, logit, ndtr, ndtri, pdtr

from dpvb.core.blocks import Block
from dpvb.data.tables.response import LOGISTIC, Kind, Response
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_number
from dpvb.models.regression import tuned
from dpvb.rows import RegressionRows

# convention: least base rate, as a probability or a mean count; a start farther out is farther than a path goes back.
LEAST_RATE = 1e-3


@dataclass(frozen=True)
class Likelihood:
    """The distribution of a response; every field is public.

    Attributes:
        kind: "logistic", "binomial", "negative_binomial" or "poisson".
        max_trials: bound on a row's trials (binomial).
        dispersion: r of the negative binomial, whose variance is mean + mean²/r; None: it is learned.
        max_count: bound on a row's count; larger ones are clipped to it.
        max_exposure, max_offset, max_weight: bounds of the row arguments, as in `Response`.

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
    def learns_dispersion(self) -> bool:
        """Whether the dispersion is learned together with the weights."""
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
    def max_residual(self) -> float:
        """Bound on |residual_n| for every ψ and every dispersion: as the header shows."""
        return self.max_y

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

    def bounded(self, blocks: Mapping[str, Block]) -> dict[str, Block]:
        """Blocks of rows of weights up to `max_weight`, from those of rows that count once."""
        most = self.max_weight or 1.0
        return {name: replace(block, bound=most * block.bound) for name, block in blocks.items()}

    @property
    def is_shifted(self) -> bool:
        """Whether rows have an offset or an exposure, which they add to ψ."""
        return self.max_exposure is not None or self.max_offset is not None

    def base_block(self, width: int, phase: Literal["first", "third"], weight: float) -> Block:
        """The block of `base_counts`, whose first `width` sums are those of responses and of their complements."""
        shifted = self.is_shifted
        bound = self.max_y * (math.sqrt(2) if shifted else 1.0)
        return Block((width + shifted,), bound, "nonnegative", phase, weight=weight)

    def base_counts(self, batch: RegressionRows, width: int) -> Floats:
        """Contributions to the base rate, (n, width), and one column more where rows have an offset or an exposure.

        They are y, its complement (what is left to the largest response), and the offset as a share of the largest
        response; each part has norm max_y at most.
        """
        most_n = self.most * self.size(batch.y_n, batch.trials_n)
        shares_n = [] if batch.offset_n is None else [most_n * self.share(batch.offset_n)]
        return np.stack([*[batch.y_n, most_n - batch.y_n][:width], *shares_n], axis=1)

    def base_shift(self, total_c: Sequence[float], sd: float, number: float) -> tuple[float, float]:
        """Shift of ψ by an average row of its own, and the standard deviation of the noise of that.

        Args:
            total_c: noisy sum of the shares of rows, of noise std sd; empty where they have none.
            sd: that std.
            number: number of rows.
        """
        if not len(total_c):
            return 0.0, 0.0
        error = sd / number
        share = min(max(float(total_c[0]) / number, tuned.BASE_RATE_STD * error), 1.0)
        if share == 0:
            share = 1.0  # No row says anything.
        reach = self._reach
        if self.is_count:
            return reach + math.log(share), error / share
        return reach * (2.0 * share - 1.0), 2.0 * reach * error

    def count_interval(self, mean_n: Floats, variance_n: Floats, tail: float) -> tuple[Floats, Floats]:
        """Quantiles tail and 1 - tail of counts, (n,) each, at most max_count."""

        def below(k_n: Floats, psi_nk: Floats, rows: slice) -> Floats:
            mu_nk = self.expected(psi_nk)
            if self.kind == "poisson":
                return np.asarray(pdtr(k_n, mu_nk))
            return np.asarray(betainc(self.r, k_n + 1.0, self.r / (self.r + mu_nk)))

        return _ends(below, mean_n, variance_n, np.full(len(mean_n), self.max_count), tail)

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

    @property
    def _reach(self) -> float:
        """The most that a row adds to ψ."""
        return (self.max_offset or 0.0) + math.log(self.max_exposure or 1.0)

    def share(self, offset_n: Floats) -> Floats:
        """Return the shift of ψ by rows as a part of the most, in [0, 1]: for counts the factor of the mean."""
        if self.is_count:
            return np.asarray(np.exp(np.minimum(offset_n - self._reach, 0.0)))
        return np.clip(0.5 + 0.5 * offset_n / self._reach, 0.0, 1.0)


def log_odds(count: float, sd: float, number: float) -> tuple[float, float]:
    """Log odds of a noisy count (of noise std sd) among `number` trials, and the standard deviation of its noise."""
    trials = max(number, 0.0) + 2.0
    error = sd / trials
    low = min(max(tuned.BASE_RATE_STD * error, LEAST_RATE), 0.5)
    base = float(np.clip((count + 1.0) / trials, low, 1.0 - low))
    return float(logit(base)), error / (base * (1.0 - base))


# σ(ψ) ≈ Σ_i p_i Φ(s_i ψ), with an absolute error of at most 2.2e-9 (Monahan & Stefanski 1992).
_MIXTURE_P = np.array([0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818])
_MIXTURE_P = np.append(_MIXTURE_P, [0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354])
_MIXTURE_S = np.array([1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391])
_MIXTURE_S = np.append(_MIXTURE_S, [0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306])

# The trapezoidal rule at a sixth of a standard deviation: exact where F is smooth at that scale.
_NODE_K: Final = np.linspace(-5.0, 5.0, 61)
_WEIGHT_K: Final = np.exp(-0.5 * _NODE_K**2) / np.exp(-0.5 * _NODE_K**2).sum()
# convention: rows whose nodes are in memory at once.
_ROWS: Final = 4096


def predictive(mean_n: Floats, variance_n: Floats) -> Floats:
    """E[σ(ψ)] for ψ ~ N(mean, variance), (n,): absolute error below 2.2e-9; relative error below 1 % in the lower tail.

    For each Φ of the mixture the integral is one Φ; far below zero, where σ(ψ) is exp ψ, it is exp(mean + variance/2).
    """
    spread_ni = np.sqrt(1.0 + variance_n[:, None] * _MIXTURE_S**2)
    middle_n = np.clip(ndtr(mean_n[:, None] * _MIXTURE_S / spread_ni) @ _MIXTURE_P, 0.0, 1.0)
    return np.where(mean_n + 1.5 * variance_n < -15, np.exp(np.minimum(mean_n + variance_n / 2, 0.0)), middle_n)


def both_outcomes(mean_n: Floats, variance_n: Floats) -> Floats:
    """Probabilities of failure and success, (n, 2), each precise where it is small."""
    return np.column_stack([predictive(-mean_n, variance_n), predictive(mean_n, variance_n)])


def tail(level: float) -> float:
    """Probability outside each end of an interval with so much inside.

    Raises:
        ParameterError: unless level is in (0, 1).
    """
    return (1 - check_number("level", level, low=0, high=1, closed="neither")) / 2


def probability_interval(mean_n: Floats, variance_n: Floats, tail: float) -> tuple[Floats, Floats]:
    """Quantiles tail and 1 - tail of σ(ψ), (n,) each: exact, since σ grows."""
    reach_n = -ndtri(tail) * np.sqrt(variance_n)
    return expit(mean_n - reach_n), expit(mean_n + reach_n)


def binomial_interval(mean_n: Floats, variance_n: Floats, trials: Any, tail: float) -> tuple[Floats, Floats]:
    """Quantiles tail and 1 - tail of successes in so many trials, (n,) each.

    Raises:
        ParameterError: unless trials are whole numbers of 0 or more, one or as many as rows.
    """
    trials_n = np.asarray(trials, dtype=np.float64)
    if trials_n.shape not in ((), mean_n.shape) or not ((trials_n >= 0) & (trials_n == np.floor(trials_n))).all():
        raise ParameterError(f"trials must be whole numbers of 0 or more, one or {len(mean_n)} of them.")
    trials_n = np.broadcast_to(trials_n, mean_n.shape)

    def below(k_n: Floats, psi_nk: Floats, rows: slice) -> Floats:
        # The answer is never asked for at k = trials, where the first argument would be 0.
        return np.asarray(betainc(trials_n[rows, None] - k_n, k_n + 1.0, expit(-psi_nk)))

    return _ends(below, mean_n, variance_n, trials_n, tail)


def _ends(
    below: Callable[[Floats, Floats, slice], Floats], mean_n: Floats, variance_n: Floats, most_n: Floats, tail: float
) -> tuple[Floats, Floats]:
    """Both quantiles of every row."""
    ends = np.empty((2, len(mean_n)))
    for start in range(0, len(mean_n), _ROWS):
        rows = slice(start, start + _ROWS)
        psi_nk = mean_n[rows, None] + np.sqrt(variance_n[rows, None]) * _NODE_K
        for end_n, share in zip(ends, (tail, 1.0 - tail), strict=True):
            # The answer lies in (low, high]; halving ends for every row at the same step.
            low_n, high_n = np.full(len(psi_nk), -1.0), np.array(most_n[rows])
            while (high_n - low_n > 1).any():
                middle_n = np.floor((low_n + high_n) / 2)
                reached_n = below(middle_n[:, None], psi_nk, rows) @ _WEIGHT_K >= share
                wide_n = high_n - low_n > 1
                low_n = np.where(wide_n & ~reached_n, middle_n, low_n)
                high_n = np.where(wide_n & reached_n, middle_n, high_n)
            end_n[rows] = high_n
    return ends[0], ends[1]
