"""Coefficients of a linear regression that are known before a fit, in the units of y."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge
from planted import edit, kills
from scipy.stats import chi2

import dpvb
from dpvb.data import Numeric, Schema, Table, Target
from dpvb.errors import ParameterError, PrivacyError
from dpvb.results import model_file

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6, "y_range": (0, 80), "low": [0, -5], "high": [100, 5]}
PRIVATE: dict[str, Any] = {**EXACT, "epsilon": 1.0}
N = 2_000


def people(rng: np.random.Generator, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """y = 20 + 0.3 x0 + 2 x1 + N(0, 3²)."""
    X = np.column_stack([rng.normal(50, 10, n), rng.standard_normal(n)])
    return X, 20 + X @ [0.3, 2.0] + 3 * rng.standard_normal(n)


def rows(fitted: Any) -> dict[str, tuple[float, float]]:
    return {one.name: (one.mean, one.std) for one in fitted.coefficients()}


@pytest.fixture(scope="module")
def first() -> Any:
    return dpvb.LinearRegression(**PRIVATE).fit(*people(np.random.default_rng(1)))


def test_without_noise_two_halves_in_sequence_are_the_whole() -> None:
    """Within a tenth of a standard deviation, in both orders; half alone has stds √2 times as large."""
    X, y = people(np.random.default_rng(0), 2 * N)
    parts, free = (slice(N), slice(N, None)), {**EXACT, "public_prior": True}
    whole = rows(dpvb.LinearRegression(**free).fit(X, y))
    for one, other in (parts, parts[::-1]):
        half = dpvb.LinearRegression(**free).fit(X[one], y[one])
        both = rows(dpvb.LinearRegression(**free, prior=half).fit(X[other], y[other]))
        for name, (mean, std) in both.items():
            assert mean == pytest.approx(whole[name][0], abs=0.1 * whole[name][1]), name
            assert std == pytest.approx(whole[name][1], rel=0.02), name
        assert rows(half)["x0"][1] == pytest.approx(math.sqrt(2) * whole["x0"][1], rel=0.1)


@kills("releases", "a study whose mean is not measured in halves of the range of y")
@edit("estimators/coefficients.py", "at_zero[name]) / half, std", "at_zero[name]), std")
@pytest.mark.parametrize("name", ["intercept", "x0"])
def test_a_public_study_is_a_measurement_in_the_units_of_y(name: str) -> None:
    """Without noise: precisions add up, means are weighted by these; the middle of the range of y is not 0."""
    X, y = people(np.random.default_rng(0))
    alone = dpvb.LinearRegression(**EXACT).fit(X, y)
    names = list(rows(alone))
    mean_r, covariance_rr = np.array([mean for mean, _ in rows(alone).values()]), alone.coefficients().covariance
    place = names.index(name)
    std = 2.0 * math.sqrt(covariance_rr[place, place])
    study = {name: (mean_r[place] + 2 * std, std)}
    gain_r = covariance_rr[:, place] / (covariance_rr[place, place] + std**2)
    expected_r = mean_r + gain_r * 2 * std
    found = dpvb.LinearRegression(**EXACT, prior=study).fit(X, y)
    std_r = np.sqrt(np.diag(covariance_rr))
    np.testing.assert_allclose(np.array([mean for mean, _ in rows(found).values()]), expected_r, atol=0.1 * std_r.min())
    left_rr, unit_rr = covariance_rr - np.outer(gain_r, covariance_rr[place]), np.outer(std_r, std_r)
    np.testing.assert_allclose(found.coefficients().covariance / unit_rr, left_rr / unit_rr, atol=0.005)


def test_another_range_or_unit_of_y_takes_the_study_along() -> None:
    """Without noise the same posterior, whatever range was declared, and a thousand times it in thousandths."""
    X, y = people(np.random.default_rng(0), 500)
    study = {"x0": (0.2, 0.01), "intercept": (25.0, 0.5)}
    one = rows(dpvb.LinearRegression(**EXACT, prior=study).fit(X, y))
    for factor, low, high in ((1.0, -500.0, 700.0), (1e3, 0.0, 8e4)):
        said = {name: (factor * mean, factor * std) for name, (mean, std) in study.items()}
        given = {**EXACT, "y_range": (low, high), "prior": said}
        other = rows(dpvb.LinearRegression(**given).fit(X, factor * y))
        np.testing.assert_allclose(np.array([*other.values()]) / factor, np.array([*one.values()]), rtol=0.01)


@kills("releases", "an earlier linear regression whose noise its prior forgets")
@edit("models/regression/curvature_then_scores.py", "data = score.info", "data = replace(score, noise=0.0).info")
def test_a_second_fit_is_as_sure_as_it_may_be(first: Any, tmp_path: Path) -> None:
    """Under noise: squared errors over their covariances, of twelve second fits, are no χ² that is too large.

    The false-alarm rate is 1e-6. Where the noise of the earlier fit is left out they are three times as large.
    """
    rng, total, fits = np.random.default_rng(3), 0.0, 12
    given = {**PRIVATE, "epsilon": 0.5}
    for _ in range(fits):
        earlier = dpvb.LinearRegression(**given).fit(*people(rng, 1_000))
        table = dpvb.LinearRegression(**given, prior=earlier).fit(*people(rng, 1_000)).coefficients()
        error_r = np.array([one.mean for one in table]) - [20.0, 0.3, 2.0]
        total += float(error_r @ np.linalg.solve(table.covariance, error_r))
    assert total < chi2.isf(1e-6, 3 * fits)
    first.save(tmp_path / "first.dpvb")
    ratios = []
    for _ in range(6):
        X, y = people(rng)
        alone = dpvb.LinearRegression(**PRIVATE).fit(X, y)
        both = dpvb.LinearRegression(**PRIVATE, prior=tmp_path / "first.dpvb").fit(X, y)
        ratios.append(np.mean(both.coef_std_ / alone.coef_std_))
    assert np.mean(ratios) < 0.95  # .72 in 60 fits; the standard deviation of one is .07.
    assert "an earlier release, with the guarantee for each row behind it of epsilon = " in " ".join(
        str(both.privacy_).split()
    )


def test_rows_without_anybody_leave_what_was_known(first: Any) -> None:
    """No row: the earlier posterior, up to what noise says of nobody."""
    empty = rows(dpvb.LinearRegression(**PRIVATE, prior=first).fit(np.empty((0, 2)), np.empty(0)))
    for name, (mean, std) in rows(first).items():
        assert empty[name][0] == pytest.approx(mean, abs=1.5 * std), name
        assert empty[name][1] == pytest.approx(std, rel=0.35), name


@pytest.mark.parametrize("mean", [0.0, -4e10])
@pytest.mark.parametrize("n", [0, 30])
def test_a_study_that_knows_almost_all_ends_no_fit(mean: float, n: int) -> None:
    prior = {"x0": (mean, 1e-7), "x1": (1.0, 1e-7)}
    fitted = dpvb.LinearRegression(**PRIVATE, prior=prior).fit(*people(np.random.default_rng(0), n))
    assert rows(fitted)["x0"][0] == pytest.approx(mean, rel=0.5, abs=1e-3)
    assert np.isfinite([fitted.sigma_, *fitted.coef_std_]).all()


def test_what_does_not_fit_is_refused_by_name(first: Any) -> None:
    X, y = people(np.random.default_rng(0), 30)

    def refused(said: str, **given: Any) -> None:
        with pytest.raises(ParameterError, match=said):
            dpvb.LinearRegression(**{**PRIVATE, "prior": first, **given}).fit(X, y)

    refused(r"prior must have the y_range of the fit, \(0, 90\); its own is \(0, 80\)", y_range=(0, 90))
    refused("'x0' differs", high=[90, 5])
    refused(
        "prior must be a fitted dpvb.LinearRegression", prior=dpvb.PCA(1, epsilon=1.0, delta=1e-6, max_row_norm=1.0)
    )
    refused(r"mean in \[-4e\+10, 4e\+10\] and std in \[4e-08, 4e\+10\]", prior={"x0": (1e11, 1.0)})


def test_a_range_of_y_may_be_that_of_a_schema() -> None:
    X, y = people(np.random.default_rng(0), 200)
    data = {"age": X[:, 0], "score": X[:, 1], "hours": y}
    columns = (Numeric("age", 0, 100), Numeric("score", -5, 5))

    def fit(high: float, prior: Any) -> Any:
        schema = Schema(columns, target=Target("hours", kind="numeric", low=0, high=high))
        return dpvb.LinearRegression(epsilon=math.inf, delta=1e-6, prior=prior, public_prior=True).fit(
            Table(data, schema)
        )

    once = fit(80, None)
    np.testing.assert_allclose(fit(80, once).coef_std_, once.coef_std_ / math.sqrt(2), rtol=0.02)
    with pytest.raises(ParameterError, match=r"y_range of the fit, \(0, 90\)"):
        fit(90, once)


@kills("releases", "what is known of coefficients for predictions, taken for intervals")
@edit("estimators/regression.py", "data, self._table.data\n", "data, self._weights.data\n")
def test_intervals_rest_on_what_a_prior_says_for_intervals(tmp_path: Path) -> None:
    """The file of a prior has 100 times the likelihood for intervals: intervals are narrow, predictions the same."""
    X, y = people(np.random.default_rng(0))
    free = {**EXACT, "public_prior": True}
    path, plain = tmp_path / "m.dpvb", dpvb.LinearRegression(**free).fit(X, y)
    plain.save(path)
    names = ("table__data__precision", "table__data__pull_d")
    forge(path, arrays={name: lambda a: 100.0 * a for name in names})
    usual, narrow = (dpvb.LinearRegression(**free, prior=prior).fit(X, y) for prior in (plain, path))
    np.testing.assert_allclose(narrow.coef_std_, usual.coef_std_ * math.sqrt(2 / 101), rtol=0.05)
    np.testing.assert_allclose(narrow.predict(X), usual.predict(X))


@kills("releases", "a prior of hostile numbers that ends a fit after its charge")
@edit("estimators/regression.py", "if not all(map(is_of_a_fit, both)):", "if False:")
@pytest.mark.parametrize(
    ("name", "place", "number"),
    [("precision", (0, 0), 1e30), ("precision", (0, 1), 1e15), ("pull_d", (0,), 1e300)],
)
@pytest.mark.parametrize("start", ["weights", "table"])
def test_a_prior_of_hostile_numbers_is_refused_before_the_charge(
    first: Any, start: str, name: str, place: tuple[int, ...], number: float, tmp_path: Path
) -> None:
    """Numbers that overflow, and precisions that have a negative eigenvalue."""
    path = tmp_path / "m.dpvb"
    first.save(path)

    def hostile(array: Any) -> Any:
        array[place] = array[place[::-1]] = number
        return array

    forge(path, arrays={f"{start}__data__{name}": hostile})
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("x", epsilon=4.0, delta=1e-3, unit="row", neighboring_relation="add_or_remove_one")
        with pytest.raises(ParameterError, match="no normal likelihood"):
            dpvb.LinearRegression(**PRIVATE, prior=path).fit(
                *people(np.random.default_rng(0), 30), run=dpvb.Run(ledger=ledger, dataset="x")
            )
        assert ledger.remaining("x").num_charges == 0


@kills("releases", "a prior of a file that forged what it cost")
@edit("estimators/prior_fits.py", "    statement.verify()\n", "")
def test_a_prior_whose_releases_cost_more_than_it_says_is_refused(first: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.dpvb"
    first.save(path)
    forge(path, privacy={**model_file.load(path).facts["privacy"], "epsilon": 0.01})
    with pytest.raises(PrivacyError, match="Do not trust this file"):
        dpvb.LinearRegression(**PRIVATE, prior=path).fit(*people(np.random.default_rng(0), 30))


@kills("releases", "a release that is called public and loses the name of its data set")
@edit("estimators/prior_fits.py", 'f"{_EARLIER}{charged}, {_PUBLIC}{behind}" if charged else ', "")
def test_a_release_that_is_called_public_keeps_the_name_of_its_data(tmp_path: Path) -> None:
    """Other people than those of the second fit are not other people than those of the third."""
    X, y = people(np.random.default_rng(0), 200)
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        for name in ("a", "b"):
            ledger.register(name, epsilon=4.0, delta=1e-3, unit="row", neighboring_relation="add_or_remove_one")
        first = dpvb.LinearRegression(**PRIVATE).fit(X, y, run=dpvb.Run(ledger=ledger, dataset="a"))
        second = dpvb.LinearRegression(**PRIVATE, prior=first, public_prior=True).fit(
            X, y, run=dpvb.Run(ledger=ledger, dataset="b")
        )
        assert "an earlier release of data set 'a'" in " ".join(str(second.privacy_).split())
        with pytest.raises(ParameterError, match="other people than dataset='a'"):
            dpvb.LinearRegression(**PRIVATE, prior=second).fit(X, y, run=dpvb.Run(ledger=ledger, dataset="a"))
