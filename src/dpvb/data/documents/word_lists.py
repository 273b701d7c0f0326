"""Public lists that ship with the package, by language: words to count, and words to leave out.

`words/NOTICE.md` names where they come from, and their licences.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from dpvb.guards.errors import check_choice

#: Languages with a list.
LANGUAGES: Final = ("english", "french", "german", "spanish")
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
