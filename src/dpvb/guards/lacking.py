"""Errors for missing arguments: they name each required parameter that was not given, and describe it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import groupby
from typing import Any, ParamSpec, TypeVar

from dpvb.guards.errors import ParameterError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Kind = TypeVar("_Kind", bound=type[Any])


def says_what_lacks(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function: a call without a required argument raises an error that describes the parameter."""

    @wraps(function)
    def checked(*args: _P.args, **given: _P.kwargs) -> _R:
        check_given(function, inspect.signature(function), args, given)
        return function(*args, **given)

    return checked


def constructor_says_what_lacks(kind: _Kind) -> _Kind:
    """Decorate a class: a call without a required argument raises an error that describes the parameter."""
    init = kind.__init__

    @wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        check_given(type(self), inspect.signature(type(self)), args, given)
        init(self, *args, **given)

    kind.__init__ = checked
    return kind


def check_given(
    called: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...], given: Mapping[str, Any]
) -> None:
    """Refuse a call without a required argument.

    Args:
        called: Class or function, whose docstring describes each parameter.
        signature: Signature of the call.
        args, given: Positional and keyword arguments of the call.

    Raises:
        ParameterError: If a required argument is missing.
    """
    parameters = [*signature.parameters.values()]
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    placed = {one.name for one in parameters[: len(args)] if one.kind is not one.KEYWORD_ONLY}
    lacking = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in open_ended and one.name not in {*placed, *given}
    ]
    if lacking:
        texts = described(called)
        said = groupby(lacking, key=lambda name: _first_sentence(texts.get(name, "a parameter")))
        needed = "; and ".join(f"{' and '.join(f'{name}=' for name in names)}, {text}" for text, names in said)
        name = called.__qualname__.removesuffix(".__init__")
        raise ParameterError(f"{name} needs {needed}.")


def described(called: Callable[..., Any]) -> dict[str, str]:
    """Return descriptions of parameters under `Args:` in the docstrings of a function, or of a class and its bases."""
    missing = {}
    for one in reversed(called.__mro__) if isinstance(called, type) else [called]:
        section = re.search(r"^Args:\n((?: {4}.*\n?)*)", inspect.cleandoc(one.__doc__ or ""), re.M)
        for names, text in re.findall(r"^ {4}(\w[\w, ]*): (.*(?:\n {8}.*)*)", section[1] if section else "", re.M):
            missing.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return missing


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description, as the continuation of a sentence."""
    sentence = re.split(r"\.(?: (?=[A-Z`])|$)", text)[0]
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]
