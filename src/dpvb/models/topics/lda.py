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
a·L^p               bound on a document's statistic, clip_scale a
w_v                 word_weight_v: the statistic is clipped and released as w_v s_nvk
b_v                 background_v: word probabilities, by all that was released of words
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

from dpvb.core.blocks import Block, Contributions, row_blocks
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.model import Model
from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.domains import NONNEGATIVE, SIMPLEX, Nonnegative, Positives
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models import empirical_bayes
from dpvb.models.expfam import dirichlet_expectedstats, dirichlet_logz
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics import prior
from dpvb.models.topics.kernel import Factored
from dpvb.models.topics.prior import TopicPrior, WordList
from dpvb.rows import CountRows

LengthRule = Literal["truncate", "rescale", "resample"]
LENGTH_RULES: Final[tuple[LengthRule, ...]] = get_args(LengthRule)
_RANGES = {
    "clip_scale": (1e-9, 1.0),
    "document_length": (1.0, 1e9),
    "count_power": (1e-3, 1.0),
    "word_weight_power": (0.0, 1.0),
    "statistic_weight": (1e-9, 1e9),
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
# Bound on the norm of a document's word totals (c^p): √16 for p = 1/2 and 16 tokens. Less noise is worth more than
# whole documents: 10 is far behind, 3 and 5 are alike.
_WORD_BOUND = 4.0
#: Power of the word weights where topics are detectable and none is given.
WEIGHT_POWER = 0.25
# The comparison with one topic: largest gain of a document in nats per word, number of words from which on a
# document has the full weight 1, and the number that stands for this weight in the release, which needs less precision.
_MOST_GAIN, _FULL_LENGTH, _LENGTH_SCALE = 0.5, 100.0, 0.25
# Limit on loops that a model file may ask for: documents settle within hundreds, and compiled loops cannot be
# interrupted.
_LARGEST_MAX_ITER = 100_000
# Local iterations at most in predictions and bounds, unless max_iter is larger.
_MOST_ITERATIONS = 100


@dataclass(frozen=True)
class LDAModel(Model["Topics", CountRows]):
    """The model; every field is public.

    A first release of word totals (`release_word_totals`) gives topics their prior and random start, and words their
    weights.
    Powers p below 1 and the word weights keep frequent words from filling a document's norm.

    Attributes:
        n_components, n_terms: K, number of topics; V, size of the public vocabulary.
        clip_scale: a in (0, 1]; a document's weighted statistic has norm a·L^p at most.
        document_length: L; see length_rule.
        length_rule: how a document is brought to length L; see `to_length`.
        count_power: p in (0, 1]; 1 for the plain statistic.
        release_word_totals: whether word totals are released first.
        word_weight_power: κ in [0, 1]; words are weighted by probability^-κ, which needs `release_word_totals`. None:
            1/4 if the released number of units makes topics detectable, else 0.
        statistic_weight: tokens that one unit of the statistic stands for in λ = η + statistic_weight · statistic.
        doc_topic_prior: α, a scalar; None: 1/K at first, then half of it as the released sizes of the topics. Σα is 1.
        topic_word_prior: η, a scalar.
        tol, max_iter: local iterations of the E-step stop at mean |Δγ| < tol, or after max_iter. Keep max_iter small:
            documents that fully converge on early, bad topics reinforce them.
        fixed_iterations: True makes every document run exactly max_iter local iterations.
        n_steps: J, number of releases of the topics; by it the noise at the end is foreseen.
        final_noise: noise std of an entry of the topics' sums at the end of the plan, over that of a word total.
        lists: public word frequencies, of which the one is used that the word totals agree with, if any.
        compares: whether the gain of the topics over one topic is released midway; if there is none, the later steps
            release word totals, and the model is one topic.
        around: public or earlier topics, or only word frequencies; see `prior`.
        previous: what was released of other people, which is read together with what is released now.
        means: whether documents meet the means of the topics, instead of exp⟨log β⟩.
        mode: whether they meet the modes, where every λ is 1 or more, and else the means: expectation maximisation.
        iterates: whether topics are released; without, the word totals are all that is.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    n_terms: int
    clip_scale: float = 0.067
    document_length: float = 500.0
    length_rule: LengthRule = "truncate"
    count_power: float = 0.5
    release_word_totals: bool = True
    word_weight_power: float | None = WEIGHT_POWER
    statistic_weight: float = 10.0
    doc_topic_prior: float | None = None
    topic_word_prior: float = 0.02
    tol: float = 1e-3
    max_iter: int = 15
    fixed_iterations: bool = False
    n_steps: int = 20
    final_noise: float = 0.0
    lists: tuple[WordList, ...] = ()
    compares: bool = False
    around: TopicPrior | None = None
    previous: EarlierTopics | None = None
    means: bool = False
    mode: bool = False
    iterates: bool = True

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1)
        check_integer("n_terms", self.n_terms, low=1)
        check_integer("max_iter", self.max_iter, low=1, high=_LARGEST_MAX_ITER)
        for name, (low, high) in _RANGES.items():
            given = self.alpha if name == "doc_topic_prior" else getattr(self, name)
            if given is not None:
                check_number(name, given, low=low, high=high)
        check_choice("length_rule", self.length_rule, LENGTH_RULES)
        if self.word_weight_power and not self.release_word_totals:
            raise ParameterError(
                "word_weight_power needs the word totals: set release_word_totals=True, or word_weight_power=0."
            )

    @property
    def alpha(self) -> float:
        """α of every topic at the start."""
        return 1.0 / self.n_components if self.doc_topic_prior is None else self.doc_topic_prior

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Expected topic-word counts of a document, V × K, before them its word totals, V, and midway the gain."""
        bound = self.clip_scale * self.document_length**self.count_power
        counts = {"counts": Block((self.n_terms, self.n_components), bound, "nonnegative")}
        words = {"words": Block((self.n_terms,), _WORD_BOUND, "nonnegative", phase="first")}
        # One block, so that a person's gain and length are clipped by one factor, which leaves their ratio.
        gain = {"gain": Block((2,), math.hypot(_MOST_GAIN, _LENGTH_SCALE), "real", phase="midway")}
        return {
            **(words if self.release_word_totals else {}),
            **(counts if self.iterates else {}),
            **(gain if self.compares else {}),
        }

    def init(self, rng: np.random.Generator) -> Topics:
        """Random topics, λ ~ Gamma(100, 1/100) (Hoffman et al. 2010)."""
        lambda_vk = rng.gamma(100.0, 1 / 100.0, (self.n_terms, self.n_components))
        return self.topics(lambda_vk)

    def topics(self, lambda_vk: Floats, b_v: Any = None, word_weight_v: Any = None, alpha_k: Any = None) -> Topics:
        """q(β) with these Dirichlet parameters; words weigh 1 and α is the prior's, if nothing else is given."""
        beta_vk = met(lambda_vk, np.float32, means=self.means, mode=self.mode)
        weight_v = np.ones(self.n_terms) if word_weight_v is None else word_weight_v
        alpha_k = np.full(self.n_components, self.alpha) if alpha_k is None else alpha_k
        return Topics(lambda_vk, beta_vk, b_v, weight_v, alpha_k)

    def local(
        self, q: Topics, batch: CountRows, counts: Floats, max_iter: int, spread_j: Floats | None = None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed point of every document, always from γ = 1: (theta_nk, ratio_j, norm_n, gamma_nk)."""
        how = {"tol": self.tol, "max_iter": max_iter, "fixed_iterations": self.fixed_iterations}
        return kernel.local_step(batch.indptr, batch.indices, counts, q.beta_vk, q.alpha_k, spread_j=spread_j, **how)  # type: ignore[arg-type]

    def e_step(self, q: Topics, batch: CountRows, blocks: Mapping[str, Block]) -> Contributions:
        """Word totals, the gain of topics over one, and expected topic-word counts in factored form, of every document.

        Once the model is one topic, word totals take the place of the counts, as those of the first topic.
        """
        counts = to_length(batch, self.document_length, self.length_rule)
        if "gain" in blocks:
            return {"gain": Rows(self._gains(q, batch, counts))}
        spread_j = counts**self.count_power
        words = SparseRows(batch.indptr, batch.indices, spread_j)
        if "counts" not in blocks:
            return {"words": words}
        if q.is_one:
            places = np.asarray(batch.indices, dtype=np.int64) * self.n_components
            return {"words": words, "counts": SparseRows(batch.indptr, places, spread_j * self._words_as_counts)}
        weighted_j = spread_j * q.word_weight_v[batch.indices]
        theta_nk, ratio_j, norm_n, _ = self.local(q, batch, counts, self.max_iter, weighted_j)
        s_nvk = Factored(batch.indptr, batch.indices, ratio_j, theta_nk, q.beta_vk, norm_n)
        return {"words": words, "counts": s_nvk}

    def e_step_q(self, q: Topics, blocks: Mapping[str, Block]) -> Topics:
        """Topics as documents meet them, word weights and α; for the gain the means, and λ without a background."""
        q = _at_means(q) if "gain" in blocks else q
        lambda_vk = q.lambda_vk if "gain" in blocks and q.background_v is None else q.lambda_vk[:0]
        return replace(q, lambda_vk=lambda_vk, words_v=None, sum_vk=None, sum_std_v=None)

    def m_step_q(self, q: Topics) -> Topics:
        """Word weights and decisions: an M-step estimates topics from releases only."""
        none_vk = np.empty((0, self.n_components))
        return replace(q, lambda_vk=none_vk, beta_vk=none_vk, sum_vk=None, sum_std_v=None)

    @property
    def _words_as_counts(self) -> float:
        """Factor of a document's word totals in the place of its counts: what is clipped to one bound is to the other.

        So the signal over the noise is that of a first release of the same noise multiplier.
        """
        return self.blocks["counts"].bound / _WORD_BOUND

    def _gains(self, q: Topics, batch: CountRows, counts: Floats) -> Floats:
        """Gain of the topics over one topic, in nats per word, times the weight of the document's length; the weight.

        Shape (n, 2). The gain is the bound of the document under the topics, less its log likelihood under the word
        probabilities. A document that the E-step takes for empty has gain and weight 0.
        """
        weight_v = q.lambda_vk.sum(axis=1) if q.background_v is None else q.background_v
        with np.errstate(all="ignore"):
            bound_n, sound_n = self._bounds(_at_means(q), batch, counts)
            log_b_v = np.log(weight_v / weight_v.sum())
            alone_j = counts * log_b_v[np.clip(batch.indices, 0, len(log_b_v) - 1)]
            row_j, number = np.repeat(np.arange(len(sound_n)), np.diff(batch.indptr)), len(sound_n)
            gain_n = bound_n - np.bincount(row_j, weights=alone_j, minlength=number)
            length_n = np.bincount(row_j, weights=counts, minlength=number)
            weight_n = np.where(sound_n, np.minimum(length_n, _FULL_LENGTH) / _FULL_LENGTH, 0.0)
            gain_n = np.where(weight_n > 0, weight_n * gain_n / length_n, 0.0)
        return np.stack([gain_n, _LENGTH_SCALE * weight_n], axis=1)

    def started(self, s: Estimate, q: Topics) -> Topics:
        """Random topics around the word probabilities, or the known topics; midway, topics or one topic."""
        if s.phase == "midway":
            return self._decided(s, q)
        return self._with_releases(s, self._read_around(s) or self._around_background(s, q))

    def m_step(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + statistic_weight · the statistic, read from its noisy estimate; or one topic of all word totals."""
        return self._with_releases(s, self._read_around(s) or (self._one if q.is_one else self._summed)(s, q))

    def _decided(self, s: Estimate, q: Topics) -> Topics:
        """Keep the topics if their released gain over one topic is larger than its noise std; else take one topic."""
        gain, weight = s.noisy("gain")
        std = s.noise_std("gain")
        number = max(weight, std) / _LENGTH_SCALE
        gain_of_word, std_of_word = (gain / number, std / number) if number > 0 else (0.0, 0.0)
        q = replace(q, gain=float(gain_of_word), gain_std=float(std_of_word))
        return q if gain > std else self._alike(s, q, q.background_v, q.listed)

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
        num_units = (0.0 if s.counts is None else s.counts.included) + (
            self.previous.num_units if self.previous else 0.0
        )
        words_v, words_std = self._word_totals(s) if self.release_word_totals else (None, 0.0)
        return replace(new, words_v=words_v, words_std=words_std, num_units=num_units)

    def _around_background(self, s: Estimate, q: Topics) -> Topics:
        """Random topics around the word probabilities, and the weights of the words; or the one topic."""
        background_v, listed = self._word_probabilities(s)
        if self.n_components == 1:
            return self._alike(s, q, background_v, listed)
        power = self.word_weight_power
        if power is None:
            detectable = self.signal(_counted(s), self.final_noise * s.noise_std("words")) >= self.detectable
            power = WEIGHT_POWER * detectable
        smoothed_v = background_v + _SMOOTHING / self.n_terms
        word_weight_v = (smoothed_v / smoothed_v.mean()) ** -power
        # So large a mass makes exp⟨log β⟩ the mean of β.
        new = self.topics(1e8 * background_v[:, None] * q.lambda_vk, background_v, word_weight_v)
        return replace(new, listed=listed)

    def _word_probabilities(self, s: Estimate, *later: Floats) -> tuple[Floats, int]:
        """Word probabilities (V,), and the number of the list around which they were read, 0 for none.

        Args:
            s: with word totals.
            later: a later release of word totals and the noise std of its entries, (V,) each.
        """
        words_v, std = self._word_totals(s)
        total_v, std_v = prior.of_both(words_v, std, *later) if later else (words_v, np.full(self.n_terms, std))
        listed = prior.chosen(self.lists, total_v, std_v)
        if not listed:
            return empirical_bayes.background(total_v, std_v), 0
        return prior.words(self.lists[listed - 1].means(prior.total_of(total_v, std_v)), total_v, std_v), listed

    def _alike(self, s: Estimate, q: Topics, b_v: Floats | None, listed: int) -> Topics:
        """Return topics that all are the word probabilities, each with an equal share of all words."""
        assert b_v is not None
        words_v, std = self._word_totals(s)
        size = self.statistic_weight * prior.total_of(words_v, np.full(self.n_terms, std)) / self.n_components
        new = self.topics(np.repeat(np.maximum(size * b_v, _TINY)[:, None], self.n_components, axis=1), b_v)
        new = replace(new, is_one=True, listed=listed, gain=q.gain, gain_std=q.gain_std)
        return self._with_releases(s, replace(new, sum_vk=q.sum_vk, sum_std_v=q.sum_std_v))

    def _one(self, s: Estimate, q: Topics) -> Topics:
        """One topic, by the first release of word totals and by those since the decision for it."""
        x_vk, std = s.noisy_after_midway("counts")
        sd_v = np.full(self.n_terms, std)
        scale = self._words_as_counts
        new = self._alike(s, q, *self._word_probabilities(s, x_vk[:, 0] / scale, sd_v / scale))
        return replace(new, sum_vk=x_vk, sum_std_v=sd_v)

    def _summed(self, s: Estimate, q: Topics) -> Topics:
        """λ = η + statistic_weight · the statistic, read from its noisy estimate; α by its released sizes."""
        noise_std = s.noise_std("counts")
        x_vk, sd_v = s.noisy("counts"), noise_std / q.word_weight_v
        x_vk /= q.word_weight_v[:, None]
        # So far t of J releases are averaged. The noise at the end of the plan decides for all steps.
        before = self.release_word_totals + ("gain" in s.names)
        share = 1.0 if s.receipt is None else min((s.receipt.step + 1 - before) / self.n_steps, 1.0)
        free = self.signal(_counted(s), noise_std * math.sqrt(share)) >= self.detectable
        b_v, listed = q.background_v, q.listed
        if self.release_word_totals:
            b_v, listed = self._word_probabilities(s, x_vk.sum(axis=1), sd_v * math.sqrt(self.n_components))
            size_k = prior.sizes(np.broadcast_to(b_v[:, None], x_vk.shape), x_vk, sd_v)
            s_vk = empirical_bayes.around(x_vk, sd_v, (b_v, size_k), free=free)
        else:
            size_k = x_vk.sum(axis=0)
            s_vk = empirical_bayes.estimated_prior(x_vk, sd_v, free=free)
        s_vk *= self.statistic_weight
        s_vk += self.topic_word_prior
        new = self.topics(s_vk, b_v, q.word_weight_v, self._next_alpha(size_k))
        return replace(new, sum_vk=x_vk, sum_std_v=sd_v, gain=q.gain, gain_std=q.gain_std, listed=listed)

    def _read_around(self, s: Estimate) -> Topics | None:
        """Return topics around the known ones, by the word totals and the released counts; None: none are known."""
        around = self.around
        if around is None:
            return None
        words_v, std = self._word_totals(s)
        c_k = around.usage(words_v, std)
        b_v = prior.words(around.topics_vk @ c_k, words_v, np.full(self.n_terms, std))
        t_vk = around.adapted(c_k, b_v)
        parts = [(s.noisy("counts"), s.noise_std("counts"))] if s.phase == "step" else []
        if self.previous is not None and self.previous.sum_vk is not None:
            parts.append((self.previous.sum_vk, self.previous.sum_std))
        if not parts:
            size_k = np.maximum(c_k, _LEAST_USAGE * c_k.mean())
            return self.topics(self.statistic_weight * size_k * t_vk, b_v, None, self._next_alpha(c_k))
        x_vk = np.add.reduce([part_vk for part_vk, _ in parts])
        sd_v = np.full(self.n_terms, math.hypot(*(std for _, std in parts)))
        size_k = prior.sizes(t_vk, x_vk, sd_v)
        s_vk = empirical_bayes.around(x_vk, sd_v, size_k * t_vk)
        new = self.topics(_LEAST_ETA + self.statistic_weight * s_vk, b_v, None, self._next_alpha(size_k))
        return replace(new, sum_vk=x_vk, sum_std_v=sd_v)

    def _word_totals(self, s: Estimate) -> tuple[Floats, float]:
        """Word totals and their noise std, those of earlier releases included."""
        words_v, std = s.noisy("words"), s.noise_std("words")
        if self.previous is None:
            return words_v, std
        return words_v + self.previous.words_v, math.hypot(std, self.previous.words_std)

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
        return self._bounds(_at_means(q) if topics == "mean" else q, batch, batch.counts)[0]

    def _bounds(self, q: Topics, batch: CountRows, counts: Floats) -> tuple[Floats, Bools]:
        """ELBO of each document with these counts, in nats, and whether the E-step does not take it for empty, (n,)."""
        _, ratio_j, norm_n, gamma_nk = self.local(q, batch, counts, max(self.max_iter, _MOST_ITERATIONS))
        row_j = np.repeat(np.arange(len(gamma_nk)), np.diff(batch.indptr))
        # The kernel's theta is exp ψ(γ_k); subtract ψ(Σ_k γ_k), which all topics have in common.
        p_j = np.divide(counts, ratio_j, out=np.ones_like(ratio_j), where=counts > 0)
        log_p = np.log(p_j) - digamma(gamma_nk.sum(axis=1))[row_j]
        words_n = np.bincount(row_j, weights=counts * log_p, minlength=len(gamma_nk))
        elog_theta_nk = dirichlet_expectedstats(gamma_nk)
        topics_n = ((q.alpha_k - gamma_nk) * elog_theta_nk).sum(axis=1) + dirichlet_logz(gamma_nk)
        topics_n -= dirichlet_logz(q.alpha_k)
        return np.asarray(words_n + topics_n), np.asarray(norm_n > 0)


def _counted(s: Estimate) -> float:
    """Released number of units; 0 if no release has counted them."""
    return 0.0 if s.counts is None else s.counts.included


def _at_means(q: Topics) -> Topics:
    """Q whose documents use the topics' means; a q without λ is returned as it is."""
    if not len(q.lambda_vk):
        return q
    mean_vk = q.lambda_vk / q.lambda_vk.sum(axis=0)
    return replace(q, beta_vk=mean_vk.astype(q.beta_vk.dtype))


# State of the topics, all of it public.


# So that a topic whose mode is nowhere is the same everywhere.
_TINY: Final = 1e-300


def met(
    lambda_vk: Floats, dtype: type[np.floating[Any]] = np.float64, *, means: bool, mode: bool
) -> NDArray[np.floating]:
    """Parameters of topics in the E-step, from their Dirichlet parameters, (V, K): exp⟨log β⟩, or a point.

    Args:
        lambda_vk: the parameters.
        dtype: of the result.
        means: whether it is the mean.
        mode: whether it is the mode, where every parameter is 1 or more, and else the mean.
    """
    if means or mode:
        point_vk = lambda_vk - float(mode and lambda_vk.min() >= 1) + _TINY
        return np.asarray((point_vk / point_vk.sum(axis=0)).astype(dtype))
    total_k, beta_vk = digamma(lambda_vk.sum(axis=0)), np.empty(lambda_vk.shape, dtype)
    for rows in row_blocks(lambda_vk.shape):
        beta_vk[rows] = np.exp(digamma(lambda_vk[rows]) - total_k)
    return beta_vk


@dataclass(frozen=True)
class EarlierTopics:
    """Releases of other people: linear sums, (V,) and (V, K), noise std of an entry, and units.

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

    Releases as they came: words_v, (V,), and sum_vk, (V, K), are linear estimates, un-projected and unweighted,
    with the noise std of their words' entries; num_units is the released number of units.

    is_one: whether all topics are the word probabilities, and sum_vk holds word totals as its first column. gain and
    gain_std: released gain of the topics over one topic, in nats per word, and its noise std; both 0 before its
    release. listed: number of the word list that the word totals agree with, the first being 1; 0 for none.
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
    is_one: bool = False
    gain: float = 0.0
    gain_std: Nonnegative = 0.0
    listed: int = 0


# Documents as bags of words, and how each is scaled to a common length only from its own words.


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
