"""The loops of `dpvb.models.topics.kernel`, compiled on first use.

Every function works on a range of documents, or of words, and holds no lock, so that the caller spreads ranges
over threads. No result of a document depends on the range it came in. `nnan` and `ninf` are left out of the
fast-math flags: a NaN must reach the clip, which turns it into zero.

A document's block is K x n, words contiguous and padded to a multiple of 16 by words of probability 0 and count 0,
so that no loop has a remainder. Its dtype is that of the topics; `precision` carries the dtype of the fixed point.
Ratios and the norm are float64 always.

The fixed point γ ← F(γ) is where the time is. Two things reduce it, and neither touches the stopping rule, which
is met by an evaluation of F over every topic:

* Momentum with restart (Nesterov 1983; O'Donoghue and Candès 2015): the next point is F(γ) plus up to 0.95 times the
  last change of F(γ); momentum starts anew when it points against the residual. A point is never moved more than
  0.9 of the way to the prior.
* A topic whose γ_k has come within 0.1 of the tolerance of α_k is set to α_k and left out of the sweeps; when
  the others have converged, one sweep over every topic decides, and may bring it back.
"""

from __future__ import annotations

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"
import numpy as np

from dpvb.kernels.compiled import compiled

LANES = 16
DROP = 0.1  # a topic whose γ_k is so close to α_k, in units of tol, is left out of the sweeps
SMALL32 = 1e-30  # least probability of a word, and least θ_k / max θ, inside a float32 fixed point


@compiled
def exp_digamma(x_k, out_k):
    """exp(ψ(x)), x > 0, by ψ(x) = ψ(x + 6) - Σ_{i<6} 1/(x + i) and the series of exp(ψ(z + 1/2)) in 1/z."""
    for k in range(x_k.size):
        x = x_k[k]
        u = x * (x + 5.0)
        shift = (2.0 * x + 5.0) * ((3.0 * u + 20.0) * u + 24.0) / (u * (u + 4.0) * (u + 6.0))
        y = x + 5.5
        z = 1.0 / y
        w = z * z
        series = y + z * (1 / 24 + w * (-37 / 5760 + w * (10313 / 2903040 + w * (-5509121 / 1393459200))))
        # exp(-shift) = exp(-shift/1024)^1024: no table and no bit trick, so the loop stays in vector registers
        t = (700.0 if shift > 700.0 else shift) * (-1 / 1024)
        e = 1 / 120 + t * (1 / 720 + t * (1 / 5040 + t * (1 / 40320 + t * (1 / 362880))))
        e = 1.0 + t * (1.0 + t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * e))))
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        out_k[k] = series * e


@compiled
def _probabilities(block, stride, topics, num, weight_i, p_j):
    """p_j = Σ_i weight_i block_kj with k = topics_i, i < num; four topics a pass."""
    p_j[:] = 0
    i = 0
    while i + 4 <= num:
        k0, k1, k2, k3 = topics[i], topics[i + 1], topics[i + 2], topics[i + 3]
        w0, w1, w2, w3 = weight_i[i], weight_i[i + 1], weight_i[i + 2], weight_i[i + 3]
        b0 = block[k0 * stride : k0 * stride + stride]
        b1 = block[k1 * stride : k1 * stride + stride]
        b2 = block[k2 * stride : k2 * stride + stride]
        b3 = block[k3 * stride : k3 * stride + stride]
        for j in range(stride):
            p_j[j] += w0 * b0[j] + w1 * b1[j] + w2 * b2[j] + w3 * b3[j]
        i += 4
    while i < num:
        k0 = topics[i]
        w0 = weight_i[i]
        b0 = block[k0 * stride : k0 * stride + stride]
        for j in range(stride):
            p_j[j] += w0 * b0[j]
        i += 1


@compiled
def _pulls(block, stride, topics, num, r_j, g_i):
    """g_i = Σ_j block_kj r_j with k = topics_i, i < num; four topics a pass."""
    zero = r_j.dtype.type(0)
    i = 0
    while i + 4 <= num:
        k0, k1, k2, k3 = topics[i], topics[i + 1], topics[i + 2], topics[i + 3]
        b0 = block[k0 * stride : k0 * stride + stride]
        b1 = block[k1 * stride : k1 * stride + stride]
        b2 = block[k2 * stride : k2 * stride + stride]
        b3 = block[k3 * stride : k3 * stride + stride]
        g0 = g1 = g2 = g3 = zero
        for j in range(stride):
            r = r_j[j]
            g0 += b0[j] * r
            g1 += b1[j] * r
            g2 += b2[j] * r
            g3 += b3[j] * r
        g_i[i], g_i[i + 1], g_i[i + 2], g_i[i + 3] = g0, g1, g2, g3
        i += 4
    while i < num:
        k0 = topics[i]
        b0 = block[k0 * stride : k0 * stride + stride]
        g0 = zero
        for j in range(stride):
            g0 += b0[j] * r_j[j]
        g_i[i] = g0
        i += 1


