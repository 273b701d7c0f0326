"""What is public, and where it comes from: asked for where nothing else tells, and written into the statement."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planted import edit, kills
from scipy import io, sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from test_cli import run

import dpvb
from dpvb.accounting.budget_warnings import warn_of_ranges
from dpvb.data import Categorical, Date, Numeric, Schema, Spline, Stream, Table, Target, open_documents
from dpvb.errors import DataDependentBoundWarning, DataFormatError, ParameterError

WORDS = ["apple", "pear", "plum"]
TEXTS = ["apple pear", "plum plum", "pear", ""] * 10
COUNTS = CountVectorizer(vocabulary=WORDS).transform(TEXTS)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 2}


def lda(**options: Any) -> dpvb.LDA:
    return dpvb.LDA(2, **{**BUDGET, **options})


def written(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".npz"):
        sparse.save_npz(path, sparse.csr_array(COUNTS))
    elif name.endswith(".mtx"):
        io.mmwrite(path, sparse.coo_array(COUNTS))
    elif name.endswith(".dat"):
        path.write_text("1 0:1\n2 1:1 2:3\n")
    else:
        path.write_text("2\n3\n2\n1 1 1\n2 3 1\n")
    return path


FORMS: dict[str, Any] = {
    "csr": lambda folder: COUNTS,
    "dense": lambda folder: COUNTS.toarray(),
    "of private texts": lambda folder: CountVectorizer().fit_transform(TEXTS),
    "stream": lambda folder: Stream(lambda: [COUNTS], 3),
    "npz": lambda folder: open_documents(written(folder, "c.npz")),
    "mtx": lambda folder: open_documents(written(folder, "c.mtx"), stream=True),
    "docword": lambda folder: open_documents(written(folder, "docword.c.txt")),
    "lda-c": lambda folder: open_documents(written(folder, "c.dat"), width=3),
    "several": lambda folder: open_documents([written(folder, "a.npz"), written(folder, "b.npz")]),
}


@pytest.mark.guarantees("public columns")
@kills("public facts", "columns that private texts have named, without a question")
@edit("estimators/lda.py", "if source.vocabulary is None and not self.public_vocabulary:", "if False:")
@pytest.mark.parametrize("form", FORMS)
def test_counts_without_names_are_refused_before_the_charge_unless_their_columns_are_public(
    form: str, ledger: Path, tmp_path: Path
) -> None:
    counted: dict[str, Any] = {"ledger": str(ledger), "dataset": "notes"}
    with dpvb.Ledger(ledger) as book:
        book.register("notes", unit="document", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
    with pytest.raises(ParameterError, match="public_vocabulary must be True, or vocabulary given"):
        lda().fit(FORMS[form](tmp_path), run=dpvb.Run(**counted))
    assert dpvb.Ledger(ledger).remaining("notes").num_charges == 0
    assert lda(public_vocabulary=True).fit(FORMS[form](tmp_path)).n_features_in_ == 3


def test_whoever_names_the_terms_is_not_asked() -> None:
    assert lda(vocabulary=WORDS).fit(COUNTS).vocabulary_ == tuple(WORDS)
    frame = pd.DataFrame(COUNTS.toarray(), columns=WORDS)
    assert lda().fit(frame).vocabulary_ == tuple(WORDS)
    assert {word for topic in lda().fit(frame).topics(3) for word in topic} == set(WORDS)


@pytest.mark.parametrize("name", ["c.npz", "c.mtx", "docword.c.txt", "c.dat"])
def test_the_command_line_asks_too(tmp_path: Path, name: str) -> None:
    given = [*"--topics 2 --n-steps 2 --epsilon 1 --delta 1e-5 --quiet".split(), "--out", tmp_path / "m.dpvb"]  # noqa: SIM905
    given += ["--width", 3] if name == "c.dat" else []
    data = written(tmp_path, name)
    assert "--public-vocabulary must be True" in run("fit", "lda", data, *given, code=2).stderr
    run("fit", "lda", data, *given, "--public-vocabulary", "--provenance", "vocabulary=a list of fruit; prior=a book")
    shown = run("show", tmp_path / "m.dpvb").stdout
    assert "source: a list of fruit" in shown
    assert "source: a book" in shown


# ---------------------------------------------------------------- words that texts give


@pytest.mark.parametrize("word", ["New York", "C++", "Dog", "naïve"])
def test_a_word_that_no_text_gives_is_refused_before_the_charge(word: str, ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match=re.escape(repr(word))):
        lda(vocabulary=[*WORDS, word]).fit(TEXTS, run=dpvb.Run(ledger=str(ledger), dataset="a"))
    assert dpvb.Ledger(ledger).remaining("a").num_charges == 0
    (tmp_path / "notes.txt").write_text("apple\n")
    (tmp_path / "words.txt").write_text(f"apple\n{word}\n")
    given = ["--vocabulary", tmp_path / "words.txt", "--epsilon", 1, "--delta", 1e-5, "--out", tmp_path / "m.dpvb"]
    assert repr(word) in run("fit", "lda", tmp_path / "notes.txt", *given, code=2).stderr
    assert lda(vocabulary=[*WORDS, word]).fit(np.eye(4)).vocabulary_[-1] == word


def test_other_languages_have_a_pattern_by_name(tmp_path: Path) -> None:
    words = ["größe", "maß", "naïve"]
    texts = ["Größe, Maß!", "naïve"] * 20
    fitted = lda(vocabulary=words, token_pattern="unicode").fit(texts)
    assert {word for topic in fitted.topics(3) for word in topic} == set(words)
    fitted.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    np.testing.assert_array_equal(again.transform(texts), fitted.transform(texts))
    (tmp_path / "notes.txt").write_text("\n".join(texts))
    (tmp_path / "words.txt").write_text("\n".join(words))
    given = ["--vocabulary", tmp_path / "words.txt", "--token-pattern", "unicode", "--epsilon", 1, "--delta", 1e-5]
    run("fit", "lda", tmp_path / "notes.txt", *given, "--topics", 2, "--quiet", "--out", tmp_path / "c.dpvb")
    assert dpvb.load(tmp_path / "c.dpvb").token_pattern == "unicode"


# ---------------------------------------------------------------- where public inputs come from


SCHEMA = Schema(
    columns=(Numeric("age", low=18, high=90), Categorical("work", ("private", "state"))),
    target=Target("ill", classes=("no", "yes")),
)
PEOPLE = {"age": [20.0, 40.0] * 20, "work": ["private", "state"] * 20, "ill": ["no", "yes"] * 20}
X, Y = np.eye(3).repeat(10, axis=0), np.arange(30) % 2
#: Fits, and the names of what they take for public.
PUBLIC: dict[str, Any] = {
    "texts": (lda(vocabulary=WORDS), (TEXTS,), "vocabulary n_components prior document_length parameters"),
    "rows": (dpvb.LogisticRegression(max_row_norm=1.0, **BUDGET), (X, Y), "columns max_row_norm classes parameters"),
    "table": (dpvb.LogisticRegression(**BUDGET), (Table(PEOPLE, SCHEMA),), "schema max_row_norm classes parameters"),
    "trials": (
        dpvb.BinomialRegression(max_trials=2, max_row_norm=1.0, **BUDGET),
        (X, Y, Y),
        "columns max_row_norm max_trials parameters",
    ),
    "counts": (
        dpvb.NegativeBinomialRegression(dispersion=1.0, max_count=9, max_row_norm=1.0, **BUDGET),
        (X, Y),
        "columns max_row_norm dispersion max_count parameters",
    ),
    "network": (
        dpvb.SigmoidBeliefNetwork(2, n_units=30, **BUDGET),
        (X,),
        "n_units columns n_components threshold parameters",
    ),
}


@pytest.mark.guarantees("public columns")
@pytest.mark.parametrize("name", PUBLIC)
def test_the_statement_names_each_public_input_and_its_source(name: str) -> None:
    model, rows, names = PUBLIC[name]
    stated = {one: f"source of {one}" for one in names.split()}
    fitted = model.set_params(provenance=stated).fit(*rows)
    assert [fact.split("; source: ")[1] for fact in fitted.privacy_.public] == list(stated.values())
    assert all(f"source: source of {one}" in " ".join(str(fitted.privacy_).split()) for one in stated)
    fitted = model.set_params(provenance=None).fit(*rows)
    assert len(fitted.privacy_.public) == len(stated)
    assert all(fact.endswith("; source: stated by the caller") for fact in fitted.privacy_.public)


@pytest.mark.parametrize("given", [{"words": "a list"}, "vocabulary", {"vocabulary": ""}, {"prior": "a\nb"}, 7, {1: 2}])
def test_provenance_speaks_of_what_is_public(given: Any) -> None:
    with pytest.raises(ParameterError, match="provenance must be a mapping"):
        lda(vocabulary=WORDS, provenance=given).fit(TEXTS)


def test_provenance_survives_a_model_file(tmp_path: Path) -> None:
    lda(vocabulary=WORDS, provenance={"vocabulary": "a list of fruit"}).fit(TEXTS).save(tmp_path / "m.dpvb")
    assert "source: a list of fruit" in str(dpvb.load(tmp_path / "m.dpvb").privacy_)


ROWS = np.random.default_rng(0).uniform(-1, 1, (40, 2))
SIMPLE = {"epsilon": 1.0, "delta": 1e-5}
NORM = float(np.linalg.norm(ROWS, axis=1).max())
CURVED = Spline("age", knots=tuple(np.quantile(ROWS[:, 0], [0.2, 0.5, 0.8]).tolist()), low=-1, high=1)
SINCE = Date("age", low="2019-03-04T10:15:36", high="2025-12-31T23:59")
SPENT = Target("spent", kind="numeric", low=0, high=float(ROWS.max()))


def of_column(column: Any, target: Target | None = None) -> Table:
    return Table({"age": ROWS[:, 0], "spent": ROWS[:, 1]}, Schema((column,), target))


LONG: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "matrix": (dpvb.LogisticRegression(low=ROWS.min(), high=1.0, **SIMPLE), (ROWS, ROWS[:, 0] > 0), "'low'", "ranges"),
    "columns": (dpvb.PCA(1, low=-1.0, high=ROWS.max(axis=0), **SIMPLE), (ROWS,), "'high'", "columns"),
    "response": (
        dpvb.LinearRegression(low=-1, high=1, y_range=(0, ROWS.max()), **SIMPLE),
        (ROWS, ROWS[:, 0]),
        "'y_range'",
        "y_range",
    ),
    "length of rows": (dpvb.PCA(1, max_row_norm=NORM, **SIMPLE), (ROWS,), "'max_row_norm'", "max_row_norm"),
    "knots": (dpvb.LogisticRegression(**SIMPLE), (of_column(CURVED), ROWS[:, 0] > 0), "'age'", "schema"),
    "moments": (dpvb.LogisticRegression(**SIMPLE), (of_column(SINCE), ROWS[:, 0] > 0), "'age'", "schema"),
    "target": (dpvb.LinearRegression(**SIMPLE), (of_column(Numeric("age", 0, 1), SPENT),), "'spent'", "y_range"),
    "schema": (
        dpvb.Mixture(1, **SIMPLE),
        (Table({"age": ROWS[:, 0]}, Schema((Numeric("age", low=float(ROWS[:, 0].min()), high=2.0),))),),
        "'age'",
        "schema",
    ),
}


@pytest.mark.guarantees("measured ranges")
@kills("public facts", "a longest row that is declared as it was measured, and nothing is said of it")
@edit("estimators/base.py", '("low", "high", "y_range", "max_row_norm"), ("max', '("low", "high", "y_range"), ("max')
@pytest.mark.parametrize("name", LONG)
def test_a_range_that_looks_computed_is_spoken_of_and_its_ends_are_not_shown(name: str) -> None:
    model, rows, said, what = LONG[name]
    with pytest.warns(DataDependentBoundWarning, match=f"The range of {said} has more digits") as found:
        fitted = clone(model).fit(*rows)
    (warned,) = (one for one in found if one.category is DataDependentBoundWarning)
    assert warned.filename == __file__
    assert "dpvb.private_range" in str(warned.message)
    assert not re.search(r"\d", str(warned.message))
    assert all(fact.endswith("; source: stated by the caller") for fact in fitted.privacy_.public)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataDependentBoundWarning)
        sourced = clone(model).set_params(provenance={what: "the pilot study of 2019"}).fit(*rows)
    assert sum(fact.endswith("; source: the pilot study of 2019") for fact in sourced.privacy_.public) == 1


def test_a_source_of_something_else_says_nothing_of_a_range() -> None:
    model = dpvb.PCA(1, max_row_norm=NORM, provenance={"parameters": "the pilot study of 2019"}, **SIMPLE)
    with pytest.warns(DataDependentBoundWarning):
        model.fit(ROWS)


def test_other_doors_speak_of_ranges_too() -> None:
    budget = {"epsilon": 1.0, "delta": 1e-5}
    with pytest.warns(DataDependentBoundWarning, match="'low', 'high'") as found:
        dpvb.private_range(ROWS[:, 0], low=ROWS.min(), high=ROWS.max(), **budget)
    ranged = dpvb.LogisticRegression(low=-1.0, high=1.0, n_steps=1, **SIMPLE)
    with pytest.warns(DataDependentBoundWarning, match="'high'") as selected:
        dpvb.private_select(ranged, [{"high": float(ROWS.max())}], ROWS, ROWS[:, 0] > 0, expected_runs=1.0, **budget)
    said = [one for one in (*found, *selected) if one.category is DataDependentBoundWarning]
    assert [one.filename for one in said] == [__file__] * 2


def test_a_range_that_a_frame_has_computed_is_spoken_of() -> None:
    frame = pd.DataFrame({"age": [17.0, 90.0], "hours": [1.0, 99.0]})
    typed = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, low=[17, 1], high=[90, 99])
    with pytest.warns(
        DataDependentBoundWarning, match=r"'low', 'high' is a pandas Series, such as X\.min\(\)"
    ) as found:
        clone(typed).set_params(low=frame.min(), high=frame.max()).fit(frame, [0, 1])
    assert not any(re.search(r"\d", str(one.message)) for one in found if one.category is DataDependentBoundWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataDependentBoundWarning)
        clone(typed).fit(frame, [0, 1])
        clone(typed).set_params(low=frame.min(), high=frame.max(), provenance={"ranges": "a pilot"}).fit(frame, [0, 1])


TYPED = [0, 17, 0.5, 36.6, 1e-5, 12345678, 123456789012.0, -2.5e9, 0.12345678, 20**0.5, 2 * 3**0.5, 0.07**0.5]


@pytest.mark.parametrize("end", TYPED)
def test_a_range_that_somebody_typed_is_nothing_to_speak_of(end: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataDependentBoundWarning)
        warn_of_ranges([("low", end), ("high", float("inf"))])
    with pytest.warns(DataDependentBoundWarning):
        warn_of_ranges([("low", end), ("high", 1 / 3)])


def test_an_argument_of_another_library_is_refused_before_a_charge() -> None:
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, low=0, high=1)
    with pytest.raises(
        TypeError, match=r"fit has no argument 'sample_weight'\. Its arguments are X, y, .*\. Pass weights of rows"
    ):
        model.fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0, 1.0])
    with pytest.raises(TypeError, match=r"has no argument 'weights'\. Its arguments are X, y, group\.$"):
        dpvb.PCA(1, epsilon=1.0, delta=1e-6, low=0, high=1).fit([[0.0, 1.0]], weights=[1.0])
    assert not hasattr(model, "privacy_")
