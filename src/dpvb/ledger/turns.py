"""Whose turn it is, a run's and a row's: what a run may still write, and how a state follows the rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dpvb.guards.errors import LedgerError
from dpvb.ledger.chain import LOOK, WAY_OUT, Entry, canonical, check_hash
from dpvb.ledger.head import Head
from dpvb.ledger.past import Past
from dpvb.ledger.state import State, costs_more_now, set_back
from dpvb.ledger.store import Store, Transaction

_ENDS = ("finished", "abandoned", LOOK)


def check_turn(
    rows: Transaction, newest: Entry, attempt: int, *, dataset: str | None = None, resumes: bool = False
) -> None:
    """Raise LedgerError unless this attempt may write the row after the newest of its run."""
    run = newest.run
    if newest.state in _ENDS or rows.keyed(refund_key(run)):
        raise LedgerError(f"run {run!r} has ended; begin a new one.")
    if dataset not in (None, newest.dataset):
        raise LedgerError(f"run {run!r} was charged to {newest.dataset!r}, not to {dataset!r}.")
    if attempt < newest.attempt or (resumes and attempt == newest.attempt):
        raise LedgerError(f"run {run!r} was taken over by another process, as attempt {newest.attempt}.")
    if attempt > newest.attempt + resumes:
        raise LedgerError(f"run {run!r} is at attempt {newest.attempt}; say 'resumed' to begin the next one.")


def past(rows: Transaction, run: str, seq: int) -> Past:
    """What the rows of a run before this number amount to."""
    return Past.of(entry for entry in rows.of_run(run) if entry.seq < seq)


def event_key(run: str, attempt: int, body: Mapping[str, Any]) -> str:
    """Key of an event."""
    return canonical(["event", run, attempt, body["state"], body["step"]])


def refund_key(run: str) -> str:
    """Key of a run's one refund."""
    return canonical(["refund", run])


def kept_head(store: Store) -> Head:
    """The head that a store keeps.

    Raises:
        LedgerError: if it is gone.
    """
    head = store.head()
    if head is None:
        raise LedgerError(f"the head is gone; it tells a ledger from an older copy of it. {WAY_OUT}")
    return head


def begun(head: Head, store: Store, rows: Transaction) -> State:
    """Return the state at a head; of a shared store, the state at the last row.

    Charges of earlier versions that cost more by today's accountant are looked up. In a shared store, which rows have
    a writer since version 0.2, no other row needs to be calculated.

    Raises:
        LedgerError: if the head is another ledger's, or its rows are not there.
    """
    if head.uuid != store.uuid:
        raise LedgerError(f"the head is that of another ledger. {WAY_OUT}")
    state = State.at(head, rows.row, rows.first_charge if store.shared else None)
    if store.shared:
        for name in state.charges:
            for entry in rows.refunds(name):
                if entry.seq <= head.seq and state.odd_refund(entry, partial(past, rows, seq=entry.seq)):
                    state.understate(name, [-part for part in entry.cost_units])
        state, _ = caught_up(state, rows)
    for name in state.charges:
        for seq, _ in rows.forms(name, earlier=True):
            one = rows.row(seq)
            if one is not None and costs_more_now(one):
                for entry in rows.of_form(one.form):
                    if (entry.dataset, entry.kind) == (name, "charge") and (store.shared or entry.seq <= head.seq):
                        state.recount(entry)
    return state


def caught_up(state: State, rows: Transaction) -> tuple[State, dict[int, str]]:
    """The state at the last row, and the hashes of the rows on the way there.

    Raises:
        LedgerError: if the ledger was set back or replaced, or a row does not follow from those before it.
    """
    entries = rows.since(max(state.seq, 1))
    if state.seq > 0:
        last = next(entries, None)
        if last is None or last.seq != state.seq:
            raise set_back(state.seq)
        if check_hash(last).hash != state.hash:
            raise LedgerError(f"row {state.seq} is another one than it was: the ledger was replaced. {WAY_OUT}")
    hashes = {state.seq: state.hash}
    for entry in entries:
        state.follow(entry, partial(past, rows, seq=entry.seq))
        hashes[entry.seq] = entry.hash
    return state, hashes
