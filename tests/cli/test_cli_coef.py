"""`dpvb show --what coefficients` hands a table on: CSV, JSON, a picture, the difference of two models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import refuse, run

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target

COEF = ("show", "--what", "coefficients")
LIKE = Schema((Numeric("age", 0, 100), Categorical("work", ("state", "own"))), target=Target("ill"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, rng = tmp_path_factory.mktemp("coef"), np.random.default_rng(0)
    age, work = rng.uniform(0, 100, 2_000), rng.choice(["state", "own"], 2_000)
    rows = Table({"age": age, "work": work, "ill": (rng.random(2_000) < age / 100).astype(int)}, LIKE)
    paths = [folder / "first.dpvb", folder / "second.dpvb"]
    for path, epsilon in zip(paths, (4.0, 8.0), strict=True):
        dpvb.LogisticRegression(epsilon=epsilon, delta=1e-5, n_steps=4).fit(rows).save(path)
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
    assert run(*COEF, models[0], *words).stdout == f"{table}\n"
    assert run(*COEF, models[0], *words, "--as", "csv").stdout == table.to_csv()
    assert json.loads(run(*COEF, models[0], *words, "--as", "json").stdout) == [row._asdict() for row in table]
    for suffix in ("csv", "json", "png", "svg"):
        out = ["--out", tmp_path / f"coef.{suffix}"]
        done = run(*COEF, models[0], *words, *out)
        assert done.stdout == ""
        assert f"coef.{suffix}: written" in done.stderr
        refuse(tmp_path, f"coef.{suffix}' is already there", *COEF, models[0], *words, *out)
        assert run(*COEF, models[0], *out, *words, "--overwrite").stdout == ""
    assert (tmp_path / "coef.csv").read_text(encoding="utf-8") == table.to_csv()
    assert json.loads((tmp_path / "coef.json").read_text()) == [row._asdict() for row in table]
    assert (tmp_path / "coef.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "coef.svg").read_text().count("<path") > len(table)


@pytest.mark.parametrize("disjoint", [False, True])
def test_two_models_are_subtracted(models: list[Path], disjoint: bool) -> None:
    made = dpvb.compare(*map(dpvb.load, models), disjoint=disjoint, exp=True)
    words = ["--compare-with", models[1], "--exp", *(["--disjoint"] if disjoint else [])]
    assert run(*COEF, models[0], *words).stdout == f"{made}\n"
    assert run(*COEF, models[0], *words, "--as", "csv").stdout == made.to_csv()


def test_what_cannot_be_written_is_said_before_a_model_is_read(models: list[Path], tmp_path: Path) -> None:
    nothing = tmp_path / "none.dpvb"
    refuse(tmp_path, "--as must be", *COEF, nothing, "--as", "latex")
    refuse(tmp_path, "--disjoint needs a second model", *COEF, nothing, "--disjoint")
    refuse(tmp_path, "--out must end in", *COEF, nothing, "--out", tmp_path / "coef.gif")
    refuse(tmp_path, "--out: there is no folder", *COEF, nothing, "--out", tmp_path / "none" / "coef.csv")
    refuse(tmp_path, "--exp applies only to figures", "show", models[0], "--exp")
    refuse(tmp_path, "--compare-with applies only to figures", "show", models[0], "--compare-with", models[1])
    refuse(tmp_path, "got 'statement', which is text", "show", models[0], "--as", "csv")
    refuse(tmp_path, "there is no such file", *COEF, models[0], "--compare-with", nothing)
    refuse(tmp_path, "--reference must be COLUMN=LEVEL", *COEF, models[0], "--reference", "own")
    twice = ["--reference", "work=own", "--reference", "work=state"]
    refuse(tmp_path, "once per column, got 'work=state'", *COEF, models[0], *twice)
    refuse(tmp_path, "--reference must give a category of", *COEF, models[0], "--reference", "job=own")
