"""The cases of this package's estimators, by form of data, and for each class a table of its solvers or forms.

Tables: regressions, factors, mixtures and naive Bayes of rows. Documents: topics, and naive Bayes of words. Sequences:
a record is the length of a sequence, and its symbols or points. Gradients: densities, where JAX is installed, and
belief networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

import numpy as np

from dpvb import estimators
from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.core import loop
from dpvb.core.model import constant, robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, Binary, Categorical, Numeric, Schema, Table
from dpvb.data.documents.bag_of_words import labelled
from dpvb.data.sequences.content import Points, Sequences, Symbols
from dpvb.data.tables.design import BinaryMatrix, Design
from dpvb.data.tables.mixed import Layout, Mixed
from dpvb.data.tables.numbers import Numbers
from dpvb.data.tables.response import Response
from dpvb.estimators import PrivateEstimator
from dpvb.estimators import factors as factor_models
from dpvb.estimators.dpvi import DPVI
from dpvb.estimators.hidden_markov import GaussianHiddenMarkovModel, HiddenMarkovModel
from dpvb.estimators.lda import LDA
from dpvb.estimators.linear_dynamical import LinearDynamicalSystem
from dpvb.estimators.markov_chain import MarkovChain
from dpvb.estimators.mixture import GaussianMixture, Mixture
from dpvb.estimators.naive_bayes import NaiveBayes
from dpvb.estimators.sbn import SigmoidBeliefNetwork
from dpvb.estimators.synthetic_rows import drawn_cells, drawn_responses
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_choice
from dpvb.models.gradients.variational import GUIDES, Guide

_BUDGET: Mapping[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def after_a_run(case: Case, seed: int) -> Any:
    """The last q of a short noisy run over ordinary records."""
    plan, rng = case.whole(FullBatch(), [0.3, 0.3]), np.random.default_rng(seed)
    wall: Wall[Any] = Wall(case.source(case.records(rng, 200)), plan, noise=InsecureNoise(seed))
    return loop.fit(case.model, wall, plan, rho=constant(1.0), rng=rng)[0]


# --- regressions --------------------------------------------------------------------------------------------

_REGRESSIONS = {
    "first_order": "full",
    "first_order, diagonal": "diagonal",
    "first_order, offset and weights": "full",
    "first_order, diagonal, offset and weights": "diagonal",
}
# A form of one kind only.
_LEARNED = "first_order, learned dispersion"
# Bounds of the row arguments, by the word in a form's name.
_BESIDE = {"offset": {"max_offset": 3.0}, "weights": {"max_weight": 5.0}}
#: For each kind: its own parameters, its response, and the smallest and largest response with its trials.
_KINDS: Mapping[str, tuple[Mapping[str, Any], Response, tuple[list[float], list[float]]]] = {
    "LogisticRegression": ({}, Response(), ([0], [1])),
    "BinomialRegression": ({"max_trials": 4}, Response("binomial", max_trials=4), ([0, 4], [4, 4])),
    "NegativeBinomialRegression": (
        {"dispersion": 2.0, "max_count": 6},
        Response("negative_binomial", max_count=6),
        ([0], [99]),
    ),
    "PoissonRegression": ({"max_count": 6}, Response("poisson", max_count=6), ([0], [99])),
    "LinearRegression": ({"y_range": (-2.0, 4.0)}, Response("numeric", low=-2.0, high=4.0), ([-1e9], [1e9])),
}


def designs(name: str, intercept: float, sparse_rows: bool, form: str = "first_order") -> Callable[..., Design]:
    """Regression rows from a matrix of one record per row: response, row arguments, features."""
    response = replace(_KINDS[name][1], **_bounds(name, form))

    def source(matrix: Floats, group: Any = None) -> Design:
        columns = _columns(name, form, matrix)
        main = {part: columns.pop(part) for part in ("X", "y", "trials") if part in columns}
        how: dict[str, Any] = {"intercept": intercept, "sparse_rows": sparse_rows, "group": group}
        return Design(**main, response=response, beside=columns, **how)

    return source


def _bounds(name: str, form: str) -> dict[str, Any]:
    """Bounds of the row arguments."""
    bounds = {bound: most for word, caps in _BESIDE.items() if word in form for bound, most in caps.items()}
    return {"max_exposure": 7.0, **bounds} if "offset" in form and _KINDS[name][1].is_count else bounds


def _before(name: str, form: str) -> list[str]:
    """Names of the columns before the features."""
    beside = replace(_KINDS[name][1], **_bounds(name, form)).columns
    return [*(["y", "trials"] if name == "BinomialRegression" else ["y"]), *beside]


def _columns(name: str, form: str, matrix: Floats) -> dict[str, Any]:
    """Features, responses, and the row arguments."""
    before = _before(name, form)
    return {"X": matrix[:, len(before) :], **dict(zip(before, matrix.T, strict=False))}


def _with_ends(name: str, form: str, rows: Floats) -> Floats:
    """Every row with the smallest and the largest response, each with what makes it likely and unlikely."""
    (least, most), bounds = _KINDS[name][2], _bounds(name, form)
    far = {"max_exposure": (1e-9, 99.0), "max_offset": (-99.0, 99.0), "max_weight": (99.0, 99.0)}
    rare, likely = ([far[bound][at] for bound in bounds] for at in (0, 1))
    ends = [[*least, *likely], *([[*most, *rare]] if bounds else []), [*most, *likely]]
    return np.vstack([np.hstack([np.tile(np.array(end, dtype=np.float64), (len(rows), 1)), rows]) for end in ends])


def regression(
    name: str, form: str, rows: Floats = HOSTILE_ROWS, *, fit_intercept: bool = True, **options: Any
) -> Case:
    """The case of a regression: q comes from a short noisy run and is moved to where scores are largest.

    Args:
        name, form: of the regression, and of its model.
        rows: hostile features.
        fit_intercept, options: parameters of the regression.
    """
    covariance = _REGRESSIONS.get(form, "full")
    params: dict[str, Any] = {
        "fit_intercept": fit_intercept,
        "max_row_norm": 1.0,
        **_KINDS[name][0],
        **_bounds(name, form),
    }
    params |= {} if name == "LinearRegression" else {"covariance": covariance}
    params |= {**({"dispersion": None} if form == _LEARNED else {}), **options}
    estimator = getattr(estimators, name)(**_BUDGET, **params)
    source = designs(name, 0.4 if fit_intercept else 0.0, covariance == "diagonal", form)

    def records(rng: np.random.Generator, n: int) -> Floats:
        beside = drawn_responses(replace(_KINDS[name][1], **_bounds(name, form)), n, rng)
        before = np.column_stack([beside[column] for column in _before(name, form)]).astype(np.float64)
        return np.hstack([before, table_records(rng, n, rows.shape[1])])

    def begin(seed: int) -> Any:
        model = case.model
        plan = Plan([r for r in phased(model.blocks, FullBatch(), [0.3, 0.3]) if "curvature_at_mean" not in r.blocks])
        rng = np.random.default_rng(seed)
        wall: Wall[Any] = Wall(source(records(rng, 200)), plan, noise=InsecureNoise(seed))
        q, _ = loop.fit(model, wall, plan, rho=robbins_monro(0.0, 1.0), rng=rng)
        return _moved(q)

    def of_width(d: int) -> Case:
        return regression(name, form, np.eye(d), fit_intercept=fit_intercept, **options)

    hostile, columns = _with_ends(name, form, rows), partial(_columns, name, form)
    case = of_estimator(f"{name}, {form}", estimator, source, records, hostile, columns, begin=begin)
    return replace(case, responses=len(_before(name, form)), of_width=of_width)


def _regression(name: str, form: str) -> Case:
    axes = _with_ends(name, form, np.eye(WIDE))[-WIDE:]
    wide = replace(regression(name, form, np.eye(WIDE), fit_intercept=False), hostile=axes)
    wide = replace(wide, records=lambda rng, n: axes[rng.integers(0, WIDE, n)], begin=None)
    corners = 1e3 * np.array(list(product([-1.0, 1.0], repeat=D)))
    return replace(regression(name, form, np.vstack([HOSTILE_ROWS, corners])), wide=wide)


def _moved(q: Any) -> Any:
    """Q with its point far from 0, if it has one."""
    if hasattr(q, "point_e"):
        return replace(q, point_e=_far(q.point_e))
    return replace(q, descent=replace(q.descent, point_d=_far(q.descent.point_d))) if hasattr(q, "descent") else q


def _far(point: Floats) -> Floats:
    return point * 40 / np.linalg.norm(point)


# --- factors ------------------------------------------------------------------------------------------------


def factors(name: str, width: int = D) -> Case:
    """The case of a factor model of rows of norm 1: q comes from a noisy run over ordinary rows."""
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3
    estimator = getattr(factor_models, name)(min(2, width), max_row_norm=1.0, **_BUDGET)
    case = of_estimator(name, estimator, unlabelled, partial(table_records, width=width), hostile)
    case = replace(case, of_width=partial(factors, name), begin=partial(after_a_run, case))
    return case if width != D else replace(case, wide=replace(factors(name, WIDE), begin=None))


def unlabelled(matrix: Floats, group: Any = None) -> Design:
    """Rows without a response."""
    return Design(matrix, group=group)


# --- mixtures and naive Bayes -------------------------------------------------------------------------------

# Ranges of the numbers, the number of groups, and categories.
_ENDS, _GROUPS, _CODES = (-2.0, 2.0), 3, (0, 1, 2)


def gaussian_mixture(covariance: Literal["full", "diag"], width: int = D) -> Case:
    """The case of a Gaussian mixture of a plain matrix."""
    ranges: dict[str, Any] = {"low": _ENDS[0], "high": _ENDS[1]}
    estimator = GaussianMixture(_GROUPS, covariance_type=covariance, prune=False, **ranges, **_BUDGET)
    schema = Schema(tuple(Numeric(f"x{place}", *_ENDS) for place in range(width)))

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0) + 0.3 * rng.standard_normal((n, width))

    axes, signs = np.eye(width), np.array([*product(_ENDS, repeat=min(width, D))])
    corners = np.hstack([signs, np.zeros((len(signs), width - signs.shape[1]))])
    hostile = np.vstack([np.zeros(width), axes * 1e3, -axes, corners, np.full(width, 1e308)])
    source = partial(_mixed, Layout.of(schema))
    case = of_estimator(f"GaussianMixture, {covariance}", estimator, source, records, hostile, clipping="joint")
    case = replace(case, begin=partial(after_a_run, case))
    if width != D:
        return case
    case = replace(case, of_width=partial(gaussian_mixture, covariance))
    wide = None if covariance == "diag" else replace(gaussian_mixture("diag", WIDE), hostile=2 * np.eye(WIDE))
    return replace(case, wide=wide)


def _codes(name: str) -> Categorical:
    return Categorical(name, _CODES, other=False, missing=False)


def mixture() -> Case:
    """The case of a mixture of a number, a count, and two columns of categories."""
    schema = Schema((Numeric("x", *_ENDS), Numeric("count", 0, 9), _codes("choice"), Binary("flag")))
    estimator = Mixture(_GROUPS, count_columns="count", prune=False, fidelity_share=0.1, **_BUDGET)

    records = partial(_records, schema)
    hostile = np.array([[*end, choice, flag] for choice in _CODES for flag in (0, 1) for end in _NUMBER_ENDS])
    source, columns = partial(_mixed, Layout.of(schema, ("count",))), partial(_table, schema)
    case = of_estimator("Mixture", estimator, source, records, hostile, columns, responses=4, clipping="joint")
    return replace(case, begin=partial(after_a_run, case))


def naive_bayes(numbers: Literal["bins", "gaussian"]) -> Case:
    """The case of a table of the class, a number, a count and a choice."""
    schema = Schema((_codes("class"), Numeric("x", *_ENDS), Numeric("count", 0, 9), _codes("choice")))
    estimator = NaiveBayes(response="class", numbers=numbers, bins=4, count_columns="count", **_BUDGET)

    records = partial(_records, schema)

    def source(matrix: Floats, group: Any = None) -> Any:
        return estimator._task(**_table(schema, matrix), group=group).source

    hostile = np.array([[label, *end, choice] for choice in (0, 2) for label in _CODES for end in _NUMBER_ENDS])
    columns = partial(_table, schema)
    return of_estimator(f"NaiveBayes, {numbers}", estimator, source, records, hostile, columns, responses=4)


#: A number and a count at the ends of their ranges, and beyond.
_NUMBER_ENDS = (_ENDS[0], 0.0), (_ENDS[1], 9.0), (1e300, 1e300)


def _records(schema: Schema, rng: np.random.Generator, n: int) -> Floats:
    """Rows that are uniform in a schema, its columns in order."""
    return np.column_stack([*drawn_cells(schema, n, rng).values()]).astype(np.float64)


def _mixed(layout: Layout, matrix: Floats, group: Any = None) -> Mixed:
    """A matrix as rows of a mixture, its columns in the order of a layout."""
    cells = {name: matrix[:, place] for place, name in enumerate(layout.order)}
    return Mixed(layout.rows(cells, np.zeros(len(matrix), dtype=np.bool_), frozenset()), group)


def _table(schema: Schema, matrix: Floats) -> Mapping[str, Any]:
    """A matrix as the table of a fit, its columns in the order of a schema."""
    cells = {column.name: matrix[:, place] for place, column in enumerate(schema.own_columns)}
    return {"X": Table(cells, schema)}


_OF_TABLES: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    **{name: {form: partial(_regression, name, form) for form in _REGRESSIONS} for name in _KINDS},
    "NegativeBinomialRegression": {
        form: partial(_regression, "NegativeBinomialRegression", form) for form in (*_REGRESSIONS, _LEARNED)
    },
    "LinearRegression": {"first_order": partial(_regression, "LinearRegression", "first_order")},
    **{name: {"three_releases": partial(factors, name)} for name in ("FactorAnalysis", "PCA")},
    "GaussianMixture": {covariance: partial(gaussian_mixture, covariance) for covariance in ("full", "diag")},
    "Mixture": {"": mixture},
    "NaiveBayes": {numbers: partial(naive_bayes, numbers) for numbers in ("bins", "gaussian")},
}


#: Columns of documents; in a wide model each column is a canary's own.
TERMS, _WIDE_DOCUMENTS = 12, 400
_LABELS = (0, 1, 2)
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

    estimator = LDA(3, public_vocabulary=True, clip_scale=0.1, **_BUDGET)
    return of_estimator("LDA", estimator, bags, records, hostile, of_width=lambda d: topics(np.eye(d)))


def _topics() -> Case:
    def few_words(rng: np.random.Generator, n: int) -> Floats:
        return rng.poisson(0.1, (n, _WIDE_DOCUMENTS)).astype(np.float64)

    usual = LDA(2, public_vocabulary=True, **_BUDGET)
    return replace(topics(), wide=of_estimator("LDA", usual, bags, few_words, np.eye(_WIDE_DOCUMENTS) * 500.0))


def naive_bayes_of_words(terms: int = TERMS) -> Case:
    """The case of documents, each after its label."""
    words = tuple(f"word{''.join(chr(97 + int(digit)) for digit in str(place))}" for place in range(terms))
    estimator = NaiveBayes(vocabulary=words, classes=_LABELS, clip_norm=2.0, **_BUDGET)

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
    canaries = np.hstack([np.zeros((_WIDE_DOCUMENTS, 1)), np.eye(_WIDE_DOCUMENTS)])
    return replace(case, wide=replace(naive_bayes_of_words(_WIDE_DOCUMENTS), hostile=canaries))


_OF_DOCUMENTS: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    "LDA": {"": _topics},
    "NaiveBayes": {"words": naive_bayes_of_words},
}


# Symbols of a usual case.
SYMBOLS = 4
# Symbols of a wide case; each of them is a canary's own.
_WIDE_SYMBOLS = 200
# Symbols of the longest sequence.
_LONGEST = 12
# Points of the longest sequence of bits or numbers.
_POINTS = 6
# Columns of bits or numbers.
_COLUMNS = 2
#: Ranges of numbers.
BOUNDS: Mapping[str, Any] = {"low": -1.0, "high": 1.0}


def _sequences(matrix: Floats, columns: int = 1) -> Iterator[Floats]:
    """The sequence of each record; a first column that is not a length leaves nothing of it."""
    matrix = np.asarray(matrix, dtype=np.float64)
    most = (matrix.shape[1] - 1) // columns
    length_n = np.clip(np.nan_to_num(matrix[:, 0], posinf=0.0, neginf=0.0), 0, most).astype(np.int64)
    for row, length in zip(matrix, length_n, strict=True):
        yield row[1 : 1 + length * columns]


def _lengths(rng: np.random.Generator, n: int, longest: int) -> Floats:
    return rng.integers(1, longest + 1, size=(n, 1)).astype(np.float64)


# --- sequences of symbols ----------------------------------------------------------------------------------


def symbols(matrix: Floats, group: Any = None, width: int = SYMBOLS) -> Sequences[Any]:
    """A matrix as sequences of symbols."""
    return Symbols(width).sequences([*_sequences(matrix)], group=group)


def chain(order: int) -> Case:
    """The case of a chain of this order; its wide one is of order 1."""

    def of_width(width: int) -> MarkovChain:
        return MarkovChain(width, order=order if width == SYMBOLS else 1, max_length=_LONGEST, **_BUDGET)

    return _of_windows(f"MarkovChain, order {order}", of_width, order + 1)


def hidden_markov(emissions: str, n_steps: int | None = None, estimate: str = "posterior") -> Case:
    """The case of a hidden Markov model with such emissions, and this number of steps after the windows."""
    chosen: dict[str, Any] = {"emissions": emissions, "n_steps": n_steps, "estimate": estimate}

    def of_width(width: int) -> HiddenMarkovModel:
        return HiddenMarkovModel(3, symbols=width, n_init=1, max_length=_LONGEST, **chosen, **_BUDGET)

    words = [emissions, *(["steps"] if n_steps else []), *(["map"] if estimate == "map" else [])]
    return _of_windows(f"HiddenMarkovModel, {', '.join(words)}", of_width, 3)


def _of_windows(name: str, of_width: Callable[[int], MarkovChain | HiddenMarkovModel], length: int) -> Case:
    """The case of a model of a number of symbols, whose windows have this length."""
    constant = _constant(SYMBOLS)
    odd = np.tile([0.0, 1.0, 1e300, -1.0], _LONGEST // 4)
    codes = [np.zeros(_LONGEST), *constant, constant[0], constant[1], odd, np.arange(_LONGEST) % SYMBOLS]
    lengths = [0.0, *(_LONGEST,) * SYMBOLS, 1.0, float(length), _LONGEST, _LONGEST]
    wide = np.column_stack([np.full(_WIDE_SYMBOLS, _LONGEST), _constant(_WIDE_SYMBOLS)])
    case = _of_symbols(name, of_width(SYMBOLS), np.column_stack([lengths, codes]))
    return replace(case, wide=_of_symbols(name, of_width(_WIDE_SYMBOLS), wide))


def _constant(width: int) -> Floats:
    """A sequence of each single symbol."""
    return np.repeat(np.arange(width, dtype=np.float64)[:, None], _LONGEST, axis=1)


def _of_symbols(name: str, estimator: MarkovChain | HiddenMarkovModel, hostile: Floats) -> Case:
    width = len(Symbols(estimator.symbols))

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_lengths(rng, n, _LONGEST), rng.integers(width, size=(n, _LONGEST))])

    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in symbols(matrix, width=width).chunks()] or [Symbols(width).rows([])]
        return {"X": rows.code, "y": np.diff(rows.indptr)}

    source = partial(symbols, width=width)
    return of_estimator(name, estimator, source, records, hostile, columns, responses=_LONGEST + 1)


# --- sequences of points -----------------------------------------------------------------------------------


def points(matrix: Floats, group: Any = None, bounds: Mapping[str, Any] | None = None) -> Sequences[Any]:
    """A matrix as sequences of points, within ranges if there are any."""
    parts = [row.reshape(-1, _COLUMNS) for row in _sequences(matrix, _COLUMNS)]
    return Points(_COLUMNS, **(bounds or {})).sequences(parts, group=group)


def _of_points(
    name: str,
    estimator: HiddenMarkovModel | GaussianHiddenMarkovModel | LinearDynamicalSystem,
    records: Callable[[np.random.Generator, int], Floats],
    hostile: Floats,
    bounds: Mapping[str, Any],
) -> Case:
    def columns(matrix: Floats) -> Mapping[str, Any]:
        (rows,) = [chunk.rows for chunk in points(matrix).chunks()] or [Points(_COLUMNS).rows([])]
        return {"X": rows.value_td, "y": np.diff(rows.indptr)}

    return of_estimator(name, estimator, partial(points, bounds=bounds), records, hostile, columns, responses=1)


def hidden_markov_of_points(emissions: Literal["bernoulli", "gaussian"]) -> Case:
    """The case of a hidden Markov model of bits or numbers."""
    chosen: dict[str, Any] = {"columns": _COLUMNS, "n_init": 1, "max_length": _POINTS, **_BUDGET}
    bounds = BOUNDS if emissions == "gaussian" else {}
    estimator = (
        GaussianHiddenMarkovModel(3, **chosen, **bounds)
        if emissions == "gaussian"
        else HiddenMarkovModel(3, emissions=emissions, **chosen)
    )
    every = np.array([(0, 0), (1, 1), (-1, -1), (0, 1), (0.125, 0.25), (1e300, -1e300), (np.nan, 1), (1e-300, 0.5)])
    constant: Floats = np.tile(every, (1, _POINTS))
    turning = np.tile(every[[0, 1, 3]].ravel(), _POINTS // 3)
    lengths = [_POINTS, *(_POINTS,) * len(every), 1, 2, 0]
    hostile = np.column_stack([lengths, np.vstack([turning, constant, constant[1], constant[3], constant[0]])])
    canaries = np.column_stack([np.full(len(every), _POINTS), constant])

    def records(rng: np.random.Generator, n: int) -> Floats:
        length, x_nt = _lengths(rng, n, _POINTS), rng.uniform(-1.2, 1.2, (n, _COLUMNS * _POINTS))
        return np.hstack([length, (x_nt > 0).astype(np.float64) if emissions == "bernoulli" else x_nt])

    case = _of_points(f"{type(estimator).__name__}, {emissions}", estimator, records, hostile, bounds)
    return replace(case, wide=replace(case, hostile=canaries))


def linear_system() -> Case:
    """The case of a small system; a hostile record is at the ends of the ranges, or beyond."""
    ends = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [1e300, -1e300], [np.nan, 1.0], [0.0, 0.0]])
    constant = np.tile(ends, _POINTS)
    turning = np.tile(np.array([1.0, 1.0, -1.0, -1.0]), (1, _POINTS // 2))
    short = np.full((2, _POINTS * _COLUMNS), 1e3)
    lengths = [*(_POINTS,) * (len(ends) + 1), 1, 3]
    hostile = np.column_stack([lengths, np.vstack([constant, turning, short])])
    estimator = LinearDynamicalSystem(2, columns=_COLUMNS, window=3, max_length=_POINTS, **_BUDGET, **BOUNDS)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_lengths(rng, n, _POINTS), rng.uniform(-1, 1, size=(n, _POINTS * _COLUMNS))])

    return _of_points("LinearDynamicalSystem", estimator, records, hostile, BOUNDS)


_OF_SEQUENCES: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    "MarkovChain": {f"order {order}": partial(chain, order) for order in (1, 2)},
    "HiddenMarkovModel": {
        "categorical": partial(hidden_markov, "categorical"),
        "poisson": partial(hidden_markov, "poisson"),
        "steps": partial(hidden_markov, "categorical", 2),
        "steps, map": partial(hidden_markov, "poisson", 2, "map"),
        "bernoulli": partial(hidden_markov_of_points, "bernoulli"),
    },
    "GaussianHiddenMarkovModel": {"": partial(hidden_markov_of_points, "gaussian")},
    "LinearDynamicalSystem": {"": linear_system},
}


#: Visible units; in the wide network each unit is a canary's own.
VISIBLE, _WIDE_NETWORK = 6, 400


def rows_of_numbers(matrix: Floats, group: Any = None) -> Numbers:
    """Rows of plain numbers."""
    return Numbers(matrix, group=group)


def location(theta: Any, x: Any) -> Any:
    """Log-density of a Gaussian with mean θ, whose gradient x - θ is as long as the row is."""
    return -0.5 * ((x - theta) ** 2).sum()


def density(guide: Guide, width: int = D) -> Case:
    """The case of a guide for the mean of a Gaussian."""
    hostile = HOSTILE_ROWS if width == D else np.eye(width) * 1e3
    estimator = DPVI(location, parameters=width, guide=guide, **_BUDGET)
    case = of_estimator(f"DPVI, {guide}", estimator, rows_of_numbers, partial(table_records, width=width), hostile)
    wide = density(guide, WIDE) if width == D else None
    return replace(case, of_width=partial(density, guide), wide=wide)


def binary(matrix: Floats, group: Any = None) -> BinaryMatrix:
    """Binary vectors."""
    return BinaryMatrix(matrix, group=group)


def network(width: int = VISIBLE, clip: float = 0.05) -> Case:
    """The case of a belief network of three hidden units."""

    def records(rng: np.random.Generator, n: int) -> Floats:
        return (rng.random((n, width)) < 0.4).astype(np.float64)

    axes = np.eye(width)
    hostile = np.vstack([np.zeros(width), np.ones(width), axes, 1 - axes, np.full(width, 0.5)])
    estimator = SigmoidBeliefNetwork(3, clip_scale=clip, init_std=1.0, **_BUDGET)
    case = of_estimator("SigmoidBeliefNetwork", estimator, binary, records, hostile, responses=width, of_width=network)
    return (
        case
        if width != VISIBLE
        else replace(case, wide=replace(network(_WIDE_NETWORK, 1.0), hostile=np.eye(_WIDE_NETWORK)))
    )


_OF_GRADIENTS: Mapping[str, Mapping[str, Callable[[], Case]]] = {
    "DPVI": {guide: partial(density, guide) for guide in GUIDES if find_spec("jax")},
    "SigmoidBeliefNetwork": {"scores": network},
}


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """Ways to the cases of a kind, by its solver or form; none for a kind without a case."""
    tables = (_OF_TABLES, _OF_DOCUMENTS, _OF_SEQUENCES, _OF_GRADIENTS)
    return {form: case for cases in tables for form, case in cases.get(name, {}).items()}


#: Kinds that can be audited here; gradients where JAX is installed.
NAMES: tuple[str, ...] = tuple(kind for kind in PrivateEstimator._registered if forms(kind))


def shipped(name: str) -> list[Case]:
    """The cases of one of this package's kinds, one for each of its solvers or forms.

    Raises:
        ParameterError: for a name that is not one of NAMES.
    """
    check_choice("model class", name, NAMES)
    return [case() for case in forms(name).values()]
