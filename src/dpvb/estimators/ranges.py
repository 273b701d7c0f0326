"""Plain matrices as tables: a public range of each column, and the order of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpvb.data.tables.matrices import RowMatrix
from dpvb.data.tables.ranged import Numeric
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import Table
from dpvb.guards.errors import DataFormatError, ParameterError


def schema_of(names: tuple[str, ...] | None, width: int, low: Any, high: Any) -> Schema:
    """Numbers in ranges.

    Args:
        names: of the columns; None: x0, x1 and so on.
        width: number of columns.
        low, high: ends of the ranges: numbers, one for each column, or by column name.

    Raises:
        ParameterError: unless they are, or for ends that are no range.
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
