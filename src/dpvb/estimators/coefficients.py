"""Coefficients of a regression: from the posterior of its weights to tables, from earlier coefficients to a prior.

The first part takes a posterior of weights to the coefficients of a table. The second takes coefficients that are known
before a fit, from an earlier release of other people or a public study, to weights. The third forecasts how well the
coefficients of a fit will be known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.core.plan import Plan
from dpvb.data.tables.columns import Categorical
from dpvb.data.tables.coordinates import (
    CODINGS,
    along,
    coded,
    compared_with,
    in_units,
    plain,
    ranges,
    reference_of,
    shown,
    to_units,
)
from dpvb.data.tables.response import Response
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import Task
from dpvb.estimators.ranges import FittedColumns
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores
from dpvb.models.regression.diagonal import FirstOrderDiagonal
from dpvb.models.regression.expected_accuracy import Noise, ScoreFacts, stds
from dpvb.models.regression.ridge import NormalLikelihood, WeightPosterior
from dpvb.models.regression.scaling import Declared
from dpvb.results.coefficients import CoefficientTable, Normal, TableHead
from dpvb.results.expected_accuracy import ExpectedAccuracy, geometric_mean

# The head of a table names so many columns.
_MOST_NAMED = 8
_AGAINST = {"reference": "the reference", "sum": "the mean of the categories", "none": "nothing"}


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The weights of a fit as coefficients in the units of its columns; public.

    Attributes:
        weights: the posterior of the weights of delivered rows, (constant, features / max_row_norm).
        columns: of these rows.
        shift: what is added to the intercept.
    """

    weights: WeightPosterior
    columns: FittedColumns
    shift: float

    @property
    def schema(self) -> Schema | None:
        """The schema of the rows."""
        return self.columns.schema

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.columns.feature_names

    @cached_property
    def normal(self) -> Normal:
        """The intercept and the coefficient of each feature, (1 + features,)."""
        weights, width, first = self.weights, len(self.names), int(self.columns.constant > 0)
        units = sparse.eye_array(1 + width) if self.schema is None else to_units(self.schema)
        scale_r = np.append(self.columns.constant, np.full(width, 1.0 / self.columns.max_row_norm))
        map_rd = sparse.csr_array(units @ sparse.diags_array(scale_r))[:, 1 - first :]
        mean_r = np.asarray(map_rd @ weights.mean_d)
        mean_r[0] += self.shift
        if weights.covariance.ndim == 1 and weights.centre_d.any():
            # About the centre the weights of a diagonal covariance are independent.
            about = sparse.lil_array(sparse.eye_array(1 + width) - weights.slants.T)
            about[0, 1:] = -weights.centre_d[1:] / self.columns.constant
            map_rd = sparse.csr_array(map_rd @ about)
        map_rd.eliminate_zeros()
        map_rd.sort_indices()
        return Normal(mean_r, map_rd, weights.covariance, weights.prior)

    def read(self, noise_aware: bool) -> Normal:
        """Return the estimate, with or without the privacy noise."""
        return self.normal if noise_aware else replace(self.normal, covariance=self.weights.naive_covariance)

    @property
    def centre_r(self) -> Floats:
        """1 and the released centre of each number in its own unit, else 0; only zeros where none was released."""
        x_d = self.weights.centre_d[int(self.columns.constant > 0) :] * self.columns.max_row_norm
        if not x_d.any():
            return np.zeros(1 + len(x_d))
        return np.append(1.0, x_d if self.schema is None else in_units(self.schema, x_d))

    @property
    def listed(self) -> str:
        """Names of the first columns."""
        columns = () if self.schema is None else self.schema.columns
        kinds = [c.kind if c.kind == "spline" else getattr(c, "transform", None) for c in columns]
        names = [f"{t}({c.name})" if t else c.name for t, c in zip(kinds, columns, strict=True)] or self.names
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more

    def table(
        self, head: TableHead, level: float, coding: str, exp: bool, reference: Mapping[str, Any] | None
    ) -> CoefficientTable:
        """The table in a coding.

        Args:
            head: lines above the table, but for what levels are compared with.
            level, coding, exp, reference: as in `Regression.coefficients`.

        Raises:
            ParameterError: for an argument outside its range, or a range where none was declared.
        """
        check_choice("coding", coding, CODINGS)
        schema = self.schema
        if reference is not None:
            if schema is None:
                raise ParameterError("reference needs named columns: fit a dpvb.Table.")
            if coding != "reference":
                raise ParameterError(f"reference goes with coding='reference', got coding={coding!r}.")
            schema = compared_with(schema, reference)
        names, matrix, reference_r = plain(self.names) if schema is None else coded(schema, coding)
        if not (matrix[:1] @ self.normal.map_rd).nnz:  # There is no intercept.
            names, matrix, reference_r = names[1:], matrix[1:], reference_r[1:]
        size_d = np.ones(1 + len(self.names))
        if check_choice("per", head.per, ("unit", "range")) == "range":
            if self.schema is None:
                raise ParameterError("per='range' needs declared ranges: fit a dpvb.Table, or with low= and high=.")
            size_d = ranges(self.schema)
        if self.schema is not None and any(isinstance(column, Categorical) for column in self.schema.own_columns):
            head = replace(head, against=_AGAINST[coding])
        if self.schema is not None:
            replaced = (
                (c.name, getattr(c, "missing", None)) for c in self.schema.own_columns if c.kind != "categorical"
            )
            head = replace(
                head, replaced=tuple(f"{name} = {shown(value)}" for name, value in replaced if value is not None)
            )
        return CoefficientTable(
            names,
            sparse.csr_array(matrix @ sparse.diags_array(size_d)),
            self.read(head.noise_aware),
            reference_r,
            np.append(0.0, self.weights.unknown_scale_d[int(self.columns.constant > 0) :]),
            matrix @ (self.centre_r / size_d),
            head,
            level,
            exp,
        )

    def partial_effect(
        self,
        head: TableHead,
        name: str,
        at: Sequence[Any],
        reference: Any,
        given: Mapping[str, Any],
        level: float,
        exp: bool,
    ) -> CoefficientTable:
        """Difference of a column's part between some of its values and a reference.

        Args:
            head: lines above the table.
            name, at, reference, given: as in `coordinates.along`.
            level, exp: as in `table`.

        Raises:
            ParameterError: as there, and for a model without a schema.
        """
        if self.schema is None:
            raise ParameterError("A curve needs named columns: fit a dpvb.Table, or with low= and high=.")
        usual = reference_of(self.schema, name)
        reference = usual if reference is None else reference
        names, matrix, reference_r = along(self.schema, name, at, reference, given)
        unknown_scale_d = np.append(0.0, self.weights.unknown_scale_d[int(self.columns.constant > 0) :])
        others = "".join(f", at {one}={value}" for one, value in given.items())
        head = replace(head, per=f"value of {name}, against {name}={reference}{others}")
        places, nothing = self.read(head.noise_aware), np.zeros(len(names))
        return CoefficientTable(names, matrix, places, reference_r, unknown_scale_d, nothing, head, level, exp)


