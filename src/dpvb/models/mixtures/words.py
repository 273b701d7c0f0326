"""Words that a document has or has not, in known classes: a probability for each, read from noisy sums.

A document's row of zeros and ones has the norm of the root of its number of words, and is cut to a public bound C.
A label stands behind the words of its document, as one more word.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.core.forms import SparseRows
from dpvb.guards.arrays import Floats, Ints
from dpvb.models import empirical_bayes


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


def read(sum_kw: Floats, std: float) -> Floats:
    """Numbers of documents of each class that have each word, (K, W), from noisy sums.

    The prior mean of an entry is the class's total times the word's share of all, and the prior of the ratio is
    estimated.
    """
    if std == 0:
        return np.maximum(sum_kw, 0.0)
    background_w = empirical_bayes.background(sum_kw.sum(axis=0), std * np.sqrt(len(sum_kw)))
    return empirical_bayes.estimated_prior(sum_kw.T, np.full(sum_kw.shape[1], std), background_w).T


def log_probability(batch: Documents, probability_kw: Floats) -> Floats:
    """Log-probability of each document's words, those that it has and those that it has not, (n, K), in nats."""
    odds_wk = np.ascontiguousarray((np.log(probability_kw) - np.log1p(-probability_kw)).T)
    width, length_n = len(odds_wk), np.diff(batch.indptr)
    is_word_j = batch.indices < width
    row_j = np.repeat(np.arange(len(length_n)), length_n)[is_word_j]
    log_nk = np.empty((len(length_n), odds_wk.shape[1]))
    for k, odds_w in enumerate(odds_wk.T):
        # bincount adds one row's words in their order: no bit depends on the rest of the batch.
        log_nk[:, k] = np.bincount(row_j, weights=odds_w[batch.indices[is_word_j]], minlength=len(length_n))
    return np.asarray(log_nk + np.log1p(-probability_kw).sum(axis=1))
