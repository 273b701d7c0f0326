"""The law of readers in memory: two inputs that differ in one record give units that differ in that unit alone.

A writer makes an array, a frame or a table of a list of records and may choose its type by the values, so that one cell
decides what the others have become. Whatever cells a record holds, the other units keep their bytes, and the other
persons their rows.
"""

from __future__ import annotations

import io
import math
import sys
import unicodedata
import warnings
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from effort import at_most
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.audit.readers import units_of
from dpvb.data import (
    BagOfWords,
    Binary,
    BinaryMatrix,
    Categorical,
    Design,
    Numeric,
    Response,
    Schema,
    Stream,
    Table,
    Target,
    as_source,
)
from dpvb.data.persons import by_person
from dpvb.data.spelling import UNREADABLE, as_numbers, cells_of, identity, number, spelled
from dpvb.data.tables.matrices import as_matrix
from dpvb.data.tables.numbers import Numbers
from dpvb.errors import DataFormatError
from dpvb.estimators.choosing import _Column


class Odd:
    """Raises and prints whatever is asked of it."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret 1234567")

    def __float__(self) -> float:
        warnings.warn("secret 1234567", stacklevel=1)
        print("secret 1234567")
        raise RuntimeError("secret 1234567")

    __str__ = __repr__ = __index__ = __int__ = __bool__ = __len__ = __float__  # type: ignore[assignment]


ODD, HUGE = Odd(), Decimal("1e9999999")
NUMBERS = (
    *(0, 1, 2, 7, -3, True, False, 0.5, 1.5, -0.0, 1e-7, 1e22, 2.0**53, math.nan, math.inf, -math.inf),
    *(np.float64(0.25), np.float32(0.5), np.float16(2), np.int8(-1), np.uint64(2**63), np.bool_(True)),
    *(2**53 + 1, 2**63, 2**64, -(10**30), 10**400),
)
TEXTS = (
    "0",
    "1",
    "7",
    "007",
    "+7",
    "1.50",
    " 2 ",
    "1e3",
    "1234e5",
    "True",
    "false",
    "nan",
    "inf",
    "n/k",
    "",
    "NA",
    "#N/A",
    "é",
)
EXOTIC = (
    *(
        None,
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        Decimal("1.50"),
        Decimal("sNaN"),
        HUGE,
        Fraction(1, 3),
    ),
    *(1j, 2 + 0j, np.complex128(1 + 2j)),
    *(b"7", b"x", b"\xff", "\udcff", "a\0", ODD, [1], [], {}, (1, "a"), np.ma.masked, np.array([1.0]), np.void(b"ab")),
    *(UUID(int=7), np.str_("x"), np.bytes_(b"1"), object, 10**5000, Fraction(10**5000, 3)),
)
BERLIN = ZoneInfo("Europe/Berlin")
# One time in each list, as arrays, frames and tables of all units may hold it.
TIMES: tuple[tuple[Any, ...], ...] = (
    (
        *("2020-01-01", b"2020-01-01", "2020-01-01T00:00", " 2020-01-01 00:00:00.000", "2020-01", date(2020, 1, 1)),
        *(np.datetime64("2020-01-01", unit) for unit in ("Y", "M", "D", "h", "s", "us", "ns")),
        *(datetime(2020, 1, 1), pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01").as_unit("ns")),
    ),
    ("2020-01-01 10:00:00", "2020-01-01T10", np.datetime64("2020-01-01T10"), pd.Timestamp("2020-01-01 10:00")),
    (
        "2020-01-01 00:00:00.000000001",
        np.datetime64("2020-01-01", "ns") + 1,
        pd.Timestamp("2020-01-01") + pd.Timedelta(1),
    ),
    ("12000-02-29", np.datetime64("12000-02-29"), pd.Timestamp(np.datetime64("12000-02-29", "s"))),
    ("-5000-01-01", np.datetime64("-5000-01-01"), pd.Timestamp(np.datetime64("-5000-01-01", "s"))),
    (
        *("2020-01-01 00:30:00+01:00", "2019-12-31T23:30Z", datetime(2019, 12, 31, 23, 30, tzinfo=UTC)),
        *(datetime(2020, 1, 1, 0, 30, tzinfo=BERLIN), pd.Timestamp("2020-01-01 00:30", tz="Europe/Berlin")),
        datetime(2020, 1, 1, 5, 0, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ),
    ("12:30", "12:30:00", b"12:30:00.0", time(12, 30)),
    ("12:30:00.000001", time(12, 30, 0, 1)),
)
DURATIONS: tuple[tuple[Any, ...], ...] = (
    ("1 days 01:00:00", "1 day, 1:00:00", timedelta(hours=25), np.timedelta64(25, "h"), pd.Timedelta("25h")),
    (
        "0 days 00:00:01",
        *(np.timedelta64(1, "s").astype(f"m8[{unit}]") for unit in ("s", "ms", "ns")),
        pd.Timedelta("1s"),
    ),
    ("-1 days +23:59:59.000000001", np.timedelta64(1 - 10**9, "ns"), pd.Timedelta(1 - 10**9)),
)
moments = st.sampled_from([one for forms in TIMES for one in forms])
durations = st.sampled_from([one for forms in DURATIONS for one in forms])
# The type of a column is decided by what else is in it, so that plain numbers must often stand beside one other cell.
plain = st.sampled_from(NUMBERS)
cells = st.one_of(
    *(plain, plain, st.sampled_from(TEXTS), st.sampled_from(EXOTIC), st.text(max_size=3), st.floats()),
    *(moments, durations),
)

SCHEMA = Schema(
    (
        Numeric("a", -10, 10, missing=3),
        Categorical("b", ("0", "1.5", "n/k", "True x")),
        Binary("c", missing=1),
    ),
    Target("y", classes=(0, 1)),
)


def look(source: Any) -> tuple[Any, ...]:
    """What is public of a source."""
    return type(source), repr(source), getattr(source, "width", None), source.unit


# ---------------------------------------------------------------- writers of one column


def listed(column: list[Any]) -> Any:
    return list(column)


def inferred(column: list[Any]) -> Any:
    return np.array(column)


def objects(column: list[Any]) -> Any:
    return np.array(column, dtype=object)


def series(column: list[Any]) -> Any:
    return pd.DataFrame([{"v": cell} for cell in column])["v"]


def from_csv(column: list[Any]) -> Any:
    content = pd.DataFrame({"v": pd.Series(column, dtype=object)}).to_csv(index=False)
    return pd.read_csv(io.StringIO(content), float_precision="round_trip", skip_blank_lines=False)["v"]


def nullable(column: list[Any]) -> Any:
    return series(column).convert_dtypes()


def arrow(column: list[Any]) -> Any:
    # Arrow crashes where another scalar of NumPy's stands beside a date of it, and writes out a huge Decimal's digits.
    scalars = {type(cell) for cell in column if isinstance(cell, np.generic)}
    if (len(scalars) > 1 and scalars & {np.datetime64, np.timedelta64}) or any(cell is HUGE for cell in column):
        raise TypeError
    return pa.table({"v": column}).column("v")


def arrow_in_pandas(column: list[Any]) -> Any:
    found = arrow(column)
    return pd.Series(found.combine_chunks(), dtype=pd.ArrowDtype(found.type))


def csv_of_arrow(column: list[Any]) -> Any:
    content = pd.DataFrame({"v": pd.Series(column, dtype=object), "w": 0}).to_csv(index=False)
    return pyarrow.csv.read_csv(io.BytesIO(content.encode()))["v"]


def undecoded(column: list[Any]) -> Any:
    """A Parquet file of text that nobody checked, as pandas reads it."""
    texts = [cell if isinstance(cell, bytes) or cell is None else str(cell).encode() for cell in column]
    file = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array(texts, pa.binary()).view(pa.string())}), file)
    return pd.read_parquet(file)["v"]


WRITERS = (listed, inferred, objects, series, from_csv, nullable, arrow, arrow_in_pandas, csv_of_arrow, undecoded)
TIME = (np.datetime64, np.timedelta64, date, time, timedelta)


def is_lost(writer: Any, column: list[Any]) -> bool:
    """Whether the writer changes what a cell means, before anything of ours."""
    times = [isinstance(cell, TIME) for cell in column]
    if writer in (inferred, arrow, arrow_in_pandas) and any(times) and not all(times):
        return True  # NumPy and Arrow make times of the whole numbers among them
    # NumPy takes the zone away where a time without one stands beside it.
    return writer is inferred and any(isinstance(cell, np.datetime64) for cell in column)


def written(writer: Any, column: list[Any]) -> Any:
    """What a writer makes of a column, if it can; it may warn, and may give a column of lists another dimension."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = writer(column)
        except Exception:  # the writer's own, before anything of ours
            found = None
    # A column that is mostly lists is rows, where documents are read.
    assume(2 * sum(isinstance(cell, (list, tuple, np.ndarray)) for cell in column) < len(column) - 1)
    assume(
        found is not None
        and not is_lost(writer, column)
        and len(found) == len(column)
        and np.ndim(found if writer is not listed else 0) <= 1
    )
    return found


