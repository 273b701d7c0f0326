"""Tables: every form of the same data gives the same rows, and the schema alone decides which numbers they are."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import tracemalloc
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.data import Binary, Categorical, Numeric, Response, Schema, Table, Target
from dpvb.data.spelling import MISSING_VALUES, label
from dpvb.errors import DataFormatError, ParameterError
from dpvb.estimators.choosing import private_range

SCHEMA = Schema(
    (
        Numeric("age", 18, 90),
        Categorical("work", ("private", "state", "none")),
        Numeric("gain", 0, 1e5, transform="log1p", missing=0),
        Binary("member", ("no", "yes")),
    ),
    Target("income", classes=("<=50K", ">50K")),
)
FRAME = pd.DataFrame(
    {
        "id": ["a", "b", "a", "c", "b", "d"],
        "age": [18, 90, 54, 17, 400, 36],
        "work": ["private", "state", "none", "?", "pirate", "private"],
        "gain": [0.0, 1e5, 99.0, math.nan, 2e5, -5.0],
        "member": ["no", "yes", "yes", "no", "yes", "no"],
        "income": ["<=50K", ">50K", ">50K", "<=50K", ">50K", "<=50K"],
        "unused": ["x"] * 6,
    }
)
I = 0.7  # noqa: E741 (size of an indicator)
FEATURES = np.array(
    [
        # age, work: private, state, none, other, missing; gain; member
        [0, I, 0, 0, 0, 0, 0, 0],
        [1, 0, I, 0, 0, 0, 1, I],
        [0.5, 0, 0, I, 0, 0, math.log(100) / math.log1p(1e5), I],
        [0, 0, 0, 0, 0, I, 0, 0],
        [1, 0, 0, 0, I, 0, 1, I],
        [0.25, I, 0, 0, 0, 0, 0, 0],
    ]
)
Y = np.array([0, 1, 1, 0, 1, 0])


def table(source):
    """All rows of a design: features, y, trials."""
    parts = [np.column_stack([c.rows.x_nd, c.rows.y_n, c.rows.trials_n]) for c in source.chunks()]
    return np.vstack([np.empty((0, source.width + 2)), *parts])


def as_dict(frame):
    return {name: frame[name].to_numpy() for name in frame}


def as_lists(frame):
    return {name: frame[name].tolist() for name in frame}


def as_structured(frame):
    return frame.to_records(index=False).view(np.ndarray)


def as_dictionary_encoded(frame):
    arrow = pa.Table.from_pandas(frame)
    place = arrow.column_names.index("work")
    return arrow.set_column(place, "work", arrow.column("work").dictionary_encode())


MEMORY = {
    "pandas": lambda f: f,
    "categories": lambda f: f.astype({"work": "category", "income": "category"}),
    "nullable": lambda f: f.convert_dtypes(),
    "arrow_backed": lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
    "dict": as_dict,
    "lists": as_lists,
    "structured": as_structured,
    "arrow": pa.Table.from_pandas,
    "record_batch": lambda f: pa.RecordBatch.from_pandas(f),
    "arrow_dictionary": as_dictionary_encoded,
}
FILES = {
    "t.csv": lambda f, path: f.to_csv(path, index=False),
    "t.csv.gz": lambda f, path: f.to_csv(path, index=False),
    "t.parquet": lambda f, path: f.to_parquet(path),
}


def expected_rows(schema=SCHEMA, features=FEATURES, y=Y):
    """The rule of the module, written out: divide by R, put 1/R before, scale long rows back."""
    max_row_norm = schema.max_row_norm
    x = features / max_row_norm
    limit = math.sqrt(1 - 1 / max_row_norm**2)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    x = x * np.minimum(1, limit / np.maximum(length, 1e-300))
    return np.column_stack([np.full(len(x), 1 / max_row_norm), x, y, np.ones(len(x))])


# ---------------------------------------------------------------- the same rows from every form


@pytest.mark.parametrize("form", MEMORY)
def test_every_form_in_memory_gives_the_rows_of_the_rule(form):
    rows = table(Table(MEMORY[form](FRAME), SCHEMA).design())
    np.testing.assert_allclose(rows, expected_rows(), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(rows, table(Table(FRAME, SCHEMA).design()))


@pytest.mark.parametrize("stream", [True, False, None])
@pytest.mark.parametrize("name", FILES)
def test_every_file_gives_the_same_rows(tmp_path, name, stream):
    FILES[name](FRAME, tmp_path / name)
    source = Table(tmp_path / name, SCHEMA, stream=stream).design()
    for _ in range(2):
        np.testing.assert_array_equal(table(source), table(Table(FRAME, SCHEMA).design()))
    assert source.count() == 6
    assert (source.unit, source.width) == ("row", 9)
    assert source.intercept == pytest.approx(1 / SCHEMA.max_row_norm)
    np.testing.assert_array_equal(
        table(Table(str(tmp_path / name), SCHEMA, stream=stream).design(Y)), table(Table(FRAME, SCHEMA).design())
    )


@pytest.mark.parametrize("name", FILES)
def test_pieces_of_a_stream_do_not_matter(tmp_path, name, monkeypatch):
    monkeypatch.setattr("dpvb.data.tables.table.MAX_ROWS", 4)
    FILES[name](FRAME, tmp_path / name)
    streamed = Table(tmp_path / name, SCHEMA, stream=True)
    expected = Table(FRAME, SCHEMA)
    assert len([*streamed.design().chunks()]) == 2
    np.testing.assert_array_equal(table(streamed.design()), table(expected.design()))
    np.testing.assert_array_equal(table(streamed.design(1 - Y)), table(expected.design(1 - Y)))
    np.testing.assert_array_equal(table(streamed.features()), table(expected.features()))
    sparse = [chunk.rows for chunk in streamed.design(sparse_rows=True).chunks()]
    np.testing.assert_array_equal(np.concatenate([rows.y_n for rows in sparse]), Y)


def test_the_matrix_equals_one_hot_encoding_by_scikit_learn():
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "u": rng.normal(5, 10, 500),
            "c": rng.choice(["x", "y", "z", "other"], 500),
            "d": rng.integers(0, 4, 500),
            "t": rng.integers(0, 2, 500),
        }
    )
    schema = Schema(
        (
            Categorical("c", ("x", "y", "z"), missing=False),
            Numeric("u", 0, 10),
            Categorical("d", (0, 1, 2, 3), other=False, missing=False),
        ),
        Target("t"),
        scale=3.0,
    )
    rows = table(Table(frame, schema).design(fit_intercept=False))
    one_hot = OneHotEncoder(categories=[["x", "y", "z", "other"], [0, 1, 2, 3]], sparse_output=False)
    codes = 0.7 * one_hot.fit_transform(frame[["c", "d"]])
    x = np.column_stack([codes[:, :4], frame["u"].clip(0, 10) / 10, codes[:, 4:]]) / 3.0
    np.testing.assert_allclose(rows[:, :-2], x, rtol=1e-14, atol=1e-16)
    np.testing.assert_array_equal(rows[:, -2], frame["t"])
    assert schema.feature_names == ("c=x", "c=y", "c=z", "c=<other>", "u", "d=0", "d=1", "d=2", "d=3")
    assert schema.width == len(schema.feature_names) == x.shape[1]


def test_names_of_features_and_the_scale():
    assert SCHEMA.feature_names == (
        "age",
        "work=private",
        "work=state",
        "work=none",
        "work=<other>",
        "work=<missing>",
        "gain",
        "member",
    )
    # Monte Carlo of the stated rule: uniform numbers, a fair coin, one category.
    rng = np.random.default_rng(1)
    square = 1 + rng.random((10**6, 2)) ** 2 @ [1, 1] + 0.49 + 0.49 * (rng.random(10**6) < 0.5)
    assert SCHEMA.max_row_norm**2 == pytest.approx(square.mean() + 2 * square.std(), abs=0.005)
    assert SCHEMA.intercept == 1 / SCHEMA.max_row_norm
    assert Schema(SCHEMA.columns, scale=4).max_row_norm == 4.0


def test_the_intercept_is_optional_and_leaves_its_place_to_the_features():
    rows = table(Table(FRAME, SCHEMA).design(fit_intercept=False))
    np.testing.assert_allclose(rows[:, :-2], FEATURES / SCHEMA.max_row_norm, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("transform", [None, "log1p", "asinh"])
@pytest.mark.parametrize(("low", "high"), [(0, 10), (-0.5, 1e6), (1e-9, 1e300)])
def test_numbers_are_clipped_transformed_and_scaled_to_the_unit_interval(transform, low, high):
    spec = Numeric("v", low, high, transform=transform)
    values = np.concatenate([[low, high, -1e308, 1e308], np.linspace(low, high, 20)])
    found = spec.encode(values, frozenset()).value_nm[:, 0]
    change = {None: lambda v: v, "log1p": np.log1p, "asinh": np.arcsinh}[transform]
    expected = (change(np.clip(values, low, high)) - change(low)) / (change(high) - change(low))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    assert found[[0, 1, 2, 3]].tolist() == [0, 1, 0, 1]


# ---------------------------------------------------------------- values as text


def places(spec, cells, missing_values=MISSING_VALUES):
    made = spec.encode(cells, frozenset(missing_values))
    pairs = zip(made.place_nm[:, 0], made.value_nm[:, 0], strict=True)
    return [None if math.isnan(value) else int(place) for place, value in pairs]


def test_categories_are_compared_in_one_spelling():
    spec = Categorical("c", ("1", "two", 3.0))
    other, missing = 3, 4
    cells = [1, 1.0, "1", b" 1 ", True, np.int8(1), np.float32(1), Decimal(1), "two ", "Two", 3, "3", "3.0", 2]
    assert places(spec, cells) == [0] * 8 + [1, 1, 2, 2, 2, other]
    assert places(spec, [None, math.nan, pd.NA, pd.NaT, "", "?", " NA", b"null"]) == [missing] * 8
    assert places(spec, np.array([1.0, 3.0, math.nan, 7.5])) == [0, 2, missing, other]
    assert places(spec, np.array([True, False])) == [0, other]


def test_a_category_that_looks_missing_is_not():
    spec = Categorical("region", ("NA", "EU", ""))
    assert places(spec, ["NA", "EU", "", "?", None]) == [0, 1, 2, 4, 4]
    assert places(spec, ["?"], missing_values=()) == [3]


@pytest.mark.parametrize(
    "pair", [("No", "no"), ("no", " NO "), ("250.1", "250.10"), (1, "1.0"), (0, False), ("Straße", "STRASSE")], ids=repr
)
def test_values_that_are_one_in_the_spelling_of_comparisons_are_refused(pair):
    for make in (lambda: Categorical("c", pair), lambda: Binary("c", pair)):
        with pytest.raises(ParameterError, match=r"of column 'c' must not repeat a value, got .* Rename one of them"):
            make()
    for make in (lambda: Response(classes=pair), lambda: Target("c", classes=pair)):
        with pytest.raises(ParameterError, match="classes must be a pair of different labels"):
            make()


@each("form", [*MEMORY, *FILES])
@each(
    ("declared", "written"),
    [
        (("no", "yes"), ["No", "YES", "yes", "maybe"]),
        (("No", "Yes"), ["no", " yes", "YES ", "nope"]),
        ((0, 1), ["0", "1.0", "True", "2"]),
        ((0, 1), [0.0, 1.0, 1.0, 7.0]),
        (("0", "1"), [0, 1, 1, 2]),
        ((False, True), [0, 1, 1, -1]),
        (("false", "true"), ["False", "TRUE", "1", "x"]),
        (("été", "Ñandú"), ["E\u0301TE\u0301", "ñandú", "ÑANDÚ", "nandu"]),
    ],
)
def test_labels_and_categories_are_one_in_any_capitals_and_any_form_of_a_number(tmp_path, form, declared, written):
    frame = pd.DataFrame({"id": range(4), "work": written, "income": written})
    data = tmp_path / form if form in FILES else MEMORY[form](frame)
    if form in FILES:
        FILES[form](frame, data)
    schema = Schema((Categorical("work", declared, missing=False),), Target("income", classes=declared))
    rows = table(Table(data, schema).design(fit_intercept=False))
    assert (rows[:3, :3] > 0).tolist() == [[True, False, False], [False, True, False], [False, True, False]]
    np.testing.assert_array_equal(rows[:, -2], [0, 1, 1, math.nan])


def test_a_missing_cell_that_numpy_wrote_as_text_is_the_declared_one():
    declared = Categorical("c", ("nan", "a"))
    assert places(declared, np.array(["a", math.nan])) == places(declared, ["a", math.nan]) == [1, 0]


def test_zero_and_false_are_one():
    assert places(Categorical("b", (False, True)), [0, "1", "true", "False", np.True_]) == [0, 1, 1, 0, 1]


def test_places_that_are_switched_off_make_a_row_faulty():
    closed = Categorical("c", ("a",), other=False, missing=False)
    assert closed.width == 1
    assert places(closed, ["a", "b", None, math.nan, "?"]) == [0, None, None, None, None]
    assert places(Categorical("c", ("a",), other=False), ["a", "b", None]) == [0, None, 1]
    assert places(Categorical("c", ("a",), missing=False), ["a", "b", None]) == [0, 1, None]


def test_binary_columns():
    for missing, expected in ((None, math.nan), (1, 0.7), ("0", 0.0)):
        made = Binary("b", missing=missing).encode([0, "1", True, 0.0, "False", None, "x", 2], frozenset())
        np.testing.assert_array_equal(made.value_nm[:, 0], [0, 0.7, 0.7, 0, 0] + [expected] * 3)


@pytest.mark.parametrize("cell", [None, "", "abc", math.nan, pd.NA, "nan", {}, [], object(), 1j, b"\xff", "1,5"])
def test_what_is_no_number_is_missing(cell):
    cells = [1, cell]
    np.testing.assert_array_equal(Numeric("v", 0, 2).encode(cells, frozenset()).value_nm[:, 0], [0.5, math.nan])
    np.testing.assert_array_equal(Numeric("v", 0, 2, missing=2).encode(cells, frozenset()).value_nm[:, 0], [0.5, 1])


@pytest.mark.parametrize("cell", [math.inf, -math.inf, "inf", "-Infinity", b"1e999"])
def test_an_infinity_is_faulty_whatever_stands_for_missing(cell):
    np.testing.assert_array_equal(Numeric("v", 0, 2, missing=2).encode([cell], frozenset()).value_nm[:, 0], [math.nan])


# ---------------------------------------------------------------- faults inside rows


class Hostile:
    """Raises whatever is asked of it."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("secret 1234567")

    def __float__(self):
        raise RuntimeError("secret 1234567")

    def __str__(self):
        raise RuntimeError("secret 1234567")


