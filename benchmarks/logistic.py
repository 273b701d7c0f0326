"""Private logistic regression on public tables: this package's solvers beside its peers, on the same splits.

Needs DPVB_DATA, the folder that holds regression/, and the peers' results (`make peers`). Fits are kept in
build/logistic.jsonl under a digest of the solver's code, so that an interrupted run goes on where it stopped.
`--data`, `--solvers` and `--repeats` choose a part, for a quick look; `--cached` prints what there is.
"""

import argparse
import hashlib
import math
import re
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np

import dpvb
from benchmarks.peers import protocol
from dpvb.data import Design
from dpvb.models.regression.likelihood import predictive
from dpvb.papers.logistic_regression import VIPSLogistic

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "logistic.jsonl"
#: Name → parameters, data sets, fits with fresh noise of each split, files that its numbers depend on.
FULL = ["adult", "diab30", "diabany", "stroke"]
SOLVERS = {
    "first order": (
        {},
        FULL,
        4,
        [
            "first_order.py",
            "curvature_then_scores.py",
            "descent.py",
            "scaling.py",
            "moments.py",
            "ridge.py",
        ],
    ),
    "first order, diagonal": (
        {"covariance": "diagonal"},
        [*FULL, "icd"],
        1,
        [
            "diagonal.py",
            "scaling.py",
            "descent.py",
            "../empirical_bayes.py",
        ],
    ),
    "papers": (
        {"paper": True},
        FULL,
        1,
        ["../../papers/binomial_likelihoods.py", "../../papers/logistic_regression.py"],
    ),
}
#: Public facts of the columns: features that are numbers of at most 1 come first, the others are indicators of 0.7; all
#: are then scaled as the constant is.
NUMBERS = {"adult": 5, "stroke": 3, "diab30": 0, "diabany": 0, "icd": 8}
#: The default of each data set.
OURS = dict.fromkeys(FULL, "first order") | {"icd": "first order, diagonal"}
#: Mean log-likelihoods at ε = .2, .5, 1, 2, 4 that are to be reached, up to MARGIN.
LEVELS = {
    "adult": (-0.3273, -0.3208, -0.3190, -0.3184, -0.3179),
    "diab30": (-0.2954, -0.2944, -0.2938, -0.2936, -0.2936),
    "diabany": (-0.6615, -0.6603, -0.6598, -0.6597, -0.6596),
    "stroke": (-0.1995, -0.1877, -0.1797, -0.1717, -0.1689),
    "icd": (-0.6444, -0.6327, -0.6291, -0.6269, -0.6258),
}
MARGIN = {"stroke": 0.004}
#: The level of icd is that of the first two splits.
LEVEL_SPLITS = {"icd": (0, 1)}
METRICS = ("auc", "log_likelihood", "accuracy")


def code(files: list[str]) -> str:
    """Digest of the files that a solver's numbers depend on."""
    digest = hashlib.sha256()
    for name in [*files, "likelihood.py", "tuned.py"]:
        digest.update((ROOT / "src" / "dpvb" / "models" / "regression" / name).with_suffix(".py").read_bytes())
    return digest.hexdigest()[:12]


def fit(params: dict, data: str, X, y, seed: int, epsilon: float) -> dict:
    """One private fit, scored on the held-out fifth: log-likelihood of the posterior predictive, AUC of the mean."""
    train, test = protocol.split(len(y), seed)
    constant = float(X[:, 0].max())
    numbers = np.arange(X.shape[1] - 1) < NUMBERS[data]
    bounds = {"max_abs_value": constant * np.where(numbers, 1.0, 0.7 + 1e-6), "numeric": range(NUMBERS[data])}
    begun = time.process_time()
    if "paper" in params:
        scores = of_paper(X, y, train, test, constant, epsilon)
    else:
        given = {
            "epsilon": epsilon,
            "delta": protocol.DELTA,
            "max_row_norm": 1.0,
            "relative_intercept": constant,
            **bounds,
            **params,
        }
        model = dpvb.LogisticRegression(**given).fit(X[train, 1:], y[train])
        scores = partial(lambda rows: (model.decision_function(rows), model.predict_proba(rows)[:, 1]), X[test, 1:])
    seconds = time.process_time() - begun
    return {**protocol.scores(y[test], *scores()), "seconds": seconds}


