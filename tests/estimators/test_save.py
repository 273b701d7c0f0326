"""A model file takes no other file's place unless that is said, as on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.errors import ModelFileError, ParameterError


def test_a_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    x_nd = np.random.default_rng(0).random((40, 3)) < 0.5
    model = dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, num_steps=2).fit(x_nd)
    path = tmp_path / "m.dpvb"
    model.save(path)
    before = path.read_bytes()
    again = dpvb.SigmoidBeliefNetwork(2, epsilon=1.0, delta=1e-5, num_steps=2).fit(x_nd)
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
    ("kind", "name", "most"), [(dpvb.SigmoidBeliefNetwork, "sweeps", 1_000), (dpvb.LDA, "max_iter", 100_000)]
)
def test_a_loop_that_a_file_asks_for_has_an_end(kind: Any, name: str, most: int) -> None:
    """Compiled loops cannot be interrupted, and a parameter can come from a file of somebody else."""
    X = np.ones((4, 3))
    model = kind(
        2, epsilon=1.0, delta=1e-5, **{name: most + 1}, **({"public_vocabulary": True} if kind is dpvb.LDA else {})
    )
    with pytest.raises(ParameterError, match=rf"{name} must be .*{most}"):
        model.fit(X)
