"""What the form of the data and public facts show to be useless is refused before the charge, and nothing else is.

A refusal never depends on what a cell holds, nor on its type, and so not on the dtype of an array or a column: a reader
infers it from the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from own_models import Noting
from planted import edit, kills

import dpvb
from dpvb.data import BagOfWords
from dpvb.errors import DataFormatError, FewUnitsWarning, ParameterError

WORDS = ["apple", "banana", "cherry", "dog"]
TEXTS = ["apple banana dog", "cherry", "", "Apple apple unknown"]
LISTS = [text.split() for text in TEXTS]
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}


# --- a list of words is a document ------------------------------------------------------------------------------


def counted(texts: Any) -> np.ndarray:
    source = BagOfWords.from_texts(texts, vocabulary=WORDS)
    found = np.zeros((source.count(), len(WORDS)))
    start = 0
    for chunk in source.chunks():
        rows = chunk.rows
        for n in range(rows.num_rows):
            own = slice(rows.indptr[n], rows.indptr[n + 1])
            found[start + n, rows.indices[own]] = rows.counts[own]
        start += rows.num_rows
    return found


def objects(cells: list[Any]) -> np.ndarray:
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        pd.Series,
        objects,
        lambda lists: [tuple(words) for words in lists],
        lambda lists: [np.array(words, dtype=object) for words in lists],
        lambda lists: pd.Series([np.array(words, dtype=str) for words in lists]),
        lambda lists: [[word.encode() for word in words] for words in lists],
    ],
)
def test_a_list_of_words_is_the_document_that_their_text_is(form: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(counted(form(LISTS)), counted(TEXTS))


@pytest.mark.guarantees("kinds of records")
@kills("readers", "lists of words that are documents only if most records are")
@edit(
    "data/documents/bag_of_words.py",
    "(cell if is_words(cell) else document(cell) for cell in cells_of(texts))",
    "map(document if 2 * sum(map(is_words, cells_of(texts))) < len(cells_of(texts)) else "
    "(lambda cell: cell), cells_of(texts))",
)
@pytest.mark.parametrize("form", [list, pd.Series, objects])
def test_each_record_by_itself_is_a_text_or_a_list_of_words(form: Callable[[Any], Any]) -> None:
    """Beside any others: texts, lists, numbers, lists of numbers, mappings."""
    odd: list[Any] = [None, 7, [1, 2], {"apple": 3}, ["apple", 3, None, ["dog"]], [], math.nan]
    records = [TEXTS[0], LISTS[0], *odd, LISTS[3], TEXTS[3]]
    alone = [counted([record])[0] for record in records]
    np.testing.assert_array_equal(counted(form(records)), alone)
    np.testing.assert_array_equal(alone[6], [1, 0, 0, 0])  # Of a list its texts are read.
    np.testing.assert_array_equal(alone[0], alone[1])


@pytest.mark.guarantees("kinds of records")
def test_what_a_list_of_words_brings_along_is_not_called() -> None:
    class Loud(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    class Word(str):
        def lower(self) -> Any:
            raise AssertionError

    np.testing.assert_array_equal(counted([Loud(["apple"]), [Word("apple")]]), [[1, 0, 0, 0]] * 2)


@pytest.mark.parametrize("lists", [LISTS, pd.Series(LISTS), [["apple"], ["dog"], ["dog"]], pd.Series([["apple"]] * 9)])
def test_lda_and_naive_bayes_read_lists_of_words(lists: Any) -> None:
    """Lists of one length too, in a column: a column of lists of numbers is a matrix of counts, as it was."""
    model = dpvb.LDA(2, vocabulary=WORDS, n_steps=1, epsilon=math.inf, delta=1e-6).fit(lists)
    assert model.privacy_.counts is None or "included" in str(model.privacy_)
    bayes = dpvb.NaiveBayes(classes=("a", "b"), vocabulary=WORDS, epsilon=math.inf, delta=1e-6)
    assert bayes._task(lists, ["a"] * len(lists)).source.count() == len(lists)
    sums = sum(
        chunk.rows.counts.sum() for chunk in dpvb.LDA(2, vocabulary=WORDS, **BUDGET)._task(lists).source.chunks()
    )
    assert sums == counted(lists).sum() > 0


def test_a_column_of_lists_of_counts_is_a_matrix_of_counts() -> None:
    source = dpvb.data.as_source(pd.Series([[1, 0, 2, 0], [0, 0, 0, 1]]), vocabulary=WORDS)
    assert sum(chunk.rows.counts.sum() for chunk in source.chunks()) == 4


# --- what is useless by its form ----------------------------------------------------------------------------------

NUMBERS = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 3))
DATES = np.zeros((60, 3), dtype="M8[s]")
COUNTS = {"max_row_norm": 1.0, "max_count": 5}


def lda(X: Any, **given: Any) -> Any:
    return dpvb.LDA(2, n_steps=1, **{"vocabulary": WORDS, **given}, **BUDGET).fit(X)


def logistic(X: Any, y: Any) -> Any:
    return dpvb.LogisticRegression(max_row_norm=1.0, **BUDGET).fit(X, y)


def chain(X: Any) -> Any:
    return dpvb.MarkovChain(["a", "b"], **BUDGET).fit(X)


def bayes(X: Any, y: Any) -> Any:
    return dpvb.NaiveBayes(classes=("a", "b"), vocabulary=WORDS, **BUDGET).fit(X, y)


def density(theta: Any, x: Any) -> Any:
    return -0.5 * ((x - theta) ** 2).sum()


USELESS: dict[str, Callable[[], Any]] = {
    "a frame of texts": lambda: lda(pd.DataFrame({"text": TEXTS})),
    "a frame of texts, words private": lambda: lda(pd.DataFrame({"text": TEXTS}), vocabulary="private"),
    "a frame of labelled texts": lambda: bayes(pd.DataFrame({"text": TEXTS}), ["a"] * 4),
    "an Arrow table of texts": lambda: lda(pa.table({"text": TEXTS})),
    "one text": lambda: lda("apple"),
    "a generator": lambda: lda(text for text in TEXTS),
    "an iterator": lambda: lda(iter(TEXTS)),
    "an iterator, words private": lambda: lda(iter(TEXTS), vocabulary="private"),
    "a set": lambda: lda(set(TEXTS)),
    "a mapping": lambda: lda({"text": TEXTS}),
    "a mapping, words private": lambda: lda({"text": TEXTS}, vocabulary="private"),
    "mappings for rows": lambda: logistic([{"a": 1.0}] * 60, np.zeros(60)),
    "texts for rows": lambda: logistic(["a"] * 60, np.zeros(60)),
    "one text for rows": lambda: logistic("a", np.zeros(60)),
    "one dimension": lambda: logistic(NUMBERS[:, 0], np.zeros(60)),
    "three dimensions": lambda: logistic(NUMBERS[:, :, None], np.zeros(60)),
    "rows of an iterator": lambda: logistic(iter(NUMBERS), np.zeros(60)),
    "labels of an iterator": lambda: logistic(NUMBERS, iter(np.zeros(60))),
    "a mapping of labels": lambda: logistic(NUMBERS, {"y": np.zeros(60)}),
    "a matrix of labels": lambda: logistic(NUMBERS, NUMBERS),
    "a frame of labels": lambda: bayes(TEXTS, pd.DataFrame({"y": ["a"] * 4})),
    "one label": lambda: bayes(TEXTS, "a"),
    "an iterator of components": lambda: dpvb.PCA(2, max_row_norm=1.0, **BUDGET).fit(iter(NUMBERS)),
    "one dimension of factors": lambda: dpvb.FactorAnalysis(2, max_row_norm=1.0, **BUDGET).fit(NUMBERS[:, 0]),
    "an iterator of bits": lambda: dpvb.SigmoidBeliefNetwork(2, n_steps=1, **BUDGET).fit(iter(NUMBERS)),
    "one dimension of groups": lambda: dpvb.GaussianMixture(2, low=0, high=1, **BUDGET).fit(NUMBERS[:, 0]),
    "one dimension of a density": lambda: dpvb.DPVI(density, parameters=3, n_steps=1, **BUDGET).fit(NUMBERS[:, 0]),
    "an iterator for a model of one's own": lambda: dpvb.PrivateModel(Noting(), max_row_norm=1.0, **BUDGET).fit(
        iter(NUMBERS)
    ),
    "an iterator of sequences": lambda: chain(iter([["a", "b"]])),
    "a mapping of sequences": lambda: chain({"s": ["a", "b"]}),
    "one text for sequences": lambda: chain("abab"),
    "a frame of sequences": lambda: chain(pd.DataFrame({"s": ["a", "b"]})),
    "an iterator of points": lambda: dpvb.LinearDynamicalSystem(1, columns=["u"], low=0, high=1, **BUDGET).fit(
        iter([[0.5, 0.5]])
    ),
    "a matrix for a range": lambda: dpvb.private_range(NUMBERS, low=0, high=1, epsilon=1.0, delta=1e-6),
    "an iterator for a range": lambda: dpvb.private_range(iter(NUMBERS), low=0, high=1, epsilon=1.0, delta=1e-6),
    "a matrix for a table": lambda: dpvb.Table(NUMBERS, dpvb.data.Schema((dpvb.data.Numeric("z", low=0, high=1),))),
}


@pytest.mark.guarantees("public refusals")
@pytest.mark.parametrize("call", USELESS)
def test_what_is_useless_by_its_form_is_refused_before_the_charge(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a wall is asked: nothing that could be charged has begun."""
    from dpvb.core.wall import Wall

    def none(*_: object, **__: object) -> Any:
        raise AssertionError("a wall was asked")

    if "density" in call:
        pytest.importorskip("jax")
    for door in ("release", "share", "names"):
        monkeypatch.setattr(Wall, door, none)
    with pytest.raises((DataFormatError, ParameterError)):
        USELESS[call]()


