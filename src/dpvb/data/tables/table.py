"""Tables with named columns, made into private rows by a public schema: pandas, Arrow, NumPy, CSV and Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.arrow import cells as arrow_cells
from dpvb.data.arrow import check_batches, import_arrow, parquet_batches, parquet_schema
from dpvb.data.csv_files import Dialect, check_csv, csv_records, times_in_header
from dpvb.data.parsed_once import ParsedOnce, Streamed
from dpvb.data.partitions import Partitions, Piece
from dpvb.data.persons import check_group, tuples
from dpvb.data.readable import check_readable, check_there
from dpvb.data.shards import Shard, Sharded, files_of, paths_of
from dpvb.data.slabs import Slab
from dpvb.data.spelling import Cells, Floats, as_array, as_numbers, cells_of, each, identity, spelled
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.design import Design
from dpvb.data.tables.matrices import SparseMatrix, column, is_arrow_table, is_frame
from dpvb.data.tables.mixed import AnyMixed, Layout, Mixed, mixed_of, stored
from dpvb.data.tables.ranged import Date
from dpvb.data.tables.response import LOGISTIC, Response
from dpvb.data.tables.schema import Schema
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.guards.watched import Watched
from dpvb.kernels.spans import MAX_ROWS
from dpvb.rows import DesignRows, MixedRows, SparseDesignRows

_FORMATS = ("csv", "parquet")
_WAY_OUT = "every column that is declared must be there under its name."


class Records(NamedTuple):
    """Some rows as a reader found them: cells by column name, and which rows could not be read at all."""

    cells: Mapping[str, Cells]
    malformed: NDArray[np.bool_]


_NO_ROWS = SparseMatrix(Slab(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0)), 0)


class _Encoded(NamedTuple):
    """Some rows as numbers: features, and what the data say of responses and persons."""

    matrix: SparseMatrix
    y_n: Floats | None
    trials_n: Floats | None
    group: list[object] | None
    cut_n: NDArray[np.bool_]
    beside: Mapping[str, Floats]


@dataclass(frozen=True)
class _ColumnReader:
    """Data in one of the accepted forms: the columns that it has of those asked for, and its rows, piece by piece."""

    names: tuple[str, ...]
    pieces: Callable[[], Iterator[Records]]


@constructor_says_what_lacks
class Table:
    """Private data with named columns, and the public schema from which features are computed.

    Estimators accept it as X: `fit(Table(data, schema))` uses the response that the schema's target names,
    `fit(Table(data, schema), y)` uses y. Column names are public; all values, and the types of columns, are private.
    Columns that are not in the schema are not read. Several files are read one after another, or in parallel by the
    processes of a cluster (see `dpvb.cluster`). The first pass over several files, or over a stream, writes the rows as
    numbers to a temporary file without a name, and later passes read that file; where the disk has no room for it, each
    pass parses the data. If the schema has a group, one pass over all files brings the rows of each person together in
    temporary files of this user, so that all rows of a person are included.

    Args:
        data: A pandas DataFrame; an Arrow table; a mapping of names to 1-D columns; a structured NumPy array; the path
            of a .csv, .csv.gz or .parquet file, a list of such paths, or a folder of .parquet files. Private.
        schema: Public `dpvb.Schema` of the columns; required. Default: None, which raises an error.
        file_format: "csv" or "parquet". None (default): inferred from the file name.
        stream: Whether each pass reads the rows from disk, in bounded memory. None (default) or False: rows are kept in
            memory as numbers.
        separator: Field delimiter of a CSV file. Default: ",".
        decimal: Decimal separator of a CSV file. Default: ".".
        encoding: Encoding of a CSV file. Default: "utf-8".

    Raises:
        DataFormatError: If data have none of these forms, or a column of the schema is missing.
        ParameterError: If schema is not a Schema, or stream=True with data in memory.

    Examples:
        >>> import dpvb
        >>> schema = dpvb.Schema((dpvb.data.Numeric("age", 0, 100),))
        >>> table = dpvb.Table({"age": [20, 30]}, schema)
        >>> table.schema.read_columns
        ['age']
    """

    def __init__(
        self,
        data: object,
        schema: Schema | None = None,
        *,
        file_format: Literal["csv", "parquet"] | None = None,
        stream: bool | None = None,
        separator: str = ",",
        decimal: str = ".",
        encoding: str = "utf-8",
    ) -> None:
        """Open private data; see the class for arguments and errors."""
        if not isinstance(schema, Schema):
            raise ParameterError(
                f"schema must be a dpvb.Schema, what is public about the columns, got {type(schema).__name__}. Read "
                "one with Schema.load(path); `dpvb schema --header FILE` writes one to fill in."
            )
        #: The files as they were before they were read.
        self.watched = Watched.of(files_of(data, "data"), is_read_again=schema.group is None)
        self._schema = schema
        self._held: _Encoded | None = None
        self._count: int | None = None
        self._files = paths_of(data, "data")
        self._dialect = Dialect(separator, decimal, encoding)
        self._options: dict[str, Any] = {"file_format": file_format, "stream": stream, **asdict(self._dialect)}
        self._data = data
        self._reader = reader_of(data, schema, file_format, self._dialect, read_through=bool(stream))
        is_file = self._files is not None or isinstance(data, (str, os.PathLike))
        if stream and not is_file:
            raise ParameterError(
                "stream=True needs a file, a list of files or a folder: data in memory are held. Leave stream out. "
                "Nothing was charged."
            )
        if self._files is None and not stream:
            self.watched = replace(self.watched, is_read_again=False)
            self._held = _joined(self._pieces(), schema)
            self._count = self._held.matrix.num_rows

    def __repr__(self) -> str:
        return f"Table(width={self._schema.width}, columns={len(self._schema.own_columns)})"

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[object, Schema]]:
        """Pickle the private cells of the columns that the schema names, or for files their paths: for joblib.

        Protect a pickle of data in memory as you protect the data.
        """
        return partial(Table, **self._options), (_columns_of(self._data, self._reader.names), self._schema)

    @property
    def schema(self) -> Schema:
        """The public schema."""
        return self._schema

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, without the intercept; public."""
        return self._schema.feature_names

    def pieces(self) -> Iterator[Records]:
        """Read all rows once, piece by piece, as they stand in the data; private."""
        return self._reader.pieces()

    def design(
        self,
        y: object = None,
        trials: object = None,
        *,
        response: Response | None = None,
        fit_intercept: bool = True,
        sparse_rows: bool = False,
        group: Iterable[object] | None = None,
        beside: Mapping[str, Any] | None = None,
        labelled: bool = True,
        max_row_norm: float | None = None,
    ) -> AnyDesign:
        """The rows of a regression: features over R, the intercept 1/R before them, and responses.

        Args:
            y, trials: responses and numbers of trials, (rows,); private. None: the schema's target.
            response: what y may be; public. None: the target's, or labels 0 and 1 where y is given.
            fit_intercept: whether column 0 is the constant 1/R.
            sparse_rows: whether chunks hold `SparseDesignRows` or `DesignRows`.
            group: the person of each row; private. None: the schema's group column, if it has one.
            beside: exposure, offset and weights, (rows,), where y is given; private.
            labelled: False reads no response, and no target: zeros stand in its place.
            max_row_norm: public constant that features are divided by in the place of R.

        Raises:
            DataFormatError: no y and no target, or y, trials, group or a row argument of another length.
            ParameterError: a response that contradicts the schema's target, or y, trials or group for several files,
                which must have them.
        """
        rows: dict[str, Any] = {
            "fit_intercept": fit_intercept,
            "sparse_rows": sparse_rows,
            "max_row_norm": max_row_norm,
        }
        beside, grouped = dict(beside or {}), group is not None or self._schema.group is not None
        if self._files is not None:
            if not (y is None and trials is None and group is None and not beside):
                raise ParameterError(
                    "of several files the response is the schema's target and the person its group: leave y, trials, "
                    "group and other row arguments out."
                )
            if not grouped:
                response = self._target_response(response) if labelled else LOGISTIC
                return self._sharded(response=response, labelled=labelled, **rows)
        if y is not None:
            response = LOGISTIC if response is None else response
            y = column("y", y, self._num_rows())
            trials = None if trials is None else column("trials", trials, self._num_rows())
            beside = {name: column(name, values, self._num_rows()) for name, values in beside.items()}
        elif trials is not None or beside:
            first = "trials" if trials is not None else next(iter(beside))
            raise ParameterError(f"{first} must be given with y; without y the schema's target names all columns.")
        else:
            response = self._target_response(response) if labelled else LOGISTIC
        make = partial(self._maker(**rows), response=response)
        if group is not None and self._held is None:
            group = check_group(group, self._num_rows())
        designs = partial(self._designs, make, y, trials, group, beside, labelled)
        if self._held is not None or not grouped:
            return self._source(lambda: (make_rows(group=persons) for persons, make_rows in designs()), make)
        like = make(self._nothing())
        pieces = (Piece(persons, make_rows().stored()) for persons, make_rows in designs())
        return ShardedDesign(Partitions(pieces, like.stored(), like.restored), like, unit="person")

    def _sharded(self, **options: Any) -> ShardedDesign:
        """Several files as a design, each by these options of `design`."""
        shards = [
            Shard(path, partial(_design, path, self._schema, self._options, options)) for path in self._files or []
        ]
        rows = {name: options[name] for name in ("fit_intercept", "sparse_rows", "max_row_norm")}
        make = partial(self._maker(**rows), response=options["response"])
        designs = partial(self._designs, make, None, None, None, {}, options["labelled"])
        whole = self._source(lambda: (make_rows(group=None) for _, make_rows in designs()), make)
        return ShardedDesign(shards, make(self._nothing()), unit="row", whole=whole)

    def features(
        self, *, fit_intercept: bool = True, sparse_rows: bool = False, max_row_norm: float | None = None
    ) -> Design | StreamedDesign:
        """The same rows without responses (zeros in their place) and in the order of the data, for prediction."""
        make = self._maker(fit_intercept, sparse_rows, max_row_norm)
        return self._source(lambda: (make(piece.matrix) for piece in self._pieces()), make)

    def mixed(self, layout: Layout, *, group: Iterable[object] | None = None) -> AnyMixed:
        """The rows of a mixture.

        Args:
            layout: how the columns are modelled; public.
            group: the person of each row; private. None: the schema's group column, if it has one.

        Raises:
            DataFormatError: a target that the data lack, or a group of another length.
            ParameterError: a group for several files.
        """
        if self._schema.target is not None:
            _check_target(self._schema, self._reader)
        if self._files is not None and group is not None:
            raise ParameterError("of several files the person is the schema's group: leave group out.")
        grouped = group is not None or self._schema.group is not None
        if self._held is not None:
            return self._held_mixed(layout, group)
        like = stored(layout.none)
        if grouped:
            cells = None if group is None else check_group(group, self._num_rows())
            by_person = (Piece(persons, stored(rows)) for persons, rows in self._mixed_pieces(layout, cells))
            return Sharded(Partitions(by_person, like, mixed_of), unit="person")
        pieces = ParsedOnce(lambda: (stored(rows) for _, rows in self._mixed_pieces(layout, None)), like)
        whole = Streamed[Mixed](pieces, mixed_of, Mixed(layout.none))
        if self._files is None:
            return whole
        shards = [Shard(path, partial(_mixed, path, self._schema, self._options, layout)) for path in self._files]
        return Sharded(shards, unit="row", whole=whole)

    def _held_mixed(self, layout: Layout, group: Iterable[object] | None) -> Mixed:
        """The rows of a mixture, held in memory."""
        pieces = [*self._mixed_pieces(layout, None)]
        rows = MixedRows.joined([rows for _, rows in pieces] or [layout.none])
        own = None if self._schema.group is None else [one for persons, _ in pieces for one in persons]
        return Mixed(rows, own if group is None else group)

    def _mixed_pieces(self, layout: Layout, group: Any) -> Iterator[tuple[Any, MixedRows]]:
        """Rows piece by piece, and the person of each: of a group, or the piece's own."""
        missing, start = frozenset(self._schema.missing_values), 0
        for piece in self.pieces():
            stop = start + len(piece.malformed)
            own = [] if self._schema.group is None else persons_of(piece, self._schema)
            yield own if group is None else group[start:stop], layout.rows(piece.cells, piece.malformed, missing)
            start = stop

    def _source(self, designs: Callable[[], Iterator[Design]], make: Callable[..., Design]) -> Design | StreamedDesign:
        """One design of all rows where they are held; otherwise one that reads them from disk at each pass."""
        if self._held is not None:
            return next(designs())
        like = make(self._nothing())
        return StreamedDesign(ParsedOnce(lambda: (design.stored() for design in designs()), like.stored()), like)

    def _maker(
        self, fit_intercept: bool, sparse_rows: bool, max_row_norm: float | None = None
    ) -> Callable[..., Design]:
        """Design with the schema's public constants, or another norm."""
        intercept, norm = self._schema.intercept if fit_intercept else 0.0, max_row_norm or self._schema.max_row_norm
        return partial(Design, max_row_norm=norm, intercept=intercept, sparse_rows=sparse_rows)

    def _nothing(self) -> SparseMatrix:
        """No rows, of the schema's width."""
        cells: dict[str, Cells] = {name: [] for name in self._schema.read_columns}
        return _encode(Records(cells, np.zeros(0, dtype=np.bool_)), self._schema).matrix

    def _target_response(self, response: Response | None) -> Response:
        """The response of the target's encoded values, whose labels are their places."""
        target = self._schema.target
        if target is None:
            raise DataFormatError(
                "The response is missing: name its column with target=Target(...) in the schema, or give y."
            )
        _check_target(self._schema, self._reader)
        if response is not None and response.caps != target.response.caps:
            ours, theirs = response.caps, target.response.caps
            names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
            differing = "; ".join(f"{name} {theirs.get(name)!r} and {ours.get(name)!r}" for name in names)
            raise ParameterError(
                f"The schema's target and the model's parameters must agree, but differ in {differing}: give "
                "the parameter the value of the schema. Nothing was charged."
            )
        return replace(target.response, classes=tuple(range(len(target.classes))))

    def _pieces(self) -> Iterator[_Encoded]:
        """All rows as numbers: at once where they are held."""
        if self._held is not None:
            return iter([self._held])
        return (_encode(records, self._schema) for records in self._reader.pieces())

    def _designs(
        self,
        make: Callable[..., Design],
        y: NDArray[Any] | None,
        trials: NDArray[Any] | None,
        group: Any,
        beside: Mapping[str, NDArray[Any]],
        labelled: bool,
    ) -> Iterator[tuple[Any, Callable[..., Design]]]:
        """Persons and a design of each piece, by these responses and persons, or the piece's own in place of None."""
        start = 0
        for piece in self._pieces():
            rows = slice(start, start + piece.matrix.num_rows)
            labels = (piece.y_n, piece.trials_n) if y is None else (y[rows], None if trials is None else trials[rows])
            labels = labels if labelled else (None, None)
            columns = (
                (piece.beside if labelled else {})
                if y is None
                else {name: values[rows] for name, values in beside.items()}
            )
            persons = piece.group if group is None else group if self._held is not None else group[rows]
            yield persons, partial(make, piece.matrix, *labels, cut=piece.cut_n, beside=columns)
            start = rows.stop

    def _num_rows(self) -> int:
        """Number of rows, by one pass at the first call where they are not held."""
        if self._count is None:
            self._count = sum(len(piece.malformed) for piece in self._reader.pieces())
        return self._count


