"""Blocks: named parts of a sufficient statistic with bounds, domains and packed forms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
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
            semidefinite by construction, since the wall accepts only `dpvb.Gram`.
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
