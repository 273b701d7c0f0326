"""Refusals show numbers and short texts, and of everything else the type: it may be private, and fill the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each

import dpvb
from dpvb.data import Numeric, Schema
from dpvb.errors import ParameterError
from dpvb.guards.errors import check_choice, check_integer, check_number, check_path

SECRET = np.array([[123456789.0, 2.0]])


@each(
    "check",
    [lambda x: check_number("n", x, low=0), lambda x: check_integer("n", x, low=0), lambda x: check_path("n", x)],
)
def test_a_refusal_never_quotes_what_may_be_private(check: Callable[[Any], object]) -> None:
    for value in (SECRET, SECRET.tolist(), {"a": 123456789}, Schema([Numeric("a", 0, 123456789)])):
        with pytest.raises(ParameterError, match=f"^n must .*, got a {type(value).__name__}") as refused:
            check(value)
        assert "123456789" not in str(refused.value)


def test_it_shows_numbers_and_the_beginning_of_a_text() -> None:
    with pytest.raises(ParameterError, match="got -3"):
        check_number("n", -3, low=0)
    with pytest.raises(ParameterError, match=r"got 'x{70,80}\.\.\.\."):
        check_choice("n", "x" * 1_000, ("a", "b"))
    with pytest.raises(ParameterError, match="got 3"):
        check_path("n", 3)
    assert check_path("n", Path("a")) == Path("a")


def test_a_schema_in_the_place_of_the_width_is_told_its_name() -> None:
    schema = Schema([Numeric("a", 0, 1)])
    with pytest.raises(ParameterError, match=r"width must be a number of columns, got a Schema\. Pass it as schema="):
        dpvb.plan(dpvb.LogisticRegression(epsilon=1.0, delta=1e-5), 1_000, schema)  # type: ignore[arg-type]
