"""`--log-file`: lines of JSON of what is said anyway, with times, until a last line with the exit code."""

from __future__ import annotations

import json
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from planted import edit, kills
from test_cli import run
from test_cli_stops import lines

PRIVATE = "zyzzyvaquux"


@pytest.fixture
def call(tmp_path: Path) -> list[object]:
    rng = np.random.default_rng(0)
    rows = [f"{rng.uniform(18, 90):.1f},{rng.integers(2)},{PRIVATE}" for _ in range(300)]
    (tmp_path / "people.csv").write_text("\n".join(["age,ill,name", *rows]))
    columns = [{"kind": "numeric", "name": "age", "low": 18, "high": 90}]
    (tmp_path / "people.json").write_text(json.dumps({"columns": columns, "target": {"name": "ill"}}))
    data = [tmp_path / "people.csv", "--schema", tmp_path / "people.json", "--out", tmp_path / "m.dpvb"]
    return ["fit", "logistic", *data, "--epsilon", "1", "--delta", "1e-5", "--log-file", tmp_path / "run.jsonl"]


@pytest.mark.guarantees("logs")
@kills("names", "others read when a command made its releases")
@edit("cli/log.py", "_file = os.open(path, flags, 0o600)", "_file = os.open(path, flags, 0o644)")
def test_a_log_has_what_is_said_and_each_release_in_order(tmp_path: Path, call: list[object]) -> None:
    before = datetime.now(UTC)
    said = run(*call, "--quiet")
    found = lines(tmp_path / "run.jsonl")
    times = [datetime.fromisoformat(line["time"]) for line in found]
    assert times == sorted(times)
    assert (times[-1] - before).total_seconds() > 0
    assert (times[0] - before).total_seconds() > -0.002
    assert {line["process"] for line in found} == {os.getpid()}
    assert (found[0]["event"], found[0]["command"]) == ("start", "dpvb fit logistic")
    assert found[0]["arguments"] == [*map(str, call), "--quiet"]
    steps = [(line["step"], line["of"]) for line in found if line["event"] == "step"]
    assert steps == [(step, steps[-1][1]) for step in range(1, steps[-1][1] + 1)]
    messages = [line for line in found if line["event"] == "message"]
    assert [line["message"] for line in messages] == said.stderr.splitlines()
    assert len(messages) == 2  # What nobody counts, and what was written.
    [promise] = [line["message"] for line in found if line["event"] == "statement"]
    assert promise.startswith("epsilon = ")
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("end", 0)
    assert PRIVATE not in (tmp_path / "run.jsonl").read_text()
    assert stat.S_IMODE((tmp_path / "run.jsonl").stat().st_mode) == 0o600


def test_a_refusal_is_an_error_in_the_log_and_lines_are_added(tmp_path: Path, call: list[object]) -> None:
    run(*call, "--quiet")
    number = len(lines(tmp_path / "run.jsonl"))
    told = run(*call, code=2)
    start, message, end = lines(tmp_path / "run.jsonl")[number:]
    assert start["event"] == "start"
    assert (message["level"], message["message"]) == ("error", told.stderr.strip())
    assert "is already there" in message["message"]
    assert (end["level"], end["exit_code"]) == ("error", 2)
    run("schema")  # Another command's words do not go there.
    assert len(lines(tmp_path / "run.jsonl")) == number + 3


@pytest.mark.guarantees("logs")
@kills("leaks", "a password in a log")
@edit("cli/log.py", "{without_password(value)}", "{value}")
@pytest.mark.parametrize("form", ["{}", "--ledger={}"])
def test_a_log_has_the_arguments_without_passwords(
    tmp_path: Path, call: list[object], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpvb.ledger.PATIENCE", 0.0)
    address = form.format("postgresql://ana:s3cr3t@127.0.0.1:1/budgets")
    run(*call, *(["--ledger"] if form == "{}" else []), address, "--dataset", "people", code=4)
    start, *_, end = lines(tmp_path / "run.jsonl")
    assert form.format("postgresql://ana@127.0.0.1:1/budgets") in start["arguments"]
    assert "s3cr3t" not in (tmp_path / "run.jsonl").read_text()
    assert end["exit_code"] == 4


@pytest.mark.guarantees("logs")
@kills("names", "a log follows a link to a file of somebody else's choice")
@edit("cli/log.py", ' | getattr(os, "O_NOFOLLOW", 0)', "")
def test_a_log_that_cannot_be_written_is_refused_or_left(tmp_path: Path, call: list[object]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run.jsonl")
    for path in (tmp_path, tmp_path / "none" / "run.jsonl", tmp_path / "link"):
        told = run(*call[:-1], path, code=2)
        assert "--log-file must be a file that can be written" in told.stderr
        assert not (tmp_path / "m.dpvb").exists()
    if sys.platform == "linux":
        told = run(*call[:-1], "/dev/full")
        assert told.stderr.count("the log ends here") == 1
        assert (tmp_path / "m.dpvb").exists()
