"""The table of coefficients as a user reads it: codings, contrasts, ratios, and what another program finds."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each

import dpvb
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Numeric, Spline
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.errors import FewUnitsWarning, ParameterError
from dpvb.results.coefficients import _shown

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5}
CODINGS = ("reference", "sum", "none")
LEVELS = ("state", "own", "private")


def people(n: int = 4_000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, work = rng.uniform(20, 80, n), rng.choice(LEVELS, n, p=[0.5, 0.3, 0.2])
    sex, region = rng.choice(["f", "m"], n), rng.choice([1, 2, 3, 4], n)
    psi_n = 0.04 * (age - 50) + 0.8 * (work == "own") - 0.5 * (work == "private") + 0.3 * (sex == "m") + 0.2 * region
    chance_n = 1 / (1 + np.exp(-psi_n))
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 * psi_n)))
    return {
        "age": age,
        "work": work,
        "sex": sex,
        "region": region,
        "ill": (rng.random(n) < chance_n) + 0,
        "hits": rng.binomial(5, chance_n),
        "trials": np.full(n, 5),
        "visits": counts,
    }


TARGETS = {
    "logistic": Target("ill"),
    "binomial": Target("hits", "binomial", max_trials=5, trials="trials"),
    "counts": Target("visits", "negative_binomial", max_count=200),
}


def schema(kind: str = "logistic", levels: tuple[str, ...] = LEVELS, **given: Any) -> Schema:
    """Columns whose places for other values are left out, as other programs have none."""
    closed: dict[str, Any] = {"other": False, "missing": False}
    columns = (
        Numeric("age", 0, 100),
        Categorical("work", levels, **{**closed, **given}),
        Binary("sex", ("f", "m")),
        Categorical("region", (1, 2, 3, 4), **closed),
    )
    return Schema(columns, target=TARGETS[kind], scale=2.0)


def made(like: Schema | None = None, kind: str = "logistic", data: Any = None, **options: Any) -> Any:
    estimator: Any = {
        "logistic": dpvb.LogisticRegression,
        "binomial": dpvb.BinomialRegression,
        "counts": dpvb.NegativeBinomialRegression,
    }[kind]
    own: dict[str, Any] = {
        "logistic": {},
        "binomial": {"max_trials": 5},
        "counts": {"dispersion": 2.0, "max_count": 200},
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewUnitsWarning)
        data = people() if data is None else data
        return estimator(**{**EXACT, **own, **options}).fit(Table(data, schema(kind) if like is None else like))


@pytest.fixture(scope="module", params=["full", "diagonal"])
def private(request: pytest.FixtureRequest) -> Any:
    return made(schema(other=True, missing=True), epsilon=2.0, covariance=request.param)


def test_what_is_said_of_a_row_is_the_same_in_every_coding(private: Any) -> None:
    """A row names one level of each categorical column; its log odds and their interval are those of the places."""
    rows: list[dict[str, float]] = [
        {"intercept": 1, "age": 61.5, f"work={level}": 1, "sex=m": 1, f"region={region}": 1}
        for level in (*LEVELS, "<other>")
        for region in (1, 4)
    ]
    by_hand = [
        private.intercept_[0]
        + sum(
            v * private.coef_[0][private.feature_names_.index(n.removesuffix("=m"))]
            for n, v in row.items()
            if n != "intercept"
        )
        for row in rows
    ]
    for coding in CODINGS:
        found = private.contrast(rows, coding=coding)
        np.testing.assert_allclose([row.mean for row in found], by_hand, rtol=1e-12)
        known = private.contrast(rows, coding="none")
        np.testing.assert_allclose([row.std for row in found], [row.std for row in known], rtol=1e-9)


@pytest.mark.parametrize("exp", [False, True])
def test_differences_of_levels_are_the_same_in_every_coding(private: Any, exp: bool) -> None:
    several = [{"work=own": 1, "work=private": -1}, {"work=own": 1, "work=state": -1}, {"region=3": 2, "region=1": -2}]
    first, *others = (np.array([row[1:5] for row in private.contrast(several, coding=c, exp=exp)]) for c in CODINGS)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9)


def test_another_reference_gives_differences_and_another_order_the_same(private: Any) -> None:
    """Without noise; a reference changes no fit, and an order of categories nothing but rounding."""
    by_state, by_own = made(schema()), made(schema(reference="OWN "))
    assert np.array_equal(by_state.coef_, by_own.coef_)
    names = [row.name for row in by_own.coefficients()]
    assert names == ["intercept", "age", "work=state", "work=private", "sex=m", "region=2", "region=3", "region=4"]
    rows = {row.name: row for row in by_own.coefficients()}
    for level in ("state", "private"):
        found = by_state.contrast({f"work={level}": 1, "work=own": -1})
        assert rows[f"work={level}"][1:5] == pytest.approx(found[1:5], rel=1e-9)
    shuffled = {
        row.name: row for row in made(schema(levels=("private", "own", "state"), reference="own")).coefficients()
    }
    for name, row in rows.items():
        assert shuffled[name][1:5] == pytest.approx(row[1:5], rel=1e-6)


def test_a_reference_of_the_table_is_that_of_a_schema(private: Any) -> None:
    """A table against other levels is, to the last bit, that of the same model whose schema names these levels."""
    plain, model = private.coefficients(), private._coefficients
    other = replace(model, columns=replace(model.columns, schema=schema(other=True, missing=True, reference="own")))
    asked = {"work": "OWN "}
    assert private.coefficients(reference=asked) == other.table(plain.head, 0.95, "reference", False, None)
    found = {row.name: row for row in private.coefficients(reference={"work": "own", "region": "3"}, exp=True)}
    assert "work=own" not in found
    assert found["region=1"] == private.contrast({"region=1": 1, "region=3": -1}, exp=True)._replace(name="region=1")
    assert found["age"] == next(row for row in private.coefficients(exp=True) if row.name == "age")
    assert private.coefficients(reference={}) == plain
    difference = dpvb.compare(private, private, reference=asked)
    assert max(abs(row.mean) for row in difference) == 0
    assert difference.names == private.coefficients(reference=asked).names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reference": {"job": "own"}}, "category of some of the columns work, region.*'job'"),
        ({"reference": {"sex": "m"}}, "category of some of the columns work, region"),
        ({"reference": {"work": "none"}}, "reference of column 'work' must be one of .*'none'"),
        ({"reference": "own"}, "category of some of the columns"),
        ({"reference": {"work": "own"}, "coding": "sum"}, "goes with coding='reference', got coding='sum'"),
    ],
)
def test_a_reference_that_is_none_is_refused(private: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        private.coefficients(**options)


@pytest.mark.parametrize("kind", TARGETS)
def test_without_noise_the_table_is_that_of_maximum_likelihood(kind: str) -> None:
    """Rows, units and reference levels of statsmodels: |z| < .5, and standard errors within a tenth."""
    api = pytest.importorskip("statsmodels.api")
    data = people()
    columns = [data["age"], data["work"] == "state", data["work"] == "private", data["sex"] == "m"]
    columns += [data["region"] == region for region in (2, 3, 4)]
    X = np.column_stack([np.ones(len(data["age"])), *columns]).astype(float)
    response, family = {
        "logistic": (data["ill"], api.families.Binomial()),
        "binomial": (np.column_stack([data["hits"], 5 - data["hits"]]), api.families.Binomial()),
        "counts": (data["visits"], api.families.NegativeBinomial(alpha=0.5)),
    }[kind]
    known = api.GLM(response, X, family=family).fit()
    like = schema(kind, reference="own")
    table = made(like, kind).coefficients()
    assert table.scale == ("log rate" if kind == "counts" else "log odds")
    assert len(table) == X.shape[1]
    for row, mean, std in zip(table, known.params, known.bse, strict=True):
        assert abs(row.mean - mean) < 0.5 * std, row.name
        assert row.std == pytest.approx(std, rel=0.1), row.name


def test_contrasts_have_the_moments_of_draws(private: Any) -> None:
    """40,000 draws, seed 3; means and standard deviations within 6 standard errors (false alarm < 2e-9 each)."""
    coef_nd, intercept_n = private.sample_posterior(40_000, rng=3)
    names = ["sex=m" if name == "sex" else name for name in private.feature_names_]
    drawn = dict(zip(names, coef_nd.T, strict=True))
    rows: list[dict[str, float]] = [
        {"intercept": 1, "age": 50},
        {"age": 10, "work=own": 1, "work=private": -1},
        {"work=own": 0.5, "work=state": 0.5, "work=private": -1},
        {"region=2": 1, "sex=m": -3},
    ]
    for weights, row in zip(rows, private.contrast(rows, coding="none"), strict=True):
        value_n = sum(value * (intercept_n if name == "intercept" else drawn[name]) for name, value in weights.items())
        assert abs(np.mean(value_n) - row.mean) < 6 * row.std / 200
        assert np.std(value_n) == pytest.approx(row.std, rel=6 / math.sqrt(80_000))
        assert np.mean(value_n > 0) == pytest.approx(row.positive, abs=6 * 0.5 / 200)


def test_the_rows_have_the_joint_covariance_of_their_contrasts(private: Any) -> None:
    table = private.coefficients(0.9)
    for i, j in ((0, 1), (2, 3), (1, 6)):
        row = table.contrast({table.names[i]: 2.0, table.names[j]: -1.0})
        weights = np.zeros(len(table))
        weights[[i, j]] = 2.0, -1.0
        assert row.mean == pytest.approx(weights @ table.mean)
        assert row.std**2 == pytest.approx(weights @ table.covariance @ weights)
        assert row.high - row.mean == pytest.approx(1.6448536269514722 * row.std)
    assert [row.std**2 for row in table] == pytest.approx(np.diag(table.covariance))


@pytest.mark.parametrize("options", [{}, {"covariance": "diagonal"}, {"alpha": 2.0}])
@pytest.mark.parametrize("coding", CODINGS)
def test_without_rows_every_line_of_the_table_is_the_priors(coding: str, options: dict[str, Any]) -> None:
    """Posterior and prior variance of every linear combination are one; the intercept's is that of its centre."""
    nobody = {name: column[:0] for name, column in people(9).items()}
    table = made(schema(other=True), data=nobody, **options).coefficients(coding=coding)
    for row, variance in zip(table, table.prior_variance, strict=True):
        assert row.contraction == pytest.approx(0, abs=0.05), row.name
        assert row.note in ("prior", "scale unknown")
        if coding == "none" or row.name in ("age", "sex=m"):
            assert row.std**2 == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_level_that_nobody_has_is_the_priors_whatever_it_is_compared_with(covariance: str) -> None:
    """Without noise, which may look like rows of the level."""
    model = made(schema(missing=True), covariance=covariance)
    for coding in CODINGS:
        rows = {row.name: row for row in model.coefficients(coding=coding)}
        assert rows["work=<missing>"].note == "prior"
        assert rows["work=own"].note == ""
    assert "mostly reflects the prior" in model.summary()


