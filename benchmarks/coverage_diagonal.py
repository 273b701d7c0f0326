"""Coverage of 95 % intervals of the diagonal first-order solver, noise-aware and naive, on simulated data."""

import os
import sys
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, ndtri

from dpvb.core.model import updated
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.tuned import RARE_STD

EPSILONS = (0.5, 1.0, 2.0, 4.0)
NUM_ROWS, NUM_COLUMNS, CONSTANT = 20_000, 200, 0.4
NUM_SETS = int(os.environ.get("COVERAGE_SETS", "100"))
WEIGHT_SD = 3.0
LEVEL = 0.95


@dataclass
class Noisy:
    """Stands in for the estimate: sums in float64 with normal noise, since the wall's grid is far below the noise."""

    total: dict = field(default_factory=dict)
    sd: dict = field(default_factory=dict)

    @property
    def names(self):
        return frozenset(self.total)

    def noisy(self, name):
        return self.total[name]

    def noise_std(self, name):
        return self.sd[name]


def simulate(rng):
    """Rows (c0, x) with normal x of squared norm 0.7 on average, clipped to norm 1, and labels."""
    room = np.sqrt(1 - CONSTANT**2)
    x = rng.standard_normal((NUM_ROWS, NUM_COLUMNS - 1)) * np.sqrt(0.7 / NUM_COLUMNS)
    x *= np.minimum(1.0, room / np.linalg.norm(x, axis=1))[:, None]
    x = np.hstack([np.full((NUM_ROWS, 1), CONSTANT), x])
    weights = WEIGHT_SD * rng.standard_normal(NUM_COLUMNS)
    weights[0] = -1.0
    return x, (rng.random(NUM_ROWS) < expit(x @ weights)).astype(float), weights


def sums(q, x, y, norm, bound, blocks):
    """Exact sums of what the model's rows contribute to the blocks."""
    if "second" in blocks:
        second = np.einsum("nd,nd->d", x, x) / bound
        second[0] = 0.0
        return {"count": np.array([y.sum(), len(y) - y.sum()]), "second": second}
    psi = x @ q.descent.point_d
    residual = (y - expit(psi)) / np.maximum(norm, 1.0)
    trace = 4 * expit(psi) * expit(-psi) * np.minimum(norm, 1.0)
    variance = [trace @ np.minimum(norm, RARE_STD) / RARE_STD, trace @ np.minimum(norm, 1.0)]
    return {"score": residual @ x / q.scale_d, "variance": np.array(variance)}


def main() -> None:
    rng = np.random.default_rng(20)
    bound = np.append(CONSTANT, np.full(NUM_COLUMNS - 1, 4 * np.sqrt(0.7 / NUM_COLUMNS)))
    model = FirstOrderDiagonal(NUM_COLUMNS, intercept=CONSTANT, max_abs_value=bound)
    relative = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    plans = {epsilon: calibrated(relative, epsilon=epsilon, delta=1e-5) for epsilon in EPSILONS}
    rows = {epsilon: [] for epsilon in EPSILONS}
    z = ndtri(0.5 + LEVEL / 2)
    for number in range(NUM_SETS):
        x, y, truth = simulate(rng)
        for epsilon, plan in plans.items():
            q, s, norm = model.init(rng), Noisy(), np.zeros(len(y))
            for release in plan:
                for name, total in sums(q, x, y, norm, bound, release.blocks).items():
                    s.sd[name] = release.noise_std(name)
                    s.total[name] = total + s.sd[name] * rng.standard_normal(total.shape)
                s.phase = next(iter(release.asked.values())).phase
                q = updated(model, s, q)
                if q.step == 0:
                    norm = np.sqrt((x * x) @ q.scale_d**-2)
            w = model.table(q)
            error = np.abs(w.mean_d - truth)
            aware, naive = np.sqrt(w.covariance), np.sqrt(w.naive_covariance)
            rows[epsilon].append(
                [np.mean(error <= z * aware), np.mean(error <= z * naive), aware.mean(), np.mean(error**2)]
            )
        print(f"data set {number + 1} of {NUM_SETS}", file=sys.stderr, flush=True)
    print(f"""## Intervals of the diagonal first-order solver

{NUM_ROWS:,} simulated rows of a logistic model, {NUM_COLUMNS} coefficients: normal features of squared norm 0.7 on
average, clipped to norm 1 with the intercept's constant {CONSTANT}; true weights N(0, {WEIGHT_SD:g}²),
the intercept's -1; delta = 1e-5. Nominal 95 %; {NUM_SETS * NUM_COLUMNS:,} intervals a cell of {NUM_SETS} data
sets. Sums here are in float64 with normal noise.

| epsilon | noise-aware coverage | naive coverage | mean standard deviation | root mean square error |
|---|---|---|---|---|""")
    for epsilon, values in rows.items():
        aware, naive, sd, square_error = np.mean(values, axis=0)
        print(f"| {epsilon:g} | {aware:.3f} | {naive:.3f} | {sd:.2f} | {np.sqrt(square_error):.2f} |")


if __name__ == "__main__":
    main()
