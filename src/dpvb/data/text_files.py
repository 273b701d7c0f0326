"""Files of text: JSON lines, CSV, Parquet, one document a line, and folders.

Each reader yields one tuple of columns for each record. A record that cannot be read (bad JSON, a missing
field, a wrong number of fields) is a tuple of None: an empty document of nobody. Text stays bytes until the
tokenizer decodes it as UTF-8, so that undecodable bytes empty their own document alone.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpvb.data.storage import MAX_DOCUMENT_BYTES, lines, open_binary
from dpvb.errors import DataFormatError

_BOM = b"\xef\xbb\xbf"

Record = tuple[object, ...]
CHOOSE = "choose it with text_column= (and group_column=)."


def json_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of a JSON object on each line; blank lines are skipped."""
    nothing = (None,) * len(columns)
    with open_binary(path) as file:
        for line in _without_bom(lines(file)):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            yield tuple(map(record.get, columns)) if isinstance(record, dict) else nothing


def check_csv(path: Path, columns: tuple[str, ...], hint: str = CHOOSE) -> None:
    """Check that the header line names the columns; `hint` says how they are chosen.

    Raises:
        DataFormatError: naming the missing column. The line itself is not shown: in a file without a header
            it is somebody's.
    """
    for column in columns:
        if times_in_header(path, column) != 1:
            raise DataFormatError(
                f"The first line of {str(path)!r} must be a header that names the column {column!r} once; {hint}"
            )


def times_in_header(path: Path, column: str) -> int:
    """How often the first line of a CSV file names a column."""
    with open_binary(path) as file:
        header = next(_csv_rows(_without_bom(lines(file))), None) or []
    return header.count(_byte_string(column))


def csv_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of each CSV record; blank lines are skipped.

    Quotes decide where a record ends, so a file must come from a CSV writer. A quote that is never closed
    costs its own line only.
    """
    nothing = (None,) * len(columns)
    with open_binary(path) as file:
        rows = _csv_rows(_without_bom(lines(file)))
        header = next(rows) or []
        places = [header.index(_byte_string(column)) for column in columns]
        for row in rows:
            if row is None or len(row) not in (0, len(header)):
                yield nothing
            elif row:
                yield tuple(row[place].encode("latin-1") for place in places)


def line_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield each line as a document; blank lines are empty documents."""
    with open_binary(path) as file:
        for line in _without_bom(lines(file)):
            yield (line,)


def folder_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield each .txt file below a folder, in order of name; one that cannot be read is an empty document."""
    for name in sorted(folder_files(path)):
        try:
            with name.open("rb") as file:
                text = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError:
            text = b""
        yield (text if len(text) <= MAX_DOCUMENT_BYTES else None,)


def folder_files(path: Path) -> Iterator[Path]:
    """Yield the .txt files below a folder."""
    return (name for name in path.rglob("*.txt") if name.is_file())


def parquet_schema(path: Path) -> Any:
    """The Arrow schema of a Parquet file.

    Raises:
        DataFormatError: pyarrow is not installed, or the file is not Parquet.
    """
    arrow = import_arrow()
    schema = None
    try:
        with arrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
    except (OSError, ValueError):
        pass
    if schema is None:
        raise DataFormatError(f"The file {str(path)!r} is not a readable Parquet file.")
    return schema


def check_parquet(path: Path, columns: tuple[str, ...]) -> None:
    """Check that the file is Parquet and that its schema has the columns.

    Raises:
        DataFormatError: pyarrow is not installed, the file is not Parquet, or a column is missing or of the
            wrong type: text must be strings, persons strings or integers.
    """
    arrow, schema = import_arrow(), parquet_schema(path)
    for column in columns:
        if schema.names.count(column) != 1:
            raise DataFormatError(
                f"The Parquet file {str(path)!r} has no column {column!r}; its columns are {schema.names}. "
                "Choose one with text_column= (and group_column=)."
            )
        kind = schema.field(column).type
        is_text = arrow.types.is_string(kind) or arrow.types.is_large_string(kind)
        if not is_text and (column == columns[0] or not arrow.types.is_integer(kind)):
            raise DataFormatError(
                f"The column {column!r} of {str(path)!r} must hold strings"
                f"{'' if column == columns[0] else ' or integers'}, got {kind}."
            )


def parquet_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of each row, a batch of rows at a time; a null is an empty document."""
    arrow = import_arrow()
    with arrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024, columns=list(dict.fromkeys(columns))):
            # As bytes: Arrow does not promise that its strings are UTF-8, and decoding would raise.
            read = (batch.column(column) for column in columns)
            values = (v if arrow.types.is_integer(v.type) else v.cast(arrow.large_binary()) for v in read)
            yield from zip(*(v.to_pylist() for v in values), strict=True)


class _CsvLines:
    """Lines for csv.reader; those of the current record but its first can be taken back."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._again: list[bytes] = []
        self._record: list[bytes] = []
        self._size = 0

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        if self._size > MAX_DOCUMENT_BYTES:
            raise csv.Error
        line = self._again.pop() if self._again else next(self._source)
        self._record.append(line)
        self._size += len(line)
        return line.decode("latin-1")

    def begin(self) -> None:
        self._record, self._size = [], 0

    def take_back(self) -> None:
        self._again += self._record[:0:-1]


def _csv_rows(source: Iterator[bytes]) -> Iterator[list[str] | None]:
    """Yield each record's fields, bytes as Latin-1, or None where it is malformed."""
    # The limit is the process's, and only ever raised: documents beyond 128 KiB are ordinary.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_DOCUMENT_BYTES))
    waiting = _CsvLines(source)
    reader = csv.reader(waiting, strict=True)
    while True:
        waiting.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            waiting.take_back()
            yield None
        else:
            yield row


def _without_bom(source: Iterator[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(source):
        yield line.removeprefix(_BOM) if number == 0 else line


def _byte_string(text: str) -> str:
    return text.encode().decode("latin-1")


def import_arrow() -> Any:
    """pyarrow, which is an optional dependency.

    Raises:
        DataFormatError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        pyarrow = None
    if pyarrow is None:
        raise DataFormatError("Reading Parquet needs pyarrow: pip install dpvb[arrow].")
    return pyarrow
