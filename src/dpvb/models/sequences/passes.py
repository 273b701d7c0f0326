"""Forward and backward passes over whole sequences, and what private steps add to sums over states.

===========  ====================================================================================
paper        code
===========  ====================================================================================
α_t, c_t     `alpha_tkn`, 1 / `scale_tn` of the compiled loops: α_t sums to 1, c_t is what it summed to
β_t          `beta_kn` there, over Π c
γ_t, ξ_t     distributions of z_t and of (z_t, z_t+1): Σ_t ξ_t = A ∘ Σ α_tᵀ w_t+1, w_t = B_x_t ∘ β_t / c_t, `ahead_2kn`
===========  ====================================================================================

Sequence s is `value_t[bounds_s[s] : bounds_s[s + 1]]`. The result for a sequence depends on nothing else.

In a private E-step a person has m sequences, M pairs of positions in them, and T positions that show something. With
u_t ≥ 0 what a position shows:

============  ===========================  ======================================================
sums          statistic                    norm and why
============  ===========================  ======================================================
`firsts`      Σ_s γ_s,1 / m                1: entries are nonnegative and sum to 1
`pairs`       M^(p-1) Σ ξ_t                M^p: the entries of each ξ_t sum to 1; one certain state
`shown`       T^(p-1) Σ u_t ⊗ γ_t          T^p max ‖u_t‖: ‖γ_t‖ ≤ 1; one certain state, one value
============  ===========================  ======================================================

Nothing of a person's sums is kept. Passes are made over some persons at a time, and are kept for the other blocks of a
release if they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from dpvb.core.blocks import Block, Grid, check_shape
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.models.sequences import passes_numba
from dpvb.models.sequences.emissions import CategoricalEmissions, Emissions, Shown, Values, likelihoods
from dpvb.models.sequences.hidden_chain import Laws, StateChain
from dpvb.models.sequences.windows import Units, by_unit, each

IMPOSSIBLE: Final = -1  #: the state of a sequence that no states explain
# Entries of γ and of Σ ξ over which a part of the passes goes; parts that are kept.
_ENTRIES, _KEPT = 2**23, 4
# Room for rounding: sums of at most 2^22 positive terms, and a power.
_ROOM = 1.0 + 2.0**-28


def log_likelihood(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Log-likelihood of every sequence, (S,), in nats, at the posterior means; -inf: impossible."""
    return _forward(chain, bounds_s, value_t, expected=False)[0]


