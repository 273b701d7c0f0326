"""Regression on many sparse columns: a diagonal once, then first order; unit: a row.

    m_d ~ N(m_0, ω_d²/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   α estimated

Numeric columns are brought to units of their own spread first (`scaling`) and stand first (`numbers_first`). Unlike
in `first_order` no matrix is released: the columns' second moments, one vector, give scales and majoriser.

==================  =============================================================================
paper               code
==================  =============================================================================
b                   likelihood.size: a row's trials, or 1
D, h, N             columns.second_d, sum_d, number: Σ b x_j², Σ b x_j, Σ b; see `columns`
s                   scale_d: the score is released in coordinates x̃ = x / s
w = min(1, 1/‖x̃‖)   in residual_n: bounds the score and leaves its equation unbiased
m_0                 start_d: prior mean, the base rate on the intercept
k                   usual: ¼ for log odds; for counts the curvature at the base rate, or along the steps
f                   descent.safety: a step's majoriser is k(f·diag(D - h²/N) + hhᵀ/N); see `descent`
u_t, ū, Ḡ           descent.point_d, mean.point_d, mean.score_d (scores at the points, averaged)
==================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError
from dpvb.models.regression import base_rate, columns, tuned
from dpvb.models.regression.batch import SparseRegressionBatch
from dpvb.models.regression.declared import Declared, check_fields
from dpvb.models.regression.descent import Average, Descent
from dpvb.models.regression.iterate_diagonal import Iterate
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.multiplicity import bounded, times
from dpvb.models.regression.numbers_first import dense, numbers_first, order
from dpvb.models.regression.scaling import Scaling
from dpvb.models.regression.weights import Weights


@dataclass(frozen=True)
class FirstOrderDiagonal:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        column_bound: bounds a_j of the columns' absolute values, a number or (d,).
        num_steps: T, number of scores.
        alpha: precision of the prior of the weights of x; None: estimated, in units of the columns.
        declared: what is public about the columns; None: no column is numeric.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    column_bound: float | Floats = 1.0
    num_steps: int = 80
    alpha: float | None = None
    declared: Declared | None = None

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha, self.declared)
        bound = np.asarray(self.column_bound)
        if bound.shape not in ((), (self.n_features,)) or not np.all((bound >= 1e-6) & (bound <= 1)):
            raise ParameterError(f"column_bound must be a number in [1e-6, 1], or {self.n_features} of them.")

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _order(self) -> NDArray[np.intp]:
        return order(self._columns, self.intercept)

    @property
    def _bound_d(self) -> Floats:
        """Bounds on the columns of x̂: what a numeric one rarely exceeds."""
        bound_d = np.array(np.broadcast_to(self.column_bound, self.n_features))
        bound_d[self._columns.numeric_j] = min(tuned.NUMERIC_BOUND * self._columns.size(self.intercept), 1.0)
        return np.asarray(bound_d[self._order])

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; counts and second moments; a score with two scalars at each step."""
        b, shape, early = self.likelihood.max_size, (self.n_features,), self._columns.blocks
        features = math.sqrt((1 - self.intercept) * (1 + self.intercept))
        count, second = math.sqrt(tuned.DIAGONAL_COUNT_BUDGET), math.sqrt(tuned.DIAGONAL_SECOND_BUDGET)
        then: Literal["first", "third"] = "third" if early else "first"
        found = {
            **early,
            "count": base_rate.block(self.likelihood, 2, then, count),
            "second": Block(shape, b * features, "nonnegative", then, weight=second),
            "score": Block(shape, self.likelihood.max_residual, average=False),
            "variance": Block((2,), b * math.sqrt(2), "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT),
        }
        return bounded(found, self.likelihood)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        return Schedule(noise, self._columns.budget(tuned.DIAGONAL_COUNT_BUDGET + tuned.DIAGONAL_SECOND_BUDGET))

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        unread = columns.Columns(one, zero, one, 1.0, one > 0)
        scaling, descent = Scaling.start(self._columns), Descent.start(zero, tuned.FIRST_SAFETY)
        return Iterate(scaling, unread, one, zero, descent, Average(zero, zero), scaling.width_d[self._order])

    @times
    def e_step(self, q: Iterate, batch: SparseRegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for; a row's sums run over its entries in their order."""
        if blocks.keys() <= {"means", "spread"}:
            x_nr = dense(self._columns, batch)
            return self._columns.contributions(x_nr, batch.y_n, q.scaling.mean_d, blocks)
        batch = numbers_first(q.scaling, self._columns, batch, self.intercept)
        row = np.repeat(np.arange(n := len(batch.y_n)), np.diff(batch.indptr))
        b_n = self.likelihood.size(batch.y_n, batch.trials_n)
        entries = SparseRows(batch.indptr, batch.indices, batch.values)
        if "second" in blocks:
            free = batch.values / q.scaling.room * ((batch.indices > 0) | (self.intercept == 0))
            weight_n = 1.0 / np.maximum(np.bincount(row, free * free, n), 1.0)
            square = free * free / self._bound_d[batch.indices] * (weight_n * b_n)[row]
            return {
                "count": Rows(weight_n[:, None] * base_rate.added(self.likelihood, batch, 2)),
                "second": replace(entries, values=square),
            }
        scaled = batch.values / q.scale_d[batch.indices]
        norm_n = np.sqrt(np.bincount(row, scaled * scaled, n))
        psi_n = np.asarray(np.bincount(row, batch.values * q.descent.point_d[batch.indices], n), dtype=np.float64)
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n) / np.maximum(norm_n, 1.0)
        variance_n = self.likelihood.curvature(psi_n, b_n)
        trimmed_n = np.minimum(norm_n, tuned.TRIM) / tuned.TRIM
        square_n = np.minimum(norm_n, 1.0) * np.stack([trimmed_n, np.minimum(norm_n, 1.0)])
        score = replace(entries, values=scaled * residual_n[row])
        return {"score": score, "variance": Rows((variance_n * square_n).T)}

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """Scales and prior mean after the first release, one majorised step after each score."""
        if "second" in s.names:
            return self._stepped(s, q) if "score" in s.names else self._started(s, q)
        return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))

    def _started(self, s: Estimate, q: Iterate) -> Iterate:
        """Scales, majoriser and prior mean from the first release."""
        yes, no, *shares = s.read("count")
        least = max(tuned.NUMBER_STD * s.noise_std("count"), tuned.LEAST_NUMBER * self.likelihood.max_y)
        number, base = max(yes + no, least) / self.likelihood.most, 0.0
        sd, scaling, room = s.noise_std("second"), q.scaling, q.scaling.room
        mean_d = (scaling.mean_d * scaling.factor_d * (self.intercept == 0))[self._columns.numeric_j]
        moments = columns.read(room**2 * s.read("second"), sd, self._bound_d, number, self.intercept, mean_d)
        second_d, scale_d, start_d = moments.second_d, np.full(self.n_features, room), np.zeros(self.n_features)
        if self.intercept > 0:
            least = tuned.LEAST_BASE_RATE
            rate = float(np.clip((yes + 1) / (number + 2), least, 1 - least))
            base = math.log(max((yes + 1) / (number + 1), least)) if self.likelihood.is_count else float(logit(rate))
            offset, _ = base_rate.shift(self.likelihood, shares, s.noise_std("count"), number)
            start_d[0] = (base - offset) / self.intercept
        usual = self.likelihood.usual(base)
        if sd > 0:
            scale_d = second_d ** (tuned.DIAGONAL_SCALE_POWER / 2)
            length2 = float(np.sum(second_d / scale_d**2) / np.sum(second_d))
            scale_d *= math.sqrt(length2) / tuned.DIAGONAL_SCALE_SHRINK
        descent, width_d = Descent.start(start_d, tuned.FIRST_SAFETY), scaling.width_d[self._order]
        if self.alpha is not None:
            width_d = 1.0 / scaling.factor_d[self._order]
        nothing = Average(start_d, 0 * start_d)
        start = Iterate(scaling, moments, scale_d, start_d, descent, nothing, width_d, alpha=self.alpha or 1.0)
        return replace(start, usual=usual, most=self.likelihood.steepest / usual)

    def _stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """A majorised step from a score; ratios, average and α are brought up to date first."""
        t, sd, score_d = q.step + 1, s.noise_std("score"), q.scale_d * s.read("score")
        trace = float(np.sum(q.columns.second_d / q.scale_d**2))
        ratios = q.most * s.read("variance")[:, None] * ((tuned.TRIM,), (1.0,)) / trace
        ratios = np.clip(ratios, tuned.LEAST_RATIO, q.most)
        ratios = q.ratios + (2 / (t + 1) if sd > 0 else 1.0) * (ratios - q.ratios)
        fresh = t < tuned.DIAGONAL_AVERAGE_START * self.num_steps or q.descent.num_steps == 0
        mean = (Average(q.start_d, score_d) if fresh else q.mean).joined(q.descent.point_d, score_d, sd**2)
        q = replace(q, step=t, ratios=ratios, mean=mean)
        q = replace(q, alpha=self.alpha or q.precision(self.intercept))
        majoriser = q.majoriser(self.intercept)
        gradient_d = score_d - majoriser.ridge_d * (q.descent.point_d - q.start_d)
        return replace(q, descent=q.descent.step(score_d, gradient_d, (sd * q.scale_d) ** 2, majoriser))

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return q.predictions(self._columns, self.intercept, self._order)

    def table(self, q: Iterate) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return q.table(self._columns, self.intercept, self.alpha, self._order)