# ---------------------------------------------------------------- doors of one column

X = np.eye(4)[[0, 1, 2, 3, 0, 1]]


def x_of(column: Any) -> Any:
    """A matrix of one column."""
    if isinstance(column, list):
        return [[cell] for cell in column]
    if isinstance(column, np.ndarray):
        return column[:, None]
    return pd.DataFrame({"v": column.to_pandas() if isinstance(column, pa.ChunkedArray) else column})


def table_of(name: str) -> Any:
    def source(column: Any) -> Any:
        n = len(column)
        rest = {"a": [1.0] * n, "b": ["0"] * n, "c": [0] * n, "y": [1] * n}
        return Table({**rest, name: column}, SCHEMA).design()

    return source


DOORS: dict[str, Any] = {
    "design": lambda v: Design(x_of(v), [0] * len(v), max_row_norm=3.0),
    "sparse rows": lambda v: Design(x_of(v), [0] * len(v), sparse_rows=True),
    "binary": lambda v: BinaryMatrix(x_of(v)),
    "threshold": lambda v: BinaryMatrix(x_of(v), threshold=0.5),
    "numbers": lambda v: Numbers(x_of(v)),
    "responses": lambda v: Numbers(X[: len(v)], v),
    "counts": lambda v: BagOfWords(x_of(v) if not isinstance(v, list) else np.array([[1.0]] * len(v))),
    "stream": lambda v: Stream(lambda: [x_of(v) if not isinstance(v, list) else X[: len(v), :1]], 1),
    "texts": lambda v: as_source(v, vocabulary=["x", "true", "nan", "j", "inf", "k"]),
    "labels": lambda v: Design(X[: len(v)], v),
    "texts as labels": lambda v: Design(X[: len(v)], v, response=Response(classes=("n/k", "1.50"))),
    "successes": lambda v: Design(X[: len(v)], v, [3] * len(v), response=Response("binomial", max_trials=5)),
    "trials": lambda v: Design(X[: len(v)], [0] * len(v), v, response=Response("binomial", max_trials=5)),
    "counts of rows": lambda v: Design(X[: len(v)], v, response=Response("negative_binomial", max_count=5)),
    "range": lambda v: _Column(v, None),
    **{f"table, {name}": table_of(name) for name in ("a", "b", "c", "y")},
}


