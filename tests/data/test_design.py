"""Private rows: whatever the form, the same clean rows; a fault silences its own row and no other."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from planted import edit, kills

from dpvb.core.blocks import Block
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BinaryMatrix, Design, Response
from dpvb.errors import DataFormatError, ParameterError
from dpvb.models.regression.likelihood import Likelihood

RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 3))
Y = (RNG.random(40) < 0.5).astype(int)


def rows(source):
    """All rows of a design as one dense array: features, y, trials; chunk by chunk in the source's order."""
    found = [np.empty((0, source.width + 2))]
    for chunk in source.chunks():
        r = chunk.rows
        if hasattr(r, "x_nd"):
            x_nd = r.x_nd
        else:
            assert np.all(np.diff(r.indices)[np.diff(np.repeat(np.arange(len(r.y_n)), np.diff(r.indptr))) == 0] > 0)
            x_nd = scipy.sparse.csr_array((r.values, r.indices, r.indptr), (len(r.y_n), source.width)).toarray()
        found.append(np.column_stack([x_nd, r.y_n, r.trials_n]))
    return np.vstack(found)


def damaged_csr(entries, width, dtype=float):
    matrix = scipy.sparse.csr_matrix((len(entries), width), dtype=dtype)
    matrix.indptr = np.cumsum([0, *map(len, entries)])
    matrix.indices = np.array([column for row in entries for column, _ in row], dtype=np.int64)
    matrix.data = np.array([value for row in entries for _, value in row], dtype=dtype)
    return matrix


# ---------------------------------------------------------------- the delivered row


def exact_square(row):
    return sum(Fraction(float(v)) ** 2 for v in row)


matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 5)),
    elements=st.one_of(
        st.floats(-2, 2),
        st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e-200, 1e200, 1.7e308, -1.7e308, math.nan, math.inf, -math.inf]),
    ),
)


@settings(max_examples=100, deadline=None)
@given(matrices, st.sampled_from([0.0, 0.3, 0.9]), st.sampled_from([1.0, 2.77, 1e-3, 1e100]))
def test_a_row_is_the_constant_and_the_features_scaled_into_the_norm(x, c0, max_row_norm):
    out = rows(Design(x, np.zeros(len(x)), max_row_norm=max_row_norm, intercept=c0))[:, :-2]
    limit = math.sqrt(1 - c0**2)
    for given_row, row in zip(x, out, strict=True):
        if not np.isfinite(given_row).all():
            assert np.isnan(row).all()
            continue
        assert c0 == 0 or row[0] == c0
        features = row[int(c0 > 0) :]
        exact = [Fraction(float(v)) / Fraction(max_row_norm) for v in given_row]
        square = sum(v * v for v in exact)
        if square > limit**2:
            longest = max(map(abs, exact))
            shape = np.array([float(v / longest) for v in exact])
            expected = shape / math.hypot(*shape) * limit
        else:
            expected = np.array([float(v) for v in exact])
        np.testing.assert_allclose(features, expected, rtol=1e-12, atol=1e-300)
        assert exact_square(row) <= 1 + Fraction(1, 10**12)


@settings(max_examples=60, deadline=None)
@given(matrices)
def test_cleaning_twice_changes_no_bit(x):
    once = rows(Design(x, np.zeros(len(x))))
    np.testing.assert_array_equal(rows(Design(once[:, :-2], once[:, -2])), once)


@settings(max_examples=100, deadline=None)
@given(matrices, st.booleans(), st.data())
def test_a_row_has_the_same_bits_alone_as_among_others(x, sparse_rows, data):
    given_x = scipy.sparse.csr_array(np.nan_to_num(x, nan=0.0)) if sparse_rows else x
    options = {"intercept": 0.4, "sparse_rows": sparse_rows}
    every = rows(Design(given_x, np.arange(len(x)) % 2, **options))
    n = data.draw(st.integers(0, len(x) - 1))
    np.testing.assert_array_equal(rows(Design(given_x[[n]], [n % 2], **options))[0], every[n])


