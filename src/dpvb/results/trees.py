"""A q as a model file holds it: its arrays by name, and its form, from which it is made again without the model.

    q                                    form                                  names of its arrays
    an array, a number                   "array", "number", "float", "int"     q
    a data class, a named tuple          {"class": "module:Class", "parts"}    q__FIELD
    a dict with names for keys           {"class": "dict", "parts"}            q__KEY
    a tuple, a list                      {"class": "tuple", "parts"}           q__0, q__1, ...

What a model's `init` would make of the numbers of a file may be larger than any memory. So it is not called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.strangers import imported, place_of

_PLAIN: Mapping[str, type] = {"dict": dict, "tuple": tuple, "list": list}


def leaves(q: Any) -> dict[str, NDArray[Any]]:
    """Arrays and numbers of a q, by name.

    Raises:
        TypeError: for a part of another kind than the table's.
        ValueError: for two parts of one name.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, leaf in _leaves(q, "q"):
        if name in found:
            raise ValueError(f"two parts of q have the name {name} in a file: rename one")
        found[name] = np.asarray(leaf)
    return found


def form_of(q: Any) -> Any:
    """The form of a q, as JSON holds it."""
    if (parts := _parts(q)) is not None:
        kind = next((name for name, plain in _PLAIN.items() if type(q) is plain), None) or place_of(type(q))
        return {"class": kind, "parts": {name: form_of(part) for name, part in parts.items()}}
    return type(q).__name__ if type(q) in (float, int) else "number" if isinstance(q, np.generic) else "array"


def classes_of(q: Any) -> set[type]:
    """The classes of the data classes and named tuples of a q."""
    parts = _parts(q) or {}
    own = set() if not parts or type(q) in _PLAIN.values() else {type(q)}
    return own.union(*map(classes_of, parts.values()))


def made(form: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Inverse of `form_of` and `leaves`; may raise anything on a form and arrays that do not fit, whoever wrote them.

    Args:
        form: names classes that this process has imported.
        arrays: all of them are used.
    """
    left = dict(arrays)
    q = _made(form, left, "q")
    if left:
        raise ValueError("arrays of another form")
    return q


def _leaves(q: Any, name: str) -> Iterator[tuple[str, Any]]:
    if (parts := _parts(q)) is not None:
        for part, value in parts.items():
            yield from _leaves(value, f"{name}__{part}")
    elif isinstance(q, (Number, np.generic, np.ndarray)) or hasattr(q, "__array__"):
        yield name, q
    else:
        raise TypeError(
            f"{name.replace('__', '.')} is {type(q).__name__}: a q is made of arrays and numbers, in data classes, "
            "named tuples, tuples, lists and dicts with names for keys"
        )


def _parts(q: Any) -> dict[str, Any] | None:
    """Parts of a q that has any, by name."""
    if is_dataclass(type(q)):
        if computed := [field.name for field in fields(q) if not field.init]:
            raise TypeError(f"{type(q).__name__}.{computed[0]} is a field that its constructor does not take")
        return {field.name: getattr(q, field.name) for field in fields(q)}
    if isinstance(q, tuple) and hasattr(q, "_asdict"):
        return dict(q._asdict())
    if type(q) in (tuple, list):
        return {str(number): part for number, part in enumerate(q)}
    if type(q) is dict:
        if odd := [key for key in q if not (isinstance(key, str) and key.isidentifier())]:
            raise TypeError(f"a dict in q has the key {odd[0]!r}, which is no name")
        return q
    return None


def _made(form: Any, left: dict[str, NDArray[Any]], name: str) -> Any:
    if isinstance(form, str):
        array = left.pop(name)
        if form == "array":
            return array
        item = array[()] if form == "number" else array.item()
        if array.shape != () or (form != "number" and type(item).__name__ != form):
            raise ValueError(f"{name} is no number of this kind")
        return item
    parts = {part: _made(inner, left, f"{name}__{part}") for part, inner in form["parts"].items()}
    kind: Any = _PLAIN.get(form["class"]) or imported(form["class"])
    if kind in (tuple, list):
        return kind(parts.values())
    if kind is not dict and not is_dataclass(kind) and not (issubclass(kind, tuple) and hasattr(kind, "_asdict")):
        raise ValueError("a q of a class that is neither a data class nor a named tuple")
    return kind(**parts)
