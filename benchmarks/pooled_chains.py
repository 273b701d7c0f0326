"""Intervals of chains on real sequences: share that holds the frequencies of the whole population, pooled and weighted.

Needs DPVB_DATA, the folder that holds sequences/ and diabetes130/.

    python -m benchmarks.pooled_chains
"""

import csv
import gzip
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpvb

DATA = Path(os.environ.get("DPVB_DATA", Path(__file__).parents[1] / "data"))
EPSILONS, DELTA, FITS, LONGEST = (0.5, 1.0, 4.0), 1e-6, 10, 20
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "clip_norm=None": {"clip_norm": None},
    "power=1, clip_norm=None": {"power": 1.0, "clip_norm": None},
}


class Population(NamedTuple):
    """All persons: flat codes, a length for each, number of symbols, and persons of a fit."""

    codes: np.ndarray
    lengths: np.ndarray
    symbols: int
    fitted: int


def msnbc() -> Population:
    """Visits of 900,000 users."""
    found = np.load(DATA / "sequences" / "msnbc" / "pages.npz")
    return Population(found["symbols"].astype(int), found["lengths"].astype(int), 17, 70_000)


def biofam() -> Population:
    """States of 2,000 persons at ages 15 to 30."""
    states = np.load(DATA / "sequences" / "biofam" / "biofam.npz")["states"]
    return Population(states.ravel().astype(int), np.full(len(states), states.shape[1]), 8, 20_000)


def diagnosis(code: str) -> int:
    """The group of an ICD-9 code (Strack et al. 2014, table 2)."""
    if not code[:3].isdigit():
        return 8
    number = int(code[:3])
    groups = ((390, 459, 785), (460, 519, 786), (520, 579, 787), (250, 250, 250), (800, 999, 800), (710, 739, 710),
              (580, 629, 788), (140, 239, 140))  # fmt: skip
    return next((k for k, (low, high, other) in enumerate(groups) if low <= number <= high or number == other), 8)


def diabetes() -> Population:
    """Main diagnosis of each stay in hospital of 71,518 patients."""
    with gzip.open(DATA / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        rows = [(int(row["patient_nbr"]), int(row["encounter_id"]), row["diag_1"]) for row in csv.DictReader(file)]
    rows.sort()
    lengths = np.unique([row[0] for row in rows], return_counts=True)[1]
    return Population(np.array([diagnosis(row[2]) for row in rows]), lengths, 9, 70_000)


def frequencies(population: Population, power: float) -> np.ndarray:
    """Frequencies of the whole population, (V, V); NaN for a symbol that nothing follows."""
    codes, lengths, v, _ = population
    person_t = np.repeat(np.arange(len(lengths)), lengths)
    place_t = np.arange(len(codes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.flatnonzero((place_t < LONGEST - 1) & (place_t + 1 < lengths[person_t]))
    weight_n = np.maximum(np.minimum(lengths, LONGEST) - 1, 1.0) ** (power - 1)
    number_vv = np.bincount(codes[at] * v + codes[at + 1], weight_n[person_t[at]], v * v).reshape(v, v)
    with np.errstate(invalid="ignore"):
        return np.asarray(number_vv / number_vv.sum(axis=1, keepdims=True))


def main() -> None:
    warnings.filterwarnings("ignore")
    print("## Intervals of chains on real sequences\n")
    print(
        f"Share of 95 % intervals that hold the frequencies of the whole population, {FITS} fits a line, "
        f"δ = {DELTA:g}, order 1, the first {LONGEST} symbols. Persons of a fit are drawn with replacement: "
        "70,000 of 900,000 users of MSNBC (17 categories of pages), 20,000 of 2,000 life courses (8 states), "
        "70,000 of 71,518 patients "
        "(9 groups of diagnoses). Pooled: all pairs have the same weight. Weighted: as the table states. "
        "Repeats: pooled, only pairs of equal symbols. sd(z): of the errors from the pooled frequencies.\n"
    )
    print("| sequences | settings | ε | pooled | weighted | repeats | sd(z) | median std |")
    print("|---|---|---|---|---|---|---|---|")
    for load in (msnbc, biofam, diabetes):
        population = load()
        v, pooled_vv = population.symbols, frequencies(population, 1.0)
        there_vv = ~np.isnan(pooled_vv)
        persons = np.split(population.codes, np.cumsum(population.lengths)[:-1])
        for name, settings in SETTINGS.items():
            weighted_vv = frequencies(population, settings.get("power", 0.5))
            for epsilon in EPSILONS:
                found = []
                for seed in range(FITS):
                    rng = np.random.default_rng(seed)
                    some = [persons[i] for i in rng.choice(len(persons), population.fitted)]
                    model = dpvb.MarkovChain(v, epsilon=epsilon, delta=DELTA, max_length=LONGEST, **settings)
                    table = model.fit(some).transition_intervals()
                    low, high, mean, std = (
                        np.reshape([getattr(line, what) for line in table], (v, v))
                        for what in ("low", "high", "mean", "std")
                    )
                    inside, own = ((low <= one) & (one <= high) for one in (pooled_vv, weighted_vv))
                    z_vv = (mean - pooled_vv) / std
                    found.append((inside[there_vv].mean(), own[there_vv].mean(), np.nanmean(np.diag(inside)[
                        np.diag(there_vv)]), np.mean(z_vv[there_vv] ** 2), np.median(std)))  # fmt: skip
                pooled, own, repeats, square, std = np.mean(found, axis=0)
                print(f"| {load.__name__} | {name} | {epsilon:g} | {pooled:.3f} | {own:.3f} | {repeats:.3f} | "
                      f"{np.sqrt(square):.2f} | {std:.4f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
