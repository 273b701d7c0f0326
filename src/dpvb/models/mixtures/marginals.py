"""What was released of all rows together: columns one by one, and two at a time where a share of the budget paid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positives
from dpvb.models.mixtures import updates
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Posterior


@dataclass(frozen=True)
class Marginals:
    """Released values, and the standard deviations of their noise.

    Attributes:
        number_1: of rows, at least 1.
        mean_d, mean_std_d: means of the numbers, in [-1, 1].
        rate_p, rate_std_p: means of the counts.
        share_v, share_std_v: of categories.
        cell_c, cell_std_1: rows in each cell of the tables of `pairs.Pairs`; empty without a check.
    """

    number_1: Positives
    mean_d: Floats
    mean_std_d: Nonnegatives
    rate_p: Positives
    rate_std_p: Nonnegatives
    share_v: Floats
    share_std_v: Nonnegatives
    cell_c: Floats
    cell_std_1: Nonnegatives


def marginals(q: Posterior, columns: Columns) -> Marginals:
    """What the releases of the one component say of each column, and that of the pairs."""
    home, sums = q.home, q.home_sums
    number_1 = np.maximum(updates.numbers(sums, columns)[0], 1.0)
    std_d = np.sqrt(np.square(home.root_kdd[0]).sum(axis=1))
    wander = math.sqrt(home.wander_k[0])
    share_v = sums.cell_kv[0] / number_1
    return Marginals(
        number_1,
        home.mean_kd[0],
        std_d * wander,
        home.rate_kp[0],
        np.sqrt(home.rate_kp[0]) * wander,
        share_v,
        np.full(len(share_v), math.sqrt(sums.share) * sums.cell_std / number_1[0]),
        q.cell_c,
        np.array([q.cell_std]),
    )
