"""The order inside a unit is a function of that unit's own records, in every reader and however its rows are held.

The oracle: the units of a collection are those of each person's records read alone, taken together. So no record of
another person moves a row, a document, an event or a sequence within a unit, whatever the record makes of the types of
columns, of chunks, of files and of numbers that ids are given.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.audit.readers import units_of
from dpvb.data import (
    BagOfWords,
    BinaryMatrix,
    Categorical,
    Date,
    Design,
    Events,
    Numeric,
    Schema,
    Table,
    Target,
    in_memory,
    open_documents,
)
from dpvb.data.documents.bag_of_words import labelled
from dpvb.data.persons import identity
from dpvb.data.sequences.content import Points, Symbols
from dpvb.data.shards import Shard
from dpvb.data.tables.mixed import Layout

COLUMNS = ("who", "when", "visit", "symbol", "x", "text")


class Record(NamedTuple):
    """One record of a person, and the file in which it stands."""

    who: Any
    when: Any
    visit: Any
    symbol: Any
    x: Any
    text: Any
    file: int


WORDS = ("a", "b", "c", "7")
records = st.builds(
    Record,
    who=st.sampled_from(["ann", " ann", "bob", "7", "007", "7.0", 7, 7.0, None, "", "2020-01-01", "2020-01-01T00:00"]),
    when=st.sampled_from(
        [
            *(0, 1, 2, 2.5, "1", "1.0", None, "odd", "2020-01-01", "2020-01-01T00:00:00.000000001", "12:30"),
            *("2020-01-01T00:00:00.0000000005", "2020-01-01T02:00+02:00", pd.Timestamp("2020-01-01 01:00"), True),
            *(np.datetime64("2020-01-01T00:00:00.000000001"), "0.1", 0.1, "1e400"),
        ]
    ),
    visit=st.sampled_from(["v1", "v2", "v3", 1, "1", "01", 2, "2", None]),
    symbol=st.sampled_from([*WORDS, "A ", 7, "odd", None]),
    x=st.sampled_from([0.1, 0.25, "0.75", 1, None, "odd", 2.0, 1e300]),
    text=st.sampled_from(["a b", "b b c", "7", "", "c a a", "odd", None, 7]),
    file=st.sampled_from([0, 0, 1]),
)
collections = st.lists(records, min_size=2, max_size=14)


# --- writers -------------------------------------------------------------------------------------------------------


def lists_of(found: Sequence[Record], folder: Path) -> Any:
    return {name: [getattr(record, name) for record in found] for name in COLUMNS}


def frame_of(found: Sequence[Record], folder: Path) -> Any:
    """Types of columns are those that pandas infers."""
    return pd.DataFrame(lists_of(found, folder), columns=[*COLUMNS])


def texts_of(found: Sequence[Record]) -> list[list[str]]:
    return [["" if cell is None else str(cell) for cell in record[:-1]] for record in found]


def arrow_of(found: Sequence[Record], folder: Path, dictionary: bool = False) -> Any:
    rows = [*zip(*texts_of(found), strict=True)] if found else [()] * len(COLUMNS)
    arrays = [pa.array(row, pa.string()) for row in rows]
    return pa.table([one.dictionary_encode() if dictionary else one for one in arrays], names=[*COLUMNS])


def csv_of(found: Sequence[Record], folder: Path, name: str = "all.csv") -> Any:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *texts_of(found)])
    return folder / name


def json_of(found: Sequence[Record], folder: Path, name: str = "all.jsonl") -> Any:
    plain = (int, float, str, type(None))
    made = [
        {key: cell if type(cell) in plain else str(cell) for key, cell in zip(COLUMNS, record[:-1], strict=True)}
        for record in found
    ]
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in made))
    return folder / name


def parquet_of(found: Sequence[Record], folder: Path, name: str = "all.parquet") -> Any:
    pq.write_table(arrow_of(found, folder, dictionary=True), folder / name, row_group_size=2)
    return folder / name


def files_of(write: Callable[..., Any], found: Sequence[Record], folder: Path) -> Any:
    """Two files, in each of which persons may have records."""
    suffix = {csv_of: "csv", json_of: "jsonl", parquet_of: "parquet"}[write]
    return [write([one for one in found if one.file == n], folder, f"{n}.{suffix}") for n in (0, 1)]


TWO_CSV, TWO_JSON, TWO_PARQUET = (partial(files_of, write) for write in (csv_of, json_of, parquet_of))
TABLES = {
    **{"lists": lists_of, "pandas": frame_of, "arrow": arrow_of, "dictionary": partial(arrow_of, dictionary=True)},
    **{"csv": csv_of, "parquet": parquet_of, "two csv": TWO_CSV, "two parquet": TWO_PARQUET},
}
DOCUMENTS = {"csv": csv_of, "jsonl": json_of, "parquet": parquet_of, "two csv": TWO_CSV, "two jsonl": TWO_JSON}
DOCUMENTS |= {"two parquet": TWO_PARQUET}

# --- readers -------------------------------------------------------------------------------------------------------


def events(data: Any, numbers: bool = False, **options: Any) -> Any:
    content: Any = Points(["x"], low=0, high=1) if numbers else Symbols(WORDS)
    held = {"values": "x"} if numbers else {"symbol": "symbol"}
    return Events(data, group="who", **held, **options).sequences(content)  # type: ignore[arg-type]


def documents(path: Any) -> Any:
    return open_documents(path, vocabulary=WORDS, token_pattern="unicode", group_column="who")


def private_words(path: Any) -> Any:
    found: Any = open_documents(path, vocabulary="private", token_pattern="unicode", group_column="who")
    return found.over(WORDS)


X, KIND, WHEN = Numeric("x", 0, 1), Categorical("symbol", WORDS), Date("when", "2019-01-01", "2021-01-01")
MISSING = (
    Numeric("x", 0, 1, missing=0.5),
    Categorical("symbol", WORDS),
    Date("when", "2019-01-01", "2021-01-01", missing="2020-01-01"),
)


def design(data: Any, sparse: bool = False, **options: Any) -> Any:
    schema = Schema(MISSING, Target("visit", classes=("v1", "1")), group="who")
    return Table(data, schema, **options).design(sparse_rows=sparse)


def mixed(data: Any) -> Any:
    schema = Schema(MISSING, group="who")
    return Table(data, schema).mixed(Layout.of(schema, ()))


def of_columns(make: Callable[[dict[str, list[Any]], list[Any]], Any], data: Any) -> Any:
    return make(data, data["who"])


def points(data: dict[str, list[Any]]) -> Any:
    return np.array(
        [[x if isinstance(x, float) else 0.5, len(str(s))] for x, s in zip(data["x"], data["symbol"], strict=True)]
    ).reshape(-1, 2)


HELD: dict[str, Callable[[dict[str, list[Any]], list[Any]], Any]] = {
    "matrix": lambda data, who: Design(points(data), [1] * len(who), group=who),
    "sparse matrix": lambda data, who: Design(points(data), [1] * len(who), group=who, sparse_rows=True),
    "bits": lambda data, who: BinaryMatrix(points(data) > 0.5, group=who),
    "counts": lambda data, who: BagOfWords(points(data), group=who),
    "texts": lambda data, who: BagOfWords.from_texts(
        data["text"], vocabulary=WORDS, token_pattern="unicode", group=who
    ),
    "texts read once": lambda data, who: in_memory(
        BagOfWords.from_texts(data["text"], vocabulary=WORDS, token_pattern="unicode"), group=who
    ),
    "labelled texts": lambda data, who: labelled(
        BagOfWords.from_texts(data["text"], vocabulary=WORDS, token_pattern="unicode"), data["visit"], ("v1", 1), who
    ),
    "sequences": lambda data, who: Symbols(WORDS).sequences([[s, s] for s in data["symbol"]], group=who),
    "sequences of numbers": lambda data, who: Points(2, -9, 9).sequences(
        [row[None] for row in points(data)], group=who
    ),
    "ids in pandas": lambda data, who: BagOfWords(points(data), group=pd.Series(who)),
    "ids of categories": lambda data, who: BagOfWords(points(data), group=pd.Series(who, dtype="category")),
}
READERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    **{
        f"events, {how}, {form}": (write, partial(events, **options))
        for form, write in TABLES.items()
        for how, options in {
            "in order": {"sequence": "visit"},
            "by time": {"time": "when"},
            "parts by time": {"sequence": "visit", "time": "when"},
            "numbers": {"sequence": "visit", "time": "when", "numbers": True},
            "streamed": {"sequence": "visit", "time": "when", "stream": True},
        }.items()
    },
    **{f"documents, {form}": (write, documents) for form, write in DOCUMENTS.items()},
    **{f"documents, words to be found, {form}": (write, private_words) for form, write in DOCUMENTS.items()},
    **{f"design, {form}": (write, design) for form, write in TABLES.items()},
    **{f"sparse design, {form}": (write, partial(design, sparse=True)) for form, write in TABLES.items()},
    **{f"mixture, {form}": (write, mixed) for form, write in TABLES.items()},
    **{f"{name} in memory": (lists_of, partial(of_columns, make)) for name, make in HELD.items()},
}
#: Constants that decide where blocks and chunks end, by the rooms that have a copy.
SMALL = {
    "data.units.CHUNK_ENTRIES": 4,
    "kernels.spans.MAX_ROWS": 2,
    "data.tables.table.MAX_ROWS": 2,
    "data.readable.BLOCK_BYTES": 7,
}


def whole(source: Any) -> Counter[bytes]:
    return units_of(source)


def shards(source: Any) -> Counter[bytes]:
    """What processes of a cluster read side by side."""
    parts: Iterator[Any] = (part.open() if isinstance(part, Shard) else part for part in source.parts(3))
    return sum(map(units_of, parts), Counter[bytes]())


def read(reader: str, found: Sequence[Record], held: Callable[[Any], Counter[bytes]]) -> Counter[bytes]:
    write, make = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        return held(make(write(found, Path(folder))))


def check(reader: str, found: Sequence[Record]) -> None:
    """Hold a reader against the oracle."""
    persons = dict.fromkeys(identity(record.who) for record in found)
    own = [[one for one in found if identity(one.who) == person] for person in persons if person is not None]
    alone = sum((read(reader, one, whole) for one in own), Counter[bytes]())
    assert read(reader, found, whole) == alone
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(f"dpvb.{name}", value)
        assert read(reader, found, shards) == alone


@pytest.mark.guarantees("order in a unit")
@kills(
    "readers", "a person's sequences in the order in which all persons' parts are numbered", "events, in order, lists"
)
@edit(
    "data/sequences/content.py",
    "    begun_n = order[begins][np.cumsum(begins) - 1]\n",
    "    _, first_n, own_n = np.unique(part_n, return_index=True, return_inverse=True)\n"
    "    begun_n = first_n[own_n][order]\n",
)
@pytest.mark.parametrize("reader", READERS)
def test_the_units_of_a_collection_are_those_of_each_persons_records_alone(reader: str) -> None:
    """Records of several persons among one another, in every reader, in memory, streamed, and in shards."""
    examples = 3 if "streamed" in reader else 6

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(collections)
    def holds(found: list[Record]) -> None:
        check(reader, found)

    holds()
