"""Factor analysis by private expectation maximisation, as published: every round pays anew (Park et al. 2016).

===========  ===================================================================================
paper        code
===========  ===================================================================================
⟨h⟩          A (y - m), A = M WᵀΨ⁻¹, M = (I + WᵀΨ⁻¹W)⁻¹; taken for no longer than √(2K)
Σ x⟨h⟩ᵀ      "cross"
Σ ⟨h hᵀ⟩     n M + "factors"
Σ x∘x        "squares"
===========  ===================================================================================

It is here for comparison: `three_releases` is better at every budget that was tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Kron, Rows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Positive, Positives, Symmetric
from dpvb.guards.errors import check_integer
from dpvb.kernels.linear import product
from dpvb.models.factors import tuned
from dpvb.models.factors.three_releases import RowsBatch, ThreeReleases

# Std of the random start, over that of a column.
_START = 0.1
# Smallest unique variance, as a fraction of its prior mean: a smaller one would make factors as large as the noise.
_LEAST = 2e-2


@dataclass(frozen=True)
class Loadings:
    """q: mean, W and Ψ in units of y, what makes factors of rows by these, A and M, and the number of rows."""

    mean_d: Floats
    loading_dk: Floats
    unique_d: Positives
    reader_kd: Floats
    spread_kk: Symmetric
    count: Positive

    @classmethod
    def of(cls, mean_d: Floats, loading_dk: Floats, unique_d: Floats, count: float) -> Loadings:
        """With A and M."""
        whitened_dk = loading_dk / unique_d[:, None]
        m_kk = np.linalg.inv(np.eye(loading_dk.shape[1]) + loading_dk.T @ whitened_dk)
        return cls(mean_d, loading_dk, unique_d, m_kk @ whitened_dk.T, 0.5 * (m_kk + m_kk.T), count)


@dataclass(frozen=True)
class PrivateEM:
    """The model; every field is public.

    Attributes:
        rows: which rows it reads; of its releases the means alone.
        n_components: K.
        prior_d: variances at the start.
        num_steps: number of rounds.
        isotropic: whether all unique variances are one (principal components).
    """

    rows: ThreeReleases
    n_components: int
    prior_d: Positives
    num_steps: int = 10
    isotropic: bool = False

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1, high=self.rows.n_features)
        check_integer("num_steps", self.num_steps, low=1, high=10**6)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Means; then the three sums of each round."""
        d, k = self.rows.n_features, self.n_components
        longest = math.sqrt(2 * k)
        return {
            "moments": replace(self.rows.blocks["moments"], weight=1.0),
            "cross": Block((d, k), longest, average=False),
            "factors": Block((k, k), longest**2, "gram", average=False),
            "squares": Block((d,), 1.0, "nonnegative", average=False),
        }

    @property
    def schedule(self) -> Schedule:
        """All rounds alike."""
        return Schedule((1.0,) * self.num_steps, {"first": tuned.MOMENTS_BUDGET})

    def init(self, rng: np.random.Generator) -> Loadings:
        """Small random loadings."""
        shape = (self.rows.n_features, self.n_components)
        start_dk = _START * np.sqrt(self.prior_d)[:, None] * rng.standard_normal(shape)
        return Loadings.of(np.zeros(shape[0]), start_dk, self.prior_d, 1.0)

    def e_step(self, q: Loadings, batch: RowsBatch, blocks: Mapping[str, Block]) -> Contributions:
        """What every row adds to the blocks asked for."""
        if "moments" in blocks:
            return self.rows.e_step(self.rows.start, batch, blocks)
        x_nd = self.rows.placed(batch.x_nd) - q.mean_d
        h_nk = product(x_nd, q.reader_kd.T)
        return {"cross": Kron(x_nd, h_nk), "factors": Gram(h_nk, np.ones(len(h_nk))), "squares": Rows(x_nd * x_nd)}

    def m_step(self, s: Estimate, q: Loadings) -> Loadings:
        """The mean; then the next W and Ψ."""
        if "cross" not in s.names:
            read = replace(self.rows, gamma=0.0).m_step(s, self.rows.start)
            return replace(q, mean_d=read.mean_d, count=read.count)
        second_kk = q.count * q.spread_kk + s.project("factors")
        whole_d = np.maximum(s.read("squares") / q.count, _LEAST * self.prior_d)
        loading_dk = s.read("cross") @ np.linalg.inv(second_kk)
        # Noise may make factors explain more than there is.
        loading_dk *= np.sqrt(np.minimum(whole_d / np.maximum(np.square(loading_dk).sum(axis=1), 1e-300), 1.0))[:, None]
        left_d = np.clip(whole_d - np.square(loading_dk).sum(axis=1), _LEAST * self.prior_d, whole_d)
        unique_d = np.full_like(left_d, left_d.mean()) if self.isotropic else left_d
        return Loadings.of(q.mean_d, loading_dk, unique_d, q.count)
