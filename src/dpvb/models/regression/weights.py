"""The posterior of a regression's weights, as it is read from releases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives
from dpvb.models.regression.known import Known


@dataclass(frozen=True)
class Weights:
    """q(m) = N(mean, covariance) over the weights, as read from releases; public.

    Attributes:
        mean_d: posterior means.
        covariance: posterior covariance, (d, d), or its diagonal, (d,), with the privacy noise counted in.
        naive_covariance: the covariance that leaves the privacy noise out; for comparison.
        prior: prior covariance, (d, d), or its diagonal, (d,); domains.UNSEEN where it is not said.
        unseen_d: 1 for a column whose spread was not seen for noise, else 0.
        centre_d: released centres of numeric columns, and 0 for others. A diagonal covariance holds about them: weights
            of x - centre and of the constant are independent, once the slants are off x.
        data: what the data say, those of an earlier release included, of weights for the model's own unit of the
            response; None: nothing that may travel.
        slant_3k: rows, columns and values of S where a diagonal covariance is one of weights of x - S x, (3, k).
    """

    mean_d: Floats
    covariance: Covariance
    naive_covariance: Covariance
    prior: Covariance
    unseen_d: Nonnegatives
    centre_d: Floats
    data: Known | None = None
    slant_3k: Floats = field(default_factory=lambda: np.zeros((3, 0)))

    @property
    def slants(self) -> sparse.csr_array:
        """S, (d, d)."""
        (row, column, value), width = self.slant_3k, len(self.mean_d)
        return sparse.csr_array((value, (row.astype(np.intp), column.astype(np.intp))), shape=(width, width))

    def point(self) -> Weights:
        """The weights of highest density alone, as if they were certain."""
        return replace(self, covariance=0.0 * self.covariance, naive_covariance=0.0 * self.naive_covariance)

    @classmethod
    def alone(cls, mean_d: Floats, covariance: Floats, naive_covariance: Floats) -> Weights:
        """A posterior of which nobody says what the prior decided: as if it were nothing."""
        zero_d = np.zeros(len(mean_d))
        return cls(mean_d, covariance, naive_covariance, np.full(len(mean_d), UNSEEN), zero_d, zero_d)
