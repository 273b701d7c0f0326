"""One scale for a moment: what a cell states does not depend on its type, on other cells, on files or on processes."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from dateutil import tz
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.data import Date, Events
from dpvb.data.sequences.content import Symbols
from dpvb.data.sequences.events import moment, moments
from dpvb.data.spelling import cells_of, spelled
from dpvb.data.times import microseconds

#: Attoseconds of the units that NumPy keeps times in.
UNITS = {"D": 86400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18, "s": 10**18, "ms": 10**15, "us": 10**12}
UNITS |= {"ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1}
DAY = UNITS["D"]


def text_of(attos: int, east: int = 0) -> str:
    """A moment as a text, at the clock of a zone so many minutes east."""
    days, rest = divmod(attos + east * UNITS["m"], DAY)
    seconds, fraction = divmod(rest, UNITS["s"])
    sign, minutes = "-" if east < 0 else "+", abs(east)
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if east else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{np.datetime64(days, 'D')}T{clock}.{fraction:018d}{zone}"


def forms_of(attos: int) -> list[Any]:
    """All cells that state a moment, in all types that hold it."""
    forms: list[Any] = [text_of(attos), text_of(attos).replace("T", " ").encode(), text_of(attos) + "Z"]
    forms += [text_of(attos, 90), text_of(attos, -719)]
    for unit, size in UNITS.items():
        if attos % size == 0 and abs(attos // size) < 2**63:
            forms.append(np.datetime64(attos // size, unit))
    if attos % UNITS["us"] == 0 and -(10**28) < attos < 10**29:
        plain = datetime(1970, 1, 1) + timedelta(microseconds=attos // UNITS["us"])
        forms += [plain, plain.replace(tzinfo=UTC), plain.replace(tzinfo=UTC).astimezone(ZoneInfo("Asia/Kolkata"))]
        forms.append(plain.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=-5, seconds=1))))
        forms += [plain.date()] if attos % DAY == 0 else []
    for unit in ("s", "ms", "us", "ns"):
        if attos % UNITS[unit] == 0 and abs(attos // UNITS[unit]) < 2**62 and abs(attos) < 9 * 10**27:
            stamp = pd.Timestamp(np.datetime64(attos // UNITS[unit], unit))
            forms += [stamp, stamp.tz_localize("UTC"), stamp.tz_localize("UTC").tz_convert("America/New_York")]
    return forms


instants = st.builds(
    lambda count, unit: count * UNITS[unit],
    st.integers(-(10**6), 10**6) | st.integers(-(10**17), 10**17),
    st.sampled_from([*UNITS][3:]),
) | st.builds(lambda days: days * DAY, st.integers(-(10**7), 10**8))


@pytest.mark.guarantees("times")
@settings(max_examples=150, deadline=None, derandomize=True)
@given(instants, st.sampled_from([-(10**18), -1, 0, 1, 10**3, 10**12]) | st.integers(-(10**30), 10**30))
def test_a_date_is_one_moment_in_every_type_and_moments_are_in_the_order_of_time(attos: int, later: int) -> None:
    """The oracle is the whole number of attoseconds."""
    found = {moment(form) for form in forms_of(attos)}
    assert len(found) == 1
    other = {moment(form) for form in forms_of(attos + later)}
    assert len(other) == 1
    assert (found < other, found > other) == (False, False)  # of sets: they are different, or one
    (one,), (two,) = found, other
    assert (one < two, one > two) == (later > 0, later < 0)


numbers = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40) | st.builds(
    lambda whole, rest: Decimal(whole) + Decimal(rest) / 10**12,
    st.sampled_from([0, 7, 2**53, -(2**53), 2**60, 2**63, 10**20]),
    st.integers(-(10**13), 10**13),
)


def numbers_of(value: Decimal) -> list[Any]:
    """All cells that state a number, in all types that hold it."""
    plain = f"{value:f}"
    forms: list[Any] = [value, plain, f" {plain}".encode(), Decimal(plain + "0" if "." in plain else plain + ".0")]
    forms += [Fraction(value)] if value == value.to_integral_value() or abs(value.as_tuple().exponent) < 30 else []  # type: ignore[arg-type]
    if value == value.to_integral_value():
        forms += [int(value), f"+{int(value)}.00" if value > 0 else f"{int(value)}.0", complex(0) + int(value)][:2]
        forms += [np.int64(int(value))] if abs(value) < 2**63 else []
        forms += [np.timedelta64(int(value), "ns")] if abs(value) < 2**63 else []
    nearest = float(value)
    if Decimal(str(spelled(nearest))) == value:
        forms += [nearest, np.float64(nearest), complex(nearest), repr(nearest)]
    return forms


@pytest.mark.guarantees("times")
@kills("readers", "a float that differs from its text by what float64 rounds")
@edit("data/sequences/events.py", "    if issubclass(kind, float) or (is_small", "    if (is_small")
@edit("data/sequences/events.py", "- Decimal(spelled(nearest) or 0)", "- Decimal(nearest)")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(numbers, st.sampled_from(["0", "1", "-1", "1e-12", "1e-17", "-1e-25"]))
def test_a_number_is_one_moment_in_every_type_and_moments_are_in_the_order_of_numbers(
    value: Decimal, step: str
) -> None:
    """The oracle is the decimal number."""
    later = Decimal(step)
    (one,) = {moment(form) for form in numbers_of(value)}
    (two,) = {moment(form) for form in numbers_of(Context(prec=400).add(value, later))}
    if len(value.as_tuple().digits) - min(0, int(value.as_tuple().exponent)) < 20:
        assert (one < two, one > two) == (later > 0, later < 0)


EDGES = [0, 1, -1, 86399, 86400, -86401, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**60 + 3, 2**62 + 5, 2**63 - 1]
EDGES += [1 - 2**63, 10**18 + 1]


@pytest.mark.guarantees("times")
@kills("readers", "whole numbers beyond 2^53 in order as texts alone")
@edit(
    "data/sequences/events.py",
    "    rest_n[middle_n] = cells[middle_n].astype(np.int64) - nearest_n[middle_n].astype(np.int64)\n",
    "",
)
@each("kind", [f"M8[{unit}]" for unit in ("Y", "M", "W", *UNITS, "25s")] + ["i8", "u8", "f8", "f4"])
def test_an_array_has_the_moments_of_its_cells(kind: str) -> None:
    whole = np.array(EDGES, dtype="i8")
    array = whole.view(kind) if kind.startswith(("M", "u")) else whole.astype(kind)
    if kind.startswith("M"):
        array = np.append(array, np.datetime64("NaT"))
    if kind.startswith("f"):
        array = np.append(array / 3, [np.nan, np.inf, -np.inf, -0.0]).astype(kind)
    expected = np.array([moment(cell) for cell in array])
    assert np.array_equal(moments(array), expected, equal_nan=True)
    assert np.array_equal(moments([*array]), expected, equal_nan=True)
    assert np.array_equal(moments(array.astype(object) if kind[0] != "M" else [*array]), expected, equal_nan=True)


@each(
    "cell",
    [
        *(None, "", "12:30", "2020-02-30", "2020-01-01T23:59:60", "20-01-01", "01/02/2020", math.nan, "inf", -math.inf),
        *(10**400, "1e999", b"\xff", [], {}, object(), np.datetime64("NaT"), pd.NaT, pd.NA, Decimal("sNaN"), 1j),
        *(Decimal("1e9999999"), Fraction(10**400, 3), "2020-01-01T00:00:00" + 20 * " +00:00"),
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_what_is_no_date_and_no_finite_number_is_no_moment(cell: object) -> None:
    assert math.isnan(moment(cell)[0])


def test_cells_of_any_length_are_moments_at_once() -> None:
    """Digits beyond those of a float64 cost no time, and far exponents no memory."""
    assert moment("0." + "1" * 10**5)[0] == moment("0." + "1" * 50)[0]
    assert moment("1." + "0" * 50 + "1e-999999999") == (0.0, 0.0, 0.0)
    assert moment(Decimal("1." + "0" * 50 + "1e-999999999"))[0] == 0.0
    late = "2020-01-01T00:00:00." + "0" * 10**5
    assert moment(late + "1") == moment(late)
    assert moment("1e300") == moment(1e300) == moment("1e+300")


@kills("readers", "seconds of far years that overflow where a time has a zone")
@edit(
    "data/times.py",
    'date = np.datetime64(_day(year, month, day) + days, "D")',
    'date = np.datetime64(86400 * (_day(year, month, day) + days), "s").astype("M8[D]")',
)
def test_years_beyond_those_of_calendars_are_in_order_and_zones_move_them_by_their_hours() -> None:
    years = ["-999999999999", "-290307", "-001", "0000", "0001", "1969", "9999", "12000", "290307", "999999999999"]
    found = [moment(f"{year}-03-01T00:30") for year in years]
    assert found == sorted(set(found))
    assert [moment(f"{year}-03-01T01:30+01:00") for year in years] == found
    assert spelled("999999999998-12-31T23:30-01:00") == "999999999999-01-01T00:30Z"


def test_an_hour_that_a_clock_shows_twice_is_two_hours() -> None:
    """A fold is a fact of the cell, in Python's objects and in pandas'."""
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2020, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    stamps = [pd.Timestamp(one) for one in twice]
    texts = ["2020-10-25T00:30Z", "2020-10-25T01:30Z"]
    for cells in (twice, stamps, pd.Series(stamps), pd.Series(twice, dtype=object), pa.array(stamps)):
        assert [moment(cell) for cell in cells_of(cells)] == [moment(text) for text in texts]


@pytest.mark.guarantees("times")
@kills("readers", "times of dateutil that are times in whole columns alone")
@edit(
    "data/spelling.py",
    "zone is None or _is_time_zone(type(zone)) else",
    "zone is None or type(zone) in _TIME_ZONES else",
)
@each("zone", [tz.gettz("Europe/Berlin"), tz.tzutc(), tz.tzoffset(None, -3600), tz.tzstr("EST5EDT")])
@each("day", [(1890, 6, 1, 0), (2020, 3, 29, 2), (2020, 10, 25, 2), (2020, 11, 1, 1), (9999, 12, 31, 2)])
def test_a_time_with_a_zone_of_dateutil_is_one_moment_alone_and_in_a_column(day: tuple[int, ...], zone: Any) -> None:
    """pandas and Arrow keep whole columns of such times in UTC; one odd cell leaves them Python's objects."""
    for fold in (0, 1):
        one = datetime(*day[:3], day[3], 30, tzinfo=zone, fold=fold)
        assert {moment(cells_of(column)[0]) for column in (pd.Series([one]), pa.array([one]))} == {moment(one)}
        assert moment(cells_of(pd.Series([one, "odd"], dtype=object))[0]) == moment(one)


