"""Everything that code says on the side: prints, log lines, warnings."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from dpvb.guards.errors import FewUnitsWarning, FewWordsWarning, LostInNoiseWarning, NotSettledWarning


class _Kept(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


@contextmanager
def heard(least: int = logging.INFO) -> Iterator[list[str]]:
    """A list that holds, afterwards, all that was said meanwhile, and nothing of it anywhere else.

    Args:
        least: Level from which a log record is kept.
    """
    said: list[str] = []
    out, root, handler = io.StringIO(), logging.getLogger(), _Kept(said)
    level, others = root.level, root.handlers[:]
    root.handlers = [handler]
    root.setLevel(least)
    try:
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(out), redirect_stderr(out):
            warnings.simplefilter("always")
            yield said
        # These warnings depend on released values, so noise decides them.
        released = (FewUnitsWarning, FewWordsWarning, LostInNoiseWarning, NotSettledWarning)
        said += [str(one.message) for one in caught if not issubclass(one.category, released)]
        said += out.getvalue().splitlines()
    finally:
        root.handlers = others
        root.setLevel(level)
