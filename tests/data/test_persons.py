"""The law of persons: whatever names, files, formats and chunks a person's rows came through, they are one unit."""

from __future__ import annotations

import csv
import gc
import json
import os
import pickle
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.audit.readers import units_of
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, BinaryMatrix, Design, Numeric, Schema, Table, Target, open_documents
from dpvb.data.partitions import Partitions, Piece
from dpvb.data.persons import by_person, newcomers, read_ids
from dpvb.data.stored import Stored, unpacked
from dpvb.data.tables.mixed import Layout, Mixed
from dpvb.data.tables.numbers import Numbers
from dpvb.errors import DataFormatError, ParameterError
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.topics.lda import LDAModel

WORDS = ("a", "b", "c", "d", "e")
SCHEMA = Schema((Numeric("v", 0, 4),), Target("y"), group="who")
NOBODY = (None, "", "NA", " n/a ", "nan", "<NA>", "NaT", "null")
# One person in each list, as files and arrays of all kinds may hold the id.
SPELLINGS: tuple[tuple[Any, ...], ...] = (
    (7, "7", 7.0, "7.0", "007", " 7 ", "+7", Decimal("7.00"), np.int8(7), b"7", 7 + 0j),
    ("8", 8, 8.0, np.float32(8), Decimal(8)),
    (1.5, "1.50", Decimal("1.500"), np.float64(1.5)),
    (2**53 + 1, str(2**53 + 1), Decimal(2**53 + 1)),
    ("ann", " ann", b"ann", np.str_("ann")),
    ("é", "e\u0301", "é".encode()),
)
ids = st.sampled_from([(person, form) for person, forms in enumerate(SPELLINGS) for form in forms])
rows_of_persons = st.lists(st.tuples(ids, st.integers(0, 4)), max_size=12)


# ---------------------------------------------------------------- one spelling


@pytest.mark.guarantees("no person")
@kills("persons", "letters of two codings make another person")
@edit("data/spelling.py", 'unicodedata.normalize("NFC", value)', "value")
@kills("persons", "zeros behind an id make another person")
@edit("data/spelling.py", 'or "0", fraction.rstrip("0")', 'or "0", fraction')
@kills("persons", "zeros before an id make another person")
@edit("data/spelling.py", 'whole.lstrip("0") or "0"', "whole")
@kills("persons", "an id as text and the same as a number are two persons")
@edit(
    "data/persons.py",
    "else numbers.setdefault(name, len(numbers))",
    "else numbers.setdefault(f'{type(cell)} {name}', len(numbers))",
)
@kills("persons", "each row of nobody is a person")
@edit(
    "data/persons.py",
    "return -1 if name is None else numbers.setdefault(name, len(numbers))",
    "return numbers.setdefault(name or str(len(numbers)) + chr(0), len(numbers))",
)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows_of_persons, st.lists(st.tuples(st.sampled_from(NOBODY), st.integers(0, 4)), max_size=3), st.randoms())
def test_spellings_of_an_id_are_one_person_and_nobody_is_none(rows: Any, unknown: Any, random: Any) -> None:
    """Every source gives the units that plain numbers of persons give; rows of nobody change nothing."""
    every = [(person, form, value) for (person, form), value in rows] + [(None, form, value) for form, value in unknown]
    random.shuffle(every)
    value = np.array([[row[2] / 4, 1] for row in every]).reshape(-1, 2)
    known = np.array([row[0] is not None for row in every], dtype=bool)
    forms, plain = [row[1] for row in every], [row[0] for row in every if row[0] is not None]
    y = np.arange(len(every)) % 2
    for make in (
        lambda keep, group: Design(value[keep], y[keep], group=group),
        lambda keep, group: Design(value[keep], y[keep], group=group, sparse_rows=True),
        lambda keep, group: BinaryMatrix(value[keep], threshold=0.3, group=group),
        lambda keep, group: Numbers(value[keep], y[keep], group=group),
        lambda keep, group: BagOfWords(value[keep], group=group),
        lambda keep, group: Table({"v": value[keep, 0], "y": y[keep], "who": group}, SCHEMA).design(),
    ):
        source, expected = make(slice(None), forms), make(known, plain)
        assert source.count() == expected.count() == len(set(plain))
        assert units_of(source) == units_of(expected)


