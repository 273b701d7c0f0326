"""Try to break the ledger in every way that we know of, in a file and in PostgreSQL: `python -m benchmarks.break_it`.

One line an attack; the last line is `survived N of M`. An attack is survived if nothing of this happened: a release
that nothing was charged for, a data set above its cap, a change that `verify` did not find (or one that opening did not
find and that raised what may be spent), a charge that was acknowledged and is gone, an error of another type than
dpvb's. The exit status is 1 if an attack was not survived.

    python -m benchmarks.break_it [part of an attack's name ...]
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import pickle
import random
import resource
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path += [f"{sys.path[0]}/{room}" for room in ("cli", "federated", "ledger")]

import joblib
import killed_fit
import numpy as np
import psycopg
import test_cli
import test_cli_runs
import test_federated_client as clients
import test_ledger as in_file
import test_ledger_appenders as appenders
import test_ledger_histories as histories
from postgresql_server import Server, running
from sklearn.base import clone

from dpvb import Run
from dpvb.accounting import Event
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import refund_units
from dpvb.errors import BudgetError, DpvbError, DpvbWarning, LedgerError, ParameterError
from dpvb.federated.messages import Accepted, Farewell, Share, decode, digest, encode
from dpvb.guards import file_ownership
from dpvb.ledger import Ledger, chain, verify_export
from dpvb.ledger.run_history import Past
from dpvb.ledger.state import State
from dpvb.runs.checkpoint import Checkpoint, Seal

PEOPLE: dict[str, Any] = {"unit": "row", "neighboring_relation": "add_or_remove_one", "epsilon": 4.0, "delta": 1e-5}
#: Full size of each attack that has one.
NAMED, RANDOM, FLIPS = 20, 100, 300


@dataclass
class Tally:
    """What an attack did."""

    trials: int = 0
    unpaid: int = 0
    overspent: int = 0
    undetected: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def survived(self) -> bool:
        return self.trials > 0 and not (self.unpaid or self.overspent or self.undetected or self.lost or self.faults)


@dataclass
class Place:
    """Where ledgers are made: one after another in a folder, or each in a database of its own."""

    folder: Path
    server: Server | None
    made: int = 0

    @property
    def name(self) -> str:
        return "SQLite" if self.server is None else "PostgreSQL"

    def empty(self) -> str:
        """Address of no ledger yet."""
        self.made += 1
        if self.server is not None:
            return self.server.new_database()
        folder = self.folder / str(self.made)
        folder.mkdir()
        return str(folder / "budget.db")

    def new(self, **facts: Any) -> str:
        """Address of a ledger with the data set "people"."""
        address = self.empty()
        with Ledger(address) as made, warnings.catch_warnings():
            warnings.simplefilter("ignore", DpvbWarning)  # Some attacks need much room.
            made.register("people", **{**PEOPLE, **facts})
        return address

    def copied(self, address: str) -> str:
        """Address of a copy of a closed ledger."""
        if self.server is None:
            target = self.empty()
            for file in Path(address).parent.glob("budget.db*"):
                shutil.copy(file, Path(target).parent)
            return target
        name = f"copy_{secrets.token_hex(6)}"
        self.server.execute(f"CREATE DATABASE {name} TEMPLATE {database(address)}")
        return self.server.url(name)

    def behind(self, address: str, *statements: str) -> None:
        """Change rows as somebody who can take the triggers away, and sign the file anew."""
        if self.server is None:
            in_file.edited(Path(address), *(statement.replace("dpvb.", "") for statement in statements))
        else:
            self.server.execute("SET session_replication_role = replica", *statements, database=database(address))


@contextlib.contextmanager
def somebody_else(place: Place) -> Iterator[None]:
    """Be a user who has seen nothing yet."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(place.folder / f"user-{secrets.token_hex(4)}")
    try:
        yield
    finally:
        os.environ.pop("XDG_STATE_HOME")
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def database(address: str) -> str:
    return address.split("/")[3].split("?")[0]


def cost(noise: float = 20.0, steps: int = 1) -> Composition:
    return Composition([Event("full_batch", 1.0, noise, steps)], "add_or_remove_one")


def charge(ledger: Ledger, run: str, noise: float = 20.0, digest: str = "plan", dataset: str = "people") -> Any:
    return ledger.charge(dataset, cost(noise), run=run, plan_digest=digest, unit="row")


def spend_all(ledger: Ledger, name: str, noise: float = 6.0) -> int:
    """How many charges are taken before one is refused."""
    number = 0
    while True:
        try:
            charge(ledger, f"{name} {number}", noise)
        except BudgetError:
            return number
        number += 1


def judge(address: str, tally: Tally, acknowledged: set[str] = frozenset(), folder: Path | None = None) -> list[Any]:  # type: ignore[assignment]
    """Add what is wrong with a ledger after an attack; its rows, none if it cannot be read."""
    with Ledger(address) as ledger:
        ledger.verify()
        entries = ledger.entries()
        caps = {one.name: one.cap for one in ledger.datasets()}
    paid: dict[str, int] = {}
    made = Counter[tuple[str, int]]()
    for entry in entries:
        if entry.kind in ("charge", "sole"):
            paid.setdefault(entry.run, entry.seq)
            made.subtract((entry.run, step) for step in entry.facts["steps"] or ())
        if entry.kind == "charge":
            tally.overspent += entry.units > caps[entry.dataset]
        if entry.state == "released":
            tally.unpaid += entry.run not in paid
            made[entry.run, entry.step] += 1
            tally.lost += folder is not None and is_lost(folder, entry)
    tally.unpaid += sum(times > 1 for times in made.values())
    tally.lost += len(acknowledged - set(paid))
    return entries


def is_lost(folder: Path, entry: Any) -> bool:
    """Whether a release is on record that nobody can read."""
    return Checkpoint(folder).release(entry.step, entry.attempt, Seal(entry.digest, entry.unseals)) is None


