"""Every page is a program: its blocks run in the order of the page, in a folder that `dpvb example-data` has filled.

A `python` block runs in the page's own namespace, a `sh` block line by line. A block of any kind that has a title is
written to the file of that name instead. What a page takes for granted stands before it in a comment, `<!-- first:`,
which is Python and is not shown.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from each import each
from postgresql_server import Server
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- first:\n(?P<first>.*?)^-->|```(?P<kind>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<code>.*?)^(?P=indent)```)$",
    re.DOTALL | re.MULTILINE,
)
#: Lines for the folder of the source; all others are for a folder of the reader's own.
OF_THE_SOURCE = ("make ", "python3 -m pip ", "pip install ")
#: The ledger of a team, where a page names one.
TEAM = "postgresql://keeper@server/budgets"
#: The port of a page's own server; here it is one that is free.
PORT = "localhost:9317"


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, title and text of each block, `python` and no title of what comes first."""
    for found in BLOCK.finditer(text):
        code = found["first"] if found["code"] is None else found["code"]
        kind = "python" if found["code"] is None else found["kind"]
        yield kind, found["title"] or "", textwrap.dedent(code)


@each("page", PAGES, ids=NAMES)
def test_every_block_of_a_page_is_fenced(page: Path) -> None:
    """What is fenced is run; what is only indented would be no program."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert "```" not in text
    assert re.findall(r"^ {4,}(?:dpvb|make|pip|python\S*|import|from \w+ import|model) .*", text, re.MULTILINE) == []


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dpvb import sample

    folder = tmp_path_factory.mktemp("sample")
    sample.write(folder)
    return folder


def command(line: str, folder: Path) -> None:
    """One line of a shell; `dpvb` alone is called in this process, which has loaded what it needs."""
    from dpvb.cli import app

    if line.startswith("dpvb check-data"):  # On a terminal alone, with a typed yes.
        line = f"printf 'yes\\n' | script -qec {shlex.quote(line)} /dev/null"
    if line.startswith("dpvb ") and not re.search(r"[|<>&]", line):
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, (line, done.stdout[-2000:], done.stderr[-2000:], done.exception)
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": source},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, (line, ran.stdout[-2000:], ran.stderr[-2000:])


def lines_of(code: str) -> list[str]:
    """Lines of a shell; one that ends in `&` goes on in the next, so that what it has begun is waited for."""
    joined = re.sub(r"&( +#.*)?\n", "& ", code.replace("\\\n", ""))
    lines = [line.strip() for line in joined.splitlines()]
    return [f"{line} wait" if line.endswith("&") else line for line in lines if line and line[0] != "#"]


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
    programs = [block for block in blocks(text) if block[0] in ("python", "sh") or block[1]]
    if not programs:
        return
    shutil.copytree(sample, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    module = types.ModuleType("page")  # Classes of a page are looked for in it.
    monkeypatch.setitem(sys.modules, "page", module)
    team = team_ledger(request.getfixturevalue("postgresql")) if TEAM in text else ""
    with socket.create_server(("localhost", 0)) as there:
        port = there.getsockname()[1]
    for kind, title, code in programs:
        told = code.replace(TEAM, team).replace(PORT, f"localhost:{port}")
        if title:
            Path(title).write_text(told, encoding="utf-8")
        elif kind == "python":
            exec(compile(told, f"<{page.name}>", "exec"), module.__dict__)
        else:
            for line in lines_of(told):
                if line.startswith("cd "):
                    monkeypatch.chdir(shlex.split(line, comments=True)[1])
                elif not line.startswith(OF_THE_SOURCE):
                    command(line, Path.cwd())
