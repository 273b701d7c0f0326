"""Documents: every form of the same corpus gives the same rows, and a faulty record is an empty one."""

from __future__ import annotations

import ast
import gzip
import itertools
import json
import math
import os
import re
import sys
import tracemalloc
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

import dpvb.data
from dpvb.audit.readers import units_of
from dpvb.data import BagOfWords, Design, Stream, as_source, check_vocabulary, in_memory, open_documents
from dpvb.data.documents.count_rows import MAX_COUNT, MIN_COUNT, clean, taken
from dpvb.data.slabs import Slab
from dpvb.data.tables.numbers import Numbers
from dpvb.errors import DataFormatError, ParameterError

WORDS = ("red", "green", "blue", "gold", "grey")
TEXTS = ("Red red, GREEN!", "nothing known", "blue\tgold blue-blue", "", "grey", 'said "red", gold\nand blue')
COUNTS = np.array(
    [[2, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 3, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [1, 0, 1, 1, 0]], dtype=float
)


def table(source):
    """All rows of a source, dense, in the source's order."""
    return np.vstack([np.zeros((0, source.width)), *(chunk.rows.csr().toarray() for chunk in source.chunks())])


def persons(source):
    """The total of each person's rows, as a sorted list."""
    totals = []
    for chunk in source.chunks():
        dense = chunk.rows.csr().toarray()
        for unit in range(chunk.num_units):
            totals.append(tuple(dense[chunk.unit_of_row == unit].sum(axis=0)))
    return sorted(totals)


def damaged_csr(rows):
    """A CSR matrix with whatever ids and values, as arrays set after construction."""
    matrix = scipy.sparse.csr_matrix((len(rows), 5))
    matrix.indptr = np.cumsum([0, *map(len, rows)])
    matrix.indices = np.array([word for row in rows for word, _ in row], dtype=np.int64)
    matrix.data = np.array([value for row in rows for _, value in row], dtype=float)
    return matrix


# ---------------------------------------------------------------- cleaning

HOSTILE = [math.nan, math.inf, -math.inf, -1.0, -1e-300, -1e308]
values = st.one_of(
    st.integers(0, 9).map(float),
    st.sampled_from([0.5, -0.0, 5e-324, 1e-310, MIN_COUNT, MAX_COUNT, 1e300, 1.7e308, *HOSTILE]),
    st.floats(allow_nan=True, allow_infinity=True),
)
entries = st.lists(st.tuples(st.integers(-3, 9) | st.sampled_from([2**31, 2**62, -(2**63)]), values), max_size=7)


def clean_by_hand(row, width):
    if any(math.isnan(value) or math.isinf(value) or value < 0 for _, value in row):
        return {}
    total = defaultdict(float)
    for word, value in row:
        if 0 <= word < width and value >= MIN_COUNT:
            total[word] += min(value, MAX_COUNT)
    return {word: min(value, MAX_COUNT) for word, value in total.items()}


@settings(max_examples=200, deadline=None)
@given(st.lists(entries, max_size=6), st.integers(1, 6))
def test_cleaning_equals_the_table_of_rules(rows, width):
    cleaned = clean(
        Slab(
            np.cumsum([0, *map(len, rows)]),
            np.array([word for row in rows for word, _ in row], dtype=np.int64),
            np.array([value for row in rows for _, value in row]),
        ),
        width,
    )
    assert cleaned.num_rows == len(rows)
    for n, row in enumerate(rows):
        span = slice(cleaned.indptr[n], cleaned.indptr[n + 1])
        expected = clean_by_hand(row, width)
        assert cleaned.indices[span].tolist() == sorted(expected)
        np.testing.assert_allclose(cleaned.counts[span], [expected[w] for w in sorted(expected)], rtol=1e-15)


@settings(max_examples=60, deadline=None)
@given(st.lists(entries, min_size=1, max_size=8), st.data())
def test_a_faulty_row_affects_itself_alone(rows, data):
    victim = data.draw(st.integers(0, len(rows) - 1))
    broken = [[*row, (0, math.nan)] if n == victim else row for n, row in enumerate(rows)]
    emptied = [[] if n == victim else row for n, row in enumerate(rows)]
    np.testing.assert_array_equal(table(BagOfWords(damaged_csr(broken))), table(BagOfWords(damaged_csr(emptied))))


FORMS = {
    "dense": lambda x: x,
    "fortran": np.asfortranarray,
    "csr": scipy.sparse.csr_matrix,
    "csr_array": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
}


@each("form", FORMS.values(), ids=FORMS)
@each("value", HOSTILE)
def test_hostile_counts_empty_their_document_silently(form, value, capfd, caplog):
    broken, emptied = COUNTS.copy(), COUNTS.copy()
    broken[2, 3] = value
    emptied[2] = 0
    np.testing.assert_array_equal(table(BagOfWords(form(broken))), emptied)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


NUMBER_TYPES = ("?", "i1", "u8", "f4", "longdouble", "f2", ">f8")
TYPED_FORMS = [(f, d) for f in FORMS for d in NUMBER_TYPES if f in ("dense", "fortran") or d not in ("f2", ">f8")]


@each(("form", "dtype"), TYPED_FORMS)
def test_every_form_and_number_type_gives_the_same_rows(form, dtype):
    expected = (COUNTS > 0).astype(float) if dtype == "?" else COUNTS
    np.testing.assert_array_equal(table(BagOfWords(FORMS[form](COUNTS.astype(dtype)))), expected)


def test_long_double_beyond_float64_is_silent():
    counts = np.ones((2, 3), dtype=np.longdouble)
    counts[0, 0] = np.longdouble("1e4000")
    np.testing.assert_array_equal(table(BagOfWords(counts)), [[0, 0, 0], [1, 1, 1]])


@kills("public facts", "width of the vocabulary from the data")
@edit(
    "data/documents/bag_of_words.py",
    "    width = int(matrix.shape[1])\n",
    "    width = int(max(matrix.nonzero()[1], default=0)) + 1\n",
)
def test_the_width_is_that_of_the_matrix_whatever_words_occur():
    for form in ("dense", "csr_array", "csc"):
        for counts in (np.eye(2, 5), np.zeros((2, 5))):
            assert BagOfWords(FORMS[form](counts)).width == 5


def test_structures_that_lie_are_read_safely():
    matrix = damaged_csr([[(3, 1.0), (0, 2.0), (3, 4.0)], [(-1, 7.0), (10**12, 7.0), (4, 1.0)], [(5, 9.0)]])
    matrix.has_canonical_format = True
    expected = [[2, 0, 0, 5, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(table(BagOfWords(matrix)), expected)
    transposed = scipy.sparse.csc_array((3, 5))
    transposed.indptr = np.array([0, 3, 3, 3, 3, 4])
    transposed.indices = np.array([0, 99, -7, 1])
    transposed.data = np.array([2.0, 3.0, 4.0, 1.0])
    np.testing.assert_array_equal(table(BagOfWords(transposed)), [[2, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])


def test_the_source_keeps_its_own_copy():
    matrix = scipy.sparse.csr_array(COUNTS)
    source = BagOfWords(matrix)
    matrix.data[:] = 1000.0
    np.testing.assert_array_equal(table(source), COUNTS)


def test_an_empty_corpus_is_a_corpus():
    for source in (BagOfWords(np.zeros((0, 3))), BagOfWords(np.zeros((0, 3)), group=[]), Stream(list, 3)):
        assert source.count() == 0
        assert [chunk.num_units for chunk in source.chunks()] == [0]


# ---------------------------------------------------------------- chunks


def test_chunks_are_bounded_and_complete(monkeypatch):
    monkeypatch.setattr("dpvb.kernels.spans.MAX_ROWS", 100)
    monkeypatch.setattr("dpvb.data.documents.bag_of_words.MAX_ENTRIES", 400)
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, (1000, 20)).astype(float)
    counts[500:600] = rng.poisson(3.0, (100, 20))
    counts[700:900] = 0
    source = BagOfWords(counts)
    chunks = list(source.chunks())
    assert max(chunk.num_units for chunk in chunks) == 100
    assert max(len(chunk.rows.counts) for chunk in chunks) <= 400
    np.testing.assert_array_equal(table(source), counts)
    np.testing.assert_array_equal(table(Stream(lambda: [counts], 20)), counts)


def test_one_long_document_is_a_chunk_of_its_own(monkeypatch):
    monkeypatch.setattr("dpvb.data.documents.bag_of_words.MAX_ENTRIES", 3)
    counts = np.eye(6)
    counts[2] = 1.0
    assert [chunk.num_units for chunk in BagOfWords(counts).chunks()] == [2, 1, 3]
    np.testing.assert_array_equal(table(BagOfWords(counts)), counts)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40))
def test_selection_keeps_exactly_the_chosen_units(rows):
    group = [person for person, _ in rows]
    counts = np.arange(1.0, 1 + 2 * len(rows)).reshape(-1, 2)
    units = list(dict.fromkeys(group))
    chosen = dict(rows)
    for source, mask, kept in (
        (BagOfWords(counts), [w for _, w in rows], [w for _, w in rows]),
        (BagOfWords(counts, group=group), [chosen[u] for u in units], [chosen[g] for g in group]),
    ):
        for chunk in source.chunks():
            selected = chunk.select(np.array(mask, dtype=bool))
            assert selected.num_units == sum(mask)
            found = selected.rows.csr().toarray()
            assert sorted(map(tuple, found)) == sorted(map(tuple, counts[np.array(kept, dtype=bool)]))
            if selected.unit_of_row is not None:
                assert sorted(set(selected.unit_of_row.tolist())) == list(range(selected.num_units))


# ---------------------------------------------------------------- persons


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["ann", "bob", 7, 7.5, ("x", 1), None, math.nan]), max_size=30), st.integers(1, 9))
def test_groups_bring_a_persons_rows_together(group, max_rows):
    counts = np.arange(1.0, 1 + 3 * len(group)).reshape(-1, 3)
    total = defaultdict(lambda: np.zeros(3))
    for person, row in zip(group, counts, strict=True):
        if person is not None and person == person:
            total[person] += row
    source = BagOfWords(counts, group=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpvb.kernels.spans.MAX_ROWS", max_rows)
        assert persons(source) == sorted(map(tuple, total.values()))
        for chunk in source.chunks():
            assert np.all(np.diff(chunk.unit_of_row) >= 0)
            assert chunk.rows.num_rows <= max_rows or chunk.num_units == 1
    assert source.count() == len(total)
    assert source.unit == "person"


def test_a_grouped_source_is_not_grouped_again():
    source = BagOfWords(COUNTS, group=[1, 1, 2, 2, 3, 3])
    assert in_memory(source) is source
    assert as_source(source, vocabulary=WORDS) is source
    with pytest.raises(ParameterError, match="already grouped"):
        as_source(source, group=[1] * 6)


def test_groups_keep_the_order_of_a_persons_rows():
    number = np.arange(1.0, 301.0)
    source = BagOfWords(number[:, None], group=number % 3)
    expected = np.concatenate([number[0::3], number[1::3], number[2::3]])
    np.testing.assert_array_equal(table(source)[:, 0], expected)


@pytest.mark.parametrize("missing", [None, math.nan, [1, 2], ([],)])
def test_rows_of_nobody_are_no_unit(missing):
    counts = np.arange(12.0).reshape(4, 3) + 1
    source = BagOfWords(counts, group=["a", missing, "a", missing])
    assert persons(source) == [tuple(counts[0] + counts[2])]
    assert source.count() == 1


def test_group_takes_arrays_and_series():
    import pandas as pd

    ids = [3, 1, 3, 1, 1, 2]
    expected = persons(BagOfWords(COUNTS, group=ids))
    for group in (np.array(ids), pd.Series(ids, index=range(10, 16)), map(str, ids), np.array(ids, dtype=float)):
        assert persons(BagOfWords(COUNTS, group=group)) == expected
    assert persons(as_source(Stream(lambda: [COUNTS], 5), group=ids)) == expected
    with_missing = pd.Series([1, None, 1, None, 2, 2], dtype="Int64")
    assert BagOfWords(COUNTS, group=with_missing).count() == 2


@pytest.mark.parametrize(
    "grouped",
    [
        lambda group: BagOfWords(COUNTS, group=group),
        lambda group: in_memory(BagOfWords(COUNTS), group=group),
        lambda group: Design(COUNTS, [0] * 6, group=group),
        lambda group: Numbers(COUNTS, group=group),
        lambda group: Numbers(COUNTS, group=group).cut(2),
        lambda group: Numbers(COUNTS, group=group).cut(2).cut(3),
        lambda group: Numbers(COUNTS, group=group).parts(2)[0],
        lambda group: Numbers(COUNTS, group=group).cut(2).parts(2)[1],
    ],
)
def test_group_takes_what_can_be_read_only_once(grouped):
    group = ["b", "a", None, "a", "c", "b"]
    assert units_of(grouped(iter(group))) == units_of(grouped(person for person in group)) == units_of(grouped(group))


@pytest.mark.parametrize("group", [[1] * 5, [1] * 7, np.ones((6, 1, 1)), "abcdef", 3])
def test_a_wrong_group_is_refused_without_numbers(group):
    with pytest.raises(DataFormatError, match="group") as caught:
        BagOfWords(COUNTS, group=group)
    assert not any(character.isdigit() for character in str(caught.value))


# ---------------------------------------------------------------- public faults


@pytest.mark.parametrize(
    "counts",
    [
        np.ones(5),
        np.ones((2, 2, 2)),
        np.ones((3, 0)),
        np.ma.masked_array(np.ones((2, 2)), mask=[[True, False]] * 2),
        [[1, 2], [3, 4]],
        ["a text"],
        "a text",
        None,
        3,
        scipy.sparse.lil_matrix((2, 2)),
        scipy.sparse.dok_array((2, 2)),
        scipy.sparse.bsr_array(np.ones((2, 2))),
        scipy.sparse.dia_array(np.eye(2)),
        scipy.sparse.coo_array(np.ones(4)),
    ],
)
def test_what_is_not_a_matrix_is_refused(counts):
    with pytest.raises(DataFormatError):
        BagOfWords(counts)


NO_MATRICES = {
    "no columns": lambda n: np.zeros((n, 0)),
    "no columns, sparse": lambda n: scipy.sparse.csr_array((n, 0)),
    "no columns, frame": lambda n: pd.DataFrame(index=range(n)),
    "lists without cells": lambda n: [[]] * n,
    "three dimensions": lambda n: np.zeros((n, 2, 2)),
    "one dimension": np.zeros,
    "one dimension of objects": lambda n: np.full(n, None),
    "texts": lambda n: ["red"] * n,
    "masked": lambda n: np.ma.masked_all((n, 2)),
    "another format": lambda n: scipy.sparse.lil_array((n, 2)),
}


@each("form", NO_MATRICES)
@each("door", [BagOfWords, as_source, Numbers, lambda X: Design(X, [0] * 5)])
def test_errors_do_not_tell_the_number_of_rows(form, door):
    said = []
    for num_rows in (5, 6):
        with pytest.raises(DataFormatError) as caught:
            door(NO_MATRICES[form](num_rows))
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "indptr",
    [
        [0, 2, 1, 3],
        [1, 1, 2, 3],
        [0, 1, 3],
        [0, 1, 2, 9],
        [0, 1, 2, 3, 3],
        [0.0, 1.0, 2.0, 3.0],
        [],
        [0, 1, 2**63 - 1, -(2**63)],
        [0, 2**63, 2**64 - 1, 3],
    ],
)
def test_undefined_rows_are_refused_without_values(indptr):
    matrix = scipy.sparse.csr_matrix(np.eye(3) * 0.1234567)
    matrix.indptr = np.array(indptr)
    with pytest.raises(DataFormatError, match=r"damaged|integer") as caught:
        BagOfWords(matrix)
    assert "0.123" not in str(caught.value)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (None, "Three ways out"),
        ((), "at least one"),
        (("a", "b", "a"), "'a' as word 1 and as word 3"),
        (("a", "", "c"), "word 2"),
        (("a", 3, "c"), "got 3"),
        (("a", "b"), "3 columns but vocabulary holds 2"),
        ({"a": 0, "b": 2, "c": 2}, "exactly once"),
        ({"a": 1, "b": 2, "c": 3}, "exactly once"),
        ({"a": 0, "b": None, "c": "x"}, "exactly once"),
        (17, "got int"),
        ("no_such_file.txt", "cannot be read"),
    ],
)
def test_a_faulty_vocabulary_is_named(vocabulary, message):
    with pytest.raises(DataFormatError, match=message):
        check_vocabulary(vocabulary, width=3)
    if vocabulary is not None:
        with pytest.raises(DataFormatError, match=message):
            BagOfWords(np.ones((2, 3)), vocabulary=vocabulary)


