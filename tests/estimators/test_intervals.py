"""The law of intervals as a user meets it: ranges and units change nothing but noise; where noise rules, it shows."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb import federated
from dpvb.core.noise import InsecureNoise
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.errors import FewUnitsWarning, ParameterError

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5}
KINDS: dict[str, tuple[type[Any], dict[str, Any], Target]] = {
    "logistic": (dpvb.LogisticRegression, {}, Target("y")),
    "binomial": (dpvb.BinomialRegression, {"max_trials": 3}, Target("y", "binomial", max_trials=3, trials="n")),
    "counts": (
        dpvb.NegativeBinomialRegression,
        {"dispersion": 2.0, "max_count": 9},
        Target("y", "negative_binomial", max_count=9),
    ),
    "learned counts": (
        dpvb.NegativeBinomialRegression,
        {"max_count": 9},
        Target("y", "negative_binomial", max_count=9),
    ),
    "poisson": (dpvb.PoissonRegression, {"max_count": 9}, Target("y", "poisson", max_count=9)),
    "linear": (dpvb.LinearRegression, {}, Target("y", "numeric", low=-1, high=2)),
}
FULL_ALONE = ("learned counts", "linear")


def people(seed: int = 0, n: int = 2_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, income, smokes = rng.uniform(20, 80, n), rng.lognormal(10, 0.5, n), rng.integers(0, 2, n)
    psi_n = 0.04 * (age - 50) + 2e-5 * (income - 3e4) - 0.7 * smokes
    chance = 1 / (1 + np.exp(-psi_n))
    return {"age": age, "income": income, "smokes": smokes, "y": (rng.random(n) < chance) + 0, "n": np.ones(n)}


def schema(kind: str, age: tuple[float, float] = (0, 100), income: tuple[float, float] = (0, 3e5)) -> Schema:
    columns = (Numeric("age", *age), Numeric("income", *income), Binary("smokes"))
    return Schema(columns, target=KINDS[kind][2], scale=2.0)


def made(kind: str, data: Any, like: Schema, **options: Any) -> Any:
    estimator, own, _ = KINDS[kind]
    if kind == "linear":
        options.pop("covariance", None)  # It has the full one alone.
    return estimator(**{**EXACT, **own, **options}).fit(Table(data, like))


def shown(model: Any) -> list[np.ndarray]:
    """Means and stds of the coefficients and of the intercept."""
    return [np.ravel(getattr(model, name)) for name in ("coef_", "coef_std_", "intercept_", "intercept_std_")]


@pytest.mark.parametrize(
    ("kind", "covariance"),
    [
        pytest.param(kind, form, marks=[pytest.mark.slow] * (form == "diagonal" and kind != "logistic"))
        for kind in KINDS
        for form in ("full", "diagonal")
        if form == "full" or kind not in FULL_ALONE
    ],
)
def test_without_noise_a_declared_range_changes_nothing_in_original_units(kind: str, covariance: str) -> None:
    """Ranges ten and a hundred times wider, or moved: coefficients, intercept, stds and predictions to 1e-6."""
    data, first = people(), schema(kind)
    one = made(kind, data, first, covariance=covariance)
    for age, income in [((0, 1_000), (0, 3e5)), ((-9_000, 1_000), (-1e7, 2e7)), ((-40, 100), (-5e4, 3e5))]:
        like = schema(kind, age, income)
        other = made(kind, data, like, covariance=covariance)
        for found, known in zip(shown(other), shown(one), strict=True):
            np.testing.assert_allclose(found, known, rtol=1e-6)
        features = {name: data[name] for name in ("age", "income", "smokes")}
        np.testing.assert_allclose(
            other.predict(Table(features, _plain(like))), one.predict(Table(features, _plain(first))), atol=1e-8
        )


def _plain(like: Schema) -> Schema:
    return Schema(like.columns, scale=like.scale)


@pytest.mark.parametrize("covariance", ["full", pytest.param("diagonal", marks=pytest.mark.slow)])
def test_without_noise_a_unit_or_a_row_norm_changes_nothing_in_original_units(covariance: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (1_500, 3))
    y = (rng.random(1_500) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(int)
    options: dict[str, Any] = {**EXACT, "covariance": covariance, "numeric": True}
    one = dpvb.LogisticRegression(**options, max_row_norm=4.0).fit(X, y)
    for factor, unit in ((30.0, 1.0), (1.0, 1_000.0), (7.0, 1e-3)):
        other = dpvb.LogisticRegression(**options, max_row_norm=4.0 * factor * unit).fit(unit * X, y)
        np.testing.assert_allclose(other.coef_ * unit, one.coef_, rtol=1e-6)
        np.testing.assert_allclose(other.coef_std_ * unit, one.coef_std_, rtol=1e-6)
        np.testing.assert_allclose(other.intercept_, one.intercept_, rtol=1e-6)
        np.testing.assert_allclose(other.predict_proba(unit * X), one.predict_proba(X), rtol=1e-6)


def test_several_owners_get_what_one_owner_gets() -> None:
    """Without noise, every column numeric: the table of the pooled fit to 1e-6."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (300, 2))
    y = (rng.random(300) < 0.4).astype(int)
    options: dict[str, Any] = {**EXACT, "numeric": True, "max_row_norm": 3.0, "n_steps": 20}
    pooled = dpvb.LogisticRegression(**options).fit(X, y)
    shards = [(X[:50], y[:50]), (X[50:], y[50:])]
    joined = federated.simulate(dpvb.LogisticRegression(**options), shards, num_rounds=30)
    np.testing.assert_allclose(joined.coef_, pooled.coef_, rtol=1e-4)
    np.testing.assert_allclose(joined.coef_std_, pooled.coef_std_, rtol=1e-4)


