"""Privacy costs of releases: events, and the dominating pairs of distributions that they stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number

NeighboringRelation = Literal["add_or_remove_one", "replace_one"]
Sampler = Literal["poisson", "fixed_size", "full_batch"]
RELATIONS: tuple[NeighboringRelation, ...] = get_args(NeighboringRelation)
SAMPLERS: tuple[str, ...] = get_args(Sampler)

MIN_NOISE_MULTIPLIER = 1e-9
MAX_NOISE_MULTIPLIER = 1e12
MAX_STEPS = 10**9
# Pairs whose rates and shifts are within about this factor, in logs, are alike enough to choose orders and grids by.
_ALIKE = 0.15
# Sampling rates below this one are accounted at this one, which only raises epsilon.
_MIN_SAMPLING_PROB = 1e-15
# Sampling rates from this one on are accounted as 1: the digits of 1 - q end.
_MAX_SAMPLING_PROB = 1 - 1e-12


def named_sampler(sampling_prob: float | None, batch_size: int | None, n_units: int | None) -> tuple[Sampler, float]:
    """Name and rate of the sampler that public parameters mean; without any, the full batch.

    Raises:
        ParameterError: for parameters that contradict each other, or a value outside its range.
    """
    if batch_size is None:
        if sampling_prob is None:
            return "full_batch", 1.0
        return "poisson", check_number("sampling_prob", sampling_prob, low=0, high=1, closed="right")
    if sampling_prob is not None:
        raise ParameterError("Give sampling_prob (Poisson batches) or batch_size (fixed-size batches), not both.")
    if n_units is None:
        raise ParameterError(
            "batch_size needs n_units, a public number of units: its share of them is what is accounted. Without "
            "a public number use sampling_prob."
        )
    total = check_integer("n_units", n_units, low=1)
    return "fixed_size", check_integer("batch_size", batch_size, low=1, high=total) / total


@dataclass(frozen=True)
class Event:
    """The cost of `n_steps` equal releases of a clipped sum plus Gaussian noise.

    Args:
        sampler: how a batch is drawn, afresh at every step: "poisson", "fixed_size" (without replacement) or
            "full_batch".
        sampling_prob: inclusion probability in (0, 1]; 1 for "full_batch".
        noise_multiplier: noise standard deviation over the clip norm C; 0 means no noise and epsilon = inf.
        n_steps: number of releases.
        swap_ratio: largest distance between the possible contributions of two units, over C, in [1e-6, 2]; it is
            used for replace-one neighbours and for fixed-size batches. It is never the distance between a unit's
            contribution and none, which is up to C (see `sensitivity`).
        added_delta: chance, in [0, 1), that one such release shows what its noise does not cover; it adds to delta.

    All are public. Raises ParameterError for a value outside its range.

    Examples:
        >>> from dpvb.accounting import Event, epsilon_of
        >>> steps = Event("poisson", sampling_prob=0.05, noise_multiplier=2.0, n_steps=20)
        >>> round(epsilon_of([steps], delta=1e-6, neighboring_relation="add_or_remove_one"), 2)
        0.62
    """

    sampler: Sampler
    sampling_prob: float
    noise_multiplier: float
    n_steps: int = 1
    swap_ratio: float = 2.0
    added_delta: float = 0.0

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, SAMPLERS)
        prob = check_number("sampling_prob", self.sampling_prob, low=0, high=1, closed="right")
        if self.sampler == "full_batch" and prob != 1:
            raise ParameterError(
                f"sampling_prob must be 1 for sampler 'full_batch', got {prob!r}. Use sampler 'poisson' for a batch."
            )
        noise = check_number(
            "noise_multiplier", self.noise_multiplier, low=0, high=math.inf, closed="left", hint="Use 0 for no noise."
        )
        if 0 < noise < MIN_NOISE_MULTIPLIER:
            raise ParameterError(
                f"noise_multiplier must be 0 (no noise) or at least {MIN_NOISE_MULTIPLIER:g}, got {noise!r}."
            )
        steps = check_integer("n_steps", self.n_steps, low=1, high=MAX_STEPS)
        ratio = check_number("swap_ratio", self.swap_ratio, low=1e-6, high=2)
        added = check_number("added_delta", self.added_delta, low=0, high=1, closed="left")
        object.__setattr__(self, "sampling_prob", prob)
        object.__setattr__(self, "noise_multiplier", noise)
        object.__setattr__(self, "n_steps", steps)
        object.__setattr__(self, "swap_ratio", ratio)
        object.__setattr__(self, "added_delta", added)

    def sensitivity(self, relation: str) -> float:
        """Return the largest distance over C of any two sums between which the accountant must not tell.

        These sums are those with the unit, with the unit that takes its place, and without either. Where one unit can
        stand in another's place, two sums differ by the swap ratio. Where a unit can be absent, from the data or from
        a batch, two sums differ by its whole contribution, up to C.
        """
        one_from_another = self.swap_ratio if self._takes_a_place(relation) else 0.0
        one_from_none = 1.0 if relation == "add_or_remove_one" or self.sampling_prob < 1 else 0.0
        return max(one_from_another, one_from_none)

    def _takes_a_place(self, relation: str) -> bool:
        """Whether neighbouring batches can hold one unit in another's place."""
        return relation == "replace_one" or self.sampler == "fixed_size"

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; what adds nothing to delta does not say so, as in earlier versions."""
        # Ledgers of every version spell the number of releases so, and digests of plans are made of this text.
        facts = {{"n_steps": "num_steps"}.get(name, name): value for name, value in asdict(self).items()}
        return facts if self.added_delta else {name: facts[name] for name in facts if name != "added_delta"}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Event:
        """Return the event that `to_dict` wrote."""
        others = {name: value for name, value in facts.items() if name != "num_steps"}
        return Event(n_steps=facts.get("num_steps", 1), **others)


@dataclass(frozen=True)
class Pair:
    """A pair of distributions that dominates one step, in units of the noise standard deviation.

    kind "sampled": (1-q) N(0,1) + q N(mu,1) against N(0,1), in either order (exact for Poisson sampling and
    neighbours that differ in one example). kind "swapped": the symmetric pair whose hockey-stick profile is
    H(eps >= 0) = q delta_Gauss(log(1 + (e^eps - 1)/q); mu). kind "opposite": (1-q) N(0,1) + q N(mu,1) against
    (1-q) N(0,1) + q N(-mu,1).

    "swapped" holds wherever both distributions are mixtures (1-q) A + q U and (1-q) A + q W of Gaussians, any two of
    which are at most mu apart. From advanced joint convexity (Balle, Barthe, Gaboardi 2018, Theorem 2) the profile is
    then, at eps >= 0 and with some b in [0, 1], q times that of U against (1-b) A + b W, at most H(eps). The same holds
    with U and W exchanged, hence in both directions at every eps. A is the batch without the unit. So mu covers the
    distance of a contribution from none, compared with that of two contributions.
    """

    kind: Literal["sampled", "swapped", "opposite"]
    q: float
    mu: float
    n_steps: int


def check_relation(neighboring_relation: object) -> str:
    """Return the neighbouring relation if it is one of the two."""
    return check_choice("neighboring_relation", neighboring_relation, RELATIONS)


def check_plan(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return a plan's events if there is at least one and each is an Event."""
    plan = tuple(events)
    if not plan or not all(isinstance(event, Event) for event in plan):
        raise ParameterError(f"events must be a non-empty sequence of Event, got {plan!r}.")
    return plan


