"""Standard deviations of a chain's probabilities, by the delta method: of the sample, and of the privacy noise.

A row of counts T_b with total R gives P_b = (T_b + α m_b) / (R + α). The noise, of std σ on each of V counts, adds

    Var P_b = σ² (1 - 2 P_b + V P_b²) / (R + α)²,

and the sample adds P_b (1 - P_b) w / (R + α), with w = Σ M^(2p-1) / Σ M^p over persons of M windows each, as each
window counts M^(p-1). Σ M^p is the block's total S. Σ M^(2p-1) is N (S/N)^((2p-1)/p), N the released number of persons:
exact for p = 1/2 and p = 1, and where all persons have the same M; otherwise too much. It takes lengths to be
independent of symbols, and nobody to be shortened by the clip.

Where the clip shortens many, it leaves κ_b of a window on average: T_b / κ_b takes the place of T_b and σ / κ_b that of
σ, and the sample varies as people do who are drawn from the chain and clipped (`drawn_people`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import dynamics
from dpvb.models.sequences.drawn_people import DrawnPeople, drawn
from dpvb.models.sequences.markov_chain import Chain, MarkovChain

# How often people are drawn and the counts are corrected.
_DRAWN = 3
# Least share of a change that is taken to be seen through the clip.
_LEAST_SEEN = 0.2


class Law(NamedTuple):
    """Conditional probabilities, and their standard deviations, of one shape."""

    mean: Floats
    std: Floats


def window_weight(total: float, persons: float, power: float) -> float:
    """The w of the head of this file."""
    total, persons = max(total, 1e-200), max(persons, 1e-200)
    return float((total / persons) ** ((2 * power - 1) / power) * persons / total)


def deviations(law: Floats, counts: Floats, prior_weight: float, weight: float, noise_std: float) -> Floats:
    """Standard deviation of each probability of a law, of its shape.

    Args:
        law: conditional probabilities, (..., V).
        counts: as they were read, of the same shape.
        prior_weight: α.
        weight: w.
        noise_std: σ; 0 leaves the noise out.
    """
    total = counts.sum(axis=-1, keepdims=True) + prior_weight
    total = np.maximum(total, 1e-150)
    noise = (noise_std / total) ** 2 * (1 - 2 * law + law.shape[-1] * law**2)
    return np.asarray(np.sqrt(np.maximum(noise + law * (1 - law) * weight / total, 0.0)))


class Freed(NamedTuple):
    """A chain without what a clip bends, what the clip leaves of each window, and the people who told that."""

    chain: Chain
    kept: Floats
    people: DrawnPeople


def freed(model: MarkovChain, q: Chain, rng: np.random.Generator) -> Freed:
    """What is lost of each window is put back.

    Args:
        model, q: as fitted.
        rng: public randomness.
    """
    shape, persons, found = q.windows.shape, max(float(q.first_v.sum()), 1.0), q
    for _ in range(_DRAWN):
        people = _people(model, found, float(q.windows.sum()) / persons, rng)
        kept = people.kept(q.windows.size).reshape(shape)
        windows = q.windows / kept
        pairs_vv = windows if model.order == 1 else (windows.sum(axis=2) + windows.sum(axis=0)) / 2
        found = replace(q, windows=windows, pairs_vv=pairs_vv)
    return Freed(found, kept, people)


def unbent(model: MarkovChain, q: Chain, rng: np.random.Generator, noise_std: float) -> Law:
    """The law of a chain whose clip shortens many, without what that bends.

    Args:
        model, q: as fitted.
        rng: public randomness.
        noise_std: σ; 0 leaves the noise out of account.
    """
    found, kept, people = freed(model, q, rng)
    persons = max(float(q.first_v.sum()), 1.0)
    law, total = model.law(found), found.windows.sum(axis=-1, keepdims=True) + model.prior_weight
    noise = (noise_std / kept) ** 2
    noise = noise * (1 - 2 * law) + law**2 * noise.sum(axis=-1, keepdims=True)
    one_nm = people.weight_nm / kept.ravel()[people.place_nm]
    sample = persons * _covariance(people, law, one_nm, one_nm)
    # A larger probability is shortened more: of its change so much is seen.
    seen = _covariance(people, law, one_nm, np.sign(one_nm)) * persons / np.maximum(law * (1 - law) * total, 1e-150)
    std = np.sqrt(np.maximum(noise + sample, 0.0)) / np.maximum(total, 1e-150) / np.clip(seen, _LEAST_SEEN, 1.0)
    return Law(law, std)


def _people(model: MarkovChain, q: Chain, weight: float, rng: np.random.Generator) -> DrawnPeople:
    """People of the chain, whose windows weigh so much on average."""
    laws = [model.law(q, order) for order in range(1, model.order + 1)]

    def people(number: int, length: int) -> Ints:
        return dynamics.drawn(model.initial(q), laws, number, length, rng)

    given = model.n_symbols, model.order + 1, model.power, model.bound
    return drawn(people, given, model.max_length, weight, rng)


def _covariance(people: DrawnPeople, law: Floats, x_nm: Floats, y_nm: Floats) -> Floats:
    """Mean product of what two weights of people's windows have beside the law times those of their row."""
    row_nm = people.place_nm // law.shape[-1]
    like_nmm = row_nm[:, :, None] == row_nm[:, None, :]
    beside = (np.einsum("nmk,nk->nm", like_nmm, one_nm) for one_nm in (x_nm, y_nm))
    added = [
        people.same_nm * x_nm * y_nm,
        *(one_nm * of_row for one_nm, of_row in zip((y_nm, x_nm), beside, strict=True)),
    ]
    both, x_row, y_row = (people.summed(one_nm, law.size).reshape(law.shape) for one_nm in added)
    found = both - law * (x_row + y_row) + law**2 * x_row.sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(found, 0.0) / len(people.place_nm))
