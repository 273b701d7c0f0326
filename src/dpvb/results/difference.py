"""The difference of two tables of coefficients, whose fits may have seen the same people.

    β = x - y,   Std β ≤ Std x + Std y,     for independent fits   Var β = Var x + Var y

The bound holds for every linear combination of rows, and some dependence reaches it (Cauchy and Schwarz).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError
from dpvb.results.coefficients import CoefficientTable, Normal, some


@dataclass(frozen=True, eq=False, repr=False)
class Sum:
    """The sum of two normal vectors; public.

    Attributes:
        first, second: the two, (r,) each.
        independent: whether they are; else nothing is known of it, and variances are the largest that there can be.
    """

    first: Normal | Sum
    second: Normal | Sum
    independent: bool

    def turned(self, matrix_sr: Any) -> Sum:
        """The coefficients Mβ of a matrix M, (s, r)."""
        return replace(self, first=self.first.turned(matrix_sr), second=self.second.turned(matrix_sr))

    @property
    def mean_r(self) -> Floats:
        """Posterior means, (r,)."""
        return self.first.mean_r + self.second.mean_r

    @property
    def variance_r(self) -> Floats:
        """Posterior variances, (r,), or what they are at most."""
        return self._added(self.first.variance_r, self.second.variance_r)

    @property
    def prior_r(self) -> Floats:
        """The same under the prior."""
        return self._added(self.first.prior_r, self.second.prior_r)

    @property
    def covariance_rr(self) -> Floats:
        """The joint posterior covariance, (r, r).

        Raises:
            ParameterError: unless both are independent.
        """
        if not self.independent:
            raise ParameterError(
                "two fits to the same people have no joint covariance that is known: contrast() bounds the interval of "
                "any combination. Of disjoint people compare with disjoint=True."
            )
        return self.first.covariance_rr + self.second.covariance_rr

    def _added(self, one_r: Floats, other_r: Floats) -> Floats:
        """Var(x + y), or its bound (√Var x + √Var y)², which no dependence exceeds."""
        with np.errstate(over="ignore"):
            return one_r + other_r if self.independent else np.square(np.sqrt(one_r) + np.sqrt(other_r))


def difference(first: CoefficientTable, second: CoefficientTable, *, disjoint: bool) -> CoefficientTable:
    """The first table's rows minus the second's, as a table; as ratios, the ratios of both.

    Args:
        first, second: of one level and one form, whose columns have the same units.
        disjoint: whether nobody is in the data of both fits; else the table says what a std is at most.

    Raises:
        ParameterError: if scales, rows or reference levels differ, naming what does.
    """
    if first.scale != second.scale:
        raise ParameterError(f"both models must have one scale, got {first.scale!r} and {second.scale!r}.")
    if alone := sorted(set(first.lines) ^ set(second.lines)):
        raise ParameterError(f"both models must have the same rows, but one alone has {some(alone)}.")
    if max(len(first.lines), len(second.lines)) > len(set(first.lines)):
        raise ParameterError("the name of a row stands for two: rename a column.")
    place_r = [second.lines.index(name) for name in first.lines]
    unlike = [first.lines[r] for r in np.flatnonzero(first.reference_r != second.reference_r[place_r])]
    if unlike:
        raise ParameterError(f"both models must have the same reference levels, but one alone has {some(unlike)}.")
    own, theirs = first.matrix.shape[1], second.matrix.shape[1]
    return replace(
        first,
        matrix=sparse.csr_array(sparse.hstack([first.matrix, -second.matrix[place_r]])),
        places=Sum(
            first.places.turned(sparse.eye_array(own + theirs, own)),
            second.places.turned(sparse.eye_array(own + theirs, theirs, k=-own)),
            disjoint,
        ),
        unseen_d=np.concatenate([first.unseen_d, second.unseen_d]),
        centre_r=np.zeros(len(first.lines)),
        head=replace(first.head, minus=second.head, disjoint=disjoint),
    )
