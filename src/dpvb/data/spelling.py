"""The one place where a private cell becomes a number, a text, or the id of a person.

A column's type may have been inferred from its values: one "n/k" makes text of all the numbers in a file that pandas
reads, one complex number makes all the others complex. So a type says nothing here, and a cell means the same in every
form that a writer may have given it:

===============================================  ===========================  ==========================
a cell                                           as a number                  as a category, label or id
===============================================  ===========================  ==========================
7, 7.0, True + 6, Decimal("7.00"), (7+0j)        7.0                          "7"
"7", b"7", " 007 ", "+7.0"                       7.0                          "7"
"True", "true", "TRUE", True                     1.0                          "1"
"1.50", 1.5, Decimal("1.50")                     1.5                          "1.5"
2**53 + 1 as int or as text                      2.0**53                      "9007199254740993"
"1e5"                                            100000.0                     "1e5": many ids look so
"2020-01-01", "2020-01-01 00:00:00", a date,     NaN                          "2020-01-01"
NumPy's, Arrow's or pandas' of any unit
"2020-01-01T12:30+02:00", the same in UTC        NaN                          "2020-01-01T10:30Z"
"12:30", "12:30:00", time(12, 30)                NaN                          "12:30"
"1 days 00:00:00", a duration of any unit        8.64e13, nanoseconds         "86400000000000"
UUID("ab..."), its text in either case           NaN                          "ab..."
a text                                           NaN                          the text, stripped, in NFC
None, NaN, NaT, pandas.NA, "nan"                 NaN                          missing
bytes that are not UTF-8                         NaN                          unreadable
more than 64 combining marks in a row            NaN                          unreadable
any other object                                 NaN                          missing
===============================================  ===========================  ==========================

Categories and labels are compared in this spelling without regard to capital letters: "No", " no" and "NO" are one.
Ids are not: "aB" and "Ab" may be two persons.

Nothing here raises or warns. A subclass is read by the methods of its base, and of the classes that hold times only
those of Python, NumPy, pandas and dateutil are asked: what a private object brings along is not called.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeAlias, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from dpvb.data.times import duration_of_text, in_utc, time_of_text
from dpvb.guards.suppress_output import silence

#: Texts that stand for a missing value, unless a column declares them as a category.
MISSING_VALUES = (
    *("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"),
    # Texts that pandas and Arrow treat as missing where they make numbers of a column.
    *("n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "-nan", "-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
#: Spelling of undecodable bytes; no readable text is equal to it.
UNREADABLE = "\udc80"

Floats: TypeAlias = "NDArray[np.float64]"
#: Cells of a column as a reader found them.
Cells: TypeAlias = "NDArray[Any] | Sequence[object]"
_Plain: TypeAlias = "str | bool | int | float | complex | Decimal | Fraction | None"

# These signs at the end of a text are ignored; NumPy drops zero bytes from some of its texts.
_BLANK = "\0" + "".join(filter(str.isspace, map(chr, range(0x3001))))
_TRUTH = {"True": 1, "true": 1, "TRUE": 1, "False": 0, "false": 0, "FALSE": 0}
_INFINITE = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"([+-]?)(?=\.?\d)(\d*)(?:\.(\d*))?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
# Every combining mark is none of the letters and digits, and lies beyond U+02FF.
_MOST_MARKS = 64
_MARKS = re.compile(rf"[^\w\x00-\u02ff]{{{_MOST_MARKS + 1},}}")
# They are not marks themselves, but stand for two each.
_DOUBLE_MARKS = "\u0f73\u0f75\u0f81"
# Texts that NumPy and pandas write for a missing value when they make a column text.
_WRITTEN_MISSING = frozenset({"nan", "NaT", "<NA>"})
_NOBODY = frozenset(text.casefold() for text in (*MISSING_VALUES, *_WRITTEN_MISSING, "inf", "-inf"))
_EXACT_TYPES = frozenset({str, bool, int, float, complex, Decimal, Fraction})
# Types whose values can be remembered without asking a private object anything.
_REMEMBERED = frozenset({str, bytes, int, bool, float})
# Those of whose objects the offset from UTC is asked for.
_TIME_ZONES = (timezone, ZoneInfo)
# pandas and Arrow read the times of these zones, and keep them in UTC where a whole column has such times.
_DATEUTIL_ZONES = ("tzutc", "tzoffset", "tzfile", "tzlocal", "tzstr", "tzrange")
# Python converts no longer whole numbers to text and back, unless it is told to.
_MOST_DIGITS = 4300
# From here on, floating point tells whole numbers apart no longer.
_FIRST_VAGUE = 2.0**53
_NANOSECONDS = {
    **{"W": 7 * 86400 * 10**9, "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9},
    **{"ms": 10**6, "us": 10**3, "ns": 1, "Y": 12, "M": 1, "generic": 1},
}
_SHARES = {"ps": 10**3, "fs": 10**6, "as": 10**9}


def number(cell: object) -> float:
    """A cell as a number; NaN for what is neither a number nor the text of one."""
    kind = type(cell)
    if kind is float:
        return cell  # type: ignore[return-value]
    if kind is str or kind is bytes:
        try:
            return float(cell)  # type: ignore[arg-type]
        except ValueError:
            pass  # truth values, blanks that Python does not strip, complex numbers
    value: Any = _plain(cell)
    try:
        if isinstance(value, str):
            value = _number_of_text(value.strip(_BLANK))
        if isinstance(value, complex):
            value = value.real if value.imag == 0 else None
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except MemoryError:
        raise
    except Exception:  # a signalling NaN, a Fraction without its parts
        return math.nan


def as_numbers(cells: Cells) -> Floats:
    """Return an array, or a sequence of cells, in float64; a value that is not a number is NaN."""
    with silence():
        if not isinstance(cells, np.ndarray):
            return np.array([number(cell) for cell in cells], dtype=np.float64)
        kind = cells.dtype.kind
        if kind in "biuf":
            return cells.astype(np.float64)
        if kind == "c":
            return np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)
        if kind not in "OSUTm":
            return np.full(cells.shape, np.nan)
        each_cell = cells.ravel() if kind == "m" else cells.ravel().tolist()
        numbers = np.array([number(cell) for cell in each_cell], dtype=np.float64)
        return numbers.reshape(cells.shape)


def real(array: NDArray[Any]) -> NDArray[Any]:
    """The array as it is where its type is a real number's; otherwise its cells as numbers."""
    return array if array.dtype.kind in "biuf" else as_numbers(array)


