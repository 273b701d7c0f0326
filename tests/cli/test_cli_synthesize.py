"""`dpvb fit mixture`, `groups` and `synthesize`: rows of nobody, the promise beside them, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target

SCHEMA = Schema((Numeric("age", 0, 100), Numeric("visits", 0, 20), Categorical("job", ("a", "b"), other=False)))
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """300 rows in two groups, and their schema beside them."""
    rng = np.random.default_rng(0)
    lines = ["age,visits,job"]
    for one in rng.random(300) < 0.5:
        lines.append(f"{rng.normal(30 if one else 60, 5):.2f},{rng.poisson(2 if one else 8)},{'a' if one else 'b'}")
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    SCHEMA.save(tmp_path / "people.json")
    return tmp_path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_of_nobody_come_with_the_promise_and_in_the_types_of_the_schema(people: Path) -> None:
    data, out = people / "people.csv", people / "synthetic.csv"
    run("synthesize", data, "--schema", people / "people.json", "--rows", "250", "--out", out, *BUDGET,
        "--count-columns", "visits", "--seed", "3", "--quiet")  # fmt: skip
    rows = table(out)
    assert len(rows) == 250
    assert [*rows[0]] == ["age", "visits", "job"]
    assert all(0 <= float(row["age"]) <= 100 and row["visits"].isdecimal() for row in rows)
    assert {row["job"] for row in rows} <= {"a", "b", ""}
    said = json.loads((people / "synthetic-statement.json").read_text())
    assert said["rows"] == 250
    assert said["statement"]["epsilon"] <= 1.0
    assert said["statement"]["delta"] == 1e-6
    assert said["statement"] == dpvb.load(people / "synthetic.dpvb").privacy_.to_dict()
    Table(out, SCHEMA)  # The file is a table of the same schema.
    assert sorted(path.name for path in people.iterdir()) == [
        "people.csv",
        "people.json",
        "synthetic-statement.json",
        "synthetic.csv",
        "synthetic.dpvb",
    ]


def test_a_fitted_mixture_makes_any_number_of_tables_and_spends_nothing(people: Path) -> None:
    model, out = people / "m.dpvb", people / "s.csv"
    run("fit", "mixture", people / "people.csv", "--schema", people / "people.json", "--components", "3",
    "--count-columns",
        "visits", *BUDGET, "--out", model, "--quiet")  # fmt: skip
    shown = run("show", model, "--what", "components").stdout
    assert "share" in shown
    assert "job=a" in shown
    lines = json.loads(run("show", model, "--what", "components", "--level", "0.5", "--as", "json").stdout)
    fitted = dpvb.load(model)
    assert [line["name"] for line in lines] == [line.name for line in fitted.component_table()]
    run("synthesize", model, "--rows", "40", "--out", out, "--tables", "3", "--seed", "1")
    tables = [table(people / f"s-{place}.csv") for place in (1, 2, 3)]
    assert [len(rows) for rows in tables] == [40, 40, 40]
    assert tables[0] != tables[1]
    said = json.loads((people / "s-statement.json").read_text())
    assert said["tables"] == ["s-1.csv", "s-2.csv", "s-3.csv"]
    assert said["statement"] == fitted.privacy_.to_dict()


def test_a_page_of_fidelity_has_the_pairs_that_were_paid_for(people: Path) -> None:
    data, page, model = people / "people.csv", people / "page.html", people / "m.dpvb"
    given = ["--schema", people / "people.json", "--rows", "60", *BUDGET, "--seed", "0", "--quiet"]
    run("synthesize", data, *given, "--out", people / "s.csv", "--fidelity", page, "--fidelity-share", "0.1")
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "s.csv" in text
    assert "age × job" in text
    assert "script" not in text
    dpvb.GaussianMixture(2, low=0, high=1, epsilon=1.0, delta=1e-6).fit(np.random.default_rng(0).random((200, 2))).save(
        model
    )
    run(
        "synthesize", model, "--rows", "50", "--out", people / "g.csv", "--tables", "2", "--fidelity", people / "g.html"
    )
    assert "g-2.csv" in (people / "g.html").read_text()
    refuse(people, "--fidelity", "synthesize", data, *given, "--out", people / "t.csv", "--fidelity", page)
    refuse(people, ".html", "synthesize", data, *given, "--out", people / "t.csv", "--fidelity", people / "a.txt")
    refuse(
        people,
        "--fidelity-share",
        "synthesize",
        model,
        "--rows",
        "5",
        "--out",
        people / "t.csv",
        "--fidelity-share",
        ".1",
    )


def test_what_is_missing_or_there_already_is_refused_before_anything_is_spent(people: Path) -> None:
    data, out, schema = people / "people.csv", people / "s.csv", people / "people.json"

    def refused(expected: str, *args: object) -> None:
        refuse(people, expected, "synthesize", *args)

    call = ("synthesize", data, "--schema", schema, "--rows", "5", "--out", out)
    assert "Missing option '--epsilon'" in run(*call, code=2).stderr
    usage = run(*call, *BUDGET, "--nonsense", code=2).stderr
    assert usage.startswith("error: No such option '--nonsense'.")
    refuse(people, "--epsilon must be", *call, "--epsilon", "0", "--delta", "1e-6")
    refuse(people, "comes first", "synthesize", "--schema", schema, data, "--rows", "5", "--out", out, *BUDGET)
    out.with_suffix(".dpvb").write_text("mine")
    refused("s.dpvb' is already there", data, "--schema", schema, "--rows", "5", "--out", out, *BUDGET)
    out.with_suffix(".dpvb").unlink()
    refused("--schema", data, "--rows", "5", "--out", out, *BUDGET)
    refused("--out must end in .csv", data, "--schema", schema, "--rows", "5", "--out", people / "s.txt", *BUDGET)
    refused("--rows must be", data, "--schema", schema, "--rows", "0", "--out", out, *BUDGET)
    refused("--tables must be", data, "--schema", schema, "--rows", "5", "--tables", "1", "--out", out, *BUDGET)
    run("synthesize", data, "--schema", schema, "--out", out, *BUDGET, code=2)  # --rows has no default.
    said = people / "s-statement.json"
    said.write_text("mine")
    refused(
        f"The file of the privacy statement, which --out implies, {str(said)!r} is already there",
        data,
        "--schema",
        schema,
        "--rows",
        "5",
        "--out",
        out,
        *BUDGET,
    )
    assert said.read_text() == "mine"
    assert not out.exists()
    dpvb.GaussianMixture(2, low=0, high=1, epsilon=1.0, delta=1e-6).fit(np.random.default_rng(0).random((200, 2))).save(
        people / "m.dpvb"
    )
    refused("--schema", people / "m.dpvb", "--schema", schema, "--rows", "5", "--out", people / "t.csv")
    run("synthesize", people / "m.dpvb", "--rows", "5", "--out", people / "t.csv")
    assert [*table(people / "t.csv")[0]] == ["x0", "x1"]


def test_a_mixture_of_a_table_that_is_not_there(people: Path) -> None:
    """A dry run takes made-up rows of the schema, with and without a target."""
    schema = people / "people.json"
    for target in (None, Target("ill", classes=("no", "yes"))):
        replace(SCHEMA, target=target).save(schema)
        given = ["--schema", schema, "--out", people / "m.dpvb", *BUDGET, "--n-units", "300", "--dry-run"]
        result = run("fit", "mixture", people / "nosuch.csv", *given, "--n-steps", "3", "--quiet")
        assert "300 synthetic rows took" in result.stderr
        assert "No row was read, no budget was spent" in " ".join(result.stderr.split())
    assert not (people / "m.dpvb").exists()
    refuse(people, "--schema", "fit", "mixture", people / "people.csv", *given[2:])


def test_classes_are_learnt_from_a_table_and_from_texts(people: Path) -> None:
    """`dpvb fit naive-bayes`: a file's groups, measures on public rows, and what is refused."""
    out, budget = people / "m.dpvb", (*BUDGET, "--quiet")
    run("fit", "naive-bayes", people / "people.csv", "--schema", people / "people.json", "--response", "job",
        "--count-columns", "visits", "--bins", "8", "--out", out, *budget)  # fmt: skip
    assert "share" in run("show", out, "--what", "components").stdout
    assert "accuracy" in run("evaluate", out, people / "people.csv", "--public").stdout
    notes = people / "notes.csv"
    notes.write_text("words,topic\n" + 'apple bread,"Food"\n' * 60 + "river stone,place\n" * 60 + "river,nowhere\n")
    (people / "words.txt").write_text("apple\nbread\nriver\nstone\n")
    given = ("--vocabulary", people / "words.txt", "--text-column", "words", "--label-column", "topic")
    classes = ("--classes", "food,place", "--out", out, "--overwrite", *budget)
    run("fit", "naive-bayes", notes, *given, *classes)
    model = dpvb.load(out)
    assert model.classes_.tolist() == ["food", "place"]
    said = run("fit", "naive-bayes", people / "absent.csv", *given[:2], *classes, "--dry-run").stderr
    assert "synthetic documents" in said
    public = people / "public.csv"
    public.write_text("words,topic\napple,food\nstone,place\n")
    assert "accuracy" in run("evaluate", out, public, "--public", *given[2:]).stdout
    refuse(people, "--schema for a table, or --vocabulary and --classes", "fit", "naive-bayes", notes, *classes)
    refuse(people, "the column 'label' once", "fit", "naive-bayes", notes, *given[:4], *classes)