@pytest.mark.guarantees("no person")
@kills("persons", "the texts of missing values name a person")
@edit("data/spelling.py", "or name.casefold() in _NOBODY else name", "else name")
@kills("persons", "a number that rounding made of several ids names one person")
@edit("data/spelling.py", "    if _is_vague(_plain(cell)):\n", "    if False:\n")
@kills("persons", "all ids that cannot be decoded name one person")
@edit("data/spelling.py", "return None if name is None or name == UNREADABLE or", "return None if name is None or")
@kills("persons", "rows of nobody are a person")
@edit(
    "data/persons.py",
    "return -1 if name is None else numbers.setdefault(name, len(numbers))",
    "return numbers.setdefault(str(name), len(numbers))",
)
@pytest.mark.parametrize(
    "missing", [*NOBODY, pd.NA, pd.NaT, float("nan"), b"\xff", [1], {}, 2.0**53, 2.0**60, ("x", None)]
)
def test_rows_of_nobody_are_left_out_of_the_order(missing: Any) -> None:
    order, unit_of_row, first = by_person(["p", missing, "q", missing, "p"], 5)
    assert order.tolist() == [0, 4, 2]
    assert unit_of_row.tolist() == [0, 0, 1]
    assert first.tolist() == [0, 2, 3]
    assert [part.tolist() for part in by_person([missing] * 3, 3)] == [[], [], [0]]


@kills("persons", "equal cells of two types asked once, as the first one is")
@edit("data/spelling.py", "key = (kind, cell)  # 1 and True are equal, but two texts", "key = cell")
def test_equal_cells_of_two_types_are_asked_for_their_names_one_by_one() -> None:
    """A whole number beyond 2^53 names somebody, the float that is equal to it nobody, whichever comes first."""
    for forms in ([2**60, 2.0**60], [2.0**60, 2**60], [True, 1, 2.0**60, 1.0, 2**60, 2**60]):
        named = [n for n, form in enumerate(forms) if form != 2**60 or type(form) is int]
        assert sorted(by_person(forms, len(forms))[0].tolist()) == named


def test_a_schema_says_what_else_names_nobody() -> None:
    schema = Schema((Numeric("v", 0, 4),), Target("y"), group="who", missing_values=("-1", "none of us"))
    data = {"v": [1.0] * 5, "y": [1] * 5, "who": ["p", "none of us", -1.0, "NA", ("a", 1)]}
    assert Table(data, schema).design().count() == 2


@pytest.mark.parametrize("column", [np.array([3, 1, 3, 9]), np.array(["3", "1", "3", "9"]), pd.Series([3.0, 1, 3, 9])])
def test_persons_come_in_order_of_appearance_whatever_their_type(column: Any) -> None:
    assert by_person(column, 4)[0].tolist() == [0, 2, 1, 3]


# ---------------------------------------------------------------- several files

Rows = Sequence[tuple[Any, int]]


def as_jsonl(path: Path, rows: Rows) -> Path:
    plain = [who if isinstance(who, (int, float, str)) or who is None else str(who) for who, _ in rows]
    lines = [json.dumps({"who": who, "text": WORDS[word]}) for who, (_, word) in zip(plain, rows, strict=True)]
    path = path.with_suffix(".jsonl")
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def as_csv(path: Path, rows: Rows) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "text", "v", "y"])
        writer.writerows([who, WORDS[word], word, word % 2] for who, word in rows)
    return path


