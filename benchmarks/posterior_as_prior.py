"""A posterior that becomes a prior: three disjoint thirds of the rows in sequence, each with the whole budget.

Held-out log-likelihood (of hours, log density) a row, means over splits. "Closed" is the share of the way from one
third alone to the pooled fit of all rows at the same ε that the last fit of the sequence has gone. Where noise decides,
three releases of a third each hold a third of what one release of all rows holds, so that no method closes everything.
The sum of three such releases has the noise of one release of all rows at μ/√3: "three releases, summed" is such a fit.
It sees the curvature and the score of all three before it takes a step, which no sequence does. "Can be" is the share
that it closes. Chance moves both shares, of ten splits by about a tenth, so that either may be ahead of the other.

Of a direction whose errors by noise are 1/P with all rows and τ² a priori, a mean square of τ²/(1 + τ²P/9) is left by
a third, τ²/(1 + τ²P/3) by three and τ²/(1 + τ²P) by all. So from a quarter (τ²P small) to three quarters (τ²P large)
can be closed where noise decides, and three fifths where τ²P is 7; sampling alone lets everything be closed.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

import dpvb
from benchmarks import linear_designs
from benchmarks.coverage_real import read
from benchmarks.linear import mu_of
from benchmarks.peers import protocol
from dpvb.accounting import gaussian
from dpvb.data.tables.columns import Binary
from dpvb.data.tables.schema import Schema, Target
from dpvb.data.tables.table import Table

EPSILONS, DELTA = (0.5, 1.0, 2.0, 4.0), 1e-5


def adult() -> tuple[int, Callable[..., Any], Callable[..., float]]:
    """Number of rows, a fit of some rows with a prior, and the log-likelihood of others: 129 columns, logistic."""
    X, y = protocol.load("adult")
    features = X[:, 1:]

    def fit(rows: np.ndarray, epsilon: float, prior: Any) -> Any:
        given = {"epsilon": epsilon, "delta": DELTA, "max_row_norm": 1.0, "relative_intercept": float(X[0, 0])}
        return dpvb.LogisticRegression(**given, prior=prior).fit(features[rows], y[rows])

    return len(y), fit, lambda model, rows: model.evaluate(features[rows], y[rows], public=True)["log_likelihood"]


def counts() -> tuple[int, Callable[..., Any], Callable[..., float]]:
    """The same for visits to a doctor, counted to 20: negative binomial of dispersion 1.2, minus half the deviance."""
    data, ranges, binary, kind = read(Path(os.environ["DPVB_DATA"]), "NMES1988")
    schema = Schema((*ranges, *map(Binary, binary)), target=Target("y", kind, max_count=20))

    def table(rows: np.ndarray) -> Table:
        return Table({name: value[rows] for name, value in data.items()}, schema)

    def fit(rows: np.ndarray, epsilon: float, prior: Any) -> Any:
        given = {"epsilon": epsilon, "delta": DELTA, "dispersion": 1.2, "max_count": 20}
        return dpvb.NegativeBinomialRegression(**given, prior=prior).fit(table(rows))

    return len(data["y"]), fit, lambda model, rows: -0.5 * model.evaluate(table(rows), public=True)["deviance"]


def hours() -> tuple[int, Callable[..., Any], Callable[..., float]]:
    """The same for hours of work a week, by the columns of the linear benchmark: log density."""
    data, columns, target, (low, high) = linear_designs.load("adult_hours")
    schema = Schema(columns, target=Target(target, kind="numeric", low=low, high=high))

    def table(rows: np.ndarray) -> Table:
        return Table({name: value[rows] for name, value in data.items()}, schema)

    def fit(rows: np.ndarray, epsilon: float, prior: Any) -> Any:
        return dpvb.LinearRegression(epsilon=epsilon, delta=DELTA, prior=prior).fit(table(rows))

    return len(data[target]), fit, lambda model, rows: model.evaluate(table(rows), public=True)["log_density"]


def of_thirds(epsilon: float) -> float:
    """ε of one release whose noise is that of three releases together: μ/√3."""
    third = mu_of(epsilon) / math.sqrt(3)
    return float(brentq(lambda found: gaussian.delta(third, found) - DELTA, 1e-4, epsilon))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10, help="how many; three times as many of NMES1988")
    splits = parser.parse_args().splits
    if "DPVB_DATA" not in os.environ:
        sys.exit("set DPVB_DATA to the folder that holds regression/, counts/ and adult/")
    print("## A posterior that becomes a prior\n")
    print((__doc__ or "").split("\n", 2)[2].strip())
    print(f"\nδ = {DELTA:g}.\n")
    print(
        "| data | ε | splits | a third | first | second | third | three releases, summed | all rows | closed | can be |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, (rows, fit, score), repeats in (
        ("NMES1988 counts", counts(), 3 * splits),
        ("adult, logistic", adult(), splits),
        ("adult, hours", hours(), splits),
    ):
        for epsilon in EPSILONS:
            found = []
            for split in range(repeats):
                train, test = protocol.split(rows, split)
                thirds, prior, steps = np.array_split(train, 3), None, []
                for third in thirds:
                    prior = fit(third, epsilon, prior)
                    steps.append(score(prior, test))
                alone = [steps[0], *(score(fit(third, epsilon, None), test) for third in thirds[1:])]
                both = [score(fit(train, spent, None), test) for spent in (of_thirds(epsilon), epsilon)]
                found.append([float(np.mean(alone)), *steps, *both])
            one, *steps, summed, whole = np.mean(found, axis=0)
            cells = " | ".join(f"{value:.4f}" for value in (one, *steps, summed, whole))
            closed = " | ".join(f"{100 * (value - one) / (whole - one):.0f} %" for value in (steps[-1], summed))
            print(f"| {name} | {epsilon:g} | {repeats} | {cells} | {closed} |", flush=True)


if __name__ == "__main__":
    main()
