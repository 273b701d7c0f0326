"""CPU seconds of a step from a stream, over those of a step from memory: `python -m benchmarks streamed_steps [rows]`.

A step is the work of a fit between two reports of its progress, on one thread. The first step includes the plan; from a
stream it parses the data and writes the rows to a temporary file. The later step is the median of the third and all
following ones. The released numbers must be the same, bit for bit, in every form of the data.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target, open_documents

ROWS, DOCUMENTS, TERMS, TOKENS, STEPS = 100_000, 20_000, 10_000, 100, 10
# So many rows that most of them are not kept clean from step to step.
MANY = 2_000_000
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
BUDGET: dict[str, Any] = {"epsilon": float("inf"), "delta": 1e-6, "n_steps": STEPS, "random_state": 0}
LETTERS = {"job": "abcde", "area": "abcdefgh"}
TITLES = {
    "numbers": "Logistic, 20 numbers",
    "mixed": "Logistic, 8 numbers, 2 categories",
    "mixture": "Mixture of 4, 8 numbers, 2 categories",
}
MODELS: dict[str, Callable[[], Any]] = {
    "numbers": lambda: dpvb.LogisticRegression(**BUDGET),
    "mixed": lambda: dpvb.LogisticRegression(**BUDGET),
    "mixture": lambda: dpvb.Mixture(4, **BUDGET),
}


class Measured(NamedTuple):
    """CPU seconds of the first step, the median from the third one on, and a digest of the fitted numbers."""

    first: float
    later: float
    digest: str


def measured(fit: Callable[[Any], Any], numbers: Callable[[Any], Any]) -> Measured:
    """Fit once, and report CPU seconds of the steps."""
    seconds = [time.process_time()]
    model = fit(dpvb.Run(progress=lambda step, plan: seconds.append(time.process_time())))
    steps = np.diff(seconds)
    return Measured(steps[0], float(np.median(steps[2:])), hashlib.sha256(numbers(model).tobytes()).hexdigest())


def written(folder: Path, columns: dict[str, Any]) -> dict[str, Any]:
    """A table in every form; many rows in those that are quickly written."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table(columns)
    pq.write_table(table, folder / "x.parquet")
    if len(table) >= MANY:
        return {"memory": (columns, None), "Parquet, `stream=True`": (folder / "x.parquet", True)}
    pyarrow.csv.write_csv(table, folder / "x.csv")
    (folder / "parts").mkdir()
    half = len(table) // 2
    for place, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / "parts" / f"{place}.parquet")
    paths = {"CSV": folder / "x.csv", "Parquet": folder / "x.parquet"}
    streams = {f"{name}, `stream=True`": (path, True) for name, path in paths.items()}
    return {"memory": (columns, None), **streams, "folder of 2 Parquet files": (folder / "parts", None)}


def tables(folder: Path, rows: int) -> None:
    """Print the lines of tables."""
    rng = np.random.default_rng(0)
    for place, (number, title) in enumerate([(rows, "numbers"), (rows, "mixed"), (rows, "mixture"), (MANY, "numbers")]):
        own = folder / str(place)
        own.mkdir()
        names = [f"x{d}" for d in range(20 if title == "numbers" else 8)]
        cells: dict[str, Any] = {name: rng.uniform(0, 1, number).round(6) for name in names}
        answer_n = np.where(cells["x0"] + rng.uniform(0, 1, number) > 1, "yes", "no")
        columns: tuple[Any, ...] = tuple(Numeric(name, 0, 1) for name in names)
        if title != "numbers":
            cells |= {name: rng.choice([*letters], number) for name, letters in LETTERS.items()}
            columns += tuple(Categorical(name, tuple(letters)) for name, letters in LETTERS.items())
        schema = Schema(columns)
        if title != "mixture":
            schema, cells = Schema(columns, Target("y", classes=("no", "yes"))), {**cells, "y": answer_n}
        found = {}
        for name, (data, stream) in written(own, cells).items():
            table = Table(data, schema, stream=stream)
            fitted = lambda run, table=table, title=title: MODELS[title]().fit(table, run=run)  # noqa: E731
            found[name] = measured(fitted, attrgetter("means_" if title == "mixture" else "coef_"))
        lines(TITLES[title], number, found)


def documents(folder: Path, number: int) -> None:
    """Print the lines of texts."""
    rng = np.random.default_rng(0)
    words = ["".join(chr(ord("a") + int(digit)) for digit in f"{n:05d}") for n in range(TERMS)]
    with (folder / "x.txt").open("w") as file:
        for _ in range(number):
            file.write(" ".join(words[w] for w in rng.integers(0, TERMS, TOKENS)) + "\n")
    found = {}
    for name, stream in (("memory", False), ("text, `stream=True`", True)):
        source = open_documents(folder / "x.txt", vocabulary=words, stream=stream)
        fitted = lambda run, source=source: dpvb.LDA(50, **BUDGET).fit(source, run=run)  # noqa: E731
        found[name] = measured(fitted, attrgetter("components_"))
    lines(f"LDA, K = 50, V = {TERMS:,}", number, found)


def lines(title: str, rows: int, found: dict[str, Measured]) -> None:
    """Print one line for each form of the data."""
    memory = found["memory"]
    for name, one in found.items():
        same = "equal" if one.digest == memory.digest else "DIFFERENT"
        cells = (title, f"{rows:,}", name, f"{one.first:.3f}", f"{one.later:.3f}", f"{one.later / memory.later:.2f}")
        print(f"| {' | '.join((*cells, same))} |", flush=True)


def main() -> None:
    if os.environ.get("NUMBA_NUM_THREADS") != "1":
        sys.exit(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.streamed_steps", *sys.argv[1:]], env=os.environ | ONE
            ).returncode
        )
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    warnings.simplefilter("ignore")
    print("## Streamed steps\n")
    print("CPU seconds of a step on one thread (asked: at most 1.5 times a step from memory, after the first pass).\n")
    print("| model | rows | data | first step | later step | times memory | bits |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        tables(Path(made), rows)
        documents(Path(made), rows * DOCUMENTS // ROWS)


if __name__ == "__main__":
    main()