STRICT = Schema(
    (Numeric("age", 18, 90), Categorical("work", ("private", "state"), other=False, missing=False), Binary("b")),
    Target("y"),
)


@each("name", ["age", "work", "b", "y"])
@each(
    "value",
    [None, math.nan, math.inf, -math.inf, "pirate", b"\xff", [], {}, Hostile(), pd.NA, 1j, "1234567,8"],
    ids=lambda value: repr(value).split(" at 0x")[0],
)
def test_a_fault_in_a_cell_silences_its_row_alone(name, value, capfd, caplog):
    data = {
        "age": [20.0, 30.0, 40.0],
        "work": ["private", "state", "state"],
        "b": [0, 1, 1],
        "y": [1, 0, 1],
    }
    expected = table(Table(data, STRICT).design())
    assert not np.isnan(expected).any()
    expected[1] = math.nan
    broken = {k: list(v) for k, v in data.items()}
    broken[name][1] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(table(Table(broken, STRICT).design()), expected)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


CSV = "age,work,b,y\n20,private,0,1\n{}\n40,state,1,1\n"


@pytest.mark.parametrize(
    "line",
    ["30,state,1", "30,state,1,0,9", '"30,state",1,0', "30,st\udcffate,1,0", "x,state,1,0", "30,state,1,7", "30,,1,0"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_malformed_line_silences_itself_alone(tmp_path, line, stream, capfd):
    path = tmp_path / "t.csv"
    path.write_bytes(CSV.format(line).encode("utf-8", "surrogateescape"))
    good = tmp_path / "good.csv"
    good.write_text(CSV.format("30,state,1,0"))
    expected = table(Table(good, STRICT).design())
    expected[1] = math.nan
    np.testing.assert_array_equal(table(Table(path, STRICT, stream=stream).design()), expected)
    np.testing.assert_array_equal(
        np.isnan(table(Table(path, STRICT, stream=stream).features())).all(axis=1),
        [False, line != "30,state,1,7", False],
    )
    assert capfd.readouterr() == ("", "")


def test_text_that_is_not_utf8_in_parquet(tmp_path):
    invalid = pa.array([b"private", b"st\xffate", b"state"]).view(pa.binary()).cast(pa.binary())
    text = pa.StringArray.from_buffers(3, invalid.buffers()[1], invalid.buffers()[2])
    data = pa.table({"age": [20, 30, 40], "work": text, "b": [0, 1, 1], "y": [1, 0, 1]})
    pq.write_table(data, tmp_path / "t.parquet")
    for form in (data, tmp_path / "t.parquet"):
        assert np.isnan(table(Table(form, STRICT).design())).all(axis=1).tolist() == [False, True, False]


cells = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 200), st.floats(), st.text(max_size=4), st.binary(max_size=3), st.dates()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=6), st.data())
def test_rows_are_bounded_and_each_depends_on_its_own_cells(records, data):
    def rows(chosen):
        columns = [list(column) for column in zip(*chosen, strict=True)]
        return table(Table(dict(zip(["age", "work", "gain", "income"], columns, strict=True)), loose).design())

    loose = Schema((SCHEMA.columns[0], SCHEMA.columns[1], SCHEMA.columns[2]), SCHEMA.target)
    every = rows(records)
    norm = np.linalg.norm(every[:, :-2], axis=1)
    assert np.all(np.isnan(norm) | (norm <= 1 + 1e-12))
    n = data.draw(st.integers(0, len(records) - 1))
    np.testing.assert_array_equal(rows([records[n]])[0], every[n])


