"""Warnings about a budget, given before it is spent. They depend only on public facts and refuse nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence

from dpvb.accounting.events import Event
from dpvb.guards.errors import DataDependentBoundWarning, DpvbWarning

#: Above these values a budget guarantees little, whatever the data are.
MOST_DELTA, MOST_EPSILON = 1e-3, 10.0
# Without a public number of units, a warning is given if the noise hides more units than this.
_MANY = 1_000
# A sum is told from its noise where it exceeds so many standard deviations, those of a 95 % interval.
_DEVIATIONS = 1.96
# Significant digits of a declared range, and the rounding of its square; a computed range has more digits.
_DIGITS, _ROUNDING = 8, 1e-15


def warn(
    epsilon: float,
    delta: float,
    *,
    unit: str,
    num_units: int | None = None,
    events: Sequence[Event] = (),
    counting: float = 0.0,
    stacklevel: int = 3,
) -> None:
    """Warn if a budget gives little protection or its noise hides the results.

    Args:
        epsilon, delta: Budget. An infinite epsilon, which is deliberate, has no warning.
        unit: Protected unit.
        num_units: Public number of units. None (default): private.
        events: Releases of the plan, if known. Default: none.
        counting: Share of each release's budget for the number of units. Default: 0, the number is not released.
        stacklevel: As in `warnings.warn`: 2 is the caller's line, 3 that of the caller's caller.
    """
    if epsilon < math.inf:
        said = [
            *_of_epsilon(epsilon),
            *_of_delta(delta, unit, num_units),
            *_of_noise(events, unit, num_units, counting),
        ]
        for message in said:
            warnings.warn(message, DpvbWarning, stacklevel=stacklevel)


def warn_of_count(delta: float, *, unit: str, count: float, stacklevel: int = 3) -> None:
    """Warn if delta is too large for a released number of units; delta and unit as in `warn`."""
    if delta * count >= 1:
        message = _one_in(delta, unit, f"{count:,.0f}, the released number of {unit}s")
        warnings.warn(message, DpvbWarning, stacklevel=stacklevel)


def warn_of_ranges(ends: Iterable[tuple[str, float]], *, series: Sequence[str] = (), stacklevel: int = 3) -> None:
    """Warn of public ranges that may have been computed from data; the message contains no value.

    Args:
        ends: Names and values that the caller states to be public.
        series: Names of ranges given as a pandas Series, such as X.min(). Default: none.
        stacklevel: As in `warn`.
    """
    names = dict.fromkeys(name for name, end in ends if math.isfinite(end) and not _is_short(float(end)))
    if names or series:
        which = ", ".join(map(repr, names or series))
        why = "has more digits than a declared range usually has" if names else "is a pandas Series, such as X.min()"
        warnings.warn(
            f"The range of {which} {why}. If it was computed from private rows (X.min(), X.max(), a quantile, the "
            "largest norm), it reveals one of their values, and no budget covers this. Declare a round range from "
            "public knowledge, or use dpvb.private_range. If the range is public, name its source in provenance=, "
            "which also ends this warning.",
            DataDependentBoundWarning,
            stacklevel=stacklevel,
        )


def _is_short(value: float) -> bool:
    """Whether a number or its square has few digits; squares allow roots of numbers of columns."""
    if value.is_integer() or float(f"{value:.{_DIGITS}g}") == value:
        return True
    square = value * value
    return math.isclose(square, float(f"{square:.{_DIGITS}g}"), rel_tol=_ROUNDING)


def units_in_noise(events: Sequence[Event]) -> float:
    """Return the number of units whose sum equals half a 95 % interval of the noise, if all add the same.

    A release of n units of norm C, sampled with probability p, is npC plus noise of standard deviation σC. The best
    average of several releases has the precision Σ (p/σ)².

    Args:
        events: Releases with noise.
    """
    precision = math.fsum(event.n_steps * (event.sampling_prob / event.noise_multiplier) ** 2 for event in events)
    return _DEVIATIONS / math.sqrt(precision)


def _of_epsilon(epsilon: float) -> Iterator[str]:
    if epsilon > MOST_EPSILON:
        yield (
            f"epsilon = {epsilon:g} is above {MOST_EPSILON:g} and gives almost no protection: it allows an attacker "
            "to guess who is in the data with an accuracy above 99.99 %. Choose a smaller epsilon, for example 1."
        )


def _of_delta(delta: float, unit: str, num_units: int | None) -> Iterator[str]:
    if num_units is not None and delta * num_units >= 1:
        yield _one_in(delta, unit, f"{num_units:,}, the public number of {unit}s")
    elif delta > MOST_DELTA:
        yield (
            f"delta = {delta:g} is above {MOST_DELTA:g}: with this probability, a {unit} can lose all privacy. Choose "
            f"a delta much smaller than 1 over the number of {unit}s, for example 1e-6."
        )


def _of_noise(events: Sequence[Event], unit: str, num_units: int | None, counting: float) -> Iterator[str]:
    if not events or any(event.noise_multiplier == 0 for event in events):
        return
    hidden = units_in_noise(events)
    if hidden > (_MANY if num_units is None else num_units):
        there = "" if num_units is None else f" There are {num_units:,}."
        count = (
            f" Their released number will have an error of ± {_about(hidden / math.sqrt(counting))}."
            if counting
            else ""
        )
        yield (
            f"Results are lost in the noise: sums over fewer than about {_about(hidden)} {unit}s cannot be "
            f"distinguished from it, even if all {unit}s agree.{there}{count} Use a larger epsilon."
        )


def _about(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.0f}"


def _one_in(delta: float, unit: str, number: str) -> str:
    return (
        f"delta = {delta:g} is not below 1 in {number}: publishing one random {unit} would satisfy this guarantee. "
        "Choose a smaller delta."
    )
