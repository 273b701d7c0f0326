"""Cells of a grid over [-1, 1]^D: where points lie, what moments say of a cell's points, and states to start from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences.emissions import Shown
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.numeric_emissions import Gaussian
from dpvb.models.sequences.window_fit import Windows

# Least std of the points of a cell, in a range of -1 to 1: no state is narrower.
_LEAST = 0.01
# Rounds that bring the centres of a start together; what of all steps may go anywhere at first.
_ROUNDS, _ANYWHERE = 10, 0.01


@dataclass(frozen=True)
class Cells:
    """The cells around the nodes of a grid, nodes at both ends of each column; public.

    Attributes:
        n_columns: D.
        per_column: G, nodes of a column.
    """

    n_columns: int
    per_column: int

    def __len__(self) -> int:
        return int(self.per_column**self.n_columns)

    @property
    def width(self) -> float:
        """From a node to the next one."""
        return 2.0 / (self.per_column - 1)

    @property
    def node_vd(self) -> Floats:
        """The nodes, (V, D)."""
        ends = [np.linspace(-1.0, 1.0, self.per_column)] * self.n_columns
        return np.stack([axis.ravel() for axis in np.meshgrid(*ends, indexing="ij")], axis=1)

    def placed(self, value_td: Floats) -> tuple[Ints, Floats]:
        """The cell of each point, -1 for one that lacks a number, and its place in the cell, in [0, 1]^D."""
        known_t = np.asarray(~np.isnan(value_td).any(axis=1))
        x_td = (np.clip(np.where(known_t[:, None], value_td, 0.0), -1.0, 1.0) + 1.0) / self.width
        node_td = np.rint(x_td)
        code_t = np.zeros(len(x_td), np.int64)
        for d in range(self.n_columns):
            code_t = code_t * self.per_column + node_td[:, d].astype(np.int64)
        return np.where(known_t, code_t, -1), np.clip(x_td - node_td + 0.5, 0.0, 1.0)

    def values(self, moments: Floats, noise_std: float) -> Floats:
        """Means and variances of the points of each cell, (V, 2D): those of an even spread where few points are.

        Args:
            moments: sums of u², √2 u(1-u) and (1-u)², (V · 3D, 1), noisy.
            noise_std: of each.
        """
        high_vd, mixed_vd, low_vd = np.moveaxis(moments.reshape(-1, 3, self.n_columns), 1, 0)
        number_v1 = np.maximum((high_vd + math.sqrt(2) * mixed_vd + low_vd).mean(axis=1, keepdims=True), 0.0)
        total_v1 = number_v1 + noise_std + 1e-200
        mean_vd = np.clip((high_vd + mixed_vd / math.sqrt(2) + noise_std / 2) / total_v1, 0.0, 1.0)
        square_vd = (high_vd + noise_std / 3) / total_v1
        variance_vd = np.clip((square_vd - mean_vd**2) * self.width**2, _LEAST**2, self.width**2 / 4)
        return np.hstack([self.node_vd + (mean_vd - 0.5) * self.width, variance_vd])


def moments(code_t: Ints, u_td: Floats, place_t: Ints) -> Shown:
    """What points at these places add to the moments of their cells: nonnegative numbers of a norm of at most √D.

    Args:
        code_t, u_td: what `Cells.placed` gives.
        place_t: numbers of points.
    """
    u_td, d = u_td[place_t], 3 * u_td.shape[1]
    value_tf = np.hstack([u_td**2, math.sqrt(2) * u_td * (1 - u_td), (1 - u_td) ** 2])
    first_t = np.where(code_t[place_t] < 0, -d, code_t[place_t] * d)
    return Shown(np.ones((1, 1)), np.zeros(len(place_t), np.int64), first_t[:, None] + np.arange(d), value_tf)


def start(
    windows: Windows, value_vd: Floats, chance_k: Floats, states: Callable[[Floats], Gaussian], prior: float
) -> HiddenChain:
    """A state for each of K centres, drawn far from each other (Arthur & Vassilvitskii 2007), and its nearest cells.

    Args:
        windows: read counts.
        value_vd: means of the points of each cell first.
        chance_k: in (0, 1], by which centres are drawn.
        states: emissions around means (D, K).
        prior: of every count.
    """
    num, d = len(chance_k), value_vd.shape[1] // 2
    x_vd, first_v = value_vd[:, :d], windows.start_vw.sum(axis=1)
    seen_v = windows.pooled.sum(axis=0) + first_v + 1e-200
    centre_kd, far_v = np.empty((0, d)), np.ones(len(x_vd))
    for chance in chance_k:
        law_v = np.cumsum(seen_v * far_v + 1e-200)
        found = min(int(np.searchsorted(law_v, chance * law_v[-1])), len(x_vd) - 1)
        centre_kd = np.vstack([centre_kd, x_vd[found]])
        far_v = _squares(x_vd, centre_kd).min(axis=1)
    for _ in range(_ROUNDS):
        own_vk = np.eye(num)[_squares(x_vd, centre_kd).argmin(axis=1)]
        number_k1 = (seen_v @ own_vk)[:, None]
        mean_kd = (own_vk * seen_v[:, None]).T @ x_vd / np.maximum(number_k1, 1e-200)
        centre_kd = np.where(number_k1 > 0, mean_kd, centre_kd)
    step_kk = own_vk.T @ windows.pooled @ own_vk
    step_kk += _ANYWHERE * step_kk.sum() / step_kk.size
    counts = prior + first_v @ own_vk, prior + seen_v @ own_vk, prior + step_kk
    return HiddenChain(*counts, states(centre_kd.T), prior)


def _squares(x_vd: Floats, centre_kd: Floats) -> Floats:
    """Squared distances, (V, K)."""
    return np.asarray(((x_vd[:, None] - centre_kd) ** 2).sum(axis=2))
