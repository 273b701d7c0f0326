"""What every model must keep behind the wall: purity, sensitivity, groups, hostile records.

Runs on neighbouring data use the same repeatable noise, so that it cancels and the difference of two releases is
the exact integer that one record added. These tests are deterministic.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

import numpy as np
import pytest
from small_models import CASES, NAMES, Case, difference, relative_norm

from dpvb.audit import neighbours
from dpvb.audit.integers import is_zero, same
from dpvb.audit.replay import Replay
from dpvb.core.blocks import swap_ratio
from dpvb.core.plan import Plan
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.schedule import robbins_monro
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics.lda import LDA

EVERY_MODEL = pytest.mark.parametrize("case", CASES, ids=NAMES)
SAMPLERS = [FullBatch(), Poisson(0.4), FixedSize(6, 12)]
EVERY_SAMPLER = pytest.mark.parametrize("sampler", SAMPLERS, ids=["full", "poisson", "fixed_size"])


# --- purity and sensitivity ---------------------------------------------------------------------------------


@EVERY_MODEL
def test_a_record_adds_the_same_whatever_else_is_there(case: Case) -> None:
    """T(B ∪ {x}) - T(B) = clip(s(x)), bit for bit, and its norm is within the bound: 50 to 200 pairs a model."""
    rng = np.random.default_rng(21)
    replay = Replay(case)
    for trial in range(case.pairs):
        if trial % (case.pairs // 4) == 0:
            replay.q = case.start(trial)
        batch = case.some(rng, int(rng.integers(0, 5 if case.name == "lda_numpy" else 20)))
        record = case.some(rng, 1)[0]
        place = int(rng.integers(0, len(batch) + 1))
        change = difference(replay(np.insert(batch, place, record, axis=0)), replay(batch))
        assert same(change, replay.alone(record))
        assert relative_norm(change, replay.release)[1] <= 1.0


@EVERY_MODEL
@pytest.mark.parametrize("sampler", [Poisson(0.4), FixedSize(6, 12)], ids=["poisson", "fixed_size"])
def test_a_record_adds_itself_or_nothing_to_a_batch(case: Case, sampler: Any) -> None:
    """Adding x to sampled batches: the draws of the others stay, x is in whole or not at all."""
    rng = np.random.default_rng(22)
    replay = Replay(case, sampler)
    was_in = 0
    for _ in range(30):
        batch = case.some(rng, int(rng.integers(0, 11)))
        record = case.records(rng, 1)[0] + (case.name.startswith("lda"))
        change = difference(replay(np.vstack([batch, record])), replay(batch))
        alone = replay.alone(record)
        assert is_zero(change) or same(change, alone)
        was_in += same(change, alone)
        assert relative_norm(change, replay.release)[1] <= 1.0
    assert 0 < was_in < 30


@EVERY_MODEL
@EVERY_SAMPLER
def test_replacing_a_record_changes_its_own_part_alone(case: Case, sampler: Any) -> None:
    rng = np.random.default_rng(23)
    replay = Replay(case, sampler)
    declared = replay.release.mechanism.sensitivity("replace_one", swap_ratio(replay.release.blocks))
    for _ in range(30):
        batch = case.some(rng, 12)
        place = int(rng.integers(0, 12))
        record = case.some(rng, 1)[0]
        other = batch.copy()
        other[place] = record
        change = difference(replay(other), replay(batch))
        swapped = difference(replay.alone(record), replay.alone(batch[place]))
        assert is_zero(change) or same(change, swapped)
        assert relative_norm(change, replay.release)[1] <= declared


@EVERY_MODEL
def test_the_worst_neighbours_come_near_the_declared_distance(case: Case) -> None:
    """Pairs of records at the bound, opposite or apart: within the declared Δ, and most of it is reached."""
    replay = Replay(case)
    ratio = swap_ratio(replay.release.blocks)
    records = [replay.alone(record) for record in case.hostile]
    largest = max(relative_norm(difference(a, b), replay.release)[1] for a in records for b in records)
    assert largest <= ratio
    assert largest >= min(0.7, case.reach) * ratio


@EVERY_MODEL
def test_bits_of_a_record_do_not_depend_on_its_batch(case: Case) -> None:
    """Its norm, and what it adds on a grid that shows the last bit of a float64."""
    check = neighbours.check_bits(case)
    assert check.passed, check.measured


@EVERY_MODEL
def test_order_and_split_do_not_change_a_bit(case: Case) -> None:
    rng = np.random.default_rng(24)
    replay = Replay(case)
    matrix = case.some(rng, 60)
    whole, nothing = replay(matrix), replay.nothing()
    for _ in range(10):
        order = rng.permutation(60)
        assert same(replay(matrix[order]), whole)
        cut = int(rng.integers(0, 61))
        parts = [difference(replay(piece), nothing) for piece in (matrix[:cut], matrix[cut:])]
        assert same({name: parts[0][name] + parts[1][name] for name in nothing}, difference(whole, nothing))


def test_a_thousand_documents_are_the_same_in_any_batch_order_and_thread_count() -> None:
    """The local step's own outputs, bit for bit: alone, in a batch, reversed, by one thread or two."""
    rng = np.random.default_rng(25)
    counts = rng.poisson(0.3, (1000, 40)) * rng.choice([1.0, 0.7, 13.0], (1000, 1))
    model = LDA(7, 40)
    beta = model.init(rng).beta_vk

    def local(rows: np.ndarray, threads: int) -> list[np.ndarray]:
        part = counts[rows]
        indptr = np.concatenate([[0], np.cumsum((part > 0).sum(axis=1))]).astype(np.int64)
        indices = np.nonzero(part)[1].astype(np.int32)
        theta, ratio, norm, gamma = kernel.local_step(
            indptr, indices, part[part > 0], beta, np.full(7, 0.1), threads=threads
        )
        dense = np.zeros(part.shape)
        dense[part > 0] = ratio
        out = np.zeros((40, 7), dtype=np.int64)
        kernel.accumulate(indptr, indices, ratio, theta, np.ones(len(rows)), beta, 2.0**-20, out, threads=threads)
        return [theta, dense, norm, gamma, out]

    everything = np.arange(1000)
    *whole, total = local(everything, 1)
    for threads in (1, 2):
        for order in (everything[::-1], rng.permutation(1000), everything):
            *results, again = local(order, threads)
            assert np.array_equal(again, total)
            for one, other in zip(results, whole, strict=True):
                assert np.array_equal(one, other[order])
    for n in range(0, 1000, 7):
        for one, other in zip(local(np.array([n]), 1)[:-1], whole, strict=True):
            assert np.array_equal(one[0], other[n])


