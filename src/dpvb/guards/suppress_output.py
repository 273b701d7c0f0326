"""Silence around computations on private data: a warning is a message, and may contain private values."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import numpy as np


class _Shared:
    """A change of the whole process for several threads: the first one makes it, the last one takes it back."""

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._users = 0
        self._made: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._made is None:
                self._made = self._change()
                self._made.__enter__()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._made is not None:
                self._made.__exit__(None, None, None)
                self._made = None


@contextmanager
def _without_logs() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


# The filters of warnings and the level of logs belong to the process, not to a thread.
_warnings, _logs = _Shared(partial(warnings.catch_warnings, action="ignore")), _Shared(_without_logs)


@contextmanager
def silence(*, logs: bool = False) -> Iterator[None]:
    """Let no warning out, nor a log record where asked for, as long as any thread is inside."""
    with _warnings, np.errstate(all="ignore"), _logs if logs else nullcontext():
        yield
