"""Silence belongs to all threads that ask for it: it ends with the last one, and leaves filters as they were."""

import logging
import threading
import warnings

import numpy as np
import pytest
from planted import edit, kills

from dpvb.guards.suppress_output import silence


def overlapping(inside_second, *, logs: bool = False) -> None:
    """A second thread is silent from before the first one leaves until after it; then it does something."""
    entered, joined = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def first() -> None:
        with silence(logs=logs):
            entered.set()
            joined.wait(60)

    def second() -> None:
        try:
            entered.wait(60)
            with silence(logs=logs):
                joined.set()
                leaving.join(60)
                inside_second()
        except BaseException as error:
            failed.append(error)

    leaving, staying = threading.Thread(target=first), threading.Thread(target=second)
    leaving.start()
    staying.start()
    staying.join(60)
    assert not failed, failed


@kills("leaks", "silence of each thread by itself")
@edit(
    "guards/suppress_output.py",
    "with _warnings, np.errstate",
    "with warnings.catch_warnings(action='ignore'), np.errstate",
)
@kills("leaks", "silence that ends with the first of two threads")
@edit("guards/suppress_output.py", "if self._users == 0 and self._made is not None:", "if self._made is not None:")
def test_the_first_thread_that_leaves_takes_no_silence_away():
    shown: list[int] = []

    def speak() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn("private", stacklevel=1)
            shown.append(len(caught))

    before = list(warnings.filters)
    overlapping(speak)
    assert shown == [0]
    assert warnings.filters == before


def test_logs_come_back_with_the_last_thread(caplog):
    overlapping(lambda: logging.getLogger("dpvb.test").error("private"), logs=True)
    assert not caplog.records
    logging.getLogger("dpvb.test").error("public")
    assert [record.getMessage() for record in caplog.records] == ["public"]


@pytest.mark.parametrize("logs", [False, True])
def test_silence_nests_and_survives_errors(logs):
    before, level = list(warnings.filters), logging.root.manager.disable

    def fail() -> None:
        with silence(logs=logs), silence():
            assert np.float64(1.0) / np.float64(0.0) == np.inf
            warnings.warn("private", stacklevel=1)
            raise ValueError("kept")

    with pytest.raises(ValueError, match="kept"):
        fail()
    assert warnings.filters == before
    assert logging.root.manager.disable == level
    with pytest.warns(UserWarning, match="public"):
        warnings.warn("public", stacklevel=1)
