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

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import SparseRows
from dpvb.core.model import Model
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import NONNEGATIVE, SIMPLEX, Nonnegative, Positives
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models import empirical_bayes
from dpvb.models.expfam import dirichlet_expectedstats, dirichlet_logz
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics import prior
from dpvb.models.topics.kernel import Factored
from dpvb.models.topics.prior import TopicPrior
from dpvb.rows import CountRows

LengthRule = Literal["truncate", "rescale", "resample"]
LENGTH_RULES: Final[tuple[LengthRule, ...]] = get_args(LengthRule)
_RANGES = {
    "clip": (1e-9, 1.0),
    "document_length": (1.0, 1e9),
    "count_power": (1e-3, 1.0),
    "word_weight_power": (0.0, 1.0),
    "mass": (1e-9, 1e9),
    "doc_topic_prior": (1e-6, 1e6),
    "topic_word_prior": (1e-6, 1e6),
    "tol": (0.0, 1e6),
}
# Tuned by hand; benchmarks `wikipedia` and `topics` show what they do: run them before and after a change.
# Norm of the mean of a topic's clipped statistics off the background, over the bound.
_KAPPA = 0.2
# Added to word probabilities before words are weighted by them, as a multiple of 1/V.
_SMOOTHING = 0.2
# Least size of a topic in α, over the mean size.
_LEAST_SIZE = 0.05
# Least usage of a topic around a prior, over the mean usage.
_LEAST_USAGE = 0.02
# η of topics that are read around a prior.
_LEAST_ETA = 0.002
# Bound on the norm of a document's word totals (c^p): √100 for p = 1/2 and 100 tokens.
_WORD_BOUND = 10.0
# Limit on loops that a model file may ask for: documents settle within hundreds, and compiled loops cannot be
# interrupted.
_LARGEST_MAX_ITER = 100_000
# Local iterations at most in predictions and bounds, unless max_iter is larger.
_MOST_ITERATIONS = 100


