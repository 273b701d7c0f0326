"""Curvature once, then scores: what the regressions that release a full matrix share; unit: a row.

    m ~ N(m_0, Γ_τ),   scores G at points u:   G ≈ (sampling noise of variance J) + B (m - u) + (privacy noise)

B is minus the derivative of the averaged score at the weights m. Numeric columns are brought to units of their own
spread first (`scaling`). Second moments of rows x̂ are released once. They give coordinates x̃ = Uᵀx̂ / s, in which
every step releases a score, and in which the curvature is released once more at the end.

===================  =============================================================================
paper                code
===================  =============================================================================
U, λ, s              moments.basis_de, eigenvalue_e, scale_e: read from Σ x̂ x̂ᵀ
w                    weight_n = min(1, 1/‖x̃‖): bounds the score; its expectation stays 0 at the true m
m_0                  start_e; drift_e is the direction in which it is uncertain
u_t; ū, Ḡ            point_e; mean.point_d, mean.score_d: averages of points and of scores at them
v                    mean.noise: variance of the averaged score, equal in all coordinates x̃
J, B                 curvature_ee, and steep · curvature_ee; table_ee is J as it is read for intervals
J if robust          robust_ee: J as it was released
===================  =============================================================================

The averaged scores give a Newton step at the end, which is read twice: as a posterior for predictions, and as one for
intervals. Predictions gain from a width τ of the prior that is estimated. An interval does not: where noise hides
scales, the estimate falls towards 0, and takes the interval with it.

A linear step overlooks *saturation*: the wider log odds spread, the nearer to ½ is their probability. Over rows, the
log odds xᵀm at weights m have a mean and a variance, both read from the second moments. If they are normal, the mean
probability is σ(mean/√(1 + π variance/8)) (MacKay 1992). A Newton step to a large variance keeps the mean, although the
divisor grows: if most responses are zeros, it predicts too many ones. `saturation_shift` corrects the mean log odds.

A *robust* model also releases J = Σ f fᵀ over units, f the score of a unit at ū: a sum over the rows of a person. J is
the variance of Ḡ between samples whether or not rows of a person are independent, and whatever the spread of their
responses is (the sandwich of Huber 1967 and White 1980, by clusters: Liang & Zeger 1986). B remains the curvature.

All that follows a release is post-processing of released numbers and costs no privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, reduce
from typing import Any, Literal, Self

import numpy as np
from scipy.special import expit, logit

from dpvb.core.blocks import Block, Contribution, Contributions, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, GramOfSums, MeasuredRows
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Symmetric
from dpvb.guards.errors import ParameterError
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.descent import Average
from dpvb.models.regression.moments import (
    RowMoments,
    read_at_mean,
    read_moments,
    read_positive,
    read_robust,
)
from dpvb.models.regression.persons import averaged
from dpvb.models.regression.ridge import NormalLikelihood, WeightPosterior
from dpvb.models.regression.scaling import Declared, Scaling, check_fields, mapped, measured
from dpvb.rows import DesignRows

# convention: the widest full covariance. M-steps and readings take so many CPU seconds over d³, as measured at
# d = 1,000.
_MOST_COLUMNS, _SECONDS = 2_000, 1.1e-8
# convention: bytes of M-steps and readings over d², as measured at d = 1,000.
MATRIX_BYTES = 480


@dataclass(frozen=True)
class ScoreState(ABC):
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        scaling: the map from rows x to the rows x̂ of all that follows.
        start_e: m_0, the prior mean; drift_e: the direction in which it is uncertain.
        point_e: u, where the next score is taken.
        mean: averages of points and scores.
        curvature_ee: variance of the averaged score between samples, in coordinates x̃, read for predictions.
        table_ee, error_ee: the same, read for intervals, and the mean square errors of its entries.
        doubt_e: mean square errors of minus the derivative of the averaged score, in each direction.
        robust_ee: variance of the averaged score between samples, as it was released; 0 if it was not.
        steep: minus the derivative of the averaged score, over `curvature_ee`.
        step: number of steps.
    """

    scaling: Scaling
    moments: RowMoments
    start_e: Floats
    drift_e: Floats
    point_e: Floats
    mean: Average
    curvature_ee: Symmetric
    table_ee: Symmetric
    error_ee: Nonnegatives
    doubt_e: Nonnegatives
    robust_ee: Symmetric
    _: KW_ONLY
    steep: Positive = 1.0
    step: int = 0

    @classmethod
    def start(cls, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats, **more: Any) -> Self:
        """The prior, before any score."""
        mean, little_ee = Average(start_e, np.zeros(len(start_e))), 1e-9 * np.eye(len(start_e))
        curvatures = (little_ee, little_ee, 0 * little_ee, 0 * start_e, 0 * little_ee)
        return cls(scaling, moments, start_e, drift_e, start_e, mean, *curvatures, **more)


