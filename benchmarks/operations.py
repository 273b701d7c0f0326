"""Thirty nights of a scheduled fit, each with one fault, and what became of charge, model and result.

A small lake: 200,000 rows of 40,000 patients who return, in 30 daily Parquet files of 10 columns. Each night a command
fits a logistic regression to the folder, in a process of its own, with a ledger in PostgreSQL and a data set of its own
in it. Something happens, and the command is started again as the page of operations says. Noise is fixed, so that a
night without a fault has the same bits as one with a fault that a run must survive.

A night is right if every exit code is the documented one, the ledger has the stated number of charges, each end that is
not 0 says a line (a killed process cannot), no temporary file is left, the model's run is in the ledger and in the
owner's records, and its coefficients have the bits of the night without a fault. Full disks are file systems of 1 MiB
(mount needs root). The fits of the nights have 4 steps, which are too few for their intervals: the fits warn.
"""

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from postgresql_server import Server, running

import dpvb
from dpvb.errors import NotSettledWarning
from dpvb.runs.record import record_of

COLUMNS, FILES, STEPS, REPEATS = 10, 30, 4, 20
TRUTH = np.array([2.0, -2.0, 1.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
EPSILON, DELTA = 0.5, 1e-6
FORMATS = {"folder": "days", "merged": "merged.parquet"}

# What runs in the process of a night, before the command: fixed noise, and the fault.
CHILD = """
import os, resource, signal, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
sys.path[:0] = {paths!r}
fault, _, rest = os.environ.get("FAULT", "").partition(":")
if fault == "memory":
    resource.setrlimit(resource.RLIMIT_AS, (int(rest) * 2**20,) * 2)
from dpvb.cli import app
from dpvb.core import wall
from dpvb.core.noise import InsecureNoise
wall.SecureNoise = lambda: InsecureNoise(7)
if fault == "kill":
    import killed_fit
    point, _, count = rest.partition(":")
    killed_fit.die(*killed_fit.POINTS[point], int(count))
if fault in ("signal", "hold"):
    release, number = wall.Wall.release, 0
    def stopped(self, query, asked):
        global number
        number += 1
        if number == 3 and fault == "signal":
            os.kill(os.getpid(), int(rest))
        if number == 3 and fault == "hold":
            Path("reached").touch()
            while not Path("go").exists():
                time.sleep(0.02)
        return release(self, query, asked)
    wall.Wall.release = stopped
if fault == "clock":
    import dpvb.ledger, dpvb.results.statement, dpvb.runs.record
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=int(rest))
    for module in (dpvb.ledger, dpvb.results.statement, dpvb.runs.record):
        module.datetime = Clock
app(prog_name="dpvb")
"""


@dataclass
class Night:
    """The folder of a night, and what its commands did.

    Attributes:
        folder: with the lake, the schema and the folders of the job.
        url: of the ledger.
        dataset: of this night.
        codes: exit codes of the commands so far.
        said: standard errors of the commands so far.
    """

    folder: Path
    server: Server
    url: str
    dataset: str
    codes: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    #: More options of every command.
    more: list[str] = field(default_factory=list)

    def start(self, fault: str = "", *more: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command of the night."""
        root = Path(__file__).resolve().parent.parent
        child = CHILD.format(paths=[str(root / "tests"), str(root / "src")])
        call = ["fit", "logistic", "days", "--schema", "people.json", "--epsilon", str(EPSILON), "--delta", str(DELTA)]
        call += ["--n-steps", str(STEPS), "--out", "models/night.dpvb", "--checkpoint", "runs/night", "--quiet"]
        call += ["--log-file", "night.jsonl"]
        call += ["--ledger", self.url, "--dataset", self.dataset, "--overwrite", *self.more, *more]
        env = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(self.folder / "state"), "FAULT": fault}
        env |= {"TMPDIR": str(self.folder / "tmp"), "NUMBA_CACHE_DIR": str(self.folder.parent / "numba"), **environment}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable, "-c", child, *call], cwd=self.folder, env=env, text=True, start_new_session=True, **pipes
        )

    def end(self, process: subprocess.Popen[str]) -> int:
        """Wait for a command, and note its exit code and what it said."""
        self.said.append(process.communicate(timeout=900)[1])
        self.codes.append(process.returncode)
        return process.returncode

    def run(self, fault: str = "", *more: str, **environment: str) -> int:
        """Run the command of the night to its end."""
        return self.end(self.start(fault, *more, **environment))

    def held(self) -> subprocess.Popen[str]:
        """Start the command, and return when it waits before its third release."""
        process, end = self.start("hold"), time.monotonic() + 300
        while not (self.folder / "reached").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.05)
        return process

    def go_on(self) -> None:
        """Let a held command go on."""
        (self.folder / "go").touch()

    def days(self) -> list[Path]:
        """The files of the lake."""
        return sorted((self.folder / "days").iterdir())


def lake(folder: Path, rows: int, persons: int, seed: int = 0) -> None:
    """Write the daily files, the merged file and the schema."""
    rng = np.random.default_rng(seed)
    x_nd = rng.uniform(-1, 1, (rows, COLUMNS))
    y_n = (rng.random(rows) < 1 / (1 + np.exp(-x_nd @ TRUTH))).astype(np.int64)
    who = [f"patient-{number:06d}" for number in rng.integers(0, persons, rows)]
    table = pa.table({"patient": who, "y": y_n, **{f"x{number}": x_nd[:, number] for number in range(COLUMNS)}})
    pq.write_table(table, folder / "merged.parquet")
    (folder / "days").mkdir()
    for day in range(FILES):
        first, stop = rows * day // FILES, rows * (day + 1) // FILES
        pq.write_table(table.slice(first, stop - first), folder / "days" / f"{day:02d}.parquet")
    numbers = [dpvb.data.Numeric(f"x{number}", -1, 1) for number in range(COLUMNS)]
    dpvb.Schema(numbers, dpvb.data.Target("y"), group="patient").save(folder / "people.json")


@contextmanager
def full(folder: Path) -> Iterator[Path]:
    """A folder on a file system of 1 MiB with no byte left; returns the file that fills it."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", folder], check=True)
    try:
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        yield filler
    finally:
        for name in [*folder.iterdir()]:  # What came there moves to the disk below.
            if name != filler:
                shutil.move(name, folder.with_name(f"{folder.name}.kept-{name.name}"))
        subprocess.run(["umount", folder], check=True)
        for name in folder.parent.glob(f"{folder.name}.kept-*"):
            shutil.move(name, folder / name.name.partition(".kept-")[2])


def simply(fault: str = "") -> Callable[[Night], None]:
    def night(one: Night) -> None:
        one.run(fault)

    return night


def killed(point: str, count: int) -> Callable[[Night], None]:
    def night(one: Night) -> None:
        one.run(f"kill:{point}:{count}")
        one.run()

    return night


def changed(change: Callable[[Night], None]) -> Callable[[Night], None]:
    """A night on which the lake is another one between a kill and the next start, and then as it was."""

    def night(one: Night) -> None:
        one.run("kill:after the data are read:3")
        shutil.copytree(one.folder / "days", one.folder / "as it was", copy_function=shutil.copy2)
        change(one)
        one.run()
        shutil.rmtree(one.folder / "days")
        (one.folder / "as it was").rename(one.folder / "days")
        one.run()

    return night


def broken(damage: Callable[[Path], None]) -> Callable[[Night], None]:
    """A night that begins with a damaged file, which is then replaced by a sound one."""

    def night(one: Night) -> None:
        path = one.days()[4]
        shutil.copy2(path, one.folder / "sound")
        damage(path)
        one.run()
        shutil.copy2(one.folder / "sound", path)
        if one.codes[-1] != 0:
            one.run()

    return night


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["x3"]), path)


