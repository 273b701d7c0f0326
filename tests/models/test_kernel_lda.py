"""The LDA kernel against plain iteration, exact integers and its own promises of purity."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from oracles import topic_kernel
from planted import edit, kills
from scipy.special import digamma, gammaln

from dpvb.core.blocks import Grid
from dpvb.errors import ParameterError
from dpvb.models.topics import kernel, kernel_numba

ENGINES = (topic_kernel, kernel)
#: Prior of the seven topics of a corpus.
ALPHA = np.linspace(0.05, 0.8, 7)


def corpus(seed, *, docs=40, terms=60, topics=7, length=80, concentration=0.1):
    """Documents with words drawn from random topics, and those topics as V x K."""
    rng = np.random.default_rng(seed)
    b_vk = rng.gamma(concentration, size=(topics, terms)) + 1e-9
    b_vk = np.ascontiguousarray((b_vk / b_vk.sum(1, keepdims=True)).T)
    rows = [rng.multinomial(rng.integers(1, length), b_vk @ rng.dirichlet(np.full(topics, 0.3))) for _ in range(docs)]
    return *csr(np.array(rows, dtype=float)), b_vk


def csr(x_nv):
    rows = [np.flatnonzero(x_v) for x_v in x_nv]
    indptr = np.concatenate([[0], np.cumsum([row.size for row in rows])]).astype(np.int64)
    counts = np.concatenate([x_v[row] for x_v, row in zip(x_nv, rows, strict=True)])
    return indptr, np.concatenate(rows).astype(np.int32), counts


def pick(indptr, indices, counts, chosen):
    """The chosen documents, in the given order."""
    parts = [np.arange(indptr[n], indptr[n + 1]) for n in chosen]
    entries = np.concatenate(parts)
    return np.concatenate([[0], np.cumsum([p.size for p in parts])]), indices[entries], counts[entries], entries


def plain(count_j, b_jk, alpha_k, *, tol, max_iter=100_000):
    """E-step with the responsibilities written out; nothing shared with the code under test."""
    gamma_k = np.ones(alpha_k.size)
    used = 0
    while used < max_iter:
        used += 1
        log_phi_jk = np.log(b_jk) + digamma(gamma_k)
        phi_jk = np.exp(log_phi_jk - log_phi_jk.max(1, keepdims=True))
        phi_jk /= phi_jk.sum(1, keepdims=True)
        new_k = alpha_k + count_j @ phi_jk
        change, gamma_k = np.abs(new_k - gamma_k).mean(), new_k
        if change < tol:
            break
    return gamma_k, used


def elbo(gamma_k, count_j, b_jk, alpha_k):
    """The document's bound with the best responsibilities, up to constants."""
    elog_k = digamma(gamma_k) - digamma(gamma_k.sum())
    words = count_j @ np.log(b_jk @ np.exp(elog_k))
    return words + (alpha_k - gamma_k) @ elog_k + gammaln(gamma_k).sum() - gammaln(gamma_k.sum())


def statistic(indptr, indices, ratio_j, theta_nk, b_vk, n):
    """s_n as V x K, by the definition."""
    row = slice(indptr[n], indptr[n + 1])
    s_vk = np.zeros(b_vk.shape)
    s_vk[indices[row]] = theta_nk[n] * b_vk[indices[row]].astype(float) * ratio_j[row, None]
    return s_vk


def exact_norm_squared(row_vk):
    return sum(int(x) ** 2 for x in row_vk.ravel())


