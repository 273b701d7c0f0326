"""Groups of an earlier mixture as the prior of another: what they weigh, what they cost whom, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from sklearn.base import clone
from test_cli import run

import dpvb
from dpvb.accounting.methods import rounded_up
from dpvb.data import Categorical, Numeric, Schema, Table, Target
from dpvb.errors import ParameterError

SCHEMA = Schema((Numeric("x", -4, 4), Numeric("visits", 0, 20), Categorical("job", ("a", "b"), other=False)))
GIVEN: dict[str, Any] = {"count_columns": "visits", "random_state": 0, "delta": 1e-6}


def people(n: int, seed: int, shift: float = 0.0, one: float | None = None) -> Table:
    """Two groups, or one of them."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) < (0.4 if one is None else one)
    visits = rng.poisson(np.where(first, 2, 9)).clip(0, 20)
    job = np.where(rng.random(n) < np.where(first, 0.9, 0.2), "a", "b").astype(object)
    return Table({"x": rng.normal(np.where(first, -2, 2), 0.5) + shift, "visits": visits, "job": job}, SCHEMA)


@pytest.fixture(scope="module")
def first() -> dpvb.Mixture:
    """A fit with noise to 4,000 people."""
    return dpvb.Mixture(2, **GIVEN, epsilon=4.0).fit(people(4000, 0))


def test_without_noise_rows_of_both_fits_count_alike() -> None:
    """One group: means are those of all rows, and as sure as these make them; prior_weight counts earlier rows."""
    given: dict[str, Any] = {**GIVEN, "epsilon": math.inf, "clip_scale": 1e4, "public_prior": True}
    earlier = dpvb.Mixture(1, **given).fit(people(1000, 1, one=1.0))
    for weight, share in ((1.0, 1 / 3), (0.5, 1 / 2), (0.0, 1.0)):
        model = dpvb.Mixture(1, **given, prior=earlier, prior_weight=weight).fit(people(500, 2, shift=1.0, one=1.0))
        alone = dpvb.Mixture(1, **given).fit(people(500, 2, shift=1.0, one=1.0))
        expected = share * alone.means_[0, 0] + (1 - share) * earlier.means_[0, 0]
        assert model.means_[0, 0] == pytest.approx(expected, abs=0.01)
        rates = share * alone.rates_[0, 0] + (1 - share) * earlier.rates_[0, 0]
        assert model.rates_[0, 0] == pytest.approx(rates, abs=0.05)
        mine, its = (one.component_table().of(0)["visits"].std for one in (model, alone))
        assert mine == pytest.approx(its * math.sqrt(share), rel=0.1)


def test_without_rows_the_earlier_groups_are_left(first: dpvb.Mixture) -> None:
    model = dpvb.Mixture(2, **GIVEN, epsilon=math.inf, prior=first).fit(people(0, 0))
    np.testing.assert_allclose(model.means_, first.means_, atol=0.02)
    np.testing.assert_allclose(model.weights_, first.weights_, atol=0.02)
    np.testing.assert_allclose(model.probabilities_["job"], first.probabilities_["job"], atol=0.02)


def test_few_rows_are_described_by_what_was_known(first: dpvb.Mixture, tmp_path: Path) -> None:
    """200 people at ε = .3, by a file: within .1 nats of the earlier fit, where others are .7 nats below and more.

    Over 25 fits the distance is .0002 on average, with a standard deviation of .0002.
    """
    first.save(tmp_path / "first.dpvb")
    new, few = people(2000, 5), people(200, 6)
    model = dpvb.Mixture(2, **GIVEN, epsilon=0.3, prior=tmp_path / "first.dpvb").fit(few)
    known = first.score(new, public=True)
    assert model.score(new, public=True) > known - 0.1
    told = " ".join(model.privacy_.public)
    assert "2 groups of an earlier release" in told
    assert f"epsilon = {rounded_up(first.privacy_.epsilon + 0.3)}" in told
    narrow = model.component_table().of(0)["x"].std
    assert narrow < 1.2 * first.component_table().of(0)["x"].std
    assert clone(model).prior == model.prior