def as_array(data: Any) -> NDArray[Any]:
    """Return NumPy's view of an object; a series would answer NumPy with the cell of a row that is so called."""
    return np.asarray(data.to_numpy() if hasattr(type(data), "iloc") else data)


def cells_of(column: Iterable[object]) -> list[object]:
    """The cells of an array, a pandas or Arrow column, or any iterable, as Python objects where they have a form."""
    with silence():
        if type(column).__module__.partition(".")[0] == "pyarrow":
            from dpvb.data.arrow import cells

            return cells_of(cells(column))
        if isinstance(column, np.ndarray):
            # As Python objects some times would be whole numbers.
            return list(column) if column.dtype.kind in "mM" else column.tolist()
        kind: Any = getattr(column, "dtype", None)
        if isinstance(kind, np.dtype):
            return cells_of(as_array(column))
        if kind is not None and hasattr(column, "array"):
            return _cells_of_pandas(column, kind)
        tolist = getattr(column, "tolist", None)
        return list(column if tolist is None else tolist())


def _cells_of_pandas(column: Any, kind: Any) -> list[object]:
    """The cells of a Series or an Index of a type of pandas' own, without decoding text or converting times."""
    held = column.array
    if hasattr(kind, "pyarrow_dtype") or getattr(kind, "storage", None) == "pyarrow":
        return cells_of(held.__arrow_array__())
    if hasattr(kind, "categories"):
        values = [*cells_of(held.categories), None]  # the code of a missing one is -1
        return [values[code] for code in held.codes.tolist()]
    if hasattr(kind, "tz"):
        return in_utc(np.asarray(held.tz_convert(None)))
    return list(column.tolist())


