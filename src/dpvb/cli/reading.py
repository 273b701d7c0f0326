"""How private rows are read from files: a function for each form, whose parameters are options and whose text is help.

Each returns what `fit` of an estimator takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpvb.cli import options
from dpvb.cli.files import read_matrix
from dpvb.cli.terminal import remark
from dpvb.guards.errors import ParameterError


def documents(
    data: options.Documents,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    group_column: Annotated[
        str | None, options.data("Column or key of the person: all documents of a person are then protected together.")
    ] = None,
    file_format: options.Format = None,
    width: Annotated[int | None, options.data("Number of words, for lda-c without a vocabulary.")] = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    encoding: options.Encoding = "utf-8",
    seen: Annotated[
        Path | None,
        options.data(
            "A private file of the persons in earlier fits, one a line: their documents add nothing. Needs "
            "--group-column."
        ),
    ] = None,
    public: options.PublicDocuments = False,
) -> dict[str, Any]:
    """Documents of text or of word counts.

    The budget (epsilon, delta) is what the fit may reveal about any one document. Everything on the command line, the
    vocabulary and the width of the data are public; choose them without looking at the documents. Whatever can be
    checked is checked before the budget is spent. --vocabulary private has a part of the budget find the words that
    enough texts use.

        dpvb fit {name} notes.csv --vocabulary words.txt {needed}--epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb fit {name} notes.csv --vocabulary private --stop-words english {needed}--epsilon 1 --delta 1e-5
        --out notes.dpvb

        dpvb fit {name} public_notes.csv --public --vocabulary words.txt {needed}--out public.dpvb

        dpvb fit {name} march.csv --group-column who --seen persons.txt --prior public.dpvb --earlier february.dpvb
        --vocabulary english {needed}--epsilon 1 --delta 1e-5 --out march.dpvb

        dpvb fit {name} counts.npz --public-vocabulary {needed}--epsilon 2 --delta 1e-6 --out counts.dpvb
    """
    from dpvb.data import open_documents
    from dpvb.data.persons import read_ids

    source = open_documents(
        data,
        vocabulary=vocabulary,
        width=width,
        file_format=file_format,
        text_column=text_column,
        group_column=group_column,
        token_pattern=token_pattern,
        stream=stream,
        separator=separator,
        encoding=encoding,
        seen=None if seen is None else read_ids(seen),
    )
    return {"X": source, **({"public": True} if public else {})}


def rows(
    data: options.Rows,
    schema: options.SchemaFile = None,
    target: Annotated[Path | None, options.data("The responses of a matrix's rows, .npy; a schema names them.")] = None,
    trials: Annotated[Path | None, options.data("The numbers of trials of a matrix's rows, .npy.")] = None,
    exposure: Annotated[
        Path | None,
        options.data("How long or how much each of a matrix's rows was counted, .npy; with --max-exposure."),
    ] = None,
    offset: Annotated[
        Path | None,
        options.data("What is added to the log odds or log mean of each of a matrix's rows, .npy; with --max-offset."),
    ] = None,
    weights: Annotated[
        Path | None, options.data("How many rows each of a matrix's rows counts as, .npy; with --max-weight.")
    ] = None,
    group: options.Group = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """Rows with a response: a table, or a matrix with files of its columns beside it.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault silently counts as no row.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit {name} X.npz --target y.npy {needed}--low 18,0 --high 90,500000 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    if schema is not None:
        if target or trials or exposure or offset or weights or group:
            raise ParameterError(
                "--target, --trials, --exposure, --offset, --weights and --group belong to a matrix; a schema names "
                "these columns."
            )
        return table(data, schema, stream, separator, decimal, encoding)
    _check_matrix(data, stream)
    if target is None:
        raise ParameterError("a matrix needs --target, a .npy file with the response of each row.")
    return _matrices(X=data, y=target, trials=trials, exposure=exposure, offset=offset, weights=weights, group=group)


