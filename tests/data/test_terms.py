"""Dates, splines and interactions: what a schema makes of cells, in every form, and what it refuses."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills
from scipy.interpolate import BSpline, CubicSpline, make_interp_spline

from dpvb.data import Binary, Categorical, Date, Interaction, Numeric, Schema, Spline, Table, Target
from dpvb.data.tables.ranged import NaturalSpline
from dpvb.errors import DataFormatError, ParameterError
from tests.data.test_table import FILES, MEMORY, Hostile, table

KNOTS = (25.0, 40.0, 60.0, 75.0)
SCHEMA = Schema(
    (
        Spline("age", KNOTS, low=18, high=90, missing=50),
        Date("day", low="2015-01-01", high="2025-12-31", missing="2020-01-01"),
        Categorical("work", ("private", "state")),
        Binary("member", ("no", "yes")),
        Numeric("gain", 0, 1e5, transform="log1p", missing=0),
        Interaction("age", "day"),
        Interaction("work", "age"),
        Interaction("member", "gain"),
        Interaction("work", "member"),
    ),
    Target("income", classes=("<=50K", ">50K")),
)
FRAME = pd.DataFrame(
    {
        "age": [18.0, 90.0, 54.0, math.nan, 400.0, 36.25],
        "day": ["2015-01-01", "2026-06-30", "2020-02-29 12:30:15.25", "2019-03-04", "2025-12-31", "2021-07-01"],
        "work": ["private", "state", "pirate", "?", "state", "private"],
        "member": ["no", "yes", "yes", "no", "yes", "no"],
        "gain": [0.0, 1e5, 99.0, math.nan, 2e5, -5.0],
        "income": ["<=50K", ">50K", ">50K", "<=50K", ">50K", "<=50K"],
    }
)


def features(column: Any, cells: Any, missing_values: frozenset[str] = frozenset()) -> np.ndarray:
    """The features of one column as a matrix."""
    made = column.encode(cells, missing_values)
    x_nd = np.zeros((len(made.value_nm), column.width))
    np.put_along_axis(x_nd, made.place_nm, made.value_nm, axis=1)
    return x_nd


def rows_of(data: Any, like: Schema = SCHEMA) -> np.ndarray:
    """Features in the scale of the schema."""
    found: np.ndarray = table(Table(data, like).features(fit_intercept=False))[:, :-2] * like.max_row_norm
    return found


# ---------------------------------------------------------------- the same rows from every form


@pytest.mark.guarantees("columns")
@pytest.mark.parametrize("form", [*MEMORY, *FILES, "streamed", "shards", "real dates"])
def test_every_form_gives_the_same_rows_bit_for_bit(tmp_path: Any, form: str) -> None:
    known = table(Table(MEMORY["lists"](FRAME), SCHEMA).design())
    assert np.isfinite(known).all()
    options: dict[str, Any] = {}
    if form in MEMORY:
        data = MEMORY[form](FRAME)
    elif form == "real dates":
        data = pa.Table.from_pandas(FRAME.assign(day=pd.to_datetime(FRAME["day"], format="ISO8601")))
    else:
        name = form if form in FILES else "t.csv"
        data, options = tmp_path / name, {"stream": form == "streamed"}
        FILES[name](FRAME[:4] if form == "shards" else FRAME, data)
        if form == "shards":
            FILES[name](FRAME[4:], tmp_path / "u.csv")
            data, options = [data, tmp_path / "u.csv"], {}
    np.testing.assert_array_equal(table(Table(data, SCHEMA, **options).design()), known)


def test_the_features_are_the_rule_written_out() -> None:
    """Every product of a row by hand, from the columns alone."""
    own = {column.name: features(column, list(FRAME[column.name]), frozenset(["?"])) for column in SCHEMA.own_columns}
    assert own["work"].shape == (6, 4)
    sizes = {"age": 1.0, "day": 1.0, "gain": 1.0, "work": 0.7, "member": 0.7}
    parts = [own[column.name] for column in SCHEMA.own_columns]
    for pair in (("age", "day"), ("work", "age"), ("member", "gain"), ("work", "member")):
        one, other = (own[name] / sizes[name] for name in pair)
        size = 0.7 if pair == ("work", "member") else 1.0
        parts.append(size * np.einsum("ni,nj->nij", one, other).reshape(6, -1))
    expected, wide = np.hstack(parts), replace(SCHEMA, scale=5.0)
    np.testing.assert_allclose(rows_of(MEMORY["lists"](FRAME), wide), expected, rtol=1e-12, atol=1e-14)
    assert SCHEMA.width == len(SCHEMA.feature_names) == expected.shape[1]
    assert SCHEMA.feature_names[:4] == ("age[25]", "age[40]", "age[75]", "day")
    assert SCHEMA.feature_names[-5:] == (
        "member:gain",
        *("work=private:member", "work=state:member", "work=<other>:member", "work=<missing>:member"),
    )


def test_the_row_norm_is_that_of_the_stated_rule() -> None:
    """Monte Carlo of independent uniform numbers, fair coins and one category; 4e5 rows, to 0.5 %."""
    rng, n = np.random.default_rng(0), 400_000
    like = Schema((Numeric("a", 0, 1), Numeric("b", 0, 1), Binary("c"), Interaction("a", "b"), Interaction("c", "a")))
    a, b, c = rng.random(n), rng.random(n), 0.7 * (rng.random(n) < 0.5)
    square = 1 + a**2 + b**2 + c**2 + (a * b) ** 2 + (c * a / 0.7) ** 2
    assert like.max_row_norm**2 == pytest.approx(square.mean() + 2 * square.std(), rel=0.005)
    spline = Schema((Spline("s", (0.2, 0.5, 0.8), 0, 1),))
    square = (features(spline.columns[0], rng.random(n)) ** 2).sum(axis=1)
    assert spline.max_row_norm**2 == pytest.approx(1 + square.mean() + 2 * square.std(), rel=0.005)


# ---------------------------------------------------------------- splines


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=9, unique_by=lambda knot: round(knot, 1)))
def test_a_spline_is_the_natural_one_of_its_knots(knots: list[float]) -> None:
    """Against two of SciPy between the knots; straight outside; constants and lines are splines."""
    knot_k = np.sort(knots)
    if np.diff(knot_k).min() < 0.05:
        return
    spline, x_n = NaturalSpline(knot_k), np.linspace(knot_k[0], knot_k[-1], 301)
    np.testing.assert_allclose(spline(knot_k), np.eye(len(knot_k)), atol=1e-12)
    size = np.abs(spline(x_n)).max()
    one_kk = np.eye(len(knot_k))
    np.testing.assert_allclose(spline(x_n), CubicSpline(knot_k, one_kk, bc_type="natural")(x_n), atol=1e-7 * size)
    if len(knot_k) > 3:
        other = make_interp_spline(knot_k, one_kk, k=3, bc_type="natural")
        assert isinstance(other, BSpline)
        np.testing.assert_allclose(spline(x_n), other(x_n), atol=1e-6 * size)
    far_n = np.concatenate([knot_k[0] - np.array([3.0, 2.0, 1.0]), knot_k[-1] + np.array([1.0, 2.0, 3.0])])
    bend = np.diff(spline(far_n).reshape(2, 3, -1), n=2, axis=1)
    np.testing.assert_allclose(bend, 0, atol=1e-9 * np.abs(spline(far_n)).max())
    every_n = np.concatenate([far_n, x_n])
    np.testing.assert_allclose(spline(every_n).sum(axis=1), 1, atol=1e-9 * np.abs(spline(every_n)).max())
    np.testing.assert_allclose(
        spline(every_n) @ knot_k, every_n, atol=1e-9 * np.abs(spline(every_n)).max() * np.abs(knot_k).max()
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=3, max_size=7), st.floats(0, 50), st.floats(0, 500))
def test_the_ends_of_a_spline_are_those_of_a_fine_grid_and_its_features_lie_between_0_and_1(
    knots: list[float], below: float, above: float
) -> None:
    knot_k = np.sort(knots)
    if np.diff(knot_k).min() < 0.5:
        return
    low, high = knot_k[0] - below, knot_k[-1] + above
    spline = NaturalSpline(knot_k)
    low_k, high_k = spline.ends(low, high)
    grid_nk = spline(np.append(np.linspace(low, high, 20_001), knot_k))
    assert (grid_nk.min(axis=0) >= low_k - 1e-9).all()
    assert (grid_nk.max(axis=0) <= high_k + 1e-9).all()
    np.testing.assert_allclose(grid_nk.min(axis=0), low_k, atol=1e-3 * (high_k - low_k).max())
    np.testing.assert_allclose(grid_nk.max(axis=0), high_k, atol=1e-3 * (high_k - low_k).max())
    column = Spline("v", tuple(knot_k), low, high)
    x_nk = features(column, np.array([-1e300, low, *knot_k, high, 1e300]))
    assert ((x_nk >= 0) & (x_nk <= 1)).all()
    np.testing.assert_array_equal(x_nk[0], x_nk[1])
    np.testing.assert_array_equal(x_nk[-1], x_nk[-2])


def test_a_range_moves_the_features_of_a_spline_by_a_line_alone() -> None:
    """Functions do not depend on the range: what is 1 in them, and where they are 0, is in `units`."""
    cells = np.linspace(20, 80, 50)
    found = []
    for low, high in ((18, 90), (-500, 1_000)):
        column = Spline("age", KNOTS, low, high, reference=40)
        scale_k, origin_k = column.units
        found.append(features(column, cells) / scale_k + origin_k)
        assert column.names == ("age[25]", "age[60]", "age[75]")
    np.testing.assert_allclose(*found, atol=1e-9)
    np.testing.assert_allclose(found[0][:, 0], NaturalSpline(KNOTS)(cells)[:, 0], atol=1e-9)


# ---------------------------------------------------------------- dates

EAST = timezone(timedelta(hours=2))


@each(
    ("cell", "days"),
    [
        ("2020-01-11", 10.0),
        (b" 2020-01-11 ", 10.0),
        ("2020-01-11 12:00", 10.5),
        ("2020-01-11T12:00:00.000", 10.5),
        ("2020-01-11T12:00+02:00", 10 + 10 / 24),
        ("2020-01-11T12:00Z", 10.5),
        ("2020-02", 31.0),
        (date(2020, 1, 11), 10.0),
        (datetime(2020, 1, 11, 6), 10.25),
        (datetime(2020, 1, 11, 6, tzinfo=UTC), 10.25),
        (datetime(2020, 1, 11, 6, tzinfo=EAST), 10 + 4 / 24),
        (datetime(2020, 1, 11, 1, tzinfo=ZoneInfo("Europe/Berlin")), 10.0),
        (np.datetime64("2020-01-11"), 10.0),
        (np.datetime64("2020-01-11T06", "ns"), 10.25),
        (np.datetime64("2021"), 366.0),
        (pd.Timestamp("2020-01-11 06:00"), 10.25),
        (pd.Timestamp("2020-01-11 01:00", tz="Europe/Berlin"), 10.0),
        ("1066-10-14", 0.0),
        ("-0044-03-15", 0.0),
        ("999999999999-01-01", 3652.0),
        (np.datetime64(2**60, "s"), 3652.0),
    ],
)
def test_a_date_is_the_time_since_its_epoch_in_whatever_form(cell: Any, days: float) -> None:
    column = Date("d", low="2020-01-01", high="2029-12-31", epoch="2020-01-01", unit="days")
    assert column.range == (0, 3652)
    forms = [[cell, "2025-01-01"], pd.Series([cell, "2025-01-01"], dtype=object)]
    if isinstance(cell, (np.datetime64, pd.Timestamp)) and days not in (0, 3652):
        forms += [np.array([cell], dtype=object), pd.Series([cell]), pa.array(pd.Series([cell]))]
    for cells in forms:
        found = table(Table({"d": cells}, Schema((column,), scale=2.0)).features(fit_intercept=False))[0, 0]
        assert found * 2.0 * 3652 == pytest.approx(days, abs=1e-8)


@pytest.mark.guarantees("columns")
@kills("readers", "what is no date refused, and shown")
@edit(
    "data/tables/ranged.py",
    "    return _UNREAD if moment is None else moment\n",
    "    if moment is None and cell is not None:\n"
    '        raise ParameterError(f"no date: {cell}")\n'
    "    return _UNREAD if moment is None else moment\n",
)
@each(
    "cell",
    [
        *(None, math.nan, pd.NaT, pd.NA, "", "x", "11.01.2020", "01/11/2020", "2020-13-01", "2020-02-30", "12:30"),
        *(2020, 20200111, 43_841.0, math.inf, b"\xff", Hostile(), {}, [], 1j, "2020-01-11T25:00"),
        np.timedelta64(3, "D"),
    ],
    ids=lambda cell: repr(cell).split(" at 0x")[0],
)
def test_what_is_no_date_is_faulty_or_the_declared_one(cell: Any, capfd: Any, caplog: Any) -> None:
    strict, filled = (Date("d", "2020-01-01", "2020-12-31", missing=missing) for missing in (None, "2020-07-01"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(features(strict, [cell, "2020-07-01"])).ravel().tolist() == [True, False]
        found = filled.encode([cell, "2020-07-01"], frozenset())
    assert found.value_nm[0, 0] == found.value_nm[1, 0]
    assert found.cut_n.tolist() == [True, False]
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_years_and_epochs_move_a_number_and_no_feature() -> None:
    days = Date("d", "2015-01-01", "2025-12-31", unit="days")
    years = Date("d", date(2015, 1, 1), np.datetime64("2025-12-31"), epoch="1970-01-01T00:00Z")
    cells = ["2015-01-01", "2019-06-01", "2030-01-01"]
    np.testing.assert_allclose(features(days, cells), features(years, cells), atol=1e-12)
    assert years.numbers(["1971-01-01"])[0] == pytest.approx(365 / 365.25)
    assert (years.low, years.high, days.epoch) == ("2015-01-01", "2025-12-31", "2015-01-01")
    np.testing.assert_array_equal(years.numbers(years.cells(np.array([45.5]))), [45.5])


def test_dates_are_read_beside_a_decimal_comma(tmp_path: Any) -> None:
    like = Schema((Date("d", "2020-01-01", "2020-12-31"), Numeric("v", 0, 2)), scale=2.0)
    (tmp_path / "t.csv").write_text("d;v\n2020-07-01;1,5\n2020-07-01 12:00:00.5;0,5\n")
    found = Table(tmp_path / "t.csv", like, separator=";", decimal=",")
    known = Table({"d": ["2020-07-01", "2020-07-01T12:00:00.5"], "v": [1.5, 0.5]}, like)
    np.testing.assert_array_equal(table(found.features()), table(known.features()))


# ---------------------------------------------------------------- the law of readers


@pytest.mark.guarantees("columns")
@kills("public facts", "the range of a column read off its cells")
@edit(
    "data/tables/ranged.py",
    "        value_n, (low_k, high_k) = self.numbers(cells), self.ends\n",
    "        value_n = self.numbers(cells)\n"
    "        low_k, high_k = self.ends\n"
    "        seen_nk = self.functions(np.clip(value_n, *self.range))\n"
    "        low_k = np.minimum(high_k - 1e-9, np.fmin.reduce(seen_nk))\n",
)
@each("name", ["age", "day", "work", "member", "gain"])
@each("value", [math.inf, b"\xff", Hostile(), "1234567,8", 10**400], ids=lambda v: repr(v)[:12])
def test_a_fault_in_a_cell_of_any_kind_silences_its_row_alone(name: str, value: Any, capfd: Any) -> None:
    columns = (
        *(Spline("age", KNOTS, 18, 90), Date("day", "2015-01-01", "2025-12-31")),
        *(Categorical("work", ("private", "state"), other=False, missing=False), Binary("member", ("no", "yes"))),
        *(Numeric("gain", 0, 1), Interaction("age", "work"), Interaction("day", "gain"), Interaction("member", "work")),
    )
    good: dict[str, list[Any]] = {
        **{"age": [20.0, 30.0, 40.0], "day": ["2016-01-01", "2017-01-01", "2018-01-01"], "gain": [0.1, 0.2, 0.3]},
        **{"work": ["private", "state", "state"], "member": ["no", "yes", "no"]},
    }
    expected = rows_of(good, Schema(columns, scale=5.0))
    assert not np.isnan(expected).any()
    expected[0] = math.nan
    broken = {key: [*cells] for key, cells in good.items()}
    broken[name][0] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(rows_of(broken, Schema(columns, scale=5.0)), expected)
    assert capfd.readouterr() == ("", "")


cells = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=6)),
    *(st.binary(max_size=3), st.dates(), st.datetimes(), st.datetimes(timezones=st.just(EAST)), st.complex_numbers()),
    st.dates().map(str),
)


@pytest.mark.guarantees("columns")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, cells, cells, cells, cells), min_size=1, max_size=5), st.data())
def test_rows_of_every_kind_are_bounded_and_depend_on_their_own_cells(
    records: list[tuple[Any, ...]], data: Any
) -> None:
    def rows(chosen: list[tuple[Any, ...]]) -> np.ndarray:
        columns = (list(column) for column in zip(*chosen, strict=True))
        named = dict(zip(("age", "day", "work", "member", "gain"), columns, strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found: np.ndarray = table(Table(named, SCHEMA).features())[:, :-2]
        return found

    every = rows(records)
    norm = np.linalg.norm(every, axis=1)
    assert np.all(np.isnan(norm) | (norm <= 1 + 1e-12))
    n = data.draw(st.integers(0, len(records) - 1))
    np.testing.assert_array_equal(rows([records[n]])[0], every[n])


# ---------------------------------------------------------------- schemas as files, and what is refused


def test_a_schema_with_every_kind_survives_json_exactly(tmp_path: Any) -> None:
    SCHEMA.save(tmp_path / "s.json")
    again = Schema.load(tmp_path / "s.json")
    assert again == SCHEMA
    assert (again.to_json(), again.max_row_norm, again.feature_names) == (
        SCHEMA.to_json(),
        SCHEMA.max_row_norm,
        SCHEMA.feature_names,
    )
    facts = {
        "columns": [
            {"kind": "spline", "name": "age", "knots": [20, 40, 60], "low": 0, "high": 90},
            {"kind": "date", "name": "day", "low": "2015-01-01", "high": "2020-01-01"},
            {"kind": "interaction", "first": "day", "second": "age"},
        ]
    }
    columns = (Spline("age", (20, 40, 60), 0, 90), Date("day", "2015-01-01", "2020-01-01"), Interaction("day", "age"))
    assert Schema.from_json(json.dumps(facts)) == Schema(columns)


AGE, SMOKER = Numeric("age", 0, 100), Binary("smoker")
MANY = tuple(range(2_000))


@each(
    ("make", "match"),
    [
        (lambda: Spline("age", KNOTS), r"column 'age' needs low and high, a public bound: .* Spline\('age', knots="),
        (lambda: Spline("age", KNOTS, 30, 90), r"each knot of column 'age' must be a number in \[30, 90\], got 25"),
        (lambda: Spline("age", (1, 2), 0, 3), "three or more numbers in increasing order, .* take Numeric"),
        (lambda: Spline("age", (), 0, 3), "three or more numbers"),
        (lambda: Spline("age", (1, 1, 2), 0, 3), "three or more numbers in increasing order"),
        (lambda: Spline("age", (1, 1 + 1e-9, 2), 0, 3), "at least 3e-06 apart"),
        (lambda: Spline("age", "123", 0, 3), "knots of column 'age' must be a list of numbers"),
        (lambda: Spline("age", (1, "x", 2), 0, 3), "each knot of column 'age'"),
        (lambda: Spline("age", KNOTS, 0, 90, reference=30), "reference of column 'age' must be one of its knots"),
        (lambda: Spline("age", KNOTS, 90, 0), "high of column 'age'"),
        (lambda: Spline("age", KNOTS, 0, 90, missing="x"), "missing of column 'age'"),
        (lambda: Date("d"), r"column 'd' needs low and high, .* Date\('d', low=\"2015-01-01\""),
        (lambda: Date("d", "2015", "2020-01-01"), "low of column 'd' must be a date such as"),
        (lambda: Date("d", 2015, 2020), "low of column 'd' must be a date such as"),
        (lambda: Date("d", "2015-01-01", "01.01.2020"), "high of column 'd' must be a date"),
        (lambda: Date("d", "2015-01-01", "2015-01-01"), "high of column 'd' must be a date after low"),
        (lambda: Date("d", "2015-01-01", "2016-01-01", epoch="x"), "epoch of column 'd' must be a date"),
        (lambda: Date("d", "2015-01-01", "2016-01-01", unit="weeks"), "unit of column 'd'"),  # type: ignore[arg-type]
        (lambda: Date("d", "2015-01-01", "2016-01-01", missing=0), "missing of column 'd' must be a date"),
        (lambda: Interaction("age", "age"), r"two different columns, got 'age' twice. For a curve take Spline\('age'"),
        (lambda: Interaction("age", ""), "The name of a column must be a nonempty text"),
        (lambda: Schema((AGE, Interaction("age", "smoker"))), "'age:smoker' needs both .* 'smoker' is none of .* Add"),
        (lambda: Schema((Interaction("age", "smoker"),)), "'age' is none of the columns"),
        (
            lambda: Schema((AGE, SMOKER, Interaction("age", "smoker"), Interaction("smoker", "age"))),
            "'smoker:age' must be there once",
        ),
        (
            lambda: Schema((AGE, SMOKER, Numeric("age:smoker", 0, 1), Interaction("age", "smoker"))),
            "has the name of a column: rename",
        ),
        (lambda: Schema((AGE, SMOKER, Interaction("age", "smoker"), Interaction("age:smoker", "age"))), "is none of"),
        (
            lambda: Schema((Categorical("a", MANY), Categorical("b", MANY), Interaction("a", "b"))),
            "has 4,008,004 features, more than 1,000,000: leave it out",
        ),
    ],
)
def test_faulty_terms_are_refused_with_a_way_out(make: Any, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        make()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "spline", "name": "a", "knots": 5, "low": 0, "high": 1},
        {"kind": "spline", "name": "a", "knots": [[0], 1, 2], "low": 0, "high": 1},
        {"kind": "spline", "name": "a", "knots": {}, "low": 0, "high": 1},
        {"kind": "date", "name": "a", "low": [], "high": {}},
        {"kind": "date", "name": "a", "low": "2015-01-01", "high": "2016-01-01", "colour": 1},
        {"kind": "interaction", "first": ["a"], "second": "b"},
        {"kind": "interaction", "name": "a:b"},
        {"kind": "interaction", "first": "a"},
    ],
)
def test_faulty_json_of_a_term_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((DataFormatError, ParameterError)):
        Schema.from_json(json.dumps({"columns": [{"kind": "binary", "name": "z"}, change]}))