def test_a_table_that_was_saved_is_read(tmp_path: Path) -> None:
    model = made(epsilon=1.0)
    model.save(tmp_path / "new")
    assert dpvb.load(tmp_path / "new").summary() == model.summary()


def test_ratios_are_the_exponentials_and_stay_finite(private: Any) -> None:
    for plain, ratio in zip(private.coefficients(0.8), private.coefficients(0.8, exp=True), strict=True):
        assert ratio.name == plain.name
        assert (ratio.mean, ratio.low, ratio.high) == pytest.approx(
            tuple(map(math.exp, (plain.mean, plain.low, plain.high)))
        )
        assert ratio.low < ratio.mean < ratio.high
        assert ratio.std == pytest.approx(ratio.mean * plain.std)
        assert (ratio.note, ratio.contraction, ratio.positive) == (plain.note, plain.contraction, plain.positive)
    huge = private.contrast({"age": 1e9}, exp=True)
    tiny = private.contrast({"age": -1e9}, exp=True)
    assert json.loads(json.dumps([huge, tiny], allow_nan=False))
    assert tiny.low == 0 < huge.low < math.inf


def test_numbers_of_a_table_show_what_they_are() -> None:
    shown = {14_834.2: "14834", -36_928.4: "-36928", 249.61: "249.6", 1e7: "1e+07", 0.0: "0", 9_999.96: "10000"}
    assert {value: _shown(value) for value in shown} == shown
    ratios = {1.000017963: "1.0000180", 0.99907456: "0.999075", 1.0: "1", 1.0211: "1.021", 1.0 + 2e-9: "1.00000000"}
    assert {value: _shown(value, ratio=True) for value in ratios} == ratios
    low, high = (float(_shown(math.exp(log), ratio=True)) for log in (1.45e-5, 2.14e-5))
    assert 1 < low < high  # Which four digits of a ratio hide.


