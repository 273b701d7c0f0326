"""Weights of a linear model from noisy second moments: what is added to the precision, and what the result is worth.

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

from dpvb.arrays import Floats
from dpvb.guards.domains import Nonnegative, Positive, Symmetric
from dpvb.models.regression.quadratic import inverse_root, squared, squared_norm

# Above so many columns the eigenvalues take too long: all are lifted alike, and beyond the edge of the noise, where the
# lowest of its own would all but cancel the lift.
_EIGENVALUES, _BEYOND = 1024, 1.2


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
        if edge == 0 or len(noisy_dd) > _EIGENVALUES:
            return cls(noisy_dd, None, alpha + _BEYOND * edge, alpha, linear_noise, curvature_noise)
        value_e, vector_de = np.linalg.eigh(noisy_dd)
        value_e = np.maximum(value_e, 0.0)
        lift_dd = (vector_de * np.maximum(edge - value_e, 0.0)) @ vector_de.T
        return cls((vector_de * value_e) @ vector_de.T, lift_dd, alpha, alpha, linear_noise, curvature_noise)

    def solve(self, linear_d: Floats) -> tuple[Precision, Floats, Floats]:
        """Return (precision, A, μ): Σ = AᵀA, A lower triangular; the ridge grows in the rare case that it has to."""
        total_dd = self.curvature_dd if self.lift_dd is None else self.curvature_dd + self.lift_dd
        ridge = self.ridge
        while (root_dd := inverse_root(total_dd, ridge)) is None:
            ridge *= 1.1
        return replace(self, ridge=ridge), root_dd, root_dd.T @ (root_dd @ linear_d)

    def spread(self, root_dd: Floats, mean_d: Floats) -> float:
        """⟨mᵀm⟩ - μᵀμ, such that d/⟨mᵀm⟩ is α where μᵀμ is what m ~ N(0, I/α) leads to; tr Σ without noise."""
        trace = float(np.linalg.norm(root_dd)) ** 2
        if self.linear_noise + self.curvature_noise == 0:
            return trace
        # ‖ΣC‖² and tr ΣCΣ; without a lift ΣC = I - ridge·Σ.
        if self.lift_dd is None:
            square = squared_norm(root_dd)
            kept = len(mean_d) - 2.0 * self.ridge * trace + self.ridge**2 * square
            sampling = trace - self.ridge * square
        else:
            sigma_dd = squared(root_dd)
            seen_dd, square = sigma_dd @ self.curvature_dd, float(np.linalg.norm(sigma_dd)) ** 2
            kept, sampling = float(np.linalg.norm(seen_dd)) ** 2, float(np.vdot(seen_dd, sigma_dd))
        return (len(mean_d) - kept) / self.alpha - sampling - self._noise(mean_d) * square

    def covariances(self, mean_d: Floats, factor: float) -> tuple[Floats, Floats]:
        """(Cov, Σ) with C times a factor in (0, 1]: the curvature at the mean, below that of the fixed point."""
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
        """V but for its part ½s²μμᵀ: the same in all directions."""
        return self.linear_noise + 0.5 * self.curvature_noise * float(mean_d @ mean_d)
