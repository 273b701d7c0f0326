"""What a run was charged with, what of it has begun, and so what may come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpvb.accounting import costs as prices
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.events import Event
from dpvb.errors import LedgerError
from dpvb.ledger.chain import Entry

Units = tuple[int, ...]
_ZERO: Units = (0,) * len(spending.ORDERS)
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
    planned: Units = _ZERO
    begun: int = 0
    finished: bool = False
    refunded: bool = False

    @staticmethod
    def of(entries: Iterable[Entry]) -> Past:
        """What these rows of one run amount to, in order."""
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
            state, step = _fact(entry, "state"), _fact(entry, "step")
            self.finished = self.finished or state == "finished"
            if step is not None or state in ("started", "released"):
                self.begun = max(self.begun, 1 + _step(step))

    def _take_charge(self, entry: Entry) -> None:
        if self.first is None:
            self.first = entry
        else:  # Whoever charges a run again, does again what it names, or else anything.
            steps = _fact(entry, "steps")
            named = [_step(step) for step in steps] if isinstance(steps, list) and steps else [_ALL]
            self.begun = max(self.begun, 1 + max(named))
        if entry.kind == "charge" and _fact(entry, "kind") == "plan" and entry.dataset == self.first.dataset:
            self.planned = spending.add(self.planned, entry.cost_units)

    def check_bounds(self, run: str, cost: Sequence[int]) -> None:
        """Raise LedgerError unless a refund, in units and negative, is within what the run's plan was charged."""
        if self.first is None:
            raise LedgerError(f"run {run!r} was never charged.")
        if self.finished:
            raise LedgerError(f"run {run!r} has finished: all its releases were made.")
        if self.refunded:
            raise LedgerError(f"run {run!r} has had a refund already.")
        if self.first.kind == "sole":
            raise LedgerError(f"run {run!r} was charged by its own epsilon, as a first plan: nothing of it comes back.")
        if any(-back > most for back, most in zip(cost, self.planned, strict=True)):
            raise _too_many(run)

    def check_steps(self, run: str, unstarted: Cost, cost: Sequence[int]) -> None:
        """Raise LedgerError unless a refund is of releases of the run's first charge, none of which may have begun.

        Rows do not say in which order different releases are made: then the dearest ones count as begun.
        """
        assert self.first is not None
        charged = prices.from_dict(self.first.facts["cost"])
        if not isinstance(unstarted, Composition) or not isinstance(charged, Composition):
            raise LedgerError("only releases of a plan can be taken back, not those of a random number of trials.")
        plan = prices.num_steps([charged])
        left = plan.copy()
        left.subtract(prices.num_steps([unstarted]))
        if _fact(self.first, "kind") != "plan" or min(left.values()) < 0 or left.total() < self.begun:
            raise _too_many(run)
        if any(-back > most for back, most in zip(cost, spending.cost_units(unstarted), strict=True)):
            raise LedgerError(f"run {run!r} takes back more than its releases cost.")
        kept = spending.add(self.first.cost_units, cost)
        if len(plan) > 1 and any(map(int.__lt__, kept, _dearest(plan, self.begun, charged))):
            raise _too_many(run)


def _dearest(plan: Counter[Event], number: int, charged: Composition) -> Units:
    """Lower bounds on the cost of so many releases of a plan, at each order the dearest ones."""
    alone = {event: spending.refund_units(Composition([event], charged.neighboring_relation)) for event in plan}
    found = []
    for order in range(len(spending.ORDERS)):
        rest, total = number, 0
        for event in sorted(plan, key=lambda event: -alone[event][order]):
            count = min(rest, plan[event])
            rest, total = rest - count, total + count * alone[event][order]
        found.append(total)
    return tuple(found)


def _fact(entry: Entry, name: str) -> object:
    """A fact of a row that somebody else may have written."""
    try:
        return entry.facts.get(name)
    except (ValueError, TypeError, RecursionError):
        return None


def _step(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _too_many(run: str) -> LedgerError:
    return LedgerError(f"run {run!r} has not so many releases left that never started.")
