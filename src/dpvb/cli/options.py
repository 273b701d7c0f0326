"""Arguments and options that several commands share, with their help."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import log

DATA = "the data and how to read them"
PLAN = "the plan: what is spent and how"
RUN = "the run: where it is counted and kept"


def data(text: str, *names: str) -> Any:
    """An option that says what the data are and how they are read."""
    return typer.Option(*names, help=text, rich_help_panel=DATA)


def plan(text: str, *names: str) -> Any:
    """An option of the plan."""
    return typer.Option(*names, help=text, rich_help_panel=PLAN)


def run(text: str, *names: str) -> Any:
    """An option of the run."""
    return typer.Option(*names, help=text, rich_help_panel=RUN)


Model = Annotated[Path, typer.Argument(help="A model that `dpvb fit` wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
LogFile = Annotated[
    Path | None,
    typer.Option(
        help="Add a line of JSON to this file for whatever is said and for each release, with its time; public facts "
        "alone.",
        callback=log.begin,
        is_eager=True,
        rich_help_panel=RUN,
    ),
]
Public = Annotated[bool, typer.Option("--public", help="State that these data are public. Needed.")]

# Documents.
Documents = Annotated[
    Path,
    typer.Argument(
        help="A file of documents: .npz, .mtx, docword*.txt, .dat (lda-c), .jsonl, .csv, .parquet, .txt (also .gz), "
        "or a folder of .txt files."
    ),
]


def without_budget(context: typer.Context, public: bool) -> bool:
    """Whether documents are public: a fit of them then needs no epsilon and no delta."""
    if public:
        context.default_map = {**(context.default_map or {}), "epsilon": math.inf, "delta": 1e-5}
    return public


PublicDocuments = Annotated[
    bool,
    typer.Option(
        "--public",
        help="State that these documents are public: the fit has no noise, needs no --epsilon and no --delta, and may "
        "be the --prior of private ones.",
        callback=without_budget,
        is_eager=True,
        rich_help_panel=DATA,
    ),
]
TextColumn = Annotated[str, data("Column or key of the text.")]
Format = Annotated[
    str | None,
    data("npz, mtx, docword, lda-c, jsonl, csv, parquet, txt or folder; told by the name if not given.", "--format"),
]
TokenPattern = Annotated[
    str,
    data(
        'What a word is in the lower-cased text: "english", "unicode" (letters of any script), "cjk-characters", '
        "or a regular expression."
    ),
]
Vocabulary = Annotated[
    Path | None,
    data(
        "A public list of words: english, french, german or spanish (english:2000 is its 2,000 most frequent "
        "words), or a file with one word a line. Text needs it; of counts it names the columns."
    ),
]
ANY_WORD = "[a-z]+"

# CSV files.
Separator = Annotated[str, data("What stands between the fields of a CSV file: , ; | or tab.")]
Decimal = Annotated[str, data("The decimal sign of a CSV file: . or a comma.")]
Encoding = Annotated[str, data("The encoding of the file, or of files in a folder: utf-8, latin-1, cp1252 ...")]

Stream = Annotated[
    bool,
    data(
        "Read the files anew at each pass, or if they name persons, once into temporary files of this user alone: for "
        "data larger than memory.",
        "--stream",
    ),
]

# Rows of numbers.
Rows = Annotated[
    Path,
    typer.Argument(
        help="A table (.csv, .csv.gz, .parquet) with --schema, or a matrix: .npz (scipy.sparse.save_npz, or one NumPy "
        "array) or .npy."
    ),
]
TableFile = Annotated[Path, typer.Argument(help="A table: .csv, .csv.gz or .parquet.")]
SchemaFile = Annotated[Path | None, data("The public columns of a table, as JSON; see `dpvb schema`.", "--schema")]
Group = Annotated[
    Path | None, data("The person of each of a matrix's rows, .npy: all rows of a person are then protected together.")
]

# The plan.
SamplingProb = Annotated[
    float | None,
    plan(
        "Poisson batches: every unit is drawn with this probability, afresh at each step. Neither this nor "
        "--batch-size: all of them at each step, which gives the best model for a given epsilon."
    ),
]
BatchSize = Annotated[int | None, plan("Fixed-size batches, drawn afresh at each step; needs --n-units.")]
NumExamples = Annotated[int | None, plan("A public number of rows or documents, if there is one.")]
Relation = Annotated[
    str, plan("What is hidden: that a unit is there (add_or_remove_one), or which it is (replace_one).")
]
ADD_OR_REMOVE = "add_or_remove_one"
