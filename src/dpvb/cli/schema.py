"""`dpvb schema`: what is public about the columns of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpvb.cli import options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, print_table


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="A schema to check; none: print an example.")] = None,
    as_json: options.Json = False,
) -> None:
    """Check a schema, or print an example of one.

    A schema is a JSON file that says what is public about a table: each column's range or categories, and the target.
    Nothing is read off the data.

        dpvb schema > people.json

        dpvb schema people.json
    """
    from dpvb.data import Binary, Categorical, Numeric, Schema, Target

    if file is None:
        example = Schema(
            columns=(
                Numeric("age", low=18, high=90),
                Numeric("income", low=0, high=500_000, transform="log1p", missing=0),
                Categorical("work", ("private", "state", "self-employed")),
                Binary("urban", values=("no", "yes")),
            ),
            target=Target("ill", classes=("no", "yes")),
        )
        print_json(json.loads(example.to_json()), ensure_ascii=False)
        return
    found = Schema.load(file)
    if as_json:
        print_json(json.loads(found.to_json()), ensure_ascii=False)
        return
    print_table(
        f"{file.name}: {found.width} features, row norm {found.row_norm:.4g}, intercept {found.intercept:.4g}",
        ["column", "kind", "features"],
        [[column.name, column.kind, str(column.width)] for column in found.columns],
        numbers=(2,),
    )
    if found.target is not None:
        echo(f"target: {found.target.name} ({found.target.kind})")
    if found.group is not None:
        echo(f"person: {found.group}")
