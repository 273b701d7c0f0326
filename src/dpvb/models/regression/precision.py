"""Weights of a linear model from noisy second moments: what is added to their precision, and how wrong they are then.

The model is S_1 = C m + (sampling noise of covariance C) with prior m ~ N(0, I/α). Seen are S_1 + e_1 and C + E_2;
E_2 has independent normal noise of std s on its svec coordinates, and eigenvalues up to the noise edge √(2d)s. With

    μ = Σ (S_1 + e_1),   Σ⁻¹ = C + T,   T = αI + (what lifts eigenvalues to the noise edge)

no direction is read with a curvature below its noise, and the error of μ is, to first order,

    (C + T)(μ - m) = sampling noise + e_1 - E_2 μ - T m,   Cov = Σ (C + V + T²/α) Σ,   V = Var(e_1 - E_2 μ),

which is Σ without noise. Everything here is post-processing and costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive, Symmetric
from dpvb.models.regression import tuned
from dpvb.models.regression.quadratic import inverse_root, squared, squared_norm


@dataclass(frozen=True)
class Precision:
    """Σ⁻¹ = C + T in parts; public.

    Attributes:
        curvature_dd: C as it was read.
        lift_dd: what lifts its small eigenvalues to the noise edge, or None.
        ridge: the multiple of I in T.
        alpha: precision of the prior.
        linear_noise, curvature_noise: variances of the noise on S_1 and on svec C.
    """

    curvature_dd: Symmetric
    lift_dd: Symmetric | None
    ridge: Positive
    alpha: Positive
    linear_noise: Nonnegative = 0.0
    curvature_noise: Nonnegative = 0.0

    @classmethod
    def read(cls, noisy_dd: Floats, alpha: float, linear_noise: float, curvature_noise: float) -> Precision:
        """Read noisy second moments, (d, d)."""
        edge = math.sqrt(2 * len(noisy_dd) * curvature_noise)
        if edge == 0 or len(noisy_dd) > tuned.MOST_EIGENVALUES:
            # No eigenvalues are computed: every direction is raised alike.
            return cls(noisy_dd, None, alpha + tuned.LIFT_BEYOND_EDGE * edge, alpha, linear_noise, curvature_noise)
        value_e, vector_de = np.linalg.eigh(noisy_dd)
        value_e = np.maximum(value_e, 0.0)
        lift_dd = (vector_de * np.maximum(edge - value_e, 0.0)) @ vector_de.T
        return cls((vector_de * value_e) @ vector_de.T, lift_dd, alpha, alpha, linear_noise, curvature_noise)

    def solve(self, linear_d: Floats) -> tuple[Precision, Floats, Floats]:
        """(precision, A, μ): Σ = AᵀA, A lower triangular; the ridge grows until Σ⁻¹ is positive definite, rarely."""
        total_dd = self.curvature_dd if self.lift_dd is None else self.curvature_dd + self.lift_dd
        ridge = self.ridge
        while (root_dd := inverse_root(total_dd, ridge)) is None:
            ridge *= tuned.RIDGE_GROWTH
        return replace(self, ridge=ridge), root_dd, root_dd.T @ (root_dd @ linear_d)

    def spread(self, root_dd: Floats, mean_d: Floats) -> float:
        """⟨mᵀm⟩ - μᵀμ; without noise it is tr Σ.

        It is such that d/⟨mᵀm⟩ = α if μᵀμ is as large as m ~ N(0, I/α) makes it in expectation.
        """
        trace = float(np.linalg.norm(root_dd)) ** 2
        if self.linear_noise + self.curvature_noise == 0:
            return trace
        # ‖ΣC‖² and tr ΣCΣ; without a lift ΣC = I - ridge·Σ.
        if self.lift_dd is None:
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
        if self.lift_dd is not None:
            added_dd += self.lift_dd
        middle_dd = precision.curvature_dd + added_dd @ added_dd / self.alpha
        middle_dd += 0.5 * self.curvature_noise * np.outer(mean_d, mean_d)
        middle_dd.flat[:: len(mean_d) + 1] += self._noise(mean_d)
        return sigma_dd @ middle_dd @ sigma_dd, sigma_dd

    def _noise(self, mean_d: Floats) -> float:
        """V without its part ½s²μμᵀ; what is left is the same in all directions."""
        return self.linear_noise + 0.5 * self.curvature_noise * float(mean_d @ mean_d)
