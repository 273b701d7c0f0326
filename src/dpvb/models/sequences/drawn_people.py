"""People of nobody, drawn from a fitted model and clipped as it clips: what a clip leaves of each window on average.

A clip shortens whoever has many like windows more than others, and so bends what is released. How much follows from the
model that is fitted. Of the people who were there only sums are known: each drawn person has one sequence, and lengths
l are drawn from P(l) ∝ exp(λ l) up to the longest, the most even law with which a person's windows weigh on average
what was released. Where all have the length that is allowed, so have the drawn people. All of it is public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from dpvb.guards.arrays import Floats, Ints

# Symbols of a person who is drawn, and entries of a table of all windows by those of the same person: others stand for
# longer sequences and for more people.
_MOST_SYMBOLS, _MOST_PAIRS, _MOST_PEOPLE = 100, 1e7, 25_000
# Share of the people who are drawn to find their lengths, and how many lengths are tried.
_TRIED, _TRIALS = 0.1, 8
# Windows that each kind of window has beside those that were drawn, which the clip shortens as it does all.
_STEADY = 5.0
# |λ| at which lengths are all the same.
_STEEP = 20.0


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
        """What all windows of a person add, on average."""
        return float(self.weight_nm.sum() / len(self.place_nm))

    @property
    def share(self) -> float:
        """What the clip leaves of all windows."""
        return float(self.weight_nm.sum() / self.plain_nm.sum())

    def kept(self, size: int) -> Floats:
        """What the clip leaves of each window on average, (size,), in (0, 1]."""
        more = _STEADY * float(self.plain_nm.max())
        return (self.summed(self.weight_nm, size) + self.share * more) / (self.summed(self.plain_nm, size) + more)

    def squares(self, size: int) -> Floats:
        """Mean square of what a person adds to each window, (size,), never 0."""
        found_w = self.summed(self.weight_nm**2 * self.same_nm, size)
        return (found_w + float(self.plain_nm.max()) ** 2) / len(self.place_nm)

    def summed(self, value_nm: Floats, size: int) -> Floats:
        """Sums of values of windows, 0 for those that are not there, by kind of window, (size,)."""
        return np.asarray(np.bincount(self.place_nm.ravel(), value_nm.ravel(), size), dtype=np.float64)


def counted(code_nt: Ints, length_n: Ints, n_symbols: int, k: int, power: float, bound: float) -> DrawnPeople:
    """People of these symbols, with windows of k of them, as `WindowCounts` has them."""
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


def drawn(
    people: Callable[[int, int], Ints],
    given: tuple[int, int, float, float],
    longest: int,
    weight: float,
    rng: np.random.Generator,
) -> DrawnPeople:
    """People whose windows weigh on average as much as was released.

    Args:
        people: draws so many people of so many symbols.
        given: V, symbols of a window, p and C.
        longest: symbols that a sequence may have.
        weight: mean of what all windows of a person add, as it was released.
        rng: public randomness.
    """
    longest = min(longest, _MOST_SYMBOLS)
    number = min(int(_MOST_PAIRS / longest**2), _MOST_PEOPLE)
    length_l, code_nt = np.arange(given[1], longest + 1), people(number, longest)
    tried = code_nt[: int(_TRIED * number)]
    some_l = np.unique(np.linspace(given[1], longest, _TRIALS).astype(np.int64))
    found_l = [counted(tried[:, :long], np.full(len(tried), long), *given).weight for long in some_l]
    weight_l = np.interp(length_l, some_l, found_l)
    ends = [float(_lengths(steep, length_l) @ weight_l) - weight for steep in (-_STEEP, _STEEP)]
    steep = _STEEP if ends[1] <= 0 else -_STEEP
    if ends[0] < 0 < ends[1]:
        steep = float(brentq(lambda own: float(_lengths(own, length_l) @ weight_l) - weight, -_STEEP, _STEEP))
    return counted(code_nt, rng.choice(length_l, number, p=_lengths(steep, length_l)), *given)


def _lengths(steep: float, length_l: Ints) -> Floats:
    """P(l) ∝ exp(λ l)."""
    share_l = np.exp(steep * (length_l - length_l[-1 if steep > 0 else 0]))
    return np.asarray(share_l / share_l.sum())