@cache
def converged():
    """The limits of the plain iteration for all documents of a corpus; both engines are compared with them."""
    indptr, indices, counts, b_vk = corpus(1)
    rows = [slice(*ends) for ends in itertools.pairwise(indptr)]
    return [plain(counts[row], b_vk[indices[row]], ALPHA, tol=1e-10)[0] for row in rows]


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_converged_gamma_is_that_of_the_explicit_responsibilities(engine):
    indptr, indices, counts, b_vk = corpus(1)
    theta_nk, ratio_j, _, gamma_nk = engine.local_step(indptr, indices, counts, b_vk, ALPHA, tol=1e-10, max_iter=20_000)
    for n in range(indptr.size - 1):
        row = slice(indptr[n], indptr[n + 1])
        expected_k = converged()[n]
        np.testing.assert_allclose(gamma_nk[n], expected_k, rtol=1e-5, atol=1e-7)
        s_vk = statistic(indptr, indices, ratio_j, theta_nk, b_vk, n)
        np.testing.assert_allclose(s_vk.sum(1)[indices[row]], counts[row], rtol=1e-12)
        np.testing.assert_allclose(ALPHA + s_vk.sum(0), gamma_nk[n], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_converged_gamma_is_a_stationary_point_of_the_bound(engine):
    indptr, indices, counts, b_vk = corpus(2, docs=12)
    alpha_k = np.full(7, 0.4)
    *_, gamma_nk = engine.local_step(indptr, indices, counts, b_vk, alpha_k, tol=1e-11, max_iter=50_000)
    for n, gamma_k in enumerate(gamma_nk):
        row = slice(indptr[n], indptr[n + 1])
        document = counts[row], b_vk[indices[row]], alpha_k
        for k in range(7):
            step_k = np.zeros(7)
            step_k[k] = 1e-4 * gamma_k[k]
            slope = elbo(gamma_k + step_k, *document) - elbo(gamma_k - step_k, *document)
            assert abs(slope) < 1e-8


@cache
def summed_statistic():
    """The statistic of a corpus by the plain iteration, to which statistics of both types are compared."""
    indptr, indices, counts, b_vk = corpus(3, docs=40, terms=200, topics=20)
    alpha_k, expected_vk = np.full(20, 0.05), np.zeros(b_vk.shape)
    for n in range(indptr.size - 1):
        row = slice(indptr[n], indptr[n + 1])
        gamma_k, _ = plain(counts[row], b_vk[indices[row]], alpha_k, tol=1e-8, max_iter=10_000)
        phi_jk = b_vk[indices[row]] * np.exp(digamma(gamma_k))
        expected_vk[indices[row]] += counts[row, None] * phi_jk / phi_jk.sum(1, keepdims=True)
    return expected_vk


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_statistic_at_tight_tolerance(dtype):
    """Relative L1 error of the summed statistic against float64 topics and the plain iteration."""
    indptr, indices, counts, b_vk = corpus(3, docs=40, terms=200, topics=20)
    alpha_k, expected_vk = np.full(20, 0.05), summed_statistic()
    sums = []
    for engine, topics in ((topic_kernel, b_vk), (kernel, b_vk.astype(dtype))):
        theta_nk, ratio_j, _, _ = engine.local_step(indptr, indices, counts, topics, alpha_k, tol=1e-8, max_iter=10_000)
        out_vk = np.zeros(b_vk.shape, np.int64)
        weight_n = np.ones(indptr.size - 1)
        engine.accumulate(indptr, indices, ratio_j, theta_nk, weight_n, topics, 2.0**-40, out_vk)
        sums.append(out_vk * 2.0**-40)
    total = expected_vk.sum()
    assert np.abs(sums[0] - expected_vk).sum() < 1e-6 * total
    assert np.abs(sums[1] - expected_vk).sum() < (1e-5 if dtype == np.float32 else 1e-6) * total


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_accelerated_reaches_the_plain_fixed_point_where_it_is_unique(engine):
    """alpha = 2 makes the bound so curved that there is one maximum."""
    indptr, indices, counts, b_vk = corpus(4)
    alpha_k = np.full(7, 2.0)
    *_, fast_nk = engine.local_step(indptr, indices, counts, b_vk.astype(np.float32), alpha_k, tol=1e-4)
    *_, exact_nk = engine.local_step(indptr, indices, counts, b_vk, alpha_k, tol=1e-10, max_iter=20_000)
    assert np.abs(fast_nk - exact_nk).mean(1).max() < 2e-3


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_accelerated_is_at_least_as_converged_as_plain_iteration_of_the_same_tolerance(engine):
    """Mean distance to the limit of the plain iteration from there, and mean bound, over 30 sparse documents."""
    indptr, indices, counts, b_vk = corpus(5, docs=30, terms=300, topics=15, length=400)
    alpha_k = np.full(15, 0.05)
    *_, fast_nk = engine.local_step(indptr, indices, counts, b_vk.astype(np.float32), alpha_k)
    figures = []
    for n in range(indptr.size - 1):
        row = slice(indptr[n], indptr[n + 1])
        document = counts[row], b_vk[indices[row]], alpha_k
        slow_k, _ = plain(*document, tol=1e-3, max_iter=100)
        limits = []
        for start_k in (fast_nk[n], slow_k):
            gamma_k = start_k
            for _ in range(400):
                phi_jk = document[1] * np.exp(digamma(gamma_k))
                gamma_k = alpha_k + document[0] @ (phi_jk / phi_jk.sum(1, keepdims=True))
            limits.append(np.abs(gamma_k - start_k).sum())
        figures.append([*limits, elbo(fast_nk[n], *document), elbo(slow_k, *document)])
    fast_distance, slow_distance, fast_bound, slow_bound = np.mean(figures, axis=0)
    assert fast_distance <= slow_distance
    assert fast_bound >= slow_bound


def test_stopping_rule_is_met_by_a_plain_evaluation_over_every_topic():
    """|F(γ) - γ| of the returned γ stays near the tolerance although collapsed topics were left out on the way."""
    indptr, indices, counts, b_vk = corpus(6, docs=100, terms=300, topics=30, length=300)
    alpha_k = np.full(30, 1 / 30)
    *_, gamma_nk = kernel.local_step(indptr, indices, counts, b_vk.astype(np.float32), alpha_k, max_iter=1000)
    for n, gamma_k in enumerate(gamma_nk):
        row = slice(indptr[n], indptr[n + 1])
        phi_jk = b_vk[indices[row]] * np.exp(digamma(gamma_k))
        new_k = alpha_k + counts[row] @ (phi_jk / phi_jk.sum(1, keepdims=True))
        assert np.abs(new_k - gamma_k).mean() < 1.05e-3


def test_exp_digamma_series():

    x = np.concatenate([np.logspace(-2, 7, 2000), np.linspace(0.01, 12, 500)])
    got = np.empty_like(x)
    kernel_numba.exp_digamma(x, got)
    np.testing.assert_allclose(got, np.exp(digamma(x)), rtol=2e-9)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_norm_bounds_the_exact_integer_row(engine, dtype, scale):
    """‖accumulate(weight 1)‖·grid ≤ norm ≤ (1 + 1e-6)·‖·‖ + truncation, in Python integers."""
    indptr, indices, counts, b_vk = corpus(7, docs=15, topics=5)
    counts, topics = counts * scale, b_vk.astype(dtype)
    step = 2.0 ** math.floor(math.log2(scale) - 36)
    theta_nk, ratio_j, norm_n, _ = engine.local_step(indptr, indices, counts, topics, np.full(5, 0.2))
    for n in range(indptr.size - 1):
        out_vk = np.zeros(topics.shape, np.int64)
        engine.accumulate(indptr, indices, ratio_j, theta_nk, np.eye(15)[n], topics, step, out_vk)
        grid_units = int(norm_n[n] / step * 2**20)  # floor, so the first inequality is tested a little too strictly
        assert exact_norm_squared(out_vk) << 40 <= grid_units**2
        truncation = math.sqrt(np.count_nonzero(statistic(indptr, indices, ratio_j, theta_nk, topics, n))) * step
        assert norm_n[n] <= (1 + 1e-6) * math.sqrt(exact_norm_squared(out_vk)) * step + truncation


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_norm_survives_probabilities_whose_squares_underflow(engine):
    """One word, topics near 1e-160: s is (c/2, c/2) and its norm c/√2 although every θB squares to zero."""
    topics = np.full((3, 2), 1e-160)
    theta_nk, ratio_j, norm_n, _ = engine.local_step(
        np.array([0, 1]), np.array([1]), np.array([6.0]), topics, np.full(2, 0.5), tol=1e-8
    )
    out_vk = np.zeros((3, 2), np.int64)
    engine.accumulate(np.array([0, 1]), np.array([1]), ratio_j, theta_nk, np.ones(1), topics, 2.0**-40, out_vk)
    np.testing.assert_allclose(norm_n, 6 / math.sqrt(2), rtol=1e-12)
    np.testing.assert_allclose(out_vk[1] * 2.0**-40, [3.0, 3.0], rtol=1e-11)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_worked_example_of_the_papers(engine):
    """L = V = K = 2, a = 0.1, s = [[1, 0], [1, 0]]: norm √2, clipped to s·0.2/√2."""
    document = np.array([0, 1]), np.array([0]), np.array([2.0])
    topics = np.full((2, 2), 0.5)
    theta_nk, ratio_j, norm_n, _ = engine.local_step(*document, topics, np.full(2, 0.5))
    np.testing.assert_allclose(norm_n, math.sqrt(2), rtol=1e-6)
    out_vk = np.zeros((2, 2), np.int64)
    weight_n = np.minimum(1, 0.1 * 2 / norm_n)
    engine.accumulate(*document[:2], ratio_j, theta_nk, weight_n, topics, 2.0**-50, out_vk)
    np.testing.assert_allclose(out_vk.T * 2.0**-50, np.array([[1, 0], [1, 0]]) * 0.2 / math.sqrt(2), rtol=1e-6)
    assert exact_norm_squared(out_vk) <= (0.2 * 2**50) ** 2


@pytest.mark.parametrize("fixed_iterations", [False, True])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_a_document_is_the_same_bits_in_any_company_order_and_thread(tol, fixed_iterations):
    indptr, indices, counts, b_vk = corpus(8, docs=600, terms=90, topics=11, length=150)
    topics, alpha_k = b_vk.astype(np.float32), np.full(11, 0.1)
    settings = {"tol": tol, "max_iter": 40, "fixed_iterations": fixed_iterations}
    whole = kernel.local_step(indptr, indices, counts, topics, alpha_k, threads=1, **settings)
    order = np.random.default_rng(0).permutation(600)
    for chosen, threads in ((order, 2), (order[:7], 1), (order[7:8], 3)):
        *part, entries = pick(indptr, indices, counts, chosen)
        theta_nk, ratio_j, norm_n, gamma_nk = kernel.local_step(*part, topics, alpha_k, threads=threads, **settings)
        np.testing.assert_array_equal(theta_nk, whole[0][chosen])
        np.testing.assert_array_equal(ratio_j, whole[1][entries])
        np.testing.assert_array_equal(norm_n, whole[2][chosen])
        np.testing.assert_array_equal(gamma_nk, whole[3][chosen])


def test_integer_sum_is_the_same_bits_for_any_order_split_and_thread_count():
    indptr, indices, counts, b_vk = corpus(9, docs=200)
    topics = b_vk.astype(np.float32)
    theta_nk, ratio_j, norm_n, _ = kernel.local_step(indptr, indices, counts, topics, np.full(7, 0.1))
    weight_n = np.minimum(1, 3.0 / norm_n)
    weight_n[::9] = 0.0

    def total(groups, threads, engine=kernel):
        out_vk = np.zeros(topics.shape, np.int64)
        for chosen in groups:
            part_indptr, part_indices, part_ratio, _ = pick(indptr, indices, ratio_j, chosen)
            engine.accumulate(
                part_indptr, part_indices, part_ratio, theta_nk[chosen], weight_n[chosen], topics, 2.0**-40, out_vk,
                threads=threads,
            )  # fmt: skip
        return out_vk

    everyone = np.arange(200)
    expected_vk = total([everyone], 1)
    assert expected_vk.any()
    rng = np.random.default_rng(1)
    for parts, threads in ((1, 2), (1, 5), (7, 1), (3, 2), (200, 1)):
        groups = np.array_split(rng.permutation(everyone), parts)
        np.testing.assert_array_equal(total(groups, threads), expected_vk)
    np.testing.assert_array_equal(total([everyone], 1, engine=topic_kernel), expected_vk)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_a_document_of_weight_zero_is_never_read(engine):
    indptr, indices, counts, b_vk = corpus(10, docs=30)
    theta_nk, ratio_j, _, _ = engine.local_step(indptr, indices, counts, b_vk, np.full(7, 0.1))
    weight_n = np.random.default_rng(0).uniform(0.1, 1, 30)
    weight_n[[0, 11, 29]] = 0.0
    sums = []
    for poison in (False, True):
        if poison:
            for n in (0, 11, 29):
                row = slice(indptr[n], indptr[n + 1])
                theta_nk[n], ratio_j[row], indices[row] = np.nan, np.inf, 2**31 - 1
        out_vk = np.zeros(b_vk.shape, np.int64)
        engine.accumulate(indptr, indices, ratio_j, theta_nk, weight_n, b_vk, 2.0**-30, out_vk, threads=2)
        sums.append(out_vk)
    np.testing.assert_array_equal(sums[0], sums[1])


HOSTILE = {
    "nan": ([1, 4, 8], [1.0, np.nan, 2.0]),
    "negative": ([1, 4, 8], [1.0, -3.0, 2.0]),
    "infinite": ([1, 4, 8], [1.0, np.inf, 2.0]),
    "huge": ([1, 4, 8], [1.0, 1e300, 2.0]),
    "all zero": ([1, 4, 8], [0.0, 0.0, -0.0]),
    "denormal": ([1, 4, 8], [5e-324, 5e-324, 1e-310]),
    "unsorted": ([4, 1, 8], [1.0, 3.0, 2.0]),
    "repeated": ([1, 4, 4], [1.0, 3.0, 2.0]),
    "beyond the vocabulary": ([1, 4, 60], [1.0, 3.0, 2.0]),
    "negative word": ([-1, 4, 8], [1.0, 3.0, 2.0]),
    "largest word": ([1, 4, 2**31 - 1], [1.0, 3.0, 2.0]),
    "empty": ([], []),
}


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_unusable_document_adds_nothing_and_disturbs_nobody(engine, kind):
    indptr, indices, counts, b_vk = corpus(11, docs=6)
    words, values = HOSTILE[kind]
    clean = engine.local_step(indptr, indices, counts, b_vk, np.full(7, 0.1))
    at = indptr[3]
    bad_indptr = np.concatenate([indptr[:4], indptr[3:] + len(words)])
    bad_indices = np.insert(indices, [at] * len(words), words).astype(np.int32)
    bad_counts = np.insert(counts, [at] * len(words), values)
    result = engine.local_step(bad_indptr, bad_indices, bad_counts, b_vk, np.full(7, 0.1))
    others = [0, 1, 2, 4, 5, 6]
    for got, expected in zip((result[0], result[2], result[3]), (clean[0], clean[2], clean[3]), strict=True):
        np.testing.assert_array_equal(got[others], expected)
    assert result[2][3] == 0.0
    sums = []
    for documents, step in (((indptr, indices), clean), ((bad_indptr, bad_indices), result)):
        out_vk = np.zeros(b_vk.shape, np.int64)
        weight_n = np.ones(documents[0].size - 1)
        engine.accumulate(*documents, step[1], step[0], weight_n, b_vk, 2.0**-30, out_vk, threads=2)
        sums.append(out_vk)
    np.testing.assert_array_equal(sums[0], sums[1])


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("counts", [[1e-99, 1e-99], [5e-324, 2.0], [1e-30, 1e30], [1e25, 3.0], [0.25, 1e-9]])
def test_tiny_and_large_counts_keep_a_true_bound(engine, counts):
    """The statistic of two words over three topics, from its definition, never exceeds the norm."""
    topics = np.array([[0.5, 0.1, 1e-30], [0.2, 0.7, 0.1], [0.3, 0.2, 0.9]])
    indptr, indices = np.array([0, 2]), np.array([0, 2], dtype=np.int32)
    for dtype in (np.float32, np.float64):
        theta_nk, ratio_j, norm_n, _ = engine.local_step(
            indptr, indices, np.array(counts), topics.astype(dtype), np.full(3, 0.1)
        )
        s_vk = statistic(indptr, indices, ratio_j, theta_nk, topics.astype(dtype), 0)
        assert norm_n[0] >= math.hypot(*s_vk.ravel()) * (1 - 1e-15)
        assert norm_n[0] <= math.hypot(*counts) * (1 + 1e-6)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_nan_topics_are_seen_by_the_norm(engine, tol):
    indptr, indices, counts, b_vk = corpus(12, docs=5)
    b_vk[indices[0], 2] = np.nan
    touched = [n for n in range(5) if indices[0] in indices[indptr[n] : indptr[n + 1]]]
    for dtype in (np.float32, np.float64):
        *_, norm_n, _ = engine.local_step(indptr, indices, counts, b_vk.astype(dtype), np.full(7, 0.1), tol=tol)
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(norm_n)), touched)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_a_word_without_probability_adds_nothing(engine):
    topics = np.array([[0.5, 0.5], [0.0, 0.0], [0.2, 0.8]])
    theta_nk, ratio_j, norm_n, gamma_nk = engine.local_step(
        np.array([0, 3]), np.arange(3), np.array([2.0, 5.0, 1.0]), topics, np.full(2, 0.5), tol=1e-9
    )
    assert ratio_j[1] == 0.0
    np.testing.assert_allclose(gamma_nk.sum(), 2 * 0.5 + 3.0, rtol=1e-9)
    assert np.isfinite(theta_nk).all()
    assert 0 < norm_n[0] < 3.0


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_scaling_a_word_of_the_topics_changes_nothing(engine):
    indptr, indices, counts, b_vk = corpus(13, docs=10)
    scaled_vk = b_vk * 2.0 ** np.random.default_rng(0).integers(-20, 20, (60, 1))
    results = [
        engine.local_step(indptr, indices, counts, b, np.full(7, 0.1), tol=1e-8, max_iter=300)
        for b in (b_vk, scaled_vk)
    ]
    np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-10)
    np.testing.assert_allclose(results[0][3], results[1][3], rtol=1e-10)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_fixed_work_runs_exactly_max_iter_evaluations(engine):
    """Seen in the plain path: γ is the seventh iterate also of a document that stopped changing at the second."""
    indptr, indices, counts, b_vk = corpus(14, docs=8)
    alpha_k = np.full(7, 0.3)
    *_, gamma_nk = engine.local_step(
        indptr, indices, counts, b_vk, alpha_k, tol=1e-5, max_iter=7, fixed_iterations=True
    )
    for n in range(8):
        row = slice(indptr[n], indptr[n + 1])
        expected_k, used = plain(counts[row], b_vk[indices[row]], alpha_k, tol=0.0, max_iter=7)
        assert used == 7
        np.testing.assert_allclose(gamma_nk[n], expected_k, rtol=1e-7)


