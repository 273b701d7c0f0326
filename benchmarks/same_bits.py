"""Whether versions of the package release the same bits: every estimator, fitted with the same test noise by each.

    python -m benchmarks.same_bits [VERSION VERSION ...]

A version is a folder that holds the package, or a commit. Exits with 1 if any of them differs from the first.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
#: The last commit before files were moved into folders, and the working copy.
VERSIONS = ("6e4d541", "src")
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
STEPS: dict[str, Any] = {**BUDGET, "n_steps": 3, "random_state": 0}
POISSON: dict[str, Any] = {"sampling_prob": 0.5, "neighboring_relation": "replace_one"}
ONE_NORM: dict[str, Any] = {"max_row_norm": 1.0}
RANGES: dict[str, Any] = {"low": -4.0, "high": 4.0}
FIXED_SIZE: dict[str, Any] = {"batch_size": 20, "n_units": 60}
PUBLISHED: dict[str, Any] = {"count_power": 1.0, "release_word_totals": False, "word_weight_power": 0.0}

rng = np.random.default_rng(1)
counts = rng.poisson(1.0, (60, 12)).astype(np.float64)
rows = rng.standard_normal((60, 4))
binary = (rng.random((60, 6)) < 0.4).astype(np.float64)
trials = rng.integers(1, 5, 60)
responses = {
    "LogisticRegression": rng.integers(0, 2, 60),
    "BinomialRegression": rng.binomial(trials, 0.4),
    "NegativeBinomialRegression": rng.integers(0, 6, 60),
}
responses["PoissonRegression"] = responses["NegativeBinomialRegression"]
caps: dict[str, dict[str, Any]] = {
    "LogisticRegression": {},
    "BinomialRegression": {"max_trials": 4},
    "NegativeBinomialRegression": {"dispersion": 2.0, "max_count": 6},
    "PoissonRegression": {"max_count": 6},
}
persons = np.arange(60) // 3


def location(theta: Any, x: Any) -> Any:
    return -0.5 * ((x - theta) ** 2).sum()


def table(dpvb: Any) -> Any:
    """A table of a number, a count and a category."""
    columns = (
        dpvb.data.Numeric("age", low=0, high=100),
        dpvb.data.Numeric("visits", low=0, high=9),
        dpvb.data.Categorical("job", ("a", "b", "c"), other=False, missing=False),
    )
    cells = {"age": 50 + 10 * rows[:, 0], "visits": np.minimum(trials, 9), "job": np.array(["a", "b", "c"])[trials % 3]}
    return dpvb.data.Table(cells, dpvb.data.Schema(columns))


def fits() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every fit, by its name."""
    import dpvb

    given: dict[str, Any] = {**BUDGET, "low": -3.0, "high": 3.0}

    def topics(fitting: dict[str, Any] | None = None, **options: Any) -> Callable[[], Any]:
        return lambda: dpvb.LDA(3, public_vocabulary=True, **STEPS, **options).fit(counts, **(fitting or {}))

    def regression(
        name: str, fitting: dict[str, Any] | None = None, bounds: dict[str, Any] = ONE_NORM, **options: Any
    ) -> Callable[[], Any]:
        more = (trials,) if name == "BinomialRegression" else ()
        estimator = getattr(dpvb, name)(**BUDGET, **caps[name], **bounds, **options)
        return lambda: estimator.fit(rows, responses[name], *more, **(fitting or {}))

    def network(**options: Any) -> Callable[[], Any]:
        return lambda: dpvb.SigmoidBeliefNetwork(3, **STEPS, **options).fit(binary)

    def gradients(guide: str, **options: Any) -> Callable[[], Any]:
        return lambda: dpvb.DPVI(location, parameters=4, guide=guide, **STEPS, **options).fit(rows)

    def factors(name: str) -> Any:
        return getattr(dpvb, name)(2, **given).fit(rows)

    def federated(trust: str) -> Callable[[], Any]:
        shards = [(rows[part], responses["LogisticRegression"][part]) for part in np.arange(60).reshape(3, 20)]
        return lambda: dpvb.federated.simulate(
            dpvb.LogisticRegression(**BUDGET, n_steps=2, max_row_norm=1.0), shards, trust=trust
        )

    def selection() -> Any:
        estimator = dpvb.LogisticRegression(**BUDGET, n_steps=2, max_row_norm=1.0)
        return dpvb.private_select(
            estimator, [{}, {"max_row_norm": 2.0}], rows, responses["LogisticRegression"], **BUDGET
        )

    yield "LDA", topics()
    yield "LDA, Poisson batches", topics(**POISSON)
    yield "LDA, batches of a fixed size", topics(**FIXED_SIZE)
    yield "LDA, persons", topics({"group": persons})
    spread = "local:2"  # Earlier commits know no run.
    how = {"run": dpvb.Run(cluster=spread)} if hasattr(dpvb, "Run") else {"cluster": spread}
    yield "LDA, two processes", topics(how, **POISSON)
    yield "LDA, plain counts", topics(length_rule="resample", **PUBLISHED)
    for name in responses:
        yield name, regression(name)
        yield f"{name}, diagonal", regression(name, covariance="diagonal")
    yield "LinearRegression", lambda: dpvb.LinearRegression(**BUDGET, **RANGES, y_range=(-4, 4)).fit(rows, rows[:, 0])
    for covariance in ("full", "diagonal"):
        yield (
            f"LogisticRegression, ranges, {covariance}",
            regression("LogisticRegression", None, RANGES, covariance=covariance),
        )
    logistic = "LogisticRegression"
    yield f"{logistic}, Poisson batches", regression(logistic, **POISSON)
    yield f"{logistic}, persons", regression(logistic, {"group": persons})
    yield f"{logistic}, diagonal, persons", regression(logistic, {"group": persons}, covariance="diagonal")
    yield "SigmoidBeliefNetwork, first_order", network()
    yield "SigmoidBeliefNetwork, Poisson batches", network(**POISSON)
    for name in ("FactorAnalysis", "PCA"):
        yield name, partial(factors, name)
    yield "GaussianMixture", lambda: dpvb.GaussianMixture(3, **given, n_steps=3, random_state=0).fit(rows)
    yield (
        "Mixture, pairs",
        lambda: dpvb.Mixture(3, count_columns="visits", fidelity_share=0.2, **STEPS).fit(table(dpvb)),
    )
    yield "NaiveBayes", lambda: dpvb.NaiveBayes(response="job", count_columns="visits", **BUDGET).fit(table(dpvb))
    words = [f"w{v}" for v in range(12)]
    yield (
        "NaiveBayes, documents",
        lambda: dpvb.NaiveBayes(vocabulary=words, classes=(0, 1), **BUDGET).fit(
            counts, responses["LogisticRegression"]
        ),
    )
    if "DPVI" in dpvb.audit.NAMES:
        for guide in ("mean_field", "full_rank", "point"):
            yield f"DPVI, {guide}", gradients(guide)
        yield "DPVI, batches of a fixed size", gradients("mean_field", **FIXED_SIZE)
    for trust in ("none", "secure_aggregation", "trusted_server"):
        yield f"federated.simulate, {trust}", federated(trust)
    yield "select", selection
    yield "private_range", lambda: dpvb.private_range(rows[:, 0], low=-10.0, high=10.0, **BUDGET)