def opened(door: Any, column: Any) -> tuple[Counter[bytes], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        source = door(column)
        return units_of(source), look(source) if not isinstance(source, _Column) else source.unit


@pytest.mark.guarantees("cells in memory")
@kills("leaks", "a complex number in an array warns", "numbers")
@edit(
    "data/spelling.py",
    "    with silence():\n        if not isinstance(cells, np.ndarray):",
    "    if True:\n        if not isinstance(cells, np.ndarray):",
)
@edit(
    "data/spelling.py", "np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)", "cells.astype(np.float64)"
)
@kills("readers", "the text of a number is a document where a column became text", "texts")
@edit("data/spelling.py", 'stripped == "nan" or _number_of_text(stripped) is not None', 'stripped == "nan"')
@kills("readers", "labels and categories compared as they are written alone", "labels")
@edit("data/spelling.py", "            name = label(cell)\n", "            name = str(cell)\n")
@kills("readers", "numbers that one text made text are unknown", "numbers")
@edit(
    "data/spelling.py",
    "    if kind is str or kind is bytes:\n",
    "    if kind is str:\n        return math.nan\n    if kind is bytes:\n",
)
@kills("readers", "one complex number makes unknown what stands beside it", "numbers")
@edit("data/spelling.py", "np.where(cells.imag == 0, cells.real, np.nan)", "np.full(cells.shape, np.nan)")
@kills("readers", "arrays of text refused, which one cell made text", "numbers")
@edit(
    "data/tables/matrices.py",
    "    return DenseMatrix(real(array))\n",
    '    if array.dtype.kind in "SU":\n'
    '        raise DataFormatError(f"X must be a matrix of numbers, got {array.dtype}. {_WAY_OUT}")\n'
    "    return DenseMatrix(real(array))\n",
)
@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(cells, min_size=2, max_size=5), cells, st.sampled_from(WRITERS))
@example([np.timedelta64(5, "s"), np.timedelta64(1, "h")], np.timedelta64(7, "ns"), inferred)
@example([pd.Timedelta("2s"), pd.Timedelta("1s"), 1], "n/k", series)
@example([pd.Timestamp(1), pd.Timestamp(2)], "n/k", series)
@example(["2020-01-02", "2020-01-01", "2020-01-01"], "n/k", csv_of_arrow)
@example(["2020-01-02 10:00:00", "2020-01-01 10:00:00"], "n/k", csv_of_arrow)
@example(["#N/A", "#N/A", "7"], "n/k", csv_of_arrow)
@example(
    [np.datetime64("2020-01-01", "s"), np.datetime64("2020-01-01", "s")],
    np.datetime64("12000-01-01", "s"),
    arrow_in_pandas,
)
@example(["x", "m"], b"\xe9", undecoded)
@example(["x", True, math.nan, 2.0, 1], 1.0, inferred)
@example(["x", 1j, 2 + 0j, 1], 0, inferred)
@example([None, "1\0", "0\0", "x\0"], "x", inferred)
@example(["n/k", 1, 0.5, 7], 0.25, from_csv)
def test_one_cell_changes_one_unit(door: str, column: list[Any], cell: Any, writer: Any) -> None:
    """The first record is replaced by another one; all other units keep their bytes."""
    found = [opened(DOORS[door], written(writer, [first, *column[1:]])) for first in (column[0], cell)]
    (units, public), (others, also) = found
    assert public == also
    assert sum(units.values()) == sum(others.values()) == len(column)
    assert (units - others).total() <= 1
    assert (others - units).total() <= 1


