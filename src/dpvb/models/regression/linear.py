"""Linear regression: curvature once, then clipped scores; unit: a row.

    y_n = x_nᵀ m + e_n,   e_n ~ N(0, σ²),   m ~ N(m_0, C_τ),   y in [-1, 1], its public range; τ estimated

Numeric columns are brought to units of their own spread first (`scaling`). Σ x xᵀ is released once. It gives
coordinates x̃ = Uᵀx / s, in which every step releases a score of clipped residuals, and a histogram of their sizes, by
which the next step clips. The averaged scores give the posterior at the end: see `linear_path`.

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
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows, ScaledRows
from dpvb.core.schedule import Schedule
from dpvb.kernels.linear import row_sums
from dpvb.models.regression import tuned
from dpvb.models.regression.batch import RegressionBatch
from dpvb.models.regression.curvature import RowMoments
from dpvb.models.regression.declared import Declared, check_fields
from dpvb.models.regression.known import Known
from dpvb.models.regression.linear_iterate import LinearIterate
from dpvb.models.regression.linear_path import LinearPath
from dpvb.models.regression.residuals import EDGES, one_hot
from dpvb.models.regression.scaling import Scaling, mapped, measured
from dpvb.models.regression.weights import Weights


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

    def e_step(self, q: LinearIterate, batch: RegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
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
