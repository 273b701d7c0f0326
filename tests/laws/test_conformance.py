"""What every model must keep behind the wall: the laws of the audit, and purity, persons and runs in particular.

Runs on neighbouring data use the same repeatable noise, so that it cancels and the difference of two releases is
the exact integer that one record added. These tests are deterministic. A law is a function of a case and of the audit's
`Look` at it; one test asks a case about all laws and names those that it breaks.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from small_models import CASES, NAMES, Case, difference, one_of_each, relative_norm, squared

from dpvb.audit import neighbours
from dpvb.audit.captured_output import heard
from dpvb.audit.integers import is_zero, same
from dpvb.audit.neighbours import Look, Replay
from dpvb.core import loop
from dpvb.core.blocks import swap_ratio
from dpvb.core.grids import grids_of
from dpvb.core.model import robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.core.source import LARGEST_BATCH, is_shipped
from dpvb.core.wall import Wall
from dpvb.results.audit_report import Check

#: Cases of a class and phase that others have too, whose statistics or clipping are of another form.
OTHER_FORMS = ("curvature_joint", "beside_last", "dispersion_last", "mixed_step", "classes_words_first")
EVERY_MODEL = pytest.mark.parametrize("case", CASES, ids=NAMES)
SAMPLERS: list[Sampler] = [FullBatch(), FixedSize(2, 20), Poisson(0.3)]
_BAD = [math.nan, math.inf, -math.inf]


def holds(check: Check) -> None:
    """Assert that a check of the audit found nothing."""
    assert check.passed, check.measured


def a_record_adds_the_same_whatever_else_is_there(case: Case, look: Look) -> None:
    """T(B + x) - T(B) = clip(s(x)), bit for bit and within the bound, extreme records too; or nothing, if not drawn."""
    holds(look.adding())


def replacing_a_record_changes_its_own_part_alone(case: Case, look: Look) -> None:
    holds(look.replacing())


def the_worst_records_come_near_the_declared_bounds(case: Case, look: Look) -> None:
    """Alone and in pairs, opposite or apart: within each bound and the declared Δ, and most of both is reached."""
    replay = Replay(case)
    release, ratio = replay.release, swap_ratio(replay.release.blocks)
    records = [replay.alone(record) for record in case.hostile]
    if case.clipping == "block":
        for (name, block), record in itertools.product(release.blocks.items(), records):
            limit = Fraction(block.bound) / Fraction(grids_of(release, None)[name].step)
            assert squared(record[name], block) <= limit**2
    assert case.reach < max(relative_norm(record, release)[1] for record in records) <= 1.0
    largest = max(relative_norm(difference(a, b), release)[1] for a in records for b in records)
    assert min(0.7, case.reach) * ratio <= largest <= ratio


def order_and_split_do_not_change_a_bit(case: Case, look: Look) -> None:
    holds(look.ordering())


def a_person_with_many_rows_counts_once(case: Case, look: Look) -> None:
    """Rows of all kinds, malformed ones among them: within one bound, and the same whatever else is there."""
    holds(look.persons((1, 2, 3, 100)))
    replay = Replay(case)
    for copies in (1, 100):
        rows = np.tile(case.modest, (copies, 1))
        assert not is_zero(difference(replay(rows, np.zeros(copies, dtype=np.int64)), replay(rows[:0])))


def single_rows_as_persons_change_nothing(case: Case, look: Look) -> None:
    matrix = case.records(np.random.default_rng(28), 30)
    replay = Replay(case)
    singles, plain = replay(matrix, np.arange(30)), replay(matrix)
    for name in plain:
        assert np.abs(singles[name] - plain[name]).max() <= 2**16  # a grouped norm bound has one more rounding


def a_record_without_a_finite_statistic_adds_nothing_and_says_nothing(case: Case, look: Look) -> None:
    matrix = case.records(np.random.default_rng(29), 12)
    replay = Replay(case)
    clean = replay(matrix)  # JAX says when it compiles, once and whatever the data.
    for value, columns in itertools.product(_BAD, (slice(None), 0)):
        poisoned = np.vstack([matrix[:5], matrix[5:6], matrix[5:]])
        poisoned[5, columns] = value
        with heard(logging.DEBUG) as said:
            assert same(replay(poisoned), clean), (value, columns)
        assert said == [], (value, columns)


def a_bad_row_of_a_person_counts_as_no_row(case: Case, look: Look) -> None:
    replay = Replay(case)
    for value in _BAD:
        own, ids = case.records(np.random.default_rng(31), 4), np.zeros(4, dtype=np.int64)
        own[2, :2] = value
        with_it, without = replay(own, ids), replay(np.delete(own, 2, axis=0), ids[1:])
        for name in with_it:  # the person's norm bound may round once more or less
            assert np.abs(with_it[name] - without[name]).max() <= 2**16, value


def hard_data(case: Case) -> list[Any]:
    """No rows, one extreme row, and all extreme rows."""
    return [np.zeros((0, case.width)), case.hostile[1:2], case.hostile]


def a_run_is_finite_on_any_data(case: Case, look: Look) -> None:
    """Each data set with one sampler; the slow test below has every pair."""
    for data, sampler in zip(hard_data(case), SAMPLERS, strict=True):
        run_is_finite(case, data, sampler)


def run_is_finite(case: Case, data: Any, sampler: Sampler) -> None:
    plan: Plan = case.whole(sampler, [3.0, 1.0, 2.0])
    wall: Wall[Any] = Wall(case.source(data), plan, noise=InsecureNoise(5))
    q, estimate = loop.fit(case.model, wall, plan, rho=robbins_monro(1.0, 0.7), rng=np.random.default_rng(2))
    parts = vars(q).values() if dataclasses.is_dataclass(q) else [q]
    assert all(np.isfinite(part).all() for part in parts if isinstance(part, (float, np.ndarray)))
    for name in case.model.blocks:
        assert np.isfinite(estimate.noisy(name)).all()
        assert np.isfinite(estimate.project(name)).all()
    assert estimate.receipt is not None
    assert estimate.receipt.step == len(plan) - 1


LAWS: list[Callable[[Case, Look], None]] = [
    a_record_adds_the_same_whatever_else_is_there,
    replacing_a_record_changes_its_own_part_alone,
    the_worst_records_come_near_the_declared_bounds,
    order_and_split_do_not_change_a_bit,
    a_person_with_many_rows_counts_once,
    single_rows_as_persons_change_nothing,
    a_record_without_a_finite_statistic_adds_nothing_and_says_nothing,
    a_bad_row_of_a_person_counts_as_no_row,
    a_run_is_finite_on_any_data,
]


@pytest.fixture
def look(case: Case) -> Look:
    """The audit's look at a case, whose releases the laws share."""
    return Look(case, case.pairs)


