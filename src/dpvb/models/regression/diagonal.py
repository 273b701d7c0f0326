"""Regression on many sparse columns: a diagonal once, then first order; unit: a row.

    m_d ~ N(m_0, ω_d²/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`,   α estimated

Numeric columns are brought to units of their own spread first (`scaling`) and stand first (`numbers_first`). Unlike
in `first_order` no matrix is released: the columns' second moments, one vector, give scales and majoriser. Columns are
taken as independent about their means: Σ b x xᵀ ≈ diag(D - h∘h/N) + h hᵀ/N. If a column only holds 0 or its bound a_j,
then h_j = D_j/a_j; for other nonnegative columns that is a lower bound on h_j.

==================  =============================================================================
paper               code
==================  =============================================================================
b                   likelihood.size: a row's trials, or 1
D, h, N             columns.second_d, sum_d, number: Σ b x_j², Σ b x_j, Σ b
s                   scale_d: the score is released in coordinates x̃ = x / s
w = min(1, 1/‖x̃‖)   in residual_n: bounds the score and leaves its equation unbiased
m_0                 start_d: prior mean, the base rate on the intercept
k                   usual: ¼ for log odds; for counts the curvature at the base rate, or along the steps
f                   descent.safety: a step's majoriser is k(f·diag(D - h²/N) + hhᵀ/N); see `descent`
u_t, ū, Ḡ           descent.point_d, mean.point_d, mean.score_d (scores at the points, averaged)
B = k c D           information_d: Σ w h x_j², c from the block "variance"
J + v               variance_d of the averaged score: J = Σ w² h x_j², v = mean.noise · s²
==================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpvb.core.blocks import Block, Contribution, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives
from dpvb.guards.errors import ParameterError
from dpvb.models import empirical_bayes
from dpvb.models.regression import tuned
from dpvb.models.regression.descent import Average, Descent, DiagonalAndConstant, farthest
from dpvb.models.regression.likelihood import LEAST_RATE, Likelihood
from dpvb.models.regression.persons import Expected, averaged, filled, weighted
from dpvb.models.regression.ridge import WeightPosterior
from dpvb.models.regression.scaling import Declared, Scaling, check_fields
from dpvb.rows import SparseDesignRows

_NO_MEANS = np.zeros(0)


@dataclass(frozen=True)
class ColumnMoments:
    """Second moments as read, (d,) each, and N; public.

    Attributes:
        second_d: D.
        sum_d: h, limited so that the mean explains most of D at most.
        steep_d: D - h∘h/N; for columns that were not seen at least what noise may hide.
        number: N.
        seen_d: whether a column stands out of the noise; never the constant one.
    """

    second_d: Nonnegatives
    sum_d: Floats
    steep_d: Nonnegatives
    number: Positive
    seen_d: Bools


def read_columns(
    noisy_d: Floats, sd: float, bound_d: Floats, number: float, constant: float, mean_j: Floats = _NO_MEANS
) -> ColumnMoments:
    """Read D, h and what is seen from noisy Σ b x_j²/a_j, (d,); a positive `constant` is the value of column 0.

    The columns after the constant one have the means `mean_j`, (j,), where these are stated.
    """
    first = int(constant > 0)
    second_d = np.full(len(noisy_d), constant**2 * number)
    if len(noisy_d) > first:
        total = max(float(noisy_d[first:].sum()), sd * math.sqrt(len(noisy_d)), 1e-3 * number)
        second_d[first:] = bound_d[first:] * total * empirical_bayes.background(noisy_d[first:], sd)
    seen_d = noisy_d > tuned.SEEN_STD * sd
    sum_d = np.minimum(second_d / bound_d, np.sqrt(tuned.MEAN_EXPLAINS * second_d * number))
    numeric = slice(first, first + len(mean_j))
    limit_j = np.sqrt(tuned.MEAN_EXPLAINS * second_d[numeric] * number)
    sum_d[numeric] = np.clip(number * mean_j, -limit_j, limit_j)
    steep_d = np.maximum(second_d - sum_d**2 / number, np.where(seen_d, 0.0, tuned.SEEN_STD * sd * bound_d))
    if first:
        sum_d[0] = math.sqrt(1.0 - 1e-3) * constant * number
        steep_d[0], seen_d[0] = tuned.CONSTANT_STEEP * second_d[0], False
    return ColumnMoments(second_d, sum_d, steep_d, number, seen_d)


def numbers_first_order(declared: Declared, constant: float) -> NDArray[np.intp]:
    """The columns of x in the order of x̂, (d,)."""
    chosen = np.zeros(len(declared.unit_d), dtype=np.intp)
    chosen[declared.numeric_j] = 1
    chosen[: int(constant > 0)] = 2
    return np.argsort(-chosen, kind="stable")


def dense_columns(declared: Declared, batch: SparseDesignRows) -> Floats:
    """The columns of rows x that are read for the numeric ones, (n, r)."""
    place_d = np.full(len(declared.unit_d), -1)
    place_d[declared.read_r] = np.arange(len(declared.read_r))
    row = np.repeat(np.arange(len(batch.y_n)), np.diff(batch.indptr))
    place = place_d[batch.indices]
    x_nr = np.zeros((len(batch.y_n), len(declared.read_r)))
    x_nr[row[place >= 0], place[place >= 0]] = batch.values[place >= 0]
    return x_nr


def numbers_first(scaling: Scaling, declared: Declared, batch: SparseDesignRows, constant: float) -> SparseDesignRows:
    """Rows x̂ of rows x, which are the same from step to step; the same rows if no column is numeric."""
    if not len(declared.numeric_j):
        return batch
    slants = declared.slants(scaling.mean_d)
    parts = scaling.mean_d, scaling.centre_d, scaling.factor_d, declared.numeric_j, declared.read_r, *slants
    key = np.concatenate([[constant], *([len(part), *part] for part in parts)]).astype(np.float64)
    rows = batch.derived(_numbers_first, key, scaling, declared, constant)
    return rows if batch.person_n is None else rows.of_persons(batch.person_n)


def _numbers_first(batch: SparseDesignRows, scaling: Scaling, declared: Declared, constant: float) -> SparseDesignRows:
    numeric_j = declared.numeric_j
    n, wide = len(batch.y_n), len(numeric_j)
    place_d = np.argsort(numbers_first_order(declared, constant))
    row, place = np.repeat(np.arange(n), np.diff(batch.indptr)), place_d[batch.indices].astype(np.int32)
    first, others = place < (constant > 0), place >= wide + (constant > 0)
    num_first, num_others = (np.bincount(row[which], minlength=n) for which in (first, others))
    indptr = np.append(0, np.cumsum(num_first + wide + num_others)).astype(np.int64)
    indices, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1])
    start = indptr[:-1] + num_first
    indices[indptr[row[first]]], values[indptr[row[first]]] = place[first], batch.values[first]
    at_nj = start[:, None] + np.arange(wide)
    indices[at_nj] = np.arange(wide) + int(constant > 0)
    slanted_nr = declared.slants(scaling.mean_d).off(dense_columns(declared, batch), declared.read_r)
    own_nj = slanted_nr[:, np.isin(declared.read_r, numeric_j)]
    values[at_nj] = (own_nj - scaling.centre_d[numeric_j]) * scaling.factor_d[numeric_j]
    # The other entries of a row follow each other in their order.
    before = np.append(0, np.cumsum(num_others))[:-1]
    at = (start + wide - before)[row[others]] + np.arange(int(others.sum()))
    indices[at], values[at] = place[others], batch.values[others]
    return replace(batch, indptr=indptr, indices=indices, values=values)


def _scaled(batch: SparseDesignRows, scale_d: Floats) -> tuple[Floats, Floats]:
    """Entries of the rows x̃, and their norms, (n,)."""
    row = np.repeat(np.arange(n := len(batch.y_n)), np.diff(batch.indptr))
    scaled = batch.values / scale_d[batch.indices]
    return scaled, np.sqrt(np.bincount(row, scaled * scaled, n))


@dataclass(frozen=True)
class DiagonalState:
    """State of a fit; all public; vectors (d,) over the columns of x̂, numeric ones first.

    Attributes:
        scaling: the map from rows x to rows x̂, over the columns of x.
        width_d: standard deviation of the prior of each weight at α = 1.
        ratios: (2, 1), the information B and the variance J over `usual`·D.
        usual: curvature of a row of size 1; most: the largest of the ratios.
    """

    scaling: Scaling
    columns: ColumnMoments
    scale_d: Positives
    start_d: Floats
    descent: Descent
    mean: Average
    width_d: Positives
    ratios: Positives = field(default_factory=lambda: np.ones((2, 1)))
    alpha: Positive = 1.0
    step: int = 0
    usual: Positive = 0.25
    most: Positive = 1.0


@dataclass(frozen=True)
class FirstOrderDiagonal(Model[DiagonalState, SparseDesignRows]):
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        max_abs_value: bounds a_j of the columns' absolute values, a number or (d,).
        n_steps: T, number of scores.
        alpha: precision of the prior of the weights of x; None: estimated, in units of the columns.
        declared: what is public about the columns; None: no column is numeric.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    max_abs_value: float | Floats = 1.0
    n_steps: int = 80
    alpha: float | None = None
    declared: Declared | None = None

    #: It releases no matrix.
    robust: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.n_steps, self.intercept, self.alpha, self.declared)
        bound = np.asarray(self.max_abs_value)
        if bound.shape not in ((), (self.n_features,)) or not np.all((bound >= 1e-6) & (bound <= 1)):
            raise ParameterError(f"max_abs_value must be a number in [1e-6, 1], or {self.n_features} of them.")

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _order(self) -> NDArray[np.intp]:
        return numbers_first_order(self._columns, self.intercept)

    @property
    def _bound_d(self) -> Floats:
        """Bounds on the columns of x̂: what a numeric one rarely exceeds."""
        bound_d = np.array(np.broadcast_to(self.max_abs_value, self.n_features))
        bound_d[self._columns.numeric_j] = min(tuned.RARE_STD * self._columns.size(self.intercept), 1.0)
        return np.asarray(bound_d[self._order])

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Centres and spreads of numeric columns; counts and second moments; a score with two scalars at each step."""
        b, shape, early = self.likelihood.max_size, (self.n_features,), self._columns.blocks
        features = math.sqrt((1 - self.intercept) * (1 + self.intercept))
        count, second = math.sqrt(tuned.SUM_BUDGET), math.sqrt(tuned.DIAGONAL_SECOND_BUDGET)
        then: Literal["first", "third"] = "third" if early else "first"
        blocks = {
            **early,
            "count": self.likelihood.base_block(2, then, count),
            "second": Block(shape, b * features, "nonnegative", then, weight=second),
            "score": Block(shape, self.likelihood.max_residual, average=False),
            "variance": Block((2,), b * math.sqrt(2), "nonnegative", average=False, weight=tuned.SCALAR_WEIGHT),
        }
        return self.likelihood.bounded(blocks)

    @property
    def schedule(self) -> Schedule:
        """The plan: later scores are released more precisely, μ_t² ∝ t."""
        noise = [math.sqrt(self.n_steps / t) for t in range(1, self.n_steps + 1)]
        return Schedule(noise, self._columns.budget(tuned.SUM_BUDGET + tuned.DIAGONAL_SECOND_BUDGET))

    def init(self, rng: np.random.Generator) -> DiagonalState:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        unread = ColumnMoments(one, zero, one, 1.0, one > 0)
        scaling, descent = Scaling.start(self._columns), Descent.start(zero, tuned.FIRST_SAFETY)
        return DiagonalState(scaling, unread, one, zero, descent, Average(zero, zero), scaling.width_d[self._order])

    def e_step(self, q: DiagonalState, batch: SparseDesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """Contribution of every row to the requested blocks; a row's sums run over its entries in their order."""
        if blocks.keys() <= {"means", "spread"}:
            x_nr = dense_columns(self._columns, batch)
            form, bound = self._columns.means(x_nr, batch.y_n), self._columns.blocks["means"].bound
            return filled(
                self._columns.contributions(x_nr, batch.y_n, q.scaling.mean_d, blocks), batch, [(form, bound)]
            )
        batch = numbers_first(q.scaling, self._columns, batch, self.intercept)
        row = np.repeat(np.arange(n := len(batch.y_n)), np.diff(batch.indptr))
        b_n = self.likelihood.size(batch.y_n, batch.trials_n)
        entries = SparseRows(batch.indptr, batch.indices, batch.values)
        if "second" in blocks:
            free = batch.values / q.scaling.room * ((batch.indices > 0) | (self.intercept == 0))
            weight_n = 1.0 / np.maximum(np.bincount(row, free * free, n), 1.0)
            square = free * free / self._bound_d[batch.indices] * (weight_n * b_n)[row]
            counts = Rows(weight_n[:, None] * self.likelihood.base_counts(batch, 2))
            return averaged({"count": counts, "second": replace(entries, values=square)}, batch)
        scaled, norm_n = batch.derived(_scaled, q.scale_d, q.scale_d)
        psi_n = np.asarray(np.bincount(row, batch.values * q.descent.point_d[batch.indices], n), dtype=np.float64)
        psi_n = psi_n if batch.offset_n is None else psi_n + batch.offset_n
        residual_n = self.likelihood.residual(psi_n, batch.y_n, batch.trials_n) / np.maximum(norm_n, 1.0)
        variance_n = self.likelihood.curvature(psi_n, b_n)
        trimmed_n = np.minimum(norm_n, tuned.RARE_STD) / tuned.RARE_STD
        square_n = np.minimum(norm_n, 1.0) * np.stack([trimmed_n, np.minimum(norm_n, 1.0)])
        score = replace(entries, values=scaled * residual_n[row])
        scores: dict[str, Contribution] = {"score": score, "variance": Rows((variance_n * square_n).T)}
        if not self.likelihood.is_count:
            return averaged(scores, batch)

        def expects() -> Expected:
            std_n = np.sqrt(self.likelihood.steepest * variance_n) / np.maximum(norm_n, 1.0)
            share_n = self.likelihood.curvature(psi_n, np.ones(n))
            return Expected(replace(entries, values=scaled * std_n[row]), share_n, self.blocks["score"].bound)

        return weighted(scores, batch, expects)

    def started(self, s: Estimate, q: DiagonalState) -> DiagonalState:
        """The map to x̂; then scales, majoriser and prior mean from second moments."""
        if s.phase != self.blocks["second"].phase:
            return replace(q, scaling=q.scaling.read(self._columns, s, self.intercept))
        yes, no, *shares = s.noisy("count")
        least = max(s.noise_std("count"), 1e-3 * self.likelihood.max_y)
        number, base = max(yes + no, least) / self.likelihood.most, 0.0
        sd, scaling, room = s.noise_std("second"), q.scaling, q.scaling.room
        mean_d = (scaling.mean_d * scaling.factor_d * (self.intercept == 0))[self._columns.numeric_j]
        moments = read_columns(room**2 * s.noisy("second"), sd, self._bound_d, number, self.intercept, mean_d)
        second_d, scale_d, start_d = moments.second_d, np.full(self.n_features, room), np.zeros(self.n_features)
        if self.intercept > 0:
            least = LEAST_RATE
            rate = float(np.clip((yes + 1) / (number + 2), least, 1 - least))
            base = math.log(max((yes + 1) / (number + 1), least)) if self.likelihood.is_count else float(logit(rate))
            most = self.likelihood.most
            offset, _ = self.likelihood.base_shift([one / most for one in shares], s.noise_std("count") / most, number)
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
        start = DiagonalState(scaling, moments, scale_d, start_d, descent, nothing, width_d, alpha=self.alpha or 1.0)
        return replace(start, usual=usual, most=self.likelihood.steepest / usual)

    def m_step(self, s: Estimate, q: DiagonalState) -> DiagonalState:
        """A majorised step from a score; ratios, average and α are brought up to date first."""
        t, sd, score_d = q.step + 1, s.noise_std("score"), q.scale_d * s.noisy("score")
        trace = float(np.sum(q.columns.second_d / q.scale_d**2))
        ratios = q.most * s.noisy("variance")[:, None] * ((tuned.RARE_STD,), (1.0,)) / trace
        ratios = np.clip(ratios, tuned.LEAST_RATIO, q.most)
        ratios = q.ratios + (2 / (t + 1) if sd > 0 else 1.0) * (ratios - q.ratios)
        fresh = t < tuned.AVERAGE_START * self.n_steps or q.descent.n_steps == 0
        mean = (Average(q.start_d, score_d) if fresh else q.mean).joined(q.descent.point_d, score_d, sd**2)
        q = replace(q, step=t, ratios=ratios, mean=mean)
        q = replace(q, alpha=self.alpha or self._precision(q))
        majoriser = self._majoriser(q)
        gradient_d = score_d - majoriser.ridge_d * (q.descent.point_d - q.start_d)
        return replace(q, descent=q.descent.step(score_d, gradient_d, (sd * q.scale_d) ** 2, majoriser))

    def weights(self, q: DiagonalState) -> WeightPosterior:
        """Posterior of the weights for predictions, in the coordinates of x."""
        precision_d, information_d, variance_d = self._information(q)
        data_d = np.maximum(variance_d - q.mean.noise * q.scale_d**2, 1e-13 * variance_d)
        aware_d, naive_d = (1 / (precision_d + information_d**2 / v_d) for v_d in (variance_d, data_d))
        scaling, place_d = q.scaling, np.argsort(self._order)
        mean_d = scaling.factor_d * self._mean(q)[place_d]
        if self.intercept > 0:
            mean_d[0] -= float(mean_d @ scaling.centre_d) / self.intercept
        slants = self._columns.slants(scaling.mean_d)
        np.subtract.at(mean_d, slants.factor_k, slants.share_k * mean_d[slants.product_k])
        parts = [scaling.factor_d**2 * v_d[place_d] for v_d in (aware_d, naive_d, 1 / precision_d)]
        read = WeightPosterior.alone(mean_d, *parts[:2])
        return replace(read, prior=parts[2], centre_d=scaling.centre_d, slant_3k=np.array(slants, dtype=np.float64))

    def table(self, q: DiagonalState) -> WeightPosterior:
        """Posterior of the weights for intervals: the width of the prior is fixed, spreads are at their low end."""
        scaling, columns, order = q.scaling, q.columns, self._order
        # A centre that is off adds to the second moment, and nothing to what the data say of the weight.
        spread_d = columns.second_d - columns.number * (tuned.CENTRE_STD * scaling.doubt_d[order]) ** 2
        least_d = columns.second_d * (scaling.width_d / scaling.wide_d)[order] ** 2
        second_d = np.where(scaling.doubt_d[order] > 0, np.maximum(spread_d, least_d), columns.second_d)
        q = replace(q, columns=replace(columns, second_d=second_d))
        if self.alpha is None:
            q = replace(q, width_d=scaling.wide_d[order], alpha=tuned.TABLE_TAU**-2)
        return replace(self.weights(q), unknown_scale_d=scaling.unknown_scale_d)

    def convergence_ratio(self, q: DiagonalState, table: WeightPosterior) -> float:
        """Bias of the weights by a path that is too short, in posterior standard deviations; 0 if it has settled.

        If columns are independent, a Newton step from the mean point would end at the mean of the weights. The mean
        point of a settled path has about the noise of that step (Polyak & Juditsky 1992): both are added.
        """
        precision_d, information_d, variance_d = self._information(q)
        gradient_d = q.mean.score_d - self._majoriser(q).ridge_d * (q.mean.point_d - q.start_d)
        data_d = information_d**2 / variance_d
        unit_d = data_d / (precision_d + data_d) / variance_d
        square, noise_d = float(unit_d @ gradient_d**2), 2.0**2 * q.mean.noise * q.scale_d**2
        return math.sqrt(square / len(unit_d)) if square > farthest(unit_d * noise_d) else 0.0

    def _information(self, q: DiagonalState) -> tuple[Floats, Floats, Floats]:
        """Precision of the prior; information of the weighted score; variance of the score by data and noise."""
        precision_d = q.alpha / q.width_d**2
        precision_d[: int(self.intercept > 0)] = 1e-3  # Nearly flat.
        information_d, sampling_d = q.usual * q.ratios * q.columns.second_d
        return precision_d, information_d, sampling_d + q.mean.noise * q.scale_d**2

    def _precision(self, q: DiagonalState) -> float:
        """Posterior mean of α, given the weights of the columns that stand out of the noise."""
        precision_d, information_d, variance_d = self._information(q)
        square_d = (self._mean(q) - q.start_d) ** 2 + 1 / (precision_d + information_d**2 / variance_d)
        seen_d = (square_d / q.width_d**2)[q.columns.seen_d]
        rate = tuned.ALPHA_SHAPE * tuned.DIAGONAL_TAU**2 + 0.5 * float(seen_d.sum())
        return (tuned.ALPHA_SHAPE + 0.5 * len(seen_d)) / rate

    def _majoriser(self, q: DiagonalState) -> DiagonalAndConstant:
        """Majoriser of the curvature; its ridge is the prior's precision, and larger if there is noise in the score."""
        precision_d, information_d, variance_d = self._information(q)
        ridge_d, steep = precision_d * variance_d / information_d, q.usual * max(1.0, float(q.ratios[0, 0]))
        return DiagonalAndConstant(steep * q.columns.steep_d, ridge_d, q.columns.sum_d, steep / q.columns.number)

    def _mean(self, q: DiagonalState) -> Floats:
        """One more step, from the averages, (d,)."""
        majoriser = self._majoriser(q)
        gradient_d = q.mean.score_d - majoriser.ridge_d * (q.mean.point_d - q.start_d)
        return q.mean.point_d + majoriser.solve(gradient_d, q.descent.safety)
