"""Latent Dirichlet allocation, Algorithm 3 (Park, Foulds, Chaudhuri & Welling 2020); unit: a document.

    β_k ~ Dirichlet(η 1_V),   θ_d ~ Dirichlet(α 1_K),   z_dn ~ θ_d,   w_dn ~ β_{z_dn}

Algorithm 3, as printed, in its order of operations:

    each document is brought to N words, drawn with replacement from its own                        document_length
    for t = 1, ..., J:
        E-step, for each document of the mini-batch:
            R times: φ_dn^k ∝ exp(⟨log β_k⟩ᵀ w_dn + ⟨log θ_d^k⟩);  γ_d = α 1_K + Σ_n φ_dn   (21)  local_iterations
            s̄^d = (1/S) Σ_n φ_dn w_dnᵀ;  if |s̄^d| > aN/S: s̄^d ← aN/S · s̄^d/|s̄^d|           (24)  clip
        s̃ = Σ_d s̄^d + N(0, σ² (aN/S)²);  negative entries are clipped to 0                 (22)  project
        M-step: λ⁽ᵗ⁾ = η 1_V + D s̃;  λ⁽ᵗ⁾ ← (1 - ρ_t) λ⁽ᵗ⁻¹⁾ + ρ_t λ⁽ᵗ⁾;  output ⟨log β_k⟩               m_step

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
λ_k^v               nu["counts"] (V, K)
⟨log β_k^v⟩         n_bar["log_beta"] (V, K)
N, a, R             document_length, clip_scale, local_iterations
α, η                doc_topic_prior, topic_word_prior
==================  ===============================================================================================

Corrected: the sensitivity aN/S holds for one document more or less, (23). Two documents of one word each differ by
√2 aN/S, which the wall accounts for under replace-one. The bound N/D of the first version (arXiv 1611.00340v1) is that
of a mean over all documents, where a mean over S is released: it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma

from dpvb import Block
from dpvb.core.blocks import Contributions
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_integer, check_number
from dpvb.models.topics.lda import LDAModel, Topics
from dpvb.papers.conjugate_exponential import VIPS


@dataclass(frozen=True)
class VIPSTopics(VIPS):
    """Algorithm 3. `dpvb.PrivateModel` fits it to a `dpvb.data.BagOfWords`.

    Attributes:
        n_components, n_terms: K and V.
        clip_scale: a in (0, 1].
        document_length: N.
        doc_topic_prior, topic_word_prior: α and η; None: 1/K, as in the authors' code.
        local_iterations: R.

    Examples:
        >>> from dpvb.papers.lda import VIPSTopics
        >>> model = VIPSTopics(n_components=5, n_terms=1000, clip_scale=0.1, document_length=50.0)
        >>> block = model.blocks["counts"]
        >>> block.shape, block.bound
        ((1000, 5), 5.0)
    """

    n_components: int
    n_terms: int
    clip_scale: float = 0.1
    document_length: float = 500.0
    doc_topic_prior: float | None = None
    topic_word_prior: float | None = None
    local_iterations: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("n_components", self.n_components, low=1)
        check_integer("n_terms", self.n_terms, low=1)
        check_number("clip_scale", self.clip_scale, low=1e-9, high=1)

    @property
    def alpha(self) -> float:
        """α."""
        return 1.0 / self.n_components if self.doc_topic_prior is None else self.doc_topic_prior

    @property
    def eta(self) -> float:
        """η."""
        return 1.0 / self.n_components if self.topic_word_prior is None else self.topic_word_prior

    @property
    def documents(self) -> LDAModel:
        """The E-step of a document, which `dpvb.LDA` shares: plain counts, no weights of words, R plain iterations."""
        return LDAModel(
            self.n_components,
            self.n_terms,
            clip_scale=self.clip_scale,
            document_length=self.document_length,
            length_rule="resample",
            count_power=1.0,
            release_word_totals=False,
            word_weight_power=0.0,
            doc_topic_prior=self.alpha,
            topic_word_prior=self.eta,
            tol=0.0,
            max_iter=self.local_iterations,
        )

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Expected counts of words in topics, (V, K), of norm aN at most."""
        return {
            "counts": Block((self.n_terms, self.n_components), self.clip_scale * self.document_length, "nonnegative")
        }

    def start(self, rng: np.random.Generator) -> tuple[Mapping[str, Floats], Mapping[str, Any]]:
        """λ⁽⁰⁾ ~ Gamma(100, 1/100), as in the authors' code."""
        return {"counts": rng.gamma(100.0, 1 / 100.0, (self.n_terms, self.n_components))}, {}

    def prior(self, n_bar: Mapping[str, Any]) -> Mapping[str, Floats]:
        """η 1_V."""
        return {"counts": np.full((self.n_terms, self.n_components), self.eta)}

    def statistics(self, n_bar: Mapping[str, Any], batch: Any) -> Contributions:
        """s̄^d of every document, before it is clipped."""
        return self.documents.e_step(self.topics(n_bar), batch, self.blocks)

    def project(self, name: str, release: Floats) -> Floats:
        """Clip negative entries to 0."""
        return np.maximum(release, 0.0)

    def expected(self, nu: Mapping[str, Floats], n_bar: Mapping[str, Any]) -> Mapping[str, Any]:
        """⟨log β_k⟩ of q(β_k) = Dirichlet(λ_k)."""
        return {"lambda": nu["counts"], "log_beta": digamma(nu["counts"]) - digamma(nu["counts"].sum(axis=0))}

    def topics(self, n_bar: Mapping[str, Any]) -> Topics:
        """The topics as `LDAModel` reads them, for example for its bounds on held-out documents."""
        beta_vk = np.exp(n_bar["log_beta"])
        return Topics(n_bar["lambda"], beta_vk, None, np.ones(self.n_terms), np.full(self.n_components, self.alpha))
