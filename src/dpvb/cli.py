"""The command line: `dpvb plan`, `fit lda`, `topics`, `transform`, `evaluate`, `show`, `demo`.

Answers go to standard output, progress and remarks to standard error. An error is one line on standard error and exit
code 2. No command prints a size, a length or any other fact of private documents.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dpvb import __version__
from dpvb.errors import DpvbError, ModelFileError, ParameterError, PrivacyError, check_integer
from dpvb.terminal import new_console, print_table, progress_bar, working

if TYPE_CHECKING:
    from dpvb.data import Source

#: Parameters of the library that are options here, and those whose option has another name.
_PARAMETERS = (
    *("batch_size", "clip", "delta", "document_length", "epsilon", "file_format", "group_column", "n_components"),
    *("neighboring_relation", "noise_multiplier", "num_examples", "num_steps", "random_state", "sampling_prob"),
    *("swap_ratio", "text_column", "token_pattern", "vocabulary", "width"),
)
_RENAMED = {"n_components": "topics", "file_format": "format", "random_state": "seed"}


class _Commands(TyperGroup):
    """Turns an error into one line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DpvbError as error:
            message = _with_options(" ".join(str(error).split()))
        except (OSError, ImportError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            message = f"{reason or type(error).__name__}: {getattr(error, 'filename', None) or 'this command'}."
        except MemoryError:
            message = "not enough memory."
        except Exception as error:
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # The command line parser's own.
            # The text of an error that nobody foresaw may quote a private document.
            place = traceback.extract_tb(error.__traceback__)[-1]
            message = (
                f"unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; please report it."
            )
        typer.echo(f"error: {message}", err=True)
        raise typer.Exit(2)


app = typer.Typer(
    name="dpvb",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Private topic models: fit topics to documents so that no document shows in them.

    A first session:

        dpvb plan --epsilon 1 --delta 1e-5

        dpvb fit lda notes.csv --vocabulary words.txt --topics 50 --epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb topics notes.dpvb

        dpvb show notes.dpvb

    `dpvb demo` shows it all on Wikipedia articles. `dpvb COMMAND --help` explains a command.""",
)
_fit = typer.Typer(no_args_is_help=True, help="Fit a private model to documents; see `dpvb fit lda --help`.")
app.add_typer(_fit, name="fit")

# Options that several commands share.
_DATA = "the documents and how to read them"
_PLAN = "the plan: what is spent and how"
_Model = Annotated[Path, typer.Argument(help="A model that `dpvb fit` wrote.", show_default=False)]
_Documents = Annotated[
    Path,
    typer.Argument(
        help="A file of documents: .npz, .mtx, docword*.txt, .dat (lda-c), .jsonl, .csv, .parquet, .txt (also .gz), "
        "or a folder of .txt files.",
        show_default=False,
    ),
]
_TextColumn = Annotated[str, typer.Option(help="Column or key of the text.", rich_help_panel=_DATA)]
_Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="npz, mtx, docword, lda-c, jsonl, csv, parquet, txt or folder; told by the name if not given.",
        show_default=False,
        rich_help_panel=_DATA,
    ),
]
_TokenPattern = Annotated[
    str,
    typer.Option(help="Regular expression of a word in the lower-cased text.", rich_help_panel=_DATA),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is already there.")]
_NumSteps = Annotated[
    int | None,
    typer.Option(help="Number J of noisy releases; planned if not given.", show_default=False, rich_help_panel=_PLAN),
]
_SamplingProb = Annotated[
    float | None,
    typer.Option(
        help="Poisson batches: every document is drawn with this probability, afresh at each step. Neither this nor "
        "--batch-size: all documents at each step, which gives the best topics for a given epsilon.",
        show_default=False,
        rich_help_panel=_PLAN,
    ),
]
_BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Fixed-size batches, drawn afresh at each step; needs --num-examples.",
        show_default=False,
        rich_help_panel=_PLAN,
    ),
]
_NumExamples = Annotated[
    int | None,
    typer.Option(help="A public number of documents, if there is one.", show_default=False, rich_help_panel=_PLAN),
]
_Relation = Annotated[
    str,
    typer.Option(
        help="What is hidden: that a document is there (add_or_remove_one), or which it is (replace_one).",
        rich_help_panel=_PLAN,
    ),
]
_PATTERN = "[a-z]+"
_ADD_OR_REMOVE = "add_or_remove_one"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _no_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def plan(
    epsilon: Annotated[
        float | None, typer.Option(help="The budget; the noise is calibrated to it.", show_default=False)
    ] = None,
    delta: Annotated[float, typer.Option(help="Well below one over the number of documents.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="The other direction: what a given noise (std over the clip norm) costs.", show_default=False
        ),
    ] = None,
    num_steps: Annotated[int, typer.Option(help="Number J of noisy releases.")] = 20,
    sampling_prob: _SamplingProb = None,
    batch_size: _BatchSize = None,
    num_examples: _NumExamples = None,
    neighboring_relation: _Relation = _ADD_OR_REMOVE,
    swap_ratio: Annotated[
        float,
        typer.Option(
            help="Largest distance of two documents' statistics over the clip norm: sqrt(2) for topic models, 2 in "
            "general. It matters for replace_one and fixed-size batches only.",
            rich_help_panel=_PLAN,
        ),
    ] = math.sqrt(2.0),
    as_json: _Json = False,
) -> None:
    """Say what a budget buys, before any data are touched.

    Shows the noise that meets (epsilon, delta), what the same releases promise at other values of delta, what every
    accounting method makes of them, and what 4 and 16 times the compute would buy. Reads no data and spends nothing.
    The releases are equal ones; `fit lda` makes one more, of word totals, out of the same budget.

        dpvb plan --epsilon 1 --delta 1e-5 --num-steps 20

        dpvb plan --noise-multiplier 1.24 --sampling-prob 0.05 --delta 1e-4 --json
    """
    from dpvb import planning

    with working("accounting"):
        facts = planning.plan_facts(
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            num_steps=num_steps,
            sampling_prob=sampling_prob,
            batch_size=batch_size,
            num_examples=num_examples,
            neighboring_relation=neighboring_relation,
            swap_ratio=swap_ratio,
        )
    if as_json:
        _print_json(facts)
        return
    out = new_console()
    out.print(
        f"noise multiplier {facts['noise_multiplier']:.6g}: {facts['num_steps']} releases "
        f"({facts['sampler']}, sampling probability {facts['sampling_prob']:.6g}, {facts['neighboring_relation']}) "
        f"cost epsilon = {_number(facts['epsilon'])} at delta = {facts['delta']:g}"
    )
    print_table(
        "The same releases at other values of delta, all at once",
        ["delta", "epsilon"],
        [[f"{d:g}", _number(e)] for d, e in facts["curve"]],
    )
    unproven = facts["unproven_methods"]
    print_table(
        f"The same releases by every method, at delta = {facts['delta']:g}",
        ["method", "epsilon", ""],
        [
            [name, "-" if value is None else _number(value), _remark(name, value, unproven)]
            for name, value in facts["methods"].items()
        ],
    )
    if not facts["compute"]:
        return
    print_table(
        "What compute buys at this epsilon; the noise is that of the average over all steps, over the clip norm",
        ["compute", "sampling prob.", "steps", "noise multiplier", "noise of the average"],
        [
            [
                f"{row['compute']}x",
                f"{row['sampling_prob']:.4g}",
                str(row["num_steps"]),
                f"{row['noise_multiplier']:.4g}",
                f"{row['noise_of_average']:.4g}",
            ]
            for row in facts["compute"]
        ],
    )


@_fit.command("lda")
def fit_lda(
    data: _Documents,
    out: Annotated[Path, typer.Option(help="The model file to write.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="The budget of this fit; inf: no privacy.", show_default=False)],
    delta: Annotated[float, typer.Option(help="Well below one over the number of documents.", show_default=False)],
    topics: Annotated[int, typer.Option(help="Number K of topics.")] = 10,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            help="A public list of words, one a line. Text needs it; of counts it names the columns.",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    text_column: _TextColumn = "text",
    group_column: Annotated[
        str | None,
        typer.Option(
            help="Column or key of the person: all documents of a person are then protected together.",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    file_format: _Format = None,
    width: Annotated[
        int | None,
        typer.Option(
            help="Number of words, for lda-c without a vocabulary.", show_default=False, rich_help_panel=_DATA
        ),
    ] = None,
    token_pattern: _TokenPattern = _PATTERN,
    num_steps: _NumSteps = None,
    sampling_prob: _SamplingProb = None,
    batch_size: _BatchSize = None,
    num_examples: _NumExamples = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Noise std over the clip norm, instead of noise calibrated to epsilon; refused if it costs more.",
            show_default=False,
            rich_help_panel=_PLAN,
        ),
    ] = None,
    neighboring_relation: _Relation = _ADD_OR_REMOVE,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Bound on one document's influence, in (0, 1]: smaller means less noise and a weaker voice.",
            show_default=False,
            rich_help_panel=_PLAN,
        ),
    ] = None,
    document_length: Annotated[
        float, typer.Option(help="Longer documents are scaled down to this many words.", rich_help_panel=_PLAN)
    ] = 500.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the public random start. The private noise takes none.", show_default=False),
    ] = None,
    overwrite: _Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Fit topics (latent Dirichlet allocation) to private documents.

    The budget (epsilon, delta) is what the topics may reveal about any one document. Everything on the command
    line, the vocabulary and the width of the data are public; choose them without looking at the documents. Whatever
    can be checked is checked before the budget is spent.

        dpvb fit lda notes.csv --vocabulary words.txt --topics 50 --epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb fit lda counts.npz --topics 20 --epsilon 2 --delta 1e-6 --out counts.dpvb
    """
    import dpvb
    from dpvb.data import open_documents

    _check_target(out, overwrite)
    model = dpvb.LDA(
        topics,
        epsilon=epsilon,
        delta=delta,
        num_steps=num_steps,
        sampling_prob=sampling_prob,
        batch_size=batch_size,
        num_examples=num_examples,
        noise_multiplier=noise_multiplier,
        neighboring_relation=neighboring_relation,
        clip=clip,
        document_length=document_length,
        random_state=seed,
    )
    source = open_documents(
        data,
        vocabulary=vocabulary,
        width=width,
        file_format=file_format,
        text_column=text_column,
        group_column=group_column,
        token_pattern=token_pattern,
    )
    with progress_bar(epsilon, delta, quiet=quiet) as tell:
        model.fit(source, progress=tell)
    model.save(out)
    spent = f"epsilon = {model.privacy_.epsilon:.4g} at delta = {delta:g}" if math.isfinite(epsilon) else "NO PRIVACY"
    _remark_line(f"{out}: {topics} topics, {spent}. Next: dpvb topics {out}; dpvb show {out}")


@app.command()
def topics(
    model: _Model,
    words: Annotated[int, typer.Option(help="Words of each topic.")] = 10,
    as_json: _Json = False,
) -> None:
    """Print the words of each topic, most probable first.

    Topics are what the fit was allowed to say: printing them costs nothing more.

        dpvb topics notes.dpvb --words 12
    """
    check_integer("words", words, low=1)
    lists = _load(model).topics(words)
    if as_json:
        _print_json(lists)
        return
    print_table("", ["topic", "words"], [[str(k), " ".join(one)] for k, one in enumerate(lists)], numbers=(0,))


@app.command()
def transform(
    model: _Model,
    data: _Documents,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.", show_default=False)],
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="Words of a model that has none.", show_default=False, rich_help_panel=_DATA),
    ] = None,
    text_column: _TextColumn = "text",
    file_format: _Format = None,
    token_pattern: _TokenPattern = _PATTERN,
    overwrite: _Overwrite = False,
) -> None:
    """Write the topic proportions of each document, one row a document.

    These rows are as private as the documents themselves: the promise covers the topics, not them. A .npz file holds
    the array `proportions`, a .csv file a column for each topic.

        dpvb transform notes.dpvb notes.csv --out proportions.npz
    """
    import numpy as np

    if out.suffix.lower() not in (".npz", ".csv"):
        raise ParameterError(f"--out must end in .npz or .csv, got {out.name!r}.")
    _check_target(out, overwrite)
    fitted = _load(model)
    source = _open_for(fitted, data, vocabulary, text_column, file_format, token_pattern)
    proportions = fitted.transform(source)
    with _replacing(out) as temporary, open(temporary, "wb") as file:
        if out.suffix.lower() == ".npz":
            np.savez_compressed(file, proportions=proportions)
        else:
            header = ",".join(f"topic_{k}" for k in range(proportions.shape[1]))
            np.savetxt(file, proportions, fmt="%.6g", delimiter=",", header=header, comments="")
    _remark_line(f"{out}: one row a document. Keep it as private as the documents; it carries no guarantee.")


