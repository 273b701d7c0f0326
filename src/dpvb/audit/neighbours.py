"""Contribution of one record: record-replay on neighbours that strain a model, and record independence, in integers.

A run is recorded on a data set, then replayed on a neighbour with every q frozen and the same repeatable noise. The
difference of two releases is then exactly what the record did. It must be within the sensitivity that is accounted for,
and everything else that comes out must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpvb.accounting.events import RELATIONS
from dpvb.audit.captured_output import heard
from dpvb.audit.cases import Case, Matrix
from dpvb.audit.integers import difference, in_steps, is_zero, relative_norm, same
from dpvb.audit.queries import ties
from dpvb.core import loop
from dpvb.core.blocks import Grid
from dpvb.core.clipped_sums import zeros
from dpvb.core.estimate import Estimate
from dpvb.core.model import updated
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, Release
from dpvb.core.released import Released
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.core.source import LARGEST_BATCH
from dpvb.core.wall import Wall
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import PrivateComputationError
from dpvb.guards.suppress_output import silence
from dpvb.models.base import Model
from dpvb.results import trees
from dpvb.results.audit_report import Check

#: Records in the data set of a replayed run, and the samplers it is replayed with.
_UNITS = 10
_SAMPLERS: Sequence[Sampler] = (FullBatch(), Poisson(0.5), FixedSize(6, 12))
_VALUES = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, -1.0, -0.0, 7.5, 5e-324, 2.0**-1022, 2.0**63)
_COPIES = (1, 2, 100)
#: For the check of bits: features, records in a batch, batches of each size, and bits of a bound in steps of the grid;
#: records of one large batch, which is asked for in small ones too.
_WIDTHS, _SIZES, _BATCHES, _BITS, _MANY = (3, 64), (1, 2, 7, 20), 3, 56, 48
# Sizes of smaller batches in which the records of the largest batch are asked about, and how many of them one by one.
_PARTS, _ALONE = (64, 600, 3000), 512
#: For the records on the edge of a decision: ways that are halved, a jump that is one, records on both sides of it.
_WAYS, _JUMP, _BESIDE = 10, 2.0**-10, 16
#: Numbers of a record that are shown.
_SHOWN = 8
_WORDS: Mapping[str, str] = {"add_or_remove_one": "add or remove", "replace_one": "replace"}


def strains(case: Case) -> Floats:
    """The hostile records, and records of malformed and extreme numbers, whole or in one column."""
    whole = [np.full(case.width, value) for value in _VALUES]
    ordinary = case.records(np.random.default_rng(3), len(_VALUES))
    places = np.arange(len(_VALUES)) % case.width
    single = np.where(np.arange(case.width) == places[:, None], np.array(_VALUES)[:, None], ordinary)
    return np.vstack([case.hostile, whole, single])


def accounted(release: Release, relation: str) -> float:
    """Sensitivity over C that the accountant takes a release to have."""
    return release.event().sensitivity(relation)


def check_records(case: Case, *, pairs: int = 40) -> Iterator[Check]:
    """Every release of a model, by itself: sensitivity, purity, order, persons, bits.

    Args:
        case: its phases are looked at one at a time.
        pairs: number of ordinary neighbours, besides the hostile ones.
    """
    for part in [case] if case.phase is not None else case.parts():
        # This check is first: state that an E-step keeps permanently shows only at its first rows.
        bits = check_bits(part)
        look = Look(part, pairs)
        yield look.adding()
        yield look.replacing()
        yield look.ordering()
        yield look.persons()
        yield bits


class Replay:
    """One release of a case, at one q, with the same draws whatever the data."""

    def __init__(self, case: Case, sampler: Sampler | None = None, noise: float = 1.0, seed: int = 1) -> None:
        self.case, self.plan = case, case.plan(sampler, noise=noise)
        self.q = case.start(seed)

    @property
    def release(self) -> Release:
        """The releases that are audited."""
        return self.plan.releases[0]

    def __call__(self, matrix: Floats, group: Any = None) -> dict[str, Ints]:
        """The release on a matrix of records, as integers.

        Raises:
            PrivateComputationError: if the computation failed on these data.
            ValueError: if the release is off its grid.
        """
        [released] = self.case.run(matrix, self.plan, q=self.q, group=group)
        return in_steps(released, self.release)

    def alone(self, record: Floats) -> dict[str, Ints]:
        """Return what a record adds to an empty data set, exactly."""
        return difference(self(record[None]), self(record[None][:0]))


class Look:
    """The checks of one release: those of its batches with each sampler in turn, at a q from a seed."""

    def __init__(self, case: Case, pairs: int = 40, seed: int = 1) -> None:
        self.case, self.rng = case, np.random.default_rng([21, seed])
        self.replays = [Replay(case, sampler, seed=seed) for sampler in _SAMPLERS]
        self.records = np.vstack([strains(case), case.some(self.rng, pairs)])
        self.faults: list[str] = []
        self.largest, self.compared = 0.0, 0
        self._made: dict[tuple[object, ...], tuple[dict[str, Ints] | None, list[str], str]] = {}

    @cached_property
    def alone(self) -> list[dict[str, Ints] | None]:
        """Return what each record adds to an empty data set."""
        return [self._change(record[None], self.records[:0]) for record in self.records]

    def adding(self) -> Check:
        """T(B + x) - T(B) = clip(s(x)), in any batch, or nothing if it is not drawn, and no longer than the bound.

        And nothing from a row that comes as NaN throughout: it is invalid, and to be ignored.
        """
        for n, (record, alone) in enumerate(zip(self.records, self.alone, strict=True)):
            if alone is not None and not is_zero(alone) and self._is_invalid(record):
                self.faults.append("a row that is NaN throughout is included: its statistics must be NaN")
            batch = self.case.some(self.rng, int(self.rng.integers(0, 12)))
            # The last place: the draws of the others stay as they are.
            place = len(batch) if n % len(_SAMPLERS) else int(self.rng.integers(0, len(batch) + 1))
            change = self._change(np.insert(batch, place, record, axis=0), batch, sampler=n)
            self._compare(change, alone, "a record adds something else in another batch", n)
        return self._check(
            "one record more",
            f"{len(self.records)} pairs: largest change {self.largest:.6f} C, each independent of the others",
            1.0,
        )

    def replacing(self) -> Check:
        """One record for another: the difference of the two, no longer than the swap ratio."""
        limit = accounted(self.replays[0].release, "replace_one")
        batch, order = self.case.records(self.rng, 6), self.rng.permutation(len(self.records))
        for n, other in enumerate(order):
            one, another = (np.vstack([batch[:2], self.records[m], batch[2:]]) for m in (n, other))
            a, b = self.alone[n], self.alone[other]
            swapped = None if a is None or b is None else difference(a, b)
            change = self._change(one, another, sampler=n)
            self._compare(change, swapped, "a record that is replaced changes more than its own part", n)
        alone = self.alone[: len(self.case.hostile)]
        couples = [(a, b) for n, a in enumerate(alone) for b in alone[:n] if a is not None and b is not None]
        for a, b in couples:
            self._measure(difference(a, b))
        pairs = len(order) + len(couples)
        return self._check("one record replaced", f"{pairs} pairs: largest change {self.largest:.6f} C", limit)

    def ordering(self) -> Check:
        """A batch in any order and in any two pieces gives the same integers."""
        batch, trials = self.case.some(self.rng, 40), 10
        for _ in range(trials):
            order, cut = self.rng.permutation(40), int(self.rng.integers(0, 41))
            if (shuffled := self._change(batch[order], batch)) is not None and not is_zero(shuffled):
                self.faults.append("another order of the rows gives another sum")
            whole, head, tail = (self._change(rows, batch[:0]) for rows in (batch, batch[:cut], batch[cut:]))
            if whole is not None and head is not None and tail is not None:
                parts = {name: head[name] + tail[name] for name in head}
                self.compared += not is_zero(whole)
                if not same(whole, parts):
                    self.faults.append("two halves do not add up to the whole")
        return self._check("order and size of a batch", f"{trials} orders and cuts, equal bit for bit", None)

    def persons(self, copies: Sequence[int] = _COPIES) -> Check:
        """A person with many rows, malformed ones among them, counts once, whatever rows of others lie among these."""
        others, none = self.case.records(self.rng, 5), self.records[:0]
        hostile = self.records[self.rng.permutation(len(self.records))[:8]]
        for number in copies:
            for record in (self.case.modest, *hostile):
                own = np.tile(record, (number, 1))
                own[number // 2 :] = self.case.records(self.rng, number - number // 2)
                own[0] = record
                among = np.arange(5) * number // 4
                with_person = np.insert(np.full(number, 5), among, np.arange(5))
                change = self._change(np.insert(own, among, others, axis=0), others, with_person, np.arange(5))
                alone = self._change(own, none, np.zeros(number, dtype=np.int64), np.arange(0))
                self._compare(change, alone, "the contribution of a person depends on others")
        measured = f"{' and '.join(map(str, copies))} rows: largest change {self.largest:.6f} C"
        return self._check("a person's many rows", measured, 1.0)

    def _change(
        self, one: Floats, other: Floats, persons: Any = None, other_persons: Any = None, sampler: int = 0
    ) -> dict[str, Ints] | None:
        """Difference of the releases on two data sets, if both could be made and nothing else differed."""
        pair = [self._released(one, persons, sampler), self._released(other, other_persons, sampler)]
        self.faults += [fault for _, _, fault in pair if fault]
        (result, said, _), (before, said_before, _) = pair
        if said != said_before:
            self.faults.append("a record shows in what is printed, logged or warned of")
        return None if result is None or before is None else difference(result, before)

    def _is_invalid(self, record: Floats) -> bool:
        """Whether the model gets a record as a row of numbers that are all NaN."""
        [chunk] = self.case.source(record[None], None).chunks()
        x_nd = getattr(chunk.rows, "x_nd", chunk.rows)
        return isinstance(x_nd, np.ndarray) and x_nd.dtype.kind == "f" and bool(x_nd.size and np.isnan(x_nd).all())

    def _released(self, matrix: Floats, persons: Any, sampler: int) -> tuple[dict[str, Ints] | None, list[str], str]:
        """The release on a data set if it could be made, what was said meanwhile, and the fault; made only once."""
        key = (sampler % len(_SAMPLERS), matrix.tobytes(), None if persons is None else persons.tobytes())
        if key not in self._made:
            result, fault = None, ""
            with heard() as said:
                try:
                    result = self.replays[sampler % len(_SAMPLERS)](matrix, persons)
                except PrivateComputationError:
                    fault = "a record makes the computation fail"
                except ValueError:
                    fault = "a release is off its grid"
            self._made[key] = result, sorted(set(said)), fault
        return self._made[key]

    def _compare(
        self, change: Mapping[str, Ints] | None, alone: Mapping[str, Ints] | None, fault: str, sampler: int = 0
    ) -> None:
        """Compare what was changed with what one record changes; or nothing, where a sampler may leave a record out."""
        if change is None or alone is None:
            return
        self._measure(alone)
        self.compared += not is_zero(change)
        if not same(change, alone) and not (sampler % len(_SAMPLERS) and is_zero(change)):
            self._measure(change)
            self.faults.append(fault)

    def _measure(self, change: Mapping[str, Ints]) -> None:
        self.largest = max(self.largest, relative_norm(change, self.replays[0].release)[1])

    def _check(self, name: str, measured: str, limit: float | None) -> Check:
        """The check, with what has been gathered since the last one."""
        if limit is not None and self.largest > limit:
            self.faults.insert(0, f"a change of {self.largest:.6f} C")
        threshold = "exactly" if limit is None else f"at most {limit:.6f} C"
        check = Check.of(self.case.name, name, self.faults, measured, threshold, self.compared)
        self.faults, self.largest, self.compared = [], 0.0, 0
        return check


def check_bits(case: Case) -> Check:
    """Check that every record of a batch has the norm, and adds the integers, that it has and adds by itself.

    A product of rows that BLAS rounds by the size of the batch differs in a last bit, which the grid of a release hides
    as a rule: norms are compared bit for bit, sums on a grid that shows the last bit of a float64. Where a model
    decides, as which centre is nearest, a last bit is all that it takes: so some records lie on the edge of a decision,
    at an ordinary q and at those whose components tie. State that is kept from one batch to the next shows where many
    records come in small batches; what is kept for good, where records are asked about for a second time.
    """
    rng, faults, compared = np.random.default_rng(24), list[str](), 0
    widths = [case] if case.of_width is None else [replace(case.of_width(d), phase=case.phase) for d in _WIDTHS]
    for sized in widths:
        q, release = sized.start(), sized.plan().releases[0]
        # Few digits would hide a rounding; a model may be meant only for whole numbers.
        real = bool(np.any(sized.records(rng, 20) % 1))
        dense = [rng.standard_normal((size, sized.width)) for size in _SIZES if real]
        many = sized.records(rng, _MANY)
        compared += _compare_bits(sized, q, release, many, faults, twice=True)
        for batch in [*(sized.records(rng, size) for size in _SIZES * _BATCHES), *dense]:
            compared += _compare_bits(sized, q, release, batch, faults)
        for tied in [q, *ties(q)]:
            twins = np.repeat([*_level(sized, many[:3]), many[0]], 3, axis=0)
            close = rng.permutation(np.vstack([_edges(sized, tied, release, rng), twins, many[:4]]))
            compared += _compare_bits(sized, tied, release, close, faults, fails=tied is q)
    columns = " and ".join(str(sized.width) for sized in widths)
    sizes = (*_SIZES, _MANY)
    measured = f"batches of {sizes} records, {columns} columns: {compared} records equal bit for bit"
    return Check.of(case.name, "bits of a record", faults, measured, "exactly", compared)


def check_largest(case: Case) -> Iterator[Check]:
    """Compute what records add in the largest batch that a release hands out, and no records in an empty batch.

    The same records are asked about in batches of several sizes, and the first of them one by one.
    """
    for part in [case] if case.phase is not None else case.parts():
        q, release = part.start(), part.plan().releases[0]
        batch = part.records(np.random.default_rng(26), LARGEST_BATCH)
        faults, compared = list[str](), 0
        try:
            none = _computed(part, q, release, batch[:0], 1)
            for records, size, others in ((batch[:_ALONE], _ALONE, (1,)), (batch, LARGEST_BATCH, _PARTS)):
                norms, sums = _computed(part, q, release, records, size)
                adds_n = np.any([(norm_n > 0) & np.isfinite(norm_n) for norm_n in norms.values()], axis=0)
                compared = int(adds_n.sum())
                for other in others:
                    own_norms, own_sums = _computed(part, q, release, records, other)
                    if not all(np.array_equal(norms[name], own_norms[name], equal_nan=True) for name in norms):
                        faults.append("a record has another norm in a larger batch")
                    if not same(sums, own_sums):
                        faults.append("a record adds other bits in a larger batch")
        except Exception:
            faults.append(_failure(part, q, release, batch))
        else:
            if not is_zero(none[1]):
                faults.append("a batch of no records adds something")
        sizes = ", ".join(map(str, (0, 1, *_PARTS, LARGEST_BATCH)))
        measured = f"batches of {sizes} records: {compared} records equal bit for bit"
        yield Check.of(part.name, "the largest batch", faults, measured, "exactly", compared)


def check_steps(case: Case) -> Iterator[Check]:
    """Compute q from the sums of each phase: the same q, whatever rows the E-step was given before.

    An E-step may keep what it sees where no copy of the model reaches, for example in an attribute of its class.
    """
    model, rng, faults, compared = case.model, np.random.default_rng(27), list[str](), 0
    matrix, others = case.records(rng, _UNITS), case.records(rng, _UNITS)
    plan = case.whole(FullBatch(), [1.0] * 2)
    wall: Wall[Any] = Wall(case.source(matrix, None), plan, noise=InsecureNoise(7))
    q, s = case.start(), Estimate.empty(model.blocks)
    try:
        with silence():
            for release in plan:
                s = s.update(wall.release(loop.query(model, q, release), release), 1.0)
                first, again = (_leaves_after(model, s, q) for _ in range(2))
                if first != again:
                    faults.append("an M-step gives another q for the same sums when it is called again")
                for data in (matrix, others, matrix):
                    one = replace(plan, releases=[release])
                    other: Wall[Any] = Wall(case.source(data, None), one, noise=InsecureNoise(7))
                    other.release(loop.query(model, q, release), release)
                    if _leaves_after(model, s, q) != first:
                        faults.append("an M-step gives another q for the same sums after other rows")
                    compared += bool(first)
                q = updated(model, s, q)
    except Exception as error:  # On synthetic rows: its reason may be printed.
        faults.append(f"an M-step fails on sums of ordinary records: {type(error).__name__}: {error}")
    measured = f"{compared} M-steps after other rows: equal bit for bit"
    yield Check.of(case.name, "rows in M-steps", faults, measured, "exactly", compared)


def _leaves_after(model: Any, s: Estimate, q: Any) -> dict[str, bytes]:
    """The bits of all numbers of the q that follows the newest release."""
    return {name: leaf.tobytes() for name, leaf in trees.leaves(updated(model, s, deepcopy(q))).items()}


def _compare_bits(
    case: Case, q: Any, release: Release, batch: Floats, faults: list[str], *, twice: bool = False, fails: bool = True
) -> int:
    """Add to the faults what differs between records together and one by one; return how many of them add something.

    Args:
        case, release: what is looked at.
        q: at which.
        batch: records, asked about one by one, in small batches one after another, and together.
        faults: found so far.
        twice: whether they are asked about one by one once more at the end.
        fails: whether a computation that fails is a fault, or q none that the model need accept.
    """
    try:
        alone = [_computed(case, q, release, row[None]) for row in batch]
        ways = [_computed(case, q, release, batch, size) for size in (7, len(batch))]
        later = [_computed(case, q, release, row[None]) for row in batch] if twice else alone
    except Exception:
        if fails:
            faults.append(_failure(case, q, release, batch))
        return 0
    for norms, sums in ways:
        # Values that are not numbers are dropped, whatever bits they have.
        each = {name: np.concatenate([one[name] for one, _ in alone]) for name in norms}
        if not all(np.array_equal(norms[name], each[name], equal_nan=True) for name in norms):
            faults.append("a record has another norm in another batch")
        if not same(sums, {name: np.add.reduce([one[name] for _, one in alone]) for name in sums}):
            faults.append("a record adds other bits in another batch")
    if not all(same(one, other) for (_, one), (_, other) in zip(alone, later, strict=True)):
        faults.append("a record adds something else when it is asked about again")
    return sum(not is_zero(one) for _, one in alone)


def _failure(case: Case, q: Any, release: Release, records: Floats) -> str:
    """Say that the computation fails, on which of some synthetic records, and why."""
    for number, record in [(0, records[:0]), *((n, row[None]) for n, row in enumerate(records, start=1))]:
        try:
            _computed(case, q, release, record)
        except Exception as error:  # On synthetic rows, so that it may be told.
            values = ", ".join(f"{value:.4g}" for value in record.ravel()[:_SHOWN])
            more = ", ..." if record.size > _SHOWN else ""
            which = f"record {number}, [{values}{more}]" if number else "a batch of no records"
            return f"the computation fails on ordinary records: {which}, gives {type(error).__name__}: {error}"
    return "the computation fails on ordinary records, on several of them together"


def _computed(
    case: Case, q: Any, release: Release, matrix: Floats, size: int = 1
) -> tuple[dict[str, Floats], dict[str, Ints]]:
    """Norms of all records, and their clipped sums on the finest grid, of each block; `size` records at a time.

    The source is opened anew for each batch, so that the size does not depend on the source's own chunks.
    """
    norms: dict[str, list[Floats]] = {name: [] for name in release.asked}
    sums = zeros(release)
    with silence():
        query = loop.query(case.model, q, release)
        for start in range(0, max(1, len(matrix)), size):
            source = case.source(matrix[start : start + size], None)
            source = replace(source, chunk=size) if isinstance(source, Matrix) else source
            for chunk in source.chunks():
                answer = query(chunk.rows)
                for name, block in release.asked.items():
                    contribution = answer[name].of_block(block, chunk.num_units)
                    norm = contribution.norms()
                    weights = block.bound / np.maximum(np.where(np.isfinite(norm), norm, np.inf), block.bound)
                    step = 2.0 ** (math.ceil(math.log2(block.bound)) - _BITS)
                    contribution.accumulate(weights, Grid(step, block.bound), sums[name])
                    norms[name].append(norm)
    return {name: np.concatenate(parts) for name, parts in norms.items()}, sums


def _edges(case: Case, q: Any, release: Release, rng: np.random.Generator) -> Floats:
    """Records on both sides of a jump of what a record adds, found by halving the ways between ordinary records."""
    found = [np.empty((0, case.width))]
    ends = case.records(rng, 2 * _WAYS)
    given = np.arange(case.width) < case.responses
    for one, other in zip(ends[::2], ends[1::2], strict=True):

        def record(t: float, one: Floats = one, other: Floats = other) -> Floats:
            return np.where(given, one, one + t * (other - one))

        def added(t: float, record: Any = record) -> Floats:
            _, sums = _computed(case, q, release, record(t)[None])
            return np.concatenate([part.ravel() for part in sums.values()]) * 2.0**-_BITS

        try:
            low, high = 0.0, 1.0
            at_low, at_high = added(low), added(high)
            while np.nextafter(low, high) < high and np.abs(at_high - at_low).max(initial=0) > _JUMP:
                at_middle = added(middle := (low + high) / 2)
                if np.abs(at_middle - at_low).max() >= np.abs(at_high - at_middle).max():
                    high, at_high = middle, at_middle
                else:
                    low, at_low = middle, at_middle
        except Exception:  # It is a fault elsewhere, if it is one.
            continue
        if np.abs(at_high - at_low).max(initial=0) > _JUMP:
            step = np.spacing(high)
            found.append(np.array([record(high + n * step) for n in range(-_BESIDE, _BESIDE + 1)]))
    return np.vstack(found)


def _level(case: Case, records: Floats) -> Floats:
    """The records with one number in all features, so that a product does not tell components that tie."""
    given = np.arange(case.width) < case.responses
    return np.where(given, records, records[:, [min(case.responses, case.width - 1)]])


def check_scores(case: Case) -> Iterator[Check]:
    """The score of a row, by which `select` chooses, is the row's own: finite, within its declared range or clipped."""
    model: Any = case.model
    if not isinstance(model, Model) or model.score_range is None:
        return
    faults, (low, high) = [], model.score_range
    if not -math.inf < low < high < math.inf:
        faults.append("score_range must be two numbers, the lower one first")
    q, batch = case.start(), case.records(np.random.default_rng(25), max(_SIZES))
    with silence():
        rows = [chunk.rows for chunk in case.source(batch, None).chunks()]
        alone = [chunk.rows for row in batch for chunk in case.source(row[None], None).chunks()]
        try:
            together, each = (np.concatenate([np.asarray(model.score(q, one)) for one in x]) for x in (rows, alone))
        except Exception as error:  # On synthetic rows, so that it may be told.
            together = each = np.zeros(0)
            faults.append(f"score fails on ordinary records: {type(error).__name__}: {error}")
    if len(together) != len(batch):
        faults.append("score gives one number for each record")
    elif together.tobytes() != each.tobytes():
        faults.append("a record has another score in another batch")
    elif not np.isfinite(together).all():
        faults.append("the score of an ordinary record is not a number")
    measured = f"{len(together)} records: equal bit for bit"
    yield Check.of(case.name, "scores of records", faults, measured, "exactly", len(together))


