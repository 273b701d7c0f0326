"""What a server and its clients must agree on before anything is charged."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from dpvb.federated.trust import Trust
from dpvb.guards.errors import ParameterError

SCHEDULES = ("synchronous", "sequential", "asynchronous")
# Longer values are told by their digest.
_MOST_SHOWN: Final = 200


@dataclass(frozen=True)
class Federation:
    """What a server and its clients must agree on; public.

    Attributes:
        kind: name of the estimator.
        columns: what the data's columns are; see `columns_of`.
        trust: with the number of clients, and of those that may be missing or collude.
        epsilon, delta: the budget of each client.
        participants: public key by name; empty bytes where there are no masks.
        num_examples: public number of units of each client, where there is one.
    """

    kind: str
    columns: str
    trust: Trust
    epsilon: float
    delta: float
    participants: Mapping[str, bytes] = field(default_factory=dict)
    num_examples: int | None = None

    def __post_init__(self) -> None:
        if len(self.participants) != self.trust.num_clients:
            raise ParameterError(
                f"participants must be {self.trust.num_clients} clients with different names, "
                f"got {len(self.participants)}."
            )


def declared(model: object) -> dict[str, str]:
    """The class of a model and each field that it declares, as text that is the same in every process.

    Arrays and long values are told by their SHA-256, and a function by its name and its source. What a function takes
    from elsewhere is not told.

    Args:
        model: public.
    """
    told = {"class": _class(type(model)), **{name: _text(value) for name, value in _fields(model).items()}}
    return {name: text if len(text) <= _MOST_SHOWN else f"SHA-256 {_sha256(text)}" for name, text in told.items()}


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
    return f"{_class(type(value))}({', '.join(parts)})"


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
