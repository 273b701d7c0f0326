"""Private gradients as the audit wants them: for the mean of a Gaussian, where JAX is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.data.tables.numbers import Numbers
from dpvb.estimators.dpvi import DPVI
from dpvb.guards.arrays import Floats
from dpvb.models.gradients.variational import GUIDES


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A case for each guide."""
    return {guide: partial(_case, guide) for guide in GUIDES if find_spec("jax")}


def numbers(matrix: Floats, group: Any = None) -> Numbers:
    """Rows of plain numbers."""
    return Numbers(matrix, group=group)


def location(theta: Any, x: Any) -> Any:
    """Log-density of a Gaussian with mean θ, whose gradient x - θ is as long as the row is."""
    return -0.5 * ((x - theta) ** 2).sum()


def of_guide(guide: str, width: int = D) -> Case:
    """The case of a guide."""
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3
    estimator = DPVI(location, parameters=width, guide=guide, epsilon=1.0, delta=1e-6)
    case = of_estimator(f"DPVI, {guide}", estimator, numbers, partial(table_records, width=width), hostile)
    return replace(case, of_width=partial(of_guide, guide))


def _case(guide: str) -> Case:
    return replace(of_guide(guide), wide=replace(of_guide(guide, WIDE), name=f"DPVI, {guide}, wide"))