def drifted(path: Path) -> None:
    """Numbers as text, whole numbers as float."""
    table = pq.read_table(path)
    texts = pa.array([repr(value) for value in table["x3"].to_pylist()])
    floats = table["y"].cast(pa.float64())
    names = table.column_names
    table = table.set_column(names.index("x3"), "x3", texts).set_column(names.index("y"), "y", floats)
    pq.write_table(table, path)


def restarted(one: Night) -> None:
    process = one.held()
    one.server.stop()
    one.go_on()
    time.sleep(3)
    one.server.start()
    one.end(process)


def away(one: Night) -> None:
    process = one.held()
    one.server.stop()
    one.go_on()
    one.end(process)
    one.server.start()
    one.run()


def full_models(one: Night) -> None:
    with full(one.folder / "models") as filler:
        one.run()
        filler.unlink()
        one.run("", "--resume", "load")


def full_runs(one: Night) -> None:
    with full(one.folder / "runs") as filler:
        one.run()
        filler.unlink()
        one.run()


def full_temporary(one: Night) -> None:
    with full(one.folder / "tmp"):
        one.run()
    one.run()


def limited(megabytes: int) -> Callable[[Night], None]:
    def night(one: Night) -> None:
        if one.run(f"memory:{megabytes}") != 0:
            one.run()

    return night


