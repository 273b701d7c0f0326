"""Steps that are read again from released windows: what a clip leaves of them, and least squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.models.sequences import dynamics, errors
from dpvb.models.sequences.errors import StepLaws

STEP = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
SHOWN = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]])
LAWS = StepLaws(np.full(3, 1 / 3), np.array([0.5, 0.3, 0.2]), STEP, SHOWN)
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6}


def read_of(laws: StepLaws, scale: float = 1e6) -> errors.Read:
    """What is expected of people of these laws, as if it had been released."""
    size = 4**2 + 4**3
    like = errors.Read(np.zeros(size), np.full(size, scale), np.ones(size), np.full(size, scale))
    expected = np.concatenate([cells.mean for cells in errors.slope_cells(laws, like)])
    return like._replace(number=expected)


def test_drawn_people_are_counted_and_clipped_as_people_are() -> None:
    rng = np.random.default_rng(7)
    code_nt, length_n = rng.integers(0, 3, (50, 8)), rng.integers(1, 9, 50)
    people = [row[:length] for row, length in zip(code_nt, length_n, strict=True)]
    for power, clip in ((1.0, 2.0), (0.5, None), (0.7, 1.3)):
        given: dict[str, Any] = {"symbols": 3, "power": power, "clip": clip, "max_length": 8}
        fitted = dpvb.HiddenMarkovModel(2, n_init=1, **given, **EXACT).fit(people)
        found = dynamics.clipped_people(code_nt, length_n, 3, 3, power, fitted._fitted_model.bound)
        sums = found.summed(found.weight_nm, 27).reshape(3, 3, 3)
        np.testing.assert_allclose(fitted._q.pooled, sums, rtol=1e-4, atol=1e-4)
        assert found.weight == pytest.approx(sums.sum() / 50)


@pytest.mark.parametrize("mean", [4.0, 9.0, 12.0])
def test_lengths_are_as_even_as_the_released_weight_allows(mean: float) -> None:
    rng = np.random.default_rng(1)

    def people(number: int, length: int) -> Any:
        return rng.integers(0, 3, (number, length))

    found = dynamics.draw_people(people, (3, 1, 1.0, 1e9), 12, mean, rng)
    length_n = (found.plain_nm > 0).sum(axis=1)
    # Of 25,000 lengths the mean is known to .022; .15 is beyond six of it.
    assert length_n.mean() == pytest.approx(mean, abs=0.15)
    number_l = np.bincount(length_n, minlength=13)[1:]
    assert number_l[-1] == len(length_n) if mean == 12 else (number_l > 0).all()
    assert (found.kept(3) == 1).all()


def test_slopes_are_the_derivatives_of_what_is_expected() -> None:
    read = read_of(LAWS)
    slope = np.vstack([cells.slope for cells in errors.slope_cells(LAWS, read)])
    for place in range(slope.shape[1]):
        ends = [
            np.concatenate(
                [cells.mean for cells in errors.slope_cells(LAWS.moved(h * np.eye(slope.shape[1])[place]), read)]
            )
            for h in (-1e-5, 1e-5)
        ]
        np.testing.assert_allclose((ends[1] - ends[0]) / 2e-5, slope[:, place], atol=1e-3)


def test_least_squares_find_the_laws_that_the_windows_are_of() -> None:
    near = LAWS.moved(np.random.default_rng(2).normal(0.0, 0.01, 2 * 3 + 3 * 2 + 3 * 3))
    found, gain = errors._fitted(near, read_of(LAWS))
    for one, truth in zip(found, LAWS, strict=True):
        np.testing.assert_allclose(one, truth, atol=2e-3)
    assert (np.linalg.eigvalsh(gain) >= 1.0).all()
    np.testing.assert_allclose(found.step_kk.sum(axis=1), 1.0)


def test_steps_that_windows_say_nothing_of_have_wide_intervals() -> None:
    """Where all states show the same, the prior's standard deviation of 1 is what is left."""
    blind = LAWS._replace(shown_kv=np.full((3, 4), 0.25))
    read = read_of(blind)
    _, gain = errors._fitted(blind, read)
    people = dynamics.clipped_people(np.zeros((2, 4), np.int64), np.full(2, 4), 4, 3, 1.0, 9.0)
    std = errors._std(blind, read, gain, people, 2.0, np.ones(80))
    assert (std > 0.5).all()


def test_a_chain_loses_what_its_clip_bends() -> None:
    """Order 1 and 2: without noise, to what 20,000 people leave open."""
    rng = np.random.default_rng(3)
    pair = np.array([[0.85, 0.1, 0.05], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]])
    code_nt = dynamics.drawn(np.full(3, 1 / 3), [pair], 20_000, 12, rng)
    for order in (1, 2):
        fitted = dpvb.MarkovChain(3, order=order, clip=0.8, max_length=12, **EXACT).fit(code_nt)
        law, std = fitted._fitted_model.corrected_law(fitted._q, np.random.default_rng(0), 0.0)
        # Of a seed; .03 is more than four deviations of every probability.
        np.testing.assert_allclose(law, np.broadcast_to(pair, law.shape), atol=0.03)
        assert (std < 0.01).all()
        bent = np.abs(fitted.transition_matrix_ - pair).max()
        assert bent > 2 * np.abs(law - pair).max()
