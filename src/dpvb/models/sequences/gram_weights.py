"""Noisy second moments of windows beside those that a linear dynamical system expects; all of it is public.

In the eigenbasis of a window's covariance, after which the mean is zero, entries of moments vary independently: by the
sampling of n people with the variance 2 n λ_e λ_f, and by noise. A system is followed up to a part δ of its moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import system_vector
from dpvb.models.sequences.gram_moments import law_of_windows
from dpvb.models.sequences.gram_slopes import slopes
from dpvb.models.sequences.kalman import LinearSystem

# What no system follows, as a part of a moment: entries that are known better do not outweigh the others.
_MISFIT = 0.05
# The number of windows is known to so much of itself.
_KNOWN = 1e-4


@dataclass(frozen=True)
class Moments:
    """Released moments in the model's units.

    Attributes:
        first: whose law a window's first state has, "pooled" or "start".
        gram: Σ y yᵀ as it came, (E + 1, E + 1).
        std: noise std of its diagonal.
        taken: what the clip adds to one person's moments on average, of the same shape, mostly negative.
    """

    first: str
    gram: Floats
    std: float
    taken: Floats | float = 0.0


class Shape(NamedTuple):
    """Sizes of a system and of windows.

    Attributes:
        k, d, window, longest: K, D, W and L.
        starts: whether first windows have a law of their own.
        unit_e: what one is of every number of y, (E + 1,), in units of (x - m)/s.
    """

    k: int
    d: int
    window: int
    longest: int
    starts: bool
    unit_e: Floats

    @property
    def size(self) -> int:
        """P, numbers of a system."""
        return system_vector.length(self.k, self.d, starts=self.starts)

    @property
    def parts(self) -> dict[str, slice]:
        """Places of a system's parts in its vector."""
        return dict(system_vector.parts(self.k, self.d, starts=self.starts))

    def system(self, vector_p: Floats) -> LinearSystem:
        """The system of a vector, which may have more behind it."""
        return system_vector.unpacked(vector_p[: self.size], self.k, self.d, starts=self.starts)


class Weights(NamedTuple):
    """Where entries of a moment matrix are independent, and their deviations there.

    Attributes:
        basis_ee: columns are the eigenvectors of the law of windows, after which their mean is zero.
        weight_ee: one over the deviation of each entry.
    """

    basis_ee: Floats
    weight_ee: Floats

    @classmethod
    def at(cls, block: Moments, x_p: Floats, b: int, shape: Shape) -> Weights:
        """Those of block b at a system."""
        mean_f, cov_ff = law(block, x_p, shape)
        number = math.exp(log_number(x_p, b, shape))
        value_e, vector_ee = np.ones(len(mean_f) + 1), np.eye(len(mean_f) + 1)
        value_e[:-1], vector_ee[:-1, :-1] = np.linalg.eigh(cov_ff)
        value_e[-1] = shape.unit_e[-1] ** -2
        apart_ee = np.outer(np.maximum(value_e, 0.0), np.maximum(value_e, 0.0))
        square_ee = (2 * number + (_MISFIT * number) ** 2) * apart_ee
        square_ee[-1, -1] = (_KNOWN * number * value_e[-1]) ** 2
        centred_ee = np.eye(len(value_e))
        centred_ee[-1, :-1] = -mean_f * shape.unit_e[-1]
        return cls(centred_ee @ vector_ee, 1.0 / np.sqrt(square_ee + block.std**2 + 1e-300))

    def of(self, gram: Floats) -> Floats:
        """A matrix, or several, in the basis and over the deviations."""
        return np.asarray(self.basis_ee.T @ gram @ self.basis_ee * self.weight_ee)


def linear(block: Moments, own: Weights, x_p: Floats, b: int, shape: Shape) -> tuple[Floats, Floats]:
    """Derivatives of a block's expected moments by all numbers, and what is left of the moments, both weighted."""
    size, unit_f = len(x_p), shape.unit_e[:-1]
    vector_p, number = x_p[: shape.size], math.exp(log_number(x_p, b, shape))
    found = slopes(vector_p, shape.k, shape.d, shape.window, starts=shape.starts, first=block.first)
    mean_f, mean_pf, e = found.mean_f / unit_f, found.mean_pf / unit_f, len(unit_f) + 1
    moved_pee = np.zeros((size, e, e))
    own_pee = moved_pee[: len(vector_p)]
    turned_pff = mean_pf[:, :, None] * mean_f
    own_pee[:, :-1, :-1] = found.cov_pff / np.outer(unit_f, unit_f) + turned_pff + turned_pff.swapaxes(1, 2)
    own_pee[:, :-1, -1] = own_pee[:, -1, :-1] = mean_pf / shape.unit_e[-1]
    expected_ee = expected(mean_f, found.cov_ff / np.outer(unit_f, unit_f), shape)
    moved_pee[shape.size + b] = expected_ee + block.taken
    return own.of(number * moved_pee), own.of(block.gram - number * (expected_ee + block.taken))


def ways(block: Moments, x_p: Floats, shape: Shape) -> Floats:
    """How windows with the constant behind them move with every number: each by such a matrix times it."""
    found = slopes(x_p[: shape.size], shape.k, shape.d, shape.window, starts=shape.starts, first=block.first)
    unit_f, way_pee = shape.unit_e[:-1], np.zeros((len(x_p), len(shape.unit_e), len(shape.unit_e)))
    root_ff = np.linalg.cholesky(found.cov_ff)
    back_ff = np.linalg.inv(root_ff)
    half_pff = np.tril(back_ff @ found.cov_pff @ back_ff.T)
    at = np.arange(len(unit_f))
    half_pff[:, at, at] /= 2
    moved_pff = root_ff @ half_pff @ back_ff
    way_pee[: shape.size, :-1, :-1] = moved_pff * (unit_f / unit_f[:, None])
    way_pee[: shape.size, :-1, -1] = (found.mean_pf - moved_pff @ found.mean_f) / unit_f * shape.unit_e[-1]
    return way_pee


def expected(mean_f: Floats, cov_ff: Floats, shape: Shape) -> Floats:
    """Second moments of one window, with the constant behind it."""
    y_e = np.append(mean_f, 1.0 / shape.unit_e[-1])
    found_ee = np.outer(y_e, y_e)
    found_ee[:-1, :-1] += cov_ff
    return found_ee


def law(block: Moments, x_p: Floats, shape: Shape) -> tuple[Floats, Floats]:
    """Mean and covariance of a window in the model's units."""
    system = shape.system(x_p)
    first = getattr(system, f"{block.first}_k"), getattr(system, f"{block.first}_kk")
    mean_f, cov_ff = law_of_windows(system, *first, shape.window)[2:]
    unit_f = shape.unit_e[:-1]
    return mean_f / unit_f, cov_ff / np.outer(unit_f, unit_f)


def log_number(x_p: Floats, b: int, shape: Shape) -> float:
    """Log n_b."""
    return float(x_p[shape.size + b])
