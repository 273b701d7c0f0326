"""Regression with binomial likelihoods from Pólya-Gamma sufficient statistics (Park et al. 2020); unit: a row.

    m ~ N(0, I/α),   α ~ Gam(a0, b0),   ψ_n = x_nᵀ m,   p(y | ψ) ∝ exp(ψ)^a / (1 + exp ψ)^b,   κ = a - b/2

ψ is the log odds (Polson, Scott & Windle 2013). Labels have a = y, b = 1, successes b = trials, and negative binomial
counts b = y + r with ψ = log(μ/r). The Poisson distribution has no such form.

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
posterior.

*Precision.* The linear model is S_1 = C m + (sampling noise of covariance C) with prior m ~ N(0, I/α). Seen are S_1 +
e_1 and C + E_2; E_2 has independent normal noise of std s on its svec coordinates, and eigenvalues up to the noise edge
√(2d)s. With

    μ = Σ (S_1 + e_1),   Σ⁻¹ = C + T,   T = αI + (what lifts eigenvalues to the noise edge)

no direction is read with a curvature below its noise, and the error of μ is, to first order,

    (C + T)(μ - m) = sampling noise + e_1 - E_2 μ - T m,   Cov = Σ (C + V + T²/α) Σ,   V = Var(e_1 - E_2 μ),

which is Σ without noise.

*Second moments* ⟨(xᵀm)²⟩ of private rows are exact, like the products in `kernels.linear`. With Σ = AᵀA for a
triangular A, xᵀ(Σ + μμᵀ)x = ‖Ax‖² + (μᵀx)²: half the work of a product with Σ. Rows of A and x are rounded to integers
of norm 2²⁶ at most (a little more after rounding), so that all partial sums stay below 2⁵³ and float64 adds them
exactly in any order: a row's bits never depend on the rest of its batch. The larger part, μᵀx, is added up row by row
in full precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.linalg.blas import dtrmm
from scipy.linalg.lapack import dlauum, dpotrf, dtrtri

from dpvb.core.blocks import Block, unpack_symmetric
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive, Symmetric
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.kernels.linear import powers
from dpvb.models.base import Model
from dpvb.models.expfam import gamma_expectedstats, polya_gamma_expectedstats, polya_gamma_logz
from dpvb.models.regression.likelihood import Likelihood, times
from dpvb.models.regression.ridge import WeightPosterior
from dpvb.rows.regression import DesignRows

# Numbers that were tuned: benchmark `logistic` (sufficient statistics) shows what they do.
# Part of Σμ² for S_1, which is released once.
_STATISTIC_BUDGET = 0.3
# Least weight of the newest release of S_2 in the average: older ones belong to an older q.
_NEWEST_WEIGHT = 0.5
# For the next ⟨ξ⟩, μ is moved on by this fraction of its last change.
_AHEAD = 0.8
# Least ⟨mᵀm⟩ as a fraction of d/α: ⟨α⟩ at most doubles in a step.
_LEAST_SQUARE = 0.5
# Most columns of which eigenvalues are computed, for time: benchmark `polya_gamma_speed`.
_MOST_EIGENVALUES = 1024
# With more columns every direction is lifted by this many noise edges: at 1, the most negative noise eigenvalue would
# nearly cancel the lift.
_LIFT_BEYOND_EDGE = 1.2
# Growth of the ridge while the precision is not positive definite.
_RIDGE_GROWTH = 1.1
# Rows multiplied at a time, and entries of the parts in which they are prepared: a part stays in the cache.
_ROWS = 1024
_ENTRIES = 2**16
_NO_LIFT = np.zeros((0, 0))
# Largest norm of a row of A before it is rounded.
_LONGEST = 2.0**26


@dataclass(frozen=True)
class SecondMoment:
    """x ↦ xᵀ(AᵀA + μμᵀ)x, with A rounded once for all rows.

    Attributes:
        root_dd: scaled A, lower triangular, integers in Fortran order.
        mean_d: μ.
        scale: what A was multiplied by, a power of two.

    Raises:
        ParameterError: if entries are no integers or rows are too long, so that products would not be exact.
    """

    root_dd: Floats
    mean_d: Floats
    scale: float

    def __post_init__(self) -> None:
        longest = float(np.einsum("ij,ij->i", self.root_dd, self.root_dd).max(initial=0.0))
        if not (np.rint(self.root_dd) == self.root_dd).all() or not longest <= (_LONGEST + len(self.root_dd)) ** 2:
            raise ParameterError("root_dd must be a matrix of whole numbers, with rows of norm 2^26 at most.")

    @classmethod
    def of(cls, root_dd: Floats, mean_d: Floats) -> SecondMoment:
        """Round a lower triangular A, (d, d), and μ, (d,), both public and finite."""
        scale = float(powers(np.einsum("ij,ij->i", root_dd, root_dd)).min())
        scaled_dd = np.asfortranarray(root_dd) * scale
        return cls(np.rint(scaled_dd, out=scaled_dd), mean_d, scale)

    def __call__(self, x_nd: Floats) -> Floats:
        """Second moments of rows, (n,), to about 2⁻²⁶√d of ‖x‖²‖Σ‖; NaN where a row is not finite."""
        moment_n = np.empty(len(x_nd))
        for start in range(0, len(x_nd), _ROWS):
            with np.errstate(invalid="ignore"):
                moment_n[start : start + _ROWS] = self._of_block(x_nd[start : start + _ROWS])
        return moment_n

    def _of_block(self, x_nd: Floats) -> Floats:
        block_nd = np.empty(x_nd.shape)
        scale_n, mean_n, square_n = np.empty((3, len(x_nd)))
        rows = max(1, _ENTRIES // max(x_nd.shape[1], 1))
        parts = [slice(start, start + rows) for start in range(0, len(x_nd), rows)]
        for part in parts:
            room = block_nd[part]
            scale_n[part] = powers(np.add.reduce(np.square(x_nd[part], out=room), axis=1))
            np.add.reduce(np.multiply(x_nd[part], self.mean_d, out=room), axis=1, out=mean_n[part])
            np.rint(np.multiply(x_nd[part], scale_n[part, None], out=room), out=room)
        # The transposed block lies in Fortran order: BLAS multiplies it in place.
        block_nd = dtrmm(1.0, self.root_dd, block_nd.T, lower=1, overwrite_b=1).T
        for part in parts:
            np.add.reduce(np.square(block_nd[part], out=block_nd[part]), axis=1, out=square_n[part])
        # Powers of two: exact, and one after the other they do not overflow.
        scale_n *= self.scale
        return np.asarray(square_n / scale_n / scale_n + np.square(mean_n))


def inverse_root(matrix_dd: Floats, ridge: float) -> Floats | None:
    """Lower triangular A with AᵀA = (matrix + ridge·I)⁻¹, or None where that is not positive definite."""
    precision_dd = matrix_dd.copy()
    precision_dd.flat[:: len(matrix_dd) + 1] += ridge
    # A symmetric matrix is its own transpose, and the transpose lies in Fortran order.
    factor_dd, failed = dpotrf(precision_dd.T, lower=1, overwrite_a=1)
    if failed:
        return None
    return np.asarray(dtrtri(factor_dd, lower=1, overwrite_c=1)[0])


def squared(root_dd: Floats) -> Floats:
    """AᵀA of a lower triangular A."""
    square_dd = dlauum(root_dd, lower=1)[0]
    square_dd.flat[:: len(square_dd) + 1] *= 0.5
    return np.asarray(square_dd + square_dd.T)


def squared_norm(root_dd: Floats) -> float:
    """‖AᵀA‖² (Frobenius) of a lower triangular A, from one triangle."""
    lower_dd = dlauum(root_dd, lower=1)[0]
    diagonal_d = lower_dd.diagonal()
    return 2.0 * float(np.linalg.norm(lower_dd)) ** 2 - float(diagonal_d @ diagonal_d)


@dataclass(frozen=True)
class Precision:
    """Σ⁻¹ = C + T in parts; public.

    Attributes:
        curvature_dd: C as it was read.
        lift_dd: what lifts its small eigenvalues to the noise edge; (0, 0): nothing.
        ridge: the multiple of I in T.
        alpha: precision of the prior.
        linear_noise, curvature_noise: variances of the noise on S_1 and on svec C.
    """

    curvature_dd: Symmetric
    lift_dd: Symmetric
    ridge: Positive
    alpha: Positive
    linear_noise: Nonnegative = 0.0
    curvature_noise: Nonnegative = 0.0

    @classmethod
    def read(cls, noisy_dd: Floats, alpha: float, linear_noise: float, curvature_noise: float) -> Precision:
        """Read noisy second moments, (d, d)."""
        edge = math.sqrt(2 * len(noisy_dd) * curvature_noise)
        if edge == 0 or len(noisy_dd) > _MOST_EIGENVALUES:
            # No eigenvalues are computed: every direction is raised alike.
            return cls(noisy_dd, _NO_LIFT, alpha + _LIFT_BEYOND_EDGE * edge, alpha, linear_noise, curvature_noise)
        value_e, vector_de = np.linalg.eigh(noisy_dd)
        value_e = np.maximum(value_e, 0.0)
        lift_dd = (vector_de * np.maximum(edge - value_e, 0.0)) @ vector_de.T
        return cls((vector_de * value_e) @ vector_de.T, lift_dd, alpha, alpha, linear_noise, curvature_noise)

    def solve(self, linear_d: Floats) -> tuple[Precision, Floats, Floats]:
        """(precision, A, μ): Σ = AᵀA, A lower triangular; the ridge grows until Σ⁻¹ is positive definite, rarely."""
        total_dd = self.curvature_dd + self.lift_dd if self.lift_dd.size else self.curvature_dd
        ridge = self.ridge
        while (root_dd := inverse_root(total_dd, ridge)) is None:
            ridge *= _RIDGE_GROWTH
        return replace(self, ridge=ridge), root_dd, root_dd.T @ (root_dd @ linear_d)

    def spread(self, root_dd: Floats, mean_d: Floats) -> float:
        """⟨mᵀm⟩ - μᵀμ; without noise it is tr Σ.

        It is such that d/⟨mᵀm⟩ = α if μᵀμ is as large as m ~ N(0, I/α) makes it in expectation.
        """
        trace = float(np.linalg.norm(root_dd)) ** 2
        if self.linear_noise + self.curvature_noise == 0:
            return trace
        # ‖ΣC‖² and tr ΣCΣ; without a lift ΣC = I - ridge·Σ.
        if not self.lift_dd.size:
            square = squared_norm(root_dd)
            retained = len(mean_d) - 2.0 * self.ridge * trace + self.ridge**2 * square
            sampling = trace - self.ridge * square
        else:
            sigma_dd = squared(root_dd)
            seen_dd, square = sigma_dd @ self.curvature_dd, float(np.linalg.norm(sigma_dd)) ** 2
            retained, sampling = float(np.linalg.norm(seen_dd)) ** 2, float(np.vdot(seen_dd, sigma_dd))
        return (len(mean_d) - retained) / self.alpha - sampling - self._noise(mean_d) * square

    def covariances(self, mean_d: Floats, factor: float) -> tuple[Floats, Floats]:
        """(Cov, Σ) with C times a factor in (0, 1]: curvature at the mean, over that of the fixed point."""
        precision, root_dd, _ = replace(self, curvature_dd=factor * self.curvature_dd).solve(mean_d)
        sigma_dd = squared(root_dd)
        if self.linear_noise + self.curvature_noise == 0:
            return sigma_dd, sigma_dd
        added_dd = precision.ridge * np.eye(len(mean_d))
        if self.lift_dd.size:
            added_dd += self.lift_dd
        middle_dd = precision.curvature_dd + added_dd @ added_dd / self.alpha
        middle_dd += 0.5 * self.curvature_noise * np.outer(mean_d, mean_d)
        middle_dd.flat[:: len(mean_d) + 1] += self._noise(mean_d)
        return sigma_dd @ middle_dd @ sigma_dd, sigma_dd

    def _noise(self, mean_d: Floats) -> float:
        """V without its part ½s²μμᵀ; what is left is the same in all directions."""
        return self.linear_noise + 0.5 * self.curvature_noise * float(mean_d @ mean_d)


@dataclass(frozen=True)
class PolyaGammaState:
    """q(m) q(α); all public.

    Attributes:
        mean_d: μ.
        alpha: ⟨α⟩.
        precision: Σ⁻¹ in parts.
        moment: x ↦ xᵀ⟨m mᵀ⟩x, with μ moved on for the next ⟨ξ⟩; 0 at the start.
    """

    mean_d: Floats
    alpha: Positive
    precision: Precision
    moment: SecondMoment


@dataclass(frozen=True)
class PolyaGamma(Model):
    """The model; every field is public. `dpvb.Private` fits it to a `dpvb.data.Design`, which has rows and responses.

    Attributes:
        n_features: d, the constant column included where there is one.
        kind, max_trials, dispersion, max_count, max_weight: distribution of the responses, as in `Likelihood`.
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
    kind: Literal["logistic", "binomial", "negative_binomial"] = "logistic"
    max_trials: float = 1.0
    dispersion: float = 1.0
    max_count: float = 1.0
    max_weight: float | None = None
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
        check_choice("kind", self.kind, ("logistic", "binomial", "negative_binomial"))
        for name in ("a0", "b0", *(["alpha"] if self.alpha is not None else [])):
            check_number(name, getattr(self, name), low=1e-9, high=1e9)

    @property
    def likelihood(self) -> Likelihood:
        """Distribution of the responses."""
        return Likelihood(self.kind, self.max_trials, self.dispersion, self.max_count, max_weight=self.max_weight)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """κ x and ⟨ξ⟩ x xᵀ; Analyze Gauss sends the upper triangle of the matrix as a vector."""
        d, quarter, is_paper = self.n_features, self._max_b / 4, self.variant == "paper"
        first = Block((d,), self._max_kappa, phase="step" if is_paper else "first")
        second = Block((d * (d + 1) // 2,), quarter) if is_paper else Block((d, d), quarter, "gram")
        return self.likelihood.bounded({"kappa_x": first, "xi_xx": second})

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
        return Schedule(noise_t.tolist(), {"first": _STATISTIC_BUDGET, "last": _STATISTIC_BUDGET}, self.step_size)

    def step_size(self, t: int) -> float:
        """ρ of the plan's release t = 1, 2, ...: later releases weigh more; the papers keep the newest."""
        return max(2 / (t + 2), _NEWEST_WEIGHT) if self.average and self.variant == "corrected" else 1.0

    def init(self, rng: np.random.Generator) -> PolyaGammaState:
        """The prior's mean, where every ⟨ξ⟩ is b/4; no randomness."""
        alpha, zero_d = self.a0 / self.b0 if self.alpha is None else self.alpha, np.zeros(self.n_features)
        zero_dd = np.zeros((self.n_features, self.n_features))
        return PolyaGammaState(
            zero_d, alpha, Precision(zero_dd, _NO_LIFT, alpha, alpha), SecondMoment.of(zero_dd, zero_d)
        )

    def c(self, q: PolyaGammaState, x_nd: Floats) -> Floats:
        """√⟨ψ²⟩ of every row, (n,)."""
        return np.sqrt(q.moment(x_nd))

    @times
    def e_step(self, q: PolyaGammaState, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """Both statistics of every row, or the one that is asked for."""
        b_n, statistics = self._b(batch), dict[str, Gram | Rows]()
        if "kappa_x" in blocks:
            statistics["kappa_x"] = Rows(batch.x_nd * self._kappa(batch)[:, None])
        if "xi_xx" in blocks:
            statistics["xi_xx"] = Gram(batch.x_nd, polya_gamma_expectedstats(b_n, self.c(q, batch.x_nd)))
        return statistics

    def m_step(self, s: Estimate, q: PolyaGammaState) -> PolyaGammaState:
        """q(m), then q(α), from the released statistics."""
        if self.variant == "paper":
            projected_dd = _near_zero(unpack_symmetric(s.read("xi_xx"), self.n_features))
            precision = Precision(projected_dd, _NO_LIFT, q.alpha, q.alpha)
        else:
            noise = s.noise_std("kappa_x") ** 2, s.noise_std("xi_xx") ** 2
            precision = Precision.read(s.read("xi_xx"), q.alpha, *noise)
        precision, root_dd, mean_d = precision.solve(s.read("kappa_x"))
        ahead_d = mean_d + (_AHEAD if self.variant == "corrected" else 0.0) * (mean_d - q.mean_d)
        moment = SecondMoment.of(np.zeros_like(root_dd) if self.mode else root_dd, ahead_d)
        if self.alpha is not None:
            return PolyaGammaState(mean_d, self.alpha, precision, moment)
        square = float(mean_d @ mean_d) + precision.spread(root_dd, mean_d)
        # Noise can make this estimate of ⟨mᵀm⟩ negative; its floor lets ⟨α⟩ at most double.
        rate = self.b0 + 0.5 * max(square, _LEAST_SQUARE * self.n_features / q.alpha)
        _, alpha = gamma_expectedstats(self.a0 + self.n_features / 2, rate)
        return PolyaGammaState(mean_d, float(alpha), precision, moment)

    def weights(self, q: PolyaGammaState) -> WeightPosterior:
        """Posterior of the weights, in the coordinates of x.

        The curvature Σ b p(1-p) x xᵀ is below S_2. It is taken as S_2 times one factor, the mean of p(1-p)/⟨ξ⟩ =
        ψ/sinh ψ over a normal ψ. With an intercept, the mean and variance of ψ (under the weights ⟨ξ⟩) are read from
        S_2; without one, rows are taken to have norm 1 and mean 0. The exact value would cost one more release
        (`first_order` makes it). The published method uses Σ unchanged.
        """
        factor = 1.0 if self.variant == "paper" else self._sharpness(q.mean_d, q.precision.curvature_dd)
        return WeightPosterior.alone(q.mean_d, *q.precision.covariances(q.mean_d, factor))

    def table(self, q: PolyaGammaState) -> WeightPosterior:
        """The same posterior, for intervals."""
        return replace(self.weights(q), prior=np.full(self.n_features, 1.0 / q.alpha))

    @property
    def _max_b(self) -> float:
        """Bound on b_n."""
        return self.max_count + self.dispersion if self.kind == "negative_binomial" else self.likelihood.max_size

    @property
    def _max_kappa(self) -> float:
        """Bound on |κ_n|."""
        if self.kind == "negative_binomial":
            return max(abs(self.max_count - self.dispersion), self.dispersion) / 2
        return self._max_b / 2

    def _b(self, batch: DesignRows) -> Floats:
        """b_n of every row."""
        if self.kind == "negative_binomial":
            return batch.y_n + self.dispersion
        return batch.trials_n if self.kind == "binomial" else np.ones_like(batch.y_n) + 0.0 * batch.y_n

    def _kappa(self, batch: DesignRows) -> Floats:
        """κ_n of every row."""
        return batch.y_n - 0.5 * self._b(batch)

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

    def bound(self, q: PolyaGammaState, batch: DesignRows) -> Floats:
        """Lower bound on each public row's ⟨log p(y)⟩, (n,), in nats, up to the part that depends on y alone."""
        kappa_n, b_n = self._kappa(batch), self._b(batch)
        return kappa_n * (batch.x_nd @ q.mean_d) - b_n * math.log(2) + polya_gamma_logz(b_n, self.c(q, batch.x_nd))


def _near_zero(matrix_dd: Floats) -> Floats:
    """Eigenvalues lifted to 0.001: the papers project them "to some value near zero"."""
    value_e, vector_de = np.linalg.eigh(matrix_dd)
    return np.asarray((vector_de * np.maximum(value_e, 1e-3)) @ vector_de.T)
