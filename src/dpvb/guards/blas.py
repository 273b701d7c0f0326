"""One thread for the matrix products of BLAS: results that no number of processors changes, and no time lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


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
