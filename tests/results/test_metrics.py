"""Metrics against brute force on tiny inputs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpvb.errors import DataFormatError, ParameterError
from dpvb.results import metrics


def test_perplexity_of_a_uniform_model_is_the_number_of_words() -> None:
    assert metrics.perplexity(30 * math.log(1 / 7), 30) == pytest.approx(7)
    assert metrics.unigram_perplexity(np.full(7, 3.0), np.eye(7)) == pytest.approx(7)
    assert metrics.perplexity(0.0, 0.0) == 1.0


def test_unigram_perplexity_counts_tokens_not_entries() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    counts = np.array([[3, 0, 1], [0, 2, 0]])
    tokens = [0, 0, 0, 2, 1, 1]
    likelihood = math.prod(weights[t] / 8 for t in tokens)
    assert metrics.unigram_perplexity(weights, sparse.csr_matrix(counts)) == pytest.approx(likelihood ** (-1 / 6))


def npmi_of_sets(i: int, j: int, documents: list[set[int]]) -> float:
    n = len(documents)
    p_i, p_j = sum(i in d for d in documents) / n, sum(j in d for d in documents) / n
    p_ij = sum({i, j} <= d for d in documents) / n
    if p_ij == 0:
        return -1.0
    return 1.0 if p_ij == 1 else math.log(p_ij / (p_i * p_j)) / -math.log(p_ij)


def test_npmi_against_sets() -> None:
    rng = np.random.default_rng(5)
    counts = rng.poisson(0.6, (40, 9))
    counts[:, 0] = 1  # a word in every document
    counts[:, 8] = 0  # and one in none
    documents = [set(np.flatnonzero(row).tolist()) for row in counts]
    words = np.array([[0, 1, 2, 3], [4, 5, 8, 0], [7, 6, 5, 4]])
    expected = [np.mean([npmi_of_sets(i, j, documents) for i, j in itertools.combinations(t, 2)]) for t in words]
    assert metrics.npmi_coherence(words, sparse.csr_array(counts)) == pytest.approx(expected)


def test_npmi_at_its_ends() -> None:
    together = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [2, 5, 0, 0]])
    assert metrics.npmi_coherence(np.array([[0, 1], [0, 2]]), together) == pytest.approx([1.0, -1.0])
    assert metrics.npmi_coherence(np.array([[0, 1]]), np.ones((3, 2))) == pytest.approx([1.0])
    assert metrics.npmi_coherence(np.array([[0, 1]]), np.zeros((0, 2))) == pytest.approx([-1.0])


def test_npmi_of_independent_words_is_zero() -> None:
    counts = np.array(list(itertools.product([0, 1], repeat=2)))
    assert metrics.npmi_coherence(np.array([[0, 1]]), counts) == pytest.approx([0.0])


def test_npmi_refuses_what_it_cannot_score() -> None:
    with pytest.raises(ParameterError, match="words of a topic"):
        metrics.npmi_coherence(np.array([[0]]), np.ones((3, 2)))
    with pytest.raises(DataFormatError, match="at least 6 columns"):
        metrics.npmi_coherence(np.array([[0, 5]]), np.ones((3, 2)))


class Oracle:
    """A topic model whose proportions are a plain function of the observed half."""

    components_ = np.array([[6.0, 3.0, 1.0], [1.0, 1.0, 8.0]])

    def transform(self, X: Any) -> np.ndarray:
        dense = np.asarray(X.todense(), dtype=float)
        weight = 1.0 + dense[:, :1] + 2 * dense[:, 2:]
        return np.hstack([1 / (1 + weight), weight / (1 + weight)])


def test_completion_against_loops() -> None:
    counts = np.random.default_rng(0).poisson(2.0, (11, 3))
    observed, hidden = metrics.split_tokens(sparse.csr_array(counts), np.random.default_rng(3))
    theta = Oracle().transform(observed)
    beta = Oracle.components_ / 10
    log_likelihood = 0.0
    for n, v in itertools.product(range(11), range(3)):
        log_likelihood += hidden[n, v] * math.log(sum(theta[n, k] * beta[k, v] for k in range(2)))
    expected = math.exp(-log_likelihood / hidden.sum())
    assert metrics.completion_perplexity(Oracle(), sparse.csr_array(counts), seed=3) == pytest.approx(expected)


def test_completion_does_not_depend_on_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = sparse.csr_array(np.random.default_rng(1).poisson(1.0, (50, 3)))
    whole = metrics.completion_perplexity(Oracle(), counts)
    monkeypatch.setattr(metrics, "_ROWS", 7)
    assert metrics.completion_perplexity(Oracle(), counts) == pytest.approx(whole)


def test_completion_of_nothing_and_of_another_width() -> None:
    assert metrics.completion_perplexity(Oracle(), sparse.csr_array((0, 3), dtype=np.int64)) == 1.0
    with pytest.raises(DataFormatError, match="3 columns, got 4"):
        metrics.completion_perplexity(Oracle(), np.ones((2, 4), dtype=int))


def test_halves_add_up_and_are_fair() -> None:
    counts = sparse.csr_array(np.full((100, 50), 20))
    observed, hidden = metrics.split_tokens(counts, np.random.default_rng(0))
    assert np.array_equal((observed + hidden).todense(), counts.todense())
    # Binomial(100,000, 1/2): five standard deviations, false alarm 6e-7; the seed is fixed.
    assert abs(observed.sum() - 50_000) < 5 * math.sqrt(100_000) / 2
    with pytest.raises(DataFormatError, match="whole numbers"):
        metrics.split_tokens(np.array([[0.5]]), np.random.default_rng(0))
    with pytest.raises(DataFormatError, match="whole numbers"):
        metrics.split_tokens(np.array([[-1]]), np.random.default_rng(0))


def test_top_words_and_their_ties() -> None:
    assert metrics.top_words(np.array([[1.0, 3.0, 3.0, 2.0]]), 3).tolist() == [[1, 2, 3]]
    with pytest.raises(ParameterError, match="n must be"):
        metrics.top_words(np.ones((1, 4)), 5)


def test_matching_is_the_best_of_all_permutations() -> None:
    rng = np.random.default_rng(2)
    left, right = (np.array([rng.permutation(9)[:4] for _ in range(5)]) for _ in range(2))
    overlap = [[len(set(a) & set(b)) / 4 for b in right.tolist()] for a in left.tolist()]
    assert metrics.top_word_overlap(left, right) == pytest.approx(np.array(overlap))
    pairs, shared = metrics.match_topics(left, right)
    best = max(sum(overlap[k][p[k]] for k in range(5)) for p in itertools.permutations(range(5)))
    assert shared.sum() == pytest.approx(best)
    assert shared == pytest.approx([overlap[k][pairs[k]] for k in range(5)])


def test_matching_undoes_a_permutation() -> None:
    words = np.arange(30).reshape(6, 5)
    order = np.array([3, 0, 5, 1, 4, 2])
    pairs, shared = metrics.match_topics(words, words[order])
    assert order[pairs].tolist() == list(range(6))
    assert shared.tolist() == [1.0] * 6


# --- labels, counts and reconstructions ---------------------------------------------------------------------


def labelled(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    p = np.round(rng.random(n), 2)  # rounded: ties
    return (rng.random(n) < p).astype(int), p


def test_auc_and_log_likelihood_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss, roc_auc_score

    y, p = labelled()
    p = np.clip(p, 0.01, 0.99)
    assert metrics.auc(y, p) == pytest.approx(roc_auc_score(y, p), rel=1e-13)
    assert metrics.auc(1 - y, p) == pytest.approx(1 - metrics.auc(y, p), rel=1e-13)
    assert metrics.log_likelihood(y, p) == pytest.approx(-log_loss(y, p), rel=1e-13)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    y, p = labelled(40)
    pairs = [(p[i] > p[j]) + 0.5 * (p[i] == p[j]) for i in np.flatnonzero(y) for j in np.flatnonzero(1 - y)]
    assert metrics.auc(y, p) == pytest.approx(np.mean(pairs))
    assert metrics.auc([1, 1], [0.2, 0.3]) == metrics.auc([], []) == 0.5


def test_log_likelihood_at_its_ends() -> None:
    assert metrics.log_likelihood([0, 1], [0.0, 1.0]) == 0.0
    assert metrics.log_likelihood([1], [0.0]) == -math.inf


def test_calibration_error_by_hand() -> None:
    y, p = labelled()
    gaps = []
    for k in range(10):
        inside = (p >= k / 10) & ((p < (k + 1) / 10) | (k == 9))
        gaps.append(inside.mean() * abs(y[inside].mean() - p[inside].mean()))
    assert metrics.calibration_error(y, p) == pytest.approx(sum(gaps))
    assert metrics.calibration_error([1, 1, 0, 0], [0.5] * 4) == 0.0
    assert metrics.calibration_error([1, 1], [0.25, 1.0], bins=2) == pytest.approx(0.375)


def test_binomial_deviance_is_twice_the_log_loss() -> None:
    from sklearn.metrics import log_loss

    y, p = labelled()
    p = np.clip(p, 0.01, 0.99)
    assert metrics.binomial_deviance(y, p) == pytest.approx(2 * log_loss(y, p), rel=1e-12)
    trials, successes = np.array([5, 3, 8]), np.array([0, 3, 2])
    fit = np.array([0.3, 0.6, 0.25])
    gain = [
        2 * (math.log(q**s * (1 - q) ** (t - s)) - math.log(f**s * (1 - f) ** (t - s)))
        for s, t, f, q in zip(successes, trials, fit, successes / trials, strict=True)
    ]
    assert metrics.binomial_deviance(successes, fit, trials) == pytest.approx(np.mean(gain))


def test_negative_binomial_deviance_is_that_of_its_density_and_of_scikit_learn_in_the_limit() -> None:
    from scipy.stats import nbinom
    from sklearn.metrics import mean_poisson_deviance

    rng = np.random.default_rng(9)
    mean = rng.gamma(2.0, 3.0, 200)
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, 200))

    def log_density(mu: np.ndarray) -> np.ndarray:
        return np.asarray(nbinom.logpmf(y, 2.0, 2.0 / (2.0 + mu)))

    expected = 2 * (log_density(np.where(y > 0, y, 1e-300)) - log_density(mean)).mean()
    assert metrics.negative_binomial_deviance(y, mean, 2.0) == pytest.approx(expected, rel=1e-10)
    poisson = mean_poisson_deviance(y, mean)
    assert metrics.negative_binomial_deviance(y, mean, math.inf) == pytest.approx(poisson, rel=1e-12)
    assert metrics.negative_binomial_deviance(y, mean, 1e10) == pytest.approx(poisson, rel=1e-6)


def test_reconstruction_accuracy_counts_entries() -> None:
    y = np.array([[1, 0, 1], [0, 0, 1]])
    p = np.array([[0.9, 0.6, 0.2], [0.1, 0.4, 0.51]])
    assert metrics.reconstruction_accuracy(y, p) == pytest.approx(4 / 6)
    assert metrics.reconstruction_accuracy(sparse.csr_array(y), p) == pytest.approx(4 / 6)
    with pytest.raises(DataFormatError, match="shapes"):
        metrics.reconstruction_accuracy(y, p[:1])


def test_vectors_of_different_length_are_refused() -> None:
    for measure in (metrics.auc, metrics.log_likelihood, metrics.calibration_error, metrics.binomial_deviance):
        with pytest.raises(DataFormatError, match="one length"):
            measure([0, 1], [0.5])
    with pytest.raises(ParameterError, match="dispersion"):
        metrics.negative_binomial_deviance([1], [1.0], 0.0)
    with pytest.raises(ParameterError, match="bins"):
        metrics.calibration_error([1], [1.0], bins=0)