#: Prior information on weights, for predictions and for intervals.
KnownWeights = tuple[NormalLikelihood, NormalLikelihood]
# Least standard deviation of what a study says, for weights of rows of norm 1.
_LEAST_STD = 1e-6
# Largest number that an earlier fit may say of weights, and how negative rounding may make its precisions.
_MOST, _ROUNDING = 1e20, 1e-6


def is_of_a_fit(data: NormalLikelihood) -> bool:
    """Whether a fit may have said this; from anything else the next one would end after its charge."""
    size, length = (float(np.abs(part).max(initial=0.0)) for part in (data.precision, data.pull_d))
    return max(size, length) <= _MOST and float(np.linalg.eigvalsh(data.precision).min()) >= -_ROUNDING * size


def stated(
    study: Mapping[Any, Any], rows: tuple[FittedColumns, Response]
) -> tuple[tuple[NormalLikelihood, NormalLikelihood], str]:
    """Coefficients of the table, by name, that are known up to standard deviations, and what they are, in words.

    They are the same for predictions and for intervals.

    Raises:
        ParameterError: for a name that is none of the table, or a mean or std outside its range.
    """
    columns, response = rows
    # The model's ψ of 0 in the units of the response, and the effect of one of 1.
    middle, half = (response.middle, response.half) if response.kind == "numeric" else (0.0, 1.0)
    schema, nothing_d = columns.schema, np.zeros(columns.width + (columns.constant > 0))
    weights = WeightPosterior.alone(nothing_d, nothing_d, nothing_d)
    normal = Coefficients(weights, columns, middle).normal
    lines, matrix, _ = plain(columns.feature_names) if schema is None else coded(schema, "reference")
    place = {name: sparse.csr_array(matrix @ normal.map_rd)[[row]] for row, name in enumerate(lines)}
    at_zero = dict(zip(lines, np.asarray(matrix @ normal.mean_r), strict=True))
    total = NormalLikelihood.nothing(len(nothing_d))
    for name, value in study.items():
        row_d = place[name].toarray()[0] if name in place else nothing_d
        if not row_d.any():
            kind = "a reference, which is 0" if name in place else "none of the table"
            raise ParameterError(
                f"prior must name coefficients of the table, as coefficients() has them; {name!r} is {kind}."
            )
        mean, std = _pair(name, value, half)
        mean, std = (mean - at_zero[name]) / half, std / half
        # A direction with a smaller std leaves no digits to the others, and a fit would end after its charge.
        std = max(std, _LEAST_STD * float(np.linalg.norm(row_d)))
        precision: Floats = np.outer(row_d, row_d) / std**2
        total = total.joined(replace(total, precision=precision, pull_d=row_d * (mean / std**2)))
    return (total, total), f"means and standard deviations of {len(study)} coefficients"


