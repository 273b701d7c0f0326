"""Analyses of synthetic tables: how often intervals hold the truth, on made-up rows and on adult.

Needs DPVB_DATA, the folder that holds adult/.
"""

import math

import numpy as np

import dpvb
from benchmarks import mixtures
from dpvb.data import Binary, Numeric, Schema

FITS = 200


def made_up(rng: np.random.Generator, n: int) -> dict:
    """A number, one that follows it, and a coin, in two groups that overlap little."""
    one = rng.random(n) < 0.4
    x = np.where(one, rng.normal(-1.5, 0.6, n), rng.normal(1.5, 0.8, n))
    y = 0.5 * x + rng.normal(0, 0.7, n) + np.where(one, 0, 0.6)
    return {"x": x, "y": y, "flag": (rng.random(n) < np.where(one, 0.8, 0.3)).astype(int)}


def analyses(rows, first: str, second: str, third: str) -> list[tuple[float, float]]:
    """A mean, and a coefficient of the first of two columns that predict a third, each with its variance."""
    x, y, z = (np.asarray(rows[name], dtype=np.float64) for name in (first, second, third))
    design = np.column_stack([np.ones(len(x)), x, z])
    inverse = np.linalg.inv(design.T @ design)
    coef = inverse @ design.T @ y
    return [(x.mean(), x.var() / len(x)), (coef[1], inverse[1, 1] * (y - design @ coef).var())]


def main() -> None:
    """How often 95 % intervals hold the truth: of ten synthetic tables combined, and of one."""
    simple = Schema((Numeric("x", -5, 5), Numeric("y", -5, 5), Binary("flag")))
    columns = mixtures.adult()[0]
    sex = np.unique(columns["sex"], return_inverse=True)[1]
    own = {"age": columns["age"], "hours": columns["hours"], "sex": sex, "income": columns["income"]}
    small = Schema(
        (
            Numeric("age", 17, 90),
            Numeric("hours", 1, 99),
            Binary("sex"),
            Binary("income", tuple(sorted({*own["income"]}))),
        )
    )
    cells = [("made up", simple, ("x", "y", "flag"), 3000, epsilon, 2) for epsilon in (0.5, 1.0, math.inf)]
    cells.append(("adult", small, ("age", "hours", "sex"), 5000, 1.0, 10))
    print("## Analyses of synthetic tables\n")
    print(
        "\n| rows | N | ε | groups | what | covered by ten tables | by one | std said over std seen |\n|" + "---|" * 8
    )
    for name, schema, names, number, epsilon, groups in cells:
        truth = analyses(made_up(np.random.default_rng(99), 4_000_000) if name == "made up" else own, *names)
        held, alone, errors, said = (np.zeros((FITS, 2)) for _ in range(4))
        for seed in range(FITS):
            rng = np.random.default_rng(seed)
            chosen = rng.permutation(len(sex))[:number]
            rows = made_up(rng, number) if name == "made up" else {key: part[chosen] for key, part in own.items()}
            model = dpvb.Mixture(groups, epsilon=epsilon, delta=mixtures.DELTA, random_state=seed).fit(
                dpvb.Table(rows, schema)
            )
            found = [analyses(model.sample(10_000, rng, parameters="draw"), *names) for _ in range(10)]
            for place in range(2):
                value, variance = zip(*(one[place] for one in found), strict=True)
                whole = dpvb.combine_synthetic(value, variance)
                held[seed, place] = whole.low <= truth[place][0] <= whole.high
                alone[seed, place] = abs(value[0] - truth[place][0]) <= 1.96 * math.sqrt(variance[0])
                errors[seed, place], said[seed, place] = whole.mean - truth[place][0], whole.std
        for place, what in enumerate(("mean", "coefficient")):
            parts = held[:, place].mean(), alone[:, place].mean(), np.median(said[:, place]) / errors[:, place].std()
            shown = " | ".join(f"{part:.3f}" for part in parts)
            print(f"| {name} | {number:,} | {epsilon:g} | {groups} | {what} of {names[0]} | {shown} |", flush=True)
    print(
        f"\n{FITS} fits in a cell, of each ten tables of 10,000 rows. The rows of adult are drawn from all "
        "of them, whose values are the truth; they are not those of a mixture."
    )


if __name__ == "__main__":
    main()