@compiled
def _masses(block, stride, theta_k, p_j, square_j):
    """p_j = Σ_k θ_k block_kj and square_j = Σ_k (θ_k block_kj)² in float64; two topics a pass."""
    p_j[:] = 0.0
    square_j[:] = 0.0
    num_topics = theta_k.size
    for k in range(0, num_topics - 1, 2):
        b0 = block[k * stride : (k + 1) * stride]
        b1 = block[(k + 1) * stride : (k + 2) * stride]
        t0, t1 = theta_k[k], theta_k[k + 1]
        for j in range(stride):
            a0, a1 = t0 * b0[j], t1 * b1[j]
            p_j[j] += a0 + a1
            square_j[j] += a0 * a0 + a1 * a1
    if num_topics % 2:
        b0 = block[(num_topics - 1) * stride : num_topics * stride]
        t0 = theta_k[num_topics - 1]
        for j in range(stride):
            a0 = t0 * b0[j]
            p_j[j] += a0
            square_j[j] += a0 * a0


@compiled
def local_range(
    first,
    last,
    indptr,
    indices,
    counts,
    spread_j,
    b_vk,
    alpha_k,
    tol,
    max_iter,
    fixed_iterations,
    accelerate,
    precision,
    theta_nk,
    ratio_j,
    norm_n,
    gamma_nk,
):
    """Write the fixed point, ratios and norm bound of the documents first..last-1 in place."""
    num_terms, num_topics = b_vk.shape
    longest = 1
    for n in range(first, last):
        longest = max(longest, indptr[n + 1] - indptr[n])
    longest = (longest + LANES - 1) // LANES * LANES
    block_all = np.empty(num_topics * longest, b_vk.dtype)
    word_j = np.empty(longest, np.int64)
    counts_all = np.empty(longest, precision.dtype)
    p_all = np.empty(longest, precision.dtype)
    mass_all, square_all = np.empty((2, longest))
    weight_i = np.empty(num_topics, precision.dtype)
    g_i = np.empty(num_topics, precision.dtype)
    prior_i, x_i, last_i, new_i = np.empty((4, num_topics))
    topics = np.empty(num_topics, np.int64)
    small = precision.dtype.type(SMALL32 if precision.itemsize == 4 else NO_MASS)
    drop = DROP * tol if accelerate and not fixed_iterations else 0.0
    for n in range(first, last):
        begin, end = indptr[n], indptr[n + 1]
        num_words = end - begin
        gamma_k, theta_k = gamma_nk[n], theta_nk[n]
        largest = 0.0
        sound = True
        before = -1
        for i in range(begin, end):
            sound = sound and before < indices[i] < num_terms and 0.0 <= counts[i] <= HUGE
            sound = sound and 0.0 <= spread_j[i] <= HUGE
            before = indices[i]
            largest = max(largest, counts[i])
        if not sound or largest < TINY:
            num_words = 0
            largest = 0.0
            ratio_j[begin:end] = 0.0
        stride = (num_words + LANES - 1) // LANES * LANES
        block = block_all[: num_topics * stride]
        counts_j, p_j = counts_all[:stride], p_all[:stride]
        for j in range(stride):
            counts_j[j] = counts[begin + j] if j < num_words else 0
            word_j[j] = indices[begin + j] if j < num_words else indices[begin]
        for j in range(0, stride, LANES):
            for k in range(num_topics):
                for lane in range(LANES):
                    block[k * stride + j + lane] = b_vk[word_j[j + lane], k]
        for k in range(num_topics):
            block[k * stride + num_words : (k + 1) * stride] = 0
            topics[k] = k
            prior_i[k] = alpha_k[k]
            x_i[k] = last_i[k] = 1.0
        active = num_topics
        step = 1.0
        for iteration in range(max_iter):
            exp_digamma(x_i[:active], new_i)
            top = 0.0
            for i in range(active):
                top = max(top, new_i[i])
            scale = 1.0 / top
            for i in range(active):
                w = precision.dtype.type(new_i[i] * scale)
                weight_i[i] = 0 if w < small else w  # denormal numbers are slow
            _probabilities(block, stride, topics, active, weight_i, p_j)
            for j in range(stride):
                p = p_j[j]
                p_j[j] = counts_j[j] / (small if p < small else p)
            _pulls(block, stride, topics, active, p_j, g_i)
            change = 0.0
            along = 0.0
            for i in range(active):
                new = prior_i[i] + np.float64(weight_i[i] * g_i[i])
                new_i[i] = new
                change += abs(new - x_i[i])
                along += (new - x_i[i]) * (new - last_i[i])
            done = change < tol * num_topics and not fixed_iterations
            if (done and active == num_topics) or iteration + 1 == max_iter:
                break
            if done:  # one sweep over every topic decides
                gamma_k[:] = alpha_k
                for i in range(active):
                    gamma_k[topics[i]] = new_i[i]
                for k in range(num_topics):
                    topics[k] = k
                    prior_i[k] = alpha_k[k]
                    x_i[k] = last_i[k] = gamma_k[k]
                active = num_topics
                step = 1.0
                continue
            step = 1.0 if along < 0.0 else step + 1.0
            momentum = min(1.0 - 1.0 / step, MOST_MOMENTUM) if accelerate else 0.0
            for i in range(active):
                new = new_i[i]
                ahead = new + momentum * (new - last_i[i])
                least = prior_i[i] + KEPT * (new - prior_i[i])
                x_i[i] = least if ahead < least else ahead
                last_i[i] = new
            if drop > 0.0:
                num_left = 0
                for i in range(active):
                    if last_i[i] - prior_i[i] < drop:
                        continue
                    topics[num_left], prior_i[num_left] = topics[i], prior_i[i]
                    x_i[num_left], last_i[num_left] = x_i[i], last_i[i]
                    num_left += 1
                active = num_left
        gamma_k[:] = alpha_k
        for i in range(active):
            gamma_k[topics[i]] = new_i[i]
        exp_digamma(gamma_k, theta_k)
        mass_j, square_j = mass_all[:stride], square_all[:stride]
        _masses(block, stride, theta_k, mass_j, square_j)
        largest = 0.0
        for j in range(num_words):
            largest = max(largest, spread_j[begin + j])
        if largest == 0.0:
            largest = 1.0
        norm2 = 0.0
        for j in range(num_words):
            p = mass_j[j]
            if p < NO_MASS:
                ratio_j[begin + j] = 0.0
                continue
            ratio_j[begin + j] = spread_j[begin + j] / p
            square = square_j[j]
            if p < 1e-100:  # the squares may have underflowed
                square = 0.0
                for k in range(num_topics):
                    a = theta_k[k] * block[k * stride + j] / p
                    square += a * a
                p = 1.0
            part = spread_j[begin + j] / largest
            norm2 += part * part * (square / (p * p))
        norm_n[n] = largest * np.sqrt(norm2) * (1.0 + (num_topics + num_words + 16) * ROUNDING)


