"""The wall: what leaves it, when, and with how much noise.

Statistical tests run on fixed seeds; their false-alarm rate, had the seed been free, is at most 1e-6 each.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import pickle
import threading
import time
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats
from each import each
from planted import edit, kills
from small_models import (
    CASES,
    NAMES,
    TOYS_FIRST,
    Case,
    D,
    Location,
    Table,
    in_steps,
    table,
)

from dpvb.core import loop
from dpvb.core.blocks import Block, triangle
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.grids import grids_of
from dpvb.core.model import constant
from dpvb.core.noise import InsecureNoise, SecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.released import Released, ReleaseReceipt
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.source import Nobody
from dpvb.core.wall import Wall
from dpvb.data.documents.bag_of_words import BagOfWords
from dpvb.errors import OutOfMemoryError, ParameterError, PrivacyError, PrivateComputationError

FALSE_ALARM = 1e-6
EVERY_MODEL = pytest.mark.parametrize("case", TOYS_FIRST, ids=NAMES)


def plain(value: float = 1.0, size: int = 1, bound: float = 1.0, noise: float = 1.0, steps: int = 1) -> Plan:
    release = Release({"a": Block((size,), bound)}, Mechanism(FullBatch(), noise))
    return Plan([release] * steps)


class Silent:
    """Contributions of a batch that are all zero."""

    def __init__(self, num_units: int) -> None:
        self.num_units = num_units

    def of_block(self, block: Any, num_rows: int) -> Any:
        return self

    def norms(self) -> Any:
        return np.zeros(self.num_units)

    def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
        assert len(weights) == self.num_units


def constant_query(value: float, size: int) -> Any:
    return lambda rows: {"a": Rows(np.full((len(rows), size), value))}


# --- one method, one order ----------------------------------------------------------------------------------


@pytest.mark.guarantees("boundary")
def test_a_wall_has_three_doors_and_a_way_past_them() -> None:
    wall: Wall[Any] = Wall(table(np.ones((2, D))), plain())
    assert [name for name in dir(wall) if not name.startswith("_")] == ["forgo", "names", "release", "share"]
    assert repr(wall) == "Wall(step 0 of 1)"


def test_a_wall_cannot_be_copied_or_pickled() -> None:
    wall: Wall[Any] = Wall(table(np.ones((2, D))), plain())
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="private data"):
            leave(wall)


def test_releases_are_granted_in_the_plans_order_and_once() -> None:
    one, two = (Release({"a": Block((D,), 1.0)}, Mechanism(FullBatch(), sigma)) for sigma in (1.0, 2.0))
    wall: Wall[Any] = Wall(table(np.ones((2, D))), Plan([one, two, one]))
    asked = []

    def query(rows: Any) -> Any:
        asked.append(len(rows))
        return {"a": Rows(rows)}

    twin = dataclasses.replace(one)  # equal, but not the plan's own
    for refused in (two, twin):
        with pytest.raises(PrivacyError, match="not its next"):
            wall.release(query, refused)
    assert asked == []  # nothing is read, nothing is spent
    steps = [wall.release(query, release).receipt.step for release in (one, two, one)]
    assert steps == [0, 1, 2]
    for release in (one, two):
        with pytest.raises(PrivacyError, match="3 are spent"):
            wall.release(query, release)
    assert asked == [0, 2] * 3  # A release asks for no rows first.


@kills("crashes", "charge after the look")
@edit("core/wall.py", "            self.__step += 1\n", "")
@edit(
    "core/wall.py",
    "        noise_std = {name: release.noise_std(name) for",
    "        self.__step += 1\n        noise_std = {name: release.noise_std(name) for",
)
def test_the_charge_comes_before_the_look_and_stands() -> None:
    plan = plain(steps=2, size=D)
    wall: Wall[Any] = Wall(table(np.ones((2, D))), plan)
    seen = []

    def failing(rows: Any) -> Any:
        seen.append(repr(wall))
        raise RuntimeError("x")

    with pytest.raises(PrivateComputationError):
        wall.release(failing, plan.releases[0])
    assert set(seen) == {"Wall(step 1 of 2)"}
    assert wall.release(constant_query(1.0, D), plan.releases[1]).receipt.step == 1
    with pytest.raises(PrivacyError):
        wall.release(constant_query(1.0, D), plan.releases[1])


def test_released_and_estimate_are_made_by_the_wall_alone() -> None:
    plan = plain(size=D)
    released = Wall(table(np.ones((2, D))), plan).release(constant_query(1.0, D), plan.releases[0])
    receipt = ReleaseReceipt("run", 0, "", True)
    for seal in (None, object(), True):
        with pytest.raises(PrivacyError):
            Released({"a": np.ones(D)}, {"a": 0.0}, 1.0, receipt, seal)
        with pytest.raises(PrivacyError):
            Estimate({"a": Block((D,), 1.0)}, {"a": np.ones(D)}, {"a": 0.0}, {"a": 1.0}, seal)
    estimate = Estimate.empty({"a": Block((D,), 1.0)}).update(released, 1.0)
    for sealed, change in ((released, {"total": {"a": np.zeros(D)}}), (estimate, {"rho": 0.5})):
        with pytest.raises((ValueError, TypeError, PrivacyError)):
            dataclasses.replace(sealed, **change)  # type: ignore[type-var]
        with pytest.raises(dataclasses.FrozenInstanceError):
            sealed.rho = 1.0  # type: ignore[misc, union-attr]
        for operation in ("__getitem__", "__add__", "__mul__", "__array__", "__iter__"):
            assert not hasattr(sealed, operation)
    for cls in (Wall, Released, Estimate, ReleaseReceipt):
        assert getattr(cls, "__final__", False)


def test_receipts_name_the_run_the_step_and_the_plan() -> None:
    plan = plain(size=D, steps=2)
    runs = []
    for noise in (None, InsecureNoise(3)):
        wall: Wall[Any] = Wall(table(np.ones((2, D))), plan, noise=noise)
        receipts = [wall.release(constant_query(1.0, D), release).receipt for release in plan]
        assert [r.step for r in receipts] == [0, 1]
        assert {r.plan_digest for r in receipts} == {plan.digest.hex()}
        assert len({r.run for r in receipts}) == 1
        assert [r.private for r in receipts] == [noise is None] * 2
        runs.append(receipts[0].run)
    assert runs[0] != runs[1]


# --- nothing but the noise ----------------------------------------------------------------------------------


@kills("empty batch", "no noise where the batch is empty", "block-location")
@edit(
    "core/wall.py",
    "        for part, ratio in block.noise_parts():\n",
    "        for part, ratio in block.noise_parts() if sums[name].any() else ():\n",
)
@EVERY_MODEL
@pytest.mark.parametrize("clip", ["block", "joint"])
def test_an_empty_corpus_is_pure_noise(case: Case, clip: str) -> None:
    plan = dataclasses.replace(case, clipping=clip).plan(noise=2.0, steps=2)
    releases = case.run(np.zeros((0, case.width)), plan)
    for step, (released, release) in enumerate(zip(releases, plan, strict=True)):
        grids = grids_of(release, None)
        for name, block in release.blocks.items():
            expected = np.empty(block.packed_shape, dtype=np.int64)
            for part, ratio in block.noise_parts():
                expected[part] = InsecureNoise(7).gaussian(
                    release.noise_std(name) / grids[name].step * ratio,
                    np.zeros(expected[part].shape, dtype=np.int64),
                    step=step,
                    block=f"{name}/{ratio:g}",
                    plan_digest=plan.digest,
                )
            assert np.array_equal(in_steps(released, release)[name], expected)


@kills("stopping", "training ends when a private sum vanishes", "poisson-location")
@edit(
    "core/wall.py",
    "        if isinstance(self.__source, Spread):\n",
    "        found = work.sums(self.__source.chunks(), work.draw(self.__source, int)).values()\n"
    "        if not any(total.any() for total in found):\n"
    "            self.__step = len(self.__plan)\n        if isinstance(self.__source, Spread):\n",
)
@EVERY_MODEL
@pytest.mark.parametrize("sampler", [Poisson(0.1), FixedSize(1, 10)], ids=["poisson", "fixed_size"])
def test_empty_batches_are_releases_like_any_other(case: Case, sampler: Any) -> None:
    """One record at q = 0.1, 50 steps: 45 ± 2 batches are empty, all releases finite, sd and steps as planned.

    Pooled variance of all coordinates over their stated variance, over n coordinates: 1 ± 5·√(2/n).
    """
    plan = case.plan(sampler, noise=1.0, steps=50)
    record = np.ones((1, case.width)) * 1e-6 if case.source is table else np.eye(case.width)[:1] * 0.0
    releases = case.run(record, plan)
    assert len(releases) == 50
    assert sum(event.n_steps for event in plan.events()) == 50
    squares, count = 0.0, 0
    for released, release in zip(releases, plan, strict=True):
        for name, block in release.blocks.items():
            std = released.noise_std[name]
            assert std == release.noise_std(name)
            for part, ratio in block.noise_parts():
                values = released.total[name][part] / (std * ratio)
                assert np.isfinite(values).all()
                squares, count = squares + float((values**2).sum()), count + values.size
    assert abs(squares / count - 1) < 5 * math.sqrt(2 / count)


@kills("factor", "noise 2 % too small")
@edit("core/wall.py", "grids[name].step * ratio\n", "grids[name].step * ratio * 0.98\n")
@pytest.mark.parametrize("size", [0, 1, 1000])
@pytest.mark.parametrize("secure", [True, False])
def test_noise_std_is_right_at_every_batch_size(size: int, secure: bool) -> None:
    """100,000 coordinates: sd within ±1.2 % (5.4 sigma), mean within 5 sigma, normal by Kolmogorov-Smirnov."""
    count = 100_000
    plan = plain(size=count, bound=3.0, noise=1.7)
    wall: Wall[Any] = Wall(Table(np.zeros((size, 1)), chunk=100), plan, noise=None if secure else InsecureNoise(size))
    released = wall.release(lambda rows: {"a": Silent(len(rows))}, plan.releases[0])
    noise = released.total["a"] / (1.7 * 3.0)
    assert abs(noise.std() - 1) < 0.012
    assert abs(noise.mean()) < 5 / math.sqrt(count)
    assert scipy.stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    assert released.noise_std == {"a": 1.7 * 3.0}


@pytest.mark.guarantees("noise")
@pytest.mark.parametrize("clip", ["block", "joint"])
def test_noise_std_of_every_block_and_weight(clip: Any) -> None:
    """σ·C_b/w_b on each coordinate of svec: two blocks, uneven weights, 60,000 coordinates each, ±1.5 % (5 sigma)."""
    d = 346  # d(d+1)/2 = 60,031 packed coordinates
    blocks = {"a": Block((60_000,), 2.0), "m": Block((d, d), 5.0, "psd")}
    release = Release(blocks, Mechanism(Poisson(0.5), 3.0), {"a": 0.6, "m": 0.8}, clip)
    wall: Wall[Any] = Wall(Nobody(), Plan([release]), noise=InsecureNoise(5))
    released = wall.release(lambda rows: {}, release)
    assert abs(released.total["a"].std() / (3.0 * 2.0 / 0.6) - 1) < 0.015
    row, column = triangle(d)
    matrix = released.total["m"] / (3.0 * 5.0 / 0.8)
    assert abs(matrix[row != column].std() * math.sqrt(2) - 1) < 0.015
    assert abs(matrix[row == column].std() - 1) < 5 / math.sqrt(2 * d)


@pytest.mark.guarantees("fresh noise")
@kills("reused noise", "the same secret in every run")
@edit("core/noise.py", "return secrets.token_bytes(32)", "return bytes(32)")
def test_neighbours_never_share_noise() -> None:
    """SecureNoise, same plan and q: the difference of two runs is noise of twice the variance, not the difference."""
    count = 20_000
    plan = plain(size=count, noise=1.0)
    totals = []
    for records in (1, 2, 2):
        wall: Wall[Any] = Wall(table(np.zeros((records, 1))), plan)
        totals.append(wall.release(constant_query(0.001, count), plan.releases[0]).total["a"])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(totals[i], totals[j])[0, 1]) < 5 / math.sqrt(count)
        assert abs((totals[i] - totals[j]).var() / 2 - 1) < 5 * math.sqrt(2 / count)


@kills("reused noise", "one key for all draws of a run")
@edit(
    "core/noise.py",
    "return secrets.token_bytes(32)",
    'return bytes(vars(self).setdefault("_key", secrets.token_bytes(32)))',
)
def test_equal_sums_of_two_blocks_and_steps_get_their_own_noise() -> None:
    count = 20_000
    blocks = {"a": Block((count,), 1.0), "b": Block((count,), 1.0)}
    plan = Plan([Release(blocks, Mechanism(FullBatch(), 1.0))] * 2)
    for noise in (SecureNoise(), InsecureNoise(2)):
        wall: Wall[Any] = Wall(Nobody(), plan, noise=noise)
        draws = [total for release in plan for total in wall.release(lambda rows: {}, release).total.values()]
        correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
        assert np.abs(correlations).max() < 5.5 / math.sqrt(count)


# --- integers -----------------------------------------------------------------------------------------------


@pytest.mark.guarantees("noise")
@kills("low bits", "noise added in floating point, off the grid", "1.0-location")
@edit(
    "core/wall.py",
    "self.__grids[step][name].units(ints) for",
    "self.__grids[step][name].units(ints) + np.random.default_rng().normal(0.0, 1e-6, ints.shape) for",
)
@EVERY_MODEL
@pytest.mark.parametrize("noise", [0.0, 1e-3, 1.0, 1e6])
def test_a_release_is_an_exact_multiple_of_its_grid(case: Case, noise: float) -> None:
    matrix = case.records(np.random.default_rng(1), 20)
    plan = case.plan(noise=noise)
    [released] = case.run(matrix, plan)
    grids = grids_of(plan.releases[0], None)
    for name, total in released.total.items():
        assert math.frexp(grids[name].step)[0] == 0.5  # a power of two, so that the division is exact
        assert total.dtype == np.float64
        for value in total.ravel():
            assert (Fraction(float(value)) / Fraction(grids[name].step)).denominator == 1


@pytest.mark.parametrize("values", [(0.0, 1.0), (2.0**20, 2.0**20 / 3)])
def test_low_bits_tell_nothing(values: tuple[float, float]) -> None:
    """Share of releases on the lattice of 2^-k, two sums against each other, k = 8..60 (Mironov 2012).

    20,000 draws on secure noise; exact two-sample test on the counts, 53 of them: p > 1e-8 each.
    """
    count, bound = 20_000, 2.0**21
    shares = []
    for value in values:
        plan = Plan([Release({"a": Block((count,), bound * math.sqrt(count))}, Mechanism(FullBatch(), 1e-5))])
        wall: Wall[Any] = Wall(table(np.zeros((1, 1))), plan)
        released = wall.release(constant_query(value, count), plan.releases[0]).total["a"]
        scaled = [np.ldexp(released, k) for k in range(-8, 61)]
        shares.append([int((s == np.rint(s)).sum()) for s in scaled])
    for one, other in zip(*shares, strict=True):
        result = scipy.stats.fisher_exact([[one, count - one], [other, count - other]])
        assert result.pvalue > 1e-8


def test_a_sum_beyond_its_room_wraps_as_a_function_of_the_noisy_sum() -> None:
    """(x + z) mod 2⁶⁴ is the same for all x that differ by 2⁶⁴: post-processing, whatever the order of the adding."""
    plan = plain(noise=1.0)
    release = plan.releases[0]
    grid = grids_of(release, None)["a"]
    empty: Wall[Any] = Wall(Nobody(), plan, noise=InsecureNoise(1))
    noise = in_steps(empty.release(lambda rows: {}, release), release)

    class Block64:
        """A contribution whose integer sum is given, far beyond any honest one."""

        def __init__(self, total: int, num_units: int) -> None:
            self.total, self.num_units = total if num_units else 0, num_units

        def of_block(self, block: Any, num_rows: int) -> Any:
            return self

        def norms(self) -> Any:
            return np.zeros(self.num_units)

        def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
            out += np.array([self.total], dtype=np.int64)

    for total in (2**63 - 1, -(2**63), 2**62, 2**63 - 1 - int(abs(noise["a"][0]))):
        wall: Wall[Any] = Wall(table(np.zeros((1, 1))), plan, noise=InsecureNoise(1))
        released = wall.release(lambda rows, total=total: {"a": Block64(total, len(rows))}, release)
        expected = (total + int(noise["a"][0]) + 2**63) % 2**64 - 2**63
        assert released.total["a"][0] == float(expected) * grid.step


def test_too_many_units_for_the_integers_are_refused_before_the_run() -> None:
    def start(n_units: Any) -> None:
        Wall(table(np.zeros((1, 1))), plain(), n_units=n_units)

    for fits in (None, 1, 10**6, 2**40):
        start(fits)
    for too_many in (2**46, 2**53):
        with pytest.raises(ParameterError, match="n_units"):
            start(too_many)


@kills("sums", "no room for the sum asked of the grid")
@edit(
    "core/grids.py",
    "max(std * share / _NOISE_STEPS, bound * capacity / 2.0**62)",
    "std * share / _NOISE_STEPS or bound * 2.0**-62",
)
@each("noise", [0.0, 1e-9, 1.0, 1e12])
@each("bound", [2.0**-400, 1e-9, 1.0, 1e9, 2.0**400])
@each("n_units", [None, 10**9, 2**40])
def test_the_grid_leaves_room_and_resolution(noise: float, bound: float, n_units: int | None) -> None:
    """Sums of the public number of units, four times over, plus the largest noise stay below 2⁶³."""
    release = plain(bound=bound, noise=noise).releases[0]
    grid = grids_of(release, n_units)["a"]
    units = 4 * n_units if n_units else 2**24
    assert units * Fraction(bound) / Fraction(grid.step) <= 2**62 * (1 + Fraction(1, 2**40))
    assert release.noise_std("a") / grid.step <= 2**34 * (1 + 1e-9)
    assert grid.step <= max(release.noise_std("a") * 2.0**-32, bound * 2.0**-15)


@kills("sampler", "every chunk meets the same random words")
@edit("core/clipped_sums.py", "draw(start, chunk.num_units), start + chunk", "draw(0, chunk.num_units), start + chunk")
def test_sums_do_not_depend_on_chunks() -> None:
    rng = np.random.default_rng(3)
    case = CASES[1]
    matrix = case.records(rng, 300)
    for sampler in (FullBatch(), Poisson(0.3), FixedSize(100, 300)):
        plan = case.plan(sampler, steps=2)
        runs = [case.run(matrix, plan, source=Table(matrix, chunk=chunk)) for chunk in (1, 7, 300, 1000)]
        for run in runs[1:]:
            for one, other in zip(runs[0], run, strict=True):
                assert all(np.array_equal(one.total[name], other.total[name]) for name in one.total)


# --- clipping -----------------------------------------------------------------------------------------------


def test_a_record_within_its_bounds_is_not_touched() -> None:
    """No clip weight, no margin: the sum of exactly representable rows is exact."""
    rows = np.array([[0.5, 0.25, -0.125], [0.0, 0.5, 0.5]])
    plan = plain(size=D, noise=0.0)
    wall: Wall[Any] = Wall(table(rows), plan)
    released = wall.release(lambda batch: {"a": Rows(batch)}, plan.releases[0])
    assert np.array_equal(released.total["a"], rows.sum(axis=0))


def test_clipping_is_by_the_whole_norm_and_keeps_the_direction() -> None:
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((50, D)) * 10.0 ** rng.uniform(-2, 3, (50, 1))
    plan = plain(size=D, noise=0.0, bound=1.3)
    wall: Wall[Any] = Wall(table(rows), plan)
    released = wall.release(lambda batch: {"a": Rows(batch)}, plan.releases[0])
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    expected = (rows * np.minimum(1.0, 1.3 / norm)).sum(axis=0)
    np.testing.assert_allclose(released.total["a"], expected, atol=50 * 1.3 * 2e-6)


def test_joint_clipping_trades_between_blocks() -> None:
    """With one block near zero the other may fill the whole budget: C_b/w_b, not C_b."""
    blocks = {"a": Block((1,), 1.0), "b": Block((1,), 1.0)}
    for a, b, expected in [(10.0, 0.0, (math.sqrt(2), 0.0)), (10.0, 10.0, (1.0, 1.0)), (0.3, 0.4, (0.3, 0.4))]:
        release = Release(blocks, Mechanism(FullBatch(), 0.0), clipping="joint")
        wall: Wall[Any] = Wall(table(np.zeros((1, 1))), Plan([release]))
        values = {"a": a, "b": b}
        query = lambda rows, of=values: {name: Rows(np.full((len(rows), 1), of[name])) for name in of}  # noqa: E731
        total = wall.release(query, release).total
        np.testing.assert_allclose([total["a"][0], total["b"][0]], expected, rtol=2e-6)


def test_persons_are_drawn_whole() -> None:
    """Poisson over persons: each is in with all its rows or not at all, at rate q per person."""
    person = np.repeat(np.arange(200), 3)
    rows = np.repeat(np.eye(200) * 0.2, 3, axis=0)
    release = Release({"a": Block((200,), 1.0)}, Mechanism(Poisson(0.5), 0.0))
    wall: Wall[Any] = Wall(Table(rows, person, chunk=11), Plan([release]), noise=InsecureNoise(4))
    total = wall.release(lambda batch: {"a": Rows(batch)}, release).total["a"]
    drawn = total > 0
    np.testing.assert_allclose(total[drawn], 0.6, rtol=1e-8)
    assert 65 <= drawn.sum() <= 135  # 100 ± 5 sigma


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.guarantees("silence")
@kills("errors", "what fails whatever the data are taken for a unit's own failure")
@edit("core/clipped_sums.py", "            if not asked:", "            if False:")
@pytest.mark.parametrize(
    "query",
    [
        lambda rows: 1 / 0,
        lambda rows: {},
        lambda rows: None,
        lambda rows: {"a": Rows(np.zeros((len(rows), D + 1)))},
        lambda rows: {"a": Rows(np.zeros((len(rows) + 1, D)))},
        lambda rows: {"a": "text"},
        lambda rows: (_ for _ in ()).throw(BufferError("x")),
        lambda rows: (_ for _ in ()).throw(RecursionError("x")),
    ],
)
def test_every_failure_is_the_same_error(query: Any) -> None:
    plan = plain(size=D)
    wall: Wall[Any] = Wall(table(np.ones((2, D))), plan)
    with pytest.raises(PrivateComputationError) as caught:
        wall.release(query, plan.releases[0])
    assert str(caught.value) == "a computation behind the wall failed; its charge stands and its reason stays private."
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_partial_queries_are_what_the_loop_sends() -> None:
    """The wall asks the model for the release's blocks only."""
    model = Location()
    release = Release({"pull": model.blocks["pull"]}, Mechanism(FullBatch(), 0.0))
    wall: Wall[Any] = Wall(table(np.zeros((3, D))), Plan([release]))
    released = wall.release(partial(model.e_step, np.full(D, 0.1), blocks=release.asked), release)
    assert set(released.total) == {"pull"}
    np.testing.assert_allclose(released.total["pull"], -0.3, rtol=1e-8)