@settings(max_examples=100, deadline=None)
@given(matrices, st.sampled_from([0.0, 0.4]))
def test_sparse_rows_equal_dense_ones_but_for_faulty_ones(x, c0):
    dense = rows(Design(x, np.zeros(len(x)), intercept=c0))
    for form in (x, scipy.sparse.csr_array(x), scipy.sparse.csc_array(x), scipy.sparse.coo_array(x)):
        sparse = rows(Design(form, np.zeros(len(x)), intercept=c0, sparse_rows=True))
        sound = np.isfinite(x).all(axis=1)
        np.testing.assert_allclose(sparse[sound], dense[sound], rtol=1e-13, atol=0)
        assert np.isnan(dense[~sound]).all()
        assert (sparse[~sound, :-2] == 0).all()
        assert np.isnan(sparse[~sound, -2:]).all()


def test_a_norm_of_exactly_one_is_left_alone():
    for matrix in (np.eye(3), scipy.sparse.csr_array(np.eye(3))):
        np.testing.assert_array_equal(rows(Design(matrix, np.zeros(3)))[:, :3], np.eye(3))


NUMBER_TYPES = ("?", "i1", "u1", "u8", "f2", "f4", ">f8", "longdouble", "O")
FORMS = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "lists": lambda x: x.tolist(),
    "frame": pd.DataFrame,
    "csr": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_matrix,
    "coo": scipy.sparse.coo_array,
}


TYPED_FORMS = [
    (form, dtype)
    for form in FORMS
    for dtype in NUMBER_TYPES
    if form in ("dense", "fortran", "lists") or dtype not in ("O", "f2", ">f8")
]


@each(("form", "dtype"), TYPED_FORMS)
def test_every_form_and_number_type_gives_the_same_rows(form, dtype):
    counts = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1], [1, 0, 0]])
    out = rows(Design(FORMS[form](counts.astype(dtype)), [0, 1, 1, 0], max_row_norm=2.0, sparse_rows=form == "csr"))
    np.testing.assert_array_equal(out[:, :3], counts / 2)
    np.testing.assert_array_equal(out[:, 3:], [[0, 1], [1, 1], [1, 1], [0, 1]])


def test_frames_of_several_number_types_and_missing_values():
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.0], "c": [True, False], "d": pd.array([1, None], dtype="Int64")})
    out = rows(Design(frame, [0, 1], max_row_norm=10))
    np.testing.assert_array_equal(out[0, :4], [0.1, 0.05, 0.1, 0.1])
    assert np.isnan(out[1]).all()


def test_structures_that_lie_are_read_safely():
    entries = [
        [(2, 1.0), (0, 0.25), (2, -0.5)],
        [(-1, 0.5), (1, 0.5)],
        [(10**12, 0.5)],
        [(1, 0.5), (1, -0.5)],
        [(3, 1)],
    ]
    for sparse_rows in (False, True):
        out = rows(Design(damaged_csr(entries, 3), np.zeros(5), sparse_rows=sparse_rows))
        np.testing.assert_array_equal(out[[0, 3], :3], [[0.25, 0, 0.5], [0, 0, 0]])
        assert np.isnan(out[[1, 2, 4], 3]).all()


def test_small_integers_of_one_place_are_added_without_overflow():
    matrix = damaged_csr([[(0, 200), (0, 200)]], 2, dtype=np.uint8)
    np.testing.assert_array_equal(rows(Design(matrix, [1], max_row_norm=800))[:, :2], [[0.5, 0]])


# ---------------------------------------------------------------- responses

nasty = [math.nan, math.inf, -math.inf, None, "", "1", b"1", {}, [], object(), 1j, -1, 0.5, 2, 1e300, pd.NA]


class Hostile:
    """Raises whatever is asked of it."""

    def __eq__(self, other):
        raise RuntimeError("secret 1234567")

    __hash__ = None

    def __float__(self):
        raise RuntimeError("secret 1234567")


