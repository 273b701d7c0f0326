"""Whose turn it is: what a run may still write."""

from __future__ import annotations

from dpvb.guards.errors import LedgerError
from dpvb.ledger.chain import LOOK, Entry, canonical
from dpvb.ledger.past import Past
from dpvb.ledger.state import WAY_OUT, check_hash
from dpvb.ledger.store import Transaction

_ENDS = ("finished", "abandoned", LOOK)


def check_turn(
    rows: Transaction, newest: Entry, attempt: int, *, dataset: str | None = None, resumes: bool = False
) -> None:
    """Raise LedgerError unless this attempt may write the row after the newest of its run."""
    run = newest.run
    if newest.state in _ENDS or keyed(rows, refund_key(run)):
        raise LedgerError(f"run {run!r} has ended; begin a new one.")
    if dataset not in (None, newest.dataset):
        raise LedgerError(f"run {run!r} was charged to {newest.dataset!r}, not to {dataset!r}.")
    if attempt < newest.attempt or (resumes and attempt == newest.attempt):
        raise LedgerError(f"run {run!r} was taken over by another process, as attempt {newest.attempt}.")
    if attempt > newest.attempt + resumes:
        raise LedgerError(f"run {run!r} is at attempt {newest.attempt}; say 'resumed' to begin the next one.")


def keyed(rows: Transaction, key: str) -> Entry | None:
    """The row of a key."""
    found = rows.keyed(key)
    return found and check_found(found, found.key == key)


def of_run(rows: Transaction, run: str) -> list[Entry]:
    """The rows of a run, in order."""
    return [check_found(entry, entry.run == run) for entry in rows.of_run(run)]


def first(rows: Transaction, run: str) -> Entry | None:
    """The first row of a run, its first charge."""
    found = rows.first_of_run(run)
    return found and check_found(found, found.run == run)


def newest(rows: Transaction, run: str) -> Entry | None:
    """The newest row of a run."""
    found = rows.newest_of_run(run)
    return found and check_found(found, found.run == run)


def past(rows: Transaction, run: str, seq: int) -> Past:
    """What the rows of a run before this number amount to."""
    return Past.of(entry for entry in of_run(rows, run) if entry.seq < seq)


def check_found(entry: Entry, wanted: bool) -> Entry:
    """A row that an index led to, which a flipped bit may have bent."""
    if not wanted:
        raise LedgerError(f"row {entry.seq}: an index leads to it wrongly. {WAY_OUT}")
    return check_hash(entry)


def refund_key(run: str) -> str:
    """Key of a run's one refund."""
    return canonical(["refund", run])
