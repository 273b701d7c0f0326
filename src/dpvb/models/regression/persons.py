"""Weights of rows: how many rows a row counts as, and how much it counts where its person has several rows.

The sum of a person's scores may be no longer than the score of one row. A clipped sum does not have expectation 0 at
the true weights of a regression, so clipping biases coefficients. Therefore a person with R rows gets a weight that
depends on features and public numbers only, and with which almost no sum is clipped:

    sums                  V = 1/R: a person counts as the mean of their rows
    sums before the path  V = max(1/R, min(1, C / ‖Σ_j t_j‖)), t_j a sum of features only with its bound C
    counts, diagonal      W = max(1/R, min(1, C / (2 ℓ), 1 / (R max_j c_j)))
                          a_j = ω_j w_j x̃_j √h_j,     ℓ² = (1 - ρ) Σ_j ‖a_j‖² + ρ ‖Σ_j a_j‖²
    all other scores      W = V

====  =====================================================================================
ω     weight of a row in the data
w x̃   features of a row as its score has them, of norm at most 1
h     curvature of a row in ψ, in expectation: the variance of its residual in the model
c     h, divided by the largest possible h
C     bound of the score
====  =====================================================================================

ℓ² is the expected square of the norm of the sum of scores whose residuals have correlation ρ, and the bound is at least
2 such standard deviations away. The last term limits the curvature of a person to that of one row. Weights
by a working correlation: Liang & Zeger (1986). If R is 1, both weights are 1.

With W = 1/R no score is ever clipped, and the variance of scores is at most their curvature, whatever the correlation
of a person's rows. So intervals include this correlation. With a diagonal covariance the bound of counts is max_count,
and residuals are far below it, so that W = 1/R would multiply the noise. Other residuals reach their bounds: if labels
are rare, a sum of two would be clipped, and W would bias coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpvb.core.blocks import Contribution, Contributions
from dpvb.core.forms import Gram, GramOfSums, Rows, ScaledRows, SparseRows, grouped
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.models.regression import tuned
from dpvb.rows import RegressionRows


class Expected(NamedTuple):
    """Expected spread of the scores of rows in the model; it depends on no response.

    Attributes:
        form: w x̃ √h of each row.
        share_n: c, (n,).
        bound: C.
    """

    form: ScaledRows | SparseRows
    share_n: Floats
    bound: float


def weighted(scores: Contributions, batch: RegressionRows, expects: Callable[[], Expected]) -> Contributions:
    """Return scores of counts, or their curvature, of rows of any weight and of persons with any number of rows."""
    if batch.person_n is not None:
        expected = expects()
        form = _times(expected.form, _counts(batch))
        weight_n = score_weights(expected._replace(form=form), _usable(batch), batch.person_n)
        scores = {name: _times(one, weight_n) for name, one in scores.items()}
    return _weighted(scores, batch)


def averaged(sums: Contributions, batch: RegressionRows) -> Contributions:
    """Return sums over rows of any weight, in which a person adds the mean of their rows."""
    if batch.person_n is not None:
        weight_n = 1.0 / _numbers(_usable(batch), batch.person_n)[batch.person_n]
        sums = {name: _times(form, weight_n) for name, form in sums.items()}
    return _weighted(sums, batch)


def filled(sums: Contributions, batch: RegressionRows, forms: Sequence[tuple[Contribution, float]]) -> Contributions:
    """Return sums over rows of any weight, in which a person adds as much as leaves some forms within their bounds.

    Args:
        sums: contributions of rows that count once.
        batch: the rows.
        forms: contributions to sums that depend on features only, and their bounds for rows that count once.
    """
    if batch.person_n is not None:
        usable_n = _usable(batch)
        number_i = _numbers(usable_n, batch.person_n)
        used_n, weight_i = np.where(usable_n, 1.0, np.nan), np.ones(len(number_i))
        for form, bound in forms:
            norm_i = grouped(_times(form, used_n), batch.person_n, len(number_i)).norms()
            with np.errstate(divide="ignore"):
                weight_i = np.minimum(weight_i, bound / norm_i)
        weight_i = np.maximum(weight_i, 1.0 / number_i)
        sums = {name: _times(one, weight_i[batch.person_n]) for name, one in sums.items()}
    return _weighted(sums, batch)


def score_weights(expected: Expected, usable_n: Bools, person_n: Ints) -> Floats:
    """Return W of the person of each row, (n,).

    Args:
        expected: a, c and C.
        usable_n: rows that are included; a row of which nothing finite is expected is not.
        person_n: the person of each row, nondecreasing from 0.
    """
    length_n, rho = expected.form.norms(), tuned.PERSON_CORRELATION
    usable_n = usable_n & np.isfinite(length_n)
    number_i = _numbers(usable_n, person_n)
    square_i = np.bincount(person_n, np.where(usable_n, length_n, 0.0) ** 2, len(number_i))
    total_i = expected.form.grouped(person_n, len(number_i)).norms()
    std_i = np.sqrt((1.0 - rho) * square_i + rho * total_i**2)
    largest_i = np.zeros(len(number_i))
    np.maximum.at(largest_i, person_n[usable_n], expected.share_n[usable_n])
    with np.errstate(divide="ignore"):
        weight_i = np.minimum(expected.bound / (tuned.PERSON_STD * std_i), 1.0 / (number_i * largest_i))
    return np.asarray(np.maximum(np.minimum(weight_i, 1.0), 1.0 / number_i)[person_n])


def _numbers(usable_n: Bools, person_n: Ints) -> Floats:
    """The number of usable rows of each person, at least 1."""
    return np.maximum(np.bincount(person_n, usable_n), 1.0)


def _usable(batch: RegressionRows) -> Bools:
    """Rows that are included: a response is not a number in a faulty row, and a row of weight 0 is ignored."""
    return np.isfinite(batch.y_n + _counts(batch))


def _counts(batch: RegressionRows) -> Floats:
    """How many rows each row counts as; NaN, with which it is ignored, if that is 0."""
    if batch.weight_n is None:
        return np.ones(len(batch.y_n))
    return np.where(batch.weight_n > 0, batch.weight_n, np.nan)


def _weighted(once: Contributions, batch: RegressionRows) -> Contributions:
    """Contributions of rows that count once, times how many rows each counts as."""
    if batch.weight_n is None:
        return once
    weight_n = _counts(batch)
    return {name: _times(one, weight_n) for name, one in once.items()}


def _times(form: Any, weight_n: Floats) -> Any:
    """Contributions of rows, times their weights."""
    match form:
        case Rows():
            return Rows(form.values * weight_n[:, None], form.symmetric)
        case SparseRows():
            return SparseRows(form.indptr, form.indices, form.values * np.repeat(weight_n, np.diff(form.indptr)))
        case Gram():
            return Gram(form.x_nd, form.scale_n * weight_n)
        case ScaledRows() | GramOfSums():
            return replace(form, scale_n=form.scale_n * weight_n)
    raise TypeError(type(form))  # Regressions have no other form.
