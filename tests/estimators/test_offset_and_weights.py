"""Offset, exposure and weights, against statsmodels and against the same rows written out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy.special import expit

import dpvb
from dpvb.audit.kinds import forms
from dpvb.core.wall import Wall
from dpvb.data import Binary, Numeric, Response, Schema, Table, Target
from dpvb.errors import DataFormatError, ParameterError
from dpvb.guards.arrays import Floats

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6, "low": [18, -4], "high": [90, 4]}
OWN: dict[str, dict[str, Any]] = {
    "LogisticRegression": {},
    "BinomialRegression": {"max_trials": 5},
    "PoissonRegression": {"max_count": 60},
    "NegativeBinomialRegression": {"max_count": 60, "dispersion": 2.0},
}
COUNTS = ("PoissonRegression", "NegativeBinomialRegression")
EVERY_KIND = pytest.mark.parametrize("kind", OWN)
#: Every kind has one likelihood behind both forms: one kind asks the diagonal one every day.
EVERY_KIND_AND_FORM = pytest.mark.parametrize(
    ("kind", "covariance"),
    [
        pytest.param(kind, form, marks=[pytest.mark.slow] * (form == "diagonal" and kind != "PoissonRegression"))
        for kind in OWN
        for form in ("full", "diagonal")
    ],
)


def rows(kind: str, seed: int = 0, n: int = 2000) -> dict[str, Any]:
    """Features, responses of a model with these offsets, and weights from 0 to 4."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(18, 90, n), rng.normal(0, 1, n).clip(-4, 4)])
    offset, weights = rng.uniform(-1.5, 1.5, n), rng.integers(0, 5, n).astype(np.float64)
    psi = -0.5 + 0.01 * X[:, 0] + 0.3 * X[:, 1] + offset
    found = {"X": X, "offset": offset, "weights": weights}
    if kind == "LogisticRegression":
        return found | {"y": (rng.random(n) < expit(psi)) + 0}
    if kind == "BinomialRegression":
        trials = rng.integers(1, 6, n)
        return found | {"y": rng.binomial(trials, expit(psi)), "trials": trials}
    spread = rng.gamma(2.0, 0.5, n) if kind == "NegativeBinomialRegression" else 1.0
    return found | {"y": rng.poisson(np.exp(psi) * spread)}


def fitted(kind: str, data: dict[str, Any], **given: Any) -> Any:
    """Without noise; what stands beside the response has bounds that cut nothing, unless others are given."""
    bounds = {"offset": ("max_offset", 4.0), "exposure": ("max_exposure", 8.0), "weights": ("max_weight", 4.0)}
    bound = dict(bounds[name] for name in bounds if name in data)
    return getattr(dpvb, kind)(**{**EXACT, **OWN[kind], **bound, **given}).fit(**data)


def taken(data: dict[str, Any], which: Any) -> dict[str, Any]:
    return {name: column[which] for name, column in data.items()}


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: column for name, column in data.items() if name not in names}


def numbers(model: Any) -> Floats:
    """Intercept, coefficients and their stds."""
    parts = (model.intercept_, model.coef_, model.intercept_std_, model.coef_std_)
    return np.concatenate([np.ravel(part) for part in parts])


# --- what they mean -----------------------------------------------------------------------------------------


@EVERY_KIND
def test_without_noise_they_are_those_of_statsmodels(kind: str) -> None:
    """A generalised linear model with offset and frequency weights: means within 0.2 standard errors, stds to 5 %."""
    sm = pytest.importorskip("statsmodels.api")
    data = rows(kind, n=3000)
    model = fitted(kind, data, n_steps=40, robust=False)
    y, family = data["y"], sm.families.Binomial()
    if kind == "BinomialRegression":
        y = np.column_stack([data["y"], data["trials"] - data["y"]])
    if kind in COUNTS:
        negative = kind == "NegativeBinomialRegression"
        family = sm.families.NegativeBinomial(alpha=0.5) if negative else sm.families.Poisson()
    X = sm.add_constant(data["X"])
    peer = sm.GLM(y, X, family=family, offset=data["offset"], freq_weights=data["weights"])
    peer = peer.fit()
    found = numbers(model)
    assert (np.abs(found[:3] - peer.params) < 0.2 * peer.bse).all()
    np.testing.assert_allclose(found[3:], peer.bse, rtol=0.05)


