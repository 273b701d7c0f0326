"""Topics of few documents: around a public model, month by month, and how many stand above the noise.

Needs DPVB_DATA, the folder that holds wikipedia/, newsgroups20/ and reuters21578/. The last 3,000 rows are held out.
"""

import math
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import dpvb
from dpvb import accounting
from dpvb.accounting import Event
from dpvb.core.names import release_of
from dpvb.core.plan import Plan
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.errors import DpvbWarning
from dpvb.sample import load_sample

DELTA, HELD_OUT = 1e-5, 3_000
#: (corpus, documents, ε) → largest perplexity around a model of Wikipedia with K = 50.
AROUND = {
    ("newsgroups20", 1_000, 1.0): 2_600,
    ("newsgroups20", 2_000, 1.0): 2_450,
    ("newsgroups20", 2_000, 0.5): 2_580,
    ("newsgroups20", 10_000, 1.0): 2_180,
    ("reuters21578", 2_000, 1.0): 1_380,
    ("reuters21578", 10_000, 1.0): 1_120,
}
MONTHS, A_MONTH = 5, 3_000
ALIKE, SEEDS = 4_000, 20
#: Corpora whose words are looked for, and how: share of μ², part of δ, parts of the share by round.
SOUGHT = (("newsgroups20", 2_000), ("newsgroups20", 10_000), ("newsgroups20", 15_000), ("wikipedia", 40_000))
ONE, ROUNDS = (1.0,), (0.05, 0.15, 0.8)
WAYS = (
    (0.1, 1 / 20, ONE),
    (0.2, 1 / 5, ONE),
    (0.2, 1 / 20, ONE),
    (0.2, 1 / 100, ONE),
    (0.2, 1 / 20, ROUNDS),
    (0.5, 1 / 20, ONE),
)
#: (corpus, documents, K, least and most topics above the noise at ε = 1).
ABOVE = (("newsgroups20", 2_000, 10, 0, 1), ("reuters21578", 15_000, 20, 6, 20))


def corpus(name: str) -> sparse.csr_array:
    return sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / name / "bow.npz"))


def fitted(rows, n_components, epsilon, **params) -> dpvb.LDA:
    given = {"public_vocabulary": True, "delta": DELTA, "random_state": 0, **params}
    return dpvb.LDA(n_components, epsilon=epsilon, **given).fit(rows)


def row(*cells) -> None:
    shown = [f"{cell:,.0f}" if isinstance(cell, float) and cell > 100 else f"{cell}" for cell in cells]
    print("| " + " | ".join(shown) + " |", flush=True)


def kept(value: float, target: float) -> str:
    return f"≤ {target:,} {'reached' if value <= target else '**missed**'}"


