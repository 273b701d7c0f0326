"""What a hidden state shows: symbols, bits, counts or numbers, each with its conjugate posterior; all of it is public.

A family answers two questions of distinct values x_r, and neither knows of time: how likely each is under every state,
and what the posterior is once state k has shown value r so many times. A value that is missing says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Bools, Floats, Ints

Values = NDArray[np.float64] | NDArray[np.int64]


class Shown(NamedTuple):
    """What positions show to an E-step.

    Attributes:
        likelihood_rk, row_t: likelihoods under every state, up to a factor of each row, and each position's row.
        place_tf, value_tf: places (V) of what is counted, negative where nothing is, and nonnegative values there.
    """

    likelihood_rk: Floats
    row_t: Ints
    place_tf: Ints
    value_tf: Floats


class Emissions(Protocol):
    """A family of laws of what a state shows."""

    @property
    def n_states(self) -> int:
        """K."""

    def log_likelihood(self, value_r: Values, *, expected: bool) -> Floats:
        """Logarithm of what a state shows each value with, (R, K), in nats, each value by itself.

        Args:
            value_r: values, (R,) of symbols or (R, D).
            expected: whether it is the expected logarithm under the posterior, or that at its means.
        """

    def updated(self, value_r: Values, weight_rk: Floats) -> Self:
        """The posterior after state k has shown value r `weight_rk` times."""

    def permuted(self, order_k: Ints) -> Self:
        """The states in another order, or some of them."""


def seen(value_r: Values) -> tuple[Floats, Bools]:
    """Values with 0 where they are missing, (R, D), and where they are not."""
    x_rd = np.asarray(value_r, dtype=np.float64).reshape(len(value_r), math.prod(value_r.shape[1:]))
    seen_rd = ~np.isnan(x_rd)
    return np.where(seen_rd, x_rd, 0.0), seen_rd


def added(terms: Iterable[Floats]) -> Floats:
    """The sum of terms, one after another, so that a value's bits are its own."""
    return np.asarray(reduce(np.add, terms))
