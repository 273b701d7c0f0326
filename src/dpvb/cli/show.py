"""`dpvb show`, `report`: what a model promises, what it learned, and a page of both."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import as_json, echo, print_json, remark
from dpvb.guards.errors import ParameterError, check_choice

if TYPE_CHECKING:
    from dpvb.results.figures import Figure

_OF_EVERY_MODEL = ("statement", "brief", "summary", "all")
_PRINTED, _PICTURES = ("table", "json", "csv"), ("png", "pdf", "svg")
# Options by the parameters of `_facts_for_report`.
_OPTIONS = {
    name: f"--{'naive' if name == 'noise_aware' else name}"
    for name in ("level", "noise_aware", "words", "width", "coding", "reference", "exp", "per")
}


@app.command()
def show(
    model: options.Model,
    what: Annotated[
        str,
        typer.Option(
            help="statement, brief (six lines of it), summary, all, or a figure: topics, coefficients, groups, steps, "
            "transitions, emissions, motion, intervals, loadings, variances, weights or parameters."
        ),
    ] = "statement",
    form: Annotated[str, typer.Option("--as", help="What is printed: table, json or csv.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write a file instead: .json, .csv, .png, .pdf or .svg.")] = None,
    level: Annotated[float | None, typer.Option(help="Probability inside an interval; 0.95 if not given.")] = None,
    naive: Annotated[
        bool, typer.Option("--naive", help="Leave the privacy noise out of account; such intervals are too short.")
    ] = False,
    words: Annotated[int | None, typer.Option(help="Topics: words of each.")] = None,
    width: Annotated[int | None, typer.Option(help="Weights: width of an image; square ones need none.")] = None,
    coding: Annotated[
        str | None,
        typer.Option(help="Coefficients: compare levels with 'reference', 'sum' (their mean) or 'places' (nothing)."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(help="Coefficients: the category that others of its column are compared with: work=own."),
    ] = None,
    exp: Annotated[bool, typer.Option("--exp", help="Coefficients: odds or rate ratios.")] = False,
    per: Annotated[
        str | None, typer.Option(help="Coefficients: per 'unit' of a number, or per declared 'range'.")
    ] = None,
    minus: Annotated[Path | None, typer.Option(help="Coefficients: another model, whose own are taken away.")] = None,
    disjoint: Annotated[bool, typer.Option("--disjoint", help="With --minus: nobody is in the data of both.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Print the privacy statement of a saved model, or what the model learned.

    The statement says what is promised, to whom, by which releases, what is taken as public and what is not covered.
    Its epsilon is accounted for anew from the releases that the file lists. Where `dpvb audit --attach` has left its
    report, one line sums it up.

    A figure shows what was learned, with intervals that include the privacy noise; showing it costs nothing. A table of
    coefficients is per unit of a column; a level of a categorical column is compared with the reference level.
    --reference takes another one, and changes nothing in the model. --minus prints the differences of two models'
    coefficients: the same people may be in the data of both, unless --disjoint says otherwise.

        dpvb show notes.dpvb

        dpvb show notes.dpvb --what topics --words 12

        dpvb show people.dpvb --what coefficients --exp --reference work=own

        dpvb show people.dpvb --what coefficients --out people.svg
    """
    if out is not None:
        form = out.suffix.lower().removeprefix(".")
        if form not in (*_PRINTED[1:], *_PICTURES):
            raise ParameterError(f"--out must end in .json, .csv, .png, .pdf or .svg, got {out.name!r}.")
        files.check_target(out, overwrite)
    else:
        check_choice("--as", form, _PRINTED)
    if disjoint and minus is None:
        raise ParameterError("--disjoint speaks of two models: give the other one with --minus.")
    values = (level, False if naive else None, words, width, coding, _references(reference), exp or None, per)
    chosen = {name: value for name, value in zip(_OPTIONS, values, strict=True) if value is not None}
    fitted = files.load_model(model)
    fitted.privacy_.verify()
    if what in _OF_EVERY_MODEL[:3]:
        if chosen or minus is not None:
            word = next((_OPTIONS[name] for name in chosen), "--minus")
            raise ParameterError(f"{word} applies to a figure: name one with --what, or give --what all.")
        text = _words(fitted, what, form)
    else:
        figures = _figures(fitted, what, chosen, minus, disjoint)
        if form in _PICTURES:
            from dpvb.results import pictures

            assert out is not None
            pictures.save(out, figures, f"{type(fitted).__name__}. Privacy: {fitted.privacy_.brief}.")
            remark(f"{out}: written.")
            return
        text = _shown(figures, form)
        if form == "table":
            text = "\n".join([text, *fitted.privacy_.remarks])
    if out is None:
        echo(text.removesuffix("\n"))
        return
    with files.replacing(out) as part:
        part.write_text(text, encoding="utf-8", newline="")
    remark(f"{out}: written.")


