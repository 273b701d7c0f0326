"""Majorised steps with momentum from noisy scores, and a guard against steps that are too long.

Everything here is post-processing of released numbers and costs no privacy. A majoriser that is only guessed, as one
must where the matrix is never released, may be too small: then the point swings across the optimum, farther at each
step. But two scores G, G' at points u, u' tell the curvature between them, (u' - u)ᵀ(G - G'), up to noise of known
size; where it exceeds what momentum can bear, the path goes back to the point of the smallest gradient and the
majoriser grows fourfold or more. So the path is safe on any data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive

_MOMENTUM = 0.9
# Steps with momentum β are stable up to this many times the majoriser, (2 + 2β) / (1 + 2β).
_BEARABLE = (2 + 2 * _MOMENTUM) / (1 + 2 * _MOMENTUM)
# Standard deviations of noise that the curvature must exceed.
_BEYOND = 3.0
_ROUNDING = 1e-7


@dataclass(frozen=True)
class DiagonalAndConstant:
    """safety·diag(steep) + common·sum sumᵀ bounds the curvature; the ridge of the prior is added for steps; (d,)."""

    steep_d: Floats
    ridge_d: Floats
    sum_d: Floats
    common: float

    def quadratic(self, moved_d: Floats, safety: float) -> float:
        """Curvature that the bound allows along a move."""
        return safety * float(self.steep_d @ moved_d**2) + self.common * float(self.sum_d @ moved_d) ** 2

    def diagonal(self, safety: float) -> Floats:
        """What `solve` multiplies a coordinate by, at most."""
        return 1 / (safety * self.steep_d + self.ridge_d)

    def solve(self, gradient_d: Floats, safety: float) -> Floats:
        """Divide a gradient by the bound with the ridge (Sherman & Morrison 1950)."""
        inverse_d = self.diagonal(safety)
        common_d = inverse_d * self.sum_d
        shift = float(common_d @ gradient_d) / (1 / self.common + float(common_d @ self.sum_d))
        return np.asarray(inverse_d * gradient_d - shift * common_d)


@dataclass(frozen=True)
class Descent:
    """A path; vectors (d,).

    Attributes:
        point_d: where the next score is asked for.
        safety: factor of the majoriser.
        last_d: the point before momentum.
        best_d, least: point and squared length of the smallest gradient so far.
        before_d, score_d: last point that was scored, and its score.
        variance_d, echo: noise of that score, and its expected share in the next curvature.
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
    echo: Nonnegative = 0.0
    num_steps: int = 0

    @classmethod
    def start(cls, point_d: Floats, safety: float) -> Descent:
        """Begin at a point."""
        zero_d = np.zeros_like(point_d)
        return cls(point_d, safety, point_d, point_d, point_d, zero_d, zero_d)

    def step(self, score_d: Floats, gradient_d: Floats, variance_d: Floats, majoriser: DiagonalAndConstant) -> Descent:
        """Go uphill with momentum (Nesterov 1983), or back where steps prove too long.

        Args:
            score_d: gradient of the log likelihood at point_d, noisy.
            gradient_d: the same with the prior's part.
            variance_d: of the noise in the score.
            majoriser: of the curvature.
        """
        if self.num_steps > 0:
            moved_d = self.point_d - self.before_d
            curvature = float(moved_d @ (self.score_d - score_d)) - self.echo
            noise = math.sqrt(float(np.sum((self.variance_d + variance_d) * moved_d**2)))
            # Rounding, which is all that is left between points at the optimum, shows no curvature.
            noise += _ROUNDING * float(np.linalg.norm(moved_d) * np.linalg.norm(score_d))
            allowed = majoriser.quadratic(moved_d, self.safety)
            if curvature > _BEARABLE * allowed + _BEYOND * noise:
                longer = self.safety * max(4.0, 2.0 * curvature / max(allowed, 1e-3 * curvature))
                return replace(Descent.start(self.best_d, longer), least=self.least)
        even = float(np.sum(gradient_d**2 / np.where(variance_d > 0, variance_d, 1.0)))
        best_d, least = (self.point_d, even) if even < self.least else (self.best_d, self.least)
        k = self.num_steps + 1
        momentum = min(k / (k + 3), _MOMENTUM)
        last_d = self.point_d + majoriser.solve(gradient_d, self.safety)
        point_d = last_d + momentum * (last_d - self.last_d)
        echo = (1 + momentum) * float(variance_d @ majoriser.diagonal(self.safety))
        return Descent(point_d, self.safety, last_d, best_d, self.point_d, score_d, variance_d, least, echo, k)


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
        """The average with one more score in it; one without noise stands alone."""
        part = 1.0 if noise == 0 else 1.0 / (1.0 + noise / self.noise)
        mean_point_d = self.point_d + part * (point_d - self.point_d)
        return Average(mean_point_d, self.score_d + part * (score_d - self.score_d), part * noise)
