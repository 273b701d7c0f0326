"""Nothing that is public of files fails after the charge: every form of files, all ways to read them, every mistake."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from planted import edit, kills

import dpvb
from dpvb.audit.readers import units_of
from dpvb.data import Categorical, Events, Numeric, Schema, Table, Target, open_documents
from dpvb.errors import DataFormatError, DpvbError, ParameterError, PrivateComputationError

pytestmark = pytest.mark.filterwarnings("ignore::dpvb.errors.DpvbWarning")

WORDS = ("red", "green", "blue")
FRAME = pd.DataFrame(
    {
        "who": [f"p{n % 9}" for n in range(30)],
        "v": [n % 5 for n in range(30)],
        "y": [n % 2 for n in range(30)],
        "text": [WORDS[n % 3] for n in range(30)],
        "time": [*range(30)],
    }
)


def schema(grouped: bool, target: str | None = "y") -> Schema:
    answer = None if target is None else Target(target)
    return Schema((Numeric("v", 0, 4),), answer, group="who" if grouped else None)


def regression(data: Any, stream: bool, grouped: bool, run: dpvb.Run, **wrong: Any) -> object:
    table = Table(data, schema(grouped, wrong.get("column", "y")), stream=stream)
    return dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=2).fit(table, run=run)


def mixture(data: Any, stream: bool, grouped: bool, run: dpvb.Run, **wrong: Any) -> object:
    columns = (Numeric("v", 0, 4), Categorical(wrong.get("column", "text"), WORDS))
    table = Table(data, Schema(columns, group="who" if grouped else None), stream=stream)
    return dpvb.Mixture(2, epsilon=1.0, delta=1e-6, n_steps=2).fit(table, run=run)


def topics(data: Any, stream: bool, grouped: bool, run: dpvb.Run, **wrong: Any) -> object:
    column = wrong.get("column", "text")
    source = open_documents(
        data, vocabulary=WORDS, text_column=column, group_column="who" if grouped else None, stream=stream
    )
    return dpvb.LDA(2, epsilon=1.0, delta=1e-6, n_steps=2).fit(source, run=run)


def chains(data: Any, stream: bool, grouped: bool, run: dpvb.Run, **wrong: Any) -> object:
    events = Events(data, group="who", symbol=wrong.get("column", "text"), time="time", stream=stream)
    return dpvb.MarkovChain(WORDS, epsilon=1.0, delta=1e-6).fit(events, run=run)


FITS = {"regression": regression, "mixture": mixture, "topics": topics, "chains": chains}


def written(folder: Path, suffix: str) -> list[Path]:
    """The same rows in two files."""
    folder.mkdir()
    paths = [folder / f"{n}{suffix}" for n in range(2)]
    for n, path in enumerate(paths):
        part = FRAME.iloc[n * 15 : (n + 1) * 15]
        part.to_parquet(path) if suffix == ".parquet" else part.to_csv(path, index=False)
    return paths


def without_column(path: Path) -> None:
    part = FRAME.drop(columns=["v", "text"])
    part.to_parquet(path) if path.suffix == ".parquet" else part.to_csv(path, index=False)


def twice(path: Path) -> None:
    text = "who,v,y,text,time,v,text\n" + "p1,1,1,red,1,2,blue\n" * 3
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def torn(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def damaged(path: Path) -> None:
    content = path.read_bytes()
    footer = 8 + int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:4] + bytes(len(content) - 4 - footer) + content[-footer:])  # All pages, and no footer.


def folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


#: What is done to the last file, and to which formats.
MISTAKES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "gone": (Path.unlink, (".csv", ".csv.gz", ".parquet")),
    "without a column": (without_column, (".csv", ".csv.gz", ".parquet")),
    "a column twice": (twice, (".csv", ".csv.gz")),
    "torn": (torn, (".csv.gz", ".parquet")),
    "empty": (lambda path: path.write_bytes(b""), (".csv", ".csv.gz", ".parquet")),
    "damaged": (damaged, (".parquet",)),
    "a folder": (folder_in_its_place, (".csv", ".parquet")),
}


def forms(paths: list[Path]) -> Iterator[Any]:
    """One file, a list of files, and a folder where there are such."""
    yield paths[-1]
    yield paths
    if paths[0].suffix == ".parquet":
        yield paths[0].parent


def unit_of(fit: str, grouped: bool) -> str:
    return "person" if grouped else "document" if fit == "topics" else "row"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[dpvb.Ledger]:
    with dpvb.Ledger(tmp_path / "budget.db") as opened:
        for unit in ("row", "document", "person"):
            opened.register(unit, unit=unit, neighboring_relation="add_or_remove_one", epsilon=10, delta=1e-3)
        yield opened


def charges(ledger: dpvb.Ledger) -> list[float]:
    return [ledger.remaining(unit).epsilon for unit in ("row", "document", "person")]


WAYS = [
    (fit, grouped, stream)
    for fit, grouped, stream in itertools.product(FITS, (False, True), (False, True))
    if fit != "chains" or grouped
]


@pytest.mark.guarantees("checked before charge")
@kills("releases", "a Parquet file of several that is damaged is found after the charge")
@edit("data/tables/table.py", "    if read_through:\n        check_batches(path, names)\n", "")
@pytest.mark.parametrize(("fit", "grouped", "stream"), WAYS)
def test_no_mistake_in_a_file_is_found_after_the_charge(
    fit: str, grouped: bool, stream: bool, ledger: dpvb.Ledger, tmp_path: Path
) -> None:
    """The last of the files has the mistake; each is refused as a matter of its own, and not by the boundary."""
    before = charges(ledger)
    run = dpvb.Run(ledger=ledger, dataset=unit_of(fit, grouped))
    for number, (mistake, (spoil, suffixes)) in enumerate(MISTAKES.items()):
        for suffix in suffixes:
            paths = written(tmp_path / f"{number}{suffix}", suffix)
            spoil(paths[-1])
            for data in forms(paths):
                # A folder has one file less, and one of documents may have any name.
                if (mistake == "gone" and data == paths[0].parent) or (mistake == "a folder" and fit == "topics"):
                    continue
                with pytest.raises((DataFormatError, ParameterError)):
                    FITS[fit](data, stream, grouped, run)
                assert charges(ledger) == before, (mistake, suffix, data)


@pytest.mark.guarantees("checked before charge")
@pytest.mark.parametrize(("fit", "grouped", "stream"), WAYS)
def test_no_mistake_in_a_call_is_found_after_the_charge(
    fit: str, grouped: bool, stream: bool, ledger: dpvb.Ledger, tmp_path: Path
) -> None:
    """Sound files are fitted and charged, in every form; with a wrong name, unit or argument nothing is charged."""
    paths = written(tmp_path / "sound", ".parquet")
    dataset = unit_of(fit, grouped)
    right, wrong = (dpvb.Run(ledger=ledger, dataset=name) for name in (dataset, "row" if grouped else "person"))
    before = charges(ledger)
    for data in (*forms(paths), [paths[0], paths[0]], []):
        is_sound = data not in ([paths[0], paths[0]], [])
        calls: list[tuple[dpvb.Run, dict[str, Any]]] = [(right, {"column": "nothing"}), (wrong, {})]
        for run, more in calls if is_sound else [(right, {})]:
            with pytest.raises(DpvbError) as caught:
                FITS[fit](data, stream, grouped, run, **more)
            assert not isinstance(caught.value, PrivateComputationError)
            assert charges(ledger) == before
        if is_sound:
            FITS[fit](data, stream, grouped, right)
            assert charges(ledger) != before
            before = charges(ledger)


@pytest.mark.guarantees("checked before charge")
@pytest.mark.parametrize("wrong", [{"group": FRAME["who"][:-1]}, {"y": FRAME["y"][:-1]}, {"group": "who"}, {"y": 5}])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_no_argument_beside_a_file_is_refused_after_the_charge(
    wrong: dict[str, Any], several: bool, stream: bool, ledger: dpvb.Ledger, tmp_path: Path
) -> None:
    paths = written(tmp_path / "files", ".csv")
    FRAME.to_csv(tmp_path / "whole.csv", index=False)
    table = Table(paths if several else tmp_path / "whole.csv", schema(False, None), stream=stream)
    before = charges(ledger)
    rows = {"y": FRAME["y"], **wrong}
    with pytest.raises((DataFormatError, ParameterError)):
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=2).fit(
            table, rows.pop("y"), **rows, run=dpvb.Run(ledger=ledger, dataset="person" if "group" in rows else "row")
        )
    assert charges(ledger) == before


def test_persons_of_a_streamed_file_may_come_beside_it(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "whole.csv", index=False)
    held, streamed = (Table(tmp_path / "whole.csv", schema(False), stream=stream) for stream in (False, True))
    for who in (FRAME["who"], FRAME["who"].to_numpy(), [*FRAME["who"]]):
        assert units_of(streamed.design(group=who)) == units_of(held.design(group=who))
        assert units_of(streamed.design(FRAME["y"], group=who)) == units_of(held.design(FRAME["y"], group=who))
