"""Single points of growth with a limit each: `python -m benchmarks growth_limits`; a fresh process of one thread each.

CPU seconds are those of the fit, after a fit to small data in the same process. Memory is the peak of the fit above the
memory of the process with its data. Before: commit 3ed0c7c.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth import BUDGET, ROOT, _megabytes, documents, task

MB = 2.0**20
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def used(run: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of a call, and MiB that it adds to the peak of this process."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    resident, begun = _megabytes(Path("/proc/self/status").read_text().splitlines(), "VmRSS"), time.process_time()
    run()
    seconds = time.process_time() - begun
    return seconds, _megabytes(Path("/proc/self/status").read_text().splitlines(), "VmHWM") - resident


def rows(number: int, columns: int) -> tuple[Any, Any, Any]:
    """Numbers between -1 and 1, labels, and numeric answers."""
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-1, 1, (number, columns))
    psi_n = x_nd @ rng.standard_normal(columns) / math.sqrt(columns)
    return x_nd, (psi_n + rng.logistic(0, 0.3, number) > 0).astype(int), 0.5 * psi_n + 0.2 * rng.standard_normal(number)


def regression(kind: str, number: int, columns: int, **options: Any) -> tuple[float, float]:
    """CPU seconds and MiB of a fit."""
    import dpvb

    x_nd, label_n, answer_n = rows(number, columns)
    y_n = answer_n if kind == "linear" else label_n

    def fit(x: Any, y: Any) -> object:
        if kind == "linear":
            return dpvb.LinearRegression(low=-1, high=1, y_range=(-4, 4), **BUDGET).fit(x, y)
        return dpvb.LogisticRegression(low=-1, high=1, **BUDGET, **options).fit(x, y)

    fit(np.ascontiguousarray(x_nd[:1_000, :10]), y_n[:1_000])
    return used(lambda: fit(x_nd, y_n))


def without_kept_rows() -> tuple[float, float]:
    """CPU seconds and MiB of a fit to many rows, of which no clean form is kept from step to step."""
    from dpvb.data.tables import design

    design.KEPT_ENTRIES = 0
    return regression("logistic", 10**6, 20)


def lda(terms: int, topics: int) -> tuple[float, float]:
    """CPU seconds and MiB of a fit whose sums are most of what it does."""
    import dpvb

    matrix = documents(1_000, terms)
    options: dict[str, Any] = {**BUDGET, "n_steps": 3, "random_state": 0, "public_vocabulary": True}
    dpvb.LDA(10, **options).fit(documents(200, 500))
    return used(lambda: dpvb.LDA(topics, **options).fit(matrix))


def told() -> float:
    """Bytes for each entry that a worker is told in a step of LDA."""
    from dpvb.cluster.engine import packed
    from dpvb.core.model import e_step_q
    from dpvb.models.topics.lda import LDAModel

    model = LDAModel(100, 10_000)
    return len(packed(e_step_q(model, model.init(np.random.default_rng(0)), model.blocks))) / 1e6


def poisson() -> tuple[float, float, float]:
    """CPU seconds of the sums of a step with p = 0.001 and 10^7 entries, of sums with all entries, and the ratio."""
    from dpvb.core import clipped_sums, loop
    from dpvb.core.clipped_sums import Work
    from dpvb.core.grids import grids_of
    from dpvb.core.noise import InsecureNoise
    from dpvb.core.plan import Mechanism, Release
    from dpvb.core.sampling import Poisson
    from dpvb.data import BagOfWords
    from dpvb.models.topics.lda import LDAModel

    model = LDAModel(100, 100_000, release_word_totals=False, word_weight_power=0.0)
    release = Release(model.blocks, Mechanism(Poisson(0.001), 1.0))
    q, source = model.init(np.random.default_rng(0)), BagOfWords(documents(40_000, 100_000))
    query, words = loop.query(model, q, release), InsecureNoise(0).words(step=0, purpose="sampling")

    def sums() -> dict[str, Any]:
        work: Work[Any] = Work(query, release, grids_of(release, None), words)
        return work.sums(source.chunks(), work.draw(source, source.count))

    found, seconds = [], []
    original = clipped_sums.touched
    sums()
    for touched in (original, lambda contribution, weights: (slice(None), contribution)):
        clipped_sums.touched = touched  # type: ignore[assignment]
        begun = time.process_time()
        found.append(sums())
        seconds.append(time.process_time() - begun)
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
    return seconds[0], seconds[1], seconds[1] / seconds[0]


def mixture(number: int, **steps: int) -> tuple[float, float]:
    """CPU seconds and MiB of a fit to 300 columns."""
    import dpvb

    x_nd = np.random.default_rng(0).random((number, 300)).astype(np.float32)
    dpvb.GaussianMixture(10, low=0, high=1, **BUDGET).fit(x_nd[:500, :3])
    return used(lambda: dpvb.GaussianMixture(10, low=0, high=1, **BUDGET, **steps).fit(x_nd))


def draw() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        return used(task("fixed_size", 16_000_000, folder))


def glm() -> float:
    """CPU seconds of the GLM of statsmodels."""
    import statsmodels.api as sm

    x_nd, label_n, _ = rows(20_000, 1_000)
    model = sm.GLM(label_n, sm.add_constant(x_nd), family=sm.families.Binomial())
    return used(model.fit)[0]


def _both(found: tuple[float, float]) -> str:
    return f"{found[0]:.1f} CPU s, {found[1]:.0f} MiB"


def _each(found: tuple[float, float], number: float) -> tuple[float, float]:
    """CPU seconds, and bytes for each of so many numbers."""
    return found[0], found[1] * MB / number


#: What is measured, before, asked, and the cell of today.
POINTS: dict[str, tuple[str, str, Callable[[], str]]] = {
    "LDA, V x K = 3*10^7: bytes of peak for each entry": (
        "95 to 150",
        "at most 50",
        lambda: f"{_each(lda(100_000, 300), 3e7)[1]:.0f}",
    ),
    "LDA: bytes told to each worker for each entry": ("20 to 22", "at most 5", lambda: f"{told():.1f}"),
    "Poisson step, p = 0.001, 10^7 entries: CPU s of sums, and with all entries": (
        "1 times",
        "at least 8 times less",
        lambda: "{:.3f}, {:.3f}: {:.1f} times less".format(*poisson()),
    ),
    "Mixture, 300 columns, 2,000 rows, 2 steps": (
        "37.8 CPU s, 17,450 MB",
        "15 CPU s, 600 MB",
        lambda: _both(mixture(2_000, n_steps=2)),
    ),
    "the same, 20,000 rows, default steps": ("-", "-", lambda: _both(mixture(20_000))),
    "Linear, d = 1,000, N = 20,000": ("46 CPU s", "18 CPU s", lambda: _both(regression("linear", 20_000, 1_000))),
    "Logistic, d = 1,000, N = 20,000": ("30 CPU s", "18 CPU s", lambda: _both(regression("logistic", 20_000, 1_000))),
    "the same data, GLM of statsmodels": ("15 CPU s", "-", lambda: f"{glm():.1f} CPU s"),
    "Logistic, diagonal, d = 100, N = 20,000": (
        "25 CPU s",
        "6 CPU s",
        lambda: _both(regression("logistic", 20_000, 100, covariance="diagonal")),
    ),
    "Logistic, 1,000,000 rows of 20 numbers: CPU s; bytes for each number": (
        "8.1 CPU s, 25",
        "8.1 CPU s, 13",
        lambda: "{:.1f} CPU s, {:.1f}".format(*_each(regression("logistic", 10**6, 20), 2e7)),
    ),
    "the same, with no rows kept for later steps": (
        "-",
        "-",
        lambda: "{:.1f} CPU s, {:.1f}".format(*_each(without_kept_rows(), 2e7)),
    ),
    "The draw of a fixed-size batch of 16,000,000 units": (
        "27 CPU s, 1,030 MB",
        "3 CPU s, 100 MB",
        lambda: _both(draw()),
    ),
}


def main() -> None:
    if sys.argv[1:2] == ["--point"]:
        warnings.simplefilter("ignore")
        print(json.dumps(POINTS[sys.argv[2]][2]()))
        return
    print("## Limits of growth\n")
    print("A fit in a process of one thread. Memory is above that of the process with its data.\n")
    print("| | before | asked | measured |\n|---|---|---|---|")
    for name, (before, asked, _) in POINTS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        command = [sys.executable, "-m", "benchmarks.growth_limits", "--point", name]
        run = subprocess.run(command, cwd=ROOT, env=os.environ | ONE, stdout=subprocess.PIPE, text=True, check=True)
        print(f"| {name} | {before} | {asked} | {json.loads(run.stdout)} |", flush=True)


if __name__ == "__main__":
    main()
