"""Peak memory of the process that starts a fit, by the number of worker processes: its sums arrive as one total.

`python -m benchmarks.cluster_memory`; each point is a fresh process. Sums of 16 MiB; what a step adds to the peak is
printed in sums.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

SUMS, MIB = 16, 2**20


def answer(parts, told, own):
    """Sums of one process: an array of 16 MiB, whatever its parts are."""
    return {"a": np.full(SUMS * MIB // 8, len(parts))}


def add(total, one):
    total["a"] += one["a"]
    return total


def status(name: str) -> float:
    """A line of this process's memory, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def measured(kind: str, num_workers: int) -> None:
    """Print by how many sums a step raises the peak of this process."""
    from distributed import Client, LocalCluster

    from benchmarks.cluster_memory import add, answer  # as worker processes import them
    from dpvb.cluster import LocalPool
    from dpvb.cluster.dask import DaskEngine
    from dpvb.cluster.engine import Reduction, map_reduce

    with ExitStack() as stack:
        if kind == "local":
            engine = stack.enter_context(LocalPool(num_workers))
        else:
            quiet = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
            workers = LocalCluster(n_workers=num_workers, threads_per_worker=1, silence_logs=50, **quiet)
            engine = DaskEngine(stack.enter_context(Client(stack.enter_context(workers))))
        engine.hold([None] * (4 * num_workers), None)
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
        total = map_reduce(
            Reduction(answer, add), 4 * num_workers, None, [None] * (4 * num_workers), "k", engine=engine
        )
        assert (total["a"] == 4 * num_workers).all()
        print(f"{(status('VmHWM') - before) / SUMS:.1f}")


def main() -> None:
    if len(sys.argv) == 3:
        measured(sys.argv[1], int(sys.argv[2]))
        return
    print("## Memory of the driver of a cluster\n")
    print(f"What a step with sums of {SUMS} MiB adds to the peak of the process that starts it, in sums.\n")
    print("| workers | local | Dask |\n|---|---|---|")
    for num_workers in (2, 4, 8):
        cells = []
        for kind in ("local", "dask"):
            command = [sys.executable, "-m", "benchmarks.cluster_memory", kind, str(num_workers)]
            environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
            cells.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        print(f"| {num_workers} | {' | '.join(cell.strip() for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
