"""`dpvb fit lda`, `topics`, `transform`: topic models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpvb.cli import files, options, resumption
from dpvb.cli.root import app, fit
from dpvb.cli.terminal import print_json, print_table, progress_bar, remark, spent
from dpvb.errors import ParameterError, check_integer

if TYPE_CHECKING:
    from dpvb.data import Source


@fit.command("lda")
@resumption.planned
def fit_lda(
    data: options.Documents,
    out: options.Out,
    epsilon: options.Epsilon,
    delta: options.Delta,
    topics: Annotated[int, typer.Option(help="Number K of topics.")] = 10,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    group_column: Annotated[
        str | None,
        typer.Option(
            help="Column or key of the person: all documents of a person are then protected together.",
            show_default=False,
            rich_help_panel=options.DATA,
        ),
    ] = None,
    file_format: options.Format = None,
    width: Annotated[
        int | None,
        typer.Option(
            help="Number of words, for lda-c without a vocabulary.", show_default=False, rich_help_panel=options.DATA
        ),
    ] = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    stream: options.Stream = False,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Bound on one document's influence, in (0, 1]: smaller means less noise and a weaker voice.",
            show_default=False,
            rich_help_panel=options.PLAN,
        ),
    ] = None,
    document_length: Annotated[
        float, typer.Option(help="Longer documents are scaled down to this many words.", rich_help_panel=options.PLAN)
    ] = 500.0,
    seed: options.Seed = None,
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    *,
    plan: dict[str, Any],
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

    files.check_target(out, overwrite)
    model = dpvb.LDA(
        topics,
        epsilon=epsilon,
        delta=delta,
        **plan,
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
        stream=stream,
    )
    with progress_bar(epsilon, delta, quiet=quiet) as tell:
        model.fit(source, progress=tell, cluster=cluster)
    model.save(out)
    remark(f"{out}: {topics} topics, {spent(model)}. Next: dpvb topics {out}; dpvb show {out}")


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
    lists = files.load_model(model, "LDA").topics(words)
    if as_json:
        print_json(lists)
        return
    print_table("", ["topic", "words"], [[str(k), " ".join(one)] for k, one in enumerate(lists)], numbers=(0,))


@app.command()
def transform(
    model: options.Model,
    data: options.Documents,
    out: Annotated[Path, typer.Option(help="The file to write, .npz or .csv.", show_default=False)],
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the topic proportions of each document, one row a document.

    These rows are as private as the documents themselves: the promise covers the topics, not them. A .npz file holds
    the array `proportions`, a .csv file a column for each topic; its owner alone may read it.

        dpvb transform notes.dpvb notes.csv --out proportions.npz
    """
    import numpy as np

    if out.suffix.lower() not in (".npz", ".csv"):
        raise ParameterError(f"--out must end in .npz or .csv, got {out.name!r}.")
    files.check_target(out, overwrite)
    fitted = files.load_model(model, "LDA")
    source = open_for(fitted, data, vocabulary, text_column, file_format, token_pattern)
    proportions = fitted.transform(source)
    with files.private(out) as file:
        if out.suffix.lower() == ".npz":
            np.savez_compressed(file, proportions=proportions)
        else:
            header = ",".join(f"topic_{k}" for k in range(proportions.shape[1]))
            np.savetxt(file, proportions, fmt="%.6g", delimiter=",", header=header, comments="")
    remark(f"{out}: one row a document. Keep it as private as the documents; it carries no guarantee.")


def open_for(
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
