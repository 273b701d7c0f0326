"""Private fits that end too early: killed at a named point in a process of its own, or stopped after two releases."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpvb import LogisticRegression, Run
from dpvb.core.wall import Wall
from dpvb.ledger import Ledger
from dpvb.runs.checkpoint import Checkpoint

if TYPE_CHECKING:
    import pytest

#: What is called, and whether the process dies before or after it: eleven points of a fit, in the order they are met.
POINTS: dict[str, tuple[Any, str, str]] = {
    "before the folder says so": (Checkpoint, "begin", "before"),
    "after the folder says so": (Checkpoint, "begin", "after"),
    "before the charge": (Ledger, "charge", "before"),
    "after the charge": (Ledger, "charge", "after"),
    "before the data are read": (Wall, "_sums", "before"),
    "after the data are read": (Wall, "_sums", "after"),
    "after the noise is drawn": (Checkpoint, "seal", "before"),
    "after the release is sealed": (Checkpoint, "seal", "after"),
    "before it is on record": (Ledger, "append", "before"),
    "after it is on record": (Ledger, "append", "after"),
    "before the end": (Ledger, "append", "last"),
}
STEPS = 4


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-0.5, 0.5, (60, 2))
    return x_nd, (x_nd[:, 0] + 0.2 * rng.standard_normal(60) > 0).astype(int)


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(**{"epsilon": 1.0, "delta": 1e-5, "n_steps": STEPS, "max_row_norm": 1.0, **options})


def fitted(
    ledger: Any, checkpoint: Any, *rows: Any, resume: Any = None, progress: Any = None, **options: Any
) -> LogisticRegression:
    """A fit that a ledger counts, to these rows or to those of `data`."""
    run = Run(ledger=ledger, dataset="people", checkpoint=checkpoint, resume=resume, progress=progress)
    return model(**options).fit(*(rows or data()), run=run)


def die(owner: Any, name: str, when: str, count: int) -> None:
    """Kill this process at the count-th call of a method."""
    method: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def dying(*args: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        last = when == "last" and given.get("state") == "finished"
        if last or (when == "before" and calls == count):
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **given)
        if when == "after" and calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def main(ledger: str, checkpoint: str, point: str, count: int, epsilon: float = 1.0) -> None:
    if point:
        die(*POINTS[point], count)
    fitted(ledger, checkpoint, epsilon=epsilon)


def stop_after_two(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have a run stop after two releases; returns what lets it go on."""
    release = Wall.release

    def stopped(self: Any, query: Any, asked: Any) -> Any:
        if len([*Path("run").glob("release-*")]) == 2:
            raise KeyboardInterrupt
        return release(self, query, asked)

    monkeypatch.setattr(Wall, "release", stopped)
    return lambda: monkeypatch.setattr(Wall, "release", release)
