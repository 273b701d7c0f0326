"""Sigmoid belief network, first-order form (Gan, Henao, Carlson & Carin 2015; Park, Foulds, Chaudhuri & Welling 2020).

    z_k ~ Bernoulli(σ(b_k)),   y_j ~ Bernoulli(σ(w_jᵀz + c_j))          unit: a binary vector y

==================  =============================================================================
paper               code
==================  =============================================================================
w_jk                w_kj: hidden units are the first axis everywhere; weights and offsets are points
⟨z_nk⟩              pi_nk
⟨ψ_nj⟩, ⟨ξ_nj⟩      psi_nj, xi_nj: see `kernel`
z̄                   mean_k: running mean of ⟨z⟩; b = logit z̄
c + W z̄             level_j: offsets measured about the mean are nearly uncorrelated with W, so that both can be
                    updated at once
y - ½ - ξ⟨ψ⟩        r_nj: derivative of the bound in ψ
G                   "gradient": Σ_n r_n p_nᵀ - W∘(ξ_n a_nᵀ), p = π - z̄, a = π(1 - π): derivative in W
⟨ζ_jk⁻¹⟩            scales.precision_kj: see `beta_normal`
==================  =============================================================================

A step divides the released derivatives by a public curvature, so that no second moments of J × K × K are released. A
ridge is added to the divisor, in proportion to the noise of the derivative.

No theorem gives the constants below, and the history of this package holds no sweep over any one of them: they were set
by hand, on the images of benchmark `mnist`, which shows what they do (accuracy of reconstructions and held-out bound,
by ε). Run it before and after a change. "std" is a standard deviation of the privacy noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpvb.core.blocks import Block, Contributions, Grid, check_shape
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.model import Model, StepSize
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import PROBABILITIES, Positive
from dpvb.guards.errors import check_integer, check_number
from dpvb.models.belief_network import kernel as kernel
from dpvb.models.belief_network.beta_normal import WeightScales
from dpvb.rows import BinaryRows

# --- steps: `mnist`, forms "for accuracy" and "for bound" -------------------------------------------------------------
GRADIENT_BOUND = 0.0575  # bound on a gradient in W, over √(KJ). ‖r‖ of a fitted model is about √(.03 J) and ‖p‖ at most
# √K / 2; two thirds of their product serve as well as all of it
BIAS_BOUND = 0.25  # bound on a gradient in c, over √J
HIDDEN_BOUND = 0.6  # bound on ⟨z⟩ - z̄, over √K
BIAS_WEIGHT = 0.16  # noise budget (in bound / std) of the gradient in c, as a fraction of that of the gradient in W
HIDDEN_WEIGHT = 0.11  # the same of ⟨z⟩ - z̄
LEAST_MEAN = 0.01  # least probability z̄ of a hidden unit, and of its being off
MEAN_DRIFT = 0.05  # typical change of z̄ in a step; if the noise is larger than this, the update of z̄ is damped

# --- by hand ---------------------------------------------------------------------------------------------------------
VISIBLE_BOUND = 0.5  # bound on a vector y, over √J: as long as a vector with a quarter of ones
LEAST_SQUARE = 1e-12  # least w² by which the prior's precision is read; at 0 it is infinite
COUNT_WEIGHT = 0.2  # noise budget (in bound / std) of the number of examples, as a fraction of that of Σ y


# Limit on loops that a model file may ask for: rounds settle within tens (`python -m benchmarks mnist`), and compiled
# loops cannot be interrupted.
_MOST_SWEEPS = 1_000
_RANGES = {"clip_scale": (1e-3, 1e3), "ridge": (0.0, 1e6), "init_std": (0.0, 1e3), "init_mean": (1e-3, 1 - 1e-3)}

# Curvature of a visible unit that is as often on as off.
_CURVATURE = 0.25
# Factor by which weights hold more noise at ridge 1, as hidden units are seldom as spread and depend on each other;
# benchmark `forecasts` chose it.
_LEANING = 6.5


@dataclass(frozen=True)
class NetworkWeights:
    """Weights (K, J), levels (J,), means of hidden units (K,), number of examples; public."""

    w_kj: Floats
    level_j: Floats
    mean_k: Annotated[Floats, PROBABILITIES]
    count: Positive

    @property
    def c_j(self) -> Floats:
        """Offsets."""
        return np.asarray(self.level_j - (self.w_kj * self.mean_k[:, None]).sum(axis=0))

    @property
    def b_k(self) -> Floats:
        """Log odds of the hidden units."""
        return np.asarray(logit(self.mean_k))


@dataclass(frozen=True)
class Network(NetworkWeights):
    """The same with the scales of the prior, which steps use, and no prediction; public."""

    scales: WeightScales


@dataclass(frozen=True)
class Score:
    """Derivatives of every example's bound in the weights, r_j p_k - w_kj ξ_j a_k, as factors; private."""

    r_nj: NDArray[np.floating[Any]]
    xi_nj: NDArray[np.floating[Any]]
    p_nk: NDArray[np.floating[Any]]
    a_nk: NDArray[np.floating[Any]]
    w_kj: NDArray[np.floating[Any]]

    def of_block(self, block: Block, num_rows: int) -> Score:
        """Itself, of the block's hidden and visible units."""
        check_shape((len(self.r_nj), self.w_kj.size), num_rows, math.prod(block.shape))
        return self

    def norms(self) -> Floats:
        """Upper bounds on the norms of the very numbers that are summed."""
        return kernel.score_norms(self.r_nj, self.xi_nj, self.p_nk, self.a_nk, self.w_kj)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Add every weighted entry, truncated, in the compiled kernel."""
        factors = self.r_nj, self.xi_nj, self.p_nk, self.a_nk, self.w_kj
        kernel.add_scores(*factors, weights, grid.step, out.reshape(self.w_kj.shape))


@dataclass(frozen=True)
class SBN(Model[Network, BinaryRows]):
    """The model; every field is public.

    Attributes:
        n_components: K, number of hidden units.
        n_visible: J.
        n_units: public number of examples; None: it is released once, with the means.
        clip_scale: factor on all bounds of the scores; 1 suits networks that reconstruct most of a vector.
        n_sweeps: rounds over the hidden units in the E-step; two keep hidden units more informative than running to
            convergence.
        ridge: λ; the divisor of a step is the curvature plus λ times the noise of the mean derivative.
        init_std: standard deviation of the random start of the weights.
        init_mean: probability of the hidden units at the start.
        mode: True finds the weights of highest density: ⟨ζ⁻¹⟩ at w² instead of ⟨w²⟩.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_visible: int
    n_units: float | None = None
    clip_scale: float = 1.0
    n_sweeps: int = 2
    ridge: float = 2.0
    init_std: float = 0.1
    init_mean: float = 0.5
    mode: bool = False

    def __post_init__(self) -> None:
        for name in ("n_components", "n_visible"):
            check_integer(name, getattr(self, name), low=1)
        check_integer("n_sweeps", self.n_sweeps, low=1, high=_MOST_SWEEPS)
        if self.n_units is not None:
            check_number("n_units", self.n_units, low=1, high=1e15)
        for name, (low, high) in _RANGES.items():
            check_number(name, getattr(self, name), low=low, high=high)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Σ y and, unless public, the number of examples; then derivatives in W (K, J) and c (J,), and Σ p (K,)."""
        num_hidden, num_visible, clip = self.n_components, self.n_visible, self.clip_scale
        bound = clip * GRADIENT_BOUND * (num_hidden * num_visible) ** 0.5
        bias_bound, hidden_bound = clip * BIAS_BOUND * num_visible**0.5, HIDDEN_BOUND * num_hidden**0.5
        first = {"visible": Block((num_visible,), VISIBLE_BOUND * num_visible**0.5, "nonnegative", phase="first")}
        if self.n_units is None:
            first["count"] = Block((1,), 1.0, "nonnegative", phase="first", weight=COUNT_WEIGHT)
        return {
            **first,
            "gradient": Block((num_hidden, num_visible), bound, average=False),
            "bias": Block((num_visible,), bias_bound, average=False, weight=BIAS_WEIGHT),
            "hidden": Block((num_hidden,), hidden_bound, average=False, weight=HIDDEN_WEIGHT),
        }

    def init(self, rng: np.random.Generator) -> Network:
        """Random weights; hidden units have probability init_mean, visible ones ½."""
        w_kj = rng.normal(0.0, self.init_std, (self.n_components, self.n_visible))
        mean_k = np.full(self.n_components, self.init_mean)
        scales = WeightScales.start(self.n_components, self.n_visible)
        return Network(w_kj, np.zeros(self.n_visible), mean_k, self.n_units or 1.0, scales)

    def e_step(self, q: Network, batch: BinaryRows, blocks: Mapping[str, Block]) -> Contributions:
        """Derivatives of every example's own bound at q."""
        if "gradient" not in blocks:
            ones = {"count": Rows(np.ones_like(batch[:, :1], dtype=np.float64))} if "count" in blocks else {}
            return {"visible": Rows(batch.astype(np.float64)), **ones}
        pi_nk, xi_nj, psi_nj = self.local(q, batch, self.n_sweeps)
        real = pi_nk.dtype.type
        r_nj = batch.astype(real) - real(0.5) - xi_nj * psi_nj
        p_nk = pi_nk - q.mean_k.astype(real)
        score = Score(r_nj, xi_nj, p_nk, pi_nk * (1 - pi_nk), q.w_kj.astype(real))
        # An offset is the weight of a hidden unit that is always on.
        one_n1, zero_1j = np.ones_like(p_nk[:, :1]), np.zeros_like(score.w_kj[:1])
        bias = Score(r_nj, xi_nj, one_n1, 0 * one_n1, zero_1j)
        return {"gradient": score, "bias": bias, "hidden": Rows(p_nk.astype(np.float64))}

    def started(self, s: Estimate, q: Network) -> Network:
        """The levels."""
        count = self.n_units or max(float(s.noisy("count")[0]), 1.0)
        least = min(max(s.noise_std("visible") / count, 1.0 / count), 0.5)
        return replace(q, level_j=logit(np.clip(s.noisy("visible") / count, least, 1 - least)), count=count)

    def m_step(self, s: Estimate, q: Network) -> Network:
        """A preconditioned step along the released derivatives: equations 4 and 5 of docs/theory/belief-networks.md."""
        noise = {name: self.ridge * s.noise_std(name) / q.count for name in s.names}
        square_j = q.level_j**2
        curvature_j = 0.5 * (0.25 + kernel.xi_of(square_j))
        spread_k = q.mean_k * (1 - q.mean_k)
        variance_kj = 1.0 / (q.count * curvature_j * spread_k[:, None])
        scales = q.scales.update(np.maximum(q.w_kj**2, LEAST_SQUARE) if self.mode else q.w_kj**2 + variance_kj)
        gradient_kj = (s.noisy("gradient") - scales.precision_kj * q.w_kj) / q.count
        # At a mode nothing bounds the prior's precision but its part in the curvature.
        steep_kj = scales.precision_kj / q.count if self.mode else 0.0
        w_kj = q.w_kj + s.rho * gradient_kj / (curvature_j * (spread_k[:, None] + noise["gradient"]) + steep_kj)
        level_j = q.level_j + s.rho * s.noisy("bias") / q.count / (curvature_j + noise["bias"])
        gain = 1.0 / (1.0 + (s.noise_std("hidden") / q.count / MEAN_DRIFT) ** 2)
        mean_k = q.mean_k + s.rho * gain * s.noisy("hidden") / q.count
        return Network(w_kj, level_j, np.clip(mean_k, LEAST_MEAN, 1 - LEAST_MEAN), q.count, scales)

    def local(
        self, q: NetworkWeights, y_nj: NDArray[Any], sweeps: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Each example's ⟨z⟩, (n, K), ⟨ξ⟩ and ⟨ψ⟩, (n, J): see `kernel.local_step`."""
        return kernel.local_step(y_nj, q.w_kj, q.c_j, q.b_k, sweeps=sweeps)

    def visible_noise(self, std: float) -> float:
        """Return the noise in a weight as fits show it, only from that of the steps."""
        return _LEANING / max(self.ridge, 1.0) * std

    def noise_of_weights(self, stds: list[float], rho: StepSize, n: float) -> float:
        """Return the standard deviation of what the noise of all steps adds to a weight of an isolated unit.

        Args:
            stds: noise std of a gradient at each step.
            rho: step sizes; the first release makes no step.
            n: number of examples.
        """
        spread, variance = self.init_mean * (1 - self.init_mean), 0.0
        for t, std in enumerate(stds, start=2):
            noise, step = std / n, rho(t)
            remaining = 1.0 - step * spread / (spread + self.ridge * noise)
            variance = remaining**2 * variance + (step * noise / (_CURVATURE * (spread + self.ridge * noise))) ** 2
        return math.sqrt(variance)

    def bound(self, q: NetworkWeights, y_nj: NDArray[Any], pi_nk: Floats) -> Floats:
        """Lower bound on each example's log-likelihood at q(z) and the learned weights, (n,), in nats."""
        return kernel.example_bound(y_nj, pi_nk, *kernel.second_moments(q.w_kj, q.c_j, pi_nk), q.b_k)