def as_parquet(kind: Any, path: Path, rows: Rows) -> Path:
    """The ids in a column of one type; those that do not fit are text in the file's text column."""
    path = path.with_suffix(".parquet")
    words = [word for _, word in rows]
    try:
        who = pa.array([None if one is None else kind[1](one) for one, _ in rows], kind[0])
    except Exception:
        who = pa.array([None if one is None else str(one) for one, _ in rows], pa.string())
    columns = {"who": who, "text": [WORDS[word] for word in words], "v": words, "y": [word % 2 for word in words]}
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


PARQUET = [
    partial(as_parquet, (pa.string(), str)),
    partial(as_parquet, (pa.int64(), int)),
    partial(as_parquet, (pa.decimal128(30, 2), Decimal)),
    partial(as_parquet, (pa.large_binary(), lambda one: str(one).encode())),
]
file_ids = st.sampled_from(
    [7, "7", 7.0, "7.0", "007", "8", 8, "ann", " ann", 2**53 + 1, str(2**53 + 1), None, "", "NA"]
)
file_rows = st.lists(st.tuples(file_ids, st.integers(0, 4)), min_size=1, max_size=5)


def rows_of_somebody(files: Sequence[Rows]) -> list[tuple[Any, int]]:
    """The rows that count, with their persons in one spelling: all but those of nobody."""
    rows = [row for file in files for row in file if row[0] not in (None, "", "NA")]
    return [(str(who).strip().lstrip("0").removesuffix(".0"), word) for who, word in rows]


@pytest.mark.guarantees("one person")
@kills("persons", "rows of a person in one partition that are not brought together")
@edit(
    "data/partitions.py",
    'person_n = ranks(rows.columns["person"])',
    'person_n = np.arange(len(rows.columns["person"]))',
)
@kills("persons", "a person in files of two formats is two units")
@edit("data/persons.py", "hashlib.blake2b(name.encode(", "hashlib.blake2b(f'{type(cell)} {name}'.encode(")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([as_jsonl, as_csv, *PARQUET]), file_rows), min_size=2, max_size=3))
def test_a_person_in_several_files_of_documents_is_one_unit(tmp_path_factory: Any, files: Any) -> None:
    folder = tmp_path_factory.mktemp("documents")
    paths = [write(folder / f"{n}", rows) for n, (write, rows) in enumerate(files)]
    source = open_documents(paths, vocabulary=WORDS, group_column="who")
    kept = rows_of_somebody([rows for _, rows in files])
    expected = BagOfWords(np.eye(5)[[word for _, word in kept]], group=[who for who, _ in kept])
    assert source.count() == expected.count()
    assert units_of(source) == units_of(expected)
    streamed = open_documents(paths[0], vocabulary=WORDS, group_column="who", stream=True)
    assert units_of(streamed) == units_of(open_documents(paths[0], vocabulary=WORDS, group_column="who"))


@pytest.mark.guarantees("one person")
@kills("persons", "a person of a table is another unit in each piece of its files")
@edit(
    "data/partitions.py",
    "digests(piece.persons, key, without)",
    "digests(piece.persons, secrets.token_bytes(32), without)",
)
@kills("readers", "rows of a person of several files in another order than that of the data")
@edit("data/partitions.py", 'np.argsort(person_n, kind="stable")\n    rows', "np.lexsort((-row_n, person_n))\n    rows")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([as_csv, *PARQUET]), file_rows), min_size=2, max_size=3))
def test_a_person_in_several_files_of_a_table_is_one_unit(tmp_path_factory: Any, files: Any) -> None:
    folder = tmp_path_factory.mktemp("tables")
    paths = [write(folder / f"{n}", rows) for n, (write, rows) in enumerate(files)]
    source = Table(paths, SCHEMA).design()
    kept = rows_of_somebody([rows for _, rows in files])
    words = np.array([word for _, word in kept], dtype=float)
    whole = Table({"v": words, "y": words % 2, "who": [who for who, _ in kept]}, SCHEMA)
    expected = whole.design()
    assert source.count() == expected.count()
    assert units_of(source) == units_of(expected)
    assert source.unit == "person"
    layout = Layout.of(SCHEMA)
    assert units_of(Table(paths, SCHEMA).mixed(layout)) == units_of(whole.mixed(layout))
    for sparse in (False, True):
        held, streamed = (Table(paths[0], SCHEMA, stream=stream).design(sparse_rows=sparse) for stream in (False, True))
        assert units_of(streamed) == units_of(held)


