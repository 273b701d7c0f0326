"""Factor analysis and principal components from three releases; unit: a row.

    x = W h + mean + e,   h ~ N(0, I),   e ~ N(0, Ψ),   Ψ diagonal (principal components: σ²I)

The data enter the posterior only through their number, mean and second moments. So nothing is iterated on private
data: means and squares are released, then the lengths of rows about the means, in scales by the squares; then second
moments about the means, within a radius by the lengths. All else is post-processing (`denoising`, `posterior`).

===============  =================================================================================
paper            code
===============  =================================================================================
y                a row about the public origin, over the public reach: ‖y‖ ≤ 1
m, s             q.mean_d, q.scale_d, in units of y; s_j ∝ v_j^(γ/2), v the variances of columns
z                (y - m)/s, clipped to the radius R = q.radius
(c, √(1-c²) y)   "moments", of norm 1 where ‖y‖ = 1, with y∘y, "squares": ‖y∘y‖ ≤ ‖y‖²
1 in a bin       "length": the bin of ‖(y - m)/s‖
f fᵀ             "gram": f = (c', √(1-c'²) z/R), so that ‖ffᵀ‖ = ‖f‖² ≤ 1
S, sd            q.second_dd, q.noise: second moments of z about their mean, noise std of the diagonal
===============  =================================================================================

A person with several rows adds their mean to each sum. A sum of rows would be longer than the bound of one row, and
clipped: rows far from the mean most, so that variances would be too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpvb.core.blocks import Block, Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive, Positives, Symmetric
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.factors import denoising, tuned
from dpvb.rows import DesignRows

# c and c': the constants in addition to a row.
_C = tuned.MOMENTS_CONSTANT
_C_GRAM = tuned.GRAM_CONSTANT
# √(1 - c²) and √(1 - c'²): the factors of the row.
_REST = math.sqrt(1.0 - _C**2)
_REST_GRAM = math.sqrt(1.0 - _C_GRAM**2)


@dataclass(frozen=True)
class ThreeReleases(Model["SecondMoments", DesignRows]):
    """The model; every field is public.

    Attributes:
        n_features: d.
        gamma: γ: how far the scales of columns follow their standard deviations, from 0 to 1.
        origin_d: what is taken off rows first, (d,), in their units; None: nothing.
        reach: a bound on the length of what is left.
        earlier: moments of other rows, which are added. If they have noise, their scales, radius and mean are taken
            over, and only second moments are released.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    gamma: float = tuned.FACTORS_GAMMA
    origin_d: Floats | None = None
    reach: float = 1.0
    earlier: SecondMoments | None = None

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features, low=1, high=10**5)
        check_number("gamma", self.gamma, low=0, high=1)
        check_number("reach", self.reach, low=0, high=2, closed="right")
        if self.origin_d is not None and self.origin_d.shape != (self.n_features,):
            raise ParameterError(f"origin_d must hold {self.n_features} numbers, got shape {self.origin_d.shape}.")

    @property
    def _taken_over(self) -> SecondMoments | None:
        """Moments whose scales, radius and mean are taken over: other scales would make their noise unlike."""
        return self.earlier if self.earlier is not None and self.earlier.noise > 0 else None

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

    def init(self, rng: np.random.Generator) -> SecondMoments:
        """Return the state before the first release; no randomness."""
        return self.start

    @property
    def start(self) -> SecondMoments:
        """The state before the first release."""
        d = self.n_features
        if self._taken_over is not None:
            return self._taken_over
        return SecondMoments(np.zeros(d), np.ones(d), 1.0, 0.0, np.zeros((d, d)), 1.0, 1.0)

    def e_step(self, q: SecondMoments, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """Contribution of every row to the requested blocks."""
        y_nd, part_n = self.placed(batch.x_nd), _parts(batch)
        if "moments" in blocks:
            part_n1 = part_n[:, None]
            return {"moments": Rows(part_n1 * _beside(_C, _REST * y_nd)), "squares": Rows(part_n1 * y_nd * y_nd)}
        with np.errstate(over="ignore", invalid="ignore"):
            z_nd = np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)
            length_n = upper_norms(z_nd)
            if "length" in blocks:
                edges = length_edges(q.mean_d, q.scale_d)
                return {"length": Rows(part_n[:, None] * lengths_in_bins(length_n, edges))}
            z_nd *= (1.0 / np.maximum(length_n, q.radius))[:, None]
        return {"gram": Gram(_beside(_C_GRAM, _REST_GRAM * z_nd), part_n)}

    def placed(self, x_nd: Floats) -> Floats:
        """Rows in units of y, each entry by itself."""
        return np.asarray((x_nd if self.origin_d is None else x_nd - self.origin_d) / self.reach)

    def started(self, s: Estimate, q: SecondMoments) -> SecondMoments:
        """Means and scales; then the radius."""
        if s.phase == "second":
            sd = s.noise_std("length")
            # Both are of one budget.
            gram_sd = sd * math.sqrt(self.schedule.budget["second"] / self.schedule.budget["last"])
            noise = gram_sd / (_REST_GRAM**2 * q.count)
            chosen = chosen_radius(s.noisy("length"), sd, q.mean_d, q.scale_d, noise)
            return replace(q, radius=chosen.radius, lost=chosen.lost)
        moments, sd = s.noisy("moments"), s.noise_std("moments")
        count = max(float(moments[0]) / _C, sd / _C, 1.0)
        mean_d = moments[1:] / (_REST * count)
        mean_d /= max(1.0, float(np.linalg.norm(mean_d)))
        scale_d = np.ones(self.n_features)
        if self.gamma > 0:
            variance_d = denoising.variances(s.noisy("squares") / count - mean_d**2, s.noise_std("squares") / count)
            scale_d = variance_d ** (0.5 * self.gamma)
            scale_d /= math.sqrt(float(np.mean(scale_d**2)))
        return replace(q, mean_d=mean_d, scale_d=scale_d, count=count)

    def finished(self, s: Estimate, q: SecondMoments) -> SecondMoments:
        """Second moments, with those of an earlier fit."""
        summed = self._summed(s, q)
        return summed if self.earlier is None else summed.joined(self.earlier)

    def _summed(self, s: Estimate, q: SecondMoments) -> SecondMoments:
        """The second moments about their own mean, and that mean."""
        gram, sd = s.noisy("gram"), s.noise_std("gram")
        count = max(float(gram[0, 0]) / _C_GRAM**2, sd / _C_GRAM**2, 1.0)
        unit = q.radius / (_REST_GRAM * count)
        shift_d = unit * gram[0, 1:] / _C_GRAM
        back = 1.0 + q.lost
        second_dd = back * (unit * q.radius / _REST_GRAM * gram[1:, 1:] - np.outer(shift_d, shift_d))
        mean_d = q.mean_d + q.scale_d * shift_d
        noise = back * unit * q.radius / _REST_GRAM * sd
        return replace(q, mean_d=mean_d, second_dd=second_dd, noise=noise, count=count)


