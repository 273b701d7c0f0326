"""A terminal that knows no Unicode, no colour and no cursor: every word arrives, and nothing that it would obey."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_POOR = {"LC_ALL": "C", "PYTHONUTF8": "0", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}
_FIT = "--epsilon 1 --delta 1e-5 --out m.dpvb"
_LINES = [
    "example-data .",
    f"fit logistic people.csv --schema people.json {_FIT}",
    "show m.dpvb --what coefficients",
    "show m.dpvb",
    "report m.dpvb --out m.html",
    "plan logistic --schema people.json --n-units 2000 --epsilon 1 --delta 1e-5",
    "synthesize people.csv --schema people.json --rows 50 --epsilon 1 --delta 1e-5 --out synthetic.csv",
    "evaluate m.dpvb public_people.csv --public",
    "schema people.json",
    "--help",
]


def test_the_list_of_commands_is_printed_where_epsilon_has_no_character(tmp_path: Path) -> None:
    given = [sys.executable, "-c", "from dpvb.cli import app; app()", "--help"]
    env = {**os.environ, **_POOR, "PYTHONIOENCODING": "ascii", "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(given, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"federate" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_command_degrades_to_plain_lines(encoding: str, tmp_path: Path) -> None:
    env = {**os.environ, **_POOR, "PYTHONIOENCODING": encoding, "XDG_STATE_HOME": str(tmp_path / "state")}
    for line in _LINES:
        given = [sys.executable, "-c", "from dpvb.cli import app; app()", *line.split()]
        done = subprocess.run(given, env=env, cwd=tmp_path, capture_output=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert b"\x1b" not in said
        assert b"\r" not in said
        assert b"Traceback" not in said
        if encoding == "ascii":
            assert not {*"─│╭━"} & {*said.decode("utf-8")}, line
    assert 'charset="utf-8"' in (tmp_path / "m.html").read_text(encoding="utf-8")