# ---------------------------------------------------------------- responses, persons, no rows


def test_other_kinds_of_targets():
    data = {"x": [0.1, 0.2, 0.3], "wins": [1, 2, 9], "games": ["3", "2", "4"], "visits": [0, 7, 2.5]}
    columns = (Numeric("x", 0, 1),)
    binomial = Schema(columns, Target("wins", "binomial", max_trials=4, trials="games"))
    np.testing.assert_array_equal(table(Table(data, binomial).design())[:, -2:], [[1, 3], [2, 2], [math.nan] * 2])
    counts = Schema(columns, Target("visits", "negative_binomial", max_count=5))
    np.testing.assert_array_equal(table(Table(data, counts).design())[:, -2], [0, 5, math.nan])
    given_y = Table(data, Schema(columns)).design(data["wins"], [3, 2, 4], response=Response("binomial", max_trials=4))
    np.testing.assert_array_equal(table(given_y), table(Table(data, binomial).design()))
    with pytest.raises(ParameterError, match="schema's target and the model's parameters must agree"):
        Table(data, binomial).design(response=Response())
    with pytest.raises(ParameterError, match="trials"):
        Table(data, binomial).design(trials=[1, 2, 3])


def test_labels_given_beside_the_table():
    labels = np.where(Y == 1, "rich", "poor")
    rows = table(Table(FRAME, SCHEMA).design(labels, response=Response(classes=("poor", "rich"))))
    np.testing.assert_array_equal(rows, table(Table(FRAME, SCHEMA).design()))
    with pytest.raises(DataFormatError, match="differ in length"):
        Table(FRAME, SCHEMA).design(Y[:-1])
    with pytest.raises(DataFormatError, match="response is missing"):
        Table(FRAME, Schema(SCHEMA.columns)).design()
    with pytest.raises(DataFormatError, match="lack 'income'"):
        Table(FRAME.drop(columns="income"), SCHEMA).design()
    np.testing.assert_array_equal(
        table(Table(FRAME.drop(columns="income"), SCHEMA).features())[:, :-2],
        table(Table(FRAME, SCHEMA).design())[:, :-2],
    )


