"""Throw changed files at every reader of dpvb: `python -m benchmarks.fuzz [minutes] [part of a name, or -part]`.

Atheris (libFuzzer) changes real files, guided by which lines of dpvb they reach. Readers of private data are held
against the law of readers (`fuzz_readers`): a record may show in its own unit and in nothing else. Any other reader may
return or raise an error of dpvb; anything else is a finding, and so is an attempt to run code, to start a program, to
open a connection or to write outside its folder (an audit hook sees them), a second of time, or 100 MB of memory more
than before the call (a limit on the address space). Half of the model files and ledgers get right hashes, as a forger
would make them, so that the parsers behind the hashes are reached too. Readers run in processes of their own, two at a
time, and each gets an equal share of the time.
One line a reader; the last line is `survived N of M`. The exit status is 1 if there is a finding, whose file is kept.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import fuzz_readers

PROGRAM = (sys.executable, "-m", "benchmarks.fuzz")
MEMORY = 100_000_000
SECONDS = 1.0
#: Events of the interpreter that no reader has a reason to cause.
FORBIDDEN = ("pickle.", "marshal.", "exec", "compile", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn")
FORBIDDEN += ("subprocess.", "socket.", "ctypes.", "sqlite3.enable_load_extension", "sqlite3.load_extension")
WRITES = ("os.remove", "os.rename", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink", "shutil.")


class Finding(BaseException):
    """Something that a reader must not do; no handler of the reader's catches it."""


@dataclass(frozen=True)
class Reader:
    """A reader and its files.

    Attributes:
        seeds: the files to start from, made once, in a process whose code atheris does not change.
        read: given changed bytes and an empty folder, write a file and read it.
        here: whether the files to start from must be made in the reading process after all, as others go with them.
        law: whether the reading writes the files itself, and looks for more than crashes: see `fuzz_readers`.
    """

    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], object]
    here: bool = False
    law: bool = False


# Model files


