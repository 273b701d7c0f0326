"""Forms of contributions, such as rows and outer products; each form rounds its units to the grid.

    statistic of a unit                             form
    any array                                       `Rows`
    a row times a number, norms computed once       `ScaledRows`
    few nonzero entries                             `SparseRows`
    an outer product l rᵀ                           `Kron`
    a scaled outer product x xᵀ, scale ≥ 0          `Gram`
    the outer product of a sum over a unit's rows   `GramOfSums`

A form may define its own methods `grouped`, for persons with several rows, `nonnegative`, and `touched`, for a sum over
few rows of the block. Otherwise, general versions are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import ENTRIES, Block, Contribution, Grid, check_shape, floats, pack_symmetric, upper_norms
from dpvb.guards.arrays import Floats, Ints
from dpvb.kernels.linear import product

# Kron's factors carry at most this many bits, and products of integers are formed 2^(53 - 2·21) rows at a time, so
# that all their sums stay below 2^53, where float64 is exact.
_FACTOR_BITS = 21
_GEMM_ROWS = 2 ** (53 - 2 * _FACTOR_BITS)
# Wider matrices of integers are added row by row of the triangle, which is slower and needs no further matrix.
_WIDE = 1024
# Room for rounding in the norm of a symmetric outer product: a step of the grid, in most rows.
_GRAM_ROOM = 1.0 + 2.0**-17


@final
class MeasuredRows:
    """Rows with upper bounds on their norms, which are computed once for many statistics.

    Attributes:
        x_nd: Rows, (n, d), in float64; read-only.
        length_n: Proven upper bounds on their Euclidean norms, (n,); read-only.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> dpvb.MeasuredRows(np.array([[3.0, 4.0]])).length_n >= 5.0
        array([ True])
    """

    def __init__(self, x_nd: Floats) -> None:
        values = floats(x_nd)
        self.x_nd = values if values.flags.owndata else values.copy()
        self.length_n = upper_norms(self.x_nd)
        self.x_nd.flags.writeable = self.length_n.flags.writeable = False


def turned(x_nd: Floats, matrix_de: Floats) -> MeasuredRows:
    """Return rows times a public matrix; the bits of a row depend only on that row."""
    return MeasuredRows(product(x_nd, matrix_de))


def _truncated_sum(value_nd: Floats, factor_n: Floats, grid: Grid) -> Ints:
    """Return Σ_n trunc(factor_n · value_n / grid.step); rows whose factor is zero are not read."""
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
    """Dense statistics, one row per unit: values of shape (n, *block shape), full matrices for a symmetric block.

    Attributes:
        values: Real numbers of any type. The two halves of symmetric matrices are averaged.
        symmetric: Whether values are full matrices that are stored as triangles; set by `of_block`. Default: False.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> dpvb.Rows(np.array([[3.0, 4.0], [0.0, 1.0]])).norms()
        array([5., 1.])
    """

    values: Floats
    symmetric: bool = False

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with values in float64, for a block."""
        values = floats(self.values)
        check_shape(values.shape, num_rows, *block.shape)
        if block.symmetric:
            with np.errstate(all="ignore"):
                values = 0.5 * values + 0.5 * np.swapaxes(values, -1, -2)
        return replace(self, values=values, symmetric=block.symmetric)

    def norms(self) -> Floats:
        """Return row norms; a row with NaN or infinity has norm inf, and the wall drops it."""
        return upper_norms(self.values)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        shape = self.values.shape[1:]
        flat_nd = self.values.reshape(len(self.values), math.prod(shape))
        shaped = _truncated_sum(flat_nd, weights, grid).reshape(shape)
        out += pack_symmetric(shaped) if self.symmetric else shaped

    def nonnegative(self) -> Contribution:
        """Return the form with negative entries set to 0."""
        return replace(self, values=_without_negative(self.values))

    def grouped(self, unit_of_row: Ints, num_units: int) -> Rows:
        """Return the sums of each unit's rows, so that a unit's own norm is used."""
        finite = np.isfinite(self.norms())
        total = np.zeros((num_units, *self.values.shape[1:]))
        np.add.at(total, unit_of_row[finite], self.values[finite])
        return Rows(total, self.symmetric)


