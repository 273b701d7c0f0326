"""Windows of k consecutive symbols, counted person by person, compiled.

Person u has the sequences order[first[u]:first[u + 1]], and sequence r the symbols code[indptr[r]:indptr[r + 1]], of
which the first `longest` count. A code outside 0..width-1 is a gap, and no window crosses one. A window is at the place
Σ_i c_i width^(k-1-i). A person's M windows add M^(power-1) each. All counts are integers, so that no order of
sequences or persons changes a bit.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpvb.kernels.compiled import compiled


@compiled
def _places(indptr, code, r, k, width, longest, size, out):
    """Places of the windows of one sequence, in order; returns how many there are."""
    number, run, place = 0, 0, 0
    for t in range(indptr[r], min(indptr[r + 1], indptr[r] + longest)):
        symbol = code[t]
        if symbol < 0 or symbol >= width:
            run, place = 0, 0
            continue
        run += 1
        place = (place * width + symbol) % size
        if run >= k:
            out[number] = place
            number += 1
    return number


@compiled
def norms(indptr, code, order, first, k, width, longest, power, out_u):
    """L2 norm of what each person adds, from integer squares; 0 for a person without a window."""
    size = width**k
    count, places = np.zeros(size, np.int64), np.empty(longest, np.int64)
    for u in range(out_u.size):
        total, square = 0, 0
        for n in range(first[u], first[u + 1]):
            number = _places(indptr, code, order[n], k, width, longest, size, places)
            for place in places[:number]:
                square += 2 * count[place] + 1
                count[place] += 1
            total += number
        for n in range(first[u], first[u + 1]):
            number = _places(indptr, code, order[n], k, width, longest, size, places)
            for place in places[:number]:
                count[place] = 0
        out_u[u] = total ** (power - 1.0) * np.sqrt(square) if total > 0 else 0.0


@compiled
def accumulate(indptr, code, order, first, k, width, longest, power, weight_u, step, out):
    """Add trunc(weight_u · M^(power-1) / step) at the place of each window; persons of weight 0 are not read."""
    size = width**k
    places = np.empty(longest, np.int64)
    for u in range(weight_u.size):
        if weight_u[u] == 0.0:
            continue
        total = 0
        for n in range(first[u], first[u + 1]):
            total += _places(indptr, code, order[n], k, width, longest, size, places)
        if total == 0:
            continue
        share = np.int64(weight_u[u] * total ** (power - 1.0) / step)
        for n in range(first[u], first[u + 1]):
            found = _places(indptr, code, order[n], k, width, longest, size, places)
            for place in places[:found]:
                out[place] += share
