"""Regression with binomial likelihoods from Pólya-Gamma sufficient statistics (Park et al. 2020); unit: a row.

    m ~ N(0, I/α),   α ~ Gam(a0, b0),   ψ_n = x_nᵀ m,   p(y_n | ψ_n) as in `likelihood`

==================  =============================================================================
paper               code
==================  =============================================================================
s_1 = κ x           block "kappa_x", S_1; released once: it does not depend on q
s_2 = ⟨ξ⟩ x xᵀ      block "xi_xx", S_2; released at every step and averaged
c² = xᵀ⟨m mᵀ⟩x      moment(x): ⟨ψ²⟩ of every row
Σ⁻¹ = ⟨α⟩I + S_2    precision.curvature_dd + alpha · I, and what lifts it above the noise
μ = Σ S_1           mean_d
⟨α⟩                 alpha
==================  =============================================================================

Corrected against the paper: S_1 is released once; S_2 is averaged, and read against its noise, which also widens the
posterior (`precision`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dpvb.core.blocks import Block, unpack_symmetric
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models.expfam import gamma_expectedstats, polya_gamma_expectedstats, polya_gamma_logz
from dpvb.models.regression import tuned
from dpvb.models.regression.batch import RegressionBatch
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.multiplicity import bounded, times
from dpvb.models.regression.precision import Precision
from dpvb.models.regression.quadratic import SecondMoment
from dpvb.models.regression.weights import Weights


@dataclass(frozen=True)
class WeightPosterior:
    """q(m) q(α); all public.

    Attributes:
        mean_d: μ.
        alpha: ⟨α⟩.
        precision: Σ⁻¹ in parts.
        moment: x ↦ xᵀ⟨m mᵀ⟩x, with μ moved on for the next ⟨ξ⟩; None at the start, where m = 0.
    """

    mean_d: Floats
    alpha: Positive
    precision: Precision
    moment: SecondMoment | None = None


@dataclass(frozen=True)
class PolyaGamma:
    """The model; every field is public.

    Attributes:
        n_features: d, the constant column included where there is one.
        likelihood: distribution of the responses.
        intercept: value of column 0 in every row; 0: there is no such column.
        num_steps: J, number of releases of S_2.
        alpha: ⟨α⟩; None: learnt, with the prior Gam(a0, b0).
        a0, b0: shape and rate.
        average: False keeps the newest release of S_2 alone, which converges sooner where there is no noise.
        mode: True finds the mode of m instead of its distribution, for comparison: c = |xᵀμ|.
        variant: "paper" releases S_1 and S_2 at every step, with the noise of Analyze Gauss, and reads them as exact.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    likelihood: Likelihood = field(default_factory=Likelihood)
    intercept: float = 0.0
    num_steps: int = 16
    alpha: float | None = None
    a0: float = 1.0
    b0: float = 1.0
    average: bool = True
    mode: bool = False
    variant: Literal["corrected", "paper"] = "corrected"

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features, low=1)
        check_integer("num_steps", self.num_steps, low=1, high=10**7)
        check_number("intercept", self.intercept, low=0, high=1, closed="left")
        check_choice("variant", self.variant, ("corrected", "paper"))
        check_choice("kind", self.likelihood.kind, ("logistic", "binomial", "negative_binomial"))
        for name in ("a0", "b0", *(["alpha"] if self.alpha is not None else [])):
            check_number(name, getattr(self, name), low=1e-9, high=1e9)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """κ x and ⟨ξ⟩ x xᵀ; Analyze Gauss sends the upper triangle of the matrix as a vector."""
        d, quarter, is_paper = self.n_features, self.likelihood.max_b / 4, self.variant == "paper"
        first = Block((d,), self.likelihood.max_kappa, phase="step" if is_paper else "first")
        second = Block((d * (d + 1) // 2,), quarter) if is_paper else Block((d, d), quarter, "gram")
        return bounded({"kappa_x": first, "xi_xx": second}, self.likelihood)

    @property
    def schedule(self) -> Schedule:
        """The plan: its noise gives budgets in proportion to the weights of the average.

        So the average is as precise as one release of the whole budget.
        """
        weight_t = np.zeros(self.num_steps)
        for t in range(self.num_steps):
            weight_t *= 1 - self.step_size(t + 2)
            weight_t[t] = self.step_size(t + 2)
        alone = self.step_size(self.num_steps) == 1
        noise_t = np.ones(self.num_steps) if alone else 1 / np.sqrt(np.maximum(weight_t / weight_t.max(), 1e-6))
        return Schedule(
            noise_t.tolist(), {"first": tuned.STATISTIC_BUDGET, "last": tuned.STATISTIC_BUDGET}, self.step_size
        )

    def step_size(self, t: int) -> float:
        """ρ of the plan's release t = 1, 2, ...: later releases weigh more; the papers keep the newest."""
        return max(2 / (t + 2), tuned.NEWEST_WEIGHT) if self.average and self.variant == "corrected" else 1.0

    def init(self, rng: np.random.Generator) -> WeightPosterior:
        """The prior's mean, where every ⟨ξ⟩ is b/4; no randomness."""
        alpha, zero_d = self.a0 / self.b0 if self.alpha is None else self.alpha, np.zeros(self.n_features)
        return WeightPosterior(zero_d, alpha, Precision(np.zeros((len(zero_d), len(zero_d))), None, alpha, alpha))

    def c(self, q: WeightPosterior, x_nd: Floats) -> Floats:
        """√⟨ψ²⟩ of every row, (n,)."""
        return np.sqrt(q.moment(x_nd)) if q.moment else np.zeros(len(x_nd))

    @times
    def e_step(self, q: WeightPosterior, batch: RegressionBatch, blocks: Mapping[str, Block]) -> Contributions:
        """Both statistics of every row, or the one that is asked for."""
        b_n, statistics = self.likelihood.b(batch.y_n, batch.trials_n), dict[str, Gram | Rows]()
        if "kappa_x" in blocks:
            statistics["kappa_x"] = Rows(batch.x_nd * self.likelihood.kappa(batch.y_n, batch.trials_n)[:, None])
        if "xi_xx" in blocks:
            statistics["xi_xx"] = Gram(batch.x_nd, polya_gamma_expectedstats(b_n, self.c(q, batch.x_nd)))
        return statistics

    def m_step(self, s: Estimate, q: WeightPosterior) -> WeightPosterior:
        """q(m), then q(α), from the released statistics."""
        if "xi_xx" not in s.names:
            return q
        if self.variant == "paper":
            projected_dd = _near_zero(unpack_symmetric(s.read("xi_xx"), self.n_features))
            precision = Precision(projected_dd, None, q.alpha, q.alpha)
        else:
            noise = s.noise_std("kappa_x") ** 2, s.noise_std("xi_xx") ** 2
            precision = Precision.read(s.read("xi_xx"), q.alpha, *noise)
        precision, root_dd, mean_d = precision.solve(s.read("kappa_x"))
        ahead_d = mean_d + (tuned.AHEAD if self.variant == "corrected" else 0.0) * (mean_d - q.mean_d)
        moment = SecondMoment.of(np.zeros_like(root_dd) if self.mode else root_dd, ahead_d)
        if self.alpha is not None:
            return WeightPosterior(mean_d, self.alpha, precision, moment)
        square = float(mean_d @ mean_d) + precision.spread(root_dd, mean_d)
        # Noise can make this estimate of ⟨mᵀm⟩ negative; its floor lets ⟨α⟩ at most double.
        rate = self.b0 + 0.5 * max(square, tuned.LEAST_SQUARE * self.n_features / q.alpha)
        _, alpha = gamma_expectedstats(self.a0 + self.n_features / 2, rate)
        return WeightPosterior(mean_d, float(alpha), precision, moment)

    def weights(self, q: WeightPosterior) -> Weights:
        """WeightPosterior of the weights, in the coordinates of x.

        The curvature Σ b p(1-p) x xᵀ is below S_2. It is taken as S_2 times one factor, the mean of p(1-p)/⟨ξ⟩ =
        ψ/sinh ψ over a normal ψ. With an intercept, the mean and variance of ψ (under the weights ⟨ξ⟩) are read from
        S_2; without one, rows are taken to have norm 1 and mean 0. The exact value would cost one more release
        (`first_order` makes it). The published method uses Σ unchanged.
        """
        factor = 1.0 if self.variant == "paper" else self._sharpness(q.mean_d, q.precision.curvature_dd)
        return Weights.alone(q.mean_d, *q.precision.covariances(q.mean_d, factor))

    def table(self, q: WeightPosterior) -> Weights:
        """The same posterior, for intervals."""
        return replace(self.weights(q), prior=np.full(self.n_features, 1.0 / q.alpha))

    def _sharpness(self, mean_d: Floats, curvature_dd: Floats) -> float:
        """Mean of ψ/sinh ψ."""
        pull_d = curvature_dd @ mean_d
        mass, centre = max(float(np.trace(curvature_dd)), 1e-300), 0.0
        if self.intercept > 0:
            mass = max(float(curvature_dd[0, 0]) / self.intercept**2, 1e-300)
            centre = float(pull_d[0]) / self.intercept / mass
        spread = math.sqrt(max(float(mean_d @ pull_d) / mass - centre**2, 0.0))
        node_k, weight_k = np.polynomial.hermite_e.hermegauss(40)
        psi_k = np.clip(np.abs(centre + spread * node_k), 1e-3, 500.0)
        return float(weight_k @ (psi_k / np.sinh(psi_k)) / weight_k.sum())

    def bound(self, q: WeightPosterior, batch: RegressionBatch) -> Floats:
        """Lower bound on each public row's ⟨log p(y)⟩, (n,), in nats, up to the part that depends on y alone."""
        kappa_n, b_n = (f(batch.y_n, batch.trials_n) for f in (self.likelihood.kappa, self.likelihood.b))
        return kappa_n * (batch.x_nd @ q.mean_d) - b_n * math.log(2) + polya_gamma_logz(b_n, self.c(q, batch.x_nd))


def _near_zero(matrix_dd: Floats) -> Floats:
    """Eigenvalues lifted to 0.001: the papers project them "to some value near zero"."""
    value_e, vector_de = np.linalg.eigh(matrix_dd)
    return np.asarray((vector_de * np.maximum(value_e, 1e-3)) @ vector_de.T)
