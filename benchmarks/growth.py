"""How the cost of fits grows: CPU seconds and peak memory of a fresh process for each point, with exponents.

    python -m benchmarks growth                          all points, written to RESULTS.md
    python -m benchmarks.growth [short] [AXIS ...]       some axes, or few small points of each

Each point is a process of one thread. CPU seconds and memory are those above a process that has made the same data and
imported the same modules. Exponents are least-squares slopes on logs; in brackets, between the last two points.
"""

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

ROOT = Path(__file__).resolve().parent.parent
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
TOKENS = 100
# Documents of a streamed file.
FILE = 5_000


class Axis(NamedTuple):
    """What grows: the points of a whole run and of a short one, and limits on exponents where there are any."""

    title: str
    points: tuple[int, ...]
    short: tuple[int, ...]
    most_time: float | None = None
    most_memory: float | None = None


#: Limits hold in `make test-slow`: those of rows and units only.
AXES = {
    "lda_rows": Axis("LDA, documents in memory (V 10,000, K 50)", (10_000, 30_000, 90_000), (5_000, 20_000), 1.1, 1.1),
    "lda_streamed": Axis("LDA, documents in streamed files", (20_000, 60_000, 180_000), (20_000, 60_000), 1.1, 0.1),
    "lda_terms": Axis("LDA, words (K 50, 5,000 documents)", (10_000, 30_000, 100_000), (3_000, 10_000)),
    "lda_topics": Axis("LDA, topics (V 10,000, 5,000 documents)", (15, 50, 150), (15, 50)),
    "logistic_rows": Axis("Logistic, rows (20 columns)", (30_000, 100_000, 300_000), (10_000, 40_000), 1.1, 1.1),
    "logistic_columns": Axis("Logistic, full covariance, columns (5,000 rows)", (100, 300, 1_000), (30, 100)),
    "linear_rows": Axis("Linear, rows (20 columns)", (30_000, 100_000, 300_000), (10_000, 40_000), 1.1, 1.1),
    "linear_columns": Axis("Linear, columns (5,000 rows)", (100, 300, 1_000), (30, 100)),
    "mixture_columns": Axis("Mixture, numbers (2,000 rows)", (30, 100, 300), (10, 30)),
    "mixture_rows": Axis("Mixture, rows (10 numbers)", (30_000, 100_000, 300_000), (10_000, 40_000), 1.1, 1.1),
    "fixed_size": Axis(
        "The draw of a fixed-size batch, units", (10**6, 4 * 10**6, 16 * 10**6), (10**6, 4 * 10**6), 1.1, 0.1
    ),
    "noise": Axis("Noise, draws", (3 * 10**6, 10**7, 3 * 10**7), (10**6, 4 * 10**6), 1.1, 1.1),
}


def documents(number: int, terms: int) -> sparse.csr_matrix:
    """Documents of 100 tokens."""
    words = np.random.default_rng(0).integers(0, terms, number * TOKENS)
    matrix = sparse.csr_matrix(
        (np.ones(number * TOKENS, np.int32), (np.repeat(np.arange(number), TOKENS), words)), shape=(number, terms)
    )
    matrix.sum_duplicates()
    return matrix


