"""Columns of numbers with a public range: plain ones, dates, and numbers that act along a curve.

The curve is a natural cubic spline, given by the values that it takes at knots: f(x) = Σ_k f(ξ_k) C_k(x).

C_k is the natural spline that is 1 at the knot ξ_k and 0 at all others. Between knots it is a cubic with continuous
second derivatives M_ik, before the first and behind the last knot a straight line. A spline depends only on its knots,
and on no range. All of this is public; every value is made from its own x.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import Cells, Floats, as_numbers, each, spelled, text
from dpvb.data.times import microseconds
from dpvb.guards.errors import ParameterError, check_choice, check_number


class NaturalSpline:
    """The functions C_k of some knots."""

    def __init__(self, knots: Sequence[float]) -> None:
        """Take three or more numbers in increasing order."""
        self._knot_k = np.array(knots, dtype=np.float64)
        self._gap_i = np.diff(self._knot_k)
        self._bend_kk = self._second_derivatives()
        gap_i, line_ik = self._gap_i, np.diff(np.eye(len(self._knot_k)), axis=0) / self._gap_i[:, None]
        self._slopes = (
            line_ik[0] - gap_i[0] / 6 * self._bend_kk[1],
            line_ik[-1] + gap_i[-1] / 6 * self._bend_kk[-2],
        )

    def __call__(self, x_n: Floats) -> Floats:
        """C_k(x), (n, k); NaN where x is."""
        knot_k, (first_k, last_k) = self._knot_k, self._slopes
        inside_n = np.clip(x_n, knot_k[0], knot_k[-1])
        i_n = np.clip(np.searchsorted(knot_k, inside_n, side="right") - 1, 0, len(self._gap_i) - 1)
        gap_n1, one_kk = self._gap_i[i_n][:, None], np.eye(len(knot_k))
        t_n1 = (inside_n - knot_k[i_n])[:, None] / gap_n1
        s_n1 = 1.0 - t_n1
        # Products, since a power may be rounded by the place that an entry has in its array.
        bent_nk = (s_n1 * s_n1 * s_n1 - s_n1) * self._bend_kk[i_n] + (t_n1 * t_n1 * t_n1 - t_n1) * self._bend_kk[
            i_n + 1
        ]
        value_nk = s_n1 * one_kk[i_n] + t_n1 * one_kk[i_n + 1] + gap_n1 * gap_n1 / 6 * bent_nk
        slope_nk = np.where((x_n < knot_k[0])[:, None], first_k, last_k)
        return np.asarray(value_nk + (x_n - inside_n)[:, None] * slope_nk)

    def ends(self, low: float, high: float) -> tuple[Floats, Floats]:
        """The least and the largest C_k(x) of low ≤ x ≤ high, (k,) each: at an end, at a knot, or where C_k is flat."""
        gap_i1, knot_i1 = self._gap_i[:, None], self._knot_k[:-1, None]
        before_ik, behind_ik = self._bend_kk[:-1], self._bend_kk[1:]
        slope_ik = np.diff(np.eye(len(self._knot_k)), axis=0) / gap_i1
        # The derivative of C_k in interval i is a·t² + b·t + c.
        a_ik, b_ik = gap_i1 / 2 * (behind_ik - before_ik), gap_i1 * before_ik
        c_ik = slope_ik - gap_i1 / 6 * (2 * before_ik + behind_ik)
        with np.errstate(all="ignore"):
            root_ik = np.sqrt(b_ik**2 - 4 * a_ik * c_ik)
            half_ik = -0.5 * (b_ik + np.where(b_ik < 0, -root_ik, root_ik))
            flat = np.concatenate([half_ik / a_ik, c_ik / half_ik])
        flat = np.where((flat > 0) & (flat < 1), flat, 0.0) * np.tile(gap_i1, (2, 1)) + np.tile(knot_i1, (2, 1))
        points = np.unique(np.concatenate([[low, high], self._knot_k, flat.ravel()]))
        value_pk = self(points[(points >= low) & (points <= high)])
        return value_pk.min(axis=0), value_pk.max(axis=0)

    def _second_derivatives(self) -> Floats:
        """M, (k, k): row i has the second derivatives of all C_k at knot i, which are 0 at both ends.

        Continuous slopes at the inner knots are a tridiagonal system, which is solved by elimination in a fixed order,
        so that every machine gets the same bits.
        """
        gap_i, bend_kk = self._gap_i, np.zeros((len(self._knot_k), len(self._knot_k)))
        jump_ik = np.diff(np.diff(np.eye(len(self._knot_k)), axis=0) / gap_i[:, None], axis=0)
        diagonal_i = (gap_i[:-1] + gap_i[1:]) / 3
        for i in range(1, len(jump_ik)):
            share = gap_i[i] / 6 / diagonal_i[i - 1]
            diagonal_i[i] -= share * gap_i[i] / 6
            jump_ik[i] -= share * jump_ik[i - 1]
        for i in reversed(range(len(jump_ik))):
            bend_kk[i + 1] = (jump_ik[i] - gap_i[i + 1] / 6 * bend_kk[i + 2]) / diagonal_i[i]
        return bend_kk


_TRANSFORMS = ("log1p", "asinh")
#: Least distance of two knots, as a part of the range.
_LEAST_GAP = 1e-6
#: Microseconds of the units of dates.
_UNITS = {"days": 86400 * 10**6, "years": 86400 * 10**6 * 365.25}
_UNREAD = -(2**63)


class Encoded(NamedTuple):
    """Cells of a column as a model reads them, `entries` of them in each row.

    Attributes:
        place_nm: places among the column's features, (n, m).
        value_nm: values, (n, m); NaN throughout a faulty row.
        cut_n: rows that were cut to a range or filled in, (n,).
    """

    place_nm: NDArray[np.int64]
    value_nm: Floats
    cut_n: NDArray[np.bool_]


class Ranged(ABC):
    """A column of numbers with a public range: cells become numbers, and these functions of them, scaled to [0, 1]."""

    name: str
    low: Any
    high: Any
    missing: Any
    numeric: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    @property
    def entries(self) -> int:
        """All features of a row may differ from 0."""
        return self.width

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name is the column's."""
        return (self.name,)

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm, guessed as a uniform one's."""
        return 1 / 3, 4 / 45

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number."""
        return self.low, self.high

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest value of each function, (k,)."""
        low_k, high_k = self.functions(np.array(self.range))
        return low_k, high_k

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Step of each function in its feature for 1, and the function's value at which the feature is 0, (k,)."""
        low_k, high_k = self.ends
        return 1 / (high_k - low_k), low_k

    def numbers(self, cells: Cells) -> Floats:
        """Cells as numbers, NaN where invalid, (n,)."""
        return as_numbers(cells)

    def cells(self, number_n: Floats) -> NDArray[Any]:
        """Cells that are these numbers."""
        return number_n

    def functions(self, value_n: Floats) -> Floats:
        """Functions in which the model is linear, (n, k), of numbers in the range; NaN where they are."""
        return value_n[:, None]

    def inverse(self, value_nk: Floats) -> Floats:
        """Numbers with these values of `functions`, (n,)."""
        return value_nk[:, 0]

    def decode(self, feature_nk: Floats) -> NDArray[Any]:
        """Cells with these features, within the range."""
        gain_k, zero_k = self.units
        with np.errstate(all="ignore"):  # An overflow is clipped to the range.
            number_n = self.inverse(zero_k + np.clip(feature_nk, 0, 1) / gain_k)
        return self.cells(np.clip(number_n, *self.range))

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """The features: clipped to the range, with missing values replaced, NaN in an ignored row."""
        value_n, (low_k, high_k) = self.numbers(cells), self.ends
        with np.errstate(all="ignore"):
            cut_n = np.clip(value_n, *self.range) != value_n
            if self.missing is not None:
                value_n = np.where(np.isnan(value_n), self.numbers([self.missing]), value_n)
            value_n = np.where(np.isfinite(value_n), np.clip(value_n, *self.range), np.nan)
            # The clip takes what rounding adds.
            value_nk = np.clip((self.functions(value_n) - low_k) / (high_k - low_k), 0, 1)
        return Encoded(np.broadcast_to(np.arange(self.width), value_nk.shape), value_nk, cut_n)


