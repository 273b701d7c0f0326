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
a text                                           NaN                          the text, stripped, in NFC
None, NaN, NaT, pandas.NA, "nan"                 NaN                          missing
bytes that are no UTF-8                          NaN                          unreadable
any other object                                 NaN                          missing
===============================================  ===========================  ==========================

Nothing here raises, warns, or calls a method that a private object brings along.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dpvb.silence import silence

#: Texts that stand for a missing value, unless a column declares them as a category.
MISSING_VALUES = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
#: What undecodable bytes are spelled as; no readable text is equal to it.
UNREADABLE = "\udc80"

Floats: TypeAlias = "NDArray[np.float64]"
#: Cells of a column as a reader found them.
Cells: TypeAlias = "NDArray[Any] | Sequence[object]"
_Plain: TypeAlias = "str | bool | int | float | complex | Decimal | Fraction | None"

# What stands at the end of a text is no part of it; NumPy drops zero bytes from some of its texts.
_BLANK = "\0" + "".join(filter(str.isspace, map(chr, range(0x3001))))
_TRUTH = {"True": 1, "true": 1, "TRUE": 1, "False": 0, "false": 0, "FALSE": 0}
_INFINITE = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"([+-]?)(?=\.?\d)(\d*)(?:\.(\d*))?", re.ASCII)
# What NumPy and pandas write for a missing value when they make a column text.
_WRITTEN_MISSING = frozenset({"nan", "NaT", "<NA>"})
_NOBODY = frozenset(text.casefold() for text in (*MISSING_VALUES, *_WRITTEN_MISSING, "inf", "-inf"))
_EXACT_TYPES = frozenset({str, bool, int, float, complex, Decimal, Fraction})
# Types whose values can be remembered without asking a private object anything.
_REMEMBERED = frozenset({str, bytes, int, bool, float})
# Python converts no longer whole numbers to text and back.
_MOST_DIGITS = 4300
_LARGEST = 10**_MOST_DIGITS
# Beyond it, floating point tells whole numbers apart no longer.
_LAST_WHOLE = 2.0**53


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
    value = _plain(cell)
    if isinstance(value, str):
        value = _number_of_text(value.strip(_BLANK))
    if isinstance(value, complex):
        value = value.real if value.imag == 0 else None
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def as_numbers(cells: Cells) -> Floats:
    """An array of any type and shape, or a sequence of cells, in float64; what is no number is NaN."""
    with silence():
        if not isinstance(cells, np.ndarray):
            return np.array([number(cell) for cell in cells], dtype=np.float64)
        kind = cells.dtype.kind
        if kind in "biuf":
            return cells.astype(np.float64)
        if kind == "c":
            return np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)
        if kind == "m":  # numbers among which one duration was
            return np.where(np.isnat(cells), np.nan, cells.astype(np.int64).astype(np.float64))
        if kind not in "OSUT":
            return np.full(cells.shape, np.nan)
        found = np.array([number(cell) for cell in cells.ravel().tolist()], dtype=np.float64)
        return found.reshape(cells.shape)


def real(array: NDArray[Any]) -> NDArray[Any]:
    """The array as it is where its type is a real number's; otherwise its cells as numbers."""
    return array if array.dtype.kind in "biuf" else as_numbers(array)


def cells_of(column: Iterable[object]) -> list[object]:
    """The cells of an array, a pandas or Arrow column, or any iterable, as Python objects where they have a form."""
    with silence():
        if type(column).__module__.partition(".")[0] == "pyarrow":
            from dpvb.data.arrow import cells

            return cells_of(cells(column))
        if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
            return list(column)  # as Python objects some would be whole numbers
        tolist = getattr(column, "tolist", None)
        return list(column if tolist is None else tolist())


def text(cell: object) -> str | None:
    """A cell as the text that was written, by which public categories are told apart first; None: missing."""
    value = _plain(cell)
    if isinstance(value, str):
        return _readable(value)
    return str(value) if isinstance(value, bool) else spelled(cell)


