"""The loops of `steps`, compiled on first use: what persons add to sums over states.

Person u has the positions first_u[u] to first_u[u + 1]. Position t shows the values `value_tf[t]` at the places
`place_tf[t]`, and one whose first place is negative shows nothing; γ_t is 0 in a sequence that adds nothing. A person
adds nothing to what another one adds, and all sums are of integers.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpvb.kernels.compiled import compiled


@compiled
def shares(number_u, power):
    """n^(p-1) of each person, 0 for one who has nothing."""
    share_u = np.zeros(number_u.size)
    for u in range(number_u.size):
        if number_u[u] > 0:
            share_u[u] = 1.0 / np.sqrt(number_u[u]) if power == 0.5 else number_u[u] ** (power - 1.0)
    return share_u


@compiled
def pair_norms(share_u, pair_ukk, out_u):
    """L2 norm of share_u Σ ξ_t of each person."""
    num = pair_ukk.shape[1]
    for u in range(out_u.size):
        square = 0.0
        for i in range(num):
            for j in range(num):
                square += pair_ukk[u, i, j] * pair_ukk[u, i, j]
        out_u[u] = share_u[u] * np.sqrt(square)


@compiled
def add_pairs(share_u, pair_ukk, weight_u, step, out_kk):
    """Add trunc(weight_u · share_u · Σ ξ_t / step); persons of weight 0 are not read."""
    num = pair_ukk.shape[1]
    for u in range(weight_u.size):
        if weight_u[u] == 0.0:
            continue
        scale = weight_u[u] * share_u[u] / step
        for i in range(num):
            for j in range(num):
                out_kk[i, j] += np.int64(scale * pair_ukk[u, i, j])


@compiled
def shown_norms(share_u, first_u, place_tf, value_tf, gamma_tk, sum_vk, out_u):
    """L2 norm of share_u Σ value ⊗ γ_t of each person; `sum_vk` is scratch of zeros."""
    num = gamma_tk.shape[1]
    for u in range(out_u.size):
        square = 0.0
        for adds in (True, False):  # What was added is measured and set back to 0.
            for t in range(first_u[u], first_u[u + 1]):
                if place_tf[t, 0] < 0:
                    continue
                for f in range(place_tf.shape[1]):
                    v, value = place_tf[t, f], value_tf[t, f]
                    if adds:
                        for k in range(num):
                            sum_vk[v, k] += value * gamma_tk[t, k]
                    else:
                        for k in range(num):
                            square += sum_vk[v, k] * sum_vk[v, k]
                            sum_vk[v, k] = 0.0
        out_u[u] = share_u[u] * np.sqrt(square)


@compiled
def add_shown(share_u, first_u, place_tf, value_tf, gamma_tk, weight_u, step, out_vk):
    """Add trunc(weight_u · share_u · value ⊗ γ_t / step) at each place; persons of weight 0 are not read."""
    num = gamma_tk.shape[1]
    for u in range(weight_u.size):
        if weight_u[u] == 0.0:
            continue
        for t in range(first_u[u], first_u[u + 1]):
            if place_tf[t, 0] < 0:
                continue
            for f in range(place_tf.shape[1]):
                v, scale = place_tf[t, f], weight_u[u] * share_u[u] / step * value_tf[t, f]
                for k in range(num):
                    out_vk[v, k] += np.int64(scale * gamma_tk[t, k])
