"""Majorised steps with momentum from noisy scores, and guards against steps that are too long.

If the curvature is never released, or clipped rows hide a part of it, the majoriser may be too small: then the point
swings across the optimum, farther at each step. But two scores G, G' at points u, u' tell the curvature between them,
(u' - u)ᵀ(G - G'), up to noise of known size. `Descent` goes back to the point of the smallest gradient if that exceeds
what momentum can bear, and its majoriser grows. `StepGuard` and `Steepness` let the majoriser grow where gradients grow
or where scores show more curvature. So the descent of the shipped regressions is safe on any data.

*Curvature once, then scores, for a model of one's own* (`FixedCurvature`, which is `dpvb.FixedCurvature`):

    m ~ N(m_0, 1/α),   curvature A of the log-likelihood, released once,   scores G at points u, released at each step
    G ≈ A (m - u) + (sampling noise of variance A) + (privacy noise of variance v)

A model with a likelihood p(y | x, m) releases Σ g gᵀ of its rows' scores g at a start, which estimates the Fisher
information, then Σ g at every step, and Σ g gᵀ once more at the end. Steps are those of `Ascent`, and shorter where a
score is mostly noise; the posterior includes the privacy noise.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Positives
from dpvb.models.regression import tuned
from dpvb.models.regression.moments import TINY, denoised, edge

# Steps with momentum β are stable if the curvature is at most this many times the majoriser, (2 + 2β) / (1 + 2β).
_BEARABLE = (2 + 2 * tuned.DESCENT_MOMENTUM) / (1 + 2 * tuned.DESCENT_MOMENTUM)
# Relative error of a difference of scores by rounding, generously.
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
            if curvature > _BEARABLE * allowed + tuned.CURVATURE_STD * noise:
                growth = tuned.CURVATURE_MARGIN * curvature / max(allowed, 1e-3 * curvature)
                safety = self.safety * max(tuned.SAFETY_GROWTH, growth)
                return replace(Descent.start(self.best_d, safety), least=self.least)
        gradient_norm2 = float(np.sum(gradient_d**2 / np.where(variance_d > 0, variance_d, 1.0)))
        smaller = gradient_norm2 < self.least
        best_d, least = (self.point_d, gradient_norm2) if smaller else (self.best_d, self.least)
        k = self.num_steps + 1
        momentum = min(k / (k + 3), tuned.DESCENT_MOMENTUM)
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
class Steepness:
    """Directions in which two scores show more curvature than the majoriser: rows too long to count hid it.

    Attributes:
        factor_e: factors of the majoriser.
        point_e, score_e: the last point, and the score there.
        noise_e: noise variance of that score.
    """

    factor_e: Positives
    point_e: Floats
    score_e: Floats
    noise_e: Nonnegatives

    @classmethod
    def start(cls, point_e: Floats) -> Steepness:
        """Before any score."""
        return cls(np.ones(len(point_e)), point_e, 0 * point_e, np.full(len(point_e), UNSEEN))

    def seen(self, point_e: Floats, score_e: Floats, noise_e: Floats, upper_e: Floats) -> Steepness:
        """After a score, where the majoriser, these factors included, is upper_e.

        Without noise every row counts in full, and nothing is hidden.
        """
        if not noise_e.any():
            return self
        moved_e, bent_e = point_e - self.point_e, self.score_e - score_e
        measured, allowed = float(moved_e @ bent_e), float(upper_e @ moved_e**2)
        noise = math.hypot(*(np.sqrt(np.minimum(self.noise_e + noise_e, UNSEEN)) * moved_e))  # squares may overflow
        factor_e = self.factor_e
        if measured > tuned.BEARABLE * allowed + tuned.CURVATURE_STD * noise:
            beyond_e = np.maximum(moved_e * bent_e - upper_e * moved_e**2, 0.0)
            # Where the excess is spread over many directions, the steepest one still stands for them.
            steep_e = beyond_e >= min(tuned.STEEP_SHARE * beyond_e.sum(), beyond_e.max())
            measured, allowed = float(steep_e @ (moved_e * bent_e)), float(steep_e @ (upper_e * moved_e**2))
            growth = tuned.CURVATURE_MARGIN * measured / max(allowed, 1e-3 * measured)
            factor_e = np.where(steep_e, growth, 1.0) * factor_e
        return Steepness(factor_e, point_e, score_e, noise_e)


@dataclass(frozen=True)
class Ascent:
    """Majorised steps with momentum from noisy scores, in a basis in which the majoriser is diagonal; public.

    Attributes:
        point_e: where the next score is taken.
        last_e: the same point before momentum was added.
        guard, steepness: guards against steps that are too long.
        step: number of steps.
    """

    point_e: Floats
    last_e: Floats
    guard: StepGuard
    steepness: Steepness
    step: int = 0

    @classmethod
    def start(cls, point_e: Floats) -> Ascent:
        """Before any score."""
        return cls(point_e, point_e, StepGuard(), Steepness.start(point_e))

    def guarded(self, score_e: Floats, size: float, noise_e: Floats, upper_e: Floats) -> Ascent:
        """Return the path with its guards after a score.

        Args:
            score_e: noisy gradient of the log likelihood at point_e.
            size: mean squared gradient of the log posterior, in coordinates of equal noise.
            noise_e: noise variance of the score.
            upper_e: the majoriser, without the guards' factors.
        """
        guard = self.guard.after(size)
        steepness = self.steepness.seen(
            self.point_e, score_e, noise_e, guard.safety * upper_e * self.steepness.factor_e
        )
        return replace(self, guard=guard, steepness=steepness, step=self.step + 1)

    def moved(
        self, before: Ascent, gradient_e: Floats, gain_e: Floats, upper_e: Floats, precision_ee: Floats
    ) -> Ascent:
        """Return the path after a step uphill.

        Args:
            before: the path before its guards were brought up to date.
            gradient_e: gradient of the log posterior, its score weighted by gain_e.
            gain_e: weight of each direction's score: 1 without noise, near 0 where the score is mostly noise.
            upper_e: as in `guarded`.
            precision_ee: of the prior.
        """
        bound_ee = precision_ee.copy()
        bound_ee.flat[:: len(gain_e) + 1] += gain_e * (self.guard.safety * upper_e) * self.steepness.factor_e
        last_e = self.point_e + np.linalg.solve(bound_ee, gradient_e)
        # A majoriser that has grown just now begins without momentum.
        grown = self.guard.safety > before.guard.safety
        grown = grown or bool((self.steepness.factor_e > before.steepness.factor_e).any())
        momentum = 0.0 if grown else min(self.step / (self.step + 3), tuned.LARGEST_MOMENTUM)
        return replace(self, point_e=last_e + momentum * (last_e - self.last_e), last_e=last_e)


@dataclass(frozen=True)
class FixedCurvature:
    """Parameters m under a curvature that is fixed while scores come in: a part of a model's q; public.

    Attributes:
        prior_d, alpha: mean of the prior, and its precision.
        basis_de, eigenvalue_e: eigenpairs of A.
        hidden: how much larger an eigenvalue may be than it was read through the noise.
        path: the steps, in the eigenbasis.
        mean: averages of the points and of the scores there, in the eigenbasis.
        num_steps: how many scores there will be.
    """

    prior_d: Floats
    alpha: Positive
    basis_de: Floats
    eigenvalue_e: Positives
    hidden: float
    path: Ascent
    mean: Average
    num_steps: int

    @classmethod
    def start(cls, prior_d: Floats, *, alpha: float, num_steps: int) -> FixedCurvature:
        """Return the prior, before anything is released.

        Args:
            prior_d: mean of the parameters, (d,), where the first score is taken.
            alpha: precision of the prior of every parameter.
            num_steps: number of scores.
        """
        d = len(prior_d)
        zero, nothing = Ascent.start(np.zeros(d)), Average(np.zeros(d), np.zeros(d))
        return cls(prior_d, alpha, np.eye(d), np.ones(d), 0.0, zero, nothing, num_steps)

    @staticmethod
    def schedule(num_steps: int, *, first: float = 0.1, second: float = 0.2, last: float = 0.1) -> Schedule:
        """Return a plan in which later scores are more precise, and the shares of the other releases' budgets."""
        noise = [math.sqrt(num_steps / t) for t in range(1, num_steps + 1)]
        return Schedule(noise, {"first": first, "second": second, "last": last})

    @property
    def point_d(self) -> Floats:
        """The parameters at which the next score is to be taken."""
        return self._back(self.path.point_e)

    def at(self, point_d: Floats) -> FixedCurvature:
        """Return it with another start, before the curvature is released."""
        path = Ascent.start(self.basis_de.T @ (point_d - self.prior_d))
        return replace(self, path=path, mean=Average(path.point_e, 0.0 * path.point_e))

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
        turn_ee = basis_de.T @ self.basis_de
        point_e, mean = turn_ee @ self.path.point_e, self.mean
        mean = replace(mean, point_d=turn_ee @ mean.point_d, score_d=turn_ee @ mean.score_d)
        hidden = tuned.HIDDEN_EDGE * edge(len(value_e), noise_std)
        path = replace(Ascent.start(point_e), step=self.path.step)
        return replace(
            self,
            basis_de=basis_de,
            eigenvalue_e=np.maximum(value_e, TINY + noise_std),
            hidden=hidden,
            path=path,
            mean=mean,
        )

    def stepped(self, score_d: Floats, noise_std: float) -> FixedCurvature:
        """Return it after a score at `point_d`.

        Args:
            score_d: noisy sum over all data of the derivatives of the log-likelihood, (d,).
            noise_std: noise of an entry.
        """
        path, score_e = self.path, self.basis_de.T @ score_d
        fresh = noise_std == 0 or path.step < tuned.AVERAGE_START * self.num_steps
        before = Average(path.point_e, score_e) if fresh else self.mean
        mean = before.joined(path.point_e, score_e, noise_std**2)
        gain_e = self.eigenvalue_e / (self.eigenvalue_e + mean.noise)
        gradient_e = gain_e * score_e - self.alpha * path.point_e
        upper_e, noise_e = self.eigenvalue_e + self.hidden, np.full(len(gain_e), noise_std**2)
        size = max(float(np.mean((gradient_e / gain_e) ** 2)), noise_std**2)
        guarded = path.guarded(score_e, size, noise_e, upper_e)
        precision_ee = self.alpha * np.eye(len(gain_e))
        return replace(self, path=guarded.moved(path, gradient_e, gain_e, upper_e, precision_ee), mean=mean)

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
