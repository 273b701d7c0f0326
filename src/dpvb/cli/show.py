"""`dpvb show`, `report`: the privacy statement of a model, its results, and a page with both."""

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
    name: f"--{'ignore-noise' if name == 'noise_aware' else name}"
    for name in ("level", "noise_aware", "words", "width", "coding", "reference", "exp", "per")
}


@app.command()
def show(
    model: options.Model,
    what: Annotated[
        str,
        typer.Option(
            help="statement, brief (six lines of it), summary, all, or a figure: topics, coefficients, components, "
            "transitions, emissions, motion, intervals, loadings, variances, weights or parameters."
        ),
    ] = "statement",
    form: Annotated[str, typer.Option("--as", help="Output format: table, json or csv.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Write a file instead: .json, .csv, .png, .pdf or .svg.")] = None,
    level: Annotated[float | None, typer.Option(help="Probability inside an interval; 0.95 if not given.")] = None,
    ignore_noise: Annotated[
        bool, typer.Option("--ignore-noise", help="Intervals without the privacy noise; these are too short.")
    ] = False,
    words: Annotated[int | None, typer.Option(help="Topics: number of words per topic.")] = None,
    width: Annotated[int | None, typer.Option(help="Weights: width of an image, if it is not square.")] = None,
    coding: Annotated[
        str | None,
        typer.Option(help="Coefficients: compare levels with the 'reference', their mean ('sum') or nothing ('none')."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(help="Coefficients: reference category of a column, for example work=own. May be repeated."),
    ] = None,
    exp: Annotated[bool, typer.Option("--exp", help="Coefficients: print odds or rate ratios.")] = False,
    per: Annotated[
        str | None, typer.Option(help="Coefficients: per 'unit' of a number, or per declared 'range'.")
    ] = None,
    compare_with: Annotated[
        Path | None, typer.Option(help="Coefficients: another model; prints this model minus the other.")
    ] = None,
    disjoint: Annotated[
        bool, typer.Option("--disjoint", help="With --compare-with: no person is in the data of both models.")
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Print the privacy statement of a saved model, or what the model learned.

    The privacy statement lists the guarantee, the protected unit, the releases, the public inputs and what is not
    covered. Its epsilon is computed again from the releases in the file. A report of `dpvb audit --attach` adds one
    line.

    A figure shows results, with intervals that include the privacy noise. Showing it uses no budget. Coefficients are
    per unit of a column; levels of a categorical column are compared with the reference level. --reference selects
    another level and does not change the model. --compare-with prints the differences of two models' coefficients. It
    assumes that the same people may be in both data sets; --disjoint states that they are not.

        dpvb show notes.dpvb

        dpvb show notes.dpvb --json

        dpvb show notes.dpvb --what topics --words 12

        dpvb show people.dpvb --what coefficients --exp --reference work=own

        dpvb show people.dpvb --what coefficients --out people.svg
    """
    form = "json" if as_json else form
    if out is not None:
        form = out.suffix.lower().removeprefix(".")
        if form not in (*_PRINTED[1:], *_PICTURES):
            raise ParameterError(f"--out must end in .json, .csv, .png, .pdf or .svg, got {out.name!r}.")
        files.check_target(out, overwrite)
    else:
        check_choice("--as", form, _PRINTED)
    if disjoint and compare_with is None:
        raise ParameterError("--disjoint needs a second model: give it with --compare-with.")
    values = (level, False if ignore_noise else None, words, width, coding, _references(reference), exp or None, per)
    chosen = {name: value for name, value in zip(_OPTIONS, values, strict=True) if value is not None}
    if what in _OF_EVERY_MODEL[:3]:
        if chosen or compare_with is not None:
            word = next((_OPTIONS[name] for name in chosen), "--compare-with")
            raise ParameterError(f"{word} applies only to figures. Name one with --what, or give --what all.")
        text = _words(model, what, form)
    else:
        fitted = files.load_model(model)
        fitted.privacy_.verify()
        figures = _figures(fitted, what, chosen, compare_with, disjoint)
        if form in _PICTURES:
            from dpvb.results import plots

            assert out is not None
            plots.save(out, figures, f"{type(fitted).__name__}. Privacy: {fitted.privacy_.brief}.")
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


def _words(model: Path, what: str, form: str) -> str:
    """Return what every model has, as text or JSON."""
    if form not in ("table", "json") or (what == "summary" and form == "json"):
        raise ParameterError(f"--what must name a figure if the output is {form}, got {what!r}, which is text.")
    if what == "summary":
        fitted = files.load_model(model)
        fitted.privacy_.verify()
        return str(fitted.summary() if hasattr(fitted, "summary") else fitted)
    statement, report = files.read_statement(model)
    if what == "brief":
        return as_json(dict(statement.in_short_lines())) if form == "json" else str(statement.in_short())
    if form == "json":
        return as_json(statement.to_dict() | ({} if report is None else {"audit": report.to_dict()}))
    return "\n".join([str(statement), *([] if report is None else [f"{'Audit':<15}{report.summary}"])])


def _figures(fitted: Any, what: str, chosen: Mapping[str, Any], other: Path | None, disjoint: bool) -> list[Figure]:
    """Return the selected figures of a model."""
    kind, takes = type(fitted).__name__, inspect.signature(fitted._facts_for_report).parameters
    if foreign := [_OPTIONS[name] for name in chosen if name not in takes]:
        able = ", ".join(_OPTIONS[name] for name in takes) or "none"
        raise ParameterError(f"{foreign[0]} does not apply to a {kind}. Options of its figures: {able}.")
    if other is not None:
        from dpvb.estimators import compare

        return [compare(fitted, files.load_model(other, "coefficients"), disjoint=disjoint, **chosen)]
    figures = list(fitted._facts_for_report(**chosen))
    selected = [figure for figure in figures if what in ("all", figure.name)]
    if not selected:
        names = dict.fromkeys([*_OF_EVERY_MODEL, *(figure.name for figure in figures)])
        raise ParameterError(f"--what must be one of {', '.join(filter(None, names))} for a {kind}, got {what!r}.")
    return selected


def _shown(figures: list[Figure], form: str) -> str:
    """Return figures as text, JSON or CSV."""
    if form == "table":
        return "\n\n".join(map(str, figures))
    if len(figures) == 1:
        return str(figures[0].to_csv()) if form == "csv" else as_json(figures[0].to_dicts())
    if form == "csv":
        raise ParameterError("--what must name one figure if the output is csv; this one has several parts. Use json.")
    return as_json([drawing.to_dict() for figure in figures for drawing in figure.drawings()])


def _references(texts: list[str] | None) -> dict[str, str] | None:
    """Return levels by the names of their columns, from texts such as work=own."""
    levels: dict[str, str] = {}
    for text in texts or ():
        column, is_there, level = text.partition("=")
        if not is_there or column in levels:
            raise ParameterError(
                f"--reference must be COLUMN=LEVEL, for example work=own, at most once per column, got {text!r}."
            )
        levels[column] = level
    return levels or None


@app.command()
def report(
    model: options.Model,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The HTML file to write.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Write an HTML page about a model: results with intervals, privacy statement, cost and method.

    The page needs no network and runs no script. Like the model, it may be published. --json prints the same facts as a
    model card.

        dpvb report notes.dpvb --out notes.html

        dpvb report notes.dpvb --json
    """
    if out is None and not as_json:
        raise ParameterError("--out must name the HTML file to write, or --json must be given.")
    if out is not None:
        files.check_target(out, overwrite)
    page = files.load_model(model).report()
    if out is not None:
        page.save(out, overwrite=overwrite)
        remark(f"{out}: written.")
    if as_json:
        print_json(page.card())
