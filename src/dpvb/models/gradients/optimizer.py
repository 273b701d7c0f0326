"""Adam on noisy gradients (Kingma & Ba 2015); post-processing of releases.

Noise has one size in all coordinates. If it hides the gradient, Adam's second moments are equal in all coordinates as
well, so that noise does not drive coordinates of little curvature. A step that divides by curvature would let it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.gradients import tuned

# Keeps a divisor positive.
_LEAST = 1e-12


@dataclass(frozen=True)
class Adam:
    """Decayed averages of gradients and of their squares, (P,), and how many there were."""

    first_p: Floats
    second_p: Floats
    count: int = 0

    @classmethod
    def start(cls, num_parameters: int) -> Adam:
        """The start, before any gradient."""
        return cls(np.zeros(num_parameters), np.zeros(num_parameters))

    def after(self, gradient_p: Floats) -> Adam:
        """Averages after one more gradient."""
        first_p = tuned.GRADIENT_DECAY * self.first_p + (1 - tuned.GRADIENT_DECAY) * gradient_p
        second_p = tuned.SQUARE_DECAY * self.second_p + (1 - tuned.SQUARE_DECAY) * gradient_p**2
        return Adam(first_p, second_p, self.count + 1)

    @property
    def step(self) -> Floats:
        """A step uphill, of size about 1 in each coordinate whose gradient keeps its sign."""
        first_p = self.first_p / (1 - tuned.GRADIENT_DECAY**self.count)
        second_p = self.second_p / (1 - tuned.SQUARE_DECAY**self.count)
        return np.asarray(first_p / (np.sqrt(second_p) + _LEAST))
