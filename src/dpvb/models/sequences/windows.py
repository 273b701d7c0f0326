"""Windows, short runs of consecutive symbols: how people contribute them, how they are denoised, EM on their counts.

A window of three symbols from anywhere in a sequence follows the chain with first state ρ. So the E-step of all windows
is a linear function of their counts (equation 2 of docs/theory/hidden-markov.md): iterations and restarts cost neither
privacy nor data. Windows at the beginning of a sequence have the first state π, and end where the sequence ends.

===================  ==============================================================================
symbol               code
===================  ==============================================================================
n_a·, n_ab           `Windows.start_vw`: first symbols by second ones, the last column: no second one
n_abc                `Windows.pooled`, (V, V, V), or pairs (V, V)
F_ab(j)              `front`: Σ_i ρ_i B_ai A_ij B_bj
G_c(j)               `ahead_vk`: Σ_k A_jk B_ck, so that p_abc = Σ_j F_ab(j) G_c(j)
R_abc                n_abc / p_abc; 0 where p_abc = 0
===================  ==============================================================================

Noisy windows are shrunk towards the products of their own margins. A prior mean is at least 0.1 of the noise: below
that nothing was measured, and a prior mean near 0 would be believed. The constants are those of
`python -m benchmarks sequences`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dpvb.core.blocks import Block, Grid, check_shape
from dpvb.core.model import ESTIMATES, PosteriorOrMAP
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models import empirical_bayes
from dpvb.models.sequences import passes_numba as kernel
from dpvb.models.sequences.dynamics import WindowSizes
from dpvb.models.sequences.emissions import CategoricalEmissions, Values, likelihoods
from dpvb.models.sequences.hidden_chain import HiddenChain, StateChain, Sums
from dpvb.rows import SequenceRows

#: The order of the sequences by unit, and the first of each unit, (units + 1,).
Units = tuple[Ints, Ints]
# Least prior mean, over the noise std.
_LEAST_MEAN = 0.1
# Below this a sum is not a probability: its inverse would overflow.
_LEAST_PROBABILITY = 1e-290
# convention: probabilities at a time, 0.5 MB, which stay in a processor's cache; any number is as exact.
_ENTRIES_AT_ONCE = 2**16
# An iteration that changes the log-likelihood of a window by less is the last.
_TOLERANCE = 1e-9
# Tuned by hand on visits of pages.
_ON_SYMBOL = 0.9  # of a state's first probability, on the symbol that the state is of; the rest is as all symbols are
_TILT_STD = 0.3  # relative std of random factors where several states start from one symbol
ChainT = TypeVar("ChainT", bound=StateChain)


def by_unit(unit_of_row: Ints, num_units: int) -> Units:
    """The sequences of each unit side by side, in the order in which they come."""
    order = np.argsort(unit_of_row, kind="stable")
    return order, np.searchsorted(unit_of_row[order], np.arange(num_units + 1))


def each(indptr: Ints) -> Units:
    """Every sequence a unit."""
    every = np.arange(len(indptr))
    return every[:-1], every


@dataclass(frozen=True)
class WindowCounts:
    """Statistics s_n = M^(power-1) · counts of the windows of k symbols, M their number in all sequences of a unit.

    The norm of a unit's counts is at most their sum M, which a constant sequence attains; so ‖s_n‖ ≤ M^power.

    Attributes:
        rows: sequences.
        k: symbols of a window; the block has so many axes.
        width: V, the number of symbols.
        longest: symbols of a sequence that count.
        power: weight of persons with many windows, in [0, 1].
        units: order of the sequences by unit, and the first of each unit, (units + 1,); None: each is a unit.
    """

    rows: SequenceRows
    k: int
    width: int
    longest: int
    power: float
    units: Units | None = None

    def of_block(self, block: Block, num_rows: int) -> WindowCounts:
        """Itself, of the block's windows."""
        check_shape((len(self.rows.indptr) - 1, *(self.width,) * self.k), num_rows, *block.shape)
        return self

    def grouped(self, unit_of_row: Ints, num_units: int) -> WindowCounts:
        """The same sequences as those of persons."""
        return replace(self, units=by_unit(unit_of_row, num_units))

    def nonnegative(self) -> WindowCounts:
        """Itself: counts are nonnegative."""
        return self

    def norms(self) -> Floats:
        """Norms from exact integers; the factor covers the rounding of a power, a root and a product."""
        arguments = self._given
        out_u = np.empty(len(arguments[3]) - 1)
        kernel.norms(*arguments, out_u)
        return out_u * (1.0 + 2.0**-45)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate what one window adds, and add it as often as the window occurs."""
        kernel.accumulate(*self._given, weights, grid.step, out.reshape(-1))

    @property
    def _given(self) -> tuple[Ints, Ints, Ints, Ints, int, int, int, float]:
        order, first = self.units or each(self.rows.indptr)
        return self.rows.indptr, self.rows.code, order, first, self.k, self.width, self.longest, self.power


def denoised_totals(x_v: Floats, sd: float) -> Floats:
    """Positive numbers (V,) from noisy nonnegative ones of noise std sd."""
    share_v = empirical_bayes.background(x_v, sd)
    return np.asarray(share_v * max(float(x_v.sum()), sd * math.sqrt(len(x_v)), 1e-200))


def denoised_pairs(x_vv: Floats, sd: float) -> Floats:
    """Weights of pairs (V, V): each toward the total of its row times the share of its second symbol."""
    noise = sd * math.sqrt(len(x_vv))
    row_v, share_v = (denoised_totals(x_vv.sum(axis=axis), noise) for axis in (1, 0))
    return denoised(np.outer(row_v, share_v / share_v.sum()), x_vv, sd)


def denoised_triples(x_vvv: Floats, sd: float) -> tuple[Floats, Floats]:
    """Weights of pairs, and of windows of three, (V, V, V), toward the chain of their own margins.

    The prior mean of (a, b, c) is P(a, b) P(b, c) / P(b). The margin of the pairs is the mean of that of the first two
    symbols and that of the last two; each is a sum, whose noise is √V times as large.
    """
    pairs_vv = denoised_pairs((x_vvv.sum(axis=2) + x_vvv.sum(axis=0)) / 2, sd * math.sqrt(len(x_vvv) / 2))
    share_vv = pairs_vv / np.maximum(pairs_vv.sum(axis=1, keepdims=True), 1e-200)
    return pairs_vv, denoised(pairs_vv[:, :, None] * share_vv, x_vvv, sd)


def denoised(mean: Floats, x: Floats, sd: float) -> Floats:
    """Posterior means of numbers with these prior means, rows alike; without noise the numbers themselves."""
    rows = x.reshape(-1, x.shape[-1])
    mean_vk = np.maximum(mean, _LEAST_MEAN * sd).reshape(rows.shape)
    return empirical_bayes.around(rows, np.full(len(rows), sd), mean_vk, free=True).reshape(x.shape)


@dataclass(frozen=True, kw_only=True)
class WindowModel(ABC):
    """Fields that all models of windows share; every field is public.

    Attributes:
        estimate: "posterior" (variational Bayes) or "map" (expectation maximisation).
        power: p in [0.5, 1], the weight of persons with many windows: each of the M windows of a person counts M^(p-1).
        clip_norm: C, the bound on the norm of a person's windows; None: the largest norm that one sequence of
            max_length points can have, so that no person with one sequence is clipped.
        max_length: L, number of points of a sequence that are included.

    Raises:
        ParameterError: for a field outside its range.
    """

    estimate: PosteriorOrMAP = "posterior"
    power: float = 1.0
    clip_norm: float | None = 2.0
    max_length: int = 20

    def __post_init__(self) -> None:
        check_choice("estimate", self.estimate, ESTIMATES)
        check_number("power", self.power, low=0.5, high=1)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, low=1e-3, high=1e9)
        check_integer("max_length", self.max_length, low=self.least_length, high=10**6)

    @property
    def least_length(self) -> int:
        """Return the smallest value that max_length may have."""
        return self.length

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of points of a window."""

    def sizes(self, n_symbols: int) -> WindowSizes:
        """How windows of so many symbols are counted."""
        return WindowSizes(n_symbols, self.length, self.power, self.bound)

    @property
    def bound(self) -> float:
        """C."""
        return float((self.max_length - self.length + 1) ** self.power) if self.clip_norm is None else self.clip_norm


