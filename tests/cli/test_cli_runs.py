"""Fits of the command line that a ledger counts: charged, killed, continued, read again."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import killed_fit
import numpy as np
import pytest
from planted import edit, kills
from test_cli import run

import dpvb
from dpvb.ledger import Ledger
from dpvb.ledger.address import Address, without_password

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["dpvb.estimators.generalized_linear", "dpvb.ledger.sqlite", "dpvb.cli"])


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
    plan = ["--epsilon", "1", "--delta", "1e-5", "--n-steps", "4", "--max-row-norm", "1", "--quiet"]
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


@pytest.mark.guarantees("resume")
def test_a_killed_command_resumes_when_it_is_repeated(folder: Path) -> None:
    killed(arguments(folder), "after the data are read", 3)
    assert not (folder / "m.dpvb").exists()
    assert "goes on at release 3 of" in run(*arguments(folder)).stderr
    model = dpvb.load(folder / "m.dpvb")
    with Ledger(folder / "budget.db") as ledger:
        ledger.verify([model.privacy_.charge])
        assert sum(entry.kind in ("charge", "sole") for entry in ledger.entries()) == 1
        rows = len(ledger.entries())
    assert "entry" in run("show", folder / "m.dpvb").stdout
    refused("--resume 'load'", *arguments(folder, "--overwrite"))
    refused("--overwrite", *arguments(folder, "--resume", "load"))
    run(*arguments(folder, "--resume", "load", "--overwrite"))
    np.testing.assert_array_equal(dpvb.load(folder / "m.dpvb").coef_, model.coef_)
    with Ledger(folder / "budget.db") as ledger:
        assert len(ledger.entries()) == rows


@pytest.mark.guarantees("passwords")
def test_a_password_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 0.0)
    call = arguments(folder)
    call[call.index("--ledger") + 1] = "postgresql://me:hush@nowhere.invalid/budget"
    result = run(*call, code=2)  # The name does not exist, or no resolver answers.
    assert result.stderr.startswith("error: ")
    assert "hush" not in result.stderr


SECRETS = [
    ("postgresql://me:hush@nowhere.invalid/budget", "postgresql://me@nowhere.invalid/budget"),
    ("postgresql://:hush@nowhere.invalid/budget", "postgresql://nowhere.invalid/budget"),
    ("postgresql://nowhere.invalid/b?user=me&password=hush", "postgresql://nowhere.invalid/b?user=me"),
    (
        "postgresql://nowhere.invalid/b?pass%77ord=hush&sslmode=require",
        "postgresql://nowhere.invalid/b?sslmode=require",
    ),
    ("postgresql://nowhere.invalid/b?sslpassword=hush&passfile=/hush", "postgresql://nowhere.invalid/b"),
    ("postgresql://nowhere.invalid/b?host=a%20password%3Dhush", "postgresql://nowhere.invalid/b"),
    ("postgresql://me:hush/er@nowhere.invalid/b", "postgresql://..."),
    ("postgresql://me:12/hush@nowhere.invalid/b", "postgresql://..."),
    ("postgresql://me:hush?er@nowhere.invalid/b", "postgresql://..."),
    ("postgresql://me:hush#er@nowhere.invalid/b", "postgresql://..."),
    ("postgresql://me:hush@hush@nowhere.invalid/b", "postgresql://..."),
    ("postgresql://nowhere.invalid/b?password=hu@hush", "postgresql://..."),
    ("postgresql://me@a:1,b:2/budget", "postgresql://me@a:1,b:2/budget"),
    ("postgresql+psycopg://me:hush@nowhere.invalid/b", "postgresql+psycopg://me@nowhere.invalid/b"),
    ("Postgresql://me:hush@nowhere.invalid/b", "Postgresql://me@nowhere.invalid/b"),
    ("postgresql:/me:hush@nowhere.invalid/b", "postgresql://..."),
    ("host=nowhere.invalid password=hush", "postgresql://..."),
    ("a folder/budget.db", "a folder/budget.db"),
]


@pytest.mark.guarantees("passwords")
@kills("leaks", "a password in the query of an address")
@edit("ledger/address.py", "return bool(separator) and unquote(name) in _PUBLIC and", "return bool(separator) and")
@kills("leaks", "a password in an estimator's repr")
@edit("ledger/address.py", "return repr(without_password(str(self)))", "return repr(str(self))")
@pytest.mark.parametrize(("address", "shown"), SECRETS)
def test_a_ledgers_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    assert without_password(address) == shown
    assert repr(Address(address)) == repr(shown)
    model = dpvb.Run(ledger=address, dataset="notes")
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert one.ledger == address
        assert not any("hush" in text for text in (repr(one), repr(vars(one)), str(one)))
        assert repr(shown) in repr(one)


def test_faults_of_counted_fits(folder: Path) -> None:
    call = arguments(folder)
    without = [part for part in call if part not in ("--dataset", "people")]
    refused("Give --dataset, the environment variable DPVB_DATASET, or neither", *without)
    refused("--resume must be one of", *arguments(folder, "--resume", "replay"))
    beyond = arguments(folder)
    beyond[beyond.index("--epsilon") + 1] = "3"
    beyond[beyond.index("--checkpoint") + 1] = str(folder / "beyond")
    refused("left 2", *beyond)
    with Ledger(folder / "budget.db") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["dataset"]


def test_a_fit_without_a_ledger_says_so(folder: Path) -> None:
    call = arguments(folder)
    assert run(*call[: call.index("--ledger")]).stderr.count("not recorded in a ledger") == 1


@pytest.fixture
def interrupted(folder: Path) -> Path:
    """The folder of a fit that was killed before its first release."""
    killed(arguments(folder), "after the data are read", 1)
    return folder / "run"


@pytest.mark.guarantees("own files")
@kills("names", "a run that others can write")
@edit("runs/checkpoint.py", "            file_ownership.check_own_folder(self.path)\n", "")
@pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
def test_a_folder_of_somebody_else_is_not_resumed(folder: Path, interrupted: Path) -> None:
    call, manifest = arguments(folder), interrupted / "run.json"
    for place, before in ((interrupted, 0o700), (manifest, 0o600)):
        for bit in (0o020, 0o002):
            place.chmod(before | bit)
            refused("others may read or write it" if place == manifest else "others may write to it", *call)
        place.chmod(before)
    manifest.rename(folder / "aside")
    manifest.symlink_to(folder / "aside")
    refused("link", *call)
    manifest.unlink()
    (folder / "aside").rename(manifest)
    elsewhere = call.index("--checkpoint") + 1
    (folder / "link").symlink_to(interrupted)
    refused("link", *call[:elsewhere], str(folder / "link"), *call[elsewhere + 1 :])
    if os.geteuid() == 0:
        for place in (interrupted, manifest):
            os.chown(place, 65534, 65534)
            refused("belongs to user 65534", *call)
            os.chown(place, 0, 0)
    assert not (folder / "m.dpvb").exists()
    open_to_all = folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    refused("others may write to it", *call[:elsewhere], str(open_to_all), *call[elsewhere + 1 :])
    assert os.listdir(open_to_all) == []
    run(*call)