@EVERY_KIND_AND_FORM
def test_a_row_of_weight_four_is_the_row_four_times_and_one_of_weight_zero_is_none(kind: str, covariance: str) -> None:
    """Intervals that are robust take the four rows for those of one unit."""
    data = rows(kind, n=600)
    times = np.repeat(np.arange(600), data["weights"].astype(int))
    weighted = numbers(fitted(kind, data, covariance=covariance, robust=False))
    # The grid of sums follows the bound, and a fit without noise is as fine as its grid.
    repeated = numbers(fitted(kind, taken(without(data, "weights"), times), covariance=covariance, robust=False))
    np.testing.assert_allclose(weighted, repeated, rtol=0.01)
    data["weights"] = np.where(data["weights"] > 1, 4.0, 0.0)
    four = np.repeat(np.flatnonzero(data["weights"]), 4)
    weighted = numbers(fitted(kind, data, covariance=covariance, robust=False))
    repeated = numbers(fitted(kind, taken(without(data, "weights"), four), covariance=covariance, robust=False))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("covariance", ["full", pytest.param("diagonal", marks=pytest.mark.slow)])
def test_an_exposure_is_an_offset_of_its_logarithm(kind: str, covariance: str) -> None:
    data = without(rows(kind), "weights")
    exposed = without(data, "offset") | {"exposure": np.exp(data["offset"])}
    by_offset = numbers(fitted(kind, data, covariance=covariance))
    np.testing.assert_allclose(numbers(fitted(kind, exposed, covariance=covariance)), by_offset, rtol=1e-4)
    half = data | {"offset": data["offset"] / 2, "exposure": np.exp(data["offset"] / 2)}
    np.testing.assert_allclose(numbers(fitted(kind, half, covariance=covariance)), by_offset, rtol=1e-4)


