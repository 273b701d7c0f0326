"""Every page is a program: its blocks run in the order of the page, in a folder that `dpvb example-data` has filled.

`setup/outputs.py` runs them, and writes the `text` blocks that hold their output. What a page takes for granted stands
before it in a comment, `<!-- first:`, which is Python and is not shown.
"""

from __future__ import annotations

import re
import shutil
import socket
import sys
import types
from pathlib import Path

import outputs
import pytest
from each import each
from postgresql_server import Server

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
#: The ledger of a team, where a page names one.
TEAM = "postgresql://keeper@server/budgets"
#: The port of a page's own server; here it is one that is free.
PORT = "localhost:9317"


@each("page", PAGES, ids=NAMES)
def test_every_block_of_a_page_is_fenced(page: Path) -> None:
    """What is fenced is run; what is only indented would be no program."""
    text = outputs.BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert "```" not in text
    assert re.findall(r"^ {4,}(?:dpvb|make|pip|python\S*|import|from \w+ import|model) .*", text, re.MULTILINE) == []


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dpvb import sample

    folder = tmp_path_factory.mktemp("sample")
    sample.write(folder)
    return folder


def team_ledger(server: Server) -> str:
    """Address of a new database, on a server that has the roles of the pages."""
    for role in ("analyst", "auditor"):
        if not server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"):
            server.execute(f"CREATE ROLE {role} LOGIN")
    return server.new_database()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_of_a_page_runs(
    page: Path, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = page.read_text(encoding="utf-8")
    if not any(block["kind"] in ("python", "sh") or block["title"] for block in outputs.BLOCK.finditer(text)):
        return
    shutil.copytree(sample, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))  # The run sets it; the test takes it away.
    team = team_ledger(request.getfixturevalue("postgresql")) if TEAM in text else ""
    with socket.create_server(("localhost", 0)) as there:
        port = there.getsockname()[1]
    found = outputs.run(text, page.name, lambda code: code.replace(TEAM, team).replace(PORT, f"localhost:{port}"))
    for output in found if page.parent in (ROOT, ROOT / "docs" / "tutorials") else []:  # Other pages have excerpts.
        assert outputs.form(output.printed) == outputs.form(output.written), output.printed


def test_an_output_is_compared_without_its_numbers() -> None:
    assert outputs.form("age  0.04 -1e-05\nwork 1,000.5") == outputs.form("age 0.05 2\nwork  -3")
    assert outputs.form("age 0.04") != outputs.form("work 0.04")
    assert outputs.form("age 0.04") != outputs.form("age 0.04 0.05")


def test_a_text_block_below_a_program_has_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "page", types.ModuleType("page"))
    page = (
        "```python\nprint(1 + 1)\n```\n\n```text\nthree\n```\n\n```python\nx = 3\n```\n\nWords.\n\n```text\nfour\n```\n"
    )
    [output] = outputs.run(page, "page.md")
    assert (output.written, output.printed) == ("three\n", "2\n")
    assert page[output.start : output.end] == "three\n"
