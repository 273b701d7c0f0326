"""Matrices of real numbers in whatever form they come, read a few rows at a time.

What is wrong with a matrix as a whole (its dtype, its dimensions) is public and an error. What is wrong inside a
row belongs to somebody: an entry that is no number, or that lies outside the matrix, is NaN, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.data.rows import MAX_WIDTH, Slab, running_total, slab_of_sparse
from dpvb.data.units import Integers, Which
from dpvb.errors import DataFormatError

Floats = NDArray[np.float64]

_WAY_OUT = (
    "Numbers go in as a NumPy array or a SciPy sparse matrix, columns with names and categories as dpvb.data.Table."
)


# So the length of a row of the largest numbers is still a number.
_UNIT_EXPONENT = 40
LENGTH_UNIT = 2.0**_UNIT_EXPONENT


class Entries(NamedTuple):
    """Compressed sparse rows: columns increase strictly in a row, values are float64; a fault is NaN.

    Row n holds the entries indptr[n] to indptr[n+1].
    """

    indptr: Integers
    indices: NDArray[np.int32]
    values: Floats


class Matrix(Protocol):
    """A matrix of real numbers with its rows as private data; its width is public."""

    @property
    def num_rows(self) -> int:
        """Number of rows; private under add/remove."""

    @property
    def width(self) -> int:
        """Number of columns; public."""

    def dense(self, rows: Which) -> Floats:
        """The chosen rows, (n, width); never a view that a caller may not change."""

    def entries(self, rows: Which) -> Entries:
        """The chosen rows without their zeros."""

    def entry_start(self) -> Integers:
        """Number of stored entries before each row, and of all, (num_rows + 1,)."""

    def take(self, rows: Which) -> Matrix:
        """The chosen rows, as they are kept; a range of rows is not copied."""

    def lengths(self, rows: Which) -> Floats:
        """Euclidean norms of the chosen rows in units of LENGTH_UNIT, (n,); NaN where an entry is NaN or infinite."""


class DenseMatrix:
    """A 2-D array of any real number type, kept as it is."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.num_rows, self.width = array.shape

    def dense(self, rows: Which) -> Floats:
        """The chosen rows in float64."""
        with np.errstate(all="ignore"):  # a long double beyond float64 would warn, and a warning is a message
            return np.array(self._array[rows], dtype=np.float64, order="C")

    def entries(self, rows: Which) -> Entries:
        """The chosen rows without their zeros."""
        x_nd = self.dense(rows)
        row, column = np.nonzero(x_nd)
        indptr = running_total(np.bincount(row, minlength=len(x_nd)))
        return Entries(indptr, column.astype(np.int32), x_nd[row, column])

    def entry_start(self) -> Integers:
        """Every row holds `width` entries."""
        return np.arange(0, (self.num_rows + 1) * self.width, self.width, dtype=np.int64)

    def take(self, rows: Which) -> DenseMatrix:
        """The chosen rows in their own number type."""
        return DenseMatrix(self._array[rows])

    def lengths(self, rows: Which) -> Floats:
        """Norms that neither overflow nor underflow: each row is first scaled by a power of two of its own."""
        x_nd = self.dense(rows)
        with np.errstate(all="ignore"):
            largest_n = np.abs(x_nd).max(axis=1)
            _, exponent_n = np.frexp(largest_n)
            scaled_nd = np.ldexp(x_nd, -exponent_n[:, None])
            norm_n = np.sqrt(np.add.reduce(np.square(scaled_nd, out=scaled_nd), axis=1))
            return np.where(np.isfinite(largest_n), np.ldexp(norm_n, exponent_n - _UNIT_EXPONENT), np.nan)


