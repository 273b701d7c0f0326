"""Second moments of hidden units with the weight of each visible unit: the largest block of a belief network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape, upper_norms
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.belief_network import kernel as kernel


@dataclass(frozen=True)
class HiddenMoments:
    """⟨ξ_j⟩ ⟨zzᵀ⟩ of every example, (J, K(K+1)/2) when packed, as factors; private.

    Attributes:
        xi_nj: ⟨ξ⟩, at least 0.
        pi_nk: ⟨z⟩ in [0, 1]; ⟨z_k z_k'⟩ = π_k π_k' off the diagonal and π_k on it.
    """

    xi_nj: Floats
    pi_nk: Floats

    def of_block(self, block: Block, num_rows: int) -> HiddenMoments:
        """Itself, of the block's visible and hidden units."""
        num_hidden = self.pi_nk.shape[1]
        check_shape((*self.xi_nj.shape, num_hidden * (num_hidden + 1) // 2), num_rows, *block.packed_shape)
        return self

    def norms(self) -> Floats:
        """‖ξ‖ · ‖⟨zzᵀ⟩‖_F."""
        square_nk = self.pi_nk**2
        # ‖⟨zzᵀ⟩‖² = (Σπ²)² - Σπ⁴ + Σπ²; the slack covers the roundings of sums of K numbers below 1.
        pairs_n = square_nk.sum(axis=1) ** 2 - (square_nk**2).sum(axis=1) + square_nk.sum(axis=1)
        slack = 1.0 + (8 * self.pi_nk.shape[1] + 64) * 2.0**-52
        return np.asarray(upper_norms(self.xi_nj) * np.sqrt(pairs_n) * slack)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add the products of both factors, truncated to integers."""
        kernel.add_moments(self.xi_nj, self.pi_nk, weights, grid.step, out)
