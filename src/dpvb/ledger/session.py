"""What a process holds of an open ledger, and how none of it comes through a fork.

No connection survives a fork: SQLite's locks and a server's conversation belong to one process. And a fork is another
process: the runs that were charged before it are not for it to go on with.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from threading import RLock
from typing import final

from dpvb.guards.errors import LedgerError
from dpvb.ledger.store import Store


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
