"""What a linear dynamical system has learned, and from what; all of it is public."""

from __future__ import annotations

from dataclasses import dataclass

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positive, Positives
from dpvb.models.sequences.kalman import LinearSystem


@dataclass(frozen=True)
class LinearPosterior:
    """q: the system, and what was released, as it came.

    Attributes:
        mean_d, scale_d: m and s, in units of the reader over `reach`.
        system: of numbers (x - m)/s.
        pooled, start: noisy moments of windows in the model's units, and how many people they are of; linear.
        pooled_std, start_std: noise std of the diagonals; 0 before the release.
        count: noisy number of people.
        share_l: shares of the lengths of sequences, see `drawn_windows`.
        drawn_sp: systems drawn from the posterior, as `system_vector` has them; none of a mode.
    """

    mean_d: Floats
    scale_d: Positives
    system: LinearSystem
    pooled: Floats
    start: Floats
    share_l: Nonnegatives
    drawn_sp: Floats
    pooled_std: Nonnegative = 0.0
    start_std: Nonnegative = 0.0
    count: Positive = 1.0
