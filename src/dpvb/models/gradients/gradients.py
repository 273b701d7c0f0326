"""Gradients of all rows of a batch, compiled once, each row's bits independent of the batch it sits in.

`jax.vmap` computes rows together, and a compiler may treat a row by its place in the batch: the last few rows of a
vectorised loop, or the edge of a matrix product. So rows go in batches of one fixed shape, and before any data are seen
the compiled program is tried: with the same row at every place, and with mixtures of rows, at several θ. The program
has no branch on data (vmap turns them into selections), so that a place with other roundings shows on ordinary numbers.
If there is such a place, rows are computed one after the other by one loop body, which cannot know a row's place; that
is slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contribution, Grid, check_shape
from dpvb.core.forms import Rows
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.models.gradients import tuned
from dpvb.models.gradients.density import optional

Singles = NDArray[np.float32]
# Sizes of the rows that are tried at all places, and number of mixtures of them.
_SCALES = (0.0, 1.0, 1e-3, 1e3, 1e-30)
_MIXTURES = 4


class Gradients:
    """∇_θ of a function of θ (P,) and a row's parts, for all rows -> (n, P); float32, on the CPU.

    Args:
        function: (θ, *parts) -> scalar in JAX; pure.
        num_parameters, shapes: P and the shape of each part of a row; public.
        row_by_row: True computes one row after the other without trying the faster way; None tries.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        num_parameters: int,
        shapes: Sequence[tuple[int, ...]],
        *,
        row_by_row: bool | None = None,
    ) -> None:
        jax = optional("jax")
        self._device = jax.devices("cpu")[0]
        self._default_device = jax.default_device
        self._batch_size, self._num_parameters, self._shapes = _batch_size(num_parameters), num_parameters, shapes
        gradient = jax.grad(function)
        self._compiled = jax.jit(jax.vmap(gradient, in_axes=(None, *(0 for _ in shapes))))
        self.row_by_row = not self._is_even() if row_by_row is None else row_by_row
        if self.row_by_row:
            self._compiled = jax.jit(lambda theta_p, *rows: jax.lax.map(lambda row: gradient(theta_p, *row), rows))

    @property
    def batch_size(self) -> int:
        """Number of rows that are computed together; public. Other numbers of rows are padded to a multiple of it."""
        return self._batch_size

    def __call__(self, theta_p: NDArray[Any], rows: Sequence[NDArray[Any]]) -> Singles:
        """Gradients at θ of rows: each of their parts with n first."""
        size = self._batch_size
        with np.errstate(over="ignore"), self._default_device(self._device):
            theta = np.asarray(theta_p, dtype=np.float32)
            singles = [np.asarray(part, dtype=np.float32) for part in rows]
            batches = [
                self._batch(theta, [part[start : start + size] for part in singles])
                for start in range(0, len(singles[0]), size)
            ]
        if len(batches) == 1:
            return batches[0]
        return np.concatenate([np.empty((0, self._num_parameters), dtype=np.float32), *batches])

    def _batch(self, theta: Singles, rows: Sequence[Singles]) -> Singles:
        number = len(rows[0])
        if number < self._batch_size:
            rows = [self._padded(part) for part in rows]
        return np.asarray(self._compiled(theta, *rows), dtype=np.float32)[:number]

    def _padded(self, part: Singles) -> Singles:
        padded = np.zeros((self._batch_size, *part.shape[1:]), dtype=np.float32)
        padded[: len(part)] = part
        return padded

    def _is_even(self) -> bool:
        """Whether all places of a batch give the same bits for the same row, on public rows."""
        draw = np.random.default_rng(0)
        size, width = self._batch_size, sum(math.prod(shape) for shape in self._shapes)
        kinds = [scale * draw.standard_normal((2, width)) for scale in _SCALES]
        rows = np.vstack(
            [*kinds, draw.integers(0, 2, (2, width)), draw.integers(0, 9, (1, width)), np.ones((1, width))]
        )
        for theta_p in (np.zeros(self._num_parameters), draw.standard_normal(self._num_parameters)):
            alone = []
            for row in rows:
                bits = self(theta_p, _split(np.tile(row, (size, 1)), self._shapes)).view(np.int32)
                if (bits != bits[0]).any():
                    return False
                alone.append(bits[0])
            for _ in range(_MIXTURES):
                kind = draw.integers(0, len(rows), size)
                mixed = self(theta_p, _split(rows[kind], self._shapes))
                if (mixed.view(np.int32) != np.asarray(alone)[kind]).any():
                    return False
        return True


def _split(matrix: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> tuple[NDArray[Any], ...]:
    """Columns of rows (n, width) as parts of these shapes, with n first."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    columns = np.split(matrix, ends[:-1], axis=1)
    return tuple(part.reshape(len(matrix), *shape) for part, shape in zip(columns, shapes, strict=True))


def _batch_size(num_parameters: int) -> int:
    """Rows of a batch, a power of two."""
    size = tuned.MOST_ROWS
    while size > tuned.LEAST_ROWS and size * num_parameters > tuned.BATCH_NUMBERS:
        size //= 2
    return size


# Single-precision gradients, and their squares, as contributions.


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