@dataclass(frozen=True)
class LDAModel(Model["Topics", CountRows]):
    """The model; every field is public.

    A first release of word totals (`background`) gives topics their prior and random start, and words their weights.
    Powers p below 1 and the word weights keep frequent words from filling a document's norm.

    Attributes:
        n_components, n_terms: K, number of topics; V, size of the public vocabulary.
        clip: a in (0, 1]; a document's weighted statistic has norm a·L^p at most.
        document_length: L; see length_rule.
        length_rule: how a document is brought to length L; see `to_length`.
        count_power: p in (0, 1]; 1 for the plain statistic.
        background: whether word totals are released first.
        word_weight_power: κ in [0, 1]; words are weighted by probability^-κ, which needs the background.
        mass: tokens that one unit of the statistic stands for in λ = η + mass · statistic.
        doc_topic_prior: α, a scalar; None: 1/K at first, then half of it as the released sizes of the topics. Σα is 1.
        topic_word_prior: η, a scalar.
        tol, max_iter: local iterations of the E-step stop at mean |Δγ| < tol, or after max_iter. Keep max_iter small:
            documents that fully converge on early, bad topics reinforce them.
        fixed_iterations: True makes every document run exactly max_iter local iterations.
        n_steps: J, number of releases of the topics; by it the noise at the end is foreseen.
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
    length_rule: LengthRule = "truncate"
    count_power: float = 0.5
    background: bool = True
    word_weight_power: float = 0.25
    mass: float = 10.0
    doc_topic_prior: float | None = None
    topic_word_prior: float = 0.02
    tol: float = 1e-3
    max_iter: int = 15
    fixed_iterations: bool = False
    n_steps: int = 20
    around: TopicPrior | None = None
    earlier: EarlierTopics | None = None
    means: bool = False
    mode: bool = False
    iterates: bool = True

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1)
        check_integer("n_terms", self.n_terms, low=1)
        check_integer("max_iter", self.max_iter, low=1, high=_LARGEST_MAX_ITER)
        for name, (low, high) in _RANGES.items():
            check_number(name, self.alpha if name == "doc_topic_prior" else getattr(self, name), low=low, high=high)
        check_choice("length_rule", self.length_rule, LENGTH_RULES)
        if self.word_weight_power > 0 and not self.background:
            raise ParameterError(
                "word_weight_power needs the word totals: set background=True, or word_weight_power=0."
            )

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
        weight_v = np.ones(self.n_terms) if word_weight_v is None else word_weight_v
        alpha_k = np.full(self.n_components, self.alpha) if alpha_k is None else alpha_k
        return Topics(lambda_vk, beta_vk.astype(np.float32), b_v, weight_v, alpha_k)

    def local(
        self, q: Topics, batch: CountRows, counts: Floats, max_iter: int, spread_j: Floats | None = None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed point of every document, always from γ = 1: (theta_nk, ratio_j, norm_n, gamma_nk)."""
        how = {"tol": self.tol, "max_iter": max_iter, "fixed_iterations": self.fixed_iterations}
        return kernel.local_step(batch.indptr, batch.indices, counts, q.beta_vk, q.alpha_k, spread_j=spread_j, **how)  # type: ignore[arg-type]

    def e_step(self, q: Topics, batch: CountRows, blocks: Mapping[str, Block]) -> Contributions:
        """Word totals, and expected topic-word counts in factored form, of every document."""
        counts = to_length(batch, self.document_length, self.length_rule)
        spread_j = counts**self.count_power
        words = SparseRows(batch.indptr, batch.indices, spread_j)
        if "counts" not in blocks:
            return {"words": words}
        weighted_j = spread_j * q.word_weight_v[batch.indices]
        theta_nk, ratio_j, norm_n, _ = self.local(q, batch, counts, self.max_iter, weighted_j)
        s_nvk = Factored(batch.indptr, batch.indices, ratio_j, theta_nk, q.beta_vk, norm_n)
        return {"words": words, "counts": s_nvk}

    def started(self, s: Estimate, q: Topics) -> Topics:
        """Random topics around the word probabilities, or the known topics."""
        return self._with_releases(s, self._read_around(s) or self._around_background(s, q))

    def m_step(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + mass · the statistic, read from its noisy estimate."""
        return self._with_releases(s, self._read_around(s) or self._summed(s, q))

    def signal(self, num_units: float, noise_std: float) -> float:
        """Expected norm of a topic's sum off the background, over the noise std of an entry."""
        expected = max(num_units, 0.0) * _KAPPA * self.blocks["counts"].bound / self.n_components
        return expected / noise_std if noise_std > 0 else math.inf

    @property
    def detectable(self) -> float:
        """The signal from which a topic stands above the noise: its square is ten deviations of V squares of noise."""
        return math.sqrt(10 * math.sqrt(2 * self.n_terms))

    def _with_releases(self, s: Estimate, new: Topics) -> Topics:
        """A q that keeps what was released, as it came."""
        num_units = (0.0 if s.counts is None else s.counts.counted) + (self.earlier.num_units if self.earlier else 0.0)
        words_v, words_std = self._word_totals(s) if self.background else (None, 0.0)
        return replace(new, words_v=words_v, words_std=words_std, num_units=num_units)

    def _around_background(self, s: Estimate, q: Topics) -> Topics:
        """Random topics around the word probabilities, and the weights of the words."""
        read = empirical_bayes.background if self.around is None else self.around.frequencies
        background_v = read(*self._word_totals(s))
        smoothed_v = background_v + _SMOOTHING / self.n_terms
        word_weight_v = (smoothed_v / smoothed_v.mean()) ** -self.word_weight_power
        # So large a mass makes exp⟨log β⟩ the mean of β.
        return self.topics(1e8 * background_v[:, None] * q.lambda_vk, background_v, word_weight_v)

    def _summed(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + mass · the statistic, read from its noisy estimate; α by its released sizes."""
        noise_std, num_units = s.noise_std("counts"), 0.0 if s.counts is None else s.counts.counted
        x_vk, sd_v = s.read("counts") / q.word_weight_v[:, None], noise_std / q.word_weight_v
        # Of J releases t are averaged so far. The noise at the end of the plan decides for all steps.
        share = 1.0 if s.receipt is None else min((s.receipt.step + (not self.background)) / self.n_steps, 1.0)
        free = self.signal(num_units, noise_std * math.sqrt(share)) >= self.detectable
        s_vk = empirical_bayes.estimated_prior(x_vk, sd_v, q.background_v, free=free)
        lambda_vk = self.topic_word_prior + self.mass * s_vk
        new = self.topics(lambda_vk, q.background_v, q.word_weight_v, self._next_alpha(x_vk.sum(axis=0)))
        return replace(new, sum_vk=x_vk, sum_std_v=sd_v)

    def _read_around(self, s: Estimate) -> Topics | None:
        """Return topics around the known ones, by the word totals and the released counts; None: none are known."""
        around = self.around
        if around is None or len(around.usage_k) == 1:
            return None
        words_v, std = self._word_totals(s)
        c_k = around.usage(words_v, std)
        b_v = prior.words(around.topics_vk @ c_k, words_v, std)
        t_vk = around.adapted(c_k, b_v)
        parts = [(s.read("counts"), s.noise_std("counts"))] if s.phase == "step" else []
        if self.earlier is not None and self.earlier.sum_vk is not None:
            parts.append((self.earlier.sum_vk, self.earlier.sum_std))
        if not parts:
            size_k = np.maximum(c_k, _LEAST_USAGE * c_k.mean())
            return self.topics(self.mass * size_k * t_vk, b_v, None, self._next_alpha(c_k))
        x_vk = np.add.reduce([part_vk for part_vk, _ in parts])
        sd_v = np.full(self.n_terms, math.hypot(*(std for _, std in parts)))
        size_k = prior.sizes(t_vk, x_vk, sd_v)
        s_vk = empirical_bayes.around(x_vk, sd_v, size_k * t_vk)
        new = self.topics(_LEAST_ETA + self.mass * s_vk, b_v, None, self._next_alpha(size_k))
        return replace(new, sum_vk=x_vk, sum_std_v=sd_v)

    def _word_totals(self, s: Estimate) -> tuple[Floats, float]:
        """Word totals and their noise std, those of earlier releases included."""
        words_v, std = s.read("words"), s.noise_std("words")
        if self.earlier is None:
            return words_v, std
        return words_v + self.earlier.words_v, math.hypot(std, self.earlier.words_std)

    def _next_alpha(self, size_k: Floats) -> Floats | None:
        """α of the next step: half of it even, half of it as the topics' released sizes, if none was given."""
        if self.doc_topic_prior is not None or not (mean := float(size_k.mean())) > 0:
            return None
        size_k = np.maximum(size_k, _LEAST_SIZE * mean)
        return np.asarray(0.5 / self.n_components + 0.5 * size_k / size_k.sum())

    def proportions(self, q: Topics, batch: CountRows) -> Floats:
        """Expected topic proportions E[θ_n], (n, K), of documents as they are."""
        *_, gamma_nk = self.local(q, batch, batch.counts, max(self.max_iter, _MOST_ITERATIONS))
        return np.asarray(gamma_nk / gamma_nk.sum(axis=1, keepdims=True))

    def bound(self, q: Topics, batch: CountRows, *, topics: Literal["mean", "expected_log"] = "mean") -> Floats:
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


# What is learned of topics, all of it public.


# So that a topic whose mode is nowhere is the same everywhere.
_TINY: Final = 1e-300


def met(lambda_vk: Floats, *, means: bool, mode: bool) -> Floats:
    """What documents meet of topics with these Dirichlet parameters, (V, K): exp⟨log β⟩, or a point.

    Args:
        lambda_vk: the parameters.
        means: whether it is the mean.
        mode: whether it is the mode, where every parameter is 1 or more, and else the mean.
    """
    if not (means or mode):
        return np.exp(dirichlet_expectedstats(lambda_vk, axis=0))
    point_vk = lambda_vk - float(mode and lambda_vk.min() >= 1) + _TINY
    return np.asarray(point_vk / point_vk.sum(axis=0))


@dataclass(frozen=True)
class EarlierTopics:
    """What was released of other people: linear sums, (V,) and (V, K), noise std of an entry, and units.

    Nothing may have been released of the topics.
    """

    words_v: Floats
    words_std: float
    sum_vk: Floats | None
    sum_std: float
    num_units: float


@dataclass(frozen=True)
class Topics:
    """q(β): λ and exp⟨log β⟩, (V, K), with released word probabilities and word weights, (V,), and α, (K,).

    What was released, as it came: words_v, (V,), and sum_vk, (V, K), are linear estimates, un-projected and unweighted,
    with the noise std of their words' entries; num_units is the released number of units.
    """

    lambda_vk: Positives
    beta_vk: Annotated[NDArray[np.floating], NONNEGATIVE]
    background_v: Annotated[Floats | None, SIMPLEX]
    word_weight_v: Positives
    alpha_k: Positives
    words_v: Floats | None = None
    words_std: Nonnegative = 0.0
    sum_vk: Floats | None = None
    sum_std_v: Annotated[Floats | None, NONNEGATIVE] = None
    num_units: float = 0.0


# Documents as bags of words, and how each is brought to a common length from its own words alone.


def to_length(batch: CountRows, length: float, rule: str) -> Floats:
    """Counts (entries,) of every document after the length rule; an empty document stays empty.

    "truncate": counts · min(1, L/length). "rescale": counts · L/length. "resample": L draws with replacement from the
    document's own words (Park, Foulds, Chaudhuri & Welling 2020); the draw is a function of the document, hence pure.
    """
    num_words_n = np.diff(batch.indptr)
    row_j = np.repeat(np.arange(len(num_words_n)), num_words_n)
    # bincount adds one row's counts in their order: no bit depends on the rest of the batch.
    length_n = np.bincount(row_j, weights=batch.counts, minlength=len(num_words_n)).astype(np.float64)
    if rule == "resample":
        return _resampled(batch, length_n, round(length))
    scale_n = np.divide(length, length_n, out=np.zeros_like(length_n), where=length_n > 0)
    if rule == "truncate":
        scale_n = np.minimum(scale_n, 1.0)
    return batch.counts * scale_n[row_j]


def _resampled(batch: CountRows, length_n: Floats, length: int) -> Floats:
    """Draws by search in the running total of the counts: whatever the counts are, there is a word for every draw."""
    counts = np.zeros_like(batch.counts)
    for n in np.flatnonzero(length_n):
        row = slice(batch.indptr[n], batch.indptr[n + 1])
        content = batch.indices[row].tobytes() + batch.counts[row].tobytes()
        seed = int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
        total_j = np.cumsum(batch.counts[row])
        place = np.searchsorted(total_j, np.random.default_rng(seed).random(length) * total_j[-1], side="right")
        counts[row] = np.bincount(np.minimum(place, len(total_j) - 1), minlength=len(total_j))
    return counts
