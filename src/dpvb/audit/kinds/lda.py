"""Topic models as the audit wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data import BagOfWords
from dpvb.estimators.lda import LDA
from dpvb.guards.arrays import Floats

#: Columns of documents; of those of the wide model each is a canary's own.
TERMS, _WIDE = 12, 400
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


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """The one form of topic models."""
    return {"": _case}


def bags(matrix: Floats, group: Any = None) -> BagOfWords:
    """Documents from a matrix of counts."""
    return BagOfWords(np.asarray(matrix), group=group)


def documents(rng: np.random.Generator, n: int, terms: int = TERMS) -> Floats:
    """Ordinary documents, some with counts that are no whole numbers."""
    return np.asarray(rng.poisson(1.0, (n, terms)) * rng.choice([1.0, 0.37, 40.0], (n, 1)))


def _sized(hostile: Floats) -> Case:
    def records(rng: np.random.Generator, n: int) -> Floats:
        return documents(rng, n, hostile.shape[1])

    return of_estimator(
        "LDA", LDA(3, public_vocabulary=True, clip=0.1, epsilon=1.0, delta=1e-6), bags, records, hostile
    )


def _case() -> Case:
    def few_words(rng: np.random.Generator, n: int) -> Floats:
        return rng.poisson(0.1, (n, _WIDE)).astype(np.float64)

    usual = LDA(2, public_vocabulary=True, epsilon=1.0, delta=1e-6)
    wide = of_estimator("LDA, wide", usual, bags, few_words, np.eye(_WIDE) * 500.0)
    return replace(_sized(HOSTILE_DOCUMENTS), wide=wide, of_width=lambda d: _sized(np.eye(d)))
