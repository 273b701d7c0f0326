"""Naive Bayes: bounds of a row, scikit-learn's without noise, closed forms, what stays the same, and odd data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge
from planted import edit, kills
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import nbinom, t
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

import dpvb
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.data import BagOfWords, Binary, Categorical, Date, Numeric, Schema, Table, Target
from dpvb.data.documents.bag_of_words import labelled
from dpvb.data.documents.count_rows import taken
from dpvb.errors import DataFormatError, FewUnitsWarning, ModelFileError, ParameterError, PrivacyError
from dpvb.models.mixtures.components import MixedColumns
from dpvb.models.mixtures.naive_bayes import (
    NaiveBayesModel,
    bin_codes,
    bin_sizes,
    bins_together,
    log_count,
    log_number,
    log_words,
    merged_bins,
    number_posterior,
    numbers_in_bins,
    rate_posterior,
)
from dpvb.rows import MixedRows

pytestmark = pytest.mark.filterwarnings("ignore::dpvb.errors.DpvbWarning")

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6}
NOISY: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SCHEMA = Schema(
    (
        Numeric("age", 0, 100),
        Numeric("income", 0, 3e5, transform="log1p"),
        Numeric("visits", 0, 50),
        Categorical("job", ("a", "b", "c")),
        Date("since", low="2000-01-01", high="2020-01-01"),
        Categorical("kind", ("x", "y", "z")),
        Binary("smokes"),
    ),
)
OPTIONS: dict[str, Any] = {"response": "kind", "count_columns": "visits", "missing_columns": ["income"], "bins": 10}
VOCABULARY = ("apple", "bread", "cheese", "dates", "eggs", "figs")


def people(n: int = 600, seed: int = 0) -> dict[str, Any]:
    """Three classes in columns of all kinds."""
    rng = np.random.default_rng(seed)
    k = rng.integers(3, size=n)
    return {
        "age": 25 + 20 * k + rng.normal(0, 6, n),
        "income": np.where(rng.random(n) < 0.1 + 0.2 * k, np.nan, 2e4 * (1 + k) * np.exp(rng.normal(0, 0.3, n))),
        "visits": rng.poisson(1 + 3 * k),
        "job": np.array(["a", "b", "c", "?"], dtype=object)[np.where(rng.random(n) < 0.7, k, 3)],
        "since": np.datetime64("2000-01-01") + rng.integers(0, 7000, n),
        "kind": np.array(["x", "y", "z"], dtype=object)[k],
        "smokes": (rng.random(n) < 0.2 + 0.3 * k).astype(int),
    }


def documents(n: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts of six words in documents of two classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    chance = np.array([[0.7, 0.5, 0.3, 0.1, 0.2, 0.4], [0.1, 0.5, 0.6, 0.4, 0.2, 0.3]])
    return (rng.random((n, 6)) < chance[y]) * rng.integers(1, 4, (n, 6)).astype(float), y


# --- the bound of a row -------------------------------------------------------------------------------------

MODELS = {
    "bins": NaiveBayesModel(3, MixedColumns(numbers=2, gaps=(1,), max_counts=(9.0,), sizes=(3, 2)), 4),
    "gaussian": NaiveBayesModel(3, MixedColumns(numbers=2, gaps=(1,), max_counts=(9.0,), sizes=(3, 2)), 0),
    "words": NaiveBayesModel(3, MixedColumns(), num_words=30, clip_norm=2.0),
}
#: Largest norms: three columns of categories beside the label, or two; x and x² of two numbers, and a count.
LARGEST = {
    "bins": {"count": 1.0, "categories": math.sqrt(3), "moments": 1.0},
    "gaussian": {"count": 1.0, "categories": math.sqrt(2), "moments": math.sqrt(5)},
    "words": {"count": 1.0, "words": 2.0},
}


def batch_of(kind: str, rng: np.random.Generator, n: int = 300) -> Any:
    """Rows of the model, those at the ends of all ranges and those of all words among them."""
    if kind == "words":
        counts = (rng.random((n, 30)) < rng.random((n, 1))) * 10.0 ** rng.uniform(-3, 3, (n, 30))
        source = labelled(BagOfWords(counts), rng.integers(3, size=n), (0, 1, 2))
        return next(iter(source.chunks())).rows
    x_nd = np.where(rng.random((n, 2)) < 0.3, rng.choice([-1.0, 1.0], (n, 2)), rng.uniform(-1, 1, (n, 2)))
    lacks_n = rng.random(n) < 0.2
    x_nd[lacks_n, 1] = np.nan
    code_nj = np.column_stack([rng.integers(size, size=n) for size in (3, 3)] + [lacks_n])
    count_np = rng.integers(0, 10, (n, 1)).astype(np.float64)
    return MixedRows(x_nd, count_np, code_nj, np.ones(n), np.zeros(n, dtype=np.bool_))


@pytest.mark.guarantees("naive Bayes rows")
@kills("norms", "a bound of categories that forgets the bins of numbers")
@edit(
    "models/mixtures/naive_bayes.py", "bound = math.sqrt(len(self.sizes))", "bound = math.sqrt(len(self.columns.sizes))"
)
@pytest.mark.parametrize("kind", MODELS)
def test_no_row_of_a_known_class_passes_a_bound_and_some_reach_it(kind: str) -> None:
    model, rng = MODELS[kind], np.random.default_rng(1)
    found = model.e_step(model.init(rng), batch_of(kind, rng), model.blocks)
    assert {name: block.bound for name, block in model.blocks.items()} == pytest.approx(LARGEST[kind])
    for name, block in model.blocks.items():
        norm_n = np.minimum(found[name].of_block(block, 300).norms(), block.bound if name == "words" else math.inf)
        assert norm_n.max() == pytest.approx(block.bound, rel=1e-6)
        assert (norm_n <= block.bound * (1 + 1e-9)).all()


@pytest.mark.guarantees("naive Bayes rows")
@pytest.mark.parametrize("kind", MODELS)
def test_labels_and_columns_share_one_unit_of_sensitivity(kind: str) -> None:
    """One release; squares of its weights, the counts of units included, add up to 1; labels have a part of .04."""
    [release] = phased(MODELS[kind].blocks, FullBatch(), [], shares=MODELS[kind].schedule.budget)
    assert math.fsum(weight**2 for weight in release.weights.values()) == pytest.approx(1.0, abs=1e-12)
    assert release.weights["count"] ** 2 == pytest.approx(0.04 * 0.99)


@pytest.mark.guarantees("naive Bayes rows")
@kills("NaN", "a document with an unknown label that counts in a class")
@edit("data/documents/bag_of_words.py", "other=-1, missing=-1", "other=0, missing=-1")
def test_a_document_without_a_declared_label_is_no_row() -> None:
    """Nor is one with a label that is no label, and no other row changes."""
    counts, y = documents(30)
    odd = np.array([*y[:15], "nobody", None, math.nan, *y[15:]], dtype=object)
    with_odd = np.insert(counts, 15, np.ones((3, 6)), axis=0)
    given: dict[str, Any] = {"vocabulary": VOCABULARY, "classes": (0, 1), **EXACT}
    one, two = dpvb.NaiveBayes(**given).fit(counts, y), dpvb.NaiveBayes(**given).fit(with_odd, odd)
    np.testing.assert_array_equal(one.word_probabilities_, two.word_probabilities_)
    np.testing.assert_array_equal(one.class_prior_, two.class_prior_)


@pytest.mark.guarantees("naive Bayes rows")
@kills("NaN", "a faulty row that counts in its class")
@edit("models/mixtures/naive_bayes.py", "(self.n_classes,)) * batch.sound_n[:, None]", "(self.n_classes,))")
@edit("models/mixtures/naive_bayes.py", "np.repeat(batch.sound_n, width)", "np.ones(n * width)")
def test_a_row_of_no_class_or_with_a_fault_adds_nothing() -> None:
    cells = people(60)
    more = {name: np.concatenate([values, values[:3]]) for name, values in cells.items()}
    more["kind"][60:62], more["age"][62] = ["nobody", None], math.nan
    one, two = (dpvb.NaiveBayes(**OPTIONS, **EXACT).fit(Table(given, SCHEMA)) for given in (cells, more))
    for name, probabilities in one.probabilities_.items():
        np.testing.assert_array_equal(probabilities, two.probabilities_[name])


# --- without noise: scikit-learn's, and closed forms --------------------------------------------------------


def both(model: dpvb.NaiveBayes, *data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the fitted rows: of a fit without noise, and of sums that no grid has rounded."""
    task = model._task(*data)
    [chunk] = task.source.chunks()
    learner, rows = task.model, chunk.rows
    found: Any = learner.e_step(learner.init(np.random.default_rng(0)), rows, learner.blocks)
    sums = {"count": found["count"].values.sum(axis=0)}
    if "moments" in found:
        sums["moments"] = found["moments"].left.T @ found["moments"].right
    for name in {"categories", "words"} & found.keys():
        sums[name] = np.zeros(learner.blocks[name].shape)
        np.add.at(sums[name], found[name].indices, found[name].values)
    q = learner.read(sums, {})
    log_nk = learner.log_joint(q, rows)
    return model.fit(*data).predict_log_proba(data[0]), log_nk - logsumexp(log_nk, axis=1, keepdims=True)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_tables_of_categories_are_those_of_scikit_learn(alpha: float) -> None:
    rng = np.random.default_rng(2)
    y = rng.integers(3, size=400)
    codes = (rng.integers(4, size=(400, 5)) + y[:, None] * rng.integers(2, size=(400, 5))) % 4
    columns = [Categorical(f"q{j}", range(4), other=False, missing=False) for j in range(5)]
    table = Table({f"q{j}": codes[:, j] for j in range(5)} | {"y": y}, Schema([*columns, Categorical("y", range(3))]))
    found, exact = both(dpvb.NaiveBayes(response="y", alpha=alpha, **EXACT), table)
    shares = (np.bincount(y) + alpha) / (400 + 3 * alpha)
    other = CategoricalNB(alpha=alpha, min_categories=4, class_prior=shares).fit(codes, y)
    np.testing.assert_allclose(exact, other.predict_log_proba(codes), atol=1e-9)
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_gaussian_numbers_at_their_estimates_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=500)
    x_nd = rng.normal(y[:, None] * [1.0, -0.5, 0.2], [0.5, 1.0, 0.8], (500, 3))
    schema = Schema([*(Numeric(f"x{d}", -8, 8) for d in range(3))], target=Target("y"))
    table = Table({f"x{d}": x_nd[:, d] for d in range(3)} | {"y": y}, schema)
    model = dpvb.NaiveBayes(numbers="gaussian", estimate="map", alpha=0, **EXACT)
    found, exact = both(model, table)
    other = GaussianNB(var_smoothing=0).fit(x_nd, y)
    np.testing.assert_allclose(exact, other.predict_log_proba(x_nd), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found, exact, atol=0.01)
    np.testing.assert_allclose(model.means_, other.theta_, atol=1e-3)
    np.testing.assert_allclose(model.variances_, other.var_, rtol=1e-3)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_words_are_those_of_scikit_learn_where_no_document_is_cut(alpha: float) -> None:
    counts, y = documents()
    given: dict[str, Any] = {"vocabulary": VOCABULARY, "classes": (0, 1), "clip_norm": 3.0, "lengths": True}
    found, exact = both(dpvb.NaiveBayes(alpha=alpha, **given, **EXACT), sparse.csr_array(counts), y)
    shares = (np.bincount(y) + alpha) / (900 + 2 * alpha)
    other = BernoulliNB(alpha=alpha, class_prior=shares).fit(counts, y)
    np.testing.assert_allclose(exact, other.predict_log_proba(counts), atol=1e-9)
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_predictions_average_over_the_posteriors() -> None:
    """Student's t of a normal-gamma posterior, and a negative binomial of a gamma one, by the books' formulas."""
    rng = np.random.default_rng(4)
    x_n, c_n, prior = rng.normal(0.2, 0.1, 12), rng.poisson(3.0, 12), 1.0
    found = number_posterior(
        np.array([[x_n.sum()]]), np.array([[np.square(x_n).sum()]]), np.array([[12.0]]), 0.0, prior
    )
    middle = x_n.sum() / 13
    wide = (np.square(x_n).sum() + 0.25) / 13 - middle**2
    # κ₀ = 1 and ν₀ = 2 about all rows: μ_n, κ_n, ν_n and ν_n σ_n² (Gelman et al., section 3.3).
    kappa, freedom = 12 + prior, 12 + 2 * prior
    mean = (prior * middle + x_n.sum()) / kappa
    square = 2 * prior * wide + np.square(x_n - x_n.mean()).sum() + 12 * prior / kappa * (x_n.mean() - middle) ** 2
    scale = math.sqrt(square / freedom * (1 + 1 / kappa))
    at = np.array([[-0.3], [0.2], [0.9]])
    exact = t.logpdf(at[:, 0], freedom, mean, scale)
    np.testing.assert_allclose(log_number(at, found, predictive=True)[:, 0], exact, rtol=1e-9)
    rates = rate_posterior(np.array([[float(c_n.sum())]]), np.array([12.0]), np.zeros(1), np.array([20.0]), prior)
    start = (c_n.sum() + math.sqrt(20)) / 13
    shape, rate = c_n.sum() + prior * start, 12 + prior
    counts = np.array([[0.0], [3.0], [11.0]])
    exact = nbinom.logpmf(counts[:, 0], shape, rate / (rate + 1))
    np.testing.assert_allclose(log_count(counts, rates, predictive=True)[:, 0], exact, rtol=1e-9)


