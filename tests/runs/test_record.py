"""Traceability: a model names its run in public facts; the run's private record stays with the user who ran it."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import CliRunner
from killed_fit import stop_after_two
from planted import edit, kills

import dpvb
from dpvb import cli
from dpvb.core.wall import Wall
from dpvb.data import Numeric, Schema, Target
from dpvb.guards.file_ownership import state_folder
from dpvb.guards.version import version_with_commit
from dpvb.runs import record


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two Parquet files of unlike sizes, a schema and a ledger."""
    (tmp_path / "days").mkdir()
    frame = pd.DataFrame({"v": [number / 97 for number in range(97)], "y": [number % 2 for number in range(97)]})
    frame[:31].to_parquet(tmp_path / "days" / "monday.parquet")
    frame[31:].to_parquet(tmp_path / "days" / "tuesday.parquet")
    Schema((Numeric("v", 0, 1),), Target("y")).save(tmp_path / "people.json")
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3, delta=1e-5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(cli.app, list(words))


def fit(*more: str) -> Any:
    plan = ["--epsilon", "1", "--delta", "1e-6", "--n-steps", "3", "--quiet", "--overwrite", "--out", "m.dpvb"]
    kept = ["--ledger", "budget.db", "--dataset", "people", "--checkpoint", "run", "--schema", "people.json"]
    return call("fit", "logistic", "days", *kept, *plan, *more)


@pytest.mark.guarantees("run records")
@kills("leaks", "sizes of private files in a ledger")
@edit(
    "runs/journal.py",
    "releases=[release.event() for release in self._plan], token=token)",
    'releases=[release.event() for release in self._plan], token=token, payload={"files": self._files})',
)
def test_a_model_names_its_run_and_the_record_of_the_run_has_the_files(folder: Path) -> None:
    """In public facts: data set, schema, version, day, run, ledger entry. No size, time or digest of a file leaves."""
    done = fit()
    assert done.exit_code == 0, done.stderr
    public = json.loads(call("show", "m.dpvb", "--json").stdout)
    with dpvb.Ledger("budget.db") as ledger:
        *_, newest, _ = ledger.history(public["run_id"])  # Then the run is said to have ended.
        written = "".join(str(entry) for entry in ledger.entries())
    assert public["charge"] == {"ledger": ledger.uuid, "seq": newest.seq, "hash": newest.hash, "dataset": "people"}
    assert public["origin"] == {
        "version": version_with_commit(),
        "date": newest.created[:10],
        "schema": hashlib.sha256(Path("people.json").read_bytes()).hexdigest(),
    }
    assert f"schema {public['origin']['schema']}" in " ".join(call("show", "m.dpvb").stdout.split())
    shown = call("runs", "show", public["run_id"])
    assert "Do not publish it" in shown.stderr
    private = json.loads(shown.stdout)
    assert (private["run"], private["dataset"], private["state"]) == (public["run_id"], "people", "finished")
    assert private["model"] == "LogisticRegression"
    key = (state_folder() / "key").read_bytes()
    for one, path in zip(private["files"], sorted(Path("days").iterdir()), strict=True):
        digest = hashlib.blake2b(path.read_bytes(), key=key, digest_size=32).hexdigest()
        found = path.stat()
        assert one == {"name": path.name, "size": found.st_size, "modified": found.st_mtime_ns, "digest": digest}
        plain = [digests(path.read_bytes()).hexdigest() for digests in (hashlib.sha256, hashlib.md5, hashlib.blake2b)]
        leaving = [Path("m.dpvb").read_bytes().decode("latin-1"), written, done.stderr, json.dumps(public)]
        for secret in (path.name, str(found.st_size), str(found.st_mtime_ns), digest, *plain):
            assert not any(f'"{secret}"' in text or f" {secret}" in text for text in leaving), secret


@pytest.mark.guarantees("run records")
@kills("names", "others read the record of a run")
@edit("guards/file_ownership.py", "    target = Path(path)\n", "    target, mode = Path(path), 0o644\n")
def test_only_this_user_can_read_records_and_the_key(folder: Path) -> None:
    assert fit().exit_code == 0
    files = [state_folder() / "key", *(state_folder() / "runs").iterdir()]
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((state_folder() / "runs").stat().st_mode) == 0o700
    assert len((state_folder() / "key").read_bytes()) == 32


def test_a_run_that_resumes_keeps_its_record_and_its_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open until it has ended; a model that is read again later has the day on which the run ended."""
    go_on = stop_after_two(monkeypatch)
    monkeypatch.setattr(record, "_now", lambda: "2020-01-01T00:00:00+00:00")
    assert fit().exit_code == 6
    [one] = record.records()
    assert (one.state, one.ended) == ("open", None)
    go_on()
    monkeypatch.setattr(record, "_now", lambda: "2020-02-02T00:00:00+00:00")
    monkeypatch.setattr("dpvb.ledger._now", lambda: "2020-02-02T23:59:59+00:00")
    assert fit().exit_code == 0
    [ended] = record.records()
    assert (ended.run, ended.state) == (one.run, "finished")
    assert (ended.began[:7], (ended.ended or "")[:7]) == ("2020-01", "2020-02")
    assert fit("--resume", "load").exit_code == 0
    origin = dpvb.load("m.dpvb").privacy_.origin
    assert origin is not None
    assert origin.date == "2020-02-02"
    [listed] = json.loads(call("runs", "list", "--json").stdout)
    assert listed["run"] == one.run
    assert "files" not in listed
    assert one.run in call("runs", "list").stdout


def test_folders_of_ended_runs_are_removed_and_those_of_open_runs_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Wall.release
    assert fit().exit_code == 0
    monkeypatch.setattr(Wall, "release", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    assert fit("--checkpoint", "open", "--out", "other.dpvb").exit_code == 6
    assert "0 folders removed, 2 kept." in call("runs", "clean").stdout
    assert "1 folders would be removed, 1 kept." in call("runs", "clean", "--older-than", "0", "--dry-run").stdout
    assert Path("run").is_dir()
    (Path("run") / "notes.txt").write_text("mine")
    with_others = call("runs", "clean", "--older-than", "0")
    assert "cannot be removed" in with_others.stderr
    assert (Path("run") / "notes.txt").read_text() == "mine"
    monkeypatch.setattr(Wall, "release", release)
    assert fit("--checkpoint", "last").exit_code == 0
    done = call("runs", "clean", "--older-than", "0")
    assert "last" in done.stdout
    assert not Path("last").exists()
    assert Path("open").is_dir()
    assert dpvb.load("m.dpvb").privacy_.epsilon <= 1


def test_a_place_that_cannot_be_written_stops_no_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a damaged record, or one of another version."""
    monkeypatch.setattr(record, "_said", set())
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    done = fit()
    assert done.exit_code == 0
    assert "runs leave no record for their owner" in done.stderr
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    runs = folder / "state" / "dpvb" / "runs"
    runs.mkdir(parents=True)
    for name, text in (("a", "{"), ("b", '{"format": 9}'), ("c", '{"format": 1, "files": 3}'), ("d", "[]")):
        (runs / f"{name}.json").write_text(text)
        (runs / f"{name}.json").chmod(0o600)
    listed = call("runs", "list")
    assert listed.exit_code == 0
    assert listed.stderr.count("is damaged, and is left out") == 3
    assert listed.stderr.count("of another version of dpvb") == 1
    assert call("runs", "show", "0" * 32).exit_code == 2
    assert call("runs", "show", "../key").exit_code == 2
