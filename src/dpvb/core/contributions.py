"""Contributions: one batch's per-unit statistics as a linear map from unit weights to blocks.

The wall needs two things of a batch: every unit's norm, to choose its weight, and the weighted sum. One law
ties them together, for every unit n, with e_n the weights that are 1 at n and 0 elsewhere:

    ‖accumulate(e_n)‖·grid.step  ≤  norms()[n]  ≤  (1 + 1e-5)·‖s_n‖ + tiny

and a unit of weight zero is never read. Each form brings its units onto the integer grid itself, so that sums
are exact and do not depend on order, chunks or threads. What a unit adds depends on nothing but the unit, its
weight and the public grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Floats, Ints, pack_symmetric
from dpvb.kernels.linear import product

# Kron's factors carry at most this many bits, and products of integers are formed 2^(53 - 2·21) rows at a time, so
# that all their sums stay below 2^53, where float64 is exact.
_FACTOR_BITS = 21
_GEMM_ROWS = 2 ** (53 - 2 * _FACTOR_BITS)
# Wider matrices of integers are added row by row of the triangle, which is slower and needs no further matrix.
_WIDE = 1024
# Room for rounding in the norm of a symmetric outer product, as the law allows: a step of the grid, in most rows.
_GRAM_ROOM = 1.0 + 2.0**-17
# Entries that are taken at a time: they stay in the cache.
_ENTRIES = 2**16


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
    """What the wall reads of one block of a batch."""

    def norms(self) -> Floats:
        """Proven upper bounds on every unit's L2 norm; inf or NaN where it cannot be represented."""

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add Σ_n trunc(weights[n]·s_n / grid.step) to out (packed shape), in place and exactly."""


Contributions = Mapping[str, Contribution]


def upper_norms(values: Floats) -> Floats:
    """Row-wise L2 norms that are never below the true ones and do not overflow before they must.

    A row that holds NaN or infinity gets the norm inf. Summing d squares in float64 errs by at most (d + 2)·2⁻⁵²
    relatively, as long as they are neither huge nor tiny.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), math.prod(values.shape[1:]))
    num_rows, d = flat.shape
    if d == 0:
        return np.zeros(num_rows)
    block = max(1, _ENTRIES // d)
    squares, square_n = np.empty((min(block, num_rows), d)), np.empty(num_rows)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, num_rows, block):
            own = square_n[start : start + block]
            # Not einsum: its blocks depend on a row's place in the batch, and a norm's last bit must not.
            np.add.reduce(np.square(flat[start : start + block], out=squares[: len(own)]), axis=1, out=own)
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


def turned(x_nd: Floats, matrix_de: Floats) -> tuple[Floats, Floats]:
    """Rows times a public matrix, each row's bits its own, and upper bounds on the norms of what that gives."""
    x_ne = product(x_nd, matrix_de)
    x_ne.flags.writeable = False
    return x_ne, upper_norms(x_ne)


