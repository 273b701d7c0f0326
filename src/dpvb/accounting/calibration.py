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
    """Solve achieved(scale) = target for a falling function, from the safe side, on log-log axes."""
    low, high = math.nan, start
    value = achieved(high)
    low_value = math.nan
    step = 1.5
    while value > target:
        low, low_value = high, value
        # epsilon falls at least like 1/scale, so that the ratio overshoots only where the target is easy.
        high *= max(step, min(value / target, 1e3))
        step *= 1.5
        if high > MAX_NOISE_MULTIPLIER:
            raise ParameterError(
                f"epsilon must be within reach of some noise; {target:g} is not, at this delta, sampling and method."
            )
        value = achieved(high)
    high_value = value
    step = 1.3
    while math.isnan(low) and high_value < enough * target:
        trial = high / step
        step *= step
        if trial < _MIN_SCALE:
            return high
        value = achieved(trial)
        if value > target:
            low, low_value = trial, value
        else:
            high, high_value = trial, value
    for iteration in range(200):
        if high_value >= enough * target or high / low - 1 < 1e-12:
            break
        fraction = 0.5
        if iteration % 3 < 2 and high_value > 0 and math.isfinite(low_value):
            aim = math.log(target * (1 + enough) / 2)
            fraction = (aim - math.log(low_value)) / (math.log(high_value) - math.log(low_value))
            fraction = min(max(fraction, 1e-3), 1 - 1e-3)
        trial = math.exp(math.log(low) + fraction * (math.log(high) - math.log(low)))
        value = achieved(trial)
        if value > target:
            low, low_value = trial, value
        else:
            high, high_value = trial, value
    return high


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
