"""Columns of rows without a response: what is public about them, and how rows become private units of bounded length.

A feature f is what a schema makes of a cell, or the number itself where rows have one public norm. No row is longer
than its ranges allow, so that none is shortened but where row_norm says it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpvb.data.shards import paths_of
from dpvb.data.tables.columns import INDICATOR, Binary, Categorical
from dpvb.data.tables.design import Design
from dpvb.data.tables.matrices import as_matrix
from dpvb.data.tables.ranged import Date, Numeric
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import BY_RELEASE, ONE_UNIT, column_names, unbounded
from dpvb.estimators.given import Records
from dpvb.estimators.ranges import check_names, in_order, places, schema_of
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_number


@dataclass(frozen=True)
class Columns:
    """What is public about the columns; vectors are (d,), in units of the features.

    Attributes:
        names: of the columns, where the rows say them.
        width: their number d.
        schema: of a table, or of ranges; None: rows have a norm in common.
        row_norm: by which private rows are divided; no row is longer.
    """

    names: tuple[str, ...] | None
    width: int
    schema: Schema | None
    row_norm: float

    @classmethod
    def of(cls, X: Records, low: Any, high: Any, row_norm: float | None) -> Columns:
        """The columns of private rows.

        Raises:
            ParameterError: a matrix without a bound, or with two; low or high that are no ranges; a table with either,
                or with columns that are neither numbers nor categories.
        """
        bounds = {"low": low, "high": high, "row_norm": row_norm}
        given = [name for name, value in bounds.items() if value is not None]
        if isinstance(X, Table):
            if given:
                raise ParameterError(f"{given[0]} must be None with a table, whose schema says what its columns are.")
            return cls.of_schema(X.schema, named=True)
        width, names = as_matrix(X).width, column_names(X)
        if given == ["row_norm"]:
            return cls(names, width, None, check_number("row_norm", row_norm, low=1e-100, high=1e100))
        if given != ["low", "high"]:
            raise unbounded(
                "low and high or row_norm",
                " and ".join(given) or "none",
                "low= and high=, the range of each column that you know without looking at the data",
                "a dpvb.Table with a dpvb.Schema, which says the same of named columns, and has categories",
                ONE_UNIT,
                BY_RELEASE,
            )
        return cls.of_schema(schema_of(names, width, low, high), named=names is not None)

    @classmethod
    def of_schema(cls, schema: Schema, *, named: bool) -> Columns:
        """The columns of a schema, whose target is none of them.

        Raises:
            ParameterError: for a column that is neither a number nor a category.
        """
        for column in schema.columns:
            if not isinstance(column, (Numeric, Date, Binary, Categorical)):
                raise ParameterError(
                    f"columns must be numbers, dates and categories, got the {column.kind} {column.name!r}: leave it "
                    "out. A factor model finds by itself how columns act together."
                )
        squares = [1.0 if column.numeric else INDICATOR**2 for column in schema.own_columns]
        norm = math.sqrt(math.fsum(squares)) * (1.0 + 1e-12)
        own = replace(schema, target=None)
        return cls(schema.feature_names if named else None, schema.width, own, norm)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return self.names or places(self.width)

    @property
    def centre_d(self) -> Floats:
        """The middle of each column: that of a range; of categories, where all are as likely."""
        return np.zeros(self.width) if self.schema is None else self._each(lambda width: 1 / max(width, 2))

    @property
    def reach(self) -> float:
        """The length that a row can have about the middle."""
        if self.schema is None:
            return self.row_norm
        columns = self.schema.own_columns
        squares = [1 / 4 if c.numeric else INDICATOR**2 * (1 - 1 / c.width if c.width > 1 else 1 / 4) for c in columns]
        return max(math.sqrt(math.fsum(squares)) * (1.0 + 1e-12), INDICATOR / 2)

    @property
    def prior_d(self) -> Floats:
        """Prior mean of a variance: that of a number which is uniform in the range, or in a ball of rows."""
        if self.schema is None:
            return np.full(self.width, self.row_norm**2 / (3 * self.width))
        return np.square(self._each(lambda width: 1.0)) / 12

    @property
    def units(self) -> tuple[Floats, Floats]:
        """What 1 of each column adds to its feature, and the number at which the feature is 0."""
        if self.schema is None:
            return np.ones(self.width), np.zeros(self.width)
        scales, origins = zip(*(column.units for column in self.schema.own_columns), strict=True)
        return np.concatenate(scales), np.concatenate(origins)

    def _each(self, share: Any) -> Floats:
        """A share of each feature's range, by the number of features of its column."""
        assert self.schema is not None
        parts = [(1.0 if c.numeric else INDICATOR) * np.full(c.width, share(c.width)) for c in self.schema.own_columns]
        return np.concatenate(parts)

    def private(self, X: Records, group: Iterable[object] | None) -> AnyDesign:
        """Private rows; features over row_norm."""
        if self.schema is None:
            return Design(X, row_norm=self.row_norm, group=group)
        return self._table(X).design(fit_intercept=False, group=group, labelled=False, row_norm=self.row_norm)

    def visible(self, X: Records) -> AnyDesign:
        """Rows that the caller may see, brought to the public bounds as private ones are.

        Raises:
            DataFormatError: for rows of other columns.
        """
        if isinstance(X, Table):
            own = replace(X.schema, target=None, group=None)
            if self.schema is None or own != replace(self.schema, group=None):
                raise DataFormatError("the table's schema is not the one that the model was fitted with.")
        if self.schema is None:
            check_names(column_names(X), self.names)
            design: AnyDesign = self.private(X, None)
        else:
            design = self._table(X).features(fit_intercept=False, row_norm=self.row_norm)
        if design.width != self.width:
            raise DataFormatError(f"X has {design.width} features, but {self.width} features are expected as input.")
        return design

    def _table(self, X: Records) -> Table:
        """Rows as a table; numbers without names are in the order of a schema that has numbers alone."""
        assert self.schema is not None
        if isinstance(X, Table):
            return X
        if isinstance(X, Mapping) or column_names(X) is not None or paths_of(X) is not None:
            return Table(X, replace(self.schema, group=None))
        matrix, columns = as_matrix(X), self.schema.own_columns
        if not all(column.numeric for column in columns):
            raise DataFormatError("rows with categories must be a dpvb.Table, or have names of columns.")
        if matrix.width != len(columns):
            raise DataFormatError(f"X has {matrix.width} features, but {len(columns)} features are expected as input.")
        return in_order(matrix, self.schema)

    def to_facts(self) -> dict[str, Any]:
        """As JSON has it."""
        named = None if self.names is None else list(self.names)
        schema = None if self.schema is None else self.schema.to_json()
        return {"features": named, "width": self.width, "schema": schema, "row_norm": self.row_norm}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Columns:
        """Inverse of `to_facts`."""
        names = None if facts["features"] is None else tuple(map(str, facts["features"]))
        if facts["schema"] is not None:
            return cls.of_schema(Schema.from_json(facts["schema"]), named=names is not None)
        width = int(facts["width"])
        if names is not None and len(names) != width:
            raise ValueError("names of another number")
        return cls(names, width, None, check_number("row_norm", facts["row_norm"], low=1e-100, high=1e100))


def no_rows(schema: Schema | None, width: int | None) -> dict[str, Any]:
    """No row, of a table with a schema or of so many columns."""
    if schema is None:
        return {"X": np.empty((0, width or 0))}
    names = [column.name for column in schema.own_columns] + [schema.group] * (schema.group is not None)
    return {"X": Table({str(name): np.empty(0) for name in names}, schema)}
