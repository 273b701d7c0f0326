"""The law of readers, over every file: a record more is a unit more, and nothing else differs."""

import csv
import gzip
import io
import itertools
import json
import re
import struct
import tempfile
import tracemalloc
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.audit.readers import units_of
from dpvb.cli.files import read_matrix
from dpvb.data import Categorical, Numeric, Schema, Table, Target, csv_files, open_documents, readable
from dpvb.data.arrow import cells
from dpvb.data.documents import matrix_files
from dpvb.data.tables.design import binary_rows
from dpvb.errors import DataFormatError

# Every character that readers look at is a word, so that a unit tells all of them.
SIGNS = [*'ab ,"{}[]:%+-.019e', "\n", "\r", "\t", "\0", "\x1c", "\x85", "\xa0", "\u2028", "\ufeff", "\ufffd", "é"]
TEXTS = {"vocabulary": SIGNS, "token_pattern": "(?s)."}
WIDTH = 3
MOST = 60


@contextmanager
def small(block_bytes):
    """Blocks of a few bytes, texts of at most MOST, few rows at a time; a warning is an error."""
    changes = [("readable.BLOCK_BYTES", block_bytes)]
    changes += [(f"{name}.MAX_DOCUMENT_BYTES", MOST) for name in ("readable", "documents.files", "csv_files", "arrow")]
    shared = ("documents.vocabulary", "documents.matrix_files")
    changes += [(f"{name}.MAX_ROWS", 3) for name in (*shared, "tables.table")]
    changes += [(f"{name}.MAX_ENTRIES", 16) for name in (*shared, "documents.bag_of_words")]
    changes += [("documents.matrix_files.MAX_DOCUMENT_BYTES", MOST), ("csv_files.CELLS", 3)]
    patches = [mock.patch(f"dpvb.data.{name}", value) for name, value in changes]
    patches += [mock.patch("dpvb.kernels.spans.MAX_ROWS", 3), mock.patch("dpvb.kernels.spans.MAX_ENTRIES", 16)]
    for patch in patches:
        patch.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        for patch in reversed(patches):
            patch.stop()


# ---------------------------------------------------------------- records and their writers

fragments = st.one_of(
    st.sampled_from(SIGNS).map(str.encode),
    st.sampled_from([b"\xff", b"\x1f\x8b", b"\xef\xbb\xbf", b"\r\n", b'""', b'",', b'"\n', b"a" * 25, b"9" * 30]),
    st.binary(max_size=2),
)
#: Bytes of any kind, now and then beyond MOST.
hostile = st.lists(fragments, max_size=6).map(b"".join)
texts = hostile.map(lambda content: content.decode("utf-8", "replace"))
values = st.one_of(
    st.sampled_from([0, 1, 2, -1, 2**53 + 1, 2**62, 0.1, 1e-320, 1e300, float("nan"), float("inf"), 2j, 1 + 0j]),
    st.floats(),
)
counts = st.lists(st.one_of(st.just(0), values), min_size=WIDTH, max_size=WIDTH)


def csv_of(rows, quoting=csv.QUOTE_MINIMAL, end="\r\n", separator=","):
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator=end, delimiter=separator).writerows(rows)
    return out.getvalue().encode("latin-1")


def write_csv(records, **how):
    return csv_of([["id", "text"], *(["1", text.decode("latin-1")] for text in records)], **how)


def write_one_column(records):
    return csv_of([["text"], *([text.decode("latin-1")] for text in records)])


def write_jsonl(records, **how):
    return "".join(json.dumps({"id": 2**70, "text": text}, **how) + "\n" for text in records).encode()


def write_txt(records):
    return b"".join(text.replace(b"\n", b" ") + b"\n" for text in records)


def write_parquet(records):
    out = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(records, pa.string())}), out, row_group_size=2)
    return out.getvalue()


def csr(records):
    return scipy.sparse.csr_array(np.array(records or np.empty((0, WIDTH))))


def write_npz(records):
    out = io.BytesIO()
    scipy.sparse.save_npz(out, csr(records))
    return out.getvalue()


def write_mtx(records):
    out = io.BytesIO()
    scipy.io.mmwrite(out, csr(records))
    return out.getvalue()


def triples(records):
    return [(n + 1, v + 1, value) for n, row in enumerate(records) for v, value in enumerate(row) if value]


def write_docword(records):
    lines = [f"{n} {v} {value!r}" for n, v, value in triples(records)]
    return "\n".join([str(len(records)), str(WIDTH), str(len(lines)), *lines, ""]).encode()


def write_docword_by_word(records):
    lines = [f"{n} {v} {value!r}" for n, v, value in sorted(triples(records), key=lambda triple: triple[1])]
    return "\n".join([str(len(records)), str(WIDTH), str(len(lines)), *lines, ""]).encode()


def write_lda_c(records):
    rows = [[f"{v}:{value!r}" for v, value in enumerate(row) if value] for row in records]
    return "".join(" ".join([str(len(row)), *row]) + "\n" for row in rows).encode()


def write_folder(path, records):
    path.mkdir()
    for n, text in enumerate(records):
        (path / f"{len(text)}-{n}.txt").write_bytes(text)


