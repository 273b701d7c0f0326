"""Latent Dirichlet allocation (Blei, Ng & Jordan 2003; private: Park, Foulds, Chaudhuri & Welling 2020).

    β_k ~ Dirichlet(η),   θ_n ~ Dirichlet(α),   z ~ θ_n,   w ~ β_z          unit: a document

==================  =============================================================================
paper               code
==================  =============================================================================
λ_kv                lambda_vk: q(β_k) = Dirichlet(λ_k·); words are the first axis everywhere
exp⟨log β_kv⟩       beta_vk
γ_nk                gamma_nk: q(θ_n) = Dirichlet(γ_n·)
exp⟨log θ_nk⟩       theta_nk
φ_nvk               never built: θ_nk β_vk / p_nv with p_nv = Σ_k θ_nk β_vk
s_nvk = c_nv φ_nvk  never built: θ_nk β_vk · ratio, ratio = c_nv / p_nv
L, a                length, clip: a document is brought to length L, its statistic clipped to a·L
==================  =============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from dpvb import empirical_bayes
from dpvb.blocks import Block, Floats, Ints
from dpvb.contributions import Contributions, Factored
from dpvb.errors import check_choice, check_integer, check_number
from dpvb.expfam import dirichlet_expectedstats, dirichlet_logz
from dpvb.kernels import lda as kernel
from dpvb.wall import Estimate


class Documents(Protocol):
    """Bags of words as CSR rows: strictly increasing word ids, finite counts ≥ 0."""

    @property
    def indptr(self) -> Ints:
        """Row pointers."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Word ids."""

    @property
    def counts(self) -> Floats:
        """Counts."""


@dataclass(frozen=True)
class Topics:
    """q(β): Dirichlet parameters (V, K) and exp⟨log β⟩ in the precision of the E-step."""

    lambda_vk: Floats
    beta_vk: NDArray[np.floating]


