"""Processor time and wall time of fits with the thread settings of a user's shell, beside one thread of BLAS.

    python -m benchmarks threads

Each fit runs in a process of its own, with and without OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1, in turns; first on
an idle machine, then beside eight busy processes. Needs DPVB_DATA, the folder that holds regression/.
"""

import os
import resource
import subprocess
import sys
import time

import numpy as np

#: Settings that the Makefile exports, and that no user has.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
REPEATS, BUSY, ASKED = 5, 8, 1.1
FITS = ("logistic regression of Adult", "linear regression, 784 columns", "federated, 10 clients of Adult")


def measured(name: str) -> None:
    """Fit once without counting, for compiled kernels and imports, then print processor and wall seconds of a fit."""
    import dpvb
    from benchmarks.peers import protocol
    from dpvb import federated

    if name == FITS[1]:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((5_000, 784))
        linear = dpvb.LinearRegression(epsilon=1.0, delta=1e-5, low=-4.0, high=4.0, y_range=(-100.0, 100.0))
        y = x[:, :10].sum(axis=1)

        def fit() -> None:
            linear.fit(x, y)

    else:
        x, y_all = protocol.load("adult")
        logistic = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, max_row_norm=1.0)

        def fit() -> None:
            if name == FITS[0]:
                logistic.fit(x, y_all)
            else:
                shards = [(x[i::10], y_all[i::10]) for i in range(10)]
                federated.simulate(logistic, shards, trust="secure_aggregation", num_rounds=20)

    fit()
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    fit()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(used, time.perf_counter() - begun)


def run(name: str, settings: dict[str, str]) -> tuple[float, float]:
    """Processor and wall seconds of a fit in a process that has these thread settings and no others."""
    plain = {key: value for key, value in os.environ.items() if key not in ONE_THREAD}
    code = f"from benchmarks.threads import measured; measured({name!r})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**plain, **settings}, check=True, capture_output=True, text=True)
    used, wall = done.stdout.split()
    return float(used), float(wall)


def main() -> None:
    print("## Threads\n")
    print(
        "Seconds of the processor and of the clock for one fit, after a first one in the same process: as a user runs "
        f"it / with OMP_NUM_THREADS=1. Medians of {REPEATS} processes in turns, on {os.cpu_count()} processors; asked: "
        f"ratios of at most {ASKED}.\n"
    )
    print("| fit | load | processor | ratio | wall | ratio |\n|---|---|---|---|---|---|")
    for busy in (0, BUSY):
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            for name in FITS:
                pairs = [(run(name, {}), run(name, ONE_THREAD)) for _ in range(REPEATS)]
                user, one = np.median(np.array(pairs), axis=0)
                print(
                    f"| {name} | {f'{busy} busy processes' if busy else 'idle'} | {user[0]:.2f} / {one[0]:.2f} | "
                    f"{user[0] / one[0]:.2f} | {user[1]:.2f} / {one[1]:.2f} | {user[1] / one[1]:.2f} |",
                    flush=True,
                )
        finally:
            for process in load:
                process.kill()


if __name__ == "__main__":
    main()
