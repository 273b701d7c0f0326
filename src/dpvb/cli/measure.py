"""`dpvb evaluate`: how good a model is on public data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.regression import KINDS as REGRESSIONS
from dpvb.cli.root import app
from dpvb.cli.terminal import print_json, print_table
from dpvb.cli.topics import open_for
from dpvb.errors import ParameterError, PrivacyError, check_integer

_WORDS = {
    "auc": "AUC",
    "log_likelihood": "log-likelihood per row",
    "calibration_error": "calibration error (10 bins)",
    "deviance": "deviance per row",
    "explained_deviance": "share of deviance explained",
    "reconstruction_accuracy": "reconstruction accuracy",
    "bound": "bound on the log-likelihood of a row",
    "perplexity": "perplexity (bound)",
    "completion_perplexity": "perplexity (completion)",
}


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
    file_format: options.Format = None,
    token_pattern: options.TokenPattern = options.ANY_WORD,
    target: options.Target = None,
    trials: options.Trials = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model on public held-out data.

    Topics: perplexity (lower is better) by its bound and by completion, one half of each document's words given the
    other; coherence (NPMI, from -1 to 1) says how often a topic's top words meet in these documents. Regressions: AUC,
    log-likelihood, accuracy and calibration of probabilities; deviance of counts. Belief networks: share of entries
    that are reconstructed, and the bound on the log-likelihood. The data are treated as public: a measurement of
    private ones would be a leak, also through the choice made by it.

        dpvb evaluate notes.dpvb public_notes.csv --public

        dpvb evaluate people.dpvb public_people.csv --public

        dpvb evaluate m.dpvb X.npz --target y.npy --public
    """
    if not public:
        raise PrivacyError(
            "these data would be treated as public: what is measured on them is printed without noise. Add "
            "--public if they are; do not measure on private ones."
        )
    fitted = files.load_model(model)
    if type(fitted).__name__ in REGRESSIONS:
        facts = _of_regression(fitted, data, target, trials)
    elif type(fitted).__name__ == "SigmoidBeliefNetwork":
        facts = _of_network(fitted, data)
    else:
        source = open_for(fitted, data, vocabulary, text_column, file_format, token_pattern)
        facts = _of_topics(fitted, source, words)
    if as_json:
        print_json(facts)
        return
    rows = [[_WORDS.get(name, name), _short(value)] for name, value in facts.items() if isinstance(value, float)]
    print_table(f"On {data.name}, treated as public", ["measure", "value"], rows)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def _of_regression(fitted: Any, data: Path, target: Path | None, trials: Path | None) -> dict[str, float]:
    """Measures of a regression on public rows."""
    if fitted.schema_ is None:
        rows = files.read_rows(data, None, target, trials=trials)
        given = {} if rows.trials is None else {"trials": rows.trials}
        return dict(fitted.evaluate(rows.x, rows.y, public=True, **given))
    from dpvb.data import Table

    if target or trials:
        raise ParameterError("--target and --trials belong to a matrix; the model's schema names these columns.")
    return dict(fitted.evaluate(Table(data, replace(fitted.schema_, group=None)), public=True))


def _of_network(fitted: Any, data: Path) -> dict[str, float]:
    """Measures of a belief network on public rows."""
    from dpvb.results import metrics

    rows = files.read_matrix(data)
    binary = rows if fitted.threshold is None else rows > fitted.threshold
    return {
        "reconstruction_accuracy": metrics.reconstruction_accuracy(binary, fitted.reconstruct(rows)),
        "bound": fitted.score(rows, public=True),
    }


def _of_topics(fitted: Any, source: Any, words: int) -> dict[str, Any]:
    """Measures of topics on public documents."""
    from scipy import sparse

    from dpvb.results import metrics

    empty = sparse.csr_array((0, source.width))
    counts = sparse.vstack([empty, *(chunk.rows.csr() for chunk in source.chunks())], format="csr")
    n = min(check_integer("words", words, low=2), source.width)
    coherence = metrics.npmi_coherence(metrics.top_words(fitted.components_, n), counts)
    return {
        "perplexity": float(fitted.perplexity(counts, public=True)),
        "completion_perplexity": metrics.completion_perplexity(fitted, counts),
        "coherence": float(coherence.mean()),
        "coherence_of_topics": [float(c) for c in coherence],
    }
