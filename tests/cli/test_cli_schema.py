"""`dpvb schema`: a schema in a minute, from a header or a data dictionary, and from CSV as it is written in Europe."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from terminal import on_terminal
from test_cli import refuse, run

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Target
from dpvb.data.tables.dictionary import columns_of_dictionary, stub
from dpvb.errors import DataFormatError, ParameterError

BUDGET = ["--epsilon", "1", "--delta", "1e-4", "--n-steps", "3", "--quiet"]
EUROPE = ["--separator", ";", "--decimal", ",", "--encoding", "cp1252"]


def people(folder: Path) -> Path:
    """A table as a spreadsheet of Germany writes it."""
    rng = np.random.default_rng(0)
    size = rng.uniform(1.5, 2.0, 300)
    work, ill = rng.choice(["Büro", "außen"], 300), np.where(rng.random(300) < size - 1, "Ja", "nein")
    lines = [f"{one:.2f};{other};{third}".replace(".", ",") for one, other, third in zip(size, work, ill, strict=True)]
    path = folder / "people.csv"
    path.write_text("\n".join(["größe;arbeit;krank", *lines, ""]), encoding="cp1252")
    return path


def test_from_a_header_to_coefficients_in_four_commands(tmp_path: Path) -> None:
    data, path, out = people(tmp_path), tmp_path / "people.json", tmp_path / "m.dpvb"
    made = run("schema", "--header", data, "--target", "krank", "--yes", *EUROPE)
    assert "The first line of people.csv names: größe;arbeit;krank\n" in made.stderr
    assert "Fill in low and high, " in made.stderr
    facts = json.loads(made.stdout)
    assert facts["columns"] == [{"kind": "numeric", "name": n, "low": None, "high": None} for n in ("größe", "arbeit")]
    path.write_text(made.stdout)
    refuse(tmp_path, "column 'größe' needs low and high, a public bound", "schema", path)
    facts["columns"][0] |= {"low": 1, "high": 2.5}
    facts["columns"][1] = {"kind": "categorical", "name": "arbeit", "categories": ["büro", "außen"]}
    path.write_text(json.dumps(facts))
    refuse(tmp_path, "target 'krank' of the schema needs kind, one of 'logistic', 'binomial', ", "schema", path)
    facts["target"] |= {"kind": "logistic", "classes": ["nein", "ja"]}
    path.write_text(json.dumps(facts))
    assert "größe" in run("schema", path).stdout
    run("fit", "logistic", data, "--schema", path, "--out", out, *EUROPE, *BUDGET, "--epsilon", "inf")
    assert "arbeit=außen" in run("show", out, "--what", "coefficients").stdout
    found = dpvb.load(out)
    assert found.coef_[0, 0] > 0
    facts = json.loads(run("evaluate", out, data, "--public", *EUROPE, "--json").stdout)
    assert facts["auc"] > 0.6
    refuse(
        tmp_path,
        "the header has one field with ';' in it: --separator ';'",
        *("fit", "logistic", data, "--schema", path, "--out", tmp_path / "n.dpvb", *BUDGET, "--encoding", "cp1252"),
    )
    refuse(tmp_path, "--separator must be one of", "evaluate", out, data, "--public", "--separator", ":")


def test_documents_say_their_separator_and_encoding(tmp_path: Path) -> None:
    words, data = tmp_path / "words.txt", tmp_path / "notes.csv"
    words.write_text("köln\nbern\n", encoding="utf-8")
    data.write_text('id;text\n1;"Köln; Bern"\n2;Bern\n', encoding="latin-1")
    read = ["--vocabulary", words, "--token-pattern", "[a-zö]+", "--separator", ";", "--encoding", "latin-1"]
    run("fit", "lda", data, *read, "--topics", "2", "--out", tmp_path / "m.dpvb", *BUDGET, "--epsilon", "inf")
    run("transform", tmp_path / "m.dpvb", data, *read[2:], "--out", tmp_path / "p.npz")
    assert np.load(tmp_path / "p.npz")["proportions"].shape == (2, 2)
    run("evaluate", tmp_path / "m.dpvb", data, "--public", *read[2:])


@pytest.mark.guarantees("schemas")
def test_nothing_behind_the_first_line_decides_anything(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder, rest in (("a", b""), ("b", b'1,\xff"\n"9999999' * 9999)):
        (tmp_path / folder / "t.csv").write_bytes(b"age,income\n" + rest)
    one, other = (run("schema", "--header", tmp_path / folder / "t.csv", "--yes") for folder in "ab")
    assert (one.stdout, one.stderr) == (other.stdout, other.stderr)


@pytest.mark.guarantees("schemas")
@kills("leaks", "a person's row in the place of a header written into a schema")
@edit("data/tables/dictionary.py", "        if doubt and not sure:\n", "        if False:\n")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("41,private,maybe", "a number or a date in field 1"),
        ("name,41.5", "a number or a date in field 2"),
        ("name,1e5", "a number or a date in field 2"),
        ("name,+49 30 1234567", "a number or a date in field 2"),
        ("Ann,2001-05-06", "a number or a date in field 2"),
        ("Ann,6.5.2001", "a number or a date in field 2"),
        ("Ann,06/05/2001", "a number or a date in field 2"),
        ("Ann,6 May 2001", "a number or a date in field 2"),
        ("Ann,2001-05-06T10:30:00Z", "a number or a date in field 2"),
        ("Ann,12:30", "a number or a date in field 2"),
        ("Ann,,private", "nothing in field 2"),
        ("Ann,NA,private", "nothing in field 2"),
    ],
)
def test_a_first_line_that_may_be_a_persons_row_is_neither_shown_nor_written(
    tmp_path: Path, line: str, said: str
) -> None:
    data = tmp_path / "t.csv"
    data.write_text(f"{line}\n1,2,3\n")
    refuse(tmp_path, f"{said}, so that it may be a person's row and no header", "schema", "--header", data)
    shown = run("schema", "--header", data, code=2).stderr.replace(str(data), "")  # Folders of tests have numbers.
    assert not any(field in shown for field in line.replace("name", "").split(",") if field)
    sure = run("schema", "--header", data, "--yes")
    assert [one["name"] for one in json.loads(sure.stdout)["columns"]] == [field for field in line.split(",") if field]


@pytest.mark.parametrize("line", ["age,income", "Q1,Q2_total", "größe in cm,x1", "2nd visit,age at 1st visit", "e,i"])
def test_names_that_hold_digits_are_names(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\n")
    made = json.loads(run(*_header(tmp_path), "--yes").stdout)
    assert [one["name"] for one in made["columns"]] == line.split(",")


def test_headers_that_are_none(tmp_path: Path) -> None:
    for content, said in (
        (b"", "it is empty"),
        (b"age;ill\n", "the header has one field with ';' in it: --separator ';'"),
        (
            "größe,ill\n".encode("latin-1"),
            "the header is not valid UTF-8: declare --encoding 'cp1252', 'latin-1' or another",
        ),
        ("age,ill\n".encode("utf-16"), "it holds zero bytes, as UTF-16 does: save the file as UTF-8"),
        (b"age,ill,age\n", "The columns must have names of their own, got 'age' 2 times"),
    ):
        (tmp_path / "t.csv").write_bytes(content)
        refuse(tmp_path, said, "schema", "--header", tmp_path / "t.csv")
    refuse(tmp_path, "there is no such file", "schema", "--header", tmp_path / "none.csv")
    (tmp_path / "t.csv").write_text("age,ill\n")
    refuse(tmp_path, "--target must be one of the columns 'age', 'ill', got 'I'", *_header(tmp_path), "--target", "I")
    refuse(tmp_path, "Give one of a schema, --header and --dictionary", *_header(tmp_path), "--dictionary", "x.csv")


def _header(folder: Path) -> list[Any]:
    return ["schema", "--header", folder / "t.csv"]


def test_a_target_without_a_name_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ill\n")
    facts = json.loads(run(*_header(tmp_path), "--yes").stdout)
    assert facts["target"]["name"] is None
    for column in facts["columns"]:
        column |= {"low": 0, "high": 9}
    with pytest.raises(ParameterError, match=r"target of the schema needs name, .* write null in its place"):
        Schema.from_json(json.dumps(facts))
    assert Schema.from_json(json.dumps({**facts, "target": None})).target is None
    with pytest.raises(ParameterError, match="'ill' more than once"):
        Schema.from_json(json.dumps({**facts, "target": {"name": "ill"}}))


BOOK = """name,type,low,high,levels,description,role,transform
age,integer,18,90,,years at entry,,
income,number,0,"500000",,,,log1p
work,factor,,,private | state|none,,,
urban,boolean,,,no|yes,,,
ill,binary,,,no|yes,,target,
who,string,,,,,group,
note,string,,,,free text,,
seen,date,,,,,none,
"""
EXPECTED = Schema(
    (
        Numeric("age", 18, 90),
        Numeric("income", 0, 500_000, transform="log1p"),
        Categorical("work", ("private", "state", "none")),
        dpvb.data.Binary("urban", ("no", "yes")),
    ),
    Target("ill", classes=("no", "yes")),
    group="who",
)
FRICTIONLESS = {
    "name": "people",
    "schema": {
        "fields": [
            {"name": "age", "type": "integer", "constraints": {"minimum": 18, "maximum": "90", "required": True}},
            {"name": "income", "type": "number", "constraints": {"minimum": 0, "maximum": 500000}, "title": "Income"},
            {"name": "work", "type": "string", "constraints": {"enum": ["private", "state", "none"], "unique": False}},
            {"name": "urban", "type": "boolean"},
            {"name": "ill", "type": "string", "categories": [{"value": "no", "label": "No"}, {"value": "yes"}]},
            {"name": "who", "type": "string"},
            {"name": "seen", "type": "date"},
        ],
        "primaryKey": "who",
    },
}


def test_a_data_dictionary_is_a_schema(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text(BOOK)
    made = run("schema", "--dictionary", tmp_path / "book.csv")
    assert Schema.from_json(made.stdout) == EXPECTED
    assert "Left out, as no numbers, levels or roles are declared of them: note, seen." in made.stderr
    assert "Fill in" not in made.stderr
    (tmp_path / "dated.csv").write_text(BOOK.replace("seen,date,,,,,none,", "seen,date,2015-01-01,2020-12-31,,,,"))
    made = run("schema", "--dictionary", tmp_path / "dated.csv")
    assert Schema.from_json(made.stdout).columns[-1] == dpvb.data.Date("seen", "2015-01-01", "2020-12-31")
    euro = BOOK.replace(",", ";").replace("18", "18,5")
    (tmp_path / "euro.csv").write_text(euro, encoding="latin-1")
    made = run("schema", "--dictionary", tmp_path / "euro.csv", *EUROPE)
    assert Schema.from_json(made.stdout).columns[0] == Numeric("age", 18.5, 90)


@pytest.mark.parametrize("around", ["schema", "resource", "package"])
def test_a_table_schema_of_frictionless_is_a_schema(tmp_path: Path, around: str) -> None:
    facts = {"schema": FRICTIONLESS["schema"], "resource": FRICTIONLESS, "package": {"resources": [FRICTIONLESS]}}
    (tmp_path / "f.json").write_text(json.dumps(facts[around]))
    made = Schema.from_json(
        run("schema", "--dictionary", tmp_path / "f.json", "--target", "ill", "--group", "who").stdout
    )
    income, urban = Numeric("income", 0, 500_000), dpvb.data.Binary("urban", (False, True))
    assert made == Schema(
        (EXPECTED.columns[0], income, EXPECTED.columns[2], urban), EXPECTED.target, group=EXPECTED.group
    )


def test_ranges_that_a_dictionary_leaves_open_are_null(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("Variable,Type,Min,Max\nage,number,,90\nvisits,count,0,9\n")
    made = run("schema", "--dictionary", tmp_path / "d.csv", "--target", "visits")
    assert "Fill in low and high, from what you know without looking at the rows, of: age." in made.stderr
    facts = json.loads(made.stdout)
    assert facts["columns"] == [{"kind": "numeric", "name": "age", "low": None, "high": 90}]
    assert facts["target"] == {"name": "visits", "kind": "negative_binomial", "max_count": 9}


@each(
    ("line", "target"),
    [
        ("y,number,,", {"kind": None}),
        ("y,count,0,", {"kind": None}),
        ("y,text,,", {"kind": None}),
        ("y,number,0,1", {"kind": "logistic", "classes": [0, 1]}),
        ("y,number,0,8.5", {"kind": "numeric", "low": 0, "high": 8.5}),
        ("y,number,-5,5", {"kind": "numeric", "low": -5, "high": 5}),
        ("y,count,0,9", {"kind": "negative_binomial", "max_count": 9}),
        ("y,factor,,,a|b", {"kind": "logistic", "classes": ["a", "b"]}),
        ("y,factor,,,a|b|c", {"kind": "classes", "classes": ["a", "b", "c"]}),
    ],
)
def test_the_kind_of_a_target_is_what_is_declared_of_it_and_null_where_nothing_is(
    tmp_path: Path, line: str, target: dict[str, Any]
) -> None:
    (tmp_path / "d.csv").write_text(f"name,type,low,high,levels\nage,number,0,90,\n{line}\n")
    made = run("schema", "--dictionary", tmp_path / "d.csv", "--target", "y")
    assert json.loads(made.stdout)["target"] == {"name": "y", **target}
    assert ("Fill in the kind of the target" in made.stderr) == (target["kind"] is None)


@pytest.mark.guarantees("schemas")
@kills("leaks", "statistics of the data taken for what was declared of them")
@edit("data/tables/dictionary.py", "    return _plain(head) in _HEADS.keys() | _DECLARED\n", "    return True\n")
@pytest.mark.parametrize(
    "head",
    [
        *("mean", "std", "Std. Dev.", "median", "observed_min", "max (observed)", "min_empirical", "top", "freq"),
        *("p25", "25%", "n_distinct", "histogram", "stats", "count", "inferred high", "n_missing"),
        *("Mittelwert", "moyenne", "Häufigkeit", "平均", "anything"),
    ],
)
def test_a_field_that_declares_nothing_is_named_and_must_be_vouched_for(tmp_path: Path, head: str) -> None:
    (tmp_path / "d.csv").write_text(f"name,type,low,high,{head}\nage,number,0,90,41.5\n")
    said = f"{head!r} of 'age'. --yes must state that nothing in the dictionary, no range and no level either, was"
    refuse(tmp_path, said, "schema", "--dictionary", tmp_path / "d.csv")
    sure = run("schema", "--dictionary", tmp_path / "d.csv", "--yes")
    assert f"{head!r} of 'age'" in sure.stderr
    assert "41.5" not in sure.stdout + sure.stderr
    for place in ("field", "constraint"):
        field: dict[str, Any] = {"name": "age", "type": "number", "constraints": {"minimum": 0, "maximum": 90}}
        (field if place == "field" else field["constraints"])[head] = 41.5
        (tmp_path / "d.json").write_text(json.dumps({"fields": [field]}))
        assert columns_of_dictionary(tmp_path / "d.json")[1] == [(head, "age")]
    (tmp_path / "d.csv").write_text(f"name,type,low,high,{head}\nage,number,0,90,\n")
    columns, unknown = columns_of_dictionary(tmp_path / "d.csv")
    assert (stub(columns)["columns"][0]["high"], unknown) == (90, [])


def test_so_must_what_stands_around_a_table_schema(tmp_path: Path) -> None:
    for facts in (
        {"resources": [{**FRICTIONLESS, "stats": {"rows": 41}}]},
        {**FRICTIONLESS, "stats": {"rows": 41}},
        {"fields": [{"name": "age", "type": "number"}], "stats": {"fields": 1}},
    ):
        (tmp_path / "d.json").write_text(json.dumps(facts))
        refuse(tmp_path, "'stats' of 'the table'. --yes must state", "schema", "--dictionary", tmp_path / "d.json")


@pytest.mark.guarantees("schemas")
@kills("leaks", "a person's row of plain words written into a schema unasked")
@edit("cli/schema.py", "    if not (sure or asked):\n", "    if False:\n")
def test_on_a_terminal_a_typed_yes_says_what_the_first_line_is(tmp_path: Path) -> None:
    data = tmp_path / "t.csv"
    data.write_text("Ann,private,no\n1,2,3\n")
    for said, code in (("yes\n", 0), ("y\n", 2), ("\n", 2)):
        with (tmp_path / "made.json").open("wb") as made:
            found, shown = on_terminal("schema", "--header", data, said=said, stdout=made)
        assert found == code, shown
        assert "The first line of t.csv names: Ann,private,no" in shown
        assert "Type yes if the first line is a header, not a row of data" in shown
        assert ("Nothing was written: the command needs a typed yes" in shown) == (code == 2)
        assert ("Ann" in (tmp_path / "made.json").read_text()) == (code == 0)
    refuse(tmp_path, "--yes must state that the first line is a header, not a row of data", "schema", "--header", data)
    assert "Ann" not in run("schema", "--header", data, code=2).output
    data.write_text("Ann,41,no\n")
    code, shown = on_terminal("schema", "--header", data)
    assert code == 2
    assert "a number or a date in field 2" in shown
    assert "Ann" not in shown.replace("yes", "")


def test_on_a_terminal_a_typed_yes_vouches_for_a_dictionary(tmp_path: Path) -> None:
    book = tmp_path / "d.csv"
    book.write_text("name,type,low,high,moyenne\nage,number,0,90,41.5\n")
    for said, code in (("yes\n", 0), ("no\n", 2)):
        found, shown = on_terminal("schema", "--dictionary", book, said=said)
        assert found == code
        assert "'moyenne' of 'age'" in shown
        assert ("dpvb-schema" in shown) == (code == 0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("d.csv", b"", "must name the columns name and type"),
        ("d.csv", b"a;b\n", "must name the columns name and type"),
        ("d.csv", b"name,type\n,number\n", "A line of it has no name"),
        ("d.csv", b"name,type,low\nage,number,young\n", "low of column 'age' must be a number, got 'young'"),
        ("d.csv", b"name,type,role\nage,number,king\n", "role of column 'age' must be one of"),
        ("d.csv", b"name,type,role\na,binary,target\nb,binary,target\n", "role must be target for one column"),
        ("d.csv", b"name,type\nage,number\nage,number\n", "names of their own, got 'age' 2 times"),
        ("d.csv", b"name,type\n\xff,number\n", "is not a CSV file in utf-8"),
        ("d.json", b"", "is not JSON"),
        ("d.json", b"[1]", "must hold one table schema"),
        ("d.json", b'{"schema": "people.json"}', "must hold one table schema"),
        ("d.json", b'{"resources": [{"fields": []}, {"fields": []}]}', "must hold one table schema"),
        ("d.json", b'{"fields": [{"type": "number"}]}', "must hold one table schema"),
        ("d.json", b'{"fields": [{"name": "a", "constraints": 5}]}', "constraints of column 'a' must be an object"),
        ("d.json", b"[" * 10**5, "is not JSON"),
    ],
)
def test_faulty_dictionaries_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    refuse(tmp_path, said, "schema", "--dictionary", tmp_path / name)


def test_a_dictionary_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    refuse(tmp_path, "there is no such file", "schema", "--dictionary", tmp_path / "none.csv")
    with pytest.raises(DataFormatError, match=os.strerror(21)):
        columns_of_dictionary(tmp_path)
