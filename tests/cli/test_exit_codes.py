"""How a command ended, as a scheduler reads it: one exit code for each thing that it can do about it."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner
from planted import edit, kills

import dpvb
from dpvb import cli, errors
from dpvb.cli.root import ExitCode, exit_code_of
from dpvb.core.wall import Wall
from dpvb.runs.checkpoint import Checkpoint

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, its schema, and a ledger with room for one fit of epsilon = 1."""
    rng = np.random.default_rng(0)
    rows = "".join(f"{v:.3f},{n % 2},p{n}\n" for n, v in enumerate(rng.uniform(0, 1, 200)))
    (tmp_path / "people.csv").write_text("v,y,who\n" + rows)
    dpvb.Schema((dpvb.data.Numeric("v", 0, 1),), dpvb.data.Target("y")).save(tmp_path / "people.json")
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.1, delta=1e-5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COUNTED = ("--ledger", "budget.db", "--dataset", "people")
KEPT = (*COUNTED, "--checkpoint", "run")


def fit(*more: str, data: str = "people.csv", out: str = "m.dpvb") -> Any:
    plan = ["--epsilon", "1", "--delta", "1e-6", "--n-steps", "4", "--quiet", "--overwrite"]
    return CliRunner().invoke(cli.app, ["fit", "logistic", data, "--schema", "people.json", "--out", out, *plan, *more])


def test_the_codes_are_in_the_help_and_on_their_page() -> None:
    """Each code with its meaning, and a row of the table."""
    shown = " ".join(CliRunner().invoke(cli.app, ["--help"]).stdout.replace("│", " ").split())
    words = ["done", "wrong usage or another error", "over the cap", "ledger unreachable", "data unreadable"]
    words += ["interrupted and resumable", "completed already", "out of memory", "disk full"]
    for code, meaning in zip(ExitCode, words, strict=True):
        assert f"{code.value} {meaning}" in shown
    text = (ROOT / "docs" / "operations.md").read_text()
    assert all(f"| {code.value} |" in text for code in ExitCode)


def test_done_and_usage(folder: Path) -> None:
    assert fit(*COUNTED).exit_code == ExitCode.DONE
    assert fit("--n-steps", "none").exit_code == ExitCode.FAILED
    assert fit(*COUNTED, "--resume", "load").exit_code == ExitCode.FAILED


@kills("releases", "a fit over the cap that looks like a mistake of usage")
@edit("cli/root.py", "    BudgetError: ExitCode.OVER_BUDGET,\n", "")
def test_over_the_cap(folder: Path) -> None:
    assert fit(*COUNTED).exit_code == ExitCode.DONE
    refused = fit(*COUNTED)
    assert refused.exit_code == ExitCode.OVER_BUDGET, refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_ledger_is_unreachable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another process holds, and a server that is not there; a ledger that never was is a mistake."""
    monkeypatch.setattr("dpvb.ledger.sqlite._WAIT", 0.2)
    held = sqlite3.connect(folder / "budget.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    assert fit(*COUNTED).exit_code == ExitCode.LEDGER_UNREACHABLE
    held.close()
    pytest.importorskip("psycopg")
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 0.3)
    away = fit("--ledger", "postgresql://nobody@127.0.0.1:1/budgets", "--dataset", "people")
    assert away.exit_code == ExitCode.LEDGER_UNREACHABLE, away.stderr
    assert away.stderr.count("Trying again for 0.3 s.") == 1
    assert fit("--ledger", "none.db", "--dataset", "people").exit_code == ExitCode.FAILED


def test_the_data_are_unreadable(folder: Path) -> None:
    (folder / "broken.parquet").write_bytes(b"PAR1")
    (folder / "short.csv").write_text("v\n1\n")
    for data in ("broken.parquet", "short.csv", "gone.csv"):
        assert fit(*COUNTED, data=data).exit_code == ExitCode.DATA_UNREADABLE
    with dpvb.Ledger("budget.db") as ledger:
        assert not any(entry.kind == "charge" for entry in ledger.entries())


def test_interrupted_resumable_and_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops a fit in the middle leaves a run that the same command ends; a third one finds it ended."""
    release = Wall.release
    for stop in (KeyboardInterrupt, errors.PrivateComputationError):

        def stopped(self: Any, query: Any, asked: Any, stop: Any = stop) -> Any:
            if len([*Path("run").glob("release-*")]) == 2:
                raise stop
            return release(self, query, asked)

        monkeypatch.setattr(Wall, "release", stopped)
        ended = fit(*KEPT)
        assert ended.exit_code == ExitCode.RESUMABLE, ended.stderr
        assert "Repeat the same call to continue." in ended.stderr
    monkeypatch.setattr(Wall, "release", release)
    assert fit(*KEPT).exit_code == ExitCode.DONE
    assert fit(*KEPT).exit_code == ExitCode.COMPLETED
    assert fit(*KEPT, "--resume", "load").exit_code == ExitCode.DONE