def test_vocabulary_forms_agree(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(WORDS).encode() + b"\r\n\r\n")
    packed = tmp_path / "words.txt.gz"
    packed.write_bytes(gzip.compress("\n".join(WORDS).encode()))
    mapping = {word: np.int64(WORDS.index(word)) for word in sorted(WORDS)}
    for form in (list(WORDS), np.array(WORDS), mapping, path, str(packed), iter(WORDS)):
        assert check_vocabulary(form) == WORDS
    path.write_text("red\n\nblue\n")
    with pytest.raises(DataFormatError, match="word 2"):
        check_vocabulary(path)
    path.write_bytes(b"red\n\xff\n")
    with pytest.raises(DataFormatError, match="UTF-8"):
        check_vocabulary(path)


def test_an_iterator_that_ends_is_refused():
    generator = (np.ones((1, 2)) for _ in range(3))
    with pytest.raises(ParameterError, match="generator function"):
        Stream(lambda: generator, 2)


def test_a_stream_of_another_width_is_refused():
    with pytest.raises(DataFormatError, match="width=3"):
        in_memory(Stream(lambda: [np.ones((1, 2))], 3))


def test_reprs_tell_public_facts_only():
    source = BagOfWords(np.full((12347, 2), 0.1234567))
    chunk = next(source.chunks())
    shown = " ".join(map(repr, (source, chunk, chunk.rows, Stream(lambda: [np.ones((12347, 2))], 2))))
    assert "width=2" in shown
    assert not any(secret in shown for secret in ("12347", "8192", "0.123"))


