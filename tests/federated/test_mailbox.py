"""The mailbox, with real processes on loopback: its two ends, whole runs, and kills."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import test_cli_federate

import dpvb
from dpvb.errors import FederationError, ParameterError
from dpvb.federated.address import Address, parse_address
from dpvb.federated.certificates import Certificate
from dpvb.federated.channel import Channel
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox.client import serve
from dpvb.federated.mailbox.server import Mailbox
from dpvb.federated.transport import Reply
from dpvb.ledger import Ledger

SERVER = Identity.generate("server")
LOOPBACK = Address("127.0.0.1", 0)


class Client:
    """A process that runs `mailbox_client.py`."""

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.identity, self.diary = identity, folder / f"{identity.name}.asked"
        self._key, self._folder = folder / f"{identity.name}.key", folder
        if not self._key.exists():
            identity.save(self._key)
        self.process: subprocess.Popen[str] | None = None

    def start(
        self, address: Address, *, certificate: str = "", server_key: bytes = SERVER.public, patience: float = 200.0
    ) -> None:
        script = Path(__file__).parents[1] / "mailbox_client.py"
        arguments = [self._key, server_key.hex(), address, self.diary, certificate, patience]
        self.process = subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, timeout: float = 200.0) -> tuple[int, str]:
        """Exit code, and what it said."""
        assert self.process is not None
        said, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, said

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def federation(folder: Path, *names: str, **options: object) -> Iterator[tuple[object, dict[str, Client], list[str]]]:
    """A mailbox, clients that are not started yet, and what the mailbox tells."""
    clients = {name: Client(folder, Identity.generate(name)) for name in names}
    channel = Channel(SERVER, {name: client.identity.public for name, client in clients.items()})
    told: list[str] = []
    with ExitStack() as stack:
        link = Mailbox(channel, names, tell=told.append, **{"address": LOOPBACK, **options})
        stack.callback(link.close)
        for client in clients.values():
            stack.callback(client.kill)
        yield link, clients, told


def polled(link: object, count: int, timeout: float = 200.0) -> list[Reply]:
    found: list[Reply] = []
    deadline = time.monotonic() + timeout
    while len(found) < count and time.monotonic() < deadline:
        found += link.poll(1.0)
    return found


def test_an_address() -> None:
    assert parse_address("localhost:80") == ("localhost", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert str(parse_address("[::1]:80")) == "[::1]:80"
    local = ["127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "localhost:1"]
    others = ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example.org:1", "127.0.0.1.example.org:1"]
    assert [parse_address(text).is_loopback for text in local + others] == [True] * 4 + [False] * 5
    for text in ("localhost", "localhost:", ":80", "::1:80", "[::1]", "a:b", "a:65536", "[a]:80", ""):
        with pytest.raises(ParameterError, match="host:port"):
            parse_address(text)


def certificate(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """A certificate for 127.0.0.1, its key, and its authority."""
    (folder / name).mkdir()
    return Certificate.generate("127.0.0.1").save(folder / name / "server.pem")


def test_bytes_travel_whoever_starts_first_and_whoever_is_killed(tmp_path: Path) -> None:
    own, key, authority = certificate(tmp_path, "own")
    with federation(tmp_path, "a", "b", tls=(own, key)) as (link, clients, told):
        assert link.clients == ("a", "b")
        early = link.send("a", b"before anybody is here")
        for client in clients.values():
            client.start(link.address, certificate=str(authority))
        assert link.wait(200.0) == ()
        assert polled(link, 1) == [(early, "a", b"BEFORE ANYBODY IS HERE")]
        assert link.poll(0.0) == []

        large = bytes(range(97, 123)) * 250_000  # 6.5 MB: Flower cuts it into two pieces.
        tickets = link.broadcast(large)
        replies = polled(link, 2)
        assert sorted(replies) == sorted(zip(tickets, link.clients, [large.upper()] * 2, strict=True))

        # The slower one, which answers when it is told to, is not waited for.
        slow, quick = link.send("a", b"wait"), link.send("b", b"quick")
        assert polled(link, 1) == [(quick, "b", b"QUICK")]
        clients["a"].diary.with_suffix(".go").touch()
        assert polled(link, 1) == [(slow, "a", b"WAIT")]

        # Killed while it answers; the same bytes reach it when it is back, and the answer comes.
        ticket = link.send("b", b"die")
        assert clients["b"].end()[0] == -9
        assert link.poll(0.5) == []
        clients["b"].start(link.address, certificate=str(authority))
        assert polled(link, 1) == [(ticket, "b", b"DIE")]
        assert clients["b"].diary.read_bytes().splitlines()[-2:] == [b"die", b"die"]
        assert [line.split(",")[0] for line in told if line.startswith("b ")] == ["b is here", "b is back"]

        start = time.monotonic()
        for _ in range(10):
            link.broadcast(b"x" * 10_000)
            assert len(polled(link, 2)) == 2
        assert time.monotonic() - start < 30  # Seconds; a process for each message would take minutes.

        link.broadcast(b"bye")
        assert sorted(reply.data for reply in polled(link, 2)) == [b"BYE", b"BYE"]
        for client in clients.values():
            code, said = client.end()
            assert (code, {*said.splitlines()}) == (0, {f"connected to {link.address}."})
        with pytest.raises(ParameterError, match="'a', 'b', got 'c'"):
            link.send("c", b"")


def test_a_stranger_is_sent_away_and_nothing_is_sent_to_it(tmp_path: Path) -> None:
    with federation(tmp_path, "a", patience=3.0) as (link, clients, told):
        (tmp_path / "elsewhere").mkdir()
        stranger = Client(tmp_path / "elsewhere", Identity.generate("a"))  # The name, but not the key.
        misled = Client(tmp_path, clients["a"].identity)  # The key, but it expects another server.
        ticket = link.send("a", b"for a alone")
        stranger.start(link.address)
        misled.start(link.address, server_key=Identity.generate("other").public)
        assert polled(link, 1) == [(ticket, "a", None)]  # The patience is over.
        deadline = time.monotonic() + 200
        while None in (stranger.process.poll(), misled.process.poll()) and time.monotonic() < deadline:
            assert link.poll(0.2) == []
        for client in (stranger, misled):
            code, said = client.end()
            assert code == 1
            assert "sends 'a' away: no client of this name and key is known here" in said
            assert not client.diary.exists()
        assert len(told) == 1  # Once for each reason: two million strangers fill no disk.
        assert "was not sealed with its key" in told[0]

        # Another version of the wire, and whatever else is called, gets a sentence; a body is not waited for.
        for path, status in (("/dpvb/4", 404), ("/v1/fleet/register-node", 404), ("/dpvb/5", 401)):
            asked = http.client.HTTPConnection(link.address.host, link.address.port)
            asked.putrequest("PUT", path)
            asked.putheader("Content-Length", str(2**31))
            asked.endheaders()
            answer = asked.getresponse()
            assert answer.status == status
            assert (b"speaks version 5 of the wire" in answer.read()) == (status == 404)
            asked.close()


@pytest.mark.slow
def test_a_client_that_does_not_trust_the_servers_certificate_says_so(tmp_path: Path) -> None:
    own, key, _ = certificate(tmp_path, "own")
    _, _, other = certificate(tmp_path, "other")
    with federation(tmp_path, "a", tls=(own, key)) as (link, clients, told):
        clients["a"].start(link.address, certificate=str(other), patience=1.0)
        assert link.wait(3.0) == ("a",)
        code, said = clients["a"].end()
        assert code == 1
        assert "the certificate of the server at" in said
        assert "self-signed certificate in certificate chain" in said
        assert told == []


def test_faults_are_found_at_the_start(tmp_path: Path) -> None:
    channel = Channel(SERVER, {})
    with pytest.raises(ParameterError, match="can be reached from other machines"):
        Mailbox(channel, (), address=Address("0.0.0.0", 0))
    own, key, _ = certificate(tmp_path, "own")
    _, other, _ = certificate(tmp_path, "other")
    with pytest.raises(FederationError, match="do not belong together"):
        Mailbox(channel, (), address=LOOPBACK, tls=(own, other))
    with pytest.raises(FederationError, match=r"certificate: .* cannot be read"):
        Mailbox(channel, (), address=LOOPBACK, tls=(tmp_path / "none", key))
    with Mailbox(channel, (), address=LOOPBACK) as link, pytest.raises(FederationError, match="in use"):
        Mailbox(channel, (), address=link.address)
    with pytest.raises(FederationError, match=r"out of reach for 0 s"):  # Nobody is there any more.
        serve(channel, "server", bytes.upper, address=link.address, patience=lambda: 0.0, ended=lambda: False)
    told: list[str] = []
    with pytest.raises(FederationError, match=r"out of reach for 0\.2 s"):
        serve(
            channel,
            "server",
            bytes.upper,
            address=link.address,
            patience=lambda: 0.2,
            ended=lambda: False,
            tell=told.append,
        )
    assert [one.partition("; ")[2] for one in told] == ["it is tried again for 0.2 s at most."]


class Party:
    """A `dpvb federate` command in a process of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._folder = name, folder
        self.process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self, *more: str) -> None:
        self._starts += 1
        side = "server" if self.name == "server" else "client"
        call = [sys.executable, "-c", "from dpvb.cli import app; app()", "federate", side, "--config"]
        with open(self._log("out"), "wb") as out, open(self._log("err"), "wb") as err:
            self.process = subprocess.Popen(
                [*call, str(self._folder / f"{self.name}.toml"), "--log-file", str(self.log), *more],
                stdout=out,
                stderr=err,
            )

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.jsonl"

    def _log(self, kind: str) -> Path:
        return self._folder / f"{self.name}.{self._starts}.{kind}"

    def said(self) -> str:
        return self._log("err").read_text()

    def out(self) -> str:
        return self._log("out").read_text()

    def wait_for(self, word: str, timeout: float = 200.0) -> str:
        """Wait until it has said a word."""
        deadline = time.monotonic() + timeout
        while word not in self.said():
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return self.said()

    def children(self) -> list[str]:
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [child for task in tasks for child in task.read_text().split()]

    def end(self, code: int = 0, timeout: float = 200.0) -> None:
        assert self.process is not None
        assert self.process.wait(timeout) == code, self.said()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()


