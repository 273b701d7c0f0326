"""The head: where a ledger's chain ended, kept outside the rows, to detect a ledger that was set back.

The newest head that this user of this machine has seen is kept outside of the ledger, so that others cannot set both
back. `$XDG_STATE_HOME/dpvb/heads/UUID` (`~/.local/state` if that is not set) holds the newest head acknowledged here.
So a copy that is used in parallel with the original, a backup restored together with its head, an older dump of a
database and a replica that lags are detected by each user who has seen more.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dpvb.guards.errors import LedgerError
from dpvb.guards.file_ownership import new_own, state_folder
from dpvb.guards.untrusted import parsed_json, say
from dpvb.ledger.chain import FORMAT, canonical, genesis

_NAME = re.compile("[0-9A-Za-z-]{1,64}")


class Seen:
    """The newest head of one ledger that this user has seen.

    Args:
        uuid: of the ledger.
    """

    def __init__(self, uuid: str) -> None:
        # The database reports this name, and another user may have chosen it.
        name = uuid if _NAME.fullmatch(uuid) else hashlib.sha256(uuid.encode()).hexdigest()
        #: The file.
        self.path = state_folder() / "heads" / name
        self._newest: tuple[str, Head] | None = None  # Last content of the file, and its meaning.

    def head(self) -> Head | None:
        """The head that was kept; None if nothing was, or if it cannot be read.

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
        if not text:  # A power cut came between its name and its bytes; no run waits for them.
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
                before = self.head()
                if before is not None:
                    check(before)
                if before is None or before.seq < head.seq:
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
    """The remedy where a ledger and this file disagree."""
    return (
        f"Restore the newest copy of the ledger. Delete {path}, which records what this user has seen, only if you "
        "know that nothing was charged since."
    )


_remarked = False


def _remark(path: Path, error: OSError) -> None:
    """Say once a process that nothing is remembered."""
    global _remarked
    if not _remarked:
        _remarked = True
        say(
            f"{path}: cannot be used ({error.strerror}), so that a ledger set back together with its head is not "
            "detected. Point XDG_STATE_HOME to a folder of your own."
        )


@dataclass(frozen=True)
class Head:
    """The end of a chain.

    Attributes:
        uuid: of the ledger.
        seq, hash: of the last row; 0 and the genesis hash if there is none.
        datasets: for each data set the numbers of its registration and of its newest charge (0 for none): what decides
            a charge is found by these and the primary key, never by an index that a flipped bit could change.
        file: SHA-256 of the database file, if it was closed with everything in it; else "".
    """

    uuid: str
    seq: int
    hash: str
    datasets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    file: str = ""

    def text(self) -> str:
        """As it is kept: canonical JSON with its own SHA-256."""
        body = canonical({"format": FORMAT, **asdict(self)})
        return canonical({"head": body, "sha256": hashlib.sha256(body.encode()).hexdigest()})

    @staticmethod
    def first(uuid: str) -> Head:
        """The head of a ledger without rows."""
        return Head(uuid, 0, genesis(uuid))

    def of_file(self, digest: str) -> Head:
        """The head with the SHA-256 of the database file."""
        return replace(self, file=digest)

    @staticmethod
    def read(text: str) -> Head:
        """The head that a text says.

        Raises:
            LedgerError: if it was changed, or has another format.
        """
        try:
            outer = parsed_json(text)
            body, digest = str(outer["head"]), str(outer["sha256"])
            if text != canonical(outer) or hashlib.sha256(body.encode()).hexdigest() != digest:
                raise ValueError("hash")
            facts = parsed_json(body)
            if facts.pop("format") != FORMAT:
                raise LedgerError(f"The head has a format other than {FORMAT}, which this version of dpvb reads.")
            facts["datasets"] = {name: (row, charge) for name, (row, charge) in facts["datasets"].items()}
            head = Head(**facts)
            numbers = [head.seq, *(number for pair in head.datasets.values() for number in pair)]
            texts = [head.uuid, head.hash, head.file]
            if any(type(n) is not int or not 0 <= n < 2**63 for n in numbers) or any(type(t) is not str for t in texts):
                raise TypeError("not the fields of a head")
            return head
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LedgerError("The head was changed: its own hash does not fit.") from error
