"""A test of many cases runs all of them, and names those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from each import each


def test_all_cases_run_and_those_that_fail_are_named(tmp_path: Path) -> None:
    asked = []

    @each(("number", "word"), [(1, "a"), (2, "b"), (3, "c"), (4, "d")], ids=["one", "two", "three", "four"])
    def odd(number: int, word: str, tmp_path: Path) -> None:
        asked.append((number, word, tmp_path))
        if number == 4:
            pytest.fail("a test that fails by pytest")
        assert number % 2

    with pytest.raises(ExceptionGroup, match="2 of 4 cases fail: two; four") as caught:
        odd(tmp_path=tmp_path)
    assert asked == [(number + 1, word, tmp_path) for number, word in enumerate("abcd")]
    assert [error.__notes__ for error in caught.value.exceptions] == [["Case: two"], ["Case: four"]]


def test_a_test_of_no_cases_is_refused() -> None:
    with pytest.raises(AssertionError):
        each("number", [])
