"""Hidden Markov models of numbers: windows of cells and moments within cells are released once, then EM or VB on them.

    z_1 ~ π,   z_t+1 ~ A_z_t,   x_td ~ N(μ_dz_t, 1/τ_dz_t) in [-1, 1]        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
D, K, L             n_columns, n_states; max_length: the first L points of each sequence count
G, V                nodes of a column, from -1 to 1, and V = G^D `cells` around nodes
M, T                pairs of points, and points, in all sequences of a person
block "starts"      Σ e_{c_1} / m, c the cell of a point; norm ≤ 1
block "pairs"       M^(p-1) Σ e_{c_t} ⊗ e_{c_t+1}; norm ≤ M^p, attained by a constant sequence
block "moments"     T^(p-1) Σ e_{c_t} ⊗ (u², √2 u(1-u), (1-u)²); norm ≤ T^p √D
u                   place of a point in its cell, in [0, 1]^D; u² + 2u(1-u) + (1-u)² = 1
p, C                power, clip; that of the moments is C √(D/2)
μ, 1/τ              q.chain.emissions, see `Gaussian`: of a cell the mean and the variance count
==================  =============================================================================

The three numbers of a column have the norm u² + (1-u)² ≤ 1: they hold a count, a mean and a variance for the price of
one. All points of a cell are taken to have one law of states. A point that lacks a number is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positives
from dpvb.guards.errors import ParameterError, check_integer
from dpvb.models.sequences import cells, forward_backward, reading, settings, window_fit
from dpvb.models.sequences.cells import Cells, moments
from dpvb.models.sequences.counts import Coded, WindowCounts
from dpvb.models.sequences.hidden_chain import HiddenChain, Laws
from dpvb.models.sequences.numeric_emissions import Gaussian
from dpvb.models.sequences.rows import NumberRows
from dpvb.models.sequences.steps import StateSums, Walk
from dpvb.models.sequences.window_fit import Fit, Windows

# Nodes of a column, by the number of columns: cells as wide as a state, and few enough for the noise.
_NODES = {1: 33, 2: 9, 3: 5, 4: 3}
# Weights of the blocks in the noise.
_STARTS, _PAIRS, _MOMENTS = 0.3, 0.8, 0.5
# Iterations from each start.
_ROUNDS = 300
# Prior counts of every parameter of the laws; std of a state at the start, in a range of -1 to 1.
_PRIOR, _WIDE = 1.0, 0.25
# One law for whoever has a place alone.
_ALONE = Laws(np.ones(1), np.ones(1), np.ones((1, 1)))


@dataclass(frozen=True)
class HiddenCellsPosterior:
    """q: the chain, public chances by which the centres of R starts are drawn, (R, K), and noise std of each block."""

    chain: HiddenChain
    chance_rk: Positives
    noise_b: Nonnegatives = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True)
class HiddenCells:
    """The model; every field is public.

    Attributes:
        n_columns, n_states: D and K.
        estimate: "posterior" (variational Bayes) or "mode" (EM).
        n_init: R, how many starts are tried on what was released.
        power: p in [0.5, 1], how much persons with many points weigh: each pair of a person counts M^(p-1).
        clip: C; None: what one sequence of max_length points can reach, so that no such person is shortened.
        max_length: L.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_columns: int
    n_states: int
    estimate: str = "posterior"
    n_init: int = 5
    power: float = 1.0
    clip: float | None = 2.0
    max_length: int = 20
    length: ClassVar[int] = 2
    name: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        if check_integer("n_columns", self.n_columns, low=1) not in _NODES:
            raise ParameterError(
                f"columns must be at most {max(_NODES)}, got {self.n_columns}: cells are of all of them."
            )
        settings.check_states(self)

    @property
    def cells(self) -> Cells:
        """The grid."""
        return Cells(self.n_columns, _NODES[self.n_columns])

    @property
    def n_symbols(self) -> int:
        """V."""
        return len(self.cells)

    @property
    def bound(self) -> float:
        """C of the pairs."""
        return settings.bound(self, self.length)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Cells of starts, pairs of cells, and moments within cells; all are released once."""
        v, d, clip = self.n_symbols, self.n_columns, self.clip
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
        return HiddenCellsPosterior(chain, 1.0 - rng.random((self.n_init, k)))

    def e_step(self, q: HiddenCellsPosterior, batch: NumberRows, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of cells and their moments, whatever q is."""
        code_t, u_td = self.cells.placed(batch.value_td)
        rows, v = Coded(batch.indptr, code_t), self.n_symbols
        # One state shows everything.
        walk = Walk(batch.indptr, self.max_length, _ALONE, partial(moments, code_t, u_td))
        return {
            "starts": WindowCounts(rows, 1, v, 1, 0.0),
            "pairs": WindowCounts(rows, 2, v, self.max_length, self.power),
            "moments": StateSums(walk, "shown", (3 * self.n_columns * v, 1), self.power),
        }

    def m_step(self, s: Estimate, q: HiddenCellsPosterior) -> HiddenCellsPosterior:
        """What was released, read once, and the best of the fits to it."""
        noise_b = np.array([s.noise_std(name) for name in self.blocks])
        windows, value_vd = self.read([s.read(name) for name in self.blocks], noise_b)
        starts = (cells.start(windows, value_vd, chance_k, self._states, _PRIOR) for chance_k in q.chance_rk)
        fits = [self.fitted(windows, value_vd, one) for one in starts]
        return replace(q, chain=max(fits, key=lambda fit: fit.log).chain, noise_b=noise_b)

    def read(self, released: Sequence[Floats], noise_b: Floats) -> tuple[Windows, Floats]:
        """Windows, and means and variances of the points of each cell, from what the blocks released.

        Args:
            released: sums of the blocks, in their order.
            noise_b: noise std of each.
        """
        starts_v, pairs_vv, moments = released
        first_v = reading.totals(starts_v, noise_b[0])
        pairs_vv = reading.pairs(pairs_vv, noise_b[1])
        # Of a sequence's second point the pairs tell: here each ends with its first one.
        windows = Windows(np.hstack([np.zeros_like(pairs_vv), first_v[:, None]]), pairs_vv)
        return windows, self.cells.values(moments, noise_b[2])

    def fitted(self, windows: Windows, value_vd: Floats, start: HiddenChain) -> Fit[HiddenChain]:
        """The fit to windows of cells from a start."""
        return window_fit.fit(windows, start, value_vd, rounds=_ROUNDS, expected=self.estimate == "posterior")

    def score(self, q: HiddenCellsPosterior, rows: NumberRows) -> Floats:
        """Log-density of the points of each sequence, (n,), in nats; what is missing says nothing."""
        return forward_backward.log_likelihood(q.chain, rows.indptr, rows.value_td)

    @staticmethod
    def _states(mean_dk: Floats) -> Gaussian:
        """Wide states around these means."""
        one_dk = np.ones_like(mean_dk)
        return Gaussian(mean_dk, one_dk, one_dk, _WIDE**2 * one_dk)
