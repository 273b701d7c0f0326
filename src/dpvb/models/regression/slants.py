"""The linear map that takes products of columns about the means of their factors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats

#: No column is a product of others.
NO_PRODUCTS = np.empty((0, 3), dtype=np.intp)


class Slants(NamedTuple):
    """A sparse matrix S: x - S x has products about the means of their factors.

    Attributes:
        product_k, factor_k: row and column of each entry, (k,).
        share_k: the entries.
    """

    product_k: NDArray[np.intp]
    factor_k: NDArray[np.intp]
    share_k: Floats

    def off(self, x_nr: Floats, read_r: NDArray[np.intp]) -> Floats:
        """X - S x of rows x, (n, r), each entry by itself; read_r, increasing, has the columns that they hold."""
        slanted_nr = x_nr.copy()
        places = np.searchsorted(read_r, self.product_k), np.searchsorted(read_r, self.factor_k)
        for product, factor, share in zip(*places, self.share_k, strict=True):
            slanted_nr[:, product] -= share * x_nr[:, factor]
        return slanted_nr

    @classmethod
    def of(cls, slant_dd: Floats) -> Slants:
        """The matrix S from its dense form, (d, d)."""
        product_k, factor_k = np.nonzero(slant_dd)
        return cls(product_k, factor_k, slant_dd[product_k, factor_k])

    def dense(self, width: int) -> Floats:
        """S, (d, d)."""
        slant_dd = np.zeros((width, width))
        slant_dd[self.product_k, self.factor_k] = self.share_k
        return slant_dd
