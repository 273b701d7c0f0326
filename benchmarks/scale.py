"""Rows that an hour suffices for, and plans for 10^8 documents and 10^9 rows: `python -m benchmarks scale`.

Costs of a row and of an entry of a sum are measured here, on one thread. Hours of a cluster are calculated by a
discrete-event simulation with these costs. In a step q goes to all workers, who pass it on, and each worker sums its
parts. Workers add each other's sums, four at a time, and the driver adds noise and makes the M-step. Workers differ in
speed, and some tasks take twice as long. A worker that fails comes back after a minute; the first worker that is free
does its task again.
"""

import heapq
import math
import os
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import dpvb

ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
WORDS, STEPS = 130, 21
CORES = 16
# Assumed: a port of 10 Gbit/s; one core adds 8 bytes in a nanosecond; threads and processes use 80 % of their cores.
BYTES_A_SECOND, ADDED_A_SECOND, EFFICIENCY = 1.25e9, 8e9, 0.8
# Assumed: spread of the logarithm of a task's time; share of tasks of double time; hours between failures of a worker.
SPREAD, SLOW, HOURS_TO_FAILURE, RESTART, FAN_IN = 0.1, 0.01, 500.0, 60.0, 4
WORKERS = (10, 30, 100, 300, 1000)


class Plan(NamedTuple):
    """What a fit on a cluster needs.

    Attributes:
        work: core seconds of one step, over all workers.
        told, sums: bytes of q, and of a worker's sums.
        driver: seconds of the driver in a step.
        steps: number of steps.
    """

    work: float
    told: float
    sums: float
    driver: float
    steps: int


def slope(seconds: Callable[[int], float], sizes: tuple[int, int]) -> float:
    """Seconds of one more row: the least of three, at either size."""
    small, large = (min(seconds(size) for _ in range(3)) for size in sizes)
    return max(large - small, 1e-12) / (sizes[1] - sizes[0])


def cpu(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def documents(number: int, terms: int) -> Any:
    """Documents of WORDS words, most of them different."""
    words = np.random.default_rng(0).integers(0, terms, number * WORDS)
    cells = (np.ones(number * WORDS), (np.repeat(np.arange(number), WORDS), words))
    matrix = sparse.csr_matrix(cells, shape=(number, terms))
    matrix.sum_duplicates()
    return matrix


def models() -> dict[str, tuple[float, str]]:
    """CPU seconds that a fit takes for each row, by the model's name, and what was fitted."""
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-1, 1, (200_000, 20))
    label_n = (x_nd[:, 0] + 0.5 * rng.standard_normal(len(x_nd)) > 0).astype(int)
    number_n = x_nd[:, 0] + 0.2 * rng.standard_normal(len(x_nd))
    matrix, columns = documents(9_000, 10_000), {"low": -1, "high": 1}
    fits: dict[str, tuple[Callable[[int], object], tuple[int, int], str]] = {
        "Logistic regression": (
            lambda n: dpvb.LogisticRegression(**columns, **BUDGET).fit(x_nd[:n], label_n[:n]),
            (50_000, 200_000),
            "20 numbers, full covariance",
        ),
        "Linear regression": (
            lambda n: dpvb.LinearRegression(**columns, y_range=(-2, 2), **BUDGET).fit(x_nd[:n], number_n[:n]),
            (50_000, 200_000),
            "20 numbers",
        ),
        "Mixture": (
            lambda n: dpvb.GaussianMixture(10, **columns, **BUDGET).fit(x_nd[:n, :10]),
            (20_000, 60_000),
            "10 numbers, 10 groups",
        ),
        "PCA": (lambda n: dpvb.PCA(2, **columns, **BUDGET).fit(x_nd[:n]), (50_000, 200_000), "20 numbers"),
        "Topics": (
            lambda n: dpvb.LDA(50, **BUDGET, public_vocabulary=True, random_state=0).fit(matrix[:n]),
            (3_000, 9_000),
            f"{WORDS} words of 10,000, 50 topics",
        ),
    }
    found = {}
    for name, (fit, sizes, said) in fits.items():
        fit(1_000)
        found[name] = slope(lambda n, fit=fit: cpu(lambda: fit(n)), sizes), said  # type: ignore[misc]
    return found


def steps_of(fit: Callable[[Any], object]) -> float:
    """CPU seconds of a step: the median from the third one on."""
    seconds: list[float] = []
    fit(dpvb.Run(progress=lambda step, plan: seconds.append(time.process_time())))
    return float(np.median(np.diff(seconds)[1:]))


def topics() -> tuple[float, float]:
    """CPU seconds of an E-step for each word and topic, and of the rest of a step for each entry of V x K."""
    terms, number = 10_000, 100
    fixed: dict[str, Any] = {**BUDGET, "n_steps": 6, "public_vocabulary": True, "random_state": 0}
    step = {
        size: steps_of(lambda run, size=size: dpvb.LDA(number, **fixed).fit(documents(size, terms), run=run))
        for size in (1_000, 5_000)
    }
    each = (step[5_000] - step[1_000]) / 4_000
    return each / (WORDS * number), max(step[1_000] - 1_000 * each, 0.0) / (terms * number)


