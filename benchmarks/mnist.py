"""Sigmoid belief networks of handwritten digits, and what needs no network.

    python -m benchmarks.mnist             runs what is missing, then prints the table (hours on two cores)
    python -m benchmarks.mnist --cached    prints the table of the runs made so far

Every run is a line of benchmarks/mnist_runs.jsonl; so an interrupted benchmark goes on where it was. Images come from
$DPVB_DATA/mnist (the four original idx files, gzipped). All settings were chosen on these very images: they are public
arguments of the fits, not accounted, and slightly optimistic.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

import dpvb

FOLDER = Path(__file__).parent
RUNS = FOLDER / "mnist_runs.jsonl"
PICTURE = FOLDER / "mnist_weights.png"
N, K, DELTA = 60_000, 100, 1e-4
EPSILONS = (0.4, 1.0, 1.5, 4.8)
# Rounds over the hidden units of a test image.
SWEEPS = 15
# Few large steps reconstruct best; a little less accurate, more and smaller batches give the better bound.
FEW = {"n_steps": 14, "learning_decay": 0.25, "ridge": 1.0, "n_sweeps": 2}
FEW_AND_NOISY = {"n_steps": 8, "learning_decay": 0.5, "ridge": 2.0, "n_sweeps": 3}
MANY = {"n_steps": 20, "sampling_prob": 0.25, "learning_decay": 0.25, "ridge": 2.0, "n_sweeps": 3}
MANY_AND_NOISY = {**MANY, "learning_decay": 0.5}
ASKED = {0.4: ("0.955, aim 0.970", "-145, aim -129"), 1.0: ("0.962, aim 0.972", "-135, aim -128")}
ASKED |= {1.5: ("0.962, aim 0.972", ""), 4.8: ("0.965, aim 0.973", "")}


def images(part: str) -> np.ndarray:
    """Grey levels, (rows, 784)."""
    path = Path(os.environ["DPVB_DATA"]) / "mnist" / f"{part}-images-idx3-ubyte.gz"
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)[16:].reshape(-1, 784)


def runs() -> Iterator[dict[str, Any]]:
    """All runs of the table, the first seeds of every row first."""
    for seed in range(3):
        for epsilon in EPSILONS:
            accuracy, bound = (FEW_AND_NOISY, MANY_AND_NOISY) if epsilon < 0.7 else (FEW, MANY)
            for goal, options in (("accuracy", accuracy), ("bound", bound)):
                given = {"epsilon": epsilon, **options}
                yield {"row": f"ours, ε = {epsilon}, for {goal}", "options": given, "threshold": 0, "seed": seed}
        if seed == 0:
            inf = {"epsilon": "inf", **FEW}
            yield {"row": "ours without privacy", "options": inf, "threshold": 0, "seed": seed}
            for epsilon in (0.4, 1.0):
                given = {"epsilon": epsilon, **(FEW_AND_NOISY if epsilon < 0.7 else FEW)}
                yield {"row": f"ours, ε = {epsilon}, for accuracy", "options": given, "threshold": 127, "seed": seed}


def key(run: dict[str, Any]) -> str:
    return json.dumps([run["options"], run["threshold"], run["seed"]], sort_keys=True)


def done() -> dict[str, dict[str, Any]]:
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    return {key(run): run for run in map(json.loads, lines)}


def perform(run: dict[str, Any], train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Fit, and measure on all test images."""
    options = {**run["options"], "epsilon": float(run["options"]["epsilon"])}
    given = {"delta": DELTA, "n_units": N, "random_state": run["seed"], **options}
    begin = time.process_time()
    model = dpvb.SigmoidBeliefNetwork(K, threshold=run["threshold"], **given).fit(train)
    cpu = time.process_time() - begin
    right = (model.reconstruct(test) > 0.5) == (test > run["threshold"])
    statement = model.privacy_
    if run["row"] == "ours, ε = 1.0, for accuracy" and run["threshold"] == run["seed"] == 0:
        model.plot(PICTURE, overwrite=True)
    return {
        **run,
        "accuracy": float(right.mean()),
        "bound": model.score(test, public=True),
        "cpu": round(cpu, 1),
        "spent": statement.epsilon if math.isfinite(statement.epsilon) else "inf",
    }


def trivial(train: np.ndarray, test: np.ndarray, threshold: int) -> list[tuple[str, float, float | None]]:
    """What predicts the same for every image."""
    mean_j = np.clip((train > threshold).mean(axis=0), 0.5 / N, 1 - 0.5 / N)
    y_nj = test > threshold
    likelihood = np.where(y_nj, np.log(mean_j), np.log1p(-mean_j)).sum(axis=1).mean()
    return [
        ("mean image", float(((mean_j > 0.5) == y_nj).mean()), float(likelihood)),
        ("always 0", float((~y_nj).mean()), None),
    ]


def spread(values: list[float], digits: int) -> str:
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text


def table(train: np.ndarray, test: np.ndarray) -> None:
    """Print what there is."""
    rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
    cached = done()
    for run in runs():
        if key(run) in cached:
            rows.setdefault((run["threshold"], run["row"]), []).append(cached[key(run)])
    print("## Handwritten digits\n")
    print(
        "K = 100, δ = 1e-4, 60,000 training and 10,000 test images, add/remove, ε of ours by PLD. Accuracy: pixels of"
    )
    print("the reconstruction; bound: nats an image, held out. Mean ± standard deviation over seeds.\n")
    for threshold in (0, 127):
        print(f"| pixel > {threshold} | ε | accuracy | asked | bound | asked | seeds | CPU-s |")
        print("|---|---|---|---|---|---|---|---|")
        for (at, name), found in sorted(rows.items()):
            if at != threshold:
                continue
            options = found[0]["options"]
            asked = ("", "")
            spent = found[0]["spent"]
            shown = "∞" if spent == "inf" else f"{spent:.3f}"
            if threshold == 0 and options["epsilon"] in ASKED:
                asked = ASKED[options["epsilon"]]
            accuracy, bound = ([run[what] for run in found] for what in ("accuracy", "bound"))
            columns = [name, shown, spread(accuracy, 4), asked[0], spread(bound, 1), asked[1]]
            columns += [str(len(found)), f"{mean(run['cpu'] for run in found):.0f}"]
            print("| " + " | ".join(columns) + " |")
        for name, accuracy, likelihood in trivial(train, test, threshold):
            shown = "-" if likelihood is None else f"{likelihood:.1f}"
            print(f"| {name} | 0 | {accuracy:.4f} | | {shown} | | - | - |")
        print()
    settings = {"accuracy, ε < 0.7": FEW_AND_NOISY, "accuracy": FEW, "bound, ε < 0.7": MANY_AND_NOISY, "bound": MANY}
    for name, options in settings.items():
        print(f"* {name}: " + ", ".join(f"{k} = {v:.4g}" for k, v in options.items()))
    print(f"\n![Weights]({PICTURE.name})")


def main() -> None:
    train, test = images("train"), images("t10k")
    if "--cached" not in sys.argv:
        for run in runs():
            if key(run) not in done():
                result = perform(run, train, test)
                with RUNS.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(json.dumps(result), file=sys.stderr, flush=True)
    table(train, test)


if __name__ == "__main__":
    main()