REAL = counts.filter(lambda row: not any(isinstance(value, complex) for value in row))
ENDS = [b"\n", b"\r\n"]
#: By door: name of the file, records, writer, options.
DOORS = {
    "csv": ("x.csv", hostile, write_csv, TEXTS),
    "csv, all quoted": ("x.csv", hostile, lambda r: write_csv(r, quoting=csv.QUOTE_ALL, end="\n"), TEXTS),
    "csv, one column": ("x.csv", hostile, write_one_column, TEXTS),
    "csv, semicolons": ("x.csv", hostile, lambda r: write_csv(r, separator=";"), {**TEXTS, "separator": ";"}),
    "csv, tabs, cp1252": (
        "x.csv",
        hostile,
        lambda r: write_csv(r, separator="\t", end="\n"),
        {**TEXTS, "separator": "tab", "encoding": "cp1252"},
    ),
    "csv, gzipped": ("x.csv.gz", hostile, lambda r: gzip.compress(write_csv(r)), TEXTS),
    "jsonl": ("x.jsonl", texts, write_jsonl, TEXTS),
    "jsonl, no ASCII": ("x.jsonl", texts, lambda r: write_jsonl(r, ensure_ascii=False), TEXTS),
    "jsonl, gzipped": ("x.jsonl.gz", texts, lambda r: gzip.compress(write_jsonl(r)), TEXTS),
    "txt": ("x.txt", hostile, write_txt, TEXTS),
    "txt, latin-1": ("x.txt", hostile, write_txt, {**TEXTS, "encoding": "latin-1"}),
    "folder, cp850": ("folder", hostile, write_folder, {**TEXTS, "encoding": "cp850"}),
    "txt, gzipped": ("x.txt.gz", hostile, lambda r: gzip.compress(write_txt(r)), TEXTS),
    "parquet": ("x.parquet", st.one_of(st.none(), texts), write_parquet, TEXTS),
    "folder": ("folder", hostile, write_folder, TEXTS),
    "npz": ("x.npz", counts, write_npz, {}),
    "mtx": ("x.mtx", counts, write_mtx, {}),
    "mtx, gzipped": ("x.mtx.gz", counts, lambda r: gzip.compress(write_mtx(r)), {}),
    "docword": ("docword.x.txt", REAL, write_docword, {}),
    "docword, by word": ("docword.x.txt", REAL, write_docword_by_word, {}),
    "lda-c": ("x.dat", REAL, write_lda_c, {"width": WIDTH}),
    "lda-c, gzipped": ("x.dat.gz", REAL, lambda r: gzip.compress(write_lda_c(r)), {"width": WIDTH}),
}


def put(folder, name, writer, records):
    if name == "folder":
        writer(folder / name, records)
    else:
        (folder / name).write_bytes(writer(records))
    return folder / name


def seen(source):
    """What is public of a source, and its units."""
    public = (type(source).__name__, repr(source), source.width, source.unit)
    units = units_of(source)
    assert source.count() == units.total()
    return public, units


def check_neighbours(less, more):
    """The law: one unit more."""
    (public, units), (public_too, units_too) = less, more
    assert public == public_too
    assert (units - units_too).total() == 0
    assert (units_too - units).total() == 1


@pytest.mark.guarantees("one record more")
@kills("readers", "one imaginary part makes a whole npz file unreadable", "npz")
@edit("data/documents/matrix_files.py", 'types["data"].kind not in "biufc"', 'types["data"].kind not in "biuf"')
@pytest.mark.parametrize("door", DOORS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_record_more_is_a_unit_more(door, data):
    name, record, writer, options = DOORS[door]
    records, own = data.draw(st.lists(record, max_size=4)), data.draw(record)
    place = data.draw(st.integers(0, len(records)))
    stream, block_bytes = data.draw(st.booleans()), data.draw(st.sampled_from([1, 7, 16, 2**18]))
    with tempfile.TemporaryDirectory() as folder, small(block_bytes):
        found = []
        for which, its in (("less", records), ("more", [*records[:place], own, *records[place:]])):
            (Path(folder) / which).mkdir()
            path = put(Path(folder) / which, name, writer, its)
            found.append(seen(open_documents(path, stream=stream, **options)))
    check_neighbours(*found)


@pytest.mark.guarantees("one record more")
@pytest.mark.parametrize("door", [door for door in DOORS if not door.startswith("folder")])
@settings(max_examples=6)
@given(data=st.data())
def test_a_record_more_in_one_of_two_files_is_a_unit_more(door, data):
    name, record, writer, options = DOORS[door]
    first, second, own = (
        data.draw(st.lists(record, max_size=2)),
        data.draw(st.lists(record, max_size=2)),
        data.draw(record),
    )
    with tempfile.TemporaryDirectory() as folder, small(16):
        found = []
        for which, its in (("less", second), ("more", [*second, own])):
            paths = []
            for part, content in (("1", first), ("2", its)):
                (Path(folder) / (which + part)).mkdir()
                paths.append(put(Path(folder) / (which + part), name, writer, content))
            found.append(seen(open_documents(paths, **options)))
    check_neighbours(*found)


SCHEMA = Schema(
    (Numeric("n", low=0, high=1), Categorical("c", categories=("a", "b", "1", '"'), other=True)), target=Target("y")
)
cell = st.one_of(hostile, st.sampled_from([b"0.5", b"1e400", b"a", b'"', b"nan", b"1", b"0", b"9" * 5000]))
NUMBERS = st.one_of(st.none(), st.integers(-2, 2), st.floats(), st.just(2**62))
WORDS = st.one_of(st.none(), texts, st.sampled_from(["a", "b", "0.5", "1"]))


def table_csv(rows, **how):
    return csv_of([["n", "c", "y"], *([one.decode("latin-1") for one in row] for row in rows)], **how)


def table_parquet(rows):
    columns = {name: [row[place] for row in rows] for place, name in enumerate(SCHEMA.read_columns)}
    try:
        table = pa.table(columns)
    except pa.ArrowException:  # the writer refuses such a mixture
        assume(False)
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2)
    return out.getvalue()


