"""Models that learn by gradients as the audit wants them: densities, where JAX is installed, and belief networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.data.tables.design import BinaryMatrix
from dpvb.data.tables.numbers import Numbers
from dpvb.estimators.dpvi import DPVI
from dpvb.estimators.sbn import SigmoidBeliefNetwork
from dpvb.guards.arrays import Floats
from dpvb.models.gradients.variational import GUIDES, Guide

#: Visible units; in the wide network each unit is a canary's own.
VISIBLE, _WIDE = 6, 400
_BUDGET: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def numbers(matrix: Floats, group: Any = None) -> Numbers:
    """Rows of plain numbers."""
    return Numbers(matrix, group=group)


def location(theta: Any, x: Any) -> Any:
    """Log-density of a Gaussian with mean θ, whose gradient x - θ is as long as the row is."""
    return -0.5 * ((x - theta) ** 2).sum()


def density(guide: Guide, width: int = D) -> Case:
    """The case of a guide for the mean of a Gaussian."""
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3
    estimator = DPVI(location, parameters=width, guide=guide, **_BUDGET)
    case = of_estimator(f"DPVI, {guide}", estimator, numbers, partial(table_records, width=width), hostile)
    wide = density(guide, WIDE) if width == D else None
    return replace(case, of_width=partial(density, guide), wide=wide)


def binary(matrix: Floats, group: Any = None) -> BinaryMatrix:
    """Binary vectors."""
    return BinaryMatrix(matrix, group=group)


def network(width: int = VISIBLE, clip: float = 0.05) -> Case:
    """The case of a belief network of three hidden units."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        return (rng.random((n, width)) < 0.4).astype(np.float64)

    axes = np.eye(width)
    hostile = np.vstack([np.zeros(width), np.ones(width), axes, 1 - axes, np.full(width, 0.5)])
    estimator = SigmoidBeliefNetwork(3, clip=clip, start_std=1.0, **_BUDGET)
    case = of_estimator("SigmoidBeliefNetwork", estimator, binary, records, hostile, responses=width, of_width=network)
    return case if width != VISIBLE else replace(case, wide=replace(network(_WIDE, 1.0), hostile=np.eye(_WIDE)))


FORMS: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    "DPVI": {guide: partial(density, guide) for guide in GUIDES if find_spec("jax")},
    "SigmoidBeliefNetwork": {"scores": network},
}
