"""Private rows of plain numbers, for models that read arrays: single precision, a faulty row NaN throughout.

A row that holds NaN, infinity, no number, or a number beyond single precision is faulty: nothing is said, and the wall
drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpvb.data.matrices import DenseMatrix, as_matrix, as_numbers, column
from dpvb.data.units import CHUNK_ENTRIES, LazyChunk, Units, Which, cuts
from dpvb.errors import DataFormatError

Singles = NDArray[np.float32]

# Rows that are cleaned at a time.
_BLOCK = 2**14


class Numbers:
    """Features and responses side by side; chunks hold float32 arrays (n, features + responses).

    Args:
        X: rows × features; see `matrices.as_matrix`. Private, but for its dtype and width.
        y: None, one number for each row, or rows × responses; private likewise.
        group: the person of each row, (rows,); private. None: each row is a unit.

    Raises:
        DataFormatError: X or y is no array of numbers, or they or group differ in length.
    """

    def __init__(self, X: object, y: object = None, *, group: Iterable[object] | None = None) -> None:
        matrix = as_matrix(X)
        self.features, self.responses = matrix.width, _responses(y)
        if self.responses:
            y_nr = as_matrix(y).dense(slice(None))
            if len(y_nr) != matrix.num_rows:
                raise DataFormatError("y must hold one row for each row of X; the two differ in length.")
        elif self.responses is None:
            y_nr = np.empty((matrix.num_rows, 0))
        else:
            given = column("y", y, matrix.num_rows)
            if given.dtype.kind not in "biufO":
                raise DataFormatError(f"y must hold numbers (bool, integer, float), got dtype {given.dtype}.")
            y_nr = as_numbers(given)[:, None]
        with np.errstate(all="ignore"):  # a number beyond single precision would warn, and a warning is a message
            self._y_nr = y_nr.astype(np.float32)
        self._matrix = matrix
        # A matrix in memory is cleaned once; a sparse one is not made dense as a whole.
        self._clean = self._read(slice(None)) if isinstance(matrix, DenseMatrix) else None
        self._group = group
        self._units = self._units_of(self.width)

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
        return int(self.features + self._y_nr.shape[1])

    @property
    def unit(self) -> Literal["row", "person"]:
        """What one privacy unit is; public."""
        return self._units.unit

    def count(self) -> int:
        """Return the number of privacy units; private under add/remove."""
        return self._units.count()

    def parts(self, number: int) -> list[Numbers]:
        """The same units in order, in at most so many sources of their own."""
        return [self._part(start, stop) for start, stop in cuts(self.count(), number)]

    def _part(self, start: int, stop: int) -> Numbers:
        part = copy(self)
        which, part._units = self._units.part(start, stop)
        part._matrix, part._y_nr, part._group = self._matrix.take(which), self._y_nr[which], None
        part._clean = None if self._clean is None else self._clean[which]
        return part

    def chunks(self) -> Iterator[LazyChunk[Singles]]:
        """Yield all units once."""
        return self._units.chunks(self._read if self._clean is None else self._clean.__getitem__)

    def _read(self, which: Which) -> Singles:
        rows = np.arange(self._matrix.num_rows)[which]
        out = np.empty((len(rows), self.width), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            own = out[start : start + _BLOCK]
            with np.errstate(all="ignore"):
                own[:, : self.features] = self._matrix.dense(part)
                own[:, self.features :] = self._y_nr[part]
            own[~np.isfinite(own).all(axis=1)] = np.nan
        return out


def _responses(y: object) -> int | None:
    """Numbers in a response: None without any, 0 for a scalar; public."""
    if y is None:
        return None
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 2:
        return int(shape[1])
    return 0