class SparseMatrix:
    """Compressed sparse rows with whatever ids and values, kept as they are."""

    def __init__(self, slab: Slab, width: int) -> None:
        self._slab = slab
        self.num_rows, self.width = len(slab.indptr) - 1, width

    @classmethod
    def stacked(cls, parts: Sequence[SparseMatrix], width: int) -> SparseMatrix:
        """The rows of all parts, in order."""
        lengths = [np.diff(part._slab.indptr) for part in parts]
        slab = Slab(
            running_total(np.concatenate([np.empty(0, np.int64), *lengths])),
            np.concatenate([np.empty(0, np.int32), *(part._slab.indices for part in parts)]),
            np.concatenate([np.empty(0), *(part._slab.values for part in parts)]),
        )
        return cls(slab, width)

    def entries(self, rows: Which) -> Entries:
        """The chosen rows: entries in the order of their columns, equal places added, zeros left out."""
        indptr, place = self._places(rows)
        num_rows = len(indptr) - 1
        with np.errstate(all="ignore"):
            values = self._slab.values[place].astype(np.float64)
        column = self._slab.indices[place]
        outside = (column < 0) | (column >= self.width)
        row = np.repeat(np.arange(num_rows, dtype=np.int64), np.diff(indptr))
        # A value at no place of the matrix makes its row faulty wherever it is put.
        cell = row * self.width + np.where(outside, 0, column).astype(np.int64)
        values[outside] = np.nan
        if not np.all(cell[1:] > cell[:-1]):
            order = np.argsort(cell, kind="stable")
            first = np.flatnonzero(np.diff(cell[order], prepend=-1))
            with np.errstate(all="ignore"):
                values = np.add.reduceat(values[order], first) if len(first) else values
            cell = cell[order][first]
        kept = values != 0
        row, column = np.divmod(cell[kept], self.width)
        return Entries(running_total(np.bincount(row, minlength=num_rows)), column.astype(np.int32), values[kept])

    def dense(self, rows: Which) -> Floats:
        """The chosen rows with their zeros."""
        indptr, indices, values = self.entries(rows)
        x_nd = np.zeros((len(indptr) - 1, self.width))
        x_nd[np.repeat(np.arange(len(x_nd)), np.diff(indptr)), indices] = values
        return x_nd

    def entry_start(self) -> Integers:
        """The boundaries of the rows."""
        return self._slab.indptr

    def take(self, rows: Which) -> SparseMatrix:
        """The chosen rows with whatever ids and values they have."""
        indptr, place = self._places(rows)
        return SparseMatrix(Slab(indptr, self._slab.indices[place], self._slab.values[place]), self.width)

    def lengths(self, rows: Which) -> Floats:
        """Norms that neither overflow nor underflow; squares are added in the row's own order."""
        indptr, _, values = self.entries(rows)
        num_rows = len(indptr) - 1
        row = np.repeat(np.arange(num_rows), np.diff(indptr))
        largest_n = np.zeros(num_rows)
        with np.errstate(all="ignore"):
            np.maximum.at(largest_n, row, np.abs(values))
            _, exponent_n = np.frexp(largest_n)
            square_n = np.bincount(row, weights=np.ldexp(values, -exponent_n[row]) ** 2, minlength=num_rows)
            return np.where(np.isfinite(largest_n), np.ldexp(np.sqrt(square_n), exponent_n - _UNIT_EXPONENT), np.nan)

    def _places(self, rows: Which) -> tuple[Integers, Which]:
        """Boundaries of the chosen rows among themselves, and where their entries are stored."""
        start = self._slab.indptr
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.num_rows)
            return start[first : stop + 1] - start[first], slice(int(start[first]), int(start[stop]))
        lengths = np.diff(start)[rows]
        indptr = running_total(lengths)
        return indptr, np.repeat(start[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])


def as_matrix(data: object) -> Matrix:
    """Take a matrix of real numbers as it is, without a copy where its form allows.

    Args:
        data: rows by columns: a 2-D NumPy array of bool, integer, float or object (what is no number is NaN), a SciPy
            sparse matrix, a pandas DataFrame of numbers, or a list of equally long lists. Its dtype and width are
            public, everything else private. It must not change while it is in use.

    Raises:
        DataFormatError: none of these.
    """
    if isinstance(data, (DenseMatrix, SparseMatrix)):
        return data
    if sparse.issparse(data):
        return _sparse(data)
    if isinstance(data, np.ma.MaskedArray):
        raise DataFormatError("A masked array is not read; fill it with public values first.")
    if isinstance(data, (list, tuple)):
        data = _array_of_lists(data)
    elif hasattr(data, "dtypes") and hasattr(data, "to_numpy"):
        data = _array_of_frame(data)
    elif isinstance(data, (str, bytes)) or not hasattr(data, "__array__"):
        raise DataFormatError(f"X must be a matrix of numbers, got {type(data).__name__}. {_WAY_OUT}")
    array = np.asarray(data)
    if array.ndim != 2:
        raise DataFormatError(
            f"X must have 2 dimensions, rows by columns, got {array.ndim}. "
            "Reshape your data: X.reshape(1, -1) is one row, X.reshape(-1, 1) one column."
        )
    _check_form(array.dtype, array.shape)
    return DenseMatrix(_numbers(array) if array.dtype.kind == "O" else array)


