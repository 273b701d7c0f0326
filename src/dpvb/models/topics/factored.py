"""Topic statistics as contributions: factors that are multiplied where they are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.topics import kernel


@dataclass(frozen=True)
class Factored:
    """Topic statistics s_n[v, k] = theta_nk · beta_vk · ratio_j over the words v of document n, never built.

    Attributes:
        indptr, indices: CSR structure of the documents; entry j is word indices[j].
        ratio: weight of entry j, count over mixture probability.
        theta: (n, K) unnormalised topic proportions.
        beta: (V, K) unnormalised word probabilities.
        norm: (n,) proven upper bounds on ‖s_n‖_F of these very numbers.
        engine: which accumulation to use.
    """

    indptr: Ints
    indices: NDArray[np.int32]
    ratio: Floats
    theta: NDArray[Any]
    beta: NDArray[Any]
    norm: Floats
    engine: Literal["numba", "numpy"] = "numba"

    def of_block(self, block: Block, num_rows: int) -> Factored:
        """Itself, of the block's words and topics."""
        check_shape((*self.norm.shape, *self.beta.shape), num_rows, *block.shape)
        return self

    def norms(self) -> Floats:
        """Norms found by the local step."""
        return self.norm

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate each word's K entries and add them, in the kernel, which sets negative ones to 0."""
        kernel.accumulate(
            self.indptr,
            self.indices,
            self.ratio,
            self.theta,
            weights,
            self.beta,
            grid.step,
            out,
            bound=grid.bound,
            engine=self.engine,
        )

    def nonnegative(self) -> Factored:
        """Itself: the kernel sets negative entries to 0."""
        return self
