"""Planted bugs: edits of the source that break privacy, each written above the test that must fail with it.

    @kills("leaks", "log records pass the wall")
    @edit("core/wall.py", "with silence(logs=True):", "with silence():")
    def test_no_log_record_leaves_a_computation() -> None: ...

A bug may have several edits, and a test may kill several bugs: the edits of a bug follow its `kills`. The `case` of a
parametrized test names the parameters that the bug is run with, as pytest prints them between brackets.

`make planted-bugs` plants all bugs one at a time. `bugs` reads the marks from the text of the tests, without importing
them: their arguments must be literals, and marked tests must be functions of a module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src" / "dpvb"

#: Ways in which software for differential privacy has failed, by the key that `kills` takes. Each has a bug.
FAILURES = {
    "low bits": "low bits of floating-point noise",
    "time": "time that tells a draw",
    "sums": "sums that overflow, round or reorder",
    "norms": "norms beyond the clip",
    "NaN": "NaN and infinity",
    "generators": "generators that can be guessed",
    "reused noise": "noise used twice",
    "sampler": "another sampler than the accounted one",
    "rate": "a sampling rate above the accounted one",
    "drawn batch": "division by the batch that was drawn",
    "empty batch": "empty batches",
    "factor": "noise or sensitivity off by a factor",
    "public facts": "public facts read off private data",
    "choices": "choices among settings that nobody counts",
    "stopping": "training that ends by private values",
    "rows": "many rows of one person",
    "crashes": "crashes, retries and races",
    "leaks": "leaks by text, logs and files",
    "code": "code in model files",
    "strangers": "files of strangers that are believed",
    "work": "work that depends on the record",
    "accountant": "an accountant beyond its range or precision",
    "calibration": "calibration beyond its target",
    "neighbours": "neighbours of two kinds mixed up",
    "records": "records that touch each other",
    "parties": "sums of several parties without their noise, masks or room",
    "readers": "readers that take records apart, or read one differently because of another",
    "persons": "persons that are several units, or several persons that are one",
    "queries": "queries made by somebody else",
    "errors": "a unit that makes a computation fail",
    "names": "files, folders and names that others choose",
    "releases": "releases about the same people that nobody adds up",
}


def kills(failure: str, name: str, case: str = "") -> pytest.MarkDecorator:
    """Mark a test that must fail when a bug is planted by the edits that follow.

    Args:
        failure: The way to fail, a key of `FAILURES`.
        name: The name of the bug. It occurs once in all tests.
        case: Parameters of the test that the bug is run with, as pytest prints them; all of them if empty.
    """
    return pytest.mark.kills(FAILURES[failure], name, case)


def edit(file: str, old: str, new: str) -> pytest.MarkDecorator:
    """Mark an edit of the bug above: in a file of the package, a text that occurs once, and its replacement."""
    return pytest.mark.edit(file, old, new)


@dataclass(frozen=True)
class Bug:
    """A planted bug: a value of `FAILURES`, its name, its edits, and pytest's address of the test that kills it."""

    failure: str
    name: str
    edits: tuple[tuple[str, str, str], ...]
    test: str

    def planted(self, package: Path = PACKAGE) -> dict[str, str]:
        """Return the text of each edited file with the bug in it.

        Raises:
            ValueError: A text to be replaced does not occur exactly once.
        """
        texts: dict[str, str] = {}
        for file, old, new in self.edits:
            text = texts[file] if file in texts else (package / file).read_text()
            if (count := text.count(old)) != 1 or old == new:
                raise ValueError(f"{self.name}: in {file} the text {old!r} occurs {count} times; it must occur once.")
            texts[file] = text.replace(old, new)
        return texts


def _mark(call: ast.expr) -> pytest.Mark | None:
    """Return the mark that a decorator makes by `kills` or `edit`, or None if it is another one."""
    makers = {"kills": kills, "edit": edit}
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in makers):
        return None
    mark: pytest.Mark = eval(compile(ast.Expression(call), "", "eval"), dict(makers)).mark
    return mark


def _of(test: ast.FunctionDef, address: str) -> Iterator[Bug]:
    """Yield the bugs of the marks above a test, which has other decorators if one of them names its parameters."""
    edits: tuple[tuple[str, str, str], ...] = ()
    marks = [_mark(call) for call in test.decorator_list]
    for mark in reversed(marks):
        if mark is not None:
            if mark.name == "edit":
                edits = (mark.args, *edits)
            else:
                failure, name, case = mark.args
                if case and None not in marks:
                    raise ValueError(f"{address}: {case!r} names parameters of a test that has none.")
                yield Bug(failure, name, edits, f"{address}[{case}]" if case else address)
                edits = ()
    if edits:
        raise ValueError(f"{address}: an edit of {edits[0][0]} has no `kills` above it.")


@cache
def bugs() -> list[Bug]:
    """Return the bugs of all tests, in the order of `FAILURES`."""
    found: list[Bug] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        for test in ast.parse(text).body if "@kills(" in text else []:
            if isinstance(test, ast.FunctionDef):
                found += _of(test, f"{path}::{test.name}")
    return sorted(found, key=lambda bug: list(FAILURES.values()).index(bug.failure))
