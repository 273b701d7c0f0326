"""Modes of the motion of a linear dynamical system: what each step multiplies them by, and how they turn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from dpvb.guards.arrays import Floats


def modes(step_kk: Floats) -> NDArray[Any]:
    """Eigenvalues of A, (K,), the largest first, of each pair that with the positive angle."""
    value_k = np.linalg.eigvals(step_kk).astype(np.complex128)
    return value_k[np.lexsort((-value_k.imag, -np.abs(value_k).round(12)))]


def of_draws(step_skk: Floats, mode_k: NDArray[Any]) -> NDArray[Any]:
    """Eigenvalues of many matrices, (S, K), each beside the mode that it is nearest to, all of a matrix together."""
    value_sk = np.linalg.eigvals(step_skk).astype(np.complex128)
    for value_k in value_sk:
        value_k[:] = value_k[linear_sum_assignment(np.abs(mode_k[:, None] - value_k))[1]]
    return value_sk
