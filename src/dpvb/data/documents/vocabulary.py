"""The public list of words, and how a text becomes their ids."""

from __future__ import annotations

import gzip
import math
import os
import re
import sys
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, cast

import numpy as np

from dpvb.data.documents import word_lists
from dpvb.data.slabs import MAX_WIDTH, Slab
from dpvb.data.spelling import number
from dpvb.data.tables.matrices import plain_row
from dpvb.guards.errors import DataFormatError, ParameterError, check_path, reason_of
from dpvb.kernels.spans import MAX_ENTRIES, MAX_ROWS

Vocabulary: TypeAlias = "Iterable[str] | Mapping[str, int] | str | os.PathLike[str]"

#: Default pattern of a word of a text in lower case.
TOKEN_PATTERN = "[a-z]+"
# Ideographs and kana: one character is a word, as no blanks stand between words.
_CJK = (
    "\u3005-\u3007\u3021-\u3029\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Unreachable words that an error names, and that it makes a pattern of; the longest pattern that it shows.
_MOST_NAMED, _MOST_SPELLED, _MOST_SHOWN = 5, 20, 200
# Limit for a word that is not listed in advance.
_LONGEST = 100
#: The vocabulary that a release is to find.
PRIVATE = "private"

MISSING_VOCABULARY = (
    "Text needs vocabulary=, a list of words chosen without looking at these documents: a word list read off "
    "private documents would show by a column that a private document contains a word. Three ways out: "
    "(1) a public word list: vocabulary='english', 'french', 'german' or 'spanish', which ship with dpvb, or a file of "
    "your own with one word per line: vocabulary='words.txt'; "
    "(2) counts made elsewhere with fixed words: "
    "CountVectorizer(vocabulary=words).transform(texts), given as the matrix; "
    "(3) the dictionary of another, public corpus: "
    "vocabulary=CountVectorizer(min_df=10).fit(public_texts).vocabulary_. "
    "Or vocabulary='private' has a part of the budget of a dpvb.LDA find the words that many documents use."
)


def check_vocabulary(vocabulary: Vocabulary | None, *, width: int | None = None) -> tuple[str, ...]:
    """Return a public vocabulary as a tuple in column order.

    Args:
        vocabulary: words in column order, a mapping word -> column, the name of a list of `word_lists`, or the path of
            a file with one word per line (UTF-8, may be gzipped). Public.
        width: number of columns that it must describe; public. None: any.

    Raises:
        DataFormatError: no vocabulary, a file that cannot be read, no words, an empty or repeated word,
            something that is not a string, or a wrong number of words.
        ParameterError: a list with another number of words than was asked for.
    """
    if vocabulary is None:
        raise DataFormatError(MISSING_VOCABULARY)
    if word_lists.is_name(vocabulary):
        words: list[Any] = [*word_lists.words(vocabulary)]
    elif isinstance(vocabulary, (str, os.PathLike)):
        words = _read_words(check_path("vocabulary", vocabulary))
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


def _english() -> str:
    return TOKEN_PATTERN


@cache
def _unicode() -> str:
    """Letters of any script with the marks that stand on them, and digits; hyphens and apostrophes inside a word."""
    # The expressions of Python take marks for no letters. The two joiners are written inside words, too.
    marks = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    joined = "".join(f"\\U{code:08x}" for code in [*marks, 0x200C, 0x200D])
    # Below 0300 there is none; to look them up is slow.
    run = rf"[^\W_]+(?:(?![\0-\u02ff])[{joined}]+[^\W_]*)*"
    return rf"{run}(?:['’‐-]{run})*"


def _cjk_characters() -> str:
    return rf"[{_CJK}]|(?:(?![{_CJK}])[^\W_])+"


#: Patterns that have a name, which stands for them wherever a token_pattern is given.
TOKEN_PATTERNS: Final[Mapping[str, Callable[[], str]]] = {
    "english": _english,
    "unicode": _unicode,
    "cjk-characters": _cjk_characters,
}


class Tokenizer:
    """Turns documents into word ids: lower case, every match of the pattern, unknown words dropped."""

    def __init__(self, vocabulary: tuple[str, ...], token_pattern: str = TOKEN_PATTERN) -> None:
        """Compile the public pattern, and hold the public words against it.

        Args:
            vocabulary: the words in column order.
            token_pattern: a name of `TOKEN_PATTERNS`, or a regular expression.

        Raises:
            ParameterError: a pattern that is not a regular expression or has several groups.
            DataFormatError: words that the pattern makes of no text.
        """
        pattern = _compiled(token_pattern)
        if unreachable := _unreachable(vocabulary, pattern):
            raise DataFormatError(_refusal(vocabulary, unreachable, token_pattern, pattern))
        self._find_all = pattern.findall
        self._id_of: dict[str, int] = {word: column for column, word in enumerate(vocabulary)}

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, known and unknown."""
        return self._find_all(str.lower(text))

    def slabs(self, documents: Iterable[object]) -> Iterator[Slab]:
        """Yield the documents' rows; a document is str, UTF-8 bytes or a list of words; another one is an empty row."""
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


class OpenTokenizer(Tokenizer):
    """Turns documents into the ids of their words, whichever they are.

    A word is 1 to 100 printable characters that the pattern also makes of this word; others have no id.

    Attributes:
        words: every word by its id; private.
    """

    def __init__(self, token_pattern: str = TOKEN_PATTERN) -> None:
        super().__init__((), token_pattern)
        self._pattern, self.words = _compiled(token_pattern), list[str]()
        self._id_of = _Growing(self._added)

    def _added(self, token: str) -> int:
        """The id of a word that was not met before; -1: it has none."""
        if not 0 < len(token) <= _LONGEST or not token.isprintable() or _unreachable([token], self._pattern):
            return -1
        self.words.append(token)
        return len(self.words) - 1


class _Growing(dict[str, int]):
    """Ids of words, each made when it is asked for."""

    def __init__(self, added: Callable[[str], int]) -> None:
        super().__init__()
        self._added = added

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: str) -> int:
        self[token] = number = self._added(token)
        return number


