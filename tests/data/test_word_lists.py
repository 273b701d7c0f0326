"""The public lists of words that ship with the package."""

from __future__ import annotations

import hashlib
import itertools
import re
from importlib.resources import files
from pathlib import Path

import pytest

import dpvb
from dpvb.data import check_vocabulary, open_documents, stop_words, words
from dpvb.data.documents.vocabulary import Tokenizer
from dpvb.data.documents.word_lists import LANGUAGES, frequencies
from dpvb.errors import DataFormatError, ParameterError

#: SHA-256 of the files that benchmarks/make_word_lists.py writes.
MADE = {
    "english": "7f878e358c39741cc914ba13072818dfc1c49903ea4995a7ca3b34437b202000",
    "french": "e49d9ef73836a20ad588d1cd049cb6ba56e5051e2d710ed5f7dcbff5a017ab08",
    "german": "c16ab5b030504caa55d8bd6a5c404b4e941f3b20d8ec42febfa116a93f010af5",
    "spanish": "138018e625096d85393c5795f05eb424972617d9de873c47948d76ce3da97056",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_stop_word_is_a_word_of_some_text(language: str) -> None:
    Tokenizer(tuple(stop_words(language)), "unicode")


def test_stop_words_are_those_of_the_language_with_both_apostrophes() -> None:
    assert {"the", "don't", "don’t", "don"} <= stop_words("english")
    assert {"für", "über"} <= stop_words("german")
    assert {"été", "c’est"} <= stop_words("french")
    assert {"qué", "también"} <= stop_words("spanish")
    assert not any({"patient", "wasser", "maladie", "agua"} & stop_words(language) for language in LANGUAGES)


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(ParameterError, match="language must be one of 'english', 'french', 'german', 'spanish', got"):
        stop_words("latin")


def test_the_lists_are_small_and_say_where_they_come_from() -> None:
    folder = files("dpvb.data.documents") / "words"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) <= 300_000
    notice = (folder / "NOTICE.md").read_text(encoding="utf-8")
    assert all(said in notice for said in ("wordfreq 3.1.1", "CC BY-SA 4.0", "SUBTLEX", "Apache-2.0"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_list_is_what_its_script_made(language: str) -> None:
    content = (files("dpvb.data.documents") / "words" / f"{language}.txt.gz").read_bytes()
    assert hashlib.sha256(content).hexdigest() == MADE[language]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_list_holds_ten_thousand_words_that_texts_have_the_most_frequent_first_and_no_stop_word(
    language: str,
) -> None:
    known = words(language)
    assert len(set(known)) == len(known) == 10_000
    assert not set(known) & stop_words(language)
    Tokenizer(known, "english" if language == "english" else "unicode")
    shares = list(frequencies(language).values())
    assert all(more >= less > 0 for more, less in itertools.pairwise(shares))
    assert sum(shares) < 1
    assert {"english": "patient", "french": "patient", "german": "straße", "spanish": "paciente"}[language] in known


def test_a_number_behind_the_name_takes_the_most_frequent() -> None:
    assert words("german:7") == words("german")[:7] == check_vocabulary(Path("german:7"))
    for wrong in ("german:0", "german:10001", "german:-5", "german:ten", "german:", "german:²"):
        with pytest.raises(ParameterError, match=re.escape(f"from 1 to 10000, as in 'german:2000', got '{wrong}'")):
            check_vocabulary(wrong)


def test_a_file_of_a_lists_name_is_called_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "english").write_text("liver\nkidney\n")
    assert check_vocabulary(tmp_path / "english") == ("liver", "kidney")


def test_a_name_that_is_no_list_and_no_file_is_refused_with_the_lists_there_are() -> None:
    with pytest.raises(
        DataFormatError, match=r"'latin' cannot be read .* Lists that ship with dpvb are english, french"
    ):
        check_vocabulary("latin")


def test_a_list_with_letters_that_the_pattern_lacks_is_refused_with_one_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Die Straße ist naß.\n", encoding="utf-8")
    with pytest.raises(DataFormatError, match="token_pattern='unicode' makes them"):
        open_documents(tmp_path / "notes.txt", vocabulary="german")
    source = open_documents(tmp_path / "notes.txt", vocabulary="german", token_pattern="unicode")
    [chunk] = source.chunks()
    assert [words("german")[v] for v in chunk.rows.indices] == ["straße"]


def test_the_statement_names_the_list_and_its_source_for_as_many_words_as_are_taken() -> None:
    def said(vocabulary: object, **options: object) -> str:
        model = dpvb.LDA(2, epsilon=1, delta=1e-5, n_steps=1, vocabulary=vocabulary, **options)
        return " ".join(str(model.fit(["the river", "a house"]).privacy_).split())

    named = (
        "30 terms; source: the most frequent words of the public list 'english' of dpvb (wordfreq 3.1.1, CC BY-SA 4.0)"
    )
    assert named in said("english:30")
    assert named in said(words("english:30"))
    assert f"{named}; source: our choice" in said("english:30", provenance="vocabulary=our choice")
    assert "31 terms; source: stated by the caller" in said([*words("english:30"), "metformin"])
