"""`fit` of each estimator with the row arguments of its task in signature and docstring, in place of `**rows`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dpvb.guards.lacking import described

_COMMON = ("self", "X", "y", "group")
# Row arguments that a class has only if it declares their public bound.
_BOUNDED = {"trials": "max_trials", "exposure": "max_exposure"}
_WIDTH, _INDENT = 120, " " * 12


def with_row_arguments(fit: Callable[..., Any], task: Callable[..., Any], declared: set[str]) -> Callable[..., Any]:
    """Return a copy of `fit` whose signature and docstring list the row arguments of `task`.

    Args:
        fit: Method with keyword arguments `**rows`.
        task: Method that gets them; its docstring describes them.
        declared: Names of the fields of the class.
    """
    signature, parameters = inspect.signature(fit), inspect.signature(task).parameters
    rows = [
        one.replace(kind=one.KEYWORD_ONLY)
        for name, one in parameters.items()
        if name not in {*_COMMON, *signature.parameters}
        and _BOUNDED.get(name, name) in {*declared, name} - _BOUNDED.keys()
    ]
    assert isinstance(fit, FunctionType)
    made = FunctionType(fit.__code__, fit.__globals__, fit.__name__, fit.__defaults__, fit.__closure__)
    made.__kwdefaults__, made.__annotations__, made.__module__ = fit.__kwdefaults__, fit.__annotations__, fit.__module__
    made.__qualname__ = fit.__qualname__
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    run = next(place for place, one in enumerate(own) if one.name == "run")
    made.__signature__ = signature.replace(parameters=[*own[:run], *rows, *own[run:]])  # type: ignore[attr-defined]
    texts = described(task)
    lines = "".join(_wrapped(one.name, texts.get(one.name, "")) for one in rows)
    made.__doc__ = re.sub(r"^ {12}run: ", lambda found: lines + found[0], fit.__doc__ or "", count=1, flags=re.M)
    return made


def _wrapped(name: str, text: str) -> str:
    """Return the description of an argument, wrapped as in a docstring."""
    lines, line = [], f"{_INDENT}{name}:"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = f"{_INDENT}   "
        line += f" {word}"
    return "\n".join([*lines, line]) + "\n"
