"""People of nobody, drawn from a linear dynamical system: how their moments of windows vary, and what the clip takes.

A person's moments are means over windows, clipped to C. Both how much they vary among people and how much the clip
shortens depend on how many windows a person has, of which a histogram was released. All of it is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences.kalman import LinearSystem

# People who are drawn, entries of all their moments, and points of the longest sequence.
_PEOPLE, _ENTRIES, _LONGEST = 2000, 2**24, 128
# Noise of a drawn column is at least such a part of all variance, so that a root exists.
_LEAST = 1e-9
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


def drawn_smoothly(system: LinearSystem, number: int, length: int, rng: np.random.Generator) -> Floats:
    """Points of people, (n, T, D), from what each point adds to those before it.

    The same draws move as little as the system does. Neither the basis of the states nor the order of eigenvectors
    matters to them.
    """
    mean_nk, cov_kk = np.tile(system.start_k, (number, 1)), system.start_kk
    x_ntd = rng.standard_normal((number, length, len(system.shown_d)))
    for t in range(length):
        both_kd = cov_kk @ system.shown_dk.T
        shown_dd = system.shown_dk @ both_kd
        noise_d = system.noise_d + _LEAST * (np.diagonal(shown_dd) + system.noise_d).sum()
        root_dd = np.linalg.cholesky(shown_dd + np.diag(noise_d))
        gain_kd = np.linalg.solve(root_dd, both_kd.T).T
        own_nd = x_ntd[:, t].copy()
        x_ntd[:, t] = mean_nk @ system.shown_dk.T + system.shown_d + own_nd @ root_dd.T
        mean_nk = (mean_nk + own_nd @ gain_kd.T) @ system.step_kk.T
        cov_kk = system.step_kk @ (cov_kk - gain_kd @ gain_kd.T) @ system.step_kk.T + system.step_noise_kk
    return x_ntd


@dataclass(frozen=True)
class DrawnWindows:
    """Moments of drawn people in the model's units.

    Attributes:
        clipped_bne: what each person adds to each block, (B, n, (E + 1)²).
        lost_bne: what the clip adds to it, mostly negative.
    """

    clipped_bne: list[Floats]
    lost_bne: list[Floats]

    @property
    def taken_be(self) -> Floats:
        """What the clip adds to the mean of a block, (B, (E + 1)²)."""
        return np.stack([lost_ne.mean(axis=0) for lost_ne in self.lost_bne])

    def slopes(self, b: int, way_pee: Floats) -> Floats:
        """How what the clip adds moves as numbers of windows y move by a way times y, (P, (E + 1)²)."""
        clipped_ne, size = self.clipped_bne[b], way_pee.shape[1]
        plain_ne = clipped_ne - self.lost_bne[b]
        square_n = np.sum(plain_ne**2, axis=1)
        is_clipped_n = np.any(self.lost_bne[b] != 0.0, axis=1)
        plain_nee = plain_ne[is_clipped_n].reshape(-1, size, size)
        longer_pn = 2.0 * way_pee.reshape(len(way_pee), -1) @ (plain_nee @ plain_nee).reshape(-1, size**2).T
        made_pe = -(longer_pn / square_n[is_clipped_n]) @ clipped_ne[is_clipped_n] / len(clipped_ne)
        moved_pee = way_pee @ self.lost_bne[b].mean(axis=0).reshape(size, size)
        return np.asarray(made_pe + (moved_pee + moved_pee.swapaxes(1, 2)).reshape(made_pe.shape))

    def left(self, unit: float) -> float:
        """The least that the clip leaves of a block on average, by the constants of windows."""
        return float(min(made_ne[:, -1].mean() for made_ne in self.clipped_bne)) * unit**2

    def covariance(self, score_bpe: Sequence[Floats], number: float) -> Floats:
        """Covariance of the scores of so many people, (P, P), and of what is put back, as few people were drawn."""
        blocks = range(len(score_bpe))  # one, where all windows are first ones
        both_np, lost_np = (sum(part[b] @ score_bpe[b].T for b in blocks) for part in (self.clipped_bne, self.lost_bne))
        drawn_pp = np.cov(lost_np, rowvar=False) * number**2 / len(self.lost_bne[0])
        return np.atleast_2d(np.cov(both_np, rowvar=False) * number + drawn_pp)


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
    lost: tuple[list[Floats], list[Floats]] = ([], [])
    for place, number in enumerate(rng.multinomial(people, share_l)):
        windows = min(int(_WITHIN * 2**place), max(_LONGEST - window, 0) + 1)
        step = max(1, _ENTRIES // (windows * size))
        for begin in range(0, number, step):
            x_ntd = drawn_smoothly(system, min(step, number - begin), windows + window - 1, rng)
            y_nte = _windows(x_ntd, window) / unit_e
            own = y_nte[:, :1], y_nte
            for made, gone, one_nte in zip(clipped, lost, own, strict=True):
                plain_ne = (np.swapaxes(one_nte, 1, 2) @ one_nte).reshape(len(x_ntd), -1) / one_nte.shape[1]
                left_n = np.minimum(1.0, clip / np.linalg.norm(plain_ne, axis=1))
                made.append(plain_ne * left_n[:, None])
                gone.append(made[-1] - plain_ne)
    return DrawnWindows(*([np.concatenate(part) for part in parts[::-1]] for parts in (clipped, lost)))


def _windows(x_ntd: Floats, window: int) -> Floats:
    """All windows of sequences with a one behind each, (n, windows, W D + 1)."""
    number, points, d = x_ntd.shape
    made = np.ones((number, points - window + 1, window * d + 1))
    for t in range(points - window + 1):
        made[:, t, :-1] = x_ntd[:, t : t + window].reshape(number, -1)
    return made
