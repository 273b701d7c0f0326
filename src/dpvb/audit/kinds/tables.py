"""Models of tables as the audit wants them: regressions, factors, mixtures and naive Bayes of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from dpvb import estimators
from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.schedule import constant, robbins_monro
from dpvb.core.wall import Wall
from dpvb.data import Binary, Categorical, Numeric, Schema, Table
from dpvb.data.tables.design import Design
from dpvb.data.tables.mixed import Layout, Mixed
from dpvb.data.tables.response import Response
from dpvb.estimators import factors as factor_models
from dpvb.estimators.mixture import GaussianMixture, Mixture
from dpvb.estimators.naive_bayes import NaiveBayes
from dpvb.estimators.synthetic_rows import drawn_cells, drawn_responses
from dpvb.guards.arrays import Floats

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
# Bounds of the columns beside the response, by the word in a form's name.
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
    """Regression rows from a matrix of one record per row: response, columns beside the response, features."""
    response = replace(_KINDS[name][1], **_bounds(name, form))

    def source(matrix: Floats, group: Any = None) -> Design:
        columns = _columns(name, form, matrix)
        main = {part: columns.pop(part) for part in ("X", "y", "trials") if part in columns}
        how: dict[str, Any] = {"intercept": intercept, "sparse_rows": sparse_rows, "group": group}
        return Design(**main, response=response, beside=columns, **how)

    return source


def _bounds(name: str, form: str) -> dict[str, Any]:
    """Bounds of the columns beside the response."""
    bounds = {bound: most for word, caps in _BESIDE.items() if word in form for bound, most in caps.items()}
    return {"max_exposure": 7.0, **bounds} if "offset" in form and _KINDS[name][1].is_count else bounds


def _before(name: str, form: str) -> list[str]:
    """Names of the columns before the features."""
    beside = replace(_KINDS[name][1], **_bounds(name, form)).columns
    return [*(["y", "trials"] if name == "BinomialRegression" else ["y"]), *beside]


def _columns(name: str, form: str, matrix: Floats) -> dict[str, Any]:
    """Features, responses, and the columns beside the responses."""
    before = _before(name, form)
    return {"X": matrix[:, len(before) :], **dict(zip(before, matrix.T, strict=False))}


def _with_ends(name: str, form: str, rows: Floats) -> Floats:
    """Every row with the smallest and the largest response, each beside what makes it likely and unlikely."""
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
    params: dict[str, Any] = {"fit_intercept": fit_intercept, "row_norm": 1.0, **_KINDS[name][0], **_bounds(name, form)}
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
    estimator = getattr(factor_models, name)(min(2, width), row_norm=1.0, **_BUDGET)
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
    case = of_estimator(f"GaussianMixture, {covariance}", estimator, source, records, hostile, clip="joint")
    case = replace(case, begin=partial(after_a_run, case))
    if width != D:
        return case
    case = replace(case, of_width=partial(gaussian_mixture, covariance))
    wide = None if covariance == "diag" else replace(gaussian_mixture("diag", WIDE), hostile=2 * np.eye(WIDE))
    return replace(case, wide=wide)


def _codes(name: str) -> Categorical:
    return Categorical(name, _CODES, unseen=False, missing=False)


def mixture() -> Case:
    """The case of a mixture of a number, a count, and two columns of categories."""
    schema = Schema((Numeric("x", *_ENDS), Numeric("count", 0, 9), _codes("choice"), Binary("flag")))
    estimator = Mixture(_GROUPS, counts="count", prune=False, check_share=0.1, **_BUDGET)

    hostile = np.array([[*end, choice, flag] for choice in _CODES for flag in (0, 1) for end in _NUMBER_ENDS])
    source, columns = partial(_mixed, Layout.of(schema, ("count",))), partial(_table, schema)
    case = of_estimator(
        "Mixture", estimator, source, partial(_records, schema), hostile, columns, responses=4, clip="joint"
    )
    return replace(case, begin=partial(after_a_run, case))


def naive_bayes(numbers: Literal["bins", "gaussian"]) -> Case:
    """The case of a table of the class, a number, a count and a choice."""
    schema = Schema((_codes("class"), Numeric("x", *_ENDS), Numeric("count", 0, 9), _codes("choice")))
    estimator = NaiveBayes(response="class", numbers=numbers, bins=4, counts="count", **_BUDGET)

    def source(matrix: Floats, group: Any = None) -> Any:
        return estimator.task(**_table(schema, matrix), group=group).source

    hostile = np.array([[label, *end, choice] for choice in (0, 2) for label in _CODES for end in _NUMBER_ENDS])
    columns = partial(_table, schema)
    return of_estimator(
        f"NaiveBayes, {numbers}", estimator, source, partial(_records, schema), hostile, columns, responses=4
    )


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


FORMS: Mapping[str, Mapping[str, Callable[[], Case]]] = {
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
