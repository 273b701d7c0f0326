"""Sigmoid belief network from second moments (Park, Foulds, Chaudhuri & Welling 2020, section 6); unit: a vector y.

    z_k ~ Bernoulli(σ(b_k)),   y_j ~ Bernoulli(σ(w_jᵀz + c_j)),   w as in `beta_normal`,   b, c ~ N(0, ν)

==================  =============================================================================
paper               code
==================  =============================================================================
μ_j, diag Σ_j       w_kj, v_kj: q(w_jk) = N(w, v), a diagonal Σ_j; hidden units first
μ_c, diag Σ_c       c_j, c_var_j
μ_b, diag Σ_b       b_k, b_var_k
Σ_n ⟨z⟩, y, ⟨ξ⟩     blocks "hidden" (K,), "visible" (J,), "xi" (J,)
Σ_n ⟨ξ⟩zᵀ, yzᵀ      blocks "xi_z", "y_z" (K, J)
Σ_n ξ_j ⟨zzᵀ⟩       block "xi_zz" (J, K, K); ⟨z_k z_k'⟩ = π_k π_k' off the diagonal, π_k on it
⟨ξ^(1)⟩             a function of ⟨b²⟩, hence public; the papers release it as a seventh block, "xi_hidden"
==================  =============================================================================

Corrected against the papers: Equation 77 has no ½ on the ξzW term. Every block is clipped ("clipped"), or bounded by
its worst case ("paper").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpvb.core.blocks import Block, positive_semidefinite, unpack_symmetric
from dpvb.core.contributions import Contributions, Grid, check_shape, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegatives, Positive
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models.belief_network import kernel as kernel
from dpvb.models.belief_network import tuned
from dpvb.models.belief_network.beta_normal import WeightScales

# Largest weight: probabilities are 0 or 1 long before it.
_LARGEST = 1e6


@dataclass(frozen=True)
class NetworkPosterior:
    """q(W) q(c) q(b), the prior's scales, and the number of examples; public."""

    w_kj: Floats
    v_kj: Nonnegatives
    c_j: Floats
    c_var_j: Nonnegatives
    b_k: Floats
    b_var_k: Nonnegatives
    scales: WeightScales
    count: Positive

    @property
    def hidden_square_k(self) -> Floats:
        """⟨b²⟩."""
        return np.asarray(self.b_k**2 + self.b_var_k)


