"""Topics of texts whose words nobody has listed: what a user types, what is found, charged, refused and said."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forged import forge
from planted import edit, kills
from test_cli import run

import dpvb
from dpvb import accounting, federated
from dpvb.core.noise import InsecureNoise
from dpvb.data import open_documents
from dpvb.data.documents.bag_of_words import Texts
from dpvb.errors import (
    BudgetError,
    CheckpointError,
    DataFormatError,
    DpvbWarning,
    EmptyVocabularyError,
    FewWordsWarning,
    ModelFileError,
    ParameterError,
)
from dpvb.ledger import Ledger

COMMON = [f"{a}{b}{c}" for a in "bcdfgh" for b in "aeiou" for c in "lmnrst"]  # 180 words.
SECRET = "zyxwvsecret"
DELTA = 1e-5


def texts(n: int = 1_500, seed: int = 0) -> list[str]:
    """Texts of two topics; the last one has a word that nobody else has."""
    rng = np.random.default_rng(seed)
    halves = np.array(COMMON[:90]), np.array(COMMON[90:])
    made = [" ".join(rng.choice(halves[rng.integers(2)], 25)) for _ in range(n)]
    return [*made[:-1], f"{made[-1]} {SECRET} {SECRET}"]


def model(**options: Any) -> dpvb.LDA:
    usual = {"n_components": 2, "vocabulary": "private", "epsilon": 4.0, "delta": DELTA, "n_steps": 3}
    return dpvb.LDA(**{**usual, "random_state": 0, **options})


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = InsecureNoise(7)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)


@pytest.fixture(scope="module")
def fitted() -> dpvb.LDA:
    return model().fit(texts())


@pytest.fixture
def book(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", unit="document", neighboring_relation="add_or_remove_one", epsilon=5.0, delta=2e-5)
    return tmp_path / "budget.db"


# --- what is found ------------------------------------------------------------------------------------------


def test_words_are_found_sorted_and_only_those_of_many(fitted: dpvb.LDA) -> None:
    assert list(fitted.vocabulary_) == sorted(fitted.vocabulary_)
    assert 100 < fitted.n_features_in_ == len(fitted.vocabulary_)
    assert set(fitted.vocabulary_) <= set(COMMON)
    assert fitted.components_.shape == (2, len(fitted.vocabulary_))
    # Both topics are there: the words of a half are together.
    tops = [{word in COMMON[:90] for word in topic} for topic in fitted.topics(8)]
    assert tops in ([{True}, {False}], [{False}, {True}])


def test_a_file_keeps_the_words(fitted: dpvb.LDA, tmp_path: Path) -> None:
    fitted.save(tmp_path / "notes.dpvb")
    assert SECRET.encode() not in (tmp_path / "notes.dpvb").read_bytes()
    again = dpvb.load(tmp_path / "notes.dpvb")
    assert again.vocabulary_ == fitted.vocabulary_
    assert again.get_params()["vocabulary"] == "private"
    np.testing.assert_array_equal(again.transform(texts(20, seed=1)), fitted.transform(texts(20, seed=1)))
    assert again.topics(3) == fitted.topics(3)
    assert again.privacy_ == fitted.privacy_


@pytest.mark.parametrize("words", [["cat"], ["cat"] * 180, [1] * 180, [""] * 180, "english", {"cat": 0}, 3])
def test_a_file_whose_words_are_no_vocabulary_is_refused(fitted: dpvb.LDA, words: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "notes.dpvb")
    forge(tmp_path / "notes.dpvb", tmp_path / "changed.dpvb", learned={"vocabulary": words})
    with pytest.raises(ModelFileError, match="the parts of the file do not fit together"):
        dpvb.load(tmp_path / "changed.dpvb")


def test_the_budget_is_shared_as_asked(fitted: dpvb.LDA) -> None:
    statement = fitted.privacy_
    finds, steps = (release.event for release in statement.releases)
    assert finds.added_delta == DELTA / 20
    assert steps.added_delta == 0
    parts = np.array([finds.noise_multiplier**-2, 3 * steps.noise_multiplier**-2])
    np.testing.assert_allclose(parts / parts.sum(), [0.2, 0.8])
    noise = [replace(finds, added_delta=0.0), steps]
    rest = accounting.epsilon_of(noise, delta=DELTA * 19 / 20, neighboring_relation="add_or_remove_one")
    assert statement.epsilon == rest
    assert 0.995 * 4 < statement.epsilon <= 4
    statement.verify()
    told = " ".join(str(statement).split())
    assert "whose noisy total exceeds a threshold" in told
    assert "with a probability of at most 5e-07, which is part of delta" in told
    assert f"words ({fitted.n_features_in_})" in told
    assert f"the {fitted.n_features_in_} words that left, each with a noisy total above" in told
    assert "a document gave 100 at most" in told
    assert "what a word is: token pattern '[a-z]+', stop words none" in told
    wide = model(vocabulary_share=0.6, vocabulary_delta=5e-6).fit(texts())
    assert wide.privacy_.releases[0].event.added_delta == 5e-6
    assert wide.privacy_.releases[0].event.noise_multiplier < 0.7 * finds.noise_multiplier
    assert wide.privacy_.epsilon <= 4


def test_the_totals_that_found_words_are_the_first_release(fitted: dpvb.LDA) -> None:
    """The background is read from them; no word totals are released again."""
    assert [release.blocks[0].name for release in fitted.privacy_.releases] == ["words", "counts"]
    q = fitted._q
    assert q.words_v is not None
    assert q.words_std == fitted.privacy_.releases[0].blocks[0].noise_std
    assert q.words_v.min() > 1 + 4.5 * q.words_std  # All of them are above the threshold.


def test_stop_words_are_not_looked_for(tmp_path: Path) -> None:
    made = [f"the and {text}" for text in texts()]
    found = model(stop_words="english").fit(made).vocabulary_
    assert not {"the", "and"} & set(found)
    (tmp_path / "stop.txt").write_text(f"the\n{COMMON[0]}\n")
    for own in (["the", COMMON[0]], str(tmp_path / "stop.txt"), tmp_path / "stop.txt"):
        found = model(stop_words=own).fit(made).vocabulary_
        assert "and" in found
        assert not {"the", COMMON[0]} & set(found)
    found = model(stop_words=["The", "the", COMMON[0].upper()]).fit(made).vocabulary_
    assert not {"the", COMMON[0]} & set(found)
    assert "and" in model(stop_words=[]).fit(made).vocabulary_
    with pytest.raises(EmptyVocabularyError):
        model(stop_words=["the"]).fit(["the the", "the"])


def test_a_person_is_one_unit() -> None:
    """One person's word in all of their 400 texts is nobody else's; a word of 400 people is found."""
    made = texts(1_600)
    persons = [*["one"] * 400, *range(1_200)]
    lone = [f"{text} lonely" if n < 400 else f"{text} shared" for n, text in enumerate(made)]
    found = model().fit(lone, group=persons)
    assert found.privacy_.unit == "person"
    assert "shared" in found.vocabulary_
    assert "lonely" not in found.vocabulary_


def test_a_cluster_finds_the_same_to_the_last_bit(fixed_noise: None, two_processes: Any) -> None:
    alone, spread = model().fit(texts()), model().fit(texts(), run=dpvb.Run(cluster=two_processes))
    assert alone.vocabulary_ == spread.vocabulary_
    np.testing.assert_array_equal(alone.components_, spread.components_)


def test_without_noise_every_word_leaves_that_weighs_more_than_one_units() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model(epsilon=math.inf).fit(texts())
    assert set(found.vocabulary_) == set(COMMON)


def test_so_does_minibatch_and_the_number_of_topics_may_be_planned() -> None:
    assert model(sampling_prob=0.2).fit(texts()).n_features_in_ > 50
    planned = model(n_components="auto", n_units=1_500).fit(texts())
    assert planned.components_.shape[0] >= 1


def test_a_public_number_of_documents_decides_on_the_word_weights_of_words_that_are_found() -> None:
    """The release that finds words counts no documents."""
    powers = [model(n_components=2, n_units=number)._task(texts()).model.word_weight_power for number in (50, 10**6)]
    assert powers == [None, 0.25]
    assert model(n_units=10**6, word_weight_power=0.5)._task(texts()).model.word_weight_power == 0.5


def test_topics_above_the_noise_are_counted_as_ever(fitted: dpvb.LDA) -> None:
    assert 0 <= fitted.topics_above_noise_ <= 2
    # A part of the budget finds words.
    shares = (0.1, 0.2, 0.5, 0.9)
    forecasts = [
        dpvb.plan(model(vocabulary_share=share), 1_500, 200, epsilons=()).expected_accuracy for share in shares
    ]
    strengths = [forecast.strength for forecast in forecasts]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] > strengths[-1]


def test_a_dry_run_reads_nothing_and_finds_made_up_words() -> None:
    made = model().dry_run(n_units=3_000)
    assert made.privacy_.dry_run
    assert made.n_features_in_ > 100


# --- what is charged ----------------------------------------------------------------------------------------


def test_a_ledger_counts_what_is_added_to_delta(book: Path) -> None:
    options, run = {"epsilon": 1.2, "vocabulary_share": 0.7}, dpvb.Run(ledger=book, dataset="notes")
    for _ in range(2):
        fitted = model(**options).fit(texts(), run=run)
    with Ledger(book) as ledger:
        ledger.verify()
        [_, last] = charges = [entry for entry in ledger.entries() if entry.kind == "charge"]
        assert fitted.privacy_.plan_digest == last.facts["plan"]
        added = [entry.total_units[-1] for entry in charges]
        assert added == [25_000_000, 50_000_000]  # In billionths of the cap's delta.
        left = ledger.remaining("notes")
        assert left.num_charges == 2
        assert left.spent_if_fixed <= left.spent_adaptive
    model(**options, vocabulary_delta=1e-6).fit(texts(), run=run)
    with pytest.raises(BudgetError, match="A tenth of the cap's delta is kept for all that plans add"):
        model(**options).fit(texts(), run=run)


@pytest.mark.guarantees("word totals")
def test_a_fit_that_stops_goes_on_with_the_words_that_it_found(book: Path, tmp_path: Path) -> None:
    def stop(step: int, plan: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    options = {"ledger": book, "dataset": "notes", "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        model().fit(texts(), run=dpvb.Run(**options, progress=stop))
    for path in [book, *(tmp_path / "run").rglob("*")]:
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
    with Ledger(book) as ledger:
        spent = ledger.remaining("notes").spent_adaptive
    # Whatever the data are by now, words that were released are not released anew.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = model().fit(texts()[:1], run=dpvb.Run(**options))
    assert len(first.vocabulary_) > 100
    with Ledger(book) as ledger:
        assert ledger.remaining("notes").spent_adaptive == spent
    again = model().fit(texts()[:1], run=dpvb.Run(**options, resume="load"))
    assert again.vocabulary_ == first.vocabulary_
    np.testing.assert_array_equal(again.components_, first.components_)


@kills("crashes", "a run whose words are lost goes on with others")
@edit(
    "estimators/private_words.py", "if run is not None and run.num_recorded and run.recorded(0) is None:", "if False:"
)
def test_a_fit_whose_words_are_lost_does_not_go_on_with_others(book: Path, tmp_path: Path) -> None:
    def stop(step: int, plan: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    options = {"ledger": book, "dataset": "notes", "checkpoint": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        model().fit(texts(), run=dpvb.Run(**options, progress=stop))
    [words] = (tmp_path / "run").glob("release-00000-*.sealed")
    words.unlink()
    with pytest.raises(CheckpointError, match="The words that this run has found are lost") as caught:
        model().fit(texts(), run=dpvb.Run(**options))
    assert not any("Continue" in note for note in caught.value.__notes__)


def test_no_words_are_a_refusal_that_says_what_stays_spent(book: Path, tmp_path: Path) -> None:
    with pytest.raises(
        EmptyVocabularyError, match=r"no word was found in enough documents.* stays spent.*public list"
    ) as found:
        model(epsilon=0.5).fit([f"{SECRET} alone"] * 3, run=dpvb.Run(ledger=book, dataset="notes"))
    assert SECRET not in "".join([str(found.value), *found.value.__notes__])
    assert "3 of 4 releases had not started and were given back" in found.value.__notes__[0]
    with Ledger(book) as ledger:
        ledger.verify()
        assert 0 < ledger.remaining("notes").spent_adaptive < 0.5
    with pytest.raises(EmptyVocabularyError) as kept:
        model(epsilon=0.5).fit([], run=dpvb.Run(ledger=book, dataset="notes", checkpoint=tmp_path / "run"))
    assert kept.value.__notes__ == ["The data set 'notes' was charged before this happened."]
    for nothing in ([], ["", ""], [None, 3]):
        with pytest.raises(EmptyVocabularyError):
            model().fit(nothing)


def test_few_words_are_said() -> None:
    with pytest.warns(FewWordsWarning, match=r"vocabulary: 2 words were found .* larger vocabulary_share"):
        model().fit(["cat dog"] * 500)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewWordsWarning)
        model().fit(texts())


@pytest.mark.guarantees("word totals")
def test_nothing_is_said_of_words_that_nobody_shares(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = model().fit(texts())
    out = "".join([*map(str, capfd.readouterr()), *(str(one.message) for one in said), str(made.privacy_), repr(made)])
    assert SECRET not in out + made._repr_html_()
    assert SECRET not in repr(Texts(texts()))


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"neighboring_relation": "replace_one"}, "neighboring_relation must be 'add_or_remove_one'"),
        ({"vocabulary_share": 1.0}, "vocabulary_share"),
        ({"delta": "small"}, "delta must"),
        ({"delta": 0.0}, "delta must"),
        ({"vocabulary_share": 0.0}, "vocabulary_share"),
        ({"vocabulary_delta": DELTA}, "vocabulary_delta"),
        ({"vocabulary_delta": 0.0}, "vocabulary_delta"),
        ({"prior": {"cat": 1.0}}, "prior must be None"),
        ({"release_word_totals": False, "word_weight_power": 0.0}, "release_word_totals must be True"),
        ({"public_vocabulary": True}, "public_vocabulary must be False"),
        ({"stop_words": "klingon"}, "stop_words must be one of 'english', .*, or a file with one per line"),
        ({"stop_words": Path("german:200")}, "stop_words must be one of"),
        ({"stop_words": 3}, "stop_words must hold nonempty strings"),
        ({"stop_words": ["the", ""]}, "stop_words must hold nonempty strings"),
        ({"stop_words": ["the", 3]}, "stop_words must hold nonempty strings"),
        ({"token_pattern": "("}, "token_pattern"),
        ({"n_components": 0}, "n_components"),
        ({"provenance": {"vocabulary": "a book"}}, "provenance"),
    ],
)
def test_public_faults_cost_nothing(options: dict[str, Any], word: str, book: Path) -> None:
    with pytest.raises(ParameterError, match=word):
        model(**options).fit(texts(), run=dpvb.Run(ledger=book, dataset="notes"))
    with Ledger(book) as ledger:
        assert ledger.remaining("notes").num_charges == 0


def test_a_cluster_that_cannot_work_costs_nothing(book: Path) -> None:
    with pytest.raises(ParameterError, match="cluster must be"):
        model().fit(texts(), run=dpvb.Run(cluster="local:none", ledger=book, dataset="notes"))
    with Ledger(book) as ledger:
        assert ledger.remaining("notes").num_charges == 0


def test_counts_have_public_columns_already() -> None:
    for counts in (np.ones((3, 4)), pd.DataFrame({"cat": [1, 2]}), dpvb.data.BagOfWords(np.ones((3, 4)))):
        with pytest.raises(DataFormatError, match="X must be texts where vocabulary='private'"):
            model().fit(counts)


def test_what_belongs_to_private_words_is_refused_without_them() -> None:
    for options in ({"stop_words": "english"}, {"vocabulary_delta": 1e-7}):
        with pytest.raises(ParameterError, match="must be None unless vocabulary='private'"):
            model(vocabulary=COMMON, **options).fit(texts())
    with pytest.raises(ParameterError, match="vocabulary must be 'private' for documents"):
        model(vocabulary=COMMON).fit(Texts(texts()))


def test_federations_and_selections_need_a_public_list() -> None:
    shards = [{"X": texts(200)}, {"X": texts(200, seed=1)}]
    with pytest.raises(ParameterError, match="vocabulary must be a public list"):
        federated.simulate(model(), shards)
    with pytest.raises(ParameterError, match="vocabulary must be a public list in a selection"):
        dpvb.private_select(model(), [{"clip_scale": 0.05}, {"clip_scale": 0.1}], X=texts(), epsilon=1.0, delta=DELTA)


# --- files and the command line -----------------------------------------------------------------------------


def files(folder: Path) -> dict[str, Path]:
    """The same texts in every form that has texts."""
    made = texts()
    frame = pd.DataFrame({"text": made, "who": np.arange(len(made)) // 2})
    paths = {name: folder / f"notes.{name}" for name in ("csv", "jsonl", "txt")}
    frame.to_csv(paths["csv"], index=False)
    paths["jsonl"].write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    paths["txt"].write_text("\n".join(made))
    paths["folder"] = folder / "notes"
    paths["folder"].mkdir()
    for n, text in enumerate(made):
        (paths["folder"] / f"{n:05d}.txt").write_text(text)
    return paths


def test_every_file_of_texts_gives_the_same_words(tmp_path: Path, fixed_noise: None) -> None:
    expected = model().fit(texts()).vocabulary_
    for path in files(tmp_path).values():
        assert model().fit(open_documents(path, vocabulary="private")).vocabulary_ == expected
    whole = model().fit(texts(), group=np.arange(1_500) // 2).vocabulary_
    for name in ("csv", "jsonl"):
        source = open_documents(tmp_path / f"notes.{name}", vocabulary="private", group_column="who")
        assert model().fit(source).vocabulary_ == whole


def test_of_a_person_in_two_files_all_words_count_as_in_one_file(tmp_path: Path, fixed_noise: None) -> None:
    frames, found = {}, []
    for name, word in (("a", "early"), ("b", "late")):
        made = [f"{text} {word}" for text in texts(400)]
        frames[name] = pd.DataFrame({"text": made, "who": np.arange(400)})
        frames[name].to_csv(tmp_path / f"{name}.csv", index=False)
    pd.concat(frames.values()).to_csv(tmp_path / "both.csv", index=False)
    for paths in ([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "both.csv"):
        source = open_documents(paths, vocabulary="private", group_column="who")
        assert source.count() == 400
        found.append(model(epsilon=8.0).fit(source).vocabulary_)
    assert {"early", "late"} <= set(found[0])
    assert found[0] == found[1]
    for paths in ([tmp_path / "a.csv"], [tmp_path / "a.csv", tmp_path / "b.csv"]):
        other = open_documents(paths, vocabulary="private", group_column="who", exclude_groups=range(200, 400))
        assert other.count() == 200


def test_public_documents_have_a_list() -> None:
    with pytest.raises(ParameterError, match="vocabulary must be a list with public=: public documents hide no words"):
        model(epsilon=math.inf).fit(texts(20), public=True)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("c.npz", {}, "must be a public list, or left out, for counts"),
        ("c.csv", {"stream": True}, "stream must be left out"),
        ("c.csv", {"width": 3}, "width must be left out"),
        ("c.txt", {"group_column": "who"}, "group_column needs jsonl, csv or parquet"),
        ("c.jsonl", {"encoding": "latin-1"}, "encoding needs a csv or txt file"),
        ("c.csv", {"text_column": "words"}, "words"),
    ],
)
def test_files_that_do_not_fit_are_refused(name: str, options: dict[str, Any], word: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text,who\ncat,1\n")
    with pytest.raises((ParameterError, DataFormatError), match=word):
        open_documents(tmp_path / name, vocabulary="private", **options)


def test_the_command_line_fits_shows_and_goes_on(tmp_path: Path) -> None:
    notes, out = files(tmp_path)["csv"], tmp_path / "notes.dpvb"
    given = ["--vocabulary", "private", "--stop-words", "english", "--topics", "2", "--n-steps", "3"]
    given += ["--vocabulary-share", "0.3", "--epsilon", "4", "--delta", "1e-5"]
    done = run("fit", "lda", notes, *given, "--out", out)
    assert SECRET not in done.output
    fitted = dpvb.load(out)
    assert set(fitted.vocabulary_) <= set(COMMON)
    assert "threshold" in run("show", out).output
    assert fitted.topics(1)[0][0] in run("show", out, "--what", "topics").output
    run("transform", out, notes, "--out", tmp_path / "theta.csv")
    run("fit", "lda", notes, *given, "--out", tmp_path / "none", "--dry-run")


def test_a_command_that_was_stopped_goes_on_from_elsewhere(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, out = files(tmp_path)["csv"], tmp_path / "notes.dpvb"
    given = ["--vocabulary", "private", "--topics", "2", "--n-steps", "3", "--epsilon", "4", "--delta", "1e-5"]
    counted = ["--ledger", book, "--dataset", "notes", "--checkpoint", tmp_path / "run"]
    run("fit", "lda", notes, *given, *counted, "--out", out)
    first = dpvb.load(out).vocabulary_
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run("fit", "lda", notes, *given, *counted, "--out", out, "--resume", "load", "--overwrite")
    assert dpvb.load(out).vocabulary_ == first


def test_warnings_of_this_kind_are_dpvbs() -> None:
    assert issubclass(FewWordsWarning, DpvbWarning)


def test_a_plan_says_how_many_documents_must_use_a_word() -> None:
    usual = model(epsilon=1.0, n_steps=None)
    mechanism = usual._task([]).plan.releases[0].mechanism
    given = ["--vocabulary", "private", "--n-units", "3000", "--epsilon", "1", "--delta", str(DELTA)]
    facts = json.loads(run("plan", "lda", *given, "--json").output)
    [number] = facts["details"].values()
    assert number == math.ceil(10 * mechanism.threshold)
