"""BLAS has one thread while the package computes, and the caller's number of threads before and after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - the fixture limits what is loaded, and SciPy brings a BLAS of its own.
from threadpoolctl import ThreadpoolController

import dpvb
from dpvb import federated
from dpvb.guards.blas import one_blas_thread

rng = np.random.default_rng(0)
rows, labels = rng.standard_normal((300, 40)) / 10, rng.integers(0, 2, 300)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
RANGES: dict[str, Any] = {"low": -1.0, "high": 1.0}


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads() -> Iterator[None]:
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        assert blas_threads() == {2}
        yield


def fitted(progress: Callable[..., object] | None = None) -> Any:
    return dpvb.LogisticRegression(**BUDGET, **RANGES, n_steps=2).fit(rows, labels, run=dpvb.Run(progress=progress))


def simulated(progress: Callable[..., object]) -> Any:
    model = dpvb.LogisticRegression(**BUDGET, **RANGES)
    shards = [(rows[:150], labels[:150]), (rows[150:], labels[150:])]
    return federated.simulate(model, shards, trust="secure_aggregation", num_rounds=6, run=dpvb.Run(progress=progress))


def dry(progress: Callable[..., object]) -> Any:
    return dpvb.LogisticRegression(**BUDGET, **RANGES, n_steps=2).dry_run(
        width=40, n_units=300, run=dpvb.Run(progress=progress)
    )


@pytest.mark.parametrize("compute", [fitted, simulated, dry])
def test_a_fit_has_one_thread_of_blas_and_gives_the_callers_back(
    compute: Callable[..., Any], two_threads: None
) -> None:
    seen: list[set[int]] = []
    compute(lambda t, plan: seen.append(blas_threads()))
    assert seen
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {2}


def test_the_callers_threads_come_back_after_an_error(two_threads: None) -> None:
    def failing(t: int, plan: object) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        fitted(failing)
    assert blas_threads() == {2}


def test_threads_that_compute_at_once_leave_the_callers_setting(two_threads: None) -> None:
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with one_blas_thread():
            entered.set()
            left.wait(60)

    other = threading.Thread(target=second)
    with one_blas_thread():
        other.start()
        entered.wait(60)
        assert blas_threads() == {1}
    left.set()
    other.join(60)
    assert blas_threads() == {2}


def test_released_bits_do_not_depend_on_the_callers_threads() -> None:
    coefficients = []
    for threads in (1, 2):
        with ThreadpoolController().limit(limits=threads, user_api="blas"):
            model = dpvb.LinearRegression(epsilon=np.inf, delta=1e-5, y_range=(-1, 1), **RANGES)
            coefficients.append(model.fit(rows, np.clip(rows.sum(1), -1, 1)).coef_.tobytes())
    assert coefficients[0] == coefficients[1]