@dataclass(frozen=True)
class SBNBlocks:
    """The model; every field is public.

    Attributes:
        n_components: K. n_visible: J.
        num_examples: public number of examples; None: it is released once.
        variant: "clipped" (six blocks with clipped norms; Σ y is released once) or "paper" (seven blocks at every step,
            bounded by their worst case; matrices are sent as vectors, with the same noise off the diagonal as on it).
        sweeps: rounds over the hidden units in the E-step.
        ridge: λ; matrices to be inverted get λ times the largest eigenvalue of their noise ("clipped" only).
        prior_variance: ν_b and ν_c.
        start_std: standard deviation of the random start of the weights.
        engine: "numba" (compiled, float32) or "numpy" (plain float64).
        mode: True finds the weights and offsets of highest density, of variance 0.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_visible: int
    num_examples: float | None = None
    variant: Literal["clipped", "paper"] = "clipped"
    sweeps: int = 3
    ridge: float = 1.0
    prior_variance: float = 100.0
    start_std: float = 0.1
    engine: Literal["numba", "numpy"] = "numba"
    mode: bool = False

    def __post_init__(self) -> None:
        for name in ("n_components", "n_visible", "sweeps"):
            check_integer(name, getattr(self, name), low=1)
        if self.num_examples is not None:
            check_number("num_examples", self.num_examples, low=1, high=1e15)
        check_choice("variant", self.variant, ("clipped", "paper"))
        check_choice("engine", self.engine, ("numba", "numpy"))
        check_number("ridge", self.ridge, low=0, high=1e6)
        check_number("prior_variance", self.prior_variance, low=1e-6, high=1e9)
        check_number("start_std", self.start_std, low=0, high=1e3)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """All blocks of the variant."""
        k, j, paper = self.n_components, self.n_visible, self.variant == "paper"
        matrices = (j, k * (k + 1) // 2) if paper else (j, k, k)
        worst_case: dict[str, tuple[tuple[int, ...], float]] = {
            "visible": ((j,), j**0.5),
            "hidden": ((k,), k**0.5),
            "xi": ((j,), j**0.5 / 4),
            "xi_z": ((k, j), (j * k) ** 0.5 / 4),
            "y_z": ((k, j), (j * k) ** 0.5),
            "xi_zz": (matrices, j**0.5 * k / 4),
        }
        if paper:
            worst_case["xi_hidden"] = ((k,), k**0.5 / 4)
        blocks = {
            name: Block(
                shape,
                worst if paper else worst * tuned.CLIPPED[name],
                "psd" if name == "xi_zz" and not paper else "nonnegative",
                phase="first" if name == "visible" and not paper else "step",
            )
            for name, (shape, worst) in worst_case.items()
        }
        count = Block((1,), 1.0, "nonnegative", phase="first", weight=tuned.COUNT_WEIGHT)
        return blocks if self.num_examples else {"count": count, **blocks}

    def init(self, rng: np.random.Generator) -> NetworkPosterior:
        """Random weights; offsets zero."""
        k, j = self.n_components, self.n_visible
        w_kj = rng.normal(0.0, self.start_std, (k, j))
        zero_k, zero_j = np.zeros(k), np.zeros(j)
        v_kj = np.full((k, j), 0.0 if self.mode else self.start_std**2)
        return NetworkPosterior(
            w_kj, v_kj, zero_j, zero_j, zero_k, zero_k, WeightScales.start(k, j), self.num_examples or 1.0
        )

    def local(self, q: NetworkPosterior, y_nj: NDArray[Any], sweeps: int) -> tuple[Floats, Floats, Floats]:
        """Each example's ⟨z⟩, ⟨ξ⟩ and ⟨ψ⟩: see `kernel.local_step`."""
        means = q.w_kj, q.c_j, q.b_k
        expected = kernel.local_step(y_nj, *means, v_kj=q.v_kj, extra_j=q.c_var_j, sweeps=sweeps, engine=self.engine)
        pi_nk, xi_nj, psi_nj = (part.astype(np.float64) for part in expected)
        return pi_nk, xi_nj, psi_nj

    def e_step(self, q: NetworkPosterior, batch: NDArray[np.float32], blocks: Mapping[str, Block]) -> Contributions:
        """Expected moments of every example."""
        y_nj = batch.astype(np.float64)
        moments: dict[str, Any] = {"visible": Rows(y_nj), "count": Rows(np.ones_like(y_nj[:, :1]))}
        if "xi" in blocks:
            pi_nk, xi_nj, _ = self.local(q, batch, self.sweeps)
            moments |= {"hidden": Rows(pi_nk), "xi": Rows(xi_nj), "xi_zz": HiddenMoments(xi_nj, pi_nk)}
            moments |= {"xi_z": Kron(pi_nk, xi_nj), "y_z": Kron(pi_nk, y_nj)}
            moments["xi_hidden"] = Rows(np.broadcast_to(kernel.xi_of(q.hidden_square_k), pi_nk.shape))
        return {name: moments[name] for name in blocks}

    def m_step(self, s: Estimate, q: NetworkPosterior) -> NetworkPosterior:
        """q(W), q(c) and q(b), one after the other, each at its optimum given the others and the statistics."""
        q = replace(q, count=self.num_examples or max(float(s.read("count")[0]), 1.0))
        if "xi" not in s.names:
            mean_j = s.read("visible") / q.count if "visible" in s.names else np.full(self.n_visible, 0.5)
            return replace(q, c_j=logit(np.clip(mean_j, tuned.LEAST_VISIBLE, 1 - tuned.LEAST_VISIBLE)))
        hidden_k, xi_z_kj, xi_j = s.read("hidden"), s.read("xi_z"), np.maximum(s.read("xi"), 0.0)
        paper, spread, second = self.variant == "paper", float(not self.mode), s.read("xi_zz")
        curvature_jkk = positive_semidefinite(unpack_symmetric(second, self.n_components) if paper else second)
        diagonal, ridge = np.arange(self.n_components), 0.0 if paper else self.ridge
        edge = ridge * math.sqrt(2 * self.n_components) * s.noise_std("xi_zz")
        # Under noise the data's part of a curvature and the prior's part can both vanish.
        least_j = tuned.LEAST_CURVATURE * np.maximum(np.trace(curvature_jkk, axis1=1, axis2=2), 1.0)
        least_j *= s.noise_std("xi_zz") > 0
        curvature_jkk[:, diagonal, diagonal] += q.scales.precision_kj.T + edge + least_j[:, None]
        pull_kj = s.read("y_z") - 0.5 * hidden_k[:, None] - q.c_j * xi_z_kj
        w_kj = np.clip(np.linalg.solve(curvature_jkk, pull_kj.T[:, :, None])[:, :, 0].T, -_LARGEST, _LARGEST)
        v_kj: Floats = spread / curvature_jkk[:, diagonal, diagonal].T
        c_var_j = 1.0 / (1.0 / self.prior_variance + xi_j + ridge * s.noise_std("xi"))
        c_j = np.clip(c_var_j * (s.read("visible") - 0.5 * q.count - (xi_z_kj * w_kj).sum(axis=0)), -_LARGEST, _LARGEST)
        public_k = q.count * kernel.xi_of(q.hidden_square_k)
        xi_hidden_k = np.maximum(s.read("xi_hidden"), 0.0) if paper else public_k
        b_var_k = 1.0 / (1.0 / self.prior_variance + xi_hidden_k)
        b_k: Floats = b_var_k * (hidden_k - 0.5 * q.count)
        scales = q.scales.update(np.maximum(w_kj**2 + v_kj, tuned.LEAST_SQUARE))
        return NetworkPosterior(w_kj, v_kj, c_j, spread * c_var_j, b_k, spread * b_var_k, scales, q.count)

    def bound(self, q: NetworkPosterior, y_nj: NDArray[Any], pi_nk: Floats, at_nj: Floats | None = None) -> Floats:
        """Lower bound on each example's log-likelihood, (n,), in nats, at q(z) and at the ξ that suits ⟨ψ²⟩ = at_nj."""
        psi_nj, second_nj = kernel.second_moments(q.w_kj, q.v_kj, q.c_j, q.c_var_j, pi_nk)
        return kernel.example_bound(y_nj, pi_nk, psi_nj, second_nj, q.b_k, q.hidden_square_k, at_nj)

    def parameter_bound(self, q: NetworkPosterior) -> float:
        """⟨log p - log q⟩ of W with its scales, c and b, in nats; plus the sum of `bound` it is the evidence bound."""
        gaussians = sum(
            float(0.5 * (np.log(var / self.prior_variance) + 1.0 - (mean**2 + var) / self.prior_variance).sum())
            for mean, var in ((q.c_j, q.c_var_j), (q.b_k, q.b_var_k))
        )
        entropy = float(0.5 * np.log(2 * math.pi * math.e * q.v_kj).sum())
        return gaussians + entropy + q.scales.bound(q.w_kj**2 + q.v_kj)