# ---------------------------------------------------------------- texts


def test_texts_are_counted_as_scikit_learn_counts_them():
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(vocabulary=WORDS, token_pattern="[a-z]+")
    matrix = vectorizer.transform(TEXTS)
    np.testing.assert_array_equal(matrix.toarray(), COUNTS)
    for source in (
        BagOfWords(matrix, vocabulary=vectorizer.vocabulary),
        BagOfWords.from_texts(TEXTS, vocabulary=WORDS),
        as_source(list(TEXTS), vocabulary=WORDS),
        as_source(np.array(TEXTS), vocabulary=WORDS),
        as_source(np.array(TEXTS, dtype=object), vocabulary=WORDS),
        as_source(matrix),
    ):
        np.testing.assert_array_equal(table(source), COUNTS)


def test_token_pattern_is_an_option():
    source = BagOfWords.from_texts(["r2d2 R2D2 red"], vocabulary=["r2d2", "red"], token_pattern=r"\b\w+\b")
    np.testing.assert_array_equal(table(source), [[2, 1]])
    for faulty in ("[", "(a)(b)", 3):
        with pytest.raises(ParameterError, match="token_pattern"):
            BagOfWords.from_texts(["a"], vocabulary=["a"], token_pattern=faulty)


def test_items_that_are_no_text_are_empty_documents():
    texts = ["red", None, 3, math.nan, [3], b"\xff red", "gold", "\ud800 blue"]
    source = as_source(texts, vocabulary=WORDS)
    assert table(source).sum(axis=1).tolist() == [1, 0, 0, 0, 0, 0, 1, 1]