def test_noise_draws_a_class_to_all_rows_and_widens_it() -> None:
    """From no noise to much: the mean, the variance and the rate go to those of all rows, the errors grow."""
    first_kd, number_kd = np.array([[40.0], [-20.0]]), np.array([[100.0], [100.0]])
    second_kd = np.array([[20.0], [10.0]])
    quiet, loud = (number_posterior(first_kd, second_kd, number_kd, std, 1.0) for std in (0.0, 45.0))
    assert loud.error_kd.min() > 5 * quiet.error_kd.max()
    assert abs(loud.mean_kd - 0.1).max() < abs(quiet.mean_kd - 0.1).max() / 2
    np.testing.assert_array_equal(quiet.noise_kd, 0)
    few = rate_posterior(np.array([[300.0], [30.0]]), np.full(2, 100.0), np.array([50.0]), np.array([9.0]), 1.0)
    assert 0.3 < few.mean_kp[1, 0] < few.mean_kp[0, 0] < 3.0


# --- what stays the same ------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", ["bins", "gaussian"])
def test_order_of_rows_columns_and_classes_changes_nothing_but_order(numbers: str) -> None:
    cells, options = people(300), {**OPTIONS, "numbers": numbers, **EXACT}
    order = np.random.default_rng(5).permutation(300)
    plain = dpvb.NaiveBayes(**options).fit(Table(cells, SCHEMA))
    turned = replace(
        SCHEMA,
        columns=tuple(replace(c, categories=("z", "x", "y")) if c.name == "kind" else c for c in SCHEMA.columns[::-1]),  # type: ignore[type-var, union-attr]
    )
    other = dpvb.NaiveBayes(**options).fit(Table({name: values[order] for name, values in cells.items()}, turned))
    assert other.classes_.tolist() == ["z", "x", "y"]
    np.testing.assert_allclose(
        other.predict_log_proba(cells)[:, [1, 2, 0]], plain.predict_log_proba(cells), rtol=1e-9, atol=1e-9
    )