# --- persons ------------------------------------------------------------------------------------------------


@EVERY_MODEL
@pytest.mark.parametrize("copies", [1, 2, 100, 10_000])
def test_a_person_with_many_rows_counts_once(case: Case, copies: int) -> None:
    if copies == 10_000 and case.name == "lda_numpy":
        copies = 1000  # the plain kernel takes a millisecond a document
    replay = Replay(case)
    rng = np.random.default_rng(26)
    others = case.records(rng, 5)
    record = case.modest if copies > 1 else case.hostile[1]
    with_person = np.vstack([np.tile(record, (copies, 1)), others])
    ids = np.concatenate([np.zeros(copies, dtype=np.int64), np.arange(1, 6)])
    change = difference(replay(with_person, ids), replay(others, np.arange(5)))
    assert relative_norm(change, replay.release)[1] <= 1.0
    assert not is_zero(change)


@EVERY_MODEL
def test_a_person_adds_the_same_whatever_else_is_there(case: Case) -> None:
    """Purity of persons: any of several rows, others of any number, added, bit for bit."""
    rng = np.random.default_rng(27)
    replay = Replay(case)
    nothing = replay.nothing()
    for _ in range(40):
        own = case.some(rng, int(rng.integers(1, 6)))
        others = case.some(rng, int(rng.integers(0, 30)))
        ids = np.sort(rng.integers(0, 8, len(others)))
        ids = np.unique(ids, return_inverse=True)[1] if len(ids) else ids
        first = 0 if len(ids) == 0 else int(ids.max()) + 1
        both = replay(np.vstack([others, own]), np.concatenate([ids, np.full(len(own), first)]).astype(np.int64))
        change = difference(both, replay(others, ids.astype(np.int64)))
        alone = difference(replay(own, np.zeros(len(own), dtype=np.int64)), nothing)
        assert same(change, alone)
        assert relative_norm(change, replay.release)[1] <= 1.0


