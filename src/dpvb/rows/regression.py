"""Rows of a regression: features, dense or sparse, beside a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.guards.arrays import Floats

Derived = TypeVar("Derived")


@dataclass(frozen=True, eq=False, repr=False)
class DesignRows:
    """Clean private rows; a faulty row is NaN throughout.

    Attributes:
        x_nd: features, (n, d), of norm at most 1; column 0 is the intercept's constant where there is one.
        y_n: responses, (n,); a number in a range is given by its place there, in [-1, 1].
        trials_n: numbers of trials, (n,); 1 unless the response is binomial.
        cut_n: rows that were cut to a bound or a range, or filled in for a missing number, (n,); None: not known.
        offset_n: what is added to ψ, (n,); None: nothing.
        weight_n: how many rows a row counts as, (n,); None: one.
    """

    x_nd: Floats
    y_n: Floats
    trials_n: Floats
    cut_n: NDArray[np.bool_] | None = None
    offset_n: Floats | None = None
    weight_n: Floats | None = None

    def __len__(self) -> int:
        return len(self.y_n)

    def part(self, which: slice) -> DesignRows:
        """Some consecutive rows."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[which] for name, value in given.items() if value is not None})

    def matrix(self, width: int) -> Floats:
        """Features as a matrix of so many columns, (n, width)."""
        return self.x_nd

    def derived(self, function: Callable[[Floats, Floats], Derived], matrix: Floats) -> Derived:
        """Return function(x, matrix), which is calculated again only if either differs from that of the last call."""
        for last_function, last_matrix, last_value in self._last:
            if last_function is function and np.array_equal(last_matrix, matrix):
                return last_value  # type: ignore[no-any-return]
        fresh = function(self.x_nd, matrix)
        self._last[:] = [(function, matrix.copy(), fresh)]
        return fresh

    @cached_property
    def _last(self) -> list[tuple[Callable[..., Any], Floats, Any]]:
        return []  # Not a field: it is no part of the data.


@dataclass(frozen=True, eq=False, repr=False)
class SparseDesignRows:
    """Clean private rows as compressed sparse rows; a faulty row has no entries, and y and trials NaN.

    Attributes:
        indptr: row n holds entries indptr[n] to indptr[n+1], (n + 1,).
        indices: columns, increasing in a row; column 0 is the intercept's where there is one.
        values: entries; a row's norm is at most 1.
        y_n: responses, (n,).
        trials_n: numbers of trials, (n,); 1 unless the response is binomial.
        cut_n, offset_n, weight_n: as in `DesignRows`.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Floats
    y_n: Floats
    trials_n: Floats
    cut_n: NDArray[np.bool_] | None = None
    offset_n: Floats | None = None
    weight_n: Floats | None = None

    def matrix(self, width: int) -> sparse.csr_array:
        """Features as a matrix of so many columns, (n, width)."""
        return sparse.csr_array((self.values, self.indices, self.indptr), shape=(len(self.y_n), width))


#: Rows of either form.
RegressionRows: TypeAlias = DesignRows | SparseDesignRows
