"""Second moments of the windows of numbers of each person, compiled.

Person u has the sequences order[first[u]:first[u + 1]], and sequence r the points value_td[indptr[r]:indptr[r + 1]], of
which the first `longest` count. A window is `length` points that stand side by side, all of them finite; y is its
numbers with a constant behind them. A person's M windows add (1/M) Σ y yᵀ. Nothing is reordered by the compiler, so
that norms and sums see the same bits.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

from functools import partial

import numpy as np

from dpvb.kernels.compiled import compiled

strict = partial(compiled, fastmath=False)


@strict
def _mean(indptr, value_td, own, length, longest, starts, constant, out):
    """The lower triangle of (1/M) Σ y yᵀ over the windows of these sequences; returns M."""
    d = value_td.shape[1]
    width, number = length * d, 0
    out[:] = 0.0
    flat = value_td.ravel()
    for r in own:
        begin, run = indptr[r], 0
        last = min(indptr[r + 1], begin + longest)
        if starts:
            last = min(last, begin + length)
        for t in range(begin, last):
            run += 1
            for place in range(t * d, (t + 1) * d):
                if not np.isfinite(flat[place]):
                    run = 0
            if run < length:
                continue
            number += 1
            y = flat[(t + 1) * d - width : (t + 1) * d]
            for i in range(width):
                for j in range(i + 1):
                    out[i, j] += y[i] * y[j]
                out[width, i] += constant * y[i]
            out[width, width] += constant * constant
    if number > 0:
        for i in range(width + 1):
            for j in range(i + 1):
                out[i, j] /= number
    return number


@strict
def norms(indptr, value_td, order, first, length, longest, starts, constant, out_u):
    """Frobenius norm of what each person adds, before rounding is allowed for; 0 for a person without a window."""
    width = length * value_td.shape[1]
    mean = np.empty((width + 1, width + 1))
    for u in range(out_u.size):
        out_u[u] = 0.0
        own = order[first[u] : first[u + 1]]
        if _mean(indptr, value_td, own, length, longest, starts, constant, mean) == 0:
            continue
        # The diagonal has the largest entry, and the constant is in it.
        most, square = 0.0, 0.0
        for i in range(width + 1):
            most = max(most, mean[i, i])
        for i in range(width + 1):
            for j in range(i + 1):
                share = mean[i, j] / most
                square += share * share if i == j else 2.0 * share * share
        out_u[u] = most * np.sqrt(square)


@strict
def accumulate(indptr, value_td, order, first, length, longest, starts, constant, weight_u, step, out):
    """Add trunc(weight_u · mean / step) to a packed triangle; persons of weight 0 are not read."""
    width = length * value_td.shape[1]
    mean = np.empty((width + 1, width + 1))
    for u in range(weight_u.size):
        own = order[first[u] : first[u + 1]]
        if weight_u[u] == 0.0 or _mean(indptr, value_td, own, length, longest, starts, constant, mean) == 0:
            continue
        place = width + 1
        for i in range(width + 1):
            out[i] += np.int64(weight_u[u] * mean[i, i] / step)
            for j in range(i + 1, width + 1):
                out[place] += np.int64(weight_u[u] * mean[j, i] / step)
                place += 1
