"""What a row adds to the scores of the components: r_k clip(a1 z_k, a2 h_k), each component clipped by itself.

For every k the clipped vector has a norm of at most 1, so that ‖(r_k u_k)_k‖² = Σ r_k² ‖u_k‖² ≤ Σ r_k² ≤ 1, for any
number of components. Rows of the component itself are clipped, too; `Clip` has what that takes from their moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape, floats
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import gaussian
from dpvb.models.mixtures.components import Clip, Components
from dpvb.rows import MixedRows

# Room in a norm for the rounding of its squares, and of the entries that are summed.
_ROOM = 1.0 + 2.0**-40


@dataclass(frozen=True)
class Coordinates:
    """Rows in the own coordinates of some components, which are formed anew wherever they are needed.

    Attributes:
        clip: public.
        x_nd, count_np: numbers and counts.
        mean_kd, inverse_kdd, rate_kp: of the components; L⁻¹ in the place of V = L Lᵀ.
        square_kn: Σ z² over the numbers.
        length_kn: squared norms of (a1 z, a2 h).
    """

    clip: Clip
    x_nd: Floats
    count_np: Floats
    mean_kd: Floats
    inverse_kdd: Floats
    rate_kp: Floats
    square_kn: Floats
    length_kn: Floats

    @classmethod
    def of(cls, clip: Clip, now: Components, rows: MixedRows) -> Coordinates:
        """Those of rows in the components in use."""
        from dpvb.models.mixtures import scores_numba

        used = list(now.used)
        inverse_kdd = gaussian.inverse(now.root_kdd[used])
        rows_and_components = (
            floats(rows.x_nd),
            floats(rows.count_np),
            floats(now.mean_kd[used]),
            inverse_kdd,
            floats(now.rate_kp[used]),
        )
        square_kn, length_kn = np.empty((2, len(used), len(rows.sound_n)))
        scores_numba.lengths(*rows_and_components, clip.shape.alone, *clip.scales, square_kn, length_kn)
        return cls(clip, *rows_and_components, square_kn, length_kn)


@dataclass(frozen=True)
class ComponentScores:
    """Clipped scores of all rows and components, formed some rows at a time.

    Attributes:
        at: the rows in own coordinates.
        r_kn: responsibilities; a faulty row's are NaN.
        used: places of the components in the block.
    """

    at: Coordinates
    r_kn: Floats
    used: tuple[int, ...]

    def of_block(self, block: Block, num_rows: int) -> ComponentScores:
        """Itself, of the block's components."""
        check_shape((self.r_kn.shape[1], self.at.clip.size), num_rows, block.shape[-1])
        check_shape(self.at.length_kn.T.shape, num_rows, len(self.used))
        if max(self.used) >= block.shape[0]:
            raise ValueError("components are places of the block.")
        return self

    @cached_property
    def _clipped(self) -> tuple[Floats, Floats]:
        """What the scores of each row and component are multiplied by, and upper bounds on norms after that."""
        with np.errstate(all="ignore"):
            norm_kn = np.sqrt(self.at.length_kn)
            norm_kn *= _ROOM
            factor_kn = np.maximum(norm_kn, 1.0)
            np.divide(self.r_kn, factor_kn, out=factor_kn)
            norm_kn *= factor_kn
            return factor_kn, norm_kn

    def norms(self) -> Floats:
        """Upper bounds on the rows' norms; squares are added in the components' order, whatever else is there."""
        square_n = np.zeros(self.r_kn.shape[1])
        with np.errstate(all="ignore"):
            for norm_n in self._clipped[1]:
                square_n += norm_n * norm_n
            # The addend covers squares that underflow.
            return np.asarray(np.sqrt(square_n) * _ROOM + len(self.used) * 2.0**-530)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        from dpvb.models.mixtures import scores_numba

        at = self.at
        rows: Any = slice(None) if weights.all() else np.flatnonzero(weights)
        factor_kn = self._clipped[0][:, rows] * (weights[rows] * (1.0 / grid.step))
        scores_numba.add(
            at.x_nd[rows],
            at.count_np[rows],
            at.mean_kd,
            at.inverse_kdd,
            at.rate_kp,
            np.stack(at.clip.shape.pairs, axis=1),
            factor_kn,
            *at.clip.scales,
            # No entry is larger than the bound: so many stay below 2⁵³ together.
            max(1, int(2.0**52 * grid.step / grid.bound)),
            np.array(self.used),
            out,
        )
