"""The public lists of words that ship with the package."""

import pytest

from dpvb.data.documents.vocabulary import Tokenizer
from dpvb.data.documents.word_lists import LANGUAGES, stop_words
from dpvb.errors import ParameterError


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_stop_word_is_a_word_of_some_text(language):
    Tokenizer(tuple(stop_words(language)), "unicode")


def test_stop_words_are_those_of_the_language_with_both_apostrophes():
    assert {"the", "don't", "don’t", "don"} <= stop_words("english")
    assert {"für", "über"} <= stop_words("german")
    assert {"été", "c’est"} <= stop_words("french")
    assert {"qué", "también"} <= stop_words("spanish")
    assert not any({"patient", "wasser", "maladie", "agua"} & stop_words(language) for language in LANGUAGES)


def test_an_unknown_language_is_refused_with_those_there_are():
    with pytest.raises(ParameterError, match="language must be one of 'english', 'french', 'german', 'spanish', got"):
        stop_words("latin")