class Loud(str):
    """A text whose own methods speak."""

    @property
    def __class__(self):
        pytest.fail("a private object was asked for its class")

    def lower(self):
        pytest.fail("a method of a private object was called")

    encode = __str__ = __iter__ = lower


class LoudBytes(bytes):
    """Bytes whose own methods speak."""

    def decode(self, *how):
        pytest.fail("a method of a private object was called")


@pytest.mark.parametrize("form", [list, tuple, iter, lambda texts: np.array(texts, dtype=object)])
def test_texts_are_read_without_methods_of_their_own(form):
    source = BagOfWords.from_texts(form([Loud("Red"), LoudBytes(b"Red"), "red"]), vocabulary=WORDS)
    assert table(source).sum(axis=1).tolist() == [1, 1, 1]


FRAME = pd.DataFrame({"red": ["red", "gold", "red"]})


@pytest.mark.parametrize(
    "texts",
    [
        FRAME,
        FRAME.to_numpy(),
        np.array("red"),
        pa.Table.from_pandas(FRAME),
        pa.RecordBatch.from_pandas(FRAME),
        np.ma.masked_array(["red", "gold"], mask=[True, False]),
        scipy.sparse.csr_matrix(COUNTS),
        {"red": ["red"]},
        "red",
        b"red",
        3,
    ],
)
def test_texts_that_are_no_list_are_refused(texts):
    """A frame would be read as the names of its columns, an array of two dimensions as no text at all."""
    with pytest.raises(ParameterError, match="texts must"):
        BagOfWords.from_texts(texts, vocabulary=WORDS)


row_of_counts = st.lists(st.sampled_from([0, 1, 2.5, -1, None, "n/k", "3", [1], math.nan]), max_size=4)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
@pytest.mark.parametrize("form", ["array", "series"])
@given(own=st.one_of(row_of_counts, st.sampled_from([None, "red", b"red", 3, math.nan])), place=st.integers(0, 4))
def test_rows_of_counts_of_several_lengths_are_counts(kind, form, own, place):
    """NumPy has two dimensions where all rows are of one length, and one where a single one is not."""
    rows = [kind([1, 0, 2]), kind([0, 3, 0]), kind([0, 0, 1]), kind([4, 4, 4])]

    def sources(its):
        cells = np.empty(len(its), dtype=object)
        cells[:] = [*its]
        held = cells if form == "array" else pd.Series(cells)
        yield from (as_source(held), as_source(held, vocabulary=["a", "b", "c"]), BagOfWords(held))
        yield in_memory(Stream(lambda: [held], 3))

    for fewer, more in zip(sources(rows), sources([*rows[:place], own, *rows[place:]]), strict=True):
        assert repr(fewer) == repr(more)
        before, after = units_of(fewer), units_of(more)
        assert after.total() == 5
        assert before.total() == 4
        assert not before - after


@given(
    others=st.lists(st.sampled_from(["red", None, "gold red", 3]), min_size=3, max_size=5),
    own=st.one_of(row_of_counts, st.just(np.ones(3)), st.just((3, "4"))),
)
def test_a_list_of_numbers_among_texts_is_an_empty_document(others, own):
    cells = np.empty(len(others) + 1, dtype=object)
    cells[:] = [*others, own]
    found = table(as_source(cells, vocabulary=WORDS))
    np.testing.assert_array_equal(found, [*table(as_source(others, vocabulary=WORDS)), [0] * len(WORDS)])


@pytest.mark.parametrize("texts", [["a b"], ("a b",), np.array(["a b"]), np.array(["a"], dtype=object)])
def test_text_without_a_vocabulary_gets_three_ways_out(texts):
    with pytest.raises(DataFormatError, match=r"\(1\).*\(2\).*\(3\)"):
        as_source(texts)


# ---------------------------------------------------------------- files


def write_npz(path, counts):
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(counts))


def write_npz_plain(path, counts):
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(counts.astype(np.int8)), compressed=False)


def write_mtx(path, counts):
    scipy.io.mmwrite(path, scipy.sparse.csr_matrix(counts), comment="a comment", precision=17)


def write_mtx_by_columns(path, counts):
    column, row = np.nonzero(counts.T)
    lines = [f"{n + 1} {v + 1} {counts[n, v]:.17g}" for n, v in zip(row, column, strict=True)]
    shape = f"{counts.shape[0]} {counts.shape[1]} {len(lines)}"
    path.write_text("\n".join(["%%MatrixMarket matrix coordinate real general", "%", shape, *lines]))


def write_docword(path, counts):
    row, column = np.nonzero(counts)
    lines = [f"{n + 1} {v + 1} {counts[n, v]:g}" for n, v in zip(row, column, strict=True)]
    path.write_text("\n".join([*map(str, counts.shape), str(len(lines)), *lines, ""]))


def write_lda_c(path, counts):
    rows = [" ".join(f"{v}:{row[v]:g}" for v in np.flatnonzero(row)) for row in counts]
    path.write_text("".join(f"{np.count_nonzero(row)} {text}\n" for row, text in zip(counts, rows, strict=True)))


