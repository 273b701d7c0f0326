"""Private naive Bayes: tables of mixed columns and of numbers, images, and texts; beside diffprivlib's GaussianNB.

Needs DPVB_DATA, the folder that holds adult/, clusters/, mnist/, newsgroups20/ and vocab/, and for diffprivlib its
environment (`make peers`).

    python -m benchmarks.naive_bayes [table ...]
"""

import csv
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from scipy import sparse

import dpvb
from benchmarks.mixtures import ADULT, DATA, DELTA, EPSILONS
from dpvb.data import Binary, Categorical, Numeric, Schema, Table
from dpvb.results.metrics import auc

PEER = Path(__file__).parents[1] / ".venv-peers-diffprivlib" / "bin" / "python"
SPLITS = {"adult": 5, "phoneme": 5, "banknote": 5, "mnist": 2, "newsgroups": 5}
#: What is compared, and what must be reached, by ε.
MEASURE = {"adult": "auc"}
MUST = {
    "adult": (0.90, 0.90, 0.905, 0.906),
    "mnist": (0.82, 0.825, 0.826, 0.827),
    "newsgroups": (0.31, 0.48, 0.59, 0.66),
}
#: Ranges and transforms of the numbers of adult.
NUMBERS = {
    "age": (17, 90, None),
    "fnlwgt": (1e4, 1.5e6, "log1p"),
    "number": (1, 16, None),
    "gain": (0, 99_999, "log1p"),
    "loss": (0, 4_500, "log1p"),
    "hours": (1, 99, None),
}
FILES = {"phoneme": "phoneme", "banknote": "banknote_authentication"}
RANGES = {"phoneme": [(-5, 5)] * 5, "banknote": [(-10, 10), (-20, 20), (-20, 20), (-10, 10)]}


@cache
def adult() -> tuple[dict, Schema]:
    """All fourteen columns; categories are those of the published lists, "?" is missing."""
    rows = []
    for name, first in (("adult.data", 0), ("adult.test", 1)):
        for row in list(csv.reader((DATA / "adult" / name).read_text().splitlines(), skipinitialspace=True))[first:]:
            if len(row) == len(ADULT):
                rows.append([cell.rstrip(".") for cell in row])
    cells = dict(zip(ADULT, np.array(rows, dtype=object).T, strict=True))
    columns = []
    for name in ADULT[:-1]:
        if name in NUMBERS:
            cells[name] = cells[name].astype(np.float64)
            columns.append(Numeric(name, *NUMBERS[name][:2], transform=NUMBERS[name][2]))
        else:
            columns.append(Categorical(name, tuple(sorted({*cells[name]} - {"?"})), other=False))
    return cells, Schema((*columns, Binary("income", ("<=50K", ">50K"))))


@cache
def numbers(name: str) -> tuple[dict, Schema]:
    """A matrix of numbers and a class of two."""
    x = np.loadtxt(DATA / "clusters" / f"{FILES[name]}.csv", delimiter=",")
    ends = RANGES[name]
    cells = {f"x{j}": x[:, j] for j in range(len(ends))} | {"class": x[:, -1].astype(int)}
    return cells, Schema((*(Numeric(f"x{j}", *own) for j, own in enumerate(ends)), Binary("class")))


