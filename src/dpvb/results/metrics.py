"""How good a model is, measured on public rows: topics, probabilities, counts, reconstructions.

A measurement of private rows is a leak, and so is any choice made by it. Every document and row that this module
reads must be public; nothing here adds noise.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.special import xlogy

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import DataFormatError, check_integer, check_number

# Documents whose word probabilities are computed at once.
_ROWS = 4096


class TopicModel(Protocol):
    """A fitted topic model, of this package or of scikit-learn."""

    @property
    def components_(self) -> NDArray[Any]:
        """Topics as unnormalised word weights, (K, V)."""

    def transform(self, X: Any) -> NDArray[Any]:
        """Topic proportions of documents, (rows, K)."""


def perplexity(log_likelihood: float, num_tokens: float) -> float:
    """Per-word perplexity exp(-log_likelihood / num_tokens) of a log-likelihood or its bound, in nats.

    Without any token it is 1: there is nothing to be surprised by.
    """
    return math.exp(-log_likelihood / num_tokens) if num_tokens > 0 else 1.0


def unigram_perplexity(word_weights_v: NDArray[Any], public_counts: Any) -> float:
    """Perplexity of one public word distribution for all documents: the yardstick of every topic model.

    Args:
        word_weights_v: unnormalised word probabilities, shape (V,), positive where a word occurs.
        public_counts: documents × words, public.
    """
    counts = _as_csr(public_counts, len(word_weights_v))
    log_p_v = np.log(word_weights_v / np.sum(word_weights_v))
    return perplexity(float(counts.data @ log_p_v[counts.indices]), float(counts.data.sum()))


def completion_perplexity(model: TopicModel, public_counts: Any, *, seed: int = 0) -> float:
    """Perplexity of one half of each document's words, given topic proportions fitted to the other half.

    Each token falls into either half by a fair coin. p(w | document) = Σ_k θ_k β_kw with posterior means
    (Wallach, Murray, Salakhutdinov & Mimno 2009, document completion). Unlike the bound of `LDA.perplexity` it
    compares models of different kinds.

    Args:
        model: a fitted topic model.
        public_counts: documents × words, whole numbers, public.
        seed: of the coins.
    """
    topic_kv = np.asarray(model.components_, dtype=np.float64)
    topic_kv = topic_kv / topic_kv.sum(axis=1, keepdims=True)
    observed, hidden = split_tokens(_as_csr(public_counts, topic_kv.shape[1]), np.random.default_rng(seed))
    theta_nk = np.asarray(model.transform(observed), dtype=np.float64)
    log_likelihood = 0.0
    for start in range(0, hidden.shape[0], _ROWS):
        part = hidden[start : start + _ROWS].tocoo()
        for k_of_entry in np.array_split(np.arange(part.nnz), max(1, part.nnz // 2**16)):
            theta_jk = theta_nk[start + part.row[k_of_entry]]
            p_j = np.einsum("jk,kj->j", theta_jk, topic_kv[:, part.col[k_of_entry]])
            log_likelihood += float(part.data[k_of_entry] @ np.log(p_j))
    return perplexity(log_likelihood, float(hidden.sum()))


def split_tokens(counts: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Split every document into two by a fair coin for each token; the two matrices add up to `counts`.

    Raises:
        DataFormatError: for counts that are not whole numbers ≥ 0.
    """
    csr = sparse.csr_array(counts)
    whole = csr.data.astype(np.int64)
    if not (np.array_equal(whole, csr.data) and (whole >= 0).all()):
        raise DataFormatError("counts must be whole numbers >= 0 to be split into halves.")
    observed = rng.binomial(whole, 0.5)
    halves = [
        sparse.csr_array((part, csr.indices.copy(), csr.indptr.copy()), shape=csr.shape)
        for part in (observed, whole - observed)
    ]
    for half in halves:
        half.eliminate_zeros()
    return halves[0], halves[1]


def top_words(weights_kv: NDArray[Any], n: int = 10) -> Ints:
    """Columns of the n largest weights of each topic, largest first; ties go to the lower column. Shape (K, n)."""
    n = check_integer("n", n, low=1, high=weights_kv.shape[1])
    return np.argsort(-weights_kv, axis=1, kind="stable")[:, :n].astype(np.int64)