def of_paper(X, y, train, test, constant: float, epsilon: float):
    """Fits Algorithm 5 of Park et al. (2020) with full batches; returns what gives scores and probabilities."""
    algorithm = VIPSLogistic(X.shape[1], n_rows=len(train), n_steps=10)
    fitted = dpvb.PrivateModel(algorithm, epsilon=epsilon, delta=protocol.DELTA)
    n_bar = fitted.fit(Design(X[train, 1:], y[train], intercept=constant)).q_.n_bar
    mean_d, covariance_dd = n_bar["m"], n_bar["mm"] - np.outer(n_bar["m"], n_bar["m"])

    def scores():
        chunks = [chunk.rows.x_nd for chunk in Design(X[test, 1:], intercept=constant).chunks()]
        mean_n = np.concatenate([x_nd @ mean_d for x_nd in chunks])
        variance_n = np.concatenate([((x_nd @ covariance_dd) * x_nd).sum(axis=1) for x_nd in chunks])
        return mean_n, predictive(mean_n, variance_n)

    return scores


def run(chosen_data: list[str], chosen_solvers: list[str], repeats: int | None) -> list[dict]:
    """Every fit of the chosen part, computed where the cache lacks it."""
    CACHE.parent.mkdir(exist_ok=True)
    versions = {name: code(files) for name, (_, _, _, files) in SOLVERS.items()}
    results = [r for r in protocol.read(CACHE) if r["code"] == versions.get(r["method"])]
    done = {(r["method"], r["data"], r["split"], r["epsilon"], r["repeat"]) for r in results}
    for name in chosen_solvers:
        params, sets, most, _ = SOLVERS[name]
        for data in (data for data in sets if data in chosen_data):
            X, y = protocol.load(data)
            for repeat in range(repeats or most):
                for seed in protocol.SPLITS:
                    for epsilon in protocol.EPSILONS:
                        if (name, data, seed, epsilon, repeat) in done:
                            continue
                        cell = {"method": name, "data": data, "split": seed, "epsilon": epsilon, "repeat": repeat}
                        result = cell | {"code": versions[name]} | fit(params, data, X, y, seed, epsilon)
                        protocol.append(result, CACHE)
                        results.append(result)
    return results


class Cells:
    """Scores by (method, data, ε, split), averaged over fits with fresh noise."""

    def __init__(self, results: list[dict]) -> None:
        fits = defaultdict(list)
        self.seconds = defaultdict(list)
        for r in results:
            if "header" not in r:
                fits[r["method"], r["data"], r["epsilon"], r["split"]].append([r[name] for name in METRICS])
                self.seconds[r["method"], r["data"]].append(r["seconds"])
        self.mean = {key: np.mean(values, axis=0) for key, values in fits.items()}
        self.variance = {key: np.var(v, axis=0, ddof=1) / len(v) for key, v in fits.items() if len(v) > 1}
        self.methods = list(dict.fromkeys(key[0] for key in fits))

    def at(self, method: str, data: str, epsilon: float | None, splits=protocol.SPLITS) -> dict:
        """Split → scores."""
        keys = {split: (method, data, epsilon, split) for split in splits}
        return {split: self.mean[key] for split, key in keys.items() if key in self.mean}

    def level(self, method: str, data: str, epsilon: float | None, splits=protocol.SPLITS):
        """Scores averaged over splits; None where there are none."""
        found = self.at(method, data, epsilon, splits)
        return np.mean(list(found.values()), axis=0) if found else None

    def noise(self, method: str, data: str, epsilon: float, splits=protocol.SPLITS) -> float:
        """Standard error of the mean log-likelihood that comes from the private noise; NaN from single fits."""
        variances = [self.variance.get((method, data, epsilon, split), np.full(3, np.nan))[1] for split in splits]
        return math.sqrt(float(np.sum(variances))) / len(variances)

    def best(self, methods: list[str], data: str, epsilon: float | None) -> str | None:
        """The method of largest mean log-likelihood, known in hindsight."""
        levels = {m: self.level(m, data, epsilon) for m in methods}
        found = {m: level[1] for m, level in levels.items() if level is not None}
        return max(found, key=found.__getitem__) if found else None


