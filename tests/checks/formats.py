"""The law of readers on the formats that this package reads, with hostile records."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.audit import check_reader
from dpvb.data import open_documents
from dpvb.results.audit_report import Check


def shipped_readers() -> Iterator[Check]:
    """The law on each format."""
    texts = ["a b", 'say "a", b', "two\nlines", "\r", "", "\ufeffa", "\x00b", "a" * 30, '"', ",,", "\x1f\x8b", "[{"]
    words = [*"ab", "two", "lines"]
    for form in ("csv", "jsonl", "txt", *(("parquet",) if find_spec("pyarrow") else ())):
        read = partial(open_documents, vocabulary=words)
        yield from check_reader(f"{form} files", partial(_write_texts, form), read, texts, 'b\n"a')
        private = partial(_over, words=words)
        yield from check_reader(
            f"{form} files, words to be found", partial(_write_texts, form), private, texts, 'b\n"a'
        )
    europe = partial(open_documents, vocabulary=words, separator=";", encoding="cp1252")
    yield from check_reader("csv files of Europe", partial(_write_texts, "csv", separator=";"), europe, texts, 'b\n"a')
    counts: list[list[float]] = [[1, 0, 2], [0, 0, 0], [0.5, np.nan, 1], [np.inf, 1, 1], [1e300, 1e-300, 3], [-1, 2, 2]]
    for form in ("npz", "mtx", "docword.txt", "ldac"):
        read = partial(open_documents, width=3)
        yield from check_reader(f"{form} files", partial(_write_counts, form), read, counts, [9, 9, 9])


def _over(path: Path, words: Sequence[str]) -> Any:
    """Texts of which all words were read, once some of these have been found."""
    texts: Any = open_documents(path, vocabulary="private")
    return texts.over(words)


def _write_texts(form: str, texts: Sequence[str], folder: Path, separator: str = ",") -> Path:
    path = folder / f"texts.{form}"
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator).writerows([["n", "text"], *(["1", text] for text in texts)])
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif form == "txt":
        path.write_bytes(b"".join(text.replace("\n", " ").encode() + b"\n" for text in texts))
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())}), path)
    return path


def _write_counts(form: str, rows: Sequence[Sequence[float]], folder: Path) -> Path:
    path, matrix = folder / f"docword.{form}", sparse.csr_array(np.array(rows, dtype=np.float64).reshape(-1, 3))
    entries = [(n, v, c) for n, row in enumerate(rows) for v, c in enumerate(row) if c != 0]
    triples = [f"{n + 1} {v + 1} {float(c)!r}" for n, v, c in entries]
    if form == "npz":
        sparse.save_npz(path, matrix)
    elif form == "ldac":
        lines = [[f"{v}:{c!r}" for v, c in enumerate(row) if c != 0] for row in rows]
        path.write_text("".join(f"{len(line)} {' '.join(line)}\n" for line in lines))
    elif form == "mtx":
        head = f"%%MatrixMarket matrix coordinate real general\n{len(rows)} 3 {len(triples)}\n"
        path.write_text(head + "".join(f"{line}\n" for line in triples))
    else:
        path.write_text("".join(f"{line}\n" for line in [len(rows), 3, len(triples), *triples]))
    return path
