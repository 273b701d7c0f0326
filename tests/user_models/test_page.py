"""The model of docs/new-model.md, as it stands there: it is fitted, kept in a file, selected, and holds every law."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.audit import Matrix
from dpvb.testing import Case, check_model

PAGE = (Path(__file__).parents[2] / "docs" / "new-model.md").read_text()
D = 20
TRUE_KD = np.array([[0.9] * 10 + [0.2] * 10, [0.1] * 10 + [0.7] * 10])


@pytest.fixture
def patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's module."""
    code = PAGE.split("""```python title="patterns.py"\n""")[1].split("```")[0]
    assert len(code.splitlines()) < 55
    (tmp_path / "patterns.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "patterns", raising=False)
    return import_module("patterns")


def answers(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.asarray(rng.random((n, D)) < TRUE_KD[rng.integers(0, 2, n)], dtype=float)


@pytest.mark.parametrize(("epsilon", "most"), [(math.inf, 0.02), (1.0, 0.1)])
def test_the_model_of_the_page_finds_the_patterns(epsilon: float, most: float, patterns: Any, tmp_path: Path) -> None:
    """The data are seeded, so that the fit without noise is repeatable. The noise of a mean is below 0.01: the bound is
    ten standard deviations away."""
    model = dpvb.PrivateModel(patterns.Patterns(2, D), max_row_norm=D**0.5, epsilon=epsilon, delta=1e-6, random_state=1)
    q = model.fit(answers(20_000)).q_
    mean_kd = q.yes_kd / (q.yes_kd + q.no_kd)
    assert np.abs(mean_kd[np.argsort(-mean_kd[:, 0])] - TRUE_KD).max() < most
    model.save(tmp_path / "m.dpvb")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "m.dpvb").q_.yes_kd, q.yes_kd)


def test_a_faulty_row_counts_as_none_in_the_model_of_the_page(patterns: Any) -> None:
    given: dict[str, Any] = {"max_row_norm": D**0.5, "epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    sound = answers(50)
    faulty = np.vstack([sound, np.full((3, D), np.nan)])
    one, other = (dpvb.PrivateModel(patterns.Patterns(2, D), **given).fit(x).q_.yes_kd for x in (sound, faulty))
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_the_model_of_the_page_keeps_every_law(patterns: Any) -> None:
    hostile = np.vstack(
        [np.zeros(D), np.full(D, D**-0.5), np.eye(D)[:2], np.full((1, D), 1e300), np.full((1, D), 1e-300)]
    )
    ordinary = lambda rng, n: (rng.random((n, D)) < 0.5) / D**0.5  # noqa: E731
    check_model(Case("patterns", patterns.Patterns(2, D), Matrix, ordinary, hostile))