@kills("NaN", "a faulty response kept in its row")
@edit("data/tables/design.py", "faulty = np.isnan(scale_n) | np.isnan(y_n)", "faulty = np.isnan(scale_n)")
@each("value", [*nasty, Hostile()], ids=lambda value: repr(value).split(" at 0x")[0])
@each("sparse_rows", [False, True])
def test_a_label_outside_the_classes_silences_its_row(value, sparse_rows, capfd, caplog):
    y = np.array(Y, dtype=object)
    y[7] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = rows(Design(X, y, sparse_rows=sparse_rows))
    expected = rows(Design(X, Y, sparse_rows=sparse_rows))
    if type(value) in (str, bytes) and value:
        expected[7, 3] = 1
    else:
        expected[7] = np.nan
        if sparse_rows:
            expected[7, :3] = 0
    np.testing.assert_array_equal(out, expected)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@each("value", [*nasty, Hostile()], ids=lambda value: repr(value).split(" at 0x")[0])
@each("kind", ["list", "object"])
def test_a_feature_that_is_no_number_silences_its_row(value, kind, capfd):
    matrix = X.astype(object)
    matrix[4, 1] = value
    out = rows(Design(matrix.tolist() if kind == "list" else matrix, Y))
    number = type(value) in (int, float, str, bytes) and value != "" and math.isfinite(float(value))
    changed = X.copy()
    changed[4, 1] = float(value) if number else math.nan
    np.testing.assert_array_equal(out, rows(Design(changed, Y)))
    assert np.isnan(out[4]).all() != number
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ((0, 1), np.array([0, 1, 1])),
        ((0, 1), np.array([False, True, True])),
        ((0, 1), np.array([0.0, 1.0, 1.0], dtype=np.float32)),
        ((1, -1), np.array([1, -1, -1], dtype=np.int8)),
        (("no", "yes"), np.array(["no", "yes", "yes"])),
        (("no", "yes"), np.array(["No", "YES ", "Yes"], dtype=object)),
        (("No", "Yes"), ["no", "yes", " YES"]),
        ((0, 1), ["0", "1", "1.0"]),
        ((0, 1), [False, "True", True]),
        (("0", "1"), np.array([0.0, 1.0, 1.0])),
        ((False, True), pd.Series([0, 1, 1])),
        (("no", "yes"), ["no", "yes", "yes"]),
        (("no", "yes"), pd.Series(["no", "yes", "yes"])),
        (("no", "yes"), pd.Categorical(["no", "yes", "yes"])),
        ((np.str_("a"), np.str_("b")), np.array(["a", "b", "b"], dtype=object)),
        ((2.5, 3), pd.array([2.5, 3, 3], dtype="Float64")),
    ],
)
def test_the_second_class_is_one(classes, labels):
    out = rows(Design(X[:3], labels, response=Response(classes=classes)))
    np.testing.assert_array_equal(out[:, -2], [0, 1, 1])


@pytest.mark.parametrize("labels", [["no", "yes", "yes"], np.array(["no", "yes", "yes"]), pd.Series(["no"] * 3)])
def test_labels_that_are_none_of_the_classes_are_rows_that_do_not_count(labels):
    """A refusal would tell that such a label is there."""
    assert np.isnan(rows(Design(X[:3], labels, response=Response(classes=(0, 1))))).all()


@kills("public facts", "the classes read off the data")
@edit("data/tables/response.py", "Categories(self.classes)", "Categories(np.unique(cells)[:2].tolist())")
@pytest.mark.parametrize("label", [0, 1])
def test_constant_labels_and_no_rows_are_ordinary(label):
    assert (rows(Design(X, np.full(40, label)))[:, -2] == label).all()
    for empty in (X[:0], scipy.sparse.csr_array((0, 3)), pd.DataFrame(X[:0])):
        for sparse_rows in (False, True):
            source = Design(empty, np.empty(0), sparse_rows=sparse_rows, group=[], intercept=0.5)
            assert source.count() == 0
            assert [chunk.num_units for chunk in source.chunks()] == [0]
            assert source.width == 4


