"""Windows of numbers as contributions: a person's mean second moments, which are never kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import grams_numba as kernel
from dpvb.models.sequences.rows import Units, by_unit, each


@dataclass(frozen=True)
class WindowGrams:
    """Statistics s_n = (1/M) Σ y yᵀ over the M windows of a unit; y is W points and a constant.

    Its terms have the norms ‖y‖², so that ‖s_n‖ ≤ max ‖y‖², which a constant sequence attains.

    Attributes:
        indptr: first point of each sequence, and the number of all.
        value_td: the points, (points, D); what is not finite is in no window.
        length: W.
        longest: points of a sequence that count.
        constant: the number behind those of a window.
        starts: whether first windows alone count.
        units: order of the sequences by unit, and the first of each unit, (units + 1,); None: each is a unit.
    """

    indptr: Ints
    value_td: Floats
    length: int
    longest: int
    constant: float
    starts: bool = False
    units: Units | None = None

    def of_block(self, block: Block, num_rows: int) -> WindowGrams:
        """Itself, of the block's windows."""
        width = self.length * self.value_td.shape[1] + 1
        check_shape((len(self.indptr) - 1, width, width), num_rows, *block.shape)
        return self

    def grouped(self, unit_of_row: Ints, num_units: int) -> WindowGrams:
        """The same sequences as those of persons."""
        return replace(self, units=by_unit(unit_of_row, num_units))

    def norms(self) -> Floats:
        """Norms of the very numbers that are added; the factor covers the rounding of squares and their sum."""
        given = self._given
        out_u = np.empty(len(given[3]) - 1)
        kernel.norms(*given, out_u)
        entries = (self.length * self.value_td.shape[1] + 1) ** 2
        return np.asarray(out_u * (1.0 + (entries + 16) * 2.0**-52))

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        kernel.accumulate(*self._given, weights, grid.step, out)

    @property
    def _given(self) -> tuple[Ints, Floats, Ints, Ints, int, int, bool, float]:
        order, first = self.units or each(self.indptr)
        return self.indptr, self.value_td, order, first, self.length, self.longest, self.starts, self.constant
