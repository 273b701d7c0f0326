"""A run has one data set: its files are the same at every pass, and when it resumes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CliRunner
from killed_fit import stop_after_two
from planted import edit, kills

import dpvb
from dpvb import cli
from dpvb.cli.root import ExitCode
from dpvb.data import Numeric, Schema, Table, Target, open_documents
from dpvb.errors import DataFormatError

SCHEMA = Schema((Numeric("v", 0, 1),), Target("y"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same rows in three Parquet files, a CSV file and a matrix, and a ledger."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"v": rng.uniform(0, 1, 90), "y": np.arange(90) % 2, "who": [f"p{n % 40}" for n in range(90)]})
    (tmp_path / "days").mkdir()
    for day in range(3):
        frame[day * 30 : (day + 1) * 30].to_parquet(tmp_path / "days" / f"{day}.parquet")
    frame.to_csv(tmp_path / "people.csv", index=False)
    np.save(tmp_path / "x.npy", frame[["v"]].to_numpy())
    np.save(tmp_path / "y.npy", frame["y"].to_numpy())
    SCHEMA.save(tmp_path / "people.json")
    Schema(SCHEMA.columns, SCHEMA.target, group="who").save(tmp_path / "persons.json")
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        for unit in ("row", "person"):
            ledger.register(unit, unit=unit, neighboring_relation="add_or_remove_one", epsilon=3, delta=1e-5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = ["--schema", "people.json", "--dataset", "row"]
CALLS = {
    "folder": ("days", TABLE),
    "stream": ("days", [*TABLE, "--stream"]),
    "persons": ("days", ["--schema", "persons.json", "--dataset", "person"]),
    "file": ("people.csv", TABLE),
    "matrix": ("x.npy", ["--target", "y.npy", "--low", "0", "--high", "1", "--dataset", "row"]),
}


def fit(call: str) -> Any:
    data, more = CALLS[call]
    plan = ["--epsilon", "1", "--delta", "1e-6", "--n-steps", "4", "--quiet", "--overwrite", "--out", "m.dpvb"]
    kept = ["--ledger", "budget.db", "--checkpoint", "run"]
    return CliRunner().invoke(cli.app, ["fit", "logistic", data, *more, *plan, *kept])


def rewrite(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(bytes(content))


#: What somebody does between two attempts, and the file that the refusal names.
CHANGES: dict[str, dict[str, tuple[Callable[[], Any], str]]] = {
    "folder": {
        "rewritten": (lambda: rewrite(Path("days/1.parquet")), "1.parquet"),
        "added": (lambda: shutil.copy("days/0.parquet", "days/3.parquet"), "3.parquet"),
        "removed": (lambda: Path("days/2.parquet").unlink(), "2.parquet"),
    },
    "persons": {"added": (lambda: shutil.copy("days/0.parquet", "days/3.parquet"), "3.parquet")},
    "stream": {"rewritten": (lambda: rewrite(Path("days/0.parquet")), "0.parquet")},
    "file": {"rewritten": (lambda: rewrite(Path("people.csv")), "people.csv")},
    "matrix": {"other responses": (lambda: np.save("y.npy", np.zeros(90, dtype=int)), "y.npy")},
}


@pytest.mark.guarantees("same data")
@kills("crashes", "a run that resumes with other files")
@edit("runs/journal.py", "            checkpoint.check_files(self._files)\n", "")
@edit("cli/fit.py", 'Checkpoint(given["checkpoint"]).check_files(states.states)', "pass")
@pytest.mark.parametrize(("call", "change"), [(call, change) for call in CHANGES for change in CHANGES[call]])
def test_a_run_does_not_resume_with_other_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, change: str
) -> None:
    """One sentence names the file and nothing of its content; with the files as they were the run ends."""
    go_on = stop_after_two(monkeypatch)
    stopped = fit(call)
    assert stopped.exit_code == ExitCode.RESUMABLE, stopped.stderr
    go_on()
    shutil.copytree(folder, folder / "kept", copy_function=shutil.copy2, ignore=shutil.ignore_patterns("kept"))
    do, name = CHANGES[call][change]
    do()
    with dpvb.Ledger("budget.db") as ledger:
        before = len([*ledger.entries()])
    opened: list[Any] = []
    with monkeypatch.context() as spied:
        spied.setattr(dpvb.LogisticRegression, "fit", lambda *given, **named: opened.append(given))
        refused = fit(call)
    assert refused.exit_code == ExitCode.DATA_UNREADABLE, refused.stderr
    assert not opened  # It is refused before anything is read.
    assert f"The file {name!r} was changed, added or removed since the run in" in refused.stderr
    assert refused.stderr.count("\n") == 1
    with dpvb.Ledger("budget.db") as ledger:
        assert len([*ledger.entries()]) == before
    for file in ("days", "people.csv", "y.npy"):
        shutil.rmtree(file) if Path(file).is_dir() else Path(file).unlink()
        copy = shutil.copytree if (folder / "kept" / file).is_dir() else shutil.copy2
        copy(folder / "kept" / file, file)
    ended = fit(call)
    assert ended.exit_code == ExitCode.DONE, ended.stderr
    assert "goes on at release" in ended.stderr


def test_only_the_owner_can_read_what_is_kept_of_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after_two(monkeypatch)
    fit("folder")
    manifest = folder / "run" / "run.json"
    assert stat.S_IMODE(manifest.stat().st_mode) == 0o600
    kept = {name: (size, modified) for name, size, modified in json.loads(manifest.read_text())["files"]}
    states = {path.name: path.stat() for path in (folder / "days").iterdir()}
    assert kept == {name: (found.st_size, found.st_mtime_ns) for name, found in states.items()}


@pytest.mark.guarantees("same data")
def test_python_refuses_them_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = stop_after_two(monkeypatch)

    def fitted() -> Any:
        run = dpvb.Run(ledger="budget.db", dataset="row", checkpoint="run")
        return dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=4).fit(Table("days", SCHEMA), run=run)

    with pytest.raises(KeyboardInterrupt):
        fitted()
    go_on()
    times = Path("days/1.parquet").stat()
    os.utime("days/1.parquet", ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    with pytest.raises(DataFormatError, match=r"The file '1\.parquet' was changed"):
        fitted()
    os.utime("days/1.parquet", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fitted().privacy_.epsilon <= 1


@pytest.mark.guarantees("same data")
@kills("crashes", "a file that changes between two passes")
@edit(
    "estimators/base.py",
    "            progress(number, plan)\n            files.check()\n",
    "            progress(number, plan)\n",
)
@pytest.mark.parametrize("form", ["table", "folder", "documents"])
def test_a_file_that_changes_while_it_is_read_is_noticed_at_the_next_pass(folder: Path, form: str) -> None:
    (folder / "notes.txt").write_text("red green\nblue red\n" * 40)
    with dpvb.Ledger("budget.db") as ledger:
        ledger.register("notes", unit="document", neighboring_relation="add_or_remove_one", epsilon=3, delta=1e-5)
    path = {"table": Path("people.csv"), "folder": Path("days/1.parquet"), "documents": Path("notes.txt")}[form]
    steps = itertools.count()

    def progress(step: int, plan: Any) -> None:
        if next(steps) == 1:
            path.touch()

    if form == "documents":
        source: Any = open_documents(path, vocabulary=["red", "green", "blue"], stream=True)
        model: Any = dpvb.LDA(2, epsilon=1.0, delta=1e-6, n_steps=5)
    else:
        source = Table("days" if form == "folder" else path, SCHEMA, stream=form == "table")
        model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=5)
    run = dpvb.Run(
        ledger="budget.db", dataset="notes" if form == "documents" else "row", checkpoint="run", progress=progress
    )
    with pytest.raises(DataFormatError, match=f"The file '{path.name}' was changed while the fit read it") as caught:
        model.fit(source, run=run)
    assert next(steps) == 2
    assert any("was charged" in note for note in caught.value.__notes__)
    assert not any("Repeat the same call" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("form", ["held", "partitions"])
def test_a_file_that_is_read_once_may_change_afterwards(folder: Path, form: str) -> None:
    schema = Schema(SCHEMA.columns, SCHEMA.target, group=None if form == "held" else "who")
    table = Table("people.csv" if form == "held" else "days", schema)
    touch = lambda step, plan: [path.touch() for path in (Path("people.csv"), Path("days/1.parquet"))]  # noqa: E731
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=3)
    dataset = "row" if form == "held" else "person"
    model.fit(table, run=dpvb.Run(ledger="budget.db", dataset=dataset, checkpoint="run", progress=touch))
    assert model.privacy_.epsilon <= 1
