"""Public lists that ship with the package, by language: words to count, and words to leave out.

`words/NOTICE.md` names where they come from, and their licences.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Final, TypeGuard

from dpvb.guards.errors import ParameterError, check_choice

#: Languages with a list, which are its name; `english:2000` is the 2,000 most frequent words of it.
LANGUAGES: Final = ("english", "french", "german", "spanish")
SOURCE: Final = "wordfreq 3.1.1, CC BY-SA 4.0"
_FOLDER = files("dpvb.data.documents") / "words"


@cache
def stop_words(language: str) -> frozenset[str]:
    """Words of a language that say little of what a text is about, in lower case; public.

    Words with an apostrophe are there with the typographic one, too.

    Args:
        language: one of `LANGUAGES`.

    Raises:
        ParameterError: for another language.
    """
    name = check_choice("language", language, LANGUAGES)
    words = (_FOLDER / f"{name}_stop.txt").read_text(encoding="utf-8").split()
    return frozenset(words) | {word.replace("'", "’") for word in words}


def is_name(value: object) -> TypeGuard[str | PurePath]:
    """Whether a parameter says a list's name; a file of such a name is called by its whole path."""
    return isinstance(value, (str, PurePath)) and str(value).partition(":")[0] in LANGUAGES


def frequencies(name: str | os.PathLike[str]) -> dict[str, float]:
    """Words of a list in lower case, the most frequent first, each with its share of all that is said; public.

    Args:
        name: a language, and behind a colon how many words, if not all: "english:2000".

    Raises:
        ParameterError: for another language or number.
    """
    language, colon, number = str(name).partition(":")
    share_of_word = _frequencies(check_choice("language", language, LANGUAGES))
    most = len(share_of_word) if not colon else int(number) if number.isdecimal() and len(number) < 10 else 0
    if not 1 <= most <= len(share_of_word):
        raise ParameterError(
            f"The number of words behind {language!r} must be from 1 to {len(share_of_word)}, as in "
            f"'{language}:2000', got {str(name)!r}."
        )
    return dict(list(share_of_word.items())[:most])


def frequencies_of(name: str | os.PathLike[str], vocabulary: Sequence[str]) -> list[float]:
    """Frequencies of a list for the words of a vocabulary, in its order; 0 where the list lacks a word; public.

    Args:
        name: as in `frequencies`.
        vocabulary: public words.

    Raises:
        ParameterError: as in `frequencies`.
    """
    share_of_word = frequencies(name)
    return [share_of_word.get(word, 0.0) for word in vocabulary]


def that_fit(vocabulary: Sequence[str]) -> tuple[str, ...]:
    """Names of the lists that hold at least half of the words of a public vocabulary."""
    return tuple(
        name for name in LANGUAGES if 2 * sum(word in _frequencies(name) for word in vocabulary) >= len(vocabulary) > 0
    )


def words(name: str | os.PathLike[str]) -> tuple[str, ...]:
    """The words of `frequencies`: a vocabulary, to which others may be added."""
    return tuple(frequencies(name))


def told(vocabulary: tuple[str, ...] | None) -> str:
    """Where a vocabulary comes from, in words, if it is a list or its beginning; else nothing."""
    for language in LANGUAGES if vocabulary else ():
        words = tuple(_frequencies(language))
        if vocabulary == words[: len(vocabulary or ())]:
            return f"; source: the most frequent words of the public list {language!r} of dpvb ({SOURCE})"
    return ""


@cache
def _frequencies(language: str) -> dict[str, float]:
    text = gzip.decompress((_FOLDER / f"{language}.txt.gz").read_bytes()).decode()
    return {word: float(share) for word, share in map(str.split, text.splitlines())}