def add(digest: Any, name: str, value: Any) -> None:
    """Feed a named array to a digest."""
    array = np.ascontiguousarray(value)
    digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())


def fitted(found: Any) -> dict[str, Any]:
    """The numbers that a fit shows its user."""
    shown = {name: getattr(found, name) for name in dir(type(found)) + list(vars(found)) if not name.startswith("_")}
    return {name: value for name, value in shown.items() if isinstance(value, (float, np.ndarray))}


def digests() -> dict[str, tuple[str, str]]:
    """SHA-256 of the released sums and of the fitted numbers of every fit of the package that Python finds."""
    named = list(fits())
    for _, fit in named[-2:]:  # Who draws noise is in memory after them.
        fit()
    modules = [module for name, module in sys.modules.items() if name.startswith("dpvb")]
    drawing = [module for module in modules if hasattr(module, "SecureNoise")]
    insecure = next(module.InsecureNoise for module in drawing if hasattr(module, "InsecureNoise"))
    sealed = next(module.Released for module in modules if hasattr(module, "Released"))
    check = sealed.__post_init__
    # What an earlier fit released too is left out: clients make a dry run on no data, some versions once a process.
    seen: set[str] = set()
    releases: set[str] = set()

    def noted(self: Any, seal: object) -> None:
        check(self, seal)
        sums = hashlib.sha256()
        for name in sorted(self.total):
            add(sums, name, self.total[name])
        releases.add(sums.hexdigest())

    sealed.__post_init__ = noted
    found = {}
    for name, fit in named:
        releases.clear()
        numbers = hashlib.sha256()
        for module in drawing:
            module.SecureNoise = lambda: insecure(0)  # How many sources a run makes is no part of what it releases.
        for key, value in sorted(fitted(fit()).items()):
            add(numbers, key, value)
        found[name] = hashlib.sha256("".join(sorted(releases - seen)).encode()).hexdigest(), numbers.hexdigest()
        seen |= releases
    return found


@contextmanager
def folder(version: str) -> Iterator[str]:
    """The folder that holds a version of the package."""
    if Path(version).is_dir():
        yield str(Path(version).resolve())
        return
    packed = subprocess.run(["git", "archive", version, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(unpacked, filter="data")
        yield f"{unpacked}/src"


def digests_of(version: str) -> dict[str, tuple[str, str]]:
    """What `digests` finds in a version."""
    with folder(version) as place, tempfile.TemporaryDirectory() as state:
        # Each compiles its kernels anew: a kernel may round differently when it is compiled in another order.
        own = {"PYTHONPATH": place, "XDG_STATE_HOME": state, "NUMBA_CACHE_DIR": state, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.same_bits", "--digests"]
        run = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{version}: a fit failed\n{run.stderr}")
    return {name: tuple(pair) for name, pair in json.loads(run.stdout).items()}


def main() -> None:
    if sys.argv[1:] == ["--digests"]:
        print(json.dumps(digests()))
        return
    versions = sys.argv[1:] or VERSIONS
    first, *others = (digests_of(version) for version in versions)
    same = {name: all(other.get(name) == pair for other in others) for name, pair in first.items()}
    print(f"## The same bits: {', '.join(versions)}\n")
    print("The same test noise, public seeds and data. SHA-256 of all released sums, and of the fitted numbers:\n")
    print("| fit | released | fitted | the same in all versions |\n|---|---|---|---|")
    for name, (sums, numbers) in first.items():
        print(f"| {name} | `{sums[:12]}` | `{numbers[:12]}` | {'yes' if same[name] else '**no**'} |")
    if not all(same.values()):
        sys.exit("some fits differ")


if __name__ == "__main__":
    main()