def test_engines_agree_at_the_default_tolerance_when_no_stopping_is_involved():
    """Twelve accelerated evaluations in float64: the two codes are the same algorithm."""
    indptr, indices, counts, b_vk = corpus(15)
    results = [
        engine.local_step(indptr, indices, counts, b_vk, np.full(7, 0.3), max_iter=12, fixed_iterations=True)
        for engine in ENGINES
    ]
    for got, expected in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_tolerance_below_the_resolution_of_the_numbers_ends_at_a_good_point():
    indptr, indices, counts, b_vk = corpus(16, docs=10)
    topics, alpha_k = b_vk.astype(np.float32), np.full(7, 0.1)
    *_, gamma_nk = kernel.local_step(indptr, indices, counts * 1e4, topics, alpha_k, tol=0.0, max_iter=3000)
    for n in range(10):
        row = slice(indptr[n], indptr[n + 1])
        expected_k, _ = plain(counts[row] * 1e4, topics[indices[row]].astype(float), alpha_k, tol=1e-9, max_iter=3000)
        np.testing.assert_allclose(gamma_nk[n], expected_k, rtol=1e-5, atol=1e-4)


def test_a_function_without_a_file_is_compiled_without_a_cache():
    from dpvb.kernels.compiled import compiled

    scope = {}
    exec("def double(x):\n    return 2 * x", scope)
    assert compiled(scope["double"])(21) == 42


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tol": math.nan}, "tol"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"threads": 0}, "threads"),
        ({"alpha_k": np.ones(3)}, "alpha_k"),
        ({"exp_elog_beta_vk": np.ones((60, 7), int)}, "float32"),
    ],
)
def test_public_faults_are_named(change, message):
    indptr, indices, counts, b_vk = corpus(17, docs=2)
    arguments = {"exp_elog_beta_vk": b_vk, "alpha_k": np.full(7, 0.1)} | change
    with pytest.raises(ParameterError, match=message):
        kernel.local_step(indptr, indices, counts, **arguments)