@pytest.mark.parametrize("name", [*FILES, "pandas"])
def test_persons_from_a_column_or_an_array(tmp_path, name):
    schema = Schema(SCHEMA.columns, SCHEMA.target, group="id")
    if name == "pandas":
        data = FRAME
    else:
        data = tmp_path / name
        FILES[name](FRAME, data)
    order = [0, 2, 1, 4, 3, 5]
    for source in (Table(data, schema).design(), Table(data, SCHEMA).design(group=FRAME["id"])):
        assert (source.unit, source.count()) == ("person", 4)
        (chunk,) = source.chunks()
        np.testing.assert_array_equal(chunk.unit_of_row, [0, 0, 1, 1, 2, 3])
        np.testing.assert_array_equal(table(source), table(Table(FRAME, SCHEMA).design())[order])
    # Rows to predict keep their order.
    np.testing.assert_array_equal(table(Table(data, schema).features())[:, :-2], expected_features())


def expected_features():
    return table(Table(FRAME, SCHEMA).features())[:, :-2]


def test_no_rows_are_ordinary(tmp_path):
    empty = FRAME.iloc[:0]
    empty.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.Table.from_pandas(FRAME).slice(0, 0), tmp_path / "t.parquet")
    for data, options in [
        (empty, {}),
        (as_dict(empty), {}),
        (tmp_path / "t.csv", {"stream": True}),
        (tmp_path / "t.csv", {"stream": False}),
        (tmp_path / "t.parquet", {"stream": True}),
    ]:
        source = Table(data, SCHEMA, **options).design()
        assert (source.count(), source.width, [chunk.num_units for chunk in source.chunks()]) == (0, 9, [0])