def measurements(
    data: options.Rows,
    schema: options.SchemaFile = None,
    group: options.Group = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """Rows without a response: a table, or a matrix with the range of its columns or the length of its rows.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault silently counts as no row. A schema's target is not read.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit {name} X.npy {needed}--low 18,0 --high 90,500000 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    if schema is not None:
        if group:
            raise ParameterError("--group belongs to a matrix; a schema names the column of persons.")
        return table(data, schema, stream, separator, decimal, encoding)
    _check_matrix(data, stream)
    return _matrices(X=data, group=group)


def model_rows(**values: Any) -> dict[str, Any]:
    """Rows of a model of your own: a table, whose schema bounds each row, or a matrix with --max-row-norm.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault silently counts as no row. A schema's target is the response.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit {name} X.npy {needed}--max-row-norm 2 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    return measurements(**values)


# The same options.
model_rows.__signature__ = inspect.signature(measurements, eval_str=True)  # type: ignore[attr-defined]


def table(
    data: options.TableFile,
    schema: options.SchemaFile = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """A table with a schema; its target, where it has one, is a column like the others.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault silently counts as no row.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb
    """
    from dpvb.data import Schema, Table

    if schema is None:
        raise ParameterError(f"{data.name!r} needs --schema, what is public about its columns (see `dpvb schema`).")
    written: dict[str, Any] = {"separator": separator, "decimal": decimal, "encoding": encoding}
    return {"X": Table(data, Schema.load(schema), stream=stream, **written)}


def labelled(
    data: options.TableFile,
    schema: options.SchemaFile = None,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    label_column: Annotated[str, options.data("Column of the label of a text.")] = "label",
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """A table with a schema, one of whose columns is the class; or a CSV file of texts and their labels.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault, or with a label that is none of the classes, silently counts as no row.

        dpvb fit {name} people.csv --schema people.json --response job {needed}--epsilon 1 --delta 1e-5 --out m.dpvb

        dpvb fit {name} notes.csv --vocabulary english --classes spam,no {needed}--epsilon 1 --delta 1e-5 --out m.dpvb
    """
    if schema is not None:
        return table(data, schema, stream, separator, decimal, encoding)
    if stream:
        raise ParameterError("--stream needs --schema: texts with labels are held in memory. Leave --stream out.")
    if vocabulary is None:
        raise ParameterError(f"{data.name!r} needs --schema for a table, or --vocabulary and --classes for texts.")
    from dpvb.data.csv_files import Dialect
    from dpvb.data.documents.labelled import read_labelled

    texts, labels = read_labelled(data, text_column, label_column, Dialect(separator, decimal, encoding))
    return {"X": texts, "y": labels}


def images(
    data: Annotated[
        Path,
        typer.Argument(
            help="A matrix: .npz (scipy.sparse.save_npz, or one NumPy array), .npy, or idx (*-ubyte, *-ubyte.gz)."
        ),
    ],
    group: options.Group = None,
) -> dict[str, Any]:
    """Rows of zeros and ones, such as images.

    A row with any other entry silently counts as no row; --threshold makes
    numbers binary.

        dpvb fit {name} train-images-idx3-ubyte.gz --threshold 0 {needed}--epsilon 1 --delta 1e-5 --out digits.dpvb
    """
    return _matrices(X=data, group=group)


def sequences(
    data: options.TableFile,
    person_column: Annotated[str, options.data("Column of the person.")] = "person",
    symbol_column: Annotated[str, options.data("Column of the symbol.")] = "symbol",
    columns: str | Sequence[str] | None = None,
    time_column: Annotated[
        str | None,
        options.data("Column by which a person's rows are ordered, numbers or dates; as they stand if not given."),
    ] = None,
    sequence_column: Annotated[
        str | None,
        options.data("Column that says which of a person's sequences a row belongs to; each has one if not given."),
    ] = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """Sequences from a long table: a row for each event, with its person, its symbol or its numbers, and its time.

    Everything on the command line is public; choose it without looking at the data. All rows of a person are protected
    together. A row that names nobody silently counts as no row. One with another symbol is a gap, and a cell of the
    columns that is no number is missing.

        dpvb fit {name} events.csv {needed}--person-column user --time-column clock --epsilon 1 --delta 1e-5 --out
        events.dpvb
    """
    from dpvb.data import Events

    written: dict[str, Any] = {"separator": separator, "decimal": decimal, "encoding": encoding}
    named: dict[str, Any] = {"person": person_column, "symbol": symbol_column, "time": time_column}
    events = Events(data, values=columns, sequence=sequence_column, stream=stream, **named, **written)
    if time_column is None:
        remark("Without --time-column the events of a person follow each other as their rows stand in the file.")
    return {"X": events}


#: By what a kind of model says that it reads.
READINGS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "documents": documents,
    "rows": rows,
    "table": table,
    "labelled": labelled,
    "measurements": measurements,
    "model rows": model_rows,
    "images": images,
    "sequences": sequences,
}


def read(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Private rows of a form, by those of the values that its function takes."""
    reading = READINGS[form]
    return reading(**{name: values[name] for name in inspect.signature(reading).parameters if name in values})


def options_of(*forms: str, without: Collection[str]) -> dict[str, inspect.Parameter]:
    """The options by which these forms of data are read, but for some."""
    each = [inspect.signature(READINGS[form], eval_str=True).parameters.values() for form in forms]
    named = {option.name: option.replace(kind=option.KEYWORD_ONLY) for options in each for option in options}
    return {name: option for name, option in named.items() if name not in without}


def with_options(added: Mapping[str, inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options into the signature of a command, whose last parameter takes them."""

    def signed(command: Callable[..., None]) -> Callable[..., None]:
        *options_of_command, _ = inspect.signature(command, eval_str=True).parameters.values()
        # Those first that must be given.
        ordered = sorted([*options_of_command, *added.values()], key=lambda option: option.default is not option.empty)
        command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in ordered}
        return command

    return signed


def _check_matrix(data: Path, stream: bool) -> None:
    """Raise ParameterError for a file that needs a schema, or for a matrix that is to be streamed."""
    from dpvb.data.readable import check_there

    if stream:
        raise ParameterError("--stream needs --schema: a matrix is held in memory. Leave --stream out.")
    if data.suffix.lower() not in (".npz", ".npy"):
        check_there(data)
        raise ParameterError(
            f"{data.name!r} needs --schema, what is public about its columns (see `dpvb schema`); a matrix is a "
            ".npz or .npy file."
        )


def _matrices(**paths: Path | None) -> dict[str, Any]:
    return {name: read_matrix(path) for name, path in paths.items() if path is not None}
