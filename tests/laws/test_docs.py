"""The pages of the promise name their tests, and the README's ledger runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TESTS = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py")), re.M))


@pytest.mark.parametrize("page", ["privacy-promise.md", "known-weaknesses.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text()))
    assert named
    assert named <= TESTS, named - TESTS


def test_every_promise_names_a_test() -> None:
    rows = [line for line in (ROOT / "docs" / "privacy-promise.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise |")]
    assert len(promises) >= 20
    assert all("`test_" in row for row in promises)


def test_every_file_that_the_readme_names_is_there() -> None:
    named = re.findall(r"`((?:src|docs|benchmarks|tests)/[\w/.-]+)`", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_example_of_a_ledger_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = README[README.index("## A budget that lasts\n") :]
    exec(section.split("```python\n")[1].split("```")[0], {})
