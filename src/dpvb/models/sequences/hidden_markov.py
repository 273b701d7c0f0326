"""Hidden Markov models of symbols, counts or bits: one release of windows, then EM or variational Bayes on them.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_t ~ B_z_t        unit: a person

====================  ===========================================================================
paper                 code
====================  ===========================================================================
V, K, L               n_symbols, n_states; max_length: the first L symbols of each sequence count
M                     windows of three symbols in all sequences of a person
block "starts"        Σ e_{x_1} ⊗ e_{x_2 or END} / m over a person's m sequences; norm ≤ 1
block "windows"       M^(p-1) Σ e_{x_t} ⊗ e_{x_t+1} ⊗ e_{x_t+2}; norm ≤ M^p, attained by a constant sequence
block "pairs"         in their place, for V > 40: the same of two symbols
p, C                  power, clip_norm
π, ρ, A, B            q.chain, see `hidden_chain`; ρ is the distribution of a window's first state
γ_t, ξ_t              q(z_t), q(z_t, z_t+1) of a sequence's own forward and backward pass: `passes`
block "initial"       Σ γ_1 / m over a person's m sequences; norm ≤ 1, attained
block "transitions"   M^(p-1) Σ ξ_t over the person's M pairs; norm ≤ M^p, attained
block "emissions"     T^(p-1) Σ e_{x_t} ⊗ γ_t over T symbols; norm ≤ T^p, attained
p, C of the steps     _POWER; _PAIRS_CLIP, _SHOWN_CLIP, or what one sequence of L symbols can reach
A_ij n_i, B_vk n_k    prior means of the sums: what the model predicts from their noisy totals
====================  ===========================================================================

From a random start EM needs tens of steps. Private steps are few; steps on windows that are released once are free.
Steps over whole sequences after that fit (n_steps) use more than windows contain. They pay if windows are pairs, or
with very many people: else their noise costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Final, Literal, get_args

import numpy as np

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegative, Positives
from dpvb.guards.errors import ParameterError, check_choice, check_integer
from dpvb.models.sequences import passes
from dpvb.models.sequences.emissions import (
    BernoulliEmissions,
    CategoricalEmissions,
    Emissions,
    PoissonEmissions,
    Shown,
    Values,
    likelihoods,
)
from dpvb.models.sequences.errors import ChainLaws, FreeTable, ReleasedWindows, corrected, step_errors
from dpvb.models.sequences.hidden_chain import HiddenChain, Sums
from dpvb.models.sequences.passes import StateSums, Walk
from dpvb.models.sequences.windows import (
    HiddenWindowModel,
    WindowCounts,
    Windows,
    denoised,
    denoised_pairs,
    denoised_totals,
    denoised_triples,
    start_from_chain,
    start_tilts,
)
from dpvb.rows import NumberRows, SequenceRows

Emitted = Literal["categorical", "poisson", "bernoulli"]
KINDS: Final[tuple[Emitted, ...]] = get_args(Emitted)
# Up to this number of symbols triples are released, and pairs above.
_MOST_OF_TRIPLES = 40
# Largest number of symbols.
_MOST_SYMBOLS = 1000
# Share of each block in the noise: few numbers say where sequences begin.
_STARTS, _WINDOWS = 0.3, 0.95
# Iterations from each start.
_ROUNDS = 100
# Further iterations from the best start if K < V; for K ≥ V early stopping predicts better.
_MOST_ROUNDS = 2000
# convention: most iterations for each draw of people in the correction of the bias, if K < V, and otherwise.
_CORRECTED_ROUNDS, _CORRECTED_FEW = 500, 10
# Prior counts of every parameter of the distributions.
_PRIOR = 1.0
# In a step, the T positions of a person have the total weight √T.
_POWER = 0.5
# Clip of block "transitions", tuned by hand on visits of pages.
_PAIRS_CLIP = 1.5
# Clip of block "emissions", tuned in the same way.
_SHOWN_CLIP = 1.7
# Weights of the blocks in the noise of a step, tuned in the same way.
_WEIGHTS = {"initial": 0.3, "transitions": 0.65, "emissions": 0.7}
# Share of the budget for windows if steps follow.
_WINDOWS_SHARE = 0.6


@dataclass(frozen=True)
class Alphabet:
    """V symbols.

    Attributes:
        kind: "categorical"; "poisson", the counts 0 to V - 1, the last one or more; "bernoulli", the patterns of bits.
        n_symbols: V; 2^D for bits.

    Raises:
        ParameterError: for patterns of another number.
    """

    kind: str
    n_symbols: int

    def __post_init__(self) -> None:
        if self.kind == "bernoulli" and self.n_symbols & (self.n_symbols - 1):
            raise ParameterError(f"n_symbols must be a power of 2 for bits, got {self.n_symbols}.")

    @property
    def value_v(self) -> Values:
        """Value of each symbol."""
        return self.meant(np.arange(self.n_symbols))

    def meant(self, code_t: Ints) -> Values:
        """Values of codes, those below 0 for gaps as the emissions have them."""
        if self.kind == "categorical":
            return code_t
        value_td = code_t[:, None].astype(np.float64)
        if self.kind == "bernoulli":
            value_td = ((code_t[:, None] >> np.arange(self.n_symbols.bit_length() - 1)[::-1]) & 1).astype(np.float64)
        return np.where(code_t[:, None] < 0, np.nan, value_td)

    def values(self, rows: SequenceRows | NumberRows) -> Values:
        """Observations of private or public sequences."""
        if isinstance(rows, NumberRows):
            return _bits(rows.value_td)
        code_t = rows.code.astype(np.int64)
        return self.meant(np.where((code_t >= 0) & (code_t < self.n_symbols), code_t, -1))

    def coded(self, rows: SequenceRows | NumberRows) -> SequenceRows:
        """Sequences of symbols; a point that lacks a bit is a gap."""
        if isinstance(rows, SequenceRows):
            return rows
        bit_td = _bits(rows.value_td)
        code_t = np.nan_to_num(bit_td).astype(np.int64) @ (1 << np.arange(bit_td.shape[1])[::-1])
        return SequenceRows(rows.indptr, np.where(np.isnan(bit_td).any(axis=1), -1, code_t))

    def started(self, chain: HiddenChain) -> Emissions:
        """The emissions of a start, from those of symbols."""
        assert isinstance(chain.emissions, CategoricalEmissions)
        if self.kind == "categorical":
            return chain.emissions
        one_dk = np.ones((self.value_v.shape[1], len(chain.start_k)))
        bernoulli = self.kind == "bernoulli"
        like: Emissions = (
            BernoulliEmissions(one_dk, one_dk) if bernoulli else PoissonEmissions(one_dk, one_dk, self.n_symbols - 1)
        )
        return like.updated(self.value_v, chain.emissions.count_vk)


def _bits(value_td: Floats) -> Floats:
    """Points of bits, with NaN for what is neither 0 nor 1."""
    return np.where((value_td == 0) | (value_td == 1), value_td, np.nan)


def first_two(rows: SequenceRows, n_symbols: int) -> SequenceRows:
    """The first two symbols of each sequence; the place V stands for the end of a sequence of one."""
    length_n, first_n = np.diff(rows.indptr), rows.indptr[:-1]
    code = np.append(np.where((rows.code >= 0) & (rows.code < n_symbols), rows.code, -1), [-1, -1]).astype(np.int32)
    second_n = np.where(length_n == 1, n_symbols, code[np.minimum(first_n + 1, len(code) - 1)])
    kept_n = length_n > 0
    both = np.stack([code[np.minimum(first_n, len(code) - 1)], second_n], axis=1)[kept_n]
    indptr = np.concatenate([[0], np.cumsum(2 * kept_n)]).astype(np.int64)
    return SequenceRows(indptr, np.ascontiguousarray(both.ravel().astype(np.int32)))


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
class HiddenMarkov(HiddenWindowModel, Model[HiddenMarkovPosterior, SequenceRows | NumberRows]):
    """The model; every field is public. `HiddenWindowModel` describes the other fields.

    Attributes:
        n_symbols, n_states: V and K.
        emissions: "categorical"; "poisson" where symbols are the counts 0 to V - 1, the last one or more; "bernoulli"
            where they are the patterns of bits, V = 2^D.
        n_steps: number of steps over whole sequences that follow the windows.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_symbols: int
    n_states: int
    emissions: Emitted = "categorical"
    _: KW_ONLY
    n_steps: int = 0

    def __post_init__(self) -> None:
        if check_integer("n_symbols", self.n_symbols, low=2) > _MOST_SYMBOLS:
            raise ParameterError(
                f"symbols must be at most {_MOST_SYMBOLS}, got {self.n_symbols}: a block has a number for each pair. "
                "Join symbols that are alike."
            )
        check_choice("emissions", self.emissions, KINDS)
        check_integer("n_steps", self.n_steps, low=0, high=10**6)
        check_integer("n_states", self.n_states, low=1, high=1000)
        super().__post_init__()

    @property
    def length(self) -> int:
        """Symbols of a window."""
        return 3 if self.n_symbols <= _MOST_OF_TRIPLES else 2

    @property
    def name(self) -> str:
        """The block of windows from everywhere."""
        return "windows" if self.length == 3 else "pairs"

    @property
    def alphabet(self) -> Alphabet:
        """Values of the V symbols."""
        return Alphabet(self.emissions, self.n_symbols)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Windows from starts, and from everywhere, released once; then sums over states at every step."""
        v = self.n_symbols
        windows = {
            "starts": Block((v + 1, v + 1), 1.0, "nonnegative", phase="first", weight=_STARTS),
            self.name: Block((v,) * self.length, self.bound, "nonnegative", phase="first", weight=_WINDOWS),
        }
        return {**windows, **self._step_blocks} if self.n_steps else windows

    @property
    def _step_blocks(self) -> Mapping[str, Block]:
        """Sums over states."""
        most = (self.max_length - 1) ** _POWER, self.max_length**_POWER
        pairs, shown = most if self.clip_norm is None else (min(_PAIRS_CLIP, most[0]), min(_SHOWN_CLIP, most[1]))
        bounds = {"initial": 1.0, "transitions": pairs, "emissions": shown}
        return {
            name: Block(self._step_shapes[name], bound, "nonnegative", weight=_WEIGHTS[name])
            for name, bound in bounds.items()
        }

    @property
    def _step_shapes(self) -> Mapping[str, tuple[int, ...]]:
        k = self.n_states
        return {"initial": (k,), "transitions": (k, k), "emissions": (self.n_symbols, k)}

    @property
    def schedule(self) -> Schedule:
        """Equal steps after the windows; all of them count alike."""
        if not self.n_steps:
            return Schedule(())
        return Schedule((1.0,) * self.n_steps, {"first": _WINDOWS_SHARE}, lambda t: 1.0 / max(t - 1, 1))

    def init(self, rng: np.random.Generator) -> HiddenMarkovPosterior:
        """All states alike, and the factors of the starts."""
        v, k = self.n_symbols, self.n_states
        chain = HiddenChain(
            np.ones(k), np.ones(k), np.ones((k, k)), CategoricalEmissions(np.ones((v, k)), _PRIOR), _PRIOR
        )
        chain = replace(chain, emissions=self.alphabet.started(chain))
        zeros = np.zeros((v + 1, v + 1)), np.zeros((v,) * self.length)
        return HiddenMarkovPosterior(chain, start_tilts(rng, self.n_init, k), *zeros)

    def e_step(
        self, q: HiddenMarkovPosterior, batch: SequenceRows | NumberRows, blocks: Mapping[str, Block]
    ) -> Contributions:
        """Counts of windows, whatever q is; or sums over states from the passes of every sequence."""
        rows = self.alphabet.coded(batch)
        if "initial" in blocks:
            walk, shapes = self._walk(q.chain, rows), self._step_shapes
            return {
                "initial": StateSums(walk, "firsts", shapes["initial"], _POWER),
                "transitions": StateSums(walk, "pairs", shapes["transitions"], _POWER),
                "emissions": StateSums(walk, "shown", shapes["emissions"], _POWER),
            }
        windows = {
            "starts": WindowCounts(first_two(rows, self.n_symbols), 2, self.n_symbols + 1, 2, 0.0),
            self.name: WindowCounts(rows, self.length, self.n_symbols, self.max_length, self.power),
        }
        return {name: windows[name] for name in blocks}

    def started(self, s: Estimate, q: HiddenMarkovPosterior) -> HiddenMarkovPosterior:
        """The best of the fits to the released windows."""
        start_std, pooled_std = s.noise_std("starts"), s.noise_std(self.name)
        start_ww, pooled = s.noisy("starts"), s.noisy(self.name)
        counts = denoised_triples(pooled, pooled_std)[1] if self.length == 3 else denoised_pairs(pooled, pooled_std)
        # The last row of the starts contains noise only.
        windows = Windows(denoised_pairs(start_ww, start_std)[: self.n_symbols], counts)
        fits, value_v = [], self.alphabet.value_v
        for tilt_kw in q.tilt_rkw:
            start = start_from_chain(windows, tilt_kw, _PRIOR)
            start = replace(start, emissions=self.alphabet.started(start))
            fits.append(self.fitted(windows, start, value_v, _ROUNDS))
        best = max(fits, key=lambda fit: fit.log).chain
        few = self.n_states < self.n_symbols
        if few:
            best = self.fitted(windows, best, value_v, _MOST_ROUNDS).chain
        q = HiddenMarkovPosterior(best, q.tilt_rkw, start_ww, pooled, start_std, pooled_std)
        if self.length < 3:
            return q
        clipped = 0.0 if s.counts is None else s.counts.share_clipped
        released, step = self._released(q, clipped), partial(self.stepped, value_v=value_v)
        rounds = _CORRECTED_ROUNDS if few else _CORRECTED_FEW
        return replace(q, chain=corrected(best, windows, released, self._laws, step, rounds))

    def m_step(self, s: Estimate, q: HiddenMarkovPosterior) -> HiddenMarkovPosterior:
        """The posterior from sums over states, each shrunk towards what the model predicts from their totals."""
        k, chain = self.n_states, q.chain
        sums_k, step_kk, shown_vk = (s.noisy(name) for name in _WEIGHTS)
        noise_k, noise_kk, noise_vk = (s.noise_std(name) for name in _WEIGHTS)
        laws, law_vk = chain.laws(expected=False), self.shown_kv(chain).T
        total = max(float(sums_k.sum()), noise_k * k**0.5, 1e-200)
        row_k = denoised_totals(step_kk.sum(axis=1), noise_kk * k**0.5)
        column_k = denoised_totals(shown_vk.sum(axis=0), noise_vk * len(shown_vk) ** 0.5)
        sums = Sums(
            denoised(total * laws.start_k[None], sums_k[None], noise_k)[0],
            np.asarray(chain.pooled_k - chain.prior),
            denoised(row_k[:, None] * laws.step_kk, step_kk, noise_kk),
            denoised(law_vk * column_k, shown_vk, noise_vk),
        )
        return replace(q, chain=chain.updated(sums, self.alphabet.value_v))

    def _walk(self, chain: HiddenChain, rows: SequenceRows) -> Walk:
        """The passes at this posterior."""
        expected = self.estimate == "posterior"
        value_v = self.alphabet.meant(np.arange(-1, self.n_symbols))
        likelihood_vk, _ = likelihoods(chain.emissions, value_v, expected=expected)
        show = partial(_show, rows, self.n_symbols, likelihood_vk)
        return Walk(rows.indptr, self.max_length, chain.laws(expected=expected), show)

    def shown_kv(self, chain: HiddenChain) -> Floats:
        """Probabilities of the symbols in every state, (K, V)."""
        return np.exp(chain.emissions.log_likelihood(self.alphabet.value_v, expected=False)).T

    def _laws(self, chain: HiddenChain) -> ChainLaws:
        """Means of the distributions."""
        return ChainLaws(*chain.laws(expected=False), FreeTable(self.shown_kv(chain)))

    def _released(self, q: HiddenMarkovPosterior, clipped: float) -> ReleasedWindows:
        v, std_b = self.n_symbols, (q.start_std, q.pooled_std)
        tables, units = (q.start_ww[:v, :v], q.pooled), float(q.start_ww[:v].sum())
        return ReleasedWindows.of(tables, std_b, units, self.sizes(self.n_symbols), self.max_length, clipped)

    def step_errors(
        self, q: HiddenMarkovPosterior, rng: np.random.Generator, clipped: float, *, noise_aware: bool = True
    ) -> Floats:
        """Standard errors of the steps, (K, K); with windows of three symbols.

        Args:
            q: as fitted.
            rng: public randomness.
            clipped: share of people who were clipped, as it was released; 0: it is not known.
            noise_aware: whether the noise counts.
        """
        return step_errors(self._laws(q.chain), self._released(q, clipped), rng, noise_aware=noise_aware)

    def score(self, q: HiddenMarkovPosterior, rows: SequenceRows | NumberRows) -> Floats:
        """Log-probability of the symbols of each sequence, (n,), in nats; a gap says nothing."""
        return passes.log_likelihood(q.chain, rows.indptr, self.alphabet.values(rows))


def _show(batch: SequenceRows, n_symbols: int, likelihood_vk: Floats, place_t: Ints) -> Shown:
    """Observations of the symbols of a batch; a gap is in the first row of the table."""
    code_t = batch.code[place_t].astype(np.int64)
    code_t = np.where((code_t >= 0) & (code_t < n_symbols), code_t, -1)
    return Shown(likelihood_vk, code_t + 1, code_t[:, None], np.ones((len(code_t), 1)))
