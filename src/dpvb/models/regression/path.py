"""The path of a first-order regression: where it starts, and a majorised step after each score; see `first_order`.

Everything here is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.guards.arrays import Floats
from dpvb.models.regression import descent, ridge, tuned
from dpvb.models.regression.base_rate import is_shifted, log_odds, log_rate, shift
from dpvb.models.regression.curvature import Tracked, read_moments
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.iterate import Iterate
from dpvb.models.regression.known import Known
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.readings import Readings


@dataclass(frozen=True)
class Path:
    """What a path needs of its model; public, as in `FirstOrder`."""

    likelihood: Likelihood
    intercept: float
    num_steps: int
    alpha: float | None
    columns: Declared
    known: tuple[Known, ...]

    def started(self, s: Estimate, q: Iterate, score_noise: Callable[[float], float]) -> Iterate:
        """Coordinates, majoriser and prior mean from the release of the curvature.

        Args:
            s, q: as in an M-step.
            score_noise: noise variance of the averaged score, from the noise std of the curvature.
        """
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        sd, room, scaling = s.noise_std("curvature"), q.scaling.room, q.scaling
        noisy_dd = room**2 * s.read("curvature")
        if self.intercept > 0:
            scaling, noisy_dd = scaling.recentred(self.columns, noisy_dd, sd, self.intercept)
        moments = read_moments(noisy_dd, sd, column, inner=inner, room=room)
        link = log_rate if self.likelihood.is_count else log_odds
        total_c, sd_c = s.read("count"), s.noise_std("count")
        base, spread = link(float(total_c[0]), sd_c, moments.number)
        likelihood = self.likelihood.at(q.dispersion.r)
        usual = likelihood.usual(base)
        if len(self.columns.numeric_j):
            noise = score_noise(sd) * 0.25 / usual
            moments = moments.roomier(moments.affordable(noise) if sd > 0 else room)
        if self.intercept > 0 and sd > 0:
            scaling = scaling.certain(self.columns, noisy_dd, moments.matrix_dd, sd, self.intercept)
        offset, error = shift(likelihood, total_c[1:].tolist(), sd_c, moments.number)
        drift = math.hypot(spread, error)
        start = Iterate.start(scaling, moments, (base - offset) * moments.constant_e, drift * moments.constant_e)
        if is_shifted(likelihood) and likelihood.is_count:
            # Where rows differ from the start, one noisy reading of how steep it is there led paths astray.
            start = replace(start, ratios=Tracked(np.ones(2), tuned.START_RATIO_STD**2))
        start = replace(start, usual=usual, most=likelihood.steepest / usual, offset=offset, known=self.known)
        read = self._readings(start)
        if (known := read.beside()) is None:
            return start
        prior = read.prior(scaling.width_d, (tuned.TAU_MEDIAN,))
        precision_ee = ridge.inverse(prior.covariance(prior.taus[0]))[0] + known.precision
        point_e = start.start_e + np.linalg.solve(precision_ee, known.pull_d)
        return replace(start, point_e=point_e, last_e=point_e)

    def stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """Majorise-minimise with momentum; what the averages do not see through their noise moves less."""
        moments, scale_e, sd, late = q.moments, q.moments.scale_e, s.noise_std("score"), q.step / self.num_steps
        is_count, score_e, step = self.likelihood.is_count, scale_e * s.read("score"), q.step + 1
        total = moments.measured if is_count else moments.total
        reading = q.most / total * np.append(s.read("variance"), s.read("xi"))
        ratios = q.ratios.seen(reading, (q.most * s.noise_std("xi") / total) ** 2)
        least = tuned.LEAST_VARIANCE_RATIO, tuned.LEAST_XI_RATIO
        ratio, ratio_xi = q.usual * np.clip(ratios.value, least, q.most)
        may_swing = not is_count and late < tuned.AVERAGE_ANEW
        fresh = sd == 0 or late < tuned.AVERAGE_START or (may_swing and q.far(ratio))
        mean = (descent.Average(q.start_e, score_e) if fresh else q.mean).joined(q.point_e, score_e, sd**2)
        information_e, noise_e = ratio * moments.eigenvalue_e, mean.noise * scale_e**2
        upper_e, gain_e = ratio * moments.eigenvalue_upper_e, information_e / (information_e + noise_e)
        newton_e = mean.point_d - q.start_e + mean.score_d / upper_e
        near = tuned.COUNT_PATH_STD if is_count and sd > 0 else tuned.INTERCEPT_STD
        prior = self._readings(q).prior(q.scaling.width_d, ridge.TAUS, near)
        tau = ridge.best_scale(newton_e, (information_e + noise_e) / upper_e**2, prior)
        precision_ee, _ = ridge.inverse(prior.covariance(tau))
        gradient_e = gain_e * score_e
        if (known := self._readings(q).beside()) is not None:
            precision_ee, gradient_e = precision_ee + known.precision, gradient_e + known.pull_d
        gradient_e -= precision_ee @ (q.point_e - q.start_e)
        guard = q.guard.after(max(float(np.mean((gradient_e / gain_e / scale_e) ** 2)), sd**2))
        bound_e, fresh_e = guard.safety * ratio_xi * moments.eigenvalue_upper_e, (sd * scale_e) ** 2
        steepness = q.steepness.seen(q.point_e, score_e, fresh_e, bound_e * q.steepness.factor_e)
        precision_ee.flat[:: len(gain_e) + 1] += gain_e * bound_e * steepness.factor_e
        last_e = q.point_e + np.linalg.solve(precision_ee, gradient_e)
        # A majoriser that has grown just now begins without momentum.
        grown = guard.safety > q.guard.safety or (steepness.factor_e > q.steepness.factor_e).any()
        point_e = last_e + (0.0 if grown else min(step / (step + 3), tuned.LARGEST_MOMENTUM)) * (last_e - q.last_e)
        if is_count and sd > 0:
            # A mean is no straight line in ψ: the next score is taken where all scores so far lead, which wanders less.
            found_e = guard.safety * steepness.factor_e * information_e
            way_e, one_e = mean.point_d - q.start_e, np.ones(len(found_e))
            score = ridge.NoisyScore(mean.score_d, way_e, np.diag(found_e), one_e, noise_e, [known] if known else [])
            step_e = q.start_e + ridge.posterior(score, replace(prior, taus=(tau,)))[0] - q.point_e
            # One noisy reading of the curvature must not send the path to where every mean is at its bound.
            length = math.sqrt(float(moments.eigenvalue_e @ step_e**2) / moments.number)
            point_e = last_e = q.point_e + step_e * min(1.0, tuned.COUNT_REACH / max(length, 1e-300))
        guess_ee = np.diag(moments.weighted(float(ratios.value[0]), q.usual, q.most, total))
        q = self.dispersed(s, q, "dispersion", q.point_e, fresh=fresh)
        path = replace(q, mean=mean, guard=guard, ratios=ratios, step=step, steepness=steepness)
        return replace(path, point_e=point_e, last_e=last_e, curvature_ee=guess_ee, table_ee=guess_ee)

    def _readings(self, q: Iterate) -> Readings:
        return Readings(q, self.columns, self.intercept, self.alpha)

    def dispersed(self, s: Estimate, q: Iterate, block: str, point_e: Floats, *, fresh: bool) -> Iterate:
        """With the dispersion after its score at a point, if it is learned."""
        if not self.likelihood.learns_dispersion:
            return q
        moments, noise = q.moments, s.noise_std(block) ** 2
        psi = moments.log_odds(point_e)
        psi = psi[0] + q.offset, psi[1]
        found = q.dispersion.after(float(s.read(block)[0]), noise, moments.number, psi, fresh=fresh)
        # Of the shares of the steepest curvature that the next query returns, `most` is what makes factors of `usual`.
        return replace(q, dispersion=found, most=self.likelihood.at(found.r).steepest / q.usual)