def test_binomial_responses():
    trials = [1, 5, 5, 5, 5, 0, 6, 2.5, math.nan, math.inf, -3, 5]
    y = [1, 5, 0, 6, 2.5, 0, 1, 1, 1, 1, 1, -1]
    out = rows(Design(np.eye(12), y, trials, response=Response("binomial", max_trials=5)))
    assert np.isnan(out[3:]).all()
    np.testing.assert_array_equal(out[:3, -2:], [[1, 1], [5, 5], [0, 5]])


def test_counts_are_clipped_to_the_cap_and_faulty_ones_dropped():
    y = np.array([0, 3, 9, 1e300, -1, 0.5, math.nan, math.inf])
    out = rows(Design(np.eye(8), y, response=Response("negative_binomial", max_count=7)))
    np.testing.assert_array_equal(out[:4, -2], [0, 3, 7, 7])
    assert np.isnan(out[4:]).all()


def test_without_a_response_y_is_zero():
    out = rows(Design(X))
    np.testing.assert_array_equal(out[:, 3:], np.tile([0.0, 1.0], (40, 1)))


# ---------------------------------------------------------------- public faults


@kills("readers", "a damaged row of a LIL matrix moves the values of all rows behind it")
@edit(
    "data/slabs.py",
    'raise DataFormatError(f"A sparse matrix must be CSR, CSC or COO, got {matrix.format.upper()}; use .tocsr().")',
    "matrix = matrix.tocsr()",
)
@pytest.mark.parametrize(
    ("x", "match"),
    [
        (X[0], "1-D|2 dimensions"),
        (np.zeros((2, 2, 2)), "2 dimensions"),
        (np.zeros((4, 0)), "minimum of 1 is required"),
        (scipy.sparse.csr_array((4, 0)), "minimum of 1 is required"),
        ("data.csv", "Table"),
        (None, "Table"),
        (3.0, "Table|dimensions"),
        ([1.0, 2.0], "list"),
        ([[1.0], 2.0, 3.0], "list"),
        (scipy.sparse.lil_array(X), "got LIL; use .tocsr"),
        (scipy.sparse.dok_array(X), "got DOK; use .tocsr"),
        (scipy.sparse.bsr_array(X), "got BSR; use .tocsr"),
        (scipy.sparse.dia_array(X), "got DIA; use .tocsr"),
        (np.ma.masked_array(X), "masked"),
    ],
)
def test_faulty_forms_of_features_are_refused(x, match):
    with pytest.raises(DataFormatError, match=match):
        Design(x, Y)
    with pytest.raises(DataFormatError, match=match):
        BinaryMatrix(x)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (Y[:-1], "differ in length"),
        (np.append(Y, 0), "differ in length"),
        (np.stack([Y, Y], axis=1), "1d array"),
        ("yes", "one-dimensional"),
        (scipy.sparse.csr_array(Y[:, None]), "one-dimensional"),
        (5, "one-dimensional"),
    ],
)
def test_faulty_forms_of_responses_are_refused(y, match):
    with pytest.raises(DataFormatError, match=match):
        Design(X, y)


def test_faulty_parameters_are_refused():
    for options in (
        {"max_row_norm": 0},
        {"max_row_norm": math.nan},
        {"max_row_norm": math.inf},
        {"max_row_norm": "1"},
        {"intercept": 1},
        {"intercept": -0.1},
    ):
        with pytest.raises(ParameterError, match=next(iter(options))):
            Design(X, Y, **options)
    for options in (
        {"kind": "probit"},
        {"classes": (0, 0)},
        {"classes": (0, math.nan)},
        {"classes": (0, 1, 2)},
        {"classes": 5},
        {"classes": (0, None)},
        {"max_trials": 0},
        {"max_count": 1.5},
    ):
        with pytest.raises(ParameterError, match=next(iter(options))):
            Response(**options)
    with pytest.raises(ParameterError, match="trials"):
        Design(X, Y, Y)
    with pytest.raises(ParameterError, match="trials"):
        Design(X, Y, response=Response("binomial"))
    with pytest.raises(DataFormatError, match="trials"):
        Design(X, Y, Y[:-1], response=Response("binomial"))
    with pytest.raises(DataFormatError, match="group"):
        Design(X, Y, group=Y[:-1])
    with pytest.raises(ParameterError, match="classes"):
        Design(X, Y, response=Response(classes=("1", "1.0")))
    with pytest.raises(ParameterError, match="threshold"):
        BinaryMatrix(X, threshold="half")