@cache
def mnist() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Pixels above the middle, of all 70,000 images; words for their names."""

    def read(part: str, kind: str, skip: int) -> np.ndarray:
        with gzip.open(DATA / "mnist" / f"{part}-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8)[skip:]

    parts = ("train", "t10k")
    x = np.concatenate([read(part, "images-idx3", 16) for part in parts]).reshape(-1, 784)
    words = ["pixel" + "".join("abcdefghij"[int(digit)] for digit in f"{place:03}") for place in range(784)]
    return (x > 127).astype(np.float64), np.concatenate([read(part, "labels-idx1", 8) for part in parts]), words


@cache
def newsgroups() -> tuple[sparse.csr_array, np.ndarray, list[str]]:
    """Counts of the words of a list, and the group of each post."""
    with gzip.open(DATA / "newsgroups20" / "labels.csv.gz", "rt") as file:
        y = np.array([row["group"] for row in csv.DictReader(file)])
    counts = sparse.csr_array(sparse.load_npz(DATA / "newsgroups20" / "bow.npz"))
    return counts, y, (DATA / "vocab" / "dictnostops.txt").read_text().split()


def parts(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the training rows and of the test rows."""
    order = np.random.default_rng(1000 + seed).permutation(number)
    return order[number // 5 :], order[: number // 5]


def measured(name: str, seed: int, epsilon: float, **options) -> dict[str, float]:
    """Measures on the held-out fifth of a fit to the others."""
    given = {"epsilon": epsilon, "delta": DELTA, **options}
    if name in ("mnist", "newsgroups"):
        x, y, words = mnist() if name == "mnist" else newsgroups()
        train, test = parts(len(y), seed)
        how = {"clip_norm": 10.0, "lengths": True} if name == "mnist" else {}
        model = dpvb.NaiveBayes(vocabulary=words, classes=np.unique(y).tolist(), **how, **given).fit(x[train], y[train])
        return model.evaluate(x[test], y[test], public=True)
    cells, schema = adult() if name == "adult" else numbers(name)
    train, test = parts(len(cells[schema.columns[-1].name]), seed)
    model = dpvb.NaiveBayes(response=schema.columns[-1].name, **given)
    model.fit(Table({own: values[train] for own, values in cells.items()}, schema))
    return model.evaluate({own: values[test] for own, values in cells.items()}, public=True)


def peers(chosen: list[str]) -> dict[tuple[str, float], float]:
    """diffprivlib's measures, a mean over splits; none where its environment is not there."""
    if not PEER.exists():
        return {}
    found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        labels = {}
        for name in (one for one in chosen if one in RANGES or one in ("adult", "mnist")):
            for seed in range(SPLITS[name]):
                if name == "mnist":
                    x, y, low, high = *mnist()[:2], 0.0, 1.0
                else:
                    cells, schema = adult() if name == "adult" else numbers(name)
                    own = [column for column in schema.columns if isinstance(column, Numeric)]
                    x, y = np.column_stack([cells[column.name] for column in own]), cells[schema.columns[-1].name]
                    y = (y == ">50K").astype(int) if name == "adult" else y
                    low, high = (np.array([getattr(column, end) for column in own], float) for end in ("low", "high"))
                train, test = parts(len(y), seed)
                rows = {"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test], "low": low, "high": high}
                np.savez(Path(folder) / f"{name}-{seed}.npz", **rows)
                labels[name, seed] = y[test][:3000]
        script = Path(__file__).parent / "peers" / "naive_bayes_with_diffprivlib.py"
        call = [str(PEER), str(script), folder, *map(str, EPSILONS)]
        said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    for one in map(json.loads, said.splitlines()):
        name, seed = one["table"], one["split"]
        value = auc(labels[name, seed].astype(float), np.array(one["score"])) if name == "adult" else one["accuracy"]
        found[name, one["epsilon"]].append(value)
    return {cell: float(np.mean(values)) for cell, values in found.items()}


def lines(name: str, peer: dict[tuple[str, float], float]) -> Iterator[tuple[str, list[str]]]:
    """What is said of a table, from ε = .5 to none."""
    for how in ("bins", "gaussian") if name not in ("mnist", "newsgroups") else ("bins",):
        found = {
            epsilon: [measured(name, seed, epsilon, numbers=how) for seed in range(SPLITS[name])]
            for epsilon in (*EPSILONS, math.inf)
        }
        means = {e: {key: np.mean([one[key] for one in own]) for key in own[0]} for e, own in found.items()}
        measure, label = MEASURE.get(name, "accuracy"), "" if name in ("mnist", "newsgroups") else f", {how}"
        least = MUST.get(name, ()) if how == "bins" else ()
        texts = [f"{mean[measure]:.4f}" for mean in means.values()]
        short = [place < len(least) and float(one) < least[place] for place, one in enumerate(texts)]
        yield f"{measure}{label}", [f"**{one}**" if low else one for one, low in zip(texts, short, strict=True)]
        yield f"log-likelihood{label}", [f"{one['log_likelihood']:.3f}" for one in means.values()]
    if name in MUST:
        yield "to reach", [*(f"{value:.3f}" for value in MUST[name]), ""]
    if (name, 1.0) in peer:
        yield "diffprivlib GaussianNB", [*(f"{peer[name, epsilon]:.4f}" for epsilon in EPSILONS), ""]


def main() -> None:
    chosen = sys.argv[1:] or list(SPLITS)
    print("## Naive Bayes\n\nOne release; AUC of adult, accuracy of the others, on held-out rows.\n")
    print("| table | | ε = .5 | 1 | 2 | 4 | no privacy |\n|---|---|---|---|---|---|---|")
    peer, begun = peers(chosen), time.process_time()
    for name in chosen:
        for place, (label, texts) in enumerate(lines(name, peer)):
            print(f"| {'' if place else name} | {label} | {' | '.join(texts)} |", flush=True)
    print(
        f"\nδ = {DELTA:g}; means over splits: {', '.join(f'{name} {SPLITS[name]}' for name in chosen)}; four fifths of "
        "the rows are fitted. Bold: below what is to be reached. diffprivlib is ε-differentially private, replace one, "
        "takes numbers alone, and is measured on 3,000 test rows; it gets the same public ranges. MNIST: pixels above "
        f"the middle, `clip_norm=10, lengths=True`. All fits: {time.process_time() - begun:.0f} s of CPU."
    )


if __name__ == "__main__":
    main()