def text(value: str | bool | int | float) -> str:
    """A public value as it is shown."""
    return _readable(value) if isinstance(value, str) else str(value if isinstance(value, bool) else spelled(value))


def spelled(cell: object) -> str | None:
    """A cell in the one spelling in which ids are compared, and with `label` categories.

    None for a missing one, and for an object that has no spelling; `UNREADABLE` for bytes that are not text.
    """
    try:
        value = _plain(cell)
        if isinstance(value, str):
            return _spelled_text(_readable(value))
        if value is None:
            return _spelled_object(cell)
        return _spelled_fraction(value) if isinstance(value, Fraction) else _spelled_number(value)
    except MemoryError:
        raise
    except Exception:  # an object that was made without its parts
        return None


def label(cell: object) -> str | None:
    """A cell in the one spelling in which categories and labels are compared: as `spelled`, in small letters."""
    name = spelled(cell)
    if name is None or name.isascii():
        return name if name is None else name.lower()
    return unicodedata.normalize("NFC", name.casefold())


def identity(cell: object) -> str | None:
    """Return the person ID in a cell, in one spelling; None if there is none.

    Beside missing and unreadable cells these are the texts of missing values, and floats of 2^53 and more, which
    cannot say which whole number they are. A tuple is an id if each of its members is.
    """
    if issubclass(type(cell), tuple):
        try:
            members = [identity(member) for member in tuple.__iter__(cast(Any, cell))]
        except RecursionError:
            return None
        if None in members:
            return None
        return "\0" + "".join(f"{len(member)}:{member}" for member in members if member is not None)
    if _is_vague(_plain(cell)):
        return None
    name = spelled(cell)
    return None if name is None or name == UNREADABLE or name.casefold() in _NOBODY else name


def document(cell: object) -> str:
    """The text of a cell whose column may have become text by another cell.

    Empty where it is the text of a number or of a time.
    """
    value = _plain(cell)
    if not isinstance(value, str) or value == UNREADABLE:
        return ""
    stripped = value.strip(_BLANK)
    typed = stripped == "nan" or _number_of_text(stripped) is not None or time_of_text(stripped) is not None
    return "" if typed else value.rstrip("\0")