class StreamedDesign(Streamed[Design]):
    """Rows of a regression that are read from disk at each pass; each row is a privacy unit."""

    def __init__(self, pieces: ParsedOnce, like: Design) -> None:
        """Take rows that `Design.stored` gave, and a design of no rows with the same public arguments."""
        super().__init__(pieces, like.restored, like, Design.first_open(like))
        self.width, self.intercept, self.max_row_norm = like.width, like.intercept, like.max_row_norm


class ShardedDesign(Sharded[DesignRows | SparseDesignRows]):
    """Rows of a regression in several files."""

    def __init__(self, shards: Sequence[Shard], like: Design, **facts: Any) -> None:
        """Take files, a design with the same columns, and what `Sharded` takes."""
        super().__init__(shards, **facts, first=Design.first_open(like))
        self.width, self.intercept, self.max_row_norm = like.width, like.intercept, like.max_row_norm


AnyDesign: TypeAlias = "Design | StreamedDesign | ShardedDesign"


def check_columns(path: Path, schema: Schema, dialect: Dialect) -> None:
    """Check that a file, or each of a folder, has the columns of a schema, its target's included; no row is read.

    Args:
        path: as `Table` takes one; public, and so are names of columns.
        schema, dialect: public.

    Raises:
        DataFormatError: none of these files, or a column of the schema that is missing.
    """
    for one in paths_of(path, "path") or [path]:
        _check_target(schema, _file_reader(one, schema, None, dialect))


