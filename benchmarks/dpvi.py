"""Private gradients for a log-density that the user writes: logistic regression beside d3p's, and what a step costs.

Needs DPVB_DATA, the folder that holds regression/, and d3p's results (benchmarks/peers). Fits are kept in
build/dpvi.jsonl under a digest of the code, so that an interrupted run goes on where it stopped.
"""

import argparse
import hashlib
import math
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dpvb
from benchmarks.logistic import Cells, short
from benchmarks.peers import protocol
from dpvb.core.estimate import Estimate
from dpvb.core.model import updated
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.numbers import Numbers
from dpvb.models.gradients.density import Density
from dpvb.models.gradients.variational import Variational

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "dpvi.jsonl"
#: Data set → fits with fresh noise of each split.
SETS = {"adult": 2, "stroke": 8}
PEER = "d3p DPVI"
#: Steps that are timed.
STEPS = 300


def log_density(theta, x, y):
    """Logistic regression."""
    psi = x @ theta
    return y * psi - jnp.logaddexp(0.0, psi)


def log_prior(theta):
    """Independent N(0, 3²), as d3p's."""
    return -0.5 * (theta**2).sum() / 9.0


def code() -> str:
    """Digest of the files that the fits' numbers depend on."""
    digest = hashlib.sha256()
    for name in ("model", "optimizer", "regression", "forms"):
        digest.update((ROOT / "src" / "dpvb" / "dpvi" / f"{name}.py").read_bytes())
    return digest.hexdigest()[:12]


def fit(X, y, seed: int, epsilon: float) -> dict:
    """One private fit, scored on the held-out fifth."""
    train, test = protocol.split(len(y), seed)
    begun = time.process_time()
    given = {"parameters": X.shape[1], "log_prior": log_prior, "epsilon": epsilon, "delta": protocol.DELTA}
    model = dpvb.DPVI(log_density, **given)
    model.fit(X[train], y[train])
    seconds = time.process_time() - begun
    predicted = np.exp(model.score_samples(X[test], np.ones(len(test)), public=True))
    at_mean = protocol.scores(y[test], X[test] @ model.loc_)
    scores = protocol.scores(y[test], X[test] @ model.loc_, predicted)
    return {**scores, "at_mean": at_mean["log_likelihood"], "seconds": seconds}


def run(chosen: list[str]) -> list[dict]:
    """Every fit of some data sets, computed where the cache lacks it."""
    CACHE.parent.mkdir(exist_ok=True)
    version = code()
    results = [r for r in protocol.read(CACHE) if r["code"] == version and r["data"] in chosen]
    done = {(r["data"], r["split"], r["epsilon"], r["repeat"]) for r in results}
    for data in chosen:
        sparse_X, y = protocol.load(data)
        X = sparse_X.toarray()
        for repeat in range(SETS[data]):
            for seed in protocol.SPLITS:
                for epsilon in protocol.EPSILONS:
                    if (data, seed, epsilon, repeat) in done:
                        continue
                    cell = {"method": "DPVI", "data": data, "split": seed, "epsilon": epsilon, "repeat": repeat}
                    result = cell | {"code": version} | fit(X, y, seed, epsilon)
                    protocol.append(result, CACHE)
                    results.append(result)
    return results


def accuracy(results: list[dict], chosen: list[str]) -> None:
    peers = Cells([r for r in protocol.read() if r.get("method") == PEER])
    ours, means, seconds = defaultdict(list), defaultdict(list), defaultdict(list)
    for r in results:
        ours[r["data"], r["epsilon"], r["split"]].append(r["log_likelihood"])
        means[r["data"], r["epsilon"], r["split"]].append(r["at_mean"])
        seconds[r["data"]].append(r["seconds"])
    print("| data | log-likelihood | " + " | ".join(f"ε = {epsilon:g}" for epsilon in protocol.EPSILONS) + " |")
    print("|---|---|---|---|---|---|---|")
    reached = []
    for data, repeats in ((data, SETS[data]) for data in chosen):
        rows = defaultdict(list)
        for epsilon in protocol.EPSILONS:
            theirs = peers.at(PEER, data, epsilon)
            own = np.array([np.mean(ours[data, epsilon, split]) for split in theirs])
            at_mean = np.array([np.mean(means[data, epsilon, split]) for split in theirs])
            level = np.array([scores[1] for scores in theirs.values()])
            rows["DPVI, predictive"].append(short(own.mean()))
            rows["DPVI, at the posterior mean"].append(short(at_mean.mean()))
            rows[PEER].append(short(level.mean()))
            ahead = at_mean - level
            error = np.std(ahead, ddof=1) / math.sqrt(len(ahead))
            reached.append(ahead.mean() >= 0)
            text = f"{1e4 * ahead.mean():+.0f} ± {1e4 * error:.0f}"
            rows["at the mean minus d3p, 1e-4"].append(text if reached[-1] else f"**{text}**")
            rows["predictive minus d3p, 1e-4"].append(f"{1e4 * (own - level).mean():+.0f}")
        for name, cells in rows.items():
            fits = (
                f" ({5 * repeats} fits at one ε, {np.mean(seconds[data]):.0f} CPU-s)"
                if name.endswith("predictive")
                else ""
            )
            print(f"| {data} | {name}{fits} | " + " | ".join(cells) + " |")
    print(f"\nLevels reached: {sum(reached)} of {len(reached)}.\n")


