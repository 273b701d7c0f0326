"""Guards against steps that are too long: a majoriser below the curvature is found out by the scores, and grows.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Positives
from dpvb.models.regression import tuned


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