# --- a unit's own failure -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fragile(Location):
    """Fails on any batch with a row whose first number is 7, in the E-step, a norm or a sum."""

    place: str = "e_step"

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        hit = bool((batch[:, 0] == 7).any())
        if hit and self.place == "e_step":
            raise BufferError("a secret")
        made = super().e_step(q, batch, blocks)
        fails = {"norms_fail": hit and self.place == "norms", "sums_fail": hit and self.place == "sum"}
        return {name: FragileRows(part.values, **fails) for name, part in made.items()}  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class FragileRows(Rows):
    norms_fail: bool = False
    sums_fail: bool = False

    def norms(self) -> Any:
        if self.norms_fail:
            raise RuntimeError("a secret")
        return super().norms()

    def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
        super().accumulate(weights, grid, out)
        if self.sums_fail:
            raise RuntimeError("a secret")


@pytest.mark.guarantees("no failing unit")
@kills("errors", "a unit that breaks off leaves what it had added")
@edit("core/clipped_sums.py", "            added = self._added(batch)\n", "            self._added(batch, sums)\n")
@edit(
    "core/clipped_sums.py",
    "        for name, (rows, total) in added.items():\n            sums[name][rows] += total\n",
    "",
)
@edit("core/clipped_sums.py", "def _added(self, batch: ChunkOfUnits[Batch])", "def _added(self, batch, sums=None)")
@edit("core/clipped_sums.py", "sums: dict[str, tuple[Any, Ints]] = {}", "added = {}")
@edit(
    "core/clipped_sums.py",
    "            sums[name] = rows_of_sum, total\n",
    "            added[name] = rows_of_sum, total\n",
)
@edit("core/clipped_sums.py", "self.grids[name], total)", "self.grids[name], total if sums is None else sums[name])")
@kills("errors", "a unit that cannot be computed takes those behind it along")
@edit("core/clipped_sums.py", "                    self._add(", "                    if not self._add(")
@edit(
    "core/clipped_sums.py",
    "np.arange(batch.num_units) == n), sums)\n",
    "np.arange(batch.num_units) == n), sums):\n                        break\n",
)
@kills("errors", "a unit that cannot be computed takes its batch along")
@edit("core/clipped_sums.py", "for n in range(batch.num_units):  # A unit", "for n in range(0):  # A unit")
@kills("errors", "a unit that cannot be computed ends the release")
@edit(
    "core/clipped_sums.py",
    "                raise\n            return False\n",
    "                raise\n            raise\n",
)
@pytest.mark.parametrize(
    ("place", "persons"), [("e_step", False), ("norms", False), ("sum", False), ("e_step", True), ("norms", True)]
)
def test_a_unit_that_cannot_be_computed_is_zero_and_touches_no_other(place: str, persons: bool) -> None:
    """One such row, or several, in whatever place: the sum is that of the other units, and nothing else is told."""
    rng, model = np.random.default_rng(8), Fragile(place=place)
    matrix = rng.standard_normal((9, D))
    group = np.array([0, 1, 1, 2, 3, 3, 4, 5, 5]) if persons else np.arange(9)
    release = Release(model.blocks, Mechanism(FullBatch(), 1.0))

    def total(rows: np.ndarray) -> Any:
        held = table(matrix[rows], group[rows] if persons else None)
        wall: Wall[Any] = Wall(held, Plan([release]), noise=InsecureNoise(1))
        query = partial(Location(model.scale).e_step, np.zeros(D), blocks=release.asked)
        if (matrix[rows][:, 0] == 7).any():
            query = partial(model.e_step, np.zeros(D), blocks=release.asked)
        return in_steps(wall.release(query, release), release)

    for bad in ([0], [8], [2, 4], [0, 3, 6], list(range(9))):
        kept = ~np.isin(group, group[bad])
        matrix[bad, 0] = 7
        found, expected = total(np.arange(9)), total(np.flatnonzero(kept))
        assert all(np.array_equal(found[name], expected[name]) for name in found)
        matrix = rng.standard_normal((9, D))


