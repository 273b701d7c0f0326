"""The loops of `dpvb.models.belief_network.kernel`, compiled on first use.

Every function works on a range of examples, or of hidden units, and holds no lock, so that the caller spreads ranges
over threads. One example at a time, its J-vectors in the first cache: no result depends on the range it came in.
`nnan` and `ninf` are left out of the fast-math flags: a NaN must reach the clip, which turns it into zero. The
sums of scores are compiled without any flag: each operation rounds as their norm's bound says.

J is padded to a multiple of 16 with weights, observations and offsets of zero, so that no loop has a remainder.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import math

import numpy as np

from dpvb.kernels.compiled import compiled

LIMIT = 28.0  # |logit π| at most: σ is then within 1e-12 of 0 or 1


@compiled
def _weigh(second_j, xi_j):
    """ξ = tanh(g/2) / (2g) at g² = second, branch-free: by exp(-g) = exp(-g/256)^256, by its series near zero."""
    for j in range(second_j.size):
        x = np.float64(second_j[j])
        g = math.sqrt(x)
        t = (40.0 if g > 40.0 else g) * (-1 / 256)
        e = 1 / 120 + t * (1 / 720 + t * (1 / 5040 + t * (1 / 40320)))
        e = 1.0 + t * (1.0 + t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * e))))
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        far = (1.0 - e) / (2.0 * g * (1.0 + e))
        near = 0.25 - x * (1 / 48 - x * (1 / 480 - x * (17 / 80640)))
        xi_j[j] = near if x < 0.01 else far


@compiled
def _second(w_kj, pi_k, out_j):
    """Σ_k π_k (1 - π_k) w_k²; four hidden units a pass."""
    one = out_j.dtype.type(1)
    num_hidden, width = w_kj.shape
    out_j[:] = 0
    k = 0
    while k + 4 <= num_hidden:
        p0, p1, p2, p3 = pi_k[k], pi_k[k + 1], pi_k[k + 2], pi_k[k + 3]
        a0, a1, a2, a3 = p0 * (one - p0), p1 * (one - p1), p2 * (one - p2), p3 * (one - p3)
        w0, w1, w2, w3 = w_kj[k], w_kj[k + 1], w_kj[k + 2], w_kj[k + 3]
        for j in range(width):
            x0, x1, x2, x3 = w0[j], w1[j], w2[j], w3[j]
            out_j[j] += a0 * x0 * x0 + a1 * x1 * x1 + a2 * x2 * x2 + a3 * x3 * x3
        k += 4
    while k < num_hidden:
        a0 = pi_k[k] * (one - pi_k[k])
        w0 = w_kj[k]
        for j in range(width):
            out_j[j] += a0 * w0[j] * w0[j]
        k += 1


@compiled
def _visit(xi_j, r_j, wa_j, wb_j, move_a_j, move_b_j, step_a, step_b):
    """Take the last two units' steps out of the residual, and weigh the next two against it, in one pass."""
    pull_a = pull_b = curve_a = curve_b = cross = r_j.dtype.type(0)
    for j in range(r_j.size):
        r = r_j[j] - step_a * move_a_j[j] - step_b * move_b_j[j]
        r_j[j] = r
        a, b = wa_j[j], wb_j[j]
        xa, xb = xi_j[j] * a, xi_j[j] * b
        move_a_j[j] = xa
        move_b_j[j] = xb
        pull_a += a * r
        pull_b += b * r
        curve_a += xa * a
        curve_b += xb * b
        cross += xa * b
    return pull_a, pull_b, curve_a, curve_b, cross


@compiled
def _visit_first(xi_j, r_j, wa_j, wb_j, move_a_j, move_b_j, step_a, step_b):
    """The same in the first sweep, where curvatures and cross terms are those of the common start."""
    pull_a = pull_b = r_j.dtype.type(0)
    for j in range(r_j.size):
        r = r_j[j] - step_a * move_a_j[j] - step_b * move_b_j[j]
        r_j[j] = r
        a, b = wa_j[j], wb_j[j]
        move_a_j[j] = xi_j[j] * a
        move_b_j[j] = xi_j[j] * b
        pull_a += a * r
        pull_b += b * r
    return pull_a, pull_b


@compiled
def _probability(logit):
    """σ(logit) within LIMIT: beyond it, products with π would be denormal numbers, which are slow."""
    logit = LIMIT if logit > LIMIT else (-LIMIT if logit < -LIMIT else logit)
    return 1.0 / (1.0 + math.exp(-logit))


