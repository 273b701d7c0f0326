"""`dpvb.plan`: expected accuracy, privacy and memory of a fit, from public facts only."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import clone

from dpvb import accounting
from dpvb.core.plan import Plan
from dpvb.data import Schema
from dpvb.data.tables.design import KEPT_ENTRIES, STREAMED_ENTRIES
from dpvb.data.tables.table import Table
from dpvb.data.units import CHUNK_ENTRIES
from dpvb.estimators import synthetic_rows
from dpvb.estimators.base import PrivateEstimator
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.guards.missing_arguments import says_what_lacks
from dpvb.models.regression.curvature_then_scores import MATRIX_BYTES, CurvatureThenScores
from dpvb.results.expected_accuracy import MOST, BudgetRow, ExpectedAccuracy, MemoryForecast, PlanSummary, least

# Budgets that are compared with the estimator's own: usual values, about a factor of three apart. Larger epsilons than
# 100 are not searched: they do not protect.
_EPSILONS, _LARGEST = (0.1, 0.3, 1.0, 3.0, 10.0), 100.0
# derived: bytes of float64, in which rows and sums are held.
_NUMBER = 8
# convention: measured as the peak of a fit to 100 rows (Linux, x86-64, CPython 3.11): Python with dpvb, the libraries
# of a fit, and kernels that numba compiles at their first use.
_LIBRARIES, _COMPILED = 250e6, 350e6
# derived: bytes of a temporary file: a number, and the number of its column or word in four bytes; a row, with its
# answer, weight and offset, and the number of its entries.
_STORED_NUMBER, _STORED_ROW = 12, 32
# derived: arrays as large as a chunk, at least and at most: the rows, in other coordinates, and what each row adds to a
# sum.
_LEAST_CHUNKS, _MOST_CHUNKS = 1, 4
# derived: arrays as large as a release: integer sums, noise, their total and its estimate, at least; two states of a
# model and what an E-step derives from one, in addition.
_LEAST_SUMS, _MOST_SUMS = 4, 10


@says_what_lacks
def plan(
    estimator: PrivateEstimator,
    n: int,
    width: int | None = None,
    *,
    schema: Schema | None = None,
    vocabulary: Sequence[str] | None = None,
    responses: int | None = None,
    grouped: bool = False,
    epsilons: Sequence[float] = _EPSILONS,
    entries: float | None = None,
) -> PlanSummary:
    """Return the expected accuracy and privacy of a fit, from public facts only. Reads no data and uses no budget.

    Args:
        estimator: Estimator that is not fitted. Its parameters specify the budget and the model.
        n: Approximate number of units. It must be public: do not compute it from the data.
        width: Number of columns of a plain array or sparse matrix. None (default): specified by a schema or vocabulary.
        schema: Public columns of a table. None (default): X is not a table.
        vocabulary: Public words, one per column of counts. None (default): that of the estimator.
        responses: Number of responses or classes of a `PrivateModel`. None (default): the model has none.
        grouped: Whether `fit` gets `group`, so that the units are persons, each with all of its rows. Default: False. A
            schema declares its persons itself.
        epsilons: Budgets to compare, in (0, 100]. Default: 0.1, 0.3, 1, 3 and 10. An empty list compares neither
            budgets nor sizes of the model, which is faster.
        entries: Public number of entries of a unit, for the forecast of memory: numbers of a row, times the rows of a
            person, different words of a document, or numbers of a sequence. None (default): the encoded columns of a
            row, 200 words, or a sequence of `max_length`.

    Returns:
        Summary that prints as a text; `expected_accuracy`, `budget_table` and `alternatives()` are its parts.

    Raises:
        ParameterError: If a number is outside its range, or if a fit with these parameters would be refused.

    Examples:
        >>> import dpvb
        >>> chain = dpvb.MarkovChain(symbols=["a", "b"], epsilon=1.0, delta=1e-6)
        >>> found = dpvb.plan(chain, 20_000, epsilons=[])
        >>> found.expected_accuracy.is_weak
        False
    """
    if not isinstance(estimator, PrivateEstimator):
        raise ParameterError(f"estimator must be an estimator of dpvb, got {type(estimator).__name__}.")
    if isinstance(width, Schema):
        raise ParameterError("width must be a number of columns, got a Schema. Pass it as schema=...")
    number = check_integer("n", n, low=1, high=MOST)
    budgets = {check_number("epsilons", one, low=0, high=_LARGEST, closed="right") for one in epsilons}
    if entries is not None:
        entries = check_number("entries", entries, low=0, high=MOST, closed="right")
    columns = {"width": width, "schema": schema, "vocabulary": vocabulary, "responses": responses}
    columns["grouped"] = grouped

    def at(**changed: float) -> tuple[Any, Plan, Callable[[float], ExpectedAccuracy]]:
        copy = clone(estimator).set_params(**changed)
        task, releases = copy._foreseen(**columns)
        return task.model, releases, lambda units: copy._expected_accuracy(task, releases, units)

    def row(epsilon: float) -> BudgetRow:
        _, releases, knows = at(epsilon=epsilon)
        power = accounting.power(releases.events(), neighboring_relation=releases.neighboring_relation)
        return BudgetRow(epsilon, knows(number), accounting.attack_accuracy(epsilon, estimator.delta), power)

    def is_enough(**changed: float) -> bool:
        return not at(**changed)[-1](number).is_weak

    epsilon, (model, releases, knows), budgeted = estimator.epsilon, at(), row(estimator.epsilon)
    if entries is None:
        entries = _entries_of(estimator, model, columns)
    weak = budgeted.expected_accuracy.is_weak
    needed_units = least(lambda units: not knows(units).is_weak, number, MOST) if weak else float(number)
    needed_epsilon, needed_size = math.nan, 0
    rows: tuple[BudgetRow, ...] = ()
    size = getattr(estimator, str(estimator._size_parameter), None)
    # With a given noise multiplier, or without noise, no noise follows epsilon.
    if budgets and estimator.noise_multiplier is None and math.isfinite(epsilon):
        rows = tuple(budgeted if one == epsilon else row(one) for one in sorted({*budgets, epsilon}))
        needed_epsilon = epsilon
        if weak:
            needed_epsilon = (
                least(lambda e: is_enough(epsilon=e), epsilon, _LARGEST) if epsilon < _LARGEST else math.inf
            )
    if budgets and weak and isinstance(size, int):
        with suppress(ParameterError):  # A prior may allow only one size.
            # The largest size below this one that is enough, as all smaller ones are; 0: none.
            needed_size = bisect(range(1, size), 0, key=lambda k: not is_enough(**{str(estimator._size_parameter): k}))
    return PlanSummary(
        kind=type(estimator).__name__,
        unit=releases.unit,
        n_units=number,
        delta=estimator.delta,
        own=budgeted,
        budget_table=rows,
        needed_units=needed_units,
        needed_epsilon=needed_epsilon,
        size=(estimator._size_parameter or "", size if isinstance(size, int) else 0),
        needed_size=needed_size,
        releases=_in_words(releases),
        memory=_memory_forecast(model, releases, number, entries),
    )


def _in_words(releases: Plan) -> str:
    """Return the releases of a plan, in words."""
    units, drawn = f"{releases.unit}s", [r for r in releases if r.mechanism.sampler.sampling_prob < 1]
    if len(releases) == 1:
        return f"One release of all {units}. All results are computed from it."
    if not drawn:
        return f"{len(releases)} full-batch releases. Batches would save time and add noise."
    rate = drawn[0].mechanism.sampler.sampling_prob
    return (
        f"{len(releases)} releases, {len(drawn)} of them of random batches: a share of {rate:.3g} of the {units}. "
        "Batches save time and add noise."
    )


def _memory_forecast(model: Any, releases: Plan, n_units: int, entries: float) -> MemoryForecast:
    """Return the smallest and largest expected peak memory of a fit.

    Args:
        model: Model of the task.
        releases: Its releases.
        n_units: Number of units.
        entries: Entries of a unit.
    """
    number = n_units * entries
    held, chunk = _NUMBER * number, _NUMBER * min(number, CHUNK_ENTRIES)
    # Clean rows, which a stream keeps too, as much that a model derives from them, and their coordinates in a step: see
    # `data.tables.design`.
    clean, streamed = (3 * _NUMBER * min(number, most) for most in (KEPT_ENTRIES, STREAMED_ENTRIES))
    sums = _NUMBER * max(
        sum(math.prod(block.packed_shape) for block in release.blocks.values()) for release in releases
    )
    least, most = _LIBRARIES + _LEAST_SUMS * sums, _COMPILED + _MOST_SUMS * sums
    if isinstance(model, CurvatureThenScores):
        most = max(most, _COMPILED + MATRIX_BYTES * model.n_features**2)
    least, most = least + _LEAST_CHUNKS * chunk, most + _MOST_CHUNKS * chunk
    # At most twice: rows as they were given, and a copy in their declared ranges; or a file, and its columns.
    disk = _STORED_NUMBER * number + _STORED_ROW * n_units
    return MemoryForecast((least + held, most + 2 * held + clean), (least, most + streamed), disk)


def _entries_of(estimator: PrivateEstimator, model: Any, columns: dict[str, Any]) -> float:
    """Return the entries of a unit: encoded columns of a row, words of a document, numbers of a sequence.

    Args:
        estimator: The estimator.
        model: Model of its task.
        columns: The declared columns.
    """
    if (width := getattr(model, "n_features", None)) is not None:
        return float(width)
    columns = columns | {"vocabulary": estimator._public_words(columns["vocabulary"]), "grouped": False}
    X = synthetic_rows.arguments(estimator, 1, **columns)["X"]
    if isinstance(X, Table):
        return float(len(X.schema.read_columns))
    return float(X.size) if isinstance(X, np.ndarray) else float(synthetic_rows.LENGTH)
