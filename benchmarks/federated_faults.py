"""Eight client processes that are killed, over a network that fails: does every ledger hold exactly what was released?

Each client is a process with a SQLite ledger and a memory folder of its own. Messages are sealed
(`dpvb.federated.channel`) and go through loopback sockets. From a seed, the network delays and so reorders them,
delivers them twice, flips bits, and loses answers; clients die by SIGKILL, most of them while they work on a message,
and start again.

A run must end, its model must predict like that of a run without faults, no two answers to one request may differ in a
byte, and a client's ledger must hold its plan once, and once more each attempt that the server repeated.

    python -m benchmarks.federated_faults [seed]
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import Client as Caller
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import dpvb
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import add, cost_units
from dpvb.errors import FederationError
from dpvb.estimators.base import Task
from dpvb.federated.agreement import Federation
from dpvb.federated.channel import Channel
from dpvb.federated.client import Client, FormOfQ
from dpvb.federated.keys import Identity
from dpvb.federated.messages import Accepted, Request, Share, decode
from dpvb.federated.server import Server
from dpvb.federated.shared import Shared
from dpvb.federated.simulation import columns_of
from dpvb.federated.transport import Reply
from dpvb.federated.trust import Trust
from dpvb.ledger import Ledger

NAMES = tuple(f"client-{m}" for m in range(8))
EPSILON, DELTA, STEPS = 2.0, 1e-5, 6
#: Shares of messages that meet a fault, and seconds.
TWICE, LATE, DAMAGED, LOST, KILLING = 0.2, 0.2, 0.1, 0.1, 0.15
LATEST, WORKING, AGAIN = 0.3, 0.08, 1.0
#: trust, client that dies for good at a step.
RUNS = [
    ("none", None),
    ("secure_aggregation", None),
    ("secure_aggregation", 3),
    ("none", 3),
]


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A client's private rows, of unequal number; of any other name, public ones."""
    rng = np.random.default_rng(list(name.encode()))
    count = 150 * (1 + NAMES.index(name)) if name in NAMES else 20_000
    x_nd = rng.uniform(-0.5, 0.5, (count, 3))
    return x_nd, (x_nd @ [1.0, -0.5, 0.3] + 0.1 * rng.standard_normal(count) > 0).astype(int)


def estimator() -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(epsilon=EPSILON, delta=DELTA, n_steps=STEPS, max_row_norm=1.0, random_state=0)


def task_of(name: str) -> Task:
    return estimator()._task(*rows(name))


def federation_of(publics: dict[str, bytes], trust: str, max_missing: int) -> Federation:
    participants = {name: publics[name] if trust == "secure_aggregation" else b"" for name in NAMES}
    columns = columns_of(task_of(NAMES[0]))
    place = Trust(trust, len(NAMES), max_missing, max_colluding=0)
    return Federation("LogisticRegression", columns, place, EPSILON, DELTA, participants)


# --- a client's process -----------------------------------------------------------------------------------


def work(name: str, folder: Path, address: Any, publics: dict[str, bytes], trust: str, max_missing: int) -> None:
    """Answer what arrives until the process is killed."""
    identity = Identity.load(folder / f"{name}.key")
    channel = Channel(identity, {"server": publics["server"]})
    federation = federation_of(publics, trust, max_missing)
    ledger = folder / f"{name}.db"
    own = identity if trust == "secure_aggregation" else None
    with Client(
        name, task_of(name), federation, identity=own, ledger=ledger, dataset=name, folder=folder / name
    ) as client:
        line = Caller(address, authkey=publics["line"])
        line.send_bytes(name.encode())
        while True:
            message = line.recv_bytes()
            try:
                _, data = channel.open(message[8:])
            except FederationError:
                continue
            line.send_bytes(message[:8] + channel.seal("server", client.answer(data)))


# --- the network ------------------------------------------------------------------------------------------


@dataclass
class Outstanding:
    """A message without an answer."""

    client: str
    data: bytes
    due: float


