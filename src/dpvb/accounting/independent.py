"""A second opinion: dp-accounting, which shares no code with this package's accountant, on the same plan.

dp-accounting connects the dots, too (Doroshenko et al. 2022), so that its composed distribution gives an upper bound on
epsilon. A lower bound comes from the same distribution: inside a grid cell of width h, mass moves to the two ends so
that the mean of e^-loss is kept, which by Hoeffding's lemma raises the mean loss by at most h^2/8. J steps then raise
the loss by more than s = J h^2/8 + h sqrt(J log(1/b) / 2) with probability b at most (Hoeffding's inequality), and
never by more than J h. Hence epsilon at delta is at least dp-accounting's epsilon at delta + b, minus s.

Both bounds are about pairs of distributions that some neighbours attain. Where only a dominating profile is known (one
unit for another, in a fixed-size batch or with a swap ratio below 2), the pair attained is another one, with less
epsilon, and the upper bound is Renyi accounting's or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dpvb.accounting.answers import check_delta
from dpvb.accounting.events import Event, Pair, added_delta, check_plan, check_relation, dominating_pairs
from dpvb.guards.errors import PrivacyError, check_number

# The interval's width relative to epsilon that the grid is chosen for, and the price it may have: dp-accounting takes
# about ten microseconds a cell of a step's distribution.
_WIDTH = 0.01
_MAX_CELLS = 50_000
_MAX_COMPOSED = 200_000
# Beyond, dp-accounting's floating-point arithmetic shows.
_MIN_DELTA = 1e-10
_MAX_RENYI_EVENTS = 8


@dataclass(frozen=True)
class SecondOpinion:
    """Where dp-accounting finds a plan's epsilon.

    Attributes:
        lower, upper: epsilon lies between them; 0 and inf where dp-accounting knows nothing.
        reason: why there is no second opinion; empty if there is one.
    """

    lower: float = 0.0
    upper: float = math.inf
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"no second opinion: {self.reason}"
        if self.upper == math.inf:
            return (
                f"dp-accounting finds epsilon to be at least {self.lower:.4g}, and has no upper bound for such releases"
            )
        return f"dp-accounting finds epsilon between {self.lower:.4g} and {self.upper:.4g}"


def second_opinion(
    events: Sequence[Event], *, epsilon: float, delta: float, neighboring_relation: str
) -> SecondOpinion:
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
        return SecondOpinion(math.inf, math.inf)
    if epsilon == math.inf:
        return SecondOpinion(reason="an infinite epsilon promises nothing")
    if all(event.sampling_prob == 1 for event in plan):
        return SecondOpinion(reason="without sampling, epsilon has a closed formula")
    if epsilon == 0:
        return SecondOpinion(reason="delta covers all that the releases could tell")
    # What releases add to delta beside their noise is no matter of composition.
    delta -= added_delta(plan)
    # Nearly equal claims share a grid, so that a plan is looked at once.
    return _opinion(plan, delta, relation, 1.1 ** round(math.log(epsilon, 1.1)))


def confirm(events: Sequence[Event], *, epsilon: float, delta: float, neighboring_relation: str) -> SecondOpinion:
    """Compare a claimed epsilon with dp-accounting's bounds; arguments as for `second_opinion`.

    Raises:
        PrivacyError: if dp-accounting's lower bound lies above the claim.
        ParameterError: for a value outside its range.
    """
    opinion = second_opinion(events, epsilon=epsilon, delta=delta, neighboring_relation=neighboring_relation)
    if opinion.lower > epsilon:
        raise PrivacyError(
            f"two accountants disagree: this plan's epsilon at delta = {delta:g} is claimed to be at most "
            f"{epsilon:.6g}, but dp-accounting finds at least {opinion.lower:.6g}. Nothing was released. Please report "
            "it with the plan's parameters."
        )
    return opinion


@lru_cache(maxsize=256)
def _opinion(plan: tuple[Event, ...], delta: float, relation: str, scale: float) -> SecondOpinion:
    num_steps = sum(event.num_steps for event in plan)
    rounding = 2e-15 * (num_steps + 10 * len(plan))
    if delta < _MIN_DELTA or rounding > 0.01 * delta:
        return SecondOpinion(reason="so small a delta is beyond dp-accounting's rounding")
    pairs = _attained(plan, relation)
    num_steps = sum(pair.num_steps for pair in pairs)
    beyond = 1e-3 * delta
    deviations = math.sqrt(num_steps * -math.log(beyond) / 2)
    truncated = math.log(1e-4 * delta / num_steps)
    h = max(
        _WIDTH * scale / num_steps,
        2 * _WIDTH * scale / (deviations + math.sqrt(deviations**2 + num_steps * _WIDTH * scale / 2)),
        4 * scale / _MAX_COMPOSED,
        sum(_largest_loss(pair, math.sqrt(-2 * truncated)) for pair in pairs) / _MAX_CELLS,
    )
    spread = min(num_steps * h, num_steps * h * h / 8 + h * deviations)
    if spread > scale / 2 or h > 1:
        return SecondOpinion(reason="the grid that dp-accounting would need is too fine")
    exact = relation == "add_or_remove_one" or all(_opposite(event) or event.sampling_prob == 1 for event in plan)
    try:
        with np.errstate(all="ignore"):
            composed = _composed(pairs, h, truncated)
            lower = composed.get_epsilon_for_delta(delta + beyond + 2e-4 * delta + rounding) - spread
            upper = composed.get_epsilon_for_delta(delta - rounding) if exact else _renyi(plan, delta)
    except (ArithmeticError, ValueError, MemoryError) as error:
        return SecondOpinion(reason=f"dp-accounting fails with {type(error).__name__}")
    if not lower < math.inf or math.isnan(upper):
        return SecondOpinion(reason="dp-accounting finds no number")
    return SecondOpinion(max(0.0, float(lower)), float(upper))


def _opposite(event: Event) -> bool:
    """Tell whether replacing one unit is worst with opposite contributions, which dp-accounting assumes."""
    return event.sampler == "poisson" and event.sampling_prob < 1 and event.swap_ratio == 2


def _attained(plan: Sequence[Event], relation: str) -> list[Pair]:
    """Return pairs that some neighbours attain: all others equal, or all zero, and one unit apart or opposite."""
    if relation == "add_or_remove_one":
        return dominating_pairs(plan, relation)[0]
    opposite = [event for event in plan if _opposite(event)]
    others = [
        replace(event, noise_multiplier=event.noise_multiplier / min(1.0, event.swap_ratio))
        if event.sampler == "poisson" and event.sampling_prob < 1
        else replace(event, sampler="fixed_size")
        for event in plan
        if not _opposite(event)
    ]
    return [
        *(dominating_pairs(opposite, "replace_one")[-1] if opposite else []),
        *(dominating_pairs(others, "add_or_remove_one")[0] if others else []),
    ]


def _largest_loss(pair: Pair, reach: float) -> float:
    """Return about the width of one step's losses, up to `reach` standard deviations."""
    exponent = pair.mu * (reach + pair.mu / 2)
    return (1 if pair.kind == "sampled" and pair.q < 1 else 2) * (
        exponent if exponent > 500 else math.log1p(pair.q * math.expm1(exponent))
    )


