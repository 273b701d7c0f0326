"""How far the steps between states of numbers may be off: people of nobody are released and fitted as those who came.

A parametric bootstrap (Efron & Tibshirani 1993, chapter 6). Noise, clip, cells and priors bend a fit, and they bend a
fit to drawn people alike. So a law is sought whose people have on average the fit that was found (Gouriéroux, Monfort &
Renault 1993, indirect inference). How much the fits to its people differ says how far the steps may be off.

===================  ==============================================================================
method               code
===================  ==============================================================================
θ̂                    `found`: the fit as it was released
θ                    `law`, from which people are drawn; θ ← θ + θ̂ - b(θ)
B                    samples of m people, for n who came: `_SAMPLES`, `_Sums.number`
θ̂_b                  `_Sums.fits`: from n (ē + √(m/n + 1/B) (e_b - ē)) and noise of the plan, as ē has n/(Bm)
                     of the variance of n people
b(θ)                 mean of θ̂_b
===================  ==============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import cells, drawn_people, dynamics
from dpvb.models.sequences.hidden_cells import HiddenCells, HiddenCellsPosterior
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.step_errors import Spread

# Samples of each time that the law moves: the last ones tell the spread. Points of a sample, and people of it.
_SAMPLES, _POINTS, _PEOPLE = (20, 20, 60), 80_000, 4000
# No drawn law has a smaller probability, or a smaller variance in a range of -1 to 1.
_LEAST, _NARROW = 1e-4, 1e-4
# More people than any data have.
_MOST = 1e12


class Law(NamedTuple):
    """Weights of all starts and of all pairs (2,), first states (K,), steps (K, K), means and log variances (K, D)."""

    total_b: Floats
    start_k: Floats
    step_kk: Floats
    mean_kd: Floats
    log_kd: Floats

    @classmethod
    def of(cls, chain: HiddenChain) -> Law:
        """That of a fit."""
        start_k, _, step_kk = chain.laws(expected=False)
        total_b = np.array([(counts - chain.prior).sum() for counts in (chain.start_k, chain.pooled_k)])
        shown: Any = chain.emissions
        return cls(total_b, start_k, step_kk, shown.mean_dk.T, np.log(shown.variance_dk.T))

    def sound(self) -> Law:
        """The nearest law that people can be drawn from."""
        start_k, step_kk = np.maximum(self.start_k, _LEAST), np.maximum(self.step_kk, _LEAST)
        return Law(
            np.clip(self.total_b, 2.0, _MOST),
            start_k / start_k.sum(),
            step_kk / step_kk.sum(axis=1, keepdims=True),
            np.clip(self.mean_kd, -1.0, 1.0),
            np.clip(self.log_kd, math.log(_NARROW), 0.0),
        )

    def moved(self, found: Law, fits: list[Law]) -> Law:
        """The law with what the fits to its people lack of the one that was found."""
        back = (np.mean(ones, axis=0) for ones in zip(*fits, strict=True))
        return Law(*(own + one - mean for own, one, mean in zip(self, found, back, strict=True)))

    def drawn(self, n: int, length: int, rng: np.random.Generator) -> Floats:
        """Points of n people, (n, length, D)."""
        state_nt = dynamics.drawn(self.start_k, [self.step_kk], n, length, rng)
        return np.asarray(rng.normal(self.mean_kd[state_nt], np.exp(self.log_kd / 2)[state_nt]))


def spread(
    model: HiddenCells, q: HiddenCellsPosterior, rng: np.random.Generator, *, noise_aware: bool = True
) -> Spread:
    """The steps with what bends them put back, and how far they may be off.

    Args:
        model, q: as fitted.
        rng: public randomness.
        noise_aware: whether the noise counts in the deviations.
    """
    found = law = Law.of(q.chain)
    for samples in _SAMPLES:
        sums = _Sums.of(model, q, law.sound(), rng)
        added = [sums.added(rng) for _ in range(samples)]
        fits = sums.fits(added, rng, noisy=1.0)
        law = law.moved(found, fits)
    told = fits if noise_aware else sums.fits(added, rng, noisy=0.0)
    # The mean of the fits is no better known than from so many.
    std_kk = np.std([fit.step_kk for fit in told], axis=0, ddof=1) * math.sqrt(1 + 1 / samples)
    return Spread(law.step_kk, np.asarray(std_kk))


@dataclass(frozen=True)
class _Sums:
    """What drawn people add to the blocks, and fits to it.

    Attributes:
        number: n, of people who came, longer sequences than are drawn as more people.
        length_n: lengths that are drawn from.
    """

    model: HiddenCells
    q: HiddenCellsPosterior
    law: Law
    number: float
    length_n: Ints

    @classmethod
    def of(cls, model: HiddenCells, q: HiddenCellsPosterior, law: Law, rng: np.random.Generator) -> _Sums:
        """With as many people as starts were released, and lengths by what pairs weigh."""
        number, pairs = law.total_b.tolist()
        weight = pairs / number

        def codes(n: int, length: int) -> Ints:
            value_ntd = law.drawn(n, length, rng)
            return model.cells.placed(value_ntd.reshape(n * length, -1))[0].reshape(n, length)

        given = model.n_symbols, model.length, model.power, model.bound
        people = drawn_people.drawn(codes, given, model.max_length, weight, rng)
        length_n = 1 + np.count_nonzero(people.weight_nm, axis=1)
        return cls(model, q, law, number * max(weight / people.weight, 1.0), length_n)

    @property
    def people(self) -> int:
        """People of a sample, m."""
        return int(min(self.number, _PEOPLE, _POINTS / self.length_n.mean()))

    def added(self, rng: np.random.Generator) -> list[Floats]:
        """Means of what people of the law add to each block, clipped."""
        length_n = rng.choice(self.length_n, self.people)
        value_ntd = self.law.drawn(len(length_n), int(length_n.max()), rng)
        model, (n, longest, d) = self.model, value_ntd.shape
        v, size = model.n_symbols, 3 * d * model.n_symbols
        code_t, u_td = model.cells.placed(value_ntd.reshape(n * longest, d))
        code_nt = code_t.reshape(n, longest)
        given = v, model.length, model.power, model.bound
        pairs = drawn_people.counted(code_nt, length_n, *given)
        there_t = np.flatnonzero(np.arange(longest) < length_n[:, None])
        shown = cells.moments(code_t, u_td, there_t)
        place_tf = (there_t // longest * size)[:, None] + shown.place_tf
        own_nf = np.bincount(place_tf.ravel(), shown.value_tf.ravel(), n * size).reshape(n, size)
        own_nf = own_nf * length_n[:, None] ** (model.power - 1.0)
        norm_n = np.sqrt((own_nf**2).sum(axis=1))
        moments_f = np.minimum(1.0, model.blocks["moments"].bound / norm_n) @ own_nf
        sums = np.bincount(code_nt[:, 0], minlength=v), pairs.summed(pairs.weight_nm, v * v).reshape(v, v)
        return [np.asarray(total / n, dtype=np.float64) for total in (*sums, moments_f[:, None])]

    def fits(self, added: list[list[Floats]], rng: np.random.Generator, *, noisy: float) -> list[Law]:
        """The laws that are fitted to what each sample added, states in the order of the fit that was found."""
        mean = [np.mean(block, axis=0) for block in zip(*added, strict=True)]
        wide, fits = math.sqrt(self.people / self.number + 1 / len(added)), []
        number_b = self.law.total_b[0], self.number, self.number
        for sums in added:
            blocks = zip(number_b, mean, sums, noisy * self.q.noise_b, strict=True)
            shown = [
                n * (every + wide * (own - every)) + rng.normal(0, std, own.shape) for n, every, own, std in blocks
            ]
            chain = self.model.fitted(*self.model.read(shown, self.q.noise_b), self.q.chain).chain
            fits.append(Law.of(chain.permuted(_order(chain, self.q.chain))))
        return fits


def _order(chain: HiddenChain, like: HiddenChain) -> Ints:
    """The states by whose means are nearest."""
    one_kd, two_kd = Law.of(like).mean_kd, Law.of(chain).mean_kd
    square_kk = ((one_kd[:, None] - two_kd) ** 2).sum(axis=2)
    return np.asarray(linear_sum_assignment(np.nan_to_num(square_kk))[1])
