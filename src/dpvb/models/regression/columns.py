"""Second moments of columns, read from noise: the diagonal counterpart of `curvature`, and post-processing as well.

Columns are taken as independent about their means: Σ b x xᵀ ≈ diag(D - h∘h/N) + h hᵀ/N with D_j = Σ b x_j²,
h_j = Σ b x_j and N = Σ b. If a column only holds 0 or its bound a_j, then h_j = D_j/a_j; for other nonnegative columns
that is a lower bound on h_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.domains import Nonnegatives, Positive
from dpvb.models import empirical_bayes
from dpvb.models.regression import tuned

_NO_MEANS = np.zeros(0)


@dataclass(frozen=True)
class Columns:
    """Second moments as read, (d,) each, and N; public.

    Attributes:
        second_d: D.
        sum_d: h, limited so that the mean explains most of D at most.
        steep_d: D - h∘h/N; for columns that were not seen at least what noise may hide.
        number: N.
        seen_d: whether a column stands out of the noise; never the constant one.
    """

    second_d: Nonnegatives
    sum_d: Floats
    steep_d: Nonnegatives
    number: Positive
    seen_d: Bools


def read(
    noisy_d: Floats, sd: float, bound_d: Floats, number: float, constant: float, mean_j: Floats = _NO_MEANS
) -> Columns:
    """Read D, h and what is seen from noisy Σ b x_j²/a_j, (d,); a positive `constant` is the value of column 0.

    The columns after the constant one whose means, (j,), are known have these.
    """
    first = int(constant > 0)
    second_d = np.full(len(noisy_d), constant**2 * number)
    if len(noisy_d) > first:
        total = max(float(noisy_d[first:].sum()), sd * math.sqrt(len(noisy_d)), tuned.COLUMN_LEAST_TOTAL * number)
        second_d[first:] = bound_d[first:] * total * empirical_bayes.background(noisy_d[first:], sd)
    seen_d = noisy_d > tuned.SEEN_STD * sd
    sum_d = np.minimum(second_d / bound_d, np.sqrt(tuned.MEAN_EXPLAINS * second_d * number))
    known = slice(first, first + len(mean_j))
    limit_j = np.sqrt(tuned.MEAN_EXPLAINS * second_d[known] * number)
    sum_d[known] = np.clip(number * mean_j, -limit_j, limit_j)
    steep_d = np.maximum(second_d - sum_d**2 / number, np.where(seen_d, 0.0, tuned.SEEN_STD * sd * bound_d))
    if first:
        sum_d[0] = math.sqrt(tuned.CONSTANT_EXPLAINS) * constant * number
        steep_d[0], seen_d[0] = tuned.CONSTANT_STEEP * second_d[0], False
    return Columns(second_d, sum_d, steep_d, number, seen_d)
