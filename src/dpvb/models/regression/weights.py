"""The Gaussian posterior of the weights of a regression, as all its models give it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Covariance, Nonnegatives


@dataclass(frozen=True)
class Weights:
    """q(m) = N(mean, covariance) over the weights, as read from releases; public.

    Attributes:
        mean_d: posterior means.
        covariance: posterior covariance, (d, d), or its diagonal, (d,), with the privacy noise counted in.
        naive_covariance: the covariance that leaves the privacy noise out; for comparison.
        prior_d: prior variances; domains.UNSEEN where they are not said.
        unseen_d: 1 for a column whose spread was not seen for noise, else 0.
        centre_d: point about which a diagonal covariance holds: weights of x - centre and of the constant are
            independent; 0 for x itself.
    """

    mean_d: Floats
    covariance: Covariance
    naive_covariance: Covariance
    prior_d: Nonnegatives
    unseen_d: Nonnegatives
    centre_d: Floats

    @classmethod
    def alone(cls, mean_d: Floats, covariance: Floats, naive_covariance: Floats) -> Weights:
        """A posterior of which nobody says what the prior decided: as if it were nothing."""
        zero_d = np.zeros(len(mean_d))
        return cls(mean_d, covariance, naive_covariance, np.full(len(mean_d), UNSEEN), zero_d, zero_d)
