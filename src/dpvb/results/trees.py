"""Frozen trees of public values as a model file holds them: arrays by the names of their places, and the rest as JSON.

    in a record                           JSON                                  name of its array
    an array                              "array"                               FIELD, or OUTER__FIELD
    a number, a text, a truth value       itself
    a tuple, a dict                       a list, an object
    a data class, a named tuple           {FIELD: ...}
    what has to_json and from_json        its text
    a part that is declared as Any        a form, see `form_of`                 FIELD__PART

`read` makes a record by the types that its class declares; a file chooses neither classes nor types. Only parts that
are declared as Any, or by a protocol, name their classes:

    a part                                form                                  names of its arrays
    an array, a number                    "array", "number", "float", "int"     q
    a data class, a named tuple           {"class": "module:Class", "parts"}    q__FIELD
    a dict with names for keys            {"class": "dict", "parts"}            q__KEY
    a tuple, a list                       {"class": "tuple", "parts"}           q__0, q__1, ...

The result of a model's `init` would make of the numbers of a file may be larger than any memory. So it is not called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Number
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpvb.guards import domains
from dpvb.guards.errors import ModelFileError
from dpvb.guards.untrusted import imported, place_of

Record = TypeVar("Record")
#: Values of a class, a category or a symbol.
Label: TypeAlias = str | int | float | bool
_PLAIN: Mapping[str, type] = {"dict": dict, "tuple": tuple, "list": list}


def written(record: Any) -> tuple[dict[str, NDArray[Any]], Any]:
    """Return the arrays of a record by name, and its JSON."""
    arrays: dict[str, NDArray[Any]] = {}
    return arrays, _written(record, type(record), arrays, "")


def read(kind: type[Record], facts: Any, arrays: Mapping[str, NDArray[Any]]) -> Record:
    """Inverse of `written`; may raise any error on an input that does not fit.

    Args:
        kind: class of the record.
        facts: its JSON.
        arrays: all of them are used.
    """
    unused = dict(arrays)
    record = _read(facts, kind, unused, "")
    if unused:
        raise ValueError("arrays of another record")
    return cast(Record, record)


def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array and number of a tree of data classes, by name."""
    return {name: array.shape for name, array in _arrays(tree, "")}


def largest(*trees: Any) -> float:
    """Return the largest absolute value of all numbers of some trees of data classes."""
    return max(float(np.abs(array).max(initial=0.0)) for tree in trees for _, array in _arrays(tree, ""))


def check_lengths(tree: Any, **lengths: int) -> None:
    """Check arrays whose names end with their axes, as lambda_vk does.

    Args:
        tree: arrays in data classes.
        lengths: of the axes, by letter; other names are not looked at.

    Raises:
        ValueError: for an array of another shape.
    """
    for name, shape in shapes(tree).items():
        axes = name.rsplit("_", 1)[-1]
        if lengths.keys() >= {*axes} and shape != tuple(lengths[axis] for axis in axes):
            raise ValueError(f"{name} of another shape")


