"""The loops of `steps`, compiled on first use: both passes over sequences, and what persons add to sums over states.

Person u has the sequences first[u] to first[u + 1], and sequence s the positions bounds[s] to bounds[s + 1]. Position t
meets row `row_t[t]` of a table of likelihoods, and shows the values `value_tf[t]` at the places `place_tf[t]`; one
whose first place is negative shows nothing. A sequence of which nothing is seen, or that no states explain, adds
nothing: its `seen_s` is 0. A person adds nothing to what another one adds, and all sums are of integers.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpvb.kernels.compiled import compiled
from dpvb.models.sequences.kernel_numba import LEAST


@compiled
def passes(bounds, row_t, place_tf, likelihood_rk, start_k, step_kk, back_kk, alpha_tk, beta_tk, scale_t, seen_s):
    """α_t, β_t and c_t of every position, and how many positions of each sequence show something."""
    num = start_k.size
    ahead_k = np.empty(num)
    for s in range(seen_s.size):
        first, last, seen = bounds[s], bounds[s + 1], 0
        for t in range(first, last):
            seen += place_tf[t, 0] >= 0
        seen_s[s] = 0
        if seen == 0:
            continue
        for t in range(first, last):
            seen_k, now_k, c = likelihood_rk[row_t[t]], alpha_tk[t], 0.0
            if t == first:
                for j in range(num):
                    now_k[j] = start_k[j]
            else:
                before_k = alpha_tk[t - 1]
                for j in range(num):
                    now_k[j] = 0.0
                for i in range(num):
                    a, step_k = before_k[i], step_kk[i]
                    for j in range(num):
                        now_k[j] += a * step_k[j]
            for j in range(num):
                now_k[j] *= seen_k[j]
                c += now_k[j]
            scale_t[t] = c
            if not c > LEAST:
                seen = 0
                break
            inverse = 1.0 / c
            for j in range(num):
                now_k[j] *= inverse
        if seen == 0:
            continue
        seen_s[s] = seen
        beta_tk[last - 1] = 1.0
        for t in range(last - 1, first, -1):
            seen_k, beta_k, before_k = likelihood_rk[row_t[t]], beta_tk[t], beta_tk[t - 1]
            inverse = 1.0 / scale_t[t]
            for j in range(num):
                ahead_k[j] = seen_k[j] * beta_k[j] * inverse
                before_k[j] = 0.0
            for j in range(num):
                w, back_k = ahead_k[j], back_kk[j]
                for i in range(num):
                    before_k[i] += w * back_k[i]


@compiled
def _pairs(begin, end, bounds, seen_s, row_t, likelihood_rk, alpha_tk, beta_tk, scale_t, ahead_k, pair_kk):
    """Σ α_t ⊗ w_t+1 over sequences begin to end - 1; returns how many pairs there are."""
    num, number = ahead_k.size, 0
    pair_kk[:] = 0.0
    for s in range(begin, end):
        if seen_s[s] == 0:
            continue
        for t in range(bounds[s] + 1, bounds[s + 1]):
            seen_k, beta_k, before_k = likelihood_rk[row_t[t]], beta_tk[t], alpha_tk[t - 1]
            inverse = 1.0 / scale_t[t]
            for j in range(num):
                ahead_k[j] = seen_k[j] * beta_k[j] * inverse
            for i in range(num):
                a, sum_k = before_k[i], pair_kk[i]
                for j in range(num):
                    sum_k[j] += a * ahead_k[j]
            number += 1
    return number


@compiled
def pair_norms(first_u, bounds, seen_s, row_t, likelihood_rk, alpha_tk, beta_tk, scale_t, step_kk, power, out_u):
    """L2 norm of M^(power-1) Σ ξ_t of each person; 0 without a pair."""
    num = len(step_kk)
    ahead_k, pair_kk = np.empty(num), np.empty((num, num))
    given = bounds, seen_s, row_t, likelihood_rk, alpha_tk, beta_tk, scale_t
    for u in range(out_u.size):
        number = _pairs(first_u[u], first_u[u + 1], *given, ahead_k, pair_kk)
        square = 0.0
        for i in range(num):
            for j in range(num):
                found = step_kk[i, j] * pair_kk[i, j]
                square += found * found
        out_u[u] = number ** (power - 1.0) * np.sqrt(square) if number > 0 else 0.0


@compiled
def add_pairs(
    first_u, bounds, seen_s, row_t, likelihood_rk, alpha_tk, beta_tk, scale_t, step_kk, power, weight_u, step, out_kk
):  # fmt: skip
    """Add trunc(weight_u · M^(power-1) Σ ξ_t / step); persons of weight 0 are not read."""
    num = len(step_kk)
    ahead_k, pair_kk = np.empty(num), np.empty((num, num))
    given = bounds, seen_s, row_t, likelihood_rk, alpha_tk, beta_tk, scale_t
    for u in range(weight_u.size):
        if weight_u[u] == 0.0:
            continue
        number = _pairs(first_u[u], first_u[u + 1], *given, ahead_k, pair_kk)
        if number > 0:
            share = weight_u[u] * number ** (power - 1.0) / step
            for i in range(num):
                for j in range(num):
                    out_kk[i, j] += np.int64(share * (step_kk[i, j] * pair_kk[i, j]))


@compiled
def _shown(begin, end, bounds, seen_s, place_tf):
    """How many positions of these sequences have a place."""
    number = 0
    for s in range(begin, end):
        if seen_s[s] > 0:
            for t in range(bounds[s], bounds[s + 1]):
                number += place_tf[t, 0] >= 0
    return number


@compiled
def shown_norms(first_u, bounds, seen_s, place_tf, value_tf, alpha_tk, beta_tk, power, sum_vk, out_u):
    """L2 norm of T^(power-1) Σ value ⊗ γ_t of each person; `sum_vk` is scratch of zeros."""
    num = alpha_tk.shape[1]
    for u in range(out_u.size):
        begin, end = first_u[u], first_u[u + 1]
        number = _shown(begin, end, bounds, seen_s, place_tf)
        square = 0.0
        for adds in (True, False):  # What was added is measured and set back to 0.
            for s in range(begin, end):
                if seen_s[s] == 0:
                    continue
                for t in range(bounds[s], bounds[s + 1]):
                    if place_tf[t, 0] < 0:
                        continue
                    alpha_k, beta_k = alpha_tk[t], beta_tk[t]
                    for f in range(place_tf.shape[1]):
                        sum_k, value = sum_vk[place_tf[t, f]], value_tf[t, f]
                        if adds:
                            for k in range(num):
                                sum_k[k] += value * (alpha_k[k] * beta_k[k])
                        else:
                            for k in range(num):
                                square += sum_k[k] * sum_k[k]
                                sum_k[k] = 0.0
        out_u[u] = number ** (power - 1.0) * np.sqrt(square) if number > 0 else 0.0


@compiled
def add_shown(
    first_u, bounds, seen_s, place_tf, value_tf, alpha_tk, beta_tk, power, weight_u, step, out_vk
):  # fmt: skip
    """Add trunc(weight_u · T^(power-1) · value ⊗ γ_t / step) at each place; persons of weight 0 are not read."""
    num = alpha_tk.shape[1]
    for u in range(weight_u.size):
        if weight_u[u] == 0.0:
            continue
        begin, end = first_u[u], first_u[u + 1]
        number = _shown(begin, end, bounds, seen_s, place_tf)
        share = weight_u[u] * number ** (power - 1.0) / step if number > 0 else 0.0
        for s in range(begin, end):
            if seen_s[s] == 0:
                continue
            for t in range(bounds[s], bounds[s + 1]):
                if place_tf[t, 0] < 0:
                    continue
                alpha_k, beta_k = alpha_tk[t], beta_tk[t]
                for f in range(place_tf.shape[1]):
                    out_k, scale = out_vk[place_tf[t, f]], share * value_tf[t, f]
                    for k in range(num):
                        out_k[k] += np.int64(scale * (alpha_k[k] * beta_k[k]))