def test_accumulate_refuses_an_array_it_cannot_add_to():
    indptr, indices, counts, b_vk = corpus(18, docs=2)
    theta_nk, ratio_j, _, _ = topic_kernel.local_step(indptr, indices, counts, b_vk, np.full(7, 0.1))
    weight_n = np.ones(2)
    for out_vk in (np.zeros((60, 7)), np.zeros((7, 60), np.int64), np.zeros((60, 7), np.int64, order="F")):
        with pytest.raises(ParameterError, match="out_vk"):
            kernel.accumulate(indptr, indices, ratio_j, theta_nk, weight_n, b_vk, 1.0, out_vk)
    with pytest.raises(ParameterError, match="grid"):
        kernel.accumulate(indptr, indices, ratio_j, theta_nk, weight_n, b_vk, 0.0, np.zeros((60, 7), np.int64))


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("threads", [1, 3])
def test_no_documents_and_one_topic(engine, threads):
    """Nothing in, nothing out; with one topic the statistic is the counts themselves."""
    none = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
    theta_nk, ratio_j, norm_n, gamma_nk = engine.local_step(*none, np.ones((4, 3)), np.ones(3), threads=threads)
    assert (theta_nk.shape, ratio_j.shape, norm_n.shape, gamma_nk.shape) == ((0, 3), (0,), (0,), (0, 3))
    out_vk = np.zeros((4, 3), np.int64)
    engine.accumulate(*none[:2], ratio_j, theta_nk, norm_n, np.ones((4, 3)), 1.0, out_vk, threads=threads)
    assert not out_vk.any()

    indptr, indices, counts, b_vk = corpus(19, docs=3, topics=1)
    theta_nk, ratio_j, norm_n, gamma_nk = engine.local_step(
        indptr, indices, counts, b_vk, np.array([0.5]), threads=threads
    )
    np.testing.assert_allclose(
        theta_nk[np.repeat(np.arange(3), np.diff(indptr)), 0] * b_vk[indices, 0] * ratio_j, counts
    )
    np.testing.assert_allclose(gamma_nk[:, 0], 0.5 + np.add.reduceat(counts, indptr[:-1]), rtol=1e-6)