@dataclass
class Network:
    """A transport that fails, and what it has seen.

    Attributes:
        folder: of keys, ledgers and memories.
        setting: what a client's process is told of its run.
        rng: of the faults; None: there are none.
        fatal: name of a client and the step at which it dies for good.
    """

    folder: Path
    identities: dict[str, Identity]
    setting: tuple[str, int]
    rng: random.Random | None = None
    fatal: tuple[str, int] | None = None
    seen: Counter[str] = field(default_factory=Counter)
    answers: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    asked: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._key = os.urandom(32)
        self._publics = {name: identity.public for name, identity in self.identities.items()} | {"line": self._key}
        self._channel = Channel(self.identities["server"], {name: self._publics[name] for name in NAMES})
        self._listener = Listener(("127.0.0.1", 0), backlog=2 * len(NAMES), authkey=self._key)
        self._lines: dict[str, Connection[Any, Any]] = {}
        self._outstanding: dict[int, Outstanding] = {}
        self._late: list[tuple[float, Reply]] = []
        self._doomed: dict[str, float] = {}
        self._gone: set[str] = set()
        self._tickets = 0
        self._known = FormOfQ(task_of("server"), Shared()).classes
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["dpvb.federated.client", "dpvb.estimators.generalized_linear"])
        Thread(target=self._accept, daemon=True).start()
        self._processes = {name: self._started(name) for name in NAMES}

    @property
    def clients(self) -> tuple[str, ...]:
        return NAMES

    def send(self, client: str, data: bytes) -> int:
        self._tickets += 1
        delay = self.rng.uniform(0, LATEST) if self._happens(LATE, "late") else 0.0
        self._outstanding[self._tickets] = Outstanding(client, data, time.monotonic() + delay)
        message = decode(data, self._known)
        if isinstance(message, Request):
            self.asked.setdefault(client, set()).add((message.step, message.attempt))
            if self.fatal == (client, message.step):
                self._gone.add(client)
                self._processes[client].kill()
        return self._tickets

    def poll(self, timeout: float) -> list[Reply]:
        end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            self._kill(now)
            for ticket, message in list(self._outstanding.items()):
                if message.client in self._gone:
                    del self._outstanding[ticket]
                    return [Reply(ticket, message.client, None)]
                if message.due <= now:
                    self._deliver(ticket, message, now)
            self._hear(0.01)
            landed = [reply for due, reply in self._late if due <= now and reply.ticket in self._outstanding]
            self._late = [(due, reply) for due, reply in self._late if due > now]
            if landed:
                for reply in landed:
                    self._outstanding.pop(reply.ticket, None)
                return landed
            if now > end:
                return []

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()
        self._listener.close()

    def _started(self, name: str) -> Any:
        told = (name, self.folder, self._listener.address, self._publics, *self.setting)
        process = self._context.Process(target=work, args=told, daemon=True)
        process.start()
        return process

    def _accept(self) -> None:
        while True:
            try:
                line = self._listener.accept()
                self._lines[line.recv_bytes().decode()] = line
            except (EOFError, multiprocessing.AuthenticationError):
                continue
            except OSError:
                if self._listener._listener is None:  # type: ignore[attr-defined]
                    return

    def _happens(self, share: float, name: str) -> bool:
        happens = self.rng is not None and self.rng.random() < share
        self.seen[name] += happens
        return happens

    def _deliver(self, ticket: int, message: Outstanding, now: float) -> None:
        line = self._lines.get(message.client)
        message.due = now + (AGAIN if line is not None else 0.05)
        if line is None:
            return
        self.seen["delivered"] += 1
        sealed = bytearray(self._channel.seal(message.client, message.data))
        if self._happens(DAMAGED, "damaged"):
            assert self.rng is not None
            sealed[self.rng.randrange(len(sealed))] ^= 1 << self.rng.randrange(8)
            message.due = now + 0.1
        if self._happens(KILLING, "killed"):
            assert self.rng is not None
            self._doomed.setdefault(message.client, now + self.rng.uniform(0, WORKING))
        try:
            for _ in range(1 + self._happens(TWICE, "twice")):
                line.send_bytes(ticket.to_bytes(8, "little") + bytes(sealed))
        except OSError:
            self._lines.pop(message.client, None)

    def _hear(self, timeout: float) -> None:
        lines = {line: name for name, line in list(self._lines.items())}
        if not lines:
            time.sleep(timeout)
            return
        for line in wait(list(lines), timeout):
            name = lines[line]  # type: ignore[index]
            try:
                message = line.recv_bytes()  # type: ignore[union-attr]
            except (EOFError, OSError):
                if self._lines.get(name) is line:
                    del self._lines[name]
                continue
            sender, data = self._channel.open(message[8:])
            ticket = int.from_bytes(message[:8], "little")
            if sender != name:
                raise AssertionError(f"{name} speaks as {sender}")
            self._check(name, data)
            if not self._happens(LOST, "lost"):
                delay = self.rng.uniform(0, LATEST) if self._happens(LATE, "late") else 0.0
                self._late.append((time.monotonic() + delay, Reply(ticket, name, data)))

    def _check(self, name: str, data: bytes) -> None:
        answer = decode(data)
        if isinstance(answer, (Share, Accepted)):
            asked = answer.request if isinstance(answer, Share) else answer.offer
            self.answers.setdefault((name, asked), set()).add(sha256(data).hexdigest())

    def _kill(self, now: float) -> None:
        for name, due in list(self._doomed.items()):
            if due <= now and name not in self._gone:
                del self._doomed[name]
                self._lines.pop(name, None)
                self._processes[name].kill()
                self._processes[name].join()
                self._processes[name] = self._started(name)
                for message in self._outstanding.values():
                    if message.client == name:
                        message.due = min(message.due, now + 0.05)


