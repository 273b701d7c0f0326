"""Three-parameter beta-normal prior of weights (Armagan, Dunson & Clyde 2011; for belief networks Gan et al. 2015).

    w_jk ~ N(0, ζ_jk),   ζ_jk ~ Gam(½, ξ_jk),   ξ_jk ~ Gam(½, φ_k),   φ_k ~ Gam(½, ω),   ω ~ Gam(½, 1)

==================  =============================================================================
paper               code
==================  =============================================================================
q(ζ_jk)             GIG(0, 2⟨ξ_jk⟩, ⟨w_jk²⟩); ⟨ζ_jk⁻¹⟩ = precision_kj
q(ξ_jk)             Gam(1, ⟨ζ_jk⟩ + ⟨φ_k⟩), of mean rate_kj; the paper prints it without ⟨φ_k⟩
q(φ_k)              Gam((J + 1)/2, ⟨ω⟩ + Σ_j ⟨ξ_jk⟩), of mean phi_k
q(ω)                Gam((K + 1)/2, 1 + Σ_k ⟨φ_k⟩), of mean omega
==================  =============================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpvb.blocks import Floats
from dpvb.expfam import gig_expectedstats


class Scales(NamedTuple):
    """Expectations of the beta-normal prior: precisions ⟨ζ⁻¹⟩ and rates ⟨ξ⟩, (K, J), φ, (K,), and ω."""

    precision_kj: Floats
    rate_kj: Floats
    phi_k: Floats
    omega: float

    @classmethod
    def start(cls, num_hidden: int, num_visible: int) -> Scales:
        """All expectations 1."""
        shape = num_hidden, num_visible
        return cls(np.ones(shape), np.ones(shape), np.ones(num_hidden), 1.0)

    def update(self, square_kj: Floats) -> Scales:
        """One round of coordinate ascent given ⟨w²⟩: ζ ~ GIG(0, 2⟨ξ⟩, ⟨w²⟩), then ξ, φ and ω."""
        num_hidden, num_visible = square_kj.shape
        zeta_kj, precision_kj = gig_expectedstats(2 * self.rate_kj, square_kj)
        rate_kj = 1.0 / (zeta_kj + self.phi_k[:, None])
        phi_k = (num_visible + 1) / 2 / (self.omega + rate_kj.sum(axis=1))
        return Scales(precision_kj, rate_kj, phi_k, float((num_hidden + 1) / 2 / (1.0 + phi_k.sum())))
