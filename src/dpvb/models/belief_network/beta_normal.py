"""Three-parameter beta-normal prior of weights (Armagan, Dunson & Clyde 2011; for belief networks Gan et al. 2015).

    w_jk ~ N(0, ζ_jk),   ζ_jk ~ Gam(½, ξ_jk),   ξ_jk ~ Gam(½, φ_k),   φ_k ~ Gam(½, ω),   ω ~ Gam(½, 1)

==================  =============================================================================
paper               code
==================  =============================================================================
q(ζ_jk)             GIG(0, a, b) at a = 2⟨ξ_jk⟩, b = ⟨w_jk²⟩: a_kj and b_kj
q(ξ_jk)             Gam(1, ⟨ζ_jk⟩ + ⟨φ_k⟩), of mean rate_kj; the paper prints it without ⟨φ_k⟩
q(φ_k)              Gam((J + 1)/2, ⟨ω⟩ + Σ_j ⟨ξ_jk⟩), of mean phi_k
q(ω)                Gam((K + 1)/2, 1 + Σ_k ⟨φ_k⟩), of mean omega
==================  =============================================================================
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Positives
from dpvb.models.expfam import gig_expectedstats, gig_logz


class WeightScales(NamedTuple):
    """Parameters and expectations of the prior's factors: (K, J), of φ (K,), of ω a number; public."""

    a_kj: Positives
    b_kj: Positives
    zeta_kj: Positives
    precision_kj: Positives
    rate_kj: Positives
    phi_k: Positives
    omega: Positive

    @classmethod
    def start(cls, num_hidden: int, num_visible: int) -> WeightScales:
        """The result of one update from ⟨w²⟩ = 1 and from expectations that are all 1."""
        ones_kj = np.ones((num_hidden, num_visible))
        return cls(ones_kj, ones_kj, ones_kj, ones_kj, ones_kj, np.ones(num_hidden), 1.0).update(ones_kj)

    def update(self, square_kj: Floats) -> WeightScales:
        """One round of coordinate ascent given ⟨w²⟩: ζ, then ξ, φ and ω."""
        num_hidden, num_visible = square_kj.shape
        a_kj = 2 * self.rate_kj
        zeta_kj, precision_kj = gig_expectedstats(a_kj, square_kj)
        rate_kj = 1.0 / (zeta_kj + self.phi_k[:, None])
        phi_k = (num_visible + 1) / 2 / (self.omega + rate_kj.sum(axis=1))
        omega = float((num_hidden + 1) / 2 / (1.0 + phi_k.sum()))
        return WeightScales(a_kj, square_kj, zeta_kj, precision_kj, rate_kj, phi_k, omega)

    def bound(self, square_kj: Floats) -> float:
        """⟨log p(w, ζ, ξ, φ, ω) - log q(ζ, ξ, φ, ω)⟩ at ⟨w²⟩, in nats. ⟨log ζ⟩ and ⟨log ξ⟩ cancel."""
        num_hidden, num_visible = square_kj.shape
        log_phi_k, phi_entropy_k = _gamma((num_visible + 1) / 2, self.phi_k)
        log_omega, omega_entropy = _gamma((num_hidden + 1) / 2, np.asarray(self.omega))
        zeta_kj = gig_logz(self.a_kj, self.b_kj) + 0.5 * (self.a_kj - 2 * self.rate_kj) * self.zeta_kj
        zeta_kj = zeta_kj + 0.5 * (self.b_kj - square_kj) * self.precision_kj - 0.5 * math.log(2 * math.pi)
        rate_kj = 0.5 * log_phi_k[:, None] - self.phi_k[:, None] * self.rate_kj + 1.0 + np.log(self.rate_kj)
        phi_k = 0.5 * log_omega - 0.5 * log_phi_k - self.omega * self.phi_k + phi_entropy_k
        omega = -0.5 * log_omega - self.omega + omega_entropy
        normalisers = (2 * num_hidden * num_visible + num_hidden + 1) * 0.5 * math.log(math.pi)
        return float(zeta_kj.sum() + rate_kj.sum() + phi_k.sum() + omega - normalisers)


def _gamma(shape: float, mean: Floats) -> tuple[Floats, Floats]:
    """E[log x] and the entropy of a gamma distribution of this shape and mean."""
    log_rate = math.log(shape) - np.log(mean)
    return digamma(shape) - log_rate, shape - log_rate + gammaln(shape) + (1 - shape) * digamma(shape)
