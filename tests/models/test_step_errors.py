"""Steps that least squares estimate from released windows: clipping, derivatives, spread and bias."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.core.blocks import Grid
from dpvb.guards.arrays import Floats
from dpvb.models.sequences import dynamics, errors, hidden_cells
from dpvb.models.sequences.dynamics import WindowSizes
from dpvb.models.sequences.errors import CellTable, ChainLaws, FreeTable, ReleasedWindows
from dpvb.models.sequences.hidden_cells import HiddenCells, HiddenCellsPosterior
from dpvb.rows import NumberRows

STEP = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
SHOWN = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]])
FIRST = np.full(3, 1 / 3), np.array([0.5, 0.3, 0.2])
SYMBOLS = ChainLaws(*FIRST, STEP, FreeTable(SHOWN))
CELLS = CellTable(
    np.array([[-0.5, 0.3], [0.1, 0.0], [0.6, -0.4]]),
    np.log([[0.04, 0.1], [0.09, 0.2], [0.05, 0.3]]),
    np.array([-np.inf, -0.3, 0.2, np.inf]),
)
NUMBERS = ChainLaws(*FIRST, STEP, CELLS)
KINDS = [(SYMBOLS, 2, 3), (NUMBERS, 1, 2)]
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6}


def squares_of(laws: ChainLaws, starts: int, length: int, number: float = 1e6) -> errors._WindowSquares:
    """Windows as they are expected of so many people of these laws, released with noise of the variance `number`."""
    v = len(laws.shown.at(np.zeros(laws.shown.size))[0])
    many = np.full(v**starts + v**length, number)
    released = ReleasedWindows(many, many, starts, number, number, WindowSizes(v, length, 1.0, 2.0), 20)
    squares = errors._WindowSquares(laws, released, many, many)
    means = [mean_c for _, mean_c, _ in squares.cells(np.zeros(laws.size))]
    return replace(squares, released=replace(released, number_m=np.concatenate(means)))


def test_drawn_people_are_counted_and_clipped_as_people_are() -> None:
    rng = np.random.default_rng(7)
    code_nt, length_n = rng.integers(0, 3, (50, 8)), rng.integers(1, 9, 50)
    people = [row[:length] for row, length in zip(code_nt, length_n, strict=True)]
    for power, clip in ((1.0, 2.0), (0.5, None), (0.7, 1.3)):
        given: dict[str, Any] = {"symbols": 3, "power": power, "clip_norm": clip, "max_length": 8}
        fitted = dpvb.HiddenMarkovModel(2, n_init=1, **given, **EXACT).fit(people)
        drawn = dynamics.clipped_people(code_nt, length_n, WindowSizes(3, 3, power, fitted._fitted_model.bound))
        sums = drawn.summed(drawn.weight_nm, 27).reshape(3, 3, 3)
        np.testing.assert_allclose(fitted._q.pooled, sums, rtol=1e-4, atol=1e-4)
        assert drawn.weight == pytest.approx(sums.sum() / 50)


@pytest.mark.parametrize("mean", [4.0, 9.0, 12.0])
def test_lengths_are_as_even_as_the_released_weight_allows(mean: float) -> None:
    rng = np.random.default_rng(1)

    def people(number: int, length: int) -> Any:
        return rng.integers(0, 3, (number, length))

    drawn = dynamics.draw_people(people, WindowSizes(3, 1, 1.0, 1e9), 12, mean, rng)
    length_n = (drawn.plain_nm > 0).sum(axis=1)
    # Of 25,000 lengths the mean is known to .022; .15 is beyond six of it.
    assert length_n.mean() == pytest.approx(mean, abs=0.15)
    number_l = np.bincount(length_n, minlength=13)[1:]
    assert number_l[-1] == len(length_n) if mean == 12 else (number_l > 0).all()
    assert (drawn.kept(3) == 1).all()


@pytest.mark.parametrize(("present", "longest"), [(0.6, 12), (0.3, 8), (1.0, 12)])
def test_the_share_clipped_tells_how_many_people_have_no_window(present: float, longest: int) -> None:
    """People of one length or without a window: their weight and their share clipped find both; seed 1."""
    rng = np.random.default_rng(1)
    sizes = WindowSizes(3, 2, 0.5, 1.2)

    def people(number: int, length: int) -> Any:
        return rng.integers(0, 3, (number, length))

    true = dynamics.clipped_people(people(20_000, longest), np.full(20_000, longest), sizes)
    weight, clipped = present * true.weight, present * true.clipped
    drawn = dynamics.draw_people(people, sizes, 12, weight, rng, clipped)
    # A share of 25,000 people is known to .0032, and lengths are found among 2,500; .03 is beyond six deviations.
    assert drawn.weight == pytest.approx(weight, abs=0.03 * true.weight)
    if longest == 12:
        assert drawn.clipped == pytest.approx(clipped, abs=0.03)
        assert (drawn.plain_nm > 0).any(axis=1).mean() == pytest.approx(present, abs=0.03)
    unaware = dynamics.draw_people(people, sizes, 12, weight, rng)
    assert (unaware.plain_nm > 0).any(axis=1).all()
    assert present == 1.0 or unaware.clipped < drawn.clipped


@pytest.mark.parametrize(("laws", "starts", "length"), KINDS)
def test_slopes_are_the_derivatives_of_what_is_expected(laws: ChainLaws, starts: int, length: int) -> None:
    squares = squares_of(laws, starts, length)
    slope_mp = np.vstack([slope_cp for _, _, slope_cp in squares.cells(np.zeros(laws.size))])
    for place, slope_m in enumerate(slope_mp.T):
        ends = [
            np.concatenate([mean_c for _, mean_c, _ in squares.cells(h * np.eye(laws.size)[place])])
            for h in (-1e-5, 1e-5)
        ]
        np.testing.assert_allclose((ends[1] - ends[0]) / 2e-5, slope_m, atol=1e-3)


@pytest.mark.parametrize(("laws", "starts", "length"), KINDS)
def test_expected_windows_are_sums_over_all_paths(laws: ChainLaws, starts: int, length: int) -> None:
    shown_kv = laws.at(np.zeros(laws.size)).shown.value.T
    path = {
        (2, True): np.einsum("i,ia,ij,jb->ab", FIRST[0], shown_kv, STEP, shown_kv),
        (1, True): FIRST[0] @ shown_kv,
        (2, False): np.einsum("i,ia,ij,jb->ab", FIRST[1], shown_kv, STEP, shown_kv),
        (3, False): np.einsum("i,ia,ij,jb,jk,kc->abc", FIRST[1], shown_kv, STEP, shown_kv, STEP, shown_kv),
    }
    expected = np.concatenate([path[starts, True].ravel(), path[length, False].ravel()])
    np.testing.assert_allclose(squares_of(laws, starts, length, 1.0).released.number_m, expected, atol=1e-12)


def test_cells_have_the_probabilities_of_points_that_are_brought_to_the_range() -> None:
    """Frequencies of 200,000 points in each of 125 cells, to six deviations; seed 1."""
    own, rng = HiddenCells(3, 1), np.random.default_rng(1)
    mean_kd, log_kd = np.array([[-0.9, 0.2, 0.4]]), np.log([[0.09, 0.2, 0.04]])
    share_v = CellTable(mean_kd, log_kd, own.cells.end_g).at(np.zeros(6))[0][:, 0]
    code_n = own.cells.placed(rng.normal(mean_kd, np.exp(log_kd / 2), (200_000, 3)))[0]
    counted_v = np.bincount(code_n, minlength=125) / 200_000
    assert (np.abs(counted_v - share_v) < 6 * np.sqrt(share_v / 200_000) + 6 / 200_000).all()
    assert share_v.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("laws", "starts", "length"), KINDS)
def test_least_squares_find_the_laws_that_the_windows_are_of(laws: ChainLaws, starts: int, length: int) -> None:
    away_p = np.random.default_rng(2).normal(0.0, 0.01, laws.size)
    x_p, precision_pp, _ = errors.descended(squares_of(laws, starts, length), away_p)
    for moved, law in zip(laws.at(x_p), laws.at(np.zeros(laws.size)), strict=True):
        np.testing.assert_allclose(moved.value, law.value, atol=2e-3)
    assert (np.linalg.eigvalsh(precision_pp) > 0.999).all()
    np.testing.assert_allclose(laws.at(x_p).step.value.sum(axis=1), 1.0)


def test_steps_that_windows_say_nothing_of_have_wide_intervals() -> None:
    """Where all states show the same, the prior's standard deviation of 1 is what is left."""
    blind = ChainLaws(*FIRST, STEP, FreeTable(np.full((3, 4), 0.25)))
    released = replace(squares_of(blind, 2, 3).released, weight=4e6)
    for noise_aware in (False, True):
        std_kk = errors.step_errors(blind, released, np.random.default_rng(0), noise_aware=noise_aware)
        assert (std_kk > 0.4).all()


