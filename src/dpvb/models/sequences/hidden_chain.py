"""A hidden Markov chain and its posterior, and one step of EM or of variational Bayes from expected counts; all public.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_t ~ what state z_t shows

The first state of a window from the middle of a sequence has a distribution ρ of its own: the average over t of the
distributions of z_t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Positive, Positives
from dpvb.models.expfam import dirichlet_expectedstats
from dpvb.models.sequences.emissions import Emissions, Values


class Laws(NamedTuple):
    """Parameters of the passes: π, ρ, A."""

    start_k: Floats
    pooled_k: Floats
    step_kk: Floats


class Sums(NamedTuple):
    """Expected counts.

    Attributes:
        start_k, pooled_k: first states, of sequences and of windows.
        step_kk: pairs of states.
        state_rk: states that showed each value.
    """

    start_k: Floats
    pooled_k: Floats
    step_kk: Floats
    state_rk: Floats


class StateChain(Protocol):
    """Interface of a posterior for a fit and the passes: `HiddenChain`, or one of another form."""

    @property
    def emissions(self) -> Emissions:
        """Emissions of the states."""

    def laws(self, *, expected: bool) -> Laws:
        """exp⟨log ·⟩ under the posterior, or means."""

    def updated(self, sums: Sums, value_r: Values) -> Self:
        """The posterior of the next step, from expected counts."""


@dataclass(frozen=True)
class HiddenChain:
    """The posterior.

    Attributes:
        start_k, pooled_k: Dirichlet parameters of π and ρ.
        step_kk: Dirichlet parameters of the rows of A.
        emissions: posterior of what states show.
        prior: the part of each Dirichlet parameter that is prior.
    """

    start_k: Positives
    pooled_k: Positives
    step_kk: Positives
    emissions: Emissions
    prior: Positive = 0.1

    def laws(self, *, expected: bool) -> Laws:
        """exp⟨log ·⟩ under the posterior, or means."""
        if expected:
            return Laws(*(np.exp(dirichlet_expectedstats(counts)) for counts in self._counts))
        return Laws(*(counts / counts.sum(axis=-1, keepdims=True) for counts in self._counts))

    @property
    def _counts(self) -> tuple[Floats, Floats, Floats]:
        return self.start_k, self.pooled_k, self.step_kk

    def updated(self, sums: Sums, value_r: Values) -> HiddenChain:
        """The posterior of the next step."""
        counts = (self.prior + sums.start_k, self.prior + sums.pooled_k, self.prior + sums.step_kk)
        return HiddenChain(*counts, self.emissions.updated(value_r, sums.state_rk), self.prior)

    def permuted(self, order_k: Ints) -> HiddenChain:
        """The states in another order."""
        step_kk = self.step_kk[np.ix_(order_k, order_k)]
        emissions = self.emissions.permuted(order_k)
        return HiddenChain(self.start_k[order_k], self.pooled_k[order_k], step_kk, emissions, self.prior)
