"""Hidden Markov models of symbols, counts or bits: one release of windows, then EM or variational Bayes on them.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_t ~ B_z_t        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
V, K, L             n_symbols, n_states; max_length: the first L symbols of each sequence count
M                   windows of three symbols in all sequences of a person
block "starts"      Σ e_{x_1} ⊗ e_{x_2 or END} / m over a person's m sequences; norm ≤ 1
block "windows"     M^(p-1) Σ e_{x_t} ⊗ e_{x_t+1} ⊗ e_{x_t+2}; norm ≤ M^p, attained by a constant sequence
block "pairs"       in their place, for V > 40: the same of two symbols
p, C                power, clip
π, ρ, A, B          q.chain, see `hidden_chain`; ρ is the law of a window's first state
==================  =============================================================================

From a random start EM needs tens of steps. Private steps are few; steps on windows that are released once are free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positives
from dpvb.guards.errors import ParameterError, check_choice, check_integer
from dpvb.models.sequences import forward_backward, reading, settings, starts, window_fit
from dpvb.models.sequences.alphabet import KINDS, Alphabet
from dpvb.models.sequences.counts import WindowCounts
from dpvb.models.sequences.discrete_emissions import Categorical
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.window_fit import Fit, Windows

# Up to so many symbols triples are released, and above them pairs.
_TRIPLES, _PAIRS = 40, 1000
# Share of each block in the noise: few numbers say where sequences begin.
_STARTS, _WINDOWS = 0.3, 0.95
# Iterations from each start; then of the best, if states are fewer than symbols. Else a fit near its start is better.
_ROUNDS, _MOST_ROUNDS = 100, 2000
# Prior counts of every parameter of the laws.
_PRIOR = 1.0


@dataclass(frozen=True)
class HiddenMarkovPosterior:
    """q: the chain, what was released as it came, and the public factors of the starts.

    Attributes:
        chain: the posterior.
        tilt_rkw: factors of R starts, (R, K, 1 + K).
        start_ww, pooled: noisy weights of the windows, (V + 1, V + 1), and (V, V, V) or (V, V); linear.
        start_std, pooled_std: noise std of a number in the blocks; 0 before the release.
    """

    chain: HiddenChain
    tilt_rkw: Positives
    start_ww: Floats
    pooled: Floats
    start_std: Nonnegative = 0.0
    pooled_std: Nonnegative = 0.0


@dataclass(frozen=True)
class HiddenMarkov:
    """The model; every field is public.

    Attributes:
        n_symbols, n_states: V and K.
        emissions: "categorical"; "poisson" where symbols are the counts 0 to V - 1, the last one or more; "bernoulli"
            where they are the patterns of bits, V = 2^D.
        estimate: "posterior" (variational Bayes) or "mode" (EM).
        n_init: R, how many starts are tried on what was released.
        power: p in [0.5, 1], how much persons with many windows weigh: each window of a person counts M^(p-1).
        clip: C; None: what one sequence of max_length symbols can reach, so that no such person is shortened.
        max_length: L.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_symbols: int
    n_states: int
    emissions: str = "categorical"
    estimate: str = "posterior"
    n_init: int = 5
    power: float = 1.0
    clip: float | None = 2.0
    max_length: int = 20

    def __post_init__(self) -> None:
        if check_integer("n_symbols", self.n_symbols, low=2) > _PAIRS:
            raise ParameterError(
                f"symbols must be at most {_PAIRS}, got {self.n_symbols}: a block has a number for each pair. Join "
                "symbols that are alike."
            )
        check_choice("emissions", self.emissions, KINDS)
        settings.check_states(self)

    @property
    def length(self) -> int:
        """Symbols of a window."""
        return 3 if self.n_symbols <= _TRIPLES else 2

    @property
    def bound(self) -> float:
        """C."""
        return settings.bound(self, self.length)

    @property
    def name(self) -> str:
        """The block of windows from everywhere."""
        return "windows" if self.length == 3 else "pairs"

    @property
    def alphabet(self) -> Alphabet:
        """What the V symbols stand for."""
        return Alphabet(self.emissions, self.n_symbols)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Windows from starts, and from everywhere; both are released once."""
        v = self.n_symbols
        return {
            "starts": Block((v + 1, v + 1), 1.0, "nonnegative", phase="first", weight=_STARTS),
            self.name: Block((v,) * self.length, self.bound, "nonnegative", phase="first", weight=_WINDOWS),
        }

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> HiddenMarkovPosterior:
        """All states alike, and the factors of the starts."""
        v, k = self.n_symbols, self.n_states
        chain = HiddenChain(np.ones(k), np.ones(k), np.ones((k, k)), Categorical(np.ones((v, k)), _PRIOR), _PRIOR)
        chain = replace(chain, emissions=self.alphabet.started(chain))
        zeros = np.zeros((v + 1, v + 1)), np.zeros((v,) * self.length)
        return HiddenMarkovPosterior(chain, window_fit.tilts(rng, self.n_init, k), *zeros)

    def e_step(self, q: HiddenMarkovPosterior, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of windows, whatever q is."""
        batch = self.alphabet.coded(batch)
        made = {
            "starts": WindowCounts(starts.shortened(batch, self.n_symbols), 2, self.n_symbols + 1, 2, 0.0),
            self.name: WindowCounts(batch, self.length, self.n_symbols, self.max_length, self.power),
        }
        return {name: made[name] for name in blocks}

    def m_step(self, s: Estimate, q: HiddenMarkovPosterior) -> HiddenMarkovPosterior:
        """What was released, read once, and the best of the fits to it."""
        start_std, std = s.noise_std("starts"), s.noise_std(self.name)
        start_ww, pooled = s.read("starts"), s.read(self.name)
        # What is left of the last row of the starts is noise alone.
        read = reading.windows(pooled, std)[1] if self.length == 3 else reading.pairs(pooled, std)
        windows = Windows(reading.pairs(start_ww, start_std)[: self.n_symbols], read)
        fits = []
        for tilt_kw in q.tilt_rkw:
            start = window_fit.from_chain(windows, tilt_kw, _PRIOR)
            fits.append(self.fitted(windows, replace(start, emissions=self.alphabet.started(start)), _ROUNDS))
        best = max(fits, key=lambda fit: fit.log).chain
        if self.n_states < self.n_symbols:
            best = self.fitted(windows, best, _MOST_ROUNDS).chain
        return HiddenMarkovPosterior(best, q.tilt_rkw, start_ww, pooled, start_std, std)

    def fitted(self, windows: Windows, chain: HiddenChain, rounds: int) -> Fit[HiddenChain]:
        """The fit to windows after so many iterations."""
        return window_fit.fit(
            windows, chain, self.alphabet.value_v, rounds=rounds, expected=self.estimate == "posterior"
        )

    def shown_kv(self, chain: HiddenChain) -> Floats:
        """Probabilities of the symbols in every state, (K, V)."""
        return np.exp(chain.emissions.log_likelihood(self.alphabet.value_v, expected=False)).T

    def score(self, q: HiddenMarkovPosterior, rows: Any) -> Floats:
        """Log-probability of the symbols of each sequence, (n,), in nats; a gap says nothing."""
        return forward_backward.log_likelihood(q.chain, rows.indptr, self.alphabet.values(rows))
