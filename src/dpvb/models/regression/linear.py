"""Linear regression: curvature once, then clipped scores; unit: a row.

    y_n = x_nᵀ m + e_n,   e_n ~ N(0, σ²),   m ~ N(m_0, Γ_τ),   y in [-1, 1], its public range; τ estimated

Σ x xᵀ is released once; see `curvature_then_scores`. It gives coordinates x̃ = Uᵀx / s, in which every step releases a
score of clipped residuals, and a histogram of their sizes, by which the next step clips. The bins of the histogram end
at powers of √2. Counts that noise could have made are set to 0: chance counts far out would make the variance, and the
place of the clip, too large. The averaged scores give the posterior at the end.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, s              moments.basis_de, eigenvalue_e, scale_e: read from Σ x xᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e: the mean of y along the constant direction
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
τ_t                  clip: of the residual r = y - xᵀu in the score Σ w x̃ min(max(r/τ, -1), 1)
s_e²                 spread: E min(r², τ²)
σ²                   variance: E min(r², τ_p²), from block "square"; τ_p is `reach`
J, B                 spread · Σ w² x̃ x̃ᵀ; Σ w² x̃ x̃ᵀ times the share of |r| ≤ τ, and what long rows add
===================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, MeasuredRows, Rows, ScaledRows
from dpvb.core.model import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Positive
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import tuned
from dpvb.models.regression.curvature_then_scores import CurvatureThenScores, Readings, ScoreState
from dpvb.models.regression.moments import RowMoments
from dpvb.models.regression.persons import averaged
from dpvb.models.regression.scaling import Scaling
from dpvb.rows import DesignRows

#: Upper ends of the bins; the last one holds all that is larger.
EDGES = 2.0 * 2.0 ** (-0.5 * np.arange(tuned.RESIDUAL_BINS - 1, -1, -1))
# Squared weights of the last release, that of the curvature included.
_LAST_WEIGHTS = 1.0 + tuned.RESIDUAL_WEIGHT**2 + tuned.SQUARE_WEIGHT**2
# convention: points of a bin that stand for it, evenly spread.
_POINTS = 8
_LOWER = np.append(0.0, EDGES[:-1])
_SIZE = (_LOWER[:, None] + (EDGES - _LOWER)[:, None] * (np.arange(_POINTS) + 0.5) / _POINTS).ravel()


def one_hot(residual_n: Floats) -> Floats:
    """The bin of each |r|, (n, bins); NaN throughout where r is NaN."""
    place_n = np.minimum(np.searchsorted(EDGES, np.abs(residual_n)), len(EDGES) - 1)
    bins_nk = np.zeros((len(residual_n), len(EDGES)))
    bins_nk[np.arange(len(residual_n)), place_n] = np.where(np.isnan(residual_n), np.nan, 1.0)
    return bins_nk


@dataclass(frozen=True)
class Residuals:
    """Histograms of |r| of all steps, averaged; public. Older ones count less: residuals shrink along the path.

    Attributes:
        total_k: the mean histogram, as it was released.
        noise: noise variance of each of its counts.
    """

    total_k: Floats
    noise: Nonnegative = UNSEEN

    @classmethod
    def start(cls) -> Residuals:
        """None yet."""
        return cls(np.zeros(len(EDGES)))

    def joined(self, total_k: Floats, noise: float) -> Residuals:
        """With one more histogram; one without noise replaces all others."""
        part = 1.0 if noise == 0 else 1.0 / (1.0 + noise / (tuned.CLIP_FALL * self.noise))
        return Residuals(self.total_k + part * (total_k - self.total_k), part**2 * noise + (1 - part) ** 2 * self.noise)

    def number(self) -> tuple[float, float]:
        """Number of rows, and its noise variance."""
        return float(self.total_k.sum()), self.noise * len(self.total_k)

    def read(self, number: float, least_std: float) -> Sizes | None:
        """The distribution of |r|; None where noise hides most rows.

        Args:
            number: of rows.
            least_std: standard deviations of noise below which a bin beyond the first empty one counts as empty.
        """
        sd = math.sqrt(self.noise)
        seen_k = np.where(self.total_k >= tuned.SEEN_BIN * sd, self.total_k, 0.0)
        # Residuals have one mode: beyond an empty bin a count is more likely to be noise.
        empty_k = np.cumsum((seen_k == 0) & (np.arange(len(seen_k)) > int(np.argmax(seen_k))))
        seen_k = np.where((empty_k > 0) & (self.total_k < least_std * sd), 0.0, seen_k)
        if seen_k.sum() <= 0.5 * number:
            return None
        return Sizes(np.repeat(seen_k / seen_k.sum() / _POINTS, _POINTS))


@dataclass(frozen=True)
class Sizes:
    """A distribution of |r| on points of the bins; public.

    Attributes:
        share_i: probability of each point.
    """

    share_i: Floats

    def within(self, tau: float) -> float:
        """Share of |r| ≤ τ."""
        return float(self.share_i @ (tau >= _SIZE))

    def clipped(self, tau: float, power: int = 2) -> float:
        """E min(|r|, τ)^power."""
        return float(self.share_i @ np.minimum(_SIZE, tau) ** power)

    def typical(self) -> float:
        """The quantile that is one standard deviation of a normal r."""
        return float(np.interp(math.erf(math.sqrt(0.5)), np.cumsum(self.share_i), _SIZE))

    def largest(self) -> float:
        """The end of the last bin that holds any."""
        return float(EDGES[np.flatnonzero(self.share_i)[-1] // _POINTS])

    def best_clip(self, cost: float) -> float:
        """τ of least E(|r| - τ)₊² + τ²·cost, bias against noise: equation 2 of docs/theory/linear.md."""
        taus = np.geomspace(min(tuned.LEAST_CLIP * self.typical(), 1.0), EDGES[-1], tuned.NUM_CLIPS)
        beyond = [float(self.share_i @ np.maximum(_SIZE - tau, 0.0) ** 2) + tau**2 * cost for tau in taus]
        return float(taus[int(np.argmin(beyond))])


@dataclass(frozen=True)
class LinearState(ScoreState):
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        residuals: histograms of |r|.
        clip: τ; reach: τ_p, the most that a residual counts in σ².
        spread: E min(r², τ²).
        variance, variance_std: σ², and the standard deviation of its error.
    """

    _: KW_ONLY
    residuals: Residuals = field(default_factory=Residuals.start)
    clip: Positive = 1.0
    reach: Positive = 2.0
    spread: Positive = 1.0
    variance: Positive = 1.0
    variance_std: Nonnegative = 1.0


