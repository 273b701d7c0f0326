"""Majorised steps with momentum from noisy scores, and guards against steps that are too long.

If the curvature is never released, or clipped rows hide a part of it, the majoriser may be too small: then the point
swings across the optimum, farther at each step. But two scores G, G' at points u, u' tell the curvature between them,
(u' - u)ᵀ(G - G'), up to noise of known size. `Descent` goes back to the point of the smallest gradient if that exceeds
what momentum can bear, and its majoriser grows. `StepGuard` and `Steepness` let the majoriser grow where gradients grow
or where scores show more curvature. So the descent is safe on any data.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Positives
from dpvb.models.regression import tuned

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
