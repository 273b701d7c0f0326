"""Factor analysis and principal components as the audit wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.schedule import constant
from dpvb.core.wall import Wall
from dpvb.data.tables.design import Design
from dpvb.estimators import factors
from dpvb.guards.arrays import Floats


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """The one case."""
    return {"three_releases": partial(_case, name)}


def rows(matrix: Floats, group: Any = None) -> Design:
    """Rows without a response."""
    return Design(matrix, group=group)


def of_kind(name: str, width: int = D) -> Case:
    """The case of a factor model of rows of norm 1: q comes from a noisy run over ordinary rows."""
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3
    estimator = getattr(factors, name)(min(2, width), row_norm=1.0, epsilon=1.0, delta=1e-6)
    records = partial(table_records, width=width)

    def begin(seed: int) -> Any:
        model = case.model
        plan = phased(model.blocks, FullBatch(), [0.3, 0.3], shares=model.schedule.budget)
        wall: Wall[Any] = Wall(rows(records(np.random.default_rng(seed), 200)), plan, noise=InsecureNoise(seed))
        return loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(seed))[0]

    case = of_estimator(name, estimator, rows, records, hostile, begin=begin)
    return replace(case, of_width=partial(of_kind, name))


def _case(name: str) -> Case:
    wide = replace(of_kind(name, WIDE), name=f"{name}, wide", begin=None)
    return replace(of_kind(name), wide=wide)