@pytest.mark.guarantees("excluded people")
@kills("persons", "persons of earlier months who count again where files are read")
@edit("data/partitions.py", 'ids_of("exclude_groups", exclude_groups)', 'ids_of("exclude_groups", ())')
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from([as_jsonl, as_csv, *PARQUET]), file_rows), min_size=1, max_size=2),
    st.lists(file_ids, max_size=4),
)
def test_persons_who_were_seen_are_left_out(tmp_path_factory: Any, files: Any, seen: list[Any]) -> None:
    """In one file and in several, with ids from memory and from a file."""
    folder = tmp_path_factory.mktemp("documents")
    paths = [write(folder / f"{n}", rows) for n, (write, rows) in enumerate(files)]
    before = {who for who, _ in rows_of_somebody([[(who, 0) for who in seen]])}
    kept = [row for row in rows_of_somebody([rows for _, rows in files]) if row[0] not in before]
    expected = BagOfWords(np.eye(5)[[word for _, word in kept]], group=[who for who, _ in kept])
    (folder / "seen.txt").write_text("\n".join("" if who is None else str(who) for who in seen))
    for known in (seen, read_ids(folder / "seen.txt")):
        source = open_documents(
            paths if len(paths) > 1 else paths[0], vocabulary=WORDS, group_column="who", exclude_groups=known
        )
        assert source.count() == expected.count()
        assert units_of(source) == units_of(expected)


def test_ids_are_lines_and_what_is_no_id_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfann\r\n\r\n\xff\xfe\n007\nNA\n")
    left = newcomers(["ann", "", None, "7", 7.0, "bob"], read_ids(tmp_path / "ids.txt"))
    assert left == [*[None] * 5, "bob"]
    with pytest.raises(DataFormatError, match=r"gone\.txt' cannot be read: "):
        read_ids(tmp_path / "gone.txt")
    as_csv(tmp_path / "notes", [("ann", 0)])
    with pytest.raises(ParameterError, match="group_column must name the column of persons"):
        open_documents(tmp_path / "notes.csv", vocabulary=WORDS, exclude_groups=["ann"])
    with pytest.raises(DataFormatError, match="exclude_groups must be a sequence of persons' ids"):
        open_documents(tmp_path / "notes.csv", vocabulary=WORDS, group_column="who", exclude_groups="ann")


@pytest.mark.guarantees("events")
@kills("generators", "partitions by digests without a secret key")
@edit("data/partitions.py", "key, start = secrets.token_bytes(32), 0", "key, start = bytes(32), 0")
def test_digests_of_persons_have_a_key_that_no_other_table_has() -> None:
    """What a process that is killed leaves behind does not tell who is in two tables."""
    found: list[set[bytes]] = []

    def pieces() -> Iterator[Piece]:
        rows = Stored({"v": np.zeros((4000, 64))})
        yield Piece(np.arange(4000), rows)
        [folder] = {path.parent for path in Path(tempfile.gettempdir()).glob("dpvb-*/00")} - before
        none = {"person": np.empty((0, 2), np.uint64), "row": np.empty(0, np.int64), "v": np.empty((0, 64))}
        read = [*unpacked(np.fromfile(folder / "00", dtype=np.uint8), Stored(none))]
        found.append({one.tobytes() for block in read for one in block.columns["person"]})

    for _ in range(2):
        before = {path.parent for path in Path(tempfile.gettempdir()).glob("dpvb-*/00")}
        partitions = Partitions(pieces(), Stored({"v": np.empty((0, 64))}), lambda rows, group: Mixed(rows, group))
        assert len(partitions.unit_numbers) == 4000
    assert all(found)
    assert found[0].isdisjoint(found[1])