COUNT_FILES = {
    "x.npz": write_npz,
    "plain.npz": write_npz_plain,
    "x.mtx": write_mtx,
    "by_columns.mtx": write_mtx_by_columns,
    "docword.x.txt": write_docword,
    "x.dat": write_lda_c,
    "x.ldac": write_lda_c,
}


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts))


def write_csv(path, texts):
    import csv

    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([n, text] for n, text in enumerate(texts))])


def write_parquet(path, texts):
    import pandas as pd

    pd.DataFrame({"id": range(len(texts)), "text": list(texts)}).to_parquet(path)


def write_lines(path, texts):
    path.write_text("".join(text.replace("\n", " ") + "\n" for text in texts))


def write_folder(path, texts):
    for n, text in enumerate(texts):
        (path / f"part{n // 3}").mkdir(parents=True, exist_ok=True)
        (path / f"part{n // 3}" / f"{n:05}.txt").write_text(text)


TEXT_FILES = {
    "x.jsonl": write_jsonl,
    "x.csv": write_csv,
    "x.parquet": write_parquet,
    "x.txt": write_lines,
    "folder": write_folder,
}


@pytest.fixture(params=[True, False], ids=["stream", "held"])
def stream(request):
    return request.param


@pytest.mark.parametrize("name", COUNT_FILES)
def test_files_of_counts_round_trip(tmp_path, name, stream):
    COUNT_FILES[name](tmp_path / name, COUNTS)
    source = open_documents(tmp_path / name, vocabulary=WORDS, stream=stream)
    for _ in range(2):
        np.testing.assert_array_equal(table(source), COUNTS)
    assert source.count() == len(COUNTS)
    assert source.vocabulary == WORDS


@pytest.mark.parametrize("name", TEXT_FILES)
def test_files_of_text_round_trip(tmp_path, name, stream):
    TEXT_FILES[name](tmp_path / name, TEXTS)
    source = open_documents(tmp_path / name, vocabulary=WORDS, stream=stream)
    for _ in range(2):
        np.testing.assert_array_equal(table(source), COUNTS)
    assert source.count() == len(TEXTS)


@pytest.mark.parametrize("name", ["x.mtx", "docword.x.txt", "x.dat", "x.jsonl", "x.csv", "x.txt"])
def test_gzipped_files_round_trip(tmp_path, name, stream):
    plain = tmp_path / name
    (COUNT_FILES | TEXT_FILES)[name](plain, COUNTS if name in COUNT_FILES else TEXTS)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    np.testing.assert_array_equal(table(open_documents(packed, vocabulary=WORDS, stream=stream)), COUNTS)
    if not stream:
        packed.write_bytes(packed.read_bytes()[:-9])
        with pytest.raises(DataFormatError, match="cannot be read"):
            open_documents(packed, vocabulary=WORDS)


@pytest.mark.parametrize("name", COUNT_FILES)
def test_large_files_of_counts_round_trip(tmp_path, name, monkeypatch):
    monkeypatch.setattr("dpvb.data.readable.BLOCK_BYTES", 1000)
    monkeypatch.setattr("dpvb.kernels.spans.MAX_ROWS", 64)
    monkeypatch.setattr("dpvb.data.documents.matrix_files.MAX_ROWS", 64)
    counts = np.random.default_rng(1).poisson(0.1, (1500, 30)).astype(float)
    counts[200:900:2] = 0
    counts[1400:] = 0
    COUNT_FILES[name](tmp_path / name, counts)
    source = open_documents(tmp_path / name, width=30, stream=True)
    np.testing.assert_array_equal(table(source), counts)
    assert max(chunk.num_units for chunk in source.chunks()) <= 64


@kills("readers", "one document as deep as the parser goes ends a file of JSON lines")
@edit("data/documents/files.py", "except (ValueError, RecursionError):", "except ValueError:")
@each(
    ("name", "content", "emptied"),
    [
        ("x.jsonl", b'{"text": "red"\n', [1]),
        ("x.jsonl", b'{"txt": "red"}\n', [1]),
        ("x.jsonl", b'{"text": [3]}\n', [1]),
        ("x.jsonl", b'{"text": null}\n', [1]),
        ("x.jsonl", b'["text", "red"]\n', [1]),
        ("x.jsonl", b'{"text": "red \xff"}\n', [1]),
        ("x.jsonl", b'{"text": ' + b"9" * 5000 + b"}\n", [1]),
        ("x.jsonl", b"[" * 100_000 + b"\n", [1]),
        ("x.csv", b"1\n", [1]),
        ("x.csv", b"1,red,green\n", [1]),
        ("x.csv", b"1,red \xff\n", [1]),
        ("x.csv", b'1,"red",\n', [1]),
        ("x.csv", b"1\r,red\r,\n", [1]),
        ("x.txt", b"red \xff\n", [1]),
        ("x.dat", b"2 0:1\n", [1]),
        ("x.dat", b"1 0:1 1:1\n", [1]),
        ("x.dat", b"1 0:x\n", [1]),
        ("x.dat", b"1 0:nan\n", [1]),
        ("x.dat", b"1 0:-3\n", [1]),
        ("x.dat", b"1 0:1e999\n", [1]),
        ("x.dat", b"1 99:1\n", [1]),
        ("x.dat", b"1 -1:1\n", [1]),
        ("x.dat", b"1 " + b"9" * 400 + b":1\n", [1]),
        ("x.dat", b"x\n", [1]),
        ("x.dat", b"\xff\n", [1]),
        ("x.dat", b"1 0 1\n", [1]),
    ],
)
def test_a_malformed_record_is_an_empty_document(tmp_path, name, content, emptied, stream, capfd, caplog):
    """The good records around it are untouched, and nothing is said."""
    good = {"x.jsonl": b'{"text": "gold"}\n', "x.csv": b"5,gold\n", "x.txt": b"gold\n", "x.dat": b"1 3:1\n"}[name]
    head = b"id,text\n" if name == "x.csv" else b""
    (tmp_path / name).write_bytes(head + good + content + good)
    source = open_documents(tmp_path / name, vocabulary=WORDS, stream=stream)
    gold = [0, 0, 0, 1, 0]
    np.testing.assert_array_equal(table(source), [gold, *([0] * 5 for _ in emptied), gold])
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@each("in_order", [True, False])
@each("name", ["x.mtx", "docword.x.txt"])
@each(
    ("line", "empties"),
    [
        (b"2 1 nan", True),
        (b"2 1 inf", True),
        (b"2 1 1e999", True),
        (b"2 1 -1", True),
        (b"2 1 x", True),
        (b"2 6 1", False),
        (b"2 0 1", False),
        (b"2 -1 1", False),
        (b"2 1.5 1", False),
        (b"2 1e300 1", False),
        (b"2 nan 1", False),
        (b"4 1 nan", False),
        (b"0 1 nan", False),
        (b"-2 1 nan", False),
        (b"99999999999999999999 1 nan", False),
        (b"x 1 1", False),
        (b"2 1", False),
        (b"2 1 1 1", False),
        (b"2 1 1 % a comment", False),
        (b"", False),
        (b"\xff\x00", False),
        (b"9" * 5000, False),
    ],
)
def test_a_malformed_triple_affects_its_document_at_most(tmp_path, name, line, empties, in_order, monkeypatch):
    monkeypatch.setattr("dpvb.data.readable.BLOCK_BYTES", 2000)
    head = b"%%MatrixMarket matrix coordinate real general\n3 5 4\n" if name == "x.mtx" else b"3\n5\n4\n"
    lines = [b"1 1 2", b"2 4 1", line, b"2 5 1", b"3 3 4"]
    if not in_order:
        lines.reverse()
    (tmp_path / name).write_bytes(head + b"\n".join(lines) + b"\n")
    middle = [0, 0, 0, 0, 0] if empties else [0, 0, 0, 1, 1]
    expected = [[2, 0, 0, 0, 0], middle, [0, 0, 4, 0, 0]]
    np.testing.assert_array_equal(table(open_documents(tmp_path / name, stream=True)), expected)