@dataclass(frozen=True)
class Readings:
    """Estimates from the state of a fit: where scores lead, and posteriors in the coordinates of x.

    Attributes:
        q: the state.
        declared, intercept, alpha, earlier: as in the model.
        size: standard deviation of the response, in which the widths of the prior are measured.
        offset: what an average row adds to its log odds; None: ψ is not log odds, and does not saturate.
        robust: whether the variance of the averaged score was released.
    """

    q: ScoreState
    declared: Declared
    intercept: float
    alpha: float | None
    earlier: tuple[NormalLikelihood, ...]
    size: float = 1.0
    offset: float | None = None
    robust: bool = False

    def prior(self, width_d: Floats, taus: tuple[float, ...]) -> ridge.WeightPrior:
        """Return the prior of m - m_0 in the eigenbasis: columns add log odds of mean 0 over rows.

        With `alpha`, it is N(m_0, I/alpha) of the weights of x instead.

        Args:
            width_d: standard deviation of each weight of x̂ at τ = 1, in units of `size`.
            taus: values of τ.
        """
        moments, drift_e1 = self.q.moments, self.q.drift_e[:, None]
        if self.alpha is not None:
            back_dd = self.q.scaling.back(self.declared, self.intercept)
            forth_ed = moments.basis_de.T @ np.linalg.inv(back_dd)
            return ridge.WeightPrior(forth_ed / math.sqrt(self.alpha), drift_e1, (1.0,))
        free_d = np.where(np.arange(len(width_d)) < (self.intercept > 0), 0.0, self.size * width_d)
        mean_d, sd = moments.basis_de @ moments.mean_e, tuned.INTERCEPT_STD * self.size
        prior = ridge.WeightPrior.of(moments.basis_de, free_d, mean_d, moments.constant_e, sd, taus)
        return replace(prior, fixed_eg=np.hstack([prior.fixed_eg, drift_e1]))

    @cached_property
    def back_de(self) -> Floats:
        """The map from weights in the eigenbasis to those of x."""
        return self.q.scaling.back(self.declared, self.intercept) @ self.q.moments.basis_de

    @cached_property
    def beside(self) -> list[NormalLikelihood]:
        """Likelihood of m - m_0 in the eigenbasis by an earlier fit or a study, as read for predictions; or none."""
        return [one.turned(self.back_de, self.back_de @ self.q.start_e) for one in self.earlier[:1]]

    def along_path(
        self, score_e: Floats, bound_e: Floats, information_e: Floats, noise_e: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """The ends of a majorised Newton step from u and of one from the averages; precisions of the prior; (e,) each.

        Earlier fits are included in both ends. τ is the one of highest density, given the Newton point of the averages:
        equation 9.

        Args:
            score_e: the score at u.
            bound_e: upper bounds on minus its derivative, without the prior.
            information_e: minus the derivative of the averaged score, without the prior.
            noise_e: variance of the privacy noise of the averaged score.
        """
        q, prior = self.q, self.prior(self.q.scaling.width_d, ridge.grid())
        newton_e = q.mean.point_d - q.start_e + q.mean.score_d / information_e
        tau = ridge.best_scale(newton_e, 1.0 / information_e + noise_e / information_e**2, prior)
        prior, seen_e = replace(prior, taus=(tau,)), information_e**2 / (information_e + noise_e)
        at_point = NormalLikelihood(bound_e, score_e + bound_e * (q.point_e - q.start_e))
        last_e, mode_e = (
            q.start_e + ridge.mean_of(reduce(NormalLikelihood.joined, self.beside, one), prior)
            for one in (at_point, NormalLikelihood(seen_e, seen_e * newton_e))
        )
        return last_e, mode_e, 1.0 / np.sum((prior.factor_ef * prior.stretch(tau)) ** 2, axis=1)

    def mode(self, variance_e: Floats, steep: float) -> Floats:
        """The posterior mean given all scores so far, averaged over τ, (e,).

        Args:
            variance_e: variance of the averaged score between samples.
            steep: minus its derivative, over that.
        """
        mean, noise_e = self.q.mean, self.q.mean.noise * self.q.moments.scale_e**2
        way_e = mean.point_d - self.q.start_e
        score = ridge.NoisyScore(mean.score_d, way_e, variance_e, steep, noise_e, self.beside)
        return self.q.start_e + ridge.mean_of(score.information(), self.prior(self.q.scaling.width_d, ridge.grid()))

    def predictions(self) -> WeightPosterior:
        """Posterior of the weights for predictions: τ is estimated and averaged over."""
        prior = self.prior(self.q.scaling.width_d, ridge.grid()).turned(self.q.moments.scale_e)
        return self._posterior(self._score(self.q.curvature_ee, self.earlier[:1]), prior)

    def table(self) -> WeightPosterior:
        """Posterior of the weights for intervals: τ is fixed, spreads are at their low end, the curvature may err."""
        scaling, prior = self.q.scaling, self._prior_of_table.turned(self.back_de)
        prior_dd = prior.covariance(prior.taus[0])
        if self.earlier[1:]:
            prior_dd = ridge.covariance_of(reduce(NormalLikelihood.joined, self.earlier[1:]), prior)
        read = self._posterior(*self.score_of_table())
        return replace(read, prior=prior_dd, unknown_scale_d=scaling.unknown_scale_d, centre_d=scaling.centre_d)

    @cached_property
    def _prior_of_table(self) -> ridge.WeightPrior:
        return self.prior(self.q.scaling.wide_d, (tuned.TABLE_TAU,))

    def score_of_table(self) -> tuple[ridge.NoisyScore, ridge.WeightPrior]:
        """The averaged score as it is read for intervals, and the prior, in the coordinates x̃."""
        prior = self._prior_of_table.turned(self.q.moments.scale_e)
        score = self._score(self.q.table_ee, self.earlier[1:])
        return ridge.honest(score, prior, self.q.error_ee, self.q.doubt_e), prior

    def _posterior(self, score: ridge.NoisyScore, prior: ridge.WeightPrior) -> WeightPosterior:
        """A Newton step from the averages, moved for saturation, in the coordinates of x."""
        moments, scale_e = self.q.moments, self.q.moments.scale_e
        mean_e, aware_ee = ridge.posterior(score, prior)
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        m_e = self.q.start_e + mean_e / scale_e
        if self.offset is not None:
            change = float((scale_e * moments.constant_e) @ score.slope(mean_e - score.offset_e)) / moments.number
            m_e += saturation_shift(moments, self.q.mean.point_d, m_e, change, self.offset) * moments.constant_e
        x_de = self.back_de / scale_e
        read = WeightPosterior.alone(self.back_de @ m_e, x_de @ aware_ee @ x_de.T, x_de @ naive_ee @ x_de.T)
        data = score.information().turned(np.asarray(np.linalg.inv(x_de)), -scale_e * self.q.start_e)
        return replace(read, data=data)

    def _score(self, curvature_ee: Floats, earlier: tuple[NormalLikelihood, ...]) -> ridge.NoisyScore:
        """The averaged score, in the coordinates x̃, with normal likelihoods of the weights of x."""
        mean, scale_e, start_e = self.q.mean, self.q.moments.scale_e, self.q.start_e
        beside = [one.turned(self.back_de / scale_e, self.back_de @ start_e) for one in earlier]
        offset_e = scale_e * (mean.point_d - start_e)
        score = ridge.NoisyScore(mean.score_d / scale_e, offset_e, curvature_ee, self.q.steep, mean.noise, beside)
        return replace(score, robust_ee=self.q.robust_ee) if self.robust else score


@dataclass(frozen=True)
class CurvatureThenScores(Model[Any, DesignRows], ABC):
    """A regression that releases its curvature once, then scores; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        intercept: value of column 0 in every row; 0: there is no such column.
        n_steps: T, number of scores.
        alpha: precision of the prior N(m_0, I/alpha) of the weights of x; None: the prior of `scaling`.
        declared: what is public about the columns; None: no column is numeric.
        earlier: normal likelihoods of the weights of x from an earlier fit or a study, as read for predictions and for
            intervals; (): there are none.
        robust: whether the variance of the scores of units is released too.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    intercept: float = 0.0
    n_steps: int = 16
    alpha: float | None = None
    declared: Declared | None = None
    earlier: tuple[NormalLikelihood, ...] = ()
    robust: bool = False

    def __post_init__(self) -> None:
        check_fields(self.n_features, self.n_steps, self.intercept, self.alpha, self.declared)
        if (d := self.n_features) > _MOST_COLUMNS:
            hours, memory = _SECONDS * d**3 / 3600, MATRIX_BYTES * d**2 / 1e9
            raise ParameterError(
                f"A regression with a full covariance takes at most {_MOST_COLUMNS:,} columns, and these are {d:,} "
                f"(including one for each category): a fit would take about {hours:.1f} CPU hours and "
                f"{memory:.0f} GB. Use fewer columns or categories, or covariance='diagonal', whose cost is linear in "
                "the columns. LinearRegression has no covariance='diagonal'. The budget was not charged."
            )

    @property
    def columns(self) -> Declared:
        """Public facts about the columns."""
        return self.declared or Declared.plain(self.n_features)

    @property
    def _constant(self) -> float:
        """The constant that rows have when their second moments are released."""
        return self.intercept or tuned.ADDED_CONSTANT

    @property
    def _phase(self) -> Literal["first", "third"]:
        """The phase in which Σ x̂ x̂ᵀ is released: after centres and spreads of numeric columns."""
        return "third" if self.columns.blocks else "first"

    def _moments_block(self, size: float, weight: float = 1.0) -> Block:
        """The block of Σ x̂ x̂ᵀ, in which rows without a constant get one; a row counts as `size` at most."""
        wide = self.n_features + (self.intercept == 0)
        return Block((wide, wide), size, "gram", self._phase, weight=weight)

    def _robust_blocks(self, budget: float) -> dict[str, Block]:
        """The block of J, released together with a last release of this part of the budget; none unless robust."""
        d, weight = self.n_features, math.sqrt(tuned.ROBUST_BUDGET / budget)
        return {"variance_at_mean": Block((d, d), 1.0, "gram", "last", weight=weight)} if self.robust else {}

    def _robust_scores(self, q: Any, rows: MeasuredRows, scale_n: Floats) -> Contributions:
        """Contributions of rows to J, divided by the square of the longest score."""
        return {"variance_at_mean": GramOfSums(rows, scale_n / self._longest(q))} if self.robust else {}

    def _longest(self, q: Any) -> float:
        """The norm to which the score of a unit is clipped in J: the bound of scores, or many times their usual norm.

        A residual of 1 is never clipped: rare events are all that is seen of some data.
        """
        usual = self._usual_residual(q) * math.sqrt(self._largest_weight * q.moments.total / q.moments.number)
        return min(self.blocks["score"].bound, max(self._largest_weight, tuned.LONGEST_SCORE * usual))

    def init(self, rng: np.random.Generator) -> Any:
        """The prior; no randomness."""
        zero_d, one_d = np.zeros(self.n_features), np.ones(self.n_features)
        constant_d = np.eye(1, len(one_d))[0] / self.intercept if self.intercept > 0 else zero_d
        moments = RowMoments(np.eye(self.n_features), one_d, one_d, one_d, constant_d, 1.0)
        return self._start(Scaling.start(self.columns), moments, zero_d, zero_d)

    def e_step(self, q: Any, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """Contribution of every row to the requested blocks."""
        scaling, columns = q.scaling, self.columns
        if blocks.keys() <= {"means", "spread"}:
            x_nr = batch.x_nd[:, columns.read_r]
            form, bound = columns.means(x_nr, batch.y_n), columns.blocks["means"].bound
            return self._filled(columns.contributions(x_nr, batch.y_n, scaling.mean_d, blocks), batch, form, bound)
        if "curvature" in blocks:
            weight_n, moments = self._moments(mapped(batch.x_nd, scaling.forth(columns)) / scaling.room, batch)
            sums = {**self._counted(batch, weight_n), "curvature": moments}
            return self._filled(sums, batch, moments, self._largest)
        rows = batch.derived(measured, np.vstack([scaling.forth(columns), q.moments.basis_de / q.moments.scale_e]))
        weight_n = 1.0 / np.maximum(rows.length_n, 1.0)
        at = self._at_end if "curvature_at_mean" in blocks else self._at_step
        return at(q, batch, rows, weight_n)

    def started(self, s: Estimate, q: Any) -> Any:
        """The map to x̂; then coordinates."""
        if s.phase == self._phase:
            return self._with_curvature(s, q)
        return replace(q, scaling=q.scaling.read(self.columns, s, self.intercept))

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """Noise of the steps, and parts of the budget."""

    def weights(self, q: Any) -> WeightPosterior:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return self._readings(q).predictions()

    def table(self, q: Any) -> WeightPosterior:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return self._readings(q).table()

    def convergence_ratio(self, q: Any, table: WeightPosterior) -> float:
        """Bias of the weights by a path that is too short, in posterior standard deviations; 0 if scores are linear.

        Args:
            q: the state.
            table: posterior for intervals.
        """
        return 0.0

    def _coordinates(self, s: Estimate, q: Any) -> tuple[Scaling, RowMoments]:
        """The map to rows x̂ and their second moments, from the release of the curvature."""
        sd, room, scaling = s.noise_std("curvature"), q.scaling.room, q.scaling
        inner = self.intercept == 0
        # Rows had been divided by the room, but not the constant that was added to them.
        room_d = np.where(np.arange(self.n_features + inner) < inner, 1.0, room)
        noisy_dd = room_d[:, None] * s.noisy("curvature") * room_d
        if not inner:
            scaling, noisy_dd = scaling.recentred(self.columns, noisy_dd, sd, self.intercept)
        moments = read_moments(noisy_dd, sd, self._constant, inner=inner, room=room)
        moments = moments.divided(room)
        if self.intercept > 0 and sd > 0:
            scaling = scaling.certain(self.columns, noisy_dd, moments.matrix_dd, sd, self.intercept)
        return scaling, moments

    def _read_at_end(self, s: Estimate, q: Any, guess_ee: Floats, steepest: float, square: float = 1.0) -> Any:
        """With the curvature at the mean, in coordinates x̃, denoised twice with its guess; and J.

        Args:
            s, q: as in `m_step`.
            guess_ee: the guess.
            steepest: what the release is multiplied by.
            square: mean square of a residual in the model, over the curvature of its row.
        """
        noisy_ee, sd = steepest * s.noisy("curvature_at_mean"), steepest * s.noise_std("curvature_at_mean")
        curvature_ee = read_positive(noisy_ee, guess_ee, sd, min(tuned.LAST_FLOOR * np.diag(guess_ee).min(), sd))
        hidden_e = s.noise_std("curvature") / q.moments.eigenvalue_e
        hidden_e = np.minimum(hidden_e, 1.0)
        table_ee, error_ee, doubt_e = read_at_mean(noisy_ee, guess_ee, hidden_e, sd)
        robust_ee = q.robust_ee
        if self.robust:
            unit = (self._unit(q) * self._longest(q)) ** 2
            noisy_ee, sd = unit * s.noisy("variance_at_mean"), unit * s.noise_std("variance_at_mean")
            robust_ee = read_robust(noisy_ee, square * table_ee, sd)
        if self.intercept > 0:
            turn_ee = q.moments.shrinking(q.scaling.part_d, self.intercept)
            table_ee, robust_ee = (turn_ee @ one_ee @ turn_ee.T for one_ee in (table_ee, robust_ee))
        curvatures = {"curvature_ee": curvature_ee, "table_ee": table_ee, "robust_ee": robust_ee}
        return replace(q, **curvatures, error_ee=error_ee, doubt_e=doubt_e)

    def _readings(self, q: Any, **more: Any) -> Readings:
        """Estimates of the weights from a state."""
        return Readings(q, self.columns, self.intercept, self.alpha, self.earlier, robust=self.robust, **more)

    @abstractmethod
    def _start(self, scaling: Scaling, moments: RowMoments, start_e: Floats, drift_e: Floats) -> Any:
        """The state before any score."""

    def _moments(self, x_nd: Floats, batch: DesignRows) -> tuple[Floats, Gram]:
        """The weight of each row in Σ b x̂ x̂ᵀ, and what it adds there; x_nd are the rows x̂ over the room."""
        weight_n = 1.0 / np.maximum(upper_norms(x_nd), 1.0) ** 2
        if self.intercept == 0:
            rest = math.sqrt(1 - tuned.ADDED_CONSTANT**2)
            x_nd = np.hstack([np.full((len(x_nd), 1), tuned.ADDED_CONSTANT), rest * x_nd])
        return weight_n, Gram(x_nd, weight_n * self._sizes(batch))

    @property
    def _largest(self) -> float:
        """The largest size of a row."""
        return 1.0

    @property
    def _largest_weight(self) -> float:
        """The largest weight of a row."""
        return 1.0

    def _unit(self, q: Any) -> float:
        """The unit in which scores are released."""
        return 1.0

    @abstractmethod
    def _usual_residual(self, q: Any) -> float:
        """Root mean square of a row's residual, as its score has it."""

    def _filled(self, sums: Contributions, batch: DesignRows, form: Contribution, bound: float) -> Contributions:
        """Sums before the path, of persons; if the number of rows is read from several, they need one weight."""
        return averaged(sums, batch)

    @abstractmethod
    def _sizes(self, batch: DesignRows) -> Floats:
        """Weight of each row in Σ x̂ x̂ᵀ, (n,)."""

    @abstractmethod
    def _counted(self, batch: DesignRows, weight_n: Floats) -> Contributions:
        """Contribution of rows in addition to Σ x̂ x̂ᵀ."""

    @abstractmethod
    def _at_step(self, q: Any, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        """Contribution of rows to a score, and to other blocks of its release."""

    @abstractmethod
    def _at_end(self, q: Any, batch: DesignRows, rows: MeasuredRows, weight_n: Floats) -> Contributions:
        """Contribution of rows to the last release."""

    @abstractmethod
    def _with_curvature(self, s: Estimate, q: Any) -> Any:
        """The state after the release of Σ x̂ x̂ᵀ."""


def saturation_shift(
    moments: RowMoments, before_e: Floats, after_e: Floats, expected: float, offset: float = 0.0
) -> float:
    """Shift of the mean log odds after a step that keeps only their spread from moving the mean probability.

    The shift is capped by the change that the linear model itself predicted: if the model already accounts for
    saturation, the shift is zero.

    Args:
        moments: moments of the rows.
        before_e, after_e: weights before and after the step, in the eigenbasis.
        expected: change of the mean probability by the step in the linear model.
        offset: what rows add to their log odds, on average.
    """
    (mean, variance), (mean_after, variance_after) = moments.log_odds(before_e), moments.log_odds(after_e)
    flatter = _slope(variance_after) / _slope(min(variance, variance_after))
    mean, mean_after = mean + offset, mean_after + offset
    by_spread = mean_after / flatter - mean_after
    target = float(np.clip(expit(_slope(variance) * mean) + expected, 1e-9, 1.0 - 1e-9))
    by_expectation = float(logit(target)) / _slope(variance_after) - mean_after
    if by_spread * by_expectation <= 0.0:
        return 0.0
    return math.copysign(min(abs(by_spread), abs(by_expectation)), by_spread)


def _slope(variance: float) -> float:
    """Factor (1 + π variance/8)^-½ of mean log odds (MacKay 1992)."""
    return 1.0 / math.sqrt(1.0 + math.pi / 8.0 * variance)