def test_a_chain_loses_what_its_clip_bends() -> None:
    """Order 1 and 2: without noise, to what 20,000 people leave open."""
    rng = np.random.default_rng(3)
    pair = np.array([[0.85, 0.1, 0.05], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]])
    code_nt = dynamics.drawn(np.full(3, 1 / 3), [pair], 20_000, 12, rng)
    for order in (1, 2):
        fitted = dpvb.MarkovChain(3, order=order, clip_norm=0.8, max_length=12, **EXACT).fit(code_nt)
        model, law = fitted._fitted_model, fitted.transition_matrix_
        std = model.corrected_deviations(fitted._record, np.random.default_rng(0), 0.0)
        # Of a seed; .03 is more than four deviations of every probability.
        np.testing.assert_allclose(law, np.broadcast_to(pair, law.shape), atol=0.03)
        assert (std < 0.01).all()
        bent = np.abs(model.law(fitted._record) - pair).max()
        assert bent > 2 * np.abs(law - pair).max()


PAIR = np.array([[0.8, 0.2], [0.3, 0.7]])
PEOPLE, LENGTH, FITS = 1500, 8, 40
NOISE = np.array([8.0, 6.0, 8.0])
OWN = HiddenCells(1, 2, n_init=1, clip_norm=1.5, max_length=LENGTH)


