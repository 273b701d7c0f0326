"""Belief networks as the audit wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data.tables.design import BinaryMatrix
from dpvb.estimators.sbn import SigmoidBeliefNetwork
from dpvb.guards.arrays import Floats

#: Visible units, and those of the wide model, each of which is a canary's own.
VISIBLE, _WIDE = 6, 400


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """The one case."""
    return {"scores": _case}


def binary(matrix: Floats, group: Any = None) -> BinaryMatrix:
    """Binary vectors."""
    return BinaryMatrix(matrix, group=group)


def of_width(width: int = VISIBLE, clip: float = 0.05) -> Case:
    """The case of a belief network of three hidden units."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        return (rng.random((n, width)) < 0.4).astype(np.float64)

    axes = np.eye(width)
    hostile = np.vstack([np.zeros(width), np.ones(width), axes, 1 - axes, np.full(width, 0.5)])
    estimator = SigmoidBeliefNetwork(3, clip=clip, start_std=1.0, epsilon=1.0, delta=1e-6)
    case = of_estimator("SigmoidBeliefNetwork", estimator, binary, records, hostile)
    return replace(case, responses=width, of_width=of_width)


def _case() -> Case:
    wide = replace(of_width(_WIDE, 1.0), name="SigmoidBeliefNetwork, wide", hostile=np.eye(_WIDE))
    return replace(of_width(), wide=wide)
