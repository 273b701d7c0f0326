"""Models with binomial likelihoods, Algorithm 4 (Park, Foulds, Chaudhuri & Welling 2020); unit: a row, ‖x‖ ≤ 1.

    p(y_n | ψ_n) ∝ exp(ψ_n)^a / (1 + exp ψ_n)^b,   ψ_n = mᵀx_n,   m ~ N(0, I/α)          (27), (28)
    with ξ_n ~ PG(b, 0):  p(y_n | ξ_n, m) ∝ exp(n(m)ᵀ s(D_n, ξ_n)),
    n(m) = [m, vec(-½ m mᵀ)],   s(D_n, ξ_n) = [κ_n x_n, vec(ξ_n x_n x_nᵀ)],   κ_n = a - b/2                (32)

Labels have a = y and b = 1; successes of trials a = y and b = trials; negative binomial counts a = y and b = y + r.

Algorithm 4, as printed, in its order of operations:

    for t = 1, ..., J:
        E-step: q(ξ_n) = PG(b, √(x_nᵀ⟨m mᵀ⟩x_n)), (33);  s̃ = s̄ + N(0, σ²Δ²)                  statistics
                s̃_2 gets the noise of Analyze Gauss, (51): its upper triangle, copied to the lower  blocks
                eigenvalues of s̃_2 are lifted "to some value near zero"                          project
        M-step: ν̃⁽ᵗ⁾ = ν + N s̃;  ν̃⁽ᵗ⁾ ← (1 - ρ_t) ν̃⁽ᵗ⁻¹⁾ + ρ_t ν̃⁽ᵗ⁾;  n̄ = ⟨n(m)⟩               VIPS.m_step, expected

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
s̄_1, s̄_2            blocks "kappa_x" (d,) and "xi_xx", the upper triangle of a (d, d) matrix
ν̃ = [Σ⁻¹μ, Σ⁻¹]     nu["kappa_x"] (d,), nu["xi_xx"] (d, d)                                       (47)
⟨m⟩, ⟨m mᵀ⟩         n_bar["m"], n_bar["mm"] = Σ + μμᵀ                                            (48)
⟨ξ_n⟩               b/(2c) tanh(c/2) at c² = x_nᵀ⟨m mᵀ⟩x_n
==================  ===============================================================================================

Corrected: (43) has 1/N twice, and the outputs ⟨m⟩ are ⟨n(m)⟩. Both statistics are one release, of bounds ‖s_1‖ ≤ max|κ|
and ‖s_2‖ ≤ max b/4; (50) and (52) are looser. The papers count 2J releases: with full batches that is the same noise,
with mini-batches it would understate ε, as both see one subsample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpvb import Block, Gram, Rows
from dpvb.core.blocks import Contributions, unpack_symmetric
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.kernels.linear import product
from dpvb.models.expfam import polya_gamma_expectedstats
from dpvb.papers.conjugate_exponential import VIPS


@dataclass(frozen=True)
class VIPSRegression(VIPS):
    """Algorithm 4. `dpvb.PrivateModel` fits it to a `dpvb.data.Design`, which has rows and responses.

    Attributes:
        n_features: d, the constant column included where there is one.
        n_rows: N, public: eigenvalues are lifted in the mean, not in the sum.
        kind: "logistic", "binomial" or "negative_binomial".
        alpha: precision of the prior.
        max_trials: public bound on the trials of a row (binomial).
        dispersion, max_count: r, and the public bound on a count (negative binomial).
        least_eigenvalue: of the mean s̃_2; the authors' code has 1e-4.

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.data import Design
        >>> from dpvb.papers.binomial_likelihoods import VIPSRegression
        >>> rows = Design(np.ones((1500, 1)), np.tile([1, 1, 0], 500))  # Two of three labels are 1.
        >>> model = dpvb.PrivateModel(VIPSRegression(1, n_rows=1500.0, n_steps=5), epsilon=1.0, delta=1e-6).fit(rows)
        >>> bool(model.q_.n_bar["m"] > 0)
        True
    """

    n_features: int
    n_rows: float
    kind: Literal["logistic", "binomial", "negative_binomial"] = "logistic"
    alpha: float = 1.0
    max_trials: float = 1.0
    dispersion: float = 1.0
    max_count: float = 1.0
    least_eigenvalue: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_features", self.n_features, low=1)
        check_number("n_rows", self.n_rows, low=1, high=1e15)
        check_choice("kind", self.kind, ("logistic", "binomial", "negative_binomial"))
        check_number("alpha", self.alpha, low=1e-9, high=1e9)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """κ x and ⟨ξ⟩ x xᵀ."""
        d = self.n_features
        if self.kind == "negative_binomial":
            most_b, most_kappa = self.max_count + self.dispersion, max(self.max_count, self.dispersion) / 2
        else:
            most_b = self.max_trials if self.kind == "binomial" else 1.0
            most_kappa = most_b / 2
        return {"kappa_x": Block((d,), most_kappa), "xi_xx": Block((d * (d + 1) // 2,), most_b / 4)}

    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """[0, αI]."""
        return {"kappa_x": np.zeros(self.n_features), "xi_xx": self.alpha * np.eye(self.n_features)}

    def statistics(self, n_bar: Mapping[str, Any], batch: Any) -> Contributions:
        """κ_n x_n and ⟨ξ_n⟩ x_n x_nᵀ of every row."""
        if self.kind == "negative_binomial":
            b_n = batch.y_n + self.dispersion
        else:
            b_n = batch.trials_n if self.kind == "binomial" else np.ones_like(batch.y_n) + 0.0 * batch.y_n
        # x⟨m mᵀ⟩xᵀ of every row by itself; `product` multiplies no row with another.
        square_n = (product(batch.x_nd, n_bar["mm"]) * batch.x_nd).sum(axis=1)
        c_n = np.sqrt(np.maximum(square_n, 0.0))
        return {
            "kappa_x": Rows(batch.x_nd * (batch.y_n - b_n / 2)[:, None]),
            "xi_xx": Gram(batch.x_nd, polya_gamma_expectedstats(b_n, c_n)),
        }

    def project(self, name: str, release: Floats) -> Floats:
        """The matrix from its triangle, its eigenvalues lifted to `least_eigenvalue` of the mean."""
        if name == "kappa_x":
            return release
        value_e, vector_de = np.linalg.eigh(unpack_symmetric(release, self.n_features))
        return np.asarray((vector_de * np.maximum(value_e, self.least_eigenvalue * self.n_rows)) @ vector_de.T)

    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """⟨m⟩ = μ and ⟨m mᵀ⟩ = Σ + μμᵀ."""
        sigma_dd = np.linalg.inv(nu["xi_xx"])
        sigma_dd = 0.5 * (sigma_dd + sigma_dd.T)
        mu_d = sigma_dd @ nu["kappa_x"]
        return {"m": mu_d, "mm": sigma_dd + np.outer(mu_d, mu_d)}