def _truncated_sum(value_nd: Floats, factor_n: Floats, grid: Grid) -> Ints:
    """Σ_n trunc(factor_n · value_n / grid.step); rows whose factor is zero are not read."""
    used: Any = slice(None) if factor_n.all() else np.flatnonzero(factor_n)
    value_nd, factor_n = value_nd[used], factor_n[used]
    num_rows, d = value_nd.shape
    block, total = max(1, _ENTRIES // max(1, d)), np.zeros(d, dtype=np.int64)
    steps, whole = np.empty((min(block, num_rows), d)), np.empty((min(block, num_rows), d), dtype=np.int64)
    for start in range(0, num_rows, block):
        own = steps[: num_rows - start]
        # The grid is a power of two: the second product is exact, and the first errs by 2⁻⁵³ at most.
        np.multiply(value_nd[start : start + block], factor_n[start : start + block, None], out=own)
        own *= 1.0 / grid.step
        # Conversion to integers truncates.
        np.copyto(whole[: len(own)], own, casting="unsafe")
        total += whole[: len(own)].sum(axis=0)
    return total


@dataclass(frozen=True)
class Rows:
    """Dense statistics, one row a unit: values of shape (n, *block shape), psd blocks packed.

    With symmetric=True the values are full (n, ..., d, d) symmetric matrices.
    """

    values: Floats
    symmetric: bool = False

    def norms(self) -> Floats:
        """Row norms; a row with NaN or infinity has norm inf and is dropped by the wall."""
        return upper_norms(self.values)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        shape = self.values.shape[1:]
        flat_nd = self.values.reshape(len(self.values), math.prod(shape))
        shaped = _truncated_sum(flat_nd, weights, grid).reshape(shape)
        out += pack_symmetric(shaped) if self.symmetric else shaped


@dataclass(frozen=True)
class ScaledRows:
    """Statistics s_n = scale_n · x_n of rows whose lengths are known: the products are never stored.

    Attributes:
        x_nd: (n, d) rows.
        length_n: (n,) proven upper bounds on their norms.
        scale_n: (n,) scales of either sign.
    """

    x_nd: Floats
    length_n: Floats
    scale_n: Floats

    def norms(self) -> Floats:
        """|scale_n| times the row's length; NaN or infinity where either is."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # The addend covers a product that underflows.
            return np.asarray(np.abs(self.scale_n) * self.length_n * (1.0 + 2.0**-50) + 2.0**-1000)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        with np.errstate(under="ignore", invalid="ignore"):
            factor_n = np.where(weights != 0, weights * self.scale_n, 0.0)
        # A subnormal factor has few bits; its row is below the grid unless it lies within a step of overflow.
        out += _truncated_sum(self.x_nd, np.where(np.abs(factor_n) >= 2.0**-1021, factor_n, 0.0), grid)


@dataclass(frozen=True)
class SparseRows:
    """Sparse statistics in compressed rows: unit n has values[indptr[n]:indptr[n+1]] at the places `indices`.

    The places of a unit increase strictly from 0; a unit of any other is dropped, since its norm would be another.
    """

    indptr: Ints
    indices: NDArray[np.int32]
    values: Floats

    def norms(self) -> Floats:
        """Row norms; squares are added one row at a time, in the row's own order."""
        length_n = np.diff(self.indptr)
        row = np.repeat(np.arange(len(length_n)), length_n)
        before = np.append(-1, self.indices[:-1]) if len(self.indices) else self.indices
        before = np.where(np.diff(row, prepend=-1) > 0, -1, before)
        faulty = np.bincount(row, weights=self.indices <= before, minlength=len(length_n)) > 0
        with np.errstate(over="ignore"):
            square_n = np.bincount(row, weights=self.values * self.values, minlength=len(length_n))
        # The addend covers squares that underflow.
        norm_n = np.sqrt(square_n) * (1.0 + (length_n + 8) * 2.0**-52) + length_n * 2.0**-530
        return np.where(faulty, np.inf, norm_n)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add it at its place."""
        weight = np.repeat(weights, np.diff(self.indptr))
        used = np.flatnonzero(weight)
        steps = np.trunc(self.values[used] * weight[used] / grid.step).astype(np.int64)
        np.add.at(out, self.indices[used], steps)


@dataclass(frozen=True)
class Kron:
    """Outer products l_n ⊗ r_n of left (n, a) and right (n, b) factors: the sum is one exact integer GEMM."""

    left: Floats
    right: Floats

    def norms(self) -> Floats:
        """Products of the factors' norms: the norm of an outer product."""
        with np.errstate(over="ignore", invalid="ignore"):
            return upper_norms(self.left) * upper_norms(self.right) * (1.0 + 2.0**-50)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate the balanced factors to integers and multiply them.

        The weighted unit is rewritten as (weight·‖l‖·‖r‖ · l/‖l‖) ⊗ (r/‖r‖). The first factor's norm is at most
        the block's bound, the second's at most 1; both lose magnitude only, so their product does too. (Unit
        vectors first: weight·‖r‖·l may pass through a subnormal number, which has few bits.)
        """
        used = np.flatnonzero(weights)
        if not len(used):
            return
        left, right, weight = self.left[used], self.right[used], weights[used]
        left_norm, right_norm = upper_norms(left), upper_norms(right)
        unit_left = np.divide(left, left_norm[:, None], out=np.zeros_like(left), where=left_norm[:, None] > 0)
        unit_right = np.divide(right, right_norm[:, None], out=np.zeros_like(right), where=right_norm[:, None] > 0)
        balanced_left = unit_left * (weight * (left_norm * right_norm))[:, None]
        bound_exponent = math.frexp(grid.bound)[1]
        spare = bound_exponent - (math.frexp(grid.step)[1] - 1)
        bits = min(_FACTOR_BITS, spare // 2)
        left_grid = math.ldexp(1.0, bound_exponent - bits)
        total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
        for start in range(0, len(used), _GEMM_ROWS):
            rows = slice(start, start + _GEMM_ROWS)
            integer_left = np.trunc(balanced_left[rows] / left_grid)
            integer_right = np.trunc(unit_right[rows] * 2.0**bits)
            total += (integer_left.T @ integer_right).astype(np.int64)
        out += total << (spare - 2 * bits)


@dataclass(frozen=True)
class Gram:
    """Symmetric outer products s_n = scale_n · x_n x_nᵀ of a "gram" block (d, d): the sum is one exact integer syrk.

    Attributes:
        x_nd: (n, d) factors.
        scale_n: (n,) nonnegative scales.
    """

    x_nd: Floats
    scale_n: Floats

    def norms(self) -> Floats:
        """scale_n · ‖x_n‖², with room for rounding; NaN, which the wall drops, where the scale is negative."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            length = np.sqrt(self.scale_n) * upper_norms(self.x_nd)
            # The addend covers a square that underflows.
            return np.asarray(length * length * _GRAM_ROOM + 2.0**-1000)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Round u = √(weight·scale)·x to integers and add their u uᵀ.

        ‖u‖² is at most the block's bound, and rounding keeps ‖u‖ below the norm that was declared. The grid of u is the
        finest on which sums over a product's rows stay below 2⁵³. A small weight loses half its bits alone, since both
        factors carry its root.
        """
        from scipy.linalg.blas import dsyrk

        used = np.flatnonzero(weights)
        # Fewer rows a product leave their factors more bits; wide products pay for it.
        d = self.x_nd.shape[1]
        most = _GEMM_ROWS if d > _WIDE else _GEMM_ROWS // 16
        step_exponent = math.frexp(grid.step)[1] - 1
        square_exponent = max(step_exponent, math.frexp(grid.bound * most)[1] - 53)
        with np.errstate(under="ignore"):
            factor_n = np.sqrt(weights[used] * 2.0**-square_exponent) * np.sqrt(self.scale_n[used])
        # A subnormal factor has few bits; its row is below the grid unless it lies within a step of overflow.
        factor_n = np.where(factor_n >= 2.0**-1021, factor_n, 0.0)
        block, found = np.empty((min(most, len(used)), d)), np.zeros((d, d), order="F")
        total = None if d > _WIDE else np.zeros((d, d), dtype=np.int64)
        for start in range(0, len(used), most):
            rows = slice(start, start + most)
            u = np.take(self.x_nd, used[rows], axis=0, out=block[: len(used[rows])], mode="clip")
            _round_rows(u, factor_n[rows])
            # The rank-k update forms one triangle, in half the time of a product; its scale is a power of two.
            scale = 2.0 ** (square_exponent - step_exponent)
            found = dsyrk(scale, u.T, c=found, lower=1, overwrite_c=1)
            if total is None:
                _add_triangle(found.T, out)
            else:
                total += found.T.astype(np.int64)
        if total is not None:
            out += pack_symmetric(total)


def _round_rows(x_nd: Floats, factor_n: Floats) -> None:
    """Turn x into integers nearest to factor·x, in place, none of its rows longer than _GRAM_ROOM allows.

    Truncating every entry would shorten all rows alike, a bias that sums cannot average out. Where rounding made a row
    too long, as many of its lengthened entries are taken back as needed, from the left.
    """
    # Rows are rounded a few at a time, in the cache.
    for start in range(0, len(x_nd), rows := max(1, _ENTRIES // x_nd.shape[1])):
        exact_nd, factor = x_nd[start : start + rows], factor_n[start : start + rows]
        with np.errstate(under="ignore"):
            longest_n = np.square(factor * upper_norms(exact_nd)) * (_GRAM_ROOM * (1.0 - 2.0**-40))
            exact_nd *= factor[:, None]
        rounded_nd = np.rint(exact_nd)
        # Sums of squares of integers are exact in any order.
        excess_n = np.einsum("nd,nd->n", rounded_nd, rounded_nd) - longest_n
        over = np.flatnonzero(excess_n > 0)
        size_nd = np.abs(rounded_nd[over])
        saved_nd = np.where(size_nd > np.abs(exact_nd[over]), 2.0 * size_nd - 1.0, 0.0)
        before_nd = np.cumsum(saved_nd, axis=1) - saved_nd
        shortened = (saved_nd > 0) & (before_nd < excess_n[over, None])
        rounded_nd[over] -= np.copysign(shortened, rounded_nd[over])
        exact_nd[...] = rounded_nd


def _add_triangle(matrix: Floats, out: Ints) -> None:
    """Add the upper triangle of a matrix of integers to its packed form."""
    stop = len(matrix)
    out[:stop] += matrix.diagonal().astype(np.int64)
    for i, row in enumerate(matrix):
        start, stop = stop, stop + len(row) - i - 1
        out[start:stop] += row[i + 1 :].astype(np.int64)


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

    def norms(self) -> Floats:
        """Norms found by the local step."""
        return self.norm

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate each word's K entries and add them, in the compiled kernel, which sets negative ones to 0."""
        from dpvb.models.topics import kernel

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


@dataclass(frozen=True)
class _RowsOfUnits:
    """Several rows a unit: a unit's norm is bounded by the sum of its rows' norms."""

    rows: Contribution
    unit_of_row: Ints
    num_units: int

    def norms(self) -> Floats:
        row_norms = self.rows.norms()
        usable = np.isfinite(row_norms)
        total = np.bincount(self.unit_of_row, weights=np.where(usable, row_norms, 0.0), minlength=self.num_units)
        # Rounding is charged by the unit's own number of rows: a norm must not depend on the rest of the batch.
        return total * (1.0 + np.bincount(self.unit_of_row, minlength=self.num_units) * 2.0**-52)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        usable = np.isfinite(self.rows.norms())
        self.rows.accumulate(np.where(usable, weights[self.unit_of_row], 0.0), grid, out)


def grouped(contribution: Contribution, unit_of_row: Ints, num_units: int) -> Contribution:
    """Contributions of units (persons) that hold several rows each.

    Dense rows are summed first, so that a unit's own norm is used; otherwise the triangle inequality bounds
    it. A row with NaN or infinity is dropped, the rest of its unit stays.
    """
    if isinstance(contribution, ScaledRows):
        contribution = Rows(contribution.x_nd * contribution.scale_n[:, None])
    if not isinstance(contribution, Rows):
        return _RowsOfUnits(contribution, unit_of_row, num_units)
    finite = np.isfinite(contribution.norms())
    total = np.zeros((num_units, *contribution.values.shape[1:]))
    np.add.at(total, unit_of_row[finite], contribution.values[finite])
    return Rows(total, contribution.symmetric)


@dataclass(frozen=True)
class _UnitByUnit:
    """Statistics of a form that is not known here, without their negative entries: each unit is summed by itself."""

    units: Contribution

    def norms(self) -> Floats:
        return self.units.norms()

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        for n in np.flatnonzero(weights):
            alone, own = np.zeros_like(weights), np.zeros_like(out)
            alone[n] = weights[n]
            self.units.accumulate(alone, grid, own)
            out += np.maximum(own, 0)


def nonnegative(contribution: Contribution) -> Contribution:
    """The same statistics with their negative entries set to 0, before norms are taken.

    So any two of them have a nonnegative inner product, whatever q they were found at.
    """
    match contribution:
        case Factored():  # Its kernel does so.
            return contribution
        case _RowsOfUnits():
            return replace(contribution, rows=nonnegative(contribution.rows))
        case ScaledRows():
            return Rows(_without_negative(contribution.x_nd * contribution.scale_n[:, None]))
        case Rows() | SparseRows():
            return replace(contribution, values=_without_negative(contribution.values))
        case Kron():
            return Kron(_without_negative(contribution.left), _without_negative(contribution.right))
    return _UnitByUnit(contribution)


def _without_negative(values: Floats) -> Floats:
    """NaN stays: whoever holds it is dropped."""
    return np.maximum(values, 0.0) if (values < 0).any() else values


def is_gram(contribution: Contribution) -> bool:
    """Whether every statistic is a sum of outer products x xᵀ with nonnegative scales, by construction."""
    return isinstance(contribution.rows if isinstance(contribution, _RowsOfUnits) else contribution, Gram)