def short(value: float) -> str:
    """Four decimals, without a leading 0."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.4f}")


def shown(level) -> str:
    return "" if level is None else "/".join(map(short, level))


def margin(data: str, epsilon: float, *, paired: bool) -> float:
    """How far below a level, or a peer, a mean may be."""
    wide = not paired or epsilon == 0.2
    return MARGIN.get(data, 0.001) if wide else 0.001


def rows_of(cells: Cells, data: str) -> list[tuple[str, list]]:
    """(name, method at each ε) of every private method on a data set."""
    ours = [name for name, (_, sets, _, _) in SOLVERS.items() if data in sets]
    bounded = [m for m in cells.methods if m.startswith("diffprivlib")]
    rows = [(name, [name] * 5) for name in ours]
    if data == "icd":
        rows += [(m, [m] * 5) for m in bounded if cells.level(m, data, 1.0) is not None]
    else:
        rows += [("diffprivlib C=1", ["diffprivlib C=1"] * 5)]
        rows += [("diffprivlib, best of 4 C", [cells.best(bounded, data, epsilon) for epsilon in protocol.EPSILONS])]
    rows += [(m, [m] * 5) for m in ("Opacus DP-SGD", "d3p DPVI", "DP-SGD in NumPy")]
    return [(name, methods) for name, methods in rows if any(cells.level(m, data, 1.0) is not None for m in methods)]


def table(cells: Cells, data: str) -> list[bool]:
    """Print the levels of a data set; returns which of ours reach theirs."""
    X, y = protocol.load(data)
    train, test = protocol.split(len(y), 0)
    print(f"### {data}: {len(train):,} rows and {len(test):,} held out, {X.shape[1]:,} columns\n")
    heads = " | ".join(f"ε = {epsilon:g}" for epsilon in protocol.EPSILONS)
    print(f"| method (fits at one ε, CPU-s) | {heads} |\n|---|---|---|---|---|---|")
    for name, methods in rows_of(cells, data):
        levels = [cells.level(m, data, e) for m, e in zip(methods, protocol.EPSILONS, strict=True)]
        seconds = [second for m in set(methods) for second in cells.seconds[m, data]]
        fits = f"{len(seconds) // len(set(methods)) / 5:g}, {np.mean(seconds):.1f}"
        print(f"| {'**' + name + '**' if name == OURS[data] else name} ({fits}) | {' | '.join(map(shown, levels))} |")
    splits = LEVEL_SPLITS.get(data, protocol.SPLITS)
    reached, texts = [], []
    for asked, epsilon in zip(LEVELS[data], protocol.EPSILONS, strict=True):
        least = asked - margin(data, epsilon, paired=False)
        level = cells.level(OURS[data], data, epsilon, splits)
        if level is not None:
            reached.append(bool(level[1] >= least))
            noise = cells.noise(OURS[data], data, epsilon, splits)
            error = "" if math.isnan(noise) else f" ± {1e4 * noise:.0f}"
            ahead = f"{1e4 * (level[1] - least):+.0f}{error}"
            texts.append(f"{short(least)}: {ahead} {'reached' if reached[-1] else '**missed**'}")
    where = "" if splits == protocol.SPLITS else f" on splits {', '.join(map(str, splits))}"
    print(f"| log-likelihood asked{where}: ours beyond it, 1e-4 | {' | '.join(texts)} |")
    plain = [m for m in cells.methods if m.startswith("no privacy")]
    name = cells.best(plain, data, None)
    print(f"| {name} (best of {len(plain)}) | {shown(cells.level(name, data, None))} | | | | |\n" if name else "")
    return reached


def pairs(cells: Cells, sets: list[str]) -> list[tuple[bool, bool]]:
    """Print paired differences with every peer; returns (within the margin, not behind) of each."""
    print("### Ours minus a peer on the same splits: log-likelihood / AUC, 1e-4, ± standard error over splits\n")
    print("| data | peer | " + " | ".join(f"{epsilon:g}" for epsilon in protocol.EPSILONS) + " |")
    print("|---|---|---|---|---|---|---|")
    verdicts = []
    for data in sets:
        ours = OURS[data]
        for name, methods in rows_of(cells, data):
            if name in SOLVERS:
                continue
            texts = []
            for method, epsilon in zip(methods, protocol.EPSILONS, strict=True):
                a, b = cells.at(ours, data, epsilon), cells.at(method, data, epsilon)
                differences = np.array([a[split] - b[split] for split in a.keys() & b.keys()])
                if not len(differences):
                    texts.append("")
                    continue
                mean = differences.mean(axis=0)
                allowed = bool(mean[1] >= -margin(data, epsilon, paired=True))
                verdicts.append((allowed, bool(mean[1] >= 0)))
                error = ""
                if len(differences) > 1:
                    error = f" ± {1e4 * np.std(differences[:, 1], ddof=1) / math.sqrt(len(differences)):.0f}"
                text = f"{1e4 * mean[1]:+.0f}{error} / {1e4 * mean[0]:+.0f}"
                texts.append(text if verdicts[-1][1] else f"*{text}*" if allowed else f"**{text}**")
            print(f"| {data} | {name} | " + " | ".join(texts) + " |")
    return verdicts


def settings(headers: list[dict]) -> None:
    """Print what was fixed, ours first."""
    print("Settings:\n")
    print(
        f"* Ours: `LogisticRegression(epsilon, delta={protocol.DELTA:g}, relative_intercept=c)`, c the public "
        "constant of column 0, and all else by default (the diagonal form is told the columns' public bounds); papers: "
        "`dpvb.papers.logistic_regression` with full batches, J = 10, τ₀ = 1, κ = 0.7; "
        "add or remove one row; predictions by the posterior predictive. "
        + "; ".join(f"{name}: {', '.join(f'{k}={v!r}' for k, v in SOLVERS[name][0].items())}" for name in SOLVERS)
        + "."
    )
    for header in headers:
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        print(f"* {header['header']}: {header['settings']}. {versions}; {header['machine']}.")
    print(
        "* diffprivlib, best of 4 C: C of the largest mean held-out log-likelihood in each cell, which flatters it.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", default=list(OURS), choices=list(OURS))
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=list(SOLVERS))
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--cached", action="store_true")
    chosen = parser.parse_args()
    peers = protocol.read()
    cells = Cells([*run(chosen.data, [] if chosen.cached else chosen.solvers, chosen.repeats), *peers])
    print("## Logistic regression\n")
    print(
        f"δ = {protocol.DELTA:g}, means over {len(protocol.SPLITS)} splits of AUC / log-likelihood per held-out row / "
        f"accuracy; probabilities clipped at {protocol.LEAST:g}. One public preprocessing and one set of constants for "
        "all data. A method with fewer than five fits has those of the first splits only; differences are always on "
        "common splits.\n"
    )
    settings([r for r in peers if "header" in r])
    reached = [one for data in chosen.data for one in table(cells, data)]
    verdicts = pairs(cells, chosen.data)
    print(f"\nLevels reached: {sum(reached)} of {len(reached)}. ", end="")
    print(
        f"Paired differences: {sum(v[0] for v in verdicts)} of {len(verdicts)} within -.001 (stroke at ε = .2: -.004), "
        f"{sum(v[1] for v in verdicts)} not behind at all; behind is in italics, beyond the margin in bold."
    )


if __name__ == "__main__":
    main()