def _accumulate_range(first_word, last_word, indptr, indices, ratio_j, theta_nk, weight_n, b_vk, grid, most, out_vk):
    """Add every document's truncated integers, from 0 to `most`, for the words first_word..last_word-1 only."""
    num_topics = b_vk.shape[1]
    for n in range(weight_n.size):
        if weight_n[n] == 0.0:
            continue
        theta_k = theta_nk[n]
        for i in range(indptr[n], indptr[n + 1]):
            v = indices[i]
            if v < first_word or v >= last_word:
                continue
            scale = weight_n[n] * ratio_j[i] / grid
            out_k = out_vk[v]
            b_k = b_vk[v]
            for k in range(num_topics):
                s = theta_k[k] * b_k[k] * scale
                s = s if s > 0.0 else 0.0  # NaN as well
                out_k[k] += np.int64(s if s < most else most)


accumulate_range = compiled(_accumulate_range, fastmath=False)  # the same bits on every machine


# Numbers that the compiled kernel and the plain one share.


#: Largest share of the last change of F(γ) that is added to it.
MOST_MOMENTUM = 0.95
#: Least part of γ_k - α_k that momentum leaves.
KEPT = 0.1
#: A word less probable than this has no topic, and adds nothing.
NO_MASS = 1e-200  # convention: quotients by it stay finite
#: A document with a larger count is treated as empty.
HUGE = 1e30
#: A document whose largest count is smaller is treated as empty.
TINY = 1e-100  # convention: the squares of larger counts are above 0
#: A relative rounding error of float64 is at most half of it.
ROUNDING = 2.0**-52  # derived: the distance of 1 and the next number