@app.command()
def evaluate(
    model: _Model,
    data: _Documents,
    public: Annotated[
        bool, typer.Option("--public", help="State that these documents are public. Needed.", show_default=False)
    ] = False,
    words: Annotated[int, typer.Option(help="Top words of each topic that coherence looks at.")] = 10,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="Words of a model that has none.", show_default=False, rich_help_panel=_DATA),
    ] = None,
    text_column: _TextColumn = "text",
    file_format: _Format = None,
    token_pattern: _TokenPattern = _PATTERN,
    as_json: _Json = False,
) -> None:
    """Measure a model on public held-out documents.

    Perplexity (lower is better) by its bound and by completion: one half of each document's words, given the other.
    Coherence (NPMI, from -1 to 1, higher is better) says how often a topic's top words meet in these documents. The
    documents are treated as public: a measurement of private ones would be a leak, also through the choice made by it.

        dpvb evaluate notes.dpvb public_notes.csv --public
    """
    from scipy import sparse

    from dpvb import metrics

    if not public:
        raise PrivacyError(
            "these documents would be treated as public: what is measured on them is printed without noise. Add "
            "--public if they are; do not measure on private ones."
        )
    fitted = _load(model)
    source = _open_for(fitted, data, vocabulary, text_column, file_format, token_pattern)
    counts = sparse.vstack(
        [sparse.csr_array((0, source.width)), *(chunk.rows.csr() for chunk in source.chunks())], format="csr"
    )
    n = min(check_integer("words", words, low=2), source.width)
    coherence = metrics.npmi_coherence(metrics.top_words(fitted.components_, n), counts)
    facts = {
        "perplexity": fitted.perplexity(counts, public=True),
        "completion_perplexity": metrics.completion_perplexity(fitted, counts),
        "coherence": float(coherence.mean()),
        "coherence_of_topics": [float(c) for c in coherence],
    }
    if as_json:
        _print_json(facts)
        return
    print_table(
        f"On {data.name}, treated as public",
        ["measure", "value"],
        [
            ["perplexity (bound)", f"{facts['perplexity']:.1f}"],
            ["perplexity (completion)", f"{facts['completion_perplexity']:.1f}"],
            [f"coherence (NPMI of {n} words)", f"{facts['coherence']:.3f}"],
        ],
    )