@EVERY_MODEL
def test_single_rows_as_persons_change_nothing(case: Case) -> None:
    matrix = case.records(np.random.default_rng(28), 30)
    replay = Replay(case)
    singles, plain = replay(matrix, np.arange(30)), replay(matrix)
    for name in plain:
        assert np.abs(singles[name] - plain[name]).max() <= 2**16  # a grouped norm bound has one more rounding


# --- hostile records ----------------------------------------------------------------------------------------

_BAD = [math.nan, math.inf, -math.inf]


@EVERY_MODEL
@pytest.mark.parametrize("value", _BAD)
@pytest.mark.parametrize("whole", [True, False])
def test_a_record_without_a_finite_statistic_adds_nothing(
    case: Case, value: float, whole: bool, caplog: Any, capsys: Any
) -> None:
    rng = np.random.default_rng(29)
    matrix = case.records(rng, 12)
    poisoned = np.vstack([matrix[:5], matrix[5:6].copy(), matrix[5:]])
    poisoned[5, slice(None) if whole else 0] = value
    replay = Replay(case)
    clean = replay(matrix)  # JAX says when it compiles, once and whatever the data.
    with caplog.at_level(logging.DEBUG):
        assert same(replay(poisoned), clean)
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


@EVERY_MODEL
@pytest.mark.parametrize("value", [1e308, -1e308, 1e200, -1.0, -0.0, 5e-324, 2.0**63, 2.0**-1022])
def test_a_record_of_extreme_numbers_stays_within_the_bound(case: Case, value: float) -> None:
    rng = np.random.default_rng(30)
    matrix = case.records(rng, 12)
    replay = Replay(case)
    for record in (np.full(case.width, value), np.where(np.arange(case.width) == 1, value, 1.0)):
        change = difference(replay(np.vstack([matrix, record])), replay(matrix))
        assert relative_norm(change, replay.release)[1] <= 1.0
        assert same(change, replay.alone(record))


@EVERY_MODEL
@pytest.mark.parametrize("value", [*_BAD, 1e308])
def test_a_bad_row_does_not_spoil_the_persons_bound(case: Case, value: float) -> None:
    rng = np.random.default_rng(31)
    own, others = case.records(rng, 4), case.records(rng, 6)
    own[2, :2] = value
    replay = Replay(case)
    ids = np.repeat([0, 1], [4, 6])
    change = difference(replay(np.vstack([own, others]), ids), replay(others, np.zeros(6, dtype=np.int64)))
    assert relative_norm(change, replay.release)[1] <= 1.0
    if not math.isfinite(value):
        kept = np.delete(own, 2, axis=0)
        without = difference(replay(np.vstack([kept, others]), ids[1:]), replay(others, np.zeros(6, dtype=np.int64)))
        for name in change:  # the person's norm bound may round once more or less
            assert np.abs(change[name] - without[name]).max() <= 2**16


# --- whole runs ---------------------------------------------------------------------------------------------


@EVERY_MODEL
@pytest.mark.parametrize("matrix", ["empty", "one", "hostile"])
def test_a_run_is_finite_on_any_data(case: Case, matrix: str) -> None:
    from dpvb.core import loop
    from dpvb.core.noise import InsecureNoise
    from dpvb.core.wall import Wall

    data = {"empty": np.zeros((0, case.width)), "one": case.hostile[1:2], "hostile": case.hostile}[matrix]
    for sampler in (FullBatch(), Poisson(0.3), FixedSize(2, 20)):
        plan: Plan = case.whole(sampler, [3.0, 1.0, 2.0])
        wall: Wall[Any] = Wall(case.source(data), plan, noise=InsecureNoise(5))
        q, estimate = loop.fit(case.model, wall, plan, rho=robbins_monro(1.0, 0.7), rng=np.random.default_rng(2))
        parts = vars(q).values() if dataclasses.is_dataclass(q) else [q]
        assert all(np.isfinite(part).all() for part in parts if isinstance(part, (float, np.ndarray)))
        for name in case.model.blocks:
            assert np.isfinite(estimate.read(name)).all()
            assert np.isfinite(estimate.project(name)).all()
        assert estimate.receipt is not None
        assert estimate.receipt.step == len(plan) - 1
