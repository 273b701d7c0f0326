"""What a person adds to moments of windows, and the systems that are read from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.core import loop
from dpvb.core.blocks import Block, Grid
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.sequences.content import Points
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.sequences import linear_dynamical
from dpvb.models.sequences.linear_dynamical import LinearDynamical, LinearPosterior, Scales, WindowGrams

D = 2


def grams(*sequences: Any, length: int = 2, longest: int = 20, starts: bool = False, units: Any = None) -> WindowGrams:
    rows = Points(D).rows([*sequences])
    made = WindowGrams(rows.indptr, rows.value_td, length, longest, 0.5, starts)
    made = made.of_block(Block((length * D + 1,) * 2, 1.0, "psd"), len(sequences))
    return made if units is None else made.grouped(np.array(units), max(units) + 1)


def mean_moments(sequences: Any, length: int, longest: int, starts: bool) -> Floats:
    """(1/M) Σ y yᵀ as it is defined."""
    found = []
    for one in sequences:
        points = np.array(one, dtype=np.float64).reshape(-1, D)[:longest]
        windows = [points[t : t + length].ravel() for t in range(len(points) - length + 1)]
        found += [np.append(y, 0.5) for y in (windows[:1] if starts else windows) if np.isfinite(y).all()]
    width = length * D + 1
    return sum((np.outer(y, y) for y in found), np.zeros((width, width))) / max(len(found), 1)


def summed(made: WindowGrams, weights: Any, size: int) -> Floats:
    """The packed sum in units of 2⁻³⁰."""
    out = np.zeros(size * (size + 1) // 2, dtype=np.int64)
    made.accumulate(np.array(weights, dtype=np.float64), Grid(2.0**-30, 64.0), out)
    return out * 2.0**-30


NUMBER = st.one_of(st.floats(-4, 4, width=32), st.just(math.nan))
SEQUENCES = st.lists(st.lists(st.tuples(NUMBER, NUMBER), max_size=7), min_size=1, max_size=5)


@pytest.mark.guarantees("sequence counts")
@kills("norms", "moments declared by a person's first sequence alone")
@edit(
    "models/sequences/passes_numba.py",
    "out_u[u] = 0.0\n        own = order[first[u] : first[u + 1]]",
    "out_u[u] = 0.0\n        own = order[first[u] : first[u] + 1]",
)
@kills("norms", "entries beside the diagonal of a person's moments counted once")
@edit("models/sequences/passes_numba.py", "if i == j else 2.0 * share * share", "if i == j else share * share")
@settings(max_examples=60, deadline=None)
@given(SEQUENCES, st.integers(1, 3), st.integers(3, 6), st.booleans(), st.integers(1, 3))
def test_norms_and_sums_are_those_of_the_definition(
    sequences: Any, length: int, longest: int, starts: bool, persons: int
) -> None:
    """Of every person, whatever is missing; the sum is that of the lower triangle's entries, none of them longer."""
    units = [place % persons for place in range(len(sequences))]
    made = grams(*sequences, length=length, longest=longest, starts=starts, units=units)
    norm_u, size = made.norms(), length * D + 1
    for unit in range(max(units) + 1):
        own = [one for one, at in zip(sequences, units, strict=True) if at == unit]
        truth = mean_moments(own, length, longest, starts)
        exact = float(np.linalg.norm(truth))
        assert exact * (1 - 1e-12) <= norm_u[unit] <= exact * (1 + 1e-5) + 1e-12
        found = summed(made, np.eye(max(units) + 1)[unit], size)
        row, column = np.triu_indices(size, 1)
        wanted = np.concatenate([np.diagonal(truth), truth[row, column]])
        np.testing.assert_allclose(found, wanted, atol=3e-9)
        assert np.linalg.norm(np.concatenate([found, found[size:]])) <= norm_u[unit] * (1 + 1e-15)


@pytest.mark.guarantees("sequence moments")
def test_a_constant_sequence_attains_the_norm_that_is_declared() -> None:
    """Any point of the ranges: the mean is one outer product, of norm ‖y‖² ≤ W + c²."""
    model = LinearDynamical(D, 2, 3, max_length=9, reach=math.sqrt(2.0))
    q = model.init(np.random.default_rng(0))
    rows = Points(D, -1.0, 1.0).rows([[[1.0, -1.0]] * 9, [[1.0, 1.0], [-1.0, 1.0]] * 4])
    first = {name: block for name, block in model.blocks.items() if block.phase == "first"}
    for name, made in model.e_step(q, rows, first).items():
        constant, turning_ = made.norms()
        assert constant == pytest.approx(first[name].bound, rel=1e-12)
        assert turning_ < constant or name == "lengths"
    windows = model.e_step(q, rows, {name: model.blocks[name] for name in ("windows", "starts")})
    for made in windows.values():
        assert made.norms()[0] == pytest.approx(3 / (3 * D) + 0.3**2, rel=1e-12)


