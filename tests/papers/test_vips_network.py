"""Sigmoid belief network by seven blocks: rising bounds, and fits by `dpvb.PrivateModel`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

import dpvb
from dpvb.core import loop
from dpvb.core.blocks import Block, Grid, triangle
from dpvb.core.model import constant
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.design import BinaryMatrix
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


def bound(model: VIPSNetwork, n_bar: Any, y_nj: np.ndarray) -> float:
    """Evidence bound of all rows, by matrices, with ⟨z⟩ and ⟨ξ⟩ of many rounds."""
    pi_nk, _ = replace(model, sweeps=60).local(n_bar, y_nj)
    zz_nkk = pi_nk[:, :, None] * pi_nk[:, None, :]
    diagonal = range(model.n_components)
    zz_nkk[:, diagonal, diagonal] = pi_nk
    w_jk, c_j, b_k = n_bar["w"], n_bar["c"], n_bar["b"]
    square_nj = np.einsum("jkl,nkl->nj", n_bar["ww"], zz_nkk) + 2 * pi_nk @ (c_j[:, None] * w_jk).T + n_bar["cc"]
    rows_n = ((y_nj - 0.5) * (pi_nk @ w_jk.T + c_j)).sum(axis=1) - np.log(2 * np.cosh(np.sqrt(square_nj) / 2)).sum(1)
    rows_n += ((pi_nk - 0.5) * b_k - np.log(2 * np.cosh(np.sqrt(n_bar["bb"]) / 2))).sum(axis=1)
    rows_n -= xlogy(pi_nk, pi_nk).sum(axis=1) + xlogy(1 - pi_nk, 1 - pi_nk).sum(axis=1)
    sigma_jkk = n_bar["ww"] - w_jk[:, :, None] * w_jk[:, None, :]
    square_kj = np.einsum("jkk->kj", n_bar["ww"])
    weights = n_bar["scales"].bound(square_kj) + 0.5 * (np.linalg.slogdet(2 * math.pi * math.e * sigma_jkk)[1].sum())
    offsets = sum(
        0.5 * (np.log((mean_square - mean**2) / model.prior_variance) + 1 - mean_square / model.prior_variance).sum()
        for mean, mean_square in ((c_j, n_bar["cc"]), (b_k, n_bar["bb"]))
    )
    return float(rows_n.sum() + weights + offsets)


@dataclass(frozen=True)
class Unclipped(VIPSNetwork):
    """Bounds that no vector reaches, and eigenvalues as they are."""

    @property
    def blocks(self) -> dict[str, Block]:
        return {name: replace(block, bound=10 * block.bound) for name, block in super().blocks.items()}


def test_the_blocks_raise_the_evidence_bound_at_every_step() -> None:
    y_nj = drawn(6, 200, hidden=3, visible=8)
    model = Unclipped(3, 8, n_rows=200.0, sweeps=60, init_std=1.0, learning_decay=0.0, least_eigenvalue=0.0)
    plan = phased(model.blocks, FullBatch(), [0.0] * 12)
    bounds = []

    def watch(t: int, q: Any) -> None:
        bounds.append(bound(model, q.n_bar, y_nj))

    wall = Wall(BinaryMatrix(y_nj), plan, n_units=200)
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0), on_step=watch)
    assert (np.diff(bounds) > -1e-3).all(), np.diff(bounds)  # sums are truncated to a grid
    assert bounds[-1] > bounds[0] + 10
    likelihood = np.zeros(200)
    for z in np.ndindex(2, 2, 2):
        psi_j = q.n_bar["w"] @ np.array(z) + q.n_bar["c"]
        row_n = (y_nj * psi_j - np.logaddexp(0, psi_j)).sum(axis=1)
        likelihood += np.exp(row_n + (np.array(z) * q.n_bar["b"] - np.logaddexp(0, q.n_bar["b"])).sum())
    assert bounds[-1] < np.log(likelihood).sum()


def test_private_fits_the_model_to_binary_rows_and_its_file_holds_it(tmp_path: Path) -> None:
    y_nj = drawn(11, 400, hidden=4, visible=12)
    model = VIPSNetwork(4, 12, n_rows=400.0, n_steps=10, learning_decay=0.0, init_std=1.0)
    fitted = dpvb.PrivateModel(model, epsilon=math.inf, delta=1e-5, random_state=1).fit(BinaryMatrix(y_nj))
    pi_nk, _ = replace(model, sweeps=15).local(fitted.q_.n_bar, y_nj)
    shown_nj = pi_nk @ fitted.q_.n_bar["w"].T + fitted.q_.n_bar["c"] > 0
    assert (shown_nj == y_nj).mean() > ((y_nj.mean(axis=0) > 0.5) == y_nj).mean() + 0.05
    fitted.save(tmp_path / "model")
    again = dpvb.load(tmp_path / "model").q_
    np.testing.assert_array_equal(again.n_bar["ww"], fitted.q_.n_bar["ww"])
    np.testing.assert_array_equal(again.n_bar["scales"].zeta_kj, fitted.q_.n_bar["scales"].zeta_kj)


def test_with_noise_all_numbers_are_finite() -> None:
    rows = BinaryMatrix(drawn(12, 100, hidden=3, visible=18))
    model = VIPSNetwork(20, 18, n_rows=100.0, n_steps=40)
    fitted = dpvb.PrivateModel(model, epsilon=0.01, delta=1e-5, random_state=3).fit(rows)
    assert all(np.isfinite(fitted.q_.n_bar[name]).all() for name in ("w", "ww", "c", "b"))