# ---------------------------------------------------------------- public faults


def test_a_missing_bound_names_the_column_and_three_ways_out():
    for options, words in (({}, "low and high"), ({"low": 0}, "high"), ({"high": 1}, "low")):
        with pytest.raises(ParameterError) as caught:
            Numeric("income", **options)
        text = str(caught.value)
        assert text.startswith(f"column 'income' needs {words}, ")
        for way in ("(1) give a range", "(2) let a small private release", "private_range(", "(3) rescale to units"):
            assert way in text
    with pytest.raises(ParameterError, match="column 'income' needs low and high"):
        Schema.from_json('{"columns": [{"kind": "numeric", "name": "income"}]}')


@each(
    ("make", "match"),
    [
        (lambda: Numeric("", 0, 1), "name of a column"),
        (lambda: Numeric("v", 1, 1), "high of column 'v'"),
        (lambda: Numeric("v", 0, math.inf), "high of column 'v'"),
        (lambda: Numeric("v", math.nan, 1), "low of column 'v'"),
        (lambda: Numeric("v", -1, 1, "log1p"), "low of column 'v'"),
        (lambda: Numeric("v", 0, 1, "sqrt"), "transform of column 'v'"),
        (lambda: Numeric("v", 0, 1, missing=math.inf), "missing of column 'v'"),
        (lambda: Numeric("v", 1e300 / 3, 1e300 / 3 * (1 + 2e-16), "asinh"), "too narrow"),
        (lambda: Categorical("c", ()), "categories of column 'c'"),
        (lambda: Categorical("c", "abc"), "categories of column 'c'"),
        (lambda: Categorical("c", ("a", "b"), reference="d"), "reference of column 'c' must be one of"),
        (lambda: Categorical("c", ("a", "b"), reference=["a"]), "reference of column 'c' must be one of"),
        (lambda: Categorical("c", ("a", "a ")), "repeat"),
        (lambda: Categorical("c", (1, 1.0)), "repeat"),
        (lambda: Categorical("c", ("a", None)), "texts or finite numbers"),
        (lambda: Categorical("c", ("a", math.inf)), "texts or finite numbers"),
        (lambda: Target("y", classes=(0, -math.inf)), "texts or finite numbers"),
        (lambda: Categorical("c", ("a",), other=1), "other of column 'c'"),
        (lambda: Binary("b", (0, 1, 2)), "two values"),
        (lambda: Binary("b", missing=5), "missing of column 'b'"),
        (lambda: Categorical("c", ("a", "\udcff")), "texts or finite numbers"),
        (lambda: Target("y", "probit"), "kind"),
        (lambda: Target("y", "binomial"), "trials"),
        (lambda: Target("y", trials="m"), "trials"),
        (lambda: Schema(()), "columns"),
        (lambda: Schema(("age",)), "columns"),
        (lambda: Schema((Binary("b"), Binary("b"))), "'b' more than once"),
        (lambda: Schema((Binary("b"),), Target("b")), "'b' more than once"),
        (lambda: Schema((Binary("b"),), group="b"), "'b' more than once"),
        (lambda: Schema((Binary("b"),), target="y"), "target"),
        (lambda: Schema((Binary("b"),), scale=1.0), "scale"),
        (lambda: Schema((Binary("b"),), missing_values="NA"), "missing_values"),
    ],
)
def test_faulty_schemas_are_refused(make, match):
    with pytest.raises(ParameterError, match=match):
        make()


