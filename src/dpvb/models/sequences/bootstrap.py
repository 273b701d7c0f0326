"""How far a hidden Markov model may be off: people are drawn from it, released with the same noise, and fitted again.

Of the people who were there only sums are known. So as many are drawn as there were starts, all of one length, with
which their windows weigh on average what was released. They are clipped as the model clips, so that the fits show what
clipping bends, too. All of it is made of released numbers, and public.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import dynamics
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior

# People who are drawn at a time, and entries of a table of their windows by their windows.
_MOST_PEOPLE, _MOST_PAIRS = 20_000, 2e7
# Iterations of each fit, which begins where the model is.
_ROUNDS = 300


class Spread(NamedTuple):
    """Of each parameter the mean of the new fits, beside the model's own, and their standard deviation.

    Attributes:
        step_kk, step_std_kk: of A.
        start_k, start_std_k: of π.
        shown_kv, shown_std_kv: of B.
    """

    step_kk: Floats
    step_std_kk: Floats
    start_k: Floats
    start_std_k: Floats
    shown_kv: Floats
    shown_std_kv: Floats


def spread(model: HiddenMarkov, q: HiddenMarkovPosterior, draws: int, rng: np.random.Generator) -> Spread:
    """What fits to new people of the model come to.

    Args:
        model, q: as fitted; the noise of each new release is that of the first.
        draws: how many releases.
        rng: public randomness.
    """
    units = max(float(q.start_vw.sum()), 1.0)
    number = int(min(units, _MOST_PEOPLE, max(_MOST_PAIRS / model.max_length**2, 100.0)))
    length = _length(model, q, float(q.pooled.sum()) / units, rng)
    counted = [_counted(model, _people(model, q, number, length, rng)) for _ in range(draws)]
    scale = units / number
    centre = [np.mean(parts, axis=0) for parts in zip(*counted, strict=True)]
    found: list[tuple[Floats, ...]] = []
    for own in counted:
        # Fewer people than there were: their sums are as many times as large, and vary less.
        start_vw, pooled = (scale * c + math.sqrt(scale) * (x - c) for x, c in zip(own, centre, strict=True))
        start_vw += q.start_std * rng.standard_normal(start_vw.shape)
        pooled += q.pooled_std * rng.standard_normal(pooled.shape)
        chain = model.fitted(model.read(start_vw, q.start_std, pooled, q.pooled_std), q.chain, _ROUNDS).chain
        laws = chain.laws(expected=False)
        found.append((laws.step_kk, laws.start_k, model.shown_kv(chain)))
    made: list[Floats] = []
    for parts in zip(*found, strict=True):
        made += [np.mean(parts, axis=0), np.std(parts, axis=0, ddof=1)]
    return Spread(*made)


def _people(model: HiddenMarkov, q: HiddenMarkovPosterior, number: int, length: int, rng: np.random.Generator) -> Ints:
    """Symbols of people of nobody, (number, length)."""
    start_k, _, step_kk = q.chain.laws(expected=False)
    state_nt = dynamics.drawn(start_k, [step_kk], number, length, rng)
    return dynamics.shown(state_nt, model.shown_kv(q.chain), rng)


def _windows(model: HiddenMarkov, code_nt: Ints) -> tuple[Ints, Floats]:
    """Places of the windows of each person, (n, M), and what each of a person's windows adds, (n,)."""
    long, v = code_nt.shape[1] - model.length + 1, model.n_symbols
    place_nm = np.zeros((len(code_nt), long), np.int64)
    for back in range(model.length):
        place_nm = place_nm * v + code_nt[:, back : back + long]
    square_n = (place_nm[:, :, None] == place_nm[:, None, :]).sum(axis=(1, 2))
    return place_nm, np.minimum(long ** (model.power - 1.0), model.bound / np.sqrt(square_n.astype(np.float64)))


def _counted(model: HiddenMarkov, code_nt: Ints) -> tuple[Floats, Floats]:
    """The sums that these people add to both blocks, without noise."""
    v, (place_nm, weight_n) = model.n_symbols, _windows(model, code_nt)
    start_vw = np.bincount(code_nt[:, 0] * (v + 1) + code_nt[:, 1], minlength=(v + 1) ** 2).astype(np.float64)
    weight_m = np.repeat(weight_n, place_nm.shape[1])
    pooled: Floats = np.bincount(place_nm.ravel(), weights=weight_m, minlength=v**model.length).astype(np.float64)
    return start_vw.reshape(v + 1, v + 1), pooled.reshape((v,) * model.length)


def _length(model: HiddenMarkov, q: HiddenMarkovPosterior, weight: float, rng: np.random.Generator) -> int:
    """The length with which a person's windows weigh so much on average."""
    code_nt = _people(model, q, 500, model.max_length, rng)
    lengths = np.arange(model.length, model.max_length + 1)
    own = [float(_windows(model, code_nt[:, :long])[1].mean()) * (long - model.length + 1) for long in lengths]
    return int(lengths[np.argmin(np.abs(np.array(own) - weight))])
