"""scikit-learn's own estimator checks, and what a careful user expects of clone, Pipeline and GridSearchCV."""

import inspect
import warnings
from typing import ClassVar

import numpy as np
import pandas
import pytest
import sklearn
from planted import edit, kills
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import DataConversionWarning, NotFittedError, UnsetMetadataPassedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate, learning_curve, validation_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import check_estimator

import dpvb
from dpvb.errors import DpvbError, FewUnitsWarning, LostInNoiseWarning, ParameterError, PrivacyError
from dpvb.estimators.base import PrivacyWarning, PrivateEstimator

SCORE = "score of private rows is refused: a score is a leak, and a search would leak through its choice"
FAULTS = "a fault of a private value must not show: such a row contributes zero, and nothing is raised"
NOISE = "two private fits of the same data differ: the noise takes no seed"
#: Checks that ask for what a private estimator must not do.
EXCLUDED = {
    "check_fit_score_takes_y": SCORE,
    "check_pipeline_consistency": SCORE,
    "check_n_features_in_after_fitting": SCORE,
    "check_estimators_nan_inf": FAULTS,
    "check_estimators_empty_data_messages": "the number of rows is private: an empty corpus is fitted as pure noise",
    "check_fit_idempotent": NOISE,
    "check_complex_data": "one complex number makes a whole array complex: the others are read",
}
DECLARED = "classes are declared, not read off private labels: a row with another label counts as no row"
COUNTS = "responses are whole numbers: a row with any other response counts as no row"
EXCLUDED_OF_REGRESSION = {
    **{name: why for name, why in EXCLUDED.items() if name != "check_pipeline_consistency"},
    "check_dtype_object": FAULTS,
    "check_supervised_y_no_nan": FAULTS,
}
EXCLUDED_OF = {
    "LogisticRegression": {
        "check_classifier_data_not_an_array": NOISE,
        "check_classifiers_classes": DECLARED,
        "check_classifiers_regression_target": DECLARED,
        "check_classifier_not_supporting_multiclass": DECLARED,
        "check_decision_proba_consistency": "probabilities are averaged over the posterior, which shrinks uncertain "
        "rows towards 1/2; the decision function is its mean",
    },
    "NegativeBinomialRegression": {
        "check_regressors_train": COUNTS,
        "check_regressor_data_not_an_array": NOISE,
        "check_regressors_int": NOISE,
    },
}
EXCLUDED_OF["PoissonRegression"] = EXCLUDED_OF["NegativeBinomialRegression"]
EXCLUDED_OF["LinearRegression"] = {
    "check_regressors_train": "it scores the rows that it fits, which are private",
    "check_regressor_data_not_an_array": NOISE,
    "check_regressors_int": NOISE,
}
REGRESSIONS = [
    dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_row_norm=1.0),
    dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=4, low=-10.0, high=10.0),
    dpvb.PoissonRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_count=5, max_row_norm=1.0),
    dpvb.NegativeBinomialRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_count=5, max_row_norm=1.0),
    dpvb.LinearRegression(epsilon=1.0, delta=1e-5, n_steps=2, y_range=(-300.0, 300.0), max_row_norm=1.0),
]
OTHERS = [
    dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, max_row_norm=10.0, n_steps=50),
    dpvb.LinearRegression(epsilon=np.inf, delta=1e-5, y_range=(-300.0, 300.0), low=-10.0, high=10.0),
]


class Density:
    """Normal with one mean for all numbers of a row, of which there may be any number; shown in names of tests."""

    def __call__(self, theta, x, *y):
        return -0.5 * ((x - theta["mean"]) ** 2).sum()

    def __repr__(self):
        return "Density()"

    def __deepcopy__(self, memo):
        return self


