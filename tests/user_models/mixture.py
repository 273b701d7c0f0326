"""A mixture of Gaussians with diagonal covariances, fitted by private variational Bayes (Bishop 2006, section 10.2).

=============================  ==============================================================
paper                          code
=============================  ==============================================================
r_nk                           r_nk: responsibilities of a row, from its own log_nk
N_k, Σ r x, Σ r x²             blocks "number", "first", "second"
q(π) = Dir(α)                  alpha_k
q(μ_kd | τ_kd) = N(m, 1/(βτ))  mean_kd, beta_k
q(τ_kd) = Gam(a, b)            shape_k, rate_kd
=============================  ==============================================================

Rows have norm at most 1, so that each block's part of a row has norm at most 1 as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, logsumexp

import dpvb
from dpvb.guards.domains import Positives
from dpvb.kernels.linear import product

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Components:
    """q of the weights, means and precisions of all components."""

    alpha_k: Positives
    beta_k: Positives
    shape_k: Positives
    mean_kd: Floats
    rate_kd: Positives


@dataclass(frozen=True)
class Mixture(dpvb.Model):
    """The model; every field is public.

    Attributes:
        n_components, n_features: K and D.
        n_steps: T.
        spread: prior guess of a component's standard deviation.
    """

    n_components: int
    n_features: int
    n_steps: int = 12
    spread: float = 0.1
    score_range: ClassVar[tuple[float, float]] = (-10.0, 10.0)

    @property
    def blocks(self) -> Mapping[str, dpvb.Block]:
        """Number, sum and sum of squares of each component's rows."""
        shape = (self.n_components, self.n_features)
        number = dpvb.Block((self.n_components,), 1.0, "nonnegative")
        return {
            "number": number,
            "first": dpvb.Block(shape, 1.0),
            "second": dpvb.Block(shape, 1.0, "nonnegative"),
        }

    def init(self, rng: np.random.Generator) -> Components:
        """Means drawn about 0, all else as the prior has it."""
        one_k, shape = np.ones(self.n_components), (self.n_components, self.n_features)
        mean_kd = rng.standard_normal(shape) * 0.5 / np.sqrt(self.n_features)
        return Components(one_k, one_k, one_k, mean_kd, np.full(shape, 10 * self.spread**2))

    def log_joint(self, q: Components, x_nd: Floats) -> Floats:
        """Expected log density of each row with each component, (n, K)."""
        precision_kd = q.shape_k[:, None] / q.rate_kd
        square_nk = product(x_nd**2, precision_kd.T) - 2 * product(x_nd, (precision_kd * q.mean_kd).T)
        log_kd = digamma(q.shape_k)[:, None] - np.log(2 * np.pi * q.rate_kd) - precision_kd * q.mean_kd**2
        log_k = digamma(q.alpha_k) - digamma(q.alpha_k.sum())
        return np.asarray(log_k + 0.5 * (log_kd - 1 / q.beta_k[:, None]).sum(axis=1) - 0.5 * square_nk)

    def e_step(self, q: Components, batch: Floats, blocks: Mapping[str, dpvb.Block]) -> Mapping[str, dpvb.Rows]:
        """What every row adds to its components."""
        log_nk = self.log_joint(q, batch)
        r_nk = np.exp(log_nk - log_nk.max(axis=1, keepdims=True, initial=-1e300))
        r_nk /= r_nk.sum(axis=1, keepdims=True)
        every = {"number": r_nk, "first": r_nk[:, :, None] * batch[:, None, :]}
        every["second"] = every["first"] * batch[:, None, :]
        return {name: dpvb.Rows(every[name]) for name in blocks}

    def m_step(self, s: dpvb.Estimate, q: Components) -> Components:
        """The posterior that the released sums give; what is below the noise is taken for noise."""
        start = self.init(np.random.default_rng(0))
        number_k = np.maximum(s.project("number"), 3 * s.noise_std("number") + 1e-3)
        mean_kd = s.noisy("first") / (1 + number_k[:, None])
        rest_kd = s.project("second") - (1 + number_k[:, None]) * mean_kd**2
        rate_kd = start.rate_kd + 0.5 * np.maximum(rest_kd, 3 * s.noise_std("second"))
        return Components(1 + number_k, 1 + number_k, 1 + number_k / 2, np.clip(mean_kd, -1, 1), rate_kd)

    def score(self, q: Components, batch: Floats) -> Floats:
        """Log density of each row."""
        return np.asarray(logsumexp(self.log_joint(q, batch), axis=1))
