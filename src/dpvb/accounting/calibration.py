"""The other directions: the least noise, or the most steps, that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from dpvb.accounting.events import MAX_NOISE_MULTIPLIER, MAX_STEPS, Event, check_plan, check_relation
from dpvb.accounting.methods import answer, near_epsilon
from dpvb.guards.errors import ParameterError, check_delta, check_number

# Stop once epsilon is within this fraction of its target: every further digit is an evaluation, dear by "pld" only.
_TIGHT_ENOUGH = 0.999
_TIGHT_ENOUGH_FOR_MANY = 0.998
_CHEAP_TIGHT_ENOUGH = 0.9999
_MIN_SCALE = 1e-7
# Plans of more events are first calibrated with like events taken together.
_FEW = 8


def calibrate(
    make_events: Callable[[float], Sequence[Event]],
    *,
    epsilon: float,
    delta: float,
    neighboring_relation: str,
    method: str = "pld",
) -> float:
    """Return the least noise scale s for which the plan make_events(s) meets (epsilon, delta).

    The achieved epsilon never exceeds the target, and is at least 0.995 of it wherever some scale reaches that.

    A delta that covers the chance of being sampled at all (the sum of all sampling rates) is refused: every plan would
    meet it, without noise too, by failing those whom it samples.

    Args:
        make_events: the plan as a function of one scale that every noise multiplier is proportional to, or at least
            increases with; at scale 1 a plan of ordinary noise.
        epsilon: target, positive; inf gives 0.
        delta: in (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".
        method: see `epsilon`.

    Raises:
        ParameterError: for a value outside its range, for a delta that asks for no noise, or if no scale up to 1e12
            meets the target.
    """
    epsilon = check_number("epsilon", epsilon, low=0, closed="right", hint="Infinity means no noise and no privacy.")
    delta = check_delta(delta)
    check_relation(neighboring_relation)
    if math.isinf(epsilon):
        return 0.0
    first = check_plan(make_events(1.0))
    exposure = math.fsum(event.n_steps * event.sampling_prob for event in first)
    if exposure <= delta:
        raise ParameterError(
            f"delta must be below {exposure:.3g}, the chance that one unit is sampled at all, got {delta!r}: no noise "
            "would be needed, and a sampled unit would have no privacy. Choose a smaller delta."
        )

    def achieved(scale: float, by: str = method) -> float:
        try:
            return answer(
                make_events(scale),
                delta=delta,
                neighboring_relation=neighboring_relation,
                method=by,
                expected=epsilon,
            ).epsilon
        except ParameterError:
            # The papers' cap has no answer at some scales.
            if by == "moments_capped":
                return math.inf
            raise

    if method != "pld":
        return least_scale_and_slope(achieved, epsilon, 1.0, _CHEAP_TIGHT_ENOUGH)[0]
    enough, slope = _TIGHT_ENOUGH, -1.0
    if len(first) <= _FEW:
        # Renyi's scale is an upper end, at a small part of the price.
        start, _ = least_scale_and_slope(lambda scale: achieved(scale, "renyi"), epsilon, 1.0, 0.97)
    else:
        near = partial(near_epsilon, delta=delta, neighboring_relation=neighboring_relation, expected=epsilon)
        start, _ = least_scale_and_slope(lambda scale: near(make_events(scale), method="renyi"), epsilon, 1.0, 0.9)
        start, slope = least_scale_and_slope(lambda scale: near(make_events(scale)), epsilon, start, 0.99)
        enough = _TIGHT_ENOUGH_FOR_MANY
    return least_scale_and_slope(achieved, epsilon, start, enough, slope)[0]


def least_scale_and_slope(
    achieved: Callable[[float], float], target: float, start: float, enough: float, slope: float = -1.0
) -> tuple[float, float]:
    """Solve achieved(scale) = target for a falling function from the safe side, interpolating the logs.

    Returns the scale, and the slope of log epsilon by log scale there; `slope` is a first guess of it.
    """
    aim = math.log(target * (1 + enough) / 2)
    priced: list[tuple[float, float]] = []
    low, high, scale = math.nan, math.nan, start
    for iteration in range(200):
        # A guess within the tolerance may be taken at its word, but not again and again.
        least = 0.05 if iteration > 2 else (1 - enough) / 4
        value = achieved(scale)
        if value <= target:
            high = scale
            if value >= enough * target:
                break
        else:
            low = scale
        if high / low - 1 < 1e-12:
            break
        if 0 < value < math.inf:
            priced.append((math.log(value), math.log(scale)))
        guess = _interpolated(priced, aim, slope) if priced and 0 < value < math.inf and iteration % 5 < 4 else math.nan
        if math.isnan(low):
            scale = high * min(max(guess / high, 1 / 3), 1 - least) if guess > 0 else high / 3
            if scale < _MIN_SCALE:
                break
        elif math.isnan(high):
            scale = low * max(min(guess / low, 8), 1 + least) if guess > 0 else low * 3
            if scale > MAX_NOISE_MULTIPLIER:
                raise ParameterError(
                    f"epsilon must be within reach of some noise; {target:g} is not, with this delta and method."
                )
        else:
            width = high / low
            scale = low * min(max(guess / low, width**0.02), width**0.98) if guess > 0 else low * math.sqrt(width)
    nearest = _nearest(priced, aim)
    if len(nearest) > 1:
        (y, x), (other, at) = nearest[:2]
        slope = min((y - other) / (x - at), -0.1) if x != at else slope
    return high, slope


def _nearest(known: Sequence[tuple[float, float]], aim: float) -> list[tuple[float, float]]:
    nearest: list[tuple[float, float]] = []
    for y, x in sorted(known, key=lambda point: abs(point[0] - aim)):
        if all(abs(y - other) > 1e-9 for other, _ in nearest) and len(nearest) < 3:
            nearest.append((y, x))
    return nearest


def _interpolated(known: Sequence[tuple[float, float]], aim: float, slope: float) -> float:
    """Return the scale at log epsilon = aim by Lagrange's polynomial through the three nearest points known."""
    nearest = _nearest(known, aim)
    if len(nearest) == 1:
        (y, x) = nearest[0]
        return _within_reach(x + (aim - y) / slope)
    result = 0.0
    for i, (y, x) in enumerate(nearest):
        weights = ((aim - other) / (y - other) for j, (other, _) in enumerate(nearest) if j != i)
        result += x * math.prod(weights)
    return _within_reach(result)


def _within_reach(log_scale: float) -> float:
    """The scale of a guess, no larger and no smaller than numbers are."""
    return math.exp(min(max(log_scale, -300.0), 300.0))


def most_steps(achieved: Callable[[int], float], target: float, start: int = 1) -> int:
    """Return the largest number of steps whose epsilon is at most the target; 0 if none is.

    Args:
        achieved: epsilon of so many steps, increasing.
        target: positive.
        start: where to begin; a number of steps that is not too many is best.
    """
    low, low_value, high = 0, 0.0, max(1, start)
    while (high_value := achieved(high)) <= target:
        if high == MAX_STEPS:
            return high
        low, low_value = high, high_value
        high = min(MAX_STEPS, high * 2)
    for iteration in range(200):
        if high - low == 1:
            break
        middle = (low + high) // 2
        if iteration % 4 < 3 and low > 0 and low_value > 0 and high_value < math.inf:
            slope = (math.log(target) - math.log(low_value)) / (math.log(high_value) - math.log(low_value))
            middle = math.floor(low * (high / low) ** slope) + iteration % 2
        middle = min(max(middle, low + 1), high - 1)
        if (value := achieved(middle)) <= target:
            low, low_value = middle, value
        else:
            high, high_value = middle, value
    return low
