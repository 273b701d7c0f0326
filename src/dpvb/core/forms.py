"""Forms of contributions: rows and outer products; each brings its units onto the grid itself.

    a unit's statistic                              form
    any array                                       `Rows`
    a row times a number, the rows measured once    `ScaledRows`
    few entries that are not zero                   `SparseRows`
    an outer product l rᵀ                           `Kron`
    a scaled outer product x xᵀ, scale ≥ 0          `Gram`

A form may answer for itself, by a method of that name, how it is `grouped` by person, and what it is when
`nonnegative`. The general answers hold for every form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, pack_symmetric
from dpvb.core.contributions import ENTRIES, Contribution, Grid, check_shape, floats, upper_norms
from dpvb.guards.arrays import Floats, Ints
from dpvb.kernels.linear import product

# Kron's factors carry at most this many bits, and products of integers are formed 2^(53 - 2·21) rows at a time, so
# that all their sums stay below 2^53, where float64 is exact.
_FACTOR_BITS = 21
_GEMM_ROWS = 2 ** (53 - 2 * _FACTOR_BITS)
# Wider matrices of integers are added row by row of the triangle, which is slower and needs no further matrix.
_WIDE = 1024
# Room for rounding in the norm of a symmetric outer product, as the law allows: a step of the grid, in most rows.
_GRAM_ROOM = 1.0 + 2.0**-17


@final
class MeasuredRows:
    """Rows and upper bounds on their norms, which are found here alone, once for many statistics.

    Attributes:
        x_nd: rows (n, d) in float64; read-only.
        length_n: proven upper bounds on their norms, (n,); read-only.
    """

    def __init__(self, x_nd: Floats) -> None:
        values = floats(x_nd)
        self.x_nd = values if values.flags.owndata else values.copy()
        self.length_n = upper_norms(self.x_nd)
        self.x_nd.flags.writeable = self.length_n.flags.writeable = False


def turned(x_nd: Floats, matrix_de: Floats) -> MeasuredRows:
    """Rows times a public matrix, each row's bits its own."""
    return MeasuredRows(product(x_nd, matrix_de))