def forked(work: Callable[[Callable[[str], None]], object], seconds: float | None = None) -> tuple[set[str], int]:
    """Do something in a forked process, killed after so many seconds; what it acknowledged, and its exit status."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        status = 1
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                work(lambda name: os.write(outlet, f"{name}\n".encode()) and None)
            status = 0
        except DpvbError:
            status = 3
        finally:
            os._exit(status)
    os.close(outlet)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(inlet) as pipe:
        names = {line.strip() for line in pipe}
    return names, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Crashes


def fit(address: str, folder: Path, options: dict[str, Any], acknowledge: Callable[[str], None]) -> None:
    """A private fit that says when its charge was acknowledged."""
    plain = Ledger.charge

    def charge_and_say(self: Ledger, *given: Any, **more: Any) -> Any:
        receipt = plain(self, *given, **more)
        acknowledge(more["run"])
        return receipt

    Ledger.charge = charge_and_say  # type: ignore[method-assign]
    try:
        killed_fit.fitted(address, folder, **options)
    finally:
        Ledger.charge = plain  # type: ignore[method-assign]


def goes_on(
    place: Place, tally: Tally, work: Callable[..., None], epsilon: float, seconds: float | None = None
) -> None:
    """Kill a fit, look, let it go on, and look again: one plan is charged, once, and every release is made once."""
    address, folder = place.new(), place.folder / f"run-{tally.trials}-{place.name}"
    names, _ = forked(lambda acknowledge: work(address, folder, {"epsilon": epsilon}, acknowledge), seconds)
    before = judge(address, tally, names, folder)
    options = {"epsilon": epsilon, "resume": "load" if before and before[-1].state == "finished" else "continue"}
    _, status = forked(lambda acknowledge: fit(address, folder, options, acknowledge))
    entries = judge(address, tally, names, folder)
    charges = [entry for entry in entries if entry.kind in ("charge", "sole")]
    steps = [entry.step for entry in entries if entry.state == "released"]
    if status or not any(entry.state == "finished" for entry in entries):
        tally.faults.append(f"the fit did not go on ({status})")
    tally.overspent += len(charges) != 1
    if steps != list(range(len(steps))):
        tally.faults.append("a release is missing, or was made twice")
    shutil.rmtree(folder, ignore_errors=True)
    tally.trials += 1


#: Of the plan and of all: a first plan may take the whole cap.
_PARTS = (1.0, 4.0)


def killed_at_named_points(place: Place, tally: Tally, size: int = NAMED) -> None:
    for point in killed_fit.POINTS:
        for k in range(size):
            count = 1 if "folder" in point or "charge" in point else 1 + k % killed_fit.STEPS

            def work(*given: Any, point: str = point, count: int = count) -> None:
                killed_fit.die(*killed_fit.POINTS[point], count)
                fit(*given)

            goes_on(place, tally, work, _PARTS[k % 2])


def killed_at_random_times(place: Place, tally: Tally, size: int = RANDOM) -> None:
    draw = random.Random(1)
    for k in range(size):
        goes_on(place, tally, fit, _PARTS[k % 2], draw.uniform(0, 0.4))


def killed_while_it_is_made(place: Place, tally: Tally, size: int = 30) -> None:
    draw = random.Random(2)
    for _ in range(size):
        address = place.empty()

        def work(acknowledge: Callable[[str], None], address: str = address) -> None:
            Ledger(address).register("people", **PEOPLE)
            acknowledge("registered")

        names, _ = forked(work, draw.uniform(0, 0.05))
        with Ledger(address) as found:
            found.verify()
            tally.lost += bool(names) and not found.datasets()
            found.register("people", **PEOPLE)
            charge(found, "run")
        tally.trials += 1


def server_stopped_at_random_times(place: Place, tally: Tally, size: int = 5) -> None:
    """The server goes down without a farewell while four processes are charging."""
    assert place.server is not None
    draw = random.Random(3)
    for _ in range(size):
        address = place.new()
        inlet, outlet = os.pipe()
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException), Ledger(address) as ledger:
                    for k in range(10_000):
                        charge(ledger, f"{number}-{k}", 1e4)
                        os.write(outlet, f"{number}-{k}\n".encode())
                os._exit(0)
            children.append(child)
        os.close(outlet)
        time.sleep(draw.uniform(0.3, 1.0))
        place.server.stop()
        with os.fdopen(inlet) as pipe:
            names = {line.strip() for line in pipe}
        for child in children:
            os.waitpid(child, 0)
        place.server.start()
        judge(address, tally, names)
        tally.trials += 1


# Several at once


def raced(place: Place, tally: Tally, sizes: tuple[int, ...] = (2, 8, 32)) -> None:
    """Processes race at the cap, all with a fork of one open ledger."""
    with Ledger(place.new()) as alone:
        most = spend_all(alone, "alone")
    for number in sizes:
        address = place.new()
        with Ledger(address) as ledger:
            inlet, outlet = os.pipe()
            children = []
            for k in range(number):
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        os.write(outlet, f"{spend_all(ledger, f'process {k}')}\n".encode())
                        status = 0
                    finally:
                        os._exit(status)
                children.append(child)
            os.close(outlet)
            with os.fdopen(inlet) as pipe:
                counts = [int(line) for line in pipe]
            if any(os.waitpid(child, 0)[1] for child in children):
                tally.faults.append("a process failed")
            got = ledger.remaining("people").num_charges
        judge(address, tally)
        tally.overspent += got > most
        tally.lost += sum(counts) != got
        if got != most:
            tally.faults.append(f"{number} processes got {got} charges, one alone gets {most}")
        tally.trials += 1


def threads_and_forks(place: Place, tally: Tally) -> None:
    """Two threads on one ledger, and a fork while a thread is charging."""
    with Ledger(place.new()) as alone:
        most = spend_all(alone, "alone")
    address = place.new()
    with Ledger(address) as ledger:
        counts: list[int] = []
        threads = [threading.Thread(target=lambda k=k: counts.append(spend_all(ledger, f"t{k}"))) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tally.overspent += sum(counts) > most
        tally.lost += ledger.remaining("people").num_charges != sum(counts)
        in_another = f"{address}"
    judge(in_another, tally)
    with Ledger(place.new()) as ledger:
        ledger.register("notes", **in_file.FACTS)
        in_file.test_a_fork_while_another_thread_is_charging(ledger)
    tally.trials += 2


# Disks


def disk_full(place: Place, tally: Tally, step: int = 1024) -> None:
    """No file may grow beyond a limit, which is moved up little by little."""
    if place.server is not None:
        return server_disk_full(place, tally)
    for room in [*range(0, 80 * 1024, step), *range(80 * 1024, 400 * 1024, 16 * step)]:
        address = place.new()
        limit = max(0, Path(address).stat().st_size - 8192) + room

        def work(acknowledge: Callable[[str], None], address: str = address, limit: int = limit) -> None:
            ledger = Ledger(address)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            for k in range(2000):
                charge(ledger, f"run-{k}", 1e5)
                acknowledge(f"run-{k}")

        names, status = forked(work)
        if status != 3:
            tally.faults.append(f"with {room} bytes of room the process ended with {status}")
        judge(address, tally, names)
        with Ledger(address) as found:
            charge(found, "afterwards", 1e5)
        tally.trials += 1
    return None


def server_disk_full(place: Place, tally: Tally) -> None:
    assert place.server is not None
    for limit in (2**20 + 2**14, 2**20 + 2**17, 2**20, 2**19, 2**13):
        address = place.new()
        # Only its owner may limit it; the processes that it starts inherit the limit.
        command = ["prlimit", f"--pid={place.server.pid}", f"--fsize={limit}:"]
        owner = place.server.folder.stat()
        as_owner: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        subprocess.run(command, check=True, **(as_owner if os.geteuid() == 0 else {}))

        def work(acknowledge: Callable[[str], None], address: str = address) -> None:
            with Ledger(address) as ledger:
                for k in range(5000):
                    charge(ledger, f"run-{k}", 1e5)
                    acknowledge(f"run-{k}")

        names, status = forked(work)
        with contextlib.suppress(AssertionError):  # It may have given up.
            place.server.stop()
        place.server.start()
        if status != 3:
            tally.faults.append(f"with files of at most {limit} bytes the process ended with {status}")
        judge(address, tally, names)
        with Ledger(address) as found:
            charge(found, "afterwards", 1e5)
        tally.trials += 1


def no_permission(place: Place, tally: Tally) -> None:
    """A folder that may not be written to, and one that may not be read; nothing is spent, and reading goes on."""
    in_file.test_a_folder_that_cannot_be_written_to()
    tally.trials += 4


def network_drives(place: Place, tally: Tally) -> None:
    in_file.test_kinds_of_network_drives()
    for folder in in_file.FOLDERS:
        in_file.test_network_drives_are_seen_whatever_their_folder_is_called(folder)
    tally.trials += 1 + len(in_file.FOLDERS)


# Changes


def original(place: Place) -> str:
    """A ledger closed in order, with registrations, charges, events and a refund."""
    address = place.new()
    with Ledger(address) as made:
        made.register("all", **PEOPLE)
        made.register("north", **PEOPLE, part_of="all")
        for k in range(6):
            charge(made, f"run {k}", 10.0 + k, dataset=("people", "all", "north")[k % 3])
            made.append(f"run {k}", attempt=0, state="released", step=0, digest="ab" * 32)
    return address


def left(address: str) -> dict[str, float]:
    with Ledger(address) as found:
        return {one.name: found.remaining(one.name).epsilon for one in found.datasets()}


def found_out(address: str, before: dict[str, float], tally: Tally) -> None:
    """`verify` must find a change; where opening does not, no more may be left than before."""
    tally.trials += 1
    try:
        with Ledger(address, read_only=True) as found:
            found.verify()
        tally.undetected += 1
    except LedgerError:
        pass
    with contextlib.suppress(LedgerError):
        after = left(address)
        tally.overspent += any(after.get(name, 0.0) > before[name] for name in before)


def flipped_bits(place: Place, tally: Tally, size: int = FLIPS) -> None:
    address = original(place)
    before, draw = left(address), random.Random(4)
    if place.server is None:
        for k in range(size):
            path = Path(place.copied(address))
            flip(path if k % 8 else path.with_name("budget.db.head"), draw)
            found_out(str(path), before, tally)
            shutil.rmtree(path.parent)
        return
    with Ledger(address) as found:
        rows = len(found.entries())
    for _ in range(size):
        target = place.copied(address)
        seq, (name, kind) = draw.randint(1, rows), draw.choice(COLUMNS)
        flipped = f"{name} # {1 << draw.randrange(62)}" if kind is int else flipped_text(name, draw)
        try:
            place.behind(target, f"UPDATE dpvb.entry SET {name} = {flipped} WHERE seq = {seq}")
            found_out(target, before, tally)
        except psycopg.errors.UniqueViolation:  # The database itself keeps numbers and keys apart.
            tally.trials += 1
        place.server.execute(f"DROP DATABASE {database(target)} WITH (FORCE)")


COLUMNS = list(chain.COLUMNS.items())


def flipped_text(name: str, draw: random.Random) -> str:
    """The text with one of the low bits of one character flipped, or with a character where there is none."""
    at, bit = draw.random(), 1 << draw.randrange(6)
    place = f"(1 + floor({at} * length({name})))::int"
    changed = f"overlay({name} placing chr(greatest(ascii(substr({name}, {place}, 1)) # {bit}, 1)) from {place})"
    return f"CASE WHEN {name} = '' THEN 'x' ELSE {changed} END"


def flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def server_files(place: Place, tally: Tally, size: int = 24) -> None:
    """Bits flipped in the server's own file of rows, and the file truncated at each page, while the server is down."""
    assert place.server is not None
    address = original(place)
    before, draw = left(address), random.Random(5)
    name = database(address)
    place.server.execute("CHECKPOINT", database=name)
    [(relative,)] = place.server.execute("SELECT pg_relation_filepath('dpvb.entry')", database=name)
    file = place.server.folder / "data" / relative
    whole = file.read_bytes()
    for k in range(size + len(whole) // 8192):
        place.server.stop()
        if k < size:
            flip(file, draw)
        else:
            os.truncate(file, 8192 * (k - size))
        place.server.start()
        found_out(address, before, tally)
        place.server.stop()
        file.write_bytes(whole)
        place.server.start()
    judge(address, tally)


def truncated(place: Place, tally: Tally) -> None:
    """The file at each page, the head at each tenth byte, and the log of a process that was killed at each page."""
    address = original(place)
    before = left(address)
    for name, stride in (("budget.db", 4096), ("budget.db.head", 10)):
        for end in range(0, Path(address).with_name(name).stat().st_size, stride):
            path = Path(place.copied(address))
            os.truncate(path.with_name(name), end)
            found_out(str(path), before, tally)
    crashed = killed_writer(place)
    with Ledger(place.copied(crashed)) as found:
        before = {"people": found.remaining("people").epsilon}
    log = Path(crashed).with_name("budget.db-wal")
    for end in range(0, log.stat().st_size, 4096 + 24):
        path = Path(place.copied(crashed))
        os.truncate(path.with_name(log.name), end)
        found_out(str(path), before, tally)


def killed_writer(place: Place) -> str:
    """A ledger whose writer was killed: its rows are in the log."""
    address = place.new()

    def work(acknowledge: Callable[[str], None]) -> None:
        ledger = Ledger(address)
        for k in range(6):
            charge(ledger, f"run {k}")
        os.kill(os.getpid(), signal.SIGKILL)

    forked(work)
    return address


def lost_files(place: Place, tally: Tally) -> None:
    """The log, the head or the file gone: found out. The shared memory gone: nothing lost."""
    crashed = killed_writer(place)
    judge(place.copied(crashed), tally, {f"run {k}" for k in range(6)})
    for lost, harmless in (("-wal", False), (".head", False), ("", False), ("-shm", True)):
        path = Path(place.copied(crashed))
        path.with_name(f"budget.db{lost}").unlink(missing_ok=harmless)
        if harmless:
            judge(str(path), tally, {f"run {k}" for k in range(6)})
            tally.trials += 1
        else:
            found_out(str(path), {"people": 0.0}, tally)


def changed_rows(place: Place, tally: Tally) -> None:
    """By somebody who can take triggers away and sign the file: swapped, removed, edited rows; another format."""
    address = original(place)
    before = left(address)
    for statements in (
        [f"UPDATE dpvb.entry SET seq = {a} WHERE seq = {b}" for a, b in ((99, 4), (4, 5), (5, 99))],
        [f"UPDATE dpvb.entry SET seq = {a} WHERE seq = {b}" for a, b in ((99, 14), (14, 15), (15, 99))],
        ["DELETE FROM dpvb.entry WHERE seq = 7"],
        ["DELETE FROM dpvb.entry WHERE seq > 14"],
        ["DELETE FROM dpvb.entry WHERE seq > 4"],
        ["DELETE FROM dpvb.entry"],
        ["UPDATE dpvb.entry SET units = 0 WHERE kind = 'charge'"],
        ["UPDATE dpvb.entry SET units = 9000000000 WHERE kind = 'dataset'"],
        ["UPDATE dpvb.entry SET kind = 'refund' WHERE seq = 4"],
        ["UPDATE dpvb.entry SET dataset = 'north' WHERE dataset = 'people'"],
        ["UPDATE dpvb.ledger SET uuid = 'x'"],
        ["UPDATE dpvb.ledger SET format = 0"],
        ["UPDATE dpvb.ledger SET format = 99"],
        ["DELETE FROM dpvb.ledger"],
        ["DROP INDEX dpvb.entry_run"],
        ["DROP TABLE dpvb.entry" if place.server is None else "DROP TABLE dpvb.entry CASCADE"],
    ):
        target = place.copied(address)
        try:
            place.behind(target, *statements)
        except sqlite3.OperationalError:  # A trigger of a table that is gone.
            assert "DROP TABLE" in statements[0]
        found_out(target, before, tally)
    if place.server is None:
        for version in (0, 2, 99):
            target = place.copied(address)
            with sqlite3.connect(target) as connection:
                connection.execute(f"PRAGMA user_version = {version}")
            connection.close()
            found_out(target, before, tally)
    else:
        for statement in ("DELETE FROM dpvb.head", "UPDATE dpvb.head SET datasets = '{}'"):
            target = place.copied(address)
            place.behind(target, statement)
            found_out(target, before, tally)


def restored_backup(place: Place, tally: Tally) -> None:
    """An older copy of everything: who has seen more refuses it; to anybody else the receipt of a model tells."""
    address = place.new()
    with Ledger(address) as ledger:
        charge(ledger, "early")
    backup = place.copied(address)
    with Ledger(address) as ledger:
        receipts = [charge(ledger, f"late {k}") for k in range(3)]
    for use in (lambda ledger: charge(ledger, "other"), Ledger.verify, lambda ledger: ledger.remaining("people")):
        tally.trials += 1
        with contextlib.suppress(LedgerError), Ledger(backup) as ledger:
            use(ledger)
            tally.undetected += 1
    out = place.folder / f"chain-{place.made}.jsonl"
    for extra in range(4):
        with somebody_else(place), Ledger(backup) as ledger:
            if extra:
                charge(ledger, f"other {extra}")
            ledger.export(out)
            for receipt in receipts:
                tally.trials += 2
                with contextlib.suppress(LedgerError):
                    ledger.verify([receipt])
                    tally.undetected += 1
                with contextlib.suppress(LedgerError):
                    verify_export(out, [receipt])
                    tally.undetected += 1


def older_dumps(place: Place, tally: Tally, size: int = 5) -> None:
    """Dumps put back in the database and beside it: who has seen more refuses; to others a model's receipt tells."""
    assert place.server is not None
    address, dumps, receipts = place.new(), list[str](), list[Any]()
    for k in range(size + 1):
        dumps.append(place.server.run("pg_dump", address))
        with Ledger(address) as ledger:
            receipts.append(charge(ledger, f"run {k}", 1e3))
    for k, dump in enumerate(dumps):
        beside = place.empty()
        for target in (address, beside):
            place.server.execute("DROP SCHEMA IF EXISTS dpvb CASCADE", database=database(target))
            place.server.run("psql", "-q", "-v", "ON_ERROR_STOP=1", target, feed=dump)
            for use in (
                lambda ledger: charge(ledger, "other"),
                Ledger.verify,
                lambda ledger: ledger.remaining("people"),
            ):
                for read_only in (False, True):
                    tally.trials += 1
                    with contextlib.suppress(LedgerError), Ledger(target, read_only=read_only) as ledger:
                        use(ledger)
                        tally.undetected += 1
        with somebody_else(place), Ledger(beside) as ledger:
            for extra in range(2):
                for receipt in receipts[k:]:
                    tally.trials += 1
                    with contextlib.suppress(LedgerError):
                        ledger.verify([receipt])
                        tally.undetected += 1
                ledger.verify(receipts[:k])
                charge(ledger, f"other {extra}", 1e3)


def standby(place: Place, tally: Tally, size: int = 2) -> None:
    """A standby that applies nothing, is promoted, and lacks what came last: nobody who has seen more is deceived."""
    uses = (lambda ledger: charge(ledger, "other"), Ledger.verify, lambda ledger: ledger.remaining("people"))
    for _ in range(size):
        for delayed in (False, True):
            with running() as primary:
                address = primary.new_database()
                with Ledger(address) as ledger:
                    ledger.register("people", **PEOPLE)
                    names = {f"run {charge(ledger, f'run {k}').seq - 2}" for k in range(2)}
                with primary.standby() as other:
                    there = other.url(database(address))
                    primary.wait_for(other)
                    if delayed:  # It has all that was written, and shows nothing of it.
                        other.execute("ALTER SYSTEM SET recovery_min_apply_delay = '1h'", "SELECT pg_reload_conf()")
                        other.until("SELECT 1 WHERE current_setting('recovery_min_apply_delay') = '1h'")
                    else:
                        other.stop()
                    with Ledger(address) as ledger:
                        charge(ledger, "late")
                    names.add("late")
                    if delayed:
                        ends = primary.execute("SELECT pg_current_wal_flush_lsn()")[0]
                        other.until(f"SELECT 1 WHERE pg_last_wal_receive_lsn() >= '{ends[0]}'")
                        looked(there, uses, tally, read_only=True)
                    primary.stop()
                    if not delayed:
                        other.start()
                    other.control("promote")
                    if delayed:
                        judge(there, tally, names)
                        tally.trials += 1
                    else:
                        looked(there, uses, tally, read_only=False)


def looked(address: str, uses: Any, tally: Tally, *, read_only: bool) -> None:
    """Each use of a ledger that lacks what its user has seen must be refused."""
    for use in uses:
        tally.trials += 1
        with contextlib.suppress(LedgerError), Ledger(address, read_only=read_only) as ledger:
            use(ledger)
            tally.undetected += 1


def hostile_appenders(place: Place, tally: Tally, size: int = 600) -> None:
    """Rows that a role makes up which may append: each is refused, or it stops nobody and lowers nothing of others."""
    assert place.server is not None
    draw = random.Random(6)
    with appenders.at_work(place.server) as team, psycopg.connect(team.theirs, autocommit=True) as connection:
        rows, end = appenders.everything(connection)
        others = {entry.run for entry in rows} - {"own"}
        harmful = [one.sealed() for some in appenders.refused(end).values() for one in some]
        for number in range(len(harmful) + len(appenders.harmless(end, 0)) + size):
            if number < len(harmful):
                entry = harmful[number]
            elif number < len(harmful) + len(appenders.harmless(end, 0)):
                entry = appenders.harmless(end, number)[number - len(harmful)].sealed()
            else:
                entry = appenders.changed(draw, end)
            tally.trials += 1
            with contextlib.suppress(psycopg.Error):
                appenders.insert(connection, entry)
                tally.undetected += number < len(harmful)
                believed(entry, rows, end, others, tally)
                rows.append(entry)
                if entry.kind == "dataset":
                    believed(paid := first_charge(connection, end, entry.dataset), rows, end, others, tally)
                    rows.append(paid)
        connection.execute("UPDATE dpvb.head SET seq = seq")
        with somebody_else(place), Ledger(team.theirs) as newcomer:
            left = {one.name: newcomer.remaining(one.name).epsilon for one in newcomer.datasets()}
        for ledger in (team.keeper, Ledger(team.keeper.url), Ledger(team.theirs)):
            told = {one.name: ledger.remaining(one.name).epsilon for one in ledger.datasets()}
            tally.overspent += told != left or any(left > room(end, name) for name, left in told.items())
            ledger.quote(cost(), dataset="people")
        team.keeper.register("last", **PEOPLE)
        charge(team.keeper, "last", dataset="last")


def first_charge(connection: Any, end: State, name: str) -> Any:
    """Charge what was registered: if readers did not take it for a data set, this would stop them."""
    model = appenders.charged(end, f"of {name}", "free")
    entry = replace(model, dataset=name, totals=model.cost, units=0).sealed()
    appenders.insert(connection, entry)
    return entry


def believed(entry: Any, rows: list[Any], end: State, others: set[str], tally: Tally) -> None:
    """Go on by a row that was taken: everybody does, and a refund is of a run of one's own and no more than it paid."""
    before = {name: end.price(name).counted for name in end.datasets}
    odd = end.follow(entry, lambda run: Past.of(one for one in rows if one.run == run))
    lowered = any(end.price(name).counted < counted for name, counted in before.items())
    paid = [one.cost_units for one in [*rows, entry] if one.cost and one.run == entry.run]
    if lowered and entry.kind == "refund" and (not odd or "says is spent" in odd):
        tally.overspent += entry.run in others or any(sum(parts) < 0 for parts in zip(*paid, strict=True))
    else:
        tally.overspent += lowered


def room(state: State, name: str) -> float:
    """What a data set has left by all its rows, as each was first written."""
    return max(0, state.datasets[name].cap - state.price(name).counted) * 1e-9 + 1e-12


def restored_client_folders(place: Place, tally: Tally, size: int = 20) -> None:
    """A federated client's folder is set back again and again, and its data change: no mask hides two sums."""
    for seed in range(size):
        draw, trust = random.Random(seed), ("secure_aggregation", "none")[seed % 2]
        address, folder = place.new(epsilon=50.0), place.folder / f"client-{place.name}-{seed}"
        party = clients.party(trust, max_missing=seed // 4 % 2 if trust != "none" else 0)
        tasks = [{"a": clients.task_of(clients.rows_of(k))} for k in range(2)]
        parties = [clients.Party(party.federation, party.identities, task) for task in tasks]
        account: dict[str, Any] = {"ledger": address, "dataset": "people"} if seed % 4 != 2 else {}
        given: dict[str, set[bytes]] = {}
        kept: list[Path] = []
        for life in range(6):
            if kept and draw.random() < 0.7:
                shutil.rmtree(folder)
                shutil.copytree(draw.choice(kept), folder)
            with draw.choice(parties).client("a", folder=folder, **account) as client:
                offer = parties[0].offer()
                accepted = clients.tell(client, offer)
                for _ in range(3):
                    step, attempt, names = draw.randrange(2), draw.choice([0, 0, 1]), draw.choice(["abc", "abc", "ab"])
                    ask = clients.asked(digest(encode(offer)), step, attempt, names)
                    answer = client.answer(encode(ask))
                    tally.trials += 1
                    if isinstance(decode(answer), Share):
                        given.setdefault(digest(encode(ask)), set()).add(answer)
                if isinstance(accepted, Accepted) and draw.random() < 0.2:
                    clients.tell(client, Farewell(digest(encode(offer)), "over"))
            kept.append(folder.with_name(f"{folder.name}-{life}"))
            shutil.copytree(folder, kept[-1])
        if trust == "secure_aggregation":
            tally.unpaid += sum(len(answers) - 1 for answers in given.values())
        if account:
            entries = judge(address, tally)
            made = [entry for entry in entries if entry.state == "released"]
            tally.unpaid += sum(map(len, given.values())) > len(made)
            charged = [entry.cost_units for entry in entries if entry.cost]
            releases = [parties[0].plan.releases[entry.step].event() for entry in made]
            if releases:
                paid = map(sum, zip(*charged, strict=True))
                least = refund_units(Composition(releases, "add_or_remove_one"))
                tally.unpaid += any(map(int.__lt__, paid, least))
        for path in (folder, *kept):
            shutil.rmtree(path)


def objects_and_processes(place: Place, tally: Tally, size: int = 30) -> None:
    """Objects in one process and two other processes charge, look, verify and close in any order."""
    for seed in range(size):
        draw, address = random.Random(seed), notes(place)
        others = [histories.Process(address) for _ in range(2)]
        objects = [Ledger(address) for _ in range(3)]
        names: set[str] = set()
        for k in range(40):
            what, who = draw.choice(histories.ACTIONS), draw.randrange(5)
            names |= set(others[who - 3].ask(what, f"{k}") if who > 2 else histories.done(objects[who], what, f"{k}"))
        for number, ledger in enumerate(objects):
            names |= set(histories.spend(ledger, f"object {number}"))
        for number, other in enumerate(others):
            names |= set(other.ask("spend", f"process {number}"))
        for ledger in objects:
            ledger.close()
        for other in reversed(others):
            other.end()
        judge(address, tally, names)
        tally.overspent += len(names) > most_notes(place)
        tally.trials += 1


def notes(place: Place) -> str:
    """Address of a ledger with the data set of the tests."""
    address = place.empty()
    with Ledger(address) as made:
        made.register("notes", **in_file.FACTS)
    return address


def most_notes(place: Place) -> int:
    """How many charges one process alone gets of such a ledger."""
    with Ledger(notes(place)) as alone:
        return len(histories.spend(alone, "alone"))


def replaced_while_open(place: Place, tally: Tally) -> None:
    """Files that are copied over themselves, renamed, or lose their log, while two users have the ledger open."""
    most = most_notes(place)
    for way in histories.WAYS:
        for before in range(5):
            for late in (False, True):
                path = Path(notes(place))
                other = histories.Process(path, user=path.parent / "user")
                if not late:
                    other.ask("look")
                mine = Ledger(path)
                names = histories.spend(mine, "early", before)
                way(path)
                for k in range(4):
                    names += other.ask("charge", f"other {k}")
                    names += histories.spend(mine, f"mine {k}", 1)
                names += other.ask("spend", "other")
                names += histories.spend(mine, "mine")
                mine.close()
                other.ask("close")
                other.end()
                names = [name for name in names if not name.startswith("refused")]
                tally.overspent += len(names) > most
                tally.trials += 1
                with contextlib.suppress(LedgerError), Ledger(path) as found:
                    found.verify()
                    tally.lost += len(set(names) - {entry.run for entry in found.entries()})


def copies_apart(place: Place, tally: Tally, size: int = 20) -> None:
    """A ledger and its copies in other folders, used in turns by one user: together no more than one."""
    most = most_notes(place)
    for seed in range(size):
        draw, address = random.Random(seed), notes(place)
        ways = [address, *(place.copied(address) for _ in range(2))]
        ledgers, names = [Ledger(way) for way in ways], []
        for k in range(3 * most):
            which = draw.randrange(3)
            if draw.random() < 0.1:
                ledgers[which].close()
            names += histories.spend(ledgers[which], f"{k} of {which}", 1)
        for ledger in ledgers:
            ledger.close()
        tally.overspent += len(names) > most
        tally.lost += not names
        tally.trials += 1


def forks_in_a_fit(place: Place, tally: Tally) -> None:
    """The caller's code forks between two releases: one of the processes ends the fit, and one charge is made."""
    for after in range(killed_fit.STEPS):
        for kept in (False, True):
            address, children = place.new(), list[int]()
            inlet, outlet = os.pipe()

            def progress(step: int, plan: Any, after: int = after, children: list[int] = children) -> None:
                if step == after and not children:
                    for _ in range(3):
                        child = os.fork()
                        children.append(child)
                        if child == 0:
                            return

            folder = place.folder / f"fork-{secrets.token_hex(4)}" if kept else None
            with contextlib.suppress(Exception):
                model = killed_fit.fitted(address, folder, epsilon=0.5, progress=progress)
                os.write(outlet, f"{model.coef_.tobytes().hex()}\n".encode())
            if children and children[-1] == 0:
                os._exit(0)
            os.close(outlet)
            for child in children:
                os.waitpid(child, 0)
            with os.fdopen(inlet) as lines:
                results = set(lines)
            entries = judge(address, tally)
            tally.unpaid += len(results) > sum(entry.kind in ("charge", "sole") for entry in entries)
            tally.lost += not results
            tally.trials += 1


def hostile_refunds(place: Place, tally: Tally, size: int = 40) -> None:
    """By the interface: a run says, charges and asks back whatever it likes; strangers ask for what is others'."""
    address = place.new(epsilon=1000.0)
    with Ledger(address) as ledger, Ledger(address) as stranger:
        for seed in range(size):
            draw, run = random.Random(seed), f"run {seed}"
            steps = draw.randint(1, 6)
            before = ledger.remaining("people").spent_adaptive
            ledger.charge("people", cost(20.0, steps), run=run, plan_digest="p", unit="row")
            begun, again, attempt = 0, 0, 0
            for _ in range(draw.randint(0, 6)):
                step = draw.randrange(steps)
                what = draw.choice(["started", "released", "resumed", "again", "plan"])
                with contextlib.suppress(LedgerError):
                    if what == "resumed":
                        ledger.append(run, attempt=attempt + 1, state=what)
                        attempt += 1
                        continue
                    if what in ("again", "plan"):
                        number = len(ledger.history(run))
                        given: dict[str, Any] = {"kind": what, "steps": [step], "attempt": attempt}
                        ledger.charge("people", cost(20.0), run=run, plan_digest="p", unit="row", **given)
                        again += len(ledger.history(run)) - number
                    else:
                        ledger.append(run, attempt=attempt, state=what, step=step, digest="aa")
                    begun = max(begun, step + 1)
            for asking in (stranger, ledger):
                for number in range(steps + again, 0, -1):
                    tally.trials += 1
                    with contextlib.suppress(LedgerError):
                        asking.refund(run, unstarted=cost(20.0, number))
                        tally.unpaid += asking is stranger or number > steps - begun
            charged = [entry for entry in ledger.history(run) if entry.cost]
            kept = [sum(parts) for parts in zip(*(entry.cost_units for entry in charged), strict=True)]
            least = refund_units(cost(20.0, begun + again)) if begun + again else [0] * len(kept)
            tally.overspent += any(map(int.__lt__, kept, least))
            tally.overspent += ledger.remaining("people").spent_adaptive < before
    judge(address, tally)


def hostile_folders(place: Place, tally: Tally, size: int = 12) -> None:
    """The folder of an interrupted fit, changed by somebody: the fit is refused, or goes on and everything is paid."""
    address, folder = place.new(), place.folder / f"kept-{place.name}"
    x, y, victim, out = (place.folder / f"{name}-{place.name}.npy" for name in ("x", "y", "victim", "out"))
    for path, values in zip((x, y), killed_fit.data(), strict=True):
        np.save(path, values)
    call = test_cli_runs.arguments(folder)
    for option, value in (("--target", y), ("--ledger", address), ("--checkpoint", folder)):
        call[call.index(option) + 1] = str(value)
    call[2], call[call.index("--out") + 1] = str(x), str(out)

    def work(acknowledge: Callable[[str], None]) -> None:
        killed_fit.die(*killed_fit.POINTS["after it is on record"], 3)
        test_cli.cli.app(call, standalone_mode=False)

    forked(work)
    for seed in range(size):
        for name, change in HOSTILE.items():
            copied, target = place.copied(address), place.folder / f"hostile-{place.name}"
            shutil.copytree(folder, target)
            victim.write_bytes(b"of the owner")
            if change(target, victim, random.Random(f"{name} {seed}")) is None:
                tally.trials += 1
                with somebody_else(place):
                    went_on(call, copied, target, name, tally)
            tally.lost += victim.read_bytes() != b"of the owner"
            out.unlink(missing_ok=True)
            remove(target)


def went_on(call: list[str], address: str, target: Path, name: str, tally: Tally) -> None:
    """Repeat a call with a copy of its ledger and a folder, and check what is recorded then."""
    command = [*call]
    for option, value in (("--ledger", address), ("--checkpoint", str(target))):
        command[command.index(option) + 1] = value
    said = test_cli.CliRunner().invoke(test_cli.cli.app, command)
    refused = said.exit_code == 2 and said.stderr.splitlines()[-1].startswith("error: ")
    if not refused and said.exit_code != 0:
        tally.faults.append(f"{name}: {said.exception!r}")
    if not refused and name.startswith("somebody"):
        tally.undetected += 1
    entries = judge(address, tally)
    newest = {entry.step: entry for entry in entries if entry.state == "released"}
    tally.lost += not refused and any(is_lost(target, entry) for entry in newest.values())


def remove(folder: Path) -> None:
    """Remove a folder, or a link to one and that."""
    whole = folder.resolve()
    folder.unlink() if folder.is_symlink() else None
    shutil.rmtree(whole, ignore_errors=True)


def somebody_owns(folder: Path, victim: Path, draw: random.Random) -> bool | None:
    if os.geteuid() != 0:
        return False
    os.chown(draw.choice([folder, folder / "run.json", folder / "token"]), 65534, 65534)
    return None


def somebody_may_write(folder: Path, victim: Path, draw: random.Random) -> None:
    path = draw.choice([folder, folder / "run.json", folder / "token"])
    path.chmod(path.stat().st_mode | draw.choice([0o020, 0o002]))


def somebody_links(folder: Path, victim: Path, draw: random.Random) -> None:
    path = draw.choice([folder, folder / "run.json", folder / "token", folder / "lock"])
    path.rename(aside := folder.with_name(f"{folder.name}-aside-{draw.random()}"))
    path.symlink_to(draw.choice([aside, aside, victim, Path("/dev/zero"), Path("/nowhere")]))


def somebody_pipes(folder: Path, victim: Path, draw: random.Random) -> None:
    path = draw.choice([folder / "run.json", folder / "token"])
    path.unlink()
    os.mkfifo(path, 0o600)


def release_links(folder: Path, victim: Path, draw: random.Random) -> None:
    path = draw.choice(sorted(folder.glob("release-*")))
    path.unlink()
    path.symlink_to(draw.choice([victim, Path("/dev/zero"), folder]))


def json_damaged(folder: Path, victim: Path, draw: random.Random) -> None:
    path = folder / "run.json"
    text = path.read_bytes()
    at = draw.randrange(len(text))
    damaged = [
        *(text[:at], text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :], text + text, b"", b"[]", b"null"),
        *(b"[" * 10**5, b'{"format": NaN}', b"9" * 5000, b"\xff", text.replace(b'"', b'"\\ud800', 1)),
    ]
    file_ownership.write_own(path, draw.choice(damaged))


def json_planted(folder: Path, victim: Path, draw: random.Random) -> None:
    path = folder / "run.json"
    facts = json.loads(path.read_bytes())
    part = draw.choice([facts, *(value for value in facts.values() if isinstance(value, dict) and value)])
    values = [None, True, -1, 0, 10**400, 1e308, 0.5, "", "x", "\0", "people", str(victim), [], {}, [[]], {"x": {}}]
    part[draw.choice([*part, "more"])] = draw.choice(values)
    file_ownership.write_own(path, json.dumps(facts).encode())


def releases_swapped(folder: Path, victim: Path, draw: random.Random) -> None:
    one, two = draw.sample(sorted(folder.glob("release-*")), 2)
    kept = one.read_bytes(), two.read_bytes()
    file_ownership.write_own(one, kept[1])
    file_ownership.write_own(two, draw.choice([kept[0], kept[1], b"", kept[1][:-1], bytes(len(kept[1]))]))


def token_planted(folder: Path, victim: Path, draw: random.Random) -> None:
    file_ownership.write_own(folder / "token", draw.choice([b"", b"\xff\0", b"0" * 32, b"x" * 10**6]))


#: What is done to a folder; False: it cannot be done here. What somebody else could have placed must be refused.
HOSTILE: dict[str, Callable[[Path, Path, random.Random], bool | None]] = {
    change.__name__: change
    for change in (
        *(somebody_owns, somebody_may_write, somebody_links, somebody_pipes, release_links, json_damaged),
        *(json_planted, releases_swapped, token_planted),
    )
}


def clocks(place: Place, tally: Tally) -> None:
    """Ten years back, and forward: nothing changes."""
    import pytest

    with Ledger(place.new()) as ledger, pytest.MonkeyPatch.context() as patch:
        ledger.register("notes", **in_file.FACTS)
        in_file.test_the_clock_decides_nothing(ledger, patch)
    tally.trials += 3


# Arguments


def odd_caps_and_costs(place: Place, tally: Tally) -> None:
    with Ledger(place.new()) as ledger:
        for cap in (math.nan, math.inf, -math.inf, -1.0, -5e-324, "1", None):
            tally.trials += 1
            with contextlib.suppress(ParameterError):
                ledger.register("odd", **{**PEOPLE, "epsilon": cap})
                tally.faults.append(f"a cap of {cap!r} was taken")
        for k, cap in enumerate((0.0, 1e-320)):
            tally.trials += 1
            ledger.register(f"nothing-{k}", **{**PEOPLE, "epsilon": cap})
            with contextlib.suppress(BudgetError):
                charge(ledger, f"nothing-{k}", dataset=f"nothing-{k}")
                tally.overspent += 1
        before = ledger.remaining("people").epsilon
        for k, noise in enumerate((math.nan, -1.0, 0.0, 1e-320, 1e-9, 0.01)):
            tally.trials += 1
            with contextlib.suppress(ParameterError, LedgerError):
                charge(ledger, f"noise {k}", noise)
                tally.overspent += 1
        for k, renyi in enumerate((math.nan, math.inf, 1e308)):
            tally.trials += 1
            with contextlib.suppress(ParameterError, LedgerError):
                ledger.charge("people", Odd(renyi), run=f"odd {k}", plan_digest="x", unit="row")  # type: ignore[arg-type]
                tally.overspent += 1
        for k, renyi in enumerate((-1.0, 0.0)):
            tally.trials += 1
            with contextlib.suppress(ParameterError, LedgerError):
                ledger.charge("people", Odd(renyi), run=f"zero {k}", plan_digest="x", unit="row")  # type: ignore[arg-type]
        tally.overspent += ledger.remaining("people").epsilon > before
        ledger.verify()


class Odd(Composition):
    """A cost whose divergences are all one number."""

    def __init__(self, value: float) -> None:
        super().__init__([Event("full_batch", 1.0, 20.0)], "add_or_remove_one")
        object.__setattr__(self, "value", value)

    def renyi(self, orders: Any) -> Any:
        return np.full(len(orders), self.value)  # type: ignore[attr-defined]


def same_release_again(place: Place, tally: Tally, size: int = 1000) -> None:
    """A thousand times the same, from two ways in: one charge. The same with another plan: refused."""
    address = place.new()
    with Ledger(address) as ledger, copy.copy(ledger) as other:
        receipts = {charge((ledger, other)[k % 2], "run") for k in range(size)}
        tally.trials += size
        tally.overspent += len(receipts) != 1 or ledger.remaining("people").num_charges != 1
        for change in ({"digest": "other"}, {"noise": 19.0}):
            tally.trials += 1
            with contextlib.suppress(LedgerError):
                charge(ledger, "run", **change)  # type: ignore[arg-type]
                tally.overspent += 1
    judge(address, tally, {"run"})


def copies_of_estimators(place: Place, tally: Tally) -> None:
    """Pickled, copied, cloned, in joblib's processes: as many fits, as many charges."""
    address = place.new()
    with Ledger(address) as ledger:
        one = killed_fit.model(epsilon=0.1)
        with Run(ledger=ledger, dataset="people"):
            copies = [one, clone(one), copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
            for estimator in copies:
                estimator.fit(*killed_fit.data())
            joblib.Parallel(n_jobs=2)(joblib.delayed(fitted)(clone(one)) for _ in range(4))
    entries = judge(address, tally)
    spent = [entry.run for entry in entries if entry.kind in ("charge", "sole")]
    tally.trials += len(copies) + 4
    tally.unpaid += len(set(spent)) < len(copies) + 4
    tally.overspent += len(spent) > len(copies) + 4


def fitted(estimator: Any) -> float:
    return float(estimator.fit(*killed_fit.data()).coef_[0, 0])


def interrupted(place: Place, tally: Tally) -> None:
    """An exception in the caller's own code between two releases: what was started stays charged."""
    for error in (KeyboardInterrupt, MemoryError, RuntimeError, SystemExit):
        for after in (1, 2, 4):
            address = place.new()

            def progress(step: int, plan: Any, error: type = error, after: int = after) -> None:
                if step == after:
                    raise error

            with contextlib.suppress(error):
                killed_fit.fitted(address, None, epsilon=0.5, progress=progress)
            entries = judge(address, tally)
            tally.lost += not any(entry.kind in ("charge", "sole") for entry in entries)
            if entries[-1].state != "abandoned" and entries[-1].kind != "refund":
                tally.faults.append("the run was not abandoned")
            tally.trials += 1


def another_reader(place: Place, tally: Tally) -> None:
    """Rules written down a second time, from their description alone, agree with `verify`."""
    address = original(place)
    out = place.folder / f"again-{place.made}.jsonl"
    with Ledger(address) as found:
        rows = len(found.entries())
        found.export(out)
    if in_file.checked_by_hand(out) != rows:
        tally.faults.append("the two readers disagree")
    tally.trials += rows


BOTH: list[Callable[[Place, Tally], None]] = [
    killed_at_named_points,
    killed_at_random_times,
    killed_while_it_is_made,
    raced,
    threads_and_forks,
    disk_full,
    flipped_bits,
    changed_rows,
    restored_backup,
    objects_and_processes,
    forks_in_a_fit,
    hostile_refunds,
    hostile_folders,
    restored_client_folders,
    clocks,
    odd_caps_and_costs,
    same_release_again,
    copies_of_estimators,
    interrupted,
    another_reader,
]
ONLY_FILES: list[Callable[[Place, Tally], None]] = [
    truncated,
    lost_files,
    replaced_while_open,
    copies_apart,
    no_permission,
    network_drives,
]
ONLY_SERVERS: list[Callable[[Place, Tally], None]] = [
    server_stopped_at_random_times,
    server_files,
    older_dumps,
    standby,
    hostile_appenders,
]


def attacked(attack: Callable[[Place, Tally], None], place: Place) -> Tally:
    """Run one attack; an error that comes through counts against it."""
    tally = Tally()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            attack(place, tally)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        tally.faults.append("".join(traceback.format_exception(error)))
    return tally


@contextlib.contextmanager
def places() -> Iterator[list[Place]]:
    """A folder, and a server."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name, running() as server:
        folders = [Path(name) / "files", Path(name) / "server"]
        for folder in folders:
            folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(Path(name) / "state")
        yield [Place(folders[0], None), Place(folders[1], server)]


def main(wanted: list[str]) -> int:
    """Run all attacks, or those whose names contain one of the given words."""
    survived, total = 0, 0
    sums = Tally()
    start = time.perf_counter()
    with places() as (files, servers):
        chosen = [(attack, place) for attack in BOTH for place in (files, servers)]
        chosen += [(attack, files) for attack in ONLY_FILES] + [(attack, servers) for attack in ONLY_SERVERS]
        for attack, place in chosen:
            name = f"{attack.__name__.replace('_', ' ')}, {place.name}"
            if wanted and not any(word in name for word in wanted):
                continue
            before = time.perf_counter()
            tally = attacked(attack, place)
            total += 1
            survived += tally.survived
            for key in ("trials", "unpaid", "overspent", "undetected", "lost"):
                setattr(sums, key, getattr(sums, key) + getattr(tally, key))
            took = time.perf_counter() - before
            print(
                f"{'survived' if tally.survived else 'BROKEN  '}  {name}: {tally.trials} trials, {took:.0f} s",
                flush=True,
            )
            if not tally.survived:
                print(f"    {tally.unpaid} unpaid, {tally.overspent} overspent, {tally.undetected} undetected, "
                      f"{tally.lost} lost", *tally.faults[:3], sep="\n    ", flush=True)  # fmt: skip
    print(
        f"{sums.trials} trials in {time.perf_counter() - start:.0f} s: {sums.unpaid} releases without a charge, "
        f"{sums.overspent} overspends, {sums.undetected} changes undetected, {sums.lost} acknowledged charges lost"
    )
    print(f"survived {survived} of {total}")
    return 0 if survived == total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
