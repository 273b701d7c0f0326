"""A linear dynamical system as one vector, whatever whose numbers may be; all of it is public.

States have variance 1 and no covariance in windows from everywhere, so that these numbers say the system up to a turn
of its states:

==============  =======================================================
part            numbers
==============  =======================================================
A               K², by rows
Q = F Fᵀ        the lower triangle of F
C, d            D K by rows, and D
log R           D
m               K: mean of the first state of a window from anywhere
m_0, P_0        K and a triangle as Q; none where all windows are first
==============  =======================================================
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences.gram_moments import floored
from dpvb.models.sequences.kalman import LinearSystem

# Names of covariances, which are held by their roots.
_ROOTS = ("step_noise_kk", "start_kk")


def parts(k: int, d: int, *, starts: bool) -> Iterator[tuple[str, slice]]:
    """Names of a system's parts and their places in its vector.

    Args:
        k, d: K and D.
        starts: whether first windows have a law of their own.
    """
    triangle = k * (k + 1) // 2
    sizes = {"step_kk": k * k, "step_noise_kk": triangle, "shown_dk": d * k, "shown_d": d, "noise_d": d, "pooled_k": k}
    sizes |= {"start_k": k, "start_kk": triangle} if starts else {}
    place = 0
    for name, size in sizes.items():
        yield name, slice(place, place + size)
        place += size


def length(k: int, d: int, *, starts: bool) -> int:
    """How many numbers a system has."""
    return sum(own.stop - own.start for _, own in parts(k, d, starts=starts))


def packed(system: LinearSystem, *, starts: bool) -> Floats:
    """The vector of a system whose states have variance 1 in windows from everywhere."""
    d, k = system.shown_dk.shape
    lower = np.tril_indices(k)

    def one(name: str) -> Floats:
        value = getattr(system, name)
        if name in _ROOTS:
            return np.asarray(np.linalg.cholesky(floored(value))[lower])
        return np.ravel(np.log(value) if name == "noise_d" else value)

    return np.concatenate([one(name) for name, _ in parts(k, d, starts=starts)])


def unpacked(vector_p: Floats, k: int, d: int, *, starts: bool) -> LinearSystem:
    """The system of a vector."""
    made = {name: vector_p[own] for name, own in parts(k, d, starts=starts)}
    for name in set(_ROOTS) & made.keys():
        root_kk = root(made[name], k)
        made[name] = root_kk @ root_kk.T
    made |= {"step_kk": made["step_kk"].reshape(k, k), "shown_dk": made["shown_dk"].reshape(d, k)}
    made |= {"noise_d": np.exp(made["noise_d"]), "pooled_kk": np.eye(k)}
    if not starts:
        made |= {"start_k": made["pooled_k"], "start_kk": made["pooled_kk"]}
    return LinearSystem(**made)


def root(lower_t: Floats, k: int) -> Floats:
    """The matrix of a lower triangle."""
    root_kk = np.zeros((k, k))
    root_kk[np.tril_indices(k)] = lower_t
    return root_kk


def root_slopes(lower_t: Floats, k: int) -> Floats:
    """Derivatives of F Fᵀ by the lower triangle of F, (t, K, K)."""
    root_kk, out_tkk = root(lower_t, k), np.zeros((len(lower_t), k, k))
    for place, (i, j) in enumerate(zip(*np.tril_indices(k), strict=True)):
        out_tkk[place, i] += root_kk[:, j]
        out_tkk[place, :, i] += root_kk[:, j]
    return out_tkk


def turns(vector_p: Floats, k: int, d: int, *, starts: bool) -> Floats:
    """Ways in which a system moves when two of its states are turned a little, (K (K - 1)/2, P)."""
    system, place = unpacked(vector_p, k, d, starts=starts), dict(parts(k, d, starts=starts))
    way_tp = np.zeros((k * (k - 1) // 2, len(vector_p)))
    for way_p, i, j in zip(way_tp, *np.triu_indices(k, 1), strict=True):
        turn_kk = np.zeros((k, k))
        turn_kk[i, j], turn_kk[j, i] = -1.0, 1.0
        for name, own in place.items():
            value = getattr(system, name)
            if name in _ROOTS:
                moved_kk, slope_tkk = turn_kk @ value, root_slopes(vector_p[own], k)
                moved_kk = moved_kk + moved_kk.T
                way_p[own] = np.linalg.lstsq(slope_tkk.reshape(-1, k * k).T, moved_kk.ravel(), rcond=None)[0]
            elif name == "step_kk":
                way_p[own] = (turn_kk @ value - value @ turn_kk).ravel()
            elif name == "shown_dk":
                way_p[own] = -(value @ turn_kk).ravel()
            elif name in ("pooled_k", "start_k"):
                way_p[own] = turn_kk @ value
    return way_tp
