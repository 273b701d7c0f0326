"""Moments that are known before a factor model is fitted: releases count like the rows behind them, as studies do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge
from planted import edit, kills
from scipy.special import chdtri

import dpvb
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.models.factors.three_releases import SecondMoments

KINDS = (dpvb.FactorAnalysis, dpvb.PCA)
D, N = 5, 3_000
RANGES: dict[str, Any] = {"delta": 1e-6, "low": [-8.0] * (D - 1) + [-80.0], "high": [8.0] * (D - 1) + [120.0]}
LOADINGS = np.array([[1.2, 1.0, 0.8, 0.0, 4.0], [0.0, 0.4, -0.6, 1.0, -3.0]])
NOISE, MEAN = np.array([0.5, 0.6, 0.4, 0.7, 25.0]), np.array([0.0, 1.0, -0.5, 0.3, 20.0])


def people(n: int = N, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(MEAN + rng.normal(size=(n, 2)) @ LOADINGS + rng.normal(size=(n, D)) * np.sqrt(NOISE))


def model(kind: Any, **given: Any) -> Any:
    return kind(2, **{**RANGES, "epsilon": math.inf, "public_prior": True, **given})


@pytest.fixture(scope="module")
def first() -> Any:
    return dpvb.FactorAnalysis(2, **RANGES, epsilon=2.0).fit(people(seed=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:epsilon = 1e")
@pytest.mark.parametrize("epsilon", [math.inf, 1e7])
def test_with_little_noise_two_halves_in_sequence_are_the_whole(kind: Any, epsilon: float) -> None:
    """In both orders; with any noise at all the second fit takes scales and radius of the first."""
    x, free = people(), {"epsilon": epsilon, "public_prior": True}
    whole = model(kind).fit(x)
    for one, other in ((x[: N // 3], x[N // 3 :]), (x[N // 3 :], x[: N // 3])):
        half = model(kind, **free).fit(one)
        both = model(kind, **free, prior=half).fit(other)
        np.testing.assert_allclose(both.mean_, whole.mean_, rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(both.get_covariance(), whole.get_covariance(), rtol=2e-2, atol=2e-2)
        assert both._moments.count == pytest.approx(N, rel=1e-3)
        assert np.abs(half.get_covariance() - whole.get_covariance()).max() > 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_a_public_study_is_worth_so_many_rows(kind: Any, tmp_path: Path) -> None:
    """Without noise: moments of rows and study, weighted by their numbers; its own attributes are a study of it."""
    x = people()
    half = model(kind).fit(x[: N // 2])
    study = {
        "loadings": half.loadings_.tolist(),
        "noise_variance": np.asarray(half.noise_variance_).tolist(),
        "mean": half.mean_.tolist(),
        "rows": N,
    }
    (tmp_path / "study.json").write_text(json.dumps(study))
    other, apart = model(kind).fit(x[N // 2 :]), half.mean_ - x[N // 2 :].mean(axis=0)
    expected = (half.get_covariance() * 2 + np.cov(x[N // 2 :].T, bias=True)) / 3 + 2 / 9 * np.outer(apart, apart)
    for prior in (study, tmp_path / "study.json"):
        found = model(kind, prior=prior).fit(x[N // 2 :])
        np.testing.assert_allclose(
            found._moments.second_dd * np.outer(found._unit_d, found._unit_d), expected, rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(found.mean_, (2 * half.mean_ + other.mean_) / 3, rtol=1e-6, atol=1e-6)
        assert found._moments.count == pytest.approx(1.5 * N, rel=1e-5)
        assert "worth 3000 rows" in " ".join(str(found.privacy_).split())


def test_an_earlier_release_makes_moments_more_precise_and_is_named(first: Any, tmp_path: Path) -> None:
    """Squared errors over variances of released covariances: no χ² that is too large.

    The entries of a fit depend on each other, and so their mean has no more freedom than one. False alarms: 1e-6.
    """
    true_dd, total, fits = LOADINGS.T @ LOADINGS + np.diag(NOISE), 0.0, 8
    first.save(tmp_path / "first.dpvb")
    for seed in range(fits):
        earlier = dpvb.FactorAnalysis(2, **RANGES, epsilon=1.0).fit(people(seed=20 + seed))
        both = dpvb.FactorAnalysis(2, **RANGES, epsilon=1.0, prior=earlier).fit(people(seed=40 + seed))
        low_dd, high_dd = both.covariance_interval(math.erf(math.sqrt(0.5)))
        total += float(np.mean(((low_dd + high_dd - 2 * true_dd) / (high_dd - low_dd)) ** 2))
    assert total < chdtri(fits, 1e-6)
    again = dpvb.FactorAnalysis(2, **RANGES, epsilon=2.0, prior=tmp_path / "first.dpvb").fit(people())
    (low_dd, high_dd), (first_low_dd, first_high_dd) = again.covariance_interval(), first.covariance_interval()
    assert np.mean((high_dd - low_dd) / (first_high_dd - first_low_dd)) < 0.97
    assert "an earlier release, with the guarantee for each row behind it of epsilon = " in " ".join(
        str(again.privacy_).split()
    )


@kills("releases", "moments of an earlier release whose noise is dropped")
@edit("models/factors/three_releases.py", "share * other.noise)", "0.0)")
@pytest.mark.parametrize("noises", [(0.3, 0.1), (0.02, 0.02), (0.1, 0.0)])
def test_joined_moments_know_their_noise_and_weigh_by_it(noises: tuple[float, float]) -> None:
    """Of so many rows that noise alone is left: 10,000 entries have the std that is said, which is the least there is.

    Within 4 %, which is 5.6 standard errors: false alarms below 1e-6.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(2_000):
        one, other = (
            SecondMoments(np.zeros(D), np.ones(D), 1.0, 0.0, np.diag(1 + sd * rng.standard_normal(D)), sd, 1e12)
            for sd in noises
        )
        joined = one.joined(other)
        found.append(np.diag(joined.second_dd) - 1.0)
    assert joined.noise == pytest.approx(noises[0] * noises[1] / math.hypot(*noises), abs=1e-5)
    assert np.std(found) == pytest.approx(joined.noise, rel=0.04, abs=1e-5)


