"""`dpvb schema`: what is public about the columns of a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, is_terminal, print_json, print_table, remark
from dpvb.guards.errors import ParameterError, PrivacyError


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="A schema to check; none: print an example.")] = None,
    header: Annotated[
        Path | None, typer.Option(help="A CSV file: write a schema to fill in of its first line.")
    ] = None,
    dictionary: Annotated[
        Path | None, typer.Option(help="A data dictionary, CSV or Frictionless JSON: make it a schema.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of responses.")] = None,
    group: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="State that the first line is a header, whatever it looks like; or that nothing in the dictionary was "
            "computed from the rows. On a terminal the command asks.",
        ),
    ] = False,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
    as_json: options.Json = False,
) -> None:
    """Check a schema, print an example of one, or make one to fill in.

    A schema is a JSON file that says what is public about a table: each column's range or categories, and the target.
    A column is numeric, date, spline, binary or categorical; an interaction names two of them.
    Nothing is read off the rows. --header reads the first line of a CSV file, shows it and asks whether it is a header;
    --dictionary takes what was declared of the columns, and asks about fields that it does not know. Where no range is
    declared, low and high are null: fill them in, and make categories of what is no number.

        dpvb schema --header people.csv --target ill --yes > people.json

        dpvb schema --dictionary codebook.csv > people.json

        dpvb schema people.json
    """
    if sum(one is not None for one in (file, header, dictionary)) > 1:
        raise ParameterError("give one of a schema, --header and --dictionary.")
    if header is not None or dictionary is not None:
        from dpvb.data.csv_files import Dialect

        _print_stub(header, dictionary, Dialect(separator, decimal, encoding), target, group, yes)
        return
    from dpvb.data import Schema

    if file is None:
        from dpvb.sample import made_up

        example = Schema.from_json(json.dumps(made_up.SCHEMA))
        print_json(json.loads(example.to_json()), ensure_ascii=False)
        return
    declared = Schema.load(file)
    if as_json:
        print_json(json.loads(declared.to_json()), ensure_ascii=False)
        return
    print_table(
        f"{file.name}: {declared.width} features, row norm {declared.row_norm:.4g}, intercept {declared.intercept:.4g}",
        ["column", "kind", "features"],
        [[term.name, term.kind, str(term.width)] for term in declared.terms],
        numbers=(2,),
    )
    if declared.target is not None:
        echo(f"target: {declared.target.name} ({declared.target.kind})")
    if declared.group is not None:
        echo(f"person: {declared.group}")


def _check_sure(shown: str, what: str, sure: bool, *, quotes_data: bool) -> None:
    """Show what there is to be sure of, and ask for it unless somebody has said so.

    Args:
        shown: what there is to look at; empty: nothing.
        what: to be stated, in words.
        sure: whether it was stated by --yes.
        quotes_data: whether `shown` may hold what is private; then it is for a terminal, or for who is sure.

    Raises:
        PrivacyError: where nobody states it.
    """
    asked = not sure and is_terminal(sys.stdin, sys.stderr)
    if not (sure or asked):
        quoted = "" if quotes_data else f"{shown} "
        raise PrivacyError(
            f"{quoted}--yes must state that {what}: without a terminal nobody can be asked. Look at the file first."
        )
    if shown:
        remark(shown)
    if asked and typer.prompt(f"Type yes if {what}", default="", err=True) != "yes":
        raise PrivacyError("nothing was written: only a typed yes goes on.")


def _print_stub(
    header: Path | None, dictionary: Path | None, dialect: Any, target: str | None, group: str | None, sure: bool
) -> None:
    """Print a schema to fill in, and on standard error what there is to do."""
    from dpvb.data.tables.dictionary import columns_of_dictionary, columns_of_header, stub

    if header is not None:
        columns = columns_of_header(header, dialect, sure=sure)
        shown = f"The first line of {header.name} names: {dialect.separator.join(column.name for column in columns)}"
        what = "the first line is a header, and nobody's row"
    else:
        assert dictionary is not None
        columns, others = columns_of_dictionary(dictionary, dialect)
        shown = "; ".join(f"{field!r} of {name!r}" for field, name in others)
        shown = f"{dictionary.name} has fields that may have been computed: {shown}." if others else ""
        what = "nothing in the dictionary, no range and no level either, was computed from people's rows"
        sure = sure or not others
    facts = stub(columns, target=target, group=group)
    _check_sure(shown, what, sure, quotes_data=header is not None)
    print_json(facts, ensure_ascii=False)
    roles = {facts["group"], facts["target"]["name"], *(one["name"] for one in facts["columns"])}
    left_out = [column.name for column in columns if column.name not in roles]
    unknown = [one["name"] for one in facts["columns"] if None in (one.get("low", 0), one.get("high", 0))]
    if left_out:
        remark(f"Left out, as no numbers, levels or roles are declared of them: {', '.join(left_out)}.")
    if unknown:
        remark(
            f"Fill in low and high, from what you know without looking at the rows, of: {', '.join(unknown)}. A "
            'category is {"kind": "categorical", "name": ..., "categories": [...]}. Take out what the model does not '
            "need."
        )
    if facts["target"]["name"] is None:
        remark("Name the target and its kind, or write null in the target's place.")
    if facts["target"]["kind"] is None:
        remark(
            'Fill in the kind of the target, and what it may be: "logistic" with "classes": [no, yes]; "poisson" or '
            '"negative_binomial" with "max_count"; "numeric" with "low" and "high"; "binomial" with "trials" and '
            '"max_trials"; "classes" with "classes".'
        )
