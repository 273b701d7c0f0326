"""Charges of a run, which of its releases have begun, and the largest refund."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

from dpvb.accounting import dominating_gaussian
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost, n_steps
from dpvb.accounting.events import Event
from dpvb.accounting.forms import from_dict
from dpvb.guards.errors import LedgerError, ParameterError
from dpvb.ledger.chain import Entry, UnreadableError

Units = tuple[int, ...]
_ALL = 2**53


@dataclass
class Past:
    """The rows of a run so far, as far as a refund asks.

    Attributes:
        first: the run's first charge; only of this one releases may come back.
        planned: what the run's plan was charged; charges of steps that were done again are not in it.
        begun: number of releases that may have begun, in order: events and later charges name them.
        finished, refunded: what the run has said and had.
    """

    first: Entry | None = None
    planned: Units = ()
    begun: int = 0
    finished: bool = False
    refunded: bool = False

    @staticmethod
    def of(entries: Iterable[Entry]) -> Past:
        """Return the history in these rows of one run, in order."""
        past = Past()
        for entry in entries:
            past.take(entry)
        return past

    def take(self, entry: Entry) -> None:
        """Go on by one row of the run."""
        if entry.kind in ("charge", "sole") and entry.cost:
            self._take_charge(entry)
        elif entry.kind == "refund":
            self.refunded = True
        elif entry.kind == "event":
            state, step = fact(entry, "state"), fact(entry, "step")
            self.finished = self.finished or state == "finished"
            if step is not None or state in ("started", "released"):
                self.begun = max(self.begun, 1 + _step(step))

    def _take_charge(self, entry: Entry) -> None:
        if self.first is None:
            self.first = entry
        else:  # A later charge of the run repeats the steps that it names, or any steps if it names none.
            steps = fact(entry, "steps")
            named = [_step(step) for step in steps] if isinstance(steps, list) and steps else [_ALL]
            self.begun = max(self.begun, 1 + max(named))
        kind = fact(entry, "kind", "plan")
        if entry.kind == "charge" and kind == "plan" and entry.dataset == self.first.dataset:
            self.planned = spending.add(self.planned, entry.cost_units) if self.planned else entry.cost_units

    def back(self, unstarted: Cost) -> Units:
        """Return the refund for releases that never began: of a Gaussian that covers a plan, nothing or all of it."""
        units = spending.refund_units(unstarted)
        if self.planned:  # An earlier version may have charged less for them than they would cost now.
            units = tuple(min(back, most) for back, most in zip(units, self.planned, strict=False))
        if self.first is None or len(self.first.cost_units) <= len(units):
            return units
        charged = from_dict(self.first.facts["cost"])
        if unstarted == charged:  # Then nothing began.
            return *units, *self.first.cost_units[len(units) :]
        alone = fact(self.first, "normal") is True and dominating_gaussian.is_gaussian(charged)
        return *units, units[-1] if alone else 0, 0

    def check_bounds(self, run: str, cost: Sequence[int]) -> None:
        """Raise LedgerError unless a refund, in units and negative, is within what the run's plan was charged."""
        if self.first is None:
            raise LedgerError(f"Run {run!r} was never charged.")
        if self.finished:
            raise LedgerError(f"Run {run!r} has finished: all its releases were made.")
        if self.refunded:
            raise LedgerError(f"Run {run!r} has had a refund already.")
        if self.first.kind == "sole":
            raise LedgerError(f"Run {run!r} was charged by its own epsilon, as a first plan: nothing of it comes back.")
        if any(-back > most for back, most in zip_longest(cost, self.planned, fillvalue=0)):
            raise _too_many(run)

    def check_steps(self, run: str, unstarted: Cost, cost: Sequence[int]) -> None:
        """Raise LedgerError unless a refund is of releases of the run's first charge, none of which may have begun."""
        assert self.first is not None
        charged = from_dict(self.first.facts["cost"])
        if not isinstance(unstarted, Composition) or not isinstance(charged, Composition):
            raise LedgerError("Only releases of a plan can be taken back, not those of a random number of trials.")
        left = self._left(n_steps([charged])) if fact(self.first, "kind") == "plan" else Counter[Event]()
        if any(number > left[event] for event, number in n_steps([unstarted]).items()):
            raise _too_many(run)
        if any(-back > most for back, most in zip_longest(cost, self.back(unstarted), fillvalue=0)):
            raise LedgerError(f"Run {run!r} takes back more than its releases cost.")

    def _left(self, plan: Counter[Event]) -> Counter[Event]:
        """The releases that have not begun: of several kinds none once one has, if their order is not on record."""
        order = fact(self.first, "order")
        if isinstance(order, list):
            kinds = list(plan)
            releases = [(kinds[kind], number) for kind, number in order]
        elif len(plan) == 1 or not self.begun:
            releases = list(plan.items())
        else:
            releases = []
        left, before = Counter[Event](), self.begun
        for event, number in releases:
            left[event] += max(0, number - before)
            before = max(0, before - number)
        return left & plan


def order_of(cost: Cost, releases: Sequence[Event]) -> list[tuple[int, int]]:
    """Releases in the order in which they are made: for each piece of equal ones their kind's number and how many.

    Raises:
        ParameterError: if they do not make up the cost.
    """
    plan = n_steps([cost])
    numbers = {event: number for number, event in enumerate(plan)}
    if n_steps(Composition([event], cost.neighboring_relation) for event in releases) != plan:
        raise ParameterError("releases must be those that cost is the cost of.")
    alone = [(numbers[replace(event, n_steps=1)], event.n_steps) for event in releases]
    pieces = groupby(alone, key=lambda piece: piece[0])
    return [(kind, sum(number for _, number in piece)) for kind, piece in pieces]


def fact(entry: Entry | None, name: str, otherwise: object = None) -> object:
    """Return a fact of a row that another user may have written; `otherwise` if the row cannot be read."""
    try:
        return None if entry is None else entry.facts.get(name)
    except UnreadableError:
        return otherwise


def _step(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _too_many(run: str) -> LedgerError:
    return LedgerError(f"Run {run!r} has fewer releases left that never started.")
