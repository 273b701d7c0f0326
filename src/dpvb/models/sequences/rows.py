"""Private sequences as models of this family meet them: what a batch holds, and whose the sequences are."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpvb.guards.arrays import Floats, Ints


class NumberRows(Protocol):
    """Sequences of points of D numbers, a row each."""

    @property
    def indptr(self) -> Ints:
        """First point of each sequence, and the number of all, (n + 1,)."""

    @property
    def value_td(self) -> Floats:
        """The numbers, NaN for a missing one, (points, D)."""


#: The order of the sequences by unit, and the first of each unit, (units + 1,).
Units = tuple[Ints, Ints]


def by_unit(unit_of_row: Ints, num_units: int) -> Units:
    """The sequences of each unit side by side, in the order in which they come."""
    order = np.argsort(unit_of_row, kind="stable")
    return order, np.searchsorted(unit_of_row[order], np.arange(num_units + 1))


def each(indptr: Ints) -> Units:
    """Every sequence a unit."""
    every = np.arange(len(indptr))
    return every[:-1], every