# --- a run ------------------------------------------------------------------------------------------------


def charged(path: Path, name: str) -> tuple[int, list[int]]:
    """Number of charges in a client's ledger, and their total in whole units."""
    with Ledger(path) as ledger:
        ledger.verify()
        found = [entry for entry in ledger.entries() if entry.dataset == name and entry.kind in ("charge", "sole")]
    return len(found), [int(part) for part in found[-1].totals.strip("[]").split(",")] if found else []


def right(network: Network, plan: Any, name: str) -> bool:
    """Whether a client's ledger holds the plan, and every attempt beyond the first that it was asked for."""
    again = [step for step, attempt in sorted(network.asked.get(name, ())) if attempt and name not in network._gone]
    total = cost_units(Composition(plan.events(), plan.neighboring_relation))
    for step in again:
        total = add(total, cost_units(Composition([plan.releases[step].event()], plan.neighboring_relation)))
    return charged(network.folder / f"{name}.db", name) == (1 + len(again), list(total))


def run(folder: Path, trust: str, fatal: int | None, rng: random.Random | None) -> tuple[Any, ...]:
    """A fit; its accuracy on public rows or the error that ended it, the network, and which ledgers are right."""
    max_missing = int(fatal is not None and trust == "secure_aggregation")
    identities = {name: Identity.generate(name) for name in (*NAMES, "server")}
    for name, identity in identities.items():
        identity.save(folder / f"{name}.key")
        if name != "server":
            with Ledger(folder / f"{name}.db") as ledger:
                ledger.register(
                    name, unit="row", neighboring_relation="add_or_remove_one", epsilon=10 * EPSILON, delta=DELTA
                )
    publics = {name: identity.public for name, identity in identities.items()}
    federation = federation_of(publics, trust, max_missing)
    dies = None if fatal is None else (NAMES[2], fatal)
    network = Network(folder, identities, (trust, max_missing), rng, dies)
    model = estimator()
    plans = []

    try:
        task = model._task(**model.no_rows(schema=None, vocabulary=None, width=3))
        server = Server(task, federation, network, timeout=120.0)
        plans.append(server._plan)
        q = server.run(np.random.default_rng(0))
        model.privacy_ = server.statement(task.public)
        model._take(task, q)
        x_nd, y_n = rows("public")
        end = f"{np.mean(model.predict(x_nd) == y_n):.3f}"
    except FederationError as error:
        end = "ended: " + str(error).split(". ")[0]
    finally:
        network.close()
    return end, network, [right(network, plans[0], name) for name in NAMES]


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    print(
        f"{len(NAMES)} client processes, {STEPS + 2} releases each, epsilon {EPSILON:g}, seed {seed}. Of deliveries "
        f"{DAMAGED:.0%} are damaged, {TWICE:.0%} doubled, {KILLING:.0%} kill their client; {LATE:.0%} are late by up "
        f"to {LATEST:g} s; of answers {LOST:.0%} are lost. 'dies': a client is gone for good from this release on. "
        "Under secure aggregation max_colluding=0.\n"
    )
    head = ("trust", "dies", "delivered", "damaged", "twice", "late", "lost", "killed", "differ", "ledgers")
    widths = [19, 5, 10, 8, 6, 5, 5, 7, 7, 8]
    print("".join(f"{text:<{width}}" for text, width in zip(head, widths, strict=True)) + "s    accuracy (no faults)")
    good = True
    for number, (trust, fatal) in enumerate(RUNS):
        with tempfile.TemporaryDirectory() as quiet, tempfile.TemporaryDirectory() as faulty:
            expected, network, ledgers = run(Path(quiet), trust, None, None)
            good &= all(ledgers) and all(len(given) == 1 for given in network.answers.values())
            begun = time.monotonic()
            end, network, ledgers = run(Path(faulty), trust, fatal, random.Random(1000 * seed + number))
            seconds = time.monotonic() - begun
        differ = sum(len(given) > 1 for given in network.answers.values())
        numbers = [str(network.seen[name]) for name in head[2:8]]
        shown = [trust, "-" if fatal is None else str(fatal), *numbers, str(differ), f"{sum(ledgers)} of 8"]
        row = "".join(f"{text:<{width}}" for text, width in zip(shown, widths, strict=True))
        print(f"{row}{seconds:<5.0f}{end} ({expected})", flush=True)
        ends = end.startswith("ended") if fatal is not None and trust == "none" else not end.startswith("ended")
        good &= differ == 0 and all(ledgers) and ends and not expected.startswith("ended")
        if good and not end.startswith("ended"):
            good = abs(float(end) - float(expected)) < 0.05
    print(f"\n{'Every ledger is exact, and every run ends as it must.' if good else 'SOMETHING IS WRONG.'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
