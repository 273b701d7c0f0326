"""The run of a fit: given to it, in force in a block, or named by the environment."""

from __future__ import annotations

import contextvars
import multiprocessing
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from killed_fit import data, model
from planted import edit, kills
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import dpvb
from dpvb.errors import NotRecordedWarning, ParameterError
from dpvb.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with two data sets."""
    with Ledger(tmp_path / "budget.db") as made:
        for name in ("people", "others"):
            made.register(name, unit="row", neighboring_relation="add_or_remove_one", epsilon=9.0, delta=1e-5)
    return tmp_path / "budget.db"


@pytest.fixture(autouse=True)
def unrecorded() -> Iterator[None]:
    """A fit that no ledger records is an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotRecordedWarning)
        yield


def fit(estimator: Any, **how: Any) -> Any:
    return estimator.fit(*data(), **how)


def charges(path: Path, name: str = "people") -> int:
    with Ledger(path) as found:
        return found.remaining(name).num_charges


def small() -> Any:
    return model(epsilon=0.1, n_steps=2)


@pytest.mark.guarantees("run blocks")
def test_a_block_covers_every_fit_in_it(path: Path) -> None:
    """Fits by themselves, in a Pipeline, of clones and in a search; and none outside."""
    x_nd, y_n = data()
    with dpvb.Run(ledger=path, dataset="people"):
        fit(small())
        fit(clone(small()))
        make_pipeline(MaxAbsScaler(), small()).fit(x_nd, y_n)
        grid = {"n_steps": [2, 3]}
        GridSearchCV(small(), grid, cv=2, scoring="roc_auc", error_score="raise").fit(x_nd, y_n)
        assert charges(path) == 8
    with pytest.raises(NotRecordedWarning):
        fit(small())


def test_what_a_run_leaves_out_comes_from_the_block_around_it_and_then_from_the_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[int] = []
    with dpvb.Run(ledger=path, dataset="people") as outer:
        assert dpvb.Run.current() == outer
        with dpvb.Run(dataset="others", progress=lambda step, plan: steps.append(step)):
            fit(small())
            fit(small(), run=dpvb.Run(dataset="people"))
        fit(small())
        assert dpvb.Run.current() == outer
    assert (charges(path), charges(path, "others"), len(steps)) == (2, 1, 2 * steps[-1])
    monkeypatch.setenv("DPVB_LEDGER", str(path))
    with pytest.raises(ParameterError, match="ledger and dataset belong together"):
        fit(small())
    monkeypatch.setenv("DPVB_DATASET", "people")
    fit(small())
    fit(small(), run=dpvb.Run(dataset="others"))
    assert (charges(path), charges(path, "others")) == (3, 2)


def test_a_block_ends_with_its_error(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), dpvb.Run(ledger=path, dataset="people"):
        raise ZeroDivisionError
    assert dpvb.Run.current() == dpvb.Run()


@pytest.mark.guarantees("run blocks")
@kills("releases", "a block of one thread that is in force in another one")
@edit("runs/run.py", "if blocks := _blocks.get():", "if blocks := [*_open.values()]:")
def test_blocks_of_threads_do_not_mix(path: Path) -> None:
    """Each of four threads fits in a block of its own, all of them open at a time."""
    together = threading.Barrier(4)

    def work(name: str) -> str | None:
        with dpvb.Run(ledger=path, dataset=name):
            together.wait(60)
            fitted = fit(small())
            together.wait(60)
        return None if fitted.privacy_.charge is None else fitted.privacy_.charge.dataset

    names = ["people", "others"] * 2
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, names)) == names
    assert (charges(path), charges(path, "others")) == (2, 2)


@pytest.mark.guarantees("run blocks")
@kills("releases", "a fit in a thread that slips past the block which started it")
@edit("runs/run.py", "            around = [*_open.values()]\n", "            around: list[Run] = []\n")
def test_a_thread_without_a_block_is_covered_or_refused(path: Path) -> None:
    def elsewhere(work: Callable[..., Any], *given: Any, **more: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, *given, **more).result()

    with dpvb.Run(ledger=path, dataset="people"):
        elsewhere(fit, small())
        with joblib.parallel_backend("threading", n_jobs=2):
            GridSearchCV(small(), {"n_steps": [2]}, cv=2, scoring="roc_auc", error_score="raise").fit(*data())
        assert charges(path) == 4
        with dpvb.Run(dataset="others"):
            with pytest.raises(ParameterError, match="run must be given to a fit in a thread"):
                elsewhere(fit, small())
            elsewhere(contextvars.copy_context().run, fit, small())
            elsewhere(fit, small(), run=dpvb.Run(ledger=path, dataset="people"))
    assert (charges(path), charges(path, "others")) == (5, 1)


@pytest.mark.guarantees("run blocks")
@kills("releases", "an estimator that leaves its block when it is sent to another process")
@edit("runs/run.py", "            if not around and sent is not None", "            if False and sent is not None")
def test_an_estimator_that_is_sent_to_another_process_is_charged_there(path: Path) -> None:
    """By joblib from a thread of its own, by a pool of spawned processes, and by one of forked ones."""
    with dpvb.Run(ledger=path, dataset="people", progress=lambda step, plan: None):
        joblib.Parallel(n_jobs=2)(joblib.delayed(fit)(one) for one in (small(), clone(small())))
        x_nd, y_n = data()
        search = GridSearchCV(small(), {"n_steps": [2]}, cv=2, scoring="roc_auc", n_jobs=2, error_score="raise")
        search.fit(x_nd, y_n)
        for start in ("spawn", "forkserver", "fork"):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(start)) as pool:
                assert np.isfinite(pool.submit(fit, clone(small())).result().coef_).all()
    assert charges(path) == 8


def test_a_run_is_what_it_says(path: Path) -> None:
    with pytest.raises(ParameterError, match=r"run must be a dpvb\.Run, got dict"):
        fit(small(), run={"ledger": path})
    with pytest.raises(ParameterError, match=r"resume must be .*'again'"):
        dpvb.Run(resume="again")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ledger"):
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, ledger=path)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument 'cluster'"):
        fit(small(), cluster="local:2")
    assert charges(path) == 0


def test_a_fit_opens_its_ledger_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    plain = Ledger.__init__

    def counting(self: Ledger, *given: Any, **more: Any) -> None:
        opened.append(given)
        plain(self, *given, **more)

    monkeypatch.setattr(Ledger, "__init__", counting)
    fit(small(), run=dpvb.Run(ledger=path, dataset="people"))
    assert len(opened) == 1


def test_a_task_has_the_plan_that_the_fit_will_charge(path: Path) -> None:
    """For the first fit and for a later one, which a ledger counts by its filter."""
    for _ in range(2):
        with dpvb.Run(ledger=path, dataset="people"):
            plan = small()._task(*data()).plan
            assert fit(small()).privacy_.plan_digest == plan.digest.hex()
    with Ledger(path) as found:
        assert [entry.facts["plan"] for entry in found.entries() if entry.kind == "charge"][-1] == plan.digest.hex()