def test_the_refusal_of_a_table_names_the_way_to_its_column() -> None:
    with pytest.raises(DataFormatError, match=r"give that column: X\['remark'\]"):
        lda(pd.DataFrame({"remark": TEXTS}))
    with pytest.raises(DataFormatError, match=r"give that column: X\['text'\]"):
        lda(pd.DataFrame({"a": TEXTS, "b": TEXTS}))
    counts = pd.DataFrame(np.ones((3, 4)), columns=WORDS)
    assert dpvb.LDA(2, vocabulary=WORDS, **BUDGET)._task(counts).source.count() == 3


@pytest.mark.guarantees("public refusals")
@kills("public facts", "a call that is refused by the dtype of an array, which cells decide")
@edit(
    "data/tables/design.py",
    '    cells = column("y", y, num_rows)\n',
    '    cells = column("y", y, num_rows)\n    if cells.dtype.kind == "b":\n        raise ParameterError("y")\n',
)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([0, 1]), np.array(["yes", 1], dtype=object)),
        (np.array([True, False]), np.array(["no", False], dtype=object)),
        (pd.Series([0.5, 1.5]), pd.Series(["yes", 1.5])),
        (DATES[:2, 0], np.array(["yes", DATES[1, 0]], dtype=object)),
    ],
)
def test_no_value_and_no_type_of_a_cell_refuses_a_call(one: Any, other: Any) -> None:
    """A reader infers the type of a column from its cells: one label more makes objects of whole numbers."""
    for y in (one, other, [*one], [*other]):
        task = dpvb.LogisticRegression(classes=("no", "yes"), max_row_norm=1.0, **BUDGET)._task(NUMBERS[:2], y)
        assert task.source.count() == 2
    for X in (one, other, [*one], [*other]):
        assert dpvb.LDA(2, vocabulary=WORDS, **BUDGET)._task(X).source.count() == 2


