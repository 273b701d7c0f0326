"""The loops over sequences of `passes`, `windows` and `linear_dynamical`, compiled on first use.

Passes. Sequence s is positions bounds[s] to bounds[s + 1]. Position t meets row `row_t[t]` of a table of likelihoods
under every state; a row may be scaled, so that its largest entry is 1. Every pass is scaled: α_t sums to 1, and c_t is
the sum of α_t before. A position with c_t = 0 is impossible, and so is its sequence: the sequence adds nothing.
Sequences go side by side, the longest ones first: the innermost loop is over `lanes`, one sequence each, which suits
vector registers. No lane meets another one, and the compiler reorders nothing, so that the result for a sequence is the
same to the last bit whatever else is computed. No function holds a lock. Arrays are met by their indices: a view of a
row is a counted reference, which costs more than the row's arithmetic.

Sums over states. Person u has the positions first_u[u] to first_u[u + 1]. Position t shows the values `value_tf[t]` at
the places `place_tf[t]`, and one whose first place is negative shows nothing; γ_t is 0 in a sequence that adds nothing.
A person adds nothing to what another one adds, and all sums are of integers.

Second moments. Person u has the sequences order[first[u]:first[u + 1]], and sequence r the points
value_td[indptr[r]:indptr[r + 1]], of which the first `longest` count. A window is `length` points side by side, all of
them finite; y is its numbers with a constant behind them. A person's M windows add (1/M) Σ y yᵀ. Nothing is reordered
by the compiler, so that norms and sums use the same bits.

Windows of symbols. Windows of k consecutive symbols are counted person by person. Person u has the sequences
order[first[u]:first[u + 1]], and sequence r the symbols code[indptr[r]:indptr[r + 1]], of which the first `longest`
count. A code outside 0..width-1 is a gap, and no window crosses one. A window is at the place Σ_i c_i width^(k-1-i). A
person's M windows add M^(power-1) each. All counts are integers, so that no order of sequences or persons changes a
bit.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

from functools import partial

import numpy as np

from dpvb.kernels.compiled import compiled

strict = partial(compiled, fastmath=False)
# The inverse of a sum of probabilities is less than this; otherwise it has none.
_MOST = 1e290
# A product of such inverses that is larger goes into a logarithm; another inverse still fits.
_LARGE = 1e15
# Sequences side by side; numbers that may be kept of their forward passes.
_LANES, _ENTRIES = 64, 2**23


@strict
def longest_first(bounds, counts_s):
    """Numbers of the sequences that count and are not empty, the longest first; those of one length in order."""
    longest = 0
    for s in range(counts_s.size):
        longest = max(longest, bounds[s + 1] - bounds[s])
    place_d = np.zeros(longest + 1, np.int64)
    for s in range(counts_s.size):
        if counts_s[s] and bounds[s + 1] > bounds[s]:
            place_d[longest - (bounds[s + 1] - bounds[s])] += 1
    number = 0
    for d in range(longest + 1):
        number, place_d[d] = number + place_d[d], number
    order_s = np.empty(number, np.int64)
    for s in range(counts_s.size):
        if counts_s[s] and bounds[s + 1] > bounds[s]:
            d = longest - (bounds[s + 1] - bounds[s])
            order_s[place_d[d]] = s
            place_d[d] += 1
    return order_s


@strict
def _lanes(order_s, bounds, num):
    """How many sequences go side by side, and the length of the longest."""
    longest = bounds[order_s[0] + 1] - bounds[order_s[0]] if order_s.size > 0 else 0
    return max(1, min(_LANES, order_s.size, _ENTRIES // max(1, longest * num))), longest


@strict
def _times(law_kk, from_kn, to_kn, lanes):
    """to_j = Σ_i law_ji from_i in every lane; four terms at a time, which are read and written once."""
    num = len(law_kk)
    for j in range(num):
        for n in range(lanes):
            to_kn[j, n] = 0.0
        for i in range(0, num - 3, 4):
            p, q, r, s = law_kk[j, i], law_kk[j, i + 1], law_kk[j, i + 2], law_kk[j, i + 3]
            for n in range(lanes):
                to_kn[j, n] += (p * from_kn[i, n] + q * from_kn[i + 1, n]) + (
                    r * from_kn[i + 2, n] + s * from_kn[i + 3, n]
                )
        for i in range(num - num % 4, num):
            p = law_kk[j, i]
            for n in range(lanes):
                to_kn[j, n] += p * from_kn[i, n]


@strict
def _shown(at_n, t, lanes, row_t, likelihood_rk, seen_kn):
    """The likelihoods that position t of each lane meets."""
    for n in range(lanes):
        row = row_t[at_n[n] + t]
        for k in range(len(seen_kn)):
            seen_kn[k, n] = likelihood_rk[row, k]


@strict
def _forward(at_n, t, lanes, row_t, likelihood_rk, start_k, back_kk, before_kn, now_kn, seen_kn, scale_n):
    """α_t from α_t-1, and 1/c_t, of every lane."""
    num = start_k.size
    _shown(at_n, t, lanes, row_t, likelihood_rk, seen_kn)
    if t == 0:
        for k in range(num):
            for n in range(lanes):
                now_kn[k, n] = start_k[k]
    else:
        _times(back_kk, before_kn, now_kn, lanes)
    for n in range(lanes):
        scale_n[n] = 0.0
    for k in range(num):
        for n in range(lanes):
            now_kn[k, n] *= seen_kn[k, n]
            scale_n[n] += now_kn[k, n]
    for n in range(lanes):
        scale_n[n] = 1.0 / scale_n[n]
    for k in range(num):
        for n in range(lanes):
            now_kn[k, n] *= scale_n[n]


@strict
def forward(order_s, bounds, row_t, likelihood_rk, start_k, back_kk, log_s, last_sk):
    """Log-likelihood of these sequences, -inf of one that is impossible, and the distribution of its last state, or 0.

    Args:
        order_s: which sequences, as `longest_first` has them.
        bounds, row_t, likelihood_rk: sequences, as above.
        start_k, back_kk: π, and the transpose of A.
        log_s, last_sk: where results go.
    """
    num = start_k.size
    wide, _ = _lanes(order_s, bounds, num)
    alpha_tkn, seen_kn, scale_n = np.empty((2, num, wide)), np.empty((num, wide)), np.empty(wide)
    at_n, product_n = np.empty(wide, np.int64), np.empty(wide)
    for begin in range(0, order_s.size, wide):
        lanes = min(wide, order_s.size - begin)
        for n in range(lanes):
            s = order_s[begin + n]
            at_n[n], product_n[n], log_s[s] = bounds[s], 1.0, 0.0
        t = 0
        while lanes > 0:
            now_kn = alpha_tkn[t % 2]
            _forward(
                at_n, t, lanes, row_t, likelihood_rk, start_k, back_kk, alpha_tkn[1 - t % 2], now_kn, seen_kn, scale_n
            )
            for n in range(lanes):
                product_n[n] *= scale_n[n] if scale_n[n] < _MOST else np.inf
                if product_n[n] > _LARGE:
                    log_s[order_s[begin + n]] -= np.log(product_n[n])
                    product_n[n] = 1.0
            t += 1
            while lanes > 0 and bounds[order_s[begin + lanes - 1] + 1] == at_n[lanes - 1] + t:
                lanes -= 1
                s = order_s[begin + lanes]
                log_s[s] -= np.log(product_n[lanes])
                for k in range(num):
                    last_sk[s, k] = now_kn[k, lanes] if log_s[s] > -np.inf else 0.0


@strict
def passes(
    order_s, bounds, row_t, likelihood_rk, start_k, step_kk, back_kk, weight_s, owner_s, gamma_tk, pair_ukk, possible_s
):  # fmt: skip
    """γ_t of every position of these sequences, and Σ ξ_t of their owners; only this call adds to both.

    Args:
        order_s: which sequences, as `longest_first` has them.
        bounds, row_t, likelihood_rk: sequences, as above.
        start_k, step_kk, back_kk: π, A, and the transpose of A.
        weight_s: how often each sequence counts.
        owner_s: the place of each in `pair_ukk`.
        gamma_tk, pair_ukk: where results go, 0 before; an impossible sequence leaves them as they are.
        possible_s: whether the sequence is possible; goes where results go.
    """
    num = start_k.size
    wide, longest = _lanes(order_s, bounds, num)
    alpha_tkn, scale_tn = np.empty((longest, num, wide)), np.empty((longest, wide))
    seen_kn, beta_kn = np.empty((num, wide)), np.empty((num, wide))
    ahead_2kn, pair_kkn = np.empty((2, num, wide)), np.empty((num, num, wide))
    at_n, length_n, possible_n = np.empty(wide, np.int64), np.empty(wide, np.int64), np.empty(wide, np.bool_)
    for begin in range(0, order_s.size, wide):
        most = min(wide, order_s.size - begin)
        for n in range(most):
            s = order_s[begin + n]
            at_n[n], length_n[n], possible_n[n] = bounds[s], bounds[s + 1] - bounds[s], True
        lanes = most
        for t in range(length_n[0]):
            while length_n[lanes - 1] <= t:
                lanes -= 1
            _forward(
                at_n, t, lanes, row_t, likelihood_rk, start_k, back_kk, alpha_tkn[t - 1], alpha_tkn[t], seen_kn,
                scale_tn[t],
            )  # fmt: skip
            for n in range(lanes):
                possible_n[n] &= scale_tn[t, n] < _MOST
        pair_kkn[:] = 0.0
        lanes = 0
        for t in range(length_n[0] - 1, -1, -1):
            while lanes < most and length_n[lanes] > t:
                for k in range(num):
                    beta_kn[k, lanes] = weight_s[order_s[begin + lanes]]
                    ahead_2kn[(t + 1) % 2, k, lanes] = 0.0
                lanes += 1
            for n in range(lanes):
                for k in range(num):
                    gamma_tk[at_n[n] + t, k] = alpha_tkn[t, k, n] * beta_kn[k, n] if possible_n[n] else 0.0
            if t == 0:
                break
            _shown(at_n, t, lanes, row_t, likelihood_rk, seen_kn)
            for k in range(num):
                for n in range(lanes):
                    ahead_2kn[t % 2, k, n] = seen_kn[k, n] * beta_kn[k, n] * scale_tn[t, n]
            _times(step_kk, ahead_2kn[t % 2], beta_kn, lanes)
            if t % 2 == 1:  # Two terms at a time; the later one is 0 where it is beyond a sequence's end.
                for i in range(num):
                    for j in range(num):
                        for n in range(lanes):
                            pair_kkn[i, j, n] += (
                                alpha_tkn[t - 1, i, n] * ahead_2kn[1, j, n] + alpha_tkn[t, i, n] * ahead_2kn[0, j, n]
                            )
        for i in range(num):
            for n in range(most):
                s = order_s[begin + n]
                possible_s[s] = possible_n[n]
                if possible_n[n]:
                    for j in range(num):
                        pair_ukk[owner_s[s], i, j] += step_kk[i, j] * pair_kkn[i, j, n]


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
        for adds in (True, False):  # The additions are measured and set back to 0.
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


@strict
def _mean_gram(indptr, value_td, own, length, longest, starts, constant, out):
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
def gram_norms(indptr, value_td, order, first, length, longest, starts, constant, out_u):
    """Frobenius norm of each person's contribution, before rounding is allowed for; 0 without a window."""
    width = length * value_td.shape[1]
    mean = np.empty((width + 1, width + 1))
    for u in range(out_u.size):
        out_u[u] = 0.0
        own = order[first[u] : first[u + 1]]
        if _mean_gram(indptr, value_td, own, length, longest, starts, constant, mean) == 0:
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
def add_grams(indptr, value_td, order, first, length, longest, starts, constant, weight_u, step, out):
    """Add trunc(weight_u · mean / step) to a packed triangle; persons of weight 0 are not read."""
    width = length * value_td.shape[1]
    mean = np.empty((width + 1, width + 1))
    for u in range(weight_u.size):
        own = order[first[u] : first[u + 1]]
        if weight_u[u] == 0.0 or _mean_gram(indptr, value_td, own, length, longest, starts, constant, mean) == 0:
            continue
        place = width + 1
        for i in range(width + 1):
            out[i] += np.int64(weight_u[u] * mean[i, i] / step)
            for j in range(i + 1, width + 1):
                out[place] += np.int64(weight_u[u] * mean[j, i] / step)
                place += 1


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
    """L2 norm of each person's contribution, from integer squares; 0 without a window."""
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
