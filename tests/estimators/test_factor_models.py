"""Factor models as a user types them: tables, persons, files, the command line, clusters, ledgers, crashes, parties."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CliRunner

import dpvb
from dpvb.cli.root import app
from dpvb.data import Binary, Categorical, Numeric, Schema, Spline, Target
from dpvb.guards.errors import DataFormatError, ParameterError, PrivacyError

KINDS = pytest.mark.parametrize("kind", [dpvb.FactorAnalysis, dpvb.PCA])
GIVEN = {"epsilon": 2.0, "delta": 1e-5}


def table(n: int = 600, seed: int = 0, d: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factor_n1, loading_d, std_d = rng.standard_normal((n, 1)), np.linspace(0.2, 1.0, d), 0.5
    return np.asarray(np.clip(factor_n1 * loading_d + std_d * rng.standard_normal((n, d)), -4, 4))


SCHEMA = Schema(
    (Numeric("age", 0, 100), Categorical("work", ("own", "state"), other=False, missing=False), Binary("sick")),
    target=Target("rich"),
)


def people(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.uniform(20, 90, n),
            "work": rng.choice(["own", "state"], n, p=[0.25, 0.75]),
            "sick": rng.integers(0, 2, n),
            "rich": rng.integers(0, 2, n),
        }
    )


@KINDS
def test_a_table_is_shown_in_units_of_its_columns(kind: type) -> None:
    """Categories as 0 and 1; the target is not read, nor is it needed."""
    frame = people()
    found = kind(epsilon=math.inf, delta=1e-5, estimate="map").fit(dpvb.Table(frame, SCHEMA))
    assert found.feature_names_ == ("age", "work=own", "work=state", "sick")
    np.testing.assert_allclose(found.mean_, [frame.age.mean(), *_shares(frame)], rtol=1e-4)
    without = kind(epsilon=math.inf, delta=1e-5, estimate="map").fit(dpvb.Table(frame.drop(columns="rich"), SCHEMA))
    np.testing.assert_allclose(without.get_covariance(), found.get_covariance())
    if kind is dpvb.FactorAnalysis:
        assert found.get_covariance()[0, 0] == pytest.approx(frame.age.var(), rel=0.01)
    assert found.transform(frame).shape == (400, found.n_components_)


def _shares(frame: pd.DataFrame) -> list[float]:
    return [float((frame.work == "own").mean()), float((frame.work == "state").mean()), float(frame.sick.mean())]


@KINDS
def test_a_declared_range_changes_nothing_without_noise(kind: type) -> None:
    x_nd = table()
    narrow, wide = (kind(1, low=-end, high=end, epsilon=math.inf, delta=1e-5).fit(x_nd) for end in (5.0, 500.0))
    np.testing.assert_allclose(narrow.get_covariance(), wide.get_covariance(), atol=1e-4)
    np.testing.assert_allclose(narrow.mean_, wide.mean_, atol=1e-5)


@KINDS
def test_a_file_gives_everything_back(kind: type, tmp_path: Path) -> None:
    x_nd = table()
    fitted = kind(2, low=-4.0, high=4.0, **GIVEN).fit(x_nd)
    fitted.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    np.testing.assert_array_equal(again.transform(x_nd), fitted.transform(x_nd))
    np.testing.assert_array_equal(again.score_samples(x_nd, public=True), fitted.score_samples(x_nd, public=True))
    np.testing.assert_array_equal(again.covariance_interval(), fitted.covariance_interval())
    np.testing.assert_array_equal(again.components_, fitted.components_)
    assert again.noise_variance_ == pytest.approx(fitted.noise_variance_)


@KINDS
def test_draws_have_the_covariance_of_the_model(kind: type) -> None:
    """50,000 draws: an entry that far off has a probability below 1e-9."""
    fitted = kind(2, low=-4.0, high=4.0, epsilon=math.inf, delta=1e-5).fit(table())
    drawn = fitted.sample(50_000, rng=0)
    assert np.abs(np.cov(drawn.T) - fitted.get_covariance()).max() < 0.07
    assert np.abs(drawn.mean(axis=0) - fitted.mean_).max() < 0.05


def test_private_rows_have_no_score() -> None:
    with pytest.raises(PrivacyError, match="public=True"):
        dpvb.PCA(1, low=-4.0, high=4.0, **GIVEN).fit(table()).score_samples(table())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "low and high or max_row_norm"),
        ({"low": 0.0}, "low and high or max_row_norm"),
        ({"max_row_norm": 1.0, "low": 0.0, "high": 1.0}, "low and high or max_row_norm"),
        ({"max_row_norm": 1.0, "estimate": "median"}, "estimate must be"),
        ({"max_row_norm": 1.0, "n_components": 0}, "n_components must be"),
        ({"low": [0.0, 1.0], "high": 1.0}, "low must be a number or 5"),
    ],
)
def test_public_mistakes_are_refused_with_a_way_out(given: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dpvb.FactorAnalysis(**GIVEN, **given).fit(table())


def test_columns_that_a_factor_model_cannot_have_are_refused() -> None:
    schema = Schema((Spline("age", knots=(20, 40, 60), low=0, high=100),))
    with pytest.raises(ParameterError, match=r"got the spline 'age'"):
        dpvb.PCA(**GIVEN).fit(dpvb.Table({"age": [30.0]}, schema))
    fitted = dpvb.PCA(1, low=-4.0, high=4.0, **GIVEN).fit(table())
    with pytest.raises(DataFormatError, match="4 features"):
        fitted.transform(table(d=4))
    with pytest.raises(DataFormatError, match="NaN"):
        fitted.transform(np.full((1, 5), np.nan))


@KINDS
def test_a_cluster_releases_the_same_bits(kind: type, monkeypatch: pytest.MonkeyPatch, two_processes: Any) -> None:
    """At epsilon = inf there is no noise; what is left must be equal, bit for bit."""
    given = {"low": -4.0, "high": 4.0, "epsilon": math.inf, "delta": 1e-5}
    alone, spread = (kind(2, **given).fit(table(), run=dpvb.Run(cluster=cluster)) for cluster in (None, two_processes))
    np.testing.assert_array_equal(alone.get_covariance(), spread.get_covariance())


@KINDS
def test_persons_are_protected_whole(kind: type) -> None:
    person = np.arange(600) % 200
    fitted = kind(1, low=-4.0, high=4.0, **GIVEN).fit(table(), group=person)
    assert fitted.privacy_.unit == "person"


@KINDS
def test_a_person_counts_as_the_mean_of_their_rows(kind: type) -> None:
    """A row that a person has several times is that row once, and a faulty row of a person is ignored."""
    rows, exact = table(200), {"low": -4.0, "high": 4.0, "epsilon": np.inf, "delta": 1e-5}
    once = kind(1, **exact).fit(rows)
    person = np.repeat(np.arange(200), np.random.default_rng(3).integers(1, 6, 200))
    several, ids = np.vstack([rows[person], np.full((1, 5), np.nan)]), np.append(person, 7)
    again = kind(1, **exact).fit(several, group=ids)
    # Norms are rounded up, so that a person is clipped by about 1e-5.
    np.testing.assert_allclose(again.get_covariance(), once.get_covariance(), rtol=1e-4)


@KINDS
def test_a_ledger_counts_and_a_folder_goes_on(kind: type, tmp_path: Path) -> None:
    """Stopped after each of the three releases; the same call ends it, and is charged once."""
    ledger = dpvb.Ledger(tmp_path / "l.db")
    for stop in (1, 2, 3):
        name = f"rows-{stop}"
        ledger.register(name, epsilon=2.0, delta=1e-5, unit="row", neighboring_relation="add_or_remove_one")
        given: Any = {"ledger": ledger, "dataset": name, "checkpoint": tmp_path / f"run {stop}"}

        def stopped(step: int, plan: object, stop: int = stop) -> None:
            if step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kind(2, low=-4.0, high=4.0, **GIVEN).fit(table(), run=dpvb.Run(**given, progress=stopped))
        assert np.isfinite(
            kind(2, low=-4.0, high=4.0, **GIVEN).fit(table(), run=dpvb.Run(**given)).get_covariance()
        ).all()


@KINDS
def test_the_number_of_factors_can_be_selected(kind: type) -> None:
    estimator = kind(low=-4.0, high=4.0, epsilon=1.0, delta=1e-5)
    best = dpvb.private_select(estimator, [{"n_components": k} for k in (1, 3)], table(2_000), epsilon=2.0, delta=1e-5)
    assert best.n_components in (1, 3)


def test_every_command_of_the_command_line(tmp_path: Path) -> None:
    run = CliRunner()
    np.save(tmp_path / "X.npy", table())
    people().to_csv(tmp_path / "people.csv", index=False)
    SCHEMA.save(tmp_path / "people.json")
    budget = ["--epsilon", "2", "--delta", "1e-5"]
    for name in ("factors", "pca"):
        out = str(tmp_path / f"{name}.dpvb")
        found = run.invoke(
            app, ["fit", name, str(tmp_path / "X.npy"), "--low", "-4", "--high", "4", *budget, "--out", out]
        )
        assert found.exit_code == 0, found.output
        found = run.invoke(app, ["evaluate", out, str(tmp_path / "X.npy"), "--public"])
        assert found.exit_code == 0, found.output
        assert "log-likelihood per row" in found.output
        out = str(tmp_path / f"{name} of a table.dpvb")
        call = [
            "fit",
            name,
            str(tmp_path / "people.csv"),
            "--schema",
            str(tmp_path / "people.json"),
            "--components",
            "1",
        ]
        assert run.invoke(app, [*call, *budget, "--out", out, "--dry-run"]).exit_code == 0
        assert run.invoke(app, [*call, *budget, "--out", out]).exit_code == 0
        found = run.invoke(app, ["evaluate", out, str(tmp_path / "people.csv"), "--public"])
        assert found.exit_code == 0, found.output


def test_intervals_cover_covariances_and_explained_variances() -> None:
    """30 tables of 5,000 normal rows: 15 intervals of covariances and one of the first variance in each.

    At a coverage of .95 a table's share of 15 has a standard deviation below .15, so that .85 is 3.6 standard errors
    below it; measured coverage is .98, 4.7 above. Of 30 first variances more than 10 are missed with less than 1e-6.
    """
    loading_d = np.linspace(0.3, 1.0, 5)
    true = np.outer(loading_d, loading_d) + 0.25 * np.eye(5)
    inside, first = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x_nd = rng.standard_normal((5_000, 1)) * loading_d + 0.5 * rng.standard_normal((5_000, 5))
        fitted = dpvb.PCA(1, max_row_norm=8.0, epsilon=1.0, delta=1e-5).fit(x_nd)
        low, high = fitted.covariance_interval()
        inside.append(((low <= true) & (true <= high))[np.triu_indices(5)].mean())
        low_k, high_k = fitted.explained_variance_interval()
        first.append(low_k[0] <= loading_d @ loading_d + 0.25 <= high_k[0])
    assert np.mean(inside) > 0.85
    assert np.mean(first) > 0.66


def test_a_scree_plot_has_a_dot_and_an_interval_for_each_component() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    fitted = dpvb.PCA(3, low=-4.0, high=4.0, **GIVEN).fit(table())
    assert fitted.scree(axes) is axes
    assert sum(len(line.get_xdata()) for line in axes.lines[1:]) == 3
    with pytest.raises(ParameterError, match="axes of matplotlib"):
        fitted.scree(7)


@KINDS
def test_parties_find_what_the_pooled_rows_say(kind: type) -> None:
    given = {"low": -4.0, "high": 4.0, "epsilon": math.inf, "delta": 1e-5}
    joined = dpvb.federated.simulate(kind(2, **given), np.split(table(), [100, 350]))
    np.testing.assert_allclose(joined.get_covariance(), kind(2, **given).fit(table()).get_covariance(), atol=1e-12)


@KINDS
@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_parties_with_noise_know_how_far_they_may_be_off(kind: type, trust: str) -> None:
    """Seven standard deviations for each of 15 covariances: false alarms below 1e-6."""
    parts = [table(3_000, seed) for seed in range(3)]
    model = dpvb.federated.simulate(kind(2, low=-4.0, high=4.0, **GIVEN), parts, trust=trust)
    low, high = model.covariance_interval(1 - 2.6e-12)
    true = np.cov(np.vstack(parts).T)
    assert ((low < true) & (true < high)).all()
    assert (high - low).max() < 1.0
