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
L, α, η             document_length, doc_topic_prior, topic_word_prior; length_rule brings a document to L
f(c)                spread_j: what a word spreads over topics, c^p with p = count_power; s_nvk = c_nv^p φ_nvk
a·L^p               bound on a document's statistic, clip a
w_v                 word_weight_v: the statistic is clipped and released as w_v s_nvk
==================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import digamma

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import SparseRows
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models import empirical_bayes
from dpvb.models.expfam import dirichlet_expectedstats, dirichlet_logz
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics import reading
from dpvb.models.topics.documents import LENGTH_RULES, Documents, to_length
from dpvb.models.topics.factored import Factored
from dpvb.models.topics.posterior import Earlier, met
from dpvb.models.topics.posterior import Topics as Topics
from dpvb.models.topics.prior import Prior

_RANGES = {
    "clip": (1e-9, 1.0),
    "document_length": (1.0, 1e9),
    "count_power": (1e-3, 1.0),
    "word_power": (0.0, 1.0),
    "mass": (1e-9, 1e9),
    "doc_topic_prior": (1e-6, 1e6),
    "topic_word_prior": (1e-6, 1e6),
    "tol": (0.0, 1e6),
}
# Tuned by hand; benchmark `wikipedia` (perplexity by ε) shows what they do: run it before and after a change.
_WORD_BOUND = 10.0  # bound on the norm of a document's word totals (c^p): √100 for p = 1/2 and 100 tokens
_MOST_ITERATIONS = 100  # local iterations at most in predictions and bounds, unless max_iter is larger


