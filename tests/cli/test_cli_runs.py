"""Fits of the command line that a ledger counts: charged, killed, continued, read again."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import killed_fit
import numpy as np
import pytest
from planted import edit, kills
from test_cli import run

import dpvb
from dpvb.cli import fit as fit_command
from dpvb.guards.own import write_own
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
    plan = ["--epsilon", "1", "--delta", "1e-5", "--num-steps", "4", "--row-norm", "1", "--quiet"]
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
    assert "error: " in (said := run("resume", folder / "run", "--overwrite", code=2).stderr)
    assert "has ended" in said
    refused("--overwrite", "resume", folder / "run", "--read")
    run("resume", folder / "run", "--read", "--overwrite")
    np.testing.assert_array_equal(dpvb.load(folder / "m.dpvb").coef_, model.coef_)
    with Ledger(folder / "budget.db") as ledger:
        assert len(ledger.entries()) == rows


@pytest.mark.guarantees("passwords")
def test_a_password_is_not_kept(folder: Path) -> None:
    call = arguments(folder)
    call[call.index("--ledger") + 1] = "postgresql://me:hush@nowhere.invalid/budget"
    result = run(*call, code=2)
    assert result.stderr.startswith("error: ")
    assert "hush" not in result.stderr
    kept = (folder / "run" / "command.json").read_text()
    assert "hush" not in kept
    assert json.loads(kept)["given"]["ledger"] == "postgresql://me@nowhere.invalid/budget"


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
def test_a_ledgers_address_is_kept_without_its_secrets(address: str, shown: str, tmp_path: Path) -> None:
    assert without_password(address) == shown
    assert repr(Address(address)) == repr(shown)
    given = {"ledger": address, "checkpoint": tmp_path / "run"}
    fit_command.remember(tmp_path / "run", "fit_lda", given)
    assert "hush" not in (tmp_path / "run" / "command.json").read_text()
    model = dpvb.Run(ledger=address, dataset="notes")
    for one in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert one.ledger == address
        assert not any("hush" in text for text in (repr(one), repr(vars(one)), str(one)))
        assert repr(shown) in repr(one)


def test_faults_of_counted_fits(folder: Path) -> None:
    call = arguments(folder)
    without = [part for part in call if part not in ("--dataset", "people")]
    refused("Give --dataset, the environment variable DPVB_DATASET, or neither", *without)
    refused("holds no call", "resume", folder)
    refused("holds no call", "resume", folder / "none")
    (folder / "other").mkdir()
    write_own(folder / "other" / "command.json", b'{"command": "fit_magic", "given": {}}')
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
    assert run(*call[: call.index("--ledger")]).stderr.count("not recorded in a ledger") == 1


@pytest.fixture
def interrupted(folder: Path) -> Path:
    """The folder of a fit that was killed before its first release."""
    killed(arguments(folder), "after the data are read", 1)
    return folder / "run"


def rewritten(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a kept call, as its owner could."""
    call = json.loads(place.read_bytes())
    change(call)
    write_own(place, json.dumps(call).encode())


@pytest.mark.guarantees("resume")
def test_a_call_is_kept_for_its_owner_and_shown_when_it_is_made_again(folder: Path, interrupted: Path) -> None:
    if os.name == "posix":
        assert stat.S_IMODE(interrupted.stat().st_mode) == 0o700
        assert stat.S_IMODE((interrupted / "command.json").stat().st_mode) == 0o600
    said = run("resume", interrupted).stderr
    assert said.startswith("going on with `fit logistic` of ")
    for part in (f"data='{folder / 'x.npy'}'", f"out='{folder / 'm.dpvb'}'", "epsilon=1.0", "dataset='people'"):
        assert part in said