EUROPE = {"separator": ";", "decimal": ",", "encoding": "cp1252"}
european = st.one_of(cell, st.sampled_from([b"0,5", b"1.000,5", b"1,", b",5", b"-1,5e1", b"\xa01,0", b"\x81", b"\xe9"]))
TABLES = {
    "t.csv": (table_csv, st.tuples(cell, cell, cell), {}),
    "europe.csv": (lambda rows: table_csv(rows, separator=";"), st.tuples(european, european, european), EUROPE),
    "tabs.csv": (
        lambda rows: table_csv(rows, separator="\t"),
        st.tuples(european, european, european),
        {"separator": "tab", "decimal": ","},
    ),
    "t.parquet": (table_parquet, st.tuples(NUMBERS, WORDS, NUMBERS), {}),
    "text.parquet": (table_parquet, st.tuples(WORDS, WORDS, WORDS), {}),
    "numbers.parquet": (table_parquet, st.tuples(NUMBERS, NUMBERS, NUMBERS), {}),
}


@pytest.mark.guarantees("one record more")
@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
def test_a_row_more_of_a_table_is_a_unit_more(name, data):
    writer, record, how = TABLES[name]
    rows, own = data.draw(st.lists(record, max_size=4)), data.draw(record)
    place = data.draw(st.integers(0, len(rows)))
    stream, is_split = data.draw(st.booleans()), data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder, small(data.draw(st.sampled_from([1, 7, 16, 2**18]))):
        found = []
        for which, its in (("less", rows), ("more", [*rows[:place], own, *rows[place:]])):
            path = Path(folder) / which
            path.mkdir()
            (path / name).write_bytes(writer(its))
            other = path / f"other.{name}"
            other.write_bytes(writer(rows[:1]))
            table = Table([path / name, other] if is_split else path / name, SCHEMA, stream=stream, **how)
            (public, units) = seen(Counted(table.design()))
            found.append(((*public, repr(table)), units))
    check_neighbours(*found)


class Counted:
    """A design with what documents have as well."""

    def __init__(self, design):
        self.chunks, self.count, self.width, self.unit = design.chunks, design.count, design.width, design.unit
        self._public = repr(design)

    def __repr__(self):
        return self._public


@pytest.mark.guarantees("one record more")
@given(st.lists(st.binary(min_size=6, max_size=6), max_size=4), st.binary(min_size=6, max_size=6), st.booleans())
def test_an_image_more_of_an_idx_file_is_a_row_more(images, own, packed):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for its in (images, [*images, own]):
            path = Path(folder) / ("images-ubyte" + ".gz" * packed)
            content = b"\0\0\x08\3" + struct.pack(">III", len(its), 2, 3) + b"".join(its)
            path.write_bytes(gzip.compress(content) if packed else content)
            matrix = read_matrix(path)
            found.append(((matrix.dtype, matrix.shape[1]), Counter(row.tobytes() for row in matrix)))
    check_neighbours(*found)


# ---------------------------------------------------------------- one parser a format


@pytest.mark.guarantees("CSV")
@kills("readers", "a quote inside a CSV field taken for one that opens it")
@edit("data/parsing_numba.py", "if state in (START, CLOSED):", "if state != QUOTED:")
@given(
    st.lists(st.sampled_from(['"', ",", ";", "\t", "|", "a", "\n", "\r\n", "é", " "]), max_size=40).map("".join),
    st.sampled_from([",", ";", "\t", "|"]),
    st.integers(1, 9),
)
def test_csv_is_read_as_the_csv_module_reads_it(body, separator, block_bytes):
    """Where carriage returns end lines only; a record that the file does not close is faulty."""
    rows = list(csv.reader(io.StringIO(body.encode().decode("latin-1"), newline=""), delimiter=separator))
    expected = [
        (row[1].encode("latin-1"), row[0].encode("latin-1")) if len(row) == 2 else (None, None) for row in rows if row
    ]
    dialect = csv_files.Dialect(separator)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(readable, "BLOCK_BYTES", block_bytes):
        path = Path(folder) / "x.csv"
        path.write_bytes(f"p{separator}q\n{body}".encode())
        found = list(csv_files.csv_records(path, ("q", "p"), dialect))
        texts = list(csv_files.csv_records(path, ("q", "p"), csv_files.Dialect(separator, encoding="latin-1")))
    assert texts == [tuple(None if field is None else field.decode("latin-1") for field in record) for record in found]
    _, state = csv_files._end_of_record(body.encode() + b"\n", 0, dialect)
    if body and state == 2 and found[-1:] == [(None, None)]:
        found, expected = found[:-1], expected[:-1]
    assert found == expected


# Whole records about as long as one may be.
longest = st.builds(lambda n, end: b'1,"' + b"a" * n + b'"' + end, st.integers(MOST - 6, MOST), st.sampled_from(ENDS))


@pytest.mark.guarantees("one record more")
@kills("readers", "a CSV record in a large block longer than one in small blocks may be")
@edit("data/parsing_numba.py", "-1 if place - start > longest or state == QUOTED else", "-1 if state == QUOTED else")
@given(st.lists(st.one_of(hostile, longest, st.sampled_from([b'"', b",", b"\n", b"\r"])), max_size=8).map(b"".join))
def test_blocks_of_a_csv_file_decide_nothing(body):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(b"p,q\n" + body)
        for block_bytes in (1, 3, 10, 64, 2**18):
            with small(block_bytes):
                found.append(list(csv_files.csv_records(path, ("q", "q", "p"))))
    assert all(one == found[0] for one in found)


def number(token):
    try:
        return float(token)
    except ValueError:
        return float("nan")


# Around the limits of what is read in one exact operation: 2⁵³ and 10²².
near = st.builds(
    "{}{}.{}e{}".format,
    st.sampled_from(["", "-", "+"]),
    st.one_of(st.integers(0, 99), st.integers(2**52, 2**60)),
    st.sampled_from(["", "0", "5", "25"]),
    st.integers(-32, 32),
)
numeral = st.one_of(
    near,
    st.floats().map(repr),
    st.integers().map(str),
    st.decimals().map(str),
    st.from_regex(r"[+-]?[0-9]{0,18}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,5})?", fullmatch=True),
    st.sampled_from(
        ["1_0", "infinity", "-nan", "0x1", ".", "+", "e5", "1e", "1e+", "-0", "5.", ".5", "1d3", "9" * 400]
    ),
).map(str.encode)


