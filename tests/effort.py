"""Limits on processor time that hold on slow and busy machines: multiples of a loop timed in the same run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


def _loop() -> float:
    """Processor seconds of 10⁶ additions in Python; about 0.03 on a core of 2024."""
    start = time.process_time()
    total = 0
    for number in range(10**6):
        total += number
    return time.process_time() - start


@cache
def _usual() -> float:
    return min(_loop() for _ in range(3))


@contextmanager
def at_most(loops: float, what: object = "") -> Iterator[None]:
    """Fail if a block takes more processor time than this number of loops.

    A loop is timed once per process, and again after a block that seems too long: the machine may have become slower.
    """
    usual, start = _usual(), time.process_time()
    yield
    seconds = time.process_time() - start
    if seconds > loops * usual:
        assert seconds <= loops * max(usual, _loop()), what