def added_delta(plan: Sequence[Event]) -> float:
    """Return what the releases of a plan add to delta, in addition to their noise."""
    return math.fsum(event.n_steps * event.added_delta for event in plan)


def dominating_pairs(plan: Sequence[Event], relation: str) -> list[list[Pair]]:
    """Return the alternatives, each a list of pairs, that bound a plan's noise: any one of them is an upper bound.

    Equal pairs are merged, and all Gaussians without amplification become one.
    """
    alternatives = [_merge([_pair(event, relation, opposite=False) for event in plan])]
    both_ways = [
        relation == "replace_one" and event.sampler == "poisson" and event.swap_ratio == 2 and event.sampling_prob < 1
        for event in plan
    ]
    if any(both_ways):
        alternatives.append(
            _merge([_pair(event, relation, opposite=flag) for event, flag in zip(plan, both_ways, strict=True)])
        )
    return alternatives


def _pair(event: Event, relation: str, *, opposite: bool) -> Pair:
    """The pair that dominates one step of an event.

    A full batch differs by a Gaussian's shift. A Poisson batch under add-or-remove is the "sampled" pair. Elsewhere
    three Gaussians are mixed: the batch A without the unit, U with the unit, and W with what stands in its place. Under
    replace-one W has the other unit. In a fixed-size batch under add-or-remove, W has nothing where the unit fills an
    empty place; where all places are taken, W = A has the unit that is drawn in its stead.
    """
    noise = min(event.noise_multiplier, MAX_NOISE_MULTIPLIER)
    q = max(event.sampling_prob, _MIN_SAMPLING_PROB) if event.sampling_prob < _MAX_SAMPLING_PROB else 1.0
    if opposite and q < 1:
        return Pair("opposite", q, 1 / noise, event.n_steps)
    mu = event.sensitivity(relation) / noise
    return Pair("swapped" if event._takes_a_place(relation) and q < 1 else "sampled", q, mu, event.n_steps)


def _merge(pairs: Sequence[Pair]) -> list[Pair]:
    counts: dict[tuple[Literal["sampled", "swapped", "opposite"], float, float], int] = {}
    gaussian = 0.0
    for pair in pairs:
        if pair.q == 1:
            gaussian += pair.n_steps * pair.mu**2
        else:
            key = (pair.kind, pair.q, pair.mu)
            counts[key] = counts.get(key, 0) + pair.n_steps
    merged = [Pair(kind, q, mu, count) for (kind, q, mu), count in counts.items()]
    if gaussian > 0:
        merged.append(Pair("sampled", 1.0, math.sqrt(gaussian), 1))
    return merged


def grouped(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with those that are nearly alike replaced by one of their mean shift: no bound, but near.

    It serves to choose orders, grids and scales, which may be any, before a plan of many levels is accounted for.
    """
    widest = max(pair.mu for pair in pairs)
    cells: dict[tuple[str, int, int], list[Pair]] = {}
    for pair in pairs:
        key = (pair.kind, round(math.log(pair.q) / _ALIKE), round(math.log(widest / pair.mu) / _ALIKE))
        cells.setdefault((key if pair.q < 1 else ("", 0, 0)), []).append(pair)
    return [_mean(alike) for alike in cells.values()]


def _mean(alike: Sequence[Pair]) -> Pair:
    n_steps = sum(pair.n_steps for pair in alike)
    if len(alike) == 1:
        return alike[0]
    q = math.sqrt(sum(pair.n_steps * pair.q**2 for pair in alike) / n_steps)
    mu = math.sqrt(sum(pair.n_steps * pair.mu**2 for pair in alike) / n_steps)
    return Pair(alike[0].kind, q, mu, n_steps)
