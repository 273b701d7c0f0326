"""Parties of federated runs in processes of their own, and mailboxes to them: for tests."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import test_cli_federate

import dpvb
from dpvb.federated.channel import Channel
from dpvb.federated.config import Certificate
from dpvb.federated.keys import Identity
from dpvb.federated.mailbox_server import Mailbox
from dpvb.federated.transport import Address, Reply
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
        script = Path(__file__).with_name("mailbox_client.py")
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


def certificate(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """A certificate for 127.0.0.1, its key, and its authority."""
    (folder / name).mkdir()
    return Certificate.generate("127.0.0.1").save(folder / name / "server.pem")


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
def parties(
    folder: Path, names: tuple[str, ...], top: str, model: str = "max_row_norm = 1"
) -> Iterator[dict[str, Party]]:
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
    rewrite(folder / "server.toml", "127.0.0.1:9092", "127.0.0.1:0")
    try:
        yield found
    finally:
        for party in found.values():
            party.kill()


def rewrite(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def connect(folder: Path, found: dict[str, Party], *, ledger: bool = True) -> str:
    """Start the server, and tell the clients where it is; its address."""
    found["server"].start()
    address = re.search(r"clients at (\S+)\.\n", found["server"].wait_for("Waiting for"))
    assert address is not None
    for name in found:
        if name != "server":
            rewrite(folder / f"{name}.toml", '"127.0.0.1:9092"', f'"{address[1]}"')
            if ledger:
                rewrite(folder / f"{name}.toml", "[data]", f'ledger = "{name}.db"\ndataset = "people"\n[data]')
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
    rewrite(folder / "server.toml", "out = ", 'folder = "server.state"\nout = ')
    rewrite(folder / "server.toml", "127.0.0.1:0", connect(folder, found, ledger=ledger))
    join(found)


def assert_simulated(folder: Path, names: tuple[str, ...], trust: str, num_rounds: int) -> None:
    """The model file has the very numbers of a simulation without noise."""
    shards = [(np.load(folder / f"{name}.x.npy"), np.load(folder / f"{name}.y.npy")) for name in names]
    simulated = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, max_row_norm=1.0, random_state=7)
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
