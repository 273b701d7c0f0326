"""Private Markov chains and hidden Markov models: held-out log-probability, a million people.

Needs DPVB_DATA, the folder that holds sequences/ (msnbc, biofam, ewt).

    python -m benchmarks.sequences            (hidden: hidden Markov models alone)
"""

import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpvb

DATA = Path(os.environ.get("DPVB_DATA", Path(__file__).parents[1] / "data")) / "sequences"
EPSILONS = (0.5, 1.0, 2.0, 4.0, np.inf)
SEEDS = 3
#: Log-probability of a symbol that must be reached at ε = 1.
MUST = {("msnbc 100,000", 1): -1.588, ("msnbc 100,000", 2): -1.505, ("msnbc 10,000", 2): -1.60}
MUST |= {("biofam", 1): -0.46, ("ewt tags", 1): -2.12}


def cut(values: np.ndarray, lengths: np.ndarray, most: int | None = None) -> list[np.ndarray]:
    """Flat sequences as a list, each with so many symbols at most."""
    ends = np.cumsum(lengths.astype(np.int64))
    return [one[:most] for one in np.split(values, ends[:-1])]


def msnbc(number: int) -> tuple[Any, ...]:
    """Visits of web pages: a user a unit; the test is of 100,000 others."""
    found = np.load(DATA / "msnbc" / "pages.npz")
    users = cut(found["symbols"], found["lengths"])
    return users[:number], None, [one[:100] for one in users[800_000:]], 17, 1e-6


def biofam() -> tuple[Any, ...]:
    """States of a life at ages 15 to 30: a person a unit."""
    states = np.load(DATA / "biofam" / "biofam.npz")["states"]
    return states[:1500], None, states[1500:], 8, 1e-5


def ewt() -> tuple[Any, ...]:
    """Parts of speech: a document a unit, with all of its sentences."""
    found = np.load(DATA / "ewt" / "ewt.npz")
    sentences, document = cut(found["tags"], found["lengths"]), found["document"]
    own = np.isin(document, np.unique(document)[:940])
    fit, test = ([one for one, is_own in zip(sentences, own, strict=True) if is_own == side] for side in (True, False))
    return fit, document[own], test, 17, 1e-5


TABLES = {
    "msnbc 10,000": lambda: msnbc(10_000),
    "msnbc 100,000": lambda: msnbc(100_000),
    "biofam": biofam,
    "ewt tags": ewt,
}


def scores() -> None:
    """Held-out log-probability by table, order and ε."""
    print("## Markov chains\n\nLog-probability of a held-out symbol in nats, default settings, mean of "
          f"{SEEDS} fits; what must be reached at ε = 1.\n")  # fmt: skip
    print("| sequences | order |" + "".join(f" ε = {e:g} |" for e in EPSILONS) + " must at 1 |")
    print("|---|---|" + "---|" * (len(EPSILONS) + 1))
    for name, load in TABLES.items():
        x, group, test, width, delta = load()
        for order in (1, 2):
            row = []
            for epsilon in EPSILONS:
                model = dpvb.MarkovChain(width, order=order, epsilon=epsilon, delta=delta)
                many = SEEDS if epsilon < np.inf else 1
                row.append(np.mean([model.fit(x, group=group).score(test, public=True) for _ in range(many)]))
            must = MUST.get((name, order))
            told = "" if must is None else f"{must} {'met' if row[1] >= must else 'MISSED'}"
            print(f"| {name} | {order} |" + "".join(f" {one:.3f} |" for one in row) + f" {told} |", flush=True)


def million() -> None:
    """Time and memory of a million people, in a process of their own; and the bits of two processes."""
    x = np.random.default_rng(0).integers(17, size=(1_000_000, 20), dtype=np.uint8)
    found = []
    for cluster in (None, "local:2"):
        start = time.perf_counter()
        model = dpvb.MarkovChain(17, order=2, epsilon=np.inf, delta=1e-6).fit(x, run=dpvb.Run(cluster=cluster))
        found.append((model.transition_matrix_, time.perf_counter() - start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    same = (found[0][0] == found[1][0]).all()
    print(
        f"\nA million people of 20 symbols, order 2: {found[0][1]:.1f} s in one process, {found[1][1]:.1f} s over two, "
        f"the same bits: {'yes' if same else 'NO'}; {peak:.2f} GiB at most."
    )


def hidden() -> None:
    """Hidden Markov models: held-out log-probability by people, states and ε, and speed."""
    print("\n## Hidden Markov models\n\nLog-probability of a held-out symbol in nats, default settings, mean of "
          f"{SEEDS} fits; what must be reached at ε = 1.\n")  # fmt: skip
    print("| sequences | states |" + "".join(f" ε = {e:g} |" for e in EPSILONS) + " must at 1 | seconds |")
    print("|---|---|" + "---|" * (len(EPSILONS) + 2))
    for number, states, must in ((10_000, 20, -1.595), (100_000, 20, -1.516), (100_000, 34, -1.508)):
        x, _, test, width, delta = msnbc(number)
        row, start = [], time.process_time()
        for epsilon in EPSILONS:
            model = dpvb.HiddenMarkovModel(states, symbols=width, epsilon=epsilon, delta=delta)
            many = range(SEEDS if epsilon < np.inf else 1)
            row.append(np.mean([model.fit(x).score(test, public=True) for _ in many]))
        seconds = (time.process_time() - start) / (4 * SEEDS + 1)
        told = f"{must} {'met' if row[1] >= must else 'MISSED'}"
        line = f"| msnbc {number:,} | {states} |" + "".join(f" {one:.3f} |" for one in row)
        print(f"{line} {told} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1:] == ["million"]:
        million()
    elif sys.argv[1:] == ["hidden"]:
        hidden()
    else:
        scores()
        print(subprocess.run([sys.executable, "-m", "benchmarks.sequences", "million"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout)  # fmt: skip
        hidden()