@pytest.mark.parametrize("text", ["2020-01-31T10:30:00.1234567", "1890-05-01", "292278-01-01T00:00Z", "0001-01-01T01"])
def test_dates_of_tables_are_the_same_moments(text: str) -> None:
    day, micro, _ = moment(text)
    assert microseconds(spelled(text)) == min(86400 * 10**6 * int(day) + int(micro), 2**62)
    column = Date("d", "1970-01-01", "2030-01-01", unit="days")
    assert column.numbers([text])[0] == microseconds(spelled(text)) / (86400 * 10**6)  # type: ignore[operator]


# --- the same moments through every reader -------------------------------------------------------------------------

SYMBOLS = Symbols("a,b,c,d")
NANO = ["2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00.000000002", "2020-01-01T00:00:00.000000500"]
NANO += ["2020-01-01T00:00:00.000001"]
#: Moments in their order, and the types of columns that hold them.
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "nanoseconds": (NANO, [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), "M8[ns]"]),
    "microseconds": (
        ["1960-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999", "1970-01-01", "2300-01-01T10:00:00.000001"],
        [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), "M8[us]"],
    ),
    "days": (
        ["0001-01-01", "1970-01-01", "2020-02-29", "9999-12-31"],
        [*map(pa.timestamp, ("s", "ms", "us")), pa.date32(), pa.date64(), "M8[s]", "M8[D]", "M8[ms]"],
    ),
    "whole": (
        ["-3", str(2**53), str(2**53 + 1), str(2**62 + 1)],
        [pa.int64(), pa.decimal128(38, 6), "i8", "Int64", pa.decimal256(60, 3)],
    ),
    "decimal": (
        ["0.1", "1577836800.000000001", "1577836800.000000002", "1577836800.1"],
        [pa.decimal128(38, 12), pa.decimal256(60, 20)],
    ),
    "float": (["-0.5", "0.1", "0.25", "1e22"], [pa.float64(), "f8", "Float64"]),
}
#: Of these, moments that a writer of float64 does not lose.
HELD = {"whole": ["-3", "7", str(2**53 - 1), str(2**60)], "decimal": ["0.1", "0.25", "1577836800.125", "1577836801"]}
#: Times of another person, whatever they make of a column.
OTHERS = [None, "odd", "", "2020-01-01T00:00:00.0000000015", "2020-01-01Z", "7", "1e400", "0.123456789012345678901"]
ORDER = [2, 0, 3, 1]