@pytest.mark.parametrize("end", [b"4 1 7\n", b"4 1 7\n9 1 7\n", b"4 1 nan"])
def test_triples_beyond_the_declared_rows_are_dropped(tmp_path, end, stream):
    (tmp_path / "docword.x.txt").write_bytes(b"3\n5\n3\n1 1 2\n3 5 1\n" + end)
    source = open_documents(tmp_path / "docword.x.txt", stream=stream)
    np.testing.assert_array_equal(table(source), [[2, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.txt"])
def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path, name, stream):
    TEXT_FILES[name](tmp_path / name, [text.replace("\n", " ") for text in TEXTS])
    content = (tmp_path / name).read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
    if name == "x.csv":  # the text column comes first, where the mark would stick to its name
        rows = [f'"{text}",1'.replace('said "red"', 'said ""red""').replace("\n", " ") for text in TEXTS]
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["text,id", *rows]).encode())
    source = open_documents(tmp_path / name, vocabulary=WORDS, stream=stream)
    np.testing.assert_array_equal(table(source), COUNTS)


def test_hostile_parquet_records_are_empty(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    invalid = pa.array([b"red", b"red \xff", b"gold"]).cast(pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": invalid, "who": invalid}), tmp_path / "x.parquet")
    source = open_documents(tmp_path / "x.parquet", vocabulary=WORDS)
    np.testing.assert_array_equal(table(source).sum(axis=1), [1, 0, 1])
    grouped = open_documents(tmp_path / "x.parquet", vocabulary=WORDS, group_column="who")
    assert grouped.count() == 2
    pq.write_table(
        pa.table({"text": pa.array(["red", None]), "when": pa.array([0, 1], pa.timestamp("ns"))}),
        tmp_path / "y.parquet",
    )
    np.testing.assert_array_equal(table(open_documents(tmp_path / "y.parquet", vocabulary=WORDS)).sum(axis=1), [1, 0])
    dates = open_documents(tmp_path / "y.parquet", vocabulary=WORDS, text_column="when")
    np.testing.assert_array_equal(table(dates), np.zeros((2, 5)))
    with pytest.raises(DataFormatError, match=r"\.parquet"):
        open_documents(tmp_path / "y.parquet", vocabulary=WORDS, text_column="nothing")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x.parquet", TEXTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataFormatError, match=r"pip install '\.\[arrow\]'"):
        open_documents(tmp_path / "x.parquet", vocabulary=WORDS)


def test_documents_beyond_the_longest_are_empty(tmp_path, monkeypatch, stream):
    for module in ("readable", "documents.files", "csv_files"):
        monkeypatch.setattr(f"dpvb.data.{module}.MAX_DOCUMENT_BYTES", 1000)
    texts = ["gold", "red " * 2100, "red " * 200, "gold"]
    for name in ("x.jsonl", "x.csv", "x.txt", "folder"):
        TEXT_FILES[name](tmp_path / name, texts)
        source = open_documents(tmp_path / name, vocabulary=WORDS, stream=stream)
        assert table(source).sum(axis=1).tolist() == [1, 0, 200, 1], name


def test_a_long_csv_field_is_read_whole(tmp_path):
    write_csv(tmp_path / "x.csv", ["red " * 50_000, "gold"])
    assert table(open_documents(tmp_path / "x.csv", vocabulary=WORDS)).sum(axis=1).tolist() == [50_000, 1]


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_persons_from_a_column(tmp_path, name):
    import pandas as pd

    frame = pd.DataFrame({"body": TEXTS, "who": ["a", "b", "a", "b", "c", "c"]})
    if name == "x.jsonl":
        frame.to_json(tmp_path / name, orient="records", lines=True)
    elif name == "x.csv":
        frame.to_csv(tmp_path / name, index=False)
    else:
        frame.to_parquet(tmp_path / name)
    source = open_documents(tmp_path / name, vocabulary=WORDS, text_column="body", group_column="who")
    assert source.unit == "person"
    assert persons(source) == persons(BagOfWords(COUNTS, group=frame["who"]))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


MARKET = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.mtx", "", "must start with"),
        ("x.mtx", "secretword 1 2\n", "must start with"),
        ("x.mtx", "%%MatrixMarket matrix array real general\n2 5\n", "must start with"),
        ("x.mtx", "%%MatrixMarket matrix coordinate quaternion general\n2 5 0\n", "must start with"),
        ("x.mtx", "%%MatrixMarket matrix coordinate real symmetric\n4 5 0\n", "must start with"),
        ("x.mtx", MARKET + "2 5\n", "must start with"),
        ("x.mtx", MARKET + "2 -5 1\n", "must start with"),
        ("x.mtx", MARKET + "2 0 0\n", "columns"),
        ("x.mtx", MARKET + "2 6 0\n", "6 columns but vocabulary holds 5"),
        ("docword.x.txt", "2\n6\n0\n", "6 columns but vocabulary holds 5"),
        ("docword.x.txt", "2\n", "three lines"),
        ("docword.x.txt", "2\nsecretword\n1\n", "three lines"),
        ("x.npz", "secretword", "cannot be read"),
        ("x.parquet", "secretword", "not a readable Parquet"),
        ("x.csv", "", "header"),
        ("x.csv", "secretword,2\n", "header"),
        ("x.csv", "text,text\n", "header"),
        ("x.pdf", "secretword", "file_format="),
        ("x.jsonl.gz", b"\x1f\x8bsecretword", "cannot be read"),
    ],
)
def test_public_faults_of_files_are_named(tmp_path, name, content, message):
    write(tmp_path / name, content)
    with pytest.raises(DataFormatError, match=message) as caught:
        open_documents(tmp_path / name, vocabulary=WORDS, stream=True)
    seen, link = [str(caught.value)], caught.value.__traceback__
    while link is not None:
        if link.tb_frame.f_code.co_filename.startswith(str(Path(dpvb.data.__file__).parent)):
            seen.append(repr(link.tb_frame.f_locals))
        link = link.tb_next
    assert caught.value.__context__ is None
    assert len(seen) > 1
    assert "secretword" not in " ".join(seen)