@contextmanager
def parties(folder: Path, names: tuple[str, ...], top: str, model: str = "row_norm = 1") -> Iterator[dict[str, Party]]:
    """A server that listens on a free port, and clients with rows and a ledger each; none is started yet."""
    rng = np.random.default_rng(3)
    for name in names:
        x_nd = rng.uniform(-1, 1, (400, 3))
        np.save(folder / f"{name}.x.npy", x_nd)
        np.save(folder / f"{name}.y.npy", (rng.random(400) < 1 / (1 + np.exp(-3 * x_nd[:, 0]))).astype(int))
        with Ledger(folder / f"{name}.db") as made:
            made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
    data = {"file": "{name}.x.npy", "target": "{name}.y.npy"}
    test_cli_federate.write_files(folder, top, model, data, names)
    found = {name: Party(folder, name) for name in ("server", *names)}
    edit(folder / "server.toml", "127.0.0.1:9092", "127.0.0.1:0")
    try:
        yield found
    finally:
        for party in found.values():
            party.kill()


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def connect(folder: Path, found: dict[str, Party], *, ledger: bool = True) -> str:
    """Start the server, and tell the clients where it is; its address."""
    found["server"].start()
    address = re.search(r"clients at (\S+)\.\n", found["server"].wait_for("waiting for"))
    assert address is not None
    for name in found:
        if name != "server":
            edit(folder / f"{name}.toml", '"127.0.0.1:9092"', f'"{address[1]}"')
            if ledger:
                edit(folder / f"{name}.toml", "[data]", f'ledger = "{name}.db"\ndataset = "people"\n[data]')
    return address[1]


