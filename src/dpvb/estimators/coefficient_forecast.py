"""The forecast of a regression: how well its coefficients will be known."""

from __future__ import annotations

import math

import numpy as np

from dpvb.core.plan import Plan
from dpvb.data.tables.columns import Categorical
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import Task
from dpvb.estimators.noise_of_means import averaged, middle, stds_of
from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.foreseen import Noise, Scores, stds
from dpvb.models.regression.scaling import Declared
from dpvb.results.forecast import Forecast, two_digits

# Standard deviation of a coefficient with which an effect of twice as much can be told from none.
_WORTH = 0.1
# Standard deviation of the prior of a number's coefficient, and the share of its variance that says it decides.
_PRIOR, _DECIDED = 1.0, 0.5
# The share of rows of the category that is forecast.
_SHARE = 0.1


def of_coefficients(task: Task, plan: Plan, n: float, scores: Scores, unit: str) -> Forecast:
    """The standard deviation of every column's coefficient: of a number per standard deviation of the number.

    Of categories it is that of a level that a tenth of the rows have.

    Args:
        task, plan: of a first-order regression; the plan is calibrated.
        n: number of rows; public.
        scores: what the model's scores are like.
        unit: what effects are measured in, in words.
    """
    model, schema = task.model, task.notes["schema"]
    columns, constant = model.declared or Declared.plain(model.n_features), task.notes["constant"]
    first, of_score = int(constant > 0), stds_of(plan, "score")
    noise = averaged(of_score[math.floor(tuned.AVERAGE_START * len(of_score)) :])
    seen_2d = np.hstack([np.ones((2, first)), _seen(schema, model.n_features - first)])
    moments, last = (sum(stds_of(plan, name)) for name in ("curvature", "curvature_at_mean"))  # Once, or never.
    std_d = stds(columns, constant, seen_2d, n, Noise(noise, moments, last), scores)
    found = _by_column(schema, std_d[first:])
    numbers = [std for (name, std), is_number in zip(found, _numbers(schema, columns, first), strict=True) if is_number]
    usual = middle(np.array(numbers or [std for _, std in found]))
    strength = _WORTH / usual
    said = f"effects beyond {two_digits(2 * usual)} {unit} per standard deviation of a column told from none"
    if usual > _PRIOR * math.sqrt(_DECIDED):
        said = "no effect told from none: the prior decides"
    return Forecast(
        num_units=n,
        unit=task.plan.unit,
        facts=f"{len(found):,} columns",
        measure=f"standard deviation of a coefficient in {unit}, of a number per standard deviation of it",
        values=(("a number" if numbers else "a column", usual), *found),
        expected=said,
        strength=strength,
        then=f"effects beyond {2 * _WORTH:g} are",
        size="columns",
        parts=len(found),
        affordable=len(found) * strength**2,
    )


def _seen(schema: Schema | None, width: int) -> Floats:
    """What `stds` takes of indicators, (2, width), where all values of a column are as likely."""
    if schema is None:
        return np.full((2, width), [[1 / (3 * width)], [1.0]])  # Of rows that are uniform in the ball.
    parts = []
    for term in schema.terms:
        is_many = isinstance(term, Categorical)  # Levels are compared with each other, and not with the mean.
        share = min(_SHARE, 1 / term.width) if is_many else 1 / max(term.width, 2)
        parts.append(np.full((2, term.width), [[share], [1.0 if is_many else 1 - share]]))
    return np.hstack(parts)


def _by_column(schema: Schema | None, std_d: Floats) -> list[tuple[str, float]]:
    """Each column's own; of categories that of one which a tenth of the rows have, against a frequent one."""
    if schema is None:
        return [(f"x{d}", float(std)) for d, std in enumerate(std_d)]
    return [(term.name, float(std_d[schema.places[term.name]])) for term in schema.terms]


def _numbers(schema: Schema | None, columns: Declared, first: int) -> list[bool]:
    """Which of these are numbers."""
    if schema is None:
        return [bool(one) for one in (columns.high_d > columns.low_d)[first:]]
    return [term.numeric for term in schema.terms]
