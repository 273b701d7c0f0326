"""A linear dynamical system from second moments of windows: EM, and how the moments depend on the system.

y = (x_1 .. x_W) is a window of W points from anywhere in a sequence, S = Σ (y, 1)(y, 1)ᵀ. Given a system, the expected
states of a window are linear in y; so the whole E-step is a linear function of S, and iterations cost neither privacy
nor data. For sequences of W points S is a sufficient statistic of every linear system (equation 2 of
docs/theory/linear-dynamical.md).

================  ==================================================================================
symbol            code
================  ==================================================================================
⟨z⟩ = G y + g     `H` = (G, g), (W K, W D + 1)
Σ⟨z zᵀ⟩           H S Hᵀ + n V
Σ (y, 1)⟨z⟩ᵀ      S Hᵀ
================  ==================================================================================

The distribution of a window and its derivatives by all numbers of the system come from

    cov z_t+1 = A (cov z_t) Aᵀ + Q,   cov(z_s+1, z_t) = A cov(z_s, z_t),   mean x = C mean z + d.

The system is one vector there. States have variance 1 and no covariance in windows from everywhere, so that the vector
determines the system up to a rotation of its states:

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

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman
from dpvb.models.sequences.kalman import LinearSystem, floored

# Names of covariances, which are held by their roots.
_ROOTS = ("step_noise_kk", "start_kk")
# Starts have so much of a state's variance in each step, and so much of a number's mean variance in its noise. EM goes
# so far from each of them, and on from the best.
_STARTS, _FIRST_ROUNDS = ((0.3, 0.05), (1.0, 0.05), (0.05, 0.3)), 100
# convention: largest log variance that is drawn; its square is far below the largest float.
_LARGEST_LOG = 100.0
# Eigenvalues of moments are at least so much of the number of windows.
_LEAST_SHARE = 1e-9


def parts(k: int, d: int, *, starts: bool) -> Iterator[tuple[str, slice]]:
    """Names of a system's parts and their places in its vector.

    Args:
        k, d: K and D.
        starts: whether first windows have a distribution of their own.
    """
    triangle = k * (k + 1) // 2
    sizes = {"step_kk": k * k, "step_noise_kk": triangle, "shown_dk": d * k, "shown_d": d, "noise_d": d, "pooled_k": k}
    sizes |= {"start_k": k, "start_kk": triangle} if starts else {}
    place = 0
    for name, size in sizes.items():
        yield name, slice(place, place + size)
        place += size


def vector_length(k: int, d: int, *, starts: bool) -> int:
    """How many numbers a system has."""
    return sum(place.stop - place.start for _, place in parts(k, d, starts=starts))


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
    part_of = {name: vector_p[place] for name, place in parts(k, d, starts=starts)}
    for name in set(_ROOTS) & part_of.keys():
        root_kk = lower_root(part_of[name], k)
        part_of[name] = root_kk @ root_kk.T
    part_of |= {"step_kk": part_of["step_kk"].reshape(k, k), "shown_dk": part_of["shown_dk"].reshape(d, k)}
    # A draw of a posterior that hardly anything was measured of may have any logarithm.
    part_of |= {"noise_d": np.exp(np.minimum(part_of["noise_d"], _LARGEST_LOG)), "pooled_kk": np.eye(k)}
    if not starts:
        part_of |= {"start_k": part_of["pooled_k"], "start_kk": part_of["pooled_kk"]}
    return LinearSystem(**part_of)


def lower_root(lower_t: Floats, k: int) -> Floats:
    """The matrix of a lower triangle."""
    root_kk = np.zeros((k, k))
    root_kk[np.tril_indices(k)] = lower_t
    return root_kk


def root_slopes(lower_t: Floats, k: int) -> Floats:
    """Derivatives of F Fᵀ by the lower triangle of F, (t, K, K)."""
    root_kk, out_tkk = lower_root(lower_t, k), np.zeros((len(lower_t), k, k))
    for place, (i, j) in enumerate(zip(*np.tril_indices(k), strict=True)):
        out_tkk[place, i] += root_kk[:, j]
        out_tkk[place, :, i] += root_kk[:, j]
    return out_tkk


def rotations(vector_p: Floats, k: int, d: int, *, starts: bool) -> Floats:
    """Ways in which a system moves when two of its states are turned a little, (K (K - 1)/2, P)."""
    system, place = unpacked(vector_p, k, d, starts=starts), dict(parts(k, d, starts=starts))
    way_tp = np.zeros((k * (k - 1) // 2, len(vector_p)))
    for way_p, i, j in zip(way_tp, *np.triu_indices(k, 1), strict=True):
        turn_kk = np.zeros((k, k))
        turn_kk[i, j], turn_kk[j, i] = -1.0, 1.0
        for name, where in place.items():
            value = getattr(system, name)
            if name in _ROOTS:
                moved_kk, slope_tkk = turn_kk @ value, root_slopes(vector_p[where], k)
                moved_kk = moved_kk + moved_kk.T
                way_p[where] = np.linalg.lstsq(slope_tkk.reshape(-1, k * k).T, moved_kk.ravel(), rcond=None)[0]
            elif name == "step_kk":
                way_p[where] = (turn_kk @ value - value @ turn_kk).ravel()
            elif name == "shown_dk":
                way_p[where] = -(value @ turn_kk).ravel()
            elif name in ("pooled_k", "start_k"):
                way_p[where] = turn_kk @ value
    return way_tp


class ExpectedStates(NamedTuple):
    """Result of an E-step: of first states, of pairs of states, of states with observations, and n log p."""

    number: float
    first_k: Floats
    first_kk: Floats
    before_kk: Floats
    after_kk: Floats
    cross_kk: Floats
    state_ee: Floats
    seen_de: Floats
    square_d: Floats
    log: float


def law_of_windows(
    system: LinearSystem, first_k: Floats, first_kk: Floats, length: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Means and covariances of the states of a window, (W K), and of what is seen, (W D)."""
    k = len(first_k)
    mean_e, cov_ee = np.empty(length * k), np.empty((length * k, length * k))
    for t in range(length):
        block = slice(t * k, (t + 1) * k)
        mean_e[block], cov_ee[block, block] = first_k, first_kk
        for s in range(t + 1, length):
            ahead_kk = system.step_kk @ cov_ee[(s - 1) * k : s * k, block]
            cov_ee[s * k : (s + 1) * k, block], cov_ee[block, s * k : (s + 1) * k] = ahead_kk, ahead_kk.T
        first_k, first_kk = (
            system.step_kk @ first_k,
            system.step_kk @ first_kk @ system.step_kk.T + system.step_noise_kk,
        )
    shown = np.kron(np.eye(length), system.shown_dk)
    seen_ff = shown @ cov_ee @ shown.T + np.diag(np.tile(system.noise_d, length))
    return mean_e, cov_ee, shown @ mean_e + np.tile(system.shown_d, length), seen_ff