def join(found: dict[str, Party]) -> None:
    """Start the clients, and wait until all have accepted."""
    clients = [party for name, party in found.items() if name != "server"]
    for party in clients:
        party.start()
    for party in clients:
        party.wait_for("offer is accepted")


def begin_on_record(folder: Path, found: dict[str, Party], *, ledger: bool = True) -> None:
    """Start a server with a record, which keeps its address, and clients; wait until all have accepted."""
    edit(folder / "server.toml", "out = ", 'folder = "server.state"\nout = ')
    edit(folder / "server.toml", "127.0.0.1:0", connect(folder, found, ledger=ledger))
    join(found)


def assert_simulated(folder: Path, names: tuple[str, ...], trust: str, num_rounds: int) -> None:
    """The model file has the very numbers of a simulation without noise."""
    shards = [(np.load(folder / f"{name}.x.npy"), np.load(folder / f"{name}.y.npy")) for name in names]
    simulated = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, row_norm=1.0, random_state=7)
    dpvb.federated.simulate(simulated, shards, trust=trust, num_rounds=num_rounds)
    np.testing.assert_array_equal(dpvb.load(folder / "model.dpvb").coef_, simulated.coef_)


def charges(path: Path) -> int:
    with Ledger(path) as ledger:
        ledger.verify()
        return sum(entry.kind in ("charge", "sole") for entry in ledger.entries())


