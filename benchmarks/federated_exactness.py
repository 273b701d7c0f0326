"""Federated fits without noise beside the pooled fit: where they end, how they get there, and that of one client.

Needs DPVB_DATA, the folder that holds regression/ and wikipedia/. Clients are unequal: each has twice as many rows as
the one before.
"""

import argparse
import math
import os
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
from scipy import sparse

import dpvb
from benchmarks.exactness import PLAIN
from benchmarks.float64 import Float64Network, Float64Topics
from benchmarks.peers import protocol
from dpvb import federated
from dpvb.core import loop
from dpvb.core.model import constant
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import as_source
from dpvb.data.tables.design import BinaryMatrix

CLIENTS, DELTA, ASKED = 4, 1e-5, 1e-6
#: Distance of one client's fit: the sums of a client are cut to another grid than those of an ordinary fit.
ALONE = 1e-8
#: Rounds until a fit stands still, and rounds after which it is compared with the pooled one.
ROUNDS, STEPS = (
    {"logistic": 1_000, "topics": 400, "belief network": 200},
    (2, 3, 5, 10),
)
MODELS = ("logistic", "topics", "belief network")
DOCUMENTS, TERMS, TOPICS = 100, 200, 3
EXAMPLES, VISIBLE, HIDDEN = 300, 10, 3


class PlainTopics(dpvb.LDA):
    """Topics in float64."""

    def _model(self, *facts, **parts):
        return Float64Topics(**vars(super()._model(*facts, **parts)))


class PlainNetwork(dpvb.SigmoidBeliefNetwork):
    """Weights in float64."""

    def _model(self, width):
        return Float64Network(**vars(super()._model(width)))


def logistic(**params) -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(epsilon=math.inf, delta=DELTA, max_row_norm=1.0, **params)


def topics(**params) -> PlainTopics:
    """Ordinary variational Bayes: the plain statistic, never clipped, each step from its own statistic alone."""
    plain = {"document_length" if name == "length" else name: value for name, value in PLAIN.items()}
    how = {"learning_offset": 0.0, "learning_decay": 0.0, "doc_topic_prior": 1.0, "topic_word_prior": 1.0}
    how |= {"tol": 1e-10, "max_iter": 100_000, "random_state": 0, "document_length": 300.0}
    return PlainTopics(TOPICS, public_vocabulary=True, epsilon=math.inf, delta=DELTA, **{**plain, **how, **params})


def network(**params) -> PlainNetwork:
    """Full steps; scores are never clipped."""
    how = {"learning_offset": 0.0, "learning_decay": 0.0, "clip_scale": 30.0, "random_state": 0}
    return PlainNetwork(HIDDEN, epsilon=math.inf, delta=DELTA, **{**how, **params})


def documents() -> sparse.csr_array:
    """Short Wikipedia documents in the most frequent terms."""
    counts = sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / "wikipedia" / "bow.npz"))[:2_000]
    common = np.sort(np.argsort(-np.asarray(counts.sum(axis=0)).ravel(), kind="stable")[:TERMS])
    counts = sparse.csr_array(counts[:, common])
    length = np.asarray(counts.sum(axis=1)).ravel()
    return counts[np.flatnonzero((length >= 20) & (length <= 300))[:DOCUMENTS]]


def vectors() -> np.ndarray:
    """Draws from a sigmoid belief network."""
    rng = np.random.default_rng(0)
    w_kj, z_nk = rng.normal(0, 2, (HIDDEN, VISIBLE)), rng.random((EXAMPLES, HIDDEN)) < 0.4
    return (rng.random((EXAMPLES, VISIBLE)) < 1 / (1 + np.exp(1 - z_nk @ w_kj))).astype(float)


def parts(num_rows: int) -> list[np.ndarray]:
    """Row numbers of every client."""
    weights = 2.0 ** np.arange(CLIENTS)
    return np.split(np.arange(num_rows), np.round(num_rows * np.cumsum(weights)[:-1] / weights.sum()).astype(int))


