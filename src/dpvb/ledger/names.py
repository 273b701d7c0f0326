"""Names of data sets that are registered from now on: one spelling each, and none that looks like another.

Two names that people take for one are two budgets for the same people. What looks alike is what has the same skeleton
by Unicode's Technical Standard 39. Names that are registered already stay what they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache

from dpvb.guards.errors import LedgerError, ParameterError

# Characters that Python calls printable and nobody can see: Unicode's default-ignorable ones, and the empty Braille
# pattern.
_INVISIBLE = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
_INVISIBLE |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)}
_MARK = "\u200e"


def check_new_name(name: str, registered: Iterable[str]) -> None:
    """Refuse a name that could be written in another way, or be taken for one that is registered.

    Args:
        name: of a data set that is not registered yet; printable.
        registered: all names that are.

    Raises:
        ParameterError: naming the form that is accepted.
        LedgerError: naming the name that it resembles.
    """
    plain = _plain(name)
    if name != plain:
        way_out = f"Write {plain!r}" if plain else "Choose letters"
        raise ParameterError(
            "name must have one form alone (Unicode's NFKC, single blanks between words, nothing invisible), got "
            f"{name!a}. {way_out}."
        )
    own = skeleton(name)
    for known in registered:
        if own in (skeleton(known), skeleton(_plain(known))):
            raise LedgerError(
                f"{name!a} looks like {known!r}, which is registered: people would take one for the other. Use the one "
                "that is there, or a name that nobody can mistake."
            )


def skeleton(name: str) -> str:
    """Return what names that look alike have in common (UTS 39, section 4); it is for comparison alone.

    Args:
        name: any text.
    """
    prototypes, shown = _prototypes(), ""
    drawn = "".join(one for one in name if ord(one) not in _INVISIBLE)
    while drawn != shown:  # What a character is drawn as may hold characters that are drawn as others.
        shown = drawn
        parts = (prototypes.get(one, one) for one in unicodedata.normalize("NFD", shown))
        drawn = unicodedata.normalize("NFD", "".join(parts))
    return drawn


def _plain(name: str) -> str:
    """The one form of a name: equal for names that only differ in how they are encoded, spaced or hidden."""
    shown = "".join(one for one in unicodedata.normalize("NFKC", name) if ord(one) not in _INVISIBLE)
    return " ".join(unicodedata.normalize("NFKC", shown).split())


@cache
def _prototypes() -> dict[str, str]:
    """What each confusable character is drawn as.

    The table says of each character which others look like it, and of a prototype, all of those. So a character with
    one neighbour is drawn as that one, unless both have no other: then the first of the two stands for both.
    """
    from confusable_homoglyphs.confusables import confusables_data

    near = {one.strip(_MARK): [o["c"].strip(_MARK) for o in others] for one, others in confusables_data.items()}
    found = {}
    for one, others in near.items():
        if len(one) == len(others) == 1:
            [other] = others
            found[one] = other if len(other) > 1 or len(near.get(other, ())) > 1 else min(one, other)
    return found
