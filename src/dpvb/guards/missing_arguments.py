"""Parameters and their docstrings: errors that describe missing arguments, and signatures that list row arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import groupby
from types import FunctionType
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


# Arguments of `fit` that all estimators have.
_COMMON = ("self", "X", "y", "group")
# Row arguments that a class has only if it declares their public bound.
_BOUNDED = {"trials": "max_trials", "exposure": "max_exposure"}
# Width of lines, and indentation of arguments, in a docstring of a method.
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