@dataclass(frozen=True)
class LDA:
    """The model; every field is public.

    Attributes:
        n_components: K, number of topics.
        n_terms: V, size of the public vocabulary.
        clip: a in (0, 1]; the norm of one document's statistic is at most a·L.
        length: L; see length_rule.
        length_rule: how a document is brought to length L, from its own words only. "rescale": counts·L/length.
            "resample": L draws with replacement (the papers). "truncate": counts·min(1, L/length).
        alpha: document prior, a scalar; eta: topic prior, a scalar.
        read: how topics are read from the noisy linear estimate; see `empirical_bayes`.
        tol, max_iter: local iterations stop at mean |Δγ| < tol, at most max_iter.
        fixed_work: True makes every document run exactly max_iter local iterations.
        engine: "numba" (compiled, float32 topics) or "numpy" (plain float64).

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_terms: int
    clip: float = 0.03
    length: float = 500.0
    length_rule: Literal["rescale", "resample", "truncate"] = "rescale"
    alpha: float = 0.02
    eta: float = 0.02
    read: Literal["project", "rank_one", "estimated_prior"] = "rank_one"
    tol: float = 1e-3
    max_iter: int = 100
    fixed_work: bool = False
    engine: Literal["numba", "numpy"] = "numba"

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1)
        check_integer("n_terms", self.n_terms, low=1)
        check_number("clip", self.clip, low=0, high=1, closed="right")
        check_number("length", self.length, low=1, high=1e9)
        check_choice("length_rule", self.length_rule, ("rescale", "resample", "truncate"))
        check_number("alpha", self.alpha, low=0, high=1e6, closed="right")
        check_number("eta", self.eta, low=0, high=1e6, closed="right")
        check_choice("read", self.read, ("project", "rank_one", "estimated_prior"))
        check_number("tol", self.tol, low=0, high=1e6)
        check_integer("max_iter", self.max_iter, low=1)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One block: the V × K expected topic-word counts of a document."""
        bound = self.clip * self.length
        return {"counts": Block((self.n_terms, self.n_components), bound, "nonnegative")}

    def init(self, rng: np.random.Generator) -> Topics:
        """Random topics, λ ~ Gamma(100, 1/100) (Hoffman et al. 2010)."""
        return self.topics(rng.gamma(100.0, 0.01, (self.n_terms, self.n_components)))

    def topics(self, lambda_vk: Floats) -> Topics:
        """q(β) with the given Dirichlet parameters."""
        beta_vk = np.exp(dirichlet_expectedstats(lambda_vk, axis=0))
        return Topics(lambda_vk, beta_vk.astype(np.float32 if self.engine == "numba" else np.float64))

    def treated_counts(self, batch: Documents) -> Floats:
        """Counts after the length rule: each row from its own counts alone."""
        row_j = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
        # bincount adds one row's counts in their order: no bit depends on the rest of the batch.
        length_n = np.bincount(row_j, weights=batch.counts, minlength=len(batch.indptr) - 1)
        if self.length_rule == "resample":
            return self._resampled(batch, length_n)
        scale_n = np.divide(self.length, length_n, out=np.zeros_like(length_n), where=length_n > 0)
        if self.length_rule == "truncate":
            scale_n = np.minimum(scale_n, 1.0)
        return batch.counts * scale_n[row_j]

    def _resampled(self, batch: Documents, length_n: Floats) -> Floats:
        """L draws from each document's own words; the draw is a function of the document, hence pure."""
        counts = np.zeros_like(batch.counts)
        for n in np.flatnonzero(length_n):
            row = slice(batch.indptr[n], batch.indptr[n + 1])
            content = batch.indices[row].tobytes() + batch.counts[row].tobytes()
            seed = int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
            draws = np.random.default_rng(seed).multinomial(round(self.length), batch.counts[row] / length_n[n])
            counts[row] = draws
        return counts

    def local(self, q: Topics, batch: Documents, counts: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed point of every document: (theta_nk, ratio_j, norm_n, gamma_nk); always started at γ = 1."""
        return kernel.local_step(
            batch.indptr,
            batch.indices,
            counts,
            q.beta_vk,
            np.full(self.n_components, self.alpha),
            tol=self.tol,
            max_iter=self.max_iter,
            fixed_work=self.fixed_work,
            engine=self.engine,
        )

    def e_step(self, q: Topics, batch: Documents, blocks: Mapping[str, Block]) -> Contributions:
        """Expected topic-word counts of every document, in factored form."""
        theta_nk, ratio_j, norm_n, _ = self.local(q, batch, self.treated_counts(batch))
        factored = Factored(batch.indptr, batch.indices, ratio_j, theta_nk, q.beta_vk, norm_n, engine=self.engine)
        return {"counts": factored}

    def m_step(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + the statistic, read from its noisy estimate as a nonnegative posterior mean."""
        if s.noise_std("counts") == 0.0 or self.read == "project":
            return self.topics(self.eta + s.project("counts"))
        read = getattr(empirical_bayes, self.read)
        return self.topics(self.eta + read(s.read("counts"), s.noise_std("counts")))

    def proportions(self, q: Topics, batch: Documents) -> Floats:
        """Expected topic proportions E[θ_n], (n, K), of documents as they are."""
        *_, gamma_nk = self.local(q, batch, batch.counts)
        return gamma_nk / gamma_nk.sum(axis=1, keepdims=True)

    def bound(self, q: Topics, batch: Documents) -> Floats:
        """ELBO of each document given q(β), in nats (Hoffman et al. 2010, equation 4 without the topics' term)."""
        _, ratio_j, _, gamma_nk = self.local(q, batch, batch.counts)
        row_j = np.repeat(np.arange(len(gamma_nk)), np.diff(batch.indptr))
        # The kernel's theta is exp ψ(γ_k): ψ(Σ_k γ_k), common to all topics, is taken off here.
        log_p = np.log(batch.counts) - np.log(ratio_j) - digamma(gamma_nk.sum(axis=1))[row_j]
        words_n = np.bincount(row_j, weights=batch.counts * log_p, minlength=len(gamma_nk))
        elog_theta_nk = dirichlet_expectedstats(gamma_nk)
        prior = dirichlet_logz(np.full(self.n_components, self.alpha))
        return words_n + ((self.alpha - gamma_nk) * elog_theta_nk).sum(axis=1) + dirichlet_logz(gamma_nk) - prior
