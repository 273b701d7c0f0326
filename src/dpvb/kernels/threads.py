"""Threads: ranges of work over those of the compiled kernels, and one thread for the products of BLAS.

A task that is spread holds no lock, and its result does not depend on how the work is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from dpvb.guards.errors import check_integer


def num_threads(threads: int | None) -> int:
    """Number of threads asked for; None: as many as Numba would take.

    Raises:
        ParameterError: unless threads is None or at least 1.
    """
    if threads is not None:
        return check_integer("threads", threads, low=1)
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


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


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within the block, and restore the caller's setting after it.

    The matrices of a fit are small: waking and awaiting threads takes longer than their products, above all on a busy
    machine. Products that are cut over threads also round differently, so the limit makes results independent of the
    number of processors. Where several threads of a process compute at once, the first one that asks sets the limit
    of all, for as long as it computes (threadpoolctl 3.8).
    """
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> Any:
    """Return the controller of the BLAS libraries of this process: NumPy's, and SciPy's, which may be another one."""
    import scipy.linalg  # noqa: F401 - a library is found only after it is loaded.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