@dataclass(frozen=True)
class ScaledRows:
    """Statistics s_n = scale_n · x_n of measured rows; the products are not stored.

    Attributes:
        rows: Rows, (n, d), with their norms.
        scale_n: Scales of either sign, (n,).

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rows = dpvb.MeasuredRows(np.array([[3.0, 4.0]]))
        >>> bool(dpvb.ScaledRows(rows, np.array([-2.0])).norms()[0] >= 10.0)
        True
    """

    rows: MeasuredRows
    scale_n: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with scales in float64, for a block."""
        scale_n = floats(self.scale_n)
        check_shape(self.rows.x_nd.shape, num_rows, *block.shape)
        check_shape(scale_n.shape, num_rows)
        return ScaledRows(self.rows, scale_n)

    def norms(self) -> Floats:
        """Return |scale_n| times the norm of the row; NaN or infinity if either is."""
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
        """Return the products with negative entries set to 0."""
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
    """Sparse statistics in compressed rows: unit n has values[indptr[n]:indptr[n+1]] at the indices `indices`.

    Indices number the entries of a block, of several axes row by row. The indices of a unit must increase strictly and
    lie within the block; otherwise the unit is dropped.

    Attributes:
        indptr: Offsets of the units, (n + 1,).
        indices: Index of each value within the block.
        values: Real numbers.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> dpvb.SparseRows(np.array([0, 2]), np.array([1, 4]), np.array([3.0, 4.0])).norms()
        array([5.])
    """

    indptr: Ints
    indices: NDArray[np.integer[Any]]
    values: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with values in float64; an index outside the block becomes -1, which is invalid."""
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
        """Return row norms; squares are added in the order of the row."""
        length_n = np.diff(self.indptr)
        row = np.repeat(np.arange(len(length_n)), length_n)
        follows = np.ones(len(self.indices), dtype=np.bool_)
        follows[1:] = self.indices[1:] > self.indices[:-1]
        first = self.indptr[:-1][length_n > 0]
        follows[first] = self.indices[first] >= 0
        faulty = np.bincount(row[~follows], minlength=len(length_n)) > 0
        with np.errstate(over="ignore"):
            square_n = np.bincount(row, weights=self.values * self.values, minlength=len(length_n))
        # The addend covers squares that underflow.
        norm_n = np.sqrt(square_n) * (1.0 + (length_n + 8) * 2.0**-52) + length_n * 2.0**-530
        return np.where(faulty, np.inf, norm_n)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add it at its index."""
        length_n = np.diff(self.indptr)
        weight, values, places = np.repeat(weights, length_n), self.values, self.indices
        if not np.all(weights):
            used = np.flatnonzero(weight)
            weight, values, places, length_n = weight[used], values[used], places[used], length_n[weights != 0]
        steps = np.trunc(values * weight / grid.step).astype(np.int64)
        if len(steps) and np.all(length_n == length_n[0]):  # Rows without zeros have the same places.
            place_nk = places.reshape(len(length_n), -1)
            if np.all(place_nk == place_nk[0]):
                steps, places = steps.reshape(place_nk.shape).sum(axis=0), place_nk[0]
        np.add.at(out, np.unravel_index(places, out.shape), steps)

    def nonnegative(self) -> Contribution:
        """Return the form with negative values set to 0."""
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
    """Outer products l_n ⊗ r_n of left, (n, a), and right, (n, b), factors; their sum is one exact integer GEMM.

    Attributes:
        left: Left factors, (n, a).
        right: Right factors, (n, b).

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> bool(dpvb.Kron(np.array([[3.0, 4.0]]), np.array([[2.0]])).norms()[0] >= 10.0)
        True
    """

    left: Floats
    right: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with factors in float64, for a block."""
        left, right = floats(self.left), floats(self.right)
        check_shape(left.shape[:1] + left.shape[1:] + right.shape[1:], num_rows, *block.shape)
        check_shape(right.shape[:1], num_rows)
        return Kron(left, right)

    def norms(self) -> Floats:
        """Return products of the norms of the factors, the norms of the outer products."""
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
        """Return the form with negative entries of both factors set to 0."""
        return Kron(_without_negative(self.left), _without_negative(self.right))


@dataclass(frozen=True)
class Gram:
    """Symmetric outer products s_n = scale_n · x_n x_nᵀ of a "gram" block (d, d); their sum is one exact integer syrk.

    Attributes:
        x_nd: Factors, (n, d).
        scale_n: Nonnegative scales, (n,).

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> bool(dpvb.Gram(np.array([[3.0, 4.0]]), np.array([2.0])).norms()[0] >= 50.0)
        True
    """

    x_nd: Floats
    scale_n: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with both arrays in float64, for a block."""
        x_nd, scale_n = floats(self.x_nd), floats(self.scale_n)
        length, d = x_nd.shape
        check_shape((length, d * (d + 1) // 2), num_rows, *block.packed_shape)
        check_shape(scale_n.shape, num_rows)
        return Gram(x_nd, scale_n)

    def norms(self) -> Floats:
        """Return scale_n · ‖x_n‖², with room for rounding; NaN, which the wall drops, if the scale is negative."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            length = np.sqrt(self.scale_n) * upper_norms(self.x_nd)
            # The addend covers a square that underflows.
            return np.asarray(length * length * _GRAM_ROOM + 2.0**-1000)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Round u = √(weight·scale)·x to integers and add u uᵀ.

        ‖u‖² is at most the bound of the block, and rounding keeps ‖u‖ below the declared norm. The grid of u is the
        finest on which sums over the rows of a product stay below 2⁵³. A small weight loses only half its bits, since
        both factors contain its root.
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


