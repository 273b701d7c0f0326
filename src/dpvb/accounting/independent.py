"""A second opinion: dp-accounting, which shares no code with this package's accountant, on the same plan.

dp-accounting connects the dots, too (Doroshenko et al. 2022), so that its composed distribution gives an upper bound on
epsilon. A lower bound comes from the same distribution: inside a grid cell of width h, mass moves to the two ends so
that the mean of e^-loss is kept, which by Hoeffding's lemma raises the mean loss by at most h^2/8. J steps then raise
the loss by more than s = J h^2/8 + h sqrt(J log(1/b) / 2) with probability b at most (Hoeffding's inequality), and
never by more than J h. Hence epsilon at delta is at least dp-accounting's epsilon at delta + b, minus s.

The pairs are found from the neighbouring relation, and not from the accountant's pairs. Neighbours are written down,
and the means of their sums: without the unit, with it, and with its replacement. The distance that these attain
is a lower bound. Where these neighbours are the worst ones (Poisson batches under add-or-remove, opposite
contributions, batches of all units), it is an upper bound as well. Elsewhere the upper bound is Renyi accounting's or
none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpvb.accounting.events import Event, added_delta, check_plan, check_relation
from dpvb.accounting.methods import rounded_down, rounded_up
from dpvb.guards.errors import PrivacyError, check_delta, check_number

# The interval's width relative to epsilon that the grid is chosen for, and the price it may have: dp-accounting takes
# about ten microseconds a cell of a step's distribution.
_WIDTH = 0.01
_MAX_CELLS = 50_000
_MAX_COMPOSED = 200_000
# Beyond, dp-accounting's floating-point arithmetic shows.
_MIN_DELTA = 1e-10
_MAX_RENYI_EVENTS = 8
# Cells of a step that dp-accounting has no name for: between them outcomes are told apart no further.
_CELLS = 4_000


@dataclass(frozen=True)
class CrossCheck:
    """Where dp-accounting finds a plan's epsilon.

    Attributes:
        lower, upper: epsilon lies between them; 0 and inf where dp-accounting knows nothing.
        reason: why there is no second opinion; empty if there is one.

    Examples:
        >>> from dpvb.accounting import Event, cross_check
        >>> plan = [Event("full_batch", 1.0, 2.0)]
        >>> print(cross_check(plan, epsilon=2.0, delta=1e-6, neighboring_relation="add_or_remove_one"))
        not available: without sampling, epsilon has a closed formula
    """

    lower: float = 0.0
    upper: float = math.inf
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"not available: {self.reason}"
        if self.upper == math.inf:
            return (
                f"dp-accounting finds epsilon to be at least {rounded_down(self.lower)}, and has no upper bound for "
                "such releases"
            )
        return f"dp-accounting finds epsilon between {rounded_down(self.lower)} and {rounded_up(self.upper)}"


def cross_check(events: Sequence[Event], *, epsilon: float, delta: float, neighboring_relation: str) -> CrossCheck:
    """Return dp-accounting's bounds on a plan's epsilon, or the reason why there are none.

    Args:
        events: the plan; public.
        epsilon: about what it will be; it sets the grid.
        delta: in (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        ParameterError: for a value outside its range.
    """
    plan, relation, delta = check_plan(events), check_relation(neighboring_relation), check_delta(delta)
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf)
    if any(event.noise_multiplier == 0 for event in plan):
        return CrossCheck(math.inf, math.inf)
    if epsilon == math.inf:
        return CrossCheck(reason="an infinite epsilon guarantees nothing")
    if all(event.sampling_prob == 1 for event in plan):
        return CrossCheck(reason="without sampling, epsilon has a closed formula")
    if epsilon == 0:
        return CrossCheck(reason="delta covers all that the releases could tell")
    # Added delta is subtracted first: composition does not apply to it.
    delta -= added_delta(plan)
    # Nearly equal claims share a grid, so that a plan is looked at once.
    return _opinion(plan, delta, relation, 1.1 ** round(math.log(epsilon, 1.1)))


def confirm(events: Sequence[Event], *, epsilon: float, delta: float, neighboring_relation: str) -> CrossCheck:
    """Compare a claimed epsilon with dp-accounting's bounds; arguments as for `cross_check`.

    Raises:
        PrivacyError: if dp-accounting's lower bound lies above the claim.
        ParameterError: for a value outside its range.
    """
    opinion = cross_check(events, epsilon=epsilon, delta=delta, neighboring_relation=neighboring_relation)
    if opinion.lower > epsilon:
        raise PrivacyError(
            f"Two accountants disagree: this plan's epsilon at delta = {delta:g} is claimed to be at most "
            f"{epsilon:.6g}, but dp-accounting finds at least {opinion.lower:.6g}. Nothing was released. Please report "
            "it with the plan's parameters."
        )
    return opinion


def confirm_once(events: Sequence[Event], *, epsilon: float, delta: float, neighboring_relation: str) -> None:
    """Compare a claimed epsilon with dp-accounting's bounds unless this process has compared a plan of the same form.

    A form is the neighbouring relation and, for each kind of release, the sampler, the distance of contributions, and
    the power of two that is nearest to its sampling probability, noise and number of steps. An accountant fails for a
    form (a sampler, a small rate, many steps), not for one value: a fit that repeats a form need not wait for it again.

    Args, Raises: as for `confirm`.
    """
    form = (neighboring_relation, round(math.log2(delta)), frozenset(map(_form, events)))
    if form not in _confirmed:
        confirm(events, epsilon=epsilon, delta=delta, neighboring_relation=neighboring_relation)
        _confirmed.add(form)


#: Forms of the plans that `confirm_once` has compared.
_confirmed: set[tuple[str, int, frozenset[tuple[object, ...]]]] = set()


def _form(event: Event) -> tuple[object, ...]:
    noise, probability = event.noise_multiplier, event.sampling_prob
    numbers = (probability, noise if noise > 0 else math.inf, event.n_steps)
    return event.sampler, event.swap_ratio, *(round(math.log2(min(number, 2**60))) for number in numbers)


@lru_cache(maxsize=256)
def _opinion(plan: tuple[Event, ...], delta: float, relation: str, scale: float) -> CrossCheck:
    n_steps = sum(event.n_steps for event in plan)
    rounding = 2e-15 * (n_steps + 10 * len(plan))
    if delta < _MIN_DELTA or rounding > 0.01 * delta:
        return CrossCheck(reason="so small a delta is beyond dp-accounting's rounding")
    distributions = [
        _bounds(neighbours, delta, scale, rounding)
        for neighbours in [_attained(plan, relation, alone=alone) for alone in _situations(plan)]
    ]
    if reason := next((opinion.reason for opinion in distributions if opinion.reason), ""):
        return CrossCheck(reason=reason)
    lower = max(opinion.lower for opinion in distributions)
    if all(_is_worst(event, relation) for event in plan):
        return CrossCheck(lower, distributions[0].upper)
    return CrossCheck(lower, _renyi(plan, delta, relation))


@dataclass(frozen=True)
class _Step:
    """Equal steps on two neighbours: (1-q) N(0, 1) + q N(one, 1) against (1-q) N(0, 1) + q N(other, 1).

    Attributes:
        q: sampling probability.
        one, other: how far the sums with the unit, and with what stands in its place, are from the sum without either,
            in standard deviations of the noise; one > |other| or one = -other.
        n_steps: how many.
    """

    q: float
    one: float
    other: float
    n_steps: int


def _attained(plan: Sequence[Event], relation: str, *, alone: bool) -> list[_Step]:
    """Return what two neighbours attain, in one dimension.

    Args:
        plan: the events.
        relation: what neighbours differ in.
        alone: whether there is no other unit. The batch without the unit is then empty, the sum 0, and in fixed-size
            batches all places but one are empty. Otherwise all places are taken, by units that are all alike; whether
            they are in a Poisson batch does not depend on the unit.
    """
    counts: dict[tuple[float, float, float], int] = {}
    unsampled = 0.0
    for event in plan:
        one, other = (mean / event.noise_multiplier for mean in _means(event, relation, alone=alone))
        if event.sampling_prob == 1:
            unsampled += event.n_steps * (one - other) ** 2  # Gaussians add up to one.
        else:
            counts[event.sampling_prob, one, other] = counts.get((event.sampling_prob, one, other), 0) + event.n_steps
    steps = [_Step(*key, number) for key, number in counts.items()]
    return [*steps, _Step(1.0, math.sqrt(unsampled), 0.0, 1)] if unsampled else steps


def _situations(plan: Sequence[Event]) -> list[bool]:
    """Return whether the unit has no others: in fixed-size batches the worse case, or both where batches disagree.

    Where two contributions are nearer to each other than C, an empty place is farther from the unit than another unit.
    """
    return sorted({event.swap_ratio < 1 for event in plan if event.sampler == "fixed_size"} or {True})


def _means(event: Event, relation: str, *, alone: bool) -> tuple[float, float]:
    """Return where the sums with the unit and with what stands in its place are, over C, from the sum without them."""
    if event.sampling_prob == 1 and relation == "replace_one":
        return event.swap_ratio, 0.0  # There is no batch without either: the one is as far as can be from the other.
    if event.sampler == "fixed_size" and not alone:
        return event.swap_ratio, 0.0  # Another unit, like the one in its place, is drawn instead.
    # The unit's contribution is C; the other unit's is on the same line, as far from it as may be.
    return 1.0, 1.0 - event.swap_ratio if relation == "replace_one" else 0.0


def _is_worst(event: Event, relation: str) -> bool:
    """Tell whether the neighbours of an event that are looked at are known to be the worst ones."""
    if event.sampling_prob == 1:
        return relation == "replace_one" or event.sampler != "fixed_size"
    return event.sampler == "poisson" and (relation == "add_or_remove_one" or event.swap_ratio == 2)


def _bounds(steps: Sequence[_Step], delta: float, scale: float, rounding: float) -> CrossCheck:
    """Return bounds on the epsilon of two neighbours' releases, or the reason why there are none."""
    n_steps = sum(step.n_steps for step in steps)
    beyond = 1e-3 * delta
    deviations = math.sqrt(n_steps * -math.log(beyond) / 2)
    truncated = math.log(1e-4 * delta / n_steps)
    h = max(
        _WIDTH * scale / n_steps,
        2 * _WIDTH * scale / (deviations + math.sqrt(deviations**2 + n_steps * _WIDTH * scale / 2)),
        4 * scale / _MAX_COMPOSED,
        sum(_largest_loss(step, math.sqrt(-2 * truncated)) for step in steps) / _MAX_CELLS,
    )
    spread = min(n_steps * h, n_steps * h * h / 8 + h * deviations)
    if spread > scale / 2 or h > 1:
        return CrossCheck(reason="the grid that dp-accounting would need is too fine")
    try:
        with np.errstate(all="ignore"):
            composed = _composed(steps, h, truncated)
            lower = composed.get_epsilon_for_delta(delta + beyond + 2e-4 * delta + rounding) - spread
            upper = composed.get_epsilon_for_delta(delta - rounding)
    except (ArithmeticError, ValueError, MemoryError) as error:
        return CrossCheck(reason=f"dp-accounting fails with {type(error).__name__}")
    if not lower < math.inf or math.isnan(upper):
        return CrossCheck(reason="dp-accounting finds no number")
    return CrossCheck(max(0.0, float(lower)), float(upper))


def _largest_loss(step: _Step, reach: float) -> float:
    """Return about the width of one step's losses, up to `reach` standard deviations."""
    exponent = step.one * (reach + step.one / 2)
    return (1 if step.other == 0 and step.q < 1 else 2) * (
        exponent if exponent > 500 else math.log1p(step.q * math.expm1(exponent))
    )


def _composed(steps: Sequence[_Step], h: float, truncated: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    total: Any = privacy_loss_distribution.identity(h)
    for step in steps:
        distribution = _step_distribution(step, h, truncated)
        total = total.compose(distribution.self_compose(step.n_steps) if step.n_steps > 1 else distribution)
    return total


def _step_distribution(step: _Step, h: float, truncated: float) -> Any:
    """Return dp-accounting's privacy loss distribution of one step."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    if step.other not in (0.0, -step.one):
        return _step_of_cells(step, h, math.sqrt(-2 * truncated))
    # Under replace-one dp-accounting puts the two contributions at +1 and -1.
    opposite = step.other != 0
    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / step.one,
        value_discretization_interval=h,
        log_mass_truncation_bound=truncated,
        sampling_prob=step.q,
        neighboring_relation=NeighboringRelation.REPLACE_ONE if opposite else NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


def _step_of_cells(step: _Step, h: float, reach: float) -> Any:
    """Return the distribution of a step of which only the cell of its outcome is seen: no more than the step tells."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    from scipy.special import ndtr

    edges = np.linspace(min(0.0, step.other) - reach, step.one + reach, _CELLS - 1)

    def masses(mean: float) -> Any:
        below, above = ndtr(np.append(edges, np.inf) - mean), ndtr(mean - np.append(edges, np.inf))
        left, right = np.diff(below, prepend=0.0), -np.diff(above, prepend=1.0)
        return np.where(np.append(edges, np.inf) < mean, left, right)

    without = (1 - step.q) * masses(0.0)
    p, q = (np.maximum(without + step.q * masses(mean), 1e-300) for mean in (step.one, step.other))
    pmfs = []
    for one, other in ((p, q), (q, p)):
        loss = np.log(one) - np.log(other)
        cell = np.floor(loss / h).astype(np.int64)
        start = int(cell.min())
        upper = one * np.expm1(cell * h - loss) / np.expm1(-h)
        mass = np.bincount(cell - start, one - upper, int(np.ptp(cell)) + 2)
        mass += np.bincount(cell + 1 - start, upper, len(mass))
        chances = {start + i: float(chance) for i, chance in enumerate(mass) if chance > 0}
        pmfs.append(pld_pmf.create_pmf(chances, h, 0.0, pessimistic_estimate=True))
    return privacy_loss_distribution.PrivacyLossDistribution(*pmfs)


def _renyi(plan: Sequence[Event], delta: float, relation: str) -> float:
    """Return dp-accounting's Renyi bound for batches in which one unit can stand in another's place, else inf.

    It is proven for a unit in another's place. An empty place is a unit like any other, whose contribution is 0.
    """
    if len(plan) > _MAX_RENYI_EVENTS or any(event.sampler == "poisson" and event.sampling_prob < 1 for event in plan):
        return math.inf
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant: Any = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    for event in plan:
        # Its noise multiplier is over the largest distance of two batches here.
        step: Any = dp_accounting.GaussianDpEvent(event.noise_multiplier / _largest_distance(event, relation))
        if event.sampling_prob < 1:
            size = 10**12
            step = dp_accounting.SampledWithoutReplacementDpEvent(size, math.ceil(event.sampling_prob * size), step)
        accountant.compose(step, event.n_steps)
    return float(accountant.get_epsilon(delta))


def _largest_distance(event: Event, relation: str) -> float:
    """Return the largest distance over C of two batches, from how an empty place, the unit and another one differ."""
    of_two = event.swap_ratio if relation == "replace_one" or event.sampler == "fixed_size" else 0.0
    always_there = relation == "replace_one" and event.sampling_prob == 1
    return of_two if always_there else max(of_two, 1.0)
