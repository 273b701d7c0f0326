"""The law of readers in memory: two inputs that differ in one record give units that differ in that unit alone.

A writer makes an array, a frame or a table of a list of records and may choose its type by the values, so that one cell
decides what the others have become. Whatever cells a record holds, the other units keep their bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from collections import Counter
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

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
from dpvb.data.numbers import Numbers
from dpvb.data.spelling import UNREADABLE, as_numbers, identity, number, spelled
from dpvb.estimators.ranges import _Column


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


ODD = Odd()
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
        Decimal("1e9999999"),
        Fraction(1, 3),
    ),
    *(1j, 2 + 0j, np.complex128(1 + 2j), np.timedelta64(5, "s"), np.datetime64("2020-01-01"), date(2020, 1, 1)),
    *(b"7", b"x", b"\xff", "\udcff", "a\0", ODD, [1], [], {}, (1, "a"), np.ma.masked, np.array([1.0]), np.void(b"ab")),
    *(UUID(int=7), pd.Timestamp("2020-01-01 10:00"), np.str_("x"), np.bytes_(b"1"), object, 10**5000),
)
# The type of a column is decided by what else is in it, so that plain numbers must often stand beside one other cell.
plain = st.sampled_from(NUMBERS)
cells = st.one_of(plain, plain, st.sampled_from(TEXTS), st.sampled_from(EXOTIC), st.text(max_size=3), st.floats())

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
    return pa.table({"v": column}).column("v")


WRITERS = (listed, inferred, objects, series, from_csv, nullable, arrow)


def written(writer: Any, column: list[Any]) -> Any:
    """What a writer makes of a column, if it can; it may warn, and may give a column of lists another dimension."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = writer(column)
        except Exception:  # the writer's own, before anything of ours
            found = None
    assume(found is not None and len(found) == len(column) and np.ndim(found if writer is not listed else 0) <= 1)
    return found


# ---------------------------------------------------------------- doors of one column

X = np.eye(4)[[0, 1, 2, 3, 0, 1]]
PERSONS = ["p", "q", "r", "s", "t", "u"]


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
    "design": lambda v: Design(x_of(v), [0] * len(v), row_norm=3.0),
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
        source = door(column)
        return units_of(source), look(source) if not isinstance(source, _Column) else source.unit


@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(cells, min_size=2, max_size=5), cells, st.sampled_from(WRITERS))
@example([np.timedelta64(5, "s"), 3, True], 1, inferred)
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


@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(cells, min_size=1, max_size=4), cells, st.sampled_from(WRITERS))
def test_one_record_more_is_one_unit_more(door: str, column: list[Any], cell: Any, writer: Any) -> None:
    units, public = opened(DOORS[door], written(writer, column))
    others, also = opened(DOORS[door], written(writer, [*column, cell]))
    assert public == also
    assert units <= others
    assert (others - units).total() == 1


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


@given(cells)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_cell_says_anything(cell: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(number(cell), float)
        assert spelled(cell) is None or isinstance(spelled(cell), str)
        assert identity(cell) is None or isinstance(identity(cell), str)
