"""The law of readers as the oracle of the fuzzer: bytes become records, and two files that differ in one record.

Every door is written by a correct writer of its format (Python's csv and json, pyarrow, SciPy, or a plain one of this
file). The two files are read with blocks of a few bytes; their units may differ in the one record's unit, and nothing
else may differ. So a finding is not a crash but a record that shows. Beside the doors stand bodies of any bytes: they
raise nothing, and are read alike in small blocks and in large ones.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 3
SEPARATOR, FIELD = b"\xf5\x01", b"\xf5\x02"
MOST_RECORDS, MOST_TEXT = 8, 40
#: Constants that decide where blocks end and what is too long, by the rooms that have a copy of them.
ROOMS = (
    "data.readable",
    "data.documents.files",
    "data.csv_files",
    "data.arrow",
    "data.documents.matrix_files",
    "kernels.spans",
    "data.documents.vocabulary",
    "data.tables.table",
    "data.units",
    "data.documents.bag_of_words",
)
SMALL = {"MAX_DOCUMENT_BYTES": MOST_TEXT, "MAX_ROWS": 3, "MAX_ENTRIES": 16, "CHUNK_ENTRIES": 16}
SIGNS = [*'ab ,"{}[]:%+-.019e\n\r\t\0\x1c\x85\xa0\u2028\ufeff\ufffd']
#: Cells that lists, arrays and columns may hold, by a byte.
CELLS: list[Any] = [
    0,
    1,
    2.5,
    -1,
    "n/k",
    "1",
    "2.5",
    b"1",
    None,
    float("nan"),
    float("inf"),
    True,
    10**30,
    2j,
    "",
    " 7 ",
]
CELLS += ["nan", "True", "1e3", "007", 2**53 + 1, [1], "\ud800", np.float64(3), np.complex128(1), np.ma.masked]
TIMES: list[Any] = [
    *(date(2020, 1, 1), datetime(2020, 1, 1, 10), datetime(2020, 1, 1, 10, tzinfo=UTC), time(12, 30), timedelta(1)),
    *(np.datetime64("2020-01", "M"), np.datetime64("2020-01-01"), np.datetime64(1, "ns"), np.datetime64("12000-01-01")),
    *(np.timedelta64(1, "h"), np.timedelta64(3600, "s"), np.timedelta64(1, "ns"), np.datetime64("NaT")),
    *(np.datetime64(2, "ns"), np.datetime64(1500, "ps"), np.datetime64(1, "us"), datetime(1970, 1, 1, 0, 0, 0, 1)),
]
CELLS += ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.0000000015Z", "1970-01-01T01:00:00.000001+01:00"]
CELLS += ["2020-01-01", "2020-01-01 10:00:00", "12:30", "1 days 00:00:00", "#N/A", b"\xff", *TIMES]


class RecordShows(Exception):  # noqa: N818
    """A record that shows in more than its own unit."""


def shrink(block_bytes: int) -> None:
    """Make blocks a few bytes long, and every limit small."""
    for room in ROOMS:
        module = import_module(f"dpvb.{room}")
        for name, value in {**SMALL, "BLOCK_BYTES": block_bytes}.items():
            if hasattr(module, name):
                setattr(module, name, value)


@dataclass(frozen=True)
class Input:
    """What the fuzzer's bytes stand for: options, records of fields, and which one the neighbour lacks or changes."""

    options: bytes
    records: list[list[bytes]]
    place: int
    instead: list[list[bytes]]

    @classmethod
    def of(cls, content: bytes) -> Input:
        head, body = content[:6].ljust(6, b"\0"), content[6:]
        records = [part.split(FIELD)[:WIDTH] for part in body.split(SEPARATOR)[: MOST_RECORDS + 1]]
        place = head[0] % len(records)
        instead = [records.pop()] if head[1] % 2 and len(records) > 1 else []
        place = min(place, len(records) - 1)
        if instead:  # A record is changed, not whose it is: ids stand second, those of tables first.
            instead = [[instead[0][0], *(*records[place], b"")[1:2], *instead[0][2:]]]
        return cls(head, records, place, instead)

    def option(self, place: int, choices: Sequence[Any]) -> Any:
        return choices[self.options[place] % len(choices)]


