"""`dpvb fit` of chains, hidden states and linear systems, and `transitions`: long tables, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--quiet"]
COLUMNS = ["--symbols", "front,news,sports", "--group-column", "user", "--symbol-column", "page"]


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """400 persons of 1 to 6 visits, in any order."""
    rng = np.random.default_rng(0)
    lines = [
        f"{user},{rng.choice(['front', 'news', 'sports'])},{t}" for user in range(400) for t in range(user % 6 + 1)
    ]
    rng.shuffle(lines)
    (tmp_path / "visits.csv").write_text("\n".join(["user,page,clock", *lines]) + "\n")
    return tmp_path / "visits.csv"


def test_a_long_table_becomes_a_law(visits: Path) -> None:
    out = visits.with_name("m.dpvb")
    for more in ([], ["--stream", "--overwrite"]):
        run("fit", "markov-chain", visits, *COLUMNS, "--time-column", "clock", "--out", out, *BUDGET, *more)
    assert dpvb.load(out).symbols_ == ("front", "news", "sports")
    shown = run("show", out, "--what", "summary").stdout
    assert "followed by" in shown
    shown = run("show", out, "--what", "transitions").stdout
    assert "9 transitions, 95% intervals, including the privacy noise" in shown
    assert '"low"' in run("show", out, "--what", "transitions", "--as", "json").stdout
    shown = run("fit", "markov-chain", visits, *COLUMNS, "--out", visits.with_name("n.dpvb"), *BUDGET, "--dry-run")
    assert "synthetic" in shown.stdout + shown.stderr
    assert not visits.with_name("n.dpvb").exists()


def test_a_public_mistake_is_one_line(visits: Path) -> None:
    call = ["fit", "markov-chain", visits, "--time-column", "clock", "--out", visits.with_name("m.dpvb"), *BUDGET]
    refuse(visits.parent, "'symbol'", *call, "--symbols", "front,news")
    refuse(visits.parent, "at least two", *call, *COLUMNS[2:], "--symbols", "front")
    states = ["fit", "hidden-markov", visits, "--states", "2", "--out", visits.with_name("m.dpvb"), *BUDGET]
    refuse(visits.parent, "symbols must be given", *states)
    refuse(visits.parent, "a GaussianHiddenMarkovModel", *states, "--columns", "clock")
    refuse(visits.parent, "order must be", *call, *COLUMNS, "--order", "3")


def test_a_long_table_becomes_hidden_states(visits: Path) -> None:
    out, call = visits.with_name("m.dpvb"), ["fit", "hidden-markov", visits, *COLUMNS, *BUDGET]
    assert "Without --time-column" in run(*call, "--states", "2", "--out", out).stderr
    assert dpvb.load(out).transition_matrix_.shape == (2, 2)
    run(*call, "--states", "1", "--clip-norm", "20", "--out", out, "--overwrite")
    shown = "".join(run("show", out, "--what", what).stdout for what in ("summary", "transitions"))
    assert "Hidden Markov model, states: 1, symbols: 3" in shown
    assert "1 transitions, 95% intervals, including the privacy noise" in shown


def test_a_long_table_of_numbers_becomes_a_system(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [f"{pen},{rng.integers(100)},{rng.integers(100)},{t}" for pen in range(300) for t in range(8)]
    (tmp_path / "pens.csv").write_text("\n".join(["pen,x,y,t", *lines]) + "\n")
    out = tmp_path / "pens.dpvb"
    call = ["fit", "linear-dynamical", tmp_path / "pens.csv", "--columns", "x,y", "--states", "2", "--low", "0"]
    call += ["--high", "100,99", "--group-column", "pen", "--time-column", "t", "--max-length", "8", *BUDGET]
    for more in ([], ["--stream", "--overwrite"]):
        run(*call, "--out", out, *more)
    found = dpvb.load(out)
    assert found.columns_ == ("x", "y")
    assert tuple(found.high) == (100.0, 99.0)
    shown = run(*call, "--out", tmp_path / "n.dpvb", "--dry-run")
    assert "synthetic" in shown.stdout + shown.stderr
    refuse(tmp_path, "low and high or max_row_norm", *call[:7], *call[11:], "--out", tmp_path / "n.dpvb")
    refuse(tmp_path, "z", *call[:4], "x,z", *call[5:], "--out", tmp_path / "n.dpvb")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 persons of 3 to 8 points of two numbers and two bits, which two states show."""
    rng, lines = np.random.default_rng(2), ["who,day,hours,pulse,wakes,eats"]
    for person in range(200):
        for day in range(int(rng.integers(3, 9))):
            state = int(rng.integers(2))
            hours, pulse = rng.normal([2 + 6 * state, 60 + 50 * state], [1, 10])
            wakes, eats = (rng.random(2) < [0.1 + 0.8 * state, 0.5]).astype(int)
            lines.append(f"{person},2024-01-{day + 1:02d},{hours:.3f},{pulse:.2f},{wakes},{eats}")
    path = tmp_path_factory.mktemp("long") / "long.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


WHO = ["--group-column", "who", "--time-column", "day"]
NUMBERS = ["--columns", "hours,pulse", "--low", "0,40", "--high", "12,160"]
KINDS: dict[str, list[Any]] = {
    "gaussian": ["gaussian-hidden-markov", *NUMBERS],
    "bernoulli": ["hidden-markov", "--columns", "wakes,eats", "--emissions", "bernoulli", "--clip-norm", "none"],
    "linear": ["linear-dynamical", *NUMBERS, "--window", "3", "--max-length", "8"],
}


