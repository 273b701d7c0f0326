"""Regression with binomial likelihoods on many sparse columns: a diagonal once, then first order; unit: a row.

    m ~ N(m_0, I/α),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `binomial`,   α estimated

As in `first_order`, but no matrix is released: the columns' second moments, one vector, give scales and majoriser.

==================  =============================================================================
paper               code
==================  =============================================================================
D, h, N             columns.second_d, sum_d, number: Σ b x_j², Σ b x_j, Σ b; see `columns`
s                   scale_d: the score is released in coordinates x̃ = x / s
w = min(1, 1/‖x̃‖)   in residual_n: bounds the score and leaves its equation unbiased
m_0                 start_d: prior mean, the base rate on the intercept
f                   safety, at first _SAFETY: a step's majoriser is ¼(f·diag(D - h²/N) + hhᵀ/N); see `descent`
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

from dpvb.arrays import Floats
from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows, SparseRows
from dpvb.errors import ParameterError, check_integer, check_number
from dpvb.guards.domains import Positive, Positives
from dpvb.models.regression import columns
from dpvb.models.regression.descent import Average, Descent, DiagonalAndConstant
from dpvb.models.regression.likelihood import Likelihood, SparseDesign, Weights

# Shares of the budget Σμ²: counts and second moments; weight of a step's scalars beside the score.
_COUNT, _SECOND, _SCALARS = 0.02, 0.1, 0.1
# Scales s ∝ D^(γ/2), γ; then divided by κ, so that the score's bound uses the room that typical rows leave.
_POWER, _SHRINK = 0.4, 1.4
# Bound on ‖x̃‖ in the trace of the information; f at the start.
_TRIM, _SAFETY = 4.0, 4.0
# Prior precision of the intercept, and shape of the hyper-prior Gam(a, a) of α.
_FLAT, _SHAPE = 1e-3, 5.0


@dataclass(frozen=True)
class Path:
    """Where the fit stands; all public; vectors over columns, (d,)."""

    columns: columns.Columns
    scale_d: Positives
    start_d: Floats
    descent: Descent
    mean: Average
    share_d: Positives = field(default_factory=lambda: np.full((2, 1), 0.75))
    alpha: Positive = 1.0
    step: int = 0


@dataclass(frozen=True)
class FirstOrderDiagonal:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: see `binomial`.
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
        for name in ("n_features", "num_steps"):
            check_integer(name, getattr(self, name), low=1, high=10**7)
        check_number("intercept", self.intercept, low=0, high=1, closed="left")
        check_number("alpha", 1.0 if self.alpha is None else self.alpha, low=1e-6, high=1e6)
        bound = np.asarray(self.column_bound)
        if bound.shape not in ((), (self.n_features,)) or not np.all((bound >= 1e-6) & (bound <= 1)):
            raise ParameterError(f"column_bound must be a number in [1e-6, 1], or {self.n_features} of them.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Counts and second moments first; a score with two scalars at each step."""
        b, shape = self.likelihood.max_b, (self.n_features,)
        hidden = math.sqrt((1 - self.intercept) * (1 + self.intercept))
        return {
            "count": Block((2,), b, "nonnegative", "first", weight=math.sqrt(_COUNT)),
            "second": Block(shape, b * hidden, "nonnegative", "first", weight=math.sqrt(_SECOND)),
            "score": Block(shape, self.likelihood.max_residual, average=False),
            "variance": Block((2,), b * math.sqrt(2), "nonnegative", average=False, weight=_SCALARS),
        }

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the budget that the first release takes."""
        return {"first": _COUNT + _SECOND}

    @property
    def schedule(self) -> list[float]:
        """Relative noise multipliers of the steps: later scores are released more precisely, μ_t² ∝ t."""
        return [math.sqrt(self.num_steps / t) for t in range(1, self.num_steps + 1)]

    def init(self, rng: np.random.Generator) -> Path:
        """The prior; no randomness."""
        zero, one = np.zeros(self.n_features), np.ones(self.n_features)
        unread = columns.Columns(one, zero, one, 1.0, one > 0)
        return Path(unread, one, zero, Descent.start(zero, _SAFETY), Average(zero, zero))

    def e_step(self, q: Path, batch: SparseDesign, blocks: Mapping[str, Block]) -> Contributions:
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
        square_n = np.minimum(norm_n, 1.0) * np.stack([np.minimum(norm_n, _TRIM) / _TRIM, np.minimum(norm_n, 1.0)])
        score = replace(entries, values=scaled * residual_n[row])
        return {"score": score, "variance": Rows((variance_n * square_n).T)}

    def m_step(self, s: Estimate, q: Path) -> Path:
        """Scales and prior mean after the first release, one majorised step after each score."""
        if "score" in s.names:
            return self._stepped(s, q)
        yes, no = s.read("count")
        number = max(yes + no, 2 * s.noise_std("count"), 1e-3 * self.likelihood.max_b)
        sd, bound_d = s.noise_std("second"), np.broadcast_to(self.column_bound, self.n_features)
        found = columns.read(s.read("second"), sd, bound_d, number, self.intercept)
        scale_d, start_d = np.ones(self.n_features), np.zeros(self.n_features)
        if self.intercept > 0:
            start_d[0] = logit(np.clip((yes + 1) / (number + 2), 0.001, 0.999)) / self.intercept
        if sd > 0:
            scale_d = found.second_d ** (_POWER / 2)
            scale_d *= math.sqrt(float(np.sum(found.second_d / scale_d**2) / np.sum(found.second_d))) / _SHRINK
        return Path(found, scale_d, start_d, Descent.start(start_d, _SAFETY), Average(start_d, 0 * start_d))

    def _stepped(self, s: Estimate, q: Path) -> Path:
        t, sd, score_d = q.step + 1, s.noise_std("score"), q.scale_d * s.read("score")
        share_d = s.read("variance")[:, None] * ((_TRIM,), (1.0,)) / float(np.sum(q.columns.second_d / q.scale_d**2))
        share_d = q.share_d + (2 / (t + 1) if sd > 0 else 1.0) * (np.clip(share_d, 0.03, 1.0) - q.share_d)
        fresh = t < 0.1 * self.num_steps or q.descent.num_steps == 0
        mean = (Average(q.start_d, score_d) if fresh else q.mean).joined(q.descent.point_d, score_d, sd**2)
        q = replace(q, step=t, share_d=share_d, mean=mean)
        q = replace(q, alpha=self._precision(q))
        gradient_d = score_d - (majoriser := self._majoriser(q)).ridge_d * (q.descent.point_d - q.start_d)
        return replace(q, descent=q.descent.step(score_d, gradient_d, (sd * q.scale_d) ** 2, majoriser))

    def _information(self, q: Path) -> tuple[Floats, Floats, Floats]:
        """The prior's precision; information of the weighted score; variance of the score, data's and noise's."""
        precision_d = np.full(self.n_features, q.alpha)
        precision_d[: int(self.intercept > 0)] = _FLAT
        information_d, sampling_d = 0.25 * q.share_d * q.columns.second_d
        return precision_d, information_d, sampling_d + q.mean.noise * q.scale_d**2

    def _precision(self, q: Path) -> float:
        """α at the mean of its posterior, given the weights of the columns that are seen at all."""
        if self.alpha is not None:
            return self.alpha
        precision_d, information_d, variance_d = self._information(q)
        square_d = (self.weights(q).mean_d - q.start_d) ** 2 + 1 / (precision_d + information_d**2 / variance_d)
        seen_d = square_d[q.columns.seen_d]
        return (_SHAPE + 0.5 * len(seen_d)) / (_SHAPE + 0.5 * float(seen_d.sum()))

    def _majoriser(self, q: Path) -> DiagonalAndConstant:
        """With the prior's precision as a ridge, heavier where there is noise in the score."""
        precision_d, information_d, variance_d = self._information(q)
        ridge_d = precision_d * variance_d / information_d
        return DiagonalAndConstant(0.25 * q.columns.steep_d, ridge_d, q.columns.sum_d, 0.25 / q.columns.number)

    def weights(self, q: Path) -> Weights:
        """Posterior of the weights, in the coordinates of x: one more step from the means."""
        (precision_d, information_d, variance_d), majoriser = self._information(q), self._majoriser(q)
        gradient_d = q.mean.score_d - majoriser.ridge_d * (q.mean.point_d - q.start_d)
        mean_d = q.mean.point_d + majoriser.solve(gradient_d, q.descent.safety)
        data_d = variance_d - q.mean.noise * q.scale_d**2
        return Weights(mean_d, *(1 / (precision_d + information_d**2 / of_d) for of_d in (variance_d, data_d)))
