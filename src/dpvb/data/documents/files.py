"""Files of documents: JSON lines, Parquet, one document a line, folders, and the forms that have modules of their own.

Each reader of text yields one tuple of columns for each record. A record that cannot be read (bad JSON, a missing
field) is a tuple of None: an empty document without a person. Text stays bytes until the tokenizer decodes it as
UTF-8, so that undecodable bytes empty only their own document.

==============  ========================================  ====================================================
format          a record is                               damage reaches
==============  ========================================  ====================================================
txt             a line; it holds no line feed             its own line
jsonl           a line; blank ones are skipped            its own line: bad JSON, another kind of value, numbers
                                                          of any length, any depth, bytes that are not UTF-8
folder          a .txt file                               its own file; one that cannot be read is empty
parquet         a row                                     a damaged page or footer: the file, which is refused
==============  ========================================  ====================================================

A line, file or text of more than 16 MiB is an empty document. A byte order mark is dropped from every line, so that
the first line is read as all others are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpvb.data.arrow import cells, check_parquet, parquet_batches
from dpvb.data.csv_files import USUAL, Dialect, Record, check_csv, csv_records, decoded
from dpvb.data.documents.bag_of_words import BagOfWords, Stream, Texts, in_memory
from dpvb.data.documents.count_rows import DocumentSource, clean_slabs, concatenate, restored, stored
from dpvb.data.documents.matrix_files import OpenedFile, open_docword, open_lda_c, open_matrix_market, open_npz
from dpvb.data.documents.vocabulary import PRIVATE, TOKEN_PATTERN, Tokenizer, Vocabulary, check_vocabulary
from dpvb.data.parsed_once import ParsedOnce
from dpvb.data.partitions import Partitions, Piece
from dpvb.data.persons import newcomers
from dpvb.data.readable import BOM, MAX_DOCUMENT_BYTES, check_readable, check_there, lines, open_binary
from dpvb.data.shards import Shard, Sharded, files_of, one_width, paths_of
from dpvb.data.slabs import Slab
from dpvb.data.stored import Stored
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer
from dpvb.guards.watched import Watched
from dpvb.rows import CountRows


def json_records(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield fields of a JSON object on each line; blank lines are skipped."""
    nothing = (None,) * len(columns)
    with open_binary(path) as file:
        for line in lines(file):
            if not line.strip():
                continue
            try:
                record = json.loads(line.removeprefix(BOM).decode())
            except (ValueError, RecursionError):
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


_MATRIX_FORMATS: dict[str, Callable[[Path], OpenedFile]] = {
    "npz": open_npz,
    "mtx": open_matrix_market,
    "docword": open_docword,
    "lda-c": open_lda_c,
}
_TEXT_FORMATS: dict[str, Callable[[Path, tuple[str, ...]], Iterator[Record]]] = {
    "jsonl": json_records,
    "parquet": parquet_records,
    "txt": line_records,
    "folder": folder_records,
}
_FORMAT_OF_SUFFIX = {
    ".npz": "npz",
    ".mtx": "mtx",
    ".dat": "lda-c",
    ".ldac": "lda-c",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "txt",
}
# A format whose numbers are on disk as a model reads them: a copy would save little.
_BINARY = "npz"
# No documents, as files hold them.
_NONE = Stored({}, Slab(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0)))
# Documents of which the words are counted together; most of them are short.
_PIECE = 1024
_GROUPED = ("jsonl", "csv", "parquet")
_ENCODED = ("csv", "txt", "folder")
FORMATS = (*_MATRIX_FORMATS, "csv", *_TEXT_FORMATS)


class ShardedDocuments(Sharded[CountRows]):
    """Documents in several files with one vocabulary."""

    def __init__(self, shards: Sequence[Shard], width: int, vocabulary: tuple[str, ...] | None, **facts: Any) -> None:
        """Take files of one width; see `Sharded`."""
        super().__init__(shards, **facts)
        self.width, self.vocabulary = width, vocabulary