def test_units_of_a_number_change_nothing_but_units() -> None:
    rng = np.random.default_rng(6)
    y, x = rng.integers(2, size=300), rng.normal(size=300)
    y = np.where(rng.random(300) < 0.7, x > 0, y)
    for numbers in ("bins", "gaussian"):
        found = []
        for scale, shift in ((1.0, 0.0), (64.0, 512.0)):
            schema = Schema((Numeric("x", -4 * scale + shift, 4 * scale + shift),), target=Target("y"))
            model = dpvb.NaiveBayes(numbers=numbers, **EXACT).fit(Table({"x": scale * x + shift, "y": y}, schema))
            found.append(model.predict_log_proba({"x": scale * x + shift}))
        np.testing.assert_allclose(*found, atol=1e-9)


def test_a_number_is_the_category_of_its_bin() -> None:
    """And a missing one is a category of its own, where the column may have gaps."""
    x_nd = np.array([[-1.0, -1.0], [-0.5, np.nan], [0.999, 1.0], [1.0, 0.0]])
    assert bin_sizes(2, (1,), 4) == (4, 5)
    np.testing.assert_array_equal(bin_codes(x_nd, (1,), 4), [[0, 0], [1, 4], [3, 3], [3, 2]])
    drawn = numbers_in_bins(np.array([[0, 4], [3, 3]]), 4, np.random.default_rng(0))
    assert -1 <= drawn[0, 0] < -0.5 < 0.5 <= drawn[1, 0] <= 1
    assert np.isnan(drawn[0, 1])
    cells = people(400)
    lacks = np.isnan(cells["income"])
    model = dpvb.NaiveBayes(**OPTIONS, alpha=0, **EXACT).fit(Table(cells, SCHEMA))
    for k, label in enumerate(("x", "y", "z")):
        assert model.probabilities_["income"][k, -1] == pytest.approx(lacks[cells["kind"] == label].mean(), abs=1e-6)


