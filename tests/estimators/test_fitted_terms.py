"""Interactions, splines and dates in a fit: what a range changes, what another program finds, curves, and files."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.interpolate import CubicSpline

import dpvb
from dpvb import federated
from dpvb.data import Binary, Categorical, Date, Interaction, Numeric, Schema, Spline, Table, Target
from dpvb.errors import FewUnitsWarning, ParameterError

KNOTS = (25.0, 40.0, 60.0, 75.0)
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5}
#: Curves and hard data ask the diagonal form every day, and so do fits without interactions (test_intervals.py).
FULL_EVERY_DAY = pytest.mark.parametrize("covariance", ["full", pytest.param("diagonal", marks=pytest.mark.slow)])
PAIRS = (("age", "bmi"), ("smokes", "age"), ("work", "age"), ("smokes", "work"))


def people(n: int = 3_000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, bmi = rng.uniform(20, 80, n), rng.normal(27, 4, n)
    smokes, work = rng.choice(["no", "yes"], n), rng.choice(["a", "b", "c"], n)
    days = rng.integers(0, 3_000, n)
    psi_n = 0.03 * (age - 50) + 0.05 * (bmi - 27) + 0.004 * (age - 50) * (bmi - 27)
    psi_n += (smokes == "yes") * (0.5 + 0.02 * (age - 50)) + 0.5 * (work == "b") + np.sin(age / 10) + 1e-4 * days - 0.5
    return {
        **{"age": age, "bmi": bmi, "smokes": smokes, "work": work, "days": days},
        "day": np.datetime64("2015-01-01") + days.astype("m8[D]"),
        "ill": (rng.random(n) < 1 / (1 + np.exp(-psi_n))) + 0,
        "visits": rng.poisson(np.exp(0.3 * psi_n)),
    }


def linear(age: tuple[float, float] = (0, 100), bmi: tuple[float, float] = (10, 60), **given: Any) -> Schema:
    """All interactions, the levels closed."""
    work = Categorical("work", ("a", "b", "c"), other=False, missing=False, **given)
    columns = (Numeric("age", *age), Numeric("bmi", *bmi), Binary("smokes", ("no", "yes")), work)
    return Schema((*columns, *(Interaction(*pair) for pair in PAIRS)), Target("ill"), scale=4.0)


def curved(age: tuple[float, float] = (18, 90), reference: float = 40.0) -> Schema:
    columns = (
        Spline("age", KNOTS, *age, reference=reference),
        Date("day", "2015-01-01", "2030-12-31"),
        Binary("smokes", ("no", "yes")),
    )
    return Schema((*columns, Interaction("smokes", "age")), Target("ill"), scale=4.0)


def made(like: Schema, data: Any = None, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewUnitsWarning)
        return dpvb.LogisticRegression(**{**EXACT, **options}).fit(Table(people() if data is None else data, like))


def design(like: Schema, data: Any) -> pd.DataFrame:
    """The columns of the linear schema, made by hand, treatment against the first level."""
    own = pd.DataFrame({"intercept": 1.0, "age": data["age"], "bmi": data["bmi"]})
    own["smokes=yes"] = (data["smokes"] == "yes") + 0.0
    for level in "bc":
        own[f"work={level}"] = (data["work"] == level) + 0.0
    own["age:bmi"], own["smokes=yes:age"] = own["age"] * own["bmi"], own["smokes=yes"] * own["age"]
    for level in "bc":
        own[f"work={level}:age"] = own[f"work={level}"] * own["age"]
        own[f"smokes=yes:work={level}"] = own["smokes=yes"] * own[f"work={level}"]
    return own


# ---------------------------------------------------------------- ranges change nothing


@FULL_EVERY_DAY
def test_without_noise_a_range_changes_nothing_where_there_are_interactions(covariance: str) -> None:
    """Ranges ten times wider, or moved: coefficients within 1e-6 of a std, stds and predictions to 1e-6."""
    data, first = people(), linear()
    one = made(first, data, covariance=covariance)
    features = {name: data[name] for name in ("age", "bmi", "smokes", "work")}
    plain = [Schema(first.columns, scale=first.scale)]
    for age, bmi in [((0, 1_000), (10, 60)), ((-900, 1_000), (10, 60)), ((-50, 150), (-300, 300))]:
        like = linear(age, bmi)
        other = made(like, data, covariance=covariance)
        np.testing.assert_allclose(other.coef_std_, one.coef_std_, rtol=2e-6)
        np.testing.assert_allclose(other.intercept_std_, one.intercept_std_, rtol=2e-6)
        np.testing.assert_allclose((other.coef_ - one.coef_) / one.coef_std_, 0, atol=1e-6)
        np.testing.assert_allclose((other.intercept_ - one.intercept_) / one.intercept_std_, 0, atol=1e-6)
        plain.append(Schema(like.columns, scale=like.scale))
        shown = [m.predict_proba(Table(features, p)) for m, p in ((one, plain[0]), (other, plain[-1]))]
        np.testing.assert_allclose(*shown, atol=1e-8)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_without_noise_a_range_changes_no_curve(covariance: str) -> None:
    at = [20.0, 30.0, 50.0, 80.0]
    found = []
    for age in ((18.0, 90.0), (-150.0, 400.0)):
        model = made(curved(age), covariance=covariance)
        curve = model.partial_effect("age", at, given={"smokes": "yes"})
        found.append(np.array([[row.mean, row.std, row.low, row.high] for row in curve]))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-7)


# ---------------------------------------------------------------- what another program finds


def test_interactions_are_those_of_maximum_likelihood() -> None:
    """Means and stds of every row of the table against statsmodels, treatment coding; 20,000 rows, without noise."""
    data = people(20_000, 1)
    x_nd = design(linear(), data)
    known = sm.Logit(data["ill"], x_nd).fit(disp=0)
    table = made(linear(), data).coefficients()
    assert {row.name for row in table} == set(x_nd.columns)
    for row in table:
        assert abs(row.mean - known.params[row.name]) < 0.5 * known.bse[row.name], row.name
        assert row.std == pytest.approx(known.bse[row.name], rel=0.15), row.name


def test_a_curve_is_that_of_maximum_likelihood() -> None:
    """The same natural spline of SciPy in statsmodels, and a number of years; 20,000 rows, without noise."""
    data, at = people(20_000, 2), np.array([20.0, 30.0, 45.0, 60.0, 70.0])
    like = Schema(curved().columns[:3], Target("ill"))
    free = [0, 2, 3]

    def functions(age: np.ndarray) -> np.ndarray:
        spline = CubicSpline(KNOTS, np.eye(4), bc_type="natural")
        inside = np.clip(age, KNOTS[0], KNOTS[-1])
        slope = np.where((age < KNOTS[0])[:, None], spline(KNOTS[0], 1), spline(KNOTS[-1], 1))
        found: np.ndarray = (spline(inside) + (age - inside)[:, None] * slope)[:, free]
        return found

    x_nd = np.column_stack([np.ones(20_000), functions(data["age"]), data["days"] / 365.25, data["smokes"] == "yes"])
    known = sm.Logit(data["ill"], x_nd.astype(float)).fit(disp=0)
    model = made(like, data)
    l_ad = functions(at)
    std_a = np.sqrt(np.einsum("ad,de,ae->a", l_ad, known.cov_params()[1:4, 1:4], l_ad))
    curve = model.partial_effect("age", at)
    assert curve.names == ("age=20", "age=30", "age=45", "age=60", "age=70")
    np.testing.assert_allclose([row.mean for row in curve], l_ad @ known.params[1:4], atol=0.5 * std_a.min())
    np.testing.assert_allclose([row.std for row in curve], std_a, rtol=0.1)
    table = {row.name: row for row in model.coefficients()}
    assert abs(table["day"].mean - known.params[4]) < 0.5 * known.bse[4]
    assert abs(table["age[60]"].mean - known.params[2]) < 0.5 * known.bse[2]


# ---------------------------------------------------------------- one posterior, whatever is asked of it


@FULL_EVERY_DAY
def test_what_is_said_of_a_row_with_interactions_is_the_same_in_every_coding(covariance: str) -> None:
    model = made(linear(reference="c"), epsilon=2.0, covariance=covariance)
    level, age, bmi = "b", 61.5, 24.0
    row = {"intercept": 1.0, "age": age, "bmi": bmi, "smokes=yes": 1.0, f"work={level}": 1.0, "age:bmi": age * bmi}
    row |= {"smokes=yes:age": age, f"work={level}:age": age, f"smokes=yes:work={level}": 1.0}
    found = [model.contrast(row, coding=coding) for coding in ("reference", "sum", "none")]
    cells = {"age": [age], "bmi": [bmi], "smokes": ["yes"], "work": [level]}
    table = Table(cells, Schema(model.schema_.columns, scale=4.0))
    whole = dict.fromkeys(model.feature_names_, 0.0)
    for one in found:
        assert one.mean == pytest.approx(found[0].mean, rel=1e-9)
        assert one.std == pytest.approx(found[0].std, rel=1e-7)
    x_d = np.zeros(len(whole))
    for name, value in row.items():
        if name != "intercept":
            x_d[model.feature_names_.index(name.replace("smokes=yes", "smokes"))] = value
    assert found[0].mean == pytest.approx(float(model.intercept_[0] + x_d @ model.coef_[0]), rel=1e-9)
    exact = made(linear(reference="c"), covariance=covariance, alpha=1.0)
    assert exact.contrast(row).mean == pytest.approx(exact.decision_function(table)[0], rel=1e-6)
    codes = {r.name for r in model.coefficients()}
    assert "work=a:age" in codes
    assert "work=c:age" not in codes


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_curve_is_the_difference_of_rows_and_of_draws(covariance: str) -> None:
    """Means to 1e-9 against coefficients written out; stds of 40,000 draws to six standard errors (< 2e-9 each)."""
    like = curved()
    model = made(like, epsilon=4.0, covariance=covariance)
    draws_nd, _ = model.sample_posterior(40_000, rng=3)
    spline_k = CubicSpline(KNOTS, np.eye(4), bc_type="natural")(55.0)[[0, 2, 3]]
    both = np.concatenate([spline_k, np.zeros(2), spline_k])
    for given, l_d in (("no", both * ([1] * 5 + [0] * 3)), ("yes", both)):
        [row] = model.partial_effect("age", [55], given={"smokes": given})
        assert row.mean == pytest.approx(float(l_d @ model.coef_[0]), rel=1e-9)
        assert np.std(draws_nd @ l_d) == pytest.approx(row.std, rel=6 / math.sqrt(80_000))
    [row] = model.partial_effect("smokes", ["yes"], given={"age": 40})
    assert row.mean == pytest.approx(model.coef_[0][4], rel=1e-9)
    [ratio] = model.partial_effect("smokes", ["yes"], given={"age": 40}, exp=True)
    assert ratio.low == pytest.approx(math.exp(row.low), rel=1e-9)
    [day] = model.partial_effect("day", ["2020-01-01"], reference=np.datetime64("2019-01-01"))
    assert day.mean == pytest.approx(365 / 365.25 * model.coef_[0][3], rel=1e-9)
    assert "Log odds per value of age, against age=40.0, at smokes=yes." in str(
        model.partial_effect("age", [50], given={"smokes": "yes"})
    )


@pytest.fixture(scope="module")
def simulated() -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(**EXACT).dry_run(schema=curved())


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda m: m.partial_effect("height", [1]), "A curve needs one of the columns age, day, smokes, got 'height'"),
        (lambda m: m.partial_effect("smokes:age", [1]), "A curve needs one of the columns"),
        (lambda m: m.partial_effect("age", []), "at must be a list of values of column 'age'"),
        (lambda m: m.partial_effect("age", "40"), "at must be a list of values"),
        (lambda m: m.partial_effect("age", ["x"], given={"smokes": "no"}), "must be one that a row may have, got 'x'"),
        (
            lambda m: m.partial_effect("age", [math.nan], given={"smokes": "no"}),
            "must be one that a row may have, got nan",
        ),
        (
            lambda m: m.partial_effect("age", [40], given={"smokes": "maybe"}),
            "column 'smokes' must be one that a row may have",
        ),
        (
            lambda m: m.partial_effect("age", [40]),
            "together with 'age': smokes; got none. The effect of 'age' depends on these",
        ),
        (lambda m: m.partial_effect("day", ["2020-01-01"], given={"age": 40}), "together with 'day': none; got age"),
        (lambda m: m.partial_effect("day", [2020]), "column 'day' must be one that a row may have"),
        (lambda m: m.partial_effect("age", [40], given={"smokes": "no"}, level=1.5), "level"),
    ],
)
def test_a_curve_of_nothing_is_refused_with_a_way_out(ask: Any, match: str, simulated: Any) -> None:
    with pytest.raises(ParameterError, match=match):
        ask(simulated)


def test_a_model_without_named_columns_has_no_curve() -> None:
    model = dpvb.LogisticRegression(**EXACT, max_row_norm=2.0).fit(np.eye(3), [0, 1, 0])
    with pytest.raises(ParameterError, match=r"fit a dpvb\.Table, or with low= and high="):
        model.partial_effect("x0", [1])


# ---------------------------------------------------------------- files, owners, hard data


@pytest.mark.parametrize("options", [{}, {"covariance": "diagonal"}])
def test_a_model_is_saved_and_read_with_all_that_it_says(tmp_path: Path, options: dict[str, Any]) -> None:
    model = made(linear(), epsilon=1.0, **options)
    model.save(tmp_path / "m")
    again = dpvb.load(tmp_path / "m")
    assert again.coefficients() == model.coefficients()
    cells = {name: people(9, 5)[name] for name in ("age", "bmi", "smokes", "work")}
    rows = Table(cells, Schema(linear().columns, scale=4.0))
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    asked = {"given": {"bmi": 25, "smokes": "no", "work": "a"}}
    assert again.partial_effect("age", [60], **asked) == model.partial_effect("age", [60], **asked)


@FULL_EVERY_DAY
def test_several_owners_get_the_interactions_of_one_owner(covariance: str) -> None:
    """Without noise: the coefficients of the pooled fit within three hundredths of a std."""
    data = people(600, 4)
    like = linear()
    options: dict[str, Any] = {**EXACT, "covariance": covariance}
    pooled = dpvb.LogisticRegression(**options).fit(Table(data, like))
    parts = [
        Table({name: column[part] for name, column in data.items()}, like) for part in (slice(200), slice(200, 600))
    ]
    joined = federated.simulate(dpvb.LogisticRegression(**options), parts, num_rounds=60)
    np.testing.assert_allclose((joined.coef_ - pooled.coef_) / pooled.coef_std_, 0, atol=0.03)


HARD: dict[str, Any] = {
    "a constant factor": lambda d: {**d, "age": np.full(len(d["ill"]), 40.0)},
    "factors outside their ranges": lambda d: {**d, "age": d["age"] + 1e9, "bmi": d["bmi"] - 1e9},
    "a level without rows": lambda d: {**d, "work": np.full(len(d["ill"]), "a")},
    "one row": lambda d: {name: column[:1] for name, column in d.items()},
    "no rows": lambda d: {name: column[:0] for name, column in d.items()},
    "no number": lambda d: {**d, "age": np.full(len(d["ill"]), math.nan)},
}


@pytest.mark.parametrize(
    ("name", "covariance", "epsilon"),
    [
        pytest.param(name, covariance, epsilon, marks=[pytest.mark.slow] * ((covariance, epsilon) not in every_day))
        for name in HARD
        for every_day in [(("full", 0.1), *[("diagonal", math.inf)] * (name in ("a level without rows", "no number")))]
        for covariance in ("full", "diagonal")
        for epsilon in (0.1, math.inf)
    ],
)
def test_hard_data_give_finite_honest_tables_of_terms(name: str, epsilon: float, covariance: str) -> None:
    for like, asked in ((linear(), {"bmi": 25, "smokes": "no", "work": "a"}), (curved(), {"smokes": "yes"})):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "This fit is not recorded")
            warnings.simplefilter("ignore", FewUnitsWarning)
            warnings.filterwarnings("ignore", "The scores of")
            model = made(like, HARD[name](people(400, 3)), epsilon=epsilon, covariance=covariance)
            rows = [*model.coefficients(), *model.partial_effect("age", [30, 60], given=asked)]
        assert all(math.isfinite(row.mean) and 0 < row.std < math.inf for row in rows)


def test_a_dry_run_and_predictions_know_every_kind_of_column() -> None:
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5).dry_run(schema=curved())
    assert [row.name for row in model.coefficients()][1:5] == ["age[25]", "age[60]", "age[75]", "day"]
    cells = {"age": [30, 50], "day": ["2020-01-01", np.datetime64("2019-01-01")], "smokes": ["no", "yes"]}
    assert np.isfinite(model.predict_proba(cells)).all()


def test_counts_have_interactions_too() -> None:
    """Without noise ranges change nothing: coefficients within 1e-5 of a std, as far as the steps have settled."""
    found = []
    for age in ((0.0, 100.0), (-500.0, 500.0)):
        like = Schema(linear(age).columns, Target("visits", "negative_binomial", max_count=30), scale=4.0)
        model = dpvb.NegativeBinomialRegression(**EXACT, dispersion=5.0, max_count=30).fit(Table(people(), like))
        found.append(model)
    np.testing.assert_allclose((found[1].coef_ - found[0].coef_) / found[0].coef_std_, 0, atol=1e-5)
    np.testing.assert_allclose(found[1].coef_std_, found[0].coef_std_, rtol=2e-6)


@pytest.mark.slow
def test_with_noise_interactions_and_curves_are_covered() -> None:
    """Six tables of 20,000 rows at ε = 1: estimates without noise and privacy's within 6 stds, 85 % within 1.96.

    Under a true coverage of 95 % fewer than 85 % of 96 are inside with probability 1e-4 if all were independent; seeds
    are fixed.
    """
    z = []
    for seed in range(100, 106):
        data = people(20_000, seed)
        for like in (linear(), curved()):
            private, exact = made(like, data, epsilon=1.0), made(like, data)
            z += [(a.mean - b.mean) / a.std for a, b in zip(private.coefficients(), exact.coefficients(), strict=True)]
    assert np.abs(z).max() < 6
    assert np.mean(np.abs(z) < 1.96) > 0.85
