"""JSON and texts that somebody else wrote."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills

import dpvb
from dpvb.cli import terminal
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.guards.untrusted import parsed_json, printable
from dpvb.results import model_file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(PLAIN)
def test_what_json_writes_is_read(value: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parsed_json(text) == value
        assert parsed_json(text.encode()) == value


HOSTILE = [
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '[{"b": {"a": 1, "c": 2, "a": 3}}]',
    "NaN",
    '{"a": Infinity}',
    "[-Infinity]",
    "1e999",
    "[[-1e400]]",
    '"\\ud800"',
    '{"\\udfff": 1}',
    '[{"a": ["\\udc00\\ud800"]}]',
    "[" * 65 + "]" * 65,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 70 + "1" + "}" * 70,
    "1" * 100_000,
    "",
    "{",
    "[1] [2]",
    "'a'",
]


@pytest.mark.guarantees("JSON")
@kills("code", "half a surrogate pair in JSON")
@edit("guards/untrusted.py", 'one.encode("utf-8")  #', 'one.encode("utf-8", "replace")  #')
@kills("code", "objects of JSON that name a key twice")
@edit("guards/untrusted.py", "    if len(members) != len(pairs):\n", "    if len(members) > len(pairs):\n")
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_json_that_readers_could_take_for_different_things_is_refused(text: str) -> None:
    for one in (text, text.encode()):
        with pytest.raises(ValueError):
            parsed_json(one)
    with pytest.raises(DataFormatError, match="not valid JSON"):
        dpvb.data.Schema.from_json(text)


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', '"a"'.encode("utf-16"), b'"\x80"'])
def test_bytes_that_are_not_utf_8_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parsed_json(data)


def test_nesting_as_deep_as_is_allowed_is_read() -> None:
    text = "[" * 64 + "]" * 64
    assert json.dumps(parsed_json(text)) == text


@pytest.mark.parametrize("word", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_half_surrogate_pairs_are_neither_saved_nor_loaded(word: str, tmp_path: Any) -> None:
    with pytest.raises(ParameterError, match="whole characters"):
        model_file.save(tmp_path / "m", kind="LDA", arrays={}, facts={"vocabulary": [word]})
    assert not (tmp_path / "m").exists()
    with pytest.raises(ModelFileError, match="surrogates"):
        model_file._parse(b'{"format": 1, "kind": "LDA", "arrays": {}, "facts": {"a": "\\ud800"}}')


def test_only_visible_characters_are_shown() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    for one in every:
        shown = printable(one)
        assert shown == (one if one.isprintable() else "?")
    shown = printable("".join(every))
    assert shown.isprintable()
    assert len(shown) == len(every)
    shown.encode()
    for command in "\x00\x07\x08\n\r\x1b\x7f\x9b\u200b\u200e\u202a\u202e\u2066\u2028\ud800\ufeff\U000e0041":
        assert printable(f"a{command}b") == "a?b"
    assert printable("Ünïcode, 中文, עברית and 😀") == "Ünïcode, 中文, עברית and 😀"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> model_file.StoredModel:
    """What the file of a model holds."""
    path = tmp_path_factory.mktemp("saved") / "m.dpvb"
    rows = np.random.default_rng(0).random((40, 3)) > 0.5
    dpvb.SigmoidBeliefNetwork(1, epsilon=1.0, delta=1e-5, n_steps=1).fit(rows).save(path)
    return model_file.load(path)


@pytest.mark.guarantees("no ledger in models")
@pytest.mark.parametrize("value", ["somewhere", None])
@pytest.mark.parametrize("name", ["ledger", "dataset", "checkpoint", "resume"])
def test_a_model_file_says_nothing_of_later_fits(
    name: str, value: str | None, saved: model_file.StoredModel, tmp_path: Path
) -> None:
    """Where a fit is counted and kept is said by whoever calls it."""
    assert name not in saved.facts["params"]
    facts = {**saved.facts, "params": {**saved.facts["params"], name: value}}
    model_file.save(tmp_path / "h.dpvb", kind=saved.kind, arrays=saved.arrays, facts=facts)
    with pytest.raises(ModelFileError, match="the parts of the file do not fit together"):
        dpvb.load(tmp_path / "h.dpvb")


COMMANDS = "\x1b]0;owned\x07\x1b[2K\rall is well\x9b2J\u202e\u2066"
PROGRAM = [sys.executable, "-c", "from dpvb.cli import app; app()"]


def in_a_terminal(*words: str, folder: Path) -> tuple[int, str]:
    """Exit code of the program in a pseudo-terminal, and what it wrote there."""
    import pty

    master, slave = pty.openpty()
    plain = {**os.environ, "TERM": "dumb"}  # The program's own colours are none of this.
    with subprocess.Popen(
        [*PROGRAM, *words], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=plain
    ) as process:
        os.close(slave)
        written = b""
        while True:
            try:
                part = os.read(master, 2**16)
            except OSError:  # Nobody has it open any more.
                break
            if not part:
                break
            written += part
    os.close(master)
    return process.returncode, written.decode()


def assert_harmless(written: str) -> None:
    assert written
    assert not [one for one in written if not one.isprintable() and one not in "\r\n"]
    assert "\r" not in written.replace("\r\n", "")


@pytest.mark.guarantees("terminals")
@kills("leaks", "commands to a terminal")
@edit(
    "cli/terminal.py", 'typer.echo("\\n".join(map(printable, text.split("\\n"))), err=err)', "typer.echo(text, err=err)"
)
def test_the_doors_to_a_terminal_let_no_command_out(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo(f"{COMMANDS}\n{COMMANDS}")
    terminal.remark(f"{COMMANDS}\n{COMMANDS}")
    terminal.print_table(COMMANDS, ["a", "b"], [[COMMANDS, f"x\n{COMMANDS}"]])
    facts = {COMMANDS: [COMMANDS, "München"]}
    for ensure_ascii in (True, False):
        said = capsys.readouterr()
        for written in filter(None, said):
            assert_harmless(written)
        terminal.print_json(facts, ensure_ascii=ensure_ascii)
    said = capsys.readouterr()
    assert_harmless(said.out)
    assert "München" in said.out
    assert json.loads(said.out) == facts


def test_remarks_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.remark("The run is over: well\nerror: no, it is not")
    assert capsys.readouterr().err == "The run is over: well?error: no, it is not\n"


def test_commands_print_through_those_doors_alone() -> None:
    folder = Path(dpvb.__file__).parent / "cli"
    paths = sorted(set(folder.glob("*.py")) - {folder / "terminal.py"})
    assert len(paths) > 5
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("typer.echo", "typer.secho", "click.echo", "print"), f"{path}:{node.lineno}"
                outside = called.startswith(("sys.stdout", "sys.stderr")) and not called.endswith(".reconfigure")
                assert not outside, f"{path}:{node.lineno}"


@pytest.mark.guarantees("terminals")
@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are those of POSIX")
def test_files_of_others_command_no_terminal(tmp_path: Path) -> None:
    """What is in a file, and what it is called."""
    lines = [{"format": 1, "ledger": "x"}, {"unreadable": COMMANDS}]
    (tmp_path / "chain.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    hostile = "\x1b]0;owned\x07\u202e"
    (tmp_path / f"{hostile}.dpvb").write_bytes(b"no model")
    schema = {"columns": [{"kind": "binary", "name": COMMANDS, "values": ["a", "b"]}]}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    for words in (
        ["ledger", "verify", "chain.jsonl"],
        ["show", f"{hostile}.dpvb"],
        ["schema", "s.json"],
        ["schema", "s.json", "--json"],
    ):
        _, written = in_a_terminal(*words, folder=tmp_path)
        assert_harmless(written)
