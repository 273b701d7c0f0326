"""What an E-step of a regression gets: clean private rows, dense or sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats

Derived = TypeVar("Derived")


class Responses(Protocol):
    """What rows answer, and what stands beside; `trials_n` is 1 unless the likelihood is binomial."""

    @property
    def y_n(self) -> Floats:
        """Responses, (n,)."""

    @property
    def trials_n(self) -> Floats:
        """Numbers of trials, (n,)."""

    @property
    def offset_n(self) -> Floats | None:
        """What is added to ψ, (n,); None: nothing."""

    @property
    def weight_n(self) -> Floats | None:
        """How many rows each row counts as, (n,); None: one."""


class RegressionBatch(Responses, Protocol):
    """Clean private rows; a faulty row is NaN throughout.

    Features have norm at most 1, the intercept's constant in column 0 included where there is one.
    """

    @property
    def x_nd(self) -> Floats:
        """Features, (n, d)."""

    def derived(self, function: Callable[[Floats, Floats], Derived], matrix: Floats) -> Derived:
        """Return function(x, matrix), which may be kept for the next pass."""


class SparseRegressionBatch(Responses, Protocol):
    """Clean private rows as compressed sparse rows; a faulty row has no entries, and its y is NaN."""

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Row n holds entries indptr[n] to indptr[n+1]."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Columns, increasing in a row."""

    @property
    def values(self) -> Floats:
        """Entries; a row's norm is at most 1."""
