"""Words that a fit finds: what a unit adds to their totals, and how often a word leaves that one unit alone has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import binom

from dpvb.core.blocks import Grid
from dpvb.core.grids import grids_of
from dpvb.core.names import WORDS, Threshold, release_of, totals
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, Release
from dpvb.core.wall import Wall
from dpvb.data.documents.bag_of_words import Texts
from dpvb.results.audit_report import Check

#: Of the release that is looked at; so large a chance of failing that a simulation can tell.
_NOISE, _ADDED = 3.0, 0.01
_UNITS, _FALSE_ALARM = 2_000, 1e-9
_LETTERS = "abcdefghij"


def check_words() -> Iterator[Check]:
    """All that is promised of a release of words."""
    release = release_of(_NOISE, added_delta=_ADDED)
    grid = grids_of(release, None)[WORDS]
    yield _one_unit_more(release, grid)
    yield _own_words_by_law(release, grid)
    yield _own_words(release)


def own(number: int, unit: int = 0) -> str:
    """So many words that no other unit has."""
    return " ".join(_spelled(unit) + "x" + _spelled(n) for n in range(number))


def _spelled(number: int) -> str:
    return "".join(_LETTERS[int(digit)] for digit in str(number))


def _one_unit_more(release: Release, grid: Grid) -> Check:
    """Record and replay: the others' words count as before, and the unit's own weights are no longer than 1."""
    assert isinstance(release.mechanism, Threshold)
    most, one = release.mechanism.most_names, 1.0 / grid.step

    def counted(texts: Sequence[str], persons: Sequence[int]) -> dict[str, int]:
        source = Texts(texts, group=persons)
        words = InsecureNoise(5).words(step=0, purpose="audit")
        found = totals(source, len(source.names), most, grid, words)
        return dict(zip(source.names, found.tolist(), strict=True))

    others = [own(3), own(most), own(3 * most), own(40), ""]
    faults, largest = list[str](), 0.0
    hostile = [
        "",
        "\x00",
        own(1),
        own(1) * 3,
        own(most + 1),
        own(9 * most),
        own(most, 1),
        own(2 * most, 2),
        "a" * 10**5,
    ]
    for text in hostile:
        for pieces in ([text], [text, own(2), text]):  # A person of one document, and of three.
            before = counted(others, range(len(others)))
            after = counted([*others, *pieces], [*range(len(others)), *[len(others)] * len(pieces)])
            change = np.array([after[name] - before.get(name, 0) for name in after], dtype=np.float64) / one
            largest = max(largest, float(np.sqrt((change**2).sum())))
            faults += ["a unit lowers a total"] if (change < 0).any() else []
            faults += ["a unit gives more words than it may"] if np.count_nonzero(change) > most else []
            faults += ["a unit changes more than its own words"] if before.keys() - after.keys() else []
    faults += ["a unit's weights are longer than 1"] if largest > 1 else []
    pairs = 2 * len(hostile)
    return Check.of("words", "one unit more", faults, f"{pairs} pairs: largest change {largest:.6f} C", "1.0", pairs)


def _own_words_by_law(release: Release, grid: Grid) -> Check:
    """By the law of the rounded noise, for every number of words that a unit may give."""
    mechanism: Any = release.mechanism
    worst = 0.0
    for t in range(1, mechanism.most_names + 1):
        weight = np.floor(np.sqrt(1.0 / t) / grid.step)
        reach = (mechanism.least(grid) + 0.5 - weight) * grid.step / mechanism.noise_multiplier
        worst = max(worst, float(-np.expm1(t * log_ndtr(reach))))
    passed, most = worst <= mechanism.added_delta * (1 + 1e-9), mechanism.most_names
    name = "words of one unit alone, by the law of the noise"
    return Check("words", name, passed, f"{worst:.6f}", f"{_ADDED:g}", most)


def _own_words(release: Release) -> Check:
    """By the noise itself: units, each with a hundred words of its own, one of which may leave."""
    mechanism: Any = release.mechanism
    texts = Texts([own(mechanism.most_names, unit) for unit in range(_UNITS)])
    found = Wall(texts, Plan([release])).names(release)
    shown = len({name.partition("x")[0] for name in found.names})
    most = int(binom.isf(_FALSE_ALARM, _UNITS, _ADDED))
    said = f"{shown} of {_UNITS} units"
    allowed = f"{most}, chance {_ADDED:g}"
    return Check("words", "words of one unit alone", shown <= most, said, allowed, _UNITS, _FALSE_ALARM)
