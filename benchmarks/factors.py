"""Factor analysis and principal components: held-out log-likelihood and captured variance, by ε, beside peers.

Rows with N(0, .05²) on every column as part of the data. The peers are Analyze Gauss (a few lines here, with the mean
and the radius given free), expectation maximisation with noise in every round, and diffprivlib's PCA in an environment
of its own (`make peers` says how they are made).
"""

import gzip
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import multivariate_normal

import dpvb
from dpvb.accounting import gaussian
from dpvb.papers.private_em import PrivateEM

EPSILONS, DELTA = (0.5, 1.0, 2.0, 4.0), 1e-5
PEER = Path(__file__).parents[1] / ".venv-peers-diffprivlib" / "bin" / "python"
ADULT = "age workclass weight education education_num marital occupation relationship race sex gain loss hours country"


def mu_of(epsilon: float) -> float:
    """μ of the Gaussian mechanism that meets (ε, δ)."""
    low, high = 1e-4, 10.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian.delta(middle, epsilon) < DELTA else (low, middle)
    return low


def images(folder: Path, side: int, number: int) -> np.ndarray:
    with gzip.open(folder / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8)[16:].reshape(-1, 28, 28)[:number] / 255.0
    step = 28 // side
    return pixels.reshape(number, side, step, side, step).mean(axis=(2, 4)).reshape(number, -1)


def adults(folder: Path) -> np.ndarray:
    names = [*ADULT.split(), "income"]
    given = {"header": None, "names": names, "skipinitialspace": True}
    paths = [folder / "adult" / f"adult.{part}" for part in ("data", "test")]
    frame = pd.concat([pd.read_csv(paths[0], **given), pd.read_csv(paths[1], skiprows=1, **given)])
    numbers = [
        (frame.age - 17) / 73,
        (frame.hours - 1) / 98,
        np.log1p(frame.gain) / math.log1p(99_999),
        np.log1p(frame.loss) / math.log1p(4_500),
    ]
    frame["income"] = frame.income.str.rstrip(".")
    words = ["workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country", "income"]
    return np.column_stack([*numbers, *(0.7 * pd.get_dummies(frame[word]).to_numpy(float) for word in words)])


