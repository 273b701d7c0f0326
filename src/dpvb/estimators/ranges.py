"""Public facts about the columns of rows: their names, and ranges, a schema or a norm that bounds their numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.data.shards import paths_of
from dpvb.data.tables.columns import Product
from dpvb.data.tables.design import Design
from dpvb.data.tables.matrices import RowMatrix, as_matrix
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import AnyDesign, Table
from dpvb.estimators.base import BY_RELEASE, ONE_UNIT, check_width, column_names, unbounded
from dpvb.estimators.input_types import Records, Responses
from dpvb.guards.domains import Nonnegative, Positive
from dpvb.guards.errors import DataFormatError, ParameterError


def schema_of(names: tuple[str, ...] | None, width: int, low: Any, high: Any) -> Schema:
    """Numbers in ranges.

    Args:
        names: of the columns; None: x0, x1 and so on.
        width: number of columns.
        low, high: ends of the ranges: numbers, one for each column, or by column name.

    Raises:
        ParameterError: unless they are, or for limits that are not a range.
    """
    ends = [_ends(name, _in_order_of(names, name, given), width) for name, given in (("low", low), ("high", high))]
    return Schema(tuple(Numeric(*column) for column in zip(names or places(width), *ends, strict=True)))


def places(width: int) -> tuple[str, ...]:
    """Names of columns that have none."""
    return tuple(f"x{j}" for j in range(width))


def in_order(matrix: RowMatrix, schema: Schema) -> Table:
    """A matrix as a table, its columns in the order of a schema."""
    names = [column.name for column in schema.own_columns]
    return Table(dict(zip(names, matrix.columns(), strict=True)), schema)


def check_names(names: tuple[str, ...] | None, known: tuple[str, ...] | None) -> None:
    """Check names of columns against those of a fit; None: there are none.

    Raises:
        DataFormatError: for others.
    """
    if None not in (names, known) and names != known:
        raise DataFormatError(
            f"The feature names should match those that were passed during fit: {list(known or ())[:8]}."
        )


def check_schema(rows: Schema, fitted: Schema, *, target: bool = False) -> None:
    """Check the schema of rows that the caller may see against that of a fit; groups may differ.

    Args:
        rows, fitted: both schemas.
        target: whether the target is read, so that it must be that of the fit.

    Raises:
        DataFormatError: naming the first difference.
    """
    ours, theirs = (replace(one, group=None, target=one.target if target else None) for one in (fitted, rows))
    if ours != theirs:
        parts = (part.name for part in fields(Schema) if getattr(ours, part.name) != getattr(theirs, part.name))
        first = next((f"column {name!r}" for name in _differing(ours, theirs)), next(parts))
        raise DataFormatError(
            f"X must have the schema of the fit, but the two differ in {first}. Read the rows with that schema."
        )


def _differing(*schemas: Schema | None) -> list[str]:
    """Names of the columns that two schemas do not share."""
    ours, theirs = ({} if one is None else {column.name: column for column in one.columns} for one in schemas)
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


@dataclass(frozen=True)
class Columns:
    """The columns that a model was fitted with, by which it reads rows for predictions; public.

    Attributes:
        kind: Name of the estimator, for messages.
        names: Names of the features, if the rows had names.
        width: Number of features.
        schema: Schema of a table, or of ranges; None: all rows had one norm.
        max_row_norm: Number by which features were divided.
    """

    kind: str
    names: tuple[str, ...] | None
    width: int
    schema: Schema | None
    max_row_norm: Positive

    def __post_init__(self) -> None:
        widths = [self.width, *([] if self.names is None else [len(self.names)])]
        if {*widths, *([] if self.schema is None else [self.schema.width])} != {self.width}:
            raise ValueError("features of another number")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features."""
        return self.names or places(self.width)

    @property
    def steps(self) -> tuple[float, ...]:
        """Step of each feature in a delivered row for one unit of its column; of interactions, the products."""
        if self.schema is None:
            return (1.0 / self.max_row_norm,) * self.width
        gain = {column.name: column.units[0] for column in self.schema.own_columns}
        steps = [
            np.outer(gain[term.first.name], gain[term.second.name]).ravel() / term.shrink
            if isinstance(term, Product)
            else gain[term.name]
            for term in self.schema.terms
        ]
        return tuple((np.concatenate(steps) / self.max_row_norm).tolist())

    def check_earlier(self, earlier: Columns) -> None:
        """Check that the rows of an earlier fit had these columns, in the same units.

        Raises:
            ParameterError: naming the first difference.
        """
        if (self.schema is None) != (earlier.schema is None):
            raise ParameterError("prior must be of the same rows: one of both has a dpvb.Schema, or low= and high=.")
        if differing := _differing(self.schema, earlier.schema):
            raise ParameterError(
                f"prior must have the columns of the fit, each with its range or categories: {differing[0]!r} differs."
            )
        if earlier.feature_names != self.feature_names:
            raise ParameterError(f"prior must have the features of the fit in their order: {self.width} of them.")
        if earlier.max_row_norm != self.max_row_norm:
            raise ParameterError(
                f"prior must have the max_row_norm of the fit, {self.max_row_norm:g}; "
                f"its own is {earlier.max_row_norm:g}."
            )

    def table(self, X: Records, schema: Schema) -> Table:
        """Return rows as a table; numbers without names are in the order of a schema that has numbers only.

        Raises:
            DataFormatError: for rows of other columns.
        """
        if isinstance(X, Table):
            return X
        numbers = all(column.kind in ("numeric", "spline") for column in schema.own_columns)
        if not numbers or is_named(X):
            return Table(X, schema)
        matrix = as_matrix(X)
        check_width(matrix.width, len(schema.own_columns), self.kind)
        return in_order(matrix, schema)

    def visible(self, X: Records, intercept: float = 0.0, *, sparse_rows: bool = False) -> AnyDesign:
        """Return rows that the caller may see, brought to the public bounds as private ones are.

        Args:
            X: Rows.
            intercept: Constant of each row; 0: there is none.
            sparse_rows: Whether sparse rows stay sparse, and rows of a schema are.

        Raises:
            DataFormatError: for rows of other columns.
        """
        if self.schema is not None:
            table = self.table(X, replace(self.schema, target=None, group=None))
            check_schema(table.schema, self.schema)
            return table.features(fit_intercept=intercept > 0, sparse_rows=sparse_rows, max_row_norm=self.max_row_norm)
        self._check_plain(X)
        is_sparse = sparse_rows and sparse.issparse(X)
        design = Design(X, max_row_norm=self.max_row_norm, intercept=intercept, sparse_rows=is_sparse)
        check_width(design.width - (intercept > 0), self.width, self.kind)
        return design

    def scored(self, X: Records, y: Responses) -> Records:
        """Return rows that the caller may see and compare with y, as a table if the fit had a schema.

        Args:
            X: Rows.
            y: Responses. None: the target of the schema.

        Raises:
            DataFormatError: for rows of other columns, or of a table with another schema.
        """
        if self.schema is None:
            self._check_plain(X)
            return X
        table = self.table(X, self.schema)
        check_schema(table.schema, self.schema, target=y is None)
        return table

    def _check_plain(self, X: Records) -> None:
        if isinstance(X, Table):
            raise DataFormatError("the model was fitted on plain rows, not on a table: give rows of the same columns.")
        check_names(column_names(X), self.names)


