"""`dpvb coef` hands a table on: CSV, LaTeX, a picture, the difference of two models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target

LIKE = Schema((Numeric("age", 0, 100), Categorical("work", ("state", "own"))), target=Target("ill"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, rng = tmp_path_factory.mktemp("coef"), np.random.default_rng(0)
    age, work = rng.uniform(0, 100, 2_000), rng.choice(["state", "own"], 2_000)
    rows = Table({"age": age, "work": work, "ill": (rng.random(2_000) < age / 100).astype(int)}, LIKE)
    paths = [folder / "first.dpvb", folder / "second.dpvb"]
    for path, epsilon in zip(paths, (4.0, 8.0), strict=True):
        dpvb.LogisticRegression(epsilon=epsilon, delta=1e-5, num_steps=4).fit(rows).save(path)
    return paths


OPTIONS: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["--exp", "--level", "0.9", "--coding", "sum"], {"exp": True, "level": 0.9, "coding": "sum"}),
    (["--reference", "work=own"], {"reference": {"work": "own"}}),
]


@pytest.mark.parametrize(("words", "options"), OPTIONS, ids=["plain", "ratios", "reference"])
def test_what_is_written_is_what_the_library_makes(
    models: list[Path], tmp_path: Path, words: list[str], options: dict[str, Any]
) -> None:
    pytest.importorskip("matplotlib")
    table = dpvb.load(models[0]).coefficients(**options)
    assert run("coef", models[0], *words, "--csv", "-").stdout == table.to_csv()
    assert run("coef", models[0], *words, "--latex").stdout == table.to_latex()
    written = ["--csv", tmp_path / "coef.csv", "--plot", tmp_path / "coef.png"]
    told = run("coef", models[0], *words, *written)
    assert told.stdout == ""
    assert "coef.csv" in told.stderr
    assert (tmp_path / "coef.csv").read_text(encoding="utf-8") == table.to_csv()
    assert (tmp_path / "coef.png").read_bytes().startswith(b"\x89PNG")
    refuse(tmp_path, "coef.csv' is already there", "coef", models[0], *written)
    assert run("coef", models[0], *written, "--overwrite").stdout == ""
    if not words:
        assert run("picture", models[0], "--out", tmp_path / "picture.png").stderr.endswith("picture.png: written.\n")
        assert (tmp_path / "picture.png").read_bytes() == (tmp_path / "coef.png").read_bytes()


@pytest.mark.parametrize("disjoint", [False, True])
def test_two_models_are_subtracted(models: list[Path], disjoint: bool) -> None:
    made = dpvb.compare(*map(dpvb.load, models), disjoint=disjoint, exp=True)
    words = ["--minus", models[1], "--exp", *(["--disjoint"] if disjoint else [])]
    assert run("coef", models[0], *words).stdout == f"{made}\n"
    assert run("coef", models[0], *words, "--csv", "-").stdout == made.to_csv()


def test_what_cannot_be_written_is_said_before_a_model_is_read(models: list[Path], tmp_path: Path) -> None:
    nothing = tmp_path / "none.dpvb"
    refuse(tmp_path, "give one of them", "coef", nothing, "--latex", "--json")
    refuse(tmp_path, "give one of them", "coef", nothing, "--csv", "-", "--latex")
    refuse(tmp_path, "--disjoint speaks of two models", "coef", nothing, "--disjoint")
    refuse(tmp_path, "--plot must end in", "coef", nothing, "--plot", tmp_path / "coef.gif")
    refuse(tmp_path, "--csv: there is no folder", "coef", nothing, "--csv", tmp_path / "none" / "coef.csv")
    refuse(tmp_path, "there is no such file", "coef", models[0], "--minus", nothing)
    refuse(tmp_path, "--reference must be COLUMN=LEVEL", "coef", models[0], "--reference", "own")
    twice = ["--reference", "work=own", "--reference", "work=state"]
    refuse(tmp_path, "once a column, got 'work=state'", "coef", models[0], *twice)
    refuse(tmp_path, "--reference must give a category of", "coef", models[0], "--reference", "job=own")


def test_a_picture_of_a_regression_is_its_intervals(models: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("picture", models[0], "--out", tmp_path / "coef.svg")
    run("coef", models[0], "--plot", tmp_path / "plot.svg")
    said = [(tmp_path / name).read_text() for name in ("coef.svg", "plot.svg")]
    assert [text.count("<path") for text in said] == [said[1].count("<path")] * 2
