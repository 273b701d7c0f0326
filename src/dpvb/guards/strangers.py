"""What somebody else wrote: JSON that is read, and text that is shown, with nothing in it taken on trust."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

# Deeper than anything that this package writes.
_MAX_DEPTH = 64
_TOO_DEEP = f"values are nested deeper than {_MAX_DEPTH}"


def parsed_json(text: str | bytes) -> Any:
    """Return what a JSON text says, if it says one thing to every reader.

    Args:
        text: JSON; bytes are UTF-8.

    Raises:
        ValueError: for a text that is no JSON, an object with a key twice, a number that is not finite, half a
            surrogate pair, or values nested deeper than 64.
    """
    try:
        found = json.loads(
            text.decode("utf-8-sig") if isinstance(text, bytes) else text,
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=_without_doubles,
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check(found)
    return found


def printable(text: str) -> str:
    """Return a text of one line as a terminal, a log or a page may show it.

    "?" stands for each control character, line end, escape, override of the writing direction and half surrogate pair.

    Args:
        text: whoever wrote it.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def say(message: str) -> None:
    """Write one line on standard error, for whoever started this process; private values are not for it.

    Args:
        message: public; words in it may be somebody else's.
    """
    print(f"dpvb: {printable(message)}", file=sys.stderr)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _check(found: Any) -> None:
    """Refuse values that are nested too deep, and texts that no file or terminal can hold."""
    level = [found]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, str):
                one.encode("utf-8")  # Its error is a ValueError.
            elif isinstance(one, dict):
                inner += (*one, *one.values())
            elif isinstance(one, list):
                inner += one
        if not (level := inner):
            return
    raise ValueError(_TOO_DEEP)