def leaves(q: Any, name: str = "q") -> dict[str, NDArray[Any]]:
    """Arrays and numbers of a q, by name.

    Raises:
        TypeError: for a part of another kind than the table's.
        ValueError: for two parts of one name.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for place, leaf in _leaves(q, name):
        if place in arrays:
            raise ValueError(f"two parts of q have the name {place} in a file: rename one")
        arrays[place] = np.asarray(leaf)
    return arrays


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


def _written(value: Any, hint: Any, arrays: dict[str, NDArray[Any]], name: str) -> Any:
    hint = next((part for part in _choices(hint) if part is not NoneType), hint)
    if value is None:
        return None
    if _is_open(hint):
        arrays |= leaves(value, name)
        return form_of(value)
    if hasattr(hint, "from_json"):
        return value.to_json()
    if isinstance(value, np.ndarray) and value.ndim:
        arrays[name] = value.astype(np.uint8) if value.dtype == np.bool_ else value
        return "array"
    if isinstance(value, (np.ndarray, np.generic)):
        return value.item()
    if type(value) is tuple:
        return [_written(one, None, arrays, f"{name}__{place}") for place, one in enumerate(value)]
    if type(value) is not dict and (parts := _parts(value)) is not None:
        kind: Any = type(value)
        hints = _hints(kind)
        return {part: _written(one, hints[part], arrays, _place(name, part)) for part, one in parts.items()}
    return value


def _read(facts: Any, hint: Any, arrays: dict[str, NDArray[Any]], name: str) -> Any:
    choices = _choices(hint)
    if facts is None and NoneType in choices:
        return None
    choices = [part for part in choices if part is not NoneType]
    if len(choices) > 1:  # Labels are of one of several plain types.
        hint = next((part for part in choices if type(facts) is part), None)
    else:
        [hint] = choices
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if _is_open(kind):
        return domains.checked(_made(facts, arrays, name))
    if kind is np.ndarray:
        return _cast(arrays.pop(name), get_args(parts[1])[0])
    if hasattr(kind, "from_json"):
        return kind.from_json(facts)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = _hints(kind)
        names = [field.name for field in fields(kind)] if is_dataclass(kind) else [*kind._fields]
        if facts.keys() != {*names}:
            raise ValueError(f"{name} has other fields")
        values = {part: _read(facts[part], hints[part], arrays, _place(name, part)) for part in names}
        for part, domain in domains.declared_by(kind).items():
            if (fault := domains.outside(values[part], domain, _place(name, part))) is not None:
                raise ValueError(fault)
        return kind(**values)
    if kind is tuple and type(facts) is list:
        each = [parts[0]] * len(facts) if parts[-1] is Ellipsis else parts
        return tuple(
            _read(one, part, arrays, f"{name}__{place}")
            for place, (one, part) in enumerate(zip(facts, each, strict=True))
        )
    if kind is float and type(facts) is int:
        return float(facts)
    if type(facts) is not kind:
        raise ValueError(f"{name} is of another type")
    return facts


def _choices(hint: Any) -> list[Any]:
    """The types that a value may have, without what annotations add."""
    if get_origin(hint) is Annotated:
        return _choices(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [choice for part in get_args(hint) for choice in _choices(part)]
    return [hint]


def _is_open(hint: Any) -> bool:
    """Whether the class of a part is said by the part."""
    return hint is Any or getattr(hint, "_is_protocol", False)


def _cast(array: NDArray[Any], scalar: Any) -> NDArray[Any]:
    """An array of a file in the type that is declared."""
    if scalar is np.bool_ and array.dtype == np.uint8 and (array <= 1).all():
        return array.astype(np.bool_)
    return array.astype(scalar, casting="same_kind", copy=False)


def _place(name: str, part: str) -> str:
    return f"{name}__{part}" if name else part


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _arrays(tree: Any, name: str) -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(tree, (np.ndarray, Number)):
        yield name, np.asarray(tree)
    elif isinstance(tree, tuple) or (is_dataclass(tree) and not hasattr(tree, "to_json")):
        for part, value in (_parts(tree) or {}).items():
            yield from _arrays(value, _place(name, part))


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
            raise TypeError(f"a dict in q has the key {odd[0]!r}, which is not a name")
        return q
    return None


def _made(form: Any, arrays: dict[str, NDArray[Any]], name: str) -> Any:
    if isinstance(form, str):
        array = arrays.pop(name)
        if form == "array":
            return array
        item = array[()] if form == "number" else array.item()
        if array.shape != () or (form != "number" and type(item).__name__ != form):
            raise ValueError(f"{name} is not a number of this kind")
        return item
    parts = {part: _made(inner, arrays, f"{name}__{part}") for part, inner in form["parts"].items()}
    kind: Any = _PLAIN.get(form["class"]) or imported(form["class"])
    if kind is None:
        raise ModelFileError(
            f"holds a part {form['class']!r}. If it is of a class of your own, import its module first (on the command "
            f"line: dpvb --import {str(form['class']).partition(':')[0]} ...)."
        )
    if kind in (tuple, list):
        return kind(parts.values())
    if kind is not dict and not is_dataclass(kind) and not (issubclass(kind, tuple) and hasattr(kind, "_asdict")):
        raise ValueError("a q of a class that is neither a data class nor a named tuple")
    return kind(**parts)