@dataclass(frozen=True)
class Linear(CurvatureThenScores):
    """The model; every field is public, as in `CurvatureThenScores`."""

    n_steps: int = 12

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; the curvature; scores with histograms; the last."""
        d = self.n_features
        number = Block((1,), 1.0, "nonnegative", "last", weight=tuned.RESIDUAL_WEIGHT)
        return {
            **self.columns.blocks,
            "curvature": self._moments_block(1.0),
            "score": Block((d,), 1.0, average=False),
            "residual": Block((len(EDGES),), 1.0, "nonnegative", average=False, weight=tuned.RESIDUAL_WEIGHT),
            "curvature_at_mean": Block((d, d), 1.0, "gram", "last"),
            "excess": number,
            "square": replace(number, weight=tuned.SQUARE_WEIGHT),
            **self._robust_blocks(tuned.LINEAR_LAST / _LAST_WEIGHTS),
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: the first score takes a fixed part, later ones are released more precisely, μ_t² ∝ t."""
        later = np.arange(2, self.n_steps + 1)
        first = tuned.SUM_BUDGET / (1.0 - tuned.SUM_BUDGET) * later.sum() if len(later) else 1.0
        noise = (1.0 / np.sqrt(np.append(first, later))).tolist()
        last = tuned.LINEAR_LAST + self.robust * tuned.ROBUST_BUDGET
        return Schedule(noise, {**self.columns.budget(tuned.LINEAR_CURVATURE), "last": last})

    def scale(self, q: LinearState) -> tuple[float, float]:
        """σ², and the standard deviation of its error."""
        return q.variance, q.variance_std

    def reach(self, q: LinearState) -> float:
        """The most that a residual counts in σ²."""
        return q.reach

    def _start(self, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats) -> LinearState:
        return LinearState.start(scaling, moments, start_e, drift_e)

    def _readings(self, q: LinearState, **more: Any) -> Readings:
        return super()._readings(q, **{"size": self._size(q, q.variance), **more})

    def _size(self, q: LinearState, variance: float) -> float:
        """Standard deviation of y: of its residuals, and of what the columns explain of it."""
        _, explained = q.moments.log_odds(q.point_e)
        return math.sqrt(min(variance + explained, 1.0))

    def _sizes(self, batch: DesignRows) -> Floats:
        return np.ones(len(batch.y_n))

    def _counted(self, batch: DesignRows, weight_n: Floats) -> Contributions:
        return {}

    def _at_step(self, q: LinearState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        residual_n = self._residuals(q, batch, rows)
        score = ScaledRows(rows, weight_n * self._clipped(q, residual_n))
        return averaged({"score": score, "residual": Rows(one_hot(residual_n))}, batch)

    def _at_end(self, q: LinearState, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        residual_n = self._residuals(q, batch, rows)
        excess_n = np.where(np.isnan(residual_n), np.nan, np.clip(rows.length_n - 1.0, 0.0, 1.0))
        square_n = np.minimum(np.abs(residual_n) / q.reach, 1.0) ** 2
        gram, excess, square = Gram(rows.x_nd, weight_n**2), Rows(excess_n[:, None]), Rows(square_n[:, None])
        # Every row has the largest possible curvature, so that of the weights of persons W is V.
        robust = self._robust_scores(q, rows, weight_n * self._clipped(q, residual_n))
        return averaged({"curvature_at_mean": gram, "excess": excess, "square": square, **robust}, batch)

    def _residuals(self, q: LinearState, batch: DesignRows, rows: MeasuredRows) -> Floats:
        return batch.y_n - row_sums(rows.x_nd, q.moments.scale_e * q.point_e)

    def _unit(self, q: LinearState) -> float:
        return q.clip

    def _usual_residual(self, q: LinearState) -> float:
        return math.sqrt(q.spread) / q.clip

    def _clipped(self, q: LinearState, residual_n: Floats) -> Floats:
        return np.clip(residual_n / q.clip, -1.0, 1.0)

    def _with_curvature(self, s: Estimate, q: LinearState) -> LinearState:
        """Coordinates from the release of the curvature."""
        zero_e = np.zeros(self.n_features)
        return self._start(*self._coordinates(s, q), zero_e, zero_e)

    def m_step(self, s: Estimate, q: LinearState) -> LinearState:
        """The posterior mean by all scores so far; the clip by all histograms so far."""
        moments, scale_e, sd = q.moments, q.moments.scale_e, s.noise_std("score")
        score_e, start_e = q.clip * scale_e * s.noisy("score"), q.start_e
        # The first residuals are those of y about the middle of its range: they say little of later ones.
        residuals = (Residuals.start() if q.step == 1 else q.residuals).joined(
            s.noisy("residual"), s.noise_std("residual") ** 2
        )
        number, sizes = self._seen(q.scaling, moments, residuals, s.noise_std("curvature"))
        if q.step == 0:
            start_e = float(np.clip(moments.constant_e @ score_e / number, -1.0, 1.0)) * moments.constant_e
        mean = q.mean.joined(q.point_e, score_e, (q.clip * sd) ** 2)
        noise_e = mean.noise * scale_e**2
        spread = q.spread if sizes is None else sizes.clipped(q.clip)
        moved = replace(q, start_e=start_e, mean=mean, residuals=residuals, spread=spread, step=q.step + 1)
        point_e = self._readings(moved, size=self._size(moved, spread)).mode(spread * moments.eigenvalue_e, 1 / spread)
        if sizes is None:
            return replace(moved, point_e=point_e)
        if sd == 0:
            # Nothing is clipped: residuals may still grow a little where the next ones are taken.
            clip = 2.0 * sizes.largest()
            return replace(moved, point_e=point_e, clip=clip, reach=clip)
        budget = 1.0 / (tuned.LINEAR_CURVATURE * s.noise_std("curvature") ** 2)
        lost_e = moments.eigenvalue_e * scale_e**2 / (moments.eigenvalue_e + noise_e / spread) ** 2
        clip = sizes.best_clip(float(lost_e.sum()) / (budget * number))
        # A chance count far out costs scores little, but a σ² that reached for it would be lost in the noise.
        reach = self._reach(residuals.read(number, tuned.CERTAIN_BIN) or sizes, number, budget)
        return replace(moved, point_e=point_e, clip=max(clip, q.clip / tuned.CLIP_FALL), reach=reach)

    def finished(self, s: Estimate, q: LinearState) -> LinearState:
        """With the curvature, its excess and σ², from the last release."""
        moments, sd = q.moments, s.noise_std("curvature_at_mean")
        share_e = moments.eigenvalue_e / moments.scale_e**2
        trace = max(float(np.trace(s.noisy("curvature_at_mean"))), sd, 1e-9)
        excess = max(float(s.noisy("excess")[0]), 0.0) / trace
        number, sizes = self._seen(q.scaling, moments, q.residuals, s.noise_std("curvature"))
        variance, error = self._variance(s, q, number, sizes)
        inside = 1.0 if sizes is None else max(sizes.within(q.clip), 0.5)
        spread = variance if sizes is None or sd == 0 else sizes.clipped(q.clip)
        q = self._read_at_end(s, q, np.diag(share_e * min(trace / float(share_e.sum()), 1.0)), 1.0, spread)
        steep = inside * (1.0 + excess)
        return replace(
            q,
            curvature_ee=spread * q.curvature_ee,
            table_ee=spread * q.table_ee,
            steep=steep / spread,
            error_ee=steep**2 * q.error_ee,
            doubt_e=steep**2 * q.doubt_e,
            spread=spread,
            variance=variance,
            variance_std=error,
        )

    def _variance(self, s: Estimate, q: LinearState, number: float, sizes: Sizes | None) -> tuple[float, float]:
        """σ², the mean of min(r², τ_p²), and the standard deviation of its error."""
        sd = q.reach**2 * s.noise_std("square") / number
        least = max(sd, EDGES[0] ** 2 / number) if sd > 0 else 1e-12
        variance = min(max(q.reach**2 * float(s.noisy("square")[0]) / number, least), 1.0)  # y lies in [-1, 1]
        fourth = 3.0 * variance**2 if sizes is None else sizes.clipped(q.reach, 4)
        _, noise = self._number(q.scaling, q.moments, q.residuals, s.noise_std("curvature"))
        sampling = max(fourth - variance**2, 2.0 * variance**2) / number
        return variance, math.sqrt(sampling + sd**2 + variance**2 * noise / number**2)

    def _reach(self, sizes: Sizes, number: float, budget: float) -> float:
        """τ_p, the most that a residual counts in σ²: noise against what the histogram shows beyond."""
        weight = tuned.SQUARE_WEIGHT**2 / _LAST_WEIGHTS
        sd, whole = 1.0 / math.sqrt(weight * tuned.LINEAR_LAST * budget), sizes.clipped(EDGES[-1])
        taus = np.geomspace(min(tuned.RARE_STD * sizes.typical(), 1.0), EDGES[-1], tuned.NUM_CLIPS)
        errors = [(tau**2 * sd / number) ** 2 + (whole - sizes.clipped(tau)) ** 2 for tau in taus]
        return float(taus[int(np.argmin(errors))])

    def _seen(
        self, scaling: Scaling, moments: RowMoments, residuals: Residuals, sd: float
    ) -> tuple[float, Sizes | None]:
        """Number of rows, by all releases of it, and sizes of their |r|: none if it may be 0."""
        number, noise = self._number(scaling, moments, residuals, sd)
        return number, residuals.read(number, tuned.SEEN_STD) if number >= tuned.SEEN_STD * math.sqrt(noise) else None

    def _number(self, scaling: Scaling, moments: RowMoments, residuals: Residuals, sd: float) -> tuple[float, float]:
        """That number, and its noise variance: the histograms', and the means' or the constant's."""
        if len(self.columns.numeric_j):
            other, noise = scaling.number, (scaling.error * scaling.number) ** 2
        else:
            other, noise = moments.number, (sd / self._constant**2) ** 2
        counted, counted_noise = residuals.number()
        part = noise / (noise + counted_noise) if noise > 0 else 0.0
        return max(other + part * (counted - other), 1.0), part * counted_noise
