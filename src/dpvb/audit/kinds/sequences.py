"""Models of sequences as the audit wants them: a record is a sequence of symbols or points, of a length of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data.sequences.content import Sequences
from dpvb.data.sequences.numbers import Numbers
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.hidden_markov import GaussianHiddenMarkovModel, HiddenMarkovModel
from dpvb.estimators.linear_dynamical import LinearDynamicalSystem
from dpvb.estimators.markov_chain import MarkovChain
from dpvb.guards.arrays import Floats
from dpvb.rows.sequences import NumberRows, SequenceRows

# Symbols of a usual case.
WIDTH = 4
# Symbols of a wide case, of which each is a canary's own.
_WIDE = 200
# Symbols of the longest sequence.
_LONGEST = 12
# Points of the longest sequence of bits or numbers.
_POINTS = 6
# Columns of bits or numbers.
_COLUMNS = 2
_NUMBERS = Numbers(_COLUMNS, -1.0, 1.0)
BUDGET: Mapping[str, Any] = {"max_length": _LONGEST, "epsilon": 1.0, "delta": 1e-6}


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A chain of each order; hidden states of each kind of emissions, with steps and without; a linear system."""
    if name == "MarkovChain":
        return {f"order {order}": partial(of_order, order) for order in (1, 2)}
    if name == "GaussianHiddenMarkovModel":
        return {"": partial(of_points, "gaussian")}
    if name == "LinearDynamicalSystem":
        return {"": of_system}
    cases: dict[str, Callable[[], Case]] = {kind: partial(of_emissions, kind) for kind in ("categorical", "poisson")}
    cases |= {
        "steps": partial(of_emissions, "categorical", 2),
        "steps, mode": partial(of_emissions, "poisson", 2, "mode"),
    }
    return {**cases, "bernoulli": partial(of_points, "bernoulli")}


def of_emissions(emissions: str, num_steps: int | None = None, estimate: str = "posterior") -> Case:
    """The case of a hidden Markov model with such emissions, and so many steps after the windows."""

    def made(width: int) -> HiddenMarkovModel:
        chosen: dict[str, Any] = {"emissions": emissions, "num_steps": num_steps, "estimate": estimate}
        return HiddenMarkovModel(3, symbols=width, n_init=1, **chosen, **BUDGET)

    words = [emissions, *(["steps"] if num_steps else []), *(["mode"] if estimate == "mode" else [])]
    return of_windows(f"HiddenMarkovModel, {', '.join(words)}", made, 3)


def sequences(matrix: Floats, group: Any = None, width: int = WIDTH) -> Sequences[SequenceRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    matrix = np.asarray(matrix, dtype=np.float64)
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, matrix.shape[1] - 1).astype(np.int64)
    parts = [row[1 : 1 + length] for row, length in zip(matrix, length_n, strict=True)]
    return Symbols(width).sequences(parts, group=group)


def of_order(order: int) -> Case:
    """The case of a chain of this order; a wide one is of order 1."""

    def made(width: int) -> MarkovChain:
        return MarkovChain(width, order=order if width == WIDTH else 1, **BUDGET)

    return of_windows(f"MarkovChain, order {order}", made, order + 1)


def of_windows(name: str, made: Callable[[int], MarkovChain | HiddenMarkovModel], length: int) -> Case:
    """The case of a model of so many symbols, whose windows have this length."""
    constant = _constant(WIDTH)
    odd = np.tile([0.0, 1.0, 1e300, -1.0], _LONGEST // 4)
    codes = [np.zeros(_LONGEST), *constant, constant[0], constant[1], odd, np.arange(_LONGEST) % WIDTH]
    lengths = [0.0, *(_LONGEST,) * WIDTH, 1.0, float(length), _LONGEST, _LONGEST]
    wide = np.column_stack([np.full(_WIDE, _LONGEST), _constant(_WIDE)])
    case = _case(name, made(WIDTH), np.column_stack([lengths, codes]))
    return replace(case, wide=_case(f"{name}, wide", made(_WIDE), wide))


def _constant(width: int) -> Floats:
    """A sequence of each symbol alone."""
    return np.repeat(np.arange(width, dtype=np.float64)[:, None], _LONGEST, axis=1)


def _case(name: str, estimator: MarkovChain | HiddenMarkovModel, hostile: Floats) -> Case:
    width = len(Symbols(estimator.symbols))

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _LONGEST + 1, size=(n, 1))
        return np.hstack([length, rng.integers(width, size=(n, _LONGEST))]).astype(np.float64)

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in sequences(matrix, width=width).chunks()] or [Symbols(width).rows([])]
        return {"X": rows.code, "y": np.diff(rows.indptr)}

    source = partial(sequences, width=width)
    return of_estimator(name, estimator, source, records, hostile, columns, responses=_LONGEST + 1)