def test_faulty_tables_are_refused(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    FRAME.drop(columns="age").to_csv(tmp_path / "short.csv", index=False)
    FRAME.drop(columns="age").to_parquet(tmp_path / "short.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    (tmp_path / "t.txt").touch()
    for data, error, match in [
        (FRAME.drop(columns="age"), DataFormatError, "'age'"),
        (FRAME.rename(columns={"unused": "age"}), DataFormatError, "'age'"),
        (as_dict(FRAME.drop(columns="work")), DataFormatError, "'work'"),
        ({}, DataFormatError, "'age'"),
        ({**as_dict(FRAME), "age": np.arange(5)}, DataFormatError, "differ in length"),
        ({**as_dict(FRAME), "age": np.zeros((6, 2))}, DataFormatError, "1d array"),
        ({**as_dict(FRAME), "age": 5}, DataFormatError, "one-dimensional"),
        (np.zeros((6, 4)), DataFormatError, "no names"),
        (5, DataFormatError, "no names"),
        (tmp_path / "short.csv", DataFormatError, "'age'"),
        (tmp_path / "short.parquet", DataFormatError, "'age'"),
        (tmp_path / "bad.parquet", DataFormatError, "not a readable Parquet"),
        (tmp_path / "none.csv", DataFormatError, "there is no such file"),
        (tmp_path / "none", DataFormatError, "there is no such file"),
        (tmp_path / "t.txt", ParameterError, "file_format"),
    ]:
        with pytest.raises(error, match=match):
            Table(data, SCHEMA)
    with pytest.raises(ParameterError, match="Schema"):
        Table(FRAME, {"age": (0, 1)})
    with pytest.raises(ParameterError, match="stream"):
        Table(FRAME, SCHEMA, stream=True)
    with pytest.raises(DataFormatError, match="group must hold one id for each row"):
        Table(tmp_path / "t.csv", SCHEMA, stream=True).design(group=FRAME["id"][:-1])
    assert Table(tmp_path / "t.csv", SCHEMA, file_format="csv").design().count() == 6


@pytest.mark.guarantees("silence")
def test_no_error_text_holds_a_private_value(tmp_path):
    (tmp_path / "t.csv").write_text("1234567,x\n1234567,y\n")
    for data in (tmp_path / "t.csv", {"age": np.full((2, 2), 1234567)}, {"age": 1234567}):
        with pytest.raises(DataFormatError) as caught:
            Table(data, Schema((Numeric("age", 0, 1),)))
        assert "1234567" not in str(caught.value)


# ---------------------------------------------------------------- JSON

names = st.text(min_size=1, max_size=6)
bounds = st.tuples(st.floats(0, 1e6), st.floats(1e7, 1e12))
values_of = st.one_of(st.text(max_size=4), st.integers(-9, 9), st.floats(0.1, 1e9), st.booleans())


categories = st.lists(values_of, min_size=2, max_size=5, unique_by=label).map(tuple)
columns_of = st.one_of(
    st.builds(
        lambda name, ends, transform, missing: Numeric(name, *ends, transform, missing),
        names,
        bounds,
        st.sampled_from([None, "log1p", "asinh"]),
        st.none() | st.floats(-1e9, 1e9),
    ),
    st.builds(Categorical, names, categories, other=st.booleans(), missing=st.booleans()),
    st.builds(lambda name, pair: Binary(name, pair[:2], missing=pair[0]), names, categories),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(columns_of, min_size=1, max_size=4, unique_by=lambda column: column.name),
    st.none() | categories.filter(lambda pair: pair[0] != pair[1]),
    st.none() | st.floats(1.5, 1e9),
)
def test_a_schema_survives_json_exactly(columns, classes, scale):
    target = None if classes is None else Target("the target", classes=classes[:2])
    schema = Schema(tuple(columns), target, group="the person", scale=scale, missing_values=("-", ""))
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert again.to_json() == schema.to_json()
    assert again.feature_names == schema.feature_names
    assert again.max_row_norm == schema.max_row_norm


def test_schemas_of_numpy_numbers_are_written_and_read(tmp_path):
    schema = Schema(
        [
            Numeric("v", np.int64(0), np.float32(0.1), missing=np.float64(0.05)),
            Categorical("c", np.array([1, 2])),
        ],
        Target("y", "negative_binomial", max_count=np.int64(9)),
        scale=np.float32(2),
    )
    schema.save(tmp_path / "schema.json")
    assert Schema.load(tmp_path / "schema.json") == schema
    least = '{"columns": [{"kind": "binary", "name": "b"}]}'
    assert Schema.from_json(least) == Schema((Binary("b"),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"columns": 5}',
        '{"columns": ["age"]}',
        '{"columns": [{"kind": "text", "name": "d"}]}',
        '{"columns": [{"kind": ["binary"], "name": "d"}]}',
        '{"columns": [{"kind": "binary", "name": "b", "colour": 1}]}',
        '{"columns": [{"kind": "binary"}]}',
        '{"columns": [{"kind": "binary", "name": "b"}], "weights": 1}',
        '{"columns": [{"kind": "binary", "name": "b"}], "target": 5}',
        '{"columns": [{"kind": "binary", "name": "b"}], "version": 2}',
        '{"columns": [{"kind": "binary", "name": "b"}], "format": "other"}',
        b"\xff\xfe\xff",
        "[" * 10**5,
    ],
)
def test_faulty_json_is_refused(text):
    with pytest.raises(DataFormatError):
        Schema.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5},
        {"name": ["b"]},
        {"values": [[1], 2]},
        {"values": {"a": 1}},
        {"values": [0, {}]},
        {"missing": []},
    ],
)
def test_json_with_faulty_fields_is_refused(change):
    column = {"kind": "binary", "name": "b"} | change
    with pytest.raises((DataFormatError, ParameterError)):
        Schema.from_json(json.dumps({"columns": [column]}))