def two_at_once(one: Night) -> None:
    first = one.held()
    one.run()
    one.go_on()
    one.end(first)


def stopped_by(number: int) -> Callable[[Night], None]:
    def night(one: Night) -> None:
        one.run(f"signal:{int(number)}")
        one.run()

    return night


def lost_release(one: Night) -> None:
    one.run("kill:after the data are read:4")
    sorted((one.folder / "runs" / "night").glob("release-*"))[1].unlink()
    one.run()


def over_the_cap(one: Night) -> None:
    with dpvb.Ledger(one.url) as ledger:
        ledger.register("small", unit="person", neighboring_relation="add_or_remove_one", epsilon=0.1, delta=1e-5)
    one.more = ["--dataset", "small"]
    one.run()
    one.more = []
    one.run()


def forgotten_ledger(one: Night) -> None:
    url, one.url = one.url, ""
    one.more = ["--ledger", "", "--dataset", ""]
    one.run("", DPVB_REQUIRE_LEDGER="1")
    one.url, one.more = url, []
    one.run("", DPVB_REQUIRE_LEDGER="1")


def completed(one: Night) -> None:
    one.run()
    one.run()


#: What happens, the exit codes that are documented for it, and the number of charges.
NIGHTS: list[tuple[str, Callable[[Night], None], tuple[int, ...], int]] = [
    ("none", simply(), (0,), 1),
    ("kill -9 before the charge", killed("before the charge", 1), (-9, 0), 1),
    ("kill -9 after the charge", killed("after the charge", 1), (-9, 0), 1),
    ("kill -9 while the data are read", killed("before the data are read", 3), (-9, 0), 1),
    ("kill -9 between release and record", killed("after the release is sealed", 3), (-9, 0), 1),
    ("kill -9 before the end of the run", killed("before the end", 1), (-9, 0), 1),
    ("file replaced, then restored", changed(lambda one: shutil.copy(one.days()[0], one.days()[1])), (-9, 5, 0), 1),
    (
        "file added, then removed",
        changed(lambda one: shutil.copy(one.days()[0], one.folder / "days" / "99.parquet")),
        (-9, 5, 0),
        1,
    ),
    ("file removed, then restored", changed(lambda one: one.days()[7].unlink()), (-9, 5, 0), 1),
    ("PostgreSQL restarted", restarted, (0,), 1),
    ("PostgreSQL away for more than 30 s", away, (4, 0), 1),
    ("disk full under --out", full_models, (9, 0), 1),
    ("disk full under --checkpoint", full_runs, (9, 0), 1),
    ("disk full under TMPDIR", full_temporary, (9, 0), 1),
    ("memory limit of 700 MB: too small to begin", limited(700), (8, 0), 1),
    ("memory limit of 850 MB: too small for the rows", limited(850), (8, 0), 1),
    ("memory limit of 6000 MB: enough", limited(6000), (0,), 1),
    ("two jobs at once", two_at_once, (2, 0), 1),
    ("clock 400 days behind", simply("clock:-400"), (0,), 1),
    ("clock 400 days ahead", simply("clock:400"), (0,), 1),
    ("Parquet file truncated", broken(truncated), (5, 0), 1),
    ("empty file", broken(lambda path: path.write_bytes(b"")), (5, 0), 1),
    ("column missing in one file", broken(without_column), (5, 0), 1),
    ("types drifted in one file", broken(drifted), (0,), 1),
    ("SIGTERM", stopped_by(signal.SIGTERM), (6, 0), 1),
    ("Ctrl-C", stopped_by(signal.SIGINT), (6, 0), 1),
    ("recorded release lost", lost_release, (-9, 0), 2),
    ("over the cap of another data set", over_the_cap, (3, 0), 1),
    ("ledger forgotten where one is required", forgotten_ledger, (2, 0), 1),
    ("started again after the end", completed, (0, 7), 1),
]


