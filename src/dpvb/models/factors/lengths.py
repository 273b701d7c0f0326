"""The radius in which rows are summed: of all that the released lengths allow, the one with the least error.

A short radius shortens the longest rows; a long one pays for them with noise, which grows with its square.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.factors import tuned


class Radius(NamedTuple):
    """A radius R, and E(ℓ² - R²)₊ / E min(ℓ², R²): what shortening takes, relative to what it leaves."""

    radius: float
    lost: float


def edges(mean_d: Floats, scale_d: Floats) -> Floats:
    """Upper ends of the bins of ‖(y - m)/s‖, but for the last, which has none, (bins - 1,)."""
    return _ends(mean_d, scale_d)[1:-1]


def in_bins(length_n: Floats, edge_b: Floats) -> Floats:
    """Each length as a row with a 1 in its bin, (n, bins); NaN throughout for what is no finite number."""
    row_nb = np.zeros((len(length_n), len(edge_b) + 1))
    row_nb[np.arange(len(length_n)), np.searchsorted(edge_b, length_n)] = 1.0
    row_nb[~np.isfinite(length_n)] = np.nan
    return row_nb


def chosen(found_b: Floats, sd: float, mean_d: Floats, scale_d: Floats, noise: float) -> Radius:
    """The radius with the least error of the second moments, in the Frobenius norm.

    Args:
        found_b: noisy numbers of rows in each bin, (bins,).
        sd: std of their noise.
        mean_d, scale_d: what lengths were measured with.
        noise: noise std of a second moment on the diagonal, over the square of the radius.
    """
    end_b, d = _ends(mean_d, scale_d), len(mean_d)
    share_b = _seen(found_b, sd)
    if not share_b.any():  # Nothing is known: no row is shortened.
        return Radius(float(end_b[-1]), 0.0)
    share_b /= share_b.sum()
    square_b = end_b[1:] * np.maximum(end_b[:-1], 0.5 * end_b[1:])
    end_b = end_b[1:] * (1.0 + 1e-12)
    lost_b = np.array([share_b @ np.maximum(square_b - end * end, 0.0) for end in end_b])
    kept_b = np.array([share_b @ np.minimum(square_b, end * end) for end in end_b])
    bias_b = tuned.LOST_WEIGHT * lost_b / math.sqrt(min(d, tuned.LARGE_VALUES))
    error_b = np.hypot(bias_b, noise * end_b**2 * math.sqrt(d * (d + 1) / 2))
    longest = int(np.flatnonzero(share_b)[-1])
    best = int(np.argmin(error_b[: longest + 1]))
    return Radius(float(end_b[best]), float(lost_b[best] / kept_b[best]))


def _seen(found_b: Floats, sd: float) -> Floats:
    """The bins around the fullest one up to the first on each side that is lost in noise, and others beyond doubt.

    Several bins together say whether there are rows at all.
    """
    together_b = np.convolve(found_b, np.ones(tuned.TOGETHER), "same")
    if together_b.max() <= tuned.CERTAIN * sd * math.sqrt(tuned.TOGETHER):
        return np.zeros(len(found_b))
    near_b = np.abs(np.arange(len(found_b)) - int(together_b.argmax())) <= tuned.TOGETHER // 2
    mode, empty = int(np.where(near_b, found_b, -np.inf).argmax()), np.flatnonzero(found_b <= sd)
    seen_b = found_b > tuned.CERTAIN * sd
    seen_b[max(empty[empty < mode], default=-1) + 1 : min(empty[empty > mode], default=len(found_b))] = True
    return np.where(seen_b, found_b, 0.0)


def _ends(mean_d: Floats, scale_d: Floats) -> Floats:
    """All ends of the bins, from 0 to the largest length that a row of norm 1 can have, (bins + 1,)."""
    top = (1.0 + float(np.linalg.norm(mean_d))) / float(scale_d.min())
    return np.append(0.0, top * 10.0 ** (-tuned.DECADES * np.arange(tuned.BINS - 1, -1, -1) / tuned.BINS))
