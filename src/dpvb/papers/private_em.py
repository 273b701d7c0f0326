"""Private expectation maximisation, Appendix D (Park, Foulds, Chaudhuri & Welling 2020), for factor analysis.

    x = W h + m + e,   h ~ N(0, I),   e ~ N(0, Ψ),   Ψ diagonal (principal components: σ²I)      unit: a row, ‖x‖ ≤ 1

    E-step, (79): p(h | x; W, Ψ) = N(A(x - m), M)                                                 e_step
    each sum gets noise; every round pays anew                                                    blocks
    M-step, (79): W = Σ(x - m)⟨h⟩ᵀ (Σ⟨h hᵀ⟩)⁻¹,   Ψ = diag(Σ(x - m)(x - m)ᵀ - W Σ⟨h⟩(x - m)ᵀ)/n    m_step

==================  ===================================================================================
paper               code
==================  ===================================================================================
m, W, Ψ             mean_d, loading_dk, unique_d
A, M                reader_kd = M WᵀΨ⁻¹, spread_kk = (I + WᵀΨ⁻¹W)⁻¹
⟨h⟩                 A (x - m)
block "moments"     (c, √(1 - c²) x), once: the number of rows and their mean
block "cross"       Σ (x - m)⟨h⟩ᵀ, of norm √(2K)
block "factors"     Σ ⟨h⟩⟨h⟩ᵀ, of norm 2K; Σ ⟨h hᵀ⟩ = n M + that
block "squares"     Σ (x - m)∘(x - m), of norm 1
==================  ===================================================================================

Not in the print: W and Ψ of noisy sums are brought back to what they can be at the end of `m_step`.
`dpvb.FactorAnalysis` releases moments once, and predicts better at every budget that was tried (RESULTS.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpvb import Block, Estimate, Gram, Kron, Model, Rows, Schedule
from dpvb.core.blocks import Contributions
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Positives, Symmetric
from dpvb.guards.errors import check_integer
from dpvb.kernels.linear import product

# c: the constant added to a row, by which rows are counted.
_CONSTANT = 0.4
_REST = math.sqrt(1.0 - _CONSTANT**2)
# Share of the budget for the means.
_MEANS = 0.1
# Standard deviation of the random start, over that of a column.
_START = 0.1
# Smallest unique variance, as a fraction of its prior mean: a smaller one would make factors as large as the noise.
_LEAST = 2e-2


@dataclass(frozen=True)
class Loadings:
    """q: mean, W and Ψ, what makes factors of rows by these, A and M, and the number of rows."""

    mean_d: Floats
    loading_dk: Floats
    unique_d: Positives
    reader_kd: Floats
    spread_kk: Symmetric
    count: Positive

    @classmethod
    def of(cls, mean_d: Floats, loading_dk: Floats, unique_d: Floats, count: float) -> Loadings:
        """Return the loadings with A and M."""
        whitened_dk = loading_dk / unique_d[:, None]
        m_kk = np.linalg.inv(np.eye(loading_dk.shape[1]) + loading_dk.T @ whitened_dk)
        return cls(mean_d, loading_dk, unique_d, m_kk @ whitened_dk.T, 0.5 * (m_kk + m_kk.T), count)


@dataclass(frozen=True)
class PrivateEM(Model):
    """The model; every field is public.

    Attributes:
        n_features: d.
        n_components: K.
        n_steps: number of rounds.
        isotropic: whether all unique variances are equal (principal components).

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.papers.private_em import PrivateEM
        >>> rows = np.outer(np.random.default_rng(0).uniform(-1, 1, 2000), [0.6, 0.6, 0.0])
        >>> model = dpvb.PrivateModel(PrivateEM(3, 1, n_steps=3), max_row_norm=1.0, epsilon=1.0, delta=1e-6).fit(rows)
        >>> model.q_.loading_dk.shape
        (3, 1)
    """

    n_features: int
    n_components: int
    n_steps: int = 10
    isotropic: bool = False

    def __post_init__(self) -> None:
        check_integer("n_features", self.n_features, low=1, high=10**5)
        check_integer("n_components", self.n_components, low=1, high=self.n_features)
        check_integer("n_steps", self.n_steps, low=1, high=10**6)

    @property
    def prior_variance(self) -> float:
        """Variance of a column of rows that are uniform in the unit ball."""
        return 1.0 / (3 * self.n_features)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Means; then the three sums of each round."""
        d, k = self.n_features, self.n_components
        longest = math.sqrt(2 * k)
        return {
            "moments": Block((1 + d,), 1.0, "real", "first"),
            "cross": Block((d, k), longest, average=False),
            "factors": Block((k, k), longest**2, "gram", average=False),
            "squares": Block((d,), 1.0, "nonnegative", average=False),
        }

    @property
    def schedule(self) -> Schedule:
        """All rounds alike."""
        return Schedule((1.0,) * self.n_steps, {"first": _MEANS})

    def init(self, rng: np.random.Generator) -> Loadings:
        """Small random loadings."""
        d = self.n_features
        start_dk = _START * math.sqrt(self.prior_variance) * rng.standard_normal((d, self.n_components))
        return Loadings.of(np.zeros(d), start_dk, np.full(d, self.prior_variance), 1.0)

    def e_step(self, q: Loadings, batch: Floats, blocks: Mapping[str, Block]) -> Contributions:
        """Return what every row adds to the blocks asked for."""
        if "moments" in blocks:
            return {"moments": Rows(np.hstack([_CONSTANT + 0.0 * batch[:, :1], _REST * batch]))}
        x_nd = batch - q.mean_d
        h_nk = product(x_nd, q.reader_kd.T)
        return {"cross": Kron(x_nd, h_nk), "factors": Gram(h_nk, np.ones(len(h_nk))), "squares": Rows(x_nd * x_nd)}

    def started(self, s: Estimate, q: Loadings) -> Loadings:
        """Return the mean."""
        moments, std = s.noisy("moments"), s.noise_std("moments")
        count = max(float(moments[0]) / _CONSTANT, std / _CONSTANT, 1.0)
        mean_d = moments[1:] / (_REST * count)
        return replace(q, mean_d=mean_d / max(1.0, float(np.linalg.norm(mean_d))), count=count)

    def m_step(self, s: Estimate, q: Loadings) -> Loadings:
        """Return the next W and Ψ."""
        least = _LEAST * self.prior_variance
        cross_dk, second_kk = s.noisy("cross"), q.count * q.spread_kk + s.project("factors")
        whole_d = np.maximum(s.noisy("squares") / q.count, least)
        loading_dk = cross_dk @ np.linalg.inv(second_kk)
        # Noise, or the clipping of long factors, may make factors explain more than there is.
        loading_dk *= np.sqrt(np.minimum(whole_d / np.maximum(np.square(loading_dk).sum(axis=1), 1e-300), 1.0))[:, None]
        left_d = np.clip(whole_d - (loading_dk * cross_dk).sum(axis=1) / q.count, least, whole_d)
        unique_d = np.full_like(left_d, left_d.mean()) if self.isotropic else left_d
        return Loadings.of(q.mean_d, loading_dk, unique_d, q.count)