def judged(one: Night, codes: tuple[int, ...], charges: int, coefficients: list[bytes]) -> list[str]:
    """What is wrong with a night."""
    wrong: list[str] = []
    path = one.folder / "models" / "night.dpvb"
    if not path.exists():
        return [f"no model, exit codes {one.codes}"]
    if one.codes != list(codes):
        wrong.append(f"exit codes {one.codes}")
    for code, said in zip(one.codes, one.said, strict=True):
        if (code > 0 and "error: " not in said and "Stopped" not in said) or "Traceback" in said:
            wrong.append(f"code {code} says {said[-200:]!r}")
    with dpvb.Ledger(one.url) as ledger:
        made = [
            entry for entry in ledger.entries() if entry.dataset == one.dataset and entry.kind in ("charge", "sole")
        ]
        if len(made) != charges:
            wrong.append(f"{len(made)} charges")
        model = dpvb.load(path)
        run, charge = model.privacy_.run_id, model.privacy_.charge
        if charge is None or not any(entry.hash == charge.hash for entry in ledger.history(run)):
            wrong.append("the receipt is not in the ledger")
    os.environ["XDG_STATE_HOME"] = str(one.folder / "state")
    record = record_of(run)
    if record is None or record.state != "finished" or len(record.files) != FILES or model.privacy_.origin is None:
        wrong.append("not traceable")
    if [*(one.folder / "tmp").iterdir()] and -9 not in one.codes:
        wrong.append("temporary files are left")
    events = [json.loads(line)["event"] for line in (one.folder / "night.jsonl").read_text().splitlines()]
    if events.count("end") != events.count("start") - one.codes.count(-9):
        wrong.append("the log lacks an end")
    coefficients.append(np.asarray(model.coef_).tobytes())
    if coefficients[-1] != coefficients[0]:
        wrong.append("another result")
    return wrong


def coverage(rows: int, persons: int) -> dict[str, tuple[float, int]]:
    """Share of 95 % intervals that contain the simulated truth, and number of fits that warned of too few steps."""
    hits: dict[str, list[np.ndarray]] = {form: [] for form in FORMATS}
    unsettled = dict.fromkeys(FORMATS, 0)
    for seed in range(1, REPEATS + 1):
        with tempfile.TemporaryDirectory() as place:
            lake(Path(place), rows, persons, seed)
            schema = dpvb.Schema.load(Path(place) / "people.json")
            for form, name in FORMATS.items():
                model = dpvb.LogisticRegression(epsilon=EPSILON, delta=DELTA)
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    table = model.fit(dpvb.Table(Path(place) / name, schema)).coefficients(level=0.95)
                unsettled[form] += any(warning.category is NotSettledWarning for warning in seen)
                low, high = (np.array([row[end] for row in table.to_dicts()][-COLUMNS:]) for end in ("low", "high"))
                hits[form].append((low <= TRUTH) & (high >= TRUTH))
    return {form: (float(np.mean(inside)), unsettled[form]) for form, inside in hits.items()}