@dataclass(frozen=True)
class Numeric(Ranged):
    """A number with a public range.

    Attributes:
        name: the column's.
        low, high: public range; values outside are clipped to it.
        transform: None, "log1p" or "asinh", applied after clipping and before scaling to [0, 1].
        missing: Replacement for a missing or invalid number. None: such a row is ignored. A row with an infinite
            value is always ignored.

    Raises:
        ParameterError: a missing bound, or a field outside its range.

    Examples:
        >>> from dpvb.data import Numeric
        >>> Numeric("income", low=0, high=500_000, transform="log1p").kind
        'numeric'
    """

    name: str
    low: float | None = None
    high: float | None = None
    transform: Literal["log1p", "asinh"] | None = None
    missing: float | None = None
    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.low is None or self.high is None:
            raise _without_range(
                self,
                f"(1) give a range that you know without looking at the data: Numeric({self.name!r}, low=0, high=120); "
                "(2) let a small private release choose one: dpvb.private_range(values, low=..., high=..., "
                "epsilon=0.05, delta=1e-6) on a range that is surely wide enough, its budget added to the fit's; "
                "(3) rescale to units that have a range by themselves, as a share of a total or a rank in a public "
                f"table: Numeric({self.name!r}, low=0, high=1).",
            )
        if self.transform is not None:
            check_choice(f"transform of column {self.name!r}", self.transform, _TRANSFORMS, hint="None: no transform.")
        least = -1.0 if self.transform == "log1p" else -1e300
        _check_range(self, least)
        if not self.ends[1] > self.ends[0]:
            raise ParameterError(
                f"The range of column {self.name!r} is too narrow, got low={self.low!r} and high={self.high!r}."
            )

    def functions(self, value_n: Floats) -> Floats:
        """The transformed number."""
        if self.transform is None:
            return value_n[:, None]
        return np.asarray(np.log1p(value_n) if self.transform == "log1p" else np.arcsinh(value_n))[:, None]

    def inverse(self, value_nk: Floats) -> Floats:
        """The numbers before the transform."""
        value_n = value_nk[:, 0]
        if self.transform is None:
            return value_n
        return np.asarray(np.expm1(value_n) if self.transform == "log1p" else np.sinh(value_n))


