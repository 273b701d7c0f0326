"""Factor analysis and principal components from three releases; unit: a row.

    x = W h + mean + e,   h ~ N(0, I),   e ~ N(0, Ψ),   Ψ diagonal (principal components: σ²I)

The data enter the posterior through their number, mean and second moments alone. So nothing is iterated on private
data: means and squares are released, then the lengths of rows about the means, in scales by the squares; then second
moments about the means, within a radius by the lengths. All else is post-processing (`reading`, `posterior`).

===============  =================================================================================
paper            code
===============  =================================================================================
y                a row about the public origin, over the public reach: ‖y‖ ≤ 1
m, s             q.mean_d, q.scale_d, in units of y; s_j ∝ v_j^(γ/2), v the variances of columns
z                (y - m)/s, shortened to the radius R = q.radius
(c, √(1-c²) y)   "moments", of norm 1 where ‖y‖ = 1, with y∘y, "squares": ‖y∘y‖ ≤ ‖y‖²
1 in a bin       "length": the bin of ‖(y - m)/s‖
f fᵀ             "gram": f = (c', √(1-c'²) z/R), so that ‖ffᵀ‖ = ‖f‖² ≤ 1
S, sd            q.second_dd, q.noise: second moments of z about their mean, noise std of the diagonal
===============  =================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.factors import lengths, reading, tuned
from dpvb.models.factors.moments import Moments
from dpvb.models.factors.rows import RowsBatch

_C, _C_GRAM = tuned.MOMENTS_CONSTANT, tuned.GRAM_CONSTANT
_REST, _REST_GRAM = math.sqrt(1.0 - _C**2), math.sqrt(1.0 - _C_GRAM**2)


@dataclass(frozen=True)
class ThreeReleases:
    """The model; every field is public.

    Attributes:
        n_features: d.
        gamma: γ: how far the scales of columns follow their standard deviations, from 0 to 1.
        origin_d: what is taken off rows first, (d,), in their units; None: nothing.
        reach: a bound on the length of what is left.
        known: moments of other rows beside these. Where noise is in them, their scales, radius and mean are taken over,
            and second moments alone are released.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    gamma: float = tuned.FACTORS_GAMMA
    origin_d: Floats | None = None
    reach: float = 1.0
    known: Moments | None = None

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features, low=1, high=10**5)
        check_number("gamma", self.gamma, low=0, high=1)
        check_number("reach", self.reach, low=0, high=2, closed="right")
        if self.origin_d is not None and self.origin_d.shape != (self.n_features,):
            raise ParameterError(f"origin_d must hold {self.n_features} numbers, got shape {self.origin_d.shape}.")

    @property
    def _taken_over(self) -> Moments | None:
        """Of which moments scales, radius and mean are taken over: other scales would make their noise unlike."""
        return self.known if self.known is not None and self.known.noise > 0 else None

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Means and squares, lengths, second moments."""
        d = self.n_features
        gram = Block((1 + d, 1 + d), 1.0, "gram", "last")
        if self._taken_over is not None:
            return {"gram": gram}
        squares = {"squares": Block((d,), 1.0, "nonnegative", "first", weight=tuned.SQUARES_WEIGHT)}
        return {
            "moments": Block((1 + d,), 1.0, "real", "first", weight=tuned.MOMENTS_WEIGHT),
            **(squares if self.gamma > 0 else {}),
            "length": Block((tuned.BINS,), 1.0, "nonnegative", "second"),
            "gram": gram,
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: no steps."""
        if self._taken_over is not None:
            return Schedule(())
        first, second = tuned.MOMENTS_BUDGET, tuned.LENGTH_BUDGET
        # Parts of what is spent at all are relative to each other where there are no steps.
        return Schedule((), {"first": first / 2, "second": second / 2, "last": (1.0 - first - second) / 2})

    def init(self, rng: np.random.Generator) -> Moments:
        """Nothing is known; no randomness."""
        return self.start

    @property
    def start(self) -> Moments:
        """What is known before the first release."""
        d = self.n_features
        if self._taken_over is not None:
            return self._taken_over
        return Moments(np.zeros(d), np.ones(d), 1.0, 0.0, np.zeros((d, d)), 1.0, 1.0)

    def e_step(self, q: Moments, batch: RowsBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row adds to the blocks asked for."""
        y_nd = self.placed(batch.x_nd)
        if "moments" in blocks:
            return {"moments": Rows(_beside(_C, _REST * y_nd)), "squares": Rows(y_nd * y_nd)}
        with np.errstate(over="ignore", invalid="ignore"):
            z_nd = np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)
            length_n = upper_norms(z_nd)
            if "length" in blocks:
                return {"length": Rows(lengths.in_bins(length_n, lengths.edges(q.mean_d, q.scale_d)))}
            z_nd *= (1.0 / np.maximum(length_n, q.radius))[:, None]
        return {"gram": Gram(_beside(_C_GRAM, _REST_GRAM * z_nd), np.ones(len(z_nd)))}

    def placed(self, x_nd: Floats) -> Floats:
        """Rows in units of y, each entry by itself."""
        return np.asarray((x_nd if self.origin_d is None else x_nd - self.origin_d) / self.reach)

    def m_step(self, s: Estimate, q: Moments) -> Moments:
        """Means and scales; the radius; second moments."""
        if "gram" in s.names:
            summed = self._summed(s, q)
            return summed if self.known is None else summed.joined(self.known)
        if "length" in s.names:
            sd = s.noise_std("length")
            # Both are of one budget.
            gram_sd = sd * math.sqrt(self.schedule.budget["second"] / self.schedule.budget["last"])
            noise = gram_sd / (_REST_GRAM**2 * q.count)
            found = lengths.chosen(s.read("length"), sd, q.mean_d, q.scale_d, noise)
            return replace(q, radius=found.radius, lost=found.lost)
        moments, sd = s.read("moments"), s.noise_std("moments")
        count = max(float(moments[0]) / _C, sd / _C, 1.0)
        mean_d = moments[1:] / (_REST * count)
        mean_d /= max(1.0, float(np.linalg.norm(mean_d)))
        scale_d = np.ones(self.n_features)
        if self.gamma > 0:
            variance_d = reading.variances(s.read("squares") / count - mean_d**2, s.noise_std("squares") / count)
            scale_d = variance_d ** (0.5 * self.gamma)
            scale_d /= math.sqrt(float(np.mean(scale_d**2)))
        return replace(q, mean_d=mean_d, scale_d=scale_d, count=count)

    def _summed(self, s: Estimate, q: Moments) -> Moments:
        """The second moments about their own mean, and that mean."""
        gram, sd = s.read("gram"), s.noise_std("gram")
        count = max(float(gram[0, 0]) / _C_GRAM**2, sd / _C_GRAM**2, 1.0)
        unit = q.radius / (_REST_GRAM * count)
        shift_d = unit * gram[0, 1:] / _C_GRAM
        back = 1.0 + q.lost
        second_dd = back * (unit * q.radius / _REST_GRAM * gram[1:, 1:] - np.outer(shift_d, shift_d))
        mean_d = q.mean_d + q.scale_d * shift_d
        noise = back * unit * q.radius / _REST_GRAM * sd
        return replace(q, mean_d=mean_d, second_dd=second_dd, noise=noise, count=count)


def _beside(constant: float, x_nd: Floats) -> Floats:
    """Rows behind a constant; NaN stays."""
    return np.hstack([constant + 0.0 * x_nd[:, :1], x_nd])
