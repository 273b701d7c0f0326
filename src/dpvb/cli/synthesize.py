"""`dpvb synthesize`: synthetic rows or sequences from a fitted model, or from a table that is fitted first."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import remark, spent
from dpvb.guards import notebook_html
from dpvb.guards.errors import ParameterError, check_integer

# Synthetic sequences that are shrunk.
_TOGETHER = 10_000


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def synthesize(
    context: typer.Context,
    data: Annotated[
        Path, typer.Argument(help="A model that `dpvb fit` wrote, of a kind that draws rows; or a private table.")
    ],
    rows: Annotated[int, typer.Option(help="Rows, or people with a sequence each: a public number, not the data's.")],
    out: Annotated[Path, typer.Option(help="The .csv file to write.")],
    length: Annotated[
        int | None, typer.Option(help="Symbols or points of each sequence; without it those that the fit allowed.")
    ] = None,
    tables: Annotated[
        int | None,
        typer.Option(help="Write so many tables, OUT-1.csv ..., each from groups drawn from their posterior."),
    ] = None,
    fidelity: Annotated[
        Path | None,
        typer.Option(help="HTML page to write: a comparison of the rows with released quantities of the private ones."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the public draws only.")] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write synthetic rows, and their privacy statement as OUT-statement.json.

    From a model, any number of rows costs nothing. They are never compared with the private ones.

        dpvb synthesize people.dpvb --rows 50000 --out synthetic.csv --fidelity page.html

    A table is fitted first: every further option is one of `dpvb fit mixture`, and OUT.dpvb keeps the model.

        dpvb synthesize people.csv --rows 50000 --out synthetic.csv --schema people.json --epsilon 1 --delta 1e-6

    A model of sequences gives a line for each symbol or point: person, time, and the symbol or the columns.

        dpvb synthesize visits.dpvb --rows 10000 --length 8 --out synthetic.csv
    """
    check_integer("--rows", rows, low=1, high=10**9)
    if length is not None:
        check_integer("--length", length, low=1, high=10**6)
    for word, path, suffix in (("--out", out, ".csv"), ("--fidelity", fidelity, ".html")):
        if path is not None and path.suffix.lower() != suffix:
            raise ParameterError(f"{word} must end in {suffix}, got {path.name!r}.")
    number = 0 if tables is None else check_integer("--tables", tables, low=2, high=10**4)
    targets = [out.with_name(f"{out.stem}-{place}.csv") for place in range(1, number + 1)] or [out]
    said = out.with_name(f"{out.stem}-statement.json")
    for path in targets:
        files.check_target(path, overwrite)
    files.check_target(said, overwrite, "The file of the privacy statement, which --out implies,")
    if fidelity is not None:
        files.check_target(fidelity, overwrite, "--fidelity")
    if data.suffix.lower() != ".dpvb":
        data = _fitted(context, data, out.with_suffix(".dpvb"), seed, overwrite)
    elif context.args:
        raise ParameterError(f"{context.args[0]} belongs to the fit of a table; a model has been fitted.")
    model = files.load_model(data, "sample")
    is_of_sequences = model._reads == "sequences"
    if (number or fidelity is not None) and not hasattr(model, "fidelity"):
        raise ParameterError(f"--tables and --fidelity belong to a mixture; this model is a {type(model).__name__}.")
    if not is_of_sequences and length is not None:
        raise ParameterError("--length belongs to a model of sequences, such as `dpvb fit markov-chain` writes.")
    from dpvb.estimators import Mixture
    from dpvb.estimators.base import generator
    from dpvb.estimators.ranges import places

    rng, shown = generator("seed", seed), ""
    for path in targets:
        if is_of_sequences:
            _write(path, _sequences(model, rows, length, rng))
            continue
        if isinstance(model, Mixture):
            drawn = Mixture.sample(model, rows, rng, parameters="draw" if number else "mean")
        else:
            drawn = model.sample(rows, rng)
            drawn = drawn if isinstance(drawn, dict) else dict(zip(places(drawn.shape[1]), drawn.T, strict=True))
        _write(path, [[*drawn], *zip(*(values.tolist() for values in drawn.values()), strict=True)])
        if fidelity is not None:
            shown += notebook_html.title(path.name) + model.fidelity(drawn, synthetic=True)._repr_html_()
    if fidelity is not None:
        with files.replacing(fidelity) as part:
            part.write_text(
                notebook_html.whole("Synthetic rows compared with released quantities", shown), encoding="utf-8"
            )
    facts: dict[str, Any] = {"people" if is_of_sequences else "rows": rows, "tables": [path.name for path in targets]}
    facts |= {} if is_of_sequences else {"parameters": "draw" if number else "mean"}
    with files.replacing(said) as part:
        part.write_text(json.dumps({**facts, "statement": model.privacy_.to_dict()}, indent=2) + "\n", encoding="utf-8")
    each = f"synthetic {'sequences' if is_of_sequences else 'rows'}{' each' * bool(number)}"
    remark(f"{', '.join(map(str, targets))}: {rows:,} {each}; {said}: the statement. {spent(model)}.")


def _fitted(context: typer.Context, table: Path, model: Path, seed: int | None, overwrite: bool) -> Path:
    """Fit a table by `dpvb fit mixture`, whose options are those of this call that are left over."""
    if str(table).startswith("-"):
        raise ParameterError(f"The table or the model comes first: dpvb synthesize FILE --rows N ..., got {table}.")
    files.check_target(model, overwrite, "The file of the fitted model, which --out implies,")
    call = ["mixture", str(table), *context.args, "--out", str(model), *["--overwrite"] * overwrite]
    call += [] if seed is None else ["--seed", str(seed)]
    root: Any = context.find_root()
    fit = root.command.get_command(root, "fit")
    with fit.make_context("fit", call, parent=root) as call_of_fit:
        fit.invoke(call_of_fit)
    return model


def _sequences(model: Any, people: int, length: int | None, rng: Any) -> Iterator[Sequence[Any]]:
    """Lines of a long table of synthetic sequences."""
    columns = model._named_columns or ("symbol",)
    yield (*(name + "_" * (name in columns) for name in ("person", "time")), *columns)
    for first in range(0, people, _TOGETHER):
        drawn = model.sample(min(people - first, _TOGETHER), rng, length=length)
        values = drawn[0] if isinstance(drawn, tuple) else drawn
        for person, sequence in enumerate(values.tolist(), first + 1):
            for time, point in enumerate(sequence, 1):
                yield (person, time, *(point if values.ndim == 3 else [str(point)]))  # A symbol is as it was declared.


def _write(path: Path, lines: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file as a whole: six digits of a number, nothing for a missing one."""
    with files.replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*map(_cell, line)] for line in lines)


def _cell(value: Any) -> Any:
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
