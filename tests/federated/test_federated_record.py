"""A server that dies, at any moment, and another one that takes over: the same q, and nothing charged twice.

Three clients with 60 rows, as in test_federated. Without noise all tests are deterministic.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from test_federated import (
    EVERY_TRUST,
    ROUNDS,
    Around,
    around,
    charged,
    dealt,
    numbers,
    price,
    rows,
    unreachable,
)
from wire import decode, encode

from dpvb.errors import CheckpointError, FederationError
from dpvb.federated.messages import Accepted, Request
from dpvb.federated.record import Recorded
from dpvb.federated.server import Server
from dpvb.federated.transport import InProcess, Reply


class Killed(BaseException):
    """The server's end, which it does not see coming."""


class Mortal(InProcess):
    """A transport with which the server dies at a call of send or poll: before it is done, or just after."""

    def __init__(self, handlers: Any, calls: int, *, after: bool = False) -> None:
        super().__init__(handlers)
        self._left, self._after = calls, after
        self.gone: list[bytes] = []  # What may have reached a client.

    def send(self, client: str, data: bytes) -> int:
        self._die(before=True)
        ticket = super().send(client, data)
        self.gone.append(data)
        self._die(before=False)
        return ticket

    def poll(self, timeout: float) -> list[Reply]:
        self._die(before=True)
        replies = super().poll(timeout)
        self._die(before=False)
        return replies

    def _die(self, *, before: bool) -> None:
        self._left -= before
        if self._left < 0 and before != self._after:
            raise Killed


class Silent(Mortal):
    """Clients that cannot be reached do not say so. Time passes when nothing comes, and only then."""

    now = 0.0

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dpvb.federated.record.time.monotonic", lambda: cls.now)

    def poll(self, timeout: float) -> list[Reply]:
        replies = [reply for reply in super().poll(timeout) if reply.data is not None]
        Silent.now += not replies
        return replies


def served(
    made: Around,
    transport: InProcess,
    folder: Path,
    *,
    ready: Callable[[Collection[str]], object] = lambda names: None,
    **options: Any,
) -> tuple[Any, Server]:
    """Run a server with a record, to its end."""
    with Recorded(transport, folder, ready) as record:
        server = Server(made.tasks[0], made.federation, record, **options)
        return server.run(np.random.default_rng(0)), server


def taken_over(
    made: Around,
    folder: Path,
    lives: Sequence[int],
    *,
    after: bool = False,
    kind: Callable[..., Mortal] = Mortal,
    **options: Any,
) -> tuple[Any, Server, int]:
    """Run a federation in servers that die after so many calls each, and a last one; q, that one, number of deaths."""
    deaths = 0
    for calls in [*lives, 10**9]:
        try:
            q, server = served(made, kind(made.handlers, calls, after=after), folder, **options)
        except Killed:
            deaths += 1
        else:
            return q, server, deaths
    raise AssertionError("the last one lives")


def killed(made: Around, folder: Path) -> None:
    """A server that dies on its way."""
    with pytest.raises(Killed):
        served(made, Mortal(made.handlers, 12), folder)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.mark.guarantees("takeover")
@EVERY_TRUST
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 13])
def test_a_server_that_dies_at_any_call_is_taken_over(trust: str, after: bool, every: int, tmp_path: Path) -> None:
    """The same bits of q as without a death, at every call that there is."""
    whole = around(trust).run()
    calls, deaths = 0, 1
    while deaths:
        q, _, deaths = taken_over(around(trust), tmp_path / f"{calls}", [calls], after=after)
        assert same(q, whole)
        calls += every
    assert calls > 3 * ROUNDS


@pytest.mark.guarantees("takeover")
@kills("crashes", "a trusted server noises a sum twice", "7-trusted_server")
@edit("core/wall.py", "total = recorded(journal, step, release, np.float64)", "total = None")
@edit("federated/record.py", "INSERT INTO releases", "INSERT OR REPLACE INTO releases")
@EVERY_TRUST
@pytest.mark.parametrize("life", [7, pytest.param(9, marks=pytest.mark.slow)])
def test_servers_that_die_all_the_time_charge_nobody_twice(trust: str, life: int, ledger: Path, tmp_path: Path) -> None:
    made = around(trust, epsilon=1.0, ledger=ledger)
    _, server, deaths = taken_over(made, tmp_path / "server", [life] * 200)
    assert deaths >= 5
    for name in "abc":
        assert charged(ledger, name) == price(made.plan)
    assert server.statement([]).epsilon <= 1.0
    for client in made.clients.values():
        assert isinstance(decode(client.answer(encode(made.offer("next")))), Accepted)  # They know that it is over.