class Reaching(Rows):
    """Rows whose sum fails for a unit that holds a 7, after it has begun."""

    def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
        out += 1
        if (self.values[np.flatnonzero(weights)] == 7).any():
            raise IndexError("a secret")
        out -= 1
        super().accumulate(weights, grid, out)


@pytest.mark.guarantees("no failing unit")
def test_a_sum_that_breaks_off_adds_nothing_of_it() -> None:
    matrix = np.random.default_rng(2).standard_normal((9, D))
    plan = plain(size=D)

    def total(rows: np.ndarray) -> Any:
        wall: Wall[Any] = Wall(table(rows), plan, noise=InsecureNoise(1))
        return wall.release(lambda rows: {"a": Reaching(rows)}, plan.releases[0]).total["a"]

    bad = matrix.copy()
    bad[4] = 7
    assert np.array_equal(total(bad), total(np.delete(matrix, 4, axis=0)))
    assert np.array_equal(total(np.full((3, D), 7.0)), total(np.zeros((0, D))))


@pytest.mark.guarantees("failures")
@pytest.mark.parametrize("faulty", [0, 1, 5])
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.2)])
def test_a_model_that_knows_no_empty_batch_fails_whatever_the_data_are(sampler: Any, faulty: int) -> None:
    """So that no failure tells who was drawn: neither a faulty row nor the batch decides."""

    def query(rows: Any) -> Any:
        if np.isnan(rows).any():
            raise ValueError
        return {"a": Rows(rows / rows.max())}  # Fails where there is no row.

    plan = Plan([Release({"a": Block((D,), 1.0)}, Mechanism(sampler, 1.0))])
    matrix = np.abs(np.random.default_rng(3).standard_normal((5, D)))
    matrix[:faulty] = np.nan
    for seed in range(20):
        wall: Wall[Any] = Wall(table(matrix), plan, noise=InsecureNoise(seed))
        with pytest.raises(PrivateComputationError):
            wall.release(query, plan.releases[0])