def _composed(pairs: Sequence[Pair], h: float, truncated: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    total: Any = privacy_loss_distribution.identity(h)
    for pair in pairs:
        # Under replace-one dp-accounting puts the two contributions at +1 and -1.
        opposite = pair.kind == "opposite"
        step: Any = privacy_loss_distribution.from_gaussian_mechanism(
            1 / pair.mu,
            value_discretization_interval=h,
            log_mass_truncation_bound=truncated,
            sampling_prob=pair.q,
            neighboring_relation=(
                NeighboringRelation.REPLACE_ONE if opposite else NeighboringRelation.ADD_OR_REMOVE_ONE
            ),
        )
        total = total.compose(step.self_compose(pair.num_steps) if pair.num_steps > 1 else step)
    return total


def _renyi(plan: Sequence[Event], delta: float) -> float:
    """Return dp-accounting's Renyi bound for fixed-size and full batches under replace-one, else inf."""
    if len(plan) > _MAX_RENYI_EVENTS or any(event.sampler == "poisson" and event.sampling_prob < 1 for event in plan):
        return math.inf
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant: Any = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    for event in plan:
        # Its noise multiplier is over the distance of the two contributions here.
        step: Any = dp_accounting.GaussianDpEvent(event.noise_multiplier / event.swap_ratio)
        if event.sampling_prob < 1:
            size = 10**12
            step = dp_accounting.SampledWithoutReplacementDpEvent(size, math.ceil(event.sampling_prob * size), step)
        accountant.compose(step, event.num_steps)
    return float(accountant.get_epsilon(delta))