@pytest.mark.guarantees("cells in memory")
@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(cells, min_size=1, max_size=4), cells, st.sampled_from(WRITERS))
def test_one_record_more_is_one_unit_more(door: str, column: list[Any], cell: Any, writer: Any) -> None:
    units, public = opened(DOORS[door], written(writer, column))
    others, also = opened(DOORS[door], written(writer, [*column, cell]))
    assert public == also
    assert units <= others
    assert (others - units).total() == 1


# Whole numbers that a float holds, and no text in exponent form: what a writer makes of those is not to be known.
ids = st.sampled_from(
    [
        0,
        7,
        True,
        2.5,
        "7",
        "007",
        "1.50",
        "ann",
        "n/k",
        "",
        "NA",
        "#N/A",
        None,
        math.nan,
        b"ann",
        b"\xff",
        Decimal("1.50"),
    ]
)


def rows_of_persons(column: Any) -> list[tuple[int, ...]]:
    """For each row but the first: the rows, without the first, of its person."""
    order, unit_of_row, _ = by_person(column, len(column))
    person = dict(zip(order.tolist(), unit_of_row.tolist(), strict=True))
    others = range(1, len(column))
    return [tuple(m for m in others if n in person and person.get(m) == person[n]) for n in others]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(ids | moments | durations, min_size=2, max_size=5), ids | moments | durations, st.sampled_from(WRITERS))
