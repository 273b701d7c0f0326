"""A model file takes no other file's place unless that is said, as on the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.errors import ModelFileError, ParameterError
from dpvb.guards.arrays import Bools
from dpvb.guards.domains import NONNEGATIVE, Positives
from dpvb.results import trees
from dpvb.results.trees import Label


def test_a_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    x_nd = np.random.default_rng(0).random((40, 3)) < 0.5
    model = dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, n_steps=2).fit(x_nd)
    path = tmp_path / "m.dpvb"
    model.save(path)
    before = path.read_bytes()
    again = dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, n_steps=2).fit(x_nd)
    with pytest.raises(ParameterError, match=r"m\.dpvb' is already there.*overwrite=True"):
        again.save(path)
    assert path.read_bytes() == before
    again.save(str(path), overwrite=True)
    assert path.read_bytes() != before
    np.testing.assert_array_equal(dpvb.load(path).components_, again.components_)
    assert [one.name for one in tmp_path.iterdir()] == ["m.dpvb"]
    with pytest.raises((ParameterError, ModelFileError)):
        model.save(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "most"), [(dpvb.SigmoidBeliefNetwork, "n_sweeps", 1_000), (dpvb.LDA, "max_iter", 100_000)]
)
def test_a_loop_that_a_file_asks_for_has_an_end(kind: Any, name: str, most: int) -> None:
    """Compiled loops cannot be interrupted, and a parameter can come from a file of somebody else."""
    X = np.ones((4, 3))
    model = kind(
        2, epsilon=1.0, delta=1e-5, **{name: most + 1}, **({"public_vocabulary": True} if kind is dpvb.LDA else {})
    )
    with pytest.raises(ParameterError, match=rf"{name} must be .*{most}"):
        model.fit(X)


def test_lists_of_parameters_are_saved(tmp_path: Path) -> None:
    """Words of a coefficient table depend on parameters that are arrays."""
    X, y = np.zeros((9, 2)), np.array([0, 1, 0] * 3)
    model = dpvb.LogisticRegression(
        epsilon=1.0, delta=1e-6, max_row_norm=2.0, max_abs_value=np.ones(2), numeric=[1], classes=[0, 1], n_steps=1
    ).fit(X, y)
    model.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    assert (again.max_abs_value, again.numeric, again.classes) == ((1.0, 1.0), (1,), (0, 1))
    assert again.summary() == model.summary()


@dataclass(frozen=True)
class Inner:
    mean_k: Positives
    kind: Label


@dataclass(frozen=True)
class Outer:
    inner: Inner
    parts: tuple[Inner, ...]
    flag: bool
    count: Annotated[int, NONNEGATIVE]
    chosen_k: Bools | None
    open: Any


def _outer(**parts: Any) -> Outer:
    inner = Inner(np.ones(2), "a")
    usual = {"parts": (inner, Inner(np.ones(3), 2.5)), "chosen_k": np.array([True, False]), "open": {"a": (1, 0.5)}}
    return Outer(**{"inner": inner, "flag": True, "count": 3, **usual, **parts})


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (_outer(), _outer(chosen_k=None, parts=())):
        arrays, facts = trees.written(record)
        again = trees.read(Outer, json.loads(json.dumps(facts)), arrays)
        assert trees.form_of(again.open) == trees.form_of(record.open)
        assert str(again) == str(record)
        assert trees.shapes(again) == trees.shapes(record)


@pytest.mark.parametrize(
    "changed",
    [
        {"inner": None},
        {"inner": {"mean_k": "array"}},
        {"inner": {"mean_k": "array", "kind": "a", "more": 1}},
        {"inner": {"mean_k": "array", "kind": None}},
        {"inner": {"mean_k": "array", "kind": ["a"]}},
        {"flag": 1},
        {"count": 2.0},
        {"count": True},
        {"count": -1},
        {"count": 10**400},
        {"parts": {}},
        {"parts": "array"},
        {"chosen_k": None},
        {"open": "array"},
        {"open": {"class": "os:system", "parts": {}}},
    ],
)
def test_a_record_of_other_parts_is_refused(changed: dict[str, Any]) -> None:
    arrays, facts = trees.written(_outer())
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        trees.read(Outer, {**facts, **changed}, arrays)


@kills("queries", "a file that leaves an array over")
@edit("results/trees.py", "    if unused:\n", "    if False:\n")
@pytest.mark.parametrize("array", [np.array([1.0, -1.0]), np.ones(2, np.complex128), None])
def test_a_record_with_another_array_is_refused(array: Any) -> None:
    arrays, facts = trees.written(_outer())
    changed = {name: value for name, value in {**arrays, "inner__mean_k": array}.items() if value is not None}
    with pytest.raises((ValueError, TypeError, KeyError)):
        trees.read(Outer, facts, changed)
    with pytest.raises(ValueError, match="arrays of another record"):
        trees.read(Outer, facts, {**arrays, "more": np.ones(1)})
