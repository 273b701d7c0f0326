"""`dpvb fit` of chains, hidden states and linear systems, and `transitions`: long tables, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--quiet"]
COLUMNS = ["--symbols", "front,news,sports", "--person-column", "user", "--symbol-column", "page"]


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
    shown = run("transitions", out).stdout
    assert "followed by" in shown
    assert "9 transitions, 95% intervals, noise counted in" in shown
    assert '"low"' in run("transitions", out, "--json").stdout
    shown = run("fit", "markov-chain", visits, *COLUMNS, "--out", visits.with_name("n.dpvb"), *BUDGET, "--rehearse")
    assert "made-up" in shown.stdout + shown.stderr
    assert not visits.with_name("n.dpvb").exists()


def test_a_public_mistake_is_one_line(visits: Path) -> None:
    call = ["fit", "markov-chain", visits, "--time-column", "clock", "--out", visits.with_name("m.dpvb"), *BUDGET]
    refuse(visits.parent, "'symbol'", *call, "--symbols", "front,news")
    refuse(visits.parent, "at least two", *call, *COLUMNS[2:], "--symbols", "front")
    refuse(visits.parent, "order must be", *call, *COLUMNS, "--order", "3")


def test_a_long_table_becomes_hidden_states(visits: Path) -> None:
    out, call = visits.with_name("m.dpvb"), ["fit", "hidden-markov", visits, *COLUMNS, *BUDGET]
    assert "Without --time-column" in run(*call, "--states", "2", "--out", out).stderr
    assert dpvb.load(out).transition_matrix_.shape == (2, 2)
    run(*call, "--states", "1", "--clip", "20", "--out", out, "--overwrite")
    shown = run("transitions", out).stdout
    assert "Hidden Markov model, states: 1, symbols: 3" in shown
    assert "1 transitions, 95% intervals, noise counted in" in shown


def test_a_long_table_of_numbers_becomes_a_system(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [f"{pen},{rng.integers(100)},{rng.integers(100)},{t}" for pen in range(300) for t in range(8)]
    (tmp_path / "pens.csv").write_text("\n".join(["pen,x,y,t", *lines]) + "\n")
    out = tmp_path / "pens.dpvb"
    call = ["fit", "linear-dynamical", tmp_path / "pens.csv", "--columns", "x,y", "--states", "2", "--low", "0"]
    call += ["--high", "100,99", "--person-column", "pen", "--time-column", "t", "--max-length", "8", *BUDGET]
    for more in ([], ["--stream", "--overwrite"]):
        run(*call, "--out", out, *more)
    found = dpvb.load(out)
    assert found.columns_ == ("x", "y")
    assert found.high == [100.0, 99.0]
    shown = run(*call, "--out", tmp_path / "n.dpvb", "--rehearse")
    assert "made-up" in shown.stdout + shown.stderr
    refuse(tmp_path, "low and high or row_norm", *call[:7], *call[11:], "--out", tmp_path / "n.dpvb")
    refuse(tmp_path, "z", *call[:4], "x,z", *call[5:], "--out", tmp_path / "n.dpvb")