def spelled(cell: object) -> str | None:
    """A cell in the one spelling in which categories, labels and ids are compared.

    None for a missing one, and for an object that has no spelling; `UNREADABLE` for bytes that are no text.
    """
    value = _plain(cell)
    if value is None:
        return _spelled_object(cell)
    if isinstance(value, str):
        return _spelled_text(_readable(value))
    if isinstance(value, Fraction):
        return _whole(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return _spelled_number(value)


def identity(cell: object) -> str | None:
    """The person that a cell names, in one spelling; None where it names nobody.

    Beside missing and unreadable cells these are the texts of missing values, and floats of 2^53 and more, which
    cannot say which whole number they are. A tuple names somebody where each of its members does.
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
    """The text of a cell whose column may have become text by another cell: empty where it is the text of a number."""
    value = _plain(cell)
    if not isinstance(value, str) or value == UNREADABLE:
        return ""
    stripped = value.strip(_BLANK)
    return "" if stripped == "nan" or _number_of_text(stripped) is not None else value.rstrip("\0")


def each(cells: Cells, function: Callable[[object], int]) -> NDArray[np.int64]:
    """A function of each cell, asked once for equal plain ones, in their order of appearance."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
        answers = np.empty(len(values), dtype=np.int64)
        for place in np.argsort(first):
            answers[place] = function(values[place])
        return answers[inverse]
    known: dict[object, int] = {}
    result = np.empty(len(cells), dtype=np.int64)
    for n, cell in enumerate(cells_of(cells)):
        kind = type(cell)
        if kind not in _REMEMBERED:
            result[n] = function(cell)
            continue
        key = (kind, cell)  # 1 and True are equal, but two texts
        found = known.get(key)
        if found is None:
            found = known[key] = function(cell)
        result[n] = found
    return result


class Categories:
    """Public values, and which of them a private cell is.

    A cell is compared as text first, so that "250.1" and "250.10" may be two values; then in the one spelling, where
    that belongs to one of the values alone.
    """

    def __init__(self, values: Sequence[object], missing_values: Iterable[str] = ()) -> None:
        """Take public values, different as texts, and texts that stand for a missing one."""
        self._written = {str(text(value)): place for place, value in enumerate(values)}
        spellings = [spelled(value) for value in values]
        self._spelled = _alone(spellings)
        stand_ins = [*missing_values]
        self._missing = {*map(text, stand_ins), *map(spelled, stand_ins)}

    def places(self, cells: Cells, *, unseen: int, missing: int) -> NDArray[np.int64]:
        """The place of each cell among the values; undecodable text is at -1."""
        # A missing one may have been written as the text that is declared.
        missing = self._written.get("nan", missing)

        def place(cell: object) -> int:
            written, name = text(cell), spelled(cell)
            if written in self._written:
                return self._written[written]
            if name in self._spelled:
                return self._spelled[name]
            if written is None or name is None or written in self._missing or name in self._missing:
                return missing
            return -1 if UNREADABLE in (written, name) else unseen

        return each(cells, place)


def _alone(names: Sequence[str | None]) -> dict[str, int]:
    times = Counter(names)
    return {name: place for place, name in enumerate(names) if name is not None and times[name] == 1}


def alike(values: Sequence[object]) -> tuple[object, object] | None:
    """Two public values with one spelling, or None; a column that is not text tells them apart no longer."""
    first: dict[str | None, object] = {}
    for value in values:
        name = spelled(value)
        if name is not None and name in first:
            return first[name], value
        first[name] = value
    return None


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
    if issubclass(kind, np.timedelta64):
        value: Any = cell
        return None if np.isnat(value) else int(value.astype(np.int64))
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
        return _plain(cell[()])  # type: ignore[index]
    return None


def _readable(value: str) -> str:
    value = value.strip(_BLANK)
    if not value.isascii():
        value = unicodedata.normalize("NFC", value)
    return value


def _number_of_text(value: str) -> float | complex | None:
    """The number that a stripped text spells, or None."""
    if value in _TRUTH:
        return _TRUTH[value]
    for kind in (float, complex):
        try:
            return kind(value)
        except ValueError:
            pass
    return None


def _spelled_text(value: str) -> str | None:
    if value in _WRITTEN_MISSING:
        return None
    if value in _TRUTH:
        return str(_TRUTH[value])
    found = _DECIMAL.fullmatch(value)
    if found is not None:
        sign, whole, fraction = found.groups(default="")
        return _decimal(sign == "-", whole, fraction) if len(value) <= _MOST_DIGITS else UNREADABLE
    found = _INFINITE.fullmatch(value)
    if found is not None:
        return "-inf" if found[1] == "-" else "inf"
    written = _number_of_text(value)
    if written is not None and str(written) == value:  # what Python writes for a number; an id would be chance
        return _spelled_number(written)
    return UNREADABLE if any("\ud800" <= letter <= "\udfff" for letter in value) else value


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
        if value.is_finite() and abs(value.adjusted()) + len(value.as_tuple().digits) > _MOST_DIGITS:
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


def _whole(value: int) -> str:
    return str(value) if -_LARGEST < value < _LARGEST else UNREADABLE


def _decimal(negative: bool, whole: str, fraction: str) -> str:
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    digits = f"{whole}.{fraction}" if fraction else whole
    return f"-{digits}" if negative and digits != "0" else digits


def _spelled_object(cell: object) -> str | None:
    """Ids that are no text: UUIDs, dates and times."""
    kind: Any = type(cell)
    value: Any = cell
    if kind is UUID or kind in (time, timedelta):
        return str(cell)
    if issubclass(kind, np.datetime64):
        return None if np.isnat(value) else _instant(str(value))
    if issubclass(kind, (date, datetime)) and kind.__name__ != "NaTType":  # pandas' NaT is a datetime
        return _instant((datetime if issubclass(kind, datetime) else date).isoformat(value))
    return None


def _instant(written: str) -> str:
    """A time without zeros at its end, which depend on the unit that it is kept in."""
    day, _, clock = written.partition("T")
    if re.search("[+-]", clock) is None:
        clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
        clock = re.sub("(:00)+$", "", clock)
    return day if clock in ("", "00") else f"{day}T{clock}"


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
    return isinstance(value, float) and abs(value) > _LAST_WHOLE