@example(["n/k", pd.Timestamp(1), pd.Timestamp(2)], pd.Timestamp(3), series)
@example(["n/k", "2020-01-01", "2020-01-02"], "2020-01-03", csv_of_arrow)
@example(["n/k", "#N/A", "#N/A"], "1", csv_of_arrow)
@example([b"m", "x", "x"], b"\xe9", undecoded)
def test_one_cell_changes_no_other_person(column: list[Any], cell: Any, writer: Any) -> None:
    before, after = (written(writer, [first, *column[1:]]) for first in (column[0], cell))
    assert rows_of_persons(before) == rows_of_persons(after)


@kills("readers", "the first row of a list decides how wide all others are")
@edit("data/tables/matrices.py", "key=lambda one: (lengths[one], one is not None, -(one or 0))", "key=lambda one: 0")
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=4, max_size=6)
    ),
    st.lists(cells, max_size=4) | cells,
    st.lists(cells, max_size=4) | cells,
    st.integers(0, 3),
)
def test_a_list_of_lists_has_the_width_of_most_rows(rows: list[list[Any]], odd: Any, other: Any, place: int) -> None:
    """Two of five rows may be anything, lists of other lengths or no lists: the others keep their bytes."""
    width = len(rows[0])
    for door in (Numbers, lambda x: Design(x, [0] * len(x)), BinaryMatrix):
        before, after = ([*rows[:place], odd, one, *rows[place:]] for one in (rows[0], other))
        (units, public), (others, also) = opened(door, before), opened(door, after)
        assert public == also
        assert sum(units.values()) == sum(others.values()) == len(before)
        assert (units - others).total() <= 1
        assert units_of(door(rows)) <= units
        assert public[2] == width


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), plain), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), cells), max_size=3),
    st.sampled_from(["csr", "csc", "coo"]),
)
def test_values_of_a_sparse_matrix_of_any_type(
    entries: list[tuple[int, int, Any]], own: list[tuple[int, Any]], form: str
) -> None:
    """Row 4 alone holds cells of any type; the matrix's values are objects then, and complex where one is."""

    def matrix(more: list[tuple[int, Any]]) -> Any:
        triples = [*entries, *((4, place, cell) for place, cell in more)]
        data = np.empty(len(triples), dtype=object)
        data[:] = [None] * len(triples)
        for n, (*_, cell) in enumerate(triples):
            data[n] = cell
        values = data
        if all(isinstance(cell, (int, float, complex)) and abs(cell) < 2**60 for cell in data):
            values = np.array(data.tolist()) if len(data) else np.empty(0)
        found = scipy.sparse.coo_array(
            (np.ones(len(triples)), ([t[0] for t in triples], [t[1] for t in triples])), (5, 3)
        )
        if form != "coo":
            places = scipy.sparse.coo_array((np.arange(1, len(triples) + 1), found.coords), (5, 3))
            assume(len(set(zip(*map(np.ndarray.tolist, found.coords), strict=True))) == len(triples))
            found = places.asformat(form)
            order = found.data.astype(int) - 1
        else:
            order = np.arange(len(triples))
        found.data = values[order]
        return found

    for door in (
        lambda m: Design(m, [0] * 5, sparse_rows=True),
        lambda m: Design(m, [0] * 5),
        BinaryMatrix,
        BagOfWords,
    ):
        (units, public), (others, also) = opened(door, matrix([])), opened(door, matrix(own))
        assert public == also
        assert (units - others).total() <= 1


# ---------------------------------------------------------------- one number, however it is written


@pytest.mark.guarantees("cells in memory")
@kills("readers", "truth values among texts are no numbers")
@edit("data/spelling.py", "    if value in _TRUTH:\n        return _TRUTH[value]\n", "")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers() | st.floats(allow_nan=False) | st.booleans())
def test_a_number_and_its_texts_are_one(value: Any) -> None:
    forms = [
        value,
        str(value),
        f" {value}\t",
        str(value).encode(),
        np.array([value, "x"])[0],
        np.array([value], object)[0],
    ]
    for form in forms:
        assert number(form) == float(value) or isinstance(value, int)
        assert spelled(form) == spelled(value)
        assert identity(form) == identity(value)
    assert np.array_equal(as_numbers(np.array([value, "x"]))[:1], as_numbers([value]))
    if isinstance(value, int):
        assert spelled(f"{value:+d}.00") == spelled(Decimal(int(value))) == spelled(value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(0, 4))