def split(x_nd: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    noisy_nd = x_nd + np.random.default_rng(0).normal(0, 0.05, x_nd.shape)
    place = np.random.default_rng(1000 + seed).permutation(len(x_nd))
    return noisy_nd[place[len(place) // 5 :]], noisy_nd[place[: len(place) // 5]]


def captured(basis_dk: np.ndarray, train: np.ndarray, test: np.ndarray, number: int | None = None) -> float:
    """Variance of test rows along directions over that along as many, or `number`, of the best of the train rows."""
    covariance = np.cov(test.T)
    best = np.linalg.eigh(np.cov(train.T))[1][:, -(number or basis_dk.shape[1]) :]
    return float(np.trace(basis_dk.T @ covariance @ basis_dk) / np.trace(best.T @ covariance @ best))


def analyze_gauss(train: np.ndarray, k: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Dwork et al. 2014: symmetric noise on the second moments of rows of norm 1; mean and 90 % radius given free."""
    centred = train - train.mean(axis=0)
    length = np.linalg.norm(centred, axis=1)
    radius = np.quantile(length, 0.9)
    centred *= np.minimum(1.0, radius / length)[:, None] / radius
    noise = np.triu(rng.standard_normal((train.shape[1],) * 2)) / mu_of(epsilon)
    return np.linalg.eigh(centred.T @ centred + noise + np.triu(noise, 1).T)[1][:, -k:]


def cell(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f}"


def diffprivlib(pairs: list[tuple[np.ndarray, np.ndarray]], k: int) -> str:
    if not PEER.exists():
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n}.npz" for n in range(len(pairs))]
        for path, (train, test) in zip(paths, pairs, strict=True):
            np.savez(path, train=train, test=test)
        script = Path(__file__).parent / "peers" / "with_diffprivlib_pca.py"
        command = [PEER, script, str(k), ",".join(map(str, EPSILONS)), "3", *paths]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = np.array([line.split() for line in printed.splitlines()], dtype=float)
    return " | ".join(f"{found[found[:, 0] == epsilon, 1].mean():.3f}" for epsilon in EPSILONS)


def with_noise_in_every_round(
    train: np.ndarray, test: np.ndarray, k: int, epsilon: float, max_row_norm: float, seed: int
) -> tuple[np.ndarray, float]:
    """Loadings of the papers' expectation maximisation, and the mean log-density of the test rows."""
    model = dpvb.PrivateModel(PrivateEM(train.shape[1], k), max_row_norm=max_row_norm, epsilon=epsilon, delta=DELTA)
    q = model.set_params(random_state=seed).fit(train).q_
    covariance_dd = max_row_norm**2 * (q.loading_dk @ q.loading_dk.T + np.diag(q.unique_d))
    density_n = multivariate_normal(max_row_norm * q.mean_d, covariance_dd).logpdf(test)
    return q.loading_dk, float(density_n.mean())


def table(name: str, x_nd: np.ndarray, k: int, max_row_norm: float, seeds: range, *, peer: bool = False) -> None:
    pairs = [split(x_nd, seed) for seed in seeds]
    train = pairs[0][0]
    exact = {"max_row_norm": max_row_norm, "delta": DELTA, "epsilon": math.inf, "estimate": "map"}
    without = [
        cell([kind(k, **exact).fit(one).score(test, public=True) for one, test in pairs], 2)
        for kind in (dpvb.FactorAnalysis, dpvb.PCA)
    ]
    print(f"\n### {name}: {len(train):,} rows, d = {train.shape[1]}, K = {k}, splits: {len(seeds)}\n")
    print(f"Without privacy, K = {k}: factor analysis {without[0]}, probabilistic PCA {without[1]}.\n")
    print("| | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |\n|---|" + "---|" * len(EPSILONS))
    given = {"max_row_norm": max_row_norm, "delta": DELTA}
    rows: dict[str, list[str]] = {}
    rng = np.random.default_rng(0)
    for epsilon in EPSILONS:
        found: dict[str, list[float]] = {}
        for n, (train, test) in enumerate(pairs):
            factors = dpvb.FactorAnalysis(epsilon=epsilon, **given).fit(train)
            found.setdefault("log-likelihood: FactorAnalysis, number of factors found", []).append(
                factors.score(test, public=True)
            )
            few = dpvb.FactorAnalysis(k, epsilon=epsilon, **given).fit(train)
            found.setdefault(f"log-likelihood: FactorAnalysis, K = {k}", []).append(few.score(test, public=True))
            loading_dk, likelihood = with_noise_in_every_round(train, test, k, epsilon, max_row_norm, n)
            found.setdefault("log-likelihood: EM with noise in every round", []).append(likelihood)
            components = dpvb.PCA(k, epsilon=epsilon, **given).fit(train)
            found.setdefault("captured variance: PCA", []).append(captured(components.components_.T, train, test))
            free = analyze_gauss(train, k, epsilon, rng)
            found.setdefault("captured variance: Analyze Gauss, mean and 90 % radius free", []).append(
                captured(free, train, test)
            )
            turned = np.linalg.qr(loading_dk)[0]
            found.setdefault("captured variance: EM with noise in every round", []).append(
                captured(turned, train, test)
            )
        for method, values in found.items():
            rows.setdefault(method, []).append(
                cell(values, 3 if "variance" in method or abs(np.mean(values)) < 1 else 2)
            )
    for method, cells in rows.items():
        print(f"| {method} | {' | '.join(cells)} |")
    if peer:
        print(f"| captured variance: diffprivlib PCA (δ = 0, mean and radius free) | {diffprivlib(pairs, k)} |")
    sys.stdout.flush()


def large(x_nd: np.ndarray, k: int, max_row_norm: float) -> None:
    train, test = split(x_nd, 0)
    print(f"\n### MNIST 28²: {len(train):,} rows, d = {train.shape[1]}, K = {k}, one split\n")
    print("| ε | PCA | CPU-s | Analyze Gauss, mean and 90 % radius free |")
    print("|---|---|---|---|")
    for epsilon in EPSILONS[:2]:
        start = time.process_time()
        fitted = dpvb.PCA(k, max_row_norm=max_row_norm, epsilon=epsilon, delta=DELTA).fit(train)
        middle = time.process_time()
        gauss = captured(analyze_gauss(train, k, epsilon, np.random.default_rng(0)), train, test)
        pca = captured(fitted.components_.T, train, test)
        print(f"| {epsilon:g} | {pca:.3f} | {middle - start:.0f} | {gauss:.3f} |", flush=True)
    start = time.process_time()
    factors = dpvb.FactorAnalysis(max_row_norm=max_row_norm, epsilon=1.0, delta=DELTA).fit(train)
    spent = time.process_time() - start
    print(f"\nFactorAnalysis at ε = 1: log-likelihood {factors.score(test, public=True):.0f}, {spent:.0f} CPU-s.")


def main() -> None:
    folder = Path(
        os.environ.get("DPVB_DATA") or sys.exit("set DPVB_DATA to the folder that holds mnist/, adult/, clusters/")
    )
    print("## Factor analysis and principal components\n")
    print(__doc__.split("\n\n", 1)[1].strip() + "\n")
    print("δ = 1e-5, add or remove one row. Adult has its categories as indicators of 0.7, as a schema makes them.")
    phoneme = pd.read_csv(folder / "clusters" / "phoneme.csv", header=None).to_numpy()[:, :5].astype(float)
    table("MNIST 14²", images(folder, 14, 20_000), 20, 8.0, range(1))
    table("Adult", adults(folder), 10, 3.0, range(1))
    table("phoneme", (phoneme - 1.5) / 3.5, 2, 1.5, range(5), peer=True)
    large(images(folder, 28, 60_000), 20, 20.0)


if __name__ == "__main__":
    main()
