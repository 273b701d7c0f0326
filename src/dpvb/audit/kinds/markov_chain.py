"""Markov chains as the audit wants them: of both orders, records that are sequences of a length of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data.sequences.rows import Sequences
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.markov_chain import MarkovChain
from dpvb.estimators.sequences import SequenceModel
from dpvb.guards.arrays import Floats

# Symbols, and the longest sequence.
WIDTH, _LONGEST = 4, 12
BUDGET: Mapping[str, Any] = {"max_length": _LONGEST, "epsilon": 1.0, "delta": 1e-6}


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A chain of each order."""
    return {f"order {order}": partial(of_order, order) for order in (1, 2)}


def sequences(matrix: Floats, group: Any = None) -> Sequences:
    """A matrix as sequences: the first column is the length of each, and one that is no length leaves nothing."""
    matrix = np.asarray(matrix, dtype=np.float64)
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, matrix.shape[1] - 1).astype(np.int64)
    own = [row[1 : 1 + length] for row, length in zip(matrix, length_n, strict=True)]
    return Symbols(WIDTH).sequences(own, group=group)


def of_order(order: int) -> Case:
    """The case of a chain of this order."""
    return of_windows(f"MarkovChain, order {order}", MarkovChain(WIDTH, order=order, **BUDGET), order + 1)


def of_windows(name: str, estimator: SequenceModel, length: int) -> Case:
    """The case of a model whose windows have this length."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        length = rng.integers(1, _LONGEST + 1, size=(n, 1))
        return np.hstack([length, rng.integers(WIDTH, size=(n, _LONGEST))]).astype(np.float64)

    constant = np.repeat(np.arange(WIDTH, dtype=np.float64)[:, None], _LONGEST, axis=1)
    odd = np.tile([0.0, 1.0, 1e300, -1.0], _LONGEST // 4)
    codes = [np.zeros(_LONGEST), *constant, constant[0], constant[1], odd, np.arange(_LONGEST) % WIDTH]
    lengths = [0.0, *(_LONGEST,) * WIDTH, 1.0, float(length), _LONGEST, _LONGEST]
    hostile = np.column_stack([lengths, codes])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        source = sequences(matrix)._rows
        return {"X": source.code, "y": np.diff(source.indptr)}

    return of_estimator(name, estimator, sequences, records, hostile, columns, responses=_LONGEST + 1)