def npmi_coherence(words_kn: NDArray[Any], public_counts: Any) -> Floats:
    """Coherence of each topic: mean normalised pointwise mutual information of its pairs of words.

    NPMI(i, j) = log(p_ij / (p_i p_j)) / -log p_ij, with p the share of public documents that hold the word or both
    words (Bouma 2009; Aletras & Stevenson 2013). It is 1 for words that only occur together, 0 for independent ones
    and -1 for words that never meet, or do not occur at all.

    Args:
        words_kn: n ≥ 2 columns of each topic, shape (K, n), as `top_words` gives them.
        public_counts: reference documents × words, public.

    Returns:
        One number in [-1, 1] for each topic, shape (K,).
    """
    counts = _as_csr(public_counts, int(np.max(words_kn, initial=0)) + 1, at_least=True)
    check_integer("the number of words of a topic", words_kn.shape[1], low=2)
    used, place = np.unique(words_kn, return_inverse=True)
    place_kn = place.reshape(words_kn.shape)
    present = (counts[:, used] > 0).astype(np.float64)
    p_ij = np.asarray((present.T @ present).todense()) / max(1, counts.shape[0])
    p_i = np.diag(p_ij)
    with np.errstate(divide="ignore", invalid="ignore"):
        npmi = np.log(p_ij / np.outer(p_i, p_i)) / -np.log(p_ij)
    npmi[p_ij == 0] = -1.0
    npmi[p_ij == 1] = 1.0
    first, second = np.triu_indices(words_kn.shape[1], 1)
    return np.asarray(npmi[place_kn[:, first], place_kn[:, second]].mean(axis=1), dtype=np.float64)


def top_word_overlap(left_kn: NDArray[Any], right_kn: NDArray[Any]) -> Floats:
    """Share of top words that each topic of one model has in common with each of another, (K_left, K_right).

    The share is |A ∩ B| / n, with n the number of words of a topic, the same in both.
    """
    return np.array([[len(np.intersect1d(a, b)) / left_kn.shape[1] for b in right_kn] for a in left_kn])


def match_topics(left_kn: NDArray[Any], right_kn: NDArray[Any]) -> tuple[Ints, Floats]:
    """Pair the topics of two models one to one, so that they share the most top words altogether.

    Returns:
        The topic of the right model for each of the left, and the share of words in common, both (K,);
        needs K_left ≤ K_right.
    """
    overlap = top_word_overlap(left_kn, right_kn)
    left, right = optimize.linear_sum_assignment(-overlap)
    return right.astype(np.int64), overlap[left, right]


def auc(public_y_n: Any, score_n: Any) -> float:
    """Area under the ROC curve: chance that a positive row scores above a negative one, ties counting one half.

    Without rows of both classes there is nothing to rank, and it is 1/2 (Hanley & McNeil 1982).

    Args:
        public_y_n: 0 or 1, shape (n,).
        score_n: larger for likelier positives, shape (n,).
    """
    y_n, score_n = _pair(public_y_n, score_n)
    _, tie_n, size_t = np.unique(score_n, return_inverse=True, return_counts=True)
    rank_n = (np.cumsum(size_t) - (size_t - 1) / 2)[tie_n]
    positives, negatives = float(y_n.sum()), float(len(y_n) - y_n.sum())
    if not positives * negatives:
        return 0.5
    return float((rank_n @ y_n - positives * (positives + 1) / 2) / (positives * negatives))


def log_likelihood(public_y_n: Any, probability_n: Any) -> float:
    """Mean log probability of public labels, in nats a row; -inf if one was held impossible.

    Args:
        public_y_n: 0 or 1, shape (n,).
        probability_n: probability of 1, shape (n,).
    """
    y_n, p_n = _pair(public_y_n, probability_n)
    return float((xlogy(y_n, p_n) + xlogy(1 - y_n, 1 - p_n)).mean()) if len(y_n) else 0.0