def test_what_moved_is_followed_where_rows_say_so(first: dpvb.Mixture) -> None:
    model = dpvb.Mixture(2, **GIVEN, epsilon=8.0, prior=first, prior_weight=0.01).fit(people(8000, 7, shift=0.5))
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [-1.5, 2.5], atol=0.2)


def test_plain_matrices_and_owners_of_a_federation_take_a_prior(first: dpvb.Mixture) -> None:
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {"low": -4.0, "high": 4.0, "epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    x_nd = np.where(rng.random((2000, 1)) < 0.5, rng.normal(-2, 0.4, (2000, 2)), rng.normal(2, 0.4, (2000, 2)))
    earlier = dpvb.GaussianMixture(2, **given).fit(x_nd)
    again = dpvb.GaussianMixture(5, **given, prior=earlier).fit(x_nd[:100])
    assert again.means_.shape == earlier.means_.shape
    together = dpvb.federated.simulate(
        dpvb.Mixture(2, **GIVEN, epsilon=2.0, prior=first), [{"X": people(300, 1)}, {"X": people(300, 2)}]
    )
    np.testing.assert_allclose(np.sort(together.means_[:, 0]), [-2, 2], atol=0.5)


def test_priors_that_do_not_fit_are_refused_by_name(first: dpvb.Mixture) -> None:
    def refused(words: str, table: Table | None = None, **given: Any) -> None:
        with pytest.raises(ParameterError, match=words):
            dpvb.Mixture(**{"n_components": 2, **GIVEN, "epsilon": 1.0, "prior": first, **given}).fit(
                people(10, 0) if table is None else table
            )

    refused("prior must be a fitted dpvb.Mixture", prior=dpvb.PCA(1, max_row_norm=1.0, epsilon=1.0, delta=1e-6))
    refused("prior must be a fitted dpvb.Mixture", prior=dpvb.Mixture(2, **GIVEN, epsilon=1.0))
    refused("n_components must be 2 at least", n_components=1)
    refused("count_columns must be visits, as in the prior", count_columns="")
    refused("covariance_type must be 'full'", covariance_type="diag")
    cells = {"x": [0.0], "visits": [1], "job": ["a"], "ill": ["no"]}
    for columns in (
        (Numeric("x", -5, 4), *SCHEMA.columns[1:]),
        (*SCHEMA.columns[:2], Categorical("job", ("a", "c"), other=False)),
    ):
        name = next(one.name for one, own in zip(columns, SCHEMA.columns, strict=True) if one != own)
        refused(f"'{name}' differs", Table(cells, Schema(columns)))
    refused("'ill' differs", Table(cells, replace(SCHEMA, target=Target("ill", classes=("no", "yes")))))
    refused("'their order' differs", Table(cells, Schema(SCHEMA.columns[::-1])))
    bare = dpvb.Mixture(2, **GIVEN, epsilon=math.inf).fit(people(500, 0))
    refused("without secret noise", prior=bare)


@kills("releases", "groups of the same people as a prior")
@edit("estimators/prior_fits.py", "    check_release(name, model, fit, public=public)\n", "")
def test_a_release_of_the_same_people_is_no_prior(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
    kept: dict[str, Any] = {**GIVEN, "epsilon": 1.0}
    run = dpvb.Run(ledger=tmp_path / "budget.db", dataset="people")
    earlier = dpvb.Mixture(2, **kept, n_steps=2).fit(people(300, 0), run=run)
    with pytest.raises(ParameterError, match="other people"):
        dpvb.Mixture(2, **kept, n_steps=2, prior=earlier).fit(people(300, 0), run=run)


def test_the_command_line_takes_a_prior(first: dpvb.Mixture, tmp_path: Path) -> None:
    first.save(tmp_path / "first.dpvb")
    SCHEMA.save(tmp_path / "schema.json")
    (tmp_path / "new.csv").write_text("x,visits,job\n" + "-2,1,a\n2,9,b\n" * 100)
    given = [
        "--schema",
        tmp_path / "schema.json",
        "--count-columns",
        "visits",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--quiet",
    ]
    out = ["--prior", tmp_path / "first.dpvb", "--out", tmp_path / "m.dpvb"]
    run("fit", "mixture", tmp_path / "new.csv", *given, *out)
    assert "an earlier release" in " ".join(dpvb.load(tmp_path / "m.dpvb").privacy_.public)