def test_decimals_are_spelled_exactly(value: Decimal, zeros: int) -> None:
    assert spelled(f"{value:f}" + "0" * zeros) == spelled(value)
    assert Decimal(str(spelled(value))) == value


@kills("persons", "two ids of two parts each that read alike together")
@edit("data/spelling.py", 'f"{len(member)}:{member}" for member', "member for member")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text("12:x", min_size=2, max_size=6), st.integers(1, 5), st.integers(1, 5))
def test_persons_of_several_parts_are_one_where_all_their_parts_are(whole: str, one: int, other: int) -> None:
    """One text cut at two places names two persons; so does a tuple cut into tuples."""
    parts = [(whole[:cut], whole[cut:]) for cut in (one, other)]
    names = [(*map(identity, pair),) for pair in parts]
    assume(None not in names[0] + names[1])
    for form in (lambda pair: pair, lambda pair: (pair, "x"), lambda pair: (2, *pair)):
        assert (identity(form(parts[0])) == identity(form(parts[1]))) == (names[0] == names[1])
    assert identity((*parts[0], "x")) != identity((parts[0], "x")) != identity((parts[0][0], (parts[0][1], "x")))


def test_spellings_that_must_differ() -> None:
    different = [
        2**53,
        2**53 + 1,
        7,
        -7,
        "7.5",
        "a",
        "A",
        "1234e567",
        "1234e5",
        123400000,
        "7e0",
        0.1,
        10**30,
        10**30 + 1,
    ]
    assert len({spelled(one) for one in different}) == len(different)
    assert len({identity((a, b)) for a in ("1", "1:1", "") for b in ("x", "1:1x", 2)} - {None}) == 6
    assert spelled(b"\xff") == spelled("\udcff") == UNREADABLE
    for nobody in (
        None,
        math.nan,
        pd.NA,
        pd.NaT,
        "",
        " ",
        "na",
        "NULL",
        "<NA>",
        "nat",
        b"\xff",
        [1],
        ODD,
        2.0**53 + 2,
        1e22,
    ):
        assert identity(nobody) is None


@pytest.mark.parametrize("forms", [*TIMES, *DURATIONS], ids=str)
def test_a_time_is_one_in_every_form(forms: tuple[Any, ...]) -> None:
    assert len({spelled(form) for form in forms}) == len({identity(form) for form in forms}) == 1
    assert len({str(number(form)) for form in forms}) == 1
    assert math.isnan(number(forms[0])) == (forms in TIMES)
    instants = [form for form in forms if isinstance(form, np.datetime64)]
    for form in instants:
        known = form if np.datetime_data(form)[0] not in "YMh" else form.astype("M8[s]")
        for unit in (*map(pa.timestamp, ("s", "ms", "us", "ns")), pa.date32(), pa.date64()):
            try:
                column = pa.array(np.array([known])).cast(unit)
            except pa.ArrowException:  # it would lose something
                continue
            if np.array(column)[0] != form:  # it has
                continue
            kept = pd.Series(column, dtype=pd.ArrowDtype(unit))
            assert {spelled(cell) for values in (column, kept) for cell in cells_of(values)} == {spelled(forms[0])}


def test_times_that_must_differ() -> None:
    first = [forms[0] for forms in (*TIMES, *DURATIONS)]
    others = [
        "2020-02-30",
        "2020-13-01",
        "25:00",
        "2021-02-29",
        "1900-02-29",
        "2020-01-01T10:00Z",
        "2020-01-01T",
        "12:3",
    ]
    assert len({spelled(one) for one in [*first, *others]}) == len(first) + len(others)
    assert all(spelled(one) == one for one in others if one != "2020-01-01T10:00Z")


