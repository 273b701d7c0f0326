"""The three regressions as a user meets them: units, intervals, predictions, tables, files, faults."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge
from scipy import integrate, sparse
from scipy.special import expit, ndtri
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression as Reference

import dpvb
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table
from dpvb.errors import DataFormatError, DpvbError, FewUnitsWarning, ModelFileError, ParameterError, PrivacyError
from dpvb.estimators.generalized_linear import BinomialLikelihoodRegression
from dpvb.models.regression.likelihood import predictive
from dpvb.results import metrics

BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
PLAIN: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5, "n_steps": 60}
ROW_NORM = 4.0
TRUE_COEF, TRUE_INTERCEPT = np.array([1.0, -1.5, 0.5]), -0.4


def rows(n: int = 3000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (n, 3))


def labels(X: np.ndarray, seed: int = 1) -> np.ndarray:
    chance = expit(X @ TRUE_COEF + TRUE_INTERCEPT)
    return (np.random.default_rng(seed).random(len(X)) < chance).astype(int)


def logistic(**options: Any) -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(**{**BUDGET, "max_row_norm": ROW_NORM, **options})


@pytest.fixture(scope="module")
def private() -> dpvb.LogisticRegression:
    X = rows()
    return logistic().fit(X, labels(X))


@pytest.fixture(scope="module")
def noiseless() -> dpvb.LogisticRegression:
    X = rows()
    return logistic(**PLAIN).fit(X, labels(X))


# --- the bound of a plain matrix --------------------------------------------------------------------------------


def ages_and_incomes(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Columns in their own units, as people type them."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(18, 90, n), rng.uniform(0, 100_000, n)])
    return X, (rng.random(n) < expit(-4 + X[:, 0] / 20 + X[:, 1] / 50_000)).astype(int)


ENDS = {"low": [18, 0], "high": [90, 100_000]}


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: dpvb.LogisticRegression(**BUDGET, **given),
        lambda **given: dpvb.BinomialRegression(**BUDGET, max_trials=1, **given),
        lambda **given: dpvb.NegativeBinomialRegression(**BUDGET, dispersion=1.0, max_count=3, **given),
    ],
)
def test_a_matrix_without_a_bound_is_refused_with_the_ways_out_and_nothing_is_spent(make: Any, tmp_path: Path) -> None:
    X, y = ages_and_incomes(50)
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-4)
        run = dpvb.Run(ledger=ledger, dataset="people")
        more = (np.ones(50),) if "Binomial" in type(make()).__name__[:8] else ()
        for given in ({}, {"low": 0}, {"high": 9}, {"max_row_norm": 1.0, **ENDS}, {"max_row_norm": 1.0, "low": 0}):
            with pytest.raises(ParameterError, match="X needs public bounds on its numbers") as refused:
                make(**given).fit(X, y, *more, run=run)
            for way in ("(1) low= and high=", "(2) a dpvb.Table", "(3) max_row_norm=", "(4) dpvb.private_range("):
                assert way in str(refused.value)
        for given, match in (
            ({"low": [18, 0, 1], "high": 9}, "low must be a number or 2 of them"),
            ({"low": "a", "high": 9}, "low must be a number or 2 of them"),
            ({"low": 0, "high": [9, 0]}, "high of column 'x1' must be"),
            ({"low": 0, "high": math.inf}, "high of column 'x0' must be"),
        ):
            with pytest.raises(ParameterError, match=match):
                make(**given).fit(X, y, *more, run=run)
        assert ledger.remaining("people").spent_adaptive == 0


@pytest.mark.parametrize(
    ("form", "covariance"),
    [
        pytest.param(form, covariance, marks=[pytest.mark.slow] * (covariance == "diagonal" and form != "sparse"))
        for form in ("array", "list", "sparse", "frame", "arrow")
        for covariance in ("full", "diagonal")
    ],
)
def test_ranges_of_columns_are_a_schema_of_numbers_and_coefficients_are_in_their_units(
    form: str, covariance: str
) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    X, y = ages_and_incomes()
    given = {
        "array": X,
        "list": X.tolist(),
        "sparse": sparse.csr_array(X),
        "frame": pandas.DataFrame(X, columns=["age", "income"]),
        "arrow": arrow.table({"age": X[:, 0], "income": X[:, 1]}),
    }[form]
    model = dpvb.LogisticRegression(**PLAIN, **ENDS, covariance=covariance).fit(given, y)
    schema = Schema((Numeric("age", 18, 90), Numeric("income", 0, 100_000)))
    table = Table({"age": X[:, 0], "income": X[:, 1]}, schema)
    same = dpvb.LogisticRegression(**PLAIN, covariance=covariance).fit(table, y)
    assert np.array_equal(model.coef_, same.coef_)
    assert np.array_equal(model.intercept_, same.intercept_)
    assert model.feature_names_ == (("age", "income") if form in ("frame", "arrow") else ("x0", "x1"))
    for rows in (given, X, X.tolist()):
        assert np.array_equal(model.predict_proba(rows), same.predict_proba(table))
    assert model.evaluate(given, y, public=True) == same.evaluate(table, y, public=True)
    reference = Reference(C=1e9, tol=1e-8).fit((X - X.mean(0)) / X.std(0), y)
    coef = reference.coef_ / X.std(0)
    assert model.coef_ == pytest.approx(coef, rel=0.1)
    assert model.intercept_ == pytest.approx(reference.intercept_ - coef @ X.mean(0), rel=0.1)


def test_the_same_rows_in_other_units_give_the_same_model() -> None:
    X, y = ages_and_incomes(800)
    one = dpvb.LogisticRegression(**PLAIN, **ENDS).fit(X, y)
    months = dpvb.LogisticRegression(**PLAIN, low=[216 + 5, 0], high=[1080 + 5, 100]).fit(X * [12, 0.001] + [5, 0], y)
    assert months.coef_ * [12, 0.001] == pytest.approx(one.coef_, rel=1e-9)
    assert months.coef_std_ * [12, 0.001] == pytest.approx(one.coef_std_, rel=1e-9)
    assert months.intercept_ + 5 * months.coef_[:, 0] == pytest.approx(one.intercept_, rel=1e-9)
    coef, intercept = one.sample_posterior(4000, rng=0)
    # Means and standard deviations of 4000 draws are within seven of their standard errors but for one in 10^10.
    for drawn, mean, std in (
        (coef, one.coef_[0], one.coef_std_[0]),
        (intercept, one.intercept_[0], one.intercept_std_[0]),
    ):
        assert np.abs(drawn.mean(axis=0) - mean).max() < 7 * np.max(std) / math.sqrt(4000)
        assert np.abs(drawn.std(axis=0) / std - 1).max() < 7 / math.sqrt(8000)


def test_values_outside_a_range_are_clipped_and_nan_counts_as_no_row() -> None:
    X, y = ages_and_incomes(400)
    wild, tame = X.copy(), X.copy()
    wild[:3], tame[:3] = [[-5, 1e9], [400, 50], [20, -1]], [[18, 100_000], [90, 50], [20, 0]]
    wild[3] = tame[3] = math.nan
    fits = [dpvb.LogisticRegression(**PLAIN, **ENDS).fit(rows, y) for rows in (wild, tame)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert np.array_equal(fits[0].coef_, dpvb.LogisticRegression(**PLAIN, **ENDS).fit(*cut(tame, y)).coef_)
    with pytest.raises(DataFormatError, match="is expecting 2 features"):
        fits[0].predict(np.ones((3, 3)))
    with pytest.raises(ParameterError, match="low must be None with a table"):
        dpvb.LogisticRegression(**PLAIN, **ENDS).fit(Table(people(30), SCHEMA))


def cut(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without row 3."""
    return np.delete(X, 3, axis=0), np.delete(y, 3)