@dataclass(frozen=True)
class Date(Ranged):
    """A day or a moment, as the time since a public epoch.

    A cell is a date wherever it is one in the spelling of ids: ISO 8601 ("2020-01-31", "2020-01-31 10:30",
    "2020-01-31T10:30+02:00"), or a date or time of Python, NumPy, pandas or Arrow. A moment with a time zone counts in
    UTC, one without as it is written. A number, and a date in any other order, is none.

    Attributes:
        name: the column's.
        low, high: public range, as dates; moments outside are clipped to it.
        epoch: the public date that is 0; None: low.
        unit: "years" of 365.25 days, or "days".
        missing: the date that stands for a missing or unreadable one; None: such a row is faulty and adds nothing.

    Raises:
        ParameterError: a missing bound, a value that is not a date, or a field outside its range.

    Examples:
        >>> from dpvb.data import Date
        >>> Date("admitted", low="2015-01-01", high="2025-12-31").width
        1
    """

    name: str
    low: Any = None
    high: Any = None
    epoch: Any = None
    unit: Literal["days", "years"] = "years"
    missing: Any = None
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_choice(f"unit of column {self.name!r}", self.unit, tuple(_UNITS))
        if self.low is None or self.high is None:
            raise _without_range(
                self,
                "give dates that you know without looking at the data, such as the first and the last day on which "
                f'rows could be included: Date({self.name!r}, low="2015-01-01", high="2025-12-31").',
            )
        limits = {"low": self.low, "high": self.high, "epoch": self.low if self.epoch is None else self.epoch}
        for name, moment in (limits if self.missing is None else {**limits, "missing": self.missing}).items():
            object.__setattr__(self, name, _public_moment(f"{name} of column {self.name!r}", moment))
        if not self.range[0] < self.range[1]:
            raise ParameterError(
                f"high of column {self.name!r} must be a date after low, got low={self.low!r} and high={self.high!r}."
            )

    @property
    def range(self) -> tuple[float, float]:
        """The time since the epoch at both ends."""
        low, high = self.numbers([self.low, self.high]).tolist()
        return low, high

    def numbers(self, cells: Cells) -> Floats:
        """Days or years since the epoch."""
        moment_n = each(cells, _moment)
        since_n = (np.maximum(moment_n, -(2**62)) - _moment(self.epoch)) / _UNITS[self.unit]
        return np.where(moment_n == _UNREAD, np.nan, since_n)

    def cells(self, number_n: Floats) -> NDArray[Any]:
        """Moments."""
        return (_moment(self.epoch) + np.round(number_n * _UNITS[self.unit]).astype(np.int64)).astype("M8[us]")


