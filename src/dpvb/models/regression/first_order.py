"""Regression: curvature once, then first order; unit: a row.

    m ~ N(m_0, C_τ),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   τ estimated

Numeric columns are brought to units of their own spread first (`scaling`). Σ b x xᵀ, b a row's size (its trials, or 1),
is released once. It gives coordinates x̃ = Uᵀx / s, in which every step releases a score of d numbers, and a majoriser:
for log odds that of Pólya-Gamma augmentation (Polson, Scott & Windle 2013), for counts the curvature up to the mode.
Below, ⟨ξ⟩ and b p(1-p) stand for both, over ¼; counts have h(max(μ, y)) and h(μ) = μ/(1 + μ/r), over `steepest`. The
averaged scores give a Newton step at the end: see `iterate`.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, λ⁺, s          moments.basis_de, eigenvalue_e, eigenvalue_upper_e, scale_e: read from Σ b x xᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e: prior mean, the base rate along the constant direction
k                    usual: ¼ for log odds; for counts the curvature at the base rate
k c^ξ λ⁺             ratio_xi · eigenvalue_upper_e, the step's majoriser, estimates Σ ⟨ξ⟩ x xᵀ
k c λ                information_e estimates Σ b p(1-p) x xᵀ; c is read from block "variance", c^ξ from "xi"
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
v = 1/Σμ_t²          mean.noise: variance of the averaged score, equal in all coordinates x̃
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
from dpvb.core.forms import Gram, MeasuredRows, Rows, ScaledRows, turned
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import base_rate, dispersion, tuned
from dpvb.models.regression.batch import RegressionBatch
from dpvb.models.regression.curvature import RowMoments
from dpvb.models.regression.declared import Declared, check_fields
from dpvb.models.regression.dispersion import Dispersion
from dpvb.models.regression.iterate import Iterate
from dpvb.models.regression.known import Known
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.multiplicity import bounded, times
from dpvb.models.regression.path import Path
from dpvb.models.regression.readings import Readings
from dpvb.models.regression.scaling import Scaling, mapped
from dpvb.models.regression.weights import Weights


@dataclass(frozen=True)
class FirstOrder:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        num_steps: T, number of scores.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
        declared: what is public about the columns; None: no column is numeric.
        known: what is known of the weights of x beside these rows, read for predictions and for intervals; or nothing.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    num_steps: int = 16
    alpha: float | None = None
    declared: Declared | None = None
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha, self.declared)

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _path(self) -> Path:
        return Path(self.likelihood, self.intercept, self.num_steps, self.alpha, self._columns, self.known)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; responses and curvature; scores, each with two scalars; the last."""
        d, b, wide = self.n_features, self.likelihood.max_size, self.n_features + (self.intercept == 0)
        scalar = Block((1,), b, "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT)
        score_of_r = Block((1,), tuned.SCORE_BOUND, average=False, weight=tuned.DISPERSION_WEIGHT)
        learned = {
            "dispersion": score_of_r,
            "dispersion_at_mean": replace(score_of_r, phase="last", weight=tuned.LAST_DISPERSION),
        }
        early = self._columns.blocks
        then: Literal["first", "third"] = "third" if early else "first"
        blocks = {
            **early,
            "count": base_rate.block(self.likelihood, 1, then, math.sqrt(tuned.COUNT_BUDGET)),
            "curvature": Block((wide, wide), b, "gram", then, weight=math.sqrt(tuned.CURVATURE_BUDGET)),
            "score": Block((d,), self.likelihood.max_residual, average=False),
            "xi": scalar,
            "variance": scalar,
            "curvature_at_mean": Block((d, d), b / 4, "gram", "last"),
            "long": Block((d,), tuned.LONGEST * b / 4, "nonnegative", "last", weight=tuned.LONG_WEIGHT),
            **(learned if self.likelihood.learns_dispersion else {}),
        }
        return bounded(blocks, self.likelihood)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        early = self._columns.budget(tuned.COUNT_BUDGET + tuned.CURVATURE_BUDGET)
        learned = tuned.DISPERSION_BUDGET if self.likelihood.learns_dispersion else 0.0
        return Schedule(noise, {**early, "last": tuned.LAST_BUDGET + learned})

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        constant = np.eye(1, len(one))[0] / self.intercept if self.intercept > 0 else zero
        moments = RowMoments(np.eye(self.n_features), one, one, one, constant, 1.0, 1.0)
        return Iterate.start(Scaling.start(self._columns), moments, zero, zero)

    @times
    def e_step(self, q: Iterate, batch: RegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for."""
        likelihood, scaling, columns = self.likelihood.at(q.dispersion.r), q.scaling, self._columns
        b_n = likelihood.size(batch.y_n, batch.trials_n)
        if blocks.keys() <= {"means", "spread"}:
            return columns.contributions(batch.x_nd[:, columns.read_r], batch.y_n, scaling.mean_d, blocks)
        if "curvature" in blocks:
            x_nd = mapped(batch.x_nd, scaling.forth(columns)) / scaling.room
            weight_n = 1.0 / np.maximum(upper_norms(x_nd), 1.0) ** 2
            if self.intercept == 0:
                rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
                x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
            y_nc = base_rate.added(likelihood, batch, 1)
            return {"count": Rows(weight_n[:, None] * y_nc), "curvature": Gram(x_nd, weight_n * b_n)}
        last = "curvature_at_mean" in blocks
        matrix = np.vstack([scaling.forth(columns), q.moments.basis_de / q.moments.scale_e])
        x_ne, length_n = (rows := batch.derived(_turned, matrix)).x_nd, rows.length_n
        psi_n = row_sums(x_ne, q.moments.scale_e * (q.middle_e(self.likelihood) if last else q.point_e))
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        weight_n = 1.0 / np.maximum(length_n, 1.0)
        variance_n = likelihood.curvature(psi_n, b_n)
        learned = {}
        if self.likelihood.learns_dispersion:
            u_n = dispersion.score(batch.y_n, likelihood.expected(psi_n), likelihood.r)
            learned = {"dispersion_at_mean" if last else "dispersion": Rows(u_n[:, None])}
        if last:
            variance_n *= 0.25
            long_n = variance_n * weight_n**2 * np.clip(length_n - 1.0, 0.0, tuned.LONGEST)
            curvature = Gram(x_ne, variance_n * weight_n**2)
            return {"curvature_at_mean": curvature, "long": Rows(long_n[:, None] * x_ne**2), **learned}
        residual_n = likelihood.residual(psi_n, batch.y_n, batch.trials_n)
        trace_n = (weight_n * length_n) ** 2
        return {
            "score": ScaledRows(rows, weight_n * residual_n),
            "xi": Rows((likelihood.majoriser(psi_n, batch.y_n, b_n) * trace_n)[:, None]),
            "variance": Rows((variance_n * trace_n)[:, None]),
            **learned,
        }

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """The map to x̂; coordinates; one majorised step after each score; the curvature after the last."""
        if "curvature_at_mean" in s.names:
            steepest = 4.0 * self.likelihood.at(q.dispersion.r).steepest
            q = self._path.dispersed(s, q, "dispersion_at_mean", q.middle_e(self.likelihood), fresh=True)
            names = ("curvature_at_mean", "long")
            (curvature_ee, long_e), stds = zip(*((s.read(name), s.noise_std(name)) for name in names), strict=True)
            stds = (steepest * stds[0], steepest * stds[1], s.noise_std("curvature"))
            return q.finished(steepest * curvature_ee, steepest * long_e, stds, self.likelihood, self.intercept)
        if "curvature" in s.names:
            return self._path.stepped(s, q) if "score" in s.names else self._path.started(s, q, self._score_noise)
        return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))

    def _score_noise(self, sd: float) -> float:
        """Noise variance of the averaged score, from the noise std of the curvature: both are of one budget."""
        steps = (1.0 - math.fsum(self.schedule.budget.values())) / (1.0 + 2.0 * tuned.SCALAR_WEIGHT**2)
        return (sd * self.likelihood.max_residual / self.likelihood.max_size) ** 2 * tuned.CURVATURE_BUDGET / steps

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return self._readings(q).predictions(self.likelihood.is_count)

    def table(self, q: Iterate) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return self._readings(q).table(self.likelihood.is_count)

    def learned(self, q: Iterate) -> Dispersion:
        """Posterior of the logarithm of a dispersion that is learned."""
        return self._readings(q).learned()

    def _readings(self, q: Iterate) -> Readings:
        return Readings(q, self._columns, self.intercept, self.alpha)


def _turned(x_nd: Floats, matrix_de: Floats) -> MeasuredRows:
    """Rows x̂ in the coordinates of the score, measured; the map to x̂ is the matrix's first rows."""
    return turned(mapped(x_nd, matrix_de[: x_nd.shape[1] + 2]), matrix_de[x_nd.shape[1] + 2 :])
