"""Untrusted input: JSON that is read, and text that is shown, with nothing in it taken on trust."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

# Deeper than anything that this package writes.
_MAX_DEPTH = 64
#: Receivers of each line that `say` writes, such as a log.
hearers: list[Callable[[str], object]] = []
_TOO_DEEP = f"values are nested deeper than {_MAX_DEPTH}"


def parsed_json(text: str | bytes) -> Any:
    """Return what a JSON text says, if it says one thing to every reader.

    Args:
        text: JSON; bytes are UTF-8.

    Raises:
        ValueError: for a text that is not JSON, an object with a key twice, a number that is not finite, half a
            surrogate pair, or values nested deeper than 64.
    """
    try:
        parsed = json.loads(
            text.decode("utf-8-sig") if isinstance(text, bytes) else text,
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=_without_doubles,
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check(parsed)
    return parsed


def printable(text: str) -> str:
    """Return a text of one line as a terminal, a log or a page may show it.

    "?" stands for each control character, line end, escape, override of the writing direction and half surrogate pair.

    Args:
        text: untrusted.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def place_of(kind: type) -> str:
    """The name by which `imported` finds a class at the top of a module."""
    return f"{kind.__module__}:{kind.__qualname__}"


def imported(place: str) -> Any:
    """Return an object of a module that this process has imported; no code runs for it, and nothing is imported."""
    module, _, name = place.partition(":")
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def misfit(kind: Any, values: Mapping[str, object]) -> str | None:
    """The first name whose value is neither of the type that a dataclass declares for it, nor its default.

    Args:
        kind: the dataclass; it may name types that are not there when it runs, and then every value fits.
        values: None, numbers, texts, and tuples of them.
    """
    hints = _hints(kind)
    if hints is None:
        return None
    for field in fields(kind):
        value = values.get(field.name, field.default)
        is_default = type(value) is type(field.default) and value == field.default
        if not is_default and not _is_of(value, hints.get(field.name, Any)):
            return field.name
    return None


@cache
def _hints(kind: Any) -> dict[str, Any] | None:
    """The types of a class's fields; None if one is not there."""
    try:
        return get_type_hints(kind)
    except Exception:
        return None


def _is_of(value: object, hint: Any) -> bool:
    """Whether a plain value is of a type; what a type says beyond classes is not asked."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        return _is_of(value, parts[0])
    if kind in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is None or kind is NoneType:
        return value is None
    if kind in (bool, int, float):  # 1 may stand for True, and 3.0 for 3.
        return isinstance(value, (int, float)) and (kind is float or value == kind(value))
    if kind is tuple and parts and isinstance(value, tuple):
        each = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return len(each) == len(value) and all(map(_is_of, value, each))
    try:
        return kind is Any or not isinstance(kind, type) or isinstance(value, kind)
    except TypeError:  # A protocol has no instances.
        return True


def say(message: str) -> None:
    """Write one line on standard error; private values must not be in it.

    Args:
        message: public; words in it may be untrusted.
    """
    line = f"dpvb: {printable(message)}"
    print(line, file=sys.stderr)
    for hear in hearers:
        hear(line)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a key twice")
    return members


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
