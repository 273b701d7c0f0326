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
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior
from dpvb.models.sequences.window_fit import Windows

# Symbols of a person who is drawn, and entries of a table of all windows by those of the same person: others stand for
# longer sequences and for more people.
_MOST_SYMBOLS, _MOST_PAIRS = 100, 1e7
# Iterations of each fit, which begins where the model is.
_ROUNDS = 1000


class Spread(NamedTuple):
    """Steps that are corrected by what new fits miss on average, and their standard deviation, (K, K) each."""

    step_kk: Floats
    std_kk: Floats


def spread(
    model: HiddenMarkov, q: HiddenMarkovPosterior, draws: int, rng: np.random.Generator, *, noise_aware: bool = True
) -> Spread:
    """What fits to new people of the model say of its steps.

    Args:
        model, q: as fitted; the noise of each new release is that of the first.
        draws: how many releases.
        rng: public randomness.
        noise_aware: whether new releases have noise.
    """
    chain = model.fitted(_unread(model, q.start_ww, q.pooled), q.chain, _ROUNDS).chain
    units, weight = max(float(q.start_ww[: model.n_symbols].sum()), 1.0), max(float(q.pooled.sum()), 1.0)
    longest = min(model.max_length, _MOST_SYMBOLS)
    number = int(min(units, _MOST_PAIRS / longest**2))
    length = _length(model, chain, weight / units, longest, rng)
    counted = [_counted(model, _people(model, chain, number, length, rng)) for _ in range(draws)]
    centre = [np.mean(parts, axis=0) for parts in zip(*counted, strict=True)]
    scale = weight / max(float(centre[1].sum()), 1e-9)
    found = []
    for own in counted:
        # Fewer people than there were: their sums are made as large, and vary as much less.
        start_ww, pooled = (scale * c + math.sqrt(scale) * (x - c) for x, c in zip(own, centre, strict=True))
        start_ww += noise_aware * q.start_std * rng.standard_normal(start_ww.shape)
        pooled += noise_aware * q.pooled_std * rng.standard_normal(pooled.shape)
        again = model.fitted(_unread(model, start_ww, pooled), chain, _ROUNDS).chain
        found.append(again.laws(expected=False).step_kk)
    return Spread(2 * chain.laws(expected=False).step_kk - np.mean(found, axis=0), np.std(found, axis=0, ddof=1))


def _unread(model: HiddenMarkov, start_ww: Floats, pooled: Floats) -> Windows:
    """Released windows that no prior draws to a chain of symbols, as it would bend what states are."""
    return Windows(np.maximum(start_ww[: model.n_symbols], 0.0), np.maximum(pooled, 0.0))


def _people(model: HiddenMarkov, chain: HiddenChain, number: int, length: int, rng: np.random.Generator) -> Ints:
    """Symbols of people of nobody, (number, length)."""
    start_k, _, step_kk = chain.laws(expected=False)
    state_nt = dynamics.drawn(start_k, [step_kk], number, length, rng)
    return dynamics.shown(state_nt, model.shown_kv(chain), rng)


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


def _length(model: HiddenMarkov, chain: HiddenChain, weight: float, longest: int, rng: np.random.Generator) -> int:
    """The length with which a person's windows weigh so much on average."""
    code_nt = _people(model, chain, 500, longest, rng)
    lengths = np.arange(model.length, longest + 1)
    own = [float(_windows(model, code_nt[:, :long])[1].mean()) * (long - model.length + 1) for long in lengths]
    return int(lengths[np.argmin(np.abs(np.array(own) - weight))])
