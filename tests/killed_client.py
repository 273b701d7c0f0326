"""A client for a process of its own, which answers a script of messages and is killed at a named point."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import numpy as np
from killed_fit import die
from small_models import D, Location, table

from dpvb.core.model import constant
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.estimators.base import Task
from dpvb.federated.agreement import Federation
from dpvb.federated.client import Client
from dpvb.federated.keys import Identity
from dpvb.federated.memory import Memory
from dpvb.federated.messages import Farewell, Offer, Request, decode, digest, encode
from dpvb.federated.trust import Trust
from dpvb.guards.version import __version__
from dpvb.ledger import Ledger
from dpvb.results.declared import declared
from dpvb.runs.checkpoint import Checkpoint

# Each child is forked from one process that has imported everything and has no threads.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["dpvb.federated.client", "dpvb.ledger.sqlite", "small_models"])

#: What is called, whether the process dies before or after it, and at which call; a wall without data is met twice.
MARKS: dict[str, tuple[Any, str, str, int]] = {
    "before the charge": (Ledger, "charge", "before", 1),
    "after the charge": (Ledger, "charge", "after", 1),
    "before the offer is remembered": (Memory, "accept", "before", 1),
    "after the yes is written": (Memory, "_write", "after", 1),
    "after the offer is remembered": (Memory, "accept", "after", 1),
    "before a release is bound": (Memory, "begin", "before", 2),
    "after a release is bound": (Memory, "begin", "after", 2),
    "before the data are read": (Wall, "_sums", "before", 4),
    "after the data are read": (Wall, "_sums", "after", 4),
    "after the noise is drawn": (Checkpoint, "seal", "before", 2),
    "after it is written": (Checkpoint, "seal", "after", 2),
    "before it is on record": (Ledger, "append", "before", 2),
    "after it is on record": (Ledger, "append", "after", 2),
    "before the answer is kept": (Memory, "keep", "before", 2),
    "after the answer is kept": (Memory, "keep", "after", 2),
    "after a release beyond a gap is bound": (Memory, "begin", "after", 3),
    "after one beyond a gap is written": (Checkpoint, "seal", "after", 3),
    "after one beyond a gap is on record": (Ledger, "append", "after", 3),
    "before a repeated one is charged": (Ledger, "charge", "before", 2),
    "after a repeated one is charged": (Ledger, "charge", "after", 2),
    "after a repeated one is bound": (Memory, "begin", "after", 4),
    "after a repeated one is written": (Checkpoint, "seal", "after", 4),
    "before a repeated answer is kept": (Memory, "keep", "before", 4),
    "before the end": (Memory, "end", "before", 1),
    "after the end is remembered": (Memory, "end", "after", 1),
    "before the ledger hears of the end": (Ledger, "append", "last", 1),
}
#: (step, attempt, participants) of every request; release 2 is passed over, and release 3 repeated.
STEPS = [(0, 0, "abc"), (1, 0, "abc"), (3, 0, "abc"), (3, 1, "ab")]
Q = np.full(D, 0.25)
TRUST = Trust("secure_aggregation", 3, 1)
_IDENTITIES = {name: Identity(name, hashlib.sha256(name.encode()).digest()) for name in "abc"}


def client(ledger: str, folder: str) -> Client:
    """Always the same client."""
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (20, D))
    plan = phased(Location().blocks, FullBatch(), [1.0] * 5, unit="row")
    task = Task(Location(), table(rows), plan, constant(1.0), [], {}, lambda plan: plan)
    participants = {name: identity.public for name, identity in _IDENTITIES.items()}
    federation = Federation("Location", "columns", TRUST, 1.0, 1e-5, participants)
    return Client("a", task, federation, identity=_IDENTITIES["a"], ledger=ledger, dataset="a", folder=folder)


def script(made: Client) -> list[bytes]:
    """An offer, which the client accepts by this, requests and a farewell."""
    plan = TRUST.planned(phased(Location().blocks, FullBatch(), [1.0] * 5, unit="row"), epsilon=1.0, delta=1e-5)
    offer = Offer(
        version=__version__,
        run="run",
        kind="Location",
        model=declared(Location()),
        columns="columns",
        multipliers=tuple(release.mechanism.noise_multiplier for release in plan),
        trust="secure_aggregation",
        participants={name: identity.public for name, identity in _IDENTITIES.items()},
        max_missing=1,
        unit="row",
        neighboring_relation="add_or_remove_one",
    )
    name, drawn = digest(encode(offer)), {"a": decode(made.answer(encode(offer))).nonce}
    asked = [Request(name, step, attempt, tuple(names), Q, drawn) for step, attempt, names in STEPS]
    return [encode(message) for message in (offer, *asked, Farewell(name, "the run is complete"))]


def main(ledger: str, folder: str, out: str, mark: str) -> None:
    """Answer the script, putting each answer down, until the mark."""
    if mark:
        die(*MARKS[mark])
    with client(ledger, folder) as made:
        for number, message in enumerate(script(made)):
            (Path(out) / str(number)).write_bytes(made.answer(message))


def killed(ledger: Path, folder: Path, out: Path, mark: str) -> dict[int, bytes]:
    """The answers that a process gave before it died."""
    out.mkdir()
    child = SERVER.Process(target=main, args=(str(ledger), str(folder), str(out), mark))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    return {int(path.name): path.read_bytes() for path in out.iterdir()}
