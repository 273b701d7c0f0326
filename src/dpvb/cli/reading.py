"""Readers of private rows from files: one function per form, whose parameters are options and whose docstring is help.

Each returns arguments of `fit`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import dpvb
from dpvb.cli import options
from dpvb.cli.files import read_matrix
from dpvb.cli.terminal import remark
from dpvb.guards.errors import ParameterError


def documents(
    data: options.Documents,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    group_column: Annotated[
        str | None,
        options.data("Column or key of the person ID: all documents of a person are then one protected unit."),
    ] = None,
    file_format: options.Format = None,
    width: Annotated[int | None, options.data("Number of words, for lda-c without a vocabulary.")] = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    encoding: options.Encoding = "utf-8",
    exclude_groups: Annotated[
        Path | None,
        options.data(
            "Private file of person IDs of earlier fits, one per line: their documents are ignored. Needs "
            "--group-column."
        ),
    ] = None,
    public: options.PublicDocuments = False,
) -> dict[str, Any]:
    """Documents of text or of word counts.

    The budget (epsilon, delta) bounds what the fit can reveal about any one document. The command line, the vocabulary
    and the width of the data are public: choose them without looking at the documents. Errors are reported before the
    budget is spent, if possible. --vocabulary private selects words of the texts with part of the budget.

        dpvb fit {name} notes.csv --vocabulary words.txt {needed}--epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb fit {name} notes.csv --vocabulary private --stop-words english {needed}--epsilon 1 --delta 1e-5
        --out notes.dpvb

        dpvb fit {name} public_notes.csv --public --vocabulary words.txt {needed}--out public.dpvb

        dpvb fit {name} march.csv --group-column who --exclude-groups persons.txt --prior public.dpvb
        --previous february.dpvb --vocabulary english {needed}--epsilon 1 --delta 1e-5 --out march.dpvb

        dpvb fit {name} counts.npz --public-vocabulary {needed}--epsilon 2 --delta 1e-6 --out counts.dpvb
    """
    from dpvb.data.persons import read_ids

    source = dpvb.data.open_documents(
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
        exclude_groups=None if exclude_groups is None else read_ids(exclude_groups),
    )
    return {"X": source, **({"public": True} if public else {})}


def rows(
    data: options.Rows,
    schema: options.SchemaFile = None,
    target: Annotated[Path | None, options.data("Responses of the rows of a matrix, .npy.")] = None,
    trials: Annotated[Path | None, options.data("Numbers of trials of the rows of a matrix, .npy.")] = None,
    exposure: Annotated[
        Path | None,
        options.data("Exposures of the rows of a matrix, .npy; needs --max-exposure."),
    ] = None,
    offset: Annotated[
        Path | None,
        options.data("Offsets of the rows of a matrix (log odds or log mean), .npy; needs --max-offset."),
    ] = None,
    weights: Annotated[Path | None, options.data("Weights of the rows of a matrix, .npy; needs --max-weight.")] = None,
    group: options.Group = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """The data are rows with a response: a table, or a matrix with .npy files of responses and other columns.

    The command line and the schema are public: choose them without looking at the data. Invalid rows are ignored.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit {name} X.npz --target y.npy {needed}--low 18,0 --high 90,500000 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    if schema is not None:
        if target or trials or exposure or offset or weights or group:
            raise ParameterError(
                "--target, --trials, --exposure, --offset, --weights and --group apply only to a matrix. For a "
                "table, name these columns in the schema."
            )
        return table(data, schema, stream, separator, decimal, encoding)
    _check_matrix(data, stream)
    if target is None:
        raise ParameterError("A matrix needs --target: a .npy file with the response of each row.")
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
    """The data are rows without a response: a table, or a matrix with --low and --high or --max-row-norm.

    The command line and the schema are public: choose them without looking at the data. Invalid rows are ignored. The
    target of a schema is not read.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit {name} X.npy {needed}--low 18,0 --high 90,500000 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    if schema is not None:
        if group:
            raise ParameterError(
                "--group applies only to a matrix. For a table, name the column of persons in the schema."
            )
        return table(data, schema, stream, separator, decimal, encoding)
    _check_matrix(data, stream)
    return _matrices(X=data, group=group)


def model_rows(**values: Any) -> dict[str, Any]:
    """Rows of a model of your own: a table, whose schema bounds each row, or a matrix with --max-row-norm.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault is ignored without a message. A schema's target is the response.

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
    """The data are a table with a schema; its target, if there is one, is a column like the others.

    The command line and the schema are public: choose them without looking at the data. Invalid rows are ignored.

        dpvb fit {name} people.csv --schema people.json {needed}--epsilon 1 --delta 1e-5 --out people.dpvb
    """
    if schema is None:
        raise ParameterError(
            f'{data.name!r} needs --schema, the public declaration of its columns. Run "dpvb schema" for an example.'
        )
    written: dict[str, Any] = {"separator": separator, "decimal": decimal, "encoding": encoding}
    return {"X": dpvb.Table(data, dpvb.Schema.load(schema), stream=stream, **written)}


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
    """The data are a table with a schema, one of whose columns is the class; or a CSV file of texts and labels.

    The command line and the schema are public: choose them without looking at the data. Rows that are invalid or have
    another label are ignored.

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
    from dpvb.data.documents.files import read_labelled

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
    """The data are rows of zeros and ones, such as images.

    A row with any other entry is ignored; --threshold makes numbers binary.

        dpvb fit {name} train-images-idx3-ubyte.gz --threshold 0 {needed}--epsilon 1 --delta 1e-5 --out digits.dpvb
    """
    return _matrices(X=data, group=group)


def sequences(
    data: options.TableFile,
    group_column: Annotated[str | None, options.data("Column of the person ID. Default: person.")] = None,
    symbol_column: Annotated[str, options.data("Column of the symbol.")] = "symbol",
    columns: str | Sequence[str] | None = None,
    time_column: Annotated[
        str | None,
        options.data("Column that orders the rows of a person: numbers or dates. Not given: file order."),
    ] = None,
    sequence_column: Annotated[
        str | None,
        options.data("Column of the sequence ID within a person. Not given: each person has one sequence."),
    ] = None,
    stream: options.Stream = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
) -> dict[str, Any]:
    """The data are a long table of sequences: a row per event, with person, symbol or numbers, and time.

    The command line is public: choose it without looking at the data. All rows of a person are one protected unit. A
    row without a person is ignored, a row with another symbol is a gap, and a cell that is not a number is missing.

        dpvb fit {name} events.csv {needed}--group-column user --time-column clock --epsilon 1 --delta 1e-5 --out
        events.dpvb
    """
    written: dict[str, Any] = {"separator": separator, "decimal": decimal, "encoding": encoding}
    named: dict[str, Any] = {"group": group_column or "person", "symbol": symbol_column, "time": time_column}
    events = dpvb.data.Events(data, values=columns, sequence=sequence_column, stream=stream, **named, **written)
    if time_column is None:
        remark("Without --time-column, the events of a person are in the order of the file.")
    return {"X": events}


#: Readers by the form that an estimator class declares.
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
    """Return private rows of a form, read with those values that its function has as parameters."""
    reading = READINGS[form]
    return reading(**{name: values[name] for name in inspect.signature(reading).parameters if name in values})


def options_of(*forms: str, without: Collection[str]) -> dict[str, inspect.Parameter]:
    """Return the options of the readers of these forms, except some."""
    each = [inspect.signature(READINGS[form], eval_str=True).parameters.values() for form in forms]
    named = {option.name: option.replace(kind=option.KEYWORD_ONLY) for options in each for option in options}
    return {name: option for name, option in named.items() if name not in without}


def with_options(added: Mapping[str, inspect.Parameter]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options into the signature of a command, whose last parameter takes them."""

    def signed(command: Callable[..., None]) -> Callable[..., None]:
        *options_of_command, _ = inspect.signature(command, eval_str=True).parameters.values()
        # Required options first.
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
            f'{data.name!r} needs --schema, the public declaration of its columns. Run "dpvb schema" for an example. A '
            "matrix must be a .npz or .npy file."
        )


def _matrices(**paths: Path | None) -> dict[str, Any]:
    return {name: read_matrix(path) for name, path in paths.items() if path is not None}
