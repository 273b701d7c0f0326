"""What is known of columns together before a factor model is fitted: an earlier release of other people, or a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpvb.estimators.base import PrivateEstimator
from dpvb.estimators.earlier import check_columns, check_release, opened_prior, told
from dpvb.estimators.measured import Columns
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_number
from dpvb.models.factors.three_releases import SecondMoments

_NAMES = ("loadings", "noise_variance", "mean", "rows")


def known_of(fit: PrivateEstimator, prior: Any, columns: Columns, *, public: bool) -> tuple[SecondMoments, str]:
    """What a prior says of the moments of a fit's rows, and where it comes from and what it cost whom, in words.

    Args:
        fit: the estimator that is to be fitted.
        prior: a fitted estimator of its class, a mapping of `_NAMES`, or the path of a file of either.
        columns: of the rows.
        public: whether the rows behind a model were public.

    Raises:
        ParameterError: for another prior, or one of other columns; see `check_release`.
        DataFormatError, ModelFileError: for a file that cannot be read.
    """
    model = opened_prior(prior, '{"loadings": [[0.5, 0.2]], "noise_variance": [1, 1], "mean": [0, 0], "rows": 1000}')
    if isinstance(model, Mapping):
        found = _stated(fit, model, columns)
        return found, f"loadings, variances and means that are worth {found.count:g} rows"
    if type(model) is not type(fit) or not hasattr(model, "_moments"):
        raise ParameterError(
            f"prior must be a fitted dpvb.{type(fit).__name__}, a mapping of {', '.join(_NAMES)}, or a file of either, "
            f"got {type(model).__name__}."
        )
    check_release("prior", model, fit, public=public)
    check_columns(model, columns.feature_names, columns.schema)
    own = model._columns.row_norm
    if own != columns.row_norm:
        raise ParameterError(f"prior must have the row_norm of the fit, {columns.row_norm:g}; its own is {own:g}.")
    if model._moments is None:
        raise ParameterError("prior must be a fit with solver='three_releases', whose file holds what was released.")
    return model._moments, f"moments of {told(model, fit, public=public)}"


def _stated(fit: Any, study: Mapping[Any, Any], columns: Columns) -> SecondMoments:
    """Moments of as many rows as a public study is worth.

    Raises:
        ParameterError: for other names, shapes or numbers than those of a factor model of the columns.
    """
    if set(study) != set(_NAMES):
        raise ParameterError(f"prior must hold {', '.join(_NAMES)} and nothing else, got {', '.join(map(str, study))}.")
    width, (unit_d, origin_d) = columns.width, columns.units
    loading_kd = _numbers("loadings", study["loadings"], (None, width))
    mean_d = _numbers("mean", study["mean"], (width,))
    noise_variance = _numbers(
        "noise_variance", study["noise_variance"], () if np.isscalar(study["noise_variance"]) else (width,)
    )
    if not (noise_variance > 0).all():
        raise ParameterError("prior['noise_variance'] must be positive.")
    rows = check_number("prior['rows']", study["rows"], low=1, high=1e15)
    unique_d = np.broadcast_to(fit._variances(noise_variance, columns), (width,))
    scale_d = unit_d / columns.reach
    second_dd = np.outer(scale_d, scale_d) * (loading_kd.T @ loading_kd + np.diag(unique_d))
    place_d = ((mean_d - origin_d) * unit_d - columns.centre_d) / columns.reach
    # Rows have norm 1 at most: a study in other units might make numbers of a fit infinite, after its charge.
    if not (np.trace(second_dd) <= 1e3 and np.abs(place_d).max() <= 1e3):
        raise ParameterError("prior must be in the units of the columns: it is far beyond their ranges or row_norm.")
    return SecondMoments(place_d, np.ones(width), 1.0, 0.0, second_dd, 0.0, rows)


def _numbers(name: str, given: Any, shape: tuple[int | None, ...]) -> Floats:
    """An array of finite numbers; None in a shape: any size.

    Raises:
        ParameterError: for anything else.
    """
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    fits = found.ndim == len(shape) and all(asked in (None, had) for asked, had in zip(shape, found.shape, strict=True))
    if not (fits and (np.abs(found) <= 1e100).all()):
        said = " x ".join("K" if size is None else str(size) for size in shape) or "1"
        raise ParameterError(f"prior[{name!r}] must be {said} finite numbers, got {given!r}.")
    return found
