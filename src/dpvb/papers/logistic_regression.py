"""Bayesian logistic regression, Algorithm 5 (Park, Foulds, Chaudhuri & Welling 2020); unit: a row, ‖x‖ ≤ 1.

    p(y_n = 1 | x_n, m) = σ(mᵀx_n),   m ~ N(0, I/α),   α ~ Gam(a₀, b₀)                      (36)

Algorithm 5 is Algorithm 4 with b = 1 and one more line in its M-step:

        using ν̃⁽ᵗ⁾, update q(α) = Gam(a_N, b_N):  a_N = a₀ + d/2,  b_N = b₀ + ½(μᵀμ + tr Σ)      (46)

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
⟨α⟩                 n_bar["alpha"]: the prior ν = [0, ⟨α⟩I] of the next step
a₀, b₀              a0, b0
==================  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_number
from dpvb.papers.binomial_likelihoods import VIPSRegression


@dataclass(frozen=True)
class VIPSLogistic(VIPSRegression):
    """Algorithm 5. `dpvb.PrivateModel` fits it to a `dpvb.data.Design`, which has rows and labels.

    Attributes:
        a0, b0: shape and rate of q(α)'s prior.

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.data import Design
        >>> from dpvb.papers.logistic_regression import VIPSLogistic
        >>> rows = Design(np.ones((1500, 1)), np.tile([1, 1, 0], 500))  # Two of three labels are 1.
        >>> model = dpvb.PrivateModel(VIPSLogistic(1, n_rows=1500.0, n_steps=5), epsilon=1.0, delta=1e-6).fit(rows)
        >>> bool(model.q_.n_bar["m"] > 0)
        True
    """

    a0: float = 1.0
    b0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("a0", "b0"):
            check_number(name, getattr(self, name), low=1e-9, high=1e9)

    def start(self, rng: np.random.Generator) -> tuple[Mapping[str, Floats], Mapping[str, Any]]:
        """The prior at ⟨α⟩ = a₀/b₀."""
        n_bar = {"alpha": self.a0 / self.b0}
        return self.prior(n_bar), n_bar

    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """[0, ⟨α⟩I]."""
        return {"kappa_x": np.zeros(self.n_features), "xi_xx": n_bar["alpha"] * np.eye(self.n_features)}

    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """⟨m⟩ and ⟨m mᵀ⟩, and ⟨α⟩ by (46): tr⟨m mᵀ⟩ = μᵀμ + tr Σ."""
        new = super().expected(nu, n_bar)
        rate = self.b0 + 0.5 * float(np.trace(new["mm"]))
        return {**new, "alpha": (self.a0 + self.n_features / 2) / rate}
