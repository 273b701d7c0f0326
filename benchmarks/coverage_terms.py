"""Intervals of interactions, splines and dates where declared ranges are too wide, on simulated tables of 20,000 rows.

Five normal columns and a date with correlation 0.35, a natural spline with three knots, indicators with rates 0.3 and
0.05, and interactions: of two numbers, of each indicator with a number, of a spline with an indicator, of both
indicators. Every range is as many times too wide as the table says. True effects are N(0, 0.5²) log odds a standard
deviation, N(0, 0.7²) an indicator, N(0, 0.3²) an interaction, N(0, 1) a knot. Every table has its own.
"""

import argparse
import math
import warnings

import numpy as np
from scipy.special import expit

from dpvb import LogisticRegression
from dpvb.data import Binary, Date, Interaction, Numeric, Schema, Spline, Table, Target
from dpvb.data.tables.ranged import NaturalSpline

ROWS, DELTA, NORMAL_95, FIRST_SEED = 20_000, 1e-5, 1.959964, 1_000
FACTORS, EPSILONS, KNOTS = (1.0, 10.0, 50.0), (0.3, 1.0, math.inf), (-1.5, 0.0, 1.5)
PAIRS = (("z0", "z1"), ("often", "z0"), ("rare", "z2"), ("often", "curve"), ("often", "rare"))
KINDS = {
    "numbers": ["z0", "z1", "z2", "z3", "z4", "day"],
    "knots": ["curve[-1.5]", "curve[1.5]"],
    "indicators": ["often", "rare"],
    "number × number": ["z0:z1"],
    "indicator × number": ["often:z0", "rare:z2"],
    "indicator × knots": ["often:curve[-1.5]", "often:curve[1.5]"],
    "indicator × indicator": ["often:rare"],
}


def measured(seed: int, epsilon: float, factor: float, covariance: str) -> dict[str, tuple[float, float]]:
    """Distance from the truth in stds, and std, of each row of one table of coefficients."""
    rng = np.random.default_rng([seed, ROWS])
    z_nd = math.sqrt(0.65) * rng.standard_normal((ROWS, 7)) + math.sqrt(0.35) * rng.standard_normal((ROWS, 1))
    z_nd = np.clip(z_nd, -3, 3)
    often, rare = (rng.random(ROWS) < rate for rate in (0.3, 0.05))
    cells = {f"z{j}": z_nd[:, j] for j in range(5)} | {"curve": z_nd[:, 5], "often": often + 0, "rare": rare + 0}
    cells["day"] = np.datetime64("2020-01-01") + np.round(365.25 * z_nd[:, 6]).astype("m8[D]")
    knots_nk = NaturalSpline(KNOTS)(z_nd[:, 5])[:, [0, 2]]
    columns = {f"z{j}": z_nd[:, j] for j in range(5)}
    columns |= {"day": (cells["day"] - np.datetime64("2020-01-01")).astype(float) / 365.25}
    columns |= {"curve[-1.5]": knots_nk[:, 0], "curve[1.5]": knots_nk[:, 1], "often": often, "rare": rare}
    for one, other in PAIRS:
        for name in [key for key in columns if key.split("[")[0] == other]:
            columns[f"{one}:{name}"] = columns[one] * columns[name]
    stds = {"numbers": 0.5, "knots": 1.0, "indicators": 0.7}
    truth = {name: stds.get(kind, 0.3) * rng.standard_normal() for kind, names in KINDS.items() for name in names}
    truth["intercept"] = -0.5
    psi_n = truth["intercept"] + sum(truth[name] * value_n for name, value_n in columns.items())
    cells["y"] = (rng.random(ROWS) < expit(psi_n)) + 0

    def ends() -> tuple[float, float]:
        low = -3.0 - 6.0 * (factor - 1.0) * rng.random()
        return low, low + 6.0 * factor

    date_ends = (np.datetime64("2020-01-01") + np.round(365.25 * end).astype("m8[D]") for end in np.array(ends()))
    terms = [Numeric(f"z{j}", *ends()) for j in range(5)]
    terms += [Date("day", *date_ends, epoch="2020-01-01"), Spline("curve", KNOTS, *ends())]
    terms += [Binary("often"), Binary("rare"), *(Interaction(*pair) for pair in PAIRS)]
    model = LogisticRegression(epsilon=epsilon, delta=DELTA, covariance=covariance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(Table(cells, Schema(tuple(terms), Target("y"))))
    return {row.name: ((row.mean - truth[row.name]) / row.std, row.std) for row in model.coefficients()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=24)
    parser.add_argument("--covariance", nargs="*", default=["full"])
    chosen = parser.parse_args()
    print("## Intervals of interactions, splines and dates\n")
    print(" ".join((__doc__ or "").split("\n")[2:6]))
    print(
        f"Nominal 95 %, δ = {DELTA:g}, {chosen.tables} tables a line, seeds from {FIRST_SEED:,} on. Coverage by kind of"
    )
    print("coefficient and, in brackets, the median std over that without noise at the right range; |z| above 4.\n")
    print(f"| covariance | ε | range | all | {' | '.join(KINDS)} | intercept | lies |")
    print("|" + "---|" * (len(KINDS) + 6))
    for covariance in chosen.covariance:
        exact: dict[str, float] = {}
        for epsilon in sorted(EPSILONS, reverse=True):
            for factor in FACTORS:
                seeds = range(FIRST_SEED, FIRST_SEED + chosen.tables)
                found = [measured(seed, epsilon, factor, covariance) for seed in seeds]
                std = {name: float(np.median([one[name][1] for one in found])) for name in found[0]}
                exact = exact or std
                z = {name: np.array([one[name][0] for one in found]) for name in found[0]}
                every = np.concatenate(list(z.values()))
                cells = []
                for names in (*KINDS.values(), ["intercept"]):
                    inside = np.mean([np.abs(z[name]) < NORMAL_95 for name in names])
                    ratio = float(np.median([std[name] / exact[name] for name in names]))
                    cells.append(f"{inside:.3f} ({ratio:.2g})")
                head = f"{covariance} | {epsilon:g} | {factor:g}× | {np.mean(np.abs(every) < NORMAL_95):.3f}"
                print(f"| {head} | {' | '.join(cells)} | {np.mean(np.abs(every) > 4):.1%} |", flush=True)


if __name__ == "__main__":
    main()
