"""Matrices of real numbers in whatever form they come, read a few rows at a time.

Errors of a matrix as a whole (its container, its dimensions) are public and reported. An error inside a
row is private: an entry that is not a number, or that lies outside the matrix, is NaN, without a message. The
type of an array may depend on a single cell: no type is refused (see `spelling`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.data.arrow import cells as arrow_cells
from dpvb.data.arrow import import_arrow
from dpvb.data.slabs import MAX_WIDTH, Integers, Slab, Which, places, slab_of_sparse, stacked
from dpvb.data.spelling import Floats, as_array, as_numbers, cells_of, number, real
from dpvb.guards.errors import DataFormatError
from dpvb.guards.suppress_output import silence
from dpvb.kernels.spans import running_total

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


class RowMatrix(Protocol):
    """A matrix of real numbers with its rows as private data; its width is public."""

    @property
    def num_rows(self) -> int:
        """Number of rows; private under add/remove."""

    @property
    def width(self) -> int:
        """Number of columns; public."""

    def dense(self, rows: Which) -> Floats:
        """The chosen rows, (n, width); never a view that a caller may not change."""

    def columns(self) -> Sequence[NDArray[Any]]:
        """All columns, to be read and not to be changed: of numbers of a common type no copies."""

    def entries(self, rows: Which) -> Entries:
        """The chosen rows without their zeros."""

    def entry_start(self) -> Integers:
        """Number of stored entries before each row, and of all, (num_rows + 1,)."""

    def take(self, rows: Which) -> RowMatrix:
        """The chosen rows, as they are kept; a range of rows is not copied."""

    def lengths(self, rows: Which) -> Floats:
        """Euclidean norms of the chosen rows in units of LENGTH_UNIT, (n,); NaN where an entry is NaN or infinite."""


class DenseMatrix:
    """A 2-D array of any type of real numbers, kept as it is."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.num_rows, self.width = array.shape

    def dense(self, rows: Which) -> Floats:
        """The chosen rows in float64."""
        with np.errstate(all="ignore"):  # a long double beyond float64 would warn, and a warning is a message
            return np.array(self._array[rows], dtype=np.float64, order="C")

    def columns(self) -> Sequence[NDArray[Any]]:
        """All columns; of single and double precision as they are kept."""
        return [*(self._array if self._array.dtype in (np.float32, np.float64) else self.dense(slice(None))).T]

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
    """Compressed sparse rows with whatever ids and values, kept as they are in `slab`."""

    def __init__(self, slab: Slab, width: int) -> None:
        self.slab = slab
        self.num_rows, self.width = len(slab.indptr) - 1, width

    @classmethod
    def stacked(cls, parts: Iterable[SparseMatrix], width: int) -> SparseMatrix:
        """The rows of all parts, in order; no part is held on to."""
        return cls(stacked(part.slab for part in parts), width)

    def columns(self) -> Sequence[NDArray[Any]]:
        """All columns, their zeros included."""
        return [*self.dense(slice(None)).T]

    def entries(self, rows: Which) -> Entries:
        """The chosen rows: entries in the order of their columns, equal places added, zeros left out."""
        indptr, place = places(self.slab.indptr, rows)
        num_rows = len(indptr) - 1
        with np.errstate(all="ignore"):
            values = self.slab.values[place].astype(np.float64)
        column = self.slab.indices[place]
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
        nonzero = values != 0
        row, column = np.divmod(cell[nonzero], self.width)
        return Entries(running_total(np.bincount(row, minlength=num_rows)), column.astype(np.int32), values[nonzero])

    def dense(self, rows: Which) -> Floats:
        """The chosen rows with their zeros."""
        new_indptr, place = places(self.slab.indptr, rows)
        if (np.diff(new_indptr) == self.width).all():
            column_nd = self.slab.indices[place].reshape(len(new_indptr) - 1, self.width)
            if (column_nd == np.arange(self.width)).all():  # All entries in their order; no zero is negative.
                with np.errstate(all="ignore"):
                    return self.slab.values[place].astype(np.float64).reshape(column_nd.shape) + 0.0
        indptr, indices, values = self.entries(rows)
        x_nd = np.zeros((len(indptr) - 1, self.width))
        x_nd[np.repeat(np.arange(len(x_nd)), np.diff(indptr)), indices] = values
        return x_nd

    def entry_start(self) -> Integers:
        """The boundaries of the rows."""
        return self.slab.indptr

    def take(self, rows: Which) -> SparseMatrix:
        """The chosen rows with whatever ids and values they have."""
        indptr, place = places(self.slab.indptr, rows)
        return SparseMatrix(Slab(indptr, self.slab.indices[place], self.slab.values[place]), self.width)

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