def print_coverage(rows: int, persons: int) -> None:
    """Print the section on coverage."""
    shares = coverage(rows, persons)
    print("## Coverage of persons in several files\n")
    print(
        f"{REPEATS} lakes of {rows:,} rows and {persons:,} patients, each with its own noise (epsilon = {EPSILON}, "
        f"delta = {DELTA:g}) and the default number of steps: how often intervals of 95 % contain the simulated truth. "
        f"The folder has {FILES} files.\n"
    )
    error = 100 * math.sqrt(0.05 * 0.95 / (REPEATS * COLUMNS))
    print(f"| data | coverage of {REPEATS * COLUMNS} intervals | standard error at 95 % | fits that warned | asked |")
    print("|---|---|---|---|---|")
    for form, (share, unsettled) in shares.items():
        print(f"| {form} | {100 * share:.1f} % | {error:.1f} % | {unsettled} | 93 to 97 % |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--persons", type=int, default=40_000)
    parser.add_argument("--nights", type=int, nargs="*")
    parser.add_argument("--coverage", action="store_true")
    given = parser.parse_args()
    if given.coverage:
        # A quarter of the lake: what is asked is that intervals hold, and twenty lakes are made.
        print_coverage(given.rows // 4, given.persons // 4)
        return
    warnings.simplefilter("ignore")
    chosen = [(number, NIGHTS[number - 1]) for number in given.nights or range(1, len(NIGHTS) + 1)]
    lines, coefficients, faults = [], list[bytes](), 0
    with tempfile.TemporaryDirectory() as place, running() as server:
        base = Path(place)
        (base / "lake").mkdir()
        lake(base / "lake", given.rows, given.persons)
        url = server.new_database()
        with dpvb.Ledger(url) as ledger:
            for number in range(1, len(NIGHTS) + 1):
                relation = "add_or_remove_one"
                ledger.register(
                    f"night-{number:02d}.set", unit="person", neighboring_relation=relation, epsilon=1, delta=1e-5
                )
        for number, (what, night, codes, charges) in chosen:
            folder = base / f"night-{number:02d}"
            for name in ("state", "runs", "tmp", "models"):
                (folder / name).mkdir(parents=True, mode=0o700)
            shutil.copytree(base / "lake" / "days", folder / "days", copy_function=shutil.copy2)
            shutil.copy(base / "lake" / "people.json", folder)
            one = Night(folder, server, url, f"night-{number:02d}.set")
            begun = time.perf_counter()
            night(one)
            wrong = judged(one, codes, charges, coefficients)
            faults += bool(wrong)
            shown = ", ".join("killed" if code == -9 else str(code) for code in one.codes)
            lines.append(f"| {number} | {what} | {shown} | {charges} | {'; '.join(wrong) or 'right'} |")
            print(lines[-1], f"{time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
            if wrong:
                print(*one.said, sep="\n", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
        with dpvb.Ledger(url) as ledger:
            ledger.verify()
    print("## Operations\n")
    print((__doc__ or "").strip() + "\n")
    print("| night | fault | exit codes | charges | verdict |\n|---|---|---|---|---|")
    print("\n".join(lines))
    print(
        f"\n{len(chosen) - faults} of {len(chosen)} nights are right. `dpvb ledger verify` passes after the last one.\n"
    )


if __name__ == "__main__":
    main()
