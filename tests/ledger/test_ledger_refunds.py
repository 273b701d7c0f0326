"""What comes back: only what never began, only once, only to whoever holds the run's token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills
from test_ledger import ADD, FACTS, charge, plan

from dpvb.accounting import Event
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition
from dpvb.errors import BudgetError, LedgerError, ParameterError
from dpvb.ledger import Ledger, chain, pricing
from dpvb.ledger.chain import WAY_OUT, Entry, canonical
from dpvb.ledger.run_history import Past
from dpvb.ledger.state import State
from dpvb.ledger.verify import walk

CHEAP, DEAR = Event("full_batch", 1.0, 60.0), Event("full_batch", 1.0, 12.0)


def of(*events: Event) -> Composition:
    return Composition(events, ADD)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
        yield made


def taken(ledger: Ledger) -> tuple[int, ...]:
    state = ledger._state
    assert state is not None
    return state.totals("notes")


STEP = st.integers(0, 5)
ACTION = st.one_of(
    st.tuples(st.just("started"), STEP),
    st.tuples(st.just("released"), STEP),
    st.tuples(st.just("again"), STEP),
    st.tuples(st.just("plan"), STEP),
    st.tuples(st.just("resumed"), STEP),
)


@pytest.mark.guarantees("refunds")
@kills("crashes", "releases that have begun given back")
@edit("ledger/run_history.py", "left, before = Counter[Event](), self.begun", "left, before = Counter[Event](), 0")
@given(
    order=st.lists(st.sampled_from([CHEAP, DEAR]), min_size=1, max_size=5),
    told=st.booleans(),
    actions=st.lists(ACTION, max_size=6),
    asked=st.lists(st.sampled_from([CHEAP, DEAR]), min_size=1, max_size=5),
)
@settings(max_examples=12)
def test_what_has_begun_is_never_given_back(
    order: list[Event], told: bool, actions: list[tuple[str, int]], asked: list[Event]
) -> None:
    """Whatever a run says, charges again and asks for: each release that it named, and each repetition, stays paid."""
    with TemporaryDirectory() as folder, Ledger(f"{folder}/budget.db") as ledger:
        ledger.register("notes", **FACTS)
        charge(ledger, "run", of(*order), releases=order if told else None)
        begun, repeated, attempt = -1, 0, 0
        for what, step in actions:
            if what == "resumed":
                attempt += 1
                ledger.append("run", attempt=attempt, state="resumed")
            elif what in ("again", "plan"):
                with suppress(BudgetError):
                    before = len(ledger.history("run"))
                    charge(ledger, "run", of(DEAR), kind=what, steps=[step], attempt=attempt)
                    repeated += len(ledger.history("run")) > before
                    begun = max(begun, step)
            else:
                ledger.append(
                    "run", attempt=attempt, state=what, step=step, digest="aa" if what == "released" else None
                )
                begun = max(begun, step)
        with suppress(LedgerError):
            ledger.refund("run", unstarted=of(*asked))
        least = [0] * len(spending.ORDERS)
        for event in [*order[: begun + 1], *[DEAR] * repeated]:
            least = [total + part for total, part in zip(least, spending.refund_units(of(event)), strict=True)]
        assert all(total >= part for total, part in zip(taken(ledger), least, strict=False))
        ledger.verify()


def test_what_never_began_comes_back(ledger: Ledger) -> None:
    order = [CHEAP, *[DEAR] * 3, CHEAP]
    charge(ledger, "run", of(*order), releases=order)
    ledger.append("run", attempt=0, state="released", step=1, digest="aa")
    for unstarted in (of(*[DEAR] * 3), of(CHEAP, CHEAP), of(DEAR, DEAR, DEAR, CHEAP)):
        with pytest.raises(LedgerError, match="fewer releases left"):
            ledger.refund("run", unstarted=unstarted)
    ledger.refund("run", unstarted=of(DEAR, DEAR, CHEAP))
    assert ledger.remaining("notes").spent_if_fixed == of(CHEAP, DEAR).epsilon(1e-5)
    ledger.verify()


def test_without_their_order_different_releases_come_back_together_or_not_at_all(ledger: Ledger) -> None:
    charge(ledger, "whole", of(CHEAP, DEAR))
    ledger.refund("whole", unstarted=of(CHEAP, DEAR))
    charge(ledger, "run", of(CHEAP, DEAR))
    ledger.append("run", attempt=0, state="started")
    for one in (CHEAP, DEAR):
        with pytest.raises(LedgerError, match="fewer releases left"):
            ledger.refund("run", unstarted=of(one))


def test_an_order_is_that_of_the_cost(ledger: Ledger) -> None:
    for order in ([CHEAP], [CHEAP, DEAR, DEAR], [], [plan().events[0]]):
        with pytest.raises(ParameterError, match="releases"):
            charge(ledger, "run", of(CHEAP, DEAR), releases=order)
    assert ledger.history("run") == []


@kills("crashes", "steps that were charged again not counted as begun")
@edit("ledger/run_history.py", "self.begun = max(self.begun, 1 + max(named))", "pass")
def test_charges_of_what_was_done_again_never_come_back(ledger: Ledger) -> None:
    charge(ledger, "run", plan(4.0, 4))
    for step in range(3):
        ledger.append("run", attempt=0, state="released", step=step, digest=f"{step}")
    for attempt in range(1, 4):
        ledger.append("run", attempt=attempt, state="resumed")
        charge(ledger, "run", plan(4.0, 1), kind=("again", "plan", "more")[attempt - 1], steps=[3], attempt=attempt)
    for number in range(1, 8):
        with pytest.raises(LedgerError, match="fewer releases left"):
            ledger.refund("run", unstarted=plan(4.0, number))
    charge(ledger, "anything", plan(4.0, 4))
    charge(ledger, "anything", plan(4.0, 4), kind="again")
    with pytest.raises(LedgerError, match="fewer releases left"):
        ledger.refund("anything", unstarted=plan(4.0, 1))


# ---------------------------------------------------------------- rows that somebody else wrote


def following(ledger: Ledger) -> State:
    with ledger._transaction() as (_, state):
        return state.copy()


def among_others(ledger: Ledger) -> tuple[State, list[Entry]]:
    """The chain of a ledger as it stands where others may append: with one number for each order."""
    state, rows = State(ledger.uuid, shared=True), list[Entry]()
    for entry in ledger.entries():
        changes: dict[str, Any] = {"prev": state.hash}
        if entry.cost:
            units = entry.cost_units[: len(spending.ORDERS)]
            price = state.price(entry.dataset, units)
            body = canonical({**entry.facts, "favoured": price.favoured})
            changes |= {"cost": canonical(units), "totals": canonical(price.totals), "units": price.spent, "body": body}
        rows.append(dataclasses.replace(entry, **changes).sealed())
        state.follow(rows[-1], lambda run: Past.of(one for one in rows[:-1] if one.run == run))
    return state, rows


def row(state: State, **changes: Any) -> Entry:
    """A row of right hash and place."""
    empty: dict[str, Any] = {"run": "", "attempt": 0, "form": "", "cost": "", "totals": "", "units": 0, "body": "{}"}
    given = {**empty, "kind": "event", "key": f"new {state.seq}", "dataset": "notes", "created": "", **changes}
    return Entry(seq=state.seq + 1, prev=state.hash, **given).sealed()


def refund_row(state: State, run: str, cost: Composition, units: tuple[int, ...], dataset: str = "notes") -> Entry:
    price = state.price(dataset, units)
    return row(
        state,
        kind="refund",
        key=chain.refund_key(run),
        dataset=dataset,
        run=run,
        form=chain.form(cost),
        cost=canonical(units),
        totals=canonical(price.totals),
        units=price.spent,
        body=canonical({"cost": cost.to_dict(), "favoured": price.favoured}),
    )


@pytest.mark.guarantees("refunds")
@kills("crashes", "everybody's charges taken back by one row")
@edit(
    "ledger/run_history.py",
    "if any(-back > most for back, most in zip_longest(cost, self.planned",
    "if any(False for _ in zip_longest(cost, self.planned",
)
@edit(
    "ledger/run_history.py",
    "if any(-back > most for back, most in zip_longest(cost, self.back(unstarted)",
    "if any(False for _ in zip_longest(cost, self.back(unstarted)",
)
@pytest.mark.parametrize("shared", [False, True])
def test_no_refund_goes_beyond_its_runs_own_charge(ledger: Ledger, shared: bool) -> None:
    """Also a row of right hash, right totals and a new key; whoever may append, and wherever."""
    ledger.register("letters", **FACTS)
    small, large = plan(9.0, 3), plan(4.0, 20)
    charge(ledger, "large", large)
    charge(ledger, "small", small)
    charge(ledger, "elsewhere", large, dataset="letters")
    charge(ledger, "done", small)
    ledger.append("done", attempt=0, state="finished")
    charge(ledger, "had", small)
    ledger.refund("had", unstarted=plan(9.0, 1))
    everything = [-total for total in following(ledger).totals("notes")]
    back = [-part for part in spending.refund_units(small)] + [0, 0]
    end, entries = among_others(ledger) if shared else (following(ledger), ledger.entries())
    width = end.width("notes")
    for run, cost, units in (
        ("nobody", small, back),
        ("nobody", large, everything),
        ("small", large, everything),
        ("small", large, [-part for part in spending.refund_units(large)] + [0, 0]),
        ("small", small, [part - 3 for part in back]),
        ("elsewhere", small, back),
        ("done", small, back),
        ("had", small, back),
    ):
        forged = refund_row(end, run, cost, tuple(units[:width]))
        pasts = {name: Past.of(entry for entry in entries if entry.run == name) for name in {e.run for e in entries}}
        for past_of in (lambda name, pasts=pasts: pasts.get(name, Past()), lambda _: Past()):
            state = end.copy()
            if shared:  # It is on record, and gives nothing back.
                assert state.follow(forged, past_of)
                assert state.price("notes").counted >= end.price("notes").counted
            else:
                with pytest.raises(LedgerError, match=f"row {forged.seq}"):
                    state.follow(forged, past_of)
        with pytest.raises(LedgerError, match=f"(?i:row) {forged.seq}: "):
            walk(ledger.uuid, [*entries, forged], shared=shared)


ODD: list[dict[str, Any]] = [
    {"kind": "nonsense"},
    {"kind": "charge"},
    {"kind": "refund", "run": "run"},
    {"kind": "dataset", "dataset": "x", "key": "dataset/x"},
    {"kind": "dataset", "dataset": "x", "key": "dataset/x", "body": "[]"},
    {"kind": "dataset", "dataset": "notes", "key": "dataset/notes 2", "body": canonical({"name": "notes", **FACTS})},
    {"kind": "dataset", "dataset": "x", "key": "dataset/x", "body": canonical({"name": "x", **FACTS}), "units": 7},
    {"kind": "dataset", "dataset": "x", "body": canonical({"name": "x", **FACTS, "part_of": "notes"})},
    {"dataset": "nowhere", "run": "run", "body": '{"state":"finished"}'},
    {"run": "run", "body": "[" * 5000},
    {"run": "run", "body": '{"state":7,"step":"x"}'},
    {"run": "run", "units": 5, "body": '{"state":"started"}'},
]


@pytest.mark.guarantees("foreign claims")
@kills("crashes", "one row that stops everybody")
@edit("ledger/state.py", "if odd and not self.shared:", "if odd:")
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_row_stops_nobody_where_others_may_append(ledger: Ledger, odd: dict[str, Any]) -> None:
    """In a file it is refused. Where others may append it counts for nothing; `verify` alone tells of it."""
    charge(ledger, "run")
    before = following(ledger)
    strange = row(before, **odd)
    with pytest.raises(LedgerError, match=f"row {strange.seq}"):
        following(ledger).follow(strange)
    state, rows = among_others(ledger)
    shared, strange = state.copy(), row(state, **odd)
    assert state.follow(strange)
    assert state.datasets == shared.datasets
    assert state.price("notes") == shared.price("notes")
    state.follow(charge_row(state, plan()))
    with pytest.raises(LedgerError, match=f"row {strange.seq}: .*these 1 rows") as told:
        walk(ledger.uuid, [*rows, strange], shared=True)
    assert str(told.value).count(f"row {strange.seq}") == 1
    assert WAY_OUT not in str(told.value)


def charge_row(state: State, cost: Composition, **changes: Any) -> Entry:
    units = state.units("notes", cost, normal=True)
    price = state.price("notes", units)
    facts: dict[str, Any] = {
        "kind": "charge",
        "run": "other",
        "form": chain.form(cost),
        "cost": canonical(units),
        "totals": canonical(price.totals),
        "units": price.spent,
        "body": canonical({"kind": "plan", "cost": cost.to_dict(), "favoured": price.favoured}),
    }
    return row(state, **{**facts, **changes})


@pytest.mark.guarantees("foreign claims")
@given(
    st.dictionaries(
        st.sampled_from(["kind", "run", "form", "units", "body", "cost", "totals", "attempt"]),
        st.sampled_from(
            ["charge", "sole", "refund", "event", "run", "", "{}", "[]", 0, 1, -1, 2**62, canonical([0] * 46)]
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_no_claim_of_a_stranger_lowers_what_is_spent(changes: dict[str, Any], first: bool) -> None:
    with TemporaryDirectory() as folder, Ledger(f"{folder}/budget.db") as ledger:
        ledger.register("notes", **FACTS)
        if not first:
            charge(ledger, "run")
        state, _ = among_others(ledger)
        honest = state.copy()
        good = charge_row(state, plan())
        honest.follow(good)
        texts = [name for name in changes if name not in ("units", "attempt")]
        changes = {name: str(changes[name]) if name in texts else hash(changes[name]) % 2**40 for name in changes}
        before, totals = state.price("notes").spent, state.totals("notes")
        try:
            odd = state.follow(dataclasses.replace(good, **changes).sealed())
        except LedgerError:
            return
        counted = state.totals("notes") == honest.totals("notes")
        assert counted or (odd and state.totals("notes") == totals)
        assert state.price("notes").spent >= before
        if counted:
            assert state.price("notes") == honest.price("notes")


@pytest.mark.guarantees("foreign claims")
@kills("crashes", "an order favoured after the fact")
@edit(
    "ledger/state.py", "        if first is None:\n            return int(", "        if True:\n            return int("
)
def test_an_order_favoured_by_a_stranger_is_not_believed(ledger: Ledger) -> None:
    """Whichever row is the newest, what counts is the order that the first charge fixed, by one's own calculation."""
    charge(ledger, "first", plan(9.0, 3))
    state, entries = among_others(ledger)
    favoured = state.price("notes").favoured
    for wrong in (0, len(spending.ORDERS) - 1, -1, None, "x", favoured + 1):
        after = state.copy()
        body = canonical({"kind": "plan", "cost": plan().to_dict(), "favoured": wrong})
        strange = charge_row(after, plan(), body=body, units=0)
        assert after.follow(strange)
        again = State.at(after.head(), lambda seq, s=strange: [*entries, s][seq - 1], lambda _: entries[1])
        for found in (after, again):
            assert found.price("notes").spent == state.price("notes", spending.cost_units(plan())).spent
            assert found.price("notes").favoured == favoured


def test_a_charge_above_the_cap_counts_where_others_may_append(ledger: Ledger) -> None:
    state, _ = among_others(ledger)
    for _ in range(4):
        state.follow(charge_row(state, plan(1.0)))
    assert pricing.left(state, "notes") == 0
    with pytest.raises(LedgerError, match="cap"):
        following(ledger).follow(charge_row(following(ledger), plan(0.2)))