def test_ranges_survive_a_file(tmp_path: Path) -> None:
    X, y = ages_and_incomes(200)
    model = dpvb.LogisticRegression(**BUDGET, **ENDS).fit(X, y)
    model.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.summary() == model.summary()


# --- what comes out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"covariance": "diagonal"}])
def test_without_noise_it_is_ordinary_logistic_regression_in_the_units_of_x(options: Any) -> None:
    X = rows()
    y = labels(X)
    model = logistic(**PLAIN, **options).fit(X, y)
    reference = Reference(C=1e6).fit(X, y)
    # The prior, N(0, 1/alpha) on weights of rows of norm 1, moves an estimate by a small part of its spread.
    assert np.abs(model.coef_ - reference.coef_).max() < 0.5 * model.coef_std_.max()
    assert np.abs(model.intercept_ - reference.intercept_).max() < 0.5 * model.intercept_std_.max()
    fisher = (X.T * (p := reference.predict_proba(X)[:, 1]) * (1 - p)) @ X
    assert model.coef_std_[0] == pytest.approx(np.sqrt(np.diag(np.linalg.inv(fisher))), rel=0.15)
    assert model.coef_.shape == model.coef_std_.shape == (1, 3)
    assert model.intercept_.shape == model.intercept_std_.shape == (1,)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_every_form_meets_the_budget_and_learns(covariance: str) -> None:
    X = rows(6000)
    y = labels(X)
    model = logistic(covariance=covariance, epsilon=4.0).fit(X, y)
    assert 0.99 * 4.0 <= model.privacy_.epsilon <= 4.0
    assert metrics.auc(y, model.decision_function(X)) > 0.75
    assert np.isfinite(model.coef_std_).all()
    assert f"covariance '{covariance}'" in str(model.privacy_)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_row_norm_is_a_unit_and_nothing_else(covariance: str) -> None:
    X = rows(500)
    y = labels(X)
    one = logistic(**PLAIN, covariance=covariance).fit(X, y)
    other = logistic(**{**PLAIN, "max_row_norm": 8 * ROW_NORM}, covariance=covariance).fit(8 * X, y)
    assert 8 * other.coef_ == pytest.approx(one.coef_, rel=1e-9)
    assert other.intercept_ == pytest.approx(one.intercept_, rel=1e-9)
    assert 8 * other.coef_std_ == pytest.approx(one.coef_std_, rel=1e-9)
    assert other.predict_proba(8 * X) == pytest.approx(one.predict_proba(X), rel=1e-9)


