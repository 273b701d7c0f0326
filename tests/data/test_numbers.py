"""Sequences of numbers from lists, arrays, long tables and files: the same units, whatever form they come in."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills

from dpvb.data import Events
from dpvb.data.sequences.content import Points, Symbols
from dpvb.errors import DataFormatError, ParameterError
from dpvb.guards.arrays import Floats

PLANE = Points("x,y")
LINE = Points(1)
#: Persons by name; their points, one with a number missing.
PEOPLE: dict[str, Any] = {
    "ann": [[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]],
    "Ann": [[-1.0, math.nan]],
    "bob": [[9.0, 9.0], [8.0, -8.0]],
}
SECRET = "secret"


class Unruly:
    """An object that answers no question."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(SECRET)


ODD: list[Any] = [None, math.nan, math.inf, -math.inf, 10**400, b"\xff", "", "opera", Unruly(), [], {}, (1, 2), 1j]


def units(source: Any) -> list[str]:
    """Every unit's sequences in words, sorted: the order of persons is of no account, and NaN is NaN."""
    found = []
    for chunk in source.chunks():
        rows = chunk.rows
        own = [str(rows.value_td[a:b].tolist()) for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
        person_n = range(len(own)) if chunk.unit_of_row is None else chunk.unit_of_row
        for unit in range(chunk.num_units):
            found.append(str(sorted(one for one, person in zip(own, person_n, strict=True) if person == unit)))
    return sorted(found)


def said(*sequences: Any) -> str:
    """One unit in the words of `units`."""
    return str(sorted(str(np.array(one, dtype=np.float64).reshape(-1, 2).tolist()) for one in sequences))


EXPECTED = sorted(said(one) for one in PEOPLE.values())


def table(seed: int = 0) -> dict[str, list[Any]]:
    """A row for each point, in any order."""
    points = [(name, t, *point) for name, own in PEOPLE.items() for t, point in enumerate(own)]
    points = [points[place] for place in np.random.default_rng(seed).permutation(len(points))]
    return dict(zip(("person", "time", "x", "y"), map(list, zip(*points, strict=True)), strict=True))


def events(data: Any, values: Any = ("x", "y"), **options: Any) -> list[str]:
    return units(Events(data, time="time", values=values, **options).sequences(PLANE))


def test_all_forms_of_sequences_are_the_same_units() -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    lists = [*PEOPLE.values()]
    arrays = [np.array(one) for one in lists]
    tuples = [tuple(map(tuple, one)) for one in lists]
    frames = [pandas.DataFrame(one, columns=["x", "y"]) for one in lists]
    for data in (lists, arrays, tuples, frames, pandas.Series(arrays), arrow.array(lists), [arrays[0], *lists[1:]]):
        assert units(PLANE.sequences(data)) == EXPECTED
    flat, lengths = np.concatenate(arrays), [*map(len, lists)]
    for whole in (
        flat,
        flat.astype(object),
        flat.tolist(),
        pandas.DataFrame(flat),
        arrow.table({"x": flat[:, 0], "y": flat[:, 1]}),
    ):
        assert units(PLANE.sequences(whole, lengths)) == EXPECTED
    assert units(PLANE.sequences(flat[None, :3])) == [said(PEOPLE["ann"])]
    both = sorted([said(PEOPLE["ann"], PEOPLE["bob"]), said(PEOPLE["Ann"])])
    assert units(PLANE.sequences(lists, group=["a", "b", "a"])) == both


def test_a_single_column_needs_no_axis_of_its_own() -> None:
    arrow = pytest.importorskip("pyarrow")
    lists = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    forms = [lists, np.array(lists), np.array(lists)[:, :, None], [[[x] for x in one] for one in lists]]
    forms += [arrow.array(lists), [np.array(lists[0]), np.array(lists[1])[:, None]], [["1", " 2 ", b"3"], lists[1]]]
    for data in forms:
        assert LINE.rows(data).value_td.ravel().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert LINE.rows(data).indptr.tolist() == [0, 3, 6]
    odd = LINE.rows([lists[0], np.array(7.0), Unruly(), [Unruly()], np.zeros((2, 2))])
    assert odd.indptr.tolist() == [0, 3, 3, 3, 4, 4]
    assert LINE.rows([1.0, 2.0, 3.0], [1, 2]).indptr.tolist() == [0, 1, 3]


@pytest.mark.parametrize("stream", [False, True])
def test_all_forms_of_long_tables_are_the_same_units(stream: bool, tmp_path: Path) -> None:
    """Rows in any order, in memory and in files, also where a person's rows lie in several of them."""
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(table())
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(tmp_path / "all.parquet")
    for place in range(2):
        frame.iloc[place::2].to_csv(tmp_path / f"part{place}.csv", index=False)
    data = [table(), table(seed=1), frame, arrow.read_table(tmp_path / "all.parquet")]
    data += [tmp_path / "all.csv", tmp_path / "all.parquet", [tmp_path / f"part{place}.csv" for place in range(2)]]
    for one in data:
        assert events(one, stream=stream) == EXPECTED
    assert events(tmp_path / "comma.csv", "x, y", stream=stream, separator=";", decimal=",") == EXPECTED
    visits = table() | {"visit": [t // 2 for t in table()["time"]]}
    parts = sorted(said(*(own[t : t + 2] for t in range(0, len(own), 2))) for own in PEOPLE.values())
    assert events(visits, sequence="visit", stream=stream) == parts


@pytest.mark.guarantees("events")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("column", ["person", "time", "x", "y"])
def test_an_odd_cell_reaches_its_own_person_alone(column: str, stream: bool, capsys: Any) -> None:
    """Nobody and no moment: the row is nobody's. What is no number is missing. Nothing is raised or said."""
    for odd in ODD:
        data = {name: [*cells, {"person": "zoe", "time": 0}.get(name, 7.0)] for name, cells in table().items()}
        data[column][-1] = odd
        found = events(data, stream=stream)
        new = [unit for unit in found if unit not in EXPECTED]
        assert sorted([*EXPECTED, *new]) == found
        assert len(new) <= 1
        if column == "x" and odd != 1j:
            assert new == [said([[math.nan, 7.0]])]
    assert capsys.readouterr() == ("", "")


@pytest.mark.guarantees("sequence moments")
@kills("errors", "an odd object in the place of a sequence of numbers asked what it is")
@edit("data/sequences/content.py", "issubclass(type(one), np.ndarray) else", "isinstance(one, np.ndarray) else")
def test_an_odd_sequence_or_point_is_its_own_alone() -> None:
    lists = [*PEOPLE.values()]
    odd: list[Any] = [
        None,
        "x,y",
        3,
        Unruly(),
        {},
        np.float64(1),
        np.zeros((2, 3)),
        np.zeros((2, 2, 2)),
        np.zeros((0, 3)),
    ]
    for one in odd:
        assert units(PLANE.sequences([*lists, one])) == sorted([*EXPECTED, said([])])
    for point in [None, 1.0, "1,2", Unruly(), [1.0], [1.0, 2.0, 3.0], np.zeros(3), {}]:
        assert units(PLANE.sequences([*lists, [[5.0, 5.0], point]])) == sorted(
            [*EXPECTED, said([[5.0, 5.0], [math.nan, math.nan]])]
        )
    for cell in ODD:
        assert units(PLANE.sequences([*lists, [[5.0, cell]]])) == sorted([*EXPECTED, said([[5.0, math.nan]])])


def test_numbers_stay_within_their_public_bounds_point_by_point() -> None:
    wide = [[[50.0, -3.0], [-1e300, math.nan], [math.inf, 1.0]]]
    square = Points(2, [-10.0, -5.0], [10.0, 15.0])
    assert str(square.rows(wide).value_td.tolist()) == "[[1.0, -0.8], [-1.0, nan], [nan, -0.4]]"
    ball = Points(2, max_row_norm=5.0)
    found = ball.rows([[[6.0, 8.0], [3.0, 4.0], [math.nan, 10.0], [1e200, -1e200], [0.0, 0.0]]]).value_td
    np.testing.assert_allclose(
        found, [[0.6, 0.8], [0.6, 0.8], [math.nan, 1], [0.5**0.5, -(0.5**0.5)], [0, 0]], rtol=1e-12
    )
    assert (ball.reach, square.reach) == (1.0, math.sqrt(2.0))
    one_d: Floats = Points(2, [0, -4], [10, 0]).centre_d
    assert one_d.tolist() == [5.0, -2.0]
    rng = np.random.default_rng(0)
    points = 9.0 * rng.standard_normal((50, 2))
    alone = np.concatenate([ball.rows(points[None, t : t + 1]).value_td for t in range(50)])
    assert (ball.rows(points[None]).value_td == alone).all()


@each(
    ("call", "error", "words"),
    [
        (lambda: PLANE.sequences("1"), DataFormatError, "X must hold sequences, got str"),
        (lambda: PLANE.sequences(np.array(1.0)), DataFormatError, "X must hold sequences, got float"),
        (lambda: PLANE.sequences(np.ma.zeros((2, 2, 2))), DataFormatError, "masked array"),
        (lambda: PLANE.sequences(np.zeros((2, 3)), [2]), DataFormatError, "X must have 2 columns, got 3"),
        (
            lambda: PLANE.sequences(np.zeros((2, 2)), [3]),
            DataFormatError,
            "lengths must add up to the number of points",
        ),
        (lambda: Points(0), ParameterError, "columns must be"),
        (lambda: Points(["x", "x"]), ParameterError, "different names"),
        (lambda: Points(["x", 1]), ParameterError, "name of a column"),
        (lambda: Points(None), ParameterError, "columns must be 1 to"),
        (lambda: Points(2, 0, [1, 2, 3]), ParameterError, "high must be a number or 2 of them"),
        (lambda: Points(2, 0), ParameterError, "high must be a number or 2 of them"),
        (lambda: Points(2, 1, 1), ParameterError, "low must be below high"),
        (lambda: Points(2, max_row_norm=-1.0), ParameterError, "max_row_norm"),
        (lambda: Points(2, 0, 1, max_row_norm=1.0), ParameterError, "max_row_norm must be None"),
        (lambda: Events(table(), values="x,z"), DataFormatError, "z"),
        (lambda: Events(table(), values="x,person"), ParameterError, "different columns"),
        (
            lambda: Events(table(), values="x").sequences(PLANE),
            ParameterError,
            "values of the events must be 2 columns",
        ),
        (lambda: Events(table(), symbol="x").sequences(PLANE), ParameterError, "name the columns of the numbers"),
        (lambda: Events(table(), values="x").sequences(Symbols(2)), ParameterError, "be None, as symbols"),
    ],
)
def test_a_public_mistake_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
