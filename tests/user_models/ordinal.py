"""Ordinal regression with proportional odds, by the page docs/new-model.md; unit: a row.

    P(y ≤ j | x) = σ(θ_j - x·β),   θ_j = θ_0 + Σ_{i=1..j} log(1 + exp(m_i)),   m = (θ_0, m_1, ..., β) ~ N(m_0, 1/α)

Gaps between thresholds are positive for every m, so that the log-likelihood has a derivative everywhere, and a score is
bounded. With m_i itself for a gap, cut off where it is not positive, no sum of scores would be 0 at the mode.

=====================  ======================================================================================
model                  code
=====================  ======================================================================================
rows of each level     block "levels", released first: θ of their shares, with β = 0, is where scores begin
Σ g gᵀ at that start   block "information", released second: the Fisher information of m
Σ g at point m         block "score", at every step; g is the derivative of a row's log-likelihood
Σ g gᵀ at the end      block "information_at_end", released last
=====================  ======================================================================================
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, log_expit, logit

import dpvb
from dpvb.kernels.linear import product

# Largest norm of a row's score; steeper rows are clipped.
_BOUND = 2.0
# Share of the steps whose scores FixedCurvature averages.
_AVERAGED = 0.8
# Smallest gap between thresholds at which scores begin.
_LEAST = 0.05


def gaps_of(m):
    """Gaps of the parameters m_1, m_2, ...: log(1 + exp(m))."""
    return np.logaddexp(0.0, m)


@dataclass(frozen=True)
class Odds:
    """q: how parameters are known."""

    known: dpvb.FixedCurvature


@dataclass(frozen=True)
class ProportionalOdds(dpvb.Model):
    """Fields are public: the names of the columns, the number of levels, and the prior of β."""

    columns: tuple[str, ...]
    n_levels: int
    n_steps: int = 16
    alpha: float = 0.1
    prior: tuple[float, ...] = ()
    score_range = (-5.0, 0.0)

    @property
    def names(self):
        gaps = [f"gap {j}" for j in range(1, self.n_levels - 1)]
        return ["threshold", *gaps, *self.columns]

    @property
    def blocks(self):
        p = len(self.names)
        squares = dpvb.Block((p, p), _BOUND**2, "gram", "second")
        return {
            "levels": dpvb.Block((self.n_levels,), 1.0, "nonnegative", "first"),
            "information": squares,
            "score": dpvb.Block((p,), _BOUND, average=False),
            "information_at_end": replace(squares, phase="last"),
        }

    @property
    def schedule(self):
        return dpvb.FixedCurvature.schedule(self.n_steps)

    def init(self, rng):
        prior_p = np.array(self.prior) if self.prior else np.zeros(len(self.names))
        return Odds(dpvb.FixedCurvature.start(prior_p, alpha=self.alpha, n_steps=self.n_steps))

    def thresholds(self, m_p):
        return m_p[0] + np.append(0.0, np.cumsum(gaps_of(m_p[1 : self.n_levels - 1])))

    def parts(self, m_p, batch):
        """Distances of each row to the thresholds above and below its level; its level, 0 where that is faulty."""
        theta_j = self.thresholds(m_p)
        level_n = np.nan_to_num(batch.y_n).astype(int)
        at_n = product(batch.x_nd, m_p[self.n_levels - 1 :, None])[:, 0]
        return np.append(theta_j, np.inf)[level_n] - at_n, np.append(-np.inf, theta_j)[level_n] - at_n, level_n

    def log_likelihoods(self, m_p, batch):
        """log(σ(u) - σ(l)) = log σ(u) + log σ(-l) + log(1 - exp(l - u)), without cancellation."""
        upper_n, lower_n, level_n = self.parts(m_p, batch)
        gap_j = np.concatenate([[np.inf], gaps_of(m_p[1 : self.n_levels - 1]), [np.inf]])
        return log_expit(upper_n) + log_expit(-lower_n) + np.log(-np.expm1(-gap_j))[level_n]

    def scores(self, m_p, batch):
        """Derivative of each row's log-likelihood, (n, p), scaled back to the bound; NaN for a faulty row."""
        upper_n, lower_n, level_n = self.parts(m_p, batch)
        shift_n = 1 - expit(upper_n) - expit(lower_n)
        place_j = np.arange(1, self.n_levels - 1)
        above_nj = place_j < level_n[:, None]  # Gaps below both of a row's thresholds move both of them.
        own_nj = place_j == level_n[:, None]
        # The derivative of its own gap cancels: σ'(u) σ(m) / (σ(u) - σ(l)) = σ(-u) / σ(-l).
        within_n = np.exp(log_expit(-upper_n) - log_expit(-lower_n))
        gap_nj = shift_n[:, None] * expit(m_p[1 : self.n_levels - 1]) * above_nj + within_n[:, None] * own_nj
        g_np = np.hstack([shift_n[:, None], gap_nj, -shift_n[:, None] * batch.x_nd])
        length_n = np.sqrt(np.square(g_np).sum(axis=1))
        return g_np * (np.minimum(1, _BOUND / np.maximum(length_n, 1e-12)) + 0 * batch.y_n)[:, None]

    def e_step(self, q, batch, blocks):
        if "levels" in blocks:
            one_nj = np.where(np.isnan(batch.y_n)[:, None], np.nan, batch.y_n[:, None] == np.arange(self.n_levels))
            return {"levels": dpvb.Rows(one_nj)}
        g_np = self.scores(q.known.point_d, batch)
        if "score" in blocks:
            return {"score": dpvb.Rows(g_np)}
        return {name: dpvb.Gram(g_np / _BOUND, np.full(len(g_np), _BOUND**2) + 0 * batch.y_n) for name in blocks}

    def started(self, s, q):
        if s.phase == "second":
            return Odds(q.known.with_curvature(s.noisy("information"), s.noise_std("information")))
        if self.prior:
            return q
        level_j = np.maximum(s.project("levels"), 3 * s.noise_std("levels") + 1)
        theta_j = logit(np.cumsum(level_j)[:-1] / level_j.sum())
        start_p = np.zeros(len(self.names))
        gap_j = np.maximum(np.diff(theta_j), _LEAST)
        start_p[: len(theta_j)] = np.append(theta_j[0], np.log(np.expm1(gap_j)))
        return Odds(q.known.at(start_p))

    def m_step(self, s, q):
        return Odds(q.known.with_score(s.noisy("score"), s.noise_std("score")))

    def finished(self, s, q):
        return Odds(q.known.with_curvature(s.noisy("information_at_end"), s.noise_std("information_at_end")))

    def intervals(self, q, level):
        found = q.known.intervals(self.names, level)
        inner = [(name, *gaps_of(np.array(ends)).tolist()) for name, *ends in found[1 : self.n_levels - 1]]
        return [found[0], *inner, *found[self.n_levels - 1 :]]

    def score(self, q, batch):
        return self.log_likelihoods(q.known.posterior()[0], batch) + 0 * batch.y_n

    def sample(self, q, n, rng):
        x_nd = rng.uniform(-1, 1, (n, len(self.columns))) / np.sqrt(len(self.columns))
        m_p = q.known.posterior()[0]
        at_n = x_nd @ m_p[self.n_levels - 1 :] + rng.logistic(size=n)
        return x_nd, (at_n[:, None] > self.thresholds(m_p)).sum(axis=1)

    def as_prior(self, q):
        mean_p, covariance_pp = q.known.posterior()
        return {"prior": tuple(mean_p.tolist()), "alpha": float(1 / np.diag(covariance_pp).mean())}

    def expected_accuracy(self, noise, n):
        # A row's squared score is about 1/4 per parameter of size 1/√p.
        information = n / (4 * len(self.names))
        averaged = noise["score"] / np.sqrt(_AVERAGED * self.n_steps)
        return "posterior std of a coefficient", float(np.sqrt(1 / information + (averaged / information) ** 2))
