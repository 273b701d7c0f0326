"""Every line of the README runs as it is typed, in order, in a fresh folder; in the slow suite each is a process."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_cli import run as call

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
#: Lines for the folder of the source; all others are for a folder of the reader's own.
OF_THE_SOURCE = ("make ", "python3 -m pip ")


def shell(code: str, *, of_the_source: bool) -> list[str]:
    lines = code.replace("\\\n", "").splitlines()
    return [line for line in lines if line and line.startswith(OF_THE_SOURCE) is of_the_source]


def run(script: list[str], folder: Path) -> str:
    """Standard output of lines of a shell that stops at the first failure."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": source},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_block_is_a_program_or_lines_of_a_shell() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "sh", "text"}  # What is printed is text.
    assert re.findall(r"^ {4}(?:dpvb|make|pip|python\S*|cd) .*", README, re.MULTILINE) == []
    written = [line for kind, code in BLOCKS if kind == "sh" for line in code.replace("\\\n", "").splitlines() if line]
    assert len(written) >= 10
    assert {line.split()[0] for line in written} == {"make", "python3", "dpvb", "cd"}


def test_every_command_line_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ""
    monkeypatch.chdir(tmp_path)
    for line in (line for kind, code in BLOCKS if kind == "sh" for line in shell(code, of_the_source=False)):
        program, *words = shlex.split(line, comments=True)
        if program == "cd":
            monkeypatch.chdir(words[0])
        else:
            said += call(*words).stdout
    assert "work=state" in said
    assert "AUC" in said
    assert "PRIVACY STATEMENT" in said
    assert "<html" in (tmp_path / "first-try" / "model.html").read_text()


@pytest.mark.slow
def test_every_line_and_every_program_runs_in_order(tmp_path: Path) -> None:
    script = []
    for number, (kind, code) in enumerate(BLOCKS):
        if kind == "python":
            (tmp_path / f"block{number}.py").write_text(code, encoding="utf-8")
            script.append(f"python {tmp_path}/block{number}.py")
        elif kind == "sh":
            script += shell(code, of_the_source=False)
    run(script, tmp_path)
    assert (tmp_path / "first-try" / "model.dpvb").exists()


def test_lines_for_the_source_name_what_is_there() -> None:
    lines = [line for kind, code in BLOCKS if kind == "sh" for line in shell(code, of_the_source=True)]
    for line in lines:
        if line.startswith("make "):
            subprocess.run(["make", "-n", line.split()[1]], cwd=ROOT, check=True, capture_output=True)
    assert sum("pip install ." in line for line in lines) == 1


@pytest.mark.slow
def test_the_source_installs_as_is_said(tmp_path: Path) -> None:
    """From this folder and from a wheel, each in an environment of its own, without what it needs: that is not ours."""
    lines = [line for kind, code in BLOCKS if kind == "sh" for line in shell(code, of_the_source=True)]
    for number, line in enumerate(line for line in lines if "pip" in line):
        python = tmp_path / str(number) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", tmp_path / str(number)], check=True)
        words = line.split("#")[0].replace("python3", str(python)).replace("dist", str(tmp_path / "dist"))
        run([f"{words} {'' if '--no-deps' in words else '--no-deps'}"], ROOT)
        if "wheel" in line:
            run([f"{python} -m pip install --no-deps {tmp_path}/dist/dpvb-*.whl"], tmp_path)
        version = [str(python), "-c", "import dpvb.guards.version; print(dpvb.guards.version.__file__)"]
        said = subprocess.run(version, cwd=tmp_path, check=True, capture_output=True, text=True, env={}).stdout
        assert str(tmp_path) in said


def test_no_page_and_no_message_installs_by_a_name_on_an_index() -> None:
    """Who installs by a name gets what its owner on the index put there; `dpvb` there is nobody's, or somebody's."""
    pages = [path for kind in ("src/**/*.py", "docs/**/*.md", "*.md") for path in ROOT.glob(kind)]
    assert len(pages) > 100
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"pip install [^\n]*\bdpvb\b(?![-/]|'s)", text) == [], path
        assert set(re.findall(r"'\.\[(\w+)\]'", text)) | set(re.findall(r"extra `(\w+)`", text)) <= set(extras), path
