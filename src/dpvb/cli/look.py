"""`dpvb topics`, `coef`, `transform`, `picture`, `evaluate`: what a fitted model says, and how good it is."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from dpvb.cli import files, options, reading
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, print_table, remark
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, PrivacyError, check_integer

#: Commands that look at a model file, by the method that a kind of model needs for it.
LOOKS: Final[Mapping[str, str]] = {
    "topics": "dpvb topics {}",
    "coefficients": "dpvb coef {}",
    "reconstruct": "dpvb picture {} --out weights.png",
    "groups": "dpvb groups {}",
    "transition_intervals": "dpvb transitions {}",
    "motion": "dpvb transitions {}",
}
_PICTURES, _PICTURES_SAID = (".png", ".pdf", ".svg"), ".png, .pdf or .svg"
_WORDS = {
    "auc": "AUC",
    "log_likelihood": "log-likelihood per row",
    "log_likelihood_of_a_symbol": "log-likelihood of a symbol, in nats",
    "log_likelihood_of_a_point": "log-likelihood of a point, in nats",
    "calibration_error": "calibration error (10 bins)",
    "deviance": "deviance per row",
    "explained_deviance": "share of deviance explained",
    "reconstruction_accuracy": "reconstruction accuracy",
    "bound": "bound on the log-likelihood of a row",
    "perplexity": "perplexity (bound)",
    "completion_perplexity": "perplexity (completion)",
}


@app.command()
def topics(
    model: options.Model,
    words: Annotated[int, typer.Option(help="Words of each topic.")] = 10,
    as_json: options.Json = False,
) -> None:
    """Print the words of each topic, most probable first.

    Topics are what the fit was allowed to say: printing them costs nothing more.

        dpvb topics notes.dpvb --words 12
    """
    check_integer("words", words, low=1)
    fitted = files.load_model(model, "topics")
    lists = fitted.topics(words)
    if as_json:
        print_json(lists)
        return
    print_table("", ["topic", "words"], [[str(k), " ".join(one)] for k, one in enumerate(lists)], numbers=(0,))
    for fact in fitted.privacy_.remarks:
        echo(fact)


@app.command()
def coef(
    model: options.Model,
    level: options.Level = 0.95,
    naive: options.Naive = False,
    coding: Annotated[
        str, typer.Option(help="What levels are compared with: 'reference', 'sum' (their mean) or 'places' (nothing).")
    ] = "reference",
    reference: Annotated[
        list[str] | None,
        typer.Option(help="The category that others of its column are compared with: work=own.", show_default=False),
    ] = None,
    exp: Annotated[bool, typer.Option("--exp", help="Odds or rate ratios.")] = False,
    per: Annotated[str, typer.Option(help="Coefficients per 'unit' of a number, or per declared 'range'.")] = "unit",
    minus: Annotated[
        Path | None, typer.Option(help="Another model, whose coefficients are taken away.", show_default=False)
    ] = None,
    disjoint: Annotated[bool, typer.Option("--disjoint", help="With --minus: nobody is in the data of both.")] = False,
    csv_out: Annotated[
        str | None, typer.Option("--csv", help="Write the rows as CSV to a file, or to '-', standard output.")
    ] = None,
    as_latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table (package booktabs).")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the intervals: .png, .pdf or .svg.", show_default=False)
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Print the coefficients of a regression with their credible intervals.

    The intervals know the privacy noise. Coefficients are per unit of a column (where a schema transforms it, of the
    transformed number); a level of a categorical column is compared with the reference level that the schema names, or
    with the first. A note says "prior" where the interval is mostly the prior's, and "unseen" where the declared range
    is too wide for the budget to see the column's spread.

    --reference compares with another level; it may be given for several columns, and changes nothing in the model.

    --minus prints the differences of two models' coefficients. The same people may be in the data of both, unless
    --disjoint says otherwise.

        dpvb coef people.dpvb --level 0.9 --exp --reference work=own

        dpvb coef people.dpvb --csv people-coef.csv --plot people.svg
    """
    if as_json + as_latex + (csv_out == "-") > 1:
        raise ParameterError("--json, --latex and --csv - each print on standard output: give one of them.")
    if disjoint and minus is None:
        raise ParameterError("--disjoint speaks of two models: give the other one with --minus.")
    written = None if csv_out in (None, "-") else Path(str(csv_out))
    for word, path in (("--csv", written), ("--plot", plot)):
        if path is not None:
            files.check_target(path, overwrite, word)
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise ParameterError(f"--plot must end in {_PICTURES_SAID}, got {plot.name!r}.")
    fitted = files.load_model(model, "coefficients")
    how: dict[str, Any] = {"level": level, "noise_aware": not naive, "coding": coding, "exp": exp, "per": per}
    if reference:
        how["reference"] = _references(reference)
    if minus is None:
        table = fitted.coefficients(**how)
    else:
        from dpvb.estimators import compare

        table = compare(fitted, files.load_model(minus, "coefficients"), disjoint=disjoint, **how)
    if written is not None:
        with files.replacing(written) as file:
            table.to_csv(file)
        remark(f"{written}: one row a coefficient.")
    if plot is not None:
        from dpvb.results import pictures

        pictures.forest_picture(plot, table.figure)
        remark(f"{plot}: written.")
    if as_json:
        print_json([row._asdict() for row in table])
    elif as_latex or csv_out == "-":
        echo((table.to_latex() if as_latex else table.to_csv()).removesuffix("\n"))
    elif written is None and plot is None:
        echo(str(table))


