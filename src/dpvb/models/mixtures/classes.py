"""What naive Bayes knows of its classes, and how it is read from the noisy sums of one release; all of it is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import PROBABILITIES, Nonnegative, Nonnegatives, Positives
from dpvb.models.mixtures import bins, categorical, moments, tuned, updates, words
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Sums


@dataclass(frozen=True)
class Classes:
    """What was learned of the classes; all of it is public.

    Attributes:
        number_k, number_std: rows of each class, those of the prior among them, and their noise.
        expected_kv, cell_noise_kv: parameters of the tables of categories, and noise variances of the probabilities.
        numbers, rates: posteriors of numbers and counts.
        word_kw, word_noise_kw: probabilities of words, and their noise variances.
    """

    number_k: Positives
    number_std: Nonnegative
    expected_kv: Positives
    cell_noise_kv: Nonnegatives
    numbers: moments.Numbers
    rates: moments.Rates
    word_kw: Annotated[Floats, PROBABILITIES]
    word_noise_kw: Nonnegatives


@dataclass(frozen=True)
class Released:
    """Noisy sums of labels, of categories, of moments and of words in each class, and the noise of each."""

    count_k: Floats
    cell_kv: Floats
    moment_kf: Floats
    word_kw: Floats
    count_std: float
    cell_std: float
    moment_std: float
    word_std: float


def read(
    new: Released, columns: Columns, sizes: Sequence[int], num_bins: int, prior: float, *, lengths: bool
) -> Classes:
    """Posteriors from noisy sums.

    Args:
        new: what was released.
        columns: what is declared of the columns.
        sizes: categories of each column that has any.
        num_bins: bins of each number, the last of these; 0: numbers have moments.
        prior: rows that each prior counts for, positive.
        lengths: see `words.read`.
    """
    number_k, std = updates.numbers(
        Sums(new.count_k, new.cell_kv, new.count_std, new.cell_std, 1.0, 1), Columns(sizes=tuple(sizes))
    )
    row_k = np.maximum(number_k, tuned.LEAST_ROWS * std)
    cell_kv, std_v = new.cell_kv, np.full(sum(sizes), new.cell_std)
    for own in categorical.starts(sizes)[len(sizes) - columns.numbers :] if num_bins else []:
        together = bins.coarser(float(row_k.mean()), new.cell_std, num_bins)
        cell_kv = bins.merged(cell_kv, own.start, num_bins, together)
        std_v[own.start : own.start + num_bins] /= math.sqrt(together)
    base_v = categorical.marginals(cell_kv.sum(axis=0), new.cell_std * math.sqrt(len(row_k)), sizes)
    noise_kv = categorical.shares(cell_kv, row_k, base_v, std_v, sizes)
    noise_kv *= (std_v / np.maximum(row_k, 1.0)[:, None]) ** 2
    gaussians = 0 if num_bins else columns.numbers
    # Rows that have a number: of one that may be missing, its own category counts them.
    there_kd = np.repeat(row_k[:, None], gaussians, axis=1)
    gaps = columns.gaps if gaussians else ()
    for place, own in zip(gaps, categorical.starts(sizes)[len(sizes) - len(gaps) :], strict=True):
        there_kd[:, place] = np.maximum(new.cell_kv[:, own.start], 0.0)
    first_kd, second_kd, count_kp = np.split(new.moment_kf, [gaussians, 2 * gaussians], axis=1)
    most_p, total_k1 = columns.most_p, row_k[:, None] + 2 * prior
    present_kw = words.read(new.word_kw, row_k + prior, new.word_std, lengths=lengths)
    return Classes(
        row_k + prior,
        std,
        categorical.drawn(cell_kv, row_k, base_v, std_v, sizes) + prior,
        noise_kv,
        moments.numbers(first_kd, second_kd, there_kd, new.moment_std, prior),
        moments.rates(count_kp * most_p, row_k, new.moment_std * most_p, most_p, prior),
        (np.minimum(present_kw, row_k[:, None]) + prior) / total_k1,
        np.minimum((new.word_std / total_k1) ** 2, 0.25) * np.ones_like(new.word_kw),
    )
