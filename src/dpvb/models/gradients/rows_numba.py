"""The loops of `dpvb.models.gradients.variational`, compiled on first use.

A row's loop knows nothing of the other rows. Sums of squares may be formed in any order, which their bound allows;
products that reach the sums are compiled without fast-math flags.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpvb.kernels.compiled import compiled


@compiled
def squares(values, square_n):
    """Sum of the squares of every row."""
    for n in range(values.shape[0]):
        total = 0.0
        for p in range(values.shape[1]):
            value = np.float64(values[n, p])
            total += value * value
        square_n[n] = total


def _add(values, weights, out):
    """Add the truncated weighted rows to out; rows of weight zero are not read."""
    for n in range(values.shape[0]):
        weight = weights[n]
        if weight == 0.0:
            continue
        for p in range(values.shape[1]):
            out[p] += np.int64(np.float64(values[n, p]) * weight)


add = compiled(_add, fastmath=False)
