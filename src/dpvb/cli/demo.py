"""For a first try: `dpvb demo` fits topics with privacy and without, `dpvb example-data` writes synthetic data.

`dpvb docs` prints the pages, which are installed with the package.
"""

from __future__ import annotations

import math
import os
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dpvb
from dpvb.cli import files
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, new_console, print_table, progress_bar, remark
from dpvb.guards.errors import ParameterError

if TYPE_CHECKING:
    from dpvb import LDA
    from dpvb.guards.arrays import Floats, Ints
    from dpvb.sample import Sample


def pages() -> dict[str, Path]:
    """Every page by its name, such as "glossary" or "how-to/priors": those of a wheel, or of the source's folder."""
    package = Path(dpvb.__file__).parent
    folder = next((there for there in (package / "docs", package.parents[1] / "docs") if there.is_dir()), package)
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}


@app.command()
def docs(page: Annotated[str | None, typer.Argument(help="Its name; left out: all names.")] = None) -> None:
    """Print a page of the documentation, or the names of all.

    dpvb docs how-to/tables
    """
    paths = pages()
    if page is None:
        for name, path in paths.items():
            echo(f"{name:34} {_title(path)}")
        remark("Next: dpvb docs NAME.")
        return
    asked = page.removeprefix("docs/").removesuffix(".md")
    # The last part of a name is enough if only one page has it.
    able = [name for name in paths if name == asked] or [name for name in paths if name.split("/")[-1] == asked]
    if len(able) != 1:
        near = " or ".join(map(repr, able or get_close_matches(asked, paths, 1) or ["index"]))
        raise ParameterError(f"PAGE must be one of those that `dpvb docs` names, such as {near}, got {page!r}.")
    echo(paths[able[0]].read_text(encoding="utf-8").rstrip())


def _title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


@app.command()
def example_data(
    folder: Annotated[Path, typer.Argument(help="Folder to write: a new one, or one without these files.")],
) -> None:
    """Write synthetic example data: notes, a table with its schema, images, visits, a word list.

    The files are the same in each call and describe no real person. Those that begin with public_ are for
    `dpvb evaluate`. Existing files are never replaced.

        dpvb example-data first-try
    """
    import dpvb.sample as sample

    files.check_folder(folder, "FOLDER")
    if there := [name for name in sample.NAMES if os.path.lexists(folder / name)]:
        raise ParameterError(f"FOLDER must not contain {there[0]!r}, got {str(folder)!r}. Name a new folder.")
    sample.write(folder)
    remark(f"{folder}: {', '.join(sample.NAMES)}. Next: dpvb fit logistic --help, or dpvb docs, which prints pages.")


TOPICS = 20
#: Words on which topics are matched, and words that are printed.
_MATCHED, _PRINTED = 20, 7
_SEED = 0


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the picture.")] = Path("demo-output"),
    epsilon: Annotated[float, typer.Option(help="Epsilon of the private fit, in (0, inf).")] = 2.0,
    delta: Annotated[float, typer.Option(help="Delta of the private fit, below 1/40,000.")] = 1e-6,
) -> None:
    """Fit 20 topics to Wikipedia articles, privately and not, and compare.

    Uses word counts of 40,000 articles as if they were private, and of 1,000 public held-out articles. Prints both
    models' topics side by side, their perplexities and the privacy statement. Writes a model and a picture.

        dpvb demo --out demo-output
    """
    from dpvb.sample import load_sample

    files.check_folder(out)
    compare(load_sample(), out, epsilon=epsilon, delta=delta)


def compare(
    sample: Sample, out: Path, *, epsilon: float, delta: float, topics: int = TOPICS, **parameters: Any
) -> None:
    """Fit a sample twice, print the comparison, and write model.dpvb and topics.png to a folder.

    Args:
        sample: the articles.
        out: an existing folder.
        epsilon, delta: budget of the private fit.
        topics, parameters: of both estimators.
    """
    from dpvb import LDA, Run
    from dpvb.results import metrics

    console = new_console()
    console.print(
        f"Wikipedia: {sample.documents.shape[0]:,} articles treated as private, {sample.held_out.shape[0]:,} "
        f"public held-out articles, {len(sample.vocabulary):,} words. {topics} topics."
    )
    fitted = {}
    for label, budget in (("private", epsilon), ("not private", math.inf)):
        model = LDA(topics, epsilon=budget, delta=delta, vocabulary=sample.vocabulary, random_state=_SEED, **parameters)
        with progress_bar(label=label) as tell:
            fitted[label] = model.fit(sample.documents, run=Run(progress=tell))
    private, plain = fitted["private"], fitted["not private"]
    tops = [metrics.top_words(model.components_, min(_MATCHED, len(sample.vocabulary))) for model in (private, plain)]
    partner, shared = metrics.match_topics(tops[0], tops[1])
    _print_topics(private, plain, partner, shared, f"private, epsilon = {epsilon:g}")
    _print_perplexities(sample, private, plain, epsilon)
    console.print(f"\n{private.summary()}")
    number = len(private.components_)
    console.print(f"{private.topics_above_noise_} of the {number} private topics are distinguishable from noise.")
    console.print()
    console.print(str(private.privacy_), soft_wrap=True)
    console.print(
        "\n(The articles are in fact public, so the demo may also show a fit without privacy. Never publish such a fit "
        "to private documents.)"
    )
    private.save(out / "model.dpvb", overwrite=True)
    path, picture = out / "model.dpvb", out / "topics.png"
    console.print(f"\nModel:   {path} (dpvb show {path} --what topics)", soft_wrap=True)
    if find_spec("matplotlib") is None:
        missing = "none, matplotlib is not installed (pip install '.[plot]' in dpvb's source folder)"
        console.print(f"Picture: {missing}", soft_wrap=True)
        return
    private.plot(picture, overwrite=True)
    console.print(f"Picture: {picture}", soft_wrap=True)


def _print_topics(private: LDA, plain: LDA, partner: Ints, shared: Floats, title: str) -> None:
    words = [private.topics(_PRINTED), plain.topics(_PRINTED)]
    print_table(
        "",
        ["topic", title, "without privacy, the most similar topic", f"shared of {_MATCHED}"],
        [
            [str(k), " ".join(words[0][k]), " ".join(words[1][other]), str(round(shared[k] * _MATCHED))]
            for k, other in enumerate(partner)
        ],
        numbers=(0, 3),
    )


def _print_perplexities(sample: Sample, private: LDA, plain: LDA, epsilon: float) -> None:
    import numpy as np

    from dpvb.results import metrics

    # Add half a count per word, so that a word that these articles never use has a positive probability.
    frequency = np.asarray(sample.documents.sum(axis=0)).ravel() + 0.5
    unigram = f"{metrics.unigram_perplexity(frequency, sample.held_out):,.0f}"
    rows = [["word frequencies only, no topics", unigram, unigram]]
    for label, model in ((f"topics, private, epsilon = {epsilon:g}", private), ("topics, without privacy", plain)):
        bound = model.perplexity(sample.held_out, public=True)
        completion = metrics.completion_perplexity(model, sample.held_out)
        rows.append([label, f"{bound:,.0f}", f"{completion:,.0f}"])
    print_table("", ["perplexity of the held-out articles (lower is better)", "bound", "completion"], rows)