def columns(texts: list[str], kinds: list[Any], other: Any) -> dict[str, Any]:
    """A column of these texts and another cell, in each form that takes both."""
    cells: list[Any] = [*texts, other]
    made: dict[str, Any] = {"texts": cells, "bytes": [None if one is None else one.encode() for one in cells]}
    made["objects"], made["dictionary"] = np.array(cells, dtype=object), pa.array(cells).dictionary_encode()
    made["pandas"], made["categories"] = pd.Series(cells), pd.Series(cells, dtype="category")
    for kind in kinds:
        if isinstance(kind, str):
            own = np.array(texts, dtype=kind) if kind[0] != "I" and kind[0] != "F" else None
            if own is not None and own.dtype.kind == "M":
                made[f"pandas {kind}"] = pd.Series([*own, np.datetime64("NaT")])
                made[f"numpy {kind}"] = np.append(own, np.datetime64("NaT"))
                made[f"objects {kind}"] = [*own, other]
            elif own is not None:
                made[f"objects {kind}"] = [*own.tolist(), other]
                made[f"numpy {kind}"] = np.append(own, [own[0]])
            else:
                made[f"pandas {kind}"] = pd.Series([*map(int if kind[0] == "I" else float, texts), None], dtype=kind)
            continue
        values: Any = pa.array([*texts, None], pa.string())
        if pa.types.is_decimal(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind):
            make = Decimal if pa.types.is_decimal(kind) else int if pa.types.is_integer(kind) else float
            values = pa.array([*map(make, texts), None], kind)
        elif pa.types.is_date(kind) or kind.unit in ("s", "ms"):
            values = pa.array([*map(date.fromisoformat, texts), None], pa.date32()).cast(kind)
        else:
            values = pa.array(np.array([*texts, "NaT"], f"M8[{kind.unit}]"), pa.timestamp(kind.unit)).cast(kind)
        made[f"arrow {kind}"] = values
        made[f"arrow {kind} in pandas"] = pd.Series(values, dtype=pd.ArrowDtype(kind))
        made[f"chunks of {kind}"] = pa.chunked_array([values.slice(0, 1), values.slice(1)])
    return made


