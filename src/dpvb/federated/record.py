"""The server's record of a run: a transport whose answers are on the disk before the server hears them.

A server is a function of the answers that it gets, of their order, and of the time that they take. So one that died
goes on by hearing them again: it asks what it asked before, which the record checks, and gets from the disk what came.
Where the record ends it is where the other one was. Open requests are sent once more, the same bytes, which cost a
client nothing. To make the repetition exact, the server's clock moves only when the server sends and when it polls.

    run.sqlite      name of the run, seed of its start; what was sent and what came, in order, with the server's time;
                    under trusted_server, the sums with the server's noise

Under trusted_server the answers are sums without noise: the folder is then as secret as they are. Their sum is noised
once: it is on record before the server uses it, and what is not on record left nothing behind.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, Self, final

from dpvb.core.journal import Sums
from dpvb.federated import messages
from dpvb.federated.transport import Reply, Transport
from dpvb.guards import file_ownership
from dpvb.guards.errors import CheckpointError, FederationError, ModelFileError, check_path
from dpvb.results import model_file

_TABLES: Final = (
    "CREATE TABLE run (name TEXT NOT NULL, seed INTEGER NOT NULL) STRICT",
    "CREATE TABLE events (number INTEGER PRIMARY KEY, poll INTEGER, ticket INTEGER NOT NULL, "
    "client TEXT NOT NULL, digest TEXT, time REAL NOT NULL, data BLOB) STRICT",
    "CREATE INDEX polls ON events (poll)",
    "CREATE TABLE releases (step INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT",
)
#: Version of the record's form; a reader refuses another one.
FORMAT: Final = 3
# Polls without an answer after which a repeated server is taken to differ from the recorded one.
_MOST_EMPTY: Final = 3


class _Event(NamedTuple):
    """A message with the digest of its bytes; None where a client was out of reach."""

    poll: int | None
    ticket: int
    client: str
    digest: str | None
    time: float


@final
class Recorded:
    """A transport with a record, and the journal of a server that adds noise.

    Args:
        transport: what carries the bytes.
        folder: where the record lies, for one server at a time; made if it is missing, its parent must exist.
        ready: called before this server sends something for the first time, with the names of all clients, or of those
            whom a server that goes on asks first; may wait for them, which takes no time of the run.

    Raises:
        CheckpointError: if the folder cannot be used.
        FederationError: if another server uses it.
    """

    def __init__(
        self,
        transport: Transport,
        folder: str | os.PathLike[str],
        ready: Callable[[Collection[str]], object] = lambda names: None,
    ) -> None:
        self.transport: Final = transport
        self._folder = check_path("folder", folder).absolute()
        self._open: dict[int, tuple[str, bytes]] = {}
        self._tickets: dict[int, int] = {}  # The transport's tickets, to those of the record.
        self._unwritten: list[tuple[_Event, bytes | None]] = []
        self._count = self._polls = self._empty = 0
        self._has_looked = True
        self._ready: Callable[[Collection[str]], object] | None = ready
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            file_ownership.check_own_folder(self._folder)
            with suppress(FileExistsError):  # A database that is there is opened only by SQLite, which locks it.
                os.close(os.open(self._folder / "run.sqlite", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            for name in ("run.sqlite", "run.sqlite-journal"):
                with suppress(FileNotFoundError):
                    file_ownership.check_own(self._folder / name)
        except OSError as error:
            raise self._unusable(error.strerror) from error
        self._file = sqlite3.connect(self._folder / "run.sqlite", timeout=0.0, isolation_level=None)
        try:
            self.run, self.seed, self._past = self._read()
        except sqlite3.Error as error:
            self._file.close()
            if "locked" in str(error):
                raise FederationError(
                    f"{self._folder}: another server uses this folder. Give each run a folder of its own."
                ) from error
            raise self._unusable(error) from error
        self.offer = self._past[0].digest if self._past else None
        self._goes_on = bool(self._past)
        self._at, self._since = 0.0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients that can be spoken to."""
        return self.transport.clients

    @property
    def continues(self) -> bool:
        """Whether a server that died is still being repeated."""
        return bool(self._past)

    def recorded(self, step: int) -> Sums | None:
        """The noised sums of a step, if they are on record."""
        try:
            row = self._file.execute("SELECT data FROM releases WHERE step = ?", (step,)).fetchone()
            stored = None if row is None else model_file.unpacked(row[0], kind="Release")
        except (sqlite3.Error, ModelFileError) as error:
            raise self._unusable(error) from error
        if stored is not None and stored.facts.get("step") != step:
            raise self._unusable("a release is another step's")
        return None if stored is None else stored.arrays

    def begin(self, step: int) -> None:
        """Nothing is charged here: clients charge."""

    def record(self, step: int, total: Sums) -> None:
        """Record noised sums.

        Raises:
            CheckpointError: if they cannot be written.
        """
        data = model_file.packed(kind="Release", arrays=total, facts={"step": step})
        self._write(("INSERT INTO releases VALUES (?, ?)", (step, data)))

    def now(self) -> float:
        """Seconds of the run when the server sent or looked last."""
        return self._at

    def send(self, client: str, data: bytes) -> int:
        """Send bytes to one client, or find that they were; return the ticket.

        Raises:
            ParameterError: if there is no such client.
            CheckpointError: if another server sent something else here.
        """
        ticket, digest = self._count + 1, messages.digest(data)
        if self._past:
            event = self._past[0]
            if (event.poll, event.ticket, event.client, event.digest) != (None, ticket, client, digest):
                raise self._differs()
            self._open[ticket] = client, data
            self._repeat()
        else:
            self._open[ticket], self._at = (client, data), time.monotonic() - self._since
            self._unwritten.append((_Event(None, ticket, client, digest, self._at), None))
            if self._has_looked:  # Written before a round's first message: a successor asks the same clients.
                self._write()
            self._has_looked = False
            self._pass_on(ticket, client, data)
        self._count, self._empty = ticket, 0
        return ticket

    def poll(self, timeout: float) -> list[Reply]:
        """The answers that have come, now on record; or those that came then.

        Raises:
            CheckpointError: if they cannot be written or read, or another server did not look here.
        """
        return self._heard() if self._past else self._received(timeout)

    def close(self) -> None:
        """Let another server use the folder."""
        self._file.close()

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Forget the run when it is over: done, or come to nothing (a FederationError), which its clients know."""
        try:
            yield
        except FederationError:
            self.end()
            raise
        self.end()

    def end(self) -> None:
        """Forget the run, which is over."""
        self.close()
        for name in ("run.sqlite-journal", "run.sqlite"):  # No journal is left for another's database.
            with suppress(OSError):
                (self._folder / name).unlink()

    def _heard(self) -> list[Reply]:
        """Messages of one poll on record."""
        number = self._past[0].poll
        if number is None:  # It had waited in vain, until it sent what comes next.
            self._at, self._empty = self._past[0].time, self._empty + 1
            if self._empty > _MOST_EMPTY:
                raise self._differs()
            return []
        replies = []
        for data in self._answers(number):
            event = self._past[0]
            if event.digest != _digest(data):
                raise self._unusable("what came is damaged")
            del self._open[event.ticket]
            replies.append(Reply(event.ticket, event.client, data))
            self._repeat()
        self._polls, self._empty = number, 0
        return replies

    def _received(self, timeout: float) -> list[Reply]:
        """Messages of this poll."""
        self._write()
        messages = self.transport.poll(timeout)
        self._at = time.monotonic() - self._since
        replies = [
            Reply(self._tickets.pop(reply.ticket), reply.client, reply.data)
            for reply in messages
            if reply.ticket in self._tickets
        ]
        self._polls += 1
        for ticket, client, data in replies:
            self._unwritten.append((_Event(self._polls, ticket, client, _digest(data), self._at), data))
            del self._open[ticket]
        self._write()
        self._has_looked = True
        return replies

    def _repeat(self) -> None:
        """Take the next event, at its time; after the last, time runs, and what is open is asked for again."""
        self._at = self._past.popleft().time
        if not self._past:
            self._since = time.monotonic() - self._at
            for ticket, (client, data) in self._open.items():
                self._pass_on(ticket, client, data)

    def _pass_on(self, ticket: int, client: str, data: bytes) -> None:
        if self._ready is not None:
            begun, ready, self._ready = time.monotonic(), self._ready, None
            ready({name for name, _ in self._open.values()} if self._goes_on else self.clients)
            self._since += time.monotonic() - begun
        self._tickets[self.transport.send(client, data)] = ticket

    def _read(self) -> tuple[str, int, deque[_Event]]:
        """Name, seed and events of the run, which begins here if there is none."""
        for setting in ("locking_mode = EXCLUSIVE", "synchronous = EXTRA"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.execute("BEGIN EXCLUSIVE")
        tables = {sql for (sql,) in self._file.execute("SELECT sql FROM sqlite_schema")}
        if tables and self._file.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
            raise sqlite3.DatabaseError("an earlier version of dpvb began its run; end it with that version")
        if tables not in (set(), {*_TABLES}):
            raise sqlite3.DatabaseError("its tables are not as they were made")
        if not tables:
            for table in _TABLES:
                self._file.execute(table)
            self._file.execute(f"PRAGMA user_version = {FORMAT}")
        identity = self._file.execute("SELECT name, seed FROM run").fetchone()
        if identity is None:
            identity = secrets.token_hex(16), secrets.randbits(62)
            self._file.execute("INSERT INTO run VALUES (?, ?)", identity)
        events = self._file.execute("SELECT poll, ticket, client, digest, time FROM events ORDER BY number")
        past = deque(_Event(*event) for event in events)
        self._file.execute("COMMIT")
        return *identity, past

    def _answers(self, poll: int) -> list[bytes | None]:
        """The bytes that came in a poll."""
        try:
            rows = self._file.execute("SELECT data FROM events WHERE poll = ? ORDER BY number", (poll,))
            return [data for (data,) in rows]
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _write(self, *more: tuple[str, tuple[object, ...]]) -> None:
        """Bring what is not written yet to the disk, and more with it."""
        if not self._unwritten and not more:
            return
        try:
            self._file.execute("BEGIN")
            rows = [(*event, data) for event, data in self._unwritten]
            self._file.executemany("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)
            for statement, values in more:
                self._file.execute(statement, values)
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise CheckpointError(
                f"{self._folder}: cannot be written ({error}). Free disk space, and run the same command again."
            ) from error
        self._unwritten = []

    def _unusable(self, why: object) -> CheckpointError:
        return CheckpointError(f"{self._folder}: cannot be used for the record of a run ({why}).")

    def _differs(self) -> CheckpointError:
        return CheckpointError(
            f"{self._folder}: the run that was begun here asked something else, so that it cannot be continued. Use "
            "the files, the version of dpvb and the machine that it was begun with; or give it up with --leave."
        )


def _digest(answer: bytes | None) -> str | None:
    return None if answer is None else messages.digest(answer)
