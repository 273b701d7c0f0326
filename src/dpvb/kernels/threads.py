"""Ranges of work over threads: for tasks that hold no lock and whose results no cut of the work changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dpvb.guards.errors import check_integer
from dpvb.guards.imports import import_numba


def num_threads(threads: int | None) -> int:
    """Number of threads asked for; None: as many as Numba would take.

    Raises:
        ParameterError: unless threads is None or at least 1.
    """
    if threads is not None:
        return check_integer("threads", threads, low=1)
    return int(import_numba().config.NUMBA_NUM_THREADS)


def spread(task: Callable[[int], None], parts: range, threads: int) -> None:
    """Run the task for every part, on a few threads where there are several parts."""
    most = min(threads, len(parts))
    if most <= 1:
        for part in parts:
            task(part)
        return
    with ThreadPoolExecutor(most) as pool:
        for _ in pool.map(task, parts):
            pass
