"""Distributions of what a hidden state shows: symbols, bits, counts or numbers, each with its conjugate posterior.

An emission family answers two questions about distinct values x_r. How likely is each value in every state? What is the
posterior after state k has shown value r a given number of times? A missing value is ignored. Everything is public.

=================  ========================================================================
paper              code
=================  ========================================================================
B_·k ~ Dir         `CategoricalEmissions.count_vk`
θ_dk ~ Beta        `BernoulliEmissions.on_dk`, `off_dk`
λ_dk ~ Gam         `PoissonEmissions.shape_dk`, `rate_dk`
μ, τ ~ N × Gam     `GaussianEmissions`: μ_dk ~ N(mean, 1/(weight τ)), τ_dk ~ Gam(shape, rate)
=================  ========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Protocol, Self, cast

import numpy as np
from scipy.special import digamma, gammainc, gammaln

from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.guards.domains import Positive, Positives

Values = Floats | Ints


class Shown(NamedTuple):
    """Observations of positions for an E-step.

    Attributes:
        likelihood_rk, row_t: likelihoods under every state, up to a factor of each row, and each position's row.
        place_tf, value_tf: places (V) of what is counted, negative where nothing is, and nonnegative values there.
    """

    likelihood_rk: Floats
    row_t: Ints
    place_tf: Ints
    value_tf: Floats


class Emissions(Protocol):
    """A family of distributions of what a state shows."""

    #: Names of the parameters; the last axis of each is that of the states.
    of_states: ClassVar[tuple[str, ...]]

    @property
    def n_states(self) -> int:
        """K."""
        return len(getattr(self, self.of_states[0]).T)

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Logarithm of what a state shows each value with, (R, K), in nats, each value by itself.

        Args:
            value_r: values, (R,) of symbols or (R, D).
            expected: whether it is the expected logarithm under the posterior, or that at its means.
        """

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """The posterior after state k has shown value r `weight_rk` times."""

    def permuted(self, order_k: Ints) -> Self:
        """The states in another order, or some of them."""
        permuted: Self = replace(cast(Any, self), **{name: getattr(self, name)[:, order_k] for name in self.of_states})
        return permuted


def seen(value_r: Values) -> tuple[Floats, Bools]:
    """Values with 0 where they are missing, (R, D), and where they are not."""
    x_rd = np.asarray(value_r, dtype=np.float64).reshape(len(value_r), math.prod(value_r.shape[1:]))
    seen_rd = ~np.isnan(x_rd)
    return np.where(seen_rd, x_rd, 0.0), seen_rd


def added(terms: Iterable[Floats]) -> Floats:
    """The sum of terms, one after another, so that a value's bits are its own."""
    return np.asarray(reduce(np.add, terms))


def likelihoods(emissions: Emissions, value_r: Values, *, expected: bool) -> tuple[Floats, Floats]:
    """Likelihoods of values under every state, (R, K), with 1 for the largest, and what was taken off their logs."""
    log_rk = emissions.log_likelihood(value_r, expected=expected)
    most_r = log_rk.max(axis=1, initial=-1e300)
    return np.exp(log_rk - most_r[:, None]), most_r


@dataclass(frozen=True)
class CategoricalEmissions(Emissions):
    """One of V symbols; below 0: missing.

    Attributes:
        count_vk: Dirichlet parameters of every state.
        prior: the part of each that is prior.
    """

    of_states = ("count_vk",)

    count_vk: Positives
    prior: Positive = 0.1

    @property
    def mean_vk(self) -> Floats:
        """Probabilities of symbols."""
        return np.asarray(self.count_vk / self.count_vk.sum(axis=0))

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """⟨log B_vk⟩, or log⟨B_vk⟩."""
        log_vk = np.log(self.mean_vk)
        if expected:
            log_vk = digamma(self.count_vk) - digamma(self.count_vk.sum(axis=0))
        with_missing = np.vstack([log_vk, np.zeros(self.n_states)])
        return np.asarray(with_missing[np.where(value_r < 0, len(log_vk), value_r)])

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """Prior and counts."""
        symbol_r = value_r.astype(np.int64)
        seen_r = symbol_r >= 0
        count_vk = np.full_like(self.count_vk, self.prior)
        np.add.at(count_vk, symbol_r[seen_r], weight_rk[seen_r])
        return replace(self, count_vk=count_vk)


