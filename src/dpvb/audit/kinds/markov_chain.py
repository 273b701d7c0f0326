"""Markov chains as the audit wants them: of both orders, records that are sequences of a length of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data.sequences.content import Sequences
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.markov_chain import MarkovChain
from dpvb.estimators.sequences import SequenceModel
from dpvb.guards.arrays import Floats
from dpvb.rows.sequences import SequenceRows

# Symbols, those of a wide model, of which each is a canary's own, and the longest sequence.
WIDTH, _WIDE, _LONGEST = 4, 200, 12
BUDGET: Mapping[str, Any] = {"max_length": _LONGEST, "epsilon": 1.0, "delta": 1e-6}


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A chain of each order."""
    return {f"order {order}": partial(of_order, order) for order in (1, 2)}


def sequences(matrix: Floats, group: Any = None, width: int = WIDTH) -> Sequences[SequenceRows]:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    matrix = np.asarray(matrix, dtype=np.float64)
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, matrix.shape[1] - 1).astype(np.int64)
    own = [row[1 : 1 + length] for row, length in zip(matrix, length_n, strict=True)]
    return Symbols(width).sequences(own, group=group)


def of_order(order: int) -> Case:
    """The case of a chain of this order; a wide one is of order 1."""

    def made(width: int) -> MarkovChain:
        return MarkovChain(width, order=order if width == WIDTH else 1, **BUDGET)

    return of_windows(f"MarkovChain, order {order}", made, order + 1)


def of_windows(name: str, made: Callable[[int], SequenceModel], length: int) -> Case:
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


def _case(name: str, estimator: SequenceModel, hostile: Floats) -> Case:
    width = len(Symbols(estimator.symbols))

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _LONGEST + 1, size=(n, 1))
        return np.hstack([length, rng.integers(width, size=(n, _LONGEST))]).astype(np.float64)

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in sequences(matrix, width=width).chunks()] or [Symbols(width).rows([])]
        return {"X": rows.code, "y": np.diff(rows.indptr)}

    source = partial(sequences, width=width)
    return of_estimator(name, estimator, source, records, hostile, columns, responses=_LONGEST + 1)