def task(axis: str, size: int, folder: str) -> Callable[[], object]:
    """Make the data of a point; the function that is returned is measured."""
    import dpvb
    from dpvb.core.noise import InsecureNoise
    from dpvb.core.sampling import FixedSize

    rng, (family, _, grows) = np.random.default_rng(0), axis.partition("_")
    steps = {"n_steps": 4, "random_state": 0, "public_vocabulary": True}
    if axis == "fixed_size":
        words = InsecureNoise(0).words(step=0, purpose="sampling")

        def draw() -> object:
            batch = FixedSize(size // 1000, size).draw(words, lambda: size)
            return sum(int(batch(start, 8192).sum()) for start in range(0, size, 8192))

        return draw
    if axis == "noise":
        total = np.zeros(size, np.int64)
        return lambda: InsecureNoise(0).gaussian(1e9, total, step=0, block="b", plan_digest=b"")
    if axis == "lda_streamed":
        for part in range(size // FILE):  # One file at a time is in memory.
            sparse.save_npz(f"{folder}/{part}.npz", documents(FILE, 10_000))
        return lambda: dpvb.LDA(50, **BUDGET, **steps).fit(dpvb.data.open_documents(folder))
    if family == "lda":
        terms, topics = (size if grows == name else usual for name, usual in (("terms", 10_000), ("topics", 50)))
        matrix = documents(size if grows == "rows" else 5_000, terms)
        return lambda: dpvb.LDA(topics, **BUDGET, **steps).fit(matrix)
    rows, columns = (size if grows == name else 0 for name in ("rows", "columns"))
    if family == "mixture":
        x_nd = rng.random((rows or 2_000, columns or 10)).astype(np.float32)
        return lambda: dpvb.GaussianMixture(10, low=0, high=1, **BUDGET, n_steps=2).fit(x_nd)
    x_nd = rng.uniform(-1, 1, (rows or 5_000, columns or 20))
    psi_n = x_nd @ rng.standard_normal(x_nd.shape[1]) / math.sqrt(x_nd.shape[1])
    if family == "linear":
        y_n = 0.5 * psi_n + 0.2 * rng.standard_normal(len(x_nd))
        return lambda: dpvb.LinearRegression(low=-1, high=1, y_range=(-4, 4), **BUDGET).fit(x_nd, y_n)
    return lambda: dpvb.LogisticRegression(low=-1, high=1, **BUDGET).fit(x_nd, (psi_n > 0).astype(int))


def usage() -> tuple[float, float]:
    """CPU seconds and peak memory in MB of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measured(axis: str, size: int) -> None:
    """Print CPU seconds and MB of a point, above those of the same process after a fit to the smallest data."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as folder:
        task(axis, AXES[axis].short[0] // 2, small)()
        run = task(axis, size, folder)
        # The peak begins anew.
        Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        before, resident = usage()[0], _megabytes(lines, "VmRSS")
        run()
        lines = Path("/proc/self/status").read_text().splitlines()
        print(json.dumps([usage()[0] - before, _megabytes(lines, "VmHWM") - resident]))


def _megabytes(lines: list[str], name: str) -> float:
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def point(axis: str, size: int) -> tuple[float, float]:
    """CPU seconds and MB of a point, in a process of its own."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.growth", "--point", axis, str(size)]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | one, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(run.stdout)
    return seconds, memory


def exponents(sizes: tuple[int, ...], values: list[float]) -> tuple[float, float]:
    """Slope of the logs over all points, and between the last two; values below a thousandth count as that."""
    x_n, y_n = np.log(sizes), np.log(np.maximum(values, 1e-3))
    slope = float(np.polyfit(x_n, y_n, 1)[0])
    return slope, float((y_n[-1] - y_n[-2]) / (x_n[-1] - x_n[-2]))


def above_limits(axis: Axis, sizes: tuple[int, ...], seconds: list[float], memory: list[float]) -> list[str]:
    """Exponents above their limits.

    Below 64 MB the memory of a stream does not depend on its length: 60,000 documents took 58 MB, 180,000 took 27 MB.
    """
    time = exponents(sizes, seconds)[0]
    space = exponents(sizes, [max(mb, 64.0) for mb in memory])[0]
    limits = ((time, axis.most_time, "time"), (space, axis.most_memory, "memory"))
    return [f"{what}: {found:.2f} above {most}" for found, most, what in limits if most is not None and found > most]


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--point"]:
        measured(arguments[1], int(arguments[2]))
        return
    short = "short" in arguments
    chosen = [name for name in arguments if name != "short"] or [*AXES]
    print("## Growth\n")
    print(
        "CPU seconds and memory of a fit, above a process that has made a small one; one thread, a process a point. "
        "Limits hold for exponents in rows and units: 1.1, and 0.1 for the memory of streams and of draws.\n"
    )
    print("| what grows | points | CPU s | exponent | MB | exponent | limits |\n|---|---|---|---|---|---|---|")
    for name in chosen:
        axis = AXES[name]
        sizes = axis.short if short else axis.points
        seconds, memory = (list(values) for values in zip(*(point(name, size) for size in sizes), strict=True))
        slopes = (exponents(sizes, seconds), exponents(sizes, memory))
        time, space = (f"{slope:.2f} ({last:.2f})" for slope, last in slopes)
        cells = (
            axis.title,
            ", ".join(f"{size:,}" for size in sizes),
            ", ".join(f"{value:.2f}" for value in seconds),
            time,
            ", ".join(f"{value:.0f}" for value in memory),
            space,
            "-" if axis.most_time is None else "; ".join(above_limits(axis, sizes, seconds, memory)) or "kept",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
