"""The made-up data that `dpvb example-data` writes."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from test_cli import run

import dpvb
from dpvb import sample
from dpvb.cli.files import read_matrix
from dpvb.data import Schema, open_documents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sample") / "first-try"
    run("example-data", made)
    return made


def test_it_is_the_same_at_each_call(folder: Path, tmp_path: Path) -> None:
    run("example-data", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(sample.NAMES)
    written = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(written) == 2_507
    assert [name for name in written if (folder / name).read_bytes() != (tmp_path / name).read_bytes()] == []


def test_nothing_that_is_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text("mine")
    said = run("example-data", tmp_path, code=2).stderr
    assert "people.json" in said
    assert "new folder" in said
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("people.json", "mine")]
    assert "FOLDER must be a folder" in run("example-data", tmp_path / "people.json", code=2).stderr
    assert "FOLDER must be a folder" in run("example-data", tmp_path / "no" / "folder", code=2).stderr


def test_the_table_in_the_docs_is_what_its_commands_print(folder: Path, tmp_path: Path) -> None:
    """Numbers, and notes, are those of another noise."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "coefficients.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```text\n\$ dpvb (fit .*)\n\$ dpvb (show .*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    names = {"people.csv": folder / "people.csv", "people.json": folder / "people.json", "people.dpvb": tmp_path / "m"}
    fit, show = ([names.get(word, word) for word in line.split()] for line in block[:2])
    run(*fit, "--quiet")

    def skeleton(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if not line.startswith(("prior:", "scale unknown:"))]
        return [
            " ".join(re.sub(r"-?\d[\d.,e+-]*|prior$|scale unknown$", "#", line).rstrip("# ").split()) for line in lines
        ]

    assert skeleton(run(*show).stdout) == skeleton(block[2])


def test_every_unit_counts(folder: Path) -> None:
    """No row of the table and no note is one that a fit leaves out."""
    schema = Schema.load(folder / "people.json")
    with (folder / "people.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20_000
    assert list(rows[0]) == [*(column.name for column in schema.columns), "ill"]
    assert all(18 <= int(row["age"]) <= 90 and 0 <= int(row["income"] or 0) <= 500_000 for row in rows)
    for name, values in (
        ("work", {"private", "state", "self-employed"}),
        ("urban", {"no", "yes"}),
        ("ill", {"no", "yes"}),
    ):
        assert {row[name] for row in rows} == values
    notes = open_documents(folder / "notes", vocabulary=folder / "words.txt")
    assert notes.count() == 2_000
    images = read_matrix(folder / "images-ubyte.gz")
    assert images.shape == (5_000, 64)
    assert 0.45 < (images > 0).mean() < 0.55
    with (folder / "visits.csv").open() as file:
        visits = list(csv.DictReader(file))
    assert {row["page"] for row in visits} == {"front", "news", "sports"}
    assert len({row["user"] for row in visits}) == 3_000
    seen = {(row["user"], int(row["clock"])): row["page"] for row in visits}
    pairs = [(page, seen[user, clock + 1]) for (user, clock), page in seen.items() if (user, clock + 1) in seen]
    assert sum(one == two for one, two in pairs) / len(pairs) == pytest.approx(
        0.6, abs=0.02
    )  # The same data each time.


def test_a_fit_finds_what_is_in_it(folder: Path, tmp_path: Path) -> None:
    """The log odds grow by 1 / 25 a year; sampling and noise move that by 0.001."""
    given = ["--schema", folder / "people.json", "--epsilon", 1, "--delta", 1e-5, "--quiet"]
    run("fit", "logistic", folder / "people.csv", *given, "--out", tmp_path / "m.dpvb")
    weight = {
        row["name"]: row["mean"]
        for row in json.loads(run("show", tmp_path / "m.dpvb", "--what", "coefficients", "--as", "json").stdout)
    }
    assert weight["age"] == pytest.approx(1 / 25, abs=0.007)
    assert weight["work=state"] == pytest.approx(1.0, abs=0.5)
    words = sample._SUBJECTS[0]
    notes = open_documents(folder / "notes", vocabulary=folder / "words.txt")
    model = dpvb.LDA(4, epsilon=1.0, delta=1e-5, random_state=0).fit(notes)
    assert sorted(words) in [sorted(topic) for topic in model.topics(len(words))]
