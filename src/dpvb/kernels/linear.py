"""Products of private rows with a public matrix, exact, so that a row's bits never depend on the rest of its batch.

BLAS chooses its order of summation, and with it the rounding, by shape, position, threads and machine. Here both
factors are rounded to integers first, each row for itself: with ‖x‖ and every column of the matrix at most 2²⁶ (a
little more after rounding), all partial sums are integers below 2⁵³ (Cauchy-Schwarz), which float64 adds exactly in
any order.
"""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats

_BITS = 26
# Entries of a block of rows: what is done to them between the products happens in the cache. A block has at least so
# many rows that reading the matrix takes less time than multiplying by it, however wide the rows are.
_BLOCK = 2**15
_LEAST_ROWS = 64


def product(x_nd: Floats, matrix_de: Floats) -> Floats:
    """Return x @ matrix, (n, e), to about 2⁻²⁷√d of ‖x_n‖ times the largest column norm.

    Rows whose squared norm is not a finite number give NaN; the matrix is finite.
    """
    scale = float(powers(np.square(matrix_de).sum(axis=0)).min(initial=math.inf))
    integer_de = np.rint(matrix_de * scale)
    out = np.empty((len(x_nd), matrix_de.shape[1]))
    rows = max(_LEAST_ROWS, _BLOCK // max(x_nd.shape[1], 1))
    for start in range(0, len(x_nd), rows):
        # Laid out row by row, so that each row's squares are added in its own order.
        part = np.ascontiguousarray(x_nd[start : start + rows])
        with np.errstate(over="ignore"):
            room = np.square(part)
        scale_n = powers(np.add.reduce(room, axis=1))
        np.rint(np.multiply(part, scale_n[:, None], out=room), out=room)
        result = np.matmul(room, integer_de, out=out[start : start + rows])
        result /= (scale_n * scale)[:, None]
    return out


def dot(x_nd: Floats, vector_d: Floats) -> Floats:
    """Return x @ vector, (n,); see `product`."""
    return product(x_nd, vector_d[:, None])[:, 0]


def row_sums(x_nd: Floats, vector_d: Floats) -> Floats:
    """Return x @ vector, (n,), to 2⁻⁵³d: each row's products are added by themselves, and NaN and infinity stay."""
    x_nd, out = np.ascontiguousarray(x_nd), np.empty(len(x_nd))
    rows = max(1, _BLOCK // max(x_nd.shape[1], 1))
    room = np.empty((min(rows, len(x_nd)), x_nd.shape[1]))
    for start in range(0, len(x_nd), rows):
        part = x_nd[start : start + rows]
        np.add.reduce(np.multiply(part, vector_d, out=room[: len(part)]), axis=1, out=out[start : start + rows])
    return out


def powers(square: Floats) -> Floats:
    """Powers of two that bring norms to at most 2²⁶; NaN where the square is not a finite number."""
    finite = np.isfinite(square)
    _, exponent = np.frexp(np.sqrt(np.where(finite, square, 0.0)) * (1.0 + 1e-9))
    return np.where(finite, np.ldexp(1.0, _BITS - np.maximum(exponent, -400)), np.nan)