def units(data: Any, **options: Any) -> list[list[int]]:
    """The sequence of each person."""
    found = []
    for chunk in Events(data, time="when", **options).sequences(SYMBOLS).chunks():
        for unit in range(chunk.num_units):
            alone = np.zeros(chunk.num_units, dtype=np.bool_)
            alone[unit] = True
            found.append(chunk.select(alone).rows.code.tolist())
    return sorted(found, key=len)


@pytest.mark.guarantees("times")
@pytest.mark.parametrize("name", KINDS)
def test_events_are_in_one_order_whatever_type_the_times_have_and_whatever_others_hold(
    name: str, tmp_path: Path
) -> None:
    texts, kinds = KINDS[name]
    own = [texts[place] for place in ORDER]
    for other in OTHERS:
        for form, column in columns(own, kinds, other).items():
            data = {"person": [*"aaaab"], "symbol": [*(SYMBOLS.values[place] for place in ORDER), "a"], "when": column}
            found = units(data, stream=other == "odd")
            assert found[-1] == [0, 1, 2, 3], (form, other)
            if other in ("odd", None) and form.startswith("arrow") and "pandas" not in form:
                arrays = {key: value if key == "when" else pa.array(value) for key, value in data.items()}
                pq.write_table(pa.table(arrays), tmp_path / "e.parquet", row_group_size=2)
                assert units(tmp_path / "e.parquet")[-1] == [0, 1, 2, 3], (form, other)


@pytest.mark.guarantees("times")
@kills("readers", "nanoseconds of a column of times in another unit than those of texts")
@edit("data/sequences/events.py", "rest_n = step_n % 1000 / 1000", "rest_n = step_n % 1000 * 1000")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_odd_time_of_somebody_else_in_one_of_several_files_changes_no_order(
    name: str, stream: bool, tmp_path: Path
) -> None:
    """Types of columns are inferred by the writer of each file, from the cells that are in it."""
    texts, _ = KINDS[name]
    texts = HELD.get(name, texts)
    for other in OTHERS[1:4] if stream else OTHERS:
        paths = []
        for file, places in enumerate(([2, 0], [3, 1])):
            rows = [("a", SYMBOLS.values[place], texts[place]) for place in places]
            rows += [] if file else [("b", "a", other or "")]
            content = "person,symbol,when\n" + "".join(",".join(row) + "\n" for row in rows)
            paths += [tmp_path / f"{file}.csv", tmp_path / f"{file}.parquet"]
            paths[-2].write_text(content)
            pq.write_table(pyarrow.csv.read_csv(io.BytesIO(content.encode())), paths[-1])
        for files in (paths[::2], paths[1::2], [paths[0], paths[3]], [paths[1], paths[2]]):
            assert units(files, stream=stream)[-1] == [0, 1, 2, 3], (other, files)
