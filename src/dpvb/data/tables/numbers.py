"""Private rows of plain numbers, for models that read arrays: single precision, a faulty row NaN throughout.

A row that holds NaN, infinity, no number, or a number beyond single precision is faulty: nothing is said, and the wall
drops it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import copy
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.slabs import Which
from dpvb.data.spelling import Floats, as_numbers
from dpvb.data.tables.matrices import DenseMatrix, as_matrix, column
from dpvb.data.units import CHUNK_ENTRIES, Chunk, Held, Units
from dpvb.guards.errors import DataFormatError

Parts: TypeAlias = tuple[NDArray[np.float32], ...]

# Rows that are cleaned at a time.
_BLOCK = 2**14


class Numbers(Held):
    """Features and responses; chunks hold float32 arrays: (x,) or (x, y), x being (n, features), y as it is given.

    Args:
        X: rows × features; see `matrices.as_matrix`. Private, but for its width.
        y: None, one number for each row, or rows × responses; private likewise.
        group: the person of each row, (rows,); private. None: each row is a unit.

    Raises:
        DataFormatError: X or y is not an array, or they or group differ in length.
    """

    def __init__(self, X: object, y: object = None, *, group: Iterable[object] | None = None) -> None:
        matrix = as_matrix(X)
        self.features, self.responses = matrix.width, _responses(y)
        self._matrix = matrix
        self._y = None if self.responses is None else _singles(self._given(y))
        # A matrix in memory is cleaned once; a sparse one is not made dense as a whole.
        self._clean = self._cleaned(slice(None)) if isinstance(matrix, DenseMatrix) else None
        # `cut` asks for the persons again, and an iterator would be at its end.
        self._group = [*group] if isinstance(group, Iterator) else group
        self._units = self._units_of(self.width)

    def _given(self, y: object) -> Floats:
        """Responses in float64, (n,) or (n, r)."""
        if self.responses:
            y_nr = as_matrix(y).dense(slice(None))
            if len(y_nr) != self._matrix.num_rows:
                raise DataFormatError("y must hold one row for each row of X; the two differ in length.")
            return y_nr
        return as_numbers(column("y", y, self._matrix.num_rows))

    def cut(self, rows_of_chunk: int) -> Numbers:
        """The same rows in chunks of so many where units are rows; public."""
        other = copy(self)
        other._units = self._units_of(max(CHUNK_ENTRIES // rows_of_chunk, 1))
        return other

    def _units_of(self, length: int) -> Units:
        return Units(np.arange(self._matrix.num_rows + 1, dtype=np.int64) * length, self._group)

    def __repr__(self) -> str:
        return f"Numbers(width={self.width}, unit={self.unit!r})"

    @property
    def width(self) -> int:
        """Number of columns: features, then responses; public."""
        return self.features + (0 if self.responses is None else max(self.responses, 1))

    def _keep(self, which: Which) -> None:
        self._matrix, self._group = self._matrix.take(which), None
        self._y = None if self._y is None else self._y[which]
        self._clean = None if self._clean is None else tuple(array[which] for array in self._clean)

    def chunks(self) -> Iterator[Chunk[Parts]]:
        """Yield all units once."""
        return self._units.chunks(self._read)

    def _read(self, which: Which) -> Parts:
        """The chosen rows' parts."""
        if self._clean is not None:
            return tuple(array[which] for array in self._clean)
        return self._cleaned(which)

    def _cleaned(self, which: Which) -> Parts:
        rows = np.arange(self._matrix.num_rows)[which]
        x_nd = _aligned((len(rows), self.features))
        for start in range(0, len(rows), _BLOCK):
            with np.errstate(all="ignore"):
                x_nd[start : start + _BLOCK] = self._matrix.dense(rows[start : start + _BLOCK])
        parts: Parts = (x_nd,)
        if self._y is not None:
            y = _aligned((len(rows), *self._y.shape[1:]))
            parts = x_nd, np.take(self._y, rows, axis=0, out=y)
        sound = [np.isfinite(part).all(axis=tuple(range(1, part.ndim))) for part in parts]
        faulty_n = ~np.logical_and.reduce(sound)
        for part in parts:
            part[faulty_n] = np.nan
        return parts


def _aligned(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An array that starts at a multiple of 64 bytes: compiled programs read it in place, and copy others."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + 63, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)


def _singles(values: Floats) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):  # a number beyond single precision would warn, and a warning is a message
        return values.astype(np.float32)


def _responses(y: object) -> int | None:
    """Numbers in a response: None without any, 0 for a scalar; public."""
    if y is None:
        return None
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 2:
        return int(shape[1])
    return 0
