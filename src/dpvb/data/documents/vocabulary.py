"""The public list of words, and how a text becomes their ids."""

from __future__ import annotations

import gzip
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from dpvb.data.slabs import MAX_ENTRIES, MAX_ROWS, MAX_WIDTH, Slab
from dpvb.guards.errors import DataFormatError, ParameterError

Vocabulary: TypeAlias = "Iterable[str] | Mapping[str, int] | str | os.PathLike[str]"

TOKEN_PATTERN = "[a-z]+"

MISSING_VOCABULARY = (
    "Text needs vocabulary=, a list of words chosen without looking at these documents: a word list read off "
    "private documents would show by a column that somebody used a word. Three ways out: "
    "(1) a public word list, one word per line: vocabulary='words.txt'; "
    "(2) counts made elsewhere with fixed words: "
    "CountVectorizer(vocabulary=words).transform(texts), given as the matrix; "
    "(3) the dictionary of another, public corpus: "
    "vocabulary=CountVectorizer(min_df=10).fit(public_texts).vocabulary_."
)


def check_vocabulary(vocabulary: Vocabulary | None, *, width: int | None = None) -> tuple[str, ...]:
    """Return a public vocabulary as a tuple in column order.

    Args:
        vocabulary: words in column order, a mapping word -> column, or the path of a file with one word per
            line (UTF-8, may be gzipped). Public.
        width: number of columns that it must describe; public. None: any.

    Raises:
        DataFormatError: no vocabulary, a file that cannot be read, no words, an empty or repeated word,
            something that is not a string, or a wrong number of words.
    """
    if vocabulary is None:
        raise DataFormatError(MISSING_VOCABULARY)
    if isinstance(vocabulary, (str, os.PathLike)):
        words: list[Any] = _read_words(vocabulary)
    elif isinstance(vocabulary, Mapping):
        words = _words_in_column_order(vocabulary)
    elif isinstance(vocabulary, Iterable):
        words = list(vocabulary)
    else:
        raise DataFormatError(
            f"vocabulary must be a list of words, a mapping word -> column, or a file, got {type(vocabulary).__name__}."
        )
    if not 1 <= len(words) <= MAX_WIDTH:
        raise DataFormatError("vocabulary must hold at least one word, got none.")
    column_of: dict[str, int] = {}
    for column, word in enumerate(words):
        if not isinstance(word, str) or not word:
            raise DataFormatError(f"vocabulary must hold nonempty strings, got {word!r} as word {column + 1}.")
        if word in column_of:
            raise DataFormatError(
                f"vocabulary must not repeat a word, got {word!r} as word {column_of[word] + 1} "
                f"and as word {column + 1}."
            )
        column_of[word] = column
    if width is not None and len(words) != width:
        raise DataFormatError(
            f"The data have {width} columns but vocabulary holds {len(words)} words; column j must be word j."
        )
    return tuple(map(str, words))


class Tokenizer:
    """Turns documents into word ids: lower case, every match of the pattern, unknown words dropped."""

    def __init__(self, vocabulary: tuple[str, ...], token_pattern: str = TOKEN_PATTERN) -> None:
        """Compile the public pattern.

        Raises:
            ParameterError: a pattern that is not a regular expression or has several groups.
        """
        try:
            pattern = re.compile(token_pattern)
        except (re.error, TypeError) as error:
            raise ParameterError(f"token_pattern must be a regular expression, got {token_pattern!r}.") from error
        if pattern.groups > 1:
            raise ParameterError(f"token_pattern must have at most one group, got {token_pattern!r}.")
        self._find_all = pattern.findall
        self._id_of = {word: column for column, word in enumerate(vocabulary)}

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, known and unknown."""
        return self._find_all(str.lower(text))

    def slabs(self, documents: Iterable[object]) -> Iterator[Slab]:
        """Yield the documents' rows; a document is str or UTF-8 bytes, and anything else is an empty row."""
        ids, ends = array("i"), array("q", [0])
        id_of = self._id_of
        for document in documents:
            text = _text_of(document)
            if text is not None:
                ids.extend(id_of[token] for token in self.tokens(text) if token in id_of)
            ends.append(len(ids))
            if len(ends) > MAX_ROWS or len(ids) >= MAX_ENTRIES:
                yield _slab(ids, ends)
                ids, ends = array("i"), array("q", [0])
        if len(ends) > 1:
            yield _slab(ids, ends)


def _text_of(document: object) -> str | None:
    """The text of str or UTF-8 bytes, told by the type alone: a private object's own methods are not called."""
    kind = type(document)
    if issubclass(kind, bytes):
        try:
            return bytes.decode(cast(bytes, document))
        except UnicodeDecodeError:
            return None
    return cast(str, document) if issubclass(kind, str) else None


def _slab(ids: array[int], ends: array[int]) -> Slab:
    indices = np.frombuffer(ids, dtype=np.int32) if ids else np.empty(0, np.int32)
    return Slab(np.frombuffer(ends, dtype=np.int64), indices, np.ones(len(ids)))


def _read_words(path: str | os.PathLike[str]) -> list[str]:
    try:
        with open(path, "rb") as file:
            content = file.read()
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as error:
        raise DataFormatError(
            f"The vocabulary file {os.fspath(path)!r} cannot be read as UTF-8 text, one word per line: "
            f"{type(error).__name__}."
        ) from error
    return [word.strip() for word in text.rstrip().split("\n")] if text.strip() else []


def _words_in_column_order(columns: Mapping[str, int]) -> list[Any]:
    numbers = [column if isinstance(column, (int, np.integer)) else -1 for column in columns.values()]
    if sorted(numbers) != list(range(len(columns))):
        raise DataFormatError("vocabulary, as a mapping word -> column, must use each column 0, 1, ... exactly once.")
    return sorted(columns, key=lambda word: int(columns[word]))
