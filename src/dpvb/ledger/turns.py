"""Whose turn it is: what a run may still write, and take back."""

from __future__ import annotations

from collections.abc import Sequence

from dpvb.accounting import costs as prices
from dpvb.accounting.costs import Composition, Cost
from dpvb.errors import LedgerError
from dpvb.ledger.chain import Entry, canonical
from dpvb.ledger.state import WAY_OUT, check_hash
from dpvb.ledger.store import Transaction

_ENDS = ("finished", "abandoned")


def check_turn(
    rows: Transaction, run: str, attempt: int, *, dataset: str | None = None, resumes: bool = False
) -> Entry | None:
    """The newest row of a run, if this attempt may write the next one."""
    newest = rows.newest_of_run(run)
    if newest is None:
        return None
    check_found(newest, newest.run == run)
    if newest.state in _ENDS or keyed(rows, refund_key(run)):
        raise LedgerError(f"run {run!r} has ended; begin a new one.")
    if dataset not in (None, newest.dataset):
        raise LedgerError(f"run {run!r} was charged to {newest.dataset!r}, not to {dataset!r}.")
    if attempt < newest.attempt or (resumes and attempt == newest.attempt):
        raise LedgerError(f"run {run!r} was taken over by another process, as attempt {newest.attempt}.")
    if attempt > newest.attempt + resumes:
        raise LedgerError(f"run {run!r} is at attempt {newest.attempt}; say 'resumed' to begin the next one.")
    return newest


def keyed(rows: Transaction, key: str) -> Entry | None:
    """The row of a key."""
    found = rows.keyed(key)
    return found and check_found(found, found.key == key)


def of_run(rows: Transaction, run: str) -> list[Entry]:
    """The rows of a run, in order."""
    return [check_found(entry, entry.run == run) for entry in rows.of_run(run)]


def check_found(entry: Entry, wanted: bool) -> Entry:
    """A row that an index led to, which a flipped bit may have bent."""
    if not wanted:
        raise LedgerError(f"row {entry.seq}: an index leads to it wrongly. {WAY_OUT}")
    return check_hash(entry)


def refund_key(run: str) -> str:
    """Key of a run's one refund."""
    return canonical(["refund", run])


def check_refund(run: str, entries: Sequence[Entry], unstarted: Cost) -> Entry:
    """The newest row of a run, if so much of it may be taken back."""
    charges = [entry for entry in entries if entry.kind in ("charge", "sole")]
    if not charges:
        raise LedgerError(f"run {run!r} was never charged.")
    if entries[-1].state == "finished":
        raise LedgerError(f"run {run!r} has finished: all its releases were made.")
    if any(entry.kind == "sole" for entry in charges):
        raise LedgerError(f"run {run!r} was charged by its own epsilon, as a first plan: nothing of it comes back.")
    costs = [prices.from_dict(entry.facts["cost"]) for entry in charges]
    if not isinstance(unstarted, Composition) or not all(isinstance(cost, Composition) for cost in costs):
        raise LedgerError("only releases of a plan can be taken back, not those of a random number of trials.")
    left = prices.num_steps(costs)
    left.subtract(prices.num_steps([unstarted]))
    begun = 1 + max((entry.step for entry in entries if entry.step is not None), default=-1)
    if min(left.values()) < 0 or sum(left.values()) < begun:
        raise LedgerError(f"run {run!r} has not so many releases left that never started.")
    return entries[-1]
