"""Models of documents as the audit wants them: topics, and naive Bayes of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data import BagOfWords
from dpvb.data.documents.labelled import labelled
from dpvb.estimators.lda import LDA
from dpvb.estimators.naive_bayes import NaiveBayes
from dpvb.guards.arrays import Floats

#: Columns of documents; in a wide model each column is a canary's own.
TERMS, _WIDE = 12, 400
_LABELS = (0, 1, 2)
_BUDGET: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
HOSTILE_DOCUMENTS = np.vstack(
    [
        np.zeros(TERMS),
        np.eye(TERMS)[:4] * 1000,
        np.eye(TERMS)[4:6] * 0.5,
        np.full(TERMS, 1e6),
        np.full(TERMS, 1e300),
        np.eye(TERMS)[7] * 1e-300,
    ]
)


def bags(matrix: Floats, group: Any = None) -> BagOfWords:
    """Documents from a matrix of counts."""
    return BagOfWords(np.asarray(matrix), group=group)


def documents(rng: np.random.Generator, n: int, terms: int = TERMS) -> Floats:
    """Ordinary documents, some with counts that are not whole numbers."""
    return np.asarray(rng.poisson(1.0, (n, terms)) * rng.choice([1.0, 0.37, 40.0], (n, 1)))


def topics(hostile: Floats = HOSTILE_DOCUMENTS) -> Case:
    """The case of a topic model of three topics."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        return documents(rng, n, hostile.shape[1])

    estimator = LDA(3, public_vocabulary=True, clip=0.1, **_BUDGET)
    return of_estimator("LDA", estimator, bags, records, hostile, of_width=lambda d: topics(np.eye(d)))


def _topics() -> Case:
    def few_words(rng: np.random.Generator, n: int) -> Floats:
        return rng.poisson(0.1, (n, _WIDE)).astype(np.float64)

    usual = LDA(2, public_vocabulary=True, **_BUDGET)
    return replace(topics(), wide=of_estimator("LDA", usual, bags, few_words, np.eye(_WIDE) * 500.0))


def naive_bayes(terms: int = TERMS) -> Case:
    """The case of documents, each after its label."""
    words = tuple(f"word{''.join(chr(97 + int(digit)) for digit in str(place))}" for place in range(terms))
    estimator = NaiveBayes(vocabulary=words, classes=_LABELS, clip=2.0, **_BUDGET)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([rng.integers(3, size=(n, 1)), rng.poisson(0.3, (n, terms))]).astype(np.float64)

    few = np.zeros(terms), np.ones(terms), np.eye(terms)[1], np.full(terms, 1e300), np.eye(terms)[-1] * 1e-300
    hostile = np.array([[label, *words] for label, words in product(_LABELS, few)])

    def source(matrix: Floats, group: Any = None) -> BagOfWords:
        return labelled(BagOfWords(matrix[:, 1:]), matrix[:, 0], _LABELS, group)

    def columns(matrix: Floats) -> Mapping[str, Any]:
        return {"X": BagOfWords(matrix[:, 1:], vocabulary=words), "y": matrix[:, 0]}

    case = of_estimator("NaiveBayes, words", estimator, source, records, hostile, columns, responses=1)
    if terms != TERMS:
        return case
    canaries = np.hstack([np.zeros((_WIDE, 1)), np.eye(_WIDE)])
    return replace(case, wide=replace(naive_bayes(_WIDE), hostile=canaries))


FORMS: Mapping[str, Mapping[str, Callable[[], Case]]] = {"LDA": {"": _topics}, "NaiveBayes": {"words": naive_bayes}}
