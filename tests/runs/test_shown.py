"""A notebook shows how far a fit has come; nothing else does."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.runs.stops import notebook_line


def ipython(monkeypatch: pytest.MonkeyPatch, shell: object) -> list[str]:
    """Put an IPython in place that has such a shell, and return what it will have shown, line by line."""
    lines: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        lines.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, raw: lines.append(data["text/plain"]))

    package, part = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: shell  # type: ignore[attr-defined]
    part.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    return lines


def fitted(**options: Any) -> Any:
    x_nj = np.random.default_rng(0).random((50, 4)) < 0.5
    return dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, n_steps=3).fit(x_nj, **options)


def test_a_fit_in_a_notebook_shows_its_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ipython(monkeypatch, SimpleNamespace(kernel=object()))
    made: list[int] = []
    fitted(run=dpvb.Run(progress=lambda step, plan: made.append(step)))
    assert lines == []  # Whoever asks to be told shows it.
    fitted()
    assert lines[0] == "fit: nothing is released yet"
    assert lines[1:] == [f"fit: {step} of {made[-1]} releases made" for step in made]


def test_a_long_plan_writes_few_lines_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ipython(monkeypatch, SimpleNamespace(kernel=object()))
    tell = notebook_line()
    plan: Any = [None] * 12_345
    for step in range(1, len(plan) + 1):
        tell(step, plan)
    assert 50 <= len(lines) <= 53
    assert lines[-1] == "fit: 12345 of 12345 releases made"


@pytest.mark.parametrize("shell", [None, SimpleNamespace()], ids=["script", "terminal"])
def test_a_fit_elsewhere_is_silent(shell: object, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ipython(monkeypatch, shell)
    fitted()
    assert lines == []


@kills("leaks", "a notebook shows each run of a selection")
@edit(
    "estimators/choosing.py",
    "    q, estimate = loop.fit(task.model, wall, choice.plans[c],",
    "    from dpvb.runs.stops import notebook_line\n\n    notebook_line()\n"
    "    q, estimate = loop.fit(task.model, wall, choice.plans[c],",
)
def test_how_many_runs_a_selection_made_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ipython(monkeypatch, SimpleNamespace(kernel=object()))
    rng = np.random.default_rng(0)
    x_nd, y_n = rng.uniform(-1, 1, (60, 2)), rng.integers(0, 2, 60)
    given = {"epsilon": 100.0, "delta": 1e-3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpvb.errors.DpvbWarning)
        dpvb.private_select(dpvb.LogisticRegression(**given, low=-1, high=1), [{}, {"n_steps": 2}], x_nd, y_n, **given)
    assert lines == []
