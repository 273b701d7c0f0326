"""Single-precision gradients, and their squares, as contributions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contribution, Grid, check_shape
from dpvb.core.forms import Rows
from dpvb.guards.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class SingleRows(Rows):
    """Dense float32 rows (n, P): as `Rows`, in compiled loops that read them once a pass.

    Squares of float32 numbers neither overflow nor underflow in float64, so that a sum of P of them errs by
    (P + 2)·2⁻⁵² relatively at most, in any order.

    Attributes:
        values: (n, P).
        faulty_n: rows that count as none, whatever their values; None: no such rows.
    """

    values: NDArray[np.float32]  # type: ignore[assignment]
    symmetric: bool = False
    faulty_n: Bools | None = None

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Itself: its loops read single precision."""
        check_shape(self.values.shape, num_rows, *block.shape)
        return self

    def norms(self) -> Floats:
        """Upper bounds on the rows' norms; NaN or infinity where a row holds one, and the wall drops it."""
        from dpvb.models.gradients import rows_numba

        square_n = np.empty(len(self.values))
        rows_numba.squares(self.values, square_n)
        norm_n = np.sqrt(square_n) * (1.0 + (self.values.shape[1] + 8) * 2.0**-52)
        return norm_n if self.faulty_n is None else np.where(self.faulty_n, np.inf, norm_n)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add; the grid is a power of two, so that dividing by it is exact."""
        from dpvb.models.gradients import rows_numba

        rows_numba.add(self.values, weights / grid.step, out)