def check_runs(case: Case) -> Iterator[Check]:
    """Whole runs under both relations: recorded, then replayed on neighbours with every q frozen."""
    rng = np.random.default_rng(22)
    matrix = case.records(rng, _UNITS)
    for relation in RELATIONS:
        # The last row: the draws of the others stay as they are.
        neighbours = [np.vstack([matrix, record]) for record in strains(case)] + [matrix[:-1]]
        if relation == "replace_one":
            neighbours = [np.vstack([matrix[:4], record, matrix[5:]]) for record in strains(case)]
        faults: list[str] = []
        share, number, compared = 0.0, 0, 0
        for sampler in _SAMPLERS:
            plan = case.whole(sampler, [2.0, 1.0], neighboring_relation=relation)
            recorded = _Recorded(case, plan, matrix)
            faults += recorded.faults
            for neighbour in neighbours if not recorded.faults else []:
                found, largest = recorded.replay(neighbour)
                faults, share, number = faults + found, max(share, largest), number + 1
                compared += largest > 0
        if share > 1:
            faults.insert(0, f"a change of {share:.6f} times the sensitivity")
        measured = (
            f"{number} runs: largest change {share:.6f} of the sensitivity, all else equal (shapes, dtypes, receipts, "
            "number of releases, words)"
        )
        name = f"replayed runs, {_WORDS[relation]}"
        yield Check.of(case.name, name, faults, measured, "at most 1, and no other difference", compared)