def calibration_error(public_y_n: Any, probability_n: Any, *, bins: int = 10) -> float:
    """Expected calibration error: mean distance of stated and observed frequency, over equal bins of [0, 1].

    Rows are gathered by their stated probability; each bin counts by its share of rows (Naeini, Cooper &
    Hauskrecht 2015).

    Args:
        public_y_n: 0 or 1, shape (n,).
        probability_n: stated probability of 1, shape (n,).
        bins: number of bins.
    """
    y_n, p_n = _pair(public_y_n, probability_n)
    bins = check_integer("bins", bins, low=1, high=10**6)
    bin_n = np.minimum((p_n * bins).astype(np.int64), bins - 1)
    gap_b = np.bincount(bin_n, weights=y_n - p_n, minlength=bins)
    return float(np.abs(gap_b).sum() / max(1, len(y_n)))


def binomial_deviance(public_y_n: Any, probability_n: Any, trials_n: Any = 1.0) -> float:
    """Mean binomial deviance of public rows: twice the log-likelihood that a perfect fit of each row would gain.

    Args:
        public_y_n: numbers of successes, shape (n,).
        probability_n: probability of a success, shape (n,).
        trials_n: numbers of trials, a scalar or shape (n,).
    """
    y_n, p_n = _pair(public_y_n, probability_n)
    trials_n = np.broadcast_to(np.asarray(trials_n, dtype=np.float64), y_n.shape)
    parts = (
        xlogy(y_n, y_n) - xlogy(y_n, trials_n * p_n),
        xlogy(trials_n - y_n, trials_n - y_n) - xlogy(trials_n - y_n, trials_n * (1 - p_n)),
    )
    return float(2 * (parts[0] + parts[1]).mean()) if len(y_n) else 0.0


def explained(deviance: float, base: float) -> dict[str, float]:
    """A deviance, and the share of that of a base which is not left."""
    return {"deviance": deviance, "explained_deviance": 1.0 - deviance / base if base > 0 else 0.0}


def negative_binomial_deviance(public_y_n: Any, mean_n: Any, dispersion: float) -> float:
    """Mean negative binomial deviance of public counts, whose variance is mean + mean²/dispersion.

    An infinite dispersion gives the Poisson deviance (McCullagh & Nelder 1989).

    Args:
        public_y_n: counts, shape (n,).
        mean_n: expected counts, positive, shape (n,).
        dispersion: r > 0.
    """
    y_n, mean_n = _pair(public_y_n, mean_n)
    r = check_number("dispersion", dispersion, low=0, closed="right")
    rest_n = mean_n - y_n if r == math.inf else -(y_n + r) * np.log1p((y_n - mean_n) / (mean_n + r))
    return float(2 * (xlogy(y_n, y_n) - xlogy(y_n, mean_n) + rest_n).mean()) if len(y_n) else 0.0


def reconstruction_accuracy(public_y_nj: Any, probability_nj: Any) -> float:
    """Share of public binary entries that their reconstruction puts on the right side of one half.

    Args:
        public_y_nj: 0 or 1, (rows, J).
        probability_nj: reconstructed probabilities of 1, (rows, J).
    """
    y_nj = np.asarray(public_y_nj.toarray() if hasattr(public_y_nj, "toarray") else public_y_nj)
    probability_nj = np.asarray(probability_nj)
    if y_nj.shape != probability_nj.shape:
        raise DataFormatError(f"shapes must agree, got {y_nj.shape} and {probability_nj.shape}.")
    return float(((probability_nj > 0.5) == (y_nj > 0.5)).mean()) if y_nj.size else 1.0


def _pair(first: Any, second: Any) -> tuple[Floats, Floats]:
    """Two vectors of one length."""
    one, other = (np.asarray(value, dtype=np.float64) for value in (first, second))
    if one.ndim != 1 or one.shape != other.shape:
        raise DataFormatError(f"Two vectors of one length are needed, got shapes {one.shape} and {other.shape}.")
    return one, other


def _as_csr(counts: Any, width: int, *, at_least: bool = False) -> Any:
    matrix = sparse.csr_array(counts)
    if matrix.shape[1] != width and not (at_least and matrix.shape[1] > width):
        raise DataFormatError(
            f"public_counts must have {'at least ' if at_least else ''}{width} columns, got {matrix.shape[1]}."
        )
    return matrix
