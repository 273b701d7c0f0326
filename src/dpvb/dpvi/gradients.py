"""Gradients of all rows of a batch, compiled once, each row's bits independent of the batch it sits in.

`jax.vmap` computes rows together, and compilers may treat a row by its place: the last few of a vectorised loop, or
the edge of a matrix product. So rows go in batches of one fixed shape, and before any data are seen the compiled
program is tried: the same row at every place, and mixed with others, at several θ. The program has no branch on data
(vmap turns them into selections), so that a place that rounds otherwise shows on ordinary numbers. If one does, rows
are computed one after the other by one loop body, which cannot know a row's place; that is slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.dpvi.extra import optional

Singles = NDArray[np.float32]
# Numbers of a batch's gradients, which stay in the cache, and rows of a batch at most and at least.
_NUMBERS, _MOST, _LEAST = 2**18, 1024, 32
# Kinds of rows that are tried at all places, and mixtures of them.
_SCALES = (0.0, 1.0, 1e-3, 1e3, 1e-30)
_MIXTURES = 4


class Gradients:
    """∇_θ of a function of θ (P,) and a row (width,), for all rows (n, width) -> (n, P); float32, on the CPU.

    A row that holds NaN or infinity has a gradient of NaN, whatever the function makes of it.

    Args:
        function: (θ, row) -> scalar in JAX; pure.
        num_parameters, width: P and the length of a row; public.
        row_by_row: True computes one row after the other without trying the faster way; None tries.
    """

    def __init__(
        self, function: Callable[..., Any], num_parameters: int, width: int, *, row_by_row: bool | None = None
    ) -> None:
        jax = optional("jax")
        jnp = jax.numpy
        gradient = jax.grad(function)

        def of_row(theta_p: Any, row: Any) -> Any:
            return jnp.where(jnp.isfinite(row).all(), gradient(theta_p, row), jnp.nan).astype(jnp.float32)

        self._device = jax.devices("cpu")[0]
        self._default_device = jax.default_device
        self._shape = (_batch_size(num_parameters), width)
        self._num_parameters = num_parameters
        self._compiled = jax.jit(jax.vmap(of_row, in_axes=(None, 0)))
        self.row_by_row = not self._is_even() if row_by_row is None else row_by_row
        if self.row_by_row:
            self._compiled = jax.jit(lambda theta_p, rows: jax.lax.map(lambda row: of_row(theta_p, row), rows))

    def __call__(self, theta_p: NDArray[Any], rows: NDArray[Any]) -> Singles:
        """Gradients at θ of rows, (n, width)."""
        size = self._shape[0]
        out = np.empty((len(rows), self._num_parameters), dtype=np.float32)
        with np.errstate(over="ignore"), self._default_device(self._device):
            theta = np.asarray(theta_p, dtype=np.float32)
            for start in range(0, len(rows), size):
                part = np.asarray(rows[start : start + size], dtype=np.float32)
                if len(part) < size:
                    padded = np.zeros(self._shape, dtype=np.float32)
                    padded[: len(part)] = part
                    part = padded
                own = out[start : start + size]
                own[...] = np.asarray(self._compiled(theta, part))[: len(own)]
        return out

    def _is_even(self) -> bool:
        """Whether all places of a batch give the same bits for the same row, on public rows."""
        draw = np.random.default_rng(0)
        size, width = self._shape
        kinds = [scale * draw.standard_normal((2, width)) for scale in _SCALES]
        rows = np.vstack(
            [*kinds, draw.integers(0, 2, (2, width)), draw.integers(0, 9, (1, width)), np.ones((1, width))]
        )
        for theta_p in (np.zeros(self._num_parameters), draw.standard_normal(self._num_parameters)):
            alone = []
            for row in rows:
                bits = self(theta_p, np.tile(row, (size, 1))).view(np.int32)
                if (bits != bits[0]).any():
                    return False
                alone.append(bits[0])
            for _ in range(_MIXTURES):
                kind = draw.integers(0, len(rows), size)
                if (self(theta_p, rows[kind]).view(np.int32) != np.asarray(alone)[kind]).any():
                    return False
        return True


def _batch_size(num_parameters: int) -> int:
    """A power of two."""
    size = _MOST
    while size > _LEAST and size * num_parameters > _NUMBERS:
        size //= 2
    return size
