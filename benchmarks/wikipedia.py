"""Held-out perplexity of private topic models on Wikipedia; the papers' algorithm is in `benchmarks.papers_topics`.

Needs DPVB_DATA, the folder that holds wikipedia/bow.npz. The last 5,000 rows are held out. `--rows N` trains
on the first N rows only, for a quick look.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import dpvb

HELD_OUT, NUM_TOPICS, DELTA = 5_000, 50, 1e-5
#: ε → largest perplexity over that of the noiseless fit.
TARGETS = {2.44: 1.085, 1.0: 1.165, 0.5: 1.285}


def fitted(train, test, **params):
    """Fit, and return (perplexities on test by ⟨β⟩ and by exp⟨log β⟩, statement, CPU seconds, wall seconds)."""
    cpu, wall = time.process_time(), time.perf_counter()
    model = dpvb.LDA(NUM_TOPICS, public_vocabulary=True, delta=DELTA, random_state=0, **params).fit(train)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    values = [model.perplexity(test, topics=topics, public=True) for topics in ("mean", "expected_log")]
    return values, model.privacy_, cpu, wall


def unigram(train, test) -> float:
    """Perplexity of the training corpus' word frequencies."""
    frequency = np.asarray(train.sum(axis=0), dtype=float).ravel() + 0.5
    words = np.asarray(test.sum(axis=0), dtype=float).ravel()
    return float(np.exp(-(words @ np.log(frequency / frequency.sum())) / words.sum()))


def show(name, epsilon, pld, values, base, target, cpu, wall) -> None:
    """Print one row of the table."""
    measured = [text for value, least in zip(values, base, strict=True) for text in _figure(value, least)]
    print(
        "| " + " | ".join(map(str, [name, epsilon, pld, *measured, target, f"{cpu:.0f}", f"{wall:.0f}"])) + " |",
        flush=True,
    )


def _figure(value, least) -> tuple[str, str]:
    return f"{value:,.0f}", f"{value / least:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=None)
    rows = parser.parse_args().rows
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds wikipedia/bow.npz")
    corpus = sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / "wikipedia" / "bow.npz"))
    train, test = corpus[: corpus.shape[0] - HELD_OUT][:rows], corpus[-HELD_OUT:]
    print("## Topic models on Wikipedia\n")
    print(
        f"{train.shape[0]:,} documents, {train.shape[1]:,} terms, K = {NUM_TOPICS}, δ = {DELTA:g}, add/remove one "
        f"document. Per-word perplexity bound of the last {HELD_OUT:,} rows, which no constant was chosen on, by the "
        f"mean of β, and by exp⟨log β⟩ as in earlier versions. Base: the noiseless fit. Unigram model: "
        f"{unigram(train, test):,.0f}.\n"
    )
    print(
        "| fit | ε (its accountant) | ε (PLD) | perplexity | over base | by exp⟨log β⟩ | over base | target | CPU s "
        "| wall s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    base, _, cpu, wall = fitted(train, test, epsilon=math.inf)
    show("default, no noise", "inf", "inf", base, base, "", cpu, wall)
    for epsilon, target in TARGETS.items():
        values, statement, cpu, wall = fitted(train, test, epsilon=epsilon)
        show("default", epsilon, f"{statement.epsilon:.4f}", values, base, target, cpu, wall)


if __name__ == "__main__":
    main()