Write = Callable[[Sequence[list[bytes]], Path], object]
Check = Callable[[bytes, Path], None]


class NoSuchFile(Exception):  # noqa: N818
    """The writer of a format does not take these records."""


def law(write: Callable[[Input], Write], read: Callable[[Input], Callable[[Any], Any]]) -> Check:
    """A reader for the fuzzer: raises where a record shows."""

    def check(content: bytes, folder: Path) -> None:
        from dpvb.audit.readers import differences

        given = Input.of(content)
        shrink(given.option(2, [1, 2, 3, 5, 7, 16, 64, 2**16]))
        neighbour = [*given.records[: given.place], *given.instead, *given.records[given.place + 1 :]]

        def written(records: Sequence[list[bytes]], place: Path) -> object:
            try:
                return write(given)(records, place)
            except (ValueError, TypeError, OverflowError) as error:
                raise NoSuchFile from error

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found = differences(written, read(given), given.records, neighbour)
            except NoSuchFile:
                return
        if found:
            raise RecordShows("; ".join(found))

    return check


# --- texts ------------------------------------------------------------------------------------------------------


def text(record: Sequence[bytes], place: int = 0) -> str:
    return (record[place] if place < len(record) else b"").decode("utf-8", "replace")


def documents(given: Input) -> Callable[[Any], Any]:
    from dpvb.data import open_documents

    grouped = given.option(3, [None, None, "id"])
    stream = given.option(4, [None, False, True]) if grouped is None else None
    options = {"vocabulary": SIGNS, "token_pattern": "(?s).", "group_column": grouped, "stream": stream}
    return partial(open_documents, **options)


def plain_documents(given: Input) -> Callable[[Any], Any]:
    from dpvb.data import open_documents

    return partial(open_documents, vocabulary=SIGNS, token_pattern="(?s).", stream=given.option(4, [None, False, True]))


def packed(path: Path, content: bytes, given: Input) -> Path:
    if given.option(5, [False, False, True]):
        path = path.with_name(path.name + ".gz")
        content = gzip.compress(content, mtime=0)
    path.write_bytes(content)
    return path


