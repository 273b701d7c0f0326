"""Moments, times of day and durations as texts, in the one spelling that no unit or writer changes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DAYS = re.compile(r"([+-]?\d{1,18}) days?(?:,? ([+-]?)(\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d*))?)?", re.ASCII)
_MOMENT = re.compile(
    r"\+?(\d{4,12}|-\d{3,12})-(\d\d)(?:-(\d\d)"
    r"(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.(\d*))?)?)?(?: ?(Z|[+-]\d\d)(?::?(\d\d)(?::?(\d\d))?)?)?)?)?",
    re.ASCII,
)


def in_utc(instants: NDArray[Any]) -> list[object]:
    """Times that are kept in UTC, datetime64, as texts that say so; None: missing."""
    return [None if np.isnat(instant) else f"{instant}Z" for instant in instants]


def duration_of_text(value: str) -> int | None:
    """Nanoseconds of a duration as pandas and Python write it, or None."""
    match = _DAYS.fullmatch(value)
    if match is None:
        return None
    days, sign, *clock, fraction = match.groups(default="0")
    hours, minutes, seconds = map(int, clock)
    rest = (hours * 3600 + minutes * 60 + seconds) * 10**9 + int(fraction.ljust(9, "0"))
    return int(days) * 86400 * 10**9 + (-rest if sign == "-" else rest)


def time_of_text(value: str) -> str | None:
    """A stripped text that is a moment or a time of day, without what depends on the unit that it is kept in."""
    if not value[1:4].isdecimal() and value[2:3] != ":":
        return None
    match = _TIME.fullmatch(value)
    if match is not None:
        hour, minute, second, fraction = match.groups(default="")
        return _clock(hour, minute, second, fraction) if _is_clock(hour, minute, second) else None
    match = _MOMENT.fullmatch(value)
    return None if match is None else _spelled_moment(*match.groups(default=""))


def instant(value: str | None) -> tuple[int, int, float] | None:
    """A moment in the spelling of `time_of_text`, or None.

    A moment of a time zone is read in UTC, one without as it is written.

    Returns:
        day, microsecond, rest: days since 1970, microseconds since midnight, and the rest in microseconds.
    """
    value = (value or "").removesuffix("Z")
    match = None if time_of_text(value) != value else _MOMENT.fullmatch(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, *_ = match.groups(default="")
    seconds = _seconds(hour, minute, second)
    return (
        _day(year, month, day),
        10**6 * seconds + int(fraction[:6].ljust(6, "0")),
        float(f"0.{fraction[6:]}"),
    )


def microseconds(value: str | None) -> int | None:
    """Whole microseconds from 1970 to a moment in the spelling of `time_of_text`, cut to 2^62, or None."""
    moment = instant(value)
    return None if moment is None else max(-(2**62), min(86400 * 10**6 * moment[0] + moment[1], 2**62))


def _spelled_moment(*parts: str) -> str | None:
    year, month, day, hour, minute, second, fraction, zone, *offset = parts
    day = day or "01"
    if not (
        1 <= int(month) <= 12 and 1 <= int(day) <= _days(int(year), int(month)) and _is_clock(hour, minute, second)
    ):
        return None
    clock = _clock(hour or "00", minute or "00", second, fraction)
    if zone not in ("", "Z"):
        minutes, seconds = (int(part or 0) for part in offset)
        east = 3600 * int(zone[1:]) + 60 * minutes + seconds
        days, rest = divmod(_seconds(hour, minute, second) - int(f"{zone[0]}{east}"), 86400)
        # In days: seconds of far years overflow.
        date = np.datetime64(_day(year, month, day) + days, "D")
        return time_of_text(f"{date}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{fraction}Z")
    sign, years = ("-", -int(year)) if int(year) < 0 else ("", int(year))
    clock = "" if clock == "00:00" else f"T{clock}"
    return f"{sign}{years:04d}-{month}-{day}{clock}{zone}"


def _day(year: str, month: str, day: str) -> int:
    """Days from 1970 to a date."""
    return int(np.datetime64(f"{year}-{month}-{day}", "D").astype(np.int64))


def _seconds(hour: str, minute: str, second: str) -> int:
    """Seconds since midnight."""
    return 3600 * int(hour or 0) + 60 * int(minute or 0) + int(second or 0)


def _days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _is_clock(hour: str, minute: str, second: str) -> bool:
    return int(hour or 0) < 24 and int(minute or 0) < 60 and int(second or 0) < 60


def _clock(hour: str, minute: str, second: str, fraction: str) -> str:
    fraction = fraction.rstrip("0")
    if fraction:
        return f"{hour}:{minute}:{second}.{fraction}"
    return f"{hour}:{minute}" if second in ("", "00") else f"{hour}:{minute}:{second}"
