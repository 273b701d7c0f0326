"""Linear regression as a user meets it: the range of y, predictions, σ, files, bad data, and what is refused."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from planted import edit, kills
from scipy.stats import norm

import dpvb
from dpvb import federated
from dpvb.core.noise import InsecureNoise
from dpvb.data import Binary, Categorical, Design, Numeric, Response, Schema, Table, Target
from dpvb.errors import DataFormatError, FewUnitsWarning, ParameterError, PrivacyError

PLAIN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "y_range": (0, 80), "low": [0, -5], "high": [100, 5]}
EXACT = {**PLAIN, "epsilon": math.inf}


def people(n: int = 4_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y = 20 + 0.3 x0 + 2 x1 + N(0, 3²)."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(50, 10, n), rng.standard_normal(n)])
    return X, 20 + X @ [0.3, 2.0] + 3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def private() -> Any:
    """Its noise is fixed, so that no test has a false alarm; 3,000 fits had σ = 2.97 ± 0.16."""
    noise = InsecureNoise(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)
        return dpvb.LinearRegression(**PLAIN).fit(*people())


def test_without_noise_it_is_least_squares_in_the_units_of_x_and_y() -> None:
    X, y = people()
    model = dpvb.LinearRegression(**EXACT).fit(X, y)
    known, *_ = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y, rcond=None)
    np.testing.assert_allclose(model.intercept_, known[0], rtol=1e-3)
    np.testing.assert_allclose(model.coef_, known[1:], rtol=1e-3)
    residual_n = y - known[0] - X @ known[1:]
    assert model.sigma_ == pytest.approx(residual_n.std(), rel=1e-3)
    assert model.score(X, y, public=True) == pytest.approx(1 - residual_n.var() / y.var(), abs=1e-4)


def of_many_kinds(n: int, seed: int) -> tuple[dict[str, np.ndarray], Schema]:
    """y = 10 + x + Σ kind + N(0, 2²): the indicators of each of 24 columns add up to the same constant."""
    rng = np.random.default_rng(seed)
    kind_nj, x = rng.integers(0, 2, (n, 24)), np.exp(rng.normal(0, 1, n)).clip(0, 20)
    data = {f"kind {j}": kind_nj[:, j] for j in range(24)} | {"x": x}
    data["y"] = 10 + x + kind_nj.sum(axis=1) + 2 * rng.standard_normal(n)
    columns = (Numeric("x", 0, 50), *(Categorical(f"kind {j}", (0, 1), other=False) for j in range(24)))
    return data, Schema(columns, target=Target("y", kind="numeric", low=0, high=60))


def test_without_noise_dependent_columns_leave_sigma_and_density_those_of_least_squares() -> None:
    """What rounding makes of a flat direction must not be stepped along: 5,000 such rows gave sigma = 3 for 2."""
    (data, schema), (other, _) = of_many_kinds(5_000, 0), of_many_kinds(5_000, 1)

    def matrix(data: dict[str, np.ndarray]) -> np.ndarray:
        return sm.add_constant(np.column_stack([data[name] for name in data if name != "y"]))

    model = dpvb.LinearRegression(epsilon=math.inf, delta=1e-6).fit(Table(data, schema))
    least = sm.OLS(data["y"], matrix(data)).fit()
    assert model.sigma_ == pytest.approx(math.sqrt(least.mse_resid), rel=4e-3)
    density_n = norm.logpdf(other["y"], least.predict(matrix(other)), math.sqrt(least.mse_resid))
    found = model.evaluate(Table(other, schema), public=True)
    assert found["log_density"] == pytest.approx(density_n.mean(), abs=1e-3)


def test_the_reach_of_sigma_is_shown_where_errors_stop_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of 3 in a range of 80: twelve is four of them; the histogram's bins tell them within a third.

    Noise has the seed 0: with other noise a bin further is possible.
    """
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: InsecureNoise(0))
    X, y = people(20_000)
    one, other = (
        dpvb.LinearRegression(**{**PLAIN, "y_range": (0, end), "epsilon": 4.0}).fit(X, y) for end in (80, 800)
    )
    for model in (one, other):
        assert 8 < model.sigma_reach_ < 16
        assert model.sigma_ == pytest.approx(3.0, rel=0.1)
        assert f", errors counted up to {model.sigma_reach_:.4g}" in model.summary()


