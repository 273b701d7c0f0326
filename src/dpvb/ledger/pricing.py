"""Costs of plans for a data set, by themselves and with earlier charges, and how large a plan may be."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from dpvb import accounting
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost, Total, total
from dpvb.accounting.events import Event
from dpvb.accounting.forms import from_dict
from dpvb.accounting.methods import rounded_down, rounded_up
from dpvb.core.plan import Plan
from dpvb.guards.errors import BudgetError, LedgerError, ParameterError
from dpvb.ledger.chain import WAY_OUT, Entry
from dpvb.ledger.records import MOST_MORE, Dataset, as_epsilon, way_out
from dpvb.ledger.run_history import fact
from dpvb.ledger.state import ODD, Price, State
from dpvb.ledger.store import Transaction

# Characters of rows in which others state costs that are calculated: about 9,000 releases, which take a minute.
_MAX_CLAIMS = 2**20
# Part of a cap's delta for plans that add to it, by whether others may append to the ledger.
_ADDED = {
    False: "A tenth of the cap's delta is kept for all that plans add to it: add less, or register a larger delta.",
    True: "A ledger to which others may append takes such a plan as the first and only one of a data set; a file takes "
    "more.",
}


def chosen(state: State, name: str | None) -> Dataset:
    """The data set of this name, or the only one."""
    if name is None and len(state.datasets) == 1:
        return next(iter(state.datasets.values()))
    return state.dataset(name)


def as_cost(plan: Plan | Cost | Sequence[Event], facts: Dataset) -> Cost:
    """Return the cost of a plan in any form, if it protects the unit of the data set's cap."""
    if isinstance(plan, Plan):
        check_promise(facts, plan.unit, cost := Composition(plan.events(), plan.neighboring_relation))
        return cost
    if isinstance(plan, Cost):
        check_promise(facts, facts.unit, plan)
        return plan
    return Composition(plan, facts.neighboring_relation)


def check_promise(facts: Dataset, unit: str, cost: Cost) -> None:
    """Raise LedgerError unless a charge protects what the cap speaks of."""
    for what, registered, planned in (
        ("unit", facts.unit, unit),
        ("neighboring_relation", facts.neighboring_relation, cost.neighboring_relation),
    ):
        if registered != planned:
            raise LedgerError(f"{facts.name!r} is registered with {what} {registered!r}, got a plan with {planned!r}.")


def is_sole(price: Price, cost: Cost, facts: Dataset) -> bool:
    """Whether a plan beyond the filter may be charged by its own epsilon.

    It is the first, so it was fixed before anything was seen; and that the filter's total is beyond the cap is known
    before as well, so nothing can ever follow it.
    """
    return price.first and facts.epsilon > 0 and cost.epsilon(facts.delta, expected=facts.epsilon) <= facts.epsilon


def left(state: State, name: str) -> int:
    """Return the remaining budget, in units."""
    return 0 if state.sole(name) else max(0, state.datasets[name].cap - state.price(name).counted)


def spent(state: State, name: str) -> float:
    """Return the cost against the cap; for a plan charged by its own epsilon the cap, if its row is not credible."""
    if charges := state.sole(name):
        cap = state.datasets[name].epsilon
        said = [fact(entry, "epsilon") for entry in charges]
        return max(one if isinstance(one, float) and 0 <= one <= cap else cap for one in said)
    return as_epsilon(state.price(name).counted)


def num_more(rows: Transaction, state: State, name: str) -> int | None:
    """How many more plans like the newest one fit, one after the other; None if none was charged."""
    charges = [state.charges[one] for one in concerned(state, name) if one in state.charges]
    if not charges or (plan := rows.first_of_run(max(charges, key=lambda entry: entry.seq).run)) is None:
        return None
    if state.sole(name):
        return 0
    said = plan.cost_units
    # Others may state a cost that takes long to calculate.
    return num_fits(state, name, said if state.shared else spending.add(said, state.beyond(plan) or (0,) * len(said)))


def num_fits(state: State, name: str, units: Sequence[int]) -> int:
    """Return how many plans of a cost fit, one after the other, at most `MOST_MORE`."""

    def spent_by(number: int) -> int:
        return state.price(name, tuple(min(number * part, spending.SATURATED) for part in units)).counted

    return bisect_right(range(1, MOST_MORE + 1), state.datasets[name].cap, key=spent_by)


