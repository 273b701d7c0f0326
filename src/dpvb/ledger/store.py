"""What a database must do for a ledger; everything else, all rules included, is said once, above it.

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
from typing import Protocol, final

from dpvb.guards.errors import LedgerError
from dpvb.ledger.chain import Entry
from dpvb.ledger.head import Head


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

    @abstractmethod
    def since(self, seq: int) -> Iterator[Entry]:
        """The rows with this number and all later ones, in order; found by the primary key alone."""

    @abstractmethod
    def forms(self, dataset: str) -> list[tuple[int, int]]:
        """For each form and kind of charges of a data set: the number of one such row, and how many there are."""

    @abstractmethod
    def append(self, entry: Entry, head: Head) -> None:
        """Insert a row; `head` describes the ledger after it, for a store that keeps it within the transaction."""

    @abstractmethod
    def _where(self, condition: str, value: int | str) -> list[Entry]:
        """The rows that meet a condition in SQL, in which "?" stands for a value."""

    def row(self, seq: int) -> Entry | None:
        """The row of this number; found by the primary key alone."""
        return self._one("seq = ?", seq)

    def keyed(self, key: str) -> Entry | None:
        """The row of this key."""
        return self._one("key = ?", key)

    def of_run(self, run: str) -> list[Entry]:
        """The rows of a run, in order."""
        return self._where("run = ? ORDER BY seq", run)

    def first_of_run(self, run: str) -> Entry | None:
        """The first row of a run."""
        return self._one("run = ? ORDER BY seq LIMIT 1", run)

    def newest_of_run(self, run: str) -> Entry | None:
        """The last row of a run."""
        return self._one("run = ? ORDER BY seq DESC LIMIT 1", run)

    def first_charge(self, dataset: str) -> Entry | None:
        """The first charge of a data set."""
        return self._one("dataset = ? AND totals <> '' ORDER BY seq LIMIT 1", dataset)

    def of_form(self, form: str) -> list[Entry]:
        """The charges and refunds of this form, in order."""
        return self._where("form = ? AND totals <> '' ORDER BY seq", form)

    def events(self, body: str) -> list[Entry]:
        """The events that say this and nothing else, in order."""
        return self._where("kind = 'event' AND body = ? ORDER BY seq", body)

    def _one(self, condition: str, value: int | str) -> Entry | None:
        return next(iter(self._where(condition, value)), None)


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
        """The head that is kept outside the rows, None if there is none; of a shared store what its rows say."""

    def settle(self, head: Head) -> None:
        """Return once the head kept outside is durable and this one or a later one of this chain; after each commit."""

    def check(self) -> Sequence[str]:
        """Look for damage below the rows (pages, indices, triggers); return what was found, in words."""

    def close(self) -> None:
        """Let go of the database; calling it again does nothing."""
