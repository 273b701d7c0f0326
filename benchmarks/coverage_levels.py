"""Intervals of levels of two categorical columns that nearly determine each other, on simulated tables of 20,000 rows.

Five states and five places: a married person lives with the spouse, and others do not, but for 1 % of rows. Only these
rows determine what every other state adds if every other place takes it away. They are long in the coordinates of
scores, where a row beyond norm 1 has the weight 1/norm in the score. The last release has the slope of that score for
rows up to a norm Λ that is at most 4, and a part of it for longer ones. At Λ = 1 it is that of shortened rows.

    python -m benchmarks coverage_levels
"""

import argparse
import warnings

import numpy as np
from scipy.special import expit

import dpvb
from dpvb.data import Categorical, Schema, Table, Target
from dpvb.models.regression import tuned

ROWS, DELTA, EPSILONS, FIRST_SEED, NORMAL_95 = 20_000, 1e-5, (0.5, 1.0, 4.0), 100, 1.959964
NORMS = (tuned.LAST_NORM, 1.0)
STATES = ("married", "single", "divorced", "widowed", "apart")
PLACES = ("spouse", "alone", "child", "parent", "other")
STATE_EFFECTS = (0.0, -1.6, -1.2, -1.4, -1.0)
PLACE_EFFECTS = (0.0, 1.1, 0.8, 1.3, 0.7)


def measured(seed: int, epsilon: float) -> tuple[list[float], list[float]]:
    """Distance from the truth in stds, positive if an effect is too large, and std, of eight differences of levels."""
    rng = np.random.default_rng(seed)
    share_k = [0.0, 0.5, 0.3, 0.1, 0.1]
    married, odd = rng.random(ROWS) < 0.5, rng.random(ROWS) < 0.01
    state_n = np.where(married, 0, rng.choice(5, ROWS, p=share_k))
    place_n = np.where(married != odd, 0, rng.choice(5, ROWS, p=share_k))
    psi_n = np.array(STATE_EFFECTS)[state_n] + np.array(PLACE_EFFECTS)[place_n]
    cells = {"state": np.array(STATES)[state_n], "place": np.array(PLACES)[place_n]}
    cells["y"] = (rng.random(ROWS) < expit(psi_n)) + 0
    schema = Schema((Categorical("state", STATES), Categorical("place", PLACES)), target=Target("y"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpvb.LogisticRegression(epsilon=epsilon, delta=DELTA).fit(Table(cells, schema))
    rows = {row.name: row for row in model.coefficients()}
    true = dict(zip([f"state={name}" for name in STATES[1:]], STATE_EFFECTS[1:], strict=True))
    true |= dict(zip([f"place={name}" for name in PLACES[1:]], PLACE_EFFECTS[1:], strict=True))
    z = [np.sign(value) * (rows[name].mean - value) / rows[name].std for name, value in true.items()]
    return z, [rows[name].std for name in true]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=20)
    tables = parser.parse_args().tables
    print("## Intervals of levels of nearly collinear categorical columns\n")
    print(" ".join((__doc__ or "").split("\n")[2:6]))
    print(
        f"\n{ROWS:,} rows, nominal 95 %, δ = {DELTA:g}, {tables} tables a line, seeds from {FIRST_SEED} on. At positive"
    )
    print("mean z, effects are too large. The first bound on Λ is that of the library.\n")
    print("| Λ at most | ε | coverage | mean z | largest abs(z) | mean std |\n|---|---|---|---|---|---|")
    for norm in NORMS:
        tuned.LAST_NORM = norm
        for epsilon in EPSILONS:
            z_rd, std_rd = map(
                np.array, zip(*(measured(FIRST_SEED + table, epsilon) for table in range(tables)), strict=True)
            )
            cells = f"{np.mean(np.abs(z_rd) < NORMAL_95):.3f} | {z_rd.mean():+.2f} | {np.abs(z_rd).max():.1f}"
            print(f"| {norm:g} | {epsilon:g} | {cells} | {std_rd.mean():.2f} |", flush=True)


if __name__ == "__main__":
    main()
