"""Two regressions' coefficients, row by row, where both mean the same by a row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dpvb.estimators.regression import Regression
from dpvb.guards.errors import ParameterError
from dpvb.guards.lacking import says_what_lacks
from dpvb.results.coefficients import CoefficientTable, difference

# What a column may declare in two ways, by its kind: a coefficient in its own unit means the same. Levels are compared
# by their lines.
_RANGE = {"low", "high", "missing"}
_FREE = {
    "numeric": _RANGE,
    "date": _RANGE,
    "binary": {"missing"},
    "categorical": {"categories", "unseen", "missing", "reference"},
}


@says_what_lacks
def compare(first: Any, second: Any, *, disjoint: bool = False, **options: Any) -> CoefficientTable:
    """The first regression's coefficients minus the second's, with intervals; as ratios, the ratios of both.

    Args:
        first, second: fitted regressions of the same columns.
        disjoint: states that nobody is in the data of both, so that variances add up. Otherwise fits may share sampling
            error in any way: the table says the sum of both stds, which a difference's std never exceeds.
        options: as in `coefficients`: level, noise_aware, coding, exp, per, reference.

    Raises:
        ParameterError: if rows, scales, reference levels, units or classes differ, naming what does.
    """
    for name, model in (("first", first), ("second", second)):
        if not isinstance(model, Regression):
            raise ParameterError(f"{name} must be a fitted regression of this package, got {type(model).__name__}.")
    if type(disjoint) is not bool:
        raise ParameterError(f"disjoint must be True or False, got {disjoint!r}.")
    tables = [model.coefficients(**options) for model in (first, second)]
    classes = [list(getattr(model, "classes_", ())) for model in (first, second)]
    if all(classes) and classes[0] != classes[1]:
        raise ParameterError(f"both models must have the same classes in one order, got {classes[0]} and {classes[1]}.")
    made = difference(*tables, disjoint=disjoint)
    units = [_units(model, options.get("per") == "range") for model in (first, second)]
    for name in {**units[0], **units[1]}:
        own, other = (unit.get(name, ("numeric", {"transform": None})) for unit in units)
        if own != other:
            raise ParameterError(
                f"column {name!r} must have one unit in both models, got {_said(own)} and {_said(other)}."
            )
    return made


def _units(model: Any, with_ranges: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is declared of each column, but for what leaves the meaning of a coefficient as it is."""
    found = {}
    for column in () if model.schema_ is None else model.schema_.columns:
        free = _FREE.get(column.kind, set()) - ({"low", "high"} if with_ranges else set())
        facts = {name: value for name, value in asdict(column).items() if name not in {"name", *free}}
        found[column.name] = column.kind, facts
    return found


def _said(unit: tuple[str, dict[str, Any]]) -> str:
    return f"{unit[0]} with {', '.join(f'{name}={value!r}' for name, value in unit[1].items())}"
