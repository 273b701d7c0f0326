"""The Gaussian that covers a plan: the form in which plans that are chosen one after the other add up with little loss.

A Gaussian of distance m covers a plan but for d if, for neighbours in both directions and every epsilon >= 0,

    delta_plan(epsilon) <= d + (1 - d) delta_Gauss(epsilon; m).

The right side is the profile of a *covering release*: with probability d it says everything, and otherwise it is one
draw from one of two unit Gaussians m apart. Where the line above holds at epsilon >= 0 in both directions, it holds
below 0, as delta_PQ(-epsilon) = 1 - e^-epsilon + e^-epsilon delta_QP(epsilon) on either side. So by Blackwell's theorem
a random function, the same for both neighbours, makes what the plan releases from what its covering release shows. That
is true of plans whose steps answer questions chosen on the way, and of several plans that take turns (Lyu 2022; Vadhan
& Zhang 2023): an observer learns no more than from the dominating Gaussian releases.

The profile of a plan comes from its privacy loss distribution, that of a cost with only a Renyi curve
from this curve. Both are upper bounds at each epsilon of a grid. Between two of them the profile is at most that at the
lower one, and the Gaussian's at least that at the upper one; so these two are compared.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from dpvb.accounting import gaussian
from dpvb.accounting.costs import FINE_ORDERS, Composition, Cost, delta_from_renyi, from_renyi
from dpvb.accounting.events import dominating_pairs
from dpvb.accounting.methods import MAX_GRID_SHIFT
from dpvb.guards.arrays import Floats

# Number of epsilons of the grid, which starts at 0; each costs at most a relative 1e-6 of m.
_POINTS = 4000
# The least delta of the grid, over the most that may be left out.
_LEAST = 1e-6
# The largest distance that is looked for, and the relative width at which the search ends.
_FARTHEST = 1e3
# Above this epsilon e^epsilon is not a number.
_MOST_EPSILON = 700.0
_TIGHT_ENOUGH = 1e-7


def covering(cost: Cost, delta: float, reach: float, most: float, *, normal: bool = True) -> tuple[float, float]:
    """The distance of a Gaussian that covers a cost, and what it leaves out.

    Args:
        cost: of a plan.
        delta: at which the plan's size is judged.
        reach, most: a plan of the size of a Gaussian of distance `reach` may leave out `most`, a smaller one less, in
            proportion to the square of its distance.
        normal: whether all noise is normal, or rounded from what is; if not, only the cost's Renyi curve is used.

    Returns:
        (m, d); d is 0 for full batches, which are Gaussians themselves, but for what they add to delta; m is inf
        where nothing covers the cost.
    """
    if added := cost.added_delta:
        # The added delta is a failure probability that does not depend on the noise.
        m, left_out = covering(cost.noise, delta, reach, most, normal=normal)
        return m, left_out + added
    key: Any = cost
    return _covering(key, delta, reach, most, normal)


@lru_cache(maxsize=256)
def _covering(cost: Any, delta: float, reach: float, most: float, normal: bool) -> tuple[float, float]:
    if normal and is_gaussian(cost):
        return _own_distance(cost), 0.0
    epsilon_g, delta_g = _profile(cost, _LEAST * most, normal)
    if delta_g[-1] >= 1:
        return math.inf, 0.0
    near = min(int(np.searchsorted(-delta_g, -delta)), _POINTS - 1)
    m = _distance(epsilon_g[near:][:1], np.array([delta]))
    # Above the last epsilon of the grid nothing is compared: there the plan's delta is left out whole.
    left_out = max(most * min(1.0, (m / reach) ** 2), float(delta_g[-1]))
    m = _distance(epsilon_g[1:], (delta_g[:-1] - left_out) / (1 - left_out))
    return (m, left_out) if m < math.inf else (math.inf, 0.0)


def _profile(cost: Cost, smallest: float, normal: bool) -> tuple[Floats, Floats]:
    """Epsilons from 0 to where delta is at most `smallest`, and upper bounds on delta at them."""
    top = from_renyi(cost.renyi, smallest)
    if not 0 < top < _MOST_EPSILON:
        return np.zeros(_POINTS), np.full(_POINTS, 1.0 if top else smallest)
    epsilon_g = np.linspace(0.0, top, _POINTS)
    delta_g = _by_orders(cost, epsilon_g)
    if normal and isinstance(cost, Composition):
        from dpvb.accounting import pld

        for pairs in dominating_pairs(cost.events, cost.neighboring_relation):
            if max(pair.mu for pair in pairs) <= MAX_GRID_SHIFT:
                delta_g = np.minimum(delta_g, pld.profile(pairs, epsilon_g, smallest))
    return epsilon_g, delta_g


def _by_orders(cost: Cost, epsilon_g: Floats) -> Floats:
    """Delta at each epsilon by the best order of a Renyi curve.

    Pinsker's inequality: it is at most √(R/2), R of the least order; and a profile is convex in e^epsilon.
    """
    least = float(cost.renyi(FINE_ORDERS[:1])[0])
    delta_g = np.minimum(delta_from_renyi(cost.renyi, epsilon_g), min(1.0, math.sqrt(least / 2)))
    return _below_chords(np.exp(epsilon_g), delta_g) * (1 + 1e-9)


def _below_chords(x: Floats, y: Floats) -> Floats:
    """The largest convex function below points of increasing x."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return np.interp(x, x[corners], y[corners])


def is_gaussian(cost: Cost) -> bool:
    """Return whether a cost is that of Gaussian noise on sums of all units."""
    return isinstance(cost, Composition) and all(
        event.sampling_prob == 1 and event.noise_multiplier > 0 for event in cost.events
    )


def distance(epsilon: float, delta: float) -> float:
    """The distance of the Gaussian whose profile goes through a point, from below."""
    low, high = 0.0, _FARTHEST
    while high - low > _TIGHT_ENOUGH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian.epsilon(middle, delta) > epsilon else (middle, high)
    return low


def _own_distance(cost: Cost) -> float:
    assert isinstance(cost, Composition)
    return min(pairs[0].mu for pairs in dominating_pairs(cost.events, cost.neighboring_relation))


def _distance(epsilon_g: Floats, delta_g: Floats) -> float:
    """The least m with delta_Gauss(epsilon; m) >= delta at all of these points; inf if it is too large."""
    epsilon_g, delta_g = epsilon_g[delta_g > 0], delta_g[delta_g > 0]
    low, high = 0.0, _FARTHEST
    if np.any(delta_g >= 1):
        return math.inf
    while high - low > _TIGHT_ENOUGH * high and high > 1e-12:
        m = math.sqrt(max(low, high * 1e-3) * high)
        above = np.exp(log_ndtr(m / 2 - epsilon_g / m)) - np.exp(epsilon_g + log_ndtr(-m / 2 - epsilon_g / m))
        low, high = (low, m) if np.all(above * (1 - 1e-9) >= delta_g) else (m, high)
    return high if high < _FARTHEST else math.inf