@pytest.mark.guarantees("resume")
@kills("names", "a kept call that belongs to no run")
@edit("cli/fit.py", "    check_run(checkpoint, call)\n", "")
def test_a_call_that_no_fit_left_is_not_made(folder: Path, interrupted: Path) -> None:
    """Whatever is in the file: no data are read, no file is written, nothing is spent."""
    place, kept = interrupted / "command.json", (interrupted / "command.json").read_bytes()
    (folder / "letter.txt").write_text("of the owner")

    def given(**values: Any) -> Callable[[dict[str, Any]], object]:
        return lambda call: call["given"].update(values)

    hostile: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("--overwrite", given(out=str(folder / "letter.txt"), overwrite=True)),
        ("names no ledger", given(ledger=None)),
        ("names no ledger", given(dataset=None)),
        ("another data set", given(dataset="others")),
        ("Give it: --ledger", given(ledger="postgresql://...")),
        ("holds no call", given(epsilon=float("inf"))),
        ("holds no call", given(epsilon=float("nan"))),
        ("delta of its call", given(delta="1e-5")),
        ("epsilon of its call", given(epsilon=10**400)),
        ("num_steps of its call", given(num_steps=True)),
        ("num_steps of its call", given(num_steps=4.0)),
        ("data of its call", given(data=["x.npy"])),
        ("data of its call", given(data="x\0.npy")),
        ("data of its call", given(data=None)),
        ("quiet of its call", given(quiet="yes")),
        ("classes of its call", given(classes=["0"])),
        ("classes of its call", given(classes=[0, 1])),
        ("the parameters of this version: extra", given(extra=1)),
        ("the parameters of this version: data", lambda call: call["given"].pop("data")),
        ("does not know", lambda call: call.update(command="resume")),
        ("holds no call", lambda call: call.update(given=[1])),
        ("holds no call", lambda call: call.clear()),
    ]
    for expected, change in hostile:
        rewritten(place, change)
        refused(expected, "resume", interrupted)
        write_own(place, kept)
    for text in (b'{"command": "fit_lda", ' + kept[1:], kept.replace(b"people", b"\\ud800"), b"\xff", b"[" * 10_000):
        write_own(place, text)
        refused("holds no call", "resume", interrupted)
    write_own(place, kept)
    assert (folder / "letter.txt").read_text() == "of the owner"
    assert not (folder / "m.dpvb").exists()
    with Ledger(folder / "budget.db") as ledger:
        assert len(ledger.entries()) == 2
    os.rename(interrupted / "run.json", folder / "aside")
    refused("no run was begun", "resume", interrupted)
    write_own(interrupted / "run.json", b"[]")
    refused("not a checkpoint", "resume", interrupted)
    os.replace(folder / "aside", interrupted / "run.json")
    run("resume", interrupted)


def test_a_call_that_the_first_version_kept_is_made_again(folder: Path) -> None:
    """Its options had their own names, and some parameters had none."""
    killed(arguments(folder, "--no-intercept", "--alpha", "2"), "after the data are read", 1)
    unheard = ("accountant", "random_state", "column_bound")

    def older(call: dict[str, Any]) -> None:
        call["given"]["intercept"] = call["given"].pop("fit_intercept")
        for name in unheard:
            del call["given"][name]

    rewritten(folder / "run" / "command.json", older)
    run("resume", folder / "run")
    assert dpvb.load(folder / "m.dpvb").fit_intercept is False


@pytest.mark.guarantees("own files")
@kills("names", "a kept call that others can write")
@edit("cli/fit.py", "        check_own_folder(folder)\n        call =", "        call =")
@edit("runs/checkpoint.py", "            own.check_own_folder(self.path)\n", "")
@pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
def test_a_folder_of_somebody_else_is_not_resumed(folder: Path, interrupted: Path) -> None:
    call, manifest = interrupted / "command.json", interrupted / "run.json"
    for place, before in ((interrupted, 0o700), (call, 0o600), (manifest, 0o600)):
        for bit in (0o020, 0o002):
            place.chmod(before | bit)
            refused(
                "others may read or write it" if place == manifest else "others may write to it", "resume", interrupted
            )
        place.chmod(before)
    for place in (call, manifest):
        place.rename(folder / "aside")
        place.symlink_to(folder / "aside")
        refused("link", "resume", interrupted)
        place.unlink()
        (folder / "aside").rename(place)
    (folder / "link").symlink_to(interrupted)
    refused("link", "resume", folder / "link")
    if os.geteuid() == 0:
        for place in (interrupted, call, manifest):
            os.chown(place, 65534, 65534)
            refused("belongs to user 65534", "resume", interrupted)
            os.chown(place, 0, 0)
    assert not (folder / "m.dpvb").exists()
    open_to_all = folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    fit = arguments(folder)
    fit[fit.index("--checkpoint") + 1] = str(open_to_all)
    refused("others may write to it", *fit)
    assert os.listdir(open_to_all) == []
    run("resume", interrupted)


@pytest.mark.guarantees("resume")
@kills("names", "a kept call that replaces files")
@edit("cli/fit.py", '"overwrite": overwrite}', '"overwrite": (overwrite := overwrite or given["overwrite"])}')
def test_a_resumed_fit_never_replaces_a_file_by_itself(folder: Path) -> None:
    (folder / "m.dpvb").write_text("of the owner")
    killed(arguments(folder, "--overwrite"), "after the data are read", 1)
    refused("--overwrite", "resume", folder / "run")
    assert (folder / "m.dpvb").read_text() == "of the owner"
    run("resume", folder / "run", "--overwrite")
    assert dpvb.load(folder / "m.dpvb").n_features_in_ > 0
