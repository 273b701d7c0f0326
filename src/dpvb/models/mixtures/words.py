"""Words that a document has or has not, in known classes: a probability for each, read from noisy sums.

A document's row of zeros and ones has the norm of the root of its number of words, and is cut to a public bound C.
A label stands behind the words of its document, as one more word.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.core.forms import SparseRows
from dpvb.guards.arrays import Floats, Ints
from dpvb.models import empirical_bayes

# Least total of a class, over its share.
_LEAST_TOTAL = 0.05


class Documents(Protocol):
    """Documents as CSR rows: strictly increasing word ids, of which the last K are the labels."""

    @property
    def indptr(self) -> Ints:
        """Row pointers."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Word ids."""


def split(batch: Documents, width: int, classes: int) -> tuple[Floats, SparseRows]:
    """Labels as rows of zeros and ones, (n, K), and the words of each document at the places of its class.

    A document with no label, or several, has neither: it is no row.
    """
    length_n = np.diff(batch.indptr)
    row_j = np.repeat(np.arange(len(length_n)), length_n)
    is_label_j = batch.indices >= width
    r_nk = np.zeros((len(length_n), classes))
    r_nk[row_j[is_label_j], batch.indices[is_label_j] - width] = 1.0
    r_nk[np.add.reduce(r_nk, axis=1) != 1] = 0.0
    code_n, known_n = r_nk.argmax(axis=1), np.add.reduce(r_nk, axis=1) == 1
    kept_j = ~is_label_j & known_n[row_j]
    place_j = code_n[row_j[kept_j]] * width + batch.indices[kept_j]
    indptr = np.append(0, np.cumsum(np.bincount(row_j[kept_j], minlength=len(length_n))))
    return r_nk, SparseRows(indptr, place_j.astype(np.int64), np.ones(len(place_j)))


def read(sum_kw: Floats, number_k: Floats, std: float, *, lengths: bool) -> Floats:
    """Numbers of documents of each class that have each word, (K, W), from noisy sums.

    The prior mean of an entry is the class's total times the word's share of all words, and the prior of the ratio is
    estimated; then a class's words are brought to its total. That is its share of the documents times all words, or
    with `lengths` what was released. The latter is the sum of many noisy entries, and its error stands in every
    prediction.

    Args:
        sum_kw: noisy sums.
        number_k: documents of each class, positive.
        std: noise standard deviation of an entry.
        lengths: whether classes differ in how many words a document has.
    """
    k, w = sum_kw.shape
    all_words = max(float(sum_kw.sum()), std * math.sqrt(k * w), 1e-300)
    total_k = number_k / number_k.sum() * all_words
    if lengths:
        total_k = np.maximum(sum_kw.sum(axis=1), _LEAST_TOTAL * total_k)
    found_kw = np.maximum(sum_kw, 0.0)
    if std > 0 and w:
        background_w = empirical_bayes.background(sum_kw.sum(axis=0), std * math.sqrt(k))
        mean_wk = np.outer(background_w, total_k)
        found_kw = empirical_bayes.around(np.ascontiguousarray(sum_kw.T), np.full(w, std), mean_wk).T
    elif lengths:
        return found_kw
    return np.asarray(found_kw * (total_k / np.maximum(found_kw.sum(axis=1), 1e-300))[:, None])


def log_probability(batch: Documents, probability_kw: Floats, bound: float) -> Floats:
    """Log-probability of each document's words, those that it has and those that it has not, (n, K), in nats.

    The words of a document beyond the bound weigh less, as they did in the sums.
    """
    odds_wk = np.ascontiguousarray((np.log(probability_kw) - np.log1p(-probability_kw)).T)
    width, length_n = len(odds_wk), np.diff(batch.indptr)
    is_word_j = batch.indices < width
    row_j = np.repeat(np.arange(len(length_n)), length_n)[is_word_j]
    weight_n = np.minimum(1.0, bound / np.sqrt(np.maximum(np.bincount(row_j, minlength=len(length_n)), 1)))
    log_nk = np.empty((len(length_n), odds_wk.shape[1]))
    for k, odds_w in enumerate(odds_wk.T):
        # bincount adds one row's words in their order: no bit depends on the rest of the batch.
        found_n = np.bincount(row_j, weights=odds_w[batch.indices[is_word_j]], minlength=len(length_n))
        log_nk[:, k] = weight_n * found_n
    return np.asarray(log_nk + np.log1p(-probability_kw).sum(axis=1))
