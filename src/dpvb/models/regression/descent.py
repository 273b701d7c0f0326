"""Majorised steps with momentum from noisy scores, and guards against steps that are too long.

If the curvature is never released, or clipped rows hide a part of it, the majoriser may be too small: then the point
swings across the optimum, farther at each step. But two scores G, G' at points u, u' tell the curvature between them,
(u' - u)ᵀ(G - G'), up to noise of known size. `Descent` goes back to the point of the smallest gradient if that exceeds
what momentum can bear, and its majoriser grows. `StepGuard` lets the majoriser grow where gradients grow.

*Curvature once, then scores, for a model of one's own* (`FixedCurvature`, which is `dpvb.FixedCurvature`):

    m ~ N(m_0, 1/α),   curvature A of the log-likelihood, released once,   scores G at points u, released at each step
    G ≈ A (m - u) + (sampling noise of variance A) + (privacy noise of variance v)

A model with a likelihood p(y | x, m) releases Σ g gᵀ of its rows' scores g at a start, which estimates the Fisher
information, then Σ g at every step, and Σ g gᵀ once more at the end. Steps are shorter where a score is mostly noise;
the posterior includes the privacy noise.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtri

from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Positives
from dpvb.models.regression import tuned
from dpvb.models.regression.moments import TINY, denoised, edge

# Steps with momentum β are stable if the curvature is at most this many times the majoriser, (2 + 2β) / (1 + 2β).
_BEARABLE = (2 + 2 * tuned.MOMENTUM) / (1 + 2 * tuned.MOMENTUM)
# convention: relative error of a difference of scores by rounding, generously.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class DiagonalAndConstant:
    """Majoriser safety·diag(steep) + common·sum sumᵀ of the curvature; steps add the prior's ridge; vectors (d,)."""

    steep_d: Floats
    ridge_d: Floats
    sum_d: Floats
    common: float

    def quadratic(self, moved_d: Floats, safety: float) -> float:
        """Curvature that the bound allows along a move."""
        return safety * float(self.steep_d @ moved_d**2) + self.common * float(self.sum_d @ moved_d) ** 2

    def diagonal(self, safety: float) -> Floats:
        """Upper bounds on what `solve` multiplies a coordinate by, (d,)."""
        return 1 / (safety * self.steep_d + self.ridge_d)

    def solve(self, gradient_d: Floats, safety: float) -> Floats:
        """Divide a gradient by the bound with the ridge (Sherman & Morrison 1950)."""
        inverse_d = self.diagonal(safety)
        common_d = inverse_d * self.sum_d
        shift = float(common_d @ gradient_d) / (1 / self.common + float(common_d @ self.sum_d))
        return np.asarray(inverse_d * gradient_d - shift * common_d)


@dataclass(frozen=True)
class Descent:
    """A descent under way; public; vectors (d,).

    Attributes:
        point_d: point at which the next score is asked for.
        safety: factor of the majoriser.
        last_d: the same point before momentum was added.
        best_d, least: point of the smallest gradient so far, and the squared length of that gradient.
        before_d, score_d: last point that was scored, and its score.
        variance_d: noise variance of that score.
        noise_curvature: what this noise alone adds, in expectation, to the next measured curvature.
        num_steps: steps since the start or the last return.
    """

    point_d: Floats
    safety: Positive
    last_d: Floats
    best_d: Floats
    before_d: Floats
    score_d: Floats
    variance_d: Nonnegatives
    least: Nonnegative = UNSEEN
    noise_curvature: Nonnegative = 0.0
    num_steps: int = 0

    @classmethod
    def start(cls, point_d: Floats, safety: float) -> Descent:
        """The start at a point."""
        zero_d = np.zeros_like(point_d)
        return cls(point_d, safety, point_d, point_d, point_d, zero_d, zero_d)

    def step(self, score_d: Floats, gradient_d: Floats, variance_d: Floats, majoriser: DiagonalAndConstant) -> Descent:
        """Go uphill with momentum (Nesterov 1983), or back to the best point if steps prove too long.

        Args:
            score_d: noisy gradient of the log likelihood at point_d.
            gradient_d: noisy gradient of the log posterior at point_d.
            variance_d: variance of the noise in both.
            majoriser: majoriser of the curvature.
        """
        if self.num_steps > 0:
            moved_d = self.point_d - self.before_d
            curvature = float(moved_d @ (self.score_d - score_d)) - self.noise_curvature
            noise = math.sqrt(float(np.sum((self.variance_d + variance_d) * moved_d**2)))
            # At the optimum two points differ by rounding only: allow for it, so that it is not taken for curvature.
            noise += _ROUNDING * float(np.linalg.norm(moved_d) * np.linalg.norm(score_d))
            allowed = majoriser.quadratic(moved_d, self.safety)
            if curvature > _BEARABLE * allowed + tuned.SEEN_STD * noise:
                growth = 2.0 * curvature / max(allowed, 1e-3 * curvature)
                safety = self.safety * max(2.0, growth)
                return replace(Descent.start(self.best_d, safety), least=self.least)
        gradient_norm2 = float(np.sum(gradient_d**2 / np.where(variance_d > 0, variance_d, 1.0)))
        smaller = gradient_norm2 < self.least
        best_d, least = (self.point_d, gradient_norm2) if smaller else (self.best_d, self.least)
        k = self.num_steps + 1
        momentum = min(k / (k + 3), tuned.MOMENTUM)
        last_d = self.point_d + majoriser.solve(gradient_d, self.safety)
        point_d = last_d + momentum * (last_d - self.last_d)
        noise_curvature = (1 + momentum) * float(variance_d @ majoriser.diagonal(self.safety))
        return Descent(
            point_d, self.safety, last_d, best_d, self.point_d, score_d, variance_d, least, noise_curvature, k
        )