@pytest.mark.guarantees("own part", "clipping", "not finite", "persons", "exact sums", "order in a unit")
@kills("norms", "outer products declared too short", "first_order_first")
@edit("core/forms.py", "length * length * _GRAM_ROOM", "0.5 * length * length * _GRAM_ROOM")
@kills("records", "warm start of a document from the one before", "lda")
@edit(
    "models/topics/kernel_numba.py",
    "            x_i[k] = last_i[k] = 1.0\n",
    "            if n == first:\n                x_i[k] = last_i[k] = 1.0\n",
)
@kills("drawn batch", "division by the realised batch size", "location")
@edit(
    "core/clipped_sums.py",
    "_MARGIN / np.maximum(relative[name], _MARGIN), 0.0)",
    "_MARGIN / np.maximum(relative[name], _MARGIN), 0.0) / max(len(usable), 1)",
)
@kills("norms", "truncation replaced by rounding away", "location")
@edit(
    "core/forms.py",
    "np.copyto(whole[: len(step_n)], step_n, casting",
    "np.copyto(whole[: len(step_n)], np.round(step_n * (1 + 2.0**-19)), casting",
)
@kills("norms", "norms in float32 and no margin", "location")
@edit(
    "core/blocks.py",
    "    flat = np.ascontiguousarray(values, dtype=np.float64)",
    "    flat = np.ascontiguousarray(values, dtype=np.float32)",
)
@edit("core/clipped_sums.py", "_MARGIN = 1.0 - 2.0**-20", "_MARGIN = 1.0")
@kills("rows", "groups ignored", "location")
@edit("core/clipped_sums.py", "if batch.unit_of_row is not None:", "if False:")
@edit("core/clipped_sums.py", "if any(norm.shape != (num_units,) for norm in norms.values()):", "if False:")
@kills("leaks", "un-noised loss printed in training", "location")
@edit(
    "core/clipped_sums.py",
    '        if release.clipping == "joint":\n',
    '        print("loss", *map(np.sum, norms.values()))\n        if release.clipping == "joint":\n',
)
@kills("NaN", "NaN passes the clip", "location")
@edit("core/blocks.py", "2.0**-1000, 0.0), np.inf)", "2.0**-1000, 0.0), 0.0)")
@edit("core/clipped_sums.py", "np.where(usable & (norms[name] > 0),", "np.where(usable,")
@pytest.mark.usefixtures("few_iterations")
@one_of_each(CASES, also=OTHER_FORMS)
@each("law", LAWS, ids=lambda law: law.__name__)
def test_a_model_keeps_every_law(case: Case, look: Look, law: Callable[[Case, Look], None]) -> None:
    law(case, look)


@pytest.mark.slow
@EVERY_MODEL
def test_a_model_keeps_the_laws_at_another_q_and_for_persons_of_ten_thousand_rows(case: Case) -> None:
    """A model of a user is asked about a person of LARGEST_BATCH rows; one with more rows contributes nothing."""
    holds(Look(case, 200, seed=2).adding())
    holds(Look(case, 200, seed=2).replacing())
    if is_shipped(case.model):
        holds(Look(case, 10).persons((10_000,)))
    else:
        holds(Look(case, 10).persons((LARGEST_BATCH,)))
        assert not Look(case, 10).persons((10_000,)).compared


@pytest.mark.slow
@EVERY_MODEL
def test_a_run_with_any_sampler_is_finite_on_any_data(case: Case) -> None:
    for data, sampler in itertools.product(hard_data(case), SAMPLERS):
        run_is_finite(case, data, sampler)


@pytest.mark.guarantees("own part")
@kills("records", "rows turned by BLAS, which rounds by the size of the batch", "first_order_step")
@edit("core/forms.py", "MeasuredRows(product(x_nd, matrix_de))", "MeasuredRows(x_nd @ matrix_de)")
@kills("records", "responsibilities that hang on the likeliest row of the batch", "gaussians_step")
@edit("models/mixtures/mixture.py", "log_kn -= log_kn.max(axis=0)", "log_kn -= log_kn.max(initial=-1e3)")
@one_of_each(CASES)
def test_bits_of_a_record_do_not_depend_on_its_batch(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its norm, and what it adds on a grid that shows the last bit of a float64; fewer batches than in an audit."""
    monkeypatch.setattr(neighbours, "_BATCHES", 1)
    monkeypatch.setattr(neighbours, "_WAYS", 4)
    holds(neighbours.check_bits(case))


@pytest.mark.slow
@EVERY_MODEL
def test_bits_of_a_record_do_not_depend_on_any_batch_of_an_audit(case: Case) -> None:
    holds(neighbours.check_bits(case))