def model_files() -> list[bytes]:
    """One small fitted model of each sort."""
    import numpy as np

    import dpvb

    rng = np.random.default_rng(0)
    budget = {"epsilon": 1.0, "delta": 1e-4, "n_steps": 1}
    x, counts = rng.normal(size=(30, 2)) / 4, rng.poisson(1.0, (30, 3)).astype(float)
    y = (rng.random(30) < 0.5).astype(int)
    models = [
        dpvb.LDA(2, public_vocabulary=True, document_length=20.0, random_state=0, **budget).fit(counts),
        dpvb.LogisticRegression(max_row_norm=1.0, **budget).fit(x, y),
        dpvb.NegativeBinomialRegression(dispersion=1.0, max_count=5, max_row_norm=1.0, **budget).fit(x, y),
        dpvb.SigmoidBeliefNetwork(2, random_state=0, **budget).fit(y.reshape(10, 3)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        files = []
        for model in models:
            model.save(path, overwrite=True)
            files.append(path.read_bytes())
    return files


def read_model(content: bytes, folder: Path) -> object:
    import dpvb
    from dpvb.results import model_file

    path = folder / "model"
    comment = len(model_file._COMMENT) + 64
    if len(content) % 2 and len(content) > comment:
        head = content[: -comment - 2] + struct.pack("<H", comment) + model_file._COMMENT
        content = head + hashlib.sha256(head).hexdigest().encode()
    path.write_bytes(content)
    return dpvb.load(path)


def model_manifests() -> list[bytes]:
    """The manifests of the same models, with the values of their arrays."""
    import numpy as np

    manifests = []
    for content in model_files():
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            for name, entry in manifest["arrays"].items():
                array = np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
                entry["values"] = array.ravel().tolist()
            manifests.append(json.dumps(manifest).encode())
    return manifests


def read_manifest(content: bytes, folder: Path) -> object:
    """A file that keeps all its hashes whatever its manifest says: its arrays have the stated values, else ones."""
    import numpy as np

    import dpvb
    from dpvb.results import model_file

    members: dict[str, list[Any]] = {}
    try:
        manifest = json.loads(content)
        for name, entry in manifest["arrays"].items():
            dtype = entry["dtype"] if entry["dtype"] in model_file._DTYPES else "<f8"  # NumPy reads others as programs.
            array = np.ones([min(int(n), 50) for n in entry["shape"]][:4], dtype)
            with suppress(ValueError, TypeError, OverflowError):
                array = np.array(entry.pop("values"), dtype).reshape(array.shape)
            entry["sha256"] = hashlib.sha256(model_file._bytes(array)).hexdigest()
            members[f"{name}.npy"] = [model_file._npy_header(array.dtype.str, array.shape), model_file._bytes(array)]
        content = json.dumps(manifest).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        members = {}
    with open(folder / "model", "wb+") as file:
        model_file._write_zip(file, {"manifest.json": [content], **members})
    return dpvb.load(folder / "model")


# Ledgers


def small_ledger(folder: Path) -> Path:
    """A ledger that was closed, with two data sets, charges, an event and a refund."""
    from dpvb import Ledger
    from dpvb.accounting import Event
    from dpvb.accounting.costs import Composition

    cost = Composition([Event("poisson", 0.05, 4.0, 20)], "add_or_remove_one")
    with Ledger(folder / "budget.db") as ledger:
        for name in ("notes", "letters"):
            facts: dict[str, Any] = {"unit": "document", "neighboring_relation": "add_or_remove_one"}
            ledger.register(name, epsilon=3.0, delta=1e-5, **facts)
            ledger.charge(name, cost, run=name, plan_digest="plan", unit="document")
            ledger.append(name, attempt=0, state="released", step=0, digest="ab")
        ledger.refund("notes", unstarted=Composition([Event("poisson", 0.05, 4.0, 3)], "add_or_remove_one"))
    return folder / "budget.db"


def exports() -> list[bytes]:
    from dpvb import Ledger

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with Ledger(small_ledger(path)) as ledger:
            ledger.export(path / "chain")
        return [(path / "chain").read_bytes()]


@cache
def kept_ledger() -> dict[str, bytes]:
    """The files of one ledger."""
    with tempfile.TemporaryDirectory() as folder:
        return {file.name: file.read_bytes() for file in small_ledger(Path(folder)).parent.iterdir()}


def read_ledger(changed: dict[str, bytes], folder: Path, odd: bool) -> None:
    """Look at a ledger and check it; on every second file, open it to spend as well."""
    from dpvb import Ledger
    from dpvb.errors import LedgerError

    for name, content in {**kept_ledger(), **changed}.items():
        (folder / name).write_bytes(content)
    refusal = None
    for read_only in (True, False)[: 1 + odd]:
        try:
            with Ledger(folder / "budget.db", read_only=read_only) as ledger:
                ledger.datasets()
                ledger.verify()
        except LedgerError as error:
            refusal = error
    if refusal is not None:
        raise refusal


def read_database(content: bytes, folder: Path) -> None:
    """A changed database file; half of them signed, as somebody would who can."""
    changed = {"budget.db": content}
    if len(content) % 2:
        from dpvb.ledger import sqlite
        from dpvb.ledger.head import Head

        head = kept_ledger()["budget.db.head"]
        kept = Head.read(head[: len(head) // 2].decode().rstrip())
        changed["budget.db.head"] = sqlite._doubled(kept.of_file(hashlib.sha256(content).hexdigest()))
    read_ledger(changed, folder, len(content) % 4 > 1)


def read_head(content: bytes, folder: Path) -> None:
    """A changed head; half of them a body with its right hash."""
    if len(content) % 2:
        body = content.decode("ascii", "replace").rstrip()
        line = {"head": body, "sha256": hashlib.sha256(body.encode()).hexdigest()}
        text = (json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n").encode()
        half = len(kept_ledger()["budget.db.head"]) // 2
        content = 2 * text.ljust(max(half, len(text)))
    read_ledger({"budget.db.head": content}, folder, True)


def read_export(content: bytes, folder: Path) -> None:
    """A changed chain; half of them with right hashes throughout, as a forger would make it."""
    from dpvb.ledger import verify_export

    if len(content) % 2:
        content = chained(content)
    (folder / "chain").write_bytes(content)
    verify_export(folder / "chain")


def chained(content: bytes) -> bytes:
    """JSON lines with every `prev` and `hash` made anew."""
    lines = content.split(b"\n")
    try:
        first = json.loads(lines[0])
        end = hashlib.sha256(f"dpvb ledger 1 {first['ledger']}".encode()).hexdigest()
        for at, line in enumerate(lines[1:], 1):
            if line:
                row = json.loads(line)
                row["prev"] = end
                row.pop("hash", None)
                text = json.dumps(row, sort_keys=True, separators=(",", ":"))
                end = row["hash"] = hashlib.sha256(text.encode()).hexdigest()
                lines[at] = json.dumps(row).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return b"\n".join(lines)


READERS = {
    **{name: Reader(fuzz_readers.seeds, check, law=True) for name, check in fuzz_readers.CHECKS.items()},
    "model file": Reader(model_files, read_model),
    "model manifest": Reader(model_manifests, read_manifest),
    "ledger file": Reader(lambda: [kept_ledger()["budget.db"]], read_database, here=True),
    "ledger head": Reader(lambda: [kept_ledger()["budget.db.head"]], read_head, here=True),
    "exported chain": Reader(exports, read_export),
}


# One process


def changed(content: bytes, max_size: int, seed: int) -> bytes:
    """A change that keeps JSON what it is, where the content is JSON lines; otherwise libFuzzer's own."""
    import atheris

    rng = random.Random(seed)
    if rng.random() < 0.5:
        try:
            lines = [json.loads(line) for line in content.split(b"\n") if line]
        except (ValueError, RecursionError):
            lines = []
        if lines:
            at = rng.randrange(len(lines))
            kind = rng.random()
            if kind < 0.1 and len(lines) > 1:
                lines[at] = lines[rng.randrange(len(lines))]
            elif kind < 0.2 and len(lines) > 1:
                del lines[at]
            else:
                lines[at] = with_another_leaf(lines[at], rng)
            made = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
            if len(made) <= max_size:
                return made
    return bytes(atheris.Mutate(content, max_size))


ODD = [None, True, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0, 5e-324, "", "x", "inf", "nan", "../x", "é"]
ODD += ["x" * 10_000, "\u0000", [], {}, [[]], [1, 2], {"a": 1}, "full_batch", "poisson", 1e-320, [1] * 1000]


def with_another_leaf(value: Any, rng: random.Random) -> Any:
    """The same JSON value with one part replaced, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.15:
            return {**value, str(rng.choice(ODD)): value[key]}
        return {**value, key: with_another_leaf(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.1:
            return value[:at] + value[at + 1 :]
        if kind < 0.15:
            return [*value, value[at]]
        return [*value[:at], with_another_leaf(value[at], rng), *value[at + 1 :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return value * rng.choice([-1, 2, 0.5, 10, 1e300]) if abs(value) < 1e300 else value - 1
    return rng.choice(ODD)


def fuzz(name: str, corpus: Path, arguments: list[str]) -> None:
    """Run one reader on changed files until the time is over or something is found; does not return."""
    import atheris

    reader = READERS[name]
    with atheris.instrument_imports(include=["dpvb"]):
        if reader.here:
            write_seeds(reader, corpus)
        seeds = [path.read_bytes() for path in sorted(corpus.glob("seed-*"))]
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="dpvb-fuzz-"))
        # What readers import late, they import now; so do decoders of text.
        for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "unicode_escape"):
            codecs.lookup(coding)
        for content in seeds:
            if reader.law:  # What is imported late is instrumented then, and that is said.
                with suppress(fuzz_readers.RecordShows):
                    reader.read(content, folder)
            reader.read(content, folder)
            for damaged in (content[:-1], content[: len(content) // 2], b"{}", b""):
                refuses(reader, damaged, folder)
        # Files that the law of readers compares are written here as well.
        tempfile.tempdir = str(folder)
    watching = False

    def watch(event: str, facts: tuple[Any, ...]) -> None:
        nonlocal watching
        if not watching:
            return
        bad = event.startswith(FORBIDDEN)
        if event == "open" and len(facts) > 2 and isinstance(facts[2], int):
            bad = bool(facts[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not _inside(facts[0], folder)
        if event.startswith(WRITES):
            bad = not _inside(facts[0], folder)
        if bad:
            watching = False
            raise Finding(f"{event} {facts!r:.200}")

    sys.addaudithook(watch)

    def once(content: bytes) -> None:
        nonlocal watching
        for left in folder.iterdir():
            left.unlink()
        if reader.law:
            reader.read(content, folder)
            return
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        before = time.process_time()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, hard))
        watching = True
        try:
            refuses(reader, content, folder)
        finally:
            watching = False
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        if (took := time.process_time() - before) > SECONDS:
            raise Finding(f"{took:.1f} s for one file")

    command = [sys.argv[0], *arguments, str(corpus)]
    atheris.Setup(command, once, custom_mutator=changed)
    atheris.Fuzz()


def write_seeds(reader: Reader, corpus: Path) -> None:
    """Write the files to start from."""
    for number, content in enumerate(reader.seeds()):
        (corpus / f"seed-{number}").write_bytes(content)


def refuses(reader: Reader, content: bytes, folder: Path) -> bool:
    """Whether the reader raised an error of its own; any other error comes through."""
    from dpvb.errors import DpvbError

    try:
        reader.read(content, folder)
    except DpvbError:
        return True
    return False


def _inside(path: Any, folder: Path) -> bool:
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(str(folder))


# All of them


def main(minutes: float, part: str) -> int:
    """Give every reader its share of the time, two readers at once."""
    names = [name for name in READERS if (part[1:] not in name if part.startswith("-") else part in name)]
    seconds = max(1, round(2 * 60 * minutes / len(names)))
    kept = Path(tempfile.mkdtemp(prefix="dpvb-fuzz-findings-"))
    survived = 0
    with ThreadPoolExecutor(2) as pool:
        for name, (alive, facts, log) in zip(
            names, pool.map(lambda name: run(name, kept, seconds), names), strict=True
        ):
            survived += alive
            print(f"{'survived' if alive else 'FINDING '}  {name}: {facts}", flush=True)
            if not alive:
                print(f"    {kept / folder_of(name)}", *log.splitlines()[-40:], sep="\n    ", flush=True)
    print(f"survived {survived} of {len(names)}, each {seconds} s")
    return 0 if survived == len(names) else 1


def folder_of(name: str) -> str:
    return name.replace(" ", "-")


def run(name: str, kept: Path, seconds: int) -> tuple[bool, str, str]:
    """Whether a reader survived, what was reached, and what its process said."""
    corpus = kept / folder_of(name)
    corpus.mkdir()
    if not READERS[name].here:
        subprocess.run([*PROGRAM, "--seeds", name, str(corpus)], check=True, stderr=subprocess.DEVNULL)
    options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=0", f"-artifact_prefix={corpus}/finding-"]
    options += [f"-max_len={600 if READERS[name].law else 60000}", "-verbosity=1"]
    # Loops that are compiled elsewhere are interpreted here, so that their branches are seen.
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"} if READERS[name].law else None
    command = [*PROGRAM, "--reader", name, str(corpus), *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    log = done.stdout + done.stderr
    runs, reached = re.findall(r"Done (\d+) runs", log), re.findall(r"cov: (\d+)", log)
    if done.returncode:
        (corpus / "log").write_text(log)
    facts = f"{runs[-1] if runs else '?'} files, {reached[-1] if reached else '?'} branches reached"
    return done.returncode == 0, facts, log


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seeds"]:
        write_seeds(READERS[sys.argv[2]], Path(sys.argv[3]))
        sys.exit()
    if sys.argv[1:2] == ["--reader"]:
        fuzz(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    words = sys.argv[1:]
    given = words.pop(0) if words and words[0].replace(".", "").isdigit() else "10"
    sys.exit(main(float(given), " ".join(words)))
