"""Names of data sets that are registered from now on: plain ASCII, and none that looks like another.

People who mistake one name for another would spend two budgets of the same people. A name that is registered already
stays valid, whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpvb.guards.errors import LedgerError, ParameterError

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check_new_name(name: str, registered: Iterable[str]) -> None:
    """Refuse a name that is not plain ASCII, or that looks like one that is registered.

    Args:
        name: of a data set that is not registered yet.
        registered: all names that are.

    Raises:
        ParameterError: naming the characters that are allowed.
        LedgerError: naming the name that it resembles.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"name must consist of ASCII letters, digits, '.', '-' and '_', got {name!a}. Other characters can look "
            "like these, and a name in two spellings would have two budgets. Nothing was registered."
        )
    for other in registered:
        if appearance(name) == appearance(other):
            raise LedgerError(
                f"{name!a} looks like {other!r}, which is registered: people would mistake one for the other. Use the "
                "registered name, or a name that is clearly different. Nothing was registered."
            )


def appearance(name: str) -> str:
    """Return the name with ASCII characters that look alike replaced by one of them (Unicode TS 39, confusables)."""
    return name.replace("m", "rn").translate(str.maketrans("0I1|", "Olll"))
