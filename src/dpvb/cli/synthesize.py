"""`dpvb groups`, `dpvb synthesize`: what a mixture says of a table; rows and sequences of people who do not exist."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, log, options, reading
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, progress_bar, remark, spent
from dpvb.guards import pages
from dpvb.guards.errors import ParameterError, check_integer

# Sequences of nobody that are drawn together.
_TOGETHER = 10_000


@app.command()
def groups(
    model: options.Model,
    level: options.Level = 0.95,
    naive: options.Naive = False,
    as_json: options.Json = False,
) -> None:
    """Print the groups of a mixture: shares, means, rates and probabilities, with intervals that know the noise.

    dpvb groups people.dpvb
    """
    table = files.load_model(model, "groups").groups(level, noise_aware=not naive)
    if as_json:
        print_json([line._asdict() for line in table])
        return
    echo(str(table))


@app.command()
def synthesize(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table of private rows: .csv, .csv.gz or .parquet; or a model that `dpvb fit` "
            "wrote, of a kind that draws rows, which costs nothing more.",
            show_default=False,
        ),
    ],
    rows: Annotated[
        int,
        typer.Option(
            help="How many rows, or people with a sequence each, to make: a public number, not that of the data.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .csv file to write.", show_default=False)],
    schema: options.SchemaFile = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="The privacy budget of the fit.", show_default=False, rich_help_panel=options.PLAN),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The chance that the promise leaves open.", show_default=False, rich_help_panel=options.PLAN),
    ] = None,
    groups: Annotated[
        int, typer.Option("--groups", help="Largest number of groups.", rich_help_panel=options.PLAN)
    ] = 20,
    counts: Annotated[
        str, typer.Option(help="Numeric columns from 0 that are counts.", rich_help_panel=options.DATA)
    ] = "",
    missing: Annotated[
        str, typer.Option(help="Numeric columns whose entries may be missing.", rich_help_panel=options.DATA)
    ] = "",
    length: Annotated[
        int | None,
        typer.Option(
            help="Symbols or points of each sequence; without it those that the fit allowed.", show_default=False
        ),
    ] = None,
    tables: Annotated[
        int | None,
        typer.Option(
            help="Write so many tables, each from groups drawn from their posterior: OUT-1.csv, OUT-2.csv ...",
            show_default=False,
        ),
    ] = None,
    fidelity: Annotated[
        Path | None,
        typer.Option(
            help="A .html page to write: the rows beside what was released of the private ones, and nothing else of "
            "them.",
            show_default=False,
        ),
    ] = None,
    check_share: Annotated[
        float,
        typer.Option(
            help="Share of the budget for tables of all pairs of columns, which the page then compares.",
            rich_help_panel=options.PLAN,
        ),
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the public draws alone.", show_default=False)] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="What is charged: a path or a URL.", show_default=False, rich_help_panel=options.RUN),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the data set in the ledger.", show_default=False, rich_help_panel=options.RUN),
    ] = None,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    log_file: options.LogFile = None,
) -> None:
    """Write rows of people who do not exist, like those of a table, and the privacy statement beside them.

    A mixture is fitted with the whole budget, and the rows are drawn from what it released: any number of them, at no
    further cost. They are never compared with the private ones. OUT.json, beside the rows, says what was promised.

        dpvb synthesize people.csv --schema people.json --rows 50000 --epsilon 1 --delta 1e-6 --out synthetic.csv

        dpvb synthesize people.dpvb --rows 50000 --out synthetic.csv --fidelity page.html

    Of a model of sequences it writes sequences, a line for each symbol or point: person, time, and the symbol or the
    columns.

        dpvb synthesize visits.dpvb --rows 10000 --length 8 --out synthetic.csv
    """
    check_integer("--rows", rows, low=1, high=10**9)
    if length is not None:
        check_integer("--length", length, low=1, high=10**6)
    if out.suffix.lower() != ".csv":
        raise ParameterError(f"--out must end in .csv, got {out.name!r}.")
    many = 0 if tables is None else check_integer("--tables", tables, low=2, high=10**4)
    targets = [out.with_name(f"{out.stem}-{place}.csv") for place in range(1, many + 1)] or [out]
    said = out.with_suffix(".json")
    if fidelity is not None and fidelity.suffix.lower() != ".html":
        raise ParameterError(f"--fidelity must end in .html, got {fidelity.name!r}.")
    for path in (*targets, said):
        files.check_target(path, overwrite)
    if fidelity is not None:
        files.check_target(fidelity, overwrite, "--fidelity")
    if data.suffix.lower() == ".dpvb":
        if schema is not None or epsilon is not None or delta is not None or ledger is not None or check_share:
            raise ParameterError(
                "--schema, --epsilon, --delta, --check-share and --ledger belong to a table; a model has been fitted."
            )
        model = files.load_model(data, "sample")
    else:
        if epsilon is None or delta is None:
            raise ParameterError(
                "a table needs --epsilon and --delta, what the rows may reveal about any one of its own."
            )
        from dpvb.estimators import Mixture

        model = Mixture(
            groups,
            epsilon=epsilon,
            delta=delta,
            counts=counts,
            missing=missing,
            check_share=check_share,
            random_state=seed,
            ledger=ledger,
            dataset=dataset,
        )
        how = {"separator": separator, "decimal": decimal, "encoding": encoding}
        given = reading.table(data, schema, **how)
        with progress_bar(epsilon, delta, quiet=quiet) as tell:
            model.fit(**given, progress=tell)
        log.write("statement", message=model.privacy_.brief)
    is_of_sequences = model.reads == "sequences"
    if (many or fidelity is not None) and not hasattr(model, "fidelity"):
        raise ParameterError(f"--tables and --fidelity belong to a mixture; this model is a {type(model).__name__}.")
    if not is_of_sequences and length is not None:
        raise ParameterError("--length belongs to a model of sequences, such as `dpvb fit markov-chain` writes.")
    if is_of_sequences:
        _write_sequences(model, rows, length, out, said, seed)
        remark(f"{out}: {rows:,} people who do not exist; {said}: the promise. {spent(model)}.")
        return
    _write(model, rows, targets, said, many, seed, fidelity)
    each = " each" if many else ""
    remark(f"{', '.join(map(str, targets))}: {rows:,} rows of nobody{each}; {said}: the promise. {spent(model)}.")


def _write(
    model: Any, rows: int, targets: list[Path], said: Path, many: int, seed: int | None, page: Path | None
) -> None:
    """Rows of nobody, what was promised to those who stand behind them, and a page of fidelity if one is asked for."""
    from dpvb.estimators import Mixture
    from dpvb.estimators.base import generator
    from dpvb.estimators.ranges import places

    rng = generator("seed", seed)
    shown: list[str] = []
    for path in targets:
        if isinstance(model, Mixture):
            found = Mixture.sample(model, rows, rng, parameters="draw" if many else "mean")
        else:
            drawn = model.sample(rows, rng)
            found = drawn if isinstance(drawn, dict) else dict(zip(places(drawn.shape[1]), drawn.T, strict=True))
        with files.replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(found)
            lines.writerows(zip(*(map(_cell, values.tolist()) for values in found.values()), strict=True))
        if page is not None:
            shown += [pages.title(path.name), model.fidelity(found, synthetic=True)._repr_html_()]
    if page is not None:
        with files.replacing(page) as part:
            part.write_text(pages.whole("Synthetic rows beside what was released", "".join(shown)), encoding="utf-8")
    facts = {"rows": rows, "tables": [path.name for path in targets], "parameters": "draw" if many else "mean"}
    with files.replacing(said) as part:
        part.write_text(json.dumps({**facts, "statement": model.privacy_.to_dict()}, indent=2) + "\n", encoding="utf-8")


def _write_sequences(model: Any, people: int, length: int | None, out: Path, said: Path, seed: int | None) -> None:
    """Sequences of nobody as a long table, and what was promised to those who stand behind them."""
    from dpvb.estimators.base import generator

    rng, columns = generator("seed", seed), model.named_columns or ("symbol",)
    with files.replacing(out) as part, part.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow((*(name + "_" * (name in columns) for name in ("person", "time")), *columns))
        for first in range(0, people, _TOGETHER):
            drawn = model.sample(min(people - first, _TOGETHER), rng, length=length)
            shown = drawn[0] if isinstance(drawn, tuple) else drawn
            for person, one in enumerate(shown.tolist(), first + 1):
                # A symbol is as it was declared; a number has six digits.
                points = [map(_cell, point) for point in one] if shown.ndim == 3 else [[symbol] for symbol in one]
                lines.writerows((person, time, *point) for time, point in enumerate(points, 1))
    facts = {"people": people, "tables": [out.name], "statement": model.privacy_.to_dict()}
    with files.replacing(said) as part:
        part.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _cell(value: Any) -> Any:
    """A value as a CSV file has it: six digits of a number, nothing for a missing one."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
