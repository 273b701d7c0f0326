"""Windows of symbols as contributions: a person's counts of windows, which are never built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape
from dpvb.guards.arrays import Floats, Ints
from dpvb.kernels import windows as kernel
from dpvb.models.sequences.rows import Units, by_unit, each


class SequenceRows(Protocol):
    """Sequences of symbols, a row each."""

    @property
    def indptr(self) -> Ints:
        """First symbol of each sequence, and the number of all, (n + 1,)."""

    @property
    def code(self) -> NDArray[Any]:
        """Places of the symbols, negative for a gap, (symbols,)."""


class Coded(NamedTuple):
    """Sequences of symbols that stand for something else."""

    indptr: Ints
    code: NDArray[Any]


@dataclass(frozen=True)
class WindowCounts:
    """Statistics s_n = M^(power-1) · counts of the windows of k symbols, M their number in all sequences of a unit.

    The norm of a unit's counts is at most their sum M, which a constant sequence attains; so ‖s_n‖ ≤ M^power.

    Attributes:
        rows: sequences.
        k: symbols of a window; the block has so many axes.
        width: V, the number of symbols.
        longest: symbols of a sequence that count.
        power: weight of persons with many windows, in [0, 1].
        units: order of the sequences by unit, and the first of each unit, (units + 1,); None: each is a unit.
    """

    rows: SequenceRows
    k: int
    width: int
    longest: int
    power: float
    units: Units | None = None

    def of_block(self, block: Block, num_rows: int) -> WindowCounts:
        """Itself, of the block's windows."""
        check_shape((len(self.rows.indptr) - 1, *(self.width,) * self.k), num_rows, *block.shape)
        return self

    def grouped(self, unit_of_row: Ints, num_units: int) -> WindowCounts:
        """The same sequences as those of persons."""
        return replace(self, units=by_unit(unit_of_row, num_units))

    def nonnegative(self) -> WindowCounts:
        """Itself: counts are nonnegative."""
        return self

    def norms(self) -> Floats:
        """Norms from exact integers; the factor covers the rounding of a power, a root and a product."""
        order, first = self._units
        out = np.empty(len(first) - 1)
        rows = self.rows
        kernel.norms(rows.indptr, rows.code, order, first, self.k, self.width, self.longest, self.power, out)
        return out * (1.0 + 2.0**-45)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate what one window adds, and add it as often as the window occurs."""
        order, first = self._units
        kernel.accumulate(
            self.rows.indptr,
            self.rows.code,
            order,
            first,
            self.k,
            self.width,
            self.longest,
            self.power,
            weights,
            grid.step,
            out.reshape(-1),
        )

    @property
    def _units(self) -> Units:
        return self.units or each(self.rows.indptr)
