"""What is expected of released windows of hidden states, and its derivatives by the laws.

===================  ==============================================================================
method               code
===================  ==============================================================================
s_i, r_i             `Laws.start_k`, `first_k`: first states of starts and of windows, as shares of all
A_ij, B_ia           `step_kk`, `shown_kv`: laws of steps, and of what states show
κ_abc                `Read.kept`: what a clip leaves of a window
μ_abc                κ_abc Σ_ijk r_i B_ia A_ij B_jb A_jk B_kc;   μ_ab = Σ_ij s_i B_ia A_ij B_jb
θ                    free entries: s, r, and directions in which rows of A and of B keep their sums
===================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats


class Laws(NamedTuple):
    """Shares of first states (K,), of starts and of windows, steps (K, K) and what states show (K, V)."""

    start_k: Floats
    first_k: Floats
    step_kk: Floats
    shown_kv: Floats

    def moved(self, theta: Floats) -> Laws:
        """The laws a step further, of (P,) entries."""
        k, v = self.shown_kv.shape
        start_k, first_k, step, shown = np.split(theta, np.cumsum([k, k, k * (k - 1)]))
        step_kk, shown_kv = step.reshape(k, k - 1) @ free(k).T, shown.reshape(k, v - 1) @ free(v).T
        return Laws(*(law + change for law, change in zip(self, (start_k, first_k, step_kk, shown_kv), strict=True)))


class Cells(NamedTuple):
    """Some released numbers: what is expected of them, its derivatives, (cells, P), and the numbers themselves."""

    mean: Floats
    slope: Floats
    number: Floats
    variance: Floats


class Read(NamedTuple):
    """Released numbers, one after another: those of starts, (V, V), then windows, (V, V, V), as the clip left them."""

    number: Floats
    variance: Floats
    kept: Floats
    scale: Floats


def cells(laws: Laws, read: Read) -> Iterator[Cells]:
    """All released numbers in the order of `Read`: those of starts, then windows of each first symbol."""
    v = laws.shown_kv.shape[1]
    start_k, first_k, step_kk, shown_kv = laws
    every_vv = np.eye(v)
    ahead_kv = step_kk @ shown_kv
    back_bcj = np.einsum("jb,jc->bcj", shown_kv, ahead_kv)
    behind_bci = back_bcj @ step_kk.T
    begun_kv = start_k[:, None] * shown_kv
    on_step = np.einsum("ia,jb->abij", begun_kv, shown_kv)
    on_shown = np.einsum("av,k,kb->abkv", every_vv, start_k, ahead_kv)
    on_shown += np.einsum("ak,bv->abkv", begun_kv.T @ step_kk, every_vv)
    on_start = np.einsum("ia,ib->abi", shown_kv, ahead_kv)
    yield _joined(read, 0, (begun_kv.T @ ahead_kv, on_start, 0.0 * on_start, on_step, on_shown))
    for a in range(v):
        front_k = first_k * shown_kv[:, a]
        middle_k = front_k @ step_kk
        middle_bj = middle_k * shown_kv.T
        last_bk = middle_bj @ step_kk
        on_first = shown_kv[:, a] * behind_bci
        on_step = np.einsum("i,bcj->bcij", front_k, back_bcj) + np.einsum("bi,jc->bcij", middle_bj, shown_kv)
        on_shown = np.einsum("v,k,bck->bckv", every_vv[a], first_k, behind_bci)
        on_shown += np.einsum("bv,k,kc->bckv", every_vv, middle_k, ahead_kv)
        on_shown += np.einsum("cv,bk->bckv", every_vv, last_bk)
        yield _joined(read, a + 1, (last_bk @ shown_kv, 0.0 * on_first, on_first, on_step, on_shown))


def _joined(read: Read, table: int, parts: tuple[Floats, ...]) -> Cells:
    """The cells of a (V, V) table of released numbers, from what is expected of a share, and its derivatives."""
    mean, on_start, on_first, on_step, on_shown = parts
    place = slice(table * mean.size, (table + 1) * mean.size)
    size = read.kept[place] * read.scale[place]
    slopes = [on_start, on_first, on_step @ free(on_step.shape[-1]), on_shown @ free(on_shown.shape[-1])]
    slope = size[:, None] * np.concatenate([one.reshape(len(size), -1) for one in slopes], axis=1)
    return Cells(size * mean.ravel(), slope, read.number[place], read.variance[place])


def free(size: int) -> Floats:
    """Directions in which a law of so many entries keeps its sum, orthonormal, (size, size - 1)."""
    return np.linalg.svd(np.full((1, size), 1.0))[2][1:].T
