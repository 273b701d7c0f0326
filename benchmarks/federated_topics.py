"""Federated topic models on Wikipedia: held-out perplexity beside the pooled private fit at the same ε.

Needs DPVB_DATA, the folder that holds wikipedia/. The last 5,000 rows are held out; the others are dealt to clients by
article number, so that each holds the articles of a time of its own. `--rows N` trains on the first N rows only, for a
quick look.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import dpvb
from dpvb import federated

HELD_OUT, NUM_CLIENTS, NUM_TOPICS, NUM_STEPS, DELTA = 5_000, 8, 50, 20, 1e-5
#: The word totals are a communication of their own.
ROUNDS = NUM_STEPS + 1
EPSILONS = (2.44, 1.0)
#: Largest perplexity over that of the pooled private fit with the same plan.
TARGET = 1.03


def topics(epsilon: float, **params) -> dpvb.LDA:
    return dpvb.LDA(NUM_TOPICS, public_vocabulary=True, epsilon=epsilon, delta=DELTA, random_state=0, **params)


def pooled(train, epsilon: float, **params) -> dpvb.LDA:
    """The ordinary fit on all rows."""
    return topics(epsilon, **params).fit(train)


def joined(shards, epsilon: float, trust: str) -> dpvb.LDA:
    """The federated fit."""
    given = {"num_rounds": ROUNDS, "epsilon": epsilon, "delta": DELTA, "max_colluding": 0}
    return federated.simulate(topics(epsilon), shards, trust=trust, **given)


def corpus(rows: int | None) -> tuple[list, sparse.csr_array, sparse.csr_array]:
    """(a shard for every client, all training rows, held-out rows)."""
    folder = Path(os.environ["DPVB_DATA"]) / "wikipedia"
    counts = sparse.csr_array(sparse.load_npz(folder / "bow.npz"))
    train, test = counts[: counts.shape[0] - HELD_OUT][:rows], counts[-HELD_OUT:]
    order = np.argsort(np.load(folder / "article_ids.npy")[: train.shape[0]], kind="stable")
    return [train[part] for part in np.array_split(order, NUM_CLIENTS)], train, test


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    chosen = parser.parse_args()
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds wikipedia/")
    shards, train, test = corpus(chosen.rows)
    print("## Federated topic models\n")
    print(
        f"{train.shape[0]:,} Wikipedia documents of {NUM_CLIENTS} clients, {shards[0].shape[0]:,} each, by article "
        f"number; {train.shape[1]:,} terms, K = {NUM_TOPICS}, δ = {DELTA:g}, add/remove one document, full batch, "
        f"{ROUNDS} communications. Per-word perplexity bound of the last {HELD_OUT:,} rows. Base: the pooled fit "
        "with the same plan and accountant; each fit has noise of its own. "
        "Under secure aggregation all clients are assumed honest (`max_colluding=0`).\n"
    )
    print("| fit | ε | perplexity | over base | asked | CPU s | wall s |\n|---|---|---|---|---|---|---|", flush=True)
    verdicts = []
    for epsilon in chosen.epsilons:
        fits = {
            "pooled, same plan": lambda e=epsilon: pooled(train, e, n_steps=NUM_STEPS, accountant="renyi"),
            "federated, secure aggregation": lambda e=epsilon: joined(shards, e, "secure_aggregation"),
            "federated, no trust": lambda e=epsilon: joined(shards, e, "none"),
            "pooled, default plan": lambda e=epsilon: pooled(train, e),
            "pooled, sampled: q = 0.25, 80 steps": lambda e=epsilon: pooled(train, e, sampling_prob=0.25, n_steps=80),
        }
        base = None
        for name, fit in fits.items():
            cpu, wall = time.process_time(), time.perf_counter()
            model = fit()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            value = model.perplexity(test, public=True)
            base = value if base is None else base
            asked = ""
            if name == "federated, secure aggregation":
                verdicts.append(value <= TARGET * base)
                asked = f"{TARGET:g} {'reached' if verdicts[-1] else '**missed**'}"
            cells = [name, f"{epsilon:g}", f"{value:,.0f}", f"{value / base:.3f}", asked, f"{cpu:.0f}", f"{wall:.0f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\nWithin {100 * (TARGET - 1):.0f} % of the pooled private fit: {sum(verdicts)} of {len(verdicts)}.")


if __name__ == "__main__":
    main()