def test_a_wider_range_of_y_or_another_unit_changes_nothing_without_noise() -> None:
    X, y = people()
    one = dpvb.LinearRegression(**EXACT).fit(X, y)
    for factor, low, high in ((1.0, -500.0, 700.0), (1e3, 0.0, 8e4), (-1.0, -80.0, 0.0)):
        other = dpvb.LinearRegression(**{**EXACT, "y_range": (low, high)}).fit(X, factor * y)
        np.testing.assert_allclose(other.coef_ / factor, one.coef_, rtol=1e-5)
        np.testing.assert_allclose(other.intercept_ / factor, one.intercept_, rtol=1e-5)
        np.testing.assert_allclose(other.coef_std_ / abs(factor), one.coef_std_, rtol=1e-3)
        assert other.sigma_ / abs(factor) == pytest.approx(one.sigma_, rel=1e-5)


def test_y_moved_with_its_range_moves_the_intercept_alone() -> None:
    """The same noise-free sums, to the bit but for rounding."""
    X, y = people(500)
    one = dpvb.LinearRegression(**EXACT).fit(X, y)
    other = dpvb.LinearRegression(**{**EXACT, "y_range": (1_000, 1_080)}).fit(X, y + 1_000)
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-9)
    assert other.intercept_ == pytest.approx(one.intercept_ + 1_000, rel=1e-9)


