"""Arguments and options that several commands share, with their help."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dpvb.cli import log

DATA = "the data and how to read them"
PLAN = "the plan: what is spent and how"
RUN = "the run: where it is counted and kept"

Model = Annotated[Path, typer.Argument(help="A model that `dpvb fit` wrote.", show_default=False)]
Out = Annotated[Path, typer.Option(help="The model file to write.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Level = Annotated[float, typer.Option(help="Probability inside an interval.")]
Naive = Annotated[
    bool, typer.Option("--naive", help="Leave the privacy noise out of account; such intervals are too short.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is already there.")]
Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Make the same call on made-up rows of the declared columns: no row is read, nothing spent or written.",
        rich_help_panel=RUN,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
LogFile = Annotated[
    Path | None,
    typer.Option(
        help="Add a line of JSON to this file for whatever is said and for each release, with its time; public facts "
        "alone.",
        show_default=False,
        callback=log.begin,
        is_eager=True,
        rich_help_panel=RUN,
    ),
]
Public = Annotated[bool, typer.Option("--public", help="State that these data are public. Needed.", show_default=False)]

# Documents.
Documents = Annotated[
    Path,
    typer.Argument(
        help="A file of documents: .npz, .mtx, docword*.txt, .dat (lda-c), .jsonl, .csv, .parquet, .txt (also .gz), "
        "or a folder of .txt files.",
        show_default=False,
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
LabelColumn = Annotated[str, typer.Option(help="Column of the label of a text.", rich_help_panel=DATA)]
TextColumn = Annotated[str, typer.Option(help="Column or key of the text.", rich_help_panel=DATA)]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="npz, mtx, docword, lda-c, jsonl, csv, parquet, txt or folder; told by the name if not given.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        help="Column or key of the person: all documents of a person are then protected together.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Seen = Annotated[
    Path | None,
    typer.Option(
        help="A private file of the persons in earlier fits, one a line: their documents add nothing. Needs "
        "--group-column.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Width = Annotated[
    int | None,
    typer.Option(help="Number of words, for lda-c without a vocabulary.", show_default=False, rich_help_panel=DATA),
]
TokenPattern = Annotated[
    str,
    typer.Option(
        help='What a word is in the lower-cased text: "english", "unicode" (letters of any script), "cjk-characters", '
        "or a regular expression.",
        rich_help_panel=DATA,
    ),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(
        help="A public list of words: english, french, german or spanish (english:2000 is its 2,000 most frequent "
        "words), or a file with one word a line. Text needs it; of counts it names the columns.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Stream = Annotated[
    bool,
    typer.Option(
        "--stream", help="Read the file anew at each pass: for data larger than memory.", rich_help_panel=DATA
    ),
]
ANY_WORD = "[a-z]+"

# CSV files.
Separator = Annotated[
    str, typer.Option(help="What stands between the fields of a CSV file: , ; | or tab.", rich_help_panel=DATA)
]
Decimal = Annotated[str, typer.Option(help="The decimal sign of a CSV file: . or a comma.", rich_help_panel=DATA)]
Encoding = Annotated[
    str,
    typer.Option(
        help="The encoding of the file, or of files in a folder: utf-8, latin-1, cp1252 ...", rich_help_panel=DATA
    ),
]

# Rows of numbers.
Rows = Annotated[
    Path,
    typer.Argument(
        help="A table (.csv, .csv.gz, .parquet) with --schema, or a matrix: .npz (scipy.sparse.save_npz, or one NumPy "
        "array) or .npy.",
        show_default=False,
    ),
]
TableFile = Annotated[Path, typer.Argument(help="A table: .csv, .csv.gz or .parquet.", show_default=False)]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="The public columns of a table, as JSON; see `dpvb schema`.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Target = Annotated[
    Path | None,
    typer.Option(
        help="The responses of a matrix's rows, .npy; a schema names them.", show_default=False, rich_help_panel=DATA
    ),
]
Trials = Annotated[
    Path | None,
    typer.Option(help="The numbers of trials of a matrix's rows, .npy.", show_default=False, rich_help_panel=DATA),
]
Exposure = Annotated[
    Path | None,
    typer.Option(
        help="How long or how much each of a matrix's rows was counted, .npy; with --max-exposure.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Offset = Annotated[
    Path | None,
    typer.Option(
        help="What is added to the log odds or log mean of each of a matrix's rows, .npy; with --max-offset.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="How many rows each of a matrix's rows counts as, .npy; with --max-weight.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Group = Annotated[
    Path | None,
    typer.Option(
        help="The person of each of a matrix's rows, .npy: all rows of a person are then protected together.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]

# Events.
PersonColumn = Annotated[str, typer.Option(help="Column of the person.", rich_help_panel=DATA)]
SymbolColumn = Annotated[str, typer.Option(help="Column of the symbol.", rich_help_panel=DATA)]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help="Column by which a person's rows are ordered, numbers or dates; as they stand if not given.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
SequenceColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that says which of a person's sequences a row belongs to; each has one if not given.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
StreamEvents = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Cut the table by person into temporary files of this user's alone: for data larger than memory.",
        rich_help_panel=DATA,
    ),
]

# Rows of zeros and ones.
Images = Annotated[
    Path,
    typer.Argument(
        help="A matrix: .npz (scipy.sparse.save_npz, or one NumPy array), .npy, or idx (*-ubyte, *-ubyte.gz).",
        show_default=False,
    ),
]

# The plan.
SamplingProb = Annotated[
    float | None,
    typer.Option(
        help="Poisson batches: every unit is drawn with this probability, afresh at each step. Neither this nor "
        "--batch-size: all of them at each step, which gives the best model for a given epsilon.",
        show_default=False,
        rich_help_panel=PLAN,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Fixed-size batches, drawn afresh at each step; needs --num-examples.",
        show_default=False,
        rich_help_panel=PLAN,
    ),
]
NumExamples = Annotated[
    int | None,
    typer.Option(
        help="A public number of rows or documents, if there is one.", show_default=False, rich_help_panel=PLAN
    ),
]
Relation = Annotated[
    str,
    typer.Option(
        help="What is hidden: that a unit is there (add_or_remove_one), or which it is (replace_one).",
        rich_help_panel=PLAN,
    ),
]
ADD_OR_REMOVE = "add_or_remove_one"

# The run.
Cluster = Annotated[
    str | None,
    typer.Option(
        help="local:N spreads each step over N processes of this machine. The model is the same, bit for bit.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
