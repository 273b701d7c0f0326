"""`dpvb evaluate`: how good a model is on public data."""

from __future__ import annotations

from typing import Annotated

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.topics import open_for
from dpvb.errors import PrivacyError, check_integer
from dpvb.terminal import print_json, print_table


@app.command()
def evaluate(
    model: options.Model,
    data: options.Documents,
    public: options.Public = False,
    words: Annotated[int, typer.Option(help="Top words of each topic that coherence looks at.")] = 10,
    vocabulary: options.Vocabulary = None,
    text_column: options.TextColumn = "text",
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    as_json: options.Json = False,
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
    fitted = files.load_model(model)
    source = open_for(fitted, data, vocabulary, text_column, file_format, token_pattern)
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
        print_json(facts)
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
