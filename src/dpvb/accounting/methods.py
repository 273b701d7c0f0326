"""From a plan to epsilon and delta, by any method, and what was used to get there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal, get_args

from dpvb.accounting.events import (
    SAMPLERS,
    Event,
    Pair,
    added_delta,
    check_plan,
    check_relation,
    dominating_pairs,
    grouped,
)
from dpvb.guards.errors import ParameterError, check_choice, check_delta, check_number

Method = Literal["pld", "renyi", "moments", "moments_capped", "wang", "zcdp", "strong", "linear"]
METHODS: tuple[Method, ...] = get_args(Method)
# "strong", "linear" and "zcdp" are what the papers claimed, not guarantees.
UNPROVEN_METHODS = ("zcdp", "strong", "linear")
#: Values of delta at which a curve is shown.
CURVE_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)

#: Above this shift a Gaussian's loss is so far from zero that the Renyi bound is tight, within a few percent.
MAX_GRID_SHIFT = 1e2
# Accuracy of a first look by "pld".
_ROUGH = 5e-3
# Relative error of what is left by rounding, as in `PrivacyStatement.verify`: 2 - 1e-12 is printed as 2.
_PRINTED = 1e-9

# The samplers and the relation that a method is about; "pld" and "renyi" are about all.
_SUPPORTED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "wang": (("fixed_size",), "replace_one"),
    "moments_capped": (("poisson",), "add_or_remove_one"),
    **dict.fromkeys(("moments", *UNPROVEN_METHODS), (("poisson", "full_batch"), "add_or_remove_one")),
}


@dataclass(frozen=True)
class Answer:
    """An epsilon with the way it was found.

    Args:
        epsilon: the bound.
        delta: the delta at which it holds.
        method: the method asked for.
        used: what gave the number: "exact gaussian", "pld", "renyi", "no noise" or the papers' method.
        note: why, where `used` is not the method asked for or the method is not a guarantee; else empty.

    Examples:
        >>> from dpvb.accounting import Event, answer
        >>> found = answer([Event("full_batch", 1.0, 2.0)], delta=1e-6, neighboring_relation="add_or_remove_one")
        >>> round(found.epsilon, 2), found.used
        (2.25, 'exact gaussian')
    """

    epsilon: float
    delta: float
    method: str
    used: str
    note: str = ""


def check_method(plan: Sequence[Event], relation: str, method: object) -> str:
    """Return the method if it applies to the plan.

    Raises:
        ParameterError: naming the combinations that it supports.
    """
    name = check_choice("method", method, METHODS)
    samplers = {event.sampler for event in plan}
    supported, only = _SUPPORTED.get(name, (SAMPLERS, relation))
    if not samplers <= {*supported} or relation != only:
        raise ParameterError(
            f"method {name!r} supports samplers {', '.join(supported)} with neighboring_relation {only!r}, got "
            f"samplers {', '.join(sorted(samplers))} with {relation!r}. Methods 'pld' and 'renyi' support all."
        )
    return name


def answer(
    events: Sequence[Event],
    *,
    delta: float,
    neighboring_relation: str,
    method: str = "pld",
    step_delta: float | None = None,
    expected: float | None = None,
) -> Answer:
    """Return a plan's epsilon at delta, with what was used to find it.

    Args:
        events: the plan, in any order; all public.
        delta: in (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".
        method: see `epsilon`.
        step_delta: for "strong" and "zcdp": delta of one step before amplification.
        expected: about what epsilon will be, if known; it saves "pld" time, and a bound far below it is less tight.

    Raises:
        ParameterError: for a value outside its range, or a method that does not apply to the plan.
    """
    plan, relation, delta = check_plan(events), check_relation(neighboring_relation), check_delta(delta)
    name = check_method(plan, relation, method)
    if step_delta is not None:
        step_delta = check_delta(step_delta, "step_delta")
    from dpvb.accounting import papers, renyi

    if any(event.noise_multiplier == 0 for event in plan):
        return Answer(math.inf, delta, name, "no noise", "A release without noise has no finite epsilon.")
    if added := added_delta(plan):
        if added >= delta:
            note = f"The releases add {added:g} to delta, which leaves nothing of it to their noise."
            return Answer(math.inf, delta, name, name if name != "pld" else "renyi", note)
        noise = [replace(event, added_delta=0.0) for event in plan]
        how: Any = {"neighboring_relation": relation, "method": name, "step_delta": step_delta, "expected": expected}
        return replace(answer(noise, delta=delta - added, **how), delta=delta)
    if name == "pld":
        return _tightest(dominating_pairs(plan, relation), delta, expected)
    if name == "renyi":
        return Answer(renyi.epsilon(dominating_pairs(plan, relation)[0], delta), delta, name, name)
    if name == "wang":
        return Answer(papers.wang(plan, delta), delta, name, name)
    if name in UNPROVEN_METHODS:
        note = "As the papers computed it; not a guarantee."
        claimed = {
            "strong": lambda: papers.strong(plan, delta, step_delta),
            "zcdp": lambda: papers.zcdp(plan, delta, step_delta),
            "linear": lambda: papers.linear(plan, delta),
        }[name]()
        return Answer(claimed, delta, name, name, note)
    cap = papers.paper_cap(plan) if name == "moments_capped" else None
    return Answer(papers.moments(dominating_pairs(plan, relation)[0], delta, cap), delta, name, name)


def near_epsilon(
    events: Sequence[Event], *, delta: float, neighboring_relation: str, expected: float, method: str = "pld"
) -> float:
    """Return about the epsilon that "pld" or "renyi" finds, no bound, at the price of few noise levels.

    Releases with nearly equal noise are taken together. Arguments as for `answer`.
    """
    alternatives = [grouped(pairs) for pairs in dominating_pairs(check_plan(events), neighboring_relation)]
    delta -= added_delta(events)
    if delta <= 0:
        return math.inf
    if method == "renyi":
        from dpvb.accounting import renyi

        return renyi.epsilon(alternatives[0], delta)
    return _tightest(alternatives, delta, expected, _ROUGH).epsilon


def epsilon_of(events: Sequence[Event], *, delta: float, neighboring_relation: str, method: str = "pld") -> float:
    """Return a plan's epsilon at delta; see `answer`."""
    return answer(events, delta=delta, neighboring_relation=neighboring_relation, method=method).epsilon


def delta_of(events: Sequence[Event], *, epsilon: float, neighboring_relation: str, method: str = "pld") -> float:
    """Return an upper bound on a plan's delta at epsilon, by "pld" or "renyi".

    Raises:
        ParameterError: for a value outside its range.
    """
    plan, relation = check_plan(events), check_relation(neighboring_relation)
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="left")
    name = check_choice("method", method, ("pld", "renyi"), hint="Only these two have an inverse.")
    from dpvb.accounting import gaussian, pld, renyi

    if any(event.noise_multiplier == 0 for event in plan):
        return 1.0
    if added := added_delta(plan):
        noise = [replace(event, added_delta=0.0) for event in plan]
        rest = delta_of(noise, epsilon=epsilon, neighboring_relation=relation, method=name)
        return min(added + rest, 1.0)
    alternatives = dominating_pairs(plan, relation)
    if name == "renyi":
        return math.exp(renyi.log_delta(alternatives[0], epsilon))
    best = 1.0
    for pairs in alternatives:
        if len(pairs) == 1 and pairs[0].q == 1:
            return gaussian.delta(pairs[0].mu, epsilon)
        bound = math.exp(renyi.log_delta(pairs, epsilon))
        if max(pair.mu for pair in pairs) <= MAX_GRID_SHIFT and bound > pld.MIN_DELTA:
            bound = pld.delta(pairs, epsilon, bound)
        best = min(best, bound)
    return best