TOP = (
    'kind = "LogisticRegression"\nepsilon = {epsilon}\ndelta = 1e-5\nnum_rounds = {rounds}\ntrust = "{trust}"\n'
    "width = 3"
)
#: Rounds that take seconds, so that a party which is killed early in a run is killed in it, on a busy machine too.
LONG = 200
#: Rounds that three kills and as many starts fit into.
MANY = 1000


@pytest.mark.slow
def test_a_run_from_the_command_line_in_which_a_client_and_the_server_are_killed(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="secure_aggregation")) as found:
        begin_on_record(tmp_path, found)
        found["north"].process.kill()
        found["north"].end(-signal.SIGKILL)
        assert [found["server"].children(), found["south"].children()] == [[], []]
        found["north"].start()
        found["server"].wait_for("north is back")
        found["server"].process.kill()
        found["server"].end(-signal.SIGKILL)
        found["server"].start()
        for party in found.values():
            party.end()
        for name in names:
            assert "the run is over: the run is complete." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1
            assert "sees nothing but sums over at least 2 of 2 clients" in found[name].out().replace(
                "\n               ", " "
            )
        model = dpvb.load(tmp_path / "model.dpvb")
        assert model.privacy_.epsilon <= 1.0
        logs = {
            name: [json.loads(line) for line in party.log.read_text().splitlines()] for name, party in found.items()
        }
        starts = {name: sum(line["event"] == "start" for line in log) for name, log in logs.items()}
        assert starts == {"server": 2, "north": 2, "south": 1}
        assert {log[-1]["exit_code"] for log in logs.values()} == {0}
        assert logs["server"][-3]["message"] == model.privacy_.brief
        assert any(line["event"] == "step" and line["step"] == line["of"] for line in logs["server"])
        assert model.coef_.shape == (1, 3)
        assert "PRIVACY STATEMENT" in found["server"].out()
        assert not list((tmp_path / "server.state").iterdir())


