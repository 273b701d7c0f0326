"""`dpvb check-data`: faults in words, on a terminal that is one, for a typed yes, and nothing else of the data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from terminal import on_terminal
from test_cli import run

import dpvb
from dpvb.cli import check_data
from dpvb.cli.root import ExitCode
from dpvb.data import Binary, Categorical, Date, Interaction, Numeric, Schema, Spline, Table, Target

PROGRAM = [sys.executable, "-c", "from dpvb.cli import app; app()"]
SCHEMA = Schema(
    (Numeric("age", low=18, high=90), Categorical("work", ("private", "state"))),
    target=Target("ill", classes=("no", "yes")),
)


def words(shown: str) -> dict[str, list[str]]:
    """The table on a terminal: a name and what follows it."""
    cells = [re.split(r" {2,}", line.strip()) for line in shown.splitlines()]
    return {name: rest for name, *rest in cells if rest and set(rest) <= set(check_data.SHARES)}


@pytest.fixture
def people(tmp_path: Path) -> tuple[Path, Path]:
    """A table that has each fault, and its schema."""
    rows = ["31,state,yes", '"1,5",state,ja', "77777,bakery,nein", "40,private", "-3,\xe4,oui", "52,private,no"]
    data, schema = tmp_path / "people.csv", tmp_path / "people.json"
    data.write_bytes(("age,work,ill\n" + "\n".join(rows) + "\n").encode("latin-1"))
    SCHEMA.save(schema)
    return data, schema


@kills("leaks", "faults of private data as shares")
@edit("cli/check_data.py", "    return SHARES[1 if 2 * count <= total else 2]", '    return f"{count / total:.0%}"')
def test_faults_of_a_table_are_said_in_words(people: tuple[Path, Path]) -> None:
    data, schema = people
    code, shown = on_terminal("check-data", data, "--schema", schema)
    assert code == 0
    assert words(shown) == {
        "(whole rows)": ["few"],
        "age": ["few", "none", "few"],
        "work": ["few", "few", "none"],
        "ill": ["none", "most", "none"],
    }
    assert "the privacy guarantee of every fit that uses it is void" in " ".join(shown.split())
    after = shown.partition("Type yes to go on")[2]
    assert re.findall(r"\d+", after) == ["6"]
    assert not re.search("77777|bakery|nein|oui|ja", after)


def test_faults_of_dates_and_splines_are_said_in_words(tmp_path: Path) -> None:
    age = Spline("age", (30, 50, 70), low=18, high=90, missing=50)
    columns = (age, Date("day", "2015-01-01", "2020-12-31"), Interaction("age", "day"))
    Schema(columns).save(tmp_path / "s.json")
    rows = ["31,2016-01-01", "NA,2021-01-01", "77777,01.02.2016", "x,2017-01-01T10:30+02:00", "40,", "50,1999-12-31"]
    (tmp_path / "t.csv").write_text("age,day\n" + "\n".join(rows) + "\n")
    code, shown = on_terminal("check-data", tmp_path / "t.csv", "--schema", tmp_path / "s.json")
    assert code == 0
    assert words(shown) == {"(whole rows)": ["none"], "age": ["few", "none", "few"], "day": ["few", "none", "few"]}


@pytest.mark.guarantees("data check")
def test_tables_with_the_same_faults_look_the_same(people: tuple[Path, Path]) -> None:
    data, schema = people
    found = on_terminal("check-data", data, "--schema", schema)
    rows = ["90,private,no", "x,private,n", "91,nothing,y", "", "-1e9,\xfc,z", "18,state,yes"]
    data.write_bytes(("age,work,ill\n" + "\n".join(rows) + "\n1\n").encode("latin-1"))
    assert on_terminal("check-data", data, "--schema", schema) == found


def test_faults_of_texts_are_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("apple\npear\n")
    notes = tmp_path / "notes"
    notes.mkdir()
    texts = [b"apple", b"zyzzyva", b"\xffapple", b"%PDF\0\xff", b"a\0p\0", b"", b"1234", b"pear"]
    for n, text in enumerate(texts):
        (notes / f"{n}.txt").write_bytes(text)
    (notes / "table.docx").write_bytes(b"not read")
    code, shown = on_terminal("check-data", notes, "--vocabulary", tmp_path / "words.txt")
    assert code == 0
    assert " 8 documents read. " in shown
    assert words(shown) == {"texts": ["few", "few", "few"], "other files, not read": ["few"]}
    for path in notes.iterdir():
        path.unlink()
    code, shown = on_terminal("check-data", notes, "--vocabulary", tmp_path / "words.txt")
    assert code == 0
    assert "0 documents read." in shown
    assert words(shown) == {"texts": ["none", "none", "none"], "other files, not read": ["none"]}
    (notes / "letter.docx").write_bytes(b"not read")
    (notes / "NOTE.TXT").write_bytes(b"apple")
    code, shown = on_terminal("check-data", notes, "--vocabulary", tmp_path / "words.txt")
    assert code == 0
    assert "1 documents read." in shown
    assert words(shown)["other files, not read"] == ["few"]


def test_persons_of_texts_who_are_nobody_are_faults(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("apple\n")
    lines = [{"text": "apple", "who": who} for who in ("a", None, "NA", "")] + [{"who": "b"}]
    (tmp_path / "n.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"schema": None, "vocabulary": tmp_path / "words.txt", "group_column": "who", "text_column": "text"}
    given |= {"file_format": None, "token_pattern": "[a-z]+", "separator": ",", "encoding": "utf-8"}
    found = check_data._of_texts(tmp_path / "n.jsonl", given)
    assert found == (5, {"texts": ["few", "none", "none"], "who: no person": ["most", "", ""]})


@pytest.mark.guarantees("data check")
@kills("leaks", "the share of words that a list knows")
@edit(
    "data/documents/vocabulary.py",
    "        return self._find_all(str.lower(text))",
    "        return [token for token in self._find_all(str.lower(text)) if token in self._id_of]",
)
def test_the_share_of_words_that_a_list_knows_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("apple\npear\nplum\n")
    for vocabulary in (["apple", "pear", "plum"], ["nothing"]):
        (tmp_path / "words.txt").write_text("\n".join(vocabulary) + "\n")
        given = {"vocabulary": tmp_path / "words.txt", "group_column": None, "text_column": "text"}
        given |= {"file_format": None, "token_pattern": "[a-z]+", "separator": ",", "encoding": "utf-8"}
        found = check_data._of_texts(tmp_path / "texts.txt", given)
        assert found == (3, {"texts": ["none", "none", "none"]})


def test_every_kind_of_column() -> None:
    nan = float("nan")
    schema = Schema(
        (
            Numeric("number", low=0, high=1),
            Numeric("filled", low=0, high=1, missing=0),
            Binary("flag", values=("no", "yes")),
            Binary("filled flag", values=("no", "yes"), missing="no"),
            Categorical("place", ("a", "b")),
            Categorical("strict", ("a", "b"), other=False, missing=False),
        ),
        target=Target("y", kind="binomial", max_trials=5, trials="n"),
        group="who",
    )
    data = {
        "number": [0, 1, nan, "x"],
        "filled": [0, None, "x", 7],
        "flag": ["no", "", "maybe", "perhaps"],
        "filled flag": ["no", "", "maybe", "perhaps"],
        "place": ["a", "", "c", b"\xff"],
        "strict": ["a", "", "c", b"\xff"],
        "y": [0, 3, -1, 1.5],
        "n": [5, 2, 6, 0],
        "who": ["1", "NA", None, "2"],
    }
    assert check_data._of_table(Table(data, schema)) == (
        4,
        {
            "(whole rows)": ["none", "", ""],
            "number": ["few", "none", "none"],
            "filled": ["few", "none", "few"],
            "flag": ["few", "few", "none"],
            "filled flag": ["none", "few", "none"],
            "place": ["few", "few", "none"],
            "strict": ["few", "few", "none"],
            "y": ["few", "none", "few"],
            "n": ["none", "none", "few"],
            "who": ["few", "none", "none"],
        },
    )
    counts = Schema((Numeric("x", low=0, high=1),), target=Target("y", kind="negative_binomial", max_count=3))
    found = check_data._of_table(Table({"x": np.zeros(4), "y": [4, 5, -1, "many"]}, counts))
    assert found[1]["y"] == ["few", "none", "most"]


def test_what_stands_beside_a_response_has_faults_too() -> None:
    bounds = {"exposure": "e", "max_exposure": 9, "offset": "o", "max_offset": 2, "weights": "w", "max_weight": 3}
    target = Target("y", kind="poisson", max_count=3, **bounds)
    data = {"x": np.zeros(4), "y": [0, 1, 2, 3], "e": [0, -1, "x", 10], "o": [-3, 3, 0, ""], "w": [0, -1, 3, 4]}
    _, found = check_data._of_table(Table(data, Schema((Numeric("x", low=0, high=1),), target=target)))
    assert found["e"] == ["few", "none", "most"]
    assert found["o"] == ["few", "none", "few"]
    assert found["w"] == ["none", "none", "few"]


@pytest.mark.parametrize(
    ("count", "total", "word"),
    [(0, 0, "none"), (0, 5, "none"), (1, 2, "few"), (2, 3, "most"), (1, 1, "all"), (9, 10, "most"), (1, 10**6, "few")],
)
def test_words_of_shares(count: int, total: int, word: str) -> None:
    assert check_data._word(count, total) == word


@pytest.mark.guarantees("data check")
@kills("leaks", "a look without a typed yes")
@edit("cli/check_data.py", '!= "yes":', '== "no":')
@pytest.mark.parametrize("said", ["y\n", "YES\n", "yes, please\n", "\x04"])
def test_only_a_typed_yes_goes_on(people: tuple[Path, Path], ledger: Path, said: str) -> None:
    data, schema = people
    before = len(dpvb.Ledger(ledger).entries())
    code, shown = on_terminal("check-data", data, "--schema", schema, "--ledger", ledger, "--dataset", "a", said=said)
    assert code != 0
    assert "rows read." not in shown
    assert not words(shown)
    assert len(dpvb.Ledger(ledger).entries()) == before


@pytest.mark.guarantees("data check")
@kills("leaks", "faults of private data in a pipe")
@edit(
    "cli/check_data.py",
    "if not is_terminal(sys.stdin, sys.stdout, sys.stderr):",
    "if not any(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):",
)
@pytest.mark.parametrize("stream", ["stdin", "stdout", "both"])
def test_pipes_and_files_are_refused(people: tuple[Path, Path], stream: str, tmp_path: Path) -> None:
    data, schema = people
    (tmp_path / "yes").write_text("yes\n")
    with (tmp_path / "yes").open() as typed, (tmp_path / "shown").open("w") as shown:
        streams: dict[str, Any] = {"stdin": {"stdin": typed}, "stdout": {"stdout": shown}}.get(stream, {})
        streams = streams or {"stdin": typed, "stdout": shown}
        code, on_screen = on_terminal("check-data", data, "--schema", schema, **streams)
    assert code == 2
    assert "must run in an interactive terminal" in on_screen
    assert (tmp_path / "shown").read_text() == ""
    piped = subprocess.run(
        [*PROGRAM, "check-data", str(data), "--schema", str(schema)], input="yes\n", capture_output=True, text=True
    )
    assert (piped.returncode, piped.stdout) == (2, "")
    assert "must run in an interactive terminal" in piped.stderr


@pytest.mark.guarantees("check notes")
def test_a_ledger_keeps_a_note_before_the_look(people: tuple[Path, Path], ledger: Path) -> None:
    data, schema = people
    given = ["check-data", data, "--schema", schema, "--ledger", ledger]
    with dpvb.Ledger(ledger) as found:
        left = found.remaining("a")
    assert on_terminal(*given, "--dataset", "a")[0] == 0
    with dpvb.Ledger(ledger) as found:
        assert [(entry.dataset, entry.state) for entry in found.entries() if entry.kind == "event"] == [("a", "looked")]
        assert found.remaining("a") == left
        found.verify()
    for more in (["--dataset", "nobody"], []):
        code, shown = on_terminal(*given, *more)
        assert code == 2
        assert "rows read." not in shown
    data.unlink()  # What is not there is looked at by nobody.
    assert on_terminal(*given, "--dataset", "a")[0] == ExitCode.DATA_UNREADABLE
    assert len([entry for entry in dpvb.Ledger(ledger).entries() if entry.kind == "event"]) == 1
    (note,) = dpvb.Ledger(ledger).data_checks("a")
    shown = run("ledger", "show", ledger).stdout
    assert f"a: checked without noise by dpvb check-data, at {note.created}." in " ".join(shown.split())
    facts = json.loads(run("ledger", "show", ledger, "--json").stdout)
    assert {one["name"]: one["data_checks"] for one in facts} == {"a": [note.created], "b": [], "c": []}


def test_what_is_certain_beforehand_is_said_before_a_yes_is_asked_for(
    people: tuple[Path, Path], ledger: Path, tmp_path: Path
) -> None:
    data, schema = people
    (tmp_path / "words.txt").write_text("apple\n")
    (tmp_path / "empty").mkdir()
    grouped = tmp_path / "grouped.json"
    replace(SCHEMA, group="who").save(grouped)
    header = data.read_bytes()
    texts = tmp_path / "notes.csv"
    texts.write_text("note,text\n1,apple\n")
    for content, given, said in (
        (b"age,work\n1,2\n", [data, "--schema", schema], "The data lack 'ill', the target of the schema"),
        (b"age;work;ill\n", [data, "--schema", schema], "--separator ';', and --decimal ',' if"),
        (header, [data, "--schema", grouped], "names the column 'who' once; every column"),
        (header, [data, "--schema", data], "The schema is not valid JSON"),
        (header, [tmp_path / "empty", "--schema", schema], "is a folder without .parquet files"),
        (header, [texts, "--vocabulary", tmp_path / "words.txt", "--text-column", "body"], "'body'"),
        (header, [texts, "--vocabulary", tmp_path / "words.txt", "--group-column", "who"], "'who'"),
        (header, [texts, "--vocabulary", tmp_path / "none.txt"], "none.txt"),
    ):
        data.write_bytes(content)
        code, shown = on_terminal("check-data", *given, "--ledger", ledger, "--dataset", "a", said="")
        assert code in (ExitCode.FAILED, ExitCode.DATA_UNREADABLE)
        assert said in " ".join(shown.split())
        assert "Type yes" not in shown
    assert dpvb.Ledger(ledger).data_checks("a") == []


def test_public_mistakes_are_said(people: tuple[Path, Path], tmp_path: Path) -> None:
    data, schema = people
    for given, said in (
        ([data], "Give either --schema"),
        ([data, "--schema", schema, "--vocabulary", schema], "Give either --schema"),
        ([data, "--schema", schema, "--text-column", "age"], "--text-column does not apply to tables"),
        ([data, "--vocabulary", "private"], "--vocabulary must be a word list here"),
        ([tmp_path / "nosuch.csv", "--schema", schema], "nosuch.csv"),
        ([tmp_path / "c.npz", "--vocabulary", schema], "c.npz"),
    ):
        code, shown = on_terminal("check-data", *given)
        assert code in (ExitCode.FAILED, ExitCode.DATA_UNREADABLE)
        assert said in " ".join(shown.split())
    data.write_text("age,work\n1,2\n")
    assert "'ill'" in on_terminal("check-data", data, "--schema", schema)[1]


def test_there_is_no_way_past_the_terminal() -> None:
    assert "check_data" not in dir(dpvb)
    assert not any(option.startswith(("force", "yes")) for option in check_data.check_data.__annotations__)
