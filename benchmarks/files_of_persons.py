"""A logistic regression of persons whose rows are in 30 Parquet files, and of the merged file.

Each fit is a process of its own: its processor time includes reading, its peak memory is that of the whole process. The
lake has 20 numeric columns, and persons return: most of them have rows in several files. The fit makes 20 steps, each a
pass over all rows. Without noise (epsilon = inf) all fits must have the same bits.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpvb

COLUMNS, FILES, STEPS = 20, 30, 20


def make(folder: Path, rows: int, persons: int) -> None:
    """Write the lake, and the merged file."""
    rng = np.random.default_rng(0)
    who = rng.integers(0, persons, rows)
    x_nd = rng.uniform(0, 1, (rows, COLUMNS))
    y = rng.random(rows) < 1 / (1 + np.exp(-(x_nd[:, :4] @ [2.0, -2.0, 1.0, -1.0])))
    columns = {f"x{number}": x_nd[:, number] for number in range(COLUMNS)}
    table = pa.table({"patient": [f"patient-{number:06d}" for number in who], "y": y.astype(np.int64), **columns})
    pq.write_table(table, folder / "merged.parquet", row_group_size=2**16)
    (folder / "days").mkdir()
    for day in range(FILES):
        first, stop = rows * day // FILES, rows * (day + 1) // FILES
        pq.write_table(table.slice(first, stop - first), folder / "days" / f"{day:02d}.parquet")


def fit(data: Path, stream: bool) -> None:
    """Fit in this process; print processor time, peak memory and the coefficients' bits."""
    names = [f"x{number}" for number in range(COLUMNS)]
    schema = dpvb.Schema([dpvb.data.Numeric(name, 0, 1) for name in names], dpvb.data.Target("y"), group="patient")
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-6, n_steps=STEPS, random_state=0)
        model.fit(dpvb.Table(data, schema, stream=stream))
    seconds = time.process_time() - begun
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, model.coef_.tobytes().hex())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=420_000)
    parser.add_argument("--persons", type=int, default=72_000)
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--stream", action="store_true")
    given = parser.parse_args()
    if given.fit is not None:
        fit(given.fit, given.stream)
        return
    print("## Persons in several files\n")
    print((__doc__ or "").strip() + "\n")
    print("| data | rows | persons | CPU s | peak MB | bits of the merged file |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, given.rows, given.persons)
        merged = None
        for name, data, more in (
            ("merged file, held in memory", "merged.parquet", []),
            ("merged file, `stream=True`", "merged.parquet", ["--stream"]),
            (f"folder of {FILES} files", "days", []),
        ):
            call = [sys.executable, "-P", __file__, "--fit", str(folder / data), *more]
            seconds, peak, bits = subprocess.run(call, check=True, capture_output=True, text=True).stdout.split()
            merged = bits if merged is None else merged
            same = "equal" if bits == merged else "DIFFERENT"
            cells = (name, f"{given.rows:,}", f"{given.persons:,}", f"{float(seconds):.0f}", f"{float(peak):.0f}", same)
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
