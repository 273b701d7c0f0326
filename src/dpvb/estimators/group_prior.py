"""What is known of groups before a fit: those of a public model, or of an earlier release of other people."""

from __future__ import annotations

import os
from typing import Any

from dpvb.data.tables.mixed import Layout
from dpvb.data.tables.schema import Schema
from dpvb.estimators.base import PrivateEstimator, load
from dpvb.estimators.earlier import Fitted, check_release, told
from dpvb.guards.errors import ParameterError, check_path
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.known import Known
from dpvb.models.mixtures.spread import as_rows


def known_of(fit: Any, prior: Any, schema: Schema, layout: Layout, columns: Columns) -> tuple[Known, str]:
    """Groups that a prior has, and where they come from and what they cost whom, in words.

    Args:
        fit: the estimator that is to be fitted.
        prior: a fitted estimator of its class, or the path of its file.
        schema, layout, columns: what is declared of the rows.

    Raises:
        ParameterError: for another prior, or one of other columns, or of more groups; see `check_release`.
        ModelFileError: for a file that cannot be read.
    """
    prior = load(check_path("prior", prior)) if isinstance(prior, (str, os.PathLike)) else prior
    model = prior.model if isinstance(prior, Fitted) else prior
    if type(model) is not type(fit) or not isinstance(model, PrivateEstimator) or not hasattr(model, "privacy_"):
        raise ParameterError(
            f"prior must be a fitted dpvb.{type(fit).__name__} or a file of one, got {type(model).__name__}."
        )
    check_release("prior", model, fit, public=fit.public_prior)
    earlier: Any = model
    _check_columns(earlier, schema, layout, fit.covariance_type)
    number = len(earlier.weights_)
    if number > fit.n_components:
        raise ParameterError(
            f"n_components must be {number} at least, the groups of the prior, got {fit.n_components}."
        )
    known = as_rows(earlier._now, earlier._spread, columns, fit.prior_weight)
    return known, f"{number} groups of {told(earlier, fit, public=fit.public_prior)}"


def _check_columns(model: Any, schema: Schema, layout: Layout, covariance: str) -> None:
    """Check that a model's columns are those of the rows.

    Raises:
        ParameterError: naming the first that is not.
    """
    ours, theirs = ({one.name: one for one in part.own_columns} for part in (schema, model.schema_))
    differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if schema.target != model.schema_.target:
        differing.append(next(part.name for part in (schema.target, model.schema_.target) if part is not None))
    if not differing and layout.order != model._layout_.order:
        differing = ["their order"]
    if differing:
        raise ParameterError(
            f"prior must have the columns of the fit, each with its range or categories: {differing[0]!r} differs."
        )
    counts = tuple(column.name for column in layout.counts), tuple(column.name for column in model._layout_.counts)
    gaps = layout.gaps, model._layout_.gaps
    for role, (own, other) in (("counts", counts), ("missing", gaps)):
        if own != other:
            raise ParameterError(f"{role} must be {', '.join(other) or 'none'}, as in the prior, got {own}.")
    if covariance != model.covariance_type:
        raise ParameterError(f"covariance_type must be {model.covariance_type!r}, the prior's, got {covariance!r}.")
