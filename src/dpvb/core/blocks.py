"""Blocks: named parts of a sufficient statistic with bounds, domains and packed forms; and contributions to them.

A contribution is one batch's per-unit statistics as a linear map from unit weights to a block. The wall needs two
things of a batch: every unit's norm, to choose its weight, and the weighted sum. One identity ties them together, for
every unit n, with e_n the weights that are 1 at n and 0 elsewhere:

    ‖accumulate(e_n)‖·grid.step  ≤  norms()[n]  ≤  (1 + 1e-5)·‖s_n‖ + tiny

and a unit of weight zero is never read. `of_block` comes first: an array of another shape than its block's is not a
contribution to it. Each form brings its units onto the integer grid itself, so that sums are exact and do not depend on
order, chunks or threads. The summand of a unit depends only on the unit, its weight and the public grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number

#: When a block is released.
Phase = Literal["first", "second", "third", "step", "midway", "last"]

_DOMAINS = ("real", "nonnegative", "psd", "gram")
#: In the order of their first releases, but for "midway", which lies between steps.
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True)
class Block:
    """One named part of the statistic of a model; every field is public.

    Attributes:
        shape: Shape of the block; that of a symmetric block ends in two equal axes.
        bound: Largest L2 norm of the contribution of a unit, greater than 0; clipping enforces it.
        domain: Domain of the sum without noise, which specifies the projection, the packed form (upper triangle of a
            symmetric matrix) and the swap ratio. "real" (default); "nonnegative": the wall sets negative entries to 0;
            "psd": symmetric matrices whose sum the model ensures to be positive semidefinite; "gram": positive
            semidefinite by construction, since the wall accepts only `dpvb.Gram` and `dpvb.GramOfSums`.
        phase: Time of the release. "first" is released once and does not depend on q; "second" and "third" follow once,
            each at the q of the previous phase; "step" (default) in every step; "midway" once between two steps; "last"
            once at the end.
        average: Whether the block is a statistic, averaged over steps (True, default), or a score at the current q
            (False).
        weight: Share of the noise budget of its release, relative to other blocks; the noise decreases with it.
            Default: 1.

    Raises:
        ParameterError: If a field is outside its range.

    Examples:
        >>> import dpvb
        >>> dpvb.Block((3, 3), bound=1.0, domain="gram").packed_shape
        (6,)
    """

    shape: tuple[int, ...]
    bound: float
    domain: Literal["real", "nonnegative", "psd", "gram"] = "real"
    phase: Phase = "step"
    average: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (tuple, list)):
            raise ParameterError(f"block shape must be a tuple of whole numbers, got {self.shape!r}.")
        plain = {
            "shape": tuple(check_integer("block shape", length, low=1) for length in self.shape),
            "bound": check_number("block bound", self.bound, low=2.0**-500, high=2.0**500),
            "weight": check_number("block weight", self.weight, low=1e-9, high=1e9),
        }
        for name, value in plain.items():  # A plan is told by JSON, which knows no types of NumPy.
            object.__setattr__(self, name, value)
        check_choice("block domain", self.domain, _DOMAINS)
        check_choice("block phase", self.phase, PHASES)
        if self.symmetric and (len(self.shape) < 2 or self.shape[-1] != self.shape[-2]):
            raise ParameterError(f"A {self.domain} block ends in two equal axes, got shape {self.shape}.")

    @property
    def symmetric(self) -> bool:
        """Whether the block contains symmetric matrices."""
        return self.domain in ("psd", "gram")

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Shape of the packed block: symmetric matrices are stored as triangles, diagonals first."""
        if not self.symmetric:
            return self.shape
        d = self.shape[-1]
        return (*self.shape[:-2], d * (d + 1) // 2)

    def noise_parts(self) -> list[tuple[Any, float]]:
        """Parts of the packed block, each with its noise standard deviation relative to a scaled coordinate.

        An off-diagonal entry represents two equal entries: iid noise on svec(A) = (A_ii, √2·A_ij) has standard
        deviation 1/√2 on A_ij.
        """
        if not self.symmetric:
            return [(..., 1.0)]
        d = self.shape[-1]
        return [((..., slice(d)), 1.0), ((..., slice(d, None)), math.sqrt(0.5))]

    def pack(self, value: Floats) -> Floats:
        """Return an array of the block's shape in packed form."""
        return pack_symmetric(value) if self.symmetric else value

    def unpack(self, packed: Floats) -> Floats:
        """Return a packed array in the block's shape."""
        return unpack_symmetric(packed, self.shape[-1]) if self.symmetric else packed

    def project(self, value: Floats) -> Floats:
        """Return the nearest point of the domain of the block (Frobenius norm)."""
        if self.domain == "nonnegative":
            return np.maximum(value, 0.0)
        return positive_semidefinite(value) if self.symmetric else value


def triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the entries of a packed (d, d) matrix: the diagonal, then the upper part by rows."""
    row, column = np.triu_indices(d, 1)
    return np.concatenate([np.arange(d), row]), np.concatenate([np.arange(d), column])


def pack_symmetric(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return diagonals and upper triangles of (..., d, d) matrices as (..., d(d+1)/2)."""
    row, column = triangle(matrix.shape[-1])
    return matrix[..., row, column]


def unpack_symmetric(packed: Floats, d: int) -> Floats:
    """Return symmetric (..., d, d) matrices from the result of `pack_symmetric`."""
    matrix = np.empty((*packed.shape[:-1], d, d))
    stop = d
    for i in range(d):
        start, stop = stop, stop + d - i - 1
        matrix[..., i, i] = packed[..., i]
        matrix[..., i, i + 1 :] = matrix[..., i + 1 :, i] = packed[..., start:stop]
    return matrix


def positive_semidefinite(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrices to symmetric (..., d, d) ones (Frobenius norm)."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    scaled: Floats = vectors * np.maximum(eigenvalues, 0.0)[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))


def swap_ratio(blocks: Mapping[str, Block]) -> float:
    """Return the largest distance between two clipped contributions, relative to the clip norm.

    √2 if the wall ensures that any two contributions have a nonnegative inner product (nonnegative entries, Gram
    matrices); otherwise 2, even if the model declares positive semidefinite matrices.
    """
    certain = all(block.domain in ("nonnegative", "gram") for block in blocks.values())
    return math.sqrt(2.0) if certain else 2.0


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
        values = total.astype(np.float64)
        values *= self.step
        return values


class Contribution(Protocol):
    """The part of one block of a batch that the wall uses."""

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


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield ranges of the rows of an array, of about `ENTRIES` entries each."""
    rows = max(1, ENTRIES // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], rows):
        yield slice(start, start + rows)


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
