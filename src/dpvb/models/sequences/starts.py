"""How sequences begin: their first two symbols, or the first one and the end."""

from __future__ import annotations

import numpy as np

from dpvb.models.sequences.counts import Coded, SequenceRows


def shortened(rows: SequenceRows, n_symbols: int) -> Coded:
    """The first two symbols of each sequence; the place V stands for the end of a sequence of one."""
    length_n, first_n = np.diff(rows.indptr), rows.indptr[:-1]
    code = np.append(np.where((rows.code >= 0) & (rows.code < n_symbols), rows.code, -1), [-1, -1]).astype(np.int32)
    second_n = np.where(length_n == 1, n_symbols, code[np.minimum(first_n + 1, len(code) - 1)])
    kept_n = length_n > 0
    both = np.stack([code[np.minimum(first_n, len(code) - 1)], second_n], axis=1)[kept_n]
    indptr = np.concatenate([[0], np.cumsum(2 * kept_n)]).astype(np.int64)
    return Coded(indptr, np.ascontiguousarray(both.ravel().astype(np.int32)))