@dataclass(frozen=True)
class LDA:
    """The model; every field is public.

    A first release of word totals (`background`) gives topics their prior and random start, and words their weights.
    Powers p below 1 and the word weights keep frequent words from filling a document's norm.

    Attributes:
        n_components, n_terms: K, number of topics; V, size of the public vocabulary.
        clip: a in (0, 1]; a document's weighted statistic has norm a·L^p at most.
        document_length: L; see length_rule.
        length_rule: how a document is brought to length L; see `documents`.
        count_power: p in (0, 1]; 1 for the plain statistic.
        background: whether word totals are released first.
        word_power: κ in [0, 1]; words are weighted by probability^-κ, which needs the background.
        mass: tokens that one unit of the statistic stands for in λ = η + mass · statistic.
        doc_topic_prior: α, a scalar; None: 1/K at first, then half of it as the released sizes of the topics. Σα is 1.
        topic_word_prior: η, a scalar.
        read: how topics are read from the noisy linear estimate; see `empirical_bayes`.
        tol, max_iter: local iterations of the E-step stop at mean |Δγ| < tol, or after max_iter. Keep max_iter small:
            documents that fully converge on early, bad topics reinforce them.
        fixed_work: True makes every document run exactly max_iter local iterations.
        engine: "numba" (compiled, float32 topics) or "numpy" (plain float64).
        num_steps: J, number of releases of the topics; by it the noise at the end is foreseen.
        around: public or earlier topics, or word frequencies alone; see `prior`.
        earlier: what was released of other people, which is read together with what is released now.
        means: whether documents meet the means of the topics, instead of exp⟨log β⟩.
        mode: whether they meet the modes, where every λ is 1 or more, and else the means: expectation maximisation.
        iterates: whether topics are released; without, the word totals are all that is.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_terms: int
    clip: float = 0.067
    document_length: float = 500.0
    length_rule: Literal["rescale", "resample", "truncate"] = "truncate"
    count_power: float = 0.5
    background: bool = True
    word_power: float = 0.25
    mass: float = 10.0
    doc_topic_prior: float | None = None
    topic_word_prior: float = 0.02
    read: Literal["project", "rank_one", "estimated_prior"] = "estimated_prior"
    tol: float = 1e-3
    max_iter: int = 15
    fixed_work: bool = False
    engine: Literal["numba", "numpy"] = "numba"
    num_steps: int = 20
    around: Prior | None = None
    earlier: Earlier | None = None
    means: bool = False
    mode: bool = False
    iterates: bool = True

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1)
        check_integer("n_terms", self.n_terms, low=1)
        check_integer("max_iter", self.max_iter, low=1)
        for name, (low, high) in _RANGES.items():
            check_number(name, self.alpha if name == "doc_topic_prior" else getattr(self, name), low=low, high=high)
        check_choice("length_rule", self.length_rule, LENGTH_RULES)
        check_choice("read", self.read, tuple(empirical_bayes.READS))
        check_choice("engine", self.engine, ("numba", "numpy"))
        if self.word_power > 0 and not self.background:
            raise ParameterError("word_power needs the word totals: set background=True, or word_power=0.")

    @property
    def alpha(self) -> float:
        """α of every topic at the start."""
        return 1.0 / self.n_components if self.doc_topic_prior is None else self.doc_topic_prior

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Expected topic-word counts of a document, V × K, and before them its word totals, V."""
        bound = self.clip * self.document_length**self.count_power
        counts = {"counts": Block((self.n_terms, self.n_components), bound, "nonnegative")}
        words = {"words": Block((self.n_terms,), _WORD_BOUND, "nonnegative", phase="first")}
        return {**(words if self.background else {}), **(counts if self.iterates else {})}

    def init(self, rng: np.random.Generator) -> Topics:
        """Random topics, λ ~ Gamma(100, 1/100) (Hoffman et al. 2010)."""
        lambda_vk = rng.gamma(100.0, 1 / 100.0, (self.n_terms, self.n_components))
        return self.topics(lambda_vk)

    def topics(self, lambda_vk: Floats, b_v: Any = None, word_weight_v: Any = None, alpha_k: Any = None) -> Topics:
        """q(β) with these Dirichlet parameters; words weigh 1 and α is the prior's, if nothing else is given."""
        beta_vk = met(lambda_vk, means=self.means, mode=self.mode)
        precision = np.float32 if self.engine == "numba" else np.float64
        weight_v = np.ones(self.n_terms) if word_weight_v is None else word_weight_v
        alpha_k = np.full(self.n_components, self.alpha) if alpha_k is None else alpha_k
        return Topics(lambda_vk, beta_vk.astype(precision), b_v, weight_v, alpha_k)

    def local(
        self, q: Topics, batch: Documents, counts: Floats, max_iter: int, spread_j: Floats | None = None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed point of every document, always from γ = 1: (theta_nk, ratio_j, norm_n, gamma_nk)."""
        how = {"tol": self.tol, "max_iter": max_iter, "fixed_work": self.fixed_work, "engine": self.engine}
        return kernel.local_step(batch.indptr, batch.indices, counts, q.beta_vk, q.alpha_k, spread_j=spread_j, **how)  # type: ignore[arg-type]

    def e_step(self, q: Topics, batch: Documents, blocks: Mapping[str, Block]) -> Contributions:
        """Word totals, and expected topic-word counts in factored form, of every document."""
        counts = to_length(batch, self.document_length, self.length_rule)
        spread_j = counts**self.count_power
        words = SparseRows(batch.indptr, batch.indices, spread_j)
        if "counts" not in blocks:
            return {"words": words}
        weighted_j = spread_j * q.word_weight_v[batch.indices]
        theta_nk, ratio_j, norm_n, _ = self.local(q, batch, counts, self.max_iter, weighted_j)
        s_nvk = Factored(batch.indptr, batch.indices, ratio_j, theta_nk, q.beta_vk, norm_n, engine=self.engine)
        return {"words": words, "counts": s_nvk}

    def m_step(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + mass · the statistic, read from its noisy estimate; after the first release, the start."""
        if self.around is not None and len(self.around.usage_k) > 1:
            return reading.released(self, s, reading.around(self, self.around, s))
        return reading.released(self, s, (reading.sums if "counts" in s.names else reading.start)(self, s, q))

    def proportions(self, q: Topics, batch: Documents) -> Floats:
        """Expected topic proportions E[θ_n], (n, K), of documents as they are."""
        *_, gamma_nk = self.local(q, batch, batch.counts, max(self.max_iter, _MOST_ITERATIONS))
        return np.asarray(gamma_nk / gamma_nk.sum(axis=1, keepdims=True))

    def bound(self, q: Topics, batch: Documents, *, topics: Literal["mean", "expected_log"] = "mean") -> Floats:
        """ELBO of each document, in nats (Hoffman et al. 2010, equation 4 without the topics' term).

        "mean" scores by distributions of words; "expected_log" by exp⟨log β⟩, whose sum is far below 1 where λ is.
        """
        if topics == "mean":
            mean_vk = q.lambda_vk / q.lambda_vk.sum(axis=0)
            q = replace(q, beta_vk=mean_vk.astype(q.beta_vk.dtype))
        _, ratio_j, _, gamma_nk = self.local(q, batch, batch.counts, max(self.max_iter, _MOST_ITERATIONS))
        row_j = np.repeat(np.arange(len(gamma_nk)), np.diff(batch.indptr))
        # The kernel's theta is exp ψ(γ_k); subtract ψ(Σ_k γ_k), which all topics have in common.
        log_p = np.log(batch.counts) - np.log(ratio_j) - digamma(gamma_nk.sum(axis=1))[row_j]
        words_n = np.bincount(row_j, weights=batch.counts * log_p, minlength=len(gamma_nk))
        elog_theta_nk = dirichlet_expectedstats(gamma_nk)
        topics_n = ((q.alpha_k - gamma_nk) * elog_theta_nk).sum(axis=1) + dirichlet_logz(gamma_nk)
        topics_n -= dirichlet_logz(q.alpha_k)
        return np.asarray(words_n + topics_n)