@dataclass(frozen=True)
class GramOfSums:
    """Outer products s sᵀ of a "gram" block (d, d), where s is the sum of scale_n · x_n over the rows of a unit.

    The rows of a unit are added first. The outer product of their sum contains products of different rows, which
    `Gram` does not. Clipping it to norm C² is clipping s to norm C.

    Attributes:
        rows: Rows, (n, d), with their norms.
        scale_n: Scales of either sign, (n,).

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> rows = dpvb.MeasuredRows(np.array([[3.0, 4.0], [-3.0, -4.0]]))
        >>> products = dpvb.GramOfSums(rows, np.array([1.0, 1.0]))
        >>> bool(products.norms()[0] >= 25.0), bool(products.grouped(np.array([0, 0]), 1).norms()[0] < 1e-9)
        (True, True)
    """

    rows: MeasuredRows
    scale_n: Floats

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Return the form with scales in float64, for a block."""
        scale_n = floats(self.scale_n)
        length, d = self.rows.x_nd.shape
        check_shape((length, d * (d + 1) // 2), num_rows, *block.packed_shape)
        check_shape(scale_n.shape, num_rows)
        return GramOfSums(self.rows, scale_n)

    def norms(self) -> Floats:
        """Return the norms of the outer products of single rows."""
        return self._products.norms()

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add the outer products of single rows, like `Gram`."""
        self._products.accumulate(weights, grid, out)

    def grouped(self, unit_of_row: Ints, num_units: int) -> Gram:
        """Return the outer product of the sum over each unit's rows."""
        sums = ScaledRows(self.rows, self.scale_n).grouped(unit_of_row, num_units)
        return GramOfSums(sums.rows, sums.scale_n)._products

    @property
    def _products(self) -> Gram:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return Gram(self.rows.x_nd, self.scale_n * self.scale_n)


def _round_rows(x_nd: Floats, factor_n: Floats) -> None:
    """Round x to the integers nearest to factor·x, in place, with no row longer than _GRAM_ROOM allows.

    Truncating all entries would shrink all rows, a bias that does not average out in sums. If rounding makes a row too
    long, entries that were rounded up are truncated, from the left, until it is not.
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
    """Add the upper triangle of an integer matrix to its packed form."""
    stop = len(matrix)
    out[:stop] += matrix.diagonal().astype(np.int64)
    for i, row in enumerate(matrix):
        start, stop = stop, stop + len(row) - i - 1
        out[start:stop] += row[i + 1 :].astype(np.int64)


@dataclass(frozen=True)
class _RowsOfUnits:
    """Several rows per unit; the norm of a unit is bounded by the sum of the norms of its rows."""

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

    def touched(self, weights: Floats) -> tuple[Any, Contribution]:
        rows, part = touched(self.rows, weights[self.unit_of_row])
        return rows, self if part is self.rows else replace(self, rows=part)


@dataclass(frozen=True)
class _UnitByUnit:
    """Statistics of an unknown form, with negative entries set to 0; each unit is summed by itself."""

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
    """Return contributions of units (persons) with several rows each.

    Dense rows are summed first, so that a unit's own norm is used; otherwise the triangle inequality bounds it. A row
    with NaN or infinity is dropped; the other rows of its unit are included.
    """
    by_unit = getattr(contribution, "grouped", None)
    return _RowsOfUnits(contribution, unit_of_row, num_units) if by_unit is None else by_unit(unit_of_row, num_units)


def nonnegative(contribution: Contribution) -> Contribution:
    """Return the statistics with negative entries set to 0, before norms are computed.

    Any two of them then have a nonnegative inner product, for every q.
    """
    without_negative = getattr(contribution, "nonnegative", None)
    return _UnitByUnit(contribution) if without_negative is None else without_negative()


def touched(contribution: Contribution, weights: Floats) -> tuple[Any, Contribution]:
    """Return rows of the block, different ones, outside of which units of these weights add nothing, and the rest.

    A form that may touch few rows has its own method `touched`. It returns itself if a sum over all rows is faster.
    """
    of_form = getattr(contribution, "touched", None)
    return (slice(None), contribution) if of_form is None else of_form(weights)


def _without_negative(values: Floats) -> Floats:
    """Return values with negative entries set to 0. NaN is kept: its unit is dropped later."""
    return np.maximum(values, 0.0) if (values < 0).any() else values


def is_gram(contribution: Contribution) -> bool:
    """Whether every statistic is a sum of outer products x xᵀ with nonnegative scales, by construction."""
    return isinstance(contribution.rows if isinstance(contribution, _RowsOfUnits) else contribution, Gram | GramOfSums)
