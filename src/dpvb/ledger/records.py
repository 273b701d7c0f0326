"""Facts of a ledger: data sets, receipts, remaining budgets, quotes.

The name of a new data set is plain ASCII and does not resemble a registered name: users who confuse two names would
spend two budgets of the same people. Names that are already registered remain valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from dpvb.accounting.events import NeighboringRelation, check_relation
from dpvb.accounting.filter import SATURATED, UNIT, cap_units
from dpvb.accounting.methods import rounded_down, rounded_up
from dpvb.guards.errors import LedgerError, ParameterError, check_delta, check_number

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check_new_name(name: str, registered: Iterable[str]) -> None:
    """Refuse a name that is not plain ASCII, or that looks like one that is registered.

    Args:
        name: Name of a new data set.
        registered: All registered names.

    Raises:
        ParameterError: If the name has other characters.
        LedgerError: If it resembles a registered name.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"name must consist of ASCII letters, digits, '.', '-' and '_', got {name!a}. Other characters can look "
            "like these, and a name in two spellings would have two budgets. Nothing was registered."
        )
    for other in registered:
        if appearance(name) == appearance(other):
            raise LedgerError(
                f"{name!a} looks like {other!r}, which is registered, so users could confuse them. Use the "
                "registered name, or a clearly different one. Nothing was registered."
            )


def appearance(name: str) -> str:
    """Return the name with ASCII characters that look alike replaced by one of them (Unicode TS 39, confusables)."""
    return name.replace("m", "rn").translate(str.maketrans("0I1|", "Olll"))


# Largest epsilon of a cap: larger ones would not limit any fit.
_MAX_CAP = 1e6
#: Characters of a public name.
MAX_NAME = 200
#: Limit of the count of further plans like the newest one: larger numbers do not change a decision.
MOST_MORE = 10**6


