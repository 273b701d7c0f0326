"""The other directions: the least noise, or the most steps, that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpvb.accounting.answers import answer, check_delta
from dpvb.accounting.events import MAX_NOISE_MULTIPLIER, MAX_STEPS, Event, check_relation
from dpvb.errors import ParameterError, check_number

# Stop once epsilon is within this fraction of its target: every further digit is an evaluation, dear by "pld" only.
_TIGHT_ENOUGH = 0.999
_CHEAP_TIGHT_ENOUGH = 0.9999
_MIN_SCALE = 1e-7


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

    Args:
        make_events: the plan as a function of one scale that every noise multiplier is proportional to, or at least
            increases with; at scale 1 a plan of ordinary noise.
        epsilon: target, positive; inf gives 0.
        delta: in (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".
        method: see `epsilon`.

    Raises:
        ParameterError: for a value outside its range, or if no scale up to 1e9 meets the target.
    """
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="right")
    delta = check_delta(delta)
    check_relation(neighboring_relation)
    if math.isinf(epsilon):
        return 0.0

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

    start = 1.0
    if method == "pld":
        # Renyi's scale is an upper end, at a small part of the price.
        start = _least_scale(lambda scale: achieved(scale, "renyi"), epsilon, 1.0, 0.97)
    return _least_scale(achieved, epsilon, start, _TIGHT_ENOUGH if method == "pld" else _CHEAP_TIGHT_ENOUGH)


def _least_scale(achieved: Callable[[float], float], target: float, start: float, enough: float) -> float:
    """Solve achieved(scale) = target for a falling function from the safe side, interpolating the logs."""
    aim = math.log(target * (1 + enough) / 2)
    known: list[tuple[float, float]] = []
    low, high, scale = math.nan, math.nan, start
    for iteration in range(200):
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
            known.append((math.log(value), math.log(scale)))
        guess = _interpolated(known, aim) if known and iteration % 5 < 4 else math.nan
        if math.isnan(low):
            scale = high * min(max(guess / high, 1 / 3), 0.95) if guess > 0 else high / 3
            if scale < _MIN_SCALE:
                break
        elif math.isnan(high):
            scale = low * max(min(guess / low, 8), 1.05) if guess > 0 else low * 3
            if scale > MAX_NOISE_MULTIPLIER:
                raise ParameterError(
                    f"epsilon must be within reach of some noise; {target:g} is not, with this delta and method."
                )
        else:
            width = high / low
            scale = low * min(max(guess / low, width**0.02), width**0.98) if guess > 0 else low * math.sqrt(width)
    return high


def _interpolated(known: Sequence[tuple[float, float]], aim: float) -> float:
    """Return the scale at log epsilon = aim by Lagrange's polynomial through the three nearest points known."""
    nearest: list[tuple[float, float]] = []
    for y, x in sorted(known, key=lambda point: abs(point[0] - aim)):
        if all(abs(y - other) > 1e-9 for other, _ in nearest) and len(nearest) < 3:
            nearest.append((y, x))
    if len(nearest) == 1:
        # Epsilon falls about like 1 / scale, or faster.
        (y, x) = nearest[0]
        return math.exp(x + (y - aim))
    result = 0.0
    for i, (y, x) in enumerate(nearest):
        weights = ((aim - other) / (y - other) for j, (other, _) in enumerate(nearest) if j != i)
        result += x * math.prod(weights)
    return math.exp(min(max(result, -300.0), 300.0))


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