STATES = ("married", "single", "divorced", "widowed", "apart")
PLACES = ("spouse", "alone", "child", "parent", "other")


def households(seed: int, n: int = 20_000) -> tuple[dict[str, Any], dict[str, float]]:
    """Two columns of levels, of which 99 % of rows are married spouses or neither; and true differences of levels.

    The data hardly determine what all levels of one column add and all of the other take away, which is 1 here.
    """
    rng = np.random.default_rng(seed)
    share_k = np.array([0.0, 0.5, 0.3, 0.1, 0.1])
    married, odd = rng.random(n) < 0.5, rng.random(n) < 0.01
    state_n = np.where(married, 0, rng.choice(5, n, p=share_k))
    place_n = np.where(married != odd, 0, rng.choice(5, n, p=share_k))
    state_k, place_k = np.array([0.0, -1.6, -1.2, -1.4, -1.0]), np.array([0.0, 1.1, 0.8, 1.3, 0.7])
    chance_n = 1 / (1 + np.exp(-state_k[state_n] - place_k[place_n]))
    data = {"state": np.array(STATES)[state_n], "place": np.array(PLACES)[place_n], "y": (rng.random(n) < chance_n) + 0}
    true = {f"state={name}": float(value) for name, value in zip(STATES[1:], state_k[1:], strict=True)}
    return data, true | {f"place={name}": float(value) for name, value in zip(PLACES[1:], place_k[1:], strict=True)}