def expected_states(gram: Floats, system: LinearSystem, first_k: Floats, first_kk: Floats) -> ExpectedStates:
    """The E-step of windows whose first state has this distribution."""
    d, k = system.shown_dk.shape
    length, number = (len(gram) - 1) // d, float(gram[-1, -1])
    mean_e, cov_ee, seen_f, seen_ff = law_of_windows(system, first_k, first_kk, length)
    shown = np.kron(np.eye(length), system.shown_dk)
    gain_ef = np.linalg.solve(seen_ff, shown @ cov_ee).T
    h = np.column_stack([gain_ef, mean_e - gain_ef @ seen_f])
    both = h @ gram
    z = (both @ h.T + number * (cov_ee - gain_ef @ shown @ cov_ee)).reshape(length, k, length, k)
    at = np.arange(length)
    z_tkk, sum_tk = z[at, :, at], both[:, -1].reshape(length, k)
    seen_dk = both[:, :-1].reshape(length, k, length, d)[at, :, at].sum(axis=0).T
    state_ee = np.block([[z_tkk.sum(axis=0), sum_tk.sum(axis=0)[:, None]], [sum_tk.sum(axis=0), length * number]])
    seen_de = np.column_stack([seen_dk, gram[:-1, -1].reshape(length, d).sum(axis=0)])
    mean_k = sum_tk[0] / number
    centred = np.column_stack([np.eye(len(seen_f)), -seen_f])
    away = np.trace(np.linalg.solve(seen_ff, centred @ gram @ centred.T))
    log = -0.5 * (number * (np.linalg.slogdet(seen_ff)[1] + len(seen_f) * math.log(2 * math.pi)) + away)
    return ExpectedStates(
        number=number,
        first_k=mean_k,
        first_kk=floored(z_tkk[0] / number - np.outer(mean_k, mean_k)),
        before_kk=z_tkk[:-1].sum(axis=0),
        after_kk=z_tkk[1:].sum(axis=0),
        cross_kk=z[at[1:], :, at[:-1]].sum(axis=0),
        state_ee=state_ee,
        seen_de=seen_de,
        square_d=np.diagonal(gram)[:-1].reshape(length, d).sum(axis=0),
        log=float(log),
    )


class Slopes(NamedTuple):
    """Mean and covariance of what a window shows, (W D), and their derivatives by the P numbers of a system."""

    mean_f: Floats
    cov_ff: Floats
    mean_pf: Floats
    cov_pff: Floats


