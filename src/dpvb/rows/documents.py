"""Documents as counts of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.guards.arrays import Floats, Ints


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
