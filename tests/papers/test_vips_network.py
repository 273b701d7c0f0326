"""Sigmoid belief network by seven blocks: rising bounds, evidence, and fits by `dpvb.Private`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import dpvb
from dpvb.core import loop
from dpvb.core.blocks import Block, triangle
from dpvb.core.contributions import Grid
from dpvb.core.estimate import Estimate
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.schedule import constant
from dpvb.core.wall import Wall
from dpvb.data.tables.design import BinaryMatrix
from dpvb.models.belief_network import kernel
from dpvb.papers.belief_network import HiddenMoments, VIPSNetwork


def drawn(seed: int, n: int, hidden: int, visible: int) -> np.ndarray:
    """Vectors from a random network."""
    rng = np.random.default_rng(seed)
    w_kj = 3.0 * rng.normal(size=(hidden, visible))
    z_nk = rng.random((n, hidden)) < 0.4
    return (rng.random((n, visible)) < expit(z_nk @ w_kj - 1.0)).astype(float)


def test_moments_are_those_of_the_explicit_matrices() -> None:
    rng = np.random.default_rng(5)
    xi_nj, pi_nk = rng.uniform(0, 0.25, (700, 5)), rng.random((700, 3))
    pairs = pi_nk[:, :, None] * pi_nk[:, None, :]
    pairs[:, range(3), range(3)] = pi_nk
    full = xi_nj[:, :, None, None] * pairs[:, None]
    moments = HiddenMoments(xi_nj, pi_nk)
    exact = np.sqrt((full**2).sum(axis=(1, 2, 3)))
    assert (moments.norms() >= exact * (1 - 1e-15)).all()
    np.testing.assert_allclose(moments.norms(), exact, rtol=1e-12)
    row, column = triangle(3)
    out = np.zeros((5, 6), np.int64)
    moments.accumulate(np.ones(700), Grid(2.0**-40, 4.0), out)
    np.testing.assert_allclose(out * 2.0**-40, full.sum(0)[:, row, column], rtol=1e-3)


@dataclass(frozen=True)
class Unclipped(VIPSNetwork):
    """Bounds that no vector reaches."""

    @property
    def blocks(self) -> dict[str, Block]:
        return {name: replace(block, bound=10 * block.bound) for name, block in super().blocks.items()}


def test_the_blocks_raise_the_evidence_bound_at_every_step() -> None:
    y_nj = drawn(6, 200, hidden=3, visible=8)
    model = Unclipped(3, 8, num_examples=200, sweeps=60, start_std=1.0)
    plan = phased(model.blocks, FullBatch(), [0.0] * 12)
    bounds = []

    def watch(t: int, q: Any) -> None:
        pi_nk, _, _ = model.local(q, y_nj, 60)
        bounds.append(model.bound(q, y_nj, pi_nk).sum() + model.parameter_bound(q))

    wall = Wall(BinaryMatrix(y_nj), plan, num_examples=200)
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0), on_step=watch)
    assert (np.diff(bounds) > -1e-3).all()  # float32 local steps, sums truncated to a grid
    assert bounds[-1] > bounds[0] + 10
    pi_nk, _, _ = model.local(q, y_nj, 60)
    likelihood = np.zeros(200)
    for z in np.ndindex(2, 2, 2):
        psi_j = np.array(z) @ q.w_kj + q.c_j
        row_n = (y_nj * psi_j - np.logaddexp(0, psi_j)).sum(axis=1)
        likelihood += np.exp(row_n + (np.array(z) * q.b_k - np.logaddexp(0, q.b_k)).sum())
    # The bound averages over q(W) besides, which can only lower it by Jensen's inequality up to the weights' spread.
    assert model.bound(q, y_nj, pi_nk).sum() < np.log(likelihood).sum()


def test_an_m_step_raises_the_bound_at_fixed_hidden_units() -> None:
    y_nj = drawn(7, 150, hidden=3, visible=6)
    model = Unclipped(3, 6, num_examples=150)
    plan = phased(model.blocks, FullBatch(), [0.0] * 4)
    wall = Wall(BinaryMatrix(y_nj), plan, num_examples=150)
    q, s = model.init(np.random.default_rng(0)), Estimate.empty(model.blocks)
    for release in plan:
        s = s.update(wall.release(partial(model.e_step, q, blocks=release.asked), release), 1.0)
        new = model.m_step(s, q)
        pi_nk, _, _ = model.local(q, y_nj, model.sweeps)
        _, at_nj = kernel.second_moments(q.w_kj, q.v_kj, q.c_j, q.c_var_j, pi_nk)
        both = [model.bound(at, y_nj, pi_nk, at_nj).sum() for at in (q, new)]
        if (q.c_var_j > 0).all():
            both = [value + model.parameter_bound(at) for value, at in zip(both, (q, new), strict=True)]
            assert both[1] > both[0]
        q = new


def test_private_fits_the_model_to_binary_rows_and_its_file_holds_it(tmp_path: Path) -> None:
    y_nj = drawn(11, 400, hidden=4, visible=12)
    model = VIPSNetwork(4, 12, num_examples=400, num_steps=10, learning_offset=0.0, learning_decay=0.0, start_std=1.0)
    fitted = dpvb.Private(model, epsilon=math.inf, delta=1e-5, random_state=1).fit(BinaryMatrix(y_nj))
    pi_nk, _, _ = model.local(fitted.q_, y_nj, 15)
    mean_j = np.clip(y_nj.mean(axis=0), 0.01, 0.99)
    independent = (y_nj * np.log(mean_j) + (1 - y_nj) * np.log1p(-mean_j)).sum(axis=1).mean()
    assert model.bound(fitted.q_, y_nj, pi_nk).mean() > independent
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(dpvb.load(tmp_path / "model").q_.w_kj, fitted.q_.w_kj)


def test_noise_alone_ends_in_finite_weights() -> None:
    """With far more noise than data, matrices of noise are inverted at weights of any size."""
    rows = BinaryMatrix(drawn(14, 30, hidden=4, visible=18))
    fitted = dpvb.Private(VIPSNetwork(20, 18, num_steps=40), epsilon=0.01, delta=1e-5, random_state=3).fit(rows)
    assert np.isfinite(fitted.q_.w_kj).all()
