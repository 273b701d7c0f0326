"""The loops over sequences of `forward_backward`, compiled on first use.

Sequence s is positions bounds[s] to bounds[s + 1]. Position t meets row `row_t[t]` of a table of likelihoods under
every state; a row may be scaled, so that its largest entry is 1. Every pass is scaled: α_t sums to 1, and c_t is what
α_t summed to before. A position with c_t = 0 is impossible, and so is its sequence: the sequence adds nothing.

No result of a sequence depends on another one, and no function holds a lock. A loop ends at the state that is innermost
in memory, so that it stays in vector registers.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpvb.kernels.compiled import compiled

# Below this a sum is no probability: its inverse would overflow.
LEAST = 1e-290


@compiled
def _forward(first, last, row_t, likelihood_rk, start_k, step_kk, alpha_tk, scale_t):
    """α_t and c_t of one sequence, at the places 0 and on; returns log Π c_t, -inf where the sequence is impossible."""
    num = start_k.size
    log = 0.0
    for t in range(last - first):
        seen_k, now_k = likelihood_rk[row_t[first + t]], alpha_tk[t]
        if t == 0:
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
        c = 0.0
        for j in range(num):
            now_k[j] *= seen_k[j]
            c += now_k[j]
        if not c > LEAST:
            return -np.inf
        scale_t[t] = c
        inverse = 1.0 / c
        for j in range(num):
            now_k[j] *= inverse
        log += np.log(c)
    return log


@compiled
def forward(bounds_s, row_t, likelihood_rk, start_k, step_kk, alpha_tk, scale_t, log_s, last_sk):
    """Log-likelihood of every sequence, and the law of its last state; `alpha_tk` and `scale_t` are scratch."""
    for s in range(bounds_s.size - 1):
        first, last = bounds_s[s], bounds_s[s + 1]
        log_s[s] = _forward(first, last, row_t, likelihood_rk, start_k, step_kk, alpha_tk, scale_t)
        last_sk[s] = 0.0
        if log_s[s] > -np.inf:
            last_sk[s] = alpha_tk[last - first - 1] if last > first else start_k


@compiled
def expected(
    bounds_s, row_t, likelihood_rk, start_k, step_kk, back_kk, weight_s, place_t, alpha_tk, scale_t, log_s,
    first_k, pair_kk, state_rk,
):  # fmt: skip
    """Weighted sums of γ and ξ, added to what is there: first states, pairs over A, and states at `place_t`.

    Args:
        bounds_s, row_t, likelihood_rk: sequences, as above.
        start_k, step_kk, back_kk: π, A, and the transpose of A.
        weight_s: how often each sequence counts.
        place_t: the row of `state_rk` to which γ_t is added.
        alpha_tk, scale_t: scratch for the longest sequence.
        log_s, first_k, pair_kk, state_rk: where results go. `pair_kk` is to be multiplied by A.
    """
    num = start_k.size
    beta_k, ahead_k = np.empty(num), np.empty(num)
    for s in range(bounds_s.size - 1):
        first, last, weight = bounds_s[s], bounds_s[s + 1], weight_s[s]
        log_s[s] = _forward(first, last, row_t, likelihood_rk, start_k, step_kk, alpha_tk, scale_t)
        if weight == 0.0 or last == first or not log_s[s] > -np.inf:
            continue
        beta_k[:] = weight
        for t in range(last - first - 1, -1, -1):
            now_k, out_k = alpha_tk[t], state_rk[place_t[first + t]]
            for j in range(num):
                out_k[j] += now_k[j] * beta_k[j]
            if t == 0:
                for j in range(num):
                    first_k[j] += now_k[j] * beta_k[j]
                break
            seen_k, before_k, inverse = likelihood_rk[row_t[first + t]], alpha_tk[t - 1], 1.0 / scale_t[t]
            for j in range(num):
                ahead_k[j] = seen_k[j] * beta_k[j] * inverse
                beta_k[j] = 0.0
            for j in range(num):
                w, back_k = ahead_k[j], back_kk[j]
                for i in range(num):
                    beta_k[i] += w * back_k[i]
            for i in range(num):
                a, sum_k = before_k[i], pair_kk[i]
                for j in range(num):
                    sum_k[j] += a * ahead_k[j]


@compiled
def best_path(bounds_s, row_t, log_rk, log_start_k, log_back_kk, from_tk, state_t):
    """The most probable states of every sequence (Viterbi); -1 where it is impossible.

    Args:
        bounds_s, row_t: sequences, as above.
        log_rk, log_start_k, log_back_kk: logarithms of likelihoods, of π, and of the transpose of A.
        from_tk: scratch for the longest sequence.
        state_t: where results go.
    """
    num = log_start_k.size
    now_k, next_k = np.empty(num), np.empty(num)
    for s in range(bounds_s.size - 1):
        first, last = bounds_s[s], bounds_s[s + 1]
        for t in range(last - first):
            seen_k = log_rk[row_t[first + t]]
            for j in range(num):
                if t == 0:
                    next_k[j] = log_start_k[j] + seen_k[j]
                    continue
                most, place = -np.inf, 0
                back_k = log_back_kk[j]
                for i in range(num):
                    if now_k[i] + back_k[i] > most:
                        most, place = now_k[i] + back_k[i], i
                from_tk[t, j] = place
                next_k[j] = most + seen_k[j]
            now_k, next_k = next_k, now_k
        state = 0
        for j in range(num):
            if now_k[j] > now_k[state]:
                state = j
        possible = last > first and now_k[state] > -np.inf
        for t in range(last - first - 1, -1, -1):
            state_t[first + t] = state if possible else -1
            if t > 0:
                state = from_tk[t, state]