def test_schema_files_that_cannot_be_used(tmp_path):
    with pytest.raises(DataFormatError, match="cannot be read"):
        Schema.load(tmp_path / "none.json")
    with pytest.raises(DataFormatError, match="cannot be written"):
        SCHEMA.save(tmp_path / "no" / "folder.json")
    with pytest.raises(DataFormatError, match="cannot be written"):
        Schema((Numeric("\udcff", 0, 1),)).save(tmp_path / "schema.json")


# ---------------------------------------------------------------- memory


def peak_of_a_pass(path, rows):
    """Peak memory of opening a file of so many random rows and of one pass over it."""
    frame = pd.DataFrame(np.random.default_rng(3).random((rows, 8)).round(3), columns=[*"abcdefgh"]).assign(y=0)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, row_group_size=500)
    schema = Schema(tuple(Numeric(column, 0, 1) for column in "abcdefgh"), Target("y"), scale=3)
    tracemalloc.start()
    try:
        source = Table(path, schema, stream=True).design()
        total = sum(float(chunk.rows.x_nd[:, 1:].sum()) for chunk in source.chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(frame[[*"abcdefgh"]].to_numpy().sum() / 3, rel=1e-9)
    return peak


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_memory_of_a_stream_does_not_grow_with_its_file(tmp_path, name, monkeypatch):
    monkeypatch.setattr("dpvb.data.tables.table.MAX_ROWS", 256)
    monkeypatch.setattr("dpvb.data.readable.BLOCK_BYTES", 2**14)
    monkeypatch.setattr("dpvb.data.tables.design.STREAMED_ENTRIES", 2 * 256 * 9)  # Clean rows that stay, at each size.
    peak_of_a_pass(tmp_path / name, 1000)  # first imports
    assert peak_of_a_pass(tmp_path / name, 8000) < 1.5 * peak_of_a_pass(tmp_path / name, 1000)


@pytest.mark.slow
@pytest.mark.skipif("DPVB_DATA" not in os.environ, reason="DPVB_DATA names no folder with the real data")
def test_adult_from_its_published_lists(tmp_path):
    folder = Path(os.environ["DPVB_DATA"]) / "adult"
    described = re.findall(r"^([a-z-]+): (.*)\.$", (folder / "adult.names").read_text(), re.MULTILINE)
    lists = {name: text for name, text in described if "," in text or text == "continuous"}
    ranges = {
        "age": (17, 90),
        "fnlwgt": (1e4, 1.5e6, "log1p"),
        "education-num": (1, 16),
        "capital-gain": (0, 1e5, "log1p"),
        "capital-loss": (0, 5e3, "log1p"),
        "hours-per-week": (1, 99),
    }
    schema = Schema(
        tuple(
            Numeric(name, *ranges[name])
            if name in ranges
            else Categorical(name, tuple(v.strip() for v in text.split(",")))
            for name, text in lists.items()
        ),
        Target("income", classes=("<=50K", ">50K")),
    )
    header = [*lists, "income"]
    frame = pd.read_csv(folder / "adult.data", header=None, skipinitialspace=True, names=header)
    frame.to_csv(tmp_path / "adult.csv", index=False)
    rows = table(Table(frame, schema).design())
    assert rows.shape == (32_561, 1 + schema.width + 2)
    assert rows[:, -2].sum() == 7841
    missing = [
        1 + schema.feature_names.index(f"{name}=<missing>") for name in ("workclass", "occupation", "native-country")
    ]
    assert (rows[:, missing] > 0).any(axis=1).sum() == 2399
    other = [1 + n for n, name in enumerate(schema.feature_names) if name.endswith("=<other>")]
    assert (rows[:, other] == 0).all()
    np.testing.assert_array_equal(table(Table(tmp_path / "adult.csv", schema, stream=True).design()), rows)


# ---------------------------------------------------------------- a range by a private release


def test_without_noise_the_range_holds_the_quantiles():
    values = np.random.default_rng(0).normal(40, 12, 20_000)
    found = private_range(values, low=-1000, high=1000, epsilon=math.inf, delta=1e-6, num_cells=4000)
    low, high = found
    inside = np.quantile(values, [0.005, 0.995])
    assert low <= inside[0] <= low + 0.5
    assert high - 0.5 <= inside[1] <= high


def test_a_private_range_is_near_the_quantiles_and_carries_its_statement():
    """The noise of 256 cells of std 8.4 exceeds 55 with a probability below 1e-7."""
    values = np.random.default_rng(0).normal(40, 12, 20_000).astype(object)
    values[:4] = [math.nan, math.inf, "x", None]
    found = private_range(values, low=-1000, high=1000, epsilon=0.5, delta=1e-6)
    cell = 2000 / 256
    assert abs(found.low - 9.1) <= 2 * cell
    assert abs(found.high - 70.9) <= 2 * cell
    assert found.privacy.epsilon <= 0.5
    assert found.privacy.delta == 1e-6
    assert found.privacy.private
    assert found.privacy.unit == "row"
    Numeric("v", *found)


def test_a_range_of_persons_counts_each_of_them_once():
    """One person's ten thousand values cannot stand out of the noise of std 2 and more; the others' can."""
    values = np.concatenate([np.full(10_000, 900.0), np.random.default_rng(1).uniform(0, 50, 3000)])
    person = np.concatenate([np.zeros(10_000, dtype=int), 1 + np.arange(3000)])
    found = private_range(values, low=-1000, high=1000, epsilon=1, delta=1e-6, group=person)
    assert found.high < 100
    assert found.privacy.unit == "person"
    alone = private_range(values, low=-1000, high=1000, epsilon=1, delta=1e-6)
    assert alone.high > 900


def test_ranges_over_many_orders_of_magnitude():
    values = np.exp(np.random.default_rng(2).normal(8, 1, 20_000))
    found = private_range(values, low=0, high=1e12, transform="log1p", epsilon=math.inf, delta=1e-6)
    inside = np.quantile(values, [0.005, 0.995])
    assert inside[0] / 1.2 < found.low < inside[0]
    assert inside[1] < found.high < inside[1] * 1.2


def test_where_nothing_stands_out_the_range_is_the_grid():
    for values in ([], [3.0], [math.nan] * 50):
        assert tuple(private_range(values, low=-2, high=5, epsilon=0.1, delta=1e-9)) == (-2.0, 5.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"low": 5}, ParameterError),
        ({"high": math.inf}, ParameterError),
        ({"low": -1, "transform": "log1p"}, ParameterError),
        ({"transform": "sqrt"}, ParameterError),
        ({"share": 1}, ParameterError),
        ({"num_cells": 0}, ParameterError),
        ({"epsilon": 0}, ParameterError),
        ({"delta": 1}, ParameterError),
        ({"neighboring_relation": "none"}, ParameterError),
        ({"group": [1]}, DataFormatError),
        ({"values": np.zeros((2, 2))}, DataFormatError),
        ({"values": 5}, DataFormatError),
    ],
)
def test_faulty_requests_for_a_range_are_refused(options, error):
    given_options = {"values": [1.0, 2.0], "low": 0, "high": 5, "epsilon": 1, "delta": 1e-6} | options
    with pytest.raises(error):
        private_range(given_options.pop("values"), **given_options)


