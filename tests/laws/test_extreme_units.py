"""No unit makes a fit fail: the most extreme ones, for every model and every rule of documents, alone and among others.

Each is released with repeatable noise, so that what it adds is seen exactly: at most its bound, the same among others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy import sparse
from small_models import CASES, Case, one_of_each

from benchmarks.float64 import Float64Topics
from dpvb.audit import neighbours
from dpvb.audit.integers import difference, in_steps, relative_norm, same
from dpvb.audit.kinds import designs, rows_of_numbers
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.data.tables.design import BinaryMatrix
from dpvb.models.topics.lda import LDAModel, to_length

SIZES = [1e300, 1e-300, 2.0**40, 2.0**-40, 2.0**40 * (1 - 2.0**-53), 5e-324, 2.2e-308, 1.8e308, 1.0, 1e20, 1e-20, 1 / 3]


def documents(terms: int) -> dict[str, Any]:
    """One row each: all terms at one extreme, mixtures of both ends, few terms, and what sums round away."""
    every = np.arange(terms)
    rows: dict[str, Any] = {f"all {size:g}": (every, np.full(terms, size)) for size in SIZES}
    rows |= {f"one {size:g}": (every[:1], np.array([size])) for size in SIZES}
    for large, small in [(2.0**40, 2.0**-13 * 0.999), (2.0**40, 2.0**-40), (1e300, 5e-324), (1.0, 2.0**-53)]:
        mixed = np.full(terms, small)
        mixed[0] = large
        rows[f"{large:g} and {small:g}"] = (every, mixed)
        rows[f"{large:g} last after {small:g}"] = (every, mixed[::-1].copy())
    half = np.where(every < 8192, 2.0**40, 3.0)
    rows["8192 of 2^40 and 3"] = (every[:8200], half[:8200])
    rows["0.0 alone"] = (every[:5], np.zeros(5))
    return rows


RULES = ["truncate", "rescale", "resample"]


@kills("errors", "a document's length beside its counts, which need not add up to it")
@edit(
    "models/topics/lda.py",
    "        total_j = np.cumsum(batch.counts[row])\n",
    "        share_j = batch.counts[row] / length_n[n]\n"
    "        counts[row] = np.random.default_rng(seed).multinomial(length, share_j)\n"
    "        continue\n        total_j = np.cumsum(batch.counts[row])\n",
)
@pytest.mark.parametrize("rule", RULES)
def test_no_document_makes_a_length_rule_fail(rule: str) -> None:
    """Each is brought to its length by itself: what fails would be kept from a fit by the wall, but add nothing."""
    terms, length = 20_000, 20.0
    for name, (ids, counts) in documents(terms).items():
        source = BagOfWords(sparse.csr_array((counts, ids, np.array([0, len(ids)])), shape=(1, terms)))
        [rows] = [chunk.rows for chunk in source.chunks()]
        own = float(rows.counts.sum())
        expected = min(own, length) if rule == "truncate" or own == 0 else length
        treated = to_length(rows, length, rule)
        assert (treated >= 0).all(), name
        assert treated.sum() == pytest.approx(expected, rel=1e-9), name


@pytest.mark.guarantees("no failing unit")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [LDAModel, Float64Topics])
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("terms", [9000, pytest.param(10**5, marks=pytest.mark.slow)])
def test_no_document_makes_a_fit_of_topics_fail(rule: str, kind: Any, plain: bool, terms: int) -> None:
    options: dict[str, Any] = {"length_rule": rule, "max_iter": 3}
    if plain:
        options |= {"release_word_totals": False, "word_weight_power": 0.0, "count_power": 1.0}
    model = kind(2, terms, **options)
    q = model.init(np.random.default_rng(0))
    blocks = {name: block for name, block in model.blocks.items() if block.phase == "step" or not plain}
    release = Release(blocks, Mechanism(FullBatch(), 1.0))

    def total(rows: list[tuple[Any, Any]]) -> Any:
        indptr = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in rows])]).astype(np.int64)
        ids = np.concatenate([np.empty(0, np.int64), *(part for part, _ in rows)])
        counts = np.concatenate([np.empty(0), *(part for _, part in rows)])
        source = BagOfWords(sparse.csr_array((counts, ids, indptr), shape=(len(rows), terms)))
        wall: Wall[Any] = Wall(source, Plan([release]), noise=InsecureNoise(1))
        return in_steps(wall.release(partial(model.e_step, q, blocks=blocks), release), release)

    ordinary = (np.array([1, 7, 30]), np.array([1.0, 2.0, 1.0]))
    nothing, base = total([]), total([ordinary])
    for name, row in documents(terms).items():
        alone = difference(total([row]), nothing)
        parts, joint = relative_norm(alone, release)
        assert joint <= 1, name
        assert all(part <= 1 for part in parts.values()), name
        assert same(difference(total([ordinary, row]), base), alone), name


ENDS = [1e300, -1e300, 1e-300, 5e-324, -5e-324, 1.8e308, 2.0**40, 2.0**-40, 1.0, np.inf, -np.inf, np.nan, 0.0]
#: One of each sort: what overflows, what a sum rounds away, an ordinary number, what is no number.
SORTS = [-1e300, 5e-324, 2.0**40, 1.0, np.inf, np.nan]
EVERY_PAIR = list(permutations(ENDS, 2))


def extreme_rows(width: int, responses: int, pairs: Iterable[tuple[float, float]] = EVERY_PAIR) -> np.ndarray:
    """Rows of one extreme number throughout, of mixtures of two, and with extreme responses."""
    rows = [np.full(width, end) for end in ENDS]
    rows += [np.where(np.arange(width) % 2 == 0, a, b) for a, b in pairs]
    made = np.array(rows)
    if responses:
        usual = made.copy()
        usual[:, :responses] = 1.0
        made = np.vstack([made, usual])
    return made


@pytest.mark.guarantees("no failing unit")
@one_of_each([case for case in CASES if not case.name.startswith("lda")])
@pytest.mark.parametrize(
    "pairs", [list(combinations(SORTS, 2)), pytest.param(EVERY_PAIR, marks=pytest.mark.slow)], ids=["sorts", "all"]
)
def test_no_row_makes_a_fit_fail(case: Case, pairs: list[tuple[float, float]]) -> None:
    """Each extreme alone and two of different sorts in one row every day, any two in both orders in the slow suite.

    There persons have such rows, too; every day they have the extreme ones of the conformance tests.
    """
    look = neighbours.Look(replace(case, hostile=extreme_rows(case.width, case.responses, pairs)), pairs=0)
    for check in (look.adding(), *([look.persons((1, 8))] if pairs is EVERY_PAIR else [])):
        assert check.passed, check.measured


@pytest.mark.parametrize(
    "source",
    [
        lambda x: designs("LogisticRegression", 0.4, False)(x),
        lambda x: designs("NegativeBinomialRegression", 0.0, True)(x),
        lambda x: BinaryMatrix(x),
        lambda x: BinaryMatrix(x, threshold=0.5),
        rows_of_numbers,
    ],
    ids=["design", "sparse design", "binary", "threshold", "numbers"],
)
def test_extreme_rows_are_read_in_silence(source: Any) -> None:
    rows = extreme_rows(4, 1)
    read = source(rows)
    assert sum(chunk.num_units for chunk in read.chunks()) == len(rows)
    for chunk in read.chunks():
        assert chunk.rows is not None
