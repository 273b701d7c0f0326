"""How sequences begin: their first two symbols, or the first one and the end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Ints
from dpvb.models.sequences.counts import SequenceRows


class Shortened(NamedTuple):
    """Sequences of a first and a second symbol, or an end in its place."""

    indptr: Ints
    code: NDArray[Any]


def shortened(rows: SequenceRows, n_symbols: int) -> Shortened:
    """The first two symbols of each sequence; the place V stands for the end of a sequence of one."""
    length_n, first_n = np.diff(rows.indptr), rows.indptr[:-1]
    code = np.append(np.where((rows.code >= 0) & (rows.code < n_symbols), rows.code, -1), [-1, -1]).astype(np.int32)
    second_n = np.where(length_n == 1, n_symbols, code[np.minimum(first_n + 1, len(code) - 1)])
    kept_n = length_n > 0
    both = np.stack([code[np.minimum(first_n, len(code) - 1)], second_n], axis=1)[kept_n]
    indptr = np.concatenate([[0], np.cumsum(2 * kept_n)]).astype(np.int64)
    return Shortened(indptr, np.ascontiguousarray(both.ravel().astype(np.int32)))
