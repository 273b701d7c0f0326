"""Counts: likelihoods against their distributions, a dispersion that is learned, and predictive intervals."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtri

import dpvb
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.wall import Wall
from dpvb.data import Numeric, Schema, Table, Target
from dpvb.errors import FewUnitsWarning, ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.first_order import dispersion_information, dispersion_score
from dpvb.models.regression.likelihood import Likelihood, binomial_interval, probability_interval

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6, "low": [18, -4], "high": [90, 4]}
NEGATIVE = Likelihood("negative_binomial", dispersion=1.7, max_count=30.0)
POISSON = Likelihood("poisson", max_count=30.0)


def visits(seed: int, n: int, r: float | None = None) -> tuple[Floats, Floats]:
    """Ages and scores, and counts of a Poisson or a negative binomial distribution."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(18, 90, n), rng.normal(0, 1, n).clip(-4, 4)])
    mean = np.exp(0.2 + 0.01 * X[:, 0] + 0.3 * X[:, 1])
    return X, rng.poisson(mean if r is None else mean * rng.gamma(r, 1 / r, n)).astype(np.float64)


@pytest.mark.parametrize("likelihood", [POISSON, NEGATIVE])
def test_score_and_information_are_those_of_the_distribution(likelihood: Likelihood) -> None:
    """By enumeration: the score is the derivative of the log probability, and its square has the information's mean."""
    y, psi = np.arange(400.0), np.full(400, 0.8)
    wide = Likelihood(likelihood.kind, dispersion=likelihood.dispersion, max_count=1e9)
    up, down = (wide.log_probability(psi + step, y, np.ones(400)) for step in (1e-6, -1e-6))
    score = wide.residual(psi, y, np.ones(400))
    np.testing.assert_allclose(score, (up - down) / 2e-6, atol=1e-6 * score.max())
    p = np.exp(wide.log_probability(psi, y, np.ones(400)))
    assert p.sum() == pytest.approx(1.0)
    information = wide.steepest * wide.curvature(psi, np.ones(400))[0]
    assert p @ score**2 == pytest.approx(information, rel=1e-6)


@pytest.mark.parametrize(
    "likelihood", [POISSON, NEGATIVE, Likelihood("negative_binomial", dispersion=None, max_count=30.0)]
)
def test_no_row_of_counts_exceeds_its_bounds_at_any_query(likelihood: Likelihood) -> None:
    psi = np.repeat([-1e300, -50.0, -1.0, 0.0, 2.0, 3.4, 3.5, 50.0, 1e300], 31)
    y, one = np.tile(np.arange(31.0), 9), np.ones(279)
    for r in (1e-4, 0.3, 1.0, 20.0, 1e6):
        at = likelihood.at(r)
        residual = at.residual(psi, y, one)
        assert np.abs(residual).max() <= likelihood.max_residual
        assert residual.min() >= -at.steepest * (1 + 1e-12)
        share = at.curvature(psi, one)
        assert share.min() >= 0
        assert share.max() <= 1 + 1e-12
        u = dispersion_score(y, at.expected(psi), 1.0 if math.isinf(at.r) else at.r)
        assert np.abs(u).max() <= tuned.SCORE_BOUND


def test_the_score_of_the_dispersion_is_the_derivative_of_the_log_probability() -> None:
    y, mean = np.arange(12.0), np.full(12, 3.0)
    up, down = (stats.nbinom.logpmf(y, r, r / (r + 3.0)) for r in (1.7 * math.exp(1e-5), 1.7 * math.exp(-1e-5)))
    np.testing.assert_allclose(dispersion_score(y, mean, 1.7), (up - down) / 2e-5, atol=1e-8)
    y = np.arange(500.0)
    p = stats.nbinom.pmf(y, 1.7, 1.7 / (1.7 + 3.0))
    square = p @ dispersion_score(y, np.full(500, 3.0), 1.7) ** 2
    assert dispersion_information(1.7, math.log(3.0), 0.0) == pytest.approx(square, rel=0.05)