def test_the_more_precise_of_two_releases_decides(first: Any) -> None:
    """Weights by precision: nobody's rows, or a hundredth of the budget, leave what was known."""
    for rows, epsilon in ((people(0), 2.0), (people(), 0.02)):
        found = dpvb.FactorAnalysis(2, **RANGES, epsilon=epsilon, prior=first).fit(rows)
        error_dd = np.abs(found.get_covariance() - first.get_covariance())
        assert (error_dd / np.sqrt(np.outer(*[np.diag(first.get_covariance())] * 2))).max() < 0.3


def test_what_does_not_fit_is_refused_by_name(first: Any, tmp_path: Path) -> None:
    x = people(30)
    study = {"loadings": LOADINGS, "noise_variance": NOISE, "mean": MEAN, "rows": 100}

    def refused(said: str, kind: Any = dpvb.FactorAnalysis, **given: Any) -> None:
        with pytest.raises(ParameterError, match=said):
            kind(2, **{**RANGES, "epsilon": 1.0, "prior": first, **given}).fit(x)

    refused("'x0' differs", low=[-9.0] * (D - 1) + [-80.0])
    refused("prior must be of the same rows", low=None, high=None, max_row_norm=100.0)
    refused("prior must be a fitted dpvb.PCA", dpvb.PCA)
    refused("prior must hold loadings, noise_variance, mean, rows", prior={"loadings": LOADINGS})
    refused(r"prior\['loadings'\] must be K x 5 finite numbers", prior={**study, "loadings": LOADINGS[:, :4]})
    refused(r"prior\['mean'\] must be 5 finite numbers", prior={**study, "mean": [math.nan] * D})
    refused(r"prior\['noise_variance'\] must be positive", prior={**study, "noise_variance": 0 * NOISE})
    refused(r"prior\['noise_variance'\] must be 5 finite", prior={**study, "noise_variance": [[1.0], [1.0, 2.0]]})
    refused(r"prior\['rows'\]", prior={**study, "rows": 0})
    refused("far beyond their ranges", prior={**study, "mean": 1e9 * MEAN})
    refused("without secret noise it may reveal everything", prior=model(dpvb.FactorAnalysis).fit(x))
    (tmp_path / "study.json").write_text("[1]")
    with pytest.raises(DataFormatError, match="must be an object of JSON"):
        dpvb.PCA(2, **RANGES, epsilon=1.0, prior=tmp_path / "study.json").fit(x)
    norm: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "max_row_norm": 50.0}
    plain = dpvb.PCA(2, **norm).fit(x)
    with pytest.raises(ParameterError, match="max_row_norm of the fit, 60; its own is 50"):
        dpvb.PCA(2, **{**norm, "max_row_norm": 60.0}, prior=plain).fit(x)


@kills("releases", "moments of the same data set as prior of its next factors")
@edit("estimators/prior_fits.py", "    check_release(name, model, fit, public=public)\n", "")
def test_the_ledger_knows_whose_prior_it_is(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("x", epsilon=4.0, delta=1e-3, unit="row", neighboring_relation="add_or_remove_one")
        given, run = {**RANGES, "epsilon": 1.0}, dpvb.Run(ledger=ledger, dataset="x")
        once = dpvb.PCA(2, **given).fit(people(300), run=run)
        left = ledger.remaining("x")
        with pytest.raises(ParameterError, match="other people than dataset='x'"):
            dpvb.PCA(2, **given, prior=once).fit(people(300), run=run)
        assert ledger.remaining("x") == left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "number"), [("scale_d", 1e-300), ("second_dd", 1e300), ("radius", 1e300)])
def test_a_file_whose_moments_would_end_the_next_fit_is_refused(
    kind: Any, name: str, number: float, tmp_path: Path
) -> None:
    path = tmp_path / "m.dpvb"
    kind(2, **RANGES, epsilon=2.0).fit(people(30)).save(path)
    if name == "radius":
        forge(path, learned={"moments.radius": number})
    else:

        def with_number(array: Any) -> Any:
            array.flat[0] = number
            return array

        forge(path, arrays={f"moments__{name}": with_number})
    with pytest.raises(ModelFileError):
        dpvb.load(path)
