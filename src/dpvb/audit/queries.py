"""Hostile queries: contributions at a q that another party made, to learn more about them than is accounted.

Every q is an honest one of which some numbers were changed: to NaN and infinity, to the largest and the smallest
numbers, to other signs, to noise of any size. Most of them are refused before they meet a record (see `domains`), and
the invariant holds for these as well: no unit adds more than its bound, no two are farther apart than the accountant
allows, none adds anything else because of the others, and none makes the computation fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import Case
from dpvb.audit.integers import Steps, difference, is_zero, relative_norm
from dpvb.core.blocks import swap_ratio
from dpvb.core.clipped_sums import Work
from dpvb.core.grids import grids_of
from dpvb.core.plan import Release
from dpvb.guards import domains
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DpvbError
from dpvb.guards.suppress_output import silence
from dpvb.results.audit_report import Check

_QUERIES = 300
# Records that are asked together, and how many such groups of them.
_RECORDS, _GROUPS = 5, 6
_ODD = (
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e300,
    -1e300,
    1e-300,
    5e-324,
    -5e-324,
    3e38,
    1e39,
    -1e-45,
    1e-38,
)


def check_queries(case: Case, count: int = _QUERIES) -> Iterator[Check]:
    """Norm, distance and purity of what records add, at hostile q of every phase that asks at a q."""
    parts = [part for part in case.parts() if part.phase != "first"]
    if not parts:
        return
    found = _Found()
    for place, part in enumerate(parts):
        _ask(part, count // len(parts) + 1, np.random.default_rng([17, place]), found)
    measured = (
        f"{found.asked} q, {found.refused} of them refused: largest norm {found.norm:.6f} of the bound, largest "
        f"distance {found.distance:.6f} of what is accounted"
    )
    if max(found.norm, found.distance) > 1:
        found.faults.append(measured)
    allowed = "at most 1 each, sums of single records = sum of all, no failure"
    yield Check.of(case.name, "hostile q", found.faults, measured, allowed, found.compared)


@dataclass
class _Found:
    """Counts, largest values and faults so far."""

    asked: int = 0
    refused: int = 0
    compared: int = 0
    norm: float = 0.0
    distance: float = 0.0
    faults: list[str] = field(default_factory=list)


def _ask(case: Case, count: int, rng: np.random.Generator, found: _Found) -> None:
    """Half of the q are made of honest ones, half of the accepted one at which two records were farthest apart."""
    release = case.plan().releases[0]
    groups = [_Group(case, case.some(rng, _RECORDS)) for _ in range(_GROUPS)]
    honest = [case.start(seed) for seed in (1, 2)]
    worst, farthest = honest[0], 0.0
    for n in range(count):
        q = hostile(worst if n % 2 else honest[n // 2 % len(honest)], rng)
        refused = domains.outside(q) is not None
        distance = groups[n % _GROUPS].ask(partial(case.model.e_step, q, blocks=release.asked), release, found)
        if distance is None and not refused:
            found.faults.append("a q that is accepted makes the computation fail")
        if distance is not None and distance > farthest and not refused:
            worst, farthest = q, distance
        found.asked += 1
        found.refused += refused


class _Group:
    """Some records: each by itself, all of them, and all of them as one person."""

    def __init__(self, case: Case, records: Floats) -> None:
        self._alone = [list(case.source(record[None], None).chunks()) for record in records]
        self._all = list(case.source(records, None).chunks())
        self._person = list(case.source(records, np.zeros(len(records), dtype=np.int64)).chunks())

    def ask(self, query: Callable[[Any], Any], release: Release, found: _Found) -> float | None:
        """Compare sums of the records at a query with the invariant; return the largest distance of two records.

        None where all computations failed.
        """
        answered = [_sums(query, release, chunks) for chunks in (*self._alone, self._all, self._person)]
        sums = [answer for answer in answered if answer is not None]
        if len(sums) < len(answered):
            if sums:
                found.faults.append("a record makes the computation fail")
            return None
        *alone, every, person = sums
        ratio = swap_ratio(release.blocks)
        for answer in (*alone, person):
            own, joint = relative_norm(answer, release)
            found.norm = max(found.norm, joint, *(own.values() if release.clipping == "block" else ()))
        found.compared += any(not is_zero(answer) for answer in alone)
        pairs = [(a, b) for n, a in enumerate(alone) for b in alone[:n]]
        distance = max(relative_norm(difference(a, b), release)[1] / ratio for a, b in pairs)
        found.distance = max(found.distance, distance)
        if any((every[name] != np.add.reduce([answer[name] for answer in alone])).any() for name in every):
            found.faults.append("the contribution of a record depends on others")
        return distance


def _sums(query: Callable[[Any], Any], release: Release, chunks: list[Any]) -> Steps | None:
    """Exact integer sums of the clipped contributions, without noise; None where the computation failed."""
    work: Work[Any] = Work(query, release, grids_of(release, None), _no_words)
    try:
        with silence():
            return work.sums(chunks, lambda _, count: np.ones(count, dtype=np.bool_))
    except Exception:  # A q of strangers' making may raise anything.
        return None


def _no_words(*_: object, **__: object) -> Any:
    raise AssertionError("a full batch draws nothing")


# --- what strangers send ------------------------------------------------------------------------------------


def hostile(q: Any, rng: np.random.Generator) -> Any:
    """A copy of q with some of its numbers changed."""
    places = itertools.count()
    _rebuilt(q, lambda value: (next(places), value)[1])
    number = next(places)
    some = rng.choice(number, size=min(number, int(rng.integers(1, 4))), replace=False)
    chosen = set(range(number)) if rng.random() < 0.1 else set(some.tolist())
    place = itertools.count()
    return _rebuilt(q, lambda value: _changed(value, rng) if next(place) in chosen else value)


def ties(q: Any) -> list[Any]:
    """Copies of q whose components tie: all alike, or the same numbers in other orders, along either axis."""

    def alike(value: Any) -> Any:
        return np.broadcast_to(value[:1], value.shape).copy() if np.ndim(value) else value

    def turned(value: Any) -> Any:
        if np.ndim(value) < 2 or not value.size:
            return alike(value)
        return np.stack([np.roll(value[0], k, axis=-1) for k in range(len(value))])

    def across(value: Any) -> Any:
        return turned(value.T).T if np.ndim(value) else value

    return [_rebuilt(q, leaf) for leaf in (alike, turned, across)]


def _rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The tree with every float and float array replaced by what `leaf` makes of it, from left to right."""
    if isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return leaf(value)
    if isinstance(value, Mapping):
        return {name: _rebuilt(part, leaf) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_rebuilt(part, leaf) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    try:
        return replace(value, **{part.name: _rebuilt(getattr(value, part.name), leaf) for part in fields(value)})
    except DpvbError:  # It refuses such numbers by itself.
        return value


def _changed(value: Any, rng: np.random.Generator) -> Any:
    """Another number, or an array of the same shape and dtype with other numbers."""
    array = np.array(value, dtype=np.float64)
    kind = int(rng.integers(6))
    with np.errstate(all="ignore"):
        if kind == 0 and array.size:
            array.flat[rng.integers(array.size)] = rng.choice(_ODD)
        elif kind == 1:
            array *= 10.0 ** rng.uniform(-300, 300)
        elif kind == 2:
            array *= rng.choice([-1.0, 1.0], array.shape)
        elif kind == 3:
            array = rng.choice(_ODD, array.shape)
        elif kind == 4:
            array = rng.standard_normal(array.shape) * 10.0 ** rng.uniform(-3, 3)
        else:
            array = array * 10.0 ** rng.uniform(-12, 12, array.shape)
        made = np.asarray(array).astype(getattr(value, "dtype", np.float64))
    return made if isinstance(value, np.ndarray) else float(made)
