"""Sigmoid belief network, Algorithm 6 (Park, Foulds, Chaudhuri & Welling 2020); unit: a binary vector y.

    z_k ~ Bernoulli(σ(b_k)),   y_j ~ Bernoulli(σ(ψ_j)),  ψ_j = w_jᵀz + c_j,   w as in `beta_normal`,  b, c ~ N(0, ν)

Algorithm 6, as printed, in its order of operations:

    for t = 1, ..., J:
        E-step: q(ξ_n⁽⁰⁾) = PG(1, √⟨ψ_n²⟩)                (59)      local
                q(ξ⁽¹⁾)   = PG(1, √⟨b²⟩)                  (60)      statistics
                q(z_n)    = Bernoulli(σ(d_n))             (61)      local
                s̃_i = C_i (s̄_i/C_i + √7 σ N(0, I)), i = 1, ..., 7   (63)  blocks: one release
                each is clipped to what a mean of its kind can be, as in the authors' code   project
        M-step: ν̃⁽ᵗ⁾ = ν + N s̃;  ν̃⁽ᵗ⁾ ← (1 - ρ_t) ν̃⁽ᵗ⁻¹⁾ + ρ_t ν̃⁽ᵗ⁾   VIPS.m_step
                q(W), q(c), q(b) and the hyper-priors, Appendix C   expected

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
s̄_1, s̄_2            blocks "z" (K,) and "xi_b" (K,): ⟨ξ⁽¹⁾⟩, a function of ⟨b²⟩ that the paper releases all the same
s̄_3, s̄_4            blocks "y" (J,) and "xi" (J,)
s̄_5, s̄_6            blocks "xi_z" and "y_z" (J, K)
s̄_7                 block "xi_zz": J symmetric K × K matrices, of each the upper triangle
⟨w_j⟩, ⟨w_j w_jᵀ⟩   n_bar["w"] (J, K), n_bar["ww"] (J, K, K): a full Σ_j
⟨c⟩, ⟨c²⟩, ⟨b⟩, ⟨b²⟩  n_bar["c"], n_bar["cc"], n_bar["b"], n_bar["bb"]
⟨ζ⁻¹⟩, ξ, φ, ω      n_bar["scales"], (K, J)
==================  ===============================================================================================

Corrected: (77) is printed with ½ on the term ⟨ξ⟩⟨z⟩ᵀ⟨W⟩, and q(ξ_jk) of Appendix C without ⟨φ_k⟩; with either the
evidence bound falls. (68) to (73) cite (16) without its factor 2; they hold as entries are within [0, 1] or [0, ¼]. The
wall clips to them, and accounts for the distance between two examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dpvb import Block, Estimate, Kron, Rows
from dpvb.core.blocks import Contributions, Grid, check_shape, pack_symmetric, triangle, unpack_symmetric, upper_norms
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import check_integer, check_number
from dpvb.kernels.linear import product
from dpvb.models.belief_network.beta_normal import WeightScales
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.papers.conjugate_exponential import VIPS, VIPSState

# Entries of the matrices ⟨z zᵀ⟩ that are held at a time.
_ENTRIES = 2**23
# Least w² at which the prior's precision is evaluated: at 0 it is infinite.
_LEAST_SQUARE = 1e-12
# Bits of a product of hidden units, and of the number of examples whose products are held at a time.
_PAIR_BITS = 21
_GROUP_BITS = 9


@dataclass(frozen=True)
class VIPSNetwork(VIPS):
    """Algorithm 6. `dpvb.PrivateModel` fits it to a `dpvb.data.tables.design.BinaryMatrix`.

    Attributes:
        n_components, n_visible: K and J.
        n_rows: N, public.
        sweeps: rounds of (59) and (61) in an E-step, from ⟨z⟩ = σ(⟨b⟩).
        prior_variance: ν_b and ν_c.
        init_std: standard deviation of the random start of W.
        least_eigenvalue: of the mean s̃_7; the authors' code has 1e-3.

    Examples:
        >>> import dpvb
        >>> from dpvb.data import BinaryMatrix
        >>> from dpvb.papers.belief_network import VIPSNetwork
        >>> pixels = BinaryMatrix([[0, 1, 1], [1, 0, 0]] * 50)
        >>> model = dpvb.PrivateModel(VIPSNetwork(2, 3, n_rows=100.0, n_steps=2), epsilon=1.0, delta=1e-6).fit(pixels)
        >>> model.q_.n_bar["w"].shape
        (3, 2)
    """

    n_components: int
    n_visible: int
    n_rows: float
    sweeps: int = 3
    prior_variance: float = 100.0
    init_std: float = 0.1
    least_eigenvalue: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_components", "n_visible", "sweeps"):
            check_integer(name, getattr(self, name), low=1)
        check_number("n_rows", self.n_rows, low=1, high=1e15)
        check_number("prior_variance", self.prior_variance, low=1e-6, high=1e9)
        check_number("init_std", self.init_std, low=0, high=1e3)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Seven statistics, bounded by their worst case, (68) to (73)."""
        k, j = self.n_components, self.n_visible
        worst_case: dict[str, tuple[tuple[int, ...], float]] = {
            "z": ((k,), k**0.5),
            "xi_b": ((k,), k**0.5 / 4),
            "y": ((j,), j**0.5),
            "xi": ((j,), j**0.5 / 4),
            "xi_z": ((j, k), (j * k) ** 0.5 / 4),
            "y_z": ((j, k), (j * k) ** 0.5),
            "xi_zz": ((j, k * (k + 1) // 2), j**0.5 * k / 4),
        }
        return {name: Block(shape, worst, "nonnegative") for name, (shape, worst) in worst_case.items()}

    def start(self, rng: np.random.Generator) -> tuple[Mapping[str, Floats], Mapping[str, Any]]:
        """Random W; b and c at 0."""
        k, j = self.n_components, self.n_visible
        w_jk = rng.normal(0.0, self.init_std, (j, k))
        ww_jkk = w_jk[:, :, None] * w_jk[:, None, :] + self.init_std**2 * np.eye(k)
        zero_j, zero_k = np.zeros(j), np.zeros(k)
        n_bar: dict[str, Any] = {"w": w_jk, "ww": ww_jkk, "c": zero_j, "cc": zero_j, "b": zero_k, "bb": zero_k}
        n_bar["scales"] = WeightScales.start(k, j)
        return self.prior(n_bar), n_bar

    def init(self, rng: np.random.Generator) -> VIPSState:
        """Return q before the first step: its ν̃ is that of the prior, its n̄ the random start."""
        return VIPSState(0.0, *self.start(rng))

    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """ν: precisions 1/ν_b, 1/ν_c and diag⟨ζ_j⁻¹⟩, and 0."""
        k, j = self.n_components, self.n_visible
        zeta_jkk = n_bar["scales"].precision_kj.T[:, :, None] * np.eye(k)
        precision = 1.0 / self.prior_variance
        zeros = {"z": np.zeros(k), "y": np.zeros(j), "xi_z": np.zeros((j, k)), "y_z": np.zeros((j, k))}
        return {**zeros, "xi_b": np.full(k, precision), "xi": np.full(j, precision), "xi_zz": zeta_jkk}

    def local(self, n_bar: Mapping[str, Any], y_nj: Floats) -> tuple[Floats, Floats]:
        """⟨z_n⟩ and ⟨ξ_n⁽⁰⁾⟩ of every example, by `sweeps` rounds of (59) and (61)."""
        pi_nk, xi_nj = np.empty((len(y_nj), self.n_components)), np.empty(y_nj.shape)
        rows = max(1, _ENTRIES // self.n_components**2)
        for start in range(0, len(y_nj), rows):
            some = slice(start, start + rows)
            pi_nk[some], xi_nj[some] = self._local(n_bar, y_nj[some])
        return pi_nk, xi_nj

    def _local(self, n_bar: Mapping[str, Any], y_nj: Floats) -> tuple[Floats, Floats]:
        k = self.n_components
        w_jk, c_j = n_bar["w"], n_bar["c"]
        row, column = triangle(k)
        ww_je = pack_symmetric(n_bar["ww"])
        twice_e = np.where(row == column, 1.0, 2.0)
        pull_nk = n_bar["b"] + product(y_nj - 0.5, w_jk)
        pi_nk = expit(np.broadcast_to(n_bar["b"], pull_nk.shape)) + 0.0 * pull_nk
        for _ in range(self.sweeps):
            # ⟨ψ²⟩ = Σ ⟨w_k w_k'⟩⟨z_k z_k'⟩ + 2 ⟨c⟩⟨w⟩ᵀ⟨z⟩ + ⟨c²⟩; ⟨z_k z_k⟩ = π_k.
            zz_ne = pi_nk[:, row] * np.where(row == column, 1.0, pi_nk[:, column])
            square_nj = product(zz_ne, (twice_e * ww_je).T) + n_bar["cc"]
            square_nj += 2.0 * product(pi_nk, (c_j[:, None] * w_jk).T)
            xi_nj = polya_gamma_expectedstats(np.ones_like(square_nj), np.sqrt(np.maximum(square_nj, 0.0)))
            # d_k = ⟨b_k⟩ + Σ_j ⟨w_jk⟩(y_j - ½) - ½ Σ_j ξ_j (2⟨ψ_j^{\\k} w_jk⟩ + ⟨w_jk²⟩), one k after the other.
            a_nkk = unpack_symmetric(product(xi_nj, ww_je), k)
            offset_nk = pull_nk - product(xi_nj, c_j[:, None] * w_jk)
            for one in range(k):
                others_n = (a_nkk[:, one] * pi_nk).sum(axis=1) - a_nkk[:, one, one] * pi_nk[:, one]
                pi_nk[:, one] = expit(offset_nk[:, one] - others_n - 0.5 * a_nkk[:, one, one])
        return pi_nk, xi_nj

    def statistics(self, n_bar: Mapping[str, Any], batch: Any) -> Contributions:
        """The seven statistics of every example."""
        y_nj = batch.astype(np.float64)
        pi_nk, xi_nj = self.local(n_bar, y_nj)
        xi_b_k = polya_gamma_expectedstats(np.ones(self.n_components), np.sqrt(n_bar["bb"]))
        return {
            "z": Rows(pi_nk),
            "xi_b": Rows(xi_b_k + 0.0 * pi_nk),
            "y": Rows(y_nj),
            "xi": Rows(xi_nj),
            "xi_z": Kron(xi_nj, pi_nk),
            "y_z": Kron(y_nj, pi_nk),
            "xi_zz": HiddenMoments(xi_nj, pi_nk),
        }

    def project(self, name: str, release: Floats) -> Floats:
        """Clip sums to [0, N] or [0, N/4], lift eigenvalues; s_1 and s_3 are z - ½ and y - ½."""
        if name == "xi_zz":
            value_jk, vector_jkk = np.linalg.eigh(unpack_symmetric(release, self.n_components))
            value_jk = np.maximum(value_jk, self.least_eigenvalue * self.n_rows)
            return np.asarray((vector_jkk * value_jk[:, None, :]) @ vector_jkk.swapaxes(1, 2))
        clipped = np.clip(release, 0.0, self.n_rows * (0.25 if name.startswith("xi") else 1.0))
        return clipped - 0.5 * self.n_rows if name in ("z", "y") else clipped

    def projected(self, s: Estimate) -> Mapping[str, Floats]:
        """N s̃; s̃_6 is the release of Σ y zᵀ less ½ that of Σ z, as in Appendix B."""
        sums = super().projected(s)
        return {**sums, "y_z": sums["y_z"] - 0.5 * (sums["z"] + 0.5 * self.n_rows)}

    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """Appendix C: q(W), q(c) and q(b), each given the others, then the hyper-priors."""
        sigma_jkk = np.linalg.inv(nu["xi_zz"])
        pull_jk = nu["y_z"] - n_bar["c"][:, None] * nu["xi_z"]
        w_jk = (sigma_jkk @ pull_jk[:, :, None])[:, :, 0]
        ww_jkk = sigma_jkk + w_jk[:, :, None] * w_jk[:, None, :]
        c_j = (nu["y"] - (nu["xi_z"] * w_jk).sum(axis=1)) / nu["xi"]
        b_k = nu["z"] / nu["xi_b"]
        diagonal = range(self.n_components)
        square_kj = np.maximum(ww_jkk[:, diagonal, diagonal].T, _LEAST_SQUARE)
        return {
            "w": w_jk,
            "ww": 0.5 * (ww_jkk + ww_jkk.swapaxes(1, 2)),
            "c": c_j,
            "cc": c_j**2 + 1.0 / nu["xi"],
            "b": b_k,
            "bb": b_k**2 + 1.0 / nu["xi_b"],
            "scales": n_bar["scales"].update(square_kj),
        }


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


def add_moments(xi_nj: Floats, pi_nk: Floats, weight_n: Floats, grid: float, out: Ints) -> None:
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
