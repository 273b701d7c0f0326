"""What is likely of a linear dynamical system beforehand; all of it is public.

Numbers are in units of the deviations of columns and states, in which all of them are near 1. The columns of C have the
precisions γ_k, q(γ_k) Gamma (MacKay 1994): a state that nothing shows is drawn to nothing. States hardly grow over the
longest sequence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import system_vector
from dpvb.models.sequences.gram_weights import Shape

# Std of every number; mean and std of log R.
_WIDE, _NOISE, _NOISE_WIDE = 1.0, -2.0, 1.5
# Precision with which log n_b is near what was released, where nothing else says it.
_NUMBER = 1e-2
# Gamma prior of γ_k, worth so many columns; γ_k is at least so much.
_SHAPE, _LEAST_GAMMA = 0.5, 0.5
# A turn of the states is held with so much of all precision.
_HELD = 1e3


class Prior(NamedTuple):
    """Means and precisions of the numbers of a system, and of log n_b behind them."""

    mean_p: Floats
    precision_p: Floats

    @classmethod
    def of(cls, x_p: Floats, shape: Shape) -> Prior:
        """Wide laws; those of the numbers of windows are around the start."""
        mean_p, precision_p = x_p.copy(), np.full(len(x_p), _NUMBER)
        for name, own in shape.parts.items():
            precision_p[own] = (_NOISE_WIDE if name == "noise_d" else _WIDE) ** -2
            mean_p[own] = _NOISE if name == "noise_d" else 0.0
            if name == "start_kk":
                mean_p[own] = np.eye(shape.k)[np.tril_indices(shape.k)]
        return cls(mean_p, precision_p)

    def sees(self, x_p: Floats, inverse_pp: Floats, shape: Shape) -> None:
        """Set γ_k to its mean, given the law of C."""
        shown = shape.parts["shown_dk"]
        square_k = (x_p[shown] ** 2 + np.diagonal(inverse_pp)[shown]).reshape(shape.d, shape.k).sum(axis=0)
        gamma_k = np.maximum((shape.d + 2 * _SHAPE) / (square_k + 2 * _SHAPE), _LEAST_GAMMA)
        self.precision_p[shown] = np.tile(gamma_k, shape.d)


def turns(x_p: Floats, shape: Shape, precision_pp: Floats) -> Floats:
    """Precision that holds turns of the states, of which moments tell nothing."""
    way_tp = system_vector.turns(x_p[: shape.size], shape.k, shape.d, starts=shape.starts)
    held_pp = np.zeros_like(precision_pp)
    held_pp[: way_tp.shape[1], : way_tp.shape[1]] = way_tp.T @ way_tp
    return _HELD * float(np.trace(precision_pp)) / len(precision_pp) * held_pp


def growth(x_p: Floats, shape: Shape) -> tuple[float, Floats]:
    """By how much the largest mode grows over L steps, beside 1, and its derivatives: states that grow are rare."""
    own, slope_p = shape.parts["step_kk"], np.zeros(len(x_p))
    step_kk = x_p[own].reshape(shape.k, shape.k)
    if not np.isfinite(step_kk).all():
        return math.inf, slope_p
    value_k, vector_kk = np.linalg.eig(step_kk)
    most = int(np.abs(value_k).argmax())
    size = float(np.abs(value_k[most]))
    if not size > 1.0:
        return 0.0, slope_p
    left_k = np.linalg.pinv(vector_kk)[most]
    slope_p[own] = shape.longest * np.real(np.outer(left_k, vector_kk[:, most]) * value_k[most].conj() / size).ravel()
    return shape.longest * (size - 1.0), slope_p