def test_bins_that_noise_would_drown_are_brought_together() -> None:
    """As many as lift a class above twice the noise of a bin, but four are left; sums stay what they were."""
    assert [bins_together(1000.0, std, 64) for std in (0.0, 7.0, 8.0, 20.0, 1e9)] == [1, 1, 2, 8, 16]
    assert bins_together(0.0, 1.0, 7) == 1
    cell_kv = np.arange(20.0).reshape(2, 10)
    made_kv = merged_bins(cell_kv, 1, 8, 4)
    np.testing.assert_array_equal(made_kv[0], [0, 2.5, 2.5, 2.5, 2.5, 6.5, 6.5, 6.5, 6.5, 9])
    np.testing.assert_array_equal(made_kv.sum(axis=1), cell_kv.sum(axis=1))
    cells, schema = people(300), Schema((Numeric("age", 0, 100), Categorical("kind", ("x", "y", "z"))))
    model = dpvb.NaiveBayes(response="kind", **NOISY).fit(Table(cells, schema))
    # 100 rows of a class and noise of 4: four bins are left, unless noise is off by 25 of its deviations.
    assert len(np.unique(model.probabilities_["age"][0].round(12))) <= 4


def test_a_binary_target_and_a_column_of_its_values_are_one_thing() -> None:
    cells = people(300)
    own = tuple(column for column in SCHEMA.columns if column.name not in ("smokes", "kind"))
    as_target = Schema(own, target=Target("smokes"))
    as_column = Schema((*own, Binary("smokes")))
    given: dict[str, Any] = {"count_columns": "visits", "missing_columns": "income", **EXACT}
    one = dpvb.NaiveBayes(**given).fit(Table(cells, as_target))
    two = dpvb.NaiveBayes(response="smokes", **given).fit(Table(cells, as_column))
    np.testing.assert_array_equal(one.predict_proba(cells), two.predict_proba(cells))


def test_a_target_may_stand_beside_the_column_of_classes() -> None:
    schema = Schema((Numeric("x", 0, 1), Categorical("k", ("a", "b"))), target=Target("t", classes=("no", "yes")))
    cells = {"x": [0.1, 0.9] * 10, "k": ["a", "b"] * 10, "t": ["no", "yes"] * 10}
    model = dpvb.NaiveBayes(response="k", **EXACT).fit(Table(cells, schema))
    assert model.predict({"x": [0.1, 0.9], "t": ["no", "yes"]}).tolist() == ["a", "b"]


def test_texts_and_their_counts_are_one_thing() -> None:
    counts, y = documents(40)
    texts = [" ".join(np.repeat(VOCABULARY, row.astype(int))) for row in counts]
    given: dict[str, Any] = {"vocabulary": VOCABULARY, "classes": ("no", "yes"), **EXACT}
    labels = np.where(y == 1, "Yes", "no")  # Labels are compared without regard to capital letters.
    one, two = dpvb.NaiveBayes(**given).fit(texts, labels), dpvb.NaiveBayes(**given).fit(counts, labels)
    np.testing.assert_array_equal(one.predict_proba(texts), two.predict_proba(counts))
    assert one.score(texts, labels, public=True) > 0.7
    held = BagOfWords.from_texts(texts, vocabulary=VOCABULARY)
    np.testing.assert_array_equal(one.predict(held), one.predict(texts))