def test_a_coefficient_per_range_is_as_much_as_the_range_moves(private: Any) -> None:
    unit, whole = private.coefficients(), private.coefficients(per="range")
    for one, other in zip(unit, whole, strict=True):
        assert other[1:5] == pytest.approx([(100 if one.name == "age" else 1) * value for value in one[1:5]])
    foot = [str(table).splitlines()[-2].split(") the ")[1] for table in (unit, whole)]
    assert foot[0] == foot[1]
    plain = dpvb.LogisticRegression(**EXACT, max_row_norm=1.0).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ParameterError, match="per='range' needs declared ranges"):
        plain.coefficients(per="range")
    with pytest.raises(ParameterError, match="per must be"):
        private.coefficients(per="sd")
    for model in (plain, private):
        with pytest.raises(ParameterError, match="coding must be"):
            model.coefficients(coding="helmert")


def test_the_intercept_is_shown_at_the_released_centres() -> None:
    """Without noise the centre is the mean of the column, to the curvature's weights."""
    model = made()
    [line] = [line for line in model.summary().splitlines() if "released centres" in line]
    age = float(line.split("age = ")[1].split(")")[0])
    assert age == pytest.approx(people()["age"].mean(), abs=0.01)
    row = model.contrast({"intercept": 1, "age": people()["age"].mean()})
    assert f"{row.mean:.3g}" in line
    assert row.std < model.coefficients()[0].std
    assert (
        "released centres"
        not in dpvb.LogisticRegression(**EXACT, max_row_norm=1.0).fit(np.eye(4), [0, 1, 0, 1]).summary()
    )


