"""Settings that models of windows share: their ranges, and what a person may add."""

from __future__ import annotations

from typing import Protocol

from dpvb.guards.errors import check_choice, check_integer, check_number


class Weighed(Protocol):
    """A model of windows; every field is public."""

    @property
    def estimate(self) -> str:
        """How q is found: "posterior", or "mode"."""

    @property
    def power(self) -> float:
        """p: each of the M windows of a person counts M^(p-1)."""

    @property
    def clip(self) -> float | None:
        """C; None: what one sequence of max_length can reach."""

    @property
    def max_length(self) -> int:
        """L."""


class Hidden(Weighed, Protocol):
    """One with hidden states."""

    @property
    def n_states(self) -> int:
        """K."""

    @property
    def n_init(self) -> int:
        """How many starts are tried."""


def check_windows(own: Weighed, least: int) -> None:
    """Check what any model of windows has.

    Args:
        own: the model.
        least: symbols that a sequence must be allowed to have.

    Raises:
        ParameterError: for a field outside its range.
    """
    check_choice("estimate", own.estimate, ("posterior", "mode"))
    check_number("power", own.power, low=0.5, high=1)
    if own.clip is not None:
        check_number("clip", own.clip, low=1e-3, high=1e9)
    check_integer("max_length", own.max_length, low=least, high=10**6)


def check_states(own: Hidden) -> None:
    """Check what a model of windows with hidden states has.

    Raises:
        ParameterError: for a field outside its range.
    """
    check_integer("n_states", own.n_states, low=1, high=1000)
    check_integer("n_init", own.n_init, low=1, high=1000)
    check_windows(own, 3)


def bound(own: Weighed, length: int) -> float:
    """C of windows of so many symbols."""
    return float((own.max_length - length + 1) ** own.power) if own.clip is None else own.clip
