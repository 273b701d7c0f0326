"""Variational Bayes for conjugate-exponential models, Algorithms 1 and 2 (Park, Foulds, Chaudhuri & Welling 2020).

    p(D_n, l_n | m) ∝ g(m) exp(n(m)ᵀ s(D_n, l_n))        (8)
    p(m | τ, ν)     ∝ g(m)^τ exp(νᵀ n(m))                (9)
    q(l_n)          ∝ exp(n̄ᵀ s(D_n, l_n))                (12)  E-step
    q(m)            ∝ g(m)^τ̃ exp(ν̃ᵀ n(m)),  ν̃ = ν + N s̄   (13)  M-step

Algorithm 2, as printed, in its order of operations:

    for t = 1, ..., J:
        E-step: s̄ = (1/S) Σ ⟨s(D_n, l_n)⟩ over a mini-batch; s̃ = s̄ + N(0, σ²Δ²)     statistics; `PrivateModel` adds
        the noise M-step: ν̃⁽ᵗ⁾ = ν + N s̃                                                        prior, project
                ν̃⁽ᵗ⁾ ← (1 - ρ_t) ν̃⁽ᵗ⁻¹⁾ + ρ_t ν̃⁽ᵗ⁾,   ρ_t = (τ₀ + t)^-κ                m_step
                n̄ = ⟨n(m)⟩ under q(m)                                                 expected

Algorithm 1 is the same without noise: `dpvb.PrivateModel(..., epsilon=math.inf)`.

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
ν̃⁽ᵗ⁾, n̄, t          VIPSState.nu, VIPSState.n_bar, VIPSState.t
τ₀, κ, J            learning_offset, learning_decay, n_steps
N s̃                 s.noisy(name): the noisy sum over the batch, divided by its share S/N of the data
S, σ, J             `sampling_prob` or `batch_size` of `PrivateModel`, its budget, n_steps
==================  ===============================================================================================

Corrected: the printed outputs ⟨m⟩ of Algorithms 4 to 6 are ⟨n(m)⟩, which is what their E-steps use. The printed
sensitivity is that of one unit's statistic; the wall accounts for the distance between two (`docs/proofs.md`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, digamma

from dpvb import Block, Estimate, Model, Rows
from dpvb.core.blocks import Contributions
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.errors import check_integer, check_number


@dataclass(frozen=True)
class VIPSState:
    """q(m) of a conjugate-exponential model; all public.

    Attributes:
        t: number of steps so far.
        nu: ν̃, natural parameters by the name of the block whose statistic they add up.
        n_bar: n̄, expected natural parameters, and what else the E-step needs of q(m).
    """

    t: Nonnegative
    nu: Mapping[str, Floats]
    n_bar: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class VIPS(Model):
    """Algorithm 2 for a model that declares its prior, statistics and expected natural parameters.

    Attributes:
        n_steps: J.
        learning_offset, learning_decay: τ₀ and κ of ρ_t = (τ₀ + t)^-κ; κ = 0 keeps only the newest release.

    Examples:
        >>> from dpvb.papers.conjugate_exponential import VIPS, BetaBernoulli
        >>> model = BetaBernoulli(n_steps=5)
        >>> isinstance(model, VIPS), sorted(model.blocks)
        (True, ['counts'])
    """

    n_steps: int = 20
    learning_offset: float = 1.0
    learning_decay: float = 0.7

    def __post_init__(self) -> None:
        check_integer("n_steps", self.n_steps, low=1, high=10**6)
        check_number("learning_offset", self.learning_offset, low=0, high=1e9)
        check_number("learning_decay", self.learning_decay, low=0, high=1)

    @abstractmethod
    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """ν, by the names of the blocks; a prior with parameters of its own reads their expectations from n̄."""

    @abstractmethod
    def statistics(self, n_bar: Mapping[str, Any], batch: Any) -> Contributions:
        """⟨s(D_n, l_n)⟩ of each row, at the q(l_n) of (12)."""

    @abstractmethod
    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """n̄ = ⟨n(m)⟩ of q(m; ν̃), given that of the step before."""

    def project(self, name: str, release: Floats) -> Floats:
        """One release, N s̃, brought into its domain before it is averaged; as it is, unless the paper says more."""
        return release

    def projected(self, s: Estimate) -> Mapping[str, Floats]:
        """N s̃ of every block: its release, projected."""
        return {name: self.project(name, s.noisy(name)) for name in self.blocks}

    def start(self, rng: np.random.Generator) -> tuple[Mapping[str, Floats], Mapping[str, Any]]:
        """ν̃⁽⁰⁾, and n̄ where its prior needs it."""
        return self.prior({}), {}

    def init(self, rng: np.random.Generator) -> VIPSState:
        """q(m) before the first step."""
        nu, n_bar = self.start(rng)
        return VIPSState(0.0, nu, self.expected(nu, n_bar))

    def e_step(self, q: VIPSState, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Expected statistics of every row."""
        return self.statistics(q.n_bar, batch)

    def m_step(self, s: Estimate, q: VIPSState) -> VIPSState:
        """The three lines of the M-step."""
        t = q.t + 1
        rho_t = (self.learning_offset + t) ** -self.learning_decay
        prior = self.prior(q.n_bar)
        fresh = {name: prior[name] + sums for name, sums in self.projected(s).items()}
        nu = {name: (1 - rho_t) * q.nu[name] + rho_t * fresh[name] for name in fresh}
        return VIPSState(t, nu, self.expected(nu, q.n_bar))