def test_a_given_prior_is_the_prior() -> None:
    """Few rows and a strong prior: the posterior mean of scikit-learn's penalty, in units of rows of norm 1."""
    X = rows(100)
    y = labels(X)
    model = logistic(**PLAIN, alpha=25.0, fit_intercept=False).fit(X, y)
    reference = Reference(C=1 / 25.0, fit_intercept=False, tol=1e-8).fit(X / ROW_NORM, y)
    assert model.coef_ * ROW_NORM == pytest.approx(reference.coef_, rel=0.02)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_sparse_rows_and_lists_give_what_dense_ones_do(covariance: str) -> None:
    X = rows(400)
    X[X < 0.3] = 0.0
    y = labels(X)
    dense = logistic(**PLAIN, covariance=covariance).fit(X, y)
    for form in (sparse.csr_array(X), sparse.csc_matrix(X), X.tolist(), np.asfortranarray(X)):
        other = logistic(**PLAIN, covariance=covariance).fit(form, y.tolist())
        assert other.coef_ == pytest.approx(dense.coef_, rel=1e-12)
        assert other.predict_proba(form) == pytest.approx(dense.predict_proba(X), rel=1e-12)


def test_intervals_are_those_of_the_gaussian_posterior(private: Any) -> None:
    low, high = private.credible_interval(0.9)
    reach = norm.ppf(0.95)
    assert low == pytest.approx(private.coef_ - reach * private.coef_std_)
    assert high == pytest.approx(private.coef_ + reach * private.coef_std_)
    wide = private.credible_interval(0.99)
    assert (wide[0] < low).all()
    assert (wide[1] > high).all()
    naive = private.credible_interval(0.9, noise_aware=False)
    assert (naive[1] - naive[0] < high - low).all()
    ends = private.credible_interval(0.9, intercept=True)
    assert np.mean(ends) == pytest.approx(private.intercept_[0])
    assert ends[1] - ends[0] == pytest.approx(2 * ndtri(0.95) * private.intercept_std_)


def test_without_noise_there_is_no_noise_to_be_aware_of(noiseless: Any) -> None:
    aware, naive = noiseless.credible_interval(), noiseless.credible_interval(noise_aware=False)
    assert aware[0] == pytest.approx(naive[0], rel=1e-6)


def test_draws_have_the_moments_of_the_table(private: Any) -> None:
    """40,000 draws, seed 3; each comparison within 6 standard errors (false alarm < 2e-9 each)."""
    coef, intercept = private.sample_posterior(40_000, rng=3)
    assert coef.shape == (40_000, 3)
    assert intercept.shape == (40_000,)
    error = private.coef_std_[0] / 200
    assert (np.abs(coef.mean(axis=0) - private.coef_[0]) < 6 * error).all()
    assert coef.std(axis=0) == pytest.approx(private.coef_std_[0], rel=6 / math.sqrt(80_000))
    assert abs(intercept.mean() - private.intercept_[0]) < 6 * private.intercept_std_[0] / 200
    again = private.sample_posterior(2, rng=np.random.default_rng(3))
    assert np.array_equal(again[0], private.sample_posterior(2, rng=3)[0])


@pytest.mark.parametrize("mean", [-30.0, -2.0, 0.0, 0.3, 5.0])
@pytest.mark.parametrize("variance", [0.0, 0.1, 4.0, 400.0])
def test_the_predictive_probability_is_the_integral(mean: float, variance: float) -> None:
    def density(z: float) -> float:
        return float(expit(mean + math.sqrt(variance) * z) * norm.pdf(z))

    value, _ = integrate.quad(density, -12, 12, points=[-mean / max(math.sqrt(variance), 1.0)], limit=400)
    assert predictive(np.array([mean]), np.array([variance]))[0] == pytest.approx(value, abs=5e-9)


