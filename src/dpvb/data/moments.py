"""The one place where a private cell becomes a moment, by which records are ordered.

A moment is three numbers, compared one after another. They are a function of the cell alone. Cells that state the same
moment have the same three numbers, whatever their types:

=====================================  ==================  ============================  ===============================
a cell                                 first               second                        third
=====================================  ==================  ============================  ===============================
a date, with or without a time of day  days since 1970     microseconds since midnight   the rest, in microseconds
a number, or a duration in             the nearest         what it leaves of the         what both leave
nanoseconds                            float64             decimal digits
anything else, and infinity            NaN                 0                             0
=====================================  ==================  ============================  ===============================

A date with a time zone is read in UTC, and one without as it is written. A float states the decimal number that Python
prints for it, so that 0.1 and "0.1" are equal. So does a text with an exponent. A number among dates is read in days.
"""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import Cells, Floats, each, number, spelled
from dpvb.data.times import instant

Moment: TypeAlias = "tuple[float, float, float]"

_NEVER = (math.nan, 0.0, 0.0)
_DAY = 86400
#: Steps of a second; dates in these units have years of at most 12 digits, as texts of dates do.
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PLAIN = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
# Decimal numbers of so many digits are their float64's: Python prints these digits again.
_DIGITS_OF_FLOAT = 15
# A float64 has at most 309 digits before the point and 1,074 behind it.
_EXACT = Context(prec=1400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
# From here on, whole numbers share a float64.
_FIRST_SHARED = 2.0**53
# Differences of smaller whole numbers fit int64.
_FIRST_LARGE = 2.0**62


def moment(cell: object) -> Moment:
    """The moment that a cell states; NaN first where it states none."""
    nearest = number(cell)
    if math.isnan(nearest):
        return instant(spelled(cell)) or _NEVER
    if math.isinf(nearest):
        return _NEVER
    kind = type(cell)
    is_small = abs(nearest) < _FIRST_SHARED
    is_short = kind is int or (kind in (str, bytes) and len(cell) <= _DIGITS_OF_FLOAT)  # type: ignore[arg-type]
    if issubclass(kind, float) or (is_small and is_short):
        return nearest, 0.0, 0.0
    return nearest, *_rest(spelled(cell) or "", nearest)


def moments(cells: Cells) -> Floats:
    """The moment of each cell, (n, 3)."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
        return _joined(np.where(np.isfinite(cells), cells, np.nan))
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iu":
        return _whole(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        unit, step = np.datetime_data(cells.dtype)
        if unit in _PER_SECOND and step == 1:
            return _dates(cells, _PER_SECOND[unit])
    return _each(cells)


def _each(cells: Cells) -> Floats:
    each_moment = list[Moment]()

    def place(cell: object) -> int:
        each_moment.append(moment(cell))
        return len(each_moment) - 1

    place_n = each(cells, place)
    return np.array(each_moment, dtype=np.float64).reshape(-1, 3)[place_n]


def _whole(cells: NDArray[Any]) -> Floats:
    """Moments of an array of whole numbers."""
    nearest_n = cells.astype(np.float64)
    rest_n = np.zeros(len(cells))
    shared_n, large_n = (np.abs(nearest_n) >= first for first in (_FIRST_SHARED, _FIRST_LARGE))
    middle_n = shared_n & ~large_n
    rest_n[middle_n] = cells[middle_n].astype(np.int64) - nearest_n[middle_n].astype(np.int64)
    moment_n = _joined(nearest_n, rest_n)
    moment_n[large_n] = _each(cells[large_n])
    return moment_n


def _dates(cells: NDArray[Any], per_second: int) -> Floats:
    """Moments of dates that are kept in steps of a second."""
    day_n, step_n = np.divmod(cells.astype(np.int64), _DAY * per_second)
    micro_n, rest_n = step_n * (10**6 // per_second) if per_second <= 10**6 else step_n // 1000, np.zeros(len(cells))
    if per_second > 10**6:
        rest_n = step_n % 1000 / 1000
    return np.where(np.isnat(cells)[:, None], _NEVER, _joined(day_n, micro_n, rest_n))


def _joined(first_n: NDArray[Any], second_n: Any = 0.0, third_n: Any = 0.0) -> Floats:
    moment_n = np.zeros((len(first_n), 3))
    with np.errstate(all="ignore"):  # a long double beyond float64
        moment_n[:, 0], moment_n[:, 1], moment_n[:, 2] = first_n, second_n, third_n
    return moment_n


def _rest(text: str, nearest: float) -> tuple[float, float]:
    """What the nearest float leaves of a number in the spelling of ids, and what float64 leaves of that."""
    above, _, below = text.partition("/")
    is_short = len(text) <= _DIGITS_OF_FLOAT and not below
    if is_short or _PLAIN.fullmatch(above) is None or not (below or "1").isdecimal():
        return 0.0, 0.0
    with localcontext(_EXACT):
        rest = Decimal(above) / Decimal(below or 1) - Decimal(spelled(nearest) or 0)
        second = float(rest)
        return second, float(rest - Decimal(second))
