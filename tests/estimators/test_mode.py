"""The point estimate of regressions and belief networks: where the posterior is highest, without uncertainty."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy.special import expit

import dpvb
from dpvb.errors import ParameterError

ROWS: dict[str, Any] = {"delta": 1e-6, "max_row_norm": 4.0}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (dpvb.LogisticRegression, {}),
    "logistic, diagonal": (dpvb.LogisticRegression, {"covariance": "diagonal"}),
    "binomial": (dpvb.BinomialRegression, {"max_trials": 1}),
    "poisson": (dpvb.PoissonRegression, {"max_count": 5}),
    "negative binomial": (dpvb.NegativeBinomialRegression, {"max_count": 5}),
    "linear": (dpvb.LinearRegression, {"y_range": (-1.0, 2.0)}),
}


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, (rng.random(n) < expit(0.5 + X @ [1.0, -0.7])) + 0


def fitted(kind: str, n: int = 400, **given: Any) -> Any:
    make, own = KINDS[kind]
    X, y = drawn(n)
    beside = {"trials": np.ones(n)} if kind == "binomial" else {}
    return make(**{**ROWS, "epsilon": 1.0, "estimate": "map", **own, **given}).fit(X, y, **beside)


@pytest.mark.parametrize("kind", ["logistic", "linear", "poisson"])
def test_other_regressions_read_the_same_release_at_its_highest_point(kind: str) -> None:
    """Without noise, to which the mean of a normal posterior is the highest point; predictions then are those of it."""
    (mode, posterior), X = (
        (fitted(kind, epsilon=math.inf, estimate=name) for name in ("map", "posterior")),
        drawn(9)[0],
    )
    if kind == "logistic":
        np.testing.assert_allclose(mode.decision_function(X), posterior.decision_function(X), rtol=1e-9)
        np.testing.assert_array_less(np.abs(posterior.predict_proba(X) - 0.5), np.abs(mode.predict_proba(X) - 0.5))
    else:
        np.testing.assert_allclose(mode.predict(X), posterior.predict(X), rtol=1e-9)


@kills("releases", "a point estimate that gives intervals, of width 0")
@edit("estimators/regression.py", "if record.table.covariance.any() else (None, None)", "")
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_of_variance_zero_and_intervals_are_refused(kind: str, tmp_path: Path) -> None:
    model, X = fitted(kind), drawn(5)[0]
    mean_n, variance_n = model._psi(X)
    assert not variance_n.any()
    np.testing.assert_allclose(mean_n, model.intercept_ + X @ np.ravel(model.coef_), rtol=1e-9)
    assert model.coef_std_ is None
    assert model.intercept_std_ is None
    calls = [model.credible_interval, model.coefficients, model.summary, model.sample_posterior, model.to_arviz]
    calls += [
        lambda: model.contrast({"x0": 1.0}),
        lambda: model.predict_interval(X),
        lambda: dpvb.compare(model, model),
    ]
    calls += [getattr(model, name) for name in ("sigma_interval", "dispersion_interval") if hasattr(model, name)]
    for call in calls:
        with pytest.raises(ParameterError, match="estimate must be 'posterior' for intervals"):
            call()
    assert "fitted" in model._repr_html_inner()
    assert "estimate 'map'" in " ".join(str(model.privacy_).split())
    model.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.coef_std_ is None


def test_a_mode_is_a_prior_as_a_posterior_is() -> None:
    """What travels is what rows said, which both hold: without noise the same second fit."""
    exact: dict[str, Any] = {"epsilon": math.inf, "public_prior": True, "estimate": "posterior"}
    second = [
        fitted("linear", prior=fitted("linear", epsilon=math.inf, estimate=name), **exact)
        for name in ("map", "posterior")
    ]
    np.testing.assert_allclose(second[0].coef_, second[1].coef_, rtol=1e-12)
    np.testing.assert_allclose(second[0].coef_std_, second[1].coef_std_, rtol=1e-12)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_another_estimate_is_refused(kind: str) -> None:
    with pytest.raises(ParameterError, match="estimate must be"):
        fitted(kind, estimate="median")


def test_a_belief_network_at_its_mode_has_finite_weights() -> None:
    """As good as the posterior within a nat a row."""
    y_nj = (np.random.default_rng(0).random((300, 8)) < np.tile([0.8, 0.2], 4)).astype(float)
    given: dict[str, Any] = {
        "delta": 1e-5,
        "epsilon": math.inf,
        "n_steps": 8,
        "n_units": 300,
        "random_state": 0,
    }
    mode = dpvb.SigmoidBeliefNetwork(3, **given, estimate="map").fit(y_nj)
    posterior = dpvb.SigmoidBeliefNetwork(3, **given).fit(y_nj)
    assert np.isfinite(mode.components_).all()
    assert not np.array_equal(mode.components_, posterior.components_)
    assert mode.score(y_nj, public=True) > posterior.score(y_nj, public=True) - 1.0
    with pytest.raises(ParameterError, match="estimate"):
        dpvb.SigmoidBeliefNetwork(3, **given, estimate="median").fit(y_nj)
