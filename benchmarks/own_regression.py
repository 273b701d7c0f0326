"""Coverage of 95 % intervals of `dpvb.FixedCurvature` in a logistic regression of one's own, on simulated tables.

Rows have four columns and a constant. *usual*: columns are uniform in [-1, 1], half of the labels are ones.
*collinear*: columns are uniform in [0.6, 1], so that the constant explains most of them. *rare*: 2 % of the labels are
ones, and the first score is taken at the mean of the prior. *few*: 3,000 rows.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

import dpvb
from dpvb.data import Response
from dpvb.errors import NotSettledWarning
from dpvb.kernels.linear import product

DELTA, NORMAL_95, FITS, STEPS = 1e-6, 1.959964, 24, 16
EPSILONS = (0.5, 1.0, 4.0)
TRUTH = np.array([0.0, 1.0, -1.0, 0.5, 0.0])
#: Number of rows, lower end of a column, weight of the constant.
DESIGNS = {
    "usual": (20_000, -1.0, 0.0),
    "collinear": (4_400, 0.6, -0.4),
    "rare": (20_000, -1.0, -4.0),
    "few": (3_000, -1.0, 0.0),
}


@dataclass(frozen=True)
class Posterior:
    known: dpvb.FixedCurvature


@dataclass(frozen=True)
class Logit(dpvb.Model):
    width: int
    n_steps: int = STEPS

    @property
    def blocks(self):
        gram = (self.width, self.width)
        return {
            "curvature": dpvb.Block(gram, 1.0, "gram", phase="first"),
            "score": dpvb.Block((self.width,), 1.0, average=False),
            "at_end": dpvb.Block(gram, 1.0, "gram", phase="last"),
        }

    @property
    def schedule(self):
        return dpvb.FixedCurvature.schedule(self.n_steps)

    def init(self, rng):
        return Posterior(dpvb.FixedCurvature.start(np.zeros(self.width), alpha=0.1, n_steps=self.n_steps))

    def e_step(self, q, batch, blocks):
        at_n = product(batch.x_nd, q.known.point_d[:, None])[:, 0]
        g_nd = (batch.y_n - expit(at_n))[:, None] * batch.x_nd
        if "score" in blocks:
            return {"score": dpvb.Rows(g_nd)}
        return {name: dpvb.Gram(g_nd, np.ones(len(g_nd)) + 0 * batch.y_n) for name in blocks}

    def started(self, s, q):
        return Posterior(q.known.with_curvature(s.noisy("curvature"), s.noise_std("curvature")))

    def m_step(self, s, q):
        return Posterior(q.known.with_score(s.noisy("score"), s.noise_std("score")))

    def finished(self, s, q):
        return Posterior(q.known.with_curvature(s.noisy("at_end"), s.noise_std("at_end")))


def measured(design, epsilon, seed):
    """Errors in posterior standard deviations, these deviations, and whether the steps had not settled."""
    rows, low, constant = DESIGNS[design]
    rng = np.random.default_rng(seed)
    x_nd = np.hstack([np.ones((rows, 1)), rng.uniform(low, 1, (rows, 4))])
    truth = np.append(constant, TRUTH[1:])
    y_n = (rng.random(rows) < expit(x_nd @ truth)).astype(int)
    norm = 5**0.5
    model = dpvb.PrivateModel(
        Logit(5), max_row_norm=norm, response=Response("classes", classes=(0, 1)), epsilon=epsilon, delta=DELTA
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        mean_d, covariance_dd = model.fit(x_nd, y_n).q_.known.posterior()
    std_d = np.sqrt(np.diag(covariance_dd))
    return (mean_d - norm * truth) / std_d, std_d, any(issubclass(one.category, NotSettledWarning) for one in said)


def main():
    print("## A regression of one's own: coverage\n")
    print(__doc__.split("\n\n")[1].replace("\n", " "))
    print(f"\nδ = {DELTA:g}, {FITS} tables a line, {STEPS} steps. Prior standard deviation 3.16.\n")
    print("| design | ε | coverage | worst column | largest error in std | mean std | not settled |")
    print("|---|---|---|---|---|---|---|")
    for design in DESIGNS:
        for epsilon in EPSILONS:
            z, std, unsettled = zip(*(measured(design, epsilon, seed) for seed in range(FITS)), strict=True)
            inside = np.abs(z) < NORMAL_95
            print(
                f"| {design} | {epsilon:g} | {inside.mean():.3f} | {inside.mean(axis=0).min():.2f} | "
                f"{np.abs(z).max():.1f} | {np.mean(std):.2f} | {sum(unsettled)} of {FITS} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