def _check_target(schema: Schema, reader: _ColumnReader) -> None:
    """Raise DataFormatError where the data lack the target of their schema."""
    _, needed = _needed(schema)
    if not set(needed) <= set(reader.names):
        raise DataFormatError(
            f"The data lack {' and '.join(map(repr, needed))}, the target of the schema. Add these columns, or pass y."
        )


def _design(path: Path, schema: Schema, own: Mapping[str, Any], options: Mapping[str, Any]) -> AnyDesign:
    """One of several files as a design."""
    return Table(path, schema, **own).design(**options)


def _mixed(path: Path, schema: Schema, own: Mapping[str, Any], layout: Layout) -> AnyMixed:
    """One of several files as rows of a mixture."""
    table = Table(path, schema, **{**own, "stream": True})  # It would hold the rows as features, which are not read.
    return table.mixed(layout) if own["stream"] else table._held_mixed(layout, None)


def _encode(piece: Records, schema: Schema) -> _Encoded:
    """A piece's cells as numbers; a malformed row is NaN."""
    num_rows, entries = len(piece.malformed), sum(term.entries for term in schema.terms)
    # Places are kept in the smallest type that holds the width, which is public.
    place_ne = np.empty((num_rows, entries), dtype=np.min_scalar_type(-schema.width))
    value_ne = np.empty((num_rows, entries))
    encoded = schema.encoded(piece.cells)
    start = 0
    for term in schema.terms:
        which = slice(start, start := start + term.entries)
        place_ne[:, which] = schema.places[term.name] + encoded[term.name].place_nm
        value_ne[:, which] = encoded[term.name].value_nm
    value_ne[piece.malformed] = np.nan
    indptr = np.arange(num_rows + 1, dtype=np.int64) * entries
    matrix = SparseMatrix(Slab(indptr, place_ne.ravel(), value_ne.ravel()), schema.width)
    target = schema.target
    y_n = trials_n = None
    beside: dict[str, Floats] = {}
    if target is not None and target.name in piece.cells:
        y_n = target.response.encode(piece.cells[target.name])
        if target.trials is not None and target.trials in piece.cells:
            trials_n = as_numbers(piece.cells[target.trials])
        roles = {role: getattr(target, role) for role in target.response.columns}
        beside = {role: as_numbers(piece.cells[name]) for role, name in roles.items() if name in piece.cells}
    group = None if schema.group is None else persons_of(piece, schema)
    cut_n = np.logical_or.reduce([encoded[term.name].cut_n for term in schema.terms])
    return _Encoded(matrix, y_n, trials_n, group, cut_n, beside)


