"""Cells and moments of numbers: what is released, its bounds, and what a fit makes of it; bits as patterns."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.core import loop
from dpvb.core.blocks import Grid
from dpvb.core.model import constant
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.sequences.content import Sequences
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.sequences.emissions import GaussianEmissions
from dpvb.models.sequences.hidden_cells import Cells, HiddenCells, start_from_cells
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.hidden_markov import HiddenMarkov
from dpvb.models.sequences.windows import Windows, em_step
from dpvb.rows import NumberRows

FINE = Grid(2.0**-40, 1e3)


def points(lengths: list[int], value_td: Floats) -> NumberRows:
    return NumberRows(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), value_td)


def released(own: Any, data: NumberRows) -> Any:
    """What a fit without noise ends with."""
    plan = phased(own.blocks, FullBatch(), (), shares=own.schedule.budget).scaled(0.0)
    wall: Wall[Any] = Wall(Sequences(data), plan)
    return loop.fit(own, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))[0]


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_every_point_lies_in_the_cell_of_its_nearest_node(columns: int) -> None:
    cells = HiddenCells(columns, 2).cells
    x_td = np.vstack([np.random.default_rng(1).uniform(-1, 1, (200, columns)), np.ones(columns), -np.ones(columns)])
    code_t, u_td = cells.placed(x_td)
    away_tv = np.abs(x_td[:, None] - cells.node_vd).max(axis=2)
    np.testing.assert_array_equal(code_t, away_tv.argmin(axis=1))
    np.testing.assert_allclose(cells.node_vd[code_t] + (u_td - 0.5) * cells.width, x_td, atol=1e-12)
    assert cells.placed(np.full((1, columns), np.nan))[0].tolist() == [-1]


def test_moments_hold_the_count_the_mean_and_the_variance_of_each_cell() -> None:
    own, rng = HiddenCells(2, 2, clip_norm=None, max_length=50), np.random.default_rng(2)
    x_td = np.clip(rng.normal(0.3, 0.2, (50, 2)), -1, 1)
    form = own.e_step(own.init(rng), points([50], x_td), own.blocks)["moments"]
    out = np.zeros(own.blocks["moments"].shape, np.int64)
    form.accumulate(np.ones(1), FINE, out)
    value_vd, code_t = own.cells.values(FINE.units(out), 0.0), own.cells.placed(x_td)[0]
    for v in np.unique(code_t):
        mine_td = x_td[code_t == v]
        np.testing.assert_allclose(value_vd[v, :2], mine_td.mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(value_vd[v, 2:], np.maximum(mine_td.var(axis=0), 1e-4), atol=1e-8)
    bare = np.setdiff1d(np.arange(len(own.cells)), code_t)
    assert np.isfinite(value_vd[bare]).all()
    even = own.cells.values(np.zeros_like(FINE.units(out)), 5.0)
    np.testing.assert_allclose(even[:, 2:], own.cells.width**2 / 12)  # where nothing was seen, an even spread


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    columns=st.integers(1, 4),
    power=st.sampled_from([0.5, 1.0]),
    seed=st.integers(0, 2**20),
)
def test_no_person_reaches_beyond_the_proven_bounds(lengths: list[int], columns: int, power: float, seed: int) -> None:
    """1, M^p and T^p √D, gaps and points outside the range among them."""
    rng = np.random.default_rng(seed)
    own = HiddenCells(columns, 2, power=power, clip_norm=None, max_length=9)
    x_td = np.where(rng.random((sum(lengths), columns)) < 0.1, np.nan, rng.uniform(-1.5, 1.5, (sum(lengths), columns)))
    whole = own.e_step(own.init(rng), points(lengths, x_td), own.blocks)
    group = np.zeros(len(lengths), np.int64)
    pairs = sum(max(long - 1, 0) for long in lengths)
    most = {"starts": 1.0, "pairs": pairs**power, "moments": sum(lengths) ** power * math.sqrt(columns)}
    for name, form in whole.items():
        person = form.grouped(group, 1)  # type: ignore[attr-defined]
        norm, out = float(person.norms()[0]), np.zeros(own.blocks[name].shape, np.int64)
        person.accumulate(np.ones(1), FINE, out)
        assert norm <= most[name] * (1 + 1e-6) + 1e-12
        assert np.linalg.norm(FINE.units(out)) <= norm
        assert norm <= (1 + 1e-5) * np.linalg.norm(FINE.units(out)) + 1e-9


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_constant_sequence_at_the_corner_of_a_cell_attains_the_bounds(columns: int) -> None:
    own = HiddenCells(columns, 2, clip_norm=None, max_length=5)
    x_td = np.full((5, columns), -1.0 + own.cells.width / 2)
    whole = own.e_step(own.init(np.random.default_rng(0)), points([5], x_td), own.blocks)
    for name, block in own.blocks.items():
        assert whole[name].norms()[0] == pytest.approx(block.bound, rel=1e-6)


@kills("errors", "a point that lacks a number counted as one in the middle")
@edit("models/sequences/hidden_cells.py", "return np.where(known_t, code_t, -1), ", "return code_t, ")
def test_a_point_that_lacks_a_number_is_a_gap() -> None:
    own, rng = HiddenCells(2, 2), np.random.default_rng(3)
    x_td = np.array([[0.1, 0.2], [np.nan, 0.5], [0.3, 0.3], [np.nan, np.nan]])
    whole = own.e_step(own.init(rng), points([3, 1], x_td), own.blocks)
    assert whole["pairs"].norms().tolist() == [0.0, 0.0]
    assert whole["moments"].norms()[1] == 0.0
    assert whole["moments"].norms()[0] > 0
    assert whole["starts"].norms()[1] == 0.0


def test_a_cloud_counts_as_its_points() -> None:
    """A step of EM on the mean and variance of points is one on the points, where all of them share their states."""
    rng = np.random.default_rng(4)
    states = GaussianEmissions(*(0.5 + rng.random((4, 2, 3))))
    x_rd, weight_1k = rng.standard_normal((6, 2)), rng.random((1, 3))
    cloud = np.hstack([x_rd.mean(axis=0), x_rd.var(axis=0)])[None]
    one, all_of = states.updated(cloud, 6 * weight_1k), states.updated(x_rd, np.repeat(weight_1k, 6, axis=0))
    for name in ("mean_dk", "weight_dk", "shape_dk", "rate_dk"):
        np.testing.assert_allclose(getattr(one, name), getattr(all_of, name), rtol=1e-12)
    for expected in (False, True):
        whole = states.log_likelihood(x_rd, expected=expected).mean(axis=0)
        np.testing.assert_allclose(states.log_likelihood(cloud, expected=expected)[0], whole, rtol=1e-12)


def test_no_iteration_over_clouds_lowers_the_likelihood() -> None:
    rng, cells = np.random.default_rng(5), Cells(1, 9)
    windows = Windows(np.hstack([np.zeros((9, 9)), rng.random((9, 1))]), 50 * rng.random((9, 9)))
    value_vd = np.hstack([cells.node_vd, np.full((9, 1), 0.01)])
    weak = GaussianEmissions(rng.standard_normal((1, 2)), *np.ones((3, 1, 2)), 1e-9, 0.0, 1e-9, 1e-9)
    chain = HiddenChain(*np.ones((2, 2)), 1 + rng.random((2, 2)), weak, 1e-9)
    logs = []
    for _ in range(30):
        found = em_step(windows, chain, value_vd, expected=False)
        chain = found.chain
        logs.append(found.log)
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(logs))


@pytest.mark.parametrize("estimate", ["posterior", "map"])
def test_a_fit_without_noise_finds_states_of_numbers(estimate: str) -> None:
    rng = np.random.default_rng(6)
    mean_kd, std_kd = np.array([[-0.5, 0.4], [0.5, -0.2]]), np.array([[0.1, 0.2], [0.2, 0.1]])
    step_kk, state_n = np.array([[0.9, 0.1], [0.2, 0.8]]), rng.integers(0, 2, 2000)
    x_ntd = np.empty((2000, 10, 2))
    for t in range(10):
        x_ntd[:, t] = rng.normal(mean_kd[state_n], std_kd[state_n])
        state_n = (rng.random(2000) >= step_kk[state_n, 0]).astype(np.int64)
    own = HiddenCells(2, 2, estimate=estimate, clip_norm=None, max_length=10)
    q = released(own, points([10] * 2000, np.clip(x_ntd, -1, 1).reshape(-1, 2)))
    shown = q.chain.emissions
    order = np.argsort(shown.mean_dk[0])
    # 20,000 points: means are known to .002, steps to .004; cells add a little.
    np.testing.assert_allclose(shown.mean_dk.T[order], mean_kd, atol=0.02)
    np.testing.assert_allclose(np.sqrt(shown.variance_dk.T[order]), std_kd, atol=0.02)
    np.testing.assert_allclose(q.chain.laws(expected=False).step_kk[np.ix_(order, order)], step_kk, atol=0.03)


def test_a_release_of_noise_alone_makes_a_model() -> None:
    """And so do counts of 0, whatever the chances of a start are."""
    own = HiddenCells(2, 3)
    plan = phased(own.blocks, FullBatch(), ()).scaled(10.0)
    wall: Wall[Any] = Wall(Sequences(points([], np.empty((0, 2)))), plan)
    q, _ = loop.fit(own, wall, plan, rho=constant(1.0), rng=np.random.default_rng(1))
    assert np.isfinite(q.chain.step_kk).all()
    assert (q.chain.emissions.variance_dk > 0).all()
    v = len(own.cells)
    bare = Windows(np.zeros((v, v + 1)), np.zeros((v, v)))
    for chance in (1.0, 1e-12):
        one = start_from_cells(bare, np.hstack([own.cells.node_vd] * 2), np.full(3, chance), own._states, 1.0)
        assert np.isfinite(one.emissions.mean_dk).all()  # type: ignore[attr-defined]


def test_more_columns_than_cells_can_hold_are_refused() -> None:
    with pytest.raises(ParameterError, match="columns must be at most 4, got 5"):
        HiddenCells(5, 2)
    with pytest.raises(ParameterError, match="power of 2 for bits, got 6"):
        HiddenMarkov(6, 2, "bernoulli").init(np.random.default_rng(0))


def test_bits_are_counted_by_their_patterns() -> None:
    """A point that lacks a bit, or has a number that is none, is a gap."""
    alphabet = HiddenMarkov(4, 2, "bernoulli").alphabet
    np.testing.assert_array_equal(alphabet.value_v, [[0, 0], [0, 1], [1, 0], [1, 1]])
    x_td = np.array([[1, 0], [0, 1], [1, 1], [np.nan, 1], [0.5, 1], [2, 0], [0, 0]])
    coded = alphabet.coded(points([7], x_td))
    assert coded.code.tolist() == [2, 1, 3, -1, -1, -1, 0]
    shown = alphabet.values(points([7], x_td))
    assert np.isnan(shown[3:6]).tolist() == [[True, False], [True, False], [True, False]]
