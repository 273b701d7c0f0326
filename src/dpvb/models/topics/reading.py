"""What an M-step makes of released sums: sizes of topics, and topics read from noise; see docs/method.md, M5 and M7."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.guards.arrays import Floats
from dpvb.models import empirical_bayes
from dpvb.models.topics import prior
from dpvb.models.topics.posterior import Topics
from dpvb.models.topics.prior import Prior

if TYPE_CHECKING:
    from dpvb.models.topics.lda import LDA

# Tuned by hand; benchmarks `wikipedia` and `topics` show what they do: run them before and after a change.
_KAPPA = 0.2  # norm of the mean of a topic's clipped statistics off the background, over the bound
_SMOOTHING = 0.2  # added to word probabilities before words are weighted by them, as a multiple of 1/V
_LEAST_SIZE = 0.05  # of a topic in α, over the mean one
_LEAST_USAGE, _LEAST_ETA = 0.02, 0.002  # around a prior: of a topic, over the mean one; η


def signal(model: LDA, num_units: float, noise_std: float) -> float:
    """Expected norm of a topic's sum off the background, over the noise std of an entry."""
    expected = max(num_units, 0.0) * _KAPPA * model.blocks["counts"].bound / model.n_components
    return expected / noise_std if noise_std > 0 else math.inf


def detectable(model: LDA) -> float:
    """The signal from which a topic stands above the noise: its square is ten deviations of V squares of noise."""
    return math.sqrt(10 * math.sqrt(2 * model.n_terms))


def released(model: LDA, s: Estimate, new: Topics) -> Topics:
    """A q that keeps what was released, as it came."""
    num_units = (0.0 if s.counts is None else s.counts.counted) + (model.earlier.num_units if model.earlier else 0.0)
    words_v, words_std = _words(model, s) if model.background else (None, 0.0)
    return replace(new, words_v=words_v, words_std=words_std, num_units=num_units)


def start(model: LDA, s: Estimate, q: Topics) -> Topics:
    """Random topics around the word probabilities, and the weights of the words."""
    read = empirical_bayes.background if model.around is None else partial(prior.frequencies, model.around)
    background_v = read(*_words(model, s))
    smoothed_v = background_v + _SMOOTHING / model.n_terms
    word_weight_v = (smoothed_v / smoothed_v.mean()) ** -model.word_power
    # So large a mass makes exp⟨log β⟩ the mean of β.
    return model.topics(1e8 * background_v[:, None] * q.lambda_vk, background_v, word_weight_v)


def sums(model: LDA, s: Estimate, q: Topics) -> Topics:
    """λ = η + mass · the statistic, read from its noisy estimate; α by its released sizes."""
    noise_std, num_units = s.noise_std("counts"), 0.0 if s.counts is None else s.counts.counted
    x_vk, sd_v = s.read("counts") / q.word_weight_v[:, None], noise_std / q.word_weight_v
    read = empirical_bayes.READS[model.read if noise_std > 0 else "project"]
    if read is empirical_bayes.estimated_prior:
        # Of J releases that are averaged so far t were made; what is read at the end decides for all.
        share = 1.0 if s.receipt is None else min((s.receipt.step + (not model.background)) / model.num_steps, 1.0)
        free = signal(model, num_units, noise_std * math.sqrt(share)) >= detectable(model)
        read = partial(empirical_bayes.estimated_prior, free=free)
    lambda_vk = model.topic_word_prior + model.mass * read(x_vk, sd_v, q.background_v)
    new = model.topics(lambda_vk, q.background_v, q.word_weight_v, _alpha(model, x_vk.sum(axis=0)))
    return replace(new, sum_vk=x_vk, sum_std_v=sd_v)


def around(model: LDA, known: Prior, s: Estimate) -> Topics:
    """Topics around the known ones: by the word totals, and then by what was released of each."""
    words_v, std = _words(model, s)
    c_k = prior.usage(known, words_v, std)
    b_v = prior.words(known.topics_vk @ c_k, words_v, std)
    t_vk = prior.around(known, c_k, b_v)
    parts = [] if "counts" not in s.names else [(s.read("counts"), s.noise_std("counts"))]
    if model.earlier is not None and model.earlier.sum_vk is not None:
        parts.append((model.earlier.sum_vk, model.earlier.sum_std))
    if not parts:
        size_k = np.maximum(c_k, _LEAST_USAGE * c_k.mean())
        return model.topics(model.mass * size_k * t_vk, b_v, None, _alpha(model, c_k))
    x_vk = np.add.reduce([part_vk for part_vk, _ in parts])
    sd_v = np.full(model.n_terms, math.hypot(*(std for _, std in parts)))
    size_k = prior.sizes(t_vk, x_vk, sd_v)
    s_vk = empirical_bayes.around(x_vk, sd_v, size_k * t_vk) if sd_v[0] > 0 else np.maximum(x_vk, 0.0)
    new = model.topics(_LEAST_ETA + model.mass * s_vk, b_v, None, _alpha(model, size_k))
    return replace(new, sum_vk=x_vk, sum_std_v=sd_v)


def _words(model: LDA, s: Estimate) -> tuple[Floats, float]:
    """Word totals and their noise std, those of earlier releases included."""
    words_v, std = s.read("words"), s.noise_std("words")
    if model.earlier is None:
        return words_v, std
    return words_v + model.earlier.words_v, math.hypot(std, model.earlier.words_std)


def _alpha(model: LDA, size_k: Floats) -> Floats | None:
    """α of the next step: half of it even, half of it as the topics' released sizes, if none was given."""
    if model.doc_topic_prior is not None or not (mean := float(size_k.mean())) > 0:
        return None
    size_k = np.maximum(size_k, _LEAST_SIZE * mean)
    return np.asarray(0.5 / model.n_components + 0.5 * size_k / size_k.sum())
