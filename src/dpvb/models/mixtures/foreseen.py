"""How well naive Bayes will know its probabilities, from public numbers alone; unit: a row."""

from __future__ import annotations

import math

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import bins, tuned
from dpvb.models.mixtures.naive_bayes import NaiveBayes

# Share of a class's documents that hold a word that tells of it; part of the noise variance that a table is left with,
# as it is drawn to that of all classes; a typical probability over that of even ones. Benchmark `forecasts` chose them.
_WORD, _LEFT, _EVEN = 0.1, 0.5, 0.5


def probabilities(model: NaiveBayes, rows: float, cells: float, words: float) -> tuple[Floats, Floats, Floats]:
    """A typical probability of each column, its standard deviation, and that without bins brought together, (columns,).

    Args:
        model: with its columns; of documents a word stands for all.
        rows: expected number of rows of a class.
        cells, words: noise std of a number of rows in a table, and of a word.
    """
    if model.num_words:
        std = np.minimum(np.array([math.hypot(math.sqrt(_WORD * (1 - _WORD) / (rows + 1)), words / rows)]), 0.5)
        return np.array([_WORD]), std, std
    numbers = model.columns.numbers if model.num_bins else 0
    probability_j = _EVEN / np.array(model.sizes, dtype=np.float64)
    noise_j = np.full(len(probability_j), math.sqrt(_LEFT) * cells / rows)
    merged_j = noise_j.copy()
    if numbers:  # Neighbouring bins are brought together where noise demands.
        together = bins.coarser(max(rows, tuned.LEAST_ROWS * cells), cells, model.num_bins)
        merged_j[-numbers:] /= math.sqrt(together)
    sampled_j = np.sqrt(probability_j * (1 - probability_j) / (rows + 1))
    return probability_j, np.minimum(np.hypot(sampled_j, merged_j), 0.5), np.hypot(sampled_j, noise_j)