def persons_of(piece: Records, schema: Schema) -> list[object]:
    """The person of each row; None for the texts that stand for a missing one, and for a malformed row."""
    cells = cells_of(piece.cells[str(schema.group)])
    # Other missing values have no id anyway.
    stand_ins = {spelled(one) for one in schema.missing_values if identity(one) is not None}
    missing = (
        each(cells, lambda cell: spelled(cell) in stand_ins) if stand_ins else np.zeros(len(cells), dtype=np.int64)
    )
    return [None if lacks else cell for cell, lacks in zip(cells, missing | piece.malformed, strict=True)]


def _joined(parts: Iterable[_Encoded], schema: Schema) -> _Encoded:
    """All parts as one; the features of a part are let go of before the next one comes."""
    target, pieces = schema.target, list[_Encoded]()

    def matrices() -> Iterator[SparseMatrix]:
        for part in parts:
            pieces.append(part._replace(matrix=_NO_ROWS))
            yield part.matrix

    return _Encoded(
        SparseMatrix.stacked(matrices(), schema.width),
        _concatenated([piece.y_n for piece in pieces]),
        None if target is None or target.trials is None else _concatenated([piece.trials_n for piece in pieces]),
        None if schema.group is None else [one for piece in pieces for one in piece.group or []],
        np.concatenate([np.empty(0, dtype=np.bool_), *(piece.cut_n for piece in pieces)]),
        {
            role: _concatenated([piece.beside.get(role) for piece in pieces])
            for role in ({} if target is None else target.response.columns)
            if all(role in piece.beside for piece in pieces)
        },
    )


