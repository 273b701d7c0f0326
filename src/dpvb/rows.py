"""Batches: clean private rows in the form in which a model's E-step gets them, for each form of data.

Binary vectors, documents as counts of words, rows of a table of numbers, counts and categories, rows of a regression,
and sequences of symbols or of points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.guards.arrays import Bools, Floats, Ints

#: Zeros and ones in single precision, (n, J); a faulty row is NaN throughout.
BinaryRows: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class CountRows:
    """Documents as compressed sparse rows of counts; private.

    Ids in a row increase strictly and lie in 0..width-1; counts lie in [2^-40, 2^40]. Where documents have labels, the
    last ids are those of the labels.

    Attributes:
        indptr: row n holds entries indptr[n] to indptr[n+1], shape (rows + 1,).
        indices: word ids, shape (entries,).
        counts: how often each word occurs, shape (entries,).
        width: number of vocabulary terms; public.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import BagOfWords
        >>> [chunk] = BagOfWords(np.array([[2, 0, 1], [0, 1, 0]])).chunks()
        >>> chunk.rows.num_rows, chunk.rows.csr().toarray().tolist()
        (2, [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    """

    indptr: Ints
    indices: NDArray[np.int32]
    counts: Floats
    width: int

    def __repr__(self) -> str:
        return f"CountRows(width={self.width})"

    @property
    def num_rows(self) -> int:
        """Number of rows; private under add/remove."""
        return len(self.indptr) - 1

    def csr(self) -> sparse.csr_array[Any]:
        """Return the rows as a SciPy array that shares their memory."""
        shape = (self.num_rows, self.width)
        return sparse.csr_array((self.counts, self.indices, self.indptr), shape=shape)


@dataclass(frozen=True, eq=False, repr=False)
class MixedRows:
    """Clean private rows.

    Attributes:
        x_nd: numbers in [-1, 1], (n, d); NaN where they are missing.
        count_np: counts, (n, P).
        code_nj: places of categories, (n, D).
        sound_n: 1, or NaN for a faulty row, (n,).
        cut_n: rows that were clipped to a range, or filled in, (n,).
    """

    x_nd: Floats
    count_np: Floats
    code_nj: Ints
    sound_n: Floats
    cut_n: Bools

    @property
    def parts(self) -> tuple[NDArray[Any], ...]:
        """All arrays, rows first."""
        return self.x_nd, self.count_np, self.code_nj, self.sound_n, self.cut_n

    def take(self, which: Ints | slice) -> MixedRows:
        """Return the rows with these numbers."""
        return MixedRows(*(part[which] for part in self.parts))

    @classmethod
    def joined(cls, pieces: Sequence[MixedRows]) -> MixedRows:
        """Return the rows of all pieces, in order; at least one piece."""
        return cls(*(np.concatenate(parts) for parts in zip(*(piece.parts for piece in pieces), strict=True)))


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
        person_n: the person of each row, nondecreasing from 0, (n,); None: every row is a unit.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import DesignRows
        >>> rows = DesignRows(np.eye(2), np.array([0.0, 1.0]), np.ones(2))
        >>> len(rows.part(slice(0, 1)))
        1
    """

    x_nd: Floats
    y_n: Floats
    trials_n: Floats
    cut_n: NDArray[np.bool_] | None = None
    offset_n: Floats | None = None
    weight_n: Floats | None = None
    person_n: Ints | None = None

    def __len__(self) -> int:
        return len(self.y_n)

    def part(self, which: slice) -> DesignRows:
        """Some consecutive rows."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[which] for name, value in given.items() if value is not None})

    def of_persons(self, unit_of_row: Ints) -> DesignRows:
        """The same rows with their persons, and with what was derived from them."""
        rows = replace(self, person_n=unit_of_row)
        vars(rows)["_last"] = self._last
        return rows

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
        return []  # Not a field: it is not a part of the data.


@dataclass(frozen=True, eq=False, repr=False)
class SparseDesignRows:
    """Clean private rows as compressed sparse rows; a faulty row has no entries, and y and trials NaN.

    Attributes:
        indptr: row n holds entries indptr[n] to indptr[n+1], (n + 1,).
        indices: columns, increasing in a row; column 0 is the intercept's where there is one.
        values: entries; a row's norm is at most 1.
        y_n: responses, (n,).
        trials_n: numbers of trials, (n,); 1 unless the response is binomial.
        cut_n, offset_n, weight_n, person_n: as in `DesignRows`.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import SparseDesignRows
        >>> rows = SparseDesignRows(np.array([0, 1]), np.array([2], dtype=np.int32), np.ones(1), np.ones(1), np.ones(1))
        >>> rows.matrix(3).toarray().tolist()
        [[0.0, 0.0, 1.0]]
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Floats
    y_n: Floats
    trials_n: Floats
    cut_n: NDArray[np.bool_] | None = None
    offset_n: Floats | None = None
    weight_n: Floats | None = None
    person_n: Ints | None = None

    def of_persons(self, unit_of_row: Ints) -> SparseDesignRows:
        """The same rows with their persons, and with what was derived from them."""
        rows = replace(self, person_n=unit_of_row)
        vars(rows)["_last"] = self._last
        return rows

    def derived(self, function: Callable[..., Derived], key: Floats, *given: object) -> Derived:
        """Return function(rows, *given), which is calculated again only if it or the key differs from the last call's.

        Args:
            function: of these rows, whatever their persons.
            key: all that the result depends on in addition to the rows.
            given: arguments of the function.
        """
        for last_function, last_key, last_value in self._last:
            if last_function is function and np.array_equal(last_key, key):
                return last_value  # type: ignore[no-any-return]
        fresh = function(self, *given)
        self._last[:] = [(function, key.copy(), fresh)]
        return fresh

    @cached_property
    def _last(self) -> list[tuple[Callable[..., Any], Floats, Any]]:
        return []  # As in `DesignRows`.

    def matrix(self, width: int) -> sparse.csr_array:
        """Features as a matrix of so many columns, (n, width)."""
        return sparse.csr_array((self.values, self.indices, self.indptr), shape=(len(self.y_n), width))


#: Rows of either form.
RegressionRows: TypeAlias = DesignRows | SparseDesignRows


@dataclass(frozen=True, eq=False, repr=False)
class SequenceRows:
    """Clean private sequences of symbols, a row each.

    Attributes:
        indptr: first symbol of each sequence, and the number of all, (n + 1,).
        code: places of the symbols among the public ones, negative for a gap, (symbols,).
    """

    indptr: Ints
    code: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class NumberRows:
    """Clean private sequences of points of D numbers, a row each.

    Attributes:
        indptr: first point of each sequence, and the number of all, (n + 1,).
        value_td: the numbers, NaN for a missing one, (points, D).
    """

    indptr: Ints
    value_td: Floats
