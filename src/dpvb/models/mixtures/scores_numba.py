"""The loops of `scores`, compiled on first use: some rows at a time, side by side, so that nothing of all rows is kept.

The validity of a row's numbers is tested without fast-math flags, so that they do not depend on its place. Entries
become whole numbers in float64; sums of these stay below 2⁵³ and are exact, so that they may be added in any order.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

from functools import partial

import numpy as np

from dpvb.kernels.compiled import compiled

_exact = partial(compiled, fastmath=False)
#: Rows that are looked at side by side.
ROWS = 256


@_exact
def _beside(x_nd, start, size, x_db, there_db):
    """Some rows side by side, (d, b), and whether each number is there: 0 stands for a missing one."""
    for i in range(x_nd.shape[1]):
        for b in range(size):
            x = x_nd[start + b, i]
            there_db[i, b] = 0.0 if np.isnan(x) else 1.0
            x_db[i, b] = 0.0 if np.isnan(x) else x


@_exact
def _standardise(x_db, there_db, mean_d, inverse_dd, count_np, rate_p, start, size, y_db, z_fb):
    """Some rows in a component: L⁻¹(x - m), (f, b), and (c - λ)/√λ of their counts; a number that is missing has 0."""
    d = mean_d.size
    for i in range(d):
        for b in range(size):
            y_db[i, b] = (x_db[i, b] - mean_d[i]) * there_db[i, b]
    for i in range(d):
        for b in range(size):
            z_fb[i, b] = inverse_dd[i, 0] * y_db[0, b]
        for j in range(1, i + 1):
            factor = inverse_dd[i, j]
            for b in range(size):
                z_fb[i, b] += factor * y_db[j, b]
    for p in range(rate_p.size):
        scale = 1.0 / np.sqrt(rate_p[p])
        for b in range(size):
            z_fb[d + p, b] = (count_np[start + b, p] - rate_p[p]) * scale


@_exact
def lengths(x_nd, count_np, mean_kd, inverse_kdd, rate_kp, alone_d, a1, a2, square_kn, length_kn):
    """Σ z² over the numbers, and the squared norm of (a1 z, a2 h), of every row and component, (K, n).

    With S the sum of z² over the numbers that have covariances, m of them, the squares of h add up to
    ((S - 1)² + m - 1)/2, and the others' (z² - 1)²/2.

    Args:
        alone_d: whether a number has no covariances.
    """
    d, f = mean_kd.shape[1], mean_kd.shape[1] + rate_kp.shape[1]
    together = d - np.sum(alone_d)
    x_db, there_db, y_db, z_fb = np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((f, ROWS))
    for start in range(0, x_nd.shape[0], ROWS):
        size = min(ROWS, x_nd.shape[0] - start)
        _beside(x_nd, start, size, x_db, there_db)
        for k in range(mean_kd.shape[0]):
            _standardise(x_db, there_db, mean_kd[k], inverse_kdd[k], count_np, rate_kp[k], start, size, y_db, z_fb)
            square_b, length_b = square_kn[k, start : start + size], length_kn[k, start : start + size]
            for b in range(size):
                square_b[b] = 0.0
                length_b[b] = 0.0
            for i in range(d):
                if not alone_d[i]:
                    for b in range(size):
                        square_b[b] += z_fb[i, b] * z_fb[i, b]
            if together > 0:
                for b in range(size):
                    length_b[b] = (square_b[b] - 1.0) * (square_b[b] - 1.0) + (together - 1)
            for i in range(d):
                if alone_d[i]:
                    for b in range(size):
                        square = z_fb[i, b] * z_fb[i, b]
                        square_b[b] += square
                        # A missing number has no square; a faulty row is dropped whatever it has here.
                        length_b[b] += (square - 1.0) * (square - 1.0) * there_db[i, b]
            for b in range(size):
                length_b[b] = a2 * a2 * 0.5 * length_b[b] + a1 * a1 * square_b[b]
            for i in range(d, f):
                for b in range(size):
                    length_b[b] += a1 * a1 * (z_fb[i, b] * z_fb[i, b])


@partial(compiled, fastmath={"reassoc"})
def _sum(left_b, right_b, size):
    """Sum of truncated products: whole numbers, of which every order gives the same sum."""
    total = 0.0
    for b in range(size):
        total += np.trunc(left_b[b] * right_b[b])
    return total


@_exact
def add(x_nd, count_np, mean_kd, inverse_kdd, rate_kp, pairs_e2, factor_kn, a1, a2, rows, place_k, out_ku):
    """Add truncated entries of all components: factor times (a1 z, a2 h).

    Args:
        pairs_e2: places of the numbers of each entry of h, the diagonal first.
        factor_kn: of every row and component, the grid's step divided out; (K, n).
        rows: how many may be added before sums leave what float64 holds exactly.
        place_k: of the components in `out_ku`.
    """
    d, f = mean_kd.shape[1], mean_kd.shape[1] + rate_kp.shape[1]
    x_db, there_db, y_db, z_fb = np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((f, ROWS))
    weighted_fb = np.empty((f, ROWS))
    factor_b, other_b = np.empty(ROWS), np.empty(ROWS)
    root = 1.0 / np.sqrt(2.0)
    most = max(1, min(ROWS, rows))
    for start in range(0, x_nd.shape[0], most):
        size = min(most, x_nd.shape[0] - start)
        _beside(x_nd, start, size, x_db, there_db)
        for k in range(mean_kd.shape[0]):
            _standardise(x_db, there_db, mean_kd[k], inverse_kdd[k], count_np, rate_kp[k], start, size, y_db, z_fb)
            out_u = out_ku[place_k[k]]
            for b in range(size):
                factor_b[b] = factor_kn[k, start + b] * a1
            for i in range(f):
                out_u[i] += np.int64(_sum(z_fb[i], factor_b, size))
            for b in range(size):
                factor_b[b] = factor_kn[k, start + b] * a2
            for i in range(d):
                for b in range(size):
                    weighted_fb[i, b] = z_fb[i, b] * factor_b[b]
            for b in range(size):
                factor_b[b] *= root
            for i in range(d):
                for b in range(size):
                    other_b[b] = (z_fb[i, b] * z_fb[i, b] - 1.0) * there_db[i, b]
                out_u[f + i] += np.int64(_sum(other_b, factor_b, size))
            for e in range(d, pairs_e2.shape[0]):
                out_u[f + e] += np.int64(_sum(z_fb[pairs_e2[e, 0]], weighted_fb[pairs_e2[e, 1]], size))