# Second moments of hidden units with the weight of each visible unit: the largest block of a belief network.


@dataclass(frozen=True)
class HiddenMoments:
    """⟨ξ_j⟩ ⟨zzᵀ⟩ of every example, (J, K(K+1)/2) when packed, as factors; private.

    Attributes:
        xi_nj: ⟨ξ⟩, at least 0.
        pi_nk: ⟨z⟩ in [0, 1]; ⟨z_k z_k'⟩ = π_k π_k' off the diagonal and π_k on it.
    """

    xi_nj: Floats
    pi_nk: Floats

    def of_block(self, block: Block, num_rows: int) -> HiddenMoments:
        """Itself, of the block's visible and hidden units."""
        num_hidden = self.pi_nk.shape[1]
        check_shape((*self.xi_nj.shape, num_hidden * (num_hidden + 1) // 2), num_rows, *block.packed_shape)
        return self

    def norms(self) -> Floats:
        """‖ξ‖ · ‖⟨zzᵀ⟩‖_F."""
        square_nk = self.pi_nk**2
        # ‖⟨zzᵀ⟩‖² = (Σπ²)² - Σπ⁴ + Σπ²; the slack covers the roundings of sums of K numbers below 1.
        pairs_n = square_nk.sum(axis=1) ** 2 - (square_nk**2).sum(axis=1) + square_nk.sum(axis=1)
        slack = 1.0 + (8 * self.pi_nk.shape[1] + 64) * 2.0**-52
        return np.asarray(upper_norms(self.xi_nj) * np.sqrt(pairs_n) * slack)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add the products of both factors, truncated to integers."""
        kernel.add_moments(self.xi_nj, self.pi_nk, weights, grid.step, out)