@kills("readers", "digits of one number carried into the next")
@edit("data/parsing_numba.py", "if mantissa > LARGEST_EXACT:\n", "if mantissa > 2**62:\n")
@edit("data/parsing_numba.py", "if digits == 0 or mantissa > LARGEST_EXACT:", "if digits == 0:")
@settings(max_examples=300)
@given(st.lists(st.tuples(near, near), min_size=1, max_size=20))
def test_numbers_near_the_limits_of_exact_arithmetic(pairs):
    block = "".join(f"{one} {other}\n" for one, other in pairs).encode()
    np.testing.assert_array_equal(
        matrix_files._read_lines(block, 2), [[float(one), float(other)] for one, other in pairs]
    )


space = st.sampled_from([b" ", b"\t", b"\r", b"\x0b", b"\x0c", b"  ", b"\xa0", b"\x1c", b"\x85", b"\0", b"\n"])


@kills("readers", "blocks of triples without a record warn")
@edit(
    "data/documents/matrix_files.py",
    "    return table[:rows]\n",
    "    if not rows:\n        np.loadtxt([])\n    return table[:rows]\n",
)
@kills("readers", "a malformed line of triples leaves its tokens to the next one")
@edit("data/parsing_numba.py", "        else:\n            left = left_before\n", "")
@settings(max_examples=300)
@given(
    st.one_of(
        st.lists(st.one_of(numeral, space, st.binary(max_size=2)), max_size=30).map(b"".join),
        st.lists(st.lists(numeral, min_size=1, max_size=5).map(b" ".join), max_size=6).map(b"\n".join),
    ),
    st.integers(2, 4),
)
def test_numbers_are_those_of_float_and_tokens_those_of_split(block, num_fields):
    expected = [[number(token) for token in line.split()] for line in block.split(b"\n")]
    expected = np.array([row for row in expected if len(row) == num_fields]).reshape(-1, num_fields)
    found = matrix_files._read_lines(block, num_fields)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.guarantees("any bytes")
@given(st.lists(st.tuples(st.sampled_from([b"1", b"2", b"3", b"a", b"1 2"]), space, numeral), max_size=12))
def test_a_line_of_triples_reaches_its_own_row_alone(lines):
    """Lines that name row 2 change that row alone, whatever they hold and whatever lines they stand between."""
    body = [b"1 1 5", *(a + s.replace(b"\n", b" ") + b"2" + s.replace(b"\n", b" ") + n for a, s, n in lines), b"3 3 7"]
    others = [line for line in body if line.split()[:1] != [b"2"]]
    found = []
    with tempfile.TemporaryDirectory() as folder, small(16):
        for its in (body, others):
            path = Path(folder) / "docword.x.txt"
            path.write_bytes(b"3\n3\n1\n" + b"\n".join(its))
            [rows] = [chunk.rows for chunk in open_documents(path, stream=False).chunks()]
            found.append(rows.csr().toarray())
    np.testing.assert_array_equal(found[0][[0, 2]], found[1][[0, 2]])