class PanicError(BaseException):
    """What extensions in other languages raise: no Exception."""


@pytest.mark.guarantees("silence")
@kills("errors", "what extensions raise comes out")
@edit(
    "core/clipped_sums.py",
    "except BaseException as error:\n            if isinstance(error, _ENDS):\n                raise\n",
    "except Exception:\n",
)
@pytest.mark.parametrize("error", [PanicError, BufferError, RecursionError, GeneratorExit])
def test_whatever_a_computation_raises_ends_behind_the_wall(error: type[BaseException]) -> None:
    def query(rows: Any) -> Any:
        if len(rows) and (rows[:, 0] == 7).any():
            raise error("income 123456")
        return {"a": Rows(rows)}

    plan, matrix = plain(size=D), np.zeros((4, D))
    matrix[1, 0] = 7
    wall: Wall[Any] = Wall(table(matrix), plan)
    if error is GeneratorExit:
        with pytest.raises(GeneratorExit) as caught:
            wall.release(query, plan.releases[0])
        assert not caught.value.args
    else:
        wall.release(query, plan.releases[0])


@pytest.mark.guarantees("silence")
def test_a_shortage_of_memory_ends_a_release_with_one_sentence() -> None:
    """Nothing goes on unit by unit, and nothing of the error comes out."""
    calls = 0

    def query(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if len(rows):
            raise MemoryError("income 123456")
        return {"a": Rows(rows)}

    plan = plain(size=D)
    wall: Wall[Any] = Wall(table(np.zeros((40, D))), plan)
    with pytest.raises(OutOfMemoryError, match="there is not enough memory for a computation on the rows") as caught:
        wall.release(query, plan.releases[0])
    assert calls == 2
    assert "123456" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert isinstance(caught.value, MemoryError)


@pytest.mark.guarantees("silence")
@kills("leaks", "who stops a fit sees what was going on")
@edit(
    "core/wall.py",
    "end = next((kind() for kind in STOPS if isinstance(error, kind)), end)",
    "if isinstance(error, STOPS):\n            raise",
)
def test_who_stops_a_fit_sees_nothing_of_what_was_going_on() -> None:
    """Ctrl-C while units are gone through one by one: the interruption knows no error of a unit."""
    calls = 0

    def query(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError("income 123456")
        if calls == 3:
            raise KeyboardInterrupt("income 123456")
        return {"a": Rows(rows)}

    plan = plain(size=D)
    wall: Wall[Any] = Wall(table(np.ones((4, D))), plan)
    with pytest.raises(KeyboardInterrupt) as caught:
        wall.release(query, plan.releases[0])
    assert caught.value.args == ()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.guarantees("no leak by E-step")
@kills("leaks", "who stops a fit while noise is drawn holds the sums")
@edit("core/wall.py", "    except BaseException as error:\n        end", "    except Exception as error:\n        end")
def test_who_stops_a_fit_while_noise_is_drawn_holds_no_sum() -> None:
    class Stopped(InsecureNoise):
        def gaussian(self, *args: Any, **options: Any) -> Any:
            raise KeyboardInterrupt

    plan = plain(size=D)
    wall: Wall[Any] = Wall(table(np.ones((4, D))), plan, noise=Stopped(1))
    with pytest.raises(KeyboardInterrupt) as caught:
        wall.release(lambda rows: {"a": Rows(rows)}, plan.releases[0])
    trace, held = caught.tb, []
    while trace is not None:
        held += [] if trace.tb_frame.f_code.co_filename == __file__ else [*trace.tb_frame.f_locals.values()]
        trace = trace.tb_next
    assert held
    parts = [value for one in held for value in (one.values() if isinstance(one, dict) else [one])]
    assert not any(isinstance(value, np.ndarray) for value in parts)


@dataclasses.dataclass(frozen=True)
class Remembers:
    """A model that writes what it sees into itself and into q."""

    seen: list[Any] = dataclasses.field(default_factory=list)
    blocks: Any = dataclasses.field(default_factory=lambda: {"a": Block((D,), 1.0)})

    def init(self, rng: np.random.Generator) -> Any:
        return np.zeros(D)

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        self.seen.append(batch.sum(axis=0))
        q += batch.sum(axis=0)
        return {"a": Rows(batch)}

    def m_step(self, s: Estimate, q: Any) -> Any:
        return q


@pytest.mark.guarantees("no leak by E-step")
@kills("leaks", "rows meet the very model and q that the M-step reads")
@edit(
    "core/loop.py",
    "deepcopy((model, e_step_q(model, domains.checked(q), release.asked)))",
    "(model, domains.checked(q))",
)
def test_what_an_e_step_writes_into_q_or_the_model_reaches_nobody() -> None:
    model, plan = Remembers(), Plan([Release({"a": Block((D,), 1.0)}, Mechanism(FullBatch(), 1.0))] * 2)
    wall: Wall[Any] = Wall(table(np.ones((4, D))), plan)
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
    assert model.seen == []
    np.testing.assert_array_equal(q, 0.0)


@pytest.mark.guarantees("no leak by E-step")
@kills("records", "rows that an E-step writes into are those of the next release")
@edit("core/clipped_sums.py", "rows if is_shipped(self._model) else _lent(rows)", "rows")
@kills("records", "arrays that an E-step writes into are those of the next release")
@edit("core/clipped_sums.py", "    view.flags.writeable = False\n", "")
def test_what_an_e_step_writes_into_rows_reaches_no_other_unit_and_no_later_release() -> None:
    """Chunks are views of what a source holds; the second query begins, fails, and is asked about each unit alone."""

    def spoils(rows: Any) -> Any:
        found = Rows(rows.csr().toarray())
        rows.counts[:] = 7.0
        return {"a": found}

    def breaks_off(rows: Any) -> Any:
        rows.counts[:] *= 2.0
        if rows.num_rows > 1:
            raise ValueError
        return {"a": Rows(rows.csr().toarray())}

    def spoils_array(rows: Any) -> Any:
        found = Rows(rows.copy())
        with suppress(ValueError):
            rows[:] = 7.0
        return {"a": found}

    matrix = np.arange(1.0, 4.0 * D + 1).reshape(4, D)
    plan = plain(size=D, bound=1e6, noise=0.0, steps=2)
    for query, source, factor in (
        (spoils, BagOfWords(matrix), 1.0),
        (breaks_off, BagOfWords(matrix), 2.0),
        (spoils_array, table(matrix.copy()), 1.0),
    ):
        wall: Wall[Any] = Wall(source, plan)
        for release in plan:
            np.testing.assert_allclose(wall.release(query, release).total["a"], factor * matrix.sum(axis=0), rtol=1e-6)


@pytest.mark.guarantees("silence")
@kills("leaks", "log records pass the wall")
@edit("core/wall.py", "with silence(logs=True):", "with silence():")
def test_no_log_record_leaves_a_computation(caplog: pytest.LogCaptureFixture) -> None:
    def query(rows: Any) -> Any:
        logging.getLogger("model").error("income %s", rows.sum())
        return {"a": Rows(rows)}

    plan = plain(size=D)
    with caplog.at_level(logging.DEBUG):
        Wall(table(np.ones((4, D))), plan).release(query, plan.releases[0])
        assert not caplog.records
        logging.getLogger("model").error("public")
    assert [record.getMessage() for record in caplog.records] == ["public"]


class Slow(tuple):  # type: ignore[type-arg]
    """Releases that take their time to be looked up, so that threads meet there."""

    def __getitem__(self, place: Any) -> Any:
        time.sleep(0.01)
        return super().__getitem__(place)


@kills("crashes", "threads that race for a release")
@edit("core/wall.py", "        with self.__turn:\n", "        if True:\n")
def test_threads_that_race_for_a_release_get_it_once() -> None:
    plan = plain(size=1)
    object.__setattr__(plan, "releases", Slow(plan.releases))
    wall: Wall[Any] = Wall(table(np.zeros((0, 1))), plan, noise=InsecureNoise(0))
    release, granted = tuple.__getitem__(plan.releases, 0), []

    def ask() -> None:
        with suppress(PrivacyError):
            granted.append(wall.release(lambda rows: {"a": Rows(rows)}, release))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 1
