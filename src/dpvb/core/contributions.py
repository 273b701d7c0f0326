"""Contributions: one batch's per-unit statistics as a linear map from unit weights to blocks.

The wall needs two things of a batch: every unit's norm, to choose its weight, and the weighted sum. One identity
ties them together, for every unit n, with e_n the weights that are 1 at n and 0 elsewhere:

    ‖accumulate(e_n)‖·grid.step  ≤  norms()[n]  ≤  (1 + 1e-5)·‖s_n‖ + tiny

and a unit of weight zero is never read. `of_block` comes first: an array of another shape than its block's is not a
contribution to it. Each form brings its units onto the integer grid itself, so that sums
are exact and do not depend on order, chunks or threads. The summand of a unit depends only on the unit, its
weight and the public grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpvb.core.blocks import Block
from dpvb.guards.arrays import Floats, Ints

#: Entries that are taken at a time: they stay in the cache.
ENTRIES = 2**16


@dataclass(frozen=True)
class Grid:
    """The public grid of one block's integer sum.

    Attributes:
        step: one integer step in the block's units, a power of two.
        bound: norm that no weighted contribution exceeds, in the block's units.
    """

    step: float
    bound: float

    def units(self, total: Ints) -> Floats:
        """An integer sum in the block's units."""
        return total.astype(np.float64) * self.step


class Contribution(Protocol):
    """What the wall uses of one block of a batch."""

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """These statistics as the wall takes them: one for each row, exactly of the block's shape, in sound numbers.

        Raises:
            ValueError: for any other number or shape. NumPy would stretch it, and a norm would be another.
        """

    def norms(self) -> Floats:
        """Proven upper bounds on every unit's L2 norm; inf or NaN where it cannot be represented."""

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add Σ_n trunc(weights[n]·s_n / grid.step) to out (packed shape), in place and exactly."""


Contributions = Mapping[str, Contribution]


def check_shape(found: tuple[int, ...], num_rows: int, *shape: int) -> None:
    """Refuse statistics of another number or shape than a block's.

    Raises:
        ValueError: naming both; shapes are public.
    """
    if found != (num_rows, *shape):
        raise ValueError(f"A contribution has the shape {(num_rows, *shape)} for these rows, not {found}.")


def floats(values: object) -> Floats:
    """Numbers of any type in float64, in which norms are proven."""
    return np.ascontiguousarray(values, dtype=np.float64)


def upper_norms(values: Floats) -> Floats:
    """Row-wise L2 norms that are never below the true ones and do not overflow before they must.

    A row that holds NaN or infinity gets the norm inf. Summing d squares in float64 errs by at most (d + 2)·2⁻⁵²
    relatively, as long as they are neither huge nor tiny.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), math.prod(values.shape[1:]))
    num_rows, d = flat.shape
    if d == 0:
        return np.zeros(num_rows)
    block = max(1, ENTRIES // d)
    squares, square_n = np.empty((min(block, num_rows), d)), np.empty(num_rows)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, num_rows, block):
            block_square_n = square_n[start : start + block]
            # Not einsum: its blocks depend on a row's place in the batch, and a norm's last bit must not.
            np.add.reduce(
                np.square(flat[start : start + block], out=squares[: len(block_square_n)]), axis=1, out=block_square_n
            )
        norm_n = np.sqrt(square_n) * (1.0 + (d + 8) * 2.0**-52)
    extreme = np.flatnonzero(~((square_n > 2.0**-900) & (square_n < 2.0**900)))
    norm_n[extreme] = _extreme_norms(flat[extreme])
    return norm_n


def _extreme_norms(flat: Floats) -> Floats:
    """Upper norms of rows whose squares may overflow or underflow: scaled by a power of two, which is exact, first."""
    largest = np.abs(flat).max(axis=1, initial=0.0)
    finite = np.isfinite(largest)
    _, exponent = np.frexp(np.where(finite, largest, 0.0))
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(np.where(finite[:, None], flat, 0.0), -exponent[:, None])
        squares = np.add.reduce(np.square(scaled, out=scaled), axis=1)
        norm = np.ldexp(np.sqrt(squares) * (1.0 + (flat.shape[1] + 8) * 2.0**-52), exponent)
    # Entries below the smallest normal number may lose bits when scaled; the addend covers them.
    return np.where(finite, norm + np.where(largest > 0, 2.0**-1000, 0.0), np.inf)