def test_a_text_of_an_identifier_is_one_in_either_case() -> None:
    known = UUID(int=0xABC << 100)
    assert spelled(known) == spelled(str(known).upper()) == str(known)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("s", tz="Europe/Berlin"), pa.date32(), pa.date64()),
        *(pa.duration("s"), pa.time32("s"), pa.time64("ns")),
    ],
    ids=str,
)
def test_far_times_of_arrow_raise_nothing(kind: Any) -> None:
    values = [2**30, -(2**30), 86399] if kind.bit_width == 32 else [2**62, -(2**62), 86400000]
    array = pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "d": pd.Series(array, dtype=pd.ArrowDtype(kind))})
    assert Design(frame, [0] * 3).count() == 3
    assert Design(pa.table({"d": array}), [0] * 3).count() == 3
    for group in (frame.d, array):
        assert 1 <= Design(X[:3], [0] * 3, group=group).count() <= 3


def test_columns_of_arrow_are_read_one_by_one() -> None:
    """What stands in one column decides nothing of another."""
    columns = {"a": pa.array([1.5, None]), "b": pa.array(["7", "x"]), "c": pa.array([2, 3])}
    for odd in (["x", b"\xff"], np.array(["2020-01-01"] * 2, "M8[D]"), [None, None], [True, False], [timedelta(1)] * 2):
        table = pa.table(
            {**columns, "d": pa.array(odd) if odd[0] != "x" else pa.array([b"x", b"\xff"]).view(pa.string())}
        )
        for form in (table, table.to_batches()[0], table.to_pandas(types_mapper=pd.ArrowDtype)):
            found = as_matrix(form).dense(slice(None))[:, :3]
            np.testing.assert_array_equal(found, [[1.5, 7, 2], [np.nan, np.nan, 3]])
            assert BagOfWords(form).count() == 2


def test_categories_of_a_column_of_pandas_are_asked_nothing() -> None:
    """A tuple with half a letter has no hash of its own in pandas, and a far time is no Python object."""
    for values in (
        pd.Series([(1, "a"), (1, "\ud800")], dtype=object),
        np.array(["12000-01-01", "2020-01-01"], "M8[s]"),
    ):
        column = pd.Series(pd.Categorical(values))
        assert Design(pd.DataFrame({"a": column, "b": [1, 2]}), [0, 1]).count() == 2
        assert Design(X[:2], [0, 1], group=column).count() >= 1


def test_labels_of_rows_say_nothing() -> None:
    """A series has an attribute for every label of its rows, and a row may be called like a part of a table."""
    rows, y, words = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 0], ["a", "b", "a b"]
    schema = Schema((Numeric("a", 0, 1),))
    plain = units_of(Design(rows, y, group=words))
    documents = units_of(as_source(words, vocabulary=["a", "b"]))
    unit = units_of(Table({"a": [0.0, 1.0, 0.5]}, schema).design(y))
    for label in {name for kind in (pd.DataFrame, pa.Table, np.ma.MaskedArray) for name in dir(kind)} | {"tz", "name"}:
        made = partial(pd.Series, index=["x", label, "z"])
        assert units_of(Design(made(rows), made(y), group=made(words))) == plain
        assert units_of(as_source(made(words), vocabulary=["a", "b"])) == documents
        assert units_of(Table({"a": made([0.0, 1.0, 0.5])}, schema).design(made(y))) == unit
        with pytest.raises(DataFormatError, match="X must have 2 dimensions"):
            Design(made([1.0, 2.0, 3.0]), y)
        with pytest.raises(DataFormatError, match="data must be a pandas DataFrame"):
            Table(made([1.0, 2.0, 3.0]), schema)


