"""Documents as bags of words, and how each is brought to a common length from its own words alone."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats, Ints

LENGTH_RULES = ("truncate", "rescale", "resample")


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


def to_length(batch: Documents, length: float, rule: str) -> Floats:
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


def _resampled(batch: Documents, length_n: Floats, length: int) -> Floats:
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