@EVERY_TRUST
@pytest.mark.parametrize(
    ("step", "silent"),
    [(0, False), (3, True), *(pytest.param(*other, marks=pytest.mark.slow) for other in [(0, True), (3, False)])],
)
def test_who_was_missed_then_is_missed_again(
    trust: str, step: int, silent: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Out of reach, or silent until the timeout: servers that die go on as one that lives."""
    Silent.install(monkeypatch)
    found = []
    for lives in ([], [23 if step else 13], [9] * 5):
        made = around(trust, max_missing=1)
        made.handlers["b"] = unreachable(made.handlers["b"], range(step, ROUNDS))
        kind, folder = Silent if silent else Mortal, tmp_path / f"{len(lives)}"
        q, server, deaths = taken_over(made, folder, lives, kind=kind, timeout=5.0)
        assert deaths == len(lives)
        found.append((q, server._clients))
    for q, clients in found:
        assert clients == found[0][1]
        assert same(q, found[0][0])


@pytest.mark.guarantees("takeover")
@kills("crashes", "a trusted server that forgets for whom it waited in vain, and noises another sum", "4-after")
@edit("federated/record.py", "if self._has_looked:", "if False:")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_trusted_server_noises_no_second_sum_of_a_step(
    after: bool, every: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client is waited for in vain, and back when the server has died: clients still see one q of each step.

    A sum with it, noised and told as well, would be a release that nobody is charged for.
    """
    Silent.install(monkeypatch)
    calls, deaths = 0, 1
    while deaths:
        made = around("trusted_server", epsilon=1.0, max_missing=1)
        made.handlers["b"] = unreachable(made.handlers["b"], [3], 1)
        transports: list[Mortal] = []

        def kind(*given: Any, transports: list[Mortal] = transports, **more: Any) -> Mortal:
            transports.append(Silent(*given, **more))
            return transports[-1]

        folder = tmp_path / f"{calls}"
        _, _, deaths = taken_over(made, folder, [calls], after=after, kind=kind, timeout=5.0)
        gone = {data: decode(data) for transport in transports for data in transport.gone}
        steps = sorted(message.step for message in gone.values() if isinstance(message, Request))
        assert steps == list(range(ROUNDS))
        calls += every
    assert calls > 3 * ROUNDS


def test_a_run_that_fails_ends_for_everybody(ledger: Path, tmp_path: Path) -> None:
    made = around("none", epsilon=1.0, ledger=ledger)
    made.handlers["b"] = unreachable(made.handlers["b"], range(3, ROUNDS))
    with pytest.raises(FederationError, match="2 of 3 clients take part"):
        taken_over(made, tmp_path / "server", [9])
    for client in made.clients.values():
        assert isinstance(decode(client.answer(encode(made.offer("next")))), Accepted)


@pytest.mark.parametrize("changes", [{"shards": dealt(*rows(), 10, 25), "max_missing": 1}, {"epsilon": 2.0}])
def test_another_run_does_not_go_on_from_a_record(changes: dict[str, Any], tmp_path: Path) -> None:
    """Another agreement: refused before a client hears of it."""
    made = around("none", epsilon=1.0)
    killed(made, tmp_path / "server")
    other = around("none", **{"epsilon": 1.0, **changes})
    deaf = InProcess(dict.fromkeys("abc", pytest.fail))
    with pytest.raises(CheckpointError, match=r"asked something else.*--leave"):
        served(other, deaf, tmp_path / "server")
    served(made, InProcess(made.handlers), tmp_path / "server")  # Nothing of this did any harm.


def test_clients_are_waited_for_only_where_they_are_needed(tmp_path: Path) -> None:
    """By a new run, and by one that goes on; not by one that had done with them. Waiting takes no time of the run."""
    made, waited = around("none", epsilon=1.0), []

    def lived(calls: int) -> None:
        def ready(names: Collection[str]) -> None:
            waited.append(calls)
            time.sleep(0.6)

        served(made, Mortal(made.handlers, calls), tmp_path / "server", ready=ready, timeout=0.5)

    with pytest.raises(Killed):
        lived(12)
    lived(10**9)
    lived(10**6)
    assert waited == [12, 10**9]


def test_a_run_can_be_given_up(ledger: Path, tmp_path: Path) -> None:
    made = around("none", epsilon=1.0, ledger=ledger)
    killed(made, tmp_path / "server")
    with Recorded(InProcess(made.handlers), tmp_path / "server") as record:
        assert record.continues
        assert record.offer is not None
        Server(made.tasks[0], made.federation, InProcess(made.handlers)).dismiss(record.offer, "enough")
        record.end()
    with Recorded(InProcess(made.handlers), tmp_path / "server") as record:
        assert not record.continues
        Server(made.tasks[0], made.federation, record).run(np.random.default_rng(0))
    for name in "abc":
        assert charged(ledger, name)[0] == 2


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    made = around("trusted_server", epsilon=1.0)
    transport = InProcess(made.handlers)
    with (
        Recorded(transport, tmp_path / "server"),
        pytest.raises(FederationError, match="another server uses this folder"),
    ):
        Recorded(transport, tmp_path / "server")
    with pytest.raises(CheckpointError, match="No such file"):
        Recorded(transport, tmp_path / "no" / "server")
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="File exists"):
        Recorded(transport, tmp_path / "file")
    (tmp_path / "server" / "run.sqlite").write_bytes(b"no database, but long enough to be looked at " * 100)
    with pytest.raises(CheckpointError, match="not a database"):
        Recorded(transport, tmp_path / "server")
    killed(made, tmp_path / "flipped")
    with closing(sqlite3.connect(tmp_path / "flipped" / "run.sqlite")) as file:
        file.execute("UPDATE events SET data = zeroblob(length(data)) WHERE poll = 2")
        file.commit()
    with pytest.raises(CheckpointError, match="damaged"):
        served(made, transport, tmp_path / "flipped")
    made = around("trusted_server", epsilon=1.0)
    killed(made, tmp_path / "sums")
    database = tmp_path / "sums" / "run.sqlite"
    database.chmod(0o644)
    with pytest.raises(CheckpointError, match="others may read or write it"):
        Recorded(transport, tmp_path / "sums")
    database.chmod(0o600)
    for statement, match in (
        ("UPDATE releases SET step = 1", "another step's|asked something else"),
        ("CREATE VIEW events_more AS SELECT * FROM events", "its tables are not as they were made"),
        ("UPDATE releases SET data = zeroblob(length(data))", "not a dpvb model file"),
        ("PRAGMA user_version = 0", "an earlier version of dpvb began its run"),
    ):
        copy = shutil.copytree(tmp_path / "sums", tmp_path / f"sums {match[:9]}")
        with closing(sqlite3.connect(copy / "run.sqlite")) as file:
            file.execute(statement)
            file.commit()
        with pytest.raises(CheckpointError, match=match):
            served(made, transport, copy)


