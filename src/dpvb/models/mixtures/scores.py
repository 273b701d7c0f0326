"""What a row adds to the scores of the components: r_k clip(a1 z_k, a2 h_k), each component clipped by itself.

For every k the clipped vector has a norm of at most 1, so that ‖(r_k u_k)_k‖² = Σ r_k² ‖u_k‖² ≤ Σ r_k² ≤ 1, for any
number of components. Rows of the component itself are clipped, too; `Clip` has what that takes from their moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Grid, check_shape, upper_norms
from dpvb.core.forms import Rows
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import tuned
from dpvb.models.mixtures.gaussian import Shape

# Draws from which the constants are found, over their entries.
_DRAWS = 2**20
# Most entries of scores that are kept, 64 MiB.
_KEPT = 2**23


@dataclass(frozen=True)
class Clip:
    """How scores are scaled and clipped; public.

    Attributes:
        shape: of the Gaussian columns.
        counts: number of Poisson columns.
        clip: c; a row of its component has the root mean square 1/c before it is clipped to 1.
    """

    shape: Shape
    counts: int
    clip: float

    @property
    def first(self) -> int:
        """Number of entries of z."""
        return self.shape.width + self.counts

    @property
    def size(self) -> int:
        """Number of entries of both."""
        return self.first + self.shape.size

    @property
    def scales(self) -> tuple[float, float]:
        """a1 and a2."""
        share = tuned.FIRST if self.shape.size else 1.0
        second = ((1 - tuned.FIRST) / max(self.shape.size, 1)) ** 0.5
        return (share / max(self.first, 1)) ** 0.5 / self.clip, second / self.clip

    def clipped(self, z_nf: Floats, weight_n: Floats, lacks_nd: Floats) -> Floats:
        """Weighted clipped scores of the rows in one component, (n, size).

        Args:
            z_nf: of the numbers, then of the counts; 0 for a number that is missing.
            weight_n: responsibilities.
            lacks_nd: 1 for a number that is missing, else 0.
        """
        d, (a1, a2) = self.shape.width, self.scales
        u_nu = np.empty((len(z_nf), self.size))
        np.multiply(z_nf, a1, out=u_nu[:, : self.first])
        u_nu[:, self.first :] = self.shape.second(z_nf[:, :d])
        if lacks_nd.any():
            u_nu[:, self.first : self.first + d] *= 1.0 - lacks_nd
        u_nu[:, self.first :] *= a2
        u_nu *= (weight_n / np.maximum(upper_norms(u_nu), 1.0))[:, None]
        return u_nu

    @property
    def constants(self) -> tuple[float, float, float]:
        """Of rows of N(0, I): the mean of the diagonal entries of h after clipping, and what is left of z and h."""
        return _constants(self)[:3]

    @property
    def inefficiency(self) -> float:
        """Variance of a mean of clipped rows, over that of a mean of rows."""
        return _constants(self)[3]


@cache
def _constants(clip: Clip) -> tuple[float, float, float, float]:
    """By draws of a fixed seed; exact where nothing is clipped."""
    d, (a1, a2) = clip.shape.width, clip.scales
    z_nf = np.random.default_rng(0).standard_normal((max(_DRAWS // max(clip.first, 1), 2**14), clip.first))
    square_n = np.square(z_nf).sum(axis=1)
    second_n = np.square(clip.shape.second(z_nf[:, :d])).sum(axis=1)
    lost_n = 1.0 - 1.0 / np.maximum(np.sqrt(a1**2 * square_n + a2**2 * second_n), 1.0)
    offset = -float(np.mean(lost_n * (np.square(z_nf[:, :d]) - 1).sum(axis=1))) / (max(d, 1) * 2**0.5)
    first = 1.0 - float(np.mean(lost_n * square_n)) / max(clip.first, 1)
    squared = 1.0 - float(np.mean((1.0 - (1.0 - lost_n) ** 2) * square_n)) / max(clip.first, 1)
    return offset, first, 1.0 - float(np.mean(lost_n * second_n)) / max(clip.shape.size, 1), squared / first**2


@dataclass(frozen=True)
class Scores:
    """Clipped scores of all rows and components, formed one component at a time.

    Attributes:
        clip: public.
        z_nkf: scores of numbers and counts in the components that are in use.
        r_nk: responsibilities; a faulty row's are NaN.
        lacks_nd: 1 for a number that is missing, else 0.
        used: places of those components in the block.
    """

    clip: Clip
    z_nkf: Floats
    r_nk: Floats
    lacks_nd: Floats
    used: tuple[int, ...]

    def of_block(self, block: Block, num_rows: int) -> Scores:
        """Itself, of the block's components."""
        check_shape((len(self.r_nk), self.clip.size), num_rows, block.shape[-1])
        check_shape(self.z_nkf.shape, num_rows, len(self.used), self.clip.first)
        if max(self.used) >= block.shape[0]:
            raise ValueError("components are places of the block.")
        return self

    def norms(self) -> Floats:
        """Upper bounds on the rows' norms, of the very numbers that are summed."""
        own = [upper_norms(self._of(place)) for place in range(len(self.used))]
        return upper_norms(np.stack(own, axis=1))

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add, component by component."""
        for place, k in enumerate(self.used):
            Rows(self._of(place)).accumulate(weights, grid, out[k])

    @cached_property
    def _kept(self) -> dict[int, Floats]:
        return {}

    def _of(self, place: int) -> Floats:
        """Scores of one component, kept for the second look at them where there are few."""
        if place in self._kept:
            return self._kept[place]
        found = self._formed(place)
        if len(self.used) * found.size <= _KEPT:
            self._kept[place] = found
        return found

    def _formed(self, place: int) -> Floats:
        return self.clip.clipped(self.z_nkf[:, place], self.r_nk[:, place], self.lacks_nd)