def _references(given: list[str]) -> dict[str, str]:
    """Levels by the names of their columns, of texts such as work=own."""
    found: dict[str, str] = {}
    for one in given:
        column, is_there, level = one.partition("=")
        if not is_there or column in found:
            raise ParameterError(f"--reference must be COLUMN=LEVEL, such as work=own, once a column, got {one!r}.")
        found[column] = level
    return found


@app.command()
def transform(
    model: options.Model,
    data: options.Documents,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.", show_default=False)],
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    separator: options.Separator = ",",
    encoding: options.Encoding = "utf-8",
    overwrite: options.Overwrite = False,
) -> None:
    """Write the topic proportions of each document, one row a document.

    Rows stand in the order of the file. Of a folder they stand in the order of the names of its files, and the column
    `document` holds these names. A .csv file has a column for each topic, a .npz file the array `proportions`.

    These rows and names are as private as the documents themselves: the promise covers the topics, not them. Their
    owner alone may read the file.

        dpvb transform notes.dpvb notes --out proportions.csv
    """
    import numpy as np

    if out.suffix.lower() not in (".npz", ".csv"):
        raise ParameterError(f"--out must end in .npz or .csv, got {out.name!r}.")
    files.check_target(out, overwrite)
    fitted = files.load_model(model, "topics")
    how = {"file_format": file_format, "token_pattern": token_pattern, "separator": separator, "encoding": encoding}
    from dpvb.data.documents.files import document_names

    names = document_names(data, file_format)
    proportions = fitted.transform(**_documents(fitted, data, vocabulary, text_column=text_column, **how))
    if names != document_names(data, file_format):
        raise DataFormatError(f"{data}: files came or went while the folder was read. Nothing is written; call again.")
    with files.private(out) as file:
        if out.suffix.lower() == ".npz":
            named: dict[str, Any] = {} if names is None else {"document": np.array(names, dtype=np.str_)}
            np.savez_compressed(file, proportions=proportions, **named)
        else:
            _write_csv(file, names, proportions)
    remark(f"{out}: one row a document. Keep it as private as the documents; it carries no guarantee.")


