"""Files of text: JSON lines, Parquet, one document a line, and folders; CSV has a file of its own.

Each reader yields one tuple of columns for each record. A record that cannot be read (bad JSON, a missing
field) is a tuple of None: an empty document of nobody. Text stays bytes until the tokenizer decodes it as
UTF-8, so that undecodable bytes empty their own document alone.

==============  ========================================  ====================================================
format          a record is                               damage reaches
==============  ========================================  ====================================================
txt             a line; it holds no line feed             its own line
jsonl           a line; blank ones are skipped            its own line: bad JSON, another kind of value, numbers
                                                          of any length, any depth, bytes that are no UTF-8
folder          a .txt file                               its own file; one that cannot be read is empty
parquet         a row                                     a damaged page or footer: the file, which is refused
==============  ========================================  ====================================================

A line, file or text of more than 16 MiB is an empty document. A byte order mark is dropped from every line, so that
the first line is read as all others are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpvb.data.arrow import cells, parquet_batches
from dpvb.data.csv_files import Record
from dpvb.data.readable import BOM, MAX_DOCUMENT_BYTES, lines, open_binary


def json_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of a JSON object on each line; blank lines are skipped."""
    nothing = (None,) * len(columns)
    with open_binary(path) as file:
        for line in lines(file):
            if not line.strip():
                continue
            try:
                record = json.loads(line.removeprefix(BOM).decode())
            except (ValueError, RecursionError, MemoryError):
                record = None
            yield tuple(map(record.get, columns)) if isinstance(record, dict) else nothing


def line_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield each line as a document; blank lines are empty documents."""
    with open_binary(path) as file:
        for line in lines(file):
            yield (line.removeprefix(BOM),)


def folder_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield each .txt file below a folder, in order of name; one that cannot be read is an empty document."""
    for name in sorted(folder_files(path)):
        text = None
        with suppress(OSError), open(name, "rb") as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1)
        yield (None if text is None or len(text) > MAX_DOCUMENT_BYTES else text,)


def folder_files(path: Path) -> Iterator[str]:
    """Yield the .txt files below a folder."""
    for folder, _, names in os.walk(path):
        whole = (os.path.join(folder, name) for name in names if name.lower().endswith(".txt"))
        yield from (name for name in whole if os.path.isfile(name))


def parquet_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of each row; a null is an empty document.

    Raises:
        DataFormatError: a file that cannot be read to its end.
    """
    for batch in parquet_batches(path, columns, batch_rows=1024):
        yield from zip(*(cells(batch.column(name)) for name in columns), strict=True)
