"""Blocks: the named parts of a sufficient statistic, their bounds, domains and transport."""

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
    """One named part of a model's statistic; every field is public.

    Attributes:
        shape: shape of the block; a symmetric one ends in two equal axes.
        bound: L2 norm that one unit's contribution may reach; clipping enforces it.
        domain: where the un-noised sum lies: it decides the projection, the transport (a symmetric matrix
            travels as its upper triangle) and the swap ratio. "nonnegative": the wall sets negative entries to 0.
            "psd": symmetric matrices, whose sum is positive semidefinite if the model keeps its word. "gram": the
            same by construction, since the wall takes nothing but `forms.Gram`.
        phase: "first" does not depend on q and is released once; "second" and "third" are released once after it, each
            at the q that it made; "step" at every step, "midway" once between two steps, "last" once at the end.
        average: True for a statistic, which is averaged over steps; False for a score at the current q.
        weight: share of its release's noise budget, relative to the other blocks': noise_std falls with it.

    Raises:
        ParameterError: for a field outside its range.
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
            raise ParameterError(f"a {self.domain} block ends in two equal axes, got shape {self.shape}.")

    @property
    def symmetric(self) -> bool:
        """Whether it holds symmetric matrices."""
        return self.domain in ("psd", "gram")

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Shape in which the block travels: a symmetric one as the triangles of its matrices, diagonals first."""
        if not self.symmetric:
            return self.shape
        d = self.shape[-1]
        return (*self.shape[:-2], d * (d + 1) // 2)

    def noise_parts(self) -> list[tuple[Any, float]]:
        """Parts of the packed block, each with its noise std over that of a scaled coordinate.

        An off-diagonal entry stands for two equal matrix entries: iid noise on svec(A) = (A_ii, √2·A_ij)
        has std 1/√2 on A_ij.
        """
        if not self.symmetric:
            return [(..., 1.0)]
        d = self.shape[-1]
        return [((..., slice(d)), 1.0), ((..., slice(d, None)), math.sqrt(0.5))]

    def pack(self, value: Floats) -> Floats:
        """Bring an array of the block's shape to the shape in which it travels."""
        return pack_symmetric(value) if self.symmetric else value

    def unpack(self, packed: Floats) -> Floats:
        """Bring a packed array back to the block's shape."""
        return unpack_symmetric(packed, self.shape[-1]) if self.symmetric else packed

    def project(self, value: Floats) -> Floats:
        """Return the nearest point of the block's domain (Frobenius norm)."""
        if self.domain == "nonnegative":
            return np.maximum(value, 0.0)
        return positive_semidefinite(value) if self.symmetric else value


def triangle(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the entries of a packed (d, d) matrix: the diagonal, then what is above it, row by row."""
    row, column = np.triu_indices(d, 1)
    return np.concatenate([np.arange(d), row]), np.concatenate([np.arange(d), column])


def pack_symmetric(matrix: NDArray[Any]) -> NDArray[Any]:
    """Diagonals and upper triangles of (..., d, d) matrices as (..., d(d+1)/2)."""
    row, column = triangle(matrix.shape[-1])
    return matrix[..., row, column]


def unpack_symmetric(packed: Floats, d: int) -> Floats:
    """Inverse of pack_symmetric for symmetric (..., d, d) matrices."""
    matrix = np.empty((*packed.shape[:-1], d, d))
    stop = d
    for i in range(d):
        start, stop = stop, stop + d - i - 1
        matrix[..., i, i] = packed[..., i]
        matrix[..., i, i + 1 :] = matrix[..., i + 1 :, i] = packed[..., start:stop]
    return matrix


def positive_semidefinite(matrix: Floats) -> Floats:
    """The nearest positive semidefinite matrices to symmetric (..., d, d) ones (Frobenius norm)."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    scaled: Floats = vectors * np.maximum(eigenvalues, 0.0)[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))


def swap_ratio(blocks: Mapping[str, Block]) -> float:
    """Largest distance between two clipped contributions over the clip norm.

    √2 if the wall makes sure that any two contributions have a nonnegative inner product (nonnegative entries, Gram
    matrices); else 2: a model's word that its matrices are positive semidefinite is not enough.
    """
    certain = all(block.domain in ("nonnegative", "gram") for block in blocks.values())
    return math.sqrt(2.0) if certain else 2.0
