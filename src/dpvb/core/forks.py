"""Objects of one process: in a forked child their copies refuse, since both would act on one charge."""

from __future__ import annotations

import os
from typing import final

from dpvb.guards.errors import PrivacyError

_num_forks = 0  # between the process that imported this module and this one


def _count() -> None:
    global _num_forks
    _num_forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


@final
class Origin:
    """Remembers the process that made something."""

    def __init__(self) -> None:
        self._num_forks = _num_forks

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and no child that was forked from it."""
        return self._num_forks == _num_forks

    def check(self, what: str) -> None:
        """Refuse what another process made.

        Raises:
            PrivacyError: naming what it is.
        """
        if not self.is_here:
            raise PrivacyError(
                f"{what} belongs to the process that made it, and this one was forked from that. Nothing is read or "
                "drawn here; begin a fit of this process's own."
            )