def test_damaged_sparse_structures_are_refused():
    matrix = scipy.sparse.csr_matrix(X)
    matrix.indptr[3] = 10**6
    with pytest.raises(DataFormatError, match="damaged"):
        Design(matrix, Y)


@pytest.mark.guarantees("silence")
def test_no_error_text_holds_a_private_value():
    secret = np.full((3, 2), 1234567.25)
    for bad in (secret[0], np.ma.masked_array(secret)):
        with pytest.raises(DataFormatError) as caught:
            Design(bad, Y[:3])
        assert "1234567" not in str(caught.value)
    assert "1234567" not in repr(Design(secret, Y[:3])) + repr(next(Design(secret, Y[:3]).chunks()).rows)


# ---------------------------------------------------------------- units and chunks


@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_persons_keep_their_rows_together_and_are_never_split(sparse_rows, form, monkeypatch):
    monkeypatch.setattr("dpvb.data.units.CHUNK_ENTRIES", 12)
    person = np.array(["p", "q", None, "p", "r", "q", "p", math.nan] * 5, dtype=object)
    source = Design(form(X), Y, group=person, sparse_rows=sparse_rows)
    assert source.unit == "person"
    assert source.count() == 3
    plain = rows(Design(X, Y))
    whose = ["p", "q", "r"]
    names = np.array([p if isinstance(p, str) else "nobody" for p in person])
    seen = 0
    for chunk in source.chunks():
        part = rows_of(chunk, source)
        for unit in range(chunk.num_units):
            own = plain[names == whose[seen]]
            np.testing.assert_allclose(part[chunk.unit_of_row == unit], own, rtol=1e-13)
            seen += 1
    assert seen == 3


def rows_of(chunk, source):
    class Once:
        width = source.width

        def chunks(self):
            return [chunk]

    return rows(Once())


