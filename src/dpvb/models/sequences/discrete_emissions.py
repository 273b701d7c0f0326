"""States that show one of V symbols, or D bits.

=================  ========================================================================
paper              code
=================  ========================================================================
B_·k ~ Dir         `Categorical.count_vk`
θ_dk ~ Beta        `Bernoulli.on_dk`, `off_dk`
=================  ========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import digamma

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Positive, Positives
from dpvb.models.sequences import emissions
from dpvb.models.sequences.emissions import Values


@dataclass(frozen=True)
class Categorical:
    """One of V symbols; below 0: missing.

    Attributes:
        count_vk: Dirichlet parameters of every state.
        prior: the part of each that is prior.
    """

    count_vk: Positives
    prior: Positive = 0.1

    @property
    def n_states(self) -> int:
        """K."""
        return len(self.count_vk.T)

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

    def permuted(self, order_k: Ints) -> Self:
        """The states in another order."""
        return replace(self, count_vk=self.count_vk[:, order_k])


@dataclass(frozen=True)
class Bernoulli:
    """D bits, independent given the state; NaN: missing.

    Attributes:
        on_dk, off_dk: Beta parameters of every bit and state.
        prior: the part of each that is prior.
    """

    on_dk: Positives
    off_dk: Positives
    prior: Positive = 0.5

    @property
    def n_states(self) -> int:
        """K."""
        return len(self.on_dk.T)

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Σ_d x ⟨log θ⟩ + (1 - x) ⟨log(1 - θ)⟩."""
        of = digamma if expected else np.log
        all_dk = of(self.on_dk + self.off_dk)
        on_dk, off_dk = of(self.on_dk) - all_dk, of(self.off_dk) - all_dk
        x_rd, seen_rd = emissions.seen(value_r)
        return emissions.added(
            np.where(seen_rd[:, d, None], x_rd[:, d, None] * (on_dk[d] - off_dk[d]) + off_dk[d], 0.0)
            for d in range(len(on_dk))
        )

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """Prior and counts."""
        x_rd, seen_rd = emissions.seen(value_r)
        on_dk, seen_dk = x_rd.T @ weight_rk, seen_rd.T @ weight_rk
        return replace(self, on_dk=self.prior + on_dk, off_dk=self.prior + np.maximum(seen_dk - on_dk, 0.0))

    def permuted(self, order_k: Ints) -> Self:
        """The states in another order."""
        return replace(self, on_dk=self.on_dk[:, order_k], off_dk=self.off_dk[:, order_k])