def as_matrix(data: object) -> RowMatrix:
    """Take a matrix of real numbers as it is, without a copy where its form allows.

    Args:
        data: rows by columns: a 2-D NumPy array, a SciPy CSR, CSC or COO matrix, a pandas DataFrame, or a list of
            lists, whose width is that of most rows (a row of another length is faulty). Its form and its width are
            public; everything else is private, its types too, since values decide them: a cell that is not a number is
            NaN, and a number that came as text is that number. It must not change while it is in use.

    Raises:
        DataFormatError: none of these, or no columns.
    """
    if isinstance(data, (DenseMatrix, SparseMatrix)):
        return data
    if sparse.issparse(data):
        matrix: Any = data
        if len(matrix.shape) != 2:
            raise DataFormatError(f"X must have 2 dimensions, rows by columns, got {len(matrix.shape)}.")
        _check_shape(matrix.shape)
        return SparseMatrix(slab_of_sparse(matrix), int(matrix.shape[1]))
    if isinstance(data, np.ma.MaskedArray):
        raise DataFormatError("A masked array is not read; fill it with public values first.")
    if isinstance(data, (list, tuple)):
        return DenseMatrix(_array_of_lists(data))
    if isinstance(data, (str, bytes)) or not (hasattr(data, "__array__") or is_arrow_table(data)):
        raise DataFormatError(f"X must be a matrix of numbers, got {type(data).__name__}. {_WAY_OUT}")
    array = array_of(data)
    if array.ndim == 1 and holds_rows(array):
        return DenseMatrix(_array_of_lists([*array]))
    if array.ndim != 2:
        raise DataFormatError(
            f"X must have 2 dimensions, rows by columns, got {array.ndim}. "
            "Reshape your data: X.reshape(1, -1) is one row, X.reshape(-1, 1) one column."
        )
    _check_shape(array.shape)
    return DenseMatrix(real(array))


def array_of(data: object) -> NDArray[Any]:
    """An array, or a frame column by column, whose types may be any; a frame of one type of number keeps it."""
    frame: Any = data
    if is_arrow_table(frame):
        table = import_arrow().table(frame)
        return _beside((as_numbers(arrow_cells(part)) for part in table.columns), table.shape)
    if not is_frame(frame):
        with silence():
            return as_array(frame)
    kinds = frame.dtypes.tolist()  # not hashed or compared where they are not NumPy's: a type may hold private values
    if kinds and all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds) and len({*kinds}) == 1:
        return np.asarray(frame.to_numpy())
    return _beside((_numbers_of_series(frame.iloc[:, place]) for place in range(frame.shape[1])), frame.shape)


def has_columns(data: object) -> bool:
    """Whether data are a table. The class tells: a series has an attribute for every label of its rows."""
    return hasattr(type(data), "columns")


def is_frame(data: object) -> bool:
    """Whether data are a frame of pandas' kind."""
    return hasattr(type(data), "iloc") and has_columns(data)


def is_column(data: Any) -> TypeGuard[Iterable[object]]:
    """Whether data are an array or a pandas or Arrow column, whatever its type."""
    if sparse.issparse(data) or isinstance(data, np.ma.MaskedArray) or not isinstance(data, Iterable):
        return False
    return hasattr(data, "__array__") and getattr(data, "ndim", 2 if has_columns(data) else 1) == 1


def is_arrow_table(data: object) -> bool:
    """Whether data have named columns of Arrow's types, as the tables and batches of several libraries do."""
    kind = type(data)
    is_arrow = hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")
    return is_arrow and (hasattr(kind, "schema") or has_columns(data)) and not is_frame(data)


def _beside(columns: Iterable[Floats], shape: tuple[int, int]) -> Floats:
    """Columns as a matrix."""
    array = np.empty(shape)
    for place, one in enumerate(columns):
        array[:, place] = one
    return array


def _numbers_of_series(series: Any) -> Floats:
    if isinstance(series.dtype, np.dtype):
        return as_numbers(as_array(series))
    if getattr(series.dtype, "kind", "O") in "iuf":  # of pandas' own, with NA for a missing number
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return as_numbers(cells_of(series))


