"""Hidden Markov models as the audit wants them: of all emissions and solvers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.audit.kinds.markov_chain import BUDGET, of_windows
from dpvb.data.sequences.content import Sequences
from dpvb.data.sequences.numbers import Numbers
from dpvb.estimators.hidden_markov import HiddenMarkovModel
from dpvb.guards.arrays import Floats
from dpvb.rows.sequences import NumberRows

# Points of the longest sequence of bits or numbers, and their columns.
_LONGEST, _COLUMNS = 6, 2


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A model for each kind of emissions; one for each solver with steps, and for the other laws that these meet."""
    found: dict[str, Callable[[], Case]] = {kind: partial(of_emissions, kind) for kind in ("categorical", "poisson")}
    found |= {solver: partial(of_emissions, "categorical", solver) for solver in ("refined", "iterated")}
    found["refined, mode"] = partial(of_emissions, "poisson", "refined", "mode")
    return found | {kind: partial(of_points, kind) for kind in ("bernoulli", "gaussian")}


def of_emissions(emissions: str, solver: str = "windows", estimate: str = "posterior") -> Case:
    """The case of a model with such emissions."""

    def made(width: int) -> HiddenMarkovModel:
        chosen: dict[str, Any] = {"emissions": emissions, "solver": solver, "estimate": estimate}
        return HiddenMarkovModel(3, symbols=width, n_init=1, **chosen, **BUDGET)

    told = emissions if solver == "windows" else f"{emissions}, {solver}"
    told += "" if estimate == "posterior" else f", {estimate}"
    return of_windows(f"HiddenMarkovModel, {told}", made, 3)


def points(matrix: Floats, group: Any = None, bounds: Mapping[str, Any] | None = None) -> Sequences[NumberRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    matrix = np.asarray(matrix, dtype=np.float64)
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, _LONGEST).astype(np.int64)
    own = [row[1 : 1 + _COLUMNS * long].reshape(long, _COLUMNS) for row, long in zip(matrix, length_n, strict=True)]
    return Numbers(_COLUMNS, **(bounds or {})).sequences(own, group=group)


def of_points(emissions: str) -> Case:
    """The case of a model of bits or numbers."""
    bounds: Mapping[str, Any] = {"low": -1.0, "high": 1.0} if emissions == "gaussian" else {}
    budget: dict[str, Any] = {**BUDGET, "max_length": _LONGEST}
    estimator = HiddenMarkovModel(3, columns=_COLUMNS, emissions=emissions, n_init=1, **bounds, **budget)
    every = np.array([(0, 0), (1, 1), (-1, -1), (0, 1), (0.125, 0.25), (1e300, -1e300), (np.nan, 1), (1e-300, 0.5)])
    constant: Floats = np.tile(every, (1, _LONGEST))
    turning = np.tile(every[[0, 1, 3]].ravel(), _LONGEST // 3)
    lengths = [_LONGEST, *(_LONGEST,) * len(every), 1, 2, 0]
    shown = np.vstack([turning, constant, constant[1], constant[3], constant[0]])
    hostile = np.column_stack([lengths, shown])

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _LONGEST + 1, size=(n, 1))
        x_nt = rng.uniform(-1.2, 1.2, (n, _COLUMNS * _LONGEST))
        return np.hstack([length, (x_nt > 0).astype(np.float64) if emissions == "bernoulli" else x_nt])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in points(matrix).chunks()] or [Numbers(_COLUMNS).rows([])]
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    source, name = partial(points, bounds=bounds), f"HiddenMarkovModel, {emissions}"
    wide = np.column_stack([np.full(len(every), _LONGEST), constant])
    made = partial(of_estimator, name, estimator, source, records)
    return replace(made(hostile, columns, responses=1), wide=made(wide, columns, responses=1))