@pytest.mark.guarantees("no inference")
@kills("readers", "of a symmetric matrix the lower half alone")
@edit("data/documents/matrix_files.py", "        if self.mirrored:\n", "        if self.mirrored and False:\n")
@kills("readers", "the symmetry of a whole matrix decides whether its file is read")
@edit("data/documents/matrix_files.py", "(general|symmetric|skew-symmetric|hermitian)", "(general)")
@pytest.mark.parametrize(
    "matrix",
    [
        [[1, 2], [2, 0]],
        [[0, -2], [2, 0]],
        [[1.5, 2], [2, 3]],
        [[1, 2j], [-2j, 1]],
        [[1, 2 + 1j], [2 + 1j, 1]],
        [[0, 0], [0, 0]],
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_a_writer_infers_of_a_whole_matrix_decides_nothing(tmp_path, matrix, stream):
    """A symmetric or complex matrix has a header of its own; one record more and it has another."""
    found = []
    for name, rows in (("square.mtx", matrix), ("more.mtx", [*matrix, [3, 4]])):
        (tmp_path / name).write_bytes(write_mtx(rows))
        found.append(seen(open_documents(tmp_path / name, stream=stream)))
    assert (tmp_path / "square.mtx").read_bytes().split(b"\n")[0] != (tmp_path / "more.mtx").read_bytes().split(b"\n")[
        0
    ]
    check_neighbours(*found)


@pytest.mark.parametrize(("name", "writer"), [("x.mtx", write_mtx), ("x.npz", write_npz)])
def test_an_imaginary_part_empties_its_own_row(tmp_path, name, writer):
    (tmp_path / name).write_bytes(writer([[1, 2 + 1j], [3, 4 + 0j], [0, 5]]))
    [chunk] = open_documents(tmp_path / name).chunks()
    np.testing.assert_array_equal(chunk.rows.csr().toarray(), [[0, 0], [3, 4], [0, 5]])
    if name == "x.npz":
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            [pixels] = [chunk.rows for chunk in binary_rows([tmp_path / name], threshold=3.5).chunks()]
        np.testing.assert_array_equal(pixels[1:], [[0, 1], [0, 1]])


# ---------------------------------------------------------------- how far damage reaches


def words_of(path):
    """The counts of all SIGNS in each document."""
    for chunk in open_documents(path, **TEXTS).chunks():
        for row in chunk.rows.csr().toarray():
            yield {SIGNS[v]: row[v] for v in np.flatnonzero(row)}


def texts_of(path, **options):
    """How many of the letter a each unit has."""
    source = open_documents(path, vocabulary=["a"], token_pattern="a", **options)
    return [int(n) for chunk in source.chunks() for n in chunk.rows.csr().sum(axis=1)]


@pytest.mark.guarantees("any bytes")
@kills("readers", "what follows a quote that is never closed read as that record's text")
@edit(
    "data/parsing_numba.py",
    "-1 if place - start > longest or state == QUOTED else",
    "-1 if place - start > longest else",
)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("block_bytes", [1, 5, 2**18])
def test_an_unclosed_quote_reaches_to_the_next_quote(tmp_path, stream, block_bytes):
    path = tmp_path / "x.csv"
    with small(block_bytes):
        path.write_bytes(b'id,text\n1,a\n2,"aa\n3,a\n4,"a"\n5,aaa\n')
        assert texts_of(path, stream=stream) == [1, 4, 3]
        path.write_bytes(b'id,text\n1,a\n2,"aa\n3,a\n4,a\n5,aaa\n')
        assert texts_of(path, stream=stream) == [1, 0]


@kills("readers", "a byte order mark dropped from the first line alone")
@edit(
    "data/documents/files.py",
    "        for line in lines(file):\n            yield (line.removeprefix(BOM),)",
    "        for n, line in enumerate(lines(file)):\n            yield (line if n else line.removeprefix(BOM),)",
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_and_line_ends_are_no_text_on_whatever_line_they_stand(tmp_path, end):
    """One byte order mark at its start, one carriage return at its end; others are text."""
    lines = ["\ufeffa", "a", "\ufeff\ufeffa", "\ufeff", "a\r", "\ra"]
    (tmp_path / "x.txt").write_bytes("".join(line + end for line in lines).encode())
    returned = {"a": 1, "\r": 1} if end == "\r\n" else {"a": 1}
    expected = [{"a": 1}, {"a": 1}, {"\ufeff": 1, "a": 1}, {}, returned, {"\r": 1, "a": 1}]
    assert [*words_of(tmp_path / "x.txt")] == expected
    if end == "\n":
        objects = [json.dumps({"text": "a"}), "\ufeff" + json.dumps({"text": "\ufeffa"})]
        (tmp_path / "x.jsonl").write_text("\n".join([*objects, *objects]))
        assert [*words_of(tmp_path / "x.jsonl")] == [{"a": 1}, {"\ufeff": 1, "a": 1}] * 2


@kills("readers", "memory for as many CSV records as a quoted text has line ends")
@edit("data/csv_files.py", 'min(text.count(b"\\n"), CELLS // slots) + 1', 'text.count(b"\\n") + 1')
def test_line_ends_inside_quotes_ask_for_no_memory(tmp_path):
    """So that a record of nothing but line ends is a record like others, however many columns are read."""
    names = tuple(f"c{n}" for n in range(1000))
    (tmp_path / "x.csv").write_bytes(csv_of([names, ["\n" * 2**20] * 2 + ["a"] * 998, ["b"] * 1000]))
    tracemalloc.start()
    try:
        records = list(csv_files.csv_records(tmp_path / "x.csv", names))
        assert tracemalloc.get_traced_memory()[1] < 5e7
    finally:
        tracemalloc.stop()
    assert records == [(b"\n" * 2**20,) * 2 + (b"a",) * 998, (b"b",) * 1000]


@kills("readers", "a blank line of a CSV file of one column skipped")
@edit("data/csv_files.py", "skips_blank=num_fields > 1)", "skips_blank=True)")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_is_a_record_of_a_file_of_one_column(tmp_path, end):
    (tmp_path / "x.csv").write_bytes(end.join(["text", "", "a", "", ""]).encode())
    assert texts_of(tmp_path / "x.csv") == [0, 1, 0]
    (tmp_path / "x.csv").write_bytes(end.join(["id,text", "", "1,a", "", ""]).encode())
    assert texts_of(tmp_path / "x.csv") == [1]


@pytest.mark.guarantees("any bytes")
@kills("readers", "the line behind one that is too long taken for its end")
@edit("data/readable.py", "piece, is_dropping = piece[end:], False", "piece, is_dropping = piece[end + 1 :], False")
@kills("readers", "a line read or not by where it stands in a block")
@edit(
    "data/readable.py",
    'line.removesuffix(b"\\r") if len(line) <= MAX_DOCUMENT_BYTES else UNREADABLE',
    'line.removesuffix(b"\\r")',
)
@kills("readers", "the quotes of a long CSV record forgotten from piece to piece")
@edit("data/csv_files.py", "_end_of_record(piece, state, dialect)", "_end_of_record(piece, 0, dialect)")
@kills("readers", "the quotes of a CSV record that is too long forgotten where it is dropped")
@edit("data/csv_files.py", "_end_of_record(rest, 0, dialect)[1]", "0")
@kills("readers", "a CSV record beyond the limit taken apart, line by line")
@edit(
    "data/csv_files.py",
    'rest, state = b"", _end_of_record(rest, 0, dialect)[1]',
    "yield nothing\n            rest = rest.partition(b'\\n')[2]",
)
@pytest.mark.parametrize("block_bytes", [1, 5, 16, 64, 2**18])
@pytest.mark.parametrize("offset", range(6))
def test_a_record_too_long_is_one_faulty_record(tmp_path, block_bytes, offset):
    """Where it begins decides nothing, nor what stands in it: line ends in quotes, quotes, commas."""
    head = ["a" * n for n in range(offset)]
    inner = '\n5,aaa\n"",a' * 10
    with small(block_bytes):
        for length in (MOST - 2, MOST - 1):
            records = [*head, "a" * length, inner, "a"]
            fits = [length if length + 2 <= MOST else 0, 0, 1]
            (tmp_path / "x.csv").write_bytes(write_csv([text.encode() for text in records], end="\n"))
            assert texts_of(tmp_path / "x.csv") == [*range(offset), *fits]
        for length in (MOST, MOST + 1):
            records = [*head, "a" * length, "b" * 200, "a"]
            fits = [length if length <= MOST else 0, 0, 1]
            (tmp_path / "x.txt").write_text("".join(text + "\n" for text in records))
            assert texts_of(tmp_path / "x.txt") == [*range(offset), *fits]
            pq.write_table(pa.table({"text": records}), tmp_path / "x.parquet", row_group_size=2)
            assert texts_of(tmp_path / "x.parquet") == [*range(offset), *fits]
        lines = [b"1 1 1" + b" " * n for n in (*range(offset), MOST - 5, MOST - 4, 400)]
        (tmp_path / "docword.x.txt").write_bytes(b"1\n1\n1\n" + b"\n".join(lines))
        assert next(open_documents(tmp_path / "docword.x.txt").chunks()).rows.counts.tolist() == [offset + 1]


@pytest.mark.guarantees("no inference")
@kills("readers", "a null makes floats of the whole numbers beside it")
@edit("data/arrow.py", "(types.is_integer(kind) and column.null_count == 0)", "types.is_integer(kind)")
@kills("readers", "a column of Parquet refused by a type that a cell may have decided")
@edit(
    "data/arrow.py",
    "column.to_pylist())\n    return [None] * len(column)\n",
    'column.to_pylist())\n    raise DataFormatError(f"A column must hold numbers or text, got {kind}.")\n',
)
def test_every_kind_of_arrow_column_has_cells():
    """Numbers, times and text as they are, null as None, NaN or NaT, anything else as None."""
    text = pa.array(["a", None])
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()):
        assert cells(text.cast(kind)) == [b"a", None]
        assert cells(pa.chunked_array([text.cast(kind), text.cast(kind)])) == [b"a", None] * 2
    assert cells(pa.array([b"ab", None], pa.binary(2)).dictionary_encode()) == [b"ab", None]
    assert cells(pa.array([b"\xff"]).view(pa.string())) == [b"\xff"]
    assert cells(pa.array([2**62, None])) == [2**62, None]
    assert cells(pa.array([2**62, 1])).tolist() == [2**62, 1]
    assert cells(pa.chunked_array([pa.array([2**62]), pa.array([1, None])])) == [2**62, 1, None]
    assert cells(pa.array([True, None])) == [True, None]
    np.testing.assert_array_equal(cells(pa.chunked_array([pa.array([0.5, None])] * 2)), [0.5, np.nan] * 2)
    assert cells(pa.array([None])) == [None]
    for unit in ("s", "ms", "us", "ns"):
        for kind, sign in ((pa.timestamp(unit), "M8"), (pa.duration(unit), "m8")):
            expected = np.array([2**62, "NaT"], f"{sign}[{unit}]")
            np.testing.assert_array_equal(cells(pa.array([2**62, None], kind)), expected)
    days = pa.array([-(2**30), None], pa.int32()).view(pa.date32())
    np.testing.assert_array_equal(cells(days), np.array([-(2**30), "NaT"], "M8[D]"))
    np.testing.assert_array_equal(cells(days.slice(1)), np.array(["NaT"], "M8[D]"))
    np.testing.assert_array_equal(cells(pa.array([86400000], pa.date64())), np.array([86400000], "M8[ms]"))
    assert cells(pa.array([45000, None, 90000], pa.time32("s"))) == ["12:30:00", None, None]
    assert cells(pa.array([1], pa.time64("ns"))) == ["00:00:00.000000001"]
    assert cells(pa.array([0, None], pa.timestamp("s", "Europe/Berlin"))) == ["1970-01-01T00:00:00Z", None]
    for other in (pa.array([[1]]), pa.array([{"a": 1}]), pa.array([(1, 2, 3)], pa.month_day_nano_interval())):
        assert cells(other) == [None]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.int64()])