@dataclass(frozen=True)
class Average:
    """Scores at several points, averaged by inverse noise variance: a score is nearly linear in its point.

    Attributes:
        point_d, score_d: means of points and scores.
        noise: noise variance of the mean score, up to a factor of each coordinate.
    """

    point_d: Floats
    score_d: Floats
    noise: Nonnegative = UNSEEN

    def joined(self, point_d: Floats, score_d: Floats, noise: float) -> Average:
        """The average with one more score in it; a score without noise replaces all others."""
        part = 1.0 if noise == 0 else 1.0 / (1.0 + noise / self.noise)
        mean_point_d = self.point_d + part * (point_d - self.point_d)
        return Average(mean_point_d, self.score_d + part * (score_d - self.score_d), part * noise)


@dataclass(frozen=True)
class StepGuard:
    """A guard against steps that are too long: growing gradients betray a majoriser below the curvature.

    Attributes:
        safety: factor of the majoriser; it is doubled when gradients grow.
        least: smallest mean squared gradient so far; it is doubled with the safety factor.
    """

    safety: Positive = 1.0
    least: Nonnegative = UNSEEN

    def after(self, size: float) -> StepGuard:
        """The guard after a step from a mean squared gradient of this size."""
        if size > tuned.GRADIENT_GROWTH * self.least:
            return StepGuard(2.0 * self.safety, 2.0 * self.least)
        return StepGuard(self.safety, min(self.least, size))


