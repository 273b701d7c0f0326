"""CPU-seconds of a first-order step of a sigmoid belief network: 3,200 vectors of 784 pixels, 100 hidden units.

The whole step on one thread: batch, E-step of two sweeps, norms, clipping, exact sums, exact noise, M-step. Then its
parts by themselves, and the memory that a step adds to that of its rows.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np

from dpvb.core.blocks import Grid
from dpvb.core.estimate import Estimate
from dpvb.core.model import updated
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.design import BinaryMatrix
from dpvb.models.belief_network.sbn import SBN

S, J, K, REPEATS = 3_200, 784, 100, 7


def images(seed: int = 0) -> np.ndarray:
    """Vectors from a random network whose units draw patches, about as many ones as in handwritten digits."""
    rng = np.random.default_rng(seed)
    place = np.stack(np.meshgrid(np.arange(28), np.arange(28)), axis=-1).reshape(J, 2)
    centre_k = rng.uniform(4, 24, (K, 2))
    w_kj = 6.0 * np.exp(-((place - centre_k[:, None]) ** 2).sum(-1) / 8.0)
    z_nk = rng.random((S, K)) < 0.15
    return (rng.random((S, J)) < 1 / (1 + np.exp(3.0 - z_nk @ w_kj))).astype(np.float32)


def seconds(task: Callable[[], object]) -> float:
    """Least CPU time of a few runs."""
    found = []
    for _ in range(REPEATS):
        begin = time.process_time()
        task()
        found.append(time.process_time() - begin)
    return min(found)


def main() -> None:
    y_nj = images()
    model = SBN(K, J, n_units=float(S))
    plan = phased(model.blocks, FullBatch(), [1.0] * (REPEATS + 6))
    wall = Wall(BinaryMatrix(y_nj), plan, n_units=S)
    q, s = model.init(np.random.default_rng(0)), Estimate.empty(model.blocks)
    releases = iter(plan)

    def step() -> None:
        nonlocal q, s
        release = next(releases)
        s = s.update(wall.release(partial(model.e_step, q, blocks=release.blocks), release), 0.5)
        q = updated(model, s, q)

    for _ in range(6):  # the means, compilation, and some learning
        step()
    whole = seconds(step)
    blocks = {name: block for name, block in model.blocks.items() if block.phase == "step"}
    made = model.e_step(q, y_nj, blocks)
    grid = Grid(2.0**-28, blocks["gradient"].bound)
    weights = np.minimum(1.0, blocks["gradient"].bound / made["gradient"].norms())
    out_kj = np.zeros((K, J), np.int64)
    parts = {
        f"E-step, {model.n_sweeps} sweeps": seconds(lambda: model.e_step(q, y_nj, blocks)),
        "norms of gradients": seconds(lambda: made["gradient"].norms()),
        "exact sum of gradients": seconds(lambda: made["gradient"].accumulate(weights, grid, out_kj)),
    }
    parts["the rest: other blocks, noise, M-step"] = whole - sum(parts.values())
    tracemalloc.start()
    step_peak = -tracemalloc.get_traced_memory()[0]
    model.e_step(q, y_nj, blocks)["gradient"].accumulate(weights, grid, out_kj)
    step_peak += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print("## Step of a sigmoid belief network\n")
    print("| S = 3,200, J = 784, K = 100 | CPU-seconds | asked |\n|---|---|---|")
    print(f"| first-order step | {whole:.2f} | 0.6, aim 0.4 |")
    for name, value in parts.items():
        print(f"| {name} | {value:.2f} | |")
    print(
        f"\nA step adds {step_peak / 2**20:.0f} MiB to its rows' {y_nj.nbytes / 2**20:.0f} MiB: "
        f"{step_peak / S / J / 8:.1f} float64 a pixel; gradients of all rows would be {S * J * K * 8 / 2**30:.1f} GiB."
    )


if __name__ == "__main__":
    main()