def distance(found, expected) -> float:
    """Relative L2 distance; of several arrays the largest."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def state(estimator) -> list[np.ndarray]:
    """The arrays of what was learned."""
    if isinstance(estimator, dpvb.LogisticRegression):
        return [estimator._weights.mean_d, estimator._weights.covariance]
    return arrays(estimator._q)


def arrays(q) -> list[np.ndarray]:
    return [q.lambda_vk] if hasattr(q, "lambda_vk") else [q.w_kj, q.level_j, q.mean_k]


def movement(estimator, source) -> float:
    """How far one step on all rows moves what was learned."""
    model, q = estimator._fitted_model, estimator._q
    blocks = {name: block for name, block in model.blocks.items() if block.phase == "step"}
    plan = Plan([Release(blocks, Mechanism(FullBatch(), 0.0))])

    class Started(type(model)):
        def init(self, rng):
            return q

    started = Started(**{field.name: getattr(model, field.name) for field in fields(model)})
    moved, _ = loop.fit(started, Wall(source, plan), plan, rho=constant(1.0), rng=np.random.default_rng(0))
    return distance(arrays(moved), arrays(q))


def show(model: str, what: str, value: float, asked: float, seconds: float) -> bool:
    reached = value <= asked
    verdict = "reached" if reached else "**missed**"
    print(f"| {model} | {what} | {value:.1e} | {asked:g} {verdict} | {seconds:.0f} |", flush=True)
    return reached


def logistic_rows(X, y) -> list[bool]:
    """The federated fit against the pooled fit."""
    constant, num_rows = float(X[:, 0].max()), len(y)
    shards = [(X[rows, 1:], y[rows]) for rows in parts(num_rows)]
    # The public number of rows makes the grid of the sums finer.
    given = {"relative_intercept": constant, "n_units": num_rows}
    begun = time.perf_counter()
    joined = federated.simulate(logistic(**given), shards, num_rounds=ROUNDS["logistic"])
    seconds = time.perf_counter() - begun
    pooled = logistic(n_steps=joined.n_iter_, **given).fit(X[:, 1:], y)
    far = [distance([one], [other]) for one, other in zip(state(joined), state(pooled), strict=True)]
    return [
        show("logistic", f"{name} to that of the pooled fit", one, ASKED, seconds)
        for name, one in zip(("mean", "covariance"), far, strict=True)
    ]


def fixed_point(name: str, make, shards, source) -> bool:
    """One pooled step from where the federated fit ended."""
    begun = time.perf_counter()
    moved = movement(federated.simulate(make(), shards, num_rounds=ROUNDS[name]), source)
    return show(name, "moved by one pooled step", moved, ASKED, time.perf_counter() - begun)


def followed(name: str, make, shards, X) -> bool:
    """The federated fit against the pooled fit with as many steps."""
    begun, far, numbers = time.perf_counter(), 0.0, []
    for num_rounds in STEPS:
        joined = federated.simulate(make(), shards, num_rounds=num_rounds)
        numbers.append(str(joined.n_iter_))
        far = max(far, distance(state(joined), state(make(n_steps=joined.n_iter_).fit(X))))
    text = f"ρ = 1: largest distance to the pooled fit after {', '.join(numbers)} steps"
    return show(name, text, far, ASKED, time.perf_counter() - begun)


def alone(name: str, make, X, y=None) -> bool:
    """One client with all rows against the ordinary fit."""
    begun = time.perf_counter()
    joined = federated.simulate(make(), [X if y is None else (X, y)], num_rounds=max(STEPS))
    far = distance(state(joined), state(make(n_steps=joined.n_iter_).fit(X, y)))
    text = f"one client, {joined.n_iter_} steps: distance to the ordinary fit"
    return show(name, text, far, ALONE, time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    models = parser.parse_args().models
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds regression/ and wikipedia/")
    X, y = protocol.load("stroke")
    X, counts, ones = X.toarray().astype(float), documents(), vectors()
    print("## Exactness of federated fits\n")
    print(
        f"No noise, {CLIENTS} clients with 1 : 2 : 4 : 8 of the rows, trust none. Logistic regression: stroke, "
        f"{len(y):,} x {X.shape[1]}, {ROUNDS['logistic']:,} rounds. Topics: "
        f"{counts.shape[0]} Wikipedia documents of at most 300 tokens, {TERMS} terms, K = {TOPICS}, α = η = 1, the "
        f"plain statistic, E-step tolerance 1e-10, NumPy, ρ = 1, {ROUNDS['topics']} rounds. Belief network: "
        f"{EXAMPLES} vectors of {VISIBLE}, K = {HIDDEN}, first "
        f"order, NumPy, ρ = 1, {ROUNDS['belief network']} rounds. Distances are relative, L2.\n"
    )
    print("| model | what | distance | asked | s |\n|---|---|---|---|---|", flush=True)
    reached = logistic_rows(X, y) if "logistic" in models else []
    shards = {
        "topics": [counts[rows] for rows in parts(DOCUMENTS)],
        "belief network": [ones[r] for r in parts(EXAMPLES)],
    }
    for name, make, rows, source in (
        ("topics", topics, counts, as_source(counts)),
        ("belief network", network, ones, BinaryMatrix(ones)),
    ):
        if name not in models:
            continue
        reached.append(fixed_point(name, make, shards[name], source))
        reached.append(followed(name, make, shards[name], rows))
        reached.append(alone(name, make, rows))
    if "logistic" in models:
        reached.append(
            alone("logistic", lambda **given: logistic(relative_intercept=float(X[0, 0]), **given), X[:, 1:], y)
        )
    print(f"\nReached: {sum(reached)} of {len(reached)}.")


if __name__ == "__main__":
    main()
