"""Models of sequences from the command line: sequences of nobody with the promise beside them, and a picture."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb
from dpvb.data import Events
from dpvb.errors import ParameterError

PAGES = ["front", "=news", "sports"]


@pytest.fixture(params=["chain", "hidden"])
def model(request: Any, tmp_path: Path) -> Path:
    """A fitted model of either kind, in a file."""
    given: dict[str, Any] = {"symbols": PAGES, "max_length": 6, "epsilon": math.inf, "delta": 1e-6, "random_state": 1}
    kind = dpvb.MarkovChain(**given) if request.param == "chain" else dpvb.HiddenMarkovModel(2, **given)
    kind.fit(np.array(PAGES)[np.random.default_rng(1).integers(0, 3, (60, 6))])
    kind.save(tmp_path / "visits.dpvb")
    return tmp_path / "visits.dpvb"


def test_sequences_of_nobody_are_events_that_a_fit_reads(model: Path) -> None:
    out = model.with_name("synthetic.csv")
    run("synthesize", model, "--rows", "7", "--length", "4", "--out", out, "--seed", "3")
    with out.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["person", "time", "symbol"]
    assert [(int(person), int(time)) for person, time, _ in rows[1:]] == [
        (n, t) for n in range(1, 8) for t in range(1, 5)
    ]
    assert {symbol for *_, symbol in rows[1:]} <= {*PAGES}
    said = json.loads(out.with_name(f"{out.stem}-statement.json").read_text())
    assert said["people"] == 7
    assert said["statement"]["unit"] == "sequence"
    again = model.with_name("again.csv")
    run("synthesize", model, "--rows", "7", "--length", "4", "--out", again, "--seed", "3")
    assert again.read_bytes() == out.read_bytes()
    events = Events(out, time="time")
    assert dpvb.MarkovChain(PAGES, epsilon=math.inf, delta=1e-6).fit(events).privacy_.unit == "person"


def test_what_belongs_to_a_table_is_refused_of_sequences(model: Path, tmp_path: Path) -> None:
    call = ("synthesize", model, "--rows", "7", "--out", tmp_path / "s.csv")
    refuse(tmp_path, "belong to a mixture", *call, "--tables", "2")
    refuse(tmp_path, "belong to a mixture", *call, "--fidelity", tmp_path / "page.html")
    refuse(tmp_path, "--length must be", *call, "--length", "0")
    refuse(tmp_path, "belongs to the fit of a table", *call, "--epsilon", "1")
    assert not (tmp_path / "s.csv").exists()


def test_a_picture_shows_what_follows_what(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("show", model, "--what", "transitions", "--out", tmp_path / "steps.svg")
    text = (tmp_path / "steps.svg").read_text()
    assert text.startswith("<?xml")
    fitted = dpvb.load(model)
    fitted.plot(tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ParameterError, match="already there"):
        fitted.plot(tmp_path / "steps.png")
    names, law_vv, duration_v = fitted.transition_table()
    assert law_vv.shape == (len(names), len(names))
    np.testing.assert_allclose(law_vv.sum(axis=1), 1.0)
    assert (duration_v >= 1.0).all()