@EVERY_KIND_AND_FORM
def test_what_is_added_to_every_offset_is_taken_off_the_intercept(kind: str, covariance: str) -> None:
    data = without(rows(kind), "weights")
    before = fitted(kind, data, covariance=covariance)
    after = fitted(kind, data | {"offset": data["offset"] + 1.5}, covariance=covariance)
    moved = numbers(before) - np.eye(6)[0] * 1.5
    np.testing.assert_allclose(numbers(after), moved, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(after.predict(data["X"], offset=1.5), before.predict(data["X"]), rtol=1e-3)


@EVERY_KIND
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_weights_and_offsets_that_say_nothing_change_no_bit_of_a_release(kind: str, epsilon: float) -> None:
    """Weights of 1 below the bound 1: the same plan, and without noise the same fit."""
    data = without(rows(kind, n=300), "offset") | {"weights": np.ones(300)}
    plain = getattr(dpvb, kind)(**EXACT | {"epsilon": epsilon}, **OWN[kind])
    weighted = getattr(dpvb, kind)(**EXACT | {"epsilon": epsilon}, **OWN[kind], max_weight=1)
    one, other = plain._task(**without(data, "weights")), weighted._task(**data)
    assert repr(one.plan) == repr(other.plan)
    if math.isinf(epsilon):
        np.testing.assert_array_equal(numbers(plain.fit(**without(data, "weights"))), numbers(weighted.fit(**data)))


# --- what is private never refuses --------------------------------------------------------------------------


@pytest.mark.guarantees("row weights")
@pytest.mark.parametrize(
    ("name", "faults", "covariance"),
    [
        pytest.param(name, faults, form, marks=[pytest.mark.slow] * (form == "diagonal" and name != "weights"))
        for name, faults in {
            "exposure": [0.0, -1.0, math.nan, math.inf, -math.inf],
            "offset": [math.nan, math.inf, -math.inf],
            "weights": [-1e-9, -5.0, math.nan, math.inf, 0.0],
        }.items()
        for form in ("full", "diagonal")
    ],
)
def test_a_row_with_a_fault_beside_its_count_is_no_row(name: str, faults: list[float], covariance: str) -> None:
    data = rows("PoissonRegression", n=200)
    data["exposure"] = np.exp(data["offset"])
    sound = numbers(fitted("PoissonRegression", data, covariance=covariance))
    for fault in faults:
        more = {column: np.append(cells, cells[:1], axis=0) for column, cells in data.items()}
        more[name] = np.append(data[name], fault)
        np.testing.assert_array_equal(numbers(fitted("PoissonRegression", more, covariance=covariance)), sound)
    texts = more | {name: [*map(str, data[name]), "a lot"]}
    np.testing.assert_array_equal(numbers(fitted("PoissonRegression", texts, covariance=covariance)), sound)


@pytest.mark.guarantees("row weights")
@kills("norms", "exposures of rows without their bound", "exposure-2.0")
@edit(
    "data/tables/response.py",
    "value_of_column[name] = np.clip(value_n, -bound, bound)",
    'value_of_column[name] = np.clip(value_n, -bound, np.inf if name == "exposure" else bound)',
)
@kills("norms", "weights of rows without their bound", "weights-2.0")
@edit(
    "data/tables/response.py",
    "value_of_column[name] = np.clip(value_n, -bound, bound)",
    'value_of_column[name] = np.clip(value_n, -bound, np.inf if name == "weights" else bound)',
)
@pytest.mark.parametrize(("name", "bound"), [("exposure", 2.0), ("offset", 1.0), ("weights", 2.0)])
def test_what_is_beyond_its_bound_counts_as_the_bound(name: str, bound: float) -> None:
    data = rows("PoissonRegression", n=300)
    data["exposure"] = np.exp(data["offset"])
    most: Any = {"exposure": "max_exposure", "offset": "max_offset", "weights": "max_weight"}[name]
    cut = data | {name: np.clip(data[name], -bound, bound)}
    one, other = (numbers(fitted("PoissonRegression", own, **{most: bound})) for own in (data, cut))
    np.testing.assert_array_equal(one, other)
    assert not np.allclose(one, numbers(fitted("PoissonRegression", data)), rtol=1e-3)


@pytest.mark.guarantees("row weights")
@kills("norms", "weights of rows applied twice")
@edit(
    "models/regression/persons.py",
    "replace(form, scale_n=form.scale_n * weight_n)",
    "replace(form, scale_n=form.scale_n * weight_n**2)",
)
@EVERY_KIND
@pytest.mark.parametrize("form", ["first_order, offset and weights", "first_order, diagonal, offset and weights"])
def test_no_row_exceeds_the_bounds_whatever_stands_beside_it(kind: str, form: str) -> None:
    """In every block of every phase, at a q that data could give; rows with the worst of everything come near some."""
    case = forms(kind)[form]()
    batch, reached = next(chunk.rows for chunk in case.source(case.hostile).chunks()), []
    for part in case.parts():
        blocks = {name: block for name, block in case.model.blocks.items() if block.phase == part.phase}
        q = case.model.init(np.random.default_rng(0)) if part.begin is None else part.begin(3)
        for name, found in case.model.e_step(q, batch, blocks).items():
            norm_n = found.of_block(blocks[name], len(batch.y_n)).norms()
            reached.append(norm_n.max() / blocks[name].bound)
    assert max(reached) > 0.7
    assert max(reached) <= 1 + 1e-4


@pytest.mark.guarantees("row weights")
@kills("factor", "noise for rows that count once where they weigh more")
@edit("models/regression/likelihood.py", "bound=most * block.bound", "bound=block.bound")
def test_the_bound_of_the_weights_makes_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of rows that count five times has five times the bound."""
    for covariance in ("full", "diagonal"):
        given = {**EXACT, "covariance": covariance}
        X, y = np.zeros((3, 2)), np.zeros(3)
        alone = dpvb.LogisticRegression(**given)._task(X, y).model.blocks
        heavy = dpvb.LogisticRegression(**given, max_weight=5)._task(X, y, weights=np.ones(3)).model.blocks
        assert {name: 5 * block.bound for name, block in alone.items()} == {
            name: block.bound for name, block in heavy.items()
        }


# --- public mistakes ----------------------------------------------------------------------------------------


def test_public_mistakes_are_refused_before_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wall, "release", None)
    data = rows("PoissonRegression", n=20)
    X, y, one = data["X"], data["y"], np.ones(20)
    for given, beside, message in (
        ({}, {"weights": one}, "weights needs a public bound: give max_weight as well"),
        ({}, {"exposure": one}, "exposure needs a public bound: give max_exposure"),
        ({"max_offset": 2}, {}, "offset must be given where max_offset is"),
        ({"max_weight": 2, "max_exposure": 3}, {"weights": one}, "exposure must be given where max_exposure is"),
        ({"max_weight": 0}, {"weights": one}, r"max_weight must be a number in \(0"),
        ({"max_exposure": math.inf}, {"exposure": one}, "max_exposure must be"),
        ({"max_offset": 51}, {"offset": one}, "max_offset must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            dpvb.PoissonRegression(**EXACT, max_count=9, **given).fit(X, y, **beside)
    with pytest.raises(DataFormatError, match="offset"):
        dpvb.PoissonRegression(**EXACT, max_count=9, max_offset=1).fit(X, y, offset=one[:-1])
    with pytest.raises(ParameterError, match="exposure needs a public bound"):
        dpvb.LogisticRegression(**EXACT).fit(X, y > 0, exposure=one)
    with pytest.raises(ParameterError, match="max_exposure must be None unless the response is a count"):
        Response("logistic", max_exposure=2.0)


def test_predictions_take_numbers_that_are_possible() -> None:
    data = rows("PoissonRegression", n=100)
    model = fitted("PoissonRegression", without(data, "weights"))
    one = model.predict(data["X"])
    np.testing.assert_allclose(model.predict(data["X"], exposure=3.0), np.minimum(3 * one, 60))
    low, high = model.predict_interval(data["X"], exposure=np.full(100, 20.0))
    assert (high > model.predict_interval(data["X"])[1]).all()
    for wrong in (0, -1, math.nan, [1, 2], "many"):
        with pytest.raises(ParameterError, match="exposure must be a positive number, or 100 of them"):
            model.predict(data["X"], exposure=wrong)
    with pytest.raises(ParameterError, match="offset must be a number, or 100 of them"):
        model.predict(data["X"], offset=[math.inf] * 100)
    assert (low >= 0).all()


def test_measures_of_public_rows_count_the_offset() -> None:
    data = without(rows("PoissonRegression"), "weights")
    model = fitted("PoissonRegression", data)
    facts = model.evaluate(**data, public=True)
    assert 0 < facts["explained_deviance"] < 1
    assert facts["deviance"] == pytest.approx(1.05, abs=0.15)
    assert model.score(**data, public=True) == facts["explained_deviance"]
    with pytest.raises(ParameterError, match="offset must be given"):
        model.evaluate(data["X"], data["y"], public=True)
    data = rows("LogisticRegression")
    logistic = fitted("LogisticRegression", data)
    known = logistic.evaluate(**without(data, "weights"), public=True)
    assert known["accuracy"] == np.mean(logistic.predict(data["X"], offset=data["offset"]) == data["y"])


# --- where rows come from, and where fits go ----------------------------------------------------------------


TARGET = Target(
    *("visits", "poisson"),
    max_count=60,
    exposure="years",
    max_exposure=8,
    offset="known",
    max_offset=4,
    weights="w",
    max_weight=4,
)
SCHEMA = Schema((Numeric("age", 18, 90), Numeric("score", -4, 4)), TARGET)


def columns(data: dict[str, Any]) -> dict[str, Any]:
    """The same rows under the names of the schema."""
    own = {"age": data["X"][:, 0], "score": data["X"][:, 1], "visits": data["y"]}
    return own | {"years": data["exposure"], "known": data["offset"], "w": data["weights"]}


def written(path: Path, cells: dict[str, Any]) -> Path:
    lines = [",".join(cells), *(",".join(map(str, row)) for row in zip(*cells.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_schema_names_what_stands_beside_a_count(tmp_path: Path, two_processes: Any) -> None:
    """Held, streamed, of several files, by two processes and saved: the same fit; an unbounded column is refused."""
    data = rows("PoissonRegression", n=300)
    data["exposure"], data["offset"] = np.exp(data["offset"]), 0.3 * data["offset"]
    expected = numbers(fitted("PoissonRegression", data))
    cells, like = columns(data), Schema.from_json(SCHEMA.to_json())
    assert like == SCHEMA
    csv = written(tmp_path / "all.csv", cells)
    parts = [written(tmp_path / f"{k}.csv", {name: v[k::2] for name, v in cells.items()}) for k in (0, 1)]
    model = dpvb.PoissonRegression(
        epsilon=math.inf, delta=1e-6, max_count=60, max_exposure=8, max_offset=4, max_weight=4
    )
    for table in (Table(cells, like), Table(csv, like), Table(csv, like, stream=True), Table(parts, like)):
        np.testing.assert_allclose(numbers(model.fit(table)), expected, rtol=1e-6)
    np.testing.assert_allclose(
        numbers(model.fit(Table(csv, like), run=dpvb.Run(cluster=two_processes))), expected, rtol=1e-6
    )
    facts = model.evaluate(Table(csv, like), public=True)
    model.save(tmp_path / "m")
    again = dpvb.load(tmp_path / "m")
    assert again.coefficients() == model.coefficients()
    assert again.evaluate(Table(csv, like), public=True) == facts
    np.testing.assert_array_equal(again.predict(Table(csv, like), exposure=2), model.predict(Table(csv, like), 2))
    assert "weights up to 4" in str(model.privacy_)
    with pytest.raises(DataFormatError, match="'w'"):
        model.fit(Table({name: cell for name, cell in cells.items() if name != "w"}, like))
    with pytest.raises(ParameterError, match="The schema's target and the model's parameters must agree"):
        dpvb.PoissonRegression(epsilon=1.0, delta=1e-6, max_count=60).fit(Table(cells, like))
    with pytest.raises(ParameterError, match="weights and max_weight of a target go together"):
        Target("y", weights="w")
    with pytest.raises(ParameterError, match="more than once"):
        Schema((Binary("w"),), Target("y", weights="w", max_weight=2))


def test_rows_of_a_person_are_protected_together_whatever_they_weigh() -> None:
    """Two rows of weight 4 are bounded as one: their person adds at most what one of them could."""
    data = without(rows("LogisticRegression", n=40), "offset") | {"group": np.repeat(np.arange(20), 2)}
    data["weights"] = np.full(40, 4.0)
    model = dpvb.LogisticRegression(epsilon=2.0, delta=1e-6, low=[18, -4], high=[90, 4], max_weight=4)
    assert model.fit(**data).privacy_.unit == "person"
    assert np.isfinite(numbers(model)).all()


def test_a_selection_takes_them() -> None:
    data = rows("PoissonRegression", n=300)
    model = dpvb.PoissonRegression(**{**EXACT, "epsilon": 1.0}, max_count=60, max_offset=4, max_weight=4)
    chosen = dpvb.private_select(model, [{"alpha": None}, {"alpha": 1.0}], **data, epsilon=5.0, delta=1e-5)
    assert np.isfinite(numbers(chosen)).all()


@EVERY_KIND
def test_a_dry_run_makes_them_up(kind: str) -> None:
    bound = {"max_exposure": 8.0} if kind in COUNTS else {}
    model = getattr(dpvb, kind)(**{**EXACT, "epsilon": 1.0}, **OWN[kind], **bound, max_offset=4, max_weight=4)
    assert np.isfinite(numbers(model.dry_run(width=2, n_units=200))).all()
    if kind == "PoissonRegression":
        table = dpvb.PoissonRegression(
            epsilon=1.0, delta=1e-6, max_count=60, max_exposure=8, max_offset=4, max_weight=4
        )
        assert np.isfinite(numbers(table.dry_run(schema=SCHEMA, n_units=200))).all()


@EVERY_KIND_AND_FORM
@pytest.mark.parametrize("epsilon", [0.1, pytest.param(math.inf, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")
def test_hard_columns_beside_the_response_give_finite_tables(kind: str, covariance: str, epsilon: float) -> None:
    data = rows(kind, n=120)
    hard = {"max_exposure": 1e9} if kind in COUNTS else {}
    for offset, weights, exposure in (
        (np.full(120, 50.0), np.ones(120), np.full(120, 1e9)),
        (np.full(120, -50.0), np.full(120, 1e-300), np.full(120, 5e-324)),
        (np.full(120, math.nan), np.ones(120), np.ones(120)),
        (np.linspace(-50, 50, 120), np.zeros(120), np.ones(120)),
        (np.linspace(-50, 50, 120), np.linspace(0, 1e9, 120), np.geomspace(1e-300, 1e9, 120)),
    ):
        given = data | {"offset": offset, "weights": weights} | ({"exposure": exposure} if hard else {})
        bounds = {**hard, "max_offset": 50.0, "max_weight": 1e9, "epsilon": epsilon, "covariance": covariance}
        model = fitted(kind, given, **bounds)
        assert all(math.isfinite(row.mean) and 0 < row.std < math.inf for row in model.coefficients())
