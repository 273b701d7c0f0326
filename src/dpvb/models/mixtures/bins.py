"""Numbers as categories: public bins of equal width on [-1, 1], and one more for a number that is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.mixtures import tuned


def sizes(width: int, gaps: Sequence[int], bins: int) -> tuple[int, ...]:
    """Categories of each number: its bins, and a place for a missing one where it may be missing."""
    return tuple(bins + (place in gaps) for place in range(width))


def codes(x_nd: Floats, gaps: Sequence[int], bins: int) -> Ints:
    """The bin of each number, (n, d); a missing one is in the last place, or in the first where there is none."""
    lacks_nd = np.isnan(x_nd)
    code_nd = np.clip(np.floor((np.where(lacks_nd, 0.0, x_nd) + 1) / 2 * bins), 0, bins - 1).astype(np.int64)
    last_d = np.array([bins if place in gaps else 0 for place in range(x_nd.shape[1])], dtype=np.int64)
    return np.where(lacks_nd, last_d, code_nd)


def coarser(rows: float, std: float, bins: int) -> int:
    """How many neighbouring bins count as one, so that a class of so many rows stands above the noise of a bin."""
    together = 1
    while bins % (2 * together) == 0 and bins > 4 * together and rows * together**0.5 < tuned.CLEAR * std * bins:
        together *= 2
    return together


def merged(cell_kv: Floats, place: int, bins: int, together: int) -> Floats:
    """Counts of categories, those of neighbouring bins from a place on being their means, (k, V)."""
    mean_kb = cell_kv[:, place : place + bins].reshape(len(cell_kv), -1, together).mean(axis=2)
    made_kv = cell_kv.copy()
    made_kv[:, place : place + bins] = np.repeat(mean_kb, together, axis=1)
    return made_kv


def drawn(code_nd: Ints, bins: int, rng: np.random.Generator) -> Floats:
    """Numbers that are uniform in their bins, NaN where they are missing, (n, d)."""
    x_nd = -1 + 2 * (code_nd + rng.random(code_nd.shape)) / bins
    return np.where(code_nd < bins, x_nd, np.nan)
