"""Spreads and centres of columns that are products of two others, read beside what their factors say.

The product of two columns about their means is far smaller than they are, and so far harder to see. Of independent
factors the mean roots multiply, and the mean, a covariance, is 0. Both are guesses, which the releases correct by as
much as they are more precise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.declared import Declared

#: E√|z| of a standard normal z.
ROOT_NORMAL = 2**0.25 * math.gamma(0.75) / math.sqrt(math.pi)


class Means(NamedTuple):
    """What the first release says: the columns, û in the units of x, (d,), and its std as a part of the range."""

    declared: Declared
    mean_d: Floats
    error: float


def spreads(means: Means, root_j: Floats, sd_j: Floats, spread_j: Floats, low_j: Floats) -> tuple[Floats, Floats]:
    """Spreads of numeric columns and their low ends, (j,) each, with those of products.

    Args:
        means: the first release.
        root_j, sd_j: mean roots of numeric columns, and std of their noise.
        spread_j, low_j: spreads and their low ends as of columns that are no products.
    """
    numeric_j, (product_p, first_p, second_p) = means.declared.numeric_j, means.declared.products_p3.T
    known_d, low_d = _roots_of_indicators(means)
    known_d[numeric_j], low_d[numeric_j] = (ROOT_NORMAL * np.sqrt(found_j) for found_j in (spread_j, low_j))
    guess_p, least_p = known_d[first_p] * known_d[second_p], low_d[first_p] * low_d[second_p]
    own_p = np.searchsorted(numeric_j, product_p)
    doubt_p = np.hypot(tuned.PRODUCT_DOUBT * guess_p, (guess_p - least_p) / tuned.LOW_STD)
    gain_p = doubt_p**2 / (doubt_p**2 + sd_j[own_p] ** 2 + 1e-300)
    found_p = guess_p + gain_p * (root_j[own_p] - guess_p)
    lowest_p = np.maximum(found_p - tuned.LOW_STD * np.sqrt(gain_p) * sd_j[own_p], np.minimum(least_p, found_p))
    spread_j, low_j = spread_j.copy(), low_j.copy()
    for made_j, part_p in ((spread_j, found_p), (low_j, lowest_p)):
        made_j[own_p] = np.maximum((part_p / ROOT_NORMAL) ** 2, tuned.LEAST_SPREAD)
    return spread_j, low_j


def _roots_of_indicators(means: Means) -> tuple[Floats, Floats]:
    """Mean root √|u - p| of columns that are 0 or 1, whose mean is p, and its low end, (d,)."""
    error = min(means.error, 0.5)
    share_d = np.clip(means.mean_d / means.declared.unit_d, error, 1.0 - error)
    root_d = share_d * np.sqrt(1.0 - share_d) + (1.0 - share_d) * np.sqrt(share_d)
    sd_d = 0.5 * error / np.sqrt(share_d * (1.0 - share_d) + 1e-300)
    return root_d, np.maximum(root_d - tuned.LOW_STD * sd_d, tuned.LEAST_ROOT * root_d)


def centres(means: Means, spread_j: Floats) -> tuple[Floats, Floats]:
    """Centres of numeric columns in the units of x, products among them, and their stds as a part of the range, (d,).

    Args:
        means: the first release.
        spread_j: spreads of numeric columns; that of a product bounds its covariance.
    """
    declared, (product_p, first_p, second_p) = means.declared, means.declared.products_p3.T
    share_d, centre_d = means.mean_d / declared.unit_d, declared.offsets(means.mean_d)
    spread_p = spread_j[np.searchsorted(declared.numeric_j, product_p)]
    noise_p = means.error * np.sqrt(1.0 + share_d[first_p] ** 2 + share_d[second_p] ** 2)
    gain_p = spread_p**2 / (spread_p**2 + noise_p**2 + 1e-300)
    covariance_p = share_d[product_p] - share_d[first_p] * share_d[second_p]
    centre_d[product_p] += gain_p * covariance_p * declared.unit_d[product_p]
    error_d = np.full(len(centre_d), means.error)
    error_d[product_p] = np.sqrt(gain_p) * noise_p
    return centre_d, error_d