@compiled
def local_range(first, last, y_nj, w_kj, b_k, sweeps, start, pi_nk, xi_nj, psi_nj):
    """Write π, ξ and ⟨ψ⟩ of the examples first..last-1 in place.

    start: (π_k, ⟨ψ⟩_j, ξ_j, Σ_j ξ_j w_kj², Σ_j ξ_j w_kj w_k'j at k' = k + 1) where π = σ(b), common to all examples.
    w_kj has an even number of rows: one of zeros may be added.
    """
    num_visible, num_hidden = y_nj.shape[1], pi_nk.shape[1]
    num_rows, width = w_kj.shape
    start_k, start_psi_j, start_xi_j, start_curve_k, start_cross_k = start
    real = w_kj.dtype.type
    half = real(0.5)
    h_j = np.zeros(width, w_kj.dtype)
    r_j, psi_j, xi_j = np.empty_like(h_j), np.empty_like(h_j), np.empty_like(h_j)
    second_j, move_a_j, move_b_j = np.empty_like(h_j), np.empty_like(h_j), np.empty_like(h_j)
    pi_k = np.empty(num_rows, w_kj.dtype)
    for n in range(first, last):
        for j in range(num_visible):
            h_j[j] = y_nj[n, j] - half
        pi_k[:] = start_k
        psi_j[:] = start_psi_j
        xi_j[:] = start_xi_j
        for sweep in range(sweeps):
            for j in range(width):
                r_j[j] = h_j[j] - xi_j[j] * psi_j[j]
                move_a_j[j] = move_b_j[j] = 0
            step_a = step_b = real(0)
            for k in range(0, num_rows, 2):
                wa_j, wb_j = w_kj[k], w_kj[k + 1]
                if sweep == 0:
                    pull_a, pull_b = _visit_first(xi_j, r_j, wa_j, wb_j, move_a_j, move_b_j, step_a, step_b)
                    curve_a, curve_b, cross = start_curve_k[k], start_curve_k[k + 1], start_cross_k[k]
                else:
                    pull_a, pull_b, curve_a, curve_b, cross = _visit(
                        xi_j, r_j, wa_j, wb_j, move_a_j, move_b_j, step_a, step_b
                    )
                logit = b_k[k] + pull_a + curve_a * (pi_k[k] - half)
                new = real(_probability(logit))
                step_a, pi_k[k] = new - pi_k[k], new
                # The residual that the second unit sees lacks the first one's step: the cross term makes up for it.
                logit = b_k[k + 1] + pull_b - step_a * cross + curve_b * (pi_k[k + 1] - half)
                new = real(_probability(logit))
                step_b, pi_k[k + 1] = new - pi_k[k + 1], new
            _second(w_kj, pi_k, second_j)
            for j in range(width):
                r = r_j[j] - step_a * move_a_j[j] - step_b * move_b_j[j]
                psi = (h_j[j] - r) / xi_j[j]
                psi_j[j] = psi
                second_j[j] += psi * psi
            _weigh(second_j, xi_j)
        pi_nk[n] = pi_k[:num_hidden]
        xi_nj[n] = xi_j[:num_visible]
        psi_nj[n] = psi_j[:num_visible]


@compiled
def norm_range(first, last, r_nj, xi_nj, p_nk, a_nk, w_kj, parts_n3):
    """‖r‖²‖p‖², Σ_k p_k a_k (r∘ξ)·w_k and Σ_k a_k² (ξ∘ξ)·(w_k∘w_k) of the examples first..last-1; two units a pass.

    In float64, w_kj too.
    """
    num_hidden, width = w_kj.shape
    rx_j, xx_j = np.empty(width), np.empty(width)
    for n in range(first, last):
        residual = hidden = cross = spread = 0.0
        for j in range(width):
            r, xi = np.float64(r_nj[n, j]), np.float64(xi_nj[n, j])
            residual += r * r
            rx_j[j] = r * xi
            xx_j[j] = xi * xi
        k = 0
        while k < num_hidden:
            other = min(k + 1, num_hidden - 1)
            w0, w1 = w_kj[k], w_kj[other]
            d0 = d1 = e0 = e1 = 0.0
            for j in range(width):
                x0, x1 = w0[j], w1[j]
                d0 += rx_j[j] * x0
                d1 += rx_j[j] * x1
                e0 += xx_j[j] * x0 * x0
                e1 += xx_j[j] * x1 * x1
            p, a = np.float64(p_nk[n, k]), np.float64(a_nk[n, k])
            hidden += p * p
            cross += p * a * d0
            spread += a * a * e0
            if other > k:
                p, a = np.float64(p_nk[n, other]), np.float64(a_nk[n, other])
                hidden += p * p
                cross += p * a * d1
                spread += a * a * e1
            k += 2
        parts_n3[n, 0] = residual * hidden
        parts_n3[n, 1] = cross
        parts_n3[n, 2] = spread


def _score_range(first, last, r_nj, xi_nj, p_nk, a_nk, w_kj, used, scale_n, group, out_kj):
    """Add Σ_n trunc(scale_n s_n) over the examples in `used`, for the hidden units first..last-1.

    Examples come in groups that stay in the second cache.
    """
    for begin in range(0, used.size, group):
        end = min(begin + group, used.size)
        for k in range(first, last):
            w, out = w_kj[k], out_kj[k]
            for i in range(begin, end):
                n = used[i]
                r, xi, p, a, scale = r_nj[n], xi_nj[n], p_nk[n, k], a_nk[n, k], scale_n[n]
                for j in range(w.size):
                    out[j] += np.int64((r[j] * p - (w[j] * xi[j]) * a) * scale)


score_range = compiled(_score_range, fastmath=False)