@kills("readers", "a list of labels in the type that NumPy infers from all of them")
@edit(
    "data/tables/matrices.py",
    "    if isinstance(values, (list, tuple)):\n        array = _objects(values)\n",
    "    if isinstance(values, (list, tuple)):\n        array = np.asarray(values)\n",
)
def test_columns_of_lists_of_one_and_of_tuples_are_read_whatever_their_lengths() -> None:
    """Of lists of one length NumPy makes a dimension, of two lengths cells: a longer one is its own row's fault."""
    plain = units_of(Design(X[:3], [0, 1, 0]))
    for y in ([[0], [1], [0]], [[0], [1], 0], [np.array([0]), [1], [0]]):
        for form in (y, np.array(y, dtype=object)):
            assert units_of(Design(X[:3], form)) == plain
    faulty = units_of(Design(X[:3], [0, 1, None]))
    for y in ([[0], [1], [0, 1]], [[0], [1], []], [0, [1], [[0]]]):
        for form in (y, objects(y)):
            assert units_of(Design(X[:3], form)) == faulty
    for ids_of_parts in ([(1, "a"), (2, "b"), (1, "a")], [(1, "a"), (2, "b", 3), (1, "a")]):
        group = np.array(ids_of_parts, dtype=object)
        assert Design(X[:3], [0] * 3, group=group).count() == 2
        table = {"a": [1.0] * 3, "who": group}
        assert Table(table, Schema((Numeric("a", 0, 1),), group="who")).design([0] * 3).count() == 2


def test_one_row_of_a_structured_array_is_a_row() -> None:
    rows = np.array([(1.0, 0)], dtype=[("a", float), ("y", int)])
    schema = Schema((Numeric("a", 0, 1),), Target("y"))
    assert units_of(Table(rows.reshape(()), schema).design()) == units_of(Table(rows, schema).design())


def test_marks_are_counted_before_they_are_put_in_order() -> None:
    """The time of normalisation grows with the square of a run of marks; every mark belongs to the signs looked at."""
    marks = [chr(n) for n in range(0x110000) if unicodedata.combining(chr(n))]
    marks += [chr(n) for n in range(0x110000) if unicodedata.combining(unicodedata.normalize("NFD", chr(n))[0])]
    assert all(spelled("a" + mark * 65 + "b") == UNREADABLE for mark in marks)
    assert spelled("e" + "\u0301" * 64) == "é" + "\u0301" * 63
    assert spelled("ab" + "、" * 100) == "ab" + "、" * 100
    with at_most(150):  # 10⁵ marks in order take hours.
        assert spelled("a" + "\u0300\u0316" * 10**5) == UNREADABLE
        assert spelled("a\u0300\u0316" * 10**5) is not None


class Zone(tzinfo):
    def utcoffset(self, moment: Any) -> Any:
        raise RuntimeError("secret 1234567")


class Listed(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError("secret 1234567")

    __len__ = __iter__


class Arrayed(np.ndarray):  # type: ignore[type-arg]
    def astype(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("secret 1234567")


class Times(datetime):
    def isoformat(self, *_: Any) -> Any:
        raise RuntimeError("secret 1234567")


def test_no_method_of_a_private_object_is_called() -> None:
    itself = np.empty((), dtype=object)
    itself[()] = itself
    hostile = [itself, UUID.__new__(UUID), object.__new__(Fraction), Fraction(10**5000, 3), Times(2020, 1, 1)]
    hostile += [kind(2020, 1, 1, tzinfo=Zone()) for kind in (datetime, Times)] + [time(1, tzinfo=Zone())]
    for cell in hostile:
        assert identity(cell) in (None, "2020-01-01")
        assert not math.isfinite(number(cell))
        assert Design(X[:2], [0, cell]).count() == 2
    for row in (Listed([1, 2]), np.ones(2).view(Arrayed)):
        assert np.isfinite(as_matrix([[1, 2], row]).dense(slice(None))).all()


def test_a_process_that_converts_fewer_digits_raises_nothing() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert spelled(10**1000) == spelled("1" * 1000) == UNREADABLE
        assert spelled(10**600) == "1" + "0" * 600
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.guarantees("cells in memory")
@kills("leaks", "an odd cell asked for its number, and warning")
@edit(
    "data/spelling.py",
    "    if kind is np.ndarray and cell.ndim == 0:",
    '    if hasattr(kind, "__float__"):\n        return float(cell)\n    if kind is np.ndarray and cell.ndim == 0:',
)
@given(cells)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_cell_says_anything(cell: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        assert isinstance(number(cell), float)
        assert spelled(cell) is None or isinstance(spelled(cell), str)
        assert identity(cell) is None or isinstance(identity(cell), str)
