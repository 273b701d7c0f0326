"""The demo: topics of Wikipedia articles, fitted with privacy and without, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpvb import LDA, metrics
from dpvb.estimators.base import Progress
from dpvb.sample import Sample, load_sample

if TYPE_CHECKING:
    from rich.console import Console

TOPICS = 20
#: Words on which topics are matched, and words that are printed.
_MATCHED, _PRINTED = 20, 7
_SEED = 0

#: Opens a progress bar: (epsilon, delta, quiet, label).
ProgressBar = Callable[[float, float, bool, str], AbstractContextManager[Progress]]


def run(out: Path, *, epsilon: float, delta: float, console: Console, progress_bar: ProgressBar) -> None:
    """Fit the bundled sample twice, print the comparison, write model.dpvb and topics.png into a folder.

    Args:
        out: an existing folder.
        epsilon, delta: budget of the private fit.
        console: where to print.
        progress_bar: how to show progress.
    """
    compare(load_sample(), out, epsilon=epsilon, delta=delta, console=console, progress_bar=progress_bar)


def compare(
    sample: Sample,
    out: Path,
    *,
    epsilon: float,
    delta: float,
    console: Console,
    progress_bar: ProgressBar,
    topics: int = TOPICS,
    **parameters: Any,
) -> None:
    """As `run`, for any sample; `parameters` go to both estimators."""
    console.print(
        f"Wikipedia: {sample.documents.shape[0]:,} articles played to be private, {sample.held_out.shape[0]:,} "
        f"public held-out ones, {len(sample.vocabulary):,} words. {topics} topics."
    )
    fitted = {}
    for label, budget in (("private", epsilon), ("not private", math.inf)):
        model = LDA(topics, epsilon=budget, delta=delta, vocabulary=sample.vocabulary, random_state=_SEED, **parameters)
        with progress_bar(budget, delta, False, label) as tell:
            fitted[label] = model.fit(sample.documents, progress=tell)
    private, plain = fitted["private"], fitted["not private"]
    tops = [metrics.top_words(model.components_, min(_MATCHED, len(sample.vocabulary))) for model in (private, plain)]
    partner, shared = metrics.match_topics(tops[0], tops[1])
    _print_topics(console, private, plain, partner, shared, f"private, epsilon = {epsilon:g}")
    _print_perplexities(console, sample, private, plain, epsilon)
    console.print()
    console.print(str(private.privacy_), markup=False, soft_wrap=True)
    console.print(
        "\n(The articles are public in truth. So the demo may show what nobody may do with private documents: the fit "
        "without privacy.)"
    )
    private.save(out / "model.dpvb")
    console.print(f"\nModel:   {out / 'model.dpvb'} (dpvb topics, dpvb show)", soft_wrap=True)
    if find_spec("matplotlib") is None:
        console.print("Picture: none, matplotlib is not installed (pip install 'dpvb\\[plot]')", soft_wrap=True)
        return
    from dpvb.pictures import topics_picture

    picture = out / "topics.png"
    topics_picture(
        picture, private.components_, sample.vocabulary, private.privacy_, reference_kv=plain.components_[partner]
    )
    console.print(f"Picture: {picture}", soft_wrap=True)


def _print_topics(
    console: Console, private: LDA, plain: LDA, partner: np.ndarray, shared: np.ndarray, title: str
) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("topic", justify="right")
    table.add_column(title, ratio=1)
    table.add_column("without privacy, the most similar topic", ratio=1)
    table.add_column(f"shared of {_MATCHED}", justify="right")
    words = [private.topics(_PRINTED), plain.topics(_PRINTED)]
    for k in range(len(partner)):
        table.add_row(str(k), " ".join(words[0][k]), " ".join(words[1][partner[k]]), str(round(shared[k] * _MATCHED)))
    console.print(table)


def _print_perplexities(console: Console, sample: Sample, private: LDA, plain: LDA, epsilon: float) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("perplexity of the held-out articles (lower is better)")
    table.add_column("bound", justify="right")
    table.add_column("completion", justify="right")
    # Half a count for every word: one that these articles never use must not have probability zero.
    frequency = np.asarray(sample.documents.sum(axis=0)).ravel() + 0.5
    unigram = f"{metrics.unigram_perplexity(frequency, sample.held_out):,.0f}"
    table.add_row("word frequencies alone, no topics", unigram, unigram)
    for label, model in ((f"topics, private, epsilon = {epsilon:g}", private), ("topics, without privacy", plain)):
        bound = model.perplexity(sample.held_out, public=True)
        completion = metrics.completion_perplexity(model, sample.held_out)
        table.add_row(label, f"{bound:,.0f}", f"{completion:,.0f}")
    console.print(table)
