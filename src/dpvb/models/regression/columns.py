"""Reading the columns' second moments from noise, the diagonal counterpart of `curvature`: post-processing.

Given the constant direction, columns are taken as independent: Σ b x xᵀ ≈ diag(D - h∘h/N) + h hᵀ/N with D_j = Σ b x_j²,
h_j = Σ b x_j and N = Σ b. A column of zeros and its bound a_j has h_j = D_j/a_j; for other nonnegative columns that is
a lower bound on h_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.arrays import Bools, Floats
from dpvb.guards.domains import Nonnegatives, Positive
from dpvb.models import empirical_bayes

# Columns whose noisy moment is above so many of its standard deviations are taken as seen.
_SEEN = 3.0


@dataclass(frozen=True)
class Columns:
    """Second moments as read, (d,) each, and N.

    Attributes:
        second_d: D.
        sum_d: h; it explains at most 0.9 of D.
        steep_d: D - h∘h/N, and for columns not seen at least what noise may hide.
        number: N.
        seen_d: columns that stand out of the noise; never the constant one.
    """

    second_d: Nonnegatives
    sum_d: Floats
    steep_d: Nonnegatives
    number: Positive
    seen_d: Bools


def read(noisy_d: Floats, sd: float, bound_d: Floats, number: float, constant: float) -> Columns:
    """Read D from noisy Σ b x_j²/a_j; column 0 is known where there is a constant > 0."""
    first = int(constant > 0)
    second_d = np.full(len(noisy_d), constant**2 * number)
    if len(noisy_d) > first:
        total = max(float(noisy_d[first:].sum()), sd * math.sqrt(len(noisy_d)), 1e-3 * number)
        second_d[first:] = bound_d[first:] * total * empirical_bayes.background(noisy_d[first:], sd)
    seen_d = noisy_d > _SEEN * sd
    sum_d = np.minimum(second_d / bound_d, np.sqrt(0.9 * second_d * number))
    steep_d = np.maximum(second_d - sum_d**2 / number, np.where(seen_d, 0.0, _SEEN * sd * bound_d))
    if first:
        sum_d[0], steep_d[0], seen_d[0] = math.sqrt(0.999) * constant * number, 0.05 * second_d[0], False
    return Columns(second_d, sum_d, steep_d, number, seen_d)