def curve(
    events: Sequence[Event],
    *,
    neighboring_relation: str,
    deltas: Sequence[float] = CURVE_DELTAS,
    method: str = "pld",
) -> list[tuple[float, float]]:
    """Return [(delta, epsilon)] of a plan, one pair for each delta asked for."""
    return [
        (delta, epsilon_of(events, delta=delta, neighboring_relation=neighboring_relation, method=method))
        for delta in deltas
    ]


def attack_accuracy(epsilon: float, delta: float) -> float:
    """Return the largest probability of a right guess whether a unit is present, if both are as likely beforehand.

    It is (e^ε + δ)/(1 + e^ε), attained by the hardest (ε, δ) mechanism (Kairouz, Oh & Viswanath 2015). It holds for
    the guess, on average over all results: the posterior probability after one unlikely result can be larger.

    Args:
        epsilon, delta: The guarantee.
    """
    return delta + (1.0 - delta) / (1.0 + math.exp(-epsilon))


def true_positive_rate(points: Iterable[tuple[float, float]], false_positive_rate: float = 0.01) -> float:
    """Upper bound on the power of any test for a unit's presence.

    TPR ≤ e^ε FPR + δ and 1 - TPR ≥ e^-ε (1 - FPR - δ) (Wasserman & Zhou 2010; Kairouz et al. 2015).

    Args:
        points: (δ, ε) that all hold.
        false_positive_rate: of the test.

    Raises:
        ParameterError: unless 0 ≤ false_positive_rate ≤ 1.
    """
    alarm = check_number("false_positive_rate", false_positive_rate, low=0, high=1)
    bounds = [1.0]
    for delta, epsilon in points:
        if epsilon < 700:  # Beyond, e^ε leaves the floating range and nothing is guaranteed anyway.
            bounds.append(math.exp(epsilon) * alarm + delta)
            bounds.append(1.0 - math.exp(-epsilon) * (1.0 - alarm - delta))
    return min(bounds)


