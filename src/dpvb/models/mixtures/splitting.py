"""How many components a mixture has, and where they start: around the one component that came first."""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Components, Posterior


def precision(std: float, releases: int, columns: Columns) -> float:
    """Root of Σ 1/σ² of a whole run but for its check, as its noise is laid out.

    Args:
        std: noise of the number of rows in one of the first releases.
        releases: how many of these there are.
        columns: what is declared.
    """
    noise = std * columns.weights[0] / math.hypot(*columns.weights)
    return math.sqrt(releases / tuned.HOME) / noise if noise > 0 else math.inf


def allowed(number: float, mu: float, columns: Columns) -> float:
    """How many components so many rows allow; mu: root of the budget Σ 1/σ²."""
    size = max(columns.shape.size, len(columns.max_counts), (sum(columns.sizes) - len(columns.sizes)) / tuned.CELLS, 1)
    return min(max(number, 0.0) * min(mu, 1e100) / (tuned.NOISES * size), number / tuned.ROWS)


def kept(number_k: Floats, most: int, mu: float, columns: Columns) -> int:
    """How many components the released number of rows of one allows, at most so many; mu: root of the budget Σ 1/σ²."""
    number = min(float(most), allowed(float(number_k[0]), mu, columns))
    return min(most, max(2, math.floor(number))) if number >= 1 else 1


def split(q: Posterior, number: int, columns: Columns) -> Components:
    """The start of so many components: public random directions around the one that came first."""
    home, used = q.home, np.arange(len(q.direction_kd)) < number
    direction_kd, several = q.direction_kd - q.direction_kd[used].mean(axis=0), float(number > 1)
    if number == 2 and columns.numbers > 1:  # More directions never all miss it.
        direction_kd = _along(direction_kd, home.root_kdd[0])
    # As far apart as rows are, however few directions there are.
    direction_kd *= math.sqrt(number * columns.numbers / max(float(np.square(direction_kd[used]).sum()), 1e-300))
    number_k = np.where(used, home.number_k[0] / number, 0.0)
    tilted_kv = home.expected_kv * np.exp(several * tuned.TILT * q.tilt_kv)
    return Components(
        number_k,
        home.mean_kd + direction_kd @ home.root_kdd[0].T * several,
        np.repeat(narrower(number) * home.root_kdd, len(used), axis=0),
        np.clip(home.rate_kp * np.exp(several * tuned.RATE_TILT * q.tilt_kp), 1e-3, columns.most_p),
        np.maximum(number_k, 1.0)[:, None] * categorical.normalised(tilted_kv, columns.sizes),
        np.repeat(home.wander_k, len(used)),
    )


def _along(direction_kd: Floats, root_dd: Floats) -> Floats:
    """Directions turned towards the axis along which rows spread most, where they would miss it."""
    value_d, vector_dd = np.linalg.eigh(root_dd @ root_dd.T)
    axis_d = np.linalg.solve(root_dd, vector_dd[:, -1]) * math.sqrt(value_d[-1])
    part_k = direction_kd @ axis_d
    least_k = tuned.ALONG * np.linalg.norm(direction_kd, axis=1)
    return direction_kd + np.outer(np.copysign(np.maximum(np.abs(part_k), least_k), part_k) - part_k, axis_d)


def narrower(number: int) -> float:
    """Standard deviations of one of several components, over those of all rows."""
    return math.sqrt(0.5) if number > 1 else 1.0
