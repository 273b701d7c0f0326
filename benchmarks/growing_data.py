"""What a cap allows on data that grow, and what a nightly, and one late fit, learn under the same cap.

First table: a cap of epsilon = 1 at delta = 1e-6 in a ledger, and fits that charge one full-batch Gaussian release.
Second table: 30 nights of 3,000 rows of 10,000 persons who return, so that all fits are about the same people and their
losses add up. A logistic regression has 5 columns. All strategies stay within one cap of epsilon = 1. The error is the
root mean square of the coefficients' errors, over 5 columns and 3 repeats.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np

import dpvb
from dpvb import accounting
from dpvb.errors import BudgetError

CAP, DELTA, NIGHTS, ROWS, PERSONS = 1.0, 1e-6, 30, 3_000, 10_000
FULL = {"sampler": "full_batch", "sampling_prob": 1.0}
COEF = np.array([2.0, -2.0, 1.0, -1.0, 0.5])


def charged(folder: Path, epsilon: float) -> tuple[float, int]:
    """The total after 12 fits, and how many fits there is room for."""
    noise = accounting.noise_multiplier(epsilon=epsilon, delta=DELTA, n_steps=1, **FULL)
    cost = accounting.gaussian_noise(noise, neighboring_relation="add_or_remove_one", num_releases=1)
    total, fits = float("nan"), 0
    with dpvb.Ledger(folder / f"{epsilon}.db") as ledger:
        ledger.register("people", unit="person", neighboring_relation="add_or_remove_one", epsilon=CAP, delta=DELTA)
        try:
            while True:
                ledger.charge("people", cost, unit="person", kind="fit")
                fits += 1
                total = CAP - ledger.remaining("people").epsilon if fits == 12 else total
        except BudgetError:
            return total, fits


def nights(seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Features, responses and persons of each night."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(NIGHTS):
        x_nd = rng.uniform(-1, 1, (ROWS, len(COEF)))
        y_n = (rng.random(ROWS) < 1 / (1 + np.exp(-x_nd @ COEF))).astype(int)
        found.append((x_nd, y_n, rng.integers(0, PERSONS, ROWS)))
    return found


def coefficients(files: list[tuple[np.ndarray, np.ndarray, np.ndarray]], epsilon: float) -> np.ndarray:
    x_nd, y_n, who = (np.concatenate(parts) for parts in zip(*files, strict=True))
    model = dpvb.LogisticRegression(epsilon=epsilon, delta=DELTA, low=-1, high=1).fit(x_nd, y_n, group=who)
    return np.asarray(model.coef_).ravel()


def main() -> None:
    warnings.simplefilter("ignore")
    print("## Data that grow\n")
    print((__doc__ or "").strip() + "\n")
    print("| epsilon of a fit | total after 12 fits | fits within the cap |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for epsilon in (0.05, 0.1, 0.2, 0.5):
            total, fits = charged(Path(place), epsilon)
            print(f"| {epsilon:g} | {'over the cap' if np.isnan(total) else f'{total:.2f}'} | {fits} |")
    noise = accounting.noise_multiplier(epsilon=CAP, delta=DELTA, n_steps=NIGHTS, **FULL)
    nightly = accounting.epsilon(noise_multiplier=noise, delta=DELTA, n_steps=1, **FULL)
    errors: dict[tuple[str, str, float], list[np.ndarray]] = {}
    for seed in range(3):
        files = nights(seed)
        every = np.array([coefficients([one], nightly) for one in files])
        strategies = {
            ("one fit after 30 nights, on all rows", "1", CAP): coefficients(files, CAP),
            ("30 nightly fits on the new file: the last one", "30", nightly): every[-1],
            ("30 nightly fits on the new file: their mean", "30", nightly): every.mean(axis=0),
            ("30 nightly fits on all rows so far: the last one", "30", nightly): coefficients(files, nightly),
        }
        for name, coef in strategies.items():
            errors.setdefault(name, []).append(coef - COEF)
    print("\n| strategy | fits | epsilon of each | error |")
    print("|---|---|---|---|")
    for (name, fits, epsilon), found in errors.items():
        print(f"| {name} | {fits} | {epsilon:.2f} | {np.sqrt(np.mean(np.square(found))):.2f} |")


if __name__ == "__main__":
    main()
