"""Sigmoid belief network, first-order form (Gan, Henao, Carlson & Carin 2015; Park, Foulds, Chaudhuri & Welling 2020).

    z_k ~ Bernoulli(σ(b_k)),   y_j ~ Bernoulli(σ(w_jᵀz + c_j))          unit: a binary vector y

==================  =============================================================================
paper               code
==================  =============================================================================
w_jk                w_kj: hidden units are the first axis everywhere; a point, as are b and c
⟨z_nk⟩              pi_nk
⟨ψ_nj⟩, ⟨ξ_nj⟩      psi_nj, xi_nj: see kernels.sbn
z̄                   mean_k: running mean of ⟨z⟩; b = logit z̄
c + W z̄             level_j: offsets about the mean; they and W hardly pull at each other
y - ½ - ξ⟨ψ⟩        r_nj: derivative of the bound in ψ
G                   "gradient": Σ_n r_n p_nᵀ - W∘(ξ_n a_nᵀ), p = π - z̄, a = π(1 - π): derivative in W
⟨ζ_jk⁻¹⟩            scales.precision_kj: see models.beta_normal
==================  =============================================================================

A step divides the released derivatives by a public curvature: no second moments of J × K × K are released. The ridge
in the divisor grows with the noise of what is divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpvb.arrays import Floats, Ints
from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions, Grid
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.errors import check_choice, check_integer, check_number
from dpvb.guards.domains import PROBABILITIES, Positive
from dpvb.models.belief_network import kernel as kernel
from dpvb.models.belief_network.beta_normal import Scales

_RANGES = {"clip": (1e-3, 1e3), "ridge": (0.0, 1e6), "start_std": (0.0, 1e3), "start_mean": (1e-3, 1 - 1e-3)}
# ‖r‖ of a fitted model is about √(.03 J), ‖p‖ at most √K/2; two thirds of their product are as good as all of it.
_GRADIENT_BOUND, _BIAS_BOUND, _HIDDEN_BOUND = 0.0575, 0.25, 0.6
_LEAST_MEAN = 0.01
# What the mean of a hidden unit moves in a step: noise beyond it must not drive the mean, about which all is centred.
_DRIFT = 0.05


@dataclass(frozen=True)
class Network:
    """What has been learned: weights (K, J), levels (J,), mean hidden units (K,), the number of examples, scales."""

    w_kj: Floats
    level_j: Floats
    mean_k: Annotated[Floats, PROBABILITIES]
    count: Positive
    scales: Scales

    @property
    def c_j(self) -> Floats:
        """Offsets."""
        return np.asarray(self.level_j - (self.w_kj * self.mean_k[:, None]).sum(axis=0))

    @property
    def b_k(self) -> Floats:
        """Log odds of the hidden units."""
        return np.asarray(logit(self.mean_k))


@dataclass(frozen=True)
class Score:
    """Derivatives in the weights of every example: r_j p_k - w_kj ξ_j a_k, never kept."""

    r_nj: NDArray[np.floating[Any]]
    xi_nj: NDArray[np.floating[Any]]
    p_nk: NDArray[np.floating[Any]]
    a_nk: NDArray[np.floating[Any]]
    w_kj: NDArray[np.floating[Any]]
    engine: Literal["numba", "numpy"]

    def norms(self) -> Floats:
        """Bounds on the norms of the very numbers that are summed."""
        return kernel.score_norms(self.r_nj, self.xi_nj, self.p_nk, self.a_nk, self.w_kj, engine=self.engine)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add it, in the compiled kernel."""
        factors = self.r_nj, self.xi_nj, self.p_nk, self.a_nk, self.w_kj
        kernel.add_scores(*factors, weights, grid.step, out.reshape(self.w_kj.shape), engine=self.engine)