@pytest.mark.guarantees("events")
@kills("leaks", "files of partitions that others may read")
@edit("data/partitions.py", "os.O_EXCL, 0o600", "os.O_EXCL, 0o644")
def test_partitions_are_this_users_alone_name_nobody_and_go_away(tmp_path: Path) -> None:
    paths = [as_csv(tmp_path / f"{n}", [(f"somebody{who}", who % 5) for who in range(200)]) for n in range(2)]
    source = Table(paths, SCHEMA).design()
    shards = source.parts(1)
    folder = shards[0].path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert not any(b"somebody" in path.read_bytes() for path in folder.iterdir())
    travelled = pickle.loads(pickle.dumps(shards))
    assert b"somebody" not in pickle.dumps(shards)
    assert sum(shard.open().count() for shard in travelled) == source.count() == 200
    # A path may hold any digits by chance; what is shown beside it names no count.
    assert "200" not in re.sub(r"\('[^']*'\)", "", repr(shards) + repr(source))
    del source, shards
    gc.collect()
    assert not folder.exists()


def test_a_forked_process_leaves_the_files_of_its_parent(tmp_path: Path) -> None:
    paths = [as_csv(tmp_path / f"{n}", [("ann", 1), ("bob", 2)]) for n in range(2)]
    source = Table(paths, SCHEMA).design()
    child = os.fork()
    if not child:
        source._shards._removed()  # what the end of a process calls
        os._exit(0)
    os.waitpid(child, 0)
    assert sum(chunk.num_units for chunk in source.chunks()) == 2


@pytest.mark.guarantees("events")
@kills("leaks", "partitions stay where the reading was broken off")
@edit("data/partitions.py", "            undone.callback(self._removed)", "            pass")
@pytest.mark.parametrize("error", [KeyboardInterrupt, DataFormatError, OSError])
def test_data_that_are_not_read_to_their_end_leave_no_files(error: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def pieces() -> Iterator[Piece]:
        yield Piece(["ann"], Stored({"v": np.zeros(1)}))
        assert [*tmp_path.iterdir()]
        raise error

    # The traceback that is held here holds what was being made.
    with pytest.raises(DataFormatError if error is OSError else error) as held:
        Partitions(pieces(), Stored({"v": np.empty(0)}), lambda rows, group: Mixed(rows, group))
    assert held.tb is not None
    assert not [*tmp_path.iterdir()]


@pytest.mark.guarantees("sampling")
@kills("sampler", "units of partitions drawn by their places in the partitions")
@edit("core/clipped_sums.py", "draw if numbers is None else Listed(", "draw if True else Listed(")
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.4), FixedSize(20, 60)])
def test_a_sum_over_files_has_the_bits_of_the_sum_over_one(sampler: Any, tmp_path: Path) -> None:
    """Persons with rows in all files; the same words draw the same persons, whichever partition they are in."""
    rng = np.random.default_rng(5)
    rows = [(f"p{who}", int(word)) for who, word in zip(rng.integers(0, 60, 300), rng.integers(0, 5, 300), strict=True)]
    files = [as_csv(tmp_path / f"{n}", rows[n * 100 : (n + 1) * 100]) for n in range(3)]
    merged = as_csv(tmp_path / "merged", rows)
    model = FirstOrder(2, n_steps=1)
    q = model.init(np.random.default_rng(0))
    release = Release({"score": model.blocks["score"]}, Mechanism(sampler, 1.0))
    totals = []
    for source in (
        Table(merged, SCHEMA).design(),
        Table(files, SCHEMA).design(),
        Table(merged, SCHEMA, stream=True).design(),
    ):
        wall = Wall(source, Plan([release], unit="person"), noise=InsecureNoise(0))
        totals.append(wall.release(partial(model.e_step, q, blocks=release.asked), release).total["score"])
    assert np.array_equal(totals[0], totals[1])
    assert np.array_equal(totals[0], totals[2])


