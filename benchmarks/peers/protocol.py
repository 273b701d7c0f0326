"""What every method of the logistic comparison shares: data, splits, scores, and results that are computed once.

Imported by scripts in environments of their own, so it needs NumPy and SciPy alone.
"""

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.special import expit

#: One JSON object a line: a "header" for each method's environment, then one line a fit.
RESULTS = Path(__file__).parent / "results.jsonl"
#: Noise multipliers by our accountant: {"adult": {"0.2": σ, ...}, ...}.
NOISE = Path(__file__).parent / "noise.json"
#: Data set → file of its features.
TABLES = {"adult": "adult", "diab30": "diab", "diabany": "diab", "stroke": "stroke", "icd": "icd"}
SPLITS = range(5)
EPSILONS = (0.2, 0.5, 1.0, 2.0, 4.0)
DELTA = 1e-5
EPOCHS = 20
#: Probabilities are clipped to [LEAST, 1 - LEAST], so that no single row decides a mean.
LEAST = 1e-7


def batch_size(data: str) -> int:
    """Expected batch size of every method that samples."""
    return 256 if data == "stroke" else 1_024


def rate(data: str, rows: int) -> tuple[float, int]:
    """Sampling probability and number of steps of 20 epochs."""
    batches = -(-rows // batch_size(data))
    return 1 / batches, EPOCHS * batches


def load(data: str):
    """(X, y) of a data set: CSR rows of norm at most 1 whose column 0 is a positive constant, and labels 0 and 1."""
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds regression/")
    folder = Path(os.environ["DPVB_DATA"]) / "regression"
    return sparse.csr_matrix(sparse.load_npz(folder / f"{TABLES[data]}.npz")), np.load(folder / f"{data}_y.npy")


def split(rows: int, seed: int):
    """(train, test) row numbers: a fifth is held out."""
    order = np.random.default_rng(1000 + seed).permutation(rows)
    return order[rows // 5 :], order[: rows // 5]


def auc(y_n, score_n) -> float:
    """Area under the ROC curve; ties count half."""
    _, group_n, count_g = np.unique(score_n, return_inverse=True, return_counts=True)
    rank_g = np.cumsum(count_g) - (count_g - 1) / 2
    positives = int(np.sum(y_n))
    excess = rank_g[group_n][y_n == 1].sum() - positives * (positives + 1) / 2
    return float(excess / (positives * (len(y_n) - positives)))


def scores(y_n, psi_n, p_n=None) -> dict[str, float]:
    """AUC, mean log-likelihood and accuracy on held-out rows of log odds ψ and probabilities p, σ(ψ) by default."""
    psi_n = np.asarray(psi_n, dtype=np.float64)
    p_n = np.clip(expit(psi_n) if p_n is None else p_n, LEAST, 1 - LEAST)
    return {
        "auc": auc(y_n, psi_n),
        "log_likelihood": float(np.mean(np.log(np.where(y_n == 1, p_n, 1 - p_n)))),
        "accuracy": float(np.mean((psi_n > 0) == (y_n == 1))),
    }


def machine() -> str:
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return f"{model.group(1) if model else platform.machine()}, Python {platform.python_version()}"


def read(path: Path = RESULTS) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(line: dict, path: Path = RESULTS) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def missing(method: str, sets: list[str], epsilons: tuple[float | None, ...]) -> Iterator[tuple]:
    """(data, split, ε) without a result yet; the first splits of all data come first."""
    done = {(r["data"], r["split"], r["epsilon"]) for r in read() if r.get("method") == method}
    cells = [(data, seed, epsilon) for seed in SPLITS for data in sets for epsilon in epsilons]
    return (cell for cell in cells if cell not in done)


def run(
    method: str,
    sets: list[str],
    packages: list[str],
    settings: str,
    fit: Callable[..., np.ndarray],
    epsilons: tuple[float | None, ...] = EPSILONS,
) -> None:
    """Fit whatever is missing and append it to the results.

    Args:
        method: name in the results.
        sets: data sets.
        packages: distributions whose versions the header names.
        settings: what was fixed, in words; printed under the table.
        fit: fit(data, X, y, ε, seed) -> weights of the columns of X.
        epsilons: ε to run at; None for no privacy.
    """
    header = {
        "header": method,
        "settings": settings,
        "versions": {name: version(name) for name in packages},
        "machine": machine(),
    }
    if not any(r.get("header") == method for r in read()):
        append(header)
    loaded: tuple[str, object, np.ndarray] | None = None
    for data, seed, epsilon in missing(method, sets, epsilons):
        if loaded is None or loaded[0] != data:
            loaded = (data, *load(data))
        _, X, y = loaded
        train, test = split(len(y), seed)
        X_train, y_train = X[train], y[train]
        begun = time.process_time()
        weights = np.asarray(fit(data, X_train, y_train, epsilon, seed), dtype=np.float64).ravel()
        seconds = time.process_time() - begun
        cell = {"data": data, "split": seed, "epsilon": epsilon, "method": method}
        result = {name: round(value, 7) for name, value in scores(y[test], X[test] @ weights).items()}
        append({**cell, **result, "seconds": round(seconds, 2)})
        print(cell, result, f"{seconds:.1f} s", flush=True)