def _compiled(token_pattern: str) -> re.Pattern[str]:
    named = TOKEN_PATTERNS.get(token_pattern) if isinstance(token_pattern, str) else None
    try:
        pattern = re.compile(token_pattern if named is None else named())
    except (re.error, TypeError) as error:
        raise ParameterError(
            f"token_pattern must be a regular expression or one of {', '.join(map(repr, TOKEN_PATTERNS))}, got "
            f"{token_pattern!r}."
        ) from error
    if pattern.groups > 1:
        raise ParameterError(f"token_pattern must have at most one group, got {token_pattern!r}.")
    return pattern


def _unreachable(words: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """The words that no text in lower case gives; with a pattern that looks around a word, only those in capitals."""
    looks_around = pattern.groups > 0 or "(?=" in pattern.pattern or "(?<=" in pattern.pattern
    return [word for word in words if word != word.lower() or not (looks_around or word in pattern.findall(word))]


def _refusal(
    vocabulary: Iterable[str], unreachable: Sequence[str], token_pattern: str, pattern: re.Pattern[str]
) -> str:
    """Return the error for words that a pattern never makes, with a pattern that does."""
    named = ", ".join(map(repr, unreachable[:_MOST_NAMED])) + (", ..." if len(unreachable) > _MOST_NAMED else "")
    ways = (
        ["Texts are put in lower case first: write the words so."] if any(w != w.lower() for w in unreachable) else []
    )
    if others := _unreachable([word.lower() for word in unreachable], pattern):
        lowered = [word.lower() for word in vocabulary]
        names = ["cjk-characters"] if re.search(f"[{_CJK}]", "".join(others)) else ["english", "unicode"]
        matching = (name for name in names if not _unreachable(lowered, _compiled(name)))
        ways.append(f"token_pattern={next(matching, _spelled(others, pattern))!r} makes them.")
    number = f"{len(unreachable)} words" if len(unreachable) > 1 else "1 word"
    return (
        f"vocabulary must hold words that token_pattern={token_pattern!r} can make of a text, got {number} that it "
        f"never makes: {named}. {' '.join(ways)}"
    )


def _spelled(words: Sequence[str], pattern: re.Pattern[str]) -> str:
    """A pattern that makes some words as they are, the longest first, and then those of another."""
    literal = [re.escape(word) for word in sorted(words, key=len, reverse=True)[:_MOST_SPELLED]]
    rest = pattern.pattern if len(pattern.pattern) <= _MOST_SHOWN else r"[^\W_]+"
    return rf"(?:{'|'.join([*literal, *['...'] * (len(words) > _MOST_SPELLED)])})(?![a-z])|{rest}"


def is_words(document: object) -> bool:
    """Whether a document is a list of words: a list or tuple that holds a text which is not a number."""
    row = plain_row(document)
    return row is not None and any(issubclass(type(cell), (str, bytes)) and math.isnan(number(cell)) for cell in row)


def _text_of(document: object) -> str | None:
    """The text of str or UTF-8 bytes, or of a list of them with blanks between; None for anything else.

    Only the type decides: a private object's own methods are not called.
    """
    row = plain_row(document)
    if row is not None:
        return " ".join(text for text in map(_text, row) if text is not None)
    return _text(document)


def _text(document: object) -> str | None:
    """The text of str or UTF-8 bytes; None for anything else."""
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
        reason = reason_of(error) if isinstance(error, OSError) else ""
        raise DataFormatError(
            f"The vocabulary file {os.fspath(path)!r} cannot be read as UTF-8 text, one word per line: "
            f"{reason or type(error).__name__}. Lists that ship with dpvb are {', '.join(word_lists.LANGUAGES)}."
        ) from error
    return [word.strip() for word in text.rstrip().split("\n")] if text.strip() else []


def _words_in_column_order(columns: Mapping[str, int]) -> list[Any]:
    numbers = [column if isinstance(column, (int, np.integer)) else -1 for column in columns.values()]
    if sorted(numbers) != list(range(len(columns))):
        raise DataFormatError("vocabulary, as a mapping word -> column, must use each column 0, 1, ... exactly once.")
    return sorted(columns, key=lambda word: int(columns[word]))