def power(events: Sequence[Event], *, neighboring_relation: str, false_positive_rate: float = 0.01) -> float:
    """Upper bound on the power of any test for a unit's presence in a plan's releases; exact without sampling.

    A plan of Gaussian releases of all units is one of them, μ apart: its best test finds Φ(Φ⁻¹(α) + μ) of those who are
    there (Dong, Roth & Su 2022). Otherwise it is the least bound by the points of the plan's curve.

    Raises:
        ParameterError: for a value outside its range.
    """
    from scipy.special import ndtr, ndtri

    plan, relation = check_plan(events), check_relation(neighboring_relation)
    alarm = check_number("false_positive_rate", false_positive_rate, low=0, high=1)
    if any(event.noise_multiplier == 0 for event in plan):
        return 1.0
    best = 1.0
    for pairs in dominating_pairs(plan, relation):
        if len(pairs) == 1 and pairs[0].q == 1:
            best = float(ndtr(ndtri(alarm) + pairs[0].mu)) + added_delta(plan)
    points = curve(plan, neighboring_relation=relation)
    return min(best, true_positive_rate(((delta, epsilon) for delta, epsilon in points), alarm))


def rounded_up(epsilon: float) -> str:
    """Four digits of an epsilon that is spent: what is printed is still an upper bound."""
    return _digits(epsilon, ROUND_CEILING)


def rounded_down(epsilon: float) -> str:
    """Four digits of an epsilon that is left: as much may be asked for."""
    return _digits(epsilon * (1 + _PRINTED), ROUND_FLOOR)


def _digits(epsilon: float, rounding: str) -> str:
    return f"{float(Context(prec=4, rounding=rounding).create_decimal_from_float(epsilon)):.4g}"


def as_json(epsilon: float) -> float | str:
    """An epsilon as JSON can hold it: infinity is the text "inf"."""
    return "inf" if epsilon == math.inf else epsilon


def compare(events: Sequence[Event], *, delta: float, neighboring_relation: str) -> dict[str, float | None]:
    """Return the plan's epsilon by every method, None for one that does not apply.

    The default's number is first. UNPROVEN_METHODS lists those that are not guarantees.
    """
    plan, relation, delta = check_plan(events), check_relation(neighboring_relation), check_delta(delta)
    table: dict[str, float | None] = {}
    for method in METHODS:
        try:
            table[method] = epsilon_of(plan, delta=delta, neighboring_relation=relation, method=method)
        except ParameterError:
            table[method] = None
    return table


def _tightest(
    alternatives: Sequence[Sequence[Pair]], delta: float, expected: float | None, accuracy: float = 1e-4
) -> Answer:
    if len(alternatives) > 1 and accuracy < _ROUGH:
        # A rough look at each tells which is worth a fine one, or both if they are close.
        rough = [_tight(grouped(pairs), delta, expected, _ROUGH).epsilon for pairs in alternatives]
        if min(rough) < max(rough) / 1.02 or max(rough) == 0:
            alternatives = [alternatives[rough.index(min(rough))]]
    return min((_tight(pairs, delta, expected, accuracy) for pairs in alternatives), key=lambda bound: bound.epsilon)


def _tight(pairs: Sequence[Pair], delta: float, expected: float | None, accuracy: float) -> Answer:
    from dpvb.accounting import gaussian, pld, renyi

    if len(pairs) == 1 and pairs[0].q == 1:
        return Answer(gaussian.epsilon(pairs[0].mu, delta), delta, "pld", "exact gaussian")
    # Without sampling the same noise costs more: a bound that the others may not exceed.
    unsampled = [(2 if pair.kind == "opposite" else 1) * pair.mu for pair in pairs]
    shift = math.sqrt(sum(pair.n_steps * mu * mu for pair, mu in zip(pairs, unsampled, strict=True)))
    bound = gaussian.epsilon(shift, delta)
    on_grid = delta >= pld.MIN_DELTA and max(pair.mu for pair in pairs) <= MAX_GRID_SHIFT
    if accuracy < _ROUGH or not on_grid:
        bound = min(bound, renyi.epsilon(pairs, delta))
    if pld.total_variation(pairs) <= delta:
        return Answer(0.0, delta, "pld", "pld")
    if bound == 0:
        return Answer(0.0, delta, "pld", "renyi")
    if delta < pld.MIN_DELTA:
        note = f"delta is below {pld.MIN_DELTA:g}, where privacy loss distributions can run out of digits."
        return Answer(bound, delta, "pld", "renyi", note)
    if not on_grid:
        note = f"A noise multiplier is below {1 / MAX_GRID_SHIFT:g}, too little for a grid of privacy losses."
        return Answer(bound, delta, "pld", "renyi", note)
    tight = pld.epsilon(pairs, delta, bound, expected, accuracy)
    if tight < bound:
        return Answer(tight, delta, "pld", "pld")
    return Answer(bound, delta, "pld", "renyi", "The finest grid allowed gives no better bound.")
