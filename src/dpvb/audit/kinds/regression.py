"""Regressions as the audit wants them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpvb import estimators
from dpvb.audit.cases import HOSTILE_ROWS, WIDE, Case, D, of_estimator, table_records
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.schedule import robbins_monro
from dpvb.core.wall import Wall
from dpvb.data.tables.design import Design
from dpvb.data.tables.response import Response
from dpvb.guards.arrays import Floats

_FORMS = {
    "first_order": "full",
    "first_order, diagonal": "diagonal",
    "first_order, offset and weights": "full",
    "first_order, diagonal, offset and weights": "diagonal",
}
# A form of one kind alone.
_LEARNED = "first_order, learned dispersion"
# Bounds of what stands beside the response, in the forms that say so.
_BESIDE = {"offset": {"max_offset": 3.0}, "weights": {"max_weight": 5.0}}
#: Of each kind: its own parameters, what a response may be, and the smallest and largest one with its trials.
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


def forms(name: str) -> Mapping[str, Callable[[], Case]]:
    """A case for each form."""
    names = ["first_order"] if name == "LinearRegression" else [*_FORMS]
    names += [_LEARNED] * (name == "NegativeBinomialRegression")
    return {form: partial(_case, name, form) for form in names if name in _KINDS}


def designs(name: str, intercept: float, sparse_rows: bool, form: str = "first_order") -> Callable[..., Design]:
    """Regression rows from a matrix of one record a row: response, what stands beside it, features."""
    response = replace(_KINDS[name][1], **_bounds(name, form))

    def source(matrix: Floats, group: Any = None) -> Design:
        columns = _columns(name, form, matrix)
        main = {part: columns.pop(part) for part in ("X", "y", "trials") if part in columns}
        how: dict[str, Any] = {"intercept": intercept, "sparse_rows": sparse_rows, "group": group}
        return Design(**main, response=response, beside=columns, **how)

    return source


def _bounds(name: str, form: str) -> dict[str, Any]:
    """Bounds of what stands beside the response."""
    bounds = {bound: most for word, caps in _BESIDE.items() if word in form for bound, most in caps.items()}
    return {"max_exposure": 7.0, **bounds} if "offset" in form and _KINDS[name][1].is_count else bounds


def _named(name: str, form: str) -> list[str]:
    """What stands before the features."""
    beside = replace(_KINDS[name][1], **_bounds(name, form)).columns
    return [*(["y", "trials"] if name == "BinomialRegression" else ["y"]), *beside]


def _columns(name: str, form: str, matrix: Floats) -> dict[str, Any]:
    """Features, responses, and what stands beside these."""
    named = _named(name, form)
    return {"X": matrix[:, len(named) :], **dict(zip(named, matrix.T, strict=False))}


def _responses(name: str, form: str, rng: np.random.Generator, n: int) -> Floats:
    beside = [rng.uniform(0.1, 4.0, n) for _ in _bounds(name, form)]
    if name == "BinomialRegression":
        trials = rng.integers(1, 5, n)
        return np.column_stack([rng.binomial(trials, 0.4), trials, *beside]).astype(np.float64)
    if name == "LinearRegression":
        return rng.normal(1.0, 2.0, (n, 1))
    y_n = rng.integers(0, 2 if name == "LogisticRegression" else 9, n)
    return np.column_stack([y_n, *beside]).astype(np.float64)


def _with_ends(name: str, form: str, rows: Floats) -> Floats:
    """Every row with the smallest and the largest response, and with what makes it likely and unlikely beside it."""
    (least, most), bounds = _KINDS[name][2], _bounds(name, form)
    far = {"max_exposure": (1e-9, 99.0), "max_offset": (-99.0, 99.0), "max_weight": (99.0, 99.0)}
    rare, likely = ([far[bound][at] for bound in bounds] for at in (0, 1))
    ends = [[*least, *likely], *([[*most, *rare]] if bounds else []), [*most, *likely]]
    return np.vstack([np.hstack([np.tile(np.array(end, dtype=np.float64), (len(rows), 1)), rows]) for end in ends])


def of_form(name: str, form: str, rows: Floats = HOSTILE_ROWS, *, fit_intercept: bool = True, **options: Any) -> Case:
    """The case of a regression: q comes from a short noisy run and is moved to where scores are largest.

    Args:
        name, form: of the regression, and of its model.
        rows: hostile features.
        fit_intercept, options: parameters of the regression.
    """
    covariance = _FORMS.get(form, "full")
    params: dict[str, Any] = {"fit_intercept": fit_intercept, "row_norm": 1.0}
    params |= {} if name == "LinearRegression" else {"covariance": covariance}
    params |= {
        **_KINDS[name][0],
        **_bounds(name, form),
        **({"dispersion": None} if form == _LEARNED else {}),
        **options,
    }
    estimator = getattr(estimators, name)(epsilon=1.0, delta=1e-6, **params)
    source = designs(name, 0.4 if fit_intercept else 0.0, covariance == "diagonal", form)

    def records(rng: np.random.Generator, n: int) -> Floats:
        return np.hstack([_responses(name, form, rng, n), table_records(rng, n, rows.shape[1])])

    def begin(seed: int) -> Any:
        model = case.model
        plan = Plan([r for r in phased(model.blocks, FullBatch(), [0.3, 0.3]) if "curvature_at_mean" not in r.blocks])
        rng = np.random.default_rng(seed)
        wall: Wall[Any] = Wall(source(records(rng, 200)), plan, noise=InsecureNoise(seed))
        q, _ = loop.fit(model, wall, plan, rho=robbins_monro(0.0, 1.0), rng=rng)
        return _moved(q)

    def of_width(d: int) -> Case:
        return of_form(name, form, np.eye(d), fit_intercept=fit_intercept, **options)

    hostile, columns = _with_ends(name, form, rows), partial(_columns, name, form)
    case = of_estimator(f"{name}, {form}", estimator, source, records, hostile, columns, begin=begin)
    return replace(case, responses=len(_named(name, form)), of_width=of_width)


def _case(name: str, form: str) -> Case:
    axes = _with_ends(name, form, np.eye(WIDE))[-WIDE:]
    wide = replace(of_form(name, form, np.eye(WIDE), fit_intercept=False), name=f"{name}, wide", hostile=axes)
    wide = replace(wide, records=lambda rng, n: axes[rng.integers(0, WIDE, n)], begin=None)
    corners = 1e3 * np.array(list(itertools.product([-1.0, 1.0], repeat=D)))
    return replace(of_form(name, form, np.vstack([HOSTILE_ROWS, corners])), wide=wide)


def _moved(q: Any) -> Any:
    """Q with its point far from 0, if it has one."""
    if hasattr(q, "point_e"):
        return replace(q, point_e=_far(q.point_e))
    return replace(q, descent=replace(q.descent, point_d=_far(q.descent.point_d))) if hasattr(q, "descent") else q


def _far(point: Floats) -> Floats:
    return point * 40 / np.linalg.norm(point)