@pytest.mark.parametrize(
    ("mean", "variance"), [(-20.0, 0.0), (-30.0, 4.0), (-14.9, 0.0), (-600.0, 10.0), (-50.0, 20.0)]
)
def test_small_predictive_probabilities_are_precise(mean: float, variance: float) -> None:
    """To 1 %; the integral is taken around the peak of σ(ψ) times the density."""
    sd = math.sqrt(variance)
    value = float(expit(mean))
    if variance:
        middle = mean + variance

        def part(psi: float) -> float:
            return math.exp(-np.logaddexp(0.0, -psi) - (psi - mean) ** 2 / (2 * variance) - (mean + variance / 2))

        scaled, _ = integrate.quad(part, middle - 9 * sd, middle + 9 * sd, points=[0.0, middle], limit=400)
        value = scaled / math.sqrt(2 * math.pi * variance) * math.exp(mean + variance / 2)
    assert predictive(np.array([mean]), np.array([variance]))[0] == pytest.approx(value, rel=0.01)


def test_predictions_agree_with_each_other(private: Any) -> None:
    X = rows(200, seed=5)
    proba = private.predict_proba(X)
    assert proba.sum(axis=1) == pytest.approx(1.0)
    assert private.predict_log_proba(X) == pytest.approx(np.log(proba))
    # The table has a prior of its own: it agrees to a part of its interval.
    reach = np.sqrt((X**2) @ private.coef_std_[0] ** 2 + private.intercept_std_[0] ** 2)
    assert (np.abs(private.decision_function(X) - X @ private.coef_[0] - private.intercept_[0]) < reach).all()
    assert np.array_equal(private.predict(X), private.classes_[np.argmax(proba, axis=1)])
    assert private.score(X, private.predict(X), public=True) == 1.0
    assert private.predict_proba(np.zeros((0, 3))).shape == (0, 2)


def test_rows_beyond_the_norm_are_scaled_back_as_in_fit(private: Any) -> None:
    reach = ROW_NORM * math.sqrt(1 - private.relative_intercept**2)
    direction = np.array([[0.6, 0.0, -0.8]])
    at_the_bound = private.predict_proba(direction * reach)
    for far in (10.0, 1e6, 1e300):
        assert private.predict_proba(direction * far) == pytest.approx(at_the_bound, rel=1e-9)
    assert private.predict_proba(direction * reach * 0.9) != pytest.approx(at_the_bound, rel=1e-9)


def test_without_an_intercept_there_is_none() -> None:
    X = rows(500)
    model = logistic(**PLAIN, fit_intercept=False).fit(X, labels(X))
    assert model.intercept_ == model.intercept_std_ == 0.0
    assert model.predict_proba(np.zeros((1, 3)))[0, 1] == pytest.approx(0.5)
    assert [row.name for row in model.coefficients()] == ["x0", "x1", "x2"]
    assert model.sample_posterior(4, rng=0)[1].tolist() == [0.0] * 4


def test_the_table_of_coefficients_names_and_agrees(private: Any) -> None:
    table = private.coefficients(0.9)
    low, high = private.credible_interval(0.9)
    assert [row.name for row in table] == ["intercept", "x0", "x1", "x2"]
    assert [row.mean for row in table[1:]] == private.coef_[0].tolist()
    ends = np.column_stack([low[0], high[0]])
    np.testing.assert_allclose([(row.low, row.high) for row in table[1:]], ends, rtol=1e-12)
    assert table[0].std == private.intercept_std_[0]
    shown = private.summary(0.9)
    assert "90 % from" in shown
    assert f"{private.coef_[0, 1]:.4g}" in shown
    assert "do NOT include" in private.summary(noise_aware=False)