def csv_bytes(rows: list[list[str]], given: Input, separator: str = ",") -> bytes:
    out = io.StringIO(newline="")
    quoting = given.option(3, [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    end = given.option(5, ["\r\n", "\n"])
    csv.writer(out, quoting=quoting, lineterminator=end, delimiter=separator).writerows(rows)
    return out.getvalue().encode("latin-1")


def write_csv(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        rows = [["text", "id"], *([*(part.decode("latin-1") for part in (*r, b"", b"")[:2])] for r in records)]
        return packed(folder / "x.csv", csv_bytes(rows, given), given)

    return write


def write_one_column(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        rows = [["text"], *([r[0].decode("latin-1")] for r in records)]
        return packed(folder / "x.csv", csv_bytes(rows, given), given)

    return write


def write_two_files(given: Input) -> Write:
    """CSV and JSON lines with the same persons."""

    def write(records: Sequence[list[bytes]], folder: Path) -> list[Path]:
        one, other = ([r for r in records if len(r[0]) % 2 == rest] for rest in (0, 1))
        return [write_csv(given)(one, folder), write_jsonl(given)(other, folder)]

    return write


def json_value(part: str) -> Any:
    try:
        return json.loads(part)
    except (ValueError, RecursionError):
        return part


def write_jsonl(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        ascii_only = given.option(4, [True, False])
        lines = [
            json.dumps({"id": json_value(text(r, 1)), "text": json_value(text(r))}, ensure_ascii=ascii_only) + "\n"
            for r in records
        ]
        return packed(folder / "x.jsonl", "".join(lines).encode("utf-8", "surrogatepass"), given)

    return write


def write_txt(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        return packed(folder / "x.txt", b"".join(r[0].replace(b"\n", b" ") + b"\n" for r in records), given)

    return write


def write_folder(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        for number, record in enumerate(records):
            (folder / f"{number}.txt").write_bytes(record[0])
        return folder

    return write


def write_parquet(given: Input) -> Write:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        columns = {"text": [text(r) for r in records], "id": [text(r, 1) for r in records]}
        kind = given.option(5, [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
        arrays = {name: pa.array(values, pa.string()).cast(kind) for name, values in columns.items()}
        pq.write_table(pa.table(arrays), folder / "x.parquet", row_group_size=given.option(1, [1, 2, 100]))
        return folder / "x.parquet"

    return write


# --- numbers ----------------------------------------------------------------------------------------------------


def numbers(record: Sequence[bytes]) -> list[float]:
    """Three numbers of any bits, now and then whole ones."""
    content = b"".join(record).ljust(8 * WIDTH, b"\0")[: 8 * WIDTH]
    found = struct.unpack(f"<{WIDTH}d", content)
    return [float(content[8 * n]) if content[8 * n + 7] == 0 else found[n] for n in range(WIDTH)]


def triples(records: Sequence[list[bytes]]) -> list[tuple[int, int, float]]:
    rows = enumerate(map(numbers, records), 1)
    return [(n, v, value) for n, row in rows for v, value in enumerate(row, 1) if value != 0]


def counts(given: Input) -> Callable[[Any], Any]:
    from dpvb.data import open_documents

    return partial(open_documents, width=WIDTH, stream=given.option(4, [None, False, True]))


def write_npz(given: Input) -> Write:
    from scipy import sparse

    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        rows = np.array([numbers(r) for r in records]).reshape(-1, WIDTH)
        kind = given.option(5, [np.float64, np.float32, np.complex128])
        with np.errstate(all="ignore"):
            matrix = sparse.csr_array(rows.astype(kind))
        sparse.save_npz(folder / "x.npz", matrix, compressed=given.option(3, [True, False]))
        return folder / "x.npz"

    return write


def in_order(found: list[tuple[int, int, float]], given: Input) -> list[tuple[int, int, float]]:
    return sorted(found, key=lambda triple: triple[1]) if given.option(3, [False, True]) else found


def write_mtx(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        found = in_order(triples(records), given)
        lines = ["%%MatrixMarket matrix coordinate real general", "%", f"{len(records)} {WIDTH} {len(found)}"]
        lines += [*(f"{n} {v} {c!r}" for n, v, c in found), ""]
        return packed(folder / "x.mtx", "\n".join(lines).encode(), given)

    return write


def write_docword(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        found = in_order(triples(records), given)
        lines = [str(len(records)), str(WIDTH), str(len(found)), *(f"{n} {v} {c!r}" for n, v, c in found), ""]
        return packed(folder / "docword.x.txt", "\n".join(lines).encode(), given)

    return write


def write_lda_c(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        lines = []
        for record in records:
            pairs = [f"{v}:{c!r}" for v, c in enumerate(numbers(record)) if c != 0]
            lines.append(" ".join([str(len(pairs)), *pairs]) + "\n")
        return packed(folder / "x.ldac", "".join(lines).encode(), given)

    return write


def write_idx(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        head = b"\0\0\x08\x02" + struct.pack(">II", len(records), WIDTH)
        body = b"".join(b"".join(r).ljust(WIDTH, b"\0")[:WIDTH] for r in records)
        return packed(folder / "x-ubyte", head + body, given)

    return write


def images(given: Input) -> Callable[[Any], Any]:
    from dpvb.cli.files import read_matrix
    from dpvb.data import BinaryMatrix

    return lambda path: BinaryMatrix(read_matrix(path), threshold=given.option(3, [None, 0.0, 100.0]))


# --- tables -----------------------------------------------------------------------------------------------------


def dialect(given: Input) -> dict[str, str]:
    """How a CSV file of a table is written."""
    commas = [
        {"separator": sign, "decimal": ",", "encoding": name} for sign in (";", "\t") for name in ("utf-8", "cp1252")
    ]
    return given.option(0, [{"separator": ","}, {"separator": "|", "encoding": "latin-1"}, *commas])  # type: ignore[no-any-return]


def table_of_csv(given: Input) -> Callable[[Any], Any]:
    return table(given, **dialect(given))


def table(given: Input, **how: Any) -> Callable[[Any], Any]:
    from dpvb.data import Categorical, Numeric, Schema, Table, Target

    grouped = given.option(4, [None, None, "id"])
    number = Numeric("text", low=0, high=2, missing=given.option(1, [None, 1.0]))
    if grouped is not None:
        schema = Schema((number,), Target("kind", classes=(0, 1)), grouped)
    else:
        schema = Schema((number, Categorical("kind", ("a", "1", "b"))), Target("id", classes=(0, 1)))
    return lambda data: Table(data, schema, **how).design()


def events_of_csv(given: Input) -> Callable[[Any], Any]:
    return events(given, **dialect(given))


def events(given: Input, **how: Any) -> Callable[[Any], Any]:
    """Events of persons, with moments or in order, in one part or in several, at once or by files of their own."""
    from dpvb.data import Events
    from dpvb.data.sequences.content import Symbols

    symbols, when = Symbols(("a", "1", "b")), given.option(1, [None, "text"])
    how |= {"person": "id", "symbol": "kind", "time": when, "stream": given.option(2, [False, True])}
    how["sequence"] = given.option(3, [None, "part"])
    return lambda data: Events(data, **how).sequences(symbols)


def sequences(given: Input) -> Callable[[Any], Any]:
    """Each record's cells as a sequence of its own, or of the person that its second cell names."""
    from dpvb.data.sequences.content import Symbols

    symbols, grouped = Symbols((0, 1, "a")), given.option(4, [False, True])
    return lambda rows: symbols.sequences(rows, group=second_of(rows) if grouped else None)


def second_of(rows: Any) -> list[Any]:
    """The second cell of each sequence."""
    return [row[1] for row in rows]


def sequences_of(given: Input) -> Write:
    """Records in a list of lists, of tuples, or of arrays of objects."""
    make = given.option(5, [list, tuple, partial(as_array, objects=True)])

    def write(records: Sequence[list[bytes]], folder: Path) -> Any:
        return [make(cells(r)) for r in records]

    return write


def write_table(given: Input) -> Write:
    def write(records: Sequence[list[bytes]], folder: Path) -> Path:
        rows = [["text", "id", "kind"]]
        rows += [[part.decode("latin-1") for part in (*r, b"", b"", b"")[:3]] for r in records]
        return packed(folder / "x.csv", csv_bytes(rows, given, dialect(given)["separator"]), given)

    return write


def part(record: Sequence[bytes]) -> str:
    """Which of a few parts an event belongs to."""
    return f"part {len(record[-1]) % 4}"


def write_events(given: Input) -> Write:
    """A long table, in one file or in two."""

    def write(records: Sequence[list[bytes]], folder: Path) -> Any:
        number = given.option(4, [1, 2])
        paths = []
        for place in range(number):
            rows = [["text", "id", "kind", "part"]]
            for record in (r for r in records if len(r[0]) % number == place):
                rows += [[*(field.decode("latin-1") for field in (*record, b"", b"", b"")[:3]), part(record)]]
            content = csv_bytes(rows, given, dialect(given)["separator"])
            paths += [packed(folder / f"{place}.csv", content, given)]
        return paths if number > 1 else paths[0]

    return write


def write_inferred(given: Input) -> Write:
    """A long table in two files of the types that Arrow infers from the cells of each."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    times = MOMENTS[: given.option(4, [4, len(CLOSE) + 1, len(MOMENTS)])]

    def write(records: Sequence[list[bytes]], folder: Path) -> Any:
        for place in (0, 1):
            rows = [["text", "id", "kind", "part"]]
            for record in (r for r in records if len(r[-1]) % 2 == place):
                when, _, symbol = (field[0] if field else 0 for field in (*record, b"", b"")[:3])
                rows += [[times[when % len(times)], text(record, 1), "a1bc"[symbol % 4], part(record)]]
            out = io.StringIO(newline="")
            csv.writer(out).writerows(rows)
            content = out.getvalue().encode("utf-8", "replace")
            # Ids are texts: what a writer loses is nobody's here.
            kinds = {"id": pyarrow.string(), "kind": pyarrow.string()}
            table = pyarrow.csv.read_csv(
                io.BytesIO(content), convert_options=pyarrow.csv.ConvertOptions(column_types=kinds)
            )
            pq.write_table(table, folder / f"{place}.parquet", row_group_size=given.option(1, [1, 2, 100]))
        return [folder / "0.parquet", folder / "1.parquet"]

    return write


#: Texts of moments, of which a writer makes columns of types; the first few differ in nanoseconds, or are odd.
CLOSE = [".000000001", ".0000005", ".000000002", ".000000003", ".0000000004"]
MOMENTS = [
    *(f"2020-01-01T00:00:00{rest}" for rest in CLOSE),
    "odd",
    "2020-01-01T00:00:00Z",
    "2020-01-01",
    "",
    "7",
    "0.1",
]
MOMENTS += ["2019-12-31T23:59:59.999999999", "2020-01-01 01:00+01:00", "1e5", "12:30", "2020-01-01T00:00:00.000000002Z"]


def cells(record: Sequence[bytes]) -> list[Any]:
    """A cell of each field."""
    first = [part[0] if part else 0 for part in (*record, b"", b"", b"")[:WIDTH]]
    return [CELLS[byte % len(CELLS)] for byte in first]


def columns_of(given: Input) -> Write:
    """The same columns in a mapping of lists, of arrays with the type that NumPy gives them, in pandas, or in Arrow."""
    form = given.option(
        5, ["lists", "objects", "arrays", "pandas", "stamps", "arrow", "arrow in pandas", "csv", "parquet"]
    )

    def write(records: Sequence[list[bytes]], folder: Path) -> Any:
        lists = columns([cells(r) for r in records])
        lists["part"] = [part(r) for r in records]
        if form == "lists":
            return lists
        if form == "arrays":
            lists = known(lists)
        if form in ("objects", "arrays"):
            return {name: as_array(values, objects=form == "objects") for name, values in lists.items()}
        return quietly(of_pandas if form in ("pandas", "stamps") else of_arrow, lists, form)

    return write


def quietly(write: Callable[..., Any], lists: dict[str, list[Any]], form: str) -> Any:
    """What a writer of pandas or Arrow makes; it may warn, and raises TypeError for what it does not take."""
    import pyarrow as pa

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return write(known(lists), form)
        except (pa.ArrowException, NotImplementedError) as error:
            raise TypeError from error


def columns(rows: list[list[Any]]) -> dict[str, list[Any]]:
    """The columns of rows of cells; those that are mostly lists are a public form, and refused."""
    lists = {name: [row[n] for row in rows] for n, name in enumerate(("text", "id", "kind"))}
    for values in lists.values():
        number = sum(isinstance(cell, list) for cell in values)
        if number and 2 * number >= len(values) - 1:
            raise TypeError
    return lists


def known(lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns without ids in exponent form, or beyond 2^53: they are lost where a column becomes floats."""
    return {**lists, "id": [7 if cell in LOST else cell for cell in lists["id"]]}


def of_pandas(lists: dict[str, list[Any]], form: str) -> Any:
    """A frame; with pandas' own times ("stamps") in the place of others."""
    import pandas as pd

    def stamp(cell: Any) -> Any:
        if isinstance(cell, (np.datetime64, datetime)):
            return pd.Timestamp(cell)
        return pd.Timedelta(cell) if isinstance(cell, (np.timedelta64, timedelta)) else cell

    kind = None if lists["text"] else object
    made = {name: [*map(stamp, values)] if form == "stamps" else values for name, values in lists.items()}
    return pd.DataFrame({name: pd.Series(values, dtype=kind) for name, values in made.items()})


def of_arrow(lists: dict[str, list[Any]], form: str) -> Any:
    """A table of the types that Arrow infers, by values or from a CSV file; or of unchecked text, read by pandas."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    if form == "csv":
        content = pd.DataFrame({n: pd.Series(v, dtype=object) for n, v in lists.items()}).to_csv(index=False)
        return pyarrow.csv.read_csv(io.BytesIO(content.encode("utf-8", "replace")))
    if form == "parquet":
        texts = {
            n: [c if isinstance(c, bytes) or c is None else str(c).encode("utf-8", "replace") for c in v]
            for n, v in lists.items()
        }
        file = io.BytesIO()
        pq.write_table(pa.table({n: pa.array(v, pa.binary()).view(pa.string()) for n, v in texts.items()}), file)
        return pd.read_parquet(file)
    for values in lists.values():
        # Arrow makes times of the whole numbers among them, and crashes on some scalars of NumPy's beside them.
        times = [isinstance(cell, TIME) for cell in values]
        if any(times) and not all(times):
            raise TypeError
    table = pa.table(lists)
    return table if form == "arrow" else table.to_pandas(types_mapper=pd.ArrowDtype)


LOST = ("1e3", 2**53 + 1, 10**30)
TIME = (np.datetime64, np.timedelta64, date, time, timedelta)


def as_array(values: list[Any], *, objects: bool) -> Any:
    array = np.empty(len(values), dtype=object)
    for n, value in enumerate(values):
        array[n] = value
    if objects or any(isinstance(v, (list, np.ma.core.MaskedConstant)) for v in values):
        return array
    times = [isinstance(value, TIME) for value in values]
    # NumPy makes times of the numbers among them, and drops the zone of those beside its own.
    if any(times) and (not all(times) or any(isinstance(value, np.datetime64) for value in values)):
        return array
    try:
        return np.array(values) if values else array
    except (ValueError, OverflowError):
        return array


def matrix_of(given: Input) -> Write:
    """Rows in a list, whose width is that of most of them, and so of three more at least; in an array, or a frame."""
    form = given.option(5, ["list", "objects", "pandas", "stamps", "arrow", "arrow in pandas", "csv", "parquet"])

    def write(records: Sequence[list[bytes]], folder: Path) -> Any:
        rows = [cells(r) for r in records]
        if form not in ("list", "objects"):
            return quietly(of_pandas if form in ("pandas", "stamps") else of_arrow, columns(rows), form)
        columns(rows)
        if form == "list":
            return [*rows, [1, 0, 1], [0, 1, 0], [1, 1, 1]]
        array = np.empty((len(rows), WIDTH), dtype=object)
        for n, row in enumerate(rows):
            array[n] = as_array(row, objects=True)
        return array

    return write


def second(table: Any) -> Any:
    """The second column of a frame of pandas or a table of Arrow."""
    return table.iloc[:, 1] if hasattr(table, "iloc") else table.column(1)


def design(given: Input) -> Callable[[Any], Any]:
    from dpvb.data import BinaryMatrix, Design
    from dpvb.data.tables.numbers import Numbers

    def read(rows: Any) -> Any:
        # An id is not changed, but as a response it may be anything.
        last: Any = [row[1] for row in rows] if isinstance(rows, (list, np.ndarray)) else second(rows)
        kind = given.option(3, ["dense", "sparse", "binary", "numbers", "persons"])
        if kind == "binary":
            return BinaryMatrix(rows)
        if kind == "numbers":
            return Numbers(rows, last)
        return Design(rows, last, sparse_rows=kind == "sparse", group=last if kind == "persons" else None)

    return read


# --- bodies of any bytes ------------------------------------------------------------------------------------------


def body(name: str, head: bytes, read: Callable[[Path], Any]) -> Check:
    """A body of any bytes behind a sound header raises nothing, and reads alike in blocks of every size."""

    def check(content: bytes, folder: Path) -> None:
        from dpvb.audit.readers import units_of
        from dpvb.errors import DpvbError

        path = folder / name
        path.write_bytes(head + content[1:])
        found = []
        for block_bytes in (1 + content[0] % 9 if content else 1, 2**16):
            shrink(block_bytes)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found.append(units_of(read(path)))
                except DpvbError as error:
                    raise RecordShows(f"a body is refused: {error}") from error
        if found[0] != found[1]:
            raise RecordShows("a block's end shows")

    return check


def any_documents(**options: Any) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        from dpvb.data import open_documents

        return open_documents(path, **options)

    return read


WORDS: dict[str, Any] = {"vocabulary": SIGNS, "token_pattern": "(?s)."}
CHECKS: dict[str, Check] = {
    "law csv": law(write_csv, documents),
    "law csv of one column": law(write_one_column, plain_documents),
    "law jsonl": law(write_jsonl, documents),
    "law parquet": law(write_parquet, documents),
    "law files of two formats": law(
        write_two_files,
        lambda given: any_documents(group_column="id", **WORDS),  # type: ignore[return-value]
    ),
    "law txt": law(write_txt, plain_documents),
    "law folder": law(write_folder, plain_documents),
    "law npz": law(write_npz, counts),
    "law mtx": law(write_mtx, counts),
    "law docword": law(write_docword, counts),
    "law lda-c": law(write_lda_c, counts),
    "law idx": law(write_idx, images),
    "law table of csv": law(write_table, table_of_csv),
    "law table in memory": law(columns_of, table),
    "law matrix in memory": law(matrix_of, design),
    "law events of csv": law(write_events, events_of_csv),
    "law events of types that are inferred": law(write_inferred, events),
    "law events in memory": law(columns_of, events),
    "law sequences in memory": law(sequences_of, sequences),
    "law csv, any body": body("x.csv", b"id,text\n", any_documents(**WORDS)),
    "law csv of Europe, any body": body(
        "x.csv", b"id;text\n", any_documents(separator=";", encoding="cp1252", **WORDS)
    ),
    "law csv of persons, any body": body("x.csv", b"id,text\n", any_documents(group_column="id", **WORDS)),
    "law jsonl, any body": body("x.jsonl", b"", any_documents(**WORDS)),
    "law txt, any body": body("x.txt", b"", any_documents(**WORDS)),
    "law mtx, any body": body("x.mtx", b"%%MatrixMarket matrix coordinate real general\n6 3 9\n", any_documents()),
    "law docword, any body": body("docword.x.txt", b"6\n3\n9\n", any_documents()),
    "law lda-c, any body": body("x.ldac", b"", any_documents(width=WIDTH)),
}


def seeds() -> list[bytes]:
    """Records with what readers look at, and the options that choose among writers."""
    parts = [
        b"1",
        b'a "b", c',
        b"two\nlines",
        b"\r",
        b"\xef\xbb\xbfa",
        b"\0",
        b"",
        b"a" * 45,
        b'"',
        b"\x1f\x8b\x08",
        b"1.0",
        b"2020-01-01T00:00:00.000000001",
        b"2020-01-01 02:00+02:00",
    ]
    parts += [
        b"[1, {}]",
        b"null",
        b"0",
        b"n/k",
        b"\xff",
        struct.pack("<3d", 1.0, 0.0, 2.5),
        struct.pack("<3d", np.nan, -1, 1e300),
    ]
    made = []
    for first in range(6):
        chosen = parts[first:] + parts[:first]
        records = [FIELD.join(chosen[n : n + 2]) for n in range(0, len(chosen) - 1, 2)][:6]
        made.append(bytes([first, first, first, first, first, first]) + SEPARATOR.join(records))
    bodies = [
        b'1,a\n2,"b\nc"\n',
        b'{"text": "a", "id": 1}\n{',
        b"1 1 2\n2 2 5e3\n3 1 .5\n",
        b"2 0:1 2:5\n1 1:1\n",
        b"a b\n\nc",
    ]
    return [*made, *(b"\3" + part for part in bodies)]