def test_the_text_has_a_head_and_reference_levels_that_are_no_rows(private: Any) -> None:
    table, text = private.coefficients(), private.summary()
    lines = text.splitlines()
    assert lines[0] == "Logistic regression on age, work, sex, region."
    assert lines[1].startswith("Privacy: epsilon = ")
    assert "delta = 1e-05, for each row" in lines[1]
    assert lines[2].startswith("Rows included: ")
    assert [line.split()[0] for line in lines if line.endswith(" reference")] == ["work=state", "sex=f", "region=1"]
    assert "work=state" not in table.names
    assert table.contrast({"work=state": 1}).std == 0
    for row in table:
        assert any(line.startswith(row.name) and f"{row.mean:.4g}" in line for line in lines)
    assert repr(table) == str(table) == text
    features = ["sex=m" if name == "sex" else name for name in private.feature_names_]
    assert [row.name for row in private.coefficients(coding="none")] == ["intercept", *features]
    assert "odds ratio" in private.summary(exp=True)
    assert "NO PRIVACY" in made().summary()
    assert "DRY RUN" in dpvb.LogisticRegression(epsilon=1.0, delta=1e-5).dry_run(schema=schema()).summary()


def test_the_table_names_transforms_levels_and_constants_for_missing_values() -> None:
    columns = (
        Numeric("age", 0, 100, transform="log1p", missing=5.0),
        Binary("sex", ("f", "m")),
        Spline("bmi", (20, 30, 40), 10, 50),
    )
    data = {**people(), "bmi": np.linspace(12, 48, len(people()["age"]))}
    text = dpvb.LogisticRegression(**EXACT).fit(Table(data, Schema(columns, target=Target("ill")))).summary()
    assert "Logistic regression on log1p(age), sex, spline(bmi)." in text
    assert "Missing values are replaced by a constant (age = 5)." in text
    names = [line.split()[0] for line in text.splitlines() if "100 %" in line]
    assert names == ["intercept", "log1p(age)", "sex=m", "bmi[20]", "bmi[40]"]
    plain = Schema((Numeric("age", 0, 100),), target=Target("ill"))
    assert "Missing" not in dpvb.LogisticRegression(**EXACT).fit(Table(people(), plain)).summary()


