"""Second moments ⟨(xᵀm)²⟩ of private rows under a public normal distribution, exact like the products in `linear`.

With Σ = AᵀA for a triangular A, xᵀ(Σ + μμᵀ)x = ‖Ax‖² + (μᵀx)²: half the work of a product with Σ. Rows of A and x
are rounded to integers of norm 2²⁶ at most (a little more after rounding), so that all partial sums stay below 2⁵³
and float64 adds them exactly in any order: a row's bits never depend on the rest of its batch. The larger part,
μᵀx, is added up row by row in full precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dlauum, dpotrf, dtrtri

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError
from dpvb.kernels.linear import powers

# Rows multiplied at a time, and entries of the parts in which they are prepared: a part stays in the cache.
_ROWS = 1024
_ENTRIES = 2**16
# Largest norm of a row of A before it is rounded.
_LONGEST = 2.0**26


@dataclass(frozen=True)
class SecondMoment:
    """x ↦ xᵀ(AᵀA + μμᵀ)x, with A rounded once for all rows.

    Attributes:
        root_dd: scaled A, lower triangular, integers in Fortran order.
        mean_d: μ.
        scale: what A was multiplied by, a power of two.

    Raises:
        ParameterError: if entries are no integers or rows are too long, so that products would not be exact.
    """

    root_dd: Floats
    mean_d: Floats
    scale: float

    def __post_init__(self) -> None:
        longest = float(np.einsum("ij,ij->i", self.root_dd, self.root_dd).max(initial=0.0))
        if not (np.rint(self.root_dd) == self.root_dd).all() or not longest <= (_LONGEST + len(self.root_dd)) ** 2:
            raise ParameterError("root_dd must be a matrix of whole numbers, with rows of norm 2^26 at most.")

    @classmethod
    def of(cls, root_dd: Floats, mean_d: Floats) -> SecondMoment:
        """Round a lower triangular A, (d, d), and μ, (d,), both public and finite."""
        scale = float(powers(np.einsum("ij,ij->i", root_dd, root_dd)).min())
        scaled_dd = np.asfortranarray(root_dd) * scale
        return cls(np.rint(scaled_dd, out=scaled_dd), mean_d, scale)

    def __call__(self, x_nd: Floats) -> Floats:
        """Second moments of rows, (n,), to about 2⁻²⁶√d of ‖x‖²‖Σ‖; NaN where a row is not finite."""
        moment_n = np.empty(len(x_nd))
        for start in range(0, len(x_nd), _ROWS):
            with np.errstate(invalid="ignore"):
                moment_n[start : start + _ROWS] = self._of_block(x_nd[start : start + _ROWS])
        return moment_n

    def _of_block(self, x_nd: Floats) -> Floats:
        block_nd = np.empty(x_nd.shape)
        scale_n, mean_n, square_n = np.empty((3, len(x_nd)))
        rows = max(1, _ENTRIES // max(x_nd.shape[1], 1))
        parts = [slice(start, start + rows) for start in range(0, len(x_nd), rows)]
        for part in parts:
            room = block_nd[part]
            scale_n[part] = powers(np.add.reduce(np.square(x_nd[part], out=room), axis=1))
            np.add.reduce(np.multiply(x_nd[part], self.mean_d, out=room), axis=1, out=mean_n[part])
            np.rint(np.multiply(x_nd[part], scale_n[part, None], out=room), out=room)
        # The transposed block lies in Fortran order: BLAS multiplies it in place.
        block_nd = dtrmm(1.0, self.root_dd, block_nd.T, lower=1, overwrite_b=1).T
        for part in parts:
            np.add.reduce(np.square(block_nd[part], out=block_nd[part]), axis=1, out=square_n[part])
        # Powers of two: exact, and one after the other they do not overflow.
        scale_n *= self.scale
        return np.asarray(square_n / scale_n / scale_n + np.square(mean_n))


def inverse_root(matrix_dd: Floats, ridge: float) -> Floats | None:
    """Lower triangular A with AᵀA = (matrix + ridge·I)⁻¹, or None where that is not positive definite."""
    precision_dd = matrix_dd.copy()
    precision_dd.flat[:: len(matrix_dd) + 1] += ridge
    # A symmetric matrix is its own transpose, and the transpose lies in Fortran order.
    factor_dd, failed = dpotrf(precision_dd.T, lower=1, overwrite_a=1)
    if failed:
        return None
    return np.asarray(dtrtri(factor_dd, lower=1, overwrite_c=1)[0])


def squared(root_dd: Floats) -> Floats:
    """AᵀA of a lower triangular A."""
    square_dd = dlauum(root_dd, lower=1)[0]
    square_dd.flat[:: len(square_dd) + 1] *= 0.5
    return np.asarray(square_dd + square_dd.T)


def squared_norm(root_dd: Floats) -> float:
    """‖AᵀA‖² (Frobenius) of a lower triangular A, from one triangle."""
    lower_dd = dlauum(root_dd, lower=1)[0]
    diagonal_d = lower_dd.diagonal()
    return 2.0 * float(np.linalg.norm(lower_dd)) ** 2 - float(diagonal_d @ diagonal_d)