@dataclass(frozen=True)
class SBN:
    """The model; every field is public.

    Attributes:
        n_components: K, number of hidden units.
        n_visible: J.
        num_examples: public number of examples; None: it is released once, with the means.
        clip: factor on all bounds of the scores; 1 suits networks that reconstruct most of a vector.
        sweeps: rounds over the hidden units in the E-step; two leave more in the hidden units than convergence does.
        ridge: λ; the divisor of a step is the curvature plus λ times the noise of the mean derivative.
        start_std: standard deviation of the random start of the weights.
        start_mean: probability of the hidden units at the start.
        engine: "numba" (compiled, float32) or "numpy" (plain float64).

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_visible: int
    num_examples: float | None = None
    clip: float = 1.0
    sweeps: int = 2
    ridge: float = 2.0
    start_std: float = 0.1
    start_mean: float = 0.5
    engine: Literal["numba", "numpy"] = "numba"

    def __post_init__(self) -> None:
        for name in ("n_components", "n_visible", "sweeps"):
            check_integer(name, getattr(self, name), low=1)
        if self.num_examples is not None:
            check_number("num_examples", self.num_examples, low=1, high=1e15)
        for name, (low, high) in _RANGES.items():
            check_number(name, getattr(self, name), low=low, high=high)
        check_choice("engine", self.engine, ("numba", "numpy"))

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Σ y and, unless public, the number of examples; then derivatives in W (K, J) and c (J,), and Σ p (K,)."""
        num_hidden, num_visible, clip = self.n_components, self.n_visible, self.clip
        bound = clip * _GRADIENT_BOUND * (num_hidden * num_visible) ** 0.5
        first = {"visible": Block((num_visible,), 0.5 * num_visible**0.5, "nonnegative", phase="first")}
        if self.num_examples is None:
            first["count"] = Block((1,), 1.0, "nonnegative", phase="first", weight=0.2)
        return {
            **first,
            "gradient": Block((num_hidden, num_visible), bound, average=False),
            "bias": Block((num_visible,), clip * _BIAS_BOUND * num_visible**0.5, average=False, weight=0.16),
            "hidden": Block((num_hidden,), _HIDDEN_BOUND * num_hidden**0.5, average=False, weight=0.11),
        }

    def init(self, rng: np.random.Generator) -> Network:
        """Random weights, hidden units at start_mean, even visible ones."""
        w_kj = rng.normal(0.0, self.start_std, (self.n_components, self.n_visible))
        mean_k = np.full(self.n_components, self.start_mean)
        scales = Scales.start(self.n_components, self.n_visible)
        return Network(w_kj, np.zeros(self.n_visible), mean_k, self.num_examples or 1.0, scales)

    def e_step(self, q: Network, batch: NDArray[np.float32], blocks: Mapping[str, Block]) -> Contributions:
        """Derivatives of every example's own bound at q."""
        if "gradient" not in blocks:
            ones = {"count": Rows(np.ones_like(batch[:, :1], dtype=np.float64))} if "count" in blocks else {}
            return {"visible": Rows(batch.astype(np.float64)), **ones}
        pi_nk, xi_nj, psi_nj = self.local(q, batch, self.sweeps)
        real = pi_nk.dtype.type
        r_nj = batch.astype(real) - real(0.5) - xi_nj * psi_nj
        p_nk = pi_nk - q.mean_k.astype(real)
        score = Score(r_nj, xi_nj, p_nk, pi_nk * (1 - pi_nk), q.w_kj.astype(real), self.engine)
        # An offset is the weight of a hidden unit that is always on.
        one_nk, none_kj = np.ones_like(p_nk[:, :1]), np.zeros_like(score.w_kj[:1])
        bias = Score(r_nj, xi_nj, one_nk, 0 * one_nk, none_kj, self.engine)
        return {"gradient": score, "bias": bias, "hidden": Rows(p_nk.astype(np.float64))}

    def m_step(self, s: Estimate, q: Network) -> Network:
        """Preconditioned step along the released derivatives; after the means alone, the levels."""
        if "gradient" not in s.names:
            count = self.num_examples or max(float(s.read("count")[0]), 1.0)
            least = min(max(s.noise_std("visible") / count, 1.0 / count), 0.5)
            return replace(q, level_j=logit(np.clip(s.read("visible") / count, least, 1 - least)), count=count)
        noise = {name: self.ridge * s.noise_std(name) / q.count for name in s.names}
        square_j = q.level_j**2
        curvature_j = 0.5 * (0.25 + kernel.xi_of(square_j))
        spread_k = q.mean_k * (1 - q.mean_k)
        scales = q.scales.update(q.w_kj**2 + 1.0 / (q.count * curvature_j * spread_k[:, None]))
        slope_kj = (s.read("gradient") - scales.precision_kj * q.w_kj) / q.count
        w_kj = q.w_kj + s.rho * slope_kj / (curvature_j * (spread_k[:, None] + noise["gradient"]))
        level_j = q.level_j + s.rho * s.read("bias") / q.count / (curvature_j + noise["bias"])
        gain = 1.0 / (1.0 + (s.noise_std("hidden") / q.count / _DRIFT) ** 2)
        mean_k = q.mean_k + s.rho * gain * s.read("hidden") / q.count
        return Network(w_kj, level_j, np.clip(mean_k, _LEAST_MEAN, 1 - _LEAST_MEAN), q.count, scales)

    def local(self, q: Network, y_nj: NDArray[Any], sweeps: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Each example's ⟨z⟩, (n, K), ⟨ξ⟩ and ⟨ψ⟩, (n, J): see kernels.sbn.local_step."""
        return kernel.local_step(y_nj, q.w_kj, q.c_j, q.b_k, sweeps=sweeps, engine=self.engine)

    def bound(self, q: Network, y_nj: NDArray[Any], pi_nk: Floats) -> Floats:
        """Lower bound on each example's log-likelihood at q(z) and the learned weights, (n,), in nats."""
        no_variances = np.empty((0, self.n_visible))
        psi_nj, second_nj = kernel.second_moments(q.w_kj, no_variances, q.c_j, np.zeros(1), pi_nk)
        return kernel.example_bound(y_nj, pi_nk, psi_nj, second_nj, q.b_k, q.b_k**2)
