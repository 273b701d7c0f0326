"""Fits of the command line that a ledger counts: charged, killed, continued, read again."""

from __future__ import annotations

import json
import multiprocessing
import signal
from pathlib import Path

import killed_fit
import numpy as np
import pytest
from test_cli import run

import dpvb
from dpvb.ledger import Ledger

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["dpvb.estimators.regression", "dpvb.ledger.sqlite", "dpvb.cli"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with one data set, and a matrix with labels."""
    with Ledger(tmp_path / "budget.db") as made:
        made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
    x_nd, y_n = killed_fit.data()
    np.save(tmp_path / "x.npy", x_nd)
    np.save(tmp_path / "y.npy", y_n)
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    data = [str(folder / "x.npy"), "--target", str(folder / "y.npy"), "--out", str(folder / "m.dpvb")]
    plan = ["--epsilon", "1", "--delta", "1e-5", "--num-steps", "4", "--quiet"]
    count = ["--ledger", str(folder / "budget.db"), "--dataset", "people", "--checkpoint", str(folder / "run")]
    return ["fit", "logistic", *data, *plan, *count, *more]


def _killed(call: list[str], point: str, count: int) -> None:
    killed_fit.die(*killed_fit.POINTS[point], count)
    dpvb.cli.app(call, standalone_mode=False)


def killed(call: list[str], point: str, count: int) -> None:
    child = SERVER.Process(target=_killed, args=(call, point, count))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL


def refused(expected: str, *args: object) -> None:
    """Exit code 2 and one line on standard error."""
    result = run(*args, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert expected in result.stderr


def test_a_killed_command_is_resumed_as_it_was_called(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed(arguments(folder), "after the data are read", 3)
    assert not (folder / "m.dpvb").exists()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = run("resume", folder / "run").stderr
    assert "goes on at release 3 of" in said
    model = dpvb.load(folder / "m.dpvb")
    with Ledger(folder / "budget.db") as ledger:
        ledger.verify([model.privacy_.charge])
        assert sum(entry.kind in ("charge", "sole") for entry in ledger.entries()) == 1
        rows = len(ledger.entries())
    assert "entry" in run("show", folder / "m.dpvb").stdout
    refused("has ended", "resume", folder / "run", "--overwrite")
    refused("--overwrite", "resume", folder / "run", "--read")
    run("resume", folder / "run", "--read", "--overwrite")
    np.testing.assert_array_equal(dpvb.load(folder / "m.dpvb").coef_, model.coef_)
    with Ledger(folder / "budget.db") as ledger:
        assert len(ledger.entries()) == rows


def test_a_password_is_not_kept(folder: Path) -> None:
    call = arguments(folder)
    call[call.index("--ledger") + 1] = "postgresql://me:hush@nowhere.invalid/budget"
    result = run(*call, code=2)
    assert result.stderr.startswith("error: ")
    assert "hush" not in result.stderr
    kept = (folder / "run" / "command.json").read_text()
    assert "hush" not in kept
    assert json.loads(kept)["given"]["ledger"] == "postgresql://me@nowhere.invalid/budget"


def test_faults_of_counted_fits(folder: Path) -> None:
    call = arguments(folder)
    without = [part for part in call if part not in ("--dataset", "people")]
    refused("belong together", *without)
    refused("holds no call", "resume", folder)
    refused("holds no call", "resume", folder / "none")
    (folder / "other").mkdir()
    (folder / "other" / "command.json").write_text('{"command": "fit_magic", "given": {}}')
    refused("does not know", "resume", folder / "other")
    refused("--resume must be one of", *arguments(folder, "--resume", "replay"))
    beyond = arguments(folder)
    beyond[beyond.index("--epsilon") + 1] = "3"
    beyond[beyond.index("--checkpoint") + 1] = str(folder / "beyond")
    refused("2 left", *beyond)
    with Ledger(folder / "budget.db") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["dataset"]


def test_a_fit_without_a_ledger_says_so(folder: Path) -> None:
    call = arguments(folder)
    assert "nobody keeps count" in run(*call[: call.index("--ledger")]).stderr
