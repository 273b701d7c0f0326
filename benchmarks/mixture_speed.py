"""A step of a Gaussian mixture beside scikit-learn's, and time and memory of a fit to a million rows."""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import dpvb


def far_apart(rng: np.random.Generator, number: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of twenty groups, in [-1, 1], and the groups' means."""
    mean_kd = rng.normal(0, 0.3, (20, width))
    x_nd = mean_kd[rng.integers(20, size=number)] + 0.12 * rng.standard_normal((number, width))
    return np.clip(x_nd, -1, 1), mean_kd


def a_pass(width: int, number: int) -> tuple[float, float]:
    """CPU microseconds a row of one step of 20 groups with covariances: a release, and an iteration of the peer."""
    from sklearn.mixture import GaussianMixture

    x_nd, mean_kd = far_apart(np.random.default_rng(0), number, width)
    ours, theirs = [], []
    for _ in range(5):
        clock: list[float] = []
        model = dpvb.GaussianMixture(20, low=-1, high=1, prune=False, epsilon=1.0, delta=1e-5, n_steps=4)
        model.fit(x_nd, run=dpvb.Run(progress=lambda step, plan, clock=clock: clock.append(time.process_time())))
        ours.append(min(np.diff(clock)[3:]))
        seconds = []
        for steps in (1, 3):
            begun, root = time.process_time(), np.tile(44.4 * np.eye(width), (20, 1, 1))
            given = {"weights_init": np.full(20, 0.05), "means_init": mean_kd, "precisions_init": root}
            GaussianMixture(20, tol=0, max_iter=steps, init_params="random", **given).fit(x_nd)
            seconds.append(time.process_time() - begun)
        theirs.append((seconds[1] - seconds[0]) / 2)
    return tuple(1e6 * min(part) / number for part in (ours, theirs))


def large(steps: int) -> tuple[float, float]:
    """Seconds, and peak memory in GiB, of a fit of 20 groups to a million rows of 30 numbers."""
    x_nd = far_apart(np.random.default_rng(0), 10**6, 30)[0]
    begun = time.perf_counter()
    dpvb.GaussianMixture(20, low=-1, high=1, epsilon=1.0, delta=1e-5, n_steps=steps).fit(x_nd)
    return time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Time of a step beside scikit-learn's, and a fit to a million rows."""
    print(
        "## Speed of mixtures\n\n| numbers | µs of CPU a row, ours | scikit-learn | times as fast |\n|---|---|---|---|"
    )
    for width in (2, 5, 10, 30):
        ours, theirs = a_pass(width, 100_000)
        print(f"| {width} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f} |", flush=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        seconds, memory = pool.submit(large, 5).result()
    print(
        "\n20 groups with covariances; CPU time of one step, best of five, one thread of BLAS (OMP_NUM_THREADS=1). A "
        f"fit to 1,000,000 rows × 30 numbers, 8 releases: {seconds:.0f} s, and {memory:.2f} GiB at most, rows included."
    )


if __name__ == "__main__":
    main()
