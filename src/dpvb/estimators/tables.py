"""Common parts of models of tables with numbers, counts and categories: mixtures and naive Bayes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpvb.data.tables.mixed import Layout
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import Table
from dpvb.estimators.base import M, PrivateEstimator, Q
from dpvb.guards.errors import DataFormatError, ParameterError
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.mixtures.components import MixedColumns
from dpvb.results.figures import Figure
from dpvb.results.interval_table import IntervalTable, Line, head, reach_of
from dpvb.rows import MixedRows


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class TableModel(PrivateEstimator[M, Q]):
    """Base class of models with components or classes of the rows of a table.

    Args:
        count_columns: Numeric columns from 0 that are counts, as a list of names or a text with commas. Default: none.
        missing_columns: Numeric columns with missing values, in the same form. Default: none.
    """

    count_columns: str | Sequence[str] = ""
    missing_columns: str | Sequence[str] = ""

    _declares: ClassVar[tuple[str, ...]] = ("schema",)
    #: Name of the model and noun of its groups, for messages and tables.
    _called: ClassVar[str]
    _groups_are: ClassVar[str]

    @abstractmethod
    def _estimates(self, *, noise_aware: bool) -> Iterator[tuple[int | str, str, float, float, tuple[float, float]]]:
        """Yield component, name, mean, standard deviation and range of each number of each component."""

    def _no_rows(self, *, schema: Schema | None, vocabulary: Any, width: int | None) -> dict[str, Any]:
        """Return arguments without rows, for a table with a schema."""
        if schema is None:
            raise ParameterError(f"{self._called} needs a schema, what is public about the columns of its table.")
        return {"X": Table({name: np.empty(0) for name in schema.read_columns}, schema)}

    def component_table(self, level: float = 0.95, *, noise_aware: bool = True) -> IntervalTable:
        """Return shares, means, rates and probabilities of all components or classes, each with an interval.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.
        """
        self._check_fitted()
        reach = reach_of(level)
        lines = tuple(
            Line.within(group, name, mean, std, reach, ends)
            for group, name, mean, std, ends in self._estimates(noise_aware=noise_aware)
        )
        names = "class" if self._groups_are == "classes" else "component", "quantity"
        number = len({line.part for line in lines})
        return IntervalTable(lines, head(number, self._groups_are, level, noise_aware), names)

    def _facts_for_report(self, level: float = 0.95, noise_aware: bool = True) -> Iterator[Figure]:
        """Yield the numbers of each component, with their intervals; arguments are those of `component_table`."""
        yield self.component_table(level, noise_aware=noise_aware)

    def _whole_layout(self, schema: Schema) -> Layout:
        """Return how all columns of a schema are modelled."""
        return Layout.of(
            schema, names_of("count_columns", self.count_columns), names_of("missing_columns", self.missing_columns)
        )


def names_of(parameter: str, names: Any) -> tuple[str, ...]:
    """Return names of columns from a list of texts, or from one text with commas.

    Raises:
        ParameterError: If `names` is anything else.
    """
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise ParameterError(f"{parameter} must be names of columns, as a list or with commas between, got {names!r}.")


def public_schema(layout: Layout) -> str:
    """Return the public facts about a schema, for the privacy statement."""
    parts = {"numbers": layout.numbers, "counts": layout.counts, "categorical columns": layout.choices}
    return ", ".join(f"{len(part)} {name}" for name, part in parts.items() if part) + ", their ranges and categories"


def columns_of(layout: Layout, *options: Any) -> MixedColumns:
    """Return the columns of a layout as a model has them; `options` are the last fields of `MixedColumns`."""
    return MixedColumns(len(layout.numbers), layout.gap_places, layout.max_counts, layout.sizes, *options)


def clean_rows(table: Table, layout: Layout) -> MixedRows:
    """Return all rows of a table that the caller owns, as a model reads them."""
    return MixedRows.joined([chunk.rows for chunk in table.mixed(layout, group=None).chunks()] or [layout.none])


def sound_rows(table: Table, layout: Layout) -> MixedRows:
    """Return the rows of `clean_rows`.

    Raises:
        DataFormatError: If rows are invalid under the schema.
    """
    rows = clean_rows(table, layout)
    if np.isnan(rows.sound_n).any():
        raise DataFormatError("X has rows that their schema calls faulty, for which nothing can be inferred.")
    return rows