@pytest.mark.guarantees("silence")
@kills("errors", "units left out where memory is short")
@edit("core/clipped_sums.py", "_ENDS = (*STOPS, MemoryError)", "_ENDS = STOPS")
def test_out_of_memory_ends_a_fit_and_leaves_no_unit_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the charge with one public sentence; the same command resumes once there is memory."""
    from dpvb.models.regression import curvature_then_scores

    asked: list[int] = []
    e_step = curvature_then_scores.CurvatureThenScores.e_step

    def short(self: Any, q: Any, batch: Any, blocks: Any) -> Any:
        asked.append(len(batch))
        if len(batch) and len([*Path("run").glob("release-*")]) == 2:
            raise MemoryError("1234567 rows")
        return e_step(self, q, batch, blocks)

    monkeypatch.setattr(curvature_then_scores.CurvatureThenScores, "e_step", short)
    ended = fit(*KEPT)
    assert ended.exit_code == ExitCode.OUT_OF_MEMORY, ended.stderr
    assert "there is not enough memory" in ended.stderr
    assert "Repeat the same call to continue." in ended.stderr
    assert "1234567" not in ended.stderr
    assert len(asked) < 10  # It did not go on unit by unit.
    monkeypatch.setattr(curvature_then_scores.CurvatureThenScores, "e_step", e_step)
    assert fit(*KEPT).exit_code == ExitCode.DONE


def test_out_of_memory_before_the_charge(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*given: Any, **named: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("dpvb.data.tables.table._joined", short)
    assert fit(*COUNTED).exit_code == ExitCode.OUT_OF_MEMORY
    with dpvb.Ledger("budget.db") as ledger:
        assert not any(entry.kind == "charge" for entry in ledger.entries())


@pytest.mark.parametrize("place", ["checkpoint", "model", "temporary"])
def test_the_disk_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Under the checkpoint after the charge, under --out after the fit, under TMPDIR before both."""

    def full(*given: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    more: list[str] = []
    if place == "checkpoint":
        monkeypatch.setattr(Checkpoint, "_file", full)
    elif place == "model":
        monkeypatch.setattr("dpvb.results.model_file.new_own", full)
    else:
        monkeypatch.setattr("dpvb.data.partitions._put_in_order", full)
        schema = dpvb.Schema((dpvb.data.Numeric("v", 0, 1),), dpvb.data.Target("y"), group="who")
        schema.save("people.json")
        more = ["--stream"]
    ended = fit(*KEPT, *more)
    assert ended.exit_code == ExitCode.DISK_FULL, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "unexpected" not in ended.stderr
    if place == "checkpoint":
        assert "was charged before this happened. Repeat the same call to continue." in ended.stderr
        monkeypatch.undo()
        monkeypatch.chdir(folder)
        assert fit(*KEPT).exit_code == ExitCode.DONE
    if place == "model":
        assert "The fit has ended and was charged. Make room, then resume with: dpvb fit logistic" in ended.stderr
        monkeypatch.undo()
        monkeypatch.chdir(folder)
        words = shlex.split(ended.stderr.partition("resume with: dpvb ")[2])
        assert CliRunner().invoke(cli.app, words).exit_code == ExitCode.DONE
        assert dpvb.load("m.dpvb").privacy_.epsilon <= 1
    with dpvb.Ledger("budget.db") as ledger:
        assert any(entry.kind == "charge" for entry in ledger.entries()) == (place != "temporary")


def test_the_cause_of_an_error_decides_whatever_wraps_it() -> None:
    wrapped = errors.CheckpointError("run: cannot be written.")
    wrapped.__cause__ = OSError(errno.ENOSPC, "full")
    assert exit_code_of(wrapped) is ExitCode.DISK_FULL
    assert exit_code_of(errors.CheckpointError("run: damaged.")) is ExitCode.FAILED
    unloaded = OSError("libllvmlite.so could not be loaded")
    unloaded.__context__ = OSError("libllvmlite.so: failed to map segment from shared object")
    assert exit_code_of(unloaded) is ExitCode.OUT_OF_MEMORY
    assert exit_code_of(OSError(errno.ENOMEM, "x")) is ExitCode.OUT_OF_MEMORY
    assert exit_code_of(errors.OutOfMemoryError("")) is exit_code_of(MemoryError()) is ExitCode.OUT_OF_MEMORY


@kills("releases", "two commands that write one model")
@edit(
    "cli/fit.py",
    "held = files.reserved(out, overwrite)",
    "held = files.reserved(out.with_name(str(id(model))), overwrite)",
)
def test_a_second_command_for_one_model_is_refused_before_its_charge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dpvb.Ledger("budget.db") as ledger:
        ledger.register("others", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.1, delta=1e-5)
    release, second = Wall.release, list[Any]()

    def during(self: Any, query: Any, asked: Any) -> Any:
        if not second:
            second.append(None)
            second[0] = fit("--ledger", "budget.db", "--dataset", "others")
        return release(self, query, asked)

    monkeypatch.setattr(Wall, "release", during)
    assert fit(*COUNTED).exit_code == ExitCode.DONE
    assert second[0].exit_code == ExitCode.FAILED
    assert "is being written by another command" in second[0].stderr
    with dpvb.Ledger("budget.db") as ledger:
        assert ledger.remaining("others").epsilon > 1
    assert not [*folder.glob(".*.lock")]


def test_a_ledger_may_be_required(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPVB_REQUIRE_LEDGER", "1")
    refused = fit()
    assert refused.exit_code == ExitCode.FAILED
    assert "--ledger must name a ledger, because the environment variable DPVB_REQUIRE_LEDGER" in refused.stderr
    assert fit(*COUNTED).exit_code == ExitCode.DONE
    with pytest.raises(errors.ParameterError, match="DPVB_REQUIRE_LEDGER"):
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, max_row_norm=1.0).fit(np.zeros((4, 1)), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("require_ledger = true", "because the file {path} requires one"),
        ("require_ledger = 1", "{path} must have one line"),
        ("require_leger = true", "{path} must have one line"),
        ("require_ledger", "{path} must have one line"),
        ("", "{path} must have one line"),
        ("\udcff", "{path} must have one line"),
        ("require_ledger = false", None),
        (None, None),
    ],
)
def test_a_file_may_require_a_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, words: str | None
) -> None:
    """One that says anything else is refused: a mistake in it must not let fits pass."""
    path = folder / "dpvb.toml"
    monkeypatch.setattr("dpvb.runs.run.SETTINGS", path)
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    ended = fit()
    assert ended.exit_code == (ExitCode.DONE if words is None else ExitCode.FAILED), ended.stderr
    assert words is None or words.format(path=path) in ended.stderr
    assert fit(*COUNTED).exit_code == ExitCode.DONE


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_scheduler_that_ends_a_command(folder: Path, kept: bool) -> None:
    """SIGTERM: 143 where nothing can go on, and the code of a run that the same command resumes."""
    program = [sys.executable, "-c", "from dpvb.cli import app; app(prog_name='dpvb')"]
    call = ["fit", "logistic", "people.csv", "--schema", "people.json", "--out", "m.dpvb", "--epsilon", "1"]
    call += ["--delta", "1e-6", "--n-steps", "1000", "--quiet", "--log-file", "log.jsonl", *(KEPT if kept else COUNTED)]
    process = subprocess.Popen([*program, *call], stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 120
    while '"step"' not in (Path("log.jsonl").read_text() if Path("log.jsonl").exists() else ""):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    code = ExitCode.RESUMABLE if kept else 128 + signal.SIGTERM
    assert process.returncode == code, said
    assert "Traceback" not in said
    last = Path("log.jsonl").read_text().splitlines()[-1]
    assert '"end"' in last
    assert f'"exit_code": {int(code)}' in last