def open_documents(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    vocabulary: Vocabulary | None = None,
    width: int | None = None,
    file_format: str | None = None,
    text_column: str = "text",
    group_column: str | None = None,
    token_pattern: str = TOKEN_PATTERN,
    stream: bool | None = None,
    separator: str = ",",
    encoding: str = "utf-8",
    exclude_groups: Iterable[object] | None = None,
) -> DocumentSource | Texts:
    """Open files or a folder of documents; a file's name and header are public, its body private.

    =============================  ==========  ==================================================
    name                           format      holds
    =============================  ==========  ==================================================
    .npz                           "npz"       scipy.sparse.save_npz of a CSR matrix
    .mtx                           "mtx"       Matrix Market, coordinate form, documents × terms
    docword*.txt                   "docword"   UCI bag of words
    .dat, .ldac                    "lda-c"     Blei's lda-c
    .jsonl, .ndjson                "jsonl"     a JSON object on each line, text in `text_column`
    .csv                           "csv"       a header line, text in `text_column`
    .parquet                       "parquet"   text in `text_column` (the extra `arrow`)
    .txt                           "txt"       a document on each line
    a folder                       "folder"    a document in each .txt file below it
    a folder of .npz or .parquet               as the list of these files
    a list of names                            all documents, file after file
    =============================  ==========  ==================================================

    All but .npz, .parquet and folders may be gzipped, and .gz then ends the name. Text is UTF-8 unless `encoding` says
    otherwise; a text of more than 16 MiB is an empty document. A faulty record is an empty document and reaches no
    other record; the readers here, `csv_files` and `matrix_files` say for each format how far damage reaches.
    An archive or Parquet file that does not read to its end is refused as a whole. Several files are read one after
    another; or side by side, each by one process of a cluster (see dpvb.cluster), which holds it.

    Args:
        path: the file, folder or files; public.
        vocabulary: public words, as `check_vocabulary` takes them. Text needs it; of counts it names the columns.
            "private": `dpvb.LDA` is to find the words of texts, which are held in memory.
        width: public number of terms, for an lda-c file without a vocabulary.
        file_format: one of the formats above. None: told by the name.
        text_column: the column or key of the text.
        group_column: the column or key of the person (jsonl, csv, parquet), who is then the privacy unit. The rows of
            one file are held in memory. Those of several files, or with stream=True, are brought together by person in
            temporary files that only this user can read. All rows of a person count, whichever file they are in.
        token_pattern: what a word is in the lower-cased text: "english", "unicode" (letters of any script),
            "cjk-characters" (each ideograph and kana), or a regular expression.
        stream: True reads the rows from disk at each pass, in bounded memory; None and False hold its rows. The first
            pass parses the file, and writes the counts to a temporary file without a name; where the disk has no room
            for it, each pass parses the file. An .npz file is read itself. A first pass over a Matrix Market or docword
            file that is not in row order holds its entries.
        separator: what stands between the fields of a CSV file, see `dpvb.data.csv_files.Dialect`.
        encoding: of csv, txt and folders, see there.
        exclude_groups: private person IDs of earlier fits, whose documents are ignored without a message. Needs
            group_column.

    Raises:
        DataFormatError: a file that cannot be opened, a faulty header, a missing column, text without a
            vocabulary, a vocabulary of words that token_pattern never makes or of another width, or files of
            different widths.
        ParameterError: an unknown format, an option that the format does not have, or exclude_groups without
            group_column.
    """
    watched = Watched.of(files_of(path, "path"))
    options: dict[str, Any] = {
        "vocabulary": vocabulary,
        "width": width,
        "file_format": file_format,
        "text_column": text_column,
        "group_column": group_column,
        "token_pattern": token_pattern,
        "stream": stream,
        "separator": separator,
        "encoding": encoding,
    }
    source = _opened(path, exclude_groups, options)
    again = stream or isinstance(source, ShardedDocuments)
    marked: Any = source
    marked.watched = replace(watched, is_read_again=bool(again and group_column is None))
    return source


def _opened(path: Any, exclude_groups: Iterable[object] | None, options: dict[str, Any]) -> DocumentSource | Texts:
    """Open documents with the options of `open_documents`."""
    persons, stream = options["group_column"], options["stream"]
    dialect = Dialect(options["separator"], encoding=options["encoding"])
    if exclude_groups is not None and persons is None:
        raise ParameterError("group_column must name the column of persons if exclude_groups is given.")
    excluded = () if exclude_groups is None else exclude_groups
    several = None if options["file_format"] == "folder" else paths_of(path, "path")
    if several is None and not isinstance(path, (str, os.PathLike)):
        raise DataFormatError(f"path must be a file, a folder or a list of files, got {type(path).__name__}.")
    if str(options["vocabulary"]) == PRIVATE:
        return _open_private(several or [Path(path)], options, dialect, excluded)
    if several is not None and persons is None:
        return _open_shards(several, options)
    names = _formats(several or [Path(path)], options, dialect)
    if several is None and (name := names[Path(path)]) in _MATRIX_FORMATS:
        return _open_counts(Path(path), name, options["vocabulary"], options["width"], stream=bool(stream))
    words = check_vocabulary(options["vocabulary"], width=options["width"])
    tokenizer = Tokenizer(words, options["token_pattern"])
    files = _TextFiles.of(names, options, dialect, read_through=bool(stream or several))
    if persons is not None and (stream or several is not None):
        return _partitioned(files, tokenizer, words, excluded)
    if persons is not None:
        group: list[object] = []
        rows = concatenate(clean_slabs(tokenizer.slabs(files.texts(group)), len(words)), len(words))
        return BagOfWords.of_rows(rows, vocabulary=words, group=newcomers(group, excluded))
    source = Stream(lambda: tokenizer.slabs(files.texts([])), len(words), vocabulary=words)
    return _parsed_once(source) if stream else in_memory(source)