def test_a_server_that_is_told_to_stop_stops(tmp_path: Path) -> None:
    with parties(tmp_path, ("north", "south"), TOP.format(epsilon=1, rounds=3, trust="none")) as found:
        connect(tmp_path, found)
        assert found["server"].children() == []
        found["server"].process.terminate()
        found["server"].end(128 + signal.SIGTERM)
        assert not (tmp_path / "model.dpvb").exists()


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_servers_that_die_reach_the_very_numbers_of_a_simulation(trust: str, tmp_path: Path) -> None:
    """Killed twice, stopped once, and started again each time; no client notices more than a pause."""
    names = ("north", "south", "west")
    model = "row_norm = 1\nrandom_state = 7"
    with parties(tmp_path, names, TOP.format(epsilon="inf", rounds=MANY, trust=trust), model) as found:
        begin_on_record(tmp_path, found, ledger=False)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            time.sleep(1.5)
            found["server"].process.send_signal(number)
            found["server"].end(-number if number == signal.SIGKILL else 128 + number)
            assert not (tmp_path / "model.dpvb").exists()
            found["server"].start()
            found["server"].wait_for("3 of 3 have come")
        for party in found.values():
            party.end()
        assert_simulated(tmp_path, names, trust, MANY)


@pytest.mark.slow
def test_a_server_that_was_killed_gives_its_run_up(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="none")) as found:
        begin_on_record(tmp_path, found)
        found["server"].process.kill()
        found["server"].end(-signal.SIGKILL)
        found["server"].start("--leave")
        for party in found.values():
            party.end()
        for name in names:
            assert "the run is over: the server has given it up." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1
        assert not (tmp_path / "model.dpvb").exists()
        assert not list((tmp_path / "server.state").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_processes_reach_the_very_numbers_of_a_simulation(trust: str, tmp_path: Path) -> None:
    names = ("north", "south", "west")
    model = "row_norm = 1\nrandom_state = 7"
    with parties(tmp_path, names, TOP.format(epsilon="inf", rounds=5, trust=trust), model) as found:
        connect(tmp_path, found, ledger=False)
        for name in names:
            found[name].start()
        for party in found.values():
            party.end()
        assert_simulated(tmp_path, names, trust, 5)


@pytest.mark.slow
def test_a_run_that_a_server_breaks_off_and_what_its_clients_do_then(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="none")) as found:
        connect(tmp_path, found)
        join(found)
        found["server"].process.terminate()
        found["server"].end(128 + signal.SIGTERM)
        for name in names:
            found[name].end()
            assert "the run is over: the run was broken off." in found[name].said()
            assert charges(tmp_path / f"{name}.db") == 1


@pytest.mark.slow
def test_a_client_that_agrees_to_something_else_is_named_on_both_sides(tmp_path: Path) -> None:
    names = ("north", "south")
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=3, trust="none")) as found:
        connect(tmp_path, found)
        (tmp_path / "other.toml").write_text((tmp_path / "agreement.toml").read_text().replace("3\ntrust", "4\ntrust"))
        edit(tmp_path / "south.toml", "agreement.toml", "other.toml")
        for name in names:
            found[name].start()
        found["server"].end(2)
        found["south"].end(2)
        found["north"].end(0)
        assert "south: the model differs" in found["server"].said()
        assert "error: this client does not take part: the model differs" in found["south"].said()
        assert [charges(tmp_path / f"{name}.db") for name in names] == [1, 0]


@pytest.mark.slow
def test_eight_clients_that_are_killed_all_the_time_give_exactly_what_is_charged(tmp_path: Path) -> None:
    names = tuple(f"site-{m}" for m in range(8))
    rng = np.random.default_rng(11)
    with parties(tmp_path, names, TOP.format(epsilon=1, rounds=LONG, trust="secure_aggregation")) as found:
        connect(tmp_path, found)
        for name in names:
            found[name].start()
            time.sleep(0.5)
        found[names[0]].wait_for("offer is accepted")
        kills = 0
        while found["server"].process.poll() is None and kills < 5:
            victim = found[names[rng.integers(len(names))]]
            if "the run is over" not in victim.said():
                victim.kill()
                victim.start()
                kills += 1
            time.sleep(rng.uniform(0.5, 3))
        for party in found.values():
            party.end(timeout=400.0)
        assert kills >= 3
        # One charge of the plan each: what was interrupted is done again with the same noise, at no cost.
        assert [charges(tmp_path / f"{name}.db") for name in names] == [1] * 8
        assert dpvb.load(tmp_path / "model.dpvb").privacy_.epsilon <= 1.0