def _write_csv(file: IO[bytes], names: list[str] | None, proportions: Floats) -> None:
    """Rows of proportions, each behind the name of its document where documents have one, as the disk spells it."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
    rows = csv.writer(text, lineterminator="\n")
    first: list[list[str]] = [[]] * len(proportions) if names is None else [[name] for name in names]
    rows.writerow([*([] if names is None else ["document"]), *(f"topic_{k}" for k in range(proportions.shape[1]))])
    rows.writerows([*name, *(f"{share:.6g}" for share in row)] for name, row in zip(first, proportions, strict=True))
    text.detach()


@app.command()
def picture(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.", show_default=False)],
    width: Annotated[
        int | None, typer.Option(help="Width of an image of a belief network; square images need none.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a model: topics as bars, steps of a chain, weights of a belief network, intervals of a regression, motion.

    The steps of a chain are a heat map. Of a linear system it draws how sequences begin, with bands, and a few
    of nobody. `dpvb report` draws every model on a page.

        dpvb picture digits.dpvb --out digits.png
    """
    from dpvb.results import pictures

    if out.suffix.lower() not in _PICTURES:
        raise ParameterError(f"--out must end in {_PICTURES_SAID}, got {out.name!r}.")
    files.check_target(out, overwrite)
    fitted = files.load_model(model, "topics", "reconstruct", "steps", "motion", "coefficients")
    if hasattr(fitted, "coefficients"):
        pictures.forest_picture(out, fitted.coefficients().figure)
    elif hasattr(fitted, "steps") or hasattr(fitted, "motion"):
        fitted.plot(out, overwrite=True)  # What is there by now was looked at.
    elif hasattr(fitted, "topics"):
        names = fitted.vocabulary_ or [f"#{v}" for v in range(fitted.n_features_in_)]
        pictures.topics_picture(out, fitted.components_, names, fitted.privacy_)
    else:
        total = fitted.n_features_in_
        width = math.isqrt(total) if width is None else check_integer("width", width, low=1)
        if total % width:
            raise ParameterError(f"--width must divide the {total} units of a row, got {width}.")
        pictures.weights_picture(out, fitted.components_, fitted.privacy_, shape=(total // width, width))
    remark(f"{out}: written.")


@app.command()
def evaluate(
    model: options.Model,
    data: Annotated[
        Path, typer.Argument(help="Public data in a form that the model was fitted to.", show_default=False)
    ],
    public: options.Public = False,
    words: Annotated[
        int, typer.Option(help="Topics: top words that coherence looks at.", rich_help_panel=options.DATA)
    ] = 10,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    target: options.Target = None,
    trials: options.Trials = None,
    exposure: options.Exposure = None,
    offset: options.Offset = None,
    person_column: options.PersonColumn = "person",
    symbol_column: options.SymbolColumn = "symbol",
    time_column: options.TimeColumn = None,
    sequence_column: options.SequenceColumn = None,
    separator: options.Separator = ",",
    decimal: options.Decimal = ".",
    encoding: options.Encoding = "utf-8",
    as_json: options.Json = False,
) -> None:
    """Measure a model on public held-out data.

    Topics: perplexity (lower is better) by its bound and by completion, one half of each document's words given the
    other; coherence (NPMI, from -1 to 1) says how often a topic's top words meet in these documents. Regressions: AUC,
    log-likelihood, accuracy and calibration of probabilities; deviance of counts. Belief networks: share of entries
    that are reconstructed, and the bound on the log-likelihood. Factor models: log-likelihood. Models of sequences:
    log-likelihood of a symbol or a point, and perplexity of symbols. The data are treated as public: a measurement of
    private ones would be a leak, also through the choice made by it.

        dpvb evaluate notes.dpvb public_notes.csv --public

        dpvb evaluate people.dpvb public_people.csv --public

        dpvb evaluate m.dpvb X.npz --target y.npy --public

        dpvb evaluate visits.dpvb public.csv --person-column user --symbol-column page --time-column clock --public
    """
    if not public:
        raise PrivacyError(
            "these data would be treated as public: what is measured on them is printed without noise. Add "
            "--public if they are; do not measure on private ones."
        )
    fitted = files.load_model(model, "evaluate")
    written: dict[str, Any]
    if fitted.reads == "documents":
        how = {"file_format": file_format, "token_pattern": token_pattern, "separator": separator, "encoding": encoding}
        given = _documents(fitted, data, vocabulary, text_column=text_column, **how) | {"words": words}
    elif fitted.reads == "images":
        given = reading.images(data)
    elif fitted.reads == "sequences":
        named: dict[str, Any] = {
            "person_column": person_column,
            "symbol_column": symbol_column,
            "time_column": time_column,
        }
        written = {"separator": separator, "decimal": decimal, "encoding": encoding}
        columns = fitted.named_columns
        given = reading.sequences(data, columns=columns, sequence_column=sequence_column, **named, **written)
    elif fitted.reads == "labelled" and fitted.schema_ is None:
        written = {"separator": separator, "decimal": decimal, "encoding": encoding}
        given = reading.labelled(data, None, fitted.vocabulary_, text_column, label_column, **written)
    elif fitted.reads == "measurements":
        from dpvb.data import Table

        is_matrix = fitted.schema_ is None or data.suffix.lower() in (".npz", ".npy")
        written = {"separator": separator, "decimal": decimal, "encoding": encoding}
        given = reading.measurements(data) if is_matrix else {"X": Table(data, fitted.schema_, **written)}
    else:
        beside: Any = {"target": target, "trials": trials, "exposure": exposure, "offset": offset}
        given = _rows(fitted, data, beside, separator=separator, decimal=decimal, encoding=encoding)
    facts = fitted.evaluate(**given, public=True)
    if as_json:
        print_json(facts)
        return
    rows = [[_WORDS.get(name, name), _short(value)] for name, value in facts.items() if isinstance(value, float)]
    print_table(f"On {data.name}, treated as public", ["measure", "value"], rows)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def _documents(fitted: Any, data: Path, vocabulary: Path | None, **how: Any) -> dict[str, Any]:
    """Documents in the columns of a fitted model."""
    words = fitted.vocabulary_ if vocabulary is None else vocabulary
    return reading.documents(data, words, width=fitted.n_features_in_, **how)


def _rows(fitted: Any, data: Path, beside: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """Rows with a response in the columns of a fitted model."""
    if fitted.schema_ is None:
        return reading.rows(data, None, **beside)
    from dpvb.data import Table

    if any(beside.values()):
        raise ParameterError(
            "--target, --trials, --exposure and --offset belong to a matrix; the model's schema names these columns."
        )
    return {"X": Table(data, replace(fitted.schema_, group=None), **how)}