def _parts(batch: DesignRows) -> Floats:
    """Weight of each row: 1 over the number of finite rows of its person, (n,)."""
    if batch.person_n is None:
        return np.ones_like(batch.y_n)
    number_i = np.bincount(batch.person_n, np.isfinite(batch.x_nd).all(axis=1))
    return np.asarray(1.0 / np.maximum(number_i, 1.0)[batch.person_n])


def _beside(constant: float, x_nd: Floats) -> Floats:
    """Rows behind a constant; NaN stays."""
    return np.hstack([constant + 0.0 * x_nd[:, :1], x_nd])


# Second moments of rows: those that a factor model releases, and those of other rows.
#
# Moments S_i of n_i rows, of noise std sd_i on their diagonals, are averaged by their precisions: with variances v of
# columns an entry has the error sd_i² + 2v²/n_i, up to a factor that is the same for both. Then what their means differ
# by is added.


# Least variance of a column that is not constant.
_LEAST_COLUMN = 1e-100


@dataclass(frozen=True)
class SecondMoments:
    """q: what is known of the rows' moments so far, all of it in units of y; public.

    Attributes:
        mean_d, scale_d: m and s.
        radius: R, in units of z.
        lost: loss of the second moments due to clipping, relative to the rest.
        second_dd: S, corrected for the average clipping bias.
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

    def joined(self, other: SecondMoments) -> SecondMoments:
        """These, and those of other rows, in these scales; noise of both is alike in all entries."""
        turn_d = other.scale_d / self.scale_d
        both = (self.second_dd, np.outer(turn_d, turn_d) * other.second_dd)
        count = self.count + other.count
        trace = sum(part.count * float(np.trace(dd)) for part, dd in zip((self, other), both, strict=True))
        variance = max(trace / count / len(turn_d), _LEAST_COLUMN)
        precision, beyond = (1.0 / (part.noise**2 + 2.0 * variance**2 / part.count) for part in (self, other))
        share = beyond / (precision + beyond)
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


# The radius in which rows are summed: of all that the released lengths allow, the one with the least error.
#
# A short radius clips the longest rows; a long one pays for them with noise, which grows with its square.


class Radius(NamedTuple):
    """A radius R, and E(ℓ² - R²)₊ / E min(ℓ², R²): the clipping bias, relative to the rest."""

    radius: float
    lost: float


def length_edges(mean_d: Floats, scale_d: Floats) -> Floats:
    """Upper ends of the bins of ‖(y - m)/s‖, but for the last, which has none, (bins - 1,)."""
    return _bin_ends(mean_d, scale_d)[1:-1]


def lengths_in_bins(length_n: Floats, edge_b: Floats) -> Floats:
    """Each length as a row with a 1 in its bin, (n, bins); NaN throughout for what is not a finite number."""
    row_nb = np.zeros((len(length_n), len(edge_b) + 1))
    row_nb[np.arange(len(length_n)), np.searchsorted(edge_b, length_n)] = 1.0
    row_nb[~np.isfinite(length_n)] = np.nan
    return row_nb


def chosen_radius(found_b: Floats, sd: float, mean_d: Floats, scale_d: Floats, noise: float) -> Radius:
    """The radius with the least error of the second moments, in the Frobenius norm.

    Args:
        found_b: noisy numbers of rows in each bin, (bins,).
        sd: std of their noise.
        mean_d, scale_d: what lengths were measured with.
        noise: noise std of a second moment on the diagonal, over the square of the radius.
    """
    end_b, d = _bin_ends(mean_d, scale_d), len(mean_d)
    share_b = _seen_bins(found_b, sd)
    if not share_b.any():  # No row is seen above the noise: none is clipped.
        return Radius(float(end_b[-1]), 0.0)
    share_b /= share_b.sum()
    square_b = end_b[1:] * np.maximum(end_b[:-1], 0.5 * end_b[1:])
    end_b = end_b[1:] * (1.0 + 1e-12)
    lost_b = np.array([share_b @ np.maximum(square_b - end * end, 0.0) for end in end_b])
    kept_b = np.array([share_b @ np.minimum(square_b, end * end) for end in end_b])
    bias_b = tuned.LOST_WEIGHT * lost_b / math.sqrt(min(d, tuned.LARGE_VALUES))
    error_b = np.hypot(bias_b, noise * end_b**2 * math.sqrt(d * (d + 1) / 2))
    longest = int(np.flatnonzero(share_b)[-1])
    best = int(np.argmin(error_b[: longest + 1]))
    return Radius(float(end_b[best]), float(lost_b[best] / kept_b[best]))


def _seen_bins(found_b: Floats, sd: float) -> Floats:
    """The bins around the fullest one up to the first on each side that is lost in noise, and others beyond doubt.

    Several bins together say whether there are rows at all.
    """
    together_b = np.convolve(found_b, np.ones(tuned.TOGETHER), "same")
    if together_b.max() <= tuned.CERTAIN * sd * math.sqrt(tuned.TOGETHER):
        return np.zeros(len(found_b))
    near_b = np.abs(np.arange(len(found_b)) - int(together_b.argmax())) <= tuned.TOGETHER // 2
    mode, empty = int(np.where(near_b, found_b, -np.inf).argmax()), np.flatnonzero(found_b <= sd)
    seen_b = found_b > tuned.CERTAIN * sd
    seen_b[max(empty[empty < mode], default=-1) + 1 : min(empty[empty > mode], default=len(found_b))] = True
    return np.where(seen_b, found_b, 0.0)


def _bin_ends(mean_d: Floats, scale_d: Floats) -> Floats:
    """All ends of the bins, from 0 to the largest length that a row of norm 1 can have, (bins + 1,)."""
    top = (1.0 + float(np.linalg.norm(mean_d))) / float(scale_d.min())
    return np.append(0.0, top * 10.0 ** (-tuned.DECADES * np.arange(tuned.BINS - 1, -1, -1) / tuned.BINS))
