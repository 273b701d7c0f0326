"""Partitioned variational inference, Algorithm 2 of the thesis draft (Sharma; Ashman et al. 2022), by optimisation.

    q(θ) = p(θ) Π_m t_m(θ)                                                                        (2.17)
    1  t_m ← 1 for all m                                                                          (2.18)
    2  q ← p                                                                                      (2.19)
    3  for i = 1, 2, ...: with b the next client,
    5      q⁽ⁱ⁾ ← argmax_q ∫ q ln [q⁽ⁱ⁻¹⁾ p(X_b | θ) / (q t_b)] dθ, the local free energy          (2.20), (2.22)
    6      t_b ← q⁽ⁱ⁾/q⁽ⁱ⁻¹⁾ · t_b                                                                (2.21)

for logistic regression, p(y | x, θ) = σ(θᵀx)^y (1 - σ(θᵀx))^(1-y), and normal q(θ) = N(μ, Λ⁻¹). With the cavity
q⁽ⁱ⁻¹⁾/t_b ∝ exp(hᵀθ - ½ θᵀPθ) the gradients of (2.22) vanish where

    Λ = P + Σ_n ⟨σ'(ψ_n)⟩ x_n x_nᵀ,   Λ μ = Λ μ + h - P μ + Σ_n (y_n - ⟨σ(ψ_n)⟩) x_n,   ψ_n = θᵀx_n under q

and `LocalFreeEnergy` iterates these two lines. Its two sums are all that a client's rows enter: `dpvb.PrivateModel`
makes them private, and each visit to a client spends a budget of its own.

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
q, t_m, cavity      NormalFactor(h, P): natural parameters; products of densities are sums of these
(2.22)              local_free_energy(q, previous, factor, x, y)
(2.26)              global_free_energy(q, prior, x, y)
log Z               log_constant(prior, factors)
==================  ===============================================================================================

Corrected: (2.23) is an argmin. Theorem 2.2.3, Σ_m F_m(q*) = F(q*), holds if the factors carry the constants of (2.21),
where q⁽ⁱ⁾ and q⁽ⁱ⁻¹⁾ are densities. Here factors are natural parameters, and Σ_m F_m(q*) = F(q*) - log Z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from dpvb import Block, Estimate, Gram, Model, Rows
from dpvb.core.blocks import Contributions
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Symmetric
from dpvb.guards.errors import ParameterError
from dpvb.kernels.linear import product

# Nodes of the Gauss-Hermite rule for ⟨σ(ψ)⟩; 32 leave an error of 1e-8 for ψ of standard deviation 3.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class NormalFactor(NamedTuple):
    """exp(hᵀθ - ½ θᵀPθ), a normal density without its constant, or a quotient of two."""

    h: Floats
    P: Symmetric

    def times(self, other: NormalFactor) -> NormalFactor:
        """The product of both."""
        return NormalFactor(self.h + other.h, self.P + other.P)

    def over(self, other: NormalFactor) -> NormalFactor:
        """The quotient of both."""
        return NormalFactor(self.h - other.h, self.P - other.P)

    @property
    def mean(self) -> Floats:
        """μ."""
        return np.asarray(np.linalg.solve(self.P, self.h))

    @property
    def log_normaliser(self) -> float:
        """Log ∫ exp(hᵀθ - ½ θᵀPθ) dθ, for a positive definite P."""
        return float(0.5 * (self.h @ self.mean + len(self.h) * np.log(2 * np.pi) - np.linalg.slogdet(self.P)[1]))


@dataclass(frozen=True)
class Visit:
    """q⁽ⁱ⁾ on its way; public.

    Attributes:
        natural: its natural parameters.
        mean: μ.
        root: L⁻¹ with Λ = L Lᵀ, so that xᵀΛ⁻¹x = ‖L⁻¹x‖².
    """

    natural: NormalFactor
    mean: Floats
    root: Floats

    @classmethod
    def at(cls, natural: NormalFactor) -> Visit:
        """Return it with its mean and root."""
        return cls(natural, natural.mean, np.linalg.inv(np.linalg.cholesky(natural.P)))

    def psi(self, x_nd: Floats) -> Floats:
        """ψ_n at the nodes of the Gauss-Hermite rule, (rows, nodes); `product` multiplies each row by itself."""
        std_n = np.sqrt(np.square(product(x_nd, self.root.T)).sum(axis=1))
        return np.asarray(product(x_nd, self.mean[:, None]) + std_n[:, None] * _NODES)


@dataclass(frozen=True)
class LocalFreeEnergy(Model):
    """Line 5 for one client. `dpvb.PrivateModel` fits it to a `dpvb.data.Design` of the client's rows, ‖x‖ ≤ 1.

    Attributes:
        h, P: natural parameters of the cavity, tuples of numbers and of rows.
        start: those of q⁽ⁱ⁻¹⁾.
        n_steps: number of iterations; each releases both sums.

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.data import Design
        >>> from dpvb.papers.partitioned import LocalFreeEnergy
        >>> prior = (0.0,), ((1.0,),)
        >>> client = Design(np.ones((1500, 1)), np.tile([1, 1, 0], 500))  # Two of three labels are 1.
        >>> model = dpvb.PrivateModel(LocalFreeEnergy(*prior, start=prior, n_steps=5), epsilon=1.0, delta=1e-6)
        >>> bool(model.fit(client).q_.mean > 0)
        True
    """

    h: tuple[float, ...]
    P: tuple[tuple[float, ...], ...]
    start: tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]
    n_steps: int = 10

    @cached_property
    def cavity(self) -> NormalFactor:
        """q⁽ⁱ⁻¹⁾/t_b."""
        return NormalFactor(np.array(self.h), np.array(self.P))

    @property
    def blocks(self) -> Mapping[str, Block]:
        """(y - ⟨σ⟩) x and ⟨σ'⟩ x xᵀ, of norms 1 and ¼."""
        d = len(self.h)
        return {
            "score": Block((d,), 1.0, average=False),
            "curvature": Block((d, d), 0.25, "gram", average=False),
        }

    def init(self, rng: np.random.Generator) -> Visit:
        """q⁽ⁱ⁻¹⁾."""
        return Visit.at(NormalFactor(np.array(self.start[0]), np.array(self.start[1])))

    def e_step(self, q: Visit, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Both sums' terms of every row."""
        sigma_nl = expit(q.psi(batch.x_nd))
        slope_nl = sigma_nl * (1.0 - sigma_nl)
        return {
            "score": Rows(batch.x_nd * (batch.y_n - (sigma_nl * _WEIGHTS).sum(axis=1))[:, None]),
            "curvature": Gram(batch.x_nd, (slope_nl * _WEIGHTS).sum(axis=1)),
        }

    def m_step(self, s: Estimate, q: Visit) -> Visit:
        """The two lines above."""
        precision_dd = self.cavity.P + s.project("curvature")
        step_d = self.cavity.h - self.cavity.P @ q.mean + s.noisy("score")
        return Visit.at(NormalFactor(precision_dd @ q.mean + step_d, precision_dd))


def partitioned(
    prior: NormalFactor,
    clients: Sequence[Any],
    fit: Callable[[LocalFreeEnergy, Any], NormalFactor],
    visits: Sequence[int],
) -> tuple[NormalFactor, list[NormalFactor]]:
    """Return q and the factors t_m after some visits.

    Args:
        prior: p(θ).
        clients: a source of rows for each client, in any form that `fit` takes; private.
        fit: line 5: given the model and a client's rows, q⁽ⁱ⁾. For example
            `lambda model, rows: dpvb.PrivateModel(model, epsilon=1.0, delta=1e-6).fit(rows).q_.natural`.
        visits: b of each round; public.

    Raises:
        ParameterError: for a visit to a client that there is none of.
    """
    d = len(prior.h)
    q, factors = prior, [NormalFactor(np.zeros(d), np.zeros((d, d))) for _ in clients]
    for b in visits:
        if not 0 <= b < len(clients):
            raise ParameterError(f"visits must be numbers of clients from 0 to {len(clients) - 1}, got {b}.")
        cavity = q.over(factors[b])
        model = LocalFreeEnergy(tuple(cavity.h.tolist()), _rows(cavity.P), (tuple(q.h.tolist()), _rows(q.P)))
        new = fit(model, clients[b])
        factors[b], q = new.over(q).times(factors[b]), new
    return q, factors


def local_free_energy(
    q: NormalFactor, previous: NormalFactor, factor: NormalFactor, x_nd: Floats, y_n: Floats
) -> float:
    """Return (2.22), ∫ q ln [q⁽ⁱ⁻¹⁾ p(X_b | θ) / (q t_b)] dθ, of one client's rows, in nats; it is private as they are.

    Args:
        q: where it is evaluated.
        previous: q⁽ⁱ⁻¹⁾, taken as a density.
        factor: t_b = exp(hᵀθ - ½ θᵀPθ), without a constant.
        x_nd, y_n: the client's rows and responses.

    Examples:
        >>> import numpy as np
        >>> prior, flat = NormalFactor(np.zeros(1), np.eye(1)), NormalFactor(np.zeros(1), np.zeros((1, 1)))
        >>> round(float(local_free_energy(prior, prior, flat, np.zeros((2, 1)), np.ones(2)) / np.log(0.5)), 6)
        2.0
    """
    return _integral(q, previous.over(factor), x_nd, y_n) - previous.log_normaliser


def global_free_energy(q: NormalFactor, prior: NormalFactor, x_nd: Floats, y_n: Floats) -> float:
    """Return (2.26), ∫ q ln [p(θ) Π_m p(X_m | θ) / q] dθ, of all rows, in nats: a lower bound on their log evidence.

    Args:
        q: where it is evaluated.
        prior: p(θ), taken as a density.
        x_nd, y_n: the rows and responses of all clients.
    """
    return _integral(q, prior, x_nd, y_n) - prior.log_normaliser


def log_constant(prior: NormalFactor, factors: Sequence[NormalFactor]) -> float:
    """Return log Z = log ∫ p(θ) Π_m t_m dθ, by which Theorem 2.2.3 is off: Σ_m F_m(q*) = F(q*) - log Z.

    Args:
        prior: p(θ), taken as a density.
        factors: t_m, without constants. With the constants of (2.21), Z = 1.
    """
    q = prior
    for factor in factors:
        q = q.times(factor)
    return q.log_normaliser - prior.log_normaliser


def _integral(q: NormalFactor, other: NormalFactor, x_nd: Floats, y_n: Floats) -> float:
    """∫ q ln [exp(hᵀθ - ½ θᵀPθ) p(X | θ) / q] dθ, with h and P of the other."""
    mean_d, sigma_dd = q.mean, np.linalg.inv(q.P)
    quadratic = float(np.vdot(other.P, sigma_dd) + mean_d @ other.P @ mean_d)
    entropy = 0.5 * (len(mean_d) * (1 + np.log(2 * np.pi)) - np.linalg.slogdet(q.P)[1])
    psi_nl = Visit.at(q).psi(x_nd)
    likelihood = (log_expit(np.where(y_n[:, None] > 0, psi_nl, -psi_nl)) @ _WEIGHTS).sum()
    return float(other.h @ mean_d - 0.5 * quadratic + entropy + likelihood)


def _rows(matrix_dd: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix_dd.tolist())