@pytest.mark.parametrize("r", [None, 1.2])
def test_without_noise_counts_have_the_estimates_of_statsmodels(r: float | None) -> None:
    """Poisson, and negative binomial with its dispersion learned: means within half a standard error, stds to 5 %."""
    sm = pytest.importorskip("statsmodels.api")
    X, y = visits(0, 4000, r)
    kind = dpvb.PoissonRegression if r is None else dpvb.NegativeBinomialRegression
    model = kind(**EXACT, max_count=200).fit(X, y)
    peer = (sm.Poisson if r is None else sm.NegativeBinomial)(y, sm.add_constant(X)).fit(disp=0)
    mean = np.append(model.intercept_, model.coef_)
    std = np.append(model.intercept_std_, model.coef_std_)
    assert (np.abs(mean - peer.params[:3]) < 0.5 * peer.bse[:3]).all()
    np.testing.assert_allclose(std, peer.bse[:3], rtol=0.05)
    if r is not None:
        alpha, (low, high) = peer.params[3], np.log(model.dispersion_interval())
        assert abs(math.log(model.dispersion_) + math.log(alpha)) < 0.5 * peer.bse[3] / alpha
        assert (high - low) / 2 / 1.959964 == pytest.approx(peer.bse[3] / alpha, rel=0.1)
        assert (low + high) / 2 == pytest.approx(math.log(model.dispersion_))
        assert f"dispersion {model.dispersion_:.4g} [" in model.summary()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_intercept_is_that_of_the_log_mean(fit_intercept: bool) -> None:
    X, y = visits(1, 3000, 2.0)
    given = {**EXACT, "dispersion": 2.0, "max_count": 200, "n_steps": 80, "fit_intercept": fit_intercept}
    model = dpvb.NegativeBinomialRegression(**given).fit(X, y)
    by_hand = np.exp(model.intercept_ + X @ model.coef_)
    # Rows beyond the norm, of which there are few, are scaled back to it.
    assert np.quantile(np.abs(model.predict(X) / by_hand - 1), 0.99) < 0.02
    if fit_intercept:
        assert abs(model.intercept_ - 0.2) < 5 * model.intercept_std_


def test_a_learned_dispersion_is_saved(tmp_path: Any) -> None:
    X, y = visits(3, 500, 1.0)
    model = dpvb.NegativeBinomialRegression(**{**EXACT, "epsilon": 2.0}, max_count=60).fit(X, y)
    model.save(tmp_path / "m")
    again = dpvb.load(tmp_path / "m")
    assert again.coefficients() == model.coefficients()
    assert again.evaluate(X, y, public=True) == model.evaluate(X, y, public=True)


@pytest.mark.parametrize(
    ("kind", "epsilon"),
    [
        ("poisson", 0.1),
        ("negative_binomial", math.inf),
        pytest.param("poisson", math.inf, marks=pytest.mark.slow),
        pytest.param("negative_binomial", 0.1, marks=pytest.mark.slow),
    ],
)
def test_hard_counts_give_finite_tables(kind: str, epsilon: float) -> None:
    rng = np.random.default_rng(4)
    estimator = dpvb.PoissonRegression if kind == "poisson" else dpvb.NegativeBinomialRegression
    x, zero = rng.uniform(0, 1, 300), np.zeros(300)
    for X, y in [
        (x, zero),
        (x, np.full(300, 9.0)),
        (x, np.full(300, 1e6)),
        (0 * x, rng.poisson(2.0, 300)),
        (x[:0], zero[:0]),
        (x[:1], zero[:1] + 1),
        (x + 1e9, rng.poisson(2.0, 300)),
        (np.full(300, np.nan), zero),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "This fit is not recorded")
            warnings.simplefilter("ignore", FewUnitsWarning)
            warnings.filterwarnings("ignore", "The scores of")
            model = estimator(epsilon=epsilon, delta=1e-6, low=0, high=1, max_count=9).fit(X[:, None], y)
            low, high = model.predict_interval([[0.3], [0.9]])
        assert all(math.isfinite(row.mean) and 0 < row.std < math.inf for row in model.coefficients())
        assert ((low >= 0) & (low <= high) & (high <= 9)).all()
        assert np.isfinite(model.predict([[0.3], [0.9]])).all()


def test_a_dispersion_that_cannot_be_learned_is_refused_before_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wall, "release", None)
    X, y = visits(5, 20)
    with pytest.raises(ParameterError, match=r"dispersion must be a number, unless .*dpvb\.private_select"):
        dpvb.NegativeBinomialRegression(**EXACT, max_count=9, covariance="diagonal").fit(X, y)


def test_a_schema_declares_poisson_counts() -> None:
    X, y = visits(6, 300)
    like = Schema((Numeric("age", 18, 90),), target=Target("visits", "poisson", max_count=40))
    model = dpvb.PoissonRegression(epsilon=math.inf, delta=1e-6, max_count=40)
    found = model.fit(Table({"age": X[:, 0], "visits": y}, Schema.from_json(like.to_json()))).coef_
    alone = dpvb.PoissonRegression(epsilon=math.inf, delta=1e-6, max_count=40, low=18, high=90).fit(X[:, :1], y)
    np.testing.assert_allclose(found, alone.coef_, rtol=1e-6)