@dataclass(frozen=True)
class Dataset:
    """A registered data set.

    Attributes:
        name: Public name.
        unit: Protected unit: "document", "row" or "person".
        neighboring_relation: Neighbouring data sets: "add_or_remove_one" or "replace_one" unit.
        epsilon, delta: Total budget (the limit).
        part_of: Data set of which this is a part. None (default): a whole data set.

    Raises:
        ParameterError: If a value is outside its range.

    Examples:
        >>> import dpvb
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> [people] = ledger.datasets()
        >>> people.unit, people.epsilon
        ('row', 2.0)
    """

    name: str
    unit: str
    neighboring_relation: NeighboringRelation
    epsilon: float
    delta: float
    part_of: str | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_name("unit", self.unit)
        check_relation(self.neighboring_relation)
        object.__setattr__(self, "epsilon", check_number("epsilon", self.epsilon, low=0, high=_MAX_CAP))
        object.__setattr__(self, "delta", check_delta(self.delta))
        if self.part_of is not None:
            check_name("part_of", self.part_of)
            if self.neighboring_relation != "add_or_remove_one":
                raise ParameterError(
                    "part_of must be None with neighboring_relation 'replace_one', since a replaced unit could move to "
                    f"another part, got {self.part_of!r}."
                )

    @property
    def cap(self) -> int:
        """Limit of epsilon in units of 1e-9, rounded down."""
        return cap_units(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Dataset:
        """Return the data set from the result of `to_dict`."""
        return Dataset(**facts)


@dataclass(frozen=True)
class Receipt:
    """Proof that a row was in a ledger. Released models contain it, and `verify` refuses a ledger without that row.

    Attributes:
        ledger: UUID of the ledger.
        seq: Number of the row.
        hash: Hash of the row.
        dataset: Data set that was charged.

    Examples:
        >>> import dpvb
        >>> from dpvb.accounting import gaussian_noise
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> noise = gaussian_noise(10.0, neighboring_relation="add_or_remove_one")
        >>> receipt = ledger.charge("people", noise, unit="row", run="histogram")
        >>> ledger.verify([receipt])
    """

    ledger: str
    seq: int
    hash: str
    dataset: str


@dataclass(frozen=True, kw_only=True)
class _Account:
    """Account of a data set.

    Attributes:
        if_fixed: Function that computes the cost of the plans if all had been fixed beforehand. It takes seconds for
            1,000 different sampled plans, so it is called on first access.
    """

    if_fixed: Callable[[], float] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all facts by name, as plain JSON values."""
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "if_fixed"}
        return facts | {name: getattr(self, name) for name in vars(type(self)) if name.endswith("_if_fixed")}


@dataclass(frozen=True)
class Remaining(_Account):
    """Remaining budget of a data set.

    Attributes:
        epsilon: Remaining epsilon, at least 0: the limit minus `spent_adaptive`.
        delta: Delta of the limit.
        cap_epsilon: Epsilon of the limit.
        spent_adaptive: Spent epsilon, valid even if later plans were chosen after earlier results.
        num_charges: Number of charges.
        num_more: Number of further plans like the newest that fit, at most a million. None: no plan was charged.
        sole: Whether the first plan was charged at its own epsilon, so that no further plan is possible.

    Examples:
        >>> import dpvb
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> remaining = ledger.remaining("people")
        >>> remaining.epsilon, remaining.num_charges
        (2.0, 0)
    """

    epsilon: float
    delta: float
    cap_epsilon: float
    spent_adaptive: float
    num_charges: int
    num_more: int | None = None
    sole: bool = False

    @cached_property
    def spent_if_fixed(self) -> float:
        """Cost of the same plans if all had been fixed beforehand."""
        return self.if_fixed()

    def __str__(self) -> str:
        if self.sole:
            return (
                f"epsilon = {rounded_up(self.spent_adaptive)} of {self.cap_epsilon:g} is spent at "
                f"delta = {self.delta:g} by one plan, charged at its own epsilon. No further plan is possible."
            )
        if not self.num_charges:
            return (
                f"epsilon = {rounded_down(self.epsilon)} of {self.cap_epsilon:g} is left at delta = "
                f"{self.delta:g}. There are no charges."
            )
        least = "At least " if self.num_more == MOST_MORE else ""
        fits = "" if self.num_more is None else f" {least}{self.num_more:,} more plans like the last one fit."
        return (
            f"epsilon = {rounded_down(self.epsilon)} of {self.cap_epsilon:g} is left at delta = {self.delta:g}: "
            f"{self.num_charges} charges have spent {rounded_up(self.spent_adaptive)} (valid for adaptively chosen "
            f"plans; {rounded_up(self.spent_if_fixed)} if all plans had been fixed beforehand).{fits}"
        )


@dataclass(frozen=True)
class Quote(_Account):
    """Cost of a plan for a data set. No budget is spent.

    Attributes:
        dataset: Name of the data set.
        epsilon: Epsilon of the plan by itself, at the delta of the data set.
        fits: Whether the plan fits into the remaining budget.
        total_adaptive: Spent epsilon after the plan.
        largest: Epsilon of the largest plan of this shape that fits, by itself; 0 if none does.
        noise_scale: Factor of the plan's noise for that plan; inf if none fits.
        cap_epsilon, delta: Limit of the data set.
        num_fits: Number of such plans that fit one after another, at most a million.

    Examples:
        >>> import dpvb
        >>> from dpvb.accounting import gaussian_noise
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> noise = gaussian_noise(10.0, neighboring_relation="add_or_remove_one")
        >>> quote = ledger.quote(noise, dataset="people")
        >>> quote.fits, quote.num_fits > 1
        (True, True)
    """

    dataset: str
    epsilon: float
    fits: bool
    total_adaptive: float
    largest: float
    noise_scale: float
    cap_epsilon: float
    delta: float
    num_fits: int

    @cached_property
    def total_if_fixed(self) -> float:
        """Cost of all plans if they had been fixed beforehand."""
        return self.if_fixed()

    def __str__(self) -> str:
        verdict, rest = "fits" if self.fits else "does not fit", way_out(self.largest, self.noise_scale)
        return (
            f"epsilon = {rounded_up(self.epsilon)} by itself at delta = {self.delta:g}. It {verdict} into the budget "
            f"of {self.dataset!r}: the total would be {rounded_up(self.total_adaptive)} of {self.cap_epsilon:g} (valid "
            f"for adaptively chosen plans; {rounded_up(self.total_if_fixed)} if all plans had been fixed beforehand). "
            f"Such plans that fit one after another: {self.num_fits:,}. {rest}"
        )


def way_out(largest: float, noise_scale: float) -> str:
    """Return the largest plan that fits, in words."""
    if not math.isfinite(noise_scale):
        return "No plan of this shape fits, even with more noise."
    return (
        f"The largest such plan that fits has epsilon = {rounded_down(largest)} by itself: "
        f"{noise_scale:.4g} times the noise."
    )


def check_name(what: str, name: object) -> str:
    """Return a public name if it is a printable text of 1 to 200 characters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ParameterError(f"{what} must be a printable text of 1 to {MAX_NAME} characters, got {name!r}.")
    return name


def as_epsilon(units: int) -> float:
    """Return units of 1e-9 as epsilon."""
    return math.inf if units >= SATURATED else round(units * UNIT, 9)