@pytest.mark.parametrize("name", ["x.npz", "x.mtx", "docword.x.txt", "x.dat", "x.jsonl", "x.csv", "x.parquet", "x.txt"])
def test_files_that_are_missing_are_named(tmp_path, name):
    with pytest.raises(DataFormatError, match=name):
        open_documents(tmp_path / name, vocabulary=WORDS)
    (tmp_path / name).mkdir()
    with pytest.raises(DataFormatError, match=name):
        open_documents(tmp_path / name, vocabulary=WORDS, file_format="txt")


def test_options_that_a_format_lacks_are_refused(tmp_path):
    write_lda_c(tmp_path / "x.dat", COUNTS)
    write_lines(tmp_path / "x.txt", TEXTS)
    write_npz(tmp_path / "x.npz", COUNTS)
    for name, stream in itertools.product(("x.dat", "x.txt"), (False, True)):
        with pytest.raises(ParameterError, match="group_column"):
            open_documents(tmp_path / name, vocabulary=WORDS, group_column="who", stream=stream)
    with pytest.raises(ParameterError, match="file_format"):
        open_documents(tmp_path / "x.txt", vocabulary=WORDS, file_format="word")
    with pytest.raises(DataFormatError, match="folder"):
        open_documents(tmp_path / "x.txt", vocabulary=WORDS, file_format="folder")
    with pytest.raises(DataFormatError, match="Three ways out"):
        open_documents(tmp_path / "x.txt")
    with pytest.raises(DataFormatError, match="width="):
        open_documents(tmp_path / "x.dat")
    with pytest.raises(DataFormatError, match="width=7"):
        open_documents(tmp_path / "x.npz", width=7)
    with pytest.raises(ParameterError, match="width"):
        open_documents(tmp_path / "x.dat", width=0)


def npz_members(**changes):
    matrix = scipy.sparse.csr_matrix(COUNTS)
    members = {
        "format": np.array(b"csr"),
        "shape": np.array(matrix.shape),
        "indptr": matrix.indptr,
        "indices": matrix.indices,
        "data": matrix.data,
    }
    return {name: value for name, value in (members | changes).items() if value is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {"format": np.array(b"csc")},
        {"format": None},
        {"data": None},
        {"shape": np.array([6, 5, 1])},
        {"shape": np.array([7, 5])},
        {"shape": np.array([6, 0])},
        {"shape": np.array([6.0, 5.0])},
        {"indptr": np.array([0, 3, 2, 4, 4, 5, 8])},
        {"indptr": np.array([0, 2, 2, 4, 4, 5, 99])},
        {"indptr": np.array([0, 1, 2, 3, 4, 2**63 - 1, -(2**63)])},
        {"indptr": np.array([0, 2**63, 2**64 - 1, 2**63 + 1, 4, 5, 8], dtype=np.uint64)},
        {"indices": np.arange(3)},
        {"indices": np.arange(8.0)},
        {"data": np.array(["a"] * 8)},
        {"data": np.zeros(8, dtype="M8[s]")},
        {"data": np.ones((2, 4))},
    ],
)
def test_faulty_npz_headers_are_refused(tmp_path, changes):
    np.savez(tmp_path / "x.npz", **npz_members(**changes))
    with pytest.raises(DataFormatError):
        open_documents(tmp_path / "x.npz", stream=True)


def test_npz_is_never_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    for name in ("format", "shape", "indptr", "indices", "data"):
        np.savez(tmp_path / "x.npz", allow_pickle=True, **npz_members(**{name: np.array([Bomb()] * 8, dtype=object)}))
        with pytest.raises(DataFormatError):
            open_documents(tmp_path / "x.npz")


def test_damaged_npz_is_refused(tmp_path):
    write_npz_plain(tmp_path / "x.npz", COUNTS)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        member = archive.getinfo("data.npy")
    content[member.header_offset + 170] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataFormatError, match="cannot be read"):
        open_documents(tmp_path / "x.npz")


def test_hostile_npz_bodies_empty_their_rows(tmp_path, stream):
    matrix = scipy.sparse.csr_matrix(COUNTS)
    data, indices = matrix.data.copy(), matrix.indices.astype(np.int64)
    data[0], indices[3] = math.nan, 10**15
    np.savez(tmp_path / "x.npz", **npz_members(data=data, indices=indices))
    expected = COUNTS.copy()
    expected[0] = 0
    expected[2, 3] = 0
    np.testing.assert_array_equal(table(open_documents(tmp_path / "x.npz", stream=stream)), expected)