def _sparse(data: Any) -> SparseMatrix:
    if len(data.shape) != 2:
        raise DataFormatError(f"X must have 2 dimensions, rows by columns, got {len(data.shape)}.")
    _check_form(data.dtype, data.shape)
    if data.format not in ("csr", "csc", "coo"):
        data = data.tocsr()
    return SparseMatrix(slab_of_sparse(data), int(data.shape[1]))


def _check_form(dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    if dtype.kind == "c":
        raise DataFormatError(f"Complex data not supported: features are real numbers, got dtype {dtype}.")
    if dtype.kind not in "biufO":
        raise DataFormatError(f"X must hold numbers (bool, integer, float), got dtype {dtype}. {_WAY_OUT}")
    if not 1 <= shape[1] <= MAX_WIDTH:
        raise DataFormatError(
            f"X has {shape[1]} feature(s) (shape={tuple(shape)}) while a minimum of 1 is required, "
            f"and at most {MAX_WIDTH}."
        )


def _array_of_lists(rows: Sequence[Any]) -> NDArray[Any]:
    """The rows as one array; the number of columns is public and must be the same everywhere."""
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        raise DataFormatError(f"X as a list must hold one list of numbers for each row. {_WAY_OUT}")
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise DataFormatError("X as a list must hold lists of one length: the number of columns is public.")
    array = np.empty((len(rows), width), dtype=object)
    for n, row in enumerate(rows):
        for column, value in enumerate(row):
            array[n, column] = value
    return array


def _array_of_frame(frame: Any) -> NDArray[Any]:
    """A pandas DataFrame of numbers as an array; its own number type where all columns share one."""
    dtypes = list(getattr(frame.dtypes, "values", [frame.dtypes]))
    wrong = [kind for kind in dtypes if getattr(kind, "kind", "O") not in "biuf"]
    if wrong:
        raise DataFormatError(f"X must have columns of numbers, got one of dtype {wrong[0]}. {_WAY_OUT}")
    plain = all(isinstance(kind, np.dtype) for kind in dtypes) and len(set(dtypes)) == 1
    return np.asarray(frame.to_numpy() if plain else frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _numbers(array: NDArray[Any]) -> Floats:
    """Objects as float64, in the same shape; what is no real number is NaN."""
    return np.array([number(value) for value in array.ravel()], dtype=np.float64).reshape(array.shape)


def number(value: object) -> float:
    """A real number as float, and NaN for anything else, text included."""
    if isinstance(value, (str, bytes)):
        return np.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:  # whatever a private object answers, it must not show
        return np.nan


def column(name: str, values: object, num_rows: int) -> NDArray[Any]:
    """Return a public name's private column as a 1-D array of its own type.

    Raises:
        DataFormatError: not one-dimensional, of another length than the rows, or complex.
    """
    if sparse.issparse(values) or isinstance(values, (str, bytes)) or values is None:
        raise DataFormatError(f"{name} must be a one-dimensional array, got {type(values).__name__}.")
    if isinstance(values, (list, tuple)):
        array = _array_of_list(values)
    elif isinstance(values, np.ma.MaskedArray) or not hasattr(values, "__array__"):
        raise DataFormatError(f"{name} must be a one-dimensional array, got {type(values).__name__}.")
    else:
        array = np.asarray(values)
    if array.ndim != 1:
        raise DataFormatError(
            f"{name} should be a 1d array, one value for each row, got {array.ndim} dimensions; use {name}.ravel()."
        )
    if array.dtype.kind == "c":
        raise DataFormatError(f"Complex data not supported: {name} must be real, got dtype {array.dtype}.")
    if len(array) != num_rows:
        raise DataFormatError(f"{name} must hold one value for each row of X; the two differ in length.")
    return array


def _array_of_list(values: Sequence[Any]) -> NDArray[Any]:
    """A list as an array of objects: NumPy's own choice of type would hang on the private values."""
    array = np.empty(len(values), dtype=object)
    for n, value in enumerate(values):
        array[n] = value
    return array


def as_numbers(array: NDArray[Any]) -> Floats:
    """A 1-D array of any type in float64; what is no number is NaN."""
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(np.float64)
    return _numbers(array)
