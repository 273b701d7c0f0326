"""Columns two at a time: tables of all pairs, released once where a share of the budget pays for a check of the rows.

A row has one cell in the table of each of the J(J - 1)/2 pairs of its columns. So its norm is the root of that number,
whatever the row holds. Numbers go to equal bins of their public ranges, what is missing to a bin of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dpvb.core.forms import SparseRows
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.components import MixedColumns
from dpvb.rows import MixedRows


@dataclass(frozen=True)
class Pairs:
    """The tables; public."""

    columns: MixedColumns

    @property
    def sizes(self) -> tuple[int, ...]:
        """Places of each column: numbers, counts, then categories; a gap is a place of its number."""
        columns, gaps = self.columns, self.columns.gaps
        numbers = (tuned.PAIR_BINS + (place in gaps) for place in range(columns.numbers))
        counts = (int(min(most + 1, tuned.PAIR_BINS)) for most in columns.max_counts)
        return (*numbers, *counts, *columns.sizes[: len(columns.sizes) - len(gaps)])

    @property
    def places(self) -> list[tuple[int, int]]:
        """The pairs, (i, j) with i < j."""
        return [*combinations(range(len(self.sizes)), 2)]

    @cached_property
    def tables(self) -> list[slice]:
        """Where the cells of each pair lie."""
        return categorical.starts([self.sizes[i] * self.sizes[j] for i, j in self.places])

    @property
    def bound(self) -> float:
        """Norm of a row."""
        return math.sqrt(len(self.places))

    @property
    def length(self) -> int:
        """Number of all cells."""
        return self.tables[-1].stop if self.tables else 0

    def codes(self, rows: MixedRows) -> Ints:
        """Place of each row in each column, (n, J)."""
        columns, code_nj = self.columns, np.zeros((len(rows.sound_n), len(self.sizes)), dtype=np.int64)
        for place in range(columns.numbers):
            unit_n = (np.clip(rows.x_nd[:, place], -1, 1) + 1) / 2
            bin_n = np.minimum(np.nan_to_num(unit_n) * tuned.PAIR_BINS, tuned.PAIR_BINS - 1).astype(np.int64)
            code_nj[:, place] = np.where(np.isnan(unit_n) & (place in columns.gaps), tuned.PAIR_BINS, bin_n)
        for place, most in enumerate(columns.max_counts, start=columns.numbers):
            count_n = np.clip(np.nan_to_num(rows.count_np[:, place - columns.numbers]), 0, most)
            code_nj[:, place] = np.floor(count_n * self.sizes[place] / (most + 1))
        first = columns.numbers + len(columns.max_counts)
        code_nj[:, first:] = rows.code_nj[:, : len(self.sizes) - first]
        return code_nj

    def cells(self, rows: MixedRows) -> SparseRows:
        """One cell a pair; a faulty row's are NaN."""
        code_nj = self.codes(rows)
        place_np = np.empty((len(code_nj), len(self.places)), dtype=np.int64)
        for p, (i, j) in enumerate(self.places):
            place_np[:, p] = self.tables[p].start + code_nj[:, i] * self.sizes[j] + code_nj[:, j]
        starts = np.arange(len(place_np) + 1, dtype=np.int64) * place_np.shape[1]
        return SparseRows(starts, place_np.ravel(), np.repeat(rows.sound_n, place_np.shape[1]))

    def counted(self, rows: MixedRows) -> Floats:
        """How many of public rows are in each cell."""
        return np.bincount(self.cells(rows).indices, minlength=self.length).astype(np.float64)

    def margin(self, cell_c: Floats, column: int) -> tuple[Floats, float]:
        """Sums of a column's places over all its tables, by their precisions, and their noise over that of a cell."""
        total_v, precision = np.zeros(self.sizes[column]), 0.0
        for (i, j), cells in zip(self.places, self.tables, strict=True):
            if column in (i, j):
                table = cell_c[cells].reshape(self.sizes[i], self.sizes[j])
                other = self.sizes[j] if column == i else self.sizes[i]
                total_v += table.sum(axis=1 if column == i else 0) / other
                precision += 1 / other
        return total_v / precision, precision**-0.5
