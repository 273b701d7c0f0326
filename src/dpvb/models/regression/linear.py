"""Linear regression: curvature once, then clipped scores; unit: a row.

    y_n = x_nᵀ m + e_n,   e_n ~ N(0, σ²),   m ~ N(m_0, C_τ),   y in [-1, 1], its public range; τ estimated

Numeric columns are brought to units of their own spread first (`scaling`). Σ x xᵀ is released once. It gives
coordinates x̃ = Uᵀx / s, in which every step releases a score of clipped residuals, and a histogram of their sizes, by
which the next step clips. The bins of the histogram end at powers of √2. Counts that noise could have made are set to
0: chance counts far out would make the variance, and the place of the clip, too large. The averaged scores give the
posterior at the end.

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
A_w, f               curvature_ee · steep: Σ w x̃ x̃ᵀ times the share of |r| ≤ τ, which is minus a score's derivative
===================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows, ScaledRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Symmetric
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.descent import Average
from dpvb.models.regression.moments import RowMoments, read_at_mean, read_collinear, read_moments, read_positive
from dpvb.models.regression.ridge import Known, Weights
from dpvb.models.regression.scaling import Declared, Scaling, check_fields, mapped, measured
from dpvb.rows.regression import DesignRows

#: Upper ends of the bins; the last one holds all that is larger.
EDGES = 2.0 * 2.0 ** (-0.5 * np.arange(tuned.RESIDUAL_BINS - 1, -1, -1))
# Points of a bin that stand for it, evenly spread.
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
        part = 1.0 if noise == 0 else 1.0 / (1.0 + noise / (tuned.FORGOTTEN * self.noise))
        return Residuals(self.total_k + part * (total_k - self.total_k), part**2 * noise + (1 - part) ** 2 * self.noise)

    def number(self) -> tuple[float, float]:
        """Number of rows, and its noise variance."""
        return float(self.total_k.sum()), self.noise * len(self.total_k)

    def read(self, number: float, far: float = tuned.FAR_BIN) -> Sizes | None:
        """What is known of |r|; None where noise hides most rows.

        Args:
            number: of rows.
            far: std of noise below which a bin beyond the first empty one counts as empty.
        """
        sd = math.sqrt(self.noise)
        kept_k = np.where(self.total_k >= tuned.SEEN_BIN * sd, self.total_k, 0.0)
        mode = int(np.argmax(kept_k))
        empty = np.flatnonzero(kept_k[mode:] == 0)
        if len(empty):
            beyond = slice(mode + int(empty[0]), None)
            kept_k[beyond] = np.where(kept_k[beyond] >= far * sd, kept_k[beyond], 0.0)
        if kept_k.sum() < tuned.LEAST_SEEN * number or kept_k.sum() <= 0:
            return None
        return Sizes(np.repeat(kept_k / kept_k.sum() / _POINTS, _POINTS))


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
        """τ of least E(|r| - τ)₊² + τ²·cost: what clipping may bend against the noise that it saves."""
        taus = np.geomspace(min(tuned.LEAST_CLIP * self.typical(), 1.0), EDGES[-1], tuned.NUM_CLIPS)
        beyond = [float(self.share_i @ np.maximum(_SIZE - tau, 0.0) ** 2) + tau**2 * cost for tau in taus]
        return float(taus[int(np.argmin(beyond))])


@dataclass(frozen=True)
class LinearIterate:
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        scaling: the map from rows x to the rows x̂ of all that follows.
        start_e: m_0, the prior mean; point_e: u, where the next score is taken.
        mean: averages of points and scores.
        residuals: histograms of |r|.
        clip: τ; reach: τ_p, the most that a residual counts in σ².
        spread: E min(r², τ²).
        curvature_ee: Σ w² x̃ x̃ᵀ, read for predictions; table_ee, error_ee, doubt_e: the same, read for intervals, and
            mean square errors of its entries and of the slope.
        steep: minus the derivative of the averaged score, over that.
        variance, variance_std: σ², and the standard deviation of its error.
    """

    scaling: Scaling
    moments: RowMoments
    start_e: Floats
    point_e: Floats
    mean: Average
    curvature_ee: Symmetric
    table_ee: Symmetric
    error_ee: Nonnegatives
    doubt_e: Nonnegatives
    residuals: Residuals = field(default_factory=Residuals.start)
    clip: Positive = 1.0
    reach: Positive = 2.0
    spread: Positive = 1.0
    steep: Positive = 1.0
    variance: Positive = 1.0
    variance_std: Nonnegative = 1.0
    step: int = 0

    @classmethod
    def start(cls, scaling: Scaling, moments: RowMoments) -> LinearIterate:
        """The prior, before any score."""
        zero_e, little = np.zeros(len(moments.scale_e)), 1e-9 * np.eye(len(moments.scale_e))
        return cls(scaling, moments, zero_e, zero_e, Average(zero_e, zero_e), little, little, 0 * little, zero_e)


