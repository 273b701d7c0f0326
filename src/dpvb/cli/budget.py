"""`dpvb show`, `report`, `demo`: what a model promises, a page about it, and a first look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, remark
from dpvb.guards.errors import ParameterError


@app.command()
def show(
    model: options.Model,
    brief: Annotated[bool, typer.Option("--brief", help="Six lines for whoever decides.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print the privacy statement of a saved model.

    What is promised, to whom, by which releases, what is taken as public and what is not covered. The epsilon is
    accounted for anew from the releases that the file lists. Where `dpvb audit --attach` has left its report, one line
    sums it up.

        dpvb show notes.dpvb
    """
    fitted = files.load_model(model)
    statement, report = fitted.privacy_, getattr(fitted, "audit_", None)
    statement.verify()
    if as_json:
        print_json(statement.to_dict() | ({} if report is None else {"audit": report.to_dict()}))
    else:
        echo(statement.in_short() if brief else str(statement))
        if report is not None:
            echo(f"{'Audit':<15}{report.summary}")


@app.command()
def report(
    model: options.Model,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The HTML file to write.", show_default=False)] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Write one page about a model: what was learned, how sure it is, what it cost, how it was done.

    The page needs no network and runs no script; it may be published, as the model may. With --json the same as a model
    card, on standard output.

        dpvb report notes.dpvb --out notes.html

        dpvb report notes.dpvb --json
    """
    if out is None and not as_json:
        raise ParameterError("--out must name the page's file; or --json prints a model card.")
    if out is not None:
        files.check_target(out, overwrite)
    page = files.load_model(model).report()
    if out is not None:
        page.save(out, overwrite=overwrite)
        remark(f"{out}: written.")
    if as_json:
        print_json(page.card())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the picture.")] = Path("demo-output"),
    epsilon: Annotated[float, typer.Option(help="The budget of the private fit.")] = 2.0,
    delta: Annotated[float, typer.Option(help="Below one over the 40,000 articles.")] = 1e-6,
) -> None:
    """Fit 20 topics to Wikipedia articles, privately and not, and compare.

    The package holds word counts of 40,000 articles, played to be private, and 1,000 public held-out ones. Prints both
    models' topics side by side, their perplexities and the privacy statement; writes a model and a picture.

        dpvb demo --out demo-output
    """
    from dpvb.cli import demo as demonstration

    files.check_folder(out)
    demonstration.run(out, epsilon=epsilon, delta=delta)