def test_a_window_crosses_no_end_and_nothing_missing_or_beyond_the_cap() -> None:
    one, gap = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [math.nan, 0.0]
    whole = summed(grams(one), [1.0], 5)
    for other in ([[*one, gap, one[0]]], [[*one, gap], [one[2]]], [one, [gap, one[0], gap]]):
        made = grams(*other, units=[0] * len(other))
        np.testing.assert_array_equal(summed(made, [1.0], 5), whole)
    np.testing.assert_array_equal(summed(grams([*one, [9.0, 9.0]], longest=3), [1.0], 5), whole)
    assert not summed(grams([gap, *one], starts=True), [1.0], 5).any()
    for huge in ([[1e200, 1.0], [1.0, 1.0]], [[1e300, -1e300], [1e300, 1e300]]):
        assert not grams(huge).norms()[0] < 1e300  # The wall adds nothing of what has no number for a norm.


@pytest.mark.guarantees("sequence moments")
def test_persons_are_one_unit_and_the_order_of_units_changes_no_bit() -> None:
    rng = np.random.default_rng(1)
    sequences = [rng.uniform(-1, 1, (length, D)) for length in (4, 7, 2, 1, 5)]
    made = grams(*sequences, units=[0, 1, 0, 1, 2])
    order = [4, 1, 3, 0, 2]
    other = grams(*(sequences[place] for place in order), units=[2, 1, 1, 0, 0])
    for weights in np.eye(3):
        np.testing.assert_array_equal(summed(made, weights, 5), summed(other, weights, 5))
    np.testing.assert_array_equal(made.norms(), other.norms())
    alone = grams(sequences[1], sequences[3], units=[0, 0])
    assert alone.norms()[0] == made.norms()[1]


def turning(rng: np.random.Generator, number: int, length: int) -> Floats:
    """A state that turns, seen through noise, in units where points are well within 1."""
    angle, x_ntd = 0.5, np.empty((number, length, D))
    turn = 0.95 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    state = rng.standard_normal((number, 2))
    for t in range(length):
        x_ntd[:, t] = 0.1 * state @ np.array([[1.0, 0.5], [0.0, 1.0]]) + 0.03 * rng.standard_normal((number, D)) + 0.2
        state = state @ turn.T + math.sqrt(1 - 0.95**2) * rng.standard_normal((number, 2))
    return x_ntd


def fitted(model: LinearDynamical, numbers: Points, x: Any, noise: float = 0.0) -> LinearPosterior:
    plan = phased(model.blocks, FullBatch(), [], shares=model.schedule.budget).scaled(noise)
    wall: Wall[Any] = Wall(numbers.sequences(x), plan)
    return loop.fit(model, wall, plan, rho=model.schedule.rho, rng=np.random.default_rng(0))[0]


def test_without_noise_the_system_is_found_and_declared_ranges_are_of_no_account() -> None:
    """Wider ranges, and a shift: the same scales, system and density in the columns' own units."""
    rng = np.random.default_rng(2)
    x, new = turning(rng, 3000, 12), turning(rng, 300, 12)
    scores, systems = [], []
    for low, high in ((-1.0, 1.0), (-40.0, 10.0)):
        numbers = Points(D, low, high)
        model = LinearDynamical(D, 2, 4, clip_scale=2.0, max_length=12, reach=numbers.reach)
        q = fitted(model, numbers, x)
        np.testing.assert_allclose(
            q.mean_d * model.reach * numbers.unit_d + numbers.centre_d, x.mean(axis=(0, 1)), atol=1e-6
        )
        np.testing.assert_allclose(q.scale_d * model.reach * numbers.unit_d, x.std(axis=(0, 1)), rtol=1e-6)
        rows = numbers.rows(new)
        scores.append(model.score(q, rows) - 12 * np.log(numbers.unit_d).sum())
        systems.append(q.system)
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3)
    for system in systems:
        values = np.linalg.eigvals(system.step_kk)
        np.testing.assert_allclose(np.abs(values), 0.95, atol=0.02)
        np.testing.assert_allclose(np.sort(np.angle(values)), [-0.5, 0.5], atol=0.03)
        np.testing.assert_allclose(np.sqrt(system.noise_d) * x.std(axis=(0, 1)), 0.03, atol=0.004)


def test_a_score_is_a_sequences_own_and_what_is_missing_costs_nothing() -> None:
    rng = np.random.default_rng(3)
    numbers = Points(D, -1.0, 1.0)
    model = LinearDynamical(D, 2, 3, max_length=8, reach=numbers.reach)
    q = fitted(model, numbers, turning(rng, 200, 8), noise=1.0)
    parts = [turning(rng, 1, length)[0] for length in (1, 8, 3, 30, 5)]
    parts[2][1, 0] = math.nan
    together = model.score(q, numbers.rows([*parts, np.empty((0, D)), np.full((4, D), math.nan)]))
    alone = [model.score(q, numbers.rows([one]))[0] for one in parts]
    assert together.tolist() == [*alone, 0.0, 0.0]
    longer = [*parts[0], [math.nan, math.nan]]
    assert model.score(q, numbers.rows([longer]))[0] == pytest.approx(alone[0], rel=1e-12)


