"""Many cases of one property in one test, which runs all of them and names those that fail.

    @each("text", ["", "a\\0b"])
    def test_a_text_that_is_no_path_is_refused(text: str) -> None: ...

It is written as `pytest.mark.parametrize` is. Cases share the test's fixtures, a temporary folder too.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the decorator that makes one test of all cases.

    Args:
        names: Parameters of the test that a case gives, as pytest's `parametrize` takes them.
        cases: The values of these parameters; a tuple for each case if there are several.
        ids: How a case is named where it fails: a function of its values, or one name per case; None: its values.
    """
    parameters = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    one = isinstance(names, str) and len(parameters) == 1
    values = [(case,) if one else tuple(case) for case in cases]
    words = iter(ids) if ids is not None and not callable(ids) else itertools.repeat(None)

    def name(case: tuple[Any, ...], word: object) -> str:
        return (
            "-".join(str(ids(value)) if callable(ids) else repr(value) for value in case) if word is None else str(word)
        )

    named = [(name(case, word), case) for case, word in zip(values, words, strict=False)]
    assert len(named) == len(values) > 0

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            failures: dict[str, Exception] = {}
            for word, case in named:
                try:
                    test(**fixtures, **dict(zip(parameters, case, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failure = error if isinstance(error, Exception) else AssertionError(str(error))
                    failure.add_note(f"Case: {word}")
                    failures[word] = failure.with_traceback(error.__traceback__)
            if failures:
                text = f"{len(failures)} of {len(named)} cases fail: {'; '.join(failures)}"
                raise ExceptionGroup(text, list(failures.values()))

        signature = inspect.signature(test)
        others = [parameter for parameter in signature.parameters.values() if parameter.name not in parameters]
        every_case.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return every_case

    return decorate
