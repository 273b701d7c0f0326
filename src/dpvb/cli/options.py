"""Arguments and options that several commands share, with their help."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import log

DATA = "Data"
PLAN = "Privacy and schedule"
RUN = "Run: ledger, checkpoint, cluster"


def data(text: str, *names: str) -> Any:
    """Return an option about the data and their format."""
    return typer.Option(*names, help=text, rich_help_panel=DATA)


def plan(text: str, *names: str) -> Any:
    """Return an option of the plan."""
    return typer.Option(*names, help=text, rich_help_panel=PLAN)


def run(text: str, *names: str) -> Any:
    """Return an option of the run."""
    return typer.Option(*names, help=text, rich_help_panel=RUN)


Model = Annotated[Path, typer.Argument(help="Model file from `dpvb fit`.")]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]
LogFile = Annotated[
    Path | None,
    typer.Option(
        help="Append JSON lines to this file: messages and releases with their times. It contains only public facts.",
        callback=log.begin,
        is_eager=True,
        rich_help_panel=RUN,
    ),
]
Public = Annotated[bool, typer.Option("--public", help="State that these data are public. Required.")]

# Documents.
Documents = Annotated[
    Path,
    typer.Argument(
        help="File of documents: .npz, .mtx, docword*.txt, .dat (lda-c), .jsonl, .csv, .parquet, .txt (also .gz), "
        "or a folder of .txt files."
    ),
]


def without_budget(context: typer.Context, public: bool) -> bool:
    """Return whether documents are public; a fit to public documents needs no epsilon and no delta."""
    if public:
        context.default_map = {**(context.default_map or {}), "epsilon": math.inf, "delta": 1e-5}
    return public


PublicDocuments = Annotated[
    bool,
    typer.Option(
        "--public",
        help="State that these documents are public: the fit has no noise, needs no --epsilon and no --delta, and "
        "can be "
        "the --prior of a fit to private documents.",
        callback=without_budget,
        is_eager=True,
        rich_help_panel=DATA,
    ),
]
TextColumn = Annotated[str, data("Column or key of the text.")]
Format = Annotated[
    str | None,
    data("File format: npz, mtx, docword, lda-c, jsonl, csv, parquet, txt or folder. Not given: inferred.", "--format"),
]
TokenPattern = Annotated[
    str,
    data(
        'Pattern of a word in lower-case text: "english", "unicode" (letters of any script), "cjk-characters", '
        "or a regular expression."
    ),
]
Vocabulary = Annotated[
    Path | None,
    data(
        "Public word list: english, french, german or spanish (english:2000: its 2,000 most frequent words), or a file "
        "with one word per line. Required for texts; for counts it names the columns."
    ),
]
ANY_WORD = "[a-z]+"

# CSV files.
Separator = Annotated[str, data("Field delimiter of a CSV file: , ; | or tab.")]
Decimal = Annotated[str, data("Decimal separator of a CSV file: . or a comma.")]
Encoding = Annotated[str, data("Encoding of the files: utf-8, latin-1, cp1252 ...")]

Stream = Annotated[
    bool,
    data(
        "Read the rows from disk at each pass, for data larger than memory: the first pass writes them to temporary "
        "files that only this user can read.",
        "--stream",
    ),
]

# Rows of numbers.
Rows = Annotated[
    Path,
    typer.Argument(
        help="Table (.csv, .csv.gz, .parquet) with --schema, or a matrix: .npz (scipy.sparse.save_npz, or one NumPy "
        "array) or .npy."
    ),
]
TableFile = Annotated[Path, typer.Argument(help="Table: .csv, .csv.gz or .parquet.")]
SchemaFile = Annotated[
    Path | None, data("Public declaration of the columns of a table, a JSON file; see `dpvb schema`.", "--schema")
]
Group = Annotated[
    Path | None, data("Person IDs of the rows of a matrix, .npy: all rows of a person are then one protected unit.")
]

# The plan.
SamplingProb = Annotated[
    float | None,
    plan(
        "Probability, in (0, 1], with which each unit is in a Poisson batch. Not given, without --batch-size: every "
        "step uses all units, which gives the best model for a given epsilon."
    ),
]
BatchSize = Annotated[int | None, plan("Number of units in batches of fixed size; needs --n-units.")]
NumExamples = Annotated[int | None, plan("Public number of units. Not given: the number is private.")]
Relation = Annotated[
    str,
    plan("Neighbouring data sets differ in the presence (add_or_remove_one) or the content (replace_one) of one unit."),
]
ADD_OR_REMOVE = "add_or_remove_one"