def test_a_mean_of_levels_leaves_no_level_out(private: Any) -> None:
    rows = {row.name: row.mean for row in private.coefficients(coding="sum")}
    assert sum(rows[f"work={level}"] for level in LEVELS) == pytest.approx(0, abs=1e-12)
    assert sum(rows[f"region={region}"] for region in (1, 2, 3, 4)) == pytest.approx(0, abs=1e-12)
    many = Schema((Categorical("a", tuple(range(2_001))),), target=Target("ill"))
    model = dpvb.LogisticRegression(**EXACT, covariance="diagonal", n_steps=1).fit(
        Table({"a": [1, 2], "ill": [0, 1]}, many)
    )
    with pytest.raises(ParameterError, match="at most 2000 categories, got 2001 of column 'a'"):
        model.coefficients(coding="sum")
    assert len(model.coefficients()) == 2_003


@each(
    ("weights", "match"),
    [
        ({}, "weights must be a mapping of names to numbers"),
        ([], "weights must be a mapping of names to numbers"),
        ("age", "weights must be a mapping of names to numbers"),
        ([{"age": 1}, 3], "weights must be a mapping of names to numbers"),
        (
            {"agee": 1},
            r"weights must name coefficients of the table \('intercept', 'age', 'work=state'.*\), got 'agee'",
        ),
        ({"age": "ten"}, "weight of 'age' must be"),
        ({"age": math.nan}, "weight of 'age' must be"),
    ],
)
def test_a_contrast_of_nothing_known_is_refused(private: Any, weights: Any, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        private.contrast(weights)
    with pytest.raises(ParameterError, match="level must be"):
        private.contrast({"age": 1}, level=1)


def test_a_contrast_is_named_in_words(private: Any) -> None:
    assert private.contrast({"age": 10, "work=own": -1, "sex=m": 0.5}).name == "10 age - work=own + 0.5 sex=m"
    assert private.contrast([{"age": -1}]).names == ("- age",)


@pytest.mark.parametrize("name", ["intercept", "a\x1b[2J\nb", "\u202egnorw", "a=b", " ", "é" * 300])
def test_names_of_any_kind_stand_in_one_line(name: str) -> None:
    columns = (Numeric(name, 0, 1), Categorical(name + "=", (name, "b=c")), Categorical(name + "==b", ("c", "d")))
    data = {column.name: [0.1, 0.9] for column in columns} | {"y": [0, 1]}
    model = dpvb.LogisticRegression(**EXACT).fit(Table(data, Schema(columns, target=Target("y"))))
    text = model.summary()
    assert all(line.isprintable() for line in text.split("\n"))
    table = model.coefficients(coding="none")
    assert table.names == ("intercept", *model.feature_names_)
    lines = str(table).split("\n")
    end = lines.index("contraction: 1 - posterior variance / prior variance, at least 0.")
    assert end - lines.index("") == 2 + len(table)
    doubles = {one for one in table.names if table.names.count(one) > 1}
    assert doubles
    for twice in doubles:
        with pytest.raises(ParameterError, match="the name of 2"):
            table.contrast({twice: 1})


def test_without_an_intercept_the_table_has_none() -> None:
    data = people()
    like = Schema((Numeric("age", 0, 100), Binary("sex", ("f", "m"))), target=Target("ill"))
    model = dpvb.LogisticRegression(**EXACT, fit_intercept=False).fit(Table(data, like))
    assert model.coefficients().names == ("age", "sex=m")
    with pytest.raises(
        ParameterError,
        match=r"weights must name coefficients of the table \('age', 'sex=f', 'sex=m'\), got 'intercept'",
    ):
        model.contrast({"intercept": 1})