def test_what_is_shown_of_a_private_fit_agrees(private: Any) -> None:
    X, y = people(2_000, seed=1)
    mean_n, (low_n, high_n) = private.predict(X), private.predict_interval(X)
    np.testing.assert_allclose(mean_n, private._psi(X)[0])
    assert ((low_n < mean_n) & (mean_n < high_n)).all()
    assert 0.92 < np.mean((low_n <= y) & (y <= high_n)) < 0.98
    assert private.sigma_ == pytest.approx(3.0, rel=0.15)
    np.testing.assert_allclose(0.5 * (high_n - low_n), 1.96 * private.sigma_, rtol=0.01)
    low, high = private.sigma_interval()
    assert low < private.sigma_ < high
    assert private.sigma_interval(0.5)[0] > low
    text = private.summary()
    assert "Linear regression on x0, x1; sigma " in text
    assert "Response per unit of a column." in text
    measured = private.evaluate(X, y, public=True)
    assert measured["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean_n) ** 2)))
    assert measured["r2"] == private.score(X, y, public=True) > 0.4
    assert -3.0 < measured["log_density"] < -2.0
    assert "y clipped to [0, 80]" in str(private.privacy_)


def test_a_schema_has_a_numeric_target(tmp_path: Path) -> None:
    X, y = people()
    data = {"age": X[:, 0], "score": X[:, 1], "old": (X[:, 0] > 60) + 0, "hours": y}
    columns = (Numeric("age", 0, 100), Numeric("score", -5, 5), Binary("old"))
    schema = Schema(columns, target=Target("hours", kind="numeric", low=0, high=80))
    assert Schema.from_json(schema.to_json()) == schema
    budget = {"epsilon": 4.0, "delta": 1e-6}
    model = dpvb.LinearRegression(**budget).fit(Table(data, schema))
    assert model.feature_names_ == ("age", "score", "old")
    model.save(tmp_path / "m")
    again = dpvb.load(tmp_path / "m")
    features = Table({name: data[name][:5] for name in ("age", "score", "old")}, Schema(columns))
    assert np.array_equal(again.predict(features), model.predict(features))
    assert (again.sigma_, again.sigma_interval()) == (model.sigma_, model.sigma_interval())
    assert again.sigma_reach_ == model.sigma_reach_
    assert again.score(Table(data, schema), public=True) == model.score(Table(data, schema), public=True)
    with pytest.raises(ParameterError, match="must be of the kind 'numeric'"):
        dpvb.LinearRegression(**budget).fit(Table(data, Schema(columns, target=Target("hours"))))
    with pytest.raises(ParameterError, match="The schema's target and the model's parameters must agree"):
        dpvb.LinearRegression(**budget, y_range=(0, 50)).fit(Table(data, schema))
    with pytest.raises(ParameterError, match="y_range must be the range"):
        dpvb.LinearRegression(**budget).fit(Table(data, Schema(columns)), y)


@pytest.mark.parametrize("given", [None, 3, (1,), (5, 1), (0, math.nan), ("a", "b"), (0, math.inf)])
def test_a_range_of_y_is_needed_and_is_two_numbers(given: Any) -> None:
    with pytest.raises(ParameterError, match="y_range must be"):
        dpvb.LinearRegression(**{**PLAIN, "y_range": given}).fit(*people(10))


@pytest.mark.parametrize(("low", "high"), [(None, 1), (1, 1), (2, 1), (math.nan, 1)])
def test_a_numeric_target_needs_its_range(low: Any, high: Any) -> None:
    with pytest.raises(ParameterError, match=r"low|high"):
        Target("y", kind="numeric", low=low, high=high)
    with pytest.raises(ParameterError, match="low and high must be None"):
        Target("y", low=0, high=1)


def test_what_it_does_not_know_is_refused(private: Any) -> None:
    X, y = people(10)
    with pytest.raises(ParameterError, match="exp must be False"):
        private.coefficients(exp=True)
    with pytest.raises(PrivacyError):
        private.score(X, y)
    with pytest.raises(DataFormatError, match="requires y"):
        dpvb.LinearRegression(**PLAIN).fit(X)


def spoiled(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = people(300)
    X, y = X.copy(), y.copy()
    if name == "a constant column":
        X[:, 1] = 1.0
    elif name == "duplicate columns":
        X[:, 1] = X[:, 0] / 20 - 2.5
    elif name == "y outside its range":
        y += 1e6
    elif name == "outliers of a million":
        y[::10], X[::7] = 1e6, -1e6
    elif name == "no number":
        y[:], X[3] = math.nan, math.inf
    elif name == "one row":
        X, y = X[:1], y[:1]
    elif name == "no rows":
        X, y = X[:0], y[:0]
    elif name == "constant y":
        y[:] = 40.0
    return X, y


BAD = ["a constant column", "duplicate columns", "y outside its range", "outliers of a million", "no number"]
BAD += ["one row", "no rows", "constant y"]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, math.inf])
@pytest.mark.parametrize("name", BAD)
def test_bad_data_give_finite_honest_tables_in_silence(name: str, epsilon: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        model = dpvb.LinearRegression(**{**PLAIN, "epsilon": epsilon}).fit(*spoiled(name))
        rows, ends = model.coefficients(), model.sigma_interval()
        text = model.summary()
    assert all(math.isfinite(row.mean) and 0 < row.std < math.inf for row in rows), text
    assert 0 < ends[0] <= model.sigma_ <= ends[1] < math.inf
    assert np.isfinite(model.predict_interval(people(5)[0])).all()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_more_columns_than_rows(epsilon: float) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (12, 30)), rng.uniform(-1, 1, 12)
    given = {"epsilon": epsilon, "delta": 1e-6, "y_range": (-1, 1), "low": -1, "high": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        model = dpvb.LinearRegression(**given).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert (model.coef_std_ > 0).all()


def test_values_outside_the_range_are_its_ends_and_a_faulty_y_is_no_row() -> None:
    X, y = people(500)
    one = dpvb.LinearRegression(**{**EXACT, "y_range": (30, 40)}).fit(X, y)
    other = dpvb.LinearRegression(**{**EXACT, "y_range": (30, 40)}).fit(X, np.clip(y, 30, 40))
    assert np.array_equal(one.coef_, other.coef_)
    faulty = np.append(y, [math.nan, math.inf, -math.inf])
    more = dpvb.LinearRegression(**EXACT).fit(np.vstack([X, X[:3]]), faulty)
    assert np.array_equal(more.coef_, dpvb.LinearRegression(**EXACT).fit(X, y).coef_)
    texts = np.array([*map(str, y)], dtype=object)
    assert np.array_equal(dpvb.LinearRegression(**EXACT).fit(X, texts).coef_, more.coef_)


@kills("public facts", "the range of y read off the data")
@edit(
    "data/tables/design.py",
    "y_n = response.places(y_n)",
    "y_n = response.places(y_n) / np.nanmax(np.abs(response.places(y_n)), initial=1e-9)",
)
def test_the_range_of_y_is_the_declared_one() -> None:
    """A row with a far y changes nothing of the others, and is itself at the end of the range."""
    X, y = people(20)
    response = Response("numeric", low=0.0, high=80.0)
    (before,), (after,) = (
        Design(X, one, response=response, max_row_norm=200.0).chunks() for one in (y, np.append(y[:-1], 1e9))
    )
    assert np.array_equal(before.rows.y_n[:-1], after.rows.y_n[:-1])
    np.testing.assert_allclose(before.rows.y_n, y / 40 - 1)
    assert after.rows.y_n[-1] == 1.0


@pytest.mark.parametrize("bound", ["max_offset", "max_weight"])
def test_a_number_has_neither_offset_nor_weight(bound: str) -> None:
    """A target that named them would otherwise be read as if they were not there."""
    with pytest.raises(ParameterError, match="max_offset and max_weight must be None for a response of the kind 'num"):
        Response("numeric", low=0.0, high=1.0, **{bound: 2.0})
    with pytest.raises(TypeError, match="weights"):
        dpvb.LinearRegression(**EXACT).fit(*people(20), weights=np.ones(20))


def test_persons_clusters_and_owners(tmp_path: Path, two_processes: Any) -> None:
    X, y = people(600)
    grouped = dpvb.LinearRegression(**PLAIN).fit(X, y, group=np.arange(600) // 3)
    assert grouped.privacy_.unit == "person"
    one = dpvb.LinearRegression(**EXACT).fit(X, y)
    assert np.array_equal(
        dpvb.LinearRegression(**EXACT).fit(X, y, run=dpvb.Run(cluster=two_processes)).coef_, one.coef_
    )
    joined = federated.simulate(dpvb.LinearRegression(**EXACT), [(X[:200], y[:200]), (X[200:], y[200:])], num_rounds=12)
    np.testing.assert_allclose(joined.coef_, one.coef_, rtol=1e-4)
    np.testing.assert_allclose(joined.sigma_, one.sigma_, rtol=1e-4)


def test_a_ledger_counts_and_a_folder_goes_on(tmp_path: Path) -> None:
    """Stopped after means, curvature, a score, the end; the same call ends it: a second charge has no budget left."""
    ledger = dpvb.Ledger(tmp_path / "l.db")
    X, y = people(400)
    for stop in (1, 3, 5, 8):
        name = f"rows-{stop}"
        ledger.register(name, epsilon=1.0, delta=1e-6, unit="row", neighboring_relation="add_or_remove_one")
        kept: dict[str, Any] = {"ledger": ledger, "dataset": name, "checkpoint": tmp_path / f"run {stop}"}

        def stopped(step: int, plan: object, stop: int = stop) -> None:
            if step == stop:
                raise KeyboardInterrupt

        model = dpvb.LinearRegression(**PLAIN, n_steps=4)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, run=dpvb.Run(**kept, progress=stopped))
        assert np.isfinite(model.fit(X, y, run=dpvb.Run(**kept)).coef_).all()


@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_owners_with_noise_find_the_weights_and_an_honest_sigma(trust: str) -> None:
    """Six standard deviations: false alarms below 1e-6."""
    shards = [people(4_000, seed) for seed in range(3)]
    model = federated.simulate(dpvb.LinearRegression(**PLAIN), shards, num_rounds=12, trust=trust)
    assert (np.abs(model.coef_ - [0.3, 2.0]) < 6 * model.coef_std_).all()
    variance, std, _ = model._sigma
    assert abs(9.0 / 40**2 - variance) < 6 * std


def test_draws_and_comparisons_are_in_the_units_of_y(private: Any) -> None:
    coef_nd, intercept_n = private.sample_posterior(20_000, rng=3)
    error = 6 / math.sqrt(20_000)  # Six standard errors: false alarms below 1e-6.
    assert (np.abs(coef_nd.mean(axis=0) - private.coef_) < error * private.coef_std_).all()
    assert abs(intercept_n.mean() - private.intercept_) < error * private.intercept_std_
    same = dpvb.compare(private, private, disjoint=True)
    assert all(row.mean == 0 for row in same)


def test_it_can_be_chosen_among_settings() -> None:
    X, y = people(2_000)
    kept = {name: PLAIN[name] for name in ("y_range", "low", "high")}
    made = {"epsilon": 1.0, "delta": 1e-6}
    estimator = dpvb.LinearRegression(**made, **kept)
    chosen = dpvb.private_select(estimator, [{"alpha": 1e-3}, {"alpha": 1e5}], X, y, epsilon=9.0, delta=1e-5)
    assert isinstance(chosen, dpvb.LinearRegression)


def test_a_dry_run_has_the_units_of_the_fit() -> None:
    model = dpvb.LinearRegression(**PLAIN).dry_run(width=2, n_units=500)
    assert model.privacy_.dry_run
    assert 0 < model.sigma_ < 100
