"""Private linear dynamical systems: held-out log-density by ε, coverage of intervals and of bands, time and memory.

Needs DPVB_DATA, the folder that holds sequences/pendigits.

    python -m benchmarks.linear_dynamical
"""

import math
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dpvb
from dpvb.models.sequences import kalman
from dpvb.models.sequences.kalman import LinearSystem

DATA = Path(os.environ.get("DPVB_DATA", Path(__file__).parents[1] / "data")) / "sequences"
EPSILONS = (0.5, 1.0, 4.0, np.inf)
FITS, PEOPLE, LONGEST = 6, 4000, 50
#: Fits for the coverage of intervals, each to people of its own, of which so many make bands of so many new people.
COVERED, BANDED, NEW = 10, 3, 1000
#: Log-density of a point of a pen that must be reached, and of a simulated one what may be lost against the truth.
PENS, LOST = (-0.28, -0.24, -0.226), (None, 0.038, 0.009)


def row(name: str, values: list[float], must: tuple[float | None, ...], sign: int) -> None:
    """A line of a table; the last column says which of the values that must be reached are."""
    told = [f"{one} {'met' if sign * value >= sign * one else 'MISSED'}"
            for value, one in zip(values, must, strict=False) if one is not None]  # fmt: skip
    print(f"| {name} |" + "".join(f" {value:.4f} |" for value in values) + f" {', '.join(told)} |", flush=True)


def fitted(x: Any, epsilon: float, fits: int = FITS, **given: Any) -> list[Any]:
    """Some fits; one where there is no noise."""
    many = fits if epsilon < np.inf else 1
    return [dpvb.LinearDynamicalSystem(epsilon=epsilon, delta=1e-6, **given).fit(x) for _ in range(many)]


def pens() -> None:
    """Trajectories of pens: 8 points of a digit, 8,000 digits."""
    found = np.load(DATA / "pendigits" / "pendigits.npz")["points"].astype(np.float64)
    found = found[np.random.default_rng(0).permutation(len(found))]
    unit = 2 * math.log(50 * math.sqrt(2))
    given: dict[str, Any] = {"columns": "x,y", "low": 0, "high": 100, "window": 8, "max_length": 8, "n_states": 6}
    models = [fitted(found[:8000], epsilon, **given) for epsilon in EPSILONS]
    values = [float(np.mean([one.score(found[8000:], public=True) for one in own])) + unit for own in models]
    row("pens, 6 states, 8,000 digits", values, PENS, 1)


def system(rng: np.random.Generator) -> LinearSystem:
    """Four columns that show a turning pair of states, and one that fades."""
    turn = 0.97 * np.array([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
    step_kk = np.zeros((3, 3))
    step_kk[:2, :2], step_kk[2, 2] = turn, 0.9
    shown_dk, still = rng.standard_normal((4, 3)), (np.zeros(3), np.eye(3))
    shown_dk *= 0.2 / np.linalg.norm(shown_dk, axis=1, keepdims=True)  # few points lie beyond the ranges
    noise_kk, noise_d = np.eye(3) - step_kk @ step_kk.T, np.full(4, 0.0064)
    return LinearSystem(step_kk, noise_kk, shown_dk, np.zeros(4), noise_d, *still, *still)


def simulated() -> None:
    """What is lost against the system that made the data, in ranges that fit and in ones that are ten times as wide."""
    rng = np.random.default_rng(3)
    true = system(rng)
    x, new = (kalman.drawn(true, number, LONGEST, rng) for number in (PEOPLE, 1000))
    truth = float(kalman.filtered(true, new).log_n.mean()) / LONGEST
    given: dict[str, Any] = {"columns": 4, "max_length": LONGEST, "n_states": 3}
    for name, wide in (("simulated, 3 states, 4,000 people", 1), ("the same in ranges ten times as wide", 10)):
        models = [fitted(x, epsilon, low=-wide, high=wide, **given) for epsilon in EPSILONS]
        values = [truth - float(np.mean([one.score(new, public=True) for one in own])) for own in models]
        row(f"{name}: lost of {truth:.3f}", values, LOST if wide == 1 else (), -1)


def covered() -> None:
    """How often 95 % intervals hold the truth, and 95 % bands the next points of new people."""
    print(
        f"\nShare of 95 % intervals that hold the truth, of {COVERED} fits, each to people of its own (deviations of "
        "noise and of what states do, of 4 columns; what a step multiplies the two modes by; the period of the one "
        f"that turns), and of 95 % bands that hold what comes 1 and 5 points later, of {NEW:,} new people, in {BANDED} "
        "of them.\n"
    )
    print(
        "| people | ε | noise std | states std | modes | period | 1 point on | 5 points on |\n|---" + "|---" * 7 + "|"
    )
    rng = np.random.default_rng(4)
    true = system(rng)
    new = kalman.drawn(true, NEW, 25, rng)
    truth = {"noise std": np.sqrt(true.noise_d), "states std": np.linalg.norm(true.shown_dk, axis=1)}
    for number in (1000, PEOPLE, 20_000):
        for epsilon in EPSILONS:
            held: dict[str, list[float]] = {name: [] for name in (*truth, "modes", "period", "1", "5")}
            for fit in range(COVERED):
                [model] = fitted(kalman.drawn(true, number, LONGEST, rng), epsilon, 1, columns=4, low=-1, high=1,
                                 n_states=3)  # fmt: skip
                table = model.intervals()
                for what, value_d in truth.items():
                    own = [line for line in table if line.name == what]
                    held[what] += [one.low <= value <= one.high for one, value in zip(own, value_d, strict=True)]
                turns = {line.part: line for line in table if line.name == "period"}
                for line in table:
                    if line.name == "each step times":
                        held["modes"].append(line.low <= (0.97 if line.part in turns else 0.9) <= line.high)
                held["period"] += [one.low <= 2 * math.pi / 0.3 <= one.high for one in turns.values()]
                if fit < BANDED:
                    found = model.forecast(new[:, :20], horizon=5)
                    inside = ((found.low <= new[:, 20:]) & (new[:, 20:] <= found.high)).mean(axis=(0, 2))
                    held["1"].append(inside[0])
                    held["5"].append(inside[4])
            shares = "".join(f" {np.mean(one) if one else math.nan:.3f} |" for one in held.values())
            print(f"| {number:,} | {epsilon:g} |{shares}", flush=True)


def million() -> None:
    """Time and memory of a million people."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(1_000_000, 20, 2)).astype(np.float32)
    start = time.perf_counter()
    dpvb.LinearDynamicalSystem(3, columns=2, low=-1, high=1, max_length=20, epsilon=1.0, delta=1e-6).fit(x)
    seconds, peak = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\nA million people of 20 points of two columns, 3 states: {seconds:.0f} s, {peak:.2f} GiB at most.")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print("## Linear dynamical systems\n\nLog-density of a held-out point in nats (pens in units of (x/50 - 1)/√2), or "
          f"what is lost of the truth's; mean of {FITS} fits, default settings but for pens, whose windows are all 8 "
          "points. What must be reached at ε = 0.5, 1 and 4, or at 1 and 4.\n")  # fmt: skip
    print("| sequences |" + "".join(f" ε = {e:g} |" for e in EPSILONS) + " must |")
    print("|---|" + "---|" * (len(EPSILONS) + 1))
    pens()
    simulated()
    covered()
    million()
