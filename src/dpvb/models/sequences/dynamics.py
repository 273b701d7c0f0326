"""Long-run behaviour of Markov chains, sequences drawn from them, and the bias due to clipping; all of it is public.

A distribution is P(b | a), (V, V), or P(c | a, b), (V, V, V). The state of a chain is the distribution of its last
symbols, (V,) or (V, V).

Clipping affects people with many equal windows more than others, and so biases the released windows. The bias follows
from the fitted model. Only sums over private people were released, so each drawn person has one sequence. The lengths
l follow the maximum-entropy distribution P(l) ∝ exp(λ l), up to the longest, whose mean weight of a person's windows is
the released one. If all private sequences have the maximal length, so do the drawn ones. Many people may have no window
at all, and the others more: of a chain, λ follows from the released share of people who were clipped over that weight,
and the weight tells how many people have a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from dpvb.guards.arrays import Floats, Ints

# Upper limit for the symbols of a drawn person, who stands for people with longer sequences.
_MOST_SYMBOLS = 100
# Upper limit for the entries of a table of all pairs of windows of one person, which limits the number of people.
_MOST_PAIRS = 1e7
# Upper limit for the number of drawn people.
_MOST_PEOPLE = 25_000
# Share of the drawn people from which the distribution of lengths is found.
_TRIED = 0.1
# Number of lengths that are tried for it.
_TRIALS = 8
# Pseudo-count of each window, clipped by the average factor: it steadies windows that few draws show.
_STEADY = 5.0
# |λ| at which lengths are all the same.
_STEEP = 20.0


def stationary(law: Floats) -> Floats:
    """The state that a step does not change, from π(I - P) = 0 and Σ π = 1."""
    v, order = len(law), law.ndim - 1
    size = v**order
    step = law if order == 1 else (np.eye(v)[None, :, :, None] * law[:, :, None, :]).reshape(size, size)
    state = np.linalg.solve((np.eye(size) - step).T + 1.0 / size, np.full(size, 1.0 / size))
    state = np.maximum(state, 0.0)
    return np.asarray((state / state.sum()).reshape((v,) * order))


def symbol_shares(law: Floats) -> Floats:
    """Shares of the symbols in the long run, (V,)."""
    state = stationary(law)
    return np.asarray(state.reshape(len(state), -1).sum(axis=1))


def durations(law: Floats) -> Floats:
    """Expected number of times that a symbol comes in a row, (V,): its share over the share of its arrivals."""
    state = stationary(law)
    pairs_vv = state if law.ndim > 2 else state[:, None] * law
    shares_v = pairs_vv.sum(axis=0)
    arrivals_v = shares_v - np.diagonal(pairs_vv)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(shares_v > 0, shares_v / np.maximum(arrivals_v, 0.0), 0.0))


def shown(state_nt: Ints, shown_kv: Floats, rng: np.random.Generator) -> Ints:
    """Emissions of hidden states, as codes, (n, length); distributions of the states in rows."""
    upto_kv, code_nt = np.cumsum(shown_kv, axis=1), np.empty_like(state_nt)
    for k, upto_v in enumerate(upto_kv):
        in_state_nt = state_nt == k
        code_nt[in_state_nt] = np.searchsorted(
            upto_v / upto_v[-1], rng.random(np.count_nonzero(in_state_nt)), side="right"
        )
    return code_nt


def drawn(initial_v: Floats, laws: list[Floats], n: int, length: int, rng: np.random.Generator) -> Ints:
    """Synthetic sequences as codes, (n, length).

    Args:
        initial_v: distribution of the first symbol.
        laws: distribution of the second symbol, of the third and of all later ones, up to the chain's order.
    """
    code_nt = np.empty((n, length), dtype=np.int64)
    for t in range(length):
        law = initial_v if t == 0 else laws[min(t, len(laws)) - 1]
        ends = np.cumsum(law, axis=-1)
        ends_nv = ends[tuple(code_nt[:, t - back] for back in range(law.ndim - 1, 0, -1))]
        code_nt[:, t] = np.minimum((rng.random(n)[:, None] >= ends_nv).sum(axis=-1), len(law) - 1)
    return code_nt


@dataclass(frozen=True)
class DrawnPeople:
    """Drawn people, and what they add.

    Attributes:
        code_nt: their symbols, (n, longest).
        place_nm: places of the windows of each, (n, M), 0 for one that is not there.
        weight_nm: what each window adds, clipped; 0 for one that is not there.
        plain_nm: what it would add without a clip.
        same_nm: how many of the person's windows are the same.
    """

    code_nt: Ints
    place_nm: Ints
    weight_nm: Floats
    plain_nm: Floats
    same_nm: Ints

    @property
    def weight(self) -> float:
        """Average contribution of all windows of a person."""
        return float(self.weight_nm.sum() / len(self.place_nm))

    @property
    def clipped(self) -> float:
        """Share of people who are clipped."""
        return float(np.mean((self.weight_nm < self.plain_nm).any(axis=1)))

    @property
    def share(self) -> float:
        """Share of all windows after clipping."""
        return float(self.weight_nm.sum() / self.plain_nm.sum())

    def kept(self, size: int) -> Floats:
        """Average share of each window after clipping, (size,), in (0, 1]."""
        more = _STEADY * float(self.plain_nm.max())
        return (self.summed(self.weight_nm, size) + self.share * more) / (self.summed(self.plain_nm, size) + more)

    def squares(self, size: int) -> Floats:
        """Mean square of what a person adds to each window, (size,), never 0."""
        square_w = self.summed(self.weight_nm**2 * self.same_nm, size)
        return (square_w + float(self.plain_nm.max()) ** 2) / len(self.place_nm)

    def summed(self, value_nm: Floats, size: int) -> Floats:
        """Sums of values of windows, 0 for those that are not there, by kind of window, (size,)."""
        return np.asarray(np.bincount(self.place_nm.ravel(), value_nm.ravel(), size), dtype=np.float64)


class WindowSizes(NamedTuple):
    """How people's windows are counted: V, symbols of a window, p and C."""

    n_symbols: int
    length: int
    power: float
    bound: float


