"""Two readings of a first-order regression: a posterior for predictions, and one for intervals.

Predictions gain from a width τ of the prior that is estimated. An interval does not: where noise hides scales, the
estimate falls towards 0, and takes the interval with it. Everything here is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.regression import ridge, saturation, tuned
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.iterate import Iterate
from dpvb.models.regression.known import Known
from dpvb.models.regression.weights import Weights


@dataclass(frozen=True)
class Readings:
    """What is read from a state; vectors (e,) are in the eigenbasis of its moments.

    Attributes:
        q: the state.
        declared: what is public about the columns.
        intercept: value of column 0 in every row; 0: there is no such column.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
    """

    q: Iterate
    declared: Declared
    intercept: float
    alpha: float | None

    def prior(
        self, width_d: Floats, taus: tuple[float, ...], intercept_std: float = tuned.INTERCEPT_STD
    ) -> ridge.Prior:
        """The prior of m - m_0 in the eigenbasis.

        Args:
            width_d: standard deviation of each weight of x̂ at τ = 1.
            taus: values of τ.
            intercept_std: standard deviation of the mean of ψ over rows.
        """
        basis_de, drift = self.q.moments.basis_de, np.outer(self.q.drift_e, self.q.drift_e)
        if self.alpha is not None:
            forth_dd = np.linalg.inv(self.q.scaling.back(self.declared, self.intercept)).T @ basis_de
            return ridge.Prior(np.zeros_like(drift), forth_dd.T @ forth_dd / self.alpha + drift, (1.0,))
        constant_d, mean_d = basis_de @ self.q.moments.constant_e, basis_de @ self.q.moments.mean_e
        free_d = np.where(np.arange(len(width_d)) < (self.intercept > 0), 0.0, width_d)
        prior = ridge.Prior.of(free_d, mean_d, constant_d, intercept_std, taus).turned(basis_de)
        return replace(prior, fixed_ee=prior.fixed_ee + drift)

    def beside(self) -> Known | None:
        """What is known beside the rows of m - m_0 in the eigenbasis."""
        return self.q.known[0].turned(self.back_de, self.back_de @ self.q.start_e) if self.q.known else None

    @cached_property
    def back_de(self) -> Floats:
        """The map from weights in the eigenbasis to those of x."""
        return self.q.scaling.back(self.declared, self.intercept) @ self.q.moments.basis_de

    def predictions(self, is_count: bool) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x: τ is estimated and averaged over."""
        prior = self.prior(self.q.scaling.width_d, ridge.TAUS)
        score = self._score(self.q.curvature_ee, self.q.known[:1])
        return self._posterior(score, 0 * self.q.error_ee, 0 * self.q.doubt_e, prior, is_count)

    def table(self, is_count: bool) -> Weights:
        """Posterior of the weights for intervals: τ is fixed, spreads are at their low end, the curvature may err."""
        scaling, back_de = self.q.scaling, self.back_de
        prior = self.prior(scaling.wide_d, (tuned.TABLE_TAU,))
        score = self._score(self.q.table_ee, self.q.known[1:])
        found = self._posterior(score, self.q.error_ee, self.q.doubt_e, prior, is_count)
        prior_dd = back_de @ prior.covariance(prior.taus[0]) @ back_de.T
        return replace(found, prior=prior_dd, unseen_d=scaling.unseen_d, centre_d=scaling.centre_d)

    def _posterior(
        self,
        score: ridge.NoisyScore,
        error_ee: Floats,
        doubt_e: Floats,
        prior: ridge.Prior,
        is_count: bool,
    ) -> Weights:
        """A Newton step from the averages, moved for saturation, in the coordinates of x."""
        moments, scale_e = self.q.moments, self.q.moments.scale_e
        prior = prior.turned(np.diag(scale_e))
        score = ridge.honest(score, prior, error_ee, doubt_e)
        mean_e, aware_ee = ridge.posterior(score, prior)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        change = float(scale_e * moments.constant_e @ score.slope_ee @ (mean_e - score.offset_e)) / moments.number
        m_e = self.q.start_e + mean_e / scale_e
        if not is_count:
            m_e += saturation.shift(moments, self.q.mean.point_d, m_e, change, self.q.offset) * moments.constant_e
        x_de = self.back_de / scale_e
        found = Weights.alone(self.back_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
        data = score.information().turned(np.asarray(np.linalg.inv(x_de)), -scale_e * self.q.start_e)
        return replace(found, data=data)

    def _score(self, curvature_ee: Floats, known: tuple[Known, ...]) -> ridge.NoisyScore:
        """The averaged score, in the coordinates x̃, beside what is known."""
        mean, scale_e, start_e = self.q.mean, self.q.moments.scale_e, self.q.start_e
        known = tuple(one.turned(self.back_de / scale_e, self.back_de @ start_e) for one in known)
        offset_e = scale_e * (mean.point_d - start_e)
        return ridge.NoisyScore(mean.score_d / scale_e, offset_e, curvature_ee, self.q.steep_e, mean.noise, known)

    def learned(self) -> Dispersion:
        """The dispersion, without what the way from the averages to the weights adds to that of its score."""
        scale_e = self.q.moments.scale_e
        prior = self.prior(self.q.scaling.wide_d, (tuned.TABLE_TAU,))
        prior = prior.turned(np.diag(scale_e))
        score = self._score(self.q.table_ee, self.q.known[1:])
        score = ridge.honest(score, prior, self.q.error_ee, self.q.doubt_e)
        mean_e, covariance_ee = ridge.posterior(score, prior)
        share_e, way_e = self.q.moments.eigenvalue_e / scale_e**2 / self.q.moments.number, mean_e - score.offset_e
        spread_ee = share_e[:, None] * covariance_ee
        added = float(share_e @ way_e**2 + np.trace(spread_ee))
        error = float(2.0 * np.sum(spread_ee * spread_ee.T) + 4.0 * (share_e * way_e) @ spread_ee.T @ way_e)
        return self.q.dispersion.without(added, error)
