"""Second moments of rows, as they are known: what a factor model releases, and what is known of other rows beside them.

Moments S_i of n_i rows, of noise std sd_i on their diagonals, are averaged by their precisions: with variances v of
columns an entry has the error sd_i² + 2v²/n_i, up to a factor that is the same for both. Then what their means differ
by is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive, Positives, Symmetric

# Least variance of a column that is not constant.
_LEAST = 1e-100


@dataclass(frozen=True)
class Moments:
    """q: what is known of the rows' moments so far, all of it in units of y; public.

    Attributes:
        mean_d, scale_d: m and s.
        radius: R, in units of z.
        lost: what shortening takes of the second moments, relative to what it leaves.
        second_dd: S, given back what shortening takes on average.
        noise: noise std of its diagonal; that of any other entry is 1/√2 of it.
        count: number of rows.
    """

    mean_d: Floats
    scale_d: Positives
    radius: Positive
    lost: Nonnegative
    second_dd: Symmetric
    noise: Nonnegative
    count: Positive

    def joined(self, other: Moments) -> Moments:
        """These, and those of other rows, in these scales; noise of both is alike in all entries."""
        turn_d = other.scale_d / self.scale_d
        both = (self.second_dd, np.outer(turn_d, turn_d) * other.second_dd)
        count = self.count + other.count
        trace = sum(part.count * float(np.trace(dd)) for part, dd in zip((self, other), both, strict=True))
        variance = max(trace / count / len(turn_d), _LEAST)
        own, beyond = (1.0 / (part.noise**2 + 2.0 * variance**2 / part.count) for part in (self, other))
        share = beyond / (own + beyond)
        apart_d = (other.mean_d - self.mean_d) / self.scale_d
        second_dd = (1.0 - share) * both[0] + share * both[1] + share * (1.0 - share) * np.outer(apart_d, apart_d)
        return replace(
            self,
            mean_d=self.mean_d + share * (other.mean_d - self.mean_d),
            lost=(1.0 - share) * self.lost + share * other.lost,
            second_dd=second_dd,
            noise=float(np.hypot((1.0 - share) * self.noise, share * other.noise)),
            count=1.0 / ((1.0 - share) ** 2 / self.count + share**2 / other.count),
        )