def test_runs_of_an_arrow_column_are_cells(kind):
    texts = pa.array(["1", "2"]).cast(pa.int64() if kind == pa.int64() else pa.string())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), texts.cast(kind))
    for start in range(5):
        for length in range(6 - start):
            found = [int(cell) for cell in cells(runs.slice(start, length))]
            assert found == [1, 1, 2, 2, 2][start : start + length]


@pytest.mark.guarantees("any bytes")
@kills("readers", "an object of another kind on one line of JSON ends the file")
@edit("data/documents/files.py", "if isinstance(record, dict) else nothing", "if record else nothing")
@given(
    st.lists(fragments, max_size=10).map(b"".join),
    st.sampled_from([door for door in DOORS if not door.startswith("folder")]),
)
def test_no_bytes_at_all_raise_what_speaks_of_a_record(content, door):
    """Only a header or a container is refused, in words that the name alone decides, before anything is read."""
    name, *_, options = DOORS[door]
    heads = [b"", b"text\n", b"%%MatrixMarket matrix coordinate real general\n3 3 1\n", b"3\n3\n1\n"]
    said = set()
    with tempfile.TemporaryDirectory() as folder, small(16):
        path = Path(folder) / name
        for head in heads:
            path.write_bytes(head + content)
            for stream in (True, False):
                try:
                    units_of(open_documents(path, stream=stream, **options))
                except DataFormatError as error:
                    said.add((str(error), error.__context__))
    forms = {"must start with", "cannot be read", "not a readable Parquet", "not a CSR matrix", "must be a header"}
    assert all(context is None and any(form in one for form in forms) for one, context in said)
    assert len(said) <= 2