@pytest.mark.usefixtures("few_iterations")
def test_noise_alone_still_makes_a_system() -> None:
    """Of nobody, of one, and of many with far too much noise."""
    numbers = Points(D, 0.0, 1.0)
    model = LinearDynamical(D, 2, 3, max_length=6, reach=numbers.reach)
    rng = np.random.default_rng(4)
    for x, noise in (([], 5.0), ([], 0.0), (rng.random((1, 6, D)), 50.0), (rng.random((300, 6, D)), 1e6)):
        q = fitted(model, numbers, x, noise)
        assert all(np.isfinite(values).all() for values in vars(q.system).values())
        assert np.isfinite(model.score(q, numbers.rows(rng.random((2, 6, D))))).all()


def test_scales_that_are_released_first_spend_a_tenth() -> None:
    """Σ 1/σ² of both releases, and the widths of the blocks."""
    model = LinearDynamical(3, 2, 5)
    plan = phased(model.blocks, FullBatch(), [], shares=model.schedule.budget)
    first, second = (1 / release.mechanism.noise_multiplier**2 for release in plan)
    assert first / (first + second) == pytest.approx(0.1)
    assert {name: block.shape for name, block in model.blocks.items()} == {
        "points": (4, 4),
        "cells": (3 * 128,),
        "lengths": (6,),
        "windows": (16, 16),
        "starts": (16, 16),
    }
    assert "starts" not in LinearDynamical(3, 2, 5, max_length=5).blocks


def test_cells_and_lengths_are_those_of_the_definition() -> None:
    """Of a person of two sequences, with a number missing, a number at an end, and points beyond the cap."""
    model = LinearDynamical(D, 2, 2, max_length=4, reach=math.sqrt(2.0))
    sequences = [[[-1.0, 1.0], [0.0, math.nan], [0.5, 1.0]], [[0.25, 0.25]] * 9]
    rows = Points(D, -1.0, 1.0).rows(sequences)
    blocks = {name: model.blocks[name] for name in ("points", "cells", "lengths")}
    found = {
        name: one.grouped(np.array([0, 0]), 1) for name, one in model.e_step(model.init(None), rows, blocks).items()
    }  # type: ignore[arg-type, attr-defined]
    cells = np.zeros((D, 128))
    for d, number in ((0, -1.0), (1, 1.0), (0, 0.0), (0, 0.5), (1, 1.0), *[(0, 0.25), (1, 0.25)] * 4):
        cells[d, min(int((number + 1) * 64), 127)] += 1 / 13
    for name, truth in (("cells", cells.ravel()), ("lengths", np.array([0.0, 1.0]))):
        out = np.zeros(blocks[name].shape, dtype=np.int64)
        found[name].accumulate(np.ones(1), Grid(2.0**-30, 64.0), out)
        np.testing.assert_allclose(out * 2.0**-30, truth, atol=1e-8)
        assert found[name].norms()[0] == pytest.approx(float(np.linalg.norm(truth)), rel=1e-6)


@pytest.mark.parametrize("wide", [1.0, 40.0])
def test_cells_tell_scales_where_moments_drown(wide: float) -> None:
    """Noise of 40 on counts of 4,000 people: within a quarter, for ranges that are forty times as wide, too."""
    rng = np.random.default_rng(5)
    x_td = np.array([0.1, -0.2]) / wide + np.array([0.4, 0.25]) / wide * rng.standard_normal((4000, 2))
    counts = np.bincount(linear_dynamical.cell_codes(np.clip(x_td, -1, 1)), minlength=256).reshape(2, 128)
    cells = Scales.of_cells(counts + 40.0 * rng.standard_normal(counts.shape), 40.0)
    drowned = Scales(rng.standard_normal(2), rng.standard_normal(2), np.ones(2), np.ones(2))
    mean_d, scale_d = drowned.beside(cells)
    truth = np.clip(x_td, -1, 1)
    np.testing.assert_allclose(scale_d, truth.std(axis=0), rtol=0.25)
    np.testing.assert_allclose(mean_d, truth.mean(axis=0), atol=0.5 * float(truth.std()))
    exact = Scales(np.array([0.5, 0.1]), np.array([1e-8, 0.25]), np.zeros(2), np.zeros(2)).beside(cells)
    np.testing.assert_array_equal(exact, [[0.5, 0.1], [1e-4, 0.5]])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_states": 0}, "n_states"),
        ({"n_states": 9}, "n_states must be at most 8 with window=5"),
        ({"window": 1}, "window"),
        ({"window": 300, "max_length": 400}, "window must be at most 256 with 2 columns, got 300"),
        ({"max_length": 4}, "max_length"),
        ({"clip_scale": 0.0}, "clip_scale"),
        (
            {"n_features": 40, "window": 9, "n_states": 40},
            "window must be shorter, or n_states smaller, with 40 columns, window=9",
        ),
    ],
)
def test_a_public_mistake_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        LinearDynamical(**{"n_features": 2, "n_states": 2, "window": 5, **wrong})
