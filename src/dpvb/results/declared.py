"""Declarations of a model, as text: equal models of two processes have equal texts."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Final

import numpy as np

# Longer values are told by their digest.
_MOST_SHOWN: Final = 200
# Brackets of a collection without a name of its own.
_BRACKETS: Final[Mapping[type, tuple[str, str]]] = {
    tuple: ("(", ")"),
    list: ("[", "]"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def declared(model: object) -> dict[str, str]:
    """The class of a model and each field that it declares, as text that is the same in every process.

    Arrays and long values are identified by their SHA-256, and a function by its name and its source. Values that a
    function takes from elsewhere is not told.

    Args:
        model: public.
    """
    return {"class": _short(_class(type(model))), **told(_fields(model))}


def told(values: Mapping[str, object]) -> dict[str, str]:
    """Public values by name, as text in which equal values of any two processes are equal.

    Args:
        values: public.
    """
    return {name: _short(_text(value)) for name, value in values.items()}


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"SHA-256 {_sha256(text)}"


def _fields(value: object) -> dict[str, Any]:
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    return dict(getattr(value, "__dict__", {}))


def _text(value: Any) -> str:
    """A value as text without addresses: equal values of any two processes have equal texts."""
    if isinstance(value, np.generic):
        return repr(value.item())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        return f"array({array.dtype.str}, {array.shape}, SHA-256 {_sha256(array.tobytes())})"
    if isinstance(value, Mapping):
        parts = [f"{_text(name)}: {_text(part)}" for name, part in value.items()]
    elif isinstance(value, set | frozenset):
        parts = sorted(map(_text, value))
    elif isinstance(value, tuple | list):
        parts = [_text(part) for part in value]
    elif isinstance(value, partial):
        parts = [_text(part) for part in (value.func, value.args, value.keywords)]
    elif callable(value) and hasattr(value, "__qualname__"):
        return _function(value)
    else:
        parts = [f"{name}={_text(part)}" for name, part in _fields(value).items()]
    opening, closing = _BRACKETS.get(type(value), (f"{_class(type(value))}(", ")"))
    return f"{opening}{', '.join(parts)}{closing}"


def _function(function: Any) -> str:
    """A function or class by its name and source; a method by its object, too."""
    try:
        source = _sha256(inspect.getsource(function))
    except (OSError, TypeError):  # It was typed in, or compiled.
        source = "unknown"
    owner = getattr(function, "__self__", None)
    bound = "" if owner is None or inspect.ismodule(owner) else f" of {_text(owner)}"
    return f"{_class(function)}{bound} (source: {source})"


def _class(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
