"""Models of sequences as the audit wants them: a record is the length of a sequence, and its symbols or points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

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
# Symbols of a wide case; each of them is a canary's own.
_WIDE = 200
# Symbols of the longest sequence.
_LONGEST = 12
# Points of the longest sequence of bits or numbers.
_POINTS = 6
# Columns of bits or numbers.
_COLUMNS = 2
#: Ranges of numbers.
BOUNDS: Mapping[str, Any] = {"low": -1.0, "high": 1.0}
BUDGET: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def _sequences(matrix: Floats, columns: int = 1) -> Iterator[Floats]:
    """The sequence of each record; a first column that is not a length leaves nothing of it."""
    matrix = np.asarray(matrix, dtype=np.float64)
    most = (matrix.shape[1] - 1) // columns
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, most).astype(np.int64)
    for row, length in zip(matrix, length_n, strict=True):
        yield row[1 : 1 + length * columns]


def _lengths(rng: np.random.Generator, n: int, longest: int) -> Floats:
    return rng.integers(1, longest + 1, size=(n, 1)).astype(np.float64)


# --- symbols ------------------------------------------------------------------------------------------------


def symbols(matrix: Floats, group: Any = None, width: int = WIDTH) -> Sequences[SequenceRows]:
    """A matrix as sequences of symbols."""
    return Symbols(width).sequences([*_sequences(matrix)], group=group)


def chain(order: int) -> Case:
    """The case of a chain of this order; its wide one is of order 1."""

    def of_width(width: int) -> MarkovChain:
        return MarkovChain(width, order=order if width == WIDTH else 1, max_length=_LONGEST, **BUDGET)

    return _of_windows(f"MarkovChain, order {order}", of_width, order + 1)


def hidden_markov(emissions: str, num_steps: int | None = None, estimate: str = "posterior") -> Case:
    """The case of a hidden Markov model with such emissions, and this number of steps after the windows."""
    chosen: dict[str, Any] = {"emissions": emissions, "num_steps": num_steps, "estimate": estimate}

    def of_width(width: int) -> HiddenMarkovModel:
        return HiddenMarkovModel(3, symbols=width, n_init=1, max_length=_LONGEST, **chosen, **BUDGET)

    words = [emissions, *(["steps"] if num_steps else []), *(["mode"] if estimate == "mode" else [])]
    return _of_windows(f"HiddenMarkovModel, {', '.join(words)}", of_width, 3)


def _of_windows(name: str, of_width: Callable[[int], MarkovChain | HiddenMarkovModel], length: int) -> Case:
    """The case of a model of a number of symbols, whose windows have this length."""
    constant = _constant(WIDTH)
    odd = np.tile([0.0, 1.0, 1e300, -1.0], _LONGEST // 4)
    codes = [np.zeros(_LONGEST), *constant, constant[0], constant[1], odd, np.arange(_LONGEST) % WIDTH]
    lengths = [0.0, *(_LONGEST,) * WIDTH, 1.0, float(length), _LONGEST, _LONGEST]
    wide = np.column_stack([np.full(_WIDE, _LONGEST), _constant(_WIDE)])
    case = _of_symbols(name, of_width(WIDTH), np.column_stack([lengths, codes]))
    return replace(case, wide=_of_symbols(name, of_width(_WIDE), wide))


def _constant(width: int) -> Floats:
    """A sequence of each symbol alone."""
    return np.repeat(np.arange(width, dtype=np.float64)[:, None], _LONGEST, axis=1)


def _of_symbols(name: str, estimator: MarkovChain | HiddenMarkovModel, hostile: Floats) -> Case:
    width = len(Symbols(estimator.symbols))

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_lengths(rng, n, _LONGEST), rng.integers(width, size=(n, _LONGEST))])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in symbols(matrix, width=width).chunks()] or [Symbols(width).rows([])]
        return {"X": rows.code, "y": np.diff(rows.indptr)}

    source = partial(symbols, width=width)
    return of_estimator(name, estimator, source, records, hostile, columns, responses=_LONGEST + 1)


# --- points -------------------------------------------------------------------------------------------------


def points(matrix: Floats, group: Any = None, bounds: Mapping[str, Any] | None = None) -> Sequences[NumberRows]:
    """A matrix as sequences of points, within ranges if there are any."""
    parts = [row.reshape(-1, _COLUMNS) for row in _sequences(matrix, _COLUMNS)]
    return Numbers(_COLUMNS, **(bounds or {})).sequences(parts, group=group)


def _of_points(
    name: str,
    estimator: HiddenMarkovModel | GaussianHiddenMarkovModel | LinearDynamicalSystem,
    records: Callable[[np.random.Generator, int], Floats],
    hostile: Floats,
    bounds: Mapping[str, Any],
) -> Case:
    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in points(matrix).chunks()] or [Numbers(_COLUMNS).rows([])]
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    return of_estimator(name, estimator, partial(points, bounds=bounds), records, hostile, columns, responses=1)


def hidden_markov_of_points(emissions: Literal["bernoulli", "gaussian"]) -> Case:
    """The case of a hidden Markov model of bits or numbers."""
    chosen: dict[str, Any] = {"columns": _COLUMNS, "n_init": 1, "max_length": _POINTS, **BUDGET}
    bounds = BOUNDS if emissions == "gaussian" else {}
    estimator = (
        GaussianHiddenMarkovModel(3, **chosen, **bounds)
        if emissions == "gaussian"
        else HiddenMarkovModel(3, emissions=emissions, **chosen)
    )
    every = np.array([(0, 0), (1, 1), (-1, -1), (0, 1), (0.125, 0.25), (1e300, -1e300), (np.nan, 1), (1e-300, 0.5)])
    constant: Floats = np.tile(every, (1, _POINTS))
    turning = np.tile(every[[0, 1, 3]].ravel(), _POINTS // 3)
    lengths = [_POINTS, *(_POINTS,) * len(every), 1, 2, 0]
    hostile = np.column_stack([lengths, np.vstack([turning, constant, constant[1], constant[3], constant[0]])])
    canaries = np.column_stack([np.full(len(every), _POINTS), constant])

    def records(rng: np.random.Generator, n: int) -> Floats:
        length, x_nt = _lengths(rng, n, _POINTS), rng.uniform(-1.2, 1.2, (n, _COLUMNS * _POINTS))
        return np.hstack([length, (x_nt > 0).astype(np.float64) if emissions == "bernoulli" else x_nt])

    case = _of_points(f"{type(estimator).__name__}, {emissions}", estimator, records, hostile, bounds)
    return replace(case, wide=replace(case, hostile=canaries))


def linear_system() -> Case:
    """The case of a small system; a hostile record is at the ends of the ranges, or beyond."""
    ends = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [1e300, -1e300], [np.nan, 1.0], [0.0, 0.0]])
    constant = np.tile(ends, _POINTS)
    turning = np.tile(np.array([1.0, 1.0, -1.0, -1.0]), (1, _POINTS // 2))
    short = np.full((2, _POINTS * _COLUMNS), 1e3)
    lengths = [*(_POINTS,) * (len(ends) + 1), 1, 3]
    hostile = np.column_stack([lengths, np.vstack([constant, turning, short])])
    estimator = LinearDynamicalSystem(2, columns=_COLUMNS, window=3, max_length=_POINTS, **BUDGET, **BOUNDS)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_lengths(rng, n, _POINTS), rng.uniform(-1, 1, size=(n, _POINTS * _COLUMNS))])

    return _of_points("LinearDynamicalSystem", estimator, records, hostile, BOUNDS)


FORMS: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    "MarkovChain": {f"order {order}": partial(chain, order) for order in (1, 2)},
    "HiddenMarkovModel": {
        "categorical": partial(hidden_markov, "categorical"),
        "poisson": partial(hidden_markov, "poisson"),
        "steps": partial(hidden_markov, "categorical", 2),
        "steps, mode": partial(hidden_markov, "poisson", 2, "mode"),
        "bernoulli": partial(hidden_markov_of_points, "bernoulli"),
    },
    "GaussianHiddenMarkovModel": {"": partial(hidden_markov_of_points, "gaussian")},
    "LinearDynamicalSystem": {"": linear_system},
}
