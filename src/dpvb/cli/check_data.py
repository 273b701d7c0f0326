"""`dpvb check-data`: report invalid values of private data to their owner, only on a terminal.

The report has the number of rows that were read and, for each kind of error, whether none, few, most or all cells have
it. Values, quantiles, the share of clipped numbers and the share of words in a list are left out: users would tune
public ranges and lists by them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import dpvb
from dpvb.cli import options, reading
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, is_terminal, print_table
from dpvb.guards.errors import ParameterError, PrivacyError

if TYPE_CHECKING:
    from dpvb.data.spelling import Categories, Cells
    from dpvb.guards.arrays import Bools, Floats

#: Words for a share of cells. More than half is "most".
SHARES: Final = ("none", "few", "most", "all")
# Options of `dpvb fit` that do not affect one pass over the data.
_OF_A_FIT = frozenset({"data", "target", "trials", "group", "width", "stream", "exclude_groups", "public"})
_OF_A_FIT |= {"exposure", "offset", "weights"}
_OPTIONS: Final = reading.options_of("rows", "documents", without=_OF_A_FIT)
_CELLS = ("unreadable", "undeclared", "outside the range")
_TEXTS = ("not text", "undecodable", "without a token")
_WARNING = """\
Warning: the next lines describe private data without noise. Only people who may open the file itself may read them.
Use them only to correct the file, or the options by which it is read. If you choose a range, a category, a word list or
any other public argument by them, the privacy guarantee of every fit that uses it is void."""


@app.command()
@reading.with_options(_OPTIONS)
def check_data(
    *,
    data: Annotated[
        Path,
        typer.Argument(
            help="A table (.csv, .csv.gz, .parquet) with --schema, or texts (a folder of .txt files, .txt, .csv, "
            ".jsonl, .parquet) with --vocabulary."
        ),
    ],
    ledger: Annotated[
        str | None, options.run("Ledger that records this check: a path or a URL. The record uses no budget.")
    ] = None,
    dataset: Annotated[str | None, options.run("Name of the data set in the ledger.")] = None,
    **given: Any,
) -> None:
    """Report invalid values of private data to the owner of the data, without showing values.

    For each column of a table: cells that are unreadable, undeclared or outside the range. For texts: documents that
    are not text, cannot be decoded or have no token, and files of a folder that do not end in .txt. Frequencies are
    reported as none, few, most or all. The command runs only in an interactive terminal, after a typed yes. --ledger
    records the check, which uses no budget.

        dpvb check-data people.csv --schema people.json

        dpvb check-data notes/ --vocabulary words.txt --ledger budget.db --dataset notes
    """
    from dpvb.data.documents.vocabulary import PRIVATE
    from dpvb.runs.run import check_account, opened

    if not is_terminal(sys.stdin, sys.stdout, sys.stderr):
        raise PrivacyError(
            "dpvb check-data must run in an interactive terminal. Its output is not protected by noise, so it cannot "
            "be piped or redirected."
        )
    if (given["schema"] is None) == (given["vocabulary"] is None):
        raise ParameterError("Give either --schema, for a table, or --vocabulary, for texts.")
    if str(given["vocabulary"]) == PRIVATE:
        raise ParameterError(
            "vocabulary must be a word list here, got 'private'. Any list will do: the check does not count known "
            "words."
        )
    form = "documents" if given["schema"] is None else "rows"
    belongs = reading.options_of(form, without=_OF_A_FIT)
    if foreign := [name for name in given if name not in belongs and given[name] != _OPTIONS[name].default]:
        raise ParameterError(
            f"{foreign[0]}= does not apply to {'texts' if form == 'documents' else 'tables'}. Leave it out."
        )
    check_account(ledger, dataset)
    _check_public(data, given)
    echo(_WARNING)
    if typer.prompt("Type yes to go on", default="") != "yes":
        raise PrivacyError("The check was cancelled: it needs a typed yes. Nothing was read.")
    if ledger is not None and dataset is not None:
        with opened(ledger) as account:
            account.record_data_check(dataset)
    if given["schema"] is not None:
        num_rows, lines = _of_table(reading.read("rows", {**given, "data": data})["X"])
        rows, kinds = "rows", _CELLS
    else:
        num_rows, lines = _of_texts(data, given)
        rows, kinds = "documents", _TEXTS
    echo(f"{num_rows:,} {rows} read. Few: at most half of them. Most: more than half.")
    print_table("", ["", *kinds], [[name, *words] for name, words in lines.items()], numbers=())


def _check_public(data: Path, given: Mapping[str, Any]) -> None:
    """Check what is public before the data are read: schema, word list, file format and header.

    Raises:
        ParameterError, DataFormatError: naming the error, without any private value.
    """
    from dpvb.data.csv_files import Dialect
    from dpvb.data.tables.table import check_columns

    if given["schema"] is not None:
        dialect = Dialect(given["separator"], given["decimal"], given["encoding"])
        check_columns(data, dpvb.Schema.load(given["schema"]), dialect)
        return
    for name in (given["text_column"], given["group_column"]):
        if name is not None:
            column = {"text_column": name, "group_column": None, "stream": True}
            reading.read("documents", {**given, "data": data, **column})


def _word(count: int, total: int) -> str:
    if count in (0, total):
        return SHARES[0 if count == 0 else 3]
    return SHARES[1 if 2 * count <= total else 2]


def _of_table(table: dpvb.Table) -> tuple[int, dict[str, list[str]]]:
    """Return the number of rows and the words for each column; malformed rows have a line of their own."""
    import numpy as np

    schema = table.schema
    found: dict[str, Counter[str]] = {name: Counter() for name in schema.read_columns}
    num_rows = num_records = 0
    for piece in table.pieces():
        sound = ~piece.malformed
        num_rows, num_records = num_rows + len(sound), num_records + int(np.count_nonzero(sound))
        for name in found.keys() & piece.cells.keys():
            for kind, faulty in _faults(schema, name, piece.cells).items():
                found[name][kind] += int(np.count_nonzero(faulty & sound))
    whole = [_word(num_rows - num_records, num_rows), *[""] * (len(_CELLS) - 1)]
    columns = {name: [_word(counts[kind], num_records) for kind in _CELLS] for name, counts in found.items()}
    return num_rows, {"(whole rows)": whole, **columns}


def _faults(schema: dpvb.Schema, name: str, cells: Mapping[str, Cells]) -> dict[str, Bools]:
    """Return which cells of a column are invalid, by the kind of error."""
    from dpvb.data.spelling import Categories, as_numbers, each, identity
    from dpvb.data.tables.response import LOWEST

    column, target = cells[name], schema.target
    missing_n = Categories((), schema.missing_values).places(column, other=0, missing=1) == 1
    if name == schema.group:
        return {_CELLS[0]: missing_n | (each(column, lambda cell: identity(cell) is None) == 1)}
    spec: Any = next((one for one in schema.own_columns if one.name == name), None)
    if spec is not None and spec.numeric:
        return _faults_of_numbers(spec.numbers(column), *spec.range, allowed=missing_n & (spec.missing is not None))
    if spec is not None:
        values = spec.categories if spec.kind == "categorical" else spec.values
        return _faults_of_labels(Categories(values, schema.missing_values), column, spec.missing not in (None, False))
    assert target is not None  # The target has all other columns.
    beside = {getattr(target, role): (role, bound) for role, bound in target.response.columns.items()}
    if name in beside:
        role, bound = beside[name]
        return _faults_of_numbers(as_numbers(column), max(LOWEST[role], -bound), bound)
    if target.response.is_label:
        return _faults_of_labels(Categories(target.classes), column, False)
    if target.kind == "numeric":
        return _faults_of_numbers(as_numbers(column), *target.response.range)
    if name == target.trials:
        return _faults_of_numbers(as_numbers(column), 1, target.max_trials, whole=True)
    most = target.max_count if target.trials is None else as_numbers(cells[target.trials])
    return _faults_of_numbers(as_numbers(column), 0, most, whole=True)


def _faults_of_numbers(
    number_n: Floats, low: float, high: float | Floats, *, allowed: bool | Bools = False, whole: bool = False
) -> dict[str, Bools]:
    """Return errors of numbers; missing ones may be `allowed`, the others may have to be `whole`."""
    import numpy as np

    faulty = ~np.isfinite(number_n) | (whole & (number_n != np.floor(number_n)))
    return {_CELLS[0]: faulty & ~np.asarray(allowed), _CELLS[2]: ~faulty & ((number_n < low) | (number_n > high))}


def _faults_of_labels(known: Categories, cells: Cells, has_place: bool) -> dict[str, Bools]:
    """Return errors of labels; a missing label is an error unless the column has a level for it."""
    place_n = known.places(cells, other=-2, missing=-3)
    return {_CELLS[0]: (place_n == -1) | ((place_n == -3) & (not has_place)), _CELLS[1]: place_n == -2}


def _of_texts(data: Path, given: Mapping[str, Any]) -> tuple[int, dict[str, list[str]]]:
    """Return the number of documents, the words for their texts, and for their persons if there is such a column."""
    from dpvb.data.csv_files import Dialect
    from dpvb.data.documents.files import text_records
    from dpvb.data.documents.vocabulary import Tokenizer
    from dpvb.data.spelling import identity

    group = given["group_column"]
    whole = {**given, "data": data, "group_column": None, "stream": True}
    source = reading.read("documents", whole)["X"]  # This reports public errors.
    tokenizer = Tokenizer(source.vocabulary, given["token_pattern"])
    columns = (given["text_column"], *([] if group is None else [group]))
    found: Counter[str] = Counter()
    num_documents = nobodies = 0
    dialect = Dialect(given["separator"], encoding=given["encoding"])
    for text, *person in text_records(data, columns, given["file_format"], dialect):
        num_documents += 1
        found[_fault(text, tokenizer.tokens)] += 1
        nobodies += bool(person) and identity(person[0]) is None
    lines = {"texts": [_word(found[kind], num_documents) for kind in _TEXTS]}
    if data.is_dir():
        others = sum(not one.is_dir() for one in data.rglob("*")) - num_documents
        lines["other files, not read"] = [_word(max(others, 0), max(others, 0) + num_documents), "", ""]
    if group is not None:
        lines[f"{group}: no person"] = [_word(nobodies, num_documents), "", ""]
    return num_documents, lines


def _fault(text: object, tokens: Callable[[str], list[str]]) -> str:
    """Return the kind of error of a document, or "" if it is valid."""
    from dpvb.data.spelling import UNREADABLE

    if not isinstance(text, (str, bytes)):
        return _TEXTS[0]
    if text == UNREADABLE:
        return _TEXTS[1]
    if isinstance(text, bytes):
        if b"\0" in text:
            return _TEXTS[0]
        try:
            text = text.decode()
        except UnicodeDecodeError:
            return _TEXTS[1]
    return "" if any(tokens(text)) else _TEXTS[2]