def noise_scale(state: State, facts: Dataset, cost: Cost, target: int, *, normal: bool) -> float:
    """The least factor for a cost's noise with which what counts rises by no more than the target; inf if none is."""
    before = state.price(facts.name)
    if target <= 0 or state.sole(facts.name):
        return math.inf
    epsilon = target * spending.UNIT
    if not before.first:

        def rise(scale: float) -> int:
            units = state.units(facts.name, cost.scaled(scale), normal=normal)
            return state.price(facts.name, units).counted - before.counted

        return spending.least_scale(rise, target)
    if not isinstance(cost, Composition):
        return spending.least_scale(lambda scale: cost.scaled(scale).epsilon(facts.delta), epsilon)
    try:
        return accounting.calibrate(
            lambda scale: cost.scaled(scale).events,
            epsilon=epsilon,
            delta=facts.delta,
            neighboring_relation=facts.neighboring_relation,
        )
    except ParameterError:
        return math.inf


def largest(state: State, facts: Dataset, cost: Cost, *, normal: bool) -> tuple[float, float]:
    """Return the smallest noise scale that fits into the remaining budget, and its epsilon; inf and 0 if none does."""
    room = left(state, facts.name)
    scale = noise_scale(state, facts, cost, room, normal=normal)
    return scale, cost.scaled(scale).epsilon(facts.delta, as_epsilon(room)) if scale < math.inf else 0.0


def over(state: State, facts: Dataset, cost: Cost, price: Price, *, normal: bool) -> BudgetError:
    """Return the error for a plan that exceeds the budget, with the remaining budget and the largest plan."""
    scale, most = largest(state, facts, cost, normal=normal)
    added = cost.added_delta
    hint = f" The plan adds {added:g} to delta in addition to its noise. {_ADDED[state.shared]}" if added else ""
    return BudgetError(
        f"The plan exceeds the budget of {facts.name!r} at delta = {facts.delta:g}: epsilon limit {facts.epsilon:g}, "
        f"left {rounded_down(as_epsilon(left(state, facts.name)))}, cost of the plan by itself "
        f"{rounded_up(cost.epsilon(facts.delta))}, total after it {rounded_up(as_epsilon(price.counted))}. Nothing was "
        f"charged. {way_out(most, scale)}{hint}"
    )


def concerned(state: State, name: str) -> list[str]:
    """Return the data sets whose charges count for this one."""
    return list(dict.fromkeys(one for line in state.lines(name) for one in line))


def charged(rows: Transaction, state: State, name: str) -> list[list[tuple[Entry, int]]]:
    """Return what was charged, for each group of data sets that add up: a row per form, and how many rows have it.

    Refunds count as less than none.
    """
    entries: dict[str, list[tuple[Entry, int]]] = {}
    for one in concerned(state, name):
        entries[one] = []
        for seq, count in rows.forms(one):
            entry = rows.row(seq)
            if entry is None:
                raise LedgerError(f"Row {seq} is missing. {WAY_OUT}")
            entries[one].append((entry, -count if entry.kind == "refund" else count))
    return [[pair for one in line for pair in entries[one]] for line in state.lines(name)]


def if_fixed(
    groups: Sequence[Sequence[tuple[Entry, int]]],
    facts: Dataset,
    cost: Cost | None = None,
    *,
    otherwise: float | None = None,
) -> float:
    """Return the epsilon of what was charged, had all been fixed beforehand.

    Args:
        groups: What was charged, as `charged` returns it.
        facts: The data set.
        cost: One plan more. None (default): none.
        otherwise: What is returned if a row does not state its cost, or rows state costs that take long to calculate.
            None (default): an error.
    """
    if otherwise is not None and sum(len(entry.body) for group in groups for entry, _ in group) > _MAX_CLAIMS:
        return otherwise
    try:
        return max(_total(group, facts, cost).epsilon(facts.delta) for group in groups)
    except ODD:
        if otherwise is None:
            raise
        return otherwise


def _total(group: Sequence[tuple[Entry, int]], facts: Dataset, cost: Cost | None) -> Total:
    counts = Counter[Cost]() if cost is None else Counter({cost: 1})
    for entry, number in group:
        one = from_dict(entry.facts["cost"])
        if one.neighboring_relation != facts.neighboring_relation:
            raise ParameterError("cost must have the neighbours of its data set.")
        counts[one] += number
    return total(counts)