def points(matrix: Floats, group: Any = None, bounds: Mapping[str, Any] | None = None) -> Sequences[NumberRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    matrix = np.asarray(matrix, dtype=np.float64)
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, _POINTS).astype(np.int64)
    parts = [row[1 : 1 + _COLUMNS * long].reshape(long, _COLUMNS) for row, long in zip(matrix, length_n, strict=True)]
    return Numbers(_COLUMNS, **(bounds or {})).sequences(parts, group=group)


def of_points(emissions: str) -> Case:
    """The case of a hidden Markov model of bits or numbers."""
    bounds: Mapping[str, Any] = {"low": -1.0, "high": 1.0} if emissions == "gaussian" else {}
    chosen: dict[str, Any] = {"columns": _COLUMNS, "n_init": 1, **bounds, **BUDGET, "max_length": _POINTS}
    estimator = (
        GaussianHiddenMarkovModel(3, **chosen)
        if emissions == "gaussian"
        else HiddenMarkovModel(3, emissions=emissions, **chosen)
    )
    every = np.array([(0, 0), (1, 1), (-1, -1), (0, 1), (0.125, 0.25), (1e300, -1e300), (np.nan, 1), (1e-300, 0.5)])
    constant: Floats = np.tile(every, (1, _POINTS))
    turning = np.tile(every[[0, 1, 3]].ravel(), _POINTS // 3)
    lengths = [_POINTS, *(_POINTS,) * len(every), 1, 2, 0]
    shown = np.vstack([turning, constant, constant[1], constant[3], constant[0]])
    hostile = np.column_stack([lengths, shown])

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _POINTS + 1, size=(n, 1))
        x_nt = rng.uniform(-1.2, 1.2, (n, _COLUMNS * _POINTS))
        return np.hstack([length, (x_nt > 0).astype(np.float64) if emissions == "bernoulli" else x_nt])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in points(matrix).chunks()] or [Numbers(_COLUMNS).rows([])]
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    source, name = partial(points, bounds=bounds), f"{type(estimator).__name__}, {emissions}"
    wide = np.column_stack([np.full(len(every), _POINTS), constant])
    case = partial(of_estimator, name, estimator, source, records)
    return replace(case(hostile, columns, responses=1), wide=case(wide, columns, responses=1))


def of_system() -> Case:
    """The case of a small system; a hostile record is at the ends of the ranges, or beyond."""
    ends = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [1e300, -1e300], [np.nan, 1.0], [0.0, 0.0]])
    constant = np.tile(ends, _POINTS)
    turning = np.tile(np.array([1.0, 1.0, -1.0, -1.0]), (1, _POINTS // 2))
    short = np.full((2, _POINTS * _COLUMNS), 1e3)
    lengths = [*(_POINTS,) * (len(ends) + 1), 1, 3]
    hostile = np.column_stack([lengths, np.vstack([constant, turning, short])])
    budget: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "low": -1.0, "high": 1.0}
    estimator = LinearDynamicalSystem(2, columns=_COLUMNS, window=3, max_length=_POINTS, **budget)

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _POINTS + 1, size=(n, 1))
        return np.hstack([length, rng.uniform(-1, 1, size=(n, _POINTS * _COLUMNS))])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        rows = _NUMBERS.rows(_points_of(matrix))
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    return of_estimator("LinearDynamicalSystem", estimator, system_points, records, hostile, columns, responses=1)


def system_points(matrix: Floats, group: Any = None) -> Sequences[NumberRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    return _NUMBERS.sequences(_points_of(matrix), group=group)


def _points_of(matrix: Floats) -> list[Floats]:
    """The points of each record."""
    matrix = np.asarray(matrix, dtype=np.float64)
    most = (matrix.shape[1] - 1) // _COLUMNS
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, most).astype(np.int64)
    return [
        row[1 : 1 + length * _COLUMNS].reshape(length, _COLUMNS) for row, length in zip(matrix, length_n, strict=True)
    ]
