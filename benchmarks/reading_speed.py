"""Speed of every reader against that of an earlier commit, in one run: `python -m benchmarks.reading_speed [commit]`.

Files of some megabytes are made once. Then processes with either code read them in turns, each file several times;
what counts is the least CPU time, over all turns, of opening a file and reading all its units. The earlier code is
taken from this repository's own history.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
EARLIER = "84cbcf9"
TURNS, REPEATS = 3, 2
DOCUMENTS, WORDS, ROWS = 12_000, 90, 60_000
TERMS = 2000


def make(folder: Path) -> None:
    """One file of each format."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.io
    from scipy import sparse

    rng = np.random.default_rng(0)
    words = ["".join(chr(ord("a") + int(digit)) for digit in f"{7919 * n:07d}") for n in range(TERMS)]
    (folder / "words").write_text("\n".join(words))
    texts = [" ".join(words[w] for w in rng.zipf(1.3, WORDS) % TERMS) for _ in range(DOCUMENTS)]
    texts = [text.replace(" ", ', "', 1) + '"' if n % 3 == 0 else text for n, text in enumerate(texts)]
    with (folder / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["n", "text"], *([n, text] for n, text in enumerate(texts))])
    (folder / "x.jsonl").write_text("".join(json.dumps({"n": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    (folder / "x.txt").write_text("".join(text + "\n" for text in texts))
    pq.write_table(pa.table({"text": texts}), folder / "x.parquet")
    for name in ("x.csv", "x.jsonl", "x.txt"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), 6))
    (folder / "texts").mkdir()
    for n, text in enumerate(texts[:4000]):
        (folder / "texts" / f"{n}.txt").write_text(text)
    counts = sparse.random_array((4 * DOCUMENTS, TERMS), density=0.01, format="csr", rng=rng)
    counts.data = np.ceil(9 * counts.data)
    sparse.save_npz(folder / "x.npz", counts)
    scipy.io.mmwrite(folder / "x.mtx", counts.astype(np.int64))
    scipy.io.mmwrite(folder / "reals.mtx", counts * 0.37)
    entry = sparse.coo_array(counts)
    lines = [f"{n + 1} {v + 1} {int(c)}" for n, v, c in zip(*entry.coords, entry.data, strict=True)]
    head = [str(counts.shape[0]), str(TERMS), str(len(lines))]
    (folder / "docword.x.txt").write_text("\n".join([*head, *lines, ""]))
    rows = [
        " ".join([str(b - a), *(f"{v}:{int(c)}" for v, c in zip(counts.indices[a:b], counts.data[a:b], strict=True))])
        for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)
    ]
    (folder / "x.ldac").write_text("\n".join([*rows, ""]))
    pixels = rng.integers(0, 256, (ROWS // 4, 784), dtype=np.uint8)
    (folder / "x-ubyte").write_bytes(b"\0\0\x08\x03" + struct.pack(">III", len(pixels), 28, 28) + pixels.tobytes())
    columns = {
        "age": rng.uniform(18, 90, ROWS).round(2),
        "pay": rng.lognormal(10, 1, ROWS).round(2),
        "work": rng.choice(["private", "state", "none of these"], ROWS),
        "ill": rng.choice(["yes", "no"], ROWS),
    }
    pq.write_table(pa.table(columns), folder / "table.parquet")
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*columns], *zip(*(c.tolist() for c in columns.values()), strict=True)])


def readers(folder: Path) -> dict[str, Callable[[], Any]]:
    """What reads each file, with either code."""
    from dpvb.cli.files import read_matrix
    from dpvb.data import BinaryMatrix, Categorical, Numeric, Schema, Table, Target, open_documents

    numbers = (Numeric("age", low=0, high=100), Numeric("pay", low=0, high=1e6, transform="log1p"))
    schema = Schema((*numbers, Categorical("work", ("private", "state"))), Target("ill", classes=("no", "yes")))
    found: dict[str, Callable[[], Any]] = {}
    texts = ("x.csv", "x.csv.gz", "x.jsonl", "x.jsonl.gz", "x.txt", "x.txt.gz", "x.parquet", "texts")
    for stream in (True, False):
        how = "streamed" if stream else "held"
        for name in texts:
            found[f"{name}, {how}"] = partial(open_documents, folder / name, stream=stream, vocabulary=folder / "words")
        for name in ("x.npz", "x.mtx", "reals.mtx", "docword.x.txt", "x.ldac"):
            width = TERMS if name == "x.ldac" else None
            found[f"{name}, {how}"] = partial(open_documents, folder / name, stream=stream, width=width)
        for name in ("table.csv", "table.parquet"):
            found[f"{name}, {how}"] = partial(_design, Table, folder / name, schema, stream)
    found["x-ubyte, held"] = lambda: BinaryMatrix(read_matrix(folder / "x-ubyte"), threshold=100.0)
    return found


def _design(table: Any, path: Path, schema: Any, stream: bool) -> Any:
    return table(path, schema, stream=stream).design()


def measure(folder: Path) -> dict[str, float]:
    """Least CPU time of opening and reading each file, in this process."""
    least = {}
    for name, read in readers(folder).items():
        seconds = []
        for _ in range(REPEATS + 1):  # The first one compiles.
            start = time.process_time()
            for chunk in read().chunks():
                _ = chunk.rows
            seconds.append(time.process_time() - start)
        least[name] = min(seconds[1:])
    return least


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder, tree = Path(made) / "files", Path(made) / "earlier"
        folder.mkdir()
        make(folder)
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=ROOT, check=True)
        best: dict[str, dict[str, float]] = {}
        try:
            for turn in range(TURNS):
                for code in (tree, ROOT) if turn % 2 else (ROOT, tree):
                    environment = {**os.environ, "PYTHONPATH": f"{code / 'src'}", "NUMBA_NUM_THREADS": "1"}
                    command = [sys.executable, "-m", "benchmarks.reading_speed", "--measure", str(folder)]
                    printed = subprocess.run(
                        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
                    )
                    for name, seconds in json.loads(printed.stdout.splitlines()[-1]).items():
                        own = best.setdefault(name, {})
                        own[str(code)] = min(seconds, own.get(str(code), seconds))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        print("## Reading\n")
        print(f"MB a CPU-second of opening a file and reading all units, commit {commit} and this one in turns.\n")
        print("| file | MB | earlier | now | ratio |\n|---|---|---|---|---|")
        for name, seconds in best.items():
            path = folder / name.split(",")[0]
            files = [path] if path.is_file() else [*path.iterdir()]
            size = sum(file.stat().st_size for file in files) / 1e6
            before, now = seconds[str(tree)], seconds[str(ROOT)]
            print(f"| {name} | {size:.1f} | {size / before:.1f} | {size / now:.1f} | {before / now:.2f} |")
        least = min(seconds[str(tree)] / seconds[str(ROOT)] for seconds in best.values())
        print(f"\nThe least ratio is {least:.2f} (asked: 0.8).")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(sys.argv[1] if sys.argv[1:] else EARLIER)
