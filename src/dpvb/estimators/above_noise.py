"""Which topics stand above the noise: what public facts let one expect, and what a fit to no topics at all shows.

Nothing here reads private data. Noise shapes topics in the first steps, and documents follow these topics later, so
that noise alone makes sums that no chi-square law knows. The yardstick is therefore the same plan on documents that are
drawn from the released word frequencies alone: there all topics are noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from dpvb.core import loop
from dpvb.core.plan import Plan
from dpvb.core.schedule import StepSize
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.errors import ParameterError
from dpvb.models.topics import lda
from dpvb.models.topics.lda import detectable_signal, topic_signal
from dpvb.results.forecast import Forecast

# Tuned by hand; benchmark `topics` shows what they do.
_LENGTH = 60  # words of a document that is drawn
_MARGIN = 1.25  # over the largest deviation where there are no topics
# Parts of the detectable signal: below the one no topic can stand out; above the other the test waits to be asked for.
_HOPELESS, PLENTY = 1 / 8, 3.0
# Standard deviation of the logarithms of topics' sizes.
_SIZES = 0.5


@dataclass(frozen=True)
class Signal:
    """What public facts say of topics and their noise.

    Attributes:
        model: the topic model.
        num_units: number of documents or persons: a public one, or a released one.
        over_noise: norm of a topic's expected sum off the background, over the noise std of an entry.
        detectable: the same from which on a topic stands above the noise.
    """

    model: lda.TopicModel
    num_units: float
    over_noise: float
    detectable: float


def signal(model: lda.TopicModel, plan: Plan, rho: StepSize, num_units: float) -> Signal:
    """The signal of so many units under a calibrated plan."""
    found = topic_signal(model, num_units, final_std(plan, rho))
    return Signal(model, num_units, found, detectable_signal(model))


def of_topics(found: Signal, unit: str) -> Forecast:
    """How many topics stand above the noise, where sizes of topics differ as they usually do."""
    strength, number = found.over_noise / found.detectable, found.model.n_components
    above = number * (float(ndtr(math.log(strength) / _SIZES)) if 0 < strength < math.inf else float(strength > 0))
    few = "none" if strength < 1 / 3 else "few" if strength < 1 else "most"
    return Forecast(
        num_units=found.num_units,
        unit=unit,
        facts=f"{found.model.n_terms:,} words, {number} topics",
        measure="topics above the noise",
        values=(("topics above the noise", round(above, 1)),),
        expected=f"{few} of {number} topics above the noise",
        strength=strength,
        then="most",
        size="topics",
        parts=number,
        affordable=number * strength,
    )


def final_std(plan: Plan, rho: StepSize) -> float:
    """Noise std of an entry of the topics' sums at the end of a plan; see `core.estimate`."""
    variance = mass = 0.0
    for t, release in enumerate(plan, start=1):
        if "counts" in release.blocks:
            fresh = release.noise_std("counts") / release.mechanism.sampler.sampling_prob
            variance = rho(t) ** 2 * fresh**2 + (1 - rho(t)) ** 2 * variance
            mass = rho(t) + (1 - rho(t)) * mass
    return math.sqrt(variance) / mass


def above(
    model: lda.TopicModel, q: lda.Topics, plan: Plan, rho: StepSize, projection: Any, rng: np.random.Generator
) -> Bools:
    """Which topics deviate more from the background than any that the same plan finds where there are no topics, (K,).

    Args:
        model, q: a fit, with what was released.
        plan: its releases; the noise may be relative.
        rho, projection: as in the fit.
        rng: of the documents that are drawn.
    """
    if q.sum_vk is None or q.sum_std_v is None:
        raise ParameterError("above_noise_ must be asked of a model whose file holds its sums: fit the model again.")
    if not (std := noise_std(q)) > 0:
        return np.ones(model.n_components, dtype=bool)
    if topic_signal(model, q.num_units, std) < _HOPELESS * detectable_signal(model):
        return np.zeros(model.n_components, dtype=bool)
    plan = plan.scaled(std / final_std(plan, rho))
    wall = Wall(_without_topics(q, max(round(q.num_units), 1), plan.unit, rng), plan)
    null, _ = loop.fit(model, wall, plan, rho=rho, rng=rng, projection=projection)
    return np.asarray(deviations(model, q) > _MARGIN * deviations(model, null).max())


def noise_std(q: lda.Topics) -> float:
    """Noise std of an entry of what was released of the topics; 0 where nothing was."""
    return 0.0 if q.sum_std_v is None else float(q.sum_std_v[0] * q.word_weight_v[0])


def deviations(model: lda.TopicModel, q: lda.Topics) -> Floats:
    """Energy of each topic's released sum off the background, over its part in the background, (K,).

    Both are in units of the noise; energy is less what noise is expected to add. Where there are no topics, the energy
    of what documents followed grows with the sum's size: the ratio of both is alike for large sums and small ones.
    """
    assert q.sum_vk is not None
    assert q.sum_std_v is not None
    y_vk, b_v = q.sum_vk / q.sum_std_v[:, None], _background(q) / q.sum_std_v
    size_k = b_v @ y_vk / (b_v @ b_v)
    energy_k = ((y_vk - np.outer(b_v, size_k)) ** 2).sum(axis=0) - (len(b_v) - 1)
    return np.asarray(energy_k / np.maximum(size_k * np.linalg.norm(b_v), detectable_signal(model)))


def _background(q: lda.Topics) -> Floats:
    """Word probabilities: those that were released first, or those of all topics together."""
    if q.background_v is not None:
        return q.background_v
    row_v = np.maximum(q.lambda_vk.sum(axis=1), 1e-300)
    return np.asarray(row_v / row_v.sum())


def _without_topics(q: lda.Topics, number: int, unit: str, rng: np.random.Generator) -> BagOfWords:
    """So many documents, or persons of one document, of words drawn independently by their released frequencies."""
    word_j = np.searchsorted(np.cumsum(_background(q))[:-1], rng.random(number * _LENGTH), side="right")
    row_j = np.repeat(np.arange(number), _LENGTH)
    counts = sparse.coo_array((np.ones(len(word_j)), (row_j, word_j)), shape=(number, len(q.lambda_vk))).tocsr()
    return BagOfWords(counts, group=np.arange(number) if unit == "person" else None)
