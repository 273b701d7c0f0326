"""Sequences from lists, arrays, long tables and files: the same units, whatever form and order they come in."""

from __future__ import annotations

import gc
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from scipy import sparse

from dpvb.audit.readers import units_of
from dpvb.data import Events
from dpvb.data.persons import by_person
from dpvb.data.sequences.content import Points, Symbols
from dpvb.data.shards import Sharded
from dpvb.errors import DataFormatError, ParameterError
from dpvb.estimators.choosing import private_range

SYMBOLS = Symbols("news,sports,weather")
#: Persons by name; the places of their symbols.
PEOPLE = {"ann": [0, 1, 1, 2], "Ann": [2], "bob": [2, 0], "eve": [1, 1, 0]}


def table(people: dict[str, list[int]] = PEOPLE, seed: int = 0) -> dict[str, list[Any]]:
    """A row for each event, in any order."""
    events = [(name, t, SYMBOLS.values[code]) for name, codes in people.items() for t, code in enumerate(codes)]
    events = [events[place] for place in np.random.default_rng(seed).permutation(len(events))]
    return dict(zip(("person", "time", "symbol"), map(list, zip(*events, strict=True)), strict=True))


def units(source: Any) -> list[tuple[tuple[int, ...], ...]]:
    """Every unit's sequences as codes, sorted: the order of persons is of no account."""
    found = []
    for chunk in source.chunks():
        rows = chunk.rows
        own = [tuple(rows.code[a:b].tolist()) for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
        person_n = range(len(own)) if chunk.unit_of_row is None else chunk.unit_of_row
        for unit in range(chunk.num_units):
            found.append(tuple(sorted(one for one, person in zip(own, person_n, strict=True) if person == unit)))
    return sorted(found)


EXPECTED = sorted((tuple(codes),) for codes in PEOPLE.values())


def events(data: Any, **options: Any) -> list[tuple[tuple[int, ...], ...]]:
    return units(Events(data, time="time", **options).sequences(SYMBOLS))


def test_all_forms_of_sequences_are_the_same_units() -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    lists = [[SYMBOLS.values[code] for code in codes] for codes in PEOPLE.values()]
    flat = [cell for one in lists for cell in one]
    lengths = [*map(len, lists)]
    width = max(lengths)
    matrix = np.array([one + [None] * (width - len(one)) for one in lists], dtype=object)
    padded = sorted((tuple(codes + [-1] * (width - len(codes))),) for codes in PEOPLE.values())
    assert units(SYMBOLS.sequences(matrix)) == padded
    assert units(SYMBOLS.sequences(arrow.array([{"page": "news"}]))) == [((),)]
    some = [np.array(one)[:, None] if len(one) % 2 else one for one in lists]
    series, arrays = [*map(pandas.Series, lists)], [pandas.Series(one).array for one in lists]
    for data in (lists, tuple(map(tuple, lists)), some, series, arrays, pandas.Series(lists), arrow.array(lists)):
        assert units(SYMBOLS.sequences(data)) == EXPECTED
    for data in (
        flat,
        np.array(flat),
        np.array(flat, dtype=object)[:, None],
        pandas.Series(flat),
        [[one] for one in flat],
    ):
        assert units(SYMBOLS.sequences(data, np.array(lengths))) == EXPECTED
    assert units(SYMBOLS.sequences(lists, group=["a", "b", "a", "b"])) == sorted(
        tuple(sorted(tuple(PEOPLE[name]) for name in names)) for names in (("ann", "bob"), ("Ann", "eve"))
    )


@pytest.mark.parametrize("stream", [False, True])
def test_all_forms_of_long_tables_are_the_same_units(stream: bool, tmp_path: Path) -> None:
    """Rows in any order, in memory and in files, also where a person's rows lie in several of them."""
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(table())
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame.to_csv(tmp_path / "all.csv.gz", index=False)
    frame.to_csv(tmp_path / "semicolons.csv", index=False, sep=";")
    frame.to_parquet(tmp_path / "all.parquet")
    for place in range(3):
        frame.iloc[place::3].to_csv(tmp_path / f"part{place}.csv", index=False)
    data = [table(), table(seed=1), frame, arrow.read_table(tmp_path / "all.parquet")]
    data += [tmp_path / "all.csv", tmp_path / "all.csv.gz", tmp_path / "all.parquet"]
    data += [[tmp_path / f"part{place}.csv" for place in range(3)]]
    for one in data:
        assert events(one, stream=stream) == EXPECTED
    assert events(tmp_path / "semicolons.csv", stream=stream, separator=";") == EXPECTED


@kills("persons", "persons of a streamed table told apart by their parts alone")
@edit(
    "data/sequences/events.py",
    "arranged(group.unit_of_row, ranks(part_n), time_n)",
    "arranged(ranks(part_n), ranks(part_n), time_n)",
)
def test_persons_of_one_file_of_a_streamed_table_are_several_units() -> None:
    """Among 100 persons in 64 files some share a file, whatever the key of the digests is."""
    people = {f"person {number}": [number % 3, 0] for number in range(100)}
    assert len(events(table(people), stream=True)) == len(people)


@pytest.mark.parametrize("stream", [False, True])
def test_moments_are_numbers_or_dates_and_parts_make_several_sequences(stream: bool) -> None:
    days = table() | {"time": [f"2020-01-{1 + t:02d}" for t in table()["time"]]}
    moments = table() | {"time": [np.datetime64("2020-01-01T10:00") + np.timedelta64(t, "m") for t in table()["time"]]}
    texts = table() | {"time": [f" {t}.50" for t in table()["time"]]}
    for data in (days, moments, texts):
        assert events(data, stream=stream) == EXPECTED
    visits = table() | {"visit": [t // 2 for t in table()["time"]]}
    parts = sorted(tuple(sorted(tuple(own[t : t + 2]) for t in range(0, len(own), 2))) for own in PEOPLE.values())
    assert events(visits, sequence="visit", stream=stream) == parts


class Unruly:
    """An object that answers no question."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("secret")


ODD: list[Any] = [None, np.nan, np.inf, -1, 10**400, b"\xff", "", "opera", Unruly(), [], {}, (1, 2), "NaN", 1e300, "\0"]


@pytest.mark.guarantees("events")
@kills("readers", "a symbol that nobody has declared is the last one")
@edit("data/sequences/content.py", "other=-1, missing=-1", "other=len(self) - 1, missing=-1")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("column", ["person", "time", "symbol"])
def test_an_odd_cell_reaches_its_own_person_alone(column: str, stream: bool, capsys: Any) -> None:
    """Nobody and no moment: the row is nobody's. Another symbol is a gap. Nothing is raised or said."""
    for odd in ODD:
        data = table()
        data = {name: [*cells, {"person": "zoe", "time": 0, "symbol": "news"}[name]] for name, cells in data.items()}
        data[column][-1] = odd
        found = events(data, stream=stream)
        new = [unit for unit in found if unit not in EXPECTED] if len(found) > len(EXPECTED) else []
        assert sorted([*EXPECTED, *new]) == found
        assert len(new) <= 1
        if column == "symbol":
            assert new == [((-1,),)]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("stream", [False, True])
def test_another_row_changes_the_sequences_of_its_own_persons_alone(stream: bool) -> None:
    """Tables that differ in one row, whatever its cells: at most who had it and who has it differ."""
    rng = np.random.default_rng(7)
    cells = {"person": [*PEOPLE, "zoe"], "time": [0, 1.5, "2", "2020-01-01"], "symbol": [*SYMBOLS.values, "NEWS "]}
    for _ in range(15):
        data = table()
        row = int(rng.integers(len(data["person"])))
        other = {name: [*column] for name, column in data.items()}
        persons = {data["person"][row]}
        for name, own in cells.items():
            choices = [*own, *ODD]
            other[name][row] = choices[rng.integers(len(choices))]
        found = events(other, stream=stream)
        kept = sorted((tuple(codes),) for name, codes in PEOPLE.items() if name not in persons)
        changed = [*found]
        for unit in kept:
            if unit in changed:
                changed.remove(unit)
        missing = len(kept) - (len(found) - len(changed))
        assert missing <= 1  # Who has the row now.
        assert len(changed) <= 2


@kills("errors", "an odd object in the place of a sequence asked what it is")
@edit("data/sequences/content.py", "    if issubclass(type(one), np.", "    if issubclass(one.__class__, np.")
def test_an_odd_sequence_in_a_list_is_one_without_symbols() -> None:
    lists = [[SYMBOLS.values[code] for code in codes] for codes in PEOPLE.values()]
    for odd in (None, "news", 3, Unruly(), {}, np.zeros((2, 2)), np.float64(1)):
        assert units(SYMBOLS.sequences([*lists, odd])) == sorted([*EXPECTED, ((),)])
    for cell in ODD:
        assert units(SYMBOLS.sequences([*lists, ["news", cell, "weather"]])) == sorted([*EXPECTED, ((0, -1, 2),)])


@kills("readers", "an array of sequences in the shape that all of them happen to have")
@edit("data/sequences/content.py", "        data = _apart(data)\n", "")
@pytest.mark.parametrize("content", [Symbols("a,b"), Points(1, -1, 1), Points(2, -1, 1)], ids=["a", "x", "xy"])
def test_one_odd_sequence_makes_another_shape_of_an_array_of_objects_and_nothing_else(content: Any) -> None:
    """NumPy makes as many dimensions as all sequences have; of lists with lengths, as all places have."""
    for place in (["a"], "a") if isinstance(content, Symbols) else ([0.5, -0.5][: len(content)],):
        for odd in ([place, place], [place, [place, place]], [place, [0.5]], [place], [[], []], [[place]] * 2, None):
            data, flat = [[place, place], [place, place], odd], [place, place, place, odd]
            found = [units_of(content.sequences(form)) for form in (np.array(data, dtype=object), data)]
            assert found[0] == found[1]
            assert found[0] >= Counter(dict.fromkeys(units_of(content.sequences(data[:2])), 2))
            found = [units_of(content.sequences(form, [2, 1, 1])) for form in (np.array(flat, dtype=object), flat)]
            assert found[0] == found[1]


def test_numbers_are_symbols_whatever_type_one_of_them_made_of_all() -> None:
    numbers = Symbols(3)
    for cells in ([0, 2, 1], [0.0, 2.0, 1.0], ["0", " 2 ", b"1"], np.array([0, 2, 1], np.uint8), np.array([0.0, 2, 1])):
        assert numbers.codes(cells).tolist() == [0, 2, 1]
    assert numbers.codes(np.array([0, 3, -1, np.nan, 0.5, 1e300])).tolist() == [0, -1, -1, -1, -1, -1]


@pytest.mark.guarantees("events")
def test_files_of_a_streamed_table_are_this_users_alone_and_go_away() -> None:
    source = Events(table(), time="time", stream=True).sequences(SYMBOLS)
    assert isinstance(source, Sharded)
    folder = source.parts(1)[0].path.parent
    paths = [*folder.iterdir()]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    written = b"".join(path.read_bytes() for path in paths)
    assert written
    assert not any(text.encode() in written for text in (*PEOPLE, *SYMBOLS.values))
    assert units(source) == EXPECTED
    del source
    gc.collect()
    assert not folder.exists()


@each(
    ("call", "error", "words"),
    [
        (lambda: SYMBOLS.sequences("news"), DataFormatError, "X must hold sequences, got str"),
        (lambda: SYMBOLS.sequences({"news": 1}), DataFormatError, "X must hold sequences, got dict"),
        (lambda: SYMBOLS.sequences(np.array("news")), DataFormatError, "or one array of all symbols with"),
        (lambda: SYMBOLS.sequences(["news"], 1), DataFormatError, "lengths must be a one-dimensional array, got int"),
        (lambda: SYMBOLS.sequences(["news"], "1"), DataFormatError, "lengths must be a one-dimensional array, got str"),
        (lambda: SYMBOLS.sequences(["news"], [2]), DataFormatError, "lengths must add up"),
        (lambda: SYMBOLS.sequences(["news"], [-1, 2]), DataFormatError, "whole numbers from 0"),
        (lambda: SYMBOLS.sequences(["news"], [np.nan]), DataFormatError, "whole numbers from 0"),
        (lambda: SYMBOLS.sequences([["news"]], group=["a", "b"]), DataFormatError, "group must hold one id"),
        (lambda: Symbols("news"), ParameterError, "at least two"),
        (lambda: Symbols("news,News"), ParameterError, "must not repeat"),
        (lambda: Symbols(1), ParameterError, "symbols must be"),
        (lambda: Symbols(10_001), ParameterError, "symbols must be"),
        (lambda: Symbols([*range(10_001)]), ParameterError, "symbols must be at most 10000"),
        (lambda: Symbols(None), ParameterError, "public values"),
        (lambda: Events(table(), group="nobody"), DataFormatError, "nobody"),
        (lambda: Events(table(), group=None), ParameterError, "name of a column"),  # type: ignore[arg-type]
        (lambda: Events(table(), group="symbol"), ParameterError, "different columns"),
        (lambda: Events(table(), stream="yes"), ParameterError, "stream must be"),  # type: ignore[arg-type]
        (lambda: Events(table(), separator="x"), ParameterError, "separator"),
        (lambda: Events(Path("missing.csv")), DataFormatError, "missing.csv"),
        (lambda: Events([[1, 2]]), DataFormatError, "DataFrame"),
    ],
)
def test_a_public_mistake_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("stream", [False, True])
def test_moments_that_differ_in_their_last_digit_are_in_order(tmp_path: Path, stream: bool) -> None:
    """Whole numbers beyond 2^53, and moments finer than a microsecond, in all forms of a column."""
    pandas = pytest.importorskip("pandas")
    late = 2**60
    stamps = [f"2026-01-01T00:00:00.00000000{n}" for n in (3, 1, 2)]
    exact = np.array([late + 3, late + 1, late + 2])
    columns = [exact, exact.tolist(), [*map(str, exact)], np.array(stamps, "M8[ns]"), stamps]
    columns += [[pandas.Timestamp(one) for one in stamps], exact.astype(np.uint64), (exact * 8 - 1).astype(np.uint64)]
    columns += [[-int(one) for one in exact[[1, 0, 2]]]]
    data: dict[str, Any] = {"person": ["a"] * 3, "symbol": ["weather", "news", "sports"]}
    for moments in columns:
        assert units(Events({**data, "when": moments}, time="when", stream=stream).sequences(SYMBOLS)) == [((0, 1, 2),)]
    without = Events({**data, "when": [10**400, late, late + 1]}, time="when", stream=stream)
    assert units(without.sequences(SYMBOLS)) == [((0, 1),)]  # What is no number has no moment.
    pandas.DataFrame({"person": "a", "symbol": ["weather", "news", "sports"], "when": exact}).to_csv(tmp_path / "e.csv")
    assert units(Events(tmp_path / "e.csv", time="when", stream=stream).sequences(SYMBOLS)) == [((0, 1, 2),)]


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_numpy_matrix_holds_the_sequences_of_its_array() -> None:
    rows = np.array([["a", "b"], ["b", "a"]])
    found, wanted = (Symbols(["a", "b"]).rows(data) for data in (np.matrix(rows), rows))
    np.testing.assert_array_equal(found.indptr, wanted.indptr)
    np.testing.assert_array_equal(found.code, wanted.code)


@pytest.mark.parametrize(
    "ids", [{1, 2}, frozenset({1, 2}), sparse.coo_array(np.ones(2))], ids=["set", "frozen", "sparse"]
)
def test_a_group_without_order_or_length_is_refused(ids: Any) -> None:
    with pytest.raises(DataFormatError, match="group must be a one-dimensional sequence"):
        by_person(ids, 2)


@pytest.mark.parametrize("values", [np.array(1.0), sparse.coo_array(np.ones(2))], ids=["no dimension", "sparse"])
def test_values_that_are_no_column_are_refused_before_a_charge(values: Any) -> None:
    with pytest.raises(DataFormatError, match="values"):
        private_range(values, low=0.0, high=1.0, epsilon=1.0, delta=1e-6)
