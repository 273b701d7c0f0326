"""Hidden Markov models by private steps over whole sequences: from a fit to windows, or from a random start.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_t ~ B_z_t        unit: a person

====================  ===========================================================================
paper                 code
====================  ===========================================================================
V, K, L               n_symbols, n_states, max_length of `windows`
γ_t, ξ_t              q(z_t), q(z_t, z_t+1) of a sequence's own forward and backward pass: `steps`
block "initial"       Σ γ_1 / m over a person's m sequences; norm ≤ 1, attained
block "transitions"   M^(p-1) Σ ξ_t over the person's M pairs; norm ≤ M^p, attained
block "emissions"     T^(p-1) Σ e_{x_t} ⊗ γ_t over T symbols; norm ≤ T^p, attained
p, C                  _POWER; _PAIRS, _SHOWN, or what one sequence of L symbols can reach
A_ij n_i, B_vk n_k    prior means of the sums: what the model predicts from their noisy totals
π, A, B               q.chain; ρ, which whole sequences do not have, stays as windows found it
====================  ===========================================================================

Steps from a fit bring what windows do not hold. They need many people: before that their noise costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule, robbins_monro
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import check_integer
from dpvb.models.sequences import forward_backward, reading
from dpvb.models.sequences.counts import SequenceRows
from dpvb.models.sequences.discrete_emissions import Categorical
from dpvb.models.sequences.emissions import Shown
from dpvb.models.sequences.hidden_chain import HiddenChain, Sums
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior
from dpvb.models.sequences.steps import StateSums, Walk

# Windows a person's positions weigh as the root of their number; clips and weights of the blocks in the noise, tuned by
# hand on visits of pages.
_POWER, _PAIRS, _SHOWN = 0.5, 1.5, 1.7
_WEIGHTS = {"initial": 0.3, "transitions": 0.65, "emissions": 0.7}
# Part of the budget that windows keep where steps follow.
_FIRST = 0.6
# Steps from a random start forget as (1 + t)^-_DECAY; their start is so uneven.
_DECAY, _UNEVEN = 0.5, 1.0


@dataclass(frozen=True)
class IteratedHiddenMarkov:
    """The model; every field is public.

    Attributes:
        windows: the model of windows, whose fit is the start.
        num_steps: steps over whole sequences.
        from_windows: whether windows are released; else the start is random.
    """

    windows: HiddenMarkov
    num_steps: int = 4
    from_windows: bool = True

    def __post_init__(self) -> None:
        check_integer("num_steps", self.num_steps, low=1, high=10**6)

    @property
    def max_length(self) -> int:
        """L."""
        return self.windows.max_length

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Windows once, then sums over states at every step."""
        v, k, longest = self.windows.n_symbols, self.windows.n_states, self.windows.max_length
        open_ended = self.windows.clip is None
        most = (longest - 1) ** _POWER, longest**_POWER
        pairs, shown = most if open_ended else (min(_PAIRS, most[0]), min(_SHOWN, most[1]))
        parts = {"initial": ((k,), 1.0), "transitions": ((k, k), pairs), "emissions": ((v, k), shown)}
        steps = {name: Block(*own, "nonnegative", weight=_WEIGHTS[name]) for name, own in parts.items()}
        return {**(self.windows.blocks if self.from_windows else {}), **steps}

    @property
    def schedule(self) -> Schedule:
        """Equal steps; after windows all count alike, and from a random start late ones count more."""
        rho = (lambda t: 1.0 / max(t - 1, 1)) if self.from_windows else robbins_monro(1.0, _DECAY)
        return Schedule((1.0,) * self.num_steps, {"first": _FIRST}, rho)

    def init(self, rng: np.random.Generator) -> HiddenMarkovPosterior:
        """The start of the windows, or states that differ by chance."""
        q, (v, k) = self.windows.init(rng), (self.windows.n_symbols, self.windows.n_states)
        if self.from_windows:
            return q
        shown = Categorical(q.chain.prior + v * rng.gamma(_UNEVEN, 1 / _UNEVEN, (v, k)), q.chain.prior)
        step_kk = q.chain.step_kk + k * rng.gamma(_UNEVEN, 1 / _UNEVEN, (k, k))
        chain = replace(q.chain, step_kk=step_kk, emissions=shown)
        return replace(q, chain=replace(chain, emissions=self.windows.alphabet.started(chain)))

    def e_step(self, q: HiddenMarkovPosterior, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of windows, or sums over states from the passes of every sequence."""
        if "initial" not in blocks:
            return self.windows.e_step(q, batch, blocks)
        walk = self._walk(q.chain, self.windows.alphabet.coded(batch))
        v, k = self.windows.n_symbols, self.windows.n_states
        return {
            "initial": StateSums(walk, "firsts", (k,), _POWER),
            "transitions": StateSums(walk, "pairs", (k, k), _POWER),
            "emissions": StateSums(walk, "shown", (v, k), _POWER),
        }

    def m_step(self, s: Estimate, q: HiddenMarkovPosterior) -> HiddenMarkovPosterior:
        """The fit to windows; later the posterior from sums, each read toward what the model predicts."""
        if "initial" not in s.names:
            return self.windows.m_step(s, q)
        chain, k = q.chain, self.windows.n_states
        sums_k, step_kk, shown_vk = (s.read(name) for name in _WEIGHTS)
        noise_k, noise_kk, noise_vk = (s.noise_std(name) for name in _WEIGHTS)
        laws, law_vk = chain.laws(expected=False), self.windows.shown_kv(chain).T
        total = max(float(sums_k.sum()), noise_k * k**0.5, 1e-200)
        row_k = reading.totals(step_kk.sum(axis=1), noise_kk * k**0.5)
        column_k = reading.totals(shown_vk.sum(axis=0), noise_vk * len(shown_vk) ** 0.5)
        sums = Sums(
            reading.toward(total * laws.start_k[None], sums_k[None], noise_k)[0],
            np.asarray(chain.pooled_k - chain.prior),
            reading.toward(row_k[:, None] * laws.step_kk, step_kk, noise_kk),
            reading.toward(law_vk * column_k, shown_vk, noise_vk),
        )
        return replace(q, chain=chain.updated(sums, self.windows.alphabet.value_v))

    def score(self, q: HiddenMarkovPosterior, rows: Any) -> Floats:
        """Log-probability of the symbols of each sequence, (n,), in nats; a gap says nothing."""
        return self.windows.score(q, rows)

    def _walk(self, chain: HiddenChain, batch: SequenceRows) -> Walk:
        """The passes at this posterior."""
        expected = self.windows.estimate == "posterior"
        value_v = self.windows.alphabet.meant(np.arange(-1, self.windows.n_symbols))
        likelihood_vk, _ = forward_backward.table(chain.emissions, value_v, expected=expected)
        show = partial(_show, batch, self.windows.n_symbols, likelihood_vk)
        return Walk(batch.indptr, self.windows.max_length, chain.laws(expected=expected), show)


def _show(batch: SequenceRows, n_symbols: int, likelihood_vk: Floats, place_t: Ints) -> Shown:
    """What symbols of a batch show; a gap is in the first row of the table."""
    code_t = batch.code[place_t].astype(np.int64)
    code_t = np.where((code_t >= 0) & (code_t < n_symbols), code_t, -1)
    return Shown(likelihood_vk, code_t + 1, code_t[:, None], np.ones((len(code_t), 1)))