# ---------------------------------------------------------------- what one person moves


def moved(model: Any, block: str, without: Any, person: Any) -> float:
    """How far a person moves the sum of a release, over the bound of one unit."""
    q = model.init(np.random.default_rng(0))
    release = Release({block: model.blocks[block]}, Mechanism(FullBatch(), 0.0))

    def total(source: Any) -> Any:
        wall = Wall(source, Plan([release], unit=source.unit), noise=InsecureNoise(0))
        return wall.release(partial(model.e_step, q, blocks=release.asked), release).total[block]

    return float(np.linalg.norm(total(person) - total(without)) / release.blocks[block].bound)


@pytest.mark.guarantees("one person")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(SPELLINGS[0]) | st.sampled_from(NOBODY), min_size=1, max_size=6), st.data())
def test_a_person_moves_a_sum_of_rows_by_one_bound_at_most(forms: list[Any], data: Any) -> None:
    """Ten rows under each of some spellings of one id, some of them under none, beside other persons and nobody."""
    model = FirstOrder(2, n_steps=1)
    others = [[1.0, 0.0]] * 6, [0] * 6, ["a", "a", "b", None, "", "c"]
    place = data.draw(st.integers(0, 6))
    own = [[1.0, 0.0]] * 10 * len(forms), [1] * 10 * len(forms), [form for form in forms for _ in range(10)]
    every = [[*mine[:place], *new, *mine[place:]] for mine, new in zip(others, own, strict=True)]
    designs = [Design(np.array(x), np.array(y), group=who) for x, y, who in (others, every)]
    assert moved(model, "score", *designs) <= 1.0 + 1e-6


@pytest.mark.guarantees("one person")
@kills("persons", "a partition that holds only a part of a person")
@edit("data/partitions.py", "(person_n[somebody, 0] % len(paths)).astype(np.int64)", "somebody % len(paths)")
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from([as_jsonl, as_csv, *PARQUET]), file_rows), min_size=2, max_size=3), st.data())
def test_a_person_moves_a_sum_over_files_by_one_bound_at_most(tmp_path_factory: Any, files: Any, data: Any) -> None:
    folder = tmp_path_factory.mktemp("sums")
    with_person = []
    for write, rows in files:
        own = data.draw(st.lists(st.tuples(st.sampled_from([9, "9", "9.0", "09", None]), st.just(0)), max_size=3))
        with_person.append((write, [*rows, *own * 30]))
    sources = []
    for name, content in (("without", files), ("with", with_person)):
        paths = [write(folder / f"{name}{n}", rows) for n, (write, rows) in enumerate(content)]
        sources.append(open_documents(paths, vocabulary=WORDS, group_column="who"))
    assert moved(LDAModel(2, len(WORDS)), "words", *sources) <= 1.0 + 1e-6


@kills("leaks", "rows of persons in another folder than the one for temporary files")
@edit("data/partitions.py", 'tempfile.mkdtemp(prefix="dpvb-", dir=place)', 'tempfile.mkdtemp(prefix="dpvb-")')
def test_rows_go_to_the_folder_for_temporary_files_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes another place where TMPDIR cannot be used; a fit is refused."""
    rows = Stored({"v": np.zeros((4, 1))})
    like = Stored({"v": np.empty((0, 1))})

    def made() -> Partitions:
        return Partitions([Piece(np.arange(4), rows)], like, lambda rows, group: Mixed(rows, group))

    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with pytest.raises(DataFormatError, match=r"cannot be written: .*Set TMPDIR to a folder with more room"):
        made()
    (tmp_path / "gone").mkdir()
    partitions = made()
    assert len([*(tmp_path / "gone").glob("dpvb-*")]) == 1
    assert len(partitions.unit_numbers) == 4
