"""Ctrl-C and closed pipes, as a terminal and a shell make them: real processes, real signals, real pipes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.ledger import Ledger
from dpvb.runs.stops import told_how_far

PROGRAM = [sys.executable, "-c", "from dpvb.cli import app; app(prog_name='dpvb')"]
#: Enough that a fit is stopped in the middle on any machine.
STEPS = 5_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A matrix of 60 images, and a ledger with room for two fits."""
    np.save(tmp_path / "x.npy", (np.random.default_rng(0).random((60, 6)) < 0.5).astype(np.int8))
    with Ledger(tmp_path / "budget.db") as made:
        made.register("images", unit="row", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
    return tmp_path


def fitting(folder: Path, *more: str, steps: int = STEPS) -> subprocess.Popen[str]:
    plan = ["--hidden", "2", "--epsilon", "1", "--delta", "1e-5", "--n-steps", str(steps), "--quiet"]
    call = ["fit", "sbn", "x.npy", "--out", "m.dpvb", *plan, *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROGRAM, *call], cwd=folder, text=True, start_new_session=True, **pipes)


def stopped(process: subprocess.Popen[str], ready: Callable[[], bool], code: int = 130) -> str:
    """What a process says that gets Ctrl-C once something is ready, and ends with this exit code."""
    end = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert out == ""
    assert "Traceback" not in said
    return said


def made(said: str) -> int:
    found = re.search(r"Stopped after ([\d]+) of ([\d]+) releases\.", said)
    assert found is not None, said
    assert 0 < int(found[1]) < int(found[2])
    return int(found[1])


def lines(path: Path) -> list[dict[str, Any]]:
    """What a log holds."""
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def events(folder: Path, state: str) -> int:
    with Ledger(folder / "budget.db", read_only=True) as ledger:
        return sum(entry.state == state for entry in ledger.entries())


COUNTED = ("--ledger", "budget.db", "--dataset", "images")


def test_a_fit_that_is_stopped_resumes_when_the_command_is_repeated(folder: Path) -> None:
    """The log has a start and an end of each command, also of one that reads a run that has ended."""
    place, kept = folder / "a run", (*COUNTED, "--checkpoint", "a run", "--log-file", "run.jsonl")
    releases = lambda: len(list(place.glob("release-*"))) >= 3  # noqa: E731
    said = stopped(fitting(folder, *kept, steps=150), releases, code=6)
    assert made(said) >= 2
    assert "'images' was charged" in said
    assert "Repeat the same call to continue." in said
    assert not (folder / "m.dpvb").exists()
    for more, text in (((), "goes on at release"), (("--resume", "load", "--overwrite"), "")):
        repeated = fitting(folder, *kept, *more, steps=150)
        out, said = repeated.communicate(timeout=120)
        assert repeated.returncode == 0, said
        assert out == ""
        assert text in said
    ends = [line.get("exit_code") for line in lines(folder / "run.jsonl") if line["event"] in ("start", "end")]
    assert ends == [None, 6, None, 0, None, 0]
    assert dpvb.load(folder / "m.dpvb").privacy_.epsilon <= 1.0
    with Ledger(folder / "budget.db", read_only=True) as ledger:
        assert sum(entry.kind in ("charge", "sole") for entry in ledger.entries()) == 1


def test_a_fit_without_a_checkpoint_says_what_is_left(folder: Path) -> None:
    """The log ends with what was said of the cost."""
    call = fitting(folder, *COUNTED, "--log-file", "run.jsonl")
    said = stopped(call, lambda: events(folder, "started") >= 1)
    assert "'images' was charged" in said
    *_, message, ended = lines(folder / "run.jsonl")
    assert message["message"] == said.splitlines()[-1]
    assert "'images' was charged" in message["message"]
    assert (message["level"], ended["exit_code"]) == ("warning", 128 + signal.SIGINT)
    assert "had not started and were given back" in said
    assert "With --checkpoint an interrupted fit can be continued" in said
    left = re.search(r"'images' has epsilon = ([\d.]+) left", said)
    assert left is not None
    with Ledger(folder / "budget.db", read_only=True) as ledger:
        assert float(left[1]) == pytest.approx(ledger.remaining("images").epsilon, rel=1e-3)
    assert float(left[1]) > 2


@pytest.mark.slow
def test_a_fit_that_nobody_counts_says_what_to_take_as_spent(folder: Path) -> None:
    process = fitting(folder)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert "not recorded in a ledger" in first
    time.sleep(1)
    said = stopped(process, lambda: True)
    assert "Stopped" in said
    assert "take epsilon = 1, delta = 1e-05 as spent" in said
    assert "--ledger, --dataset and --checkpoint" in said
    assert said.count("\n") == 1


def test_a_call_of_fit_raises_with_the_same_notes(folder: Path) -> None:
    def stop(step: int, plan: object) -> None:
        if step == 3:
            raise KeyboardInterrupt

    x_nd = np.load(folder / "x.npy")
    given = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 8}
    with pytest.raises(KeyboardInterrupt) as caught:
        dpvb.SigmoidBeliefNetwork(2, **given).fit(x_nd, run=dpvb.Run(progress=stop))
    far, cost = caught.value.__notes__
    assert far.startswith("Stopped after 3 of ")
    assert "take epsilon = 1," in cost
    counted = dpvb.SigmoidBeliefNetwork(2, **given)
    with pytest.raises(KeyboardInterrupt) as caught:
        counted.fit(
            x_nd, run=dpvb.Run(progress=stop, ledger=folder / "budget.db", dataset="images", checkpoint=folder / "run")
        )
    assert any("Repeat the same call to continue." in note for note in caught.value.__notes__)
    counted.fit(x_nd, run=dpvb.Run(ledger=folder / "budget.db", dataset="images", checkpoint=folder / "run"))


def test_what_is_stopped_before_the_charge_or_after_the_end_says_so() -> None:
    def after(steps: int) -> None:
        with told_how_far(None) as tell:
            for step in range(steps):
                tell(step + 1, [None] * steps)  # type: ignore[arg-type]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        after(0)
    assert caught.value.__notes__ == ["Stopped before anything was charged or released."]
    with pytest.raises(KeyboardInterrupt) as caught:
        after(2)
    assert caught.value.__notes__[0] == "Stopped after 2 of 2 releases."
    assert "resume='load'" in caught.value.__notes__[1]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(["schema"], marks=pytest.mark.slow),
        ["plan", "--epsilon", "1"],
        pytest.param(["fit", "lda", "--help"], marks=pytest.mark.slow),
    ],
)
def test_a_pipe_that_nobody_reads_ends_a_command_silently(call: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*PROGRAM, *call], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == (1 if "--help" in call else 128 + signal.SIGPIPE)


def test_the_first_lines_of_an_answer_can_be_taken(tmp_path: Path) -> None:
    line = f"{shlex.join(PROGRAM)} schema | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")