def test_differences_of_levels_do_not_depend_on_the_order_of_categories() -> None:
    """A prior of indicators that leave a level out prefers this level; without noise, to 1e-6."""
    data, true = households(5, 2_000)
    one, other = (
        dpvb.LogisticRegression(**EXACT).fit(
            Table(
                data, Schema((Categorical("state", STATES[::step]), Categorical("place", PLACES)), target=Target("y"))
            )
        )
        for step in (1, -1)
    )
    for name in true:
        first = "state=married" if name.startswith("state") else "place=spouse"
        differences = [model.contrast({name: 1.0, first: -1.0}) for model in (one, other)]
        np.testing.assert_allclose(*([d.mean, d.std] for d in differences), rtol=1e-6)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_nearly_collinear_categories_are_near_the_truth(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 4 standard deviations at ε = 1; the noise of these fits is fixed, so that no test has a false alarm."""
    noise = InsecureNoise(seed)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)
    data, true = households(seed)
    like = Schema((Categorical("state", STATES), Categorical("place", PLACES)), target=Target("y"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This fit is not recorded")
        model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5).fit(Table(data, like))
    rows = {row.name: row for row in model.coefficients()}
    assert max(abs(rows[name].mean - value) / rows[name].std for name, value in true.items()) < 4.0


HARD: dict[str, Any] = {
    "a constant column": lambda d: {**d, "age": np.full(len(d["y"]), 40.0)},
    "a range without a value": lambda d: {**d, "income": d["income"] + 1e9},
    "one row": lambda d: {name: column[:1] for name, column in d.items()},
    "no rows": lambda d: {name: column[:0] for name, column in d.items()},
    "collinear columns": lambda d: {**d, "income": 3e3 * d["age"]},
    "no number": lambda d: {**d, "age": np.full(len(d["y"]), math.nan)},
}


@pytest.mark.parametrize(
    ("covariance", "epsilon"),
    [
        ("full", 0.1),
        ("diagonal", math.inf),
        *(pytest.param("full", epsilon, marks=pytest.mark.slow) for epsilon in (1.0, math.inf)),
        *(pytest.param("diagonal", epsilon, marks=pytest.mark.slow) for epsilon in (0.1, 1.0)),
    ],
)
@pytest.mark.parametrize("name", HARD)
def test_hard_data_give_finite_honest_tables(name: str, epsilon: float, covariance: str) -> None:
    data = HARD[name](people(3, 400))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        warnings.filterwarnings("ignore", "The scores of")
        model = made("logistic", data, schema("logistic"), epsilon=epsilon, covariance=covariance)
        rows = model.coefficients()
        text = model.summary()
    assert all(math.isfinite(row.mean) and 0 < row.std < math.inf for row in rows)
    if name == "a constant column":
        assert {row.name: row.note for row in rows}["age"] in ("prior", "scale unknown")
        assert rows[1].note in text
    features = {
        key: np.atleast_1d(column) for key, column in people(4, 5).items() if key in ("age", "income", "smokes")
    }
    assert np.isfinite(model.predict_proba(Table(features, _plain(schema("logistic"))))).all()


def test_the_table_says_where_the_budget_saw_nothing() -> None:
    """Sixty rows at ε = 0.2: every interval is the prior's, and the text says why."""
    model = made("logistic", people(5, 60), schema("logistic"), epsilon=0.2)
    assert [row.note for row in model.coefficients()][1:3] == ["scale unknown", "scale unknown"]
    assert "Declare a narrower range" in model.summary()
    seen = made("logistic", people(5, 30_000), schema("logistic"), epsilon=4.0)
    assert {row.note for row in seen.coefficients()} == {""}
    assert "mostly reflects the prior" not in seen.summary()


def test_both_readings_are_saved(tmp_path: Path) -> None:
    model = made("logistic", people(6, 500), schema("logistic"), epsilon=1.0)
    model.save(tmp_path / "new")
    again = dpvb.load(tmp_path / "new")
    assert again.coefficients() == model.coefficients()
    features = Table({name: people(7, 9)[name] for name in ("age", "income", "smokes")}, _plain(schema("logistic")))
    assert np.array_equal(again.predict_proba(features), model.predict_proba(features))


@pytest.mark.parametrize("wrong", [[3], [-1], [0.5], "all", [[0]], ["age"]])
def test_numeric_names_columns_by_their_places(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="numeric must be True, False or places of columns from 0 to 2"):
        dpvb.LogisticRegression(**EXACT, max_row_norm=1.0, numeric=wrong).fit(np.zeros((4, 3)), np.array([0, 1, 0, 1]))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_ranges_of_a_matrix_are_those_of_a_schema(covariance: str) -> None:
    """Without noise: the table to 1e-6, draws of the posterior with its moments to six standard errors (< 2e-9)."""
    data = people(8)
    columns = ("age", "income", "smokes")
    low, high = [0, 0, 0], [100, 3e5, 1]
    like = Schema(
        tuple(Numeric(name, *ends) for name, *ends in zip(columns, low, high, strict=True)), target=Target("y")
    )
    table = made("logistic", data, like, covariance=covariance)
    model = dpvb.LogisticRegression(**EXACT, low=low, high=high, covariance=covariance)
    model.fit(np.column_stack([data[name] for name in columns]), data["y"])
    for found, known in zip(shown(model), shown(table), strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-6)
    _, intercept = model.sample_posterior(40_000, rng=5)
    assert abs(intercept.mean() - model.intercept_) < 6 * model.intercept_std_ / 200
    assert intercept.std() == pytest.approx(model.intercept_std_[0], rel=6 / math.sqrt(80_000))


def test_numeric_is_not_said_twice() -> None:
    with pytest.raises(ParameterError, match="numeric must be None with a table"):
        made("logistic", people(8, 9), schema("logistic"), numeric=[0])
    with pytest.raises(ParameterError, match="numeric must be None with low and high"):
        dpvb.LogisticRegression(**EXACT, low=0, high=1, numeric=True).fit(np.zeros((4, 3)), np.array([0, 1, 0, 1]))