# --- the warning names what was declared --------------------------------------------------------------------------


COLUMNS = (dpvb.data.Numeric("z", low=-1, high=1),)
ILL = {"z": NUMBERS[:, 0], "ill": ["x"] * 60}
OF_TARGET = dpvb.data.Schema(COLUMNS, target=dpvb.data.Target("ill", classes=("no", "yes")))
OF_RESPONSE = dpvb.data.Schema((*COLUMNS, dpvb.data.Categorical("ill", ("no", "yes"), other=False)))


@pytest.mark.parametrize(
    ("model", "given", "said", "names"),
    [
        (dpvb.NaiveBayes(classes=("a", "b"), vocabulary=WORDS, **BUDGET), ([""], ["x"]), "Of y each label", "'a', 'b'"),
        (dpvb.LogisticRegression(max_row_norm=1.0, **BUDGET), (NUMBERS, ["x"] * 60), "Of y each label", "0, 1"),
        (dpvb.LogisticRegression(**BUDGET), (dpvb.Table(ILL, OF_TARGET),), "Of column 'ill' each label", "'no', 'yes'"),
        (
            dpvb.LogisticRegression(**BUDGET), (dpvb.Table(ILL, OF_RESPONSE), ["x"] * 60), "Of y each label", "0, 1",
        ),
        (
            dpvb.NaiveBayes(response="ill", **BUDGET), (dpvb.Table(ILL, OF_RESPONSE),), "Of column 'ill' each label",
            "'no', 'yes'",
        ),
        (
            dpvb.NaiveBayes(**BUDGET), (dpvb.Table(ILL, OF_TARGET),), "Of column 'ill' each label", "'no', 'yes'",
        ),
        (dpvb.MarkovChain(["a", "b"], **BUDGET), ([["x"]],), "Of X each symbol", "'a', 'b'"),
        (dpvb.LDA(2, vocabulary=WORDS, **BUDGET), ([""],), "Of X each word", "'apple', 'banana', 'cherry', 'dog'"),
    ],
)  # fmt: skip
def test_the_warning_of_few_units_names_what_was_declared(model: Any, given: Any, said: str, names: str) -> None:
    found = model._included(model._task(*given).notes)
    where, what = said.removeprefix("Of ").split(" each ")
    assert found.startswith(f"In {where}, only the ")
    assert found.endswith(f" declared {what}s are included: {names}. ")


def test_the_warning_names_at_most_five_of_what_was_declared_and_nothing_of_the_data() -> None:
    """Without noise the count is what it is."""
    with pytest.warns(FewUnitsWarning) as warned:
        dpvb.LDA(2, vocabulary=[*map(str, WORDS), "elder", "fig"], n_steps=1, epsilon=math.inf, delta=1e-6).fit(["x"])
    (said,) = [str(one.message) for one in warned if one.category is FewUnitsWarning]
    assert "only the 6 declared words are included: 'apple', 'banana', 'cherry', 'dog', 'elder', .... Check" in said


@pytest.mark.parametrize("model", [dpvb.PCA(2, max_row_norm=1.0, **BUDGET), dpvb.PoissonRegression(**COUNTS, **BUDGET)])
def test_of_numbers_nothing_is_declared(model: Any) -> None:
    given = (NUMBERS,) if isinstance(model, dpvb.PCA) else (NUMBERS, np.ones(60))
    assert model._included(model._task(*given).notes) == ""
