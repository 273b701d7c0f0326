"""Topics around those of a public or an earlier model: which of them are used, by which words, and how much is read.

=====================  =======================================================================
docs/theory/topics.md  code
=====================  =======================================================================
P_vk, u_k              `TopicPrior`: topics whose columns sum to 1, and their usual shares
t_v, σ, τ              words_v, std: the first release, word totals; total: their sum
c_k                    `TopicPrior.usage`: how many words of each topic there are
z_v                    `of_both`: word totals by the first release and by the sums over topics
b_v                    `words`: word totals, read around P c, or around a list of words
T_vk                   `TopicPrior.adapted`: the topics that the later releases start from
ĉ_k                    `sizes`: what was released of each topic
=====================  =======================================================================

All of it is post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpvb.core.blocks import row_blocks
from dpvb.guards.arrays import Floats
from dpvb.models import empirical_bayes

# Tuned by hand; benchmark `topics` shows what they do.
# Reweightings in the regression of word totals on the prior's topics.
_ROUNDS = 15
# Sweeps of coordinate descent in each reweighting.
_SWEEPS = 30
# Standard deviation of a word total about the prior's, as a share of it.
_MISFIT = 0.7
# Standard deviation of a usage about the usual one, as a multiple of it ...
_USUAL = 2.0
# ... in addition to this multiple of the total over K.
_EVEN = 0.2
# Least probability of a word, over the prior's.
_LEAST_WORD = 1e-3
# Part of the word totals' prior that is spread evenly: a list may lack words that documents use, which would be
# outliers that decide between lists.
_EVENLY = 0.05
# Least size of a topic, over the mean size.
_LEAST_SIZE = 0.02
# Least standard deviation of the sizes of topics, over their mean.
_LEAST_SPREAD = 0.3


@dataclass(frozen=True)
class TopicPrior:
    """Public or earlier topics.

    Attributes:
        topics_vk: P, positive, columns sum to 1; one column: word frequencies.
        usage_k: u, positive, sums to 1.
    """

    topics_vk: Floats
    usage_k: Floats

    def usage(self, words_v: Floats, std: float) -> Floats:
        """C (K,), nonnegative: minimises the weighted squares of t - P c, held to the usual shares."""
        p_vk, number = self.topics_vk, len(self.usage_k)
        total = total_of(words_v, np.full(len(words_v), std))
        usual_k = total * self.usage_k
        held_k = 1.0 / (_USUAL * usual_k + _EVEN * total / number) ** 2
        c_k = usual_k.copy()
        for _ in range(_ROUNDS):
            w_v = 1.0 / (std**2 + (_MISFIT * (p_vk @ c_k)) ** 2)
            a_kk = (p_vk * w_v[:, None]).T @ p_vk + np.diag(held_k)
            right_k = p_vk.T @ (w_v * words_v) + held_k * usual_k
            for _ in range(_SWEEPS):
                for k in range(number):
                    c_k[k] = max(c_k[k] + (right_k[k] - a_kk[k] @ c_k) / a_kk[k, k], 0.0)
            if not c_k.sum() > 0:
                return usual_k
        return c_k

    def adapted(self, c_k: Floats, b_v: Floats) -> Floats:
        """T (V, K): the prior's topics, with words as frequent as they are here; columns sum to 1."""
        t_vk = self.topics_vk * (b_v / (self.topics_vk @ c_k))[:, None]
        return np.asarray(t_vk / t_vk.sum(axis=0))


@dataclass(frozen=True)
class WordList:
    """Words with public frequencies.

    Attributes:
        name: in words.
        frequency_v: of the words of the vocabulary, nonnegative, some of them positive.
    """

    name: str
    frequency_v: Floats

    def means(self, total: float) -> Floats:
        """Prior means (V,), positive, of word totals with this sum."""
        share_v = self.frequency_v / self.frequency_v.sum()
        return np.asarray(total * ((1.0 - _EVENLY) * share_v + _EVENLY / len(share_v)))


def of_both(words_v: Floats, std: float, y_v: Floats, y_std_v: Floats) -> tuple[Floats, Floats]:
    """Word totals by the first release and a later one of another scale, and their noise std, both (V,).

    Each is weighted by its precision, on the scale of the first release. The later one is ignored if its sum is not
    positive.

    Args:
        words_v, std: the first release, with the noise std of an entry.
        y_v, y_std_v: the later one, as the sums over topics, (V,).
    """
    ratio = float(y_v.sum()) / total_of(words_v, np.full(len(words_v), std))
    if not (std > 0 and ratio > 0 and (y_std_v > 0).all()):
        return words_v, np.full(len(words_v), std)
    precision_v = 1.0 / std**2 + (ratio / y_std_v) ** 2
    return (words_v / std**2 + ratio * y_v / y_std_v**2) / precision_v, precision_v**-0.5


def chosen(lists: Sequence[WordList], words_v: Floats, std_v: Floats) -> int:
    """Return the number of the list around which word totals are most likely, the first being 1; 0: even means."""
    if not lists or not (std_v > 0).all():
        return 0
    total = total_of(words_v, std_v)
    means = [np.full(len(words_v), total / len(words_v)), *(words_of.means(total) for words_of in lists)]
    return int(np.argmax([empirical_bayes.evidence(words_v, std_v, mean_v) for mean_v in means]))


def words(mean_v: Floats, words_v: Floats, std_v: Floats) -> Floats:
    """B (V,), positive, sums to 1: word totals, read around positive prior means."""
    b_v = empirical_bayes.around(words_v[:, None], std_v, mean_v[:, None])[:, 0]
    b_v = np.maximum(b_v, _LEAST_WORD * mean_v)
    return np.asarray(b_v / b_v.sum())


def sizes(t_vk: Floats, x_vk: Floats, sd_v: Floats) -> Floats:
    """ĉ (K,), positive: projections of the released sums on their topics, shrunk to their mean."""
    variance_v = sd_v**2 if (sd_v > 0).all() else np.ones(len(x_vk))
    energy_k, raw_k = np.empty((2, 0, x_vk.shape[1]))
    for rows in row_blocks(x_vk.shape):
        weighted_vk = t_vk[rows] / variance_v[rows, None]
        # One row after the other, as in a sum over all rows at once.
        energy_k = np.vstack([energy_k, weighted_vk * t_vk[rows]]).sum(axis=0, keepdims=True)
        raw_k = np.vstack([raw_k, weighted_vk * x_vk[rows]]).sum(axis=0, keepdims=True)
    energy_k, raw_k = energy_k[0], raw_k[0] / energy_k[0]
    noise_k = 1.0 / energy_k if (sd_v > 0).all() else np.zeros_like(energy_k)
    mean = max(float(raw_k.mean()), float(np.sqrt(noise_k.mean() / len(raw_k))), 1e-150)
    # The square of the least mean is above 0, so that the factor of shrinkage is a number where nothing was counted.
    spread = max(float(raw_k.var() - noise_k.mean()), (_LEAST_SPREAD * mean) ** 2)
    return np.asarray(np.maximum(mean + spread / (spread + noise_k) * (raw_k - mean), _LEAST_SIZE * mean))


def total_of(words_v: Floats, std_v: Floats) -> float:
    """Sum of word totals, at least its noise, positive."""
    return max(float(words_v.sum()), float(np.linalg.norm(std_v)), 1e-250)