def slopes(vector_p: Floats, k: int, d: int, window: int, *, starts: bool, first: str) -> Slopes:
    """Return the distribution of windows whose first state has the distribution `first`, "pooled" or "start"."""
    system = unpacked(vector_p, k, d, starts=starts)
    place = dict(parts(k, d, starts=starts))
    size = len(vector_p)
    a_kk, c_dk = system.step_kk, system.shown_dk
    step_pkk, noise_pkk, first_pkk = (np.zeros((size, k, k)) for _ in range(3))
    first_pk, shown_pdk = np.zeros((size, k)), np.zeros((size, d, k))
    step_pkk[place["step_kk"]] = np.eye(k * k).reshape(-1, k, k)
    shown_pdk[place["shown_dk"]] = np.eye(d * k).reshape(-1, d, k)
    noise_pkk[place["step_noise_kk"]] = root_slopes(vector_p[place["step_noise_kk"]], k)
    if first == "start" and starts:
        first_pkk[place["start_kk"]] = root_slopes(vector_p[place["start_kk"]], k)
    mean_k, cov_kk = getattr(system, f"{first}_k"), getattr(system, f"{first}_kk")
    first_pk[place[f"{first}_k" if starts else "pooled_k"]] = np.eye(k)

    mean_wk, mean_pwk = np.empty((window, k)), np.empty((size, window, k))
    cov_wkwk, cov_pwkwk = np.empty((window, k, window, k)), np.empty((size, window, k, window, k))
    for t in range(window):
        mean_wk[t], mean_pwk[:, t], later_kk, later_pkk = mean_k, first_pk, cov_kk, first_pkk
        cov_wkwk[t, :, t], cov_pwkwk[:, t, :, t] = cov_kk, first_pkk
        for s in range(t + 1, window):
            later_pkk, later_kk = step_pkk @ later_kk + a_kk @ later_pkk, a_kk @ later_kk
            cov_wkwk[s, :, t], cov_wkwk[t, :, s] = later_kk, later_kk.T
            cov_pwkwk[:, s, :, t], cov_pwkwk[:, t, :, s] = later_pkk, later_pkk.swapaxes(1, 2)
        both_pkk = step_pkk @ cov_kk @ a_kk.T
        first_pkk = both_pkk + both_pkk.swapaxes(1, 2) + a_kk @ first_pkk @ a_kk.T + noise_pkk
        first_pk = step_pkk @ mean_k + first_pk @ a_kk.T
        mean_k, cov_kk = a_kk @ mean_k, a_kk @ cov_kk @ a_kk.T + system.step_noise_kk

    f = window * d
    one_wkf = np.einsum("wkvj,dj->wkvd", cov_wkwk, c_dk).reshape(window, k, f)  # states with what is seen
    cov_ff = np.einsum("ck,wkf->wcf", c_dk, one_wkf).reshape(f, f) + np.diag(np.tile(system.noise_d, window))
    moved_pff = np.einsum("pck,wkf->pwcf", shown_pdk, one_wkf, optimize=True).reshape(size, f, f)
    cov_pff = moved_pff + moved_pff.swapaxes(1, 2)
    cov_pff += (c_dk @ (cov_pwkwk.reshape(size, window, k, window, k) @ c_dk.T).reshape(size, window, k, f)).reshape(
        size, f, f
    )
    at, spot = np.arange(f), np.tile(np.arange(d), window)
    cov_pff[place["noise_d"].start + spot, at, at] += system.noise_d[spot]
    mean_f = (mean_wk @ c_dk.T + system.shown_d).ravel()
    mean_pwd = mean_pwk @ c_dk.T + np.einsum("pdk,wk->pwd", shown_pdk, mean_wk)
    mean_pwd[place["shown_d"]] += np.eye(d)[:, None, :]
    return Slopes(mean_f, cov_ff, mean_pwd.reshape(size, f), cov_pff)


@dataclass(frozen=True)
class Grams:
    """Second moments of windows and a one behind them, (W D + 1, W D + 1), whose last entry is their number.

    Attributes:
        pooled: of windows from everywhere.
        start: of windows from starts; None: sequences are no longer than a window.
    """

    pooled: Floats
    start: Floats | None = None

    @property
    def number(self) -> float:
        """How many windows there are."""
        return float(self.pooled[-1, -1] + (0.0 if self.start is None else self.start[-1, -1]))


class SystemFit(NamedTuple):
    """A system, and the log-likelihood of the windows, in nats a window, before its last step."""

    system: LinearSystem
    log: float


def floored_moments(gram: Floats, least: float) -> Floats:
    """A noisy matrix of second moments with its eigenvalues brought to a floor."""
    value_e, vector_ee = np.linalg.eigh((gram + gram.T) / 2)
    return np.asarray((vector_ee * np.maximum(value_e, least)) @ vector_ee.T)