@pytest.mark.guarantees("any bytes")
@pytest.mark.parametrize("door", ["parquet", "npz", "csv, gzipped", "mtx, gzipped", "txt, gzipped", "lda-c, gzipped"])
def test_a_container_with_any_byte_changed_is_read_or_refused_before_the_first_pass(tmp_path, door):
    name, _, writer, options = DOORS[door]
    records = (
        [[1, 0, 2], [0, 3, 0]]
        if not options or "width" in options
        else (["ab", "a,b"] if name == "x.parquet" else [b"ab", b"a,b"])
    )
    content = writer(records)
    path = tmp_path / name
    rng = np.random.default_rng(1)
    for place in rng.permutation(len(content))[:150].tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ int(rng.integers(1, 256))]) + content[place + 1 :])
        for stream in (True, False):
            try:
                source = open_documents(path, stream=stream, **options)
            except DataFormatError:
                continue
            units_of(source)


@pytest.mark.guarantees("no inference")
@kills("readers", "gzip told by the first bytes, which may be somebody's")
@edit(
    "data/readable.py",
    'return path.name.lower().endswith(".gz")',
    'return path.is_file() and path.read_bytes()[:2] == b"\\x1f\\x8b"',
)
@pytest.mark.parametrize(
    ("name", "content", "has_header"),
    [
        ("x.txt", b"a\n", False),
        ("x.jsonl", b'{"text": "a"}\n', False),
        ("x.dat", b"1 0:1\n", False),
        ("x.csv", b"id,text\n1,a\n", True),
        ("docword.x.txt", b"1\n1\n1\n1 1 1\n", True),
        ("x.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n", True),
    ],
)
def test_gzip_is_told_by_the_name_alone(tmp_path, name, content, has_header):
    """First bytes may be a record's; where a header stands there, a packed file under another name is refused."""
    if has_header:
        (tmp_path / name).write_bytes(gzip.compress(content))
        with pytest.raises(DataFormatError, match=r"end with \.gz"):
            open_documents(tmp_path / name, vocabulary=["a"])
    else:
        found = []
        for first in (b"[bad\n", b"\x1f\x8bbad\n"):
            (tmp_path / name).write_bytes(first + content)
            found.append(seen(open_documents(tmp_path / name, vocabulary=["a"], stream=True)))
        assert found[0] == found[1]
        assert found[0][1].total() == 2
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    assert open_documents(tmp_path / f"{name}.gz", vocabulary=["a"]).count() == 1
    (tmp_path / f"{name}.gz").write_bytes(content)
    with pytest.raises(DataFormatError, match="cannot be read"):
        open_documents(tmp_path / f"{name}.gz", vocabulary=["a"])


returns = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b",", b'"', b"text", b"a"]), max_size=12).map(b"".join)


@given(
    st.sampled_from([b"a,text", b'"a\rb",text', b'\xef\xbb\xbftext,"\n"', b"text"]),
    returns,
    st.sampled_from([1, 5, 64]),
)
def test_a_csv_header_that_ends_in_a_return_alone_is_refused_whatever_stands_behind_it(header, body, block_bytes):
    """The way out is told by the header's own end; quoted returns, and those of records, are text."""
    with tempfile.TemporaryDirectory() as folder, small(block_bytes):
        path = Path(folder) / "x.csv"
        path.write_bytes(header + b"\r" + body.lstrip(b"\n"))
        with pytest.raises(DataFormatError, match="carriage return outside quotes"):
            open_documents(path, vocabulary=["a"])
        for end in (b"\n", b"\r\n"):
            path.write_bytes(header + end + body)
            open_documents(path, vocabulary=["a"])


lda_c = st.lists(
    st.sampled_from(
        [b" ", b"\t", b"\r", b"\v", b"\f", b":", b"0", b"1", b"2", b"+", b"-", b".5", b"e1", b"x", b" 1:1", b"_"]
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=300)
@given(st.lists(st.one_of(lda_c, lda_c.map(lambda rest: b"1 " + rest)), max_size=6))
def test_lda_c_is_read_as_its_definition_says(its_lines):
    """Each line by itself: M, then M pairs of an id and whatever Python reads as a number."""

    def pairs_of(line):
        first, *pairs = line.split() or [b""]
        sound = first.isdigit() and int(first) == len(pairs) and all(map(PAIR.fullmatch, pairs))
        return [tuple(map(number, pair.split(b":"))) for pair in pairs] if sound else []

    PAIR = re.compile(rb"[+-]?[0-9]+:[^:]+")
    with tempfile.TemporaryDirectory() as folder, small(7):
        path = Path(folder) / "x.dat"
        path.write_bytes(b"".join(line + b"\n" for line in its_lines))
        slabs = [*matrix_files.open_lda_c(path).slabs()]
    lengths = [length for slab in slabs for length in np.diff(slab.indptr).tolist()]
    expected = [pairs_of(line) for line in its_lines]
    assert lengths == [len(pairs) for pairs in expected]
    ids, values = (np.concatenate([slab[part] for slab in slabs]) for part in (1, 2))
    flat = [pair for pairs in expected for pair in pairs]
    np.testing.assert_array_equal(ids, [one if 0 <= abs(one) <= 2**40 else -1 for one, _ in flat])
    np.testing.assert_array_equal(values, [value for _, value in flat])


def test_a_long_line_of_lda_c_takes_memory_in_proportion(tmp_path):
    """A pair asks for less than thirty times its own bytes."""
    pairs = 100_000
    line = str(pairs).encode() + b" 1:1" * pairs
    slabs = matrix_files.open_lda_c
    (tmp_path / "x.dat").write_bytes(b"1 0:1\n")
    [*slabs(tmp_path / "x.dat").slabs()]
    (tmp_path / "x.dat").write_bytes(line)
    tracemalloc.start()
    try:
        [slab] = slabs(tmp_path / "x.dat").slabs()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert slab.indptr.tolist() == [0, pairs]
    assert peak < 30 * len(line)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\0",
        b"\0\0\x0d\1\0\0\0\1\0",
        b"\0\0\x08\1\0\0\0\2\0",
        gzip.compress(b"\0\0\x08\1\0\0\0\0", mtime=0),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path, content):
    (tmp_path / "x-ubyte").write_bytes(content)
    with pytest.raises(DataFormatError, match="not a matrix of numbers"):
        read_matrix(tmp_path / "x-ubyte")


