"""True deltas of neighbours whose unit can be absent: quadrature in the plane, composed by FFT; no accountant is asked.

    python benchmarks/empty_places.py > tests/golden/empty_places.json

A step releases a sum with noise N(0, sigma^2) on each coordinate. With probability 1 - p the unit is not drawn. Three
sums matter: `absent` without the unit, `one` with it and `other` with what stands in its place, in units of C. The laws
of neighbours are (1 - p) N(absent) + p N(one) and (1 - p) N(absent) + p N(other). Contributions are no longer than C,
and two of them are at most ratio * C apart. The sum of nothing is 0.

The losses of a step are computed on a grid of outcomes. Each loss is split between two neighbouring points of a grid of
losses, such that its mean is kept. The composed masses come from an FFT. Each row has epsilons and the larger delta of
the two directions.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Point = tuple[float, float]

_OUTCOMES = (20_000, 500)  # points a coordinate, on a line and in the plane
_LOSSES = 2**20
_BEYOND = 9.0  # standard deviations
_FLOOR = 1e-15  # below it masses are rounding errors of the FFT
_DELTAS = (1e-2, 1e-4, 1e-6)


def step_losses(p: float, sigma: float, centres: Sequence[Point]) -> list[tuple[Floats, Floats]]:
    """Losses of one step's outcomes and their masses, in both directions; `centres`: absent, one and other."""
    means = np.array(centres) / sigma
    number = _OUTCOMES[int(np.ptp(means[:, 1]) > 0)]
    grid = [
        np.linspace(min(mean) - _BEYOND, max(mean) + _BEYOND, number) if np.ptp(mean) else mean[:1] for mean in means.T
    ]
    without, with_one, with_other = (
        np.outer(*(np.exp(-((x - mean) ** 2) / 2) for x, mean in zip(grid, centre, strict=True))).ravel()
        for centre in means
    )
    first, second = (1 - p) * without + p * with_one, (1 - p) * without + p * with_other
    loss = np.log(first) - np.log(second)
    return [(loss, first / first.sum()), (-loss, second / second.sum())]


def composed(losses: Floats, masses: Floats, n_steps: int) -> tuple[Floats, Floats]:
    """Positive losses of so many steps and their masses."""
    mean = float(masses @ losses)
    deviation = math.sqrt(n_steps * float(masses @ (losses - mean) ** 2))
    largest = float(np.abs(losses[masses > _FLOOR]).max())
    h = 2 * (abs(n_steps * mean) + 20 * deviation + largest) / _LOSSES
    place = np.clip(losses / h, -_LOSSES // 2 + 1, _LOSSES // 2 - 2)
    below = np.floor(place).astype(np.int64)
    upper = masses * (place - below)
    histogram = np.bincount(below % _LOSSES, masses - upper, _LOSSES)
    histogram += np.bincount((below + 1) % _LOSSES, upper, _LOSSES)
    found = np.fft.irfft(np.fft.rfft(histogram) ** n_steps, _LOSSES)[1 : _LOSSES // 2]
    kept = np.flatnonzero(found > _FLOOR)
    return h * (kept + 1.0), found[kept]


def profile(p: float, sigma: float, n_steps: int, centres: Sequence[Point]) -> list[tuple[float, float]]:
    """(epsilon, delta) near the deltas that are asked for; the larger delta of both directions."""
    directions = [composed(*direction, n_steps) for direction in step_losses(p, sigma, centres)]

    def at(epsilon: float) -> float:
        return max(float(mass @ np.maximum(0, -np.expm1(np.minimum(epsilon - loss, 0)))) for loss, mass in directions)

    found = []
    for delta in _DELTAS:
        low, high = 0.0, 60.0
        for _ in range(16):  # Few digits of epsilon are enough, as its own delta is computed.
            middle = (low + high) / 2
            low, high = (middle, high) if at(middle) > delta else (low, middle)
        if 0.01 < (epsilon := round(high, 3)) < 59:
            found.append((epsilon, at(epsilon)))
    return found


def neighbours(ratio: float) -> Iterator[tuple[str, str, Point, Point, Point]]:
    """Neighbours whose contributions are ratio * C apart: sampler, relation, and the three sums."""
    cosine = 1 - ratio**2 / 2
    far = (cosine, math.sqrt(max(0.0, 1 - cosine**2)))  # of length 1, ratio from (1, 0)
    along = (1 - ratio, 0.0)  # on the line of (1, 0), ratio from it
    none, one = (0.0, 0.0), (1.0, 0.0)
    yield "fixed_size", "add_or_remove_one", far, one, none  # The unit fills an empty place.
    yield "fixed_size", "add_or_remove_one", none, one, none  # It is alone.
    yield "fixed_size", "add_or_remove_one", far, one, far  # All places are taken by others that are alike.
    yield "fixed_size", "replace_one", none, one, along  # Both are alone.
    yield "fixed_size", "replace_one", far, one, far
    yield "poisson", "replace_one", none, one, along
    yield "poisson", "replace_one", none, one, far


def rows() -> Iterator[dict[str, Any]]:
    """The golden values."""
    plans = ((0.1, 1.0, 1), (0.01, 0.6, 30), (0.002, 0.6, 16_000), (0.3, 4.0, 300))
    for ratio in (0.05, 0.3, 0.7, 1.0, math.sqrt(2), 2.0):
        for p, sigma, n_steps in plans:
            for sampler, relation, absent, one, other in neighbours(ratio):
                yield {
                    "sampler": sampler,
                    "neighboring_relation": relation,
                    "swap_ratio": ratio,
                    "sampling_prob": p,
                    "noise_multiplier": sigma,
                    "n_steps": n_steps,
                    "absent": absent,
                    "one": one,
                    "other": other,
                    "profile": profile(p, sigma, n_steps, (absent, one, other)),
                }


if __name__ == "__main__":
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    found = []
    for row in rows():
        print(len(found), row["sampler"], row["swap_ratio"], row["profile"], file=sys.stderr, flush=True)
        found.append(row)
    lines = ",\n".join(json.dumps(row) for row in found)
    print(f'{{"about": {json.dumps(about)}, "rows": [\n{lines}\n]}}')