PLAIN = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 2, "random_state": 0}
EXAMPLE = {**PLAIN, "public_vocabulary": True}
#: Estimators of a matrix without a response; regressions are above.
MATRICES = [
    dpvb.LDA(2, **{**EXAMPLE, "n_steps": 1}),
    dpvb.PCA(1, epsilon=1.0, delta=1e-5, max_row_norm=1.0),
    dpvb.FactorAnalysis(1, epsilon=1.0, delta=1e-5, max_row_norm=1.0),
    dpvb.GaussianMixture(2, epsilon=1.0, delta=1e-5, n_steps=2, low=-10.0, high=10.0),
    dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, n_steps=2, threshold=0.5),
    dpvb.DPVI(Density(), parameters={"mean": np.zeros(())}, epsilon=1.0, delta=1e-5, n_steps=2, clip_norm=1.0),
]
#: Kinds without scikit-learn's checks, which give plain matrices of any width and y.
WITHOUT = {
    "BinomialRegression": "a fit needs the number of trials of each row",
    "Mixture": "it takes tables",
    "NaiveBayes": "it takes tables, or documents of a declared vocabulary and declared labels",
    "MarkovChain": "it takes sequences",
    "HiddenMarkovModel": "it takes sequences",
    "GaussianHiddenMarkovModel": "it takes sequences",
    "LinearDynamicalSystem": "it takes sequences",
}