def around(known: dpvb.LDA) -> None:
    print("| corpus | documents | ε | public model | K by the noise, no prior | around the model | J | asked | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for (name, number, epsilon), target in AROUND.items():
        counts = corpus(name)
        train, test = counts[:number], counts[-HELD_OUT:]
        alone = fitted(train, "auto", epsilon, n_units=number).perplexity(test, public=True)
        cpu = time.process_time()
        model = fitted(train, "auto", epsilon, prior=known, public_prior=True, n_units=number)
        cpu, value = time.process_time() - cpu, model.perplexity(test, public=True)
        as_it_is = known.perplexity(test, public=True)
        row(name, f"{number:,}", epsilon, as_it_is, alone, value, model.n_iter_, kept(value, target), round(cpu))


def frequencies() -> None:
    """What a list of words with their frequencies tells, of another kind of texts."""
    print(
        "\nTwo topics at ε = 1, without a prior, and with the frequencies of a word list that ships with the package:\n"
    )
    print('| corpus | documents | no prior | prior="english" |\n|---|---|---|---|', flush=True)
    words = load_sample().vocabulary
    for name in ("newsgroups20", "reuters21578"):
        counts = corpus(name)
        for number in (1_000, 10_000):
            fits = [fitted(counts[:number], 2, 1.0, vocabulary=words, prior=prior) for prior in (None, "english")]
            row(name, f"{number:,}", *(model.perplexity(counts[-HELD_OUT:], public=True) for model in fits))


def months(known: dpvb.LDA) -> None:
    print(f"\n{MONTHS} months of {A_MONTH:,} documents each, ε = 1 for each month's people, sums read together:\n")
    print("| corpus | " + " | ".join(f"month {m + 1}" for m in range(MONTHS)) + " | falls every month |")
    print("|---" * (MONTHS + 2) + "|", flush=True)
    for name in ("newsgroups20", "reuters21578"):
        counts, earlier, values = corpus(name), None, []
        for month in range(MONTHS):
            rows = counts[month * A_MONTH : (month + 1) * A_MONTH]
            earlier = fitted(rows, "auto", 1.0, prior=known, public_prior=True, n_units=A_MONTH, previous=earlier)
            values.append(earlier.perplexity(counts[-HELD_OUT:], public=True))
        row(name, *values, "yes" if (np.diff(values) < 0).all() else "**no**")


def above() -> None:
    print("\n| corpus | documents | K | forecast | topics above the noise | asked |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, number, k, low, high in ABOVE:
        model = fitted(corpus(name)[:number], k, 1.0)
        found = model.topics_above_noise_
        asked = f"{low} to {high} {'reached' if low <= found <= high else '**missed**'}"
        row(name, f"{number:,}", k, dpvb.plan(model, number, 7_702, epsilons=()).expected_accuracy, found, asked)


def alike() -> None:
    """Documents that are drawn from one distribution of words have no topics."""
    p_v = np.asarray(corpus("newsgroups20").sum(axis=0), dtype=float).ravel()
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        length_n = rng.integers(20, 150, ALIKE)
        word_j = rng.choice(p_v.size, length_n.sum(), p=p_v / p_v.sum())
        entries = np.ones(word_j.size), (np.repeat(np.arange(ALIKE), length_n), word_j)
        counts = sparse.coo_array(entries, shape=(ALIKE, p_v.size)).tocsr()
        found.append(fitted(counts, 10, 2.0, random_state=seed).topics_above_noise_)
    few = sum(number <= 1 for number in found)
    verdict = "reached" if few >= 0.95 * SEEDS else "**missed**"
    print(
        f"\n{ALIKE:,} documents of words drawn alike, K = 10, ε = 2, {SEEDS} seeds: at most one topic above the noise "
        f"(the background) in {few} of {SEEDS}; asked {math.ceil(0.95 * SEEDS)}: {verdict}."
    )


@dataclass(frozen=True)
class Named:
    """Counts whose columns' names play to be private."""

    counts: sparse.csr_array
    names: list[str]

    def chunks(self) -> Iterator[Any]:
        return BagOfWords(self.counts).chunks()


def words_found(counts: sparse.csr_array, share: float, part: float, rounds: Sequence[float]) -> str:
    """Number of words that are found at ε = 1, and their share of all tokens."""
    rest, total = np.arange(counts.shape[1]), counts.sum()
    added = part * DELTA / len(rounds)

    def events(scale: float) -> list[Event]:
        return [Event("full_batch", 1.0, scale), *[Event("full_batch", 1.0, 1e6, 1, 2.0, added)] * len(rounds)]

    whole = accounting.calibrate(events, epsilon=1.0, delta=DELTA, neighboring_relation="add_or_remove_one")
    for one in rounds:
        release = release_of(whole / math.sqrt(share * one), added_delta=added)
        source = Named(sparse.csr_array(counts[:, rest]), [str(column) for column in rest])
        found = Wall(source, Plan([release])).names(release).names
        rest = np.setdiff1d(rest, [int(name) for name in found])
    tokens = 1 - counts[:, rest].sum() / total
    return f"{counts.shape[1] - len(rest):,} ({100 * tokens:.0f} %)"


def sought() -> None:
    """Words of texts that nobody has listed, found by a part of the budget."""
    said = [f"share {s:g}, δ/{1 / part:.0f}, {len(r)} round{'s' * (len(r) > 1)}" for s, part, r in WAYS]
    print('\nWords found by `vocabulary="private"` at ε = 1, and their share of all tokens:\n')
    print(f"| corpus | documents | {' | '.join(said)} | CPU s |")
    print("|---|---|" + "---|" * (len(WAYS) + 1), flush=True)
    for name, number in SOUGHT:
        counts, cpu = corpus(name)[:number], time.process_time()
        found = [words_found(counts, *way) for way in WAYS]
        row(name, f"{number:,}", *found, round(time.process_time() - cpu))


def main() -> None:
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds wikipedia/, newsgroups20/ and reuters21578/")
    warnings.simplefilter("ignore", DpvbWarning)
    known = fitted(corpus("wikipedia")[:-5_000], 50, math.inf)
    print("## Topics of few documents\n")
    print(
        f"δ = {DELTA:g}, add/remove one document, 7,702 terms, one draw of noise. Per-word perplexity bound of the "
        f"last {HELD_OUT:,} rows by the mean of β. The public model has 50 topics of Wikipedia, fitted without noise.\n"
    )
    around(known)
    frequencies()
    months(known)
    above()
    alike()
    sought()


if __name__ == "__main__":
    main()
