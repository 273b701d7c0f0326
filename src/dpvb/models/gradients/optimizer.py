"""Adam on noisy gradients (Kingma & Ba 2015), and an average of its path; post-processing of releases.

Noise has one size in all coordinates. Where it hides the gradient, Adam's second moments are equal too, so that a
coordinate of little curvature is not driven by noise, as it would be by a step that divides by curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpvb.arrays import Floats

_FIRST, _SECOND, _LEAST = 0.9, 0.99, 1e-12


@dataclass(frozen=True)
class Adam:
    """Decayed averages of gradients and of their squares, (P,), and how many there were."""

    first_p: Floats
    second_p: Floats
    count: int = 0

    @classmethod
    def start(cls, num_parameters: int) -> Adam:
        """No gradient yet."""
        return cls(np.zeros(num_parameters), np.zeros(num_parameters))

    def after(self, gradient_p: Floats) -> Adam:
        """With one more gradient."""
        first_p = _FIRST * self.first_p + (1 - _FIRST) * gradient_p
        second_p = _SECOND * self.second_p + (1 - _SECOND) * gradient_p**2
        return Adam(first_p, second_p, self.count + 1)

    @property
    def step(self) -> Floats:
        """Uphill, of size about 1 in each coordinate whose gradient keeps its sign."""
        first_p = self.first_p / (1 - _FIRST**self.count)
        second_p = self.second_p / (1 - _SECOND**self.count)
        return np.asarray(first_p / (np.sqrt(second_p) + _LEAST))