def middle(values) -> float:
    """Median, without the first steps."""
    return float(np.median(values[2:]))


def cost(guide: str, data: str) -> None:
    """Times of private steps and of bare gradients of the same rows, taken in turns."""
    sparse_X, y = protocol.load(data)
    X = sparse_X.toarray()
    source = Numbers(X, y)
    model = Variational(Density(log_density, X.shape[1], X.shape[1], 0), guide, n_steps=STEPS)
    source = source.cut(model.gradients.batch_size)
    plan = phased(model.blocks, FullBatch(), [3.0] * STEPS)
    wall, q, s = Wall(source, plan), model.init(np.random.default_rng(0)), Estimate.empty(model.blocks)
    gradient = jax.vmap(jax.grad(log_density), in_axes=(None, 0, 0))

    def clipped(theta_p, x_nd, y_n):
        """What a step without noise does: per-example gradients, clipped, summed."""
        g_np = gradient(theta_p, x_nd, y_n)
        return (g_np / jnp.maximum(jnp.linalg.norm(g_np, axis=1), 1.0)[:, None]).sum(axis=0)

    alone, step = jax.jit(gradient), jax.jit(clipped)
    x_nd, y_n = X.astype(np.float32), y.astype(np.float32)
    private, bare, unnoised = [], [], []
    for release in plan.releases[:STEPS]:
        theta_p = q.point_p.astype(np.float32)
        for times, run in ((bare, alone), (unnoised, step)):
            begun = time.process_time()
            np.asarray(run(theta_p, x_nd, y_n))
            times.append(time.process_time() - begun)
        begun = time.process_time()
        s = s.update(wall.release(partial(model.e_step, q, blocks=release.blocks), release), 1.0)
        q = updated(model, s, q)
        private.append(time.process_time() - begun)
    times = " | ".join(f"{1e3 * middle(one):.1f}" for one in (bare, unnoised, private))
    ratios = " | ".join(f"{middle(np.divide(private, one)):.2f}" for one in (bare, unnoised))
    print(f"| {data}, {len(y):,} rows, P = {X.shape[1]} | {guide} | {times} | {ratios} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cost", action="store_true", help="time steps alone")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=list(SETS))
    chosen = parser.parse_args()
    if chosen.cost:
        return costs()
    results = run(chosen.data)
    print("## Private gradients (DPVI)\n")
    print(
        f"Logistic regression as a log-density in JAX, prior N(0, 3²) as d3p's, mean-field guide, all defaults: 200 "
        f"full-batch gradients, clip 1; δ = {protocol.DELTA:g}, means over {len(protocol.SPLITS)} splits. {PEER} as in "
        "the comparison of logistic regressions; it is scored at its posterior mean.\n"
    )
    accuracy(results, chosen.data)
    return costs()


def costs() -> None:
    print(
        f"One step on all rows, CPU-ms, medians of {STEPS} taken in turns, and of their ratios: `vmap(grad)` alone; "
        "the un-noised step, which also clips and sums in JAX, in single precision; and a private step (clip, exact "
        "sum, noise, update). At most 1.5 times the un-noised step is asked; a step of half a millisecond is all fixed "
        "costs.\n"
    )
    print(
        "| batch | guide | vmap(grad) | un-noised step | private step | to vmap(grad) | to the un-noised step |\n"
        "|---|---|---|---|---|---|---|"
    )
    for data in SETS:
        for guide in ("point", "mean_field"):
            cost(guide, data)


if __name__ == "__main__":
    main()