def each(cells: Cells, function: Callable[[object], int]) -> NDArray[np.int64]:
    """A function of each cell, asked once for equal plain ones, in their order of appearance."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biufmM":
        values, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
        answers = np.empty(len(values), dtype=np.int64)
        for place in np.argsort(first):
            answers[place] = function(values[place])
        return answers[inverse]
    result_of_key: dict[object, int] = {}
    result = np.empty(len(cells), dtype=np.int64)
    for n, cell in enumerate(cells_of(cells)):
        kind = type(cell)
        if kind not in _REMEMBERED:
            result[n] = function(cell)
            continue
        key = (kind, cell)  # 1 and True are equal, but two texts
        answer = result_of_key.get(key)
        if answer is None:
            answer = result_of_key[key] = function(cell)
        result[n] = answer
    return result


class Categories:
    """Public values, and which of them a private cell is; a declared one is not missing, whatever it looks like."""

    def __init__(self, values: Sequence[object], missing_values: Iterable[str] = ()) -> None:
        """Take public values of different labels, and texts that stand for a missing one."""
        self._place = {label(value): place for place, value in enumerate(values)}
        self._missing = {None, *map(label, missing_values)}

    def places(self, cells: Cells, *, other: int, missing: int) -> NDArray[np.int64]:
        """The place of each cell among the values; undecodable text is at -1."""

        def place(cell: object) -> int:
            name = label(cell)
            if name in self._place:
                return self._place[name]
            if name in self._missing:
                return missing
            return -1 if name == UNREADABLE else other

        return each(cells, place)


def _plain(cell: object) -> _Plain:
    """A cell as a plain Python value; None for anything that is neither a number nor text."""
    kind = type(cell)
    if kind in _EXACT_TYPES:
        return cell  # type: ignore[return-value]
    if issubclass(kind, str):
        return str.__str__(cell)
    if issubclass(kind, bytes):
        try:
            return bytes.decode(cell)  # type: ignore[arg-type]
        except UnicodeDecodeError:
            return UNREADABLE
    if issubclass(kind, (np.timedelta64, timedelta)):
        return _duration(cell)
    if issubclass(kind, np.bool_):
        return bool(cell)
    if issubclass(kind, float):
        return float.__float__(cell)  # type: ignore[arg-type]
    if issubclass(kind, int):
        return int.__int__(cell)  # type: ignore[arg-type]
    if issubclass(kind, np.integer):
        return int(cell)  # type: ignore[call-overload, no-any-return]
    if issubclass(kind, (np.floating, np.complexfloating)):
        with silence():
            return float(cell) if issubclass(kind, np.floating) else complex(cell)  # type: ignore[arg-type, call-overload]
    if kind is np.ndarray and cell.ndim == 0:  # type: ignore[attr-defined]
        inner: object = cell[()]  # type: ignore[index]
        return None if type(inner) is np.ndarray else _plain(inner)
    return None


def _duration(cell: Any) -> int | Fraction | None:
    """Nanoseconds of a duration, whatever unit it is kept in; months, which have no fixed length, are counted."""
    kind = type(cell)
    if _is_of_pandas(kind, "Timedelta"):
        cell = cell.asm8
    elif issubclass(kind, timedelta):
        days, seconds, micros = (getattr(timedelta, part).__get__(cell) for part in ("days", "seconds", "microseconds"))
        return int(((days * 86400 + seconds) * 10**6 + micros) * 1000)
    if np.isnat(cell):
        return None
    unit, step = np.datetime_data(cell)
    count = int(cell.astype(np.int64)) * step
    return Fraction(count, _SHARES[unit]) if unit in _SHARES else count * _NANOSECONDS[unit]


def _is_of_pandas(kind: type, name: str) -> bool:
    """Whether a type is the one of this name in pandas, and not one that says so."""
    return kind is getattr(sys.modules.get("pandas"), name, None)


def _readable(value: str) -> str:
    value = value.strip(_BLANK)
    if value.isascii():
        return value
    # Marks are put into an order, and the time of that grows with the square of their number.
    return UNREADABLE if any(map(_is_overloaded, _MARKS.findall(value))) else unicodedata.normalize("NFC", value)


def _is_overloaded(signs: str) -> bool:
    """Whether too many combining marks stand in a row."""
    runs = groupby(signs, lambda sign: unicodedata.combining(sign) > 0 or sign in _DOUBLE_MARKS)
    return any(are_marks and sum(1 for _ in run) > _MOST_MARKS for are_marks, run in runs)


def _number_of_text(value: str) -> float | complex | None:
    """The number that a stripped text spells, or None."""
    if value in _TRUTH:
        return _TRUTH[value]
    for kind in (float, complex):
        try:
            return kind(value)
        except ValueError:
            pass
    return duration_of_text(value)


def _spelled_text(value: str) -> str | None:
    if value in _WRITTEN_MISSING:
        return None
    if value in _TRUTH:
        return str(_TRUTH[value])
    match = _DECIMAL.fullmatch(value)
    if match is not None:
        sign, whole, fraction = match.groups(default="")
        return _decimal(sign == "-", whole, fraction) if len(value) <= _most_digits() else UNREADABLE
    match = _INFINITE.fullmatch(value)
    if match is not None:
        return "-inf" if match[1] == "-" else "inf"
    typed = time_of_text(value)
    if typed is not None:
        return typed
    written = _number_of_text(value)
    # Numbers and durations as Python writes them; other ids would depend on chance.
    if written is not None and (str(written) == value or isinstance(written, int)):
        return _spelled_number(written)
    if len(value) == 36 and _UUID.fullmatch(value) is not None:
        return value.lower()
    return UNREADABLE if not value.isascii() and _SURROGATE.search(value) is not None else value


def _spelled_number(value: bool | int | float | complex | Decimal) -> str | None:
    if isinstance(value, complex):
        if value.imag != 0:
            return None if value != value else str(value + 0)
        value = value.real
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        if value.is_finite() and abs(value.adjusted()) + len(value.as_tuple().digits) > _most_digits():
            return UNREADABLE
    elif math.isnan(value):
        return None
    if value in (math.inf, -math.inf):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float):
        if value == math.floor(value):
            return _whole(int(value))
        value = Decimal(repr(value))
    whole, _, fraction = f"{value:f}".removeprefix("-").partition(".")  # abs() would round
    return _decimal(value < 0, whole, fraction)


def _spelled_fraction(value: Fraction) -> str:
    above, below = _whole(value.numerator), _whole(value.denominator)
    if UNREADABLE in (above, below):
        return UNREADABLE
    return above if below == "1" else f"{above}/{below}"


def _whole(value: int) -> str:
    largest = _power_of_ten(_most_digits())
    return str(value) if -largest < value < largest else UNREADABLE


def _most_digits() -> int:
    """How long a whole number may be: a process can be told to convert fewer digits than are converted otherwise."""
    return min(_MOST_DIGITS, sys.get_int_max_str_digits() or _MOST_DIGITS)


@lru_cache(maxsize=4)
def _power_of_ten(exponent: int) -> int:
    return int(10**exponent)


def _decimal(negative: bool, whole: str, fraction: str) -> str:
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    digits = f"{whole}.{fraction}" if fraction else whole
    return f"-{digits}" if negative and digits != "0" else digits


def _spelled_object(cell: object) -> str | None:
    """Ids that are not text: UUIDs, dates and times."""
    kind: Any = type(cell)
    value: Any = cell
    if kind is UUID:
        return str(value) if type(value.int) is int else None
    if kind is time:
        zone = value.tzinfo
        return _spelled_text(value.isoformat()) if zone is None or type(zone) is timezone else None
    if _is_of_pandas(kind, "Timestamp"):
        return spelled(value.asm8) if value.tz is None else _spelled_text(f"{value.asm8}Z")
    if issubclass(kind, np.datetime64):
        return None if np.isnat(value) else _spelled_text(f"{value}-01" if value.dtype == "M8[Y]" else str(value))
    if issubclass(kind, datetime) and kind.__name__ != "NaTType":  # pandas' NaT is a datetime
        zone = cast(Any, datetime.tzinfo).__get__(value)
        return _spelled_text(datetime.isoformat(value)) if zone is None or _is_time_zone(type(zone)) else None
    return _spelled_text(date.isoformat(value)) if issubclass(kind, date) and not issubclass(kind, datetime) else None


def _is_time_zone(kind: type) -> bool:
    """Whether a class is one whose objects are asked for the offset from UTC."""
    return kind in _TIME_ZONES or any(
        kind is getattr(sys.modules.get("dateutil.tz"), name, None) for name in _DATEUTIL_ZONES
    )


def _is_vague(value: _Plain) -> bool:
    """Whether a number, or the text that was written for one, is a float too large to name a whole number."""
    if isinstance(value, str):
        stripped = value.strip(_BLANK)
        written = _number_of_text(stripped)
        if written is None or isinstance(written, int) or str(written) != stripped:
            return False
        value = written
    if isinstance(value, complex):
        value = value.real
    return isinstance(value, float) and abs(value) >= _FIRST_VAGUE