@kills("sums", "a sum over few words reaches other words")
@edit("models/topics/kernel.py", "np.cumsum(is_touched_v) - 1)", "np.cumsum(is_touched_v) % len(word_t))")
@kills("records", "a sum over few words reads documents without a weight")
@edit("models/topics/kernel.py", "np.full_like(self.indices, -1)", "np.zeros_like(self.indices)")
@pytest.mark.parametrize("used", [0, 1, 3, 30])
def test_a_sum_over_the_words_of_few_documents_is_that_over_all_words(used, monkeypatch):
    indptr, indices, counts, b_vk = corpus(9, docs=30, terms=400)
    theta_nk, ratio_j, norm_n, _ = kernel.local_step(indptr, indices, counts, b_vk, np.full(7, 0.4))
    rng, grid = np.random.default_rng(9), Grid(2.0**-30, 1e3)
    weight_n = np.where(rng.permutation(30) < used, rng.random(30), 0.0)
    indices = indices.copy()
    # Numbers of no word are of no account, in documents with a weight and without.
    indices[rng.random(len(indices)) < 0.1] = rng.choice([-5, 400, 2**30])
    whole = kernel.Factored(indptr, indices, ratio_j, theta_nk, b_vk, norm_n)
    total_vk = np.zeros(b_vk.shape, np.int64)
    whole.accumulate(weight_n, grid, total_vk)
    for share, is_whole in ((1.0, False), (-1.0, True)):
        monkeypatch.setattr(kernel, "_FEW_WORDS", share)
        word_t, part = whole.touched(weight_n)
        assert (part is whole) == is_whole
        sum_vk = np.zeros_like(total_vk)
        few_tk = np.zeros_like(sum_vk[word_t])
        part.accumulate(weight_n, grid, few_tk)
        sum_vk[word_t] += few_tk
        assert np.array_equal(sum_vk, total_vk)
        assert is_whole or len(word_t) == len({*indices[np.repeat(weight_n > 0, np.diff(indptr))]} & {*range(400)})
