"""Planted bugs fit the source, are told apart, and stand for all ways to fail; `make planted-bugs` runs them."""

from __future__ import annotations

from collections import Counter

import pytest
from conftest import CASES
from planted import FAILURES, TESTS, bugs


@pytest.mark.guarantees("planted bugs")
def test_every_planted_bug_fits_the_source() -> None:
    """Each text that a bug replaces occurs exactly once."""
    misfits = []
    for bug in bugs():
        try:
            assert bug.planted(), f"{bug.name}: no edits"
        except ValueError as error:
            misfits.append(str(error))
    assert not misfits, "\n".join(misfits)


@pytest.mark.guarantees("planted bugs")
def test_every_way_to_fail_has_a_planted_bug_and_every_bug_a_name_of_its_own() -> None:
    found = bugs()
    assert {bug.failure for bug in found} == set(FAILURES.values())
    assert [name for name, count in Counter(bug.name for bug in found).items() if count > 1] == []


def test_no_mark_is_overlooked() -> None:
    """Marks are found in the text of a test: those of a class, or of a file that pytest does not read, would not be."""
    texts = [
        path.read_text() for path in TESTS.rglob("*.py") if path.name not in ("planted.py", "test_planted_bugs.py")
    ]
    assert sum(text.count("@kills(") for text in texts) == len(bugs())


def test_every_case_that_a_bug_names_exists(request: pytest.FixtureRequest) -> None:
    """Of each file that this run has read, slow cases too; all files in `make test`."""
    if any("::" in argument for argument in request.config.args):
        pytest.skip("this run has read only the cases that were asked for.")
    cases = request.config.stash[CASES]
    read = {case.split("::")[0] for case in cases}
    named = {bug.test for bug in bugs() if "[" in bug.test and bug.test.split("::")[0] in read}
    assert sorted(named - cases) == []