@app.command()
def show(model: _Model, as_json: _Json = False) -> None:
    """Print the privacy statement of a saved model.

    What is promised, to whom, by which releases, what is taken as public and what is not covered. The epsilon is
    accounted for anew from the releases that the file lists.

        dpvb show notes.dpvb
    """
    statement = _load(model).privacy_
    statement.verify()
    if as_json:
        _print_json(statement.to_dict())
    else:
        typer.echo(str(statement))


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
    from dpvb import demo as demonstration

    _check_folder(out)
    demonstration.run(out, epsilon=epsilon, delta=delta)


def _load(path: Path) -> Any:
    import dpvb

    return dpvb.load(path)


def _open_for(
    fitted: Any, data: Path, vocabulary: Path | None, text_column: str, file_format: str | None, token_pattern: str
) -> Source:
    """Documents in the columns of a fitted model."""
    from dpvb.data import open_documents

    return open_documents(
        data,
        vocabulary=fitted.vocabulary_ if vocabulary is None else vocabulary,
        width=fitted.n_features_in_,
        file_format=file_format,
        text_column=text_column,
        token_pattern=token_pattern,
    )


def _check_target(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before anything is spent."""
    if path.is_dir():
        raise ParameterError(f"--out must name a file, got the folder {str(path)!r}.")
    if path.exists() and not overwrite:
        raise ParameterError(f"--out {str(path)!r} is already there. Name another file, or add --overwrite.")
    if not path.parent.is_dir():
        raise ParameterError(f"--out: there is no folder {str(path.parent)!r}. Make it first.")
    _check_writable(path.parent)


def _check_folder(folder: Path) -> None:
    """Make a folder that can be written, in one that exists."""
    if not folder.is_dir():
        if folder.exists() or not folder.parent.is_dir():
            raise ParameterError(f"--out must be a folder, or a new one in an existing folder, got {str(folder)!r}.")
        _check_writable(folder.parent)
        folder.mkdir()
    _check_writable(folder)


def _check_writable(folder: Path) -> None:
    probe = folder / f".dpvb-{secrets.token_hex(8)}.tmp"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise ParameterError(f"--out: the folder {str(folder)!r} cannot be written: {error.strerror}.") from error


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the path's place once it is whole."""
    temporary = path.parent / f".dpvb-{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written ({error.strerror}); nothing was changed.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _remark(name: str, value: float | None, unproven: list[str]) -> str:
    if value is None:
        return "does not apply"
    return "claimed by the papers, no guarantee" if name in unproven else ""


def _remark_line(text: str) -> None:
    typer.echo(text, err=True)


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


def _print_json(facts: Any) -> None:
    typer.echo(json.dumps(facts, indent=2, allow_nan=False))


def _with_options(message: str) -> str:
    """An error of the library in the words of the command line: parameters become options."""
    names = "|".join(_PARAMETERS)

    def option(match: re.Match[str]) -> str:
        name = match.group("argument") or match.group("subject")
        return f"--{_RENAMED.get(name, name).replace('_', '-')}"

    argument = rf"(?<![\w.(])(?P<argument>{names})=(?=[\s,.:;)]|$)"
    subject = rf"^(?P<subject>{names})(?= must | needs | = )"
    return re.sub(f"{argument}|{subject}", option, message)
