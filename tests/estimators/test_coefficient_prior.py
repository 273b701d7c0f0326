"""Coefficients that are known before a fit: releases count like the rows behind them, studies like measurements."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb import federated
from dpvb.accounting.methods import rounded_up
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.guards.errors import CheckpointError, DataFormatError, ModelFileError, ParameterError

N = 3_000
COLUMNS = (Numeric("age", 0, 120), Binary("sex"), Categorical("work", ("own", "state")))
SCHEMA = Schema(COLUMNS, target=Target("y"))


def table(n: int = N, seed: int = 5, schema: Schema = SCHEMA, start: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    age, sex, state = rng.normal(50, 12, 2 * N), rng.integers(0, 2, 2 * N), rng.integers(0, 2, 2 * N)
    y = (-2.5 + 0.04 * age + 0.6 * sex - 0.5 * state + rng.logistic(size=2 * N) > 0) + 0
    data = {"age": age, "sex": sex, "work": np.array(["own", "state"])[state], "y": y}
    return Table({name: value[start : start + n] for name, value in data.items()}, schema)


def model(**given: Any) -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(**{"epsilon": 1.0, "delta": 1e-5, "n_units": N, **given})


def rows(fitted: dpvb.LogisticRegression) -> dict[str, tuple[float, float]]:
    kept = ("age", "sex", "work=state")
    return {one.name: (one.mean, one.std) for one in fitted.coefficients() if one.name in kept}


@pytest.fixture(scope="module")
def first() -> dpvb.LogisticRegression:
    return model(epsilon=8.0).fit(table())


@pytest.fixture(scope="module")
def exact() -> dpvb.LogisticRegression:
    return model(epsilon=math.inf, n_steps=60).fit(table())


# --- what is known counts -----------------------------------------------------------------------------------


def test_without_noise_two_halves_in_sequence_are_the_whole(exact: dpvb.LogisticRegression) -> None:
    """Within a tenth of a standard deviation, in both orders; half alone has stds √2 times as large."""
    free = {"epsilon": math.inf, "n_steps": 60, "public_prior": True}
    whole, half = rows(model(**free).fit(table(2 * N))), model(**free).fit(table(start=N))
    for second in (model(**free, prior=exact).fit(table(start=N)), model(**free, prior=half).fit(table())):
        for name, (mean, std) in rows(second).items():
            assert mean == pytest.approx(whole[name][0], abs=0.1 * whole[name][1]), name
            assert std == pytest.approx(whole[name][1], rel=0.02), name
    assert rows(half)["age"][1] == pytest.approx(math.sqrt(2) * whole["age"][1], rel=0.1)


def test_an_earlier_release_narrows_intervals_and_a_file_of_it_is_the_same(
    first: dpvb.LogisticRegression, tmp_path: Path
) -> None:
    """Under noise, with the first half known, stds shrink by about √2, and by 1.2 at least on average of three."""
    first.save(tmp_path / "first.dpvb")
    alone = rows(model(epsilon=8.0).fit(table(start=N)))
    for prior in (first, str(tmp_path / "first.dpvb"), tmp_path / "first.dpvb"):
        both = rows(model(epsilon=8.0, prior=prior).fit(table(start=N)))
        assert np.mean([std / alone[name][1] for name, (_, std) in both.items()]) < 1 / 1.2
    again = model(epsilon=8.0, prior=tmp_path / "first.dpvb").fit(table(start=N))
    again.save(tmp_path / "second.dpvb")
    third = rows(model(epsilon=8.0, prior=tmp_path / "second.dpvb").fit(table(start=N, seed=6)))
    assert np.mean([std / alone[name][1] for name, (_, std) in third.items()]) < 1 / 1.4


def test_a_study_is_a_measurement_of_a_coefficient(tmp_path: Path) -> None:
    """Without noise: the mean of study and rows, weighted by 1/std²; what is sure decides alone."""
    free = {"epsilon": math.inf, "n_steps": 60}
    mean, std = rows(model(**free).fit(table()))["age"]
    (tmp_path / "study.json").write_text(json.dumps({"age": [mean + 2 * std, std]}))
    for study in ({"age": (mean + 2 * std, std)}, tmp_path / "study.json"):
        found = rows(model(**free, prior=study).fit(table()))["age"]
        assert found[0] == pytest.approx(mean + std, abs=0.05 * std)
        assert found[1] == pytest.approx(std / math.sqrt(2), rel=0.02)
    sure = rows(model(**free, prior={"work=state": (0.7, 1e-6)}).fit(table()))
    assert sure["work=state"] == pytest.approx((0.7, 1e-6), rel=1e-3)
    vague = rows(model(**free, prior={"sex": (40.0, 1e6), "intercept": (0.0, 1e6)}).fit(table()))
    assert vague["age"] == pytest.approx((mean, std), rel=1e-3)


@pytest.mark.parametrize("mean", [0.0, -1e3])
@pytest.mark.parametrize("n", [0, 30])
@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")
def test_a_study_that_knows_almost_all_is_believed_and_ends_no_fit(mean: float, n: int) -> None:
    fitted = model(prior={"age": (mean, 1e-9), "sex": (1.0, 1e-9)}).fit(table(n))
    assert rows(fitted)["age"][0] == pytest.approx(mean, rel=0.5, abs=2e-3)  # Noise moves it by about 1e-4.


@pytest.mark.parametrize("known", ["fit", "study"])
def test_contraction_is_what_these_rows_took_away_from_the_prior_that_was_used(
    first: dpvb.LogisticRegression, known: str
) -> None:
    """Thirty rows after 3,000 decide little of a coefficient; without the earlier ones 3,000 rows decide nearly all.

    With n rows after N, a share of about n/(N + n) = 0.01; noise and unequal columns leave it below a quarter.
    """
    prior = first if known == "fit" else {name: row for name, row in rows(first).items() if name != "work=state"}
    contraction = {row.name: row.contraction for row in model(prior=prior).fit(table(30, start=N)).coefficients()}
    alone = {row.name: row.contraction for row in first.coefficients()}
    for name in ("age", "sex"):
        assert contraction[name] < 0.25, name
        assert alone[name] > 0.75, name


def test_rows_without_anybody_leave_what_was_known(first: dpvb.LogisticRegression) -> None:
    """No row: the earlier posterior, up to what noise says of nobody."""
    empty = model(prior=first, epsilon=8.0, n_units=None).fit(table(0))
    for name, (mean, std) in rows(empty).items():
        assert mean == pytest.approx(rows(first)[name][0], abs=1.0 * std), name
        assert std == pytest.approx(rows(first)[name][1], rel=0.25), name


@pytest.mark.parametrize(
    "kind", [dpvb.PoissonRegression, dpvb.NegativeBinomialRegression, dpvb.BinomialRegression], ids=lambda k: k.__name__
)
def test_other_regressions_take_priors_too(kind: Any) -> None:
    """Without noise: the same rows twice, and stds of 1/√2."""
    rng = np.random.default_rng(8)
    x_nd = rng.normal(size=(2_000, 2))
    given: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5, "low": -4.0, "high": 4.0, "public_prior": True}
    if kind is dpvb.BinomialRegression:
        given["max_trials"], y_n = 3, rng.binomial(3, 0.4, 2_000)
        fit = {"trials": np.full(2_000, 3)}
    else:
        given["max_count"], y_n, fit = 20, rng.poisson(np.exp(0.3 + 0.4 * x_nd[:, 0])), {}
    first = kind(**given).fit(x_nd, y_n, **fit)
    second = kind(**given, prior=first).fit(x_nd[::-1], y_n[::-1], **fit)
    np.testing.assert_allclose(second.coef_std_, np.divide(first.coef_std_, math.sqrt(2)), rtol=0.05)


def test_a_federation_takes_a_prior(first: dpvb.LogisticRegression) -> None:
    shards = [table(N // 2, start=start) for start in (N, N + N // 2)]
    given: dict[str, Any] = {"trust": "secure_aggregation", "epsilon": 1.0, "delta": 1e-5}
    together = federated.simulate(model(prior=first, n_units=None), shards, **given)
    alone = rows(first)
    assert np.mean([std / alone[name][1] for name, (_, std) in rows(together).items()]) < 1.0


def test_a_run_goes_on_with_its_own_prior_alone(first: dpvb.LogisticRegression, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(*_: Any) -> None:
        if (tmp_path / "run").exists():
            raise StopError

    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("x", epsilon=4.0, delta=1e-3, unit="row", neighboring_relation="add_or_remove_one")
        given: dict[str, Any] = {"ledger": ledger, "dataset": "x", "checkpoint": tmp_path / "run"}
        with pytest.raises(StopError):
            model(prior=first).fit(table(start=N), run=dpvb.Run(**given, progress=stop))
        with pytest.raises(CheckpointError, match="with another prior"):
            model().fit(table(start=N), run=dpvb.Run(**given))
        resumed = model(prior=first).fit(table(start=N), run=dpvb.Run(**given))
    assert "an earlier release" in str(resumed.privacy_)


# --- what is asked and said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (3, "prior must be a fitted dpvb.LogisticRegression, a mapping"),
        ({"age": 1.0}, r"prior\['age'\] must be \(mean, std\)"),
        ({"age": (1.0, 0.0)}, r"std in \[1e-09, 1e\+09\]"),
        ({"age": (1e308, 1e-9)}, r"mean in \[-1e\+09, 1e\+09\]"),
        ({"age": (math.nan, 1.0)}, r"prior\['age'\]"),
        ({"work=own": (1.0, 1.0)}, "'work=own' is a reference, which is 0"),
        ({"income": (1.0, 1.0)}, "'income' is none of the table"),
        (dpvb.PoissonRegression(epsilon=1.0, delta=1e-5, max_count=3), "prior must be a fitted dpvb.Logistic"),
        (dpvb.LogisticRegression(epsilon=1.0, delta=1e-5), "prior must be a fitted dpvb.Logistic"),
    ],
    ids=str,
)
def test_a_prior_that_is_none_is_refused(prior: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        model(prior=prior).fit(table(30))


def test_a_prior_of_other_columns_is_refused_by_name(first: dpvb.LogisticRegression, tmp_path: Path) -> None:
    def refused(said: str, rows: Table, **given: Any) -> None:
        with pytest.raises(ParameterError, match=said):
            model(**{"prior": first, **given}).fit(rows)

    other = Schema((Numeric("age", 0, 100), *COLUMNS[1:]), target=Target("y"))
    refused("'age' differs", table(30, schema=other))
    refused("'work' differs", table(30, schema=Schema(COLUMNS[:2], target=Target("y"))))
    refused("intercept of the fit, 0; its own is 0.59", table(30), fit_intercept=False)
    refused("unless covariance='full'", table(30), covariance="diagonal")
    refused("whose file holds what its rows said", table(30), prior=model(covariance="diagonal").fit(table(30)))
    refused("not a dry run", table(30), prior=model().dry_run(schema=SCHEMA, n_units=50))
    with pytest.raises(ParameterError, match="prior must be of the same rows"):
        model(prior=first, max_row_norm=1.0).fit(np.zeros((5, 4)), np.zeros(5))
    for text in ("[1, 2]", "[" * 200_000, '{"age": ' * 200_000, '{"age": [NaN, 1]}', '{"age": [1, 1], "age": [2, 1]}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(DataFormatError, match="must be an object of JSON"):
            model(prior=tmp_path / "study.json").fit(table(30))
    (tmp_path / "bad.dpvb").write_text("no model")
    with pytest.raises(ModelFileError):
        model(prior=tmp_path / "bad.dpvb").fit(table(30))


def test_the_statement_adds_what_the_earlier_release_spent(first: dpvb.LogisticRegression) -> None:
    said = " ".join(str(model(prior=first).fit(table(start=N)).privacy_).split())
    assert (
        "the prior: coefficients of an earlier release, with the guarantee for each row behind it of epsilon = 7.9"
        in said
    )
    sums = f"epsilon = {rounded_up(first.privacy_.epsilon + 1.0)}, delta = 2e-05"
    assert f"a person in both data sets has the guarantee {sums}" in said
    study = model(prior={"age": (0.0, 1.0)}).fit(table(30))
    for page in (study.privacy_, study.summary()):
        assert "means and standard deviations of 1 coefficients" in " ".join(str(page).split())
    naked = model(epsilon=math.inf).fit(table(30))
    with pytest.raises(ParameterError, match="without secret noise it may reveal everything"):
        model(prior=naked).fit(table(30))
    assert "said to be public" in " ".join(str(model(prior=naked, public_prior=True).fit(table(30)).privacy_).split())


@pytest.mark.guarantees("priors")
@kills("releases", "a release behind a prior's own prior that the statement leaves out")
@edit("estimators/prior_fits.py", "for said in past.public if _EARLIER in said", "for said in ()")
def test_the_statement_names_all_releases_behind_a_prior(first: dpvb.LogisticRegression, tmp_path: Path) -> None:
    """Whoever is in all three data sets can add up three losses; that the prior's own rows are public hides none."""
    second = model(prior=first, epsilon=2.0).fit(table(start=N))
    second.save(tmp_path / "second.dpvb")
    for prior in (second, tmp_path / "second.dpvb"):
        for public in (False, True):
            third = model(prior=prior, public_prior=public).fit(table(30))
            said = " ".join(str(third.privacy_).split())
            assert f"epsilon = {rounded_up(first.privacy_.epsilon)}, delta = 1e-05; a person in both" in said
            assert public or f"epsilon = {rounded_up(second.privacy_.epsilon)}, delta = 1e-05; a person in both" in said


def test_the_ledger_knows_whose_prior_it_is(tmp_path: Path) -> None:
    """The same data set is refused, also behind another and whatever is said; parts share nobody."""
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        cap: Any = {"epsilon": 4.0, "delta": 1e-3, "unit": "row", "neighboring_relation": "add_or_remove_one"}
        for name, whole in (("all", None), ("north", "all"), ("south", "all")):
            ledger.register(name, part_of=whole, **cap)
        first = model().fit(table(), run=dpvb.Run(ledger=ledger, dataset="north"))
        left = ledger.remaining("north")
        with pytest.raises(ParameterError, match="other people than dataset='north'"):
            model(prior=first).fit(table(), run=dpvb.Run(ledger=ledger, dataset="north"))
        assert ledger.remaining("north") == left
        second = model(prior=first).fit(table(start=N), run=dpvb.Run(ledger=ledger, dataset="south"))
        for prior, public in ((first, True), (second, False)):
            with pytest.raises(ParameterError, match="other people than dataset='north'"):
                model(prior=prior, public_prior=public).fit(table(), run=dpvb.Run(ledger=ledger, dataset="north"))
    assert "disjoint parts of one data set" in " ".join(str(second.privacy_).split())
