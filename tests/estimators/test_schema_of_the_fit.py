"""Public rows are read by the schema of the fit: every method that takes rows refuses a table with another one."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.data import Binary, Categorical, Date, Numeric, Schema, Spline, Table, Target
from dpvb.errors import DataFormatError, ParameterError
from dpvb.estimators import PrivateEstimator

N = 60
RNG = np.random.default_rng(0)
CELLS = {
    "a": RNG.uniform(-1, 1, N),
    "b": RNG.uniform(-1, 1, N),
    "k": RNG.choice(["u", "v"], N),
    "y": RNG.choice([0, 1], N),
}
SCHEMA = Schema((Numeric("a", -1, 1), Numeric("b", -1, 1), Categorical("k", ("u", "v"))), target=Target("y"))
COLUMNS = SCHEMA.columns
OTHERS = {
    "range": replace(SCHEMA, columns=(Numeric("a", -10, 10), *COLUMNS[1:])),
    "order": replace(SCHEMA, columns=(COLUMNS[1], COLUMNS[0], COLUMNS[2])),
    "categories": replace(SCHEMA, columns=(*COLUMNS[:2], Categorical("k", ("v", "u")))),
    "missing": replace(SCHEMA, missing_values=("u",)),
}


@dataclass(frozen=True)
class Means(dpvb.Model):
    """Releases the sum of rows; the score of a row is minus its distance to their mean direction."""

    n_steps: int = 1
    score_range = (-2.0, 0.0)

    @property
    def blocks(self) -> Any:
        return {"sum": dpvb.Block((SCHEMA.width,), 1.0)}

    def init(self, rng: Any) -> Any:
        return np.zeros(SCHEMA.width)

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"sum": dpvb.Rows(batch.x_nd)}

    def m_step(self, s: Any, q: Any) -> Any:
        return s.noisy("sum")

    def score(self, q: Any, batch: Any) -> Any:
        return -np.abs(batch.x_nd - q / N).sum(axis=1) + 0 * batch.y_n

    def sample(self, q: Any, n: int, rng: Any) -> Any:
        return np.tile(q / N, (n, 1)), np.arange(n) % 2

    def as_prior(self, q: Any) -> Any:
        return {}


def estimator(name: str) -> Any:
    """An unfitted estimator that fits the table."""
    kind: Any = PrivateEstimator._registered[name]
    own: dict[str, Any] = {
        "PrivateModel": {"model": Means()},
        "Mixture": {"n_components": 2, "n_steps": 1},
        "PCA": {"n_components": 1},
        "FactorAnalysis": {"n_components": 1},
        "PoissonRegression": {"max_count": 1},
        "NegativeBinomialRegression": {"max_count": 1},
    }
    return kind(**own.get(name, {}), epsilon=10.0, delta=1e-6)


def schema_for(name: str, schema: Schema) -> Schema:
    """The schema with a target that the estimator reads."""
    target: dict[str, Target | None] = {
        "LinearRegression": Target("y", kind="numeric", low=0, high=1),
        "PoissonRegression": Target("y", kind="poisson", max_count=1),
        "NegativeBinomialRegression": Target("y", kind="negative_binomial", max_count=1),
        "NaiveBayes": None,
    }
    made = replace(schema, target=target.get(name, schema.target))
    return replace(made, columns=(*schema.columns, Binary("y", (0, 1)))) if name == "NaiveBayes" else made


NAMES = [
    name
    for name, kind in PrivateEstimator._registered.items()
    if kind.__module__.startswith("dpvb.") and "schema" in kind._declares
]


def methods(model: Any) -> list[str]:
    """Its methods that take the rows of a table, except those that fit."""
    fits = {"fit", "fit_transform", "release_plan", "inverse_transform"}
    return [
        name
        for name in dir(type(model))
        if not name.startswith("_") and name not in fits and callable(getattr(model, name, None))
        if "X" in inspect.signature(getattr(model, name)).parameters
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "BinomialRegression"])
def test_every_method_refuses_a_table_with_another_schema(name: str) -> None:
    own = schema_for(name, SCHEMA)
    options = {"response": "y"} if name == "NaiveBayes" else {}
    model = estimator(name).set_params(**options)
    model.fit(Table(CELLS, own))
    found = methods(model)
    assert "score" in found
    for method in found:
        public = {"public": True} if "public" in inspect.signature(getattr(model, method)).parameters else {}
        getattr(model, method)(Table(CELLS, own), **public)
        for other in OTHERS.values():
            with pytest.raises(DataFormatError, match=r"^X must have the schema of the fit, but the two differ in "):
                getattr(model, method)(Table(CELLS, schema_for(name, other)), **public)


def test_a_prior_of_other_columns_is_refused() -> None:
    earlier = estimator("PrivateModel").fit(Table(CELLS, SCHEMA))
    for what, other in OTHERS.items():
        fit = estimator("PrivateModel").set_params(prior=earlier, public_prior=True)
        if what == "missing":  # The model reads the same numbers.
            fit.fit(Table(CELLS, other))
            continue
        with pytest.raises(ParameterError, match="prior must have the "):
            fit.fit(Table(CELLS, other))


def test_a_schema_decodes_what_it_encodes() -> None:
    """Numbers, transformed numbers, dates, curves, values and categories, of cells within their ranges."""
    days = np.array(["2020-03-01", "2021-07-09", "2024-12-31"], dtype="M8[D]")
    cells: dict[str, Any] = {
        "n": np.array([-5.0, 0.25, 10.0]),
        "l": np.array([0.0, 1e3, 1e6]),
        "s": np.array([-1e4, 0.5, 30.0]),
        "d": days,
        "c": np.array([0.0, 33.3, 100.0]),
        "v": np.array(["no", "yes", "no"], dtype=object),
        "k": np.array(["x", None, "z"], dtype=object),
    }
    schema = Schema(
        (
            Numeric("n", -10, 10),
            Numeric("l", 0, 1e6, transform="log1p"),
            Numeric("s", -1e4, 1e4, transform="asinh"),
            Date("d", "2020-01-01", "2025-01-01"),
            Spline("c", knots=(10, 40, 70, 90), low=0, high=100),
            Binary("v", ("no", "yes")),
            Categorical("k", ("x", "z")),
        ),
        scale=10.0,  # Longer than any of these rows, so that none is scaled back.
    )
    design: Any = Table(cells, schema).design(labelled=False, fit_intercept=False)
    [chunk] = design.chunks()
    found = schema.decoded(chunk.rows.x_nd * 10.0)
    for name in "nlsc":
        np.testing.assert_allclose(found[name], cells[name], rtol=1e-9, atol=1e-9)
    assert abs(found["d"] - days.astype("M8[us]")).max() <= np.timedelta64(1, "s")
    assert found["v"].tolist() == ["no", "yes", "no"]
    assert found["k"].tolist() == ["x", None, "z"]


def test_rows_of_nobody_have_the_cells_of_the_table() -> None:
    cells = {**CELLS, "a": np.full(N, 0.8), "k": ["v"] * N}
    schema = replace(SCHEMA, target=Target("y", classes=("no", "yes")))
    model = estimator("PrivateModel").fit(Table({**cells, "y": np.where(CELLS["y"], "yes", "no")}, schema))
    drawn = model.sample(3, rng=0)
    assert list(drawn) == ["a", "b", "k", "y"]
    assert abs(drawn["a"]).max() <= 1
    assert (
        drawn["k"].tolist() == ["v"] * 3
    )  # The noise of a mean of 60 rows at epsilon 10 is about 0.01, and an indicator is 0.35 here.
    assert drawn["y"].tolist() == ["no", "yes", "no"]