def last_states(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Distribution of the last state of every sequence, (S, K): π where it is empty, 0 where it is impossible."""
    return _forward(chain, bounds_s, value_t, expected=False)[1]


def smoothed(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Return γ, the distribution of the state at every position given its sequence, (T, K); 0 if it is impossible."""
    return _passed(chain, bounds_s, value_t, np.ones(len(bounds_s) - 1), expected=False)[0]


def most_probable(chain: StateChain, bounds_s: Ints, value_t: Values) -> Ints:
    """The most probable states of every sequence together, (T,) (Viterbi 1967); `IMPOSSIBLE` where there are none."""
    laws, (value_r, row_t) = chain.laws(expected=False), distinct(chain.emissions, value_t)
    log_rk = chain.emissions.log_likelihood(value_r, expected=False)
    state_t = np.full(len(value_t), IMPOSSIBLE, np.int64)
    from_tk = np.empty((int(np.diff(bounds_s).max(initial=0)), chain.emissions.n_states), np.int64)
    with np.errstate(divide="ignore"):
        log_start_k, log_back_kk = np.log(laws.start_k), np.log(np.ascontiguousarray(laws.step_kk.T))
    passes_numba.best_path(bounds_s, row_t, log_rk, log_start_k, log_back_kk, from_tk, state_t)
    return state_t


def distinct(emissions: Emissions, value_t: Values) -> tuple[Values, Ints]:
    """Distinct values, and the place of every position among them: of numbers, each position has its own."""
    if isinstance(emissions, CategoricalEmissions):
        return np.arange(-1, len(emissions.count_vk)), np.maximum(value_t.astype(np.int64), -1) + 1
    return value_t, np.arange(len(value_t))


def _forward(chain: StateChain, bounds_s: Ints, value_t: Values, *, expected: bool) -> tuple[Floats, Floats]:
    """Log-likelihoods, and distributions of last states."""
    laws, sequences, log_t = _met(chain, bounds_s, value_t, expected=expected)
    log_s, last_sk = np.zeros(len(bounds_s) - 1), np.tile(laws.start_k, (len(bounds_s) - 1, 1))
    passes_numba.forward(*sequences, laws.start_k, np.ascontiguousarray(laws.step_kk.T), log_s, last_sk)
    return log_s + _added(log_t, bounds_s), last_sk


def _passed(
    chain: StateChain, bounds_s: Ints, value_t: Values, weight_s: Floats, *, expected: bool
) -> tuple[Floats, Floats]:
    """Weighted distributions of the state at every position, (T, K), and the sum of those of pairs, (K, K)."""
    laws, sequences, _ = _met(chain, bounds_s, value_t, expected=expected)
    k, num, step_kk = chain.emissions.n_states, len(bounds_s) - 1, np.ascontiguousarray(laws.step_kk)
    gamma_tk, pair_ukk = np.zeros((len(value_t), k)), np.zeros((1, k, k))
    each = weight_s, np.zeros(num, np.int64), gamma_tk, pair_ukk, np.zeros(num, np.bool_)
    passes_numba.passes(*sequences, laws.start_k, step_kk, np.ascontiguousarray(step_kk.T), *each)
    return gamma_tk, pair_ukk[0]


def _met(
    chain: StateChain, bounds_s: Ints, value_t: Values, *, expected: bool
) -> tuple[Laws, tuple[Ints, Ints, Ints, Floats], Floats]:
    """Distributions, inputs of the compiled loops, and scales of the logarithms at every position."""
    value_r, row_t = distinct(chain.emissions, value_t)
    likelihood_rk, log_r = likelihoods(chain.emissions, value_r, expected=expected)
    order_s = passes_numba.longest_first(bounds_s, np.ones(len(bounds_s) - 1, np.bool_))
    return chain.laws(expected=expected), (order_s, bounds_s, row_t, likelihood_rk), log_r[row_t]


def _added(log_t: Floats, bounds_s: Ints) -> Floats:
    """Sums over the positions of each sequence, each by itself."""
    return np.asarray(np.bincount(np.repeat(np.arange(len(bounds_s) - 1), np.diff(bounds_s)), log_t, len(bounds_s) - 1))


class _Part(NamedTuple):
    """The passes over some persons.

    Attributes:
        first_u, bounds: first sequence of each person, first position of each sequence; the number of all at the end.
        shown: what positions show.
        gamma_tk: γ_t, 0 in a sequence of which nothing is seen, or that no states explain: it adds nothing.
        pair_ukk: Σ ξ_t of each person.
        possible_s: whether a sequence adds anything.
    """

    first_u: Ints
    bounds: Ints
    shown: Shown
    gamma_tk: Floats
    pair_ukk: Floats
    possible_s: Bools


@dataclass(eq=False)
class Walk:
    """Both passes over every sequence.

    Attributes:
        indptr: first position of each sequence, and the number of all, (n + 1,).
        longest: positions of a sequence that count.
        laws: distributions π and A.
        show: what the positions with these numbers show.
        units: as `by_unit` has them; None: each sequence is a unit.
    """

    indptr: Ints
    longest: int
    laws: Laws
    show: Callable[[Ints], Shown]
    units: Units | None = None
    _kept: dict[int, _Part] = field(default_factory=dict)
    _of: tuple[Ints, Walk] | None = None

    def __post_init__(self) -> None:
        # At any q at all, one of a stranger's making too, no sum over states may hold a negative number.
        self.laws = Laws(*(np.maximum(law, 0.0) for law in self.laws))

    def grouped(self, unit_of_row: Ints, num_units: int) -> Walk:
        """The same sequences as those of persons; all blocks of a batch share one."""
        if self._of is None or self._of[0] is not unit_of_row:
            self._of = unit_of_row, replace(self, units=by_unit(unit_of_row, num_units), _kept={}, _of=None)
        return self._of[1]

    def parts(self) -> Iterator[tuple[slice, _Part]]:
        """The passes, some persons at a time."""
        order, first = self.units or each(self.indptr)
        length_s = np.minimum(np.diff(self.indptr), self.longest)[order]
        bounds = np.append(0, np.cumsum(length_s))
        # Persons whose entries end in the same multiple go together.
        k = len(self.laws.start_k)
        slab_u = (k * bounds[first[1:]] + k**2 * np.arange(1, len(first))) // _ENTRIES
        edges = np.flatnonzero(np.diff(slab_u, prepend=-1, append=-1)) if len(slab_u) else np.zeros(1, np.int64)
        for number, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            if number in self._kept:
                yield slice(low, high), self._kept[number]
                continue
            sequences = slice(first[low], first[high])
            part = self._passed(order[sequences], length_s[sequences], first[low : high + 1] - first[low])
            if number < _KEPT:
                self._kept[number] = part
            yield slice(low, high), part

    def _passed(self, sequence_s: Ints, length_s: Ints, first_u: Ints) -> _Part:
        bounds = np.append(0, np.cumsum(length_s)).astype(np.int64)
        place_t = np.repeat(self.indptr[sequence_s] - bounds[:-1], length_s) + np.arange(bounds[-1])
        shown, k, num = self.show(place_t), len(self.laws.start_k), len(first_u) - 1
        order_s = passes_numba.longest_first(bounds, _between(bounds, shown.place_tf[:, 0] >= 0) > 0)
        results = np.zeros((len(place_t), k)), np.zeros((num, k, k)), np.zeros(len(length_s), np.bool_)
        step_kk = np.ascontiguousarray(self.laws.step_kk)
        laws, owner_s = (step_kk, np.ascontiguousarray(step_kk.T)), np.repeat(np.arange(num), np.diff(first_u))
        sequences = order_s, bounds, shown.row_t, shown.likelihood_rk, self.laws.start_k, *laws
        passes_numba.passes(*sequences, np.ones(len(length_s)), owner_s, *results)
        return _Part(first_u, bounds, shown, *results)


@dataclass(frozen=True)
class StateSums:
    """One of the statistics of the head of this file.

    Attributes:
        walk: the passes.
        kind: which one.
        shape: (K,), (K, K), or (V, K).
        power: p.
    """

    walk: Walk
    kind: Literal["firsts", "pairs", "shown"]
    shape: tuple[int, ...]
    power: float

    def of_block(self, block: Block, num_rows: int) -> StateSums:
        """Itself, of the block's states."""
        check_shape((len(self.walk.indptr) - 1, *self.shape), num_rows, *block.shape)
        return self

    def grouped(self, unit_of_row: Ints, num_units: int) -> StateSums:
        """The same sequences as those of persons."""
        return replace(self, walk=self.walk.grouped(unit_of_row, num_units))

    def nonnegative(self) -> StateSums:
        """Itself: what is shown is nonnegative, and the passes have no negative probability."""
        return self

    def norms(self) -> Floats:
        """Exact norms, with room for rounding."""
        out_u = np.empty(len((self.walk.units or each(self.walk.indptr))[1]) - 1)
        for users, part in self.walk.parts():
            if self.kind == "pairs":
                passes_numba.pair_norms(*self._pairs(part), out_u[users])
            else:
                scratch = np.zeros((1 if self.kind == "firsts" else self.shape[0], self.shape[-1]))
                passes_numba.shown_norms(*self._shown(part), scratch, out_u[users])
        return out_u * _ROOM

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate what persons add, pair by pair of states or position by position, and add it."""
        for users, part in self.walk.parts():
            if self.kind == "pairs":
                passes_numba.add_pairs(*self._pairs(part), weights[users], grid.step, out)
            else:
                passes_numba.add_shown(*self._shown(part), weights[users], grid.step, out.reshape(-1, self.shape[-1]))

    def _pairs(self, part: _Part) -> tuple[Floats, Floats]:
        number_s = np.where(part.possible_s, np.diff(part.bounds) - 1, 0)
        return passes_numba.shares(_between(part.first_u, number_s), self.power), part.pair_ukk

    def _shown(self, part: _Part) -> tuple[object, ...]:
        if self.kind == "shown":
            seen_t = part.shown.place_tf[:, 0] >= 0
            number_s = np.where(part.possible_s, _between(part.bounds, seen_t), 0)
            share_u = passes_numba.shares(_between(part.first_u, number_s), self.power)
            return share_u, part.bounds[part.first_u], part.shown.place_tf, part.shown.value_tf, part.gamma_tk
        # Only first positions, one for each sequence.
        gamma_sk = np.zeros((len(part.possible_s), self.shape[-1]))
        gamma_sk[part.possible_s] = part.gamma_tk[part.bounds[:-1][part.possible_s]]
        alone = np.zeros((len(gamma_sk), 1), np.int64), np.ones((len(gamma_sk), 1))
        return passes_numba.shares(_between(part.first_u, part.possible_s), 0.0), part.first_u, *alone, gamma_sk


def _between(first: Ints, number: Ints | Bools) -> Ints:
    """Sums of whole numbers from each first place to the next."""
    return np.diff(np.append(0, np.cumsum(number))[first])
