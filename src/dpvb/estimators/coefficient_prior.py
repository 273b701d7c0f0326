"""What is known of coefficients before a fit: an earlier release of other people, or a public study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dpvb.data.tables.coordinates import coded, plain
from dpvb.data.tables.response import LOGISTIC, Response
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import PrivateEstimator
from dpvb.estimators.coefficients import Coefficients
from dpvb.estimators.earlier import check_columns, check_release, opened_prior, told
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError
from dpvb.models.regression.ridge import Known, Weights

# Least standard deviation of what a study says, for weights of rows of norm 1.
_LEAST_STD = 1e-6
# Largest number that an earlier fit may say of weights, and how negative rounding may make its precisions.
_MOST, _ROUNDING = 1e20, 1e-6


class Frame(NamedTuple):
    """What is public about the rows of a fit.

    Attributes:
        constant, row_norm: what rows are delivered with.
        names: of the features.
        schema: where there is one.
        response: of the fit; the model has the range of a numeric one as [-1, 1].
    """

    constant: float
    row_norm: float
    names: tuple[str, ...]
    schema: Schema | None
    response: Response = LOGISTIC

    @property
    def unit(self) -> tuple[float, float]:
        """What the model's ψ of 0 is in the units of the response, and how much one of 1 adds."""
        return (self.response.middle, self.response.half) if self.response.kind == "numeric" else (0.0, 1.0)


def known_of(fit: PrivateEstimator, prior: Any, frame: Frame, *, public: bool) -> tuple[tuple[Known, Known], str]:
    """What a prior says of the weights of a fit's rows, and where it comes from and what it cost whom, in words.

    It is read for predictions, and for intervals.

    Args:
        fit: the estimator that is to be fitted.
        prior: a fitted estimator of its class, names of coefficients with (mean, std), or the path of a file of either.
        frame: what is public about the rows.
        public: whether the rows behind a model were public.

    Raises:
        ParameterError: for another prior, or one of other columns; see `check_release`.
        DataFormatError, ModelFileError: for a file that cannot be read.
    """
    model = opened_prior(prior, '{"age": [0.03, 0.01]}')
    if isinstance(model, Mapping):
        found = _stated(model, frame)
        return (found, found), f"means and standard deviations of {len(model)} coefficients"
    if type(model) is not type(fit) or not hasattr(model, "_weights"):
        raise ParameterError(
            f"prior must be a fitted dpvb.{type(fit).__name__}, a mapping of coefficients to (mean, std), or a file of "
            f"either, got {type(model).__name__}."
        )
    check_release("prior", model, fit, public=public)
    _check_columns(model, frame)
    if model._weights.data is None or model._table.data is None:
        full = " and covariance='full'" if hasattr(model, "covariance") else ""
        raise ParameterError(
            f"prior must be a fit with solver='first_order'{full}, whose file holds what its rows said."
        )
    both = model._weights.data, model._table.data
    if not all(map(_is_of_a_fit, both)):
        raise ParameterError("prior must be the file of a fit: what it says of coefficients is no normal likelihood.")
    return both, f"coefficients of {told(model, fit, public=public)}"


def _is_of_a_fit(known: Known) -> bool:
    """Whether a fit may have said this; from anything else the next one would end after its charge."""
    size, length = (float(np.abs(part).max(initial=0.0)) for part in (known.precision, known.pull_d))
    return max(size, length) <= _MOST and float(np.linalg.eigvalsh(known.precision).min()) >= -_ROUNDING * size


def _check_columns(model: Any, frame: Frame) -> None:
    """Check that a model's columns, their scale and the range of its response are those of the rows.

    Raises:
        ParameterError: naming the first that is not.
    """
    constant, row_norm, names, schema, response = frame
    check_columns(model, names, schema)
    if response.kind == "numeric" and model._fitted_response != response:
        asks, has = (f"({one.range[0]:g}, {one.range[1]:g})" for one in (response, model._fitted_response))
        raise ParameterError(f"prior must have the y_range of the fit, {asks}; its own is {has}.")
    for name, asked, had in (("row_norm", row_norm, model._row_norm), ("intercept", constant, model._constant)):
        if asked != had:
            raise ParameterError(f"prior must have the {name} of the fit, {asked:g}; its own is {had:g}.")


def _stated(study: Mapping[Any, Any], frame: Frame) -> Known:
    """Coefficients of the table, by name, that are known up to standard deviations.

    Raises:
        ParameterError: for a name that is none of the table, or a mean or std outside its range.
    """
    constant, row_norm, names, schema, _ = frame
    middle, half = frame.unit
    nothing_d = np.zeros(len(names) + (constant > 0))
    weights = Weights.alone(nothing_d, nothing_d, nothing_d)
    normal = Coefficients(weights, constant, row_norm, names, schema, middle).normal
    rows, matrix, _ = plain(names) if schema is None else coded(schema, "reference")
    place = {name: sparse.csr_array(matrix @ normal.map_rd)[[row]] for row, name in enumerate(rows)}
    at_zero = dict(zip(rows, np.asarray(matrix @ normal.mean_r), strict=True))
    found = Known.nothing(len(nothing_d))
    for name, value in study.items():
        row_d = place[name].toarray()[0] if name in place else nothing_d
        if not row_d.any():
            kind = "a reference, which is 0" if name in place else "none of the table"
            raise ParameterError(
                f"prior must name coefficients of the table, as coefficients() has them; {name!r} is {kind}."
            )
        mean, std = _pair(name, value, half)
        mean, std = (mean - at_zero[name]) / half, std / half
        # What is known better than this leaves no digits to what is not, and a fit would end after its charge.
        std = max(std, _LEAST_STD * float(np.linalg.norm(row_d)))
        precision: Floats = np.outer(row_d, row_d) / std**2
        found = found.joined(replace(found, precision=precision, pull_d=row_d * (mean / std**2)))
    return found


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