def _pair(name: str, value: Any, half: float) -> tuple[float, float]:
    """A mean and a standard deviation; a larger mean would make numbers of a fit infinite, after its charge.

    Args:
        name: of the coefficient.
        value: what was said of it.
        half: what one is measured in.

    Raises:
        ParameterError: for anything else.
    """
    try:
        mean, std = (float(part) for part in value)
    except (TypeError, ValueError):
        mean = std = math.nan
    least, most = 1e-9 * half, 1e9 * half
    if not (abs(mean) <= most and least <= std <= most):
        raise ParameterError(
            f"prior[{name!r}] must be (mean, std), mean in [{-most:g}, {most:g}] and std in [{least:g}, {most:g}], got "
            f"{value!r}."
        )
    return mean, std


# Standard deviation of a coefficient with which an effect of twice as much can be told from none.
_WORTH = 0.1
# Standard deviation of the prior of a number's coefficient.
_PRIOR = 1.0
# The share of rows of the category that is forecast.
_SHARE = 0.1


def known_coefficients(
    task: Task[CurvatureThenScores | FirstOrderDiagonal], plan: Plan, n: float, scores: ScoreFacts, unit: str
) -> ExpectedAccuracy:
    """The standard deviation of every column's coefficient: of a number per standard deviation of the number.

    For categories it is that of a level that 0.1 of the rows have.

    Args:
        task, plan: of a first-order regression; the plan is calibrated.
        n: number of rows; public.
        scores: what the model's scores are like.
        unit: what effects are measured in, in words.
    """
    model, schema = task.model, task.notes["schema"]
    columns, constant = model.declared or Declared.plain(model.n_features), task.notes["columns"].constant
    first, num_scores = int(constant > 0), len(plan.noise_stds("score"))
    # The diagonal form drops its first scores. The other forms weight all by `Average.share`, here without errors.
    start = math.floor(tuned.AVERAGE_START * num_scores) if isinstance(model, FirstOrderDiagonal) else 0
    noise = plan.noise_std_of_mean("score", start)
    terms = _terms(schema, columns, first)
    seen_2d = np.hstack([np.ones((2, first)), _seen(schema, model.n_features - first)])
    moments, last = (sum(plan.noise_stds(name)) for name in ("curvature", "curvature_at_mean"))  # Once, or never.
    std_d = stds(columns, constant, seen_2d, n, Noise(noise, moments, last), scores)[first:]
    by_column = [(name, float(std_d[place])) for name, place, _ in terms]
    numeric = [std_d[place] for _, place, is_number in terms if is_number]
    usual = geometric_mean(np.array(numeric or [std for _, std in by_column]))
    return ExpectedAccuracy(
        f"standard deviation of a coefficient, in {unit} per standard deviation of a number",
        usual,
        _WORTH,
        unknown=_PRIOR,
        details=(*scores.assumed, *by_column),
    )


def _seen(schema: Schema | None, width: int) -> Floats:
    """Part of `stds` that indicators take, (2, width), if all values of a column are equally likely."""
    if schema is None:
        return np.full((2, width), [[1 / (3 * width)], [1.0]])  # For rows that are uniform in the ball.
    parts = []
    for term in schema.terms:
        is_many = isinstance(term, Categorical)  # Levels are compared with each other, and not with the mean.
        share = min(_SHARE, 1 / term.width) if is_many else 1 / max(term.width, 2)
        parts.append(np.full((2, term.width), [[share], [1.0 if is_many else 1 - share]]))
    return np.hstack(parts)


def _terms(schema: Schema | None, columns: Declared, first: int) -> list[tuple[str, Any, bool]]:
    """Name and place of each column, and whether it is a number; of categories a place of one of their levels."""
    if schema is None:
        return [(f"x{d}", d, bool(one)) for d, one in enumerate((columns.high_d > columns.low_d)[first:])]
    return [(term.name, schema.places[term.name], term.numeric) for term in schema.terms]