def test_a_row_has_its_own_bits_in_every_batch() -> None:
    """Predictions and scores by which settings are chosen."""
    cells = people(40)
    for options in ({**OPTIONS}, {**OPTIONS, "numbers": "gaussian"}):
        model = dpvb.NaiveBayes(**options, **NOISY, random_state=0).fit(Table(cells, SCHEMA))
        together = model.predict_log_proba(cells)
        alone = [
            model.predict_log_proba({name: values[n : n + 1] for name, values in cells.items()}) for n in range(40)
        ]
        np.testing.assert_array_equal(together, np.concatenate(alone))
    counts, y = documents(40)
    model = dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=(0, 1), **NOISY).fit(counts, y)
    source = labelled(BagOfWords(counts), y, (0, 1))
    rows = next(iter(source.chunks())).rows
    one = [model._quality(taken(rows, slice(n, n + 1))) for n in range(40)]
    np.testing.assert_array_equal(model._quality(rows), np.concatenate(one))
    np.testing.assert_allclose(model._quality(rows), model.predict_log_proba(counts)[np.arange(40), y])


def test_a_saved_model_of_words_predicts_the_same_bits(tmp_path: Path) -> None:
    counts = np.random.default_rng(4).poisson(1.5, (300, len(VOCABULARY))).astype(float)
    y = (counts[:, 0] > 1).astype(int)
    model = dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=(0, 1), **NOISY).fit(counts, y)
    model.save(tmp_path / "words.dpvb")
    again = dpvb.load(tmp_path / "words.dpvb")
    assert np.array_equal(model.predict_proba(counts), again.predict_proba(counts))
    assert model.word_probabilities_.flags.c_contiguous


def test_long_documents_weigh_less_in_the_fit_and_in_predictions() -> None:
    """A document of 36 words and the bound 3 counts half in all that it says."""
    p_kw = np.random.default_rng(7).uniform(0.01, 0.6, (2, 50))
    batch = next(iter(BagOfWords((np.arange(50) < 36).astype(float)[None]).chunks())).rows
    none = np.log1p(-p_kw).sum(axis=1)
    whole, half = (log_words(batch, p_kw, bound)[0] - none for bound in (6.0, 3.0))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-12)


# --- fits with noise ----------------------------------------------------------------------------------------


@kills("NaN", "a row with an undeclared label that makes a class of its own")
@edit("estimators/naive_bayes.py", "answer = replace(answer, other=False, missing=False)", "pass")
def test_classes_of_a_mixed_table_are_learnt_and_sampled_in_its_types() -> None:
    cells = people(3000)
    for numbers in ("bins", "gaussian"):
        model = dpvb.NaiveBayes(**{**OPTIONS, "numbers": numbers}, **NOISY).fit(Table(cells, SCHEMA))
        assert model.score(people(500, seed=1), public=True) > 0.85
        drawn = model.sample(4000, 1)
        assert [*drawn] == ["age", "income", "visits", "job", "since", "smokes", "kind"]
        assert drawn["visits"].dtype.kind == "i"
        assert drawn["since"].dtype.kind == "M"
        assert set(drawn["kind"].tolist()) == {"x", "y", "z"}
        assert abs(np.isnan(drawn["income"]).mean() - np.isnan(cells["income"]).mean()) < 0.05
        assert model.score(Table(drawn, SCHEMA), public=True) > 0.85
        wide, narrow = model.component_table(0.99).of("x"), model.component_table(noise_aware=False).of("x")
        assert {"share", "visits", "job=a"} < {*wide}
        assert wide["job=a"].low <= narrow["job=a"].low <= narrow["job=a"].high <= wide["job=a"].high
    assert wide["age"].low < narrow["age"].low < narrow["age"].high < wide["age"].high
    assert "3 classes, 95% intervals" in str(model.component_table())


def test_intervals_of_a_class_cover() -> None:
    """95 % intervals of 100 noisy fits, the truth known; rows have the seeds 0 to 99, the noise has none.

    Of 800 intervals at least .895 and at most .99 hold it, 5 standard errors around .95 and more: as a false alarm
    below 1e-6.
    """
    inside: list[bool] = []
    schema = Schema((Numeric("x", -4, 4), Numeric("c", 0, 20), Binary("b")), target=Target("y"))
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y = rng.random(1500) < 0.4
        cells = {"x": rng.normal(y, 1.0), "c": rng.poisson(2 + 2 * y), "b": rng.random(1500) < 0.3, "y": y.astype(int)}
        model = dpvb.NaiveBayes(numbers="gaussian", count_columns="c", **NOISY).fit(Table(cells, schema))
        for k, share in enumerate((0.6, 0.4)):
            found, truth = model.component_table().of(str(k)), {"share": share, "x": k, "c": 2 + 2 * k, "b=1": 0.3}
            inside += [found[name].low <= value <= found[name].high for name, value in truth.items()]
    assert len(inside) == 800
    assert 0.895 <= np.mean(inside) <= 0.99


