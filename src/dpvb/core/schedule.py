"""Schedules of budget and steps, fixed by public facts before any data are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dpvb.guards.errors import check_number

#: Default part of the budget for the release of each phase other than the steps.
SHARES: Mapping[str, float] = MappingProxyType({"first": 0.1, "second": 0.1, "third": 0.1, "midway": 0.01, "last": 0.1})
#: Part of the steps that are released before blocks of phase "midway". Benchmark `topics_or_words` shows its effect.
MIDWAY = 0.4

#: The step size of step t = 1, 2, ...
StepSize = Callable[[int], float]


def robbins_monro(learning_offset: float, learning_decay: float) -> StepSize:
    """Return step sizes ρ_t = (τ0 + t)^-κ for t = 1, 2, ... (Hoffman et al. 2010)."""
    check_number("learning_offset", learning_offset, low=0, high=1e12)
    check_number("learning_decay", learning_decay, low=0, high=1)
    return lambda t: float((learning_offset + t) ** -learning_decay)


def constant(rho: float) -> StepSize:
    """Return the same step size ρ for every step; 1 uses only the newest release."""
    check_number("rho", rho, low=0, high=1, closed="right")
    return lambda t: rho


@dataclass(frozen=True)
class Schedule:
    """Schedule of a model: noise, budget and step sizes; all of it is public.

    Attributes:
        noise: Noise multiplier of each step, relative to the other steps, greater than 0; the length is the number of
            steps.
        budget: Share of the privacy budget of each phase other than "step", by phase; shares of Σ p²/σ². Default: those
            of `dpvb.core.schedule.SHARES`.
        rho: Function from the number of a step to its step size in (0, 1]. Default: 1, only the newest release.

    Examples:
        >>> import dpvb
        >>> len(dpvb.Schedule((1.0,) * 20).noise)
        20
    """

    noise: Sequence[float]
    budget: Mapping[str, float] = field(default_factory=lambda: SHARES)
    rho: StepSize = field(default_factory=lambda: constant(1.0))