NEEDED = {
    "LDA": {"public_vocabulary": True},
    "LogisticRegression": {"low": 0.0, "high": 1.0},
    "BinomialRegression": {"max_trials": 4, "low": 0.0, "high": 1.0},
    "NegativeBinomialRegression": {"dispersion": 1.0, "max_count": 5, "low": 0.0, "high": 1.0},
    "PoissonRegression": {"max_count": 5, "low": 0.0, "high": 1.0},
    "LinearRegression": {"y_range": (0.0, 1.0), "low": 0.0, "high": 1.0},
    "GaussianMixture": {"low": 0.0, "high": 1.0},
    "FactorAnalysis": {"low": 0.0, "high": 1.0},
    "NaiveBayes": {"response": "x1"},
    "PCA": {"low": 0.0, "high": 1.0},
    "MarkovChain": {"symbols": 3},
    "HiddenMarkovModel": {"n_states": 2, "symbols": 3},
    "GaussianHiddenMarkovModel": {"n_states": 2, "columns": 1, "low": 0.0, "high": 1.0},
    "LinearDynamicalSystem": {"n_states": 1, "columns": 1, "low": 0.0, "high": 1.0},
    "DPVI": {"log_density": lambda theta, x: -((x - theta) ** 2).sum(), "parameters": 3},
}
KINDS = [
    kind
    for name, kind in PrivateEstimator._registered.items()
    if kind.__module__.startswith("dpvb") and name != "PrivateModel"
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_names_the_parameter_that_was_typed(kind):
    """Numbers out of any range for every parameter: what is refused is refused by the parameter's own name."""
    own = set(inspect.signature(kind).parameters) - {"ledger", "dataset", "checkpoint", "resume", "vocabulary"}
    data, refused = {"X": np.eye(3)}, {}
    if kind._reads in ("table", "labelled"):
        columns = dpvb.data.Numeric("x0", 0, 1), dpvb.data.Binary("x1")
        data = {"X": dpvb.Table({"x0": np.ones(3), "x1": np.ones(3)}, dpvb.Schema(columns))}
    data |= {"y": np.ones(3)} if kind._reads == "rows" else {}
    data |= {"trials": np.ones(3)} if "max_trials" in own else {}
    for name in own:
        for odd in (-1.0, 1e300, np.nan):
            estimator = kind(**PLAIN | NEEDED.get(kind.__name__, {}) | {name: odd})
            try:
                _ = estimator._task(**data).plan
            except DpvbError as error:
                refused[name, odd] = str(error)
    refused.pop(("low", 1e300), None)  # Of a range with its ends in the wrong order either end may be named.
    assert {place: said for place, said in refused.items() if place[0] not in said} == {}
    assert len(refused) > len(own) / 2


def excluded_of_matrices(estimator):
    """Checks that an estimator of a matrix must not pass."""
    seen_by_rows = {} if type(estimator) is dpvb.LDA else {"check_dtype_object": FAULTS}
    return EXCLUDED | seen_by_rows


def kind_of(estimator):
    return type(estimator).__name__


def failed(estimator, expected):
    """scikit-learn's checks that an estimator fails though it should not, with what each says."""
    results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert len(results) > 30
    return {one["check_name"]: repr(one["exception"]) for one in results if one["status"] == "failed"}


@pytest.mark.parametrize("estimator", MATRICES, ids=kind_of)
@pytest.mark.filterwarnings("ignore::dpvb.estimators.base.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::dpvb.errors.FewUnitsWarning")
def test_scikit_learn_checks(estimator):
    assert failed(estimator, excluded_of_matrices(estimator)) == {}


def test_every_kind_passes_the_checks_of_scikit_learn_or_the_reason_is_listed():
    checked = {type(one).__name__ for one in (*MATRICES, *REGRESSIONS, *OTHERS)}
    assert checked.isdisjoint(WITHOUT)
    assert checked | {*WITHOUT} == {kind.__name__ for kind in KINDS}


def excluded(estimator):
    """Checks that a regression must not pass; where there is noise, it decides what ten rows teach."""
    noisy = {
        "check_classifiers_one_label": "ten rows of one label leave the prediction to the noise",
        "check_supervised_y_2d": NOISE,
    }
    of_this = EXCLUDED_OF_REGRESSION | EXCLUDED_OF[type(estimator).__name__]
    return of_this | (noisy if np.isfinite(estimator.epsilon) else {})


# Two steps are too few to settle, which the checks do not ask about.
@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")
@pytest.mark.parametrize(
    "estimator", [*REGRESSIONS, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=kind_of
)
def test_scikit_learn_checks_of_regression(estimator):
    assert failed(estimator, excluded(estimator)) == {}


def corpus() -> np.ndarray:
    return np.random.default_rng(0).poisson(0.3, (60, 12))


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda e: type(e).__name__)
def test_regressions_in_clone_pipeline_and_search(regression):
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    y = (X[:, 0] > 0).astype(int)
    pipeline = make_pipeline(MaxAbsScaler(), regression).fit(X, y)
    copy = clone(pipeline[-1])
    assert copy.get_params() == regression.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert pipeline.predict(X).shape == (40,)


SEARCHES = {
    "cross_val_score": cross_val_score,
    "cross_validate": cross_validate,
    "learning_curve": learning_curve,
    "validation_curve": lambda model, X, y: validation_curve(
        model, X, y, param_name="n_steps", param_range=[2, 3], cv=2
    ),
    "GridSearchCV": lambda model, X, y: GridSearchCV(model, {"n_steps": [2, 3]}, cv=2).fit(X, y),
}


@pytest.mark.guarantees("scores")
@kills("choices", "a search that pays for a fit before its score is refused")
@edit("estimators/base.py", 'return "privacy_" in vars(estimator)', "return True")
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", [dpvb.LogisticRegression, dpvb.LDA, dpvb.SigmoidBeliefNetwork, dpvb.DPVI])
def test_what_scores_fits_of_private_rows_is_refused_before_the_first_charge(ledger, kind, search):
    model = kind(epsilon=0.5, delta=1e-5, n_steps=2)
    X = np.random.default_rng(1).integers(0, 2, (40, 3))
    with pytest.raises(TypeError, match="score"), dpvb.Run(ledger=str(ledger), dataset="a"):
        SEARCHES[search](model, X, X[:, 0])
    assert dpvb.Ledger(ledger).remaining("a").num_charges == 0


def test_in_a_pipeline_too_nothing_is_charged_for_a_score(ledger):
    model = dpvb.LogisticRegression(epsilon=0.5, delta=1e-5, n_steps=2)
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    with pytest.raises(TypeError, match="score"), dpvb.Run(ledger=str(ledger), dataset="a"):
        cross_val_score(make_pipeline(MaxAbsScaler(), model), X, X[:, 0] > 0)
    assert dpvb.Ledger(ledger).remaining("a").num_charges == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_unfitted_estimator_can_be_inspected_and_its_methods_raise_not_fitted_error(kind):
    """Every public method and every property that a fit sets; those that belong to a fit itself are left out."""
    model = kind(**PLAIN | NEEDED.get(kind.__name__, {}))
    before_fit = {"fit", "fit_transform", "fit_predict", "dry_run", "release_plan"}  # a fit, or its plan
    before_fit |= {*dir(BaseEstimator)} | {*dir(TransformerMixin)}
    assert {"fit", "save"} <= {name for name, _ in inspect.getmembers(model)} & {*dir(model)}
    assert not hasattr(model, "score")
    assert "score" not in {name for name, _ in inspect.getmembers(model)}
    with pytest.raises(PrivacyError, match=r"dpvb\.private_select"):
        model.score  # noqa: B018 - the access is refused.
    for name in {*dir(kind)} - before_fit:
        asked = inspect.getattr_static(kind, name)
        if name.startswith("_") or name.endswith("_request") or not (callable(asked) or name.endswith("_")):
            continue
        with pytest.raises(NotFittedError):
            called_with_anything(getattr(model, name))
    assert not hasattr(model, "nothing")
    assert not hasattr(model, "nothing_")


def called_with_anything(method):
    parameters = inspect.signature(method).parameters
    needed = (one for one in parameters.values() if one.default is one.empty and one.kind is not one.VAR_KEYWORD)
    given = {one.name: "a file" if one.name == "path" else np.ones((3, 3)) for one in needed}
    said = {name: True for name in ("public", "synthetic") if name in parameters}
    result = method(**given, **said)
    list(result if inspect.isgenerator(result) else ())


PUBLIC = (
    dpvb.LogisticRegression(**PLAIN, max_row_norm=1.0),
    dpvb.PCA(1, **PLAIN, max_row_norm=1.0),
    dpvb.LDA(2, **EXAMPLE),
)


@pytest.mark.parametrize("model", PUBLIC, ids=lambda model: type(model).__name__)
def test_a_pipeline_scores_public_rows_by_metadata_routing(model):
    X = np.random.default_rng(1).integers(0, 3, (40, 3))
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(model).set_score_request(public=True)
        pipeline = make_pipeline(MaxAbsScaler(), asking).fit(X, X[:, 0] > 0)
        scaled = pipeline[0].transform(X)
        assert pipeline.score(X, X[:, 0] > 0, public=True) == asking.score(scaled, X[:, 0] > 0, public=True)
        with pytest.raises(PrivacyError, match="public=True"):
            pipeline.score(X, X[:, 0] > 0)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            pipeline.score(X, X[:, 0] > 0, sample_weight=np.ones(40))


class Heard(dpvb.LogisticRegression):
    """Keeps what is asked of the class's instances, in order, but for names that begin with an underscore."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(self, name):
        if not name.startswith("_") and name in {"fit", "score", "predict", "predict_proba", "decision_function"}:
            Heard.asked.append(name)
        return super().__getattribute__(name)


def test_a_scorer_of_ones_own_asks_what_a_person_asks_who_predicts_so_that_its_fits_are_charged(ledger):
    """Two settings in two folds, and the fit of the better one: five charges, as docs/how-to/settings.md says."""
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    y = (X[:, 0] > 0).astype(int)
    model = Heard(epsilon=0.1, delta=1e-7, low=-1, high=1, n_steps=2)
    Heard.asked.clear()
    with dpvb.Run(ledger=str(ledger), dataset="a"):
        cross_val_score(model, X, y, cv=2, scoring="roc_auc", error_score="raise")
        searched = {*Heard.asked}
        Heard.asked.clear()
        for half in (slice(0, 20), slice(20, 40)):
            copy = clone(model).fit(X[half], y[half])
            assert copy.decision_function(X).shape == (40,)
            assert copy.predict_proba(X).shape == (40, 2)
        assert searched <= {*Heard.asked}
        assert dpvb.Ledger(ledger).remaining("a").num_charges == 4
        GridSearchCV(model, {"n_steps": [2, 3]}, cv=2, scoring="roc_auc", error_score="raise").fit(X, y)
        assert dpvb.Ledger(ledger).remaining("a").num_charges == 9


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda e: type(e).__name__)
def test_a_fitted_model_scores_rows_that_are_public(regression):
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    fitted = clone(regression).fit(X, (X[:, 0] > 0).astype(int))
    assert fitted.score(X, (X[:, 0] > 0).astype(int), public=True) <= 1.0
    with pytest.raises(PrivacyError, match="public=True"):
        fitted.score(X, X[:, 0] > 0)
    with pytest.raises(PrivacyError, match="of a fitted model"):
        clone(fitted).score(X, X[:, 0] > 0, public=True)


def test_a_column_vector_of_responses_is_read_with_the_warning_of_scikit_learn():
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    y = X[:, 0] > 0
    model = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=2, low=-1, high=1)
    expected = clone(model).fit(X, y).coef_
    for column in (y[:, None], y[:, None].astype(object), y[:, None].astype(np.int64)):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            fitted = clone(model).fit(X, column)
        np.testing.assert_array_equal(fitted.coef_, expected)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert fitted.score(X, y[:, None], public=True) == fitted.score(X, y, public=True)


def test_column_names_of_x_are_feature_names_in():
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=2, low=-1, high=1).fit(frame, X[:, 0] > 0)
    assert model.feature_names_in_.dtype == object
    assert [*model.feature_names_in_] == ["a", "b", "c"]
    assert not hasattr(model.fit(X, X[:, 0] > 0), "feature_names_in_")
    assert not hasattr(clone(model), "feature_names_in_")
    factors = dpvb.PCA(1, epsilon=np.inf, delta=1e-5, low=-1, high=1).fit(frame)
    assert [*factors.feature_names_in_] == ["a", "b", "c"]


def test_ranges_may_be_given_by_column_name(ledger, tmp_path):
    X = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    frame = pandas.DataFrame(X, columns=["age", "weight"])
    given, run = {"epsilon": 0.5, "delta": 1e-5}, dpvb.Run(ledger=str(ledger), dataset="a")
    by_name = {"low": {"weight": -2.0, "age": -1.0}, "high": 1.0}
    for model in (dpvb.LogisticRegression(**given, **by_name), dpvb.PCA(1, **given, **by_name)):
        fitted = model.fit(frame, X[:, 0] > 0, run=run)
        assert [(column.name, column.low) for column in fitted.schema_.columns] == [("age", -1.0), ("weight", -2.0)]
        fitted.save(tmp_path / "x.dpvb", overwrite=True)
        assert dpvb.load(tmp_path / "x.dpvb").schema_ == fitted.schema_
        for low, named in (({"age": 0.0}, "weight"), ({"age": 0.0, "weight": 0.0, "size": 0.0}, "size")):
            with pytest.raises(ParameterError, match=f"low.*{named}"):
                clone(model).set_params(low=low).fit(frame, X[:, 0] > 0, run=run)
        with pytest.raises(ParameterError, match=r"low.*no column names"):
            clone(model).fit(X, X[:, 0] > 0, run=run)
    assert dpvb.Ledger(ledger).remaining("a").num_charges == 2


def test_clone_copies_parameters_and_nothing_fitted():
    fitted = dpvb.LDA(3, **EXAMPLE).fit(corpus())
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "privacy_")
    assert not hasattr(copy, "components_")


def test_random_state_seeds_the_start_alone():
    first, second = (dpvb.LDA(3, **EXAMPLE).fit(corpus()).components_ for _ in range(2))
    assert not np.array_equal(first, second)
    noiseless = [dpvb.LDA(3, **{**EXAMPLE, "epsilon": np.inf}).fit(corpus()).components_ for _ in range(2)]
    np.testing.assert_array_equal(*noiseless)


def test_pipeline_with_a_fixed_vocabulary_fits_texts():
    words = ["cat", "dog", "rain", "sun"]
    texts = ["the cat and the dog", "rain, rain and sun", "", "dog sun"]
    pipeline = make_pipeline(CountVectorizer(vocabulary=words), dpvb.LDA(2, **EXAMPLE)).fit(texts)
    direct = dpvb.LDA(2, vocabulary=words, **EXAMPLE).fit(texts)
    assert pipeline[-1].n_features_in_ == direct.n_features_in_ == 4
    assert direct.transform(texts).shape == pipeline.transform(texts).shape == (4, 2)
    assert list(pipeline[-1].get_feature_names_out()) == ["lda0", "lda1"]
    assert {word for topic in direct.topics(4) for word in topic} == set(words)


@pytest.mark.guarantees("scores")
@kills("choices", "private rows scored because nobody said that they were")
@edit("estimators/base.py", "if public is not True:", "if public is None:")
def test_score_is_refused_unless_the_caller_says_public():
    fitted = dpvb.LDA(2, **EXAMPLE).fit(corpus())
    for call in (fitted.score, fitted.perplexity):
        with pytest.raises(PrivacyError, match="public=True"):
            call(corpus())
        with pytest.raises(PrivacyError, match="public=True"):
            call(corpus(), public="yes")
    value = fitted.perplexity(corpus(), public=True)
    assert np.exp(-fitted.score(corpus(), public=True) / corpus().sum()) == pytest.approx(value)


def test_fit_transform_says_once_that_its_rows_are_private(monkeypatch):
    monkeypatch.setattr(dpvb.LDA, "_said", set())
    with pytest.warns(PrivacyWarning, match="as private as the data"):
        dpvb.LDA(2, **EXAMPLE).fit_transform(corpus())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        for noisy in (FewUnitsWarning, LostInNoiseWarning):
            warnings.simplefilter("ignore", noisy)
        dpvb.LDA(2, **EXAMPLE).fit_transform(corpus())


def test_public_faults_are_typed_and_spend_nothing():
    X = corpus()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", FewUnitsWarning)
        for changed, error in (
            ({"epsilon": 0.0}, "epsilon"),
            ({"epsilon": float("nan")}, "epsilon"),
            ({"epsilon": -1}, "epsilon"),
            ({"delta": 0.0}, "delta"),
            ({"delta": 1.0}, "delta"),
            ({"n_components": 0}, "n_components"),
            ({"n_components": 2.5}, "n_components"),
            ({"n_steps": 0}, "n_steps"),
            ({"clip_scale": 0.0}, "clip"),
            ({"clip_scale": 1.5}, "clip"),
            ({"sampling_prob": 1.5}, "sampling_prob"),
            ({"sampling_prob": 0.0}, "sampling_prob"),
            ({"batch_size": 5}, "n_units"),
            ({"batch_size": 5, "n_units": 4}, "batch_size"),
            ({"n_units": 2**60}, "n_units"),
            ({"neighboring_relation": "swap"}, "neighboring_relation"),
            ({"accountant": "guess"}, "method|accountant"),
            ({"noise_multiplier": 1e-3}, "epsilon"),
            ({"random_state": "seed"}, "random_state"),
            ({"vocabulary": ["a", "a", *"bcdefghijk"]}, "vocabulary|Vocabulary"),
            ({"vocabulary": ["a", "b"]}, "vocabulary|Vocabulary"),
        ):
            estimator = dpvb.LDA(**{"n_components": 2, **EXAMPLE, **changed})
            with pytest.raises(dpvb.errors.DpvbError, match=error):
                estimator.fit(X)
            assert not [name for name in vars(estimator) if name.endswith("_")], changed
