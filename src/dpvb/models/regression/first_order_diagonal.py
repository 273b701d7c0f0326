"""Regression with binomial likelihoods on many sparse columns: a diagonal once, then first order; unit: a row.

    m ~ N(m_0, I/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   α estimated

Unlike in `first_order` no matrix is released: the columns' second moments, one vector, give scales and majoriser.

==================  =============================================================================
paper               code
==================  =============================================================================
D, h, N             columns.second_d, sum_d, number: Σ b x_j², Σ b x_j, Σ b; see `columns`
s                   scale_d: the score is released in coordinates x̃ = x / s
w = min(1, 1/‖x̃‖)   in residual_n: bounds the score and leaves its equation unbiased
m_0                 start_d: prior mean, the base rate on the intercept
f                   descent.safety: a step's majoriser is ¼(f·diag(D - h²/N) + hhᵀ/N); see `descent`
A = ¼ c D           information_d: Σ w b p(1-p) x_j², c from the block "variance"
B + v               variance_d of the averaged score: B = Σ w² b p(1-p) x_j², v = mean.noise · s²
u_t, ū, Ḡ           descent.point_d, mean.point_d, mean.score_d (scores at the points, averaged)
==================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit, logit

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Positives
from dpvb.guards.errors import ParameterError
from dpvb.models.regression import columns, tuned
from dpvb.models.regression.batch import SparseRegressionBatch
from dpvb.models.regression.descent import Average, Descent, DiagonalAndConstant
from dpvb.models.regression.likelihood import Likelihood, Weights, check_fields


@dataclass(frozen=True)
class Iterate:
    """State of the fit; all public; vectors over columns, (d,). `ratios`, (2, 1), are A and B over ¼D."""

    columns: columns.Columns
    scale_d: Positives
    start_d: Floats
    descent: Descent
    mean: Average
    ratios: Positives = field(default_factory=lambda: np.full((2, 1), tuned.FIRST_RATIO))
    alpha: Positive = 1.0
    step: int = 0


@dataclass(frozen=True)
class FirstOrderDiagonal:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        column_bound: bounds a_j of the columns' absolute values, a number or (d,).
        num_steps: T, number of scores.
        alpha: precision of the prior; None: estimated from the releases.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    column_bound: float | Floats = 1.0
    num_steps: int = 80
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.num_steps, self.intercept, self.alpha)
        bound = np.asarray(self.column_bound)
        if bound.shape not in ((), (self.n_features,)) or not np.all((bound >= 1e-6) & (bound <= 1)):
            raise ParameterError(f"column_bound must be a number in [1e-6, 1], or {self.n_features} of them.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Counts and second moments first; a score with two scalars at each step."""
        b, shape = self.likelihood.max_b, (self.n_features,)
        features = math.sqrt((1 - self.intercept) * (1 + self.intercept))
        count, second = math.sqrt(tuned.DIAGONAL_COUNT_BUDGET), math.sqrt(tuned.DIAGONAL_SECOND_BUDGET)
        return {
            "count": Block((2,), b, "nonnegative", "first", weight=count),
            "second": Block(shape, b * features, "nonnegative", "first", weight=second),
            "score": Block(shape, self.likelihood.max_residual, average=False),
            "variance": Block((2,), b * math.sqrt(2), "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT),
        }

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]
        return Schedule(noise, {"first": tuned.DIAGONAL_COUNT_BUDGET + tuned.DIAGONAL_SECOND_BUDGET})

    def init(self, rng: np.random.Generator) -> Iterate:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        unread = columns.Columns(one, zero, one, 1.0, one > 0)
        return Iterate(unread, one, zero, Descent.start(zero, tuned.FIRST_SAFETY), Average(zero, zero))

    def e_step(self, q: Iterate, batch: SparseRegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row contributes to the blocks asked for; a row's sums run over its entries in their order."""
        row = np.repeat(np.arange(n := len(batch.y_n)), np.diff(batch.indptr))
        b_n = self.likelihood.b(batch.y_n, batch.trials_n)
        entries = SparseRows(batch.indptr, batch.indices, batch.values)
        if "second" in blocks:
            free = batch.values * ((batch.indices > 0) | (self.intercept == 0))
            square = free * free / np.broadcast_to(self.column_bound, self.n_features)[batch.indices] * b_n[row]
            return {
                "count": Rows(np.stack([batch.y_n, b_n - batch.y_n], axis=1)),
                "second": replace(entries, values=square),
            }
        scaled = batch.values / q.scale_d[batch.indices]
        norm_n = np.sqrt(np.bincount(row, scaled * scaled, n))
        psi_n = np.asarray(np.bincount(row, batch.values * q.descent.point_d[batch.indices], n), dtype=np.float64)
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n) / np.maximum(norm_n, 1.0)
        variance_n = 4.0 * b_n * expit(psi_n) * expit(-psi_n)
        trimmed_n = np.minimum(norm_n, tuned.TRIM) / tuned.TRIM
        square_n = np.minimum(norm_n, 1.0) * np.stack([trimmed_n, np.minimum(norm_n, 1.0)])
        score = replace(entries, values=scaled * residual_n[row])
        return {"score": score, "variance": Rows((variance_n * square_n).T)}

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """Scales and prior mean after the first release, one majorised step after each score."""
        return self._stepped(s, q) if "score" in s.names else self._started(s)

    def _started(self, s: Estimate) -> Iterate:
        """Scales, majoriser and prior mean from the first release."""
        yes, no = s.read("count")
        number = max(yes + no, tuned.NUMBER_STD * s.noise_std("count"), tuned.LEAST_NUMBER * self.likelihood.max_b)
        sd, bound_d = s.noise_std("second"), np.broadcast_to(self.column_bound, self.n_features)
        moments = columns.read(s.read("second"), sd, bound_d, number, self.intercept)
        second_d, scale_d, start_d = moments.second_d, np.ones(self.n_features), np.zeros(self.n_features)
        if self.intercept > 0:
            least = tuned.LEAST_BASE_RATE
            start_d[0] = logit(np.clip((yes + 1) / (number + 2), least, 1 - least)) / self.intercept
        if sd > 0:
            scale_d = second_d ** (tuned.DIAGONAL_SCALE_POWER / 2)
            length2 = float(np.sum(second_d / scale_d**2) / np.sum(second_d))
            scale_d *= math.sqrt(length2) / tuned.DIAGONAL_SCALE_SHRINK
        descent = Descent.start(start_d, tuned.FIRST_SAFETY)
        return Iterate(moments, scale_d, start_d, descent, Average(start_d, 0 * start_d))

    def _stepped(self, s: Estimate, q: Iterate) -> Iterate:
        """A majorised step from a score; ratios, average and α are brought up to date first."""
        t, sd, score_d = q.step + 1, s.noise_std("score"), q.scale_d * s.read("score")
        trace = float(np.sum(q.columns.second_d / q.scale_d**2))
        ratios = np.clip(s.read("variance")[:, None] * ((tuned.TRIM,), (1.0,)) / trace, tuned.LEAST_RATIO, 1.0)
        ratios = q.ratios + (2 / (t + 1) if sd > 0 else 1.0) * (ratios - q.ratios)
        fresh = t < tuned.DIAGONAL_AVERAGE_START * self.num_steps or q.descent.num_steps == 0
        mean = (Average(q.start_d, score_d) if fresh else q.mean).joined(q.descent.point_d, score_d, sd**2)
        q = replace(q, step=t, ratios=ratios, mean=mean)
        q = replace(q, alpha=self._precision(q))
        majoriser = self._majoriser(q)
        gradient_d = score_d - majoriser.ridge_d * (q.descent.point_d - q.start_d)
        return replace(q, descent=q.descent.step(score_d, gradient_d, (sd * q.scale_d) ** 2, majoriser))

    def _information(self, q: Iterate) -> tuple[Floats, Floats, Floats]:
        """Precision of the prior; information of the weighted score; variance of the score by data and noise."""
        precision_d = np.full(self.n_features, q.alpha)
        precision_d[: int(self.intercept > 0)] = tuned.INTERCEPT_PRECISION
        information_d, sampling_d = 0.25 * q.ratios * q.columns.second_d
        return precision_d, information_d, sampling_d + q.mean.noise * q.scale_d**2

    def _precision(self, q: Iterate) -> float:
        """Posterior mean of α, given the weights of the columns that stand out of the noise."""
        if self.alpha is not None:
            return self.alpha
        precision_d, information_d, variance_d = self._information(q)
        square_d = (self.weights(q).mean_d - q.start_d) ** 2 + 1 / (precision_d + information_d**2 / variance_d)
        seen_d = square_d[q.columns.seen_d]
        return (tuned.ALPHA_SHAPE + 0.5 * len(seen_d)) / (tuned.ALPHA_SHAPE + 0.5 * float(seen_d.sum()))

    def _majoriser(self, q: Iterate) -> DiagonalAndConstant:
        """Majoriser of the curvature; its ridge is the prior's precision, and larger if there is noise in the score."""
        precision_d, information_d, variance_d = self._information(q)
        ridge_d = precision_d * variance_d / information_d
        return DiagonalAndConstant(0.25 * q.columns.steep_d, ridge_d, q.columns.sum_d, 0.25 / q.columns.number)

    def weights(self, q: Iterate) -> Weights:
        """Posterior of the weights, in the coordinates of x: one more step, from the averages."""
        (precision_d, information_d, variance_d), majoriser = self._information(q), self._majoriser(q)
        gradient_d = q.mean.score_d - majoriser.ridge_d * (q.mean.point_d - q.start_d)
        mean_d = q.mean.point_d + majoriser.solve(gradient_d, q.descent.safety)
        data_d = variance_d - q.mean.noise * q.scale_d**2
        aware_d, naive_d = (1 / (precision_d + information_d**2 / v_d) for v_d in (variance_d, data_d))
        return Weights.alone(mean_d, aware_d, naive_d)

    def table(self, q: Iterate) -> Weights:
        """The same posterior, for intervals."""
        return self.weights(q)
