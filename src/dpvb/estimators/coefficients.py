"""From the posterior of a regression's weights to the coefficients that its table shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

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
    to_units,
)
from dpvb.data.tables.schema import Schema
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice
from dpvb.models.regression.ridge import Weights
from dpvb.results.coefficients import CoefficientTable, Head, Normal

# The head of a table names so many columns.
_MOST_NAMED = 8
_AGAINST = {"reference": "the reference", "sum": "the mean of the categories", "places": "nothing"}


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The weights of a fit as coefficients in the units of its columns; public.

    Attributes:
        weights: the posterior of the weights of delivered rows, (constant, features / row_norm).
        constant, row_norm: what rows were delivered with; a constant of 0: there is none.
        names: of the features.
        schema: where there is one.
        shift: what is added to the intercept.
    """

    weights: Weights
    constant: float
    row_norm: float
    names: tuple[str, ...]
    schema: Schema | None
    shift: float

    @cached_property
    def normal(self) -> Normal:
        """The intercept and the coefficient of each feature, (1 + features,)."""
        weights, width, first = self.weights, len(self.names), int(self.constant > 0)
        units = sparse.eye_array(1 + width) if self.schema is None else to_units(self.schema)
        scale_r = np.append(self.constant, np.full(width, 1.0 / self.row_norm))
        map_rd = sparse.csr_array(units @ sparse.diags_array(scale_r))[:, 1 - first :]
        mean_r = np.asarray(map_rd @ weights.mean_d)
        mean_r[0] += self.shift
        if weights.covariance.ndim == 1 and weights.centre_d.any():
            # About the centre the weights of a diagonal covariance are independent.
            about = sparse.lil_array(sparse.eye_array(1 + width) - weights.slants.T)
            about[0, 1:] = -weights.centre_d[1:] / self.constant
            map_rd = sparse.csr_array(map_rd @ about)
        map_rd.eliminate_zeros()
        map_rd.sort_indices()
        return Normal(mean_r, map_rd, weights.covariance, weights.prior)

    def read(self, noise_aware: bool) -> Normal:
        """The same, with or without the privacy noise counted in."""
        return self.normal if noise_aware else replace(self.normal, covariance=self.weights.naive_covariance)

    @property
    def centre_r(self) -> Floats:
        """1 and the released centre of each number in its own unit, else 0; only zeros where none was released."""
        x_d = self.weights.centre_d[int(self.constant > 0) :] * self.row_norm
        if not x_d.any():
            return np.zeros(1 + len(x_d))
        return np.append(1.0, x_d if self.schema is None else in_units(self.schema, x_d))

    @property
    def columns(self) -> str:
        """Names of the first columns."""
        columns = () if self.schema is None else self.schema.columns
        names = [f"{t}({c.name})" if (t := getattr(c, "transform", None)) else c.name for c in columns] or self.names
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more

    def table(
        self, head: Head, level: float, coding: str, exp: bool, reference: Mapping[str, Any] | None
    ) -> CoefficientTable:
        """The table in a coding.

        Args:
            head: what the table says above its rows, but for what levels are compared with.
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
        return CoefficientTable(
            names,
            sparse.csr_array(matrix @ sparse.diags_array(size_d)),
            self.read(head.noise_aware),
            reference_r,
            np.append(0.0, self.weights.unseen_d[int(self.constant > 0) :]),
            matrix @ (self.centre_r / size_d),
            head,
            level,
            exp,
        )

    def curve(
        self,
        head: Head,
        name: str,
        at: Sequence[Any],
        reference: Any,
        given: Mapping[str, Any],
        level: float,
        exp: bool,
    ) -> CoefficientTable:
        """What a column adds at some of its values, less what it adds at a reference.

        Args:
            head: what the table says above its rows.
            name, at, reference, given: as in `coordinates.along`.
            level, exp: as in `table`.

        Raises:
            ParameterError: as there, and for a model without a schema.
        """
        if self.schema is None:
            raise ParameterError("a curve needs named columns: fit a dpvb.Table, or with low= and high=.")
        own = reference_of(self.schema, name)
        reference = own if reference is None else reference
        names, matrix, reference_r = along(self.schema, name, at, reference, given)
        unseen_d = np.append(0.0, self.weights.unseen_d[int(self.constant > 0) :])
        others = "".join(f", at {one}={value}" for one, value in given.items())
        head = replace(head, per=f"value of {name}, against {name}={reference}{others}")
        places, nothing = self.read(head.noise_aware), np.zeros(len(names))
        return CoefficientTable(names, matrix, places, reference_r, unseen_d, nothing, head, level, exp)