def _truncated_sum(value_nd: Floats, factor_n: Floats, grid: Grid) -> Ints:
    """Σ_n trunc(factor_n · value_n / grid.step); rows whose factor is zero are not read."""
    used: Any = slice(None) if factor_n.all() else np.flatnonzero(factor_n)
    value_nd, factor_n = value_nd[used], factor_n[used]
    num_rows, d = value_nd.shape
    block, total = max(1, ENTRIES // max(1, d)), np.zeros(d, dtype=np.int64)
    steps, whole = np.empty((min(block, num_rows), d)), np.empty((min(block, num_rows), d), dtype=np.int64)
    for start in range(0, num_rows, block):
        step_n = steps[: num_rows - start]
        # The grid is a power of two: the second product is exact, and the first errs by 2⁻⁵³ at most.
        np.multiply(value_nd[start : start + block], factor_n[start : start + block, None], out=step_n)
        step_n *= 1.0 / grid.step
        # Conversion to integers truncates.
        np.copyto(whole[: len(step_n)], step_n, casting="unsafe")
        total += whole[: len(step_n)].sum(axis=0)
    return total


@dataclass(frozen=True)
class Rows:
    """Dense statistics, one row a unit: values of shape (n, *block shape), those of a symmetric block full matrices.

    Attributes:
        values: of any type of real numbers. The halves of a symmetric block's matrices are averaged.
        symmetric: whether the values are full matrices that travel as their triangles; `of_block` sets it.
    """

    values: Floats
    symmetric: bool = False

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """The values in float64."""
        values = floats(self.values)
        check_shape(values.shape, num_rows, *block.shape)
        if block.symmetric:
            with np.errstate(all="ignore"):
                values = 0.5 * values + 0.5 * np.swapaxes(values, -1, -2)
        return replace(self, values=values, symmetric=block.symmetric)

    def norms(self) -> Floats:
        """Row norms; a row with NaN or infinity has norm inf and is dropped by the wall."""
        return upper_norms(self.values)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        shape = self.values.shape[1:]
        flat_nd = self.values.reshape(len(self.values), math.prod(shape))
        shaped = _truncated_sum(flat_nd, weights, grid).reshape(shape)
        out += pack_symmetric(shaped) if self.symmetric else shaped

    def nonnegative(self) -> Contribution:
        """Negative entries set to 0."""
        return replace(self, values=_without_negative(self.values))

    def grouped(self, unit_of_row: Ints, num_units: int) -> Rows:
        """The sums of the units' rows, so that a unit's own norm is used."""
        finite = np.isfinite(self.norms())
        total = np.zeros((num_units, *self.values.shape[1:]))
        np.add.at(total, unit_of_row[finite], self.values[finite])
        return Rows(total, self.symmetric)


@dataclass(frozen=True)
class ScaledRows:
    """Statistics s_n = scale_n · x_n of rows that were measured: the products are never stored.

    Attributes:
        rows: the rows (n, d) with their norms.
        scale_n: (n,) scales of either sign.
    """

    rows: MeasuredRows
    scale_n: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """The scales in float64."""
        scale_n = floats(self.scale_n)
        check_shape(self.rows.x_nd.shape, num_rows, *block.shape)
        check_shape(scale_n.shape, num_rows)
        return ScaledRows(self.rows, scale_n)

    def norms(self) -> Floats:
        """|scale_n| times the row's length; NaN or infinity where either is."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # The addend covers a product that underflows.
            return np.asarray(np.abs(self.scale_n) * self.rows.length_n * (1.0 + 2.0**-50) + 2.0**-1000)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        with np.errstate(under="ignore", invalid="ignore"):
            factor_n = np.where(weights != 0, weights * self.scale_n, 0.0)
        # A subnormal factor has few bits; its row is below the grid unless it lies within a step of overflow.
        out += _truncated_sum(self.rows.x_nd, np.where(np.abs(factor_n) >= 2.0**-1021, factor_n, 0.0), grid)

    def nonnegative(self) -> Contribution:
        """The products, without their negative entries."""
        return self._products().nonnegative()

    def grouped(self, unit_of_row: Ints, num_units: int) -> ScaledRows:
        """The sums of the units' products; a unit of one row keeps its scale, and so every bit."""
        usable = np.flatnonzero(np.isfinite(self.norms()))
        unit, number_u = unit_of_row[usable], np.bincount(unit_of_row[usable], minlength=num_units)
        total, scale_u = np.zeros((num_units, self.rows.x_nd.shape[1])), np.ones(num_units)
        alone = number_u[unit] == 1
        total[unit[alone]], scale_u[unit[alone]] = self.rows.x_nd[usable[alone]], self.scale_n[usable[alone]]
        others = usable[~alone]
        np.add.at(total, unit[~alone], self.rows.x_nd[others] * self.scale_n[others, None])
        return ScaledRows(MeasuredRows(total), scale_u)

    def _products(self) -> Rows:
        return Rows(self.rows.x_nd * self.scale_n[:, None])


@dataclass(frozen=True)
class SparseRows:
    """Sparse statistics in compressed rows: unit n has values[indptr[n]:indptr[n+1]] at the places `indices`.

    Places number the entries of a block, of several axes row by row. Those of a unit increase strictly from 0 and lie
    within it; a unit of any other is dropped, since its norm would be another.
    """

    indptr: Ints
    indices: NDArray[np.integer[Any]]
    values: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """The values in float64; a place outside of the block is at -1, which is no place."""
        indptr, places, values = np.asarray(self.indptr), np.asarray(self.indices), floats(self.values)
        check_shape(indptr.shape, num_rows + 1)
        check_shape(places.shape, len(values))
        whole = indptr.dtype.kind in "iu" and places.dtype.kind in "iu"
        if not whole or indptr[0] != 0 or indptr[-1] != len(values) or np.any(indptr[1:] < indptr[:-1]):
            raise ValueError("indptr runs from 0 to the number of values, and places are whole numbers.")
        if block.symmetric:
            raise ValueError("a symmetric block takes no sparse rows.")
        inside = (places >= 0) & (places < math.prod(block.shape))
        return SparseRows(indptr.astype(np.int64), np.where(inside, places, -1).astype(np.int64), values)

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
        np.add.at(out, np.unravel_index(self.indices[used], out.shape), steps)

    def nonnegative(self) -> Contribution:
        """Negative values set to 0."""
        return replace(self, values=_without_negative(self.values))

    def grouped(self, unit_of_row: Ints, num_units: int) -> SparseRows:
        """The sums of the units' rows, so that a unit's own norm is used; a unit of one row keeps every entry."""
        length_n = np.diff(self.indptr)
        used = np.flatnonzero(np.repeat(np.isfinite(self.norms()), length_n))
        unit, place = np.repeat(unit_of_row, length_n)[used], self.indices[used]
        # Entries of a unit at one place follow each other in the order of the unit's rows.
        order = np.lexsort((place, unit))
        unit, place = unit[order], place[order]
        first = np.flatnonzero((np.diff(unit, prepend=-1) != 0) | (np.diff(place, prepend=-1) != 0))
        total = np.add.reduceat(self.values[used][order], first) if len(first) else np.zeros(0)
        indptr = np.append(0, np.cumsum(np.bincount(unit[first], minlength=num_units)))
        return SparseRows(indptr, place[first], total)


@dataclass(frozen=True)
class Kron:
    """Outer products l_n ⊗ r_n of left (n, a) and right (n, b) factors: the sum is one exact integer GEMM."""

    left: Floats
    right: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """The factors in float64."""
        left, right = floats(self.left), floats(self.right)
        check_shape(left.shape[:1] + left.shape[1:] + right.shape[1:], num_rows, *block.shape)
        check_shape(right.shape[:1], num_rows)
        return Kron(left, right)

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

    def nonnegative(self) -> Contribution:
        """Negative entries of both factors set to 0."""
        return Kron(_without_negative(self.left), _without_negative(self.right))


@dataclass(frozen=True)
class Gram:
    """Symmetric outer products s_n = scale_n · x_n x_nᵀ of a "gram" block (d, d): the sum is one exact integer syrk.

    Attributes:
        x_nd: (n, d) factors.
        scale_n: (n,) nonnegative scales.
    """

    x_nd: Floats
    scale_n: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Both in float64."""
        x_nd, scale_n = floats(self.x_nd), floats(self.scale_n)
        length, d = x_nd.shape
        check_shape((length, d * (d + 1) // 2), num_rows, *block.packed_shape)
        check_shape(scale_n.shape, num_rows)
        return Gram(x_nd, scale_n)

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
        block, gram = np.empty((min(most, len(used)), d)), np.zeros((d, d), order="F")
        total = None if d > _WIDE else np.zeros((d, d), dtype=np.int64)
        for start in range(0, len(used), most):
            rows = slice(start, start + most)
            u = np.take(self.x_nd, used[rows], axis=0, out=block[: len(used[rows])], mode="clip")
            _round_rows(u, factor_n[rows])
            # The rank-k update forms one triangle, in half the time of a product; its scale is a power of two.
            scale = 2.0 ** (square_exponent - step_exponent)
            gram = dsyrk(scale, u.T, c=gram, lower=1, overwrite_c=1)
            if total is None:
                _add_triangle(gram.T, out)
            else:
                total += gram.T.astype(np.int64)
        if total is not None:
            out += pack_symmetric(total)


def _round_rows(x_nd: Floats, factor_n: Floats) -> None:
    """Turn x into integers nearest to factor·x, in place, none of its rows longer than _GRAM_ROOM allows.

    Truncating every entry would shorten all rows alike, a bias that sums cannot average out. Where rounding made a row
    too long, as many of its lengthened entries are taken back as needed, from the left.
    """
    # Rows are rounded a few at a time, in the cache.
    for start in range(0, len(x_nd), rows := max(1, ENTRIES // x_nd.shape[1])):
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
class _RowsOfUnits:
    """Several rows a unit: a unit's norm is bounded by the sum of its rows' norms."""

    rows: Contribution
    unit_of_row: Ints
    num_units: int

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        return replace(self, rows=self.rows.of_block(block, num_rows))

    def norms(self) -> Floats:
        row_norms = self.rows.norms()
        usable = np.isfinite(row_norms)
        total = np.bincount(self.unit_of_row, weights=np.where(usable, row_norms, 0.0), minlength=self.num_units)
        # Rounding is charged by the unit's own number of additions: a norm must not depend on the rest of the batch.
        added = np.maximum(np.bincount(self.unit_of_row, minlength=self.num_units) - 1, 0)
        return total * (1.0 + added * 2.0**-52)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        usable = np.isfinite(self.rows.norms())
        self.rows.accumulate(np.where(usable, weights[self.unit_of_row], 0.0), grid, out)

    def nonnegative(self) -> Contribution:
        return replace(self, rows=nonnegative(self.rows))


@dataclass(frozen=True)
class _UnitByUnit:
    """Statistics of a form that is not known here, without their negative entries: each unit is summed by itself."""

    units: Contribution

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        return _UnitByUnit(self.units.of_block(block, num_rows))

    def norms(self) -> Floats:
        return self.units.norms()

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        for n in np.flatnonzero(weights):
            alone, out_of_unit = np.zeros_like(weights), np.zeros_like(out)
            alone[n] = weights[n]
            self.units.accumulate(alone, grid, out_of_unit)
            out += np.maximum(out_of_unit, 0)


def grouped(contribution: Contribution, unit_of_row: Ints, num_units: int) -> Contribution:
    """Contributions of units (persons) that hold several rows each.

    Dense rows are summed first, so that a unit's own norm is used; otherwise the triangle inequality bounds
    it. A row with NaN or infinity is dropped, the rest of its unit stays.
    """
    by_unit = getattr(contribution, "grouped", None)
    return _RowsOfUnits(contribution, unit_of_row, num_units) if by_unit is None else by_unit(unit_of_row, num_units)


def nonnegative(contribution: Contribution) -> Contribution:
    """The same statistics with their negative entries set to 0, before norms are taken.

    So any two of them have a nonnegative inner product, whatever q they were found at.
    """
    without_negative = getattr(contribution, "nonnegative", None)
    return _UnitByUnit(contribution) if without_negative is None else without_negative()


def _without_negative(values: Floats) -> Floats:
    """NaN stays: whoever holds it is dropped."""
    return np.maximum(values, 0.0) if (values < 0).any() else values


def is_gram(contribution: Contribution) -> bool:
    """Whether every statistic is a sum of outer products x xᵀ with nonnegative scales, by construction."""
    return isinstance(contribution.rows if isinstance(contribution, _RowsOfUnits) else contribution, Gram)
