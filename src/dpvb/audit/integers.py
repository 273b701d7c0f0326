"""Releases as the integers that they are made of, and exact norms of their differences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.grids import grids_of
from dpvb.core.plan import Release
from dpvb.core.released import Released
from dpvb.guards.arrays import Ints

Steps = Mapping[str, Ints]

# Beyond, float64 holds no longer every integer.
_EXACT = 2.0**53


def in_steps(released: Released, release: Release, n_units: int | None = None) -> dict[str, Ints]:
    """The integers that a release was made of, (packed shape) for each block.

    Raises:
        ValueError: if a number is not an exact multiple of the public grid's step.
    """
    result = {}
    for name, grid in grids_of(release, n_units).items():
        steps = released.total[name] / grid.step
        if not np.array_equal(steps, np.rint(steps)) or np.abs(steps).max(initial=0.0) >= _EXACT:
            raise ValueError(f"block {name!r} holds numbers that are off its grid.")
        result[name] = steps.astype(np.int64)
    return result


def difference(one: Steps, other: Steps) -> dict[str, Ints]:
    """Return what is in one release more than in another."""
    return {name: one[name] - other[name] for name in one}


def same(one: Steps, other: Steps) -> bool:
    """Whether two releases are equal, bit for bit."""
    return all(np.array_equal(one[name], other[name]) for name in one)


def is_zero(change: Steps) -> bool:
    """Whether nothing changed."""
    return not any(part.any() for part in change.values())


def squared(steps: Ints, block: Block) -> int:
    """Exact squared norm of a packed integer array: off-diagonal entries of a psd block count twice."""
    total = 0
    for part, ratio in block.noise_parts():
        total += round(1 / ratio**2) * sum(int(v) ** 2 for v in steps[part].ravel())
    return total


def relative_norm(change: Steps, release: Release, n_units: int | None = None) -> tuple[dict[str, float], float]:
    """Norm of each block over its bound, and of the scaled concatenation."""
    grids = grids_of(release, n_units)
    own = {
        name: squared(change[name], block) * (grids[name].step / block.bound) ** 2
        for name, block in release.blocks.items()
    }
    joint = sum(release.weights[name] ** 2 * value for name, value in own.items())
    return {name: math.sqrt(value) for name, value in own.items()}, math.sqrt(joint)