def test_a_file_keeps_everything_that_the_classes_say(tmp_path: Any) -> None:
    cells, (counts, y) = people(), documents()
    tables = [dpvb.NaiveBayes(**{**OPTIONS, "numbers": numbers}, **NOISY) for numbers in ("bins", "gaussian")]
    fitted = [model.fit(Table(cells, SCHEMA)) for model in tables]
    fitted.append(
        dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=("no", "yes"), **NOISY).fit(counts, np.where(y, "yes", "no"))
    )
    for place, model in enumerate(fitted):
        model.save(tmp_path / f"{place}.dpvb")
        again, rows = dpvb.load(tmp_path / f"{place}.dpvb"), counts if place == 2 else cells
        np.testing.assert_array_equal(again.predict_log_proba(rows), model.predict_log_proba(rows))
        assert again.component_table().lines == model.component_table().lines
        assert again.predict(rows).tolist() == model.predict(rows).tolist()


@kills("strangers", "classes of a file whose tables have another shape")
@edit("results/trees.py", 'raise ValueError(f"{name} of another shape")', "pass")
def test_a_file_with_rates_that_are_none_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "m.dpvb"
    dpvb.NaiveBayes(**OPTIONS, **NOISY).fit(Table(people(), SCHEMA)).save(path)
    rates, number, other = "tables__rates__mean_kp", "tables__number_k", tmp_path / "other"
    changes: list[tuple[str, Any]] = [(rates, 1e300), (rates, 1e-300), (number, 1e-300), (rates, -1.0), (number, 0.0)]
    for name, factor in [*changes, ("tables__expected_kv", -1.0)]:
        forge(path, other, arrays={name: lambda a, factor=factor: a * factor})
        with pytest.raises(ModelFileError):
            dpvb.load(other)
    forge(path, other, arrays={"tables__expected_kv": lambda a: a[:, 1:]})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(other)
    forge(path, other, learned={"tables.number_std": 1e300})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(other)


def test_a_file_with_means_beyond_the_range_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "m.dpvb"
    dpvb.NaiveBayes(**{**OPTIONS, "numbers": "gaussian"}, **NOISY).fit(Table(people(), SCHEMA)).save(path)
    forge(path, arrays={"tables__numbers__mean_kd": lambda a: np.full_like(a, 1e300)})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(path)


def test_bins_are_shown_in_the_units_of_their_columns() -> None:
    schema = Schema(
        (
            Numeric("income", 0, 3e5, transform="log1p"),
            Date("since", low="2000-01-01", high="2020-01-01"),
            Categorical("kind", ("x", "y")),
        )
    )
    cells = {"income": [10.0, 1e3], "since": ["2001-02-03", "2019-01-01"], "kind": ["x", "y"]}
    names = [
        line.name
        for line in dpvb.NaiveBayes(response="kind", bins=2, **NOISY).fit(Table(cells, schema)).component_table()
    ]
    middle = math.expm1(math.log1p(3e5) / 2)
    assert {f"income=0 to {middle:.6g}", f"income={middle:.6g} to 300000"} < {*names}
    assert "since=2000-01-01T00:00 to 2009-12-31T12:00" in names


def test_a_cluster_and_a_ledger_change_no_bit(tmp_path: Any, two_processes: Any) -> None:
    """Two processes; a run that is read again costs nothing."""
    (counts, y), table = documents(200), Table(people(200), SCHEMA)
    for given, data in (
        (OPTIONS, (table,)),
        ({"vocabulary": VOCABULARY, "classes": (0, 1)}, (counts, y)),
    ):
        one, two = (
            dpvb.NaiveBayes(**given, **EXACT).fit(*data, run=dpvb.Run(cluster=c)) for c in (None, two_processes)
        )
        np.testing.assert_array_equal(one._q.number_k, two._q.number_k)
        np.testing.assert_array_equal(one._q.expected_kv, two._q.expected_kv)
        np.testing.assert_array_equal(one._q.word_kw, two._q.word_kw)
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("people", epsilon=3.0, delta=1e-5, unit="row", neighboring_relation="add_or_remove_one")
    counted: dict[str, Any] = {"ledger": tmp_path / "budget.db", "dataset": "people", "checkpoint": tmp_path / "run"}
    first = dpvb.NaiveBayes(**OPTIONS, **NOISY).fit(table, run=dpvb.Run(**counted))
    again = dpvb.NaiveBayes(**OPTIONS, **NOISY).fit(table, run=dpvb.Run(**counted, resume="load"))
    np.testing.assert_array_equal(first.predict_proba(people(20)), again.predict_proba(people(20)))
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        assert ledger.remaining("people").num_charges == 1


def test_several_owners_have_the_classes_of_all_their_rows() -> None:
    """Without noise the classes of three parties are those of one, up to the grids of their sums."""
    parts = [people(100, seed=seed) for seed in range(3)]
    model = dpvb.NaiveBayes(**OPTIONS, **EXACT)
    together = dpvb.federated.simulate(model, [{"X": Table(cells, SCHEMA)} for cells in parts])
    whole = {name: np.concatenate([cells[name] for cells in parts]) for name in parts[0]}
    model.fit(Table(whole, SCHEMA))
    np.testing.assert_allclose(together.predict_proba(parts[0]), model.predict_proba(parts[0]), atol=1e-3)


def test_a_dry_run_makes_up_texts_and_labels() -> None:
    model = dpvb.NaiveBayes(vocabulary=VOCABULARY, classes="yes, no", **NOISY).dry_run(vocabulary=VOCABULARY)
    assert model.classes_.tolist() == ["yes", "no"]
    assert model.class_prior_ == pytest.approx(0.5, abs=0.1)
    assert model.privacy_.dry_run