class _Recorded:
    """A run with repeatable noise: its releases, and the q of each."""

    def __init__(self, case: Case, plan: Plan, matrix: Floats) -> None:
        self.case, self.plan, self.faults = case, plan, list[str]()
        self.qs: list[Any] = []
        self.released: list[Released] = []
        with heard() as self.said:
            try:
                self._record(matrix)
            except PrivateComputationError:
                release = plan.releases[len(self.released)]
                self.faults.append(_failure(case, self.qs[-1], release, matrix))

    def _record(self, matrix: Floats) -> None:
        model = self.case.model
        wall = self._wall(matrix)
        q, s = model.init(np.random.default_rng(1)), Estimate.empty(model.blocks)
        for t, release in enumerate(self.plan, start=1):
            self.qs.append(q)
            self.released.append(wall.release(loop.query(model, q, release), release))
            s = s.update(self.released[-1], 1.0 / t)
            q = updated(model, s, q)

    def _wall(self, matrix: Floats) -> Wall[Any]:
        return Wall(self.case.source(matrix, None), self.plan, noise=InsecureNoise(5))

    def replay(self, matrix: Floats) -> tuple[list[str], float]:
        """Faults on a neighbour, and the largest change over its sensitivity."""
        faults, largest = [], 0.0
        with heard() as said:
            try:
                wall = self._wall(matrix)
                model = self.case.model
                replayed = [
                    wall.release(loop.query(model, q, release), release)
                    for q, release in zip(self.qs, self.plan, strict=True)
                ]
            except PrivateComputationError:
                return ["a record makes the computation fail"], 0.0
        if sorted(set(said)) != sorted(set(self.said)):
            faults.append("a record shows in what is printed, logged or warned of")
        for one, other, release in zip(replayed, self.released, self.plan, strict=True):
            if _observable(one) != _observable(other):
                faults.append("a record shows in more than the sums")
                continue
            try:
                change = difference(in_steps(one, release), in_steps(other, release))
            except ValueError:
                faults.append("a release is off its grid")
                continue
            limit = accounted(release, self.plan.neighboring_relation)
            largest = max(largest, relative_norm(change, release)[1] / limit)
        return faults, largest


def _observable(released: Released) -> Any:
    """All of a release but its numbers."""
    forms = {name: (total.shape, total.dtype.str) for name, total in released.total.items()}
    return forms, dict(released.noise_std), released.sampling_prob, released.receipt