@dataclass(frozen=True)
class Spline(Ranged):
    """A number that acts along a curve: a natural cubic spline with public knots.

    The curve is a cubic between knots, smooth at them, and a straight line before the first and behind the last. A
    coefficient is the curve's value at a knot, less that at the reference knot.

    Attributes:
        name: the column's.
        knots: three or more public numbers in increasing order, inside the range.
        low, high: public range; values outside are clipped to it.
        reference: the knot at which the curve is 0; None: the middle one.
        missing: Replacement for a missing value. None: such a row is ignored. Infinities are never replaced.

    Raises:
        ParameterError: a missing bound, or a field outside its range.

    Examples:
        >>> from dpvb.data import Spline
        >>> Spline("age", knots=(30, 50, 70), low=18, high=90).names
        ('age[30]', 'age[70]')
    """

    name: str
    knots: Sequence[float] = ()
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    missing: float | None = None
    kind: ClassVar[str] = "spline"

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.low is None or self.high is None:
            raise _without_range(
                self,
                "give a range that you know without looking at the data: "
                f"Spline({self.name!r}, knots=(30, 50, 70), low=0, high=120).",
            )
        _check_range(self, -1e300)
        if isinstance(self.knots, (str, bytes)) or not isinstance(self.knots, (Sequence, np.ndarray)):
            raise ParameterError(f"knots of column {self.name!r} must be a list of numbers, got {self.knots!r}.")
        each_knot = f"each knot of column {self.name!r}"
        knots = tuple(check_number(each_knot, knot, low=self.low, high=self.high) for knot in self.knots)
        least = _LEAST_GAP * (self.high - self.low)
        if len(knots) < 3 or min(np.diff(knots)) < least:
            raise ParameterError(
                f"knots of column {self.name!r} must be three or more numbers in increasing order, at least {least:g} "
                f"apart, got {self.knots!r}. For a straight line take Numeric({self.name!r}, low=..., high=...)."
            )
        reference = knots[len(knots) // 2] if self.reference is None else self.reference
        if reference not in knots:
            raise ParameterError(
                f"reference of column {self.name!r} must be one of its knots {knots!r}, got {reference!r}."
            )
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "reference", float(reference))

    @property
    def width(self) -> int:
        """One feature for each knot but the reference."""
        return len(self.knots) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """column[knot]."""
        return tuple(f"{self.name}[{text(knot)}]" for knot in self.knots if knot != self.reference)

    @cached_property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm, guessed as a uniform one's."""
        low, high = self.range
        value_nk = self.encode(low + (np.arange(256) + 0.5) / 256 * (high - low), frozenset()).value_nm
        squares = [math.fsum(value * value for value in row) for row in value_nk.tolist()]
        mean = math.fsum(squares) / 256
        return mean, math.fsum((square - mean) ** 2 for square in squares) / 256

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest value of each function, (k,)."""
        low_k, high_k = self._spline.ends(*self.range)
        return low_k[self._free], high_k[self._free]

    def functions(self, value_n: Floats) -> Floats:
        """The splines that are 1 at one knot and 0 at all others."""
        return self._spline(value_n)[:, self._free]

    def inverse(self, value_nk: Floats) -> Floats:
        """X = Σ_k ξ_k C_k(x), as a straight line is its own natural spline; and Σ_k C_k(x) = 1."""
        away_k = np.array(self.knots)[self._free] - self.reference
        return np.asarray(self.reference + (value_nk * away_k).sum(axis=1))

    @cached_property
    def _spline(self) -> NaturalSpline:
        return NaturalSpline(self.knots)

    @property
    def _free(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.array(self.knots) != self.reference)


def check_name(name: object) -> None:
    """Check the name of a column.

    Raises:
        ParameterError: for anything but a nonempty text.
    """
    if not isinstance(name, str) or not name:
        raise ParameterError(f"The name of a column must be a nonempty text, got {name!r}.")


def _moment(cell: object) -> int:
    """Microseconds from 1970 to the moment that a cell is; -2^63: it is none."""
    moment = microseconds(spelled(cell))
    return _UNREAD if moment is None else moment


def _public_moment(name: str, given: object) -> str:
    """A declared date in the one spelling.

    Raises:
        ParameterError: for anything else.
    """
    if _moment(given) == _UNREAD:
        raise ParameterError(f'{name} must be a date such as "2020-01-31" or "2020-01-31T10:30Z", got {given!r}.')
    return str(spelled(given))


def _without_range(column: Ranged, ways: str) -> ParameterError:
    bound = " and ".join(name for name in ("low", "high") if getattr(column, name) is None)
    return ParameterError(
        f"column {column.name!r} needs {bound}, a public bound: one read off private data would show the largest or "
        f"smallest value in the data. {'Three ways' if '(1)' in ways else 'The way'} out: {ways}"
    )


def _check_range(column: Numeric | Spline, least: float) -> None:
    """Keep range and stand-in as plain numbers.

    Raises:
        ParameterError: for no range, or no number.
    """
    low = check_number(f"low of column {column.name!r}", column.low, low=least, high=1e300, closed="right")
    high = check_number(f"high of column {column.name!r}", column.high, low=low, high=1e300, closed="right")
    object.__setattr__(column, "low", low)
    object.__setattr__(column, "high", high)
    if column.missing is not None:
        missing = check_number(f"missing of column {column.name!r}", column.missing, low=-1e300, high=1e300)
        object.__setattr__(column, "missing", missing)
