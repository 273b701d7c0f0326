"""How far the steps of a hidden Markov model may be off: least squares read them again from the released windows.

EM takes counts for nonnegative, and priors draw them together: both bend what is read from noise. Least squares takes
the windows as they came, whose noise has mean 0, and laws whose entries may be a bit below 0. What a clip leaves of
each window is known from people who are drawn from the fit (`drawn_people`), and in turn corrects the fit.

===================  ==============================================================================
method               code
===================  ==============================================================================
n                    `Read.number`: the released windows, and those of starts
μ, J                 `window_slopes`: what is expected of n, and ∂μ/∂θ, whatever emissions the model has
v                    `Read.variance`: of a number's noise, and of what people add
H                    `gain`: Jᵀ diag(1/v) J + I; each θ has a prior of std 1
Cov θ                H⁻¹ (Jᵀ v⁻¹ Cov(n) v⁻¹ J + I) H⁻¹
===================  ==============================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import dynamics, window_slopes
from dpvb.models.sequences.drawn_people import DrawnPeople, drawn
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior
from dpvb.models.sequences.window_slopes import Laws, Read, free

# How often people are drawn and all is read again, and steps of each reading.
_DRAWN, _ROUNDS = 3, 30
# A reading ends where a step brings the squares down by less; drawn people have no smaller probability.
_STILL, _LEAST = 1e-4, 1e-4
# People whose influence is in memory together.
_TOGETHER = 1000


class Spread(NamedTuple):
    """Steps as least squares read them, and their standard deviations, (K, K) each."""

    step_kk: Floats
    std_kk: Floats


def spread(
    model: HiddenMarkov, q: HiddenMarkovPosterior, rng: np.random.Generator, *, noise_aware: bool = True
) -> Spread:
    """The steps, and how far they may be off.

    Args:
        model, q: as fitted, with windows of three symbols.
        rng: public randomness.
        noise_aware: whether the noise counts.
    """
    v = model.n_symbols
    number = np.concatenate([q.start_ww[:v, :v].ravel(), q.pooled.ravel()])
    units, weight = max(float(q.start_ww[:v].sum()), 1.0), max(float(q.pooled.sum()), 1.0)
    of_starts = np.arange(len(number)) < v * v
    noise = np.where(of_starts, q.start_std, q.pooled_std) ** 2
    start_k, first_k, step_kk = q.chain.laws(expected=False)
    laws = Laws(start_k, first_k, step_kk, model.shown_kv(q.chain))
    for _ in range(_DRAWN):
        people = _people(model, laws, weight / units, rng)
        kept = np.where(of_starts, 1.0, np.append(np.zeros(v * v), people.kept(v**3)))
        begun = np.bincount(people.code_nt[:, 0] * v + people.code_nt[:, 1], minlength=v * v) + 1.0
        squares = np.append(begun / len(people.code_nt), people.squares(v**3))
        scale = np.where(of_starts, units, weight / people.share)
        # Longer sequences than are drawn vary as more people do.
        alike = units * max(weight / units / people.weight, 1.0)
        read = Read(number, noise + alike * squares, kept, scale)
        laws, gain = _fitted(laws, read)
    return Spread(laws.step_kk, _std(laws, read, gain, people, alike, noise * noise_aware))


def _people(model: HiddenMarkov, laws: Laws, weight: float, rng: np.random.Generator) -> DrawnPeople:
    """People of the laws, whose windows weigh so much on average."""
    sound = (np.maximum(law, _LEAST) for law in laws)
    start_k, _, step_kk, shown_kv = (law / law.sum(axis=-1, keepdims=True) for law in sound)

    def people(number: int, length: int) -> Ints:
        return dynamics.shown(dynamics.drawn(start_k, [step_kk], number, length, rng), shown_kv, rng)

    given = model.n_symbols, model.length, model.power, model.bound
    return drawn(people, given, model.max_length, weight, rng)


def _fitted(laws: Laws, read: Read) -> tuple[Laws, Floats]:
    """The laws by damped Newton steps, and H there."""
    damping = 1.0
    inner, slope, best = _normal(laws, read)
    for _ in range(_ROUNDS):
        moved = laws.moved(np.asarray(np.linalg.solve(inner + damping * np.eye(len(slope)), slope), dtype=np.float64))
        found = _normal(moved, read)
        if found[2] > best:
            damping *= 10
            continue
        drop, damping = best - found[2], max(damping / 10, 1.0)
        laws, (inner, slope, best) = moved, found
        if drop < _STILL:
            break
    return laws, inner + np.eye(len(slope))


def _normal(laws: Laws, read: Read) -> tuple[Floats, Floats, float]:
    """Jᵀ v⁻¹ J, Jᵀ v⁻¹ (n - μ), and the squares (n - μ)² / v."""
    size = sum(law.size for law in laws) - 2 * len(laws.start_k)
    inner, slope, squares = np.zeros((size, size)), np.zeros(size), 0.0
    for cells in window_slopes.cells(laws, read):
        miss, whitened = cells.number - cells.mean, cells.slope / cells.variance[:, None]
        inner += whitened.T @ cells.slope
        slope += whitened.T @ miss
        squares += float((miss**2 / cells.variance).sum())
    return inner, slope, squares


def _std(laws: Laws, read: Read, gain: Floats, people: DrawnPeople, units: float, noise: Floats) -> Floats:
    """Standard deviations of the steps."""
    k, v = laws.shown_kv.shape
    own = slice(2 * k, 2 * k + k * (k - 1))
    to_step = np.kron(np.eye(k), free(k)) @ cho_solve(cho_factor(gain), np.eye(len(gain)))[own]
    influence = np.vstack(
        [(cells.slope / cells.variance[:, None]) @ to_step.T for cells in window_slopes.cells(laws, read)]
    )
    total, square = np.zeros(k * k), np.zeros(k * k)
    for first in range(0, len(people.code_nt), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        code_nt, place_nm = people.code_nt[some], people.place_nm[some] + v * v
        added_ne = influence[code_nt[:, 0] * v + code_nt[:, 1]]
        for place_n, weight_n in zip(place_nm.T, people.weight_nm[some].T, strict=True):
            added_ne = added_ne + weight_n[:, None] * influence[place_n]
        total, square = total + added_ne.sum(axis=0), square + (added_ne**2).sum(axis=0)
    n = len(people.code_nt)
    sample = units * np.maximum(square / n - (total / n) ** 2, 0.0)
    prior = (to_step**2).sum(axis=1)
    return np.asarray(np.sqrt(sample + noise @ influence**2 + prior).reshape(k, k))