def test_a_person_of_many_rows_counts_as_one() -> None:
    """A hundred copies of a row, all of one person, say what one row says."""
    cells = people(1)
    many = {name: np.repeat(values, 100) for name, values in cells.items()}
    one = dpvb.NaiveBayes(**OPTIONS, **EXACT).fit(Table(cells, SCHEMA), group=["p"])
    two = dpvb.NaiveBayes(**OPTIONS, **EXACT).fit(Table(many, SCHEMA), group=["p"] * 100)
    np.testing.assert_allclose(one.class_prior_, two.class_prior_, rtol=1e-6)
    assert two.privacy_.unit == "person"
    counts, y = documents(4)
    given: dict[str, Any] = {"vocabulary": VOCABULARY, "classes": (0, 1), **EXACT}
    alone = dpvb.NaiveBayes(**given).fit(counts[:1], y[:1], group=["p"])
    copies = dpvb.NaiveBayes(**given).fit(np.tile(counts[:1], (50, 1)), np.tile(y[:1], 50), group=["p"] * 50)
    np.testing.assert_allclose(alone.class_prior_, copies.class_prior_, rtol=1e-6)


@kills("persons", "persons of labelled documents who become as many units as they have documents")
@edit("data/documents/bag_of_words.py", 'if documents.unit == "person":', "if False:")
def test_documents_that_are_grouped_already_are_refused() -> None:
    """Their rows have another order than the labels, and their persons would be lost."""
    counts, y = documents(4)
    model = dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=(0, 1), **NOISY)
    for group in (None, ["p", "q", "p", "q"]):
        with pytest.raises(ParameterError, match="give group= to fit"):
            model.fit(BagOfWords(counts, group=["p", "q", "p", "q"]), y, group=group)
    with pytest.raises(DataFormatError, match="answered in another order"):
        model.fit(counts, y).predict(BagOfWords(counts, group=["p", "q", "p", "q"]))


@pytest.mark.parametrize(
    "model",
    [dpvb.LDA(2, vocabulary=VOCABULARY, **NOISY), dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=(0, 1), **NOISY)],
)
def test_documents_of_other_words_or_of_another_order_are_refused(model: Any) -> None:
    """In a fit and in what is asked of it; the same words, and columns without names, are taken."""
    counts, y = documents(20)
    y = None if isinstance(model, dpvb.LDA) else y
    turned = BagOfWords(counts, vocabulary=VOCABULARY[::-1])
    with pytest.raises(DataFormatError, match="X has 'figs' as word 1, but its vocabulary has 'apple' there"):
        model.fit(turned, y)
    model.fit(BagOfWords(counts, vocabulary=VOCABULARY), y)
    ask = model.transform if y is None else model.predict
    np.testing.assert_array_equal(ask(counts), ask(BagOfWords(counts, vocabulary=VOCABULARY)))
    with pytest.raises(DataFormatError, match="X has 'figs' as word 1"):
        ask(turned)


def test_settings_can_be_chosen() -> None:
    best = dpvb.private_select(
        dpvb.NaiveBayes(**OPTIONS, **NOISY),
        [{"bins": 4}, {"bins": 20}],
        Table(people(), SCHEMA),
        epsilon=8.0,
        delta=1e-6,
    )
    assert best.bins in (4, 20)


# --- odd data -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [math.inf, 1.0, 0.01])
@pytest.mark.parametrize("numbers", ["bins", "gaussian"])
@pytest.mark.parametrize(
    "odd", ["no rows", "one row", "one class", "all missing", "beyond the ranges", "undeclared", "nonsense"]
)
def test_odd_rows_of_a_table_are_fitted_in_silence(odd: str, numbers: str, epsilon: float, recwarn: Any) -> None:
    """Nothing is NaN, and nothing warns of what rows hold; a class of no rows has a share above 0."""
    cells = people(40)
    if odd in ("no rows", "one row"):
        cells = {name: values[: odd == "one row"] for name, values in cells.items()}
    changed: dict[str, Any] = {
        "all missing": np.full(40, np.nan),
        "beyond the ranges": np.where(np.arange(40) % 2, 1e308, -1e308),
    }
    for name in ("age", "income", "visits") if odd in changed else ():
        cells[name] = changed[odd]
    if odd == "one class":
        cells["kind"] = np.full(40, "x", dtype=object)
    if odd == "undeclared":
        cells["job"] = cells["kind"] = np.full(40, "other", dtype=object)
    if odd == "nonsense":
        cells = {name: np.array(["?", "ø", "", "1e999"] * 10, dtype=object) for name in cells}
    model = dpvb.NaiveBayes(**{**OPTIONS, "numbers": numbers}, epsilon=epsilon, delta=1e-6).fit(Table(cells, SCHEMA))
    assert (model.class_prior_ > 0).all()
    assert model.class_prior_.sum() == pytest.approx(1)
    found = model.predict_log_proba(people(30, seed=1))
    assert np.isfinite(found).all()
    assert np.isfinite([value for line in model.component_table() for value in line[2:4]]).all()
    drawn = model.sample(20, 0)
    assert ((drawn["age"] >= 0) & (drawn["age"] <= 100)).all()
    assert all(issubclass(w.category, (FewUnitsWarning, dpvb.errors.DpvbWarning)) for w in recwarn)