@dataclass(frozen=True, kw_only=True)
class HiddenWindowModel(WindowModel):
    """Fields that models with hidden states have in addition; every field is public.

    Attributes:
        n_init: R, number of starts that are tried on the released windows.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_init: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_init", self.n_init, low=1, high=1000)

    @property
    def least_length(self) -> int:
        """Return the smallest value that max_length may have: three points tell states from symbols."""
        return 3

    def fitted(self, windows: Windows, chain: HiddenChain, value_v: Values, rounds: int) -> Fit[HiddenChain]:
        """Return the fit to windows after at most `rounds` iterations from a start.

        Args:
            windows: denoised counts of windows of V values.
            chain: start.
            value_v: what the V values stand for.
            rounds: largest number of iterations.
        """
        return fit_windows(windows, chain, value_v, rounds=rounds, expected=self.estimate == "posterior")

    def stepped(self, windows: Windows, chain: HiddenChain, value_v: Values) -> HiddenChain:
        """Return the posterior after one iteration; arguments as in `fitted`."""
        return em_step(windows, chain, value_v, expected=self.estimate == "posterior").chain


@dataclass(frozen=True)
class Windows:
    """Counts of windows, nonnegative, of V values.

    Attributes:
        start_vw: first values by second ones or the end, (V, V + 1).
        pooled: pairs, (V, V), or triples, (V, V, V), from everywhere.
    """

    start_vw: Floats
    pooled: Floats

    @cached_property
    def total(self) -> float:
        """How many windows there are."""
        return float(self.start_vw.sum() + self.pooled.sum())

    @cached_property
    def seen_v(self) -> Floats:
        """How often a window shows each value, (V,)."""
        axes = {*range(self.pooled.ndim)}
        seen_v: Floats = self.start_vw.sum(axis=1) + self.start_vw[:, : len(self.start_vw)].sum(axis=0)
        for axis in axes:
            seen_v = seen_v + self.pooled.sum(axis=tuple(axes - {axis}))
        return seen_v


class Fit(NamedTuple, Generic[ChainT]):
    """A posterior, and the log-likelihood of the windows, in nats a window, before its last step."""

    chain: ChainT
    log: float


def start_from_chain(windows: Windows, tilt_kw: Floats, prior: float) -> HiddenChain:
    """A start: one state a symbol, and the chain of the windows; the states are the symbols that are seen most.

    Args:
        windows: read counts.
        tilt_kw: positive factors of the first states and of the steps from each state, (K, 1 + K), all 1 or at random.
            More states than symbols: the most frequent symbols have several, which nothing else tells apart.
        prior: of every count.
    """
    n_states, pairs_vv = len(tilt_kw), windows.pooled if windows.pooled.ndim == 2 else windows.pooled.sum(axis=2)
    seen_v = pairs_vv.sum(axis=0) + windows.start_vw.sum(axis=1) + 1e-9
    symbol_k = np.argsort(-seen_v, kind="stable")[:n_states]
    while len(symbol_k) < n_states:
        symbol_k = np.append(symbol_k, np.argmax(seen_v / np.bincount(symbol_k, minlength=len(seen_v))))
    share_k = 1.0 / np.bincount(symbol_k, minlength=len(seen_v))[symbol_k]
    number_k = seen_v[symbol_k] * share_k
    start_k = windows.start_vw.sum(axis=1)[symbol_k] * share_k * tilt_kw[:, 0]
    step_kk = pairs_vv[np.ix_(symbol_k, symbol_k)] * np.outer(share_k, share_k) * tilt_kw[:, 1:]
    shown_vk = (
        _ON_SYMBOL * (np.arange(len(seen_v))[:, None] == symbol_k) + (1 - _ON_SYMBOL) * (seen_v / seen_v.sum())[:, None]
    )
    emissions = CategoricalEmissions(prior + shown_vk * number_k, prior)
    return HiddenChain(prior + start_k, prior + number_k, prior + step_kk, emissions, prior)


def start_tilts(rng: np.random.Generator, number: int, n_states: int) -> Floats:
    """Random factors of mean 1 for several starts, (number, K, 1 + K)."""
    return rng.gamma(_TILT_STD**-2, _TILT_STD**2, (number, n_states, 1 + n_states))


def em_step(windows: Windows, chain: ChainT, value_v: Values, *, expected: bool) -> Fit[ChainT]:
    """One iteration, and the windows' log-likelihood before it.

    Args:
        windows: read counts.
        chain: the posterior.
        value_v: what the V places stand for: symbols, counts, middles of cells, one after another.
        expected: whether parameters are met as exp⟨log ·⟩ (variational Bayes) or at their means (EM).
    """
    start_k, pooled_k, step_kk = chain.laws(expected=expected)
    shown_vk, log_v = likelihoods(chain.emissions, value_v, expected=expected)
    first, log_first = _pair_counts(start_k, step_kk, shown_vk, windows.start_vw)
    if windows.pooled.ndim == 2:
        rest, log_rest = _pair_counts(pooled_k, step_kk, shown_vk, windows.pooled)
    else:
        rest, log_rest = _triple_counts(pooled_k, step_kk, shown_vk, windows.pooled)
    sums = Sums(
        first.first_vk.sum(axis=0),
        rest.first_vk.sum(axis=0),
        step_kk * (first.pair_kk + rest.pair_kk),
        first.shown_vk + rest.shown_vk,
    )
    log = log_first + log_rest + float(windows.seen_v @ log_v)
    return Fit(chain.updated(sums, value_v), log / max(windows.total, 1e-300))


def fit_windows(windows: Windows, chain: ChainT, value_v: Values, *, rounds: int, expected: bool) -> Fit[ChainT]:
    """The posterior after so many iterations, or fewer where they bring nothing any more."""
    latest = Fit(chain, -np.inf)
    for _ in range(rounds):
        before, latest = latest.log, em_step(windows, latest.chain, value_v, expected=expected)
        if abs(latest.log - before) < _TOLERANCE:
            break
    return latest


class _Counts(NamedTuple):
    """Expected counts: of first states and their values, of pairs over A, of all states and their values."""

    first_vk: Floats
    pair_kk: Floats
    shown_vk: Floats


def _pair_counts(first_k: Floats, step_kk: Floats, shown_vk: Floats, number_vw: Floats) -> tuple[_Counts, float]:
    v = len(shown_vk)
    front_vk, ahead_vk = first_k * shown_vk, shown_vk @ step_kk.T
    back_vk, to_vk, log = _ratio_products(number_vw[:, :v], front_vk, ahead_vk)
    if number_vw.shape[1] > v:
        end_vk, _, log_end = _ratio_products(number_vw[:, v:], front_vk, np.ones((1, front_vk.shape[1])))
        back_vk, log = back_vk + end_vk, log + log_end
    first_vk = front_vk * back_vk
    return _Counts(first_vk, to_vk.T @ shown_vk, first_vk + shown_vk * (to_vk @ step_kk)), log


def _triple_counts(first_k: Floats, step_kk: Floats, shown_vk: Floats, number_abc: Floats) -> tuple[_Counts, float]:
    v, k = shown_vk.shape
    first_vk, ahead_vk = first_k * shown_vk, shown_vk @ step_kk.T
    front_abk = (first_vk @ step_kk)[:, None, :] * shown_vk
    back_pk, to_vk, log = _ratio_products(number_abc.reshape(v * v, v), front_abk.reshape(v * v, k), ahead_vk)
    back_abk = back_pk.reshape(v, v, k)
    middle_vk = np.einsum("abk,bk->ak", back_abk, shown_vk)
    begin_vk = first_vk * (middle_vk @ step_kk.T)
    seen_vk = begin_vk + np.einsum("abk,abk->bk", front_abk, back_abk) + shown_vk * (to_vk @ step_kk)
    return _Counts(begin_vk, first_vk.T @ middle_vk + to_vk.T @ shown_vk, seen_vk), log


def _ratio_products(number_pw: Floats, front_pk: Floats, ahead_wk: Floats) -> tuple[Floats, Floats, float]:
    """R A, Rᵀ F and Σ n log p, where p = F Aᵀ and R = n/p, or 0 where a window is impossible.

    Args:
        number_pw: Counts n, (P, W).
        front_pk: F: probability of what comes first, by the state behind it, (P, K).
        ahead_wk: A: probability of what comes next, by the state before it, (W, K).
    """
    back_pk, to_wk, total = np.empty_like(front_pk), np.zeros_like(ahead_wk), 0.0
    rows = max(1, _ENTRIES_AT_ONCE // len(ahead_wk))
    for start in range(0, len(front_pk), rows):
        block = slice(start, start + rows)
        front, number = front_pk[block], number_pw[block]
        probability = front @ ahead_wk.T
        possible = probability > _LEAST_PROBABILITY
        if not possible.all():
            number, probability = np.where(possible, number, 0.0), np.where(possible, probability, 1.0)
        ratio = number / probability
        back_pk[block] = ratio @ ahead_wk
        to_wk += ratio.T @ front
        total += float((number * np.log(probability, out=probability)).sum())
    return back_pk, to_wk, total
