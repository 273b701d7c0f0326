"""One owner, several processes: speed of a batch pass on Wikipedia, its overhead, and what a killed process costs.

Needs DPVB_DATA, the folder that holds wikipedia/bow.npz. Every process has one thread. `--rows N` takes the first N
rows, `--rounds N` repeats; the best of all rounds counts, and the rounds of all engines are interleaved. `--runs N`
does all of it so many times.
"""

import argparse
import hashlib
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path

for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from scipy import sparse  # noqa: E402

from dpvb.cluster import LocalPool, spread  # noqa: E402
from dpvb.core.clipped_sums import Work  # noqa: E402
from dpvb.core.grids import grids_of  # noqa: E402
from dpvb.core.noise import InsecureNoise  # noqa: E402
from dpvb.core.plan import Mechanism, Release  # noqa: E402
from dpvb.core.sampling import FullBatch, Poisson  # noqa: E402
from dpvb.data import BagOfWords  # noqa: E402
from dpvb.models.topics.lda import LDAModel  # noqa: E402

NUM_TOPICS, WORKERS, FASTER, OVERHEAD = 100, 2, 1.6, 0.2
#: A batch without units: what a step costs beside its E-step.
EMPTY = Poisson(1e-12)


def work_of(model: LDAModel, sampler) -> Work:
    q = model.init(np.random.default_rng(0))
    release = Release(model.blocks, Mechanism(sampler, 1.0))
    words = InsecureNoise(0).words(step=0, purpose="sampling")
    return Work(partial(model.e_step, q, blocks=model.blocks), release, grids_of(release, None), words)


def digest(sums) -> str:
    return hashlib.sha256(b"".join(sums[name].tobytes() for name in sorted(sums))).hexdigest()


def seconds_of(pids: list[int]) -> list[float]:
    """CPU seconds of processes so far."""
    ticks = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13] for pid in pids]
    return [sum(map(int, pair)) / os.sysconf("SC_CLK_TCK") for pair in ticks]


def timed(step, pids: list[int]) -> tuple[float, float, str]:
    """Wall seconds of a step, CPU seconds on its longest path (this process's and the busiest other's), digest."""
    cpu, others, wall = time.process_time(), seconds_of(pids), time.perf_counter()
    sums = step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    busiest = max((b - a for a, b in zip(others, seconds_of(pids), strict=True)), default=0.0)
    return wall, cpu + busiest, digest(sums)


def killed(step, pid: int, after: float) -> tuple[float, str]:
    """Wall seconds and digest of a step of which one process is killed after some seconds."""
    timer = threading.Timer(after, os.kill, (pid, signal.SIGKILL))
    timer.start()
    wall, _, found = timed(step, [])
    timer.join()
    return wall, found


def measured(source, model, rounds: int) -> tuple[dict, dict, set]:
    """Steps and empty steps of every engine, what a killed process costs, and the digests of all sums."""
    full, empty = work_of(model, FullBatch()), work_of(model, EMPTY)
    number = iter(range(10**6))
    with ExitStack() as stack:
        pool = stack.enter_context(LocalPool(WORKERS))
        quiet = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
        workers = LocalCluster(n_workers=WORKERS, threads_per_worker=1, silence_logs=50, **quiet)
        client = stack.enter_context(Client(stack.enter_context(workers)))
        local = stack.enter_context(spread(source, model, pool))
        dask = stack.enter_context(spread(source, model, client))
        engines = {
            "one process": (lambda work: work.sums(source.chunks(), work.draw(source.count)), lambda: []),
            f"local:{WORKERS}": (lambda work: local.sums(work, next(number)), lambda: pool.process_ids),
            f"Dask, {WORKERS} workers": (
                lambda work: dask.sums(work, next(number)),
                lambda: list(client.run(os.getpid).values()),
            ),
        }
        for sums, _ in engines.values():
            sums(empty), sums(empty)
        found = {name: ([], []) for name in engines}
        for _ in range(rounds):
            for name, (sums, pids) in engines.items():
                found[name][0].append(timed(partial(sums, full), pids()))
                found[name][1].extend(timed(partial(sums, empty), pids()) for _ in range(5))
        digests = {result[2] for steps, _ in found.values() for result in steps}
        deaths = {}
        for name, (sums, pids) in list(engines.items())[1:]:
            usual = min(result[0] for result in found[name][0])
            deaths[name], after = killed(partial(sums, full), pids()[0], usual / 2)
            digests.add(after)
    return found, deaths, digests


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds wikipedia/bow.npz")
    warnings.simplefilter("ignore")
    corpus = sparse.csr_array(sparse.load_npz(Path(os.environ["DPVB_DATA"]) / "wikipedia" / "bow.npz"))
    source = BagOfWords(corpus[: options.rows])
    model = LDAModel(NUM_TOPICS, source.width)
    print("## One owner, several processes\n")
    print(
        f"E-step of {options.rows:,} Wikipedia documents, {source.width:,} terms, K = {NUM_TOPICS}, with clip and "
        f"int64 sums; one thread a process, {WORKERS} of them. In each run, with processes of its own, the best of "
        f"{options.rounds} interleaved rounds. CPU: this process's and the busiest other's, which is the wall time on "
        "a machine that nobody else uses. Overhead: a step whose Poisson batch is empty; q goes out and sums of full "
        "size come back.\n"
    )
    print(
        "| run | engine | step, wall s | CPU s | faster, wall | faster, CPU | overhead, wall s | CPU s | one killed |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    reached, digests = {}, set()
    for run in range(1, options.runs + 1):
        found, deaths, seen = measured(source, model, options.rounds)
        digests |= seen
        base = [min(result[place] for result in found["one process"][0]) for place in (0, 1)]
        for name, (steps, idle) in found.items():
            wall, cpu = (min(result[place] for result in steps) for place in (0, 1))
            over, over_cpu = (min(result[place] for result in idle) for place in (0, 1))
            death = f"{deaths[name]:.1f} s" if name in deaths else ""
            faster = f"{base[0] / wall:.2f} | {base[1] / cpu:.2f}"
            numbers = f"{wall:.2f} | {cpu:.2f} | {faster} | {over:.3f} | {over_cpu:.3f} | {death}"
            print(f"| {run} | {name} | {numbers} |", flush=True)
            if name in deaths:
                reached.setdefault(name, []).append(base[0] / wall >= FASTER and over < OVERHEAD)
    verdicts = ", ".join(f"{name} in {sum(runs)} of {len(runs)} runs" for name, runs in reached.items())
    print(
        f"\nAt least {FASTER} × one process (wall) and overhead below {OVERHEAD} s: {verdicts}. Digests of all sums, "
        f"those after a kill included: {'equal' if len(digests) == 1 else 'NOT equal'} "
        f"({', '.join(sorted(one[:12] for one in digests))})."
    )


if __name__ == "__main__":
    main()