def document_names(path: Path, file_format: str | None = None) -> list[str] | None:
    """Names of the documents of a folder below it, in the order of `open_documents`; private, as the documents are.

    Args:
        path, file_format: as in `open_documents`, one path; public.

    Returns:
        None where documents are records, and no files of their own.
    """
    if file_format != "folder" and (file_format is not None or not path.is_dir() or paths_of(path, "path") is not None):
        return None
    return [os.path.relpath(name, path) for name in sorted(folder_files(path))]


def text_records(
    path: Path, columns: tuple[str, ...], file_format: str | None = None, dialect: Dialect = USUAL
) -> Iterator[Record]:
    """Yield some fields of each record of text files, as they stand there; private.

    Args:
        path, file_format: as in `open_documents`, one path; public.
        columns: names of the fields; public.
        dialect: how CSV files are written; public.

    Raises:
        ParameterError: a format of counts.
    """
    for one in (None if file_format == "folder" else paths_of(path, "path")) or [path]:
        name = check_choice("file_format", file_format or _format_of(one), ("csv", *_TEXT_FORMATS))
        yield from _records(one, name, columns, dialect)


def _open_shards(paths: Sequence[Path], options: dict[str, Any]) -> ShardedDocuments:
    """Check the header of every file; open none."""
    if options["vocabulary"] is not None:
        options["vocabulary"] = check_vocabulary(options["vocabulary"], width=options["width"])
    opened = (open_documents(path, **{**options, "stream": True}) for path in paths)
    width = one_width(one.width for one in opened if not isinstance(one, Texts))
    shards = [Shard(path, partial(open_documents, path, **options)) for path in paths]
    names = {options["file_format"] or _format_of(path) for path in paths}
    source = ShardedDocuments(shards, width, options["vocabulary"], unit="document")
    if names == {_BINARY}:
        return source
    return ShardedDocuments(shards, width, options["vocabulary"], unit="document", whole=_parsed_once(source))


def _open_private(
    paths: Sequence[Path], options: dict[str, Any], dialect: Dialect, exclude_groups: Iterable[object]
) -> Texts:
    """Texts of some files, whose words are not listed in advance, but for those of excluded persons."""
    if options["stream"] or options["width"] is not None:
        word = "stream" if options["stream"] else "width"
        raise ParameterError(f"{word} must be left out where vocabulary='private': its texts are held in memory.")
    names = _formats(paths, options, dialect)
    if counts := [name for name in names.values() if name in _MATRIX_FORMATS]:
        raise ParameterError(
            f"vocabulary must be a public list, or left out, for counts (format {counts[0]!r}), got 'private': their "
            "columns are fixed already."
        )
    files, group = _TextFiles.of(names, options, dialect), list[object]()

    def texts() -> Iterator[object]:
        yield from files.texts(group)
        group[:] = newcomers(group, exclude_groups)

    # The persons are known once the texts are read.
    persons = None if options["group_column"] is None else group
    return Texts(texts(), token_pattern=options["token_pattern"], group=persons)


def _formats(paths: Sequence[Path], options: Mapping[str, Any], dialect: Dialect) -> dict[Path, str]:
    """Return the format of each file. Refuse a format that does not have an option."""
    names = {path: check_choice("file_format", options["file_format"] or _format_of(path), FORMATS) for path in paths}
    for name in names.values():
        if options["group_column"] is not None and name not in _GROUPED:
            raise ParameterError(f"group_column needs jsonl, csv or parquet files, got format {name!r}.")
        if dialect.encoding != "utf-8" and name not in _ENCODED:
            raise ParameterError(f"encoding needs a csv or txt file or a folder of them, got format {name!r}.")
    return names


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "folder"
    name = path.name.lower().removesuffix(".gz")
    if name.startswith("docword") and name.endswith(".txt"):
        return "docword"
    file_format = _FORMAT_OF_SUFFIX.get(Path(name).suffix)
    if file_format is None:
        check_there(path)
        raise DataFormatError(
            f"The name {path.name!r} does not tell its format; known are {', '.join(_FORMAT_OF_SUFFIX)} "
            f"(also .gz), docword*.txt and folders. Say it with file_format=, one of {', '.join(FORMATS)}."
        )
    return file_format