def simulated(plan: Plan, workers: int, seed: int, *, faults: bool) -> tuple[float, int]:
    """Seconds of a fit, and how many tasks were done again."""
    rng, ahead, again, order = np.random.default_rng(seed), 0.0, 0, count()
    speed_w = np.exp(SPREAD * rng.standard_normal(workers)) if faults else np.ones(workers)
    task = plan.work / (workers * CORES * EFFICIENCY)
    for _ in range(plan.steps):
        # The driver and all that have q pass it on: their number doubles.
        begun = ahead + math.ceil(math.log2(workers + 1)) * plan.told / BYTES_A_SECOND
        ready_t, waiting = [0.0] * workers, deque(range(workers))
        events = [(begun, next(order), "free", worker, -1) for worker in range(workers)]
        heapq.heapify(events)
        idle: list[int] = []
        while events:
            now, _, what, worker, own = heapq.heappop(events)
            if what == "done":
                ready_t[own] = now
            if what == "failed":
                waiting.append(own)
                again += 1
                heapq.heappush(events, (now + RESTART, next(order), "free", worker, -1))
            else:
                idle.append(worker)
            while idle and waiting:
                worker, own = idle.pop(), waiting.popleft()
                seconds = task * speed_w[worker]
                if faults:
                    seconds *= math.exp(SPREAD * rng.standard_normal()) * (2.0 if rng.random() < SLOW else 1.0)
                fails = rng.exponential(HOURS_TO_FAILURE * 3600.0) if faults else math.inf
                end = ("failed", now + fails) if fails < seconds else ("done", now + seconds)
                heapq.heappush(events, (end[1], next(order), end[0], worker, own))
        # One of each group receives the sums of the others, one after another through its port, and adds them.
        one = plan.sums / BYTES_A_SECOND + plan.sums / ADDED_A_SECOND
        while len(ready_t) > 1:
            groups = [ready_t[first : first + FAN_IN] for first in range(0, len(ready_t), FAN_IN)]
            ready_t = [max(group) + (len(group) - 1) * one for group in groups]
        ahead = ready_t[0] + plan.sums / BYTES_A_SECOND + plan.driver
    return ahead, again


def main() -> None:
    if os.environ.get("NUMBA_NUM_THREADS") != "1":
        command = [sys.executable, "-m", "benchmarks.scale"]
        sys.exit(subprocess.run(command, env=os.environ | ONE, check=False).returncode)
    warnings.simplefilter("ignore")
    print("## Scale\n")
    print("Costs are measured on one thread; rows within an hour are calculated for 80 % of the cores.\n")
    print("| model | data | CPU us a row and fit (measured) | 2 cores (calculated) | 16 cores | 64 cores |")
    print("|---|---|---|---|---|---|")
    costs = models()
    for name, (each, said) in costs.items():
        rows = [f"{3600 * EFFICIENCY * cores / each / 1e6:,.1f} million" for cores in (2, 16, 64)]
        print(f"| {name} | {said} | {1e6 * each:.2f} | {' | '.join(rows)} |", flush=True)
    word, entry = topics()
    entries = 1e8
    lda = Plan(1e8 * WORDS * 1_000 * word, 4 * entries, 8 * entries, entries * entry / 8, STEPS)
    logistic_steps = 20
    row = costs["Logistic regression"][0] / logistic_steps
    rows_plan = Plan(1e9 * row, 4e4, 4e4, 0.1, logistic_steps)
    print(f"\nTopics: {1e9 * word:.1f} ns for each word and topic, {1e9 * entry:.0f} ns for each entry (measured).")
    print(f"Logistic regression, 20 numbers: {1e6 * row:.2f} us for each row and step (measured).\n")
    print(
        "Hours of a fit are calculated: 10^8 documents (K = 1,000, V = 100,000, 21 steps, the driver with 8 threads),"
    )
    print(f"and 10^9 rows of 20 numbers. Each worker has {CORES} cores. The mean of 5 simulations.\n")
    print("| data | workers | hours, ideal workers | hours, stragglers and failures | busy | tasks done again |")
    print("|---|---|---|---|---|---|")
    for title, plan in (("10^8 documents", lda), ("10^9 rows", rows_plan)):
        for workers in WORKERS:
            ideal, _ = simulated(plan, workers, 0, faults=False)
            real, again = np.mean([simulated(plan, workers, seed, faults=True) for seed in range(5)], axis=0)
            busy = plan.steps * plan.work / (workers * CORES * EFFICIENCY) / real
            cells = (title, f"{workers:,}", f"{ideal / 3600:.3g}", f"{real / 3600:.3g}", f"{busy:.0%}", f"{again:.1f}")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
