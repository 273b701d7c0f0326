"""Cost of a plan, in the two forms that a ledger needs: a Renyi curve that adds up, and one tight epsilon.

The Renyi curve of plans chosen one after the other, each after seeing what came before, is at most the sum of their
curves (see `filter`). The tight epsilon holds for plans that are all fixed beforehand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dpvb.accounting.events import (
    MAX_STEPS,
    Event,
    NeighboringRelation,
    added_delta,
    check_plan,
    check_relation,
    dominating_pairs,
)
from dpvb.accounting.methods import answer
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_delta

#: Orders that a curve is converted at where it is not known in closed form.
FINE_ORDERS = 1.0 + np.geomspace(1e-3, 1e5, 200)


@runtime_checkable
class Cost(Protocol):
    """A cost that a data set can be charged with; hashable, equal if and only if the mechanism is the same.

    A class that inherits from it adds nothing to delta, unless it says otherwise.
    """

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """How neighbouring data sets differ."""

    @property
    def added_delta(self) -> float:
        """Probability that the mechanism shows what its noise does not cover; it adds to delta."""
        return 0.0

    @property
    def noise(self) -> Cost:
        """The same as far as its noise covers it."""
        return self

    def renyi(self, orders: Floats) -> Floats:
        """Upper bounds on the Renyi divergence at orders above 1, in both directions; inf where there is none."""

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        """Upper bound on epsilon at delta; `expected`: about what it will be, if known."""

    def scaled(self, scale: float) -> Cost:
        """The same with all noise multiplied."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `forms.from_dict` reads it."""


@dataclass(frozen=True)
class Composition:
    """The cost of noisy releases, one after the other.

    Attributes:
        events: what the releases are, in any order; equal ones are merged.
        neighboring_relation: what neighbouring data sets differ in.

    Examples:
        >>> from dpvb.accounting import Event
        >>> from dpvb.accounting.costs import Composition
        >>> cost = Composition([Event("full_batch", 1.0, 2.0)], "add_or_remove_one")
        >>> round(cost.epsilon(1e-6), 2)
        2.25
    """

    events: Sequence[Event]
    neighboring_relation: NeighboringRelation

    def __post_init__(self) -> None:
        check_relation(self.neighboring_relation)
        object.__setattr__(self, "events", _merged(_steps(self.events)))

    def renyi(self, orders: Floats) -> Floats:
        """The least of the accountant's alternatives at each order (Mironov 2017; see `accounting.renyi`)."""
        return np.array(_curve(self, tuple(orders)))

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        """Epsilon of the tight accountant."""
        return _tight(self, check_delta(delta), expected)

    @property
    def added_delta(self) -> float:
        """The part of delta that the releases add, in addition to that of their noise."""
        return added_delta(self.events)

    @property
    def noise(self) -> Composition:
        """The same releases as far as their noise covers them."""
        if not self.added_delta:
            return self
        return replace(self, events=[replace(event, added_delta=0.0) for event in self.events])

    def scaled(self, scale: float) -> Composition:
        """The same with all noise multipliers multiplied."""
        events = [replace(event, noise_multiplier=scale * event.noise_multiplier) for event in self.events]
        return Composition(events, self.neighboring_relation)

    def to_dict(self) -> dict[str, Any]:
        """The events, in a fixed order."""
        return {
            "form": "composition",
            "neighboring_relation": self.neighboring_relation,
            "events": [event.to_dict() for event in self.events],
        }

    @staticmethod
    def of(*, events: Sequence[Mapping[str, Any]], neighboring_relation: NeighboringRelation) -> Composition:
        """The cost whose parts `to_dict` wrote."""
        return Composition([Event.from_dict(event) for event in events], neighboring_relation)


