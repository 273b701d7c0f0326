"""Mixtures as the audit wants them: of numbers alone, and of numbers, counts and categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dpvb.audit.cases import WIDE, Case, D, of_estimator
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.schedule import constant
from dpvb.core.wall import Wall
from dpvb.data import Binary, Categorical, Numeric, Schema, Table
from dpvb.data.tables.mixed import Layout, Mixed
from dpvb.estimators.mixture import GaussianMixture, Mixture
from dpvb.guards.arrays import Floats

# Ranges of the made-up numbers, and the number of groups.
_ENDS, _GROUPS = (-2.0, 2.0), 3
_CATEGORIES = (0, 1, 2)


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Of a plain matrix, with all covariances and with none; of a table with columns of all kinds."""
    if name == "GaussianMixture":
        return {covariance: partial(of_numbers, covariance) for covariance in ("full", "diag")}
    return {"": of_table}


def of_numbers(covariance: str, width: int = D) -> Case:
    """The case of a Gaussian mixture."""
    given: dict[str, Any] = {"low": _ENDS[0], "high": _ENDS[1], "epsilon": 1.0, "delta": 1e-6}
    estimator = GaussianMixture(_GROUPS, covariance_type=covariance, prune=False, **given)
    schema = Schema(tuple(Numeric(f"x{place}", *_ENDS) for place in range(width)))

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0) + 0.3 * rng.standard_normal((n, width))

    axes, signs = np.eye(width), np.array([*product(_ENDS, repeat=min(width, D))])
    corners = np.hstack([signs, np.zeros((len(signs), width - signs.shape[1]))])
    hostile = np.vstack([np.zeros(width), axes * 1e3, -axes, corners, np.full(width, 1e308)])
    named = f"GaussianMixture, {covariance}"
    case = of_estimator(named, estimator, partial(_rows, Layout.of(schema)), records, hostile)
    case = replace(case, clip="joint", begin=partial(_begin, case))
    if width != D:
        return case
    case = replace(case, of_width=partial(of_numbers, covariance))
    if covariance == "diag":
        return case
    wide = replace(of_numbers("diag", WIDE), name="GaussianMixture, wide", hostile=2 * np.eye(WIDE))
    return replace(case, wide=wide)


def of_table() -> Case:
    """The case of a mixture of a number, a count, and two columns of categories."""
    columns = Numeric("x", *_ENDS), Numeric("count", 0, 9)
    schema = Schema((*columns, Categorical("choice", _CATEGORIES, unseen=False, missing=False), Binary("flag")))
    estimator = Mixture(_GROUPS, counts="count", prune=False, check_share=0.1, epsilon=1.0, delta=1e-6)

    def records(rng: np.random.Generator, n: int) -> Floats:
        numbers = rng.standard_normal((n, 1)), rng.poisson(2.0, (n, 1))
        return np.hstack([*numbers, rng.integers(3, size=(n, 1)), rng.integers(2, size=(n, 1))])

    ends = (-1.0, 0.0), (1.0, 9.0), (1e300, 1e300)
    hostile = np.array([[*end, choice, flag] for choice in _CATEGORIES for flag in (0, 1) for end in ends])

    def fitted(matrix: Floats) -> Mapping[str, Any]:
        return {"X": _table(matrix, schema)}

    case = of_estimator(
        "Mixture", estimator, partial(_rows, Layout.of(schema, ("count",))), records, hostile, fitted, responses=4
    )
    return replace(case, clip="joint", begin=partial(_begin, case))


def _rows(layout: Layout, matrix: Floats, group: Any = None) -> Mixed:
    """A matrix as rows of a mixture, its columns in the order of a layout."""
    cells = {name: matrix[:, place] for place, name in enumerate(layout.order)}
    return Mixed(layout.rows(cells, np.zeros(len(matrix), dtype=np.bool_), frozenset()), group)


def _table(matrix: Floats, schema: Schema) -> Table:
    """A matrix as a table, its columns in the order of a schema."""
    return Table({column.name: matrix[:, place] for place, column in enumerate(schema.own_columns)}, schema)


def _begin(case: Case, seed: int) -> Any:
    """All groups after a short noisy run."""
    plan = phased(case.model.blocks, FullBatch(), [0.3, 0.3], shares=case.model.schedule.budget, clip="joint")
    rng = np.random.default_rng(seed)
    wall: Wall[Any] = Wall(case.source(case.records(rng, 200)), plan, noise=InsecureNoise(seed))
    return loop.fit(case.model, wall, plan, rho=constant(1.0), rng=rng)[0]
