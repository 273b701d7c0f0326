"""What is known of a regression's weights beside its own rows: an earlier release of other people, or a public study.

    log p(known | m) = -½ mᵀ P m + hᵀ m + constant

Precisions P and pulls h of disjoint people add up. All of it is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Covariance


@dataclass(frozen=True)
class Known:
    """A normal likelihood of the weights; public.

    Attributes:
        precision: P, (d, d), or its diagonal, (d,), in coordinates that the reader knows.
        pull_d: h, (d,).
    """

    precision: Covariance
    pull_d: Floats

    @classmethod
    def nothing(cls, width: int) -> Known:
        """Of so many weights nothing is known."""
        return cls(np.zeros((width, width)), np.zeros(width))

    def joined(self, other: Known) -> Known:
        """What both say."""
        return Known(self.precision + other.precision, self.pull_d + other.pull_d)

    def turned(self, matrix_de: Floats, origin_d: Floats) -> Known:
        """What is known of z, where the weights are matrix z + origin."""
        pull_d = self.pull_d - self.precision @ origin_d
        return Known(matrix_de.T @ self.precision @ matrix_de, matrix_de.T @ pull_d)
