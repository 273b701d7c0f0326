"""A model that nobody here had foreseen does all that the shipped ones do; its file imports public names only."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mixture import Mixture
from scipy.optimize import linear_sum_assignment

import dpvb
from dpvb.audit import Matrix
from dpvb.audit.neighbours import check_scores
from dpvb.errors import ModelFileError, ParameterError
from dpvb.testing import Case, check_model

K, D = 3, 2
MEANS = np.array([[0.5, 0.0], [-0.3, 0.4], [-0.2, -0.5]])
GIVEN: dict[str, Any] = {"delta": 1e-6, "random_state": 1, "max_row_norm": 1.0}


def rows(n: int = 6000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x_nd = MEANS[rng.integers(0, K, n)] + 0.08 * rng.standard_normal((n, D))
    return x_nd / np.maximum(1.0, np.linalg.norm(x_nd, axis=1, keepdims=True))


def error(mean_kd: np.ndarray) -> float:
    """Largest distance of a found mean from its true one, components matched."""
    distance = np.linalg.norm(MEANS[:, None] - mean_kd[None], axis=2)
    return float(distance[linear_sum_assignment(distance)].max())


def test_its_file_is_short_and_imports_public_names_alone() -> None:
    text = (Path(__file__).parent / "mixture.py").read_text()
    assert len(text.splitlines()) <= 110
    for node in ast.walk(ast.parse(text)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert not name.startswith("dpvb.") or name in ("dpvb.guards.domains", "dpvb.kernels.linear"), name


@pytest.mark.parametrize(("epsilon", "most"), [(math.inf, 0.003), (1.0, 0.05)])
def test_it_finds_the_means(epsilon: float, most: float) -> None:
    """Repeatable without noise. The noise of a mean is below 0.003: the bound is 15 standard deviations away."""
    model = dpvb.PrivateModel(Mixture(K, D), epsilon=epsilon, **GIVEN).fit(rows(60_000))
    assert error(model.q_.mean_kd) < most
    assert "Mixture" in str(model.privacy_)


HOSTILE = np.vstack([np.zeros(D), np.eye(D), -np.eye(D), np.full((1, D), 1e300), np.full((1, D), 1e-300)])
CASE = Case("mixture", Mixture(K, D), Matrix, lambda rng, n: rng.uniform(-0.7, 0.7, (n, D)), HOSTILE)


def test_it_keeps_every_law() -> None:
    check_model(CASE)


@pytest.mark.guarantees("imports")
def test_no_module_is_imported_by_what_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpvb.PrivateModel(Mixture(K, D), epsilon=1.0, **GIVEN).fit(rows(100)).save(tmp_path / "m.dpvb")
    monkeypatch.delitem(__import__("sys").modules, "mixture")
    with pytest.raises(ModelFileError, match="import its module first"):
        dpvb.load(tmp_path / "m.dpvb")
    assert "mixture" not in __import__("sys").modules


def test_it_is_selected_by_its_own_score() -> None:
    candidates = [{"model": Mixture(k, D)} for k in (1, K)]
    best = dpvb.private_select(
        dpvb.PrivateModel(Mixture(1, D), epsilon=1.0, **GIVEN), candidates, rows(), epsilon=1.0, delta=1e-6
    )
    assert best.model in [candidate["model"] for candidate in candidates]
    assert "2 candidate settings" in str(best.privacy_)
    few, many = (dpvb.PrivateModel(Mixture(k, D), epsilon=math.inf, **GIVEN).fit(rows()) for k in (1, K))
    assert many._quality(rows(500, 9)).mean() > few._quality(rows(500, 9)).mean() + 0.5


def test_no_class_takes_the_name_of_a_shipped_one(tmp_path: Path) -> None:
    dpvb.PrivateModel(Mixture(K, D), epsilon=1.0, **GIVEN).fit(rows(100)).save(tmp_path / "m.dpvb")
    taken = type("PrivateModel", (dpvb.PrivateModel,), {"__module__": "elsewhere"})
    assert not isinstance(dpvb.load(tmp_path / "m.dpvb"), taken)


def test_a_model_of_another_width_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-6)
        model = dpvb.PrivateModel(Mixture(K, D + 1), epsilon=1.0, **GIVEN)
        with pytest.raises(ParameterError, match="e_step on a row of zeros, with 2 features"):
            model.fit(rows(10), run=dpvb.Run(ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


@pytest.mark.parametrize("model", [None, 3, object(), Mixture])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(ParameterError, match=r"model must be a dpvb\.Model"):
        dpvb.PrivateModel(model, epsilon=1.0, **GIVEN).fit(rows(10))


@pytest.mark.parametrize(
    ("score", "ends", "said"),
    [
        (lambda self, q, batch: batch[:, 0] - batch[:, 0].mean(), (-5.0, 5.0), "another score in another batch"),
        (lambda self, q, batch: np.full(len(batch), np.nan), (-5.0, 5.0), "not a number"),
        (lambda self, q, batch: np.zeros(3), (-5.0, 5.0), "one number for each"),
        (lambda self, q, batch: 1 / 0, (-5.0, 5.0), "ZeroDivisionError"),
        (lambda self, q, batch: np.zeros(len(batch)), (5.0, -5.0), "the lower one first"),
    ],
)
def test_the_audit_finds_scores_that_are_no_records_own(score: Any, ends: Any, said: str) -> None:
    kind = type("Scored", (Mixture,), {"score": score, "score_range": ends})
    own = replace(CASE, model=kind(**vars(CASE.model)))
    (check,) = check_scores(own)
    assert not check.passed
    assert said in check.measured
    (sound,) = check_scores(CASE)
    assert sound.passed, sound.measured