@pytest.mark.parametrize("epsilon", [math.inf, 1.0, 0.01])
@pytest.mark.parametrize("odd", ["none", "one", "empty", "negative", "huge", "no label"])
def test_odd_documents_are_fitted_in_silence(odd: str, epsilon: float) -> None:
    counts, y = documents(40)
    labels: Any = y.astype(object)
    if odd in ("none", "one"):
        counts, labels = counts[: odd == "one"], labels[: odd == "one"]
    elif odd == "no label":
        labels[:] = None
    else:
        counts = np.full((40, 6), {"empty": 0.0, "negative": -1.0, "huge": 1e308}[odd])
    model = dpvb.NaiveBayes(vocabulary=VOCABULARY, classes=(0, 1), epsilon=epsilon, delta=1e-6).fit(counts, labels)
    assert np.isfinite(model.predict_log_proba(documents(20, seed=1)[0])).all()
    assert ((model.word_probabilities_ > 0) & (model.word_probabilities_ < 1)).all()
    assert np.isfinite([value for line in model.component_table() for value in line[2:4]]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"response": None}, "response must name the column of classes"),
        ({"response": "nothing"}, "response must name a column of two classes .* got 'nothing'; such are job, kind"),
        ({"response": "age"}, "response must name a column of two classes"),
        ({"numbers": "wide"}, "numbers"),
        ({"bins": 1}, "bins"),
        ({"count_columns": "income"}, "A count must be a numeric column from low=0"),
        ({"missing_columns": "job"}, "missing_columns must name numeric columns"),
        ({"alpha": -1.0}, "alpha"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"lengths": 3}, "lengths must be True or False"),
        ({"estimate": "best"}, "estimate"),
        ({"classes": (0, 1)}, "classes and vocabulary must be None with a table"),
    ],
)
def test_public_mistakes_are_refused_with_their_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        dpvb.NaiveBayes(**{**OPTIONS, "missing_columns": "income", **NOISY, **given}).fit(Table(people(5), SCHEMA))


def test_a_count_that_no_float_tells_from_the_next_is_refused() -> None:
    schema = Schema((Numeric("n", 0, 1e17), Categorical("k", ("a", "b"))))
    with pytest.raises(ParameterError, match="high of the count 'n'"):
        dpvb.NaiveBayes(response="k", count_columns="n", **NOISY).fit(Table({"n": [1.0], "k": ["a"]}, schema))


def test_documents_need_classes_words_and_labels() -> None:
    counts, y = documents(20)
    given: dict[str, Any] = {"vocabulary": VOCABULARY, "classes": (0, 1), **NOISY}
    with pytest.raises(
        ParameterError, match=r"X must be a dpvb\.Table, .* or documents, with vocabulary= and classes="
    ):
        dpvb.NaiveBayes(**NOISY).fit(counts, y)
    with pytest.raises(ParameterError, match="y must be given with documents"):
        dpvb.NaiveBayes(**given).fit(counts)
    with pytest.raises(ParameterError, match="classes must be two labels at least"):
        dpvb.NaiveBayes(**{**given, "classes": ("a",)}).fit(counts, y)
    with pytest.raises(ParameterError, match="response must be left out with documents"):
        dpvb.NaiveBayes(**given, response="y").fit(counts, y)
    with pytest.raises(DataFormatError, match="vocabulary"):
        dpvb.NaiveBayes(classes=(0, 1), **NOISY).fit(counts, y)
    with pytest.raises(DataFormatError):
        dpvb.NaiveBayes(**given).fit(counts, y[:-1])
    fitted = dpvb.NaiveBayes(**given).fit(counts, y)
    with pytest.raises(DataFormatError):
        fitted.predict(np.zeros((2, 7)))
    with pytest.raises(DataFormatError, match="the label of each document"):
        fitted.score(counts, public=True)
    with pytest.raises(PrivacyError, match="public=True"):
        fitted.score(counts, y)
    with pytest.raises(DataFormatError, match="none of the classes 0, 1"):
        fitted.score(counts, np.full(20, 7), public=True)
    with pytest.raises(ParameterError, match="model of a table"):
        fitted.sample(3)
    assert fitted.predict(counts[:0]).shape == (0,)


@pytest.mark.parametrize("kind", ["mixture", "gaussian", "bins"])
def test_a_range_whose_square_is_no_number_is_refused_before_the_data_are_read(kind: str) -> None:
    schema = Schema((Numeric("a", -1e299, 1e299), Categorical("y", ("u", "v"))))
    table = Table({"a": [1e298, -2e298, 5e298], "y": ["u", "v", "u"]}, schema)
    budget: dict[str, Any] = {"epsilon": np.inf, "delta": 1e-6}
    if kind == "bins":
        model = dpvb.NaiveBayes(response="y", **budget).fit(table)
        assert np.isfinite(model.predict_proba(table)).all()
        return
    model = dpvb.Mixture(2, **budget) if kind == "mixture" else dpvb.NaiveBayes(response="y", numbers=kind, **budget)
    with pytest.raises(ParameterError, match=r"high of column 'a' must be at most 2e\+150 above its low, got 2e\+299"):
        model.fit(table)