@dataclass(frozen=True)
class BetaBernoulli(VIPS):
    """The smallest example: D_n ~ Bernoulli(m), m ~ Beta(a, b), and no latent variables.

    n(m) = (log m, log(1 - m)), s(D_n) = (D_n, 1 - D_n), ν = (a, b), so that q(m) = Beta(ν̃). Rows hold one number.

    Attributes:
        a, b: parameters of the prior.

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.papers.conjugate_exponential import BetaBernoulli
        >>> rows = np.repeat([[1.0], [0.0]], (300, 700), axis=0)
        >>> model = dpvb.PrivateModel(BetaBernoulli(), max_row_norm=1.0, epsilon=1.0, delta=1e-6).fit(rows)
        >>> a, b = model.q_.nu["counts"]
        >>> bool(0.1 < a / (a + b) < 0.5)
        True
    """

    a: float = 1.0
    b: float = 1.0

    @property
    def blocks(self) -> Mapping[str, Block]:
        """(D_n, 1 - D_n), of norm 1."""
        return {"counts": Block((2,), 1.0, "nonnegative")}

    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """(a, b)."""
        return {"counts": np.array([self.a, self.b])}

    def statistics(self, n_bar: Mapping[str, Any], batch: Floats) -> Contributions:
        """(D_n, 1 - D_n)."""
        return {"counts": Rows(np.hstack([batch, 1.0 - batch]))}

    def project(self, name: str, release: Floats) -> Floats:
        """Clip negative counts to 0."""
        return np.maximum(release, 0.0)

    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """(⟨log m⟩, ⟨log(1 - m)⟩); nothing is latent, so that no E-step reads it."""
        return {"counts": digamma(nu["counts"]) - digamma(nu["counts"].sum())}

    def lower_bound(self, q: VIPSState) -> float:
        """Return the bound at the statistics that q implies, ν̃ - ν: log B(ν̃) - log B(ν), in nats.

        q(m) is their exact posterior, so that the bound is attained: with one step, κ = 0 and no noise it is the log
        evidence of the data. With noise it is that of the released, noisy counts. With κ > 0 it is that of fewer rows,
        because ν̃ keeps a part of ν̃⁽⁰⁾ = ν.
        """
        return float(betaln(*q.nu["counts"]) - betaln(self.a, self.b))
