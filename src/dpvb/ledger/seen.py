"""What this user of this machine has seen of a ledger, kept outside of it: nobody else can set both back at once.

`$XDG_STATE_HOME/dpvb/heads/UUID` (`~/.local/state` if that is not set) holds the newest head acknowledged here.
So a copy that is used beside the original, a backup restored together with its head, an older dump of a database and a
replica that lags are found out by whoever has seen more.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dpvb.guards.errors import LedgerError
from dpvb.guards.own import new_own
from dpvb.guards.strangers import say
from dpvb.ledger.head import Head

_NAME = re.compile("[0-9A-Za-z-]{1,64}")


class Seen:
    """The newest head of one ledger that this user has seen.

    Args:
        uuid: of the ledger.
    """

    def __init__(self, uuid: str) -> None:
        # A database says this name, and somebody else may have chosen it.
        name = uuid if _NAME.fullmatch(uuid) else hashlib.sha256(uuid.encode()).hexdigest()
        state = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):  # Such a one is to be ignored, says the specification.
            state = os.path.join(os.path.expanduser("~"), ".local", "state")
        #: The file.
        self.path = Path(state, "dpvb", "heads", name)
        self._newest: tuple[str, Head] | None = None  # What the file said last, and what that means.

    def head(self) -> Head | None:
        """What was kept; None if nothing was, or if it cannot be read.

        Raises:
            LedgerError: if the file was changed.
        """
        try:
            text = self.path.read_text("ascii").strip("\0\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            _remark(self.path, error)
            return None
        except UnicodeDecodeError:
            text = "?"
        if not text:  # A power cut came between its name and its bytes, which nobody waits for.
            return None
        if self._newest is not None and self._newest[0] == text:
            return self._newest[1]
        try:
            head = Head.read(text)
        except LedgerError as error:
            raise LedgerError(f"{self.path}: {error} {way_out(self.path)}") from error
        self._newest = text, head
        return head

    def keep(self, head: Head, check: Callable[[Head], None]) -> None:
        """Keep a head unless a later one is kept.

        Args:
            head: the newest that was acknowledged.
            check: holds what is kept against the chain; it raises LedgerError if it is of another one.
        """
        try:
            with self._turn():
                kept = self.head()
                if kept is not None:
                    check(kept)
                if kept is None or kept.seq < head.seq:
                    text = head.text()
                    with new_own(self.path, sync=False) as file:
                        file.write(f"{text}\n".encode())
                    self._newest = text, head
        except OSError as error:
            _remark(self.path, error)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def way_out(path: Path) -> str:
    """What to do where a ledger and this file disagree."""
    return (
        "Restore the newest copy of the ledger. Only who knows that nothing was charged since may delete "
        f"{path}, which remembers what was seen."
    )


_remarked = False


def _remark(path: Path, error: OSError) -> None:
    """Say once a process that nothing is remembered."""
    global _remarked
    if not _remarked:
        _remarked = True
        say(
            f"{path}: cannot be used ({error.strerror}), so that a ledger set back together with its head is not "
            "found out. Point XDG_STATE_HOME to a folder of your own."
        )