@dataclass(frozen=True)
class FittedColumns(Columns):
    """The same of a regression, whose delivered rows have a constant for the intercept; 0: there is none."""

    constant: Nonnegative


def bounded(X: Records, low: Any, high: Any, max_row_norm: float | None) -> Any:
    """Return rows with a public bound: a table, or a matrix if max_row_norm bounds it.

    Raises:
        ParameterError: for a matrix without a bound or with two, for low or high that are not ranges, and for a table
            with any of them.
    """
    bounds = {"low": low, "high": high, "max_row_norm": max_row_norm}
    stated = [name for name, value in bounds.items() if value is not None]
    if isinstance(X, Table):
        if stated:
            raise ParameterError(f"{stated[0]} must be None with a table, whose schema declares its columns.")
        return X
    if stated == ["max_row_norm"]:
        return X
    if stated != ["low", "high"]:
        raise unbounded(
            "low and high or max_row_norm",
            " and ".join(stated) or "none",
            "low= and high=, the range of each column that you know without looking at the data, such as "
            "low=[18, 0], high=[90, 500_000] for ages and incomes",
            "a dpvb.Table with a dpvb.Schema, which says the same of named columns, and has categories",
            ONE_UNIT,
            BY_RELEASE,
        )
    matrix, names = as_matrix(X), column_names(X)
    schema = schema_of(names, matrix.width, low, high)
    return Table(X, schema) if names else in_order(matrix, schema)


def is_named(X: Records) -> bool:
    """Whether rows name their columns, or are files that do."""
    if isinstance(X, (Mapping, str, os.PathLike)) or paths_of(X) is not None:
        return True
    return column_names(X) is not None or getattr(getattr(X, "dtype", None), "names", None) is not None


def _in_order_of(names: tuple[str, ...] | None, name: str, given: Any) -> Any:
    """Ends by column name as a list in the order of the columns; anything else as it is.

    Raises:
        ParameterError: unless there is one for each column of X, and X has column names.
    """
    if not isinstance(given, Mapping):
        return given
    if names is None:
        raise ParameterError(f"{name} must be numbers, as X has no column names, got the names {[*given]!r}.")
    if differing := {*given} ^ {*names}:
        wrong = min(differing, key=str)
        fault = "misses" if wrong in names else "has no column of X for"
        raise ParameterError(f"{name} must have one number for each column of X; it {fault} {wrong!r}.")
    return [given[one] for one in names]


def _ends(name: str, given: Any, width: int) -> list[float]:
    """The lower or upper end of each column's range."""
    try:
        ends: list[float] = np.broadcast_to(np.asarray(given, dtype=np.float64), (width,)).tolist()
        return ends
    except (TypeError, ValueError):
        pass
    raise ParameterError(f"{name} must be a number or {width} of them, one for each column of X, got {given!r}.")