def clipped_people(code_nt: Ints, length_n: Ints, sizes: WindowSizes) -> DrawnPeople:
    """People of these symbols, with windows as `WindowCounts` has them."""
    n_symbols, k, power, bound = sizes
    most = code_nt.shape[1] - k + 1
    number_n = np.maximum(length_n - k + 1, 0)[:, None]
    there_nm = np.arange(most) < number_n
    place_nm = np.zeros((len(code_nt), most), np.int32)
    for back in range(k):
        place_nm = place_nm * np.int32(n_symbols) + code_nt[:, back : back + most].astype(np.int32)
    place_nm = np.where(there_nm, place_nm, -1)
    same_nm = (place_nm[:, :, None] == place_nm[:, None, :]).sum(axis=2) * there_nm
    plain_n = np.maximum(number_n, 1.0) ** (power - 1.0)
    weight_n = np.minimum(plain_n, bound / np.sqrt(np.maximum(same_nm.sum(axis=1, keepdims=True), 1.0)))
    return DrawnPeople(code_nt, np.maximum(place_nm, 0), weight_n * there_nm, plain_n * there_nm, same_nm)


def draw_people(
    people: Callable[[int, int], Ints],
    sizes: WindowSizes,
    longest: int,
    weight: float,
    rng: np.random.Generator,
    clipped: float | None = None,
) -> DrawnPeople:
    """People whose windows weigh on average as much as was released.

    Args:
        people: draws so many people of so many symbols.
        sizes: how windows are counted.
        longest: symbols that a sequence may have.
        weight: mean of what all windows of a person add, as it was released.
        rng: public randomness.
        clipped: share of people who were clipped, as it was released; None: all people have a window.
    """
    longest = min(longest, _MOST_SYMBOLS)
    number = min(int(_MOST_PAIRS / longest**2), _MOST_PEOPLE)
    length_l, code_nt = np.arange(sizes.length, longest + 1), people(number, longest)
    tried = code_nt[: int(_TRIED * number)]
    some_l = np.unique(np.linspace(sizes.length, longest, _TRIALS).astype(np.int64))
    tried_l = [clipped_people(tried[:, :long], np.full(len(tried), long), sizes) for long in some_l]
    weight_l = np.interp(length_l, some_l, [one.weight for one in tried_l])
    steep, present = _steepness(length_l, weight_l - weight), 1.0
    if clipped is not None:
        # People without a window add nothing and are not clipped, so they do not change this ratio.
        clipped_l = np.interp(length_l, some_l, [one.clipped for one in tried_l])
        steeper = _steepness(length_l, clipped_l * weight - weight_l * clipped)
        if (most := float(_lengths(steeper, length_l) @ weight_l)) > weight:
            steep, present = steeper, weight / most
    length_n = rng.choice(length_l, number, p=_lengths(steep, length_l))
    if present < 1.0:
        length_n[rng.random(number) >= present] = 0
    return clipped_people(code_nt, length_n, sizes)


def _steepness(length_l: Ints, value_l: Floats) -> float:
    """The λ in [-20, 20] at which values of lengths have the mean 0, or are nearest to it."""
    low, high = (float(_lengths(steep, length_l) @ value_l) for steep in (-_STEEP, _STEEP))
    if low < 0 < high:
        return float(brentq(lambda steep: float(_lengths(steep, length_l) @ value_l), -_STEEP, _STEEP))
    return _STEEP if high <= 0 else -_STEEP


def _lengths(steep: float, length_l: Ints) -> Floats:
    """P(l) ∝ exp(λ l)."""
    share_l = np.exp(steep * (length_l - length_l[-1 if steep > 0 else 0]))
    return np.asarray(share_l / share_l.sum())