def fitted(rng: np.random.Generator) -> tuple[HiddenCellsPosterior, HiddenCellsPosterior]:
    """A fit to new people with new noise, before and after its correction; clipped as the wall does."""
    state_nt = dynamics.drawn(np.array([0.5, 0.5]), [PAIR], PEOPLE, LENGTH, rng)
    value_td = np.clip(rng.normal(np.array([-0.4, 0.4])[state_nt], 0.15), -1, 1).reshape(-1, 1)
    start, released = OWN.init(np.random.default_rng(1)), []
    rows = NumberRows(np.arange(PEOPLE + 1) * LENGTH, value_td)
    for (name, added), noise in zip(OWN.e_step(start, rows, OWN.blocks).items(), NOISE, strict=True):
        block, total = OWN.blocks[name], np.zeros(OWN.blocks[name].shape, np.int64)
        added.accumulate(np.minimum(1.0, block.bound / added.norms()), Grid(2.0**-20, block.bound), total)
        released.append(total * 2.0**-20 + rng.normal(0, noise, total.shape))
    windows, value_vd = OWN.read(released, NOISE)
    states = OWN._states(np.array([[-0.3, 0.3]]))
    chain = OWN.fitted(windows, replace(start.chain, emissions=states), value_vd, hidden_cells._ROUNDS).chain
    q = replace(start, chain=chain, starts_v=released[0], pairs_vv=released[1], noise_b=NOISE)
    step = partial(OWN.stepped, value_v=value_vd)
    best = errors.corrected(chain, windows, OWN._released(q, 0.0), OWN._laws, step, hidden_cells._ROUNDS)
    return q, replace(q, chain=best)


def steps(q: HiddenCellsPosterior) -> Floats:
    return q.chain.laws(expected=False).step_kk


def test_deviations_are_those_of_estimates_that_are_made_again_and_bias_is_corrected() -> None:
    rng = np.random.default_rng(3)
    fits = [fitted(rng) for _ in range(FITS)]
    bend_kk = np.mean([steps(q) for q, _ in fits], axis=0) - PAIR
    every = [steps(q) for _, q in fits]
    own_kk = OWN.step_errors(fits[0][1], np.random.default_rng(4), 0.0)
    naive_kk = OWN.step_errors(fits[0][1], np.random.default_rng(4), 0.0, noise_aware=False)
    std_kk = np.std(every, axis=0, ddof=1)
    # Seeded: a deviation of 40 estimates is off by more than a factor of 1.9 once in 10⁶.
    assert (np.abs(np.log(own_kk / std_kk)) < math.log(1.9)).all()
    assert (naive_kk < own_kk).all()
    # Here noise biases every step of a fit by more than three deviations of an estimate.
    assert (np.abs(bend_kk) > 3 * std_kk).all()
    assert (np.abs(np.mean(every, axis=0) - PAIR) < std_kk).all()
    np.testing.assert_allclose(every[0].sum(axis=1), 1.0)