def _parsed_once(source: DocumentSource) -> Stream:
    """The documents of a source, which parses them in the first pass only."""
    width = source.width
    pieces = ParsedOnce(lambda: (stored(chunk.rows) for chunk in source.chunks()), _NONE)
    return Stream(lambda: (restored(piece, width) for piece in pieces.after(0)), width, vocabulary=source.vocabulary)


def _open_counts(
    path: Path, name: str, vocabulary: Vocabulary | None, width: int | None, *, stream: bool
) -> DocumentSource:
    opened = _MATRIX_FORMATS[name](path)
    if width is not None:
        check_integer("width", width, low=1)
    declared = width if opened.width is None else opened.width
    if width is not None and width != declared:
        raise DataFormatError(f"The file {str(path)!r} declares {declared} columns, but width={width}.")
    words = None if vocabulary is None else check_vocabulary(vocabulary, width=declared)
    if declared is None and words is not None:
        declared = len(words)
    if declared is None:
        raise DataFormatError(
            "An lda-c file does not declare how many words there are, and counting them would read a "
            "public fact off private documents: give vocabulary= or width=."
        )
    source = Stream(opened.slabs, declared, vocabulary=words)
    if not stream:
        return in_memory(source)
    return source if name == _BINARY else _parsed_once(source)


def _records(path: Path, name: str, columns: tuple[str, ...], dialect: Dialect) -> Iterator[Record]:
    """The records of a file of text."""
    if name == "csv":
        return csv_records(path, columns, dialect)
    records = _TEXT_FORMATS[name](path, columns)
    return records if dialect.gives_bytes else decoded(records, dialect)


def _check_text(
    path: Path, name: str, columns: tuple[str, ...], dialect: Dialect, *, read_through: bool = True
) -> None:
    """Check what is public of a file; a Parquet file also to its end, where it will not be read at once."""
    if name == "folder":
        check_there(path)
        if not path.is_dir():
            raise DataFormatError(f"{str(path)!r} is not a folder.")
        return
    check_readable(path, any_start=name in ("txt", "jsonl"))
    if name == "csv":
        check_csv(path, columns, dialect=dialect)
    elif name == "parquet":
        check_parquet(path, columns, read_through=read_through)


class _TextFiles(NamedTuple):
    """Files of texts.

    names: The format of each file.
    columns: The column of texts and, if documents are grouped, the column of persons.
    dialect: How CSV files are written.
    """

    names: Mapping[Path, str]
    columns: tuple[str, ...]
    dialect: Dialect

    @classmethod
    def of(
        cls, names: Mapping[Path, str], options: Mapping[str, Any], dialect: Dialect, *, read_through: bool = True
    ) -> _TextFiles:
        """Check what is public of each file."""
        columns = tuple(options[name] for name in ("text_column", "group_column") if options[name] is not None)
        for path, name in names.items():
            _check_text(path, name, columns, dialect, read_through=read_through)
        return cls(names, columns, dialect)

    def records(self) -> Iterator[Record]:
        """Yield the columns of every record of every file."""
        for path, name in self.names.items():
            yield from _records(path, name, self.columns, self.dialect)

    def texts(self, group: list[object]) -> Iterator[object]:
        """Yield the texts, and append the person of each one to `group`."""
        for text, *person in self.records():
            group.extend(person)
            yield text


def _partitioned(
    files: _TextFiles, tokenizer: Tokenizer, words: tuple[str, ...], exclude_groups: Iterable[object]
) -> ShardedDocuments:
    """The documents of these files by person, without those of excluded persons."""

    def pieces() -> Iterator[Piece]:
        records = files.records()
        while batch := [*islice(records, _PIECE)]:
            texts, persons = zip(*batch, strict=True)
            rows = concatenate(clean_slabs(tokenizer.slabs(texts), len(words)), len(words))
            yield Piece(persons, stored(rows))

    partitions = Partitions(pieces(), _NONE, partial(_documents, words), exclude_groups)
    return ShardedDocuments(partitions, len(words), words, unit="person")


def _documents(words: tuple[str, ...], rows: Stored, group: Iterable[object]) -> BagOfWords:
    """The documents of a partition."""
    return BagOfWords.of_rows(restored(rows, len(words)), vocabulary=words, group=group)


def read_labelled(
    path: Path, text_column: str, label_column: str, dialect: Dialect
) -> tuple[list[object], list[object]]:
    """Texts and labels of a CSV file, as they stand there; private. A record that cannot be read has neither.

    Args:
        path, text_column, label_column, dialect: public.

    Raises:
        DataFormatError: a file that is not there, or whose header lacks a column.
    """
    check_readable(path)
    check_csv(path, (text_column, label_column), dialect=dialect)
    records = [*csv_records(path, (text_column, label_column), dialect)]
    return [text for text, _ in records], [label for _, label in records]
