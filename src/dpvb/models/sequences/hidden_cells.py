"""Hidden Markov models of numbers: windows of cells and moments within cells are released once, then EM or VB on them.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_td ~ N(μ_dz_t, 1/τ_dz_t) in [-1, 1]        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
D, K, L             n_columns, n_states; max_length: the first L points of each sequence count
G, V                nodes of a column, from -1 to 1, and V = G^D `Cells` around nodes
M, T                pairs of points, and points, in all sequences of a person
block "starts"      Σ e_{c_1} / m, c the cell of a point; norm ≤ 1
block "pairs"       M^(p-1) Σ e_{c_t} ⊗ e_{c_t+1}; norm ≤ M^p, attained by a constant sequence
block "moments"     T^(p-1) Σ e_{c_t} ⊗ (u², √2 u(1-u), (1-u)²); norm ≤ T^p √D
u                   place of a point in its cell, in [0, 1]^D; u² + 2u(1-u) + (1-u)² = 1
p, C                power, clip; that of the moments is C √(D/2)
μ, 1/τ              q.chain.emissions, see `GaussianEmissions`: of a cell the mean and the variance count
==================  =============================================================================

The three numbers of a column have the norm u² + (1-u)² ≤ 1: they contain a count, a mean and a variance for the price
of one. All points of a cell are assumed to have one distribution of states. A point that lacks a number is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegatives, Positives
from dpvb.guards.errors import ParameterError, check_integer
from dpvb.models.sequences import passes
from dpvb.models.sequences.emissions import GaussianEmissions, Shown
from dpvb.models.sequences.errors import CellTable, ChainLaws, ReleasedWindows, corrected, step_errors
from dpvb.models.sequences.hidden_chain import HiddenChain, Laws
from dpvb.models.sequences.passes import StateSums, Walk
from dpvb.models.sequences.windows import (
    HiddenWindowModel,
    WindowCounts,
    Windows,
    denoised_pairs,
    denoised_totals,
)
from dpvb.rows import NumberRows, SequenceRows

# Least std of the points of a cell, in a range of -1 to 1: no state is narrower.
_LEAST_STD = 0.01
# Rounds that bring the centres of a start together; what of all steps may go anywhere at first.
_CENTRE_ROUNDS, _ANYWHERE = 10, 0.01
# Nodes of a column, by the number of columns: cells as wide as a state, and few enough for the noise.
_NODES = {1: 33, 2: 9, 3: 5, 4: 3}
# Weights of the blocks in the noise.
_STARTS, _PAIRS, _MOMENTS = 0.3, 0.8, 0.5
# Iterations from each start.
_ROUNDS = 300
# Prior counts of every parameter of the distributions; std of a state at the start, in a range of -1 to 1.
_PRIOR, _WIDE = 1.0, 0.25
# One distribution for a sequence of a single place.
_ALONE = Laws(np.ones(1), np.ones(1), np.ones((1, 1)))


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
    def end_g(self) -> Floats:
        """Ends of the cells of a column, (G + 1,); those at both ends of the range hold all that is beyond."""
        inner = np.linspace(-1.0, 1.0, self.per_column)[:-1] + self.width / 2
        return np.concatenate([[-np.inf], inner, [np.inf]])

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
        variance_vd = np.clip((square_vd - mean_vd**2) * self.width**2, _LEAST_STD**2, self.width**2 / 4)
        return np.hstack([self.node_vd + (mean_vd - 0.5) * self.width, variance_vd])


def cell_moments(code_t: Ints, u_td: Floats, place_t: Ints) -> Shown:
    """Contribution of points at these places to the moments of their cells: nonnegative, of a norm of at most √D.

    Args:
        code_t, u_td: what `Cells.placed` gives.
        place_t: numbers of points.
    """
    u_td, d = u_td[place_t], 3 * u_td.shape[1]
    value_tf = np.hstack([u_td**2, math.sqrt(2) * u_td * (1 - u_td), (1 - u_td) ** 2])
    first_t = np.where(code_t[place_t] < 0, -d, code_t[place_t] * d)
    return Shown(np.ones((1, 1)), np.zeros(len(place_t), np.int64), first_t[:, None] + np.arange(d), value_tf)


def start_from_cells(
    windows: Windows, value_vd: Floats, chance_k: Floats, states: Callable[[Floats], GaussianEmissions], prior: float
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
        nearest = min(int(np.searchsorted(law_v, chance * law_v[-1])), len(x_vd) - 1)
        centre_kd = np.vstack([centre_kd, x_vd[nearest]])
        far_v = _squares(x_vd, centre_kd).min(axis=1)
    for _ in range(_CENTRE_ROUNDS):
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


@dataclass(frozen=True)
class HiddenCellsPosterior:
    """q: the chain, and what was released.

    Attributes:
        chain: the posterior.
        chance_rk: public chances by which the centres of R starts are drawn, (R, K).
        starts_v, pairs_vv: the blocks as they came.
        noise_b: noise std of each block.
    """

    chain: HiddenChain
    chance_rk: Positives
    starts_v: Floats
    pairs_vv: Floats
    noise_b: Nonnegatives = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True)
class HiddenCells(HiddenWindowModel, Model[HiddenCellsPosterior, NumberRows]):
    """The model; every field is public. `HiddenWindowModel` describes the other fields.

    Attributes:
        n_columns, n_states: D and K.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_columns: int
    n_states: int
    name: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        if check_integer("n_columns", self.n_columns, low=1) not in _NODES:
            raise ParameterError(
                f"columns must be at most {max(_NODES)}, got {self.n_columns}: cells are of all of them."
            )
        check_integer("n_states", self.n_states, low=1, high=1000)
        super().__post_init__()

    @property
    def cells(self) -> Cells:
        """The grid."""
        return Cells(self.n_columns, _NODES[self.n_columns])

    @property
    def n_symbols(self) -> int:
        """V."""
        return len(self.cells)

    @property
    def length(self) -> int:
        """Return the number of points of a window."""
        return 2

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Cells of starts, pairs of cells, and moments within cells; all are released once."""
        v, d, clip = self.n_symbols, self.n_columns, self.clip_norm
        moments = self.max_length**self.power * math.sqrt(d) if clip is None else clip * math.sqrt(d / 2)
        parts = {
            "starts": ((v,), 1.0, _STARTS),
            self.name: ((v, v), self.bound, _PAIRS),
            "moments": ((3 * d * v, 1), float(moments), _MOMENTS),
        }
        return {
            name: Block(shape, bound, "nonnegative", phase="first", weight=weight)
            for name, (shape, bound, weight) in parts.items()
        }

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> HiddenCellsPosterior:
        """All states alike, and the chances of the starts."""
        k, one_dk = self.n_states, np.ones((self.n_columns, self.n_states))
        chain = HiddenChain(np.ones(k), np.ones(k), np.ones((k, k)), self._states(0.0 * one_dk), _PRIOR)
        v = self.n_symbols
        return HiddenCellsPosterior(chain, 1.0 - rng.random((self.n_init, k)), np.zeros(v), np.zeros((v, v)))

    def e_step(self, q: HiddenCellsPosterior, batch: NumberRows, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of cells and their moments, whatever q is."""
        code_t, u_td = self.cells.placed(batch.value_td)
        rows, v = SequenceRows(batch.indptr, code_t), self.n_symbols
        # One state shows everything.
        walk = Walk(batch.indptr, self.max_length, _ALONE, partial(cell_moments, code_t, u_td))
        return {
            "starts": WindowCounts(rows, 1, v, 1, 0.0),
            "pairs": WindowCounts(rows, 2, v, self.max_length, self.power),
            "moments": StateSums(walk, "shown", (3 * self.n_columns * v, 1), self.power),
        }

    def started(self, s: Estimate, q: HiddenCellsPosterior) -> HiddenCellsPosterior:
        """The releases, denoised once, and the best of the fits to them."""
        noise_b = np.array([s.noise_std(name) for name in self.blocks])
        starts_v, pairs_vv, moments = (s.noisy(name) for name in self.blocks)
        windows, value_vd = self.read([starts_v, pairs_vv, moments], noise_b)
        starts = (start_from_cells(windows, value_vd, chance_k, self._states, _PRIOR) for chance_k in q.chance_rk)
        fits = [self.fitted(windows, one, value_vd, _ROUNDS) for one in starts]
        best = max(fits, key=lambda fit: fit.log).chain
        q = replace(q, chain=best, starts_v=starts_v, pairs_vv=pairs_vv, noise_b=noise_b)
        # All blocks count in the share of clipped people, so that it is not used here.
        released, step = self._released(q, 0.0), partial(self.stepped, value_v=value_vd)
        return replace(q, chain=corrected(best, windows, released, self._laws, step, _ROUNDS))

    def read(self, released: Sequence[Floats], noise_b: Floats) -> tuple[Windows, Floats]:
        """Windows, and means and variances of the points of each cell, from what the blocks released.

        Args:
            released: sums of the blocks, in their order.
            noise_b: noise std of each.
        """
        starts_v, pairs_vv, moments = released
        first_v = denoised_totals(starts_v, noise_b[0])
        pairs_vv = denoised_pairs(pairs_vv, noise_b[1])
        # The pairs show a sequence's second point: here each ends with its first one.
        windows = Windows(np.hstack([np.zeros_like(pairs_vv), first_v[:, None]]), pairs_vv)
        return windows, self.cells.values(moments, noise_b[2])

    def _laws(self, chain: HiddenChain) -> ChainLaws:
        """Means of the distributions."""
        shown = chain.emissions
        assert isinstance(shown, GaussianEmissions)
        table = CellTable(shown.mean_dk.T, np.log(shown.variance_dk.T), self.cells.end_g)
        return ChainLaws(*chain.laws(expected=False), table)

    def _released(self, q: HiddenCellsPosterior, clipped: float) -> ReleasedWindows:
        std_b, units = (float(q.noise_b[0]), float(q.noise_b[1])), float(q.starts_v.sum())
        return ReleasedWindows.of(
            (q.starts_v, q.pairs_vv), std_b, units, self.sizes(self.n_symbols), self.max_length, clipped
        )

    def step_errors(
        self, q: HiddenCellsPosterior, rng: np.random.Generator, clipped: float, *, noise_aware: bool = True
    ) -> Floats:
        """Standard errors of the steps, (K, K), from cells of starts and pairs of cells.

        Args:
            q: as fitted.
            rng: public randomness.
            clipped: share of people who were clipped, as it was released; 0: it is not known.
            noise_aware: whether the noise counts.
        """
        return step_errors(self._laws(q.chain), self._released(q, clipped), rng, noise_aware=noise_aware)

    def score(self, q: HiddenCellsPosterior, rows: NumberRows) -> Floats:
        """Log-density of the points of each sequence, (n,), in nats; what is missing says nothing."""
        return passes.log_likelihood(q.chain, rows.indptr, rows.value_td)

    @staticmethod
    def _states(mean_dk: Floats) -> GaussianEmissions:
        """Wide states around these means."""
        one_dk = np.ones_like(mean_dk)
        return GaussianEmissions(mean_dk, one_dk, one_dk, _WIDE**2 * one_dk)