def test_persons_are_the_unit_of_a_group() -> None:
    X = rows(300)
    model = logistic().fit(X, labels(X), group=np.arange(300) // 3)
    assert model.privacy_.unit == "person"
    assert logistic().fit(X, labels(X)).privacy_.unit == "row"


@pytest.mark.parametrize("sampler", [{"sampling_prob": 0.3}, {"batch_size": 100, "n_units": 500}])
def test_batches_are_drawn_and_accounted(sampler: Any) -> None:
    X = rows(500)
    model = logistic(**sampler, n_steps=4).fit(X, labels(X))
    assert model.privacy_.epsilon <= 2.0
    assert np.isfinite(model.coef_).all()
    assert ("Poisson" if "sampling_prob" in sampler else "without replacement") in str(model.privacy_)


# --- the other two ------------------------------------------------------------------------------------------


def test_a_trial_is_a_row() -> None:
    """Successes of several trials have the likelihood of as many labelled rows."""
    rng = np.random.default_rng(4)
    X = rows(300)
    trials = rng.integers(1, 4, 300)
    y = rng.binomial(trials, expit(X @ TRUE_COEF + TRUE_INTERCEPT))
    model = dpvb.BinomialRegression(**PLAIN, max_row_norm=ROW_NORM, max_trials=3).fit(X, y, trials)
    repeated = np.repeat(np.arange(300), trials)
    label = np.concatenate([np.arange(t) < s for s, t in zip(y, trials, strict=True)]).astype(int)
    reference = Reference(C=1e6).fit(X[repeated], label)
    assert np.abs(model.coef_ - reference.coef_[0]).max() < 0.5 * model.coef_std_.max()
    assert abs(model.intercept_ - reference.intercept_[0]) < 0.5 * model.intercept_std_
    assert model.predict(X, trials) == pytest.approx(trials * model.predict_proba(X)[:, 1])
    assert 0 < model.score(X, y, trials, public=True) < 1


def test_one_trial_is_a_label() -> None:
    X = rows(300)
    y = labels(X)
    binomial = dpvb.BinomialRegression(**PLAIN, max_row_norm=ROW_NORM, max_trials=1).fit(X, y, np.ones(300))
    label = logistic(**PLAIN).fit(X, y)
    assert binomial.coef_ == pytest.approx(label.coef_[0])
    assert binomial.predict_proba(X) == pytest.approx(label.predict_proba(X))
    assert binomial.predict(X) == pytest.approx(label.predict_proba(X)[:, 1])


def counts(n: int = 2000, dispersion: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    X = rows(n)
    mean = np.exp(X @ np.array([0.4, -0.3, 0.0]) + 0.5)
    return X, rng.poisson(mean * rng.gamma(dispersion, 1 / dispersion, n))


def test_negative_binomial_recovers_the_weights_of_its_own_counts() -> None:
    """Simulated counts, seed 6: every weight within 5 posterior standard deviations, the mean at its equation."""
    X, y = counts()
    model = dpvb.NegativeBinomialRegression(**PLAIN, max_row_norm=ROW_NORM, dispersion=2.0, max_count=200).fit(X, y)
    expected = np.array([0.4, -0.3, 0.0])
    assert (np.abs(model.coef_ - expected) < 5 * model.coef_std_ + 0.02).all()
    assert abs(model.intercept_ - 0.5) < 5 * model.intercept_std_ + 0.02
    mean = model.predict(X)
    assert mean == pytest.approx(np.exp(X @ model.coef_ + model.intercept_), rel=0.02)
    weight = 2.0 / (2.0 + mean)  # the score equation of the intercept, up to the prior's pull
    assert (weight @ (y - mean)) == pytest.approx(0.0, abs=0.03 * (weight @ y))
    assert 0 < model.score(X, y, public=True) < 1


def test_counts_above_the_cap_are_the_cap() -> None:
    X, y = counts(400)
    options = {**PLAIN, "max_row_norm": ROW_NORM, "dispersion": 2.0, "max_count": 3}
    clipped = dpvb.NegativeBinomialRegression(**options).fit(X, np.minimum(y, 3))
    assert dpvb.NegativeBinomialRegression(**options).fit(X, y).coef_ == pytest.approx(clipped.coef_)
    assert clipped.predict(X).max() <= 3


# --- labels, tables, files ----------------------------------------------------------------------------------


def test_declared_classes_decide_and_other_labels_are_silent() -> None:
    X = rows(400)
    y = labels(X)
    words = np.where(y == 1, "yes", "no").astype(object)
    model = logistic(**PLAIN, classes=("no", "yes")).fit(X, words)
    assert model.coef_ == pytest.approx(logistic(**PLAIN).fit(X, y).coef_)
    assert set(model.predict(X)) == {"no", "yes"}
    strange = np.concatenate([words, ["maybe", None, 3.5]])
    more = np.vstack([X, np.full((3, 3), 0.7)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        warnings.filterwarnings("ignore", "The scores of")
        other = logistic(**PLAIN, classes=("no", "yes")).fit(more, strange)
    assert other.coef_ == pytest.approx(model.coef_)
    turned = logistic(**PLAIN, classes=("yes", "no")).fit(X, words)
    assert turned.coef_ == pytest.approx(-model.coef_, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("kind", ["none", "ones", "faulty", "zeros"])
def test_hardly_any_data_are_ordinary_data(covariance: str, kind: str) -> None:
    X, y = {
        "none": (np.zeros((0, 3)), np.zeros(0)),
        "ones": (rows(50), np.ones(50)),
        "faulty": (np.full((20, 3), np.nan), np.ones(20)),
        "zeros": (np.zeros((50, 3)), np.arange(50) % 2),
    }[kind]
    for epsilon in (1.0, math.inf):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "This fit is not recorded")
            warnings.simplefilter("ignore", FewUnitsWarning)
            warnings.filterwarnings("ignore", "The scores of")
            model = logistic(covariance=covariance, epsilon=epsilon).fit(X, y)
        assert np.isfinite(model.coef_).all()
        assert (model.coef_std_ > 0).all()
        assert np.isfinite(model.predict_proba(rows(5))).all()


SCHEMA = Schema(
    columns=(Numeric("age", 0, 100), Categorical("work", ("state", "private")), Binary("urban", values=("no", "yes"))),
    target=Target("rich", classes=("no", "yes")),
)


def people(n: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    age, work = rng.uniform(0, 100, n), rng.choice(["state", "private", "own"], n)
    urban = rng.choice(["no", "yes"], n)
    chance = expit(age / 25 - 2 + (work == "private") - (urban == "yes"))
    return {"age": age, "work": work, "urban": urban, "rich": np.where(rng.random(n) < chance, "yes", "no")}


def encoded(data: dict[str, np.ndarray]) -> np.ndarray:
    places = [data["work"] == "state", data["work"] == "private", ~np.isin(data["work"], ["state", "private"])]
    places += [np.zeros(len(data["age"])), data["urban"] == "yes"]
    return np.column_stack([data["age"] / 100, *(0.7 * place for place in places)])


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_table_brings_rows_labels_norm_intercept_and_names(covariance: str) -> None:
    data = people()
    model = dpvb.LogisticRegression(**PLAIN, covariance=covariance).fit(Table(data, SCHEMA))
    # A coefficient of a table belongs to the category itself, not to its 0.7.
    unit = np.array([1.0, *[0.7] * 5])
    years = np.array([0.01, *[1.0] * 5])  # and to a year of age, not to its whole range
    form = {"max_row_norm": SCHEMA.max_row_norm, "relative_intercept": SCHEMA.intercept, "max_abs_value": unit}
    by_hand = dpvb.LogisticRegression(**PLAIN, **form, covariance=covariance, classes=("no", "yes"), numeric=[0])
    by_hand.fit(encoded(data), data["rich"])
    assert model.coef_ == pytest.approx(by_hand.coef_ * unit * years)
    assert model.coef_std_ == pytest.approx(by_hand.coef_std_ * unit * years)
    assert model.intercept_ == pytest.approx(by_hand.intercept_)
    names = [name.replace("urban", "urban=yes") for name in SCHEMA.feature_names]
    assert [row.name for row in model.coefficients(coding="none")] == ["intercept", *names]
    assert model.classes_.tolist() == ["no", "yes"]
    proba = by_hand.predict_proba(encoded(data))
    for table in (Table(data, SCHEMA), data, {name: data[name] for name in ("age", "work", "urban")}):
        assert model.predict_proba(table) == pytest.approx(proba)
    again = dpvb.LogisticRegression(**PLAIN, covariance=covariance).fit(Table(data, SCHEMA), data["rich"] == "yes")
    assert again.coef_ == pytest.approx(model.coef_)
    assert again.classes_.tolist() == [0, 1]


def test_a_table_and_the_parameters_must_agree() -> None:
    data = people(30)
    target = Target("rich", kind="negative_binomial", max_count=9)
    schema = Schema(SCHEMA.columns, target)
    with pytest.raises(ParameterError, match="target"):
        dpvb.LogisticRegression(**BUDGET).fit(Table(data, schema))
    with pytest.raises(ParameterError, match="max_count"):
        dpvb.NegativeBinomialRegression(**BUDGET, max_row_norm=1.0, dispersion=1.0, max_count=8).fit(
            Table(data, schema)
        )
    with pytest.raises(DataFormatError, match="response"):
        dpvb.LogisticRegression(**BUDGET).fit(Table(data, Schema(SCHEMA.columns)))
    fitted = dpvb.LogisticRegression(**BUDGET).fit(Table(data, SCHEMA))
    with pytest.raises(DataFormatError, match="schema"):
        fitted.predict(Table(data, Schema(SCHEMA.columns[:2])))
    with pytest.raises(DataFormatError, match="plain rows"):
        logistic().fit(rows(30), np.ones(30)).predict(Table(data, SCHEMA))


def test_names_of_a_data_frame_are_kept_and_checked() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows(50), columns=["a", "b", "c"])
    model = logistic().fit(frame, labels(rows(50)))
    assert [row.name for row in model.coefficients()][1:] == ["a", "b", "c"]
    assert np.array_equal(model.predict(frame), model.predict(frame.to_numpy()))
    with pytest.raises(DataFormatError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


def assert_same(one: BinomialLikelihoodRegression, other: BinomialLikelihoodRegression, X: Any) -> None:
    assert np.array_equal(one.predict(X), other.predict(X))
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.coef_std_, other.coef_std_)
    assert one.coefficients(noise_aware=False) == other.coefficients(noise_aware=False)
    assert one.privacy_ == other.privacy_
    assert one.get_params() == other.get_params()


def test_a_saved_model_is_the_model(tmp_path: Path) -> None:
    X = rows(60)
    y = labels(X)
    path = tmp_path / "m.dpvb"
    words = np.where(y == 1, "yes", "no")
    fits: list[tuple[Any, Any]] = [
        (logistic(classes=("no", "yes")).fit(X, words), X),
        (logistic(covariance="diagonal", epsilon=math.inf).fit(X, y), X),
        (dpvb.BinomialRegression(**BUDGET, max_row_norm=1.0, max_trials=3).fit(X, y, y + 1), X),
        (dpvb.NegativeBinomialRegression(**BUDGET, max_row_norm=1.0, dispersion=1.5, max_count=3).fit(X, y), X),
        (dpvb.LogisticRegression(**BUDGET).fit(Table(people(40), SCHEMA)), people(20)),
    ]
    for model, data in fits:
        model.save(path, overwrite=True)
        assert_same(dpvb.load(path), model, data)


def test_a_file_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    X = rows(60)
    path = tmp_path / "m.dpvb"
    logistic().fit(X, labels(X)).save(path)
    for arrays, learned in (
        ({"weights__mean_d": np.zeros(2)}, {}),
        ({"weights__covariance": np.eye(3)}, {}),
        ({"table__naive_covariance": np.ones(4)}, {}),
        ({}, {"columns.constant": 1.5}),
        ({}, {"columns.width": 4}),
        ({}, {"columns.names": ["a"]}),
        ({}, {"columns.schema": "{}"}),
        ({}, {"classes": None}),
    ):
        forge(path, tmp_path / "other", arrays=arrays, learned=learned)
        with pytest.raises(ModelFileError, match="fit together"):
            dpvb.load(tmp_path / "other")


# --- faults -------------------------------------------------------------------------------------------------


def test_faulty_rows_are_silent_in_fit_and_loud_in_predict(noiseless: Any) -> None:
    X = rows()
    y = labels(X).astype(float)
    bad = np.vstack([X, [[np.nan, 0, 0], [np.inf, 0, 0], [0, 0, 0], [1, 1, 1]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        warnings.filterwarnings("ignore", "The scores of")
        model = logistic(**PLAIN).fit(bad, np.concatenate([y, [1, 0, np.nan, 2]]))
    assert model.coef_ == pytest.approx(noiseless.coef_, rel=1e-9)
    for value in (np.nan, np.inf, -np.inf):
        for form in (np.array([[value, 0, 0]]), sparse.csr_array([[value, 0, 0]])):
            with pytest.raises(DataFormatError, match="NaN or infinity"):
                noiseless.predict_proba(form)


def test_public_rows_are_measured_by_the_metrics(private: Any) -> None:
    X = rows(300, seed=8)
    y = labels(X, seed=9)
    p = private.predict_proba(X)[:, 1]
    facts = private.evaluate(X, y, public=True)
    assert facts["auc"] == metrics.auc(y, p)
    assert facts["log_likelihood"] == pytest.approx(metrics.log_likelihood(y, p))
    assert facts["calibration_error"] == pytest.approx(metrics.calibration_error(y, p))
    assert facts["accuracy"] == private.score(X, y, public=True) == np.mean(private.predict(X) == y)
    for bad in (np.where(y, 2, 0), np.where(y, np.nan, 0)):
        with pytest.raises(DataFormatError, match="public rows"):
            private.evaluate(X, bad, public=True)
    data = people(60)
    fitted = dpvb.LogisticRegression(**BUDGET).fit(Table(data, SCHEMA))
    by_hand = metrics.log_likelihood((data["rich"] == "yes").astype(int), fitted.predict_proba(data)[:, 1])
    for form in (data, Table(data, SCHEMA)):
        assert fitted.evaluate(form, public=True)["log_likelihood"] == pytest.approx(by_hand)


def test_deviances_are_those_of_the_predictions() -> None:
    X, y = counts(200)
    trials = y + 2
    binomial = dpvb.BinomialRegression(**PLAIN, max_row_norm=ROW_NORM, max_trials=200).fit(X, y, trials)
    deviance = metrics.binomial_deviance(y, binomial.predict_proba(X)[:, 1], trials)
    facts = binomial.evaluate(X, y, trials, public=True)
    assert facts["deviance"] == pytest.approx(deviance)
    base = metrics.binomial_deviance(y, np.full(200, y.sum() / trials.sum()), trials)
    assert facts["explained_deviance"] == pytest.approx(1 - deviance / base)
    negative = dpvb.NegativeBinomialRegression(**PLAIN, max_row_norm=ROW_NORM, dispersion=2.0, max_count=200).fit(X, y)
    deviance = metrics.negative_binomial_deviance(y, negative.predict(X), 2.0)
    assert negative.evaluate(X, y, public=True)["deviance"] == pytest.approx(deviance)


def test_scores_of_private_rows_are_refused() -> None:
    X, y = counts(60)
    fits = [
        (logistic().fit(X, y > 1), (X, y > 1)),
        (
            dpvb.BinomialRegression(**BUDGET, max_row_norm=1.0, max_trials=90).fit(X, y, np.full(60, 90)),
            (X, y, np.full(60, 90)),
        ),
        (dpvb.NegativeBinomialRegression(**BUDGET, max_row_norm=1.0, dispersion=1.0, max_count=50).fit(X, y), (X, y)),
    ]
    for model, data in fits:
        for public in (False, "yes", 1):
            with pytest.raises(PrivacyError, match="public=True"):
                model.score(*data, public=public)
        assert model.score(*data, public=True) <= 1.0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"max_row_norm": 0.0}, "max_row_norm"),
        ({"max_row_norm": math.nan}, "max_row_norm"),
        ({"relative_intercept": 1.0}, "relative_intercept"),
        ({"relative_intercept": 0.0}, "relative_intercept"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"covariance": "sparse"}, "covariance"),
        ({"covariance": "diagonal", "max_abs_value": 0.0}, "max_abs_value"),
        ({"covariance": "diagonal", "max_abs_value": [1.0, 2.0]}, "max_abs_value"),
        ({"covariance": "diagonal", "max_abs_value": "wide"}, "max_abs_value"),
        ({"alpha": 0.0}, "alpha"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_steps": 2.5}, "n_steps"),
        ({"sampling_prob": 2.0}, "sampling_prob"),
        ({"batch_size": 5}, "n_units"),
        ({"classes": (0, 1, 2)}, "classes"),
        ({"classes": (1, 1)}, "classes"),
        ({"classes": "no"}, "classes"),
        ({"neighboring_relation": "swap"}, "neighboring_relation"),
        ({"noise_multiplier": 1e-3}, "epsilon"),
    ],
)
def test_public_faults_are_typed_and_spend_nothing(changed: Any, named: str) -> None:
    X = rows(20)
    model = logistic(**changed)
    with pytest.raises(DpvbError, match=named):
        model.fit(X, labels(X))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_faults_of_form_are_typed() -> None:
    X = rows(20)
    y = labels(X)
    for bad_x, bad_y in ((X[0], y), (X, y[:5]), (X, None), (np.ma.masked_array(X), y), (X[:, :0], y), ("rows", y)):
        with pytest.raises(DataFormatError):
            logistic().fit(bad_x, bad_y)
    with pytest.raises(ParameterError, match="max_trials"):
        dpvb.BinomialRegression(**BUDGET, max_row_norm=1.0, max_trials=0).fit(X, y, y + 1)
    with pytest.raises(ParameterError, match="trials"):
        dpvb.BinomialRegression(**BUDGET, max_row_norm=1.0, max_trials=2).fit(X, y)
    for options in ({"dispersion": 0.0, "max_count": 3}, {"dispersion": 1.0, "max_count": 0}):
        with pytest.raises(ParameterError, match=r"dispersion|max_count"):
            dpvb.NegativeBinomialRegression(**BUDGET, max_row_norm=1.0, **options).fit(X, y)
    fitted = logistic().fit(X, y)
    with pytest.raises(DataFormatError, match="2 features"):
        fitted.predict(X[:, :2])
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError, match="level"):
            fitted.credible_interval(level)
    with pytest.raises(ParameterError, match="rng"):
        fitted.sample_posterior(1, rng="seed")


@pytest.mark.parametrize("width", [2e300, 10**12, -1, 4])
def test_a_file_that_claims_another_width_is_refused_before_anything_is_made_of_it(width: Any, tmp_path: Any) -> None:
    X = rows(40)
    logistic().fit(X, labels(X)).save(tmp_path / "model")
    forge(tmp_path / "model", learned={"columns.width": width})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(tmp_path / "model")


@pytest.mark.parametrize("make", [dpvb.LogisticRegression, partial(dpvb.LinearRegression, y_range=(0, 1))])
def test_a_full_covariance_of_too_many_columns_is_refused_before_the_charge(make: Any, tmp_path: Path) -> None:
    levels = tuple(f"c{n}" for n in range(2_001))
    schema = dpvb.data.Schema((dpvb.data.Categorical("c", levels, other=False, missing=False),))
    table, y = dpvb.data.Table({"c": np.array(levels[:9])}, schema), np.arange(9) % 2
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-4)
        with pytest.raises(ParameterError, match=r"at most 2,000 columns, .*CPU hours and 2 GB.*covariance='diagonal'"):
            make(epsilon=1.0, delta=1e-6).fit(table, y, run=dpvb.Run(ledger=ledger, dataset="people"))
        assert ledger.remaining("people").epsilon == 3.0
    if make is dpvb.LogisticRegression:
        assert make(epsilon=1.0, delta=1e-6, covariance="diagonal", n_steps=2).release_plan(table, y)