def _words(fitted: Any, what: str, form: str) -> str:
    """What every model says, as text or JSON."""
    statement, report = fitted.privacy_, getattr(fitted, "audit_", None)
    if form not in ("table", "json") or (what == "summary" and form == "json"):
        raise ParameterError(f"--what must name a figure for {form}; {what} is text.")
    if what == "summary":
        return str(fitted.summary() if hasattr(fitted, "summary") else fitted)
    if what == "brief":
        return as_json(dict(statement.in_short_lines())) if form == "json" else str(statement.in_short())
    if form == "json":
        return as_json(statement.to_dict() | ({} if report is None else {"audit": report.to_dict()}))
    return "\n".join([str(statement), *([] if report is None else [f"{'Audit':<15}{report.summary}"])])


def _figures(fitted: Any, what: str, chosen: Mapping[str, Any], minus: Path | None, disjoint: bool) -> list[Figure]:
    """The figures of a model that are asked for."""
    kind, takes = type(fitted).__name__, inspect.signature(fitted._facts_for_report).parameters
    if foreign := [_OPTIONS[name] for name in chosen if name not in takes]:
        able = ", ".join(_OPTIONS[name] for name in takes) or "no option"
        raise ParameterError(f"{foreign[0]} does not apply to a {kind}, whose figures take {able}.")
    if minus is not None:
        from dpvb.estimators import compare

        return [compare(fitted, files.load_model(minus, "coefficients"), disjoint=disjoint, **chosen)]
    figures = list(fitted._facts_for_report(**chosen))
    selected = [figure for figure in figures if what in ("all", figure.name)]
    if not selected:
        names = dict.fromkeys([*_OF_EVERY_MODEL, *(figure.name for figure in figures)])
        raise ParameterError(f"--what must be one of {', '.join(filter(None, names))} for a {kind}, got {what!r}.")
    return selected


def _shown(figures: list[Figure], form: str) -> str:
    """Figures as text, JSON or CSV."""
    if form == "table":
        return "\n\n".join(map(str, figures))
    if len(figures) == 1:
        return str(figures[0].to_csv()) if form == "csv" else as_json(figures[0].to_dicts())
    if form == "csv":
        raise ParameterError("--what must name one figure for csv; this one has several parts. JSON holds them all.")
    return as_json([drawing.to_dict() for figure in figures for drawing in figure.drawings()])


def _references(texts: list[str] | None) -> dict[str, str] | None:
    """Levels by the names of their columns, of texts such as work=own."""
    levels: dict[str, str] = {}
    for text in texts or ():
        column, is_there, level = text.partition("=")
        if not is_there or column in levels:
            raise ParameterError(f"--reference must be COLUMN=LEVEL, such as work=own, once a column, got {text!r}.")
        levels[column] = level
    return levels or None


@app.command()
def report(
    model: options.Model,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The HTML file to write.")] = None,
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
