"""The path of a linear regression: where it starts, a posterior after each score, and its two readings; see `linear`.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.guards.arrays import Floats
from dpvb.models.regression import collinear, ridge, tuned
from dpvb.models.regression.at_mean import read_at_mean
from dpvb.models.regression.curvature import RowMoments, read, read_moments
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.known import Known
from dpvb.models.regression.linear_iterate import LinearIterate
from dpvb.models.regression.residuals import EDGES, Residuals, Sizes
from dpvb.models.regression.scaling import Scaling
from dpvb.models.regression.weights import Weights


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
        moments = read_moments(noisy_dd, sd, column, inner=inner, reading=collinear.read, room=room)
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
        curvature_ee = read(noisy_ee, guess_ee, sd, min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd))
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