@dataclass(frozen=True)
class BernoulliEmissions(Emissions):
    """D bits, independent given the state; NaN: missing.

    Attributes:
        on_dk, off_dk: Beta parameters of every bit and state.
        prior: the part of each that is prior.
    """

    of_states = ("on_dk", "off_dk")

    on_dk: Positives
    off_dk: Positives
    prior: Positive = 0.5

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Σ_d x ⟨log θ⟩ + (1 - x) ⟨log(1 - θ)⟩."""
        of = digamma if expected else np.log
        all_dk = of(self.on_dk + self.off_dk)
        on_dk, off_dk = of(self.on_dk) - all_dk, of(self.off_dk) - all_dk
        x_rd, seen_rd = seen(value_r)
        return added(
            np.where(seen_rd[:, d, None], x_rd[:, d, None] * (on_dk[d] - off_dk[d]) + off_dk[d], 0.0)
            for d in range(len(on_dk))
        )

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """Prior and counts."""
        x_rd, seen_rd = seen(value_r)
        on_dk, seen_dk = x_rd.T @ weight_rk, seen_rd.T @ weight_rk
        return replace(self, on_dk=self.prior + on_dk, off_dk=self.prior + np.maximum(seen_dk - on_dk, 0.0))


@dataclass(frozen=True)
class PoissonEmissions(Emissions):
    """D counts, independent given the state; NaN: missing.

    Attributes:
        shape_dk, rate_dk: gamma parameters of every rate.
        most: Y; a count of Y stands for Y or more. 0: there is no such count.
        prior: prior shape, and prior rate over the public unit.
        unit: what a prior mean of a rate is.
    """

    of_states = ("shape_dk", "rate_dk")

    shape_dk: Positives
    rate_dk: Positives
    most: int = 0
    prior: Positive = 0.1
    unit: Positive = 1.0

    @property
    def mean_dk(self) -> Floats:
        """Rates."""
        return np.asarray(self.shape_dk / self.rate_dk)

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Σ_d x ⟨log λ⟩ - ⟨λ⟩ - log x!, and log P(X ≥ Y) at the means for a count of Y."""
        mean_dk = self.mean_dk
        log_dk = digamma(self.shape_dk) - np.log(self.rate_dk) if expected else np.log(mean_dk)
        x_rd, seen_rd = seen(value_r)
        many_dk = np.log(np.maximum(gammainc(max(self.most, 1), mean_dk), 1e-300))

        def term(d: int) -> Floats:
            x_r = x_rd[:, d, None]
            log_rk = x_r * log_dk[d] - mean_dk[d] - gammaln(x_r + 1.0)
            log_rk = np.where((self.most > 0) & (x_r >= self.most), many_dk[d], log_rk)
            return np.where(seen_rd[:, d, None], log_rk, 0.0)

        return added(term(d) for d in range(len(mean_dk)))

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """Prior, sums and numbers of counts; Y counts as the mean of Y and more."""
        x_rd, seen_rd = seen(value_r)
        number_dk, sum_dk = seen_rd.T @ weight_rk, x_rd.T @ weight_rk
        if self.most > 0:
            mean_dk = self.mean_dk
            at_least_dk, below_dk = gammainc(self.most, mean_dk), mean_dk
            if self.most > 1:
                below_dk = mean_dk * gammainc(self.most - 1, mean_dk)
            more_dk = np.where(at_least_dk > 0, below_dk / np.maximum(at_least_dk, 1e-300), self.most) - self.most
            sum_dk += ((x_rd >= self.most).T @ weight_rk) * np.maximum(more_dk, 0.0)
        return replace(self, shape_dk=self.prior + sum_dk, rate_dk=self.prior / self.unit + number_dk)


@dataclass(frozen=True)
class GaussianEmissions(Emissions):
    """D numbers, independent given the state; NaN: missing.

    A value of 2D numbers stands for points that are alike: their means, and their variances about these.

    Attributes:
        mean_dk, weight_dk: normal part of every posterior.
        shape_dk, rate_dk: gamma part.
        prior_weight, prior_mean: the prior's normal part.
        prior_shape, prior_rate: the prior's gamma part; their ratio bounds variances from below.
    """

    of_states = ("mean_dk", "weight_dk", "shape_dk", "rate_dk")

    mean_dk: Floats
    weight_dk: Positives
    shape_dk: Positives
    rate_dk: Positives
    prior_weight: Positive = 0.1
    prior_mean: float = 0.0
    prior_shape: Positive = 0.5
    prior_rate: Positive = 1e-3

    @property
    def variance_dk(self) -> Floats:
        """1/⟨τ⟩."""
        return np.asarray(self.rate_dk / self.shape_dk)

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Σ_d ½⟨log τ/2π⟩ - ½⟨τ (x - μ)²⟩."""
        variance_dk = self.variance_dk
        log_dk = -np.log(2 * math.pi * variance_dk)
        if expected:
            log_dk = digamma(self.shape_dk) - np.log(2 * math.pi * self.rate_dk) - 1.0 / self.weight_dk
        (x_rd, seen_rd), own_rd = self._points(value_r)

        def term(d: int) -> Floats:
            square_rk = (x_rd[:, d, None] - self.mean_dk[d]) ** 2 + own_rd[:, d, None]
            return np.where(seen_rd[:, d, None], 0.5 * (log_dk[d] - square_rk / variance_dk[d]), 0.0)

        return added(term(d) for d in range(len(log_dk)))

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """Prior, numbers, means and squares about them."""
        (x_rd, seen_rd), own_rd = self._points(value_r)
        number_dk, sum_dk = seen_rd.T @ weight_rk, x_rd.T @ weight_rk
        weight_dk = self.prior_weight + number_dk
        mean_dk = (self.prior_weight * self.prior_mean + sum_dk) / weight_dk
        square_dk = self.prior_weight * (mean_dk - self.prior_mean) ** 2
        for d in range(len(mean_dk)):
            square_rk = np.where(seen_rd[:, d, None], (x_rd[:, d, None] - mean_dk[d]) ** 2 + own_rd[:, d, None], 0.0)
            square_dk[d] += np.sum(weight_rk * square_rk, axis=0)
        shape_dk, rate_dk = self.prior_shape + 0.5 * number_dk, self.prior_rate + 0.5 * square_dk
        return replace(self, mean_dk=mean_dk, weight_dk=weight_dk, shape_dk=shape_dk, rate_dk=rate_dk)

    def _points(self, value_r: Values) -> tuple[tuple[Floats, Bools], Floats]:
        """Values, where they are not missing, and their own variances."""
        d = len(self.mean_dk)
        x_rd = np.asarray(value_r, dtype=np.float64)
        own_rd = x_rd[:, d:] if x_rd.shape[1] > d else np.zeros((len(x_rd), d))
        return seen(x_rd[:, :d]), own_rd