def in_units(gram: Floats, std: float, unit_e: Floats, least: float) -> Floats:
    """Released moments, denoised, in the units of windows with a one after them.

    Args:
        gram: Σ y yᵀ as it came, of windows with a constant behind them.
        std: noise std of its diagonal.
        unit_e: what one is of every number of y.
        least: eigenvalues are at least so much of the noise.
    """
    number = max(float(gram[-1, -1]), std, 1e-9) * unit_e[-1] ** 2
    gram_ee = gram * np.outer(unit_e, unit_e)
    gram_ee[-1, -1] = number
    return floored_moments(gram_ee, max(least * std * float(np.max(unit_e[:-1])) ** 2, _LEAST_SHARE * number))


def em_step(grams: Grams, system: LinearSystem) -> SystemFit:
    """One iteration of EM, and the windows' log-likelihood before it."""
    pooled = expected_states(grams.pooled, system, system.pooled_k, system.pooled_kk)
    states = [pooled]
    if grams.start is not None:
        states.append(expected_states(grams.start, system, system.start_k, system.start_kk))
    start, number = states[-1], sum(part.number for part in states)
    state_ee, seen_de, before_kk, after_kk, cross_kk = (
        np.add.reduce([getattr(part, name) for part in states])
        for name in ("state_ee", "seen_de", "before_kk", "after_kk", "cross_kk")
    )
    square_d = np.add.reduce([part.square_d for part in states])
    times = float(state_ee[-1, -1])
    shown_de = np.linalg.solve(state_ee, seen_de.T).T
    step_kk = np.linalg.solve(before_kk, cross_kk.T).T
    least = kalman.LEAST_VARIANCE * float(square_d.mean()) / times
    noise_d = np.maximum((square_d - np.sum(shown_de * seen_de, axis=1)) / times, least)
    new = LinearSystem(
        step_kk=step_kk,
        step_noise_kk=kalman.floored((after_kk - step_kk @ cross_kk.T) / max(times - number, 1e-300)),
        shown_dk=shown_de[:, :-1],
        shown_d=shown_de[:, -1],
        noise_d=noise_d,
        start_k=start.first_k,
        start_kk=start.first_kk,
        pooled_k=pooled.first_k,
        pooled_kk=pooled.first_kk,
    )
    return SystemFit(new, sum(part.log for part in states) / grams.number)


def fit(grams: Grams, system: LinearSystem, *, rounds: int) -> SystemFit:
    """The system after some iterations."""
    latest = SystemFit(system, -math.inf)
    for _ in range(rounds):
        latest = em_step(grams, latest.system)
    return latest


def best(grams: Grams, n_states: int, width: int, *, rounds: int) -> SystemFit:
    """The most likely system that is found from several starts."""
    starts = (from_directions(grams, n_states, width, *start) for start in _STARTS)
    best_fit = max((fit(grams, start, rounds=_FIRST_ROUNDS) for start in starts), key=lambda one: one.log)
    return fit(grams, best_fit.system, rounds=rounds)


def from_directions(
    grams: Grams, n_states: int, width: int, step: float = _STARTS[0][0], noise: float = _STARTS[0][1]
) -> LinearSystem:
    """A start from the principal directions of windows, whose scores are the states.

    A window of a system that moves without noise is (C, C A, C A², ..) z_1. So the first points of the directions are
    C, and A is what brings the points of each to those that follow.

    Args:
        grams: read moments, of windows of two points or more.
        n_states: K, at most the numbers of a window.
        width: D.
        step: share of a state's variance that each step adds.
        noise: variance of the observations around the states, over the mean variance.
    """
    mean_e = grams.pooled[:-1, -1] / grams.pooled[-1, -1]
    cov_ee = grams.pooled[:-1, :-1] / grams.pooled[-1, -1] - np.outer(mean_e, mean_e)
    value_e, vector_ee = np.linalg.eigh(cov_ee)
    seen_ek = (vector_ee * np.sqrt(np.maximum(value_e, 0.0)))[:, : -n_states - 1 : -1]
    step_kk = np.linalg.lstsq(seen_ek[:-width], seen_ek[width:], rcond=None)[0].T
    step_kk /= max(1.0, float(np.abs(np.linalg.eigvals(step_kk)).max()))
    left_d = np.diagonal(cov_ee - seen_ek @ seen_ek.T).reshape(-1, width).mean(axis=0)
    noise_d = np.maximum(left_d, 0.0) + noise * float(np.trace(cov_ee)) / len(cov_ee)
    zero_k, eye_kk = np.zeros(n_states), np.eye(n_states)
    mean_d = mean_e.reshape(-1, width).mean(axis=0)
    laws = zero_k, eye_kk, zero_k, eye_kk
    return LinearSystem(step_kk, step * eye_kk, seen_ek[:width], mean_d, noise_d, *laws)
