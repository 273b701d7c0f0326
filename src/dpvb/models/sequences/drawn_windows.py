"""People of nobody, drawn from a linear dynamical system: how their moments of windows vary, and what the clip takes.

A person's moments are means over windows, clipped to C. Both how much they vary among people and how much the clip
shortens depend on how many windows a person has, of which a histogram was released. All of it is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import kalman
from dpvb.models.sequences.kalman import LinearSystem

# People who are drawn, entries of all their moments, and points of the longest sequence.
_PEOPLE, _ENTRIES, _LONGEST = 2000, 2**24, 128
# Counts below so many deviations of the noise are none. A length stands for those up to twice as long.
_SEEN, _WITHIN = 2.0, 1.4


def places(length_n: Ints, window: int, longest: int) -> Ints:
    """Place of each sequence in the histogram, by how many windows it has; -1 for none."""
    number_n = np.minimum(length_n, longest) - window + 1
    return np.where(number_n < 1, -1, np.log2(np.maximum(number_n, 1)).astype(np.int64))


def num_places(window: int, longest: int) -> int:
    """How many lengths are told apart."""
    return int(places(np.array([longest]), window, longest)[0]) + 1


def shares(counts_l: Floats, std: float) -> Floats:
    """Shares of the lengths, from noisy counts; the shortest where noise leaves nothing."""
    seen_l = np.where(counts_l > _SEEN * std, counts_l, 0.0)
    if not seen_l.sum() > 0:
        seen_l[0] = 1.0
    return np.asarray(seen_l / seen_l.sum())


@dataclass(frozen=True)
class DrawnWindows:
    """Moments of drawn people in the model's units.

    Attributes:
        clipped_bne: what each person adds to each block, (B, n, (E + 1)²).
        taken_be: what the clip adds to a mean of them, (B, (E + 1)²), mostly negative.
    """

    clipped_bne: list[Floats]
    taken_be: list[Floats]

    def covariance(self, score_bpe: Sequence[Floats]) -> Floats:
        """Covariance of one person's scores, (P, P); where all windows are first ones there is one block of scores."""
        both_np = sum(one @ score.T for one, score in zip(self.clipped_bne, score_bpe, strict=False))
        return np.atleast_2d(np.cov(both_np, rowvar=False))


def drawn(
    system: LinearSystem, share_l: Floats, window: int, unit_e: Floats, clip: float, rng: np.random.Generator
) -> DrawnWindows:
    """People of a system.

    Args:
        system: of numbers (x - m)/s.
        share_l: shares of the lengths, as `shares` has them.
        window: W.
        unit_e: what one is of every number of a window, and behind them of the constant.
        clip: C, in the model's units.
        rng: public randomness.
    """
    size = len(unit_e)
    people = max(50, min(_PEOPLE, _ENTRIES // size**2))
    clipped: tuple[list[Floats], list[Floats]] = ([], [])
    taken = [np.zeros(size**2), np.zeros(size**2)]
    for place, number in enumerate(rng.multinomial(people, share_l)):
        windows = min(int(_WITHIN * 2**place), max(_LONGEST - window, 0) + 1)
        step = max(1, _ENTRIES // (windows * size))
        for begin in range(0, number, step):
            x_ntd = kalman.drawn(system, min(step, number - begin), windows + window - 1, rng)
            y_nte = _windows(x_ntd, window) / unit_e
            own = y_nte[:, :1], y_nte
            for made, lost, one_nte in zip(clipped, taken, own, strict=True):
                plain_ne = (np.swapaxes(one_nte, 1, 2) @ one_nte).reshape(len(x_ntd), -1) / one_nte.shape[1]
                left_n = np.minimum(1.0, clip / np.linalg.norm(plain_ne, axis=1))
                made.append(plain_ne * left_n[:, None])
                lost += ((left_n - 1.0)[:, None] * plain_ne).sum(axis=0) / people
    starts, pooled = (np.concatenate(made) for made in clipped)
    return DrawnWindows([pooled, starts], taken[::-1])


def _windows(x_ntd: Floats, window: int) -> Floats:
    """All windows of sequences with a one behind each, (n, windows, W D + 1)."""
    number, points, d = x_ntd.shape
    made = np.ones((number, points - window + 1, window * d + 1))
    for t in range(points - window + 1):
        made[:, t, :-1] = x_ntd[:, t : t + window].reshape(number, -1)
    return made