def _concatenated(parts: list[Floats | None]) -> Floats:
    return np.concatenate([np.empty(0), *(part for part in parts if part is not None)])


def reader_of(
    data: object, schema: Schema, file_format: str | None, dialect: Dialect, *, read_through: bool = False
) -> _ColumnReader:
    """Return the reader of data in any form that `Table` accepts; a Parquet file is read to its end first, if asked."""
    files = paths_of(data, "data")
    if files is not None:
        return _files_reader(files, schema, file_format, dialect)
    if isinstance(data, (str, os.PathLike)):
        return _file_reader(Path(data), schema, file_format, dialect, read_through=read_through)
    return _memory_reader(data, schema)


def _memory_reader(data: Any, schema: Schema) -> _ColumnReader:
    if isinstance(data, np.ndarray) and data.dtype.names is not None and data.ndim <= 1:
        data = np.atleast_1d(data)  # one row of a text file comes without a dimension
        data = {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        return _mapping_reader(data, schema)
    if is_frame(data):
        return _pandas_reader(data, schema)
    if is_arrow_table(data):
        return _arrow_reader(import_arrow().table(data), schema)
    raise DataFormatError(
        f"data must be a pandas DataFrame, an Arrow table, a mapping of names to columns, a structured array, or the "
        f"path of a CSV or Parquet file, got {type(data).__name__}. A plain matrix has no names: "
        "Table(dict(zip(names, X.T)), schema)."
    )


def _columns_of(data: Any, names: tuple[str, ...]) -> object:
    """Data in a form that `Table` takes, without columns that are not read; files are their paths."""
    if paths_of(data, "data") is not None or isinstance(data, (str, os.PathLike)):
        return data
    if isinstance(data, np.ndarray):
        data = {name: np.atleast_1d(data)[name] for name in names}
    if isinstance(data, Mapping):
        return {name: data[name] for name in names}
    return data[[*names]] if is_frame(data) else import_arrow().table(data).select([*names])


def _mapping_reader(data: Mapping[Any, Any], schema: Schema) -> _ColumnReader:
    names = _present(schema, list(data), "mapping")
    first = data[names[0]]
    num_rows = len(first) if hasattr(first, "__len__") else 0
    values = {name: tuples(data[name]) if name == schema.group else data[name] for name in names}
    cells = {name: column(f"column {name!r}", values[name], num_rows) for name in names}
    return _ColumnReader(names, lambda: _slices(lambda name, rows: cells[name][rows], names, num_rows))


def _pandas_reader(frame: Any, schema: Schema) -> _ColumnReader:
    names = _present(schema, [*frame.columns], "DataFrame")

    def cells(name: str, rows: slice) -> Cells:
        part = frame[name].iloc[rows]
        return as_array(part) if isinstance(part.dtype, np.dtype) else cells_of(part)

    return _ColumnReader(names, lambda: _slices(cells, names, len(frame)))


def _arrow_reader(table: Any, schema: Schema) -> _ColumnReader:
    names = _present(schema, table.column_names, "Arrow table")

    def cells(name: str, rows: slice) -> Cells:
        return arrow_cells(table.column(name).slice(rows.start, rows.stop - rows.start))

    return _ColumnReader(names, lambda: _slices(cells, names, table.num_rows))


def _file_reader(
    path: Path, schema: Schema, file_format: str | None, dialect: Dialect, *, read_through: bool = False
) -> _ColumnReader:
    """One file; a Parquet file is read to its end first, where asked for."""
    check_there(path)
    if path.is_dir():
        raise DataFormatError(
            f"{str(path)!r} is a folder without .parquet files. A table is a .csv, .csv.gz or .parquet file, or a "
            "folder of .parquet files."
        )
    if file_format is None:
        file_format = Path(path.name.lower().removesuffix(".gz")).suffix.removeprefix(".")
        hint = "Say it with file_format=."
    else:
        hint = ""
    check_choice(f"the format of {path.name!r}", file_format, _FORMATS, hint=hint)
    check_readable(path)
    return _csv_reader(path, schema, dialect) if file_format == "csv" else _parquet_reader(path, schema, read_through)


def _files_reader(paths: Sequence[Path], schema: Schema, file_format: str | None, dialect: Dialect) -> _ColumnReader:
    """Several files with the same columns, one after another."""
    readers = [_file_reader(path, schema, file_format, dialect, read_through=True) for path in paths]
    names = readers[0].names
    for path, reader in zip(paths, readers, strict=True):
        if set(reader.names) != set(names):
            missing = sorted(set(names) ^ set(reader.names))
            raise DataFormatError(
                f"The files must have the same columns, but {str(path)!r} and {str(paths[0])!r} differ in {missing}."
            )
    return _ColumnReader(names, lambda: (piece for reader in readers for piece in reader.pieces()))


def _csv_reader(path: Path, schema: Schema, dialect: Dialect) -> _ColumnReader:
    needed, optional = _needed(schema)
    check_csv(path, needed, hint=_WAY_OUT, dialect=dialect)
    times = times_in_header(path, optional, dialect)
    names = (*needed, *(name for name in optional if times[name] == 1))
    meant = _meant(schema, dialect)

    def pieces() -> Iterator[Records]:
        records = csv_records(path, names, dialect)
        while batch := list(islice(records, MAX_ROWS)):
            malformed = np.array([record[0] is None for record in batch], dtype=np.bool_)
            cells: dict[str, Cells] = dict(zip(names, map(list, zip(*batch, strict=True)), strict=True))
            if dialect.decimal == ",":
                cells = {name: [*map(meant[name], cells[name])] for name in names}
            yield Records(cells, malformed)

    return _ColumnReader(names, pieces)


def _meant(schema: Schema, dialect: Dialect) -> dict[str, Callable[[object], object]]:
    """Parse a field with a decimal comma, by the column's name; an id is as it is written.

    Raises:
        ParameterError: for a declared value that a decimal comma makes a number.
    """
    target = schema.target
    labels: dict[str, Sequence[Any]] = {c.name: c.categories for c in schema.columns if isinstance(c, Categorical)}
    labels |= {c.name: c.values for c in schema.columns if isinstance(c, Binary)}
    if target is not None and target.response.is_label:
        labels[target.name] = target.classes
    for name, values in labels.items():
        for value in values:
            if dialect.label(value) != value:
                raise ParameterError(
                    f"column {name!r} has the value {value!r}, but with decimal=',' a cell that is written so is the "
                    f"number {dialect.label(value)}: declare that."
                )
    as_written = [schema.group, *(column.name for column in schema.columns if isinstance(column, Date))]
    how: dict[str | None, Callable[[object], object]] = dict.fromkeys(as_written, lambda field: field)
    return {name: how.get(name, dialect.label if name in labels else dialect.number) for name in schema.read_columns}


def _parquet_reader(path: Path, schema: Schema, read_through: bool) -> _ColumnReader:
    names = _present(schema, parquet_schema(path).names, f"file {str(path)!r}")
    if read_through:
        check_batches(path, names)

    def pieces() -> Iterator[Records]:
        for batch in parquet_batches(path, names, batch_rows=MAX_ROWS):
            cells = {name: arrow_cells(batch.column(name)) for name in names}
            yield Records(cells, np.zeros(batch.num_rows, dtype=np.bool_))

    return _ColumnReader(names, pieces)


def _slices(cells: Callable[[str, slice], Cells], names: tuple[str, ...], num_rows: int) -> Iterator[Records]:
    """Pieces of data in memory."""
    for start in range(0, num_rows, MAX_ROWS):
        rows = slice(start, min(start + MAX_ROWS, num_rows))
        yield Records({name: cells(name, rows) for name in names}, np.zeros(rows.stop - start, dtype=np.bool_))


def _needed(schema: Schema) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that the data must have, and those of the target, which may come as y."""
    target = schema.target
    optional = () if target is None else tuple(target.columns)
    return tuple(name for name in schema.read_columns if name not in optional), optional


def _present(schema: Schema, names: list[Any], place: str) -> tuple[str, ...]:
    """The columns to read.

    Raises:
        DataFormatError: a needed name that is missing, or one that occurs twice.
    """
    needed, optional = _needed(schema)
    for name in (*needed, *optional):
        times = sum(1 for one in names if isinstance(one, str) and one == name)
        if times > 1 or (times == 0 and name in needed):
            raise DataFormatError(
                f"The {place} must have one column {name!r}, but has {times}; its columns are {names}; {_WAY_OUT}"
            )
    return tuple(name for name in (*needed, *optional) if name in names)
