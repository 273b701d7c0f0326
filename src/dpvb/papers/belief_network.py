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
⟨ξ^(1)⟩             a function of ⟨b²⟩, hence public; the paper releases it as a seventh block, "xi_hidden"
==================  =============================================================================

Corrected against the paper: Equation 77 has no ½ on the ξzW term. Every block is bounded by its worst case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, positive_semidefinite, unpack_symmetric
from dpvb.core.contributions import Contributions, Grid, check_shape, upper_norms
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows
from dpvb.core.schedule import Schedule, robbins_monro
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegatives, Positive
from dpvb.guards.errors import check_integer, check_number
from dpvb.models.base import Model
from dpvb.models.belief_network import kernel
from dpvb.models.belief_network.beta_normal import WeightScales
from dpvb.rows.binary import BinaryRows

# Largest weight: probabilities are 0 or 1 long before it.
_LARGEST = 1e6
# Share of the budget for the number of examples.
_FIRST = 0.0225
# Noise budget (in bound / std) of the number of examples, as a fraction of that of the other blocks.
_COUNT_WEIGHT = 0.2
# Least curvature of a weight under noise, as a fraction of the trace of all weights' curvatures.
_LEAST_CURVATURE = 1e-6
# Least w² at which the prior's precision is evaluated: at 0 the precision is infinite.
_LEAST_SQUARE = 1e-12
# Bits of a product of hidden units.
_PAIR_BITS = 21
# Bits of the number of examples whose products are held at a time.
_GROUP_BITS = 9


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
class VIPSNetwork(Model):
    """The model; every field is public. Its rows are those of a `dpvb.data.tables.design.BinaryMatrix`.

    Attributes:
        n_components: K.
        n_visible: J.
        num_examples: public number of examples; None: it is released once.
        num_steps: number of releases of all blocks.
        learning_offset, learning_decay: τ0 and κ of the step sizes ρ_t = (τ0 + t)^-κ.
        sweeps: rounds over the hidden units in the E-step.
        prior_variance: ν_b and ν_c.
        start_std: standard deviation of the random start of the weights.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_visible: int
    num_examples: float | None = None
    num_steps: int = 20
    learning_offset: float = 1024.0
    learning_decay: float = 0.7
    sweeps: int = 3
    prior_variance: float = 100.0
    start_std: float = 0.1

    def __post_init__(self) -> None:
        for name in ("n_components", "n_visible", "num_steps", "sweeps"):
            check_integer(name, getattr(self, name), low=1)
        if self.num_examples is not None:
            check_number("num_examples", self.num_examples, low=1, high=1e15)
        check_number("prior_variance", self.prior_variance, low=1e-6, high=1e9)
        check_number("start_std", self.start_std, low=0, high=1e3)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Seven blocks, bounded by their worst case; matrices are vectors, with equal noise in all entries."""
        k, j = self.n_components, self.n_visible
        worst_case: dict[str, tuple[tuple[int, ...], float]] = {
            "visible": ((j,), j**0.5),
            "hidden": ((k,), k**0.5),
            "xi": ((j,), j**0.5 / 4),
            "xi_z": ((k, j), (j * k) ** 0.5 / 4),
            "y_z": ((k, j), (j * k) ** 0.5),
            "xi_zz": ((j, k * (k + 1) // 2), j**0.5 * k / 4),
            "xi_hidden": ((k,), k**0.5 / 4),
        }
        blocks = {name: Block(shape, worst, "nonnegative") for name, (shape, worst) in worst_case.items()}
        count = Block((1,), 1.0, "nonnegative", phase="first", weight=_COUNT_WEIGHT)
        return blocks if self.num_examples else {"count": count, **blocks}

    @property
    def schedule(self) -> Schedule:
        """Equal noise at every step; the running estimate is projected at every step."""
        decay, first = robbins_monro(self.learning_offset, self.learning_decay), self.num_examples is None
        steps = (1.0,) * self.num_steps
        return Schedule(steps, {"first": _FIRST}, lambda t: min(decay(max(t - first, 1)), 1.0), "step")

    def init(self, rng: np.random.Generator) -> NetworkPosterior:
        """Random weights; offsets zero."""
        k, j = self.n_components, self.n_visible
        w_kj, v_kj = rng.normal(0.0, self.start_std, (k, j)), np.full((k, j), self.start_std**2)
        zero_k, zero_j, scales = np.zeros(k), np.zeros(j), WeightScales.start(k, j)
        return NetworkPosterior(w_kj, v_kj, zero_j, zero_j, zero_k, zero_k, scales, self.num_examples or 1.0)

    def local(self, q: NetworkPosterior, y_nj: NDArray[Any], sweeps: int) -> tuple[Floats, Floats, Floats]:
        """Return each example's ⟨z⟩, ⟨ξ⟩ and ⟨ψ⟩: see `kernel.local_step`."""
        expected = kernel.local_step(y_nj, q.w_kj, q.c_j, q.b_k, v_kj=q.v_kj, extra_j=q.c_var_j, sweeps=sweeps)
        pi_nk, xi_nj, psi_nj = (part.astype(np.float64) for part in expected)
        return pi_nk, xi_nj, psi_nj

    def e_step(self, q: NetworkPosterior, batch: BinaryRows, blocks: Mapping[str, Block]) -> Contributions:
        """Return expected moments of every example."""
        y_nj = batch.astype(np.float64)
        if "xi" not in blocks:
            return {"count": Rows(np.ones_like(y_nj[:, :1]))}
        pi_nk, xi_nj, _ = self.local(q, batch, self.sweeps)
        return {
            "visible": Rows(y_nj),
            "hidden": Rows(pi_nk),
            "xi": Rows(xi_nj),
            "xi_z": Kron(pi_nk, xi_nj),
            "y_z": Kron(pi_nk, y_nj),
            "xi_zz": HiddenMoments(xi_nj, pi_nk),
            "xi_hidden": Rows(np.broadcast_to(kernel.xi_of(q.hidden_square_k), pi_nk.shape)),
        }

    def started(self, s: Estimate, q: NetworkPosterior) -> NetworkPosterior:
        """Return the number of examples."""
        return replace(q, count=self.num_examples or max(float(s.read("count")[0]), 1.0))

    def m_step(self, s: Estimate, q: NetworkPosterior) -> NetworkPosterior:
        """Return q(W), q(c) and q(b), one after the other, each at its optimum given the others and the statistics."""
        hidden_k, xi_z_kj, xi_j = s.read("hidden"), s.read("xi_z"), np.maximum(s.read("xi"), 0.0)
        curvature_jkk = positive_semidefinite(unpack_symmetric(s.read("xi_zz"), self.n_components))
        # Under noise the data's part of a curvature and the prior's part can both vanish.
        least_j = _LEAST_CURVATURE * np.maximum(np.trace(curvature_jkk, axis1=1, axis2=2), 1.0)
        least_j *= s.noise_std("xi_zz") > 0
        diagonal = np.arange(self.n_components)
        curvature_jkk[:, diagonal, diagonal] += q.scales.precision_kj.T + least_j[:, None]
        pull_kj = s.read("y_z") - 0.5 * hidden_k[:, None] - q.c_j * xi_z_kj
        w_kj = np.clip(np.linalg.solve(curvature_jkk, pull_kj.T[:, :, None])[:, :, 0].T, -_LARGEST, _LARGEST)
        v_kj: Floats = 1.0 / curvature_jkk[:, diagonal, diagonal].T
        c_var_j = 1.0 / (1.0 / self.prior_variance + xi_j)
        c_j = np.clip(c_var_j * (s.read("visible") - 0.5 * q.count - (xi_z_kj * w_kj).sum(axis=0)), -_LARGEST, _LARGEST)
        b_var_k = 1.0 / (1.0 / self.prior_variance + np.maximum(s.read("xi_hidden"), 0.0))
        b_k: Floats = b_var_k * (hidden_k - 0.5 * q.count)
        scales = q.scales.update(np.maximum(w_kj**2 + v_kj, _LEAST_SQUARE))
        return NetworkPosterior(w_kj, v_kj, c_j, c_var_j, b_k, b_var_k, scales, q.count)

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
        add_moments(self.xi_nj, self.pi_nk, weights, grid.step, out)


def add_moments(xi_nj: Floats, pi_nk: Floats, weight_n: Floats, grid: float, out: NDArray[np.int64]) -> None:
    """Add weight_n ξ_nj ⟨z_k z_k'⟩ / grid, truncated, to `out` (J, K(K+1)/2), int64: k = k', then k < k' row by row.

    ξ is at most ¼ and z at most 1. Both factors of a product are truncated to integers, on grids whose product is the
    grid or, to keep sums of a group below 2⁵³, a multiple of it: the product loses magnitude only, and an integer GEMM
    adds it exactly, in any order. Products of hidden units are held for a group of examples at a time.
    """
    row, column = np.triu_indices(pi_nk.shape[1], 1)
    finest = math.frexp(grid)[1] - 1
    right = max(0, min(_PAIR_BITS, -finest // 2))
    left = max(finest + right, right + _GROUP_BITS - 55)
    used = np.flatnonzero(weight_n)
    for start in range(0, len(used), 2**_GROUP_BITS):
        some = used[start : start + 2**_GROUP_BITS]
        some_nk = pi_nk[some]
        pairs = np.hstack([some_nk, some_nk[:, row] * some_nk[:, column]])
        weighted = np.trunc(np.ldexp(xi_nj[some] * weight_n[some, None], -left))
        np.ldexp(pairs, right, out=pairs)
        product = weighted.T @ np.trunc(pairs, out=pairs)
        out += product.astype(np.int64) << (left - right - finest)