# --- intervals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [POISSON, NEGATIVE])
def test_intervals_of_counts_are_those_of_enumeration(likelihood: Likelihood) -> None:
    """Against sums over counts of probabilities, averaged over 4,001 values of ψ."""
    mean, variance, tail = np.array([-1.0, 0.5, 2.0, 3.0]), np.array([0.3, 0.0, 0.01, 0.2]), 0.025
    low, high = likelihood.count_interval(mean, variance, tail)
    node = ndtri((np.arange(4_001) + 0.5) / 4_001)
    for n in range(4):
        mu = np.minimum(np.exp(mean[n] + math.sqrt(variance[n]) * node), 30.0)
        r = likelihood.r
        law = stats.poisson(mu) if likelihood.kind == "poisson" else stats.nbinom(r, r / (r + mu))
        below = np.array([law.cdf(k).mean() for k in range(30)])
        assert low[n] == np.argmax(np.append(below, 1.0) >= tail)
        assert high[n] == np.argmax(np.append(below, 1.0) >= 1 - tail)


def test_intervals_of_successes_and_of_a_probability_are_those_of_enumeration() -> None:
    mean, variance, trials = np.array([-2.0, 0.0, 1.0]), np.array([0.1, 1.0, 0.0]), np.array([5, 12, 0])
    low, high = binomial_interval(mean, variance, trials, 0.05)
    node = ndtri((np.arange(4_001) + 0.5) / 4_001)
    for n in range(3):
        p = expit(mean[n] + math.sqrt(variance[n]) * node)
        below = np.array([stats.binom(trials[n], p).cdf(k).mean() for k in range(trials[n] + 1)])
        assert low[n] == np.argmax(below >= 0.05)
        assert high[n] == np.argmax(below >= 0.95)
    low, high = probability_interval(mean, variance, 0.05)
    np.testing.assert_allclose(low, expit(mean - 1.6448536 * np.sqrt(variance)))
    np.testing.assert_allclose(high, expit(mean + 1.6448536 * np.sqrt(variance)))


def test_estimators_show_intervals_of_what_may_come() -> None:
    """Counts of the model itself: at least 95 % inside, within six standard errors (false-alarm rate below 1e-6)."""
    X, y = visits(7, 4000, 1.5)
    low, high = dpvb.NegativeBinomialRegression(**EXACT, max_count=400).fit(X, y).predict_interval(X[:800])
    assert np.mean((low <= y[:800]) & (y[:800] <= high)) > 0.95 - 6 * math.sqrt(0.95 * 0.05 / 800)
    assert np.mean(high - low) < 60
    model = dpvb.LogisticRegression(**EXACT).fit(X, (y > 2).astype(int))
    low, high = model.predict_interval(X, 0.9)
    proba = model.predict_proba(X)[:, 1]
    assert ((low < proba) & (proba < high)).all()
    successes = dpvb.BinomialRegression(**EXACT, max_trials=9).fit(X, np.minimum(y, 9), np.full(4000, 9))
    X, proba = X[:800], successes.predict(X[:800], 9)
    low, high = successes.predict_interval(X, trials=9)
    assert ((low <= proba) & (proba <= high)).all()
    with pytest.raises(ParameterError, match=r"trials must be whole numbers of 0 or more, one or 800 of them\."):
        successes.predict_interval(X, trials=[1, 2])
    with pytest.raises(ParameterError, match="level must be a number"):
        model.predict_interval(X, 1.0)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_a_noisy_reading_of_the_curvature_does_not_send_a_path_away(seed: int) -> None:
    """Mean 2 of counts up to 60 at ε = 1: with seed 5 one step went 19 log means far, and the path stayed."""
    rng = np.random.default_rng(31_001)
    x_nd, weights_d = rng.normal(size=(10_000, 4)), rng.normal(0, 0.3, 4)
    y_n = rng.poisson(2.0 * np.exp(x_nd @ weights_d))
    estimator = dpvb.PoissonRegression(epsilon=1.0, delta=1e-6, max_count=60, low=-4.0, high=4.0)
    task = estimator._task(x_nd, y_n)
    plan = task.plan
    wall: Any = Wall(task.source, plan, noise=InsecureNoise(seed))
    q, _ = loop.fit(task.model, wall, plan, rho=task.rho, rng=np.random.default_rng(0))
    # Weights of rows of norm 1; the true ones are 1.3, 0.5, 1 and -3.5.
    assert np.abs(task.model.weights(q).mean_d[1:]).max() < 7.0
