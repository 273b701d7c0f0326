"""Peak memory of a private linear regression on a matrix that is held in memory, the caller's own numbers included."""

import argparse
import resource
import time
import warnings

import numpy as np

import dpvb


def peak() -> float:
    """GiB, of the process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    x_nd = rng.standard_normal((given.rows, given.columns), dtype=np.float32)
    y_n = x_nd[:, :5].sum(axis=1) + rng.standard_normal(given.rows, dtype=np.float32)
    own, begun = (x_nd.nbytes + y_n.nbytes) / 2**30, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpvb.LinearRegression(low=-6, high=6, y_range=(-20, 20), epsilon=1.0, delta=1e-6).fit(x_nd, y_n)
    seconds = time.process_time() - begun
    assert np.abs(model.predict(np.eye(given.columns)[:5]) - 1.0).max() < 0.1
    print("## Memory of rows\n")
    print((__doc__ or "").strip() + "\n")
    print("| rows | columns | releases | CPU s | GiB of the caller's numbers | peak GiB | asked |")
    print("|---|---|---|---|---|---|---|")
    releases = sum(release.event.n_steps for release in model.privacy_.releases)
    cells = (f"{given.rows:,}", given.columns, releases, f"{seconds:.0f}", f"{own:.2f}", f"{peak():.2f}", "under 2")
    print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
