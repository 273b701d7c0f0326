"""A step of Pólya-Gamma regression at the papers' largest setting, beside the BLAS and LAPACK calls it is made of."""

import resource
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm
from scipy.linalg.lapack import dlauum, dpotrf, dtrtri
from threadpoolctl import threadpool_limits

from dpvb.core.estimate import Estimate
from dpvb.core.model import updated
from dpvb.core.noise import InsecureNoise, NoiseSource, SecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.design import Design
from dpvb.papers.polya_gamma import PolyaGamma

ROWS, COLUMNS, ONES, REPEATS = 10_069, 4_146, 40, 3


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


class TimedNoise:
    """The secure noise, with the time that it takes."""

    def __init__(self) -> None:
        self._source: NoiseSource = SecureNoise()
        self.private, self.run_id, self.spent = False, "timed", 0.0

    def gaussian(self, *args, **kwargs):
        begun = time.process_time()
        try:
            return self._source.gaussian(*args, **kwargs)
        finally:
            self.spent += time.process_time() - begun

    def words(self, *args, **kwargs):
        return self._source.words(*args, **kwargs)


def blas(x_nd: np.ndarray) -> dict[str, float]:
    """Weighted Gram, Cholesky with inverse, and quadratic forms: each library call alone."""
    gram = dsyrk(1.0, x_nd.T, lower=1)
    gram.flat[:: COLUMNS + 1] += 1.0
    spent = {"weighted Gram (dsyrk)": seconds(lambda: dsyrk(1.0, x_nd.T, lower=1))}
    made: list[np.ndarray] = [gram]

    def cholesky() -> None:
        made.append(dpotrf(gram, lower=1)[0])

    def inverse() -> None:
        made[1] = dtrtri(made[1], lower=1, overwrite_c=1)[0]
        made[0] = dlauum(made[1], lower=1)[0]

    spent["Cholesky with inverse (dpotrf, dtrtri, dlauum)"] = seconds(cholesky) + seconds(inverse)
    rows = x_nd.copy().T
    spent["quadratic forms (dtrmm)"] = seconds(lambda: dtrmm(1.0, made[1], rows, lower=1, overwrite_b=1))
    return spent


def step(x_nd: np.ndarray, y_n: np.ndarray, noise: float) -> tuple[float, float]:
    """CPU seconds of the second step (the first has c = 0), without noise, and of the noise."""
    model = PolyaGamma(COLUMNS, num_steps=2)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget).scaled(noise)
    source = TimedNoise()
    wall = Wall(Design(x_nd, y_n), plan, noise=source if noise else InsecureNoise(0))
    q, s = model.init(np.random.default_rng(0)), Estimate.empty(model.blocks)
    for t, release in enumerate(plan, start=1):
        begun, drawn = time.process_time(), source.spent
        s = s.update(wall.release(partial(model.e_step, q, blocks=release.blocks), release), model.step_size(t))
        q = updated(model, s, q)
        spent, drawn = time.process_time() - begun, source.spent - drawn
    return spent - drawn, drawn


def main() -> None:
    rng = np.random.default_rng(0)
    x_nd = np.zeros((ROWS, COLUMNS))
    x_nd[np.arange(ROWS)[:, None], rng.integers(0, COLUMNS, (ROWS, ONES))] = 1.0
    x_nd /= np.sqrt(x_nd.sum(axis=1, keepdims=True))
    y_n = (rng.random(ROWS) < 0.5).astype(float)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    with threadpool_limits(1):
        runs = [(step(x_nd, y_n, 0.0), blas(x_nd), step(x_nd, y_n, 4.0)) for _ in range(REPEATS)]
    calls = {name: min(run[1][name] for run in runs) for name in runs[0][1]}
    total, plain = sum(calls.values()), min(run[0][0] for run in runs)
    noisy, drawn = min(run[2][0] for run in runs), min(run[2][1] for run in runs)
    print("## A step of Pólya-Gamma regression\n")
    print(
        f"`dpvb.papers.polya_gamma`, {ROWS:,} rows of {COLUMNS:,} binary columns, one thread, CPU seconds, best of "
        f"{REPEATS} interleaved; from private rows to the new posterior.\n"
    )
    print("| part | CPU s | of the library calls | asked |\n|---|---|---|---|")
    for name, spent in calls.items():
        print(f"| {name} | {spent:.2f} | | |")
    print(f"| library calls together | {total:.2f} | 1 | |")
    print(f"| a step, no noise added | {plain:.2f} | {plain / total:.2f} | 1.4 |")
    print(f"| a private step without its noise | {noisy:.2f} | {noisy / total:.2f} | 1.4 |")
    print(f"| its noise, {COLUMNS * (COLUMNS + 1) // 2:,} draws | {drawn:.2f} | | |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"\nPeak memory {peak:,.0f} MiB, {before:,.0f} of them before the first step with the data in float64 "
        f"({x_nd.nbytes / 2**20:,.0f}); one {COLUMNS:,} x {COLUMNS:,} matrix is {COLUMNS**2 / 2**17:,.0f}."
    )


if __name__ == "__main__":
    sys.exit(main())