def _check_shape(shape: Sequence[int]) -> None:
    if not 1 <= shape[1] <= MAX_WIDTH:
        raise DataFormatError(
            f"X has {shape[1]} feature(s) (shape=(n, {shape[1]})) while a minimum of 1 is required, "
            f"and at most {MAX_WIDTH}."
        )


def holds_rows(cells: Iterable[object]) -> bool:
    """Whether the cells of an array are rows of several lengths, as NumPy keeps them; most of them decide."""
    return bool(_width_of_most(cells))


def _width_of_most(rows: Iterable[object]) -> int | None:
    """The width that most rows have, the smaller of two; None where most of them are not lists."""
    lengths = Counter(map(_length, rows))
    return max(lengths, key=lambda one: (lengths[one], one is not None, -(one or 0)), default=0)


def _array_of_lists(rows: Sequence[object]) -> Floats:
    """The rows as one array of the width that most of them have; all others are NaN throughout."""
    width = _width_of_most(rows)
    if width is None:
        raise DataFormatError(f"X as a list must hold one list of numbers for each row. {_WAY_OUT}")
    _check_shape((len(rows), width))
    array = np.full((len(rows), width), np.nan)
    with silence():
        for n, one in enumerate(rows):
            row = plain_row(one)
            if row is not None and len(row) == width:
                array[n] = as_numbers(row) if isinstance(row, np.ndarray) else [number(cell) for cell in row]
    return array


def _length(row: object) -> int | None:
    """Number of cells of a row in a list; None: it is none."""
    plain = plain_row(row)
    return None if plain is None else len(plain)


def plain_row(row: Any) -> list[object] | tuple[object, ...] | NDArray[Any] | None:
    """A row of a list, as its base class sees it; None: it is none."""
    kind = type(row)
    if kind is list or kind is tuple:
        return row  # type: ignore[no-any-return]
    if issubclass(kind, list):
        return [*list.__iter__(row)]
    if issubclass(kind, tuple):
        return (*tuple.__iter__(row),)
    if not issubclass(kind, np.ndarray):
        return None
    plain: NDArray[Any] = np.ndarray.view(row, np.ndarray)
    return plain if plain.ndim == 1 else None


def column(name: str, values: object, num_rows: int | None) -> NDArray[Any]:
    """Return a public name's private column as a 1-D array, of whatever type it has.

    Values in lists of one each are the values, and so is an array of one column.

    Args:
        name: public.
        values: a list, an array, or a pandas or Arrow column; private but for its form and length.
        num_rows: what the length must be; None: any.

    Raises:
        DataFormatError: none of these, not one-dimensional, or of another length than the rows.
    """
    array: NDArray[Any] | None
    if sparse.issparse(values) or isinstance(values, (str, bytes)) or values is None:
        raise DataFormatError(f"{name} must be a one-dimensional array, got {type(values).__name__}.")
    if isinstance(values, (list, tuple)):
        array = _objects(values)
    elif isinstance(values, np.ma.MaskedArray) or not hasattr(values, "__array__"):
        raise DataFormatError(f"{name} must be a one-dimensional array, got {type(values).__name__}.")
    elif has_columns(values):
        array = None
    elif isinstance(getattr(values, "dtype", None), np.dtype) or not is_column(values):
        array = as_array(values)
    else:
        array = _objects(cells_of(values))
    # For lists of one value each NumPy makes another dimension, unless one of them is longer. The type of an array is
    # private: a single cell may change it. So an array of one column is that column, whatever its type.
    if array is not None and array.shape[1:] == (1,):
        array = np.asarray(array)[:, 0]
    if array is None or array.ndim != 1:
        raise DataFormatError(
            f"{name} should be a 1d array, one value for each row, and not a table; use {name}.ravel() or one column."
        )
    if array.dtype.kind == "O":
        array = _objects([_alone(cell) for cell in array])
    if num_rows is not None and len(array) != num_rows:
        raise DataFormatError(f"{name} must hold one value for each row of X; the two differ in length.")
    return array


def _alone(cell: object) -> object:
    """Return the single element of a list or an array; anything else as it is. Tuples name persons."""
    if type(cell) in (list, np.ndarray) and _length(cell) == 1:
        return cell[0]  # type: ignore[index]
    return cell


def _objects(values: Sequence[object]) -> NDArray[Any]:
    """A list as an array of objects: NumPy's own choice of type would hang on the private values."""
    array = np.empty(len(values), dtype=object)
    for n, value in enumerate(values):
        array[n] = value
    return array