@pytest.mark.slow
@pytest.mark.skipif("DPVB_DATA" not in os.environ, reason="DPVB_DATA names no folder with the real corpora")
@pytest.mark.parametrize("corpus", ["wikipedia", "reuters21578"])
def test_real_texts_give_their_published_matrix(corpus, tmp_path):
    folder = Path(os.environ["DPVB_DATA"]) / corpus
    # The published list has the word "None", which its matrix counts nowhere: the text "none" is another.
    listed = (folder / "vocab.txt").read_text(encoding="utf-8")
    words = tmp_path / "words.txt"
    words.write_text(listed.lower(), encoding="utf-8")
    matrix = open_documents(folder / "bow.npz", vocabulary=words, stream=True)
    texts = open_documents(folder / "sample_2000.txt.gz", vocabulary=words)
    first = taken(next(matrix.chunks()).rows, slice(0, 2000)).csr()
    kept = [i for i, word in enumerate(listed.splitlines()) if word != "None"]
    assert (next(texts.chunks()).rows.csr()[:, kept] != first[:, kept]).nnz == 0
    assert texts.count() == 2000


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("name", ["x.npz", "x.mtx", "x.dat", "x.jsonl", "x.csv", "x.parquet", "x.txt"])
def test_a_stream_takes_less_memory_than_its_file(tmp_path, name, monkeypatch):
    """Peak memory of opening and a pass stays well under what the rows, held, would need."""
    monkeypatch.setattr("dpvb.data.documents.bag_of_words.MAX_ENTRIES", 2**12)
    for module in ("kernels.spans", "data.documents.vocabulary", "data.documents.matrix_files"):
        monkeypatch.setattr(f"dpvb.{module}.MAX_ENTRIES", 2**12)
        monkeypatch.setattr(f"dpvb.{module}.MAX_ROWS", 256)
    monkeypatch.setattr("dpvb.data.readable.BLOCK_BYTES", 2**14)
    rng = np.random.default_rng(3)
    words = [a + b + c for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    # zipfile checks an archive in pieces of 1 MiB, so that the .npz must be larger to show the difference.
    counts = (rng.random((20_000 if name == "x.npz" else 4000, len(words))) < 0.04).astype(float)
    if name in COUNT_FILES:
        COUNT_FILES[name](tmp_path / name, counts)
    else:
        TEXT_FILES[name](tmp_path / name, [" ".join(words[v] for v in np.flatnonzero(row)) for row in counts])
    tracemalloc.start()
    try:
        source = open_documents(tmp_path / name, vocabulary=words, stream=True)
        total = sum(float(chunk.rows.counts.sum()) for chunk in source.chunks())
        peak = tracemalloc.get_traced_memory()[1]
        before = tracemalloc.get_traced_memory()[0]
        held = BagOfWords(scipy.sparse.csr_array(counts))
        size = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert total == counts.sum()
    assert held.count() == len(counts)
    assert peak < 0.6 * size


UNREACHABLE = {
    "blank": ("New York", "new york"),
    "signs": ("C++", "c++"),
    "capitals": ("Dog", "dog"),
    "letters": ("naïve", "naïve"),
    "digits": ("covid19", "covid19"),
    "ideographs": ("医院", "医院"),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_words_that_no_text_gives_are_refused_with_a_pattern_that_gives_them(name):
    """The pattern that the error names is taken, with the words in lower case, and finds the word."""
    word, lowered = UNREACHABLE[name]
    with pytest.raises(DataFormatError, match="never makes") as refused:
        BagOfWords.from_texts([], vocabulary=["cat", word])
    said = str(refused.value)
    assert repr(word) in said
    assert "1 word " in said
    suggested = re.search(r"token_pattern=(['\"][^'\"]*['\"]) makes", said)
    pattern = "[a-z]+" if suggested is None else ast.literal_eval(suggested[1])
    source = BagOfWords.from_texts([f"cat {word}, cats"], vocabulary=["cat", lowered], token_pattern=pattern)
    assert next(source.chunks()).rows.csr().toarray().tolist() == [[1, 1]]


def test_an_error_names_some_unreachable_words_and_how_many():
    with pytest.raises(DataFormatError, match="200 words") as refused:
        BagOfWords.from_texts([], vocabulary=[f"w{k}" for k in range(200)])
    assert "'w4', ...." in str(refused.value)
    assert "w5" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("english", "Don't: the X-ray", ["don", "t", "the", "x", "ray"]),
        ("unicode", "Die größte Maßnahme der «Ärzte»", ["die", "größte", "maßnahme", "der", "ärzte"]),
        ("unicode", "l’été 'quoted' don't x-ray foo_bar", ["l’été", "quoted", "don't", "x-ray", "foo", "bar"]),
        ("unicode", "नमस्ते दुनिया, nai\u0308ve 3.5", ["नमस्ते", "दुनिया", "nai\u0308ve", "3", "5"]),
        ("unicode", "Книга и 서울", ["книга", "и", "서울"]),
        ("cjk-characters", "我的iPad很好 カメラ", ["我", "的", "ipad", "很", "好", "カ", "メ", "ラ"]),
    ],
)
def test_patterns_have_names(name, text, words):
    source = BagOfWords.from_texts([text], vocabulary=[*words, "zzz"], token_pattern=name)
    assert next(source.chunks()).rows.csr().toarray().tolist() == [[1] * len(words) + [0]]


def test_patterns_that_look_around_a_word_are_believed():
    source = BagOfWords.from_texts(["#red blue"], vocabulary=["red", "blue"], token_pattern="#([a-z]+)")
    assert next(source.chunks()).rows.csr().toarray().tolist() == [[1, 0]]
    with pytest.raises(DataFormatError, match="lower case"):
        BagOfWords.from_texts([], vocabulary=["Red"], token_pattern="#([A-Za-z]+)")


@pytest.mark.parametrize("name", ["c.txt", "c.csv", "c.jsonl", "folder"])
def test_files_refuse_words_that_no_text_gives(tmp_path, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_text('"text"\n"cat"\n' if name == "c.csv" else '{"text": "cat"}\n')
    (tmp_path / "words.txt").write_text("cat\nNew York\n")
    with pytest.raises(DataFormatError, match="'New York'"):
        open_documents(path, vocabulary=tmp_path / "words.txt")
    with pytest.raises(DataFormatError, match="'New York'"):
        open_documents([path], vocabulary=tmp_path / "words.txt", stream=True)


def test_counts_have_any_names():
    counts = np.eye(2)
    assert BagOfWords(counts, vocabulary=["C++", "New York"]).vocabulary == ("C++", "New York")