@dataclass(frozen=True)
class Total:
    """Several costs together, all fixed beforehand.

    Attributes:
        costs: with how often each occurs; a negative number takes away what was counted before and never ran.
    """

    costs: tuple[tuple[Cost, int], ...]

    def renyi(self, orders: Floats) -> Floats:
        """The sum of the curves."""
        sums = np.zeros_like(orders)
        for cost, count in self.costs:
            sums += count * cost.renyi(orders)
        return sums

    def epsilon(self, delta: float) -> float:
        """Epsilon of the tight accountant if all costs are compositions, else from the sum of the curves."""
        delta = check_delta(delta)
        steps: Counter[Event] = Counter()
        for cost, count in self.costs:
            if not isinstance(cost, Composition):
                rest = delta - math.fsum(number * one.added_delta for one, number in self.costs)
                noise = Total(tuple((one.noise, number) for one, number in self.costs))
                return from_renyi(noise.renyi, rest) if rest > 0 else math.inf
            for event, number in _steps(cost.events).items():
                steps[event] += count * number
        events = _merged({event: number for event, number in steps.items() if number > 0})
        return Composition(events, self.costs[0][0].neighboring_relation).epsilon(delta) if events else 0.0


def total(costs: Iterable[Cost] | Mapping[Cost, int]) -> Total:
    """Put costs together, equal ones counted once; a mapping says how often each occurs.

    Raises:
        ParameterError: if their neighbouring relations differ.
    """
    counts: Counter[Cost] = Counter(costs)
    relations = {cost.neighboring_relation for cost in counts}
    if len(relations) > 1:
        raise ParameterError(f"costs must have one neighboring_relation to be added, got {sorted(relations)}.")
    return Total(tuple((cost, count) for cost, count in counts.items() if count))


def from_renyi(curve: Callable[[Floats], Floats], delta: float) -> float:
    """Return epsilon at delta of a Renyi curve, improved conversion (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    lam = FINE_ORDERS - 1
    with np.errstate(invalid="ignore"):
        bound = curve(FINE_ORDERS) - (math.log(delta) + np.log(FINE_ORDERS)) / lam + np.log(lam / FINE_ORDERS)
    return max(0.0, float(np.min(np.where(np.isnan(bound), np.inf, bound)))) * (1 + 1e-12)


def delta_from_renyi(curve: Callable[[Floats], Floats], epsilon_g: Floats) -> Floats:
    """Return delta at many epsilons of a Renyi curve, (G,), by the same conversion."""
    lam = FINE_ORDERS - 1
    with np.errstate(invalid="ignore"):
        log_delta = lam * (curve(FINE_ORDERS) - epsilon_g[:, None]) + lam * np.log(lam / FINE_ORDERS)
    log_delta -= np.log(FINE_ORDERS)
    least_g: Floats = np.where(np.isnan(log_delta), 0.0, log_delta).min(axis=1)
    return np.asarray(np.exp(np.minimum(least_g, 0.0)))


def n_steps(costs: Iterable[Cost]) -> Counter[Event]:
    """Count the releases of each kind in compositions."""
    counts: Counter[Event] = Counter()
    for cost in costs:
        if isinstance(cost, Composition):
            counts.update(_steps(cost.events))
    return counts


def _steps(events: Sequence[Event]) -> dict[Event, int]:
    """How many releases of each kind there are."""
    steps: Counter[Event] = Counter()
    for event in check_plan(events):
        steps[replace(event, n_steps=1)] += event.n_steps
    return dict(steps)


def _place(event: Event) -> tuple[str, float, float, float, float]:
    return event.sampler, event.sampling_prob, event.noise_multiplier, event.swap_ratio, event.added_delta


def _merged(steps: Mapping[Event, int]) -> tuple[Event, ...]:
    """The events in a fixed order, as few as can be."""
    pieces = []
    for event in sorted(steps, key=_place):
        whole, rest = divmod(steps[event], MAX_STEPS)
        pieces += [replace(event, n_steps=number) for number in (*[MAX_STEPS] * whole, rest) if number]
    return tuple(pieces)


@lru_cache(maxsize=256)
def _curve(cost: Composition, orders: tuple[float, ...]) -> tuple[float, ...]:
    from dpvb.accounting import renyi

    if any(event.noise_multiplier == 0 or event.added_delta for event in cost.events):
        return (math.inf,) * len(orders)
    lam = np.array(orders) - 1
    alternatives = dominating_pairs(cost.events, cost.neighboring_relation)
    bounds = np.array([renyi.log_moments(pairs, lam) / lam for pairs in alternatives])
    return tuple(np.where(np.isnan(bounds), np.inf, bounds).min(axis=0).tolist())


@lru_cache(maxsize=256)
def _tight(cost: Composition, delta: float, expected: float | None) -> float:
    return answer(cost.events, delta=delta, neighboring_relation=cost.neighboring_relation, expected=expected).epsilon
