"""Naive Bayes as the audit wants it: of a table by bins, of one with Gaussians and counts, and of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dpvb.audit.cases import Case, of_estimator
from dpvb.data import BagOfWords, Categorical, Numeric, Schema, Table
from dpvb.data.documents.labelled import labelled
from dpvb.estimators.naive_bayes import NaiveBayes
from dpvb.guards.arrays import Floats

_CLASSES = (0, 1, 2)
#: Words of documents; of those of the wide model each is a canary's own.
_TERMS, _WIDE = 12, 400
_BUDGET: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Numbers as bins, numbers as Gaussians beside counts, and documents."""
    return {"bins": partial(of_table, "bins"), "gaussian": partial(of_table, "gaussian"), "words": of_words}


def of_table(numbers: str) -> Case:
    """The case of a table of the class, a number, a count and a choice."""
    schema = Schema(
        (
            Categorical("class", _CLASSES, unseen=False, missing=False),
            Numeric("x", -2, 2),
            Numeric("count", 0, 9),
            Categorical("choice", (0, 1, 2), unseen=False, missing=False),
        )
    )
    estimator = NaiveBayes(response="class", numbers=numbers, bins=4, counts="count", **_BUDGET)
    names = [column.name for column in schema.own_columns]

    def records(rng: np.random.Generator, n: int) -> Floats:
        codes = rng.integers(3, size=(n, 1)), rng.standard_normal((n, 1)), rng.poisson(2.0, (n, 1))
        return np.hstack([*codes, rng.integers(3, size=(n, 1))]).astype(np.float64)

    ends = (-2.0, 0.0), (2.0, 9.0), (1e300, 1e300)
    hostile = np.array([[label, *end, choice] for choice in (0, 2) for label in _CLASSES for end in ends])

    def table(matrix: Floats) -> Table:
        return Table({name: matrix[:, place] for place, name in enumerate(names)}, schema)

    def source(matrix: Floats, group: Any = None) -> Any:
        return estimator.task(table(matrix), group=group).source

    def columns(matrix: Floats) -> Mapping[str, Any]:
        return {"X": table(matrix)}

    return of_estimator(f"NaiveBayes, {numbers}", estimator, source, records, hostile, columns, responses=4)


def of_words(terms: int = _TERMS) -> Case:
    """The case of documents, whose label stands before their words."""
    words = tuple(f"word{''.join(chr(97 + int(digit)) for digit in str(place))}" for place in range(terms))
    estimator = NaiveBayes(vocabulary=words, classes=_CLASSES, clip=2.0, **_BUDGET)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([rng.integers(3, size=(n, 1)), rng.poisson(0.3, (n, terms))]).astype(np.float64)

    few = np.zeros(terms), np.ones(terms), np.eye(terms)[1], np.full(terms, 1e300), np.eye(terms)[-1] * 1e-300
    hostile = np.array([[label, *words] for label, words in product(_CLASSES, few)])

    def source(matrix: Floats, group: Any = None) -> BagOfWords:
        return labelled(BagOfWords(matrix[:, 1:]), matrix[:, 0], _CLASSES, group)

    def columns(matrix: Floats) -> Mapping[str, Any]:
        return {"X": BagOfWords(matrix[:, 1:], vocabulary=words), "y": matrix[:, 0]}

    case = of_estimator("NaiveBayes, words", estimator, source, records, hostile, columns, responses=1)
    if terms != _TERMS:
        return case
    alone = np.hstack([np.zeros((_WIDE, 1)), np.eye(_WIDE)])
    return replace(case, wide=replace(of_words(_WIDE), name="NaiveBayes, words, wide", hostile=alone))