@pytest.mark.guarantees("no inference")
@kills("readers", "the size of a file decides whether a table streams")
@edit(
    "data/tables/table.py",
    "        if self._files is None and not stream:\n",
    "        if self._files is None and not (stream or (is_file and Path(data).stat().st_size > 2**14)):\n",
)
@kills("readers", "the size of a file decides whether documents stream")
@edit(
    "data/documents/files.py",
    "    if not stream:\n        return in_memory(source)",
    "    if not (stream or path.stat().st_size > 2**14):\n        return in_memory(source)",
)
@kills("readers", "the order of entries decides whether documents stream")
@edit(
    "data/documents/matrix_files.py",
    "    width: int | None\n    slabs:",
    "    width: int | None\n    ordered: bool\n    slabs:",
)
@edit(
    "data/documents/matrix_files.py",
    "return OpenedFile(header.width, slabs)",
    "return OpenedFile(header.width, False, slabs)",
)
@edit("data/documents/matrix_files.py", "return OpenedFile(None, slabs)", "return OpenedFile(None, False, slabs)")
@edit(
    "data/documents/matrix_files.py",
    "return OpenedFile(form.width, lambda: _slabs_in_row_order(triples(), form.num_rows))",
    "return OpenedFile(form.width, True, lambda: _slabs_in_row_order(triples(), form.num_rows))",
)
@edit(
    "data/documents/matrix_files.py",
    "return OpenedFile(form.width, lambda: _slabs_in_row_order(_sorted(triples()), form.num_rows))",
    "return OpenedFile(form.width, False, lambda: _slabs_in_row_order(_sorted(triples()), form.num_rows))",
)
@edit(
    "data/documents/files.py",
    "    if not stream:\n        return in_memory(source)",
    "    if not (stream or opened.ordered):\n        return in_memory(source)",
)
def test_only_stream_decides_whether_data_stream(tmp_path):
    """Neither the size nor the order of a file does."""
    in_order, out_of_order = "1 1 1\n2 2 1\n3 3 1\n", "3 3 1\n1 1 1\n2 2 1\n"
    for stream, lines in itertools.product((None, False, True), (in_order, out_of_order, in_order * 1000)):
        (tmp_path / "docword.x.txt").write_text("3\n3\n3\n" + lines)
        source = open_documents(tmp_path / "docword.x.txt", stream=stream)
        assert type(source).__name__ == ("Stream" if stream else "BagOfWords")
    for stream, rows in itertools.product((None, False, True), (1, 3000)):
        (tmp_path / "t.csv").write_bytes(table_csv([(b"0.5", b"a", b"1")] * rows))
        design = Table(tmp_path / "t.csv", SCHEMA, stream=stream).design()
        assert type(design).__name__ == ("StreamedDesign" if stream else "Design")


def test_files_of_a_folder_that_cannot_be_read_reach_no_other(tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    before = texts_of(folder)
    (folder / "deep" / "nowhere.txt").symlink_to(folder / "none")
    (folder / "deep" / "folder.txt").mkdir()
    (folder / "deep" / "notes.md").write_text("a")
    assert texts_of(folder) == before == [1]


@kills("readers", "a byte order mark dropped from the records with which pieces of a CSV file begin")
@edit("data/csv_files.py", "not piece, rest + piece", "not piece, rest + piece.removeprefix(BOM)")
def test_a_mark_at_the_start_of_a_piece_is_text_of_its_record(tmp_path):
    """Wherever pieces of the file begin: the marks of three records meet the start of one at some size."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,text\n" + b"1,\xef\xbb\xbfa\n" * 3)
    found = []
    for block_bytes in (*range(1, 25), 2**16):
        with small(block_bytes):
            found.append(units_of(open_documents(path, **TEXTS)))
    assert all(one == found[-1] for one in found)
    assert found[-1].total() == 3


@kills("readers", "triples parsed by another parser where all lines of their block please it")
@edit(
    "data/documents/matrix_files.py",
    '    most = block.count(b"\\n") + 1\n',
    "    try:\n        with silence():\n"
    '            found = np.loadtxt(block.decode("latin-1").split("\\n"), ndmin=2, comments=None)\n'
    "        if found.shape[1] == num_fields:\n            return found\n"
    "    except ValueError:\n        pass\n"
    '    most = block.count(b"\\n") + 1\n',
)
@pytest.mark.parametrize("space", [b"\xa0", b"\x1c", b"\x1f", b"\x85"])
def test_no_sign_but_ascii_blanks_stands_between_numbers(tmp_path, space):
    """Whatever another parser takes for a blank, on all lines alike or beside a line that is none."""
    head = b"%%MatrixMarket matrix coordinate real general\n3 3 3\n"
    odd = [space.join([b"%d" % row, b"1", b"5"]) + b"\n" for row in (1, 2)]
    totals = []
    for last in (b"3 2 7\n", b"3 2\n", space.join([b"3", b"2", b"7"]) + b"\n"):
        path = tmp_path / "x.mtx"
        path.write_bytes(head + b"".join(odd) + last)
        source = open_documents(path)
        totals.append(sum(float(chunk.rows.counts.sum()) for chunk in source.chunks()))
    assert totals == [7.0, 0.0, 0.0]