@dataclass(frozen=True)
class FixedCurvature:
    """Parameters m under a curvature that is fixed while scores come in: a part of a model's q; public.

    Attributes:
        prior_d, alpha: mean of the prior, and its precision.
        basis_de, eigenvalue_e: eigenpairs of A.
        hidden: how much larger an eigenvalue may be than it was read through the noise.
        point_e: where the next score is taken, less the prior mean, in the eigenbasis.
        last_e: the same point before momentum was added.
        mean: averages of the points and of the scores there, in the eigenbasis.
        num_steps: how many scores there will be.
        guard: against steps that are too long.
        step: number of scores so far.
    """

    prior_d: Floats
    alpha: Positive
    basis_de: Floats
    eigenvalue_e: Positives
    hidden: float
    point_e: Floats
    last_e: Floats
    mean: Average
    num_steps: int
    guard: StepGuard = field(default_factory=StepGuard)
    step: int = 0

    @classmethod
    def start(cls, prior_d: Floats, *, alpha: float, num_steps: int) -> FixedCurvature:
        """Return the prior, before anything is released.

        Args:
            prior_d: mean of the parameters, (d,), where the first score is taken.
            alpha: precision of the prior of every parameter.
            num_steps: number of scores.
        """
        zero_d, one_d = np.zeros(len(prior_d)), np.ones(len(prior_d))
        mean = Average(zero_d, zero_d)
        return cls(prior_d, alpha, np.diag(one_d), one_d, 0.0, zero_d, zero_d, mean, num_steps)

    @staticmethod
    def schedule(num_steps: int, *, first: float = 0.1, second: float = 0.2, last: float = 0.1) -> Schedule:
        """Return a plan in which later scores are more precise, and the shares of the other releases' budgets."""
        noise = [math.sqrt(num_steps / t) for t in range(1, num_steps + 1)]
        return Schedule(noise, {"first": first, "second": second, "last": last})

    @property
    def point_d(self) -> Floats:
        """The parameters at which the next score is to be taken."""
        return self._back(self.point_e)

    def at(self, point_d: Floats) -> FixedCurvature:
        """Return it with another start, before the curvature is released."""
        point_e = self.basis_de.T @ (point_d - self.prior_d)
        return replace(self, point_e=point_e, last_e=point_e, mean=Average(point_e, 0.0 * point_e))

    def curved(self, curvature_dd: Floats, noise_std: float) -> FixedCurvature:
        """Return it with a curvature, at the start or once more at the end.

        Args:
            curvature_dd: noisy sum over all data of g gᵀ, or another estimate of A, (d, d).
            noise_std: noise of an entry of its diagonal, as `Estimate.noise_std` says it.
        """
        # The spread of the noise's eigenvalues: smaller ones are not told from none.
        least = edge(len(curvature_dd), noise_std) + TINY
        guess_dd = np.diag(np.maximum(np.diag(curvature_dd), least))
        value_e, basis_de = np.linalg.eigh(denoised(curvature_dd, guess_dd, noise_std))
        turn_ee, mean = basis_de.T @ self.basis_de, self.mean
        point_e = turn_ee @ self.point_e
        return replace(
            self,
            basis_de=basis_de,
            eigenvalue_e=np.maximum(value_e, TINY + noise_std),
            hidden=tuned.HIDDEN_EDGE * edge(len(value_e), noise_std),
            point_e=point_e,
            last_e=point_e,
            mean=replace(mean, point_d=turn_ee @ mean.point_d, score_d=turn_ee @ mean.score_d),
            guard=StepGuard(),
        )

    def stepped(self, score_d: Floats, noise_std: float) -> FixedCurvature:
        """Return it after a score at `point_d`.

        Args:
            score_d: noisy sum over all data of the derivatives of the log-likelihood, (d,).
            noise_std: noise of an entry.
        """
        score_e, t = self.basis_de.T @ score_d, self.step + 1
        fresh = noise_std == 0 or self.step < tuned.AVERAGE_START * self.num_steps
        before = Average(self.point_e, score_e) if fresh else self.mean
        mean = before.joined(self.point_e, score_e, noise_std**2)
        gain_e = self.eigenvalue_e / (self.eigenvalue_e + mean.noise)
        gradient_e = gain_e * score_e - self.alpha * self.point_e
        guard = self.guard.after(max(float(np.mean((gradient_e / gain_e) ** 2)), noise_std**2))
        upper_e = guard.safety * (self.eigenvalue_e + self.hidden)
        last_e = self.point_e + gradient_e / (self.alpha + gain_e * upper_e)
        # A majoriser that has grown just now begins without momentum.
        momentum = 0.0 if guard.safety > self.guard.safety else t / (t + 3)
        point_e = last_e + momentum * (last_e - self.last_e)
        return replace(self, point_e=point_e, last_e=last_e, mean=mean, guard=guard, step=t)

    def posterior(self) -> tuple[Floats, Floats]:
        """Mean, (d,), and covariance, (d, d), of the parameters; the covariance includes the privacy noise."""
        gain_e = self.eigenvalue_e / (self.eigenvalue_e + self.mean.noise)
        pull_e = gain_e * (self.eigenvalue_e * self.mean.point_d + self.mean.score_d)
        mean_d = self._back(pull_e / (self.alpha + gain_e * self.eigenvalue_e))
        # Information of the score through its noise, A (A + v)⁻¹ A, by eigenvalues at the low end of what they may be.
        low_e = np.maximum(self.eigenvalue_e - self.hidden, 0.0)
        precision_e = self.alpha + low_e**2 / (low_e + self.mean.noise + TINY)
        return mean_d, (self.basis_de / precision_e) @ self.basis_de.T

    def intervals(self, names: Sequence[str], level: float) -> list[tuple[str, float, float, float]]:
        """Name, posterior mean, and ends of the credible interval of each parameter."""
        mean_d, covariance_dd = self.posterior()
        reach_d = float(ndtri(0.5 + level / 2)) * np.sqrt(np.diag(covariance_dd))
        return list(zip(names, mean_d.tolist(), (mean_d - reach_d).tolist(), (mean_d + reach_d).tolist(), strict=True))

    def _back(self, point_e: Floats) -> Floats:
        return np.asarray(self.prior_d + self.basis_de @ point_e)
