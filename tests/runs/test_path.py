"""A run with keep="path": the model after every step, in memory and in its file."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.errors import ModelFileError, ParameterError
from dpvb.results import model_file

_PATH = dpvb.Run(keep="path")


def counts() -> Any:
    """Documents of two topics of six words each."""
    rng = np.random.default_rng(0)
    topic_n = rng.random(300) < 0.5
    return rng.poisson(np.where(topic_n[:, None] == (np.arange(12) < 6), 2.0, 0.1))


def topics(n_steps: int = 4, **options: Any) -> dpvb.LDA:
    how: Any = {"epsilon": math.inf, "delta": 1e-6, "public_vocabulary": True, "random_state": 0, **options}
    return dpvb.LDA(2, n_steps=n_steps, **how)


def test_a_step_of_the_path_is_the_result_of_a_fit_of_so_many_steps() -> None:
    """Without noise, and with step sizes that depend on t alone."""
    fitted = topics().fit(counts(), run=_PATH)
    for step in (1, 2, 3, 4):
        shorter, then = topics(step).fit(counts()), fitted.at_step(step)
        np.testing.assert_array_equal(then.components_, shorter.components_)
        assert fitted.perplexity(counts(), step=step, public=True) == shorter.perplexity(counts(), public=True)
        assert then.n_iter_ == step
    np.testing.assert_array_equal(fitted.at_step(4).components_, fitted.components_)
    np.testing.assert_array_equal(topics().fit(counts()).components_, fitted.components_)


def test_a_path_is_in_the_file_and_in_the_pickle_and_ends_with_the_next_fit(tmp_path: Path) -> None:
    fitted = topics(epsilon=1.0).fit(counts(), run=_PATH)
    fitted.save(tmp_path / "m.dpvb")
    for same in (dpvb.load(tmp_path / "m.dpvb"), pickle.loads(pickle.dumps(fitted))):
        for step in (1, 4):
            np.testing.assert_array_equal(same.at_step(step).components_, fitted.at_step(step).components_)
    third = fitted.at_step(3)
    assert third.privacy_ == fitted.privacy_  # Post-processing of the releases of the whole fit.
    third.save(tmp_path / "third.dpvb")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "third.dpvb").components_, third.components_)
    with pytest.raises(ParameterError, match="keep='path'"):
        third.at_step(1)
    with pytest.raises(ParameterError, match="keep='path'"):
        fitted.fit(counts()).at_step(1)


@pytest.mark.parametrize("step", [0, 5, 1.5])
def test_a_step_outside_the_path_is_refused(step: Any) -> None:
    with pytest.raises(ParameterError, match=r"step must be .*\[1, 4\]"):
        topics().fit(counts(), run=_PATH).perplexity(counts(), step=step, public=True)


def test_a_file_whose_path_lacks_an_array_is_refused(tmp_path: Path) -> None:
    topics().fit(counts(), run=_PATH).save(tmp_path / "m.dpvb")
    stored = model_file.load(tmp_path / "m.dpvb")
    name = "step2__lambda_vk"
    for number, arrays in enumerate(
        (
            {one: array for one, array in stored.arrays.items() if one != name},
            {**stored.arrays, "step9__lambda_vk": stored.arrays[name]},
            {**stored.arrays, name: -stored.arrays[name]},
        )
    ):
        path = tmp_path / f"{number}.dpvb"
        model_file.save(path, kind=stored.kind, arrays=arrays, facts=stored.facts)
        with pytest.raises(ModelFileError, match="do not fit together"):
            dpvb.load(path)


def test_a_model_without_steps_keeps_no_path_and_is_not_charged(tmp_path: Path) -> None:
    ledger = dpvb.Ledger(tmp_path / "budget.db")
    ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
    model = dpvb.FactorAnalysis(epsilon=1.0, delta=1e-6, low=-1.0, high=1.0)
    with pytest.raises(ParameterError, match=r"keep must be None.*FactorAnalysis has no steps.*Nothing was charged"):
        model.fit(np.zeros((9, 3)), run=dpvb.Run(ledger=ledger, dataset="people", keep="path"))
    assert ledger.remaining("people").num_charges == 0
    with pytest.raises(ParameterError, match="keep must be one of 'path'"):
        dpvb.Run(keep="all")  # type: ignore[arg-type]


def test_a_path_of_another_kind_has_one_model_for_each_step(tmp_path: Path) -> None:
    x_nd = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3))
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=5, low=-0.5, high=0.5)
    model.fit(x_nd, x_nd[:, 0] > 0, run=_PATH)
    model.save(tmp_path / "m.dpvb")
    path = [dpvb.load(tmp_path / "m.dpvb").at_step(step).coef_ for step in range(1, 6)]
    for step, coef in enumerate(path, start=1):
        np.testing.assert_array_equal(coef, model.at_step(step).coef_)
    assert len({coef.tobytes() for coef in path}) == 5
