"""What a ledger tells: data sets, receipts, what remains, quotes.

A new data set has a name of plain ASCII that looks like no registered one. People who mistake one name for another
would spend two budgets of the same people. A name that is registered already stays valid, whatever it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from dpvb.accounting.answers import rounded_down, rounded_up
from dpvb.accounting.events import NeighboringRelation, check_relation
from dpvb.accounting.filter import SATURATED, UNIT, cap_units
from dpvb.guards.errors import LedgerError, ParameterError, check_delta, check_number

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check_new_name(name: str, registered: Iterable[str]) -> None:
    """Refuse a name that is not plain ASCII, or that looks like one that is registered.

    Args:
        name: of a data set that is not registered yet.
        registered: all names that are.

    Raises:
        ParameterError: naming the characters that are allowed.
        LedgerError: naming the name that it resembles.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"name must consist of ASCII letters, digits, '.', '-' and '_', got {name!a}. Other characters can look "
            "like these, and a name in two spellings would have two budgets. Nothing was registered."
        )
    for other in registered:
        if appearance(name) == appearance(other):
            raise LedgerError(
                f"{name!a} looks like {other!r}, which is registered: people would mistake one for the other. Use the "
                "registered name, or a name that is clearly different. Nothing was registered."
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
        name: a public name.
        unit: whose presence is protected, in words: "document", "row", "person".
        neighboring_relation: what neighbouring data sets differ in.
        epsilon, delta: the cap.
        part_of: the data set of which this is a part; None for a whole one.

    Raises:
        ParameterError: for a value outside its range.
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
                    "part_of must be None with neighboring_relation 'replace_one', as a replaced unit could come from "
                    f"one part and go to another, got {self.part_of!r}."
                )

    @property
    def cap(self) -> int:
        """The cap in units of 1e-9, rounded down."""
        return cap_units(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Dataset:
        """What `to_dict` wrote."""
        return Dataset(**facts)


@dataclass(frozen=True)
class Receipt:
    """Proof that a row was in a ledger; released models carry it, and `verify` refuses a ledger without that row.

    Attributes:
        ledger: uuid of the ledger.
        seq, hash: of the row.
        dataset: whose charge it was.
    """

    ledger: str
    seq: int
    hash: str
    dataset: str


@dataclass(frozen=True, kw_only=True)
class _Account:
    """What a ledger says of a data set.

    Attributes:
        if_fixed: Calculates what plans would cost, had all been fixed beforehand. With 1,000 different sampled plans
            this takes seconds, so it is calculated when it is first read.
    """

    if_fixed: Callable[[], float] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return all facts by name, as JSON can hold them."""
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "if_fixed"}
        return facts | {name: getattr(self, name) for name in vars(type(self)) if name.endswith("_if_fixed")}


@dataclass(frozen=True)
class Remaining(_Account):
    """What a data set has left.

    Attributes:
        epsilon: the cap less what counts against it, at least 0.
        delta: the cap's.
        cap_epsilon: the cap.
        spent_adaptive: what counts: it holds although later plans were chosen after seeing results.
        num_charges: how many charges there are.
        num_more: how many more plans like the newest one fit, if nothing else is charged, a million at most; None if
            there was none.
        sole: whether a first plan was charged by its own epsilon, and nothing can follow.
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
        """What the same plans would cost, had all been fixed beforehand."""
        return self.if_fixed()

    def __str__(self) -> str:
        if self.sole:
            return (
                f"epsilon = {rounded_up(self.spent_adaptive)} of {self.cap_epsilon:g} is spent at "
                f"delta = {self.delta:g} by one plan, charged by its own epsilon as the first; nothing can follow it."
            )
        if not self.num_charges:
            return (
                f"epsilon = {rounded_down(self.epsilon)} of {self.cap_epsilon:g} is left at delta = "
                f"{self.delta:g}; nothing has been charged."
            )
        least = "At least " if self.num_more == MOST_MORE else ""
        fits = "" if self.num_more is None else f" {least}{self.num_more:,} more like the last one would fit."
        return (
            f"epsilon = {rounded_down(self.epsilon)} of {self.cap_epsilon:g} is left at delta = {self.delta:g}: "
            f"{self.num_charges} charges have spent {rounded_up(self.spent_adaptive)} (guaranteed under adaptive "
            f"choice; {rounded_up(self.spent_if_fixed)} if all plans had been fixed beforehand).{fits}"
        )


@dataclass(frozen=True)
class Quote(_Account):
    """What a plan would cost a data set; nothing is spent.

    Attributes:
        dataset: whose.
        epsilon: of the plan by itself, at the data set's delta.
        fits: whether the data set can be charged with it now.
        total_adaptive: what would count against the cap after it.
        largest: epsilon of the largest plan of this shape that fits, by itself; 0 if none does.
        noise_scale: what to multiply this plan's noise by for that; inf if none fits.
        cap_epsilon, delta: the cap.
    """

    dataset: str
    epsilon: float
    fits: bool
    total_adaptive: float
    largest: float
    noise_scale: float
    cap_epsilon: float
    delta: float

    @cached_property
    def total_if_fixed(self) -> float:
        """What all plans together would cost, had they been fixed beforehand."""
        return self.if_fixed()

    def __str__(self) -> str:
        verdict, rest = "fits" if self.fits else "does not fit", way_out(self.largest, self.noise_scale)
        return (
            f"epsilon = {rounded_up(self.epsilon)} by itself at delta = {self.delta:g}; it {verdict} into "
            f"{self.dataset!r}: the total would be {rounded_up(self.total_adaptive)} of {self.cap_epsilon:g} "
            f"(guaranteed under adaptive choice; {rounded_up(self.total_if_fixed)} if all plans had been fixed "
            f"beforehand). {rest}"
        )


def way_out(largest: float, noise_scale: float) -> str:
    """The largest plan that fits, in words."""
    if not math.isfinite(noise_scale):
        return "No plan of this shape fits, with whatever noise."
    return (
        f"The largest plan of this shape that fits has epsilon = {rounded_down(largest)} by itself: this noise times "
        f"{noise_scale:.4g}."
    )


def check_name(what: str, name: object) -> str:
    """Return a public name if it is a printable text of 1 to 200 characters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ParameterError(f"{what} must be a printable text of 1 to {MAX_NAME} characters, got {name!r}.")
    return name


def as_epsilon(units: int) -> float:
    """Units as epsilon, for reading."""
    return math.inf if units >= SATURATED else round(units * UNIT, 9)
