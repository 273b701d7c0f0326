"""Public columns of numbers with their bounds, and private sequences of points in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpvb.data.sequences.content import Content, is_of_pandas, plain_cells
from dpvb.data.slabs import Integers
from dpvb.data.spelling import Cells, Floats, as_numbers, number
from dpvb.data.tables.matrices import array_of, column, has_columns, is_arrow_table, plain_row
from dpvb.data.tables.ranged import check_name
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer, check_number
from dpvb.guards.suppress_output import silence
from dpvb.rows import NumberRows

# Most columns; a model of sequences has a number for each pair of them at least.
_MOST = 1000
# Points that are brought within their bounds at a time.
_SLAB = 2**16


class Points(Content[NumberRows]):
    """Public columns; a point has a number of each.

    A number is missing, NaN, if its cell is not a finite number. A point of another width is missing throughout.

    Args:
        columns: their names, as a list or as one text with commas between; a number D for x0 to x(D-1).
        low, high: public range of each column, numbers or (D,): values outside are brought to its ends.
        max_row_norm: in their place, a public bound on the norm of a point: longer ones are clipped to it, whatever
            of them is missing. With neither numbers are as they come.

    Attributes:
        names: of the columns.
        centre_d, unit_d: a number x is read as (x - centre)/unit: a range is [-1, 1], or a point's norm at most 1.
        reach: the norm that a point can have then; infinity without a bound.

    Raises:
        ParameterError: for columns that are none, or for bounds that are none.
    """

    things: ClassVar[str] = "points"

    def __init__(self, columns: object, low: Any = None, high: Any = None, max_row_norm: float | None = None) -> None:
        self.names = _names(columns)
        d = len(self.names)
        self.centre_d, self.unit_d, self.reach = np.zeros(d), np.ones(d), np.inf
        self._low_d, self._high_d, self._shortens = np.full(d, -np.inf), np.full(d, np.inf), max_row_norm is not None
        if max_row_norm is not None:
            if low is not None or high is not None:
                raise ParameterError("max_row_norm must be None with low and high.")
            norm = check_number("max_row_norm", max_row_norm, low=1e-100, high=1e100)
            self.unit_d, self.reach = np.full(d, norm), 1.0
        elif low is not None or high is not None:
            self._low_d, self._high_d = (_ends(name, end, d) for name, end in (("low", low), ("high", high)))
            if not (self._low_d < self._high_d).all():
                raise ParameterError(f"low must be below high for each column, got {low!r} and {high!r}.")
            self.centre_d = self._low_d / 2 + self._high_d / 2
            self.unit_d, self.reach = self._high_d / 2 - self._low_d / 2, float(np.sqrt(d))

    def __len__(self) -> int:
        return len(self.names)

    def made(self, indptr: Integers, held: NDArray[Any]) -> NumberRows:
        """Sequences of points."""
        return NumberRows(indptr, held)

    def encoded(self, cells: Cells) -> Floats:
        """Numbers within their bounds and in units of these, (points, D), each point by itself."""
        made_td = np.empty((len(cells), len(self)))
        for first in range(0, len(cells), _SLAB):
            made_td[first : first + _SLAB] = self._bounded(self._points(cells[first : first + _SLAB]))
        return made_td

    def _bounded(self, x_td: Floats) -> Floats:
        """Points within their bounds and in units of these."""
        with np.errstate(all="ignore"):
            x_td = np.clip(np.where(np.isfinite(x_td), x_td, np.nan), self._low_d, self._high_d)
            x_td = (x_td - self.centre_d) / self.unit_d
            if not self._shortens:
                return x_td
            most_t = np.nanmax(np.abs(x_td), axis=1, initial=0.0)
            short_td = np.nan_to_num(x_td / np.where(most_t > 0, most_t, 1.0)[:, None])
            # One column after another, so that a point's bits are its own.
            norm_t = most_t * np.sqrt(sum((short_td[:, d] ** 2 for d in range(len(self))), np.zeros(len(x_td))))
            return np.asarray(x_td * np.minimum(1.0, 1.0 / np.where(norm_t > 0, norm_t, 1.0))[:, None])

    def of_columns(self, cells: Mapping[str, Cells], names: Sequence[str]) -> Floats:
        """Points from columns, whatever those are called there."""
        return self.encoded(np.column_stack([as_numbers(cells[name]) for name in names]))

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """A point; with one column also a single number."""
        return ((len(self),), ()) if len(self) == 1 else ((len(self),),)

    def own(self, one: object) -> Cells:
        """The points of an array, a frame or a list, (points, D); none of anything else, or of another width."""
        if is_of_pandas(one):
            one = array_of(one) if has_columns(one) else plain_cells(one)
        elif issubclass(type(one), np.ndarray):
            one = np.ndarray.view(one, np.ndarray)  # type: ignore[call-overload]
        array: Any = one if issubclass(type(one), np.ndarray) else None
        if array is not None and array.ndim > 0 and array.shape[1:] in self.axes:
            return self._points(array)
        row = plain_row(one)
        return self._points([] if row is None else row)

    def flat(self, data: Any) -> Cells:
        """The points of an array, a frame or a list.

        Raises:
            DataFormatError: for what holds none, or an array of another width.
        """
        if has_columns(data) or is_arrow_table(data):
            data = array_of(data)
        if isinstance(data, np.ndarray) and data.ndim == 2:
            if data.shape[1] != len(self):
                raise DataFormatError(f"X must have {len(self)} columns, got {data.shape[1]}.")
            return data
        if isinstance(data, (list, tuple)):
            return [*data]
        return column("X", data, None)

    def _points(self, cells: Cells) -> Floats:
        """Numbers of any size, (points, D)."""
        if isinstance(cells, np.ndarray) and (cells.ndim == 2 or (len(self) == 1 and cells.dtype.kind != "O")):
            return as_numbers(cells).reshape(len(cells), len(self))
        point_td = np.full((len(cells), len(self)), np.nan)
        with silence():
            for t, cell in enumerate(cells):
                row = plain_row(cell)
                if row is not None and len(row) == len(self):
                    point_td[t] = [number(one) for one in row] if not isinstance(row, np.ndarray) else as_numbers(row)
                elif len(self) == 1 and row is None:
                    point_td[t] = number(cell)
        return point_td


def _names(columns: object) -> tuple[str, ...]:
    """Names of public columns."""
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    if isinstance(columns, (int, np.integer)) and not isinstance(columns, bool):
        columns = [f"x{d}" for d in range(check_integer("columns", columns, low=1, high=_MOST))]
    if not isinstance(columns, (list, tuple)) or not 1 <= len(columns) <= _MOST:
        raise ParameterError(f"columns must be 1 to {_MOST} names, or their number, got {columns!r}.")
    for name in columns:
        check_name(name)
    if len(set(columns)) < len(columns):
        raise ParameterError(f"columns must have different names, got {[*columns]}.")
    return tuple(columns)


def _ends(name: str, given: Any, width: int) -> Floats:
    """The lower or upper end of each column's range."""
    try:
        end_d = np.array(np.broadcast_to(np.asarray(given, dtype=np.float64), (width,)))
    except (TypeError, ValueError):
        end_d = np.full(width, np.nan)
    if given is None or not (np.abs(end_d) <= 1e100).all():
        raise ParameterError(f"{name} must be a number or {width} of them, one for each column, got {given!r}.")
    return end_d