@pytest.mark.parametrize("group", [None, np.arange(40) // 3])
@pytest.mark.parametrize("sparse_rows", [False, True])
def test_a_selection_is_the_rows_of_the_chosen_units(group, sparse_rows, monkeypatch):
    monkeypatch.setattr("dpvb.data.units.CHUNK_ENTRIES", 30)
    source = Design(X, Y, group=group, sparse_rows=sparse_rows, intercept=0.2)
    rng = np.random.default_rng(0)
    assert len([*source.chunks()]) > 2
    for chunk in source.chunks():
        units = rng.random(chunk.num_units) < 0.5
        chosen = chunk.select(units)
        assert chosen.num_units == units.sum()
        kept = units if group is None else units[chunk.unit_of_row]
        np.testing.assert_array_equal(rows_of(chosen, source), rows_of(chunk, source)[kept])
        if group is not None:
            assert set(chosen.unit_of_row) == set(range(units.sum()))
            again = chosen.select(np.arange(chosen.num_units) == 0)
            np.testing.assert_array_equal(rows_of(again, source), rows_of(chosen, source)[chosen.unit_of_row == 0])


def test_chunks_stay_small_whatever_the_form(monkeypatch):
    monkeypatch.setattr("dpvb.data.units.CHUNK_ENTRIES", 100)
    wide = scipy.sparse.random_array((50, 20), density=0.05, rng=np.random.default_rng(1), format="csr")
    assert max(chunk.rows.x_nd.size for chunk in Design(wide, np.zeros(50)).chunks()) <= 100 + 20
    assert sum(chunk.num_units for chunk in Design(wide, np.zeros(50), sparse_rows=True).chunks()) == 50
    assert len([*Design(wide, np.zeros(50), sparse_rows=True).chunks()]) == 1


@kills("sampler", "a drawn batch reads the whole chunk that is kept")
@edit(
    "data/units.py",
    "return Chunk(which[units], None, chosen, self.read)",
    "return Chunk(which[units], None, chosen, self.read, self.place, self.kept)",
)
@pytest.mark.parametrize("group", [None, np.arange(40) // 3])
def test_what_is_kept_between_passes_is_what_was_read(group, monkeypatch):
    """Whole chunks within the limit are read once; the rest, selections and parts are read each time; same bits."""
    monkeypatch.setattr("dpvb.data.units.CHUNK_ENTRIES", 30)
    monkeypatch.setattr("dpvb.data.tables.design.KEPT_ENTRIES", 70)
    source = Design(X, Y, group=group, intercept=0.2)
    first, second = ([chunk.rows for chunk in source.chunks()] for _ in range(2))
    assert len(first) > 3
    sizes = np.cumsum([one.x_nd[:, 1:].size for one in first])
    assert [one is two for one, two in zip(first, second, strict=True)] == list(sizes <= 70)
    for chunk in source.chunks():
        fresh = Design(X, Y, group=group, intercept=0.2)._dense_rows(chunk.which)
        np.testing.assert_array_equal(chunk.rows.x_nd, fresh.x_nd)
        units = np.arange(chunk.num_units) % 2 == 0
        kept = units if group is None else units[chunk.unit_of_row]
        np.testing.assert_array_equal(chunk.select(units).rows.x_nd, fresh.x_nd[kept])
    for part in source.parts(2):
        assert not any(chunk.rows is old for chunk in part.chunks() for old in first)
    with pytest.raises(ValueError, match="read-only"):
        first[0].x_nd[0] = 0.0


@kills("records", "rows in coordinates that were another step's")
@edit(
    "rows.py",
    "if last_function is function and np.array_equal(last_matrix, matrix):",
    "if known is function:",
)
def test_what_is_derived_is_formed_anew_for_another_matrix_or_function():
    calls = []

    def times(x_nd, matrix):
        calls.append(len(x_nd))
        return x_nd @ matrix

    def plus(x_nd, matrix):
        return x_nd + matrix

    [chunk] = Design(X, Y).chunks()
    x_nd, matrix = chunk.rows.x_nd, RNG.normal(size=(3, 3))
    for _ in range(3):
        np.testing.assert_array_equal(chunk.rows.derived(times, matrix), x_nd @ matrix)
    assert len(calls) == 1
    assert chunk.rows.derived(times, matrix.copy()) is chunk.rows.derived(times, matrix)
    np.testing.assert_array_equal(chunk.rows.derived(plus, matrix[0]), x_nd + matrix[0])
    before = chunk.rows.derived(times, matrix)
    matrix[0, 0] += 1.0  # in place: what is kept must not follow
    np.testing.assert_array_equal(chunk.rows.derived(times, matrix), x_nd @ matrix)
    assert chunk.rows.derived(times, matrix) is not before
    half = chunk.select(np.arange(40) < 20).rows
    np.testing.assert_array_equal(half.derived(times, matrix), x_nd[:20] @ matrix)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array], ids=["uint8", "csr"])
def test_no_copy_of_the_whole_data_in_float64(make, monkeypatch):
    monkeypatch.setattr("dpvb.data.units.CHUNK_ENTRIES", 2**14)
    monkeypatch.setattr("dpvb.data.tables.design.KEPT_ENTRIES", 2**15)
    data = make((np.random.default_rng(2).random((20_000, 100)) < 0.1).astype(np.uint8))
    y = np.zeros(20_000, dtype=np.uint8)
    tracemalloc.start()
    try:
        total = sum(float(chunk.rows.x_nd.sum()) for chunk in Design(data, y, max_row_norm=10).chunks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(data.sum() / 10)
    assert peak < 0.25 * 8 * 20_000 * 100


# ---------------------------------------------------------------- binary vectors


def binary_rows(source):
    return np.vstack([np.empty((0, source.width), np.float32), *(chunk.rows for chunk in source.chunks())])


@each("form", FORMS)
@each("dtype", ["?", "u1", "i8", "f4", "f8"])
def test_binary_vectors_of_every_form(form, dtype):
    bits = (np.random.default_rng(3).random((9, 4)) < 0.5).astype(dtype)
    out = binary_rows(BinaryMatrix(FORMS[form](bits)))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, bits)


@pytest.mark.parametrize("value", [0.5, -1, 2, math.nan, math.inf, -math.inf, 1 + 1e-12, 1e300])
def test_a_pixel_that_is_no_bit_silences_its_row(value):
    bits = np.eye(4)
    bits[2, 0] = value
    expected = np.eye(4)
    expected[2] = math.nan
    for form in (np.asarray, scipy.sparse.csr_array):
        np.testing.assert_array_equal(binary_rows(BinaryMatrix(form(bits))), expected)
    assert np.isnan(binary_rows(BinaryMatrix(bits, threshold=0.5))[2]).all() != math.isfinite(value)


@pytest.mark.parametrize("threshold", [0, 127, 127.5, -1])
def test_a_public_threshold_makes_bits(threshold):
    grey = np.random.default_rng(4).integers(0, 256, (30, 5), dtype=np.uint8)
    for form in (np.asarray, scipy.sparse.csr_array):
        np.testing.assert_array_equal(binary_rows(BinaryMatrix(form(grey), threshold=threshold)), grey > threshold)


def test_binary_vectors_by_person_and_none_at_all():
    bits = (np.random.default_rng(6).random((10, 3)) < 0.5) * 1
    source = BinaryMatrix(bits, group=[1, 2, 1, 3, 2, 1, 3, 3, 3, 9])
    assert (source.unit, source.count()) == ("person", 4)
    (chunk,) = source.chunks()
    np.testing.assert_array_equal(chunk.rows, bits[[0, 2, 5, 1, 4, 3, 6, 7, 8, 9]])
    np.testing.assert_array_equal(chunk.unit_of_row, [0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
    assert [chunk.num_units for chunk in BinaryMatrix(bits[:0]).chunks()] == [0]


# ---------------------------------------------------------------- through the wall


@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("by_person", [False, True])
def test_a_faulty_row_adds_nothing_to_a_release(sparse_rows, by_person):
    """Sums with faulty rows equal those without them to the last bit, and nothing but finite numbers comes out."""
    block = Block((4,), 1.0)

    def scores(batch):
        if not sparse_rows:
            return {"s": Rows(batch.x_nd * (batch.y_n - 0.25)[:, None])}
        residual = np.repeat(batch.y_n - 0.25, np.diff(batch.indptr))
        return {"s": SparseRows(batch.indptr, batch.indices, batch.values * residual)}

    def total(x, y, person):
        source = Design(x, y, intercept=0.5, sparse_rows=sparse_rows, group=person if by_person else None)
        plan = Plan([Release({"s": block}, Mechanism(FullBatch(), 0.0))], unit=source.unit)
        return Wall(source, plan).release(scores, plan.releases[0]).total["s"]

    x, y, person = X.copy(), Y.astype(float), np.arange(40) // 4
    x[3, 0], x[10, 2], x[11], y[20], y[21] = math.nan, math.inf, math.nan, 2, math.nan
    sound = ~np.isin(np.arange(40), [3, 10, 11, 20, 21])
    found = total(x, y, person)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, total(x[sound], y[sound], person[sound]))
    assert np.abs(found).max() > 0.1


@pytest.mark.parametrize("caps", [{"max_trials": 0}, {"max_count": 2.5}, {"kind": "probit"}, {"max_trials": math.nan}])
def test_what_a_response_may_be_is_checked_in_one_place(caps):
    """A likelihood is bounded by the caps of its response, and refuses what that refuses, in the same words."""
    said = []
    for kind in (Response, Likelihood):
        with pytest.raises(ParameterError) as caught:
            kind(**caps)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert Likelihood.of(Response("binomial", max_trials=4)) == Likelihood("binomial", max_trials=4.0)
