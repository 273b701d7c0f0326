"""Interface of a database for a ledger. All rules of a ledger are above it, in `state`.

A database holds two tables:

    ledger (uuid, format, created)                      one row
    entry  (the columns of chain.COLUMNS)               seq is its primary key, key is unique

Indices: entry (run, seq); entry (dataset, seq) and entry (dataset, form, kind) for rows with totals <> ''. Triggers
refuse UPDATE and DELETE on both tables; INSERT of a row that does not follow the last one; of one with totals that are
not those of the data set's newest such row plus its cost, each at most 2^62, or whose `units` exceed those of its data
set's registration (its key is "dataset/NAME"), a "sole" charge excepted.

A process holds an open ledger in a `Session`, of which nothing comes through a fork. No connection survives a fork:
SQLite's locks and a server's conversation belong to one process. And a fork is another process: the runs that were
charged before it are not for it to go on with.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from threading import RLock
from typing import Any, Protocol, final

from dpvb.guards.errors import LedgerError
from dpvb.ledger.chain import COLUMNS, WAY_OUT, Entry, check_hash, refused
from dpvb.ledger.head import Head
from dpvb.ledger.run_history import Past


@final
class Session:
    """A ledger as one process has it open.

    Attributes:
        lock: of the threads that use it.
        store: the open database, if it is open.
        tokens: by run, of the runs that this process may go on with.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.store: Store | None = None
        self.tokens: dict[str, str] = {}
        _ALIVE.add(self)

    def close(self) -> None:
        """Let go of the database."""
        store, self.store = self.store, None
        if store is not None:
            store.close()


_ALIVE: weakref.WeakSet[Session] = weakref.WeakSet()
_locked: list[Session] = []


def _before_fork() -> None:
    _locked.extend(_ALIVE)
    for session in _locked:
        session.lock.acquire()
        with suppress(LedgerError):
            session.close()


def _in_parent() -> None:
    while _locked:
        _locked.pop().lock.release()


def _in_child() -> None:
    for session in _locked:
        session.tokens.clear()
    _in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


class Transaction(ABC):
    """One consistent look at the rows, or the exclusive right to append."""

    #: Additional conditions on rows of earlier versions, in SQL.
    _EARLIER = ""

    @abstractmethod
    def since(self, seq: int) -> Iterator[Entry]:
        """Return the rows with this number and all later ones, in order; found only by the primary key."""

    def forms(self, dataset: str, *, earlier: bool = False) -> list[tuple[int, int]]:
        """For each form and kind of charges of a data set: the number of one such row, and how many there are.

        Args:
            dataset: Name of the data set.
            earlier: Whether rows are left out that no earlier version can have written, if the store can tell.
        """
        condition = f"dataset = ? AND totals <> ''{self._EARLIER if earlier else ''} GROUP BY form, kind"
        return [(int(seq), int(count)) for seq, count in self._query("min(seq), count(*)", condition, dataset)]

    @abstractmethod
    def append(self, entry: Entry, head: Head) -> None:
        """Insert a row; `head` describes the ledger after it, for a store that keeps it within the transaction."""

    @abstractmethod
    def _query(self, columns: str, condition: str, value: int | str) -> list[Any]:
        """Columns of the rows that meet a condition in SQL, in which "?" stands for a value."""

    def row(self, seq: int) -> Entry | None:
        """Return the row of this number; found only by the primary key."""
        return self._first("seq", seq)

    def keyed(self, key: str) -> Entry | None:
        """Return the row of this key."""
        return self._first("key", key)

    def of_run(self, run: str) -> list[Entry]:
        """Return the rows of a run, in order."""
        return self._checked("run", run)

    def first_of_run(self, run: str) -> Entry | None:
        """Return the first row of a run, its first charge."""
        return self._first("run", run)

    def newest_of_run(self, run: str) -> Entry | None:
        """Return the last row of a run."""
        return self._first("run", run, "ORDER BY seq DESC")

    def first_charge(self, dataset: str) -> Entry | None:
        """Return the first charge of a data set."""
        return self._first("dataset", dataset, "AND totals <> '' ORDER BY seq")

    def refunds(self, dataset: str) -> list[Entry]:
        """Return the refunds of a data set, in order."""
        return self._checked("dataset", dataset, "AND kind = 'refund' AND totals <> '' ORDER BY seq")

    def of_form(self, form: str) -> list[Entry]:
        """Return the rows of this form that an earlier version may have written, in order."""
        return self._checked("form", form, f"AND totals <> ''{self._EARLIER} ORDER BY seq")

    def events(self, body: str) -> list[Entry]:
        """Return the events with this body, in order."""
        return self._checked("body", body, "AND kind = 'event' ORDER BY seq")

    def past(self, run: str, *, seq: int) -> Past:
        """Return what the rows of a run before this number amount to."""
        return Past.of(entry for entry in self.of_run(run) if entry.seq < seq)

    def _first(self, column: str, value: int | str, order: str = "ORDER BY seq") -> Entry | None:
        return next(iter(self._checked(column, value, f"{order} LIMIT 1")), None)

    def _checked(self, column: str, value: int | str, order: str = "ORDER BY seq") -> list[Entry]:
        """Return the rows with a value in a column: an index leads to them, which a flipped bit may have changed."""
        entries = [entry_of(row) for row in self._query(", ".join(COLUMNS), f"{column} = ? {order}", value)]
        for entry in entries:
            if getattr(entry, column) != value:
                raise refused(entry, "an index leads to it wrongly")
            check_hash(entry)
        return entries


def entry_of(values: Sequence[object]) -> Entry:
    """Return the row with these values of its columns, or raise LedgerError."""
    if any(type(value) is not kind for value, kind in zip(values, COLUMNS.values(), strict=True)):
        raise LedgerError(f"A row is damaged: a column has another type than it was written with. {WAY_OUT}")
    return Entry(*values)  # type: ignore[arg-type]


class Store(Protocol):
    """A database with its ledger in it; all its failures are LedgerError.

    Attributes:
        uuid: of the ledger.
        shared: whether others than its owner may append: their rows are taken as `State.follow` says.
    """

    uuid: str
    shared: bool

    def transaction(self, *, write: bool) -> AbstractContextManager[Transaction]:
        """Begin; commit durably at the end, or roll back if an exception passes.

        A writing transaction has the exclusive right to append from its first moment on, before it has read anything.
        It waits for others, at most about half a minute.
        """

    def head(self) -> Head | None:
        """Return the head that is kept outside the rows, or None. A shared store derives it from the rows."""

    def settle(self, head: Head) -> None:
        """Return once the head kept outside is durable and this one or a later one of this chain; after each commit."""

    def check(self) -> Sequence[str]:
        """Look for damage below the rows (pages, indices, triggers); return what was found, in words."""

    def grant(self, role: str, *, append: bool) -> list[str]:
        """Give a role the right to look, and to append; see `Ledger.grant`."""

    def close(self) -> None:
        """Let go of the database; calling it again does nothing."""