@pytest.mark.guarantees("pickled tables")
@kills("leaks", "a pickled table with columns that the schema does not name")
@edit("data/tables/table.py", "return data[[*names]] if is_frame(data)", "return data if is_frame(data)")
def test_a_pickled_table_holds_the_same_rows_and_no_column_that_is_not_read(tmp_path):
    frame = FRAME.assign(unused="never read")
    frame.to_csv(tmp_path / "x.csv", index=False)
    forms = [
        frame,
        as_dict(frame),
        pa.Table.from_pandas(frame),
        frame.drop(columns=["work", "id", "income"]).to_records(index=False),
        tmp_path / "x.csv",
        [tmp_path / "x.csv"],
    ]
    for data in forms:
        schema = Schema(SCHEMA.own_columns[2:3]) if isinstance(data, np.ndarray) else SCHEMA
        table = Table(data, schema)
        pickled = pickle.dumps(table)
        assert b"never read" not in pickled
        loaded = pickle.loads(pickled)
        assert loaded.schema == schema
        for one, other in zip(table.pieces(), loaded.pieces(), strict=True):
            assert one.cells.keys() == other.cells.keys()
            assert all([*map(str, one.cells[name])] == [*map(str, other.cells[name])] for name in one.cells)


def test_a_pickled_table_keeps_how_its_file_is_read(tmp_path):
    (tmp_path / "x.csv").write_text("age;work\n18,5;state\n")
    table = Table(tmp_path / "x.csv", Schema(SCHEMA.own_columns[:2]), separator=";", decimal=",", stream=True)
    (piece,) = pickle.loads(pickle.dumps(table)).pieces()
    assert [*piece.cells["age"]] == [*next(table.pieces()).cells["age"]]
