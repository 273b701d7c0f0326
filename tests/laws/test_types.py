"""What mypy says of a user's program: public calls have types, and lists are accepted where a sequence is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import dpvb
from dpvb.data import Binary, Categorical, Numeric, Spline

schema = dpvb.Schema(
    [
        Numeric("age", 18, 90),
        Categorical("sex", ["f", "m"]),
        Binary("smokes", ["no", "yes"]),
        Spline("bmi", knots=[20.0, 25.0, 30.0], low=15, high=60),
    ],
    missing_values=["", "NA"],
)
model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, covariance="diagonal")
reveal_type(model.fit(dpvb.Table("x.csv", schema)))
reveal_type(model.coef_)
reveal_type(model.intercept_)
reveal_type(dpvb.load("x.model"))
reveal_type(dpvb.load("x.model").predict([[1.0]]))
reveal_type(dpvb.private_select(model, [{"max_row_norm": 1.0}], [[1.0]], [1], epsilon=1.0, delta=1e-6))
reveal_type(dpvb.federated.simulate(model, [([[1.0]], [1])]))
"""

TYPES = [
    "dpvb.estimators.generalized_linear.LogisticRegression",
    "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.float64]]",
    "float",
    "dpvb.estimators.base.PrivateEstimator[dpvb.core.model.Model[Any, Any], Any]",
    "Any",
    "dpvb.estimators.generalized_linear.LogisticRegression",
    "dpvb.estimators.generalized_linear.LogisticRegression",
]


def test_public_calls_have_types_and_lists_pass_mypy(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(ROOT)  # The project's own settings, and the cache that `make lint` has filled.
    said, failed, status = api.run(["--config-file", "pyproject.toml", str(tmp_path / "program.py")])
    assert (status, failed) == (0, ""), said
    assert re.findall(r'Revealed type is "(.*)"', said) == TYPES


def test_mypy_refuses_a_choice_that_no_parameter_has(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    wrong = (
        'LogisticRegression(epsilon=1.0, delta=1e-6, covariance="spherical")',
        'LDA(3, epsilon=1.0, delta=1e-6, estimate="median")',
        'DPVI(epsilon=1.0, delta=1e-6, guide="normal")',
        'PCA(epsilon=1.0, delta=1e-6, neighboring_relation="swap")',
    )
    (tmp_path / "program.py").write_text("import dpvb\n" + "".join(f"dpvb.{call}\n" for call in wrong))
    monkeypatch.chdir(ROOT)
    said, _, _ = api.run(["--config-file", "pyproject.toml", str(tmp_path / "program.py")])
    assert said.count('expected "Literal[') == len(wrong), said


def test_simulate_is_listed_in_dir_of_the_module():
    from dpvb import federated

    assert "simulate" in dir(federated)