@pytest.fixture(scope="module", params=list(KINDS))
def model(request: Any, long: Path) -> tuple[str, Path]:
    """A model of each kind of columns, fitted without noise."""
    out = long.with_name(f"{request.param}.dpvb")
    name, *given = KINDS[request.param]
    call = ["fit", name, long, "--states", "2", *given, *WHO, "--epsilon", "inf", "--delta", "1e-6", "--seed", "1"]
    said = run(*call, "--out", out, "--quiet")
    assert (
        f"dpvb show {out} --what {'loadings' if request.param == 'linear' else 'transitions'}"
        in said.stdout + said.stderr
    )
    return request.param, out


def test_transitions_are_printed_with_intervals_or_without(model: tuple[str, Path]) -> None:
    kind, path = model
    told = json.loads(run("show", path, "--what", "transitions", "--as", "json").stdout)
    found = dpvb.load(path)
    if kind == "linear":
        assert "each step times" in run("show", path, "--what", "summary").stdout
        np.testing.assert_allclose([one["value"] for one in told], found.transition_matrix_.ravel())
        parts = json.loads(run("show", path, "--what", "motion", "--as", "json", "--level", "0.5").stdout)
        assert [part["title"] for part in parts] == [f"How sequences begin: {name}" for name in found.columns_]
        np.testing.assert_allclose([point[0] for point in parts[0]["lines"][0][1]], found.marginal_bands().mean[:, 0])
        return
    assert [(one["part"], one["name"]) for one in told] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert (found.clip_norm is None) == (kind == "bernoulli")  # as --clip-norm none says
    assert all(one["low"] <= one["mean"] <= one["high"] for one in told)


def test_points_of_nobody_have_the_columns_of_the_data(model: tuple[str, Path]) -> None:
    kind, path = model
    out = path.with_name(f"{kind}.csv")
    run("synthesize", path, "--rows", "3", "--length", "4", "--out", out, "--seed", "3")
    with out.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["person", "time", *(["wakes", "eats"] if kind == "bernoulli" else ["hours", "pulse"])]
    assert [(int(row[0]), int(row[1])) for row in rows] == [(n, t) for n in (1, 2, 3) for t in (1, 2, 3, 4)]
    drawn = dpvb.load(path).sample(3, 3, length=4)
    points = drawn if kind == "linear" else drawn[0]
    np.testing.assert_allclose(np.array([row[2:] for row in rows], float), points.reshape(12, 2), rtol=1e-5)


def test_a_public_long_table_is_scored_as_its_sequences_are(model: tuple[str, Path], long: Path) -> None:
    kind, path = model
    with long.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found, names = dpvb.load(path), ("wakes", "eats") if kind == "bernoulli" else ("hours", "pulse")
    people = [[row for row in rows if row["who"] == str(person)] for person in range(200)]
    x = [np.array([[float(row[name]) for name in names] for row in own]) for own in people]
    told = json.loads(run("evaluate", path, long, *WHO, "--public", "--json").stdout)
    assert told == {"log_likelihood_of_a_point": pytest.approx(found.score(x, public=True), rel=1e-12)}
    assert "of a point" in run("evaluate", path, long, *WHO, "--public").stdout
    refuse(path.parent, "--public", "evaluate", path, long, *WHO)


def test_a_picture_of_motion_and_reports_are_written(model: tuple[str, Path]) -> None:
    pytest.importorskip("matplotlib")
    kind, path = model
    run("show", path, "--what", "all", "--out", path.with_suffix(".svg"))
    assert path.with_suffix(".svg").read_text().startswith("<?xml")
    run("report", path, "--out", path.with_suffix(".html"))
    assert ("Transitions of states" in path.with_suffix(".html").read_text()) == (kind != "linear")
    if kind == "linear":
        bands = dpvb.load(path).marginal_bands(5)
        assert bands.mean.shape == (5, 2)
        assert (bands.low < bands.mean).all()


def test_symbols_of_a_public_table_have_a_perplexity(visits: Path) -> None:
    out = visits.with_name("m.dpvb")
    run("fit", "markov-chain", visits, *COLUMNS, "--time-column", "clock", "--out", out, *BUDGET)
    named = [*COLUMNS[2:], "--time-column", "clock", "--public"]
    told = json.loads(run("evaluate", out, visits, *named, "--json").stdout)
    assert told["perplexity"] == pytest.approx(np.exp(-told["log_likelihood_of_a_symbol"]))
    visits.with_name("other.csv").write_text("user,page,clock\n1,weather,1\n")
    refuse(visits.parent, "none of the symbols", "evaluate", out, visits.with_name("other.csv"), *named)


def test_a_help_has_an_example_that_names_what_must_be_given() -> None:
    for name, word in (("hidden-markov", "--states 3"), ("linear-dynamical", "--states 2 --columns x,y")):
        text = " ".join(run("fit", name, "--help").stdout.split())
        assert f"dpvb fit {name} events.csv {word}" in text
        assert "--delta N" not in text
        assert ("NUMBER|none" in text) == (name == "hidden-markov")