LOOK = """
import sys
from dpvb.errors import DpvbError
from dpvb.federated.record import Recorded
try:
    Recorded(None, sys.argv[1])
    print("in")
except DpvbError as error:
    print(error)
"""


@kills("crashes", "a second server drops the locks of the first")
@edit("federated/record.py", "os.O_RDWR | os.O_CREAT | os.O_EXCL", "os.O_RDWR | os.O_CREAT")
def test_a_second_server_in_the_process_lets_no_other_process_in(tmp_path: Path) -> None:
    """Closing any descriptor of a file would drop the locks of all of this process's databases on it."""
    look = [sys.executable, "-c", LOOK, str(tmp_path / "server")]
    with Recorded(InProcess({}), tmp_path / "server"):
        for _ in range(3):
            with pytest.raises(FederationError, match="another server uses this folder"):
                Recorded(InProcess({}), tmp_path / "server")
            said = subprocess.run(look, capture_output=True, text=True, check=True).stdout
            assert "another server uses this folder" in said
    assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == "in\n"


def test_a_record_is_its_owners_alone_and_is_gone_after_the_run(tmp_path: Path) -> None:
    made = around("trusted_server", epsilon=1.0)
    killed(made, tmp_path / "server")
    files = sorted((tmp_path / "server").iterdir())
    assert [path.name for path in files] == ["run.sqlite"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "server").stat().st_mode & 0o777 == 0o700
    with Recorded(InProcess(made.handlers), tmp_path / "server") as record:
        Server(made.tasks[0], made.federation, record).run(np.random.default_rng(0))
        record.end()
    assert not list((tmp_path / "server").iterdir())


def test_a_full_disk_stops_a_server_that_can_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Clients are not sent home by it."""
    made = around("none", epsilon=1.0)
    with Recorded(InProcess(made.handlers), tmp_path / "server") as record:
        write = record._write
        turns = iter(range(10**6))

        def full(*more: Any) -> None:
            if next(turns) == 12:
                record._file.execute("PRAGMA max_page_count = 1")
                record._unwritten = [(event, bytes(10**6)) for event, _ in record._unwritten]
            write(*more)

        monkeypatch.setattr(record, "_write", full)
        with pytest.raises(CheckpointError, match=r"is full.*Free disk space"):
            Server(made.tasks[0], made.federation, record).run(np.random.default_rng(0))
    with Recorded(InProcess(made.handlers), tmp_path / "server") as record:
        assert record.continues
        Server(made.tasks[0], made.federation, record).run(np.random.default_rng(0))