@dataclass(frozen=True)
class LinearPath:
    """What a path needs of its model; public, as in `Linear`."""

    intercept: float
    alpha: float | None
    columns: Declared
    known: tuple[Known, ...] = ()

    def started(self, s: Estimate, q: LinearIterate) -> LinearIterate:
        """Coordinates from the release of the curvature."""
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        sd, room, scaling = s.noise_std("curvature"), q.scaling.room, q.scaling
        noisy_dd = room**2 * s.read("curvature")
        if self.intercept > 0:
            scaling, noisy_dd = scaling.recentred(self.columns, noisy_dd, sd, self.intercept)
        moments = read_moments(noisy_dd, sd, column, inner=inner, reading=read_collinear, room=room)
        if sd > 0:
            noise_e = (tuned.SCALE_SHRINK * moments.scale_e) ** 2 * tuned.LINEAR_CURVATURE * sd**2
            share = float(np.mean(np.minimum(1.0, tuned.SHRINK_NOISE * noise_e / moments.eigenvalue_e)))
            room = tuned.SCALE_SHRINK / (tuned.LEAST_SHRINK + tuned.MORE_SHRINK * share)
        moments = moments.roomier(room)
        if self.intercept > 0 and sd > 0:
            scaling = scaling.certain(self.columns, noisy_dd, moments.matrix_dd, sd, self.intercept)
        return LinearIterate.start(scaling, moments)

    def stepped(self, s: Estimate, q: LinearIterate) -> LinearIterate:
        """The posterior mean by all scores so far; the clip by all histograms so far."""
        moments, scale_e, sd = q.moments, q.moments.scale_e, s.noise_std("score")
        score_e, start_e = q.clip * scale_e * s.read("score"), q.start_e
        # The first residuals are those of y about the middle of its range: they say little of later ones.
        residuals = (Residuals.start() if q.step == 1 else q.residuals).joined(
            s.read("residual"), s.noise_std("residual") ** 2
        )
        number, sizes = self._seen(q.scaling, moments, residuals, s.noise_std("curvature"))
        if q.step == 0:
            start_e = float(np.clip(moments.constant_e @ score_e / number, -1.0, 1.0)) * moments.constant_e
        mean = q.mean.joined(q.point_e, score_e, (q.clip * sd) ** 2)
        noise_e = mean.noise * scale_e**2
        spread = q.spread if sizes is None else sizes.clipped(q.clip)
        found = replace(q, start_e=start_e, mean=mean, residuals=residuals, spread=spread, step=q.step + 1)
        information_e, one_e = spread * moments.eigenvalue_e, np.ones(len(scale_e))
        score = ridge.NoisyScore(mean.score_d, mean.point_d - start_e, np.diag(information_e), one_e / spread, noise_e)
        score = replace(score, known=[one.turned(*self.turn(found)) for one in self.known[:1]])
        prior = self.prior(found, q.scaling.width_d, ridge.TAUS, self.size(found, spread))
        point_e = start_e + ridge.posterior(score, prior)[0]
        if sizes is None:
            return replace(found, point_e=point_e)
        if sd == 0:
            # Nothing is clipped: residuals may still grow a little where the next ones are taken.
            clip = tuned.CLIP_FALL * sizes.largest()
            return replace(found, point_e=point_e, clip=clip, reach=clip)
        budget = 1.0 / (tuned.LINEAR_CURVATURE * s.noise_std("curvature") ** 2)
        lost_e = moments.eigenvalue_e * scale_e**2 / (moments.eigenvalue_e + noise_e / spread) ** 2
        clip = sizes.best_clip(float(lost_e.sum()) / (tuned.CLIP_PRICE * budget * number))
        # A chance count far out costs scores little, but noise would drown a σ² that reached for it.
        reach = self._reach(residuals.read(number, tuned.CERTAIN_BIN) or sizes, number, budget)
        return replace(found, point_e=point_e, clip=max(clip, q.clip / tuned.CLIP_FALL), reach=reach)

    def finished(self, s: Estimate, q: LinearIterate) -> LinearIterate:
        """With the curvature, its excess and σ², from the last release."""
        moments, noisy_ee, sd = q.moments, s.read("curvature_at_mean"), s.noise_std("curvature_at_mean")
        share_e = moments.eigenvalue_e / moments.scale_e**2
        trace = max(float(np.trace(noisy_ee)), tuned.LEAST_TRACE * float(share_e.sum()))
        guess_ee = np.diag(share_e * min(trace / float(share_e.sum()), 1.0))
        curvature_ee = read_positive(noisy_ee, guess_ee, sd, min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd))
        first_sd = s.noise_std("curvature")
        hidden_e = np.clip(first_sd / moments.eigenvalue_e, tuned.LEAST_HIDDEN, tuned.MOST_HIDDEN)
        table_ee, error_ee, doubt_e = read_at_mean(noisy_ee, guess_ee, hidden_e, sd)
        if self.intercept > 0:
            turn_ee = moments.shrinking(q.scaling.part_d, self.intercept)
            table_ee = turn_ee @ table_ee @ turn_ee.T
        excess = max(float(s.read("excess")[0]), 0.0) / trace
        number, sizes = self._seen(q.scaling, moments, q.residuals, first_sd)
        variance, error = self._variance(s, q, number, sizes)
        inside = 1.0 if sizes is None else max(sizes.within(q.clip), tuned.LEAST_SEEN)
        spread = variance if sizes is None or sd == 0 else sizes.clipped(q.clip)
        steep = inside * (1.0 + excess)
        found = replace(q, curvature_ee=curvature_ee, table_ee=table_ee, steep=steep, spread=spread)
        return replace(
            found, error_ee=steep**2 * error_ee, doubt_e=steep**2 * doubt_e, variance=variance, variance_std=error
        )

    def _variance(self, s: Estimate, q: LinearIterate, number: float, sizes: Sizes | None) -> tuple[float, float]:
        """σ², the mean of min(r², τ_p²), and the standard deviation of its error."""
        sd = q.reach**2 * s.noise_std("square") / number
        least = max(sd, EDGES[0] ** 2 / number) if sd > 0 else 1e-12
        variance = min(max(q.reach**2 * float(s.read("square")[0]) / number, least), 1.0)  # y lies in [-1, 1]
        fourth = 3.0 * variance**2 if sizes is None else sizes.clipped(q.reach, 4)
        _, noise = self._number(q.scaling, q.moments, q.residuals, s.noise_std("curvature"))
        sampling = max(fourth - variance**2, 2.0 * variance**2) / number
        return variance, math.sqrt(sampling + sd**2 + variance**2 * noise / number**2)

    def _reach(self, sizes: Sizes, number: float, budget: float) -> float:
        """τ_p, the most that a residual counts in σ²: noise against what the histogram shows beyond."""
        weight = tuned.SQUARE_WEIGHT**2 / (1.0 + tuned.EXCESS_WEIGHT**2 + tuned.SQUARE_WEIGHT**2)
        sd, whole = 1.0 / math.sqrt(weight * tuned.LINEAR_LAST * budget), sizes.clipped(EDGES[-1])
        taus = np.geomspace(min(tuned.LEAST_REACH * sizes.typical(), 1.0), EDGES[-1], tuned.NUM_CLIPS)
        errors = [(tau**2 * sd / number) ** 2 + (tuned.OVERSHOOT * (whole - sizes.clipped(tau))) ** 2 for tau in taus]
        return float(taus[int(np.argmin(errors))])

    def _seen(
        self, scaling: Scaling, moments: RowMoments, residuals: Residuals, sd: float
    ) -> tuple[float, Sizes | None]:
        """Number of rows, by all that was released of it, and sizes of their |r|: none if there may be no rows."""
        number, noise = self._number(scaling, moments, residuals, sd)
        return number, residuals.read(number) if number >= tuned.CERTAIN_ROWS * math.sqrt(noise) else None

    def _number(self, scaling: Scaling, moments: RowMoments, residuals: Residuals, sd: float) -> tuple[float, float]:
        """That number, and its noise variance: the histograms', and the means' or the constant's."""
        if len(self.columns.numeric_j):
            other, noise = scaling.number, (scaling.error * scaling.number) ** 2
        else:
            other, noise = moments.number, (sd / (self.intercept or tuned.ADDED_CONSTANT) ** 2) ** 2
        own, own_noise = residuals.number()
        part = noise / (noise + own_noise) if noise > 0 else 0.0
        return max(other + part * (own - other), 1.0), part * own_noise

    def size(self, q: LinearIterate, variance: float) -> float:
        """Standard deviation of y: of its residuals, and of what the columns explain of it."""
        _, explained = q.moments.log_odds(q.point_e)
        return math.sqrt(min(variance + explained, 1.0))

    def prior(self, q: LinearIterate, width_d: Floats, taus: tuple[float, ...], size: float) -> ridge.Prior:
        """The prior of m - m_0 in the eigenbasis, for a y of so large a standard deviation."""
        mean_std = tuned.INTERCEPT_STD * size
        columns = (self.columns, size * width_d, taus, self.intercept, self.alpha, mean_std)
        return ridge.of_columns(q.scaling, q.moments, 0 * q.start_e, *columns)

    def predictions(self, q: LinearIterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x: τ is estimated and averaged over."""
        prior = self.prior(q, q.scaling.width_d, ridge.TAUS, self.size(q, q.variance))
        return self._posterior(q, q.curvature_ee, 0 * q.error_ee, 0 * q.doubt_e, prior, self.known[:1])

    def table(self, q: LinearIterate) -> Weights:
        """Posterior of the weights for intervals: τ is fixed, spreads are at their low end, the curvature may err."""
        prior = self.prior(q, q.scaling.wide_d, (tuned.TABLE_TAU,), self.size(q, q.variance))
        found = self._posterior(q, q.table_ee, q.error_ee, q.doubt_e, prior, self.known[1:])
        back_de, _ = self.turn(q)
        prior_dd = back_de @ prior.covariance(prior.taus[0]) @ back_de.T
        return replace(found, prior=prior_dd, unseen_d=q.scaling.unseen_d, centre_d=q.scaling.centre_d)

    def turn(self, q: LinearIterate) -> tuple[Floats, Floats]:
        """The map from m - m_0 in the eigenbasis to the weights of x, (d, e), and where it takes 0, (d,)."""
        back_de = q.scaling.back(self.columns, self.intercept) @ q.moments.basis_de
        return back_de, back_de @ q.start_e

    def _posterior(
        self,
        q: LinearIterate,
        curvature_ee: Floats,
        error_ee: Floats,
        doubt_e: Floats,
        prior: ridge.Prior,
        known: tuple[Known, ...],
    ) -> Weights:
        """A Newton step from the averages, in the coordinates of x."""
        scale_e, steep_e = q.moments.scale_e, np.full(len(q.start_e), q.steep / q.spread)
        offset_e = scale_e * (q.mean.point_d - q.start_e)
        score = ridge.NoisyScore(q.mean.score_d / scale_e, offset_e, q.spread * curvature_ee, steep_e, q.mean.noise)
        back_de, origin_d = self.turn(q)
        x_de = back_de / scale_e
        score = replace(score, known=[one.turned(x_de, origin_d) for one in known])
        prior = prior.turned(np.diag(scale_e))
        score = ridge.honest(score, prior, error_ee, doubt_e)
        mean_e, aware_ee = ridge.posterior(score, prior)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        found = Weights.alone(origin_d + x_de @ mean_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
        data = score.information().turned(np.asarray(np.linalg.inv(x_de)), -scale_e * q.start_e)
        return replace(found, data=data)


@dataclass(frozen=True)
class Linear:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        intercept: value of column 0 in every row; 0: there is no such column.
        num_steps: T, number of scores.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
        declared: what is public about the columns; None: no column is numeric.
        known: what is known of the weights of x beside these rows, read for predictions and for intervals; or nothing.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    intercept: float = 0.0
    num_steps: int = 12
    alpha: float | None = None
    declared: Declared | None = None
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha, self.declared)

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _path(self) -> LinearPath:
        return LinearPath(self.intercept, self.alpha, self._columns, self.known)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; the curvature; scores with histograms; the last."""
        d, wide, early = self.n_features, self.n_features + (self.intercept == 0), self._columns.blocks
        then: Literal["first", "third"] = "third" if early else "first"
        number = Block((1,), 1.0, "nonnegative", "last", weight=tuned.EXCESS_WEIGHT)
        return {
            **early,
            "curvature": Block((wide, wide), 1.0, "gram", then),
            "score": Block((d,), 1.0, average=False),
            "residual": Block((len(EDGES),), 1.0, "nonnegative", average=False, weight=tuned.RESIDUAL_WEIGHT),
            "curvature_at_mean": Block((d, d), 1.0, "gram", "last"),
            "excess": number,
            "square": replace(number, weight=tuned.SQUARE_WEIGHT),
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: the first score takes a fixed part, later ones are released more precisely, μ_t² ∝ t."""
        later = np.arange(2, self.num_steps + 1)
        first = tuned.FIRST_SCORE / (1.0 - tuned.FIRST_SCORE) * later.sum() if len(later) else 1.0
        noise = (1.0 / np.sqrt(np.append(first, later))).tolist()
        return Schedule(noise, {**self._columns.budget(tuned.LINEAR_CURVATURE), "last": tuned.LINEAR_LAST})

    def init(self, rng: np.random.Generator) -> LinearIterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        constant = np.eye(1, len(one))[0] / self.intercept if self.intercept > 0 else zero
        moments = RowMoments(np.eye(self.n_features), one, one, one, constant, 1.0, 1.0)
        return LinearIterate.start(Scaling.start(self._columns), moments)

    def e_step(self, q: LinearIterate, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        scaling, columns = q.scaling, self._columns
        if blocks.keys() <= {"means", "spread"}:
            return columns.contributions(batch.x_nd[:, columns.read_r], batch.y_n, scaling.mean_d, blocks)
        if "curvature" in blocks:
            x_nd = mapped(batch.x_nd, scaling.forth(columns)) / scaling.room
            weight_n = 1.0 / np.maximum(upper_norms(x_nd), 1.0) ** 2
            if self.intercept == 0:
                rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
                x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
            return {"curvature": Gram(x_nd, weight_n)}
        matrix = np.vstack([scaling.forth(columns), q.moments.basis_de / q.moments.scale_e])
        rows = batch.derived(measured, matrix)
        residual_n = batch.y_n - row_sums(rows.x_nd, q.moments.scale_e * q.point_e)
        weight_n = 1.0 / np.maximum(rows.length_n, 1.0)
        if "score" in blocks:
            clipped_n = np.clip(residual_n / q.clip, -1.0, 1.0)
            return {"score": ScaledRows(rows, weight_n * clipped_n), "residual": Rows(one_hot(residual_n))}
        excess_n = np.where(np.isnan(residual_n), np.nan, np.clip(rows.length_n - 1.0, 0.0, 1.0))
        square_n = np.minimum(np.abs(residual_n) / q.reach, 1.0) ** 2
        return {
            "curvature_at_mean": Gram(rows.x_nd, weight_n**2),
            "excess": Rows(excess_n[:, None]),
            "square": Rows(square_n[:, None]),
        }

    def m_step(self, s: Estimate, q: LinearIterate) -> LinearIterate:
        """The map to x̂; coordinates; the posterior after each score; curvature and σ² after the last."""
        if "curvature_at_mean" in s.names:
            return self._path.finished(s, q)
        if "curvature" in s.names:
            return self._path.stepped(s, q) if "score" in s.names else self._path.started(s, q)
        return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))

    def weights(self, q: LinearIterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return self._path.predictions(q)

    def table(self, q: LinearIterate) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return self._path.table(q)

    def scale(self, q: LinearIterate) -> tuple[float, float]:
        """σ², and the standard deviation of its error."""
        return q.variance, q.variance_std

    def reach(self, q: LinearIterate) -> float:
        """The most that a residual counts in σ²."""
        return q.reach
