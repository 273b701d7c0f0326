"""Intervals of steps between states of numbers: spread and bias as of fits that are made again and again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpvb.core.contributions import Grid
from dpvb.guards.arrays import Floats
from dpvb.models.sequences import dynamics, errors
from dpvb.models.sequences.hidden_cells import HiddenCells, HiddenCellsPosterior
from dpvb.rows.sequences import NumberRows

STEP = np.array([[0.8, 0.2], [0.3, 0.7]])
PEOPLE, LENGTH, FITS = 1500, 8, 40
NOISE = np.array([8.0, 6.0, 8.0])
OWN = HiddenCells(1, 2, n_init=1, clip=1.5, max_length=LENGTH)


def fitted(rng: np.random.Generator) -> HiddenCellsPosterior:
    """A fit to new people with new noise, states in the order of their means; clipped as the wall does."""
    state_nt = dynamics.drawn(np.array([0.5, 0.5]), [STEP], PEOPLE, LENGTH, rng)
    value_td = np.clip(rng.normal(np.array([-0.4, 0.4])[state_nt], 0.15), -1, 1).reshape(-1, 1)
    start, shown = OWN.init(np.random.default_rng(1)), []
    rows = NumberRows(np.arange(PEOPLE + 1) * LENGTH, value_td)
    for (name, made), noise in zip(OWN.e_step(start, rows, OWN.blocks).items(), NOISE, strict=True):
        block, total = OWN.blocks[name], np.zeros(OWN.blocks[name].shape, np.int64)
        made.accumulate(np.minimum(1.0, block.bound / made.norms()), Grid(2.0**-20, block.bound), total)
        shown.append(total * 2.0**-20 + rng.normal(0, noise, total.shape))
    windows, value_vd = OWN.read(shown, NOISE)
    states = OWN._states(np.array([[-0.3, 0.3]]))
    chain = OWN.fitted(windows, value_vd, replace(start.chain, emissions=states)).chain
    return replace(start, chain=chain, noise_b=NOISE)


def steps(q: HiddenCellsPosterior) -> Floats:
    return q.chain.laws(expected=False).step_kk


def test_deviations_are_those_of_fits_that_are_made_again_and_what_noise_bends_is_put_back() -> None:
    rng = np.random.default_rng(3)
    fits = [fitted(rng) for _ in range(FITS)]
    std_kk = np.std([steps(q) for q in fits], axis=0, ddof=1)
    bend_kk = np.mean([steps(q) for q in fits], axis=0) - STEP
    found = errors.number_errors(OWN, fits[0], np.random.default_rng(4))
    naive = errors.number_errors(OWN, fits[0], np.random.default_rng(4), noise_aware=False)
    # Seeded: deviations of 40 and of 60 fits differ by more than a factor of 2.2 once in 10⁶.
    assert (np.abs(np.log(found.std_kk / std_kk)) < math.log(2.2)).all()
    assert (naive.std_kk < found.std_kk).all()
    # Here noise bends every step by more than four of its deviations: without what is put back all would be off.
    assert (np.abs(bend_kk) > 4 * std_kk).all()
    assert (np.abs(found.step_kk - STEP) < 4 * std_kk).all()
    np.testing.assert_allclose(found.step_kk.sum(axis=1), 1.0)
